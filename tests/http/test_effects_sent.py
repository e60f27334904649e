"""Effects on their way out (docs/effects.md), against a provider that counts: exactly one effect
where the provider can do its part, never two, and the rest uncertain and visible.

past 800 lines because every way in which an attempt can end is in this file."""
import hashlib
import json
import signal
import socket
import threading
import time

import pytest

import stores
from effects_help import (ACKNOWLEDGED, ASKED, DEAD, FAILED, KEYED, Effects, config_of, key_file,
    kill)
from once_server import until
from test_openapi import check


@pytest.fixture
def make(make_server, make_provider):
    """make("line of the connector", …, keeps=True) -> (effects, provider)"""
    def make_both(*connector, keeps=None, effect=(), more="", **how):
        keeps = KEYED in connector if keeps is None else keeps
        provider = make_provider(keeps=keeps, **how)
        server = make_server(config=config_of(provider, *connector, effect=effect, more=more))
        return Effects(server), provider
    return make_both


# --- What an answer means ---

@pytest.mark.parametrize("ending,becomes,requests", [
    ("ok", ACKNOWLEDGED, 1), ("503", ACKNOWLEDGED, 2), ("429", ACKNOWLEDGED, 2),
    ("408", ACKNOWLEDGED, 2), ("425", ACKNOWLEDGED, 2), ("402", FAILED, 1), ("409", FAILED, 1)])
def test_an_answer_that_says_what_happened_is_believed(make, ending, becomes, requests):
    effects, provider = make()
    provider.script("k", ending)
    effect_id = effects.put("k")
    document = effects.settled(effect_id, becomes)
    assert len(provider.requests) == requests
    assert provider.effects == ({"k": 1} if becomes == ACKNOWLEDGED else {})
    assert document["attempt"] == requests
    if becomes == ACKNOWLEDGED:
        assert document["acknowledgement"]["provider_ref"] == "ch_k"


@pytest.mark.parametrize("ending", ["500", "502", "302", "lost", "lost_before"])
def test_without_key_and_lookup_what_is_uncertain_is_held(make, ending):
    effects, provider = make()
    provider.script("k", ending)
    effect_id = effects.put("k")
    effects.uncertain(effect_id)
    time.sleep(1.5)  # two looks of the janitor: it is not sent again by itself (S3)
    assert len(provider.requests) == 1
    assert effects.show(effect_id)["uncertain"]
    effects.put("k")  # a duplicate does not send it either
    assert len(provider.requests) == 1


@pytest.mark.parametrize("ending", ["500", "502", "302", "lost", "lost_before"])
def test_with_a_key_the_same_request_is_sent_again(make, ending):
    effects, provider = make(KEYED)
    provider.script("k", ending, "503", ending)
    effects.settled(effects.put("k"), ACKNOWLEDGED)
    assert provider.effects == {"k": 1}
    first, *others = provider.requests
    assert len(others) == 3 and first["headers"]["Idempotency-Key"] == "k"
    for one in others:  # S1: the same but for what names the attempt
        assert one["body"] == first["body"] and one["path"] == first["path"]
        assert {**one["headers"], "Request-Id": ""} == {**first["headers"], "Request-Id": ""}


def test_past_keeps_nothing_is_sent_again(make_server, make_provider):
    provider = make_provider(keeps=True, slow_s=1.5)
    config = config_of(provider, "idempotency: {header: Idempotency-Key, keeps: 2500ms}")
    effects = Effects(make_server(config=config.replace("5s, total: 6s", "1s, total: 2s")))
    provider.script("k", "slow")
    effect_id = effects.put("k")
    effects.uncertain(effect_id)  # a call may take 2 s: a second one could arrive too late
    time.sleep(1)
    assert len(provider.requests) == 1


def between_attempts(effects, provider):
    """Until it is pending after an attempt that may have worked, and its process is gone."""
    provider.script("k", "lost", *["503"] * 9)
    provider.retry_after = "2"
    one, began = effects.put("k"), time.monotonic()
    until(lambda: effects.show(one)["attempt"] >= 2 and effects.show(one)["status"] == "pending",
        "not sent again")
    kill(effects.server)
    return one, began


def test_what_waited_until_past_keeps_is_not_sent_again(make_server, make_provider):
    """It was allowed when it was decided. Its turn came later, when the key was forgotten (NX8)."""
    provider = make_provider(keeps=False)
    config = config_of(provider, "idempotency: {header: Idempotency-Key, keeps: 6s}")
    effects = Effects(make_server(config=config.replace("5s, total: 6s", "1s, total: 2s")))
    one, began = between_attempts(effects, provider)
    provider.scripts.clear()  # from now on everything works
    time.sleep(max(0, began + 4.5 - time.monotonic()))
    sent = len(provider.requests)
    effects.server.start()
    effects.uncertain(one, attempt=2)
    time.sleep(1)
    assert len(provider.requests) == sent
    assert provider.effects == {"k": 1}


