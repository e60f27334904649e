#!/usr/bin/python3
"""bench_mcp: what once mcp adds to the latency of a tool call, beside a plain pipe and plain HTTP.

    bench_mcp.py dir=PATH once=PATH tools=PATH [calls=500] [rounds=5] [only=M1]

One client makes one call after the other, of one server, over its pipes or a kept connection, and
through the proxy; they take turns. Figures are microseconds, the median of the rounds' p50; p99 is
in the text. Prints one row a line, as the other programs do (bench.h).

  M1   a call that passes (the tool only reads) ÷ the plain pipe
  M2   a call that is guarded: two durable commits ÷ the plain pipe
  M3   M1 with --upstream ÷ a client that posts to the same URL itself
  M4   M2 with --upstream ÷ the same
"""
import http.client
import http.server
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from measure import row, wanted

SERVER = '''
import sys
from bench_mcp import answer
for line in sys.stdin:
    sys.stdout.write(answer(line) + "\\n")
    sys.stdout.flush()
'''
TOOLS = [{"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
         {"name": "pay", "inputSchema": {"type": "object"}}]


def answer(text):
    message = json.loads(text)
    result = {"tools": TOOLS} if message["method"] == "tools/list" else {"content": []}
    return json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": result})


class HttpServer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body in one packet

    def do_POST(self):
        said = self.rfile.read(int(self.headers["Content-Length"]))
        body = answer(said).encode() if b'"id"' in said else b""
        self.send_response(200 if body else 202)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, *_):
        pass


class Way:
    """A way to the server, and the time that each call takes."""

    def __init__(self, command, env=None):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=env)
        self.number = 0
        self.ask("tools/list", {})

    def exchange(self, text):
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def ask(self, method, params):
        self.number += 1
        return json.loads(self.exchange(json.dumps(
            {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})))

    def micros(self, tool, calls):
        """The p50 and the p99 of so many calls."""
        times = []
        for _ in range(calls):
            began = time.perf_counter()
            answer = self.ask("tools/call", {"name": tool, "arguments": {
                "n": self.number, "idempotency_key": f"k-{self.number}"}})
            times.append((time.perf_counter() - began) * 1e6)
            assert answer["result"].get("isError") is not True, answer
        times.sort()
        return times[len(times) // 2], times[len(times) * 99 // 100]

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


class HttpWay(Way):
    """The server itself, over one connection."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port)
        self.number = 0
        self.ask("tools/list", {})

    def exchange(self, text):
        self.connection.request("POST", "/mcp", text, {"Content-Type": "application/json",
            "Accept": "application/json, text/event-stream"})
        return self.connection.getresponse().read()

    def stop(self):
        self.connection.close()


def compare(options, rows, plain, proxied, beside):
    for ident, tool, what in rows:
        if not wanted(options["only"], ident):
            continue
        ours, theirs = [], []
        for number in range(int(options["rounds"]) + 1):
            pair = [plain.micros(tool, int(options["calls"])),
                    proxied.micros(tool, int(options["calls"]))]
            if number > 0:  # the first one only warms up
                theirs.append(pair[0])
                ours.append(pair[1])
        p99 = [round(statistics.median(one[1] for one in side)) for side in (ours, theirs)]
        print(json.dumps(row(ident, f"{what}, p50 (p99 {p99[0]} us)", "us",
            f"{beside}, p50 (p99 {p99[1]} us)", None, [one[0] for one in ours],
            [one[0] for one in theirs])), flush=True)
    plain.stop()
    proxied.stop()


def main():
    options = {"calls": "500", "rounds": "5", "only": ""}
    options.update(word.split("=", 1) for word in sys.argv[1:])
    directory = Path(options["dir"])
    (directory / "server.py").write_text(SERVER)
    server = [sys.executable, str(directory / "server.py")]
    env = dict(os.environ, PYTHONPATH=str(Path(__file__).resolve().parent))
    once = [options["once"], "mcp", "--store"]
    compare(options, [("M1", "look", "a tool call that passes through once mcp"),
        ("M2", "pay", "a guarded tool call through once mcp")], Way(server, env),
        Way([*once, str(directory / "store"), "--", *server], env), "a plain pipe")
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), HttpServer)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{web.server_port}/mcp"
    compare(options, [("M3", "look", "a tool call that passes through once mcp --upstream"),
        ("M4", "pay", "a guarded tool call through once mcp --upstream")],
        HttpWay(web.server_port), Way([*once, str(directory / "store-http"), "--upstream", url]),
        "plain HTTP")
    web.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
