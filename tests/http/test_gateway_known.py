"""A loop remembers which keys it has seen sealed, to do less for a replay. It decides nothing: not
about keys that have expired, other payloads, other principals, or other settings."""
import signal

from once_gateway import DUPLICATES_FREE, request_for
from once_server import until

ONE = {"loops": 1}  # so that the loop that answers has seen what was sealed
PAYMENT = {"amount": 100, "nonce": 1}


def replay(gateway, key, body, first, **how):
    answer = gateway.post(key, body, **how)
    assert answer.is_replay and (answer.status, answer.body) == (first.status, first.body), answer
    return answer


def test_a_known_key_is_replayed_in_any_spelling_and_no_other_payload(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /**", "profile": "ops"}], more=ONE)
    first = gateway.post("k", PAYMENT)
    for _ in range(3):
        replay(gateway, "k", PAYMENT, first)
        replay(gateway, "k", ' { "nonce" : 1.0, "amount":1e2 }', first)
        conflict = gateway.post("k", {**PAYMENT, "amount": 200})
        assert conflict.decision == "conflict_rejected" and conflict.json["differs"] == ["body"]
        assert conflict.json["diff"] == [{"op": "replace", "path": "/amount", "value": 200}]
        # The same bytes, as no JSON; with a query; at a different path.
        for path, more in (("/pay", {"Content-Type": "text/plain"}), ("/pay?x=1", {})):
            other = gateway.post("k", PAYMENT, path=path, headers=more)
            assert other.decision == "conflict_rejected", other
    assert gateway.post("k", PAYMENT, path="/refund").decision == "first_seen"
    assert origin.total == 2


def test_a_known_key_whose_window_is_over_is_a_new_operation(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /**", "window": "2s"}],
        limits=DUPLICATES_FREE, more=ONE)
    first = gateway.post("k", PAYMENT)
    replay(gateway, "k", PAYMENT, first)
    until(lambda: gateway.post("k", PAYMENT).decision == "first_seen", "it does not expire")
    assert origin.effects["k"] == 2
    # The new operation kept its request: a conflict with it is explained.
    conflict = gateway.post("k", {**PAYMENT, "amount": 200})
    assert conflict.decision == "conflict_rejected" and conflict.json["differs"] == ["body"]


def test_a_known_key_that_was_granted_again_is_not_replayed_early(make_gateway, origin):
    """Its window is over; the new attempt is refused, under way, and free again."""
    gateway = make_gateway(routes=[{"match": "POST /**", "window": "2s",
        "on_status": {"503": "release"}}], limits=DUPLICATES_FREE, more=ONE)
    first = gateway.post("k", PAYMENT)
    replay(gateway, "k", PAYMENT, first)
    until(lambda: gateway.post("k", PAYMENT, do="status=503").status == 503, "it does not expire")
    with gateway.peer() as held:
        held.send(request_for("POST", "/pay", PAYMENT, "k", do="hold=1"))
        origin.wait_for("k")
        assert gateway.post("k", PAYMENT).decision == "in_progress"
        origin.let_go("k")
        second = held.read()
    assert second.decision == "first_seen"
    replay(gateway, "k", PAYMENT, second)


def test_a_key_of_one_principal_is_not_known_for_a_different_one(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /**", "principal": "authorization"}], more=ONE)
    ann, bob = {"Authorization": "Bearer ann"}, {"Authorization": "Bearer bob"}
    first = gateway.post("k", PAYMENT, headers=ann)
    replay(gateway, "k", PAYMENT, first, headers=ann)
    other = gateway.post("k", PAYMENT, headers=bob)
    assert other.decision == "first_seen" and origin.total == 2
    replay(gateway, "k", PAYMENT, first, headers=ann)
    replay(gateway, "k", PAYMENT, other, headers=bob)
    assert other.fields["Once-Operation-Id"] != first.fields["Once-Operation-Id"]


def test_what_was_known_before_a_reload_is_read_again(make_gateway, origin):
    """Which members count is part of the configuration."""
    gateway = make_gateway(routes=[{"match": "POST /**", "ignore": ["/nonce"]}], more=ONE)
    first = gateway.post("k", PAYMENT)
    replay(gateway, "k", PAYMENT, first)
    replay(gateway, "k", {**PAYMENT, "nonce": 2}, first)
    gateway.rewrite(routes=[{"match": "POST /**"}], more=ONE)
    gateway.signal(signal.SIGHUP)
    until(lambda: gateway.post("k", {**PAYMENT, "nonce": 2}).decision == "conflict_rejected",
        "not reloaded")
    # What was compared without its nonce is a different body now, also in the bytes known before.
    assert gateway.post("k", PAYMENT).decision == "conflict_rejected"
    replay(gateway, "k", {"amount": 100}, first)
    assert origin.total == 1


def test_a_key_is_replayed_by_loops_that_know_it_and_by_those_that_do_not(make_gateway, origin):
    gateway = make_gateway(limits=DUPLICATES_FREE, more={"loops": 2})
    peers = [gateway.peer() for _ in range(8)]
    try:
        for number in range(10):
            key = f"k{number}"
            firsts = [peers[number % len(peers)], *peers, *peers]
            answers = []
            for peer in firsts:
                peer.send(request_for("POST", "/pay", PAYMENT, key))
                answers.append(peer.read())
            assert [answer.is_replay for answer in answers] == [False] + [True] * 16
            assert len({answer.body for answer in answers}) == 1
            assert origin.effects[key] == 1
    finally:
        for peer in peers:
            peer.socket.close()


def test_a_replay_of_a_known_key_has_its_entry_and_is_decided_again(make_gateway, origin):
    gateway = make_gateway(more=ONE)
    gateway.post("k", PAYMENT)
    for _ in range(4):
        gateway.post("k", PAYMENT)
    assert gateway.shown("k")["duplicates"] == 4
    gateway.stop()
    done = gateway.cli("verify", "--redecide", "--json", "--store", gateway.store)
    assert done.returncode == 0, done
