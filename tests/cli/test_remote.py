"""ls, show, why, tail, resolve and verify through a server, named or found by its socket."""
import copy
import json
import os
import re
import shutil
import socket
import subprocess
import time
from urllib.parse import parse_qs, urlsplit

import pytest
from conftest import Once
from fake_server import ZERO, Fake, Problem, chain

NO_OPERATION = "op_00000000-0000-7000-8000-000000000000"


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """a executed twice over, b of another scope failed, c unknown; two principals share a key."""
    once = Once(tmp_path_factory.mktemp("story"))
    once.run("a", "echo", "out")
    once.run("a", "echo", "out")
    once.run("a", "echo", "other")
    once.run("b", "sh", "-c", "echo oops >&2; exit 3", options=["--scope", "jobs"])
    once.run("c", "sh", "-c", "kill -9 $$")
    once.run("d e/&", "echo", "of ann", options=["--principal", "ann"])
    once.run("d e/&", "echo", "of bob", options=["--principal", "bob"])
    shown = Fake()
    shown.fill(once)
    yield once.directory / "once-data", shown.operations, shown.entries
    shown.end()
    once.end()


@pytest.fixture
def filled(once, story):
    """A store of its own with the story in it."""
    shutil.copytree(story[0], once.directory / "once-data")
    return once


@pytest.fixture
def fake(filled, story):
    server = Fake()
    server.operations, server.entries = copy.deepcopy(story[1:])
    yield server
    server.end()


@pytest.fixture(params=["named", "found"])
def ways(request, filled, fake):
    """How to look at the store itself, and how to look through the server."""
    def local(*words):
        shutil.copytree(filled.directory / "once-data", filled.directory / "copy",
            ignore=shutil.ignore_patterns("once.sock"), dirs_exist_ok=True)
        return filled(*words, "--store", "journal:copy")

    if request.param == "named":
        url = fake.serve()
        return local, lambda *words: filled(*words, "--server", url)
    fake.serve(filled.directory / "once-data" / "once.sock")
    return local, filled


def unknown_id(fake):
    return next(op["operation_id"] for op in fake.operations if op["status"] == "unknown")


LOOKING = [["ls"], ["ls", "--status", "unknown"], ["ls", "--scope", "jobs"], ["ls", "--key", "a"],
    ["show", "--key", "a"], ["show", "--key", "b", "--scope", "jobs"], ["show", "--key", "c"],
    ["show", "--key", "d e/&", "--principal", "ann"],  # one of the two comes first in the list
    ["show", "--key", "d e/&", "--principal", "bob"], ["why", "--key", "a"], ["why", "--key", "c"],
    ["tail"], ["tail", "-n", "1"], ["tail", "-n", "3"], ["tail", "-n", "1000"]]


def ageless(text):
    """Without what the time between two looks changes: the age of what is unknown."""
    return re.sub(r'"age_ms":\d+', '"age_ms":0', re.sub(r"(unknown +)\d+[smhd]\b", r"\1 0s", text))


@pytest.mark.parametrize("page", [1000, 2])
def test_what_is_shown_is_the_same_as_from_the_store(ways, fake, page):
    local, remote = ways
    fake.page, entries = page, list(fake.entries)
    for words in LOOKING:
        for form in ([], ["--json"]):
            fake.entries = list(entries)  # without what looking at it before left
            wanted, got = local(*words, *form), remote(*words, *form)
            assert (wanted.code, wanted.message) == (0, "")
            assert (got.code, ageless(got.text), got.message) == (0, ageless(wanted.text), ""), \
                words
            assert fake.requests, "it was not asked"
    assert len(json.loads(remote("ls", "--json", "--limit", "3").text)) == 3


def test_what_is_not_there_is_65_and_what_is_no_id_64(ways):
    local, remote = ways
    for words in (["show", "--key", "nothing"], ["show", NO_OPERATION], ["show", "op_1"],
            ["why", "--key", "d e/&", "--principal", "eve"], ["tail", "--operation", "op_1"]):
        wanted, got = local(*words), remote(*words)
        assert got.code == wanted.code in (64, 65)
        assert got.message.splitlines()[0] == wanted.message.splitlines()[0]
        assert got.out == b""


@pytest.mark.parametrize("request_", ["text", '{"a":1}', "9007199254740993", "", 7, None, [1.5]])
def test_a_request_is_shown_as_the_json_that_the_server_says(filled, fake, request_):
    fake.operations[0]["request"] = request_
    document = json.loads(filled("show", fake.operations[0]["operation_id"], "--json", "--server",
        fake.serve()).text)
    assert document.get("request") == request_


