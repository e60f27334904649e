"""WebSockets: passed through where a request is not fenced, refused by name where it is."""
import os
import signal
import time

import pytest
from raw_gateway import JSON, Gateway, Upstream, answers, request

ASKS = "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Key: abc\r\n"
SWITCHES = b"HTTP/1.1 101 Now\r\nConnection: upgrade\r\nUpgrade: websocket\r\n" \
    b"Sec-WebSocket-Accept: xyz\r\n\r\n"


def get(path="/chat", fields=ASKS):
    return request(path=path, body=None, fields=fields, method="GET")


def echo(upstream, link):
    """Switches, says hello, gives back what it gets, and closes after "bye"."""
    if upstream.take(link) is None:
        return
    link.send(SWITCHES + b"hello")
    while b"bye" not in link.pending and link.more():
        link.send(link.pending)
        link.pending = b"" if b"bye" not in link.pending else b"bye"


def metrics(gateway):
    return gateway.own(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").body.decode()


def opened(gateway, more=b""):
    link = gateway.link()
    link.send(get() + more)
    head = link.until(b"\r\n\r\n").decode()
    assert head.startswith("HTTP/1.1 101 "), head
    return link, head


def test_bytes_go_both_ways_until_the_upstream_closes():
    with Upstream(echo) as upstream, Gateway(upstream) as gateway:
        link, head = opened(gateway)
        assert "Upgrade: websocket" in head and "Connection: Upgrade" in head
        assert "Sec-WebSocket-Accept: xyz" in head and "Content-Length" not in head
        assert "Transfer-Encoding" not in head and "close" not in head
        asked = upstream.requests[0][0]
        assert "Connection: Upgrade" in asked and "Upgrade: websocket" in asked
        assert "Sec-WebSocket-Key: abc" in asked
        assert link.exactly(5) == b"hello"
        for number in range(50):
            link.send(b"ping %d\r\n\r\n" % number)
            assert link.exactly(len(b"ping %d\r\n\r\n" % number)) == b"ping %d\r\n\r\n" % number
        link.send(b"bye")
        assert link.rest() == (b"bye", "close")
        link.close()
        assert 'route="gateway_relayed",code="101"' in metrics(gateway)


def test_much_goes_both_ways():
    with Upstream(echo) as upstream, Gateway(upstream) as gateway:
        link, _ = opened(gateway)
        assert link.exactly(5) == b"hello"
        data = bytes(range(1, 97)) * 20000
        for at in range(0, len(data), 100_000):
            link.send(data[at:at + 100_000])
            assert link.exactly(len(data[at:at + 100_000])) == data[at:at + 100_000]
        link.close()


def test_a_client_that_closes_ends_the_upstreams_side():
    ended = []

    def script(upstream, link):
        upstream.take(link)
        link.send(SWITCHES)
        ended.append(link.rest()[0])
    with Upstream(script) as upstream, Gateway(upstream) as gateway:
        link, _ = opened(gateway)
        link.send(b"last words")
        link.close()
        until = time.monotonic() + 60
        while not ended:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert ended == [b"last words"]


def test_nothing_of_the_client_reaches_the_upstream_before_it_has_switched():
    """Else the upstream would take it for a request, and nobody would have fenced it."""
    def script(upstream, link):
        while upstream.take(link) is not None:
            time.sleep(0.3)
            link.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno")
    with Upstream(script) as upstream, Gateway(upstream) as gateway, gateway.link() as link:
        link.send(get() + request("k", path="/smuggled"))
        answer = link.answer("GET")
        assert (answer.status, answer.body) == (200, b"no")
        assert link.rest()[0] == b""  # the connection ends with it
        assert [head.split(" ")[1] for head, _ in upstream.requests] == ["/chat"]


def test_what_comes_right_after_the_request_goes_on_after_the_switch():
    with Upstream(echo) as upstream, Gateway(upstream) as gateway:
        link, _ = opened(gateway, more=b"early")
        assert link.exactly(10) == b"helloearly"
        link.close()


@pytest.mark.parametrize("answer", [
    b"HTTP/1.1 101 Now\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
    b"HTTP/1.1 101 Now\r\n\r\n"])
def test_an_upstream_that_switches_to_something_else_is_not_believed(answer):
    with Upstream(answers(answer)) as upstream, Gateway(upstream) as gateway:
        assert gateway.send(get(), "GET").status == 504


@pytest.mark.parametrize("fields", [
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n",
    "Upgrade: websocket\r\n", "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n"])
def test_a_different_upgrade_is_left_out(fields):
    with Upstream() as upstream, Gateway(upstream) as gateway:
        assert gateway.send(get(fields=fields), "GET").status == 200
        assert "pgrade" not in upstream.requests[0][0] and "HTTP2" not in upstream.requests[0][0]
        assert gateway.send(request("k", fields=fields)).status == \
            (200 if "h2c" in fields or "Connection" not in fields else 400)


def test_a_fenced_request_for_a_websocket_is_refused_by_name():
    with Upstream() as upstream, Gateway(upstream) as gateway:
        answer = gateway.send(request("k", fields=JSON + ASKS))
        assert answer.status == 400 and b'"upgrade_not_fenced"' in answer.body
        assert answer.field("Once-Effect") == "no" and upstream.requests == []


def test_a_silent_websocket_is_closed_and_one_that_speaks_is_not():
    with Upstream(echo) as upstream, \
            Gateway(upstream, "  timeout: {upgraded: 5s, first_byte: 4s}\n") as gateway:
        link, _ = opened(gateway)
        assert link.exactly(5) == b"hello"
        for _ in range(6):
            time.sleep(1)
            link.send(b"x")
            assert link.exactly(1) == b"x"
        begun = time.monotonic()
        assert link.rest()[0] == b"" and time.monotonic() - begun > 4


def test_an_upstream_that_does_not_answer_is_not_waited_for():
    def script(upstream, link):
        upstream.take(link)
        link.more()
    with Upstream(script) as upstream, \
            Gateway(upstream, "  timeout: {first_byte: 300ms}\n") as gateway:
        assert gateway.send(get(), "GET").status == 504


def test_the_end_of_the_gateway_waits_for_a_websocket_and_then_cuts_it():
    with Upstream(echo) as upstream, Gateway(upstream, above="drain: 4s\n") as gateway:
        link, _ = opened(gateway)
        assert link.exactly(5) == b"hello"
        os.kill(gateway.process.pid, signal.SIGTERM)
        time.sleep(0.1)
        link.send(b"still")
        assert link.exactly(5) == b"still"
        assert link.rest()[0] == b""
        gateway.process.wait(60)
        gateway.restart()
