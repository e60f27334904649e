"""Effects that are published to a broker (docs/effects.md): confirmed, exactly one message, and
uncertain where nobody can know."""
import json
import random
import socket
import subprocess
import sys
import threading
import time

import pytest

from inbox_help import Handler
from once_server import BINARY, LIGHT, LONG, ROOT, until
from redis_servers import servers
from streams import Stream, queue_yaml
from test_effects_sent import Effects
from test_queues_brokers import start

sys.path.insert(0, str(ROOT / "tests"))
import brokers  # noqa: E402
import promise  # noqa: E402

MANY = 500 if LONG else 30 if LIGHT else 60
KILLS = 20 if LONG else 2
SLOW_S = 120


class RedisBroker(servers.Redis):
    """With the words of tests/brokers.py."""

    def queue(self, name="orders"):
        return RedisQueue(self, name)


class RedisQueue(Stream):
    KIND = "redis"

    def url(self, more=""):
        return f"redis://127.0.0.1:{self.redis.port}/{self.name}{more.replace('&', '?', 1)}"

    def messages(self):
        return [{"body": dict(zip(fields[::2], fields[1::2]))[b"event"], "at": at.decode()}
            for at, fields in self.ask("XRANGE", self.name, "-", "+")]


KINDS = {**brokers.ALL, "redis": RedisBroker}


@pytest.fixture(scope="module", params=["redis", "amqp", "nats", "kafka"])
def broker(request):
    kind = KINDS[request.param]
    if not kind.installed():
        pytest.skip(f"no server for {request.param}")
    with kind() as server:
        server.kind = request.param
        yield server


@pytest.fixture
def target(broker):
    """A queue that no other test has."""
    target.number = getattr(target, "number", 0) + 1
    return broker.queue(f"out{target.number}")


def config_of(kind, url, *connector, effect=(), more=""):
    lines = "".join(f"    {line}\n" for line in connector)
    effects = "".join(f"    {line}\n" for line in effect)
    return f"""
connectors:
  bus:
    protocol: {kind}
    url: "{url}"
    timeout: {{total: 3s}}
    rate: 0
{lines}
effects:
  payment.capture:
    connector: bus
    retry: {{attempts: 1000, backoff: 50ms, backoff_max: 500ms}}
{effects}
{more}
"""


@pytest.fixture
def make(make_server, broker, target):
    def make_one(*connector, url=None, **more):
        return Effects(make_server(config=config_of(
            broker.kind, url or target.url(), *connector, **more)))
    return make_one


def keys_of(target):
    return [json.loads(one["body"])["idempotencykey"] for one in target.messages()]


def test_an_effect_is_one_event_and_the_confirm_acknowledges_it(make, target):
    effects = make()
    one = effects.put("k1", command_id="cmd-1")
    document = effects.settled(one, "acknowledged")
    assert effects.put("k1", command_id="cmd-1") == one  # a duplicate
    message, = target.messages()
    event = json.loads(message["body"])
    assert event["specversion"] == "1.0" and event["type"] == "payment.capture"
    assert event["idempotencykey"] == "k1" and event["id"] == one
    assert event["data"] == {"amount": 5} and json.loads(event["subject"]) == {"order_id": "o-1"}
    ref = document["acknowledgement"]["provider_ref"]
    if target.KIND == "amqp":
        assert ref == message["message-id"]
    elif target.KIND == "nats":
        assert ref == "1" and message["Nats-Msg-Id"]
    else:
        assert ref == message["at"]
    if target.KIND != "redis":
        assert message["content-type"] == "application/cloudevents+json"


def test_what_is_published_is_delivered_by_a_queue_once(make, target):
    handler = Handler()
    options = "&session=5s" if target.KIND == "kafka" else ""
    effects = make(more="inbox:\n  queues:\n" + queue_yaml("orders", target.url(options), handler))
    try:
        for name in ("a", "b"):
            effects.settled(effects.put(name), "acknowledged")
        until(lambda: handler.count() == 2, "not delivered", SLOW_S)
        assert sorted(call["key"] for call in handler.calls) == ["a", "b"]
    finally:
        handler.close()


def test_a_broker_that_is_away_gets_it_once_it_is_back(make, target, broker):
    effects = make()
    effects.settled(effects.put("before"), "acknowledged")
    broker.kill()
    one = effects.put("k1")
    until(lambda: effects.show(one)["attempt"] >= 2, "not tried again", SLOW_S)
    assert not effects.show(one).get("uncertain")  # nothing was sent
    start(broker)
    until(lambda: effects.show(one)["status"] == "acknowledged", "not published", SLOW_S)
    # What it confirmed before it was killed is the broker's to keep.
    assert [key for key in keys_of(target) if key != "before"] == ["k1"]


