"""A duplicate gets the first answer, byte for byte; and what is a duplicate of what."""
import base64
import hashlib
import hmac
import json
import time
from email.utils import parsedate_to_datetime
from urllib.parse import quote

import pytest

HOP = ("Connection", "Keep-Alive", "Transfer-Encoding", "Trailer", "Upgrade", "Proxy-Connection",
    "X-Hop")
KEPT = {"Content-Type": "application/vnd.api+json", "Content-Language": "de",
    "Content-Location": "/pay/7", "Location": "/pay/7", "ETag": '"v7"', "Cache-Control": "no-store",
    "Link": "</pay/7>; rel=self", "Vary": "Accept", "Allow": "GET, POST"}

BODIES = {
    "json": "status=201",
    "binary": "body=binary&size=70000&type=image/png",
    "empty": "status=202&body=empty",
    "no content": "status=204",
    "chunked": "chunked=1&size=5000&pieces=7",
    "chunked with trailers": "chunked=1&trailers=1&size=5000",
    "until the end of the connection": "until_close=1&size=3000",
    "http 1.0": "http10=1&size=3000",
    "behind interim answers": "interim=3&status=201",
    "several megabytes": "size=5000000",
    "binary of several megabytes": "body=binary&size=6000001",
    "refused": "status=404&text=nothing+here&type=text/plain",
    "moved": "status=303&field=Location:/elsewhere&body=empty",
    "not modified": "status=304",
    "bytes that are no text": "text=%00%ff&type=text/plain",
    "json with odd spelling": "text=%7B+%22n%22%3A1.50%2C%22n2%22%3A1e2+%7D%0A",
}


def same(first, again):
    """Everything but what says which request it answers."""
    assert (again.status, again.body) == (first.status, first.body)
    for name in ("Content-Type", *KEPT):
        assert again.all(name) == first.all(name), name


@pytest.mark.parametrize("name", BODIES)
def test_a_replay_is_byte_identical(gateway, origin, name):
    began = int(time.time())
    first = gateway.post("k", do=BODIES[name])
    assert first.decision == "first_seen" and not first.is_replay
    assert origin.answers["k"] == first.body
    for _ in range(3):
        again = gateway.post("k")
        same(first, again)
        assert again.is_replay and again.decision == "duplicate_replayed"
        assert again.fields["Idempotency-Key"] == "k"
        executed = parsedate_to_datetime(again.fields["Last-Modified"]).timestamp()
        assert began - 1 <= executed <= time.time() + 1
        assert again.fields["Last-Modified"].endswith(" GMT")
    assert origin.effects["k"] == 1 and len(origin.requests) == 1
    assert gateway.status_of("k") in ("executed", *["failed", "rejected"] * (first.status >= 400))
    gateway.stop()
    gateway.restart()
    same(first, gateway.post("k"))
    assert len(origin.requests) == 1


def test_fields_are_replayed_but_cookies_and_hops_are_not(gateway, origin):
    fields = "&".join(f"field={name}:{value.replace(' ', '+')}" for name, value in KEPT.items()
        if name != "Content-Type")
    first = gateway.post("k", do=f"{fields}&type={KEPT['Content-Type'].replace('+', '%2B')}"
        "&cookie=1&close=1&field=Keep-Alive:timeout%3D5&field=X-Own:1&field=Once-Decision:forged"
        "&field=Idempotent-Replayed:true&field=Idempotency-Key:other")
    again = gateway.post("k")
    for answer in (first, again):
        for name, value in KEPT.items():
            assert answer.all(name) == [value], name
        assert not any(answer.all(name) for name in HOP)
        assert answer.all("Idempotency-Key") == ["k"] and len(answer.all("Once-Decision")) == 1
    assert first.all("Set-Cookie") == ["session=secret; HttpOnly", "other=1"]
    assert not first.is_replay and first.decision == "first_seen"
    assert first.all("X-Own") == ["1"]
    assert again.is_replay and not again.all("Set-Cookie") and b"secret" not in again.body
    shown = gateway.cli("show", gateway.of_key("k")[0]["operation_id"], "--json", "--store",
        gateway.store).stdout
    assert "session=secret" not in shown


# What was true of the first exchange alone.
PASSING = {"Age": "7", "Server-Timing": "db;dur=5", "RateLimit": "5", "RateLimit-Policy": "10;w=1",
    "X-RateLimit-Remaining": "9", "X-Rate-Limit-Reset": "60"}
