"""A wall clock that a test steps, for any program: tests/clock_shim.c is the other half.

    clock = SteppingClock(tmp_path)
    subprocess.run([BINARY, …], env={**os.environ, **clock.env})      or Server(env=clock.env)
    clock.step(+600)                                                  seconds, may be negative
    clock.sleep(600)                                                  after a sleep of the machine
    with clock.held(): …                                              no flush of a journal ends

A step moves the wall clock alone. A sleep moves the boot clock as well; the monotonic one, and so
every timer, is the machine's.
"""
import contextlib
import os
from pathlib import Path

from serve_help import BUILDS

NAME = "tests/libclock_shim.so"
SHIM = next((build / NAME for build in BUILDS if (build / NAME).exists()), BUILDS[-1] / NAME)


class SteppingClock:
    def __init__(self, directory):
        self.path, self.offset_ms, self.asleep_ms = Path(directory) / "clock-offset-ms", 0, 0
        self.hold = Path(directory) / "hold-flushes"
        # A sanitizer insists on coming first in the list of libraries unless it is told not to.
        options = os.environ.get("ASAN_OPTIONS", "")
        self.env = {"LD_PRELOAD": str(SHIM), "ONCE_TEST_CLOCK_FILE": str(self.path),
            "ONCE_TEST_HOLD_FILE": str(self.hold),
            "ASAN_OPTIONS": f"{options}:verify_asan_link_order=0".lstrip(":")}
        assert SHIM.exists(), f"{SHIM} is not built"
        self.set(0)

    def set(self, seconds):
        """That far ahead of the machine's clock."""
        self.offset_ms = round(seconds * 1000)
        whole = self.path.with_suffix(".new")
        whole.write_text(f"{self.offset_ms} {self.asleep_ms}\n")
        whole.replace(self.path)

    def step(self, seconds):
        self.set(self.offset_ms / 1000 + seconds)

    def sleep(self, seconds):
        self.asleep_ms += round(seconds * 1000)
        self.set(self.offset_ms / 1000)

    @contextlib.contextmanager
    def held(self):
        """Flushes that begin from now on end after it. Gives what says whether one has begun."""
        self.hold.touch()
        try:
            yield self.hold.with_suffix(".held").exists
        finally:
            self.hold.unlink()
            self.hold.with_suffix(".held").unlink(missing_ok=True)
