"""once mcp --upstream: a server over streamable HTTP, counted by itself."""
import json
import signal
import time

import pytest

from mcp_client import VERSIONS, WAIT_S, Client, config, decision, words
from mcp_http_server import META, McpServer

INFO = {META: "2026-07-28", "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {}}


@pytest.fixture
def server():
    server = McpServer()
    yield server
    server.close()


@pytest.fixture
def stateless():
    server = McpServer(sessions=False)
    yield server
    server.close()


def start(once, server, *options, version="2025-11-25"):
    client = Client(once, *options, url=server.url)
    opened = client.ask("initialize", {"protocolVersion": version, "capabilities": {},
                                       "clientInfo": {"name": "t", "version": "0"}})
    assert opened["result"]["serverInfo"]["name"] == "fake"
    client.notify("notifications/initialized", {})
    return client


def until(met):
    end = time.monotonic() + WAIT_S
    while not met():
        assert time.monotonic() < end
        time.sleep(0.01)


# ---- sessions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_is_opened_carried_and_ended(once, server, version):
    client = start(once, server, version=version)
    assert client.call("pay", {"amount": 1, "idempotency_key": "k"}) == {
        "content": [{"type": "text", "text": "effect 1"}]}
    assert client.end() == 0
    opening, *rest = [one for one in server.requests if one.http == "POST"]
    assert "Mcp-Session-Id" not in opening.headers
    for one in [*rest, server.requests[-1]]:
        assert one.headers["Mcp-Session-Id"] == "s-1"
        assert one.headers["MCP-Protocol-Version"] == version
    assert server.requests[-1].http == "DELETE"
    assert opening.headers["Accept"] == "application/json, text/event-stream"
    assert [one.method for one in rest][0] == "notifications/initialized"


def test_messages_pass_as_they_are_but_for_the_key(once, server):
    client = start(once, server)
    lines = ['{"id": 70, "method": "unknown/method", "jsonrpc": "2.0", "extra": [1e400]}',
             '{"jsonrpc":"2.0","id":"s9","result":{"roots":[]}}',
             '[{"jsonrpc":"2.0","id":81,"method":"ping"}, {"jsonrpc":"2.0","id":82,"method":"p"}]']
    for line in lines:
        client.send_line(line)
    assert json.loads(client.answer(70))["result"] == {"echo": "unknown/method"}
    batch = json.loads(client.wait_line(lambda text: text.startswith("[")))
    assert [one["id"] for one in batch] == [81, 82]
    assert client.call("pay", {"amount": 1, "idempotency_key": "k"})
    assert client.end() == 0
    assert client.lines == [None]  # nothing was answered twice
    bodies = [one.body.decode() for one in server.requests if one.body is not None]
    # Each in a request of its own, side by side.
    assert sorted(body for body in bodies if body in lines) == sorted(lines)
    assert server.of("tools/call")[0].message["params"]["arguments"] == {"amount": 1}


def test_the_servers_own_messages_come_over_its_stream(once, server):
    client = start(once, server)
    until(lambda: any(one.http == "GET" for one in server.requests))
    server.say({"jsonrpc": "2.0", "id": "q1", "method": "roots/list"})
    assert client.wait_line(lambda text: '"q1"' in text) is not None
    client.send_line('{"jsonrpc":"2.0","id":"q1","result":{"roots":[]}}')
    until(lambda: any(one.body and b'"q1"' in one.body for one in server.requests))
    assert client.end() == 0


def test_a_forgotten_session_is_opened_again_and_the_call_made_once(once, server):
    client = start(once, server)
    assert words(client.call("pay", {"amount": 1})) == "effect 1"
    server.session += 7  # the server was started again
    assert words(client.call("pay", {"amount": 2})) == "effect 2"
    assert client.ask("ping")["result"] == {"echo": "ping"}
    assert client.end() == 0
    assert len(server.of("initialize")) == 2
    assert len(server.of("tools/call")) == 3  # one of them met the forgotten session
    assert len(server.effects) == 2
    assert server.requests[-1].headers["Mcp-Session-Id"] == "s-9"


# ---- one effect -------------------------------------------------------------------------------


def test_a_repeated_call_takes_effect_once(once, server):
    client = start(once, server)
    first = client.call("pay", {"amount": 1, "how": "stream", "idempotency_key": "k"})
    assert client.wait_line(lambda text: "notifications/progress" in text) is not None
    again = client.call("pay", {"amount": 1, "how": "stream", "idempotency_key": "k"})
    assert decision(again) == "duplicate_replayed"
    assert again["content"] == first["content"]
    assert client.end() == 0
    assert len(server.effects) == 1


@pytest.mark.parametrize("how", ["hangs up", "fails 500", "fails 502", "accepts", "stream cut",
                                 "stream half", "stream resumed never"])
def test_a_call_without_an_answer_is_unknown_and_not_made_again(once, server, how):
    client = start(once, server)
    lost = client.call("pay", {"amount": 1, "how": how, "idempotency_key": "k"})
    assert decision(lost) == "unknown" and lost["isError"], lost
    assert "Do NOT repeat it" in words(lost)
    again = client.call("pay", {"amount": 1, "how": how, "idempotency_key": "k"})
    assert decision(again) == "held_unknown"
    assert client.end() == 0
    assert len(server.effects) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 413, 429, 503])
