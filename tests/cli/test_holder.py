"""A run whose once was killed is noticed at once, long before its lease is over, and only then."""
import json
import os
import re
import shlex
import signal
import subprocess
import time

import pytest
from conftest import BINARY, TIMEOUT_S

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


def in_namespaces(once, script, *kinds):
    """What a script of the shell says in namespaces of its own, as root of them."""
    command = ["unshare", "--user", "--map-root-user", *kinds, "--", "sh", "-ec"]
    if subprocess.run([*command, ":"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine allows no namespaces")
    return subprocess.run([*command, script], cwd=once.directory, env=once.env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT_S, check=False).stdout


HOLD_AND_DIE = f"""
    {BINARY} run -k a --lease 1h --wait 0s -- {shlex.join(COMMAND)} >/dev/null 2>&1 & holder=$!
    until test -e started; do sleep 0.02; done
    kill -9 $holder; wait $holder || true
"""


def test_a_process_that_has_the_holders_number_is_not_the_holder(once, tmp_path):
    said = in_namespaces(once, HOLD_AND_DIE + f"""
        echo $((holder - 1)) > /proc/sys/kernel/ns_last_pid; sleep 60 & other=$!
        echo "holder $holder, other $other"
        {BINARY} run -k a --lease 1h --wait 0s -- {shlex.join(COMMAND)} || echo "ends with $?"
        touch go; kill $other
    """, "--pid", "--fork", "--mount-proc")
    numbers = re.search(r"holder (\d+), other (\d+)", said)
    if numbers is None or numbers[1] != numbers[2]:
        pytest.skip("this machine gives no number twice on demand")
    assert "is gone" in said and "ends with 75" in said, said


@pytest.mark.parametrize("kinds, before", [
    (["--pid", "--fork", "--mount-proc"], ""),
    (["--mount"], "echo 11111111-2222-3333-4444-555555555555 > id;"
        "mount --bind id /proc/sys/kernel/random/boot_id")], ids=["container", "machine"])
def test_of_a_holder_elsewhere_nothing_is_known(once, tmp_path, kinds, before):
    """Its number belongs to nobody here, or to anybody; it may live."""
    in_namespaces(once, before + HOLD_AND_DIE, *kinds)
    assert (tmp_path / "started").exists()
    done = once.run("a", *COMMAND, options=LONG)
    (tmp_path / "go").touch()
    assert done.code == 75 and "once: in progress" in done.message, done


def test_who_held_it_is_in_the_evidence(once, tmp_path):
    process = begin(once, tmp_path)
    end(process, tmp_path)
    first = json.loads(once("tail", "--json").text.splitlines()[0])
    assert first["trace"]["holder"]["pid"] == process.pid