ANY = {"Access-Control-Allow-Origin": "https://shop.example", "Content-Digest": "sha-256=:aa==:",
    "Access-Control-Expose-Headers": "X-Request-Cost", "X-Request-Cost": "3", "Server": "api/1",
    "Strict-Transport-Security": "max-age=60", "Stripe-Version": "2026-01-01", "Expires": "0",
    "X-Request-Id": "x-1", "Preference-Applied": "return=minimal"}


def test_a_replay_has_every_field_but_those_of_one_exchange(gateway):
    fields = {**ANY, **PASSING}
    do = "&".join(f"field={quote(name)}:{quote(value)}" for name, value in fields.items())
    first = gateway.post("k", do=do)
    again = gateway.post("k")
    assert again.is_replay
    for name, value in ANY.items():
        assert first.all(name) == again.all(name) == [value], name
    for name, value in PASSING.items():
        assert first.all(name) == [value] and not again.all(name), name
    own = {"Idempotent-Replayed", "Last-Modified", "Original-Request-Id"}
    assert {name for name, _ in again.lines} - {name for name, _ in first.lines} == own


def test_a_replay_names_the_request_that_it_repeats(gateway, origin):
    released = gateway.post("k", do="status=503", headers={"Request-Id": "r-0"})
    first = gateway.post("k", do="field=Request-Id:req_7", headers={"Request-Id": "r-1"})
    again = gateway.post("k", headers={"Request-Id": "r-2"})
    assert released.status == 503 and first.decision == "first_seen" and again.is_replay
    for answer, ours in ((first, "r-1"), (again, "r-2")):
        assert answer.all("Request-Id") == [ours]
        assert answer.all("Upstream-Request-Id") == ["req_7"]
    assert not first.all("Original-Request-Id") and again.all("Original-Request-Id") == ["r-1"]
    read = gateway.send("GET", "/pay", do="field=Request-Id:req_8", headers={"Request-Id": "r-3"})
    assert (read.all("Request-Id"), read.all("Upstream-Request-Id")) == (["r-3"], ["req_8"])
    echo = gateway.post("e", do="field=Request-Id:r-4", headers={"Request-Id": "r-4"})
    assert echo.all("Request-Id") == ["r-4"] and not echo.all("Upstream-Request-Id")


def test_a_route_narrows_what_is_replayed(make_gateway):
    gateway = make_gateway(routes=[{"match": "POST /some", "replay_headers": ["X-Own"]},
        {"match": "POST /all", "replay_headers": ["*"]}, {"match": "POST /every"},
        {"match": "POST /usual", "replay_headers": []}])
    do = "field=X-Own:1&field=X-Other:2&cookie=1"
    both = ["X-Own", "X-Other"]
    for path, kept in (("/some", ["X-Own"]), ("/all", both), ("/every", both), ("/usual", [])):
        gateway.post("k", path=path, do=do)
        again = gateway.post("k", path=path)
        assert again.is_replay
        assert [name for name in ("X-Own", "X-Other") if name in again.fields] == kept
        assert "Set-Cookie" not in again.fields


def test_no_client_gets_a_coding_on_a_replay_that_it_does_not_take(gateway, origin):
    for taken in ("gzip, br", "gzip;q=1.0, *;q=0.5", None):
        headers = {"Accept-Encoding": taken} if taken else {}
        gateway.post(f"k {taken}".encode().hex(), headers=headers)
        assert origin.requests[-1].all("Accept-Encoding") == ["identity"]
    gateway.send("GET", "/pay", headers={"Accept-Encoding": "gzip"})
    assert origin.requests[-1].all("Accept-Encoding") == ["gzip"]  # nothing is kept of a read


def test_many_fields_come_through(gateway):
    first = gateway.post("k", do="fields=80")
    assert all(first.all(f"X-Field-{number}") == [str(number)] for number in range(80))
    again = gateway.post("k")
    assert again.is_replay
    assert all(again.all(f"X-Field-{number}") == [str(number)] for number in range(80))


