"""How ls orders and filters, and how show, why, resolve and tail find an operation."""
import json
import os
import pty
import re
import subprocess

import pytest
from conftest import BINARY, TIMEOUT_S


@pytest.fixture
def several(once):
    """order-1 in two scopes and of two principals, other in one."""
    once.run("order-1", "echo", "one", options=["--scope", "pay"])
    once.run("order-1", "echo", "two", options=["--scope", "mail"])
    once.run("order-1", "echo", "three", options=["--scope", "mail", "--principal", "ann"])
    once.run("other", "echo", "four", options=["--scope", "mail", "--principal", "ann"])
    return once


def listed(once, *words):
    done = once("ls", "--json", *words)
    assert done.code == 0, done
    return json.loads(done.text)


# ---- by key


def test_a_key_is_found_in_any_scope_and_of_any_principal(several):
    assert "standard output, 5 bytes\nfour\n" in several("show", "--key", "other").text
    assert several("why", "--key", "other").code == 0


def test_several_of_a_key_are_listed_and_none_is_shown(several):
    done = several("show", "--key", "order-1")
    assert (done.code, done.out) == (65, b"")
    assert done.message.startswith("once: 3 operations match; name one of them\n")
    assert re.search(r'^  op_\S{36}  executed  scope "mail", key "order-1", principal "ann"$',
        done.message, re.M), done.message
    assert len(done.message.splitlines()) == 4


def test_scope_and_principal_choose_among_them(several):
    assert "two\n" not in several("show", "--key", "order-1", "--scope", "pay").text
    assert several("show", "--key", "order-1", "--scope", "mail").code == 65
    shown = several("show", "--key", "order-1", "--principal", "ann")
    assert shown.code == 0 and "three\n" in shown.text


def test_a_key_that_is_not_there_says_where_it_was_looked_for(several):
    done = several("why", "--key", "nobody")
    assert done.code == 65 and "there is no operation with key 'nobody'" in done.message
    done = several("why", "--key", "other", "--scope", "pay")
    assert done.code == 65 and "with key 'other' in scope 'pay'" in done.message
    assert "without --scope, every scope is searched" in done.message


# ---- by the beginning of an id


def test_the_beginning_of_an_id_is_enough_when_only_one_has_it(once):
    once.run("only", "echo", "out")
    (operation,) = listed(once)
    whole = operation["operation_id"]
    for prefix in ("op_", whole[:4], whole[:14], whole[:-1], whole):
        assert once("show", prefix, "--json").text == once("show", whole, "--json").text
        assert once("why", prefix).code == 0
        assert once("tail", "--operation", prefix, "-n", "9").text.count(whole) == 2


def test_a_beginning_that_several_have_lists_them(several):
    done = several("show", "op_0")
    assert (done.code, done.out) == (65, b"")
    assert "4 operations match; name one of them" in done.message
    assert len(re.findall(r"op_\S{36}", done.message)) == 4


def test_resolve_takes_a_beginning_too(once):
    once.run("only", "sh", "-c", "kill -9 $$")
    whole = listed(once)[0]["operation_id"]
    done = once("resolve", whole[:20], "--status", "failed", "--reason", "r")
    assert (done.code, done.text) == (0, f"{whole}: failed\n")


def test_a_beginning_of_nothing_and_what_is_no_beginning(several):
    done = several("show", "op_ffff")
    assert done.code == 65
    assert "there is no operation that begins with 'op_ffff'" in done.message
    assert several("show", "op_nonsense").code == 64
    assert several("show", "01a1").code == 64


# ---- ls


def test_ls_has_the_latest_change_first_and_a_limit_leaves_the_latest(several):
    updated = [op["updated_at"] for op in listed(several)]
    assert updated == sorted(updated, reverse=True) and len(updated) == 4
    assert listed(several, "--limit", "1")[0]["key"] == "other"
    lines = several("ls").text.splitlines()
    assert lines[0].startswith("OPERATION") and lines[1].endswith(" mail other")


def test_ls_filters_by_principal_and_age(several):
    assert len(listed(several, "--principal", "ann")) == 2
    assert len(listed(several, "--principal", "ann", "--limit", "1")) == 1
    assert len(listed(several, "--since", "1h")) == 4 and listed(several, "--since", "0s") == []
    assert listed(several, "--older-than", "1h") == []


@pytest.mark.parametrize("option, value", [("--principal", "ann"), ("--scope", "pay"),
    ("--key", "order"), ("--tenant", "acme")])
