"""What a client gets of an operation that an operator settled: the answer given, and nothing else.
"""
import json

import pytest

WORDS = "the operator's own words"
BODY = b'{"charge": "ch_1"}\n'  # as an API may write it: not in canonical form


def settle(gateway, key, *words, status="executed", reason=WORDS):
    (found,) = gateway.of_key(key)
    return gateway.cli("resolve", found["operation_id"], "--status", status, "--reason", reason,
        "--store", gateway.store, *words)


@pytest.fixture
def held(gateway):
    """An operation that reached the API and is unknown."""
    assert gateway.post("k", do="fault=reset_after").json["effect"] == "unknown"
    return gateway


def body_file(gateway, content=BODY):
    path = gateway.directory / "body"
    path.write_bytes(content)
    return f"@{path}"


def check_answer(answer):
    assert answer.is_replay and answer.status == 201 and answer.body == BODY
    assert answer.fields.get("location") == "/charges/ch_1"
    assert answer.fields.get("content-type") == "application/json"
    assert answer.fields.get("once-decision") == "duplicate_replayed"


def test_a_duplicate_gets_status_headers_and_body_byte_for_byte(held, origin):
    done = settle(held, "k", "--http-status", "201", "--header", "Location: /charges/ch_1",
        "--outcome", body_file(held))
    assert done.returncode == 0, done
    check_answer(held.post("k"))
    check_answer(held.post("k"))
    assert origin.effects["k"] == 1
    outcome = held.shown("k")["outcome"]
    assert outcome["code"] == 201 and outcome["body"] == BODY.decode()


def test_it_is_the_same_when_no_server_holds_the_store(held, origin):
    held.stop()
    words = ["--http-status", "201", "--header", "Location: /charges/ch_1", "--outcome",
        body_file(held)]
    assert settle(held, "k", *words).returncode == 0
    held.start()
    check_answer(held.post("k"))
    again = settle(held, "k", *words)  # through the server: the same settlement
    assert again.returncode == 0 and "as it was before" in again.stdout, again


def test_a_body_may_be_anything_or_nothing(gateway, origin):
    for key, content in (("text", b"paid\n"), ("bytes", b"\xff\x00\x01")):
        gateway.post(key, do="fault=reset_after")
        done = settle(gateway, key, "--http-status", "200", "--header", "Content-Type: x/y",
            "--outcome", body_file(gateway, content))
        assert done.returncode == 0, done
        answer = gateway.post(key)
        assert (answer.status, answer.body) == (200, content)
        assert answer.fields.get("content-type") == "x/y"
    gateway.post("none", do="fault=reset_after")
    assert settle(gateway, "none", "--http-status", "204").returncode == 0
    answer = gateway.post("none")
    assert (answer.status, answer.body, answer.is_replay) == (204, b"", True)


@pytest.mark.parametrize("is_stopped", [False, True], ids=["running", "stopped"])
@pytest.mark.parametrize("status, code", [("executed", 200), ("failed", 422)])
def test_without_an_outcome_a_duplicate_gets_what_is_known_and_never_the_reason(held, status, code,
        is_stopped):
    if is_stopped:
        held.stop()
    assert settle(held, "k", "--effect-id", "ch_1", status=status).returncode == 0
    if is_stopped:
        held.start()
    answer = held.post("k")
    operation = held.of_key("k")[0]["operation_id"]
    assert answer.status == code and answer.is_replay
    assert answer.json == {"status": status, "operation_id": operation, "effect_id": "ch_1"}
    assert WORDS.encode() not in answer.body
    assert WORDS in held.cli("why", operation, "--store", held.store).stdout  # it is evidence


@pytest.mark.parametrize("words, said", [
    (["--http-status", "99"], "--http-status is not from 200 to 599"),
    (["--http-status", "600"], "--http-status is not from 200 to 599"),
    (["--header", "A: b"], "--header needs --http-status"),
    (["--http-status", "201", "--exit-code", "0"], "not both"),
    (["--http-status", "201", "--header", "nonsense"], "is not 'Name: value'"),
    (["--http-status", "201", "--header", "Set-Cookie: a=b"], "'Set-Cookie' is a field that is "
        "never replayed"),
    (["--http-status", "201", "--header", "Once-Decision: first_seen"], "never replayed"),
    (["--http-status", "201", "--header", "Transfer-Encoding: chunked"], "never replayed"),
    (["--http-status", "201", "--header", "A b: c"], "entry 1 is not a pair"),
    (["--http-status", "201", "--header", "A: b\r\nC: d"], "'A' has a value that no field can"),
    (["--http-status", "204", "--outcome", "BODY"], "has no body"),
])
def test_an_answer_that_cannot_be_replayed_is_refused_and_settles_nothing(held, words, said):
    words = [body_file(held) if word == "BODY" else word for word in words]
    done = settle(held, "k", *words)
    assert done.returncode == 64 and said in done.stderr, done
    assert held.status_of("k") == "unknown"


