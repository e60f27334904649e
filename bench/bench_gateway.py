#!/usr/bin/python3
"""bench_gateway: the gateway beside nginx as a proxy, and beside no proxy at all (B5, B6).

    bench_gateway.py dir=PATH once=PATH tools=PATH [seconds=3] [rounds=5] [only=B5] [alone=B5]

One upstream, an nginx that answers 200 to everything, is behind all of them. They take turns being
loaded. Prints one row a line, as the other programs do (bench.h). alone=B5 or alone=B6 loads the
gateway only, for a profile.

  B5         first-time POSTs through the gateway, two durable commits each ÷ nginx proxy_pass
  B5-direct  the same ÷ the upstream itself
  B6         replays by the gateway ÷ nginx answering a static 200
  B6-soon    the same with `evidence.replays: soon`
  B6-floor   what a server without any code of its own reaches (bench_floor.c) ÷ the same
  B6-flood   a flood of one key, nearly all refused with 429; and a quiet key's latency meanwhile
  G-memory   resident memory of a gateway for each of 10,000 open connections
"""
import json
import os
import pwd
import re
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

from bench_http import (CONNECTIONS, CORES, HERE, KEY_DIGITS, MARKS, PAYLOAD, Floor, Missing, Nginx,
    Web, floor_row, found, free_port, listens, wait_until, whole)
from measure import half_load, rate_row, say, take_turns, wanted

TOGETHER = {"B5": ["B5-direct"], "B6": ["B6-soon"]}
REPLAYED = 1000  # keys whose replays are asked for
REPLAY_BYTES = 850  # that one of these replays appends to the journal
OPEN = 10_000  # connections that are held open


def request_text(key=MARKS):
    return ("POST /v1/payments HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Idempotency-Key: {key}\r\nContent-Length: {len(PAYLOAD)}\r\n\r\n{PAYLOAD}")


class Loaded(Web):
    """Loaded with fenced requests."""

    keys = None  # how many are sent again and again; None: each is new

    def __init__(self, directory, tools):
        super().__init__(directory, tools)
        self.request.write_text(request_text(), newline="")

    def load(self, seconds, first=None):
        return Web.load(self, seconds, *([str(self.keys)] if self.keys else []), first=first)


class Origin(Nginx, Loaded):
    """The upstream behind all of them, and what B6 is compared with."""

    name = "origin"
    answer = json.dumps({"id": "pay_7f3a9c21", "status": "captured", "amount": 1999})

    def __init__(self, directory, tools, port=None):
        Nginx.__init__(self, directory, tools, port)
        self.request.write_text(request_text(), newline="")

    def load(self, seconds, first=None):
        return Loaded.load(self, seconds, first)


class Proxy(Loaded):
    """nginx as people put it in front of an API: connections to the upstream are kept."""

    name = "proxy"

    def __init__(self, directory, tools, upstream):
        super().__init__(directory, tools)
        self.port = free_port()
        config = self.directory / "nginx.conf"
        user = f"user {pwd.getpwuid(os.geteuid()).pw_name};" if os.geteuid() == 0 else ""
        config.write_text(f"""
daemon off; worker_processes {CORES}; pid {self.directory}/pid; error_log stderr warn; {user}
events {{ worker_connections 4096; }}
http {{
    access_log off; keepalive_requests 1000000000; keepalive_timeout 600;
    client_body_temp_path {self.directory}/body; proxy_temp_path {self.directory}/proxy;
    fastcgi_temp_path {self.directory}/fastcgi; uwsgi_temp_path {self.directory}/uwsgi;
    scgi_temp_path {self.directory}/scgi;
    upstream behind {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 1000000000; }}
    server {{
        listen 127.0.0.1:{self.port} reuseport;
        location / {{
            proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection "";
        }}
    }}
}}
""")
        self.launch(found("nginx"), "-p", self.directory, "-c", config)
        wait_until(lambda: self.check() or listens(self.port), "nginx")