def test_an_outcome_that_is_json_is_shown_as_json(filled, fake):
    done = next(op for op in fake.operations if op["status"] == "executed")
    done["outcome"] = {"charge": "ch_1", "cents": 1200}
    document = json.loads(filled("show", done["operation_id"], "--json", "--server",
        fake.serve()).text)
    assert (document["outcome"], document["outcome_retained"]) == (done["outcome"], True)


def test_bytes_that_are_not_text_come_through(filled, fake):
    done = next(op for op in fake.operations if op["status"] == "executed")
    done["outcome"] = {"code": 7, "meta": "x", "body_base64": "/wD/fg=="}
    document = json.loads(filled("show", done["operation_id"], "--json", "--server",
        fake.serve()).text)
    assert document["outcome"]["body_base64"] == "/wD/fg=="
    for bad in ("/wD", "/w!=", "====="):
        done["outcome"]["body_base64"] = bad
        assert filled("show", done["operation_id"], "--server", fake.serve()).code == 69


# --- Who asks ---------------------------------------------------------------------------------

def test_the_token_is_sent_and_its_lack_is_77(filled, fake):
    fake.token = "secret-1"
    url = fake.serve()
    done = filled("ls", "--server", url)
    assert (done.code, done.out) == (77, b"")
    assert done.message == ("once: a token is needed (401)\n"
        "hint: ONCE_TOKEN holds the token of the caller\n")
    assert filled("ls", env={"ONCE_SERVER": url, "ONCE_TOKEN": "secret-1"}).code == 0
    assert filled("ls", "--server", url, "--token", "secret-1").code == 0
    done = filled("ls", "--server", url, env={"ONCE_TOKEN": "secret-1\r\nX-Evil: 1"})
    assert done.code == 64 and "secret" not in done.message

    def forbid(handler):
        handler.reply(403, {"code": "forbidden", "detail": "the right 'audit' is missing"})
        return True
    fake.bend = forbid
    done = filled("tail", "--server", url)
    assert done.code == 77 and "the right 'audit' is missing (403)\nhint: " in done.message


def test_the_socket_of_the_store_is_asked_for_a_tenant_and_others_are_not(filled, fake):
    fake.serve(filled.directory / "once-data" / "once.sock")
    filled("ls")
    filled("ls", "--tenant", "acme")
    filled("ls", "--server", fake.serve())
    assert [headers.get("Once-Tenant") for _, _, headers, _ in fake.requests] == \
        ["default", "acme", None]
    assert len({headers["Request-Id"] for _, _, headers, _ in fake.requests}) == 3
    done = filled("ls", "--server", fake.serve(), "--tenant", "acme")
    assert done.code == 64 and "the token says" in done.message
    assert "Authorization" not in fake.requests[0][2]


def test_a_socket_that_nobody_serves_is_passed_over(filled):
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(filled.directory / "once-data" / "once.sock"))
    done = filled("ls", "--json")
    assert (done.code, len(json.loads(done.text))) == (0, 5)


def test_which_one_is_asked(filled, fake):
    url = fake.serve()
    assert filled("ls", "--server", url, "--store", "once-data").code == 64
    assert filled("ls", "--store", "once-data", env={"ONCE_SERVER": url}).code == 0
    assert fake.requests == []
    assert filled("ls", env={"ONCE_SERVER": url}).code == 0
    assert len(fake.requests) == 1
    for bad in ("127.0.0.1:1", "ftp://x", "http://x/?a", "http://x y"):
        done = filled("ls", "--server", bad)
        assert (done.code, done.out) == (64, b"") and "\nhint: " in done.message


# --- What can go wrong ------------------------------------------------------------------------

def test_a_server_that_is_not_there_is_69(once):
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))  # and nobody listens
        url = f"http://127.0.0.1:{port.getsockname()[1]}"
        for words in (["ls"], ["resolve", NO_OPERATION, "--status", "failed", "--reason", "r"]):
            done = once(*words, "--server", url)
            assert done.code == 69
            assert done.message.startswith(f"once: cannot reach the server '{url}': ")
            assert "\nhint: once serve starts one" in done.message
        assert once("verify", "--server", url).code == 2
    done = once("ls", "--server", "unix:/nowhere/once.sock")
    assert done.code == 69


@pytest.mark.parametrize("status, body", [(200, b"<html>"), (200, b"[]"), (404, b"not here"),
    (500, b""), (200, b'{"operations":{}}'), (200, b'{"operations":[{}],"next":null}'),
    (302, b"{}")])
