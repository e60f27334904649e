"""The command line on a store that many processes share (stores.py): what a journal has not."""
import json
import re
import urllib.request

import pytest
import servers
import stores
from conftest import TIMEOUT_S

pytestmark = pytest.mark.skipif(not stores.SHARED, reason="one process at a time has a journal")
SECRET = "hunter2/?@x"


@pytest.fixture
def filled(once):
    assert once.run("a", "echo", "out").code == 0
    assert once.run("c", "sh", "-c", "kill -9 $$").code == 75
    return once


def checks(done):
    return {line["check"]: line for line in json.loads(done.text)}


def absent():
    """A store that nobody made."""
    if stores.KIND == "redis":
        return f"{stores.base_url()}?name=absent"
    return f"{stores.base_url()}?fsync=off&schema=absent"


def test_doctor_is_content_with_a_sound_store(filled):
    done = filled("doctor")
    assert done.code == 0 and "FAIL" not in done.text, done
    found = checks(filled("doctor", "--json"))
    assert {name: found[name]["verdict"] for name in ("version", "store", "clock", "processes",
        "keys", "unknown")} == {"version": "PASS", "store": "PASS", "clock": "PASS",
        "processes": "PASS", "keys": "PASS", "unknown": "WARN"}
    assert found["keys"]["text"] == "2 live, 0 in progress"
    assert re.search(r"^1 unknown operation, the oldest for \d+", found["unknown"]["text"])
    assert re.search(r"^0 write to it now; [45] chain", found["processes"]["text"])
    process = filled.start("run", "-k", "b", "--", "sh", "-c", "echo; sleep 60")
    process.stdout.readline()
    assert "1 in progress" in checks(filled("doctor", "--json"))["keys"]["text"]


def test_doctor_of_a_store_that_is_not_there_fails_and_says_what_to_do(once):
    done = once("doctor", "--store", absent())
    assert done.code == 1, done
    assert re.search(r"^FAIL  store .*\n +fix: \w", done.text, re.M), done.text


@pytest.mark.parametrize("words", [["ls"], ["show", "--key", "a"], ["why", "--key", "a"], ["tail"]])
def test_a_store_that_is_not_there_is_not_made_by_looking(once, words):
    for _ in range(2):
        done = once(*words, "--store", absent())
        assert (done.code, done.out) == (69, b""), done
        assert re.match(r"once: .*(ABSENT|no store in the schema).*\nhint: ", done.message), done
        assert "start that server" not in done.message, done


def test_a_server_that_cannot_be_reached_is_named_and_its_password_is_not(once):
    scheme = stores.base_url().split(":")[0]
    url = f"{scheme}://someone:hunter2@127.0.0.1:1/0"
    for words in (["ls"], ["doctor"], ["serve", "--listen", "127.0.0.1:0"],
            ["resolve", "op_01920000-0000-7000-8000-000000000001", "--status", "failed",
            "--reason", "r"], ["run", "-k", "a"]):
        done = once(*words, "--store", url, *(["true"] if words[0] == "run" else []))
        assert done.code in (1, 69, 125), (words, done)
        assert "127.0.0.1" in done.text + done.message, done
        assert "hunter2" not in done.text + done.message, done


def test_without_a_server_the_hint_says_to_name_one(filled):
    """Nobody can find the servers of such a store, so none may be missing."""
    for words in (["ls", "effects"], ["ls", "commands"], ["confirm", "cmd_1"]):
        done = filled(*words)
        assert done.code == 69 and "--server URL names one of the servers" in done.message, done


def test_tail_prints_the_newest_checkpoint(filled):
    done = filled("tail", "--checkpoint")
    assert done.code == 0, done
    newest = json.loads(filled("tail", "-n", "1", "--json").text)
    lines = done.text.split("\n")
    assert lines[0] == f"once/{newest['chain_id']}" and lines[1] == str(newest["seq"])
    assert re.fullmatch(f"— {lines[0]} \\S+", lines[-2]) and lines[-1] == ""


