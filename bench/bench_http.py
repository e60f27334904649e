#!/usr/bin/python3
"""bench_http: durable begins over HTTP beside nginx, Redis and PostgreSQL (B1, B2, B3), and what a
disk that stalls now and then does to requests that need no disk (B1-stalls). B1-loops: begins with
a loop for each core by hand, all of which serve. B1-floor: what a server without any code of its
own reaches here (bench_floor.c). B7-http: begins beside many live keys.

    bench_http.py dir=PATH once=PATH tools=PATH [seconds=3] [rounds=5] [keys=10000000] [few=100000]
        [only=B1] [alone=1]

All servers run from the start, each with data of its own below dir, and take turns being loaded:
only one at a time has work. Prints one row a line, as the other programs do (bench.h). alone=1
loads Once only, for a profile.
"""
import itertools
import json
import mmap
import os
import pwd
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

from measure import (PARTS, cpu_row, cpu_s_of, half_load, p99_row, rate_row, say, take_turns,
    wanted)

HERE = Path(__file__).resolve().parent
CONNECTIONS = 64
CORES = len(os.sched_getaffinity(0))
START_S = 60
PAYLOAD = json.dumps({"amount": 1999, "currency": "EUR", "order": "ord_7f3a9c21",
    "customer": {"id": "cus_5521", "email": "someone@example.com"}, "items": [1, 2, 3]})
KEY_DIGITS = 16
MARKS = "#" * KEY_DIGITS  # where each request has a number of its own
RUN_NUMBERS = 10 ** 12  # numbers that one run may use
BAR = 0.7
PEERS = [("B1", "nginx", "nginx, a static 200", BAR), ("B2", "redis", "Redis, SET NX, fsync always",
    1.1), ("B3", "postgres", "PostgreSQL, INSERT", 3.0)]
WITH_B1 = LOOPS, CPU, P99 = "B1-loops", "B1-cpu", "B1-p99"
BAR_CPU, BAR_P99 = 1.8, 2
WHAT = f"durable begins over HTTP, {CONNECTIONS} connections"
STALLS = "B1-stalls"
FLOOR = "B1-floor"
FLOOR_WORK_US = (0, 4, 8, 12)  # own code of each request
GROWN, BAR_GROWN = "B7-http", 0.9
BEGIN_BYTES = 960  # that one of these begins appends to the journal
FLUSH_RATE = 1000  # bare flushes a second: about as many as begins at half load make
STALL_MS, STALL_EVERY_MS = 50, 2000
STALLS_RATE, LIVE_RATE, LIVE_CONNECTIONS = 2000, 500, 16  # a second; far from what it can do


class Missing(Exception):
    """It cannot be measured here, and why."""


def found(name, *places):
    """The path of a program; Debian keeps some where PATH does not look."""
    where = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", *places])
    path = shutil.which(name, path=where)
    if path is None:
        raise Missing(f"{name} is not installed")
    return path


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_until(works, what):
    until = time.monotonic() + START_S
    while not works():
        if time.monotonic() > until:
            raise Missing(f"{what} does not start")
        time.sleep(0.02)


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def whole(seconds):
    """wrk and pgbench take no less than one."""
    return max(1, round(seconds))


class Process:
    """A server in the foreground, in a directory of its own, ended by its pid."""

    name = ""

    def __init__(self, directory):
        self.directory = directory / self.name
        self.directory.mkdir()
        self.process = None

    def launch(self, *command, **how):
        self.log = self.directory / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([str(word) for word in command],
                stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT,
                **{"stdout": log, "cwd": self.directory, **how})

    def check(self):
        if self.process.poll() is not None:
            raise Missing(f"{self.name} ended: {self.log.read_text(errors='replace')[-500:]}")

    def cpu_s(self):
        return cpu_s_of(self.process.pid)

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def request_text():
    body = '{"scope":"bench","key":"%s","payload":%s}' % (MARKS, PAYLOAD)
    return ("POST /v1/fences HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}")


