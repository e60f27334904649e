"""ls, show, why, tail, verify, doctor, bench, demo."""
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import time

import pytest
import stores
from conftest import ROOT, TIMEOUT_S

OPERATION = re.compile(r"op_[0-9a-f-]{36}")
LOOKING = [["ls"], ["show", "--key", "a"], ["why", "--key", "a"], ["tail"], ["verify"]]


@pytest.fixture
def filled(once):
    """a executed, b failed, c unknown; a has a duplicate and a conflict."""
    once.run("a", "echo", "out")
    once.run("a", "echo", "out")
    once.run("a", "echo", "other")
    once.run("b", "false", options=["--scope", "jobs"])
    once.run("c", "sh", "-c", "kill -9 $$")
    return once


def test_ls_lists_and_filters(filled):
    text = filled("ls").text
    assert text.startswith("OPERATION")
    assert len(OPERATION.findall(text)) == 3
    assert re.search(r"executed .* run a$", text, re.M)

    def keys(*words):
        return sorted(op["key"] for op in json.loads(filled("ls", "--json", *words).text))

    assert keys() == ["a", "b", "c"]
    assert keys("--status", "unknown") == ["c"]
    assert keys("--scope", "jobs") == ["b"]
    assert keys("--key", "a") == ["a"]
    assert keys("--status", "released") == []
    assert len(keys("--limit", "2")) == 2


def test_show_by_id_and_by_key(filled):
    document = json.loads(filled("show", "--key", "a", "--json").text)
    assert document["status"] == "executed"
    assert document["duplicates"] == 2
    assert document["outcome"]["exit_code"] == 0
    assert document["outcome"]["output"] == [{"stdout": "out\n"}]
    assert document["request"]["argv"] == ["echo", "out"]
    assert filled("show", document["operation_id"], "--json").text == \
        filled("show", "--key", "a", "--json").text
    text = filled("show", document["operation_id"]).text
    assert "status         executed" in text
    assert "standard output, 4 bytes\nout\n" in text
    assert filled("show", "--key", "b", "--scope", "jobs").code == 0


def test_show_of_nothing_is_65_and_of_nonsense_64(filled):
    done = filled("show", "--key", "nobody")
    assert (done.code, done.out) == (65, b"")
    assert "there is no operation with key 'nobody'" in done.message
    assert filled("show", "op_01920000-0000-7000-8000-000000000001").code == 65
    assert filled("show", "nonsense").code == 64


@pytest.mark.parametrize("words", [["show"], ["why"], ["resolve", "--status", "failed",
    "--reason", "r"]])
def test_text_that_is_no_id_is_refused_with_what_an_id_is(filled, words):
    done = filled(words[0], "order-1", *words[1:])
    assert (done.code, done.out) == (64, b"")
    assert done.message == "once: 'order-1' is not an id: op_, cmd_, eff_ or dlv_ and a UUID, or " \
        "its beginning\nhint: once ls lists operations with their ids\n"


def test_a_server_that_is_away_is_not_taken_for_a_store_that_run_creates(once):
    for url in ("postgres://127.0.0.1:1/x", "redis://127.0.0.1:1"):
        done = once("ls", "--store", url)
        assert done.code == 69 and "hint: start that server" in done.message, done


def test_show_does_not_let_output_drive_the_terminal(once):
    once.run("a", "printf", "\\033[31mred\\n")
    text = once("show", "--key", "a").text
    assert "\\x1b[31mred\n" in text and "\033" not in text


def test_a_name_older_than_the_rule_for_names_does_not_drive_it_either(once):
    with tarfile.open(ROOT / "tests/vectors/journal-names/journal.tar.gz") as archive:
        archive.extractall(once.directory)
    text = once("ls", "--store", f"journal:{once.directory / 'journal'}").text
    assert "in progress\\x1b[31m" in text and "\033" not in text


