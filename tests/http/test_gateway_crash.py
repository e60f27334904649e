"""SIGKILL of the gateway in mid-flight, 200 times under load: no key has more than one effect.

Clients send fresh keys; the upstream takes its time. After each kill everything that was in doubt
is asked again. A key that the upstream has seen is unknown as soon as the gateway is back, or
replayed; only one that it never saw may run. What was answered before is replayed, byte for byte.
"""
import random
import threading
import time

import promise
from once_gateway import DUPLICATES_FREE, request_for
from once_server import LIGHT, LONG, Broken

KILLS = 10 if LIGHT else 1000 if LONG else 50
CLIENTS = 6
KILL_AFTER_S = (0.01, 0.12)
TOTAL_S = 1  # of the upstream's call; a lease is at least 5 s longer
LEASES_OVER_S = 60  # far above that
SEED = 7
SAMPLE = 20  # of older keys looked at after each kill
CHUNK = 40  # requests in flight on a connection while checking


class Key:
    """One key and what was said of it."""

    def __init__(self, name, do):
        self.name, self.do = name, do
        self.body = {"for": name, "more": "x" * (len(name) * 97 % 1000)}
        self.answer = None  # (status, body) of the first answer that has an outcome
        self.sent = False

    def request(self):
        return request_for("POST", "/pay", self.body, self.name, do=self.do)

    @promise.kept()
    def said(self, answer, before):
        """Judge an answer. before: how often the upstream had seen the key when it was asked."""
        if answer.decision == "first_seen":
            assert before == 0, f"{self.name} was free again, and the upstream had seen it"
            assert self.answer is None, f"{self.name} was answered before: {self.answer}"
            assert answer.status == 200, answer
            self.answer = answer.status, answer.body
        elif answer.decision == "duplicate_replayed":
            assert answer.is_replay
            assert self.answer in (None, (answer.status, answer.body)), (self.name, answer)
            self.answer = answer.status, answer.body
        else:
            assert answer.decision in ("in_progress", "held_unknown"), answer
            assert answer.status == 409 and answer.json["effect"] == "unknown", answer
            assert self.answer is None, f"the seal of {self.name} is lost: {answer}"


class Client(threading.Thread):
    """Fresh keys, one after another, each on whichever gateway there is."""

    def __init__(self, number, gateway, origin):
        super().__init__()
        self.number, self.gateway, self.origin = number, gateway, origin
        self.source = random.Random(SEED * 100 + number)
        self.keys, self.doubts = [], []
        self.over, self.fault = threading.Event(), None
        self.busy = threading.Lock()  # held while a request is in flight

    def run(self):
        while not self.over.is_set():
            try:
                with self.gateway.peer() as peer:
                    while not self.over.is_set():
                        with self.busy:
                            self.one(peer)
            except (Broken, OSError):
                time.sleep(0.002)
            except Exception as fault:  # told by the main thread
                self.fault = fault
                return

    def one(self, peer):
        wait = self.source.choice(["before_ms=%d", "after_ms=%d"]) % self.source.randrange(12)
        size = self.source.choice(["", "", "&size=3000", "&chunked=1", "&body=binary&size=20000"])
        key = Key(f"k{self.number}-{len(self.keys)}", wait + size)
        self.keys.append(key)
        self.doubts.append(key)
        peer.send(key.request())
        key.said(peer.read(), 0)
        self.doubts.remove(key)


class Harness:
    def __init__(self, gateway, origin):
        self.gateway, self.origin, self.source = gateway, origin, random.Random(SEED)
        self.clients = [Client(number, gateway, origin) for number in range(CLIENTS)]
        self.in_doubt, self.free = [], 0

    def keys(self):
        return [key for client in self.clients for key in client.keys]

    def ask(self, keys):
        """Each once more; the answers are judged."""
        with self.gateway.peer() as peer:
            for at in range(0, len(keys), CHUNK):
                part = keys[at:at + CHUNK]
                before = [len(self.origin.seen(key.name)) for key in part]
                peer.send(b"".join(key.request() for key in part))
                for key, count in zip(part, before):
                    answer = peer.read()
                    self.free += answer.decision == "first_seen"
                    key.said(answer, count)

    def kill_once(self):
        time.sleep(self.source.uniform(*KILL_AFTER_S))
        self.gateway.kill9()
        held = []
        for client in self.clients:  # they notice soon that the connection is gone
            client.busy.acquire()
            held.append(client.busy)
        try:
            time.sleep(0.015)  # what had reached the upstream's socket is seen by it
            self.gateway.restart()
            doubts = [key for client in self.clients for key in client.doubts]
            for client in self.clients:
                client.doubts = []
            self.in_doubt += doubts
            older = self.source.sample(self.keys(), min(SAMPLE, len(self.keys())))
            self.ask(doubts + [key for key in older if key.answer is not None])
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
                with promise.kept():
                    assert max(self.origin.effects.values(), default=0) <= 1
        finally:
            for client in self.clients:
                client.over.set()
            for client in self.clients:
                client.join()


