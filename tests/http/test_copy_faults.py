"""once copy when something is in the way: a full target, a second copy, missing rights, a source
that changes, and the keys of encrypted bodies. Errors say what to do, and nothing half-happens.
"""
import contextlib
import os
import queue
import secrets
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
import servers
import stores
from once_server import BINARY, LONG, until
from test_batch import batch
from test_copy import (At, config_of, copied, documents, filled, is_unfinished, once, outside,
    place, postgres, redis, verified)  # noqa: F401 (fixtures)
from test_disk_full import mount_tmpfs, namespace_entered
from test_effects_published import Muffle
from test_postgres_faults import small_tablespace  # noqa: F401

pytestmark = stores.journal_only("every pair of stores is in here")

KINDS = ("journal", "postgres", "redis")
OUTCOME_BYTES = 8000  # of each, and it cannot be compressed
OPERATIONS = 500


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A journal of some megabytes that was served and stopped."""
    url = f"journal:{tmp_path_factory.mktemp('large')}/store"
    server = At(url)
    try:
        for first in range(0, OPERATIONS, 100):
            grants = batch(server, [{"scope": "s", "key": f"k{number}", "payload": {}}
                for number in range(first, first + 100)])
            batch(server, [{"operation_id": one["operation_id"], "fence": one["fence"],
                "status": "executed", "outcome": secrets.token_hex(OUTCOME_BYTES // 2)}
                for one in grants])
        server.stop()
    finally:
        server.remove()
    return url


def refused(source, target, said):
    """It fails, says why, and leaves an unfinished copy or nothing."""
    done = once("copy", source, target)
    assert done.returncode != 0, done
    assert said in done.stderr, done.stderr
    return done


def goes_on(source, target):
    """The same command finishes it, and both are the same."""
    assert is_unfinished(target)
    before = documents(source)
    done = copied(source, target)
    assert "continued: " in done.stdout, done
    assert documents(target) == before == documents(source)
    assert verified(target)["entries"] == verified(source)["entries"]


def test_a_full_redis_is_named_and_the_copy_goes_on_when_there_is_room(large):
    with servers.Redis() as server:
        used = int(server.cli("INFO", "memory").split("used_memory:")[1].split()[0])
        server.ask("CONFIG", "SET", "maxmemory", str(used + (2 << 20)))
        done = refused(large, server.url, "maxmemory")
        assert "hint: raise the server's maxmemory" in done.stderr
        server.ask("CONFIG", "SET", "maxmemory", "0")
        goes_on(large, server.url)


@pytest.fixture
def small_directory(tmp_path):
    if os.geteuid() != 0 or not namespace_entered():
        pytest.skip("mounting a small file system is not permitted here")
    room = tmp_path / "disk"
    room.mkdir()
    done = subprocess.run(mount_tmpfs(room), capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"cannot mount: {done.stderr.strip()}")
    yield room
    subprocess.run(["umount", "-l", str(room)], check=True)


def test_a_full_disk_is_named_and_the_copy_goes_on_when_there_is_room(large, small_directory):
    filler = small_directory / "filler"
    filler.write_bytes(b"x" * (13 << 20))  # of 16
    target = f"journal:{small_directory}/target"
    done = refused(large, target, "No space left on device")
    assert done.returncode in (69, 75), done
    filler.unlink()
    goes_on(large, target)


def test_a_full_database_is_named_and_the_copy_goes_on_when_there_is_room(large, small_tablespace):
    server, filler = small_tablespace
    target = f"{server.url}?fsync=off&schema=full"
    assert once("migrate", "--store", target).returncode == 0
    refused(large, target, "disk of the PostgreSQL server is full")
    subprocess.run(["mount", "-o", "remount,size=64m", str(filler.parent)], check=True)
    goes_on(large, target)


# --- A copy that is stopped in the middle ---------------------------------------------------------

def started(source, target):
    return subprocess.Popen([BINARY, "copy", source, target], text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Watched(Muffle):
    """In front of PostgreSQL: holds a process by SIGSTOP when it has asked for something, the
    answer ends so, and is_there(). The answer waits for that, so the session stays as it is."""

    IDLE, IN_TRANSACTION = b"Z\0\0\0\5I", b"Z\0\0\0\5T"

    def __init__(self, postgres, end, is_there):
        super().__init__(postgres.port)
        self.end, self.is_there = end, is_there
        self.given, self.stopped = queue.Queue(), threading.Event()

    def is_passed(self, data):
        if not self.stopped.is_set() and data.endswith(self.end) and self.is_there():
            self.given.get().send_signal(signal.SIGSTOP)
            self.stopped.set()
        return True

    def copy(self, source, target):
        process = started(source, target.replace(f":{self.port}/", f":{self.address[1]}/"))
        self.given.put(process)
        assert self.stopped.wait(60), "it was never there"
        return process


def stopped_after_a_piece(source, target, postgres, stack):
    """A copy whose first entries are committed, and which has locked nothing."""
    schema = target.split("schema=")[1]
    watched = stack.enter_context(contextlib.closing(Watched(postgres, Watched.IDLE,
        lambda: postgres.sql(f"SELECT count(*) FROM {schema}.entries") != "0")))
    return watched.copy(source, target)


@pytest.fixture
def stopped_midway(place, request):
    """stopped_midway(source, kind) -> (process, target): a copy that has begun and is held by
    SIGSTOP."""
    def begin(source, kind):
        if kind == "postgres":
            target = place(kind, "target")
            postgres = request.getfixturevalue("postgres")
            return stopped_after_a_piece(source, target, postgres, stack), target
        for attempt in range(20):
            target = place(kind, f"target{attempt}")
            process = started(source, target)
            time.sleep(0.15 * 0.8 ** attempt)
            while process.poll() is None:
                process.send_signal(signal.SIGSTOP)
                if is_begun(target) and process.poll() is None:
                    return process, target
                process.send_signal(signal.SIGCONT)  # on to where it has begun, or to its end
                time.sleep(0.05)
            process.communicate()  # it ended before it was looked at: a new target, sooner
        raise AssertionError("it was never seen in the middle")

    with contextlib.ExitStack() as stack:
        yield begin


def is_begun(target):
    """A journal's directory may only be looked at: its lock is held."""
    said = once("ls", "--store", target).stderr
    return "unfinished copy" in said


