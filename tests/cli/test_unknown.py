"""SIGKILL of once itself, what is said then, and how it is settled."""
import datetime
import fcntl
import json
import os
import pty
import re
import signal
import struct
import termios
import time

import pytest
import stores
from conftest import TIMEOUT_S
from fake_server import Fake

LEASE = ["--lease", "400ms"]  # of what is killed or stopped
TAKEOVER = ["--lease", "60s", "--on-unknown", "takeover"]  # it is to end well: no short lease
COMMAND = ["sh", "-c", "echo ran >> runs; touch started; while ! test -e go; do sleep 0.02; done"]


@pytest.fixture
def killed(once, tmp_path):
    """A run whose once was killed in the middle; the id of its operation."""
    process = once.start("run", "-k", "a", *LEASE, "--", *COMMAND)
    until = time.monotonic() + 30
    while not (tmp_path / "started").exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(timeout=TIMEOUT_S)
    (tmp_path / "go").touch()  # the command goes on by itself: let it end
    process.communicate(timeout=TIMEOUT_S)
    operation = json.loads(once("show", "--key", "a", "--json").text)["operation_id"]
    time.sleep(0.6)
    return operation


def runs(tmp_path):
    return (tmp_path / "runs").read_text().splitlines()


def test_the_next_call_is_75_and_says_how_to_look_and_settle(once, tmp_path, killed):
    done = once.run("a", *COMMAND, options=LEASE)
    assert (done.code, done.out) == (75, b"")
    assert f"once: unknown: whether 'a' took effect is not known (operation {killed}, attempt 1" \
        in done.message
    for line in (f"hint: check:   once show {killed}", f"hint:          once why {killed}",
            f"hint: settle:  once resolve {killed} --fence "):
        assert line in done.message
    assert "--status executed|failed|not_executed --reason TEXT" in done.message
    assert runs(tmp_path) == ["ran"]
    document = json.loads(once.run("a", *COMMAND, options=[*LEASE, "--json"]).text)
    assert (document["decision"], document["operation_id"]) == ("held_unknown", killed)


def test_it_is_found_before_its_key_is_used_again(once, killed):
    """No server looks after the store, so nothing has been written since it was killed."""
    if stores.KIND == "redis":  # who only reads it is at the time of the last commit of anybody
        assert once.run("b", "true").code == 0
    (found,) = json.loads(once("ls", "--status", "unknown", "--json").text)
    assert found["operation_id"] == killed and found["reason"] == "lease_expired"
    assert found["unknown_since"] == found["updated_at"] and "lease_expires_at" not in found
    assert json.loads(once("ls", "--status", "in_progress", "--json").text) == []
    listed = {one["key"]: one["status"] for one in json.loads(once("ls", "--json").text)}
    assert listed["a"] == "unknown"
    assert json.loads(once("show", killed, "--json").text)["status"] == "unknown"
    assert once("why", "--key", "a").text.startswith(f"{killed} is unknown: find out whether")
    assert re.search(r"^WARN +unknown +1 unknown operation, the oldest for", once("doctor").text,
        re.M)
    done = once("resolve", "--key", "a", "--status", "failed", "--reason", "r", "--yes")
    assert done.code == 0, done
    assert json.loads(once("show", killed, "--json").text)["status"] == "failed"


def test_what_still_runs_is_in_progress(once, tmp_path):
    process = once.start("run", "-k", "a", "--lease", "30s", "--", *COMMAND)
    until = time.monotonic() + 30
    while not (tmp_path / "started").exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    assert json.loads(once("ls", "--status", "unknown", "--json").text) == []
    (found,) = json.loads(once("ls", "--status", "in_progress", "--json").text)
    assert (found["key"], found["status"]) == ("a", "in_progress") and "lease_expires_at" in found
    (tmp_path / "go").touch()
    process.communicate(timeout=TIMEOUT_S)


