"""golang: what tests that compile Go have in common: one cache of what was compiled.

A program with net/http compiles some 200 packages of Go's own first, which takes half a minute of
processor time. So all tests use the user's cache, or one of the whole run where there is no home,
and compile one after the other: two that find it empty would both fill it.
"""
import contextlib
import fcntl
import os
import tempfile
from pathlib import Path

SHARED = Path(os.environ.get("ONCE_TEST_SHARED_DIR") or tempfile.gettempdir())  # of tools/test


def cache():
    """Settings for the environment of go."""
    return {} if os.environ.get("HOME") else {"GOCACHE": str(SHARED / "once-go-cache")}


@contextlib.contextmanager
def turn():
    with open(SHARED / "once-go.lock", "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