def test_what_may_have_happened_and_cannot_be_sent_is_no_dead_letter(make, tmp_path):
    effects, provider = make(KEYED)
    one, _ = between_attempts(effects, provider)
    server, other = effects.server, tmp_path / "other.key"
    other.write_text("ffeeddccbbaa99887766554433221100" * 2 + "\n")
    other.chmod(0o600)
    path = server.directory / "once.yaml"
    config = path.read_text()
    path.write_text(config.replace(str(key_file()), str(other)))  # its payload cannot be read
    server.start()
    until(lambda: any(f'"request":"{what}"' in server.stderr() for what in ("unknown", "give_up")),
        "not claimed")
    server.stop()
    path.write_text(config)
    server.start()
    effects.uncertain(one, attempt=3)
    assert provider.effects == {"k": 1}


@pytest.mark.parametrize("ending", ["402", "401"])
def test_a_refusal_after_uncertainty_does_not_say_that_nothing_happened(make, ending):
    effects, provider = make(KEYED)
    provider.script("k", "lost", ending)
    effects.uncertain(effects.put("k"), attempt=2)
    assert provider.effects == {"k": 1}


def test_what_may_have_happened_is_not_cancelled(make):
    """Between two attempts with the same key: it is pending, and the first one may have worked."""
    effects, provider = make(KEYED)
    provider.script("k", "lost", "503")
    provider.retry_after = "600"
    one = effects.put("k")
    until(lambda: effects.show(one)["attempt"] == 2 and effects.show(one)["status"] == "pending",
        "not sent again")
    status, _, answer = effects.server.request("POST", f"/v1/effects/{one}/cancel", {})
    assert (status, answer["code"], answer["effect"]) == (409, "outcome_unknown", "unknown"), answer
    assert effects.show(one)["status"] == "pending"
    assert provider.effects == {"k": 1}


def test_attempts_used_up_is_a_dead_letter_only_when_nothing_can_have_happened(make):
    effects, provider = make(KEYED)
    provider.script("dead", *["503"] * 10)
    provider.script("open", "lost", *["503"] * 10)
    dead, open_one = effects.put("dead"), effects.put("open")
    assert effects.settled(dead, DEAD)["attempt"] == 4
    assert effects.uncertain(open_one, attempt=4)["attempt"] == 4
    assert provider.effects == {"open": 1}
    assert len(provider.of("dead")) == len(provider.of("open")) == 4


def test_retry_after_is_a_lower_bound(make):
    effects, provider = make()
    provider.retry_after = "2"
    provider.script("k", "429")
    effects.settled(effects.put("k"), ACKNOWLEDGED)
    first, second = provider.requests
    assert second["at"] - first["at"] >= 2


def test_retry_after_is_a_lower_bound_also_when_the_key_is_not_kept_that_long(make_server,
                                                                               make_provider):
    """The pause ends after `keeps`, so it is not sent again at all: neither then nor earlier."""
    provider = make_provider()
    config = config_of(provider, KEYED.replace("24h", "6s"))
    effects = Effects(make_server(config=config.replace("5s, total: 6s", "1s, total: 2s")))
    provider.retry_after = "5"
    provider.script("k", "lost", "503")  # four seconds remain for the second attempt
    effects.uncertain(one := effects.put("k"), attempt=2)
    time.sleep(6)
    assert len(provider.of("k")) == 2 and effects.show(one)["uncertain"]
    assert provider.effects == {"k": 1}


# --- A lookup ---

def test_a_lookup_settles_what_happened(make):
    effects, provider = make(ASKED)
    provider.script("k", "lost")
    document = effects.settled(effects.put("k"), ACKNOWLEDGED)
    assert document["acknowledgement"]["provider_ref"] == "ch_k"
    assert provider.effects == {"k": 1} and len(provider.requests) == 1


@pytest.mark.parametrize("key", ["k" * 50, "k ", " k"])
def test_the_provider_is_asked_by_the_key_that_it_got(make_server, make_provider, key):
    """A long key is sent as its digest, and so is one that ends with a blank."""
    provider = make_provider(keeps=True)
    config = config_of(provider, "idempotency: {header: Idempotency-Key, bytes_max: 43}", ASKED)
    effects = Effects(make_server(config=config.replace("attempts: 4", "attempts: 1")))
    provider.always = "lost"
    effects.settled(effects.put(key), ACKNOWLEDGED)  # it happened, and is no dead letter (P5)
    assert list(provider.effects.values()) == [1] and len(provider.requests) == 1


