"""once copy: a store moves between engines with its evidence (lib/copy.h, CP1 to CP5).

The same store goes journal -> PostgreSQL -> Redis -> journal. It has records of every kind and
status, made by a real server. On each store they are the same documents, the evidence verifies, a
duplicate gets the same answer, and a grant that was held keeps its fence.
"""
import json
import os
import random
import re
import subprocess
import time

import pytest
import servers
import stores
from inbox_help import RESTS, SECRET, Handler, body_of, signed
from once_server import BINARY, LONG, Server, until
from provider import Provider

pytestmark = stores.journal_only("every pair of stores is in here")

CONFIG = """
connectors:
  pay: {{url: "{provider}", idempotency: {{header: Idempotency-Key, keeps: 24h}},
    timeout: {{connect: 1s, first_byte: 5s, total: 6s}}}}
  slow: {{url: "{provider}"}}
  once: {{url: "{provider}"}}
effects:
  payment.capture: {{connector: pay, request: {{path: "/charges"}}, provider_ref: /id}}
  mail.once: {{connector: once, request: {{path: "/mails"}}}}
  mail.later: {{connector: slow, request: {{path: "/later",
    headers: {{X-Key: "{{idempotency_key}}"}}}},
    retry: {{attempts: 9, deadline: 48h}}}}
commands:
  order.pay: {{handler: "{handler}/pay"}}
  order.refund: {{handler: "{handler}/refund", confirm: confirm, confirm_ttl: 12h}}
inbox:
  sources:
    github: {{preset: github, secrets: [{{env: WHSEC}}], handler: "{handler}/hook",
      retry: {{attempts: 9}}}}
"""


class At(Server):
    """A server on the store of a URL."""

    def __init__(self, url, config=None, **how):
        self.given = url
        super().__init__(config=config, env={"WHSEC": SECRET}, **how)

    @property
    def store(self):
        return self.given


def once(*words, **how):
    env = {name: value for name, value in os.environ.items() if not name.startswith("ONCE_")}
    return subprocess.run([BINARY, *[str(word) for word in words]], env=env, text=True,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=600, **how)


def copied(source, target, *options):
    done = once("copy", *options, source, target)
    assert done.returncode == 0, done
    return done


@pytest.fixture(scope="module")
def postgres():
    if not servers.Postgres.installed():
        pytest.skip("no PostgreSQL here")
    with servers.Postgres() as server:
        yield server


@pytest.fixture(scope="module")
def redis():
    if not servers.Redis.installed():
        pytest.skip("no Redis here")
    with servers.Redis() as server:
        yield server


@pytest.fixture
def place(tmp_path, request):
    """place("postgres", "a"): the URL of a store that is not there yet, migrated where needed."""
    def make(kind, name="a"):
        if kind == "journal":
            return f"journal:{tmp_path}/{name}"
        server = request.getfixturevalue(kind)
        unique = f"t{os.getpid()}{abs(hash((str(tmp_path), name))) % 10 ** 12}"
        if kind == "redis":
            return f"{server.url}?name={unique}"
        url = f"{server.url}?fsync=off&schema={unique}"
        assert once("migrate", "--store", url).returncode == 0
        return url
    return make


@pytest.fixture
def outside():
    provider, handler = Provider(), Handler()
    yield provider, handler
    provider.end()
    handler.close()


def begin(server, key, **more):
    return server.request("POST", "/v1/fences", {"scope": "s", "key": key,
        "payload": {"key": key}, "lease": "15m", **more})


def granted(server, key, **more):
    status, _, grant = begin(server, key, **more)
    assert status == 201, grant
    return grant


def fence(server, grant, verb, **more):
    status, _, answer = server.request("POST", f"/v1/fences/{grant['operation_id']}/{verb}",
        {"fence": grant["fence"], **more})
    assert status == 200, answer
    return answer


def command(server, action, key):
    return server.request("POST", "/v1/commands", {"tenant_id": "default", "actor_id": "a",
        "intent": {"entity": "order", "action": action, "target": {"id": key}}, "args": {}})


