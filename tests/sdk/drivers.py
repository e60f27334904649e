"""One call through each SDK: drive(name, call) -> what came of it.

call: {"method", "url", "retries", "idempotency_key"?, "request_id"?, "headers"?, "body"?}
result: {"result": ok | unavailable | unknown | invalid, "status", "effect", "replayed",
"attempts", "error"?}. An SDK whose language is not on this machine is skipped by name.
"""
import atexit
import functools
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

import once
from once_server import BINARY  # also finds what is shared in tests/
import golang

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 120  # far above what a call takes; a hang is a failure, not a wait
GO_TIMEOUT_S = 600  # a machine that is busy compiles slowly
RESULTS = {64: "invalid", 69: "unavailable", 75: "unknown"}


def environment():
    """Without what would change a call: a proxy, or settings of Once."""
    return {name: value for name, value in os.environ.items()
        if not name.startswith("ONCE_") and not name.lower().endswith("_proxy")}


def drive_c(call):
    words = [BINARY, "send", call["method"], call["url"], "--json", "--retries",
        str(call["retries"]), "--deadline", "60s"]
    for option in ("idempotency_key", "request_id"):
        if option in call:
            words += [f"--{option.replace('_', '-')}", call[option]]
    for name, value in call.get("headers", {}).items():
        words += ["--header", f"{name}: {value}"]
    if call["method"] == "POST":
        words += ["--data", call.get("body", "{}")]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL,
        env=environment(), timeout=TIMEOUT_S)
    if not done.stdout:
        return {"result": RESULTS[done.returncode], "error": done.stderr}
    answer = json.loads(done.stdout)
    if answer["status"] == 0:
        return {**answer, "result": RESULTS[done.returncode]}
    return {**answer, "result": "ok"}


def drive_python(call):
    client = once.Client()
    try:
        answer = client.send(call["method"], call["url"], call.get("body"),
            headers=call.get("headers"), idempotency_key=call.get("idempotency_key"),
            request_id=call.get("request_id"), retries=call["retries"])
    except (once.Unavailable, once.NoAnswer) as error:
        return {"result": "unavailable" if error.effect == "no" else "unknown", "status": 0,
            "effect": error.effect, "replayed": False, "attempts": error.attempts}
    finally:
        client.close()
    return {"result": "ok", "status": answer.status, "effect": answer.effect,
        "replayed": answer.is_replayed, "attempts": answer.attempts}


def drive_node(call):
    return drive_program([program("node"), str(HERE / "drive.mjs")], call)


def drive_go(call):
    return drive_program([go_program(), "drive"], call)


def drive_program(words, call):
    done = subprocess.run(words, input=json.dumps(call), capture_output=True, text=True,
        env=environment(), timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def program(name):
    """Where a language is; without it, its tests are skipped."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not here")
    return found


@functools.cache
def scratch():
    place = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, place, True)
    return Path(place)


def go_environment():
    """Go without a network."""
    return {**environment(), "GOPROXY": "off", "GOFLAGS": "", "GOTOOLCHAIN": "local",
        "GONOSUMDB": "*", "GO111MODULE": "on", "GOWORK": "off", **golang.cache()}


def go(*words, cwd, **env):
    with golang.turn():
        return subprocess.run([program("go"), *words], cwd=cwd, capture_output=True, text=True,
            env={**go_environment(), **env}, timeout=GO_TIMEOUT_S)


@functools.cache
def go_program():
    """The test programs of the Go SDK (tests/sdk/go), compiled."""
    path = scratch() / "sdk"
    done = go("build", "-o", str(path), ".", cwd=HERE / "go")
    assert done.returncode == 0, done.stderr
    return str(path)


DRIVERS = {"c": drive_c, "python": drive_python, "node": drive_node, "go": drive_go}
