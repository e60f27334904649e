"""A recovery is a command of its own: an id, an actor, its own idempotency, linked evidence."""
import hashlib

import pytest

from effects_help import key_file
from json_provider import JsonProvider
from once_server import until
from test_openapi import check

CONFIG = """
secrets: {{key_file: {key_file}}}
auth: {{tokens: [{{sha256: "{sha}", tenant: acme, name: ops, rights: [execute, operate, audit]}}]}}
connectors:
  pay: {{url: "{url}", idempotency: {{header: Idempotency-Key, keeps: 24h}}}}
effects:
  payment.capture: {{connector: pay, request: {{path: "/charges"}},
    retry: {{attempts: 1, backoff: 10ms}},
    compensate: {{effect: payment.refund, payload: {{amount: "{{payload.amount}}"}}}}}}
  payment.refund: {{connector: pay, request: {{path: "/refunds"}}}}
commands:
  order.pay:
    handler: "{url}/handler"
    on_effect_failure: block
    retry: {{attempts: {attempts}, backoff: 10ms, backoff_max: 10ms}}
    effects: [{{effect: payment.capture, payload: {{amount: 5}}}}]
  order.again: {{handler: "{url}/handler", on_unknown: takeover,
    retry: {{attempts: 1, backoff: 10ms}}}}
"""
HEADERS = {"Authorization": "Bearer ops"}


class Provider(JsonProvider):
    """The handler and the provider of its effects."""

    def __init__(self):
        self.calls, self.handler_status, self.charge_status = 0, 200, 200
        super().__init__()

    def answer(self, path, body, headers):
        if path == "/handler":
            self.calls += 1
            return self.handler_status, {}
        return self.charge_status if path == "/charges" else 200, {}


@pytest.fixture
def provider():
    one = Provider()
    yield one
    one.close()


def start(make_server, provider, attempts=1):
    return make_server(config=CONFIG.format(key_file=key_file(), url=provider.url,
        attempts=attempts, sha=hashlib.sha256(b"ops").hexdigest()))


def submit(server, action="pay"):
    return server.request("POST", "/v1/commands", {"actor_id": "ana", "intent": {"entity": "order",
        "action": action, "target": {"order_id": "204"}}}, HEADERS)[2]


def get(server, document):
    return server.request("GET", document["status_url"], None, HEADERS)[2]


def becomes(server, document, status):
    until(lambda: get(server, document)["status"] == status, f"it never was {status}")


def recover(server, document, action, **more):
    return check("recoverCommand", server.request("POST", document["status_url"] + "/recover",
        {"action": action, "reason": "seen", **more}, HEADERS))


def entries(server, operation_id):
    page = server.request("GET", f"/v1/evidence?operation_id={operation_id}", None, HEADERS)[2]
    return [entry for entry in page["entries"] if entry["type"] != "access.read"]


def named(found, recovery_id):
    return [entry for entry in found if entry.get("trace", {}).get("recovery_id") == recovery_id]


def test_a_repetition_is_recognised_after_the_command_moved_on(make_server, provider):
    """A lost answer: the retry was made, and the command was given up again meanwhile."""
    provider.handler_status = 503
    server = start(make_server, provider)
    document = submit(server)
    becomes(server, document, "blocked")
    status, _, first = recover(server, document, "retry", recovery_id="r-1")
    assert status == 200 and first["recovery"]["recovery_id"] == "r-1"
    until(lambda: provider.calls == 2 and get(server, document)["status"] == "blocked", "not tried")
    for _ in range(3):
        status, _, again = recover(server, document, "retry", recovery_id="r-1")
        assert status == 200 and again["recovery"] == first["recovery"]
    assert get(server, document)["attempt"] == 2 and provider.calls == 2
    status, _, problem = recover(server, document, "cancel", recovery_id="r-1")
    assert status == 409 and problem["code"] == "idempotency_conflict"
    assert recover(server, document, "retry", recovery_id="r-2")[0] == 200  # a different one
    until(lambda: provider.calls == 3, "a new recovery was taken for the old one")


def test_a_recovery_without_an_id_gets_one(make_server, provider):
    provider.handler_status = 503
    server = start(make_server, provider)
    document = submit(server)
    becomes(server, document, "blocked")
    status, _, done = recover(server, document, "cancel")
    recovery = done["recovery"]
    assert status == 200 and recovery["recovery_id"].startswith("rec_")
    assert (recovery["action"], recovery["actor"]) == ("cancel", "ops") and recovery["at"]
    story = named(entries(server, document["operation_id"]), recovery["recovery_id"])
    assert [(entry["actor"], entry["outcome"]["reason"]) for entry in story] == [("ops", "seen")]
    assert recover(server, document, "cancel", recovery_id="a\nb")[0] == 400


def test_the_evidence_of_an_undoing_names_its_recovery(make_server, provider):
    server = start(make_server, provider)
    document = submit(server)
    becomes(server, document, "executed")
    assert recover(server, document, "compensate", recovery_id="undo-1")[0] == 200
    becomes(server, document, "compensated")
    assert get(server, document)["recovery"]["recovery_id"] == "undo-1"
    types = [entry["type"] for entry in
        named(entries(server, document["operation_id"]), "undo-1")]
    assert types == ["compensation.started", "compensation.executed"]
    listed = server.request("GET", "/v1/effects", None, HEADERS)[2]["effects"]
    undo = [one for one in listed if one["effect_type"] == "payment.refund"]
    assert len(undo) == 1
    story = named(entries(server, undo[0]["effect_id"]), "undo-1")
    assert [entry["type"] for entry in story] == ["effect.created", "effect.acknowledged"]
    assert recover(server, document, "compensate", recovery_id="undo-1")[0] == 200
    server.stop()
    checked = server.cli("verify", "--redecide", "--store", server.store)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_retry_of_effects_is_noted_too(make_server, provider):
    provider.charge_status = 503
    server = start(make_server, provider)
    document = submit(server)
    becomes(server, document, "blocked")
    status, _, first = recover(server, document, "retry", recovery_id="r-1")
    assert status == 200 and first["recovery"]["recovery_id"] == "r-1", first
    becomes(server, document, "blocked")
    attempts = [one["attempt"] for one in server.request("GET", "/v1/effects", None,
        HEADERS)[2]["effects"]]
    assert recover(server, document, "retry", recovery_id="r-1")[0] == 200
    assert attempts == [one["attempt"] for one in server.request("GET", "/v1/effects", None,
        HEADERS)[2]["effects"]]


def test_a_retry_of_one_that_may_have_happened_is_noted(make_server, provider):
    provider.handler_status = 500
    server = start(make_server, provider)
    document = submit(server, "again")
    becomes(server, document, "blocked")
    assert recover(server, document, "retry", recovery_id="r-1")[0] == 200
    until(lambda: provider.calls == 2 and get(server, document)["status"] == "blocked", "not tried")
    assert get(server, document)["uncertain"] is True
    assert recover(server, document, "retry", recovery_id="r-1")[0] == 200
    assert provider.calls == 2 and get(server, document)["recovery"]["recovery_id"] == "r-1"
    assert named(entries(server, document["operation_id"]), "r-1")
