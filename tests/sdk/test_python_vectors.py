"""The Python SDK runs the cases that every SDK runs (tests/vectors)."""
import json
import struct
from pathlib import Path

import pytest

import once
from once import canon
from once import retry
from once.client import _Request

VECTORS = Path(__file__).resolve().parent.parent / "vectors"


def cases(file, name="cases"):
    found = json.loads((VECTORS / file).read_text())[name]
    return pytest.mark.parametrize("case", found,
        ids=[case.get("name") or case["text"] for case in found])


@cases("sdk/verdicts.json")
def test_a_verdict(case):
    verdict = retry.judge(retry.Facts(end=case["end"], is_read=case["method"] in retry.READS,
        status=case.get("status", 0), is_replayed=case.get("replayed", False),
        decision=case.get("decision", ""), document=case.get("body")))
    assert verdict == retry.Verdict(case["retry"], case["settles"], case["effect"])


@cases("sdk/waits.json", "waits")
def test_a_pause(case):
    given = {name: case[name] for name in ("base_ms", "max_ms", "retry", "after_ms", "left_ms")}
    assert retry.wait_ms(random=int(case["random"]), **given) == case["wait_ms"]


@cases("sdk/waits.json", "retry_after")
def test_retry_after(case):
    assert retry.retry_after_ms(case["text"], case["now_ms"]) == case["ms"]


@cases("sdk/requests.json")
def test_a_request(case):
    given = (case["method"], case["url"], None, case.get("headers"), case.get("key"),
        case.get("request_id"))
    if "error" in case:
        with pytest.raises(ValueError, match=case["error"]):
            _Request(*given)
        return
    request = _Request(*given)
    sent = {name.lower(): value for name, value in request.fields.items()}
    for name, value in case.get("sent", {}).items():
        assert sent.get(name) == value
    for number, wanted in enumerate(case.get("ids", []), 1):
        assert request.id_of(number) == wanted


@cases("sdk/canonical.json")
def test_canonical_form(case):
    if "error" in case:
        with pytest.raises(ValueError):
            once.canonical(canon.loads(case["input"]))
    else:
        assert once.canonical(canon.loads(case["input"])).decode() == case["canonical"]


@pytest.mark.parametrize("path", sorted((VECTORS / "jcs/input").glob("*.json")),
    ids=lambda path: path.stem)
def test_canonical_form_of_a_document(path):
    wanted = (VECTORS / "jcs/output" / path.name).read_bytes().rstrip(b"\n")
    assert once.canonical(json.loads(path.read_text())) == wanted


def test_numbers_are_written_as_ecmascript_does():
    lines = (VECTORS / "numbers/es.txt").read_text().split()
    assert len(lines) > 10000
    for line in lines:
        bits, wanted = line.split(",")
        value, = struct.unpack(">d", bytes.fromhex(bits.rjust(16, "0")))
        assert once.canonical(value).decode() == wanted, line


@pytest.mark.parametrize("kind", ["command", "effect", "source"])
def test_keys_are_those_of_once_key(kind):
    derive = {"command": once.command_key, "effect": once.effect_key, "source": once.source_key}
    found = json.loads((VECTORS / f"keys/{kind}.json").read_text())["cases"]
    assert len(found) >= 10
    for case in found:
        try:
            key = derive[kind](canon.loads(case["input"]))
        except ValueError as error:
            assert "error" in case and case["error"] in str(error), (case["name"], error)
        else:
            assert key == case.get("sha256"), case["name"]
