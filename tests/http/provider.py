"""A provider that counts: how often each key took effect, whatever was asked of it how often.

    provider = Provider(keeps=True)           keeps: a repeated Idempotency-Key is not done again
    provider.script("k1", "500", "lost")      how the requests with that key end, one after another;
                                              the rest end well

Endings: a status ("503", "402": nothing is done; "500", "302": done first), "lost" (done, and the
connection is closed), "lost_before" (closed, and nothing is done), "slow" (done after slow_s),
"kill_before", "kill_after" (calls `kill`, before or after it is done, and then is lost).
GET /by-key/{key}: 200 when it was done, else 404. GET /search/{key}: 200 with a list of what was
done. `hides` makes them deny it for a while, `answers` makes a search answer that instead.
"""
import json
import socket
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import servers

DONE_FIRST = ("500", "502", "302")


class Provider:
    def __init__(self, keeps=True, slow_s=1.0, host="127.0.0.1"):
        self.keeps, self.slow_s, self.kill, self.hides = keeps, slow_s, None, False
        self.effects, self.requests, self.scripts, self.always = {}, [], {}, None
        self.questions, self.at_once, self.at_once_max = 0, 0, 0
        self.acknowledges = self.answers = None
        self.retry_after = None
        self.lock = threading.Lock()
        self.http = Listener((host, servers.free_port(host)), handler_of(self))
        self.port = self.http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def script(self, key, *endings):
        self.scripts[key] = list(endings)

    def end(self):
        self.http.shutdown()
        self.http.server_close()

    def of(self, key):
        """All requests with a key."""
        return [request for request in self.requests if request["key"] == key]

    def ending(self, key):
        with self.lock:
            script = self.scripts.get(key)
            return script.pop(0) if script else self.always or "ok"

    def do(self, key):
        with self.lock:
            if not (self.keeps and key in self.effects):
                self.effects[key] = self.effects.get(key, 0) + 1

    def asked(self, key):
        """What a lookup finds."""
        with self.lock:
            self.questions += 1
            is_done = key in self.effects and not self.hides
        return [{"id": "ch_" + key}] if is_done else []


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, request, client_address):
        pass  # the other side was killed


def handler_of(provider):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def answer(self, status, document, **fields):
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            for name, value in fields.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        def lose(self):
            self.close_connection = True
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()

        def do_GET(self):
            key = self.path.rsplit("/", 1)[1]
            found = provider.asked(key)
            if self.path.startswith("/search/"):
                return self.answer(200, provider.answers or {"data": found})
            self.answer(200 if found else 404, found[0] if found else {})

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            key = self.headers.get("Idempotency-Key") or self.headers.get("X-Key")
            if key is None:
                key = json.loads(body)["idempotency_key"]
            with provider.lock:
                provider.requests.append({"key": key, "path": self.path, "body": body.decode(),
                    "headers": dict(self.headers), "at": time.monotonic()})
                provider.at_once += 1
                provider.at_once_max = max(provider.at_once_max, provider.at_once)
            try:
                self.end_as(provider.ending(key), key, body)
            finally:
                with provider.lock:
                    provider.at_once -= 1

        def end_as(self, ending, key, body):
            if ending == "kill_before":
                provider.kill()
            if ending in ("lost_before", "kill_before"):
                return self.lose()
            if ending.isdigit() and ending not in DONE_FIRST:
                fields = {} if provider.retry_after is None else {"Retry_After":
                    provider.retry_after}
                return self.answer(int(ending), {}, **fields)
            if ending == "slow":
                time.sleep(provider.slow_s)
            provider.do(key)
            if ending == "kill_after":
                provider.kill()
            if ending in ("lost", "kill_after"):
                return self.lose()
            if ending in DONE_FIRST:
                return self.answer(int(ending), {})
            if provider.acknowledges is not None:
                return self.answer(200, provider.acknowledges(json.loads(body)))
            return self.answer(200, {"id": "ch_" + key}, Location="/charges/" + key)

    return Handler
