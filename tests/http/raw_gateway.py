"""The real gateway between a client and an upstream that are both scripted byte by byte.

    with Upstream(script) as upstream, Gateway(upstream) as gateway:     script(upstream, Link)
        with gateway.link() as link:
            link.send(request("k"))
            answer = link.answer()

The end of a Gateway is part of the test: it has to stop by itself, with 0, and no sanitizer may
have anything to say.
"""
import re
import shutil
import socket
import struct
import tempfile
import threading

import stores
from once_server import BINARY, SANITIZER_REPORT, STDERR_SHOWN, Server

WAIT_S = 30  # far above what anything takes; a hang is a failure, not a wait
JSON = "Content-Type: application/json\r\n"


class Answer:
    """how: length, chunked, none, close; reset, cut: it broke off; silent: nothing came."""

    def __init__(self, status, head, body, how):
        self.status, self.head, self.body, self.how = status, head, body, how

    def field(self, name):
        found = re.search(rf"(?im)^{re.escape(name)}: *([^\r\n]*)", self.head)
        return found and found.group(1)

    def __repr__(self):
        return f"<{self.status} {self.how} {self.head!r} {self.body[:200]!r}>"


class Link:
    """A connection, of either side."""

    def __init__(self, sock):
        self.socket, self.pending = sock, b""
        sock.settimeout(WAIT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def reset(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def more(self):
        """False: the other side says no more."""
        data = self.socket.recv(1 << 16)
        self.pending += data
        return bool(data)

    def until(self, mark):
        """What comes before the mark, which is left out; None: the end came first."""
        while mark not in self.pending:
            if not self.more():
                return None
        found, self.pending = self.pending.split(mark, 1)
        return found

    def exactly(self, count):
        """Fewer only when the end came first."""
        while len(self.pending) < count and self.more():
            pass
        found, self.pending = self.pending[:count], self.pending[count:]
        return found

    def chunks(self):
        """(body, whether it is whole)"""
        body = b""
        while True:
            line = self.until(b"\r\n")
            if line is None:
                return body, False
            size = int(line.split(b";")[0], 16)
            piece = self.exactly(size + 2)
            body += piece[:size]
            if len(piece) < size + 2 or size == 0:
                return body, len(piece) == size + 2

    def request(self):
        """(head, body) of the next request; None: there is none, or not all of it."""
        head = self.until(b"\r\n\r\n")
        if head is None:
            return None
        head = head.decode("latin-1")
        length = re.search(r"(?im)^content-length: *(\d+)", head)
        if re.search(r"(?im)^transfer-encoding: *chunked", head):
            body, is_whole = self.chunks()
            return (head, body) if is_whole else None
        size = int(length.group(1)) if length else 0
        body = self.exactly(size)
        return (head, body) if len(body) == size else None

    def rest(self):
        try:
            while self.more():
                pass
            how = "close"
        except ConnectionError:
            how = "reset"
        found, self.pending = self.pending, b""
        return found, how

    def answer(self, method="POST"):
        try:
            status = 0
            while status < 200:
                head = self.until(b"\r\n\r\n")
                if head is None:
                    return Answer(None, "", b"", "silent")
                status = int(head.split(b" ")[1])
            return self._body(status, head.decode("latin-1"), method)
        except ConnectionError:
            return Answer(None, "", b"", "reset")

    def _body(self, status, head, method):
        length = re.search(r"(?im)^content-length: *(\d+)", head)
        if method == "HEAD" or status in (204, 304):
            return Answer(status, head, b"", "none")
        if length:
            body = self.exactly(int(length.group(1)))
            return Answer(status, head, body,
                "length" if len(body) == int(length.group(1)) else "cut")
        if re.search(r"(?im)^transfer-encoding: *chunked", head):
            body, is_whole = self.chunks()
            return Answer(status, head, body, "chunked" if is_whole else "cut")
        return Answer(status, head, *self.rest())


class Upstream:
    """Each connection is given to script(upstream, link), on a thread of its own."""

    def __init__(self, script=None):
        self.script, self.requests, self.connections = script or answers(), [], 0
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = self.listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listening.close()

    def _accept(self):
        while True:
            try:
                sock, _ = self.listening.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._run, args=(Link(sock),), daemon=True).start()

    def _run(self, link):
        try:
            self.script(self, link)
        except OSError:
            pass  # peers that vanish are usual here
        finally:
            link.close()

    def take(self, link):
        """The next request, noted; None: there is none."""
        request_ = link.request()
        if request_ is not None:
            self.requests.append(request_)
        return request_


def reply(body=b'{"ok":true}', status=200, fields=JSON):
    return f"HTTP/1.1 {status} X\r\n{fields}Content-Length: {len(body)}\r\n\r\n".encode() + body


def answers(data=None):
    """A script: these bytes to each request."""
    def script(upstream, link):
        while upstream.take(link) is not None:
            link.send(data or reply())
    return script


def request(key=None, path="/pay", body=b'{"a":1}', fields=JSON, method="POST", version="1.1"):
    lines = "" if key is None else f"Idempotency-Key: {key}\r\n"
    lines += "" if body is None else f"Content-Length: {len(body)}\r\n"
    head = f"{method} {path} HTTP/{version}\r\nHost: once\r\n{lines}{fields}\r\n"
    return head.encode() + (body or b"")


class Gateway(Server):
    def __init__(self, upstream, more="", above="", **how):
        """more: lines of the section gateway; above: lines of the file before it."""
        self.upstream = upstream
        if stores.SHARED:  # there is no operator's socket in a data directory
            self.api_directory = tempfile.mkdtemp(prefix="once-")
            above += f"listen: unix:{self.api_directory}/once.sock\n"
        super().__init__(config=f"{above}gateway:\n  listen: 127.0.0.1:0\n"
            f"  upstream: {upstream.url}\n{more}", **how)

    def command(self):
        return [BINARY, "gateway", "--store", self.store, *self.options]

    def _is_ready(self):
        return True  # it says its lines when it listens

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.stop()
                found = SANITIZER_REPORT.search(self.stderr())
                assert found is None, self.stderr()[found.start():][:STDERR_SHOWN]
        finally:
            self.remove()
            if stores.SHARED:
                shutil.rmtree(self.api_directory)

    def link(self):
        return Link(socket.create_connection(("127.0.0.1", self.port)))

    def send(self, data, method="POST"):
        with self.link() as link:
            link.send(data)
            return link.answer(method)

    def own(self, data):
        """Over the operator's socket."""
        with socket.socket(socket.AF_UNIX) as sock:
            place = self.api_directory if stores.SHARED else self.data_dir
            sock.connect(f"{place}/once.sock")
            link = Link.__new__(Link)
            link.socket, link.pending = sock, b""
            sock.settimeout(WAIT_S)
            sock.sendall(data)
            return link.answer()


