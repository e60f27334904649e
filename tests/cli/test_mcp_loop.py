"""An agent that loses answers, reconnects and repeats: each effect happens once, or is unknown.

Nearly a third of the calls meet a fault: the server dies, hangs up, refuses or cuts its stream, or
the proxy is killed while the call is under way. The agent repeats every call with its key until it
has an answer that is final. Effects are counted by the server.
"""
import http.client
import json
import os
import random

import stores
from mcp_client import Client, decision
from mcp_http_server import McpServer
from mcp_web_client import Answer, Endpoint, WebClient

LONG = 500 if stores.SHARED else 5000
CALLS = LONG if os.environ.get("ONCE_TEST_LONG") else 24 if stores.SHARED else 60
WEB_CALLS = CALLS if CALLS == LONG else 30  # each may start an endpoint and a server
SEED = int(os.environ.get("ONCE_TEST_SEED", "16"))
HTTP_FAULTS = ["hangs up", "fails 500", "accepts", "stream cut", "stream half", "stream resumed",
               "stream resumed never", "refuses 503"]
STDIO_FAULTS = ["dies", "error", "broken", "invalid"]
FINAL = 4  # tries of a call that stays in doubt


class Agent:
    """Starts a proxy when there is none."""

    def __init__(self, start, dice):
        self.start, self.dice = start, dice
        self.client = None
        self.kills = 0

    def call(self, arguments, may_kill):
        """The result; None: nobody answered."""
        if self.client is None:
            self.client = self.start()
        try:
            identifier = self.client.start_call("pay", arguments)
        except OSError:
            return self.drop()
        if may_kill:
            self.kills += 1
            if self.dice.random() < 0.5:
                self.client.wait_line(lambda text: True, self.dice.random() * 0.02)
            self.client.process.kill()
            return self.drop()
        line = self.client.wait_line(lambda text: f'"id":{identifier},' in text.replace(" ", "")
                                     or f'"id":{identifier}}}' in text.replace(" ", ""))
        return self.drop() if line is None else json.loads(line)

    def drop(self):
        self.client.process.kill()
        self.client.process.wait()
        self.client = None

    def end(self):
        if self.client is not None:
            self.client.end()


class WebAgent:
    """The same over HTTP: it starts an endpoint, or opens a session, when there is none."""

    def __init__(self, once, dice):
        self.once, self.dice = once, dice
        self.endpoint = self.client = None
        self.kills = self.losses = 0

    def connect(self):
        if self.endpoint is None:
            self.endpoint = Endpoint(self.once)
        if self.client is None:
            self.client = WebClient(self.endpoint.port)
            self.client.open()

    def call(self, arguments, may_kill):
        try:
            self.connect()
            connection = self.client.send_call("pay", arguments)
            if may_kill:
                self.kills += 1
                connection.sock.settimeout(self.dice.random() * 0.02)
                return self.end() if self.dice.random() < 0.5 else self.peek(connection)
            if self.dice.random() < 0.2:
                self.losses += 1
                return connection.close()  # the answer is lost
            answer = Answer(connection)
            if answer.status == 404:
                self.client = None
                return None
            return answer.message()
        except (OSError, http.client.HTTPException, ValueError, IndexError):
            return self.end()

    def peek(self, connection):
        """Wait a moment for the answer, then kill."""
        try:
            connection.getresponse()
        finally:
            self.end()

    def end(self):
        if self.endpoint is not None:
            self.endpoint.process.kill()
            self.endpoint.process.wait()
        self.endpoint = self.client = None


def settle(agent, arguments, kill):
    """Repeat a call until its answer is final; what the agent believes of it."""
    doubts = 0
    for attempt in range(50):
        answer = agent.call(arguments, kill and attempt == 0)
        if answer is None or "error" in answer and answer["error"]["code"] == -32602:
            if answer is not None:
                return "refused"
            continue
        if "error" in answer:
            if "server has ended" in answer["error"]["message"]:
                continue  # its session has: a new one knows more
            return "unknown"  # the server's own error does not say whether it was done
        verdict = decision(answer["result"])
        if verdict in (None, "duplicate_replayed"):
            return "done"
        if verdict in ("unknown", "held_unknown"):
            doubts += 1
            if doubts == FINAL:
                return "unknown"
    raise AssertionError(f"no final answer for {arguments}")


def run(agent, dice, faults, count, effects):
    believed = {}
    for number in range(count):
        kill = dice.random() < 0.05
        how = dice.choice(faults) if dice.random() < 0.25 else ""
        key = f"k-{number}"
        believed[key] = settle(agent, {"n": number, "how": how, "idempotency_key": key}, kill)
    agent.end()
    print({belief: list(believed.values()).count(belief) for belief in set(believed.values())},
          "kills:", agent.kills, "lost answers:", getattr(agent, "losses", 0))
    for number, (key, belief) in enumerate(believed.items()):
        happened = effects(number)
        assert happened <= 1, f"seed {SEED}: {key} happened {happened} times"
        if belief == "done":
            assert happened == 1, f"seed {SEED}: {key} was reported done, and was not"
        if belief == "refused":
            assert happened == 0, f"seed {SEED}: {key} was refused, and happened"
    return believed


def test_calls_over_http_happen_once_or_are_unknown(once):
    server, dice = McpServer(), random.Random(SEED)

    def start():
        client = Client(once, url=server.url)
        client.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {},
                                  "clientInfo": {"name": "t", "version": "0"}})
        client.notify("notifications/initialized", {})
        return client

    agent = Agent(start, dice)
    try:
        believed = run(agent, dice, HTTP_FAULTS, CALLS, lambda number: sum(
            arguments["n"] == number for _, arguments in server.effects))
    finally:
        server.close()
    assert set(believed.values()) == {"done", "unknown"} and agent.kills > 0


def test_calls_of_a_process_happen_once_or_are_unknown(once):
    dice = random.Random(SEED + 1)
    agent = Agent(lambda: Client(once), dice)

    def count(number):
        text = (once.directory / "effects").read_text()
        return sum(json.loads(line)[1]["n"] == number for line in text.splitlines())

    believed = run(agent, dice, STDIO_FAULTS, CALLS // 2, count)
    assert {"done", "unknown"} <= set(believed.values())


def test_calls_of_web_clients_happen_once_or_are_unknown(once):
    dice = random.Random(SEED + 2)
    agent = WebAgent(once, dice)

    def count(number):
        text = (once.directory / "effects").read_text()
        return sum(json.loads(line)[1]["n"] == number for line in text.splitlines())

    believed = run(agent, dice, STDIO_FAULTS, WEB_CALLS, count)
    assert {"done", "unknown"} <= set(believed.values()) and agent.kills + agent.losses > 0
