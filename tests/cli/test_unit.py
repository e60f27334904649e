"""The systemd units: as hard as they say, and in step with the program."""
import re
import shutil
import subprocess

import pytest
from conftest import ROOT

COMMANDS = {"once.service": "serve", "once-gateway.service": "gateway"}
# What has to differ, so that both can run on one machine.
OWN = {"Description", "ExecStartPre", "ExecStart", "StateDirectory", "RuntimeDirectory",
    "ConfigurationDirectory", "WorkingDirectory"}


@pytest.fixture(params=COMMANDS)
def unit(request):
    return ROOT / "systemd" / request.param


def settings(unit):
    return re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.M)


def test_the_supervisor_is_told_what_the_program_does(unit):
    said = dict(settings(unit))
    command = f"/usr/bin/once {COMMANDS[unit.name]} "
    assert said["Type"] == "notify" and "WatchdogSec" in said
    assert said["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert said["ExecStart"].startswith(command)
    assert said["ExecStartPre"].startswith(command + "--test ")
    assert "78" in said["RestartPreventExitStatus"].split()
    assert said["Restart"] == "on-failure"


def test_the_units_differ_only_in_what_is_their_own():
    one, two = [settings(ROOT / "systemd" / name) for name in COMMANDS]
    assert {name for name, _ in set(one) ^ set(two)} == OWN
    assert [name for name, _ in one] == [name for name, _ in two]


def test_its_exposure_is_two_or_better(unit):
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not here (package systemd)")
    done = subprocess.run([tool, "security", "--offline=true", unit], capture_output=True,
        text=True, timeout=60)
    found = re.search(rf"Overall exposure level for {re.escape(unit.name)}: (\d+\.\d+)",
        done.stdout)
    if found is None and "offline" in done.stderr:
        pytest.skip("this systemd-analyze has no --offline")
    assert found is not None, done.stdout[-500:] + done.stderr
    assert float(found.group(1)) <= 2.0
