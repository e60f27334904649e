"""once mcp --serve: Once itself as an MCP server, on a store and through its server."""
import json

import pytest

from test_run_server import Server

READERS = {"once_status", "once_why", "once_list_unknown"}
TOOLS = ["once_begin", "once_seal", "once_status", "once_why", "once_submit_command",
         "once_confirm", "once_list_unknown"]


@pytest.fixture(params=["store", "found", "named"])
def place(request, once):
    """Options that lead to the store itself, or to a server that holds it."""
    if request.param == "store":
        return []
    server = Server(once).start()
    return [] if request.param == "found" else ["--server", server.url]


class Agent:
    def __init__(self, once, *options):
        self.once, self.options = once, options

    def lines(self, *messages):
        """The answers of one process."""
        text = "".join((m if isinstance(m, str) else json.dumps(m)) + "\n" for m in messages)
        done = self.once("mcp", "--serve", *self.options, stdin=text.encode())
        assert done.code == 0, done.err
        return [json.loads(line) for line in done.text.splitlines()]

    def ask(self, method, params=None):
        message = {"jsonrpc": "2.0", "id": 1, "method": method}
        return self.lines(message if params is None else {**message, "params": params})[0]

    def call(self, tool, **arguments):
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})["result"]
        text = result["content"][0]["text"]
        if "structuredContent" in result:
            assert json.loads(text) == result["structuredContent"]
        return result["isError"], result.get("structuredContent", text)


def test_it_opens_like_every_version(once):
    agent = Agent(once)
    for version in ("2025-11-25", "2025-06-18", "2025-03-26"):
        opened = agent.ask("initialize", {"protocolVersion": version, "capabilities": {},
                                          "clientInfo": {"name": "t", "version": "0"}})["result"]
        assert opened["protocolVersion"] == version and opened["capabilities"] == {"tools": {}}
        assert opened["serverInfo"]["name"] == "once" and "resultType" not in opened
    unknown = agent.ask("initialize", {"protocolVersion": "2099-01-01"})["result"]
    assert unknown["protocolVersion"] == "2025-11-25"
    meta = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}
    found = agent.ask("server/discover", meta)["result"]
    assert found["supportedVersions"] == ["2026-07-28"] and found["resultType"] == "complete"
    assert found["ttlMs"] >= 0 and found["cacheScope"] == "public"
    listed = agent.ask("tools/list", meta)["result"]
    assert listed["resultType"] == "complete" and listed["ttlMs"] >= 0
    wrong = agent.ask("tools/list", {"_meta": {
        "io.modelcontextprotocol/protocolVersion": "2027-01-01"}})["error"]
    assert wrong["code"] == -32022
    assert wrong["data"] == {"supported": ["2026-07-28"], "requested": "2027-01-01"}


def test_tools_say_what_they_only_read(once):
    tools = Agent(once).ask("tools/list")["result"]["tools"]
    assert [tool["name"] for tool in tools] == TOOLS
    for tool in tools:
        assert tool["annotations"]["readOnlyHint"] == (tool["name"] in READERS)
        schema = tool["inputSchema"]
        assert schema["type"] == "object" and set(schema["required"]) <= set(schema["properties"])
        assert all(one["description"] for one in schema["properties"].values())


def test_an_agent_begins_seals_and_repeats(once, place):
    agent = Agent(once, *place)
    failed, begun = agent.call("once_begin", scope="pay", key="k-1", payload={"amount": 5})
    assert not failed and begun["decision"] == "first_seen", begun
    failed, other = agent.call("once_begin", scope="pay", key="k-1", payload={"amount": 5})
    assert not failed and other["decision"] == "in_progress", other
    failed, sealed = agent.call("once_seal", operation_id=begun["operation_id"],
                                fence=begun["fence"], status="executed", outcome={"charge": "c-1"})
    assert not failed and sealed["decision"] == "sealed", sealed
    failed, again = agent.call("once_begin", scope="pay", key="k-1", payload={"amount": 5.0})
    assert not failed and again["decision"] == "duplicate_replayed", again
    assert again["operation"]["outcome"] == {"charge": "c-1"}, again
    failed, conflict = agent.call("once_begin", scope="pay", key="k-1", payload={"amount": 6})
    assert failed and conflict["decision"] == "conflict_rejected" and conflict["diff"]
    failed, status = agent.call("once_status", id=begun["operation_id"])
    assert not failed and status["status"] == "executed"
    failed, found = agent.call("once_status", key="k-1", scope="pay")
    assert not failed and [one["operation_id"] for one in found["operations"]] == [
        begun["operation_id"]]
    failed, why = agent.call("once_why", operation_id=begun["operation_id"])
    assert not failed and why["operation"]["status"] == "executed"
    assert [one["decision"] for one in why["entries"]][0] == "first_seen"
    failed, stale = agent.call("once_seal", operation_id=begun["operation_id"], fence=999,
                               status="failed")
    assert failed, stale