def resumed(process):
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


@pytest.fixture
def shared_source(large, place):
    """A store that two copies may read at once: a journal is locked by the first."""
    source = place("redis", "shared-source")
    copied(large, source)
    return source


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_copies_to_one_target_one_finishes_it(shared_source, stopped_midway, kind):
    """The one that began last, or on a journal the one that has the lock."""
    first, target = stopped_midway(shared_source, kind)
    second = once("copy", shared_source, target)
    code, out, err = resumed(first)
    if kind == "journal":
        assert second.returncode == 69 and f"in use by pid {first.pid}" in second.stderr, second
        assert code == 0, err
    else:
        assert second.returncode == 0, second
        assert code != 0, out
        assert "a second copy to the same target has finished it" in err, err
    assert documents(target) == documents(shared_source)
    assert verified(target)["entries"] == verified(shared_source)["entries"]


@pytest.mark.parametrize("when", [
    "SELECT count(to_regclass('{}.copying'))",  # it has begun, and not yet read anything
    f"SELECT count(*) / {OPERATIONS} FROM {{}}.records"])  # all is written, and not yet verified
def test_a_copy_that_a_second_one_finishes_says_so(shared_source, place, postgres, when):
    """The table `copying` is gone when the first one goes on."""
    target = place("postgres", "target")
    schema = target.split("schema=")[1]
    with contextlib.closing(Watched(postgres, Watched.IDLE,
            lambda: postgres.sql(when.format(schema)) == "1")) as watched:
        first = watched.copy(shared_source, target)
        copied(shared_source, target)
        code, out, err = resumed(first)
    assert code == 69, (out, err)
    assert "a second copy to the same target has finished it" in err, err
    assert verified(target)["entries"] == verified(shared_source)["entries"]


@pytest.mark.parametrize("kind", KINDS)
def test_of_copies_that_begin_together_the_target_is_one_copy(shared_source, place, kind):
    for number in range(20 if LONG else 2):
        target = place(kind, f"together{number}")
        both = [subprocess.Popen([BINARY, "copy", shared_source, target], text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for _ in range(2)]
        said = [process.communicate(timeout=300) for process in both]
        codes = [process.returncode for process in both]
        assert all(code in (0, 64, 65, 69, 70, 75) for code in codes), (codes, said)
        if 0 not in codes:  # each took it from the other: the next one finishes it
            copied(shared_source, target)
        assert documents(target) == documents(shared_source)
        verified(target)


@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_a_source_that_changes_meanwhile_is_noticed(large, place, stopped_midway, kind):
    source = place(kind, "source")
    copied(large, source)
    process, target = stopped_midway(source, "redis" if kind == "postgres" else "postgres")
    ran = once("run", "--store", source, "-k", "meanwhile", "--", "echo")
    assert ran.returncode == 0, ran
    code, out, err = resumed(process)
    assert code == 69, (out, err)
    assert "changed" in err or "is in use" in err, err
    assert is_unfinished(target)
    done = once("copy", source, target)
    assert done.returncode == 64 and "in a different state" in done.stderr, done


def test_a_journal_that_is_copied_cannot_be_changed(large, stopped_midway, tmp_path):
    source = f"journal:{tmp_path}/source"
    copied(large, source)
    process, _ = stopped_midway(source, "redis")
    ran = once("run", "--store", source, "-k", "meanwhile", "--", "echo")
    assert ran.returncode != 0 and f"in use by pid {process.pid}" in ran.stderr, ran
    code, out, err = resumed(process)
    assert code == 0, (out, err)


def test_a_copy_that_is_held_up_before_its_commit_commits_again(large, place, postgres):
    """The server ends the transaction of a process that stands still; the copy goes on."""
    def is_prepared():
        return postgres.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'once'"
            " AND state = 'idle in transaction'"
            " AND (query LIKE '%FROM tallies%' OR query LIKE '%draw_fences%')") == "1"

    target = place("postgres", "target")
    with contextlib.closing(Watched(postgres, Watched.IN_TRANSACTION, is_prepared)) as watched:
        process = watched.copy(large, target)
        time.sleep(10.5)
        code, out, err = resumed(process)
    assert code == 0, (out, err)
    assert documents(target) == documents(large)


