"""Many clients on few keys, with faults; afterwards there is an order that explains every answer.

Clients begin, seal, release, give up and look, with their own fences and with stolen ones; they
drop connections with the request sent or half sent; leases are short; the server is killed and
started again meanwhile. What each client saw goes to the checker (linearize.py). A request that was
only half sent must not take effect, so the checker is not told of it.
"""
import collections
import random
import threading
import time

import pytest

import fences
import promise
from linearize import Call, check, fences_grow
from once_server import LIGHT, LONG, Broken, request_bytes, until

CLIENTS = 8
KEYS = 6  # at a time: few, so that they meet
CALLS_A_KEY = 120  # then another one takes its place; a search stays short
PAYLOADS = {"a": {"amount": 1}, "b": {"amount": 2}}
LEASES_S = (0.03, 0.1, 30.0)
WORTH_JUDGING = ("first_seen", "in_progress", "duplicate_replayed", "held_unknown",
    "conflict_rejected", "sealed", "released", "unknown", "stale_fence", "already_sealed", "found")
SEED = 7


class Board:
    """The keys in play, and the fences that clients have seen on them."""

    def __init__(self, name):
        self.name, self.lock = name, threading.Lock()
        self.made, self.count = 0, collections.Counter()
        self.keys = [self.fresh() for _ in range(KEYS)]
        self.grants = collections.defaultdict(list)  # (operation_id, fence) of each key
        self.history = collections.defaultdict(list)

    def fresh(self):
        self.made += 1
        return f"{self.name}-{self.made}"

    def pick(self, source):
        with self.lock:
            place = source.randrange(KEYS)
            key = self.keys[place]
            self.count[key] += 1
            if self.count[key] >= CALLS_A_KEY:
                self.keys[place] = self.fresh()
            return key

    def grant_of(self, key, source):
        """Mostly the latest; now and then an old one, or another key's. (One that was never granted
        would look like one from a lost future, and put the tenant in quarantine.)"""
        with self.lock:
            grants = self.grants[key]
            if not grants:
                return None
            operation_id, fence = grants[-1] if source.random() < 0.7 else source.choice(grants)
        return operation_id, max(1, fence - (1 if source.random() < 0.05 else 0))

    def note(self, key, call):
        with self.lock:
            self.history[key].append(call)
            if call.answer is not None and call.answer.decision == "first_seen":
                self.grants[key].append((call.answer.operation_id, call.answer.fence))

    def never_told(self):
        """The decisions that no call was told yet."""
        with self.lock:
            return set(WORTH_JUDGING) - {call.answer.decision
                for history in self.history.values() for call in history if call.answer}


