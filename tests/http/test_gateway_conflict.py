"""A conflict says what differs, without showing what must not be shown."""
import copy
import json

import pytest

FIRST = {"amount": 100, "to": {"name": "Ann", "tags": ["a", "b"]},
    "card": {"number": "4111", "cvc": 1}}


def patched(document, diff):
    """RFC 6902, as far as a diff uses it."""
    document = copy.deepcopy(document)
    for step in diff:
        if step["path"] == "":
            document = step["value"]
            continue
        parts = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        holder = document
        for part in parts[:-1]:
            holder = holder[int(part)] if isinstance(holder, list) else holder[part]
        last = parts[-1]
        if isinstance(holder, list):
            last = len(holder) if last == "-" else int(last)
        if step["op"] == "add" and isinstance(holder, list):
            holder.insert(last, step["value"])
        elif step["op"] in ("add", "replace"):
            holder[last] = step["value"]
        else:
            assert step["op"] == "remove", step
            del holder[last]
    return document


@pytest.fixture
def gateway(make_gateway):
    return make_gateway("--profile", "ops")


def conflict(gateway, body, key="k", **how):
    answer = gateway.post(key, body, **how)
    assert answer.decision == "conflict_rejected", answer
    return answer


@pytest.mark.parametrize("change", [{"amount": 200}, {"to": {"name": "Bob", "tags": ["a", "b"]}},
    {"to": {"name": "Ann", "tags": ["b"]}}, {"to": {"name": "Ann", "tags": ["a", "b", "c"]}},
    {"more": [1, {"x": None}]}, {"card": None}, {"amount": "100"}, {"a/b~c": 1}, {"amount": True}])
def test_the_diff_leads_from_the_first_body_to_this_one(gateway, origin, change):
    gateway.post("k", FIRST)
    now = {**FIRST, **change}
    answer = conflict(gateway, now)
    assert patched(FIRST, answer.json["diff"]) == now
    assert answer.json["differs"] == ["body"] and answer.json["diff_truncated"] is False
    assert origin.total == 1


def test_a_removed_member_is_in_the_diff(gateway):
    gateway.post("k", FIRST)
    now = {"amount": 100}
    assert patched(FIRST, conflict(gateway, now).json["diff"]) == now
    assert patched(FIRST, conflict(gateway, "[]").json["diff"]) == []
    assert patched(FIRST, conflict(gateway, "null").json["diff"]) is None


def test_redacted_values_are_never_shown_and_never_stored(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /**", "profile": "ops",
        "redact": ["/card/number", "/secrets"]}])
    first = {"amount": 1, "card": {"number": "4111-first", "cvc": 1},
        "secrets": {"first-name": "v1"}}
    gateway.post("k", first)
    now = {"amount": 2, "card": {"number": "4222-now", "cvc": 1}, "secrets": {"now-name": "v2"}}
    answer = conflict(gateway, now)
    for secret in (b"4111-first", b"4222-now", b"first-name", b"now-name", b"v1", b"v2"):
        assert secret not in answer.body
    assert {"op": "replace", "path": "/amount", "value": 2} in answer.json["diff"]
    # What differs only where nothing is shown is a conflict all the same.
    only = conflict(gateway, {**first, "card": {"number": "4333", "cvc": 1}})
    assert b"4333" not in only.body and "redacted" in only.json["differs"]
    assert gateway.post("k", first).is_replay and origin.total == 1
    assert bytes(origin.requests[0].body) == json.dumps(first).encode()  # the upstream gets it
    gateway.stop()
    stored = b"".join(path.read_bytes() for path in gateway.data_dir.rglob("*") if path.is_file())
    for secret in (b"4111-first", b"4222-now", b"4333", b"first-name", b"now-name"):
        assert secret not in stored, secret
    assert secret not in gateway.stderr().encode()


@pytest.mark.parametrize("what, headers, path, body, differs", [
    ("form", {"Content-Type": "application/x-www-form-urlencoded"}, "/pay", "a=1&b=3", ["body"]),
    ("type", {"Content-Type": "text/plain"}, "/pay", "a=1&b=2", ["content_type"]),
    ("query", {"Content-Type": "application/x-www-form-urlencoded"}, "/pay?x=1", "a=1&b=2",
        ["query"]),
    ("two", {"Content-Type": "text/plain"}, "/pay?x=1", "a=1&b=4",
        ["query", "content_type", "body"]),
])
def test_what_is_no_json_says_which_part_differs(gateway, what, headers, path, body, differs):
    gateway.post("k", "a=1&b=2", headers={"Content-Type": "application/x-www-form-urlencoded"})
    answer = conflict(gateway, body, headers=headers, path=path)
    assert sorted(answer.json["differs"]) == sorted(differs) and answer.json["diff"] is None
    assert b"b=2" not in answer.body  # what was sent first is not shown


def test_a_diff_is_capped(gateway):
    gateway.post("k", {str(number): 0 for number in range(3000)})
    answer = conflict(gateway, {str(number): 1 for number in range(3000)})
    assert answer.json["diff_truncated"] is True or answer.json["diff"] is None
    assert len(answer.body) < 300_000


def test_the_first_body_that_is_too_long_to_keep_is_no_secret_that_it_differs(gateway):
    first = {"text": "x" * 2_000_000, "n": 1}
    gateway.post("k", first)
    answer = conflict(gateway, {**first, "n": 2})
    assert answer.json["differs"] == ["body"]


def test_a_conflict_shows_nothing_of_the_outcome(gateway):
    gateway.post("k", do="text=outcome-of-the-first&status=201")
    answer = conflict(gateway, {"amount": 2})
    assert b"outcome-of-the-first" not in answer.body and "Last-Modified" not in answer.fields
    assert answer.status == 409


def test_another_principal_gets_no_diff(gateway, origin):
    gateway.post("k", FIRST, headers={"Authorization": "a"})
    answer = gateway.post("k", {"amount": 2}, headers={"Authorization": "b"})
    assert answer.decision == "first_seen" and origin.total == 2


def test_ietf_says_what_differs_too(make_gateway):
    gateway = make_gateway()
    gateway.post("k", FIRST)
    answer = conflict(gateway, {**FIRST, "amount": 2})
    assert answer.status == 422 and answer.json["differs"] == ["body"]
