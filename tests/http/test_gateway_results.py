"""What the upstream did, or did not, and what becomes of the operation: one test a row.

released: it did not happen, the key is free. sealed: it did, and is replayed. unknown: nobody can
know; it is held and nothing is run again by itself (P5).
"""
import socket

import pytest
from once_gateway import DUPLICATES_FREE, request_for

QUICK = {"connect": "1s", "first_byte": "1s", "total": "2500ms"}

# What the upstream does: how often it has happened.
UNKNOWN = {
    "fault=reset_before": 0,
    "fault=reset_after": 1,
    "fault=close_before": 0,
    "fault=close_after": 1,
    "fault=hang": 1,
    "fault=half_line": 1,
    "fault=half_head": 1,
    "fault=half_body&size=1000": 1,
    "fault=half_body_reset&size=100000": 1,
    "fault=half_chunk&size=5000": 1,
    "fault=hang_body&size=1000": 1,
    "fault=garbage": 1,
    "fault=two_lengths": 1,
    "fault=switch": 1,
    "fault=half_body&status=404&size=1000": 1,
    "fault=half_head&status=500": 1,
    "before_ms=2000": 1,
    "after_ms=2000": 1,
    "interim=2&fault=hang": 1,
    "interim=2&fault=reset_after": 1,
    "size=100000&pieces=50&piece_ms=100": 1,  # past total, though never standing still
}

SEALED = {
    "status=200": 200,
    "status=201&chunked=1": 201,
    "status=204": 204,
    "status=302&field=Location:/x": 302,
    "status=400": 400,
    "status=404&body=empty": 404,
    "status=409": 409,
    "status=422&until_close=1": 422,
    "status=499": 499,
    "interim=5": 200,
    "close=1": 200,
    "http10=1": 200,
    "fault=too_long": 200,
    "fault=early&status=403": 403,
    "after_ms=200": 200,
    "size=4000000": 200,
    "chunked=1&trailers=1": 200,
}


@pytest.fixture
def gateway(make_gateway):
    return make_gateway(gateway={"timeout": QUICK}, limits=DUPLICATES_FREE)


@pytest.mark.parametrize("do", UNKNOWN)
def test_sent_and_not_answered_is_unknown(gateway, origin, do):
    count = UNKNOWN[do]
    first = gateway.post("k", do=do, headers={"Request-Id": "r"})
    assert first.status == 504, first
    document = first.json
    assert (document["effect"], first.fields["Once-Effect"]) == ("unknown", "unknown")
    assert document["code"] == "outcome_unknown"
    assert (document["retry"], first.fields["Retry-After"]) == ("after", "1")
    assert document["operation_id"] == gateway.operations()[0]["operation_id"]
    assert (first.fields["Idempotency-Key"], first.fields["Request-Id"]) == ("k", "r")
    assert first.decision == "first_seen"
    assert gateway.status_of("k") == "unknown"
    origin.wait_for("k")
    for _ in range(3):
        again = gateway.post("k")
        assert again.status == 409 and again.json["code"] == "outcome_unknown"
        assert again.json["effect"] == "unknown" and again.decision == "held_unknown"
        assert again.fields["Idempotency-Key"] == "k"
    assert len(origin.seen("k")) == 1 and origin.effects["k"] <= max(count, 1)
    if "before_ms" not in do:
        assert origin.effects["k"] == count
    assert gateway.post("k", {"amount": 2}).status == 422  # a conflict all the same
    assert gateway.status_of("k") == "unknown"
    assert gateway.post("other").status == 200  # nothing is left over on a connection


@pytest.mark.parametrize("do", SEALED)
def test_an_answer_is_sealed(gateway, origin, do):
    first = gateway.post("k", do=do)
    assert first.status == SEALED[do] and first.decision == "first_seen"
    assert origin.answers["k"] == first.body
    again = gateway.post("k")
    assert again.is_replay and (again.status, again.body) == (first.status, first.body)
    assert gateway.status_of("k") in ("executed", "failed", "rejected")
    assert gateway.status_of("k") == "executed" or first.status >= 400
    assert origin.effects["k"] == 1 and len(origin.seen("k")) == 1
    assert gateway.post("other").status == 200
    assert origin.requests[-1].key == "other" and b"past its length" not in gateway.post("o2").body


@pytest.mark.parametrize("status", [408, 425, 429, 503])
def test_what_says_that_it_was_not_looked_at_is_released(gateway, origin, status):
    """To replay these for a day would hold a key for a passing reason."""
    first = gateway.post("k", do=f"status={status}&effect=0&field=Retry-After:7&text=later")
    assert (first.status, first.body, first.fields["Retry-After"]) == (status, b"later", "7")
    assert first.fields["Once-Effect"] == "no" and gateway.status_of("k") == "released"
    assert gateway.post("k").decision == "first_seen" and origin.effects["k"] == 1