def test_why_tells_rule_record_bytes_and_entries(filled):
    text = filled("why", "--key", "a").text
    assert re.search(r"^op_\S+ is executed: ", text)
    assert '"argv":["echo","out"]' in text
    decisions = re.findall(r"  #\d+  (\w+): (\w+)", text)
    assert decisions == [("begin", "first_seen"), ("seal", "sealed"),
        ("begin", "duplicate_replayed"), ("begin", "conflict_rejected")]
    assert re.findall(r"rule (\w\d):", text) == ["B1", "H5", "B8", "B2"]
    assert "nothing was remembered under this key" in text
    document = json.loads(filled("why", "--key", "a", "--json").text)
    assert [entry["rule"] for entry in document["entries"]] == ["B1", "H5", "B8", "B2"]
    assert document["entries"][0]["entry"]["type"] == "execution.started"
    assert "settle it with once resolve" in filled("why", "--key", "c").text


def test_every_rule_of_the_decision_table_has_words(once):
    from conftest import ROOT
    table = (ROOT / "src/core/decide.h").read_text().split("enum decision_kind")[0]
    rules = set(re.findall(r"\b([ABCEHJKNQTUWX]\d+)\b", table))
    worded = set(re.findall(r'\{"([A-Z]\d+)"', (ROOT / "src/cli/operation.c").read_text()))
    assert len(rules) > 60 and worded == rules


def test_tail_prints_the_last_entries(filled):
    whole = filled("tail", "-n", "100", "--json").text.splitlines()
    entries = [json.loads(line) for line in whole]
    chains = {entry["chain_id"]: 0 for entry in entries}
    assert len(chains) == 1 or stores.SHARED  # there each process has one of its own
    for entry in entries:
        chains[entry["chain_id"]] += 1
        assert entry["seq"] == chains[entry["chain_id"]]
    last = filled("tail", "-n", "2").text.splitlines()
    assert len(last) == 2 and f"#{entries[-1]['seq']} " in last[1]
    operation = entries[0]["operation_id"]
    only = filled("tail", "-n", "100", "--json", "--operation", operation).text.splitlines()
    assert only == [line for line in whole if json.loads(line)["operation_id"] == operation]
    assert filled("tail", "-n", "0").text == ""


def test_tail_follows(once):
    once.run("a", "true")
    process = once.start("tail", "-f", "--json", "-n", "1")
    first = json.loads(process.stdout.readline())
    once.run("b", "true")
    second = json.loads(process.stdout.readline())
    assert second["seq"] == (1 if stores.SHARED else first["seq"] + 1)
    assert second["idempotency_key"] == "b"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=TIMEOUT_S)


@stores.journal_only("test_shared_cli.py has the others")
def test_a_store_that_is_not_there(once):
    for words in LOOKING:
        done = once(*words)
        code = 2 if words == ["verify"] else 69
        assert (done.code, done.out) == (code, b""), (words, done)
        assert re.match(r"once: cannot open store './once-data': .*\nhint: ", done.message)
    assert not (once.directory / "once-data").exists()


