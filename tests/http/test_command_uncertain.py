"""P5 for commands whose handler may be called again (on_unknown: takeover): once an attempt may
have taken effect, only an answer that settles it or a person ends the command as not done.

The pause before a later attempt is up to an hour, so a command stays pending. Should the pause be
short by chance, the handler does the same as before, and the command is pending again."""
import signal
import threading

import pytest

import stores

from once_server import until
from shop import envelope
from test_commands import evidence, get, submit, submit_and_forget
from test_openapi import check

MORE = """
  order.press: {{class: I1, on_unknown: {policy}, timeout: 60s, handler: "{url}/order.press",
    retry: {{attempts: 100, backoff: 1h, backoff_max: 1h}}{more}}}
  order.brief: {{class: I1, on_unknown: takeover, timeout: 60s, handler: "{url}/order.brief",
    retry: {{attempts: {attempts}, backoff: 10ms}}}}
"""


def config(shop, policy="takeover", attempts=2, more=""):
    return shop.config(more=MORE.format(url=shop.url, policy=policy, attempts=attempts, more=more))


@pytest.fixture
def server(make_server, shop):
    return make_server(config=config(shop))


def press(server, do, action="press"):
    """Submit it; its first attempt gets no answer."""
    _, _, document = submit(server, envelope(action, args={"do": do}))
    return document["operation_id"]


def act(server, command_id, verb, **body):
    return check(f"{verb}Command",
        server.request("POST", f"/v1/commands/{command_id}/{verb}", body))


def types_of(server):
    _, _, page = server.request("GET", "/v1/evidence?limit=1000")
    return {entry["type"] for entry in page["entries"]}


def refuses_cancel(server, command_id):
    status, _, problem = act(server, command_id, "recover", action="cancel", reason="too late")
    return (status, problem.get("code"), problem.get("effect")) == (
        409, "outcome_unknown", "unknown")


@pytest.mark.parametrize("how", ["silent", "broken"])
def test_what_may_have_happened_is_not_cancelled(server, shop, how):
    command = envelope("press", args={"do": how})
    status, _, document = submit(server, command)
    assert (status, document["status"], document["uncertain"]) == (202, "received", True)
    command_id = document["operation_id"]
    assert refuses_cancel(server, command_id)
    document = get(server, command_id)
    assert (document["status"], document["uncertain"]) == ("received", True)
    status, _, again = submit(server, command)
    assert (status, again["uncertain"]) == (202, True)
    types = [entry["type"] for entry in evidence(server, command_id)]
    assert types[:3] == ["execution.started", "execution.blocked", "execution.resolved"]
    assert "execution.released" not in types  # that would say that nothing was done
    status, _, _ = act(server, command_id, "resolve", status="executed", reason="too early")
    assert status == 409  # it is pending: a person retries it, or waits


@stores.journal_only("it is about the detail of a record, which every store keeps alike")
def test_a_restart_does_not_forget_that_it_may_have_happened(server, shop):
    command_id = press(server, "silent")
    server.kill9()
    server.restart()
    assert get(server, command_id)["uncertain"]
    assert refuses_cancel(server, command_id)


@stores.journal_only("of two processes: test_command_processes.py")
def test_what_a_dead_process_began_may_have_happened(make_server, shop):
    """The next attempt is told that nothing was done, which is true only of that attempt."""
    server = make_server(config=config(shop))
    command = envelope("press", args={"do": "each slow busy"})
    thread = threading.Thread(target=submit_and_forget, args=(server, command))
    thread.start()
    until(lambda: shop.called()["press"] == 1, "never called")
    server.kill9()
    thread.join()
    server.restart()
    until(lambda: shop.called()["press"] >= 2, "not taken over")
    _, _, page = server.request("GET", "/v1/commands?command=order.press")
    command_id = page["commands"][0]["operation_id"]
    until(lambda: get(server, command_id)["status"] == "received", "not pending")
    assert get(server, command_id)["uncertain"]
    assert refuses_cancel(server, command_id)


def test_a_later_refusal_does_not_say_that_the_first_attempt_failed(make_server, shop):
    server = make_server(config=config(shop))
    command_id = press(server, "each silent fail", "brief")
    until(lambda: get(server, command_id)["status"] == "blocked", "not blocked")
    assert get(server, command_id)["uncertain"]
    assert refuses_cancel(server, command_id)
    assert shop.called()["brief"] == 2


