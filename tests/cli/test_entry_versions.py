"""A journal of the release before entries got version 2 opens, verifies, is decided again and goes
on in version 2; both verifiers agree on it and on what is done to it.

The fixture and its origin are described in tests/vectors/journal-entries-v1/README.md.
"""
import json
import re
import subprocess
import sys
import tarfile

import pytest

from conftest import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import verify_evidence  # noqa: E402
import verify_journal  # noqa: E402

VECTORS = ROOT / "tests/vectors"
ENTRIES = 40  # in the fixture
ALWAYS = {"chain_id", "entry_id", "seq"}
DECIDED = ALWAYS | {"occurred_at"}


def unpack(directory, name="journal-entries-v1"):
    with tarfile.open(VECTORS / name / "journal.tar.gz") as archive:
        archive.extractall(directory)
    return f"journal:{directory / 'journal'}"


@pytest.fixture
def store(once):
    return unpack(once.directory)


def lines(once, store):
    done = once("tail", "--json", "--lines", "10000", "--all-tenants", "--store", store)
    assert done.code == 0, done.message
    return done.text.splitlines()


def whole(once, store):
    """How many entries both verifiers find good."""
    done = once("verify", "--redecide", "--store", store)
    assert done.code == 0, done.message + done.text
    assert "begun before what is kept: 0" in done.text
    assert verify_journal.verdict(store.removeprefix("journal:")) == "ok"
    return int(re.search(r"entries 1 to (\d+) are whole", done.text)[1])


def stranger(text, *words):
    done = subprocess.run([sys.executable, ROOT / "tools/verify_evidence.py", *words], input=text,
        capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout


def test_it_verifies_and_is_decided_again(once, store):
    assert whole(once, store) == ENTRIES
    assert all("v" not in json.loads(line) for line in lines(once, store))


def test_it_goes_on_in_version_2_in_the_middle_of_the_chain(once, store):
    for _ in range(2):
        done = once("run", "--store", store, "-k", "new", "--", "echo", "new")
        assert (done.code, done.text) == (0, "new\n")
    assert whole(once, store) == ENTRIES + 3
    text = "\n".join(lines(once, store)) + "\n"
    versions = [json.loads(line).get("v", 1) for line in text.splitlines()]
    assert versions == [1] * ENTRIES + [2] * 3
    assert stranger(text)[0] == 0
    code, stored = stranger(text, "--stored")
    assert code == 0
    short = json.loads(stored.splitlines()[-1])
    assert not DECIDED & set(short) and short["dedupe"].keys() == {"outcome_ref"}
    on_disk = b"".join(path.read_bytes() for path in
        sorted((once.directory / "journal").glob("segment-*")))
    assert all(line.encode() in on_disk for line in stored.splitlines())


def test_what_it_did_not_know_is_settled_in_version_2(once, store):
    known = {item["key"]: item["status"] for item in json.loads(once("ls", "--json", "--store",
        store).text)}
    assert (known["order-1"], known["order-2"]) == ("executed", "unknown")
    settled = once("resolve", "--scope", "pay", "--key", "order-2", "--store", store, "--status",
        "executed", "--reason", "seen", "--yes")
    assert settled.code == 0, settled.message
    entry = json.loads(lines(once, store)[-1])
    assert (entry["type"], entry["v"], entry["outcome"]) == ("execution.resolved", 2,
        {"reason": "seen", "status": "executed"})
    assert whole(once, store) == ENTRIES + 1


@pytest.mark.parametrize("name", ["journal-entries-v1", "journal-names"])
def test_all_that_version_2_leaves_out_follows_from_the_rest(once, name):
    """Entries of version 1 have all of it, written by code that did not leave it out."""
    left = set()
    for line in lines(once, unpack(once.directory, name)):
        entry = {**verify_evidence.read_entry(line.encode()), "v": verify_evidence.Number(2)}
        seq, chain_id = int(entry["seq"]), entry["chain_id"]
        derived = verify_evidence.derive(entry, chain_id, seq)
        short = verify_evidence.left_out(entry, derived)
        assert not (DECIDED if "decided" in entry else ALWAYS) & set(short), line
        assert set(short.get("dedupe", {})) <= {"outcome_ref"} or "decided" not in entry
        assert "status" not in short.get("outcome", {}) or "decided" not in entry
        left |= {name for name in entry if name not in short}
    assert {"type", "lifecycle_state", *DECIDED} <= left


@pytest.mark.parametrize("what", ["occurred_at", "entry_id", "lifecycle_state", "type", "dedupe",
    "outcome", "seq", "chain_id", "v", "decided"])
def test_a_stranger_finds_a_member_that_was_changed_or_removed(once, store, what):
    once("run", "--store", store, "-k", "new", "--", "echo", "new")
    good = lines(once, store)
    head = stranger("\n".join(good) + "\n")[1]
    place = ENTRIES  # the first of version 2
    for change in ("remove", "change"):
        entry = json.loads(good[place])
        if change == "remove":
            del entry[what]
        elif isinstance(entry[what], dict):
            name = "decision" if "decision" in entry[what] else "status"
            entry[what][name] = "in_progress" if entry[what][name] != "in_progress" else "sealed"
        else:
            is_number = isinstance(entry[what], int)
            entry[what] = entry[what] + 1 if is_number else entry[what][:-1] + "x"
        text = json.dumps(entry, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        code, said = stranger("\n".join([*good[:place], text, *good[place + 1:]]) + "\n")
        assert code == 1 or said != head, (change, said)
