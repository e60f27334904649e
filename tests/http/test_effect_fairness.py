"""Turns, pauses and limits of the dispatcher (docs/effects.md): no backlog delays somebody else's
first, a provider that was down is not overrun when it comes back, and nothing is ever dropped."""
import hashlib
import statistics
import threading
import time

import pytest

from effects_help import ACKNOWLEDGED, KEYED, Effects, config_of
from once_server import LIGHT, LONG, until

BACKLOG = 150_000 if LONG else 150 if LIGHT else 2000
SLOTS = 4
MORE = """
  mail.send: {connector: pay, request: {path: "/mails", headers: {X-Key: "{idempotency_key}"}}}
auth:
  tokens:
    - {sha256: %s, tenant: acme, rights: [execute, operate], name: a}
    - {sha256: %s, tenant: beta, rights: [execute, operate], name: b}
limits: {duplicate_rate: 0}
""" % tuple(hashlib.sha256(word).hexdigest() for word in (b"acme", b"beta"))


def create(server, token, numbers, prefix, effect_type="payment.capture"):
    with server.wire() as wire:
        for number in numbers:
            status, _, answer = wire.request("POST", "/v1/effects", {"effect_type": effect_type,
                "idempotency_key": f"{prefix}{number}", "target": {"order_id": "o"},
                "payload": {}}, headers={"Authorization": "Bearer " + token})
            assert status == 202, answer


