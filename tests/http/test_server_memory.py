"""Memory runs out in the connections of a server: each allocation fails in turn.

Whatever fails, a client gets the right answer, a refusal, or the end of its connection; never a
wrong answer, and never silence. When there is memory again, the same server answers everything. Its
end is clean: the program has a sanitizer, which reports what was lost or used too late.
"""
import ssl

import pytest
from serve_help import GET, Client, Server, post
from test_serve_tls import make_certificate

BODY = bytes(range(256)) * 40
CHUNKED = (b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"".join(b"%x\r\n%s\r\n" % (len(BODY[at:at + 999]), BODY[at:at + 999])
        for at in range(0, len(BODY), 999)) + b"0\r\n\r\n")
# What is sent, and the bodies of the answers in order.
EXCHANGES = {
    "plain": (GET, [b"ok"]),
    "body": (post("/echo", BODY), [BODY]),
    "chunks": (CHUNKED, [BODY]),
    "pipeline": (GET * 3 + post("/echo", b"x") + GET, [b"ok"] * 3 + [b"x", b"ok"]),
    "large": (b"GET /copied?300000 HTTP/1.1\r\nHost: a\r\n\r\n", [300000]),
    "later": (b"GET /later?1 HTTP/1.1\r\nHost: a\r\n\r\n", [b"later"]),
    "head": (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X-Long: " + b"x" * 9000 + b"\r\n\r\n", [b"ok"]),
}
PLENTY = f"memory {1 << 60} 0"
ALLOCATIONS = 40  # more than an exchange of any kind makes on a fresh connection
ENDED = (AssertionError, ConnectionError, ssl.SSLError)  # Client asserts that there is more


def talk(server, data, expected, tls=None):
    """How many answers came whole and right; the rest were refused or the connection ended."""
    try:
        client = Client(server.addresses[0], tls=tls)
    except (ConnectionError, ssl.SSLError):
        return 0
    with client:
        try:
            client.send(data)
        except (ConnectionError, ssl.SSLError):
            pass
        for count, body in enumerate(expected):
            try:
                answer = client.answer()
            except TimeoutError:
                raise
            except ENDED:
                return count
            if answer.status != 200:
                assert answer.status in (413, 500, 503), answer.status
                return count
            size = body if isinstance(body, int) else len(body)
            assert len(answer.body) == size and (size == body or answer.body == body)
    return len(expected)


@pytest.mark.parametrize("fails", [1, 1000000])
@pytest.mark.parametrize("kind", EXCHANGES)
def test_each_allocation_of_a_connection_fails_in_turn(kind, fails):
    data, expected = EXCHANGES[kind]
    failed = 0
    with Server(loops=1) as server:
        for after in range(ALLOCATIONS):
            assert server.ask(f"memory {after} {fails}") == "memory"
            failed += talk(server, data, expected) < len(expected)
            assert server.ask(PLENTY) == "memory"
            assert talk(server, data, expected) == len(expected), f"after {after}"
        server.wait_for(open=0, in_flight=0)
    assert failed > 0 or kind in ("plain", "pipeline")  # those live on what a loop has pooled


def test_each_allocation_of_the_first_connection_fails_in_turn():
    """Nothing is pooled yet: the first connection of a loop makes everything that it needs."""
    failed = 0
    for after in range(12):
        with Server(loops=1) as server:
            assert server.ask(f"memory {after} 1") == "memory"
            failed += talk(server, *EXCHANGES["pipeline"]) < 5
            assert server.ask(PLENTY) == "memory"
            assert talk(server, *EXCHANGES["pipeline"]) == 5
            server.wait_for(open=0)
    assert failed > 0


def test_each_allocation_of_a_tls_connection_fails_in_turn(tmp_path):
    make_certificate(tmp_path, "a")
    tls = ssl.create_default_context(cafile=tmp_path / "a.pem")
    listen = ["cert", str(tmp_path / "a.pem"), "key", str(tmp_path / "a.key"), "listen",
        "127.0.0.1:0"]
    with Server(listen, loops=1) as server:
        for after in range(0, ALLOCATIONS, 2):
            for kind in ("plain", "body"):
                assert server.ask(f"memory {after} 1") == "memory"
                talk(server, *EXCHANGES[kind], tls)
                assert server.ask(PLENTY) == "memory"
                assert talk(server, *EXCHANGES[kind], tls) == 1
        server.wait_for(open=0)
