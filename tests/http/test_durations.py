"""No two durations of a test are the same here, and no two moments.

Created, renewed, sealed, replayed and expired are moments of their own: a window that counted from
the begin, a lease that counted from the first attempt or a document that showed the wrong one of
its times would go unnoticed where everything happens at once.
"""
import concurrent.futures
import datetime
import email.utils
import json
import time

import pytest
from fences import NO_LIMITS, begin_body
from once_gateway import DUPLICATES_FREE
from once_server import until
from shop import refund
from test_commands import confirm, submit

STEP_S = 0.15  # between two moments: far more than two clocks differ


def ms_of(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000


@pytest.fixture
def free(make_server):
    return make_server(config=NO_LIMITS)


class Life:
    """One operation, with the moment (in ms) of each call."""

    def __init__(self, server, key, **begin):
        self.server, self.key, self.begin_more, self.at = server, key, begin, {}
        self.id = self.fence = None

    def begin(self, name="begin", **more):
        body = begin_body(self.key, {}, **{**self.begin_more, **more})
        document = self.call(name, "/v1/fences", body)
        if document.get("decision") == "first_seen":
            self.id, self.fence = document["operation_id"], document["fence"]
        return document

    def hold(self, what, name=None, **more):
        body = {"fence": self.fence, **more}
        return self.call(name or what, f"/v1/fences/{self.id}/{what}", body)

    def call(self, name, path, body):
        time.sleep(STEP_S)
        before = time.time() * 1000
        status, _, document = self.server.request("POST", path, body)
        assert status < 300 or status == 409, document
        self.at[name] = (before, time.time() * 1000)
        return document

    def wait_granted(self, name):
        answers = []
        until(lambda: answers.append(self.begin(name)) or answers[-1]["decision"] == "first_seen",
            "its window never ends")
        return answers[-1]

    def shown(self):
        return self.server.request("GET", f"/v1/operations/{self.id}")[2]

    def is_at(self, text, name, plus_ms=0):
        """Whether a time in a document is that of the named call."""
        before, after = self.at[name]
        assert before - 20 <= ms_of(text) - plus_ms <= after + 20, (text, name, plus_ms, self.at)


def test_each_time_of_a_document_is_that_of_its_own_call(free):
    life = Life(free, "k", lease="5s", ttl="100s")
    life.is_at(life.begin()["lease_expires_at"], "begin", 5000)
    life.is_at(life.hold("renew", lease="7s")["lease_expires_at"], "renew", 7000)
    shown = life.shown()
    life.is_at(shown["created_at"], "begin")
    life.is_at(shown["updated_at"], "renew")
    life.is_at(shown["lease_expires_at"], "renew", 7000)
    assert shown.get("sealed_at") is None and shown.get("window_expires_at") is None
    life.begin("early duplicate")
    sealed = life.hold("seal", status="executed", ttl="40s")
    life.is_at(sealed["sealed_at"], "seal")
    life.is_at(sealed["window_expires_at"], "seal", 40000)
    replay = life.begin("late duplicate")
    life.is_at(replay["first_seen_at"], "begin")
    life.is_at(replay["sealed_at"], "seal")
    life.is_at(replay["window_expires_at"], "seal", 40000)
    shown = life.shown()
    life.is_at(shown["created_at"], "begin")
    life.is_at(shown["updated_at"], "seal")
    life.is_at(shown["sealed_at"], "seal")
    life.is_at(shown["window_expires_at"], "seal", 40000)
    assert shown.get("lease_expires_at") is None and shown["duplicates"] == 2


def test_the_window_of_the_begin_counts_from_the_seal_where_the_seal_has_none(free):
    life = Life(free, "k", lease="9s", ttl="60s")
    life.begin()
    life.is_at(life.hold("seal", status="failed")["window_expires_at"], "seal", 60000)


def test_a_second_attempt_has_a_lease_and_a_seal_of_its_own(free):
    life = Life(free, "k", lease="5s", ttl="50s")
    first = life.begin("first")
    life.hold("release")
    second = life.begin("second", lease="8s")
    assert (second["attempt"], second["operation_id"]) == (2, first["operation_id"])
    life.is_at(second["lease_expires_at"], "second", 8000)
    shown = life.shown()
    life.is_at(shown["created_at"], "first")
    life.is_at(shown["updated_at"], "second")
    life.hold("seal", status="executed")
    replay = life.begin("duplicate")
    life.is_at(replay["first_seen_at"], "first")
    life.is_at(replay["sealed_at"], "seal")
    life.is_at(replay["window_expires_at"], "seal", 50000)


def test_what_is_resolved_is_sealed_then_and_not_when_it_became_unknown(free):
    life = Life(free, "k", lease="5s", ttl="30s")
    life.begin()
    life.hold("unknown", reason="lost")
    shown = life.shown()
    life.is_at(shown["updated_at"], "unknown")
    assert shown.get("window_expires_at") is None  # P8: what is unknown does not expire
    life.call("resolve", f"/v1/operations/{life.id}/resolve",
        {"status": "executed", "reason": "looked", "outcome": {"n": 1}})
    replay = life.begin("duplicate")
    life.is_at(replay["sealed_at"], "resolve")
    life.is_at(replay["window_expires_at"], "resolve", 30000)
    life.is_at(replay["first_seen_at"], "begin")


def test_a_window_shorter_than_the_work_still_lasts_from_the_seal(free):
    life = Life(free, "k", lease="60s", ttl="3s")
    first = life.begin()
    time.sleep(3.1)  # the work takes longer than the window
    life.hold("seal", status="executed")
    assert life.begin("within")["decision"] == "duplicate_replayed"
    again = life.wait_granted("after")
    assert again["operation_id"] != first["operation_id"]
    assert again["fence"] > first["fence"] and again["attempt"] == 1


def test_a_renewed_lease_ends_when_the_renewal_says_and_not_before(free):
    life = Life(free, "k", lease="2s", ttl="30s")
    life.begin()
    life.hold("renew", lease="5s")
    time.sleep(2.2)
    assert life.begin("alive")["decision"] == "in_progress"
    until(lambda: life.shown()["status"] == "unknown", "its lease never ends")
    assert time.time() * 1000 >= life.at["renew"][0] + 5000


def test_a_slow_call_through_the_gateway_is_kept_from_its_answer_on(origin, make_gateway):
    gateway = make_gateway(limits=DUPLICATES_FREE, routes=[{"match": "POST /**", "window": "4s",
        "lease": "40s", "timeout": {"first_byte": "20s", "total": "30s"}}])
    began = time.time() * 1000
    assert gateway.post("k", do="before_ms=2500").status == 200
    ended = time.time() * 1000
    sealed_by = time.monotonic()
    shown = gateway.shown("k")
    created_at, sealed_at = ms_of(shown["created_at"]), ms_of(shown["sealed_at"])
    assert began - 20 <= created_at <= sealed_at - 2500 + 20 and sealed_at <= ended + 20
    assert ms_of(shown["window_expires_at"]) - sealed_at == 4000
    time.sleep(max(0, sealed_by + 1.7 - time.monotonic()))  # past one that counts from the begin
    replay = gateway.post("k")
    assert replay.is_replay
    dated = email.utils.parsedate_to_datetime(replay.fields["Last-Modified"]).timestamp()
    assert dated == ms_of(shown["sealed_at"]) // 1000  # which is a second or more after it began
    until(lambda: gateway.post("k").decision == "first_seen", "its window never ends")
    assert origin.effects["k"] == 2


def test_a_call_that_outlasts_the_lease_of_its_route_is_not_taken_over(origin, make_gateway):
    """A lease that is shorter than a call may take is as long as the call: otherwise a slow one
    would be unknown while it runs, and a takeover a second effect (P1)."""
    gateway = make_gateway(limits=DUPLICATES_FREE, routes=[{"match": "POST /**", "lease": "1s",
        "on_unknown": "takeover", "wait": "8s", "timeout": {"first_byte": "20s", "total": "30s"}}])
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first = pool.submit(gateway.post, "k", do="before_ms=3300")
        origin.wait_for("k")
        time.sleep(2.4)  # leases are swept once a second
        second = gateway.post("k")
        assert (first.result().status, second.is_replay) == (200, True)
    assert origin.effects["k"] == 1


def test_a_second_attempt_through_the_gateway_is_the_one_that_counts(origin, make_gateway):
    gateway = make_gateway(limits=DUPLICATES_FREE, routes=[{"match": "POST /**", "window": "3s"}])
    assert gateway.post("k", do="status=503&effect=0").status == 503
    time.sleep(0.7)
    second = gateway.post("k", do="after_ms=400")
    assert (second.status, second.decision) == (200, "first_seen")
    shown = gateway.shown("k")
    assert shown["attempt"] == 2 and shown["status"] == "executed"
    lasted_ms = ms_of(shown["sealed_at"]) - ms_of(shown["created_at"])
    assert lasted_ms > 1000
    assert ms_of(shown["window_expires_at"]) - ms_of(shown["sealed_at"]) == 3000
    assert json.loads(gateway.post("k").body) == json.loads(second.body)


def test_a_confirmation_expires_for_a_new_submission_at_its_time(make_server, shop):
    """Whether or not the janitor, which looks about once a second, has noted it."""
    server = make_server(config=shop.config(confirm_ttl="1s"))
    for number in range(4):
        _, _, asked = submit(server, refund(order_id=str(number)))
        time.sleep(1.05)
        status, _, fresh = submit(server, refund(order_id=str(number)))
        assert (status, fresh["decision"]) == (202, "first_seen")
        assert fresh["confirmation"]["token"] != asked["confirmation"]["token"]
        assert confirm(server, asked["command_id"], asked["confirmation"]["token"])[0] == 403
        assert confirm(server, fresh["command_id"], fresh["confirmation"]["token"])[0] == 201
        time.sleep(number * 0.2)  # at different moments of the janitor's second
    assert list(shop.calls.values()) == [1] * 4
