"""once run: one child, exact replays, conflicts, bounds, signals."""
import ctypes
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import threading
import time

import pytest
import stores
from conftest import BINARY, TIMEOUT_S


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


def wait_until(condition, seconds=30):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.01)


def test_a_duplicate_replays_output_errors_and_code_without_running(once, tmp_path):
    command = ["sh", "-c", "echo ran >> runs; printf 'out\\0\\377'; printf 'err\\n' >&2; exit 7"]
    first = once.run("a", *command)
    again = once.run("a", *command)
    assert (first.code, first.out, first.err) == (7, b"out\0\xff", b"err\n")
    assert (again.code, again.out, again.err) == (first.code, first.out, first.err)
    assert lines(tmp_path / "runs") == ["ran"]


class Watch:
    """The names of files that appear in a directory."""

    CREATED, NONBLOCK = 0x100, 0x800

    def __init__(self, directory):
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(self.NONBLOCK)
        assert libc.inotify_add_watch(self.fd, os.fsencode(directory), self.CREATED) >= 0

    def close(self):
        events, names, at = os.read(self.fd, 1 << 16), set(), 0
        os.close(self.fd)
        while at < len(events):
            size, = struct.unpack_from("I", events, at + 12)
            names.add(events[at + 16:at + 16 + size].rstrip(b"\0").decode())
            at += 16 + size
        return names


@stores.journal_only("only a journal times its ways of writing")
def test_the_disk_is_not_timed_for_two_commits(once, tmp_path):
    assert once.run("a", "true").code == 0
    watch = Watch(tmp_path / "once-data")
    assert once.run("b", "true").code == 0
    names = watch.close()
    assert "reached.tmp" in names and "probe.tmp" not in names


@pytest.mark.parametrize("code", [0, 1, 2, 64, 65, 75, 125, 126, 127, 255])
def test_every_exit_code_passes_through_and_is_replayed(once, code):
    command = ["sh", "-c", f"exit {code}"]
    assert once.run("a", *command).code == code
    done = once.run("a", *command, options=["--json"])
    assert done.code == code
    document = json.loads(done.text)
    assert (document["decision"], document["exit_code"]) == ("duplicate_replayed", code)
    assert document["status"] == ("executed" if code == 0 else "failed")


def test_a_failure_runs_again_only_when_asked(once, tmp_path):
    command = ["sh", "-c", "echo ran >> runs; test -e fixed"]
    assert once.run("a", *command).code == 1
    (tmp_path / "fixed").touch()
    assert once.run("a", *command).code == 1
    assert once.run("a", *command, options=["--retry-failed"]).code == 0
    assert once.run("a", *command, options=["--retry-failed"]).code == 0
    assert len(lines(tmp_path / "runs")) == 2


@stores.journal_only("only a journal is locked")
def test_a_locked_store_is_waited_for_as_long_as_asked(once, tmp_path):
    """A process of a different kind may hold it for longer than once run does."""
    assert once.run("a", "true").code == 0
    with (tmp_path / "once-data/lock").open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        threading.Timer(6.5, fcntl.flock, (lock, fcntl.LOCK_UN)).start()
        assert once.run("b", "true", options=["--wait", "60s"]).code == 0
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = once.run("c", "true", options=["--wait", "0s"])
        assert refused.code == 125 and b"in use by pid" in refused.err


def test_megabytes_come_back_byte_for_byte(once, tmp_path):
    data = os.urandom(3 << 20)
    (tmp_path / "data").write_bytes(data)
    command = ["sh", "-c", "cat data; head -c 100000 data >&2"]
    for _ in range(2):
        done = once.run("a", *command)
        assert (done.code, done.out, done.err) == (0, data, data[:100000])


def test_order_of_the_two_streams_is_kept(once):
    command = ["sh", "-c",
        "for i in 1 2 3; do echo o$i; sleep 0.05; echo e$i >&2; sleep 0.05; done"]
    expected = b"o1\ne1\no2\ne2\no3\ne3\n"
    for _ in range(2):
        process = once.start("run", "-k", "a", "--", *command, stderr=subprocess.STDOUT)
        out, _ = process.communicate(timeout=TIMEOUT_S)
        assert out == expected


def test_output_is_shown_while_the_command_runs(once, tmp_path):
    process = once.start("run", "-k", "a", "--", "sh", "-c",
        "echo now; while ! test -e go; do sleep 0.02; done; echo then")
    assert process.stdout.readline() == b"now\n"
    assert process.poll() is None
    (tmp_path / "go").touch()
    out, _ = process.communicate(timeout=TIMEOUT_S)
    assert out == b"then\n"


