#!/usr/bin/python3
"""bench_shared: durable begins over HTTP on a store in PostgreSQL and on one in Redis (B10).

    bench_shared.py dir=PATH once=PATH tools=PATH [seconds=3] [rounds=5] [few=100000]
        [keys=5000000] [only=B10]

One PostgreSQL, loaded in turn by pgbench (B3's single inserts), and by one, two and four processes
of Once; and one Redis, loaded in turn by redis-benchmark (B2's SET NX) and by one process. All go
to the same server with the same durability; B10 is how many begins that makes of one insert.
B10-hand is begin and seal beside what people write by hand (by_hand.py), in turns. B10-grown is the
rate with `keys` live keys ÷ the rate with `few` before. B10-redis-floor is what a server without
any code of its own reaches that writes to that Redis what a begin does at the least
(bench_floor.c). Prints one row a line, as the other programs do (bench.h).
"""
import concurrent.futures
import json
import re
import statistics
import subprocess
import sys

import bench_http
from bench_http import (CONNECTIONS, HERE, Floor, Missing, Once, Path, Postgres, Redis, floor_row,
    wait_until)
from measure import half_load, rate_row, row, say, take_turns, wanted

INSERT, SET = "PostgreSQL, INSERT by pgbench", "Redis, SET NX, fsync always"
ROWS = [("B10", Postgres, 1, INSERT, 1.2), ("B10-2", Postgres, 2, INSERT, 1.2),
    ("B10-4", Postgres, 4, INSERT, 1.2), ("B10-redis", Redis, 1, SET, 0.8)]
HAND, GROWN, FLOOR = "B10-hand", "B10-grown", "B10-redis-floor"
# What is written for each begin, one part more each time (floor_redis.h). The third is the row.
FLOORS = [("records alone", {"writes": 1}), ("evidence too", {"writes": 2}),
    ("dues too", {"writes": 3}), ("the keys in their order too", {"writes": 4}),
    ("all of it by a script that compares", {"writes": 4, "script": 1})]
FLOOR_ROW = 2
PAIRS = f"begin and seal over HTTP on a PostgreSQL store, {CONNECTIONS} connections"
# Records that are live and settled: copies of one, under hashes as random as any.
FILL = """DO $$ DECLARE names text; BEGIN
SELECT string_agg(quote_ident(column_name), ', ') INTO names FROM information_schema.columns
    WHERE table_schema = 'once' AND table_name = 'records'
    AND column_name NOT IN ('key_hash', 'key', 'operation_id');
EXECUTE format('INSERT INTO once.records (key_hash, key, operation_id, %1$s) SELECT
    sha256(convert_to(''fill-'' || number, ''UTF8'')), ''fill-'' || number, gen_random_uuid(), %1$s
    FROM (SELECT * FROM once.records WHERE sealed_at IS NOT NULL LIMIT 1) AS one,
    generate_series({first}, {last}) AS number', names);
END $$"""


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

    def pairs(self, seconds):
        rate, _ = bench_http.Web.load(self, seconds, "seal")
        return rate / 2


class Group:
    """So many processes, all loaded at once. The database works for them, so its time counts."""

    def __init__(self, nodes, database, name=None):
        self.name, self.nodes, self.database = name or f"{len(nodes)} of Once", nodes, database
        self.database_us = []  # of each load, for each call

    def load(self, seconds):
        before = self.database.cpu_s()
        with concurrent.futures.ThreadPoolExecutor(len(self.nodes)) as pool:
            loads = [pool.submit(node.load, seconds) for node in self.nodes]
            rate, calls = map(sum, zip(*(load.result() for load in loads)))
        self.database_us.append(1e6 * (self.database.cpu_s() - before) / calls)
        return rate, calls

    def cpu_s(self):
        return sum(one.cpu_s() for one in [*self.nodes, self.database])

    def each_us(self):
        return round(statistics.median(self.database_us[1:]), 1)  # the first warms up


