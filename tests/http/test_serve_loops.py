"""As few loops serve as carry the load, and connections move between them while they are used."""
import json
import os
import random
import re
import resource
import ssl
import threading
import time
from pathlib import Path

import pytest

from fences import NO_LIMITS, begin_body
from once_server import LONG, until
from serve_help import GET, Server, post
from test_serve_tls import make_certificate

LOOPS = 3
CLIENTS = 6
STRESS_S = 30 if LONG else 4
LOOP = b"GET /loop HTTP/1.1\r\nHost: a\r\n\r\n"
LATER = b"GET /later HTTP/1.1\r\nHost: a\r\n\r\n"
BIG = b"GET /big?300000 HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture(scope="module")
def tls_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    make_certificate(folder, "a")
    return folder


@pytest.fixture(params=["tcp", "tls", "unix"])
def kind(request, tmp_path, tls_folder):
    """(where to listen, what a client needs)"""
    if request.param == "tcp":
        return "127.0.0.1:0", None
    if request.param == "unix":
        return f"unix:{tmp_path}/s", None
    trust = ssl.create_default_context(cafile=tls_folder / "a.pem")
    return ["cert", tls_folder / "a.pem", "key", tls_folder / "a.key", "listen",
        "127.0.0.1:0"], trust


def following(listen="127.0.0.1:0", **settings):
    return Server(listen, loops=LOOPS, follows=1, **settings)


def loop_of(client):
    client.send(LOOP)
    return int(client.answer().body)


def settle(server, serving):
    """So many serve, and it was said."""
    server.say(f"serve {serving}")
    server.wait_for(serving=serving)


def test_with_little_to_do_one_loop_serves(kind):
    listen, tls = kind
    with following(listen) as server:
        clients = [server.connect(tls=tls) for _ in range(12)]
        for _ in range(5):
            assert {loop_of(client) for client in clients} == {0}
        stats = server.stats()
        assert (stats["serving"], stats["moved"], stats["open"]) == (1, 0, 12)
        for client in clients:
            client.socket.close()


def test_connections_in_use_are_spread_evenly_and_come_back(kind):
    listen, tls = kind
    with following(listen) as server:
        idle = [server.connect(tls=tls) for _ in range(20)]
        used = [server.connect(tls=tls) for _ in range(12)]
        for client in used:
            loop_of(client)
        for serving in (2, 3, 1, 3, 2, 1):
            settle(server, serving)
            for client in used:
                loop_of(client)  # it is placed after this one
            found = [loop_of(client) for client in used]
            each = len(used) // serving
            assert sorted(found) == [loop for loop in range(serving) for _ in range(each)]
        moved = server.stats()["moved"]
        assert 0 < moved <= 6 * len(used)
        settle(server, 3)
        new = [server.connect(tls=tls) for _ in range(3)]
        assert sorted(loop_of(client) for client in new) == [0, 1, 2]
        settle(server, 1)
        assert [loop_of(client) for client in idle] == [0] * len(idle)
        assert server.stats()["open"] == len(idle) + len(used) + len(new)
        for client in idle + used + new:
            client.socket.close()
        server.wait_for(open=0, in_flight=0)


def work(server, tls, over, done, faults, seed):
    """Requests of each kind, several at once; each answer has to be the right one."""
    rng = random.Random(seed)
    try:
        with server.connect(tls=tls) as client:
            while not over.is_set():
                bodies = [f"{seed} {i} {rng.random()}".encode() * rng.choice((1, 40))
                    for i in range(rng.choice((1, 1, 1, 5)))]
                if len(bodies) == 1:  # several long ones at once, and nobody would read
                    bodies[0] *= rng.choice((1, 1, 100))
                client.send(b"".join(post("/echo", body) for body in bodies) + LATER)
                for body in bodies:
                    assert client.answer().body == body
                assert client.answer().body == b"later"
                if rng.random() < 0.1:
                    client.send(BIG)
                    assert len(client.answer().body) == 300000
                done.append(len(bodies) + 1)
    except Exception as fault:  # told by the main thread
        faults.append(repr(fault))


