"""A day of webhooks, sent again in random order and more than once, against a model.

Each event is a version of some thing. A good one is done at once, a flaky one at the second call, a
bad one is refused by its handler for good, a poison one fails until somebody mends the handler.
Versions are numbers, times and texts; some are missing, some are there twice.

The model of one thing is a single number: the newest version that the handler has settled, by a 2xx
or a 4xx. It grows with each settled call. A webhook that is accepted found it at most its own
version, a stale one found it above. That each of these happened at one moment between its beginning
and its end, in one order for all, is what `explained` looks for. On a shared store the webhooks
come to two processes, which have one order between them.
"""
import collections
import concurrent.futures
import json
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import stores
from inbox_help import SECRET, all_deliveries, signed, source_yaml
from once_server import LIGHT, LONG, until

SEEDS = range(60) if LONG else range(2) if LIGHT else range(5)
THINGS, VERSIONS, SENDERS, ATTEMPTS = 6, 9, 6, 3
KINDS = ["good"] * 6 + ["flaky"] * 2 + ["bad", "poison"]
FOREVER = float("inf")

Event = collections.namedtuple("Event", "key thing form number kind body")
Call = collections.namedtuple("Call", "key status begun ended")
Sent = collections.namedtuple("Sent", "key decision begun ended")


def version_of(form, number):
    """The form is the thing's; greater numbers are later versions."""
    if form == "number":
        return number
    if form == "time":  # the same hour, in two zones
        return f"2026-11-17T{'10' if number % 2 else '12'}:{number:02}:00" + (
            "Z" if number % 2 else "+02:00")
    return f"rev-{number}"


def day(seed):
    """All events of a day, by key."""
    source = random.Random(seed)
    events = {}
    for thing in range(THINGS):
        form = source.choice(["number", "time", "text"])
        numbers = sorted(source.sample(range(1, 40), VERSIONS))  # with gaps
        for number in numbers + source.sample(numbers, 1):  # and one of them twice
            key = f"e{seed}-{len(events)}"
            events[key] = event_of(key, f"t{seed}-{thing}", form, number, source.choice(KINDS))
    return events


def event_of(key, thing, form, number, kind):
    body = {"id": key, "object": thing, "created": version_of(form, number)}
    return Event(key, thing, form, number, kind, json.dumps(body).encode())


class Things:
    """The handler. calls: one after another as they ended."""

    def __init__(self):
        self.events, self.healed, self.calls, self.tries = {}, set(), [], collections.Counter()
        self.busy, self.overlaps, self.lock = collections.Counter(), [], threading.Lock()
        outer = self

        class Request(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                status = outer.call(self.headers["Idempotency-Key"])
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *words):
                pass

        class Listener(ThreadingHTTPServer):
            request_queue_size = 256
            daemon_threads = True

        self.server = Listener(("127.0.0.1", 0), Request)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def call(self, key):
        begun = time.monotonic()
        with self.lock:
            event = self.events[key]
            self.busy[event.thing] += 1
            if self.busy[event.thing] > 1:
                self.overlaps.append(key)
            self.tries[key] += 1
            status = self.answer(event)
        time.sleep(0.002)
        with self.lock:
            self.busy[event.thing] -= 1
            self.calls.append(Call(key, status, begun, time.monotonic()))
        return status

    def answer(self, event):
        if event.kind == "bad":
            return 422
        if event.kind == "poison" and event.key not in self.healed:
            return 500
        return 503 if event.kind == "flaky" and self.tries[event.key] == 1 else 200

    def of(self, thing):
        with self.lock:
            return [call for call in self.calls if self.events[call.key].thing == thing]


@pytest.fixture
def things():
    made = Things()
    yield made
    made.close()


def explained(steps, receipts):
    """Whether there is a moment for each step, in this order, that explains every receipt.

    steps: (number, earliest, latest) of each settled call. receipts: (number, is_stale, begun,
    ended). A step is one moment; the newest version is the greatest of those before it. A receipt
    found a newer version (stale) or none, at one moment of its own. Only the first step to a newer
    version matters to a receipt. None: it is; else what cannot be."""
    moment, newest = 0.0, 0
    for place, (number, earliest, latest) in enumerate(steps):
        if number < newest:
            return f"version {number} was settled after {newest}"
        for wanted, is_stale, begun, ended in receipts:
            if newest <= wanted < number:  # this step makes it stale
                if is_stale:
                    latest = min(latest, ended)
                else:
                    earliest = max(earliest, begun)
        moment, newest = max(moment, earliest), max(newest, number)
        if moment > latest:
            return f"step {place} to version {number} has no moment"
    for wanted, is_stale, _, _ in receipts:
        if is_stale and wanted >= newest:
            return f"version {wanted} is stale, and nothing newer was settled"
    return None