def test_an_answer_that_is_not_once_s_is_69(filled, fake, status, body):
    elsewhere = Fake()
    elsewhere.fill(filled)
    target = elsewhere.serve() + "/v1/operations?limit=1000"

    def odd(handler):
        handler.reply(status, body, **({"Location": target} if status == 302 else {}))
        return True
    fake.bend = odd
    done = filled("ls", "--server", fake.serve(), "--token", "t")
    assert done.code == 69 and done.message.startswith("once: ")
    assert elsewhere.requests == []
    elsewhere.end()


def effects(count, per_page, asked):
    """Bend a server: it has this many effects, each with a colour in its type."""
    def answer(handler):
        url = urlsplit(handler.path)
        asked.append(handler.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        first = int(query.get("after", "0"))
        found = [{"effect_id": f"eff_{n:08x}-0000-7000-8000-000000000000", "status": "pending",
            "effect_type": "a\x1b[31m b", "command_id": f"c{n}"} for n in range(count)]
        if url.path != "/v1/effects":
            ident = url.path.split("/")[3]
            is_there = any(one["effect_id"] == ident for one in found)
            handler.reply(200 if is_there else 404, {"effect_id": ident, "status": "failed"})
            return True
        last = first + per_page
        handler.reply(200, {"effects": found[first:last],
            "next": str(last) if last < count else None})
        return True
    return answer


def test_the_beginning_of_an_id_is_looked_for_on_every_page(filled, fake):
    asked, url = [], fake.serve()
    fake.bend = effects(40, 3, asked)
    done = filled("resolve", "eff_00000027", "--status", "failed", "--reason", "r",
        "--server", url)
    assert (done.code, done.text) == (
        0, "eff_00000027-0000-7000-8000-000000000000 is failed\n"), done
    # --status of resolve is not a filter of the list.
    # First the text itself is asked for: a submitter may have given it.
    assert len(asked) == 16 and not any("status" in path for path in asked), asked
    done = filled("cancel", "eff_000000", "--server", url)
    assert (done.code, done.out) == (65, b"") and "40 effects match" in done.message
    assert done.message.endswith("  and 30 more\n") and len(done.message.splitlines()) == 12
    assert "\x1b" not in done.message and 'effect_type "a\\u001b[31m b", command_id "c0"' \
        in done.message
    assert not any("cancel" in path for path in asked)


def test_a_whole_id_is_not_looked_for(filled, fake):
    asked, url = [], fake.serve()
    fake.bend = effects(3, 3, asked)
    whole = "eff_00000001-0000-7000-8000-000000000000"
    assert filled("retry", whole, "--server", url).code == 0
    assert asked == [f"/v1/effects/{whole}/retry"]


@pytest.mark.parametrize("body", [{"effects": {}}, {"next": None}, {"effects": [], "next": "0"},
    {"effects": [], "next": "a&b"}, {"effects": [], "next": "a" * 300}, {"effects": [], "next": 7}])
def test_a_search_through_odd_pages_ends(filled, fake, body):
    def odd(handler):
        handler.reply(200, body)
        return True
    fake.bend = odd
    for words in (["show", "eff_0"], ["ls", "effects"]):
        done = filled(*words, "--server", fake.serve())
        assert done.code == 69 and "is not a page of effects" in done.message, done


def test_an_answer_without_end_is_given_up(filled, fake):
    def endless(handler):
        handler.send_response(200)
        handler.end_headers()
        while True:
            handler.wfile.write(b" " * 65536)
    fake.bend = endless
    done = filled("ls", "--server", fake.serve())
    assert done.code == 69 and "longer than 16777216 bytes" in done.message


def test_refusals_have_their_exit_codes_and_no_escapes_reach_the_terminal(filled, fake):
    url = fake.serve()
    for status, code in ((400, 64), (409, 65), (429, 69), (503, 69), (500, 69)):
        def refuse(handler, status=status):
            handler.reply(status, {"code": "c", "detail": "a\x1b[31m b", "effect": "no"})
            return True
        fake.bend = refuse
        done = filled("ls", "--server", url)
        assert done.code == code and f"once: a?[31m b ({status})" in done.message


def test_certificates_are_checked(filled, fake):
    place = filled.directory
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not here")
    subprocess.run([openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
        "-keyout", place / "key.pem", "-out", place / "cert.pem", "-subj", "/CN=once",
        "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    (place / "both.pem").write_text(
        (place / "key.pem").read_text() + (place / "cert.pem").read_text())
    url = fake.serve(certificate=place / "both.pem")
    done = filled("ls", "--server", url, "--token", "t")
    assert done.code == 69 and "hint: --cacert FILE" in done.message
    assert fake.requests == []
    assert filled("ls", "--server", url, "--cacert", place / "cert.pem").code == 0


def test_doctor_warns_of_a_server_that_is_not_ready_and_does_not_fail(filled, fake):
    fake.serve(filled.directory / "once-data" / "once.sock")

    def server():
        done = filled("doctor", "--json")
        assert done.code == 0
        return next(check for check in json.loads(done.text) if check["check"] == "server")

    def say(handler, status):
        handler.reply(status, b"not ready: store", "text/plain")
        return True
    fake.bend = lambda handler: say(handler, 503)
    check = server()
    assert check["verdict"] == "WARN" and "it answers 503" in check["text"]
    assert f"pid {os.getpid()}," in check["text"] and "readyz?verbose" in check["fix"]
    assert [path for _, path, _, _ in fake.requests] == ["/readyz"]

    def hang_up(handler):
        handler.close_connection = True
        return True
    fake.bend = hang_up
    check = server()
    assert check["verdict"] == "WARN" and "does not answer" in check["text"]
    fake.bend = lambda handler: say(handler, 200)
    assert server()["verdict"] == "PASS"


# --- resolve ----------------------------------------------------------------------------------

def test_resolve_goes_through_the_server(ways, fake):
    _, remote = ways
    found = unknown_id(fake)
    done = remote("resolve", found, "--status", "not_executed", "--reason", "no charge")
    assert (done.code, done.text, done.message) == (0, f"{found}: not_executed\n", "")
    method, path, _, body = fake.requests[-1]
    assert (method, path) == ("POST", f"/v1/operations/{found}/resolve")
    assert json.loads(body) == {"status": "not_executed", "reason": "no charge"}


def test_resolve_sends_what_was_found_out(filled, fake):
    found, url = unknown_id(fake), fake.serve()
    words = ["resolve", found, "--server", url, "--status", "executed", "--reason", "r",
        "--effect-id", "ch_1", "--fence", "3", "--outcome", "-", "--json"]
    done = filled(*words, stdin=b'{ "charge": "ch_1" }')
    assert done.code == 0
    document = json.loads(done.text)
    assert document["decision"] == "resolved"
    assert document["operation_id"] == found
    assert b'"outcome":{ "charge": "ch_1" }' in fake.requests[-2][3], "not byte for byte"
    assert json.loads(fake.requests[-2][3]) == {"status": "executed", "reason": "r",
        "effect_id": "ch_1", "fence": 3, "outcome": {"charge": "ch_1"}}
    sent = len(fake.requests)
    assert filled(*words, stdin=b"not JSON").code == 65
    assert len(fake.requests) == sent


def test_resolve_settles_a_run_with_its_exit_code(filled, fake):
    found, url = unknown_id(fake), fake.serve()
    assert filled("resolve", found, "--server", url, "--status", "failed", "--reason", "r",
        "--exit-code", "2", "--outcome", "-", stdin=b"not JSON").code == 0
    assert json.loads(fake.requests[-1][3])["outcome"] == {"format": "once-run/2", "exit_code": 2,
        "output": [{"stdout": "not JSON"}], "stdout_dropped": 0, "stderr_dropped": 0}


@pytest.mark.parametrize("status, code, exit_code", [(409, "still_running", 75),
    (409, "stale_fence", 65), (409, "already_sealed", 65), (404, "operation_not_found", 65),
    (503, "overloaded", 69)])
def test_a_resolve_that_is_refused(filled, fake, status, code, exit_code):
    fake.resolve_problem = Problem(status, code)
    done = filled("resolve", unknown_id(fake), "--status", "failed", "--reason", "r", "--server",
        fake.serve())
    assert (done.code, done.out) == (exit_code, b"")
    assert done.message.startswith("once: ")


def test_a_resolve_without_an_answer_may_have_happened(filled, fake):
    def hang_up(handler):
        handler.close_connection = True
        return True
    fake.bend = hang_up
    done = filled("resolve", unknown_id(fake), "--status", "failed", "--reason", "r", "--server",
        fake.serve())
    assert done.code == 75
    assert "may have taken effect: check before trying again" in done.message
    assert len(fake.requests) == 1, "it was sent a second time"
    assert filled("ls", "--server", fake.serve()).code == 69


# --- tail -------------------------------------------------------------------------------------

def test_follow_shows_what_comes_and_not_that_it_looks(filled, fake):
    process = filled.start("tail", "-f", "-n", "0", "--json", "--server", fake.serve())
    until = time.monotonic() + 60
    while sum("/evidence?" in path for _, path, _, _ in fake.requests) < 4:
        assert time.monotonic() < until
        time.sleep(0.02)
    fake.add({"type": "access.read", "operation_id": "", "trace": {"request_id": "another"}})
    line = process.stdout.readline()
    assert json.loads(line)["trace"]["request_id"] == "another"
    assert sum(e["type"] == "access.read" for e in fake.entries) > 4
    process.kill()


# --- verify -----------------------------------------------------------------------------------

def verify(filled, fake, *words):
    done = filled("verify", "--json", *words, "--server", fake.serve())
    return done.code, json.loads(done.text)


def test_verify_says_what_was_checked_and_what_was_not(filled, fake):
    count = len(fake.entries)
    done = filled("verify", "--server", fake.serve())
    assert done.code == 0 and done.text.startswith("ok: ")
    assert f"checked {count} entries, 1 to {count}: each against its hash, {count} against" \
        in done.text
    assert f"head: entry {count}, which is what the server says" in done.text
    assert "not checked: that no entry is missing" in done.text
    code, document = verify(filled, fake)
    assert (code, document["ok"], document["damage_count"], document["gaps"]) == (0, True, 0, 0)
    assert document["head_compared"] and document["not_checked"]


def test_verify_pages(filled, fake):
    count, fake.page = len(fake.entries), 3
    code, document = verify(filled, fake)
    assert code == 0 and document["entries"] >= count and document["links"] == document["entries"]


def test_entries_of_others_are_gaps_and_no_damage(filled, fake):
    whole = fake.entries
    fake.entries = [e for e in whole if e["seq"] not in (1, 4, 5, whole[-1]["seq"])]
    fake.head = {k: whole[-1][k] for k in ("chain_id", "seq", "hash")}
    fake.logs_reads = False
    code, document = verify(filled, fake)
    assert (code, document["gaps"], document["head_compared"]) == (0, 2, False)
    assert document["links"] == document["entries"] - 2
    text = filled("verify", "--server", fake.serve()).text
    assert "not among those shown, so not compared" in text


def flip_a_member(entries):
    entries[3]["scope"] += "x"
    return entries


def flip_a_hash(entries):
    entries[3]["hash"] = entries[2]["hash"]
    return entries


def drop_one_and_renumber(entries):
    kept = [copy.deepcopy(e) for e in entries if e["seq"] != 3]
    for seq, entry in enumerate(kept, 1):
        entry["seq"] = seq
    return kept


def swap_two(entries):
    entries[3], entries[4] = entries[4], entries[3]
    return entries


def begin_anew(entries):
    return entries[:3] + chain(entries[3:], ZERO)


def another_chain(entries):
    return chain([{**e, "chain_id": "0" * 36} if e["seq"] == 3 else e for e in entries])


@pytest.mark.parametrize("bend", [flip_a_member, flip_a_hash, drop_one_and_renumber, swap_two,
    begin_anew, another_chain])
def test_verify_finds_what_was_changed(filled, fake, bend):
    fake.logs_reads = False
    head = fake.entries[-1]
    fake.head = {k: head[k] for k in ("chain_id", "seq", "hash")}
    fake.entries = bend(copy.deepcopy(fake.entries))
    code, document = verify(filled, fake)
    assert (code, document["ok"]) == (1, False)
    assert document["damage_count"] >= 1 and document["damages"][0]["what"]
    done = filled("verify", "--server", fake.serve())
    assert done.code == 1 and done.text.startswith("damage: entry ")


def test_a_chain_that_begins_anew_in_the_middle_is_found(filled, fake):
    fake.entries, fake.logs_reads = begin_anew(fake.entries), False  # and its head with it
    code, document = verify(filled, fake)
    assert code == 1
    assert [(d["seq"], d["what"]) for d in document["damages"]] == \
        [(4, "not chained to the entry before it")]


def test_a_head_that_is_not_the_chain_s_is_found(filled, fake):
    fake.head = {**{k: fake.entries[-1][k] for k in ("chain_id", "seq")}, "hash": "0" * 64}
    code, document = verify(filled, fake)
    assert code == 1
    assert [d["what"] for d in document["damages"]] == \
        ["the head that the server names is not the chain's"]


def test_what_verify_cannot_do_from_outside(filled, fake):
    url = fake.serve()
    for words in (["verify", "--redecide"], ["verify", "--checkpoint", "x"],
            ["tail", "--checkpoint"]):
        assert filled(*words, "--server", url).code == 64
    fake.token = "t"
    assert filled("verify", "--server", url).code == 2


def test_verify_without_a_server_named_reads_the_files(filled, fake):
    fake.serve(filled.directory / "once-data" / "once.sock")
    done = filled("verify")
    assert done.code == 0 and re.match(r"ok: entries 1 to \d+ are whole", done.text)
    assert fake.requests == []
