"""POST /v1/effects and what operates on effects, held against the document. The provider is not
there (its port is closed), so that an effect stays pending unless a person acts."""
import concurrent.futures
import json
import signal
import subprocess
from urllib.parse import quote, urlencode

import pytest

import stores
from once_server import BINARY, until
from test_openapi import OPERATIONS, check

NOBODY = "eff_01890a5d-ac96-774b-bcce-b302099a8057"

CONFIG = """
connectors:
  pay:
    url: http://127.0.0.1:9
    idempotency: {header: Idempotency-Key, keeps: 24h}
  other:
    url: http://127.0.0.1:9
    tenants: [acme]
  body:
    url: http://127.0.0.1:9
    idempotency: {body: /meta/key}
effects:
  body.put: {connector: body}
  payment.capture:
    connector: pay
    request: {path: "/v1/charges/{target.order_id}"}
    provider_ref: /id
    irreversible: true
    compensate:
      effect: payment.refund
      payload: {charge: "{provider_ref}", amount: "{payload.amount}"}
    redact: [/card]
    retry: {backoff: 1h, backoff_max: 1h}
  payment.refund:
    connector: pay
    retry: {backoff: 1h, backoff_max: 1h}
  mail.send:
    connector: other
"""
LATER = "2999-01-01T00:00:00.000Z"
CAPTURE = {"effect_type": "payment.capture", "command_id": "order-7",
           "target": {"order_id": "A/1"}, "not_before": LATER,
           "payload": {"amount": 1200, "card": "4111111111111111", "note": "planted-secret"}}


class Effects:
    """Asks by operationId; every answer is held against the document."""

    def __init__(self, server):
        self.server = server

    def ask(self, name, body=None, effect_id=None, query=None):
        method, path, _ = OPERATIONS[name]
        path = path.replace("{effect_id}", effect_id or NOBODY)
        path += "?" + urlencode(query) if query else ""
        return check(name, self.server.request(method, path, body, {}))

    def create(self, **more):
        status, _, answer = self.ask("createEffect", {**CAPTURE, **more})
        assert status == 202, answer
        return answer


@pytest.fixture
def effects(make_server):
    return Effects(make_server(config=CONFIG))


def test_an_effect_is_written_down_once(effects):
    first = effects.create()
    assert (first["decision"], first["status"]) == ("first_seen", "pending")
    assert first["status_url"] == "/v1/effects/" + first["effect_id"]
    again = effects.create(trace={"correlation_id": "c"}, attempt=3)
    assert (again["decision"], again["effect_id"]) == ("in_progress", first["effect_id"])
    shown = effects.ask("getEffect", None, first["effect_id"])[2]
    assert shown["payload"] == {"amount": 1200, "card": "[redacted]", "note": "planted-secret"}
    assert (shown["duplicates"], shown["attempt"], shown["uncertain"]) == (1, 0, False)
    assert (shown["command_id"], shown["target"]) == ("order-7", {"order_id": "A/1"})


def test_the_key_is_the_one_that_once_key_derives(effects):
    made = effects.create(ordinal=2)
    envelope = {**CAPTURE, "ordinal": 2, "tenant_id": "default"}
    del envelope["not_before"]
    done = subprocess.run([BINARY, "key", "effect"], input=json.dumps(envelope), text=True,
        capture_output=True, check=True, timeout=60)
    assert done.stdout.split()[0] == made["idempotency_key"]
    given = effects.create(idempotency_key="mine")
    assert given["idempotency_key"] == "mine" and given["effect_id"] != made["effect_id"]


@pytest.mark.parametrize("given, shown", [
    ("2999-01-01T00:00:00Z", "2999-01-01T00:00:00.000Z"),
    ("2999-01-01T02:00:00.5+02:00", "2999-01-01T00:00:00.500Z"),
    ("2999-01-01t00:00:00.1230001z", "2999-01-01T00:00:00.124Z")])  # not before it
def test_not_before_is_any_time_of_rfc_3339(effects, given, shown):
    made = effects.create(not_before=given)
    assert effects.ask("getEffect", None, made["effect_id"])[2]["next_attempt_at"] == shown


