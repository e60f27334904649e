"""Effects and the ends of processes: killed at each step of an effect's life and at random, and two
processes over one store. A provider counts: exactly 1 where it can do its part, never 2, and the
rest uncertain and visible. On a shared store (ONCE_TEST_STORE) a second process takes over."""
import itertools
import random
import threading
import time

import pytest

import promise
import stores
from effects_help import ACKNOWLEDGED, ASKED, DEAD, KEYED, Effects, config_of, kill
from killed_at import KilledAt
from once_server import LIGHT, LONG, Broken, until

UNTIL = "backoff_max: 200ms, deadline: 2s"
SHIELDS = {"S1": (KEYED,), "S4": (ASKED,), "S3": ()}
GONE_S = 120  # a process of a shared store is gone after 30 s; the rest is a loaded machine
shared = pytest.mark.skipif(not stores.SHARED, reason="a journal has one process")


def config_for(provider, shield, *more):
    """Each kill takes one attempt, and a loaded machine may be killed at the same effect often."""
    return config_of(provider, *SHIELDS[shield], *more).replace("attempts: 4", "attempts: 1000")


def put(effects, key, **more):
    """As a client does whose answer may be lost. None: nobody knows whether it was taken."""
    try:
        return effects.put(key, **more)
    except (Broken, OSError, AssertionError):
        return None


def is_over(document, shield):
    return document["status"] == ACKNOWLEDGED or (shield == "S3" and document.get("uncertain"))


def while_it_goes_on(provider, is_so, what):
    """A backlog of thousands takes as long as the machine needs; only a standstill is a failure."""
    seen, began = len(provider.requests), time.monotonic()
    while not is_so():
        if len(provider.requests) > seen:
            seen, began = len(provider.requests), time.monotonic()
        assert time.monotonic() - began < GONE_S, what()
        time.sleep(0.1)


def count(provider, effects, keys, shield, taken=()):
    """All come to an end, and happened as often as they should. Those that were taken are not lost;
    the answer to a different one was, so it is sent once more. Returns how many are uncertain."""
    made = {one["idempotency_key"] for one in effects.all()}
    with promise.kept():
        assert not set(taken) - made, "lost"
    for key in set(keys) - made:
        effects.put(key)

    def still_open():
        return [one for one in [*effects.all("&status=pending"), *effects.all("&status=dispatched")]
            if not is_over(one, shield)]
    while_it_goes_on(provider, lambda: not still_open(), lambda: f"open: {still_open()[:3]}")
    documents = {one["idempotency_key"]: one for one in effects.all()}
    assert set(documents) == set(keys)
    uncertain = sum(bool(one.get("uncertain")) for one in documents.values())
    with promise.kept():
        assert [key for key, one in documents.items()
            if one["status"] == ACKNOWLEDGED and provider.effects.get(key) != 1] == []
        assert max(provider.effects.values(), default=0) <= 1  # never 2
    assert shield == "S3" or uncertain == 0
    return uncertain


# --- Killed at each step ---

@pytest.mark.parametrize("shield", list(SHIELDS) if LONG or not stores.SHARED else ["S1"])
def test_a_kill_at_every_step(make_server, make_provider, tmp_path, shield):
    provider = make_provider(keeps=shield == "S1")
    config = config_for(provider, shield)
    shim = KilledAt(tmp_path)
    one = make_server(config=config, env=shim.env)
    wanted = {"journal": {"pwrite", "fdatasync", "connect"}, "postgres": {"send", "connect"},
        "redis": {"send", "connect"}}[stores.KIND]
    steps, keys, number = set(), [], 0
    for turn in itertools.count(1):
        number += 1
        keys.append(f"k{turn}")
        shim.at(number)
        effects = Effects(one)
        effect_id = put(effects, keys[-1])

        def is_done():
            try:
                return one.process.poll() is not None or (effect_id is not None and
                    effects.show(effect_id)["status"] == ACKNOWLEDGED)
            except (Broken, OSError):
                return False
        until(is_done, "neither killed nor done")
        name = shim.name()
        shim.at(0)
        if name:
            one.process.wait()
            steps.add("pwrite" if name == "pwrite64" else "send" if name in ("sendto", "write") and
                stores.SHARED else name)
            one.start()
        # More steps than its life has. Steps of earlier effects, which are settled meanwhile, move
        # the others: what was jumped over is met in another round.
        elif wanted <= steps:
            break
        else:
            number = 0
        assert turn < 200, steps
        if LIGHT and turn == 6:
            break
    count(provider, Effects(one), keys, shield)