def test_an_answer_before_the_whole_body_was_sent_is_sealed(gateway, origin):
    body = '{"text":"' + "x" * 8_000_000 + '"}'
    first = gateway.post("k", body, do="fault=early&status=403&text=no")
    assert (first.status, first.body) == (403, b"no")
    again = gateway.post("k", body)
    assert again.is_replay and again.body == b"no" and origin.effects["k"] == 1
    for number in range(5):  # its connection is not used again
        assert gateway.post(f"k{number}").status == 200


@pytest.mark.parametrize("status", [500, 501, 502, 504, 507, 599])
@pytest.mark.parametrize("effect", [0, 1])
def test_a_5xx_that_does_not_say_what_was_done_is_unknown(gateway, origin, status, effect):
    """With the defaults alone: the API's own answer, then nothing runs a second time."""
    first = gateway.post("k", do=f"status={status}&text=broken&type=text/plain&effect={effect}"
        "&field=Retry-After:3")
    assert (first.status, first.body) == (status, b"broken")
    assert first.fields["Retry-After"] == "3" and first.fields["Idempotency-Key"] == "k"
    assert first.decision == "first_seen" and first.fields["Once-Effect"] == "unknown"
    assert gateway.status_of("k") == "unknown"
    for _ in range(3):
        again = gateway.post("k")
        assert again.status == 409 and again.decision == "held_unknown"
        assert (again.json["code"], again.json["effect"]) == ("outcome_unknown", "unknown")
        assert again.fields["Once-Effect"] == "unknown"
    assert origin.effects["k"] == effect and len(origin.seen("k")) == 1
    gateway.resolve("k", "not_executed")
    assert gateway.post("k").decision == "first_seen"
    one, two = origin.seen("k")
    assert int(two.get("Once-Fence")) > int(one.get("Once-Fence"))  # P4
    assert (one.get("Once-Attempt"), two.get("Once-Attempt")) == ("1", "2")


RESULTS = [  # on_status; of a status of the answer, what becomes of the operation
    ({"5xx": "release"}, {500: "released", 503: "released", 599: "released", 404: "failed"}),
    ({500: "unknown", "5xx": "release", 503: "release"},
        {500: "unknown", 502: "released", 503: "released"}),
    ({"5xx": "unknown"}, {500: "unknown", 503: "unknown", 429: "released"}),
    ({"5xx": "seal"}, {500: "failed", 503: "failed", 429: "released"}),
    ({503: "seal"}, {500: "unknown", 503: "failed"}),
    ({"4xx": "unknown", 404: "release"}, {400: "unknown", 404: "released", 429: "unknown",
        503: "released", 201: "executed"}),
    ({202: "unknown", "3xx": "release"}, {200: "executed", 202: "unknown", 302: "released"}),
]


@pytest.mark.parametrize("rules, results", RESULTS)
def test_a_route_says_what_an_answer_means(make_gateway, origin, rules, results):
    """A status wins over its class, and what is typed over the default."""
    gateway = make_gateway(routes=[{"match": "POST /**", "on_status": rules}])
    effects = {"released": "no", "unknown": "unknown"}
    for status, result in results.items():
        key = f"k{status}"
        first = gateway.post(key, do=f"status={status}&text=broken&effect=0")
        assert first.status == status and gateway.status_of(key) == result, (status, result)
        assert first.fields.get("Once-Effect") == effects.get(result)
        again = gateway.post(key)
        assert again.decision == {"released": "first_seen", "unknown": "held_unknown"}.get(result,
            "duplicate_replayed")
        assert again.status == {"released": 200, "unknown": 409}.get(result, status)


def test_the_old_name_of_a_rule_is_read_with_a_warning(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /a", "on_5xx": "release"},
        {"match": "POST /b", "on_5xx": "seal"}, {"match": "POST /c", "on_5xx": "unknown"}])
    results = {"a": "released", "b": "failed", "c": "unknown"}
    for path, result in results.items():
        for status in (500, 503):
            assert gateway.post(f"{path}{status}", path=f"/{path}",
                do=f"status={status}").status == status
            assert gateway.status_of(f"{path}{status}") == result
    warnings = [line for line in gateway.stderr().splitlines() if "config_warning" in line]
    assert len(warnings) == 3 and all("on_status: {5xx: " in line for line in warnings)


def refused_port():
    """One where nobody listens; held so that nobody will."""
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    return held, held.getsockname()[1]


