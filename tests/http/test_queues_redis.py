"""Queues on a real redis-server: each message has its effect once, and is acknowledged after it."""
import json
import os
import random
import re
import subprocess
import threading
import time

import pytest

import promise
from inbox_help import RESTS
from once_server import BINARY, LIGHT, LONG, ROOT, until
from redis_servers import RedisStoreServer, servers
from streams import Stream, event, queue_yaml
from test_inbox import QUICK, deliveries, settled
from test_serve import cpu_ticks

pytestmark = pytest.mark.skipif(not servers.Redis.installed(), reason="no redis-server")
MANY = 2000 if LONG else 100 if LIGHT else 300  # messages of a load
KILLS = 20 if LONG else 3
KEY_FILE_BYTES = 32


@pytest.fixture
def redis():
    with servers.Redis() as server:
        yield server


@pytest.fixture
def stream(redis):
    return Stream(redis)


@pytest.fixture
def queue(make_server, handler, stream):
    """A server with the queue `orders`: queue("more YAML", idle="5s")."""
    def make(more="", idle="60s", extra=""):
        return make_server(config="inbox:\n  queues:\n" +
            queue_yaml("orders", stream.url(f"&idle={idle}"), handler, more + "\n" + extra))
    return make


def figure(server, name):
    page = server.request("GET", "/metrics")[2]
    page = page if isinstance(page, str) else page.decode()
    return int(next(line.split()[-1] for line in page.splitlines()
        if line.startswith(f"once_queue_{name}{{")))


def acknowledged(stream):
    until(stream.is_done, "not everything is acknowledged")


def entries(server):
    return server.request("GET", "/v1/evidence?limit=1000")[2]["entries"]


def test_each_message_is_delivered_once_and_then_acknowledged(queue, handler, stream):
    stream.add(event=event("before the group"))
    server = queue()
    stream.add(event=event("a"))
    until(lambda: handler.count() == 2, "not delivered")
    acknowledged(stream)
    one = settled(server, key="a")[0]
    assert one["source"] == "orders" and one["message"].count("-") == 1
    call = next(call for call in handler.calls if call["key"] == "a")
    assert json.loads(call["body"])["data"] == {"n": 1}
    assert call["headers"]["Content-Type"] == "application/cloudevents+json"
    assert call["headers"]["Once-Source"] == "orders" and call["path"] == "/orders"
    until(lambda: figure(server, "acknowledged_total") == 2, "not counted")
    assert figure(server, "received_total") == 2 and figure(server, "connected") == 1
    assert figure(server, "waiting") == 0 and figure(server, "parked_total") == 0


def test_an_idle_queue_uses_no_processor(queue):
    """Just connected: what it left pending, and what others left, was looked for once."""
    server = queue()
    until(lambda: figure(server, "connected") == 1, "not connected")
    ticks = cpu_ticks(server.pid)
    time.sleep(2)
    assert cpu_ticks(server.pid) - ticks < 50, "it spins"


def test_large_messages_that_wait_together_are_all_delivered(queue, handler, stream):
    """One that is longer than limits.body_bytes_max is parked."""
    for i in range(10):
        stream.add(event="x" * (1 << 20), order_id=f"large-{i}")
    stream.add(event="x" * (11 << 20), order_id="too large")
    stream.add(event="x", order_id="small")
    server = queue("format: raw\nkey: {header: order-id}")
    until(lambda: handler.count() == 11, "not all are delivered")
    acknowledged(stream)
    assert len(stream.parked()) == 1 and figure(server, "parked_total") == 1


def test_ce_fields_with_data_are_the_same_event(queue, handler, stream):
    server = queue()
    stream.add(ce_specversion="1.0", ce_id="1", ce_source="/é s", ce_type="t",
        ce_idempotencykey="k", ce_datacontenttype="application/json", data='{"n": 1}')
    settled(server, key="k")
    call = handler.calls[0]
    assert call["body"] == b'{"n": 1}' and call["headers"]["ce-id"] == "1"
    assert call["headers"]["ce-source"] == "/%C3%A9%20s"  # as CloudEvents' HTTP binding has it
    assert call["headers"]["Content-Type"] == "application/json"
    stream.add(event=json.dumps({"specversion": "1.0", "id": "1", "source": "/é s", "type": "t",
        "idempotencykey": "k", "datacontenttype": "application/json", "data": {"n": 1}}))
    acknowledged(stream)
    assert handler.count() == 1 and stream.parked() == []


