"""once resolve with filters: many at once, each with its own decision."""
import json
import os
import pty
import re
import subprocess

import pytest
from conftest import BINARY, TIMEOUT_S
from fake_server import Fake, Problem

SETTLE = ["--status", "executed", "--reason", "found in the ledger"]


@pytest.fixture
def outage(once):
    """a, b and c unknown in scope mail, d unknown in scope other, e executed in scope mail."""
    for key in "abc":
        assert once.run(key, "sh", "-c", "kill -9 $$", options=["--scope", "mail"]).code == 75
    assert once.run("d", "sh", "-c", "kill -9 $$", options=["--scope", "other"]).code == 75
    assert once.run("e", "true", options=["--scope", "mail"]).code == 0
    return once


def by_status(once, status):
    return sorted(op["key"] for op in json.loads(once("ls", "--json", "--status", status).text))


def test_a_dry_run_lists_what_would_change_and_changes_nothing(outage):
    done = outage("resolve", "--scope", "mail", *SETTLE, "--dry-run")
    assert done.code == 0, done
    assert sorted(re.findall(r"^op_\S{36} would be executed: mail (\w)$", done.text, re.M)) == \
        ["a", "b", "c"] and len(done.text.splitlines()) == 3
    listed = json.loads(outage("resolve", "--scope", "mail", *SETTLE, "--dry-run", "--json").text)
    assert sorted(op["key"] for op in listed) == ["a", "b", "c"]
    assert by_status(outage, "unknown") == ["a", "b", "c", "d"]


def test_with_yes_each_is_settled_with_evidence_of_its_own(outage):
    done = outage("resolve", "--scope", "mail", *SETTLE, "--yes", "--actor", "ann")
    assert done.code == 0, done
    settled = re.findall(r"^(op_\S{36}): executed$", done.text, re.M)
    assert len(settled) == 3 and by_status(outage, "unknown") == ["d"]
    for operation in settled:
        story = outage("why", operation).text
        assert "found in the ledger" in story and "actor: ann" in story
    assert outage("verify", "--redecide").code == 0


def test_the_same_line_again_finds_nothing_to_do(outage):
    words = ["resolve", "--scope", "mail", *SETTLE, "--yes"]
    assert outage(*words).code == 0
    again = outage(*words)
    assert (again.code, again.out) == (0, b"")
    assert "no unknown operation matches; nothing changed" in again.message
    assert json.loads(outage(*words, "--json").text) == []


def test_json_has_a_decision_for_each(outage):
    done = json.loads(outage("resolve", "--scope", "mail", *SETTLE, "--yes", "--json").text)
    assert [one["decision"] for one in done] == ["resolved"] * 3
    assert len({one["operation_id"] for one in done}) == 3


def test_without_yes_it_refuses_where_nobody_can_be_asked(outage):
    done = outage("resolve", "--scope", "mail", *SETTLE)
    assert (done.code, done.out) == (64, b""), done
    assert "3 operation(s) would be settled; nothing changed" in done.message
    assert "--dry-run lists them; --yes settles them" in done.message
    assert by_status(outage, "unknown") == ["a", "b", "c", "d"]


@pytest.mark.parametrize("yes", [b"y\n", b"yes\n"])
def test_on_a_terminal_it_asks(outage, yes):
    for typed in (b"n\n", b"\n"):
        answer_on_a_terminal(outage, typed)
        assert by_status(outage, "unknown") == ["a", "b", "c", "d"]
    answer_on_a_terminal(outage, yes)
    assert by_status(outage, "unknown") == ["d"]


def answer_on_a_terminal(outage, typed):
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen([BINARY, "resolve", "--scope", "mail", *SETTLE], stdin=theirs,
            stdout=subprocess.PIPE, stderr=theirs, cwd=outage.directory, env=outage.env)
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(ours, 1000)
        assert b"settle 3 operation(s) as executed?" in shown
        os.write(ours, typed)
        process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0
    finally:
        os.close(ours)
        os.close(theirs)


def test_filters_choose_by_scope_key_principal_and_age(once):
    once.run("a", "sh", "-c", "kill -9 $$", options=["--principal", "ann"])
    once.run("a", "sh", "-c", "kill -9 $$", options=["--principal", "bob"])
    once.run("b", "sh", "-c", "kill -9 $$")

    def matches(*words):
        return len(once("resolve", *words, *SETTLE, "--dry-run").text.splitlines())

    assert matches("--since", "1h") == 3 and matches("--older-than", "1h") == 0
    assert matches("--older-than", "0s") == 3
    assert matches("--key", "a") == 2 and matches("--principal", "bob") == 1
    assert matches("--key", "b", "--scope", "run") == 1 and matches("--scope", "x") == 0


def test_what_does_not_go_together_is_refused(outage):
    for words in ([], ["op_01", "--scope", "mail"], ["op_01", "--dry-run"],
            ["--scope", "mail", "--fence", "1"], ["--scope", "mail", "--effect-id", "x"]):
        done = outage("resolve", *words, *SETTLE)
        assert done.code == 64 and done.message.startswith("once: resolve: "), done
    assert len(by_status(outage, "unknown")) == 4


# ---- through a server that changes its mind meanwhile


@pytest.fixture
def fake(outage):
    server = Fake()
    server.fill(outage)
    yield server
    server.end()


def test_one_that_runs_again_meanwhile_stays_as_it_is(outage, fake):
    newer = next(op for op in fake.operations if op["status"] == "unknown")["operation_id"]
    settle = fake.resolve

    def resolve(path, body):
        if newer in path and "fence" in body:  # it names the attempt that was listed
            raise Problem(409, "stale_fence")
        return settle(path, body)

    fake.resolve = resolve
    done = outage("resolve", "--older-than", "0s", *SETTLE, "--yes", "--server", fake.serve())
    assert done.code == 65, done
    assert f"there has been a newer attempt of {newer}; nothing changed" in done.message
    assert "3 of 4 operations were settled" in done.message
    assert len(done.text.splitlines()) == 3 and newer not in done.text


def test_a_failure_in_the_middle_says_what_was_done(outage, fake):
    settle, settled = fake.resolve, []

    def resolve(path, body):
        if len(settled) == 2:
            raise Problem(503, "unavailable")
        settled.append(path)
        return settle(path, body)

    fake.resolve = resolve
    address = fake.serve()
    words = ["resolve", "--older-than", "0s", *SETTLE, "--yes", "--server", address]
    done = outage(*words)
    assert done.code == 69, done
    assert len(done.text.splitlines()) == 2
    assert "2 of 4 operations were settled" in done.message
    assert "the same line again goes on with those that are still unknown" in done.message
    fake.resolve = settle
    again = outage(*words)
    assert again.code == 0 and len(again.text.splitlines()) == 2, again
