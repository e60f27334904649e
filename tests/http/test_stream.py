"""Bodies in pieces and streamed answers over real sockets, against echo_server."""
import socket
import threading
import time
from pathlib import Path

import pytest

from serve_help import GET, Server, post
from test_serve_tls import certificates, context, folder, tls_server  # noqa: F401

MIB = 1 << 20


@pytest.fixture(scope="module")
def server():
    with Server(hook=1) as shared:
        yield shared
        shared.wait_for(jobs=0, in_flight=0)


def get(path, *fields, method="GET", version="1.1"):
    lines = [f"{method} {path} HTTP/{version}", "Host: a", *fields, "", ""]
    return "\r\n".join(lines).encode()


def chunked(path, *pieces, is_ended=True):
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return head + body + (b"0\r\n\r\n" if is_ended else b"")


def letters(count):
    return (bytes(range(ord("a"), ord("a") + 23)) * (count // 23 + 1))[:count]


def head_of(client):
    """Status and fields; the body is left to the caller."""
    return client.answer(has_body=False)


def chunks(client):
    """The body of a chunked answer, once it is whole."""
    body = b""
    while True:
        size = int(client.until(b"\r\n"), 16)
        while len(client.left) < size + 2:
            piece = client.more()
            assert piece, "the connection ended inside a chunk"
            client.left += piece
        body += client.left[:size]
        assert client.left[size:size + 2] == b"\r\n"
        client.left = client.left[size + 2:]
        if size == 0:
            return body


def rest(client):
    """All bytes to the end of the connection."""
    while piece := client.more():
        client.left += piece
    taken, client.left = client.left, b""
    return taken


def memory_mib(server):
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def in_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    return thread


# ------------------------------------------------------------------------------------- the hook --

def test_a_refusal_comes_before_the_body_is_asked_for(server):
    with server.connect() as client:
        client.send(post("/refuse", b"", "Expect: 100-continue").replace(b"h: 0", b"h: 9"))
        answer = client.answer()
        assert (answer.status, answer.body) == (403, b"no")
        assert answer.fields["connection"] == "close"
        assert client.ends()


@pytest.mark.parametrize("request_bytes", [post("/refuse", b"x" * (4 * MIB)),
    chunked("/refuse", b"x" * 100000, b"y"), post("/refuse", b"x"), post("/refuse", b"xy")[:-1],
    post("/refuse", GET)], ids=["long", "chunked", "short", "half", "smuggled"])
def test_a_refusal_reads_nothing_of_the_body_and_closes(server, request_bytes):
    with server.connect() as client:
        client.send(GET + request_bytes)
        assert client.answer().body == b"ok"
        answer = client.answer()
        assert (answer.status, answer.fields["connection"]) == (403, "close")
        assert client.ends()


def test_a_refusal_of_a_request_without_a_body_keeps_the_connection(server):
    with server.connect() as client:
        client.send((get("/refuse") + post("/refuse", b"")) * 20 + GET)
        for _ in range(40):
            answer = client.answer()
            assert answer.status == 403 and "connection" not in answer.fields
        assert client.answer().body == b"ok"


def test_an_answer_may_be_streamed_instead_of_the_body(server):
    with server.connect() as client:
        client.send(post("/refuse-late?300000", b"x" * 1000))
        answer = client.answer()
        assert answer.body == letters(300000) and answer.fields["connection"] == "close"
        assert client.ends()
        server.wait_for(jobs=0)
    with server.connect() as client:
        client.send(get("/refuse-late?300000") + GET)
        assert client.answer().body == letters(300000)
        assert client.answer().body == b"ok"


def test_whole_bodies_are_as_without_a_hook(server):
    with server.connect() as client:
        for size in (0, 1, 20000, 40000, 300000):
            body = letters(size)
            writer = in_thread(lambda: client.send(
                post("/echo", body) + chunked("/echo", *([body] if body else []))))
            assert client.answer().body == body
            assert client.answer().body == body
            writer.join()


def test_one_request_may_have_a_limit_of_its_own():
    with Server(hook=1, body_bytes=1000) as server:
        with server.connect() as client:
            client.send(post("/limit-whole?5000", letters(5000)))
            assert client.answer().body == letters(5000)
            client.send(chunked("/limit-whole?100000", *[letters(1000)] * 100))
            assert client.answer().body == letters(1000) * 100
            client.send(post("/echo", letters(1001)))
            client.refusal(413)
        for request in (post("/limit-whole?10", letters(11)),
                chunked("/limit-whole?10", b"12345", b"678901")):
            with server.connect() as client:
                client.send(request)
                client.refusal(413)
        server.wait_for(jobs=0, cuts=0, open=0)


# ---------------------------------------------------------------------------- bodies in pieces --

@pytest.mark.parametrize("size", [0, 1, 20000, 40000, 3 * MIB])
@pytest.mark.parametrize("step", [1, 977, MIB])
def test_pieces_are_the_body_however_it_comes(server, size, step):
    if step == 1 and size > 1:
        size = 3000
    body = bytes(i * 7 % 251 for i in range(size))
    wanted = f"{size} {sum(body)}".encode()
    before = server.stats()["wholes"]
    pieces = [body[at:at + 1009] for at in range(0, size, 1009)]
    with server.connect() as client:
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for request in (post("/pieces", body), chunked("/pieces", *pieces)):
            client.send(*(request[at:at + step] for at in range(0, len(request), step)))
            assert client.answer().body == wanted
        client.send(GET)
        assert client.answer().body == b"ok"
    assert server.stats()["wholes"] == before + 2


def test_pipelined_bodies_in_pieces_are_answered_in_order(server):
    requests = []
    for i in range(60):
        body = letters(i * 97)
        requests += [post("/pieces", body), chunked("/pieces", *([body] if i else [])), GET]
    stream = b"".join(requests)
    for step in (61, 4096, len(stream)):
        with server.connect() as client:
            writer = in_thread(lambda: client.send(
                *(stream[at:at + step] for at in range(0, len(stream), step))))
            for i in range(60):
                body = letters(i * 97)
                assert client.answer().body == f"{len(body)} {sum(body)}".encode()
                assert client.answer().body == f"{len(body)} {sum(body)}".encode()
                assert client.answer().body == b"ok"
            writer.join()


def test_the_client_that_waits_is_told_to_go_on(server):
    with server.connect() as client:
        client.send(post("/pieces", b"", "Expect: 100-continue").replace(b"h: 0", b"h: 5"))
        assert client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue"
        client.send(b"hello")
        assert client.answer().body == f"5 {sum(b'hello')}".encode()


def test_no_piece_comes_while_it_is_paused_and_all_come_in_the_end(server):
    """That none comes is asserted by the server itself."""
    body = letters(400000)
    with server.connect() as client:
        writer = in_thread(lambda: client.send(post("/slow?5", body) + chunked("/slow?1", body)))
        assert client.answer().body == f"400000 {sum(body)}".encode()
        assert client.answer().body == f"400000 {sum(body)}".encode()
        writer.join()


def test_a_pause_stops_reading_from_the_client():
    with Server(hook=1) as server, server.connect() as client:
        client.socket.settimeout(1)
        with pytest.raises(TimeoutError):
            client.send(post("/stuck", b"x" * (64 * MIB)))
        assert server.stats()["in"] < 100000
        assert server.ask("drain 100") == "drained 0"
        assert server.stats()["cuts"] == 1


def test_a_pause_is_not_the_clients_time():
    with Server(hook=1, body_ms=300) as server, server.connect() as client:
        client.send(post("/slow?1500", b"x" * 10)[:-5])
        time.sleep(0.2)
        client.send(b"x" * 5)
        assert client.answer().body == b"10 1200"
        assert server.stats()["cuts"] == 0


# --------------------------------------------------------------------------------- cut, and why --

CUTS = [
    (post("/pieces", b"x" * 100)[:-10], 400), (chunked("/pieces", b"abc", is_ended=False), 400),
    (chunked("/pieces", b"abc", is_ended=False) + b"x", 400),
    (chunked("/pieces", b"abc")[:-5] + b"\r\n", 400),
    (post("/limit?10", b"x" * 11), 413), (chunked("/limit?10", b"12345", b"678901"), 413),
    (chunked("/pieces", is_ended=False) + b"0\r\nA: " + b"b" * 9000, 431),
]


@pytest.mark.parametrize("request_bytes, status", CUTS, ids=range(len(CUTS)))
def test_a_body_that_cannot_be_whole_is_cut_once_and_refused(request_bytes, status):
    with Server(hook=1) as server:
        with server.connect() as client:
            client.send(GET + request_bytes)
            client.socket.shutdown(socket.SHUT_WR)
            assert client.answer().body == b"ok"
            client.refusal(status)
        server.wait_for(jobs=0, cuts=1, wholes=0, gones=0, in_flight=0, open=0)


def test_a_body_that_is_late_is_cut_and_408():
    with Server(hook=1, body_ms=300) as server, server.connect() as slow:
        slow.send(post("/pieces", b"x" * 5000)[:-100])
        with server.connect() as steady:
            request = post("/pieces", b"y" * 100000)
            for at in range(0, len(request), 5000):
                steady.send(request[at:at + 5000])
                time.sleep(0.05)
            assert steady.answer().body == f"100000 {100000 * ord('y')}".encode()
        slow.refusal(408)
        server.wait_for(jobs=0, cuts=1, wholes=1)


@pytest.mark.parametrize("path", ["/pieces", "/slow?20", "/echo-pieces", "/half",
    "/early?1000000", "/early-stream?30000000"])
def test_a_client_that_vanishes_in_its_body_is_cut_once(path):
    with Server(hook=1) as server:
        for i in range(20):
            client = server.connect()
            client.send(post(path, b"x" * 100000)[:-1 - i * 4000])
            if i % 2:
                server.wait_for(jobs=1)
            client.reset()
        stats = server.wait_for(jobs=0, open=0, in_flight=0)
        assert stats["wholes"] == 0 and stats["cuts"] <= 20 and stats["gones"] == 0
        assert stats["cuts"] == stats["requests"]


def test_a_wake_that_is_on_its_way_when_the_body_is_cut_is_dropped():
    with Server(hook=1) as server:
        for i in range(300):
            client = server.connect()
            client.send(post(f"/slow?{i % 3}", b"x" * 9000)[:-1])
            time.sleep(0.001 * (i % 4))
            client.reset()
        stats = server.wait_for(jobs=0, open=0, in_flight=0)
        assert stats["cuts"] == stats["requests"] and stats["wholes"] == 0


# ------------------------------------------------------------------------------- early answers --

@pytest.mark.parametrize("bytes_before", [1, 5000, 90000])
def test_an_answer_may_come_before_the_body_is_whole(server, bytes_before):
    with server.connect() as client:
        before = server.stats()
        writer = in_thread(lambda: client.send(post(f"/early?{bytes_before}", b"x" * 100000)))
        answer = client.answer()
        assert answer.body == b"early" and answer.fields["connection"] == "close"
        writer.join()
        assert client.ends()
        after = server.stats()
        assert (after["cuts"], after["wholes"]) == (before["cuts"], before["wholes"])


def test_an_answer_may_be_streamed_while_the_body_still_comes(server):
    with server.connect() as client:
        request = post("/early-stream?5000000", b"x" * 200000)
        client.send(request[:-100000])
        head = head_of(client)
        assert head.fields["connection"] == "close"
        client.send(request[-100000:])
        assert rest(client) == letters(5000000)


@pytest.mark.parametrize("size", [0, 10, 70000, 20 * MIB])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_pieces_are_echoed_while_they_come(server, size, is_chunked):
    body = letters(size)
    with server.connect() as client:
        request = post("/echo-pieces", body)
        if is_chunked:
            request = chunked("/echo-pieces",
                *(body[at:at + 99991] for at in range(0, size, 99991)))
        writer = in_thread(lambda: client.send(request))
        head = head_of(client)
        is_known = "content-length" in head.fields
        assert is_known != is_chunked
        if size == 0 and not is_chunked:
            client.send(GET)
            assert client.answer().body == b"ok"
        elif is_chunked:
            assert chunks(client) == body and client.ends()
        else:
            assert rest(client) == body
        writer.join()


def test_an_echo_is_held_back_by_a_client_that_does_not_read(server):
    with server.connect(receive_bytes=4096) as client:
        client.socket.settimeout(1)
        before = server.stats()["in"]
        with pytest.raises(TimeoutError):
            client.send(post("/echo-pieces", b"x" * (200 * MIB)))
        assert server.stats()["in"] - before < 20 * MIB  # what the kernel holds, and a little
        client.reset()


@pytest.mark.parametrize("end", [b"zz\r\n", None])
def test_a_streamed_answer_breaks_when_its_request_does(end):
    """The half of an answer must not look like a whole one."""
    with Server(hook=1, body_ms=400) as server, server.connect() as client:
        client.send(chunked("/echo-pieces", b"abc", is_ended=False) + (end or b""))
        assert head_of(client).status == 200
        assert rest(client) == b"3\r\nabc\r\n"
        server.wait_for(jobs=0, cuts=1, wholes=0, gones=0)


def test_of_an_answer_begun_and_cut_nothing_is_seen(server):
    with server.connect() as client:
        client.send(GET + chunked("/half", b"abc", is_ended=False) + b"zz")
        assert client.answer().body == b"ok"
        assert rest(client) == b""
    with server.connect() as client:
        client.send(GET + chunked("/half", b"abc") + GET)
        assert client.answer().body == b"ok"
        answer = client.answer()
        assert answer.fields["half"] == "an answer" and answer.body == b"half"
        assert client.answer().body == b"ok"


# ---------------------------------------------------------------------------- streamed answers --

@pytest.mark.parametrize("size", [0, 1, 9999, 10000, 64000, 70000, 5 * MIB])
def test_streamed_answers_are_whole_and_the_connection_is_kept(server, size):
    with server.connect() as client:
        client.send(GET + get(f"/stream?{size}") + GET + get(f"/chunked?{size}") + GET)
        assert client.answer().body == b"ok"
        answer = client.answer()
        assert answer.body == letters(size)
        assert answer.fields["content-length"] == str(size) and "date" in answer.fields
        assert client.answer().body == b"ok"
        answer = head_of(client)
        assert answer.fields["transfer-encoding"] == "chunked"
        assert "content-length" not in answer.fields and "connection" not in answer.fields
        assert chunks(client) == letters(size)
        assert client.answer().body == b"ok"


def writes(server):
    return int(Path(f"/proc/{server.process.pid}/io").read_text().split("syscw: ")[1].split()[0])


def test_many_small_pieces_are_few_system_calls(server):
    with server.connect() as client:
        client.send(get("/small?100") + GET)  # the way that nothing has to be waited for
        assert client.answer().body == letters(100)
        assert client.answer().body == b"ok"
        before = writes(server)
        client.send(get("/small?200000"))
        assert client.answer().body == letters(200000)
        assert 1 <= writes(server) - before < 50, "of 2,000 pieces"


def test_pieces_leave_as_they_are_given(server):
    with server.connect() as client:
        before = writes(server)
        client.send(get("/trickle?30") + GET)
        head_of(client)
        assert chunks(client) == b"drop " * 30
        assert writes(server) - before >= 30  # not with the end, and no two together
        assert client.answer().body == b"ok"


def test_head_gets_the_head_alone(server):
    with server.connect() as client:
        client.send(get("/stream?70000", method="HEAD") + get("/chunked?70000", method="HEAD") +
            get("/absent?200", method="HEAD") + GET)
        assert head_of(client).fields["content-length"] == "70000"
        for _ in range(2):
            fields = head_of(client).fields
            assert "content-length" not in fields and "transfer-encoding" not in fields
        assert client.answer().body == b"ok"


@pytest.mark.parametrize("status", [204, 304])
def test_a_status_without_a_body_says_nothing_of_one(server, status):
    with server.connect() as client:
        client.send(get(f"/absent?{status}") + GET)
        answer = head_of(client)
        assert answer.status == status
        assert "content-length" not in answer.fields
        assert "transfer-encoding" not in answer.fields
        assert client.answer().body == b"ok"


def test_nobody_waits_for_a_body_that_is_absent(server):
    with server.connect() as client:
        client.send(get("/absent?200") + GET)
        assert client.answer().fields["content-length"] == "0"
        assert client.answer().body == b"ok"


def test_http_1_0_sees_the_end_of_a_stream_by_the_close(server):
    for keep in ((), ("Connection: keep-alive",)):
        with server.connect() as client:
            client.send(get("/chunked?300000", *keep, version="1.0"))
            answer = head_of(client)
            assert answer.fields["connection"] == "close"
            assert "transfer-encoding" not in answer.fields
            assert "content-length" not in answer.fields
            assert rest(client) == letters(300000)
    with server.connect() as client:
        client.send(get("/stream?300000", "Connection: keep-alive", version="1.0") + GET)
        assert client.answer().body == letters(300000)
        assert client.answer().body == b"ok"


def test_an_answer_may_bring_its_own_date(server):
    with server.connect() as client:
        client.send(get("/dated") + GET)
        answer = client.answer()
        assert answer.fields["date"] == "Sun, 06 Nov 1994 08:49:37 GMT"
        assert answer.body == b"dated"
        assert client.answer().fields["date"] != answer.fields["date"]


def test_a_stream_that_cannot_be_sent_becomes_a_500(server):
    with server.connect() as client:
        client.send(get("/bad-field") + GET)
        answer = client.answer()
        assert answer.status == 500 and answer.body == b"" and "set-cookie" not in answer.fields
        assert client.ends()


@pytest.mark.parametrize("path", ["/break?100", "/short?100", "/break?300000", "/short?300000"])
def test_an_answer_that_breaks_off_is_shorter_than_it_said(server, path):
    size = int(path.partition("?")[2])
    with server.connect() as client:
        client.send(GET + get(path) + GET)
        assert client.answer().body == b"ok"
        assert head_of(client).fields["content-length"] == str(size + 5)
        assert rest(client) == letters(size)


def test_a_chunked_answer_that_breaks_off_has_no_last_chunk(server):
    with server.connect() as client:
        client.send(GET + get("/break-chunked?10000") + GET)
        assert client.answer().body == b"ok"
        head_of(client)
        assert rest(client) == b"2710\r\n" + letters(10000) + b"\r\n"


def test_an_answer_to_http_1_0_that_breaks_off_is_a_reset(server):
    with server.connect() as client:
        client.send(get("/break-chunked?5000000", version="1.0"))
        with pytest.raises(ConnectionResetError):
            while client.socket.recv(65536):
                pass


# --------------------------------------------------------------------------- slow and gone ones --

@pytest.mark.parametrize("path", ["/stream", "/chunked"])
def test_200_mb_go_out_and_come_in_with_bounded_memory(path, monkeypatch):
    """The sanitizer keeps what was freed; it must not be taken for a leak here."""
    monkeypatch.setenv("ASAN_OPTIONS", "quarantine_size_mb=1")
    size = 200 * 1000 * 1000
    with Server(hook=1) as server:
        with server.connect() as client:
            client.send(GET)
            assert client.answer().body == b"ok"
            before = memory_mib(server)
            client.send(get(f"{path}?{size}", "Connection: close"))
            head_of(client)
            got = len(client.left)
            while piece := client.more():
                got += len(piece)
            assert size <= got < size * 1.01
        with server.connect() as client:
            piece = b"x" * MIB
            head = post("/echo-pieces", b"").replace(b"h: 0", b"h: %d" % (200 * MIB))
            writer = in_thread(lambda: client.send(head, *[piece] * 200))
            head_of(client)
            got = len(client.left)
            while data := client.more():
                got += len(data)
            writer.join()
            assert got == 200 * MIB
        assert memory_mib(server) - before < 16


def test_a_client_that_reads_slowly_makes_the_stream_wait(monkeypatch):
    monkeypatch.setenv("ASAN_OPTIONS", "quarantine_size_mb=1")
    with Server(hook=1) as server, server.connect(receive_bytes=4096) as client:
        client.send(GET)
        assert client.answer().body == b"ok"
        before = memory_mib(server)
        client.send(get("/stream?200000000"))
        head_of(client)
        begin = time.monotonic()
        while time.monotonic() - begin < 1.5:
            assert client.more()
            time.sleep(0.005)
        assert server.stats()["out"] < 20 * MIB
        assert memory_mib(server) - before < 16
        with server.connect() as other:
            other.send(GET)
            assert other.answer().body == b"ok"
        client.reset()
        server.wait_for(jobs=0, gones=1, in_flight=0)


def test_what_is_given_in_spite_of_no_room_comes_all_the_same(server):
    with server.connect(receive_bytes=4096) as client:
        client.send(get("/flood?3000000") + GET)
        head_of(client)
        assert chunks(client) == letters(3000000)
        assert client.answer().body == b"ok"


def test_a_client_that_does_not_read_is_gone_after_the_limit():
    with Server(hook=1, write_ms=500) as server, server.connect(receive_bytes=4096) as client:
        client.send(get("/stream?50000000"))
        server.wait_for(jobs=1)
        server.wait_for(jobs=0, gones=1, open=0, in_flight=0)


@pytest.mark.parametrize("path", ["/stream?50000000", "/chunked?50000000", "/trickle?50", "/held",
    "/refuse-late?50000000"])
def test_gone_is_said_once_when_the_client_vanishes(path):
    with Server(hook=1) as server:
        for i in range(8):
            client = server.connect(receive_bytes=4096)
            client.send(get(path))
            server.wait_for(jobs=1)
            if i % 2 and path != "/held":
                client.until(b"\r\n\r\n")
            client.reset()
            server.wait_for(jobs=0, open=0, in_flight=0)
        stats = server.stats()
        assert (stats["gones"], stats["cuts"], stats["requests"]) == (8, 0, 8)


def test_a_long_stream_does_not_keep_the_loop_from_the_others():
    with Server(hook=1, loops=1) as server:
        streams = [server.connect() for _ in range(3)]
        sizes = [0] * len(streams)

        def drink(i):
            while piece := streams[i].more():
                sizes[i] += len(piece)
        for client in streams:
            client.send(get("/stream?60000000", "Connection: close"))
        threads = [in_thread(lambda i=i: drink(i)) for i in range(len(streams))]
        passed_by = 0  # bytes of the streams, during the longest of the others' requests
        with server.connect() as client:
            while any(thread.is_alive() for thread in threads):
                before = sum(sizes)
                client.send(GET)
                assert client.answer().body == b"ok"
                passed_by = max(passed_by, sum(sizes) - before)
        for thread in threads:
            thread.join()
        assert all(size > 60000000 for size in sizes)
        assert passed_by < 60000000  # a third of all


# ------------------------------------------------------------------------------- drain and TLS --

def test_a_drain_lets_streams_and_pieces_end():
    with Server(hook=1) as server:
        streaming, sending = server.connect(), server.connect()
        streaming.send(get("/trickle?60"))
        request = post("/pieces", b"x" * 1000)
        sending.send(request[:-10])
        server.wait_for(jobs=2, in_flight=2)
        head_of(streaming)
        server.say("drain 10000")
        time.sleep(0.1)
        sending.send(request[-10:])
        answer = sending.answer()
        assert answer.body == b"1000 120000" and answer.fields["connection"] == "close"
        assert sending.ends()
        sending.socket.close()
        assert chunks(streaming) == b"drop " * 60
        assert streaming.ends()
        streaming.socket.close()
        assert server.process.stdout.readline() == "drained 1\n"


def test_a_drain_that_is_over_cuts_them_and_says_so():
    with Server(hook=1) as server:
        streaming, sending = server.connect(), server.connect()
        streaming.send(get("/trickle?500"))
        sending.send(post("/pieces", b"x" * 1000)[:-10])
        server.wait_for(jobs=2, in_flight=2)
        assert server.ask("drain 300") == "drained 0"
        assert b"\r\n0\r\n" not in rest(streaming)
        assert rest(sending) == b""
        stats = server.stats()
        assert (stats["cuts"], stats["gones"]) == (1, 1)
        streaming.socket.close()
        sending.socket.close()


def test_streams_and_pieces_go_through_tls(folder):
    with tls_server(folder, hook=1) as server:
        trust = context(folder, "a")
        with server.connect(tls=trust) as client:
            client.send(get("/stream?3000000") + get("/chunked?3000000") + get("/small?100000"))
            assert client.answer().body == letters(3000000)
            head_of(client)
            assert chunks(client) == letters(3000000)
            assert client.answer().body == letters(100000)
            body = letters(500000)
            client.send(post("/pieces", body) + chunked("/slow?2", body) + GET)
            for _ in range(2):
                assert client.answer().body == f"500000 {sum(body)}".encode()
            assert client.answer().body == b"ok"
            client.send(chunked("/echo-pieces", *[b"y" * 1000] * 60))
            head_of(client)
            assert chunks(client) == b"y" * 60000
        with server.connect(tls=trust) as client:
            client.send(post("/refuse", b"x" * 100000))
            assert client.answer().status == 403
        with server.connect(tls=trust) as client:
            client.send(post("/pieces", b"x" * 50000)[:-1])
            server.wait_for(jobs=1)
        server.wait_for(jobs=0, cuts=1, gones=0)
        with server.connect(tls=trust, receive_bytes=4096) as client:
            client.send(get("/stream?30000000"))
            head_of(client)
        server.wait_for(jobs=0, gones=1, open=0, in_flight=0)
