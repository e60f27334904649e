"""Two of everything that the other tests have one of: neither takes the place of the other.

Tenants, scopes, principals and keys of which one name begins the other; waiters of one key with
limits of their own; tokens, routes, fields and items of a batch that look alike; listeners.
"""
import datetime
import hashlib
import itertools
import json
import re
import threading
import time
import urllib.parse

import pytest
from fences import NO_LIMITS, begin_body
from once_gateway import DUPLICATES_FREE, Peer, request_for
from once_server import ANSWER_S, request_bytes, until

TENANTS = ["a", "acme", "acme-eu", "acme-eu-1", "Acme"]
RIGHTS = "[execute, operate, audit]"


def token_rows(pairs):
    """pairs: (token, tenant)"""
    return "auth:\n  tokens:\n" + "".join(
        f'    - {{sha256: "{hashlib.sha256(token.encode()).hexdigest()}", tenant: "{tenant}", '
        f'rights: {RIGHTS}, name: "{token}"}}\n' for token, tenant in pairs)


def ask(server, tenant, method, path, body=None):
    status, _, document = server.request(method, path, body,
        {"Authorization": f"Bearer tok-{tenant}"})
    return status, document


def begin(server, tenant, key, payload=None, **more):
    return ask(server, tenant, "POST", "/v1/fences", begin_body(key, payload or {}, **more))


# --- Names of which one begins the other ---


@pytest.fixture
def tenants(make_server):
    return make_server(config=token_rows((f"tok-{each}", each) for each in TENANTS) + NO_LIMITS)


def life_calls(fence):
    return {"seal": {"fence": fence, "status": "executed"}, "release": {"fence": fence},
        "unknown": {"fence": fence, "reason": "x"}, "renew": {"fence": fence, "lease": "9s"}}


def test_a_tenant_whose_name_begins_anothers_finds_and_changes_nothing_of_it(tenants):
    held = {each: begin(tenants, each, "k")[1] for each in TENANTS}
    lost = {each: begin(tenants, each, "lost")[1] for each in TENANTS}
    for each, one in lost.items():
        path = f"/v1/fences/{one['operation_id']}/unknown"
        assert ask(tenants, each, "POST", path, {"fence": one["fence"], "reason": "x"})[0] == 200
    assert len({one["operation_id"] for one in held.values()}) == len(TENANTS)
    for owner, other in itertools.permutations(TENANTS, 2):
        operation, fence = held[owner]["operation_id"], held[owner]["fence"]
        for call, body in life_calls(fence).items():
            status, _ = ask(tenants, other, "POST", f"/v1/fences/{operation}/{call}", body)
            assert status == 404, (call, owner, other)
        for one in (held[owner], lost[owner]):
            assert ask(tenants, other, "GET", f"/v1/operations/{one['operation_id']}")[0] == 404
            assert ask(tenants, other, "POST", f"/v1/operations/{one['operation_id']}/resolve",
                {"status": "failed", "reason": "x"})[0] == 404
            page = ask(tenants, other, "GET", f"/v1/evidence?operation_id={one['operation_id']}")
            shown = {(entry["tenant_id"], entry["decided"]["decision"])
                for entry in page[1]["entries"] if "decided" in entry}
            assert page[0] == 200 and shown <= {(other, "not_found")}  # of its own questions
    for owner, one in held.items():
        assert ask(tenants, owner, "POST", f"/v1/fences/{one['operation_id']}/seal",
            life_calls(one["fence"])["seal"])[0] == 200


def test_lists_figures_and_evidence_are_of_exactly_one_tenant(tenants):
    for number, each in enumerate(TENANTS, 1):
        for count in range(number):
            begin(tenants, each, f"key-of-{number}-{count}", scope=f"scope-of-{number}")
    for number, each in enumerate(TENANTS, 1):
        listed = ask(tenants, each, "GET", "/v1/operations?limit=1000")[1]["operations"]
        assert len(listed) == number
        assert {one["scope"] for one in listed} == {f"scope-of-{number}"}
        entries = ask(tenants, each, "GET", "/v1/evidence?limit=1000")[1]["entries"]
        assert {entry["tenant_id"] for entry in entries} == {each}
        figures = ask(tenants, each, "GET", "/metrics")[1]
        for other in range(1, len(TENANTS) + 1):
            assert (f"scope-of-{other}" in figures) == (other == number), (each, other)