def run_clients(server, tls, while_they_work):
    over, done, faults = threading.Event(), [], []
    threads = [threading.Thread(target=work, args=(server, tls, over, done, faults, seed))
        for seed in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        while_they_work()
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not faults, faults
    return sum(done)


def flip(server, seconds):
    """Another number of loops serves, again and again."""
    rng = random.Random(1)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        server.say(f"serve {rng.randint(1, LOOPS)}")
        time.sleep(rng.random() * 0.006)


def test_every_request_is_answered_while_connections_move(kind):
    listen, tls = kind
    with following(listen) as server:
        done = run_clients(server, tls, lambda: flip(server, STRESS_S))
        stats = server.wait_for(open=0, in_flight=0)
        assert done > 0 and stats["requests"] >= done
        assert stats["moved"] > 20, stats
        assert stats["accepted"] == CLIENTS


def test_new_connections_while_the_loops_change(kind):
    listen, tls = kind
    stop = threading.Event()
    with following(listen) as server:
        flipper = threading.Thread(target=lambda: [flip(server, 0.05) for _ in iter(
            lambda: stop.is_set(), True)])
        flipper.start()
        for _ in range(60):
            with server.connect(tls=tls) as client:
                client.send(GET, GET)
                assert client.answer().status == client.answer().status == 200
        stop.set()
        flipper.join()
        stats = server.wait_for(open=0, in_flight=0)
        assert (stats["accepted"], stats["requests"]) == (60, 120)


def drained(server, ms):
    """Its answer; what was asked before may be in front of it."""
    answer = server.ask(f"drain {ms}")
    while not answer.startswith("drained"):
        answer = server.process.stdout.readline().strip()
    return answer


@pytest.mark.parametrize("ms", [20000, 0])
def test_a_drain_finds_connections_on_their_way(kind, ms):
    listen, tls = kind
    for turn in range(20 if LONG else 5):
        with following(listen) as server:
            over = threading.Event()
            clients = [server.connect(tls=tls) for _ in range(CLIENTS)]
            threads = [threading.Thread(target=use, args=(client, over)) for client in clients]
            for thread in threads:
                thread.start()
            flip(server, 0.1 + turn * 0.003)
            began = time.monotonic()
            answer = drained(server, ms)
            assert time.monotonic() - began < 10
            assert ms == 0 or answer == "drained 1"
            for thread in threads:
                thread.join()
            server.wait_for(open=0)
            if ms > 0:
                assert not over.is_set(), "an answer was cut off"


def use(client, over):
    """Until the server closes it; an answer that began has to be whole."""
    try:
        while True:
            client.send(LATER)
            if client.left == b"":
                client.left = client.more()
            if client.left == b"":
                break
            if client.answer().fields.get("connection") == "close":
                break
    except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
        pass
    except AssertionError:
        over.set()
    client.socket.close()


def moved_pair(server, tls):
    """Two that were accepted on one loop; one of them has moved, and was not used since."""
    settle(server, 1)
    pair = [server.connect(tls=tls) for _ in range(2)]
    before = server.wait_for(open=2)["moved"]  # accepted, not only connected
    settle(server, 2)
    assert [loop_of(client) for client in pair] == [0, 0]
    server.wait_for(moved=before + 1)
    return pair


def test_a_connection_that_moved_is_timed_there(kind):
    listen, tls = kind
    with following(listen, idle_ms=1500, head_ms=1000) as server:
        pair = moved_pair(server, tls)
        began = time.monotonic()
        assert all(client.ends() for client in pair)
        assert 1.3 < time.monotonic() - began < 9
        pair = moved_pair(server, tls)
        assert {loop_of(client) for client in pair} == {0, 1}
        for client in pair:
            client.send(b"GET / HTTP/1.1\r\nHo")
        for client in pair:
            client.refusal(408)
        server.wait_for(open=0)


def test_a_connection_counts_once_wherever_it_is():
    with following(connections=3) as server:
        clients = [server.connect() for _ in range(3)]
        for serving in (3, 1, 2, 3, 1):
            settle(server, serving)
            for client in clients:
                loop_of(client)
            assert server.stats()["open"] == 3
            with server.connect() as fourth:
                fourth.refusal(503)
            server.wait_for(open=3)
        clients.pop().socket.close()
        server.wait_for(open=2)
        with server.connect() as again:
            assert loop_of(again) == 0
        for client in clients:
            client.socket.close()


def test_without_descriptors_a_connection_stays_where_it_is():
    with following() as server:
        pair = moved_pair(server, None)
        away = next(client for client in pair if loop_of(client) == 1)
        pid, moved = server.process.pid, server.stats()["moved"]
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = max(int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir())
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 1, limits[1]))
        settle(server, 1)
        away.send(LOOP * 3)
        assert [away.answer().body for _ in range(3)] == [b"1"] * 3
        assert loop_of(away) == 1 and server.stats()["moved"] == moved
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        loop_of(away)
        assert loop_of(away) == 0 and server.stats()["moved"] == moved + 1
        for client in pair:
            client.socket.close()


def test_a_number_of_loops_by_hand_serves_whole_and_nothing_moves(kind):
    listen, tls = kind
    with Server(listen, loops=2) as server:
        clients = [server.connect(tls=tls) for _ in range(30)]
        found = [loop_of(client) for client in clients]
        for _ in range(10):
            assert [loop_of(client) for client in clients] == found
        assert set(found) == {0, 1}
        stats = server.stats()
        assert (stats["serving"], stats["moved"]) == (2, 0)
        for client in clients:
            client.socket.close()