def test_another_payload_is_a_conflict_that_shows_no_secret(effects):
    effects.create()
    for payload, value in (({**CAPTURE["payload"], "amount": 1}, 1),
                           ({**CAPTURE["payload"], "card": "4222222222222222"}, "[redacted]")):
        status, _, body = effects.ask("createEffect", {**CAPTURE, "payload": payload})
        assert (status, body["code"]) == (409, "idempotency_conflict")
        assert [step["value"] for step in body["diff"]] == [value]
        assert "4222" not in json.dumps(body) and "4111" not in json.dumps(body)
    assert effects.ask("getEffect", None, effects.create()["effect_id"])[2]["attempt"] == 0


@pytest.mark.parametrize("change, status, code, says", [
    ({"effect_type": "payment.none"}, 404, "unknown_effect_type", "payment.none"),
    ({"effect_type": "mail.send"}, 404, "unknown_effect_type", "mail.send"),
    ({"effect_type": None}, 422, "invalid_member", "effect_type"),
    ({"payload": ...}, 422, "missing_member", "payload"),
    ({"command_id": ...}, 422, "missing_member", "idempotency_key"),
    ({"target": ...}, 422, "invalid_member", "{target.order_id} is absent"),
    ({"target": {"order_id": ".."}}, 422, "invalid_member", "cannot stand in a path"),
    ({"payload": {"card": "x"}}, 422, "invalid_member", "{payload.amount} is absent"),
    ({"effect_type": "body.put"}, 422, "invalid_member", "idempotency.body (/meta/key)"),
    ({"effect_type": "body.put", "payload": {"meta": []}}, 422, "invalid_member", "no object"),
    ({"ordinal": -1}, 422, "invalid_member", "ordinal"),
    ({"ordinal": "1"}, 422, "invalid_member", "ordinal"),
    ({"policy_refs": "p"}, 422, "invalid_member", "policy_refs"),
    ({"not_before": "soon"}, 422, "invalid_member", "not_before"),
    ({"not_before": "2999-02-30T00:00:00Z"}, 422, "invalid_member", "not_before"),
    ({"wait": "2m"}, 422, "invalid_member", "wait_ms_max"),
    ({"nothing": 1}, 422, "unknown_member", "nothing"),
    ({"tenant_id": "evil"}, 403, "tenant_mismatch", "tenant_id"),
    ({"target": {"order_id": 9007199254740993}}, 422, "invalid_member", "9007199254740993"),
    ({"x_long": "x" * 5000}, 422, "invalid_member", "detail_bytes_max"),
    ({"payload": {"amount": 1, "x": "x" * 1048576}}, 422, "invalid_member",
     "effect_payload_bytes_max"),
])
def test_what_is_wrong_is_refused_by_its_name(effects, change, status, code, says):
    body = {**CAPTURE, **change}
    body = {name: value for name, value in body.items() if value is not ...}
    answer = effects.ask("createEffect", body)
    assert (answer[0], answer[2]["code"]) == (status, code), answer[2]
    assert says in answer[2]["detail"]
    assert effects.ask("listEffects")[2]["effects"] == []


@pytest.mark.parametrize("member", ["effect_type", "effect_id", "command_id", "idempotency_key"])
def test_a_name_with_a_control_character_is_refused_by_its_member(effects, member):
    for text, point in (("a\0b", "U+0000"), ("a\x1b[31m", "U+001B"), ("a\x85", "U+0085")):
        status, _, problem = effects.ask("createEffect", {**CAPTURE, member: text})
        assert (status, problem["code"]) == (422, "invalid_member"), problem
        assert problem["detail"] == f"{member} has the control character {point} at byte 1"
    assert effects.ask("listEffects")[2]["effects"] == []


def test_extensions_are_kept(effects):
    made = effects.create(x_shop={"a": [1]}, extensions={"k": None}, policy_refs=["p1"],
        effect_id="mine-1", trace={"correlation_id": "c1"})
    assert made["effect_id"] == "mine-1"
    shown = effects.server.request("GET", made["status_url"])[2]
    assert shown["x_shop"] == {"a": [1]} and shown["extensions"] == {"k": None}
    assert (shown["policy_refs"], shown["effect_id"]) == (["p1"], "mine-1")
    assert shown["trace"]["correlation_id"] == "c1"
    assert shown["once_effect_id"] == made["status_url"].rsplit("/", 1)[1]


@pytest.mark.parametrize("given", ["mine-1", "a/b é", "7b0e6d5c-0000-4000-8000-000000000001",
    "eff_7b0e6d5c-0000-4000-8000-000000000001"])
