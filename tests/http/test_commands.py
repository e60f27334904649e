"""Commands over HTTP: submission, confirmation, execution, status (IDS-1 … IDS-16)."""
import hashlib
import json
import threading
import time
from urllib.parse import quote

import pytest

import stores

from once_server import LIGHT, Wire, until
from shop import envelope, refund
from test_openapi import check


@pytest.fixture
def server(make_server, shop):
    return make_server(config=shop.config())


def submit(server, command, headers=None):
    return check("submitCommand", server.request("POST", "/v1/commands", command, headers))


def get(server, command_id):
    answer = server.request("GET", f"/v1/commands/{command_id}")
    status, _, document = check("getCommand", answer)
    assert status == 200, document
    return document


def confirm(server, command_id, token, verb="confirm", headers=None, **more):
    return check(f"{verb}Command", server.request("POST", f"/v1/commands/{command_id}/{verb}",
        {"token": token, **more}, headers))


def evidence(server, command_id):
    _, _, page = server.request("GET", f"/v1/evidence?operation_id={command_id}")
    return page["entries"]


# --- Submission ---


def test_a_command_is_executed_once_and_replayed(server, shop):
    command = envelope("cancel")
    status, headers, first = submit(server, command)
    assert status == 201, first
    assert first["decision"] == "first_seen" and first["status"] == "executed"
    assert first["command_id"].startswith("cmd_") and first["summary"] == "Done: cancel."
    assert first["outcome"] == {"summary": "Done: cancel.", "count": 1}
    assert headers["Location"] == f"/v1/commands/{first['command_id']}"
    for _ in range(3):
        status, _, again = submit(server, command)
        assert status == 200 and again["decision"] == "duplicate_replayed"
        for member in ("command_id", "summary", "outcome", "idempotency_key", "created_at",
                "outcome_ref", "ttl_expires_at"):
            assert again[member] == first[member], member
    assert list(shop.calls.values()) == [1]


def test_the_handler_gets_the_envelope_and_who_calls(server, shop):
    submit(server, envelope("cancel", x_note="kept", source={"id": "wamid.1"}))
    path, headers, seen = shop.seen[0]
    assert path == "/order.cancel?shop=1"
    assert seen["intent"]["target"] == {"order_id": "204"} and seen["x_note"] == "kept"
    assert seen["tenant_id"] == "default" and seen["command_id"].startswith("cmd_")
    assert headers["Idempotency-Key"] == seen["idempotency_key"]
    assert headers["Once-Operation-Id"] == seen["command_id"]
    assert int(headers["Once-Fence"]) > 0 and headers["Once-Attempt"] == "1"


@pytest.mark.parametrize("text, outcome", [
    ('{"a":1}\n', {"a": 1}), (' [1]', [1]), ('"x"', "x"), ("null", None),
    ("done", ...), ("{done}", ...), ('{"a":1', ...), ('{"a":1,"a":2}', ...), ("", ...)])
def test_an_answer_that_is_not_json_is_shown_as_a_text(server, shop, text, outcome):
    """Every document is JSON, whatever the handler answered."""
    command = envelope("cancel", args={"do": f"says {text}"})
    for _ in range(2):
        done = submit(server, command)[2]
        shown = get(server, done["command_id"])
        for document in (done, shown):
            if outcome is ...:
                assert (document["outcome"]["code"], document["outcome"]["body"]) == (200, text)
            else:
                assert document["outcome"] == outcome
    assert list(shop.calls.values()) == [1]


def test_a_connection_to_the_handler_is_used_again(server, shop):
    for number in range(20):
        assert submit(server, envelope("cancel", order_id=str(number)))[0] == 201
    assert len(shop.seen) == 20 and len(shop.peers) < 20


def test_a_used_connection_that_breaks_leaves_the_command_unknown(server, shop):
    """As a fresh one would (P5): the handler may have done it, so nothing sends it again."""
    for number in range(0, 40, 2):  # a pause of this machine may close the idle connection
        assert submit(server, envelope("cancel", order_id=str(number)))[0] == 201
        peers = len(shop.peers)
        breaks = envelope("cancel", order_id=str(number + 1), args={"do": "silent"})
        status, _, problem = submit(server, breaks)
        assert status == 504 and problem["code"] == "outcome_unknown"
        assert set(shop.calls.values()) == {1}
        if len(shop.peers) == peers:
            return
    pytest.fail("no connection was used again")


def test_a_handler_gets_the_id_whatever_the_arguments_are_called(server, shop):
    given = [{}, {"args": {"command_id": "not this"}}, {"command_id": "m-1"}]
    for number, more in enumerate(given):
        _, _, done = submit(server, envelope("cancel", order_id=str(number), **more))
        assert shop.seen[-1][2]["command_id"] == done["command_id"]


