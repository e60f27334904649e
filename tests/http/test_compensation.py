"""A command is undone: its acknowledged effects, in reverse order, once each (CCO-9)."""
import datetime
import itertools
import threading

import pytest

import stores
from json_provider import JsonProvider
from killed_at import KilledAt
from once_server import LONG, Broken, until

CONFIG = """
connectors:
  pay: {{url: "{url}", idempotency: {{header: Idempotency-Key, keeps: 24h}}}}
  plain: {{url: "{url}"}}
effects:
  stock.take: {{connector: pay, request: {{path: "/take"}}, provider_ref: /id,
    retry: {{attempts: 2, backoff: 10ms, backoff_max: 10ms}},
    compensate: {{effect: stock.put, payload: {{id: "{{provider_ref}}", n: "{{payload.n}}"}}}}}}
  stock.put: {{connector: pay, request: {{path: "/put"}}, retry: {{attempts: 2, backoff: 10ms}}}}
  card.charge: {{connector: plain, request: {{path: "/charge"}}, provider_ref: /id,
    retry: {{attempts: 2, backoff: 10ms, backoff_max: 10ms}},
    compensate: {{effect: card.refund, payload: {{id: "{{provider_ref}}"}}}}}}
  card.refund: {{connector: pay, request: {{path: "/refund"}},
    retry: {{attempts: 2, backoff: 10ms, backoff_max: 10ms}}}}
  mail.send: {{connector: pay, request: {{path: "/mail"}}, required: false}}
  parcel.note: {{connector: pay, request: {{path: "/note"}}, provider_ref: /id, required: false,
    compensate: {{effect: parcel.drop, payload: {{id: "{{provider_ref}}"}}}}}}
  parcel.drop: {{connector: pay, request: {{path: "/drop"}}}}
commands:
  order.buy: {{effects: [stock.take, card.charge, parcel.note], on_effect_failure: {on_failure},
    handler: "{url}/handler"}}
  order.mail: {{effects: [stock.take, mail.send], handler: "{url}/handler"}}
"""


class Provider(JsonProvider):
    """The handler, which returns `args.returns`; and a provider that keeps what happened, once for
    each key. A path answers with what `says` has for it."""

    def __init__(self):
        self.calls, self.happened, self.says = 0, {}, {}
        self.order = []  # path and payload of what happened, in order
        self.gates = {}
        self.lock = threading.Lock()
        super().__init__()

    def answer(self, path, body, headers):
        if path == "/handler":
            self.calls += 1
            return 200, {"summary": "Bought.", "effects": body["args"]["returns"]}
        gate = self.gates.get(path)
        if gate is not None:
            gate.wait(60)
        status = self.says.get(path, 200)
        key = headers.get("Idempotency-Key") or f"none-{len(self.order)}"
        with self.lock:
            if status == 200 and key not in self.happened:
                self.happened[key] = path
                self.order.append((path, body))
            return status, {"id": f"id-{key[-8:]}"}

    def paths(self):
        return [path for path, _ in self.order]

    def close(self):
        for gate in self.gates.values():
            gate.set()
        super().close()


@pytest.fixture
def provider():
    one = Provider()
    yield one
    one.close()


def config(provider, on_failure="fail"):
    return CONFIG.format(url=provider.url, on_failure=on_failure)


def effect(effect_type, ordinal=0):
    return {"effect_type": effect_type, "target": {"order_id": "204"}, "ordinal": ordinal,
        "payload": {"n": ordinal + 1}}


ALL = [effect("stock.take", 0), effect("parcel.note"), effect("stock.take", 1),
    effect("card.charge")]


def buy(server, returns=None, order_id="204", action="buy"):
    return server.request("POST", "/v1/commands", {"actor_id": "ana", "intent": {"entity": "order",
        "action": action, "target": {"order_id": order_id}},
        "args": {"returns": ALL if returns is None else returns}})


def get(server, document):
    return server.request("GET", document["status_url"])[2]


def settled(server, document, status):
    """On a shared store a killed process is known to be gone after half a minute."""
    until(lambda: get(server, document)["status"] == status,
        f"it is never {status}: {get(server, document)['status']}", 90 if stores.SHARED else 30)
    return get(server, document)


