"""The upstream client against an origin that misbehaves at every point: what the caller is told."""
import socket
import threading
import time

import pytest

import servers
from upstream_help import BODY, OK, Driver, Origin, answers, says, waits


def read_some(count, then):
    """A script: read only that much of the request, then close or reset."""
    def script(peer):
        peer.read(count)
        if then == "reset":
            peer.reset()
    return script


def reset_at_once(peer):
    peer.reset()


def whole_then_reset(peer):
    peer.request()
    peer.reset()


LONG = b"HTTP/1.1 200 OK\r\n" + b"X-Long: " + b"a" * 17000 + b"\r\n\r\n"

# What the origin does after the whole request -> what the caller is told. Each row once with a
# close behind it and, where bytes came, once with a reset.
AFTER_REQUEST = {
    "nothing": (b"", "failed SENT BROKEN"),
    "half a status line": (b"HTTP/1.1 2", "failed SENT BROKEN"),
    "half a head": (b"HTTP/1.1 200 OK\r\nContent-Le", "failed SENT BROKEN"),
    "an interim answer only": (b"HTTP/1.1 100 Continue\r\n\r\n", "failed SENT BROKEN"),
    "a head and no body": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "failed HEAD BROKEN"),
    "half a body": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", "failed HEAD BROKEN"),
    "half a chunk size": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1",
        "failed HEAD BROKEN"),
    "half a chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        "failed HEAD BROKEN"),
    "chunks without the last": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", "failed HEAD BROKEN"),
    "the last chunk without its end": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n",
        "failed HEAD BROKEN"),
}

MALFORMED = {
    "garbage": (b"\x00\x01garbage\r\n\r\n", "failed SENT MALFORMED"),
    "another protocol": (b"SSH-2.0-OpenSSH_9.2\r\n", "failed SENT MALFORMED"),
    "two lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        "failed SENT MALFORMED"),
    "a length and chunks": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok",
        "failed SENT MALFORMED"),
    "a length that is none": (b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok",
        "failed SENT MALFORMED"),
    "a head past the limit": (LONG, "failed SENT MALFORMED"),
    "too many fields": (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 101 + b"\r\n",
        "failed SENT MALFORMED"),
    "a status that is none": (b"HTTP/1.1 700 No\r\n\r\n", "failed SENT MALFORMED"),
    "another version": (b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "failed SENT MALFORMED"),
    "a switch of protocols": (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        "failed SENT MALFORMED"),
    "interim answers without end": (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 33,
        "failed SENT MALFORMED"),
    "a bare line feed": (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", "failed SENT MALFORMED"),
    "a chunk size that is none": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "failed HEAD MALFORMED"),
    "a chunk longer than it says": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
        "failed HEAD MALFORMED"),
}

GOOD = {
    "a length": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "end 5"),
    "a length of 0": (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "end 0"),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n"
        b"\r\n", "end 5"),
    "chunks with a trailer": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\n"
        b"hello\r\n0\r\nX-Sum: 1\r\n\r\n", "end 5"),
    "100 and 103 in front": (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n"
        b"\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "end 5"),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", "end 0"),
    "304 with a length": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "end 0"),
}


