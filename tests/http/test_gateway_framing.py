"""Raw requests, cut at every byte: what has two readings is 400 and closed, before any upstream
byte and before any grant.

The cases are those of tests/vectors/http/requests.txt that are refused, each as it stands and,
where its beginning is sound, as a request that would be fenced: POST, with a key. The connections
of all cuts of one case are open together, so that the first part is really read before the second
is sent.
"""
import re
import select
import socket
import time

import pytest
from once_server import LIGHT
from test_serve import vectors

SPLIT_BYTES_MAX = 1000  # of the dozen that are longer, to pass a limit, only the outer cuts
AT_ONCE = 400  # connections
PAUSE_S = 0.004  # for the first parts to be read
REFUSALS = {"400", "501", "505", "414", "431", "417"}
STATUS_LINE = re.compile(rb"HTTP/1\.1 \d{3} ")
KEY = b"Idempotency-Key: framing\r\n"
GROUPS = 6


def fenced(text):
    """The same with a key, and POST for GET; None when its first line is not sound."""
    line, mark, rest = text.partition(b"\r\n")
    words = line.split(b" ")
    if not mark or len(words) != 3 or words[2] != b"HTTP/1.1" or b"\n" in line:
        return None
    if words[0] == b"GET":
        line = line.replace(b"GET", b"POST", 1)
    elif words[0] not in (b"POST", b"PUT", b"PATCH", b"DELETE"):
        return None
    return line + mark + KEY + rest


def cases():
    found = []
    for name, verdict, text in vectors():
        if verdict not in REFUSALS:
            continue
        found.append((name, int(verdict), text))
        with_key = fenced(text)
        if with_key is not None:
            found.append((f"{name}, fenced", int(verdict), with_key))
    return found


def cuts(text):
    """Where to cut it: everywhere, or near both ends of a long one."""
    places = range(1, len(text))
    if len(text) > SPLIT_BYTES_MAX:
        places = [*places[:40], *places[-40:]]
    if LIGHT:
        places = list(places)[::7]
    return list(places)


def connect(port):
    one = socket.create_connection(("127.0.0.1", port))
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one


def say(one, data):
    try:
        one.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        pass  # refused already


def replies(connections, seconds):
    """All that comes on each until its end; None where it has no end."""
    got, ended = {one: b"" for one in connections}, set()
    until = time.monotonic() + seconds
    poll = select.poll()
    by_fd = {one.fileno(): one for one in connections}
    for one in connections:
        poll.register(one, select.POLLIN)
    while len(ended) < len(connections) and time.monotonic() < until:
        for fd, _ in poll.poll(1000):
            one = by_fd[fd]
            try:
                data = one.recv(1 << 16)
            except ConnectionResetError:
                data = b""
            got[one] += data
            if not data:
                ended.add(one)
                poll.unregister(fd)
    return [got[one] if one in ended else None for one in connections]


def answers_of(port, text, places):
    """What came for the case cut at each of those places; 0 is not cut."""
    connections = [connect(port) for _ in places]
    try:
        for one, place in zip(connections, places):
            say(one, text[:place])
        time.sleep(PAUSE_S)
        for one, place in zip(connections, places):
            say(one, text[place:])
            try:
                one.shutdown(socket.SHUT_WR)
            except OSError:
                pass
        return replies(connections, 30)
    finally:
        for one in connections:
            one.close()


def test_there_are_at_least_180_of_them():
    assert len([verdict for _, verdict, _ in cases() if verdict == 400]) >= 180
    assert len([name for name, _, _ in cases() if name.endswith(", fenced")]) >= 180


