"""The HTTP server over real sockets, byte by byte, against echo_server (with sanitizers)."""
import re
import resource
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from serve_help import ECHO, GET, ROOT, Client, Server, post

VECTORS = ROOT / "tests/vectors/http"


@pytest.fixture(scope="module")
def server():
    with Server() as shared:
        yield shared


def test_an_answer_has_an_id_a_date_and_a_length(server):
    with server.connect() as client:
        client.send(GET)
        answer = client.answer()
    assert (answer.status, answer.body) == (200, b"ok")
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
        answer.fields["request-id"])
    parsed = time.strptime(answer.fields["date"], "%a, %d %b %Y %H:%M:%S GMT")
    assert time.strftime("%a, %d %b %Y %H:%M:%S GMT", parsed) == answer.fields["date"]
    assert abs(time.mktime(parsed) - time.mktime(time.gmtime())) < 60
    assert "server" not in answer.fields
    assert "connection" not in answer.fields


@pytest.mark.parametrize("given, is_kept", [("abc-123", True), ("x" * 128, True),
    ("x" * 129, False), ("a b", False),
    ('a"b', False), ("a\\b", False), ("", False), ("h\u00e9", False)])
def test_a_well_formed_request_id_comes_back(server, given, is_kept):
    with server.connect() as client:
        client.send(f"GET / HTTP/1.1\r\nHost: a\r\nRequest-Id: {given}\r\n\r\n".encode())
        assert (client.answer().fields["request-id"] == given) == is_kept


def test_a_repeated_request_id_is_replaced(server):
    with server.connect() as client:
        client.send(b"GET / HTTP/1.1\r\nHost: a\r\nRequest-Id: a\r\nRequest-Id: a\r\n\r\n")
        assert client.answer().fields["request-id"] != "a"


def test_a_problem_says_all_of_it(server):
    with server.connect() as client:
        client.send(b"GET /no HTTP/1.1\r\nHost: a\r\nRequest-Id: r1\r\n\r\n")
        answer = client.answer()
    assert answer.fields["retry-after"] == "2"
    assert answer.problem == {"type": "/docs/problems.md#not_found",
        "title": "Not Found", "status": 404,
        "detail": 'no such "path"', "code": "not_found", "effect": "no", "retry": "safe",
        "request_id": "r1", "operation_id": "op_1", "retry_after_ms": 1500, "more": [1],
        "error": {"type": "invalid_request_error", "code": "not_found",
            "message": 'no such "path"'}}


def test_a_connection_is_kept_for_many_requests(server):
    with server.connect() as client:
        for i in range(50):
            client.send(post("/echo", b"x" * i))
            assert client.answer().body == b"x" * i


@pytest.mark.parametrize("size", [1, 7, 61, 1000, 10**6])
def test_a_hundred_pipelined_requests_are_answered_in_order(server, size):
    bodies = [f"request {i} ".encode() * (i % 40) for i in range(100)]
    stream = b""
    for i, body in enumerate(bodies):
        if i % 3 == 0:
            stream += b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            stream += b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            stream += b"0\r\n\r\n"
        else:
            stream += post("/echo", body)
    with server.connect() as client:
        writer = threading.Thread(target=lambda: client.send(
            *(stream[at:at + size] for at in range(0, len(stream), size))))
        writer.start()
        for body in bodies:
            assert client.answer().body == body
        writer.join()


def test_pipelined_answers_keep_their_order_when_some_come_later(server):
    paths = [b"/later?%d" % (30 - i) if i % 2 else b"/big?%d" % i for i in range(20)]
    with server.connect() as client:
        client.send(b"".join(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path for path in paths))
        for i in range(20):
            body = client.answer().body
            assert body == b"later" if i % 2 else len(body) == i