def test_what_did_not_happen_is_sent_again_after_quiet(make):
    effects, provider = make(ASKED)
    provider.script("k", "lost_before")
    effects.settled(effects.put("k"), ACKNOWLEDGED)
    first, second = provider.requests
    assert provider.effects == {"k": 1}
    assert second["at"] - first["at"] >= 1  # quiet


def test_a_lookup_that_does_not_know_yet_is_not_believed_before_quiet(make):
    effects, provider = make(ASKED.replace("1s", "3s"))
    provider.hides = True
    provider.script("k", "lost")
    effect_id = effects.put("k")
    until(lambda: provider.questions > 0, "nobody asked")
    assert effects.show(effect_id)["uncertain"]
    provider.hides = False
    effects.settled(effect_id, ACKNOWLEDGED)
    assert provider.effects == {"k": 1} and len(provider.requests) == 1


SEARCHED = 'lookup: {get: "/search/{idempotency_key}", found: /data/0/id, quiet: 1s}'


def test_a_search_settles_what_it_found(make):
    effects, provider = make(SEARCHED)
    provider.script("k", "lost")
    document = effects.settled(effects.put("k"), ACKNOWLEDGED)
    assert document["acknowledgement"]["provider_ref"] == "ch_k"
    assert provider.effects == {"k": 1} and len(provider.requests) == 1


def test_a_search_that_found_nothing_is_believed_after_quiet(make):
    effects, provider = make(SEARCHED)
    provider.script("k", "lost_before")
    effects.settled(effects.put("k"), ACKNOWLEDGED)
    first, second = provider.requests
    assert provider.effects == {"k": 1} and second["at"] - first["at"] >= 1


def test_a_search_that_answers_something_else_says_nothing(make):
    effects, provider = make(SEARCHED)
    provider.answers = {"error": "down for maintenance"}
    provider.script("k", "lost")
    effect_id = effects.put("k")
    until(lambda: provider.questions > 2, "nobody asked again")  # the second pause is past quiet
    assert effects.show(effect_id)["uncertain"] and len(provider.requests) == 1
    provider.answers = None
    effects.settled(effect_id, ACKNOWLEDGED)
    assert provider.effects == {"k": 1}


# --- Secrets, tenants, addresses ---

def test_a_credential_is_read_again_on_reload(make_server, make_provider, tmp_path):
    provider = make_provider()
    secret = tmp_path / "secret"
    secret.write_text("first\n")
    server = make_server(config=config_of(provider, KEYED, f"auth: {{bearer_file: {secret}}}"))
    effects = Effects(server)
    effects.settled(effects.put("a"), ACKNOWLEDGED)
    secret.write_text("second\n")
    server.process.send_signal(signal.SIGHUP)
    until(lambda: "reloaded" in server.stderr_path.read_text(), "it was not reloaded")
    effects.settled(effects.put("b"), ACKNOWLEDGED)
    seen = [request["headers"]["Authorization"] for request in provider.requests]
    assert seen == ["Bearer first", "Bearer second"]


def test_a_name_must_not_lead_inside(make_server, make_provider):
    try:
        socket.getaddrinfo(socket.gethostname(), 80)
    except OSError:
        pytest.skip("the name of this machine has no address")
    provider = make_provider(host="0.0.0.0")
    name = provider.url.replace("127.0.0.1", socket.gethostname())
    config = config_of(provider).replace(provider.url, name)
    effects = Effects(make_server(config=config))
    effect_id = effects.put("k")
    until(lambda: effects.show(effect_id)["attempt"] >= 2, "it was not tried")
    assert provider.requests == []
    allowed = Effects(make_server(config=config.replace("    timeout:",
        "    allow_internal: true\n    timeout:")))
    allowed.settled(allowed.put("k2"), ACKNOWLEDGED)


# --- Envelopes ---

def envelope_config(provider):
    return config_of(provider, KEYED, "protocol: envelope").replace(
        'request: {path: "/v1/charges/{target.order_id}", headers: '
        '{X-Key: "{idempotency_key}"}}\n    provider_ref: /id\n', "request: {path: /effects}\n")


@pytest.mark.parametrize("status,retryable,becomes", [
    ("acknowledged", False, ACKNOWLEDGED), ("rejected", False, FAILED), ("failed", False, FAILED)])
