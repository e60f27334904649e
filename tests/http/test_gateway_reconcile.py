"""Unknown operations that the upstream is asked about: by the janitor, and when a duplicate comes.

The upstream's own count of effects is the judge: whatever it answers, or does not, no key has a
second effect unless it said that there had been none.
"""
import concurrent.futures
import json
import socket
import threading
import time

import pytest
import stores
from once_gateway import DUPLICATES_FREE, request_for
from once_server import Broken, request_bytes, until
from stepping_clock import SteppingClock

ASK = {"get": "/by-key/{key}", "executed": [200], "not_executed": [404], "every": "200ms",
    "quiet": "0s", "every_max": "800ms"}
STEPS_S = (600, 30, -600)  # of the wall clock
QUICK = {"connect": "2s", "first_byte": "1500ms", "total": "3s"}  # a busy upstream answers
LOST = "fault=reset_after"  # it happened, and nobody heard of it
NOT_DONE = "fault=reset_before"  # it did not, and nobody knows


def route(match="POST /pay", **more):
    ask = {**ASK, **more.pop("reconcile", {})}
    return {"match": match, "on_unknown": "hold", "timeout": QUICK, "reconcile": ask, **more}


@pytest.fixture
def reconciling(make_gateway):
    def make(limits=None, **more):
        return make_gateway(routes=[route(**more)], limits={**DUPLICATES_FREE, **(limits or {})})
    return make


def questions(origin, key):
    return [one for one in origin.seen(key) if one.method == "GET"]


def wait_questions(origin, key, count=1, timeout_s=60):
    until(lambda: len(questions(origin, key)) >= count,
        f"fewer than {count} questions about {key!r}", timeout_s)
    return questions(origin, key)


def held(origin, gateway, key, do=LOST, neither=503):
    """An operation that stays unknown, because the upstream does not say what it knows."""
    origin.lookups[key] = (neither, b"busy")
    answer = gateway.post(key, do=do)
    assert answer.status in (502, 504), answer
    assert gateway.status_of(key) == "unknown"


def cut_off(gateway, key, **how):
    """The thread of a request that never gets an answer."""
    def send():
        with pytest.raises((Broken, OSError)):
            gateway.post(key, timeout_s=60, **how)
    thread = threading.Thread(target=send)
    thread.start()
    return thread


# --- What an answer means ---


def test_what_was_executed_is_settled_with_the_answer_as_its_outcome(origin, reconciling):
    gateway = reconciling()
    origin.lookups["a"] = (200, b'{"paid":true}')
    assert gateway.post("a", do=LOST).status == 504
    gateway.wait_status("a", "executed")
    replay = gateway.post("a")
    assert (replay.status, replay.body, replay.is_replay) == (200, b'{"paid":true}', True)
    assert replay.fields["Content-Type"] == "application/json"
    assert origin.effects["a"] == 1
    shown = gateway.shown("a")
    assert shown["reason"] == "reconciled: GET /by-key/a answered 200", shown


def test_what_was_not_executed_is_free_and_the_next_one_runs(origin, reconciling):
    gateway = reconciling()
    assert gateway.post("a", do=NOT_DONE).status == 504
    gateway.wait_status("a", "released")
    assert gateway.shown("a")["reason"] == "reconciled: GET /by-key/a answered 404"
    answer = gateway.post("a")
    assert (answer.status, answer.decision, origin.effects["a"]) == (200, "first_seen", 1)
    asked = questions(origin, "a")
    assert [one.get("Once-Fence") for one in asked] == [origin.requests[0].get("Once-Fence")]


def test_any_other_answer_settles_nothing(origin, reconciling):
    gateway = reconciling()
    others = [202, 301, 400, 403, 405, 409, 410, 429, 500, 503]
    for status in others:
        held(origin, gateway, f"k{status}", neither=status)
    for status in others:
        key = f"k{status}"
        wait_questions(origin, key, 2)
        assert gateway.status_of(key) == "unknown", status
        assert gateway.post(key).status == 409, status
        assert origin.effects[key] == 1, status


