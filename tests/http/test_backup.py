"""`once backup` beside a server under load: whole, verified, and never something half made.

What was answered before a backup began is in it, whatever is killed meanwhile.
"""
import fcntl
import json
import os
import pty
import random
import resource
import signal
import subprocess
import threading
import time

import pytest
from once_server import BINARY, LONG, Broken, until
from provider import Provider
from test_disk_full import FILLER_BYTES, mount_tmpfs, namespace_entered

SMALL = "?segment=64KiB&snapshot=64KiB"  # rolled and saved many times during one copy
CLIENTS = 3
BACKUPS = 20 if LONG else 4
KILLS = 40 if LONG else 8
SEED = 7


class Load:
    """Clients that begin and seal one key after another until the end of the with block."""

    def __init__(self, server):
        self.server, self.sealed, self.is_over = server, [], False
        self.threads = [threading.Thread(target=self.run, args=(n,)) for n in range(CLIENTS)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over = True
        for thread in self.threads:
            thread.join()

    def run(self, number):
        turn = 0
        while not self.is_over:
            turn += 1
            try:
                self.once(f"{number}-{turn}")
            except (Broken, ConnectionError):
                time.sleep(0.01)  # killed; nobody knows about this key

    def once(self, key):
        with self.server.wire() as wire:
            status, _, begun = wire.request("POST", "/v1/fences",
                {"scope": "s", "key": key, "payload": {"pad": "x" * 500}})
            assert status == 201, begun
            status, _, document = wire.request("POST", f"/v1/fences/{begun['operation_id']}/seal",
                {"fence": begun["fence"], "status": "executed", "outcome": {"for": key}})
        assert status == 200, document
        self.sealed.append(key)

    def wait_for(self, count):
        until(lambda: len(self.sealed) >= count, "the load stands still")


def back_up(server, to, **how):
    return subprocess.run([BINARY, "backup", "--store", server.store, str(to)],
        capture_output=True, text=True, timeout=300, **how)


def executed_in(server, store):
    """The keys that are sealed in a store, which verifies."""
    done = server.cli("verify", "--redecide", "--store", store)
    assert done.returncode == 0, done
    done = server.cli("ls", "--store", store, "--status", "executed", "--json")
    assert done.returncode == 0, done
    return {document["key"] for document in json.loads(done.stdout)}


def left_beside(to):
    return [path.name for path in to.parent.iterdir() if path.name.startswith(to.name)]


@pytest.fixture
def filled(make_server):
    """A server with some segments."""
    server = make_server(store_options=SMALL)
    with Load(server) as load:
        load.wait_for(60)
    server.sealed = load.sealed
    return server


# --- Whole ----------------------------------------------------------------------------------------

def test_backups_under_load_have_all_that_was_answered_before(make_server, tmp_path):
    server = make_server(store_options=SMALL)
    with Load(server) as load:
        for number in range(BACKUPS):
            load.wait_for(50 * (number + 1))
            before = set(load.sealed)
            done = back_up(server, tmp_path / f"b{number}")
            assert done.returncode == 0, done
            assert before <= executed_in(server, tmp_path / f"b{number}")


def test_the_server_is_killed_meanwhile_and_the_backup_is_whole(make_server, tmp_path):
    server, pick = make_server(store_options=SMALL), random.Random(SEED)
    with Load(server) as load:
        load.wait_for(100)
        for number in range(KILLS):
            before, to = set(load.sealed), tmp_path / f"b{number}"
            process = subprocess.Popen([BINARY, "backup", "--store", server.store,
                str(to)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            time.sleep(pick.uniform(0, 0.05))
            server.kill9()
            if pick.random() < 0.5:
                server.restart()
            _, said = process.communicate(timeout=300)
            assert process.returncode == 0, said
            assert before <= executed_in(server, to)
            if server.process.poll() is not None:
                server.restart()


def test_a_restored_copy_is_served_and_replays(filled, make_server, tmp_path):
    assert back_up(filled, tmp_path / "b").returncode == 0
    copy = make_server(data_dir=tmp_path / "b")
    for key in filled.sealed[-5:]:
        status, _, document = copy.request("POST", "/v1/fences",
            {"scope": "s", "key": key, "payload": {"pad": "x" * 500}})
        assert status == 200 and document["outcome"] == {"for": key}, document
    status, _, document = copy.request("POST", "/v1/fences",
        {"scope": "s", "key": "new", "payload": {}})
    assert status == 201, document


@pytest.fixture
def provider():
    made = Provider()
    yield made
    made.end()


def test_work_that_waited_is_sent_from_a_restored_copy(make_server, provider, tmp_path):
    """Its body is encrypted: the backup has the key."""
    config = f"""
connectors: {{pay: {{url: "{provider.url}"}}}}
effects:
  pay.capture: {{connector: pay, retry: {{backoff: 10ms}},
    request: {{path: /charge, headers: {{X-Key: "{{idempotency_key}}"}}}}}}
"""
    provider.script("k", "503")
    provider.retry_after = "3"  # it waits while it is copied
    server = make_server(config=config)
    effect = server.request("POST", "/v1/effects", {"effect_type": "pay.capture",
        "idempotency_key": "k", "target": {}, "payload": {"amount": 5}})[2]["effect_id"]

    def is_status(one, status):
        return one.request("GET", f"/v1/effects/{effect}")[2]["status"] == status

    until(lambda: provider.of("k") and is_status(server, "pending"), "not refused")
    done = back_up(server, tmp_path / "b")
    server.kill9()
    assert done.returncode == 0, done
    assert (tmp_path / "b/body.key").stat().st_mode & 0o777 == 0o600
    restored = make_server(config=config, data_dir=tmp_path / "b")
    until(lambda: is_status(restored, "acknowledged"), "not sent")
    assert provider.effects == {"k": 1}
    assert json.loads(provider.of("k")[-1]["body"]) == {"amount": 5}


def test_only_the_owner_can_read_a_backup(filled, tmp_path):
    assert back_up(filled, tmp_path / "b", preexec_fn=lambda: os.umask(0)).returncode == 0
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "b").iterdir()} == {0o600}
    assert {path.name.split("-")[0] for path in (tmp_path / "b").iterdir()} <= \
        {"identity", "reached", "segment"}


def test_the_document_says_what_was_verified(filled, tmp_path):
    done = filled.cli("backup", "--json", "--store", filled.data_dir, tmp_path / "b")
    said = json.loads(done.stdout)
    verified = json.loads(filled.cli("verify", "--json", "--store", tmp_path / "b").stdout)
    assert said["ok"] and said["directory"] == str(tmp_path / "b") and said["last_seq"] > 100
    for name in ("chain_id", "segments", "bytes", "first_seq", "last_seq", "last_hash"):
        assert said[name] == verified[name], name


def test_a_terminal_sees_how_far_it_is(filled, tmp_path):
    ours, theirs = pty.openpty()
    done = subprocess.run([BINARY, "backup", "--store", str(filled.data_dir), str(tmp_path / "b")],
        stdout=subprocess.PIPE, stderr=theirs, timeout=300)
    os.close(theirs)
    seen = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert done.returncode == 0 and "%  copying" in seen and seen.endswith("\x1b[K"), seen


# --- Nothing half made ----------------------------------------------------------------------------

def test_a_backup_that_is_killed_leaves_no_directory_of_its_name(filled, tmp_path):
    pick, ended = random.Random(SEED), set()
    for number in range(KILLS * 2):
        to = tmp_path / f"b{number}"
        how = pick.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
        process = subprocess.Popen([BINARY, "backup", "--store", str(filled.data_dir), str(to)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(pick.uniform(0, 0.08))
        process.send_signal(how)
        code = process.wait(timeout=60)
        ended.add(code)
        assert code in (0, -how), code
        if to.exists():
            assert set(filled.sealed) <= executed_in(filled, to)
        elif how != signal.SIGKILL:
            assert left_beside(to) == []
        if code == 0:
            assert left_beside(to) == [to.name]
        else:
            again = tmp_path / f"again{number}"
            assert back_up(filled, again).returncode == 0
    assert len(ended) > 1, "none was killed in the middle"


def dead_pid():
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def leave(path):
    path.mkdir()
    (path / "segment-1").write_text("half")
    return path


def test_what_a_killed_backup_left_goes_with_the_next_one(filled, tmp_path):
    to = tmp_path / "b"
    for number in range(200):
        process = subprocess.Popen([BINARY, "backup", "--store", str(filled.data_dir), str(to)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and left_beside(to) == []:
            pass
        process.kill()
        process.wait()
        if not to.exists():
            break
        to.rename(tmp_path / f"whole{number}")
    left = left_beside(to)
    assert len(left) == 1 and f"b.new-{process.pid}-" in left[0]
    done = back_up(filled, to)
    assert done.returncode == 0, done
    assert done.stderr == f"once: removed '{tmp_path / left[0]}': a backup that was killed had " \
        "left it\n"
    assert left_beside(to) == ["b"]


def test_what_a_living_process_or_a_lock_holds_is_left_alone(filled, tmp_path):
    to, pid = tmp_path / "b", dead_pid()
    held = leave(tmp_path / f"b.new-{pid}-a1")  # as of a different machine or container
    mine = leave(tmp_path / f"b.new-{os.getpid()}-a1")
    lock = os.open(held, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert back_up(filled, to).stderr == ""
    assert sorted(left_beside(to)) == sorted(["b", held.name, mine.name])
    assert (held / "segment-1").exists() and (mine / "segment-1").exists()
    to.rename(tmp_path / "whole")
    os.close(lock)
    assert held.name in back_up(filled, to).stderr
    assert sorted(left_beside(to)) == sorted(["b", mine.name])


def test_only_what_a_backup_to_this_place_left_is_removed(filled, tmp_path):
    to, pid = tmp_path / "b", dead_pid()
    others = [f"b.new-{pid}", f"b.new-{pid}-", f"b.new-{pid}-zz", f"b.new-0{pid}-a1",
        f"b.new-{pid}-a1.txt", f"b.new-{pid}-A1", f"b.new--{pid}-a1", f"b.new-0-a1",
        f"c.new-{pid}-a1", f"bb.new-{pid}-a1", f"b.new- {pid}-a1", f"b.new-{pid}-0xa1"]
    for name in others:
        leave(tmp_path / name)
    (tmp_path / f"b.new-{pid}-a2").write_text("a file")
    leave(tmp_path / "elsewhere")
    (tmp_path / f"b.new-{pid}-a3").symlink_to(tmp_path / "elsewhere")
    full = leave(tmp_path / f"b.new-{pid}-a4")
    (full / "directory").mkdir()  # no backup makes one
    assert back_up(filled, to).stderr == ""
    assert all((tmp_path / name / "segment-1").exists() for name in [*others, "elsewhere"])
    assert (tmp_path / f"b.new-{pid}-a2").exists() and full.exists()
    assert (tmp_path / f"b.new-{pid}-a3").is_symlink()


@pytest.mark.parametrize("make", [lambda to: to.mkdir(), lambda to: to.write_text("mine"),
    lambda to: to.symlink_to("/nowhere")], ids=["directory", "file", "link"])
def test_what_exists_is_never_overwritten(filled, tmp_path, make):
    to = tmp_path / "b"
    make(to)
    done = back_up(filled, to)
    assert done.returncode == 64 and "exists already" in done.stderr, done
    assert left_beside(to) == ["b"] and (to.is_dir() or to.is_symlink() or to.read_text() == "mine")


def test_a_target_in_the_store_is_refused(filled, tmp_path):
    (tmp_path / "link").symlink_to(filled.data_dir)
    for to in (filled.data_dir / "b", tmp_path / "link" / "b", filled.data_dir / "../data/b"):
        done = back_up(filled, to)
        assert done.returncode == 64 and "in the store itself" in done.stderr, done
    assert not any(".new-" in path.name for path in filled.data_dir.iterdir())


def test_a_damaged_store_is_not_backed_up(filled, tmp_path):
    filled.stop()
    first = sorted(filled.data_dir.glob("segment-*"))[0]
    data = bytearray(first.read_bytes())
    data[4096 + 200] ^= 1
    first.write_bytes(data)
    done = back_up(filled, tmp_path / "b")
    assert done.returncode == 65 and "does not check out" in done.stderr, done
    assert left_beside(tmp_path / "b") == []


def test_a_write_that_fails_in_the_middle_leaves_nothing(filled, tmp_path):
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

    done = back_up(filled, tmp_path / "b", preexec_fn=limit)
    assert done.returncode == 69 and "cannot write" in done.stderr, done
    assert left_beside(tmp_path / "b") == []


def test_a_disk_without_room_is_refused_before_anything_is_written(filled, tmp_path):
    if os.geteuid() != 0 or not namespace_entered():
        pytest.skip("mounting a small file system is not permitted here")
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(mount_tmpfs(disk), capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"cannot mount: {done.stderr.strip()}")
    try:
        (disk / "filler").write_bytes(b"x" * (4 * FILLER_BYTES - (100 << 10)))
        done = back_up(filled, disk / "b")
        assert done.returncode == 69 and "No space left on device" in done.stderr, done
        assert "nothing was written" in done.stderr, done
        assert [path.name for path in disk.iterdir()] == ["filler"]
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_store_in_memory_and_a_store_that_is_not_there_are_refused(tmp_path):
    for store, code in (("mem:", 64), (str(tmp_path / "nothing"), 69)):
        done = subprocess.run([BINARY, "backup", "--store", store, str(tmp_path / "b")],
            capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done
    assert left_beside(tmp_path / "b") == []