def test_a_body_past_the_memory_limit_is_spooled_both_ways(make_gateway, origin):
    gateway = make_gateway(gateway={"spool_memory": "16KiB"})
    body = json.dumps({"text": "x" * 3_000_000})
    first = gateway.post("k", body, do="size=3000000")
    again = gateway.post("k", body)
    assert bytes(origin.requests[0].body) == body.encode()
    assert again.is_replay and again.body == first.body and len(first.body) > 3_000_000
    assert gateway.post("k", body[:-2] + 'y"}').status == 422
    leftover = [path for path in gateway.data_dir.rglob("*") if "spool" in path.name]
    assert not [path for path in leftover if path.is_file()]


# --- What is a duplicate of what ------------------------------------------------------------------

def test_a_quoted_and_a_bare_key_are_the_same(gateway, origin):
    first = gateway.post('"abc"')
    assert first.fields["Idempotency-Key"] == '"abc"'
    again = gateway.post("abc")
    assert again.is_replay and again.body == first.body
    assert again.fields["Idempotency-Key"] == "abc"
    gateway.post('"a\\"b\\\\c"')
    assert origin.requests[-1].key == 'a"b\\c'
    assert gateway.post('"a\\"b\\\\c"').is_replay
    assert origin.total == 2


def test_keys_differ_by_their_case(gateway, origin):
    gateway.post("abc")
    assert gateway.post("ABC").decision == "first_seen" and origin.total == 2


def test_the_scope_is_method_and_path(gateway, origin):
    for method, path in (("POST", "/a"), ("PUT", "/a"), ("POST", "/b"), ("POST", "/a/"),
            ("POST", "/A"), ("POST", "//a"), ("POST", "/a%2Fb"), ("POST", "/a/b")):
        assert gateway.send(method, path, {"x": 1}, key="k").decision == "first_seen", path
    assert origin.total == 8
    assert {each["scope"] for each in gateway.operations()} >= {"POST /a", "PUT /a", "POST /b"}


@pytest.mark.parametrize("one, other, is_same", [
    ("/caf%c3%a9", "/caf%C3%A9", True), ("/%7euser", "/~user", True), ("/a/./b", "/a/b", True),
    ("/x/../a", "/a", True), ("/%61", "/a", True), ("/a%2Fb", "/a/b", False),
    ("/a//b", "/a/b", False),
    ("/a;x", "/a", False), ("/a+b", "/a%20b", False),
])
def test_the_path_is_canonical(gateway, origin, one, other, is_same):
    gateway.post("k", path=one)
    assert gateway.post("k", path=other).is_replay == is_same
    assert origin.total == 2 - is_same
    assert origin.requests[0].target == one  # the upstream gets it as it was sent


@pytest.mark.parametrize("one, other, is_same", [
    ("?a=1&b=2", "?b=2&a=1", True), ("?q=%7e", "?q=~", True), ("?a=1&a=2", "?a=2&a=1", False),
    ("?a", "?a=", False), ("", "?", None), ("?a=1", "?a=2", False), ("?a=1", "", False),
    ("?a=%2B", "?a=+", False),
])
def test_the_query_is_canonical(gateway, origin, one, other, is_same):
    first = gateway.post("k", path=f"/pay{one}")
    again = gateway.post("k", path=f"/pay{other}")
    if is_same is not None:
        assert again.is_replay == is_same
        assert again.status == (200 if is_same else 422)
    assert origin.total == 1 and origin.requests[0].target == f"/pay{one}"
    assert first.status == 200


def test_members_of_a_json_body_may_come_in_any_order(gateway, origin):
    gateway.post("k", '{"a":1,"b":{"c":[1,2],"d":"\\u00e9"}}')
    for body in ('{"b":{"d":"é","c":[1,2]},"a":1}', '{"a":1.0,"b":{"c":[1,2],"d":"é"}}',
            ' {"a" : 1e0, "b":{"c":[1, 2],"d":"é"}}\n'):
        assert gateway.post("k", body).is_replay, body
    for body in ('{"a":1,"b":{"c":[2,1],"d":"é"}}', '{"a":"1","b":{"c":[1,2],"d":"é"}}',
            '{"a":1}', "", '{"a":1,"b":{"c":[1,2],"d":"é"},"e":null}'):
        assert gateway.post("k", body).status == 422, body
    assert origin.total == 1


def test_numbers_that_a_double_cannot_hold_are_told_apart(gateway, origin):
    gateway.post("k", '{"id":9007199254740993}')
    assert gateway.post("k", '{"id":9007199254740992}').status == 422
    assert gateway.post("k", '{"id":9007199254740993}').is_replay
    assert gateway.post("k", '{"id": 9007199254740993}').status == 422  # raw: it has no other form
    assert origin.total == 1


