"""An hour of mixed load at a bounded rate: what a request costs, and what is remembered, must not
grow with how long the server has run.

Begins, seals, releases and replays; keys whose window ends; small segments, so that many are closed
and squeezed, and many indexes saved; a checkpoint every second. ONCE_TEST_HOUR_S makes it shorter.
"""
import os
import re
import time

import pytest

from fences import NO_LIMITS
from once_server import LIGHT, LONG, request_bytes

HOUR_S = float(os.environ.get("ONCE_TEST_HOUR_S", "3600"))
WINDOW_S = 10  # of each key; what is live is level after it, and after the first sweep
WIRES = 10
ROUNDS_A_S = 10  # of WIRES operations each: a fraction of what a core can do
RELEASED_EVERY = 8  # rounds whose operations are released instead of sealed
CPU_GROWTH_MAX = 1.5  # of a request; other tests may run beside this one in one of the quarters
MEMORY_GROWTH_MAX = 1.15  # of the process …
MEMORY_SLACK_BYTES = 4 << 20  # … and what the allocator may do with some buffers
KEYS_GROWTH_MAX = 1.25
RATE_LEAST = 0.8  # of the first quarter's
CONFIG = NO_LIMITS + "log: {decisions: false}\nevidence: {checkpoint_every: 1s}\n"
STORE = "?segment=256KiB&snapshot=256KiB"

pytestmark = pytest.mark.skipif(not LONG or LIGHT, reason="the long tier")


class Load:
    """Rounds of operations on kept connections."""

    def __init__(self, server):
        self.wires = [server.wire() for _ in range(WIRES)]
        self.requests = self.rounds = 0

    def all(self, paths_and_bodies, expected):
        for wire, (path, body) in zip(self.wires, paths_and_bodies):
            wire.send(request_bytes("POST", path, body))
        answers = [wire.answer("POST") for wire in self.wires]
        assert [status for status, _, _ in answers] == [expected] * WIRES, answers
        self.requests += WIRES
        return [document for _, _, document in answers]

    def round(self):
        begins = [("/v1/fences", {"scope": "hour", "key": f"{self.rounds}-{i}", "lease": "1m",
            "ttl": f"{WINDOW_S}s", "payload": {"amount": i, "text": "x" * 100}})
            for i in range(WIRES)]
        granted = self.all(begins, 201)
        paths = [f"/v1/fences/{one['operation_id']}" for one in granted]
        self.rounds += 1
        if self.rounds % RELEASED_EVERY == 0:
            self.all([(f"{path}/release", {"fence": one["fence"]})
                for path, one in zip(paths, granted)], 200)
            return
        self.all([(f"{path}/seal", {"fence": one["fence"], "status": "executed",
            "outcome": {"receipt": "r" * 60}}) for path, one in zip(paths, granted)], 200)
        self.all(begins, 200)

    def run(self, seconds):
        """Rounds at an even pace; late ones are made up for, as far as there is time."""
        began, number = time.monotonic(), 0
        while (passed := time.monotonic() - began) < seconds:
            if passed < number / ROUNDS_A_S:
                time.sleep(number / ROUNDS_A_S - passed)
            self.round()
            number += 1


def metric(server, name):
    _, _, text = server.request("GET", "/metrics")
    return float(re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.M).group(1))


def cpu_s(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_bytes(pid):
    return int(open(f"/proc/{pid}/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def quarter(server, load, seconds):
    """What a quarter of the time cost: medians of its parts, so that one slow moment is not it."""
    parts = []
    began, requests, cpu = time.monotonic(), load.requests, cpu_s(server.pid)
    for _ in range(4):
        load.run(seconds / 4)
        parts.append((memory_bytes(server.pid), metric(server, "once_live_keys")))
    took, made = time.monotonic() - began, load.requests - requests
    middle = lambda place: sorted(part[place] for part in parts)[len(parts) // 2]
    return {"rate": made / took, "cpu_us": (cpu_s(server.pid) - cpu) / made * 1e6,
        "memory": middle(0), "keys": middle(1), "checkpoint_age_s": metric(server,
        "once_checkpoint_age_seconds")}


def test_an_hour_of_mixed_load_costs_no_more_at_its_end(make_server):
    server = make_server(config=CONFIG, store_options=STORE)
    load = Load(server)
    level_s = max(3 * WINDOW_S, HOUR_S / 20)
    load.run(level_s)
    quarters = [quarter(server, load, (HOUR_S - level_s) / 4) for _ in range(4)]
    for number, one in enumerate(quarters):
        print(f"quarter {number + 1}: {one['rate']:.0f} requests/s, {one['cpu_us']:.0f} µs each, "
            f"{one['memory'] / 2 ** 20:.1f} MiB, {one['keys']:.0f} keys")
    first, last = quarters[0], quarters[-1]
    assert last["rate"] >= RATE_LEAST * first["rate"]
    assert last["cpu_us"] <= CPU_GROWTH_MAX * first["cpu_us"]
    assert last["memory"] <= MEMORY_GROWTH_MAX * first["memory"] + MEMORY_SLACK_BYTES
    assert last["keys"] <= KEYS_GROWTH_MAX * first["keys"]
    assert max(one["checkpoint_age_s"] for one in quarters) < 60
    server.stop()
    doctor = server.cli("doctor", "--store", server.store).stdout
    segments, squeezed = map(int, re.search(r"in (\d+) segments?, of which (\d+) squeezed",
        doctor).groups())
    assert segments > 10 and squeezed > segments / 2, doctor
    verified = server.cli("verify", "--store", server.store)
    assert verified.returncode == 0, verified.stdout + verified.stderr
