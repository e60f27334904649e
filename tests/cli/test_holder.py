"""A run whose once was killed is noticed at once, long before its lease is over, and only then."""
import json
import os
import signal
import time

import pytest
from conftest import TIMEOUT_S

LONG = ["--lease", "1h", "--wait", "0s"]
COMMAND = ["sh", "-c", "echo ran >> runs; touch started; while ! test -e go; do sleep 0.02; done"]


def begin(once, tmp_path):
    process = once.start("run", "-k", "a", *LONG, "--", *COMMAND)
    until = time.monotonic() + 30
    while not (tmp_path / "started").exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    return process


def end(process, tmp_path):
    (tmp_path / "go").touch()
    process.communicate(timeout=TIMEOUT_S)


@pytest.mark.parametrize("reaped", [True, False], ids=["reaped", "zombie"])
def test_a_dead_holder_makes_it_unknown_at_once(once, tmp_path, reaped):
    process = begin(once, tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    if reaped:
        process.wait(timeout=TIMEOUT_S)
    else:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    done = once.run("a", *COMMAND, options=LONG)
    assert done.code == 75
    assert "once: unknown: whether 'a' took effect is not known" in done.message
    assert f"the process that ran it, pid {process.pid}, is gone" in done.message
    assert (tmp_path / "runs").read_text() == "ran\n"
    end(process, tmp_path)


def test_a_living_holder_is_left_alone(once, tmp_path):
    process = begin(once, tmp_path)
    for _ in range(3):
        done = once.run("a", *COMMAND, options=LONG)
        assert done.code == 75
        assert "once: in progress" in done.message
    end(process, tmp_path)
    assert process.returncode == 0
    assert once.run("a", *COMMAND, options=LONG).code == 0
    assert (tmp_path / "runs").read_text() == "ran\n"


def test_who_held_it_is_in_the_evidence(once, tmp_path):
    process = begin(once, tmp_path)
    end(process, tmp_path)
    first = json.loads(once("tail", "--json").text.splitlines()[0])
    assert first["trace"]["holder"]["pid"] == process.pid
