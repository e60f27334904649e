"""Several servers over one PostgreSQL, and what can become of them: a process or the database is
killed, the database is gone for a while, its disk is full, a standby is promoted, clocks differ, a
pooler is between.

Whatever happens: no key is granted twice, and nothing that was answered is lost."""
import calendar
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from once_server import BINARY, LONG, ROOT, Broken, Server, until
from stepping_clock import SHIM, SteppingClock
from test_disk_full import namespace_entered

sys.path.insert(0, str(ROOT / "tests"))
import promise  # noqa: E402
import servers  # noqa: E402

pytestmark = pytest.mark.skipif(not servers.Postgres.installed(), reason="no PostgreSQL here")
SYNCHRONOUS = {"wal_level": "replica", "max_wal_senders": 4, "hot_standby": "on"}


class Node(Server):
    """`once serve` over that database."""

    def __init__(self, url, **how):
        self.over = url
        super().__init__(**how)

    def command(self):
        return [BINARY, "serve", "--listen", "127.0.0.1:0", "--store", self.over, *self.options]


def url_of(*databases):
    """libpq tries them in order, for one that can be written to."""
    hosts = ",".join(f"127.0.0.1:{database.port}" for database in databases)
    return f"postgres://postgres@{hosts}/once?fsync=off"


def once(*words):
    return subprocess.run([BINARY, *words], capture_output=True, text=True, timeout=120)


def migrated(database):
    done = once("migrate", "--store", url_of(database))
    assert done.returncode == 0, done.stderr
    return url_of(database)


@pytest.fixture
def database():
    with servers.Postgres(**SYNCHRONOUS) as server:
        yield server


class Load:
    """Threads that begin keys through several nodes, each key through more than one. What was
    answered is remembered; an answer that did not come is nobody's."""

    def __init__(self, nodes, threads=3):
        self.nodes, self.granted, self.refused, self.ended = nodes, {}, 0, threading.Event()
        self.second, self.lock, self.refusal = [], threading.Lock(), None
        self.threads = [threading.Thread(target=self.work, args=(number,), daemon=True)
            for number in range(threads)]
        for thread in self.threads:
            thread.start()

    def ask(self, node, key):
        try:
            status, _, answer = node.request("POST", "/v1/fences",
                {"scope": "load", "key": key, "payload": 1, "lease": "10m"})
        except (Broken, OSError):
            return None
        with self.lock:
            if status == 201:
                if key in self.granted:
                    self.second.append((key, self.granted[key], answer["fence"]))
                self.granted[key] = answer["fence"]
            elif status >= 500:
                self.refused += 1
                self.refusal = status, answer
        return status

    def work(self, number):
        at = 0
        while not self.ended.is_set():
            at += 1
            for turn in range(2):
                node = self.nodes[(number + at + turn) % len(self.nodes)]
                if self.ask(node, f"{number % 2}-{at}") is None:
                    time.sleep(0.05)

    def count(self):
        with self.lock:
            return len(self.granted)

    def goes_on(self, by=10, timeout_s=60):
        """Something is granted again."""
        before = self.count()
        until(lambda: self.count() > before + by, "nothing is granted any more", timeout_s)

    def end(self, url):
        """Everything that was answered is there, and nothing twice."""
        self.ended.set()
        for thread in self.threads:
            thread.join()
        with promise.kept():
            assert self.second == []
        node = next(node for node in self.nodes if node.process.poll() is None)
        until(lambda: node.request("GET", "/readyz")[0] == 200, "it does not find the server again")
        for key, fence in self.granted.items():
            status, _, answer = node.request("POST", "/v1/fences",
                {"scope": "load", "key": key, "payload": 1})
            with promise.kept():
                assert status == 202, (key, fence, status, answer)
        verified = once("verify", "--json", "--store", url)
        assert verified.returncode == 0, verified.stdout


@pytest.fixture
def nodes(database):
    url = migrated(database)
    running = [Node(url) for _ in range(2)]
    yield running
    for node in running:
        node.kill9()


