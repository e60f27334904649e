"""upstream_driver, and an origin server that misbehaves exactly as a test says."""
import json
import os
import queue
import socket
import ssl
import struct
import subprocess
import threading
import time

import servers
from serve_help import BUILDS

NAME = "tests/http/upstream_driver"
DRIVER = os.environ.get("ONCE_UPSTREAM_DRIVER") or next(
    (build / NAME for build in BUILDS if (build / NAME).exists()), BUILDS[-1] / NAME)
TIMEOUT_S = 20  # far above what any answer takes; a hang is a failure, not a wait
BODY = 300  # bytes of a request that has a body
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Driver:
    """The upstream under test; lines of calls are sorted by the call's number."""

    def __init__(self, *urls, **settings):
        settings.setdefault("idle_ms", 60000)  # what is closed sooner has another reason
        words = [str(word) for pair in settings.items() for word in pair]
        for url in urls:
            words += ["url", url.url if isinstance(url, Origin) else url]
        self.process = subprocess.Popen([DRIVER, *words], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines = queue.Queue()
        self.kept = []
        self.stats_at_end = None
        self.first = self.process.stdout.readline().strip()
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put(None)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.end()
        else:
            self.process.kill()
            print(self.process.stderr.read())
            self.process.wait()

    def end(self):
        """Every end has to be clean: exit 0, nothing on stderr, no connection left open."""
        self.process.stdin.close()
        self.thread.join(TIMEOUT_S)
        errors = self.process.stderr.read()
        assert self.process.wait(TIMEOUT_S) == 0, errors
        assert errors == ""
        while not self.lines.empty():
            line = self.lines.get()
            if line is not None and line.startswith("stats "):
                self.stats_at_end = json.loads(line[6:])
        if self.stats_at_end is not None:
            assert self.stats_at_end["open"] == 0
            assert self.stats_at_end["idle"] == 0
            assert self.stats_at_end["waiting"] == 0

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def start(self, number=1, **settings):
        self.say(" ".join(["start", str(number)] + [f"{k}={v}" for k, v in settings.items()]))

    def line(self, begins, timeout=TIMEOUT_S):
        """The next line that begins so; others are kept."""
        for at, line in enumerate(self.kept):
            if line.startswith(begins):
                return self.kept.pop(at)
        end = time.monotonic() + timeout
        while True:
            line = self.lines.get(timeout=max(0.01, end - time.monotonic()))
            assert line is not None, f"the driver ended: {self.process.stderr.read()}"
            if line.startswith(begins):
                return line
            self.kept.append(line)

    def last(self, number=1):
        """The last event of a call, its number cut off: "end 2 …" or "failed SENT BROKEN: …"."""
        while True:
            event = self.line(f"{number} ")[len(str(number)) + 1:]
            if event.startswith(("end ", "failed ")):
                return event

    def ask(self, number=1, **settings):
        self.start(number, **settings)
        return self.last(number)

    def stats(self):
        self.say("stats")
        return json.loads(self.line("stats ")[6:])

    def wait_stats(self, **wanted):
        """Until the statistics are so."""
        end = time.monotonic() + TIMEOUT_S
        while True:
            stats = self.stats()
            if all(stats[name] == value for name, value in wanted.items()):
                return stats
            assert time.monotonic() < end, stats
            time.sleep(0.02)


class Peer:
    """One connection as the origin sees it."""

    def __init__(self, origin, sock, number):
        self.origin = origin
        self.sock = sock
        self.number = number
        self.buffer = bytearray()

    def recv(self):
        data = self.sock.recv(65536)
        self.origin.received += data
        self.buffer += data
        return data

    def read(self, count):
        """At least that many bytes, or what came before the end."""
        while len(self.buffer) < count and self.recv():
            pass
        taken = bytes(self.buffer[:count])
        del self.buffer[:count]
        return taken

    def line(self, end):
        """What is in front of the end, which is cut off; or None at the end of all."""
        while end not in self.buffer:
            if not self.recv():
                return None
        taken = self.read(self.buffer.index(end))
        self.read(len(end))
        return taken

    def request(self):
        """One whole request: (head, body), or None at the end."""
        head = self.line(b"\r\n\r\n")
        if head is None:
            return None
        lower = head.lower()
        if b"transfer-encoding: chunked" in lower:
            return head, self.chunks()
        length = 0
        if b"content-length:" in lower:
            length = int(lower.split(b"content-length:")[1].split(b"\r\n")[0])
        return head, self.read(length)

    def chunks(self):
        body = b""
        while True:
            size = self.line(b"\r\n")
            if size is None:
                raise ConnectionError("inside a chunked body")
            size = int(size, 16)
            body += self.read(size)
            assert self.read(2) == b"\r\n"
            if size == 0:
                return body

    def send(self, data):
        self.sock.sendall(data)

    def slowly(self, data, step=1, pause=0.001):
        for at in range(0, len(data), step):
            self.send(data[at:at + step])
            time.sleep(pause)

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def wait_end(self):
        """Until the other side closes or resets; True if it sent nothing more."""
        try:
            return self.sock.recv(1) == b""
        except OSError:
            return True


class Origin:
    """script(peer) runs for each connection, in a thread of its own, and the socket is closed
    behind it. A list of scripts is used one after the other, the last one for ever."""

    def __init__(self, *scripts, address="127.0.0.1", port=0, context=None, backlog=64):
        self.scripts = scripts
        self.received = bytearray()
        self.count = 0
        self.context = context
        self.errors = []
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if port != 0:
            self.socket.bind((address, port))
        else:
            servers.bind_apart(self.socket, address)
        self.socket.listen(backlog)
        self.port = self.socket.getsockname()[1]
        scheme = "https" if context else "http"
        self.url = f"{scheme}://{address}:{self.port}"
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    def accept(self):
        while True:
            try:
                sock, _ = self.socket.accept()
            except OSError:
                return
            sock.settimeout(TIMEOUT_S)
            number = self.count
            self.count += 1
            threading.Thread(target=self.serve, args=(sock, number), daemon=True).start()

    def serve(self, sock, number):
        try:
            if self.context is not None:
                sock = self.context.wrap_socket(sock, server_side=True)
            self.scripts[min(number, len(self.scripts) - 1)](Peer(self, sock, number))
        except (ConnectionError, BrokenPipeError, ssl.SSLError):
            pass  # the other side is under test, and may leave
        except Exception as error:  # pylint: disable=broad-except
            self.errors.append(error)
        finally:
            sock.close()

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join(TIMEOUT_S)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.close()
        if kind is None:
            assert self.errors == []


def answers(data=OK):
    """A script: each request gets these bytes."""
    def script(peer):
        while peer.request() is not None:
            peer.send(data)
    return script


def says(data, end="close"):
    """A script: after one request these bytes, and then the end."""
    def script(peer):
        peer.request()
        peer.send(data)
        if end == "reset":
            time.sleep(0.05)  # what was sent has arrived: a reset discards what has not left
            peer.reset()
        elif end == "wait":
            peer.wait_end()
    return script


def waits(data):
    """A script: after one request these bytes, and then nothing until the other side leaves."""
    return says(data, "wait")