@pytest.mark.parametrize("group", range(GROUPS))
def test_what_has_two_readings_is_refused_wherever_it_is_cut(gateway, origin, group):
    for name, verdict, text in cases()[group::GROUPS]:
        places = [0, *cuts(text)]
        for at in range(0, len(places), AT_ONCE):
            part = places[at:at + AT_ONCE]
            for place, reply in zip(part, answers_of(gateway.port, text, part)):
                assert reply is not None, f"{name}, cut at {place}: not closed"
                status = int(reply[9:12])
                # What has no key is refused for that as soon as its head is here.
                early = b"idempotency_key_missing" in reply and KEY not in text
                assert status == (400 if early else verdict), f"{name}, cut at {place}: {reply!r}"
                head = reply.split(b"\r\n\r\n", 1)[0].lower()
                assert b"connection: close" in head and b"request-id: " in head, reply
                assert len(STATUS_LINE.findall(reply)) == 1, f"{name}, cut at {place}: {reply!r}"
        whole = [request for request in origin.requests if request.is_whole]
        assert not whole, f"{name}: the upstream got {bytes(whole[0].raw)!r}"
        if text.startswith((b"POST", b"PUT", b"PATCH", b"DELETE")):
            assert origin.bytes_seen == 0, f"{name}: the upstream got {origin.bytes_seen} bytes"
        origin.bytes_seen = 0
        origin.requests.clear()
    assert gateway.operations() == []
    assert gateway.send("GET", "/alive").status == 200


@pytest.mark.parametrize("inside", [
    b"POST /in HTTP/1.1\r\nHost: a\r\nIdempotency-Key: inside\r\nContent-Length: 0\r\n\r\n"])
def test_a_request_inside_a_refused_ones_body_is_never_read(gateway, origin, inside):
    """The classics of request smuggling, each with a whole request where its body would be."""
    heads = [b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        b"Transfer-Encoding: xchunked\r\nContent-Length: 0\r\n",
        b"Transfer-Encoding : chunked\r\nContent-Length: 0\r\n",
        b"Transfer-Encoding: chunked, identity\r\n", b"Transfer-Encoding:\x0bchunked\r\n",
        b"X: y\r\n Transfer-Encoding: chunked\r\n", b"Content-Length: 0\r\nContent-Length: 5\r\n",
        b"Content-Length: 0, 5\r\n", b"Content-Length: +0\r\n", b"Content-Length: 0x0\r\n",
        b"Content-Length: 0\nX: y\r\n", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n",
        b"Content-Length: -1\r\n", b"Content-Length: 0\r\n\rX: y\r\n"]
    for head in heads:
        text = b"POST /out HTTP/1.1\r\nHost: a\r\n" + KEY + head + b"\r\n0\r\n\r\n" + inside
        places = [0, 30, len(text) - len(inside), len(text) - 1]
        for reply in answers_of(gateway.port, text, places):
            assert reply is not None and reply[9:12] in (b"400", b"501"), (head, reply)
            assert len(STATUS_LINE.findall(reply)) == 1, (head, reply)
    assert origin.bytes_seen == 0 and gateway.operations() == []


def test_good_requests_cut_at_every_byte_have_one_effect_each(gateway, origin):
    """The other way round: nothing that has one reading is refused or read twice."""
    bodies = {b"length": b"Content-Length: 12\r\n\r\n{\"amount\":1}",
        b"chunks": b"Transfer-Encoding: chunked\r\n\r\n5\r\n{\"amo\r\n7;x=y\r\nunt\":1}\r\n"
            b"0\r\nT: v\r\n\r\n"}
    for name, rest in bodies.items():
        base = b"POST /pay HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n" \
            b"Connection: close\r\nIdempotency-Key: "
        whole = len(base + b"length-000\r\n" + rest)
        places = list(range(0, whole, 5 if LIGHT else 1))
        connections = [connect(gateway.port) for _ in places]
        texts = [base + b"%s-%03d\r\n" % (name, place) + rest for place in places]
        for one, place, text in zip(connections, places, texts):
            say(one, text[:place])
        time.sleep(0.05)
        for one, place, text in zip(connections, places, texts):
            say(one, text[place:])
        for place, reply in zip(places, replies(connections, 30)):
            assert reply is not None and reply.startswith(b"HTTP/1.1 200 "), (name, place, reply)
            assert origin.effects[f"{name.decode()}-{place:03d}"] == 1
        for one in connections:
            one.close()
    assert all(bytes(request.body) == b'{"amount":1}' for request in origin.requests)
