"""Events that become commands: one for each event, in the commit that seals its delivery."""
import itertools
import json
import re
import signal
import subprocess

import pytest

import servers
import stores
from inbox_help import SECRET, hexmac, signed
from killed_at import KilledAt
from once_server import BINARY, LIGHT, ROOT, Broken, until
from streams import Stream, event
from test_inbox import deliveries, settled

MESSAGE = "event.entry.0.changes.0.value.messages.0"
CANCEL = f"""      command: order.cancel
      envelope:
        actor_id: "wa:{{{MESSAGE}.from}}"
        target: {{order_id: "{{{MESSAGE}.order}}"}}
        args: {{do: "{{{MESSAGE}.do}}", message: "{{event_id}}"}}
"""
QUICK = "      retry: {attempts: 3, backoff: 10ms, backoff_max: 20ms}\n"


@pytest.fixture
def whatsapp(make_server, shop, secret):
    """A server whose source `wa` submits order.cancel: whatsapp("more YAML of the source")."""
    def make(more=QUICK, source=CANCEL, **how):
        return make_server(config=configured(shop, secret, source + more), **how)
    return make


def configured(shop, secret, source):
    return (shop.config() + "inbox:\n  sources:\n    wa:\n      preset: meta\n"
        f"      secrets: [{{file: {secret}}}]\n" + source)


def message(wamid, order="204", **more):
    fields = {"id": wamid, "from": "34600", "order": order, "do": "", **more}
    return json.dumps({"object": "whatsapp_business_account", "entry": [{"id": "1", "changes": [
        {"field": "messages", "value": {"messages": [fields]}}]}]}).encode()


def send(server, wamid, **more):
    body = message(wamid, **more)
    return server.request("POST", "/in/wa", body, signed("meta", body))


def commands(server, **filters):
    query = "&".join(f"{name}={value}" for name, value in filters.items())
    status, _, page = server.request("GET", f"/v1/commands?limit=1000&{query}")
    assert status == 200, page
    return page["commands"]


def executed(server, count):
    until(lambda: len(commands(server, status="executed")) == count, f"not {count} executed")
    return commands(server, status="executed")


def entries(server, operation_id):
    return server.request("GET", f"/v1/evidence?operation_id={operation_id}")[2]["entries"]


def dead_letter(server):
    one, = settled(server, "dead_letter")
    return server.request("GET", f"/v1/deliveries/{one['delivery_id']}")[2]


def test_a_message_becomes_one_command_with_its_wamid_in_the_trace(whatsapp, shop):
    server = whatsapp()
    status, _, answer = send(server, "wamid.1")
    assert status == 200 and answer["receipts"][0]["decision"] == "first_seen", answer
    delivery_id = answer["receipts"][0]["delivery_id"]
    command, = executed(server, 1)
    assert command["command"] == "order.cancel" and command["actor_id"] == "wa:34600"
    wanted = {"delivery_id": delivery_id, "event_id": "wamid.1", "source": "wa"}
    trace = server.request("GET", f"/v1/commands/{command['command_id']}")[2]["trace"]
    assert wanted.items() <= trace.items(), trace
    # The handler of the command gets the envelope, the event named in it.
    (path, headers, got), = shop.seen
    assert path == "/order.cancel?shop=1"
    assert got["trace"] == wanted and got["tenant_id"] == "default"
    assert got["intent"] == {"entity": "order", "action": "cancel", "target": {"order_id": "204"}}
    assert got["args"] == {"do": "", "message": "wamid.1"}
    assert headers["Idempotency-Key"] == got["idempotency_key"] == command["idempotency_key"]
    # The delivery says which command it is.
    settled(server)
    delivery = server.request("GET", f"/v1/deliveries/{delivery_id}")[2]
    assert delivery["receipt"] == {"command": "order.cancel",
        "idempotency_key": command["idempotency_key"]}
    # Both are in the evidence, which decides the same again.
    made = entries(server, command["command_id"])
    assert [entry["type"] for entry in made][0] == "command.received", made
    assert made[0]["trace"]["event_id"] == "wamid.1"
    assert "delivery.delivered" in [one["type"] for one in entries(server, delivery_id)]
    # A duplicate gets the receipt, and nothing else happens.
    status, _, again = send(server, "wamid.1")
    assert status == 200 and again["receipts"][0]["decision"] == "duplicate_replayed"
    assert again["receipts"][0]["receipt"] == delivery["receipt"]
    assert send(server, "wamid.1", order="205")[0] == 409
    assert len(shop.seen) == 1 and len(commands(server)) == 1
    server.stop()
    done = server.cli("verify", "--redecide", "--store", server.store)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_event_whose_delivery_was_forgotten_finds_its_command(whatsapp, shop):
    server = whatsapp(QUICK + "      window: 1s\n")
    send(server, "wamid.1")
    executed(server, 1)
    until(lambda: send(server, "wamid.1")[2]["receipts"][0]["decision"] == "first_seen",
        "the delivery is not forgotten")
    settled(server)
    assert len(commands(server)) == 1 and len(shop.seen) == 1


