"""Lists whose first element is not the one that counts, and one thing inside another of its kind.

A field that is a list means the same in one line or in several, in any order and any case
(RFC 9110, 5.3); and `once run` inside `once run` is two operations, not one.
"""
import concurrent.futures
import os
import subprocess
import time

import pytest
from once_gateway import DUPLICATES_FREE
from once_server import BINARY


def spread(name, *values):
    """The ways to write a list: one line, and a line for each element."""
    return [f"{name}: {', '.join(values)}\r\n", "".join(f"{name}: {each}\r\n" for each in values)]


# --- What a client says about its connection ---


CLOSING = [fields for values in (("close",), ("keep-alive", "close"), ("close", "keep-alive"),
    ("X-A", "X-B", "CLOSE"), ("", "close"), ("keep-alive", "x", "close", "y"))
    for fields in spread("Connection", *values)]
STAYING = [fields for values in (("keep-alive",), ("X-Close",), ("closed", "un-close"), ("x", "y"))
    for fields in spread("Connection", *values)]


@pytest.mark.parametrize("fields", CLOSING)
def test_close_counts_wherever_it_stands(server, fields):
    with server.wire() as wire:
        wire.send(f"GET /livez HTTP/1.1\r\nHost: a\r\n{fields}\r\n".encode())
        status, answered, _ = wire.answer()
        assert (status, answered["Connection"]) == (200, "close")
        assert wire.closed_by_server()


@pytest.mark.parametrize("fields", STAYING)
def test_a_connection_stays_where_nobody_says_close(server, fields):
    with server.wire() as wire:
        for _ in range(2):
            wire.send(f"GET /livez HTTP/1.1\r\nHost: a\r\n{fields}\r\n".encode())
            assert wire.answer()[0] == 200


@pytest.mark.parametrize("fields", [fields for values in (("gzip", "chunked"), ("chunked", "gzip"),
    ("chunked", "chunked"), ("identity", "chunked"), ("chunked", "identity"))
    for fields in spread("Transfer-Encoding", *values)])
def test_chunked_alone_is_read_and_every_other_list_refused(server, fields):
    with server.wire() as wire:
        wire.send(f"POST /v1/fences HTTP/1.1\r\nHost: a\r\n{fields}\r\n".encode()
            + b"2\r\n{}\r\n0\r\n\r\n")
        status, answered, _ = wire.answer()
        assert status in (400, 501) and answered["Connection"] == "close"
        assert wire.closed_by_server()


# --- Through the gateway ---


@pytest.mark.parametrize("fields", spread("Connection", "keep-alive", "X-First", "x-second"))
def test_every_field_that_connection_names_stays_on_its_hop(origin, gateway, fields):
    with gateway.peer() as peer:
        peer.send(f"POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\n{fields}X-First: 1\r\n"
            "X-Second: 2\r\nX-Third: 3\r\nContent-Length: 0\r\n\r\n".encode())
        assert peer.read("POST").status == 200
    seen = origin.seen("k")[0]
    assert [seen.get(name) for name in ("X-First", "X-Second", "X-Third")] == [None, None, "3"]


@pytest.mark.parametrize("fields", [fields for values in (("keep-alive", "X-First", "X-Second"),
    ("X-Second", "keep-alive", "X-First")) for fields in spread("Connection", *values)])
def test_every_field_that_the_upstreams_connection_names_stays_there(origin, gateway, fields):
    lines = [line.replace(": ", ":", 1) for line in fields.split("\r\n") if line]
    do = "&".join(["chunked=1", *(f"field={line}" for line in lines), "field=X-First:1",
        "field=X-Second:2", "field=X-Third:3"])
    answer = gateway.post("k", do=do)
    assert answer.status == 200
    given = [answer.fields.get(name) for name in ("X-First", "X-Second", "X-Third")]
    assert given == [None, None, "3"]


@pytest.mark.parametrize("values", [("keep-alive", "close"), ("X-A", "close"), ("close", "X-A")])
def test_an_upstream_that_closes_is_not_used_again(origin, gateway, values):
    lines = [line for fields in spread("Connection", *values)[:1] for line in fields.split("\r\n")]
    do = f"field={lines[0].replace(': ', ':', 1)}"
    for number in range(3):
        assert gateway.post(f"k{number}", do=do).status == 200
    assert origin.connections == 3


PREFER = [fields for values in (("wait=1",), ("respond-async", "wait=1"), ("wait=1", "x=1"),
    ("handling=lenient", "return=minimal", "WAIT=1"), ('x="a, wait=9"', "wait=1"),
    ("wait=1", "wait=9")) for fields in spread("Prefer", *values)]


