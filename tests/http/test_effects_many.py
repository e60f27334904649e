"""once retry, cancel, compensate and resolve on many effects, and what once ls effects filters."""
import http.client
import json
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import servers
from effects_help import ACKNOWLEDGED, DEAD, FAILED, KEYED, Effects, config_of, key_file
from once_server import BINARY, until

TYPE = """  {name}:
    connector: pay
    request: {{path: /other, headers: {{X-Key: "{{idempotency_key}}"}}}}
    retry: {{attempts: 2, backoff: 20ms, backoff_max: 50ms}}
"""
UNDONE = ["compensate: {effect: payment.refund, payload: {charge: \"{provider_ref}\"}}"]
PATIENT = "breaker: {failures: 1000, pause: 1s}"
FUTURE = "2999-01-01T00:00:00Z"
# How the effects become what the action is for: the status that they wait for, the end that the
# provider gives them, more of the envelope; the words of the command line; what is said; what they
# are then (None: that depends on the moment).
ACTIONS = {
    "retry": (DEAD, "503", {}, (), "retried", "dead letter", None),
    "cancel": ("pending", "ok", {"not_before": FUTURE}, (), "cancelled", "pending effect", FAILED),
    "compensate": (ACKNOWLEDGED, "ok", {}, (), "compensated", "acknowledged effect", None),
    "resolve": ("dispatched", "500", {}, ("--status", "failed"), "failed", "uncertain effect",
        FAILED),
}


class Many:
    """Three effects of one type and one of another that an action is for."""

    def __init__(self, server, provider, verb):
        (self.status, provider.always, more, self.words, self.would, self.which,
            self.after) = ACTIONS[verb]
        self.server, self.provider, self.verb = server, provider, verb
        self.effects = Effects(server)
        self.ids = [self.effects.put(f"k{number}", **more) for number in range(3)]
        self.other = self.effects.put("other", effect_type="mail.send", **more)
        for one in self.all():
            until(lambda one=one: self.is_ready(one), f"{one} is not {self.status}")

    def all(self):
        return [*self.ids, self.other]

    def is_ready(self, effect_id):
        shown = self.effects.show(effect_id)
        return shown["status"] == self.status and \
            bool(shown.get("uncertain")) == (self.verb == "resolve") and \
            "compensating" not in shown

    def run(self, *words, url=None):
        reached = self.server.reached if url is None else ("--server", url)
        return self.server.cli(self.verb, *words, *self.words, "--reason", "an outage", *reached)

    def statuses(self):
        return [self.effects.show(one)["status"] for one in self.all()]


@pytest.fixture(params=ACTIONS)
def many(request, make_server, make_provider):
    provider = make_provider()
    server = make_server(config=config_of(provider, PATIENT, effect=UNDONE, more="".join(
        TYPE.format(name=name) for name in ("mail.send", "payment.refund"))))
    return Many(server, provider, request.param)


def lines(done):
    return done.stdout.splitlines()


def test_a_dry_run_lists_what_would_change_and_changes_nothing(many):
    before = [many.effects.show(one) for one in many.all()]
    requests = len(many.provider.requests)
    words = ("effects", "--scope", "payment.capture", "--dry-run")
    done = many.run(*words)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert sorted(lines(done)) == sorted(
        f"{one} would be {many.would}: payment.capture" for one in many.ids)
    listed = json.loads(many.run(*words, "--json").stdout)
    assert sorted(one["effect_id"] for one in listed) == sorted(many.ids)
    assert [many.effects.show(one) for one in many.all()] == before
    assert len(many.provider.requests) == requests


def test_with_yes_each_is_changed_once_with_evidence_of_its_own(many):
    many.provider.always = "ok"
    done = many.run("effects", "--scope", "payment.capture", "--yes")
    assert done.returncode == 0, done.stderr
    assert sorted(line.split(": ")[0] for line in lines(done)) == sorted(many.ids)
    if many.after is not None:
        assert {line.split(": ")[1] for line in lines(done)} == {many.after}
    for one in many.ids:
        until(lambda one=one: not many.is_ready(one), f"{one} has not changed")
        assert "an outage" in many.server.cli("show", one, *many.server.reached).stdout
    assert many.is_ready(many.other)
    again = many.run("effects", "--scope", "payment.capture", "--yes")
    assert (again.returncode, again.stdout) == (0, ""), again
    assert f"no {many.which} matches; nothing changed" in again.stderr


def test_without_yes_it_refuses_where_nobody_can_be_asked(many):
    word = "settled" if many.verb == "resolve" else many.would
    kind = ["effects"] if many.verb == "resolve" else []  # without it resolve means operations
    done = many.run(*kind, "--scope", "payment.capture")
    assert (done.returncode, done.stdout) == (64, ""), done
    assert f"{many.verb}: 3 effect(s) would be {word}; nothing changed" in done.stderr
    assert "--dry-run lists them; --yes " in done.stderr
    assert all(many.is_ready(one) for one in many.all())


