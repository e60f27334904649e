#!/usr/bin/python3
"""bench_peers: the whole job beside Powertools with Redis, and beside Restate.

    bench_peers.py dir=PATH once=PATH tools=PATH [seconds=3] [rounds=5] [only=job-powertools]

The job: a POST with an Idempotency-Key reaches business code in Node, which runs once; the outcome
is on the disk before the answer, and a duplicate gets it again. Once is a gateway in front of that
service; Powertools is a library in it, with a Redis that flushes each write; Restate is a server in
front of it, with its defaults. They take turns being loaded. npm installs the peers, pinned in
bench/peers. Each first-time request must have run once. Prints one row a line, as the other
programs do (bench.h).

  job-powertools         first-time POSTs through the gateway ÷ with Powertools and Redis
  job-powertools-replay  replays of 1,000 keys ÷ the same
  job-restate            first-time POSTs through the gateway ÷ with Restate
  job-restate-replay     replays of 1,000 keys ÷ the same
"""
import http.client
import json
import os
import shutil
import sys

import bench_gateway
from bench_effects import install
from bench_gateway import Gateway, Loaded, REPLAYED
from bench_http import (CONNECTIONS, KEY_DIGITS, MARKS, PAYLOAD, Missing, Process, Redis,
    free_port, listens, wait_until)
from measure import rate_row, wanted

RESTATE = "node_modules/@restatedev/restate-server-linux-x64/bin/restate-server"
QUIET = {"RESTATE_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "1", "RESTATE_LOGGING": "ERROR",
    "NODE_ENV": "production"}


def get(port, path, method="GET", body=None, fields=()):
    wire = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    wire.request(method, path, body, {"Content-Type": "application/json", **dict(fields)})
    answer = wire.getresponse()
    text = answer.read().decode()
    wire.close()
    if answer.status >= 400:
        raise Missing(f"{method} {path}: {answer.status} {text[:300]}")
    return text


class Service(Process):
    """The business code, in one process of Node."""

    def __init__(self, directory, script, name, *words):
        self.name = f"service-{name}"
        super().__init__(directory)
        self.port = free_port()
        self.counting = words[0] if name == "restate" else self.port
        self.launch("node", script, name, self.port, *words, cwd=script.parent,
            env={**os.environ, **QUIET})
        wait_until(lambda: self.check() or listens(self.counting), f"node, {name}")

    def runs(self):
        return json.loads(get(self.counting, "/count"))["runs"]


class Whole(Loaded):
    """What does the whole job: processes of its own, and the service."""

    path = "/v1/payments"
    body = '{"order":"4711","payload":%s}' % PAYLOAD

    def __init__(self, directory, tools, script, *words):
        super().__init__(directory, tools)
        self.request.write_text(f"POST {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "
            f"application/json\r\nIdempotency-Key: {MARKS}\r\nContent-Length: {len(self.body)}\r\n"
            f"\r\n{self.body}", newline="")
        self.parts = []
        self.begin(directory, script, *words)

    def begin(self, directory, script):
        raise NotImplementedError

    def service(self, directory, script, name, *words):
        service = Service(directory, script, name, *words)
        self.parts.append(service)
        return service

    def again(self):
        """From now on the same keys again and again. Each has run when this returns."""
        first = self.first()
        for number in range(first, first + REPLAYED):
            key = f"{number:0{KEY_DIGITS}d}"
            get(self.port, self.path, "POST", self.body, {"Idempotency-Key": key})
        self.keys, self.start = REPLAYED, first

    def load(self, seconds, first=None):
        before = self.parts[0].runs()
        rate, calls = Loaded.load(self, seconds, self.start if self.keys else first)
        ran = self.parts[0].runs() - before
        # Those that wrk no longer waited for when its time was over have run as well.
        if ran if self.keys else not calls <= ran <= calls + CONNECTIONS:
            raise Missing(f"{self.name}: {ran} runs for {calls} requests")
        return rate, calls

    def cpu_s(self):
        own = [super().cpu_s()] if self.process else []
        return sum(own + [part.cpu_s() for part in self.parts])

    def stop(self):
        super().stop()
        for part in reversed(self.parts):
            part.stop()


class OnceWhole(Whole):
    name = "once"

    def begin(self, directory, script, binary):
        service = self.service(directory, script, "plain")
        gateway = Gateway(directory, self.tools, binary, service.port)
        self.parts.append(gateway)
        self.port = gateway.port


class Powertools(Whole):
    name = "powertools"

    def begin(self, directory, script):
        redis = Redis(directory)
        service = self.service(directory, script, "powertools", redis.port)
        self.parts.append(redis)
        self.port = service.port


class Restate(Whole):
    name = "restate"
    path = "/payments/pay"

    def begin(self, directory, script):
        service = self.service(directory, script, "restate", free_port())
        self.port, admin, node = free_port(), free_port(), free_port()
        self.launch(script.parent / RESTATE, env={**os.environ, **QUIET,
            "RESTATE_BASE_DIR": str(self.directory / "data"),
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{self.port}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
            "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
            "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{node}"})
        wait_until(lambda: self.check() or (listens(admin) and listens(self.port)), "restate")
        get(admin, "/deployments", "POST", json.dumps({"uri": f"http://127.0.0.1:{service.port}"}))


class Bench(bench_gateway.Bench):
    def job(self, ident, kind, compared, script):
        """The rows of one peer."""
        once = self.start(OnceWhole, script, self.binary)
        peer = self.start(kind, script)
        what = f"{{}} through the gateway to a service in Node, {CONNECTIONS} connections"
        for one, sent in ((ident, "first-time POSTs"), (f"{ident}-replay", "replays")):
            if not wanted(self.only, one):
                continue
            if sent == "replays":
                once.again()
                peer.again()
            ours, theirs = self.turns_of(once, peer)
            yield rate_row(one, what.format(sent), "requests/s", compared, None, ours, theirs)

    def run(self):
        for ident, kind, compared in (("job-powertools", Powertools, "Powertools and Redis"),
                ("job-restate", Restate, "Restate")):
            left = [one for one in (ident, f"{ident}-replay") if wanted(self.only, one)]
            if not left:
                continue
            try:
                script = install(self.directory, "peers", "service.mjs")
                for row in self.job(ident, kind, compared, script):
                    print(json.dumps(row), flush=True)
                    left.remove(row["id"])
            except Missing as fault:
                for one in left:
                    print(json.dumps({"id": one, "what": compared, "skipped": str(fault)}),
                        flush=True)
            finally:
                self.clear()

    def clear(self):
        for process in self.running.values():
            process.stop()
        self.running.clear()
        for place in self.directory.iterdir():
            shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(bench_gateway.main(Bench))