@pytest.mark.parametrize("last", ["silent", "busy", "broken"])
def test_used_up_attempts_leave_it_unknown_until_a_person_decides(server, shop, last):
    command_id = press(server, f"each silent {last} {last} ok", "brief")
    until(lambda: get(server, command_id)["status"] == "blocked", "not blocked")
    assert get(server, command_id)["uncertain"] and shop.called()["brief"] == 2
    assert refuses_cancel(server, command_id)
    duplicate = envelope("brief", args={"do": f"each silent {last} {last} ok"})
    status, _, problem = submit(server, duplicate)
    assert (status, problem["code"]) == (409, "outcome_unknown")  # attempts are bounded (P14)
    assert shop.called()["brief"] == 2
    status, _, document = act(server, command_id, "recover", action="retry", reason="once more")
    assert (status, document["uncertain"]) == (200, True)
    until(lambda: shop.called()["brief"] == 3, "not called again")
    until(lambda: get(server, command_id)["status"] == "blocked", "not blocked again")
    status, _, document = act(server, command_id, "resolve", status="not_executed", reason="seen")
    assert (status, document["uncertain"]) == (200, False)
    until(lambda: get(server, command_id)["status"] == "executed", "not executed")
    assert not get(server, command_id)["uncertain"]


@pytest.mark.parametrize("verdict", ["executed", "failed", "not_executed"])
def test_what_a_person_found_out_settles_only_the_attempt_that_they_checked(server, shop, verdict):
    command_id = press(server, "each silent silent silent ok", "brief")
    until(lambda: get(server, command_id)["status"] == "blocked", "not blocked")
    checked = get(server, command_id)["attempt"]
    act(server, command_id, "recover", action="retry", reason="once more")
    until(lambda: shop.called()["brief"] == checked + 1, "not called again")
    until(lambda: get(server, command_id)["status"] == "blocked", "not blocked again")
    found = {"status": verdict, "reason": "seen in the ledger"}
    for earlier in range(1, checked + 1):
        status, _, problem = act(server, command_id, "resolve", attempt=earlier, **found)
        assert (status, problem["code"]) == (409, "stale_attempt")
    assert get(server, command_id)["status"] == "blocked"
    status, _, problem = act(server, command_id, "resolve", attempt=0, **found)
    assert (status, problem["code"]) == (400, "invalid_member") and "attempt" in problem["detail"]
    status, _, document = act(server, command_id, "resolve", attempt=checked + 1, **found)
    assert status == 200 and not document["uncertain"]
    if verdict != "not_executed":  # the same again
        assert act(server, command_id, "resolve", attempt=checked + 1, **found)[0] == 200
    calls = checked + 1 + (verdict == "not_executed")
    until(lambda: shop.called()["brief"] == calls, "not called again")


def test_a_person_who_looked_may_cancel_it(make_server, shop):
    """not_executed settles it: what follows may be given up and cancelled."""
    server = make_server(config=config(shop, attempts=1))
    command_id = press(server, "each silent busy", "brief")
    assert get(server, command_id)["status"] == "blocked"
    doctor = server.cli("doctor", "--server", server.url).stdout
    assert "WARN  commands     1 blocked command\n" in doctor, doctor
    assert "PASS  effects      0 uncertain effects\n" in doctor, doctor
    act(server, command_id, "resolve", status="not_executed", reason="it is not in the ledger")
    until(lambda: shop.called()["brief"] == 2, "not called again")
    until(lambda: get(server, command_id)["status"] == "blocked", "not given up")
    assert not get(server, command_id)["uncertain"]
    status, _, document = act(server, command_id, "recover", action="cancel")
    assert (status, document["status"]) == (200, "rejected")


def test_a_success_settles_it(server, shop):
    command_id = press(server, "each silent ok", "brief")
    until(lambda: get(server, command_id)["status"] == "executed", "not executed")
    assert not get(server, command_id)["uncertain"]
    assert shop.called()["brief"] == 2


def test_a_registry_that_no_longer_says_takeover_holds_it(server, shop):
    command_id = press(server, "silent")
    (server.directory / "once.yaml").write_text(stores.with_key(config(shop, policy="hold")))
    server.signal(signal.SIGHUP)
    until(lambda: "config.changed" in types_of(server), "not reloaded")
    status, _, _ = act(server, command_id, "recover", action="retry")
    assert status == 200
    until(lambda: get(server, command_id)["status"] == "blocked", "not held")
    assert shop.called()["press"] == 1
    assert refuses_cancel(server, command_id)


def test_what_certainly_did_nothing_may_be_cancelled(server, shop):
    command_id = press(server, "each busy")
    document = get(server, command_id)
    assert (document["status"], document["uncertain"]) == ("received", False)
    status, _, document = act(server, command_id, "recover", action="cancel")
    assert (status, document["status"]) == (200, "rejected")


def test_uncertainty_can_be_decided_again(server, shop):
    command_id = press(server, "each silent ok", "brief")
    until(lambda: get(server, command_id)["status"] == "executed", "not executed")
    press(server, "silent")
    server.stop()
    checked = server.cli("verify", "--redecide", "--store", server.store)
    assert checked.returncode == 0, checked.stdout + checked.stderr