class Client(threading.Thread):
    """Makes calls until it is told to stop, and notes what it saw."""

    def __init__(self, number, server, board, faults):
        super().__init__()
        self.number, self.server, self.board, self.faults = number, server, board, faults
        self.source = random.Random(SEED * 1000 + number)
        self.over, self.wire, self.fault = threading.Event(), None, None
        self.unseen = 0

    def run(self):
        try:
            while not self.over.is_set():
                self.step()
        except Exception as fault:  # told by the main thread
            self.fault = fault
        finally:
            self.drop()

    def drop(self):
        if self.wire is not None:
            self.wire.close()
            self.wire = None

    def connected(self):
        if self.wire is None:
            try:
                self.wire = self.server.wire()
            except OSError:  # it is being started again
                time.sleep(0.005)
                return False
        return True

    def step(self):
        key = self.board.pick(self.source)
        made = self.make(key)
        if made is None or not self.connected():
            return
        call, request, read = made
        chance = self.source.random()
        if self.faults and chance < 0.01:
            self.send_half(request)
            return
        call = call._replace(called=time.monotonic())
        try:
            self.wire.send(request)
            if self.faults and chance < 0.03:
                raise Broken("on purpose")
            status, _, document = self.wire.answer()
        except Broken:
            self.unseen += 1
            self.drop()
            self.board.note(key, call)
            return
        answer = read(status, document)
        if answer is not None:
            self.board.note(key, call._replace(returned=time.monotonic(), answer=answer))

    def send_half(self, request):
        try:
            self.wire.send(request[:self.source.randrange(1, len(request))])
        except Broken:
            pass
        self.drop()

    def make(self, key):
        """(call without times, request, how to read the answer), or None when nothing is known."""
        chance = self.source.random()
        if chance < 0.55:
            return self.make_begin(key)
        grant = self.board.grant_of(key, self.source)
        if grant is None:
            return None
        operation_id, fence = grant
        if chance < 0.75:
            return (Call("get", 0, client=self.number, operation_id=operation_id),
                request_bytes("GET", f"/v1/operations/{operation_id}"), fences.get_answer)
        return self.make_holders(operation_id, fence)

    def make_begin(self, key):
        payload = "b" if self.source.random() < 0.08 else "a"
        lease_s, takeover = self.source.choice(LEASES_S), self.source.random() < 0.3
        body = fences.begin_body(key, PAYLOADS[payload], lease=f"{lease_s * 1000:.0f}ms",
            on_unknown="takeover" if takeover else "hold")
        return (Call("begin", 0, client=self.number, fingerprint=payload, lease_s=lease_s,
            takeover=takeover), request_bytes("POST", "/v1/fences", body), fences.begin_answer)

    def make_holders(self, operation_id, fence):
        kind = self.source.choice(["seal", "release", "release", "release", "unknown"])
        call = Call(kind, 0, client=self.number, operation_id=operation_id, fence=fence)
        body = {"fence": fence}
        if kind == "seal":
            status = self.source.choice(["executed", "failed", "rejected"])
            outcome = {"by": self.number % 2}
            body.update(status=status, outcome=outcome)
            call = call._replace(status=status, outcome=fences.text(outcome))
        return (call, request_bytes("POST", f"/v1/fences/{operation_id}/{kind}", body),
            lambda status, document: fences.holder_answer(kind, status, document))


def run_clients(servers, name, faults, disturb):
    """Clients at work, each with one of the servers, while disturb() runs; what they saw."""
    board = Board(name)
    clients = [Client(number, servers[number % len(servers)], board, faults)
        for number in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        disturb()  # on a busy machine too little happens meanwhile
        until(lambda: not board.never_told() or any(client.fault for client in clients),
            "some decision is never told")
    finally:
        for client in clients:
            client.over.set()
        for client in clients:
            client.join()
    broken = [client.fault for client in clients if client.fault is not None]
    if broken:
        raise broken[0]
    return board


def judge(board):
    """Every key's history has an order; and they were worth looking at."""
    calls = [call for history in board.history.values() for call in history]
    seen = collections.Counter(call.answer.decision for call in calls if call.answer is not None)
    print(f"{len(calls)} calls on {len(board.history)} keys, "
        f"{sum(call.answer is None for call in calls)} unseen: {dict(seen)}")
    assert not board.never_told()
    with promise.kept():
        assert fences_grow(calls) is None
        for key, history in board.history.items():
            wrong = check(history)
            assert wrong is None, f"{key}: {wrong}"


@pytest.mark.parametrize("faults", [False, True], ids=["undisturbed", "dropped connections"])
def test_answers_have_an_order(make_server, faults):
    server = make_server("--loops", "2", config=fences.NO_LIMITS)
    seconds = 30 if LONG else 2 if LIGHT else 4
    judge(run_clients([server], "plain", faults, lambda: time.sleep(seconds)))


def test_answers_have_an_order_though_the_server_is_killed(make_server):
    server = make_server("--loops", "2", config=fences.NO_LIMITS)
    source = random.Random(SEED)

    def kill_and_restart():
        for _ in range(100 if LONG else 5 if LIGHT else 12):
            time.sleep(source.uniform(0.05, 0.5))
            server.kill9()
            server.restart()
        time.sleep(0.2)

    board = run_clients([server], "killed", True, kill_and_restart)
    judge(board)
    assert any(call.answer is None for history in board.history.values() for call in history)
