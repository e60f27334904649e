"""Names are UTF-8 without control characters, whichever door they come through; records of the time
before that rule are still read, and nobody's name breaks /metrics."""
import json
import random
import tarfile

import pytest

import prometheus
from once_server import ROOT, Wire

BEGIN = {"scope": "pay", "key": "k", "payload": 1}
BAD = {"\0": "U+0000", "\n": "U+000A", "\x1b": "U+001B", "\x7f": "U+007F", "\x85": "U+0085"}


def metrics(server):
    """The families of /metrics, if a strict reader takes them."""
    with Wire(str(server.data_dir / "once.sock")) as wire:
        wire.send(b"GET /metrics HTTP/1.1\r\nHost: once\r\n\r\n")
        status, headers, body = wire.answer_bytes()
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return prometheus.read(body)


def refused(answer, text):
    status, _, problem = answer
    assert (status, problem["code"], problem["effect"]) == (400, "invalid_member", "no"), problem
    assert problem["detail"] == text


# --- The API -------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("member", ["scope", "key", "principal", "source.type", "source.id",
    "source.version"])
def test_a_begin_with_a_control_character_is_refused_by_name(server, member, bad):
    body, (outer, _, inner) = {**BEGIN, "source": {"type": "t", "id": "i"}}, member.partition(".")
    name = f"é{bad}x"
    body[outer] = {**body["source"], inner: name} if inner else name
    refused(server.request("POST", "/v1/fences", body),
        f"{member} has the control character {BAD[bad]} at byte 2")
    assert server.request("GET", "/v1/operations")[2]["operations"] == []


def test_one_bad_name_of_a_batch_refuses_the_batch(server):
    batch = [{"begin": BEGIN}, {"begin": {**BEGIN, "key": "a\0b"}}]
    status, _, problem = server.request("POST", "/v1/fences/batch", batch)
    assert status == 400 and "key has the control character U+0000 at byte 1" in problem["detail"]
    assert server.request("GET", "/v1/operations")[2]["operations"] == []


def test_an_effect_id_with_a_control_character_seals_nothing(server):
    grant = server.request("POST", "/v1/fences", BEGIN)[2]
    seal = {"fence": grant["fence"], "status": "executed", "effect_id": "ch\n"}
    path = f"/v1/fences/{grant['operation_id']}"
    text = "effect_id has the control character U+000A at byte 2"
    refused(server.request("POST", f"{path}/seal", seal), text)
    assert server.request("POST", f"{path}/unknown", {"fence": grant["fence"]})[0] == 200
    settle = {"status": "executed", "effect_id": "ch\n", "reason": "seen"}
    path = f"/v1/operations/{grant['operation_id']}"
    refused(server.request("POST", f"{path}/resolve", settle), text)
    assert server.request("GET", path)[2]["status"] == "unknown"


def test_a_reason_is_a_text_and_may_have_lines(server):
    grant = server.request("POST", "/v1/fences", BEGIN)[2]
    hold = {"fence": grant["fence"], "reason": "one\ntwo"}
    assert server.request("POST", f"/v1/fences/{grant['operation_id']}/release", hold)[0] == 200


def test_names_of_any_other_characters_are_taken(server):
    name = 'a"b\\c é \u2028 \U0001f4b6 {} #'
    begun = server.request("POST", "/v1/fences", {**BEGIN, "scope": name, "key": name})
    assert begun[0] == 201
    shown = server.request("GET", f"/v1/operations/{begun[2]['operation_id']}")[2]
    assert (shown["scope"], shown["key"]) == (name, name)
    decisions = metrics(server)["once_decisions_total"].samples
    assert ("scope", name) in next(iter(decisions))[1]


def test_no_name_breaks_the_metrics(server):
    """The property: whatever text is given as a name, accepted or refused."""
    seed = random.randrange(1 << 32)
    rand = random.Random(seed)
    special = "\0\n\r\"\\{}=,# \x7f\x85\xa0\u2028\ufeff\U0001f4b6"
    accepted = 0
    with server.wire() as wire:
        for number in range(300):
            scope = "".join(rand.choice([chr(rand.randrange(0xd800)), rand.choice(special),
                "a"]) for _ in range(rand.randrange(1, 6)))
            body = {**BEGIN, "scope": scope, "key": f"{number}{scope}"[:40]}
            accepted += wire.request("POST", "/v1/fences", body)[0] == 201
    families = metrics(server)
    counted = sum(families["once_decisions_total"].samples.values())
    assert 0 < accepted < 300 and counted == accepted, f"seed {seed}"


# --- The command line and the configuration ------------------------------------------------------


