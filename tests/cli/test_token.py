"""once token: what a client gets, and what the configuration gets."""
import hashlib
import json
import re

import pytest

TOKEN = re.compile(r"\bonce_[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])")


def test_a_token_and_its_line_are_printed_and_fit_together(once):
    done = once("token", "new", "--tenant", "acme", "--rights", "execute,audit", "--name", 'a "b"')
    assert (done.code, done.err) == (0, b"")
    token, = TOKEN.findall(done.text)
    line, = re.findall(r"^ *(- \{.*\})$", done.text, re.M)
    assert hashlib.sha256(token.encode()).hexdigest() in line
    assert token not in line
    (once.directory / "once.yaml").write_text(f"auth:\n  tokens:\n    {line}\n")
    assert once("check", "once.yaml").code == 0


def test_json_has_the_same(once):
    document = json.loads(once("token", "new", "--tenant", "acme", "--rights", "audit",
        "--json").out)
    assert TOKEN.fullmatch(document["token"])
    assert document["sha256"] == hashlib.sha256(document["token"].encode()).hexdigest()
    assert document["config"] == (f'- {{sha256: "{document["sha256"]}", tenant: "acme", '
        "rights: [audit]}")


def test_no_two_are_alike_and_every_bit_is_used(once):
    tokens = [json.loads(once("token", "new", "--tenant", "a", "--rights", "execute",
        "--json").out)["token"] for _ in range(20)]
    assert len(set(tokens)) == 20
    assert len(set("".join(token[5:] for token in tokens))) > 50  # of 64 characters


def test_a_token_for_metrics_has_no_rights(once):
    done = once("token", "new", "--tenant", "*")
    assert done.code == 0 and 'tenant: "*"}' in done.text
    line, = re.findall(r"^ *(- \{.*\})$", done.text, re.M)
    assert once("check", "-", stdin=f"auth:\n  tokens:\n    {line}\n".encode()).code == 0


@pytest.mark.parametrize("words", [
    ["new"], ["new", "--tenant", "a"], ["new", "--rights", "audit"],
    ["new", "--tenant", "a", "--rights", "root"], ["new", "--tenant", "a", "--rights", "audit,"],
    ["new", "--tenant", "*", "--rights", "audit"], ["new", "--tenant", "a" * 256, "--rights",
        "audit"], ["mint"], [],
])
def test_a_wrong_command_line_is_64_and_makes_nothing(once, words):
    done = once("token", *words)
    assert done.code == 64 and done.out == b"" and "hint:" in done.message


def test_hash_is_the_sha256_without_the_newline(once):
    token = "once_" + "A" * 43
    wanted = hashlib.sha256(token.encode()).hexdigest()
    assert once("token", "hash", stdin=token.encode()).text == wanted + "\n"
    assert once("token", "hash", stdin=token.encode() + b"\r\n").text == wanted + "\n"
    assert json.loads(once("token", "hash", "--json", stdin=token.encode()).out) == {
        "sha256": wanted}
    for wrong in (b"", b"\n", b"two words\n", b"a\xffb", b"x" * 600):
        assert once("token", "hash", stdin=wrong).code == 65
