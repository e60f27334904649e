"""200 connections ask for the same key at the same moment: one is told to go ahead (P1)."""
import collections
import json
import threading

import pytest

import promise
from fences import NO_LIMITS, begin_bytes, exchange_all, seal
from once_server import LIGHT

CONNECTIONS = 200
KEYS = 40 if LIGHT else 1000
KEYS_AT_ONCE = 10  # pipelined on each connection, in an order of its own
THREADS = 4  # each with its share of the connections
BURST = 40  # duplicates of one key that are answered at once, by default


class Crowd:
    """Connections that ask for the same keys at once, from several threads."""

    def __init__(self, server):
        self.wires = [server.wire() for _ in range(CONNECTIONS)]
        self.barrier = threading.Barrier(THREADS)
        self.answers = collections.defaultdict(list)  # of each key
        self.lock = threading.Lock()
        self.faults = []

    def close(self):
        for wire in self.wires:
            wire.close()

    def ask(self, keys):
        """Every connection asks for every key. key -> [(status, document's bytes)]"""
        threads = [threading.Thread(target=self.work, args=(part, keys)) for part in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not self.faults, self.faults[0]
        answers, self.answers = self.answers, collections.defaultdict(list)
        return answers

    def work(self, part, keys):
        try:
            for at in range(0, len(keys), KEYS_AT_ONCE):
                self.round(part, keys[at:at + KEYS_AT_ONCE])
        except Exception as fault:  # told by the main thread
            self.faults.append(repr(fault))
            self.barrier.abort()

    def round(self, part, keys):
        wires = self.wires[part::THREADS]
        orders = [keys[i % len(keys):] + keys[:i % len(keys)] for i in range(len(wires))]
        made = {key: begin_bytes(key, {"amount": 5}, lease="10m") for key in keys}
        requests = [b"".join(made[key] for key in order) for order in orders]
        self.barrier.wait(60)
        found = exchange_all(wires, requests)
        with self.lock:
            for order, answers in zip(orders, found):
                for key, answer in zip(order, answers):
                    self.answers[key].append(answer)


@pytest.fixture
def crowd(make_server):
    crowds = []

    def make(**how):
        crowds.append(Crowd(make_server("--loops", "2", **how)))
        return crowds[-1]

    yield make
    for one in crowds:
        one.close()


def statuses(answers):
    return collections.Counter(status for status, _ in answers)


def test_one_of_200_is_granted_for_each_of_a_thousand_keys(crowd):
    keys = [f"key-{number}" for number in range(KEYS)]
    answers = crowd().ask(keys)
    for key in keys:
        count = statuses(answers[key])
        with promise.kept():
            assert count[201] == 1, (key, count)
        # Some duplicates are told that it is in progress, those past the rate to come back later.
        assert count[202] + count[429] == CONNECTIONS - 1, (key, count)
        assert count[202] >= BURST - 1, (key, count)
    fences = [json.loads(body)["fence"] for key in keys for status, body in answers[key]
        if status == 201]
    assert len(set(fences)) == KEYS


def test_without_limits_all_others_are_in_progress_and_then_replayed(crowd):
    keys = [f"free-{number}" for number in range(KEYS // 10)]
    many = crowd(config=NO_LIMITS)
    answers = many.ask(keys)
    for key in keys:
        with promise.kept():
            assert statuses(answers[key]) == {201: 1, 202: CONNECTIONS - 1}, key
        [grant] = [json.loads(body) for status, body in answers[key] if status == 201]
        assert {json.loads(body)["operation_id"] for _, body in answers[key]} == \
            {grant["operation_id"]}
        assert seal(many.wires[0], grant["operation_id"], grant["fence"], {"for": key}).decision \
            == "sealed"
    answers = many.ask(keys)
    for key in keys:
        assert statuses(answers[key]) == {200: CONNECTIONS}, key
        bodies = {body for _, body in answers[key]}
        assert len(bodies) == 1, (key, bodies)
        assert json.loads(bodies.pop())["outcome"] == {"for": key}