def test_standard_input_reaches_the_command(once):
    assert once.run("a", "cat", stdin=b"hello").out == b"hello"


def test_the_command_is_told_who_it_is(once):
    done = once.run("key one", "sh", "-c", "env | grep ^ONCE_ | sort",
        env={"ONCE_ATTEMPT": "99"})
    facts = dict(line.split("=", 1) for line in done.text.splitlines())
    assert re.fullmatch(r"op_[0-9a-f-]{36}", facts["ONCE_OPERATION_ID"])
    assert int(facts["ONCE_FENCE"]) > 0
    assert (facts["ONCE_ATTEMPT"], facts["ONCE_IDEMPOTENCY_KEY"]) == ("1", "key one")


# ---- what is compared


def test_other_arguments_are_a_conflict_that_shows_what_differs(once, tmp_path):
    once.run("a", "sh", "-c", "echo ran >> runs; echo secret-output", "name", "100")
    done = once.run("a", "sh", "-c", "echo ran >> runs; echo secret-output", "name", "200")
    assert (done.code, done.out) == (65, b"")
    assert "once: conflict: key 'a' was used with a different command" in done.message
    assert "/argv/4 is now '200'" in done.message
    assert "hint: " in done.message
    assert lines(tmp_path / "runs") == ["ran"]
    document = json.loads(once.run("a", "true", options=["--json"]).text)
    assert document["decision"] == "conflict_rejected"
    assert "stdout" not in document and "exit_code" not in document


def test_declared_variables_are_compared_and_others_are_not(once):
    def run(**env):
        return once.run("a", "true", options=["--env", "AMOUNT", "--env", "AMOUNT"], env=env).code

    assert run(AMOUNT="1", OTHER="1") == 0
    assert run(AMOUNT="1", OTHER="2") == 0
    assert run(AMOUNT="2") == 65
    assert run() == 65
    assert run(AMOUNT="") == 65


@pytest.mark.parametrize("changed", ["FIRST", "SECOND", "THIRD"])
def test_each_of_several_declared_variables_is_compared(once, changed):
    names = ["FIRST", "SECOND", "THIRD"]
    options = [word for name in names for word in ("--env", name)]
    env = dict.fromkeys(names, "1")
    assert once.run("a", "true", options=options, env=env).code == 0
    assert once.run("a", "true", options=options, env={**env, changed: "2"}).code == 65


def test_unset_and_empty_variables_differ(once):
    assert once.run("a", "true", options=["--env", "NOT_THERE"]).code == 0
    assert once.run("a", "true", options=["--env", "NOT_THERE"], env={"NOT_THERE": ""}).code == 65


def test_the_working_directory_is_compared_unless_told_not_to(once, tmp_path):
    store = ["--store", stores.url_of(tmp_path / "store")]
    (tmp_path / "sub").mkdir()
    for options, code in ((store, 65), ([*store, "--ignore-cwd"], 0)):
        key = f"key-{code}"
        assert once.run(key, "true", options=options).code == 0
        done = once.run(key, "true", options=options, cwd=tmp_path / "sub")
        assert done.code == code, done


def test_arguments_that_are_not_utf8_are_compared_by_their_bytes(once):
    assert once.run("a", b"printf", b"%s", b"\xff\xfe").out == b"\xff\xfe"
    assert once.run("a", b"printf", b"%s", b"\xff\xfe").out == b"\xff\xfe"
    assert once.run("a", b"printf", b"%s", b"\xff\xfd").code == 65


def test_scopes_and_principals_are_apart(once, tmp_path):
    command = ["sh", "-c", "echo ran >> runs"]
    for options in ([], ["--scope", "other"], ["--principal", "alice"], ["--principal", "bob"]):
        for _ in range(2):
            assert once.run("a", *command, options=options).code == 0
    assert len(lines(tmp_path / "runs")) == 4


def test_after_the_window_it_runs_again(once, tmp_path):
    command = ["sh", "-c", "echo ran >> runs"]
    once.run("a", *command, options=["--ttl", "5s"])
    sealed_by = time.monotonic()
    once.run("a", *command, options=["--ttl", "5s"])
    assert len(lines(tmp_path / "runs")) == 1
    time.sleep(max(0, sealed_by + 5.1 - time.monotonic()))
    once.run("a", *command, options=["--ttl", "5s"])
    assert len(lines(tmp_path / "runs")) == 2


