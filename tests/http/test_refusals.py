"""What the server refuses, from the outside: each limit by its name, and web pages."""
import pytest

POST = b"POST /v1/fences HTTP/1.1\r\nHost: a\r\n"
LIMITS = {
    "a body": (POST + b"Content-Length: 99999999\r\n\r\n", 413, "body_bytes_max"),
    "a chunk": (POST + b"Transfer-Encoding: chunked\r\n\r\nfffffff\r\n", 413, "body_bytes_max"),
    "a target": (b"GET /" + b"a" * 8000 + b" HTTP/1.1\r\n", 414, "target_bytes_max"),
    "a head": (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 20000, 431, "head_bytes_max"),
    "fields": (POST + b"X: a\r\n" * 100 + b"\r\n", 431, "fields_max"),
    "a slow head": (b"GET / HTTP/1.1\r\nHo", 408, "head_timeout"),
    "a slow body": (POST + b"Content-Length: 9\r\n\r\n{", 408, "body_timeout"),
}


@pytest.mark.parametrize("what", LIMITS)
def test_a_refusal_by_a_limit_names_it(make_server, what):
    raw, status, limit = LIMITS[what]
    server = make_server(config="limits: {head_timeout: 200ms, body_timeout: 200ms}\n")
    with server.wire() as wire:
        wire.send(raw)
        answered, headers, problem = wire.answer()
    assert answered == status
    assert headers["Content-Type"] == "application/problem+json"
    assert limit in problem["detail"] and problem["effect"] == "no"


BEGIN = {"scope": "test", "key": "k", "payload": 1}


@pytest.mark.parametrize("origin", ["http://evil.example", "https://once", "null", "http://once:1",
    "http://once.evil.example", "once"])
def test_a_web_page_of_elsewhere_cannot_use_a_server_without_tokens(server, origin):
    # A browser sends a POST of text/plain to any address without asking it first.
    fields = {"Origin": origin, "Content-Type": "text/plain", "Host": "once:7411"}
    status, _, problem = server.request("POST", "/v1/fences", BEGIN, fields)
    assert (status, problem["code"], problem["effect"]) == (403, "forbidden", "no")
    assert "Origin" in problem["detail"]
    assert server.request("POST", "/v1/fences", BEGIN)[0] == 201


def test_a_page_of_its_own_origin_and_programs_are_served(server):
    for fields in ({}, {"Origin": "http://once:7411", "Host": "once:7411"},
            {"Origin": "http://ONCE", "Host": "once"}):
        assert server.request("GET", "/v1/operations", None, fields)[0] == 200