def test_a_filter_is_a_whole_name_and_not_its_beginning(once, option, value):
    for name in (value, value + "a", value[:-1]):
        given = ["--scope", "s"] if option != "--scope" else []
        given += [] if option == "--key" else [option, name]
        key = name if option == "--key" else f"of-{name}"
        assert once.run(key, "sh", "-c", "kill -9 $$", options=given).code == 75
    wanted = value if option == "--key" else f"of-{value}"
    (found,) = listed(once, option, value)
    assert found["key"] == wanted
    settled = once("resolve", option, value, *([] if option != "--tenant" else ["--scope", "s"]),
        "--status", "failed", "--reason", "r", "--yes", "--json")
    assert [op["operation_id"] for op in json.loads(settled.text)] == [found["operation_id"]]


def test_ls_takes_the_kind_that_it_lists(several):
    assert listed(several, "operations") == listed(several)
    done = several("ls", "effects")
    assert done.code == 69 and "no server to ask" in done.message
    done = several("ls", "sources")
    assert done.code == 64 and "sources" in done.message


def test_ls_of_all_tenants_names_each_tenant(several):
    several.run("order-1", "echo", "five", options=["--scope", "pay", "--tenant", "acme"])
    assert len(listed(several)) == 4 and len(listed(several, "--tenant", "acme")) == 1
    tenants = [op["tenant"] for op in listed(several, "--all-tenants")]
    assert tenants == ["acme"] + 4 * ["default"]
    assert {op["tenant"] for op in listed(several, "--all-tenants", "--scope", "pay")} == \
        {"acme", "default"}
    heading, *lines = several("ls", "--all-tenants").text.splitlines()
    assert heading.endswith("  TENANT SCOPE KEY")
    assert lines[0].endswith("  acme pay order-1") and lines[1].endswith("  default mail other")
    assert several("ls").text.splitlines()[0].endswith("  SCOPE KEY")


def test_ls_of_all_tenants_is_not_for_one_tenant_nor_for_a_token(several):
    done = several("ls", "--all-tenants", "--tenant", "acme")
    assert done.code == 64 and "give --tenant or --all-tenants, not both" in done.message
    done = several("ls", "--all-tenants", "--server", "http://127.0.0.1:9")
    assert done.code == 64 and "--all-tenants does not go with --server" in done.message


def terminal(once, *words, env=None):
    """Standard error, and standard output, both of them a terminal's."""
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run([BINARY, *words], stdin=subprocess.DEVNULL, stdout=theirs,
            stderr=theirs, cwd=once.directory, env={**once.env, **(env or {})}, timeout=TIMEOUT_S)
        os.write(theirs, b"END")
        shown = b""
        while not shown.endswith(b"END"):
            shown += os.read(ours, 65536)
        return done.returncode, shown[:-3].decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_on_a_terminal_an_empty_list_says_so_and_names_the_tenant(several):
    code, shown = terminal(several, "ls", "--scope", "nobody")
    assert code == 0 and "once: no operation matches" in shown and "tenant 'default'" in shown
    code, shown = terminal(several, "ls", "--tenant", "acme")
    assert code == 0 and "once: no operations" in shown
    assert several("ls", "--tenant", "acme").message == ""  # for a program it is just empty


def test_a_dumb_terminal_gets_no_colour(several):
    assert "\033[" in terminal(several, "ls", env={"TERM": "xterm"})[1]
    assert "\033[" not in terminal(several, "ls", env={"TERM": "dumb"})[1]


@pytest.mark.parametrize("words", [["ls"], ["ls", "--json"], ["show", "--key", "other"],
    ["why", "--key", "other"], ["tail"], ["tail", "-f"], ["help"], ["help", "run"],
    ["run", "--help"], ["completion", "zsh"], ["check", "--example"], ["version"]])
def test_a_closed_pipe_ends_a_listing_quietly(several, words):
    read, write = os.pipe()
    os.close(read)
    process = several.start(*words, stdout=write)
    os.close(write)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err) == (0, b"")


def test_a_full_disk_is_still_an_error_of_a_listing(several):
    with open("/dev/full", "wb") as full:
        process = several.start("ls", stdout=full)
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 74 and b"No space left" in err


def test_what_would_be_lost_is_an_error_at_a_closed_pipe(once):
    read, write = os.pipe()
    os.close(read)
    process = once.start("token", "new", "--tenant", "a", "--rights", "audit", stdout=write)
    os.close(write)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 74, err