def test_no_key_has_two_effects_through_hundreds_of_kills(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /**", "lease": "1s",
        "timeout": {"connect": "1s", "first_byte": "1s", "total": f"{TOTAL_S}s"}}],
        limits=DUPLICATES_FREE)
    harness = Harness(gateway, origin)
    began = time.monotonic()
    harness.run(KILLS)
    keys = harness.keys()
    took = time.monotonic() - began
    twice = {key: count for key, count in origin.effects.items() if count > 1}
    with promise.kept():
        assert not twice
    until = time.monotonic() + LEASES_OVER_S
    while gateway.operations(status="in_progress"):
        assert time.monotonic() < until, "a lease never ends"
        time.sleep(0.1)
    listed = {each["key"]: each for each in gateway.operations()}
    unknown = [key for key in keys if listed.get(key.name, {}).get("status") == "unknown"]
    with promise.kept():
        for key in keys:
            seen = origin.seen(key.name)
            assert not seen or key.name in listed, f"{key.name} was sent and is forgotten"
            status = listed.get(key.name, {}).get("status")
            assert status in (None, "unknown", "executed"), (key.name, status)
            if key.answer is not None:
                assert status == "executed", (key.name, status)
    effects = dict(origin.effects)
    # Unknown ones are held, others replayed.
    harness.ask([key for key in keys if key.name in listed])
    assert {key: origin.effects[key] for key in effects} == effects
    done = gateway.cli("verify", "--store", gateway.store)
    print(f"{KILLS} kills in {took:.1f} s, {len(keys)} keys, {len(harness.in_doubt)} in doubt, "
        f"{harness.free} of them had not begun, {len(unknown)} unknown, {origin.total} effects")
    assert done.returncode == 0, done
    assert len(unknown) >= KILLS // 10, "too few were caught in mid-flight to prove anything"
    assert len(keys) > KILLS
    gateway.stop()
    done = gateway.cli("verify", "--redecide", "--store", gateway.store)
    assert done.returncode == 0, done


def test_a_kill_between_the_effect_and_the_seal_leaves_an_unknown(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /**", "lease": "10m"}])
    keys = ["k0", "k1", "k2"]
    peers = []
    for key in keys:
        peers.append(gateway.peer())
        peers[-1].send(request_for("POST", "/pay", {"amount": 1}, key, do="hold=1"))
        origin.wait_for(key)
    gateway.kill9()
    for peer in peers:
        peer.close()
    origin.let_go()
    gateway.restart()
    for key in keys:  # at once: who held the grant is gone, whatever its lease says
        assert gateway.status_of(key) == "unknown"
        answer = gateway.post(key)
        assert answer.decision == "held_unknown" and answer.json["code"] == "outcome_unknown"
        assert origin.effects[key] == 1 and len(origin.seen(key)) == 1
    gateway.resolve("k0", "not_executed")
    assert gateway.post("k0").status == 200 and origin.effects["k0"] == 2


def test_no_byte_reaches_the_upstream_before_the_grant_is_durable(make_gateway, origin):
    """Everything the upstream has seen is on the disk, however soon the gateway dies after it."""
    gateway = make_gateway(routes=[{"match": "POST /**", "lease": "60s"}])
    for number in range(5 if LIGHT else 30):
        key = f"k{number}"
        with gateway.peer() as peer:
            peer.send(request_for("POST", "/pay", {"amount": 1}, key, do="hold=1"))
            origin.wait_for(key)
            gateway.kill9()
        gateway.restart()
        assert gateway.status_of(key) == "unknown"
        assert gateway.post(key).decision == "held_unknown"
        assert origin.effects[key] == 1
    origin.let_go()
