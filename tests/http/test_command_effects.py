"""The effects of a command: in the outbox with its outcome, and waited for (CCO-10)."""
import datetime
import itertools
import threading

import pytest

import stores
from effects_help import key_file
from json_provider import JsonProvider
from killed_at import KilledAt
from once_server import LIGHT, LONG, Broken, until

CONFIG = """
secrets: {{key_file: {key_file}}}
connectors:
  pay: {{url: "{url}", idempotency: {{header: Idempotency-Key, keeps: 24h}}}}
effects:
  payment.capture: {{connector: pay, request: {{path: "/charges"}}, provider_ref: /id,
    retry: {{attempts: 2, backoff: 10ms, backoff_max: 10ms}}}}
  mail.send: {{connector: pay, request: {{path: "/mails"}}, required: false}}
commands:
  order.pay: {{effects: [payment.capture, mail.send], on_effect_failure: {on_failure},
    handler: "{url}/handler"}}
"""


class Provider(JsonProvider):
    """The handler, which returns what `args.returns` says, and the provider of its effects."""

    def __init__(self):
        self.calls, self.charges, self.mails = 0, [], []
        self.charge_status, self.gate = 200, threading.Event()
        self.refuses = set()  # order ids that are refused at once
        super().__init__()

    def answer(self, path, body, headers):
        if path == "/handler":
            self.calls += 1
            return 200, {"summary": "Paid.", "effects": body["args"]["returns"]}
        if path == "/mails":
            self.mails.append(headers["Idempotency-Key"])
            return 200, {}
        if body.get("order_id") in self.refuses:
            return 402, {}
        self.gate.wait(30)
        self.charges.append(headers["Idempotency-Key"])
        return self.charge_status, {"id": f"ch_{len(self.charges)}"}

    def close(self):
        self.gate.set()
        super().close()


@pytest.fixture
def provider():
    one = Provider()
    yield one
    one.close()


def config(provider, on_failure="fail"):
    return CONFIG.format(key_file=key_file(), url=provider.url, on_failure=on_failure)


def capture(ordinal=0):
    return {"effect_type": "payment.capture", "target": {"order_id": "204"}, "ordinal": ordinal,
        "payload": {"amount": 5}}


MAIL = {"effect_type": "mail.send", "target": "ana", "payload": {"text": "paid"}}


def pay(server, *returns, order_id="204"):
    return server.request("POST", "/v1/commands", {"actor_id": "ana", "intent": {"entity": "order",
        "action": "pay", "target": {"order_id": order_id}}, "args": {"returns": list(returns)}})


def get(server, document):
    return server.request("GET", document["status_url"])[2]


def recover(server, document, action):
    return server.request("POST", document["status_url"] + "/recover", {"action": action})


def test_a_command_is_executed_when_its_required_effects_are(make_server, provider):
    server = make_server(config=config(provider))
    status, _, document = pay(server, capture(0), capture(1), MAIL)
    assert status == 202 and document["status"] == "awaiting_effects", document
    assert document["effects"] == {"count": 3, "required_outstanding": 2, "async_completable": 1}
    assert pay(server, capture(0), capture(1), MAIL)[0] == 202
    until(lambda: provider.mails, "nobody waits for the mail, and it was not sent")
    assert get(server, document)["status"] == "awaiting_effects"
    provider.gate.set()
    until(lambda: get(server, document)["status"] == "executed", "it was never executed")
    status, _, replay = pay(server, capture(0), capture(1), MAIL)
    assert status == 200 and replay["summary"] == "Paid."
    assert replay["outcome"] == {"summary": "Paid."}  # the payloads are the effects' own
    assert provider.calls == 1 and len(set(provider.charges)) == 2 == len(provider.charges)
    listed = server.request("GET", "/v1/effects")[2]["effects"]
    assert {one["command_id"] for one in listed} == {document["operation_id"]}
    for one in listed:  # CCO-8
        story = server.request("GET", "/v1/evidence?operation_id=" + one["effect_id"])[2]["entries"]
        assert {entry["command_id"] for entry in story} == {document["operation_id"]}


