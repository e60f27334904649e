"""Queues of RabbitMQ, NATS JetStream and Kafka: what holds for every broker, on real servers."""
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from inbox_help import RESTS
from once_server import BINARY, LIGHT, LONG, ROOT, until
from redis_servers import RedisStoreServer, servers
from test_inbox import QUICK, deliveries, settled

sys.path.insert(0, str(ROOT / "tests"))
import brokers  # noqa: E402
import promise  # noqa: E402
from brokers import event  # noqa: E402
from streams import queue_yaml  # noqa: E402

MANY = 1000 if LONG else 60 if LIGHT else 120  # messages of a load
KILLS = 20 if LONG else 2
SLOW_S = 120  # a broker that comes back takes its time, and so does a group of Kafka


@pytest.fixture(scope="module", params=["amqp", "nats", "kafka"])
def broker(request):
    kind = brokers.ALL[request.param]
    if not kind.installed():
        pytest.skip(f"no server for {request.param}")
    with kind() as server:
        server.kind = request.param
        yield server


@pytest.fixture
def source(broker):
    """A queue that no other test has."""
    source.number = getattr(source, "number", 0) + 1
    return broker.queue(f"orders{source.number}")


@pytest.fixture
def queue(make_server, handler, source):
    """A server with the queue `orders`: queue("more YAML", "&option=value")."""
    def make(more="", options="", top=""):
        return make_server(config=top + "inbox:\n  queues:\n" +
            queue_yaml("orders", source.url(options), handler, more))
    return make


def figure(server, name):
    page = server.request("GET", "/metrics")[2]
    page = page if isinstance(page, str) else page.decode()
    return int(next(line.split()[-1] for line in page.splitlines()
        if line.startswith(f"once_queue_{name}{{")))


def acknowledged(server, source, seconds=SLOW_S):
    """Nothing is left with the broker that is not acknowledged."""
    until(lambda: source.left(figure(server, "waiting")) == 0, "not everything is acknowledged",
        seconds)


def called(handler, count, seconds=SLOW_S):
    until(lambda: handler.count() >= count, f"not called {count} times", seconds)


def start(broker):
    (broker.start_again if broker.kind == "kafka" else broker.start)()


def entries(server):
    return server.request("GET", "/v1/evidence?limit=1000")[2]["entries"]


def test_each_message_is_delivered_once_and_then_acknowledged(queue, handler, source):
    source.add(event("before"))
    server = queue()
    source.add(event("a"))
    called(handler, 2)
    acknowledged(server, source)
    one = settled(server, key="a")[0]
    assert one["source"] == "orders" and one["message"]
    call = next(call for call in handler.calls if call["key"] == "a")
    assert json.loads(call["body"])["data"] == {"n": 1}
    assert call["headers"]["Content-Type"] == "application/cloudevents+json"
    assert figure(server, "received_total") == 2 and figure(server, "connected") == 1
    assert figure(server, "parked_total") == 0 and handler.count() == 2


def test_the_binary_content_mode_is_the_same_event(queue, handler, source):
    server = queue()
    source.add('{"n": 1}', ce_specversion="1.0", ce_id="1", ce_source="/s", ce_type="t",
        ce_idempotencykey="k", content_type="application/json")
    settled(server, key="k")
    call = handler.calls[0]
    assert call["body"] == b'{"n": 1}' and call["headers"]["ce-id"] == "1"
    assert call["headers"]["Content-Type"] == "application/json"
    source.add(json.dumps({"specversion": "1.0", "id": "1", "source": "/s", "type": "t",
        "idempotencykey": "k", "datacontenttype": "application/json", "data": {"n": 1}}),
        content_type="application/cloudevents+json")
    until(lambda: figure(server, "duplicates_total") == 1, "not taken")
    acknowledged(server, source)
    assert handler.count() == 1 and source.parked() == []


@pytest.mark.parametrize("key, body, fields", [
    ("key: {header: order-id}", "any bytes", {"order_id": "k1"}),
    ("key: {json: /id}", '{"id": "k1"}', {})])
def test_a_raw_message_is_named_by_its_key(queue, handler, source, key, body, fields):
    server = queue("format: raw\n" + key)
    fields = {**fields, "content_encoding": "zstd", "content_type": "text/x"}
    source.add(body, **fields)
    source.add(body, **fields)
    source.add('{"no": "key"}')
    settled(server, key="k1")
    got = {name.lower(): value for name, value in handler.calls[0]["headers"].items()}
    assert (got["content-encoding"], got["content-type"]) == ("zstd", "text/x")
    until(lambda: figure(server, "parked_total") == 1, "not parked")
    acknowledged(server, source)
    assert handler.count() == 1
    assert figure(server, "received_total") == 3
    assert [one["once-reason"] for one in source.parked()] == ["invalid_event"]