def test_the_hints_name_the_store_when_it_is_not_the_usual_one(once, tmp_path):
    store = f"journal:{tmp_path}/elsewhere"
    done = once.run("a", "sh", "-c", "kill -9 $$", options=["--store", store])
    assert done.code == 75
    line = re.search(r"once show (\S+) --store (\S+)\n", done.message)
    assert line.group(2) == store
    assert once("show", line.group(1), "--store", store).code == 0


def test_settled_as_executed_it_is_replayed(once, tmp_path, killed):
    (tmp_path / "answer").write_bytes(b"it was charged\n")
    done = once("resolve", killed, "--status", "executed", "--reason", "looked at the ledger",
        "--effect-id", "ch_1", "--outcome", "answer")
    assert (done.code, done.text) == (0, f"{killed}: executed\n"), done
    again = once.run("a", *COMMAND, options=LEASE)
    assert (again.code, again.out, again.err) == (0, b"it was charged\n", b"")
    assert runs(tmp_path) == ["ran"]
    shown = json.loads(once("show", killed, "--json").text)
    assert (shown["status"], shown["effect_id"]) == ("executed", "ch_1")
    story = once("why", killed).text
    assert "looked at the ledger" in story
    assert "resolve: resolved, attempt 1" in story and "fence 0" not in story  # it names none


def test_settled_as_failed_it_is_replayed_with_its_code(once, tmp_path, killed):
    done = once("resolve", killed, "--status", "failed", "--reason", "r", "--exit-code", "9")
    assert done.code == 0
    assert once.run("a", *COMMAND, options=LEASE).code == 9
    assert runs(tmp_path) == ["ran"]


def test_settled_as_not_executed_it_runs_again(once, tmp_path, killed):
    done = once("resolve", killed, "--status", "not_executed", "--reason", "no trace of it")
    assert done.code == 0
    assert once.run("a", *COMMAND, options=LEASE).code == 0
    assert runs(tmp_path) == ["ran", "ran"]


def test_settling_twice_is_the_same_or_refused(once, killed):
    words = ["resolve", killed, "--status", "executed", "--reason", "r"]
    assert once(*words).code == 0
    assert once(*words).code == 0
    done = once("resolve", killed, "--status", "failed", "--reason", "r")
    assert done.code == 65
    assert "was settled differently before; nothing changed" in done.message


def test_settling_what_is_not_there(once):
    once.run("a", "true")
    done = once("resolve", "op_01920000-0000-7000-8000-000000000001", "--status", "failed",
        "--reason", "r")
    assert done.code == 65, done
    assert once("resolve", "nonsense", "--status", "failed", "--reason", "r").code == 64


def test_a_resolve_that_names_an_older_attempt_changes_nothing(once, tmp_path, killed):
    fence = json.loads(once("show", killed, "--json").text)["fence"]
    kill = ["--on-unknown", "takeover"]
    (tmp_path / "go").unlink()
    second = once.start("run", "-k", "a", *LEASE, *kill, "--", *COMMAND)
    until = time.monotonic() + 30
    while len(runs(tmp_path)) < 2:
        assert time.monotonic() < until
        time.sleep(0.01)
    os.kill(second.pid, signal.SIGKILL)
    second.wait(timeout=TIMEOUT_S)
    (tmp_path / "go").touch()
    second.communicate(timeout=TIMEOUT_S)
    time.sleep(0.6)
    words = ["resolve", killed, "--status", "not_executed", "--reason", "looked at the first"]
    done = once(*words, "--fence", str(fence))
    assert done.code == 65 and "a newer attempt of" in done.message, done
    newest = json.loads(once("show", killed, "--json").text)["fence"]
    assert newest > fence
    assert once(*words, "--fence", str(newest)).code == 0


