"""once serve as a person and a supervisor see it: start, reload, drain, faults."""
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
BINARY = os.environ.get("ONCE_BIN") or str(ROOT / "build/once")
WAIT_S = 30  # far above what anything takes; a hang is a failure, not a wait


class Served:
    """A server in a directory of its own."""

    def __init__(self, directory, *words, env=None):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ONCE_")}
        for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
            kept.pop(name, None)
        self.directory = directory
        self.log = directory / "log"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([BINARY, "serve", *words], cwd=directory, stderr=log,
                stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env={**kept, **(env or {})})
        self.lines = []

    def ready(self):
        """The four lines of facts; on a new store also a heading and the three pastes."""
        while len(self.lines) < 4 or (" 0 operations" in self.lines[2] and len(self.lines) < 8):
            line = self.process.stdout.readline().decode()
            assert line, self.log.read_text()
            self.lines.append(line.rstrip("\n"))
        self.url = re.search(r"https?://[^ ,]+", self.lines[1]).group()
        return self

    def send(self, number):
        self.process.send_signal(number)

    def end(self, number=signal.SIGTERM):
        self.send(number)
        return self.process.wait(timeout=WAIT_S)

    def events(self, name=None):
        found = [json.loads(line) for line in self.log.read_text().splitlines()
            if line.startswith("{")]
        return [event for event in found if name in (None, event["event"])]

    def await_event(self, name, count=1):
        limit = time.monotonic() + WAIT_S
        while len(self.events(name)) < count:
            assert time.monotonic() < limit, self.log.read_text()
            time.sleep(0.02)
        return self.events(name)[count - 1]

    def post(self, path, document, token=None, url=None):
        request = urllib.request.Request((url or self.url) + path, method="POST",
            data=json.dumps(document).encode(), headers={"Content-Type": "application/json"})
        if token is not None:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def begin(self, key, token=None, **more):
        return self.post("/v1/fences", {"scope": "s", "key": key, "payload": 1, **more}, token)


@pytest.fixture
def serve(tmp_path):
    started = []

    def start(*words, env=None, listen=True):
        listening = ["--listen", "127.0.0.1:0"] if listen else []
        started.append(Served(tmp_path, *listening, *words, env=env))
        return started[-1]
    yield start
    for server in started:
        if server.process.poll() is None:
            server.process.kill()
        server.process.wait()
        server.process.stdout.close()


def once(*words, cwd=None, stdin=None):
    return subprocess.run([BINARY, *words], cwd=cwd, input=stdin, capture_output=True, text=True,
        timeout=WAIT_S)


def make_token(*words):
    done = once("token", "new", "--json", *words)
    document = json.loads(done.stdout)
    return document["token"], document["config"]


# ---- the start -----------------------------------------------------------------------------------


def paste(lines, directory, shell="sh", **env):
    """Paste lines into one shell, in order: the documents that it prints."""
    done = subprocess.run([shell], input="\n".join(lines), cwd=directory, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, env={**os.environ, **env}, timeout=WAIT_S)
    assert done.returncode == 0, done.stdout
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_lines_of_a_start(serve, tmp_path):
    server = serve().ready()
    assert re.fullmatch(r"once \d+\.\d+\.\d+", server.lines[0])
    assert re.fullmatch(r"listening on http://127\.0\.0\.1:[1-9]\d+", server.lines[1])
    assert server.lines[2].startswith("store journal:./once-data: 0 operations, ")
    assert re.match(r"writes (buffered|direct|uring) \(.*\), a flush takes about", server.lines[3])
    assert paste(server.lines[5:6], tmp_path)[0]["decision"] == "first_seen"
    assert server.end() == 0
    assert server.process.stdout.read() == b""
    again = serve().ready()
    assert again.lines[2].startswith("store journal:./once-data: 1 operation, 1 in progress")
    assert again.end() == 0
    assert again.process.stdout.read() == b"", "a service that starts again prints no pastes"


