"""The programs on the pages for clients without an SDK, run as they stand against a real server.

Go need not be on the machines that run the tests: without it its program is skipped.
"""
import hashlib
import http.client
import http.server
import json
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from once_server import LONG  # also finds what is shared in tests/
import golang

PAGES = Path(__file__).resolve().parent.parent.parent / "docs/clients"
# What the program is called, and what has to be there to run it.
CLIENTS = {"curl": ("charge.sh", ["sh", "curl"]), "python": ("charge.py", ["python3"]),
    "node": ("charge.mjs", ["node"]), "go": ("charge.go", ["go"])}
# How a provider is when nobody knows. Both are unknown to the program, one takes seconds longer.
MOODS = ["silent", "broken"] if LONG else ["broken"]
TIMEOUT_S = 120  # far above what they take; a hang is a failure, not a wait


def program(page):
    text = (PAGES / f"{page}.md").read_text()
    blocks = re.findall(r"^```(?:sh|python|js|go)\n(.*?)^```", text, re.M | re.S)
    assert len(blocks) == 1, f"{page}.md has one program"
    return blocks[0]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.owner.answer(self, body)

    def reply(self, status, body, **fields):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def hang_up(self):
        self.close_connection = True


class Listener:
    """Something that answers POSTs, until the end of the test."""

    def __init__(self):
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0),
            type("Bound", (Handler,), {"owner": self}))
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def end(self):
        self.http.shutdown()
        self.http.server_close()


class Provider(Listener):
    """Takes money. One that takes a key charges once for each; otherwise once for each call."""

    def __init__(self):
        self.charges, self.calls, self.mood, self.takes_key = [], 0, "well", True
        super().__init__()

    def answer(self, handler, body):
        self.calls += 1
        charge = handler.headers["Idempotency-Key"], json.loads(body)["cents"]
        if not (self.takes_key and charge in self.charges):
            self.charges.append(charge)
        if self.mood == "silent":
            handler.hang_up()
        elif self.mood == "broken":
            handler.reply(500, b'{"error":"who knows"}')
        elif self.mood == "strict":
            handler.reply(402, b'{"error":"no money"}')
        else:
            # With members that have names of Once's own: an outcome is nested in its answers.
            handler.reply(201, b'{"id":"ch_%d","status":"succeeded","detail":"a, b"}'
                % len(self.charges))


class Rough(Listener):
    """A way to Once on which the first begin is turned away and the first seal's answer is lost."""

    def __init__(self, url):
        self.once, self.seen = urlsplit(url), []
        super().__init__()

    def answer(self, handler, body):
        kind = handler.path.rsplit("/", 1)[1]
        is_first = kind not in self.seen
        self.seen.append(kind)
        if kind == "fences" and is_first:
            handler.reply(503, b'{"code":"overloaded","effect":"no"}', Retry_After="1")
            return
        onward = http.client.HTTPConnection(self.once.hostname, self.once.port, timeout=TIMEOUT_S)
        onward.request("POST", handler.path, body, {"Content-Type": "application/json"})
        answer = onward.getresponse()
        text = answer.read()
        onward.close()
        if kind == "seal" and is_first:
            handler.hang_up()
        else:
            handler.reply(answer.status, text)


@pytest.fixture
def provider():
    listener = Provider()
    yield listener
    listener.end()


@pytest.fixture(params=list(CLIENTS))
def client(request, server, provider, tmp_path, tmp_path_factory):
    """client.start(key, cents) and client(key, cents): the page's program."""
    made = tmp_path_factory.getbasetemp() / "go"
    made.mkdir(exist_ok=True)
    return Client(request.param, server, provider, tmp_path, made)