def test_a_broken_answer_settles_nothing_and_a_whole_one_does(origin, reconciling):
    gateway = reconciling()
    faults = ["fault=reset_before", "fault=half_head", "fault=half_body", "fault=half_chunk",
        "fault=hang", "fault=hang_body", "fault=garbage", "fault=two_lengths", "after_ms=2000",
        "fault=half_body&status=404", "fault=hang_body&status=404"]
    for key in faults:
        origin.does[key] = lambda one: one.key if one.method == "GET" else LOST
        assert gateway.post(key).status == 504, key
    for key in faults:
        wait_questions(origin, key, 2)
        assert gateway.status_of(key) == "unknown", key
    origin.does.clear()
    for key in faults:
        gateway.wait_status(key, "executed")
        assert origin.effects[key] == 1, key


def test_an_upstream_that_is_away_leaves_it_unknown(origin, make_gateway):
    gateway = make_gateway(routes=[route()], limits=DUPLICATES_FREE)
    held(origin, gateway, "a")
    origin.close()
    time.sleep(2)
    assert gateway.status_of("a") == "unknown"
    assert gateway.post("b").status == 502  # and others are not held up


# --- When ---


def test_pauses_double_and_it_is_settled_when_the_upstream_knows(origin, reconciling):
    gateway = reconciling(reconcile={"every": "400ms", "every_max": "1600ms"})
    held(origin, gateway, "a")
    asked = wait_questions(origin, "a", 7)
    pauses = [later.at - one.at for one, later in zip(asked, asked[1:])]
    assert sum(pauses) > 0.6 * (0.4 + 0.8 + 4 * 1.6), pauses  # a busy machine only adds to them
    assert min(pauses[3:]) < 3, pauses  # the fourth would be 3.2 and the sixth 12.8
    origin.lookups["a"] = (200, b"yes")
    gateway.wait_status("a", "executed")
    count = len(questions(origin, "a"))
    time.sleep(2.5)
    assert len(questions(origin, "a")) == count  # what is settled is not asked about


def test_after_a_restart_each_is_asked_about_at_once(origin, reconciling):
    gateway = reconciling(reconcile={"every": "1h", "every_max": "1h"})
    for number in range(40):
        held(origin, gateway, f"k{number}")
    for number in range(40):
        wait_questions(origin, f"k{number}")
    gateway.stop()
    for number in range(40):
        origin.lookups[f"k{number}"] = (200, b"%d" % number) if number % 2 else (404, b"")
    gateway.start()
    for number in range(40):
        gateway.wait_status(f"k{number}", "executed" if number % 2 else "released")
    assert [len(questions(origin, f"k{number}")) for number in range(40)] == [2] * 40


def by_socket(gateway, path, body):
    """(status, JSON) of a request over the socket of the store's directory."""
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(str(gateway.data_dir / "once.sock"))
        one.sendall(request_bytes("POST", path, body, {"Connection": "close"}))
        answer = b"".join(iter(lambda: one.recv(1 << 16), b""))
    head, _, content = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(content)


@stores.journal_only("its next process knows at once")
def test_what_a_killed_gateway_held_is_asked_about_when_the_next_one_starts(origin, make_gateway):
    """Its calls died with it, so nobody waits for their leases; others keep theirs."""
    gateway = make_gateway(routes=[route(lease="10m")], limits=DUPLICATES_FREE)
    status, fence = by_socket(gateway, "/v1/fences",
        {"scope": "elsewhere", "key": "f", "payload": {}, "lease": "10m"})
    assert status == 201, fence
    thread = cut_off(gateway, "a", do="after_ms=100000")
    origin.wait_for("a")
    gateway.kill9()
    thread.join()
    gateway.start()
    gateway.wait_status("a", "executed")  # minutes before its lease ends
    assert origin.effects["a"] == 1
    assert gateway.status_of("f") == "in_progress"
    status, sealed = by_socket(gateway, f"/v1/fences/{fence['operation_id']}/seal",
        {"fence": fence["fence"], "status": "executed"})
    assert status == 200, sealed
    gateway.stop()
    verified = gateway.cli("verify", "--redecide", "--store", gateway.store)
    assert verified.returncode == 0, verified


