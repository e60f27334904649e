"""Corners of HTTP on the way through the gateway: odd but good requests, hostile answers, other
addresses."""
import json
import os
import socket
import ssl
import subprocess

import pytest
from once_gateway import Peer, request_for


def test_a_client_that_says_no_more_still_gets_its_answer(gateway, origin):
    with gateway.peer() as peer:
        peer.send(request_for("POST", "/pay", {"amount": 1}, "k", do="after_ms=200&size=200000"))
        peer.socket.shutdown(socket.SHUT_WR)
        answer = peer.read()
        assert answer.status == 200 and answer.body == origin.answers["k"]
    assert gateway.post("k").is_replay


@pytest.mark.parametrize("head, target", [
    (b"OPTIONS * HTTP/1.1\r\nHost: a\r\n", "*"),
    (b"GET http://a/x?y=1 HTTP/1.1\r\nHost: a\r\n", "/x?y=1"),
    (b"GET http://a HTTP/1.1\r\nHost: a\r\n", "/"),
    (b"GET /a/../b HTTP/1.1\r\nHost: a\r\n", "/a/../b"),
    (b"GET //a HTTP/1.1\r\nHost: a\r\n", "//a")])
def test_a_target_goes_on_as_it_came(gateway, origin, head, target):
    with gateway.peer() as peer:
        peer.send(head + b"\r\n")
        assert peer.read().status == 200
    assert origin.requests[0].target == target


def test_a_read_may_have_a_body(gateway, origin):
    assert gateway.send("GET", "/search", {"q": "x" * 100}).status == 200
    assert json.loads(bytes(origin.requests[0].body)) == {"q": "x" * 100}


def test_a_fenced_request_needs_no_body(gateway, origin):
    with gateway.peer() as peer:
        for key in ("a", "a", "b"):
            peer.send(b"POST /x HTTP/1.1\r\nHost: a\r\nIdempotency-Key: " + key.encode() +
                b"\r\n\r\n")
            assert peer.read().status == 200
        peer.send(b"DELETE /x HTTP/1.1\r\nHost: a\r\nIdempotency-Key: d\r\n\r\n")
        assert peer.read().status == 200
    assert origin.effects == {"a": 1, "b": 1, "d": 1}


def test_a_key_in_a_trailer_is_none(gateway, origin):
    with gateway.peer() as peer:
        peer.send(b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
            b"Trailer: Idempotency-Key\r\n\r\n2\r\nhi\r\n0\r\nIdempotency-Key: k\r\n\r\n")
        assert peer.read().status == 400
    assert origin.bytes_seen == 0


def test_a_refused_request_leaves_its_connection_usable(gateway, origin):
    with gateway.peer() as peer:
        for number in range(5):
            peer.send(request_for("POST", "/pay", {"n": number}))
            assert peer.read().status == 400
            peer.send(request_for("POST", "/pay", {"n": number}, f"k{number}"))
            assert peer.read().status == 200


@pytest.mark.parametrize("do", ["fields=5000", "field=Bad%20Name:1", "field=X-Fold:a%0D%0A+b",
    "field=X-Nul:a%00b", "field=Transfer-Encoding:gzip", "field=Content-Length:5",
    "field=X-Lf:a%0Ab:c", "status=99", "status=1000",
    pytest.param("field=X-Big:" + "x" * 200_000, id="too large")])
def test_an_answer_that_has_two_readings_is_unknown(gateway, origin, do):
    """What the upstream answered cannot be told; that it was asked is certain."""
    origin.does["k"] = do
    answer = gateway.post("k")
    assert answer.status == 504 and answer.json["effect"] == "unknown", answer
    assert gateway.status_of("k") == "unknown"
    assert gateway.post("k").decision == "held_unknown" and origin.effects["k"] == 1
    assert gateway.post("other").status == 200