def test_a_killed_process_takes_nothing_with_it(database, nodes):
    load = Load(nodes)
    load.goes_on()
    for _ in range(3 if LONG else 1):
        nodes[0].kill9()
        load.goes_on()
        nodes[0].start()
        load.goes_on()
    load.end(url_of(database))


def restart(database):
    """After a crash the sessions of the old server hold its memory for a moment."""
    for _ in range(100):
        try:
            database.start()
            return
        except (RuntimeError, subprocess.CalledProcessError):
            time.sleep(0.1)
    raise AssertionError(database.log())


def test_a_killed_database_takes_nothing_with_it(database, nodes):
    load = Load(nodes)
    load.goes_on()
    for _ in range(5 if LONG else 1):
        database.kill()
        time.sleep(0.5)
        restart(database)
        load.goes_on()
    assert [node.process.poll() for node in nodes] == [None, None]  # they went on by themselves
    load.end(url_of(database))


def test_with_synchronous_commit_off_nothing_that_was_answered_is_lost():
    """P2: it is turned on for the sessions of Once. Else what was answered in the last seconds
    would be in the server's memory alone."""
    with servers.Postgres(synchronous_commit="off", wal_writer_delay="10s") as database:
        node = Node(migrated(database))
        try:
            asked = [Asked(node, f"k{number}") for number in range(5)]
            for one in asked:
                one.join()
            assert [one.status for one in asked] == [201] * 5
            kill_whole(database)
            restart(database)
            assert database.sql("SELECT count(*) FROM once.records") == "5"
        finally:
            node.kill9()


class Asked(threading.Thread):
    """One begin, and its answer."""

    def __init__(self, node, key):
        super().__init__(daemon=True)
        self.node, self.key, self.status, self.answer = node, key, None, {}
        self.start()

    def done(self):
        self.join()
        return self.status

    def run(self):
        try:
            self.status, _, self.answer = self.node.request("POST", "/v1/fences",
                {"scope": "way", "key": self.key, "payload": 1, "lease": "10m"})
        except (Broken, OSError):
            pass


def sessions_that_wait(database, event, program="once"):
    return database.sql(f"SELECT pid FROM pg_stat_activity WHERE application_name = '{program}'"
        f" AND wait_event = '{event}'").split()


def standby_wanted(database):
    """From now on a commit that is in the log waits for a standby, and there is none. The setting
    takes its time: a commit of psql tells when it holds."""
    database.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    database.sql("SELECT pg_reload_conf()")
    write, waits = "SELECT pg_logical_emit_message(true, 'probe', '')", []
    while not waits:
        probe = threading.Thread(target=database.sql, args=(write,), daemon=True)
        probe.start()
        while probe.is_alive() and not waits:
            waits = sessions_that_wait(database, "SyncRep", "psql")
    database.sql(f"SELECT pg_cancel_backend({waits[0]})")
    probe.join()


def standby_given_up(database):
    database.sql("ALTER SYSTEM RESET synchronous_standby_names")
    database.sql("SELECT pg_reload_conf()")


def kill_whole(database):
    """The server and all its sessions, at once, as when its machine stops."""
    pid = database.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    database.kill()
    for child in children:
        try:
            os.kill(int(child), signal.SIGKILL)
        except ProcessLookupError:
            pass


def under_way_twice(database, node):
    """Begins: of the first, whose commit waits for a standby after it is in the database's log; of
    a second one, whose commit waits for it; and of earlier ones, which make a second connection
    worth it."""
    early = [Asked(node, f"early-{number}") for number in range(20)]
    for one in early:
        one.join()
    standby_wanted(database)
    first = Asked(node, "first")
    until(lambda: sessions_that_wait(database, "SyncRep"), "nothing is committed")
    second = Asked(node, "second")
    until(lambda: sessions_that_wait(database, "transactionid"), "no second commit is under way")
    return first, second, early


