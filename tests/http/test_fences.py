"""Fences over the real binary: each decision, from the outside."""
import json
import socket
import threading
import time
import uuid

import pytest

from once_server import request_bytes, until


def begin_body(key=None, **more):
    return {"scope": "test", "key": key or str(uuid.uuid4()), "payload": {"amount": 100}, **more}


def begin(server, body, status=201):
    got, headers, answer = server.request("POST", "/v1/fences", body)
    assert got == status, answer
    return answer


def tell(server, grant, verb, **members):
    path = f"/v1/fences/{grant['operation_id']}/{verb}"
    return server.request("POST", path, {"fence": grant["fence"], **members})


def test_a_first_arrival_is_granted(server):
    status, headers, answer = server.request("POST", "/v1/fences", begin_body())
    assert status == 201
    assert set(answer) == {"decision", "operation_id", "fence", "attempt", "lease_expires_at"}
    assert answer["decision"] == "first_seen"
    assert answer["attempt"] == 1
    assert headers["Location"] == "/v1/operations/" + answer["operation_id"]


def test_a_duplicate_waits_then_is_replayed(server):
    body = begin_body()
    grant = begin(server, body)
    status, headers, answer = server.request("POST", "/v1/fences", body)
    assert status == 202
    assert answer["decision"] == "in_progress"
    assert answer["status_url"] == "/v1/operations/" + grant["operation_id"]
    assert int(headers["Retry-After"]) >= 1
    outcome = {"id": "ch_1", "list": [1, None, "é"]}
    status, _, sealed = tell(server, grant, "seal", status="executed", effect_id="ch_1",
        outcome=outcome)
    assert status == 200 and sealed["decision"] == "sealed"
    assert tell(server, grant, "seal", status="executed", effect_id="ch_1",
        outcome=outcome)[2] == sealed
    replay = begin(server, body, 200)
    assert replay["decision"] == "duplicate_replayed"
    assert replay["outcome"] == outcome
    assert replay["effect_id"] == "ch_1"
    assert replay["sealed_at"] == sealed["sealed_at"]


def test_a_waiting_duplicate_is_answered_when_it_is_sealed(server):
    body = begin_body()
    grant = begin(server, body)
    answers = []
    waiter = threading.Thread(target=lambda: answers.append(
        server.request("POST", "/v1/fences", {**body, "wait": "30s"})))
    begun = time.monotonic()
    waiter.start()
    time.sleep(0.3)
    tell(server, grant, "seal", status="executed", outcome=7)
    waiter.join(timeout=25)
    assert answers and time.monotonic() - begun < 25
    assert answers[0][0] == 200 and answers[0][2]["outcome"] == 7


@pytest.mark.parametrize("more", [1, 100000], ids=["in place", "spilled"])
def test_a_body_that_is_cut_off_takes_no_effect(server, more):
    """What came of it is whole JSON all the same: only its length tells."""
    text = json.dumps(begin_body())
    with server.wire() as wire:
        wire.send(request_bytes("POST", "/v1/fences", text + " " * more)[:-more])
        wire.socket.shutdown(socket.SHUT_WR)
        status, _, problem = wire.answer()
    assert (status, problem["effect"]) == (400, "no"), problem
    assert begin(server, json.loads(text))["attempt"] == 1


def test_another_payload_is_a_conflict_with_a_diff(server):
    body = begin_body()
    grant = begin(server, body)
    tell(server, grant, "seal", status="executed", outcome={"secret": "s3cr3t"})
    status, headers, problem = server.request(
        "POST", "/v1/fences", {**body, "payload": {"amount": 200}})
    assert status == 409
    assert headers["Content-Type"] == "application/problem+json"
    assert problem["code"] == "idempotency_conflict"
    assert (problem["effect"], problem["retry"]) == ("no", "no")
    assert problem["diff"] == [{"op": "replace", "path": "/amount", "value": 200}]
    assert "s3cr3t" not in json.dumps(problem)


