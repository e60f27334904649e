#!/usr/bin/python3
"""bench_doors: effects, deliveries and commands beside the gateway and begins (B11, B12, B13).

    bench_doors.py dir=PATH once=PATH tools=PATH [seconds=3] [rounds=5] [only=B11] [alone=B11]

One server behind all of them, an nginx that answers 200 to everything, is provider, handler and
upstream. They take turns being loaded. What is sent in the background counts from the first request
until the last one is settled. Prints one row a line, as the other programs do (bench.h). alone=ID
loads that door only, for a profile.

  B11           effects created, sent and acknowledged ÷ first-time POSTs through the gateway
  B12           webhooks accepted durably, their handler out of reach ÷ begins of the same server
  B12-delivered webhooks accepted and delivered ÷ first-time POSTs through the gateway
  B13           commands with an instant handler ÷ first-time POSTs through the gateway
"""
import http.client
import json
import re
import sys
import time

import bench_gateway
from bench_gateway import Gateway, Loaded, Origin
from bench_http import (CONNECTIONS, MARKS, PAYLOAD, Missing, free_port, listens, request_text,
    wait_until)
from measure import rate_row, say, wanted

SETTLE_S = 120  # for what is left when the load ends


def post(path, body):
    return (f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}")


class Door(Loaded):
    """One server with one door, loaded through it."""

    settings, what, kind = "", "", None  # kind: of the work that is settled in the background
    resting = 0  # of that kind, and not to be settled while it is loaded

    def __init__(self, directory, tools, binary, behind, store=None):
        super().__init__(directory, tools)
        self.request.write_text(self.text(), newline="")
        config = self.directory / "once.yaml"
        config.write_text("log: {decisions: false}\n" + self.settings.format(port=behind))
        self.launch(binary, "serve", "--listen", "127.0.0.1:0", "--config", config, "--store",
            store or f"journal:{self.directory}/data")
        address = r"http://127\.0\.0\.1:(\d+)"
        wait_until(lambda: self.check() or re.search(address, self.log.read_text()), "once serve")
        self.port = int(re.search(address, self.log.read_text()).group(1))
        wait_until(lambda: listens(self.port), "once serve")

    def text(self):
        raise NotImplementedError

    def metrics(self):
        wire = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        wire.request("GET", "/metrics")
        text = wire.getresponse().read().decode()
        wire.close()
        return text

    def unsettled(self):
        """By status; what is over is not among them."""
        return {status: int(count) for status, count in re.findall(
            rf'^once_work{{kind="{self.kind}",status="(\w+)"}} (\d+)', self.metrics(), re.M)}

    def executed(self):
        return sum(int(count) for count in re.findall(r'^once_dispatch_attempts_total{kind="'
            rf'{self.kind}",[^}}]*verdict="executed"}} (\d+)', self.metrics(), re.M))

    def load(self, seconds, first=None):
        if self.kind is None:
            return super().load(seconds, first)
        before, begun = self.executed(), time.monotonic()
        _, calls = super().load(seconds, first)
        # The counts of a shared store may be a little old.
        while self.executed() - before < calls or \
                sum(self.unsettled().values()) > self.resting:
            if time.monotonic() > begun + seconds + SETTLE_S:
                raise Missing(f"{self.name}: not settled after {SETTLE_S} s: {self.unsettled()}")
            time.sleep(0.005)
        took = time.monotonic() - begun
        # Those that wrk no longer waited for when its time was over are there as well.
        self.done = done = self.executed() - before
        if not calls <= done <= calls + CONNECTIONS:
            raise Missing(f"{self.name}: {done} of {calls} were called out for")
        return done / took, done


class Effects(Door):
    name, kind = "effects", "effects"
    what = f"effects created, sent and acknowledged, {CONNECTIONS} connections"
    settings = """
connectors: {{pay: {{url: "http://127.0.0.1:{port}", rate: 0, concurrency: 64,
    idempotency: {{header: Idempotency-Key}}}}}}
effects: {{payment.capture: {{connector: pay, request: {{path: /v1/charges}}, provider_ref: /id}}}}
"""

    def text(self):
        return post("/v1/effects", '{"effect_type":"payment.capture","command_id":"%s",'
            '"target":{"order_id":"4711"},"payload":%s}' % (MARKS, PAYLOAD))


class Deliveries(Door):
    name, kind = "deliveries", "deliveries"
    what = f"webhooks accepted and delivered, {CONNECTIONS} connections"
    settings = """
inbox: {{sources: {{s: {{preset: none, key: {{json: /id}},
    handler: "http://127.0.0.1:{port}/events"}}}}}}
"""

    def text(self):
        return post("/in/s", '{"id":"%s","type":"payment.captured","data":%s}' % (MARKS, PAYLOAD))


class Accepted(Deliveries):
    """Nobody is behind it: what waits is not delivered meanwhile."""

    name, kind = "accepted", None
    what = f"webhooks accepted durably, {CONNECTIONS} connections"


class Begins(Accepted):
    """The same server's other door, as B1 loads it."""

    name = "begins"

    def text(self):
        return request_text()


class Commands(Door):
    name = "commands"
    what = f"commands with an instant handler, {CONNECTIONS} connections"
    settings = 'commands: {{order.cancel: {{handler: "http://127.0.0.1:{port}/cancel"}}}}\n'

    def text(self):
        return post("/v1/commands", '{"actor_id":"ana","args":{},"intent":{"entity":"order",'
            '"action":"cancel","target":{"order_id":"%s"}}}' % MARKS)


# (id, the door, whether it is compared with the gateway or with begins, the bar)
ROWS = [("B11", Effects, Gateway, 0.6), ("B12", Accepted, Begins, 0.7),
    ("B12-delivered", Deliveries, Gateway, 0.6), ("B13", Commands, Gateway, 0.8)]
COMPARED = {Gateway: "gateway, first-time POSTs", Begins: "begins, the same server"}


class Bench(bench_gateway.Bench):
    def measure(self, ident, kind, peer, bar, origin):
        behind = free_port() if kind is Accepted else origin.port
        door = self.start(kind, self.binary, behind)
        other = self.start(peer, self.binary, behind)
        try:
            ours, theirs = self.turns_of(door, other)
            print(json.dumps(rate_row(ident, kind.what, "requests/s", COMPARED[peer], bar, ours,
                theirs)), flush=True)
        finally:
            for one in (door, other):
                one.stop()
                del self.running[one.name]
                one.directory.rename(one.directory.with_name(f"{one.name}-{ident}"))

    def run(self):
        origin = self.start(Origin)
        for ident, kind, peer, bar in ROWS:
            if wanted(self.only, ident):
                try:
                    self.measure(ident, kind, peer, bar, origin)
                except Missing as fault:
                    print(json.dumps({"id": ident, "what": kind.what, "skipped": str(fault)}),
                        flush=True)

    def alone(self, which):
        origin = self.start(Origin)
        kind = next(kind for ident, kind, _, _ in ROWS if ident == which)
        door = self.start(kind, self.binary, free_port() if kind is Accepted else origin.port)
        say(f"pid {door.process.pid}")
        say(f"{door.load(self.seconds)[0]:,.0f} requests/s")


if __name__ == "__main__":
    sys.exit(bench_gateway.main(Bench))
