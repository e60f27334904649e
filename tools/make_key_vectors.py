#!/usr/bin/env python3
"""Write tests/vectors/keys/*.json: envelopes, the bytes their keys hash, and the digests.

    tools/make_key_vectors.py tests/vectors/keys

The canonical bytes are written out by hand below and hashed by hashlib, so that the vectors do not
depend on the code they test. A vector without canonical bytes is one that must be refused; "error"
is then part of the text. Each SDK runs the same files.
"""
import hashlib
import json
import sys



def changed(tenant="acme", actor="user:1", effective=None, entity="order", action="refund",
        target='{"order_id":"204"}', args='{"amount":1990}', kind="mutation"):
    """The envelope of "white space between the tokens" with one member changed, and its form."""
    on_behalf = f'"effective_actor_id":"{effective}",' if effective else ""
    return (f'{{"tenant_id":"{tenant}","actor_id":"{actor}",{on_behalf}"intent":{{'
        f'"entity":"{entity}","action":"{action}","target":{target}}},"args":{args},'
        f'"command_kind":"{kind}"}}',
        f'{{"actor_id":"{effective or actor}","args":{args},"command_kind":"{kind}","intent":{{'
        f'"action":"{action}","entity":"{entity}","target":{target}}},"tenant_id":"{tenant}"}}')