def test_a_reload_brings_something_to_ask(origin, make_gateway):
    plain = {name: value for name, value in route().items() if name != "reconcile"}
    gateway = make_gateway(routes=[plain], limits=DUPLICATES_FREE)
    origin.lookups["a"] = (200, b"yes")
    assert gateway.post("a", do=LOST).status == 504
    time.sleep(1)
    assert questions(origin, "a") == []
    gateway.rewrite(routes=[route()], limits=DUPLICATES_FREE)
    gateway.signal(1)
    gateway.wait_status("a", "executed")


@stores.journal_only("a due is found 10 s later elsewhere")
def test_no_more_than_sixteen_are_asked_at_a_time(origin, reconciling):
    gateway = reconciling(reconcile={"every": "1h", "every_max": "1h"},
        timeout={"connect": "2s", "first_byte": "20s", "total": "30s"})
    keys = [f"k{number}" for number in range(30)]
    for key in keys:
        origin.does[key] = lambda one: "hold=1" if one.method == "GET" else LOST
        assert gateway.post(key).status == 504
    def asked():
        return sum(len(questions(origin, key)) for key in keys)
    until(lambda: asked() >= 16, "not sixteen are asked about")
    time.sleep(1)
    assert asked() == 16
    for key in keys:
        del origin.does[key]
    origin.let_go()
    for key in keys:
        gateway.wait_status(key, "executed")
    assert {origin.effects[key] for key in keys} == {1}


# --- What is asked ---


def test_the_key_stays_in_its_place(origin, reconciling):
    gateway = reconciling()
    places = {"a/b?c=d&e": "/by-key/a%2Fb%3Fc%3Dd%26e", '"a b%\\"\\\\c"': "/by-key/a%20b%25%22%5Cc",
        "Aa0-._~": "/by-key/Aa0-._~", "...": "/by-key/..."}
    for key in places:
        assert gateway.post(key, do=LOST).status == 504, key
    for key, path in places.items():
        bare = origin_key(key)
        asked = wait_questions(origin, bare)
        assert (asked[0].target, asked[0].key) == (path, bare)
        gateway.wait_status(bare, "executed")


def origin_key(key):
    return key[1:-1].replace('\\"', '"').replace("\\\\", "\\") if key[0] == '"' else key


def test_a_key_that_leads_elsewhere_is_never_asked_about(origin, reconciling):
    gateway = reconciling(on_unknown="reconcile")
    keys = ["..", ".", "../health", "a/../../health", '"..\\\\health"', "..;x"]
    for key in keys:
        assert gateway.post(key, do=LOST).status == 504, key
    time.sleep(1.5)
    for key in keys:
        assert gateway.post(key).status == 409, key
        assert gateway.status_of(origin_key(key)) == "unknown", key
    assert [one for one in origin.requests if one.method == "GET"] == []


def test_every_place_of_a_template_has_the_key_and_the_reason_no_query(origin, reconciling):
    gateway = reconciling(reconcile={"get": "/find/{key}/x?key={key}&secret=s3"})
    assert gateway.post("a&b", do=LOST).status == 504
    asked = wait_questions(origin, "a&b")
    assert asked[0].target == "/find/a%26b/x?key=a%26b&secret=s3"
    gateway.wait_status("a&b", "executed")
    assert gateway.shown("a&b")["reason"] == "reconciled: GET /find/a%26b/x answered 200"