def test_two_commits_under_way_when_all_of_the_database_is_killed(database):
    """What became of each is looked up: what was answered is there, what was refused as not done is
    not, and no key is granted twice."""
    url = migrated(database)
    node = Node(url)
    try:
        first, second, early = under_way_twice(database, node)
        asked = [first, second, *early]
        assert first.is_alive() and second.is_alive()  # P2
        database.sql("ALTER SYSTEM RESET synchronous_standby_names")  # from the next start on
        kill_whole(database)
        restart(database)
        for one in asked:
            one.join()
        found = dict(line.split("|") for line in database.sql(
            "SELECT key, fence FROM once.records").splitlines())
        for one in asked:
            if one.status == 201:
                assert found[one.key] == str(one.answer["fence"]), (one.key, one.answer)
            elif one.answer["effect"] == "no":
                assert one.status == 503 and one.key not in found, (one.key, one.answer)
            else:
                assert one.answer["effect"] == "unknown", one.answer
        assert "first" in found  # it was in the log, though nobody had been told
        assert all(one.status == 201 for one in early)
        assert node.process.poll() is None
        until(lambda: node.request("GET", "/readyz")[0] == 200, "it does not find the server again")
        for one in asked:
            again = Asked(node, one.key)
            again.join()
            assert again.status == (202 if one.key in found else 201), (one.key, again.answer)
        verified = once("verify", "--json", "--store", url)
        assert verified.returncode == 0, verified.stdout
    finally:
        node.kill9()


def test_the_gateway_sends_nothing_before_the_grant_is_durable(database, make_gateway, origin):
    """P6: the grant is in the server's log, and not yet with the standby that it has to be with."""
    gateway = make_gateway(over=migrated(database))
    for number in range(12):  # enough commits for two to be under way at once
        assert gateway.post(f"before-{number}").status == 200
    standby_wanted(database)
    answers = []
    call = threading.Thread(target=lambda: answers.append(gateway.post("k")), daemon=True)
    call.start()
    until(lambda: sessions_that_wait(database, "SyncRep"), "nothing is committed")
    time.sleep(0.3)  # for a gateway that would not wait
    assert origin.seen("k") == [] and call.is_alive()
    standby_given_up(database)
    call.join()
    assert answers[0].status == 200 and origin.effects["k"] == 1


def test_while_the_database_is_gone_nothing_is_granted_and_then_it_goes_on(database, nodes):
    load = Load(nodes)
    load.goes_on()
    database.kill()
    until(lambda: load.refused > 0, "nothing is refused")  # 503, whatever the key
    time.sleep(1)
    before = load.count()
    time.sleep(60 if LONG else 2)
    assert load.count() == before
    status, _, answer = nodes[0].request("POST", "/v1/fences",
        {"scope": "load", "key": "gone", "payload": 1})
    assert (status, answer["effect"], answer["retry"]) == (503, "no", "safe"), answer
    assert nodes[0].request("GET", "/readyz")[0] == 503
    restart(database)
    load.goes_on()
    assert [node.process.poll() for node in nodes] == [None, None]
    load.end(url_of(database))


class Stopping:
    """In front of PostgreSQL, for one process: from a place in what it sends nothing more arrives,
    as when the process, or its machine, is stopped while it sends. The connections stay open."""

    EXECUTE = b"E\0\0\0\x09\0\0\0\0\0"

    def __init__(self, database):
        self.database, self.wanted, self.within = database, None, 0
        self.stopped, self.goes_on = threading.Event(), threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.take, daemon=True).start()

    def take(self):
        while True:
            client = self.listener.accept()[0]
            server = socket.create_connection(("127.0.0.1", self.database.port))
            for side in ((client, server, self.cut), (server, client, len)):
                threading.Thread(target=self.hand_on, args=side, daemon=True).start()

    def hand_on(self, source, target, first):
        """A side that is closed is not told to the other one: who is stopped closes nothing."""
        try:
            while data := source.recv(1 << 20):
                size = first(data)
                target.sendall(data[:size])
                if size < len(data):
                    self.stopped.set()
                    self.goes_on.wait()
                    target.sendall(data[size:])
        except OSError:
            pass

    def cut(self, data):
        """How much of it arrives before the stop."""
        at = data.find(b"\0" + self.wanted + b"\0") if self.wanted else -1
        if at < 0 or self.stopped.is_set():
            return len(data)
        return at + self.within or data.index(self.EXECUTE, at) + len(self.EXECUTE)

    def stop_at(self, statement, within=0):
        """So many bytes into the message with its arguments; 0: after the message that runs it."""
        self.wanted, self.within = statement.encode(), within


