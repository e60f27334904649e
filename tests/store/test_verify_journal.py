"""tools/verify_journal.py, written from docs/formats alone, and `once verify --redecide` come to
the same verdict (ok, torn tail, damaged) on journals that are good and on journals that are not."""
import hashlib
import json
import os
import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
BINARY = os.environ.get("ONCE_BIN") or str(ROOT / "build/once")
PLACES = [Path(BINARY).parent, ROOT / "build-asan"]  # the release build has no test programs
MAKE = next((path for path in (place / "tests/store/journal_make" for place in PLACES)
    if path.exists()), PLACES[0] / "tests/store/journal_make")
SCRIPT = ROOT / "tools/verify_journal.py"
sys.path.insert(0, str(ROOT / "tools"))
import verify_journal  # noqa: E402
from verify_journal import crc32c  # noqa: E402

BLOCK, HEADER, FRAME = 4096, 64, 12
DAY_MS = 86400000
LONG = bool(os.environ.get("ONCE_TEST_LONG"))
FLIPS, FORGED, SEEDS = (200, 50, 4) if LONG else (24, 10, 2)


def stranger(directory):
    done = subprocess.run([sys.executable, SCRIPT, directory], capture_output=True, text=True,
        check=False, timeout=120)
    assert done.returncode in (0, 1) and not done.stderr, done.stderr
    assert done.returncode == done.stdout.startswith("damaged: ")
    return done.stdout.strip()


def once(directory):
    done = subprocess.run([BINARY, "verify", "--redecide", "--json", "--store", directory],
        capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)
    verdict = "damaged" if not found["ok"] else "ok, torn tail" if found["torn_tail"] else "ok"
    return verdict, found["damages"][:2]


def agree(directory, is_apart=False):
    """Also as a program of its own, which takes longer to start than to check."""
    said = stranger(directory) if is_apart else verify_journal.verdict(directory)
    ours = once(directory)
    assert said.split(":")[0] == ours[0], (said, ours)
    return ours[0]


def make(directory, seed, steps, jump_ms=0, retain_ms=0, segment="64KiB"):
    url = f"journal:{directory}?segment={segment}&snapshot=64KiB&background=off"
    subprocess.run([MAKE, url, str(seed), str(steps), str(jump_ms), str(retain_ms)], check=True,
        timeout=120)
    return directory


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """One segment, a few dozen batches, every kind of frame."""
    return make(tmp_path_factory.mktemp("small") / "data", 5, 40, segment="1MiB")


@pytest.fixture
def copy(small, tmp_path):
    """Without `reached`, which would give most of what is forged away."""
    return Path(shutil.copytree(small, tmp_path / "data", ignore=shutil.ignore_patterns("reached")))


