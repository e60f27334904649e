"""Real peers: nginx in front and behind, curl, Python's own clients, and Node."""
import http.client
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

import servers
from once_gateway import Peer, request_for

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
needs_nginx = pytest.mark.skipif(NGINX is None, reason="nginx is not installed (tools/deps test)")
START_S = 20
CONFIG = """
daemon off;
master_process off;
worker_processes 1;
pid {dir}/nginx.pid;
error_log {dir}/error.log;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {dir}/body;
    proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi;
    scgi_temp_path {dir}/scgi;
    client_max_body_size 50m;
    underscores_in_headers on;
    upstream behind {{ {servers} keepalive 8; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://behind;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            {more}
        }}
    }}
}}
"""


class Nginx:
    """One nginx that passes everything on, until the end of the test."""

    def __init__(self, directory, ports, more=""):
        directory.mkdir()
        self.directory = directory
        self.port = servers.free_port()
        behind = "".join(f"server 127.0.0.1:{port} max_fails=0;" for port in ports)
        (directory / "nginx.conf").write_text(CONFIG.format(dir=directory, port=self.port,
            servers=behind, more=more))
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = subprocess.Popen([NGINX, "-p", directory, "-c", directory / "nginx.conf",
            "-e", directory / "error.log"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        until = time.monotonic() + START_S
        while not self._is_ready():
            assert self.process.poll() is None and time.monotonic() < until, self.errors()
            time.sleep(0.02)

    def _is_ready(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        except OSError:
            return False

    def errors(self):
        path = self.directory / "error.log"
        return path.read_text() if path.exists() else ""

    def send(self, *words, **how):
        with Peer(("127.0.0.1", self.port)) as peer:
            peer.send(request_for(*words, **how))
            return peer.read(words[0])

    def stop(self):
        self.process.terminate()
        self.process.wait(START_S)


@pytest.fixture
def make_nginx(tmp_path):
    made = []

    def make(*ports, more=""):
        made.append(Nginx(tmp_path / f"nginx{len(made)}", ports, more))
        return made[-1]

    yield make
    for one in made:
        one.stop()


DOES = [None, "status=201&chunked=1&size=9000", "status=204", "body=binary&size=3000000",
    "status=404", "interim=1", "close=1", "until_close=1&size=100"]


@needs_nginx
@pytest.mark.parametrize("do", DOES)
def test_with_nginx_in_front(gateway, origin, make_nginx, do):
    nginx = make_nginx(gateway.port)
    first = nginx.send("POST", "/pay?a=1", {"amount": 1}, key="k", do=do)
    again = nginx.send("POST", "/pay?a=1", {"amount": 1}, key="k")
    assert first.decision == "first_seen" and again.is_replay
    assert (again.status, again.body) == (first.status, first.body)
    assert first.body == origin.answers["k"] and origin.effects["k"] == 1
    assert again.fields["Idempotency-Key"] == "k" and "Last-Modified" in again.fields
    assert nginx.send("POST", "/pay?a=1", {"amount": 2}, key="k").status == 422
    assert nginx.send("GET", "/read").json["target"] == "/read"
    large = json.dumps({"text": "x" * 5_000_000})
    assert nginx.send("POST", "/large", large, key="l").status == 200
    assert nginx.send("POST", "/large", large, key="l").is_replay


@needs_nginx
@pytest.mark.parametrize("do", [do for do in DOES if do != "interim=1"])  # which nginx cannot read
def test_with_nginx_behind(make_gateway, origin, make_nginx, do):
    nginx = make_nginx(origin.port)
    gateway = make_gateway(upstream=nginx.url)
    first = gateway.post("k", do=do)
    again = gateway.post("k")
    assert first.decision == "first_seen" and again.is_replay
    assert (again.status, again.body) == (first.status, first.body)
    assert first.body == origin.answers["k"] and origin.effects["k"] == 1
    large = json.dumps({"text": "x" * 5_000_000})
    assert gateway.post("l", large, path="/large").status == 200
    assert gateway.post("l", large, path="/large").is_replay
    assert gateway.send("GET", "/read", do="body=binary&size=2000000").body == \
        (bytes(range(256)) * 7813)[:2000000]


@needs_nginx
def test_a_502_of_nginx_behind_is_unknown(make_gateway, origin, make_nginx):
    """nginx says 502 for an upstream of its own that broke, whatever it did before: a 5xx as any
    other."""
    nginx = make_nginx(origin.port, more="proxy_next_upstream off;")
    gateway = make_gateway(upstream=nginx.url, routes=[
        {"match": "POST /typed", "on_status": {502: "release"}}, {"match": "POST /**"}])
    assert gateway.post("k", do="fault=reset_after").status == 502
    assert gateway.status_of("k") == "unknown" and origin.effects["k"] == 1
    assert gateway.post("k").status == 409 and origin.effects["k"] == 1
    gateway.post("t", path="/typed", do="fault=reset_before")
    assert gateway.status_of("t") == "released"


@needs_nginx
def test_an_nginx_in_front_that_retries_by_itself_runs_nothing_twice(make_gateway, origin,
        make_nginx):
    """It sends a POST again to the next server after a timeout, as it was told to. Both servers are
    the gateway."""
    gateway = make_gateway()
    nginx = make_nginx(gateway.port, gateway.port, more="proxy_read_timeout 300ms;"
        "proxy_next_upstream error timeout http_502 http_504 non_idempotent;")
    answer = nginx.send("POST", "/pay", {"amount": 1}, key="k", do="after_ms=900")
    assert answer.status in (409, 504), answer  # in progress, or nginx gave up
    gateway.wait_status("k", "executed")
    again = nginx.send("POST", "/pay", {"amount": 1}, key="k")
    assert again.is_replay and origin.effects["k"] == 1


@needs_nginx
def test_with_nginx_on_both_sides(make_gateway, origin, make_nginx):
    gateway = make_gateway(upstream=make_nginx(origin.port).url)
    front = make_nginx(gateway.port)
    for number in range(50):
        first = front.send("POST", "/pay", {"n": number}, key=f"k{number}")
        again = front.send("POST", "/pay", {"n": number}, key=f"k{number}")
        assert again.is_replay and again.body == first.body
    assert all(origin.effects[f"k{number}"] == 1 for number in range(50))


def curl(*words):
    done = subprocess.run(["curl", "-sS", "--max-time", "30", *words], capture_output=True)
    assert done.returncode == 0, done
    return done.stdout


def test_with_curl(gateway, origin, tmp_path):
    url = f"{gateway.url}/pay"
    words = ["-H", "Idempotency-Key: k", "-H", "Content-Type: application/json", "-d", '{"a":1}']
    first = curl(*words, "-D", tmp_path / "first", url)
    again = curl(*words, "-D", tmp_path / "again", url)
    assert first == again == origin.answers["k"]
    assert "idempotent-replayed: true" in (tmp_path / "again").read_text().lower()
    (tmp_path / "large").write_bytes(b"x" * 3_000_000)
    large = ["-H", "Idempotency-Key: l", "--data-binary", f"@{tmp_path}/large", url]
    assert curl(*large) == curl(*large)  # with Expect: 100-continue
    chunked = ["-H", "Idempotency-Key: c", "-H", "Transfer-Encoding: chunked", *words[2:], url]
    assert curl(*chunked) == curl(*chunked)
    assert json.loads(curl(f"{gateway.url}/read"))["method"] == "GET"
    assert curl("-I", f"{gateway.url}/read").startswith(b"HTTP/1.1 200")
    old = ["--http1.0", *words[:1], "Idempotency-Key: o", *words[2:], url]
    assert curl(*old) == curl(*old)
    assert [origin.effects[key] for key in ("k", "l", "c", "o")] == [1, 1, 1, 1]
    assert b"idempotency_key_missing" in curl("-d", "x=1", url)


def test_with_curl_and_its_own_retries(gateway, origin):
    """Its --retry sends the same key again, after a 5xx; 409 is not among what it retries."""
    origin.does["k"] = lambda request: "status=503" if len(origin.seen("k")) < 3 else None
    out = curl("--retry", "5", "--retry-delay", "1", "-H", "Idempotency-Key: k", "-d", "a=1",
        f"{gateway.url}/pay")
    assert json.loads(out.splitlines()[-1])["key"] == "k" and len(origin.seen("k")) == 3


def test_with_pythons_http_client(gateway, origin):
    client = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    bodies = []
    for turn in range(4):
        client.request("POST", "/pay", body=b'{"a":1}', headers={"Idempotency-Key": "k",
            "Content-Type": "application/json"})
        answer = client.getresponse()
        bodies.append(answer.read())
        assert answer.status == 200
        assert answer.headers.get("Idempotent-Replayed") == ("true" if turn else None)
    client.request("POST", "/pay", body=iter([b"a" * 100, b"b" * 100]), encode_chunked=True,
        headers={"Idempotency-Key": "c", "Transfer-Encoding": "chunked"})
    assert client.getresponse().read() == origin.answers["c"]
    client.request("GET", "/stream", headers={"X-Do": "chunked=1&size=100000"})
    assert len(client.getresponse().read()) > 100000
    client.close()
    assert len(set(bodies)) == 1 and origin.effects["k"] == origin.effects["c"] == 1


def test_with_pythons_urllib(gateway, origin):
    def send(body, key="k"):
        request = urllib.request.Request(f"{gateway.url}/pay", data=body, method="POST",
            headers={"Idempotency-Key": key, "Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read(), answer.headers.get("Idempotent-Replayed")
    first = send(b'{"a":1}')
    assert send(b'{"a":1}') == (first[0], "true") and first[1] is None
    with pytest.raises(urllib.error.HTTPError) as conflict:
        send(b'{"a":2}')
    assert conflict.value.code == 422
    assert json.loads(conflict.value.read())["code"] == "idempotency_conflict"
    assert origin.effects["k"] == 1


NODE = r"""
const http = require("http");
const base = process.argv[2];
async function main() {
  const out = {fetch: [], http: []};
  for (let i = 0; i < 3; i++) {
    const answer = await fetch(base + "/pay", {method: "POST", body: JSON.stringify({a: 1}),
      headers: {"Idempotency-Key": "f", "Content-Type": "application/json"}});
    out.fetch.push([answer.status, answer.headers.get("idempotent-replayed"), await answer.text()]);
  }
  const agent = new http.Agent({keepAlive: true, maxSockets: 1});
  const sockets = new Set();
  for (let i = 0; i < 20; i++) {
    await new Promise((resolve, reject) => {
      const key = "h" + (i % 4);
      const request = http.request(base + "/pay", {method: "POST", agent, headers:
        {"Idempotency-Key": key}}, (answer) => {
        let text = "";
        sockets.add(answer.socket.localPort);
        answer.setEncoding("utf8");
        answer.on("data", (piece) => { text += piece; });
        answer.on("end", () => {
          out.http.push([key, answer.statusCode, answer.headers["idempotent-replayed"] || null,
            text]);
          resolve();
        });
      });
      request.on("error", reject);
      request.end("body of " + key);
    });
  }
  agent.destroy();
  out.sockets = sockets.size;
  const stream = await fetch(base + "/read", {headers: {"X-Do": "chunked=1&size=200000"}});
  out.read = (await stream.text()).length;
  console.log(JSON.stringify(out));
}
main();
"""


def test_with_node(gateway, origin, tmp_path):
    if shutil.which("node") is None:
        pytest.skip("node is not installed (tools/deps test)")
    (tmp_path / "client.cjs").write_text(NODE)
    done = subprocess.run(["node", tmp_path / "client.cjs", gateway.url], capture_output=True,
        text=True, timeout=60)
    assert done.returncode == 0, done
    out = json.loads(done.stdout)
    assert [each[:2] for each in out["fetch"]] == [[200, None], [200, "true"], [200, "true"]]
    assert {each[2] for each in out["fetch"]} == {origin.answers["f"].decode()}
    for place, (key, status, replayed, text) in enumerate(out["http"]):
        assert status == 200 and text == origin.answers[key].decode()
        assert replayed == (None if place < 4 else "true")
    assert out["sockets"] == 1 and out["read"] > 200000
    assert all(count == 1 for count in origin.effects.values()) and len(origin.effects) == 5
