"""The evidence of a command: its words, and the ids of its entries."""
import hashlib

import pytest

from shop import envelope, refund
from test_openapi import check


@pytest.fixture
def server(make_server, shop):
    return make_server(config=shop.config())


def submit(server, command, headers=None):
    return check("submitCommand", server.request("POST", "/v1/commands", command, headers))


def evidence(server, command_id):
    return server.request("GET", f"/v1/evidence?operation_id={command_id}")[2]["entries"]


def test_the_evidence_has_the_words_of_the_lifecycle(server, shop):
    """One word for a state, in documents and in evidence (docs/formats/evidence.md)."""
    def words(command_id):
        return [(entry["type"], entry["lifecycle_state"], entry["outcome"]["status"])
            for entry in evidence(server, command_id) if entry["type"] != "access.read"]

    _, _, asked = submit(server, refund())
    server.request("POST", asked["status_url"] + "/confirm",
        {"token": asked["confirmation"]["token"]})
    submit(server, refund())
    assert words(asked["command_id"]) == [
        ("confirmation.requested", "awaiting_confirmation", "waiting"),
        ("confirmation.accepted", "started", "in_progress"),
        ("execution.executed", "executed", "executed"),
        ("observation.emitted", "executed", "executed")]
    broken = submit(server, envelope("cancel", args={"do": "broken"}))[2]["command_id"]
    assert words(broken) == [("execution.started", "started", "in_progress"),
        ("execution.blocked", "blocked", "unknown")]


def test_the_document_of_one_command_names_its_entries(make_server, shop):
    rights = {"auditor": "execute, audit", "clerk": "execute"}
    auth = "auth:\n  tokens:\n" + "".join("    - {sha256: \"%s\", tenant: acme, rights: [%s]}\n" %
        (hashlib.sha256(name.encode()).hexdigest(), some) for name, some in rights.items())
    server = make_server(config=shop.config() + auth)
    auditor, clerk = ({"Authorization": f"Bearer {name}"} for name in rights)
    one = submit(server, envelope("cancel"), auditor)[2]
    submit(server, envelope("cancel", order_id="2"), auditor)
    submit(server, envelope("cancel"), auditor)
    assert "evidence" not in one  # a submission does not wait for a search

    def read(headers):
        status, _, document = check("getCommand",
            server.request("GET", one["status_url"], None, headers))
        assert status == 200
        return document

    page = server.request("GET", one["evidence_url"], None, auditor)[2]["entries"]
    assert read(auditor)["evidence"]["complete"] is True
    assert read(auditor)["evidence"]["entry_ids"][:3] == [entry["entry_id"] for entry in page[:3]]
    assert [entry["type"] for entry in page[:3]] == ["execution.started", "execution.executed",
        "observation.emitted"]
    # Their numbers count the entries of all tenants: they are for auditors.
    assert "evidence" not in read(clerk) and read(clerk)["evidence_url"]
    listed = server.request("GET", "/v1/commands", None, auditor)[2]["commands"]
    assert not any("evidence" in command for command in listed)