@pytest.mark.parametrize("verb", ["confirm", "deny"])
def test_a_token_says_nothing_about_a_command_that_waits_for_its_effects(make_server, provider,
                                                                         verb):
    """It waits a second time, but not for a person: its handler was called already."""
    server = make_server(config=config(provider).replace("order.pay: {", "order.pay: {confirm: "
        "confirm, "))
    status, _, asked = pay(server, capture())
    assert status == 202 and asked["status"] == "awaiting_confirmation", asked
    path, token = f"/v1/commands/{asked['command_id']}/", asked["confirmation"]["token"]
    assert server.request("POST", path + "confirm", {"token": token})[0] == 202
    until(lambda: get(server, asked)["status"] == "awaiting_effects", "its handler was not called")
    assert server.request("POST", path + verb, {"token": token})[0] == 403
    assert get(server, asked)["status"] == "awaiting_effects"
    provider.gate.set()
    until(lambda: get(server, asked)["status"] == "executed", "it was never executed")
    assert (provider.calls, len(provider.charges)) == (1, 1)


def reasons(server, document):
    """Of the command's entries that change it."""
    page = server.request("GET", document["evidence_url"])[2]
    return [entry["outcome"]["reason"] for entry in page["entries"]
        if "reason" in entry["outcome"] and entry["type"] != "access.read"]


def test_effects_that_nobody_waits_for_are_named(make_server, provider):
    server = make_server(config=config(provider))
    status, _, document = pay(server, MAIL)
    assert status == 201 and document["effects"]["async_completable"] == 1
    until(lambda: provider.mails, "it was not sent")
    assert reasons(server, document)[-1] == "1 async-completable"
    provider.gate.set()
    both = pay(server, capture(), MAIL, order_id="2")[2]
    until(lambda: get(server, both)["status"] == "executed", "it never ended")
    assert reasons(server, both)[-2:] == ["waiting for its required effects; 1 async-completable",
        "its required effects are acknowledged; 1 async-completable"]


def test_a_required_effect_that_fails_fails_its_command(make_server, provider):
    provider.charge_status = 402
    provider.gate.set()
    server = make_server(config=config(provider))
    document = pay(server, capture())[2]
    until(lambda: get(server, document)["status"] == "failed", "it never failed")
    assert get(server, document)["reason"] == "a required effect failed"


def test_a_failure_counts_while_an_earlier_effect_is_not_sent_yet(make_server, provider):
    provider.charge_status = 402
    provider.gate.set()
    server = make_server(config=config(provider))
    tomorrow = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)
    later = dict(capture(0), not_before=tomorrow.strftime("%Y-%m-%dT%H:%M:%S.000Z"))
    document = pay(server, later, capture(1))[2]
    until(lambda: get(server, document)["status"] == "failed", "it never failed")


def test_a_blocked_command_waits_for_a_person(make_server, provider):
    provider.charge_status = 402
    provider.gate.set()
    server = make_server(config=config(provider, "block"))
    document = pay(server, capture())[2]
    until(lambda: get(server, document)["status"] == "blocked", "it does not ask for a person")
    effect, = server.request("GET", "/v1/effects?status=failed")[2]["effects"]
    shown = get(server, document)
    assert effect["effect_id"] in shown["reason"] and "payment.capture" in shown["reason"]
    assert shown["lifecycle"][-1]["state"] == "blocked"
    blocked = server.request("GET", "/v1/commands?status=blocked")[2]["commands"]
    assert [one["command_id"] for one in blocked] == [document["command_id"]]
    assert pay(server, capture())[2]["status"] == "blocked"
    assert [one["type"] for one in entries(server, document["operation_id"])].count(
        "execution.blocked") == 1
    server.kill9()
    server.restart()
    assert get(server, document)["status"] == "blocked"
    # What the provider refused for good cannot be sent again, and nothing happened to undo.
    for action, code in (("retry", "wrong_status"), ("cancel", "wrong_status"),
            ("compensate", "nothing_to_compensate")):
        status, _, problem = recover(server, document, action)
        assert status == 409 and problem["code"] == code, problem


