"""Signals while clients are at work: a reload is never seen half done, a drain loses no answer."""
import hashlib
import json
import os
import signal
import threading
import time

import fences
from once_server import LIGHT, LONG, Broken, request_bytes

RELOADS = 500 if LONG else 50
DRAINS = 100 if LONG else 4 if LIGHT else 12
CLIENTS, DEPTH = 12, 4  # of a drain: connections, and requests in flight on each
WAIT_S = 60  # far above what anything takes; a hang is a failure, not a wait
TENANTS = ("acme", "zeta")


class Worker(threading.Thread):
    """Runs work() until it is told to stop; what goes wrong is told by end()."""

    def __init__(self):
        super().__init__()
        self.over, self.fault, self.done = threading.Event(), None, 0

    def run(self):
        try:
            self.work()
        except Exception as fault:
            self.fault = fault

    def end(self):
        self.over.set()
        self.join(WAIT_S)
        if self.fault is not None:
            raise self.fault


# ---- reload --------------------------------------------------------------------------------------


def token_line(token, tenant):
    digest = hashlib.sha256(token.encode()).hexdigest()
    return f'    - {{sha256: "{digest}", tenant: {tenant}, rights: [execute]}}\n'


def config_of(turn):
    """Each tenant's lasting token, and one of this turn and the one before it. Their order, and so
    the place of each, is another every time."""
    lines = [token_line(f"lasting-{tenant}", tenant) for tenant in TENANTS]
    lines += [token_line(f"turn-{each}", TENANTS[each % 2]) for each in (turn, turn + 1)]
    at = turn % len(lines)
    return "auth:\n  tokens:\n" + "".join(lines[at:] + lines[:at]) + fences.NO_LIMITS


def call(wire, token, method, path, body=None):
    status, _, document = wire.request(method, path, body, {"Authorization": f"Bearer {token}"})
    return status, document


class Tenant(Worker):
    """Begins, seals and looks at keys of its own. The other tenant uses the same keys with another
    payload, so whoever is taken for the other one meets a conflict, or finds nothing."""

    def __init__(self, server, tenant):
        super().__init__()
        self.server, self.tenant, self.token = server, tenant, f"lasting-{tenant}"

    def work(self):
        with self.server.wire() as wire:
            while not self.over.is_set():
                self.one(wire, fences.begin_body(f"key-{self.done}", self.tenant))
                self.done += 1

    def one(self, wire, body):
        status, grant = call(wire, self.token, "POST", "/v1/fences", body)
        assert status == 201 and grant["attempt"] == 1, (self.tenant, body, status, grant)
        path = f"/v1/operations/{grant['operation_id']}"
        status, shown = call(wire, self.token, "GET", path)
        assert (status, shown.get("request")) == (200, self.tenant), (status, shown)
        status, sealed = call(wire, self.token, "POST", f"/v1/fences/{grant['operation_id']}/seal",
            {"fence": grant["fence"], "status": "executed", "outcome": self.tenant})
        assert status == 200, (self.tenant, status, sealed)


def reload(server, turn):
    """A new file in one step, the signal, and the word that it is in use."""
    config = server.directory / "once.yaml"
    fresh = config.with_suffix(".new")
    fresh.write_text(config_of(turn))
    os.replace(fresh, config)
    wanted = server.stderr().count('"reloaded"') + 1
    server.signal(signal.SIGHUP)
    until = time.monotonic() + WAIT_S
    while server.stderr().count('"reloaded"') < wanted:
        assert "reload_failed" not in server.stderr() and time.monotonic() < until
        time.sleep(0.002)


def await_progress(clients):
    """Each of them does something more, or has found a fault."""
    before, until = [client.done for client in clients], time.monotonic() + WAIT_S
    while any(client.done == done for client, done in zip(clients, before) if client.is_alive()):
        assert time.monotonic() < until
        time.sleep(0.001)


def test_nobody_sees_a_reload_half_done(make_server):
    server = make_server(config=config_of(0))
    clients = [Tenant(server, tenant) for tenant in TENANTS]
    for client in clients:
        client.start()
    try:
        with server.wire() as wire:
            for turn in range(1, RELOADS + 1):
                reload(server, turn)
                body = {"scope": "turns", "key": f"turn-{turn}", "payload": 1}
                assert call(wire, f"turn-{turn - 1}", "POST", "/v1/fences", body)[0] == 401
                for token in (f"turn-{turn}", f"turn-{turn + 1}"):
                    status, answer = call(wire, token, "POST", "/v1/fences", body)
                    assert status == 201, (token, status, answer)
                await_progress(clients)
    finally:
        for client in clients:
            client.end()
    print(f"{RELOADS} reloads, {[client.done for client in clients]} keys of each tenant")
    server.stop()


# ---- drain ---------------------------------------------------------------------------------------


class Sender(Worker):
    """Begins fresh keys, some of them pipelined, until the connection is gone."""

    def __init__(self, server, number):
        super().__init__()
        self.server, self.number = server, number
        self.unanswered = []  # of the last round: keys whose answer never came
        self.said_close = False

    def work(self):
        with self.server.wire() as wire:
            while not self.said_close:
                keys = [f"k{self.number}-{self.done + i}" for i in range(DEPTH)]
                self.unanswered = list(keys)
                try:
                    wire.send(b"".join(fences.begin_bytes(key, 1, lease="1h") for key in keys))
                    for key in keys:
                        self.answered(key, wire.answer_bytes())
                except Broken:
                    return

    def answered(self, key, answer):
        status, headers, body = answer
        assert status == 201, (key, status, body)
        assert not self.said_close, "it answers after it said that it closes"
        self.unanswered.remove(key)
        self.said_close = headers.get("Connection") == "close"
        self.done += 1


def drain(server, pause_s):
    """SIGTERM under load. The keys whose answer did not come."""
    senders = [Sender(server, number) for number in range(CLIENTS)]
    for sender in senders:
        sender.start()
    until = time.monotonic() + WAIT_S
    while not all(sender.done >= DEPTH for sender in senders):
        assert time.monotonic() < until
        time.sleep(0.001)
    time.sleep(pause_s)
    server.stop()
    for sender in senders:
        sender.end()
    return [key for sender in senders for key in sender.unanswered], \
        sum(sender.done for sender in senders)


def check_untouched(server, keys):
    """A request that came after the end is not answered, and then it did not happen either."""
    with server.wire() as wire:
        for key in keys:
            wire.send(request_bytes("POST", "/v1/fences", fences.begin_body(key, 1, lease="1h")))
            status, _, body = wire.answer_bytes()
            assert status == 201, f"{key} was granted and nobody was told: {json.loads(body)}"


def test_a_drain_answers_everything_that_it_did(make_server):
    server = make_server()
    answered = late = 0
    for number in range(DRAINS):
        keys, done = drain(server, number % 4 * 0.003)
        server.restart()
        check_untouched(server, keys)
        answered, late = answered + done, late + len(keys)
        server.kill9()
        server = make_server()
    print(f"{DRAINS} drains, {answered} answered, {late} too late and without effect")
