"""A journal of the commit before records got kinds opens, verifies, is decided again and goes on.

The fixture and its origin are described in tests/vectors/journal-v1/README.md.
"""
import re
import struct
import tarfile

import pytest

from conftest import ROOT

FIXTURE = ROOT / "tests/vectors/journal-v1/journal.tar.gz"
BLOCK = 4096
ENTRIES = 28  # in the fixture


@pytest.fixture
def store(once):
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(once.directory)
    return f"journal:{once.directory / 'journal'}"


def record_formats(directory):
    """The first byte of every record, in order (docs/formats/journal.md)."""
    formats = []
    for segment in sorted(directory.glob("segment-*")):
        data = segment.read_bytes()
        at = BLOCK
        while data[at : at + 4] == b"ONCB":
            length, content = struct.unpack_from("<II", data, at + 16)
            frame = at + 64
            while frame < at + content:
                size, kind = struct.unpack_from("<II", data, frame)
                if kind == 1:
                    formats.append(data[frame + 12])
                frame += 12 + size
            at += length
    return formats


def verified(once, store):
    """How many entries are whole and how many were decided again."""
    done = once("verify", "--redecide", "--store", store)
    assert done.code == 0, done.message
    whole = re.search(r"entries 1 to (\d+) are whole", done.text)
    again = re.search(r"decided again: (\d+); begun before what is kept: 0", done.text)
    return int(whole[1]), int(again[1])


def test_it_verifies_and_is_decided_again(once, store):
    assert set(record_formats(once.directory / "journal")) == {1}
    # All but the one that says that evidence was read are decisions.
    assert verified(once, store) == (ENTRIES, ENTRIES - 1)


def test_what_it_sealed_is_replayed_and_what_it_refused_is_refused(once, store):
    words = ("run", "--store", store, "--idempotency-key", "greet", "--ignore-cwd", "--")
    replayed = once(*words, "sh", "-c", "echo hello; echo aside >&2")
    assert (replayed.code, replayed.text, replayed.message) == (0, "hello\n", "aside\n")
    assert once(*words, "echo", "other").code == 65
    assert verified(once, store)[0] > ENTRIES


def test_what_it_did_not_know_is_settled_in_format_2_and_replayed(once, store):
    words = ("run", "--store", store, "--idempotency-key", "killed", "--ignore-cwd", "--")
    command = ("sh", "-c", "kill -9 $$")
    held = once(*words, *command)
    assert held.code == 75
    operation = re.search(r"op_[0-9a-f-]{36}", held.message)[0]
    settled = once(
        "resolve", operation, "--store", store, "--status", "executed", "--reason", "seen"
    )
    assert settled.code == 0, settled.message
    new = once("run", "--store", store, "--idempotency-key", "new", "--", "echo", "new")
    assert (new.code, new.text) == (0, "new\n")
    formats = record_formats(once.directory / "journal")
    assert formats == sorted(formats) and {1, 2} == set(formats)
    assert verified(once, store)[0] > ENTRIES