def test_a_refusal_frees_the_key(once, server, status):
    client = start(once, server)
    refused = client.call("pay", {"amount": 1, "how": f"refuses {status}", "idempotency_key": "k"})
    assert decision(refused) == "refused" and f"HTTP {status}" in words(refused)
    fine = client.call("pay", {"amount": 1, "how": f"refuses {status}", "idempotency_key": "k"})
    assert words(fine) == "effect 1"
    assert client.end() == 0


def test_a_broken_stream_is_resumed_after_its_last_event(once, server):
    client = start(once, server)
    result = client.call("pay", {"amount": 1, "how": "stream resumed", "idempotency_key": "k"})
    assert words(result) == "effect 1"
    assert client.end() == 0
    resumed = [one for one in server.requests if "Last-Event-ID" in one.headers]
    assert [one.headers["Last-Event-ID"] for one in resumed] == ["e-1"]
    assert len(server.of("tools/call")) == 1


def test_a_server_that_cannot_be_reached_leaves_the_key_free(once, server):
    server.close()
    client = Client(once, url=server.url)
    assert "no answer from the server" in client.ask("ping")["error"]["message"]
    refused = client.call("pay", {"amount": 1, "idempotency_key": "k"})
    assert decision(refused) == "refused", refused
    assert client.end() == 0
    assert once("ls", "--status", "unknown").code == 0
    assert b"op_" not in once("ls", "--status", "unknown").out


def test_the_end_of_the_client_waits_for_a_call_that_was_sent(once, server):
    client = start(once, server)
    call = client.start_call("pay", {"amount": 1, "how": "waits", "idempotency_key": "k"})
    until(lambda: server.effects)
    client.process.stdin.close()
    server.gate.set()
    assert words(json.loads(client.answer(call))["result"]) == "effect 1"
    assert client.process.wait(WAIT_S) == 0
    assert b"executed" in once("ls").out


def test_a_signal_ends_it_and_a_sent_call_is_unknown(once, server):
    client = start(once, server)
    client.start_call("pay", {"amount": 1, "how": "waits", "idempotency_key": "k"})
    until(lambda: server.effects)
    client.process.send_signal(signal.SIGTERM)
    assert client.process.wait(WAIT_S) == 128 + signal.SIGTERM
    assert b"unknown" in once("ls").out
    until(lambda: server.requests[-1].http == "DELETE")


def test_a_killed_proxy_leaves_its_call_unknown(once, server):
    client = start(once, server)
    client.start_call("pay", {"amount": 1, "how": "waits", "idempotency_key": "k"})
    until(lambda: server.effects)
    client.process.kill()
    client.process.wait(WAIT_S)
    second = start(once, server)
    held = second.call("pay", {"amount": 1, "how": "waits", "idempotency_key": "k"})
    assert decision(held) == "held_unknown", held
    assert second.end() == 0
    assert len(server.effects) == 1