@pytest.mark.parametrize("shell", ["sh", "bash", "zsh"])
def test_the_three_pastes_end_in_a_sealed_operation_and_its_replay(serve, tmp_path, shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not here")
    begin, seal, again = serve().ready().lines[5:]
    granted, waiting, sealed, replay = paste([begin, begin, seal, again], tmp_path, shell)
    assert (granted["decision"], waiting["decision"]) == ("first_seen", "in_progress")
    ends = datetime.fromisoformat(granted["lease_expires_at"].replace("Z", "+00:00"))
    assert ends - datetime.now(timezone.utc) > timedelta(minutes=10), "a reader takes that long"
    assert (sealed["status"], sealed["operation_id"]) == ("executed", granted["operation_id"])
    assert replay["decision"] == "duplicate_replayed"
    assert replay["operation_id"] == granted["operation_id"]
    assert replay["outcome"] == {"charge": "ch_1"}


def test_the_pastes_of_the_readme_are_those_that_are_printed(serve, tmp_path):
    server = serve().ready()
    text = (ROOT / "README.md").read_text().replace("http://127.0.0.1:7411", server.url)
    assert re.findall(r"^```sh\n(.*)\n```", text, re.M) == server.lines[5:]
    answers = [json.dumps(one, separators=(",", ":")) for one in paste(server.lines[5:], tmp_path)]
    shown = re.findall(r"^```json\n(.*)\n```", text, re.M)
    for answer, line in zip(answers, shown, strict=True):
        assert re.fullmatch(".*?".join(map(re.escape, line.split("…"))), answer), line


def test_each_start_on_a_terminal_has_a_key_that_is_not_used_yet(serve, tmp_path):
    first = serve().ready()
    assert '"key":"order-1"' in first.lines[5]
    paste(first.lines[5:], tmp_path)
    assert first.end() == 0
    document = json.loads(serve("--json").process.stdout.readline())
    assert '"key":"order-2"' in document["try"]


def test_the_start_as_json(serve):
    server = serve("--json")
    document = json.loads(server.process.stdout.readline())
    assert document["urls"][0].startswith("http://127.0.0.1:")
    assert document["store"] == "journal:./once-data" and "curl" in document["try"]


def test_several_addresses_and_sockets(serve, tmp_path):
    server = serve("--listen", "[::1]:0", "--listen", "unix:own.sock").ready()
    first, second, third = server.lines[1].removeprefix("listening on ").split(", ")
    assert second.startswith("http://[::1]:") and third == "unix:own.sock"
    for url in (first, second):
        with urllib.request.urlopen(url + "/livez", timeout=WAIT_S) as answer:
            assert answer.status == 200
    assert (tmp_path / "own.sock").stat().st_mode & 0o777 == 0o660
    assert server.end() == 0
    assert not (tmp_path / "own.sock").exists()


def test_the_directory_has_a_socket_for_its_owner(serve, tmp_path):
    server = serve().ready()
    path = tmp_path / "once-data/once.sock"
    assert path.stat().st_mode & 0o777 == 0o600
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
    assert server.end() == 0
    assert not path.exists()
    assert once("verify", cwd=tmp_path).returncode == 0


def test_a_path_too_long_for_a_socket_is_skipped_with_a_word(serve, tmp_path):
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    server = serve("--store", f"journal:{deep}/data").ready()
    assert server.await_event("no_own_socket")["level"] == "warn"
    assert server.begin("a")[0] == 201
    assert server.end() == 0


def test_a_second_instance_is_told_who_has_the_store(serve, tmp_path):
    server = serve().ready()
    done = once("serve", "--listen", "127.0.0.1:0", cwd=tmp_path)
    assert done.returncode == 69 and done.stdout == ""
    assert f"in use by pid {server.process.pid}" in done.stderr and "hint:" in done.stderr
    assert server.begin("a")[0] == 201


def test_an_address_in_use_is_69(serve, tmp_path):
    server = serve().ready()
    port = server.url.rsplit(":", 1)[1]
    done = once("serve", "--listen", f"127.0.0.1:{port}", "--store", "journal:./other",
        cwd=tmp_path)
    assert done.returncode == 69 and done.stdout == ""
    assert "hint: stop the process that listens there" in done.stderr
    assert f"127.0.0.1:{port}" in done.stderr
    assert server.begin("a")[0] == 201


def test_a_public_address_without_auth_is_refused_before_anything_is_opened(tmp_path):
    done = once("serve", "--listen", "0.0.0.0:0", cwd=tmp_path)
    assert done.returncode == 78
    assert "without auth" in done.stderr and "once token new" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_public_address_with_auth_asks_for_the_token(serve, tmp_path):
    token, line = make_token("--tenant", "acme", "--rights", "execute")
    (tmp_path / "once.yaml").write_text(f"listen: 0.0.0.0:0\nauth:\n  tokens:\n    {line}\n")
    server = serve("--config", "once.yaml", listen=False).ready()
    url = server.url.replace("0.0.0.0", "127.0.0.1")
    pastes = [line.replace(server.url, url) for line in server.lines[5:]]
    documents = paste(pastes, tmp_path, ONCE_TOKEN=token)
    assert [one.get("decision") for one in documents] == ["first_seen", "sealed",
        "duplicate_replayed"]
    assert server.begin("a")[0] == 401
    assert server.begin("a", token)[0] == 201
    assert server.await_event("no_tls")["level"] == "warn"


def test_a_config_error_is_78_with_its_place(tmp_path):
    (tmp_path / "once.yaml").write_text("lisen: 127.0.0.1:7411\n")
    done = once("serve", "--config", "once.yaml", cwd=tmp_path)
    assert done.returncode == 78
    assert done.stderr.startswith("once.yaml:1:1: unknown key 'lisen'\n")
    assert not (tmp_path / "once-data").exists()
    assert once("serve", "--config", "-", cwd=tmp_path).returncode == 64


def test_a_store_that_is_none_is_69_or_78(tmp_path):
    (tmp_path / "file").write_text("x")
    done = once("serve", "--listen", "127.0.0.1:0", "--store", "journal:./file", cwd=tmp_path)
    assert done.returncode in (65, 69) and "file" in done.stderr
    done = once("serve", "--listen", "127.0.0.1:0", "--store", "mongo://x", cwd=tmp_path)
    assert done.returncode == 78 and "mongo" in done.stderr


def test_limits_of_the_file_are_the_servers(serve, tmp_path):
    (tmp_path / "once.yaml").write_text("limits: {body_bytes_max: 1KiB, keys_max: 1}\n")
    server = serve("--config", "once.yaml").ready()
    assert server.begin("a", x_fill="x" * 2000)[0] == 413
    assert server.begin("a")[0] == 201
    status, problem = server.begin("b")
    assert status == 503 and "keys_max" in problem["detail"], problem
    assert problem["code"] == "limit_reached", problem


# ---- reload --------------------------------------------------------------------------------------


def test_a_reload_changes_tokens_and_limits(serve, tmp_path):
    first, first_line = make_token("--tenant", "acme", "--rights", "execute")
    second, second_line = make_token("--tenant", "acme", "--rights", "execute")
    config = tmp_path / "once.yaml"
    config.write_text(f"auth:\n  tokens:\n    {first_line}\n")
    server = serve("--config", "once.yaml").ready()
    assert (server.begin("a", first)[0], server.begin("b", second)[0]) == (201, 401)
    config.write_text(f"auth:\n  tokens:\n    {second_line}\n")
    server.send(signal.SIGHUP)
    server.await_event("reloaded")
    assert (server.begin("c", first)[0], server.begin("d", second)[0]) == (401, 201)
    assert server.end() == 0


def test_a_bad_reload_keeps_the_old_and_says_so_loudly(serve, tmp_path):
    token, line = make_token("--tenant", "acme", "--rights", "execute")
    config = tmp_path / "once.yaml"
    good = f"auth:\n  tokens:\n    {line}\n"
    config.write_text(good)
    server = serve("--config", "once.yaml").ready()
    for number, bad in enumerate(["auth: {tokens: []}\n", good + "lisen: x\n", None], 1):
        if bad is None:
            config.unlink()
        else:
            config.write_text(bad)
        server.send(signal.SIGHUP)
        assert server.await_event("reload_failed", number)["level"] == "error"
        assert server.begin(f"k{number}", token)[0] == 201
        assert server.begin(f"k{number}")[0] == 401
    faults = server.events("config_fault")
    assert [(fault.get("line"), fault["message"]) for fault in faults[1:2]] == [
        (4, "unknown key 'lisen'")]
    assert "cannot read the configuration" in faults[2]["message"]


def test_a_reload_says_what_needs_a_restart(serve, tmp_path):
    config = tmp_path / "once.yaml"
    config.write_text("store: journal:./a\n")
    server = serve("--config", "once.yaml").ready()
    config.write_text("store: journal:./b\nlimits: {duplicate_rate: 1}\n")
    server.send(signal.SIGHUP)
    assert server.await_event("restart_needed")["setting"] == "store"
    server.await_event("reloaded")
    assert not (tmp_path / "b").exists()


def test_a_reload_never_opens_a_public_address(serve, tmp_path):
    """The file may move to loopback and drop auth; the sockets stay where they are."""
    token, line = make_token("--tenant", "acme", "--rights", "execute")
    config = tmp_path / "once.yaml"
    config.write_text(f"listen: 0.0.0.0:0\nauth:\n  tokens:\n    {line}\n")
    server = serve("--config", "once.yaml", listen=False).ready()
    config.write_text("listen: 127.0.0.1:0\n")
    server.send(signal.SIGHUP)
    server.await_event("reload_failed")
    assert server.begin("a")[0] == 401
    assert server.begin("a", token)[0] == 201


def make_certificate(directory, serial):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
        "ec_paramgen_curve:P-256", "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days", "2",
        "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-set_serial",
        str(serial)], cwd=directory, check=True, capture_output=True)


