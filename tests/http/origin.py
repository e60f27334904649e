"""An upstream that counts effects and misbehaves on command.

    origin = Origin()
    POST /pay  Idempotency-Key: k  X-Do: status=201&after_ms=50     does so, and answers 201
    origin.effects["k"], origin.seen("k")                           what happened, what came

Commands, as a query in the field X-Do (or in origin.does[key], which goes first; then in
origin.does[None], for every request):

    fault=     reset_before reset_after close_before close_after   the effect is meant
               half_line half_head half_body half_body_reset half_chunk
               too_long (bytes behind the answer) garbage two_lengths switch (101) early (before the
               body is read) hang (no answer at all) hang_body (half of one)
    status=201  effect=0 (none happens)  before_ms= after_ms= (of the effect)  hold=1 (until let_go)
    body=json|binary|empty  size=N (bytes of it)  type=  text=  pieces=N piece_ms=M (of the body)
    hold_body=1 (in the middle of it, until let_go)
    chunked=1 (chunk=N bytes each)  trailers=1  until_close=1  close=1 (Connection)  http10=1
    interim=N (1xx before it)  cookie=1  fields=N (more of them)  field=NAME:VALUE (repeatable)

An effect is counted under the Idempotency-Key (quoted or bare) and the Once-Operation-Id. Reads
have none. GET /by-key/KEY is for reconciling: 200 with the first answer's body when KEY had an
effect, else 404; origin.lookups[KEY] = (status, body) overrides it.

One thread with an event loop of its own. What it notes is only ever appended to, or counted.
"""
import asyncio
import collections
import json
import socket
import struct
import threading
import time
from urllib.parse import parse_qsl, unquote, urlsplit

import servers

WAIT_S = 30  # far above what anything takes; a hang is a failure, not a wait
HEAD_BYTES_MAX = 1 << 20
READS = ("GET", "HEAD", "OPTIONS", "TRACE")


class Request:
    """One request as it came. raw grows while it comes; is_whole when all of it is here."""

    def __init__(self, head):
        self.raw, self.body, self.is_whole = bytearray(head), bytearray(), False
        line, *lines = head[:-4].decode("latin-1").split("\r\n")
        self.method, self.target, self.version = line.split(" ")
        self.fields = [(name.lower(), value.strip()) for name, _, value in
            (each.partition(":") for each in lines)]
        self.path = urlsplit(self.target).path
        self.connection = 0  # which one it came on
        self.at = time.monotonic()

    def all(self, name):
        return [value for given, value in self.fields if given == name.lower()]

    def get(self, name, default=None):
        values = self.all(name)
        return values[0] if values else default

    @property
    def key(self):
        """The key bare, however it is spelled."""
        key = self.get("Idempotency-Key", "")
        if len(key) >= 2 and key[0] == key[-1] == '"':
            key = key[1:-1].replace('\\"', '"').replace("\\\\", "\\")
        return key