def many(server, token, count, prefix):
    threads = [threading.Thread(target=create, args=(server, token, range(first, count, 8), prefix))
        for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_backlog_does_not_delay_the_first_of_somebody_else(make_server, make_provider,
                                                             restarted):
    provider = make_provider(keeps=True, slow_s=0.02)
    provider.always = "slow"
    server = make_server(config=config_of(provider, KEYED, f"concurrency: {SLOTS}", "rate: 0",
        more=MORE))
    provider.slow_s = 5  # however long it takes to create them
    many(server, "acme", BACKLOG, "k")
    assert len(provider.effects) < BACKLOG  # there is a backlog
    provider.slow_s = 0.02
    if restarted:
        server.kill9()
        server.start()
        until(lambda: len(provider.requests) > len(provider.effects), "it does not go on")
    for token, effect_type, key in (("beta", "payment.capture", "tenant"),
            ("acme", "mail.send", "type")):
        begun = time.monotonic()
        create(server, token, [0], key, effect_type)
        before = len(provider.requests)  # others went on while it was created
        until(lambda: provider.of(f"{key}0"), "it waits")
        at = next(number for number, one in enumerate(provider.requests)
            if one["key"] == f"{key}0")
        # Those that were under way or claimed already, and its turn among the lanes.
        assert at - before <= 8 * SLOTS, at - before
        print(f"{BACKLOG}, {key}: {provider.requests[at]['at'] - begun:.3f} s")
        assert not LONG or provider.requests[at]["at"] - begun < 1


def test_everything_in_a_backlog_happens_once(make_server, make_provider):
    count = 20_000 if LONG else 100 if LIGHT else 600
    provider = make_provider(keeps=False)
    server = make_server(config=config_of(provider, "concurrency: 16", "rate: 0", more=MORE))
    many(server, "acme", count, "k")
    until(lambda: len(provider.effects) == count, "some are missing", 600)
    assert set(provider.effects.values()) == {1} and len(provider.requests) == count


def test_a_herd_does_not_come_back_at_once(make_server, make_provider):
    """Down for a while (a minute, in the long tier): few calls meanwhile, one probe at a time, and
    then no more at once than the connector allows."""
    down_s, pause_s = (60, 5) if LONG else (4, 1)
    provider = make_provider(keeps=True, slow_s=0.05)
    effects = Effects(make_server(config=config_of(provider, KEYED,
        f"breaker: {{failures: 3, pause: {pause_s}s}}", f"concurrency: {SLOTS}", "rate: 0").replace(
        "attempts: 4, backoff: 50ms, backoff_max: 200ms",
        "attempts: 100, backoff: 50ms, backoff_max: 1s")))
    provider.always = "503"
    begun = time.monotonic()
    ids = [effects.put(f"k{number}") for number in range(60)]
    time.sleep(down_s)
    down = list(provider.requests)
    down_s = time.monotonic() - begun
    assert 3 <= len(down) <= 3 + SLOTS + down_s / pause_s + 1, len(down)
    provider.at_once_max = 0
    provider.always = "slow"
    back = time.monotonic()
    for one in ids:
        effects.settled(one, ACKNOWLEDGED)
    up = [one["at"] for one in provider.requests[len(down):]]
    assert up[1] - up[0] >= provider.slow_s * 0.9  # the probe was alone
    assert provider.at_once_max <= SLOTS
    assert set(provider.effects.values()) == {1} and len(provider.effects) == 60
    print(f"down {down_s:.1f} s: {len(down)} calls; back after {up[0] - back:.2f} s")
    shown = effects.server.request("GET", "/metrics")[2]
    assert 'once_dispatch_breaker{kind="effects",target="pay",state="closed"} 1' in shown


def test_pauses_are_spread_over_their_range(make_server, make_provider):
    """Full jitter: of many that failed at once, the second attempts come over the whole range."""
    provider = make_provider(keeps=True)
    effects = Effects(make_server(config=config_of(provider, KEYED, "concurrency: 64", "rate: 0",
        "breaker: {failures: 0, pause: 1s}").replace("attempts: 4, backoff: 50ms, backoff_max: "
        "200ms", "attempts: 3, backoff: 4s, backoff_max: 4s")))
    keys = [f"k{number}" for number in range(40 if LIGHT else 120)]
    for key in keys:
        provider.script(key, "503")
        effects.put(key)
    until(lambda: len(provider.effects) == len(keys), "they did not all happen")
    pauses = [second["at"] - first["at"] for first, second in map(provider.of, keys)]
    assert all(len(provider.of(key)) == 2 for key in keys)
    assert min(pauses) < 1 < 3 < max(pauses) < 4 + 5  # the cap, and a loaded machine
    assert 1 < statistics.mean(pauses) < 3.5


def test_a_limit_refuses_by_its_name_and_drops_nothing(make_server, make_provider):
    provider = make_provider(keeps=True, slow_s=0.01)
    provider.always = "slow"
    server = make_server(config=config_of(provider, KEYED) + "limits: {keys_max: 20}\n")
    effects, taken = Effects(server), []
    for number in range(30):
        status, _, answer = server.request("POST", "/v1/effects", {"effect_type":
            "payment.capture", "idempotency_key": f"k{number}", "target": {"order_id": "o"},
            "payload": {}})
        if status == 202:
            taken.append(answer["effect_id"])
        else:
            assert status == 503 and "keys_max" in answer["detail"], answer
            assert answer["effect"] == "no"
    assert len(taken) == 20
    for one in taken:
        effects.settled(one, ACKNOWLEDGED)
    assert set(provider.effects.values()) == {1} and len(provider.effects) == 20


# --- Claimed with the commit that creates them ---

def test_an_effect_is_created_and_claimed_in_one_commit(make_server, make_provider):
    provider = make_provider(keeps=True)
    server = make_server(config=config_of(provider, KEYED))
    effects = Effects(server)
    for number in range(4):  # two commits in one millisecond would be luck
        effect_id = effects.put(f"k{number}")
        effects.settled(effect_id, ACKNOWLEDGED)
        entries = server.request("GET", f"/v1/evidence?operation_id={effect_id}")[2]["entries"]
        created, dispatched = entries[:2]
        assert [created["type"], dispatched["type"]] == ["effect.created", "effect.dispatched"]
        assert dispatched["seq"] == created["seq"] + 1
        assert dispatched["occurred_at"] == created["occurred_at"]
    assert provider.effects == {f"k{number}": 1 for number in range(4)}
    server.stop()
    checked = server.cli("verify", "--redecide", "--store", server.store)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_what_creates_nothing_gives_its_place_back(make_server, make_provider):
    """The place is taken before it is known that there is nothing to send."""
    provider = make_provider(keeps=True)
    effects = Effects(make_server(config=config_of(provider, KEYED, "concurrency: 1")))
    effects.settled(effects.put("first"), ACKNOWLEDGED)
    for _ in range(3):
        effects.put("first")  # a duplicate
        status, _, answer = effects.server.request("POST", "/v1/effects", {"effect_type":
            "payment.capture", "idempotency_key": "first", "target": {"order_id": "o-1"},
            "payload": {"amount": 6}})
        assert status == 409, answer
    effects.settled(effects.put("second"), ACKNOWLEDGED)
    assert provider.effects == {"first": 1, "second": 1} and len(provider.requests) == 2


def test_what_creates_nothing_gives_its_rate_back(make_server, make_provider):
    provider = make_provider(keeps=True)
    effects = Effects(make_server(config=config_of(provider, KEYED, "rate: 1")))
    effects.settled(effects.put("first"), ACKNOWLEDGED)
    time.sleep(1.1)  # its one call a second may be made again
    effects.put("first")
    time.sleep(0.1)
    second = effects.put("second")
    effects.settled(second, ACKNOWLEDGED)
    entries = effects.server.request("GET", f"/v1/evidence?operation_id={second}")[2]["entries"]
    assert [one["type"] for one in entries[:2]] == ["effect.created", "effect.dispatched"]
    assert entries[0]["occurred_at"] == entries[1]["occurred_at"], "it waited for its rate"


def test_what_is_new_does_not_pass_what_waits(make_server, make_provider):
    """The rate lets the next one go every few milliseconds: it is the one that waits longest."""
    provider, seconds = make_provider(keeps=True), 1.0 if LIGHT else 2.0
    server = make_server(config=config_of(provider, KEYED, "rate: 50", "concurrency: 1", more=MORE))
    begun, count = time.monotonic(), 0
    while (passed := time.monotonic() - begun) < seconds or len(provider.requests) < 60 or (
            len(provider.requests) == count and passed < 60):
        create(server, "acme", range(count, count + 4), "k")
        count += 4
    sent = [one["key"] for one in list(provider.requests)]
    assert len(sent) < count  # some wait
    assert sent == [f"k{number}" for number in range(len(sent))]
