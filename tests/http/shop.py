"""Handlers of a small shop, and envelopes for it: what the tests of commands are built from.

A handler counts its calls by key and does what `args.do` of the envelope says:
    (nothing)      200 and a JSON outcome with a summary
    fail           422, for good
    busy N         503 the first N times, then 200
    no_effect N    500 with Once-Effect: no the first N times, then 200
    broken         500: nobody knows
    silent         the connection is closed without an answer
    slow           200, after a gate is opened
    late N         503 the first N times, then slow
    says TEXT      200 with this text, whatever it is
    each A B …     A the first time, B the second, …; the last one from then on
"""
import collections
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import servers

CONFIG = """
commands:
  order.show: {{class: I0, handler: "{url}/order.show"}}
  order.cancel: {{class: I1, ttl: 24h, timeout: 2s, retry: {{attempts: 3, backoff: 10ms}},
    handler: "{url}/order.cancel?shop=1"}}
  order.ship: {{class: I1, binding: effective_actor, handler: "{url}/order.ship"}}
  order.sync: {{class: I1, on_unknown: takeover, timeout: 2s, retry: {{attempts: 3, backoff: 10ms}},
    handler: "{url}/order.sync"}}
  order.look: {{class: I1, on_unknown: reconcile, timeout: 2s, handler: "{url}/order.look",
    reconcile: {{get: "/by-key/{{key}}", quiet: 0ms}}}}
  cart.note: {{class: I2, justification: "notes repeat", ttl: 1s, handler: "{url}/cart.note"}}
  order.refund:
    class: I3
    justification: "the provider has no idempotency keys"
    shield: [S3]
    critical: true
    ttl: 72h
    confirm: confirm
    confirm_ttl: {confirm_ttl}
    prompt: "Refund {{args.amount}} {{args.currency}} of {{target.order_id}} to {{args.card}}?"
    handler: "{url}/order.refund"
    timeout: 5s
    redact: [/args/card, /intent/target/pin, /trace/phone]
    args:
      amount: {{type: integer, required: true, min: 1}}
      currency: {{type: string, required: true, normalise: [trim, upper], enum: [EUR, USD]}}
      phone: {{type: string, normalise: e164}}
      card: {{type: string}}
      do: {{type: string}}
  order.void: {{class: I1, confirm: {step_up}, confirm_ttl: 60s, handler: "{url}/order.void"}}
"""


GATE_S = 600  # longer than any test; a test that ends opens it
TAKEOVER = """
  order.mend: {{class: I1, timeout: 60s, retry: {{attempts: 3, backoff: 10s}},
    handler: "{url}/order.mend"}}
  order.pack: {{class: I1, on_unknown: takeover, timeout: 60s, handler: "{url}/order.pack"}}
  order.wrap: {{class: I1, on_unknown: takeover, timeout: 60s, handler: "{url}/order.wrap",
    confirm: confirm, confirm_ttl: 10m}}
"""


class Shop:
    """The handlers' server."""

    def __init__(self):
        self.calls = collections.Counter()  # by key
        self.seen = []  # (path, headers, envelope)
        self.peers = set()  # connections that calls came over
        self.done = set()  # keys that took effect
        self.lock = threading.Lock()
        self.gate = threading.Event()
        shop = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                shop.handle(self, json.loads(body))

            def do_GET(self):
                key = self.path.rsplit("/", 1)[1]
                self.answer(200 if key in shop.done else 404, {"found": key in shop.done})

            def answer(self, status, document, headers=()):
                self.say(status, json.dumps(document).encode(), headers)

            def say(self, status, body, headers=()):
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                for name, value in headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", servers.free_port()), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.gate.set()
        self.server.shutdown()
        self.server.server_close()

    def handle(self, http, envelope):
        key = http.headers["Idempotency-Key"]
        with self.lock:
            self.calls[key] += 1
            count = self.calls[key]
            self.seen.append((http.path, dict(http.headers), envelope))
            self.peers.add(http.client_address)
        what, _, times = envelope.get("args", {}).get("do", "").partition(" ")
        if what == "each":
            words = times.split()
            what, times = words[min(count, len(words)) - 1], str(count)
        if what == "slow" or (what == "late" and count > int(times)):
            self.gate.wait(GATE_S)
        if what == "fail":
            http.answer(422, {"summary": "That cannot be done.", "why": "too late"})
        elif what in ("busy", "late") and count <= int(times):
            http.answer(503, {"why": "busy"})
        elif what == "no_effect" and count <= int(times):
            http.answer(500, {"why": "not begun"}, [("Once-Effect", "no")])
        elif what == "says":
            http.say(200, times.encode())
        elif what == "broken":
            self.done.add(key)
            http.answer(500, {"why": "half done"})
        elif what == "silent":
            if times == "" or count <= int(times):
                self.done.add(key)
                http.close_connection = True
                http.connection.close()
                return
            http.answer(200, {"summary": "Done.", "count": count})
        else:
            self.done.add(key)
            http.answer(200, {"summary": f"Done: {envelope['intent']['action']}.", "count": count})

    def config(self, confirm_ttl="60s", step_up="confirm", more=""):
        return CONFIG.format(url=self.url, confirm_ttl=confirm_ttl, step_up=step_up) + more

    def takeover(self):
        """Commands whose handlers may be called again, for config's more: pack, and wrap, which is
        confirmed first."""
        return TAKEOVER.format(url=self.url)

    def called(self):
        """How often, by action."""
        with self.lock:
            return collections.Counter(envelope["intent"]["action"] for _, _, envelope in self.seen)


def envelope(action, entity="order", order_id="204", actor="ana", **more):
    """A command; args in `args`."""
    return {"actor_id": actor, "intent": {"entity": entity, "action": action,
        "target": {"order_id": order_id}}, **more}


def refund(order_id="204", amount=5, currency="EUR", **more):
    args = {"amount": amount, "currency": currency, **more.pop("args", {})}
    return envelope("refund", order_id=order_id, args=args, **more)