PARTS = [("s", "p", "k"), ("s", "p", "kk"), ("s", "pk", "k"), ("sp", "", "k"), ("s", "", "pk"),
    ("sp", "k", "k"), ("spk", "", "k"), ("s", "p", "k0"), ("s", "p0", "k"), ("S", "p", "k")]


def test_scopes_principals_and_keys_that_run_into_each_other_are_apart(make_server):
    server = make_server(config=NO_LIMITS)

    def named(scope, principal, key, payload):
        more = {"principal": principal} if principal else {}
        body = begin_body(key, payload, scope=scope, **more)
        return server.request("POST", "/v1/fences", body)[2]

    held = [named(*parts, {"n": number}) for number, parts in enumerate(PARTS)]
    assert [one["decision"] for one in held] == ["first_seen"] * len(PARTS)
    for number, parts in enumerate(PARTS):
        again = named(*parts, {"n": number})
        assert again["operation_id"] == held[number]["operation_id"]
    for name, at in (("scope", 0), ("key", 2)):
        for value in {parts[at] for parts in PARTS}:
            listed = server.request("GET", f"/v1/operations?{name}={value}&limit=100")[2]
            assert len(listed["operations"]) == sum(parts[at] == value for parts in PARTS)


def test_a_flood_of_one_key_refuses_no_other_tenant_scope_or_key(make_server):
    rate = "limits: {duplicate_rate: 1, duplicate_burst: 2}\n"
    server = make_server(config=token_rows((f"tok-{each}", each) for each in TENANTS) + rate)
    names = [(tenant, scope, key) for tenant in ("acme", "acme-eu") for scope in ("s", "ss")
        for key in ("k", "kk")]

    def statuses(count):
        return {name: [begin(server, name[0], name[2], scope=name[1])[0] for _ in range(count)]
            for name in names}

    assert set(map(tuple, statuses(1).values())) == {(201,)}
    assert [begin(server, "acme", "k", scope="s")[0] for _ in range(12)][-1] == 429
    assert {name for name, given in statuses(1).items() if given == [429]} == {("acme", "s", "k")}


# --- Waiters ---


def waiting(server, key, limits_ms):
    """Start a duplicate for each limit; (threads, results: {limit: (status, seconds)})."""
    results = {}

    def wait(limit_ms):
        began = time.monotonic()
        status, _, _ = server.request("POST", "/v1/fences",
            begin_body(key, {}, wait=f"{limit_ms}ms"))
        results[limit_ms] = status, time.monotonic() - began

    threads = [threading.Thread(target=wait, args=(limit_ms,)) for limit_ms in limits_ms]
    for thread in threads:
        thread.start()
        time.sleep(0.03)  # they line up in this order
    return threads, results


@pytest.mark.parametrize("limits_ms",
    [(300, 4000, 25000, 30000), (30000, 25000, 4000, 300), (25000, 300, 30000, 4000)])
def test_each_waiter_of_a_key_ends_at_its_own_limit_and_the_rest_get_the_replay(make_server,
        limits_ms):
    server = make_server(config=NO_LIMITS)
    held = server.request("POST", "/v1/fences", begin_body("k", {}))[2]
    other = server.request("POST", "/v1/fences", begin_body("other", {}))[2]
    threads, results = waiting(server, "k", limits_ms)
    more, others = waiting(server, "other", (600, 24000))
    until(lambda: 4000 in results and 600 in others, "a wait does not end", 20)
    assert set(results) == {300, 4000} and set(others) == {600}
    for one in (held, other):
        assert server.request("POST", f"/v1/fences/{one['operation_id']}/seal",
            {"fence": one["fence"], "status": "executed"})[0] == 200
    for thread in threads + more:
        thread.join(60)
    for limit_ms in (300, 4000):
        assert results[limit_ms][0] == 202
        assert limit_ms / 1000 <= results[limit_ms][1], results
    assert results[300][1] < 4, results  # not at the limit of a different one
    for ended, limit_ms in ((results, 25000), (results, 30000), (others, 24000)):
        assert ended[limit_ms][0] == 200
        assert ended[limit_ms][1] < limit_ms / 1000  # woken: at its limit it would get that too
    assert others[600][0] == 202