class Origin:
    def __init__(self, tls=None):
        self.requests = []  # in the order they came
        self.by_key = collections.defaultdict(list)  # the same
        self.effects = collections.Counter()  # by key
        self.operations = collections.Counter()  # by Once-Operation-Id
        self.fences = collections.defaultdict(list)  # by key, of each effect
        self.answers = {}  # the body of each key's first effect
        self.does, self.lookups = {}, {}
        self.connections = 0
        self.bytes_seen = 0
        self.total = 0  # effects
        self.listening = socket.socket()
        self.listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        servers.bind_apart(self.listening)
        self.listening.listen(1024)
        self.port = self.listening.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.tls, self.held = tls, {}
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda *_: None)  # peers that vanish are usual here
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    # --- For the test's thread ---

    def seen(self, key):
        return list(self.by_key.get(key, ()))

    def wait_for(self, key, count=1, whole=True):
        """Until that many requests with the key are here; the last of them."""
        until = time.monotonic() + WAIT_S
        while True:
            found = [one for one in self.seen(key) if one.is_whole or not whole]
            if len(found) >= count:
                return found[count - 1]
            assert time.monotonic() < until, f"{len(found)} requests with the key {key!r} came"
            time.sleep(0.002)

    def wait_effect(self, key):
        until = time.monotonic() + WAIT_S
        while self.effects[key] == 0:
            assert time.monotonic() < until, f"no effect with the key {key!r}"
            time.sleep(0.01)

    def let_go(self, key=None):
        """End what hold=1 holds: of one key (or path, without a key), or all."""
        def end():
            for each, event in list(self.held.items()):
                if key in (None, each):
                    event.set()
        self.loop.call_soon_threadsafe(end)

    def close(self):
        """No more connections, and none stays. Fine when it is closed."""
        if self.thread.is_alive():
            self.loop.call_soon_threadsafe(self.ended.set)
            self.thread.join(WAIT_S)

    # --- On its own thread ---

    def _run(self):
        asyncio.set_event_loop(self.loop)
        self.ended = asyncio.Event()
        self.loop.run_until_complete(self._serve())
        self.loop.close()

    async def _serve(self):
        server = await asyncio.start_server(self._connection, sock=self.listening,
            limit=HEAD_BYTES_MAX, ssl=self.tls)
        await self.ended.wait()
        server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connection(self, reader, writer):
        self.connections += 1
        number = self.connections
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while await self._exchange(reader, writer, number):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _exchange(self, reader, writer, number):
        """One request; whether the connection goes on."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as cut:
            self.bytes_seen += len(cut.partial)
            return False
        self.bytes_seen += len(head)
        request = Request(head)
        request.connection = number
        self.requests.append(request)
        self.by_key[request.key].append(request)
        do = self._commands(request)
        if do.get("fault") != "early":
            await self._body(request, reader, writer)
        return await self._answer(request, do, writer)

    def _commands(self, request):
        text = self.does.get(request.key) or request.get("X-Do") or self.does.get(None) or ""
        if callable(text):
            text = text(request) or ""
        given = parse_qsl(text, keep_blank_values=True, encoding="latin-1")  # bytes as they are
        do = dict(given)
        do["fields_given"] = [value for name, value in given if name == "field"]
        return do

    async def _body(self, request, reader, writer):
        if "100-continue" in request.get("Expect", ""):
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if request.get("Transfer-Encoding", "").lower() == "chunked":
            while True:
                line = await reader.readuntil(b"\r\n")
                size = int(line.split(b";")[0], 16)
                request.raw += line
                self.bytes_seen += len(line)
                if size == 0:
                    break
                await self._take(request, reader, size)
                end = await reader.readexactly(2)
                request.raw += end
            while True:  # trailers
                line = await reader.readuntil(b"\r\n")
                request.raw += line
                if line == b"\r\n":
                    break
        else:
            await self._take(request, reader, int(request.get("Content-Length", "0")))
        request.is_whole = True

    async def _take(self, request, reader, size):
        while size:
            piece = await reader.read(min(size, 1 << 16))
            if not piece:
                raise ConnectionResetError
            request.raw += piece
            request.body += piece
            self.bytes_seen += len(piece)
            size -= len(piece)

    def _effect(self, request, do):
        if request.method in READS or do.get("effect") == "0":
            return
        self.total += 1
        self.effects[request.key] += 1
        self.operations[request.get("Once-Operation-Id")] += 1
        self.fences[request.key].append(request.get("Once-Fence"))

    async def _answer(self, request, do, writer):
        fault = do.get("fault", "")
        if "before_ms" in do:
            await asyncio.sleep(int(do["before_ms"]) / 1000)
        if fault.endswith("_before"):
            return self._end(writer, fault.startswith("reset"))
        self._effect(request, do)
        body = self._make_body(request, do)
        if request.method not in READS and do.get("effect") != "0":
            self.answers.setdefault(request.key, body)
        if "hold" in do:
            await self._held(request.key or request.path)
        if "after_ms" in do:
            await asyncio.sleep(int(do["after_ms"]) / 1000)
        if fault.endswith("_after"):
            return self._end(writer, fault.startswith("reset"))
        return await self._send(request, do, fault, body, writer)

    async def _held(self, name):
        await self.held.setdefault(name, asyncio.Event()).wait()

    def _make_body(self, request, do):
        status = int(do.get("status", 200))
        if do.get("body") == "empty" or status in (204, 304):
            return b""
        if "text" in do:
            return do["text"].encode("latin-1")
        if do.get("body") == "binary":
            size = int(do.get("size", 1024))
            return (bytes(range(256)) * (size // 256 + 1))[:size]
        if request.path.startswith("/by-key/"):
            return self._lookup(request, do)
        document = {"effect": self.total, "key": request.key, "method": request.method,
            "target": request.target}
        if "size" in do:
            document["more"] = "x" * int(do["size"])
        return json.dumps(document).encode() + b"\n"

    def _lookup(self, request, do):
        key = unquote(request.path.removeprefix("/by-key/"))
        found = self.answers.get(key) if self.effects[key] else None
        usual = (200, found) if found is not None else (404, b"{}")
        status, body = self.lookups.get(key) or usual
        do.setdefault("status", str(status))
        return body

    @staticmethod
    def _end(writer, is_reset):
        if is_reset:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                struct.pack("ii", 1, 0))
        writer.transport.abort()
        return False

    async def _send(self, request, do, fault, body, writer):
        for number in range(int(do.get("interim", 0))):
            writer.write([b"HTTP/1.1 100 Continue\r\n\r\n",
                b"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n"][number % 2])
        if fault == "hang":
            await asyncio.sleep(3600)
        if fault == "garbage":
            writer.write(b"\x16\x03\x01 this is no HTTP\r\n\r\n" + bytes(range(256)))
            return False
        if fault == "switch":
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n"
                b"Connection: upgrade\r\n\r\n")
            return False
        head, framed = self._frame(request, do, fault, body)
        if fault in ("half_line", "half_head"):
            writer.write(head[:9] if fault == "half_line" else head[:len(head) // 2 + 12])
            return False
        writer.write(head)
        if request.method == "HEAD":
            return not self._closes(do)
        if fault in ("half_body", "half_body_reset", "half_chunk", "hang_body"):
            writer.write(framed[:len(framed) // 2])
            await writer.drain()
            if fault == "hang_body":
                await asyncio.sleep(3600)
            if fault == "half_body_reset":
                await asyncio.sleep(0.05)  # so that what was sent is not lost with the reset
                return self._end(writer, True)
            return False
        if "hold_body" in do:
            writer.write(framed[:len(framed) // 2])
            framed = framed[len(framed) // 2:]
            await self._held(request.key or request.path)
        await self._pieces(do, framed, writer)
        if fault == "too_long":
            writer.write(b"these bytes are past its length")
        await writer.drain()
        if fault == "early":
            await asyncio.sleep(0.2)  # what is not read would reset it behind its answer
            return False
        return not self._closes(do)

    @staticmethod
    def _closes(do):
        return "close" in do or "until_close" in do or "http10" in do

    @staticmethod
    async def _pieces(do, framed, writer):
        pieces = int(do.get("pieces", 1))
        step = max(1, -(-len(framed) // pieces))
        for at in range(0, len(framed), step):
            if at:
                await asyncio.sleep(int(do.get("piece_ms", 0)) / 1000)
            writer.write(framed[at:at + step])
            await writer.drain()

    def _frame(self, request, do, fault, body):
        """(head, body as it goes over the wire)"""
        status = int(do.get("status", 200))
        version = "HTTP/1.0" if "http10" in do else "HTTP/1.1"
        lines = [f"{version} {status} Whatever", "Date: Sun, 06 Nov 1994 08:49:37 GMT"]
        usual = "application/octet-stream" if do.get("body") == "binary" else "application/json"
        if body or "type" in do:
            lines.append(f"Content-Type: {do.get('type', usual)}")
        lines += [each.replace(":", ": ", 1) for each in do["fields_given"]]
        lines += [f"X-Field-{number}: {number}" for number in range(int(do.get("fields", 0)))]
        if "cookie" in do:
            lines += ["Set-Cookie: session=secret; HttpOnly", "Set-Cookie: other=1"]
        if "close" in do or fault == "early":
            lines.append("Connection: close, X-Hop")
            lines.append("X-Hop: one hop only")
        framed = body
        if "chunked" in do or fault == "half_chunk":
            lines.append("Transfer-Encoding: chunked")
            step = int(do.get("chunk", 700))
            framed = b"".join(b"%x\r\n%b\r\n" % (len(body[at:at + step]), body[at:at + step])
                for at in range(0, len(body), step)) + b"0\r\n"
            framed += b"X-Trailer: late\r\n\r\n" if "trailers" in do else b"\r\n"
            if "trailers" in do:
                lines.append("Trailer: X-Trailer")
        elif fault == "two_lengths":
            lines += [f"Content-Length: {len(body)}", f"Content-Length: {len(body) - 1}"]
        elif not self._unframed(do, status):
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1"), framed

    @staticmethod
    def _unframed(do, status):
        return "until_close" in do or status in (204, 304)
