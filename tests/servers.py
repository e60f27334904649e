#!/usr/bin/python3
"""servers: private database servers for the tests, from Debian's packages.

    tests/servers.py postgres PROGRAM [ARGUMENTS]   run it with ONCE_TEST_POSTGRES set to the URL
    tests/servers.py redis PROGRAM [ARGUMENTS]      … with ONCE_TEST_REDIS

Each server has a directory of its own and is ended by its pid. Exit 77 (skipped) when the package
is not there.
"""
import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
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


class Postgres:
    """A PostgreSQL server of its own: a fresh cluster with one database, `once`. It refuses to run
    as root, so root's tests run it as `postgres`. It does not wait for the disk."""

    ENV = "ONCE_TEST_POSTGRES"
    DATABASE = "once"
    SETTINGS = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off",
        "full_page_writes": "off", "max_connections": 60, "shared_buffers": "32MB",
        "log_min_messages": "warning", "timezone": "UTC", "autovacuum_naptime": "10min"}

    def __init__(self, directory=None, port=None, **settings):
        self.owns = directory is None
        self.directory = str(directory or scratch("once-postgres-"))
        self.data = os.path.join(self.directory, "data")
        self.port = port or free_port()
        self.settings = {**self.SETTINGS, **settings, "port": self.port}
        self.process = None

    @staticmethod
    def program(name):
        """Debian keeps the server's programs out of PATH, one folder a version; the newest."""
        found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"),
            key=lambda path: int(path.split("/")[4]))
        return found[-1] if found else shutil.which(name)

    @classmethod
    def installed(cls):
        return cls.program("initdb") is not None and cls.program("postgres") is not None

    @staticmethod
    def user():
        """Keyword arguments for subprocess: who the server runs as."""
        if os.getuid() != 0:
            return {}
        owner = pwd.getpwnam("postgres")
        return {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}

    @property
    def url(self):
        return f"postgres://postgres@127.0.0.1:{self.port}/{self.DATABASE}"

    def make(self):
        if os.getuid() == 0:
            shutil.chown(self.directory, **{key: value for key, value in self.user().items()
                if key in ("user", "group")})
        subprocess.run([self.program("initdb"), "-D", self.data, "-U", "postgres", "-A", "trust",
            "-E", "UTF8", "--locale=C", "--no-sync"], check=True, capture_output=True,
            cwd=self.directory, **self.user())

    def start(self):
        fresh = not os.path.exists(os.path.join(self.data, "PG_VERSION"))
        if fresh:
            self.make()
        words = [f"--{name}={value}" for name, value in self.settings.items()]
        with open(os.path.join(self.directory, "postgres.log"), "ab") as log:
            self.process = subprocess.Popen([self.program("postgres"), "-D", self.data, *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory, **self.user())
        self.wait_ready()
        if fresh:
            self.sql(f"CREATE DATABASE {self.DATABASE}", database="postgres")
        return self

    def wait_ready(self):
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            try:
                self.sql("SELECT 1", database="postgres")
                return
            except subprocess.CalledProcessError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.05)
        raise RuntimeError("postgres does not answer:\n" + self.log())

    def sql(self, text, database=None, user="postgres"):
        """What psql prints for it: rows of values with | between them."""
        return subprocess.run(["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h",
            "127.0.0.1", "-p", str(self.port), "-U", user, "-c", text, database or self.DATABASE],
            check=True, capture_output=True, text=True, timeout=60).stdout.strip()

    def log(self):
        with open(os.path.join(self.directory, "postgres.log"), encoding="utf-8",
                errors="replace") as file:
            return file.read()

    def kill(self):
        """As a crash ends it: the whole server, not one session."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)  # fast: sessions are ended
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
        if self.owns:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()


class Redis:
    """A redis-server that keeps what it acknowledges: appendonly, appendfsync always."""

    ENV = "ONCE_TEST_REDIS"
    PROGRAM = "redis-server"

    @classmethod
    def installed(cls):
        return shutil.which(cls.PROGRAM) is not None

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


SERVERS = {"postgres": Postgres, "redis": Redis}


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in SERVERS:
        print(__doc__, file=sys.stderr)
        return 64
    kind = SERVERS[sys.argv[1]]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the server goes too
    if not kind.installed():
        return SKIP_STATUS
    with kind() as server:
        env = dict(os.environ, **{kind.ENV: server.url})
        return subprocess.run(sys.argv[2:], env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