@pytest.mark.parametrize("size", [0, 1, 16384, 30000, 32768, 40000, 1 << 20, 5 << 20])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_bodies_of_any_size_come_back(server, size, is_chunked):
    body = (bytes(i * 7 % 251 for i in range(5000)) * (size // 5000 + 1))[:size]
    with server.connect() as client:
        if is_chunked:
            request = b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            request += b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in
                (body[at:at + 9973] for at in range(0, size, 9973))) + b"0\r\n\r\n"
        else:
            request = post("/echo", body)
        writer = threading.Thread(target=lambda: client.send(request + GET))
        writer.start()
        assert client.answer().body == body
        assert client.answer().body == b"ok"
        writer.join()


def test_the_client_is_told_to_go_on_only_when_it_waits(server):
    with server.connect() as client:
        client.send(post("/echo", b"", "Expect: 100-continue").replace(b"Length: 0", b"Length: 5"))
        assert client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue"
        client.send(b"hello")
        assert client.answer().body == b"hello"
        client.send(post("/echo", b"at once", "Expect: 100-continue"))
        assert client.answer().body == b"at once"


def test_a_body_too_large_is_refused_before_it_is_sent():
    with Server(body_bytes=1000) as server, server.connect() as client:
        client.send(post("/echo", b"", "Expect: 100-continue").replace(b"h: 0", b"h: 1001"))
        assert client.refusal(413).problem["code"] == "body_too_large"


def test_who_sends_a_body_too_large_all_the_same_can_read_the_answer():
    with Server(body_bytes=1000) as server, server.connect() as client:
        client.send(post("/echo", b"x" * (4 << 20)))
        client.refusal(413)


def test_head_has_the_length_and_no_body(server):
    with server.connect() as client:
        client.send(b"HEAD /big?70000 HTTP/1.1\r\nHost: a\r\n\r\n" + GET)
        assert client.answer(has_body=False).fields["content-length"] == "70000"
        assert client.answer().body == b"ok"


def test_204_has_no_length(server):
    with server.connect() as client:
        client.send(b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n" + GET)
        answer = client.answer()
        assert answer.status == 204 and "content-length" not in answer.fields
        assert client.answer().body == b"ok"


def test_http_1_0_closes_unless_it_asks_not_to(server):
    with server.connect() as client:
        client.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert client.answer().fields["connection"] == "keep-alive"
        client.send(b"GET / HTTP/1.0\r\n\r\n")
        assert client.answer().fields["connection"] == "close"
        assert client.ends()


@pytest.mark.parametrize("request_bytes", [GET[:-2] + b"Connection: close\r\n\r\n",
    b"GET /close HTTP/1.1\r\nHost: a\r\n\r\n"])
def test_close_is_said_and_done(server, request_bytes):
    with server.connect() as client:
        client.send(request_bytes)
        assert client.answer().fields["connection"] == "close"
        assert client.ends()


def test_an_answer_that_cannot_be_sent_becomes_a_500(server):
    with server.connect() as client:
        client.send(b"GET /fields HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = client.answer()
        assert answer.status == 500 and "set-cookie" not in answer.fields
        assert client.ends()


def test_half_closed_clients_get_their_answers(server):
    with server.connect() as client:
        client.send(b"GET /later?50 HTTP/1.1\r\nHost: a\r\n\r\n" + GET)
        client.socket.shutdown(socket.SHUT_WR)
        assert client.answer().body == b"later"
        assert client.answer().body == b"ok"
        assert client.ends()


@pytest.mark.parametrize("cut", [b"GET / HT", post("/echo", b"abcdef")[:-3]])
def test_a_request_cut_off_is_refused(server, cut):
    with server.connect() as client:
        client.send(cut)
        client.socket.shutdown(socket.SHUT_WR)
        client.refusal(400)


REFUSALS = [
    (b"GET / HTTP/1.1\r\n\r\n", 400), (b"GET / HTTP/1.1\nHost: a\n\n", 400),
    (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n", 400),
    (post("/echo", b"abc", "Content-Length: 3"), 400),
    (post("/echo", b"abc", "Content-Length: 4"), 400),
    (post("/echo", b"abc", "Transfer-Encoding: chunked"), 400),
    (b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1x\r\n", 400),
    (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505), (b"FROB / HTTP/1.1\r\nHost: a\r\n\r\n", 501),
    (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
    (b"GET / HTTP/1.1\r\nHost: a\r\nA: " + b"a" * 20000 + b"\r\n\r\n", 431),
    (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"A: b\r\n" * 100 + b"\r\n", 431),
    (GET[:-2] + b"Expect: the unexpected\r\n\r\n", 417),
    (b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n", 413),
]


@pytest.mark.parametrize("request_bytes, status", REFUSALS)
def test_what_is_refused_is_answered_and_closed(server, request_bytes, status):
    with server.connect() as client:
        client.send(GET + request_bytes + GET)
        assert client.answer().body == b"ok"
        client.refusal(status)


ESCAPES = {"r": "\r", "n": "\n", "t": "\t", "0": "\0", "\\": "\\"}


def unescape(text):
    """The escapes that requests.txt explains."""
    def one(match):
        if match[1]:
            return unescape(match[2]) * int(match[1])
        return chr(int(match[3], 16)) if match[3] else ESCAPES[match[4]]
    return re.sub(r"\\(?:\{(\d+):(.*?)\}|x([0-9A-Fa-f]{2})|(.))", one, text, flags=re.S)


def vectors():
    """Of every case: its name, the verdict and the bytes."""
    for case in (VECTORS / "requests.txt").read_text().split("\n=== ")[1:]:
        line, *lines = case.split("\n")
        verdict, _, name = line.partition(" ")
        text = "".join(each[2:] for each in lines if each.startswith("| "))
        if text:  # of nothing there is nothing to answer
            yield name, verdict, unescape(text).encode("latin-1")


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_the_vectors_have_their_verdicts_over_a_socket(server, cut):
    """What is taken is answered and what is refused is closed, wherever the network cuts it."""
    cases = list(vectors())
    assert len(cases) > 300
    for name, verdict, text in cases:
        at = [0, len(text) // 2, len(text) - 1, 17][cut]
        with server.connect() as client:
            client.send(text[:at], text[at:])
            client.socket.shutdown(socket.SHUT_WR)
            is_head = text.lstrip(b"\r\n").startswith(b"HEAD ")
            answer = client.answer(has_body=not is_head or not verdict == "ok")
            while answer.status == 100:
                answer = client.answer()
            if verdict == "ok":
                assert answer.status in (200, 204, 404), name
            else:
                assert answer.status == (400 if verdict == "more" else int(verdict)), name
                assert client.ends(), name


def test_a_slow_head_is_408(server):
    with Server(head_ms=300) as quick, quick.connect() as client:
        client.send(GET)
        assert client.answer().status == 200
        begin = time.monotonic()
        client.send(b"GET / HTTP/1.1\r\n")
        assert client.refusal(408).problem["code"] == "request_timeout"
        assert 0.25 < time.monotonic() - begin < 30


def test_a_head_that_trickles_is_408_all_the_same():
    with Server(head_ms=500) as server, server.connect() as client:
        for byte in GET:
            try:
                client.send(bytes([byte]))
            except (BrokenPipeError, ConnectionResetError):
                break
            time.sleep(0.05)
        client.refusal(408)


def test_a_slow_body_is_408_and_a_steady_one_is_not():
    with Server(body_ms=2000) as server, server.connect() as slow, server.connect() as steady:
        slow.send(post("/echo", b"x" * 5000)[:-4999])
        request = post("/echo", b"y" * 100000)
        for at in range(0, len(request), 5000):
            steady.send(request[at:at + 5000])
            time.sleep(0.05)
        assert steady.answer().body == b"y" * 100000
        slow.refusal(408)


def test_an_idle_connection_is_closed_in_silence():
    with Server(idle_ms=1500) as server, server.connect() as fresh, server.connect() as used:
        used.send(GET)
        assert used.answer().status == 200
        assert used.ends()
        assert fresh.ends()


def test_a_client_that_does_not_read_is_cut_off():
    with Server(write_ms=500) as server, server.connect(receive_bytes=4096) as client:
        client.send(b"GET /big?50000000 HTTP/1.1\r\nHost: a\r\n\r\n")
        server.wait_for(open=1)
        server.wait_for(open=0)


def test_a_client_that_reads_slowly_but_steadily_is_not():
    with Server(write_ms=3000) as server, server.connect(receive_bytes=4096) as client:
        client.send(b"GET /big?8000000 HTTP/1.1\r\nHost: a\r\n\r\n")
        got = 0
        while got < 8000000:
            piece = client.more()
            assert piece
            got += len(piece)
            time.sleep(0.004)


def test_a_client_that_pipelines_and_does_not_read_makes_no_work():
    with Server(write_ms=60000) as server, server.connect(receive_bytes=4096) as client:
        client.socket.settimeout(1)
        request = b"GET /big?100000 HTTP/1.1\r\nHost: a\r\n\r\n"
        with pytest.raises(TimeoutError):
            for _ in range(100000):
                client.send(request * 100)
        assert server.stats()["requests"] < 1000
        with server.connect() as other:
            other.send(GET)
            assert other.answer().body == b"ok"
        client.reset()


def test_a_thousand_idle_and_two_hundred_slow_do_not_slow_the_others():
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, most), most))
    with Server() as server:
        idle = [server.connect() for _ in range(1000)]
        slow = [server.connect() for _ in range(200)]
        for i, client in enumerate(slow):
            client.send(b"GET / HT" if i % 2 else post("/echo", b"x" * 50000)[:-100])
        begin = time.monotonic()
        with server.connect() as client:
            for _ in range(500):
                client.send(GET)
                assert client.answer().status == 200
        assert time.monotonic() - begin < 60
        assert server.stats()["open"] >= 1200
        for client in idle + slow:
            client.socket.close()
        server.wait_for(open=0, in_flight=0)


def test_one_connection_too_many_is_told_so():
    with Server(connections=3) as server:
        held = [server.connect() for _ in range(3)]
        server.wait_for(open=3)
        with server.connect() as client:
            client.send(GET)
            answer = client.refusal(503)
            assert "connections_max" in answer.problem["detail"]
            assert answer.fields["retry-after"] == "1"
        held.pop().socket.close()
        server.wait_for(open=2)
        with server.connect() as client:
            client.send(GET)
            assert client.answer().status == 200
        for each in held:
            each.socket.close()


def test_too_many_bytes_in_flight_are_503():
    with Server(in_flight=1) as server, server.connect() as client:
        client.send(post("/echo", b"x" * (3 << 20)))
        answer = client.refusal(503)
        assert "in_flight_bytes_max is reached" in answer.problem["detail"]
        with server.connect() as other:
            other.send(post("/echo", b"y" * 400000))
            assert len(other.answer().body) == 400000


def test_without_descriptors_the_rest_is_served():
    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
    process = subprocess.Popen([ECHO, "loops", "1", "listen", "127.0.0.1:0"], preexec_fn=few,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    address = process.stdout.readline().split()[1]
    assert process.stdout.readline() == "ready\n"
    first = Client(address)
    first.send(GET)
    assert first.answer().status == 200
    crowd = [Client(address) for _ in range(60)]
    time.sleep(0.5)
    ticks = cpu_ticks(process.pid)
    time.sleep(1)
    assert cpu_ticks(process.pid) - ticks < 50, "it spins"
    first.send(GET)
    assert first.answer().status == 200
    for client in crowd:
        client.socket.close()
    time.sleep(0.3)
    with Client(address) as again:
        again.send(GET)
        assert again.answer().status == 200
    process.communicate(timeout=60)
    assert process.returncode == 0


def cpu_ticks(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_an_answer_for_a_client_that_is_gone_is_dropped():
    with Server() as server:
        for i in range(100):
            client = server.connect()
            client.send(b"GET /later?%d HTTP/1.1\r\nHost: a\r\n\r\n" % (200 + i))
            client.reset()
        server.wait_for(open=0, requests=100)
        server.wait_for(open=0, in_flight=0)


def test_many_connections_opened_and_reset():
    with Server(connections=5000) as server:
        for i in range(1000):
            client = server.connect()
            client.send([b"", b"GET", GET, GET * 50, post("/echo", b"x" * 70000)[:-1]][i % 5])
            if i % 2:
                client.reset()
            else:
                client.socket.close()
        server.wait_for(open=0, in_flight=0, accepted=1000)


def test_a_drain_answers_what_is_in_flight():
    with Server() as server:
        idle = server.connect()
        busy = server.connect()
        half = server.connect()
        later, most = b"GET /later?500 HTTP/1.1\r\nHost: a\r\n\r\n", post("/echo", b"abc")[:-1]
        busy.send(later)
        half.send(most)
        # A request of which nothing was read yet is not in flight: a drain closes its connection.
        server.wait_for(in_flight=1, open=3, **{"in": len(later) + len(most)})
        server.say("drain 10000")
        assert idle.ends()
        half.send(b"c")
        for client, body in ((half, b"abc"), (busy, b"later")):
            answer = client.answer()
            assert answer.body == body
            assert answer.fields["connection"] == "close"
            assert client.ends()
            client.socket.close()
        assert server.process.stdout.readline() == "drained 1\n"
        with pytest.raises(ConnectionRefusedError):
            server.connect()


def test_a_drain_ends_in_time_and_says_so():
    with Server() as server, server.connect() as client:
        client.send(b"GET /later?30000 HTTP/1.1\r\nHost: a\r\n\r\n")
        server.wait_for(in_flight=1)
        begin = time.monotonic()
        assert server.ask("drain 300") == "drained 0"
        assert time.monotonic() - begin < 25
        assert client.ends()


def test_wakes_from_another_thread_all_arrive():
    with Server(loops=2) as server:
        def work():
            with server.connect() as client:
                for _ in range(200):
                    client.send(b"GET /later HTTP/1.1\r\nHost: a\r\n\r\n")
                    assert client.answer().body == b"later"
        threads = [threading.Thread(target=work) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.wait_for(open=0)["requests"] == 3200


def test_a_unix_socket_is_served_and_removed(tmp_path):
    path = tmp_path / "s"
    with Server(["mode", "640", "listen", f"unix:{path}"], loops=2) as server:
        assert path.stat().st_mode & 0o777 == 0o640
        for _ in range(4):
            with server.connect() as client:
                client.send(b"GET /about HTTP/1.1\r\nHost: a\r\n\r\n")
                assert client.answer().body == b"GET /about  unix 0 0"
    assert not path.exists()


def test_a_stale_socket_is_replaced_and_a_live_one_refused(tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with Server(f"unix:{path}") as server:
        with pytest.raises(RuntimeError, match="in use"):
            Server(f"unix:{path}")
        with server.connect() as client:
            client.send(GET)
            assert client.answer().status == 200
    path.write_text("precious")
    with pytest.raises(RuntimeError, match="not a socket"):
        Server(f"unix:{path}")
    assert path.read_text() == "precious"


def test_a_port_in_use_is_refused(server):
    with pytest.raises(RuntimeError, match="in use"):
        Server(server.addresses[0])


def test_ipv6_and_bad_addresses():
    with Server("[::1]:0") as server, server.connect() as client:
        client.send(b"GET /about HTTP/1.1\r\nHost: a\r\n\r\n")
        assert re.fullmatch(rb"GET /about  \[::1\]:\d+ 0 0", client.answer().body)
    for bad in ["127.0.0.1", "localhost:1", "127.0.0.1:70000", ":80", "[::1:80", "unix:",
            "unix:/" + "x" * 120, "127.0.0.1:", "1.2.3:80"]:
        with pytest.raises(RuntimeError, match="bad address"):
            Server(bad)