def test_a_question_says_who_asks_and_about_what(origin, reconciling, tmp_path):
    secret = tmp_path / "authorization"
    secret.write_text("Bearer s3cret\n")
    gateway = reconciling(reconcile={"authorization_file": str(secret)})
    held(origin, gateway, "a")
    one = wait_questions(origin, "a")[0]
    sent = origin.requests[0]
    assert one.get("Host") == f"127.0.0.1:{origin.port}"
    assert one.get("Authorization") == "Bearer s3cret"
    assert one.get("Once-Operation-Id") == sent.get("Once-Operation-Id")
    assert one.get("Once-Fence") == sent.get("Once-Fence")
    assert one.get("User-Agent").startswith("once/")
    assert len(one.get("Request-Id")) == 36 != sent.get("Request-Id")
    assert one.all("Content-Length") == one.all("Transfer-Encoding") == []
    second = wait_questions(origin, "a", 2)[1]
    assert second.get("Request-Id") != one.get("Request-Id")
    origin.lookups["a"] = (200, b"yes")
    gateway.wait_status("a", "executed")
    entries = gateway.cli("tail", "--json", "--store", gateway.store).stdout
    assert "s3cret" not in entries + gateway.stderr() + json.dumps(gateway.shown("a"))


def test_the_client_s_credentials_are_not_sent(origin, reconciling):
    gateway = reconciling()
    origin.lookups["a"] = (503, b"")
    gateway.post("a", do=LOST, headers={"Authorization": "Bearer client"})
    assert wait_questions(origin, "a")[0].get("Authorization") is None


def test_each_route_asks_with_a_credential_of_its_own(origin, make_gateway, tmp_path):
    """One upstream's secret is nothing for another."""
    names = ["first", "second", "none"]
    for name in names[:2]:
        (tmp_path / name).write_text(f"Bearer {name}\n")
    asks = [{"authorization_file": str(tmp_path / name)} for name in names[:2]] + [{}]
    gateway = make_gateway(limits=DUPLICATES_FREE, routes=[route(f"POST /{name}", reconcile=ask)
        for name, ask in zip(names, asks)])
    for name in names:
        origin.lookups[name] = (503, b"")
        assert gateway.post(name, path=f"/{name}", do=LOST).status == 504
    shown = [wait_questions(origin, name)[0].get("Authorization") for name in names]
    assert shown == ["Bearer first", "Bearer second", None]


@pytest.mark.parametrize("text, complaint", [(None, "cannot open authorization file"),
    ("", "is empty"), ("\n", "is empty"), ("a\nb\n", "is not one line of text"),
    ("x" * 20000, "is longer than")])
def test_an_authorization_file_that_cannot_be_used_stops_the_start(make_gateway, tmp_path, text,
        complaint):
    secret = tmp_path / "authorization"
    if text is not None:
        secret.write_text(text)
    with pytest.raises(AssertionError) as refused:
        make_gateway(routes=[route(reconcile={"authorization_file": str(secret)})])
    assert complaint in str(refused.value) and str(secret) in str(refused.value)


# --- Outcomes ---


def test_a_long_outcome_is_kept_whole(origin, reconciling):
    gateway = reconciling(timeout={"connect": "2s", "first_byte": "2s", "total": "20s"})
    body = bytes(range(256)) * 4096 * 2  # through a spool
    origin.lookups["a"] = (200, body)
    assert gateway.post("a", do=LOST).status == 504
    gateway.wait_status("a", "executed")
    assert gateway.post("a").body == body


@pytest.mark.parametrize("how", ["length", "chunked=1"])
def test_one_past_the_limit_is_known_to_have_happened(origin, reconciling, how):
    gateway = reconciling(limits={"outcome_bytes_max": "64KiB"})
    origin.lookups["a"] = (200, b"x" * 300000)
    origin.does["a"] = lambda one: how if one.method == "GET" else LOST
    assert gateway.post("a").status == 504
    gateway.wait_status("a", "executed")
    answer = gateway.post("a")
    assert (answer.status, answer.json["effect"]) == (410, "yes")
    assert origin.effects["a"] == 1