def steps_of(things, thing):
    """A call is settled after it began, and before the next one of its thing begins."""
    calls = things.of(thing)
    steps = []
    for place, call in enumerate(calls):
        if call.status in (200, 422):
            later = calls[place + 1].begun if place + 1 < len(calls) else FOREVER
            steps.append((things.events[call.key].number, call.begun, later))
    return steps


def replay(servers, events, seed):
    """Everything in random order, some of it several times, to any of the processes; what each
    sender was answered."""
    source = random.Random(seed + 1)
    order = [event for event in events.values() for _ in range(source.choice([1, 2, 2, 3]))]
    source.shuffle(order)
    order = [(source.choice(servers), event) for event in order]
    with concurrent.futures.ThreadPoolExecutor(SENDERS) as pool:
        return list(pool.map(lambda one: send(*one), order))


def send(server, event):
    begun = time.monotonic()
    status, _, answer = server.request("POST", "/in/s", event.body, signed("stripe", event.body))
    assert status == 200, answer
    return Sent(event.key, answer["receipts"][0]["decision"], begun, time.monotonic())


def found(server, events):
    """{key: delivery} of these events."""
    return {one["key"]: one for one in all_deliveries(server, "s") if one["key"] in events}


def settled(server, events):
    """The same, when nothing of it is under way."""
    made = {}

    def is_over():  # by one reading: what is tried again is now the one, now the other
        made.update(found(server, events))
        return not {"pending", "delivering"} & {one["status"] for one in made.values()}
    until(is_over, "still under way")
    return made


def newest_of(things, thing):
    return max((number for number, _, _ in steps_of(things, thing)), default=0)


def check_events(things, events, sent, made):
    """Each event is one of what it may be, by what its handler was called for."""
    calls = collections.Counter((call.key, call.status) for call in things.calls)
    decisions = collections.defaultdict(collections.Counter)
    for one in sent:
        decisions[one.key][one.decision] += 1
    for key, event in events.items():
        told = decisions[key]
        assert told["first_seen"] <= 1 and not told["conflict_rejected"], (event, told)
        if key not in made:
            assert set(told) == {"stale_version"}, (event, told)
            assert things.tries[key] == 0
            continue
        assert told["first_seen"] == 1, (event, told)
        one = made[key]
        is_stale = one["status"] == "failed" and one.get("reason", "").startswith("stale")
        want = {"good": ("executed", {200: 1}), "flaky": ("executed", {503: 1, 200: 1}),
            "bad": ("failed", {422: 1}), "poison": ("dead_letter", {500: ATTEMPTS})}[event.kind]
        had = {status: count for (name, status), count in calls.items() if name == key}
        if is_stale:  # dropped when it was its turn, before it was settled
            assert not {200, 422} & set(had), (event, one, had)
        else:
            assert (one["status"], had) == want, (event, one, had)


def check_things(things, events, sent):
    for thing in sorted({event.thing for event in events.values()}):
        own = {key: event for key, event in events.items() if event.thing == thing}
        # The final state: nothing that could be done and was newest is missing.
        assert newest_of(things, thing) == max(
            event.number for event in own.values() if event.kind != "poison"), thing
        receipts = [(own[one.key].number, one.decision == "stale_version", one.begun, one.ended)
            for one in sent if one.key in own and
            one.decision in ("first_seen", "stale_version")]
        wrong = explained(steps_of(things, thing), receipts)
        assert wrong is None, (thing, wrong)


def entries_of(server, delivery_id):
    page = server.request("GET", f"/v1/evidence?limit=1000&operation_id={delivery_id}")[2]
    return [entry["type"] for entry in page["entries"]]