class Bench:
    """The rows of one engine."""

    def __init__(self, options, kind):
        self.options, self.rounds, self.kind = options, int(options["rounds"]), kind
        self.seconds = float(options["seconds"])
        self.rows = [one for one in ROWS if one[1] is kind and wanted(options["only"], one[0])]
        others = {Postgres: [(HAND, self.hand), (GROWN, self.grown)], Redis: [(FLOOR, self.floor)]}
        self.others = {ident: measure for ident, measure in others[kind]
            if wanted(options["only"], ident)}
        self.running = []

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
            for number in range(max([1] + [one[2] for one in self.rows]))]
        self.running += self.nodes

    def run(self):
        self.start()
        if self.rows:
            self.begins()
        for measure in self.others.values():
            print(json.dumps(measure()), flush=True)

    def begins(self):
        groups = [Group(self.nodes[:count], self.database) for _, _, count, _, _ in self.rows]
        theirs, *found = take_turns([self.database, *groups], self.seconds, self.rounds)
        for (ident, kind, count, compared, bar), ours, group in zip(self.rows, found, groups):
            result = rate_row(ident, what(kind, count), "begins/s", compared, bar, ours, theirs)
            if ident == "B10":
                result.update(half_load(ours, self.seconds, once=self.nodes[0],
                    pgbench=self.database)[0])
                result["begins_per_commit"] = self.begins_per_commit()
            elif kind is Redis:
                result.update(half_load(ours, self.seconds, once=self.nodes[0])[0])
                result["begins_per_commit"] = self.begins_per_commit()
                result["database_us"] = group.each_us()
            print(json.dumps(result), flush=True)

    def commits(self):
        """So far. Each is one batch."""
        if self.kind is Redis:
            return self.database.count("XLEN {once}:entries")  # an item for up to 64 begins
        return int(self.database.ask("SELECT sum(commits) FROM once.chains").stdout.split()[2])

    def begins_per_commit(self, node=None, commits=None):
        node, commits = node or self.nodes[0], commits or self.commits
        before = commits()
        _, begins = node.load(self.seconds)
        return round(begins / max(1, commits() - before), 1)

    def by_hand(self, seconds):
        done = subprocess.run([HERE / "by_hand.py",
            f"dsn=host={self.database.directory} user=bench dbname=postgres",
            f"seconds={seconds:g}"], text=True, capture_output=True)
        if done.returncode != 0:
            raise Missing(f"by_hand.py: {done.stderr[-300:]}")
        result = json.loads(done.stdout)
        return result["pairs"] / result["seconds"]

    def hand(self):
        ours, theirs = [], []
        for number in range(self.rounds + 1):
            ours.append(self.nodes[0].pairs(self.seconds))
            theirs.append(self.by_hand(self.seconds))
            say(f"round {number} of {self.rounds}: {ours[-1]:,.0f} and {theirs[-1]:,.0f} pairs/s")
        return row(HAND, PAIRS, "pairs/s", "INSERT and UPDATE from one pooled Python process", None,
            ours[1:], theirs[1:])

    def floor(self):
        """What a client without any code of its own reaches. The bar is B10-redis's."""
        answer, made = self.nodes[0].answer(), []
        for what_it_writes, options in FLOORS:
            made.append(Floor(Path(self.options["dir"]), Path(self.options["tools"]), answer,
                what_it_writes, redis=self.database.port, **options))
            self.running.append(made[-1])
        groups = [Group([one], self.database, one.name) for one in made]
        theirs, *found = take_turns([self.database, *groups], self.seconds, self.rounds)
        rows = [floor_row(FLOOR, "a begin on a Redis store", SET, ours, theirs) for ours in found]
        least = FLOORS[FLOOR_ROW][1]["writes"]
        entries = f"XLEN {{floor-{least}}}:entries"
        return {**rows[FLOOR_ROW], "database_us": groups[FLOOR_ROW].each_us(),
            "begins_per_commit": self.begins_per_commit(made[FLOOR_ROW],
                lambda: self.database.count(entries)),
            "with": {one.what: {**{name: row[name] for name in ("ratio", "cpu_us", "cpu_ratio")},
                "database_us": group.each_us()}
                for one, row, group in zip(made, rows, groups) if one is not made[FLOOR_ROW]}}

    def fill(self, first, last):
        say(f"filling up to {last:,} keys")
        for sql in (FILL.format(first=first, last=last), "VACUUM ANALYZE once.records",
                "CHECKPOINT"):
            done = self.database.ask(sql)
            if done.returncode != 0:
                raise Missing(done.stderr)

    def grown(self):
        few, keys = int(self.options["few"]), int(self.options["keys"])
        self.nodes[0].pairs(1)  # the record that is copied
        rates, first = [], 1
        for last in (few, keys):
            self.fill(first, last)
            first = last + 1
            self.nodes[0].load(self.seconds / 2)
            rates.append([self.nodes[0].load(self.seconds)[0] for _ in range(self.rounds)])
            say(f"with {last:,} keys: {statistics.median(rates[-1]):,.0f}/s")
        return row(GROWN, f"{what(Postgres, 1)}, with {keys:,} live keys", "begins/s",
            f"with {few:,}", 0.8, rates[1], rates[0])

    def stop(self):
        for process in reversed(self.running):
            process.stop()


def main():
    options = {"dir": "", "tools": "", "once": "", "seconds": "3", "rounds": "5", "only": "",
        "few": "100000", "keys": "5000000"}
    options.update(word.split("=", 1) for word in sys.argv[1:])
    for kind in (Postgres, Redis):
        bench = Bench(options, kind)
        try:
            bench_http.found("wrk")
            if bench.rows or bench.others:
                bench.run()
        except Missing as fault:
            for ident in [one[0] for one in bench.rows] + list(bench.others):
                print(json.dumps({"id": ident, "what": what(kind, 1), "skipped": str(fault)}),
                    flush=True)
        finally:
            bench.stop()


if __name__ == "__main__":
    main()
