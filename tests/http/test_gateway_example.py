"""examples/gateway, run as it stands: what its page shows is what happens, whatever fails."""
import os
import re
import subprocess

import pytest
from once_server import BINARY, LIGHT, LONG, ROOT

EXAMPLE = ROOT / "examples/gateway"
TIMEOUT_S = 300  # far above what it takes; a hang is a failure, not a wait


def run(tmp_path, **env):
    (tmp_path / "once").symlink_to(BINARY)
    clean = {name: value for name, value in os.environ.items()
        if not name.startswith("ONCE_") and not name.lower().endswith("_proxy")}
    clean["PATH"] = f"{tmp_path}:{clean['PATH']}"
    done = subprocess.run(["sh", EXAMPLE / "run.sh"], env={**clean, **env}, cwd=tmp_path,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done
    return done.stdout


def test_the_page_shows_what_happens(tmp_path):
    shown = re.search(r"^```\n\$ \./run\.sh\n(.*?)^```", (EXAMPLE / "README.md").read_text(),
        re.M | re.S).group(1)
    assert run(tmp_path) == shown


@pytest.mark.parametrize("seed", [] if LIGHT else range(1, 11 if LONG else 3))
def test_whatever_fails_each_order_is_charged_once_through_the_gateway(tmp_path, seed):
    lines = run(tmp_path, ONCE_EXAMPLE_SEED=str(seed)).splitlines()
    assert lines[1:3] == ["through the gateway: 20 orders, 20 charges",
        "and all of it again: 20 orders, 20 charges"]
    assert int(lines[0].split()[-2]) > 20, "nothing failed, so nothing was shown"