def test_a_long_no_is_a_no(origin, reconciling):
    gateway = reconciling()
    origin.lookups["a"] = (404, b"x" * 5000000)
    assert gateway.post("a", do=NOT_DONE).status == 504
    gateway.wait_status("a", "released")


def test_an_effect_s_own_name_is_kept(origin, reconciling):
    gateway = reconciling()
    origin.does["a"] = lambda one: ("field=Once-Effect-Id:pay_7&field=ETag:\"x\"&cookie=1"
        if one.method == "GET" else LOST)
    assert gateway.post("a").status == 504
    gateway.wait_status("a", "executed")
    del origin.does["a"]
    replay = gateway.post("a")
    assert (replay.fields["ETag"], replay.all("Set-Cookie")) == ('"x"', [])
    assert gateway.shown("a")["effect_id"] == "pay_7"


# --- Routes ---


def test_routes_ask_their_own_and_those_without_ask_nothing(origin, make_gateway):
    gateway = make_gateway(limits=DUPLICATES_FREE, routes=[
        route("POST /one", tenant="t1", reconcile={"get": "/by-key/{key}?of=one"}),
        route("PUT /two/*", tenant="t2", reconcile={"get": "/by-key/{key}?of=two"}),
        {"match": "POST /three", "timeout": QUICK}])
    sent = [("a", "POST", "/one"), ("b", "PUT", "/two/x"), ("c", "POST", "/three")]
    for key, method, path in sent:
        origin.lookups[key] = (503, b"")
        assert gateway.send(method, path, {"amount": 1}, key, do=LOST).status == 504
    assert wait_questions(origin, "a")[0].target == "/by-key/a?of=one"
    assert wait_questions(origin, "b")[0].target == "/by-key/b?of=two"
    assert questions(origin, "c") == []


def test_a_path_too_long_for_a_scope_is_found_again(origin, make_gateway):
    path = "/" + "x" * 400
    gateway = make_gateway(limits=DUPLICATES_FREE,
        routes=[route("POST /x*y", reconcile={"get": "/wrong/{key}"}), route(f"POST {path}/*")])
    assert gateway.send("POST", f"{path}/z", {"amount": 1}, "a", do=LOST).status == 504
    gateway.wait_status("a", "executed")
    assert {one.path for one in questions(origin, "a")} == {"/by-key/a"}


def test_an_answer_about_one_attempt_settles_no_later_one(origin, reconciling):
    gateway = reconciling(timeout={"connect": "2s", "first_byte": "20s", "total": "30s"})
    origin.does["a"] = lambda one: "hold=1&status=404" if one.method == "GET" else NOT_DONE
    assert gateway.post("a").status == 504
    wait_questions(origin, "a")
    gateway.resolve("a", "not_executed")  # somebody was faster
    origin.does["a"] = lambda one: "status=503" if one.method == "GET" else LOST
    assert gateway.post("a").status == 504  # a second attempt, with another fence, and it happened
    assert (gateway.status_of("a"), len(questions(origin, "a"))) == ("unknown", 1)
    origin.let_go()
    asked = wait_questions(origin, "a", 2)
    assert int(asked[1].get("Once-Fence")) > int(asked[0].get("Once-Fence"))
    assert (gateway.status_of("a"), gateway.post("a").status) == ("unknown", 409)
    assert origin.effects["a"] == 1


def test_what_somebody_settles_meanwhile_stays(origin, reconciling):
    gateway = reconciling(timeout={"connect": "2s", "first_byte": "20s", "total": "30s"})
    origin.does["a"] = lambda one: "hold=1&status=404" if one.method == "GET" else LOST
    assert gateway.post("a").status == 504
    wait_questions(origin, "a")
    gateway.resolve("a", "executed")
    origin.let_go()
    time.sleep(1)
    assert gateway.status_of("a") == "executed"
    assert gateway.shown("a")["reason"] == "looked"


# --- On demand ---