@pytest.mark.parametrize("key, fields", [
    ("key: {header: order-id}", {"order_id": "k1", "event": "any bytes"}),
    ("key: {json: /id}", {"event": '{"id": "k1"}'}),
    ("key: {json: /id}", {"data": '{"id": "k1"}', "content_type": "application/vnd.x+json"})])
def test_a_raw_message_is_named_by_its_key(queue, handler, stream, key, fields):
    server = queue("format: raw\n" + key)
    stream.add(**fields)
    stream.add(**fields)
    stream.add(event='{"no": "key"}')
    settled(server, key="k1")
    acknowledged(stream)
    assert handler.count() == 1
    assert [one["once-reason"] for one in stream.parked()] == [b"invalid_event"]
    assert handler.calls[0]["headers"]["Content-Type"] == (
        "application/vnd.x+json" if "data" in fields else
        "application/json" if "json" in key else "application/octet-stream")


def test_duplicates_are_acknowledged_at_once(queue, handler, stream):
    server = queue()
    handler.pause_s = 3 if LIGHT else 2
    stream.add(event=event("a"))
    until(lambda: handler.count() == 1, "not called")
    for _ in range(5):
        stream.add(event=event("a"))
    until(lambda: figure(server, "duplicates_total") == 5, "not taken")
    until(lambda: stream.pending() == 1, "not acknowledged")
    # Only the first one is left, because its handler has not answered: no acknowledgement before
    # the seal.
    assert deliveries(server, status="executed") == [] and handler.count() == 1
    acknowledged(stream)
    settled(server)
    stream.add(event=event("a"))
    until(lambda: figure(server, "acknowledged_total") == 7, "not acknowledged")
    assert handler.count() == 1


def test_a_different_payload_under_a_known_key_is_parked(queue, handler, stream):
    server = queue()
    stream.add(event=event("a", 1))
    settled(server)
    second = stream.add(event=event("a", 2), x_from="b")
    stream.add(event="no event at all")
    stream.add(event=event("b"))
    settled(server, count=2)
    acknowledged(stream)
    conflict, invalid = stream.parked()
    assert conflict["once-reason"] == b"idempotency_conflict"
    assert conflict["event"].decode() == event("a", 2) and conflict["x-from"] == b"b"
    assert conflict["once-message"].decode() == second
    assert invalid["once-reason"] == b"invalid_event" and invalid["event"] == b"no event at all"
    assert sorted(call["key"] for call in handler.calls) == ["a", "b"]
    assert figure(server, "parked_total") == 2
    assert "execution.rejected" in [one["type"] for one in entries(server)]


def test_poison_becomes_a_dead_letter_and_is_acknowledged_with_evidence(queue, handler, stream):
    server = queue(QUICK)
    handler.answers = [500] * 4
    message = stream.add(event=event("poison"))
    one = settled(server, "dead_letter")[0]
    acknowledged(stream)
    stream.add(event=event("good"))
    settled(server)
    said = [entry for entry in entries(server) if entry["type"] == "delivery.acknowledged"]
    assert [entry["operation_id"].split("_")[-1] for entry in said] == [
        one["delivery_id"].split("_")[-1]]
    assert said[0]["outcome"]["reason"] == f"message {message} of queue orders: dead_letter"
    assert handler.count("poison") == 4
    server.request("POST", f"/v1/deliveries/{one['delivery_id']}/redeliver", {})
    settled(server, count=2)
    server.stop()
    done = server.cli("verify", "--redecide", "--store", f"journal:{server.data_dir}")
    assert done.returncode == 0, done.stderr


def test_an_unknown_one_is_held_and_acknowledged_with_evidence(queue, handler, stream):
    server = queue()
    handler.answers = ["drop"]
    message = stream.add(event=event("a"))
    settled(server, "unknown")
    acknowledged(stream)
    said = [entry for entry in entries(server) if entry["type"] == "delivery.acknowledged"]
    assert [entry["outcome"]["reason"] for entry in said] == [
        f"message {message} of queue orders: held_unknown"]
    assert handler.count() == 1


