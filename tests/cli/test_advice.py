"""What is said to somebody who is new here: hints, spellings, a doctor with the right advice."""
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import stores
from conftest import BINARY, Once
from fake_server import Fake


@pytest.fixture
def foreign():
    """A store that this user may not open: a different user's, or a closed one of our own."""
    # Not where the other tests work: nobody else may enter there.
    directory = Path(tempfile.mkdtemp(prefix="once-foreign-", dir="/tmp"))
    directory.chmod(0o755)
    program = Once(directory)
    program.run("a", "true")
    binary = directory / "once"  # somebody else may not reach the build
    shutil.copy(BINARY, binary)
    is_root = os.geteuid() == 0
    if not is_root:
        (directory / "once-data").chmod(0)

    def run(*words):
        return subprocess.run([binary, *words], cwd=directory, env=program.env, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
            user=65534 if is_root else None, group=65534 if is_root else None)

    yield run
    program.end()
    (directory / "once-data").chmod(0o700)
    shutil.rmtree(directory)


@stores.journal_only("files have owners")
@pytest.mark.parametrize("words", [["ls"], ["show", "--key", "a"], ["tail"], ["verify"]])
def test_a_store_of_a_different_user_is_not_taken_for_a_missing_one(foreign, words):
    done = foreign(*words)
    assert done.returncode in (2, 69) and "Permission denied" in done.stderr, done
    assert re.search(r"^hint: it belongs to user \d+: run once as that user", done.stderr, re.M)
    assert "creates one" not in done.stderr


@stores.journal_only("files have owners")
def test_a_store_that_cannot_be_created_says_what_to_do(foreign):
    done = foreign("run", "--store", "journal:./other", "--idempotency-key", "a", "--", "true")
    assert done.returncode == 125 and "Permission denied" in done.stderr, done
    assert "hint: name a store in a directory that you may write to" in done.stderr


@stores.journal_only("files have owners")
def test_doctor_as_a_different_user_never_says_restore(foreign):
    done = foreign("doctor")
    assert done.returncode == 1, done
    assert re.search(r"FAIL  directory +'\./once-data' belongs to user \d+, and you may not open",
        done.stdout), done
    assert "run once doctor as that user" in done.stdout and "restore" not in done.stdout


@stores.journal_only("directories")
def test_doctor_of_an_empty_directory_says_that_it_is_empty(once):
    (once.directory / "once-data").mkdir(mode=0o700)
    done = once("doctor")
    assert done.code == 0, done
    assert "WARN  store        './once-data' is empty" in done.text
    assert "fix: the first once run makes it" in done.text and "restore" not in done.text
    assert once.run("a", "true").code == 0  # it is so
    assert "is empty" not in once("doctor").text


@stores.journal_only("directories")
def test_doctor_of_a_directory_of_something_else_asks_whether_it_is_the_right_one(once):
    (once.directory / "once-data").mkdir(mode=0o700)
    (once.directory / "once-data/photo.jpg").touch()
    done = once("doctor")
    assert done.code == 1 and "fix: is this the store's directory?" in done.text, done


@stores.journal_only("docs/verify.md")
def test_verify_without_a_store_has_the_hint_too(once):
    done = once("verify")
    assert done.code == 2
    assert "hint: name a different store with --store URL or ONCE_STORE" in done.message


def test_help_of_a_misspelt_command_asks_what_was_meant(once):
    done = once("help", "sevre")
    assert (done.code, done.out) == (64, b"")
    assert done.message == "once: unknown command 'sevre'\nhint: did you mean 'once serve'?\n"


@pytest.mark.parametrize("word", ["--version", "-V", "-v", "version"])
def test_the_version_has_the_spellings_that_people_try(once, word):
    assert re.fullmatch(r"once \d+\.\d+\.\d+\n", once(word).text)


@pytest.mark.parametrize("address", [":7414", "localhost:7414"])
def test_short_addresses_are_the_loopback_one(once, address):
    done = once("serve", "--listen", address, "--test", "--json")
    assert done.code == 0, done
    assert json.loads(done.text)["settings"]["listen"] == ["127.0.0.1:7414"]
    done = once("gateway", "--upstream", "http://127.0.0.1:9", "--listen", address, "--test")
    assert done.code == 0 and "127.0.0.1:7414" in done.text, done
    done = once("serve", "--test", "--json", env={"ONCE_LISTEN": address})
    assert json.loads(done.text)["settings"]["listen"] == ["127.0.0.1:7414"]