def test_unknown_is_held_and_taken_over_only_when_asked(server):
    body = begin_body()
    grant = begin(server, body)
    assert tell(server, grant, "unknown", reason="timeout")[2]["status"] == "unknown"
    problem = begin(server, body, 409)
    assert problem["code"] == "outcome_unknown"
    assert (problem["effect"], problem["retry"]) == ("unknown", "no")
    assert problem["operation_id"] == grant["operation_id"]
    again = begin(server, {**body, "on_unknown": "takeover"})
    assert again["attempt"] == 2 and again["fence"] > grant["fence"]
    assert tell(server, grant, "seal", status="executed")[2]["code"] == "stale_fence"


def test_released_may_be_begun_again(server):
    body = begin_body()
    grant = begin(server, body)
    status, _, answer = tell(server, grant, "release", reason="no stock")
    assert status == 200 and answer["status"] == "released"
    assert begin(server, body)["attempt"] == 2


def test_a_lease_that_runs_out_is_unknown(server):
    body = begin_body(lease="50ms")
    begin(server, body)
    until(lambda: server.request("POST", "/v1/fences", body)[0] == 409, "its lease never ends")
    assert begin(server, body, 409)["code"] == "outcome_unknown"


def test_a_renewal_never_shortens_the_lease(server):
    grant = begin(server, begin_body(lease="1h"))
    answer = tell(server, grant, "renew", lease="1s")[2]
    assert answer["lease_expires_at"] >= grant["lease_expires_at"]
    assert (answer["decision"], answer["fence"]) == ("renewed", grant["fence"])
    longer = tell(server, grant, "renew", lease="2h")[2]
    assert longer["lease_expires_at"] > grant["lease_expires_at"]
    verified = server.cli("verify", "--redecide", "--store", server.store)
    assert verified.returncode == 0, verified


def test_renewal(server):
    grant = begin(server, begin_body(lease="60s"))
    status, _, answer = tell(server, grant, "renew", lease="1h")
    assert status == 200
    assert set(answer) == {"decision", "operation_id", "fence", "lease_expires_at"}
    assert answer["lease_expires_at"] > grant["lease_expires_at"]


def test_an_older_version_of_a_source_is_refused(server):
    source = {"type": "order", "id": str(uuid.uuid4())}
    newer = begin(server, begin_body(source={**source, "version": 10}))
    tell(server, newer, "seal", status="executed")
    problem = begin(server, begin_body(source={**source, "version": 9}), 409)
    assert problem["code"] == "stale_version"
    assert problem["effect"] == "no"
    begin(server, begin_body(source={**source, "version": 11}))


@pytest.mark.parametrize("change, code, name", [
    ({"colour": 1}, "unknown_member", "colour"),
    ({"scope": None}, "invalid_member", "scope"),
    ({"key": "k" * 256}, "invalid_member", "key_bytes_max"),
    ({"ttl": 60}, "invalid_member", "ttl"),
    ({"lease": "1ms"}, "invalid_member", "lease_ms_min"),
    ({"wait": "2m"}, "invalid_member", "wait_ms_max"),
    ({"fingerprint": "00" * 32}, "invalid_member", "fingerprint"),
    ({"source": {"version": 1.5}}, "invalid_member", "source.version"),
])
def test_what_is_wrong_is_named(server, change, code, name):
    problem = begin(server, begin_body(**change), 400)
    assert problem["code"] == code
    assert name in problem["detail"]


def test_an_unknown_operation_and_a_bad_id_look_the_same(server):
    answers = []
    for name in ("op_018f0000-0000-7000-8000-000000000000", "nonsense"):
        status, _, problem = server.request(
            "POST", f"/v1/fences/{name}/release", {"fence": 1}, {"Request-Id": "same"})
        assert status == 404
        answers.append(problem)
    assert answers[0] == answers[1]
    assert answers[0]["code"] == "operation_not_found"
