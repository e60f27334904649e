"""Clients and an upstream that both do whatever they like, with the gateway between them.

Everything is drawn from one seed. Afterwards the upstream's own books are compared with what the
gateway remembers:
    - every request was answered or its connection was closed; nothing hangs, nothing crashes
    - an operation had at most one effect, whatever its clients did (P1)
    - what had an effect is never free again; what is free had none (P5)
    - each grant reached the upstream at most once, and nothing did without one (P4, P6)
    - every whole answer to one key has the same body (P3)
    - nothing is in progress when everything is over
"""
import collections
import json
import os
import random
import re
import threading
import time

import promise
import pytest
from once_server import LIGHT, LONG
from raw_gateway import JSON, Gateway, Upstream, request

SEEDS = range(int(os.environ.get("CHAOS_SEEDS", "4" if LONG else "1")))
KEYS = int(os.environ.get("CHAOS_KEYS", "2000" if LONG else "60" if LIGHT else "150"))
CLIENTS = 8
KEPT_BYTES = 20000  # longer answers are sealed without their body
CONFIG = f"""  timeout: {{connect: 500ms, first_byte: 400ms, total: 800ms}}
  idle: 300ms
  connections_max: 6
  spool_memory: 4KiB
  limits: {{outcome_bytes_max: {KEPT_BYTES}, duplicate_rate: 0, body_bytes_max: 100KiB}}
"""
ABOVE = "limits: {body_timeout: 2s, write_timeout: 2s, idle_timeout: 3s}\ndrain: 5s\n"


class Books:
    """What the upstream did, by key."""

    def __init__(self, seed):
        self.lock = threading.Lock()
        self.seed = seed
        self.effects = collections.Counter()
        self.seen = collections.Counter()  # heads
        self.fences = collections.Counter()  # (operation, fence)
        self.unfenced = 0
        self.unread = 0  # connections that were ended without a look at what they bring
        self.bodies = collections.defaultdict(set)  # of whole answers, as clients saw them


def put(name, value):
    return f"{name}: {value}\r\n"


def chunked(body, cut=None):
    pieces = [body[at:at + 3000] for at in range(0, len(body), 3000)]
    data = b"".join(b"%x;e=1\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return data[:cut] if cut is not None else data + b"0\r\nX-Trailer: 1\r\n\r\n"


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
EFFECTLESS = {"408": 408, "503": 503, "429": 429}


def respond(link, does, body, rng):
    """False: the connection is not to be used again."""
    large = body + b" " * rng.choice([5000, KEPT_BYTES - len(body), KEPT_BYTES + 1, 300000])
    length = b"Content-Length: %d\r\n" % len(body)
    if does in EFFECTLESS:
        link.send(b"HTTP/1.1 %d X\r\nContent-Length: 4\r\n\r\nnope" % EFFECTLESS[does])
    elif does == "plain":
        link.send(HEAD + length + b"\r\n" + body)
    elif does == "404":
        link.send(b"HTTP/1.1 404 X\r\n" + length + b"\r\n" + body)
    elif does == "204":
        link.send(b"HTTP/1.1 204 X\r\nX-A: b\r\n\r\n")
    elif does == "large":
        link.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(large) + large)
    elif does == "chunked":
        link.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(rng.choice([body, large])))
    elif does == "interim":
        link.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\nLink: a\r\n\r\n" + HEAD +
            length + b"\r\n" + body)
    elif does == "slow":
        data = HEAD + length + b"\r\n" + body
        for at in range(0, len(data), 40):
            link.send(data[at:at + 40])
            time.sleep(0.01)
    else:
        return broken(link, does, body, length, rng)
    return True


