"""The five profiles, cell by cell of the table in docs/gateway.md, over the wire."""
import datetime
import re
import uuid

import pytest
from once_gateway import request_for

PROFILES = ("ietf", "guardia", "adr007", "ops", "stripe")
UUID_4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
UUID_7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
METHODS = {"ietf": {"POST", "PUT", "PATCH", "DELETE"}, "guardia": {"POST", "PUT", "PATCH"},
    "adr007": {"POST", "PUT", "PATCH", "DELETE"}, "ops": {"POST", "PUT", "PATCH", "DELETE"},
    "stripe": {"POST"}}
WINDOW_H = {"ietf": 24, "guardia": 24, "adr007": 24, "ops": 48, "stripe": 24}
PROBLEM = "application/problem+json"


@pytest.fixture(params=PROFILES)
def profile(request):
    return request.param


@pytest.fixture
def gateway(make_gateway, profile):
    return make_gateway("--profile", profile)


def fresh():
    """A key that every profile takes."""
    return str(uuid.uuid4())


def problem(answer, status, code, effect="no", retry="no"):
    """A problem document with all that it has to say."""
    assert answer.status == status, answer
    assert answer.fields["Content-Type"] == PROBLEM
    document = answer.json
    assert (document["status"], document["code"]) == (status, code), document
    assert (document["effect"], document["retry"]) == (effect, retry), document
    assert document["request_id"] == answer.fields["Request-Id"]
    assert document["title"] and document["detail"]
    error = document["error"]  # where Stripe's library and its kind look
    assert (error["code"], error["message"]) == (code, document["detail"]) and error["type"]
    return document


def guardia(answer, status, code, reason):
    assert answer.status == status, answer
    assert answer.fields["Content-Type"].startswith("application/json")
    (error,) = answer.json["errors"]
    assert list(answer.json) == ["errors", "error"] and answer.json["error"]["message"]
    assert (error["code"], error["reason"]) == (code, reason)
    assert len(error["message"]) > 10
    return error


def adr007(answer, status, error):
    assert answer.status == status, answer
    assert answer.fields["Content-Type"].startswith("application/json")
    assert answer.json["error"] == error and answer.json["message"]
    return answer.json


def stripe(answer, status, kind):
    assert answer.status == status, answer
    assert answer.fields["Content-Type"].startswith("application/json")
    assert answer.json["error"]["type"] == kind and answer.json["error"]["message"]
    return answer.json["error"]


def test_a_missing_key(gateway, origin, profile):
    answer = gateway.send("POST", "/pay", {"amount": 1}, headers={"Request-Id": "r-1"})
    assert answer.fields["Request-Id"] == "r-1"
    if profile in ("adr007", "stripe"):
        assert answer.status == 200 and origin.total == 1
    else:
        assert answer.status == 400 and origin.bytes_seen == 0
        assert answer.fields["Once-Effect"] == "no"
        assert gateway.operations() == []
    if profile in ("ietf", "ops"):
        problem(answer, 400, "idempotency_key_missing")
    elif profile == "guardia":
        guardia(answer, 400, "ERR400_INVALID_ARGUMENT", "IDEMPOTENCY_KEY_REQUIRED")
    elif profile == "adr007":
        key = answer.fields["Idempotency-Key"]
        assert UUID_4.fullmatch(key), key
        assert origin.requests[0].key == key and answer.decision == "first_seen"
        again = gateway.send("POST", "/pay", {"amount": 1}, key=key)
        assert again.is_replay and again.body == answer.body
        other = gateway.send("POST", "/pay", {"amount": 1})
        assert other.fields["Idempotency-Key"] != key and origin.total == 2
    else:
        assert "Once-Decision" not in answer.fields and "Idempotency-Key" not in answer.fields
        assert not origin.requests[0].all("Once-Operation-Id") and gateway.operations() == []


def test_an_empty_key_is_not_well_formed(gateway, origin):
    answer = gateway.send("POST", "/pay", {"amount": 1}, key="")
    assert answer.status == 400 and origin.bytes_seen == 0 and gateway.operations() == []


@pytest.mark.parametrize("field", ["k" * 256, '"' + "k" * 256 + '"', '"not closed', 'not"opened"',
    "a b", "a, b", "caf\u00e9", '"a"b', "'; drop", '"a\\b"', '""'])
