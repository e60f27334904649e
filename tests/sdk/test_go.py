"""The Go SDK runs the cases that every SDK runs (sdk/go/vectors_test.go), its client meets servers
that fail (client_test.go), and its fences a real server (fences_test.go)."""
import functools
import re
import subprocess
from pathlib import Path

import pytest

from drivers import HERE, go, go_environment, scratch
from once_server import LONG

SDK = HERE.parent.parent / "sdk/go"


@functools.cache
def compiled(*words):
    """The SDK's own tests, compiled once for all patterns; vet has a test of its own."""
    path = scratch() / "-".join(["go-tests", *words])
    done = go("test", "-c", "-vet=off", *words, "-o", str(path), ".", cwd=SDK)
    assert done.returncode == 0, done.stderr
    return str(path)


def run(pattern, passed_min, *words, **env):
    done = subprocess.run([compiled(*words), "-test.timeout=300s", "-test.v", "-test.run",
        pattern], cwd=SDK, capture_output=True, text=True, timeout=600,
        env={**go_environment(), **env})
    passed = re.findall(r"^ *--- PASS", done.stdout, re.M)
    wrong = re.findall(r"^ *--- FAIL.*\n(?:^ {4,}.*\n)*", done.stdout, re.M)
    assert done.returncode == 0, "".join(wrong) + done.stderr[-3000:] + done.stdout[-1000:]
    assert len(passed) >= passed_min


def test_the_go_sdk_does_what_the_cases_say():
    run("Vectors|Verdicts|Waits|Requests|Canonical|Numbers|Keys|IDs|Mend", 400)


def test_a_call_from_go_is_never_repeated_unseen():
    run("Wire|Dies|Repeat|Cancellation|Bounded|Certificate|Base|Transport", 15)


def test_fences_from_go(server):
    run("Fence", 12, ONCE_TEST_URL=server.url)


@pytest.mark.skipif(not LONG, reason="the standard library is compiled anew for it")
def test_the_go_sdk_has_no_races(server):
    probe = go("env", "CGO_ENABLED", cwd=SDK)
    if probe.stdout.strip() != "1":
        pytest.skip("the race detector needs cgo")
    run(".", 280, "-race", ONCE_TEST_URL=server.url)


@pytest.mark.parametrize("place", [SDK, HERE / "go"], ids=["sdk", "tests"])
def test_go_vet_and_gofmt_find_nothing(place):
    done = go("vet", "./...", cwd=place)
    assert done.returncode == 0, done.stderr
    gofmt = Path(go("env", "GOROOT", cwd=place).stdout.strip()) / "bin/gofmt"

    done = subprocess.run([str(gofmt), "-l", "."], cwd=place, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 0), done.stdout + done.stderr
