"""`evidence.replays: soon`: a replay leaves before its entry is on disk, and nothing else does."""
import re
from pathlib import Path

import test_gateway_crash as crash
from once_gateway import DUPLICATES_FREE

SOON = {"evidence": {"replays": "soon"}}
REPLAYS = 200
KILLS = 5


def counts_of(gateway):
    """How often the files have each decision, and each type that is stored: an entry about the
    whole store is no tenant's, so no tenant's listing has it."""
    directory = Path(str(gateway.store).removeprefix("journal:"))
    whole = b"".join(path.read_bytes() for path in sorted(directory.glob("segment-*")))
    stored = [name.decode() for name in re.findall(rb'"(?:type|decision)":"([a-z_.]+)"', whole)]
    return {name: stored.count(name) for name in stored}


def verified(gateway):
    done = gateway.cli("verify", "--redecide", "--store", gateway.store)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_clean_end_keeps_every_entry(make_gateway):
    gateway = make_gateway(limits=DUPLICATES_FREE, more=SOON)
    first = gateway.post("k", {"a": 1})
    for _ in range(REPLAYS):
        again = gateway.post("k", {"a": 1})
        assert again.is_replay and again.body == first.body
    gateway.stop()
    gateway.restart()
    gateway.stop()
    counts = counts_of(gateway)
    assert counts["duplicate_replayed"] == REPLAYS and "evidence.interrupted" not in counts
    verified(gateway)


def test_the_start_after_a_kill_says_that_entries_may_be_missing(make_gateway, origin):
    gateway = make_gateway(limits=DUPLICATES_FREE, more=SOON)
    first = gateway.post("k", {"a": 1})
    for kills in range(1, KILLS + 1):
        for _ in range(20):
            assert gateway.post("k", {"a": 1}).body == first.body
        gateway.kill9()
        gateway.restart()
        assert origin.effects == {"k": 1}
    gateway.stop()
    counts = counts_of(gateway)
    assert counts["evidence.interrupted"] == kills
    shown = {words: gateway.cli("tail", "-n", "1000", *words, "--store", gateway.store).stdout
             for words in ((), ("--all-tenants",))}
    assert shown[("--all-tenants",)].count("evidence.interrupted") == kills
    assert "evidence.interrupted" not in shown[()]  # it is of no tenant
    assert counts["first_seen"] == counts["sealed"] == 1  # P2: of these none is
    assert 0 < counts["duplicate_replayed"] <= 20 * KILLS
    verified(gateway)


def test_kills_under_load_lose_no_effect_grant_or_seal(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /**", "lease": "1s",
        "timeout": {"connect": "1s", "first_byte": "1s", "total": "1s"}}],
        limits=DUPLICATES_FREE, more=SOON)
    harness = crash.Harness(gateway, origin)
    harness.run(KILLS)
    assert max(origin.effects.values()) == 1
    harness.ask([key for key in harness.keys() if key.answer is not None])
    gateway.stop()
    verified(gateway)