@pytest.mark.parametrize("end", ["failed", "executed"])
def test_a_person_ends_a_command_that_its_effect_blocked(make_server, provider, end):
    provider.charge_status = 402
    provider.gate.set()
    server = make_server(config=config(provider, "block"))
    document = pay(server, capture())[2]
    until(lambda: get(server, document)["status"] == "blocked", "it does not ask for a person")
    url = document["status_url"] + "/resolve"
    status, _, problem = server.request("POST", url, {"status": "not_executed", "reason": "no"})
    assert status == 409 and problem["code"] == "wrong_status"  # its handler did run
    for _ in range(2):
        status, _, answer = server.request("POST", url, {"status": end, "reason": "by hand"})
        assert status == 200 and answer["status"] == end, answer
    status, _, replay = pay(server, capture())
    assert status == 200 and replay["status"] == end and replay["outcome"] == {"summary": "Paid."}
    assert replay["reason"] == "by hand" and provider.calls == 1
    other = {"executed": "failed", "failed": "executed"}[end]
    assert server.request("POST", url, {"status": other, "reason": "no"})[0] == 409
    server.stop()
    checked = server.cli("verify", "--redecide", "--store", server.store)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_command_that_waits_for_its_effects_is_not_resolved(make_server, provider):
    server = make_server(config=config(provider, "block"))
    document = pay(server, capture())[2]
    status, _, problem = server.request("POST", document["status_url"] + "/resolve",
        {"status": "executed", "reason": "impatient"})
    assert status == 409 and problem["code"] == "wrong_status", problem
    provider.gate.set()
    until(lambda: get(server, document)["status"] == "executed", "it was never executed")


def test_a_retry_of_its_effects_ends_a_blocked_command(make_server, provider):
    """Two effects were given up. One is sent again by itself, then both by their command."""
    provider.charge_status = 503
    provider.gate.set()
    server = make_server(config=config(provider, "block"))
    document = pay(server, capture(0), capture(1))[2]

    def dead():
        return server.request("GET", "/v1/effects?status=dead_letter")[2]["effects"]

    until(lambda: len(dead()) == 2 and get(server, document)["status"] == "blocked", "not blocked")
    provider.charge_status = 200
    one = dead()[0]["effect_id"]
    assert server.request("POST", f"/v1/effects/{one}/retry", {})[0] == 200
    until(lambda: len(dead()) == 1, "it was not sent")
    until(lambda: get(server, document)["effects"]["required_outstanding"] == 1, "not counted")
    until(lambda: get(server, document)["status"] == "blocked", "the other one is still missing")
    provider.gate.clear()
    status, _, answer = recover(server, document, "retry")
    assert status == 200 and answer["status"] == "awaiting_effects", answer
    provider.gate.set()
    until(lambda: get(server, document)["status"] == "executed", "it was never executed")
    assert provider.calls == 1 and pay(server, capture(0), capture(1))[0] == 200


def test_another_acknowledgement_leaves_a_blocked_command_blocked(make_server, provider):
    """The first required effect is refused while the second one is under way."""
    server = make_server(config=config(provider, "block"))
    provider.refuses = {"refused"}
    document = pay(server, dict(capture(0), payload={"order_id": "refused"}), capture(1))[2]
    until(lambda: get(server, document)["status"] == "blocked", "it does not ask for a person")
    provider.gate.set()
    until(lambda: get(server, document)["effects"]["required_outstanding"] == 1, "not counted")
    assert get(server, document)["status"] == "blocked"
    types = [one["type"] for one in entries(server, document["operation_id"])]
    assert types.count("execution.blocked") == 1  # it was so all the time
    status, _, answer = recover(server, document, "compensate")
    assert status == 409 and answer["code"] == "no_compensation"  # now there is something to undo


