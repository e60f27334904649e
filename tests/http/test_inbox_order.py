"""The order of a source: one event of a thing at a time, in whichever process, and over restarts.
On a shared store (ONCE_TEST_STORE) the events of one thing come to two processes."""
import json
import threading
import time

import pytest

import stores
from effects_help import kill
from inbox_help import RESTS, signed, source_yaml
from once_server import LONG, until

ORDER = "order: {source_id: /object, version: /created}\n"
GONE_S = 120  # a process of a shared store is gone after 30 s; the rest is a loaded machine
LOOKS_S = 1.5  # two looks at the dues
shared = pytest.mark.skipif(not stores.SHARED, reason="a journal has one process")


@pytest.fixture
def make(make_server, handler, secret):
    """As many processes as wanted over one store, with one source."""
    def make_them(count=1, more="retry: {attempts: 4, backoff: 20ms, backoff_max: 50ms}\n"):
        config = "inbox:\n  sources:\n" + source_yaml("s", "stripe", handler, secret, ORDER + more)
        servers = [make_server(config=config)]
        while len(servers) < count:
            servers.append(make_server(config=config, data_dir=servers[0].data_dir))
        return servers

    return make_them


def post(server, key, version, thing="x"):
    body = json.dumps({"id": key, "created": version, "object": thing}).encode()
    return server.request("POST", "/in/s", body, signed("stripe", body))


def put(server, key, version, thing="x"):
    """The id of the delivery."""
    status, _, answer = post(server, key, version, thing)
    assert status == 200 and answer["receipts"][0]["decision"] == "first_seen", answer
    return answer["receipts"][0]["delivery_id"]


def show(server, delivery_id):
    return server.request("GET", f"/v1/deliveries/{delivery_id}")[2]


def is_over(server, delivery_id, status="executed"):
    until(lambda: show(server, delivery_id)["status"] == status, f"{delivery_id} is not {status}",
        GONE_S)


def keys(handler):
    return [call["key"] for call in list(handler.calls)]


@shared
def test_one_at_a_time_between_processes(make, handler):
    one, two = make(2)
    handler.gate.clear()
    first = put(one, "a", 1)
    until(lambda: handler.count("a") == 1, "it was not delivered")
    second = put(two, "b", 2)
    other = put(two, "z", 2, "y")
    until(lambda: handler.count("z") == 1, "a different thing waits")
    time.sleep(LOOKS_S)
    assert handler.count("b") == 0  # the first one may still do its work
    handler.gate.set()
    for delivery_id in (first, second, other):
        is_over(two, delivery_id)
    assert keys(handler) == ["a", "z", "b"]


@shared
def test_both_processes_deliver_one_thing_in_turn(make, handler):
    servers = make(2)
    handler.pause_s = 0.05
    made = [put(servers[number % 2], f"e{number}", number) for number in range(1, 11)]
    for delivery_id in made:
        is_over(servers[0], delivery_id)
    assert keys(handler) == [f"e{number}" for number in range(1, 11)]


@shared
@pytest.mark.skipif(not LONG, reason="a process is gone after half a minute")
def test_the_next_waits_for_one_whose_process_was_killed(make, handler):
    one, two = make(2, "on_unknown: redeliver\nretry: {attempts: 9, backoff: 20ms}\n")
    handler.gate.clear()
    first = put(one, "a", 1)
    until(lambda: handler.count("a") == 1, "it was not delivered")
    kill(one)
    second = put(two, "b", 2)
    handler.gate.set()
    is_over(two, second)
    assert show(two, first)["attempt"] == 2
    assert keys(handler) == ["a", "a", "b"]  # whoever takes over delivers it first


