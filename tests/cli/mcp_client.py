"""An MCP client on the standard input and output of once mcp, for the tests of it."""
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

SERVER = Path(__file__).resolve().parent / "mcp_server.py"
WAIT_S = 60  # for what has to come; a hang is a failure, not a wait
VERSIONS = ["2025-03-26", "2025-06-18", "2025-11-25"]


class Client:
    """An MCP client in front of a proxy."""

    def __init__(self, once, *options, server=(), url=None):
        self.effects = once.directory / "effects"
        self.received = once.directory / "received"
        behind = ["--", sys.executable, SERVER, "--effects", self.effects, "--received",
                  self.received, *server]
        self.process = once.start("mcp", *options, *(behind if url is None else
                                                     ["--upstream", url]), stdin=subprocess.PIPE)
        self.effects.touch()
        self.received.touch()
        self.number = 0
        self.lines = []
        self.more = threading.Condition()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            with self.more:
                self.lines.append(line.decode().rstrip("\n"))
                self.more.notify_all()
        with self.more:
            self.lines.append(None)
            self.more.notify_all()

    def send_line(self, line):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def send(self, method, params=None, identifier=None):
        if identifier is None:
            self.number += 1
            identifier = self.number
        message = {"jsonrpc": "2.0", "id": identifier, "method": method}
        self.send_line(json.dumps(message if params is None else {**message, "params": params}))
        return identifier

    def notify(self, method, params):
        self.send_line(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}))

    def wait_line(self, wanted, seconds=WAIT_S):
        """The first line that is wanted; it is taken out."""
        until = time.monotonic() + seconds
        with self.more:
            while True:
                for place, line in enumerate(self.lines):
                    if line is not None and wanted(line):
                        return self.lines.pop(place)
                left = until - time.monotonic()
                if left <= 0 or (self.lines and self.lines[-1] is None):
                    return None
                self.more.wait(left)

    def answer(self, identifier, seconds=WAIT_S):
        line = self.wait_line(lambda text: is_answer(text, identifier), seconds)
        assert line is not None, f"no answer to {identifier}; there are {self.lines}"
        return line

    def ask(self, method, params=None):
        return json.loads(self.answer(self.send(method, params)))

    def start_call(self, tool, arguments, **more):
        return self.send("tools/call", {"name": tool, "arguments": arguments, **more})

    def call(self, tool, arguments, **more):
        return json.loads(self.answer(self.start_call(tool, arguments, **more)))["result"]

    def count(self, part=""):
        return sum(part in line for line in self.effects.read_text().splitlines())

    def wait_effects(self, count):
        until = time.monotonic() + WAIT_S
        while self.count() < count:
            assert time.monotonic() < until
            time.sleep(0.01)

    def got(self):
        return self.received.read_text().splitlines()

    def end(self):
        """The client closes; the proxy's exit code."""
        self.process.stdin.close()
        code = self.process.wait(WAIT_S)
        self.reader.join(WAIT_S)
        return code


def is_answer(text, identifier):
    try:
        message = json.loads(text)
    except ValueError:
        return False
    return isinstance(message, dict) and "method" not in message and message.get("id") == identifier


def decision(result):
    return result.get("_meta", {}).get("io.once/decision")


def words(result):
    return result["content"][0]["text"]


def config(once, text):
    path = once.directory / "once.yaml"
    path.write_text("mcp:\n  tools:\n" + text)
    return ["--config", path]
