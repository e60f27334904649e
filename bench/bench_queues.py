#!/usr/bin/python3
"""bench_queues: messages of a broker, and a backlog of deliveries (B12).

    bench_queues.py dir=PATH once=PATH tools=PATH [seconds=3] [rounds=5] [only=B12-redis]
                    [messages=20000] [waiting=1000000]

The handler of all of them is an nginx that answers 200 to everything. Prints one row a line, as the
other programs do (bench.h).

  B12-redis    messages of a Redis stream, delivered and acknowledged ÷ plain consumers of hiredis
  B12-amqp     the same of a RabbitMQ queue ÷ plain consumers of rabbitmq-c
  B12-waiting  webhooks delivered while a million wait for another handler ÷ while none waits; and
               the memory of each that waits

A plain consumer (bench_consumer.c) takes a message, calls the handler and acknowledges; there is
one for each core. Both count from the first message to the last acknowledgement, with all messages
in the queue before they start.
"""
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import bench_gateway
from bench_doors import Deliveries, Door
from bench_gateway import Gateway, Origin
from bench_http import Missing, Process, found, free_port, listens, wait_until
from measure import rate_row, row, say, wanted

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import brokers  # noqa: E402

DRAIN_S = 300  # far above what any of them takes


class RedisBroker(Process):
    """As Debian starts it, but for its port; both sides have the same."""

    name, kind, module = "redis-broker", "redis", "libhiredis"

    def __init__(self, directory, tools):
        super().__init__(directory)
        self.tools, self.port = tools, free_port()
        self.launch(found("redis-server"), "--port", self.port, "--bind", "127.0.0.1", "--save", "",
            "--dir", self.directory)
        wait_until(lambda: self.check() or listens(self.port), "redis-server")

    def url(self, queue):
        return f"redis://127.0.0.1:{self.port}/{queue}?group=once"

    def peer(self, what, queue, count, **more):
        words = {"do": what, "broker": self.kind, "port": self.port, "queue": queue, "count": count}
        done = subprocess.run([self.tools / "bench_consumer",
            *[f"{name}={value}" for name, value in {**words, **more}.items()]], text=True,
            capture_output=True, timeout=DRAIN_S)
        if done.returncode != 0:
            raise Missing(done.stderr.strip())
        return done.stdout


class RabbitBroker(RedisBroker):
    """tests/brokers.py starts it."""

    name, kind, module = "rabbitmq", "amqp", "librabbitmq"

    def __init__(self, directory, tools):  # pylint: disable=super-init-not-called
        if not brokers.RabbitMq.installed():
            raise Missing("rabbitmq-server or python3-pika is not installed")
        self.tools, self.broker = tools, brokers.RabbitMq()
        self.broker.start()
        self.port = self.broker.port

    def url(self, queue):
        return f"amqp://guest:guest@127.0.0.1:{self.port}/{queue}"

    def stop(self):
        self.broker.stop()


class Queue(Door):
    """One server with one queue, which is full when it starts."""

    settings = """
inbox: {{queues: {{orders: {{from: "{url}", handler: "http://127.0.0.1:{port}/events",
    concurrency: 64}}}}}}
"""

    def __init__(self, directory, tools, binary, behind, url):
        self.name = f"queue-{time.monotonic_ns()}"
        self.settings = self.settings.replace("{url}", url)
        super().__init__(directory, tools, binary, behind)

    def text(self):
        return ""

    def figure(self, name):
        seen = re.search(rf"^once_queue_{name}{{[^}}]*}} (\d+)", self.metrics(), re.M)
        return int(seen.group(1)) if seen else 0

    def drain(self, count):
        """Seconds from the first message to the last acknowledgement."""
        until = time.monotonic() + DRAIN_S
        while not self.figure("received_total"):
            self.within(until)
            time.sleep(0.001)
        begun = time.monotonic()
        while self.figure("acknowledged_total") < count:
            self.within(until)
            time.sleep(0.005)
        return time.monotonic() - begun

    def within(self, until):
        self.check()
        if time.monotonic() > until:
            raise Missing(f"{self.figure('acknowledged_total')} messages after {DRAIN_S} s")


