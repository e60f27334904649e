"""A program that ends itself at one of its steps: tests/kill_shim.c is the other half.

    kill = KilledAt(tmp_path)
    server = make_server(env=kill.env)
    kill.at(3)                  before the third step from now on: a write, a flush, a connection
    kill.at(1, "execution.started", after=True)     right after what is written first with that text
    kill.is_reached()           it has been done, or is being done
    kill.name()                 what that step was; empty: it lives
"""
import mmap
import os
import struct
from pathlib import Path

from serve_help import BUILDS

NAME = "tests/libkill_shim.so"
SHIM = next((build / NAME for build in BUILDS if (build / NAME).exists()), BUILDS[-1] / NAME)
FORM = struct.Struct("ll16s64sl")


class KilledAt:
    def __init__(self, directory):
        path = Path(directory) / "kill-at"
        path.write_bytes(bytes(FORM.size))
        options = os.environ.get("ASAN_OPTIONS", "")
        self.env = {"LD_PRELOAD": str(SHIM), "ONCE_TEST_KILL_FILE": str(path),
            "ASAN_OPTIONS": f"{options}:verify_asan_link_order=0".lstrip(":")}
        assert SHIM.exists(), f"{SHIM} is not built"
        with path.open("r+b") as file:
            self.shared = mmap.mmap(file.fileno(), FORM.size)

    def at(self, step, mark="", after=False):
        """0: nothing is counted; -1: it lives, and its steps are counted. With a mark, only what
        carries these bytes is a step."""
        self.shared[:] = FORM.pack(0, 0, b"", mark.encode(), after)
        self.shared[:] = FORM.pack(step, 0, b"", mark.encode(), after)

    def count(self):
        return FORM.unpack(self.shared)[1]

    def is_reached(self):
        """The step was counted: the program has ended there, or does so at once. What it wrote
        may be seen before it is gone."""
        step, count, *_ = FORM.unpack(self.shared)
        return 0 < step <= count

    def name(self):
        return FORM.unpack(self.shared)[2].rstrip(b"\0").decode()
