"""once check and the start lines on connectors, effects, commands and sources: what each comes to,
what happens on 500 or no answer, and what weakens "one effect a key"."""
import json
import os
import select

import pytest

CONFIG = f"""listen: 127.0.0.1:0
auth: {{tokens: [{{sha256: "{64 * "a"}", tenant: acme, rights: [execute]}}]}}
""" + """
connectors:
  pay: {url: "http://127.0.0.1:9", idempotency: {header: Idempotency-Key, keeps: 24h}}
  both: {url: "http://127.0.0.1:9", idempotency: {body: /key}, lookup: {get: "/by/{effect_id}"}}
  mail: {url: "http://127.0.0.1:9/api", timeout: {total: 20s}}
  erp: {url: "http://127.0.0.1:9/erp", protocol: envelope, lookup: {get: "/by/{effect_id}"}}
  old: {url: "http://127.0.0.1:9", approve: manual, allow_internal: true}
effects:
  pay.out: {connector: pay, request: {path: /out}, compensate: {effect: pay.back}}
  pay.back: {connector: both, retry: {attempts: 1, deadline: 0s}}
  erp.book: {connector: erp}
  wire.out: {connector: old, irreversible: true, compensate: {effect: pay.back}}
  mail.send: {connector: mail, critical: true, approve: manual, compensate: {effect: pay.back}}
commands:
  order.hold: {class: I1, shield: [S1, S3], handler: "http://127.0.0.1:9/h", confirm: confirm}
  order.again: {class: I1, handler: "http://127.0.0.1:9/a", on_unknown: takeover, confirm: step_up}
  order.ask: {class: I1, handler: "http://127.0.0.1:9/q", on_unknown: reconcile,
    reconcile: {get: "/by/{key}"}}
  order.read: {class: I0, handler: "http://127.0.0.1:9/r"}
inbox:
  sources:
    gh: {preset: github, secrets: [{env: GH_SECRET}], handler: "http://127.0.0.1:9/g"}
    open: {preset: none, handler: "http://127.0.0.1:9/o", on_unknown: redeliver, tenant: acme}
    ask: {preset: cloudevents, secrets: [{env: GH_SECRET}], handler: "http://127.0.0.1:9/e",
      on_unknown: reconcile, reconcile: {get: "/by/{key}"}}
  queues:
    jobs: {from: "redis://me:planted-secret@127.0.0.1:9/jobs?group=once", format: raw,
      key: {header: id}, handler: "http://127.0.0.1:9/j", tenant: acme}
    asks: {from: "redis://127.0.0.1:9/asks?group=once", command: order.read,
      envelope: {actor_id: "{data.from}", target: {order: "{data.order}"}}}
"""
KEY = ("500 or no answer leaves an effect uncertain: it is sent again with the same key while the "
    "provider keeps it, then ")
HELD = "500 or no answer leaves an effect uncertain until a person settles it"
LOOKUP = "500 or no answer leaves an effect uncertain: the provider is asked (lookup)"
INTERNAL = "the name of the provider may lead to a private address (allow_internal)"
WAITS = "what is uncertain waits for a person (approve: manual)"
BLOCKED = ("500 or no answer from the handler blocks the command until a person decides; "
    "Once-Effect: no in an answer says that nothing was done")
TWICE = "from the handler: it is called again, and its effect may happen twice (on_unknown: "
NO_DEDUPE = "duplicates are not recognised: each submission runs (class: I0)"
AGAIN = ("5xx from the handler: it is called again, so it must be idempotent or answer "
    "Once-Effect: unknown; no answer: a person decides")
ASKED = "from the handler: its server is asked (on_unknown: reconcile)"
OPEN = "anybody who reaches it can send events: it has no secrets"


@pytest.fixture
def config(once):
    (once.directory / "once.yaml").write_text(CONFIG)
    once.env["GH_SECRET"] = "planted-secret"
    return "once.yaml"