def test_a_service_answers_with_an_acknowledgement(make_server, make_provider, status, retryable,
                                                   becomes):
    provider = make_provider()
    provider.acknowledges = lambda envelope: {"effect_id": envelope["effect_id"],
        "status": status, "provider_ref": "ref-1", "retryable": retryable}
    effects = Effects(make_server(config=envelope_config(provider)))
    effect_id = effects.put("k", x_note=7, policy_refs=["p1"])
    document = effects.settled(effect_id, becomes)
    assert document["acknowledgement"]["status"] == status
    envelope = json.loads(provider.requests[0]["body"])
    assert envelope["effect_id"] == effect_id and envelope["attempt"] == 1
    assert envelope["payload"] == {"amount": 5} and envelope["x_note"] == 7


def test_an_answer_that_is_no_acknowledgement_is_uncertain(make_server, make_provider):
    provider = make_provider()
    provider.acknowledges = lambda envelope: {"ok": True}
    effects = Effects(make_server(config=envelope_config(provider).replace(KEYED, "")))
    effects.uncertain(effects.put("k"))


def test_a_pending_acknowledgement_is_waited_for(make_server, make_provider):
    provider = make_provider()
    provider.acknowledges = lambda envelope: {"effect_id": envelope["effect_id"],
        "status": "pending"}
    effects = Effects(make_server(config=envelope_config(provider)))
    effect_id = effects.put("k")
    until(lambda: effects.show(effect_id).get("acknowledgement", {}).get("status") == "pending",
        "it is not known to be pending")
    time.sleep(0.7)
    document = effects.show(effect_id)
    assert document["status"] == "dispatched" and not document.get("uncertain")
    assert document["acknowledgement"]["timestamp"] > "2026" and len(provider.requests) == 1
    assert len(json.loads(provider.requests[0]["body"])["ack_token"]) == 43


# --- Acknowledgements that come later ---

class Later:
    """A connector service that answers "pending", and acknowledges when the test says so."""

    def __init__(self, make_server, provider, config=None):
        self.provider = provider
        provider.acknowledges = lambda envelope: {"effect_id": envelope["effect_id"],
            "status": "pending"}
        self.effects = Effects(make_server(config=config or envelope_config(provider)))

    def envelope(self, number=0):
        until(lambda: len(self.provider.requests) > number, f"request {number} did not come")
        return json.loads(self.provider.requests[number]["body"])

    def pending(self, effect_id, attempt=1):
        def is_pending():
            document = self.effects.show(effect_id)
            return document["attempt"] == attempt and document.get("acknowledgement", {}).get(
                "status") == "pending"
        until(is_pending, f"attempt {attempt} is not pending")
        return self.envelope(attempt - 1)

    def ack(self, envelope, status="acknowledged", path=None, **more):
        body = {"ack_token": envelope["ack_token"], "status": status, **more}
        status, fields, answer = self.effects.server.request("POST", path or envelope["ack_url"],
            body)
        return status, fields, answer


@pytest.mark.parametrize("status,becomes", [("acknowledged", ACKNOWLEDGED), ("rejected", FAILED),
    ("failed", FAILED)])
def test_a_later_acknowledgement_settles_its_effect_once(make_server, make_provider, status,
                                                         becomes):
    later = Later(make_server, make_provider())
    effect_id = later.effects.put("k")
    envelope = later.pending(effect_id)
    assert envelope["ack_url"] == f"/v1/effects/{effect_id}/ack"
    said = {"effect_id": effect_id, "provider_ref": "ref-9"}
    code, _, first = later.ack(envelope, status, **said)
    assert (code, first["status"]) == (200, becomes), first
    said_back = first["acknowledgement"]
    assert (said_back["status"], said_back["provider_ref"]) == (status, "ref-9")
    code, _, again = later.ack(envelope, status, **said)
    assert (code, again) == (200, first)
    code, _, answer = later.ack(envelope, "rejected" if status == "failed" else "failed", **said)
    assert (code, answer["code"]) == (409, "already_sealed")
    for other in ({"provider_ref": "ref-10"}, {**said, "retryable": True}):
        code, _, answer = later.ack(envelope, status, **other)
        assert (code, answer["code"]) == (409, "already_sealed")
    assert later.effects.show(effect_id) == first
    assert len(later.provider.requests) == 1