def recover(server, document, action="compensate"):
    return server.request("POST", document["status_url"] + "/recover",
        {"action": action, "reason": "returned"})


def types(server, document):
    _, _, page = server.request("GET", f"/v1/evidence?operation_id={document['operation_id']}")
    return [entry["type"] for entry in page["entries"]]


def effects(server, **members):
    listed = server.request("GET", "/v1/effects?limit=1000")[2]["effects"]
    return [one for one in listed if all(one.get(name) == want for name, want in members.items())]


def test_the_effects_of_a_command_are_undone_in_reverse_order_once(make_server, provider):
    server = make_server(config=config(provider))
    document = settled(server, buy(server)[2], "executed")
    until(lambda: len(provider.order) == 4, "not all effects happened")
    status, _, first = recover(server, document)
    assert status == 200 and first["status"] == "compensating", first
    done = settled(server, document, "compensated")
    states = [step["state"] for step in done["lifecycle"]]
    assert states == ["received", "started", "executed", "compensating", "compensated"]
    times = [step["at"] for step in done["lifecycle"]]
    assert times == sorted(times) and done["lifecycle"][2]["at"] == done["sealed_at"]
    assert done["lifecycle"][:4] == first["lifecycle"]  # a step keeps its time
    paths = provider.paths()
    assert sorted(paths[:4]) == ["/charge", "/note", "/take", "/take"]
    assert paths[4:] == ["/refund", "/put", "/drop", "/put"]
    assert [body["n"] for path, body in provider.order if path == "/put"] == [2, 1]
    for _ in range(3):  # asked again: the same answer, and nothing happens
        status, _, again = recover(server, document)
        assert (status, again["status"]) == (200, "compensated")
    assert len(provider.order) == 8 and provider.calls == 1
    story = types(server, document)
    assert story.count("compensation.started") == 1 and story.count("compensation.executed") == 1
    assert story.index("compensation.started") < story.index("compensation.executed")
    for one in effects(server, status="compensated"):
        assert "effect.compensated" in types(server, {"operation_id": one["effect_id"]})
    assert len(effects(server, status="compensated")) == 4
    status, _, replay = buy(server)
    assert status == 200 and replay["summary"] == "Bought." and replay["status"] == "compensated"
    assert replay["outcome"] == {"summary": "Bought."}


def test_the_next_is_undone_only_when_the_last_one_was(make_server, provider):
    provider.gates["/refund"] = threading.Event()
    server = make_server(config=config(provider))
    document = settled(server, buy(server)[2], "executed")
    until(lambda: len(provider.order) == 4, "not all effects happened")
    recover(server, document)
    until(lambda: effects(server, effect_type="card.refund", status="dispatched"), "not sent")
    assert not effects(server, effect_type="stock.put")
    assert get(server, document)["status"] == "compensating"
    assert buy(server)[2]["status"] == "compensating"  # a duplicate runs nothing
    provider.gates["/refund"].set()
    settled(server, document, "compensated")


def test_an_effect_without_a_compensation_is_a_refusal_before_anything_starts(
        make_server, provider):
    server = make_server(config=config(provider))
    mail = {"effect_type": "mail.send", "target": "ana", "payload": {"text": "hello"}}
    document = settled(server, buy(server, [effect("stock.take"), mail], action="mail")[2],
        "executed")
    until(lambda: "/mail" in provider.paths(), "the mail was not sent")
    until(lambda: effects(server, effect_type="mail.send", status="acknowledged"), "not known")
    status, _, problem = recover(server, document)
    assert (status, problem["code"], problem["effect"]) == (409, "no_compensation", "no")
    assert "mail.send" in problem["detail"]
    assert get(server, document)["status"] == "executed" and len(provider.order) == 2
    assert "compensation.started" not in types(server, document)


def test_nothing_is_undone_while_an_effect_is_uncertain(make_server, provider):
    server = make_server(config=config(provider, "block"))
    provider.says["/charge"] = 500
    document = buy(server)[2]
    until(lambda: effects(server, effect_type="card.charge", uncertain=True), "not uncertain")
    until(lambda: len(provider.order) == 3, "not all effects happened")
    until(lambda: len(effects(server, status="acknowledged")) == 3, "not acknowledged")
    status, _, problem = recover(server, document)
    assert (status, problem["code"], problem["effect"]) == (409, "outcome_unknown", "unknown")
    assert len(provider.order) == 3
    charge = effects(server, effect_type="card.charge")[0]
    status, _, answer = server.request("POST", f"/v1/effects/{charge['effect_id']}/resolve",
        {"status": "failed", "reason": "not in their books"})
    assert status == 200, answer
    status, _, answer = recover(server, document)
    assert status == 200, answer
    settled(server, document, "compensated")
    assert provider.paths()[3:] == ["/put", "/drop", "/put"]