def test_an_event_that_cannot_become_its_command_is_a_dead_letter(whatsapp, shop, secret):
    server = whatsapp(source=CANCEL.replace(".do}", ".verb}"))
    send(server, "wamid.1")
    dead = dead_letter(server)
    assert "messages.0.verb} is absent" in dead["reason"] and dead["attempt"] == 1
    # The source is mended, and a person has it delivered.
    reload(server, configured(shop, secret, CANCEL + QUICK))
    assert server.request("POST", f"/v1/deliveries/{dead['delivery_id']}/redeliver", {})[0] == 200
    executed(server, 1)
    settled(server)
    # What the registry refuses.
    actor = f'"wa:{{{MESSAGE}.from}}"'
    assert actor in CANCEL
    reload(server, configured(shop, secret, CANCEL.replace(actor, "7") + QUICK))
    send(server, "wamid.2")
    assert "actor_id" in dead_letter(server)["reason"]
    assert len(shop.seen) == 1


def reload(server, text):
    before = server.stderr().count('"event":"reloaded"')
    (server.directory / "once.yaml").write_text(stores.with_key(text))
    server.signal(signal.SIGHUP)
    until(lambda: server.stderr().count('"event":"reloaded"') > before, "not reloaded")


def test_a_key_of_the_template_names_the_command(whatsapp, shop):
    server = whatsapp(source=CANCEL + f"        idempotency_key: \"order-{{{MESSAGE}.order}}\"\n")
    send(server, "wamid.1", do="")
    executed(server, 1)
    assert commands(server)[0]["idempotency_key"] == "order-204"
    # The same key with a different envelope: the command is untouched, and a person has to look.
    send(server, "wamid.2", do="different")
    dead = dead_letter(server)
    assert "different envelope" in dead["reason"], dead
    assert len(shop.seen) == 1


def test_what_the_handler_of_the_command_does_is_the_commands(whatsapp, shop):
    server = whatsapp()
    send(server, "wamid.1", do="fail")
    send(server, "wamid.2", do="broken")
    send(server, "wamid.3", do="busy 1")
    settled(server, count=3)
    until(lambda: sorted(one["status"] for one in commands(server)) ==
        ["blocked", "executed", "failed"], "the commands are not settled")


def test_a_rate_of_the_registry_delays_and_loses_nothing(make_server, shop, secret):
    text = configured(shop, secret, CANCEL + "      retry: {attempts: 1}\n")
    server = make_server(config=text.replace("order.cancel: {class: I1,",
        "order.cancel: {class: I1, rate: 20,"))
    for number in range(60):
        send(server, f"wamid.{number}")
    executed(server, 60)
    assert not deliveries(server, status="dead_letter")


