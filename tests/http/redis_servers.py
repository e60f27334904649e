"""`once serve` on a Redis server, and what its clients were answered."""
import sys
import threading
import time
from pathlib import Path

import fences
from once_server import BINARY, Broken, Server, until

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import promise  # noqa: E402
import servers  # noqa: E402  (tests/servers.py)

RETRY_S = 0.02


class RedisStoreServer(Server):
    """`once serve` on a store that others share."""

    def __init__(self, url, *options, may_commit=True, **how):
        """may_commit: False for a store that refuses each commit: the process is never ready."""
        self.store_url, self.may_commit = url, may_commit
        super().__init__(*options, **how)

    def _is_ready(self):
        return super()._is_ready() or not self.may_commit

    def command(self):
        return [BINARY, "serve", "--listen", "127.0.0.1:0", "--store", self.store_url,
            *self.options]


class Load(threading.Thread):
    """Begins and seals one key after the other, each several times, until it is told to stop.

    granted: every answer "first_seen" of a key; sealed: the outcomes that were acknowledged."""

    def __init__(self, server, name):
        super().__init__(daemon=True)  # a test that fails does not wait for it
        self.server, self.name = server, name
        self.over, self.fault = threading.Event(), None
        self.granted, self.sealed, self.refused, self.number = {}, {}, 0, 0
        self.start()

    def run(self):
        try:
            while not self.over.is_set():
                self.number += 1
                self.one(f"{self.name}-{self.number}")
        except Exception as fault:  # told by the main thread
            self.fault = fault

    def one(self, key):
        try:
            with self.server.wire() as wire:
                answer = fences.begin(wire, key, {"key": key})
                if answer is None:
                    self.refused += 1
                    time.sleep(RETRY_S)
                    return
                if answer.decision == "first_seen":
                    self.granted.setdefault(key, []).append(answer.fence)
                    sealed = fences.seal(wire, answer.operation_id, answer.fence, {"made": key})
                    if sealed is not None and sealed.decision == "sealed":
                        self.sealed[key] = fences.text({"made": key})
        except (Broken, OSError):
            self.refused += 1
            time.sleep(RETRY_S)

    def end(self):
        self.over.set()
        self.join()
        if self.fault is not None:
            raise self.fault
        return self


def with_load(server_list, disturb, each=2, least=20):
    """Loads on all servers while disturb() runs, and a little before and after: each server answers
    then, and at least so many keys were granted in all."""
    loads = [Load(server, f"s{number}c{client}") for number, server in enumerate(server_list)
        for client in range(each)]
    try:
        until(lambda: sum(len(load.sealed) for load in loads) > 10, "nothing is sealed")
        disturb(loads)
        for number, server in enumerate(server_list):
            wait_granted(server, f"with-load-{number}")
        until(lambda: sum(len(load.granted) for load in loads) > least, "too few were granted")
    finally:
        for load in loads:
            load.over.set()
        for load in loads:
            load.join()
    return [load.end() for load in loads]


@promise.kept()
def check_sealed(server, loads):
    """P1, P3: what was acknowledged is replayed, and nothing is granted a second time."""
    wait_granted(server, "check-sealed")  # it has found the store again
    lost, count = [], 0
    with server.wire() as wire:
        for load in loads:
            for key, fences_seen in load.granted.items():
                assert len(fences_seen) == 1, key
                answer = fences.begin(wire, key, {"key": key})
                count += 1
                if key in load.sealed:
                    if answer.outcome != load.sealed[key]:
                        lost.append((key, answer))
                elif answer.decision == "first_seen":
                    lost.append((key, answer))
    assert not lost, lost
    return lost, count


def wait_granted(server, key, seconds=60):
    """Until a begin is granted again; how long it took."""
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        try:
            with server.wire() as wire:
                if fences.begin(wire, key, {"key": key}) is not None:
                    return time.monotonic() - start
        except (Broken, OSError):
            pass
        time.sleep(RETRY_S)
    raise AssertionError(f"{key}: not granted for {seconds} s")
