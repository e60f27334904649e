"""A wall clock that somebody sets decides nothing: no effect is made twice, and every wait ends in
its time (P1, P8). tests/unit/test_store_clock.c has a store's own time; here are real programs."""
import concurrent.futures
import contextlib
import json
import os
import random
import socket
import subprocess
import threading
import time

import pytest
from fences import begin_body
from inbox_help import source_yaml
from once_gateway import DUPLICATES_FREE
from once_server import BINARY, LONG, until
from provider import Provider
from redis_servers import servers
from shop import Shop, envelope
from stepping_clock import SteppingClock
from test_gateway_reconcile import wait_questions
from test_inbox import send

MINUTES_S = 600  # a step that no clock discipline makes
SEEDS = range(8 if LONG else 1)
KEPT_S = 4  # a lease that is renewed: long enough for the renewal to come in time


class Shell:
    """`once` on one store in a directory, with the wall clock that a test steps."""

    def __init__(self, directory):
        self.directory, self.clock = directory, SteppingClock(directory)

    def start(self, *words):
        env = {name: value for name, value in os.environ.items() if not name.startswith("ONCE_")}
        return subprocess.Popen([BINARY, *words], cwd=self.directory, env={**env, **self.clock.env},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *words):
        """(exit code, what it printed, seconds)"""
        began = time.monotonic()
        process = self.start(*words)
        out = process.communicate(timeout=200)[0]
        return process.returncode, out, time.monotonic() - began

    def entries(self):
        lines = self.run("tail", "-n", "1000", "--json")[1].splitlines()
        return [json.loads(line) for line in lines]


def wait_for(path):
    until(path.exists, f"{path.name} never came")


@pytest.mark.parametrize("step_s, when",
    [(MINUTES_S, "before"), (MINUTES_S, "during"), (-MINUTES_S, "during"), (50, "during")])
def test_once_run_waits_by_the_boot_clock_and_asks_a_few_times(tmp_path, step_s, when):
    shell = Shell(tmp_path)
    command = ["--lease", "2m", "--", "sh", "-c",
        "echo ran >> runs; touch started; until test -e over; do sleep 0.05; done"]
    holder = shell.start("run", "-k", "a", *command)
    wait_for(tmp_path / "started")
    entries = len(shell.entries())
    began = time.monotonic()
    if when == "before":
        shell.clock.step(step_s)
    waiter = shell.start("run", "-k", "a", "--wait", "1500ms", *command)
    if when == "during":
        time.sleep(0.3)
        shell.clock.step(step_s)
    waiter.communicate(timeout=60)
    took_s = time.monotonic() - began
    assert waiter.returncode == 75
    assert 1.5 <= took_s < 30  # not by the clock that was stepped
    assert len(shell.entries()) - entries <= 2  # one ask at the beginning and one at the end
    (tmp_path / "over").touch()
    holder.communicate(timeout=60)
    assert shell.run("run", "-k", "a", *command)[0] == 0
    assert (tmp_path / "runs").read_text() == "ran\n"


def test_a_waiter_notices_that_a_lease_is_over_although_the_clock_went_back(tmp_path):
    """Of a second attempt: the holder of a first one is known by its process."""
    shell = Shell(tmp_path)
    command = ["-k", "a", "--lease", "1s", "--retry-failed", "--", "sh", "-c",
        "test -e fixed || exit 1; touch started; sleep 30"]
    assert shell.run("run", *command)[0] == 1
    (tmp_path / "fixed").touch()
    holder = shell.start("run", *command)
    wait_for(tmp_path / "started")
    holder.kill()
    shell.clock.step(-MINUTES_S)
    code, _, took_s = shell.run("run", "--wait", "100s", *command)
    assert code == 75
    assert took_s < 60
    assert "held_unknown" in json.dumps(shell.entries()[-1])