def test_the_key_is_the_hash_of_what_is_meant(server):
    command = envelope("cancel", tenant_id="default")
    _, _, document = submit(server, command)
    form = {"tenant_id": "default", "actor_id": "ana", "args": {}, "intent": command["intent"]}
    text = json.dumps(form, sort_keys=True, separators=(",", ":"))
    assert document["idempotency_key"] == hashlib.sha256(text.encode()).hexdigest()


def test_what_is_ephemeral_does_not_change_the_key(server, shop):
    _, _, first = submit(server, envelope("cancel"))
    others = [dict(command_id="mine"), dict(source={"id": "m2"}), dict(created_at="2026-01-01"),
        dict(trace={"correlation_id": "c"}), dict(extensions={"a": 1}), dict(x_any=[1]),
        dict(args={}), dict(tenant_id="default")]
    for more in others:
        status, _, document = submit(server, envelope("cancel", **more))
        assert (status, document["command_id"]) == (200, first["command_id"]), more
    assert sum(shop.calls.values()) == 1


def test_what_is_meant_changes_the_key(server, shop):
    commands = [envelope("cancel"), envelope("cancel", actor="bob"),
        envelope("cancel", order_id="205"), envelope("cancel", args={"a": 1}),
        envelope("cancel", command_kind="bulk"), envelope("cancel", effective_actor_id="eve"),
        envelope("sync")]
    keys = set()
    for command in commands:
        status, _, document = submit(server, command)
        assert status == 201
        keys.add(document["idempotency_key"])
    assert len(keys) == len(commands) == sum(shop.calls.values())


def test_a_given_key_with_another_envelope_is_a_conflict(server, shop):
    _, _, first = submit(server, envelope("cancel", idempotency_key="k1"))
    assert first["idempotency_key"] == "k1"
    assert submit(server, envelope("cancel", idempotency_key="k1"))[0] == 200
    for other in (envelope("cancel", order_id="9", idempotency_key="k1"),
            envelope("sync", idempotency_key="k1")):
        status, _, problem = submit(server, other)
        assert status == 409 and problem["code"] == "idempotency_conflict"
        assert problem["effect"] == "no" and "outcome" not in problem
        assert problem["stored_fingerprint"] != problem["received_fingerprint"]
    entry = [e for e in evidence(server, first["command_id"]) if "conflict" in e][0]
    assert entry["type"] == "execution.rejected"
    assert entry["outcome"]["reason"] == "idempotency_conflict"
    assert entry["conflict"]["stored_fingerprint"] != entry["conflict"]["received_fingerprint"]
    assert sum(shop.calls.values()) == 1


def test_refusals_name_what_is_wrong(server, shop):
    cases = [
        (envelope("explode"), 404, "unknown_command"),
        (refund(amount=0), 422, "invalid_args"),
        (refund(amount="5"), 422, "invalid_args"),
        (refund(currency="GBP"), 422, "invalid_args"),
        (refund(args={"surprise": 1}), 422, "invalid_args"),
        (refund(args={"phone": "030 1234"}), 422, "invalid_args"),
        (envelope("refund"), 422, "invalid_args"),
        (envelope("ship"), 422, "missing_effective_actor"),
        (envelope("cancel", args={"n": 9007199254740993}), 422, "invalid_envelope"),
        (envelope("cancel", surprise=1), 422, "invalid_envelope"),
        ({"actor_id": "ana"}, 400, "missing_member"),
        ({"intent": {"entity": "order", "action": "cancel", "target": 1}}, 400, "missing_member"),
        ([], 400, "invalid_body"),
    ]
    for command, status, code in cases:
        got, _, problem = submit(server, command)
        assert (got, problem["code"], problem["effect"]) == (status, code, "no"), command
    assert not shop.calls


def test_the_bounds_of_an_argument_belong_to_it(make_server):
    server = make_server(config="""
commands:
  order.size:
    class: I1
    confirm: confirm
    handler: "http://127.0.0.1:9/size"
    args: {n: {type: integer, min: -2, max: 4}, s: {type: string, min: 2, max: 4}}
""")
    for args, status in (({"n": -2}, 202), ({"n": 4}, 202), ({"n": -3}, 422), ({"n": 5}, 422),
            ({"s": "äö"}, 202), ({"s": "äöüß"}, 202), ({"s": "ä"}, 422), ({"s": "äöüßé"}, 422)):
        assert submit(server, envelope("size", args=args))[0] == status, args


def test_arguments_are_normalised_before_the_key(server, shop):
    _, _, first = submit(server, refund(currency=" eur", args={"phone": "0049 (30) 123-4567"}))
    status, _, again = submit(server, refund(currency="EUR", args={"phone": "+49301234567"}))
    assert status == 202 and again["command_id"] == first["command_id"]
    assert first["args"]["currency"] == "EUR" and first["args"]["phone"] == "+49301234567"


