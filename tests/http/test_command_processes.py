"""Commands of two processes over one shared store (ONCE_TEST_STORE): whoever is asked, each command
is executed once, and what a killed process left is taken over, or blocked where nobody knows."""
import threading

import pytest

import stores
from once_server import Broken, until
from shop import envelope, refund
from test_commands import confirm, get, submit

pytestmark = pytest.mark.skipif(not stores.SHARED, reason="a journal has one process")
GONE_S = 120  # a process of a shared store is gone after 30 s; the rest is a loaded machine


@pytest.fixture
def both(make_server, shop):
    one = make_server(config=shop.config(confirm_ttl="10m"))
    return one, make_server(config=shop.config(confirm_ttl="10m"), data_dir=one.data_dir)


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
    _, _, slow = submit(one, refund(order_id="slow", args={"do": "slow"}))
    busy = envelope("cancel", args={"do": "busy 1"})
    starter = threading.Thread(target=at_once, args=([lambda: confirm(two, slow["command_id"],
        slow["confirmation"]["token"])],))
    starter.start()
    until(lambda: shop.calls, "the handler was not called")
    _, _, pending = submit(two, busy)
    two.kill9()
    starter.join()
    # What waited for its confirmation is nobody's.
    token = waiting["confirmation"]["token"]
    assert confirm(one, waiting["command_id"], token)[0] == 201
    # What was to be tried again is.
    until(lambda: get(one, pending["command_id"])["status"] == "executed", "forgotten", GONE_S)
    # What was under way nobody knows, once its process is seen to be gone. It is not run again.
    assert get(one, slow["command_id"])["status"] in ("started", "blocked")
    assert confirm(one, slow["command_id"], slow["confirmation"]["token"])[0] == 403
    until(lambda: get(one, slow["command_id"])["status"] == "blocked", "it is held", GONE_S)
    assert submit(one, refund(order_id="slow", args={"do": "slow"}))[0] == 409
    shop.gate.set()
    assert sorted(shop.calls.values()) == [1, 1, 2]  # busy was told to come again
    status, _, _ = one.request("POST", f"/v1/commands/{slow['command_id']}/resolve",
        {"status": "executed", "reason": "it is in their books"})
    assert status == 200 and submit(one, refund(order_id="slow", args={"do": "slow"}))[0] == 200
    assert sorted(shop.calls.values()) == [1, 1, 2]
