#!/usr/bin/python3
"""bench_mcp: what once mcp adds to the latency of a tool call, beside a plain pipe.

    bench_mcp.py dir=PATH once=PATH tools=PATH [calls=500] [rounds=5] [only=M1]

One client makes one call after the other, of one server, over its pipes and through the proxy; they
take turns. Figures are microseconds, the median of the rounds' p50; p99 is in the text. Prints one
row a line, as the other programs do (bench.h).

  M1   a call that passes (the tool only reads) ÷ the plain pipe
  M2   a call that is guarded: two durable commits ÷ the plain pipe
"""
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench_gateway import row

SERVER = '''
import json, sys
TOOLS = [{"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
         {"name": "pay", "inputSchema": {"type": "object"}}]
for line in sys.stdin:
    message = json.loads(line)
    result = {"tools": TOOLS} if message["method"] == "tools/list" else {"content": []}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + "\\n")
    sys.stdout.flush()
'''


class Way:
    """A way to the server, and the time that each call takes."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.number = 0
        self.ask("tools/list", {})

    def ask(self, method, params):
        self.number += 1
        line = json.dumps({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

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


def main():
    options = {"calls": "500", "rounds": "5", "only": ""}
    options.update(word.split("=", 1) for word in sys.argv[1:])
    directory = Path(options["dir"])
    (directory / "server.py").write_text(SERVER)
    server = [sys.executable, str(directory / "server.py")]
    plain = Way(server)
    proxied = Way([options["once"], "mcp", "--store", str(directory / "store"), "--", *server])
    for ident, tool, what in (("M1", "look", "a tool call that passes through once mcp"),
                              ("M2", "pay", "a guarded tool call through once mcp")):
        if options["only"] not in ("", ident):
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
            f"a plain pipe, p50 (p99 {p99[1]} us)", None, [one[0] for one in ours],
            [one[0] for one in theirs])), flush=True)
    plain.stop()
    proxied.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