def test_backup_says_what_to_use_instead(filled, tmp_path):
    done = filled("backup", tmp_path / "copy")
    assert done.code == 64 and not (tmp_path / "copy").exists()
    assert done.message.startswith("once: backup: the store is not a journal\nhint: ")
    assert {"postgres": "pg_dump", "redis": "append-only file"}[stores.KIND] in done.message


def test_the_hints_can_be_pasted(once):
    done = once.run("a", "sh", "-c", "kill -9 $$")
    line = re.search(r"once (show) (\S+) --store '(\S+)'\n", done.message)
    assert line.group(3) == once.env["ONCE_STORE"]
    assert once(line.group(1), line.group(2), "--store", line.group(3)).code == 0


def test_what_is_settled_is_an_outcome_of_what_it_was(once):
    """A command's outcome is what it printed; nothing else gets a recording."""
    assert once.run("a", "sh", "-c", "test -e done && echo done || kill -9 $$").code == 75
    settled = once("resolve", once.run("a", "sh", "-c", "test -e done && echo done || kill -9 $$",
        options=["--json"]).text and json.loads(once("ls", "--json").text)[0]["operation_id"],
        "--status", "executed", "--reason", "seen", "--outcome", "-", stdin=b"by hand\n")
    assert settled.code == 0, settled
    again = once.run("a", "sh", "-c", "test -e done && echo done || kill -9 $$")
    assert (again.code, again.out) == (0, b"by hand\n")


def test_many_at_once_run_one_command_once(once, tmp_path):
    processes = [once.start("run", "-k", "k", "--wait", "30s", "--", "sh", "-c",
        "sleep 0.2; echo x >> effects; echo out") for _ in range(6)]
    assert [process.communicate(timeout=TIMEOUT_S)[0] for process in processes] == [b"out\n"] * 6
    assert (tmp_path / "effects").read_text() == "x\n"


@pytest.fixture
def guarded():
    """A server with a password that has to be encoded, and everything weak that there is."""
    if stores.KIND == "redis":
        with servers.Redis(appendfsync="everysec") as server:
            server.ask("CONFIG", "SET", "requirepass", SECRET)
            yield f"redis://:hunter2%2F%3F%40x@127.0.0.1:{server.port}/0"
        return
    yield stores.base_url().replace("postgres@", "postgres:hunter2%2F%3F%40x@") + \
        "?fsync=off&schema=guarded&sslpassword=hunter2"


def test_a_password_is_shown_nowhere(once, guarded):
    if stores.KIND == "postgres":
        assert once("migrate", "--store", guarded).code == 0
    server = once.start("serve", "--listen", "127.0.0.1:0", "--store", guarded)
    lines = [server.stdout.readline().decode() for _ in range(4)]
    assert "writes by the database server" in lines[3] and "memory" not in "".join(lines)
    url = re.search(r"http://\S+", "".join(lines)).group()
    ready = once("doctor", "--server", url)
    assert ready.code == 0, ready
    with urllib.request.urlopen(f"{url}/readyz?verbose") as answer:
        verbose = json.loads(answer.read())
    place = next(check for check in verbose["checks"] if check["name"] == "store")
    assert ":***@127.0.0.1" in place["detail"] and place["ok"]
    doctor = once("doctor", "--store", guarded)
    held = once.run("a", "sh", "-c", "kill -9 $$", options=["--store", guarded])
    server.terminate()
    _, log = server.communicate(timeout=TIMEOUT_S)
    said = [*lines, json.dumps(verbose), doctor.text, held.message, log.decode()]
    assert all("hunter2" not in text for text in said), said
    assert all("***" in text for text in (lines[2], doctor.text, held.message, log.decode()))
    if stores.KIND == "redis":  # what is weak is said in all three places
        cautions = [check["detail"] for check in verbose["checks"]
            if check["name"] == "store_caution"]
        assert len(cautions) == 1 and "appendfsync" in cautions[0] and verbose["status"] == "ready"
        assert cautions[0] in doctor.text and "WARN  durability" in doctor.text
        assert '"event":"store_caution"' in log.decode() and "appendfsync" in log.decode()