def test_order_outlives_a_restart(make, handler):
    server = make()[0]
    handler.answers = [RESTS]
    first = put(server, "a", 1)
    until(lambda: show(server, first)["attempt"] == 1 and
        show(server, first)["status"] == "pending", "it was not tried")
    second = put(server, "b", 2)
    kill(server)
    server.start()
    third = put(server, "c", 3)
    time.sleep(LOOKS_S)  # the first one rests, and the others are due
    assert [show(server, one)["attempt"] for one in (second, third)] == [0, 0]
    assert server.request("POST", f"/v1/deliveries/{first}/redeliver", {})[0] == 200
    for one in (first, second, third):
        is_over(server, one)
    assert keys(handler) == ["a", "a", "b", "c"]


def test_a_poison_head_is_parked_and_shown(make, handler):
    servers = make(2 if stores.SHARED else 1)
    handler.answers = [500] * 4
    first = put(servers[0], "a", 1)
    second = put(servers[-1], "b", 2)
    is_over(servers[0], second)
    assert show(servers[-1], first)["status"] == "dead_letter"
    assert keys(handler) == ["a"] * 4 + ["b"]
    listed = servers[0].request("GET", "/v1/deliveries?status=dead_letter")[2]["deliveries"]
    assert [one["delivery_id"] for one in listed] == [first]


def test_one_that_is_held_lets_the_next_go(make, handler):
    servers = make(2 if stores.SHARED else 1)
    handler.answers = ["drop"]
    first = put(servers[0], "a", 1)
    second = put(servers[-1], "b", 2)
    is_over(servers[0], second)
    assert show(servers[-1], first)["status"] == "unknown"  # shown, and a person decides


def test_one_that_was_skipped_before_its_turn_lets_nobody_pass(make, handler):
    """After a restart, when no process has the order in its memory."""
    server = make()[0]
    handler.answers = [RESTS]
    made = [put(server, key, number) for number, key in enumerate("abc", 1)]
    until(lambda: handler.count("a") == 1 and show(server, made[0])["status"] == "pending", "-")
    assert server.request("POST", f"/v1/deliveries/{made[1]}/skip", {"reason": "no"})[0] == 200
    server.stop()
    server.start()
    time.sleep(LOOKS_S)
    assert show(server, made[2])["attempt"] == 0
    assert server.request("POST", f"/v1/deliveries/{made[0]}/redeliver", {})[0] == 200
    is_over(server, made[2])
    assert keys(handler) == ["a", "a", "c"]


def test_many_that_became_stale_while_they_waited_are_dropped_soon(make, handler):
    server = make()[0]
    handler.gate.clear()
    put(server, "new", 1000)
    until(lambda: handler.count() == 1, "it was not delivered")
    for number in range(100):
        put(server, f"old{number}", number)
    last = put(server, "newest", 1001)
    handler.gate.set()
    is_over(server, last)
    assert keys(handler) == ["new", "newest"]


def test_sync_answers_come_one_after_another(make, handler):
    servers = make(2 if stores.SHARED else 1, "mode: sync\nretry: {attempts: 4, backoff: 20ms}\n")
    handler.gate.clear()
    answers = {}

    def ask(server, key, version):
        answers[key] = post(server, key, version)

    threads = [threading.Thread(target=ask, args=(servers[0], "a", 1))]
    threads[0].start()
    until(lambda: handler.count("a") == 1, "it was not delivered")
    threads.append(threading.Thread(target=ask, args=(servers[-1], "b", 2)))
    threads[1].start()
    time.sleep(LOOKS_S)
    assert keys(handler) == ["a"]
    handler.gate.set()
    for thread in threads:
        thread.join()
    for number, key in enumerate("ab", 1):
        status, fields, answer = answers[key]
        assert (status, answer) == (200, {"did": number}), answers
        assert fields["Once-Decision"] == "first_seen"
    assert keys(handler) == ["a", "b"]
    assert post(servers[0], "old", 1)[2]["receipts"][0]["decision"] == "stale_version"
    status, fields, answer = post(servers[0], "b", 2)
    assert (status, answer, fields["Once-Decision"]) == (200, {"did": 2}, "duplicate_replayed")
