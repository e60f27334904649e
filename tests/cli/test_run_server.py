"""once run through a server: found because it holds the store, or named; and what kills do to it.

Effects are counted in a file that the command appends to. No schedule of kills may make two of one
key, and what is shown of a run is the same whoever recorded it.
"""
import contextlib
import json
import os
import re
import signal
import socket
import threading
import time

import pytest
from conftest import Done

WAIT_S = 60  # far above what anything here takes; a hang is a failure, not a wait
BOTH = "printf out; printf err >&2; printf '\\377\\000' ; exit 7"


class Server:
    """once serve on the store of the test, on a socket of its own so that a restart is found."""

    def __init__(self, once, *options):
        self.once, self.options = once, options
        self.process = None
        self.url = f"unix:{once.directory}/api.sock"

    def start(self):
        self.process = self.once.start("serve", "--listen", self.url, *self.options,
            stderr=open(self.once.directory / "serve.log", "ab"))
        assert self.process.stdout.readline().startswith(b"once "), "it did not start"
        return self

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.terminate()
        assert self.process.wait(WAIT_S) == 0


@pytest.fixture
def server(once):
    return Server(once).start()


@pytest.fixture(params=["found", "named"])
def place(request, server):
    return [] if request.param == "found" else ["--server", server.url]


def run(once, place, key, *command, options=()):
    return once("run", "-k", key, *place, *options, "--", *command)


def start(once, place, key, *command, options=()):
    return once.start("run", "-k", key, *place, *options, "--", *command)


def end(process):
    out, err = process.communicate(timeout=WAIT_S)
    return Done(process.returncode, out, err)


def effects(once):
    path = once.directory / "effects"
    return path.read_text().count("x") if path.exists() else 0


def until(condition, what):
    limit = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < limit, what
        time.sleep(0.02)


def shown(once, place, key):
    done = once("show", "--scope", "run", "--key", key, "--json", *place)
    assert done.code == 0, done
    return json.loads(done.text)


# --- As without one -------------------------------------------------------------------------------

def test_a_duplicate_gets_both_streams_and_the_exit_code_byte_for_byte(once, place):
    first = run(once, place, "k", "sh", "-c", f"printf x >> effects; {BOTH}")
    again = run(once, place, "k", "sh", "-c", f"printf x >> effects; {BOTH}")
    assert (first.code, first.out, first.err) == (7, b"out\xff\x00", b"err")
    assert (again.code, again.out, again.err) == (first.code, first.out, first.err)
    assert effects(once) == 1
    outcome = shown(once, place, "k")["outcome"]
    assert (outcome["exit_code"], outcome["format"]) == (7, "once-run/2")


def test_what_a_server_recorded_is_replayed_without_it_and_the_other_way_round(once, server):
    through = run(once, [], "a", "sh", "-c", BOTH)
    server.stop()
    assert run(once, [], "a", "sh", "-c", BOTH).out == through.out
    direct = run(once, [], "b", "sh", "-c", BOTH)
    server.start()
    for key, first in (("a", through), ("b", direct)):
        again = run(once, [], key, "sh", "-c", BOTH)
        assert (again.code, again.out, again.err) == (first.code, first.out, first.err)


def test_another_command_under_the_key_is_a_conflict_that_is_explained(once, place):
    assert run(once, place, "k", "echo", "1").code == 0
    done = run(once, place, "k", "echo", "2")
    assert (done.code, done.out) == (65, b"")
    assert "/argv/1 is now '2'" in done.message


def test_a_failed_command_is_tried_again_only_where_that_is_asked(once, place):
    command = ["sh", "-c", "printf x >> effects; exit 1"]
    assert [run(once, place, "k", *command).code for _ in range(2)] == [1, 1]
    assert effects(once) == 1
    assert run(once, place, "k", *command, options=["--retry-failed"]).code == 1
    assert effects(once) == 2


def test_a_command_that_cannot_start_leaves_the_key_free(once, place):
    assert run(once, place, "k", "./no-such-command").code == 127
    assert shown(once, place, "k")["status"] == "released"
    assert run(once, place, "k", "./no-such-command").code == 127