def shown_certificate(server):
    host, port = server.url.removeprefix("https://").rsplit(":", 1)
    return ssl.get_server_certificate((host, int(port)))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not here")
def test_certificates_are_read_again_or_kept(serve, tmp_path):
    make_certificate(tmp_path, 1)
    server = serve("--tls-cert", "cert.pem", "--tls-key", "key.pem").ready()
    assert paste(server.lines[5:], tmp_path)[-1]["decision"] == "duplicate_replayed"
    first = shown_certificate(server)
    (tmp_path / "key.pem").write_text("nonsense")
    server.send(signal.SIGHUP)
    server.await_event("reload_failed")
    assert shown_certificate(server) == first
    make_certificate(tmp_path, 2)
    server.send(signal.SIGHUP)
    server.await_event("reloaded")
    assert shown_certificate(server) != first
    assert server.end() == 0
    (tmp_path / "key.pem").write_text("nonsense")
    broken = serve("--tls-cert", "cert.pem", "--tls-key", "key.pem")
    assert broken.process.wait(timeout=WAIT_S) in (69, 78)
    assert "key.pem" in broken.log.read_text()


# ---- the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_0_and_the_journal_is_whole(serve, tmp_path, number):
    server = serve().ready()
    for key in range(20):
        assert server.begin(f"k{key}")[0] == 201
    assert server.end(number) == 0
    assert [event["event"] for event in server.events()][-2:] == ["draining", "drained"]
    done = once("verify", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_end_does_not_wait_for_waiters(serve):
    """A duplicate that waits for a seal is told "in progress" when the server ends."""
    server = serve().ready()
    server.begin("a", lease="60s")
    answers = []
    waiter = threading.Thread(target=lambda: answers.append(server.begin("a", wait="50s")))
    waiter.start()
    limit = time.monotonic() + WAIT_S
    page = server.url + "/metrics"
    while b"\nonce_parked 1\n" not in urllib.request.urlopen(page, timeout=WAIT_S).read():
        assert time.monotonic() < limit, "it does not wait"
        time.sleep(0.02)
    begun = time.monotonic()
    assert server.end() == 0
    waiter.join(WAIT_S)
    assert time.monotonic() - begun < 10
    assert (answers[0][0], answers[0][1]["decision"]) == (202, "in_progress")


def half_a_request(server):
    host, port = server.url.removeprefix("http://").rsplit(":", 1)
    client = socket.create_connection((host, int(port)), timeout=WAIT_S)
    client.sendall(b"POST /v1/fences HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
        b"Expect: 100-continue\r\n\r\n")
    assert client.recv(65536).startswith(b"HTTP/1.1 100 ")  # the server has read its head
    client.sendall(b"{")
    return client


def test_drain_is_bounded(serve):
    server = serve("--drain", "1s").ready()
    with half_a_request(server):
        begun = time.monotonic()
        assert server.end() == 0
        assert 0.8 < time.monotonic() - begun < 10
    assert server.events("drained")[0]["level"] == "warn"


def test_a_second_signal_hurries(serve):
    server = serve("--drain", "60s").ready()
    with half_a_request(server):
        begun = time.monotonic()
        server.send(signal.SIGTERM)
        server.await_event("draining")
        time.sleep(0.3)
        assert server.process.poll() is None
        assert server.end() == 0
        assert time.monotonic() - begun < 20


def test_while_draining_nobody_new_is_let_in_but_what_is_in_flight_ends(serve):
    server = serve("--drain", "20s").ready()
    with half_a_request(server) as client:
        server.send(signal.SIGTERM)
        server.await_event("draining")
        with pytest.raises(OSError):
            for _ in range(1000):  # the log may be a moment ahead
                socket.create_connection(client.getpeername(), timeout=2).close()
                time.sleep(0.01)
        body = b'"scope":"s","key":"late","payload":1}'
        client.sendall(body + b" " * (99 - len(body)))
        answer = client.recv(65536)
        assert answer.startswith(b"HTTP/1.1 201 ") and b"onnection: close" in answer
        assert server.process.wait(timeout=WAIT_S) == 0


# ---- the supervisor ------------------------------------------------------------------------------


class Supervisor:
    """NOTIFY_SOCKET, as systemd has it."""

    def __init__(self, path):
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)
        self.socket.settimeout(WAIT_S)

    def next(self, wanted):
        """The next message with this in it."""
        while True:
            message = self.socket.recv(4096).decode()
            if wanted in message.split("\n"):
                return dict(line.split("=", 1) for line in message.split("\n"))


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_the_supervisor_hears_of_every_step(serve, tmp_path, kind):
    path = str(tmp_path / "notify") if kind == "path" else f"\0once-test-{os.getpid()}"
    supervisor = Supervisor(path)
    server = serve(env={"NOTIFY_SOCKET": path.replace("\0", "@")})
    message = supervisor.next("READY=1")
    server.ready()
    assert message["STATUS"].startswith("serving on 127.0.0.1:")
    assert server.begin("a")[0] == 201
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    server.send(signal.SIGHUP)
    assert int(supervisor.next("RELOADING=1")["MONOTONIC_USEC"]) >= before
    supervisor.next("READY=1")
    server.send(signal.SIGTERM)
    supervisor.next("STOPPING=1")
    assert server.process.wait(timeout=WAIT_S) == 0
    supervisor.socket.close()


