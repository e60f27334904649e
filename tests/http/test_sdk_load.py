"""The SDK under load, with three requests in ten failing in every way: each effect exactly once."""
import json
import os
import subprocess
from pathlib import Path

import pytest
from flaky import Flaky
from once_server import BINARY, LIGHT, ROOT

LONG = os.environ.get("ONCE_TEST_LONG") == "1"
PLACES = [Path(BINARY).parent, ROOT / "build-asan"]  # the release build has no test programs
PROGRAM = next((path for path in (place / "tests/http/sdk_load" for place in PLACES)
    if path.exists()), PLACES[0] / "tests/http/sdk_load")
OPERATIONS = 500 if LIGHT else 10000 if LONG else 2000
TIMEOUT_S = 600


@pytest.mark.parametrize("seed", [1, 2] if LONG else [1])
def test_each_effect_happens_exactly_once_and_none_is_lost(seed):
    flaky = Flaky(chance=0.3, seed=seed)
    try:
        env = {name: value for name, value in os.environ.items()
            if not name.lower().endswith("_proxy")}
        done = subprocess.run([PROGRAM, flaky.url, str(OPERATIONS)], capture_output=True,
            text=True, timeout=TIMEOUT_S, env=env)
        assert done.returncode == 0, done.stderr[-2000:]
        figures = json.loads(done.stdout.splitlines()[-1])
        print(figures)
        assert figures["done"] == OPERATIONS and figures["failures"] == 0
        assert flaky.effects == {f"load-{n}": 1 for n in range(OPERATIONS)}
        ids = flaky.request_ids()
        assert len(set(ids)) == len(ids) == figures["attempts"]
        # Failures did happen, and connections were kept where they could be.
        assert figures["attempts"] > 1.3 * OPERATIONS and figures["replayed"] > OPERATIONS / 20
        assert flaky.connections < 0.6 * len(ids)
    finally:
        flaky.end()