# ---- not started


def test_a_command_that_is_not_there_is_127_and_leaves_the_key_free(once, script, tmp_path):
    done = once.run("a", "./script.sh")
    assert (done.code, done.out) == (127, b"")
    assert done.message == "once: cannot run './script.sh': command not found\n"
    script("echo now")
    assert once.run("a", "./script.sh").text == "now\n"
    assert json.loads(once("show", "--key", "a", "--json").text)["attempt"] == 2


def test_a_command_that_cannot_be_executed_is_126_and_leaves_the_key_free(once, tmp_path):
    (tmp_path / "data").write_text("no program")
    done = once.run("a", "./data")
    assert done.code == 126
    assert "cannot run './data': Permission denied" in done.message
    assert json.loads(once("show", "--key", "a", "--json").text)["status"] == "released"


def test_a_key_that_is_too_long_is_64(once):
    done = once.run("k" * 256, "true")
    assert done.code == 64
    assert "255" in done.message


# ---- the bound


def test_past_the_bound_the_run_succeeds_and_a_replay_says_what_is_missing(once):
    command = ["sh", "-c", "head -c 100000 /dev/zero | tr '\\0' x; echo later >&2; exit 3"]
    options = ["--max-output", "64KiB"]
    first = once.run("a", *command, options=options)
    assert (first.code, first.out, first.err) == (3, b"x" * 100000, b"later\n")
    again = once.run("a", *command, options=options)
    assert (again.code, again.out) == (3, b"x" * 65536)
    dropped = 100000 - 65536
    assert f"once: {dropped + 6} bytes of the output of op_" in again.message
    assert f"(standard output {dropped}, standard error 6)" in again.message
    document = json.loads(once.run("a", *command, options=[*options, "--json"]).text)
    assert (document["stdout_dropped"], document["stderr_dropped"]) == (dropped, 6)


def test_nothing_retained_at_a_bound_of_zero(once):
    assert once.run("a", "echo", "x", options=["--max-output", "0"]).text == "x\n"
    again = once.run("a", "echo", "x", options=["--max-output", "0"])
    assert (again.code, again.out) == (0, b"")
    assert "2 bytes of the output" in again.message


# ---- at the same time


def test_eight_at_once_run_one_child_and_all_get_its_output(once, tmp_path):
    command = ["sh", "-c", "echo ran >> runs; sleep 0.3; echo done"]
    calls = [once.start("run", "-k", "a", "--wait", "60s", "--", *command) for _ in range(8)]
    for call in calls:
        out, err = call.communicate(timeout=TIMEOUT_S)
        assert (call.returncode, out, err) == (0, b"done\n", b"")
    assert lines(tmp_path / "runs") == ["ran"]


def test_other_keys_run_beside_each_other(once, tmp_path):
    """Each waits for the other's file: if the store were locked meanwhile, neither would end."""
    def start(mine, other):
        return once.start("run", "-k", mine, "--", "sh", "-c",
            f"touch {mine}; while ! test -e {other}; do sleep 0.02; done")

    both = [start("one", "two"), start("two", "one")]
    for call in both:
        assert call.wait(timeout=60) == 0
        call.communicate()


def test_in_progress_elsewhere_is_75_after_the_wait(once, tmp_path):
    holder = once.start("run", "-k", "a", "--", "sh", "-c",
        "touch started; while ! test -e go; do sleep 0.02; done; echo out")
    wait_until((tmp_path / "started").exists)
    command = ["sh", "-c", "touch started; while ! test -e go; do sleep 0.02; done; echo out"]
    began = time.monotonic()
    done = once.run("a", *command, options=["--wait", "300ms"])
    assert (done.code, done.out) == (75, b"")
    assert time.monotonic() - began >= 0.3
    assert "once: in progress: 'a' is running elsewhere (operation op_" in done.message
    document = json.loads(once.run("a", *command, options=["--wait", "0s", "--json"]).text)
    assert document["decision"] == "in_progress"
    assert once("resolve", document["operation_id"], "--status", "failed",
        "--reason", "impatient").code == 75
    waiter = once.start("run", "-k", "a", "--wait", "60s", "--", *command)
    (tmp_path / "go").touch()
    assert waiter.communicate(timeout=TIMEOUT_S)[0] == b"out\n"
    assert waiter.returncode == 0
    holder.communicate(timeout=TIMEOUT_S)