def test_a_key_that_is_not_well_formed(gateway, origin, profile, field):
    answer = gateway.send("POST", "/pay", {"amount": 1}, headers={"Idempotency-Key": field})
    if profile == "stripe" and len(field) < 256 and field.isascii():  # as Stripe takes it
        assert answer.status == 200 and answer.fields["Idempotency-Key"] == field
        again = gateway.send("POST", "/pay", {"amount": 1}, headers={"Idempotency-Key": field})
        assert again.is_replay and origin.total == 1
        return
    if profile == "guardia":
        guardia(answer, 400, "ERR400_INVALID_ARGUMENT", "IDEMPOTENCY_KEY_INVALID")
    elif profile in ("ietf", "ops"):
        problem(answer, 400, "idempotency_key_invalid")
    elif profile == "adr007":
        adr007(answer, 400, "idempotency_key_invalid")
    else:
        stripe(answer, 400, "invalid_request_error")
    assert answer.fields["Once-Effect"] == "no"
    assert origin.bytes_seen == 0 and gateway.operations() == []


def test_a_key_that_comes_twice_is_not_well_formed(gateway, origin):
    one, two = fresh(), fresh()
    with gateway.peer() as peer:
        peer.send(f"POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: {one}\r\n"
            f"Idempotency-Key: {two}\r\nContent-Length: 0\r\n\r\n".encode())
        assert peer.read().status == 400
    assert origin.bytes_seen == 0 and gateway.operations() == []


def test_the_longest_key(gateway, origin, profile):
    answer = gateway.send("POST", "/pay", {"amount": 1}, key="k" * 255)
    if profile == "guardia":
        guardia(answer, 400, "ERR400_INVALID_ARGUMENT", "IDEMPOTENCY_KEY_INVALID")
        assert origin.bytes_seen == 0
    else:
        assert answer.status == 200 and origin.effects["k" * 255] == 1


@pytest.mark.parametrize("key, is_good", [(str(uuid.uuid4()), True), (str(uuid.uuid1()), True),
    ("01A1E208-EE46-7000-8001-6285421D0208", True), ("01a1e208ee46700080016285421d0208", False),
    ("{01a1e208-ee46-7000-8001-6285421d0208}", False),
    ("01a1e208-ee46-7000-8001-6285421d020", False),
    ("01a1e208-ee46-7000-8001-6285421d020g", False), ("order-1", False)])
def test_under_guardia_a_key_is_a_uuid(make_gateway, origin, key, is_good):
    gateway = make_gateway("--profile", "guardia")
    for spelled in (key, f'"{key}"'):
        answer = gateway.post(spelled)
        assert answer.fields["Idempotency-Key"] == spelled
        if is_good:
            assert answer.status == 200
        else:
            guardia(answer, 400, "ERR400_INVALID_ARGUMENT", "IDEMPOTENCY_KEY_INVALID")
    assert origin.total == is_good


def test_another_payload_under_the_same_key(gateway, origin, profile):
    key = fresh()
    first = gateway.post(key, {"amount": 100, "to": "a"})
    assert first.status == 200
    answer = gateway.post(key, {"amount": 200, "to": "a"}, headers={"Request-Id": "r-2"})
    if profile == "ietf":
        problem(answer, 422, "idempotency_conflict")
    elif profile == "guardia":
        guardia(answer, 409, "ERR409_CONFLICT", "CONFLICTING_IDEMPOTENT_REQUEST")
    elif profile == "adr007":
        adr007(answer, 409, "idempotency_mismatch")
    elif profile == "ops":
        document = problem(answer, 409, "idempotency_conflict")
        assert document["diff"] == [{"op": "replace", "path": "/amount", "value": 200}]
    else:
        stripe(answer, 400, "idempotency_error")
    assert answer.decision == "conflict_rejected"
    assert answer.fields["Once-Effect"] == "no"
    assert (answer.fields["Idempotency-Key"], answer.fields["Request-Id"]) == (key, "r-2")
    assert "Idempotent-Replayed" not in answer.fields and first.body not in answer.body
    assert origin.effects[key] == 1 and len(origin.requests) == 1
    again = gateway.post(key, {"amount": 100, "to": "a"})  # the record is untouched (P7)
    assert again.is_replay and again.body == first.body