def effect(server, kind, key, **more):
    status, _, answer = server.request("POST", "/v1/effects", {"effect_type": kind,
        "target": {"id": key}, "idempotency_key": key, "payload": {"card": "4242", "n": 1}, **more})
    assert status == 202, answer
    return answer


def fill(server, outside):
    """Every kind, and of operations every status. What is still to come, by name."""
    provider, handler = outside
    for status in ("executed", "failed", "rejected"):
        fence(server, granted(server, status, source={"type": "t", "id": status, "version": "7"}),
            "seal", status=status, effect_id=f"e-{status}", outcome={"said": status})
    fence(server, granted(server, "large"), "seal", status="executed", outcome="x" * 300_000)
    fence(server, granted(server, "released"), "release", reason="not yet")
    fence(server, granted(server, "unknown"), "unknown", reason="lost")
    assert begin(server, "executed")[0] == 200 and begin(server, "unknown")[0] == 409
    held = granted(server, "held")
    assert command(server, "pay", "c1")[0] == 201
    waiting = command(server, "refund", "c2")
    assert waiting[0] == 202, waiting
    provider.script("gone", "lost")
    provider.script("later", *["503"] * 9)
    provider.retry_after = "3600"
    effect(server, "payment.capture", "paid")
    effect(server, "mail.once", "gone")
    effect(server, "mail.later", "later")
    for number, answers in enumerate([[], [RESTS] * 9]):
        handler.answers = answers
        body = body_of("github", f"d{number}")
        assert server.request("POST", "/in/github", body,
            signed("github", body, f"d{number}"))[0] == 200
        until(lambda: len(handler.calls) >= 2 + number, "not delivered")
    handler.answers = []
    effects = lambda: server.request("GET", "/v1/effects")[2]["effects"]  # noqa: E731
    until(lambda: sorted((e["status"], e["uncertain"], e["attempt"]) for e in effects()) ==
        [("acknowledged", False, 1), ("dispatched", True, 1), ("pending", False, 1)],
        f"not as asked: {effects()}")
    until(lambda: sorted(d["status"] for d in server.request("GET", "/v1/deliveries")[2][
        "deliveries"]) == ["executed", "pending"], "not delivered")
    return {"held": held, "waiting": waiting[2]}


def config_of(outside, more=""):
    return CONFIG.format(provider=outside[0].url, handler=outside[1].url) + more


@pytest.fixture
def filled(place, outside):
    """A journal that was served and stopped: its URL, and what is still to come."""
    url = place("journal", "first")
    server = At(url, config_of(outside))
    try:
        facts = fill(server, outside)
        facts["listed"] = listed(server)
        server.stop()
    finally:
        server.remove()
    return url, facts


def documents(url):
    """All operations, without a server."""
    done = once("ls", "--json", "--all-tenants", "--store", url)
    assert done.returncode == 0, done
    return sorted(json.loads(done.stdout or "[]"), key=lambda one: one["operation_id"])


def listed(server):
    """Everything else, by the API."""
    return {kind: sorted(server.request("GET", f"/v1/{kind}")[2][kind], key=json.dumps)
        for kind in ("commands", "effects", "deliveries")}


def verified(url):
    done = once("verify", "--json", "--redecide", "--store", url)
    result = json.loads(done.stdout)
    assert done.returncode == 0 and result["ok"] and result["damage_count"] == 0, done
    return result


def hop(source, target):
    """Copy, and see that both say the same."""
    checked = verified(source)
    dry = copied(source, target, "--dry-run")
    result = json.loads(copied(source, target, "--json").stdout)
    assert f"would copy {result['records']} records" in dry.stdout
    again = verified(target)
    assert again["entries"] == checked["entries"] == again["redecided"]
    assert again["checkpoints"] == checked["checkpoints"]
    assert documents(source) == documents(target)