def test_an_effect_that_a_person_settles_ends_its_command(make_server, provider):
    provider.charge_status = 500  # nobody knows, and nothing can be asked
    provider.gate.set()
    server = make_server(config=config(provider))
    document = pay(server, capture())[2]
    until(lambda: server.request("GET", "/v1/effects?uncertain=true")[2]["effects"], "uncertain")
    effect = server.request("GET", "/v1/effects?uncertain=true")[2]["effects"][0]
    assert get(server, document)["status"] == "awaiting_effects"
    status, _, answer = server.request("POST", f"/v1/effects/{effect['effect_id']}/resolve",
        {"status": "acknowledged", "provider_ref": "ch_9", "reason": "it is in their books"})
    assert status == 200, answer
    until(lambda: get(server, document)["status"] == "executed", "it was never executed")


def test_many_that_are_stuck_do_not_hold_up_one_that_is_done(make_server, provider):
    """As many as are looked at in a second, and more, wait for a person: the next one does not."""
    server = make_server(config=config(provider, "block"))
    provider.charge_status = 402
    provider.gate.set()
    stuck = [pay(server, capture(), order_id=f"s{number}")[2] for number in range(100)]
    until(lambda: len(server.request("GET", "/v1/effects?status=failed&limit=1000")[2]["effects"])
        == 100, "not all of them have failed", 60)
    provider.charge_status = 200
    document = pay(server, capture(), order_id="good")[2]
    until(lambda: get(server, document)["status"] == "executed", "it is held up", 60)
    until(lambda: get(server, stuck[0])["status"] == "blocked", "it does not ask for a person")


def test_an_effect_that_is_not_declared_blocks(make_server, provider):
    server = make_server(config=config(provider))
    status, _, problem = pay(server, {"effect_type": "money.print", "payload": {}})
    assert status == 504 and problem["code"] == "outcome_unknown"
    assert not server.request("GET", "/v1/effects")[2]["effects"]


def test_a_kill_while_effects_are_awaited_loses_nothing(make_server, provider):
    server = make_server(config=config(provider))
    document = pay(server, capture())[2]
    server.kill9()
    provider.gate.set()
    server.restart()
    until(lambda: get(server, document)["status"] == "executed", "it was forgotten")
    assert provider.calls == 1 and len(set(provider.charges)) == 1


# --- The end of a command, in the commit of the last acknowledgement (CCO-10) ---

def entries(server, operation_id):
    return server.request("GET", "/v1/evidence?operation_id=" + operation_id)[2]["entries"]


SETTLED = ("effect.acknowledged", "effect.failed", "effect.dead_lettered", "effect.cancelled",
    "execution.resolved")


def one_commit(server, document, status="executed"):
    """All entries of a commit have one time; the end is in that of the last acknowledgement."""
    until(lambda: get(server, document)["status"] == status, f"it was never {status}")
    end = [one for one in entries(server, document["operation_id"])
        if one["type"] == f"execution.{status}"]
    listed = server.request("GET", "/v1/effects?limit=1000")[2]["effects"]
    settled = [entry["occurred_at"] for one in listed
        if one["command_id"] == document["operation_id"]
        for entry in entries(server, one["effect_id"])
        if entry["type"] in SETTLED]
    # The first one that fails is enough.
    last = max(settled) if status == "executed" else min(settled)
    assert [one["occurred_at"] for one in end] == [last]


def test_the_end_of_a_command_is_in_the_commit_of_the_last_acknowledgement(make_server, provider):
    provider.gate.set()
    server = make_server(config=config(provider))
    for number in range(8):  # two commits in one millisecond would be luck
        document = pay(server, *[capture(ordinal) for ordinal in range(3)],
            order_id=str(number))[2]
        one_commit(server, document)
        assert get(server, document)["effects"]["required_outstanding"] == 0


