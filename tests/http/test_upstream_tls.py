"""The upstream client over TLS: whom it trusts, and that nothing is sent to anybody else."""
import socket
import ssl
import subprocess
import threading
import time

import pytest

from upstream_help import BODY, OK, Driver, Origin, answers, says

FAR = "20400101000000Z"


def run(folder, *words):
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def make_key(folder, name):
    run(folder, "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{name}.key")


def make_ca(folder):
    """What signs, with just enough of a database for the dates to be ours."""
    (folder / "index.txt").write_text("")
    (folder / "serial").write_text("1000\n")
    (folder / "ca.conf").write_text("\n".join([
        "[ca]", "default_ca = ours", "[ours]", "database = index.txt", "serial = serial",
        "new_certs_dir = .", "default_md = sha256", "policy = any", "copy_extensions = copy",
        "unique_subject = no", "[any]", "commonName = supplied", ""]))
    make_key(folder, "ca")
    run(folder, "req", "-x509", "-new", "-key", "ca.key", "-days", "3650", "-subj", "/CN=test CA",
        "-out", "ca.pem")


def sign(folder, name, names, start="20200101000000Z", end=FAR):
    make_key(folder, name)
    run(folder, "req", "-new", "-key", f"{name}.key", "-subj", f"/CN={name}", "-addext",
        f"subjectAltName={names}", "-out", f"{name}.csr")
    run(folder, "ca", "-batch", "-config", "ca.conf", "-cert", "ca.pem", "-keyfile", "ca.key",
        "-startdate", start, "-enddate", end, "-in", f"{name}.csr", "-out", f"{name}.pem")


@pytest.fixture(scope="module", name="folder")
def fixture_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    make_ca(folder)
    sign(folder, "good", "DNS:localhost,IP:127.0.0.1")
    sign(folder, "wildcard", "DNS:*.localhost")
    sign(folder, "other", "DNS:other.example,IP:127.0.0.9")
    sign(folder, "expired", "DNS:localhost,IP:127.0.0.1", end="20210101000000Z")
    sign(folder, "early", "DNS:localhost,IP:127.0.0.1", start="20390101000000Z")
    make_key(folder, "self")
    run(folder, "req", "-x509", "-new", "-key", "self.key", "-days", "3650", "-subj",
        "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", "self.pem")
    return folder


def context(folder, name, **settings):
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    made.set_alpn_protocols(["http/1.1"])
    for key, value in settings.items():
        setattr(made, key, value)
    return made


@pytest.fixture(name="origin")
def fixture_origin(folder):
    with Origin(answers(), context=context(folder, "good")) as origin:
        yield origin


def test_a_certificate_that_is_good_by_address(folder, origin):
    with Driver(origin, ca=folder / "ca.pem") as driver:
        for number in range(5):
            assert driver.ask(number, method="POST", body=BODY).startswith("end 2")
        stats = driver.stats()
        assert (stats["connects"], stats["reused"], stats["idle"]) == (1, 4, 1)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_and_by_name(folder, version):
    names = []
    made = context(folder, "good", minimum_version=version, maximum_version=version)
    made.sni_callback = lambda sock, name, _: names.append(name)
    with Origin(answers(), context=made) as origin, \
            Driver(f"https://localhost:{origin.port}", ca=folder / "ca.pem") as driver:
        assert driver.ask(1, method="POST", body=BODY).startswith("end 2")
        assert driver.ask(2, method="POST", body=BODY).startswith("end 2")
    assert names == ["localhost"]


@pytest.mark.parametrize("name, why", [
    ("self", "self-signed certificate"),
    ("expired", "certificate has expired"),
    ("early", "certificate is not yet valid"),
    ("other", "IP address mismatch")])
def test_one_that_is_not_verified_gets_no_byte(folder, name, why):
    with Origin(answers(), context=context(folder, name)) as origin, \
            Driver(origin, ca=folder / "ca.pem") as driver:
        event = driver.ask(method="POST", body=BODY)
        assert event.startswith("failed NOT_SENT UNREACHABLE")
        assert why in event
        assert origin.received == b""
        assert driver.stats()["down"] == 1


@pytest.mark.parametrize("name", ["other", "wildcard"])
def test_a_name_that_is_not_the_servers_gets_no_byte(folder, name):
    with Origin(answers(), context=context(folder, name)) as origin, \
            Driver(f"https://localhost:{origin.port}", ca=folder / "ca.pem") as driver:
        event = driver.ask(method="POST", body=BODY)
        assert event.startswith("failed NOT_SENT UNREACHABLE")
        assert "hostname mismatch" in event
        assert origin.received == b""


def test_the_systems_authorities_do_not_know_ours(origin):
    with Driver(origin) as driver:
        event = driver.ask(method="POST", body=BODY)
        assert event.startswith("failed NOT_SENT UNREACHABLE")
        assert "unable to get local issuer certificate" in event
        assert origin.received == b""


def test_one_bad_of_two_is_gone_round(folder):
    with Origin(answers(), context=context(folder, "self")) as bad, \
            Origin(answers(), context=context(folder, "good")) as good, \
            Driver(bad, good, ca=folder / "ca.pem") as driver:
        for number in range(4):
            assert driver.ask(number, method="POST", body=BODY).startswith("end 2")
        assert bad.received == b""
        assert good.received.count(b"POST ") == 4


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_an_old_version_is_not_spoken(folder):
    old = context(folder, "good", minimum_version=ssl.TLSVersion.TLSv1,
        maximum_version=ssl.TLSVersion.TLSv1_1)
    old.set_ciphers("ALL:@SECLEVEL=0")
    with Origin(answers(), context=old) as origin, Driver(origin, ca=folder / "ca.pem") as driver:
        assert driver.ask().startswith("failed NOT_SENT UNREACHABLE")
        assert origin.received == b""