def test_resolve_as_json(once, killed):
    """The document of POST /v1/operations/{operation_id}/resolve."""
    words = ["resolve", killed, "--status", "executed", "--reason", "r", "--json"]
    for repeated in (None, True):
        document = json.loads(once(*words).text)
        assert (document["decision"], document.get("repeated")) == ("resolved", repeated)
        assert (document["operation_id"], document["status"]) == (killed, "executed")


def test_takeover_runs_it_again_under_a_new_fence(once, tmp_path, killed):
    fence = json.loads(once("show", killed, "--json").text)["fence"]
    done = once.run("a", *COMMAND, options=[*TAKEOVER, "--json"])
    document = json.loads(done.text)
    assert (done.code, document["decision"], document["attempt"]) == (0, "first_seen", 2)
    assert document["fence"] > fence
    assert runs(tmp_path) == ["ran", "ran"]


def stop_outside_the_store(process, lock):
    """Stop it at a moment when it does not hold the lock to renew its lease. (A shared store has
    none: what it holds up there ends by itself.)"""
    if stores.SHARED:
        os.kill(process.pid, signal.SIGSTOP)
        return
    for _ in range(100):
        os.kill(process.pid, signal.SIGSTOP)
        with open(lock) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                os.kill(process.pid, signal.SIGCONT)
                time.sleep(0.02)
    raise AssertionError("it never lets go of the store")


def test_a_run_that_lost_its_grant_says_so_loudly(once, tmp_path):
    """Stopped past its lease, taken over by another, and then woken."""
    command = ["sh", "-c", "echo ran >> runs; while ! test -e go; do sleep 0.02; done; echo out"]
    slow = once.start("run", "-k", "a", *LEASE, "--", *command)
    until = time.monotonic() + 30
    while not (tmp_path / "runs").exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    stop_outside_the_store(slow, tmp_path / "once-data/lock")
    time.sleep(1.0)
    (tmp_path / "go").touch()
    taken = once.run("a", *command, options=TAKEOVER)
    assert (taken.code, taken.out) == (0, b"out\n")
    os.kill(slow.pid, signal.SIGCONT)
    _, err = slow.communicate(timeout=TIMEOUT_S)
    assert slow.returncode == 125
    assert b"stale_fence" in err
    assert once.run("a", *command).out == b"out\n"
    assert runs(tmp_path) == ["ran", "ran"]


def test_stopped_between_grant_and_start_nothing_is_unknown(once):
    """A signal that comes while the store is asked must not leave the operation hanging."""
    process = once.start("run", "-k", "a", "--", "sh", "-c", "sleep 0.2")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=TIMEOUT_S)
    found = once("show", "--key", "a", "--json")
    # Before the store was there, before the command, or the command died of it: never in progress.
    if found.code == 0:
        assert json.loads(found.text)["status"] in ("released", "unknown")


# --- The list of them -----------------------------------------------------------------------------

def ago(seconds, now):
    moment = now - datetime.timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03}Z"


WAITING = {"young": (3, "3s"), "minutes": (185, "3m"), "hours": (7300, "2h"),
    "days": (2 * 86400 + 5, "2d"), "to come": (-3600, "0s")}


@pytest.fixture
def waiting(once):
    """A server with unknown operations of every age, and how to ask it."""
    once.run("seed", "sh", "-c", "kill -9 $$")
    fake = Fake()
    fake.fill(once)
    seed = fake.operations[0]
    del seed["unknown_since"]
    now = datetime.datetime.now(datetime.timezone.utc)
    fake.operations = [{**seed, "key": key, "updated_at": ago(age, now),
        "unknown_since": ago(age, now),
        "reason": f"why of {key}", "operation_id": f"op_01920000-0000-7000-8000-{i:012}"}
        for i, (key, (age, _)) in enumerate(WAITING.items())]
    fake.operations.append({**seed, "key": "settled", "status": "executed",
        "operation_id": "op_01920000-0000-7000-8000-00000000beef"})
    url = fake.serve()
    yield fake, lambda *words, **how: once("ls", *words, "--server", url, **how)
    fake.end()