def test_a_duplicate_while_the_first_runs(gateway, origin, profile):
    key = fresh()
    with gateway.peer() as peer:
        peer.send(request_for("POST", "/pay", {"amount": 1}, key, do="hold=1"))
        origin.wait_for(key)
        answer = gateway.post(key, headers={"Request-Id": "r-3", "Prefer": "wait=0"})
        # A conflict is seen before it is seen that the first still runs (P7).
        conflict = gateway.post(key, {"amount": 2})
        origin.let_go(key)
        first = peer.read()
    if profile in ("ietf", "ops"):
        problem(answer, 409, "in_progress", "unknown", "after")
    elif profile == "guardia":
        guardia(answer, 409, "ERR409_CONFLICT", "IDEMPOTENT_REQUEST_IN_PROGRESS")
    elif profile == "adr007":
        adr007(answer, 409, "idempotency_in_progress")
    else:
        stripe(answer, 409, "invalid_request_error")
    assert answer.fields.get("Stripe-Should-Retry") == ("true" if profile == "stripe" else None)
    assert answer.decision == "in_progress" and int(answer.fields["Retry-After"]) >= 1
    assert (answer.fields["Idempotency-Key"], answer.fields["Request-Id"]) == (key, "r-3")
    assert conflict.decision == "conflict_rejected"
    assert conflict.status == {"ietf": 422, "stripe": 400}.get(profile, 409)
    assert first.status == 200 and first.decision == "first_seen"
    assert gateway.post(key).is_replay and origin.effects[key] == 1


def test_an_upstreams_5xx(gateway, origin, profile):
    key = fresh()
    first = gateway.post(key, do="status=500&text=broken&type=text/plain")
    assert (first.status, first.body) == (500, b"broken")
    assert (first.fields["Idempotency-Key"], first.decision) == (key, "first_seen")
    again = gateway.post(key)
    if profile == "stripe":
        assert again.is_replay and (again.status, again.body) == (500, b"broken")
        assert gateway.status_of(key) == "failed" and "Once-Effect" not in first.fields
    else:
        assert first.fields["Once-Effect"] == again.fields["Once-Effect"] == "unknown"
        assert again.status == 409 and again.decision == "held_unknown"
        assert gateway.status_of(key) == "unknown"
    assert origin.effects[key] == 1 and len(origin.seen(key)) == 1


def test_an_upstreams_503(gateway, origin, profile):
    """It says that nothing was done: free to run again, under every profile."""
    key = fresh()
    first = gateway.post(key, do="status=503&text=later&type=text/plain&effect=0")
    assert (first.status, first.body, first.fields["Once-Effect"]) == (503, b"later", "no")
    assert gateway.status_of(key) == "released"
    again = gateway.post(key)
    assert again.status == 200 and again.decision == "first_seen" and not again.is_replay
    assert [request.get("Once-Attempt") for request in origin.seen(key)] == ["1", "2"]
    assert gateway.post(key).is_replay and origin.effects[key] == 1


def test_the_methods_that_are_fenced(gateway, origin, profile):
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        key = fresh()
        first = gateway.send(method, "/thing", key=key)
        again = gateway.send(method, "/thing", key=key)
        assert first.status == again.status == 200
        is_fenced = method in METHODS[profile]
        assert (origin.effects[key] == 1) == is_fenced, method
        assert again.is_replay == is_fenced and ("Once-Decision" in again.fields) == is_fenced
        assert (len(gateway.of_key(key)) == 1) == is_fenced
    for method in ("GET", "HEAD", "OPTIONS", "TRACE"):
        key = fresh()
        for _ in range(2):
            answer = gateway.send(method, "/thing", key=key)
            assert answer.status == 200 and "Once-Decision" not in answer.fields
        assert len(origin.seen(key)) == 2 and gateway.of_key(key) == []


def test_the_window(gateway, profile):
    key = fresh()
    assert gateway.post(key).status == 200
    operation = gateway.of_key(key)[0]
    sealed, expires = (datetime.datetime.fromisoformat(operation[name].replace("Z", "+00:00"))
        for name in ("sealed_at", "window_expires_at"))
    assert expires - sealed == datetime.timedelta(hours=WINDOW_H[profile])