def test_a_handler_that_is_down_gets_all_of_it_when_it_is_back(queue, handler, stream):
    server = queue("retry: {attempts: 1000, backoff: 20ms, backoff_max: 200ms}\n"
        "breaker: {pause: 50ms}\nprefetch: 10")
    handler.answers = [503] * 60
    stream.add_events(f"e{number}" for number in range(25))
    taken = []
    until(lambda: taken.append(stream.pending() or 0) or handler.count() >= 40, "not tried")
    assert max(taken) == 10  # no more are taken than may wait
    until(lambda: len(deliveries(server, status="executed")) == 25, "not all delivered")
    acknowledged(stream)
    assert sorted(set(call["key"] for call in handler.calls)) == sorted(
        f"e{number}" for number in range(25))


def test_what_a_person_settles_is_acknowledged(queue, handler, stream):
    server = queue("retry: {attempts: 100}")
    handler.answers = [RESTS]
    stream.add(event=event("a"))
    until(lambda: deliveries(server, status="pending") and handler.count() == 1, "not tried")
    one = deliveries(server)[0]
    time.sleep(0.5)
    assert stream.pending() == 1
    server.request("POST", f"/v1/deliveries/{one['delivery_id']}/skip", {"reason": "not ours"})
    acknowledged(stream)


def test_what_a_dead_consumer_left_is_claimed(queue, handler, stream):
    stream.ask("XGROUP", "CREATE", stream.name, stream.group, "0", "MKSTREAM")
    stream.add_events(["a", "b"])
    stream.ask("XREADGROUP", "GROUP", stream.group, "gone", "STREAMS", stream.name, ">")
    assert stream.pending() == 2
    server = queue(idle="3s")
    settled(server, count=2)
    acknowledged(stream)
    assert handler.count() == 2


def test_a_live_consumer_keeps_what_its_handler_works_on(queue, handler, stream):
    """It is extended long before others may claim it, over the connection that there is: a new one
    reads what is pending again, which would extend it by accident."""
    server = queue(idle="6s")
    handler.pause_s = 8
    stream.add(event=event("slow"))
    until(lambda: handler.count() == 1, "not called")
    connections, idle_ms = figure(server, "connects_total"), []

    def is_over():
        left = stream.ask("XPENDING", stream.name, stream.group, "-", "+", 10)
        idle_ms.extend(one[2] for one in left)
        return left == []

    until(is_over, "not acknowledged")
    assert max(idle_ms) < 5000  # after 1500, looked at once a second
    assert figure(server, "connects_total") == connections
    acknowledged(stream)
    assert handler.count() == 1


def test_a_message_that_was_trimmed_away_does_not_block(queue, handler, stream):
    stream.ask("XGROUP", "CREATE", stream.name, stream.group, "0", "MKSTREAM")
    stream.add_events(["a", "b"])
    stream.ask("XREADGROUP", "GROUP", stream.group, "gone", "STREAMS", stream.name, ">")
    stream.ask("XTRIM", stream.name, "MAXLEN", 1)
    server = queue(idle="3s")
    settled(server)
    acknowledged(stream)
    assert [call["key"] for call in handler.calls] == ["b"]


def test_older_versions_in_a_stream_are_stale(queue, handler, stream):
    server = queue("order: {source_id: /data/id, version: /data/v}")
    for name, version in (("a", 2), ("b", 1), ("c", 3)):
        stream.add(event=event(name, data={"id": "x", "v": version}))
        acknowledged(stream)
    settled(server, count=2)
    assert [call["key"] for call in handler.calls] == ["a", "c"]


def test_a_restart_acknowledges_what_was_delivered_before(queue, handler, stream, redis):
    """The crash between the durable seal and the acknowledgement, made certain: the consumer's
    message is put back into the list of those that are pending."""
    server = queue()
    message = stream.add(event=event("a"))
    acknowledged(stream)
    settled(server)
    name = stream.consumers()[0]["name"]
    server.kill9()
    stream.ask("XCLAIM", stream.name, stream.group, name, 0, message, "FORCE", "JUSTID")
    assert stream.pending() == 1
    server.start()
    acknowledged(stream)
    assert handler.count() == 1 and stream.parked() == []
    assert figure(server, "duplicates_total") == 1


def test_a_message_that_comes_again_waits_for_its_own_delivery(queue, handler, stream):
    """A duplicate in progress that is the first message itself is not acknowledged before the
    seal (OPS-8)."""
    server = queue("retry: {attempts: 100}")
    handler.answers = [RESTS]
    stream.add(event=event("a"))
    until(lambda: handler.count() == 1 and deliveries(server, status="pending"), "not tried")
    server.kill9()
    server.start()
    until(lambda: figure(server, "duplicates_total") == 1, "not taken again")
    time.sleep(1)
    assert stream.pending() == 1 and figure(server, "acknowledged_total") == 0
    one = deliveries(server)[0]
    assert server.request("POST", f"/v1/deliveries/{one['delivery_id']}/redeliver", {})[0] == 200
    settled(server)
    acknowledged(stream)
    assert handler.count() == 2


