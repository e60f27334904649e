"""A handler that can be killed: a process of its own, which does something once for each key.

    handler = CrashingHandler(directory)
    handler.kill9(); handler.start()        on the same port
    handler.gate(False)                     what it has begun is not done before gate(True)
    handler.log()                           [("begun", key, fence), ("done", key, fence), …]

What it does is one line in a file, and it knows by the file what it has done already, as a handler
with `on_unknown: redeliver` has to. A line that was written is there after a kill.
"""
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import servers  # noqa: E402


class CrashingHandler:
    def __init__(self, directory, work_s=0.02):
        self.path, self.work_s, self.process = Path(directory) / "done", work_s, None
        self.port = servers.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.path.touch()
        self.start()

    def start(self):
        self.process = subprocess.Popen([sys.executable, __file__, str(self.port), str(self.path),
            str(self.work_s)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"ready\n"

    def gate(self, is_open):
        closed = Path(f"{self.path}.closed")
        if is_open:
            closed.unlink(missing_ok=True)
        else:
            closed.touch()

    def kill9(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def log(self):
        lines = [line.split() for line in self.path.read_text().splitlines()]
        return [(what, key, int(fence)) for what, key, fence in lines]

    def keys(self, what):
        return [key for name, key, _ in self.log() if name == what]


class Worker(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True

    def __init__(self, port, path, work_s):
        super().__init__(("127.0.0.1", port), Request)
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND)
        self.lock, self.work_s, self.closed = Lock(), work_s, Path(f"{path}.closed")
        self.done = {line.split()[1] for line in Path(path).read_text().splitlines()
            if line.startswith("done ")}

    def note(self, *words):
        os.write(self.file, (" ".join(words) + "\n").encode())

    def handle_error(self, request, client_address):
        pass  # a connection that was cut


class Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        key, fence = self.headers["Idempotency-Key"], self.headers["Once-Fence"]
        worker = self.server
        worker.note("begun", key, fence)
        time.sleep(worker.work_s)
        while worker.closed.exists():
            time.sleep(0.005)
        with worker.lock:
            if key not in worker.done:
                worker.note("done", key, fence)
                worker.done.add(key)
        time.sleep(worker.work_s)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words):
        pass


if __name__ == "__main__":
    server = Worker(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
    print("ready", flush=True)
    server.serve_forever()
