#!/usr/bin/env python3
"""A small shop that is run by chat: messages become commands, "yes" becomes a confirmation.

    python3 shop.py URL-OF-ONCE PORT

The chat system delivers each message as POST /message {"id", "from", "text"}, at least once and in
no order. The answer is the reply for the customer, and it is the same however often the message
comes: Once knows what was done. Handlers of the commands are on the same port.

    refund 204 5 EUR       asks, and is done after "yes"
    yes 204 / no 204       answers the question about order 204
    cancel 204             is done at once
    show 204               reads
"""
import json
import sys
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ONCE = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:7411"


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
    """What the chat remembers: which command a "yes" is about, and its token. If the process ends
    these are lost, and the question is asked anew when it has expired."""

    def __init__(self):
        self.asked, self.lock = {}, threading.Lock()

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
            with self.lock:
                if "token" in confirmation:
                    self.asked[customer, order_id] = (document["operation_id"],
                        confirmation["token"])
            return confirmation["prompt"] + " Answer yes or no, and the number of the order."
        if status in (200, 201):
            return document.get("summary", document["status"])
        return "We are working on it." if status == 202 else "That did not work: " + \
            document["detail"] + "."

    def answer(self, customer, order_id, verb):
        with self.lock:
            command_id, token = self.asked.get((customer, order_id), (None, None))
        if command_id is None:
            return "There is nothing to confirm."
        once(f"/v1/commands/{command_id}/{verb}", {"token": token, "actor_id": customer})
        # A second "yes" is refused, because the token is used up. What counts is the command.
        _, document = once(f"/v1/commands/{command_id}")
        return {"rejected": "Nothing was done."}.get(document["status"],
            document.get("summary", "We are working on it."))


class Handler(BaseHTTPRequestHandler):
    """The chat's webhook, and the handlers of the commands."""

    protocol_version = "HTTP/1.1"
    chat, done, lock = Chat(), [], threading.Lock()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/message":
            self.send(200, {"reply": self.chat.reply(body)})
            return
        action, order = self.path[1:], body["intent"]["target"]["order_id"]
        with self.lock:
            self.done.append((action, order))
        words = {"order.refund": "refunded", "order.cancel": "cancelled",
            "order.show": "on its way"}
        self.send(200, {"summary": f"Order {order} is {words[action]}."})

    def do_GET(self):  # what was done, for those who want to count
        with self.lock:
            self.send(200, self.done)

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
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