def test_one_that_speaks_no_tls(folder):
    def script(peer):
        peer.sock.recv(1)
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with Origin(script) as origin, \
            Driver(f"https://127.0.0.1:{origin.port}", ca=folder / "ca.pem") as driver:
        event = driver.ask(method="POST", body=BODY)
        assert event.startswith("failed NOT_SENT UNREACHABLE")
        assert "wrong version number" in event


@pytest.mark.parametrize("end", ["close", "reset"])
def test_one_that_leaves_during_the_handshake(folder, end):
    def script(peer):
        peer.sock.recv(10)
        if end == "reset":
            peer.reset()
    with Origin(script) as origin, \
            Driver(f"https://127.0.0.1:{origin.port}", ca=folder / "ca.pem") as driver:
        event = driver.ask(method="POST", body=BODY)
        assert event.startswith("failed NOT_SENT UNREACHABLE")
        assert origin.count == 2


def test_one_that_stands_still_during_the_handshake(folder):
    with Origin(lambda peer: time.sleep(2)) as origin, \
            Driver(f"https://127.0.0.1:{origin.port}", ca=folder / "ca.pem") as driver:
        event = driver.ask(method="POST", body=BODY, connect=300)
        assert event.startswith("failed NOT_SENT TIMEOUT")
        assert origin.received == b""


@pytest.mark.parametrize("data, told", [
    (b"", "failed SENT BROKEN"),
    (b"HTTP/1.1 200 OK\r\nConte", "failed SENT BROKEN"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", "failed HEAD BROKEN"),
    (b"garbage\r\n\r\n", "failed SENT MALFORMED"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "end 5"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "end 5")])
@pytest.mark.parametrize("end", ["close", "reset"])
def test_the_points_of_an_exchange(folder, data, told, end):
    with Origin(says(data, end), context=context(folder, "good")) as origin, \
            Driver(origin, ca=folder / "ca.pem") as driver:
        assert driver.ask(method="POST", body=BODY).startswith(told)
        assert origin.received.count(b"POST ") == 1


@pytest.mark.parametrize("is_announced", [True, False])
def test_a_body_until_the_close_is_whole_only_if_tls_says_so(folder, is_announced):
    def script(peer):
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\n\r\nhello")
        time.sleep(0.05)
        if is_announced:
            peer.sock.unwrap()
        else:
            peer.sock.shutdown(socket.SHUT_WR)
    with Origin(script, context=context(folder, "good")) as origin, \
            Driver(origin, ca=folder / "ca.pem") as driver:
        told = driver.ask()
        assert told.startswith("end 5" if is_announced else "failed HEAD BROKEN")


def test_one_closed_while_idle(folder):
    def script(peer):
        peer.request()
        peer.send(OK)
    with Origin(script, context=context(folder, "good")) as origin, \
            Driver(origin, ca=folder / "ca.pem") as driver:
        for number in range(3):
            assert driver.ask(number, method="POST", body=BODY).startswith("end 2")
            driver.wait_stats(open=0)


def test_long_bodies_both_ways(folder):
    def script(peer):
        while True:
            request = peer.request()
            if request is None:
                return
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(request[1]))
            peer.send(request[1])
    with Origin(script) as plain, Origin(script, context=context(folder, "good")) as origin, \
            Driver(plain) as first, Driver(origin, ca=folder / "ca.pem") as driver:
        told = first.ask(1, method="POST", body=5000000)
        assert told.startswith("end 5000000")
        assert driver.ask(1, method="POST", body=5000000) == told
        assert driver.ask(2, method="POST", body=5000000) == told
        assert origin.count == 1


def test_pause_and_go_on(folder):
    script = answers(b"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n" + b"a" * 5000000)
    with Origin(script, context=context(folder, "good")) as origin, \
            Driver(origin, ca=folder / "ca.pem") as driver:
        for number, at in enumerate(["head", "piece"]):
            driver.start(number, pause_at=at)
            driver.line(f"{number} head 200")
            time.sleep(0.3)
            driver.say(f"go_on {number}")
            assert driver.last(number).startswith("end 5000000")


def test_a_streamed_body_with_backpressure(folder):
    gate = threading.Event()
    bodies = []

    def script(peer):
        gate.wait(10)
        bodies.append(peer.request()[1])
        peer.send(OK)
        peer.wait_end()
    with Origin(script, context=context(folder, "good")) as origin, \
            Driver(origin, ca=folder / "ca.pem") as driver:
        driver.start(method="POST", streamed=1, chunked=1)
        told = []
        for _ in range(9):
            driver.say("put 1 1000000")
            told.append(driver.line("1 put"))
            if told[-1] == "1 put wait":
                gate.set()
                driver.line("1 drained")
        driver.say("put_end 1")
        assert driver.last().startswith("end 2")
        assert "1 put wait" in told
        assert len(bodies[0]) == 9000000


@pytest.mark.parametrize("ca, why", [("no-such-file.pem", "cannot load CA certificates"),
    ("ca.conf", "cannot load CA certificates")])
def test_authorities_that_do_not_load(folder, ca, why):
    with Driver("https://127.0.0.1:1", ca=folder / ca) as driver:
        assert driver.first.startswith("refused ")
        assert why in driver.first