def test_the_watchdog_is_fed_while_the_engine_answers(serve, tmp_path):
    supervisor = Supervisor(str(tmp_path / "notify"))
    server = serve(env={"NOTIFY_SOCKET": supervisor.path, "WATCHDOG_USEC": "8000000"}).ready()
    times = []
    for _ in range(3):
        supervisor.next("WATCHDOG=1")
        times.append(time.monotonic())
    gaps = [after - before for before, after in zip(times, times[1:])]
    assert max(gaps) < 8.0 and sum(gaps) > 0.3, gaps
    assert server.end() == 0
    supervisor.socket.close()


def test_nobody_is_told_when_the_watchdog_is_another_process(serve, tmp_path):
    supervisor = Supervisor(str(tmp_path / "notify"))
    server = serve(env={"NOTIFY_SOCKET": supervisor.path, "WATCHDOG_USEC": "200000",
        "WATCHDOG_PID": "1"}).ready()
    supervisor.next("READY=1")
    supervisor.socket.settimeout(1)
    with pytest.raises(TimeoutError):
        supervisor.next("WATCHDOG=1")
    assert server.end() == 0
    supervisor.socket.close()


# ---- a disk that fails or hangs ------------------------------------------------------------------

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static int is_bad(void)
{
    while (access(getenv("HANG_WHEN"), F_OK) == 0) {
        usleep(10000);
    }
    return access(getenv("FAIL_WHEN"), F_OK) == 0;
}