def test_not_connected_is_released(make_gateway, origin):
    held, port = refused_port()
    gateway = make_gateway(upstream=f"http://127.0.0.1:{port}", gateway={"timeout": QUICK},
        limits=DUPLICATES_FREE)
    for attempt in range(3):
        answer = gateway.post("k", headers={"Request-Id": "r"})
        assert answer.status == 502 and answer.json["code"] == "upstream_unreachable"
        assert (answer.json["effect"], answer.json["retry"]) == ("no", "safe")
        assert answer.fields["Once-Effect"] == "no" and answer.decision == "first_seen"
        assert (answer.fields["Idempotency-Key"], answer.fields["Request-Id"]) == ("k", "r")
        assert gateway.status_of("k") == "released"
        assert gateway.operations()[0]["attempt"] == attempt + 1
    held.listen()
    held.close()


def test_a_connect_that_takes_too_long_is_released(make_gateway):
    """A full queue of connections that nobody accepts: no handshake ends."""
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    fillers = []
    for _ in range(8):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(full.getsockname())
        fillers.append(filler)
    gateway = make_gateway(upstream=f"http://127.0.0.1:{full.getsockname()[1]}",
        gateway={"timeout": QUICK})
    answer = gateway.post("k")
    assert answer.status in (502, 504) and answer.json["effect"] == "no"
    assert gateway.status_of("k") == "released"
    for filler in fillers:
        filler.close()
    full.close()


def test_another_address_is_tried_when_nothing_was_sent(make_gateway, origin):
    held, port = refused_port()
    gateway = make_gateway(upstream=[f"http://127.0.0.1:{port}", origin.url],
        gateway={"timeout": QUICK})
    for number in range(20):
        assert gateway.post(f"k{number}").status == 200
        assert origin.effects[f"k{number}"] == 1
    held.close()


def test_another_address_is_not_tried_when_something_was_sent(make_gateway, make_origin):
    two = [make_origin(), make_origin()]
    gateway = make_gateway(upstream=[one.url for one in two], gateway={"timeout": QUICK})
    for number in range(6):
        assert gateway.post(f"k{number}", do="fault=reset_after").json["effect"] == "unknown"
        assert gateway.status_of(f"k{number}") == "unknown"
        assert sum(one.effects[f"k{number}"] for one in two) == 1
    assert all(one.total for one in two)  # both are used


def test_a_connection_that_the_upstream_closed_while_idle_is_not_used(gateway, origin):
    for number in range(30):
        do = "close=1" if number % 3 == 0 else "http10=1" if number % 3 == 1 else None
        assert gateway.post(f"k{number}", do=do).status == 200
        assert origin.effects[f"k{number}"] == 1


def test_connections_to_the_upstream_are_kept(gateway, origin):
    with gateway.peer() as peer:
        for number in range(50):
            peer.send(request_for("POST", "/pay", {"amount": 1}, f"k{number}"))
            assert peer.read().status == 200
    assert origin.connections <= 5


def test_an_upstream_that_is_gone_and_comes_back(make_gateway, make_origin):
    one = make_origin()
    gateway = make_gateway(upstream=one.url, gateway={"timeout": QUICK})
    assert gateway.post("a").status == 200
    one.close()
    answer = gateway.post("b")
    assert answer.status == 502 and answer.json["effect"] == "no"
    assert gateway.status_of("b") == "released" and gateway.post("a").is_replay


def test_an_unknown_is_settled_by_an_operator(gateway, origin):
    assert gateway.post("done", do="fault=reset_after").json["effect"] == "unknown"
    assert gateway.post("not", do="fault=reset_before").json["effect"] == "unknown"
    gateway.resolve("not", "not_executed")
    answer = gateway.post("not")
    assert answer.status == 200 and answer.decision == "first_seen" and origin.effects["not"] == 1
    outcome = gateway.directory / "outcome.json"
    outcome.write_text('{"charge":"ch_1"}')
    gateway.resolve("done", "executed", "--outcome", str(outcome))
    answer = gateway.post("done")
    assert answer.is_replay and answer.status == 200 and answer.json == {"charge": "ch_1"}
    assert origin.effects["done"] == 1


def test_takeover_runs_an_unknown_again_with_a_new_fence(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /**", "on_unknown": "takeover",
        "timeout": QUICK}])
    assert gateway.post("k", do="fault=reset_after").json["effect"] == "unknown"
    answer = gateway.post("k")
    assert answer.status == 200 and answer.decision == "first_seen" and origin.effects["k"] == 2
    one, two = origin.fences["k"]
    assert int(two) > int(one) and gateway.post("k").is_replay


def test_what_is_unknown_can_be_listed(gateway, origin):
    gateway.post("k", do="fault=reset_after")
    gateway.post("fine")
    (listed,) = gateway.operations(status="unknown")
    assert listed["key"] == "k" and listed["scope"] == "POST /pay"
