"""The real server as a process, and small clients for it: what every test over HTTP is built from.

    server.request("POST", "/v1/fences", {...})  ->  (status, headers, JSON)
    wire = server.wire()                             a keep-alive connection, for exact bytes

A server that is restarted listens on another port, so ask it for its address each time. (The same
one could by then be some client's own end.)
"""
import json
import os
import re
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import stores  # noqa: E402

BINARY = os.environ.get("ONCE_BIN") or str(ROOT / "build/once")
LONG = bool(os.environ.get("ONCE_TEST_LONG"))
LIGHT = bool(os.environ.get("ONCE_TEST_LIGHT"))  # with a sanitizer, which makes it much slower
LIGHT_LOOPS = 2
SANITIZER_REPORT = re.compile(r"(Address|Leak|Thread)Sanitizer|: runtime error: ")
START_LINES = 4  # version, URL, store, write mode; what to paste may follow
STDERR_SHOWN = 8000  # characters, when a test fails
START_S, STOP_S, ANSWER_S = 60, 60, 60  # far above what they take; a hang is a failure, not a wait


class Broken(Exception):
    """The connection ended before a whole answer was read: nobody knows what happened."""


def until(is_so, what, timeout_s=ANSWER_S):
    """Wait for something that is asked about again and again; less often when it takes long."""
    began = time.monotonic()
    while not is_so():
        waited = time.monotonic() - began
        assert waited < timeout_s, what
        time.sleep(0.02 if waited < 1 else 0.06)


class Headers(dict):
    """Fields by name, in any case. Several of one name are joined with commas."""

    def add(self, name, value):
        name = name.lower()
        super().__setitem__(name, f"{self[name]}, {value}" if name in self else value)

    def __getitem__(self, name):
        return super().__getitem__(name.lower())

    def __contains__(self, name):
        return super().__contains__(name.lower())

    def get(self, name, default=None):
        return super().get(name.lower(), default)


def request_bytes(method, path, body=None, headers=None, host="once"):
    """A whole request. A body that is not bytes or text is sent as JSON."""
    fields = {"Host": host}
    if body is not None:
        if not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        body = body.encode() if isinstance(body, str) else body
        fields.update({"Content-Type": "application/json", "Content-Length": str(len(body))})
    elif method in ("POST", "PUT", "PATCH"):
        fields["Content-Length"] = "0"
    fields.update(headers or {})
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + (body or b"")


class Wire:
    """One connection. Send what you like; answers are read in the order they come."""

    def __init__(self, address, timeout_s=ANSWER_S):
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self.socket.settimeout(timeout_s)
            self.socket.connect(address)
            if family == socket.AF_INET:
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            self.socket.close()
            raise
        self.pending = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data):
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise Broken(str(error)) from error

    def _more(self):
        try:
            data = self.socket.recv(1 << 16)
        except OSError as error:
            raise Broken(str(error) or type(error).__name__) from error
        if not data:
            raise Broken("the server closed the connection")
        self.pending += data

    def _until(self, mark):
        while mark not in self.pending:
            self._more()
        line, self.pending = self.pending.split(mark, 1)
        return line

    def _exactly(self, count):
        while len(self.pending) < count:
            self._more()
        data, self.pending = self.pending[:count], self.pending[count:]
        return data

    def answer_bytes(self, method="GET"):
        """(status, headers, the body's bytes) of the next answer; an interim one is skipped."""
        while True:
            lines = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
            status = int(lines[0].split(" ")[1])
            if status >= 200:
                break
        headers = Headers()
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers.add(name, value.strip())
        if method == "HEAD" or status in (204, 304):
            return status, headers, b""
        return status, headers, self._exactly(int(headers["Content-Length"]))

    def answer(self, method="GET"):
        """(status, headers, JSON; or the text of what is not JSON; or None for no body)"""
        status, headers, body = self.answer_bytes(method)
        return status, headers, parsed(headers, body)

    def request(self, method, path, body=None, headers=None):
        self.send(request_bytes(method, path, body, headers))
        return self.answer(method)

    def closed_by_server(self):
        """True when it closes the connection, having sent nothing more."""
        try:
            return not self.pending and self.socket.recv(1) == b""
        except ConnectionError:
            return True


def parsed(headers, body):
    if not body:
        return None
    is_json = "json" in headers.get("Content-Type", "")
    return json.loads(body, object_pairs_hook=members) if is_json else body.decode()


def members(pairs):
    """An object; a doubled member is a bug of ours."""
    assert len(dict(pairs)) == len(pairs), pairs
    return dict(pairs)


