"""SIGKILL of the server under load, again and again: what it answered stays true.

Clients begin fresh keys, seal what they were granted, and ask again for what they hold, pipelined.
Nothing is ever released or taken over, and leases outlive the test, so each key is granted at most
once, ever (P1). Every other life of the server writes its batches in another way. After each kill
everything answered since the last one is asked for again, with a sample of what is older, and at
the end all of it.
"""
import collections
import json
import random
import threading
import time


import fences
import promise
from once_server import LONG, Broken, request_bytes

KILLS = 2000 if LONG else 60
VERIFY_EVERY = 50  # kills
CLIENTS = 3
DEPTH = 8  # requests in flight on a connection
KILL_AFTER_S = (0.005, 0.15)
SAMPLE = 30  # older keys looked at after each kill
CHUNK = 50  # requests in flight while checking
SEED = 11


class Key:
    """One key and what was said of it."""

    def __init__(self, name):
        self.name, self.payload = name, {"for": name}
        self.grant = None  # (operation_id, fence), once it was answered
        self.outcome = {"done": name, "more": "x" * (len(name) * 7 % 200)}
        self.sealing = False  # a seal was sent: it may have happened
        self.sealed = False  # it was answered
        self.replay = None  # the bytes of the first replay

    def begin(self):
        return fences.begin_bytes(self.name, self.payload, lease="24h")

    def seal(self):
        operation_id, fence = self.grant
        return request_bytes("POST", f"/v1/fences/{operation_id}/seal",
            {"fence": fence, "status": "executed", "outcome": self.outcome})

    def look(self):
        return request_bytes("GET", f"/v1/operations/{self.grant[0]}")

    # What may be answered, by what was answered before.

    @promise.kept()
    def began(self, status, body):
        document = json.loads(body)
        if status == 201:
            assert self.grant is None, f"{self.name} was granted again: {document}"
            assert document["attempt"] == 1, document
            self.grant = document["operation_id"], document["fence"]
            return
        assert status in (200, 202), f"{self.name}: {status} {document}"
        if self.grant is not None:
            assert document["operation_id"] == self.grant[0], (self.name, document)
        if status == 202:
            assert not self.sealed, f"the seal of {self.name} is lost: {document}"
            return
        assert self.sealing, f"{self.name} is replayed and was never sealed: {document}"
        assert document["status"] == "executed" and document["outcome"] == self.outcome, document
        assert self.replay in (None, body), f"{self.name}: {body} was {self.replay}"
        self.sealed, self.replay = True, body

    def was_sealed(self, status, body):
        assert status == 200, f"{self.name}: {status} {body}"
        self.sealed = True

    @promise.kept()
    def looked(self, status, body):
        document = json.loads(body)
        assert status == 200, f"{self.name}: {status} {document}"
        assert (document["operation_id"], document["fence"]) == self.grant, (self.name, document)
        assert document["attempt"] == 1, document
        if self.sealed:
            assert document["status"] == "executed", f"the seal of {self.name} is lost: {document}"
        else:
            assert document["status"] == "in_progress" or self.sealing, (self.name, document)


class Client(threading.Thread):
    """Load on one connection at a time. Its keys are its own."""

    def __init__(self, number, server):
        super().__init__()
        self.number, self.server = number, server
        self.source = random.Random(SEED * 100 + number)
        self.keys, self.open = [], []  # all; those not sealed yet
        self.touched = set()  # since the last check
        self.over, self.fault, self.answers = threading.Event(), None, 0
        # Held while requests are in flight, so that a check sees nothing half noted.
        self.busy = threading.Lock()

    def run(self):
        while not self.over.is_set():
            try:
                with self.server.wire() as wire:
                    while not self.over.is_set():
                        with self.busy:
                            self.batch(wire)
            except (Broken, OSError):
                time.sleep(0.002)
            except Exception as fault:  # told by the main thread
                self.fault = fault
                return

    def batch(self, wire):
        asked = [self.next_request() for _ in range(DEPTH)]
        wire.send(b"".join(request for request, _, _ in asked))
        for _, key, read in asked:
            status, _, body = wire.answer_bytes()
            read(status, body)
            self.answers += 1
            self.touched.add(key)

    def next_request(self):
        """(request, key, how to read the answer)"""
        chance = self.source.random()
        if self.open and chance < 0.4:
            key = self.source.choice(self.open)
            if key.grant is not None:
                key.sealing = True
                self.open.remove(key)
                return key.seal(), key, key.was_sealed
            return key.begin(), key, key.began
        if self.keys and chance < 0.6:
            key = self.source.choice(self.keys[-200:])
            return key.begin(), key, key.began
        key = Key(f"k{self.number}-{len(self.keys)}")
        self.keys.append(key)
        self.open.append(key)
        return key.begin(), key, key.began