def test_loops_follow_the_load():
    with following() as server, server.connect() as client:
        server.say("busy 84")
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            assert loop_of(client) == 0
        assert server.stats()["serving"] == 1
        server.say("busy 100")
        while server.stats()["serving"] == 1:  # it is measured while there is something to do
            loop_of(client)
        client.socket.close()
        server.wait_for(open=0)
        server.wait_for(serving=3)  # and from then on without it
        began = time.monotonic()
        server.say("busy 0")
        server.wait_for(serving=1)
        assert time.monotonic() - began > 5
        with server.connect() as other:
            assert loop_of(other) == 0


# ---- the real server -----------------------------------------------------------------------------


def figures(server):
    """(loops that serve, connections that moved)"""
    page = server.request("GET", "/metrics")[2]
    return tuple(int(float(re.search(rf"^{name} (\S+)$", page, re.M)[1]))
        for name in ("once_http_loops_serving", "once_http_moved_total"))


PAYLOAD = {"items": [{"sku": f"a{i}", "n": i, "text": "x" * 40} for i in range(4000)]}


class Load:
    """Connections that are never idle, with long payloads, so that the server does most of the
    work. Each key is begun twice; the answers have to say so."""

    def __init__(self, server, name):
        self.server, self.name, self.over, self.faults = server, name, threading.Event(), []
        self.threads = [threading.Thread(target=self.work, args=(i,)) for i in range(CLIENTS)]
        self.asked = 0
        for thread in self.threads:
            thread.start()

    def work(self, number):
        head, tail = json.dumps({"scope": "test", "key": "KEY", "payload": PAYLOAD,
            "lease": "60s"}).split("KEY")
        turn = 0
        try:
            with self.server.wire() as wire:
                while not self.over.is_set():
                    body = f"{head}{self.name}-{number}-{turn // 2}{tail}"
                    status, _, document = wire.request("POST", "/v1/fences", body)
                    assert status == (201, 202)[turn % 2], document
                    turn += 1
                    self.asked += 1
        except Exception as fault:  # told by the main thread
            self.faults.append(repr(fault))

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join()
        assert not self.faults, self.faults


def prefer(server):
    """Its threads come before those of other programs, where that is allowed: a nice value has no
    effect beside programs of other sessions."""
    try:
        for task in Path(f"/proc/{server.pid}/task").iterdir():
            os.sched_setscheduler(int(task.name), os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        pass


def busiest(server):
    """Processor time of the loop that had most, in seconds."""
    ticks = [0]
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        name, _, fields = (task / "stat").read_text().partition("(")[2].rpartition(")")
        if name == "once-loop":
            ticks.append(sum(int(field) for field in fields.split()[11:13]))
    return max(ticks) / os.sysconf("SC_CLK_TCK")


def widens(server, timeout_s):
    """Whether it did; and the largest share of a core that a loop had for half a second."""
    share, end = 0, time.monotonic() + timeout_s
    while time.monotonic() < end:
        began, had = time.monotonic(), busiest(server)
        time.sleep(0.5)
        share = max(share, (busiest(server) - had) / (time.monotonic() - began))
        if figures(server)[0] > 1:
            return True, share
    return False, share


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core, so one loop")
def test_the_server_widens_under_load_and_narrows_after_it(make_server):
    server = make_server(config="loops: 0\n" + NO_LIMITS)
    with server.wire() as wire:
        for i in range(200):
            assert wire.request("POST", "/v1/fences", begin_body(f"k{i}", i))[0] == 201
    assert figures(server) == (1, 0)
    prefer(server)
    for turn in range(2):
        load = Load(server, turn)
        try:
            is_wide, share = widens(server, 20)
            if not is_wide and share < 0.9:
                pytest.skip(f"other programs leave a loop {share:.2f} of a core at most")
            assert is_wide
            until(lambda: figures(server)[1] > 0, "nothing moved")
        finally:
            load.end()
        until(lambda: figures(server)[0] == 1, "it stays wide")
    with server.wire() as wire:
        assert wire.request("POST", "/v1/fences", begin_body("last", 1))[0] == 201
    server.stop()


def test_the_server_with_loops_by_hand_does_not_move_anything(make_server):
    server = make_server("--loops", "2", config=NO_LIMITS)
    load = Load(server, "hand")
    try:
        until(lambda: load.asked > 200, "it answers nothing")
        assert figures(server) == (2, 0)
    finally:
        load.end()
    assert figures(server) == (2, 0)