@pytest.mark.parametrize("address", [":7414", "localhost:7414"])
def test_short_addresses_are_the_same_in_the_file(once, address):
    config = once.directory / "once.yaml"
    config.write_text(f"listen:\n  - {address}\n  - unix:a.sock\n"
        f"gateway:\n  listen: {address[:-1]}5\n  upstream: http://127.0.0.1:9\n")
    done = once("serve", "--config", config, "--test", "--json")
    assert done.code == 0, done
    document = json.loads(done.text)
    assert document["settings"]["listen"] == ["127.0.0.1:7414", "unix:a.sock"]
    assert document["gateway"]["listen"] == ["127.0.0.1:7415"]
    config.write_text(f"listen: {address}\n")
    assert "127.0.0.1:7414" in once("check", config).text


@pytest.mark.parametrize("address", ["localhost", "localhostess:7414", ":", ":x"])
def test_what_is_no_address_is_still_refused(once, address):
    assert once("serve", "--listen", address, "--test").code == 78


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_command(once, shell):
    done = once("completion", shell)
    assert done.code == 0 and done.text == once("--dump-completion", shell).text
    assert "resolve" in done.text and f"made by once completion {shell}" in done.text


def test_completion_of_a_shell_that_is_not_known(once):
    done = once("completion", "tcsh")
    assert done.code == 64 and "'tcsh' is not bash, zsh or fish" in done.message
    assert once("completion").code == 64


def test_why_after_a_crash_does_not_say_that_the_dead_process_said_so(once, tmp_path):
    process = once.start("run", "-k", "a", "--", "sh", "-c", "touch started; sleep 60")
    while not (tmp_path / "started").exists():
        assert process.poll() is None
    os.killpg(process.pid, 9)
    process.wait()
    finder = once.start("run", "-k", "a", "--", "sh", "-c", "touch started; sleep 60")
    assert finder.wait() == 75
    text = once("why", "--key", "a").text
    assert f"    reason: the process that ran it, pid {process.pid}, is gone\n" \
        f"    actor: once run, pid {finder.pid}\n" in text
    assert "is gone" in text and "the holder of the grant reported it" not in text
    assert "rule H5: the report has the fence of the current grant, so it counts" in text


# ---- libraries that are loaded on demand


@pytest.fixture
def without_libraries(once, tmp_path):
    """The loader finds empty files first."""
    for name in ("libpq.so.5", "libcurl.so.4"):
        (tmp_path / name).touch()
    once.env["LD_LIBRARY_PATH"] = str(tmp_path)
    return once


@stores.journal_only("it does without them")
def test_a_command_that_needs_no_library_does_without_it(without_libraries):
    assert without_libraries.run("a", "true").code == 0
    done = without_libraries("doctor")
    assert done.code == 0, done
    for package in ("libpq5", "libcurl4"):
        assert re.search(rf"WARN  library +cannot load .*\n +fix: apt-get install {package}\n",
            done.text), done


@stores.journal_only("it names its own")
@pytest.mark.parametrize(("words", "package"), [
    (["ls", "--store", "postgres://127.0.0.1:1/x"], "libpq5"),
    (["migrate", "--store", "postgres://127.0.0.1:1/x"], "libpq5"),
    (["serve", "--store", "postgres://127.0.0.1:1/x"], "libpq5"),
    (["send", "POST", "http://127.0.0.1:1/"], "libcurl4"),
    (["ls", "--server", "http://127.0.0.1:1"], "libcurl4"),
    (["mcp", "--upstream", "http://127.0.0.1:1/mcp"], "libcurl4")])
def test_a_missing_library_is_named_with_its_package(without_libraries, words, package):
    done = without_libraries(*words)
    assert done.code > 0, done
    assert "cannot load " in done.message and f"apt-get install {package}" in done.message, done


# ---- doctor of a server


def test_doctor_asks_a_server(once):
    once.run("a", "true")
    once.run("b", "sh", "-c", "kill -9 $$")
    fake = Fake()
    fake.fill(once)
    fake.bend = lambda handler: handler.path == "/readyz" and (handler.reply(200, {}) or True)
    address = fake.serve()
    try:
        done = once("doctor", "--server", address)
        assert done.code == 0, done
        assert re.search(rf"PASS  server +{re.escape(address)} is ready", done.text)
        assert re.search(r"WARN  unknown +1 unknown operation\n +fix: once ls", done.text)
        fake.token = "other"
        done = once("doctor", "--server", address)
        assert done.code == 0 and re.search(r"WARN  token +operations cannot be read", done.text)
        fake.bend = lambda handler: handler.path == "/readyz" and (handler.reply(503, {}) or True)
        done = once("doctor", "--server", address)
        assert done.code == 1 and "FAIL  server" in done.text, done
    finally:
        fake.end()
    done = once("doctor", "--server", address)
    assert done.code == 1 and re.search(r"FAIL  server +\S+ does not answer", done.text), done
