"""`once serve` on a Redis cluster, behind Sentinels and over TLS: it goes where the store is."""
import os
import random
import time

import pytest

import fences
from redis_servers import (RedisStoreServer, check_sealed, servers, wait_granted, with_load)

pytestmark = pytest.mark.skipif(not servers.Redis.installed(), reason="there is no redis-server")
KEY = "{once}:store"


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
def cluster():
    with servers.RedisCluster() as group:
        yield group


def others(cluster, owner):
    return [server for server in cluster.servers if server is not owner]


def test_the_slot_is_moved_around_under_load(cluster, once):
    """Nobody is granted twice, nothing is lost, nobody is restarted, and calls are refused only
    while it is on its way."""
    ports = [server.port for server in cluster.servers]
    seeds = [f"redis://127.0.0.1:{port}/0" for port in random.Random(1).sample(ports, 2)]
    both = [once(url) for url in seeds]
    moves = []

    def move(_):
        for _ in range(3):
            target = others(cluster, cluster.owner(KEY))[0]
            cluster.move(KEY, target)
            moves.append(wait_granted(both[0], f"after-{len(moves)}"))

    loads = with_load(both, move, least=50)
    lost, count = check_sealed(both[1], loads)
    print(f"{count} keys, {sum(load.refused for load in loads)} refused, back after {moves}")
    assert lost == []
    assert count > 50
    assert all(server.process.poll() is None for server in both)
    check_evidence(both[0], seeds[0])


def check_evidence(server, url):
    """P10: what two processes decided has one order."""
    ran = server.cli("verify", "--redecide", "--store", url)
    assert ran.returncode == 0, (ran.stdout, ran.stderr)


def test_nothing_is_decided_while_the_slot_is_on_two_nodes(cluster, once):
    """P1, S1: half of the keys are on the other node; a record that is absent here may be there."""
    server = once(cluster.url)
    with server.wire() as wire:
        first = [fences.begin(wire, f"k{number}", {"n": number}) for number in range(20)]
    source, target = cluster.owner(KEY), others(cluster, cluster.owner(KEY))[0]
    source, slot, ids = cluster.move_begin(KEY, target)
    positions = []
    while cluster.move_keys(source, slot, target, most=3):
        entries = [one.ask("XLEN", "{once}:entries") for one in (source, target)]
        positions.append(entries)
        with server.wire() as wire:
            for number in (0, 19, 100 + len(positions)):
                assert fences.begin(wire, f"k{number}", {"n": number}) is None
    assert len(positions) > 5
    cluster.move_end(source, slot, ids, target)
    wait_granted(server, "after")
    with server.wire() as wire:
        for number, answer in enumerate(first):
            again = fences.begin(wire, f"k{number}", {"n": number})
            assert again.decision == "in_progress"
            assert fences.seal(wire, answer.operation_id, answer.fence, {}).decision == "sealed"
    assert server.process.poll() is None
    assert target.ask("SCARD", "{once}:keys").startswith(b"-")  # it is a sorted set …
    assert target.ask("ZCARD", "{once}:keys") == b":21"  # … of what was granted, and no more


def test_a_cluster_goes_on_when_the_node_with_the_store_fails(once):
    """Its replica takes over, and the process finds it by itself."""
    with servers.RedisCluster(replicas=1) as cluster:
        server = once(cluster.url + "?wait=1&wait_timeout=2s")
        with server.wire() as wire:
            first = fences.begin(wire, "before", {"n": 1})
            assert fences.seal(wire, first.operation_id, first.fence, {"n": 1}).decision == "sealed"
        old = cluster.owner(KEY)
        old.kill()
        rest = [one for one in cluster.servers if one is not old]
        servers.wait_until(lambda: any(one.ask("EXISTS", KEY) == b":1" for one in rest))
        servers.wait_until(lambda: refused_for_replicas(server))
        old.start()
        wait_granted(server, "late")
        with server.wire() as wire:
            assert fences.begin(wire, "before", {"n": 1}).decision == "duplicate_replayed"
        assert server.process.poll() is None


def refused_for_replicas(server):
    """Nothing is granted before a replica could have it (P2), and nothing happened."""
    status, _, document = server.request("POST", "/v1/fences", fences.begin_body("early", {}))
    assert (status, document["effect"]) == (503, "no")
    return "NOREPLICAS" in document["detail"]


