"""The life of a gateway: its store, its signals, and what the janitor settles."""
import signal
import socket
import ssl
import subprocess
import time
from urllib.parse import unquote

import pytest
import stores
from once_gateway import DUPLICATES_FREE, request_for
from once_server import BINARY, until

WAIT_S = 30
RECONCILE = {"get": "/by-key/{key}", "executed": [200], "not_executed": [404], "every": "200ms",
    "quiet": "0s", "every_max": "1s"}



# --- One store ------------------------------------------------------------------------------------

@stores.journal_only("one process at a time has it")
def test_a_second_gateway_on_one_store_is_refused_with_the_pid_of_the_first(gateway, origin):
    done = subprocess.run([BINARY, "gateway", "--listen", "127.0.0.1:0", "--upstream", origin.url,
        "--store", gateway.store], capture_output=True, text=True, timeout=60)
    assert done.returncode == 69, done
    assert f"in use by pid {gateway.pid}" in done.stderr and done.stdout == "", done
    assert gateway.post("k").status == 200
    gateway.stop()
    gateway.restart()
    assert gateway.post("k").is_replay


@stores.journal_only("one process at a time has it")
def test_a_server_and_a_gateway_on_one_store_are_refused_too(gateway):
    done = gateway.cli("serve", "--listen", "127.0.0.1:0", "--store", gateway.store)
    assert done.returncode == 69 and f"in use by pid {gateway.pid}" in done.stderr, done


def test_two_gateways_with_stores_of_their_own_work_side_by_side(make_gateway, origin):
    one, two = make_gateway(), make_gateway()
    for gateway in (one, two):
        assert gateway.post("k").decision == "first_seen"
    assert one.post("k").is_replay and two.post("k").is_replay and origin.effects["k"] == 2


def test_an_address_in_use_is_refused(gateway, origin, tmp_path):
    done = subprocess.run([BINARY, "gateway", "--listen", f"127.0.0.1:{gateway.port}", "--upstream",
        origin.url, "--store", f"journal:{tmp_path}/data"], capture_output=True, text=True,
        timeout=60)
    assert done.returncode == 69 and str(gateway.port) in done.stderr, done


@pytest.mark.parametrize("words, code", [(["--upstream", "ftp://x"], 78),
    (["--upstream", "http://127.0.0.1:1/path"], 78), ([], 78),
    (["--upstream", "http://127.0.0.1:1", "--profile", "nobody"], 78)])