class Muffle:
    """Passes bytes on to a port; once muffled, nothing comes back, and a moment later the
    connection is gone."""

    def __init__(self, port):
        self.port, self.is_muffled, self.ended = port, False, False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while not self.ended:
            try:
                client = self.listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                return
            for pair in ((client, server, False), (server, client, True)):
                threading.Thread(target=self.pump, args=pair, daemon=True).start()

    def pump(self, source, sink, is_answer):
        try:
            while data := source.recv(65536):
                if is_answer and not self.is_passed(data):
                    break
                sink.sendall(data)
        except OSError:
            pass
        for one in (source, sink):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def is_passed(self, data):
        """Asked about each piece that comes back."""
        if self.is_muffled:
            time.sleep(0.5)  # what was sent has arrived meanwhile
        return not self.is_muffled

    def close(self):
        self.ended = True
        self.listener.close()


def test_a_lost_confirm_is_uncertain_unless_the_broker_recognises_a_repetition(
        make, target, broker):
    if broker.kind == "kafka":
        pytest.skip("its brokers tell their own addresses; see the test with a failing answer")
    muffle = Muffle(broker.port)
    try:
        port = str(muffle.address[1])
        effects = make("concurrency: 1", url=target.url().replace(str(broker.port), port))
        effects.settled(effects.put("before"), "acknowledged")
        muffle.is_muffled = True
        one = effects.put("k1")
        if broker.kind == "nats":  # S1: the stream takes a second one for what it is
            until(lambda: effects.show(one)["attempt"] >= 2, "not sent again")
            assert keys_of(target) == ["before", "k1"]  # it had arrived
            muffle.is_muffled = False
            assert effects.settled(one, "acknowledged")["acknowledgement"]["provider_ref"] == "2"
        else:  # S3
            effects.uncertain(one)
            muffle.is_muffled = False
            time.sleep(1)
            assert effects.show(one)["attempt"] == 1 and effects.show(one)["uncertain"]
            status, _, answer = effects.server.request(
                "POST", f"/v1/effects/{one}/retry", {"reason": "try"})
            assert status == 409 and answer["code"] == "outcome_unknown", answer
        assert sorted(keys_of(target)) == ["before", "k1"]  # a topic has several partitions
    finally:
        muffle.close()


def test_kills_of_once_publish_nothing_twice_and_lose_nothing(make, target, broker):
    effects = make()
    names = [f"e{number}" for number in range(MANY)]
    made = {}
    for number in range(KILLS):
        for name in names[number * MANY // KILLS:(number + 1) * MANY // KILLS]:
            made[name] = effects.put(name)
        time.sleep(random.uniform(0, 0.1))
        effects.server.kill9()
        effects.server.start()

    def is_over(document):
        return document["status"] == "acknowledged" or (
            document.get("uncertain") and broker.kind != "nats")
    until(lambda: all(is_over(effects.show(one)) for one in made.values()), "not all are settled",
        SLOW_S)
    found = keys_of(target)
    with promise.kept():
        assert len(found) == len(set(found))  # nothing twice
    unsure = {name for name, one in made.items() if effects.show(one).get("uncertain")}
    with promise.kept():
        assert set(names) - set(found) <= unsure  # nothing that is acknowledged is lost
    if broker.kind == "nats":
        assert set(found) == set(names) and not unsure


def test_a_window_that_is_too_short_is_not_relied_on(make_server, broker):
    if broker.kind != "nats":
        pytest.skip("only JetStream has a duplicate window")
    short = brokers.NatsQueue(broker, "short", duplicate_window=10 * 10**9)
    effects = Effects(make_server(config=config_of("nats", short.url())))
    one = effects.put("k1")
    until(lambda: effects.show(one)["attempt"] >= 2, "not tried again")
    assert not effects.show(one).get("uncertain") and short.messages() == []
    effects = Effects(make_server(config=config_of("nats", short.url(),
        "idempotency: {keeps: 10s}")))
    effects.settled(effects.put("k2"), "acknowledged")


def test_what_is_wrong_with_a_connector_is_named(tmp_path, broker):
    def check(url, *connector):
        (tmp_path / "once.yaml").write_text(config_of(broker.kind, url, *connector))
        return subprocess.run([BINARY, "check", str(tmp_path / "once.yaml")], text=True,
            capture_output=True, timeout=60)

    kind = broker.kind
    good = check(f"{kind}://u:pass-word@h/out")
    assert good.returncode == 0, good.stderr
    assert "pass-word" not in good.stdout + good.stderr and f"{kind}://h/out" in good.stdout
    for url, lines, said in ((f"{kind}://h", (), "names its"), ("http://h/", (), "needs a URL of"),
            (f"{kind}://u:pass-word@h/q?gruop=g", (), "gruop"),
            (f"{kind}://h/q", ("auth: {bearer_env: X}",), "a broker has no"),
            (f"{kind}://h/q", ("idempotency: {header: X}",), "a broker has no"),
            (f"{kind}://h/q", ('lookup: {get: "/{effect_id}"}',), "a broker has no")):
        done = check(url, *lines)
        assert done.returncode == 78 and said in done.stderr, done.stderr
        assert "pass-word" not in done.stderr