@pytest.fixture(scope="module", name="dead")
def fixture_dead():
    """A port where nobody listens, and that nobody else gets."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_a_refused_connection_is_not_sent(dead):
    with Driver(f"http://127.0.0.1:{dead}") as driver:
        event = driver.ask(method="POST", body=BODY)
        assert event.startswith("failed NOT_SENT UNREACHABLE")
        assert f"'127.0.0.1:{dead}' (127.0.0.1:{dead}): connection refused" in event
        stats = driver.stats()
        assert stats["failed"] == [1, 0, 0]
        assert stats["connects"] == 2  # of one address, and no more
        assert stats["down"] == 1


@pytest.mark.parametrize("count", [1, 17, 50, 200])
@pytest.mark.parametrize("then", ["close", "reset"])
def test_one_that_leaves_inside_the_request_was_sent(count, then):
    with Origin(read_some(count, then)) as origin, Driver(origin) as driver:
        assert driver.ask(method="POST", body=BODY).startswith("failed SENT BROKEN")
        assert origin.count == 1  # UP3: it was not tried again
        assert driver.stats()["failed"] == [0, 1, 0]


@pytest.mark.parametrize("then", ["close", "reset"])
def test_one_that_leaves_inside_a_long_body_was_sent(then):
    with Origin(read_some(100000, then)) as origin, Driver(origin) as driver:
        assert driver.ask(method="POST", body=30000000).startswith("failed SENT BROKEN")
        assert origin.count == 1


def test_one_that_resets_after_the_request_was_sent():
    with Origin(whole_then_reset) as origin, Driver(origin) as driver:
        assert driver.ask(method="POST", body=BODY).startswith("failed SENT BROKEN")
        assert origin.count == 1


def test_one_that_leaves_at_once_is_not_sent_only_if_it_saw_nothing():
    """The race is real: whatever is said, it has to be true."""
    with Origin(reset_at_once) as origin, Driver(origin) as driver:
        for number in range(60):
            driver.start(number, method="POST", body=BODY)
            event = driver.last(number)
            if event.startswith("failed NOT_SENT"):
                assert origin.received == b""
            else:
                assert event.startswith("failed SENT BROKEN")


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("name", AFTER_REQUEST)
def test_an_answer_cut_off(name, end):
    data, told = AFTER_REQUEST[name]
    with Origin(says(data, end)) as origin, Driver(origin) as driver:
        event = driver.ask(method="POST", body=BODY)
        assert event.startswith(told)
        assert f"({origin.url[7:]})" in event
        assert origin.count == 1
        point = ["NOT_SENT", "SENT", "HEAD"].index(told.split()[1])
        assert driver.stats()["failed"][point] == 1


@pytest.mark.parametrize("name", MALFORMED)
def test_an_answer_that_is_not_http(name):
    data, told = MALFORMED[name]
    with Origin(says(data, "wait")) as origin, Driver(origin) as driver:
        assert driver.ask(method="POST", body=BODY).startswith(told)
        assert origin.count == 1
        driver.wait_stats(open=0)


@pytest.mark.parametrize("how", ["whole", "bytes"])
@pytest.mark.parametrize("name", GOOD)
def test_a_good_answer_is_read_and_its_connection_kept(name, how):
    data, told = GOOD[name]

    def script(peer):
        while peer.request() is not None:
            if how == "whole":
                peer.send(data)
            else:
                peer.slowly(data)
    with Origin(script) as origin, Driver(origin) as driver:
        for number in range(3):
            assert driver.ask(number, method="POST", body=BODY).startswith(told)
        assert origin.count == 1
        stats = driver.stats()
        assert (stats["connects"], stats["reused"], stats["idle"]) == (1, 2, 1)


def test_the_answer_to_head_has_no_body():
    with Origin(answers(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n")) as origin, \
            Driver(origin) as driver:
        assert driver.ask(1, method="HEAD").startswith("end 0")
        assert driver.ask(2, method="HEAD").startswith("end 0")
        assert origin.count == 1


@pytest.mark.parametrize("data", [
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nKeep-Alive: timeout=1\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nKeep-Alive: max=9, timeout=1\r\n\r\nok",
    OK + b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad",
    OK + b"\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nx"])
def test_a_connection_that_is_over_is_not_used_again(data):
    def script(peer):
        peer.request()
        peer.send(data)
        assert peer.wait_end()
    with Origin(script) as origin, Driver(origin) as driver:
        assert driver.ask(1).startswith("end 2")
        assert driver.ask(2).startswith("end 2")
        assert origin.count == 2


def test_bytes_that_come_while_it_is_idle_end_it():
    def script(peer):
        peer.request()
        peer.send(OK)
        time.sleep(0.1)
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad")
        assert peer.wait_end()
    with Origin(script, answers()) as origin, Driver(origin) as driver:
        assert driver.ask(1).startswith("end 2")
        driver.wait_stats(open=0)
        assert driver.ask(2).startswith("end 2")
        assert origin.count == 2


def test_http_1_0_with_keep_alive_is_kept():
    data = b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok"
    with Origin(answers(data)) as origin, Driver(origin) as driver:
        assert driver.ask(1).startswith("end 2")
        assert driver.ask(2).startswith("end 2")
        assert origin.count == 1


def test_a_body_until_the_close():
    with Origin(says(b"HTTP/1.1 200 OK\r\n\r\nhello world")) as origin, Driver(origin) as driver:
        assert driver.ask(1).startswith("end 11")
        assert driver.ask(2).startswith("end 11")
        assert origin.count == 2


def test_a_body_until_the_close_that_was_reset_is_not_whole():
    data = b"HTTP/1.1 200 OK\r\n\r\nhello world"
    with Origin(says(data, "reset")) as origin, Driver(origin) as driver:
        assert driver.ask().startswith("failed HEAD BROKEN")


def test_our_own_close_is_kept_to():
    with Origin(answers()) as origin, Driver(origin) as driver:
        assert driver.ask(1, close=1).startswith("end 2")
        assert driver.ask(2).startswith("end 2")
        assert origin.count == 2


@pytest.mark.parametrize("data", [
    b"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n" + b"a" * 101,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n" + b"a" * 100 + b"\r\n1\r\nb\r\n",
    b"HTTP/1.1 200 OK\r\n\r\n" + b"a" * 101])
def test_a_body_past_the_limit(data):
    with Origin(says(data, "wait")) as origin, Driver(origin) as driver:
        event = driver.ask(max=100)
        assert event.startswith("failed HEAD TOO_LARGE")
        assert "body_bytes_max" in event
        driver.wait_stats(open=0)


def test_a_body_at_the_limit():
    data = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + b"a" * 100
    with Origin(answers(data)) as origin, Driver(origin) as driver:
        assert driver.ask(max=100).startswith("end 100")


# --- Early answers ------------------------------------------------------------------------------


@pytest.mark.parametrize("then", ["close", "reset", "wait"])
@pytest.mark.parametrize("status", [b"413 Content Too Large", b"200 OK"])
def test_an_answer_before_the_whole_request(status, then):
    data = b"HTTP/1.1 " + status + b"\r\nContent-Length: 5\r\n\r\nearly"

    def script(peer):
        peer.read(1000)
        peer.send(data)
        if then == "wait":
            assert not peer.wait_end()  # more of the request
            while peer.recv():
                pass
        elif then == "reset":
            time.sleep(0.05)
            peer.reset()
    with Origin(script) as origin, Driver(origin) as driver:
        assert driver.ask(1, method="POST", body=30000000).startswith("end 5")
        driver.wait_stats(open=0)  # half a request was sent: nobody may use it again
        assert origin.count == 1


@pytest.mark.parametrize("status", [b"413 Content Too Large", b"200 OK"])
def test_an_answer_while_the_caller_has_more_to_put(status):
    """All that was put has left, and still it is half a request."""
    def script(peer):
        peer.read(200)
        peer.send(b"HTTP/1.1 " + status + b"\r\nContent-Length: 5\r\n\r\nearly")
        assert peer.wait_end()
    with Origin(script) as origin, Driver(origin) as driver:
        driver.start(1, method="POST", streamed=1, body=1000)
        driver.say("put 1 500")
        assert driver.last(1).startswith("end 5")
        driver.wait_stats(open=0)
        assert origin.count == 1


def test_one_that_writes_its_head_before_it_reads():
    """Whoever stopped to send at the head would wait for ever, and so would the origin."""
    def script(peer):
        peer.recv()
        peer.send(b"HTTP/1.0 200 OK\r\n\r\n")
        peer.request()
        peer.send(b"done")
    with Origin(script) as origin, Driver(origin) as driver:
        assert driver.ask(1, method="POST", body=30000000).startswith("end 4")
        assert origin.count == 1


def test_an_early_refusal_of_a_streamed_body_gives_drained():
    data = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 5\r\n\r\nea"

    def script(peer):
        peer.read(1000)
        peer.send(data)
        peer.origin.gate.wait(10)
        peer.send(b"rly")
        peer.wait_end()
    with Origin(script) as origin, Driver(origin) as driver:
        origin.gate = threading.Event()
        driver.start(method="POST", streamed=1, chunked=1)
        driver.say("put 1 20000000")
        assert driver.line("1 put") == "1 put wait"
        driver.line("1 head 413")
        driver.line("1 drained")
        driver.say("put 1 1000")
        assert driver.line("1 put") == "1 put more"
        origin.gate.set()
        assert driver.last().startswith("end 5")


# --- Idle connections ---------------------------------------------------------------------------


@pytest.mark.parametrize("then", ["close", "reset"])
def test_one_closed_while_idle_is_seen_at_once(then):
    def script(peer):
        peer.request()
        peer.send(OK)
        if then == "reset":
            time.sleep(0.05)
            peer.reset()
    with Origin(script, answers()) as origin, Driver(origin) as driver:
        assert driver.ask(1, method="POST", body=BODY).startswith("end 2")
        driver.wait_stats(open=0)
        assert driver.ask(2, method="POST", body=BODY).startswith("end 2")
        assert origin.count == 2


def test_one_closed_exactly_at_reuse():
    """The next call is started inside of the end of the one before, while the close is on its way
    or waits in the kernel: it is either not sent and tried again, or was sent and is not."""
    def script(peer):
        peer.request()
        peer.send(OK)
    with Origin(script) as origin, Driver(origin) as driver:
        for number in range(100):
            driver.start(number, method="POST", body=BODY, restart_at="end")
            assert driver.last(number).startswith("end 2")
            assert driver.last(number).startswith(("end 2", "failed SENT BROKEN"))
            driver.wait_stats(open=0)
        assert driver.stats()["failed"][0] == 0
        # Whatever was sent twice would have been seen twice.
        assert origin.received.count(b"POST ") <= 200


def test_a_close_that_the_kernel_has_is_seen_before_reuse():
    """The loop stands still between the answer and the next call, so that only the kernel knows."""
    def script(peer):
        peer.request()
        peer.send(OK)
    with Origin(script) as origin, Driver(origin) as driver:
        for number in range(10):
            driver.start(number, method="POST", body=BODY, restart_at="end", sleep=50)
            assert driver.last(number).startswith("end 2")
            assert driver.last(number).startswith("end 2")
            driver.wait_stats(open=0)
        assert driver.stats()["reused"] == 0
        assert origin.count == 20


def test_an_idle_one_goes_after_its_time():
    with Origin(answers()) as origin, Driver(origin, idle_ms=1500) as driver:
        assert driver.ask(1).startswith("end 2")
        assert driver.stats()["idle"] == 1
        driver.wait_stats(open=0)
        assert driver.ask(2).startswith("end 2")
        assert origin.count == 2


def test_an_idle_one_goes_a_second_before_the_peer_said():
    data = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nKeep-Alive: timeout=4, max=100\r\n\r\nok"
    with Origin(answers(data)) as origin, Driver(origin, idle_ms=60000) as driver:
        assert driver.ask(1).startswith("end 2")
        began = time.monotonic()
        assert driver.stats()["idle"] == 1
        driver.wait_stats(open=0)
        assert 2.8 < time.monotonic() - began < 40  # far below idle_ms


def test_the_most_recently_used_is_used_first():
    gate = threading.Event()

    def script(peer):
        while peer.request() is not None:
            gate.wait(10)
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % peer.number)
    with Origin(script) as origin, Driver(origin) as driver:
        driver.start(1)
        driver.start(2)
        driver.wait_stats(open=2)
        gate.set()
        first, second = driver.last(1), driver.last(2)
        assert first != second
        kept = [driver.ask(number) for number in range(3, 8)]
        assert len(set(kept)) == 1
        assert driver.stats()["connects"] == 2


# --- Limits -------------------------------------------------------------------------------------


def test_a_connect_that_takes_too_long():
    """A full backlog drops what comes: the connect stands still."""
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    fillers = []
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(full.getsockname())
        fillers.append(filler)
    time.sleep(0.1)
    with Driver(f"http://127.0.0.1:{full.getsockname()[1]}") as driver:
        event = driver.ask(connect=300)
        assert event.startswith("failed NOT_SENT TIMEOUT")
        assert "cannot connect" in event
    for sock in fillers + [full]:
        sock.close()


LATE_MS = 1200  # what the origin does say comes long before


@pytest.mark.parametrize("settings, data, told", [
    ({"first": LATE_MS}, b"", "failed SENT TIMEOUT"),
    ({"first": LATE_MS}, b"HTTP/1.1 200 OK\r\nCont", "failed SENT TIMEOUT"),
    ({"first": LATE_MS}, b"HTTP/1.1 100 Continue\r\n\r\n", "failed SENT TIMEOUT"),
    ({"total": LATE_MS}, b"", "failed SENT TIMEOUT"),
    ({"total": LATE_MS}, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
        "failed HEAD TIMEOUT"),
    ({"total": 0, "first": LATE_MS}, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
        "failed HEAD TIMEOUT"),
    ({"total": 0, "first": LATE_MS}, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        "failed HEAD TIMEOUT")])
def test_each_wait_has_a_limit(settings, data, told):
    with Origin(waits(data)) as origin, Driver(origin) as driver:
        began = time.monotonic()
        assert driver.ask(method="POST", body=BODY, **settings).startswith(told)
        assert LATE_MS / 1000 - 0.01 <= time.monotonic() - began < 10  # below the other limits
        assert origin.count == 1


def test_an_unbounded_body_may_be_slow_as_long_as_it_moves():
    def script(peer):
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
        peer.slowly(b"a" * 10, pause=0.15)
    with Origin(script) as origin, Driver(origin) as driver:
        assert driver.ask(total=0, first=5000).startswith("end 10")


def test_an_unbounded_request_that_stands_still():
    with Origin(lambda peer: (peer.read(1000), time.sleep(3))) as origin, Driver(origin) as driver:
        event = driver.ask(method="POST", body=30000000, total=0, first=300)
        assert event.startswith("failed SENT TIMEOUT")


def test_calls_past_connections_max_wait_in_their_order():
    seen, gate = [], threading.Event()

    def script(peer):
        while True:
            request = peer.request()
            if request is None:
                return
            seen.append(request[0].split()[1])
            gate.wait(60)
            peer.send(OK)
    with Origin(script) as origin, Driver(origin, connections=1) as driver:
        for number in range(8):
            driver.start(number, path=f"/{number}")
        driver.wait_stats(waiting=7)
        gate.set()
        for number in range(8):
            assert driver.last(number).startswith("end 2")
        assert seen == [b"/%d" % number for number in range(8)]
        assert origin.count == 1


def test_those_who_wait_get_a_connection_when_one_is_closed():
    data = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
    with Origin(says(data)) as origin, Driver(origin, connections=2) as driver:
        for number in range(20):
            driver.start(number)
        for number in range(20):
            assert driver.last(number).startswith("end 2")
        assert origin.count == 20


def test_waiting_is_bounded_in_time_and_number():
    with Origin(waits(b"")) as origin, Driver(origin, connections=1, waiting=2) as driver:
        driver.start(1)
        driver.wait_stats(open=1)
        driver.start(2, connect=300)
        driver.start(3, connect=300)
        event = driver.ask(4)
        assert event.startswith("failed NOT_SENT BUSY")
        assert "connections_max" in event and "waiting_max" in event
        assert driver.last(2).startswith("failed NOT_SENT TIMEOUT")
        assert driver.last(3).startswith("failed NOT_SENT TIMEOUT")
        assert driver.stats()["waiting"] == 0
        driver.say("cancel 1")
        assert driver.line("1 cancelled") == "1 cancelled sent"
        driver.wait_stats(open=0)
        assert origin.received.count(b"GET ") == 1


# --- Addresses ----------------------------------------------------------------------------------


def test_one_dead_address_of_two(dead):
    with Origin(answers(), address="127.0.0.2") as origin, \
            Driver(f"http://127.0.0.1:{dead}", origin) as driver:
        for number in range(10):
            assert driver.ask(number, method="POST", body=BODY, close=1).startswith("end 2")
        stats = driver.stats()
        assert stats["down"] == 1
        assert stats["connects"] <= 12  # the dead one is left out, not tried each time
        assert origin.received.count(b"POST ") == 10


def test_two_addresses_are_used_in_turn():
    with Origin(answers()) as one, Origin(answers(), address="127.0.0.2") as two, \
            Driver(one, two) as driver:
        for number in range(10):
            assert driver.ask(number).startswith("end 2")
        assert one.received.count(b"GET ") == 5
        assert two.received.count(b"GET ") == 5
        assert (one.count, two.count) == (1, 1)


def test_one_that_comes_back_is_used_again():
    port = servers.free_port()
    with Origin(answers(), address="127.0.0.2") as two, \
            Driver(f"http://127.0.0.1:{port}", two) as driver:
        for number in range(4):
            assert driver.ask(number).startswith("end 2")
        with Origin(answers(), port=port) as one:
            end = time.monotonic() + 60
            number = 10
            while one.count == 0 and time.monotonic() < end:
                assert driver.ask(number).startswith("end 2")
                number += 1
                time.sleep(0.02)
            assert one.count == 1
            assert driver.stats()["down"] == 0


def test_all_down_are_tried_all_the_same():
    port = servers.free_port()
    with Driver(f"http://127.0.0.1:{port}") as driver:
        for number in range(3):
            assert driver.ask(number).startswith("failed NOT_SENT UNREACHABLE")
        with Origin(answers(), port=port):
            assert driver.ask(9).startswith("end 2")


def test_nothing_is_tried_elsewhere_after_a_byte_was_sent():
    with Origin(whole_then_reset) as one, Origin(whole_then_reset, address="127.0.0.2") as two, \
            Driver(one, two) as driver:
        assert driver.ask(1, method="POST", body=BODY).startswith("failed SENT BROKEN")
        assert (one.received + two.received).count(b"POST ") == 1


def test_a_name_is_looked_up():
    with Origin(answers()) as origin, \
            Driver(f"http://localhost:{origin.port}", resolve_ms=100) as driver:
        for number in range(5):
            assert driver.ask(number).startswith("end 2")
            time.sleep(0.05)
        assert b"Host: localhost:" in origin.received


def test_a_name_that_does_not_exist():
    with Driver("http://no-such-name.invalid") as driver:
        event = driver.ask(1)
        assert event.startswith("failed NOT_SENT UNREACHABLE")
        assert "no-such-name.invalid" in event
        assert driver.ask(2).startswith("failed NOT_SENT UNREACHABLE")


def test_names_have_several_addresses_that_are_used_in_turn():
    with Origin(answers()) as one, Origin(answers(), address="127.0.0.2", port=one.port) as two, \
            Driver(f"http://a.test:{one.port}", names="127.0.0.1", resolve_ms=100) as driver:
        driver.say("names 127.0.0.1 127.0.0.2 127.0.0.3")  # the third is dead
        assert driver.ask(100).startswith("end 2")
        time.sleep(0.15)
        number = 0
        while one.count <= 3 or two.count <= 3:  # as soon as the lookup has ended
            assert driver.ask(number, close=1).startswith("end 2") and number < 2000
            number += 1
        assert driver.stats()["down"] == 1


def test_old_addresses_stay_in_use_when_a_later_lookup_fails():
    with Origin(answers()) as origin, \
            Driver(f"http://a.test:{origin.port}", names="127.0.0.1", resolve_ms=50) as driver:
        assert driver.ask(1, close=1).startswith("end 2")
        driver.say("names")
        began = time.monotonic()
        for number in range(2, 6):
            time.sleep(0.1)
            assert driver.ask(number, close=1).startswith("end 2")
        driver.say("lookups")
        count = int(driver.line("lookups ").split()[1])
        assert 2 <= count <= 2 + (time.monotonic() - began)  # one that failed rests for a second


def test_a_name_that_moves_takes_its_idle_connections_along():
    with Origin(answers()) as one, Origin(answers(), address="127.0.0.2", port=one.port) as two, \
            Driver(f"http://a.test:{one.port}", names="127.0.0.1", resolve_ms=100) as driver:
        assert driver.ask(1).startswith("end 2")
        driver.say("names 127.0.0.2")
        time.sleep(0.2)
        number = 2
        while two.count == 0:  # the first of these begins the lookup, on what is known
            assert driver.ask(number).startswith("end 2") and number < 2000
            number += 1
        assert one.received.count(b"GET ") >= 2 and two.received.count(b"GET ") == 1
        assert driver.stats()["open"] == 1


def test_a_name_that_comes_to_exist():
    with Origin(answers()) as origin, \
            Driver(f"http://a.test:{origin.port}", names="none", resolve_ms=50) as driver:
        began = time.monotonic()
        assert driver.ask(1).startswith("failed NOT_SENT UNREACHABLE: cannot resolve 'a.test'")
        driver.say("names 127.0.0.1")
        again = driver.ask(2)
        assert again.startswith("failed NOT_SENT UNREACHABLE: cannot resolve 'a.test'") or \
            time.monotonic() - began > 1
        time.sleep(1.1)
        assert driver.ask(3).startswith("end 2")


@pytest.mark.parametrize("url, why", [
    ("ftp://a", "does not begin with"), ("a:80", "does not begin with"),
    ("http://", "authority"), ("http://a b", "authority"), ("http://u@a", "authority"),
    ("http://a/path", "path"), ("http://a?b", "path"), ("http://a#b", "path"),
    ("http://a:0", "port"), ("http://a:65536", "port")])
def test_a_url_that_is_wrong_is_refused(url, why):
    with Driver(url) as driver:
        assert driver.first.startswith("refused ")
        assert f"'{url}'" in driver.first and why in driver.first


def test_urls_have_one_scheme():
    with Driver("http://a", "https://b") as driver:
        assert "do not have the same scheme" in driver.first