def ways_of(server):
    """How batches are written: as a start chooses, and, where io_uring works, by flushes that no
    thread waits for."""
    trial = server.cli("run", "--store", f"journal:{server.directory}/trial?write=uring", "-k", "k",
        "--", "true")
    assert trial.returncode == 0 or "uring" in trial.stderr, trial
    return ["", "?write=uring"] if trial.returncode == 0 else [""]


class Harness:
    def __init__(self, server):
        self.server, self.source = server, random.Random(SEED)
        self.ways = ways_of(server)
        self.clients = [Client(number, server) for number in range(CLIENTS)]
        self.kills = 0

    def keys(self):
        return [key for client in self.clients for key in client.keys]

    def check(self, keys):
        """Everything that was said of these keys is still so."""
        with self.server.wire() as wire:
            for at in range(0, len(keys), CHUNK):
                part = keys[at:at + CHUNK]
                asked = [(key.look(), key.looked) for key in part if key.grant is not None]
                asked += [(key.begin(), key.began) for key in part if key.sealed]
                answers = fences.pipelined(wire, [request for request, _ in asked])
                for (_, read), (status, body) in zip(asked, answers):
                    read(status, body)

    def check_some(self):
        """What was touched since the last kill, and a few others, while no client is at work."""
        touched = [key for client in self.clients for key in client.touched]
        older = [client.keys[self.source.randrange(len(client.keys))] for client in self.clients
            for _ in range(SAMPLE // CLIENTS) if client.keys]
        for client in self.clients:
            client.touched = set()
        self.check(touched + older)

    @promise.kept()
    def verify(self):
        done = self.server.cli("verify", "--redecide", "--store", self.server.store)
        assert done.returncode == 0, f"{done.returncode} {done.stdout} {done.stderr}"

    def kill_once(self):
        time.sleep(self.source.uniform(*KILL_AFTER_S))
        self.server.kill9()
        self.kills += 1
        held = []
        for client in self.clients:  # they notice soon that the connection is gone
            client.busy.acquire()
            held.append(client.busy)
        try:
            if self.kills % VERIFY_EVERY == 0:
                self.verify()
            self.server.store_options = self.ways[self.kills % len(self.ways)]
            self.server.restart()
            self.check_some()
        finally:
            for lock in held:
                lock.release()

    def run(self, kills):
        for client in self.clients:
            client.start()
        try:
            for _ in range(kills):
                self.kill_once()
                broken = [client.fault for client in self.clients if client.fault is not None]
                if broken:
                    raise broken[0]
        finally:
            for client in self.clients:
                client.over.set()
            for client in self.clients:
                client.join()


def started_in_evidence(server):
    """How often each key's execution was started, by the evidence itself."""
    counts, after = collections.Counter(), ""
    with server.wire() as wire:
        while True:
            status, _, page = wire.request("GET", f"/v1/evidence?after={after}&limit=1000")
            assert status == 200, page
            for entry in page["entries"]:
                if entry["type"] == "execution.started":
                    counts[entry["idempotency_key"]] += 1
            if page["next"] is None:
                return counts
            after = page["next"]


def test_what_was_answered_survives_many_kills(server):
    harness = Harness(server)
    harness.run(KILLS)
    keys = harness.keys()
    granted = sum(key.grant is not None for key in keys)
    sealed = sum(key.sealed for key in keys)
    unsure = sum(key.sealing and not key.sealed for key in keys)
    print(f"{harness.kills} kills, {sum(client.answers for client in harness.clients)} answers, "
        f"{len(keys)} keys, {granted} granted, {sealed} sealed, {unsure} seals unanswered")
    harness.check(keys)
    assert granted > KILLS and sealed > KILLS
    server.stop()
    harness.verify()
    server.restart()
    twice = {key: count for key, count in started_in_evidence(server).items() if count > 1}
    with promise.kept():
        assert not twice