# After the locks were taken; after the first statement of a commit; in the middle of the arguments
# of a later one; before COMMIT.
STOPS = [("lock", 0), ("placed", 0), ("lines", 50), ("mark", 0)]


def unread(database, key):
    """A session that holds this key and sends an answer, of which nobody reads the rest."""
    lock = f"lock_key(key_hash('operation', 'default', 'way', '', '{key}'))"
    words = ["SET search_path = once", "SET statement_timeout = '20s'", "BEGIN",
        f"SELECT pg_advisory_xact_lock({lock})",
        "COPY (SELECT repeat('x', 1000) FROM generate_series(1, 100000)) TO STDOUT"]
    process = subprocess.Popen([database.program("psql"), "-X", "-h", "127.0.0.1", "-p",
        str(database.port), "-U", "postgres", *(part for word in words for part in ("-c", word)),
        "once"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    until(lambda: database.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event ="
        " 'ClientWrite'") == "1", "all of the answer was taken")
    return process


def test_processes_that_stall_midway_hold_others_up_for_a_bounded_time(database):
    """S10: PostgreSQL bounds how long a session is idle in a transaction, not how long it waits for
    the rest of a request, or for its answer to be read. Whoever waits for its keys ends it."""
    url = migrated(database)
    proxies = [Stopping(database) for _ in STOPS]
    other = Node(url)
    stalled = [Node(url.replace(f":{database.port}/", f":{proxy.port}/")) for proxy in proxies]
    reader = None
    try:
        assert Asked(other, "early").done() == 201
        time.sleep(12)  # its housekeeping, which comes once a minute, is over
        reader = unread(database, f"k{len(STOPS)}")
        late = []
        for number, (node, proxy, stop) in enumerate(zip(stalled, proxies, STOPS)):
            proxy.stop_at(*stop)
            late.append(Asked(node, f"k{number}"))
        for proxy in proxies:
            assert proxy.stopped.wait(30)
        begun = time.monotonic()
        for number in range(len(STOPS) + 1):
            until(lambda key=f"k{number}": other.request("POST", "/v1/fences", {"scope": "way",
                "key": key, "payload": 1, "lease": "10m"})[0] == 201, "its key is held", 60)
        assert time.monotonic() - begun < 30  # 12 s, and the time of a busy machine
        for proxy in proxies:
            proxy.goes_on.set()
        for one in late:
            assert one.done() in (202, 503), one.answer  # its commit failed, or it asked again
    finally:
        if reader is not None:
            reader.kill()
            reader.communicate()
        for node in [*stalled, other]:
            node.kill9()
    verified = once("verify", "--json", "--store", url)
    assert verified.returncode == 0, verified.stdout


@pytest.fixture
def small_tablespace():
    """Where the tables of the store will be: some megabytes, of which a file takes a part."""
    if os.geteuid() != 0 or not namespace_entered():
        pytest.skip("mounting a small file system is not permitted here")
    place = Path(servers.scratch("once-small-"))
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "once-test", str(place)],
        capture_output=True, text=True)
    if done.returncode != 0:
        place.rmdir()
        pytest.skip(f"cannot mount: {done.stderr.strip()}")
    (place / "filler").write_bytes(b"x" * (3 << 20))
    (place / "tables").mkdir()
    subprocess.run(["chown", "-R", "postgres:postgres", str(place)], check=True)
    with servers.Postgres() as server:  # started now: it sees what is mounted
        server.sql(f"CREATE TABLESPACE small LOCATION '{place}/tables'")
        server.sql("ALTER DATABASE once SET default_tablespace = small")
        yield server, place / "filler"
    subprocess.run(["umount", "-l", str(place)], check=True)
    place.rmdir()


