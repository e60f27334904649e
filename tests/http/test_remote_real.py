"""ls, show, why, resolve, tail and verify through a real server, named or found by its socket.

What a server never says, or says wrongly, is in tests/cli/test_remote.py.
"""
import hashlib
import json
import os
import re
import subprocess
import time

import pytest
from fences import begin_bytes, pipelined
from once_server import BINARY

WAIT_S = 60  # far above what anything here takes; a hang is a failure, not a wait
NO_OPERATION = "op_00000000-0000-7000-8000-000000000000"
# Bytes that parsing and printing again would not give back.
OUTCOME = '{ "amount": 1.50, "by":"\\u00e9é",\n "n":[1e2, 0.0] }'
REQUESTS = {"object": {"b": [1, 2.5], "a": "é"}, "text": "plain", "json in a text": '{"a":1}',
    "number": 7, "quoted number": "7"}


def start(*words, env=None):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ONCE_")}
    return subprocess.Popen([BINARY, *[str(word) for word in words]], env={**kept, **(env or {})},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        errors="replace")


def once(*words, **how):
    process = start(*words, **how)
    try:
        out, err = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def shown(*words, **how):
    done = once(*words, "--json", **how)
    assert (done.returncode, done.stderr) == (0, ""), done
    return json.loads(done.stdout)


def ask(server, path, body, token=None):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    status, _, document = server.request("POST", path, body, headers)
    assert status in (200, 201), document
    return document


def begin(server, key, token=None, payload=1, **more):
    return ask(server, "/v1/fences", {"scope": "pay", "key": key, "payload": payload, **more},
        token)


def seal(server, grant, token=None, **more):
    body = {"fence": grant["fence"], "status": "executed", **more}
    return ask(server, f"/v1/fences/{grant['operation_id']}/seal", body, token)


def seal_raw(server, grant, outcome):
    """With these very bytes as the outcome."""
    return ask(server, f"/v1/fences/{grant['operation_id']}/seal",
        f'{{"fence":{grant["fence"]},"status":"executed","outcome":{outcome}}}')


def until_unknown(server, key, *words):
    """A lease of 100 ms that ran out: its id."""
    operation = begin(server, key, lease="100ms")["operation_id"]
    until = time.monotonic() + WAIT_S
    while shown("show", operation, *words)["status"] != "unknown":
        assert time.monotonic() < until, "it never became unknown"
        time.sleep(0.05)
    return operation


@pytest.fixture(params=["found", "named", "socket named"])
def place(request, server):
    """The options by which the server is reached: none but the store's for the one found."""
    return {"found": ["--store", server.store], "named": ["--server", server.url],
        "socket named": ["--server", f"unix:{server.data_dir}/once.sock"]}[request.param]


# --- Looking --------------------------------------------------------------------------------------

def test_each_command_looks_through_the_server(server, place):
    done, failed = begin(server, "a"), begin(server, "b", payload={"n": 1})
    seal(server, done, outcome={"charge": "ch_1"}, effect_id="ch_1")
    seal(server, failed, status="failed", outcome=None)
    held = begin(server, "c")
    listed = shown("ls", *place)
    assert {op["key"]: op["status"] for op in listed} == \
        {"a": "executed", "b": "failed", "c": "in_progress"}
    assert [op["key"] for op in shown("ls", "--status", "failed", *place)] == ["b"]
    document = shown("show", "--scope", "pay", "--key", "a", *place)
    assert (document["operation_id"], document["outcome"], document["effect_id"]) == \
        (done["operation_id"], {"charge": "ch_1"}, "ch_1")
    assert shown("show", held["operation_id"], *place)["fence"] == held["fence"]
    text = once("why", done["operation_id"], *place).stdout
    assert re.findall(r"  #\d+  (\w+): (\w+)", text) == \
        [("begin", "first_seen"), ("seal", "sealed")]
    text = once("tail", "--operation", failed["operation_id"], *place).stdout
    assert [line.split()[2] for line in text.splitlines()] == \
        ["execution.started", "execution.failed"]
    done = once("show", NO_OPERATION, *place)
    assert (done.returncode, done.stdout) == (65, "")
    assert f"there is no operation '{NO_OPERATION}'" in done.stderr
    for words in (["ls"], ["verify"]):
        assert once(*words, *place).returncode == 0


def test_the_list_of_unknown_ones_says_how_long_and_the_last_word(server, place):
    first = until_unknown(server, "ran out", *place)
    told = begin(server, "told", lease="1h")
    ask(server, f"/v1/fences/{told['operation_id']}/unknown",
        {"fence": told["fence"], "reason": "the provider did not answer"})
    listed = shown("ls", "--status", "unknown", *place)
    assert [(op["operation_id"], op["reason"]) for op in listed] == \
        [(told["operation_id"], "the provider did not answer"), (first, "lease_expired")]
    assert all(op["unknown_since"] == op["updated_at"] and op["age_ms"] >= 0 for op in listed)
    text = once("ls", "--status", "unknown", *place).stdout
    assert re.search(r"^op_\S+ +unknown +\d+s +1 +0 +pay told +the provider did not answer$", text,
        re.M)


