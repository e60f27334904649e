"""Senders and a handler for tests of the inbox: requests signed as each sender signs them, with
Python's own hmac, and a handler that counts what it was called for.
"""
import base64
import hashlib
import hmac
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import servers

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()
KEY = base64.b64decode(SECRET[6:])


def hexmac(text, key=SECRET.encode()):
    return hmac.new(key, text, hashlib.sha256).hexdigest()


def b64mac(text, key=SECRET.encode()):
    return base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()


def signed(preset, body, event_id="e1", at=None, key=SECRET.encode()):
    """The fields of a request of this sender."""
    at = str(int(time.time()) if at is None else at)
    raw = at.encode() + b"." + body
    standard = event_id.encode() + b"." + raw
    own = KEY if key == SECRET.encode() else key
    return {
        "stripe": lambda: {"Stripe-Signature": f"t={at},v1={hexmac(raw, key)}"},
        "github": lambda: {"X-Hub-Signature-256": "sha256=" + hexmac(body, key),
                           "X-GitHub-Delivery": event_id, "X-GitHub-Event": "push"},
        "shopify": lambda: {"X-Shopify-Hmac-SHA256": b64mac(body, key),
                            "X-Shopify-Webhook-Id": event_id},
        "slack": lambda: {"X-Slack-Request-Timestamp": at, "X-Slack-Signature":
                          "v0=" + hexmac(b"v0:" + at.encode() + b":" + body, key)},
        "meta": lambda: {"X-Hub-Signature-256": "sha256=" + hexmac(body, key)},
        "standard_webhooks": lambda: {"webhook-id": event_id, "webhook-timestamp": at,
                                      "webhook-signature": "v1," + b64mac(standard, own)},
        "svix": lambda: {"svix-id": event_id, "svix-timestamp": at,
                         "svix-signature": "v1," + b64mac(standard, own)},
        "hmac": lambda: {"X-Signature": hexmac(body, key)},
        "cloudevents": lambda: {"Authorization": "Bearer " + key.decode("latin-1"),
                                "Content-Type": "application/cloudevents+json"},
        "effect": lambda: {"Authorization": "Bearer " + key.decode("latin-1")},
        "none": lambda: {"Authorization": "Bearer " + key.decode("latin-1")},
    }[preset]()


def body_of(preset, event_id="e1", value=1):
    """A body with this one event in it."""
    return json.dumps({
        "slack": {"event_id": event_id, "type": "event_callback", "n": value},
        "meta": {"object": "page", "entry": [{"id": "1", "changes": [{"field": "messages", "value":
                 {"messages": [{"id": event_id, "n": value}]}}]}]},
        "cloudevents": {"specversion": "1.0", "id": event_id, "source": "/s", "type": "t",
                        "data": {"n": value}},
        "effect": {"idempotency_key": event_id, "effect_type": "mail.send",
                   "payload": {"n": value}},
    }.get(preset, {"id": event_id, "n": value, "created": value})).encode()


# An answer after which a delivery rests. Its backoff alone would do that only most of the time: the
# pause is a random part of it.
RESTS = 503, {"Retry-After": "3600"}


class Handler:
    """Counts calls by key. `answers`: what it does, one after another, then 200; an answer is a
    status, (status, fields), "drop", which closes the connection after the work was done, or a
    threading.Event: 200 when it is set."""

    def __init__(self):
        self.calls, self.lock, self.answers, self.pause_s = [], threading.Lock(), [], 0
        self.known, self.answered = {}, []
        self.gate = threading.Event()  # while it is not set, nothing is answered
        self.gate.set()
        outer = self

        class Request(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                outer.post(self)

            def do_GET(self):
                outer.get(self)

            def log_message(self, *words):
                pass

        class Listener(ThreadingHTTPServer):
            request_queue_size = 256
            daemon_threads = True

            def handle_error(self, request, client_address):
                pass  # a connection that was cut

        self.server = Listener(("127.0.0.1", servers.free_port()), Request)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.gate.set()
        self.server.shutdown()
        self.server.server_close()

    def count(self, key=None):
        with self.lock:
            return sum(1 for call in self.calls if key is None or call["key"] == key)

    def is_answered(self, number):
        """The call of this number, from 1 on, has ended."""
        return number in self.answered

    def post(self, request):
        body = request.rfile.read(int(request.headers["Content-Length"]))
        with self.lock:
            self.calls.append({"key": request.headers["Idempotency-Key"], "body": body,
                "fence": int(request.headers["Once-Fence"]), "headers": dict(request.headers),
                "attempt": int(request.headers["Once-Attempt"]), "path": request.path,
                "at": time.monotonic()})
            answer = self.answers.pop(0) if self.answers else 200
            number = len(self.calls)
        time.sleep(self.pause_s)
        self.gate.wait(60)
        if isinstance(answer, threading.Event):
            answer.wait(60)
            answer = 200
        if answer == "drop":
            request.connection.shutdown(socket.SHUT_RDWR)
            request.close_connection = True
            return
        status, fields = answer if isinstance(answer, tuple) else (answer, {})
        text = json.dumps({"did": number}).encode()
        request.send_response(status)
        for name, value in {"Content-Type": "application/json", **fields}.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(text)))
        try:
            request.end_headers()
            request.wfile.write(text)
        finally:  # nobody may be there any more
            self.answered.append(number)

    def get(self, request):
        status = self.known.get(request.path, 404)
        text = b'{"asked":true}'
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(text)))
        request.end_headers()
        request.wfile.write(text)


def all_deliveries(server, source):
    """Every delivery of a source, page by page."""
    found, after = [], ""
    while after is not None:
        status, _, page = server.request("GET",
            f"/v1/deliveries?limit=1000&source={source}&after={after}")
        assert status == 200, page
        found += page["deliveries"]
        after = page["next"]
    assert len({one["key"] for one in found}) == len(found)
    return found


def source_yaml(name, preset, handler, secret_file, more=""):
    return (f"    {name}:\n      preset: {preset}\n      secrets: [{{file: {secret_file}}}]\n"
            f"      handler: {handler.url}/{name}\n" +
            "".join(f"      {line}\n" for line in more.splitlines()))