# --- Killed at random ---

def load(effects, keys, taken, stop):
    """Effects, one after another, until it is told to stop. An answer that was lost is asked for
    again, of whichever process runs then."""
    while not stop.is_set():
        key = f"k{next(keys)}"
        while not stop.is_set():
            if put(effects, key) is not None:
                taken.append(key)
                break
            time.sleep(0.01)


@pytest.mark.parametrize("shield", list(SHIELDS))
def test_kills_at_random_under_load(make_server, make_provider, shield):
    provider = make_provider(keeps=shield == "S1")
    provider.always, provider.slow_s = "slow", 0.01
    config = config_for(provider, shield, "concurrency: 8")
    servers = [make_server(config=config)]
    if stores.SHARED:
        servers.append(make_server(config=config, data_dir=servers[0].data_dir))
    source, keys, taken, stop = random.Random(7), itertools.count(), [], threading.Event()
    threads = [threading.Thread(target=load, args=(Effects(server), keys, taken, stop))
        for server in servers]
    for thread in threads:
        thread.start()
    kills = 3 if LIGHT else 170 if LONG else 5 if stores.SHARED else 8
    try:
        for number in range(kills):
            time.sleep(source.uniform(0.05, 0.4))
            victim = servers[number % len(servers)]
            kill(victim)
            victim.start()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    made = [f"k{number}" for number in range(next(keys))]
    uncertain = count(provider, Effects(servers[0]), made, shield, taken)
    print(f"{stores.KIND} {shield}: {kills} kills, {len(made)} effects, {uncertain} uncertain, "
          f"{len(provider.requests)} requests")


# --- Order ---

ORDERED = ('order: "{target.order_id}"',)


def in_order(provider, lanes, count_of):
    """In each lane the effects began in the order in which they were created."""
    for lane in lanes:
        first = {}
        for request in list(provider.requests):
            if request["key"].startswith(lane):
                first.setdefault(request["key"], request["at"])
        assert list(first) == [f"{lane}{number}" for number in range(count_of)], lane


@shared
def test_order_holds_between_processes(make_server, make_provider):
    provider = make_provider(keeps=True, slow_s=0.03)
    provider.always = "slow"
    config = config_of(provider, KEYED, effect=ORDERED)
    one = make_server(config=config)
    two = make_server(config=config, data_dir=one.data_dir)
    both = [Effects(one), Effects(two)]
    for number in range(12):  # each process gets every other one
        for lane in "ab":
            both[number % 2].put(f"{lane}{number}", target={"order_id": lane})
    until(lambda: len(provider.effects) == 24, "they did not all happen")
    in_order(provider, "ab", 12)
    assert provider.at_once_max <= 2  # one of each lane


@shared
def test_order_holds_when_the_process_of_the_first_is_killed(make_server, make_provider):
    provider = make_provider(keeps=True)
    config = config_of(provider, KEYED, effect=ORDERED)
    one = make_server(config=config)
    two = make_server(config=config, data_dir=one.data_dir)
    provider.kill = lambda: kill(one)
    provider.script("a0", "kill_before")
    Effects(one).put("a0", target={"order_id": "a"})
    until(lambda: one.process.poll() is not None, "it was not killed")
    for number in range(1, 4):
        Effects(two).put(f"a{number}", target={"order_id": "a"})
    Effects(two).put("b0", target={"order_id": "b"})
    until(lambda: "b0" in provider.effects, "a different lane waits")
    time.sleep(1)
    assert list(provider.effects) == ["b0"]  # a0 is still with a process that may live
    until(lambda: len(provider.effects) == 5, "nobody took over", GONE_S)
    in_order(provider, "a", 4)


