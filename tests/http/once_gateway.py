"""The real gateway as a process in front of an Origin, and a client that sees every byte.

    gateway = make_gateway()                                  in front of `origin`, profile ietf
    gateway = make_gateway("--profile", "stripe")
    gateway = make_gateway(routes=[{"match": "POST /pay", "window": "2h"}], limits={…})
    answer = gateway.send("POST", "/pay", {"amount": 1}, key="k1")
    answer.status, answer.fields, answer.body, answer.json
    gateway.operations()                                      once ls --json, beside the gateway

Settings are given as Python values: JSON is YAML.
"""
import json
import socket
import struct
import time
import urllib.parse

from once_server import ANSWER_S, BINARY, Broken, Headers, Server, Wire, request_bytes

DUPLICATES_FREE = {"duplicate_rate": 0}  # duplicates of one key are not limited


class Answer:
    def __init__(self, status, lines, body, trailers=()):
        self.status, self.body, self.trailers = status, body, list(trailers)
        self.lines = lines  # (name as it came, value), in order
        self.fields = Headers()
        for name, value in lines:
            self.fields.add(name, value)

    def all(self, name):
        return [value for given, value in self.lines if given.lower() == name.lower()]

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def decision(self):
        return self.fields.get("Once-Decision")

    @property
    def is_replay(self):
        return self.fields.get("Idempotent-Replayed") == "true"

    def __repr__(self):
        return f"<{self.status} {dict(self.fields)} {self.body[:300]!r}>"


class Peer(Wire):
    """One connection that reads answers with any framing."""

    def head(self):
        """(status, lines) of the next final head."""
        while True:
            line, *lines = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
            status = int(line.split(" ")[1])
            if status >= 200:
                break
        pairs = [each.partition(":") for each in lines]
        return status, [(name, value.strip()) for name, _, value in pairs]

    def read(self, method="GET"):
        status, lines = self.head()
        fields = Answer(status, lines, b"").fields
        if method == "HEAD" or status in (204, 304):
            return Answer(status, lines, b"")
        if fields.get("Transfer-Encoding", "").lower() == "chunked":
            body, trailers = self.chunks()
            return Answer(status, lines, body, trailers)
        if "Content-Length" in fields:
            return Answer(status, lines, self._exactly(int(fields["Content-Length"])))
        return Answer(status, lines, self.rest())

    def chunks(self):
        body = []
        while True:
            size = int(self._until(b"\r\n").split(b";")[0], 16)
            if size == 0:
                break
            body.append(self._exactly(size))
            assert self._exactly(2) == b"\r\n"
        trailers = []
        while True:
            line = self._until(b"\r\n")
            if not line:
                return b"".join(body), trailers
            trailers.append(line.decode("latin-1"))

    def rest(self):
        """Everything until the end of the connection."""
        while True:
            try:
                self._more()
            except Broken as end:
                if "closed" not in str(end):
                    raise
                data, self.pending = self.pending, b""
                return data

    def some(self, count=1):
        """At least that many bytes, as soon as they come; what there is."""
        while len(self.pending) < count:
            self._more()
        return self.pending

    def reset(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def request_for(method, path, body=None, key=None, headers=None, do=None):
    """The bytes of a request. do: what the origin is to do (X-Do)."""
    fields = dict(headers or {})
    if key is not None:
        fields["Idempotency-Key"] = key
    if do is not None:
        fields["X-Do"] = do
    return request_bytes(method, path, body, fields)


class Gateway(Server):
    """`once gateway` on a store of its own (stores.py), until the end of the test."""

    def __init__(self, *options, origin=None, upstream=None, routes=None, gateway=None, limits=None,
            more=None, listen="127.0.0.1:0", over=None, **how):
        """over: the URL of its store, when it is not one of its own.
        routes, gateway (more of that section), limits, more (of the file): as in the file.
        upstream: URL, or a list of them; the origin's when not given. listen: with a port of its
        own it is on the same one after a restart; None: where the file says."""
        self.listen, self.over = listen, over
        self.upstream = upstream if upstream is not None else origin.url
        options = list(options)
        if routes is None and gateway is None and limits is None and more is None:
            urls = [self.upstream] if isinstance(self.upstream, str) else self.upstream
            options += [word for url in urls for word in ("--upstream", url)]
            self.config = None
        else:
            self.config = self._document(routes, gateway, limits, more)
            how["config"] = json.dumps(self.config, indent=1)
        super().__init__(*options, **how)

    def _document(self, routes, gateway, limits, more):
        section = {"upstream": self.upstream, **(gateway or {})}
        if routes is not None:
            section["routes"] = routes
        return {**({"limits": limits} if limits else {}), **(more or {}), "gateway": section}

    def rewrite(self, routes=None, gateway=None, limits=None, more=None):
        """Another file in the same place, for SIGHUP."""
        self.config = self._document(routes, gateway, limits, more)
        (self.directory / "once.yaml").write_text(json.dumps(self.config, indent=1))

    def command(self):
        listen = ["--listen", self.listen] if self.listen else []
        return [BINARY, "gateway", *listen, "--store", self.over or self.store, *self.options]

    def _is_ready(self):
        try:
            with self.peer():
                return True
        except OSError:
            return False

    # --- Talking to it ---

    def peer(self, timeout_s=ANSWER_S):
        return Peer(("127.0.0.1", self.port), timeout_s)

    def send(self, method, path, body=None, key=None, headers=None, do=None, timeout_s=ANSWER_S):
        """One request over a connection of its own."""
        with self.peer(timeout_s) as peer:
            peer.send(request_for(method, path, body, key, headers, do))
            return peer.read(method)

    def post(self, key, body=None, path="/pay", **how):
        return self.send("POST", path, {"amount": 1} if body is None else body, key, **how)

    def operations(self, **filters):
        """What the store has, as `once ls` shows it."""
        words = [word for name, value in filters.items() for word in (f"--{name}", value)]
        done = self.cli("ls", "--json", "--store", self.store, *words)
        assert done.returncode == 0, done
        return json.loads(done.stdout)

    def of_key(self, key):
        """The same of one key. Tests wait with it, and a process each time would cost more than
        all else: so a running gateway's journal is asked by its socket, as that command does."""
        try:
            with Wire(str(self.data_dir / "once.sock")) as wire:
                status, _, answer = wire.request("GET",
                    "/v1/operations?" + urllib.parse.urlencode({"key": key}))
        except (Broken, OSError):  # it has ended, or its store has no such file
            return self.operations(key=key)
        assert status == 200 and answer["next"] is None, answer
        return answer["operations"]

    def status_of(self, key):
        """The one operation's status with that key; None: there is none."""
        found = self.of_key(key)
        assert len(found) <= 1, found
        return found[0]["status"] if found else None

    def shown(self, key):
        """All that is remembered of it (once show)."""
        found = self.of_key(key)
        assert len(found) == 1, found
        done = self.cli("show", found[0]["operation_id"], "--json", "--store", self.store)
        assert done.returncode == 0, done
        return json.loads(done.stdout)

    def wait_status(self, key, status, timeout_s=60):
        until = time.monotonic() + timeout_s
        while self.status_of(key) != status:
            assert time.monotonic() < until, f"{key} is {self.status_of(key)}, not {status}"
            time.sleep(0.02)

    def resolve(self, key, status, *words):
        operation = self.of_key(key)[0]["operation_id"]
        done = self.cli("resolve", operation, "--status", status, "--reason", "looked",
            "--store", self.store, *words)
        assert done.returncode == 0, done
        return done