def test_what_is_no_json_is_compared_byte_by_byte(gateway, origin):
    plain = {"Content-Type": "text/plain"}
    gateway.post("k", '{"a":1,"b":2}', headers=plain)
    assert gateway.post("k", '{"b":2,"a":1}', headers=plain).status == 422
    assert gateway.post("k", '{"a":1,"b":2}', headers=plain).is_replay
    assert gateway.post("k", '{"a":1,"b":2}').status == 422  # another content type
    gateway.post("bad", '{"a":1,')  # not JSON, though it says so
    assert gateway.post("bad", '{"a":1,').is_replay and gateway.post("bad", '{"a":1').status == 422
    gateway.post("twice", '{"a":1,"a":2}')
    assert gateway.post("twice", '{"a":2}').status == 422
    assert origin.total == 3


@pytest.mark.parametrize("one, other, is_same", [
    ("application/json", "application/json; charset=utf-8", True),
    ("application/json;charset=UTF-8", "Application/JSON ; Charset=\"utf-8\"", True),
    ("application/vnd.api+json; charset=utf-8", "application/vnd.api+json", True),
    ("application/json; a=b; charset=utf-8", "application/json;a=b", True),
    ("application/json", "application/json; charset=iso-8859-1", False),
    ("application/json; charset=l1", "application/json; charset=l1; charset=utf-8", False),
    ("application/json", "application/vnd.api+json", False),
    ("text/plain", "text/plain; charset=utf-8", False),
])
def test_json_that_says_it_is_utf8_is_the_same_request(gateway, origin, one, other, is_same):
    first = gateway.post("k", headers={"Content-Type": one})
    again = gateway.post("k", headers={"Content-Type": other})
    assert first.status == 200 and again.is_replay == is_same
    assert is_same or (again.status == 422 and again.json["differs"] == ["content_type"])
    assert origin.total == 1
    assert origin.requests[0].get("Content-Type") == one  # the upstream gets it as it was sent


def test_a_chunked_request_is_the_same_as_one_with_a_length(gateway, origin):
    body = b'{"amount":1}'
    with gateway.peer() as peer:
        peer.send(b"POST /pay HTTP/1.1\r\nHost: once\r\nContent-Type: application/json\r\n"
            b"Idempotency-Key: k\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n" + body[:5] + b"\r\n"
            b"%x\r\n" % len(body[5:]) + body[5:] + b"\r\n0\r\n\r\n")
        assert peer.read().decision == "first_seen"
        peer.send(b"POST /pay HTTP/1.1\r\nHost: once\r\nContent-Type: application/json\r\n"
            b"Idempotency-Key: k\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert peer.read().is_replay
    assert bytes(origin.requests[0].body) == body and origin.total == 1


def test_ignored_fields_are_left_out_of_the_fingerprint(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /pay",
        "ignore": ["/client_time", "/items/0/seen", "/a~1b"]}])
    body = {"amount": 1, "client_time": 1, "items": [{"seen": 1, "n": 1}], "a/b": 1}
    gateway.post("k", body)
    for changed in ({"client_time": 2}, {"client_time": [1, {"x": 2}]}, {"a/b": 2},
            {"items": [{"seen": 9, "n": 1}]}, {"items": [{"n": 1}]}):
        assert gateway.post("k", {**body, **changed}).is_replay, changed
    without = {name: value for name, value in body.items() if name != "client_time"}
    assert gateway.post("k", without).is_replay
    for changed in ({"amount": 2}, {"items": [{"seen": 1, "n": 2}]}, {"other": 1},
            {"items": [{"seen": 1, "n": 1}, {"seen": 2}]}):
        assert gateway.post("k", {**body, **changed}).status == 422, changed
    assert origin.total == 1


# --- Whose it is ----------------------------------------------------------------------------------

