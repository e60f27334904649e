"""once conformance against servers that are wrong on purpose: it says what is wrong, and with which
requirement. The server is the real one behind a proxy that plants the faults (wrong_server.py)."""
import itertools
import json
import subprocess
import threading

import pytest

import servers
from once_server import BINARY
from wrong_server import WrongServer, submits

salt = itertools.count()


class NoClass:
    """The registry does not say what a command is."""
    fails = {("IDS-2", "declares no class")}

    def answer(self, request, reply):
        for command in reply.document.get("commands", []) if request.path == "/v1/registry" else []:
            command["class"] = "" if command["class"] == "I1" else command["class"]


class NoShield:
    fails = {("IDS-13", "declares no shield")}

    def answer(self, request, reply):
        for command in reply.document.get("commands", []) if request.path == "/v1/registry" else []:
            command.pop("shield", None)


class Replays:
    """It answers the first answer for ever, without asking whether it may."""

    def __init__(self):
        self.kept = {}

    def instead(self, request):
        known = self.kept.get(json.dumps(request.document))
        return known if submits(request, self.action) else None

    def answer(self, request, reply):
        if submits(request, self.action):
            self.kept[json.dumps(request.document)] = (200, reply.document)


class DeduplicatesReads(Replays):
    fails, action = {("IDS-2", "a read was deduplicated")}, "look"


class EndlessWindow(Replays):
    fails, action = {("IDS-7", "after the window it was answered with 200")}, "note"


class EphemeralMembers:
    """What is ephemeral enters the key."""
    fails = {("IDS-3", "an ephemeral member changed the key")}

    def ask(self, request):
        if submits(request) and "x_any" in request.document:
            request.document["args"] = {"x_any": request.document["x_any"]}


class NoActor:
    """The actor does not enter the key."""
    fails = {("IDS-3", "two actors share a key")}

    def ask(self, request):
        if submits(request, "act"):
            request.document["actor_id"] = "everybody"


class NoPrincipal:
    """Not the binding principal enters the key, but the actor."""
    fails = {("IDS-4", "two actors of one principal ran twice")}

    def ask(self, request):
        if submits(request, "bound"):
            request.document["effective_actor_id"] = request.document["actor_id"]


class NoWindowShown:
    fails = {("IDS-6", "has no 'ttl_expires_at'")}

    def answer(self, request, reply):
        if request.method == "GET":
            reply.document.pop("ttl_expires_at", None)


class NoEvidence:
    fails = {("IDS-14", "no entry says first_seen"),
        ("IDS-15.5", "no evidence of both fingerprints")}

    def answer(self, request, reply):
        if request.path.startswith("/v1/evidence"):
            reply.document["entries"] = []


class NoReplayEvidence:
    """Only what was executed is written down."""
    fails = {("IDS-14", "no entry says duplicate_replayed")}

    def answer(self, request, reply):
        if request.path.startswith("/v1/evidence"):
            reply.document = json.loads(
                json.dumps(reply.document).replace("duplicate_replayed", "first_seen"))


class RunsTwice:
    """Every submission is a new one."""
    fails = {("IDS-15.1", "submission 2 was answered with 201"),
        ("IDS-15.2", "16 of them were executed"), ("IDS-15.3", "'command_id' differs"),
        ("IDS-15.4", "it was answered with 504"), ("IDS-3", "an ephemeral member changed the key"),
        ("IDS-14", "no entry says duplicate_replayed"), ("IDS-16", "were all answered")}

    def ask(self, request):
        if submits(request, "act") and "idempotency_key" not in request.document:
            request.document["args"] = {"salt": next(salt)}


class RunsTwiceBehindTheScenes:
    """The answers look right, and the handler is called for each of them."""
    fails = {("IDS-15.1", "the handler was called more than once"),
        ("IDS-15.2", "the handler was called more than once")}

    def __init__(self):
        self.seen = {}

    def ask(self, request):
        """The third one of three or more is sent on as a new command."""
        key = json.dumps(request.document)
        self.seen[key] = self.seen.get(key, 0) + 1
        request.is_new = submits(request, "act") and self.seen[key] == 3
        if request.is_new:
            request.document["args"] = {"salt": next(salt)}

    def answer(self, request, reply):
        reply.status = 200 if request.is_new and reply.status == 201 else reply.status


class RunsInParallel:
    """Submissions at the same time do not see each other."""
    fails = {("IDS-15.2", "of them were executed"), ("IDS-15.4", "it was answered with 504")}

    def __init__(self):
        self.lock, self.running = threading.Lock(), {}

    def ask(self, request):
        request.key = json.dumps(request.document)
        with self.lock:
            others = self.running.get(request.key, 0)
            self.running[request.key] = others + 1
        if submits(request, "act") and others > 0:
            request.document["args"] = {"salt": next(salt)}

    def answer(self, request, reply):
        with self.lock:
            self.running[request.key] -= 1