def test_fields_that_are_too_much_to_keep_do_not_lose_the_answer(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /**", "replay_headers": ["*"]}])
    fields = "&".join(f"field=X-{number}:{'v' * 900}" for number in range(15))
    first = gateway.post("k", do=f"status=201&field=Location:/pay/1&{fields}")
    again = gateway.post("k")
    assert first.status == 201 and first.fields["X-14"] == "v" * 900
    assert again.is_replay and (again.status, again.body) == (201, first.body)
    assert again.fields["Location"] == "/pay/1" and origin.effects["k"] == 1


def test_values_that_are_no_utf8_are_replayed(gateway, origin):
    with gateway.peer() as peer:
        peer.send(request_for("POST", "/pay", {"a": 1}, "k", do="field=ETag:%C3%A9%FF-x"))
        first = peer.read()
        peer.send(request_for("POST", "/pay", {"a": 1}, "k"))
        again = peer.read()
    assert again.is_replay and again.all("ETag") == first.all("ETag") != []


def test_a_routes_tenant_is_its_own(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /a", "tenant": "acme"}, {"match": "POST /b"}])
    gateway.post("k", path="/a")
    gateway.post("k", path="/b")
    assert [each["scope"] for each in gateway.operations()] == ["POST /b"]
    assert [each["scope"] for each in gateway.operations(tenant="acme")] == ["POST /a"]


def test_a_slow_body_is_408_and_nothing_happened(make_gateway, origin):
    gateway = make_gateway(gateway={}, limits={"body_timeout": "300ms"})
    whole = request_for("POST", "/pay", {"more": "x" * 50_000}, "k")
    with gateway.peer() as peer:
        peer.send(whole[:1000])
        assert peer.read().status == 408
    assert origin.bytes_seen == 0 and gateway.operations() == []
    gateway.stop()


def test_an_upstream_with_few_connections_is_waited_for(make_gateway, origin):
    gateway = make_gateway("--loops", "1", gateway={"connections_max": 2})
    peers = [gateway.peer() for _ in range(20)]
    for number, peer in enumerate(peers):
        peer.send(request_for("POST", "/pay", {"a": 1}, f"k{number}", do="after_ms=20"))
    assert [peer.read().status for peer in peers] == [200] * 20
    for peer in peers:
        peer.close()
    assert origin.connections <= 2 and set(origin.effects.values()) == {1}


def test_one_that_waits_for_a_connection_too_long_was_not_sent(make_gateway, origin):
    gateway = make_gateway("--loops", "1", gateway={"connections_max": 1,
        "timeout": {"connect": "300ms", "first_byte": "10s", "total": "10s"}})
    with gateway.peer() as first:
        first.send(request_for("POST", "/pay", {"a": 1}, "first", do="hold=1"))
        origin.wait_for("first")
        answer = gateway.post("second")
        assert answer.status in (502, 503) and answer.json["effect"] == "no"
        assert gateway.status_of("second") == "released" and not origin.seen("second")
        origin.let_go()
        assert first.read().status == 200
    assert gateway.post("second").status == 200 and origin.effects["second"] == 1


def test_a_unix_socket(make_gateway, origin, tmp_path):
    gateway = make_gateway(gateway={"listen": ["127.0.0.1:0", f"unix:{tmp_path}/s"]},
        listen=None)
    with Peer(f"{tmp_path}/s") as peer:
        peer.send(request_for("POST", "/pay", {"amount": 1}, "k"))
        assert peer.read().status == 200
    assert gateway.post("k").is_replay and origin.effects["k"] == 1


def test_tls_to_the_client(make_gateway, origin, tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
        "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
        "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert], check=True,
        capture_output=True)
    gateway = make_gateway(gateway={"tls": {"cert": str(cert), "key": str(key)}})
    context = ssl.create_default_context(cafile=cert)
    bodies = []
    for _ in range(2):
        with Peer(("127.0.0.1", gateway.port)) as peer:
            peer.socket = context.wrap_socket(peer.socket, server_hostname="localhost")
            peer.send(request_for("POST", "/pay", {"amount": 1}, "k", do="size=300000"))
            bodies.append(peer.read().body)
    first = origin.answers["k"]
    for body in bodies:
        same = len(os.path.commonprefix([body, first]))
        assert same == len(body) == len(first), body[max(0, same - 50):same + 50]
    assert origin.effects["k"] == 1
    assert origin.requests[0].get("X-Forwarded-Proto") == "https"