def test_a_release_wakes_every_waiter_and_grants_one(make_server):
    server = make_server(config=NO_LIMITS)
    held = server.request("POST", "/v1/fences", begin_body("k", {}))[2]
    threads, results = waiting(server, "k", (1500, 1600, 1700))
    assert server.request("POST", f"/v1/fences/{held['operation_id']}/release",
        {"fence": held["fence"]})[0] == 200
    for thread in threads:
        thread.join(20)
    assert sorted(status for status, _ in results.values()) == [201, 202, 202]
    slow = [took_s for status, took_s in results.values() if status == 202]
    assert all(took_s >= 1.5 for took_s in slow)


# --- In one batch ---


def batch(server, *items):
    status, _, document = server.request("POST", "/v1/fences/batch", list(items))
    assert status == 200, document
    return document


def test_one_key_three_times_in_a_batch_is_granted_once(make_server):
    server = make_server(config=NO_LIMITS)
    same = [begin_body("k", {"n": 1})] * 3
    told = batch(server, *same, begin_body("kk", {"n": 1}), begin_body("k", {"n": 2}),
        begin_body("k", {"n": 3}))
    decisions = [one.get("decision") or one.get("code") for one in told]
    assert decisions == ["first_seen", "in_progress", "in_progress", "first_seen",
        "idempotency_conflict", "idempotency_conflict"], told
    assert len({one["operation_id"] for one in told[:3]}) == 1


# --- Tokens ---


def test_two_tokens_of_one_tenant_are_one_tenant_and_a_token_in_two_fields_is_refused(make_server):
    server = make_server(config=token_rows([("tok-x", "acme"), ("tok-xy", "acme"),
        ("tok-xyz", "other")]))
    held = begin(server, "x", "k")[1]
    assert ask(server, "xy", "GET", f"/v1/operations/{held['operation_id']}")[0] == 200
    assert ask(server, "xyz", "GET", f"/v1/operations/{held['operation_id']}")[0] == 404
    assert begin(server, "xy", "k")[1]["decision"] == "in_progress"
    assert begin(server, "xyz", "k")[1]["decision"] == "first_seen"
    for wrong in ("tok-", "tok-xyzz", "tok-X"):
        assert server.request("GET", "/v1/operations", None,
            {"Authorization": f"Bearer {wrong}"})[0] == 401
    with server.wire() as wire:
        wire.send(b"GET /v1/operations HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer tok-x\r\n"
            b"Authorization: Bearer tok-xyz\r\n\r\n")
        assert wire.answer()[0] in (400, 401)


# --- Gateway: routes and fields ---


def hours_between(first, second):
    """Of two times as documents have them."""
    first, second = (datetime.datetime.fromisoformat(each.replace("Z", "+00:00"))
        for each in (first, second))
    return (second - first).total_seconds() / 3600


@pytest.mark.parametrize("routes, expected", [
    (("POST /pay/*", "POST /pay/**"), {"/pay/a": 0, "/pay/a/b": 1}),
    (("POST /pay", "POST /payments"), {"/pay": 0, "/payments": 1}),
    (("POST /payments", "POST /pay"), {"/pay": 1, "/payments": 0}),
    (("PUT /pay", "POST,PUT /pay"), {"/pay": 1}),
    (("POST /*/b", "POST /a/*"), {"/a/b": 0, "/a/c": 1, "/c/b": 0}),
])
def test_the_first_route_that_matches_decides(origin, make_gateway, routes, expected):
    gateway = make_gateway(limits=DUPLICATES_FREE, routes=[
        {"match": match, "window": f"{number + 1}h"} for number, match in enumerate(routes)])
    for number, (path, route) in enumerate(expected.items()):
        assert gateway.post(f"k{number}", path=path).decision == "first_seen"
        shown = gateway.shown(f"k{number}")
        assert hours_between(shown["sealed_at"], shown["window_expires_at"]) == route + 1, path


