#!/usr/bin/python3
"""bench_effects: effects beside job queues, their delay, and a million of them (B11).

    bench_effects.py dir=PATH once=PATH tools=PATH [seconds=3] [rounds=5] [pending=1000000]
        [few=20000] [only=B11-jobs]

One provider, an nginx that answers 200 to everything and counts, is behind all of them, and one
PostgreSQL below graphile-worker, pg-boss (npm, pinned in bench/jobs) and Once's second store. They
take turns being loaded; each creation must have become one call. Prints one row a line, as the
other programs do (bench.h).

  B11-jobs      effects created, sent and acknowledged, on the journal ÷ the better of the two
  B11-jobs-pg   the same with the store in that PostgreSQL
  B11-delay     from the call that creates an effect to its first byte at the provider
  B11-pending   effects sent a second with a million pending ÷ with a few
  B11-memory    resident memory of each pending effect
"""
import http.client
import json
import re
import secrets
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import bench_gateway
from bench_doors import Effects
from bench_gateway import Loaded, Origin
from bench_http import HERE, PAYLOAD, Missing, Postgres, Process, free_port, wait_until
from measure import row, say, wanted

JOBS = ("B11-jobs", "B11-jobs-pg", "B11-delay")
PENDING = ("B11-pending", "B11-memory")
DELAY_RATE = 200  # creations a second: low, so that nothing queues
NPM_S = 300


class Provider(Origin):
    """Counts what it was asked."""

    name = "provider"

    def count(self):
        """Requests so far, without those for this number."""
        wire = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        wire.request("GET", "/count")
        text = wire.getresponse().read().decode()
        wire.close()
        self.asked = getattr(self, "asked", 0) + 1
        return int(text.split()[9]) - self.asked


class Database(Postgres):
    """As a job queue needs it: rows that are done are cleared away."""

    name = "database"
    settings = {**Postgres.settings, "autovacuum": "on"}

    def url(self):
        return f"postgres:///postgres?host={self.directory}&user=bench"


class OnceJournal(Effects):
    name = "once-journal"
    settings = Effects.settings.replace("/v1/charges", '"/v1/charges/{{target.order_id}}"')

    def load_counted(self, seconds, provider):
        before = provider.count()
        rate, _ = self.load(seconds)
        return rate, self.done, provider.count() - before

    def delay_words(self):
        return "once", self.port


class OncePostgres(OnceJournal):
    name = "once-postgres"
    settings = OnceJournal.settings + "secrets: {{key_file: {key}}}\n"

    def __init__(self, directory, tools, binary, behind, database):
        key = directory / "body.key"
        key.write_text(secrets.token_hex(32))
        key.chmod(0o600)
        self.settings = self.settings.replace("{key}", str(key))
        super().__init__(directory, tools, binary, behind, database.url())


class Peer(Process):
    """A worker that stays, and a creator that runs for each load."""

    who = ""

    def __init__(self, directory, database, script, behind):
        super().__init__(directory)
        self.script, self.database = script, database
        self.launch("node", script, "worker", self.who, database.directory, behind)
        wait_until(lambda: self.check() or "ready" in self.log.read_text(), self.name)

    def ask(self, role, *words):
        return ask(self.script, role, self.who, self.database.directory, *words)

    def load_counted(self, seconds, provider):
        before = provider.count()
        result = self.ask("load", seconds)
        say(f"{self.name}: created in {result['created_s']:.1f} of {result['seconds']:.1f} s")
        return result["jobs"] / result["seconds"], result["jobs"], provider.count() - before

    def delay_words(self):
        return self.who, self.database.directory


class Graphile(Peer):
    name = who = "graphile"


class PgBoss(Peer):
    name = who = "pgboss"


def ask(script, *words):
    done = subprocess.run(["node", script, *[str(word) for word in words]], text=True,
        input=PAYLOAD + "\n", capture_output=True, timeout=NPM_S)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        raise Missing(f"{words[0]} of {words[1]}: {done.stderr[-500:]}")
    return json.loads(lines[-1])