int fdatasync(int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    if (is_bad()) {
        errno = EIO;
        return -1;
    }
    return real(fd);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at)
{
    ssize_t (*real)(int, const void *, size_t, off64_t) =
        (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    if ((fcntl(fd, F_GETFL) & O_DSYNC) != 0 && is_bad()) {
        errno = EIO;
        return -1;
    }
    return real(fd, bytes, size, at);
}

int io_uring_submit(void *ring)
{
    int (*real)(void *) = (int (*)(void *))dlsym(RTLD_NEXT, "io_uring_submit");
    return is_bad() ? -EIO : real(ring);
}
"""

WAYS = ("buffered", "direct", "uring")


@pytest.fixture
def bad_disk(serve, tmp_path):
    """A server whose flushes fail or hang when a file says so."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler here")
    libraries = subprocess.run(["ldd", BINARY], capture_output=True, text=True).stdout
    sanitizers = re.findall(r"=> (\S*/lib[at]san\S*)", libraries)  # want to be the first library
    (tmp_path / "shim.c").write_text(SHIM)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", "shim.so", "shim.c", "-ldl"], cwd=tmp_path,
        check=True)

    def start(way="buffered", **env):
        store = f"journal:./once-data?write={way}"
        preload = " ".join([*sanitizers, str(tmp_path / "shim.so")])
        checks = json.loads(once("doctor", "--json", cwd=tmp_path).stdout)
        if any(check["check"] == f"flush {way}" and "not possible" in check["text"]
                for check in checks):
            pytest.skip(f"write={way} is not possible here")
        return serve("--store", store, env={"LD_PRELOAD": preload,
            "FAIL_WHEN": str(tmp_path / "fail"), "HANG_WHEN": str(tmp_path / "hang"), **env})
    return start