def test_a_timeout_is_unknown_and_a_late_answer_still_settles_it(once, server):
    client = start(once, server, *config(once, "    pay: {timeout: 1s}\n"))
    lost = client.call("pay", {"amount": 1, "how": "waits", "idempotency_key": "k"})
    assert decision(lost) == "unknown"
    server.gate.set()
    until(lambda: decision(client.call("pay", {
        "amount": 1, "how": "waits", "idempotency_key": "k"})) == "duplicate_replayed")
    assert client.end() == 0
    assert len(server.effects) == 1


# ---- protocol 2026-07-28 ----------------------------------------------------------------------


def test_headers_repeat_the_message_without_a_session(once, stateless):
    client = Client(once, "--header", "Authorization: Bearer t-1", url=stateless.url)
    for arguments in ({"amount": 1, "region": "eu", "deep": {"n/m": 42}, "idempotency_key": "a"},
                      {"amount": 2}):
        result = client.call("pay", arguments, _meta=INFO)
        assert decision(result) is None and "effect" in words(result), result
    assert client.call("look", {}, _meta=INFO)["content"]
    assert client.end() == 0
    for one in stateless.requests:
        assert one.http == "POST" and one.headers["Authorization"] == "Bearer t-1"
        assert one.headers["MCP-Protocol-Version"] == "2026-07-28"
        assert "Mcp-Session-Id" not in one.headers
    # Our own list says the version and the client, too.
    assert stateless.of("tools/list")[0].message["params"]["_meta"] == INFO


def test_a_name_that_no_header_can_have_is_encoded(once, stateless):
    client = Client(once, url=stateless.url)
    client.ask("resources/read", {"uri": "file:///ä", "_meta": INFO})
    client.ask("prompts/get", {"name": "=?base64?x?=", "_meta": INFO})
    client.ask("resources/read", {"uri": "file:///a b", "_meta": INFO})
    assert client.end() == 0
    assert [one.headers.get("Mcp-Name") for one in stateless.requests] == [
        "=?base64?ZmlsZTovLy/DpA==?=", "=?base64?PT9iYXNlNjQ/eD89?=", "file:///a b"]


def test_a_refusal_by_the_protocol_is_passed_on_and_frees_the_key(once, stateless):
    client = Client(once, url=stateless.url)
    wrong = {**INFO, META: "1999-01-01"}
    answer = json.loads(client.answer(client.start_call(
        "pay", {"amount": 1, "idempotency_key": "k"}, _meta=wrong)))
    assert answer.get("error", {}).get("code") == -32022, answer
    assert words(client.call("pay", {"amount": 1, "idempotency_key": "k"}, _meta=INFO)) == \
        "effect 1"
    assert client.end() == 0


def test_a_cancellation_closes_the_stream(once, stateless):
    client = Client(once, url=stateless.url)
    call = client.start_call("pay", {"amount": 1, "how": "waits", "idempotency_key": "k"},
                             _meta=INFO)
    until(lambda: stateless.effects)
    client.notify("notifications/cancelled", {"requestId": call})
    held = client.call("pay", {"amount": 1, "how": "waits", "idempotency_key": "k"}, _meta=INFO)
    assert decision(held) == "held_unknown"
    assert client.end() == 0
    assert stateless.of("notifications/cancelled") == []


# ---- the command line -------------------------------------------------------------------------


def test_the_server_is_a_command_or_a_url(once):
    for options in ([], ["--upstream", "http://127.0.0.1:1/", "--", "true"],
                    ["--upstream", "ftp://x"], ["--header", "A: b", "--", "true"],
                    ["--upstream", "http://127.0.0.1:1/", "--header", "A: b\r\nC: d"]):
        assert once("mcp", *options).code == 64, options