def test_the_id_that_was_given_names_the_effect(effects, given):
    effects.create(effect_id=given)
    effects.create(ordinal=1)
    path = quote(given, safe="")
    shown = effects.ask("getEffect", None, path)[2]
    assert (shown["effect_id"], shown["status"]) == (given, "pending")
    assert effects.ask("cancelEffect", {"reason": "no"}, path)[2]["status"] == "failed"
    assert effects.ask("retryEffect", {}, path)[0] == 409
    assert effects.ask("compensateEffect", {"reason": "no"}, path)[0] == 409
    assert effects.ask("getEffect", None, "nobody")[0] == 404
    status, _, refused = effects.ask("createEffect", {**CAPTURE, "payload": {"amount": 1}})
    assert (status, refused["effect_id"]) == (409, given)
    assert refused["operation_id"] == shown["once_effect_id"]


def test_lists_are_filtered(effects):
    ids = [effects.create(ordinal=i)["effect_id"] for i in range(3)]
    effects.create(command_id="order-8")
    effects.ask("cancelEffect", {"reason": "no"}, ids[0])

    def listed(**query):
        page = effects.ask("listEffects", None, None, query)[2]
        return {one["effect_id"] for one in page["effects"]}
    assert len(listed()) == 4
    assert listed(status="failed") == {ids[0]}
    assert listed(status="pending", command_id="order-7") == set(ids[1:])
    assert listed(uncertain="true") == set() and listed(effect_type="payment.refund") == set()
    assert effects.ask("listEffects", None, None, {"status": "gone"})[0] == 400
    pages, after = set(), ""
    while after is not None:
        page = effects.ask("listEffects", None, None, {"limit": 1, "after": after})[2]
        pages |= {one["effect_id"] for one in page["effects"]}
        after = page["next"]
    assert pages == listed()


def test_what_is_cancelled_stays_so_and_is_replayed(effects):
    made = effects.create()
    first = effects.ask("cancelEffect", {"reason": "withdrawn"}, made["effect_id"])
    assert (first[0], first[2]["status"]) == (200, "failed")
    assert first[2]["acknowledgement"]["status"] == "rejected"
    assert effects.ask("cancelEffect", None, made["effect_id"])[2]["status"] == "failed"
    status, _, replay = effects.ask("createEffect", CAPTURE)
    assert (status, replay["decision"], replay["status"]) == (200, "duplicate_replayed", "failed")
    assert replay["reason"] == "withdrawn"
    for name in ("retryEffect", "compensateEffect"):
        assert effects.ask(name, {}, made["effect_id"])[2]["code"] == "wrong_status"
    resolve = {"status": "not_sent", "reason": "x"}
    assert effects.ask("resolveEffect", resolve, made["effect_id"])[0] == 409


def test_operating_on_nothing_and_with_nothing(effects):
    for name in ("retryEffect", "cancelEffect", "compensateEffect", "getEffect"):
        assert effects.ask(name)[2]["code"] == "effect_not_found"
        assert effects.ask(name, None, "op_01890a5d-ac96-774b-bcce-b302099a8057")[0] == 404
    made = effects.create()["effect_id"]
    for body, says in (({}, "status"), ({"status": "maybe", "reason": "x"}, "not_sent"),
                       ({"status": "failed"}, "reason"),
                       ({"status": "failed", "reason": "x", "attempt": 0}, "attempt")):
        status, _, answer = effects.ask("resolveEffect", body, made)
        assert status == 422 and says in answer["detail"]
    body = {"status": "failed", "reason": "x", "attempt": 7}
    assert effects.ask("resolveEffect", body, made)[2]["code"] == "stale_attempt"
    assert effects.ask("retryEffects", {"dry_run": True})[2] == {
        "dry_run": True, "matched": 0, "effects": [], "retried": 0, "has_more": False}
    assert effects.ask("retryEffects", {"status": "pending"})[0] == 422
    assert effects.ask("retryEffects", {"limit": 1001})[0] == 422