def test_a_wrong_token_and_no_such_effect_are_one_answer(make_server, make_provider):
    later = Later(make_server, make_provider())
    effect_id = later.effects.put("k")
    envelope = later.pending(effect_id)
    other = effect_id[:-4] + ("0000" if effect_id[-4:] != "0000" else "1111")
    answers = [later.ack({**envelope, "ack_token": "x" * 43}),
        later.ack({**envelope, "ack_token": "x"}),
        later.ack(envelope, path=f"/v1/effects/{other}/ack"),
        later.ack(envelope, path="/v1/effects/nothing/ack")]
    for status, _, answer in answers:
        answer.pop("request_id", None)
        answer.pop("instance", None)
        assert (status, answer) == (404, answers[0][2])
    assert later.effects.show(effect_id)["acknowledgement"]["status"] == "pending"
    for wrong in ({"status": "pending"}, {"status": "ok"}, {"provider_ref": "a\nb"},
                  {"retryable": "yes"}, {"unknown": 1}, {"effect_id": "eff-other"}):
        status, _, answer = later.ack(envelope, **{"status": "acknowledged", **wrong})
        assert status == 422, (wrong, answer)
    status, _, answer = later.effects.server.request("POST", envelope["ack_url"],
        {"status": "acknowledged"})
    assert (status, answer["code"]) == (422, "missing_member")
    assert later.ack(envelope)[0] == 200


def test_a_later_acknowledgement_needs_its_own_token_and_no_other(make_server, make_provider):
    digest = hashlib.sha256(b"secret").hexdigest()
    provider = make_provider()
    later = Later(make_server, provider, envelope_config(provider) + f"""
auth:
  tokens:
    - {{sha256: {digest}, tenant: acme, rights: [execute, operate], name: app}}
""")
    server = later.effects.server
    app = {"Authorization": "Bearer secret"}
    status, _, answer = server.request("POST", "/v1/effects", {"effect_type": "payment.capture",
        "idempotency_key": "k", "payload": {}}, headers=app)
    assert status == 202, answer
    envelope, path = later.envelope(), "/v1/effects/" + answer["effect_id"]
    until(lambda: "acknowledgement" in server.request("GET", path, headers=app)[2], "not pending")
    status, _, answer = server.request("POST", path + "/ack", {"ack_token": "secret",
        "status": "acknowledged"}, headers=app)
    assert status == 404, answer
    status, _, answer = later.ack(envelope, provider_ref="r")
    assert (status, answer["status"], answer["tenant"]) == (200, ACKNOWLEDGED, "acme")


def test_an_acknowledgement_of_another_attempt_is_refused(make_server, make_provider):
    later = Later(make_server, make_provider())
    effect_id = later.effects.put("k")
    first = later.pending(effect_id)
    for _ in range(2):  # the same again changes nothing
        status, _, answer = later.ack(first, "failed", retryable=True)
        assert status == 200, answer
    second = later.pending(effect_id, attempt=2)
    assert second["attempt"] == 2 and second["ack_token"] != first["ack_token"]
    for said in ("acknowledged", "rejected"):
        status, _, answer = later.ack(first, said)
        assert (status, answer["code"]) == (409, "stale_attempt")
    assert later.effects.show(effect_id)["acknowledgement"]["status"] == "pending"
    status, _, answer = later.ack(second, provider_ref="ref-2")
    assert (status, answer["status"]) == (200, ACKNOWLEDGED)
    assert len(later.provider.requests) == 2


def test_an_acknowledgement_that_overtakes_the_answer_is_sent_again(make_server, make_provider):
    later = Later(make_server, make_provider())
    early = []

    def acknowledges(envelope):
        early.append(later.ack(envelope, provider_ref="ref-1"))
        return {"effect_id": envelope["effect_id"], "status": "pending"}

    later.provider.acknowledges = acknowledges
    effect_id = later.effects.put("k")
    envelope = later.pending(effect_id)
    status, fields, answer = early[0]
    assert (status, answer["code"], answer["retry"]) == (409, "still_running", "after")
    assert {name.lower(): value for name, value in fields.items()}["retry-after"] == "1"
    status, _, answer = later.ack(envelope, provider_ref="ref-1")
    assert (status, answer["status"]) == (200, ACKNOWLEDGED)


@pytest.mark.parametrize("how", ["lost", "killed"])
def test_a_later_acknowledgement_settles_what_is_uncertain(make_server, make_provider, how):
    provider = make_provider()
    later = Later(make_server, provider, envelope_config(provider).replace(KEYED, ""))
    if how == "lost":
        provider.script("k", "lost")
    effect_id = later.effects.put("k")
    if how == "killed":
        later.pending(effect_id)
        kill(later.effects.server)
        later.effects.server.start()
    if how == "lost" or not stores.SHARED:  # those see a process that is gone only later
        later.effects.uncertain(effect_id)
    status, _, answer = later.ack(later.envelope(), provider_ref="ref-1")
    assert (status, answer["status"], answer["uncertain"]) == (200, ACKNOWLEDGED, False)
    assert len(provider.requests) == 1