class Waiting(Deliveries):
    """Two sources: one with an instant handler, one whose handler is away."""

    name = "waiting"
    what = "webhooks delivered while many wait for a handler that is away"
    settings = """
inbox: {{sources: {{
    s: {{preset: none, key: {{json: /id}}, handler: "http://127.0.0.1:{port}/events"}},
    away: {{preset: none, key: {{json: /id}}, handler: "http://127.0.0.1:%d/",
        retry: {{attempts: 1000, backoff: 1h, backoff_max: 1h}}}}}}}}
"""

    def __init__(self, *words):
        self.settings = self.settings % free_port()
        super().__init__(*words)

    resident = Gateway.resident

    def is_still(self):
        """Those that wrk no longer waited for have come too."""
        self.resting = sum(self.unsettled().values())
        time.sleep(1)
        return self.resting == sum(self.unsettled().values())

    def fill(self, count):
        """Until so many wait; bytes of memory for each."""
        before, there = self.resident(), 0
        self.request.write_text(self.text().replace("/in/s", "/in/away"), newline="")
        while there < count:
            there += bench_gateway.Loaded.load(self, 5)[1]
            say(f"{there:,} wait")
        self.request.write_text(self.text(), newline="")
        wait_until(lambda: self.is_still() and self.resting >= there, "the backlog")
        return (self.resident() - before) / self.resting


class Bench(bench_gateway.Bench):
    def __init__(self, options):
        super().__init__(options)
        self.messages = int(options.get("messages", 20_000))
        self.waiting = int(options.get("waiting", 1_000_000))
        self.number = 0

    def queue(self, ident, kind, origin):
        broker, ours, theirs = self.start(kind), [], []
        for number in range(self.rounds + 1):  # the first round only warms up
            queues = [f"q{self.number + 1}", f"q{self.number + 2}"]
            self.number += 2
            for queue in queues:
                broker.peer("fill", queue, self.messages)
            plain = json.loads(broker.peer("drain", queues[0], self.messages,
                handler=origin.port))["seconds"]
            server = Queue(self.directory, self.tools, self.binary, origin.port,
                broker.url(queues[1]))
            self.running["queue"] = server
            took = server.drain(self.messages)
            server.stop()
            say(f"round {number} of {self.rounds}: once {self.messages / took:,.0f}/s, "
                f"plain {self.messages / plain:,.0f}/s")
            if number:
                ours.append(self.messages / took)
                theirs.append(self.messages / plain)
        print(json.dumps(row(ident, f"messages of {kind.kind} delivered and acknowledged",
            "messages/s", f"plain consumers of {kind.module}", 0.5, ours, theirs)), flush=True)

    def redis(self, origin):
        self.queue("B12-redis", RedisBroker, origin)

    def amqp(self, origin):
        self.queue("B12-amqp", RabbitBroker, origin)

    def backlog(self, origin):
        many = self.start(Waiting, self.binary, origin.port)
        none = self.start(Deliveries, self.binary, origin.port)
        each = many.fill(self.waiting)
        ours, theirs = self.turns_of(many, none)
        result = rate_row("B12-waiting", f"{Waiting.what}: {many.resting:,}", "requests/s",
            "none waits", None, ours, theirs)
        print(json.dumps({**result, "bytes_each": round(each)}), flush=True)
        for one in (many, none):
            one.stop()

    def run(self):
        origin = self.start(Origin)
        for ident, measure in (("B12-redis", self.redis), ("B12-amqp", self.amqp),
                ("B12-waiting", self.backlog)):
            if wanted(self.only, ident):
                try:
                    measure(origin)
                except Missing as fault:
                    print(json.dumps({"id": ident, "what": ident, "skipped": str(fault)}),
                        flush=True)


if __name__ == "__main__":
    sys.exit(bench_gateway.main(Bench))