def test_a_command_without_acknowledged_effects_has_nothing_to_undo(make_server, provider):
    server = make_server(config=config(provider))
    document = buy(server, [])[2]
    assert document["status"] == "executed"
    status, _, problem = recover(server, document)
    assert (status, problem["code"]) == (409, "nothing_to_compensate")
    assert get(server, document)["status"] == "executed"


def test_a_required_effect_that_fails_undoes_the_others(make_server, provider):
    server = make_server(config=config(provider, "compensate"))
    provider.says["/charge"] = 402
    provider.gates["/charge"] = threading.Event()
    document = buy(server)[2]
    assert document["status"] == "awaiting_effects"
    until(lambda: len(provider.order) == 3, "the others did not happen")
    provider.gates["/charge"].set()
    done = settled(server, document, "compensated")
    assert provider.paths()[3:] == ["/put", "/drop", "/put"]
    assert [one["status"] for one in effects(server, effect_type="card.charge")] == ["failed"]
    story = types(server, document)
    assert [one for one in story if one.startswith(("compensation", "execution.failed"))] == [
        "execution.failed", "compensation.started", "compensation.executed"]
    status, _, replay = buy(server)
    assert status == 200 and replay["status"] == "compensated" and done["outcome_code"] == 200
    states = [step["state"] for step in done["lifecycle"]]
    assert states == ["received", "started", "failed", "compensating", "compensated"]
    assert provider.calls == 1


def test_when_nothing_happened_the_command_has_failed(make_server, provider):
    server = make_server(config=config(provider, "compensate"))
    provider.says["/charge"] = 402
    document = buy(server, [effect("card.charge")])[2]
    assert settled(server, document, "failed")["reason"] == "a required effect failed"
    assert not provider.order


def test_what_was_not_sent_yet_is_cancelled(make_server, provider):
    server = make_server(config=config(provider, "compensate"))
    provider.says["/charge"] = 402
    provider.gates["/charge"] = threading.Event()
    tomorrow = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)
    later = dict(effect("stock.take", 5), not_before=tomorrow.strftime("%Y-%m-%dT%H:%M:%S.000Z"))
    document = buy(server, [effect("stock.take"), later, effect("card.charge")])[2]
    until(lambda: len(provider.order) == 1, "the first did not happen")
    provider.gates["/charge"].set()
    settled(server, document, "compensated")
    assert provider.paths() == ["/take", "/put"]
    waiting = effects(server, effect_type="stock.take", status="failed")
    assert len(waiting) == 1 and "effect.cancelled" in types(
        server, {"operation_id": waiting[0]["effect_id"]})


def test_a_compensation_that_fails_blocks_and_may_be_asked_for_again(make_server, provider):
    server = make_server(config=config(provider))
    document = settled(server, buy(server)[2], "executed")
    until(lambda: len(effects(server, status="acknowledged")) == 4, "not all effects happened")
    provider.says["/put"] = 422
    assert recover(server, document)[0] == 200
    blocked = settled(server, document, "blocked")
    assert blocked["reason"] == "the compensation of one of its effects failed"
    assert provider.paths()[4:] == ["/refund"]  # the earlier ones are left
    assert "compensation.failed" in types(server, document)
    status, _, problem = recover(server, document, "retry")
    assert (status, problem["code"]) == (409, "outcome_unknown")
    provider.says["/put"] = 200
    status, _, answer = recover(server, document)
    assert status == 200, answer
    settled(server, document, "compensated")
    assert provider.paths()[4:] == ["/refund", "/put", "/drop", "/put"]
    assert provider.calls == 1


