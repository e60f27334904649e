"""What the Redis store promises when its server fails, and no more (docs/stores.md)."""
import contextlib
import json
import signal
import socket
import threading
import time

import pytest

import fences
from redis_servers import (Load, RedisStoreServer, check_sealed, servers, wait_granted, with_load)
from once_server import LONG, Broken, until
from stepping_clock import SteppingClock
from test_batch import batch
from test_linearizable import judge, run_clients

pytestmark = pytest.mark.skipif(not servers.Redis.installed(), reason="there is no redis-server")


@pytest.fixture
def once(request):
    """once(url) -> `once serve` on it; all are ended."""
    made = request.node.once_servers = []

    def make(url, *options, **how):
        made.append(RedisStoreServer(url, *options, config=fences.NO_LIMITS, **how))
        return made[-1]

    yield make
    for server in made:
        server.remove()


@pytest.fixture
def redis():
    with servers.Redis() as server:
        yield server


def alive(server_list):
    return [server for server in server_list if server.process.poll() is None]


def test_a_killed_server_with_appendfsync_always_loses_nothing(redis, once):
    """P1, P2, P3: four processes under load, and nobody is restarted."""
    four = [once(redis.url) for _ in range(4)]

    def kill(_):
        for number in range(10 if LONG else 3):
            time.sleep(0.2)
            redis.kill()
            redis.start()
            wait_granted(four[0], f"after-{number}")

    loads = with_load(four, kill, each=1, least=40)
    lost, count = check_sealed(four[3], loads)
    print(f"{count} keys, {sum(load.refused for load in loads)} refused")
    assert lost == []
    assert count > 40
    assert len(alive(four)) == 4


def test_a_server_that_is_away_is_waited_for(redis, once):
    """P11: nothing is granted meanwhile, not ready, and it goes on by itself. The process had a
    commit under way when it went."""
    server = once(redis.url)
    load = Load(server, "k")
    until(lambda: len(load.sealed) > 5, "nothing is sealed")
    redis.kill()
    end = time.monotonic() + (60 if LONG else 12)
    time.sleep(0.5)
    granted = dict(load.granted)
    while time.monotonic() < end:
        assert server.process.poll() is None
        time.sleep(0.1)
    assert load.granted == granted
    redis.start()
    wait_granted(server, "after")
    lost, count = check_sealed(server, [load.end()])
    assert (lost, server.process.poll()) == ([], None)
    assert count > 5
    assert server.request("GET", "/readyz")[0] == 200


def test_a_full_server_refuses_by_name_and_loses_nothing(redis, once):
    """P12: no record is dropped, what runs can be sealed after there is room again."""
    server = once(redis.url)
    with server.wire() as wire:
        kept = [fences.begin(wire, f"k{number}", {"n": number}) for number in range(50)]
        redis.ask("CONFIG", "SET", "maxmemory", "1")
        status, _, refusal = wire.request("POST", "/v1/fences", fences.begin_body("new", {}))
        assert status in (503, 507) and refusal["effect"] == "no"
        assert "maxmemory" in refusal["detail"] and "script" not in refusal["detail"], refusal
        redis.ask("CONFIG", "SET", "maxmemory", "0")
        for number, answer in enumerate(kept):
            assert fences.begin(wire, f"k{number}", {"n": number}).decision == "in_progress"
            sealed = fences.seal(wire, answer.operation_id, answer.fence, {"n": number})
            assert sealed.decision == "sealed"
        assert fences.begin(wire, "new", {}).decision == "first_seen"
    assert server.process.poll() is None


# --- Failover by hand, to a replica that lags -----------------------------------------------------