def test_several_actors_of_one_principal_have_one_effect(server, shop):
    first = submit(server, envelope("ship", actor="bot-1", effective_actor_id="ana"))
    again = submit(server, envelope("ship", actor="bot-2", effective_actor_id="ana"))
    assert (first[0], again[0]) == (201, 200)
    assert first[2]["command_id"] == again[2]["command_id"]


def test_reads_run_every_time(server, shop):
    for _ in range(3):
        status, _, document = submit(server, envelope("show"))
        assert status == 201 and document["status"] == "executed"
    assert sum(shop.calls.values()) == 3


def test_a_window_ends(server, shop):
    command = envelope("note", entity="cart")
    assert submit(server, command)[0] == 201
    assert submit(server, command)[0] == 200
    until(lambda: submit(server, command)[0] == 201, "the window of a second never ended")


def test_200_duplicates_at_once_have_one_execution(server, shop):
    count = 40 if LIGHT else 200
    answers, barrier = [], threading.Barrier(count)

    def one():
        barrier.wait()
        answers.append(submit(server, envelope("cancel", args={"do": "slow"})))

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    until(lambda: len(answers) >= count - 1, "duplicates did not get the processing answer")
    shop.gate.set()
    for thread in threads:
        thread.join()
    statuses = [status for status, _, _ in answers]
    assert statuses.count(201) == 1 and set(statuses) <= {201, 200, 202, 429}
    waiting = [document for status, _, document in answers if status == 202]
    first = [document for status, _, document in answers if status == 201][0]
    assert {document["command_id"] for document in waiting} <= {first["command_id"]}
    assert list(shop.calls.values()) == [1]


def test_a_duplicate_during_progress_gets_the_processing_answer(server, shop):
    command = envelope("cancel", args={"do": "slow"}, trace={"correlation_id": "c-1"})
    first = threading.Thread(target=submit, args=(server, command))
    first.start()
    until(lambda: shop.calls, "the handler was not called")
    status, headers, document = submit(server, command)
    assert status == 202 and document["decision"] == "in_progress"
    assert document["status"] == "started" and headers["Retry-After"] == "1"
    assert document["trace"]["correlation_id"] == "c-1"
    assert document["status_url"] == f"/v1/commands/{document['command_id']}"
    assert get(server, document["command_id"])["status"] == "started"
    shop.gate.set()
    first.join()
    assert get(server, document["command_id"])["status"] == "executed"


def test_a_client_that_leaves_changes_nothing(server, shop):
    command = envelope("cancel", args={"do": "slow"})
    with server.wire() as wire:
        wire.send(b"")
        from once_server import request_bytes
        wire.send(request_bytes("POST", "/v1/commands", command))
        until(lambda: shop.calls, "the handler was not called")
    shop.gate.set()
    until(lambda: submit(server, command)[0] == 200, "it was never executed")
    assert list(shop.calls.values()) == [1]


def test_a_rate_of_the_registry_is_kept(make_server, shop):
    more = f'  order.spam: {{rate: 2, handler: "{shop.url}/order.spam"}}\n'
    server = make_server(config=shop.config(more=more))
    answers = [submit(server, envelope("spam", order_id=str(i))) for i in range(6)]
    statuses = [status for status, _, _ in answers]
    assert statuses[:2] == [201, 201] and 429 in statuses
    assert sum(shop.calls.values()) == statuses.count(201)


# --- The handler's contract ---


def test_a_final_failure_is_replayed(server, shop):
    command = envelope("cancel", args={"do": "fail"})
    status, _, first = submit(server, command)
    assert status == 200 and first["status"] == "failed" and first["outcome_code"] == 422
    assert first["outcome"]["why"] == "too late"
    status, _, again = submit(server, command)
    assert status == 200 and again["outcome"] == first["outcome"]
    assert list(shop.calls.values()) == [1]


@pytest.mark.parametrize("what", ["busy 2", "no_effect 2"])
def test_what_was_not_done_is_called_again(server, shop, what):
    status, _, document = submit(server, envelope("cancel", args={"do": what}))
    assert status == 202 and document["status"] == "received"
    until(lambda: get(server, document["command_id"])["status"] == "executed", "never executed")
    assert get(server, document["command_id"])["attempt"] == 3
    assert list(shop.calls.values()) == [3]


def test_attempts_are_bounded_and_a_person_may_try_again(server, shop):
    command = envelope("cancel", args={"do": "busy 3"})
    _, _, document = submit(server, command)
    command_id = document["command_id"]
    until(lambda: get(server, command_id)["status"] == "blocked", "never given up")
    assert list(shop.calls.values()) == [3]
    recover = {"action": "retry", "reason": "the shop is back"}
    status, _, answer = check("recoverCommand",
        server.request("POST", f"/v1/commands/{command_id}/recover", recover))
    assert status == 200, answer
    until(lambda: get(server, command_id)["status"] == "executed", "never executed")
    assert list(shop.calls.values()) == [4]