@pytest.mark.parametrize("status, becomes", [(402, "failed"), (503, "dead_letter")])
def test_a_failed_effect_ends_its_command_in_its_own_commit(make_server, provider, status, becomes):
    provider.charge_status = status
    provider.gate.set()
    server = make_server(config=config(provider))
    for number in range(4):  # two commits in one millisecond would be luck; breaker: 10 failures
        document = pay(server, capture(), order_id=str(number))[2]
        one_commit(server, document, "failed")
        assert get(server, document)["effects"]["required_outstanding"] == 0
    listed = server.request("GET", f"/v1/effects?status={becomes}")[2]["effects"]
    assert len(listed) == 4


@pytest.mark.parametrize("action", ["resolve", "cancel"])
def test_an_operator_who_ends_an_effect_fails_its_command_with_it(make_server, provider, action):
    provider.charge_status = 500 if action == "resolve" else 503
    provider.gate.set()
    server = make_server(config=config(provider) if action == "resolve" else config(provider)
        .replace("backoff: 10ms, backoff_max: 10ms", "backoff: 1h, backoff_max: 1h"))
    for number in range(4):
        document = pay(server, capture(), order_id=str(number))[2]
        word = "uncertain=true" if action == "resolve" else "status=pending"
        until(lambda: [one for one in server.request("GET", f"/v1/effects?{word}")[2]["effects"]
            if one["attempt"] == (2 if action == "resolve" else 1)], "it was not tried")
        effect = server.request("GET", f"/v1/effects?{word}")[2]["effects"][0]
        status, _, answer = server.request("POST", f"/v1/effects/{effect['effect_id']}/{action}",
            {"reason": "it never arrived", **({"status": "failed"} if action == "resolve" else {})})
        assert status == 200, answer
        assert get(server, document)["status"] == "failed"  # not a moment later
        one_commit(server, document, "failed")


def test_an_operator_who_settles_the_last_effect_ends_the_command(make_server, provider):
    provider.charge_status = 500
    provider.gate.set()
    server = make_server(config=config(provider))
    for number in range(2):
        document = pay(server, capture(0), capture(1), order_id=str(number))[2]
        until(lambda: len(server.request("GET", "/v1/effects?uncertain=true")[2]["effects"]) == 2,
            "not uncertain")
        for left, effect in enumerate(
                server.request("GET", "/v1/effects?uncertain=true")[2]["effects"]):
            assert get(server, document)["status"] == "awaiting_effects"
            assert get(server, document)["effects"]["required_outstanding"] == 2 - left
            status, _, answer = server.request("POST",
                f"/v1/effects/{effect['effect_id']}/resolve",
                {"status": "acknowledged", "reason": "seen in the dashboard"})
            assert status == 200, answer
        assert get(server, document)["status"] == "executed"  # not a moment later
        one_commit(server, document)


def test_a_later_acknowledgement_ends_the_command(make_server, provider):
    envelopes = []
    provider.gate.set()

    def answer(path, body, headers):
        if path == "/handler":
            return 200, {"effects": body["args"]["returns"]}
        envelopes.append(body)
        return 200, {"effect_id": body["effect_id"], "status": "pending"}

    provider.answer = answer
    server = make_server(config=config(provider).replace("  pay: {", "  pay: {protocol: envelope, ")
        .replace(", provider_ref: /id", ""))
    document = pay(server, capture(0), capture(1))[2]
    until(lambda: len(envelopes) == 2, "they were not sent")
    for left, envelope in enumerate(envelopes):
        assert get(server, document)["effects"]["required_outstanding"] == 2 - left
        until(lambda: server.request("POST", envelope["ack_url"], {"status": "acknowledged",
            "ack_token": envelope["ack_token"]})[0] == 200, "it is not taken")
    assert get(server, document)["status"] == "executed"
    one_commit(server, document)