def test_a_long_copy_says_how_far_it_is(large, stopped_midway):
    """Without a terminal: a line every ten seconds, so that a log shows that it goes on."""
    process, _ = stopped_midway(large, "redis")
    time.sleep(10.5)
    code, _, err = resumed(process)
    assert code == 0, err
    assert any(line.startswith("once: ") and line.endswith("%") for line in err.split("\n")), err


# --- Rights ---------------------------------------------------------------------------------------

def test_a_redis_account_without_rights_changes_nothing(large):
    with servers.Redis() as server:
        server.ask("ACL", "SETUSER", "reader", "on", ">pw", "~*", "&*", "+@read", "+@connection",
            "+info", "+eval", "+evalsha", "+config|get", "+time")
        target = f"redis://reader:pw@127.0.0.1:{server.port}"
        done = refused(large, target, "hint: ACL SETUSER")
        assert "pw@" not in done.stderr
        assert server.ask("DBSIZE") == b":0"


def test_a_database_role_without_rights_changes_nothing(large, place, postgres):
    """The owner of the schema copies; a role that may only use the store is told so."""
    target = place("postgres", "owned")
    schema = target.split("schema=")[1]
    postgres.sql("DROP ROLE IF EXISTS worker")
    postgres.sql("CREATE ROLE worker LOGIN")
    assert once("migrate", "--grant", "worker", "--store", target).returncode == 0
    as_worker = target.replace("postgres@", "worker@")
    done = refused(large, as_worker, "permission denied")
    assert postgres.sql(f"SELECT count(*) FROM {schema}.records") == "0"
    assert postgres.sql(f"SELECT count(*) FROM {schema}.store") == "1"  # it is still a store
    assert "hint: " in done.stderr
    copied(large, target)


def test_a_source_that_may_not_be_read_is_refused(large, place, postgres, tmp_path):
    source = place("postgres", "closed")
    copied(large, source)
    postgres.sql("DROP ROLE IF EXISTS nobody_here")
    postgres.sql("CREATE ROLE nobody_here LOGIN")
    target = tmp_path / "target"
    done = refused(source.replace("postgres@", "nobody_here@"), f"journal:{target}",
        "a role without rights")
    assert done.returncode == 69 and not target.exists(), done


# --- Encrypted bodies -----------------------------------------------------------------------------

def test_the_key_goes_along_between_two_journals(place, outside, filled):
    source, _ = filled
    target = place("journal", "with-key")
    done = copied(source, target)
    assert "body.key" not in done.stderr
    key = Path(target.removeprefix("journal:")) / "body.key"
    assert key.read_bytes() == (Path(source.removeprefix("journal:")) / "body.key").read_bytes()
    assert key.stat().st_mode & 0o777 == 0o600
    server = At(target, config_of(outside))
    try:
        calls = len(outside[1].calls)
        redelivered(server)
        until(lambda: len(outside[1].calls) > calls, "its body cannot be read")
    finally:
        server.remove()


def redelivered(server):
    """Call the handler of the delivery that waits, now."""
    listed = server.request("GET", "/v1/deliveries")[2]["deliveries"]
    waiting = [one["delivery_id"] for one in listed if one["status"] == "pending"]
    for one in waiting:
        server.request("POST", f"/v1/deliveries/{one}/redeliver", {})
    return waiting


@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_what_key_opens_the_bodies_is_said(place, outside, filled, kind):
    """The key stays where it is: with it the bodies are read, with another one nothing is sent."""
    source, _ = filled
    target = place(kind, "without-key")
    done = copied(source, target)
    path = source.removeprefix("journal:") + "/body.key"
    assert f"bodies are encrypted with '{path}'" in done.stderr, done.stderr
    assert "hint: name that file in secrets.key_file" in done.stderr
    again = place("journal", "third")
    assert "a key that is not in the source's directory" in copied(target, again).stderr
    wrong = Path(path).with_name("wrong.key")
    wrong.write_text(secrets.token_hex(32) + "\n", encoding="ascii")
    wrong.chmod(0o600)
    calls = len(outside[1].calls)
    server = At(target, config_of(outside, f"secrets: {{key_file: [{wrong}]}}\n"))
    try:
        redelivered(server)
        time.sleep(1)
        assert len(outside[1].calls) == calls  # P6: nothing was made up
        server.stop()
    finally:
        server.remove()
    server = At(target, config_of(outside, f"secrets: {{key_file: [{path}]}}\n"))
    try:
        redelivered(server)
        until(lambda: len(outside[1].calls) > calls, "the right key opens nothing")
    finally:
        server.remove()