@pytest.mark.parametrize("what", ["broken", "silent"])
def test_an_unknown_outcome_blocks_until_a_person_decides(server, shop, what):
    command = envelope("cancel", args={"do": what})
    status, _, problem = submit(server, command)
    assert status == 504 and problem["code"] == "outcome_unknown"
    assert problem["effect"] == "unknown"
    command_id = problem["command_id"]
    status, _, problem = submit(server, command)
    assert status == 409 and problem["code"] == "outcome_unknown"
    assert get(server, command_id)["status"] == "blocked"
    retry = {"action": "retry", "reason": "hope"}
    status, _, problem = server.request("POST", f"/v1/commands/{command_id}/recover", retry)
    assert status == 409 and problem["code"] == "outcome_unknown"
    resolve = {"status": "executed", "reason": "seen in the ledger", "outcome": {"summary": "Yes"}}
    status, _, document = check("resolveCommand",
        server.request("POST", f"/v1/commands/{command_id}/resolve", resolve))
    assert status == 200 and document["status"] == "executed"
    status, _, document = submit(server, command)
    assert status == 200 and document["summary"] == "Yes"
    assert list(shop.calls.values()) == [1]


def test_takeover_calls_an_idempotent_handler_again(server, shop):
    status, _, document = submit(server, envelope("sync", args={"do": "silent 1"}))
    assert status == 202, document
    until(lambda: get(server, document["command_id"])["status"] == "executed", "never executed")
    assert list(shop.calls.values()) == [2]
    fences = [int(headers["Once-Fence"]) for _, headers, _ in shop.seen]
    assert fences == sorted(set(fences))


def test_reconcile_asks_the_handlers_server(server, shop):
    status, _, problem = submit(server, envelope("look", args={"do": "silent"}))
    assert status == 504
    until(lambda: get(server, problem["command_id"])["status"] == "executed", "never asked")
    assert list(shop.calls.values()) == [1]


# --- Confirmation ---


def test_a_confirmation_starts_the_command_once(server, shop):
    status, _, asked = submit(server, refund(args={"card": "4111"}))
    assert status == 202 and asked["status"] == "awaiting_confirmation"
    token = asked["confirmation"]["token"]
    assert len(token) == 43
    assert asked["confirmation"]["prompt"] == "Refund 5 EUR of 204 to [redacted]?"
    status, _, again = submit(server, refund(args={"card": "4111"}))
    assert status == 202 and again["command_id"] == asked["command_id"]
    assert "token" not in again["confirmation"]
    assert again["confirmation"]["prompt"] == asked["confirmation"]["prompt"]
    assert not shop.calls
    status, _, done = confirm(server, asked["command_id"], token)
    assert status == 201 and done["status"] == "executed", done
    assert confirm(server, asked["command_id"], token)[0] == 403
    status, _, replay = submit(server, refund(args={"card": "4111"}))
    assert status == 200 and replay["summary"] == done["summary"]
    assert list(shop.calls.values()) == [1]
    assert shop.seen[0][2]["args"]["card"] == "4111"
    states = [step["state"] for step in get(server, asked["command_id"])["lifecycle"]]
    assert states == ["received", "awaiting_confirmation", "confirmed", "started", "executed"]
    types = [entry["type"] for entry in evidence(server, asked["command_id"])]
    assert types[0] == "confirmation.requested" and "confirmation.accepted" in types
    assert "execution.executed" in types


def test_what_is_redacted_is_nowhere(server, shop):
    secret = "4111-2222-3333"
    command = refund(args={"card": secret}, trace={"phone": secret, "correlation_id": "c-1"})
    command["intent"]["target"]["pin"] = secret
    _, _, asked = submit(server, command)
    submit(server, command)
    confirm(server, asked["command_id"], asked["confirmation"]["token"])
    shown = json.dumps([asked, get(server, asked["command_id"]),
        evidence(server, asked["command_id"]), server.request("GET", "/v1/commands")[2]])
    assert shown.count("[redacted]") >= 9 and secret not in shown
    assert asked["trace"]["correlation_id"] == "c-1"
    assert secret not in server.stderr()
    assert secret in json.dumps(shop.seen[0][2]["trace"])  # the handler gets it
    server.stop()
    for path in server.data_dir.rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path