class Gateway(Loaded):
    name = "gateway"
    limits = "{duplicate_rate: 0, connections_max: 20000}"
    settings = ""

    def __init__(self, directory, tools, binary, upstream):
        super().__init__(directory, tools)
        config = self.directory / "once.yaml"
        config.write_text(f"log: {{decisions: false}}\nlimits: {self.limits}\n"
            f"{self.settings}")
        self.launch(binary, "gateway", "--listen", "127.0.0.1:0", "--upstream",
            f"http://127.0.0.1:{upstream}", "--config", config, "--store",
            f"journal:{self.directory}/data")
        text = self.directory / "log"
        address = r"gateway on http://127\.0\.0\.1:(\d+)"
        wait_until(lambda: self.check() or re.search(address, text.read_text()), "once gateway")
        self.port = int(re.search(address, text.read_text()).group(1))
        wait_until(lambda: listens(self.port), "once gateway")

    def resident(self):
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s*(\d+)", text).group(1)) * 1024


class Replays(Gateway):
    """The same keys again and again."""

    name = "replays"
    what = "replays by the gateway"
    keys = REPLAYED

    def __init__(self, *words):
        super().__init__(*words)
        self.start = self.first()
        self.keys = None
        for number in range(REPLAYED):
            self.once(f"{self.start + number:0{KEY_DIGITS}d}")
        self.keys = REPLAYED

    def once(self, key):
        with socket.create_connection(("127.0.0.1", self.port), 30) as wire:
            wire.sendall(request_text(key).encode())
            if not (answer := wire.recv(1 << 16)).startswith(b"HTTP/1.1 200"):
                raise Missing(f"the gateway answered {answer[:300]!r}")
            return answer

    def load(self, seconds, first=None):
        if b"Idempotent-Replayed: true" not in self.once(f"{self.start:0{KEY_DIGITS}d}"):
            raise Missing("the gateway did not replay")
        return super().load(seconds, self.start)


class Soon(Replays):
    """An entry about a replay follows its answer within 10 ms."""

    name = "replays-soon"
    what = "replays, `evidence.replays: soon`"
    settings = "evidence: {replays: soon}\n"