def install(directory, folder, script):
    """The script with its packages; npm's cache has them after the first time."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        raise Missing("npm or node is not installed")
    place = directory / folder
    place.mkdir()
    for name in ("package.json", "package-lock.json", script):
        shutil.copy(HERE / folder / name, place)
    say(f"installing the packages of bench/{folder}")
    done = subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts",
        "--prefer-offline"], cwd=place, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=NPM_S)
    if done.returncode != 0:
        raise Missing(f"npm ci: {done.stderr[-300:]}")
    return place / script


class Pending(Effects):
    """Its provider is not there until enough of them wait."""

    def __init__(self, directory, tools, binary, count):
        self.name, self.count, self.behind = f"pending-{count}", count, free_port()
        super().__init__(directory, tools, binary, self.behind)
        self.empty = self.resident()

    settings = Effects.settings.replace("rate: 0,",
        "rate: 0, breaker: {{failures: 3, pause: 1s}},")

    def resident(self):
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s*(\d+)", text).group(1)) * 1024

    def waiting(self):
        return self.unsettled().get("pending", 0)

    def fill(self):
        """With wrk, a few seconds at a time. Returns the bytes of each."""
        while (there := self.waiting()) < self.count:
            say(f"{there:,} of {self.count:,} pending")
            Loaded.load(self, 2)
        return (self.resident() - self.empty) / self.waiting()

    def drain(self, seconds):
        """(sent a second, processor seconds of each) from the first one that is sent."""
        begun = self.executed()
        wait_until(lambda: self.executed() > begun, "sending")
        first, at, used = self.executed(), time.monotonic(), self.cpu_s()
        while time.monotonic() < at + seconds and self.waiting() > 0:
            time.sleep(0.1)
        done, took = self.executed() - first, time.monotonic() - at
        return done / took, (self.cpu_s() - used) / done


class Bench(bench_gateway.Bench):
    def __init__(self, options):
        super().__init__(options)
        self.pending, self.few = int(options["pending"]), int(options["few"])

    # ---- Beside job queues ----------------------------------------------------------------------

    def start_jobs(self, behind):
        """All four, on one database."""
        say("starting PostgreSQL")
        self.running["database"] = database = Database(self.directory)
        done = subprocess.run([self.binary, "migrate", "--store", database.url()], text=True,
            capture_output=True)
        if done.returncode != 0:
            raise Missing(f"once migrate: {done.stderr}")
        script = install(self.directory, "jobs", "jobs.mjs")
        return script, [self.start(OnceJournal, self.binary, behind),
            self.start(OncePostgres, self.binary, behind, database),
            *[self.join(kind(self.directory, database, script, behind))
                for kind in (Graphile, PgBoss)]]

    def join(self, process):
        self.running[process.name] = process
        return process

    def round(self, number, workers, provider, rates):
        for one in workers[number % len(workers):] + workers[:number % len(workers)]:
            rate, done, called = one.load_counted(self.seconds if number else self.seconds / 2,
                provider)
            say(f"round {number} of {self.rounds}: {one.name} {rate:,.0f}/s")
            if done != called:
                raise Missing(f"{one.name}: {done} were done and {called} calls were made")
            if number:
                rates[one.name].append(rate)

    def jobs(self):
        provider = self.start(Provider)
        _, workers = self.start_jobs(provider.port)
        rates = {one.name: [] for one in workers}
        for number in range(self.rounds + 1):
            self.round(number, workers, provider, rates)
        better = max(("graphile", "pgboss"), key=lambda name: statistics.median(rates[name]))
        other = {"graphile": "pgboss", "pgboss": "graphile"}[better]
        for ident, name, bar in (("B11-jobs", "once-journal", 3),
                ("B11-jobs-pg", "once-postgres", 1)):
            made = row(ident, f"effects created, sent and acknowledged, {name}", "effects/s",
                better, bar, rates[name], rates[better])
            made["other"] = {other: round(statistics.median(rates[other]))}
            if wanted(self.only, ident):
                print(json.dumps(made), flush=True)
        self.stop_all()

    def delay(self):
        behind = free_port()
        script, workers = self.start_jobs(behind)
        count = round(DELAY_RATE * max(5, self.seconds))
        delays = {}
        for one in workers:
            say(f"delay of {one.name}")
            delays[one.name] = ask(script, "delay", *one.delay_words(), behind, DELAY_RATE, count)
        first = delays["once-journal"]["p50_us"]
        print(json.dumps({"id": "B11-delay", "what": "creation to first byte at the provider, p50",
            "figure": first, "unit": "µs", "better": "info", "delays": {"rate": DELAY_RATE,
            **delays}}), flush=True)
        self.stop_all()

    # ---- Many that wait -------------------------------------------------------------------------

    def many(self):
        found = {}
        for count in (self.few, self.pending):
            door = self.start(Pending, self.binary, count)
            each = door.fill()
            say(f"{count:,} pending: {each:,.0f} bytes each")
            self.start(Provider, door.behind)
            found[count] = (each, *door.drain(self.seconds))
            say(f"{count:,} pending: {found[count][1]:,.0f} sent a second")
            self.stop_all()
        (_, few_rate, few_s), (each, rate, cpu_s) = found[self.few], found[self.pending]
        rows = [row("B11-pending", f"effects sent with {self.pending:,} pending", "effects/s",
            f"with {self.few:,}", None, [rate], [few_rate]), {"id": "B11-memory",
            "what": f"memory of each of {self.pending:,} pending effects", "figure": round(each),
            "unit": "bytes", "better": "info"}]
        rows[0]["claim_cpu_us"] = {f"{self.pending:,}": round(1e6 * cpu_s),
            f"{self.few:,}": round(1e6 * few_s)}
        for one in rows:
            if wanted(self.only, one["id"]):
                print(json.dumps(one), flush=True)

    # ---- The whole ------------------------------------------------------------------------------

    def stop_all(self):
        """And clear their places for the next."""
        for process in reversed(self.running.values()):
            process.stop()
            shutil.rmtree(process.directory, ignore_errors=True)
        self.running.clear()
        shutil.rmtree(self.directory / "jobs", ignore_errors=True)

    def run(self):
        for idents, measure in ((JOBS[:2], self.jobs), (JOBS[2:], self.delay),
                (PENDING, self.many)):
            if not wanted(self.only, *idents):
                continue
            try:
                measure()
            except Missing as fault:
                self.stop_all()
                for ident in idents:
                    print(json.dumps({"id": ident, "what": ident, "skipped": str(fault)}),
                        flush=True)


if __name__ == "__main__":
    sys.exit(bench_gateway.main(Bench, pending="1000000", few="20000"))