def test_every_wrong_token_gets_the_same_answer(make_server, shop):
    tokens = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("acme", "other")}
    auth = "auth:\n  tokens:\n" + "".join(
        f"    - {{sha256: \"{sha}\", tenant: {name}, rights: [execute, operate, audit]}}\n"
        for name, sha in tokens.items())
    server = make_server(config=shop.config() + auth)
    acme, other = ({"Authorization": f"Bearer {name}"} for name in ("acme", "other"))
    _, _, one = submit(server, refund(), acme)
    _, _, two = submit(server, refund(order_id="205"), acme)
    used = submit(server, refund(order_id="206"), acme)[2]
    token = one["confirmation"]["token"]
    assert confirm(server, used["command_id"], used["confirmation"]["token"],
        headers=acme)[0] == 201
    wrong = token[:-1] + ("A" if token[-1] != "A" else "B")
    ghost = "cmd_00000000-0000-7000-8000-000000000000"
    attempts = [
        confirm(server, one["command_id"], wrong, headers=acme),
        confirm(server, one["command_id"], "x", headers=acme),
        confirm(server, two["command_id"], token, headers=acme),
        confirm(server, one["command_id"], token, headers=other),
        confirm(server, one["command_id"], token, headers=acme, actor_id="bob"),
        confirm(server, used["command_id"], used["confirmation"]["token"], headers=acme),
        confirm(server, ghost, token, headers=acme),
        confirm(server, "nonsense", token, headers=acme),
    ]
    bodies = set()
    for status, _, problem in attempts:
        assert status == 403
        problem.pop("request_id")
        bodies.add(json.dumps(problem, sort_keys=True))
    assert len(bodies) == 1, bodies
    assert sum(shop.calls.values()) == 1
    assert confirm(server, one["command_id"], token, headers=acme, actor_id="ana")[0] == 201
    assert submit(server, refund(tenant_id="acme", order_id="1"), other)[0] == 403


def test_a_conflict_names_the_command_as_its_document_does(server, shop):
    first = submit(server, envelope("cancel", command_id='a"b', idempotency_key="k"))[2]
    status, _, problem = submit(server, envelope("cancel", order_id="2", idempotency_key="k"))
    assert (status, problem["code"]) == (409, "idempotency_conflict")
    assert problem["command_id"] == first["command_id"] == 'a"b'
    assert problem["operation_id"] == first["operation_id"]


def test_without_tokens_the_tenant_of_an_envelope_is_only_a_part_of_its_key(server, shop):
    first = submit(server, envelope("cancel", tenant_id="acme"))
    other = submit(server, envelope("cancel", tenant_id="globex"))
    assert (first[0], other[0], sum(shop.calls.values())) == (201, 201, 2)
    assert first[2]["idempotency_key"] != other[2]["idempotency_key"]
    document = server.request("GET", f"/v1/commands/{first[2]['command_id']}")[2]
    assert document["tenant_id"] == "default"  # P9: never what the body says
    given = [submit(server, envelope("cancel", tenant_id=one, order_id="9", idempotency_key="k"))
        for one in ("acme", "globex")]
    assert [one[0] for one in given] == [201, 409]


@pytest.mark.parametrize("given", ["cmd_123", "order/1 é", "100%41",
    "cmd_01a1ebe6-4b66-7000-801b-80707807b6e6", "cmd_7b0e6d5c-0000-4000-8000-000000000001"])
def test_the_id_that_was_given_names_the_command(make_server, shop, given):
    shas = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("acme", "other")}
    server = make_server(config=shop.config() + "auth:\n  tokens:\n" + "".join(
        f'    - {{sha256: "{sha}", tenant: {name}, rights: [execute, operate]}}\n'
        for name, sha in shas.items()))
    acme, other = ({"Authorization": f"Bearer {name}"} for name in shas)
    path = quote(given, safe="")
    token = submit(server, refund(command_id=given), acme)[2]["confirmation"]["token"]
    assert server.request("GET", f"/v1/commands/{path}", None, other)[0] == 404  # P9
    assert confirm(server, path, token, headers=other)[0] == 403
    assert confirm(server, path, token, headers=acme)[0] == 201
    assert confirm(server, path, token, headers=acme)[0] == 403
    status, _, shown = server.request("GET", f"/v1/commands/{path}", None, acme)
    assert (status, shown["command_id"], shown["status"]) == (200, given, "executed")
    status, _, problem = server.request(
        "POST", f"/v1/commands/{path}/recover", {"action": "retry"}, acme)
    assert (status, problem["code"]) == (409, "wrong_status")
    assert sum(shop.calls.values()) == 1


def test_wrong_tokens_are_limited(server, shop):
    _, _, asked = submit(server, refund())
    statuses = [confirm(server, asked["command_id"], f"wrong-{i}")[0] for i in range(30)]
    assert statuses[:8] == [403] * 8 and 429 in statuses
    assert not shop.calls