def test_a_stranger_can_read_it_in_one_sitting():
    """And with nothing but Python: it imports no package and none of our files."""
    lines = SCRIPT.read_text().splitlines()
    assert len(lines) <= 300 and max(map(len, lines)) <= 100
    imported = {name for line in lines if line.startswith(("import ", "from "))
        for name in line.removeprefix("import ").split(", ")}
    assert imported <= sys.stdlib_module_names


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("steps, jump_ms, retain_ms, segments", [(12, 0, 0, "whole"),
    (400, DAY_MS // 4, 0, "squeezed"), (400, DAY_MS // 4, DAY_MS, "archived")])
def test_good_journals_are_good_to_both(tmp_path, seed, steps, jump_ms, retain_ms, segments):
    directory = make(tmp_path / "data", seed, steps, jump_ms, retain_ms)
    assert agree(directory, is_apart=True) == "ok"
    found = json.loads(subprocess.run([BINARY, "verify", "--json", "--store", directory],
        capture_output=True, text=True, check=True, timeout=60).stdout)
    if segments != "archived":  # there what was squeezed may be gone
        assert (found["segments_squeezed"] > 0) == (segments == "squeezed")
    assert (found["first_seq"] > 1) == (segments == "archived")


def test_what_once_run_wrote_is_good_to_both(tmp_path):
    def run(*words):
        subprocess.run([BINARY, *words], cwd=tmp_path, capture_output=True, check=False, timeout=60)
    for key, command in (("a", ["echo", "1"]), ("a", ["echo", "1"]), ("a", ["echo", "2"]),
            ("b", ["sh", "-c", "kill -9 $$"]), ("b", ["sh", "-c", "kill -9 $$"]),
            ("c", ["/nowhere"]), ("c", ["/nowhere"])):
        run("run", "-k", key, "--", *command)
    run("resolve", "--key", "b", "--status", "not_executed", "--reason", "looked")
    run("run", "-k", "b", "--", "true")
    assert agree(tmp_path / "once-data") == "ok"


def test_a_flipped_bit_is_damage_to_both(copy):
    chance = random.Random(9)
    segment = copy / "segment-0000000000000001"
    good = segment.read_bytes()
    end = len(good.rstrip(b"\0"))
    verdicts = []
    for _ in range(FLIPS):
        data = bytearray(good)
        at = chance.randrange(end)
        data[at] ^= 1 << chance.randrange(8)
        segment.write_bytes(data)
        verdicts.append(agree(copy))
    assert verdicts.count("damaged") == FLIPS
    segment.write_bytes(good)
    identity = copy / "identity"
    kept = identity.read_bytes()
    for at in range(0, 256, 17):
        identity.write_bytes(kept[:at] + bytes([kept[at] ^ 4]) + kept[at + 1:])
        assert agree(copy, is_apart=at == 0) == "damaged"


def batches(data):
    """(offset, length) of each."""
    at, found = BLOCK, []
    while data[at:at + 4] == b"ONCB":
        length = struct.unpack("<I", data[at + 16:at + 20])[0]
        found.append((at, length))
        at += length
    return found


def test_what_is_cut_off_or_never_arrived_is_the_same_to_both(copy):
    segment = copy / "segment-0000000000000001"
    good = segment.read_bytes()
    found = batches(good)
    seen = set()
    for at, length in (found[0], found[len(found) // 2], found[-1]):
        for cut in (at, at + 10, at + 512, at + length - 1, at + length):
            segment.write_bytes(good[:cut])
            seen.add(agree(copy))
            segment.write_bytes(good[:cut] + bytes(len(good) - cut))
            seen.add(agree(copy))
        for sector in range(at, at + length, 512):
            segment.write_bytes(good[:sector] + bytes(512) + good[sector + 512:])
            seen.add(agree(copy))
    last = found[-1][0] + found[-1][1]
    segment.write_bytes(good[:last] + b"x" * 100 + good[last + 100:])
    seen.add(agree(copy))
    assert seen == {"ok", "ok, torn tail", "damaged"}


class Forge:
    """A segment taken apart into frames and put together again with every checksum right."""

    def __init__(self, data):
        self.head, self.size = data[:BLOCK], len(data)
        self.seed = crc32c(data[32:48] + data[16:24])
        self.batches = []
        for at, _ in batches(data):
            content = struct.unpack("<I", data[at + 20:at + 24])[0]
            frames, place = [], at + HEADER
            while place < at + content:
                size, kind = struct.unpack("<II", data[place:place + 8])
                frames.append([kind, data[place + FRAME:place + FRAME + size]])
                place += FRAME + size
            self.batches.append([data[at:at + HEADER], frames])

    def save(self, path):
        out = bytearray(self.head)
        for head, frames in self.batches:
            at, body = len(out), bytearray()
            for kind, payload in frames:
                start = struct.pack("<II", len(payload), kind)
                crc = crc32c(start + payload, self.seed ^ (at + HEADER + len(body)))
                body += start + struct.pack("<I", crc) + payload
            content = HEADER + len(body)
            length = (content + BLOCK - 1) // BLOCK * BLOCK
            zeros = sum(not any((head + body)[i:i + 512]) for i in range(512, content, 512))
            counts = struct.pack("<IIII", length, content, len(frames), zeros)
            rest = head[8:16] + counts + head[32:]
            out += b"ONCB" + struct.pack("<I", crc32c(rest, self.seed ^ at)) + rest + body
            out += bytes(length - content)
        path.write_bytes(out + bytes(max(0, self.size - len(out))))


def test_a_whole_last_batch_that_is_gone_is_damage_to_both(small, copy):
    """Only the file `reached`, which a close writes, shows it."""
    segment, reached = copy / "segment-0000000000000001", copy / "reached"
    good, mark = segment.read_bytes(), (small / "reached").read_bytes()
    at = batches(good)[-1][0]
    segment.write_bytes(good[:at] + bytes(len(good) - at))
    assert agree(copy) == "ok"
    reached.write_bytes(mark)
    assert agree(copy) == "damaged"
    segment.write_bytes(good)
    assert agree(copy) == "ok"
    for byte in (0, 8, 32, 48, 127):
        reached.write_bytes(mark[:byte] + bytes([mark[byte] ^ 4]) + mark[byte + 1:])
        assert agree(copy) == "damaged", byte


def test_a_segment_put_together_again_is_good_to_both(copy):
    segment = copy / "segment-0000000000000001"
    good = segment.read_bytes()
    Forge(good).save(segment)
    assert segment.read_bytes() == good
    assert agree(copy) == "ok"


@pytest.mark.parametrize("what", ["drop", "double", "swap", "insert", "change"])
def test_forged_frames_are_the_same_to_both(copy, what):
    chance = random.Random(what)
    segment = copy / "segment-0000000000000001"
    good = segment.read_bytes()
    damaged = 0
    for _ in range(FORGED):
        forge = Forge(good)
        # The script believes what is remembered of a source.
        places = [(i, j) for i, (_, frames) in enumerate(forge.batches)
            for j, (kind, payload) in enumerate(frames) if not (kind == 1 and payload[1] == 2)]
        (i, j), (k, m) = chance.sample(places, 2)
        frames, others = forge.batches[i][1], forge.batches[k][1]
        if what == "drop":
            del frames[j]
        elif what == "double":
            frames.insert(j, frames[j])
        elif what == "swap":
            frames[j], others[m] = others[m], frames[j]
        elif what == "insert":
            frames.insert(j, others[m])
        else:
            kind, payload = frames[j]
            at = chance.randrange(len(payload))
            frames[j] = [kind, payload[:at] + bytes([payload[at] ^ 1]) + payload[at + 1:]]
        forge.save(segment)
        damaged += agree(copy) == "damaged"
    assert damaged > FORGED * 2 // 3


def chained_again(forge):
    """Hashes as if every entry had always been as it is now; checkpoints stay as they were."""
    digest = forge.head[72:104]
    for _, frames in forge.batches:
        for frame in frames:
            kind, payload = frame
            if kind == 3 and payload[0] == 1:
                text = payload[72 + payload[2]:]
                if text.endswith(b',"v":2}'):
                    text = forge.head[32:48] + struct.pack(">Q", *struct.unpack("<Q",
                        payload[8:16])) + hashlib.sha256(text).digest()
                digest = hashlib.sha256(digest + text).digest()
                frame[1] = payload[:24] + digest + payload[56:]


CHANGES = {
    "entry_id": lambda entry: {**entry, "entry_id": "ent_x"},
    "occurred_at": lambda entry: {**entry, "occurred_at": "2020-01-01T00:00:00.000Z"},
    "source": lambda entry: {**entry, "source": {"id": "other", "type": "order", "version": "1"}},
    "lifecycle_state": lambda entry: {**entry, "lifecycle_state": "rejected"},
    "chain_id": lambda entry: {**entry, "chain_id": "0" * 8 + "-0000-7000-8000-" + "0" * 12},
    "seq": lambda entry: {**entry, "seq": 1},
    "version": lambda entry: {**entry, "v": 3},
    "version 1": lambda entry: {name: entry[name] for name in entry if name != "v"},
    "stored twice": lambda entry: {**entry,
        "occurred_at": verify_journal.stamp(entry["decided"]["now_ms"])},
}


@pytest.mark.parametrize("what", CHANGES)
def test_an_entry_changed_by_who_can_chain_again_is_damage_to_both(copy, what):
    """All checksums and hashes are right: what is left is what the entry says. Only entries after
    the last checkpoint: an earlier one is found by that."""
    segment = copy / "segment-0000000000000001"
    good = segment.read_bytes()
    frames = [frame for _, frames in Forge(good).batches for frame in frames]
    last = max(i for i, (kind, payload) in enumerate(frames) if kind == 3 and payload[0] == 2)
    after = [i for i, (kind, _) in enumerate(frames) if kind == 3 and i > last]
    assert len(after) > 2
    changed = 0
    for place in after[:3]:
        forge = Forge(good)
        frame = [frame for _, frames in forge.batches for frame in frames][place]
        at = 72 + frame[1][2]
        entry = json.loads(frame[1][at:])
        if "decided" in entry and entry["operation_id"].startswith("op_"):
            text = json.dumps(CHANGES[what](entry), ensure_ascii=False, sort_keys=True,
                separators=(",", ":"))
            frame[1] = frame[1][:at] + text.encode()
            chained_again(forge)
            forge.save(segment)
            assert agree(copy) == "damaged", (what, entry)
            changed += 1
    assert changed > 0


@pytest.mark.parametrize("name, whole", [("identity", 256), ("reached", 128)])
def test_a_small_file_of_a_different_size_is_the_same_to_both(small, tmp_path, name, whole):
    for size in (0, 1, 100, whole - 1, whole, whole + 1, 4096):
        path = Path(shutil.copytree(small, tmp_path / str(size))) / name
        path.write_bytes(path.read_bytes().ljust(size, b"\0")[:size])
        is_good = size == whole or (name == "reached" and size > whole)  # the rest is not read
        assert agree(path.parent) == ("ok" if is_good else "damaged"), size


@pytest.mark.parametrize("file, size, at", [("identity", 256, at) for at in (8, 16, 112)] +
    [("segment-0000000000000001", BLOCK, at) for at in (8, 12, 16, 32, 48, 56, 64, 72)])
def test_a_changed_header_with_its_checksum_is_damage_to_both(copy, file, size, at):
    path = copy / file
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    data[size - 4:size] = struct.pack("<I", crc32c(bytes(data[:size - 4])))
    path.write_bytes(data)
    assert agree(copy) == "damaged"
