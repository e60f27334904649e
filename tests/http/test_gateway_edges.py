"""What a gateway must survive: peers that stop in the middle, and answers with two ends."""
import json
import time

import pytest
from raw_gateway import JSON, WAIT_S, Gateway, Upstream, reply, request


def until(true):
    end = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


# --- Clients that stop ---------------------------------------------------------------------------

@pytest.mark.parametrize("key", ["k", None], ids=["with a key", "without one"])
@pytest.mark.parametrize("how", ["close", "reset", "half", "late"])
def test_a_client_that_stops_inside_its_body_leaves_nothing_behind(key, how):
    above = "limits:\n  body_timeout: 300ms\n" if how == "late" else ""
    with Upstream() as upstream, Gateway(upstream, above=above) as gateway:
        with gateway.link() as link:
            link.send(request(key, body=b"x" * 50)[:-20])
            time.sleep(0.05)
            if how in ("half", "late"):
                if how == "half":
                    link.socket.shutdown(1)
                assert link.answer().status == (400 if how == "half" else 408)
            else:
                {"close": link.close, "reset": link.reset}[how]()
        assert gateway.send(request("other")).status == 200
        assert len(upstream.requests) == 1
        # What it held is let go of: else the end of the gateway is not a good one.


# --- Upstreams that stop -------------------------------------------------------------------------

def test_an_answer_until_the_close_that_is_reset_is_not_whole():
    def script(upstream, link):
        upstream.take(link)
        link.send(b"HTTP/1.1 200 OK\r\n\r\nhalf of the ans")
        link.reset()
    with Upstream(script) as upstream, Gateway(upstream) as gateway:
        for number in range(20):  # the bytes and the reset have to come in one turn
            answer = gateway.send(request(f"k{number}"))
            assert answer.status == 504 and answer.field("Once-Effect") == "unknown", answer
            assert gateway.send(request(f"k{number}")).status == 409
        assert len(upstream.requests) == 20


# --- Requests with two readings ------------------------------------------------------------------

def test_a_fenced_request_with_two_content_types_is_refused():
    with Upstream() as upstream, Gateway(upstream) as gateway:
        answer = gateway.send(request("k", fields=JSON + "Content-Type: text/plain\r\n"))
        assert answer.status == 400 and b"Content-Type" in answer.body, answer
        assert answer.field("Once-Effect") == "no" and upstream.requests == []
        assert gateway.send(request("k")).field("Once-Decision") == "first_seen"


# --- The end -------------------------------------------------------------------------------------

def status_of(gateway, key):
    answer = gateway.own(b"GET /v1/operations HTTP/1.1\r\nHost: once\r\n\r\n")
    return {each["key"]: each["status"] for each in json.loads(answer.body)["operations"]}[key]


def slowly(upstream, link):
    while upstream.take(link) is not None:
        time.sleep(2.5)
        link.send(reply())


@pytest.mark.parametrize("drain, outcome", [("10s", "executed"), ("100ms", "unknown")])
def test_a_drain_waits_for_what_was_begun_for_a_client_that_is_gone(drain, outcome):
    with Upstream(slowly) as upstream, Gateway(upstream, above=f"drain: {drain}\n") as gateway:
        with gateway.link() as link:
            link.send(request("k"))
            until(lambda: upstream.requests)
            link.reset()
        time.sleep(0.1)
        gateway.stop()
        gateway.restart()
        assert status_of(gateway, "k") == outcome


# --- Limits --------------------------------------------------------------------------------------

def test_what_clients_that_are_gone_left_behind_counts_as_connections():
    """Else whoever connects, asks to wait and leaves makes the gateway hold more and more."""
    def silent(upstream, link):
        upstream.take(link)
        time.sleep(WAIT_S)
    above = "limits: {connections_max: 20, duplicate_rate: 0}\ndrain: 100ms\n"
    with Upstream(silent) as upstream, Gateway(upstream, above=above) as gateway:
        def leave_behind(fields=JSON):
            with gateway.link() as link:
                link.send(request("k", fields=fields))
                time.sleep(0.01)
                link.reset()
        leave_behind()
        until(lambda: upstream.requests)
        for _ in range(40):
            try:
                leave_behind(JSON + "Prefer: wait=10\r\n")
            except ConnectionError:
                break
        def is_refused():
            answer = gateway.send(request("other"))
            return answer.status == 503 and b"connections_max" in answer.body
        until(is_refused)


def test_bodies_on_their_way_are_bounded_together():
    """Past gateway.spool_max a request is refused, and an answer is sealed without its body."""
    def answer(upstream, link):
        upstream.take(link)
        link.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1500000\r\n\r\n" + b"x" * 1500000)
    with Upstream(answer) as upstream, \
            Gateway(upstream, above="drain: 100ms\n", more="  spool_max: 1MiB\n") as gateway:
        long = request("long", fields=JSON, body=b"1" * 1200000)
        refused = gateway.send(long)
        assert refused.status == 503 and b"gateway.spool_max" in refused.body
        assert not upstream.requests
        whole = gateway.send(request("k"))
        assert whole.status == 200 and whole.body == b"x" * 1500000
        again = gateway.send(request("k"))
        assert again.status == 410 and b"outcome_not_retained" in again.body