def test_order_outlives_a_restart(make_server, make_provider):
    provider = make_provider(keeps=True)
    effects = Effects(make_server(config=config_of(provider, KEYED, effect=ORDERED)))
    provider.script("a0", "503")
    provider.retry_after = "600"
    first = effects.put("a0", target={"order_id": "a"})
    until(lambda: effects.show(first)["attempt"] == 1 and
        effects.show(first)["status"] == "pending", "it was not tried")
    others = [effects.put(f"a{number}", target={"order_id": "a"}) for number in range(1, 4)]
    kill(effects.server)
    effects.server.start()
    last = effects.put("a4", target={"order_id": "a"})
    time.sleep(1.5)  # two looks at the dues: the first one rests, and the others are due
    assert [effects.show(one)["attempt"] for one in [*others, last]] == [0] * 4
    status, _, answer = effects.server.request("POST", f"/v1/effects/{first}/retry", {})
    assert status == 200, answer
    for one in [first, *others, last]:
        effects.settled(one, ACKNOWLEDGED)
    in_order(provider, "a", 5)


def test_a_poison_head_is_parked_and_shown(make_server, make_provider):
    provider = make_provider(keeps=True)
    effects = Effects(make_server(config=config_of(provider, KEYED, effect=ORDERED)))
    provider.script("a0", *["503"] * 4)
    ids = [effects.put(f"a{number}", target={"order_id": "a"}) for number in range(3)]
    for one in ids[1:]:
        effects.settled(one, ACKNOWLEDGED)
    assert effects.show(ids[0])["status"] == DEAD
    assert len(provider.of("a0")) == 4
    in_order(provider, "a", 3)
    listed = effects.server.request("GET", "/v1/effects?status=dead_letter")[2]["effects"]
    assert [one["effect_id"] for one in listed] == [ids[0]]


def test_one_that_is_held_does_not_block_its_lane(make_server, make_provider):
    provider = make_provider(keeps=False)
    effects = Effects(make_server(config=config_of(provider, effect=ORDERED)))
    provider.script("a0", "lost")
    ids = [effects.put(f"a{number}", target={"order_id": "a"}) for number in range(3)]
    for one in ids[1:]:
        effects.settled(one, ACKNOWLEDGED)
    assert effects.show(ids[0])["uncertain"]  # shown, and a person decides


def test_one_that_was_cancelled_before_its_turn_lets_nobody_pass(make_server, make_provider):
    """After a restart, when no process has the lane in its memory."""
    provider = make_provider(keeps=True)
    effects = Effects(make_server(config=config_of(provider, KEYED, effect=ORDERED)))
    provider.script("a0", "503")
    provider.retry_after = "3"
    ids = [effects.put(f"a{number}", target={"order_id": "a"}) for number in range(3)]
    until(lambda: provider.of("a0") and effects.show(ids[0])["status"] == "pending", "not tried")
    status, _, answer = effects.server.request("POST", f"/v1/effects/{ids[1]}/cancel",
        {"reason": "not wanted"})
    assert status == 200, answer
    effects.server.stop()
    effects.server.start()
    effects.settled(ids[2], ACKNOWLEDGED)
    assert list(provider.effects) == ["a0", "a2"]  # it waited, though the one before it is over


@pytest.mark.parametrize("kills", [60 if LONG else 2 if stores.SHARED else 4])
def test_order_holds_under_kills(make_server, make_provider, kills):
    provider = make_provider(keeps=True, slow_s=0.02)
    provider.always = "slow"
    config = config_of(provider, KEYED, effect=ORDERED)
    servers = [make_server(config=config)]
    if stores.SHARED:
        servers.append(make_server(config=config, data_dir=servers[0].data_dir))
    source, numbers = random.Random(11), {lane: 0 for lane in "abc"}
    for turn in range(kills):
        for _ in range(6):
            lane = source.choice("abc")
            effects = Effects(servers[source.randrange(len(servers))])
            effects.put(f"{lane}{numbers[lane]}", target={"order_id": lane})
            numbers[lane] += 1
        victim = servers[turn % len(servers)]
        time.sleep(source.uniform(0, 0.1))
        kill(victim)
        victim.start()
    total = sum(numbers.values())
    until(lambda: len(provider.effects) == total, "they did not all happen", GONE_S + kills * 35)
    for lane, number in numbers.items():
        in_order(provider, [lane], number)
    assert set(provider.effects.values()) == {1}