def test_three_restarts_do_not_end_a_lease_of_two_minutes(make_server, tmp_path):
    clock = SteppingClock(tmp_path)
    server = make_server(env=clock.env)
    held = server.request("POST", "/v1/fences", begin_body("a", {}, lease="120s"))[2]
    for number in range(3):
        server.stop()
        clock.step(+50)
        server.restart()
        server.request("POST", "/v1/fences", begin_body(f"b{number}", {}))  # commits the time
    time.sleep(1.2)  # leases are swept once a second
    operation = server.request("GET", f"/v1/operations/{held['operation_id']}")[2]
    assert operation["status"] == "in_progress"
    sealed = server.request("POST", f"/v1/fences/{held['operation_id']}/seal",
        {"fence": held["fence"], "status": "executed"})
    assert sealed[0] == 200


def test_a_wall_clock_ahead_changes_neither_retry_after_nor_the_age_of_the_unknown(make_server,
        tmp_path):
    clock = SteppingClock(tmp_path)
    server = make_server(env=clock.env)
    held = server.request("POST", "/v1/fences", begin_body("a", {}, lease="60s"))[2]
    lost = server.request("POST", "/v1/fences", begin_body("b", {}, lease="300s"))[2]
    assert server.request("POST", f"/v1/fences/{lost['operation_id']}/unknown",
        {"fence": lost["fence"], "reason": "nobody knows"})[0] == 200
    clock.step(MINUTES_S)
    status, fields, again = server.request("POST", "/v1/fences", begin_body("a", {}))
    assert (status, again["retry_after_ms"], fields["Retry-After"]) == (202, 1000, "1")
    resolve = f"/v1/operations/{held['operation_id']}/resolve"
    status, _, refused = server.request("POST", resolve,
        {"status": "failed", "reason": "impatient"})
    assert status == 409 and 0 < refused["retry_after_ms"] <= 60000
    time.sleep(1.2)  # the figure is a little late
    age_s = [float(line.split()[1]) for line in server.request("GET", "/metrics")[2].splitlines()
        if line.startswith("once_unknown_oldest_seconds ")]
    assert len(age_s) == 1 and age_s[0] < MINUTES_S / 2


def test_duplicates_are_limited_by_time_that_passed(make_server, tmp_path):
    """A clock ahead does not let a flood in, and one that went back does not keep everybody out."""
    clock = SteppingClock(tmp_path)
    server = make_server(env=clock.env,
        config="limits: {duplicate_rate: 1, duplicate_burst: 40}\n")

    def ask():
        return server.request("POST", "/v1/fences", begin_body("a", {}, lease="300s"))[0]

    until(lambda: ask() == 429, "never refused")
    began = time.monotonic()
    clock.step(MINUTES_S)
    taken = [ask() for _ in range(20)].count(202)
    assert taken <= time.monotonic() - began + 1
    clock.step(-2 * MINUTES_S)
    until(lambda: ask() == 202, "nobody is let in any more")


@pytest.mark.parametrize("total_s, asleep_s", [(50, MINUTES_S), (20, 22)])
def test_what_waited_while_the_machine_slept_past_its_lease_is_not_sent(origin, make_gateway,
        tmp_path, total_s, asleep_s):
    """Timers stand still while a machine sleeps and leases do not: by now the operation may be
    unknown, freed by an operator and granted to somebody else (P1). The shorter sleep ends before
    others would take the gateway for gone: there the call's own time is what is over."""
    clock = SteppingClock(tmp_path)
    gateway = make_gateway(env=clock.env, gateway={"connections_max": 1}, more={"loops": 1},
        routes=[{"match": "POST /pay",
            "timeout": dict.fromkeys(("connect", "first_byte", "total"), f"{total_s}s")}])
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first = pool.submit(gateway.post, "first", do="hold=1")
        origin.wait_for("first")
        waiting = pool.submit(gateway.post, "waiting")
        gateway.wait_status("waiting", "in_progress")
        clock.sleep(asleep_s)
        origin.let_go("first")
        assert first.result().status == 200
        answer = waiting.result()
    assert (origin.effects["waiting"], answer.status) == (0, 502)
    assert (answer.json["effect"], answer.json["retry"]) == ("no", "safe")
    assert gateway.post("waiting").status == 200
    assert (origin.effects["first"], origin.effects["waiting"]) == (1, 1)