def test_the_lease_is_renewed_while_the_command_runs(once, tmp_path):
    command = ["sh", "-c", "touch started; until test -e go; do sleep 0.05; done; echo out"]
    options = ["--lease", "6s"]
    holder = once.start("run", "-k", "a", *options, "--", *command)
    wait_until((tmp_path / "started").exists)
    time.sleep(7)
    done = once.run("a", *command, options=[*options, "--wait", "0s", "--on-unknown", "takeover"])
    assert done.code == 75 and "in progress" in done.message, done
    (tmp_path / "go").touch()
    out, err = holder.communicate(timeout=TIMEOUT_S)
    assert (holder.returncode, out, err) == (0, b"out\n", b"")
    assert "lease_renewed" in once("tail", "-n", "20").text


def test_a_lease_that_is_renewed_is_not_asked_about_again(once, tmp_path):
    """Each begin of a waiter is an entry of evidence: it begins again when something changed."""
    command = ["sh", "-c", "touch started; until test -e go; do sleep 0.05; done; echo out"]
    holder = once.start("run", "-k", "a", "--lease", "1s", "--", *command)
    wait_until((tmp_path / "started").exists)
    waiter = once.start("run", "-k", "a", "--lease", "1s", "--wait", "60s", "--", *command)
    time.sleep(5)
    (tmp_path / "go").touch()
    assert waiter.communicate(timeout=TIMEOUT_S)[0] == b"out\n"
    assert holder.communicate(timeout=TIMEOUT_S)[0] == b"out\n"
    assert json.loads(once("ls", "--json").text)[0]["duplicates"] <= 3


def test_the_lease_of_a_run_that_stands_still_is_not_waited_out(once, tmp_path):
    """It lives, so only its lease says that nobody knows."""
    command = ["sh", "-c", "touch started; until test -e go; do sleep 0.05; done; echo out"]
    holder = once.start("run", "-k", "a", "--lease", "5s", "--", *command)
    wait_until((tmp_path / "started").exists)
    holder.send_signal(signal.SIGSTOP)
    done = once.run("a", *command, options=["--wait", "30s"])
    assert done.code == 75 and "unknown" in done.message, done
    (tmp_path / "go").touch()
    holder.send_signal(signal.SIGCONT)
    assert holder.communicate(timeout=TIMEOUT_S)[0] == b"out\n"


@stores.journal_only("only a journal is locked")
def test_an_end_is_recorded_although_the_store_is_locked_past_the_lease(once, tmp_path):
    holder = once.start("run", "-k", "a", "--lease", "1s", "--", "sh", "-c",
        "touch started; until test -e go; do sleep 0.02; done; echo out")
    wait_until((tmp_path / "started").exists)
    with (tmp_path / "once-data/lock").open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (tmp_path / "go").touch()
        time.sleep(6.5)  # one try waits for five seconds
    assert holder.communicate(timeout=TIMEOUT_S)[0] == b"out\n"
    assert holder.returncode == 0
    assert json.loads(once("ls", "--json").text)[0]["status"] == "executed"


# ---- signals


@pytest.mark.parametrize("name", ["HUP", "INT", "QUIT", "TERM", "USR1", "USR2"])
def test_signals_are_passed_on(once, name):
    number = getattr(signal, f"SIG{name}")
    if signal.getsignal(number) == signal.SIG_IGN:  # as HUP is below nohup: sh cannot trap it then
        signal.signal(number, signal.SIG_DFL)
    process = once.start("run", "-k", name, "--", "sh", "-c",
        f"trap 'echo got {name}; exit 9' {name}; echo ready; while :; do sleep 0.02; done")
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    out, _ = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (9, f"got {name}\n".encode())


COUNT_INTERRUPTS = """
import os, signal, sys, time
if sys.argv[1] == "apart":
    os.setpgid(0, 0)
signal.signal(signal.SIGINT, lambda *_: open("got", "a").write("INT\\n"))
open("ready", "w").close()
while not os.path.exists("sent"):
    time.sleep(0.01)
time.sleep(1)
"""