def test_a_later_acknowledgement_finds_its_token_however_much_is_kept(make_server, make_provider):
    later = Later(make_server, make_provider())
    for size in range(2500, 3400, 100):  # with the redacted payload: near detail_bytes_max
        later.effects.put(f"k{size}", x_note="n" * size, payload={"text": "t" * 600})
    for number in range(9):
        envelope = later.envelope(number)
        until(lambda: later.ack(envelope, provider_ref="r")[0] == 200, "it is not taken")
        assert later.effects.show(envelope["effect_id"])["acknowledgement"]["provider_ref"] == "r"


def test_a_later_acknowledgement_of_a_compensation_settles_its_original(make_server,
                                                                        make_provider):
    provider = make_provider()
    config = envelope_config(provider).replace("    retry:", "    compensate: {effect: "
        "payment.refund, payload: {charge: \"{provider_ref}\"}}\n    retry:") + """
  payment.refund:
    connector: pay
    request: {path: /effects}
"""
    later = Later(make_server, provider, config)
    effect_id = later.effects.put("k")
    assert later.ack(later.pending(effect_id), provider_ref="ref-1")[0] == 200
    status, _, answer = later.effects.server.request("POST",
        f"/v1/effects/{effect_id}/compensate", {"reason": "not wanted"})
    assert status in (200, 202), answer
    refund = later.envelope(1)
    assert refund["payload"] == {"charge": "ref-1"}
    until(lambda: later.effects.show(refund["effect_id"]).get("acknowledgement"), "not pending")
    assert later.ack(refund, provider_ref="ref-2")[0] == 200
    assert later.effects.show(effect_id)["status"] == "compensated"  # in the same commit


# --- Many, in turn, in order ---

def test_forty_duplicates_at_once_are_one_effect(make):
    effects, provider = make()
    ids, threads = [], []
    for _ in range(40):
        threads.append(threading.Thread(target=lambda: ids.append(effects.put("k"))))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert len(ids) == 40 and len(set(ids)) == 1
    effects.settled(ids[0], ACKNOWLEDGED)
    assert provider.effects == {"k": 1} and len(provider.requests) == 1


def test_effects_with_the_same_order_go_one_after_another(make):
    effects, provider = make(KEYED, effect=('order: "{target.order_id}"',))
    provider.always = "slow"
    provider.slow_s = 2  # the first of each lane is under way until all are there
    for number in range(5):
        effects.put(f"a{number}", target={"order_id": "A"})
    for number in range(5):
        effects.put(f"b{number}", target={"order_id": "B"})
    provider.slow_s = 0.05
    until(lambda: len(provider.effects) == 10, "they did not all happen")
    for lane in "ab":
        assert [key for key in provider.effects if key[0] == lane] == [
            f"{lane}{number}" for number in range(5)]
    assert provider.at_once_max == 2  # one of each lane


def test_concurrency_is_a_limit(make):
    effects, provider = make(KEYED, "concurrency: 3")
    provider.always = "slow"
    provider.slow_s = 0.3  # on a busy machine as well, more than three are put in this time
    for number in range(12):
        effects.put(f"k{number}")
    # No more are claimed than may be sent: one that only waits for a connection has a lease.
    page = effects.server.request("GET", "/v1/effects?status=dispatched&limit=100")[2]
    assert 0 < len(page["effects"]) <= 3
    until(lambda: len(provider.effects) == 12, "they did not all happen")
    assert provider.at_once_max <= 3


def test_concurrency_is_a_limit_of_all_loops_together(make):
    """Each connection may be on a different loop, and each loop sends what came in on it."""
    effects, provider = make(KEYED, "concurrency: 3", more="loops: 4")
    provider.always = "slow"
    provider.slow_s = 0.01

    def put_some(worker):
        for number in range(10):
            effects.put(f"k{worker}-{number}")
    threads = [threading.Thread(target=put_some, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: len(provider.effects) == 80, "they did not all happen")
    assert set(provider.effects.values()) == {1} and len(provider.requests) == 80
    assert provider.at_once_max <= 3


def test_a_connector_that_kept_its_name_takes_up_its_new_limits(make_server, make_provider):
    provider = make_provider(slow_s=1.0)
    provider.always = "slow"
    server = make_server(config=config_of(provider, KEYED, "concurrency: 1"))
    effects = Effects(server)
    put = 0
    for limit in (1, 3, 1):
        if put > 0:
            text = config_of(provider, KEYED, f"concurrency: {limit}")
            (server.directory / "once.yaml").write_text(stores.with_key(text))
            before = server.stderr().count('"event":"reloaded"')
            server.signal(signal.SIGHUP)
            until(lambda: server.stderr().count('"event":"reloaded"') > before, "not reloaded")
        provider.at_once_max = 0
        for _ in range(4):
            effects.put(f"k{put}")
            put += 1
        until(lambda: len(provider.effects) == put and provider.at_once == 0, "not all happened")
        assert provider.at_once_max == limit


def test_not_before_is_kept(make):
    effects, provider = make()
    begun, at = time.monotonic(), time.time() + 2
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at * 1000) % 1000:03}Z"
    effect_id = effects.put("k", not_before=stamp)
    effects.settled(effect_id, ACKNOWLEDGED)
    assert provider.requests[0]["at"] - begun >= 1.9