def test_two_authorizations_do_not_see_each_other(gateway, origin):
    answers = {}
    for who in ("Bearer a", "Bearer b", "bearer a", None):
        headers = {"Authorization": who} if who else {}
        first = answers[who] = gateway.post("k", {"for": who}, headers=headers)
        assert first.decision == "first_seen"
    for who, first in answers.items():
        headers = {"Authorization": who} if who else {}
        again = gateway.post("k", {"for": who}, headers=headers)
        assert again.is_replay and again.body == first.body
    assert origin.total == 4
    held = json.dumps(gateway.operations())
    assert "Bearer" not in held  # the credentials themselves are kept nowhere
    principals = {each.get("principal") for each in gateway.operations()}
    assert len(principals) == 4
    digest = hashlib.sha256(b"Bearer a").hexdigest()
    assert any(digest in (each or "") for each in principals), principals


def test_a_header_may_say_whose_it_is(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /**", "principal": "header:X-Tenant"}])
    for who in ("a", "b"):
        assert gateway.post("k", headers={"X-Tenant": who, "Authorization": "x"}).status == 200
    assert gateway.post("k", headers={"X-Tenant": "a", "Authorization": "y"}).is_replay
    missing = gateway.post("k", headers={"Authorization": "x", "Request-Id": "r"})
    assert missing.status == 401 and missing.json["effect"] == "no"
    assert (missing.fields["Idempotency-Key"], missing.fields["Request-Id"]) == ("k", "r")
    empty = gateway.post("k", headers={"X-Tenant": ""})
    assert empty.status == 401 and origin.total == 2


def test_two_api_keys_are_two_principals(gateway, origin):
    """Nobody gets the answer of a customer whose key of the API is another."""
    alice, bob = {"X-Api-Key": "alice"}, {"X-Api-Key": "bob"}
    first = gateway.post("k", headers=alice)
    other = gateway.post("k", headers=bob)
    assert (first.decision, other.decision) == ("first_seen", "first_seen")
    assert gateway.post("k", headers=alice).body == first.body
    assert gateway.post("k", headers={"Api-Key": "bob"}).body == other.body
    assert gateway.post("k").decision == "first_seen" and origin.effects["k"] == 3
    digest = hashlib.sha256(b"alice").hexdigest()
    principals = {each["principal"] for each in gateway.operations()}
    assert f"api-key:{digest}" in principals and "anonymous" in principals


def test_with_no_principal_it_is_one_for_all(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /**", "principal": "none"}])
    gateway.post("k", headers={"Authorization": "x"})
    assert gateway.post("k", headers={"Authorization": "y"}).is_replay
    assert gateway.post("k").is_replay and origin.total == 1


def token(secret, **claims):
    def part(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=")
    head = part(json.dumps({"alg": "HS256", "typ": "JWT"}).encode())
    text = head + b"." + part(json.dumps(claims).encode())
    return (text + b"." + part(hmac.new(secret, text, hashlib.sha256).digest())).decode()


def test_a_verified_claim_may_say_whose_it_is(make_gateway, origin, tmp_path):
    secret = b"0123456789abcdef0123456789abcdef-secret"
    (tmp_path / "secret").write_bytes(secret + b"\n")
    gateway = make_gateway(routes=[{"match": "POST /**", "principal": "jwt:sub",
        "jwt": {"alg": "HS256", "key_file": str(tmp_path / "secret"), "issuer": "us"}}])
    late = time.time() + 600

    def send(key, bearer):
        return gateway.post(key, headers={"Authorization": f"Bearer {bearer}"} if bearer else {})

    assert send("k", token(secret, sub="ann", iss="us", exp=late)).decision == "first_seen"
    # Credentials rotate, people stay.
    assert send("k", token(secret, sub="ann", iss="us", exp=late + 9, jti="2")).is_replay
    assert send("k", token(secret, sub="bob", iss="us", exp=late)).decision == "first_seen"
    good = token(secret, sub="ann", iss="us", exp=late)
    head, claims, signature = good.split(".")
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
    bad = {"no token": None, "other secret": token(b"x" * 32, sub="ann", iss="us", exp=late),
        "expired": token(secret, sub="ann", iss="us", exp=time.time() - 600),
        "other issuer": token(secret, sub="ann", iss="them", exp=late),
        "no claim": token(secret, iss="us", exp=late), "no signature": f"{head}.{claims}.",
        "alg none": f"{none}.{claims}.", "cut": good[:-4], "three dots": good + "."}
    for why, bearer in bad.items():
        answer = send("k", bearer)
        assert answer.status == 401 and answer.json["effect"] == "no", why
        assert "Idempotent-Replayed" not in answer.fields
    assert origin.total == 2 and len(origin.requests) == 2
