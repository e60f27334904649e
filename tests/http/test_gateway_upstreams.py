"""The upstreams of a gateway across reloads: which of them are shared, kept, made anew and closed.

What makes an upstream is its URLs, the content of its CA file and the limits of its connections.
Where one of these changed, SIGHUP has to make a new one; calls under way finish on the old one.
"""
import os
import socket
import ssl
import subprocess
import threading
import time

import pytest
from test_gateway_metrics import figures

HANGUP = 1


@pytest.fixture
def certificate(tmp_path):
    """certificate(name) -> PEM of one that signs itself, and its key."""
    def make(name):
        cert, key = tmp_path / f"{name}.pem", tmp_path / f"{name}.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
            "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext",
            "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert], check=True,
            capture_output=True)
        return cert, key
    return make


@pytest.fixture
def secure(make_origin, certificate):
    """(origin, its certificate, a different certificate)"""
    cert, key = certificate("good")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return make_origin(tls=context), cert, certificate("other")[0]


@pytest.fixture
def ca_file(tmp_path):
    """ca_file(content) -> its path; again, with a different content: it is replaced."""
    def write(cert):
        path, whole = tmp_path / "ca.pem", tmp_path / "ca.new"
        whole.write_bytes(cert.read_bytes())
        whole.replace(path)
        return str(path)
    return write


def hang_up(gateway):
    wanted = gateway.stderr().count('"reloaded"') + 1
    gateway.signal(HANGUP)
    until(lambda: gateway.stderr().count('"reloaded"') >= wanted, "not reloaded")


def until(is_so, what, timeout_s=30):
    end = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def figure(gateway, name):
    """The sum over all upstreams."""
    return sum(value for key, value in figures(gateway).items() if key[0] == name)


# --- Trust ---


def test_a_ca_that_was_withdrawn_is_not_trusted_after_a_reload(make_gateway, secure, ca_file):
    origin, good, other = secure
    gateway = make_gateway(upstream=origin.url,
        gateway={"ca_file": ca_file(good), "idle": "1h"})
    assert gateway.post("before").status == 200
    ca_file(other)
    hang_up(gateway)
    refused = gateway.post("after")
    assert (refused.status, refused.json["effect"]) == (502, "no"), refused
    assert origin.effects["after"] == 0 and gateway.status_of("after") == "released"


def test_a_ca_that_was_rotated_is_trusted_after_a_reload(make_gateway, secure, ca_file):
    origin, good, other = secure
    gateway = make_gateway(upstream=origin.url, gateway={"ca_file": ca_file(other)})
    assert gateway.post("k").status == 502
    ca_file(good)
    hang_up(gateway)
    assert gateway.post("k").status == 200 and origin.effects["k"] == 1


def test_a_bundle_that_is_no_bundle_leaves_the_old_one_in_use(make_gateway, secure, ca_file):
    origin, good, other = secure
    gateway = make_gateway(upstream=origin.url, gateway={"ca_file": ca_file(good)})
    other.write_text("no certificate\n")
    ca_file(other)
    gateway.signal(HANGUP)
    until(lambda: "reload" in gateway.stderr(), "not heard")
    assert gateway.post("k").status == 200


@pytest.mark.parametrize("trusted_first", [True, False])
def test_two_routes_with_one_url_and_two_ca_files_trust_their_own(make_gateway, secure,
        trusted_first):
    origin, good, other = secure
    routes = [{"match": "POST /trusted", "ca_file": str(good)},
        {"match": "POST /strange", "ca_file": str(other)}]
    gateway = make_gateway(upstream=origin.url, gateway={"ca_file": str(other)},
        routes=routes if trusted_first else routes[::-1])
    for number in range(2):
        assert gateway.post(f"a{number}", path="/strange").status == 502
        assert gateway.post(f"a{number}", path="/trusted").status == 200
    assert {one.path for one in origin.requests} == {"/trusted"}


def test_two_lists_that_begin_with_one_url_lead_to_their_own(make_gateway, make_origin):
    """The first of both cannot be reached, so that the second one counts."""
    first, second = make_origin(), make_origin()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dead = f"http://127.0.0.1:{listener.getsockname()[1]}"
    gateway = make_gateway(upstream=first.url, routes=[
        {"match": "POST /first", "upstream": [dead, first.url]},
        {"match": "POST /second", "upstream": [dead, second.url]}])
    for number in range(3):
        assert gateway.post(f"a{number}", path="/first").status == 200
        assert gateway.post(f"a{number}", path="/second").status == 200
    assert [{one.path for one in each.requests} for each in (first, second)] == [
        {"/first"}, {"/second"}]


# --- Connections ---


