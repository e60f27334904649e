#!/usr/bin/env python3
"""A small shop that is run by chat: messages become commands, "yes" becomes a confirmation.

    python3 shop.py URL-OF-ONCE PORT BOOKS

The chat system delivers each message as POST /message {"id", "from", "text"}, at least once and in
no order. The answer is the reply for the customer, and it is the same however often the message
comes: Once knows what was done. Handlers of the commands are on the same port, and so is the
payment provider, POST /pay/refunds. The file BOOKS outlives the process: what was done, and which
command a "yes" is about.

    refund 204 5 EUR       asks, and is done after "yes"
    yes 204 / no 204       answers the question about order 204
    cancel 204             is done at once
    show 204               reads
"""
import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ONCE = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:7411"
PATIENCE_S = 20  # how long a reply may wait for the payment provider
UNDER_WAY = ("received", "confirmed", "started", "awaiting_effects")


class Books:
    """A file that is replaced as a whole with each change."""

    def __init__(self, path):
        self.path, self.lock = path, threading.Lock()
        self.kept = {"asked": {}, "done": [], "refunds": {}}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                self.kept = json.load(file)

    def change(self, how):
        with self.lock:
            result = how(self.kept)
            with open(self.path + ".new", "w", encoding="utf-8") as file:
                json.dump(self.kept, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(self.path + ".new", self.path)
            return result

    def read(self, part):
        with self.lock:
            return json.loads(json.dumps(self.kept[part]))


def once(path, body=None):
    """(status, document) of Once's answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(ONCE + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def command(customer, action, order_id, message_id, **args):
    return {"actor_id": customer, "effective_actor_id": customer,
        "intent": {"entity": "order", "action": action, "target": {"order_id": order_id}},
        "args": args, "source": {"id": message_id}, "trace": {"message_ids": [message_id]}}


class Chat:
    """Messages become commands. The token of a question is in the books: it is told only once."""

    def __init__(self, books):
        self.books = books

    def reply(self, message):
        words, customer = message["text"].lower().split(), message["from"]
        if words[0] == "refund":
            submitted = command(customer, "refund", words[1], message["id"], amount=int(words[2]),
                currency=words[3])
            return self.submit(customer, words[1], submitted)
        if words[0] in ("cancel", "show"):
            return self.submit(customer, words[1],
                command(customer, words[0], words[1], message["id"]))
        if words[0] in ("yes", "no"):
            return self.answer(customer, words[1], "confirm" if words[0] == "yes" else "deny")
        return "Say refund, cancel or show, and the number of your order."

    def submit(self, customer, order_id, submitted):
        status, document = once("/v1/commands", submitted)
        if document.get("status") == "awaiting_confirmation":
            confirmation = document["confirmation"]
            if "token" in confirmation:
                asked = [document["operation_id"], confirmation["token"]]
                self.books.change(
                    lambda kept: kept["asked"].update({f"{customer} {order_id}": asked}))
            return confirmation["prompt"] + " Answer yes or no, and the number of the order."
        if status >= 400:
            return "That did not work: " + document["detail"] + "."
        return self.outcome(document["operation_id"])

    @staticmethod
    def outcome(command_id):
        """What became of it. A refund waits for the provider, but not for ever."""
        until = time.monotonic() + PATIENCE_S
        while True:
            _, document = once(f"/v1/commands/{command_id}")
            if document["status"] not in UNDER_WAY or time.monotonic() > until:
                return {"rejected": "Nothing was done."}.get(document["status"],
                    document.get("summary", "We are working on it."))
            time.sleep(0.05)

    def answer(self, customer, order_id, verb):
        command_id, token = self.books.read("asked").get(f"{customer} {order_id}", (None, None))
        if command_id is None:
            return "There is nothing to confirm."
        once(f"/v1/commands/{command_id}/{verb}", {"token": token, "actor_id": customer})
        # A second "yes" is refused, because the token is used up. What counts is the command.
        return self.outcome(command_id)


class Handler(BaseHTTPRequestHandler):
    """The chat's webhook, the handlers of the commands, and the payment provider."""

    protocol_version = "HTTP/1.1"
    books = chat = None

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/message":
            self.send(200, {"reply": self.chat.reply(body)})
        elif self.path == "/pay/refunds":
            self.send(200, self.books.change(lambda kept: self.refund(kept, body)))
        else:
            self.send(200, self.handle_command(self.path[1:], body))

    def handle_command(self, action, body):
        order = body["intent"]["target"]["order_id"]
        self.books.change(lambda kept: kept["done"].append([action, order]))
        if action != "order.refund":
            return {"summary": f"Order {order} is " +
                {"order.cancel": "cancelled.", "order.show": "on its way."}[action]}
        payload = {"order": order, **{name: body["args"][name] for name in ("amount", "currency")}}
        return {"summary": f"Order {order} is refunded.", "effects": [
            {"effect_type": "payment.refund", "target": {"order_id": order}, "payload": payload}]}

    def refund(self, kept, body):
        """The provider's part: the same key is the same refund."""
        key = self.headers["Idempotency-Key"]
        return kept["refunds"].setdefault(key, {"id": f"re_{len(kept['refunds']) + 1}", **body})

    def do_GET(self):  # what was done, for those who want to count
        self.send(200, {"done": self.books.read("done"),
            "refunds": list(self.books.read("refunds").values())})

    def send(self, status, document):
        text = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 9000
    Handler.books = Books(sys.argv[3] if len(sys.argv) > 3 else "shop-books.json")
    Handler.chat = Chat(Handler.books)
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