def test_json_has_the_document_of_each(many):
    done = json.loads(many.run("effects", "--since", "1h", "--yes", "--json").stdout)
    assert {many.effects.show(one)["effect_id"] for one in many.ids} <= \
        {one["effect_id"] for one in done}


# ---- Interrupted ---------------------------------------------------------------------------------


class Between:
    """Passes requests on to a server; at the nth change it does something else instead."""

    def __init__(self, server, at, then):
        self.server, self.left, self.then = server, at, then
        between = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def pass_on(self, body=None):
                wire = http.client.HTTPConnection("127.0.0.1", between.server.port, timeout=60)
                wire.request(self.command, self.path, body, {"Content-Type": "application/json"})
                answer = wire.getresponse()
                text = answer.read()
                wire.close()
                return answer.status, text

            def give(self, status, text):
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def do_GET(self):
                self.give(*self.pass_on())

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                between.left -= 1
                if between.left == 0:
                    return between.then(self, body)
                return self.give(*self.pass_on(body))

        self.http = ThreadingHTTPServer(("127.0.0.1", servers.free_port()), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def end(self):
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def between(many):
    made = []

    def make(at, then):
        made.append(Between(many.server, at, then))
        return made[-1].url
    yield make
    for one in made:
        one.end()


def settle_the_rest(many, changed):
    """The same line again changes those that are left, and each has changed once."""
    again = many.run("effects", "--scope", "payment.capture", "--yes")
    assert again.returncode == 0, again.stderr
    assert len(lines(again)) == 3 - changed, again.stdout
    assert not any(many.is_ready(one) for one in many.ids) and many.is_ready(many.other)
    checked = many.server.cli("ls", "effects", "--json", *many.server.reached)
    refunds = [one for one in json.loads(checked.stdout)
        if one["effect_type"] == "payment.refund"]
    assert len(refunds) == (3 if many.verb == "compensate" else 0)


def test_a_server_that_goes_away_ends_it_and_the_same_line_goes_on(many, between):
    many.provider.always = "ok"

    def cut(handler, _):
        handler.close_connection = True
        handler.connection.close()
    done = many.run("effects", "--scope", "payment.capture", "--yes", url=between(2, cut))
    assert done.returncode in (69, 75), done
    assert "1 of 3 effects were " in done.stderr
    assert "the same line again goes on with those that are still " in done.stderr
    assert len(lines(done)) == 1
    settle_the_rest(many, 1)


def test_a_command_that_is_killed_leaves_what_is_done_and_the_same_line_goes_on(many, between):
    """At its second change, which still happens: the answer is what nobody reads."""
    many.provider.always = "ok"
    killed, processes = threading.Event(), []

    def kill(handler, body):
        processes[0].kill()
        processes[0].wait()
        handler.pass_on(body)
        handler.close_connection = True
        killed.set()
    url = between(2, kill)
    processes.append(subprocess.Popen([BINARY, many.verb, "effects", "--scope", "payment.capture",
        "--yes", *many.words, "--reason", "an outage", "--server", url], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    processes[0].communicate(timeout=120)
    assert killed.wait(60)
    settle_the_rest(many, 2)


def test_one_that_changed_meanwhile_is_reported_and_the_others_go_on(many, between):
    many.provider.always = "ok"

    def refuse(handler, _):
        handler.give(409, json.dumps({"type": "about:blank", "title": "no", "status": 409,
            "code": "wrong_status", "detail": "the effect is failed", "effect": "no",
            "retry": "no"}).encode())
    done = many.run("effects", "--scope", "payment.capture", "--yes", url=between(2, refuse))
    assert done.returncode == 65, done
    assert "the others are unaffected" in done.stderr and "2 of 3 effects were " in done.stderr
    assert len(lines(done)) == 2
    settle_the_rest(many, 2)


# ---- What it is about ----------------------------------------------------------------------------


@pytest.fixture
def waiting(make_server, make_provider):
    provider = make_provider()
    server = make_server(config=config_of(provider, PATIENT, effect=UNDONE, more="".join(
        TYPE.format(name=name) for name in ("mail.send", "payment.refund"))))
    return Many(server, provider, "cancel")


def test_filters_choose_by_type_key_and_age(waiting):
    def matches(*words):
        return len(lines(waiting.run(*words, "--dry-run")))
    assert matches("effects") == 4 and matches("--since", "1h") == 4
    assert matches("--older-than", "1h") == 0 and matches("--older-than", "0s") == 4
    assert matches("--scope", "mail.send") == 1 and matches("--key", "k1") == 1
    assert matches("--scope", "mail.send", "--key", "k1") == 0


def test_ls_effects_takes_the_same_filters(waiting):
    def listed(*words):
        done = waiting.server.cli("ls", "effects", *words, "--json", *waiting.server.reached)
        assert done.returncode == 0, done.stderr
        return sorted(one["effect_id"] for one in json.loads(done.stdout))
    assert listed("--scope", "mail.send") == [waiting.other]
    assert listed("--key", "k0") == [waiting.ids[0]]
    assert listed("--older-than", "1h") == [] and len(listed("--since", "1h")) == 4
    assert listed("--status", "uncertain") == [] and len(listed("--status", "pending")) == 4


@pytest.mark.parametrize("words", [[], ["eff_01", "--scope", "x"], ["eff_01", "--dry-run"],
    ["effects", "--principal", "ann", "--yes"]])
def test_what_does_not_go_together_is_refused(waiting, words):
    for verb in ("retry", "cancel", "compensate"):
        done = waiting.server.cli(verb, *words, *waiting.server.reached)
        assert done.returncode == 64 and done.stderr.startswith(f"once: {verb}: "), done
    assert all(waiting.is_ready(one) for one in waiting.all())


def test_an_attempt_that_nobody_looked_at_is_not_settled(make_server, make_provider):
    """The list names attempt 1; by the time of the change there has been a second one."""
    provider = make_provider()
    provider.always = "500"
    server = make_server(config=config_of(provider, PATIENT))
    effects = Effects(server)
    one = effects.put("k")
    effects.uncertain(one)
    posts = []

    def newer(handler, body):
        posts.append(json.loads(body))
        status, text = server.request("POST", f"/v1/effects/{one}/resolve",
            {"status": "not_sent", "attempt": 1, "reason": "somebody else"})[::2]
        assert status == 200, text
        effects.uncertain(one, attempt=2)
        handler.give(*handler.pass_on(body))
    way = Between(server, 1, newer)
    try:
        done = server.cli("resolve", "effects", "--status", "failed", "--reason", "x", "--yes",
            "--server", way.url)
    finally:
        way.end()
    assert posts[0]["attempt"] == 1 and done.returncode == 65, done
    assert effects.show(one)["uncertain"] and "0 of 1 effects were settled" in done.stderr


# ---- One -----------------------------------------------------------------------------------------


def test_show_tells_the_whole_story_on_one_screen(make_server, make_provider):
    """From the trace of the envelope to the provider's reference, attempt by attempt."""
    provider = make_provider()
    server = make_server(config=config_of(provider, KEYED, PATIENT, effect=UNDONE,
        more=TYPE.format(name="payment.refund")))
    effects = Effects(server)
    provider.script("k", "503", "500")
    one = effects.put("k", command_id="order-1", trace={"correlation_id": "corr-1"})
    effects.settled(one, ACKNOWLEDGED)
    assert server.request("POST", f"/v1/effects/{one}/compensate", {"reason": "returned"})[0] == 202
    undo = effects.settled(one, "compensated")["compensation"]["effect_id"]
    shown = server.cli("show", one, *server.reached).stdout
    above, story = shown.split("\n\n", 1)
    members = dict(line.split(None, 1) for line in above.splitlines())
    assert list(members)[0] == "effect_id" and members["effect_id"] == one
    assert members["trace.correlation_id"] == "corr-1" and members["command_id"] == "order-1"
    assert members["acknowledgement.provider_ref"] == "ch_k" and members["attempt"] == "3"
    assert members["compensation.effect_id"] == undo and members["status"] == "compensated"
    own, undone = story.split(f"\n\nundone by {undo}\n")
    types = [line.split()[1] for line in own.splitlines()]
    assert types == ["effect.created", *["effect.dispatched", "effect.retried"] * 2,
        "effect.dispatched", "effect.acknowledged", "compensation.started", "effect.compensated"]
    for text in ("effect.retried  attempt 1  by dispatch  request ", ": the upstream answered 503",
            "attempt 2", "effect.acknowledged  attempt 3  provider_ref ch_k  by dispatch",
            ": returned"):
        assert text in own, own
    assert "effect.acknowledged  attempt 1" in undone


def test_a_payload_that_cannot_be_read_hides_nothing_else(make_server, make_provider, tmp_path):
    """The key of its body is no longer among secrets.key_file."""
    provider = make_provider()
    server = make_server(config=config_of(provider, PATIENT))
    effects = Effects(server)
    one = effects.put("k", not_before=FUTURE)
    assert effects.show(one)["payload"] == {"amount": 5}
    other = tmp_path / "other.key"
    other.write_text("ff" * 32)
    other.chmod(0o600)
    server.stop()
    path = server.directory / "once.yaml"
    path.write_text(path.read_text().replace(str(key_file()), str(other)))
    server.start()
    shown = effects.show(one)
    assert "payload" not in shown and shown["status"] == "pending"
    assert shown["payload_unreadable"] == "a kept body was sealed with a key that is not given"
    assert "payload_unreadable" in server.cli("show", one, *server.reached).stdout
    status, _, cancelled = server.request("POST", f"/v1/effects/{one}/cancel", {"reason": "x"})
    assert status == 200 and cancelled["status"] == FAILED
