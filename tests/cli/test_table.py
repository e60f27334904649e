"""The table of commands: parsing, help, manual page, completions, reference."""
import json
import re
import shutil
import subprocess

import pytest
from conftest import BINARY, ROOT, clean_environment


def text_of(*words):
    done = subprocess.run([BINARY, *words], capture_output=True, text=True, timeout=60,
        env=clean_environment(), check=True)
    return done.stdout


COMMANDS = re.findall(r"^  (\w+) +\S", text_of("help"), re.M)


def options_of(command):
    """As the reference has them, which is made from the same table the parser uses."""
    reference = text_of("--dump-markdown")
    section = reference.split(f"## once {command}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `(?:-\w, )?--([\w-]+)", section, re.M)


def test_every_command_of_the_design_is_there():
    wanted = {"run", "ls", "show", "why", "resolve", "tail", "verify", "doctor", "canon", "key",
        "bench", "demo", "version", "help", "serve", "check", "token", "send", "gateway", "policy",
        "completion", "backup", "migrate", "registry", "conformance", "confirm", "deny", "retry",
        "cancel", "compensate", "redeliver", "skip", "inbox", "copy", "mcp"}
    assert wanted == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_mentions_every_option_and_says_the_same_three_ways(command):
    text = text_of("help", command)
    assert text == text_of(command, "--help") == text_of(command, "-h")
    for option in options_of(command):
        assert re.search(rf"^  (-\w, )?--{option}\b", text, re.M), option
    assert "exit codes:" in text and "examples:" in text
    assert max(len(line) for line in text.splitlines()) <= 100


@pytest.mark.parametrize("command", [c for c in COMMANDS
    if c not in ("help", "canon", "completion", "mcp")])  # MCP is JSON already
def test_everything_that_prints_data_has_json(command):
    assert "json" in options_of(command)


def test_the_store_option_is_where_a_store_is_touched():
    for command in ("run", "ls", "show", "why", "resolve", "tail", "verify", "doctor"):
        assert "store" in options_of(command)


def test_version_in_every_spelling(once):
    assert once("--version").text == once("version").text
    assert re.fullmatch(r"once \d+\.\d+\.\d+\n", once("version").text)
    assert re.fullmatch(r"\d+\.\d+\.\d+", json.loads(once("version", "--json").text)["version"])


def test_no_command_is_a_usage_error_that_shows_the_list(once):
    done = once()
    assert done.code == 64
    assert "usage: once COMMAND" in done.text


@pytest.mark.parametrize("words, hint", [
    (["lss"], "did you mean 'once ls'?"),
    (["verfy"], "did you mean 'once verify'?"),
    (["ls", "--stat", "unknown"], "did you mean '--status'?"),
    (["run", "--idempotancy-key", "a", "true"], "did you mean '--idempotency-key'?"),
    (["ls", "--status", "lost"], "is not a status of operations: in_progress, unknown, released"),
    (["ls", "--status=lost"], "is not a status of operations"),
    (["run", "--", "true"], "once help run"),
    (["run", "-k", "a"], "once help run"),
    (["run", "-k", "a", "--lease", "soon", "true"], "is not a duration"),
    (["run", "-k", "a", "--max-output", "9MB", "true"], "is not a size"),
    (["run", "-k", "a", "--max-output", "16MiB", "true"], "15MiB"),
    (["run", "-k"], "needs a value"),
    (["run", "-k", "a", "--env", "A=b", "true"], "not the name of a variable"),
    (["tail", "-n", "many"], "is not a whole number"),
    (["ls", "--json=yes"], "takes no value"),
    (["ls", "-x"], "unknown option '-x'"),
    (["ls", "extra"], "cannot be listed"),
    (["ls", "effects", "extra"], "one argument too many"),
    (["show"], "give an operation id"),
    (["show", "op_1", "--key", "a"], "give an operation id"),
    (["key", "thing"], "is not one of command, effect, source"),
    (["help", "thing"], "unknown command 'thing'"),
    (["resolve", "op_1", "--status", "executed"], "--reason TEXT is missing"),
    (["resolve", "op_1", "--status", "not_executed", "--reason", "r", "--exit-code", "1"], "not"),
    (["bench", "--threads", "0"], "--threads"),
    (["demo", "--orders", "0"], "--orders"),
])
def test_a_wrong_command_line_is_64_with_a_hint(once, words, hint):
    once("run", "-k", "x", "true")
    done = once(*words)
    assert done.code == 64, done
    assert done.message.startswith("once: ")
    assert "\nhint: " in done.message
    assert hint in done.message
    assert done.out == b""


