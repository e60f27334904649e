"""once canon and once key."""
import hashlib
import json
from pathlib import Path

import pytest
from conftest import ROOT

VECTORS = ROOT / "tests/vectors"


def vector_pairs():
    """Folders that have input/ and output/ with the same names, as the JCS suite has."""
    for folder in sorted(VECTORS.rglob("input")):
        for path in sorted(folder.iterdir()):
            expected = folder.parent / "output" / path.name
            if expected.is_file():
                yield pytest.param(path, expected, id=f"{folder.parent.name}/{path.name}")


@pytest.mark.parametrize("given, expected", list(vector_pairs()))
def test_the_vectors_of_the_canonical_form(once, given, expected):
    done = once("canon", stdin=given.read_bytes())
    assert done.code == 0, done
    assert done.out == expected.read_bytes().rstrip(b"\n")


def test_exactly_the_canonical_bytes_and_nothing_else(once):
    done = once("canon", stdin=b'{"b": [1.0, 2e3, -0], "a": "\\u20ac\\/"}\n')
    assert (done.code, done.err) == (0, b"")
    assert done.out == '{"a":"€/","b":[1,2000,0]}'.encode()
    assert once("canon", "--json", stdin=b'{"b":2, "a":1}').out == b'{"a":1,"b":2}'


def test_a_lossy_number_is_reported_and_refused_when_strict(once):
    done = once("canon", stdin=b'{"n":\n 9007199254740993}')
    assert (done.code, done.out) == (0, b'{"n":9007199254740992}')
    assert done.message.startswith(
        "once: standard input: line 2, column 2: the number 9007199254740993 is lossy")
    strict = once("canon", "--strict", stdin=b'{"n":\n 9007199254740993}')
    assert (strict.code, strict.out, strict.err) == (65, b"", done.err)
    assert once("canon", "--strict", stdin=b"9007199254740992").code == 0


@pytest.mark.parametrize("bad, where", [
    (b"", "line 1, column 1"),
    (b'{"a":1,\n "a":2}', "line 2, column 2"),
    (b'{"a":\n\n  tru}', "line 3, column "),
    (b'"\xff"', "line 1, column 2"),
    (b'"\\ud800"', "line 1, column "),
    (b"[1] 2", "line 1, column 5"),
])
def test_bad_json_is_65_with_line_and_column(once, bad, where):
    done = once("canon", stdin=bad)
    assert done.code == 65, done
    assert done.out == b""
    assert done.message.startswith(f"once: standard input: {where}"), done


COMMAND = {"tenant_id": "acme", "actor_id": "u1", "command_id": "cmd_1",
    "intent": {"entity": "order", "action": "refund", "target": {"order_id": "7"}},
    "args": {"amount": 100}, "trace": {"request_id": "r"}}


def test_a_command_key_is_the_hash_of_what_is_shown(once):
    text = json.dumps(COMMAND).encode()
    shown = once("key", "command", "--show", stdin=text).out.rstrip(b"\n")
    assert shown == (b'{"actor_id":"u1","args":{"amount":100},"intent":{"action":"refund",'
        b'"entity":"order","target":{"order_id":"7"}},"tenant_id":"acme"}')
    done = once("key", "command", stdin=text)
    assert done.text == hashlib.sha256(shown).hexdigest() + "\n"
    document = json.loads(once("key", "command", "--json", stdin=text).text)
    assert document == {"kind": "command", "key": done.text.strip(),
        "canonical": shown.decode()}


def test_what_is_ephemeral_does_not_change_the_key(once):
    other = dict(COMMAND, command_id="cmd_2", trace={}, x_note="hello")
    keys = {once("key", "command", stdin=json.dumps(c).encode()).text for c in (COMMAND, other)}
    assert len(keys) == 1
    changed = dict(COMMAND, args={"amount": 101})
    assert once("key", "command", stdin=json.dumps(changed).encode()).text not in keys


def test_effect_and_source_keys(once):
    effect = b'{"tenant_id":"a","command_id":"c","effect_type":"mail","target":"x","ordinal":0}'
    source = b'{"tenant_id":"a","source_type":"slack","source_id":"m1","revision":2}'
    for kind, text in (("effect", effect), ("source", source)):
        shown = once("key", kind, "--show", stdin=text).out.rstrip(b"\n")
        assert json.loads(shown) == json.loads(text)
        assert once("key", kind, stdin=text).text.strip() == hashlib.sha256(shown).hexdigest()


@pytest.mark.parametrize("bad", [
    b"{}", b"[]", b"{",
    b'{"tenant_id":"a","source_id":9007199254740993}',
    b'{"tenant_id":"a","source_id":"m","source_id":"m"}',
    b'{"tenant_id":"a","source_id":"m","surprise":1}',
])
def test_what_has_no_key_is_65(once, bad):
    done = once("key", "source", stdin=bad)
    assert (done.code, done.out) == (65, b""), done
    assert done.message.startswith("once: standard input: ")
