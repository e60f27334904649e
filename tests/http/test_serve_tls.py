"""TLS of the HTTP server: versions, protocols, reload, and clients that stand still."""
import os
import ssl
import subprocess

import pytest

from serve_help import GET, Server, post


def make_certificate(folder, name, subject="localhost"):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
        "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={subject}",
        "-addext", "subjectAltName=DNS:localhost", "-keyout", folder / f"{name}.key",
        "-out", folder / f"{name}.pem"], check=True, capture_output=True)


def context(folder, *names):
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for name in names:
        made.load_verify_locations(folder / f"{name}.pem")
    made.set_alpn_protocols(["h2", "http/1.1"])
    return made


def tls_server(folder, **settings):
    return Server(["cert", folder / "a.pem", "key", folder / "a.key", "listen", "127.0.0.1:0"],
        **settings)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    make_certificate(folder, "first", "first")
    make_certificate(folder, "second", "second")
    return folder


@pytest.fixture
def folder(tmp_path, certificates):
    for name in ("pem", "key"):
        (tmp_path / f"a.{name}").write_bytes((certificates / f"first.{name}").read_bytes())
    return tmp_path


def test_tls_carries_everything(folder):
    with tls_server(folder, loops=2) as server:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            trust = context(folder, "a")
            trust.minimum_version = trust.maximum_version = version
            with server.connect(tls=trust) as client:
                assert client.socket.selected_alpn_protocol() == "http/1.1"
                client.send(GET * 100)
                for _ in range(100):
                    assert client.answer().body == b"ok"
                body = os.urandom(1 << 20)
                client.send(post("/echo", body) + GET)  # two threads must not share a session
                assert client.answer().body == body
                assert client.answer().body == b"ok"
                client.send(b"GET /big?3000000 HTTP/1.1\r\nHost: a\r\n\r\n")
                client.send(b"GET /later?20 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                assert len(client.answer().body) == 3000000
                assert client.answer().body == b"later"
                assert client.ends()


def test_an_old_tls_is_refused(folder):
    with tls_server(folder) as server:
        old = subprocess.run(["openssl", "s_client", "-tls1_1", "-cipher", "ALL:@SECLEVEL=0",
            "-connect", server.addresses[0]], input="", capture_output=True, text=True)
        assert old.returncode != 0
        assert "alert protocol version" in old.stderr


def test_a_protocol_we_do_not_speak_is_refused(folder):
    with tls_server(folder) as server:
        only = context(folder, "a")
        only.set_alpn_protocols(["h2"])
        with pytest.raises(ssl.SSLError, match="(?i)no application protocol"):
            server.connect(tls=only)


def test_plain_http_on_the_tls_port_is_closed(folder):
    with tls_server(folder) as server:
        with server.connect() as client:
            client.send(GET)
            assert b"HTTP" not in client.more()
            assert client.more() == b""
        server.wait_for(open=0, requests=0)


def test_a_handshake_that_never_ends_is_closed(folder):
    with tls_server(folder, head_ms=300) as server, server.connect() as client:
        client.send(b"\x16\x03\x01")
        assert client.ends()


def test_a_tls_client_that_does_not_read_is_cut_off(folder):
    with tls_server(folder, write_ms=500) as server:
        with server.connect(tls=context(folder, "a"), receive_bytes=4096) as client:
            client.send(b"GET /big?30000000 HTTP/1.1\r\nHost: a\r\n\r\n")
            server.wait_for(open=1)
            server.wait_for(open=0)


def test_a_reload_takes_the_new_certificate_or_keeps_the_old(folder, certificates):
    both = context(certificates, "first", "second")

    def subject(server):
        with server.connect(tls=both) as client:
            client.send(GET)
            assert client.answer().status == 200
            return dict(pair[0] for pair in client.socket.getpeercert()["subject"])["commonName"]

    with tls_server(folder) as server, server.connect(tls=both) as old:
        assert subject(server) == "first"
        (folder / "a.pem").write_bytes((certificates / "second.pem").read_bytes())
        assert server.ask("reload").startswith("kept cannot load key")
        assert subject(server) == "first"
        (folder / "a.key").write_bytes((certificates / "second.key").read_bytes())
        assert server.ask("reload") == "reloaded"
        assert subject(server) == "second"
        old.send(GET)
        assert old.answer().status == 200
        (folder / "a.pem").write_text("nothing of the kind")
        assert server.ask("reload").startswith("kept cannot load certificate")
        assert subject(server) == "second"


def test_a_certificate_that_does_not_load_is_no_server(folder):
    (folder / "a.key").unlink()
    with pytest.raises(RuntimeError, match="cannot load key"):
        tls_server(folder)
