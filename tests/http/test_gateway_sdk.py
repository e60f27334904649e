"""The SDK through the real gateway to an API of which three requests in ten fail: each effect
happens exactly once, and none is lost.

The API is not idempotent and counts what it did (charger.py). Where only it knows, the gateway asks
it (`reconcile:`). A failing run is repeated, as far as threads allow, with ONCE_TEST_SEED.
"""
import json
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

import promise
import servers
from charger import UNTOLD, Charger
from once_server import BINARY, LIGHT, LONG, ROOT

PLACES = [Path(BINARY).parent, ROOT / "build-asan"]  # the release build has no test programs
PROGRAM = next((path for path in (place / "tests/http/sdk_load" for place in PLACES)
    if path.exists()), PLACES[0] / "tests/http/sdk_load")
SEED = int(os.environ.get("ONCE_TEST_SEED") or (time.time_ns() % 1000000 if LONG else 17))
OPERATIONS = 300 if LIGHT else 10000 if LONG else 1500
OPERATIONS_KILLED = 200 if LIGHT else 10000 if LONG else 1000
OPERATIONS_STOPPED = 200 if LIGHT else 5000 if LONG else 1000
THREADS = 16 if LIGHT else 48
CHANCE = 0.3
FIRST_BYTE_MS = 1000 if LIGHT else 400
ACT_EVERY_S = 0.5  # what is done to the gateway meanwhile
DEADLINE_MS = 300000 if LIGHT or LONG else 120000  # of one operation: none may need all of it
TIMEOUT_S = 1500
ROUTE = {"match": "POST /charges/**", "on_unknown": "reconcile",
    "reconcile": {"get": "/by-key/{key}", "executed": [200], "not_executed": [404],
        "quiet": "0s", "every": "100ms", "every_max": "1s"},
    "lease": "1s",  # at least five seconds more than the total
    "timeout": {"connect": "500ms", "first_byte": f"{FIRST_BYTE_MS}ms",
        "total": f"{2 * FIRST_BYTE_MS}ms"}}


@pytest.fixture
def charger():
    print(f"ONCE_TEST_SEED={SEED}")
    charger = Charger(CHANCE, SEED, slow_s=1.5 * FIRST_BYTE_MS / 1000)
    yield charger
    charger.end()


class Load:
    """sdk_load, under way."""

    def __init__(self, gateway, operations, tmp_path, program=(PROGRAM,)):
        env = {name: value for name, value in os.environ.items()
            if not name.lower().endswith("_proxy")}
        self.operations, self.answers = operations, tmp_path / "answers"
        self.process = subprocess.Popen([*program, f"http://127.0.0.1:{gateway.port}/charges/new",
            str(operations), str(THREADS), "load", str(DEADLINE_MS), str(self.answers)], env=env,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def figures(self):
        """At its end, which has to be a good one."""
        try:
            out, errors = self.process.communicate(timeout=TIMEOUT_S)
        except BaseException:
            self.process.kill()
            self.process.communicate()
            raise
        assert self.process.returncode == 0, (out, errors[-3000:])
        return json.loads(out.splitlines()[-1])

    def answered(self):
        """What each key was answered: (status, body)."""
        lines = [line.split(" ", 2) for line in self.answers.read_text().splitlines()]
        assert len(lines) == self.operations
        return {key: (int(status), body) for key, status, body in lines}


def check(gateway, charger, load, figures):
    """Each exactly once, none lost, and every answer is that of the effect."""
    operations = load.operations
    print(f"{figures}\n{charger.posts} posts, {charger.reads} reads, {charger.spells} spells, "
        f"{charger.failed():.1%} made to fail: {charger.ends}")
    assert figures["done"] == operations and figures["failures"] == 0
    wrong = {key: count for key, count in charger.charges.items() if count != 1}
    with promise.kept():
        assert not wrong, f"not charged once: {wrong}"
    assert set(charger.charges) == {f"load-{n}" for n in range(operations)}
    for key, (status, body) in load.answered().items():
        assert status in (200, 201) and body.encode() == charger.answers[key], (key, body)
        assert json.loads(body)["for"] == {"n": int(key.removeprefix("load-"))}
    untold = sum(charger.ends.get(mood, 0) for mood in UNTOLD)
    assert charger.failed() > CHANCE / 2 and untold > operations / 30, "too little failed"
    listed = gateway.operations()
    assert len(listed) == operations and {each["status"] for each in listed} == {"executed"}
    done = gateway.cli("verify", "--store", gateway.store)
    assert done.returncode == 0, done


def test_each_effect_happens_exactly_once_and_none_is_lost(make_gateway, charger, tmp_path):
    gateway = make_gateway(upstream=charger.url, routes=[ROUTE])
    load = Load(gateway, OPERATIONS, tmp_path)
    figures = load.figures()
    check(gateway, charger, load, figures)
    assert figures["attempts"] > 1.2 * OPERATIONS


def during(load, act):
    """Act again and again until the load is through; (its figures, how often)."""
    over, faults, count = threading.Event(), [], 0

    def go_on():
        nonlocal count
        try:
            while not over.wait(ACT_EVERY_S):
                act()
                count += 1
        except BaseException as fault:  # told by the main thread; the load would wait long
            faults.append(fault)
            load.process.kill()

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        figures = load.figures()
    finally:
        over.set()
        thread.join()
        if faults:
            raise faults[0]
    return figures, count


def test_the_same_holds_when_the_gateway_is_killed_again_and_again(make_gateway, charger, tmp_path):
    gateway = make_gateway(upstream=charger.url, routes=[ROUTE],
        listen=f"127.0.0.1:{servers.free_port()}")

    def kill():
        gateway.kill9()
        gateway.restart()

    load = Load(gateway, OPERATIONS_KILLED, tmp_path)
    figures, kills = during(load, kill)
    print(f"{kills} kills")
    check(gateway, charger, load, figures)
    assert kills >= 3


def test_a_stop_in_good_order_leaves_nothing_in_progress(make_gateway, charger, tmp_path):
    gateway = make_gateway(upstream=charger.url, routes=[ROUTE],
        listen=f"127.0.0.1:{servers.free_port()}")

    def stop():
        gateway.stop()
        assert gateway.operations(status="in_progress") == []
        gateway.restart()

    load = Load(gateway, OPERATIONS_STOPPED, tmp_path)
    figures, stops = during(load, stop)
    print(f"{stops} stops")
    check(gateway, charger, load, figures)
    assert stops >= 1
