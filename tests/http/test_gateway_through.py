"""Reads and unprotected methods stream through untouched; routes choose who is fenced and how."""
import socket
import time

import pytest
from once_gateway import DUPLICATES_FREE, request_for
from once_server import LIGHT, Broken, until

LARGE = (20 if LIGHT else 200) * 1_000_000


def rss_bytes(gateway):
    status = open(f"/proc/{gateway.pid}/status").read()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("do", [None, "status=404", "status=503", "chunked=1&size=5000",
    "status=204", "until_close=1&size=100", "body=binary&size=100000", "cookie=1", "fields=70",
    "interim=2",
    "status=304", "http10=1", "close=1"])
def test_a_read_passes_through(gateway, origin, method, do):
    answer = gateway.send(method, "/things?q=1", do=do, headers={"Request-Id": "r", "X-Own": "1"})
    (request,) = origin.requests
    assert (request.method, request.target) == (method, "/things?q=1")
    assert request.all("X-Own") == ["1"] and request.all("Request-Id") == ["r"]
    assert not request.all("Once-Operation-Id") and not request.all("Idempotency-Key")
    status = int(dict(part.split("=") for part in (do or "").split("&") if part).get("status", 200))
    assert answer.status == status and answer.fields["Request-Id"] == "r"
    assert "Once-Decision" not in answer.fields and "Idempotent-Replayed" not in answer.fields
    if do == "cookie=1":
        assert len(answer.all("Set-Cookie")) == 2
    if do == "body=binary&size=100000" and method != "HEAD":
        assert answer.body == (bytes(range(256)) * 400)[:100000]
    if method == "HEAD" and do is None:
        assert int(answer.fields["Content-Length"]) > 0
    assert gateway.operations() == []


def test_a_read_needs_no_key_and_a_key_changes_nothing(gateway, origin):
    one, two = (gateway.send("GET", "/x", key="k") for _ in range(2))
    assert one.status == two.status == 200 and len(origin.requests) == 2
    assert gateway.operations() == []


def test_the_first_byte_arrives_before_the_upstream_has_sent_the_last(gateway, origin):
    with gateway.peer(10) as peer:
        peer.send(request_for("GET", "/held", do="hold_body=1&body=binary&size=2000"))
        status, lines = peer.head()
        assert status == 200 and peer.some(1000) == (bytes(range(256)) * 8)[:1000]
        origin.let_go("/held")
        assert peer._exactly(2000) == (bytes(range(256)) * 8)[:2000]


def test_chunks_arrive_as_they_are_sent(gateway, origin):
    with gateway.peer(10) as peer:
        peer.send(request_for("GET", "/held", do="hold_body=1&chunked=1&size=4000"))
        peer.head()
        assert len(peer.some(1500)) >= 1500
        origin.let_go("/held")
        body, _ = peer.chunks()
        assert len(body) > 4000


@pytest.mark.parametrize("chunked", [False, True])
def test_an_upload_arrives_as_it_is_sent(make_gateway, origin, chunked):
    gateway = make_gateway("--profile", "stripe")  # PUT is not fenced there
    with gateway.peer(10) as peer:
        framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 20000"
        first, second = b"x" * 10000, b"y" * 10000
        peer.send(b"PUT /file HTTP/1.1\r\nHost: a\r\nX-Upload: 1\r\n" + framing + b"\r\n\r\n" +
            (b"%x\r\n%b\r\n" % (len(first), first) if chunked else first))
        limit = time.monotonic() + 60
        while not origin.requests or len(origin.requests[0].body) < 10000:
            assert time.monotonic() < limit, "the upstream has not got the first half"
            time.sleep(0.01)
        assert not origin.requests[0].is_whole
        peer.send((b"%x\r\n%b\r\n0\r\n\r\n" % (len(second), second)) if chunked else second)
        assert peer.read().status == 200
    assert bytes(origin.requests[0].body) == first + second and gateway.operations() == []


def test_a_large_answer_passes_in_little_memory(gateway, origin):
    gateway.send("GET", "/warm")
    before = rss_bytes(gateway)
    with gateway.peer() as peer:
        peer.send(request_for("GET", "/large", do=f"body=binary&size={LARGE}"))
        peer.head()
        received, peak = len(peer.pending), before
        while received < LARGE:
            piece = peer.socket.recv(1 << 20)
            assert piece
            received += len(piece)
            if received % 64 == 0:
                peak = max(peak, rss_bytes(gateway))
    assert received == LARGE and max(peak, rss_bytes(gateway)) - before < 16_000_000


def test_a_large_upload_of_an_unprotected_method_passes_in_little_memory(make_gateway, origin):
    gateway = make_gateway("--profile", "stripe")
    gateway.send("GET", "/warm")
    before = rss_bytes(gateway)
    piece = b"z" * (1 << 20)
    count = LARGE // len(piece)
    with gateway.peer() as peer:
        peer.send(f"PUT /large HTTP/1.1\r\nHost: a\r\nContent-Length: {count * len(piece)}\r\n\r\n"
            .encode())
        peak = before
        for number in range(count):
            peer.send(piece)
            if number % 8 == 0:
                peak = max(peak, rss_bytes(gateway))
        assert peer.read().status == 200
    assert len(origin.requests[-1].body) == count * len(piece)
    assert peak - before < 16_000_000