def test_a_provider_that_was_down_is_not_overrun(make):
    effects, provider = make(KEYED, "breaker: {failures: 3, pause: 1s}", "concurrency: 1")
    provider.always = "503"
    ids = [effects.put(f"k{number}") for number in range(12)]
    until(lambda: len(provider.requests) >= 3, "nothing was sent")
    third = provider.requests[2]["at"]  # it is answered after this, and then the pause begins
    until(lambda: time.monotonic() > third + 1, "")
    early = [one for one in provider.requests[3:] if one["at"] < third + 1]
    assert len(early) <= 1  # one that was under way
    provider.always = None
    for effect_id in ids:
        effects.settled(effect_id, ACKNOWLEDGED)
    assert set(provider.effects.values()) == {1} and len(provider.effects) == 12


def test_an_open_breaker_is_shown_and_closes_by_itself(make):
    effects, provider = make(KEYED, "breaker: {failures: 2, pause: 500ms}")
    provider.always = "503"
    effect_id = effects.put("k")
    until(lambda: targets(effects)[0]["breaker"] == "open", "it stays closed")
    listed = effects.server.cli("ls", "targets", *effects.server.reached).stdout.split()
    assert listed[:2] == ["effects", "pay"] and listed[2] in ("open", "half_open")
    provider.always = None
    effects.settled(effect_id, ACKNOWLEDGED)
    until(lambda: targets(effects)[0]["breaker"] == "closed", "it stays open")


def targets(effects):
    answer = effects.server.request("GET", "/v1/targets")
    status, _, document = check("listTargets", answer)
    assert status == 200 and len(document["targets"]) == 1
    assert (document["targets"][0]["kind"], document["targets"][0]["target"]) == ("effects", "pay")
    return document["targets"]


# --- Compensation ---

REFUND = {"more": """
  payment.refund:
    connector: pay
    request: {path: "/v1/refunds", headers: {X-Key: "{idempotency_key}"}}
    retry: {attempts: 2, backoff: 50ms, backoff_max: 100ms}
""", "effect": ('compensate: {effect: payment.refund, payload: {charge: "{provider_ref}", '
                'amount: "{payload.amount}"}}',)}


def compensate(effects, provider, ending=None):
    """Capture, and begin to undo it; the refund ends as said. Returns the id of the capture."""
    effect_id = effects.put("k")
    effects.settled(effect_id, ACKNOWLEDGED)
    provider.always = ending
    status, _, answer = effects.server.request("POST", f"/v1/effects/{effect_id}/compensate",
        {"reason": "the customer changed their mind"})
    assert status in (200, 202), answer
    return effect_id


def failed_compensation(effects, effect_id, becomes):
    """The capture whose refund came to nothing, as an operator sees it."""
    shown = effects.uncertain(effect_id)
    assert shown["compensation"]["status"] == becomes, shown
    assert shown["reason"] == "its compensation failed"
    assert shown["acknowledgement"]["status"] == ACKNOWLEDGED
    listed = effects.server.request("GET", "/v1/effects?uncertain=true")[2]["effects"]
    assert [one["effect_id"] for one in listed] == [effect_id]
    entries = effects.server.request("GET", f"/v1/evidence?operation_id={effect_id}")[2]["entries"]
    assert entries[-1]["type"] == "compensation.failed"
    return shown["compensation"]["effect_id"]


def test_a_compensation_that_is_refused_is_seen(make):
    effects, provider = make(KEYED, **REFUND)
    effect_id = compensate(effects, provider, "402")
    failed_compensation(effects, effect_id, FAILED)
    for name in ("compensate", "retry"):
        status, _, answer = effects.server.request("POST", f"/v1/effects/{effect_id}/{name}", {})
        assert (status, answer["code"]) == (409, "outcome_unknown")
    status, _, answer = effects.server.request("POST", f"/v1/effects/{effect_id}/resolve",
        {"status": "acknowledged", "reason": "refunded by hand in the next month"})
    assert status == 200 and answer["status"] == ACKNOWLEDGED, answer
    assert len(provider.requests) == 2  # nothing was sent again
    effects.server.stop()
    checked = effects.server.cli("verify", "--redecide", "--store", effects.server.store)
    assert checked.returncode == 0, checked.stdout