def test_each_is_told_and_what_happens_on_500(once, config):
    done = once("check", config)
    assert done.code == 0, done
    lines = done.text.splitlines()
    assert lines[4:] == [line for group in [
        ["connector pay -> http://127.0.0.1:9",
            "        http, key in Idempotency-Key, kept 24h, timeout 1m",
            "        " + KEY + "a person settles it"],
        ["connector both -> http://127.0.0.1:9",
            "        http, key in the body's /key, kept 24h, asked at /by/{effect_id}, timeout 1m",
            "        " + KEY + "the provider is asked (lookup)"],
        ["connector mail -> http://127.0.0.1:9/api", "        http, timeout 20s",
            "        " + HELD + "; idempotency or lookup say what the provider can do"],
        ["connector erp -> http://127.0.0.1:9/erp",
            "        envelope, asked at /by/{effect_id}, timeout 1m", "        " + LOOKUP],
        ["connector old -> http://127.0.0.1:9", "        http, timeout 1m",
            "        " + HELD + " (approve: manual)", "        " + INTERNAL],
        ["effect  pay.out -> pay: POST /out, 8 attempts within 24h, undone by pay.back",
            "effect  pay.back -> both: POST /, 1 attempt",
            "effect  erp.book -> erp: 8 attempts within 24h",
            "effect  wire.out -> old: POST /, 8 attempts within 24h, undone by pay.back, "
            "irreversible",
            "effect  mail.send -> mail: POST /, 8 attempts within 24h, undone by pay.back, "
            "critical", "        " + WAITS],
        ["command order.hold -> http://127.0.0.1:9/h",
            "        I1, shield S1 S3, confirmed first, window 24h, timeout 30s",
            "        " + BLOCKED],
        ["command order.again -> http://127.0.0.1:9/a",
            "        I1, confirmed first by someone else (step_up), window 24h, timeout 30s",
            "        500 or no answer " + TWICE + "takeover)"],
        ["command order.ask -> http://127.0.0.1:9/q", "        I1, window 24h, timeout 30s",
            "        500 or no answer " + ASKED],
        ["command order.read -> http://127.0.0.1:9/r", "        I0, window 24h, timeout 30s",
            "        " + BLOCKED, "        " + NO_DEDUPE],
        ["source  gh -> http://127.0.0.1:9/g",
            "        POST /in/gh, github, async, tenant default, 20 attempts, timeout 1m",
            "        " + AGAIN],
        ["source  open -> http://127.0.0.1:9/o",
            "        POST /in/open, none, async, tenant acme, 20 attempts, timeout 1m",
            "        5xx or no answer " + TWICE + "redeliver)", "        " + OPEN],
        ["source  ask -> http://127.0.0.1:9/e",
            "        POST /in/ask, cloudevents, async, tenant default, 20 attempts, timeout 1m",
            "        5xx from the handler: it is called again; no answer: its server is asked "
            "(on_unknown: reconcile)"],
        ["queue   jobs -> http://127.0.0.1:9/j",
            "        redis://me:***@127.0.0.1:9/jobs?group=once",
            "        raw, tenant acme, 20 attempts, timeout 1m",
            "        " + AGAIN],
        ["queue   asks -> order.read",
            "        redis://127.0.0.1:9/asks?group=once",
            "        cloudevents, tenant default, 20 attempts, timeout 1m",
            "        each event becomes one command, in the commit that settles its delivery"]]
        for line in group], done.text


def test_json_has_their_settings_and_facts_and_no_secret(once, config):
    done = once("check", "--json", config)
    assert done.code == 0 and "planted-secret" not in done.text, done
    shown = json.loads(done.out)
    assert [one["connector"] for one in shown["connectors"]] == \
        ["pay", "both", "mail", "erp", "old"]
    pay, mail = shown["connectors"][0], shown["effects"][4]
    assert (pay["idempotency_header"], pay["idempotency_keeps"], pay["timeout_total"]) == \
        ("Idempotency-Key", "24h", "1m")
    assert pay["facts"] == [KEY + "a person settles it"]
    assert (mail["effect_type"], mail["connector"], mail["critical"], mail["facts"]) == \
        ("mail.send", "mail", True, [WAITS])
    assert shown["commands"][3]["command"] == "order.read"
    assert shown["commands"][3]["facts"] == [BLOCKED, NO_DEDUPE]
    source = shown["sources"][1]
    assert (source["source"], source["preset"], source["secrets"], source["tenant"]) == \
        ("open", "none", 0, "acme")
    assert shown["sources"][0]["secrets"] == 1 and "prefetch" not in source
    queue = shown["queues"][0]
    assert (queue["queue"], queue["from"], queue["format"], queue["prefetch"]) == \
        ("jobs", "redis://me:***@127.0.0.1:9/jobs?group=once", "raw", 256)


def test_nothing_is_told_of_what_is_not_there(once):
    (once.directory / "once.yaml").write_text("listen: 127.0.0.1:0\n")
    assert len(once("check", "once.yaml").text.splitlines()) == 4
    assert not {"connectors", "effects", "commands", "sources", "queues"} & \
        set(json.loads(once("check", "--json", "once.yaml").out))