def test_the_same_is_shown_with_and_without_a_server(server):
    store = ["--store", server.store]
    for key, payload in REQUESTS.items():
        grant = begin(server, key, payload=payload)
        seal_raw(server, grant, OUTCOME)
    seal(server, begin(server, "no outcome"))
    for outcome in ("null", '"text"', "7", "[]", '{"code":1}'):
        seal_raw(server, begin(server, "outcome " + outcome), outcome)
    until_unknown(server, "unknown", *store)
    begin(server, "in progress", lease="1h", source={"type": "t", "id": "1", "version": "2"})
    ids = sorted(op["operation_id"] for op in shown("ls", *store))
    assert len(ids) == len(REQUESTS) + 8

    def look():
        """All of what is shown, and of the explanation all but that somebody looked at it."""
        return [once("show", op, *form, *store).stdout for op in ids for form in ([], ["--json"])] \
            + [re.findall(r"^(?:op_|  \S|    \S).*", once("why", op, *store).stdout
                .split("access.read")[0], re.M) for op in ids]

    served, rows = look(), once("ls", "--json", *store).stdout
    server.stop()
    for before, now in zip(served, look()):
        assert now == before
    assert once("ls", "--json", *store).stdout == rows


def test_an_outcome_that_is_not_retained_is_said_to_be_gone(make_server):
    server = make_server(config="limits: {outcome_bytes_max: 16}\n")
    store = ["--store", server.store]
    for outcome in ('"just sixteen b"', '"seventeen bytes"'):
        operation = begin(server, outcome)
        seal_raw(server, operation, outcome)
        words = ["show", operation["operation_id"], *store]
        kept = len(outcome) == 16
        document = shown(*words)
        assert (document.get("outcome"), document["outcome_retained"]) == \
            (json.loads(outcome) if kept else None, kept)
    assert "JSON, no longer retained" in once(*words).stdout
    before = [once(*words).stdout, once(*words, "--json").stdout]
    server.stop()
    assert [once(*words).stdout, once(*words, "--json").stdout] == before


@pytest.mark.parametrize("served", [True, False])
def test_json_is_shown_as_it_came(server, served):
    ids = {}
    for key, payload in REQUESTS.items():
        grant = begin(server, key, payload=payload)
        seal_raw(server, grant, OUTCOME)
        ids[key] = grant["operation_id"]
    if not served:
        server.stop()
    for key, operation in ids.items():
        done = once("show", operation, "--json", "--store", server.store)
        assert f'"outcome":{OUTCOME},' in done.stdout
        assert json.loads(done.stdout)["request"] == REQUESTS[key]


def test_what_once_run_recorded_is_shown_alike(make_server, tmp_path):
    """And what is no JSON, or JSON that would lose a digit, stays text."""
    store = ["--store", f"journal:{tmp_path}/data"]
    for key, command in (("a", ["echo", "out"]), ("b", ["sh", "-c", "echo oops >&2; exit 3"]),
            ("c", ["printf", "\\377\\000"]), ("d", ["true"]), ("e", ["sh", "-c", "kill -9 $$"])):
        once("run", *store, "-k", key, "--", *command)

    def look():
        return [once("show", "--key", key, *form, *store).stdout for key in "abcde"
            for form in ([], ["--json"])]

    before = look()
    assert json.loads(before[1])["request"]["argv"] == ["echo", "out"]
    assert json.loads(before[1])["outcome"]["output"] == [{"stdout": "out\n"}]
    server = make_server(data_dir=tmp_path / "data")
    assert look() == before
    status, _, lossy = server.request("POST", "/v1/fences",
        '{"scope":"run","key":"f","payload":{"n":9007199254740993}}')
    assert status == 201
    assert shown("show", lossy["operation_id"], *store)["request"] == '{"n":9007199254740993}'
    server.stop()
    assert shown("show", lossy["operation_id"], *store)["request"] == '{"n":9007199254740993}'


# --- Tenants and tokens ---------------------------------------------------------------------------

@pytest.fixture
def shared(make_server):
    """acme and zeta, each with an operation of the same key; the ids of both."""
    rows = "".join(f'    - {{sha256: "{hashlib.sha256(name.encode()).hexdigest()}", '
        f'tenant: {name[4:8]}, rights: {rights}, name: "{name}"}}\n' for name, rights in
        (("tok-acme", "[execute, operate, audit]"), ("tok-zeta", "[execute, operate, audit]"),
         ("tok-acme-work", "[execute]")))
    server = make_server(config="auth:\n  tokens:\n" + rows)
    server.ids = {tenant: begin(server, "k", f"tok-{tenant}")["operation_id"]
        for tenant in ("acme", "zeta")}
    return server