@pytest.fixture
def provider():
    made = Provider(keeps=False)
    yield made
    made.end()


def stood_still(server, id):
    """The attempts that were given back without anything sent."""
    page = server.request("GET", f"/v1/evidence?operation_id={id}")[2]
    return [entry for entry in page["entries"] if "stood still" in json.dumps(entry)]


def test_an_effect_claimed_before_a_sleep_past_its_lease_is_not_sent(make_server, provider,
        tmp_path):
    """By now the claim may be unknown, settled by an operator and claimed by somebody else (P1)."""
    clock = SteppingClock(tmp_path)
    server = make_server(env=clock.env, config=f"""
connectors: {{pay: {{url: "{provider.url}", timeout: {{total: 6s}}}}}}
effects:
  pay.capture: {{connector: pay, retry: {{backoff: 10ms}},
    request: {{path: /charge, headers: {{X-Key: "{{idempotency_key}}"}}}}}}
""")
    provider.script("k", "503")
    provider.retry_after = "2"  # time to hold the next claim
    effect_id = server.request("POST", "/v1/effects", {"effect_type": "pay.capture",
        "idempotency_key": "k", "target": {}, "payload": {}})[2]["effect_id"]

    def show():
        return server.request("GET", f"/v1/effects/{effect_id}")[2]

    until(lambda: len(provider.of("k")) == 1 and show()["status"] == "pending", "not refused")
    with clock.held() as is_held:
        until(is_held, "nothing was claimed")
        clock.sleep(MINUTES_S)
    until(lambda: show()["status"] == "acknowledged", "not sent again")
    assert (len(provider.of("k")), show()["attempt"]) == (2, 3)  # the second one was not sent
    assert provider.effects == {"k": 1} and len(stood_still(server, effect_id)) == 1


def test_an_effect_claimed_before_a_sleep_past_its_deadline_is_not_sent(make_server, provider,
        tmp_path):
    """What is given back unsent is planned anew, and that must not look like a person's plan."""
    clock = SteppingClock(tmp_path)
    server = make_server(env=clock.env, config=f"""
connectors: {{pay: {{url: "{provider.url}", timeout: {{total: 6s}}}}}}
effects:
  pay.capture: {{connector: pay, retry: {{backoff: 10ms, deadline: 1m}},
    request: {{path: /charge, headers: {{X-Key: "{{idempotency_key}}"}}}}}}
""")
    provider.script("k", "503")
    provider.retry_after = "2"  # time to hold the next claim
    effect_id = server.request("POST", "/v1/effects", {"effect_type": "pay.capture",
        "idempotency_key": "k", "target": {}, "payload": {}})[2]["effect_id"]

    def show():
        return server.request("GET", f"/v1/effects/{effect_id}")[2]

    until(lambda: len(provider.of("k")) == 1 and show()["status"] == "pending", "not refused")
    with clock.held() as is_held:
        until(is_held, "nothing was claimed")
        clock.sleep(MINUTES_S)
    until(lambda: show()["status"] == "dead_letter", "not given up")
    assert len(provider.of("k")) == 1 and "stood still" in show()["reason"]
    assert server.request("POST", f"/v1/effects/{effect_id}/retry", {"reason": "r"})[0] == 200
    until(lambda: show()["status"] == "acknowledged", "not sent for a person")
    assert provider.effects == {"k": 1}


def test_a_command_granted_before_a_sleep_past_its_lease_is_not_run(make_server, tmp_path):
    clock, shop = SteppingClock(tmp_path), Shop()
    server = make_server(env=clock.env, config=shop.config())
    with contextlib.closing(shop), concurrent.futures.ThreadPoolExecutor(1) as pool:
        with clock.held() as is_held:
            asked = pool.submit(server.request, "POST", "/v1/commands", envelope("cancel"))
            until(is_held, "nothing was granted")
            clock.sleep(MINUTES_S)
        command_id = asked.result()[2]["command_id"]
        until(lambda: server.request("GET", f"/v1/commands/{command_id}")[2]["status"] ==
            "executed", "not run again")
        assert [headers["Once-Attempt"] for _, headers, _ in shop.seen] == ["2"]
        assert len(stood_still(server, command_id)) == 1