def test_who_made_it_waits_for_its_end_without_being_a_duplicate(effects):
    later = {"not_before": "2100-01-01T00:00:00Z"}
    made = effects.create(wait="200ms", **later)
    assert (made["decision"], made["status"]) == ("first_seen", "pending")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(effects.ask, "createEffect",
            {**CAPTURE, "idempotency_key": "other", "wait": "30s", **later})
        until(lambda: len(effects.ask("listEffects")[2]["effects"]) == 2, "not made")
        other, = [one["effect_id"] for one in effects.ask("listEffects")[2]["effects"]
                  if one["idempotency_key"] == "other"]
        effects.ask("cancelEffect", {}, other)
        status, _, ended = waiting.result()
    assert (status, ended["decision"], ended["status"]) == (200, "first_seen", "failed")
    for effect_id, types in ((made["effect_id"], ["effect.created"]),
                             (other, ["effect.created", "effect.cancelled"])):
        assert effects.ask("getEffect", None, effect_id)[2]["duplicates"] == 0
        _, _, page = effects.server.request("GET", f"/v1/evidence?operation_id={effect_id}")
        assert [entry["type"] for entry in page["entries"]] == types
    status, _, again = effects.ask("createEffect", {**CAPTURE, "idempotency_key": "other"})
    assert (status, again["decision"], again["duplicates"]) == (200, "duplicate_replayed", 1)


# --- Effects of a seal ----------------------------------------------------------------------------


def begin(server, key):
    status, _, grant = server.request("POST", "/v1/fences",
        {"scope": "s", "key": key, "payload": 1})
    assert status == 201
    return grant


def seal(server, grant, effects, **more):
    body = {"fence": grant["fence"], "status": "executed", "effects": effects, **more}
    return check("sealFence",
        server.request("POST", f"/v1/fences/{grant['operation_id']}/seal", body))


OF_SEAL = {name: value for name, value in CAPTURE.items() if name != "command_id"}


def test_a_seal_writes_its_effects_down_in_its_commit(effects):
    server = effects.server
    grant = begin(server, "k1")
    envelopes = [OF_SEAL, {**OF_SEAL, "ordinal": 1, "effect_id": "mine"}]
    status, _, sealed = seal(server, grant, envelopes)
    assert (status, sealed["decision"], len(sealed["effects"])) == (200, "sealed", 2)
    shown = server.request("GET", sealed["effects"][1]["status_url"])[2]
    assert (shown["command_id"], shown["ordinal"]) == (grant["operation_id"], 1)
    assert sealed["effects"][1]["effect_id"] == shown["effect_id"] == "mine"
    # Whatever became of the effects meanwhile, the same seal gets the same answer.
    assert effects.ask("cancelEffect", {}, "mine")[2]["status"] == "failed"
    again = seal(server, grant, envelopes)
    assert again[2] == sealed
    assert len(effects.ask("listEffects")[2]["effects"]) == 2


def test_a_seal_and_its_effects_happen_together_or_not_at_all(effects):
    server = effects.server
    taken = effects.create(idempotency_key="taken")
    grant = begin(server, "k2")
    other = {**OF_SEAL, "idempotency_key": "taken", "payload": {"amount": 7}}
    status, _, refused = seal(server, grant, [OF_SEAL, other])
    assert (status, refused["code"], refused["effect"]) == (409, "idempotency_conflict", "no")
    shown = server.request("GET", "/v1/operations/" + grant["operation_id"])[2]
    assert shown["status"] == "in_progress"
    listed = [one["effect_id"] for one in effects.ask("listEffects")[2]["effects"]]
    assert listed == [taken["effect_id"]]
    stale = {**grant, "fence": grant["fence"] + 1000}
    status, _, refused = seal(server, stale, [OF_SEAL])
    assert (status, refused["code"]) == (409, "stale_fence")
    assert len(effects.ask("listEffects")[2]["effects"]) == 1
    for bad, status, code in (({**OF_SEAL, "effect_type": "none"}, 404, "unknown_effect_type"),
                              ({**OF_SEAL, "wait": "1s"}, 400, "invalid_member"),
                              ({**OF_SEAL, "x": 1}, 400, "unknown_member"),
                              (7, 400, "invalid_body")):
        answer = seal(server, grant, [OF_SEAL, bad])
        assert (answer[0], answer[2]["code"]) == (status, code)
        assert "effects[1]" in answer[2]["detail"]
    assert len(effects.ask("listEffects")[2]["effects"]) == 1
    assert seal(server, grant, [OF_SEAL])[0] == 200


