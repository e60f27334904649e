"""A way to a server on which a share of the connections fails, as real ones do.

It carries one request a connection: it may be refused before anything is sent on, lose the answer
after the server has acted, or cut it off half way. `target` is asked for each time, so that a
server may be killed and come back on another port.
"""
import random
import socket
import socketserver
import threading

ENDS = ("refused", "lost", "half")


class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        end = self.server.owner.end()
        if end == "refused":
            return
        self.request.settimeout(60)
        asked = read_message(self.request)
        if not asked:
            return
        try:
            with socket.create_connection(("127.0.0.1", self.server.owner.target()), 60) as onward:
                onward.sendall(asked)
                answer = read_message(onward)
        except OSError:
            return
        if end == "half":
            answer = answer[:len(answer) // 2]
        if end != "lost":
            self.request.sendall(answer)


class Threads(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256

    def handle_error(self, *_):
        pass  # a peer that is gone is what this is about


class Chaos:
    """`ends`: how often connections ended how."""

    def __init__(self, target, chance, seed):
        self.target, self.chance, self.random = target, chance, random.Random(seed)
        self.ends, self.lock = {}, threading.Lock()
        self.tcp = Threads(("127.0.0.1", 0), Handler)
        self.tcp.owner = self
        self.url = f"http://127.0.0.1:{self.tcp.server_address[1]}"
        threading.Thread(target=self.tcp.serve_forever, args=(0.02,), daemon=True).start()

    def end(self):
        with self.lock:
            end = self.random.choice(ENDS) if self.random.random() < self.chance else "well"
            self.ends[end] = self.ends.get(end, 0) + 1
            return end

    def failed(self):
        """The share of the connections that were made to fail."""
        return 1 - self.ends.get("well", 0) / max(1, sum(self.ends.values()))

    def stop(self):
        self.tcp.shutdown()
        self.tcp.server_close()


def read_message(wire):
    """One whole message with a Content-Length; b"" when the peer is gone before its end."""
    data = b""
    while True:
        head, mark, body = data.partition(b"\r\n\r\n")
        if mark:
            lengths = [int(line.split(b":")[1]) for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length:")]
            if len(body) >= (lengths or [0])[0]:
                return data
        try:
            piece = wire.recv(1 << 16)
        except OSError:
            return b""
        if not piece:
            return b""
        data += piece