def test_a_full_disk_refuses_loses_nothing_and_goes_on_when_there_is_room(small_tablespace):
    """P12: what is live stays, whatever has no room. The disk of the tables; without room for its
    own log PostgreSQL stops, which is a database that is gone."""
    database, filler = small_tablespace
    url = migrated(database)
    nodes = [Node(url) for _ in range(2)]
    load = Load(nodes)
    try:
        until(lambda: load.refused > 20, "it does not get full", 300)
        status, answer = load.refusal
        assert (status, answer["effect"], answer["retry"]) == (503, "no", "safe"), answer
        assert "No space left" in answer["detail"], answer
        assert nodes[0].request("GET", "/v1/operations?limit=1")[0] == 200  # a look needs no room
        filler.unlink()
        load.goes_on()
        assert [node.process.poll() for node in nodes] == [None, None]
        load.end(url)
    finally:
        load.ended.set()
        for node in nodes:
            node.kill9()


class Standby(servers.Postgres):
    """A copy of a server that follows it."""

    def __init__(self, primary):
        super().__init__(**SYNCHRONOUS)
        self.primary = primary

    def make(self):
        if os.getuid() == 0:
            subprocess.run(["chown", "postgres:postgres", self.directory], check=True)
        subprocess.run([self.program("pg_basebackup"), "-D", self.data, "-h", "127.0.0.1", "-p",
            str(self.primary.port), "-U", "postgres", "-X", "stream", "-c", "fast", "-R",
            "--no-sync"], check=True, capture_output=True, cwd=self.directory, **self.user())

    def start(self):
        self.make()
        words = [f"--{name}={value}" for name, value in self.settings.items()]
        with open(os.path.join(self.directory, "postgres.log"), "ab") as log:
            self.process = subprocess.Popen([self.program("postgres"), "-D", self.data, *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory, **self.user())
        self.wait_ready()
        return self

    def promote(self):
        subprocess.run([self.program("pg_ctl"), "promote", "-w", "-D", self.data], check=True,
            capture_output=True, cwd=self.directory, **self.user())


def test_a_promoted_standby_goes_on_where_the_primary_was_killed(database):
    """With a synchronous standby a commit is on both before it is answered."""
    migrated(database)
    with Standby(database) as standby:
        url = url_of(database, standby)
        nodes = [Node(url) for _ in range(2)]
        database.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        database.sql("SELECT pg_reload_conf()")
        until(lambda: database.sql("SELECT sync_state FROM pg_stat_replication") == "sync",
            "the standby does not follow synchronously")
        load = Load(nodes)
        try:
            load.goes_on(50)
            database.kill()
            standby.promote()
            standby.sql("ALTER SYSTEM SET synchronous_standby_names = ''")
            standby.sql("SELECT pg_reload_conf()")
            load.goes_on(50)
            assert [node.process.poll() for node in nodes] == [None, None]
            load.end(url_of(standby))
        finally:
            load.ended.set()
            for node in nodes:
                node.kill9()


@pytest.mark.skipif(not SHIM.exists(), reason="the clock's library is not built")
@pytest.mark.parametrize("seconds", [-600, 600])
def test_processes_whose_clocks_differ_agree(database, seconds, tmp_path):
    """Leases and windows go by the server's clock, whatever the machine of a process thinks."""
    url = migrated(database)
    clock = SteppingClock(tmp_path)
    clock.step(seconds)
    nodes = [Node(url), Node(url, env=clock.env)]
    begin = {"scope": "s", "key": "k", "payload": 1, "lease": "5s"}
    try:
        before = time.time()
        first = nodes[1].request("POST", "/v1/fences", begin)
        assert first[0] == 201
        assert before + 4 < lease_end(first[2]) < time.time() + 6  # by the true clock
        for node in nodes:
            assert node.request("POST", "/v1/fences", begin)[0] == 202
        time.sleep(max(0, lease_end(first[2]) - time.time()) + 0.3)
        for node in nodes:
            assert node.request("POST", "/v1/fences", begin)[2]["code"] == "outcome_unknown"
        taken = nodes[0].request("POST", "/v1/fences", {**begin, "on_unknown": "takeover"})
        assert taken[2]["fence"] > first[2]["fence"]
        late = nodes[1].request("POST", f"/v1/fences/{first[2]['operation_id']}/seal",
            {"fence": first[2]["fence"], "status": "executed"})
        assert late[2]["code"] == "stale_fence"
    finally:
        for node in nodes:
            node.kill9()
    verified = once("verify", "--json", "--store", url)
    assert verified.returncode == 0, verified.stdout


def lease_end(answer):
    text = answer["lease_expires_at"]
    return calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S")) + float(text[19:23])


# --- Settings and poolers ---


def pgbouncer(directory, database, mode):
    """A pooler of its own; its URL."""
    port = servers.free_port()
    (directory / "users").write_text('"postgres" ""\n')
    (directory / "pgbouncer.ini").write_text(
        f"[databases]\nonce = host=127.0.0.1 port={database.port}\n[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = trust\n"
        f"auth_file = {directory}/users\npool_mode = {mode}\nunix_socket_dir =\n"
        "ignore_startup_parameters = extra_float_digits\n")
    process = subprocess.Popen(["/usr/sbin/pgbouncer", str(directory / "pgbouncer.ini")],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        **servers.Postgres.user())
    url = f"postgres://postgres@127.0.0.1:{port}/once?fsync=off"
    def answers():
        assert process.poll() is None, "the pooler has ended"
        return subprocess.run(["psql", "-X", "-w", "-c", "SELECT 1", url.split("?", maxsplit=1)[0]],
            stdin=subprocess.DEVNULL, capture_output=True).returncode == 0
    until(answers, "the pooler does not answer")
    return process, url


@pytest.mark.skipif(not os.path.exists("/usr/sbin/pgbouncer"), reason="no pgbouncer here")
@pytest.mark.parametrize("mode", ["session", "transaction"])
def test_a_pooler_that_gives_sessions_away_is_named_at_start(database, mode, request):
    migrated(database)
    # Not under the directory of the tests: the pooler runs as somebody who may not look into it.
    directory = Path(servers.scratch("once-pgbouncer-"))
    request.addfinalizer(lambda: shutil.rmtree(directory, ignore_errors=True))
    directory.chmod(0o755)
    pooler, url = pgbouncer(directory, database, mode)
    try:
        done = once("run", "-k", "k", "--wait", "0s", "--store", url, "--", "echo", "done")
        if mode == "session":
            assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
        else:
            assert done.returncode == 125 and "pool_mode = transaction" in done.stderr, done
            assert database.sql("SELECT count(*) FROM once.records") == "0"
    finally:
        pooler.kill()
        pooler.wait()


def test_what_weakens_a_promise_is_named_everywhere(database):
    node = Node(migrated(database))
    try:
        checks = node.request("GET", "/readyz?verbose")[2]["checks"]
        said = [check["detail"] for check in checks if check["name"] == "store_caution"]
        weak = [text.partition(":")[0] for text in said]
        assert weak == ["fsync = off", "full_page_writes = off"]
        until(lambda: '"store_caution"' in node.stderr(), "the log does not say it")
        doctor = json.loads(once("doctor", "--json", "--store", url_of(database)).stdout)
        assert "fsync = off" in json.dumps(doctor)
    finally:
        node.kill9()


def test_doctor_names_what_weakens_a_promise(database):
    url = migrated(database)
    with Standby(database):
        done = once("doctor", "--json", "--store", url)
        said = json.dumps(json.loads(done.stdout))
        assert "fsync = off" in said and "follow asynchronously" in said
        database.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        database.sql("SELECT pg_reload_conf()")
        until(lambda: "follow asynchronously" not in
            once("doctor", "--json", "--store", url).stdout, "doctor does not see the change")
