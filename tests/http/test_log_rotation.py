"""SIGUSR1 opens the log again, as logrotate wants it, and ends nothing."""
import json
import signal
import subprocess

import pytest
from once_gateway import request_for
from once_server import BINARY, until


@pytest.fixture(params=["serve", "gateway"])
def running(request):
    made = request.getfixturevalue({"serve": "make_server", "gateway": "make_gateway"}[
        request.param])()
    until(lambda: '"event":"started"' in made.stderr(), "no first line in the log")
    return made


def rotate(running):
    """What `rename, then signal` of logrotate does. The path of the old file."""
    old = running.stderr_path.with_suffix(".1")
    running.stderr_path.rename(old)
    running.signal(signal.SIGUSR1)
    return old


def test_a_renamed_log_is_continued_in_a_file_with_the_old_name(running):
    running.stderr_path.chmod(0o640)
    old = rotate(running)
    until(lambda: "log_reopened" in running.stderr(), "no new file")
    before = old.read_text()
    assert '"event":"started"' in before
    line = json.loads(running.stderr().splitlines()[-1])
    assert line["event"] == "log_reopened" and line["file"] == str(running.stderr_path)
    assert running.stderr_path.stat().st_mode & 0o777 == 0o640
    running.signal(signal.SIGHUP)
    until(lambda: '"event":"reload' in running.stderr(), "the log does not continue")
    assert old.read_text() == before
    running.stop()


def test_a_log_that_cannot_be_reopened_continues_where_it_is(running):
    moved = running.stderr_path.parent.with_suffix(".moved")
    running.stderr_path.parent.rename(moved)
    try:
        running.signal(signal.SIGUSR1)
        log = moved / running.stderr_path.name
        until(lambda: "log_reopen_failed" in log.read_text(), "nothing was said")
        assert running.process.poll() is None
    finally:
        moved.rename(running.stderr_path.parent)


def test_a_log_that_is_no_file_says_so_in_one_line_and_nothing_ends(tmp_path):
    process = subprocess.Popen([BINARY, "serve", "--listen", "127.0.0.1:0", "--store",
        f"journal:{tmp_path}/data"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout.readline()
        for _ in range(3):
            line = json.loads(process.stderr.readline())
            if line["event"] == "started":
                break
        process.send_signal(signal.SIGUSR1)
        line = json.loads(process.stderr.readline())
        assert line["event"] == "log_not_reopened"
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=60)
        assert process.returncode == 0 and b"log_not_reopened" not in rest
    finally:
        process.kill()
        process.communicate()


def test_a_signal_while_it_drains_neither_ends_nor_hurries_it(make_gateway, origin):
    gateway = make_gateway()
    with gateway.peer() as peer:
        peer.send(request_for("POST", "/pay", {"amount": 1}, "held", do="hold=1"))
        origin.wait_for("held")
        gateway.signal(signal.SIGTERM)
        rotate(gateway)
        until(lambda: "log_reopened" in gateway.stderr(), "no new file")
        origin.let_go("held")
        assert peer.read().status == 200
    assert gateway.process.wait(timeout=60) == 0
    assert origin.effects["held"] == 1
