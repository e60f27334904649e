"""The Node SDK runs the cases that every SDK runs (vectors.test.mjs), and its fences a real server
(fences.test.mjs)."""
import re
import subprocess

import pytest

from drivers import HERE, TIMEOUT_S, environment, program

def run(file, passed_min, **env):
    done = subprocess.run([program("node"), "--test", "--test-reporter=tap", str(HERE / file)],
        capture_output=True, text=True, env={**environment(), **env}, timeout=TIMEOUT_S)
    if "bad option" in done.stderr:
        pytest.skip("this node is older than its test reporters")
    passed = re.search(r"^# pass (\d+)", done.stdout, re.M)
    wrong = "\n".join(re.findall(r"^ *not ok .*", done.stdout, re.M))
    assert done.returncode == 0 and not wrong, wrong + done.stdout[-3000:]
    assert passed and int(passed.group(1)) >= passed_min


def test_the_node_sdk_does_what_the_cases_say():
    run("vectors.test.mjs", 430)


def test_fences_from_node(server):
    run("fences.test.mjs", 11, ONCE_TEST_URL=server.url)
