#!/usr/bin/python3
"""servers: private database servers for the tests, from Debian's packages.

    tests/servers.py redis PROGRAM [ARGUMENTS]   run a program with ONCE_TEST_REDIS set to its URL

Each server has a directory of its own and is ended by its pid. Exit 77 (skipped) when the package
is not there.
"""
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

SKIP_STATUS = 77  # meson's and automake's convention
START_S = 30  # a busy machine takes its time


def scratch(prefix):
    """In memory where there is such a place: no test takes the power away, so nothing is learnt
    from waiting for the disk."""
    memory = "/dev/shm"
    return tempfile.mkdtemp(prefix=prefix, dir=memory if os.access(memory, os.W_OK) else None)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Redis:
    """A redis-server that keeps what it acknowledges: appendonly, appendfsync always."""

    ENV = "ONCE_TEST_REDIS"
    PROGRAM = "redis-server"

    def __init__(self, directory=None, port=None, **settings):
        self.owns = directory is None
        self.directory = str(directory or scratch("once-redis-"))
        self.port = port or free_port()
        self.settings = {"appendonly": "yes", "appendfsync": "always", "save": "",
            "maxmemory-policy": "noeviction", **settings}
        self.process = None

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self):
        words = [word for name, value in self.settings.items()
            for word in ("--" + name.replace("_", "-"), str(value))]
        with open(os.path.join(self.directory, "redis.log"), "ab") as log:
            self.process = subprocess.Popen([self.PROGRAM, "--port", str(self.port), "--bind",
                "127.0.0.1", "--dir", self.directory, "--daemonize", "no", *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.wait_ready()
        return self

    def wait_ready(self):
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            try:
                if self.ask("PING") == b"+PONG":
                    return
            except OSError:
                pass
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        raise RuntimeError("redis-server does not answer:\n" + self.log())

    def ask(self, *words):
        """The first line of the answer to one command."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as peer:
            parts = [f"*{len(words)}\r\n".encode()]
            for word in words:
                data = word if isinstance(word, bytes) else str(word).encode()
                parts += [f"${len(data)}\r\n".encode(), data, b"\r\n"]
            peer.sendall(b"".join(parts))
            with peer.makefile("rb") as answer:
                return answer.readline().rstrip(b"\r\n")

    def log(self):
        with open(os.path.join(self.directory, "redis.log"), encoding="utf-8",
                errors="replace") as file:
            return file.read()

    def kill(self):
        """As a crash ends it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
        if self.owns:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()


SERVERS = {"redis": Redis}


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in SERVERS:
        print(__doc__, file=sys.stderr)
        return 64
    kind = SERVERS[sys.argv[1]]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the server goes too
    if shutil.which(kind.PROGRAM) is None:
        return SKIP_STATUS
    with kind() as server:
        env = dict(os.environ, **{kind.ENV: server.url})
        return subprocess.run(sys.argv[2:], env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
