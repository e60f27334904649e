"""Effects that the registry declares: Once makes them with the handler's outcome (CCO-10)."""
import subprocess
import threading

import pytest

from effects_help import key_file
from json_provider import JsonProvider
from once_server import BINARY, until

CONFIG = """
secrets: {{key_file: {key_file}}}
connectors:
  pay: {{url: "{url}", idempotency: {{header: Idempotency-Key, keeps: 24h}}}}
effects:
  payment.refund: {{connector: pay, request: {{path: "/refunds"}}, provider_ref: /id,
    redact: [/card], retry: {{attempts: 2, backoff: 10ms, backoff_max: 10ms}},
    compensate: {{effect: payment.charge, payload: {{amount: "{{payload.amount}}"}}}}}}
  payment.charge: {{connector: pay, request: {{path: "/charges"}}}}
  mail.send: {{connector: pay, request: {{path: "/mails"}}, required: false,
    compensate: {{effect: payment.charge, payload: {{}}}}}}
commands:
  order.refund:
    handler: "{url}/handler"
    redact: [/args/card]
    on_effect_failure: {on_failure}
    {reconcile}
    args:
      amount: {{type: integer, required: true}}
      card: {{type: string, required: true}}
      to: {{type: string, required: true, normalise: lower}}
    effects:
      - effect: payment.refund
        target: {{order_id: "{{target.order_id}}", part: goods}}
        payload: {{amount: "{{args.amount}}", card: "{{args.card}}",
          note: "by {{actor_id}} for {{command_id}}", rma: "{{outcome.rma}}"}}
      - effect: payment.refund
        payload: {{amount: 1}}
      - effect: mail.send
        target: "{{args.to}}"
        payload: {{key: "{{idempotency_key}}"}}
"""
RECONCILE = 'on_unknown: reconcile\n    reconcile: {get: "/known/{key}", quiet: 0s}'


class Provider(JsonProvider):
    """The handler and the provider. The gate holds refunds back."""

    def __init__(self):
        self.calls, self.got, self.answers = 0, [], {"rma": "R1", "summary": "Refunded."}
        self.handler_status, self.refund_status = 200, 200
        self.gate = threading.Event()
        self.gate.set()
        super().__init__()

    def answer(self, path, body, headers):
        if path == "/handler":
            self.calls += 1
            return self.handler_status, self.answers
        if path.startswith("/known/"):
            return 200, self.answers
        if path == "/refunds":
            self.gate.wait(30)
            if self.refund_status != 200:
                return self.refund_status, {}
        self.got.append((path, headers["Idempotency-Key"], body))
        return 200, {"id": f"re_{len(self.got)}"}

    def close(self):
        self.gate.set()
        super().close()


@pytest.fixture
def provider():
    one = Provider()
    yield one
    one.close()


def config(provider, on_failure="fail", reconcile=""):
    return CONFIG.format(key_file=key_file(), url=provider.url, on_failure=on_failure,
        reconcile=reconcile)


ARGS = {"amount": 5, "card": "4111-secret", "to": "ANA@x"}


def refund(server, **changed):
    return server.request("POST", "/v1/commands", {"actor_id": "ana", "intent": {"entity": "order",
        "action": "refund", "target": {"order_id": "204"}}, "args": {**ARGS, **changed}})


def get(server, document):
    return server.request("GET", document["status_url"])[2]


def sent(provider, path):
    return [body for at, _, body in provider.got if at == path]


def test_once_makes_them_with_the_outcome_and_the_command_waits(make_server, provider):
    provider.gate.clear()
    server = make_server(config=config(provider))
    status, _, document = refund(server)
    assert status == 202 and document["status"] == "awaiting_effects", document
    assert document["effects"] == {"count": 3, "required_outstanding": 2, "async_completable": 1}
    assert refund(server)[2]["effects"]["count"] == 3
    provider.gate.set()
    until(lambda: get(server, document)["status"] == "executed", "it never ended")
    until(lambda: sent(provider, "/mails"), "the mail was not sent")
    status, _, replay = refund(server)
    assert status == 200 and replay["outcome"] == {"rma": "R1", "summary": "Refunded."}
    keys = {key for _, key, _ in provider.got}
    assert provider.calls == 1 and len(provider.got) == 3 == len(keys)
    assert {"amount": 5, "card": "4111-secret", "rma": "R1",
        "note": f"by ana for {document['command_id']}"} in sent(provider, "/refunds")
    assert {"amount": 1} in sent(provider, "/refunds")
    assert sent(provider, "/mails") == [{"key": document["idempotency_key"]}]


