"""A server for POSTs and GETs of JSON, for tests that say themselves what it answers."""
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class JsonProvider:
    """A subclass has answer(path, body, headers), which returns a status and a document."""

    def __init__(self):
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.give(None)

            def do_POST(self):
                self.give(json.loads(
                    self.rfile.read(int(self.headers["Content-Length"])) or b"{}"))

            def give(self, body):
                status, answer = provider.answer(self.path, body, self.headers)
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
