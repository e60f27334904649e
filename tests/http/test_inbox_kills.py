"""Once and its handler are killed while events arrive, on each store; then every event is counted.

Senders are as real ones: they send an event until it was answered with 200, and some of them send
it again. Each event was delivered, or is held for a person because it was under way at a kill. The
person asks the handler what it did, and resolves each: then every event was delivered exactly once.
"""
import collections
import queue
import random
import sys
import threading
import time

import pytest

import promise
import servers
from crashing_handler import CrashingHandler
from inbox_help import SECRET, all_deliveries, body_of, signed, source_yaml
from once_server import LIGHT, LONG, Broken, until
from streams import Stream, queue_yaml

KILLS = 300 if LONG else 2 if LIGHT else 4
HANDLER_KILLS = 100 if LONG else 2 if LIGHT else 4
EVENTS_A_KILL = 6
SENDERS = 4
CONCURRENCY = 4
SLOW_S = 300  # what a killed process of a shared store held is unknown after half a minute
AGAIN = "retry: {attempts: 1000, backoff: 10ms, backoff_max: 200ms}\nbreaker: {pause: 50ms}\n"
SEED = 14


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    path.write_text(SECRET + "\n")
    return path


class Sender(threading.Thread):
    """Sends what is in a queue to a source until each event was answered with 200."""

    def __init__(self, server, work, number):
        super().__init__(daemon=True)  # a test that fails does not wait for it
        self.server, self.work = server, work
        self.source = random.Random(SEED * 100 + number)
        self.accepted, self.fault = [], None
        self.start()

    def run(self):
        try:
            for name in iter(self.work.get, None):
                for _ in range(1 + (self.source.random() < 0.3)):
                    self.send(name)
                self.accepted.append(name)
        except Exception as fault:  # told by the main thread
            self.fault = fault

    def send(self, name):
        body = body_of("stripe", name)
        while True:
            try:
                status, _, answer = self.server.request("POST", "/in/s", body,
                    signed("stripe", body))
                if status == 200:
                    return
                assert status == 503, answer  # it drains, or its store is away
            except (Broken, OSError):
                pass  # killed: nobody knows whether it was taken
            time.sleep(0.01)


class Senders:
    def __init__(self, server):
        self.work = queue.Queue()
        self.all = [Sender(server, self.work, number) for number in range(SENDERS)]

    def put(self, names):
        for name in names:
            self.work.put(name)

    def end(self):
        for _ in self.all:
            self.work.put(None)
        for sender in self.all:
            sender.join()
            if sender.fault is not None:
                raise sender.fault
        return [name for sender in self.all for name in sender.accepted]


def everything(server, source):
    """{key: status} of all deliveries of a source."""
    return {one["key"]: one["status"] for one in all_deliveries(server, source)}


def settled(server, source, names):
    """{key: status} when nothing is under way any more."""
    def is_over():
        made = everything(server, source)
        return set(made) == set(names) and not set(made.values()) & {"pending", "delivering"}
    until(is_over, "still under way, or lost", SLOW_S)
    return everything(server, source)


def resolve(server, source, is_done):
    """What a person does with those that are unknown: by what the handler has done."""
    for one in all_deliveries(server, source):
        if one["status"] == "unknown":
            said = "executed" if is_done(one["key"]) else "not_executed"
            code, _, answer = server.request("POST", f"/v1/deliveries/{one['delivery_id']}/resolve",
                {"status": said, "reason": "asked"})
            assert code == 200, answer


def told(what, kills, made):
    statuses = collections.Counter(made.values())
    print(f"{what}: {kills} kills, {len(made)} events: {dict(statuses)}", file=sys.stderr)
    return statuses


def check_evidence(server):
    server.stop()
    done = server.cli("verify", "--redecide", "--store", server.store)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not servers.Redis.installed(), reason="no redis-server for the stream")