def test_once_run_refuses_a_key_with_a_control_character(server, tmp_path):
    store = f"journal:{tmp_path / 'data'}"
    for option, member in (("--idempotency-key", "key"), ("--scope", "scope"),
            ("--tenant", "tenant")):
        words = {"--idempotency-key": "k", option: "a\x1b[31m"}
        done = server.cli("run", "--store", store, *sum(words.items(), ()), "--", "echo", "ran")
        assert done.returncode in (64, 125) and done.stdout == "", done
        assert f"{member} has the control character U+001B at byte 1" in done.stderr


def test_once_token_and_check_refuse_such_a_tenant(server, tmp_path):
    done = server.cli("token", "new", "--tenant", "a\n", "--rights", "audit")
    assert done.returncode == 64
    assert "--tenant has the control character U+000A at byte 1" in done.stderr
    config = tmp_path / "once.yaml"
    digest = "0" * 64
    for text in (f'auth: {{tokens: [{{sha256: "{digest}", tenant: "a\\x01b", rights: [audit]}}]}}',
            'gateway: {routes: [{match: "POST /**", upstream: "http://127.0.0.1:1", '
            'tenant: "a\\x01b"}]}'):
        config.write_text(text + "\n")
        done = server.cli("check", config)
        assert done.returncode == 78, done
        assert "tenant has the control character U+0001 at byte 1" in done.stderr, done.stderr


# --- The gateway ---------------------------------------------------------------------------------


def test_a_gateway_refuses_a_key_that_is_not_printable(gateway, origin):
    for key in (b"a\x01b", b"a\x7fb", b'"a\x7fb"', b"a\xc2\x85b", b"a\0b"):
        with gateway.peer() as peer:
            peer.send(b"POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: " + key +
                b"\r\nContent-Length: 2\r\n\r\n{}")
            assert peer.read("POST").status == 400
    assert not origin.effects
    metrics(gateway)


def test_a_path_with_control_characters_stays_encoded(gateway, origin):
    for path in ("/pay%0a", "/pay%C2%85", "/pay%7F", "/pay%1b"):
        gateway.send("POST", path, {"amount": 1}, key="k")
    scopes = {operation["scope"] for operation in gateway.operations()}
    assert all(scope.isprintable() and scope.isascii() for scope in scopes) and scopes
    metrics(gateway)


def test_an_effect_id_of_the_upstream_that_is_no_name_is_left_out(gateway, origin):
    answer = gateway.post("k", do="field=Once-Effect-Id:a%C2%85b")
    assert answer.status == 200
    operation, = gateway.operations()
    assert operation["status"] == "executed" and "effect_id" not in operation


# --- What is older than the rule -----------------------------------------------------------------


@pytest.fixture
def old(make_server, tmp_path):
    with tarfile.open(ROOT / "tests/vectors/journal-names/journal.tar.gz") as archive:
        archive.extractall(tmp_path)
    return make_server(data_dir=tmp_path / "journal")


def by_key(server):
    listed = server.request("GET", "/v1/operations")[2]["operations"]
    return {operation["key"]: operation for operation in listed}


def test_older_records_are_shown_with_their_names(old):
    found = by_key(old)
    assert set(found) == {"a\0b", "unknown\r", "in progress\x1b[31m", "a"}
    assert {operation["scope"] for operation in found.values()} == {"w\0x"}
    one, = old.request("GET", "/v1/operations?scope=w%00x&key=a")[2]["operations"]
    assert one["operation_id"] == found["a"]["operation_id"]
    sealed = found["a\0b"]
    assert (sealed["principal"], sealed["effect_id"]) == ("p\x9f", "e\x02")
    assert sealed["source"] == {"type": "t\n", "id": "i\x7f", "version": "\x01"}


def test_older_records_are_settled_by_their_ids_and_break_no_metrics(old):
    found = by_key(old)
    running, unknown = found["in progress\x1b[31m"], found["unknown\r"]
    status, _, answer = old.request("POST", f"/v1/fences/{running['operation_id']}/seal",
        {"fence": running["fence"], "status": "executed"})
    assert (status, answer["decision"]) == (200, "sealed")
    assert old.request("POST", f"/v1/operations/{unknown['operation_id']}/resolve",
        {"status": "failed", "reason": "looked it up"})[0] == 200
    samples = metrics(old)["once_decisions_total"].samples
    for decision in ("sealed", "resolved"):
        labels = {"decision": decision, "scope": "_other", "tenant": "default"}
        assert samples[("once_decisions_total", tuple(sorted(labels.items())))] == 1


def test_an_older_key_is_refused_all_the_same(old):
    refused(old.request("POST", "/v1/fences", {**BEGIN, "scope": "w\0x", "key": "a"}),
        "scope has the control character U+0000 at byte 1")


def test_older_evidence_is_verified_and_decided_again(old):
    old.stop()
    store = old.store
    done = old.cli("verify", "--redecide", "--store", store)
    assert done.returncode == 0 and "decided again: 6" in done.stdout, done
    listed = json.loads(old.cli("ls", "--json", "--store", store).stdout)
    assert len(listed) == 4