class OtherSummary:
    fails = {("IDS-15.3", "'summary' differs between the first answer and its replay")}

    def answer(self, request, reply):
        if submits(request) and reply.document.get("decision") == "duplicate_replayed":
            reply.document["summary"] = "Done before."


class NowhereToAsk:
    fails = {("IDS-15.4", "does not say where to ask")}

    def answer(self, request, reply):
        if submits(request) and reply.status == 202:
            reply.document.pop("status_url", None)


class NoCollisions:
    """A key that comes back with a different envelope gets the first answer."""
    fails = {("IDS-15.5", "it was answered with 200")}

    def answer(self, request, reply):
        if reply.status == 409:
            reply.status = 200


class OtherCollision:
    fails = {("IDS-15.5", "the code is not idempotency_conflict")}

    def answer(self, request, reply):
        if reply.status == 409:
            reply.document["code"] = "conflict"


class Confirming:
    """It knows the tokens."""

    def __init__(self):
        self.tokens = {}

    def answer(self, request, reply):
        if submits(request, "pay"):
            token = reply.document.get("confirmation", {}).get("token")
            name = reply.document.get("command_id")
            self.tokens[name] = token or self.tokens.get(name)
            self.wrong(request, reply, name)

    def wrong(self, request, reply, name):
        pass


class AnyToken(Confirming):
    fails = {("IDS-15.6", "a token that is not the command's was not refused")}

    def ask(self, request):
        if request.path.endswith("/confirm"):
            request.document["token"] = self.tokens[request.path.split("/")[3]]


class SecondToken(Confirming):
    """A duplicate is given the token once more."""
    fails = {("IDS-15.6", "a duplicate got a second token")}

    def wrong(self, request, reply, name):
        if "confirmation" in reply.document:
            reply.document["confirmation"]["token"] = self.tokens[name]


class TokenForEver(Confirming):
    """A used token is answered as if it were used for the first time."""
    fails = {("IDS-15.6", "a used token was not refused")}

    def __init__(self):
        super().__init__()
        self.done = {}

    def instead(self, request):
        return self.done.get(json.dumps([request.path, request.document]))

    def answer(self, request, reply):
        if request.path.endswith("/confirm") and reply.status == 201:
            self.done[json.dumps([request.path, request.document])] = (201, reply.document)


class AsksNobody:
    """The confirmation is skipped."""
    fails = {("IDS-15.6", "no confirmation was asked for (201)")}

    def ask(self, request):
        if submits(request, "pay"):
            request.document["intent"]["action"] = "act"


class NoLimits:
    fails = {("IDS-16", "400 duplicates in a row were all answered")}

    def answer(self, request, reply):
        if reply.status == 429:
            reply.status = 200


# Faults that do not touch each other are planted together: a run of the kit takes seconds.
GROUPS = [
    [NoClass, NoShield, DeduplicatesReads, EndlessWindow, EphemeralMembers, NoPrincipal,
        NoWindowShown, NoEvidence, RunsTwiceBehindTheScenes, OtherSummary, NowhereToAsk, AnyToken,
        NoLimits],
    [NoActor, RunsInParallel, NoReplayEvidence, OtherCollision, SecondToken],
    [RunsTwice, NoCollisions, TokenForEver],
    [AsksNobody],
]


@pytest.fixture
def kit(make_server):
    port = servers.free_port()
    registry = subprocess.run([BINARY, "conformance", "--registry", "--port", str(port)],
        capture_output=True, text=True, timeout=60, check=True).stdout
    # A call that a fault leaves hanging ends soon.
    registry = registry.replace("timeout: 10s", "timeout: 3s")
    server = make_server(config=registry)
    made = []

    def run(*faults):
        wrong = WrongServer(server, *faults)
        made.append(wrong)
        done = server.cli("conformance", "--json", "--port", port, "--server", wrong.url)
        return done, json.loads(done.stdout)["tests"]

    yield run
    for wrong in made:
        wrong.close()


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group[0].__name__)
def test_each_planted_fault_is_named(kit, group):
    done, tests = kit(*(fault() for fault in group))
    expected = set.union(*(fault.fails for fault in group))
    failed = {(one["requirement"], one["reason"]) for one in tests if not one["ok"]}
    assert done.returncode == 65
    for requirement, words in expected:
        assert any(requirement == found and words in reason for found, reason in failed), (
            requirement, words, failed)
    assert len(failed) == len(expected), failed


def test_every_test_of_the_kit_can_fail(kit):
    """Nothing is left that no planted fault fails."""
    _, tests = kit()
    assert all(one["ok"] for one in tests), tests
    known = {requirement for group in GROUPS for fault in group for requirement, _ in fault.fails}
    assert known == {one["requirement"] for one in tests}


def test_a_server_that_is_none_passes_nothing(kit):
    class Broken:
        def instead(self, request):
            return 500, b"oops"

    done, tests = kit(Broken())
    assert done.returncode == 65 and not any(one["ok"] for one in tests), done.stdout
