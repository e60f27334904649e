"""once mcp --listen: MCP clients over streamable HTTP."""
import hashlib
import http.client
import json
import signal
import time

import pytest

from mcp_client import VERSIONS, WAIT_S, decision, words
from mcp_http_server import McpServer
from mcp_web_client import Answer, Endpoint, WebClient


def until(met):
    end = time.monotonic() + WAIT_S
    while not met():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def endpoint(once):
    return Endpoint(once)


@pytest.fixture
def client(endpoint):
    client = WebClient(endpoint.port)
    client.open()
    return client


# ---- sessions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_is_opened_used_and_ended(endpoint, version):
    client = WebClient(endpoint.port)
    opened = client.open(version)
    assert opened["result"]["protocolVersion"] == version
    first = client.call("pay", {"n": 1, "idempotency_key": "k"}).message()
    again = client.call("pay", {"n": 1, "idempotency_key": "k"}).message()
    assert first["result"]["content"] == again["result"]["content"]
    assert decision(again["result"]) == "duplicate_replayed" and endpoint.count() == 1
    assert client.request("DELETE").status == 204
    assert client.ask("ping").status == 404


def test_a_server_with_tools_has_the_capability_of_sep_3182(endpoint):
    tools = WebClient(endpoint.port).open()["result"]["capabilities"]["tools"]
    assert tools == {"listChanged": True, "idempotency": {}}


def test_the_header_names_the_same_key_as_the_arguments(client, endpoint):
    client.call("pay", {"n": 1}, Idempotency_Key='"k"').message()
    for arguments, headers in [({"n": 1}, {"Idempotency_Key": "k"}),
                               ({"n": 1, "idempotency_key": "k"}, {})]:
        assert decision(client.call("pay", arguments, **headers).message()["result"]) == \
            "duplicate_replayed"
    result = client.call("pay", {"n": 2, "idempotency_key": "j"}, Idempotency_Key="k").message()
    assert decision(result["result"]) == "refused" and "differs" in words(result["result"])
    assert client.call("pay", {"n": 1}, Idempotency_Key='"k').status == 400
    assert endpoint.count() == 1


def test_messages_of_the_server_come_with_the_call_they_are_about(client):
    answer = client.call("pay", {"how": "progress", "seconds": 0.2}, {"progressToken": 7})
    *steps, last = answer.events()
    assert [step["params"]["progress"] for step in steps] == [0, 1, 2, 3, 4]
    assert all(step["params"]["progressToken"] == 7 for step in steps) and "result" in last
    answer = client.call("pay", {"how": "asks"})
    events = answer.events()
    asked = next(events)
    assert asked["method"] == "sampling/createMessage"
    accepted = client.post({"jsonrpc": "2.0", "id": asked["id"], "result": {"role": "assistant",
        "model": "m", "content": {"type": "text", "text": "t"}}})
    assert accepted.status == 202
    assert "result" in next(events)


def test_messages_that_nobody_hears_wait_for_a_stream(client, endpoint):
    until(lambda: "notifications/initialized" in endpoint.received.read_text())
    listening = client.request("GET")
    assert listening.is_stream and client.request("GET").status == 409
    first = client.call("pay", {"how": "progress", "seconds": 3}, {"progressToken": 1})
    second = client.send_call("pay", {"how": "asks"})  # two run: nobody knows whose question it is
    asked = next(listening.events())
    client.post({"jsonrpc": "2.0", "id": asked["id"], "result": {}})
    assert "result" in first.message() and "result" in Answer(second).message()
    assert listening.last_id.startswith("0-")


def test_a_stream_that_broke_is_resumed(client, endpoint):
    answer = client.call("pay", {"how": "progress", "seconds": 1, "idempotency_key": "k"},
                         {"progressToken": "p"})
    events = answer.events()
    next(events), next(events)
    answer.close()
    rest = client.request("GET", Last_Event_ID=answer.last_id)
    *steps, last = rest.events()
    assert [step["params"]["progress"] for step in steps] == [2, 3, 4] and "result" in last
    again = client.request("GET", Last_Event_ID=answer.last_id)  # over, and still known
    assert [event for event in again.events()] == [*steps, last]
    assert endpoint.count() == 1
    assert client.request("GET", Last_Event_ID="nonsense").status == 400


def test_a_client_that_goes_away_in_a_session_cancels_nothing(client, endpoint):
    raw = client.send_call("pay", {"how": "slow", "seconds": 0.3, "idempotency_key": "k"})
    until(lambda: endpoint.count() == 1)
    raw.close()
    again = client.call("pay", {"how": "slow", "seconds": 0.3, "idempotency_key": "k"}).message()
    assert decision(again["result"]) == "duplicate_replayed" and endpoint.count() == 1