class Client:
    def __init__(self, page, server, provider, place, made):
        self.server, self.provider, self.place, self.made = server, provider, place, made
        self.once_url = None
        name, needed = CLIENTS[page]
        for each in needed:
            if shutil.which(each) is None:
                pytest.skip(f"{each} is not here")
        self.path, self.words = place / name, [needed[0], name]
        self.write(program(page))

    def write(self, text):
        self.path.write_text(text)
        if self.path.suffix == ".go":  # go run would not pass its exit code on
            built = self.made / ("charge-" + hashlib.sha256(text.encode()).hexdigest()[:16])
            self.words = [str(built)]
            if not built.exists():  # the same program is compiled once
                self.compile(built)

    def compile(self, built):
        env = {**os.environ, **golang.cache(), "GOFLAGS": ""}
        with golang.turn():
            for step in (["vet", self.path.name], ["build", "-o", built, self.path.name]):
                done = subprocess.run(["go", *step], cwd=self.place, env=env, text=True,
                    capture_output=True, timeout=TIMEOUT_S)
                assert done.returncode == 0, done.stderr

    def leave_out_takeover(self):
        """As the page says for a provider that takes no key."""
        member = r',\s*\\?"?on_unknown\\?"?: ?\\?"takeover\\?"'
        text, count = re.subn(member, "", self.path.read_text())
        assert count == 1
        self.write(text)

    def start(self, key, cents):
        env = {name: value for name, value in os.environ.items() if not name.startswith("ONCE_")}
        env.update(ONCE_URL=self.once_url or self.server.url, PROVIDER_URL=self.provider.url)
        return subprocess.Popen([*self.words, key, str(cents)], cwd=self.place, env=env, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __call__(self, key="order-7", cents=1200):
        return finished(self.start(key, cents))

    def operation(self, key="order-7"):
        status, _, page = self.server.request("GET", f"/v1/operations?scope=charge&key={key}")
        assert status == 200 and len(page["operations"]) == 1
        return page["operations"][0]


def finished(process):
    try:
        out, err = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    return process.returncode, out, err


def test_it_is_charged_once_and_every_duplicate_gets_the_first_answer(client, provider):
    code, out, err = client()
    assert (code, err) == (0, "") and "ch_1" in out
    assert client() == (0, out, "")
    assert provider.charges == [("order-7", 1200)]
    operation = client.operation()
    assert (operation["status"], operation["effect_id"]) == ("executed", "ch_1")


def test_many_at_once_charge_once(client, provider):
    ends = [finished(process) for process in [client.start("order-7", 1200) for _ in range(6)]]
    assert {code for code, _, _ in ends} <= {0, 75}
    assert len({out for code, out, _ in ends if code == 0}) == 1
    assert provider.charges == [("order-7", 1200)]


def test_a_refusal_is_final(client, provider):
    provider.mood = "strict"
    first = client()
    assert first[0] == 1
    provider.mood = "well"
    assert client() == first
    assert len(provider.charges) == 1
    assert client.operation()["status"] == "failed"


def test_what_did_not_start_is_released_and_may_be_tried_again(client, provider):
    nobody = Provider()
    nobody.end()
    client.provider = nobody
    assert client()[0] == 69
    assert client.operation()["status"] == "released"
    client.provider = provider
    assert client()[0] == 0
    assert provider.charges == [("order-7", 1200)]


@pytest.mark.parametrize("mood", MOODS)
def test_what_nobody_knows_is_asked_again_of_a_provider_that_takes_a_key(client, provider, mood):
    provider.mood = mood
    code, out, err = client()
    operation = client.operation()
    assert (code, out, operation["status"]) == (75, "", "unknown")
    assert operation["operation_id"] in err
    provider.mood = "well"
    code, out, _ = client()
    assert code == 0 and "ch_1" in out
    assert client()[:2] == (0, out)
    assert (provider.calls, provider.charges) == (2, [("order-7", 1200)])
    operation = client.operation()
    assert (operation["status"], operation["attempt"]) == ("executed", 2)


@pytest.mark.parametrize("mood", MOODS)
def test_without_takeover_what_nobody_knows_is_held_until_somebody_looked(client, provider, mood):
    client.leave_out_takeover()
    provider.mood, provider.takes_key = mood, False
    code, out, err = client()
    operation = client.operation()
    assert (code, out) == (75, "") and operation["operation_id"] in err
    assert operation["status"] == "unknown"
    provider.mood = "well"
    assert client()[0] == 75
    assert len(provider.charges) == 1
    status, _, _ = client.server.request("POST",
        f"/v1/operations/{operation['operation_id']}/resolve", {"status": "executed",
        "effect_id": "ch_1", "outcome": {"id": "ch_1", "status": "succeeded", "detail": "a, b"},
        "reason": "it is there"})
    assert status == 200
    code, out, _ = client()
    assert code == 0 and "ch_1" in out
    assert len(provider.charges) == 1


def test_another_amount_under_the_same_key_is_refused(client, provider):
    assert client()[0] == 0
    code, out, _ = client(cents=1300)
    assert (code, out) == (65, "")
    assert provider.charges == [("order-7", 1200)]


def test_a_rough_way_to_once_charges_once(client, provider):
    rough = Rough(client.server.url)
    client.once_url = rough.url
    code, out, _ = client()
    rough.end()
    assert code == 0 and "ch_1" in out
    assert rough.seen == ["fences", "fences", "seal", "seal"]
    assert provider.charges == [("order-7", 1200)]
    assert client.operation()["status"] == "executed"


def test_every_page_says_the_same_about_the_answers():
    parts = {(PAGES / f"{page}.md").read_text().split("## What the answers mean\n")[1]
        for page in CLIENTS}
    assert len(parts) == 1
    assert program("go").startswith("// charge")