def test_a_wrong_setting_is_refused_at_the_start(words, code, tmp_path):
    done = subprocess.run([BINARY, "gateway", "--listen", "127.0.0.1:0", "--store",
        f"journal:{tmp_path}/data", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode in (64, code) and done.stderr.startswith("once: "), done
    assert not (tmp_path / "data").exists()


# --- Signals --------------------------------------------------------------------------------------

def test_a_reload_changes_routes_without_losing_what_runs(make_gateway, origin, make_origin):
    other = make_origin()
    gateway = make_gateway(routes=[{"match": "POST /pay"}])
    first = gateway.post("k")
    with gateway.peer() as held, gateway.peer() as idle:
        idle.send(request_for("GET", "/x"))
        assert idle.read().status == 200
        held.send(request_for("POST", "/pay", {"amount": 1}, "held", do="hold=1"))
        origin.wait_for("held")
        gateway.rewrite(routes=[{"match": "POST /pay", "profile": "guardia", "upstream": other.url},
            {"match": "POST /new", "profile": "adr007"}])
        gateway.signal(signal.SIGHUP)
        until(lambda: b"errors" in gateway.send("POST", "/pay", {}).body, "not reloaded")
        idle.send(request_for("POST", "/new", {"a": 1}))  # an old connection, the new routes
        assert idle.read().fields["Idempotency-Key"]
        origin.let_go("held")
        assert held.read().status == 200  # what ran goes on as it began
    assert origin.effects["held"] == 1
    key = "01a1e208-ee46-7000-8001-6285421d0208"
    assert gateway.post(key).status == 200 and other.effects[key] == 1
    gateway.rewrite(routes=[{"match": "POST /pay"}])
    gateway.signal(signal.SIGHUP)
    until(lambda: gateway.post("k").status == 200, "not reloaded")
    again = gateway.post("k")
    assert again.is_replay and again.body == first.body


def test_a_reload_of_a_wrong_file_leaves_everything_as_it_was(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /pay", "profile": "adr007"}])
    gateway.rewrite(routes=[{"match": "POST /pay", "profile": "guardia", "window": "90d"}])
    gateway.signal(signal.SIGHUP)
    until(lambda: "reload_failed" in gateway.stderr(), "nothing was said")
    answer = gateway.send("POST", "/pay", {})
    assert answer.status == 200 and answer.fields["Idempotency-Key"]
    assert gateway.process.poll() is None


def test_reloads_under_load_lose_nothing(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /pay", "window": "24h"}])
    with gateway.peer() as peer:
        for number in range(60):
            gateway.rewrite(routes=[{"match": "POST /pay", "window": f"{number % 5 + 1}h"}])
            gateway.signal(signal.SIGHUP)
            peer.send(request_for("POST", "/pay", {"a": 1}, f"k{number}", do="after_ms=5"))
            assert peer.read().status == 200
    assert all(origin.effects[f"k{number}"] == 1 for number in range(60))


def test_a_drain_lets_what_is_in_flight_end(make_gateway, origin):
    gateway = make_gateway()
    peers = []
    for number in range(5):
        peer = gateway.peer()
        peer.send(request_for("POST", "/pay", {"amount": 1}, f"k{number}", do="hold=1"))
        origin.wait_for(f"k{number}")
        peers.append(peer)
    streaming = gateway.peer()
    streaming.send(request_for("GET", "/held", do="hold_body=1&size=5000"))
    streaming.head()
    gateway.signal(signal.SIGTERM)

    def refused():
        try:
            socket.create_connection(("127.0.0.1", gateway.port), 1).close()
            return False
        except OSError:
            return True

    until(refused, "it takes connections still")
    assert gateway.process.poll() is None
    origin.let_go()
    answers = [peer.read() for peer in peers]
    assert all(answer.status == 200 and answer.decision == "first_seen" for answer in answers)
    assert len(streaming._exactly(5000)) == 5000
    for peer in peers + [streaming]:
        peer.close()
    assert gateway.process.wait(WAIT_S) == 0
    gateway.restart()
    for number, answer in enumerate(answers):
        again = gateway.post(f"k{number}")
        assert again.is_replay and again.body == answer.body
    assert origin.total == 5


def test_a_drain_lets_a_detached_operation_end(make_gateway, origin):
    gateway = make_gateway()
    with gateway.peer() as peer:
        peer.send(request_for("POST", "/pay", {"amount": 1}, "k", do="after_ms=700"))
        origin.wait_for("k")
        peer.reset()
    time.sleep(0.1)
    gateway.stop()
    gateway.restart()
    assert gateway.post("k").is_replay and origin.effects["k"] == 1


def test_a_drain_that_takes_too_long_leaves_an_honest_answer(make_gateway, origin):
    gateway = make_gateway("--drain", "300ms")
    with gateway.peer() as peer:
        peer.send(request_for("POST", "/pay", {"amount": 1}, "k", do="hold=1"))
        origin.wait_for("k")
        gateway.stop()
    gateway.restart()
    assert gateway.status_of("k") in ("in_progress", "unknown")
    assert gateway.post("k").status == 409 and origin.effects["k"] == 1
    origin.let_go()


# --- Reconciling ----------------------------------------------------------------------------------

@pytest.fixture
def reconciling(make_gateway):
    return make_gateway(routes=[{"match": "POST /**", "on_unknown": "reconcile",
        "reconcile": RECONCILE, "timeout": {"connect": "1s", "first_byte": "1s", "total": "2s"}}],
        limits=DUPLICATES_FREE)


def lookups(origin, key):
    return [request for request in list(origin.requests) if request.method == "GET" and
        unquote(request.path) == f"/by-key/{key}"]


def test_the_janitor_settles_what_happened(reconciling, origin):
    assert reconciling.post("k", do="fault=reset_after").json["effect"] == "unknown"
    reconciling.wait_status("k", "executed")
    again = reconciling.post("k")
    assert again.is_replay and again.status == 200 and again.body == origin.answers["k"]
    assert origin.effects["k"] == 1 and lookups(origin, "k")
    asked = lookups(origin, "k")[0]
    assert asked.method == "GET" and not asked.body


def test_the_janitor_frees_what_did_not_happen(reconciling, origin):
    assert reconciling.post("k", do="fault=reset_before").json["effect"] == "unknown"
    reconciling.wait_status("k", "released")
    again = reconciling.post("k")
    assert again.status == 200 and again.decision == "first_seen" and origin.effects["k"] == 1


@pytest.mark.parametrize("word", [(500, b"broken"), (202, b"{}"), (301, b""), (403, b"no")])
def test_what_says_neither_stays_unknown_and_is_asked_again(reconciling, origin, word):
    origin.lookups["k"] = word
    assert reconciling.post("k", do="fault=reset_after").json["effect"] == "unknown"
    until(lambda: len(lookups(origin, "k")) >= 3, "it is not asked again")
    assert reconciling.status_of("k") == "unknown"
    answer = reconciling.post("k")
    assert answer.status == 409 and answer.decision == "held_unknown"
    del origin.lookups["k"]
    reconciling.wait_status("k", "executed")
    assert reconciling.post("k").is_replay and origin.effects["k"] == 1


def test_the_pauses_between_lookups_grow(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /**", "on_unknown": "reconcile",
        "reconcile": {**RECONCILE, "every": "1s", "every_max": "1h"}}])
    origin.lookups["k"] = (500, b"")
    gateway.post("k", do="fault=reset_after")
    until(lambda: len(lookups(origin, "k")) >= 4, "it is not asked again")
    times = [request.at for request in lookups(origin, "k")]
    pauses = [after - before for before, after in zip(times, times[1:])]
    assert sum(pauses) > 0.6 * (1 + 2 + 4), pauses  # a busy machine only adds to them


def test_a_duplicate_asks_at_once(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /**", "on_unknown": "reconcile",
        "reconcile": {**RECONCILE, "every": "1h", "every_max": "1h"}}])
    origin.lookups["k"] = origin.lookups["free"] = (500, b"")
    gateway.post("k", do="fault=reset_after")
    gateway.post("free", do="fault=reset_before")
    answer = gateway.post("k")
    assert answer.status == 409 and answer.decision == "held_unknown"
    assert gateway.post("free").status == 409
    del origin.lookups["k"], origin.lookups["free"]
    answer = gateway.post("k")
    assert answer.is_replay and answer.body == origin.answers["k"] and origin.effects["k"] == 1
    answer = gateway.post("free")
    assert answer.status == 200 and answer.decision == "first_seen" and origin.effects["free"] == 1


def test_what_a_kill_left_unknown_is_reconciled(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /**", "on_unknown": "reconcile", "lease": "1s",
        "reconcile": RECONCILE, "timeout": {"connect": "1s", "first_byte": "1s", "total": "1s"}}],
        limits=DUPLICATES_FREE)
    with gateway.peer() as peer:
        peer.send(request_for("POST", "/pay", {"amount": 1}, "k/with space%2F?", do="hold=1")
            .replace(b"k/with space%2F?", b'"k/with space%2F?"'))
        origin.wait_for("k/with space%2F?")
        gateway.kill9()
    origin.let_go()
    gateway.restart()
    gateway.wait_status("k/with space%2F?", "executed")
    answer = gateway.post('"k/with space%2F?"')
    assert answer.is_replay and answer.body == origin.answers["k/with space%2F?"]
    assert origin.effects["k/with space%2F?"] == 1


def test_a_lookup_has_the_operations_key_and_its_own_authorization(make_gateway, origin, tmp_path):
    (tmp_path / "auth").write_text("Bearer of-the-gateway\n")
    gateway = make_gateway(routes=[{"match": "POST /**", "on_unknown": "reconcile",
        "reconcile": {**RECONCILE, "authorization_file": str(tmp_path / "auth")}}])
    gateway.post("k", do="fault=reset_after", headers={"Authorization": "Bearer of-the-client"})
    until(lambda: lookups(origin, "k"), "it is not asked")
    assert lookups(origin, "k")[0].all("Authorization") == ["Bearer of-the-gateway"]


# --- TLS to the upstream --------------------------------------------------------------------------

@pytest.fixture
def certificate(tmp_path):
    def make(name, *names):
        cert, key = tmp_path / f"{name}.pem", tmp_path / f"{name}.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
            "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext",
            "subjectAltName=" + ",".join(names), "-keyout", key, "-out", cert], check=True,
            capture_output=True)
        return cert, key
    return make


def test_an_https_upstream_is_verified(make_gateway, make_origin, certificate):
    cert, key = certificate("good", "IP:127.0.0.1")
    other, _ = certificate("other", "IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    one = make_origin(tls=context)
    gateway = make_gateway(upstream=one.url, gateway={"ca_file": str(cert)})
    assert gateway.post("k", do="size=300000").status == 200 and gateway.post("k").is_replay
    bad = make_gateway(upstream=one.url, gateway={"ca_file": str(other)})
    answer = bad.post("k")
    assert answer.status == 502 and answer.json["effect"] == "no"
    assert bad.status_of("k") == "released" and one.effects["k"] == 1