@pytest.mark.parametrize("fields", PREFER)
def test_a_wait_counts_wherever_it_stands_in_prefer(origin, make_gateway, fields):
    gateway = make_gateway(limits=DUPLICATES_FREE,
        routes=[{"match": "POST /**", "wait": "20s"}])
    request = "POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\n{}Content-Length: 0\r\n\r\n"
    with gateway.peer() as first, gateway.peer() as second:
        first.send(request.format("X-Do: hold=1\r\n").encode())
        origin.wait_for("k")
        began = time.monotonic()
        second.send(request.format(fields).encode())
        answer = second.read("POST")
        assert (answer.status, answer.decision) == (409, "in_progress"), answer
        assert 0.9 <= time.monotonic() - began < 8.9
        origin.let_go()
        assert first.read("POST").status == 200
    assert origin.effects["k"] == 1


@pytest.mark.parametrize("given", [[], ["10.0.0.1"], ["10.0.0.1", "10.0.0.2"]])
def test_the_clients_address_is_the_last_of_x_forwarded_for(origin, gateway, given):
    for number, fields in enumerate(spread("X-Forwarded-For", *given) if given else [""]):
        with gateway.peer() as peer:
            peer.send(f"POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k{number}\r\n{fields}"
                "Content-Length: 0\r\n\r\n".encode())
            assert peer.read("POST").status == 200
        told = ", ".join(origin.seen(f"k{number}")[0].all("X-Forwarded-For"))
        assert [each.strip() for each in told.split(",")] == [*given, "127.0.0.1"]


# --- once run inside once run ---


def run(directory, *words, **env):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ONCE_")}
    done = subprocess.run([BINARY, "run", *words], cwd=directory, env={**clean, **env}, text=True,
        capture_output=True, timeout=60)
    return done.returncode, done.stdout


def nested(depth, script):
    """once run of once run of … the script; each with a key of its own."""
    command = ["sh", "-c", script]
    for level in range(depth, 1, -1):
        command = [BINARY, "run", "-k", f"level-{level}", "--", *command]
    return ["-k", "level-1", "--", *command]


@pytest.mark.parametrize("depth", [2, 3])
def test_once_run_inside_once_run_is_an_operation_of_its_own(tmp_path, depth):
    words = nested(depth, "echo $ONCE_IDEMPOTENCY_KEY >> runs; echo out; exit 3")
    for _ in range(2):
        assert run(tmp_path, *words) == (3, "out\n")
    assert (tmp_path / "runs").read_text() == f"level-{depth}\n"
    listed = subprocess.run([BINARY, "ls", "--json"], cwd=tmp_path, capture_output=True, text=True)
    assert listed.stdout.count('"status":"failed"') == depth


def test_the_inner_key_run_alone_replays_what_the_outer_made(tmp_path):
    inner = f"{BINARY} run -k inner --ignore-cwd -- sh -c \"echo ran >> runs; echo in\""
    assert run(tmp_path, "-k", "outer", "--", "sh", "-c", f"{inner}; echo out") == (0, "in\nout\n")
    assert run(tmp_path, "-k", "inner", "--ignore-cwd", "--", "sh", "-c",
        "echo ran >> runs; echo in") == (0, "in\n")
    assert run(tmp_path, "-k", "outer2", "--", "sh", "-c", f"{inner}; echo out") == \
        (0, "in\nout\n")
    assert (tmp_path / "runs").read_text() == "ran\n"


def test_the_same_key_inside_itself_is_in_progress_and_ends(tmp_path):
    inner = f"{BINARY} run -k same --wait 200ms --ignore-cwd -- sh -c \"echo ran >> runs\""
    command = f"{inner}; echo $?; echo ran >> runs"
    began = time.monotonic()
    code, out = run(tmp_path, "-k", "same", "--ignore-cwd", "--", "sh", "-c", command)
    assert (code, out) == (0, "65\n")  # a conflict: it is another command
    assert (tmp_path / "runs").read_text() == "ran\n"
    script = tmp_path / "again.sh"
    script.write_text(f"echo ran >> runs2; test $ONCE_ATTEMPT = 1 && test -z \"$DEEP\" && "
        f"DEEP=1 {BINARY} run -k self --wait 200ms --ignore-cwd -- sh again.sh; echo $?\n")
    assert run(tmp_path, "-k", "self", "--ignore-cwd", "--", "sh", "again.sh") == (0, "75\n")
    assert (tmp_path / "runs2").read_text() == "ran\n"
    assert time.monotonic() - began < 60


def test_many_outer_runs_share_one_inner(tmp_path):
    def outer(number):
        return run(tmp_path, "-k", f"outer-{number}", "--wait", "30s", "--", "sh", "-c",
            f"{BINARY} run -k shared --wait 30s --ignore-cwd -- "
            "sh -c \"echo ran >> runs; sleep 0.3; echo shared\"")

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(outer, range(4))) == [(0, "shared\n")] * 4
    assert (tmp_path / "runs").read_text() == "ran\n"