def foreign(server, tenant, *how, **more):
    """Everything of one's own is there, and nothing of the other's."""
    other = server.ids["zeta" if tenant == "acme" else "acme"]
    assert [op["operation_id"] for op in shown("ls", *how, **more)] == [server.ids[tenant]]
    assert shown("show", "--scope", "pay", "--key", "k", *how, **more)["tenant"] == tenant
    assert "first_seen" not in once("tail", "--operation", other, *how, **more).stdout
    for words in (["show", other], ["why", other],
            ["resolve", other, "--status", "failed", "--reason", "r"]):
        done = once(*words, *how, **more)
        assert (done.returncode, done.stdout) == (65, "")
        assert f"there is no operation '{other}'" in done.stderr


@pytest.mark.parametrize("tenant", ["acme", "zeta"])
def test_a_token_shows_its_tenant_alone(shared, tenant):
    foreign(shared, tenant, "--server", shared.url, env={"ONCE_TOKEN": f"tok-{tenant}"})
    foreign(shared, tenant, env={"ONCE_TOKEN": f"tok-{tenant}", "ONCE_SERVER": shared.url})


@pytest.mark.parametrize("tenant", ["acme", "zeta"])
def test_the_socket_shows_the_tenant_named_alone(shared, tenant):
    foreign(shared, tenant, "--store", shared.store, "--tenant", tenant)
    foreign(shared, tenant, "--server", f"unix:{shared.data_dir}/once.sock", "--tenant", tenant)
    assert shown("ls", "--store", shared.store) == []


def test_the_gaps_that_others_leave_are_no_damage(shared):
    for i in range(3):
        for tenant in ("acme", "zeta"):
            begin(shared, f"key-{i}", f"tok-{tenant}")
    done = once("verify", "--json", "--server", shared.url, "--token", "tok-zeta")
    document = json.loads(done.stdout)
    assert (done.returncode, document["ok"]) == (0, True)
    assert document["gaps"] > 0


def test_a_wrong_token_is_77(shared):
    for how in ({}, {"ONCE_TOKEN": "tok-nobody"}):
        for words in (["ls"], ["show", shared.ids["acme"]], ["tail"],
                ["resolve", shared.ids["acme"], "--status", "failed", "--reason", "r"]):
            done = once(*words, "--server", shared.url, env=how)
            assert (done.returncode, done.stdout) == (77, "")
            assert "(401)" in done.stderr and "hint: ONCE_TOKEN" in done.stderr
            assert "tok-nobody" not in done.stderr
        done = once("verify", "--server", shared.url, env=how)
        assert done.returncode == 2 and "(401)" in done.stderr


def test_a_right_that_is_missing_is_77(shared):
    how = {"env": {"ONCE_TOKEN": "tok-acme-work", "ONCE_SERVER": shared.url}}
    for words in (["tail"], ["resolve", shared.ids["acme"], "--status", "failed", "--reason", "r"]):
        done = once(*words, **how)
        assert done.returncode == 77 and "(403)" in done.stderr and "hint: " in done.stderr


# --- resolve --------------------------------------------------------------------------------------

def test_an_unknown_one_is_settled_through_the_socket(server, place):
    operation = until_unknown(server, "k", *place)
    status, _, problem = server.request("POST", "/v1/fences",
        {"scope": "pay", "key": "k", "payload": 1})
    assert (status, problem["code"]) == (409, "outcome_unknown")
    outcome = server.directory / "outcome.json"
    outcome.write_text('{"charge":"ch_9"}')
    words = ["resolve", operation, "--status", "executed", "--reason", "found in the ledger",
        "--effect-id", "ch_9", "--outcome", outcome, *place]
    done = once(*words)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{operation}: executed\n", "")
    assert once(*words).returncode == 0, "the same again is fine"
    replay = begin(server, "k")
    assert (replay["decision"], replay["outcome"], replay["effect_id"]) == \
        ("duplicate_replayed", {"charge": "ch_9"}, "ch_9")
    done = once("resolve", operation, "--status", "failed", "--reason", "r", *place)
    assert done.returncode == 65 and "settled differently before" in done.stderr
    assert "resolve: resolved" in once("why", operation, *place).stdout