def test_a_sleep_of_the_machine_is_no_quiet_time(origin, make_gateway, tmp_path):
    """An upstream on the same machine slept as well: it still has the request, and says that
    nothing was executed until it goes on with it (P5)."""
    clock = SteppingClock(tmp_path)
    gateway = make_gateway(env=clock.env, routes=[{"match": "POST /pay",
        "on_unknown": "reconcile", "wait": "0s", "reconcile": {**RECONCILE, "quiet": "8s"},
        "timeout": {"connect": "2s", "first_byte": "300ms", "total": "500ms"}}])
    origin.does["a"] = lambda one: "before_ms=3000" if one is origin.by_key["a"][0] else ""
    assert gateway.post("a").status == 504
    wait_questions(origin, "a", 1)
    clock.sleep(MINUTES_S)
    end = time.monotonic() + 30
    while (answer := gateway.post("a")).status != 200:
        assert time.monotonic() < end, answer
        time.sleep(0.2)
    assert answer.is_replay and origin.effects["a"] == 1


QUIET = 'reconcile: {get: "/by-key/{key}", executed: [200], not_executed: [404], quiet: 8s}'


def put_effect(server):
    assert server.request("POST", "/v1/effects", {"effect_type": "pay.capture",
        "idempotency_key": "k", "target": {}, "payload": {}})[0] == 202


def put_command(server):
    command = envelope("pay", idempotency_key="k")
    assert server.request("POST", "/v1/commands", command)[0] == 504  # nobody knows


def put_delivery(server):
    assert send(server, "s", "stripe", "k")[0] == 200


WORK = {
    "effect": (put_effect, """
connectors:
  pay: {{url: "{url}", timeout: {{total: 500ms}},
    lookup: {{get: "/by-key/{{idempotency_key}}", executed: 200, not_executed: 404, quiet: 8s}}}}
effects:
  pay.capture: {{connector: pay, retry: {{backoff: 10ms}},
    request: {{path: /charge, headers: {{X-Key: "{{idempotency_key}}"}}}}}}
"""),
    "command": (put_command, """
commands:
  order.pay: {{class: I1, on_unknown: reconcile, timeout: 500ms, handler: "{url}/pay",
    retry: {{backoff: 10ms}}, %s}}
""" % QUIET.replace("{", "{{").replace("}", "}}")),
    "delivery": (put_delivery, None)}


@pytest.mark.parametrize("what", WORK)
@pytest.mark.parametrize("steps", ["the wall clock", "a sleep"])
def test_no_step_of_time_is_quiet_time_of_what_once_sends_by_itself(make_server, provider, secret,
        tmp_path, what, steps):
    """As for the gateway, above: a step of less than a minute, which the store's time follows, and
    a sleep end no quiet time. The provider still has the request (P5)."""
    clock = SteppingClock(tmp_path)
    put, config = WORK[what]
    config = "inbox:\n  sources:\n" + source_yaml("s", "stripe", provider, secret, QUIET +
        "\non_unknown: reconcile\ntimeout: {first_byte: 500ms, total: 500ms}\n"
        "retry: {backoff: 10ms}") if config is None else config.format(url=provider.url)
    server = make_server(env=clock.env, config=config)
    provider.slow_s = 4  # quiet is longer
    provider.script("k", "slow")
    put(server)
    until(lambda: provider.questions > 0, "nobody asked")
    if what == "effect":
        server.stop()  # a process that stays rests until the end of the quiet time, by its loop
    if steps == "a sleep":
        clock.sleep(MINUTES_S)
    else:
        clock.step(50)
    if what == "effect":
        server.restart()
    until(lambda: "k" in provider.effects, "no request took effect")
    time.sleep(0.5)  # a second one that is under way would be counted
    assert provider.effects == {"k": 1} and len(provider.of("k")) == 1


# --- Steps at random, all the time ---