def test_duplicates_are_acknowledged_at_once_and_nothing_before_its_seal(queue, handler, source):
    server = queue()
    handler.pause_s = 4 if LIGHT else 3
    source.add(event("a"))
    called(handler, 1)
    for _ in range(5):
        source.add(event("a"))
    until(lambda: figure(server, "duplicates_total") == 5, "not taken")
    until(lambda: figure(server, "acknowledged_total") == 5, "not acknowledged")
    assert deliveries(server, status="executed") == [] and handler.count() == 1
    assert source.left(figure(server, "waiting")) >= 1  # the first one: its handler is at work
    acknowledged(server, source)
    settled(server)
    assert handler.count() == 1


def test_what_is_not_sealed_is_still_with_the_broker_after_a_kill(queue, handler, source):
    server = queue()
    handler.gate.clear()
    source.add_events([f"e{number}" for number in range(5)])
    called(handler, 5)
    server.kill9()
    until(lambda: source.left(0) == 5, "the broker has let go of a message", SLOW_S)


def test_a_conflict_is_parked_and_so_is_what_is_no_event_or_too_long(queue, handler, source):
    server = queue(top="limits: {body_bytes_max: 64KiB}\n")
    source.add(event("a", 1))
    settled(server)
    source.add(event("a", 2), x_from="b")
    source.add("no event at all")
    source.add(event("long", data="x" * 70000))
    source.add(event("b"))
    settled(server, count=2)
    until(lambda: figure(server, "parked_total") == 3, "not parked")
    acknowledged(server, source)
    parked = {bytes(one["body"])[:100]: one for one in source.parked()}
    conflict = parked[event("a", 2).encode()[:100]]
    assert conflict["once-reason"] == "idempotency_conflict" and conflict["x-from"] == "b"
    assert conflict["once-message"]
    assert parked[b"no event at all"]["once-reason"] == "invalid_event"
    assert len(parked) == 3
    assert sorted(call["key"] for call in handler.calls) == ["a", "b"]


def test_poison_becomes_a_dead_letter_and_blocks_nothing(queue, handler, source):
    server = queue(QUICK)
    handler.answers = [500] * 4
    source.add(event("poison"))
    settled(server, "dead_letter")
    acknowledged(server, source)
    source.add(event("good"))
    settled(server)
    acknowledged(server, source)
    said = [entry for entry in entries(server) if entry["type"] == "delivery.acknowledged"]
    assert len(said) == 1 and said[0]["outcome"]["reason"].endswith("of queue orders: dead_letter")
    assert handler.count("poison") == 4


def test_no_more_are_taken_than_may_wait(queue, handler, source):
    server = queue("retry: {attempts: 1000, backoff: 20ms, backoff_max: 200ms}\n"
        "breaker: {pause: 50ms}\nprefetch: 10")
    handler.answers = [503] * 60
    source.add_events([f"e{number}" for number in range(25)])
    until(lambda: figure(server, "waiting") == 10, "not taken")
    assert figure(server, "received_total") == 10
    until(lambda: len(deliveries(server, status="executed")) == 25, "not all delivered", SLOW_S)
    acknowledged(server, source)
    assert len(set(call["key"] for call in handler.calls)) == 25


def test_the_lag_is_what_nobody_has_taken(queue, handler, source):
    server = queue("prefetch: 1\nretry: {attempts: 100}")
    handler.answers = [RESTS] * 60
    source.add_events(["a", "b", "c", "d"])
    until(lambda: deliveries(server, status="pending"), "not tried", SLOW_S)
    until(lambda: figure(server, "lag") == 3, "not told", 60)
    handler.answers = []
    one = deliveries(server)[0]
    server.request("POST", f"/v1/deliveries/{one['delivery_id']}/redeliver", {})
    settled(server, count=4)
    until(lambda: figure(server, "lag") == 0, "not told", 60)


def test_a_message_that_comes_again_waits_for_its_own_delivery(queue, handler, source):
    server = queue("retry: {attempts: 100}", "&ack_wait=3s" if source.KIND == "nats" else "")
    handler.answers = [RESTS]
    source.add(event("a"))
    until(lambda: handler.count() == 1 and deliveries(server, status="pending"), "not tried")
    server.kill9()
    server.start()
    until(lambda: figure(server, "duplicates_total") == 1, "not taken again", SLOW_S)
    time.sleep(1)
    assert figure(server, "acknowledged_total") == 0
    assert source.left(figure(server, "waiting")) == 1
    one = deliveries(server)[0]
    assert server.request("POST", f"/v1/deliveries/{one['delivery_id']}/redeliver", {})[0] == 200
    settled(server)
    acknowledged(server, source)
    assert handler.count() == 2


