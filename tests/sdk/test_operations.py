"""Whole calls, the same through every SDK: tests/vectors/sdk/operations.json."""
import json
from pathlib import Path

import pytest

import servers
from drivers import DRIVERS
from scripted import Scripted

VECTORS = Path(__file__).resolve().parent.parent / "vectors/sdk"
CASES = json.loads((VECTORS / "operations.json").read_text())["cases"]


@pytest.mark.parametrize("sdk", DRIVERS)
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_call_ends_as_the_case_says(sdk, case):
    if case["script"] == "refused":
        server, url = None, f"http://127.0.0.1:{servers.free_port()}/charges"
    else:
        server = Scripted(case["script"])
        url = server.url
    try:
        done = DRIVERS[sdk]({"method": case["method"], "url": url, "retries": case["retries"]})
    finally:
        if server:
            server.end()
    wanted = {name: case[name] for name in ("result", "status", "effect", "replayed", "attempts")}
    assert {name: done.get(name) for name in wanted} == wanted
    if server:
        check_requests(server, case)


def check_requests(server, case):
    """One key in all attempts, and a Request-Id of its own in each; none sent behind our back."""
    assert len(server.requests) == case["attempts"]
    keys = {headers["Idempotency-Key"] for headers in server.requests}
    assert len(keys) == 1
    assert (keys == {None}) == (case["method"] == "GET")
    ids = [headers["Request-Id"] for headers in server.requests]
    assert None not in ids and len(set(ids)) == len(ids)
    if "pause_ms_min" in case:
        assert (server.times[1] - server.times[0]) * 1000 >= case["pause_ms_min"]


@pytest.mark.parametrize("sdk", DRIVERS)
def test_a_given_key_and_request_id_are_sent(sdk):
    server = Scripted([{"status": 503}, {"status": 201}])
    try:
        done = DRIVERS[sdk]({"method": "POST", "url": server.url, "retries": 2,
            "idempotency_key": "order 7", "request_id": "r"})
    finally:
        server.end()
    assert done["status"] == 201
    assert [headers["Idempotency-Key"] for headers in server.requests] == ['"order 7"'] * 2
    assert [headers["Request-Id"] for headers in server.requests] == ["r", "r.2"]