def test_several_hosts_that_are_no_cluster_are_refused():
    """Nobody knows which of two servers has the store."""
    with servers.Redis() as one, servers.Redis() as two:
        url = f"redis://127.0.0.1:{one.port},127.0.0.1:{two.port}"
        ran = run_once(url)
        assert ran.returncode != 0
        assert "no cluster" in ran.stderr and "redis+sentinel://" in ran.stderr


def run_once(url):
    import subprocess
    from once_server import BINARY
    return subprocess.run([BINARY, "ls", "--store", url], capture_output=True, text=True,
        timeout=60, env=dict(os.environ, NO_COLOR="1"))


def test_sentinels_are_followed_to_the_new_primary(once):
    """With wait=1 and one replica nothing that was answered is lost, and nobody is restarted."""
    with servers.RedisSentinel(replicas=1) as group:
        url = group.url + "?wait=1&wait_timeout=2s"
        both = [once(url), once(url)]
        took = []

        def fail_over(_):
            # A stopped one would be the same; here its replica has all that was answered.
            answers = []  # no replica is good enough while a busy machine delays what it says
            servers.wait_until(lambda: answers.append(group.sentinels[0].cli("SENTINEL", "FAILOVER",
                group.SERVICE)) or "NOGOODSLAVE" not in answers[-1])
            assert answers[-1] == "OK"
            servers.wait_until(lambda: group.primary_port() == group.replicas[0].port)
            took.append(wait_granted(both[0], "after"))

        loads = with_load(both, fail_over)
        lost, count = check_sealed(both[1], loads)
        print(f"{count} keys, {sum(load.refused for load in loads)} refused, back after {took}")
        assert lost == []
        assert count > 20
        assert group.replicas[0].ask("ZCARD", "{once}:keys") != b":0"
        for words in (("verify", "--redecide"), ("doctor",), ("ls", "--limit", "1")):
            ran = both[0].cli(*words, "--store", url)
            assert ran.returncode == 0, (words, ran.stdout, ran.stderr)


def test_a_killed_primary_is_replaced_by_the_sentinels(once):
    """The replica that has most takes over, and the other one confirms what it writes."""
    with servers.RedisSentinel(replicas=2) as group:
        url = group.url + "?wait=1&wait_timeout=2s"
        both = [once(url), once(url)]

        def kill(_):
            group.primary.kill()
            servers.wait_until(
                lambda: group.primary_port() in [one.port for one in group.replicas])
            wait_granted(both[0], "after")

        loads = with_load(both, kill)
        lost, count = check_sealed(both[1], loads)
        assert lost == []
        assert count > 20
        assert all(server.process.poll() is None for server in both)
        check_evidence(both[0], url)


@pytest.fixture
def tls():
    with servers.RedisTls() as server:
        yield server


def test_tls_is_used_and_the_certificate_is_verified(tls, once):
    server = once(tls.url)
    assert fences.begin(server.wire(), "k", {}).decision == "first_seen"
    assert tls.ask("ZCARD", "{once}:keys") == b":1"
    path = lambda name: os.path.join(tls.directory, name)
    for url, said in (
            (f"rediss://localhost:{tls.tls_port}", "self-signed certificate"),  # not the system's
            (tls.url.replace("localhost", "127.0.0.1"), "must name the host that Once connects to"),
            (f"rediss://localhost:{tls.tls_port}?cacert={path('ca.crt')}", "no answer"),  # of ours
            (f"rediss://localhost:{tls.port}?cacert={path('ca.crt')}", "no TLS"),
            (tls.url.replace("ca.crt", "absent.crt"), "absent.crt': No such file or directory"),
            (f"redis://localhost:{tls.tls_port}", "localhost")):
        ran = run_once(url)
        assert ran.returncode != 0, url
        assert said in ran.stderr, (url, ran.stderr)


def test_a_tls_connection_that_breaks_is_made_anew(tls, once):
    server = once(tls.url)
    for number in range(3):
        wait_granted(server, f"k{number}")
        tls.ask("CLIENT", "KILL", "TYPE", "normal")
        tls.ask("CLIENT", "KILL", "TYPE", "pubsub")
    time.sleep(0.1)
    assert server.process.poll() is None
