"""Middleware that fences handlers without a gateway: the same answers from every framework.

Each application has the same routes: POST /charges counts and answers 201; POST /end/STATUS answers
that; POST /crash raises; POST /slow takes a while; POST /held waits until it is let go; GET
/charges says how many there were. A framework that is not installed is skipped by name.
"""
import concurrent.futures
import http.client
import json
import uuid
from pathlib import Path

import pytest

import applications
from once import handlers as shared
from once_server import Server

CASES = json.loads(
    (Path(__file__).resolve().parent.parent / "vectors/sdk/handlers.json").read_text())
DUPLICATES = 100
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module", params=applications.KINDS)
def one_app(request):
    """One of each kind for all tests: a process of Node takes its time to start."""
    server = Server()
    try:
        application = applications.start(request.param, server.url)
        yield application
        application.stop()
    finally:
        server.remove()


@pytest.fixture
def app(one_app):
    one_app.reset()
    return one_app


@pytest.fixture
def key():
    return str(uuid.uuid4())


class Answer:
    def __init__(self, response):
        self.status, self.body = response.status, response.read()
        self.headers = response.headers

    def json(self):
        return json.loads(self.body)


def send(app, method, path, body=None, key=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", app.port, timeout=120)
    try:
        fields = {**JSON, **({"Idempotency-Key": key} if key else {}), **(headers or {})}
        connection.request(method, path, None if body is None else json.dumps(body), fields)
        return Answer(connection.getresponse())
    finally:
        connection.close()


def post(app, key, body=None, path="/charges", **how):
    return send(app, "POST", path, {"cents": 1} if body is None else body, key, **how)


def charges(app):
    return send(app, "GET", "/charges").json()["charges"]


def test_a_replay_is_the_first_answer(app, key):
    first = post(app, key, headers={"Request-Id": "r-1"})
    again = post(app, f'"{key}"', headers={"Request-Id": "r-2"})
    assert (first.status, again.status) == (201, 201) and first.body == again.body
    assert first.headers["Once-Decision"] == "first_seen"
    assert first.headers["Idempotent-Replayed"] is None
    assert first.headers["Set-Cookie"] == "session=1"
    assert again.headers["Once-Decision"] == "duplicate_replayed"
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.headers["Original-Request-Id"] == "r-1" and again.headers["Request-Id"] == "r-2"
    assert again.headers["Idempotency-Key"] == f'"{key}"'
    assert again.headers["Set-Cookie"] is None and again.headers["X-Kept"] == "yes"
    assert again.headers["Content-Type"] == first.headers["Content-Type"]
    assert again.headers["Once-Operation-Id"] == first.headers["Once-Operation-Id"]
    assert again.headers["Last-Modified"].endswith("GMT")
    assert charges(app) == 1


def test_another_body_is_a_conflict(app, key):
    post(app, key)
    refused = post(app, key, {"cents": 2})
    assert refused.status == 422 and refused.json()["code"] == "idempotency_conflict"
    assert refused.headers["Once-Decision"] == "conflict_rejected"
    assert refused.headers["Content-Type"].startswith("application/problem+json")
    assert post(app, key, path="/charges?a=1").status == 422
    assert charges(app) == 1


def test_the_scope_is_method_and_path_and_the_principal_is_apart(app, key):
    assert post(app, key).headers["Once-Decision"] == "first_seen"
    assert post(app, key, path="/end/200").headers["Once-Decision"] == "first_seen"
    other = post(app, key, headers={"Authorization": "Bearer other"})
    assert other.headers["Once-Decision"] == "first_seen"
    assert charges(app) == 2


@pytest.mark.parametrize("key, code", [(None, "idempotency_key_missing"),
    ("a b", "idempotency_key_invalid"), ("k" * 256, "idempotency_key_invalid")])
def test_a_key_is_needed(app, key, code):
    refused = post(app, key)
    assert refused.status == 400 and refused.json()["code"] == code
    assert refused.headers["Once-Effect"] == "no" and refused.json()["error"]["code"] == code
    assert charges(app) == 0


def test_a_refusal_of_the_handler_is_replayed(app, key):
    first, again = post(app, key, path="/end/404"), post(app, key, path="/end/404")
    assert (first.status, again.status) == (404, 404) and first.body == again.body
    assert again.headers["Idempotent-Replayed"] == "true"


def test_what_the_handler_did_not_do_may_be_tried_again(app, key):
    for _ in range(2):
        answer = post(app, key, path="/end/503")
        assert answer.status == 503 and answer.headers["Once-Decision"] == "first_seen"
        assert answer.headers["Once-Effect"] == "no"


@pytest.mark.parametrize("path", ["/end/500", "/crash"])
def test_after_a_500_nobody_knows(app, key, path):
    assert post(app, key, path=path).status == 500
    held = post(app, key, path=path)
    assert held.status == 409 and held.json()["code"] == "outcome_unknown"
    assert held.headers["Once-Decision"] == "held_unknown"
    assert held.headers["Once-Effect"] == "unknown"
    assert app.calls["crash" if path == "/crash" else "end"] == 1


def test_bytes_come_back_as_they_were(app, key):
    first, again = post(app, key, path="/bytes"), post(app, key, path="/bytes")
    assert first.body == again.body == b"\xff\x00\xfe"


def test_a_hundred_duplicates_at_once_are_one_call(app, key):
    with concurrent.futures.ThreadPoolExecutor(DUPLICATES) as pool:
        answers = list(pool.map(lambda _: post(app, key, path="/slow"), range(DUPLICATES)))
    assert app.calls["slow"] == 1
    done = [answer for answer in answers if answer.status == 201]
    assert done and len({answer.body for answer in done}) == 1
    firsts = [each for each in answers if each.headers["Once-Decision"] == "first_seen"]
    assert len(firsts) == 1
    others = {answer.status for answer in answers} - {201}
    assert others <= {409, 429}, others  # still running; or a flood, as at the gateway


def test_while_it_runs_a_duplicate_is_told_to_come_back(app, key):
    app.hold()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, app, key, path="/held")
        app.entered()
        refused = post(app, key, path="/held", headers={"Prefer": "wait=0"})
        app.let_go()
        assert first.result().status == 201
    assert refused.status == 409 and refused.json()["code"] == "in_progress"
    assert int(refused.headers["Retry-After"]) >= 1
    assert post(app, key, path="/held").headers["Idempotent-Replayed"] == "true"