def test_a_reload_that_changes_nothing_keeps_the_connections(make_gateway, secure):
    origin, good, _ = secure
    gateway = make_gateway(upstream=origin.url, gateway={"ca_file": str(good), "idle": "1h"},
        more={"loops": 1})
    for number in range(4):
        assert gateway.post(f"k{number}").status == 200
        hang_up(gateway)
    assert {one.connection for one in origin.requests} == {origin.requests[0].connection}


def test_a_reload_changes_how_long_connections_are_kept(make_gateway, origin):
    gateway = make_gateway(gateway={"idle": "100ms"}, more={"loops": 1})
    gateway.post("a")
    time.sleep(1)
    gateway.post("b")
    gateway.rewrite(gateway={"idle": "1h"}, more={"loops": 1})
    hang_up(gateway)
    gateway.post("c")
    time.sleep(1)
    gateway.post("d")
    on = [origin.wait_for(key).connection for key in "abcd"]
    assert on[0] != on[1] != on[2] == on[3]


def test_a_reload_changes_how_many_connections_there_may_be(make_gateway, origin):
    gateway = make_gateway(gateway={"connections_max": 1}, more={"loops": 1})
    def hold(keys):
        threads = [threading.Thread(target=gateway.post, args=(key,),
            kwargs={"do": "hold=1"}) for key in keys]
        for thread in threads:
            thread.start()
        return threads
    threads = hold(["a", "b"])
    until(lambda: figure(gateway, "once_upstream_waiting") == 1, "both were sent")
    gateway.rewrite(gateway={"connections_max": 8}, more={"loops": 1})
    hang_up(gateway)
    threads += hold(["c", "d"])
    origin.wait_for("c")
    origin.wait_for("d")
    assert figure(gateway, "once_upstream_waiting") == 1  # on the old one
    until(lambda: [origin.let_go()] and not any(one.is_alive() for one in threads), "held")
    assert [origin.effects[key] for key in "abcd"] == [1] * 4


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core, so one loop")
def test_a_loop_whose_connections_are_in_use_counts_as_busy(make_gateway, origin):
    gateway = make_gateway(gateway={"connections_max": 6}, more={"loops": 0})
    threads = []
    def hold(numbers):
        for number in numbers:
            threads.append(threading.Thread(target=gateway.post, args=(f"k{number}",),
                kwargs={"do": "hold=1"}))
            threads[-1].start()
    def is_serving(loops):
        return figure(gateway, "once_http_loops_serving") == loops
    hold(range(5))  # 83 % of them
    for number in range(5):
        origin.wait_for(f"k{number}")
    for _ in range(20):
        assert is_serving(1)
        time.sleep(0.05)
    hold([5])
    origin.wait_for("k5")
    until(lambda: is_serving(2), "the next ones would wait")
    hold(range(6, 12))
    until(lambda: sum(bool(origin.seen(f"k{number}")) for number in range(12)) > 6,
        "no connection of the other loop is used")
    until(lambda: [origin.let_go()] and not any(one.is_alive() for one in threads), "held")
    assert [origin.effects[f"k{number}"] for number in range(12)] == [1] * 12
    until(lambda: is_serving(1), "it stays wide")


def test_idle_0_keeps_no_connection(make_gateway, origin):
    gateway = make_gateway(gateway={"idle": "0s"}, more={"loops": 1})
    for number in range(5):
        assert gateway.post(f"k{number}").status == 200
        assert gateway.send("GET", "/x").status == 200
    assert len({one.connection for one in origin.requests}) == 10
    until(lambda: figure(gateway, "once_upstream_connections") == 0, "one is kept")


def test_a_call_under_way_finishes_on_the_upstream_it_began_on(make_gateway, secure, ca_file):
    origin, good, other = secure
    gateway = make_gateway(upstream=origin.url, gateway={"ca_file": ca_file(good)})
    answers = []
    thread = threading.Thread(target=lambda: answers.append(gateway.post("k", do="hold=1")))
    thread.start()
    origin.wait_for("k")
    ca_file(other)
    hang_up(gateway)
    assert gateway.post("new").status == 502
    origin.let_go()
    thread.join()
    assert answers[0].status == 200 and gateway.status_of("k") == "executed"


def test_an_upstream_that_is_not_used_any_more_is_closed_and_stays_counted(make_gateway, secure,
        ca_file):
    origin, good, other = secure
    gateway = make_gateway(upstream=origin.url, gateway={"ca_file": ca_file(good), "idle": "1h"})
    for number in range(5):
        assert gateway.post(f"k{number}").status == 200
        assert figure(gateway, "once_upstream_connections") == 1
        ca_file(other)
        hang_up(gateway)
        until(lambda: figure(gateway, "once_upstream_connections") == 0, "it stays open")
        ca_file(good)
        hang_up(gateway)
        assert figure(gateway, "once_upstream_calls_total") == number + 1
    gateway.stop()
