"""A small MCP server on standard input and output whose tools have effects that can be counted.

Every effect is a line in the file of --effects, appended before anything is answered: one line is
one effect. The arguments of a call say how the server behaves, so that each test reads as a story.
"""
import argparse
import json
import os
import signal
import sys
import threading
import time

parser = argparse.ArgumentParser()
parser.add_argument("--effects", required=True)
parser.add_argument("--received", help="every line that came, as it came")
parser.add_argument("--list", help="the line that answers tools/list; ID stands for the id")
parser.add_argument("--exit", type=int, default=0)
options = parser.parse_args()
lock = threading.Lock()
waiting = {}  # our own requests to the client: id -> event


def send(text):
    with lock:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def answer(identifier, result):
    send(json.dumps({"result": result, "jsonrpc": "2.0", "id": identifier}))


def effect(name, arguments):
    with lock, open(options.effects, "a") as file:
        file.write(json.dumps([name, arguments], sort_keys=True) + "\n")


def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}


def call(identifier, params):
    name, arguments = params["name"], params.get("arguments") or {}
    how = arguments.get("how", "")
    if how == "invalid":
        return send(json.dumps({"jsonrpc": "2.0", "id": identifier,
                                "error": {"code": -32602, "message": "no such order"}}))
    if how == "needs input":
        return answer(identifier, {"resultType": "input_required", "inputRequests": {}})
    effect(name, arguments)
    if how == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "silent":
        return None
    if how == "slow":
        time.sleep(arguments.get("seconds", 1))
    if how == "error":
        return answer(identifier, text("the card was declined", isError=True))
    if how == "broken":
        return send(json.dumps({"jsonrpc": "2.0", "id": identifier,
                                "error": {"code": -32603, "message": "it broke halfway"}}))
    if how == "progress":
        token = params["_meta"]["progressToken"]
        for step in range(5):
            time.sleep(arguments["seconds"] / 5)
            send(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress",
                             "params": {"progressToken": token, "progress": step}}))
    if how == "asks":
        waiting["s1"] = threading.Event()
        send('{"jsonrpc":"2.0","id":"s1","method":"sampling/createMessage",'
             '"params":{"messages":[]}}')
        waiting["s1"].wait(20)
    if how == "raw":
        return send(arguments["line"].replace("ID", json.dumps(identifier)))
    if how == "large":
        return answer(identifier, text("x" * arguments["bytes"]))
    with open(options.effects) as file:
        count = sum(1 for _ in file)
    return answer(identifier, text(f"effect {count}", structuredContent={"n": 1.0, "é": "\u00e9"}))


TOOLS = [
    {"name": "pay", "description": "Pays.", "inputSchema": {"type": "object", "properties": {
        "amount": {"type": "number"}}, "required": ["amount"]}},
    {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "own", "inputSchema": {"type": "object", "properties": {
        "idempotency_key": {"type": "string"}, "request_id": {"type": "string"}}},
     "annotations": {"idempotentHint": False}},
    {"name": "camel", "inputSchema": {"type": "object", "properties": {
        "idempotencyKey": {"type": "string"}}}},
]


def handle(message):
    identifier, method = message.get("id"), message.get("method")
    if method is None:
        if identifier in waiting:
            waiting[identifier].set()
    elif method == "initialize":
        answer(identifier, {"protocolVersion": message["params"]["protocolVersion"],
                            "capabilities": {"tools": {"listChanged": True}},
                            "serverInfo": {"name": "fake", "version": "1"}})
    elif method == "tools/list" and options.list:
        send(options.list.replace("ID", json.dumps(identifier)))
    elif method == "tools/list":
        # Two pages.
        first = "cursor" not in message.get("params", {})
        answer(identifier, {"tools": TOOLS[:2], "nextCursor": "2"} if first else
               {"tools": TOOLS[2:]})
    elif method == "tools/call":
        threading.Thread(target=call, args=(identifier, message["params"]), daemon=True).start()
    elif method == "notifications/cancelled" or identifier is None:
        pass
    elif method == "log":
        send('{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}')
        print("to standard error", file=sys.stderr, flush=True)
        answer(identifier, {})
    else:
        answer(identifier, {"echo": method})


def main():
    for line in sys.stdin:
        if options.received:
            with lock, open(options.received, "a") as file:
                file.write(line)
        try:
            message = json.loads(line)
        except ValueError:
            send("this is not JSON")
            continue
        if isinstance(message, list):
            plain = [one for one in message if one.get("id") is not None]
            send(json.dumps([{"jsonrpc": "2.0", "id": one["id"], "result": {"echo": one["method"]}}
                             for one in plain]))
        else:
            handle(message)
    time.sleep(0.05)
    os._exit(options.exit)


if __name__ == "__main__":
    open(options.effects, "a").close()
    main()