class Flooded(Replays):
    """One key, far above what duplicates are allowed."""

    name = "flooded"
    limits = "{duplicate_rate: 20, duplicate_burst: 40}"

    def __init__(self, *words):
        super().__init__(*words)
        self.keys = 1

    def quiet(self, seconds):
        """How long a first-time request of another key takes meanwhile, in microseconds."""
        took, until, number = [], time.monotonic() + seconds, self.first()
        while time.monotonic() < until:
            number += 1
            begun = time.monotonic()
            self.once(f"{number:0{KEY_DIGITS}d}")
            took.append((time.monotonic() - begun) * 1e6)
            time.sleep(0.01)
        took.sort()
        return {"quiet_p50_us": round(took[len(took) // 2]),
            "quiet_p99_us": round(took[len(took) * 99 // 100])}

    def flood(self, seconds):
        with subprocess.Popen([found("wrk"), f"-t{CORES}", f"-c{CONNECTIONS}",
                f"-d{whole(seconds)}s", "-s", HERE / "begin.lua", f"http://127.0.0.1:{self.port}",
                "--", self.request, str(self.start), "1"], stdout=subprocess.PIPE,
                text=True) as wrk:
            quiet = self.quiet(max(0.5, seconds - 0.5))
            result = json.loads([line for line in wrk.stdout if line.startswith("{")][-1])
        return result["requests"] / result["seconds"], quiet


class Bench:
    def __init__(self, options):
        self.directory, self.tools = Path(options["dir"]), Path(options["tools"])
        self.seconds, self.rounds = float(options["seconds"]), int(options["rounds"])
        self.only, self.binary = options["only"], options["once"]
        self.running = {}

    def start(self, kind, *words):
        say(f"starting {kind.name}")
        self.running[kind.name] = kind(self.directory, self.tools, *words)
        return self.running[kind.name]

    def wants(self, ident):
        """Some rows come together."""
        return wanted(self.only, ident, *TOGETHER.get(ident, ()))

    def turns_of(self, *who):
        return take_turns(who, self.seconds, self.rounds)

    def first_time(self, gateway, proxy, origin):
        what = f"first-time POSTs through the gateway, {CONNECTIONS} connections"
        ours, theirs, bare = self.turns_of(gateway, proxy, origin)
        half, _ = half_load(ours, self.seconds, gateway=gateway, proxy=proxy, origin=origin)
        result = rate_row("B5", what, "requests/s", "nginx, proxy_pass", 0.6, ours, theirs)
        print(json.dumps({**result, **half}), flush=True)
        print(json.dumps(rate_row("B5-direct", what, "requests/s", "no proxy", None, ours, bare)),
            flush=True)

    def replays(self, origin):
        """With entries that are durable before the answer, and with those that follow it."""
        kinds = [one for one in (("B6", Replays, 0.6), ("B6-soon", Soon, 0.7))
            if wanted(self.only, one[0])]
        running = [self.start(kind, self.binary, origin.port) for _, kind, _ in kinds]
        *found, theirs = self.turns_of(*running, origin)
        for (ident, kind, bar), ours in zip(kinds, found):
            print(json.dumps(rate_row(ident, f"{kind.what}, {CONNECTIONS} connections",
                "requests/s", "nginx, a static 200", bar, ours, theirs)), flush=True)
        for one in running:
            one.stop()

    def floor(self, origin):
        """What no replay can be better than."""
        sampled = self.start(type("Sampled", (Replays,), {"name": "sampled"}), self.binary,
            origin.port)
        floor = Floor(self.directory, self.tools, sampled.once(f"{sampled.start:0{KEY_DIGITS}d}"),
            bytes=REPLAY_BYTES)
        floor.request.write_text(request_text(), newline="")
        self.running[floor.name] = floor
        sampled.stop()
        ours, theirs = self.turns_of(floor, origin)
        print(json.dumps(floor_row("B6-floor", "a durable replay", "nginx, a static 200", ours,
            theirs)), flush=True)
        floor.stop()

    def flood(self, origin):
        flooded = self.start(Flooded, self.binary, origin.port)
        rate, quiet = flooded.flood(self.seconds)
        print(json.dumps({"id": "B6-flood", "what": "a flood of one key, refused with 429",
            "figure": round(rate), "unit": "requests/s", "better": "info", **quiet}), flush=True)
        flooded.stop()

    def memory(self, origin):
        """10,000 connections that each had an answer and stay open."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < OPEN + 500:
            raise Missing(f"only {hard} files may be open")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        gateway = self.start(type("Held", (Gateway,), {"name": "held"}), self.binary, origin.port)
        before, wires = gateway.resident(), []
        try:
            for number in range(OPEN):
                wire = socket.create_connection(("127.0.0.1", gateway.port), 30)
                wires.append(wire)
                wire.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                if not wire.recv(1 << 14).startswith(b"HTTP/1.1 200"):
                    raise Missing("a connection was not answered")
            each = (gateway.resident() - before) / OPEN
        finally:
            for wire in wires:
                wire.close()
        print(json.dumps({"id": "G-memory", "what": f"memory of each of {OPEN:,} open connections",
            "figure": round(each), "unit": "bytes", "better": "info"}), flush=True)
        gateway.stop()

    def run(self):
        origin = self.start(Origin)
        if self.wants("B5"):
            gateway = self.start(Gateway, self.binary, origin.port)
            self.first_time(gateway, self.start(Proxy, origin.port), origin)
            gateway.stop()
        for ident, measure in (("B6", self.replays), ("B6-floor", self.floor),
                ("B6-flood", self.flood), ("G-memory", self.memory)):
            if self.wants(ident):
                try:
                    measure(origin)
                except Missing as fault:
                    print(json.dumps({"id": ident, "what": ident, "skipped": str(fault)}))

    def alone(self, which):
        origin = self.start(Origin)
        loaded = self.start(Replays if which == "B6" else Gateway, self.binary, origin.port)
        say(f"pid {loaded.process.pid}")
        say(f"{loaded.load(self.seconds)[0]:,.0f} requests/s")

    def stop(self):
        for process in self.running.values():
            process.stop()


def main(kind=Bench, **more):
    options = {"dir": "", "tools": "", "once": "", "seconds": "3", "rounds": "5", "only": "",
        "alone": "", **more}
    options.update(word.split("=", 1) for word in sys.argv[1:])
    bench = kind(options)
    try:
        found("wrk")
        if options["alone"]:
            bench.alone(options["alone"])
        else:
            bench.run()
    except Missing as fault:
        say(f"{Path(sys.argv[0]).name}: {fault}")
        return 1
    finally:
        bench.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