def test_a_seal_that_one_of_its_effects_refuses_is_in_the_evidence(effects):
    server = effects.server
    taken = effects.create(idempotency_key="taken")
    grant = begin(server, "k3")
    other = {**OF_SEAL, "idempotency_key": "taken", "payload": {"amount": 1}}
    status, _, refused = seal(server, grant, [{**OF_SEAL, "idempotency_key": "fresh"}, other])
    assert (status, refused["code"]) == (409, "idempotency_conflict")
    entries = server.request("GET", "/v1/evidence?operation_id=" + taken["effect_id"])[2]["entries"]
    assert [one["type"] for one in entries] == ["effect.created", "execution.rejected"]
    conflict = entries[1]["conflict"]
    assert conflict["stored_fingerprint"] == entries[0]["decided"]["fingerprint"]
    assert conflict["received_fingerprint"] == entries[1]["decided"]["fingerprint"]
    assert conflict["stored_fingerprint"] != conflict["received_fingerprint"]
    assert entries[1]["dedupe"]["decision"] == "conflict_rejected"
    assert [one["type"] for one in server.request("GET", "/v1/evidence?operation_id="
        + grant["operation_id"])[2]["entries"]] == ["execution.started"]  # it was not sealed
    assert effects.ask("getEffect", None, taken["effect_id"])[2]["duplicates"] == 1
    # Two of one seal that differ: none of them is there to be in conflict with.
    twice = [{**OF_SEAL, "idempotency_key": "new", "payload": {"amount": one}} for one in (1, 2)]
    assert seal(server, grant, twice)[0] == 409
    assert seal(server, grant, [{**OF_SEAL, "idempotency_key": "fresh"}])[0] == 200
    assert len(effects.ask("listEffects")[2]["effects"]) == 2


def test_seals_of_a_batch_carry_effects(effects):
    server = effects.server
    one, two = begin(server, "k3"), begin(server, "k4")
    items = [{"operation_id": grant["operation_id"], "fence": grant["fence"] + more,
        "status": "executed", "effects": [OF_SEAL, {**OF_SEAL, "ordinal": 1}]}
        for grant, more in ((one, 0), (two, 1000))]
    answers = check("batchFences", server.request("POST", "/v1/fences/batch", items))[2]
    assert len(answers[0]["effects"]) == 2 and answers[1]["code"] == "stale_fence"
    assert len(effects.ask("listEffects")[2]["effects"]) == 2
    too_many = [{**items[0], "effects": [OF_SEAL] * 64}] * 20
    answer = check("batchFences", server.request("POST", "/v1/fences/batch", too_many))
    assert (answer[0], answer[2]["code"]) == (400, "batch_too_large")


def test_nothing_of_a_payload_is_readable_at_rest(effects):
    effects.create()
    effects.create(ordinal=1, effect_id="with-a-name")
    for path in effects.server.directory.rglob("*"):
        if path.is_file():
            assert b"planted-secret" not in path.read_bytes(), path
            assert b"4111111111111111" not in path.read_bytes(), path


def test_a_changed_connector_is_evidence_with_its_secret_as_a_digest(make_server, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("tok-one\n")
    config = CONFIG.replace("url: http://127.0.0.1:9\n", f"url: http://127.0.0.1:9\n    auth: "
        f"{{bearer_file: {secret}}}\n", 1)
    server = make_server(config=config)
    secret.write_text("tok-two\n")
    path = server.directory / "once.yaml"
    path.write_text(path.read_text().replace("keeps: 24h", "keeps: 12h"))
    server.signal(signal.SIGHUP)

    def said():
        entries = server.request("GET", "/v1/evidence")[2]["entries"]
        reasons = [e["outcome"]["reason"] for e in entries if e["type"] == "config.changed"]
        return [reason for reason in reasons if reason.startswith("connector ")]
    until(said, "a config.changed entry")
    assert len(said()) == 1 and said()[0].startswith("connector 'pay' changed: idempotency.keeps")
    assert " secret sha256:" in said()[0] and "tok" not in said()[0]


def test_the_first_effects_need_a_restart_and_the_server_says_so(make_server):
    """A body's key is chosen when a server starts: a reload refuses the file whole, and tells."""
    server = make_server(config="listen: 127.0.0.1:0\n")
    (server.directory / "once.yaml").write_text(stores.with_key(CONFIG))
    server.signal(signal.SIGHUP)
    until(lambda: "the server was started without any" in server.stderr(), "it says nothing")
    assert "restart" in server.stderr()
    status, _, answer = server.request("POST", "/v1/effects", {"effect_type": "payment.capture",
        "command_id": "c", "target": {"order_id": "1"}, "payload": {}})
    assert (status, answer["code"]) == (404, "unknown_effect_type")
    server.stop()
    server.restart()
    assert server.request("POST", "/v1/effects", {"effect_type": "payment.capture",
        "command_id": "c", "target": {"order_id": "1"}, "payload": {"amount": 1}})[0] == 202