class Switch(threading.Thread):
    """A port that leads to one server, and later to another: what a failover does to a name."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.target, self.pairs, self.is_losing = port, [], False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.start()

    def run(self):
        while True:
            try:
                client, _ = self.listener.accept()
                peer = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                if self.listener.fileno() < 0:
                    return
                client.close()
                continue
            self.pairs.append((client, peer))
            for one, other in ((client, peer), (peer, client)):
                threading.Thread(target=self.copy, args=(one, other), daemon=True).start()

    def copy(self, one, other):
        try:
            while data := one.recv(1 << 16):
                if not self.is_losing:
                    other.sendall(data)
        except OSError:
            pass
        for end in (one, other):
            try:
                end.shutdown(2)
            except OSError:
                pass

    def lead(self, port):
        self.target = port
        self.end_all()

    def lose(self):
        """Nothing arrives any more, and neither side knows it yet."""
        self.is_losing = True

    def end_all(self):
        for pair in self.pairs:
            for end in pair:
                try:
                    end.shutdown(2)
                except OSError:
                    pass

    def close(self):
        self.listener.close()


@pytest.fixture
def pair():
    """A primary, a replica that has all of it, and the way between them."""
    with servers.Redis() as primary:
        way = Switch(primary.port)
        with servers.Redis(replicaof=f"127.0.0.1 {way.port}") as replica:
            servers.wait_until(
                lambda: "master_link_status:up" in replica.cli("INFO", "replication"))
            primary.cli("SET", "probe", "1")
            servers.wait_until(lambda: replica.cli("GET", "probe") == "1")
            yield primary, replica, way
        way.close()


@pytest.mark.parametrize("confirms", [False, True])
def test_a_failover_without_wait_loses_what_lagged_and_the_process_stops(pair, once, confirms):
    """What the table says for wait=0: the loss is there, and it is noticed (P11). It is the same
    with wait=1 if a different replica has confirmed."""
    primary, replica, way = pair
    switch = Switch(primary.port)
    with contextlib.ExitStack() as more:
        if confirms:
            more.enter_context(servers.Redis(replicaof=f"127.0.0.1 {primary.port}"))
            servers.wait_until(
                lambda: primary.cli("INFO", "replication").count("state=online") == 2)
        lose_what_lags(replica, way, primary, switch, once, "?wait=1" if confirms else "")
    switch.close()


def stops_without_a_grant(server, key):
    """The process notices that its chain does not go on, before it grants anything."""
    end = time.monotonic() + 60
    while server.process.poll() is None and time.monotonic() < end:
        try:
            with server.wire() as wire:
                again = wire.request("POST", "/v1/fences", fences.begin_body(key, {}))
                assert again[0] != 201
        except (Broken, OSError):
            pass
        time.sleep(0.05)
    assert server.process.poll() == 70
    assert "had acknowledged" in server.stderr()


def lose_what_lags(replica, way, primary, switch, once, options):
    server = once(f"redis://127.0.0.1:{switch.port}{options}")
    with server.wire() as wire:
        fences.begin(wire, "early", {})
        servers.wait_until(lambda: replica.ask("ZCARD", "{once}:keys") == b":1")
        way.lose()
        answer = fences.begin(wire, "late", {})  # acknowledged, and only the primary has it
        assert answer.decision == "first_seen"
    primary.kill()
    replica.cli("REPLICAOF", "NO", "ONE")
    switch.lead(replica.port)
    stops_without_a_grant(server, "late")  # never a second grant by the process that knows
    fresh = once(f"redis://127.0.0.1:{switch.port}")  # one that does not know grants it again …
    with fresh.wire() as wire:
        assert fences.begin(wire, "late", {}).decision == "first_seen"
        assert fences.begin(wire, "early", {}).decision in ("in_progress", "held_unknown")


def test_a_failover_with_wait_loses_nothing_that_was_answered(pair, once):
    """What the table says for wait=1: what the replica lacks was never answered."""
    primary, replica, way = pair
    switch = Switch(primary.port)
    server = once(f"redis://127.0.0.1:{switch.port}?wait=1&wait_timeout=300ms")
    load = Load(server, "k")
    until(lambda: len(load.sealed) > 5, "nothing is sealed")
    way.lose()  # from here on nothing can be answered, though the replica is connected
    time.sleep(0.1)
    answered = len(load.granted)
    time.sleep(0.5)
    assert len(load.granted) - answered <= 1  # the one that was on its way
    primary.kill()
    replica.cli("REPLICAOF", "NO", "ONE")
    switch.lead(replica.port)
    with servers.Redis(replicaof=f"127.0.0.1 {replica.port}"):  # or no commit could be answered
        wait_granted(server, "after")  # only the open commit is gone: it goes on by itself
        lost, count = check_sealed(server, [load.end()])
    assert (lost, server.process.poll()) == ([], None)
    assert count > 3
    switch.close()


def test_the_gateway_sends_nothing_before_the_replica_has_the_grant(pair, make_gateway, origin):
    """P6: with wait=1 the grant is durable when the replica has confirmed it."""
    primary, replica, _ = pair
    gateway = make_gateway(over=f"{primary.url}?wait=1&wait_timeout=60s")
    assert gateway.post("before").status == 200
    answers = []
    call = threading.Thread(target=lambda: answers.append(gateway.post("k")), daemon=True)
    replica.process.send_signal(signal.SIGSTOP)
    try:
        call.start()
        until(lambda: primary.ask("ZCARD", "{once}:keys") == b":2", "nothing is committed")
        time.sleep(0.3)  # for a gateway that would not wait
        assert origin.seen("k") == [] and call.is_alive()
    finally:
        replica.process.send_signal(signal.SIGCONT)
    call.join()
    assert answers[0].status == 200 and origin.effects["k"] == 1


def test_without_enough_replicas_a_process_is_not_ready_and_then_goes_on(pair, once):
    """P11: each commit would be refused, so nobody should send any there."""
    primary, replica, _ = pair
    server = once(f"{primary.url}?wait=1")
    assert server.request("GET", "/readyz")[0] == 200
    replica.kill()
    until(lambda: server.request("GET", "/readyz")[0] == 503, "ready without a replica")
    end = time.monotonic() + 2.5  # a beat every second while the store is away
    while time.monotonic() < end:
        assert server.request("GET", "/readyz")[0] == 503
        time.sleep(0.05)
    _, _, ready = server.request("GET", "/readyz?verbose")
    (store,) = [check for check in ready["checks"] if check["name"] == "store"]
    assert not store["ok"] and "0 of 1 replicas are connected" in store["detail"]
    servers.wait_until(lambda: "0 of 1 replicas are connected" in server.stderr())
    assert "store_back" not in server.stderr()
    replica.start()
    until(lambda: server.request("GET", "/readyz")[0] == 200, "not ready with its replica")
    wait_granted(server, "after")


def test_while_a_silent_replica_lacks_a_commit_all_else_is_refused_at_once(pair, once):
    """P14: a request does not wait for the replicas again in each call that its batch makes."""
    primary, replica, _ = pair
    server = once(f"{primary.url}?wait=1&wait_timeout=8s")
    replica.process.send_signal(signal.SIGSTOP)
    try:
        status, _, said = server.request("POST", "/v1/fences", fences.begin_body("k", {}))
        assert (status, said["code"]) == (500, "commit_unknown")
        for number in range(3):
            started = time.monotonic()
            status, _, said = server.request("POST", "/v1/fences",
                fences.begin_body(f"other-{number}", {}))
            assert (status, said["effect"], said["retry"]) == (503, "no", "safe")
            assert "0 of 1 replicas" in said["detail"]
            assert time.monotonic() - started < 8
    finally:
        replica.process.send_signal(signal.SIGCONT)
    wait_granted(server, "after")
    with server.wire() as wire:  # it had happened
        assert fences.begin(wire, "k", {}).decision in ("in_progress", "held_unknown")


class Cutter(Switch):
    """A way to a server that ends at the next commit, and leads nowhere until it is mended."""

    def __init__(self, port):
        super().__init__(port)
        self.armed, self.where = None, port

    def cut(self, arrives):
        self.armed = "arrives" if arrives else "lost"

    def mend(self):
        self.target = self.where

    def copy(self, one, other):
        is_request = any(one is client for client, _ in self.pairs)
        try:
            while data := one.recv(1 << 16):
                if is_request and self.armed is not None and b'"decision"' in data:
                    armed, self.armed, self.target = self.armed, None, 1  # nobody listens there
                    if armed == "arrives":
                        other.sendall(data)
                        time.sleep(0.2)  # the server has done it; its answer goes nowhere
                    self.end_all()
                    return
                if self.target != 1:
                    other.sendall(data)
        except OSError:
            pass
        self.end_all()


def test_a_commit_of_unknown_fate_concerns_its_own_calls(redis, once):
    """P5, P11: its calls are told that nobody knows, everything else is refused, and when the
    server can be asked the process goes on by itself with the truth."""
    answers = {}

    def one(arrives, way, server):
        with server.wire() as wire:
            assert fences.begin(wire, f"before-{arrives}", {}).decision == "first_seen"
        way.cut(arrives)
        with server.wire() as wire:
            answers[arrives] = wire.request("POST", "/v1/fences",
                fences.begin_body(f"key-{arrives}", {}, lease="600s"))

    ways = {arrives: Cutter(redis.port) for arrives in (True, False)}
    made = {arrives: once(f"redis://127.0.0.1:{way.port}") for arrives, way in ways.items()}
    threads = [threading.Thread(target=one, args=(arrives, ways[arrives], made[arrives]))
        for arrives in ways]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for arrives, server in made.items():
        status, _, said = answers[arrives]
        assert (status, said["code"], said["effect"]) == (500, "commit_unknown", "unknown")
        status, _, said = server.request("POST", "/v1/fences", fences.begin_body("other", {}))
        assert (status, said["effect"]) == (503, "no")
        assert server.request("GET", "/readyz")[0] == 503
        ways[arrives].mend()
        wait_granted(server, f"after-{arrives}")
        with server.wire() as wire:  # nothing was guessed
            again = fences.begin(wire, f"key-{arrives}", {})
            assert again.decision == ("in_progress" if arrives else "first_seen")
        until(lambda one=server: one.request("GET", "/readyz")[0] == 200, "not ready")
        assert server.process.poll() is None
        ways[arrives].close()
    checked = made[True].cli("verify", "--redecide", "--store", redis.url)
    assert checked.returncode == 0, checked.stdout + checked.stderr


# --- Evidence that somebody changed ---------------------------------------------------------------

# The stream written again, with an entry changed or dropped. Evidence 1 and 2 are one process's.
WRITE_AGAIN = """
local all, evidence, count = redis.call('XRANGE', KEYS[1], '-', '+'), {}, 0
local function value_at(fields, name)
    for at = 1, #fields, 2 do
        if fields[at] == name then return at + 1 end
    end
