"""Answers to fenced requests that reach the client as they come, and are sealed at their end."""
import os
import signal
import threading
import time

import pytest
import stores
from raw_gateway import JSON, Gateway, Upstream, request

EVENTS = "Content-Type: text/event-stream\r\n"
NO_WAIT = JSON + "Prefer: wait=0\r\n"


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(number):
    return b"data: %d\n\n" % number


class Stream:
    """An upstream's script: a head and one event; each time it is allowed, the next part."""

    def __init__(self, fields=EVENTS, status=200, then=(event(2), event(3)), ends="last chunk",
            length=None):
        framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
        self.head = f"HTTP/1.1 {status} X\r\n{fields}{framing}\r\n\r\n".encode()
        self.then, self.ends, self.is_chunked = then, ends, length is None
        self.allowed = threading.Semaphore(0)

    def __call__(self, upstream, link):
        while upstream.take(link) is not None:
            put = chunk if self.is_chunked else bytes
            link.send(self.head + put(event(1)))
            for part in self.then:
                self.allowed.acquire()
                link.send(put(part))
            self.allowed.acquire()
            if self.ends != "last chunk":
                getattr(link, self.ends)()
                return
            if self.is_chunked:
                link.send(b"0\r\n\r\n")

    def go_on(self, count=99):
        self.allowed.release(count)

    @property
    def whole(self):
        return b"".join((event(1), *self.then))


def begin(gateway, key="k", fields=JSON, **how):
    """A client that has the head and the first event, though the upstream has not sent the next."""
    link = gateway.link()
    link.send(request(key, fields=fields, **how))
    head = link.until(b"\r\n\r\n").decode()
    return link, head


def first_event(link):
    assert link.exactly(len(chunk(event(1)))) == chunk(event(1))


def wait_status(gateway, status, key="k"):
    """Of a duplicate that does not wait."""
    until = time.monotonic() + 60
    while True:
        answer = gateway.send(request(key, fields=NO_WAIT))
        if answer.status == status:
            return answer
        assert time.monotonic() < until, answer
        time.sleep(0.05)


@pytest.mark.parametrize("fields, more", [
    (EVENTS, ""), ("content-type: TEXT/Event-Stream; charset=utf-8\r\n", ""),
    ("Content-Type: application/x-ndjson\r\n", "  stream: true\n")],
    ids=["events", "events with a parameter", "a route that streams"])
def test_each_event_arrives_before_the_upstream_has_sent_the_next(fields, more):
    script = Stream(fields)
    with Upstream(script) as upstream, Gateway(upstream, more) as gateway:
        link, head = begin(gateway)
        assert head.startswith("HTTP/1.1 200") and "Once-Decision: first_seen" in head
        first_event(link)
        script.go_on(1)
        assert link.exactly(len(chunk(event(2)))) == chunk(event(2))
        assert gateway.send(request("k", fields=NO_WAIT)).status == 409  # it is still running
        script.go_on()
        assert link.chunks() == (event(3), True)
        again = gateway.send(request("k"))
        assert again.field("Idempotent-Replayed") == "true" and again.body == script.whole
        assert again.field("Content-Type") in fields and len(upstream.requests) == 1


def test_an_answer_that_does_not_stream_is_held_until_its_end():
    script = Stream("Content-Type: text/event-streams\r\n")
    with Upstream(script) as upstream, Gateway(upstream) as gateway, gateway.link() as link:
        link.send(request("k"))
        link.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            link.more()
        link.socket.settimeout(20)
        script.go_on()
        assert link.answer().body == script.whole


def test_a_duplicate_meanwhile_waits_and_gets_all_of_it():
    script = Stream()
    with Upstream(script) as upstream, Gateway(upstream) as gateway:
        link, _ = begin(gateway)
        first_event(link)
        with gateway.link() as other:
            other.send(request("k"))
            time.sleep(0.2)
            script.go_on()
            answer = other.answer()
        assert answer.field("Idempotent-Replayed") == "true" and answer.body == script.whole
        assert link.chunks() == (script.whole[len(event(1)):], True)
        assert len(upstream.requests) == 1


def test_the_length_of_a_stream_is_not_its_end():
    """Else the client could take it for whole before it is sealed."""
    script = Stream(length=len(event(1)) * 3)
    with Upstream(script) as upstream, Gateway(upstream) as gateway:
        link, head = begin(gateway)
        assert "chunked" in head and "Content-Length" not in head
        first_event(link)
        script.go_on()
        assert link.chunks() == (event(2) + event(3), True)
        assert gateway.send(request("k")).body == script.whole


