"""An API that charges whenever it is asked to, fails as real ones do, and counts what it did.

It knows nothing of idempotency: two requests with one key are two charges. What it did for a key
can be asked for, GET /by-key/{key}: 200 with the answer that the POST gave or would have given, or
404. A share of the requests fails, each in a way that chance and `seed` choose: before the charge,
or after it, when only the charger knows that it happened.
"""
import asyncio
import json
import random
import socket
import struct
import threading

import servers

SPELL_S = (0.02, 0.08)  # how long nobody listens
UNTOLD = ("reset_after", "close_after", "half_head", "half_body", "slow")  # done, and not told so
POSTS = {  # how a POST fails: its share of the failures
    "503": 4, "reset_before": 3, "close_before": 2,  # without a charge
    "reset_after": 3, "close_after": 3, "half_head": 2, "half_body": 3, "slow": 2,  # behind it
    "close_kept": 3,  # answered well, then the kept connection is closed without a word
    "spell": 1,  # answered well, then nobody listens for a while, and all connections are closed
}
READS = {"503": 2, "reset_before": 2, "close_before": 1, "half_body": 1, "slow": 1}


class Charger:
    """`charges`: how often each key was charged. `ends`: how often requests ended how."""

    def __init__(self, chance=0.0, seed=1, slow_s=1.0):
        self.random, self.chance, self.slow_s = random.Random(seed), chance, slow_s
        self.charges, self.answers, self.ends = {}, {}, {}
        self.posts = self.reads = self.connections = self.spells = 0
        self.open, self.listener = set(), None
        self.port = servers.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.loop = asyncio.new_event_loop()
        self.over = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        begun = threading.Event()
        self.loop.call_soon(lambda: self.loop.create_task(self._listen(begun)))
        self.thread.start()
        assert begun.wait(20), "the charger does not listen"

    def _run(self):
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    async def _listen(self, begun=None):
        if self.over:
            return
        self.listener = await self.loop.create_server(lambda: Connection(self), "127.0.0.1",
            self.port, backlog=512)
        if begun is not None:
            begun.set()

    def end(self):
        self.loop.call_soon_threadsafe(self._end)
        self.thread.join(20)
        self.loop.close()

    def _end(self):
        self.over = True
        self._deafen()
        self.loop.call_later(0.05, self.loop.stop)

    def _deafen(self):
        if self.listener is not None:
            self.listener.close()
            self.listener = None
        for connection in list(self.open):
            connection.wire.close()

    def spell(self):
        """Nobody listens for a while."""
        if self.listener is not None and not self.over:
            self.spells += 1
            self._deafen()
            self.loop.call_later(self.random.uniform(*SPELL_S),
                lambda: self.loop.create_task(self._listen()))

    def mood(self, moods):
        if self.random.random() >= self.chance:
            return "well"
        return self.random.choices(list(moods), list(moods.values()))[0]

    def charge(self, key, asked):
        """The effect. Its answer names it."""
        self.charges[key] = self.charges.get(key, 0) + 1
        answer = json.dumps({"charge": len(self.answers) + 1, "key": key, "for": json.loads(asked)})
        return self.answers.setdefault(key, answer.encode())

    def failed(self):
        """The share of the requests that were made to fail."""
        return 1 - self.ends.get("well", 0) / max(1, self.posts + self.reads)


class Connection(asyncio.Protocol):
    """One request after another, each with one mood."""

    def __init__(self, charger):
        self.charger, self.wire, self.pending = charger, None, b""

    def connection_made(self, wire):
        self.wire = wire
        self.charger.connections += 1
        self.charger.open.add(self)

    def connection_lost(self, _):
        self.charger.open.discard(self)

    def data_received(self, data):
        self.pending += data
        while b"\r\n\r\n" in self.pending and not self.wire.is_closing():
            head, _, rest = self.pending.partition(b"\r\n\r\n")
            line, *lines = head.decode("latin-1").split("\r\n")
            fields = {name.lower(): value.strip() for name, _, value in
                (each.partition(":") for each in lines)}
            length = int(fields.get("content-length", 0))
            if len(rest) < length:
                return
            self.pending = rest[length:]
            self.handle(line.split(" ")[0], line.split(" ")[1], fields, rest[:length])

    def handle(self, method, path, fields, body):
        charger = self.charger
        is_read = method == "GET"
        charger.reads += is_read
        charger.posts += not is_read
        mood = charger.mood(READS if is_read else POSTS)
        charger.ends[mood] = charger.ends.get(mood, 0) + 1
        if mood == "503":
            self.say(503, b'{"error":"not now"}')
        elif mood == "reset_before":
            self.reset()
        elif mood == "close_before":
            self.wire.close()
        elif is_read:
            answer = charger.answers.get(path.rpartition("/")[2])
            self.tell(mood, 200 if answer else 404, answer or b'{"error":"no such charge"}')
        else:
            self.tell(mood, 201, charger.charge(fields["idempotency-key"].strip('"'), body))

    def tell(self, mood, status, answer):
        """Say it as the mood has it."""
        if mood == "reset_after":
            self.reset()
        elif mood == "close_after":
            self.wire.close()
        elif mood in ("half_head", "half_body"):
            text = self.text(status, answer)
            self.wire.write(text[:20 if mood == "half_head" else -len(answer) // 2])
            self.wire.close()
        elif mood == "slow":
            self.charger.loop.call_later(self.charger.slow_s, self.say, status, answer)
        else:
            self.say(status, answer)
        if mood == "close_kept":
            self.wire.close()
        elif mood == "spell":
            self.charger.spell()

    def text(self, status, body):
        return (f"HTTP/1.1 {status} Fine\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body

    def say(self, status, body):
        if not self.wire.is_closing():
            self.wire.write(self.text(status, body))

    def reset(self):
        linger = struct.pack("ii", 1, 0)
        self.wire.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.wire.abort()
