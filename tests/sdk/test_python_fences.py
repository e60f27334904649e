"""Fences from Python, against a real server."""
import http.server
import json
import queue
import threading

import pytest

import once
from once_server import until


@pytest.fixture
def fences(server):
    return once.Fences(server.url)


def operation(server, key):
    status, _, page = server.request("GET", f"/v1/operations?key={key}")
    assert status == 200 and len(page["operations"]) == 1
    return page["operations"][0]


def test_work_is_done_once_and_every_duplicate_gets_its_outcome(fences):
    calls = []
    first = fences.do("charge", "k", {"cents": 1}, lambda: calls.append(1) or {"id": (1, 2)})
    again = fences.do("charge", "k", {"cents": 1}, lambda: calls.append(2))
    assert (first.is_replayed, again.is_replayed) == (False, True)
    assert first.outcome == again.outcome == {"id": [1, 2]}
    assert first.operation_id == again.operation_id
    assert calls == [1]


def test_another_payload_is_a_conflict(fences):
    fences.do("charge", "k", {"cents": 1}, lambda: None)
    with pytest.raises(once.Conflict) as caught:
        fences.do("charge", "k", {"cents": 2}, lambda: pytest.fail("it ran"))
    assert caught.value.effect == "no"
    assert caught.value.document["diff"] == [{"op": "replace", "path": "/cents", "value": 2}]


def test_what_did_not_start_may_be_tried_again(fences, server):
    def work():
        raise once.NotStarted("no connection")

    with pytest.raises(once.NotStarted):
        fences.do("charge", "k", 1, work)
    assert operation(server, "k")["status"] == "released"
    assert fences.do("charge", "k", 1, lambda: "done").outcome == "done"


def test_a_failure_is_final(fences, server):
    def work():
        raise once.Failed({"why": "no money"})

    for _ in range(2):
        with pytest.raises(once.Failed) as caught:
            fences.do("charge", "k", 1, work)
        assert caught.value.outcome == {"why": "no money"}
        work = lambda: pytest.fail("it ran")  # noqa: E731
    assert operation(server, "k")["status"] == "failed"


def test_after_any_other_exception_nobody_knows_until_somebody_looked(fences, server):
    def work():
        raise RuntimeError("timed out\n")

    with pytest.raises(RuntimeError):
        fences.do("charge", "k", 1, work)
    assert operation(server, "k")["status"] == "unknown"
    with pytest.raises(once.OutcomeUnknown) as caught:
        fences.do("charge", "k", 1, lambda: pytest.fail("it ran"))
    assert caught.value.effect == "unknown"
    fences.resolve(caught.value.operation_id, "executed", "it is there", outcome={"id": 7})
    done = fences.do("charge", "k", 1, lambda: pytest.fail("it ran"))
    assert done.is_replayed and done.outcome == {"id": 7}


def test_an_outcome_that_is_not_json_leaves_it_unknown(fences, server):
    with pytest.raises(TypeError):
        fences.do("charge", "k", 1, lambda: object())
    assert operation(server, "k")["status"] == "unknown"


def test_the_context_manager(fences):
    outcomes = []
    for _ in range(2):
        with fences.guard("charge", "k", {"cents": 1}) as guard:
            if guard.is_first:
                guard.outcome = {"charge": len(outcomes)}
        outcomes.append((guard.is_first, guard.outcome))
    assert outcomes == [(True, {"charge": 0}), (False, {"charge": 0})]


def test_the_decorator(fences):
    calls = []

    @fences.once("charge", key=lambda order, cents=5: order)
    def charge(order, cents=5):
        """Charges."""
        calls.append(order)
        return {"charged": cents}

    assert charge("order-7") == charge("order-7", 5) == charge(order="order-7") == {"charged": 5}
    assert calls == ["order-7"] and charge.__doc__ == "Charges."
    with pytest.raises(once.Conflict):
        charge("order-7", 6)
    with pytest.raises(TypeError):
        @fences.once("charge", key=str)
        async def never():
            pass