def test_an_undo_that_was_given_up_is_taken_up_when_asked_again(make_server, provider):
    server = make_server(config=config(provider))
    document = settled(server, buy(server, [effect("card.charge")])[2], "executed")
    provider.says["/refund"] = 503
    recover(server, document)
    settled(server, document, "blocked")
    assert effects(server, effect_type="card.refund", status="dead_letter")
    provider.says["/refund"] = 200
    assert recover(server, document)[0] == 200
    settled(server, document, "compensated")
    assert provider.paths() == ["/charge", "/refund"]


def test_effects_that_were_given_up_are_retried_with_their_command(make_server, provider):
    server = make_server(config=config(provider, "block"))
    provider.says["/charge"] = 503
    document = buy(server)[2]
    until(lambda: effects(server, effect_type="card.charge", status="dead_letter"), "not dead")
    status, _, problem = recover(server, document, "cancel")
    assert (status, problem["code"]) == (409, "wrong_status")
    provider.says["/charge"] = 200
    status, _, answer = recover(server, document, "retry")
    assert status == 200, answer
    settled(server, document, "executed")
    status, _, problem = recover(server, document, "retry")
    assert (status, problem["code"]) == (409, "wrong_status")
    assert provider.calls == 1


STEPS = ["/put"] if stores.SHARED else ["/refund", "/put", "/drop"]


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_while_an_effect_is_undone_undoes_it_once(make_server, provider, step):
    """Killed while an undoing call is under way, and again right after it was answered."""
    server = make_server(config=config(provider))
    document = settled(server, buy(server)[2], "executed")
    until(lambda: len(effects(server, status="acknowledged")) == 4, "not all effects happened")
    provider.gates[step] = threading.Event()
    assert recover(server, document)[0] == 200
    undo = {"/refund": "card.refund", "/put": "stock.put", "/drop": "parcel.drop"}[step]
    until(lambda: effects(server, effect_type=undo, status="dispatched"), "not sent")
    server.kill9()
    provider.gates[step].set()
    server.restart()
    until(lambda: step in provider.paths(), "it was forgotten", 90)
    server.kill9()
    server.restart()
    settled(server, document, "compensated")
    assert provider.paths()[4:] == ["/refund", "/put", "/drop", "/put"]
    assert provider.calls == 1


def test_a_kill_right_after_the_request_goes_on_by_itself(make_server, provider):
    server = make_server(config=config(provider))
    for number in range(5):
        document = settled(server, buy(server, order_id=f"k{number}")[2], "executed")
        until(lambda: len(effects(server, command_id=document["operation_id"],
            status="acknowledged")) == 4, "not all effects happened")
        count = len(provider.order)
        recover(server, document)
        server.kill9()
        server.restart()
        settled(server, document, "compensated")
        assert provider.paths()[count:] == ["/refund", "/put", "/drop", "/put"], number


@stores.journal_only("its process is killed between two writes")
def test_a_kill_at_any_step_of_a_compensation_goes_on_by_itself(make_server, provider, tmp_path):
    """What is durable is gone on with; what is not was never asked for."""
    shim = KilledAt(tmp_path)
    server = make_server(config=config(provider), env=shim.env)
    for step in itertools.count(1):
        document = buy(server, [effect("stock.take", 0)], order_id=f"k{step}")[2]
        settled(server, document, "executed")
        count = len(provider.order)
        shim.at(step)
        try:
            recover(server, document)
            until(lambda: get(server, document)["status"] == "compensated", "neither")
        except (Broken, OSError):
            pass
        if not shim.name() or (step == 6 and not LONG):
            break
        server.process.wait()
        shim.at(0)
        server.start()
        if get(server, document)["status"] == "executed":
            assert not provider.order[count:]
            recover(server, document)
        settled(server, document, "compensated")
        assert provider.paths()[count:] == ["/put"], shim.name()
    assert step >= 6, "it has more steps"


def test_the_evidence_of_a_compensation_can_be_decided_again(make_server, provider):
    server = make_server(config=config(provider, "compensate"))
    document = settled(server, buy(server)[2], "executed")
    until(lambda: len(effects(server, status="acknowledged")) == 4, "not all effects happened")
    recover(server, document)
    settled(server, document, "compensated")
    provider.says["/charge"] = 402
    settled(server, buy(server, order_id="205")[2], "compensated")
    server.stop()
    result = server.cli("verify", "--redecide", "--store", server.store)
    assert result.returncode == 0, result.stdout + result.stderr
