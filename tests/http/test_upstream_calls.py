"""The upstream client from its caller's side: bodies both ways, pausing, cancelling, no memory."""
import threading
import time

import pytest

import servers
from once_server import until
from upstream_help import BODY, OK, Driver, Origin, answers, waits


def test_a_long_body_arrives_whole():
    bodies = []

    def script(peer):
        while True:
            request = peer.request()
            if request is None:
                return
            bodies.append(request[1])
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(request[1]))
            peer.send(request[1])
    with Origin(script) as origin, Driver(origin) as driver:
        told = driver.ask(1, method="POST", body=5000000)
        assert told.startswith("end 5000000")
        assert driver.ask(2, method="POST", body=5000000) == told
        assert bodies[0] == bodies[1]
        assert bodies[0] == bytes(97 + (i * 7 + i // 251) % 26 for i in range(5000000))


@pytest.mark.parametrize("chunked", [0, 1])
def test_a_streamed_body_with_backpressure(chunked):
    bodies = []

    def script(peer):
        peer.origin.gate.wait(10)
        bodies.append(peer.request()[1])
        peer.origin.ended.wait(10)  # an answer before put_end would end the connection
        peer.send(OK)
        peer.wait_end()
    with Origin(script) as origin, Driver(origin) as driver:
        origin.gate, origin.ended = threading.Event(), threading.Event()
        driver.start(method="POST", streamed=1, chunked=chunked, body=0 if chunked else 9000000)
        told = []
        for _ in range(9):
            driver.say("put 1 1000000")
            told.append(driver.line("1 put"))
            if told[-1] == "1 put wait":
                origin.gate.set()
                driver.line("1 drained")
        driver.say("put_end 1")
        assert driver.stats()["idle"] == 0  # so the driver has read put_end
        origin.ended.set()
        assert driver.last().startswith("end 2")
        assert "1 put wait" in told
        assert len(bodies[0]) == 9000000
        assert driver.stats()["idle"] == 1


def test_what_is_put_before_there_is_a_connection_is_kept():
    with Origin(waits(b"")) as origin, Driver(origin, connections=1) as driver:
        driver.start(1)
        driver.wait_stats(open=1)
        driver.start(2, method="POST", streamed=1, chunked=1)
        driver.say("put 2 5")
        assert driver.line("2 put") == "2 put wait"
        driver.say("put_end 2")
        driver.say("cancel 1")
        driver.line("2 drained")
        driver.say("cancel 2")
        assert driver.line("2 cancelled") == "2 cancelled sent"


@pytest.mark.parametrize("at", ["head", "piece"])
def test_pause_and_go_on(at):
    data = b"HTTP/1.1 200 OK\r\nContent-Length: 20000000\r\n\r\n"
    sent = []

    def script(peer):
        peer.request()
        peer.send(data)
        for _ in range(200):
            peer.send(b"a" * 100000)
            sent.append(1)
        peer.wait_end()
    with Origin(script) as origin, Driver(origin) as driver:
        driver.start(pause_at=at, total=0, first=1500)
        driver.line("1 head 200")
        time.sleep(2)  # longer than first: what is paused is not late
        assert len(sent) < 200
        driver.say("go_on 1")
        assert driver.last().startswith("end 20000000")


@pytest.mark.parametrize("event", ["head", "piece"])
def test_cancel_inside_an_event(event):
    with Origin(answers()) as origin, Driver(origin) as driver:
        driver.start(1, cancel_at=event)
        assert driver.line("1 cancelled") == "1 cancelled sent"
        driver.wait_stats(open=0)
        assert driver.ask(2).startswith("end 2")


@pytest.mark.parametrize("event", ["head", "piece", "end"])
def test_start_again_inside_an_event(event):
    with Origin(answers()) as origin, Driver(origin) as driver:
        driver.start(1, restart_at=event)
        if event == "end":
            assert driver.last(1).startswith("end 2")
        else:
            driver.line("1 cancelled sent")
        assert driver.last(1).startswith("end 2")
        assert driver.stats()["connects"] == (1 if event == "end" else 2)


def test_start_again_inside_a_failure():
    with Driver(f"http://127.0.0.1:{servers.free_port()}") as driver:
        driver.start(1, restart_at="failed")
        assert driver.last(1).startswith("failed NOT_SENT")
        assert driver.last(1).startswith("failed NOT_SENT")


def test_cancel_while_it_waits():
    with Origin(waits(b"")) as origin, Driver(origin, connections=1) as driver:
        driver.start(1)
        driver.wait_stats(open=1)
        for number in (2, 3, 4):
            driver.start(number, path="/waits")
        for number in (3, 2, 4):
            driver.say(f"cancel {number}")
            assert driver.line(f"{number} cancelled") == f"{number} cancelled unsent"
        driver.say("cancel 1")
        driver.wait_stats(open=0, waiting=0)
        assert b"/waits" not in origin.received


def test_cancel_while_it_connects():
    with Origin(waits(b"")) as origin, Driver(origin) as driver:
        for number in range(50):
            driver.start(number, cancel_at="start")
            assert driver.line(f"{number} cancelled") == f"{number} cancelled unsent"
        driver.wait_stats(open=0)
        assert origin.received.count(b"GET ") == 0
        # One write: between two of these a quick driver has connected and sent, or it has not.
        driver.process.stdin.write("".join(f"start {n}\ncancel {n}\n" for n in range(50)))
        driver.process.stdin.flush()
        told = [driver.line(f"{number} cancelled").split()[2] for number in range(50)]
        driver.wait_stats(open=0)
        time.sleep(0.1)
        assert origin.received.count(b"GET ") <= told.count("sent")


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"])
def test_cancel_while_the_answer_comes(data):
    with Origin(waits(data)) as origin, Driver(origin) as driver:
        driver.start(1, method="POST", body=BODY)
        if data:
            driver.line("1 head")
        else:
            until(lambda: b"POST " in origin.received, "it was not sent")
        driver.say("cancel 1")
        assert driver.line("1 cancelled") == "1 cancelled sent"
        driver.wait_stats(open=0)


def test_cancel_while_the_body_is_being_sent():
    with Origin(lambda peer: (peer.read(1000), peer.wait_end(), time.sleep(0.3))) as origin, \
            Driver(origin) as driver:
        driver.start(1, method="POST", body=30000000)
        until(lambda: b"POST " in origin.received, "it was not sent")
        driver.say("cancel 1")
        assert driver.line("1 cancelled") == "1 cancelled sent"
        driver.wait_stats(open=0)


def test_detach_fails_what_is_under_way():
    with Origin(waits(b"")) as origin, Driver(origin, connections=1) as driver:
        driver.start(1)
        until(lambda: b"GET " in origin.received, "it was not sent")
        driver.start(2)
        driver.say("detach")
        assert driver.last(1).startswith("failed SENT BROKEN")
        assert driver.last(2).startswith("failed NOT_SENT UNREACHABLE")
        assert driver.ask(3).startswith("failed NOT_SENT UNREACHABLE")


def test_many_calls_at_once():
    with Origin(answers()) as origin, Driver(origin, connections=16) as driver:
        for number in range(1000):
            driver.start(number, method="POST", body=number)
        for number in range(1000):
            assert driver.last(number).startswith("end 2")
        stats = driver.stats()
        assert stats["connects"] <= 16
        assert stats["reused"] == 1000 - stats["connects"]
        assert origin.received.count(b"POST ") == 1000


@pytest.mark.parametrize("fails", [1, 1000000])
def test_each_allocation_fails_in_turn(fails):
    """Whatever has no memory says so, or ends well; nothing is lost and nothing hangs."""
    with Origin(answers()) as origin:
        told = set()
        for after in range(60):
            with Driver(origin, fail_after=after, fails=fails) as driver:
                if driver.first != "ready":
                    assert driver.first == "refused out of memory"
                    continue
                events = [driver.ask(number, method="POST", body=BODY) for number in range(2)]
                driver.start(2, method="POST", streamed=1, chunked=1)
                driver.say("put 2 100000")
                if driver.line("2 put") != "2 put gone":
                    driver.say("put_end 2")
                events.append(driver.last(2))
            assert all(event.startswith("end 2") or " MEMORY: " in event for event in events)
            told.update(event.split(":")[0].split()[0] for event in events)
            if after > 30 and all(event.startswith("end 2") for event in events):
                break
        else:
            raise AssertionError("it never had enough memory")
        assert told == {"end", "failed"}