def test_a_store_goes_round_all_engines_and_stays_the_same(place, outside, filled):
    first, facts = filled
    assert {one["status"] for one in documents(first)} == {"executed", "failed", "rejected",
        "released", "unknown", "in_progress"}
    assert all(facts["listed"].values())
    route = [place("postgres"), place("redis"), place("journal", "last")]
    for source, target in zip([first, *route], route):
        hop(source, target)

    # The key of bodies stayed in the first directory: the last one is told to use it.
    key = first.removeprefix("journal:") + "/body.key"
    server = At(route[-1], config_of(outside, f"secrets: {{key_file: [{key}]}}\n"))
    try:
        assert listed(server) == facts["listed"]
        calls = len(outside[1].calls)
        status, headers, replay = begin(server, "executed")
        assert (status, replay["decision"]) == (200, "duplicate_replayed")
        assert replay["outcome"] == {"said": "executed"} and replay["effect_id"] == "e-executed"
        assert begin(server, "large")[2]["outcome"] == "x" * 300_000
        assert begin(server, "executed", payload={"other": 1})[2]["code"] == "idempotency_conflict"
        assert begin(server, "unknown")[2]["code"] == "outcome_unknown"
        older = begin(server, "new", source={"type": "t", "id": "executed", "version": "6"})
        assert older[2]["code"] == "stale_version"  # what is remembered of the source came along
        assert begin(server, "held")[0] == 202
        fence(server, facts["held"], "seal", status="executed", outcome={"late": True})
        new = granted(server, "newer")
        assert new["fence"] > facts["held"]["fence"]  # P4
        waiting = facts["waiting"]
        status, _, done = server.request("POST", f"/v1/commands/{waiting['command_id']}/confirm",
            {"token": waiting["confirmation"]["token"], "actor_id": "a"})
        assert status in (200, 201), done  # its body was readable
        assert len(outside[1].calls) == calls + 1
        server.stop()
    finally:
        server.remove()
    assert verified(route[-1])["chains"] == 4  # the first, its own, and those that copied


@pytest.mark.parametrize("kind", ["journal", "postgres", "redis"])
def test_a_target_with_something_in_it_is_refused_and_left_alone(place, filled, kind):
    target = place(kind, "full")
    assert once("run", "--store", target, "-k", "mine", "--", "echo", "mine").returncode == 0
    before = documents(target)
    for options in ([], ["--dry-run"]):
        done = once("copy", *options, filled[0], target)
        assert done.returncode == 64, done
        assert re.search(r"is a store already|is a store that is not empty", done.stderr), done
    assert documents(target) == before and verified(target)


def test_a_copy_in_which_nothing_was_decided_has_no_entries_of_its_own(filled, tmp_path):
    target = f"journal:{tmp_path}/target"
    copied(filled[0], target)
    assert "ok: there are no entries yet\n" in once("verify", "--store", target).stdout


@pytest.mark.parametrize("kind", ["journal", "postgres", "redis"])
def test_a_store_that_no_process_has_written_to_is_copied(place, kind):
    source, target = place("postgres", "empty"), place(kind, "target")
    assert "has 0 records and 0 entries in 0 chains" in copied(source, target).stdout
    assert once("run", "--store", target, "-k", "k", "--", "echo", "mine").returncode == 0
    assert verified(target)["entries"] == 2


@pytest.mark.parametrize("kind", ["journal", "postgres", "redis"])
def test_a_source_that_is_served_is_refused(place, kind, tmp_path):
    source = place(kind, "served")
    server = At(source)
    try:
        done = once("copy", source, f"journal:{tmp_path}/target")
        assert done.returncode == 69, done
        assert re.search(r"in use by pid \d+|is in use: the process of chain [0-9a-f-]{36}",
            done.stderr), done
        assert not (tmp_path / "target").exists()
        server.stop()
    finally:
        server.remove()
    copied(source, f"journal:{tmp_path}/target")


def many(server, count=600):
    """Operations enough for several pieces of a copy."""
    for first in range(0, count, 100):
        keys = [f"many-{number}" for number in range(first, first + 100)]
        status, _, grants = server.request("POST", "/v1/fences/batch", [{"begin": {"scope": "s",
            "key": key, "payload": {"key": key}}} for key in keys])
        assert status == 200, grants