def finish(stream, handler, names, seconds=120):
    until(stream.is_done, "not everything is acknowledged", seconds)
    counts = {name: handler.count(name) for name in names}
    with promise.kept():
        assert {name: count for name, count in counts.items() if count > 1} == {}  # nothing twice
    return [name for name, count in counts.items() if count == 0]


def test_kills_of_once_lose_nothing_and_deliver_nothing_twice(queue, handler, stream):
    server = queue("concurrency: 8")
    names = [f"e{number}" for number in range(MANY)]
    handler.pause_s = 0.01
    for number in range(KILLS):
        stream.add_events(names[number * MANY // KILLS:(number + 1) * MANY // KILLS])
        done = handler.count()
        until(lambda: handler.count() > done + 5 or stream.is_done(), "nothing is delivered")
        time.sleep(random.uniform(0, 0.1))
        server.kill9()
        server.start()
    missing = finish(stream, handler, names)
    # What was called when the process was killed is unknown, and held for a person: none of those
    # is lost, and none is called again.
    held = [one["key"] for one in deliveries(server, status="unknown", limit=1000)]
    with promise.kept():
        assert set(missing) <= set(held), set(missing) - set(held)
    assert len(held) <= 8 * KILLS
    assert stream.parked() == []


def test_kills_of_redis_lose_nothing_and_deliver_nothing_twice(queue, handler, stream, redis):
    server = queue("concurrency: 8")
    names = [f"e{number}" for number in range(MANY)]
    for number in range(KILLS):
        done, gone = handler.count(), threading.Event()
        handler.answers = [gone] * (8 if number % 2 == 0 else 0)  # answered while it is gone
        stream.add_events(names[number * MANY // KILLS:(number + 1) * MANY // KILLS])
        until(lambda: handler.count() > done + 5 or stream.is_done(), "nothing is delivered")
        until(lambda: figure(server, "connected") == 1, "not connected")
        redis.kill()
        until(lambda: figure(server, "connected") == 0, "not noticed")
        gone.set()
        until(lambda: len(handler.answered) > done + 5, "not answered")
        redis.start()
    assert finish(stream, handler, names) == []
    assert figure(server, "connects_total") == KILLS + 1
    assert deliveries(server, status="unknown") == [] and stream.parked() == []


def test_a_lost_group_is_made_again_and_everything_is_a_duplicate(queue, handler, stream):
    server = queue()
    stream.add_events(["a", "b", "c"])
    settled(server, count=3)
    acknowledged(stream)
    stream.ask("XGROUP", "DESTROY", stream.name, stream.group)
    until(lambda: figure(server, "duplicates_total") == 3, "not read again")
    acknowledged(stream)
    assert handler.count() == 3


def test_two_processes_share_a_group_on_one_store(handler, redis, stream, tmp_path):
    key = tmp_path / "body.key"
    key.write_bytes(os.urandom(KEY_FILE_BYTES))
    key.chmod(0o600)
    config = (f"secrets: {{key_file: [{key}]}}\ninbox:\n  queues:\n" +
        queue_yaml("orders", stream.url("&idle=3s"), handler, "concurrency: 8"))
    made = []
    try:
        for _ in range(2):
            made.append(RedisStoreServer(redis.url, config=config))
        names = [f"e{number}" for number in range(MANY)]
        stream.add_events(names)
        stream.add_events(names)
        until(lambda: handler.count() > 20, "nothing is delivered")
        if LONG:
            made[0].kill9()  # what it held is unknown after half a minute
        else:
            made[0].stop()
        missing = finish(stream, handler, names)
        held = [one["key"] for one in deliveries(made[1], status="unknown", limit=1000)]
        with promise.kept():
            assert set(missing) <= set(held), set(missing) - set(held)
        assert figure(made[1], "received_total") > 0
    finally:
        for server in made:
            server.remove()


def test_a_reload_changes_queues_and_a_drain_leaves_them_clean(
        make_server, handler, stream, redis, tmp_path):
    other = Stream(redis, "mails", "g2")
    text = "inbox:\n  queues:\n" + queue_yaml("orders", stream.url(), handler)
    server = make_server(config=text)
    stream.add(event=event("a"))
    settled(server)
    (server.directory / "once.yaml").write_text(text + queue_yaml("mails", other.url(), handler))
    server.signal(1)
    until(lambda: 'queue="mails"' in str(server.request("GET", "/metrics")[2]), "not reloaded")
    other.add(event=event("m"))
    settled(server, source="mails")
    (server.directory / "once.yaml").write_text(
        "inbox:\n  queues:\n" + queue_yaml("mails", other.url(), handler))
    server.signal(1)
    until(lambda: 'queue="orders"' not in str(server.request("GET", "/metrics")[2]), "not gone")
    handler.pause_s = 1
    other.add(event=event("last"))
    until(lambda: handler.count() == 3, "not called")
    server.stop()  # waits for the handler, and then acknowledges
    acknowledged(other)
    assert other.consumers() == []  # it has left the group
    assert other.ask("XLEN", "{mails}:parked") == 0
    stream.add(event=event("b"))
    assert stream.ask("XINFO", "GROUPS", stream.name)[0][5] == 0  # nothing is pending there


def test_tls_and_a_password_reach_the_broker_and_no_log(make_server, handler):
    with servers.RedisTls(requirepass="s3cret-word") as redis:
        url = redis.url.replace("rediss://localhost", "rediss://:s3cret-word@localhost").replace(
            "/0?", "/orders?group=once&")
        server = make_server(config="inbox:\n  queues:\n" + queue_yaml("orders", url, handler))
        until(lambda: figure(server, "connected") == 1, "not connected")
        redis.ask("XADD", "orders", "*", "event", event("a"))
        settled(server)
        redis.kill()
        until(lambda: figure(server, "connected") == 0, "not noticed")
        assert "s3cret-word" not in server.stderr()


def test_a_queue_is_not_a_source(queue, stream):
    server = queue()
    assert server.request("POST", "/in/orders", b"{}")[2]["code"] == "unknown_source"


def test_the_example_of_the_page_works(make_server, handler, redis, stream):
    page = (ROOT / "docs/inbox.md").read_text().split("\n## Queues\n")[1]
    text, line = (re.search(f"```{kind}\n(.*?)```", page, re.S).group(1) for kind in ("yaml", "sh"))
    text = text.replace("127.0.0.1:6379", f"127.0.0.1:{redis.port}")
    server = make_server(config=text.replace("http://127.0.0.1:9000", handler.url))
    subprocess.run(line.replace("6379", str(redis.port)), shell=True, check=True,
        stdout=subprocess.DEVNULL)
    settled(server, key="order-1-paid")
    acknowledged(stream)
    assert json.loads(handler.calls[0]["body"])["data"] == {"order": 1}


def test_what_is_wrong_with_a_queue_is_named(tmp_path, handler):
    def check(queue, **env):
        (tmp_path / "once.yaml").write_text("inbox:\n  queues:\n" + queue)
        return subprocess.run([BINARY, "check", str(tmp_path / "once.yaml")], text=True,
            capture_output=True, env={**os.environ, **env}, timeout=60)

    good = queue_yaml("orders", "redis://:pass-word@h/orders?group=g", handler)
    assert check(good).returncode == 0
    missing = check(good, ONCE_BROKER_DIR=str(tmp_path))
    assert missing.returncode == 78 and "once-broker-redis.so" in missing.stderr
    assert "libhiredis" in missing.stderr
    for url, said in (("redis://h", "names its stream"), ("amqq://h/q", "no broker is known"),
            ("redis://:pass-word@h/s?idle=1s", "idle"), ("redis://h/s?gruop=g", "gruop")):
        done = check(queue_yaml("orders", url, handler))
        assert done.returncode == 78 and said in done.stderr, done.stderr
        assert "queue 'orders'" in done.stderr and "pass-word" not in done.stderr
    for more, said in (("format: raw", "without a key"), ("key: {json: /id}", "names itself"),
            ("preset: stripe", "preset"), ("prefetch: 0", "prefetch")):
        done = check(queue_yaml("orders", "redis://h/s", handler, more))
        assert done.returncode == 78 and said in done.stderr, done.stderr
    both = good + "  sources:\n    orders: {preset: none, handler: 'http://h/'}\n"
    assert "name of a source" in check(both).stderr
