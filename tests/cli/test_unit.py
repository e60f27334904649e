"""The systemd unit: as hard as it says, and in step with the program."""
import re
import shutil
import subprocess

import pytest
from conftest import ROOT

UNIT = ROOT / "systemd/once.service"


def settings():
    return re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.M)


def test_the_supervisor_is_told_what_the_program_does():
    unit = dict(settings())
    assert unit["Type"] == "notify" and "WatchdogSec" in unit
    assert unit["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert unit["ExecStart"].startswith("/usr/bin/once serve ")
    assert "78" in unit["RestartPreventExitStatus"].split()
    assert unit["Restart"] == "on-failure"


def test_its_exposure_is_two_or_better():
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not here (package systemd)")
    done = subprocess.run([tool, "security", "--offline=true", UNIT], capture_output=True,
        text=True, timeout=60)
    found = re.search(r"Overall exposure level for once\.service: (\d+\.\d+)", done.stdout)
    if found is None and "offline" in done.stderr:
        pytest.skip("this systemd-analyze has no --offline")
    assert found is not None, done.stdout[-500:] + done.stderr
    assert float(found.group(1)) <= 2.0
