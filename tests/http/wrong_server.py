"""A server of commands that is wrong on purpose: a proxy that plants faults in the real one.

A fault is a class with any of these methods; each gets what it needs to be wrong:
    ask(request)            change what is sent on: request.path, request.document (the JSON body)
    answer(request, reply)  change what comes back: reply.status, reply.document
    instead(request)        a (status, document) that is answered without asking the server
"""
import http.client
import json
import threading
import types
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class WrongServer:
    def __init__(self, server, *faults):
        self.address, self.faults = urlsplit(server.url), faults
        wrong = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version, disable_nagle_algorithm, wbufsize = "HTTP/1.1", True, 1 << 16

            def do_GET(self):
                self.do_POST()

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                request = types.SimpleNamespace(method=self.command, path=self.path,
                    document=json.loads(body) if body else None)
                status, document = wrong.reply(request)
                text = document if isinstance(document, bytes) else json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
                self.wfile.flush()

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def each(self, name):
        return [getattr(fault, name) for fault in self.faults if hasattr(fault, name)]

    def reply(self, request):
        for instead in self.each("instead"):
            made = instead(request)
            if made is not None:
                return made
        for ask in self.each("ask"):
            ask(request)
        upstream = http.client.HTTPConnection(self.address.hostname, self.address.port, timeout=60)
        upstream.request(request.method, request.path,
            None if request.document is None else json.dumps(request.document),
            {"Content-Type": "application/json"})
        got = upstream.getresponse()
        reply = types.SimpleNamespace(status=got.status, document=json.loads(got.read()))
        upstream.close()
        for answer in self.each("answer"):
            answer(request, reply)
        return reply.status, reply.document

    def close(self):
        self.http.shutdown()
        self.http.server_close()


def submits(request, *actions):
    """It is a submission, of one of these actions if any is given."""
    return (request.path == "/v1/commands" and request.document is not None
        and (not actions or request.document["intent"]["action"] in actions))
