"""The gateway's profiles in middleware: the same answers as the gateway's, from every SDK.

tests/vectors/sdk/profiles.json says what each profile does. The gateway is held against it here, as
are the middlewares over the wire; vectors.test.mjs and sdk/go/vectors_test.go run its cases too.
"""
import concurrent.futures
import json
import uuid
from pathlib import Path

import pytest

import applications
import once
from once import handlers, profiles
from once_server import LONG, Server
from test_handlers import post, send

CASES = json.loads(
    (Path(__file__).resolve().parent.parent / "vectors/sdk/profiles.json").read_text())
NAMES = [each["profile"] for each in CASES["profiles"]]
KINDS = applications.KINDS if LONG else ["wsgi", "node", "net/http"]
PASSING = {"title", "detail", "message", "request_id", "operation_id", "retry_after_ms", "diff",
    "diff_truncated", "differs"}  # the last three explain a conflict, and are the gateway's alone
OWN = {"Idempotency-Key", "Once-Operation-Id", "Request-Id"}


def cases(name):
    return pytest.mark.parametrize("case", CASES[name], ids=lambda case: "-".join(str(value)[:12]
        for member, value in case.items() if member in ("profile", "field", "status", "code")))


def refusal(profile, code):
    return next(each for each in CASES["refusals"]
        if (each["profile"], each["code"]) == (profile, code))


# --- The cases ------------------------------------------------------------------------------------


@cases("profiles")
def test_a_profile(case):
    profile = profiles.PROFILES[case["profile"]]
    assert list(profile.methods) == case["methods"]
    for name in ("missing", "ttl_ms", "ttl_min_ms", "ttl_max_ms"):
        assert getattr(profile, name) == case[name]


@cases("keys")
def test_a_key(case):
    assert profiles.PROFILES[case["profile"]].key_of([case["field"]]) == case.get("key")


@cases("ends")
def test_an_end(case):
    is_sealed_5xx = profiles.PROFILES[case["profile"]].is_sealed_5xx
    assert handlers.end_of(case["status"], {}, is_sealed_5xx) == case["end"]


@cases("refusals")
def test_a_refusal(case):
    made = handlers.Handlers(once.Fences("http://127.0.0.1:1"), profile=case["profile"])
    request = handlers.Request("POST", "/", "", [("Idempotency-Key", "k"), ("Request-Id", "r-1")],
        b"")
    after = case.get("retry_after_ms")
    answer = made.refuse(request, case["code"], case.get("operation_id"), after and after / 1000)
    document = json.loads(answer.body)
    assert (document.pop("title", None) is not None) == (case["profile"] in ("ietf", "ops"))
    assert (answer.status, document) == (case["status"], case["body"])
    headers = {name: value for name, value in answer.headers if name not in OWN}
    assert headers == case["headers"]


def test_a_profile_that_is_none_and_a_window_that_it_forbids():
    fences = once.Fences("http://127.0.0.1:1")
    for options in ({"profile": "odd"}, {"profile": "guardia", "ttl": "25h"},
            {"profile": "ops", "ttl": "23h"}):
        with pytest.raises(ValueError):
            handlers.Handlers(fences, **options)
    handlers.Handlers(fences, profile="guardia", ttl="2h")


# --- Over the wire --------------------------------------------------------------------------------


class Gateway:
    """The gateway, as an application of the same shape."""

    def __init__(self, gateway):
        self.port = gateway.port


def bare(value):
    """Without what belongs to one refusal alone, and without what it says in words."""
    if isinstance(value, list):
        return [bare(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: bare(each) for name, each in value.items() if name not in PASSING}


def check(answer, profile, code, key):
    """A refusal that the case has."""
    case = refusal(profile, code)
    assert answer.status == case["status"], answer.body
    assert bare(answer.json()) == bare(case["body"])
    for name in ("request_id", "operation_id", "retry_after_ms"):
        assert (f'"{name}"' in answer.body.decode()) >= (f'"{name}"' in json.dumps(case)), name
    fields = dict(case["headers"])
    assert (answer.headers["Retry-After"] is not None) == ("Retry-After" in fields)
    fields.pop("Retry-After", None)
    assert {name: answer.headers[name] for name in fields} == fields
    assert answer.headers["Stripe-Should-Retry"] == fields.get("Stripe-Should-Retry")
    assert answer.headers["Idempotency-Key"] == key and answer.headers["Request-Id"]


def behave(app, profile, five_hundred):
    """What the profile says, from the outside. five_hundred: (path, headers) of a 500."""
    key = str(uuid.uuid4())
    first = post(app, key, path="/charges")
    assert first.headers["Once-Decision"] == "first_seen", first.body
    again = post(app, f'"{key}"', path="/charges")
    assert again.headers["Idempotent-Replayed"] == "true" and again.body == first.body
    check(post(app, key, {"cents": 2}), profile, "idempotency_conflict", key)
    long_key = "k" * 256
    check(post(app, long_key), profile, "idempotency_key_invalid", long_key)
    missing = post(app, None)
    if profile == "adr007":
        made = missing.headers["Idempotency-Key"]
        assert uuid.UUID(made).version == 4 and missing.headers["Once-Decision"] == "first_seen"
        assert post(app, made).headers["Idempotent-Replayed"] == "true"
    elif profile == "stripe":
        assert missing.status < 300 and missing.headers["Once-Decision"] is None
        assert missing.headers["Idempotency-Key"] is None
    else:
        check(missing, profile, "idempotency_key_missing", None)
    path, headers = five_hundred
    key = str(uuid.uuid4())
    broken, again = (post(app, key, path=path, headers=headers) for _ in range(2))
    assert broken.status == 500
    if profile == "stripe":
        assert again.status == 500 and again.headers["Idempotent-Replayed"] == "true"
        assert broken.headers["Once-Effect"] is None
    else:
        assert broken.headers["Once-Effect"] == "unknown"
        check(again, profile, "outcome_unknown", key)
    fenced = next(each["methods"] for each in CASES["profiles"] if each["profile"] == profile)
    for method in ("GET", "PUT", "DELETE"):
        answer = send(app, method, "/charges", {"cents": 1}, str(uuid.uuid4()))
        assert (answer.headers["Once-Decision"] is not None) == (method in fenced), method


@pytest.fixture(scope="module")
def once_url():
    server = Server()
    yield server.url
    server.remove()


@pytest.mark.parametrize("profile", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_middleware_answers_as_the_profile_says(kind, profile, once_url):
    app = applications.start(kind, once_url, profile)
    try:
        behave(app, profile, ("/end/500", {}))
        if profile in ("guardia", "stripe"):  # the two that word it most differently
            in_progress(app, profile)
    finally:
        app.stop()


def in_progress(app, profile):
    key = str(uuid.uuid4())
    app.hold()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, app, key, path="/held")
        app.entered()
        refused = post(app, key, path="/held", headers={"Prefer": "wait=0"})
        app.let_go()
        assert first.result().status == 201
    check(refused, profile, "in_progress", key)
    assert int(refused.headers["Retry-After"]) >= 1


@pytest.mark.parametrize("profile", NAMES)
def test_the_gateway_answers_as_the_profile_says(profile, make_gateway):
    behave(Gateway(make_gateway("--profile", profile)), profile,
        ("/broken", {"X-Do": "status=500&text=broken&type=text/plain"}))