def test_unknown_operations_are_listed(once, place):
    agent = Agent(once, *place)
    for key in ("a", "b"):
        dies = ["run", "-k", key, *place, "--", "sh", "-c", "kill -9 $PPID"]
        assert once(*dies).code != 0
        assert once(*dies).code == 75
    failed, listed = agent.call("once_list_unknown", limit=1)
    assert not failed and len(listed["operations"]) == 1
    failed, listed = agent.call("once_list_unknown", scope="run")
    assert not failed and {one["key"] for one in listed["operations"]} == {"a", "b"}
    failed, none = agent.call("once_list_unknown", scope="else")
    assert not failed and none == {"operations": []}


def test_a_wrong_call_is_an_error_a_model_reads(once):
    agent = Agent(once)
    for tool, arguments, words in [
            ("once_begin", {}, "key is missing"), ("once_begin", {"key": 7}, "must be a string"),
            ("once_begin", {"key": "k", "lease": "soon"}, "must be a duration"),
            ("once_seal", {"operation_id": "op_x", "fence": 1, "status": "done"}, "status must be"),
            ("once_seal", {"operation_id": "op_x", "status": "failed"}, "fence must be"),
            ("once_status", {}, "give an id, or a key"),
            ("once_list_unknown", {"limit": 0}, "limit must be"),
            ("once_submit_command", {"actor_id": "ana", "intent": {}}, "running server"),
            ("once_confirm", {"command_id": "cmd_1", "token": "t"}, "running server")]:
        failed, said = agent.call(tool, **arguments)
        assert failed and words in said, (tool, said)
    assert agent.ask("tools/call", {"name": "nothing"})["error"]["code"] == -32602
    assert agent.ask("tools/call", {"name": "once_why", "arguments": []})["error"]["code"] == -32602
    assert agent.ask("resources/list")["error"]["code"] == -32601


def test_messages_that_are_none_are_refused_and_the_next_one_answered(once):
    answers = Agent(once).lines(
        "not json", {"jsonrpc": "2.0", "id": None, "method": "ping"}, "",
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        [{"jsonrpc": "2.0", "id": 1, "method": "ping"},
         {"jsonrpc": "2.0", "method": "notifications/x"},
         {"jsonrpc": "2.0", "id": 2, "method": "ping"}],
        [{"jsonrpc": "2.0", "method": "notifications/x"}],
        {"jsonrpc": "2.0", "id": "z", "method": "ping"})
    assert answers[0]["error"]["code"] == -32700
    assert answers[1]["error"]["code"] == -32600
    assert answers[2:] == [[{"jsonrpc": "2.0", "id": 1, "result": {}},
                            {"jsonrpc": "2.0", "id": 2, "result": {}}],
                           {"jsonrpc": "2.0", "id": "z", "result": {}}]


def test_it_stands_alone(once):
    for options in (["--", "true"], ["--upstream", "http://127.0.0.1:1/"], ["--header", "A: b"]):
        assert once("mcp", "--serve", *options).code == 64


def test_a_last_message_may_lack_its_newline(once):
    done = once("mcp", "--serve", stdin=b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    assert json.loads(done.text) == {"jsonrpc": "2.0", "id": 1, "result": {}}


def test_a_message_that_is_too_large_is_refused_and_the_next_one_answered(once):
    """Whether it comes with its end or without one."""
    large = "x" * (16 << 20)
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    refused, answered, again = Agent(once).lines('"%s"' % large, ping, "[" + large * 2)
    assert answered == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert refused == again and refused["error"]["code"] == -32600
    assert "16 MiB" in refused["error"]["message"]
