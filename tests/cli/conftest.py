"""What all tests of the command line share: the binary, a place of its own, and how to run it."""
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import stores  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
BINARY = os.environ.get("ONCE_BINARY") or os.environ.get("ONCE_BIN") or str(ROOT / "build/once")
TIMEOUT_S = 120  # far above what any command takes; a hang is a failure, not a wait


def clean_environment():
    """The caller's, without what would change the meaning of a command line."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ONCE_")}
    kept.pop("NO_COLOR", None)
    return kept


def attend():
    """Signals as a terminal's shell leaves them: a job in the background inherits two ignored. What
    is started gets the default action of one that is handled here. (Done between fork and exec it
    would need a copy of this process each time.)"""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


attend()


class Once:
    """The program in a directory of its own."""

    def __init__(self, directory):
        self.directory = Path(directory)
        self.env = clean_environment()
        if stores.SHARED:  # else once-data in the directory
            self.env["ONCE_STORE"] = stores.url_of(self.directory / "once-data")
        self.started = []

    def start(self, *words, **how):
        how.setdefault("stdin", subprocess.DEVNULL)
        how.setdefault("stdout", subprocess.PIPE)
        how.setdefault("stderr", subprocess.PIPE)
        how.setdefault("cwd", self.directory)
        how["env"] = {**self.env, **how.pop("env", {})}
        # A session of its own, so that nothing a failed test started outlives it.
        process = subprocess.Popen([BINARY, *[os.fspath(word) for word in words]],
            start_new_session=True, **how)
        self.started.append(process)
        return process

    def end(self):
        for process in self.started:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):  # what a dead one did not read
                        stream.close()

    def __call__(self, *words, stdin=b"", **how):
        process = self.start(*words, stdin=subprocess.PIPE, **how)
        try:
            out, err = process.communicate(stdin, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        return Done(process.returncode, out, err)

    def run(self, key, *command, options=(), **how):
        return self("run", "--idempotency-key", key, *options, "--", *command, **how)


class Done:
    """How a call ended."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def text(self):
        return self.out.decode()

    @property
    def message(self):
        return self.err.decode()

    def __repr__(self):
        return f"exit {self.code}\n--- stdout\n{self.out!r}\n--- stderr\n{self.err!r}"


@pytest.fixture
def once(tmp_path):
    program = Once(tmp_path)
    yield program
    program.end()


@pytest.fixture
def script(tmp_path):
    """Make an executable shell script and give its path."""
    def make(text, name="script.sh"):
        path = tmp_path / name
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)
        return f"./{name}"
    return make