@pytest.mark.parametrize("way", WAYS)
def test_an_engine_that_stopped_ends_the_process_with_70(bad_disk, tmp_path, way):
    server = bad_disk(way).ready()
    assert server.begin("a")[0] == 201
    (tmp_path / "fail").touch()
    try:
        status, problem = server.begin("b")
        assert status >= 500 and problem["effect"] != "no", problem
        assert "once-data" not in problem["detail"], "it tells where the store is"
    except (urllib.error.URLError, ConnectionError):
        pass  # the journal's own writes met the fault first: it has ended, and nobody was answered
    assert server.process.wait(timeout=WAIT_S) == 70
    assert server.await_event("engine_stopped")["level"] == "error"
    (tmp_path / "fail").unlink()
    again = bad_disk(way).ready()
    assert again.begin("a")[1]["decision"] == "in_progress"


def test_the_watchdog_starves_while_the_disk_hangs(bad_disk, tmp_path):
    supervisor = Supervisor(str(tmp_path / "notify"))
    server = bad_disk(NOTIFY_SOCKET=supervisor.path, WATCHDOG_USEC="400000").ready()
    supervisor.next("WATCHDOG=1")
    (tmp_path / "hang").touch()
    asking = threading.Thread(target=lambda: server.begin("a"))
    asking.start()
    supervisor.socket.settimeout(1.5)
    with pytest.raises(TimeoutError):  # soon after the engine has got to the disk
        for _ in range(100):
            supervisor.next("WATCHDOG=1")
    (tmp_path / "hang").unlink()
    supervisor.socket.settimeout(WAIT_S)
    supervisor.next("WATCHDOG=1")
    asking.join(WAIT_S)
    assert server.end() == 0
    supervisor.socket.close()


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_answered_before_it_is_on_the_disk(bad_disk, tmp_path, way):
    """P2. A duplicate waits as well: what it would be told of could still be lost."""
    server = bad_disk(way).ready()
    sealed = server.begin("sealed")[1]
    path = f"/v1/fences/{sealed['operation_id']}/seal"
    (tmp_path / "hang").touch()
    answers = []
    asks = [lambda: server.begin("new"), lambda: server.begin("new"),
        lambda: server.post(path, {"fence": sealed["fence"], "status": "executed"})]
    threads = [threading.Thread(target=lambda ask=ask: answers.append(ask())) for ask in asks]
    for thread in threads:
        thread.start()
        time.sleep(0.5)
    assert answers == []
    (tmp_path / "hang").unlink()
    for thread in threads:
        thread.join(WAIT_S)
    assert sorted(status for status, _ in answers) == [200, 201, 202]
    assert server.end() == 0


def test_its_threads_are_named_as_the_manual_says(make_server):
    server = make_server()
    tasks = Path(f"/proc/{server.process.pid}/task").iterdir()
    names = {(task / "comm").read_text().strip() for task in tasks}
    manual = (ROOT / "docs" / "operate.md").read_text()
    assert {"once-loop", "once-engine", "once-journal"} <= names
    for name in names - {"once"}:
        assert f"`{name}`" in manual or name.startswith("iou-"), name  # the kernel's, of a ring
