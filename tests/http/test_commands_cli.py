"""once registry, ls commands, show, why, confirm and deny, through the server of a store."""
import json
import re
import signal
import subprocess
import time

import pytest

import servers
import stores
from once_server import BINARY, until
from shop import envelope, refund


@pytest.fixture
def server(make_server, shop):
    return make_server(config=shop.config())


def once(server, *words):
    return server.cli(*words, *server.reached)


def submit(server, command):
    return server.request("POST", "/v1/commands", command)[2]


def test_a_person_confirms_and_looks(server, shop):
    asked = submit(server, refund())
    command_id, token = asked["command_id"], asked["confirmation"]["token"]
    listed = once(server, "ls", "commands")
    assert command_id in listed.stdout and "awaiting_confirmation" in listed.stdout
    assert token not in listed.stdout
    refused = once(server, "confirm", command_id, "--confirmation", "wrong")
    assert refused.returncode == 77 and "not valid" in refused.stderr
    assert "hint: the token is wrong, used or expired" in refused.stderr, refused.stderr
    assert "lacks a right" not in refused.stderr
    done = once(server, "confirm", command_id, "--confirmation", token)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{command_id} is executed: Done: refund.\n"
    shown = once(server, "show", command_id).stdout
    for text in ("order.refund", "executed", "confirmation.requested", "confirmation.accepted",
            "execution.executed"):
        assert text in shown, shown
    assert len(shown.splitlines()) <= 36 and "lifecycle" not in shown, shown  # one screen
    assert re.search(r"^target.order_id +204$", shown, re.M), shown
    why = once(server, "why", command_id)
    assert why.returncode == 0 and "wake: claimed" in why.stdout, why.stdout + why.stderr
    document = json.loads(once(server, "show", "--json", command_id).stdout)
    assert document["status"] == "executed"
    assert list(shop.calls.values()) == [1]


def test_an_operator_denies_without_the_token(server, shop):
    asked = submit(server, refund())
    denied = once(server, "deny", asked["command_id"], "--reason", "not mine")
    assert denied.returncode == 0, denied.stderr
    assert denied.stdout == f"{asked['command_id']} is rejected\n"
    assert once(server, "confirm", asked["command_id"], "--confirmation",
        asked["confirmation"]["token"]).returncode == 77
    assert not shop.calls


def test_the_beginning_of_an_id_is_enough_when_only_one_has_it(server, shop):
    first = submit(server, refund())
    whole = first["command_id"]
    for beginning in ("cmd_", whole[:12], whole[:-1]):
        assert json.loads(once(server, "show", "--json", beginning).stdout)["command_id"] == whole
        why = once(server, "why", beginning)
        assert why.returncode == 0 and "rule " in why.stdout, why
    done = once(server, "confirm", whole[:-1], "--confirmation", first["confirmation"]["token"])
    assert done.stdout == f"{whole} is executed: Done: refund.\n", done
    second = submit(server, envelope("cancel", order_id="1"))
    for verb in ("show", "why", "confirm", "deny"):
        several = once(server, verb, "cmd_")
        assert (several.returncode, several.stdout) == (65, ""), several
        assert several.stderr.startswith("once: 2 commands match; name one of them\n")
        assert {whole, second["command_id"]} <= set(several.stderr.split())
        absent = once(server, verb, "cmd_ffff")
        assert absent.returncode == 65 and "no command that begins with" in absent.stderr
    assert sum(shop.calls.values()) == 2


def test_the_beginning_of_onces_id_is_enough_where_the_submitter_gave_one_too(server):
    named = submit(server, {**envelope("cancel", order_id="1"), "command_id": "mine-1"})
    whole = named["operation_id"]
    for typed in ("mine-1", "mine", whole, whole[:-1]):
        shown = once(server, "show", "--json", typed)
        assert shown.returncode == 0, (typed, shown.stderr)
        assert json.loads(shown.stdout)["operation_id"] == whole, typed
    assert once(server, "why", whole[:-1]).returncode == 0


@stores.journal_only("what a stopped server left is read beside its socket")
def test_tail_finds_a_command_by_the_beginning_of_its_id(server, shop):
    whole = submit(server, envelope("cancel", order_id="1"))["command_id"]
    submit(server, refund())
    for typed in (whole, whole[:-1]):
        tail = once(server, "tail", "--operation", typed)
        assert tail.returncode == 0, tail.stderr
        kinds = [line.split()[2] for line in tail.stdout.splitlines()]
        assert "execution.executed" in kinds and "confirmation.requested" not in kinds, tail.stdout
        assert whole in tail.stdout
    several = once(server, "tail", "--operation", "cmd_")
    assert several.returncode == 65 and "2 commands match" in several.stderr, several
    logged = [json.loads(line) for line in server.stderr().splitlines() if '"sealed"' in line]
    assert [one["operation_id"] for one in logged] == [whole]
    # A whole id needs no server.
    server.stop()
    tail = once(server, "tail", "--operation", whole)
    assert tail.returncode == 0 and "execution.executed" in tail.stdout, tail


