"""An API that charges whenever it is asked, and fails as real ones do.

    python3 api.py [seed]

POST /charges            charges. One in three goes wrong: refused, cut off before, or cut off after
GET  /charges/by-key/K   what was charged for the key K, or 404
GET  /count/PREFIX       how many charges there are for keys that begin so

Of idempotency it knows nothing: asked twice, it charges twice.
"""
import http.server
import json
import random
import sys
import threading

chance = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else None)
lock = threading.Lock()
charges = []  # (key, answer), oldest first


class Api(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # send each answer in one piece

    def do_POST(self):
        key = self.headers.get("Idempotency-Key", "").strip('"')
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with lock:
            luck = chance.random()
            if luck < 0.1:
                self.answer(503, {"error": "try again later"})
            elif luck < 0.2:
                self.close_connection = True  # no charge, no answer
            else:
                charges.append((key, {"charge": len(charges) + 1, "cents": asked["cents"]}))
                if luck < 0.35:
                    self.close_connection = True  # charged, no answer
                else:
                    self.answer(201, charges[-1][1])

    def do_GET(self):
        name = self.path.rpartition("/")[2]
        with lock:
            found = [answer for key, answer in charges if key == name]
            if self.path.startswith("/count/"):
                self.answer(200, sum(key.startswith(name) for key, _ in charges))
            elif found:
                self.answer(200, found[0])
            else:
                self.answer(404, {"error": "no charge has this key"})

    def answer(self, status, value):
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