def test_a_server_that_dies_ends_its_session_only(client, endpoint):
    other = WebClient(endpoint.port)
    other.open()
    result = client.call("pay", {"how": "dies", "idempotency_key": "k"}).message()["result"]
    assert decision(result) == "unknown"
    until(lambda: client.ask("ping").status == 404)
    client.headers.pop("Mcp_Session_Id")
    client.open()
    result = client.call("pay", {"how": "dies", "idempotency_key": "k"}).message()["result"]
    assert decision(result) == "held_unknown" and endpoint.count() == 1
    assert other.ask("any/method").message()["result"] == {"echo": "any/method"}


def test_a_batch_is_answered_as_one(client):
    answer = client.post([{"jsonrpc": "2.0", "id": "a", "method": "x"},
        {"jsonrpc": "2.0", "id": "b", "method": "tools/call", "params": {"name": "pay",
            "arguments": {"n": 1}}}, {"jsonrpc": "2.0", "method": "notifications/y"}])
    assert {one["id"] for one in answer.message()} == {"a", "b"}


# ---- without sessions -------------------------------------------------------------------------


def test_clients_without_sessions_share_a_server_and_keep_their_ids(endpoint):
    one, two = WebClient(endpoint.port), WebClient(endpoint.port)
    meta = {"progressToken": 5}
    first = one.stateless("pay", {"how": "progress", "seconds": 0.5, "n": 1}, 1, meta=meta)
    second = two.stateless("pay", {"how": "progress", "seconds": 0.5, "n": 2}, 1, meta=meta)
    for answer in (first, second):
        *steps, last = answer.events()
        assert last["id"] == 1 and "result" in last
        assert [step["params"] for step in steps] == [
            {"progressToken": 5, "progress": step} for step in range(5)]
    assert one.stateless("pay", {"how": "progress", "seconds": 0.5, "n": 1}, "x",
                         meta=meta).message()["id"] == "x"
    assert endpoint.count() == 2


def test_closing_a_stream_without_a_session_cancels_its_request(endpoint):
    client = WebClient(endpoint.port)
    answer = client.stateless("pay", {"how": "progress", "seconds": 5}, 1,
                              meta={"progressToken": 1})
    next(answer.events())
    answer.close()
    until(lambda: "notifications/cancelled" in endpoint.received.read_text())
    sent = [json.loads(line) for line in endpoint.received.read_text().splitlines()]
    call, = [one for one in sent if one["method"] == "tools/call"]
    cancelled, = [one for one in sent if one["method"] == "notifications/cancelled"]
    assert cancelled["params"]["requestId"] == call["id"]


def test_header_fields_repeat_the_message(endpoint):
    client = WebClient(endpoint.port)
    for wrong in ({"Mcp_Name": "look"}, {"Mcp_Method": ""}, {"MCP_Protocol_Version": ""}):
        answer = client.stateless("pay", {"n": 1}, **wrong)
        assert answer.status == 400 and answer.body()["error"]["code"] == -32020
    answer = client.ask("tools/list", {}, MCP_Protocol_Version="2026-07-28")
    assert answer.status == 400 and answer.body()["error"]["code"] == -32602
    assert client.request("GET").status == client.request("DELETE").status == 405
    assert endpoint.count() == 0


# ---- who may come in --------------------------------------------------------------------------


def test_pages_of_elsewhere_are_refused(once):
    endpoint = Endpoint(once, "--origin", "https://app.example")
    client = WebClient(endpoint.port)
    for headers, status in [({"Origin": "http://evil.example"}, 403), ({"Origin": "null"}, 403),
                            ({"Origin": "http://evil.example", "Host": "evil.example"}, 403),
                            ({"Host": "evil.example"}, 403), ({"Host": "127.evil.example"}, 403),
                            ({"Origin": "http://localhost:3000"}, 400),
                            ({"Origin": "https://app.example"}, 400)]:
        assert client.post({"jsonrpc": "2.0", "id": 1, "method": "x"}, **headers).status == status
    assert client.request("POST", "{}", path="/").status == 404
    assert client.request("POST", "{}", Content_Type="text/plain").status == 415
    assert client.request("POST", "{}", Accept="application/json").status == 406
    assert client.request("POST", "{").status == client.request("POST", "[]").status == 400
    assert client.request("PUT", "{}").status == 405


def tokens(once, **rights):
    path = once.directory / "once.yaml"
    path.write_text("auth:\n  tokens:\n" + "".join(
        f"    - {{name: {name}, sha256: {hashlib.sha256(name.encode()).hexdigest()}, "
        f"tenant: default, rights: [{right}]}}\n" for name, right in rights.items()))
    return ["--config", path]