class Server:
    """`once serve` on a store of its own (stores.py), until the end of the test."""

    def __init__(self, *options, config=None, data_dir=None, store_options="", env=None):
        """config: YAML. store_options: what follows the path in the store's URL, "?segment=…"."""
        self.directory = Path(tempfile.mkdtemp(prefix="once-"))  # short: a socket's path fits in
        self.data_dir, self.store_options = Path(data_dir or self.directory / "data"), store_options
        self.options, self.env = list(options), dict(env or {})
        if config is not None:
            (self.directory / "once.yaml").write_text(stores.with_key(config))
            self.options += ["--config", str(self.directory / "once.yaml")]
        self.process, self.lines, self.url, self.port = None, [], None, None
        self.stderr_path = self.directory / "stderr"
        try:
            self.start()
        except BaseException:
            self.kill9()
            raise

    # --- Its life ---

    def command(self):
        return [BINARY, "serve", "--listen", "127.0.0.1:0", "--store",
            self.store, *self.options]

    def loops(self):
        """With a sanitizer several loops serve, where nobody says how many: by itself a server that
        has little to do has no two threads that could meet."""
        config = self.directory / "once.yaml"
        is_said = "--loops" in self.options or (config.exists() and "loops" in config.read_text())
        return {"ONCE_LOOPS": str(LIGHT_LOOPS)} if LIGHT and not is_said else {}

    @property
    def store(self):
        """The URL of its store, for other commands."""
        return stores.url_of(self.data_dir, self.store_options)

    def start(self):
        """Wait until it is ready."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("ONCE_")}
        with self.stderr_path.open("ab") as stderr:
            self.process = subprocess.Popen(self.command(), env={**env, **self.loops(), **self.env},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
                start_new_session=True)
        until = time.monotonic() + START_S
        self.lines = self._start_lines(until)
        self.url = re.search(r"https?://[^\s'\",/]+", "\n".join(self.lines)).group()
        self.port = int(self.url.rsplit(":", 1)[1])
        while not self._is_ready():
            assert self.process.poll() is None, f"it ended with {self.process.returncode}"
            assert time.monotonic() < until, "not ready"
            time.sleep(0.002)

    def _start_lines(self, until):
        text, stream = b"", self.process.stdout
        while text.count(b"\n") < START_LINES:
            assert select.select([stream], [], [], max(0, until - time.monotonic()))[0], \
                f"it said only {text!r}"
            data = os.read(stream.fileno(), 1 << 16)
            assert data, f"it ended with {self.process.wait()} after {text!r}\n{self.stderr()}"
            text += data
        return text.decode().splitlines()

    def _is_ready(self):
        try:
            return self.request("GET", "/readyz")[0] == 200
        except (Broken, ConnectionRefusedError):
            return False

    @property
    def pid(self):
        return self.process.pid

    def signal(self, number):
        self.process.send_signal(number)

    def kill9(self):
        """End it as a crash does. Fine when it has ended already."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()

    def stop(self):
        """End it as an operator does; it has to end well."""
        self.process.terminate()
        code = self.process.wait(STOP_S)
        self.process.stdout.close()
        assert code == 0, f"it ended with {code}\n{self.stderr()}"

    def restart(self):
        """Again on the same data, after kill9 or stop; on another port."""
        assert self.process.poll() is not None
        self.start()

    def stderr(self):
        return self.stderr_path.read_text(errors="replace") if self.stderr_path.exists() else ""

    def remove(self):
        self.kill9()
        shutil.rmtree(self.directory, ignore_errors=True)

    def end_light(self):
        """With a sanitizer: end it so that it looks for leaks, and see that it reported nothing."""
        if self.process.poll() is None:
            self.stop()
        found = SANITIZER_REPORT.search(self.stderr())
        assert found is None, self.stderr()[found.start():][:STDERR_SHOWN]

    # --- Talking to it ---

    def wire(self, timeout_s=ANSWER_S):
        return Wire(("127.0.0.1", self.port), timeout_s)

    def request(self, method, path, body=None, headers=None):
        """(status, headers, JSON) over a connection of its own."""
        with self.wire() as wire:
            return wire.request(method, path, body, headers)

    @property
    def reached(self):
        """Options for commands that ask a server: a journal's is found by its socket."""
        return ("--server", self.url) if stores.SHARED else ("--store", self.store)

    def cli(self, *words):
        """Run another command of the program to its end; its CompletedProcess."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("ONCE_")}
        return subprocess.run([BINARY, *[str(word) for word in words]], env=env, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=600)