def test_the_document_is_the_same_from_the_store_the_server_and_the_api(once, server):
    import http.client
    import socket

    class Unix(http.client.HTTPConnection):
        def connect(self):
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.connect(server.url.removeprefix("unix:"))

    for key, script in (("text", "echo out"), ("bytes", BOTH), ("none", "true"),
            ("killed", "kill -9 $$")):
        run(once, [], key, "sh", "-c", script)
        named = once("show", "--scope", "run", "--key", key, "--json", "--server", server.url)
        found = once("show", "--scope", "run", "--key", key, "--json")
        api = Unix("localhost")
        api.request("GET", f"/v1/operations/{json.loads(named.text)['operation_id']}")
        body = api.getresponse().read()
        api.close()
        server.stop()
        local = once("show", "--scope", "run", "--key", key, "--json")
        listed = once("ls", "--json", "--key", key)
        server.start()
        assert named.out == found.out == local.out == body + b"\n", key
        assert b"null" not in body
        assert once("ls", "--json", "--key", key).out == listed.out


# --- When something is gone -----------------------------------------------------------------------

def test_nothing_runs_while_the_server_cannot_be_reached(once, server):
    server.kill()
    done = run(once, ["--server", server.url], "k", "sh", "-c", "printf x >> effects")
    assert (done.code, done.out, effects(once)) == (125, b"", 0)
    assert "cannot reach the server" in done.message


def test_the_lease_is_renewed_through_the_server_while_the_command_runs(once, place):
    process = start(once, place, "k", "sh", "-c", "until test -e go; do sleep 0.05; done",
        options=["--lease", "6s"])
    until(lambda: b"k" in once("ls", *place).out, "it did not begin")
    time.sleep(7)
    assert shown(once, place, "k")["status"] == "in_progress"
    (once.directory / "go").touch()
    assert end(process).code == 0
    assert shown(once, place, "k")["status"] == "executed"


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_server_that_restarts_while_the_command_runs_records_its_end(once, server, place, how):
    process = start(once, place, "k", "sh", "-c", "printf x >> effects; sleep 2; echo done",
        options=["--lease", "20s"])
    until(lambda: effects(once) == 1, "it did not run")
    getattr(server, how)()
    time.sleep(0.3)
    server.start()
    assert end(process).code == 0
    assert shown(once, place, "k")["status"] == "executed"
    assert run(once, place, "k", "sh", "-c",
        "printf x >> effects; sleep 2; echo done").out == b"done\n"
    assert effects(once) == 1


def test_the_end_is_recorded_when_the_server_comes_back_after_it(once, server):
    process = start(once, ["--server", server.url], "k", "sh", "-c",
        "printf x >> effects; until test -e go; do sleep 0.05; done; exit 3",
        options=["--lease", "60s"])
    until(lambda: effects(once) == 1, "it did not run")
    server.kill()
    (once.directory / "go").touch()
    time.sleep(2.5)
    assert process.poll() is None, "it gave up"
    server.start()
    assert end(process).code == 3
    assert shown(once, ["--server", server.url], "k")["outcome"]["exit_code"] == 3


def test_a_killed_run_is_unknown_and_is_never_run_again(once, server, place):
    process = start(once, place, "k", "sh", "-c", "printf x >> effects; sleep 30")
    until(lambda: effects(once) == 1, "it did not run")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for _ in range(2):
        done = run(once, place, "k", "sh", "-c", "printf x >> effects; sleep 30")
        assert done.code == 75, done
        assert "once resolve" in done.message
    assert effects(once) == 1
    operation = shown(once, place, "k")
    assert operation["status"] == "unknown"
    settle = ["resolve", operation["operation_id"], "--status", "executed", "--exit-code", "0",
        "--reason", "looked", *place]
    assert once(*settle).code == 0
    assert run(once, place, "k", "sh", "-c", "printf x >> effects; sleep 30").code == 0
    assert effects(once) == 1


def test_without_its_holder_on_this_machine_the_lease_decides(once, server):
    """As from a machine of its own: nobody can see that the process is gone."""
    process = start(once, ["--server", server.url], "k", "sh", "-c",
        "printf x >> effects; sleep 30", options=["--lease", "1s"])
    until(lambda: effects(once) == 1, "it did not run")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    until(lambda: shown(once, ["--server", server.url], "k")["status"] == "unknown",
        "the lease never ended")
    done = run(once, ["--server", server.url], "k", "sh", "-c", "printf x >> effects; sleep 30")
    assert (done.code, effects(once)) == (75, 1)


