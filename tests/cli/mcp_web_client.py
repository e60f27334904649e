"""An MCP client over streamable HTTP, and once mcp --listen for it."""
import http.client
import json
import sys
import threading

from mcp_client import SERVER, WAIT_S

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}}
BOTH = "application/json, text/event-stream"


class Endpoint:
    """once mcp --listen in front of the small server, or of what `behind` names."""

    def __init__(self, once, *options, behind=None, listen="127.0.0.1:0"):
        self.effects, self.received = once.directory / "effects", once.directory / "received"
        behind = behind or ["--", sys.executable, SERVER, "--effects", self.effects, "--received",
                            self.received]
        self.process = once.start("mcp", "--listen", listen, *options, *behind)
        line = self.process.stderr.readline().decode()
        assert "http://" in line, line + self.process.stderr.read().decode()
        self.port = int(line.rsplit(":", 1)[1].split("/")[0])
        self.said = []
        threading.Thread(target=self.hear, daemon=True).start()
        self.effects.touch()

    def hear(self):
        for line in self.process.stderr:
            self.said.append(line.decode())

    def count(self):
        return len(self.effects.read_text().splitlines())


class Answer:
    """The answer to a request; its events are read as they come."""

    def __init__(self, connection):
        self.connection = connection
        self.response = connection.getresponse()
        self.status = self.response.status
        self.headers = self.response.headers
        self.is_stream = self.headers.get("Content-Type") == "text/event-stream"
        self.last_id = None

    def body(self):
        return json.loads(self.response.read() or "null")

    def events(self):
        """Messages, until the stream ends."""
        data = b""
        while True:
            line = self.response.readline()
            if not line:
                return
            if line.startswith(b"id: "):
                self.last_id = line[4:].strip().decode()
            elif line.startswith(b"data: "):
                data += line[6:].strip()
            elif line == b"\n" and data:
                yield json.loads(data)
                data = b""

    def message(self):
        """The answer itself, alone or at the end of a stream."""
        return list(self.events())[-1] if self.is_stream else self.body()

    def close(self):
        """The client goes away."""
        self.response.close()
        self.connection.close()


class WebClient:
    def __init__(self, port, **headers):
        self.port, self.headers, self.number = port, headers, 0

    def request(self, method, body=None, path="/mcp", **headers):
        return Answer(self.send(method, body, path, **headers))

    def send(self, method, body=None, path="/mcp", **headers):
        """The connection; its answer is not read yet."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        fields = {"Accept": BOTH, "Content-Type": "application/json", **self.headers, **headers}
        connection.request(method, path, body, {name.replace("_", "-"): value
                                                for name, value in fields.items() if value})
        return connection

    def post(self, message, **headers):
        return self.request("POST", json.dumps(message), **headers)

    def ask(self, method, params=None, **headers):
        self.number += 1
        message = {"jsonrpc": "2.0", "id": self.number, "method": method}
        return self.post(message if params is None else {**message, "params": params}, **headers)

    def open(self, version="2025-11-25"):
        answer = self.ask("initialize", {"protocolVersion": version, "capabilities": {},
                                         "clientInfo": {"name": "t", "version": "0"}})
        assert answer.status == 200, answer.response.read()
        self.headers["Mcp_Session_Id"] = answer.headers["Mcp-Session-Id"]
        self.headers["MCP_Protocol_Version"] = version
        opened = answer.message()
        done = self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert done.status == 202 and done.response.read() == b""
        return opened

    def call(self, tool, arguments, meta=None, **headers):
        params = {"name": tool, "arguments": arguments}
        return self.ask("tools/call", {**params, "_meta": meta} if meta else params, **headers)

    def send_call(self, tool, arguments):
        self.number += 1
        return self.send("POST", json.dumps({"jsonrpc": "2.0", "id": self.number,
            "method": "tools/call", "params": {"name": tool, "arguments": arguments}}))

    def stateless(self, tool, arguments, identifier=1, **headers):
        """A call of protocol 2026-07-28."""
        meta = {**META, **headers.pop("meta", {})}
        fields = {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": "tools/call",
                  "Mcp_Name": tool, **headers}
        return self.post({"jsonrpc": "2.0", "id": identifier, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments, "_meta": meta}}, **fields)
