"""The operation goes on whatever its client does; many clients of one key; floods; what is too
large."""
import json
import select
import socket
import threading
import time

import pytest
from once_gateway import DUPLICATES_FREE, request_for
from once_server import LIGHT, Broken

ATONCE = 50


def in_flight(gateway, origin, key, do="hold=1"):
    """A connection whose request has reached the upstream."""
    peer = gateway.peer()
    peer.send(request_for("POST", "/pay", {"amount": 1}, key, do=do))
    origin.wait_for(key)
    return peer


@pytest.mark.parametrize("way", ["closes", "resets", "half closes and goes"])
def test_a_client_that_goes_away_does_not_stop_the_operation(gateway, origin, way):
    peer = in_flight(gateway, origin, "k")
    if way == "resets":
        peer.reset()
    else:
        if way.startswith("half"):
            peer.socket.shutdown(socket.SHUT_WR)
        peer.close()
    time.sleep(0.2)  # the gateway has seen it
    assert gateway.status_of("k") == "in_progress"
    assert gateway.post("k", headers={"Prefer": "wait=0"}).status == 409
    origin.let_go("k")
    gateway.wait_status("k", "executed")
    again = gateway.post("k")
    assert again.is_replay and again.body == origin.answers["k"] and origin.effects["k"] == 1


def test_a_client_that_goes_away_leaves_an_unknown_where_the_upstream_breaks(gateway, origin):
    peer = in_flight(gateway, origin, "k", "hold=1&fault=reset_after")
    peer.reset()
    time.sleep(0.1)
    origin.let_go("k")
    gateway.wait_status("k", "unknown")
    assert gateway.post("k").decision == "held_unknown" and origin.effects["k"] == 1