def test_a_compensation_that_was_given_up_can_be_taken_up_again(make):
    effects, provider = make(KEYED, **REFUND)
    effect_id = compensate(effects, provider, "503")
    refund = failed_compensation(effects, effect_id, DEAD)
    assert len(provider.requests) == 3  # the capture, and two attempts
    provider.always = None
    assert effects.server.request("POST", f"/v1/effects/{refund}/retry", {})[0] == 200
    effects.settled(effect_id, "compensated")
    assert provider.effects == {"k": 1, f"compensates:{effect_id}": 1}


def test_a_compensation_that_nobody_waits_for_any_more_can_be_cancelled(make):
    effects, provider = make(KEYED, **REFUND)
    effect_id = compensate(effects, provider, "503")
    refund = failed_compensation(effects, effect_id, DEAD)
    status, _, answer = effects.server.request("POST", f"/v1/effects/{effect_id}/resolve",
        {"status": "acknowledged", "reason": "it stays"})
    assert status == 200, answer
    status, _, answer = effects.server.request("POST", f"/v1/effects/{refund}/cancel",
        {"reason": "it stays"})
    assert status == 200 and answer["status"] == FAILED, answer
    assert effects.show(effect_id)["status"] == ACKNOWLEDGED


def test_capture_and_refund_in_one_commit(make):
    effects, provider = make(KEYED, **REFUND)
    effect_id = compensate(effects, provider)
    effects.settled(effect_id, "compensated")
    refund = provider.requests[-1]
    assert refund["path"] == "/v1/refunds" and refund["body"] == '{"amount":5,"charge":"ch_k"}'
    assert len(provider.requests) == 2


# --- Kills ---

STEPS = ["accepted", "kill_before", "kill_after", "answered"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("shield", ["S1", "S4", "S3"])
def test_a_kill_at_each_step(make, shield, step):
    lines = {"S1": (KEYED,), "S4": (ASKED,), "S3": ()}[shield]
    effects, provider = make(*lines)
    server = effects.server
    killed = threading.Event()

    def kill_now():
        kill(server)
        killed.set()

    provider.kill = kill_now
    if step.startswith("kill"):
        provider.script("k", step)
    effect_id = effects.put("k")
    if step.startswith("kill"):
        assert killed.wait(60)
    elif step == "answered":
        until(lambda: provider.effects, "nothing happened")
        kill(server)
    else:
        kill(server)
    server.start()
    if shield != "S3":
        effects.settled(effect_id, ACKNOWLEDGED)
        assert provider.effects == {"k": 1}
        return
    until(lambda: effects.show(effect_id).get("uncertain") or
        effects.show(effect_id)["status"] == ACKNOWLEDGED, "it is neither")
    time.sleep(0.7)
    assert provider.effects.get("k", 0) <= 1  # never 2
    if effects.show(effect_id)["status"] == ACKNOWLEDGED:
        assert provider.effects == {"k": 1}


def test_a_drain_waits_for_calls_under_way(make):
    effects, provider = make()
    provider.script("k", "slow")
    effect_id = effects.put("k")
    until(lambda: provider.requests, "nothing was sent")
    effects.server.process.terminate()
    assert effects.server.process.wait(60) == 0
    effects.server.start()
    assert effects.show(effect_id)["status"] == ACKNOWLEDGED
    assert provider.effects == {"k": 1}


@pytest.mark.skipif(not stores.SHARED, reason="a journal has one process")
def test_two_processes_over_one_store(make_server, make_provider):
    provider = make_provider(keeps=False)  # it would count a second call
    config = config_of(provider)
    one = make_server(config=config)
    two = make_server(config=config, data_dir=one.data_dir)
    both = [Effects(one), Effects(two)]
    ids = [both[number % 2].put(f"k{number}") for number in range(60)]
    for effect_id in ids:
        both[0].settled(effect_id, ACKNOWLEDGED)
    assert provider.effects == {f"k{number}": 1 for number in range(60)}
    assert len(provider.requests) == 60


@pytest.mark.skipif(not stores.SHARED, reason="a journal has one process")
def test_a_process_that_is_gone_is_taken_over(make_server, make_provider):
    provider = make_provider(keeps=True)
    config = config_of(provider, KEYED)
    one = make_server(config=config)
    two = make_server(config=config, data_dir=one.data_dir)
    provider.kill = lambda: kill(one)
    provider.script("k", "kill_after")
    effect_id = Effects(one).put("k")
    until(lambda: Effects(two).show(effect_id)["status"] == ACKNOWLEDGED, "nobody took over", 90)
    assert provider.effects == {"k": 1}