def broken(link, does, body, length, rng):
    if does == "until the close":
        link.send(HEAD + b"\r\n" + body)
    elif does == "reset inside":
        link.send(HEAD + b"\r\n" + body[:-4])
        link.reset()
    elif does == "closed":
        pass
    elif does == "reset":
        link.reset()
    elif does == "silent":
        time.sleep(1.2)
    elif does == "half a head":
        link.send(HEAD + length)
    elif does == "half a body":
        link.send(HEAD + length + b"\r\n" + body[:-3])
    elif does == "half a chunk":
        link.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" +
            chunked(body * 100, cut=rng.randrange(1, 4000)))
    elif does == "stands still":
        link.send(HEAD + length + b"\r\n" + body[:-3])
        time.sleep(1.2)
    elif does == "garbage":
        link.send(b"\x16\x03\x01 what\r\n\r\n")
    elif does == "two lengths":
        link.send(HEAD + length + b"Content-Length: 1\r\n\r\n" + body)
    elif does == "two answers":
        link.send((HEAD + length + b"\r\n" + body) * 2)
    elif does == "switch":
        link.send(b"HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
    return False


GOOD = ["plain"] * 6 + ["404", "204", "large", "chunked", "interim", "slow"]
BAD = ["until the close", "reset inside", "closed", "reset", "silent", "half a head", "half a body",
    "half a chunk", "stands still", "garbage", "two lengths", "two answers", "switch"]


def upstream_script(books):
    def script(upstream, link):
        rng = random.Random(f"{books.seed} {upstream.connections}")
        if rng.random() < 0.05:
            with books.lock:
                books.unread += 1
            time.sleep(rng.choice([0, 0.02]))
            if rng.random() < 0.5:
                link.reset()
            return
        while serve_one(books, link, rng):
            pass
    return script


def head_of(link):
    head = link.until(b"\r\n\r\n")
    return None if head is None else head.decode("latin-1")


def field(head, name):
    found = re.search(rf"(?im)^{name}: *([^\r\n]*)", head)
    return found and found.group(1)


def serve_one(books, link, rng):
    head = head_of(link)
    if head is None:
        return False
    if re.match("GET|HEAD", head):
        link.send(HEAD + b"Content-Length: 2\r\n\r\n" + (b"{}" if head[0] == "G" else b""))
        return True
    key, does = field(head, "Idempotency-Key").strip(chr(34)), field(head, "X-Do")
    with books.lock:
        books.seen[key] += 1
        books.fences[field(head, "Once-Operation-Id"), field(head, "Once-Fence")] += 1
        books.unfenced += field(head, "Once-Fence") is None
    size = int(field(head, "Content-Length"))
    if does == "early":
        link.send(HEAD.replace(b"200", b"413") +
            b"Content-Length: 2\r\nConnection: close\r\n\r\n{}")
        return False
    if len(link.exactly(size)) < size:
        return False
    if does in EFFECTLESS:
        return respond(link, does, b"", rng)
    with books.lock:
        books.effects[key] += 1
        body = json.dumps({"key": key, "effect": books.effects[key], "pad": "x" * 100}).encode()
    return respond(link, does, body, rng)


# --- Clients -------------------------------------------------------------------------------------

def draw_request(rng, key, body):
    is_good = rng.random() < 0.6
    does = rng.choice(GOOD if is_good else BAD + list(EFFECTLESS) + ["early"])
    fields = JSON + put("X-Do", does)
    if rng.random() < 0.2:
        fields += put("Prefer", "wait=1")
    if rng.random() < 0.1:
        fields += put("Expect", "100-continue")
    spelled = f'"{key}"' if rng.random() < 0.3 else key
    if rng.random() < 0.2:
        head = request(spelled, body=None, fields=fields + put("Transfer-Encoding", "chunked"))
        return head + chunked(body)
    version = "1.0" if rng.random() < 0.1 else "1.1"
    return request(spelled, body=body, fields=fields, version=version)


def note(books, key, answer):
    if answer.how in ("length", "chunked") and answer.status in (200, 404):
        with books.lock:
            books.bodies[key].add(answer.body)


def attempt(books, gateway, rng, key, body):
    data = draw_request(rng, key, body)
    with gateway.link() as link:
        way = rng.randrange(12)
        if way == 0:  # stops in the middle
            link.send(data[:rng.randrange(1, len(data))])
            rng.choice([link.close, link.reset])()
        elif way == 1:  # does not wait
            link.send(data)
            time.sleep(rng.choice([0, 0.005, 0.05]))
            rng.choice([link.close, link.reset])()
        elif way == 2:  # reads a little
            link.send(data)
            link.socket.recv(50)
            rng.choice([link.close, link.reset])()
        elif way == 3:  # says it piece by piece
            for at in range(0, len(data), 1 + len(data) // 7):
                link.send(data[at:at + 1 + len(data) // 7])
                time.sleep(0.002)
            note(books, key, link.answer())
        elif way == 4:  # says what no gateway may take
            bad = rng.choice([b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n",
                b"Idempotency-Key: other\r\n", b" folded: x\r\n", b"X y: z\r\n"])
            link.send(data.replace(b"Host: once\r\n", b"Host: once\r\nContent-Length: 9\r\n" + bad))
            assert link.answer().status in (400, None)
        elif way == 5:  # one behind the other
            link.send(data + request(None, path="/x", body=None, method="GET"))
            note(books, key, link.answer())
            link.answer()
        else:
            link.send(data)
            note(books, key, link.answer())


def client(books, gateway, number, failures):
    rng = random.Random(f"{books.seed} client {number}")
    try:
        for each in range(number, KEYS, CLIENTS):
            key = f"key-{each}"
            body = b'{"amount":%d}' % each + b" " * rng.choice([0, 0, 100, 9000, 70000])
            asked = [(key, body)] * rng.choice([1, 2, 3])
            if rng.random() < 0.3:
                other = rng.randrange(KEYS)  # somebody else's
                asked.append((f"key-{other}", b'{"amount":%d}' % other))
            for one in asked:
                try:
                    attempt(books, gateway, rng, *one)
                except ConnectionError:
                    pass  # closed, which is an answer
    except Exception as failure:  # a hang is a timeout of the socket
        failures.append(failure)


def operations(gateway):
    """All of them, by key."""
    found, cursor = {}, ""
    while True:
        line = f"GET /v1/operations?limit=200{cursor} HTTP/1.1\r\n"
        page = json.loads(gateway.own(f"{line}Host: o\r\n\r\n".encode()).body)
        found.update((each["key"], each) for each in page["operations"])
        if not page.get("next"):
            return found
        cursor = f"&after={page['next']}"


def wait_settled(gateway):
    until = time.monotonic() + 30
    while True:
        found = operations(gateway)
        running = [key for key, each in found.items() if each["status"] == "in_progress"]
        if not running:
            return found
        assert time.monotonic() < until, f"still in progress: {running}"
        time.sleep(0.1)


@promise.kept()
def check(books, found):
    assert books.unfenced == 0
    assert all(count == 1 for count in books.fences.values()), books.fences.most_common(3)
    assert all(count == 1 for count in books.effects.values()), books.effects.most_common(3)
    unseen = 0
    for key, each in found.items():
        if each["status"] in ("executed", "failed"):
            assert books.seen[key] >= 1, each
        elif each["status"] == "unknown":
            unseen += books.seen[key] == 0
        else:
            assert books.effects[key] == 0, each
    assert unseen <= books.unread
    for key in books.effects:
        assert found[key]["status"] in ("executed", "failed", "unknown"), found[key]
    for key, bodies in books.bodies.items():
        told = {body.strip() for body in bodies}
        assert len(told) == 1 and json.loads(told.pop())["key"] == key, (key, bodies)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_both_sides_do_an_effect_happens_once_and_nothing_hangs(seed):
    books, failures = Books(seed), []
    with Upstream(upstream_script(books)) as upstream, \
            Gateway(upstream, CONFIG, ABOVE) as gateway:
        threads = [threading.Thread(target=client, args=(books, gateway, number, failures))
            for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert gateway.process.poll() is None, gateway.stderr()[-4000:]
        assert not failures, failures
        found = wait_settled(gateway)
        check(books, found)
        statuses = collections.Counter(each["status"] for each in found.values())
        assert statuses["executed"] > KEYS / 5 and statuses["unknown"] > 0, statuses