COMMAND = [
    ("the whole envelope, ephemeral members left out",
     '{"command_id":"cmd_1","tenant_id":"acme","actor_id":"user:1","intent":{"entity":"order",'
     '"action":"refund","target":{"order_id":"204"}},"args":{"currency":"BRL","amount":1990},'
     '"command_kind":"mutation","idempotency_key":"k","source":{"type":"w","id":"1"},'
     '"trace":{"message_ids":["m1"]},"created_at":"2026-02-22T00:00:00Z","confirmation":"tok",'
     '"extensions":{"a":1},"x_note":9007199254740993}',
     '{"actor_id":"user:1","args":{"amount":1990,"currency":"BRL"},"command_kind":"mutation",'
     '"intent":{"action":"refund","entity":"order","target":{"order_id":"204"}},'
     '"tenant_id":"acme"}'),
    ("other order, other spelling of the same values, other message",
     '{"args":{"amount":1.990e3,"currency":"\\u0042RL"},"intent":{"target":{"order_id":"204"},'
     '"action":"refund","entity":"order"},"command_kind":"mutation","actor_id":"user:1",'
     '"tenant_id":"acme","created_at":"2027-01-01T00:00:00Z","command_id":"cmd_2"}',
     '{"actor_id":"user:1","args":{"amount":1990,"currency":"BRL"},"command_kind":"mutation",'
     '"intent":{"action":"refund","entity":"order","target":{"order_id":"204"}},'
     '"tenant_id":"acme"}'),
    ("without arguments and kind",
     '{"tenant_id":"acme","actor_id":"u",'
     '"intent":{"entity":"list","action":"clear","target":null}}',
     '{"actor_id":"u","args":{},"intent":{"action":"clear","entity":"list","target":null},'
     '"tenant_id":"acme"}'),
    ("empty arguments are the same as none",
     '{"tenant_id":"acme","actor_id":"u","args":{},'
     '"intent":{"entity":"list","action":"clear","target":null}}',
     '{"actor_id":"u","args":{},"intent":{"action":"clear","entity":"list","target":null},'
     '"tenant_id":"acme"}'),
    ("the effective actor stands in for the actor",
     '{"tenant_id":"acme","actor_id":"bot","effective_actor_id":"user:1",'
     '"intent":{"entity":"e","action":"a","target":"t"}}',
     '{"actor_id":"user:1","args":{},"intent":{"action":"a","entity":"e","target":"t"},'
     '"tenant_id":"acme"}'),
    ("the effective actor alone",
     '{"tenant_id":"acme","effective_actor_id":"user:1",'
     '"intent":{"entity":"e","action":"a","target":"t"}}',
     '{"actor_id":"user:1","args":{},"intent":{"action":"a","entity":"e","target":"t"},'
     '"tenant_id":"acme"}'),
    ("text beyond ASCII, escapes, exponent forms",
     '{"tenant_id":"acme","actor_id":"u","args":{"n":1E21,"e":"\\u00e9\\n","\\ud83d\\ude02":1e-7,'
     '"\\ufb33":0.000001},"intent":{"entity":"e","action":"a","target":["x",1]}}',
     '{"actor_id":"u","args":{"e":"\u00e9\\n","n":1e+21,"\U0001f602":1e-7,"\ufb33":0.000001},'
     '"intent":{"action":"a","entity":"e","target":["x",1]},"tenant_id":"acme"}'),
    ("white space between the tokens",
     ' {\n\t"tenant_id" : "acme" ,\r\n "actor_id":"user:1", "intent": { "entity":"order",'
     '"action":"refund","target":{ "order_id" :"204" } } ,"args":{"amount": 1990 },'
     '"command_kind":"mutation" } ',
     '{"actor_id":"user:1","args":{"amount":1990},"command_kind":"mutation",'
     '"intent":{"action":"refund","entity":"order","target":{"order_id":"204"}},'
     '"tenant_id":"acme"}'),
    *((f"another {what}", *changed(**{what: value})) for what, value in (
        ("tenant", "zeta"), ("actor", "user:2"), ("effective", "user:2"), ("entity", "cart"),
        ("action", "cancel"), ("target", '{"order_id":204}'), ("args", '{"amount":1991}'),
        ("args", '{"amount":"1990"}'), ("kind", "query"))),
]
COMMAND_REFUSED = [
    ("a lossy number in args",
     '{"tenant_id":"a","actor_id":"u","args":{"list":[1,9007199254740993]},'
     '"intent":{"entity":"e","action":"a","target":"t"}}', '/args/list/1'),
    ("a lossy number in target", '{"tenant_id":"a","actor_id":"u",'
     '"intent":{"entity":"e","action":"a","target":{"id":333333333.33333329}}}',
     '/intent/target/id'),
    ("a number beyond every double", '{"tenant_id":"a","actor_id":"u","args":{"n":1e400},'
     '"intent":{"entity":"e","action":"a","target":"t"}}', '/args/n'),
    ("a duplicate member", '{"tenant_id":"a","tenant_id":"b","actor_id":"u",'
     '"intent":{"entity":"e","action":"a","target":"t"}}', 'duplicate member "tenant_id"'),
    ("an unknown member", '{"tenant_id":"a","actor_id":"u","amount":1,'
     '"intent":{"entity":"e","action":"a","target":"t"}}', 'unknown member "/amount"'),
    ("an unknown member of intent", '{"tenant_id":"a","actor_id":"u",'
     '"intent":{"entity":"e","action":"a","target":"t","x_more":1}}',
     'unknown member "/intent/x_more"'),
    ("no tenant", '{"actor_id":"u","intent":{"entity":"e","action":"a","target":"t"}}',
     'member "/tenant_id" is missing'),
    ("no actor", '{"tenant_id":"a","intent":{"entity":"e","action":"a","target":"t"}}',
     'member "/actor_id" is missing'),
    ("no intent", '{"tenant_id":"a","actor_id":"u"}', 'member "/intent" is missing'),
    ("no target", '{"tenant_id":"a","actor_id":"u","intent":{"entity":"e","action":"a"}}',
     'member "/intent/target" is missing'),
    ("an empty tenant", '{"tenant_id":"","actor_id":"u",'
     '"intent":{"entity":"e","action":"a","target":"t"}}', 'member "/tenant_id" must be'),
    ("a tenant that is no string", '{"tenant_id":1,"actor_id":"u",'
     '"intent":{"entity":"e","action":"a","target":"t"}}', 'member "/tenant_id" must be'),
    ("args that are no object", '{"tenant_id":"a","actor_id":"u","args":[],'
     '"intent":{"entity":"e","action":"a","target":"t"}}', 'member "/args" must be an object'),
    ("an effective actor that is no string",
     '{"tenant_id":"a","actor_id":"u","effective_actor_id":null,'
     '"intent":{"entity":"e","action":"a","target":"t"}}',
     'member "/effective_actor_id" must be a string'),
    ("not an object", '["tenant_id"]', 'not an object'),
]
EFFECT = [
    ("the canonical example of CCO-1 with its tenant",
     '{"effect_id":"uuid","tenant_id":"acme","command_id":"cmd_123",'
     '"idempotency_key":"sha256(...)",'
     '"effect_type":"payment.capture","target":{"order_id":"204"},"payload":{"amount":1990,'
     '"currency":"BRL","big":9007199254740993},"trace":{"correlation_id":"corr_789"},"attempt":1,'
     '"created_at":"2026-02-22T00:00:00Z","policy_refs":["p"],"extensions":{},"x_a":1}',
     '{"command_id":"cmd_123","effect_type":"payment.capture","ordinal":0,'
     '"target":{"order_id":"204"},"tenant_id":"acme"}'),
    ("a second effect of the same kind on the same target",
     '{"tenant_id":"acme","command_id":"cmd_123","effect_type":"payment.capture",'
     '"target":{"order_id":"204"},"ordinal":1}',
     '{"command_id":"cmd_123","effect_type":"payment.capture","ordinal":1,'
     '"target":{"order_id":"204"},"tenant_id":"acme"}'),
    ("a target that is not known yet",
     '{"tenant_id":"acme","command_id":"c","effect_type":"mail.send"}',
     '{"command_id":"c","effect_type":"mail.send","ordinal":0,"tenant_id":"acme"}'),
]
EFFECT_REFUSED = [
    ("no command", '{"tenant_id":"a","effect_type":"t"}', 'member "/command_id" is missing'),
    ("no type", '{"tenant_id":"a","command_id":"c"}', 'member "/effect_type" is missing'),
    ("no tenant", '{"command_id":"c","effect_type":"t"}', 'member "/tenant_id" is missing'),
    ("a negative ordinal", '{"tenant_id":"a","command_id":"c","effect_type":"t","ordinal":-1}',
     'member "/ordinal" must be'),
    ("an ordinal that is no integer",
     '{"tenant_id":"a","command_id":"c","effect_type":"t","ordinal":1.5}',
     'member "/ordinal" must be'),
    ("a lossy ordinal",
     '{"tenant_id":"a","command_id":"c","effect_type":"t","ordinal":9007199254740993}', '/ordinal'),
    ("an unknown member", '{"tenant_id":"a","command_id":"c","effect_type":"t","amount":1}',
     'unknown member "/amount"'),
]
SOURCE = [
    ("all five", '{"tenant_id":"acme","source_type":"stripe","source_id":"evt_1","revision":"v3",'
     '"index_hash":"abc","action":"create"}',
     '{"action":"create","index_hash":"abc","revision":"v3","source_id":"evt_1",'
     '"source_type":"stripe","tenant_id":"acme"}'),
    ("two, framed", '{"tenant_id":"acme","source_type":"ab","source_id":"c"}',
     '{"source_id":"c","source_type":"ab","tenant_id":"acme"}'),
    ("the same letters framed otherwise", '{"tenant_id":"acme","source_type":"a","source_id":"bc"}',
     '{"source_id":"bc","source_type":"a","tenant_id":"acme"}'),
    ("a revision that is a number", '{"tenant_id":"acme","source_id":"d","revision":7.0}',
     '{"revision":7,"source_id":"d","tenant_id":"acme"}'),
]
SOURCE_REFUSED = [
    ("the tenant alone", '{"tenant_id":"acme"}', 'is needed'),
    ("no tenant", '{"source_id":"a"}', 'member "/tenant_id" is missing'),
    ("an unknown member", '{"tenant_id":"a","source_id":"b","created_at":"now"}',
     'unknown member "/created_at"'),
    ("an extension", '{"tenant_id":"a","source_id":"b","x_a":1}', 'unknown member "/x_a"'),
    ("null", '{"tenant_id":"a","source_id":null}', 'member "/source_id" must be'),
    ("a lossy revision", '{"tenant_id":"a","source_id":"b","revision":9007199254740993}',
     '/revision'),
]


def write(folder, kind, good, bad):
    """One file a kind; the input stays text: some inputs are not JSON that all readers take."""
    cases = []
    for name, text, canonical in good:
        assert json.loads(text) is not None
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        cases.append({"name": name, "input": text, "canonical": canonical, "sha256": digest})
    for name, text, error in bad:
        cases.append({"name": name, "input": text, "error": error})
    with open(f"{folder}/{kind}.json", "w", encoding="utf-8") as out:
        json.dump({"kind": kind, "cases": cases}, out, indent=1, ensure_ascii=False)
        out.write("\n")


write(sys.argv[1], "command", COMMAND, COMMAND_REFUSED)
write(sys.argv[1], "effect", EFFECT, EFFECT_REFUSED)
write(sys.argv[1], "source", SOURCE, SOURCE_REFUSED)