@pytest.mark.skipif(not servers.Redis.installed(), reason="no redis-server")
def test_a_message_of_a_queue_becomes_a_command(make_server, shop):
    with servers.Redis() as redis:
        stream = Stream(redis)
        server = make_server(config=shop.config() + f"""
inbox:
  queues:
    orders:
      from: {stream.url()}
      command: order.cancel
      envelope: {{actor_id: shop, target: {{order_id: "{{data.n}}"}}, args: {{of: "{{source}}"}}}}
""")
        stream.add(event=event("e1", 7))
        stream.add(event=event("e1", 7))
        stream.add(ce_specversion="1.0", ce_id="e2", ce_source="/s", ce_type="t",
            content_type="application/json", data='{"n": 8}')
        until(stream.is_done, "not everything is acknowledged")
        executed(server, 2)
        assert sorted(got["intent"]["target"]["order_id"] for _, _, got in shop.seen) == [7, 8]
        assert {got["trace"]["source"] for _, _, got in shop.seen} == {"orders"}


def tried(server, tmp_path, body):
    """What `once inbox test` says of a signed request: (exit code, JSON, text)."""
    (tmp_path / "body").write_bytes(body)
    words = ["inbox", "test", "wa", "--config", server.directory / "once.yaml", "--body",
        f"@{tmp_path / 'body'}", "--header"]
    words += [f"X-Hub-Signature-256: sha256={hexmac(body)}"]
    done, text = server.cli(*words, "--json"), server.cli(*words)
    assert done.returncode == text.returncode, (done, text)
    return done.returncode, json.loads(done.stdout), text.stdout


def test_a_trial_shows_the_command_that_an_event_would_become(whatsapp, shop, secret, tmp_path):
    server = whatsapp()
    code, said, text = tried(server, tmp_path, message("wamid.1"))
    assert code == 0 and said["accepted"], said
    would = said["events"][0]["command"]
    assert would["accepted"] and would["name"] == "order.cancel" and "refused" not in would
    assert f"\n  command order.cancel, key {would['idempotency_key']}\n    {{" in text
    assert commands(server) == deliveries(server) == [] and shop.seen == []
    # The envelope is what is then submitted, but for the delivery that there is not yet.
    send(server, "wamid.1")
    command, = executed(server, 1)
    (_, _, got), = shop.seen
    assert would["idempotency_key"] == command["idempotency_key"]
    delivery_id = got["trace"].pop("delivery_id")
    assert would["envelope"]["trace"].pop("delivery_id").strip("dlv_0-") == ""
    assert delivery_id.startswith("dlv_")
    assert would["envelope"].items() <= got.items(), (would, got)


def test_a_trial_says_why_an_event_would_be_a_dead_letter(whatsapp, shop, secret, tmp_path):
    server = whatsapp()
    for source, body, said in (
            (CANCEL.replace(".do}", ".verb}"), message("wamid.1"), "messages.0.verb} is absent"),
            (CANCEL.replace(f'"wa:{{{MESSAGE}.from}}"', "7"), message("wamid.2"), "actor_id"),
            (CANCEL, message("wamid.3", **{"from": "3" * 2000}), "actor_id")):
        text = configured(shop, secret, source + QUICK)
        reload(server, text)
        code, answer, shown = tried(server, tmp_path, body)
        would = answer["events"][0]["command"]
        assert code == 65 and answer["accepted"] and not would["accepted"], answer
        assert said in would["refused"] and "idempotency_key" not in would, would
        assert f"command order.cancel: a dead letter: {would['refused']}\n" in shown
        # And so it is.
        server.request("POST", "/in/wa", body, signed("meta", body))
        dead = dead_letter(server)
        assert dead["reason"] == would["refused"]
        server.request("POST", f"/v1/deliveries/{dead['delivery_id']}/skip", {"reason": "seen"})


def is_over(server, count):
    """Each command was executed, or was being called when the server was killed."""
    made = commands(server)
    return len(made) == count and {one["status"] for one in made} <= {"executed", "blocked"}