def test_both_killed_leave_one_effect_and_an_unknown_operation(once, server, place):
    process = start(once, place, "k", "sh", "-c", "printf x >> effects; sleep 30",
        options=["--lease", "2s"])
    until(lambda: effects(once) == 1, "it did not run")
    os.killpg(process.pid, signal.SIGKILL)
    server.kill()
    process.wait()
    server.start()
    done = run(once, place, "k", "sh", "-c", "printf x >> effects; sleep 30",
        options=["--wait", "5s"])
    assert (done.code, effects(once)) == (75, 1)
    assert shown(once, place, "k")["status"] == "unknown"


class SlowWay:
    """A network in front of the server that holds back what it answers until it is let go."""

    def __init__(self, path):
        self.path, self.answers = path, threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self.listener.accept()
            there = socket.socket(socket.AF_UNIX)
            there.connect(self.path)
            for pair in ((client, there, None), (there, client, self.answers)):
                threading.Thread(target=self._pass, args=pair, daemon=True).start()

    @staticmethod
    def _pass(source, to, gate):
        with contextlib.suppress(OSError):  # either end may close first
            while data := source.recv(1 << 16):
                if gate is not None:
                    gate.wait(WAIT_S)
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("verdict", ["settled", "untouched"])
def test_a_grant_whose_answer_outlived_its_lease_is_looked_into(once, server, verdict):
    """The answer to the begin is held up. The lease ends, somebody finds that nothing ran, and a
    different call runs it: then the first must not start. If nobody did, it may."""
    command = ["sh", "-c", "printf x >> effects"]
    own = ["--server", server.url]
    slow = SlowWay(server.url.removeprefix("unix:"))
    late = start(once, ["--server", slow.url], "k", *command, options=["--lease", "1s"])
    until(lambda: b"unknown" in once("ls", *own).out, "the lease never ended")
    if verdict == "settled":
        settled = once("resolve", "--key", "k", "--status", "not_executed", "--reason", "r",
            "--yes", *own)
        assert settled.code == 0, settled
        assert (run(once, own, "k", *command).code, effects(once)) == (0, 1)
    slow.answers.set()
    done = end(late)
    assert effects(once) == 1
    if verdict == "settled":
        assert done.code == 125 and "the command was not started" in done.message, done
    else:
        assert done.code == 0, done
    assert shown(once, own, "k")["status"] == "executed"


# --- Many at once ---------------------------------------------------------------------------------

def test_of_many_machines_one_runs_the_job_and_all_get_its_outcome(once, server):
    """Cron on N machines: each has its own working directory, so that is left out."""
    command = ["sh", "-c", "printf x >> \"$OUT\"; sleep 0.5; echo done; exit 5"]
    machines = []
    for i in range(8):
        (once.directory / f"machine{i}").mkdir()
        machines.append(once.start("run", "-k", "nightly", "--server", server.url, "--ignore-cwd",
            "--wait", "30s", "--", *command, cwd=once.directory / f"machine{i}",
            env={"OUT": str(once.directory / "effects")}))
    ends = [end(process) for process in machines]
    assert {(done.code, done.out) for done in ends} == {(5, b"done\n")}, ends
    assert effects(once) == 1


def test_a_run_inside_a_run(once, place):
    """Of another key it works; of its own it is told that it is in progress, and nothing hangs."""
    binary = once.start("--version")
    binary.wait()
    inner = [*binary.args[:1], "run", *place]
    done = run(once, place, "outer", *inner, "-k", "inner", "--", "echo", "deep")
    assert (done.code, done.out) == (0, b"deep\n")
    begun = time.monotonic()
    done = run(once, place, "same", *inner, "-k", "same", "--ignore-cwd", "--", "true")
    assert done.code in (65, 75), done  # another command under the key, or in progress
    assert time.monotonic() - begun < 20


def test_output_that_the_server_does_not_take_is_not_recorded_and_that_is_said(once):
    (once.directory / "once.yaml").write_text("limits: {body_bytes_max: 64KiB}\n")
    server = Server(once, "--config", "once.yaml").start()
    command = ["sh", "-c", "head -c 100000 /dev/zero | tr '\\\\0' y; exit 4"]
    first = run(once, ["--server", server.url], "k", *command)
    assert (first.code, len(first.out)) == (4, 100000)
    assert "not recorded" in first.message
    again = run(once, ["--server", server.url], "k", *command)
    assert (again.code, again.out) == (4, b"")
    assert re.search(r"100000 bytes of the output of op_\S+ were not retained", again.message)