LARGE = applications.ANSWER_MAX + 1


@pytest.mark.parametrize("path", [f"/pieces/{LARGE}", f"/whole/{LARGE}",
    f"/pieces/{LARGE}?by=write"])
def test_an_answer_that_is_too_large_to_keep_is_given_once(app, key, path):
    first, again = post(app, key, path=path), post(app, key, path=path)
    assert (first.status, first.body) == (201, b"a" * LARGE)
    assert first.headers["Once-Decision"] == "first_seen"
    assert first.headers["X-Kept"] == "yes" and first.headers["Set-Cookie"] == "session=1"
    assert again.status == 410 and again.json()["code"] == "outcome_not_retained"
    assert again.headers["Once-Effect"] == "yes" and sum(app.calls.values()) == 1


@pytest.mark.parametrize("path", [f"/pieces/{LARGE - 1}", f"/whole/{LARGE - 1}",
    f"/pieces/{LARGE - 1}?by=write"])
def test_an_answer_at_the_limit_is_kept(app, key, path):
    first, again = post(app, key, path=path), post(app, key, path=path)
    assert first.body == again.body == b"a" * (LARGE - 1)
    assert again.headers["Idempotent-Replayed"] == "true" and sum(app.calls.values()) == 1


def test_reads_pass_untouched(app, key):
    answer = send(app, "GET", "/charges", key=key)
    assert answer.status == 200 and answer.headers["Once-Decision"] is None


@pytest.mark.parametrize("kind", applications.KINDS)
def test_without_once_nothing_is_said_to_be_done_and_nothing_runs(kind, key, server):
    app = applications.start(kind, server.url)
    try:
        app.hold()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            running = pool.submit(post, app, key, path="/held")
            app.entered()
            if kind != "django-asgi":  # its views have one thread, and that is held
                large = pool.submit(post, app, key, path=f"/large/{LARGE}")
                app.entered_large()
            server.kill9()
            app.let_go()
            unsealed = running.result()
            if kind != "django-asgi":
                with pytest.raises((http.client.HTTPException, OSError)):
                    large.result()  # what cannot be sealed does not look whole
        assert unsealed.status == 503 and unsealed.json()["code"] == "outcome_not_sealed"
        assert unsealed.headers["Once-Effect"] == "unknown"
        refused = post(app, key)
        assert refused.status == 503 and refused.json()["code"] == "unavailable"
        assert refused.headers["Once-Effect"] == "no" and app.calls["charges"] == 0
    finally:
        app.stop()


# --- The pure parts -------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES["keys"], ids=lambda case: case["field"][:12])
def test_a_key_field(case):
    assert shared.key_of([case["field"]]) == case.get("key")


def test_two_key_fields_are_none():
    assert shared.key_of(["a", "a"]) is None


@pytest.mark.parametrize("case", CASES["keys"], ids=lambda case: case["field"][:12])
def test_the_gateway_reads_a_key_field_the_same(case, gateway):
    if not case["field"]:
        pytest.skip("an empty field is not sent by http.client")
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=120)
    connection.request("POST", "/pay", "{}", {**JSON,
        "Idempotency-Key": case["field"].encode("utf-8")})
    status = connection.getresponse().status
    connection.close()
    assert (status == 400) == ("error" in case)
    if "key" in case:
        assert gateway.operations()[0]["key"] == case["key"]


@pytest.mark.parametrize("case", CASES["paths"], ids=lambda case: case["raw"])
def test_a_path(case):
    assert shared.canonical_path(case["raw"].encode()) == case["path"]


@pytest.mark.parametrize("case", CASES["fingerprints"], ids=lambda case: case["name"])
def test_a_fingerprint(case):
    request = shared.Request(case["method"], case["path"], case["query"],
        [("Content-Type", case["content_type"])], case["body"].encode())
    assert shared.fingerprint(request) == case["sha256"]


@pytest.mark.parametrize("case", CASES["ends"], ids=lambda case: str(case["status"]))
def test_how_an_operation_ends(case):
    assert shared.end_of(case["status"], {}) == case["end"]


@pytest.mark.parametrize("case", CASES["outcomes"], ids=lambda case: case["name"])
def test_an_outcome(case):
    import base64
    answer = shared.Answer(case["status"], [tuple(each) for each in case["headers"]],
        base64.b64decode(case["body_base64"]))
    assert shared.outcome_of(answer, case["request_id"]) == case["outcome"]


def test_a_rule_of_ones_own_for_a_status():
    assert shared.end_of(500, {500: "release"}) == "release"
    assert shared.end_of(503, {503: "seal"}) == "failed"