class Fake(http.server.BaseHTTPRequestHandler):
    """Grants, notes renewals, and answers them with the status it is told."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status, document = 200, b"{}"
        if self.path == "/v1/fences":
            document = json.dumps({"decision": "first_seen", "operation_id": "op", "fence": 7,
                "attempt": 1, "lease_expires_at": "-"}).encode()
        elif self.path.endswith("/renew"):
            status, document = self.server.renew, b'{"code":"stale_fence","effect":"no"}'
            self.server.renewals.put(json.loads(body))
        self.send_response(status)
        self.send_header("Content-Length", str(len(document)))
        self.end_headers()
        self.wfile.write(document)

    def log_message(self, *_):
        pass


@pytest.fixture
def fake():
    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Fake)
    listener.renewals, listener.renew = queue.Queue(), 200
    threading.Thread(target=listener.serve_forever, args=(0.02,), daemon=True).start()
    yield listener
    listener.shutdown()
    listener.server_close()


def test_the_lease_is_renewed_while_the_work_runs(fake):
    fences = once.Fences(f"http://127.0.0.1:{fake.server_address[1]}")
    with fences.guard("charge", "k", 1, lease="60ms") as guard:
        for _ in range(3):
            assert fake.renewals.get(timeout=60) == {"fence": 7, "lease": "60ms"}
        assert not guard.is_lost
        fake.renew = 409
        until(lambda: guard.is_lost, "it is not told that it lost the grant", 60)
    before = fake.renewals.qsize()
    threading.Event().wait(0.1)
    assert fake.renewals.qsize() == before  # and not after its end


def test_work_may_take_many_leases(fences):
    def work():
        threading.Event().wait(1.5)
        return "done"

    for number in range(5):  # a machine that stalls for a lease is no fault
        try:
            assert fences.do("charge", f"k-{number}", 1, work, lease="500ms").outcome == "done"
            return
        except once.NotSealed:
            pass
    pytest.fail("no lease was held")


def test_begin_renew_and_seal_by_hand(fences, server):
    grant = fences.begin("mail", "k", {"to": "a"}, lease="5s")
    assert isinstance(grant, once.Grant)
    with pytest.raises(once.InProgress) as caught:
        fences.begin("mail", "k", {"to": "a"})
    assert caught.value.retry_after > 0
    grant.renew("60s")
    grant.seal({"sent": True}, effect_id="m-1")
    grant.seal({"sent": True}, effect_id="m-1")
    with pytest.raises(once.AlreadySealed):
        grant.seal({"sent": False})
    replay = fences.begin("mail", "k", {"to": "a"})
    assert isinstance(replay, once.Replay)
    assert (replay.status, replay.outcome, replay.effect_id) == ("executed", {"sent": True}, "m-1")


def test_a_stale_fence_changes_nothing(fences):
    first = fences.begin("mail", "k", 1)
    first.release("not yet")
    second = fences.begin("mail", "k", 1)
    assert second.fence > first.fence
    with pytest.raises(once.StaleFence):
        first.seal("late")
    second.seal("in time")
    assert fences.begin("mail", "k", 1).outcome == "in time"


def test_many_threads_do_it_once(fences):
    calls, outcomes = [], []

    def work():
        calls.append(1)
        return len(calls)

    def run():
        outcomes.append(fences.do("charge", "k", 1, work, wait="30s").outcome)

    threads = [threading.Thread(target=run) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == [1] and outcomes == [1] * 16


def test_a_key_from_a_source(fences, server):
    done = {"source_type": "stripe", "source_id": "evt_1", "revision": 3}
    grant = fences.begin("hook", payload=1, key_from=done)
    grant.seal("done")
    assert operation(server, once.source_key({"tenant_id": "default", **done}))["status"] \
        == "executed"


def test_nobody_listens():
    fences = once.Fences("http://127.0.0.1:1", client=once.Client(retries=1))
    with pytest.raises(once.Unavailable) as caught:
        fences.do("charge", "k", 1, lambda: pytest.fail("it ran"))
    assert caught.value.attempts == 2


def test_a_server_that_is_not_once_is_named(origin):
    fences = once.Fences(origin.url, client=once.Client(retries=0))
    with pytest.raises(once.OnceError):
        fences.begin("charge", "k", 1)


def test_what_is_done_and_cannot_be_recorded_is_said(make_server):
    server = make_server()
    fences = once.Fences(server.url, client=once.Client(retries=1))

    def work():
        server.kill9()
        return {"id": 1}

    with pytest.raises(once.NotSealed) as caught:
        fences.do("charge", "k", 1, work)
    assert caught.value.outcome == {"id": 1}
