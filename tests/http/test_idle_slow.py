"""A thousand silent connections and two hundred slow ones hold nobody up but themselves."""
import json
import resource
import threading

import pytest

import fences
from once_server import Broken

IDLE, SLOW = 1000, 200
FILES_OF_A_LOGIN, FILES_NEEDED = 1024, 2048
NORMAL_CLIENTS, NORMAL_KEYS = 4, 250  # of each: a begin and a seal
ROUND_S = 0.02  # between two bytes of a slow client: a request takes two or three seconds, while
# the head alone may take ten (head_ms_max)
PARTS = 3  # of what a slow client sends: in each of them everybody else is served


@pytest.fixture
def server(make_server):
    """Started with the room for files that a login has, fewer than there will be connections: it
    has to see to its own. Then there is room for our ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < FILES_NEEDED:
        pytest.skip(f"no more than {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES_OF_A_LOGIN, hard))
    try:
        made = make_server()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FILES_NEEDED), hard))
    yield made
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def connected(server):
    """connected(count) -> wires, closed at the end."""
    wires = []

    def make(count):
        made = [server.wire() for _ in range(count)]
        wires.extend(made)
        return made

    yield make
    for wire in wires:
        wire.close()


def short_begin(key):
    body = json.dumps({"scope": "test", "key": key, "payload": 1}).encode()
    return b"POST /v1/fences HTTP/1.1\r\nHost: o\r\nContent-Length: %d\r\n\r\n" % len(body) + body


class Slow(threading.Thread):
    """Each connection sends its request byte by byte, all at the same pace."""

    def __init__(self, wires):
        super().__init__()
        self.wires, self.over, self.fault = wires, threading.Event(), None
        self.requests = [short_begin(f"slow-{number:03}") for number in range(len(wires))]
        self.sent = 0  # bytes of each

    def run(self):
        try:
            length = max(len(request) for request in self.requests)
            while self.sent < length:
                for wire, request in zip(self.wires, self.requests):
                    wire.send(request[self.sent:self.sent + 1])
                self.sent += 1
                self.over.wait(ROUND_S)
        except Broken as fault:
            self.fault = fault


class Normal(threading.Thread):
    """Does what clients do, as long as the slow ones are at it and at least for its keys."""

    def __init__(self, number, server, slow):
        super().__init__()
        self.number, self.server, self.slow = number, server, slow
        self.done, self.while_slow, self.fault = 0, 0, None
        self.gap = 0  # the most bytes that a slow client sent while this one waited for a call

    def run(self):
        try:
            with self.server.wire() as wire:
                while self.done < NORMAL_KEYS or self.slow.is_alive():
                    self.one(wire)
        except Exception as fault:  # told by the main thread
            self.fault = fault

    def one(self, wire):
        sent = self.slow.sent
        grant = fences.begin(wire, f"normal-{self.number}-{self.done}", self.done)
        assert grant.decision == "first_seen", grant
        ended = fences.seal(wire, grant.operation_id, grant.fence, {"n": self.done})
        assert ended.decision == "sealed", ended
        self.done += 1
        self.gap = max(self.gap, self.slow.sent - sent)
        self.while_slow += self.slow.is_alive()


def test_idle_and_slow_connections_do_not_hold_up_the_rest(server, connected):
    idle, slow = connected(IDLE), Slow(connected(SLOW))
    clients = [Normal(number, server, slow) for number in range(NORMAL_CLIENTS)]
    for thread in (slow, *clients):
        thread.start()
    for thread in (slow, *clients):
        thread.join()
    for thread in (slow, *clients):
        if thread.fault is not None:
            raise thread.fault
    done = sum(client.while_slow for client in clients)
    print(f"{done} begins and seals while each slow client sent {slow.sent} bytes; "
        f"{max(client.gap for client in clients)} bytes during the longest of them")
    # While a slow client sends one byte, the others are served: at least once each in five bytes.
    assert done >= NORMAL_CLIENTS * slow.sent / 5
    assert max(client.gap for client in clients) < slow.sent / PARTS
    # The slow ones are answered too, and the silent ones may still speak.
    for wire in slow.wires:
        status, _, body = wire.answer_bytes()
        assert status == 201, json.loads(body)
    for wire in idle:
        assert wire.request("GET", "/livez")[0] == 200