def test_kills_of_once_lose_no_event_and_deliver_none_twice(make_server, handler, secret):
    """Webhooks and messages of a stream at the same time."""
    chance = random.Random(SEED)
    more = AGAIN + f"concurrency: {CONCURRENCY}\n"
    with servers.Redis() as redis:
        stream = Stream(redis)
        server = make_server(config="inbox:\n  sources:\n" +
            source_yaml("s", "stripe", handler, secret, more) + "  queues:\n" +
            queue_yaml("orders", stream.url("&idle=3s"), handler, more))
        handler.pause_s = 0.005
        senders, hooks, messages = Senders(server), [], []
        for number in range(KILLS):
            hooks += [f"w{number}-{one}" for one in range(EVENTS_A_KILL)]
            messages += [f"q{number}-{one}" for one in range(EVENTS_A_KILL)]
            senders.put(hooks[-EVENTS_A_KILL:])
            stream.add_events(messages[-EVENTS_A_KILL:])
            if number % 3 == 0:  # a producer that was not sure
                stream.add_events(messages[-2:])
            time.sleep(chance.uniform(0, 0.08))
            server.kill9()
            server.start()
        accepted = senders.end()
        assert sorted(accepted) == sorted(hooks)
        for source, names in (("s", hooks), ("orders", messages)):
            made = settled(server, source, names)
            statuses = told(f"once, {source}", KILLS, made)
            calls = collections.Counter(call["key"] for call in handler.calls)
            with promise.kept():
                assert [name for name in names if calls[name] > 1] == []  # nothing twice
                assert [name for name in names
                    if made[name] == "executed" and calls[name] != 1] == []  # nothing lost
            assert set(statuses) <= {"executed", "unknown"}, statuses
            assert statuses["unknown"] <= CONCURRENCY * KILLS
            resolve(server, source, lambda key: calls[key] == 1)
            assert set(settled(server, source, names).values()) == {"executed"}
            assert [name for name in names if handler.count(name) != 1] == []
        until(stream.is_done, "not everything is acknowledged", SLOW_S)
        assert stream.parked() == []
        check_evidence(server)


@pytest.mark.parametrize("on_unknown", ["hold", "redeliver"])
def test_kills_of_the_handler_lose_no_event_and_do_nothing_twice(
        make_server, secret, tmp_path, on_unknown):
    chance = random.Random(SEED)
    handler = CrashingHandler(tmp_path)
    try:
        server = make_server(config="inbox:\n  sources:\n" + source_yaml("s", "stripe", handler,
            secret, AGAIN + f"concurrency: {CONCURRENCY}\non_unknown: {on_unknown}\n"))
        senders, names = Senders(server), []
        for number in range(HANDLER_KILLS):
            names += [f"h{number}-{one}" for one in range(EVENTS_A_KILL)]
            begun = len(handler.log())
            handler.gate(number > 0)  # the first kill meets a call for certain
            senders.put(names[-EVENTS_A_KILL:])
            until(lambda: len(handler.log()) > begun, "the handler is not called")
            time.sleep(chance.uniform(0, 0.06))
            handler.kill9()
            handler.gate(True)
            time.sleep(chance.uniform(0, 0.05))  # nobody listens meanwhile
            handler.start()
        assert sorted(senders.end()) == sorted(names)
        made = settled(server, "s", names)
        statuses = told(f"handler, {on_unknown}", HANDLER_KILLS, made)
        done, begun = (collections.Counter(handler.keys(what)) for what in ("done", "begun"))
        with promise.kept():
            assert [name for name in names if done[name] > 1] == []
            assert [name for name in names if made[name] == "executed" and done[name] != 1] == []
        if on_unknown == "hold":
            # One that was under way at a kill is not called again, whether it was done or not.
            assert [name for name in names if begun[name] > 1] == []
            assert set(statuses) <= {"executed", "unknown"}, statuses
            # A process that is being killed takes calls until its socket is closed: more of them
            # may be unknown than were under way.
            assert statuses["unknown"] > 0
            resolve(server, "s", lambda key: done[key] == 1)
            assert set(settled(server, "s", names).values()) == {"executed"}
            done = collections.Counter(handler.keys("done"))
        else:
            assert set(statuses) == {"executed"}, statuses
            assert max(begun.values()) > 1, "no kill met a call"
            fences = collections.defaultdict(list)
            for what, key, fence in handler.log():
                if what == "begun":
                    fences[key].append(fence)
            assert all(one == sorted(set(one)) for one in fences.values())
        assert done == dict.fromkeys(names, 1)
        check_evidence(server)
    finally:
        handler.kill9()