@contextlib.contextmanager
def restless(clock, seed):
    """Every few milliseconds a different time, up to ten minutes off. Never ahead by less than two
    minutes: the engine follows steps of a minute, which would end a short lease early."""
    rng, over = random.Random(seed), threading.Event()

    def steps():
        while not over.wait(rng.uniform(0.01, 0.1)):
            clock.set(rng.choice([rng.uniform(-MINUTES_S, -5), rng.uniform(120, MINUTES_S)]))

    thread = threading.Thread(target=steps)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def timed(call):
    """(what it gave, seconds)"""
    began = time.monotonic()
    return call(), time.monotonic() - began


RECONCILE = {"get": "/by-key/{key}", "executed": [200], "not_executed": [404], "quiet": "5s",
    "every": "200ms", "every_max": "400ms"}
# What the upstream does with the first request of a key. A slow one is given up by the gateway
# after half a second, and takes effect long after; until then the upstream knows nothing of it.
# Quiet leaves it seconds for that: a busy machine delays an upstream too.
FIRST = {"plain": "", "slow": "before_ms=1300", "lost": "fault=reset_after",
    "held": "after_ms=250", "refused": "fault=reset_before"}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_gateway_makes_one_effect_for_each_key_and_ends_waits_in_time(origin, make_gateway,
        tmp_path, seed):
    clock = SteppingClock(tmp_path)
    gateway = make_gateway(env=clock.env, limits=DUPLICATES_FREE, routes=[{"match": "POST /pay",
        "on_unknown": "reconcile", "reconcile": RECONCILE, "wait": "300ms",
        "timeout": {"connect": "2s", "first_byte": "500ms", "total": "700ms"}}])
    keys = {f"{name}{number}": do for name, do in FIRST.items() for number in range(2)}
    origin.does.update({key: lambda one, do=do: do if one is origin.by_key[one.key][0] else ""
        for key, do in keys.items()})
    late = []

    def client(key):
        """Asks again until there is an answer; the statuses it was given."""
        statuses, until = [], time.monotonic() + 90
        while not statuses or statuses[-1] != 200:
            assert time.monotonic() < until, f"{key} never ended: {statuses}"
            answer, took_s = timed(lambda: gateway.post(key, headers={"Prefer": "wait=1"}))
            statuses.append(answer.status)
            late.extend([(key, answer, took_s)] if took_s > 30 else [])
            time.sleep(0.1)
        return statuses

    with restless(clock, seed), concurrent.futures.ThreadPoolExecutor(2 * len(keys)) as pool:
        ends = list(pool.map(client, [*keys, *keys]))
        time.sleep(2)  # a late effect would be counted
    assert len(ends) == 2 * len(keys) and not late
    assert {key: origin.effects[key] for key in keys} == dict.fromkeys(keys, 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_server_ends_leases_and_waits_in_time(make_server, tmp_path, seed):
    clock = SteppingClock(tmp_path)
    server = make_server(env=clock.env, config="limits: {duplicate_rate: 0}\n")

    def ask(key, **more):
        return server.request("POST", "/v1/fences", begin_body(key, {}, **more))[2]

    def status(held):
        return server.request("GET", f"/v1/operations/{held['operation_id']}")[2]["status"]

    with restless(clock, seed):
        began = time.monotonic()
        short, long, kept = (ask(key, lease=lease) for key, lease in
            [("short", "1200ms"), ("long", "100s"), ("kept", f"{KEPT_S}s")])
        for wait in (400, 900):
            again, took_s = timed(lambda: ask("long", wait=f"{wait}ms"))
            assert again["decision"] == "in_progress" and wait / 1000 <= took_s < 30
            server.request("POST", f"/v1/fences/{kept['operation_id']}/renew",
                {"fence": kept["fence"], "lease": "60s"})
            seen = status(short)
            if time.monotonic() - began < 1.2:
                assert seen == "in_progress"
        until = began + 60
        while status(short) != "unknown":
            assert time.monotonic() < until
            time.sleep(0.02)
        assert time.monotonic() - began >= 1.2
        time.sleep(max(0, began + KEPT_S + 1.2 - time.monotonic()))  # leases are swept each second
        assert (status(long), status(kept)) == ("in_progress", "in_progress")
        for held in (long, kept):
            assert server.request("POST", f"/v1/fences/{held['operation_id']}/seal",
                {"fence": held["fence"], "status": "executed", "ttl": "4s"})[0] == 200
        assert ask("long")["decision"] == "duplicate_replayed"
        sealed_at, until = time.monotonic(), time.monotonic() + 60
        while ask("long")["decision"] != "first_seen":  # until its window of four seconds is over
            assert time.monotonic() < until
            time.sleep(0.1)
        assert time.monotonic() - sealed_at > 2


@pytest.mark.parametrize("seed", SEEDS)
def test_once_run_runs_each_command_once(tmp_path, seed):
    shell = Shell(tmp_path)
    assert shell.run("run", "-k", "first", "--", "true")[0] == 0  # begins at the true time
    with restless(shell.clock, seed):
        calls = [shell.start("run", "-k", key, "--wait", "20s", "--", "sh", "-c",
            f"echo ran >> {key}; sleep 0.4; echo {key}") for key in "abc" for _ in range(3)]
        ends = [(call.communicate(timeout=60)[0], call.returncode) for call in calls]
    assert ends == [(f"{key}\n", 0) for key in "abc" for _ in range(3)]
    assert [(tmp_path / key).read_text() for key in "abc"] == ["ran\n"] * 3


class Gate:
    """In front of a port: connections are accepted at once, and passed on when it is opened."""

    def __init__(self, port):
        self.port, self.open, self.knocked = port, threading.Event(), threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client = self.listener.accept()[0]
                self.knocked.set()
                threading.Thread(target=self.join, args=(client,), daemon=True).start()

    def join(self, client):
        self.open.wait()
        server = socket.create_connection(("127.0.0.1", self.port))
        threading.Thread(target=self.pump, args=(client, server), daemon=True).start()
        self.pump(server, client)

    def pump(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.open.set()
        self.listener.close()


def test_an_effect_that_waited_for_its_broker_past_its_lease_is_not_published(make_server,
        tmp_path):
    clock = SteppingClock(tmp_path)
    with servers.Redis() as redis, contextlib.closing(Gate(redis.port)) as gate:
        with socket.create_connection(("127.0.0.1", redis.port)) as wire:
            wire.sendall(b"CONFIG SET requirepass secret\r\n")  # so that connecting takes an answer
            assert wire.recv(100) == b"+OK\r\n"
        server = make_server(env=clock.env, config=f"""
connectors: {{bus: {{protocol: redis, timeout: {{total: 6s}},
  url: "redis://:secret@127.0.0.1:{gate.listener.getsockname()[1]}/out"}}}}
effects: {{order.paid: {{connector: bus, retry: {{backoff: 10ms}}}}}}
""")
        effect_id = server.request("POST", "/v1/effects", {"effect_type": "order.paid",
            "idempotency_key": "k", "target": {}, "payload": {}})[2]["effect_id"]
        assert gate.knocked.wait(60)
        clock.sleep(MINUTES_S)
        gate.open.set()
        until(lambda: server.request("GET", f"/v1/effects/{effect_id}")[2]["status"]
            == "acknowledged", "not published")
        shown = server.request("GET", f"/v1/effects/{effect_id}")[2]
        entries = server.request("GET", f"/v1/evidence?operation_id={effect_id}")[2]["entries"]
        assert shown["attempt"] > 1 and not shown.get("uncertain"), shown
        assert [entry["outcome"]["reason"] for entry in entries
            if entry["type"] == "effect.retried"][:1] == [
            "waited too long for the broker; nothing was sent"], entries


def test_doctor_works_though_the_clock_is_behind_an_unknown_operation(tmp_path):
    shell = Shell(tmp_path)
    shell.run("run", "--idempotency-key", "k", "--", "sh", "-c", "kill -9 $$")
    shell.clock.step(-MINUTES_S)
    code, out, _ = shell.run("doctor")
    assert code == 0 and "1 unknown operation, the oldest for 0s" in out, out
    assert "behind the store's last entry" in out, out
