"""A server that answers by a script (tests/vectors/sdk/operations.json), and remembers what came.

Each line of the script is one answer, {"status", "headers", "body"}; or {"lost"}: it reads the
request and hangs up; or {"half"}: it hangs up within the body. The last line repeats.
"""
import http.server
import threading
import time


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        line = self.owner.take(self.headers)
        self.close_connection = True
        if "status" not in line and "half" not in line:
            return
        body = line.get("body", "").encode()
        self.send_response_only(line.get("status", 201))
        for name, value in line.get("headers", {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", "100" if "half" in line else str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"{" if "half" in line else body)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = answer


class Scripted:
    """`requests`: the headers of each, in order. `times`: when each came."""

    def __init__(self, script):
        self.script, self.requests, self.times = list(script), [], []
        self.lock = threading.Lock()
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0),
            type("Bound", (Handler,), {"owner": self}))
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/charges"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def take(self, headers):
        with self.lock:
            self.requests.append(headers)
            self.times.append(time.monotonic())
            return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    def end(self):
        self.http.shutdown()
        self.http.server_close()