def test_an_effect_that_is_late_is_not_sent_after_its_deadline(make_server, make_provider):
    """The server was away. Only a person can have it sent after that."""
    provider = make_provider(keeps=True)
    config = config_of(provider, KEYED).replace("backoff_max: 200ms", UNTIL)
    effects = Effects(make_server(config=config))
    at = time.time() + 1
    late = effects.put("k", not_before=time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + "Z")
    kill(effects.server)
    time.sleep(3)
    effects.server.start()
    assert "retry.deadline" in effects.settled(late, DEAD)["reason"]
    assert provider.requests == []
    again = effects.server.request("POST", f"/v1/effects/{late}/retry", {"reason": "asked for"})
    assert again[0] == 200
    effects.settled(late, ACKNOWLEDGED)
    assert provider.effects == {"k": 1}


def test_what_a_lookup_settles_names_the_version_that_was_read(make_server, make_provider):
    """A process with a different configuration may have parked it meanwhile, so that the effects
    after it in its order went on (N9)."""
    provider = make_provider()
    effects = Effects(make_server(config=config_of(provider, ASKED)))
    provider.script("k", "lost_before")
    effects.settled(effects.put("k"), ACKNOWLEDGED)
    entries = effects.server.request("GET", "/v1/evidence?limit=100")[2]["entries"]
    decided = [one["decided"] for one in entries if one["type"] == "execution.resolved"]
    assert len(decided) == 1 and decided[0]["wanted_version"] == decided[0]["version"] > 0


def test_a_call_that_a_crash_cut_off_counts_from_its_creation(make_server, make_provider):
    """Nothing was recorded of the attempt, so the key is old when it could be: past `keeps` the
    provider has forgotten it, and would do it again."""
    provider = make_provider(keeps=False)
    config = config_of(provider, "idempotency: {header: Idempotency-Key, keeps: 5s}")
    effects = Effects(make_server(config=config.replace("5s, total: 6s", "1s, total: 2s")))
    provider.kill = lambda: kill(effects.server)
    provider.script("k", "kill_after")
    began = time.monotonic()
    try:
        effects.put("k")
    except (Broken, OSError):
        pass  # it died before the answer
    until(lambda: provider.effects == {"k": 1}, "it was not sent")
    time.sleep(max(0, began + 5.5 - time.monotonic()))
    provider.kill = None
    effects.server.start()
    until(lambda: effects.all("&uncertain=true"), "not uncertain", GONE_S)
    time.sleep(4)  # several looks of the janitor
    assert provider.effects == {"k": 1}


def test_a_retry_does_not_wait_for_the_pause_to_end(make_server, make_provider):
    """The effect rests in the dispatcher's memory until its next attempt."""
    provider = make_provider(keeps=True)
    provider.retry_after = "30"
    effects = Effects(make_server(config=config_of(provider, KEYED)))
    provider.script("k", "503")
    one = effects.put("k")
    until(lambda: "next_attempt_at" in effects.show(one) and effects.show(one)["attempt"] == 1,
        "it was not sent")
    began = time.monotonic()
    assert effects.server.request("POST", f"/v1/effects/{one}/retry", {"reason": "now"})[0] == 200
    effects.settled(one, ACKNOWLEDGED)
    assert time.monotonic() - began < 15


def test_a_person_asks_after_the_deadline_for_one_that_waits_for_its_turn(make_server,
                                                                          make_provider):
    """Its turn came late, and it was due before the deadline. But now a person has planned it."""
    provider = make_provider(keeps=True, slow_s=4)
    effects = Effects(make_server(config=config_of(provider, KEYED, "concurrency: 1")
        .replace("backoff_max: 200ms", UNTIL)))
    provider.script("first", "slow")
    effects.put("first")
    until(lambda: provider.of("first"), "it is not sent")
    late = effects.put("late")
    other = effects.put("other")
    time.sleep(2.5)
    again = effects.server.request("POST", f"/v1/effects/{late}/retry", {"reason": "asked for"})
    assert again[0] == 200 and not provider.of("late")
    effects.settled(other, DEAD)
    effects.settled(late, ACKNOWLEDGED)
    assert provider.effects == {"first": 1, "late": 1}