@pytest.mark.parametrize("ends", ["close", "reset"])
@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_a_stream_that_breaks_off_is_unknown_and_does_not_look_whole(ends, version):
    script = Stream(ends=ends)
    with Upstream(script) as upstream, Gateway(upstream) as gateway:
        link, _ = begin(gateway, version=version)
        if version == "1.1":
            first_event(link)
            script.go_on()
            assert link.chunks() == (event(2) + event(3), False)
        else:
            assert link.exactly(len(event(1))) == event(1)
            script.go_on()
            assert link.rest() == (event(2) + event(3), "reset")
        assert gateway.send(request("k")).field("Once-Decision") == "held_unknown"
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("status", [500, 504])
def test_a_stream_with_a_status_that_says_nothing_is_unknown_at_its_end(status):
    script = Stream(status=status)
    with Upstream(script) as upstream, Gateway(upstream) as gateway:
        link, head = begin(gateway)
        assert head.startswith(f"HTTP/1.1 {status}") and "Once-Effect: unknown" in head
        first_event(link)
        script.go_on()
        assert link.chunks()[1] is True
        assert gateway.send(request("k")).field("Once-Decision") == "held_unknown"


def test_a_stream_that_frees_the_key_is_held_until_its_end():
    """Once-Effect: no must not be said of what may still break off."""
    script = Stream(status=503, ends="close")
    with Upstream(script) as upstream, Gateway(upstream) as gateway, gateway.link() as link:
        link.send(request("k"))
        script.go_on()
        answer = link.answer()
        assert answer.status == 504 and answer.field("Once-Effect") == "unknown"


@pytest.mark.parametrize("way", ["close", "reset"])
def test_a_client_that_leaves_does_not_stop_the_stream(way):
    script = Stream()
    with Upstream(script) as upstream, Gateway(upstream) as gateway:
        link, _ = begin(gateway)
        first_event(link)
        getattr(link, way)()
        time.sleep(0.2)
        assert gateway.send(request("k", fields=NO_WAIT)).status == 409
        script.go_on()
        assert wait_status(gateway, 200).body == script.whole and len(upstream.requests) == 1


def test_a_client_that_does_not_read_does_not_hold_up_the_seal():
    """It is behind by more than sockets hold; the rest comes from what was kept, in order."""
    long = [b"%09d\n" % number * 20000 for number in range(40)]
    script = Stream(then=long)
    with Upstream(script) as upstream, Gateway(upstream) as gateway:
        link, _ = begin(gateway)
        first_event(link)
        script.go_on()
        assert wait_status(gateway, 200).body == script.whole
        assert link.chunks() == (b"".join(long), True)


def test_a_slow_client_gets_the_events_that_it_is_behind_with_before_the_end():
    long = [b"%09d\n" % number * 20000 for number in range(40)]
    script = Stream(then=long)
    with Upstream(script) as upstream, Gateway(upstream) as gateway:
        link, _ = begin(gateway)
        first_event(link)
        script.go_on(len(long))
        time.sleep(0.5)
        body = b""
        while len(body) < sum(map(len, long)):
            size = int(link.until(b"\r\n"), 16)
            body += link.exactly(size + 2)[:size]
        assert body == b"".join(long)
        assert gateway.send(request("k", fields=NO_WAIT)).status == 409  # and not ended
        script.go_on()
        assert link.chunks() == (b"", True)


@pytest.mark.parametrize("reads", [True, False])
def test_a_stream_that_is_too_long_to_keep_is_sealed_without_it(reads):
    long = [b"%09d\n" % number * 20000 for number in range(20)]
    script = Stream(then=long)
    limits = "  limits: {outcome_bytes_max: 1MiB}\n"
    with Upstream(script) as upstream, Gateway(upstream, limits) as gateway:
        link, _ = begin(gateway)
        first_event(link)
        script.go_on()
        if not reads:
            wait_status(gateway, 410)
        assert link.chunks() == (b"".join(long), True)
        again = gateway.send(request("k"))
        assert again.status == 410 and b"outcome_not_retained" in again.body, again
        assert len(upstream.requests) == 1


def test_the_total_time_bounds_a_stream():
    script = Stream()
    with Upstream(script) as upstream, \
            Gateway(upstream, "  timeout: {total: 3s}\n") as gateway:
        link, _ = begin(gateway)
        first_event(link)
        assert link.chunks() == (b"", False)
        assert gateway.send(request("k")).field("Once-Decision") == "held_unknown"
        script.go_on()


@stores.journal_only("its next process knows at once; test_shared.py has the others")
def test_a_gateway_that_is_killed_in_a_stream_leaves_an_unknown():
    script = Stream()
    with Upstream(script) as upstream, Gateway(upstream) as gateway:
        link, _ = begin(gateway)
        first_event(link)
        gateway.kill9()
        assert link.rest() in ((b"", "close"), (b"", "reset"))
        gateway.restart()
        assert gateway.send(request("k")).field("Once-Decision") == "held_unknown"
        script.go_on()
        assert len(upstream.requests) == 1


def test_a_stream_ends_before_the_gateway_does():
    script = Stream()
    with Upstream(script) as upstream, Gateway(upstream) as gateway:
        link, _ = begin(gateway)
        first_event(link)
        os.kill(gateway.process.pid, signal.SIGTERM)
        time.sleep(0.2)
        script.go_on()
        assert link.chunks() == (event(2) + event(3), True)
        assert gateway.process.wait(20) == 0
        gateway.restart()
        assert gateway.send(request("k")).body == script.whole