class Web(Process):
    """What is loaded over HTTP, with the same requests from the same program."""

    numbers = itertools.count(1)  # of the runs, of all of them

    def __init__(self, directory, tools):
        super().__init__(directory)
        self.tools, self.port = tools, None
        self.request = self.directory / "request"
        self.request.write_text(request_text(), newline="")

    def first(self):
        return next(Web.numbers) * RUN_NUMBERS

    def load(self, seconds, *more, first=None):
        """Answers a second, as many as it gives, and how many it gave."""
        done = subprocess.run([found("wrk"), f"-t{CORES}", f"-c{CONNECTIONS}",
            f"-d{whole(seconds)}s", "-s", HERE / "begin.lua", f"http://127.0.0.1:{self.port}", "--",
            self.request, str(first or self.first()), *more], capture_output=True, text=True)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode != 0 or not lines:
            raise Missing(f"wrk: {done.stderr or done.stdout}")
        result = json.loads(lines[-1])
        if result["errors"]:
            raise Missing(f"{self.name}: {result['errors']} of wrk's requests failed")
        return result["requests"] / result["seconds"], result["requests"]

    def latency_begin(self, rate, seconds, connections=CONNECTIONS, request=None):
        return subprocess.Popen([self.tools / "bench_open", f"port={self.port}",
            f"rate={rate:.0f}", f"seconds={seconds:g}", f"connections={connections}",
            f"request={request or self.request}", f"first={self.first()}"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @staticmethod
    def latency_end(load):
        out, fault = load.communicate()
        if load.returncode != 0:
            raise Missing(fault.strip())
        return json.loads(out)

    def latency(self, rate, seconds):
        """Of requests that come at this rate, whatever becomes of those before them."""
        return self.latency_end(self.latency_begin(rate, seconds))


class Once(Web):
    name = "once"
    store, store_options = "data", ""
    loops = 0  # as few as carry the load

    def environment(self, directory):
        return {}

    def fill(self):
        """What is in the store before it starts."""

    def __init__(self, directory, tools, binary):
        super().__init__(directory, tools)
        # As nginx writes no line for a request here, neither do we.
        config = self.directory / "once.yaml"
        config.write_text("log: {decisions: false}\n")
        self.fill()
        self.launch(binary, "serve", "--listen", "127.0.0.1:0", "--config", config,
            "--loops", str(self.loops),
            "--store", f"journal:{self.directory}/{self.store}{self.store_options}",
            **self.environment(directory))
        text = self.directory / "log"
        address = r"http://127\.0\.0\.1:(\d+)"
        wait_until(lambda: self.check() or re.search(address, text.read_text()), "once serve")
        self.port = int(re.search(address, text.read_text()).group(1))
        wait_until(lambda: listens(self.port), "once serve")

    def answer(self):
        """The whole answer to a begin."""
        text = request_text().replace(MARKS, f"{self.first():0{KEY_DIGITS}d}").encode()
        with socket.create_connection(("127.0.0.1", self.port), 30) as wire:
            wire.sendall(text)
            answer = b""
            while not answer.endswith(b"}"):
                data = wire.recv(1 << 16)
                if not data:
                    raise Missing(f"once answered {answer[:300]!r}")
                answer += data
        return answer

    def fence(self):
        """A grant's number: how many there were."""
        answer = self.answer()
        match = re.search(rb'"fence": *(\d+)', answer)
        if match is None:
            raise Missing(f"once answered {answer[:300]!r}")
        return int(match.group(1))

    def load(self, seconds):
        """Each answer has to have been a grant: fences are counted."""
        before = self.fence()
        rate, requests = super().load(seconds)
        granted = self.fence() - before - 1
        if granted < requests:
            raise Missing(f"only {granted} of {requests} begins were granted")
        return rate, requests


class AllLoops(Once):
    name, loops = "all-loops", CORES


class Keyed(Once):
    """Once on a store with this many live keys."""

    store = "store"

    def __init__(self, directory, tools, binary, name, keys):
        self.name, self.keys = name, keys
        super().__init__(directory, tools, binary)

    def fill(self):
        done = subprocess.run([self.tools / "bench_keys", f"dir={self.directory}",
            f"load={self.keys}"], capture_output=True, text=True)
        if done.returncode != 0:
            raise Missing(f"bench_keys: {done.stderr[-300:]}")


class Stalling(Once):
    """Once on a disk that stalls now and then: one flush in a while takes longer."""

    name = "stalling"
    store_options = "?write=buffered"  # its flush is an fdatasync, which can be made to wait

    def environment(self, directory):
        shim = directory / "stall_shim.so"
        done = subprocess.run([found("cc"), "-O2", "-shared", "-fPIC", "-o", shim,
            HERE / "stall_shim.c"], capture_output=True, text=True)
        if done.returncode != 0:
            raise Missing(f"cc: {done.stderr[-300:]}")
        return {"env": dict(os.environ, LD_PRELOAD=str(shim), BENCH_STALL_MS=str(STALL_MS),
            BENCH_STALL_EVERY_MS=str(STALL_EVERY_MS))}

    def both(self, seconds):
        """Latencies of requests that need no disk, and of begins, at the same time."""
        live = self.directory / "live"
        live.write_text(f"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Number: {MARKS}\r\n\r\n",
            newline="")
        loads = [self.latency_begin(LIVE_RATE, seconds, LIVE_CONNECTIONS, live),
            self.latency_begin(STALLS_RATE, seconds)]
        return [self.latency_end(load) for load in loads]


class Disk:
    """The disk alone: one block over zeros, durable, at a fixed rate, counted from when it was due.

    A begin cannot be quicker than the flush it waits for, and whoever comes during a slow one waits
    for the rest of it. So this is what no durable store can be better than."""

    name = f"a bare flush, {FLUSH_RATE:,}/s"
    blocks = 4096  # of one file, over and over

    def __init__(self, directory):
        path = directory / "disk"
        path.write_bytes(bytes(self.blocks * 4096))
        self.file = os.open(path, os.O_RDWR | os.O_DIRECT | os.O_DSYNC)
        self.block = mmap.mmap(-1, 4096)  # aligned, as O_DIRECT asks
        self.block.write(b"1" * 4096)

    def latency(self, _, seconds):
        took, begun = [], time.monotonic()
        for number in range(round(FLUSH_RATE * seconds)):
            due = begun + number / FLUSH_RATE
            if (left := due - time.monotonic()) > 0:
                time.sleep(left)
            os.pwrite(self.file, self.block, number % self.blocks * 4096)
            took.append(time.monotonic() - due)
        took.sort()
        return {part: round(1e6 * took[int(len(took) * share)])
            for part, share in zip(PARTS, (0.5, 0.99, 0.999))}


class Nginx(Web):
    """A static answer to the same POST, about as long as ours, from as many workers as cores."""

    name = "nginx"
    answer = json.dumps({"decision": "first_seen", "attempt": 1, "fence": 123456,
        "lease_expires_at": "2026-01-01T00:00:30.000Z",
        "operation_id": "op_019b7a3c-0000-7000-8000-0123456789ab"})

    def __init__(self, directory, tools, port=None):
        super().__init__(directory, tools)
        self.port = port or free_port()
        config = self.directory / "nginx.conf"
        config.write_text(f"""
daemon off; worker_processes {CORES}; pid {self.directory}/pid; error_log stderr warn;
{'user ' + pwd.getpwuid(os.geteuid()).pw_name + ';' if os.geteuid() == 0 else ''}
events {{ worker_connections 4096; }}
http {{
    access_log off; keepalive_requests 1000000000; keepalive_timeout 600;
    client_body_temp_path {self.directory}/body; proxy_temp_path {self.directory}/proxy;
    fastcgi_temp_path {self.directory}/fastcgi; uwsgi_temp_path {self.directory}/uwsgi;
    scgi_temp_path {self.directory}/scgi;
    server {{
        listen 127.0.0.1:{self.port} reuseport;
        location = /count {{ stub_status; }}
        location / {{ default_type application/json; return 200 '{self.answer}'; }}
    }}
}}
""")
        self.launch(found("nginx"), "-p", self.directory, "-c", config)
        wait_until(lambda: self.check() or listens(self.port), "nginx")


class Floor(Web):
    """Durable before it answers, in the shape of Once, and nothing else (bench_floor.c)."""

    def __init__(self, directory, tools, answer, what="", loops=1, **options):
        self.what = what
        self.name = "-".join(["floor", str(loops), *map(str, options.values())])
        super().__init__(directory, tools)
        self.port = free_port()
        text = self.directory / "answer"
        text.write_bytes(answer)
        self.launch(tools / "bench_floor", f"port={self.port}", f"dir={self.directory}",
            f"answer={text}", f"loops={loops}",
            *(f"{name}={value}" for name, value in options.items()))
        wait_until(lambda: self.check() or listens(self.port), "bench_floor")


class Redis(Process):
    """SET NX of keys that are new, each on the disk before it is answered."""

    name = "redis"
    keys = 2_000_000_000  # to pick from: nearly every one is new

    def __init__(self, directory):
        super().__init__(directory)
        self.port, self.requests, self.made = free_port(), 2000, 0
        self.launch(found("redis-server"), "--port", self.port, "--bind", "127.0.0.1", "--save", "",
            "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", 0,
            "--dir", self.directory)
        wait_until(lambda: self.check() or listens(self.port), "redis-server")

    def count(self, command):
        """The answer to a command, a number."""
        with socket.create_connection(("127.0.0.1", self.port), 30) as wire:
            wire.sendall(command.encode() + b"\r\n")
            return int(wire.recv(64)[1:])

    def load(self, seconds):
        """redis-benchmark counts requests, so as many as the last run says fit into the time."""
        before = self.count("DBSIZE")
        done = subprocess.run([found("redis-benchmark"), "-p", str(self.port), "-c",
            str(CONNECTIONS), "-n", str(self.requests), "-r", str(self.keys), "--csv", "SET",
            f"bench:{self.made}:__rand_int__", PAYLOAD, "NX"],  # two runs may have the same seed
            capture_output=True, text=True)
        match = re.search(r'^"SET .*?","([\d.]+)"', done.stdout, re.M)
        if done.returncode != 0 or match is None:
            raise Missing(f"redis-benchmark: {done.stderr or done.stdout}")
        rate, made = float(match.group(1)), self.requests
        self.made += made
        new = self.count("DBSIZE") - before
        if new < 0.99 * made:
            raise Missing(f"only {new} of {made} keys were new to redis")
        self.requests = max(2000, int(rate * seconds))
        return rate, made


class Postgres(Process):
    """INSERT … ON CONFLICT DO NOTHING of keys that are new, prepared, one commit each."""

    name = "postgres"
    settings = {"listen_addresses": "", "fsync": "on", "synchronous_commit": "on",
        "shared_buffers": "256MB", "max_wal_size": "8GB", "checkpoint_timeout": "1h",
        "autovacuum": "off", "max_connections": CONNECTIONS + 20}

    def __init__(self, directory):
        super().__init__(directory)
        places = sorted(str(path) for path in Path("/usr/lib/postgresql").glob("*/bin"))[::-1]
        self.tool = lambda name: found(name, *places)
        self.who = self.somebody()
        data = self.directory / "data"
        self.run("initdb", "-D", data, "-U", "bench", "-A", "trust", "--no-sync")
        (self.directory / "bench.sql").write_text(
            "\\set key random(1, 9000000000000000000)\n"
            f"INSERT INTO fences VALUES ('bench', :key, '{PAYLOAD}') ON CONFLICT DO NOTHING;\n")
        options = [word for pair in {**self.settings, "unix_socket_directories": self.directory}
            .items() for word in ("-c", f"{pair[0]}={pair[1]}")]
        self.launch(self.tool("postgres"), "-D", data, *options, **self.who)
        wait_until(lambda: self.check() or self.ask("SELECT 1").returncode == 0, "postgres")
        self.ask("CREATE TABLE fences (scope text, key bigint, payload text,"
            " PRIMARY KEY (scope, key))").check_returncode()

    def somebody(self):
        """PostgreSQL does not run as root."""
        if os.geteuid() != 0:
            return {}
        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            raise Missing("there is no user 'postgres' to run PostgreSQL as") from None
        os.chown(self.directory, user.pw_uid, user.pw_gid)
        for parent in self.directory.parents:
            if not os.stat(parent).st_mode & 0o001:
                raise Missing(f"the user 'postgres' cannot pass through '{parent}' (see --dir)")
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def run(self, name, *words):
        done = subprocess.run([self.tool(name), *[str(word) for word in words]], text=True,
            capture_output=True, cwd=self.directory, **self.who)
        if done.returncode != 0:
            raise Missing(f"{name}: {done.stderr[-300:]}")
        return done.stdout

    def ask(self, sql):
        return subprocess.run([self.tool("psql"), "-h", self.directory, "-U", "bench", "-q", "-c",
            sql, "postgres"], capture_output=True, text=True)

    def pgbench(self, seconds, *more):
        return self.run("pgbench", "-h", self.directory, "-U", "bench", "-n", "-M", "prepared",
            "-c", CONNECTIONS, "-j", CORES, "-T", whole(seconds), "-f",
            self.directory / "bench.sql", *more, "postgres")

    def latency(self, rate, seconds):
        """Of inserts that come at this rate, from when each was due."""
        prefix = self.directory / "latency"
        self.pgbench(seconds, "-R", f"{rate:.0f}", "-l", "--log-prefix", prefix)
        took = []
        for log in self.directory.glob("latency.*"):
            took += [int(line.split()[2]) for line in log.read_text().splitlines()]
            log.unlink()
        took.sort()
        return {f"p{part}_us": took[min(len(took) - 1, len(took) * part // 10 ** len(str(part)))]
            for part in (50, 99, 999)}

    def load(self, seconds):
        out = self.pgbench(seconds)
        made = int(re.search(r"processed: (\d+)", out).group(1))
        return float(re.search(r"^tps = ([\d.]+)", out, re.M).group(1)), made

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(2)  # SIGINT: end its sessions and then itself
        super().stop()


def stalls_row(server, seconds, rounds):
    """Who only passes by must not wait for the disk. The begins of a stall do, whoever flushes."""
    server.load(1)
    seconds = max(4 * seconds, 3 * STALL_EVERY_MS / 1000)
    results = []
    for number in range(max(1, rounds // 2)):
        say(f"a disk that stalls: {number + 1} of {max(1, rounds // 2)}")
        results.append(server.both(seconds))
    middle = lambda place, part: statistics.median(one[place][part] for one in results)
    parts = ("p50_us", "p99_us", "p999_us")
    return {"id": STALLS, "what": f"GET /livez, p99, beside {STALLS_RATE:,} begins/s on a disk that"
        f" stalls {STALL_MS} ms every {STALL_EVERY_MS / 1000:g} s", "unit": "ms", "better": "info",
        "figure": round(middle(0, "p99_us") / 1000, 3), "half_load": {"rate": STALLS_RATE,
        "GET /livez beside begins": {part: middle(0, part) for part in parts},
        "begins": {part: middle(1, part) for part in parts}}}


def floor_row(ident, what, compared, ours, theirs):
    return rate_row(ident, f"the least for {what}: a server without code of its own", "requests/s",
        compared, None, ours, theirs)


def allowed_us(values, bar):
    """How much own code leaves a value at its bar, from the two measured amounts around it. Values
    grow with the work, or shrink."""
    sign = 1 if values[0] > values[-1] else -1
    left = [sign * (value - bar) for value in values]
    for place in range(len(left) - 1):
        if left[place] >= 0 > left[place + 1]:
            less, more = FLOOR_WORK_US[place:place + 2]
            return round(less + (more - less) * left[place] / (left[place] - left[place + 1]), 1)
    return FLOOR_WORK_US[0 if left[0] < 0 else -1]  # past the last one nothing was measured


class Bench:
    def __init__(self, options):
        self.directory, self.tools = Path(options["dir"]), Path(options["tools"])
        self.seconds, self.rounds = float(options["seconds"]), int(options["rounds"])
        self.only, self.binary = options["only"], options["once"]
        self.keys, self.few = int(options["keys"]), int(options["few"])
        self.running = {}

    def make(self, name):
        if name == "once":
            return Once(self.directory, self.tools, self.binary)
        if name == "all-loops":
            return AllLoops(self.directory, self.tools, self.binary)
        if name == "stalling":
            return Stalling(self.directory, self.tools, self.binary)
        if name == "nginx":
            return Nginx(self.directory, self.tools)
        return {"redis": Redis, "postgres": Postgres}[name](self.directory)

    def floor(self):
        """As many begins as a server of our shape can answer, by how much own code it has."""
        for name in ("once", "nginx"):
            if name not in self.running:
                self.start(name)
        answer, nginx = self.running["once"].answer(), self.running["nginx"]
        floors = [Floor(self.directory, self.tools, answer, f"{work_us} µs of own code",
            bytes=BEGIN_BYTES, work_us=work_us) for work_us in FLOOR_WORK_US]
        if CORES > 1:
            floors.append(Floor(self.directory, self.tools, answer, f"{CORES} loops", loops=CORES,
                bytes=BEGIN_BYTES))
        self.running.update((one.name, one) for one in floors)
        theirs, *found = take_turns([nginx, *floors], self.seconds, self.rounds)
        rows = [floor_row(FLOOR, "a durable begin", "nginx, a static 200", ours, theirs)
            for ours in found]
        by_work = rows[:len(FLOOR_WORK_US)]
        print(json.dumps({**rows[0],
            "with": {one.what: {name: row[name] for name in ("ratio", "cpu_us", "cpu_ratio")}
                for one, row in zip(floors[1:], rows[1:])},
            "allowed_us": {"B1": allowed_us([row["ratio"] for row in by_work], BAR),
                CPU: allowed_us([row["cpu_ratio"] for row in by_work], BAR_CPU)}}), flush=True)

    def keyed(self, name, keys):
        say(f"loading {keys:,} keys")
        self.running[name] = Keyed(self.directory, self.tools, self.binary, name, keys)
        return self.running[name]

    def grown(self):
        """Begins on fresh keys beside many live ones. The measured begins would make the small
        store large, so each round has a new one."""
        many, turns = self.keyed("many", self.keys), {"many": [], "few": []}
        for number in range(self.rounds):
            few = self.keyed(f"few-{number}", self.few)
            order = [("many", many), ("few", few)][::-1 if number % 2 else 1]
            found = take_turns([one for _, one in order], self.seconds, 1)
            for (who, _), turn in zip(order, found):
                turns[who] += turn
            few.stop()
            shutil.rmtree(few.directory)
        many.stop()
        print(json.dumps(rate_row(GROWN, f"begins over HTTP with {self.keys:,} live keys",
            "begins/s", f"with {self.few:,}", BAR_GROWN, turns["many"], turns["few"])), flush=True)

    def start(self, name):
        say(f"starting {name}")
        self.running[name] = self.make(name)

    def wants(self, ident):
        return wanted(self.only, ident, *(WITH_B1 if ident == "B1" else ()))

    def start_all(self):
        """Why a row cannot be measured, by its id."""
        self.start("once")
        if CORES > 1 and self.wants("B1"):
            self.start("all-loops")
        missing = {}
        for ident, name, _, _ in PEERS:
            try:
                if self.wants(ident):
                    self.start(name)
            except Missing as fault:
                missing[ident] = str(fault)
        return missing

    def report(self, turns, missing):
        for ident, name, compared, bar in PEERS:
            if not self.wants(ident):
                continue
            if ident in missing:
                print(json.dumps({"id": ident, "what": WHAT, "skipped": missing[ident]}))
                continue
            ours, theirs = turns["once"], turns[name]
            result = rate_row(ident, WHAT, "begins/s", compared, bar, ours, theirs)
            if name != "nginx":
                print(json.dumps(result), flush=True)
                continue
            disk = Disk(self.directory)
            half, runs = half_load(ours, self.seconds, **{"once": self.running["once"],
                "nginx": self.running["nginx"], disk.name: disk})
            if "all-loops" in turns:
                print(json.dumps(rate_row(LOOPS, f"{WHAT}, {CORES} loops", "begins/s", compared,
                    None, turns["all-loops"], theirs)), flush=True)
            for one in ({**result, **half},
                    cpu_row(CPU, "processor time of a durable begin", compared, BAR_CPU, ours,
                        theirs),
                    p99_row(P99, "p99 of durable begins at half load", compared, BAR_P99,
                        runs["once"], runs["nginx"])):
                print(json.dumps(one), flush=True)

    def stop(self):
        for process in self.running.values():
            process.stop()

    def run(self):
        if wanted(self.only, *WITH_B1, *(ident for ident, _, _, _ in PEERS)):
            missing = self.start_all()
            servers = list(self.running.values())
            found = take_turns(servers, self.seconds, self.rounds)
            self.report({one.name: turns for one, turns in zip(servers, found)}, missing)
        if wanted(self.only, FLOOR):
            self.floor()
        if wanted(self.only, GROWN):
            self.grown()
        if wanted(self.only, STALLS):
            self.start("stalling")
            print(json.dumps(stalls_row(self.running["stalling"], self.seconds, self.rounds)),
                flush=True)


def main():
    options = {"dir": "", "tools": "", "once": "", "seconds": "3", "rounds": "5", "only": "",
        "alone": "", "keys": "10000000", "few": "100000"}
    options.update(word.split("=", 1) for word in sys.argv[1:])
    bench = Bench(options)
    try:
        found("wrk")
        if options["alone"]:
            bench.start("once")
            say(f"{bench.running['once'].load(bench.seconds)[0]:,.0f} begins/s")
        else:
            bench.run()
    except Missing as fault:
        say(f"bench_http: {fault}")
        return 1
    finally:
        bench.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
