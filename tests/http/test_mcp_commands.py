"""once mcp --serve: an agent submits commands and confirms them, with the rights of its token."""
import hashlib
import json
import os
import subprocess

from once_server import BINARY
from shop import envelope, refund

RIGHTS = {"bot": "execute, confirm", "boss": "execute, confirm", "reader": "audit"}


class Agent:
    """One process, with one token."""

    def __init__(self, server, token=None):
        env = {name: value for name, value in os.environ.items() if not name.startswith("ONCE_")}
        if token is not None:
            env["ONCE_TOKEN"] = token
        self.process = subprocess.Popen([BINARY, "mcp", "--serve", "--server", server.url], env=env,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def call(self, tool, **arguments):
        self.process.stdin.write(json.dumps({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments}}) + "\n")
        self.process.stdin.flush()
        result = json.loads(self.process.stdout.readline())["result"]
        return result["isError"], result.get("structuredContent", result["content"][0]["text"])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        assert self.process.wait(60) == 0


def test_a_command_is_submitted_confirmed_and_looked_at(make_server, shop):
    server = make_server(config=shop.config())
    with Agent(server) as agent:
        failed, asked = agent.call("once_submit_command", **refund())
        assert not failed and asked["status"] == "awaiting_confirmation", asked
        failed, said = agent.call("once_confirm", command_id=asked["command_id"], token="wrong")
        assert failed and "not valid" in said
        failed, done = agent.call("once_confirm", command_id=asked["command_id"],
                                  token=asked["confirmation"]["token"])
        assert not failed and done["status"] == "executed", done
        failed, again = agent.call("once_submit_command", **refund())
        assert not failed and again["command_id"] == asked["command_id"]
        failed, shown = agent.call("once_status", id=asked["command_id"])
        assert not failed and shown["status"] == "executed"
    assert list(shop.calls.values()) == [1]


def test_an_agent_never_confirms_its_own_step_up(make_server, shop):
    auth = "auth:\n  tokens:\n" + "".join(
        f"    - {{sha256: \"{hashlib.sha256(name.encode()).hexdigest()}\", tenant: acme, "
        f"rights: [{right}], name: {name}}}\n" for name, right in RIGHTS.items())
    server = make_server(config=shop.config(step_up="step_up") + auth)
    with Agent(server, "bot") as bot, Agent(server, "boss") as boss:
        failed, asked = bot.call("once_submit_command", **envelope("void"))
        assert not failed, asked
        answer = {"command_id": asked["command_id"], "token": asked["confirmation"]["token"]}
        failed, said = bot.call("once_confirm", **answer)
        assert failed and "you submitted it yourself" in said
        with Agent(server, "bot") as second:  # another process of the same agent: by its token
            failed, said = second.call("once_confirm", **answer)
            assert failed and "not valid" in said
        assert not shop.calls
        failed, done = boss.call("once_confirm", **answer)
        assert not failed and done["status"] == "executed", done
    assert list(shop.calls.values()) == [1]


def test_rights_are_those_of_the_token(make_server, shop):
    auth = "auth:\n  tokens:\n" + "".join(
        f"    - {{sha256: \"{hashlib.sha256(name.encode()).hexdigest()}\", tenant: acme, "
        f"rights: [{right}], name: {name}}}\n" for name, right in RIGHTS.items())
    server = make_server(config=shop.config() + auth)
    with Agent(server, "reader") as reader, Agent(server, "nobody") as nobody:
        failed, said = reader.call("once_begin", key="k")
        assert failed and "right" in said, said
        failed, listed = reader.call("once_list_unknown")
        assert not failed and listed == {"operations": []}
        failed, said = nobody.call("once_begin", key="k")
        assert failed and "token" in said, said