def test_100_confirmations_at_once_start_it_once(server, shop):
    count = 20 if LIGHT else 100
    _, _, asked = submit(server, refund())
    statuses, barrier = [], threading.Barrier(count)

    def one():
        barrier.wait()
        statuses.append(confirm(server, asked["command_id"], asked["confirmation"]["token"])[0])

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses.count(201) == 1 and set(statuses) <= {201, 403, 429}
    assert list(shop.calls.values()) == [1]


def test_a_denied_command_may_be_submitted_again(server, shop):
    _, _, asked = submit(server, refund())
    token = asked["confirmation"]["token"]
    status, _, denied = confirm(server, asked["command_id"], token, "deny", reason="no, wait")
    assert status == 200 and denied["status"] == "rejected"
    assert confirm(server, asked["command_id"], token)[0] == 403
    status, _, fresh = submit(server, refund())
    assert status == 202 and fresh["decision"] == "first_seen"
    assert fresh["confirmation"]["token"] != token
    assert confirm(server, fresh["command_id"], token)[0] == 403
    assert confirm(server, fresh["command_id"], fresh["confirmation"]["token"])[0] == 201
    assert list(shop.calls.values()) == [1]
    types = [entry["type"] for entry in evidence(server, asked["command_id"])]
    assert "confirmation.denied" in types


def test_a_confirmation_expires(make_server, shop):
    server = make_server(config=shop.config(confirm_ttl="1s"))
    _, _, asked = submit(server, refund())
    until(lambda: get(server, asked["command_id"])["status"] == "rejected", "it never expired")
    assert confirm(server, asked["command_id"], asked["confirmation"]["token"])[0] == 403
    types = [entry["type"] for entry in evidence(server, asked["command_id"])]
    assert "confirmation.expired" in types
    status, _, fresh = submit(server, refund())
    assert status == 202 and "token" in fresh["confirmation"]
    assert not shop.calls


def test_a_step_up_needs_somebody_else(make_server, shop):
    rights = {"bot": "execute", "boss": "execute, confirm", "clerk": "execute"}
    auth = "auth:\n  tokens:\n" + "".join(
        f"    - {{sha256: \"{hashlib.sha256(name.encode()).hexdigest()}\", tenant: acme, "
        f"rights: [{right}], name: {name}}}\n" for name, right in rights.items())
    server = make_server(config=shop.config(step_up="step_up") + auth)
    bot, boss, clerk = ({"Authorization": f"Bearer {name}"} for name in ("bot", "boss", "clerk"))
    _, _, asked = submit(server, envelope("void"), bot)
    token = asked["confirmation"]["token"]
    assert confirm(server, asked["command_id"], token, headers=bot)[0] == 403
    assert confirm(server, asked["command_id"], token, headers=clerk)[0] == 403
    status, _, done = confirm(server, asked["command_id"], token, headers=boss)
    assert status == 201 and done["confirmation"]["confirmed_by"] == "boss"
    _, _, own = submit(server, envelope("void", order_id="9"), boss)
    token = own["confirmation"]["token"]
    for same in (boss, {"Authorization": "bearer boss"}, {"authorization": "BEARER boss"}):
        assert confirm(server, own["command_id"], token, headers=same)[0] == 403, same
    if not stores.SHARED:  # on the directory's socket nobody has shown a token, whatever is sent
        with Wire(str(server.data_dir / "once.sock")) as wire:
            fields = {"Once-Tenant": "acme", "Authorization": "Bearer of nothing"}
            path = f"/v1/commands/{own['command_id']}/confirm"
            assert wire.request("POST", path, {"token": token}, fields)[0] == 403
    assert list(shop.calls.values()) == [1]


def test_a_body_that_cannot_be_opened_is_not_sent_and_keeps_its_token(make_server, shop, tmp_path):
    """The server is started with a key that is not the one the body was sealed with."""
    keys = [tmp_path / "right.key", tmp_path / "wrong.key"]
    for number, key in enumerate(keys):
        key.write_text(f"{number}f" * 32 + "\n")
        key.chmod(0o600)

    def config(*files):
        names = ", ".join(str(file) for file in files)
        return f"secrets: {{key_file: [{names}]}}\n" + shop.config()

    server = make_server(config=config(keys[0]))
    _, _, asked = submit(server, refund())
    _, _, other = submit(server, refund(order_id="205"))
    token = asked["confirmation"]["token"]
    server.stop()
    (server.directory / "once.yaml").write_text(config(keys[1]))
    server.restart()
    for _ in range(3):
        status, _, problem = confirm(server, asked["command_id"], token)
        assert status == 503 and problem["code"] == "unavailable", problem
        assert "secrets.key_file" in problem["detail"] and problem["effect"] == "no"
    assert confirm(server, asked["command_id"], "wrong")[0] == 403  # the same as ever
    assert confirm(server, other["command_id"], other["confirmation"]["token"], "deny")[0] == 200
    assert get(server, asked["command_id"])["status"] == "awaiting_confirmation"
    assert not shop.seen
    server.stop()
    (server.directory / "once.yaml").write_text(config(keys[1], keys[0]))
    server.restart()
    assert confirm(server, asked["command_id"], token)[0] == 201
    assert [seen["args"]["amount"] for _, _, seen in shop.seen] == [5]


