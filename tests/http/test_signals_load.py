"""Signals while clients are at work: a reload is never seen half done, a drain loses no answer."""
import hashlib
import json
import os
import signal
import threading
import time

import pytest

import fences
import promise
import stores
from effects_help import Effects, config_of as effects_config
from inbox_help import SECRET, all_deliveries, body_of, signed, source_yaml
from once_server import LIGHT, LONG, Broken, request_bytes, until

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


def reload(server, text):
    """A new file in one step, the signal, and the word that it is in use."""
    config = server.directory / "once.yaml"
    fresh = config.with_suffix(".new")
    fresh.write_text(text)
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
                reload(server, config_of(turn))
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

    GIVEN = 201

    def __init__(self, server, name):
        super().__init__()
        self.server, self.name = server, name
        self.unanswered = []  # of the last round: keys whose answer never came
        self.taken = []
        self.said_close = False

    def work(self):
        with self.server.wire() as wire:
            while not self.said_close:
                keys = [f"{self.name}-{self.done + i}" for i in range(DEPTH)]
                self.unanswered = list(keys)
                try:
                    wire.send(b"".join(self.bytes_of(key) for key in keys))
                    for key in keys:
                        self.answered(key, wire.answer_bytes())
                except Broken:
                    return

    def bytes_of(self, key):
        return fences.begin_bytes(key, 1, lease="1h")

    def answered(self, key, answer):
        status, headers, body = answer
        assert status == self.GIVEN, (key, status, body)
        assert not self.said_close, "it answers after it said that it closes"
        self.unanswered.remove(key)
        self.taken.append(key)
        self.said_close = headers.get("Connection") == "close"
        self.done += 1


def drain(server, pause_s, kind=Sender, name="k"):
    """SIGTERM under load. The senders."""
    senders = [kind(server, f"{name}{number}") for number in range(CLIENTS)]
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
    return senders


def check_untouched(server, keys):
    """A request that came after the end is not answered, and then it did not happen either."""
    with server.wire() as wire:
        for key in keys:
            wire.send(request_bytes("POST", "/v1/fences", fences.begin_body(key, 1, lease="1h")))
            status, _, body = wire.answer_bytes()
            with promise.kept():
                assert status == 201, f"{key} was granted and nobody was told: {json.loads(body)}"


def test_a_drain_answers_everything_that_it_did(make_server):
    server = make_server()
    answered = late = 0
    for number in range(DRAINS):
        senders = drain(server, number % 4 * 0.003)
        keys = [key for sender in senders for key in sender.unanswered]
        server.restart()
        check_untouched(server, keys)
        answered, late = answered + sum(sender.done for sender in senders), late + len(keys)
        server.kill9()
        server = make_server()
    print(f"{DRAINS} drains, {answered} answered, {late} too late and without effect")


# ---- what is claimed in the commit that creates it -----------------------------------------------


class Creator(Sender):
    """Creates effects, more than can be sent. Some are not known between two reloads."""

    GIVEN = 202

    def answered(self, key, answer):
        if answer[0] == 404:
            self.unanswered.remove(key)
            self.done += 1
        else:
            super().answered(key, answer)

    def bytes_of(self, key):
        return request_bytes("POST", "/v1/effects", {"effect_type": "payment.capture",
            "idempotency_key": key, "target": {"order_id": "o"}, "payload": {}})


class Hook(Creator):
    """Sends webhooks, more than can be delivered."""

    GIVEN = 200

    def bytes_of(self, key):
        body = body_of("stripe", key)
        return request_bytes("POST", "/in/s", body, signed("stripe", body))


@pytest.fixture
def busy(make_server, make_provider, tmp_path):
    """A server whose one provider takes few calls at a time and answers them soon, so that what is
    created waits for a place, and the provider; `config` and `without` it."""
    provider = make_provider(keeps=False)
    provider.always, provider.slow_s = "slow", 0.002
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    server = make_server(config="")
    server.provider, server.without = provider, "limits: {duplicate_rate: 0}\ndrain: 20s\n"
    server.config = effects_config(provider, "concurrency: 2", "rate: 0") + server.without + \
        "inbox:\n  sources:\n" + source_yaml("s", "stripe", provider, secret, "concurrency: 2")
    server.stop()
    (server.directory / "once.yaml").write_text(stores.with_key(server.config))
    server.start()
    return server


def check_each_once(server, kind, taken):
    """Exactly those that were taken are there, and each is sent exactly once."""
    def made():
        if kind is Creator:
            return {one["idempotency_key"]: one["status"] for one in Effects(server).all()}
        return {one["key"]: one["status"] for one in all_deliveries(server, "s")}
    server.provider.slow_s = 0
    with promise.kept():
        assert sorted(made()) == sorted(taken)
    until(lambda: set(made().values()) == {"acknowledged" if kind is Creator else "executed"},
        "some are open")
    assert len(server.provider.effects) == len(taken)
    assert set(server.provider.effects.values()) == {1}


@pytest.mark.parametrize("kind", [Creator, Hook])
def test_a_drain_answers_what_is_claimed_in_the_commit_that_creates_it(busy, kind):
    """Its call is waited for, so nothing is unknown afterwards."""
    taken = []
    for number in range(10 if LONG else 1 if LIGHT else 2):
        senders = drain(busy, number % 4 * 0.003, kind, f"r{number}-")
        taken += [key for sender in senders for key in sender.taken]
        assert '"message":"everything was answered"' in busy.stderr()
        assert "some requests were cut off" not in busy.stderr()
        busy.restart()
    check_each_once(busy, kind, taken)


@pytest.mark.parametrize("kind", [Creator, Hook])
def test_a_drain_answers_what_waits_for_a_place(busy, kind):
    """No call has ended yet, so calls count as short, and each of these waits for a few
    milliseconds. The signal comes meanwhile."""
    taken = []
    for number in range(20 if LONG else 1 if LIGHT else 3):
        busy.provider.slow_s = 0.5
        keys = [f"r{number}-{one}" for one in range(CLIENTS)]
        wires = [busy.wire() for _ in keys]
        for key, wire in list(zip(keys, wires))[:2]:  # they take all places
            wire.send(kind(busy, key).bytes_of(key))
            assert wire.answer_bytes()[0] == kind.GIVEN
        for key, wire in list(zip(keys, wires))[2:]:
            wire.send(kind(busy, key).bytes_of(key))
        time.sleep(0.002)
        busy.stop()
        for key, wire in list(zip(keys, wires))[2:]:
            try:
                assert wire.answer_bytes()[0] == kind.GIVEN
                taken.append(key)
            except Broken:
                pass  # it came too late, and did not happen
        taken += keys[:2]
        for wire in wires:
            wire.close()
        busy.provider.slow_s = 0.002
        busy.restart()
    check_each_once(busy, kind, taken)


@pytest.mark.parametrize("kind", [Creator, Hook])
def test_a_reload_takes_the_provider_away_from_what_waits_for_a_place(busy, kind):
    """What was accepted is pending until its type is configured again. Nothing is lost."""
    senders = [kind(busy, f"k{number}") for number in range(CLIENTS)]
    for sender in senders:
        sender.start()
    for _ in range(50 if LONG else 1 if LIGHT else 2):
        for text in (busy.without, busy.config):
            reload(busy, stores.with_key(text))
            await_progress(senders)
    busy.stop()
    for sender in senders:
        sender.end()
    busy.restart()
    taken = [key for sender in senders for key in sender.taken]
    assert len(taken) < sum(sender.done for sender in senders)  # some were refused
    check_each_once(busy, kind, taken)