NEWEST_FIRST = ["to come", "young", "minutes", "hours", "days"]


def test_the_list_says_how_long_and_why_the_newest_first(waiting):
    fake, ls = waiting
    for fake.page in (1000, 1):
        header, *lines = ls("--status", "unknown").text.splitlines()
        assert re.split(r"  +", header) == ["OPERATION", "STATUS", "AGE", "TRY", "DUP",
            "SCOPE KEY", "REASON"]
        assert [re.split(r"  +", line)[5:] for line in lines] == \
            [[f"run {key}", f"why of {key}"] for key in NEWEST_FIRST]
        assert [line.split()[1:3] for line in lines] == \
            [["unknown", WAITING[key][1]] for key in NEWEST_FIRST]
        assert len({line.index("why of") for line in [*lines]} |
            {header.index("REASON")}) == 1, "not in one column"


def test_a_limit_leaves_the_newest(waiting):
    _, ls = waiting
    shown = json.loads(ls("--status", "unknown", "--limit", "2", "--json").text)
    assert [op["key"] for op in shown] == ["to come", "young"]
    assert len(ls("--status", "unknown", "--limit", "1").text.splitlines()) == 2


def test_as_json_since_age_and_reason_are_members(waiting):
    _, ls = waiting
    shown = json.loads(ls("--status", "unknown", "--json").text)
    assert [op["key"] for op in shown] == NEWEST_FIRST
    for op in shown:
        age = WAITING[op["key"]][0] * 1000
        assert op["unknown_since"] == op["updated_at"]
        assert max(age, 0) <= op["age_ms"] < max(age, 0) + 60000
        assert op["reason"] == f"why of {op['key']}"
    everything = {op["key"]: op for op in json.loads(ls("--json").text)}
    assert everything["days"]["unknown_since"] == everything["days"]["updated_at"]
    assert "unknown_since" not in everything["settled"]
    assert json.loads(ls("--status", "unknown", "--key", "nobody", "--json").text) == []
    assert ls("--status", "unknown", "--key", "nobody").text == ""


def on_a_terminal(once, columns, *words):
    """What the program writes to a terminal so wide."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = once.start(*words, stdout=theirs, env={"NO_COLOR": "1"})
    os.close(theirs)
    text = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # EIO: the other side is gone
            break
        text += piece
    os.close(ours)
    assert process.wait(timeout=TIMEOUT_S) == 0
    return text.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [60, 80, 100, 120, 200, 1000])
def test_a_long_last_word_is_cut_on_a_terminal_only(once, waiting, columns):
    fake, ls = waiting
    word = "nobody knows \x1b[31m what became of \u00fc\u00fc\u00fc " + "and so on " * 20 + "end"
    safe = word.replace("\x1b", "\\x1b")
    fake.operations = [{**fake.operations[0], "key": "k", "reason": word}]
    words = ("ls", "--status", "unknown", "--server", fake.serve())
    assert ls("--status", "unknown").text.endswith(safe + "\n")
    line = on_a_terminal(once, columns, *words).splitlines()[1]
    if columns == 1000:
        assert line.endswith(safe)
        return
    assert len(line) % columns == 0 and line.endswith("...")
    shown = line[line.index("nobody"):-3]
    assert len(shown) >= 20 and safe.startswith(shown)


def test_a_duplicate_does_not_make_it_young_again(once):
    once.run("a", "sh", "-c", "kill -9 $$")
    first = json.loads(once("ls", "--status", "unknown", "--json").text)[0]
    time.sleep(0.3)
    assert once.run("a", "sh", "-c", "kill -9 $$").code == 75
    again = json.loads(once("ls", "--status", "unknown", "--json").text)[0]
    assert again["unknown_since"] == first["unknown_since"]
    assert again["duplicates"] == 1
    assert again["age_ms"] >= first["age_ms"] + 300
    assert again["reason"] in once("ls", "--status", "unknown").text