def unknown(server, key):
    status, _, grant = server.request("POST", "/v1/fences",
        {"scope": "w", "key": key, "payload": 1})
    assert status == 201
    path = f"/v1/fences/{grant['operation_id']}/unknown"
    assert server.request("POST", path, {"fence": grant["fence"]})[0] == 200
    return f"/v1/operations/{grant['operation_id']}"


def test_the_api_takes_an_answer_of_http(server):
    path = unknown(server, "a")
    http = {"status": 201, "headers": [["Location", "/x"]]}
    settled = {"status": "executed", "reason": WORDS, "http": http, "outcome": {"b": 1, "a": 2}}
    status, _, answer = server.request("POST", f"{path}/resolve", settled)
    assert status == 200 and answer["status"] == "executed", answer
    outcome = server.request("GET", path)[2]["outcome"]
    assert outcome["code"] == 201 and json.loads(outcome["body"]) == {"b": 1, "a": 2}
    assert json.loads(outcome["meta"]) == {"format": "once-http-1",
        "headers": [["Location", "/x"], ["Content-Type", "application/json"]]}
    status, _, answer = server.request("POST", f"{path}/resolve", settled)
    assert status == 200 and answer["repeated"] is True
    settled["http"] = {**http, "status": 200}
    status, _, answer = server.request("POST", f"{path}/resolve", settled)
    assert (status, answer["code"]) == (409, "already_sealed")


@pytest.mark.parametrize("more, said", [
    ({"http": {}}, "member 'http.status' is missing"),
    ({"http": []}, "member 'http' must be an object"),
    ({"http": {"status": "201"}}, "member 'http.status' must be a number from 200 to 599"),
    ({"http": {"status": 199}}, "member 'http.status' must be a number from 200 to 599"),
    ({"http": {"status": 201, "other": 1}}, "unknown member 'http.other'"),
    ({"http": {"status": 201, "body": 1}}, "member 'http.body' must be a string"),
    ({"http": {"status": 201, "body": "x"}, "outcome": 1}, "more than one of the members"),
    ({"http": {"status": 201, "body_base64": "?"}}, "member 'http.body_base64' is not base64"),
    ({"http": {"status": 204, "body": "x"}}, "an answer with status 204 has no body"),
    ({"http": {"status": 201, "headers": {}}}, "member 'http.headers': not a list"),
    ({"http": {"status": 201, "headers": [["A"]]}}, "member 'http.headers'"),
    ({"http": {"status": 201, "headers": [["Set-Cookie", "a"]]}}, "never replayed"),
    ({"http": {"status": 201, "headers": [["A", "x" * 20000]]}}, "outcome_meta_bytes_max"),
    ({"status": "not_executed", "http": {"status": 201}}, "member 'http' must not be given"),
])
def test_the_api_refuses_what_cannot_be_replayed_by_its_member(server, more, said):
    path = unknown(server, "a")
    body = {"status": "executed", "reason": "r", **more}
    status, _, answer = server.request("POST", f"{path}/resolve", body)
    assert status == 400 and said in answer["detail"], answer
    assert server.request("GET", path)[2]["status"] == "unknown"


def test_a_text_in_place_of_a_file_is_answered_with_how_to_give_it(held):
    done = settle(held, "k", "--http-status", "201", "--outcome", '{"id":1}')
    assert done.returncode == 74 and "hint: --outcome names a file" in done.stderr, done
    assert held.status_of("k") == "unknown"


def test_an_answer_is_shown_as_an_answer_and_not_as_a_programs_output(gateway):
    gateway.post("k", do="status=201&field=X-Cost:7&text=paid")
    for stopped in (False, True):
        if stopped:
            gateway.stop()
        done = gateway.cli("show", "--key", "k", "--store", gateway.store)
        lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
        assert {"HTTP status 201", "header X-Cost: 7", "outcome 4 bytes"} <= set(lines), done
        assert lines[-2:] == ["--- body, 4 bytes", "paid"]