def test_other_machines_need_a_token(once):
    refused = once("mcp", "--listen", "0.0.0.0:0", "--", "true")
    assert refused.code == 78 and "without a token" in refused.message
    endpoint = Endpoint(once, *tokens(once, ann="execute", bob="execute", eve="audit"),
                        listen="0.0.0.0:0")
    assert WebClient(endpoint.port).ask("initialize").status == 401
    assert WebClient(endpoint.port, Authorization="Bearer zoe").ask("initialize").status == 401
    assert WebClient(endpoint.port, Authorization="Bearer eve").ask("initialize").status == 403
    ann, bob = (WebClient(endpoint.port, Authorization=f"Bearer {who}") for who in ("ann", "bob"))
    ann.open(), bob.open()
    for client in (ann, bob):  # two principals: the same key is not the same call
        result = client.call("pay", {"n": 1, "idempotency_key": "k"}).message()["result"]
        assert decision(result) is None
    assert endpoint.count() == 2
    bob.headers["Mcp_Session_Id"] = ann.headers["Mcp_Session_Id"]
    assert bob.ask("ping").status == 404
    for who in ("ann", "bob"):  # and without sessions
        client = WebClient(endpoint.port, Authorization=f"Bearer {who}")
        result = client.stateless("pay", {"n": 1, "idempotency_key": "l"}).message()["result"]
        assert decision(result) is None
    assert endpoint.count() == 4


def test_the_rights_of_a_token_are_those_of_its_tools(once):
    endpoint = Endpoint(once, *tokens(once, ann="execute", eve="audit"), behind=["--serve"])
    eve = WebClient(endpoint.port, Authorization="Bearer eve")
    eve.open()
    refused = eve.call("once_begin", {"key": "k"}).message()["result"]
    assert refused["isError"] and "no right" in words(refused)
    ann = WebClient(endpoint.port, Authorization="Bearer ann")
    begun = ann.stateless("once_begin", {"key": "k"}).message()["result"]
    assert begun["structuredContent"]["decision"] == "first_seen"
    assert not eve.call("once_list_unknown", {}).message()["result"]["isError"]


# ---- limits and the end -----------------------------------------------------------------------


def test_sessions_have_a_limit(once):
    endpoint = Endpoint(once, behind=["--serve"])
    for _ in range(64):
        WebClient(endpoint.port).open()
    refused = WebClient(endpoint.port).ask("initialize", {})
    assert refused.status == 503 and "(64)" in refused.body()["error"]["message"]


def test_a_message_that_is_too_large_is_refused_before_anything_is_done(client, endpoint):
    filling = "x" * (16 << 20)
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=WAIT_S)
    body = json.dumps({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {
        "name": "pay", "arguments": {"idempotency_key": "k", "filling": filling}}})
    connection.putrequest("POST", "/mcp")
    for name, value in {"Content-Type": "application/json", "Content-Length": len(body),
            "Accept": "application/json, text/event-stream",
            "Mcp-Session-Id": client.headers["Mcp_Session_Id"]}.items():
        connection.putheader(name, str(value))
    connection.endheaders()  # its length is enough to refuse it
    assert connection.getresponse().status == 413
    connection.close()
    assert endpoint.count() == 0 and client.ask("ping").status == 200


def test_ids_in_use_are_refused(client):
    slow = client.call("pay", {"how": "asks"})
    next(slow.events())
    refused = client.post({"jsonrpc": "2.0", "id": client.number, "method": "ping"})
    assert refused.status == 400 and "in use" in refused.body()["error"]["message"]


def test_the_end_of_the_endpoint_ends_its_servers(client, endpoint):
    endpoint.process.send_signal(signal.SIGTERM)
    assert endpoint.process.wait(WAIT_S) == 128 + signal.SIGTERM


# ---- a server over HTTP -----------------------------------------------------------------------


def test_the_clients_credentials_go_to_the_server(once):
    server = McpServer()
    try:
        endpoint = Endpoint(once, behind=["--upstream", server.url])
        client = WebClient(endpoint.port, Authorization="Bearer ann")
        client.open()
        result = client.call("pay", {"amount": 1, "idempotency_key": "k"}).message()["result"]
        assert result == {"content": [{"type": "text", "text": "effect 1"}]}
        assert {one.headers["Authorization"] for one in server.requests} == {"Bearer ann"}
        assert client.request("DELETE").status == 204
        until(lambda: server.requests[-1].http == "DELETE")
    finally:
        server.close()