def is_unfinished(url):
    """Every command refuses an unfinished copy by name, and none changes it."""
    if "unfinished copy" not in once("ls", "--store", url).stderr:
        return False
    for words in (["run", "-k", "early", "--store", url, "--", "echo"],
            ["serve", "--listen", "127.0.0.1:0", "--store", url], ["verify", "--store", url],
            ["doctor", "--store", url]):
        done = once(*words)
        said = done.stdout + done.stderr
        assert done.returncode != 0 and "unfinished copy of '" in said, done
        assert "run the same once copy again to finish it" in said, done
    return True


def copy_killed(source, target, seconds):
    """None: it was killed by then. An earlier one may have been killed just after its end."""
    process = subprocess.Popen([BINARY, "copy", "--json", source, target], text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None
    is_finished = process.returncode == 64 and re.search("is a store (already|that)", err)
    assert process.returncode == 0 or is_finished, (out, err)
    return True


PAIRS = [("journal", "postgres"), ("postgres", "redis"), ("redis", "journal"),
    ("journal", "redis"), ("redis", "postgres"), ("postgres", "journal"), ("journal", "journal")]
KILLS = 40 if LONG else 5


@pytest.mark.parametrize("pair", PAIRS if LONG else PAIRS[:3], ids="-".join)
def test_a_copy_that_is_killed_goes_on_where_it_was(place, outside, filled, pair):
    first, _ = filled
    server = At(first, config_of(outside))
    try:
        many(server)
        server.stop()
    finally:
        server.remove()
    source = place(pair[0], "source")
    copied(first, source)
    before, checked = documents(source), verified(source)
    began = time.monotonic()
    copied(source, place(pair[1], "timed"))
    usual_s = time.monotonic() - began
    chance, landed, target = random.Random(repr(pair)), 0, place(pair[1], "target")
    for attempt in range(20 * KILLS):
        done = copy_killed(source, target, usual_s * chance.random())
        if done is None:
            landed += landed > 0 or is_unfinished(target)
        elif landed < KILLS:  # quicker than usual: the next one is a new copy
            assert documents(target) == before
            target = place(pair[1], f"target{attempt}")
        if landed >= KILLS:
            break
    assert landed >= KILLS
    if done is None:
        assert copy_killed(source, target, seconds=300)
    assert documents(target) == before
    assert verified(target)["entries"] == checked["entries"]
    again = once("copy", source, target)
    assert again.returncode == 64 and "is a store" in again.stderr, again


@pytest.mark.parametrize("kind", ["journal", "postgres", "redis"])
def test_a_copy_goes_on_only_from_the_same_state(place, filled, kind):
    source, target = filled[0], place(kind, "target")
    seconds = 0.1
    for attempt in range(200):  # later when it came too early, earlier when it came too late
        if copy_killed(source, target, seconds) is not None:
            target, seconds = place(kind, f"target{attempt}"), seconds * 0.9
        elif is_unfinished(target):
            break
        else:
            seconds *= 1.07
    assert once("run", "--store", source, "-k", "meanwhile", "--", "echo").returncode == 0
    done = once("copy", source, target)
    assert done.returncode == 64 and "in a different state" in done.stderr, done
    assert is_unfinished(target)


def test_evidence_that_was_inherited_cannot_be_taken_away(place, filled, tmp_path):
    target = place("journal", "target")
    copied(filled[0], target)
    file = tmp_path / "target/inherited"
    whole = file.read_bytes()
    random.seed(1)
    places = sorted({8, 30, 60, 350, 400, len(whole) - 1, *random.sample(range(len(whole)), 20)})
    for at in places:
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
        done = once("verify", "--store", target)
        assert done.returncode == 1 and "damage" in done.stdout, (at, done)
    file.write_bytes(whole[:-700])
    assert once("verify", "--store", target).returncode == 1
    file.unlink()
    assert once("verify", "--store", target).returncode == 1
    done = once("run", "--store", target, "-k", "new", "--", "echo")
    assert done.returncode != 0 and "'inherited' is missing" in done.stderr, done
    file.write_bytes(whole)
    verified(target)