@pytest.mark.skipif(not stores.SHARED, reason="a journal has one process")
def test_last_acknowledgements_that_race_in_two_processes(make_server, provider):
    one = make_server(config=config(provider))
    two = make_server(config=config(provider), data_dir=one.data_dir)
    for number in range(5):
        provider.gate.clear()
        seen = len(provider.charges)
        document = pay(one, *[capture(ordinal) for ordinal in range(8)], order_id=str(number))[2]
        assert document["status"] == "awaiting_effects"
        provider.gate.set()
        until(lambda: len(provider.charges) == seen + 8, "they were not all sent")
        one_commit(two, document)


@stores.journal_only("its process is killed between two writes")
# --- What becomes of a command, in the commit of the effect that failed ---


class Late:
    """A provider whose payloads with `late` are refused, but not before `go`; and refunds."""

    def __init__(self, provider):
        self.go, self.refunds, self.answers = threading.Event(), [], provider.answer
        provider.answer = self.answer
        provider.gate.set()

    def answer(self, path, body, headers):
        if path == "/refunds":
            self.refunds.append(headers["Idempotency-Key"])
            return 200, {}
        if path == "/charges" and body.get("late"):
            self.go.wait(60)
            return 402, {}
        return self.answers(path, body, headers)


UNDONE = """provider_ref: /id,
    compensate: {effect: payment.refund, payload: {id: "{provider_ref}"}},"""
LATE = {**capture(1), "payload": {"late": True}}
ROUNDS = 16  # two commits can be of the same millisecond, but not each time


def late_config(provider, on_failure):
    return config(provider, on_failure).replace("provider_ref: /id,", UNDONE).replace(
        "effects: [payment.capture, mail.send]", "effects: [payment.capture]").replace(
        "commands:", '  payment.refund: {connector: pay, request: {path: "/refunds"}}\ncommands:')


def charged(server, document):
    """The first effect is acknowledged, and the command knows it."""
    until(lambda: get(server, document)["effects"]["required_outstanding"] == 1, "not charged")


def moved(server, document):
    """When the command moved on because of an effect, and the time of each effect's end."""
    ends = {}
    for one in server.request("GET", "/v1/effects?limit=1000&command_id="
            + document["operation_id"])[2]["effects"]:
        if one["effect_type"] == "payment.capture":
            ends.update((entry["type"], entry["occurred_at"])
                for entry in entries(server, one["effect_id"]) if entry["type"] in SETTLED)
    mine = entries(server, document["operation_id"])
    times = [entry["occurred_at"] for entry in mine if entry["type"] == "compensation.started" or
        entry.get("outcome", {}).get("reason", "").startswith("required effect ")]
    return times, ends


def moved_in_one_commit(server, document):
    times, ends = moved(server, document)
    assert times == [ends["effect.failed"]], (times, ends)


@pytest.mark.parametrize("on_failure, becomes", [("block", "blocked"),
    ("compensate", "compensated")])
def test_a_command_moves_on_in_the_commit_of_the_effect_that_failed(make_server, provider,
        on_failure, becomes):
    late = Late(provider)
    server = make_server(config=late_config(provider, on_failure))
    for number in range(ROUNDS):
        late.go.clear()
        document = pay(server, capture(0), LATE, order_id=str(number))[2]
        charged(server, document)
        late.go.set()
        until(lambda: get(server, document)["status"] == becomes, f"it was never {becomes}")
        moved_in_one_commit(server, document)
    assert len(late.refunds) == (ROUNDS if on_failure == "compensate" else 0)
    server.stop()
    checked = server.cli("verify", "--redecide", "--store", server.store)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_what_is_given_up_blocks_its_command_in_one_commit(make_server, provider):
    provider.charge_status = 503
    provider.gate.set()
    server = make_server(config=config(provider, "block"))
    for number in range(4):  # breaker: 10 failures
        document = pay(server, capture(), order_id=str(number))[2]
        until(lambda: get(server, document)["status"] == "blocked", "it was never blocked")
        times, ends = moved(server, document)
        assert times == [ends["effect.dead_lettered"]]


@pytest.mark.parametrize("on_failure, becomes", [("block", "blocked"),
    ("compensate", "compensated")])