def test_options_come_in_both_forms_and_anywhere(once):
    assert once("run", "--idempotency-key=a", "--", "echo", "x").text == "x\n"
    assert once("show", "--key", "a", "--json").code == 0
    assert once("tail", "-n1").text.count("\n") == 1
    assert once("tail", "--lines=1").text == once("tail", "-n", "1").text


def test_options_of_the_command_are_not_ours(once):
    assert once("run", "-k", "a", "echo", "--json", "--store").text == "--json --store\n"


def test_flags_win_over_variables_and_variables_over_defaults(once, tmp_path):
    env = {"ONCE_STORE": f"journal:{tmp_path}/from-env"}
    once.run("a", "true", env=env)
    assert (tmp_path / "from-env").is_dir() and not (tmp_path / "once-data").exists()
    once.run("a", "true", options=["--store", f"journal:{tmp_path}/from-flag"], env=env)
    assert (tmp_path / "from-flag").is_dir()
    once.run("a", "true")
    assert (tmp_path / "once-data").is_dir()


def test_a_bad_variable_is_78(once):
    done = once.run("a", "true", env={"ONCE_LEASE": "soon"})
    assert done.code == 78
    assert "once: ONCE_LEASE: 'soon' is not a duration" in done.message


def test_colour_only_on_a_terminal_and_without_no_color(once):
    def on_terminal(env):
        import pty
        try:
            leader, follower = pty.openpty()
        except OSError:
            pytest.skip("there are no pseudo-terminals here")
        process = once.start("help", stdout=follower, env=env)
        process.wait(timeout=60)
        import os
        os.close(follower)
        text = b""
        try:
            while chunk := os.read(leader, 65536):
                text += chunk
        except OSError:
            pass
        os.close(leader)
        return text

    assert b"\033[" in on_terminal({"TERM": "xterm"})
    assert b"\033[" not in on_terminal({"TERM": "dumb"})
    assert b"\033[" not in on_terminal({"TERM": "xterm", "NO_COLOR": "1"})
    assert b"\033[" not in once("help").out


def test_a_full_disk_on_standard_output_is_74(once):
    with open("/dev/full", "wb") as full:
        process = once.start("help", "run", stdout=full)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 74
    assert err == b"once: cannot write to standard output: No space left on device\n"


def test_the_reference_in_docs_is_current():
    assert (ROOT / "docs/cli.md").read_text() == text_of("--dump-markdown"), \
        "make it again: build/once --dump-markdown > docs/cli.md"


def test_the_manual_page_has_everything_and_renders_without_a_warning():
    page = text_of("--dump-man")
    for command in COMMANDS:
        assert f".SS once {command}" in page
        for option in options_of(command):
            assert "\\-\\-" + option.replace("-", "\\-") in page
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is not here")
    done = subprocess.run([groff, "-man", "-Tutf8", "-ww", "-z"], input=page, text=True,
        capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_know_every_command_and_option_and_parse(shell):
    text = text_of("--dump-completion", shell)
    for command in COMMANDS:
        assert command in text
        for option in options_of(command):
            assert option in text
    program = shutil.which(shell)
    if program is not None:
        done = subprocess.run([program, "-n", "/dev/stdin"], input=text, text=True,
            capture_output=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")


def complete(*words):
    """What bash would offer for the last word."""
    line = " ".join(f"'{word}'" for word in words)
    done = subprocess.run(["bash", "-c", text_of("--dump-completion", "bash") + f"""
COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _once; printf '%s\\n' "${{COMPREPLY[@]}}" """],
        capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here")
def test_bash_completes_commands_options_and_values():
    assert complete("once", "ver") == ["verify", "version"]
    assert complete("once", "run", "--on") == ["--on-unknown"]
    assert complete("once", "run", "--on-unknown", "") == ["hold", "takeover"]
    assert complete("once", "key", "c") == ["command"]
    assert "true" in complete("once", "run", "--", "tru")