@pytest.mark.parametrize("profile, window, is_good", [("guardia", "2h", True),
    ("guardia", "24h", True), ("guardia", "119m", False), ("guardia", "25h", False),
    ("ops", "24h", True), ("ops", "72h", True), ("ops", "23h", False), ("ops", "73h", False),
    ("ietf", "1s", True), ("adr007", "7d", True), ("stripe", "30d", True)])
def test_a_window_that_the_profile_forbids_is_refused(tmp_path, make_server, profile, window,
        is_good):
    server = make_server()
    path = tmp_path / "once.yaml"
    path.write_text(f"gateway:\n  upstream: http://127.0.0.1:1\n  routes:\n"
        f'    - {{match: "/**", profile: {profile}, window: {window}}}\n')
    done = server.cli("check", path)
    assert done.returncode == (0 if is_good else 78), done
    assert is_good or "window" in done.stdout + done.stderr


def test_both_ids_come_back_whatever_the_answer(gateway, origin):
    key = fresh()
    for body, do in (({"a": 1}, "status=201"), ({"a": 1}, None), ({"a": 2}, None)):
        answer = gateway.post(key, body, do=do, headers={"Request-Id": "mine-1"})
        assert (answer.all("Idempotency-Key"), answer.all("Request-Id")) == ([key], ["mine-1"])
    made = gateway.post(key, {"a": 1})
    assert UUID_7.fullmatch(made.fields["Request-Id"])
    assert gateway.post(key, {"a": 1}).fields["Request-Id"] != made.fields["Request-Id"]
    assert origin.requests[0].get("Request-Id") == "mine-1"
    other = fresh()
    made = gateway.post(other)
    assert origin.seen(other)[0].get("Request-Id") == made.fields["Request-Id"]


def test_what_the_upstream_is_told(gateway, origin):
    key = fresh()
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    gateway.post(key, {"b": 1, "a": 2}, path="/pay?x=1&y=%20", headers={"Authorization": "Bearer t",
        "X-Custom": "kept", "Cookie": "c=1", "traceparent": parent, "Once-Fence": "99",
        "Once-Operation-Id": "op_forged", "Once-Other": "x", "Connection": "keep-alive, X-Hop",
        "X-Hop": "1", "TE": "trailers", "Request-Id": "r-9"})
    (request,) = origin.seen(key)
    operation = gateway.of_key(key)[0]
    assert (request.method, request.target) == ("POST", "/pay?x=1&y=%20")
    assert bytes(request.body) == b'{"b": 1, "a": 2}'
    assert request.all("Idempotency-Key") == [key] and request.all("Request-Id") == ["r-9"]
    assert request.all("Once-Operation-Id") == [operation["operation_id"]]
    assert request.all("Once-Fence") == [str(operation["fence"])]
    assert request.all("Once-Attempt") == ["1"] and not request.all("Once-Other")
    assert request.all("traceparent") == [parent]
    assert request.all("Authorization") == ["Bearer t"] and request.all("Cookie") == ["c=1"]
    assert request.all("X-Custom") == ["kept"] and not request.all("X-Hop")
    assert not request.all("TE") and request.all("Content-Type") == ["application/json"]
    assert len(request.all("Host")) == 1 and len(request.all("Content-Length")) == 1
    assert "127.0.0.1" in request.get("X-Forwarded-For", "")


def test_a_trace_is_begun_where_there_is_none(gateway, origin):
    keys = [fresh(), fresh()]
    parents = []
    for key in keys:
        gateway.post(key)
        (parent,) = origin.seen(key)[0].all("traceparent")
        assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]", parent)
        parents.append(parent)
    assert parents[0] != parents[1]


def test_an_unknown_outcome_is_not_worth_a_retry(gateway, origin, profile):
    """Stripe's library would send it three times more."""
    key = fresh()
    first, again = gateway.post(key, do="fault=reset_after"), gateway.post(key)
    assert (first.status, again.status) == (504, 409) and origin.effects[key] == 1
    for answer in (first, again):
        assert answer.json["error"]
        assert answer.fields.get("Stripe-Should-Retry") == \
            ("false" if profile == "stripe" else None)