def finish(server, source, handler, names):
    """Every message is called for, or held for a person; and nothing is left with the broker."""
    def missing():
        held = {one["key"] for one in deliveries(server, status="unknown", limit=1000)}
        return {name for name in names if handler.count(name) == 0} - held
    until(lambda: not missing(), "messages are lost", SLOW_S)
    acknowledged(server, source)
    with promise.kept():
        assert [name for name in names if handler.count(name) > 1] == []  # nothing twice
    server.stop()
    assert source.left(0) == 0  # and what is not acknowledged would be back now


def load(source, names, number):
    source.add_events(names[number * MANY // KILLS:(number + 1) * MANY // KILLS])


def test_kills_of_once_lose_nothing_and_deliver_nothing_twice(queue, handler, source):
    server = queue("concurrency: 8", "&ack_wait=3s" if source.KIND == "nats" else "")
    names = [f"e{number}" for number in range(MANY)]
    handler.pause_s = 0.01
    for number in range(KILLS):
        done = handler.count()
        load(source, names, number)
        called(handler, done + 5)
        time.sleep(random.uniform(0, 0.1))
        server.kill9()
        server.start()
    # What was called when the process was killed is unknown, and held for a person.
    assert len(deliveries(server, status="unknown", limit=1000)) <= 8 * KILLS
    finish(server, source, handler, names)
    assert source.parked() == []


def test_kills_of_the_broker_lose_nothing_and_deliver_nothing_twice(
        queue, handler, source, broker):
    server = queue("concurrency: 8", "&ack_wait=3s" if source.KIND == "nats" else "")
    names = [f"e{number}" for number in range(MANY)]
    # librdkafka connects again by itself, often before anybody has noticed.
    tells = source.KIND != "kafka"
    for number in range(KILLS):
        done, gone = handler.count(), threading.Event()
        handler.answers = [gone] * (8 if number % 2 == 0 else 0)  # answered while it is gone
        load(source, names, number)
        called(handler, done + 5)
        until(lambda: figure(server, "connected") == 1, "not connected", SLOW_S)
        broker.kill()
        try:
            if tells:
                until(lambda: figure(server, "connected") == 0, "not noticed", SLOW_S)
            else:
                time.sleep(2)
            gone.set()
            until(lambda: len(handler.answered) >= done + 5, "not answered", SLOW_S)
        finally:
            gone.set()
            start(broker)  # the tests after this one need it too
    until(lambda: handler.count() == MANY, "not all are delivered", SLOW_S)
    if tells:
        until(lambda: figure(server, "connects_total") >= KILLS + 1, "not connected again", SLOW_S)
    assert deliveries(server, status="unknown") == []
    print(f"{source.KIND}: {KILLS} kills, {MANY} messages, {handler.count()} calls, "
        f"{figure(server, 'duplicates_total')} came again")
    finish(server, source, handler, names)
    assert source.parked() == []


def test_two_queues_and_a_drain_that_leaves_them_clean(make_server, handler, broker, source):
    other = broker.queue(source.name + "x")
    server = make_server(config="inbox:\n  queues:\n" + queue_yaml("orders", source.url(), handler)
        + queue_yaml("mails", other.url(), handler))
    source.add(event("a"))
    other.add(event("a"))
    called(handler, 2)
    handler.pause_s = 1
    source.add(event("last"))
    called(handler, 3)
    server.stop()  # waits for the handler, and then acknowledges
    assert source.left(0) == 0
    assert handler.count("last") == 1 and handler.count("a") == 2


def test_what_is_wrong_with_a_queue_is_named(tmp_path, handler, broker):
    def check(url, **env):
        (tmp_path / "once.yaml").write_text("inbox:\n  queues:\n" +
            queue_yaml("orders", url, handler))
        return subprocess.run([BINARY, "check", str(tmp_path / "once.yaml")], text=True,
            capture_output=True, env={**os.environ, **env}, timeout=60)

    kind = broker.kind
    package = {"amqp": "librabbitmq4", "nats": "libnats3.4", "kafka": "librdkafka1"}[kind]
    assert check(f"{kind}://u:pass-word@h/orders").returncode == 0
    missing = check(f"{kind}://h/orders", ONCE_BROKER_DIR=str(tmp_path))
    assert missing.returncode == 78 and f"once-broker-{kind}.so" in missing.stderr
    assert package in missing.stderr
    doctor = subprocess.run([BINARY, "doctor"], text=True, capture_output=True, timeout=60,
        env={**os.environ, "ONCE_BROKER_DIR": str(tmp_path)})
    assert f"apt-get install {package} " in doctor.stdout + doctor.stderr
    for url, said in ((f"{kind}://h", "names its"), (f"{kind}://u:pass-word@h/q?gruop=g", "gruop"),
            (f"{kind}://u:pass-word@h/q?cert=x", "cert and key")):
        done = check(url)
        assert done.returncode == 78 and said in done.stderr, done.stderr
        assert "queue 'orders'" in done.stderr and "pass-word" not in done.stderr


@pytest.mark.skipif(not brokers.Kafka.installed(), reason="no mock cluster of Kafka")
def test_a_cluster_that_does_not_answer_is_not_connected(make_server, handler):
    """Its connections stay, so librdkafka has nothing to report."""
    with brokers.Kafka() as cluster:
        source = cluster.queue()
        server = make_server(config="inbox:\n  queues:\n" +
            queue_yaml("orders", source.url(), handler))
        source.add(event("a"))
        settled(server)
        cluster.fall_silent()
        until(lambda: figure(server, "connected") == 0, "not noticed", SLOW_S)
        cluster.speak_again()
        until(lambda: figure(server, "connected") == 1, "not connected again", SLOW_S)
        source.add(event("b"))
        settled(server, count=2)


# --- Several processes ---


@pytest.mark.skipif(not servers.Redis.installed(), reason="no redis-server for the store")
def test_processes_that_join_and_leave_lose_nothing_and_deliver_nothing_twice(
        handler, source, tmp_path):
    """Of Kafka each join and leave is a rebalance: partitions change hands under load, and what one
    process has under way comes to the other as well."""
    key = tmp_path / "body.key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    config = (f"secrets: {{key_file: [{key}]}}\ninbox:\n  queues:\n" +
        queue_yaml("orders", source.url(), handler, "concurrency: 4\nprefetch: 32"))
    names = [f"e{number}" for number in range(2 * MANY)]
    handler.pause_s = 0.02
    with servers.Redis() as redis:
        made = []

        def join():
            made.append(RedisStoreServer(redis.url, config=config))

        try:
            join()
            source.add_events(names[:MANY])
            called(handler, 5)
            join()  # which takes some of what is there
            until(lambda: figure(made[1], "connected") == 1, "not connected", SLOW_S)
            source.add_events(names[MANY:])
            until(lambda: figure(made[1], "received_total") > 0, "the second gets nothing", SLOW_S)
            made[0].stop()  # and leaves: the other goes on where it was
            done = handler.count()
            join()
            called(handler, min(done + 20, 2 * MANY))
            until(lambda: {call["key"] for call in list(handler.calls)} == set(names),
                "messages are lost", SLOW_S)
            until(lambda: source.left(sum(figure(one, "waiting") for one in made[1:])) == 0,
                "not everything is acknowledged", SLOW_S)
            with promise.kept():
                assert [name for name in names if handler.count(name) > 1] == []
            assert deliveries(made[1], status="unknown") == []
        finally:
            for server in made:
                server.remove()
    assert source.parked() == []


# --- TLS ---


@pytest.mark.parametrize("kind", ["amqp", "nats"])
def test_tls_reaches_the_broker_and_nobody_else(make_server, handler, kind):
    made = brokers.ALL[kind]
    if not made.installed():
        pytest.skip(f"no server for {kind}")
    with made(tls=True) as broker, tempfile.TemporaryDirectory() as elsewhere:
        brokers.certificates_make(elsewhere)
        queue = broker.queue()
        own = f"&cert={broker.path('client.crt')}&key={broker.path('client.key')}"
        good = queue.url(f"&cacert={broker.path('ca.crt')}{own}")
        queue.add(event("a"))
        # A server that the CA file does not vouch for, or that has a different name.
        for url in (queue.url(f"&cacert={elsewhere}/ca.crt{own}"),
                good.replace("@localhost:", "@127.0.0.1:")):
            bad = make_server(config="inbox:\n  queues:\n" + queue_yaml("orders", url, handler))
            until(lambda: '"event":"queue_disconnected"' in bad.stderr() or
                figure(bad, "connected") == 1, "it says nothing", SLOW_S)
            assert figure(bad, "connected") == 0, url
            bad.stop()
            assert "s3cret-word" not in bad.stderr()
        server = make_server(config="inbox:\n  queues:\n" + queue_yaml("orders", good, handler))
        settled(server)
        acknowledged(server, queue)
        assert handler.count() == 1 and "s3cret-word" not in server.stderr()