def test_the_start_lines_say_each_once(once, config):
    process = once.start("serve", "--config", config)
    text = ""
    while "\nwrites " not in text:
        assert select.select([process.stdout], [], [], 60)[0], text
        data = os.read(process.stdout.fileno(), 65536)
        assert data, process.stderr.read()
        text += data.decode()
    lines = text.splitlines()
    for line in ["5 connectors", "5 effects", "4 commands", "3 sources", "2 queues",
            INTERNAL + " (1 of 5 connectors)", WAITS + " (1 of 5 effects)",
            BLOCKED + " (2 of 4 commands)", NO_DEDUPE + " (1 of 4 commands)",
            "500 or no answer " + TWICE + "takeover) (1 of 4 commands)",
            "5xx or no answer " + TWICE + "redeliver) (1 of 3 sources)",
            OPEN + " (1 of 3 sources)"]:
        assert lines.count(line) == 1, (line, text)


def test_a_type_of_effect_that_nobody_declares_is_named(once):
    (once.directory / "once.yaml").write_text(
        'commands:\n  a.b: {handler: "http://127.0.0.1:9/", effects: [pay.none]}\n')
    done = once("check", "once.yaml")
    assert done.code == 78, done
    assert done.message.startswith(
        "once.yaml:2:3: 'a.b' names an effect type that does not exist: 'pay.none'\n"), done


@pytest.mark.parametrize("preset", ["standard_webhooks", "svix"])
@pytest.mark.parametrize("secret, says", [("whsec_%%%", "is not whsec_"),
    ("whsec_YQ==", "length 1 instead"), ("whpk_YWJj", "length 3 instead"), ("", "empty")])
def test_a_secret_that_can_be_read_has_the_form_of_its_preset(once, tmp_path, preset, secret, says):
    place = tmp_path / "once.yaml"
    place.write_text(f"""inbox:
  sources:
    hook:
      preset: {preset}
      secrets: [{{env: GOOD}}, {{env: ODD}}, {{env: ELSEWHERE}}, {{file: /nowhere/at/all}}]
      handler: http://127.0.0.1:9/h
""")
    once.env["GOOD"] = "whsec_" + "QUJD" * 11
    once.env["ODD"] = once.env["GOOD"]
    assert once("check", str(place)).code == 0
    once.env["ODD"] = secret
    done = once("check", str(place))
    assert done.code == 78 and f"{place}:5:30: source 'hook', variable ODD: " in done.message, done
    assert says in done.message and (secret == "" or secret not in done.message.split("\n")[0])


# Every section of a file, as the design writes it.
WHOLE = """listen: 127.0.0.1:7411
store: journal:./once-data
auth:
  tokens:
    - {sha256: "SHA256", tenant: acme, rights: [execute, operate, audit, confirm], name: "checkout"}
limits: {body_bytes_max: 10MiB, outcome_bytes_max: 16MiB, duplicate_rate: 20, duplicate_burst: 40}
evidence: {retain: 400d, checkpoint_every: 60s}

gateway:
  listen: 127.0.0.1:8080
  routes:
    - match: "POST,PUT /v1/payments/**"
      upstream: http://127.0.0.1:3000
      profile: guardia
      window: 24h
      principal: auto
      ignore: [/client_time]
      redact: [/card/number]
      on_status: {500: unknown, 503: release}
      wait: 10s
      on_unknown: hold
      reconcile: {get: "/v1/payments/by-key/{key}", executed: [200], not_executed: [404]}
      lease: 60s
      timeout: {connect: 2s, first_byte: 30s, total: 60s}

commands:
  order.refund:
    class: I3
    justification: "the provider has no idempotency keys"
    shield: [S3]
    critical: true
    ttl: 72h
    binding: actor
    confirm: confirm
    confirm_ttl: 5m
    prompt: "Refund order {target.order_id}?"
    handler: http://127.0.0.1:9000/refund
    timeout: 10s
    on_unknown: hold
    redact: [/args/card]
    args:
      amount: {type: integer, required: true, min: 1}
      currency: {type: string, required: true, normalise: upper}
"""


def test_a_file_with_every_section_loads(once):
    (once.directory / "once.yaml").write_text(WHOLE.replace("SHA256", 64 * "a"))
    done = once("check", "once.yaml")
    assert done.code == 0 and done.text.startswith("once.yaml: ok"), done.message
    assert "once.yaml:40:5: warning: 'order.refund' redacts '/args/card', which" in done.message


def test_an_argument_that_is_redacted_and_not_declared_is_a_warning(once):
    """An envelope with it is refused, so nothing is shown; one misspelt is pointed at."""
    (once.directory / "once.yaml").write_text("commands:\n  a.b:\n    handler: http://[::1]:9/h\n"
        "    redact: [/args/cards]\n    args: {card: {type: string}}\n")
    done = once("check", "once.yaml")
    assert done.code == 0 and "4:5: warning: 'a.b' redacts '/args/cards'" in done.message
