#!/usr/bin/python3
"""provider.py [PORT]: a small payment provider that knows idempotency keys. It counts what it does.

POST /v1/charges/{order}  {"amount": 1200}                  -> 201 {"id": "ch_1"}
POST /v1/refunds          {"charge": "ch_1", "amount": 5}   -> 201 {"id": "re_1"}
GET  /v1/by-key/{key}                                        -> 200 what the key did, or 404
GET  /counts                                                 -> {"charges": 1, "refunds": 0}
"""
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Provider(BaseHTTPRequestHandler):
    """One request."""
    protocol_version = "HTTP/1.1"
    lock = threading.Lock()
    counts = {"charges": 0, "refunds": 0}
    done = {}  # key: answer

    def answer(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/counts":
            self.answer(200, self.counts)
            return
        found = self.done.get(self.path.removeprefix("/v1/by-key/"))
        self.answer(200 if found else 404, found or {"error": "nothing under this key"})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        key = self.headers.get("Idempotency-Key", "")
        what = "refunds" if self.path == "/v1/refunds" else "charges"
        if body.get("amount", 0) <= 0:
            self.answer(422, {"error": "amount must be positive"})
            return
        with self.lock:
            if key not in self.done:
                self.counts[what] += 1
                name = "re" if what == "refunds" else "ch"
                self.done[key] = {"id": f"{name}_{self.counts[what]}", "amount": body["amount"]}
            found = self.done[key]
        self.answer(201, found)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 9000),
        Provider)
    print(f"listening on 127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
