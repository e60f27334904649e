"""echo_server and a client that says exactly the bytes it is given, for test_serve*.py."""
import json
import os
import socket
import struct
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILDS = [Path(os.environ[name]).parent for name in ("ONCE_BIN_ASAN", "ONCE_BIN")
    if name in os.environ] + [ROOT / "build-asan"]  # with sanitizers, if there is one
ECHO = Path(os.environ.get("ONCE_ECHO_SERVER") or next(
    (path for path in (build / "tests/http/echo_server" for build in BUILDS) if path.exists()),
    BUILDS[-1] / "tests/http/echo_server"))
TIMEOUT_S = 20  # far above what any answer takes; a hang is a failure, not a wait
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


class Server:
    """echo_server with its settings; the end has to be clean, or the test fails."""

    def __init__(self, *listens, **settings):
        words = [str(word) for pair in settings.items() for word in pair]
        for listen in listens or ["127.0.0.1:0"]:
            words += ["listen", listen] if isinstance(listen, str) else listen
        self.process = subprocess.Popen([ECHO, *words], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addresses = []
        for line in self.process.stdout:
            if line == "ready\n":
                return
            self.addresses.append(line.split()[1])
        raise RuntimeError(self.process.communicate()[1])

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.end()
        else:
            self.process.kill()
            self.process.communicate()

    def end(self):
        _, errors = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, errors
        assert errors == ""

    def connect(self, which=0, **options):
        return Client(self.addresses[which], **options)

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ask(self, line):
        self.say(line)
        return self.process.stdout.readline().strip()

    def stats(self):
        words = self.ask("stats").split()[1:]
        return {name: int(value) for name, value in (word.split("=") for word in words)}

    def wait_for(self, **wanted):
        """Until the figures are those; a figure that never comes is a failure."""
        began = time.monotonic()
        while True:
            stats = self.stats()
            if all(stats[name] == value for name, value in wanted.items()):
                return stats
            waited = time.monotonic() - began
            assert waited < TIMEOUT_S, stats
            time.sleep(0.01 if waited < 1 else 0.05)


class Answer:
    def __init__(self, status, fields, body):
        self.status, self.fields, self.body = status, fields, body

    @property
    def problem(self):
        assert self.fields["content-type"] == "application/problem+json"
        problem = json.loads(self.body)
        assert problem["status"] == self.status
        assert problem["request_id"] == self.fields["request-id"]
        return problem


class Client:
    """One connection that says exactly the bytes it is given."""

    def __init__(self, address, receive_bytes=None, tls=None, timeout=TIMEOUT_S):
        if address.startswith("unix:"):
            self.socket = socket.socket(socket.AF_UNIX)
            target = address[5:]
        else:
            host, _, port = address.rpartition(":")
            family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
            self.socket = socket.socket(family)
            target = (host.strip("[]"), int(port))
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(timeout)
        self.socket.connect(target)
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self.left = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, *pieces):
        for piece in pieces:
            self.socket.sendall(piece)

    def more(self):
        """What comes next; nothing at the end."""
        try:
            return self.socket.recv(65536)
        except (ConnectionResetError, BrokenPipeError):
            return b""

    def until(self, mark):
        while mark not in self.left:
            piece = self.more()
            assert piece, f"the connection ended after {self.left!r}"
            self.left += piece
        text, _, self.left = self.left.partition(mark)
        return text

    def answer(self, has_body=True):
        line, *lines = self.until(b"\r\n\r\n").decode().split("\r\n")
        fields = {name.lower(): value for name, value in (each.split(": ", 1) for each in lines)}
        assert len(fields) == len(lines)
        length = int(fields.get("content-length", 0)) if has_body else 0
        while len(self.left) < length:
            piece = self.more()
            assert piece, "the connection ended inside a body"
            self.left += piece
        body, self.left = self.left[:length], self.left[length:]
        return Answer(int(line.split()[1]), fields, body)

    def ends(self):
        """True when there is nothing more but the end of the connection."""
        return self.left == b"" and self.more() == b""

    def refusal(self, status):
        answer = self.answer()
        assert answer.status == status
        assert answer.fields["connection"] == "close"
        assert answer.problem["effect"] == "no"
        assert self.ends()
        return answer

    def reset(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def post(path, body, *fields):
    lines = [f"POST {path} HTTP/1.1", "Host: a", f"Content-Length: {len(body)}", *fields, "", ""]
    return "\r\n".join(lines).encode() + body
