"""Everything at once: an upstream that fails in every way, clients that leave at any point,
duplicates, waits, conflicts, reads, reloads. No key has two effects, and what was answered once
stays the answer.
"""
import random
import signal
import threading
import time

import promise
from once_gateway import DUPLICATES_FREE, request_for
from once_server import LIGHT, LONG, Broken

CLIENTS = 8
SECONDS = 4 if LIGHT else 60 if LONG else 10
KEYS_AT_ONCE = 12  # that clients share at a time
SEED = 23
GOOD = ["", "", "after_ms=5", "status=201&chunked=1&size=3000", "status=404", "status=204",
    "size=90000", "body=binary&size=400000", "close=1", "interim=2", "until_close=1", "http10=1",
    "cookie=1", "fault=too_long", "pieces=9&piece_ms=2&size=900", "fault=early&status=403"]
BAD = ["fault=reset_before", "fault=reset_after", "fault=close_after", "fault=half_line",
    "fault=half_head", "fault=half_body&size=5000", "fault=half_chunk&size=5000", "fault=garbage",
    "fault=two_lengths", "fault=switch", "fault=hang", "fault=hang_body&size=500",
    "fault=half_body_reset&size=50000", "after_ms=600", "size=700000&chunked=1",
    "fault=half_body&size=700000", "status=500&size=90000", "status=500&effect=0"]
FREEING = ["status=503&effect=0", "status=503&effect=0&size=90000", "status=429&effect=0"]
ALLOWED = {200, 201, 204, 403, 404, 409, 410, 413, 422, 429, 500, 503, 504}


class Storm:
    def __init__(self, gateway, origin):
        self.gateway, self.origin = gateway, origin
        self.until = time.monotonic() + SECONDS
        self.first, self.lock = {}, threading.Lock()  # the outcome that was told, by key
        self.faults, self.answers, self.left = [], 0, 0

    def key_of_now(self, source):
        """Clients share a few keys at a time, which change ten times a second."""
        return f"k{int(time.monotonic() * 10)}-{source.randrange(KEYS_AT_ONCE)}"

    @promise.kept()
    def judge(self, key, answer):
        assert answer.status in ALLOWED, answer
        assert answer.fields["Idempotency-Key"] == key
        outcome = answer.status, answer.body
        if answer.decision == "duplicate_replayed" and answer.status != 410:
            assert answer.is_replay
            with self.lock:
                assert self.first.setdefault(key, outcome) == outcome, (key, answer)
        elif answer.decision == "first_seen" and "Once-Effect" not in answer.fields:
            with self.lock:
                assert self.first.setdefault(key, outcome) == outcome, (key, answer)

    def one(self, source, peer):
        chance = source.random()
        do = source.choice(GOOD if chance < 0.6 else BAD if chance < 0.85 else FREEING)
        if source.random() < 0.1:
            peer.send(request_for("GET", "/read", do=source.choice(GOOD)))
            assert peer.read().status in ALLOWED
            return
        key = self.key_of_now(source)
        headers = {"Prefer": "wait=1"} if source.random() < 0.2 else {}
        body = {"for": key, "more": "x" * 30_000 * (source.random() < 0.1)}
        if source.random() < 0.05:
            body["other"] = source.random()
        request = request_for("POST", "/pay", body, key, headers, do)
        if source.random() < 0.15:  # leave: inside the request, or while it is answered
            peer.send(request[:source.randrange(1, len(request) + 1)])
            time.sleep(source.random() * 0.02)
            self.left += 1
            peer.reset()
            raise Broken("left")
        peer.send(request)
        self.judge(key, peer.read())
        self.answers += 1

    def client(self, number):
        source = random.Random(SEED + number)
        while time.monotonic() < self.until and not self.faults:
            try:
                with self.gateway.peer() as peer:
                    for _ in range(source.randrange(1, 20)):
                        self.one(source, peer)
            except Broken as fault:
                if "timed out" in str(fault):
                    self.faults.append(fault)
            except Exception as fault:  # told by the main thread
                self.faults.append(fault)

    def run(self):
        threads = [threading.Thread(target=self.client, args=(number,))
            for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            self.gateway.signal(signal.SIGHUP)
            time.sleep(0.3)
        for thread in threads:
            thread.join()
        if self.faults:
            raise self.faults[0]


def test_nothing_happens_twice_whatever_happens(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /**", "limits": {"outcome_bytes_max": "600KiB"},
        "timeout": {"connect": "500ms", "first_byte": "300ms", "total": "900ms"}}],
        gateway={"spool_memory": "16KiB", "connections_max": 6}, limits=DUPLICATES_FREE)
    storm = Storm(gateway, origin)
    storm.run()
    twice = {key: count for key, count in origin.effects.items() if count > 1}
    with promise.kept():
        assert not twice
    until = time.monotonic() + 30
    while gateway.operations(status="in_progress"):  # what clients left behind ends
        assert time.monotonic() < until, gateway.operations(status="in_progress")
        time.sleep(0.1)
    listed = {each["key"]: each["status"] for each in gateway.operations()}
    for key, outcome in storm.first.items():
        assert listed[key] in ("executed", "failed"), (key, listed[key], outcome)
    for key, count in origin.effects.items():
        assert not (key and count) or listed[key] in ("executed", "failed", "unknown"), key
    print(f"{storm.answers} answers, {storm.left} left, {len(listed)} keys, "
        f"{list(listed.values()).count('unknown')} unknown, {origin.total} effects")
    assert storm.answers > 100 and "unknown" in listed.values() and "released" in listed.values()
    gateway.stop()
    done = gateway.cli("verify", "--redecide", "--store", gateway.store)
    assert done.returncode == 0, done
