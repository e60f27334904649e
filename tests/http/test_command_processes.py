"""Commands of two processes over one shared store (ONCE_TEST_STORE): whoever is asked, each command
is executed once, and what a killed process left is taken over, or blocked where nobody knows."""
import threading

import pytest

import stores
from once_server import Broken, until
from shop import envelope, refund
from test_commands import ask_and_forget, confirm, get, start_slowly, statuses_of, submit

pytestmark = pytest.mark.skipif(not stores.SHARED, reason="a journal has one process")
AGAIN = 5  # commands to be tried again
GONE_S = 120  # a process of a shared store is gone after 30 s; the rest is a loaded machine


@pytest.fixture
def both(make_server, shop):
    config = shop.config(confirm_ttl="10m", more=shop.takeover())
    one = make_server(config=config)
    return one, make_server(config=config, data_dir=one.data_dir)


def at_once(calls):
    """Call all of them at the same time; their statuses."""
    statuses, start = [], threading.Barrier(len(calls))

    def run(call):
        start.wait()
        try:
            statuses.append(call()[0])
        except (Broken, OSError):
            statuses.append(0)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses


def test_submitted_here_and_confirmed_there(both, shop):
    one, two = both
    _, _, asked = submit(one, refund())
    token = asked["confirmation"]["token"]
    status, _, again = submit(two, refund())
    assert status == 202 and again["command_id"] == asked["command_id"]
    assert "token" not in again["confirmation"] and not shop.seen
    assert confirm(two, asked["command_id"], "wrong")[0] == 403
    status, _, done = confirm(two, asked["command_id"], token)
    assert status == 201 and done["summary"] == "Done: refund."
    for server in both:
        assert confirm(server, asked["command_id"], token)[0] == 403
        status, _, replay = submit(server, refund())
        assert status == 200 and replay["outcome"] == done["outcome"]
    assert list(shop.calls.values()) == [1]


def test_confirmations_and_duplicates_race_between_processes(both, shop):
    _, _, asked = submit(both[0], refund())
    token = asked["confirmation"]["token"]
    statuses = at_once([lambda server=server: server.request("POST",
        f"/v1/commands/{asked['command_id']}/confirm", {"token": token})
        for server in both for _ in range(8)])
    assert statuses.count(201) == 1 and set(statuses) <= {201, 403, 429}, statuses
    for number in range(5):
        cancel = envelope("cancel", order_id=str(number))
        statuses = at_once([lambda server=server: server.request("POST", "/v1/commands", cancel)
            for server in both for _ in range(8)])
        assert statuses.count(201) == 1 and set(statuses) <= {200, 201, 202}, statuses
    assert set(shop.calls.values()) == {1} and len(shop.calls) == 6


def test_the_other_process_goes_on_after_a_kill(both, shop):
    one, two = both
    _, _, waiting = submit(two, refund(order_id="waiting"))
    slow = refund(order_id="slow", args={"do": "slow"})
    _, _, asked = submit(one, slow)
    threads = [threading.Thread(target=ask_and_forget, args=(two, asked))]
    threads[0].start()
    _, _, late = submit(two, envelope("cancel", order_id="late", args={"do": "late 1"}))
    until(lambda: shop.called()["cancel"] == 2, "it was not called again after its 503")
    again = [submit(two, envelope("mend", order_id=str(number), args={"do": "busy 1"}))[2]
        for number in range(AGAIN)]
    threads += start_slowly(two, shop, "pack", "wrap")
    until(lambda: shop.called()["refund"] == 1, "the handler was not called")
    two.kill9()
    for thread in threads:
        thread.join()
    # What waited for its confirmation is nobody's.
    token = waiting["confirmation"]["token"]
    assert confirm(one, waiting["command_id"], token)[0] == 201
    # What was to be tried again is, unless the kill came just during that.
    until(lambda: {get(one, it["command_id"])["status"] for it in again} <= {"executed", "blocked"},
        "forgotten", GONE_S)
    assert "executed" in [get(one, it["command_id"])["status"] for it in again]
    # What was under way nobody knows, once its process is seen to be gone.
    assert confirm(one, asked["command_id"], asked["confirmation"]["token"])[0] == 403
    until(lambda: get(one, asked["command_id"])["status"] != "started", "nobody saw it", GONE_S)
    shop.gate.set()
    # A handler that may be called again is, unasked.
    for action in ("pack", "wrap"):
        until(lambda: statuses_of(one, action) == ["executed"], f"{action} was left", GONE_S)
    # One that may not would have been by now: all of them became unknown in one commit.
    assert get(one, asked["command_id"])["status"] == "blocked"
    assert submit(one, slow)[0] == 409
    until(lambda: get(one, late["command_id"])["status"] in ("blocked", "executed"), "late", GONE_S)
    status, _, _ = one.request("POST", f"/v1/commands/{asked['command_id']}/resolve",
        {"status": "executed", "reason": "it is in their books"})
    assert status == 200 and submit(one, slow)[0] == 200
    one.stop()  # which waits for calls under way
    calls = [shop.calls[command["idempotency_key"]] for command in (waiting, asked, late)]
    assert calls == [1, 1, 2]  # the last one was told to come again
    called = shop.called()
    assert AGAIN < called.pop("mend") <= 2 * AGAIN
    assert called == {"refund": 2, "cancel": 2, "pack": 2, "wrap": 2}
    assert len(shop.calls) == 5 + AGAIN
    checked = one.cli("verify", "--redecide", "--store", one.store)
    assert checked.returncode == 0, checked.stdout + checked.stderr
