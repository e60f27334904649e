"""A Redis stream for tests of queues: what is added, what is pending, and what was parked."""
import json
import socket


class Stream:
    """One stream and one group of a redis-server (tests/servers.py)."""

    def __init__(self, redis, name="orders", group="once"):
        self.redis, self.name, self.group = redis, name, group

    def url(self, more=""):
        return f"redis://127.0.0.1:{self.redis.port}/{self.name}?group={self.group}{more}"

    def ask(self, *words):
        """The whole answer to one command, as Python values."""
        with socket.create_connection(("127.0.0.1", self.redis.port), timeout=10) as peer:
            peer.sendall(command(*words))
            with peer.makefile("rb") as answer:
                return read(answer)

    def add(self, **fields):
        return self.ask("XADD", self.name, "*", *[word for name, value in fields.items()
            for word in (name.replace("_", "-"), value)]).decode()

    def add_events(self, ids, value=1):
        """Many structured CloudEvents in one go, each named by its id."""
        with socket.create_connection(("127.0.0.1", self.redis.port), timeout=30) as peer:
            peer.sendall(b"".join(command("XADD", self.name, "*", "event", event(name, value))
                for name in ids))
            with peer.makefile("rb") as answer:
                return [read(answer) for _ in ids]

    def pending(self):
        """How many messages nobody has acknowledged; those that nobody has read are not counted."""
        answer = self.ask("XPENDING", self.name, self.group)
        return answer[0] if isinstance(answer, list) else None  # the group is not there yet

    def parked(self):
        return [dict(zip(map(bytes.decode, fields[::2]), fields[1::2]))
            for _, fields in self.ask("XRANGE", "{" + self.name + "}:parked", "-", "+")]

    def consumers(self):
        return [dict(zip(map(bytes.decode, one[::2]), one[1::2]))
            for one in self.ask("XINFO", "CONSUMERS", self.name, self.group)]

    def is_done(self):
        """Everything was read and acknowledged."""
        groups = self.ask("XINFO", "GROUPS", self.name)
        if not isinstance(groups, list) or not groups:
            return False
        group = dict(zip(map(bytes.decode, groups[0][::2]), groups[0][1::2]))
        last = self.ask("XREVRANGE", self.name, "+", "-", "COUNT", 1)
        return group["pending"] == 0 and group["last-delivered-id"] == last[0][0]


def event(name, value=1, **more):
    return json.dumps({"specversion": "1.0", "id": name, "source": "/s", "type": "t",
        "idempotencykey": name, "data": {"n": value}, **more})


def command(*words):
    parts = [f"*{len(words)}\r\n".encode()]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        parts += [f"${len(data)}\r\n".encode(), data, b"\r\n"]
    return b"".join(parts)


def read(answer):
    line = answer.readline()
    assert line, "the server closed the connection"
    kind, text = line[:1], line[1:].rstrip(b"\r\n")
    if kind == b":":
        return int(text)
    if kind == b"$":
        return None if text == b"-1" else answer.read(int(text) + 2)[:-2]
    if kind == b"*":
        return None if text == b"-1" else [read(answer) for _ in range(int(text))]
    return text.decode()


def queue_yaml(name, url, handler, more=""):
    return (f"    {name}:\n      from: \"{url}\"\n      handler: {handler.url}/{name}\n" +
            "".join(f"      {line}\n" for line in more.splitlines()))
