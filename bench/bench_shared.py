#!/usr/bin/python3
"""bench_shared: durable begins over HTTP on a store in PostgreSQL (B10).

    bench_shared.py dir=PATH once=PATH tools=PATH [seconds=3] [rounds=5] [only=B10]

One PostgreSQL, loaded in turn by pgbench (B3's single inserts), by one process of Once and by two.
Each process has one batch under way, so two processes have two, of different keys. All go to the
same server with the same durability; B10 is how many begins that makes of one insert. Prints one
row a line, as the other programs do (bench.h).
"""
import json
import re
import subprocess
import sys
import threading

import bench_http
from bench_http import CONNECTIONS, Missing, Once, Postgres, row, say, wait_until

WHAT = f"begins over HTTP on a PostgreSQL store, {CONNECTIONS} connections"
ROWS = [("B10", 1, "PostgreSQL, INSERT by pgbench", 1.2),
    ("B10-2", 2, "PostgreSQL, INSERT by pgbench", 1.2)]


class Shared(Once):
    """One process over that database."""

    def __init__(self, directory, tools, binary, url, number):  # pylint: disable=W0231
        self.name = f"once-postgres-{number}"
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
    def __init__(self, options):
        self.options, self.rounds = options, int(options["rounds"])
        self.seconds = float(options["seconds"])
        self.running, self.rates = [], {}

    def start(self):
        place = bench_http.Path(self.options["dir"])
        self.database = Postgres(place)
        self.running.append(self.database)
        url = f"postgres:///postgres?host={self.database.directory}&user=bench"
        done = subprocess.run([self.options["once"], "migrate", "--store", url], text=True,
            capture_output=True)
        if done.returncode != 0:
            raise Missing(f"once migrate: {done.stderr}")
        self.nodes = [Shared(place, bench_http.Path(self.options["tools"]), self.options["once"],
            url, number) for number in (1, 2)]
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
        loads = {"postgres": lambda seconds: self.database.load(seconds)[0]}
        for _, count, _, _ in ROWS:
            loads[count] = lambda seconds, count=count: self.together(self.nodes[:count], seconds)
        names = list(loads)
        for name in names[number % len(names):] + names[:number % len(names)]:
            rate = loads[name](self.seconds if number else self.seconds / 2)
            say(f"round {number} of {self.rounds}: {name} {rate:,.0f}/s")
            if number:
                self.rates.setdefault(name, []).append(rate)

    def run(self):
        self.start()
        for number in range(self.rounds + 1):
            self.round(number)
        for ident, count, compared, bar in ROWS:
            if self.options["only"] in ("", ident):
                result = row(ident, compared, bar, self.rates[count], self.rates["postgres"])
                print(json.dumps({**result, "what": f"{WHAT}, {count} processes"}), flush=True)

    def stop(self):
        for process in reversed(self.running):
            process.stop()


def main():
    options = {"dir": "", "tools": "", "once": "", "seconds": "3", "rounds": "5", "only": ""}
    options.update(word.split("=", 1) for word in sys.argv[1:])
    bench = Bench(options)
    try:
        bench_http.found("wrk")
        bench.run()
    except Missing as fault:
        for ident, _, _, _ in ROWS:
            print(json.dumps({"id": ident, "what": WHAT, "skipped": str(fault)}), flush=True)
    finally:
        bench.stop()


if __name__ == "__main__":
    main()
