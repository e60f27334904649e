"""A server that misbehaves on command, and counts effects by key: a stand-in for the gateway.

It is idempotent by itself in a few lines, so that what a client does wrong shows as a second effect
or as a conflict. `moods` says how the next requests end, one each; then all is well, or as `chance`
and `seed` have it.
"""
import http.server
import json
import random
import socket
import socketserver
import ssl
import struct
import threading
import time

RANDOM_MOODS = ["reset_before", "reset_after", "half", "503", "500_after", "429", "in_progress"]
IN_PROGRESS = {  # as the profiles of the gateway say it: headers, body
    "ietf": ({"Content-Type": "application/problem+json"}, {"code": "in_progress"}),
    "guardia": ({"Content-Type": "application/json"}, {"errors": [
        {"code": "ERR409_CONFLICT", "reason": "IDEMPOTENT_REQUEST_IN_PROGRESS"}]}),
    "adr007": ({"Content-Type": "application/json"}, {"error": "idempotency_in_progress"}),
    "header": ({"Once-Decision": "in_progress"}, {"error": "busy"}),
}


class Flaky:
    """`requests` is what came, oldest first; `effects` how often each key took effect."""

    def __init__(self, chance=0.0, seed=1, certificate=None):
        self.lock = threading.Lock()
        self.random, self.chance = random.Random(seed), chance
        self.moods, self.requests, self.effects, self.answers = [], [], {}, {}
        self.connections = 0
        self.retry_after = "0"
        self.over = threading.Event()  # ends the slow ones
        self.server = Server(("127.0.0.1", 0), type("Handler", (Handler,), {"flaky": self}))
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        scheme = "http" if certificate is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self.server.server_address[1]}/charges"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def end(self):
        self.over.set()
        self.server.shutdown()
        self.server.server_close()

    def keys(self):
        return [fields.get("Idempotency-Key") for _, _, fields, _ in self.requests]

    def request_ids(self):
        return [fields.get("Request-Id") for _, _, fields, _ in self.requests]

    def next_mood(self):
        with self.lock:
            if self.moods:
                return self.moods.pop(0)
            if self.random.random() < self.chance:
                return self.random.choice(RANDOM_MOODS)
        return "well"

    def take_effect(self, key, asked):
        """(status, headers, body) of an operation, which is done at most once for a key."""
        with self.lock:
            if key in self.answers:
                first, body = self.answers[key]
                if first != asked:
                    return 409, {"Once-Decision": "conflict_rejected",
                        "Content-Type": "application/problem+json"}, json.dumps(
                        {"code": "idempotency_conflict", "effect": "no", "retry": "no"}).encode()
                return 201, {"Once-Decision": "duplicate_replayed",
                    "Idempotent-Replayed": "true"}, body
            self.effects[key] = self.effects.get(key, 0) + 1
            body = json.dumps({"charged": key, "number": len(self.effects)}).encode()
            if key is not None:
                self.answers[key] = (asked, body)
            return 201, {"Once-Decision": "first_seen"}, body


class Server(socketserver.ThreadingTCPServer):
    daemon_threads, allow_reuse_address, request_queue_size = True, True, 128

    def handle_error(self, request, client_address):
        pass  # a client that went away is what some tests are about


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # one write an answer: with two, the second waits for a delayed acknowledgement

    def log_message(self, *_):
        pass

    def setup(self):
        super().setup()
        with self.flaky.lock:
            self.flaky.connections += 1

    def reset(self):
        """A reset instead of an orderly end."""
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True

    def reply(self, status, fields, body, length=None):
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        with self.flaky.lock:
            self.flaky.requests.append((self.command, self.path, self.headers, body))
        mood = self.flaky.next_mood()
        known = getattr(self, "mood_" + mood.partition(":")[0], None)
        if known is not None:
            known(self.headers["Idempotency-Key"], body, *mood.split(":")[1:])
        elif mood.isdigit():
            self.refuse(int(mood))
        else:
            raise ValueError(mood)

    do_GET = do_HEAD = do_PUT = do_PATCH = do_DELETE = do_POST

    def asked(self, body):
        return self.command, self.path, body

    def mood_well(self, key, body):
        if self.command in ("GET", "HEAD"):
            self.reply(200, {}, b"read")
        else:
            self.reply(*self.flaky.take_effect(key, self.asked(body)))

    def mood_reset_before(self, key, body):
        self.reset()

    def mood_reset_after(self, key, body):
        self.flaky.take_effect(key, self.asked(body))
        self.reset()

    def mood_close(self, key, body):
        self.close_connection = True

    def mood_half(self, key, body):
        status, fields, answer = self.flaky.take_effect(key, self.asked(body))
        self.reply(status, fields, answer[:5], len(answer))
        self.close_connection = True

    def mood_500_after(self, key, body):
        self.flaky.take_effect(key, self.asked(body))
        self.refuse(500)

    def mood_slow(self, key, body):
        self.flaky.take_effect(key, self.asked(body))
        self.flaky.over.wait(20)
        self.close_connection = True

    def mood_in_progress(self, key, body, how="ietf"):
        fields, answer = IN_PROGRESS[how]
        self.reply(409, {**fields, "Retry-After": self.flaky.retry_after},
            json.dumps(answer).encode())

    def mood_problem(self, key, body, status, code, effect, retry="no"):
        self.reply(int(status), {"Content-Type": "application/problem+json"},
            json.dumps({"code": code, "effect": effect, "retry": retry,
                "operation_id": "op_7"}).encode())

    def mood_replayed(self, key, body, status):
        self.reply(int(status), {"Idempotent-Replayed": "true",
            "Once-Decision": "duplicate_replayed"}, b"as before")

    def mood_conflict(self, key, body, status):
        self.reply(int(status), {"Once-Decision": "conflict_rejected"}, b"")

    def mood_large(self, key, body, size):
        status, fields, _ = self.flaky.take_effect(key, self.asked(body))
        self.reply(status, fields, b"x" * int(size))

    def mood_headers(self, key, body, count):
        status, fields, answer = self.flaky.take_effect(key, self.asked(body))
        self.reply(status, {**fields, **{f"X-{n}": "y" for n in range(int(count))}}, answer)

    def mood_garbage(self, key, body):
        self.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
        self.close_connection = True

    def refuse(self, status):
        fields = {"Retry-After": self.flaky.retry_after} if status in (429, 503) else {}
        if status in (301, 302, 303, 307, 308):
            fields["Location"] = self.flaky.url + "/elsewhere"
        self.reply(status, fields, b"no")


def main():
    """For a try by hand: a server that fails one time in three."""
    flaky = Flaky(chance=0.3, seed=time.time_ns())
    print(flaky.url, flush=True)
    try:
        time.sleep(1e6)
    except KeyboardInterrupt:
        print(sorted(flaky.effects.items(), key=lambda item: -item[1])[:3])


if __name__ == "__main__":
    main()