def test_a_client_that_goes_away_before_its_body_is_here_did_nothing(gateway, origin):
    whole = request_for("POST", "/pay", {"amount": 1, "more": "x" * 5000}, "k")
    for cut in (10, len(whole) // 2, len(whole) - 1):
        with gateway.peer() as peer:
            peer.send(whole[:cut])
            time.sleep(0.05)
            peer.reset()
    time.sleep(0.1)
    assert origin.bytes_seen == 0 and gateway.operations() == []
    with gateway.peer() as peer:
        peer.send(whole)
        assert peer.read().decision == "first_seen"
    gateway.stop()  # nothing is held for those who left


def test_a_client_that_reads_nothing_does_not_hold_the_operation(gateway, origin):
    with gateway.peer() as peer:
        peer.send(request_for("POST", "/pay", {"amount": 1}, "k", do="size=8000000"))
        gateway.wait_status("k", "executed")
        again = gateway.post("k")
        assert again.is_replay and len(again.body) > 8000000
        assert peer.read().body == again.body


def test_many_clients_gone_at_once(gateway, origin):
    peers = [in_flight(gateway, origin, f"k{number}") for number in range(20)]
    for peer in peers:
        peer.reset()
    time.sleep(0.1)
    origin.let_go()
    for number in range(20):
        gateway.wait_status(f"k{number}", "executed")
        assert gateway.post(f"k{number}").is_replay
    assert origin.total == 20


# --- Duplicates of what runs ----------------------------------------------------------------------

PREFERS = [{}, {"Prefer": "wait=10"}, {"Prefer": "respond-async"}, {"Prefer": "wait=soon"}]


@pytest.mark.parametrize("prefer", PREFERS)
def test_a_duplicate_waits_for_the_replay_and_gets_it_as_soon_as_there_is_one(gateway, origin,
        prefer):
    """Asked to or not: no client library says so."""
    with in_flight(gateway, origin, "k") as first, gateway.peer() as second:
        second.send(request_for("POST", "/pay", {"amount": 1}, "k", prefer))
        second.socket.settimeout(0.4)
        with pytest.raises(Broken):
            second.some()
        second.socket.settimeout(30)
        began = time.monotonic()
        origin.let_go("k")
        again = second.read()
        assert time.monotonic() - began < 9  # the shortest of the waits is 10 s
        assert again.is_replay and again.decision == "duplicate_replayed"
        assert first.read().body == again.body
    assert origin.effects["k"] == 1


def test_who_does_not_want_to_wait_does_not(gateway, origin):
    with in_flight(gateway, origin, "k") as first:
        began = time.monotonic()
        answer = gateway.post("k", headers={"Prefer": "wait=0"})
        assert time.monotonic() - began < 15
        assert answer.status == 409 and answer.decision == "in_progress"
        assert int(answer.fields["Retry-After"]) >= 1
        origin.let_go("k")
        assert first.read().status == 200


def test_a_wait_ends_with_its_time(gateway, origin):
    with in_flight(gateway, origin, "k") as first:
        began = time.monotonic()
        answer = gateway.post("k", headers={"Prefer": "respond-async, wait=1"})
        waited = time.monotonic() - began
        assert answer.status == 409 and answer.decision == "in_progress"
        assert 0.9 <= waited < 15 and int(answer.fields["Retry-After"]) >= 1
        origin.let_go("k")
        assert first.read().status == 200


@pytest.mark.parametrize("prefer", [{}, {"Prefer": "wait=60"}])
def test_a_wait_is_bounded_by_the_route(make_gateway, origin, prefer):
    gateway = make_gateway(routes=[{"match": "POST /**", "wait": "300ms"}])
    with in_flight(gateway, origin, "k") as first:
        began = time.monotonic()
        assert gateway.post("k", headers=prefer).status == 409
        assert 0.25 <= time.monotonic() - began < 15
        origin.let_go("k")
        assert first.read().status == 200


def test_one_that_waits_runs_it_when_the_first_did_not_happen(gateway, origin):
    with in_flight(gateway, origin, "k", "hold=1&status=503&effect=0") as first:
        with gateway.peer() as second:
            second.send(request_for("POST", "/pay", {"amount": 1}, "k", {"Prefer": "wait=10"}))
            time.sleep(0.2)
            origin.let_go("k")
            assert first.read().status == 503
            answer = second.read()
    assert answer.status == 200 and answer.decision == "first_seen" and origin.effects["k"] == 1


def test_one_that_waits_hears_that_nobody_knows(gateway, origin):
    with in_flight(gateway, origin, "k", "hold=1&fault=reset_after") as first:
        with gateway.peer() as second:
            second.send(request_for("POST", "/pay", {"amount": 1}, "k", {"Prefer": "wait=10"}))
            time.sleep(0.2)
            origin.let_go("k")
            assert first.read().json["effect"] == "unknown"
            answer = second.read()
    assert answer.status == 409 and answer.decision == "held_unknown" and origin.effects["k"] == 1


# --- Many at once ---------------------------------------------------------------------------------

def all_at_once(gateway, requests):
    """Send each on a connection of its own, together; the answers."""
    answers, barrier = [None] * len(requests), threading.Barrier(len(requests))

    def one(place):
        with gateway.peer() as peer:
            barrier.wait()
            peer.send(requests[place])
            answers[place] = peer.read()

    threads = [threading.Thread(target=one, args=(place,)) for place in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(answers)
    return answers


def test_thirty_plain_clients_at_once_all_get_the_one_answer(gateway, origin):
    """With the defaults: nobody has to ask, and none of them is a flood."""
    request = request_for("POST", "/pay", {"amount": 1}, "k", do="after_ms=300&size=2000")
    answers = all_at_once(gateway, [request] * 30)
    assert [answer.status for answer in answers] == [200] * 30
    assert len({answer.body for answer in answers}) == 1
    assert sum(answer.is_replay for answer in answers) == 29
    assert origin.effects["k"] == 1 and len(origin.requests) == 1


def test_fifty_duplicates_at_once_have_one_effect(make_gateway, origin):
    gateway = make_gateway(gateway={}, limits=DUPLICATES_FREE)
    request = request_for("POST", "/pay", {"amount": 1}, "k", {"Prefer": "wait=0"},
        do="after_ms=100")
    answers = all_at_once(gateway, [request] * ATONCE)
    decisions = [answer.decision for answer in answers]
    assert decisions.count("first_seen") == 1
    assert set(decisions) <= {"first_seen", "in_progress", "duplicate_replayed"}
    assert origin.effects["k"] == 1 and len(origin.requests) == 1
    assert len({answer.body for answer in answers if answer.status == 200}) == 1


def test_fifty_duplicates_that_wait_all_get_the_one_answer(make_gateway, origin):
    gateway = make_gateway(gateway={}, limits=DUPLICATES_FREE)
    request = request_for("POST", "/pay", {"amount": 1}, "k", do="after_ms=300&size=2000")
    answers = all_at_once(gateway, [request] * ATONCE)
    assert {answer.status for answer in answers} == {200}
    assert len({answer.body for answer in answers}) == 1
    assert sum(answer.is_replay for answer in answers) == ATONCE - 1 and origin.effects["k"] == 1


def test_many_keys_with_duplicates_at_once_have_one_effect_each(make_gateway, origin):
    gateway = make_gateway(gateway={}, limits=DUPLICATES_FREE)
    for turn in range(2 if LIGHT else 10):
        requests = [request_for("POST", "/pay", {"amount": 1}, f"k{turn}-{number}")
            for number in range(10)] * 5
        answers = all_at_once(gateway, requests)
        assert {answer.status for answer in answers} == {200}
    assert set(origin.effects.values()) == {1} and len(origin.effects) == turn * 10 + 10


# --- Floods ---------------------------------------------------------------------------------------

def test_a_flood_is_seen_while_its_duplicates_wait(make_gateway, origin):
    """They count when they begin to wait. Otherwise they could take every connection before the
    first one is answered."""
    gateway = make_gateway(gateway={}, limits={"duplicate_rate": 1, "duplicate_burst": 5})
    request = request_for("POST", "/pay", {"amount": 1}, "k")
    with in_flight(gateway, origin, "k") as first:
        waiting, refused = [], None
        while refused is None:  # on a busy machine the bucket has got another one meanwhile
            waiting.append(gateway.peer())
            waiting[-1].send(request)
            if select.select([waiting[-1].socket], [], [], 0.2)[0]:
                with waiting.pop() as peer:
                    refused = peer.read()
            assert len(waiting) < 20
        assert len(waiting) >= 5
        assert refused.status == 429 and int(refused.fields["Retry-After"]) >= 1
        origin.let_go("k")
        assert first.read().status == 200
        for peer in waiting:
            assert peer.read().is_replay
            peer.close()
    assert origin.effects["k"] == 1


def test_a_flood_of_one_key_is_429(make_gateway, origin):
    gateway = make_gateway(gateway={}, limits={"duplicate_rate": 5, "duplicate_burst": 10})
    first = gateway.post("k")
    with gateway.peer() as peer:
        peer.send(request_for("POST", "/pay", {"amount": 1}, "k") * 100)
        answers = [peer.read() for _ in range(100)]
    flooded = [answer for answer in answers if answer.status == 429]
    replayed = [answer for answer in answers if answer.status == 200]
    assert len(flooded) + len(replayed) == 100 and 10 <= len(replayed) <= 40
    for answer in flooded:
        assert int(answer.fields["Retry-After"]) >= 1 and answer.fields["Idempotency-Key"] == "k"
        assert answer.json["code"] == "too_many_duplicates" and answer.json["retry"] == "after"
        assert "Request-Id" in answer.fields
    assert all(answer.body == first.body for answer in replayed)
    assert gateway.post("other").status == 200 and origin.effects["k"] == 1
    time.sleep(1.2)
    assert gateway.post("k").is_replay  # the bucket fills again


def test_a_route_has_its_own_limit(make_gateway, origin):
    gateway = make_gateway(routes=[
        {"match": "POST /strict", "limits": {"duplicate_rate": 1, "duplicate_burst": 2}},
        {"match": "POST /free", "limits": {"duplicate_rate": 0}}])
    for path, some in (("/strict", True), ("/free", False)):
        statuses = {gateway.post("k", path=path).status for _ in range(60)}
        assert (429 in statuses) == some


# --- What is too large ----------------------------------------------------------------------------

def test_an_answer_that_is_too_large_to_keep_is_sealed_without_it(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /**", "limits": {"outcome_bytes_max": "64KiB"}}])
    first = gateway.post("k", do="size=1000000")
    assert first.status == 200 and first.body == origin.answers["k"] and len(first.body) > 1000000
    for _ in range(2):
        again = gateway.post("k", headers={"Request-Id": "r"})
        assert again.status == 410 and again.json["code"] == "outcome_not_retained"
        assert again.json["effect"] == "yes" and again.fields["Once-Effect"] == "yes"
        assert (again.fields["Idempotency-Key"], again.fields["Request-Id"]) == ("k", "r")
        assert again.decision == "duplicate_replayed"
    assert gateway.status_of("k") == "executed" and origin.effects["k"] == 1
    assert gateway.post("k", {"amount": 2}).status == 422
    fits = gateway.post("fits", do="size=1000")
    assert gateway.post("fits").body == fits.body


@pytest.mark.parametrize("status,effect", [(422, "no"), (500, "unknown")])
def test_a_failure_that_is_too_large_to_keep_is_not_called_executed(make_gateway, origin, status,
        effect):
    gateway = make_gateway(routes=[{"match": "POST /**", "limits": {"outcome_bytes_max": "64KiB"},
        "on_status": {"5xx": "seal"}}])
    assert gateway.post("k", do=f"status={status}&size=1000000").status == status
    again = gateway.post("k")
    assert again.status == 410 and again.json["code"] == "outcome_not_retained"
    assert again.json["effect"] == again.fields["Once-Effect"] == effect
    assert "executed" not in again.json["detail"] and gateway.status_of("k") == "failed"


def test_a_large_chunked_answer_that_is_not_kept_is_whole_all_the_same(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /**", "limits": {"outcome_bytes_max": "64KiB"}}])
    first = gateway.post("k", do="size=3000000&chunked=1")
    assert first.status == 200 and first.body == origin.answers["k"]
    assert gateway.post("k").status == 410 and origin.effects["k"] == 1


@pytest.mark.parametrize("framing", ["chunked=1", "chunked=1&chunk=65536", "until_close=1", "x=1"])
@pytest.mark.parametrize("kept_bytes", [65536, 200000, 230000, 262143, 300000, 1000000])
def test_a_long_answer_has_each_byte_once_however_turns_divide_it(make_gateway, origin, kept_bytes,
        framing):
    """The server takes 256 KiB of an answer in one turn. What was captured before the answer turned
    out to be too long ends before, at and after that; once it is full with the piece after it."""
    gateway = make_gateway(
        routes=[{"match": "POST /**", "limits": {"outcome_bytes_max": kept_bytes}}])
    do = f"body=binary&size=2000000&{framing}"
    for number, pause_s in enumerate([0, 0.3]):
        with gateway.peer() as peer:
            peer.send(request_for("POST", "/pay", {"amount": 1}, f"k{number}", do=do))
            time.sleep(pause_s)  # nothing of it is read meanwhile
            first = peer.read("POST")
        assert first.status == 200 and len(first.body) == 2000000
        assert first.body == origin.answers[f"k{number}"]


def test_a_body_that_is_too_large_is_413_and_nothing_happens(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /**", "limits": {"body_bytes_max": "10KiB"}}])
    body = json.dumps({"more": "x" * 20000})
    answer = gateway.post("k", body, headers={"Request-Id": "r"})
    assert answer.status == 413 and answer.json["effect"] == "no"
    assert answer.fields["Request-Id"] == "r"
    with gateway.peer() as peer:
        peer.send(b"POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n" + b"1000\r\n" + b"x" * 0x1000 + b"\r\n")
        try:
            for _ in range(4):
                peer.send(b"1000\r\n" + b"x" * 0x1000 + b"\r\n")
        except Broken:
            pass
        assert peer.read().status == 413
    assert origin.bytes_seen == 0 and gateway.operations() == []
