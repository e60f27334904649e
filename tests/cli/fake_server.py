"""A server that answers as Once's does, from what a store holds; for what a real one never says.

It shows the operations and the evidence that the commands read from the store, so that both ways
of looking can be compared; a test may bend any of it before it is asked.
"""
import base64
import http.server
import json
import re
import socketserver
import ssl
import sys
import threading
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from entry_link import link  # noqa: E402

ZERO = bytes(32)


def compact(value):
    """As a server writes documents: members in their order, no blanks."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def chain(entries, prev=ZERO):
    """Tie entries to each other, as the server shows them."""
    shown = []
    for entry in entries:
        bare = {k: v for k, v in entry.items() if k not in ("prev_hash", "hash")}
        digest = link(prev, bare)
        shown.append({**bare, "prev_hash": prev.hex(), "hash": digest.hex()})
        prev = digest
    return shown


def seq_of(cursor):
    """Ours are a letter and a number; those that the program makes are Once's own."""
    if len(cursor) == 34:
        return int.from_bytes(base64.urlsafe_b64decode(cursor + "==")[17:], "big")
    return int(cursor[1:] or 0)


class Problem(Exception):
    def __init__(self, status, code, detail="as the test wants it", **more):
        super().__init__(code)
        self.status = status
        self.document = {"status": status, "code": code, "detail": detail, "effect": "no", **more}


class Fake:
    """The state, and how it is served. `requests` is what came, oldest first."""

    def __init__(self):
        self.operations, self.entries, self.requests = [], [], []
        self.page, self.token, self.logs_reads, self.head = 1000, None, True, None
        self.bend = None  # a function of (fake, handler): True when it answered itself
        self.resolve_problem = None
        self.started = []

    def fill(self, once):
        """With what the store of the fixture holds."""
        listed = json.loads(once("ls", "--json").text)
        self.operations = [json.loads(once("show", op["operation_id"], "--json").text)
            for op in listed]
        lines = once("tail", "--json", "-n", "1000000").text.splitlines()
        self.entries = chain([json.loads(line) for line in lines])

    # --- What it answers ---

    def answer(self, handler, body):
        url = urlsplit(handler.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if self.token and handler.headers["Authorization"] != f"Bearer {self.token}":
            raise Problem(401, "unauthorized", "a token is needed")
        if handler.command == "POST":
            return self.resolve(url.path, json.loads(body))
        if url.path == "/v1/operations":
            return self.list(query)
        if url.path == "/v1/evidence/head":
            return self.head or {"chain_id": self.entries[-1]["chain_id"],
                "seq": self.entries[-1]["seq"], "hash": self.entries[-1]["hash"]}
        if url.path == "/v1/evidence":
            return self.evidence(query, handler.headers["Request-Id"])
        found = re.fullmatch(r"/v1/operations/([^/]+)", url.path)
        return self.find(found[1]) if found else self.missing("not_found")

    @staticmethod
    def missing(code):
        raise Problem(404, code)

    def find(self, operation_id):
        for operation in self.operations:
            if operation["operation_id"] == operation_id:
                return operation
        return self.missing("operation_not_found")

    def list(self, query):
        after, limit = int(query.get("after", "c0")[1:]), min(int(query["limit"]), self.page)
        found = [{k: v for k, v in op.items() if k not in ("outcome", "request")}
            for op in self.operations
            if all(op.get(name) == query[name] for name in ("scope", "key", "status")
                   if name in query)]
        more = len(found) > after + limit
        return {"operations": found[after:after + limit],
            "next": f"c{after + limit}" if more else None}

    def evidence(self, query, request_id):
        after, limit = seq_of(query.get("after", "")), min(int(query["limit"]), self.page)
        found = [e for e in self.entries if e["seq"] > after
            and query.get("operation_id") in (None, e["operation_id"])]
        page = found[:limit]
        if self.logs_reads:
            self.add({"type": "access.read", "operation_id": "", "scope": "",
                "trace": {"request_id": request_id}})
        return {"entries": page, "next": f"c{page[-1]['seq']}" if len(found) > limit else None}

    def add(self, entry):
        last = self.entries[-1]
        entry = {"chain_id": last["chain_id"], "seq": last["seq"] + 1,
            "occurred_at": last["occurred_at"], **entry}
        self.entries += chain([entry], bytes.fromhex(last["hash"]))

    def resolve(self, path, body):
        operation = self.find(path.split("/")[3])
        if self.resolve_problem:
            raise self.resolve_problem
        operation["status"] = {"not_executed": "released"}.get(body["status"], body["status"])
        return {"decision": "resolved", **{k: v for k, v in operation.items() if k != "outcome"}}

    # --- How it is served ---

    def serve(self, path=None, certificate=None):
        """On a Unix socket, or on TCP; returns the address for --server."""
        handler = type("Handler", (Handler,), {"fake": self})
        kind = TcpServer if path is None else UnixServer
        server = kind(("127.0.0.1", 0) if path is None else str(path), handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        self.started.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        if path is not None:
            return f"unix:{path}"
        return f"http{'s' if certificate else ''}://127.0.0.1:{server.server_address[1]}"

    def end(self):
        for server in self.started:
            server.shutdown()
            server.server_close()


class TcpServer(socketserver.ThreadingTCPServer):
    daemon_threads, allow_reuse_address = True, True

    def handle_error(self, request, client_address):
        pass  # a client that went away is what some tests are about


class UnixServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self):
        return "unix"

    def log_message(self, *_):
        pass

    def reply(self, status, body, kind="application/json", **fields):
        body = body if isinstance(body, bytes) else compact(body)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.fake.requests.append((self.command, self.path, dict(self.headers), body))
        if self.fake.bend and self.fake.bend(self):
            return
        try:
            self.reply(200, self.fake.answer(self, body))
        except Problem as problem:
            self.reply(problem.status, problem.document, "application/problem+json")

    do_POST = do_GET
