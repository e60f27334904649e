"""Each SDK under faults: through the gateway to an API of which three requests in ten fail, and
through fences over a way of which three connections in ten fail, while gateway and server are
killed again and again. Every effect happens once, and none is lost.

A failing run is repeated, as far as threads allow, with ONCE_TEST_SEED.
"""
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import promise
import servers
from chaos import Chaos
from charger import Charger
from drivers import environment, go_program
from drivers import program as needed
from once_server import LONG
from test_gateway_sdk import CHANCE, FIRST_BYTE_MS, ROUTE, Load, check, during

HERE = Path(__file__).resolve().parent
SEED = int(os.environ.get("ONCE_TEST_SEED") or (time.time_ns() % 1000000 if LONG else 17))
OPERATIONS = 10000 if LONG else 200
THREADS = 32
TIMEOUT_S = 3000
PROGRAMS = {"python": lambda: (sys.executable, str(HERE / "load.py")),
    "node": lambda: (needed("node"), str(HERE / "load.mjs")), "go": lambda: (go_program(),)}


@pytest.fixture(params=PROGRAMS)
def program(request):
    return PROGRAMS[request.param]()


@pytest.fixture
def make_charger():
    made = []

    def make(chance):
        print(f"ONCE_TEST_SEED={SEED}")
        made.append(Charger(chance, SEED, slow_s=1.5 * FIRST_BYTE_MS / 1000))
        return made[-1]

    yield make
    for charger in made:
        charger.end()


def test_through_the_gateway(program, make_gateway, make_charger, tmp_path):
    charger = make_charger(CHANCE)
    gateway = make_gateway(upstream=charger.url, routes=[ROUTE],
        listen=f"127.0.0.1:{servers.free_port()}")

    def kill():
        gateway.kill9()
        gateway.restart()

    load = Load(gateway, OPERATIONS, tmp_path, (*program, "gateway"))
    figures, kills = during(load, kill)
    print(f"{kills} kills")
    check(gateway, charger, load, figures)
    assert kills >= 1


class FencesLoad:
    """A load program over fences; for `during`."""

    def __init__(self, program, chaos, charger, tmp_path):
        self.answers = tmp_path / "answers"
        self.process = subprocess.Popen([*program, "fences", chaos.url, charger.url,
            str(OPERATIONS), str(THREADS), str(self.answers)], env=environment(),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def figures(self):
        out, errors = self.process.communicate(timeout=TIMEOUT_S)
        assert self.process.returncode == 0, (out, errors[-3000:])
        return json.loads(out.splitlines()[-1])


def test_through_fences(program, make_server, make_charger, tmp_path):
    charger, server = make_charger(0.0), make_server()
    chaos = Chaos(lambda: server.port, CHANCE, SEED)

    def kill():
        server.kill9()
        server.restart()

    try:
        load = FencesLoad(program, chaos, charger, tmp_path)
        figures, kills = during(load, kill)
    finally:
        chaos.stop()
    print(f"{figures}, {kills} kills, {chaos.failed():.1%} of connections failed: {chaos.ends}")
    assert figures["done"] == OPERATIONS and figures["failures"] == 0
    wrong = {key: count for key, count in charger.charges.items() if count != 1}
    with promise.kept():
        assert not wrong, f"not charged once: {wrong}"
    assert set(charger.charges) == {f"load-{n}" for n in range(OPERATIONS)}
    for line in load.answers.read_text().splitlines():
        key, _, body = line.split(" ", 2)
        assert json.loads(body) == json.loads(charger.answers[key])
    assert kills >= 1 and chaos.failed() > CHANCE / 2
    done = server.cli("verify", *server.reached)
    assert done.returncode == 0, done