end
for _, one in ipairs(all) do
    if one[2][value_at(one[2], 'k')] == '1' then evidence[#evidence + 1] = one end
end
local first, second = evidence[1], evidence[2]
assert(first[2][value_at(first[2], 'c')] == second[2][value_at(second[2], 'c')])
local bytes, tenant = value_at(first[2], 'b'), value_at(first[2], 't')
%s
redis.call('DEL', KEYS[1])
for _, one in ipairs(all) do
    if one[2] then redis.call('XADD', KEYS[1], one[1], unpack(one[2])) end
end
return #evidence"""
DAMAGES = {
    "nothing": "",
    "a changed byte": "first[2][bytes] = string.gsub(first[2][bytes], 'first_seen', 'first_seem')",
    "a dropped entry": "first[2] = nil",
    "a dropped last entry": "second[2] = nil",
    "two entries swapped": "first[2], second[2] = second[2], first[2]",
    "an entry twice": "second[2] = first[2]",
    "an entry of a different tenant": "first[2][tenant] = 'other'",
}


@pytest.mark.parametrize("what", DAMAGES)
def test_damage_is_found(redis, once, what):
    """P10: `once verify` finds evidence that is not as it was committed."""
    server = once(redis.url)
    with server.wire() as wire:
        for number in range(3):
            grant = fences.begin(wire, f"k{number}", {})
            fences.seal(wire, grant.operation_id, grant.fence, {"made": number})
    server.stop()
    assert redis.cli("EVAL", WRITE_AGAIN % DAMAGES[what], 1, "{once}:entries") == "6"
    done = server.cli("verify", "--json", "--store", redis.url)
    found = json.loads(done.stdout)
    assert found["ok"] == (done.returncode == 0) == (what == "nothing"), done.stdout


@pytest.mark.parametrize("damage", ["", "first_seen", "default"])
def test_damage_in_an_item_of_several_entries_is_found(redis, once, damage):
    """Entries of one commit share an item of the stream: in their text, or in their tenant."""
    server = once(redis.url)
    batch(server, [{"scope": "s", "key": f"k{number}", "payload": {}} for number in range(3)])
    server.stop()
    write_again = """
local all = redis.call('XRANGE', KEYS[1], '-', '+')
redis.call('DEL', KEYS[1])
for _, one in ipairs(all) do
    local fields, damage = one[2], ARGV[1]
    if fields[3] == 'n' and #damage > 0 then
        local at = string.find(fields[12], damage, 1, true)
        fields[12] = string.sub(fields[12], 1, at) .. 'X' .. string.sub(fields[12], at + 2)
    end
    redis.call('XADD', KEYS[1], one[1], unpack(fields))
end
return #all"""
    assert int(redis.cli("EVAL", write_again, 1, "{once}:entries", damage)) < 3
    done = server.cli("verify", "--json", "--store", redis.url)
    assert json.loads(done.stdout)["ok"] == (done.returncode == 0) == (damage == ""), done.stdout


# Writes all records as format 2 did: a hash each, with the operation id, fingerprint and tenant as
# fields.
AS_BEFORE = """
local hashes = redis.call('ZRANGE', KEYS[1], 0, -1)
for _, hash in ipairs(hashes) do
    local key = string.sub(KEYS[1], 1, -5) .. 'r:' .. hash
    local text = redis.call('GET', key)
    local m, r, at = string.match(text, '^(%d+) (%d+) ()')
    local record = string.sub(text, at + m, at + m + r - 1)
    local numbers, rest = string.match(text, '^(' .. string.rep('%d+ ', 9) .. ')()', at)
    redis.call('DEL', key)
    redis.call('HSET', key, 'm', string.sub(numbers, 1, -2), 'r', record,
        'i', string.sub(text, rest, rest + 15), 'f', string.sub(record, 53, 84),
        't', string.sub(text, rest + 16, at + m - 1), 'q', string.sub(text, at + m + r))
end
return #hashes"""


def check_request_kept(wire, key):
    """Its first request was {"n": …}: a conflict says how a different one differs from it."""
    status, _, problem = wire.request("POST", "/v1/fences", fences.begin_body(key, {"other": 1}))
    assert (status, problem["code"]) == (409, "idempotency_conflict"), problem
    assert {(one["op"], one["path"]) for one in problem["diff"]} == {("remove", "/n"),
        ("add", "/other")}


def record_types(redis):
    return redis.cli("EVAL", """local all = {}
for _, key in ipairs(redis.call('KEYS', '{once}:r:*')) do
    all[#all + 1] = redis.call('TYPE', key).ok
end
table.sort(all)
return table.concat(all, ' ')""", 0)


@pytest.mark.parametrize("before", ["1", "2"])
def test_a_store_of_an_earlier_format_is_taken_over_and_earlier_versions_keep_out(redis, once,
        before):
    """Its records are read as they are, and written anew when they change. In format 1 an item of
    the stream has one entry. A later format is refused."""
    server = once(redis.url)
    with server.wire() as wire:
        grants = [fences.begin(wire, f"k{number}", {"n": number}) for number in range(4)]
    server.stop()
    assert redis.cli("EVAL", AS_BEFORE, 1, "{once}:keys") == "4"
    redis.ask("HSET", "{once}:store", "format", before)
    assert server.cli("verify", "--redecide", "--store", redis.url).returncode == 0
    assert redis.cli("HGET", "{once}:store", "format") == before  # a reader changes nothing
    assert server.cli("ls", "--store", redis.url, "--tenant", "default").stdout.count("k") >= 4
    server = once(redis.url)
    assert redis.cli("HGET", "{once}:store", "format") == "4"
    with server.wire() as wire:
        check_request_kept(wire, "k0")
        assert fences.begin(wire, "k1", {"n": 1}).decision == "in_progress"
        for number, grant in enumerate(grants[:3]):
            assert fences.get(wire, grant.operation_id).fence == grant.fence
            assert fences.seal(wire, grant.operation_id, grant.fence, {"o": number}).decision \
                == "sealed"
            assert json.loads(fences.begin(wire, f"k{number}", {"n": number}).outcome) \
                == {"o": number}
            check_request_kept(wire, f"k{number}")
    fields = redis.cli("EVAL", """local all = {}
for _, hash in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    local names = redis.call('HKEYS', string.sub(KEYS[1], 1, -5) .. 'r:' .. hash)
    table.sort(names)
    all[#all + 1] = table.concat(names)
end
table.sort(all)
return table.concat(all, ' ')""", 1, "{once}:keys")
    assert fields == "dmoqr dmoqr dmoqr fimqrt"  # one has not changed
    batch(server, [{"scope": "s", "key": f"new{number}", "payload": {}} for number in range(3)])
    server.stop()
    assert server.cli("verify", "--redecide", "--store", redis.url).returncode == 0
    redis.ask("HSET", "{once}:store", "format", "5")
    done = server.cli("verify", "--store", redis.url)
    assert done.returncode != 0 and "knows formats 1 to 4" in done.stderr, done


def test_a_process_that_knows_only_an_earlier_format_stops(redis, once):
    """It would not find what a later version writes: the one that takes the store over ends it."""
    old = once(redis.url)
    with old.wire() as wire:
        grant = fences.begin(wire, "k", {})
    redis.ask("HSET", "{once}:store", "format", "3")
    new = once(redis.url)
    stops_without_a_grant(old, "other")
    assert redis.cli("HGET", "{once}:store", "format") == "4"
    with new.wire() as wire:
        assert fences.seal(wire, grant.operation_id, grant.fence, {}).decision == "sealed"
    new.stop()
    again = once(redis.url)  # of the same format: nobody is ended
    one_more = once(redis.url)
    with again.wire() as wire:
        assert fences.begin(wire, "other", {}).decision == "first_seen"
    one_more.stop()
    again.stop()
    assert again.cli("verify", "--redecide", "--store", redis.url).returncode == 0


def test_a_new_record_keeps_its_request_when_it_changes(redis, once):
    """It is a string until its first change, which may be a duplicate or a seal."""
    server = once(redis.url)
    with server.wire() as wire:
        grants = [fences.begin(wire, f"k{number}", {"n": number}) for number in range(2)]
        assert record_types(redis) == "string string"
        check_request_kept(wire, "k0")
        assert fences.begin(wire, "k0", {"n": 0}).decision == "in_progress"
        assert record_types(redis) == "hash string"
        for number, grant in enumerate(grants):
            assert fences.seal(wire, grant.operation_id, grant.fence, {}).decision == "sealed"
            check_request_kept(wire, f"k{number}")
    server.stop()
    assert server.cli("verify", "--redecide", "--store", redis.url).returncode == 0


# --- What weakens a promise is said ---------------------------------------------------------------

def doctor(server, url):
    ran = server.cli("doctor", "--store", url)
    return ran.stdout + ran.stderr


@pytest.mark.parametrize("words, replicas, options, said", [
    ("CONFIG SET appendonly no", 0, "", "appendonly is no"),
    ("CONFIG SET appendfsync no", 0, "", "appendfsync is no: a crash of the server's machine loses"
        " about half a minute"),
    ("ACL SETUSER default -config", 0, "", "appendonly or appendfsync cannot be read"),
    ("PING", 1, "", "1 replica and no wait= in the URL"),
    ("PING", 1, "?wait=2", "wait=2, and 1 replica is connected")])
def test_every_weak_setting_is_named(once, words, replicas, options, said):
    """In the log, to /readyz?verbose and by `once doctor`."""
    with servers.Redis() as redis, contextlib.ExitStack() as more:
        redis.cli(*words.split())
        for _ in range(replicas):
            replica = more.enter_context(servers.Redis(replicaof=f"127.0.0.1 {redis.port}"))
            servers.wait_until(lambda: "slave0:" in redis.cli("INFO", "replication")
                and "master_link_status:up" in replica.cli("INFO", "replication"))
        server = once(redis.url + options, may_commit="wait=" not in options)
        _, _, ready = server.request("GET", "/readyz?verbose")
        cautions = [one["detail"] for one in ready["checks"] if one["name"] == "store_caution"]
        assert len(cautions) == 1 and said in cautions[0]
        servers.wait_until(lambda: said in server.stderr())
        assert f"WARN  durability   {said}" in doctor(server, redis.url + options)


def test_weak_settings_are_named_and_the_password_is_not(once):
    with servers.Redis(appendfsync="everysec", requirepass="sekret") as redis:
        url = f"redis://:sekret@127.0.0.1:{redis.port}/0"
        server = once(url)
        _, _, ready = server.request("GET", "/readyz?verbose")
        said = [check["detail"] for check in ready["checks"] if check["name"] == "store_caution"]
        assert len(said) == 1 and "appendfsync is everysec" in said[0]
        assert all(check["ok"] for check in ready["checks"])
        servers.wait_until(lambda: '"store_caution"' in server.stderr())  # it follows the lines
        checked = doctor(server, url)
        assert "WARN  durability   appendfsync is everysec" in checked
        assert "PASS  processes    1 write to it now; " in checked
        for text in (str(ready), server.stderr(), checked, "\n".join(server.lines)):
            assert "sekret" not in text
            assert "127.0.0.1" in text


def test_strong_settings_are_not_warned_about(redis, once):
    server = once(redis.url)
    _, _, ready = server.request("GET", "/readyz?verbose")
    assert "store_caution" not in [check["name"] for check in ready["checks"]]
    assert "store_caution" not in server.stderr()
    assert "WARN  durability" not in doctor(server, redis.url)


# --- What is only looked at ----------------------------------------------------------------------

# All that the store has written down happened 40 seconds earlier.
LONG_AGO = """
redis.call('HINCRBY', '{once}:time', 'mark', -40000)
for _, chain in ipairs(redis.call('ZRANGE', '{once}:chains', 0, -1)) do
    redis.call('HINCRBY', '{once}:chain:' .. chain, 'started_ms', -40000)
end
for _, one in ipairs(redis.call('ZRANGE', '{once}:beats', 0, -1)) do
    redis.call('ZINCRBY', '{once}:beats', -40000, one)
end
"""


def test_a_killed_process_counts_as_gone_though_nobody_commits_since(redis, once, tmp_path):
    """The last commit is the newest time in the store, but no clock."""
    server = once(redis.url)
    assert "PASS  clock " in doctor(server, redis.url)  # though nothing was ever committed
    with server.wire() as wire:
        fences.begin(wire, "k", {})
    server.kill9()
    copy = ("copy", "--dry-run", redis.url, f"journal:{tmp_path}/copy")
    assert "is in use" in server.cli(*copy).stderr
    redis.cli("EVAL", LONG_AGO, 0)
    checked = doctor(server, redis.url)
    assert "PASS  clock " in checked and "PASS  processes    0 write to it now" in checked
    done = server.cli(*copy)
    assert done.returncode == 0, done.stderr


# --- Four processes ------------------------------------------------------------------------------

SKEWS_S = (0, 300, -300, 30)


@pytest.fixture
def four(redis, once, tmp_path):
    """Four processes on one store, whose machines disagree about the time by minutes."""
    made = []
    for number, skew_s in enumerate(SKEWS_S):
        directory = tmp_path / str(number)
        directory.mkdir()
        clock = SteppingClock(directory)
        clock.set(skew_s)
        made.append(once(redis.url, env=clock.env))
    return made


def test_four_processes_answer_in_one_order_though_one_is_killed(four):
    """P1, P3, P4, P7: linearizable, with minutes between the processes' clocks (P8)."""
    def kill_one_after_the_other():
        for number in range(12 if LONG else 4):
            time.sleep(0.6)
            four[number % 4].kill9()
            four[number % 4].restart()

    judge(run_clients(four, "four", True, kill_one_after_the_other))


def test_leases_and_windows_go_by_one_clock(four):
    """P8: a process whose clock is minutes ahead ends no lease and forgets no key early."""
    with four[0].wire() as wire:
        lease = fences.begin(wire, "lease", {}, lease="60s")
        short = fences.begin(wire, "short", {}, lease="300ms")
        sealed = fences.begin(wire, "window", {}, ttl="60s")
        fences.seal(wire, sealed.operation_id, sealed.fence, {"n": 1})
    time.sleep(1.5)  # each has done its housekeeping
    for server in four[1:]:
        with server.wire() as wire:
            assert fences.begin(wire, "lease", {}, lease="60s").decision == "in_progress"
            assert fences.begin(wire, "window", {}).decision == "duplicate_replayed"
            assert fences.begin(wire, "short", {}).decision == "held_unknown"
    assert short.fence > lease.fence


def test_what_a_killed_process_held_is_unknown_to_the_others(redis, once):
    """Nobody takes it for free (P5). The lease ends it, or the heartbeat."""
    one, other = once(redis.url), once(redis.url)
    with one.wire() as wire:
        held = fences.begin(wire, "held", {}, lease="500ms")
    one.kill9()
    with other.wire() as wire:
        assert fences.begin(wire, "held", {}).decision in ("in_progress", "held_unknown")
        until(lambda: fences.begin(wire, "held", {}).decision == "held_unknown",
            "its lease never ends")
        took = fences.begin(wire, "held", {}, on_unknown="takeover")
        assert took.decision == "first_seen" and took.fence > held.fence
        assert fences.seal(wire, held.operation_id, held.fence, {}).decision == "stale_fence"


@pytest.mark.parametrize("policy, taken", [("allkeys-lru", False), ("volatile-lru", True)])
def test_a_policy_that_would_drop_live_records_is_refused(once, policy, taken):
    """P12: no key of a store has an expiry, so that a volatile policy drops none of them."""
    with servers.Redis(maxmemory_policy=policy) as redis:
        if taken:
            assert fences.begin(once(redis.url).wire(), "k", {}).decision == "first_seen"
            return
        with pytest.raises(AssertionError, match="maxmemory-policy"):
            once(redis.url)
        assert redis.ask("DBSIZE") == b":0"


def test_a_failover_to_a_server_that_would_drop_live_records_is_refused(pair, once):
    """P12: the policy is the new server's own. Once goes on by itself when it is changed."""
    primary, replica, _ = pair
    replica.cli("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    switch = Switch(primary.port)
    server = once(f"redis://127.0.0.1:{switch.port}?wait=1&wait_timeout=2s")
    with server.wire() as wire:
        assert fences.begin(wire, "before", {}).decision == "first_seen"
    primary.kill()
    replica.cli("REPLICAOF", "NO", "ONE")
    switch.lead(replica.port)
    with servers.Redis(replicaof=f"127.0.0.1 {replica.port}"):
        until(lambda: "allkeys-lru" in refusal(server), "the policy is not named")
        for _ in range(20):  # not only when it has just tried to connect
            assert "allkeys-lru" in refusal(server)
        _, _, ready = server.request("GET", "/readyz?verbose")
        said = [check["detail"] for check in ready["checks"] if not check["ok"]]
        assert "allkeys-lru" in said[-1]
        assert "WARN  durability   maxmemory-policy is allkeys-lru" in doctor(server, replica.url)
        assert replica.ask("ZCARD", "{once}:keys") == b":1"
        replica.cli("CONFIG", "SET", "maxmemory-policy", "noeviction")
        wait_granted(server, "after")
        with server.wire() as wire:
            assert fences.begin(wire, "before", {}).decision == "in_progress"
    switch.close()


def refusal(server):
    """Why a begin is refused."""
    status, _, document = server.request("POST", "/v1/fences", fences.begin_body("after", {}))
    assert (status, document["effect"]) == (503, "no")
    return document["detail"]