def operate(server, things, events, seed):
    """Somebody goes through the dead letters, one by one."""
    source = random.Random(seed + 2)
    dead = [one for one in found(server, events).values() if one["status"] == "dead_letter"]
    source.shuffle(dead)
    for one in dead:
        event, path = events[one["key"]], f"/v1/deliveries/{one['delivery_id']}"
        before, tries = newest_of(things, event.thing), things.tries[one["key"]]
        if source.random() < 0.4:
            assert server.request("POST", path + "/skip", {"reason": "not ours"})[0] == 200
            now = server.request("GET", path)[2]
            assert (now["status"], now["reason"]) == ("failed", "not ours")
            assert entries_of(server, one["delivery_id"])[-1] == "delivery.skipped"
            late = event_of("late-" + event.key, event.thing, event.form, event.number - 1, "good")
            things.events[late.key] = late
            is_stale = late.number < before
            decision = send(server, late).decision
            assert decision == ("stale_version" if is_stale else "first_seen"), (event, before)
            until(lambda: newest_of(things, event.thing) == max(before, late.number), "not done")
            assert is_stale or settled(server, {late.key})[late.key]["status"] == "executed"
            continue
        things.healed.add(event.key)
        assert server.request("POST", path + "/redeliver", {})[0] == 200
        until(lambda: server.request("GET", path)[2]["status"] in ("executed", "failed"), "stuck")
        now = server.request("GET", path)[2]
        if event.number < before:  # what is newer was done meanwhile
            assert now["status"] == "failed" and now["reason"].startswith("stale"), (event, now)
            assert things.tries[event.key] == tries
            assert entries_of(server, one["delivery_id"])[-2:] == [
                "delivery.stale", "delivery.skipped"]  # found stale, and so dropped
        else:
            assert now["status"] == "executed" and things.tries[event.key] == tries + 1
            assert newest_of(things, event.thing) == event.number
            assert entries_of(server, one["delivery_id"])[-1] == "delivery.delivered"
    return len(dead)


def test_a_day_in_random_order_ends_as_the_model_does(make_server, things, tmp_path):
    (tmp_path / "secret").write_text(SECRET + "\n")
    config = "inbox:\n  sources:\n" + source_yaml("s", "stripe", things,
        tmp_path / "secret", "order: {source_id: /object, version: /created}\n"
        f"retry: {{attempts: {ATTEMPTS}, backoff: 10ms, backoff_max: 20ms}}\n"
        "breaker: {failures: 1000}\n")
    server = make_server(config=config)
    servers = [server]
    if stores.SHARED:
        servers.append(make_server(config=config, data_dir=server.data_dir))
    seen = collections.Counter()
    for seed in SEEDS:
        events = day(seed)
        things.events.update(events)
        sent = replay(servers, events, seed)
        check_events(things, events, sent, settled(server, events))
        check_things(things, events, sent)
        assert things.overlaps == [], f"seed {seed}"  # one at a time
        seen.update(one.decision for one in sent)
        seen["dead_letter"] += operate(server, things, events, seed)
        things.calls.clear()
    assert {"first_seen", "stale_version", "duplicate_replayed"} <= set(seen), seen
    assert seen["dead_letter"] > 0 or LIGHT
    for one in servers:
        one.stop()
    done = server.cli("verify", "--redecide", "--store", server.store)
    assert done.returncode == 0, done.stdout + done.stderr


# --- The model itself can fail ---


@pytest.mark.parametrize("steps, receipts, fault", [
    ([(1, 0, 5), (2, 5, 9)], [(1, False, 0, 1), (2, False, 1, 2)], None),
    ([(2, 0, 5), (1, 5, 9)], [], "after"),  # an older one was settled after a newer one
    ([(2, 0, 5)], [(1, False, 6, 7)], "no moment"),  # accepted, though a newer one was settled
    ([(2, 0, 5)], [(1, False, 4, 7)], None),  # it may have been just before
    ([(2, 4, 5)], [(1, True, 1, 3)], "no moment"),  # stale, before anything newer was settled
    ([(2, 2, 5)], [(1, True, 1, 3)], None),
    ([(2, 2, 5)], [(1, True, 1, 3), (1, False, 4, 6)], "no moment"),  # stale, and then not
    ([(2, 2, 5)], [(2, True, 1, 9)], "nothing newer"),
    ([(2, 0, 5), (3, 5, 9)], [(2, True, 1, 4)], "no moment"),
])
def test_the_model_finds_what_cannot_be(steps, receipts, fault):
    wrong = explained(steps, receipts)
    assert wrong is None if fault is None else fault in wrong, wrong