def test_reading_the_evidence_of_a_command_is_noted_under_its_own_id(server, shop):
    whole = submit(server, refund())["command_id"]
    path = f"/v1/evidence?operation_id={whole}"
    server.request("GET", path)
    read = [entry for entry in server.request("GET", path)[2]["entries"]
            if entry["type"] == "access.read"]
    assert [entry["operation_id"] for entry in read] == [whole]
    assert whole in read[0]["outcome"]["reason"]
    server.stop()
    done = server.cli("verify", "--redecide", "--store", server.store)
    assert done.returncode == 0, done.stderr


def test_what_is_typed_as_an_id_stays_in_its_parameter(server, shop):
    submit(server, refund())
    done = once(server, "tail", "--operation", "cmd_x&limit=0")
    assert done.returncode != 0 and "operation_id" in done.stderr, done
    done = once(server, "tail", "--operation", "cmd_" + 2000 * "x")
    assert done.returncode == 64 and "too long" in done.stderr, done


def test_without_a_registry_there_are_no_commands(make_server, shop):
    """As for effects and deliveries: an empty list, and what is submitted is not known."""
    bare = make_server()
    listed = once(bare, "ls", "commands")
    assert (listed.returncode, listed.stdout) == (0, ""), listed
    assert bare.request("GET", "/v1/registry")[2] == {"commands": []}
    status, _, problem = bare.request("POST", "/v1/commands", refund())
    assert (status, problem["code"]) == (404, "unknown_command"), problem


def test_the_first_command_needs_a_restart_and_it_says_so(make_server, shop, tmp_path):
    path = tmp_path / "once.yaml"
    path.write_text("")
    server = make_server("--config", str(path))
    path.write_text(shop.config())
    server.signal(signal.SIGHUP)
    until(lambda: "reload_failed" in server.stderr(), "the reload was not refused")
    failed = json.loads(server.stderr().splitlines()[-1])
    assert failed["message"] == "commands: the server was started without any", failed
    assert failed["hint"] == "restart to take commands in"


def test_commands_of_earlier_configurations_are_shown(make_server, server, shop):
    asked = submit(server, refund())
    server.stop()
    bare = make_server(data_dir=server.data_dir)
    listed = once(bare, "ls", "commands")
    assert asked["command_id"] in listed.stdout, listed
    status, _, problem = bare.request("POST", f"/v1/commands/{asked['command_id']}/confirm",
        {"token": asked["confirmation"]["token"]})
    assert (status, problem["code"]) == (404, "unknown_command"), problem
    assert once(bare, "deny", asked["command_id"]).returncode == 0


@stores.journal_only("a server is found by its socket")
def test_without_a_server_nothing_is_found_and_it_says_so(server):
    whole = submit(server, refund())["command_id"]
    server.stop()
    for verb in ("show", "why", "deny"):
        for typed in (whole, whole[:-1]):
            done = once(server, verb, typed)
            assert done.returncode == 69 and "no server to ask" in done.stderr, done


def test_lists_are_newest_first_and_filtered(server, shop):
    submit(server, envelope("cancel", order_id="1"))
    time.sleep(0.01)  # within one millisecond they have no order
    submit(server, refund())
    listed = json.loads(once(server, "ls", "commands", "--json").stdout)
    assert [one["command"] for one in listed] == ["order.refund", "order.cancel"]
    blocked = once(server, "ls", "commands", "--status", "executed").stdout
    assert "order.cancel" in blocked and "order.refund" not in blocked
    assert once(server, "ls", "--status", "blocked").returncode == 64
    assert once(server, "ls", "nonsense").returncode == 64


def test_a_person_settles_a_blocked_command(server, shop, tmp_path):
    def blocked(order_id):
        submit(server, envelope("cancel", order_id=order_id, args={"do": "silent 1"}))
        found = server.request("GET", "/v1/commands?status=blocked")[2]["commands"]
        return found[0]["operation_id"]

    first = blocked("1")
    assert f"{first}  blocked " in once(server, "ls", "commands").stdout
    words = ("--reason", "asked the shop")
    wrong = tmp_path / "wrong"
    wrong.write_text("not json")
    refused = once(server, "resolve", first, "--status", "executed", "--outcome", wrong, *words)
    assert refused.returncode == 65 and "must be JSON" in refused.stderr
    right = tmp_path / "right"
    right.write_text('{"summary": "It was done."}')
    for _ in range(2):
        done = once(server, "resolve", first, "--status", "executed", "--outcome", right, *words)
        assert done.returncode == 0 and done.stdout == f"{first} is executed\n", done.stderr
    replay = submit(server, envelope("cancel", order_id="1", args={"do": "silent 1"}))
    assert replay["summary"] == "It was done."
    late = once(server, "resolve", first, "--status", "failed", *words)
    assert late.returncode == 65 and "(409)" in late.stderr
    second = blocked("2")
    stale = once(server, "resolve", second, "--status", "failed", "--attempt", "2", *words)
    assert stale.returncode == 65 and "the command's last attempt" in stale.stderr, stale.stderr
    assert once(server, "resolve", second[:-6], "--status", "failed", *words).returncode == 0
    third = blocked("3")
    done = once(server, "resolve", third, "--status", "not_executed", *words)
    assert done.returncode == 0 and "is received" in done.stdout
    until(lambda: server.request("GET", f"/v1/commands/{third}")[2]["status"] == "executed",
        "it was not called again")
    assert sorted(shop.calls.values()) == [1, 1, 2]
    assert once(server, "resolve", third, "--status", "acknowledged", *words).returncode == 64