def test_fields_of_one_name_are_all_given_and_replayed_in_their_order(origin, gateway):
    """Which ones are beside each other makes no difference (RFC 9110, 5.3)."""
    links = ["</1>; rel=self", "</2>; rel=next", "</2>; rel=next"]
    do = "&".join(f"field=Link:{urllib.parse.quote(link)}" for link in links[:2])
    do += f"&field=Vary:Accept&field=Link:{urllib.parse.quote(links[2])}&field=Vary:Origin"
    answers = [gateway.post("k", do=do) for _ in range(2)]
    assert [answer.is_replay for answer in answers] == [False, True] and origin.total == 1
    for answer in answers:
        assert answer.all("Link") == links
        assert answer.all("Vary") == ["Accept", "Origin"]


def test_two_keys_in_one_request_are_refused_and_make_no_effect(origin, gateway):
    for first, second in (("a", "b"), ("a", "a"), ("", "a")):
        with gateway.peer() as peer:
            data = request_for("POST", "/pay", {"amount": 1}, key=first)
            peer.send(data.replace(b"Idempotency-Key:",
                f"Idempotency-Key: {second}\r\nIdempotency-Key:".encode()))
            assert peer.read("POST").status == 400
    assert origin.total == 0


def test_two_keys_of_which_one_begins_the_other_have_an_effect_each(origin, gateway):
    keys = ["k", "kk", "k-", "K", '"k"', '"kk"']
    bodies = {key: gateway.post(key).body for key in keys}
    assert origin.total == 4  # quoted or bare, it is the same key
    for key in keys:
        again = gateway.post(key)
        assert again.is_replay and again.body == bodies[key]
    assert origin.total == 4
    assert json.loads(bodies["k"]) == json.loads(bodies['"k"'])


# --- Listeners ---


def addresses(server):
    """{host: port} of everything that it listens on; each on a host of its own."""
    found = re.findall(r"http://(127\.[\d.]+):(\d+)", "\n".join(server.lines))
    return {host: int(port) for host, port in found}


def test_each_of_two_listeners_leads_to_its_door_and_a_key_is_one_key_on_both(origin, make_gateway):
    listen = {"api": ["127.0.0.3:0", "127.0.0.4:0"], "gateway": ["127.0.0.1:0", "127.0.0.2:0"]}
    gateway = make_gateway(listen=None, gateway={"listen": listen["gateway"]},
        routes=[{"match": "POST /**"}], limits=DUPLICATES_FREE, more={"listen": listen["api"]})
    ports = addresses(gateway)
    assert len(ports) == 4, gateway.lines
    for key in ("a", "b"):
        hosts = ["127.0.0.1", "127.0.0.2"][::-1 if key == "b" else 1]
        answers = [exchange(host, ports[host], request_for("POST", "/pay", {"n": 1}, key))
                   for host in hosts]
        assert [one.decision for one in answers] == ["first_seen", "duplicate_replayed"]
        assert answers[0].body == answers[1].body and origin.effects[key] == 1
    first, second = (exchange(host, ports[host], request_bytes("POST", "/v1/fences",
        begin_body("f", {}), {})) for host in ("127.0.0.3", "127.0.0.4"))
    assert (first.status, second.status) == (201, 202)
    assert first.json["operation_id"] == second.json["operation_id"]
    seen = len(origin.requests)
    for host in ("127.0.0.3", "127.0.0.4"):  # a door's path is nothing to the other door
        assert exchange(host, ports[host], request_for("POST", "/pay", {}, "c")).status == 404
    assert len(origin.requests) == seen


def exchange(host, port, request):
    with Peer((host, port), ANSWER_S) as peer:
        peer.send(request)
        return peer.read("POST")