def test_a_slow_reader_does_not_fill_the_memory(gateway, origin):
    before = rss_bytes(gateway)
    with gateway.peer() as peer:
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.send(request_for("GET", "/large", do="body=binary&size=100000000"))
        peer.head()
        time.sleep(1)
        assert rss_bytes(gateway) - before < 16_000_000
    assert gateway.send("GET", "/again").status == 200


def test_a_read_that_breaks_is_not_whole(gateway, origin):
    for do in ("fault=half_body&size=10000", "fault=half_chunk&size=10000"):
        with gateway.peer() as peer:
            peer.send(request_for("GET", "/x", do=do))
            with pytest.raises(Broken):  # and not taken for whole
                peer.read()


@pytest.mark.parametrize("do", ["fault=reset_after", "fault=garbage", "fault=close_after",
    "fault=half_head"])
def test_a_read_without_an_answer_is_504(gateway, do):
    answer = gateway.send("GET", "/x", do=do)
    assert answer.status == 504 and "Request-Id" in answer.fields
    assert gateway.operations() == []


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_what_may_have_an_effect_is_sent_once(make_gateway, origin, method):
    """Also where nobody fences it."""
    gateway = make_gateway("--profile", "stripe")
    assert gateway.send("GET", "/warm").status == 200  # a connection that may be used again
    for number, fault in enumerate(("reset_after", "close_after", "half_head")):
        answer = gateway.send(method, f"/{number}", do=f"fault={fault}")
        assert answer.status == 504 and answer.fields["Once-Effect"] == "unknown"
        assert answer.json["error"]["retry"] == "no" and "Retry-After" not in answer.fields
    assert len(origin.requests) == 4 and origin.total == 3


def test_an_expectation_is_met(make_gateway, origin):
    gateway = make_gateway("--profile", "stripe")
    for method, key in (("POST", "k"), ("PUT", None)):
        with gateway.peer() as peer:
            fields = f"Idempotency-Key: {key}\r\n" if key else ""
            peer.send(f"{method} /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n{fields}"
                "Content-Length: 5\r\n\r\n".encode())
            assert peer._until(b"\r\n\r\n").startswith(b"HTTP/1.1 100")
            peer.send(b"12345")
            assert peer.read().status == 200
        assert bytes(origin.requests[-1].body) == b"12345"


def test_an_expectation_of_a_request_without_its_key_is_refused_at_once(gateway, origin):
    with gateway.peer() as peer:
        peer.send(b"POST /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
            b"Content-Length: 1000000\r\n\r\n")
        answer = peer.read()
        assert answer.status == 400 and answer.json["code"] == "idempotency_key_missing"
    assert origin.bytes_seen == 0


def test_requests_on_one_connection_are_answered_in_order(gateway, origin):
    with gateway.peer() as peer:
        stream = b""
        for number in range(20):
            stream += request_for("POST", "/pay", {"n": number}, f"k{number}",
                do=f"after_ms={20 - number}")
            stream += request_for("GET", f"/read/{number}")
        peer.send(stream)
        for number in range(20):
            assert peer.read().json["key"] == f"k{number}"
            assert peer.read().json["target"] == f"/read/{number}"


# --- Routes ---------------------------------------------------------------------------------------

def test_the_first_route_that_matches_wins(make_gateway, make_origin):
    one, two = make_origin(), make_origin()
    gateway = make_gateway(upstream=two.url, routes=[
        {"match": "POST,PUT /v1/payments/**", "upstream": one.url, "profile": "stripe"},
        {"match": "POST /v1/**", "profile": "adr007"},
        {"match": "PATCH /v1/payments/*", "profile": "guardia"}])
    assert gateway.post(None, path="/v1/payments/a/b").status == 200  # stripe: no key needed
    assert one.total == 1
    made = gateway.post(None, path="/v1/other")  # adr007: a key is made
    assert made.fields["Idempotency-Key"] and two.total == 1
    refused = gateway.send("PATCH", "/v1/payments/1", {"a": 1})
    assert refused.json["errors"][0]["reason"] == "IDEMPOTENCY_KEY_REQUIRED"
    assert gateway.post("k", path="/v1/payments", body={"a": 1}).status == 200
    assert gateway.post("k", path="/v1/payments", body={"a": 2}).status == 400  # stripe's conflict
    assert gateway.post("k", path="/v1/x", body={"a": 1}).status == 200
    assert gateway.post("k", path="/v1/x", body={"a": 2}).status == 409  # adr007's


