#!/usr/bin/python3
"""bench_shared: durable begins over HTTP on a store in PostgreSQL and on one in Redis (B10).

    bench_shared.py dir=PATH once=PATH tools=PATH [seconds=3] [rounds=5] [only=B10]

One PostgreSQL, loaded in turn by pgbench (B3's single inserts), and by one, two and four processes
of Once; and one Redis, loaded in turn by redis-benchmark (B2's SET NX) and by one process. All go
to the same server with the same durability; B10 is how many begins that makes of one insert. Prints
one row a line, as the other programs do (bench.h).
"""
import json
import re
import subprocess
import sys
import threading

import bench_http
from bench_http import (CONNECTIONS, Missing, Once, Path, Postgres, Redis, row, say, wait_until)

INSERT, SET = "PostgreSQL, INSERT by pgbench", "Redis, SET NX, fsync always"
ROWS = [("B10", Postgres, 1, INSERT, 1.2), ("B10-2", Postgres, 2, INSERT, 1.2),
    ("B10-4", Postgres, 4, INSERT, 1.2), ("B10-redis", Redis, 1, SET, 0.8)]


def what(kind, count):
    engine = "a PostgreSQL" if kind is Postgres else "a Redis"
    many = "" if count == 1 else f" to each of {count} processes"
    return f"begins over HTTP on {engine} store, {CONNECTIONS} connections{many}"


class Shared(Once):
    """One process over that database."""

    def __init__(self, directory, tools, binary, url, number):  # pylint: disable=W0231
        self.name = f"once-{url.split(':')[0]}-{number}"
        bench_http.Web.__init__(self, directory, tools)
        config = self.directory / "once.yaml"
        config.write_text("log: {decisions: false}\n")
        self.launch(binary, "serve", "--listen", "127.0.0.1:0", "--config", config, "--store", url)
        text, address = self.directory / "log", r"http://127\.0\.0\.1:(\d+)"
        wait_until(lambda: self.check() or re.search(address, text.read_text()), "once serve")
        self.port = int(re.search(address, text.read_text()).group(1))
        wait_until(lambda: bench_http.listens(self.port), "once serve")

    def load(self, seconds):
        """Fences are everybody's here, so grants are counted by wrk's errors alone."""
        return bench_http.Web.load(self, seconds)


class Bench:
    """The rows of one engine."""

    def __init__(self, options, kind):
        self.options, self.rounds, self.kind = options, int(options["rounds"]), kind
        self.seconds = float(options["seconds"])
        self.rows = [one for one in ROWS if one[1] is kind and options["only"] in ("", one[0])]
        self.running, self.rates = [], {}

    def url(self):
        if self.kind is Redis:
            return f"redis://127.0.0.1:{self.database.port}"
        return f"postgres:///postgres?host={self.database.directory}&user=bench"

    def start(self):
        place, tools = Path(self.options["dir"]), Path(self.options["tools"])
        self.database = self.kind(place)
        self.running.append(self.database)
        if self.kind is Postgres:
            done = subprocess.run([self.options["once"], "migrate", "--store", self.url()],
                text=True, capture_output=True)
            if done.returncode != 0:
                raise Missing(f"once migrate: {done.stderr}")
        self.nodes = [Shared(place, tools, self.options["once"], self.url(), number)
            for number in range(max(one[2] for one in self.rows))]
        self.running += self.nodes

    def together(self, nodes, seconds):
        """What all of them reach at once."""
        rates = []
        threads = [threading.Thread(target=lambda node=node: rates.append(node.load(seconds)[0]))
            for node in nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if len(rates) != len(nodes):
            raise Missing("a load failed")
        return sum(rates)

    def round(self, number):
        loads = {"engine": lambda seconds: self.database.load(seconds)[0]}
        for _, _, count, _, _ in self.rows:
            loads[count] = lambda seconds, count=count: self.together(self.nodes[:count], seconds)
        names = list(loads)
        for name in names[number % len(names):] + names[:number % len(names)]:
            rate = loads[name](self.seconds if number else self.seconds / 2)
            say(f"round {number} of {self.rounds}: {self.kind.name} {name} {rate:,.0f}/s")
            if number:
                self.rates.setdefault(name, []).append(rate)

    def run(self):
        self.start()
        for number in range(self.rounds + 1):
            self.round(number)
        for ident, kind, count, compared, bar in self.rows:
            result = row(ident, compared, bar, self.rates[count], self.rates["engine"])
            print(json.dumps({**result, "what": what(kind, count)}), flush=True)

    def stop(self):
        for process in reversed(self.running):
            process.stop()


def main():
    options = {"dir": "", "tools": "", "once": "", "seconds": "3", "rounds": "5", "only": ""}
    options.update(word.split("=", 1) for word in sys.argv[1:])
    for kind in (Postgres, Redis):
        bench = Bench(options, kind)
        try:
            bench_http.found("wrk")
            if bench.rows:
                bench.run()
        except Missing as fault:
            for ident, _, count, _, _ in bench.rows:
                print(json.dumps({"id": ident, "what": what(kind, count), "skipped": str(fault)}),
                    flush=True)
        finally:
            bench.stop()


if __name__ == "__main__":
    main()
