"""An MCP server over streamable HTTP whose tools have effects that can be counted.

It runs in the test's own process. Every effect is in `effects` before anything is answered, and
every request in `requests`. The arguments of a call say how the server behaves.
"""
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

TOOLS = [
    {"name": "pay", "inputSchema": {"type": "object", "properties": {
        "amount": {"type": "number"}, "region": {"type": "string", "x-mcp-header": "Region"},
        "deep": {"type": "object", "properties": {
            "n/m": {"type": "integer", "x-mcp-header": "Depth"}}}}}},
    {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
]
META = "io.modelcontextprotocol/protocolVersion"
WAIT_S = 60


def text(words):
    return {"content": [{"type": "text", "text": words}]}


class McpServer:
    """sessions=False: protocol 2026-07-28, in which the headers have to repeat the message."""

    def __init__(self, sessions=True, streams=True):
        self.sessions, self.streams = sessions, streams
        self.effects, self.requests, self.refused = [], [], set()
        self.session = 0  # the number of the current one; 0: none
        self.answers = {}  # streams that were cut: the id of their last event -> what follows
        self.push = []  # events for the stream of our own messages
        self.pushed = threading.Condition()
        self.ended = threading.Event()
        self.gate = threading.Event()  # calls that say so wait for it
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self):
                try:
                    super().handle_one_request()
                except (ConnectionError, ValueError):
                    self.close_connection = True

            def log_message(self, *_):
                pass

            def do_POST(self):
                server.post(self, self.rfile.read(int(self.headers["Content-Length"])))

            def do_GET(self):
                server.get(self)

            def do_DELETE(self):
                server.note(self, None)
                server.session = 0
                server.send(self, 200)

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/mcp"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def close(self):
        self.ended.set()
        self.gate.set()
        with self.pushed:
            self.pushed.notify_all()
        self.http.shutdown()
        self.http.server_close()

    # ---- what a test looks at ----

    def of(self, method):
        return [one for one in self.requests if one.method == method]

    def note(self, handler, body):
        try:
            message = None if body is None else json.loads(body)
        except ValueError:
            message = None
        one = SimpleNamespace(http=handler.command, headers=dict(handler.headers), body=body,
                              message=message, method=message.get("method")
                              if isinstance(message, dict) else None)
        self.requests.append(one)
        return one

    # ---- answers ----

    def send(self, handler, status, document=None, raw=None, **headers):
        body = raw if raw is not None else b"" if document is None else json.dumps(
            document).encode()
        handler.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def open_stream(self, handler):
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True

    def event(self, handler, document, identifier=None, end="\r\n"):
        lines = [": a comment", "event: message"] + ([f"id: {identifier}"] if identifier else [])
        shown = document if isinstance(document, str) else json.dumps(document, indent=1)
        lines += ["data: " + line for line in shown.split("\n")]
        handler.wfile.write((end.join(lines) + end + end).encode())
        handler.wfile.flush()

    def error(self, handler, status, identifier, code, words):
        self.send(handler, status, {"jsonrpc": "2.0", "id": identifier,
                                    "error": {"code": code, "message": words}})

    # ---- requests ----

    def get(self, handler):
        self.note(handler, None)
        last = handler.headers.get("Last-Event-ID")
        if last in self.answers:
            rest = self.answers.pop(last)
            if isinstance(rest, int):
                return self.send(handler, rest)
            self.open_stream(handler)
            for identifier, document in rest:
                self.event(handler, document, identifier, end="\n")
            return None
        if not self.streams:
            return self.send(handler, 405)
        self.open_stream(handler)
        handler.wfile.flush()
        while not self.ended.is_set():
            with self.pushed:
                self.pushed.wait_for(lambda: self.push or self.ended.is_set(), WAIT_S)
                events, self.push = self.push, []
            for one in events:
                self.event(handler, one)
        return None

    def say(self, document):
        with self.pushed:
            self.push.append(document)
            self.pushed.notify_all()

    def post(self, handler, body):
        one = self.note(handler, body)
        message, method = one.message, one.method
        if isinstance(message, list):
            return self.send(handler, 200, [{"jsonrpc": "2.0", "id": item["id"],
                                             "result": {"echo": item["method"]}}
                                            for item in message if "id" in item])
        identifier = message.get("id")
        if method == "initialize":
            self.session += 1
            return self.send(handler, 200, {"jsonrpc": "2.0", "id": identifier, "result": {
                "protocolVersion": message["params"]["protocolVersion"], "capabilities": {},
                "serverInfo": {"name": "fake", "version": "1"}}},
                Mcp_Session_Id=f"s-{self.session}")
        if self.sessions and handler.headers.get("Mcp-Session-Id") != f"s-{self.session}":
            return self.send(handler, 404)
        if not self.sessions and not self.repeats(handler, message):
            return self.error(handler, 400, identifier, -32020, "the headers differ")
        if handler.headers.get("MCP-Protocol-Version") == "1999-01-01":
            return self.error(handler, 400, identifier, -32022, "the version is not supported")
        if method is None or identifier is None:
            return self.send(handler, 202)
        if method == "tools/list":
            return self.result(handler, identifier, {"tools": TOOLS})
        if method == "tools/call":
            return self.call(handler, identifier, message["params"])
        return self.result(handler, identifier, {"echo": method})

    def repeats(self, handler, message):
        params = message.get("params", {})
        wanted = {"MCP-Protocol-Version": params.get("_meta", {}).get(META),
                  "Mcp-Method": message.get("method")}
        if message.get("method") == "tools/call":
            arguments = params.get("arguments", {})
            depth = arguments.get("deep", {}).get("n/m")
            wanted.update({"Mcp-Name": params["name"], "Mcp-Param-Region": arguments.get("region"),
                           "Mcp-Param-Depth": None if depth is None else str(depth)})
        return all(handler.headers.get(name) == value for name, value in wanted.items())

    def result(self, handler, identifier, result):
        # As a server may write it: over several lines.
        self.send(handler, 200, raw=json.dumps(
            {"jsonrpc": "2.0", "id": identifier, "result": result}, indent=2).encode())

    def call(self, handler, identifier, params):
        name, arguments = params["name"], params.get("arguments", {})
        how = arguments.get("how", "")
        if how.startswith("refuses") and json.dumps(arguments) not in self.refused:
            self.refused.add(json.dumps(arguments))  # the first time
            return self.send(handler, int(how.split()[1]))
        self.effects.append([name, arguments])
        done = {"jsonrpc": "2.0", "id": identifier, "result": text(f"effect {len(self.effects)}")}
        if how == "waits":
            self.gate.wait(WAIT_S)
        if how.startswith("fails"):
            return self.send(handler, int(how.split()[1]))
        if how == "hangs up":
            handler.close_connection = True
            return handler.connection.close()
        if how == "accepts":
            return self.send(handler, 202)
        if how.startswith("stream"):
            return self.stream(handler, how, done, params)
        return self.result(handler, identifier, done["result"])

    def stream(self, handler, how, done, params):
        self.open_stream(handler)
        if how == "stream":
            self.event(handler, {"jsonrpc": "2.0", "method": "notifications/progress",
                                 "params": {"progressToken": 1, "progress": 1}})
            self.event(handler, done)
        elif how == "stream cut":
            self.event(handler, {"jsonrpc": "2.0", "method": "notifications/message"})
        elif how == "stream half":
            handler.wfile.write(b"id: 7\r\ndata: " + json.dumps(done).encode() + b"\r\n")
        elif how.startswith("stream resumed"):
            key = f"e-{len(self.effects)}"
            handler.wfile.write(b"retry: 10\n")
            self.event(handler, "", key)
            self.answers[key] = 404 if how.endswith("never") else [("e-last", done)]