# --- Status ---


def test_status_and_lists(server, shop):
    _, _, first = submit(server, envelope("cancel", command_id="mine-1"))
    submit(server, envelope("cancel", order_id="2", actor="bob"))
    submit(server, refund())
    assert first["command_id"] == "mine-1"
    assert get(server, "mine-1")["operation_id"] == first["operation_id"]
    assert get(server, first["operation_id"])["command_id"] == "mine-1"
    assert server.request("GET", "/v1/commands/nobody")[0] == 404

    def listed(query):
        status, _, page = check("listCommands", server.request("GET", "/v1/commands" + query))
        assert status == 200, page
        return page["commands"]

    assert len(listed("")) == 3
    assert [c["status"] for c in listed("?status=awaiting_confirmation")] == \
        ["awaiting_confirmation"]
    assert len(listed("?status=executed")) == 2
    for status in ("awaiting_confirmation", "executed"):  # no page is empty while there are some
        assert [c["status"] for c in listed(f"?status={status}&limit=1")] == [status]
    assert len(listed("?command=order.refund")) == 1
    assert [c["actor_id"] for c in listed("?actor_id=bob")] == ["bob"]
    assert server.request("GET", "/v1/commands?status=odd")[0] == 400


def test_the_registry_is_served_without_its_handlers(server, shop):
    status, _, registry = check("getRegistry", server.request("GET", "/v1/registry"))
    assert status == 200 and "127.0.0.1" not in json.dumps(registry)
    by_name = {command["command"]: command for command in registry["commands"]}
    assert by_name["order.refund"]["class"] == "I3"
    assert by_name["order.refund"]["args"]["amount"]["min"] == 1
    assert {name for name, command in by_name.items() if not command["mutates"]} == {"order.show"}


def test_a_reload_changes_the_registry_and_is_evidence(server, shop):
    import signal
    path = server.directory / "once.yaml"
    more = shop.config() + f'  order.pack: {{handler: "{shop.url}/order.pack"}}\n'
    path.write_text(stores.with_key(more))
    assert submit(server, envelope("pack"))[0] == 404
    server.signal(signal.SIGHUP)
    until(lambda: submit(server, envelope("pack"))[0] in (200, 201), "the registry did not change")
    _, _, page = server.request("GET", "/v1/evidence?limit=1000")
    assert any(entry["type"] == "config.changed" for entry in page["entries"])


def test_every_entry_of_a_command_has_its_trace(make_server, shop):
    """Whoever looks for a conversation finds all that became of it, not only its messages."""
    server = make_server(config=shop.config(confirm_ttl="1s"))
    lives = {"busy": envelope("cancel", args={"do": "busy 1"}), "denied": refund(order_id="1"),
        "broken": envelope("cancel", args={"do": "broken"}), "expired": refund(order_id="2"),
        "confirmed": refund(order_id="3")}
    ids = {}
    for name, command in lives.items():
        command["trace"] = {"conversation_id": name, "message_ids": ["m-1"]}
        answer = submit(server, command)[2]
        ids[name] = answer["command_id"]
        if name in ("denied", "confirmed"):
            token = answer["confirmation"]["token"]
            verb = "deny" if name == "denied" else "confirm"
            assert confirm(server, ids[name], token, verb)[0] in (200, 201)
    resolve = {"status": "failed", "reason": "seen"}
    assert server.request("POST", f"/v1/commands/{ids['broken']}/resolve", resolve)[0] == 200
    ends = {"busy": "executed", "denied": "rejected", "broken": "failed", "expired": "rejected",
        "confirmed": "executed"}
    for name, end in ends.items():
        until(lambda: get(server, ids[name])["status"] == end, f"{name} is not {end}")
        entries = evidence(server, ids[name])
        assert len(entries) > 1
        for entry in entries:
            trace = entry["trace"]
            assert (trace["conversation_id"], trace["message_ids"]) == (name, ["m-1"]), entry
        requests = [entry["trace"]["request_id"] for entry in entries if "request_id" in
            entry["trace"]]
        assert len(set(requests)) > 1 or name == "expired"  # each request has one of its own