def test_they_are_effects_like_any(make_server, provider):
    server = make_server(config=config(provider))
    document = refund(server)[2]
    until(lambda: get(server, document)["status"] == "executed", "it never ended")
    until(lambda: len(provider.got) == 3, "the mail was not sent")
    listed = server.request("GET", "/v1/effects")[2]["effects"]
    assert [one["command_id"] for one in listed] == 3 * [document["operation_id"]]
    assert sorted(str(one["target"]) for one in listed) == ["ana@x",
        "{'order_id': '204', 'part': 'goods'}", "{'order_id': '204'}"]
    entries = [entry for one in listed for entry in
        server.request("GET", "/v1/evidence?operation_id=" + one["effect_id"])[2]["entries"]]
    assert {entry["command_id"] for entry in entries if entry["type"].startswith("effect.")} == {
        document["operation_id"]}
    everything = str(listed) + str(entries) + str(get(server, document))
    assert "4111-secret" not in everything


def test_a_command_that_fails_makes_none(make_server, provider):
    provider.handler_status = 422
    server = make_server(config=config(provider))
    assert refund(server)[2]["status"] == "failed"
    assert not server.request("GET", "/v1/effects")[2]["effects"]


def test_a_value_that_the_answer_lacks_blocks(make_server, provider):
    provider.answers = {"summary": "Refunded."}
    server = make_server(config=config(provider))
    status, _, problem = refund(server)
    assert status == 504 and problem["code"] == "outcome_unknown"
    document = get(server, problem)
    assert document["status"] == "blocked" and "outcome.rma" in document["reason"], document
    assert not server.request("GET", "/v1/effects")[2]["effects"]


def test_a_value_that_the_envelope_lacks_is_refused_before_the_handler(make_server, provider):
    text = config(provider).replace("order_id: \"{target.order_id}\"", "id: \"{target.id}\"")
    server = make_server(config=text)
    status, _, problem = refund(server)
    assert status == 422 and "target.id" in problem["detail"], problem
    assert provider.calls == 0


def test_a_required_one_that_fails_fails_the_command(make_server, provider):
    provider.refund_status = 402
    server = make_server(config=config(provider))
    document = refund(server)[2]
    until(lambda: get(server, document)["status"] == "failed", "it never failed")


def test_they_are_undone_with_their_command(make_server, provider):
    server = make_server(config=config(provider))
    document = refund(server)[2]
    until(lambda: get(server, document)["status"] == "executed", "it never ended")
    until(lambda: len(provider.got) == 3, "the mail was not sent")
    status, _, _ = server.request("POST", document["status_url"] + "/recover",
        {"action": "compensate"})
    assert status == 200
    until(lambda: get(server, document)["status"] == "compensated", "it was never undone")
    assert sent(provider, "/charges") == [{}, {"amount": 1}, {"amount": 5}]  # the last one first


def test_a_reconciled_outcome_makes_them_too(make_server, provider):
    provider.handler_status = 500
    server = make_server(config=config(provider, reconcile=RECONCILE))
    status, _, problem = refund(server)
    assert status == 504
    until(lambda: get(server, problem)["status"] == "executed", "it never ended")
    assert len(sent(provider, "/refunds")) == 2 and provider.calls == 1


def test_a_kill_while_they_are_awaited_makes_no_second_one(make_server, provider):
    provider.gate.clear()
    server = make_server(config=config(provider))
    document = refund(server)[2]
    server.kill9()
    provider.gate.set()
    server.restart()
    until(lambda: get(server, document)["status"] in ("executed", "awaiting_effects"), "lost")
    assert get(server, document)["effects"]["count"] == 3
    assert len(server.request("GET", "/v1/effects")[2]["effects"]) == 3
    assert provider.calls == 1


@pytest.mark.parametrize("old, new, says", [
    ("- effect: mail.send", "- effect: mail.sned", "does not exist: 'mail.sned'"),
    ('target: "{args.to}"', 'target: "{arg.to}"', "there is no value called {arg.to}"),
    ('target: "{args.to}"', 'target: "{args.too}"', "not a required argument"),
    ("to: {type: string, required: true,", "to: {type: string,", "not a required argument"),
    ('target: "{args.to}"', 'target: "{args.card}"', "would show it"),
    ("redact: [/card], ", "", "would show it"),
    ("payload: {amount: 1}", "target: {}", "payload"),
    ("payload: {amount: 1}", "payloads: {amount: 1}", "payloads"),
    ("      - effect: mail.send", "      - payment.refund\n      - effect: mail.send",
        "its handler may return it too"),
])
def test_a_wrong_declaration_does_not_load(tmp_path, provider, old, new, says):
    text = config(provider)
    assert text.count(old) == 1 or old.startswith("redact")
    path = tmp_path / "once.yaml"
    path.write_text(text.replace(old, new, 1))
    done = subprocess.run([BINARY, "check", path], capture_output=True, text=True, check=False)
    assert done.returncode == 78 and says in done.stdout + done.stderr, done
    line = (done.stdout + done.stderr).split(": ")[0].split(":")
    assert line[0] == str(path) and int(line[1]) > 0 and int(line[2]) > 0, line


def test_a_right_declaration_loads_and_is_shown(tmp_path, provider):
    path = tmp_path / "once.yaml"
    path.write_text(config(provider))
    done = subprocess.run([BINARY, "registry", "--config", path], capture_output=True, text=True,
        check=True)
    assert "effects payment.refund,payment.refund,mail.send" in done.stdout
