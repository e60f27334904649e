"""A wall clock that somebody sets decides nothing: no effect is made twice, and every wait ends in
its time (P1, P8). tests/unit/test_moment.c has the engine's own time; here are real programs."""
import json
import os
import subprocess
import time

import pytest

from fences import begin_body
from once_server import BINARY
from stepping_clock import SteppingClock

MINUTES_S = 600  # a step that no clock discipline makes


class Shell:
    """`once` on one store in a directory, with the wall clock that a test steps."""

    def __init__(self, directory):
        self.directory, self.clock = directory, SteppingClock(directory)

    def start(self, *words):
        env = {name: value for name, value in os.environ.items() if not name.startswith("ONCE_")}
        return subprocess.Popen([BINARY, *words], cwd=self.directory, env={**env, **self.clock.env},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *words):
        """(exit code, what it printed, seconds)"""
        began = time.monotonic()
        process = self.start(*words)
        out = process.communicate(timeout=60)[0]
        return process.returncode, out, time.monotonic() - began

    def entries(self):
        lines = self.run("tail", "-n", "1000", "--json")[1].splitlines()
        return [json.loads(line) for line in lines]


def wait_for(path):
    until = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < until, f"{path.name} never came"
        time.sleep(0.01)


@pytest.mark.parametrize("step_s, when",
    [(MINUTES_S, "before"), (MINUTES_S, "during"), (-MINUTES_S, "during"), (50, "during")])
def test_once_run_waits_by_the_boot_clock_and_asks_a_few_times(tmp_path, step_s, when):
    shell = Shell(tmp_path)
    command = ["--lease", "2m", "--", "sh", "-c", "echo ran >> runs; touch started; sleep 3"]
    holder = shell.start("run", "-k", "a", *command)
    wait_for(tmp_path / "started")
    entries = len(shell.entries())
    began = time.monotonic()
    if when == "before":
        shell.clock.step(step_s)
    waiter = shell.start("run", "-k", "a", "--wait", "1500ms", *command)
    if when == "during":
        time.sleep(0.3)
        shell.clock.step(step_s)
    waiter.communicate(timeout=60)
    took_s = time.monotonic() - began
    assert waiter.returncode == 75
    assert 1.5 <= took_s < 2.9  # before the holder ends
    assert len(shell.entries()) - entries <= 2  # one ask at the beginning and one at the end
    holder.communicate(timeout=60)
    assert shell.run("run", "-k", "a", *command)[0] == 0
    assert (tmp_path / "runs").read_text() == "ran\n"


def test_a_waiter_notices_that_a_lease_is_over_although_the_clock_went_back(tmp_path):
    """Of a second attempt: the holder of a first one is known by its process."""
    shell = Shell(tmp_path)
    command = ["-k", "a", "--lease", "1s", "--retry-failed", "--", "sh", "-c",
        "test -e fixed || exit 1; touch started; sleep 30"]
    assert shell.run("run", *command)[0] == 1
    (tmp_path / "fixed").touch()
    holder = shell.start("run", *command)
    wait_for(tmp_path / "started")
    holder.kill()
    shell.clock.step(-MINUTES_S)
    code, _, took_s = shell.run("run", "--wait", "20s", *command)
    assert code == 75
    assert took_s < 10
    assert "held_unknown" in json.dumps(shell.entries()[-1])


def test_three_restarts_do_not_end_a_lease_of_two_minutes(make_server, tmp_path):
    clock = SteppingClock(tmp_path)
    server = make_server(env=clock.env)
    held = server.request("POST", "/v1/fences", begin_body("a", {}, lease="120s"))[2]
    for number in range(3):
        server.stop()
        clock.step(+50)
        server.restart()
        server.request("POST", "/v1/fences", begin_body(f"b{number}", {}))  # commits the time
    time.sleep(1.2)  # leases are swept once a second
    operation = server.request("GET", f"/v1/operations/{held['operation_id']}")[2]
    assert operation["status"] == "in_progress"
    sealed = server.request("POST", f"/v1/fences/{held['operation_id']}/seal",
        {"fence": held["fence"], "status": "executed"})
    assert sealed[0] == 200