def test_what_no_route_matches_passes_through_unfenced(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /pay"}])
    for method, path in (("POST", "/other"), ("PUT", "/pay"), ("DELETE", "/pay/1"),
            ("GET", "/pay")):
        for _ in range(2):
            answer = gateway.send(method, path, key="k")
            assert answer.status == 200 and "Once-Decision" not in answer.fields
    assert len(origin.requests) == 8 and gateway.operations() == []
    assert gateway.send("POST", "/pay").status == 400


@pytest.mark.parametrize("glob, path, is_match", [("/a/*", "/a/b", True), ("/a/*", "/a/b/c", False),
    ("/a/**", "/a", True), ("/a/**", "/a/b/c", True), ("/a/*/c", "/a/b/c", True),
    ("/a/**/c", "/a/x/y/c", True), ("/a/b*", "/a/bcd", True), ("/a/b*", "/a/b/c", False),
    ("/a", "/a/", False), ("/**", "/", True), ("/a/*", "/a/x%2Fy", True), ("/a", "/%61", True),
    ("/a", "/b/../a", True)])
def test_a_glob(make_gateway, origin, glob, path, is_match):
    gateway = make_gateway(routes=[{"match": f"POST {glob}"}])
    answer = gateway.post(None, path=path)
    assert answer.status == (400 if is_match else 200)


def test_a_route_overrides_its_profile(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /a", "profile": "guardia", "window": "2h",
        "on_status": {"5xx": "seal"}, "principal": "none"}, {"match": "POST /b", "key": "optional"},
        {"match": "POST /c", "key": "generated"}, {"match": "POST /d", "profile": "stripe",
        "key": "required"}])
    key = "01a1e208-ee46-7000-8001-6285421d0208"
    gateway.post(key, path="/a", do="status=500", headers={"Authorization": "x"})
    again = gateway.post(key, path="/a", headers={"Authorization": "y"})
    assert again.is_replay and again.status == 500
    assert gateway.post(None, path="/b").status == 200
    assert gateway.post(None, path="/c").fields["Idempotency-Key"]
    assert gateway.post(None, path="/d").status == 400


def test_a_window_that_is_over_lets_the_key_run_again(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /**", "window": "4s"}], limits=DUPLICATES_FREE)
    first = gateway.post("k")
    assert gateway.post("k").is_replay
    answers = []
    until(lambda: answers.append(gateway.post("k")) or not answers[-1].is_replay,
        "its window never ends")
    again = answers[-1]
    assert again.decision == "first_seen" and again.body != first.body and origin.effects["k"] == 2
    one, two = origin.fences["k"]
    assert int(two) > int(one)


def test_a_route_that_fences_reads_is_refused(make_server, tmp_path):
    server = make_server()
    path = tmp_path / "once.yaml"
    for method in ("GET", "HEAD", "OPTIONS"):
        path.write_text("gateway:\n  upstream: http://127.0.0.1:1\n  routes:\n"
            f'    - {{match: "{method} /x"}}\n')
        done = server.cli("check", path)
        assert done.returncode == 78 and method in done.stdout + done.stderr, done


def test_a_route_may_hand_on_the_clients_host(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "/kept/**", "preserve_host": True}, {"match": "/**"}])
    own = origin.url.removeprefix("http://")
    for path, host in (("/kept/a", "shop.example:81"), ("/a", own)):
        for method, key in (("POST", "k"), ("GET", None)):
            gateway.send(method, path, key=key, headers={"Host": "shop.example:81"})
            assert origin.requests[-1].all("Host") == [host]
            assert origin.requests[-1].all("X-Forwarded-Host") == ["shop.example:81"]


def test_keys_of_two_hosts_that_are_handed_on_are_apart(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "/kept/**", "preserve_host": True}, {"match": "/**"}])

    def send(path, host):
        return gateway.send("POST", path, {"a": 1}, key="order-1", headers={"Host": host})

    first = send("/kept/a", "one.example")
    other = send("/kept/a", "two.example")
    again = send("/kept/a", "ONE.example")
    assert len(origin.requests) == 2
    assert other.fields.get("Idempotent-Replayed") is None
    assert again.fields["Idempotent-Replayed"] == "true" and again.body == first.body
    # Where the API does not see the Host, it is one thing under both names.
    send("/a", "one.example")
    assert send("/a", "two.example").fields["Idempotent-Replayed"] == "true"
    assert len(origin.requests) == 3


def test_the_health_path_is_the_gateways_own(make_gateway, origin):
    gateway = make_gateway(gateway={"health": "/healthz"})
    for path in ("/healthz", "/healthz?x=1", "/%68ealthz"):
        healthy = gateway.send("GET", path)
        assert (healthy.status, healthy.body) == (200, b"ok\n"), path
        assert healthy.fields["Cache-Control"] == "no-store"
    assert gateway.send("HEAD", "/healthz").status == 200
    refused = gateway.send("POST", "/healthz", {"a": 1}, key="k")
    assert refused.status == 405 and refused.fields["Allow"] == "GET, HEAD"
    assert not origin.requests
    assert gateway.send("GET", "/healthz/").status == 200 and len(origin.requests) == 1
    assert make_gateway().send("GET", "/healthz").status == 200 and len(origin.requests) == 2