def test_a_duplicate_asks_and_gets_the_outcome(origin, reconciling):
    gateway = reconciling(on_unknown="reconcile", reconcile={"every": "1h", "every_max": "1h"})
    held(origin, gateway, "a")
    wait_questions(origin, "a")  # the janitor's only one
    origin.lookups["a"] = (200, b"paid")
    replay = gateway.post("a")
    assert (replay.status, replay.body, replay.is_replay) == (200, b"paid", True)
    assert (len(questions(origin, "a")), origin.effects["a"]) == (2, 1)


def test_a_duplicate_runs_when_there_was_nothing(origin, reconciling):
    gateway = reconciling(on_unknown="reconcile", reconcile={"every": "1h", "every_max": "1h"})
    held(origin, gateway, "a", do=NOT_DONE)
    wait_questions(origin, "a")
    origin.lookups["a"] = (404, b"")
    answer = gateway.post("a")
    assert (answer.status, answer.decision, origin.effects["a"]) == (200, "first_seen", 1)


def test_a_duplicate_is_told_when_nobody_knows(origin, reconciling):
    gateway = reconciling(on_unknown="reconcile", reconcile={"every": "30s", "every_max": "1h"})
    held(origin, gateway, "a")
    wait_questions(origin, "a")
    answer = gateway.post("a")
    assert (answer.status, answer.decision) == (409, "held_unknown")
    assert answer.fields["Retry-After"] == "30" and answer.json["retry"] == "after"
    assert len(questions(origin, "a")) == 2


@pytest.mark.parametrize("do, status", [(LOST, 200), (NOT_DONE, 404)])
def test_twenty_duplicates_at_once_ask_one_question(origin, reconciling, do, status):
    gateway = reconciling(on_unknown="reconcile", reconcile={"every": "1h", "every_max": "1h"},
        timeout={"connect": "2s", "first_byte": "10s", "total": "20s"})
    held(origin, gateway, "a", do=do)
    wait_questions(origin, "a")
    origin.lookups["a"] = (status, b"known")
    origin.does["a"] = lambda one: "after_ms=700" if one.method == "GET" else ""
    answers, threads = [], []
    for _ in range(20):
        threads.append(threading.Thread(target=lambda: answers.append(gateway.post("a"))))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert len(questions(origin, "a")) == 2  # the janitor's, and one for all of them
    assert origin.effects["a"] == 1
    assert [one.status for one in answers] == [200] * 20  # all have waited for it
    assert len([one for one in answers if one.decision == "first_seen"]) == (status == 404)


@pytest.mark.parametrize("first", [200, 500])
def test_a_duplicate_waits_for_the_question_that_is_asked_already(origin, reconciling, first):
    """And asks once more if that one's answer says nothing: it may be older than the duplicate."""
    gateway = reconciling(on_unknown="reconcile", reconcile={"every": "1h", "every_max": "1h"},
        timeout={"connect": "2s", "first_byte": "10s", "total": "20s"})
    first_question = threading.Event()
    def do(one):
        if one.method != "GET":
            return LOST
        is_first = not first_question.is_set()
        first_question.set()
        return "hold=1" if is_first else ""
    origin.does["a"] = do
    held(origin, gateway, "a", neither=first)
    assert first_question.wait(60)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(gateway.post("a")))
    thread.start()
    time.sleep(0.2)
    assert answers == []
    origin.lookups["a"] = (200, b"known")
    origin.let_go()
    thread.join()
    body = b"busy" if first == 200 else b"known"
    assert (answers[0].status, answers[0].body, answers[0].is_replay) == (200, body, True)
    assert (len(questions(origin, "a")), origin.effects["a"]) == (1 if first == 200 else 2, 1)


