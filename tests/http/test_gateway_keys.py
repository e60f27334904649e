"""Keys that come from elsewhere than Idempotency-Key: a field of the sender's own, or the body."""
import json

import pytest

GITHUB = {"match": "POST /hooks/github", "kind": "webhook", "principal": "none",
    "key": {"header": "X-GitHub-Delivery"}}
EVENTS = {"match": "POST /events", "principal": "none", "key": {"json": "/id"}}
DELIVERY = "72d3162e-cc78-11e3-81ab-4c9367dc0958"


@pytest.fixture
def gateway(make_gateway):
    return make_gateway(routes=[GITHUB, EVENTS])


def deliver(gateway, delivery=DELIVERY, body=None, **fields):
    named = {"X-GitHub-Delivery": delivery} if delivery is not None else {}
    return gateway.post(None, body or {"ref": "main"}, path="/hooks/github",
        headers={**named, "X-GitHub-Event": "push", **fields})


def event(gateway, body, **headers):
    return gateway.post(None, body if isinstance(body, str) else json.dumps(body), path="/events",
        headers=headers)


def test_a_delivery_of_github_has_one_effect(gateway, origin):
    first = deliver(gateway)
    assert first.decision == "first_seen" and first.fields["Idempotency-Key"] == DELIVERY
    again = deliver(gateway)
    assert again.is_replay and again.body == first.body
    assert deliver(gateway, "other").decision == "first_seen"
    assert deliver(gateway, body={"ref": "dev"}).status == 422
    assert origin.effects[DELIVERY] == 1 and origin.total == 2
    sent = origin.requests[0]
    assert sent.all("Idempotency-Key") == [DELIVERY] == sent.all("X-GitHub-Delivery")
    assert gateway.status_of(DELIVERY) == "executed"


def test_a_request_without_the_named_field_is_refused(gateway, origin):
    for delivery, fields in ((None, {}), (None, {"Idempotency-Key": "k"})):
        missing = deliver(gateway, delivery, **fields)
        assert missing.status == 400 and missing.json["code"] == "idempotency_key_missing"
        assert "X-GitHub-Delivery" in missing.json["detail"]
    for bad in ("", "x" * 256, "caf\u00e9"):
        invalid = deliver(gateway, bad)
        assert invalid.status == 400 and invalid.json["code"] == "idempotency_key_invalid", bad
    with gateway.peer() as peer:
        peer.send(b"POST /hooks/github HTTP/1.1\r\nHost: o\r\nX-GitHub-Delivery: a\r\n"
            b"x-github-delivery: b\r\nContent-Length: 0\r\n\r\n")
        assert "more than once" in peer.read().json["detail"]
    assert origin.total == 0 and not gateway.operations()


def test_the_clients_own_key_gives_way_to_the_named_one(gateway, origin):
    deliver(gateway, **{"Idempotency-Key": "mine"})
    assert deliver(gateway, **{"Idempotency-Key": "other"}).is_replay
    assert origin.requests[0].all("Idempotency-Key") == [DELIVERY] and origin.total == 1


def test_a_key_in_the_body_has_one_effect(gateway, origin):
    first = event(gateway, {"id": "evt_1", "n": 1})
    assert first.fields["Idempotency-Key"] == "evt_1"
    again = event(gateway, '{"n": 1.0, "id": "\\u0065vt_1"}')
    assert again.is_replay and again.body == first.body
    assert event(gateway, {"id": "evt_1", "n": 2}).status == 422
    assert event(gateway, {"id": 17}).decision == "first_seen"
    assert event(gateway, '{"id": 1.7e1}').is_replay
    assert event(gateway, {"id": 'a "b", c'}).fields["Idempotency-Key"] == '"a \\"b\\", c"'
    assert [each.key for each in origin.requests] == ["evt_1", "17", 'a "b", c']
    plain = event(gateway, '{"id": "sns"}', **{"Content-Type": "text/plain"})
    assert plain.decision == "first_seen" and gateway.status_of("sns") == "executed"


@pytest.mark.parametrize("body, code", [
    ('{"ID": 1}', "missing"), ("[]", "missing"), ("", "invalid"), ("id=1", "invalid"),
    ('{"id": 9007199254740993}', "invalid"), ('{"id": 1.5}', "invalid"),
    ('{"id": 1e400}', "invalid"), ('{"id": null}', "invalid"), ('{"id": {"a": 1}}', "invalid"),
    ('{"id": ""}', "invalid"), ('{"id": 1, "id": 2}', "invalid"), ('{"id": "\\n"}', "invalid"),
    ('{"id": "\u00e9"}', "invalid"),
])
def test_a_body_without_a_key_is_refused(gateway, origin, body, code):
    answer = event(gateway, body)
    assert answer.status == 400 and answer.json["code"] == f"idempotency_key_{code}", answer
    assert answer.json["effect"] == "no" and "Once-Operation-Id" not in answer.fields
    assert origin.total == 0 and not gateway.operations()


def test_a_key_in_a_body_that_is_spooled_is_found(make_gateway, origin):
    gateway = make_gateway(routes=[EVENTS], gateway={"spool_memory": "4KiB"})
    body = {"text": "x" * 300_000, "id": "far"}
    assert event(gateway, body).decision == "first_seen"
    assert event(gateway, body).is_replay and origin.effects["far"] == 1