@stores.journal_only("its process is killed between two writes")
def test_a_kill_at_any_step_leaves_one_command_for_each_event(whatsapp, shop, tmp_path):
    """The server ends itself before each write, flush and connection from the event to the end of
    its command. One command each; called once, or waiting for a person when it was being called."""
    shim = KilledAt(tmp_path)
    server = whatsapp(env=shim.env)
    sent = []
    for number in itertools.count(1):
        wamid = f"wamid.{number}"
        shim.at(number)
        try:
            sent.append(wamid)
            send(server, wamid)
            until(lambda: is_over(server, len(sent)), "neither ended nor killed", 30)
        except (Broken, OSError):
            pass
        if not shim.name():
            break
        server.process.wait()
        shim.at(0)
        server.start()
        until(lambda: send(server, wamid)[0] == 200, "not accepted")  # as its sender does
        if LIGHT and number == 8:
            break
    shim.at(0)
    assert len(sent) >= 8, "its life has more steps"
    settled(server, count=len(sent), limit=1000)
    until(lambda: is_over(server, len(sent)), "stuck")
    told = [got["trace"]["event_id"] for _, _, got in shop.seen]
    assert len(told) == len(set(told)), told
    assert {one["status"] for one in commands(server)} == {"executed", "blocked"} or LIGHT
    server.stop()
    done = server.cli("verify", "--redecide", "--store", server.store)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_of_the_page_works(make_server, shop, tmp_path):
    page = (ROOT / "docs/inbox.md").read_text().split("\n## Commands\n")[1]
    text, body = (re.search(f"```{kind}\n(.*?)```", page, re.S).group(1)
        for kind in ("yaml", "json"))
    (tmp_path / "app-secret").write_text(SECRET + "\n")
    text = text.replace("/run/secrets/app-secret", str(tmp_path / "app-secret"))
    server = make_server(config=text.replace("http://127.0.0.1:9000", shop.url))
    body = body.encode()
    status, _, answer = server.request("POST", "/in/whatsapp", body,
        {"X-Hub-Signature-256": "sha256=" + hexmac(body)})
    assert status == 200, answer
    command, = executed(server, 1)
    (_, _, got), = shop.seen
    assert command["command"] == "message.received"
    assert got["actor_id"] == "34600111222" and got["args"] == {"text": "Where is order 204?"}
    assert got["trace"]["event_id"] == "wamid.HBgLMzQ2MDAxMTEyMjI"


def test_what_is_wrong_with_a_command_of_a_source_is_named(shop, secret, tmp_path):
    def check(source):
        path = tmp_path / "once.yaml"
        path.write_text(configured(shop, secret, source))
        done = subprocess.run([BINARY, "check", str(path)], text=True, capture_output=True,
            timeout=60)
        return done.returncode, done.stderr, done.stdout

    code, _, text = check(CANCEL)
    assert code == 0 and "wa -> order.cancel" in text and "twice" not in text.split("wa ->")[1]
    first = len(configured(shop, secret, "").splitlines()) + 1
    for source, line, said in (
            (CANCEL.replace("order.cancel", "order.nope"), first, "does not exist: 'order.nope'"),
            (CANCEL.replace("order.cancel", "order.refund"), first, "asks for a confirmation"),
            (CANCEL.replace(MESSAGE + ".from", "sender"), first + 2, "no value called {sender}"),
            (CANCEL.replace("actor_id", "actor"), first + 2, "'actor' is not a member"),
            (CANCEL.replace("actor_id", "x_actor"), first + 2, "no actor_id"),
            (CANCEL.replace("target", "x_target"), first + 2, "no target"),
            (CANCEL + "      handler: http://h/\n", first + 5, "has a command"),
            (CANCEL + "      mode: sync\n", first + 5, "mode is about a handler"),
            (CANCEL + "      on_unknown: hold\n", first + 5, "on_unknown is about a handler"),
            ("      command: order.cancel\n", first, "go together"),
            ("      envelope: {actor_id: a, target: b}\n", first, "go together"),
            ("", first - 2, "no handler and no command"),
    ):
        code, text, _ = check(source)
        assert code == 78 and said in text, (source, text)
        assert re.search(rf"once\.yaml:{line}:\d+: ", text), (line, text)