def test_a_person_retries_and_cancels_what_was_given_up(server, shop):
    first = submit(server, envelope("cancel", args={"do": "busy 4"}))["operation_id"]

    def is_now(status):
        until(lambda: server.request("GET", f"/v1/commands/{first}")[2]["status"] == status,
            f"it is not {status}")

    is_now("blocked")
    done = once(server, "retry", first, "--reason", "they are back")
    assert done.returncode == 0 and done.stdout == f"{first} is received\n", done.stderr
    is_now("blocked")  # busy once more, and its attempts are used up
    assert once(server, "retry", first).returncode == 0
    is_now("executed")
    for verb, why in (("retry", "executed"), ("cancel", "executed"), ("compensate", "nothing to")):
        done = once(server, verb, first)
        assert done.returncode == 65 and why in done.stderr and "(409)" in done.stderr
    second = submit(server, envelope("cancel", order_id="2", args={"do": "busy 9"}))["operation_id"]
    until(lambda: server.request("GET", f"/v1/commands/{second}")[2]["status"] == "blocked", "no")
    for _ in range(2):
        done = once(server, "cancel", second)
        assert done.returncode == 0 and done.stdout == f"{second} is rejected\n"
    shown = once(server, "show", second).stdout
    assert "execution.rejected" in shown and "execution.blocked" in shown
    assert once(server, "retry", "dlv_1").returncode == 64


def test_the_registry_of_the_server_is_listed(server, shop):
    listed = once(server, "registry")
    assert listed.returncode == 0, listed.stderr
    assert "order.refund" in listed.stdout and "confirm" in listed.stdout


def test_the_conformance_kit_finds_nothing_to_fail(make_server):
    port = servers.free_port()
    registry = subprocess.run([BINARY, "conformance", "--registry", "--port", str(port)],
        capture_output=True, text=True, timeout=60, check=True).stdout
    server = make_server(config=registry)
    done = server.cli("conformance", "--port", port, "--server", server.url)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "IDS-15.6  ok" in done.stdout and "15 of 15 tests passed" in done.stdout
    assert "FAIL" not in done.stdout


def test_the_conformance_kit_sees_a_server_without_limits(make_server):
    """One rule less: exactly its test fails."""
    port = servers.free_port()
    registry = subprocess.run([BINARY, "conformance", "--registry", "--port", str(port)],
        capture_output=True, text=True, timeout=60, check=True).stdout
    assert "duplicate_rate: 0.1" in registry
    server = make_server(config=registry.replace("duplicate_rate: 0.1", "duplicate_rate: 0"))
    done = server.cli("conformance", "--json", "--port", port, "--server", server.url)
    failed = [one["requirement"] for one in json.loads(done.stdout)["tests"] if not one["ok"]]
    assert done.returncode == 65 and failed == ["IDS-16"], done.stdout


def test_ids_that_submitters_gave_name_their_work(server, shop):
    for given in ("order-7", "order-77", "cmd_order-8", "cmd_1", "cmd_12"):
        submit(server, refund(command_id=given, order_id=given))
    stories = []
    for given in ("order-7", "cmd_order-8", "cmd_1"):  # the whole one, though others begin so
        shown = once(server, "show", given, "--json")
        assert json.loads(shown.stdout)["command_id"] == given, shown
        why = json.loads(once(server, "why", given, "--json").stdout)
        read = server.request("GET", f"/v1/evidence?operation_id={given}")[2]["entries"]
        told = {entry["entry"].get("command_id") for entry in why["entries"]} - {None}
        assert {entry.get("command_id") for entry in read} - {None} == told and len(told) == 1
        assert told not in stories
        stories.append(told)
    assert once(server, "show", "order-77", "--json").returncode == 0
    several = once(server, "why", "order")
    assert several.returncode == 65 and "2 commands and effects match" in several.stderr
    assert json.loads(once(server, "show", "cmd_o", "--json").stdout)["command_id"] == "cmd_order-8"
    nobody = once(server, "why", "nobody")
    assert nobody.returncode in (64, 65) and nobody.stdout == "", nobody
    status, _, problem = server.request("GET", "/v1/evidence?operation_id=nobody")
    assert (status, problem["code"]) == (400, "invalid_parameter")
    assert server.request("GET", "/v1/evidence?operation_id=")[0] == 400
    denied = once(server, "deny", "order-77", "--reason", "no")
    assert denied.returncode == 0 and denied.stdout.startswith("order-77 is rejected"), denied