@pytest.mark.parametrize("group, expected", [("same", ["INT"]), ("apart", [])])
def test_what_the_terminal_sends_to_the_group_is_not_sent_again(once, tmp_path, group, expected):
    """A command apart from the group gets nothing from the terminal, so nothing from us either."""
    try:
        pid, terminal = pty.fork()
    except OSError:
        pytest.skip("there are no pseudo-terminals here")
    if pid == 0:
        os.chdir(tmp_path)
        os.execve(BINARY, [BINARY, "run", "-k", "a", "--", "/usr/bin/python3", "-c",
            COUNT_INTERRUPTS, group], once.env)
    wait_until((tmp_path / "ready").exists)
    os.write(terminal, b"\x03")
    (tmp_path / "sent").touch()
    try:
        while os.read(terminal, 4096):
            pass
    except OSError:
        pass  # how a terminal ends
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert lines(tmp_path / "got") == expected


def test_a_command_killed_by_a_signal_is_unknown(once, tmp_path):
    command = ["sh", "-c", "echo ran >> runs; kill -TERM $$"]
    done = once.run("a", *command)
    assert done.code == 75
    assert "killed by signal 15" in done.message and "once resolve op_" in done.message
    again = once.run("a", *command)
    assert again.code == 75
    assert "once: unknown: whether 'a' took effect is not known" in again.message
    assert "killed by signal 15" in again.message
    assert lines(tmp_path / "runs") == ["ran"]
    assert json.loads(once("show", "--key", "a", "--json").text)["status"] == "unknown"


def test_a_command_that_blocks_sigpipe_or_not_starts_with_the_default(once):
    done = once.run("a", "sh", "-c", "yes | head -n1; kill -PIPE $$; echo still here")
    assert done.code == 75  # killed by it, so it was not ignored


# ---- streams that break


def test_when_nobody_reads_the_command_goes_on_and_is_recorded(once, tmp_path):
    read_end, write_end = os.pipe()
    process = once.start("run", "-k", "a", "--", "sh", "-c",
        "echo one; while ! test -e go; do sleep 0.02; done; echo two; touch finished",
        stdout=write_end)
    os.close(write_end)
    assert os.read(read_end, 4) == b"one\n"
    os.close(read_end)
    (tmp_path / "go").touch()
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 74
    assert b"Broken pipe" in err
    assert (tmp_path / "finished").exists()
    again = once.run("a", "sh", "-c",
        "echo one; while ! test -e go; do sleep 0.02; done; echo two; touch finished")
    assert (again.code, again.out) == (0, b"one\ntwo\n")


def test_a_reader_that_stalls_does_not_keep_the_end_from_being_recorded(once):
    process = once.start("run", "-k", "a", "--", "sh", "-c",
        "head -c 100000 /dev/zero; echo end >&2")  # more than one pipe holds, less than two

    def status():
        done = once("show", "--key", "a", "--json")
        return json.loads(done.text)["status"] if done.code == 0 else None

    wait_until(lambda: status() == "executed")
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (len(out), err, process.returncode) == (100000, b"end\n", 0)


def test_a_closed_standard_output_is_an_error_and_not_a_file_of_the_store(once):
    done = subprocess.run(["sh", "-c", 'exec "$0" run -k a -- echo x >&-', BINARY],
        cwd=once.directory, env=once.env, capture_output=True, timeout=TIMEOUT_S)
    assert done.returncode == 74
    assert once("verify").code == 0
    assert len(json.loads(once("ls", "--json").text)) == 1


def test_what_is_left_running_is_not_waited_for(once):
    began = time.monotonic()
    done = once.run("a", "sh", "-c", "sleep 20 & echo out")
    assert (done.code, done.out) == (0, b"out\n")
    assert time.monotonic() - began < 10


# ---- JSON


def test_json_has_the_output_and_nothing_is_streamed(once):
    command = ["sh", "-c", "echo out; echo err >&2; exit 4"]
    done = once.run("a", *command, options=["--json"])
    assert (done.code, done.err) == (4, b"")
    document = json.loads(done.text)
    assert re.fullmatch(r"op_[0-9a-f-]{36}", document.pop("operation_id"))
    assert document.pop("fence") > 0
    assert document == {"decision": "first_seen", "scope": "run", "key": "a", "attempt": 1,
        "status": "failed", "recorded": True, "exit_code": 4, "stdout": "out\n",
        "stdout_dropped": 0, "stderr": "err\n", "stderr_dropped": 0}


def test_json_of_bytes_that_are_no_text_is_base64(once):
    document = json.loads(once.run("a", "printf", "\\377\\376", options=["--json"]).text)
    assert document["stdout_base64"] == "//4=" and "stdout" not in document


def test_the_request_id_is_in_the_evidence(once):
    once.run("a", "true", options=["--request-id", "req-1"])
    assert '"request_id":"req-1"' in once("tail", "--json").text