def test_a_client_that_goes_away_stops_no_question(origin, reconciling):
    gateway = reconciling(on_unknown="reconcile", reconcile={"every": "1h", "every_max": "1h"},
        timeout={"connect": "2s", "first_byte": "10s", "total": "20s"})
    held(origin, gateway, "a")
    wait_questions(origin, "a")
    origin.lookups["a"] = (200, b"paid")
    origin.does["a"] = "hold=1"
    with gateway.peer() as peer:
        peer.send(request_for("POST", "/pay", {"amount": 1}, "a"))
        wait_questions(origin, "a", 2)
    time.sleep(0.1)  # the gateway sees that it is gone
    origin.let_go()
    gateway.wait_status("a", "executed")
    assert origin.effects["a"] == 1


# --- Ends ---


def test_a_server_ends_cleanly_with_questions_under_way(origin, reconciling):
    gateway = reconciling(timeout={"connect": "2s", "first_byte": "60s", "total": "120s"})
    for number in range(20):
        origin.does[f"k{number}"] = lambda one: "hold=1" if one.method == "GET" else LOST
        assert gateway.post(f"k{number}").status == 504
    wait_questions(origin, "k0")
    started = time.monotonic()
    gateway.stop()
    assert time.monotonic() - started < 20
    origin.does.clear()
    origin.let_go()
    gateway.start()
    for number in range(20):
        gateway.wait_status(f"k{number}", "executed")
        assert origin.effects[f"k{number}"] == 1


def test_a_server_ends_cleanly_at_any_moment_of_a_round(origin, reconciling):
    gateway = reconciling(reconcile={"every": "10ms", "every_max": "20ms"})
    keys = [f"k{number}" for number in range(30)]
    for key in keys:
        held(origin, gateway, key)
        origin.does[key] = f"after_ms={7 * len(key)}"
    for number in range(12):
        gateway.stop()
        gateway.start()
        time.sleep(0.07 * number)  # in the middle of pages, questions and pauses
    origin.lookups.clear()
    for key in keys:
        gateway.wait_status(key, "executed")
    assert {origin.effects[key] for key in keys} == {1}


def test_killed_at_any_moment_of_a_question_it_is_asked_again(origin, reconciling):
    gateway = reconciling()
    for number in range(8):
        key = f"k{number}"
        do = NOT_DONE if number % 2 else LOST
        origin.does[key] = lambda one, do=do: "after_ms=150" if one.method == "GET" else do
        assert gateway.post(key).status == 504
        wait_questions(origin, key)
        time.sleep(0.02 * number + 0.05)  # before the answer, at it, and behind it
        gateway.kill9()
        gateway.start()
        gateway.wait_status(key, "released" if number % 2 else "executed")
        assert origin.effects[key] == 1 - number % 2
    verified = gateway.cli("verify", "--redecide", "--store", gateway.store)
    assert verified.returncode == 0, verified


def test_the_log_says_what_was_settled_and_what_was_not(origin, reconciling):
    gateway = reconciling()
    held(origin, gateway, "a")
    wait_questions(origin, "a")
    origin.lookups["a"] = (200, b"yes")
    gateway.wait_status("a", "executed")
    gateway.stop()
    lines = [json.loads(line) for line in gateway.stderr().splitlines() if line.startswith("{")]
    still_open = [one for one in lines if one.get("event") == "reconcile_open"]
    settled = [one for one in lines if one.get("request") == "resolve"]
    assert still_open and still_open[0]["status"] == 503, lines
    assert [(one["decision"], one["idempotency_key"], one["actor"]) for one in settled] == [
        ("resolved", "a", "reconcile")]


def test_a_no_is_believed_only_when_the_first_attempt_can_no_longer_come(origin, reconciling):
    """The upstream works longer than the gateway waits, and meanwhile knows of nothing."""
    gateway = reconciling(reconcile={"quiet": "15s", "every": "100ms"})
    origin.lookups["k"] = (404, b"no such payment")
    assert gateway.post("k", do="before_ms=2500").status == 504
    wait_questions(origin, "k", 3)
    assert gateway.status_of("k") == "unknown"
    origin.wait_effect("k")
    del origin.lookups["k"]  # now it knows
    gateway.wait_status("k", "executed")
    assert gateway.post("k").is_replay and origin.effects["k"] == 1