def test_an_operator_who_fails_an_effect_moves_its_command_on_in_one_commit(make_server, provider,
        on_failure, becomes):
    late = Late(provider)
    late.go.set()
    whole = provider.answer
    provider.answer = lambda path, body, headers: (500, {}) if body.get("late") else whole(
        path, body, headers)
    server = make_server(config=late_config(provider, on_failure))
    document = pay(server, capture(0), LATE)[2]
    charged(server, document)
    word = "/v1/effects?uncertain=true"
    until(lambda: [one["attempt"] for one in server.request("GET", word)[2]["effects"]] == [2],
        "it was not tried twice")
    effect = server.request("GET", word)[2]["effects"][0]
    status, _, answer = server.request("POST", f"/v1/effects/{effect['effect_id']}/resolve",
        {"status": "failed", "reason": "it never arrived"})
    assert status == 200, answer
    assert get(server, document)["status"] in {"block": ["blocked"],
        "compensate": ["compensating", "compensated"]}[on_failure]  # not a moment later
    until(lambda: get(server, document)["status"] == becomes, f"it was never {becomes}")
    times, ends = moved(server, document)
    assert times == [ends["execution.resolved"]]


# --- Killed ---


def life(server, provider, end, number):
    """A command up to its end, whatever is in its way."""
    if end in ("executed", "failed"):
        document = pay(server, capture(0), capture(1), order_id=str(number))[2]
    else:
        provider.late.go.clear()
        document = pay(server, capture(0), LATE, order_id=str(number))[2]
        until(lambda: get(server, document)["effects"]["required_outstanding"] == 1, "neither", 20)
        provider.late.go.set()
    until(lambda: get(server, document)["status"] == end, "neither", 20)


ENDS = {"executed": "fail", "failed": "fail", "blocked": "block", "compensated": "compensate"}


@pytest.mark.parametrize("end", ENDS)
def test_a_kill_at_any_step_leaves_no_command_behind_its_effects(make_server, provider, tmp_path,
        end):
    if stores.SHARED and not LONG:
        pytest.skip("a killed process holds its grants for half a minute at each step")
    shim = KilledAt(tmp_path)
    provider.charge_status = 402 if end == "failed" else 200
    provider.gate.set()
    provider.late = Late(provider)
    server = make_server(config=late_config(provider, ENDS[end]).replace(
        "attempts: 2", "attempts: 20"), env=shim.env)
    for number in itertools.count(1):
        shim.at(number)
        try:
            life(server, provider, end, number)
        except (Broken, OSError):
            pass
        provider.late.go.set()
        if not shim.name():
            break
        server.process.wait()
        shim.at(0)
        server.start()
        if LIGHT and number == 8:
            break
    shim.at(0)
    commands = server.request("GET", "/v1/commands?limit=1000")[2]["commands"]
    assert len(commands) >= (6 if LIGHT else 12), "its life has more steps"
    seen = 0
    for one in commands:  # one whose handler was under way is blocked
        document = {"operation_id": one["operation_id"],
            "status_url": "/v1/commands/" + one["operation_id"]}
        # A provider's refusal after a lost answer is not believed: only a person can end that.
        until(lambda: get(server, document)["status"] in (end, "blocked", "failed") or
            server.request("GET", "/v1/effects?uncertain=true&command_id=" + one["operation_id"])
            [2]["effects"], "it is stuck")
        if get(server, document)["status"] == end:
            seen += ended_in_one_commit(server, document, end)
    assert seen >= (0 if LIGHT else 1), "nothing was seen"


def ended_in_one_commit(server, document, end):
    if end in ("executed", "failed"):
        one_commit(server, document, end)
        return True
    times, ends = moved(server, document)
    is_one = times == [ends.get("effect.failed")]
    # If both ended at about the same time, what the other one did may have to be read first
    # (compensate), and a second commit follows.
    is_plain = ends.get("effect.acknowledged", "~") < ends.get("effect.failed", "")
    assert is_one or end == "compensated" or not is_plain, (times, ends)
    return is_one and is_plain