def test_what_runs_is_not_settled_and_what_was_not_executed_runs_again(server, place):
    running = begin(server, "runs", lease="1h")["operation_id"]
    done = once("resolve", running, "--status", "failed", "--reason", "r", *place)
    assert done.returncode == 75 and "is still running" in done.stderr
    operation = until_unknown(server, "k", *place)
    stale = once("resolve", operation, "--status", "not_executed", "--reason", "r", "--fence",
        "99", *place)
    assert stale.returncode == 65 and "a newer attempt of" in stale.stderr
    assert once("resolve", operation, "--status", "not_executed", "--reason", "r",
        *place).returncode == 0
    assert begin(server, "k")["decision"] == "first_seen"


# --- tail -----------------------------------------------------------------------------------------

def test_follow_shows_begins_as_they_come_and_nothing_of_itself(server, place):
    begin(server, "before")
    process = start("tail", "-f", "-n", "1", "--json", *place)
    try:
        assert json.loads(process.stdout.readline())["idempotency_key"] == "before"
        for i in range(20):
            begin(server, f"key-{i}")
            time.sleep(0.02 if i % 3 else 0.3)
        seen = [json.loads(process.stdout.readline()) for _ in range(20)]
    finally:
        process.kill()
        process.communicate()
    assert [entry["idempotency_key"] for entry in seen] == [f"key-{i}" for i in range(20)]
    assert {entry["type"] for entry in seen} == {"execution.started"}


def test_follow_ends_with_69_when_the_server_goes(server):
    begin(server, "k")
    process = start("tail", "-f", "-n", "1", "--server", server.url)
    try:
        assert process.stdout.readline()
        server.kill9()
        _, err = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
    assert process.returncode == 69
    assert f"cannot reach the server '{server.url}'" in err


# --- verify ---------------------------------------------------------------------------------------

def test_verify_takes_several_pages_and_the_traces_that_it_leaves(server, place):
    with server.wire() as wire:
        for first in range(0, 2200, 100):
            answers = pipelined(wire, [begin_bytes(f"key-{i}", i)
                for i in range(first, first + 100)])
            assert {status for status, _ in answers} == {201}
    once("tail", *place)  # leaves an access.read among the entries
    if place[0] == "--store":
        place = ["--server", server.url]  # else it reads the files
    done = once("verify", "--json", *place)
    document = json.loads(done.stdout)
    assert (done.returncode, document["ok"], document["gaps"]) == (0, True, 0)
    assert document["entries"] > 2200 and document["links"] == document["entries"]
    assert document["head_compared"]
    again = json.loads(once("verify", "--json", *place).stdout)
    assert again["ok"] and again["entries"] > document["entries"], "its own reading is there"
    local = once("verify", "--json", "--store", server.store)
    assert local.returncode == 0


# --- Without it -----------------------------------------------------------------------------------

def test_a_server_that_is_gone_is_69(server):
    operation = begin(server, "k")["operation_id"]
    server.kill9()
    for how in (["--server", server.url], ["--server", f"unix:{server.data_dir}/once.sock"]):
        for words in (["ls"], ["show", operation], ["tail"],
                ["resolve", operation, "--status", "failed", "--reason", "r"]):
            done = once(*words, *how)
            assert (done.returncode, done.stdout) == (69, "")
            assert "cannot reach the server" in done.stderr
        assert once("verify", *how).returncode == 2
    # The socket that it left behind is passed over: the store itself is read.
    assert (server.data_dir / "once.sock").exists()
    assert shown("show", operation, "--store", server.store)["status"] == \
        "in_progress"


# --- Beside it ------------------------------------------------------------------------------------

def test_once_run_goes_through_the_server_that_holds_the_store(server, tmp_path):
    """And through the store itself, the same key, when the server is gone (test_run_server.py)."""
    words = ["run", "--store", server.store, "-k", "k", "--", "sh", "-c",
        f"printf x >> {tmp_path}/ran; echo out"]
    done = once(*words)
    assert (done.returncode, done.stdout, done.stderr) == (0, "out\n", "")
    assert once("show", "--scope", "run", "--key", "k", "--server", server.url).returncode == 0
    server.kill9()
    again = once(*words)
    assert (again.returncode, again.stdout, again.stderr) == (0, "out\n", "")
    assert (tmp_path / "ran").read_text() == "x"


def test_doctor_says_whether_a_server_runs(server):
    begin(server, "k")
    store = ["--store", server.store]

    def checks():
        done = once("doctor", "--json", *store)
        assert (done.returncode, done.stderr) == (0, ""), done
        return {check["check"]: (check["verdict"], check["text"])
            for check in json.loads(done.stdout)}

    found = checks()
    assert found["server"] == ("PASS", f"a server, pid {server.pid}, holds the store and is ready; "
        f"unix:{server.data_dir}/once.sock")
    assert found["store"][0] == "PASS" and "1 live, 1 in progress" in found["keys"][1]
    server.stop()
    assert checks()["server"] == ("PASS", "no server is running on this store")