def test_the_evidence_of_commands_can_be_decided_again(server, shop):
    submit(server, envelope("cancel"))
    submit(server, envelope("cancel"))
    _, _, asked = submit(server, refund())
    confirm(server, asked["command_id"], "wrong")
    confirm(server, asked["command_id"], asked["confirmation"]["token"])
    submit(server, envelope("cancel", order_id="7", args={"do": "busy 1"}))
    submit(server, envelope("cancel", order_id="8", args={"do": "broken"}))
    time.sleep(0.2)
    server.stop()
    checked = server.cli("verify", "--redecide", "--store", server.store)
    assert checked.returncode == 0, checked.stdout + checked.stderr


# --- Crashes ---


def test_a_kill_at_each_step_never_calls_the_handler_twice(make_server, shop):
    """After each step of the life the server is killed and started again."""
    server = make_server(config=shop.config())

    def crash():
        server.kill9()
        server.restart()

    # Waiting for its confirmation: it still does, and the token still works.
    _, _, asked = submit(server, refund())
    crash()
    assert get(server, asked["command_id"])["status"] == "awaiting_confirmation"
    # Started by the confirmation, and the handler at work: nobody knows.
    slow = refund(order_id="300", args={"do": "slow"})
    _, _, waiting = submit(server, slow)
    starter = threading.Thread(target=ask_and_forget, args=(server, waiting))
    starter.start()
    until(lambda: shop.calls, "the handler was not called")
    crash()
    starter.join()
    until(lambda: get(server, waiting["command_id"])["status"] == "blocked",
        "the killed process still holds it", 90)  # half a minute on a shared store
    assert submit(server, slow)[0] == 409
    assert confirm(server, waiting["command_id"], waiting["confirmation"]["token"])[0] == 403
    shop.gate.set()
    # Confirmed and executed: replayed.
    assert confirm(server, asked["command_id"], asked["confirmation"]["token"])[0] == 201
    crash()
    assert submit(server, refund())[0] == 200
    # To be tried again: it is, by itself.
    _, _, busy = submit(server, envelope("cancel", args={"do": "busy 1"}))
    crash()
    until(lambda: get(server, busy["command_id"])["status"] == "executed", "it was forgotten")
    # Denied.
    _, _, again = submit(server, refund(order_id="301"))
    confirm(server, again["command_id"], again["confirmation"]["token"], "deny")
    crash()
    assert get(server, again["command_id"])["status"] == "rejected"
    refunds = [key for _, _, e in shop.seen if e["intent"]["action"] == "refund"
        for key in [e["idempotency_key"]]]
    assert len(refunds) == len(set(refunds)) == 2


def ask_and_forget(server, waiting):
    try:
        confirm(server, waiting["command_id"], waiting["confirmation"]["token"])
    except Exception:  # the server was killed under it
        pass


def submit_and_forget(server, command):
    try:
        server.request("POST", "/v1/commands", command)
    except Exception:  # the server was killed under it
        pass


def start_slowly(server, shop, *actions):
    """Start each, directly or by its confirmation; their handlers are at work when this returns.
    Returns the threads that wait for the answers."""
    threads = []
    for action in actions:
        command = envelope(action, order_id="slow", args={"do": "slow"}, effective_actor_id="ana")
        if action == "wrap":
            _, _, asked = submit(server, command)
            threads.append(threading.Thread(target=ask_and_forget, args=(server, asked)))
        else:
            threads.append(threading.Thread(target=submit_and_forget, args=(server, command)))
        threads[-1].start()
    until(lambda: set(actions) <= set(shop.called()), "the handlers were not called")
    return threads


def statuses_of(server, action):
    _, _, page = server.request("GET", f"/v1/commands?command=order.{action}")
    return [command["status"] for command in page["commands"]]


@stores.journal_only("of two processes: test_command_processes.py")
def test_what_a_killed_process_had_started_is_taken_over_unasked(make_server, shop):
    """Nobody submits them again. A handler that may be called again is, whether the command was
    started by its submission or by its confirmation; one that may not is held."""
    server = make_server(config=shop.config(more=shop.takeover()))
    threads = start_slowly(server, shop, "pack", "wrap", "ship")
    submit(server, envelope("cancel", args={"do": "late 1"}))
    until(lambda: shop.called()["cancel"] == 2, "it was not called again after its 503")
    server.kill9()
    for thread in threads:
        thread.join()
    shop.gate.set()
    server.restart()
    for action in ("pack", "wrap"):
        until(lambda: statuses_of(server, action) == ["executed"], f"{action} was not taken over")
    for action in ("ship", "cancel"):
        assert statuses_of(server, action) == ["blocked"]
    server.stop()
    assert shop.called() == {"pack": 2, "wrap": 2, "ship": 1, "cancel": 2}
    checked = server.cli("verify", "--redecide", "--store", server.store)
    assert checked.returncode == 0, checked.stdout + checked.stderr