def test_a_question_may_name_the_operation(origin, reconciling):
    gateway = reconciling(reconcile={"get": "/by-key/{key}?of={operation_id}"})
    lost = gateway.post("k", do=LOST)
    gateway.wait_status("k", "executed")
    asked = wait_questions(origin, "k")[0]
    assert asked.target.endswith("?of=" + lost.fields["Once-Operation-Id"])


# --- A wall clock that steps ---


@pytest.fixture(params=[False, True], ids=["goes on", "restarts"])
def stepped(request, make_gateway, tmp_path):
    """stepped(do, check, quiet_s) has check(gateway, key, unknown_at) find an operation that became
    unknown before the clock stepped, each step on a gateway of its own, all at once. A duplicate
    asks as well."""
    def one(gateway, clock, step_s, do, check):
        assert gateway.post(f"k{step_s}", do=do).status == 504
        unknown_at = time.monotonic()
        if request.param:
            gateway.kill9()
        clock.step(step_s)
        if request.param:
            gateway.start()
        check(gateway, f"k{step_s}", unknown_at)

    def all_steps(do, check, quiet_s):
        ask = {"quiet": f"{quiet_s}s", "every": "100ms", "every_max": "200ms"}
        with concurrent.futures.ThreadPoolExecutor() as pool:
            for done in [pool.submit(one, gateway, clock, step_s, do, check)
                         for gateway, clock, step_s in gateways(ask)]:
                done.result()

    def gateways(ask):
        for step_s in STEPS_S:
            (tmp_path / str(step_s)).mkdir()
            clock = SteppingClock(tmp_path / str(step_s))
            yield make_gateway(routes=[route(reconcile=ask, on_unknown="reconcile")],
                limits=DUPLICATES_FREE, env=clock.env), clock, step_s

    return all_steps


def test_a_clock_that_steps_makes_no_second_effect(origin, stepped):
    """The first request still runs in the upstream, which meanwhile knows of nothing."""
    for step_s in STEPS_S:
        origin.lookups[f"k{step_s}"] = (404, b"no such payment")

    def check(gateway, key, _):
        wait_questions(origin, key, len(questions(origin, key)) + 3)
        assert gateway.status_of(key) == "unknown"
        assert gateway.post(key).status == 409
        origin.wait_effect(key)
        del origin.lookups[key]  # now it knows
        gateway.wait_status(key, "executed")
        assert gateway.post(key).is_replay and origin.effects[key] == 1

    stepped("before_ms=3000", check, quiet_s=15)


def test_a_clock_that_steps_holds_no_key_for_longer(origin, stepped):
    def check(gateway, key, unknown_at):
        gateway.wait_status(key, "released", timeout_s=60)
        assert time.monotonic() - unknown_at > 3.5  # quiet; once a second it looks what is due
        assert gateway.post(key).status == 200 and origin.effects[key] == 1

    stepped(NOT_DONE, check, quiet_s=4)


@stores.journal_only("a due is found 10 s later elsewhere")
def test_quiet_counts_from_when_it_became_unknown_not_from_when_it_began(origin, make_gateway):
    """A slow call: most of the time between the request and the first question is the call's."""
    ask = {"quiet": "7s", "every": "100ms", "every_max": "200ms"}
    slow = {"connect": "2s", "first_byte": "6s", "total": "6s"}
    gateway = make_gateway(routes=[route(reconcile=ask, timeout=slow)], limits=DUPLICATES_FREE)
    held(origin, gateway, "before")  # from here on the gateway watches the engine's time
    wait_questions(origin, "before")
    origin.lookups["k"] = (404, b"no such payment")
    assert gateway.post("k", do="before_ms=8000").status == 504
    wait_questions(origin, "k", 3)
    assert gateway.status_of("k") == "unknown"
    origin.wait_effect("k")
    assert gateway.status_of("k") == "unknown"
    del origin.lookups["k"]
    gateway.wait_status("k", "executed")
    assert origin.effects["k"] == 1