@stores.journal_only("one process at a time writes")
def test_looking_works_beside_a_writer_and_writing_says_who_has_it(once):
    once.run("a", "true")
    with open(once.directory / "once-data/lock", "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for words in LOOKING:
            assert once(*words).code == 0, words
        done = once("resolve", "op_01920000-0000-7000-8000-000000000001", "--status", "failed",
            "--reason", "r")
        assert done.code == 69
        assert re.match(r"once: cannot open store './once-data': in use", done.message), done
        held = once.run("b", "true")
        assert held.code == 125
        assert "in use" in held.message


# ---- verify


def flip_byte_of(once, text):
    """Change one bit of the journal where this text is."""
    for path in sorted((once.directory / "once-data").iterdir()):
        data = path.read_bytes() if path.is_file() else b""
        place = data.find(text)
        if place >= 0 and b"argv" not in data[place:place + len(text)]:
            with open(path, "r+b") as file:
                file.seek(place)
                file.write(bytes([data[place] ^ 1]))
            return path
    raise AssertionError("the text is nowhere in the journal")


@stores.journal_only("docs/verify.md")
def test_verify_says_that_all_is_well(filled):
    done = filled("verify", "--redecide")
    assert done.code == 0, done
    assert done.text.startswith("ok: entries 1 to ")
    document = json.loads(filled("verify", "--redecide", "--json").text)
    assert document["ok"] is True and document["damages"] == []
    assert document["entries"] == document["last_seq"] == document["redecided"]


@stores.journal_only("its files are changed")
def test_verify_finds_a_flipped_bit(filled):
    flip_byte_of(filled, b'"decision":"first_seen"')
    done = filled("verify")
    assert done.code == 1, done
    assert "damage: " in done.text and "still good: " in done.text
    document = json.loads(filled("verify", "--json").text)
    assert document["ok"] is False and document["damage_count"] >= 1


def test_verify_that_cannot_check_is_2(filled):
    assert filled("verify", "--store", "mem:").code == 2
    assert filled("verify", "--checkpoint", "/no/such/file").code == 2
    (filled.directory / "note").write_text("nonsense")
    assert filled("verify", "--checkpoint", "note").code == 2


# ---- checkpoints kept elsewhere


@stores.journal_only("test_shared_cli.py has the others")
def test_tail_prints_the_newest_checkpoint_exactly(once):
    once.run("a", "true")
    older = once("tail", "--checkpoint").out
    once.run("b", "true")
    done = once("tail", "--checkpoint")
    assert done.code == 0, done
    chain = json.loads(once("verify", "--json").text)
    lines = done.text.split("\n")
    assert lines[0] == f"once/{chain['chain_id']}"
    assert lines[1] == str(chain["last_seq"]) == str(chain["last_checkpoint_seq"])
    assert re.fullmatch(f"— {lines[0]} \\S+", lines[5]) and lines[6:] == [""]
    assert int(older.split(b"\n")[1]) < chain["last_seq"]
    stored = [path.read_bytes() for path in (once.directory / "once-data").glob("segment-*")]
    assert any(done.out in data for data in stored)
    document = json.loads(once("tail", "--checkpoint", "--json").text)
    assert document == {"seq": chain["last_seq"], "note": done.text}


def test_tail_without_a_checkpoint_is_69(once):
    done = once("tail", "--checkpoint", "--store", "mem:")
    assert (done.code, done.out) == (69, b"")
    assert done.message.startswith("once: there is no checkpoint in 'mem:' yet\nhint: ")
    assert once("tail", "--checkpoint").code == 69  # and no store at all
    assert not (once.directory / "once-data").exists()
    assert once("tail", "--checkpoint", "-f").code == 64


@stores.journal_only("its files are put back")
def test_a_checkpoint_kept_elsewhere_shows_a_journal_put_back(once):
    once.run("a", "true")
    shutil.copytree(once.directory / "once-data", once.directory / "older")
    once.run("b", "true")
    (once.directory / "note").write_bytes(once("tail", "--checkpoint").out)
    done = once("verify", "--checkpoint", "note")
    assert done.code == 0, done
    assert "the checkpoint kept elsewhere agrees with the journal" in done.text

    shutil.rmtree(once.directory / "once-data")
    (once.directory / "older").rename(once.directory / "once-data")
    assert once("verify").code == 0  # by itself an older copy is whole
    done = once("verify", "--checkpoint", "note")
    assert done.code == 1, done
    assert "older than the checkpoint" in done.text

    once.run("b", "sh", "-c", "echo another history")
    done = once("verify", "--checkpoint", "note")
    assert done.code == 1, done
    assert "the external checkpoint has a different hash" in done.text


# ---- doctor


def checks(done):
    return {line["check"]: line for line in json.loads(done.text)}


@stores.journal_only("test_shared_cli.py has the others")
def test_doctor_is_content_with_a_sound_store(filled):
    done = filled("doctor")
    assert done.code == 0, done
    assert "FAIL" not in done.text
    found = checks(filled("doctor", "--json"))
    for name in ("version", "store", "directory", "identity", "space", "flush", "turns",
            "write mode", "clock", "size", "keys", "unknown", "public key"):
        assert name in found, name
    assert found["unknown"]["verdict"] == "WARN"
    assert "once resolve" in found["unknown"]["fix"]
    assert re.search(r"^1 unknown operation", found["unknown"]["text"])
    assert re.search(r"once/[0-9a-f-]{36}\+[0-9a-f]{8}\+", found["public key"]["text"])
    assert re.search(r"p50 [\d.]+ ms, p99 [\d.]+ ms", found["flush"]["text"])
    for name in ("flush direct", "flush uring"):
        assert re.search(r"p50 [\d.]+ ms, p99 [\d.]+ ms|^not possible here: ",
            found[name]["text"]), name
    assert found["write mode"]["text"].endswith("chosen at each start by such a test")
    store = "journal:./once-data?write=buffered"
    assert checks(filled("doctor", "--store", store, "--json"))["write mode"]["text"] == \
        "buffered (pwrite and fdatasync), as the store's URL says"


@stores.journal_only("its files are looked at")
def test_doctor_fails_for_open_permissions_and_says_what_to_do(filled):
    (filled.directory / "once-data").chmod(0o755)
    done = filled("doctor")
    assert done.code == 1
    assert "FAIL  directory" in done.text
    assert "fix: chmod 700 './once-data'" in done.text


@stores.journal_only("its files are changed")
def test_doctor_fails_for_a_damaged_store(filled):
    flip_byte_of(filled, b'"decision":"first_seen"')
    done = filled("doctor", "--json")
    assert done.code == 1
    assert checks(done)["store"]["verdict"] == "FAIL"
    for words in LOOKING[:4]:
        assert filled(*words).code == 65, words  # never an older state as if it were now


@stores.journal_only("its files are changed")
def test_doctor_fails_without_a_readable_identity(filled):
    (filled.directory / "once-data/identity").write_bytes(b"x")
    done = filled("doctor", "--json")
    assert done.code == 1
    assert checks(done)["store"]["verdict"] == "FAIL"


@stores.journal_only("test_shared_cli.py has the others")
def test_doctor_without_a_store_looks_at_the_machine(once):
    done = once("doctor")
    assert done.code == 0, done
    assert "WARN  store" in done.text and "flush" in done.text
    assert not (once.directory / "once-data").exists()


# ---- bench and demo


def test_bench_measures_and_leaves_nothing(once):
    document = json.loads(
        once("bench", "--seconds", "1", "--threads", "2", "--in-flight", "16", "--json").text)
    assert document["pairs"] > 0 and document["pairs_per_second"] > 0
    assert (document["threads"], document["in_flight"]) == (2, 16)
    assert list(once.directory.iterdir()) == []
    text = once("bench", "--seconds", "1", "--in-flight", "4", "--store", "journal:./kept").text
    assert "pairs of begin and seal per second" in text
    assert once("verify", "--store", "journal:./kept").code == 0


def test_demo_charges_everything_once_and_leaves_a_journal(once, tmp_path):
    done = once("demo", "--orders", "60", "--seed", "7", "--json", env={"TMPDIR": str(tmp_path)})
    assert done.code == 0, done
    document = json.loads(done.text)
    assert document["double_charges"] == 0 and document["not_charged"] == 0
    assert document["effects"] == document["orders"] == 60
    assert document["duplicates_replayed"] > 0 and document["conflicts"] >= 6
    assert document["unknowns_settled"] > 0 and document["clients_crashed"] > 0
    assert document["store"].startswith(f"journal:{tmp_path}/once-demo-")
    assert len(json.loads(once("ls", "--json", "--store", document["store"]).text)) == 60
    assert once("verify", "--redecide", "--store", document["store"]).code == 0


def test_the_demo_names_two_commands_that_work(once, tmp_path):
    from conftest import BINARY
    done = once("demo", "--orders", "10", env={"TMPDIR": str(tmp_path)})
    assert done.code == 0
    assert "double charges                  0" in done.text
    commands = re.findall(r"^  (once .*)$", done.text, re.M)
    assert len(commands) == 2
    for command in commands:
        assert subprocess.run([BINARY, *command.split()[1:]], capture_output=True,
            timeout=TIMEOUT_S, cwd=tmp_path).returncode == 0
