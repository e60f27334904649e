"""What a running gateway tells of itself: /metrics on the socket in the data directory (OPS-12)."""
import json
import re
import signal
import socket

from once_server import Wire, until

LINE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def figures(gateway):
    """{(name, (label, value), …): number}"""
    with Wire(str(gateway.data_dir / "once.sock")) as wire:
        wire.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        status, _, body = wire.answer()
    assert status == 200, body
    text = body.decode() if isinstance(body, bytes) else body
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = LINE.match(line).groups()
            key = (name, *sorted(LABEL.findall(labels or "")))
            assert key not in found, f"twice: {line}"
            found[key] = float(value)
    return found


def value(found, name, **labels):
    return found.get((name, *sorted(labels.items())), 0)


def test_decisions_are_counted_by_endpoint_and_tenant(make_gateway, origin):
    gateway = make_gateway(routes=[{"match": "POST /pay", "tenant": "acme", "profile": "ops"},
        {"match": "POST /mail"}])
    gateway.post("a")
    gateway.post("a")
    gateway.post("a")
    gateway.post("a", {"amount": 2, "more": "x" * 100})
    gateway.post("a", path="/mail")
    gateway.send("GET", "/pay")
    until(lambda: value(figures(gateway), "once_http_requests_total", route="gateway_relayed",
        code="200") == 1, "the last request is not counted")
    found = figures(gateway)
    def decisions(decision, scope, tenant):
        return value(found, "once_decisions_total", decision=decision, scope=scope, tenant=tenant)
    assert decisions("first_seen", "POST /pay", "acme") == 1
    assert decisions("duplicate_replayed", "POST /pay", "acme") == 2
    assert decisions("conflict_rejected", "POST /pay", "acme") == 1
    assert decisions("sealed", "POST /pay", "acme") == 1
    assert decisions("first_seen", "POST /mail", "default") == 1
    assert decisions("duplicate_replayed", "POST /mail", "default") == 0
    for tenant in ("acme", "default"):
        assert value(found, "once_first_seen_to_seal_seconds_count", tenant=tenant) == 1
    assert value(found, "once_conflicts_total", tenant="acme") == 1
    assert value(found, "once_conflict_diff_bytes_count", tenant="acme") == 1
    assert value(found, "once_conflict_diff_bytes_sum", tenant="acme") > 100
    assert value(found, "once_http_requests_total", route="gateway_fenced", code="200") == 4
    assert value(found, "once_http_requests_total", route="gateway_relayed", code="200") == 1
    assert origin.effects["a"] == 2


def test_the_time_to_the_seal_is_the_upstreams(gateway):
    gateway.post("slow", do="after_ms=300")
    found = figures(gateway)
    assert value(found, "once_first_seen_to_seal_seconds_bucket", tenant="default", le="0.25") == 0
    assert value(found, "once_first_seen_to_seal_seconds_sum", tenant="default") >= 0.3


def test_calls_to_an_upstream_are_counted_by_how_far_they_got(make_gateway, origin):
    with socket.socket() as reserved:  # bound and not listening: connections are refused
        reserved.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{reserved.getsockname()[1]}"
        gateway = make_gateway("--loops", "1",
            routes=[{"match": "POST /dead", "upstream": dead}, {"match": "POST /**"}])
        for number in range(3):
            gateway.post(f"k{number}")
        gateway.post("a", do="fault=reset_after")
        gateway.post("b", do="fault=half_body")
        gateway.post("c", path="/dead")
        found = figures(gateway)
    def of(name, upstream=origin.url, **labels):
        return value(found, f"once_upstream_{name}", upstream=upstream, **labels)
    assert of("calls_total") == 5 and of("calls_total", dead) == 1
    assert of("failed_total", point="not_sent") == 0
    assert of("failed_total", point="sent") == 1
    assert of("failed_total", point="head") == 1
    assert of("failed_total", dead, point="not_sent") == 1
    assert of("connects_total") + of("reused_total") == 5 and of("reused_total") >= 2
    assert of("connections") == of("idle") <= 1 and of("waiting") == 0
    assert of("addresses_down", dead) == 1 and of("addresses_down") == 0


def test_an_upstream_of_an_old_configuration_keeps_its_figures(make_gateway, make_origin, origin):
    other = make_origin()
    gateway = make_gateway(routes=[{"match": "POST /**"}])
    gateway.post("a")
    gateway.upstream = other.url
    gateway.rewrite(routes=[{"match": "POST /**"}])
    gateway.signal(signal.SIGHUP)
    until(lambda: '"reloaded"' in gateway.stderr(), "it was not reloaded")
    gateway.post("b")
    found = figures(gateway)
    for url in (origin.url, other.url):
        assert value(found, "once_upstream_calls_total", upstream=url) == 1


def test_without_a_gateway_there_are_no_upstreams(server):
    assert not any(key[0].startswith("once_upstream") for key in figures(server))


def test_a_grant_has_no_status_in_the_log(gateway):
    gateway.post("a")
    gateway.stop()  # then every line is written
    lines = [json.loads(line) for line in gateway.stderr().splitlines() if '"decision"' in line]
    status = {line["decision"]: line.get("status") for line in lines}
    assert status == {"first_seen": None, "sealed": 200}


JWT = "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln"


def test_a_doubtful_principal_is_logged_once_a_route_and_counted(make_gateway, origin):
    """Where one client is two principals, or two are one, the operator is told before it hurts."""
    gateway = make_gateway(routes=[{"match": "POST /a"}, {"match": "POST /b"},
        {"match": "POST /typed", "principal": "authorization"}])
    clients = {"changes": {"Authorization": JWT}, "cookies": {"Cookie": "session=bob"},
        "nothing": {}}
    assert {value(figures(gateway), "once_gateway_principal_doubtful_total", reason=reason)
        for reason in clients} == {0} and \
        ("once_gateway_principal_doubtful_total", ("reason", "changes")) in figures(gateway)
    for turn in range(3):
        for path in ("/a", "/b", "/typed"):
            for reason, headers in clients.items():
                gateway.post(f"{reason}{turn}", path=path, headers=headers)
        gateway.post(f"sure{turn}", path="/a", headers={"X-Api-Key": "k"})
    found = figures(gateway)
    for reason in clients:
        assert value(found, "once_gateway_principal_doubtful_total", reason=reason) == 6
    gateway.stop()  # then every line is written
    lines = [json.loads(line) for line in gateway.stderr().splitlines()
        if "principal_doubtful" in line]
    assert sorted(line["route"] for line in lines) == ["POST /a"] * 3 + ["POST /b"] * 3
    assert len({line["message"] for line in lines}) == 3
    assert all("principal: " in line["hint"] for line in lines)


def test_the_health_path_is_no_request_by_route(make_gateway):
    """Else a balancer's questions would be most of what the figures show."""
    gateway = make_gateway(gateway={"health": "/healthz"})

    def by_route():
        return {key: number for key, number in figures(gateway).items()
            if key[0] == "once_http_requests_total" and "gateway" in str(key) and number > 0}

    for method in ("GET", "HEAD", "POST"):
        assert gateway.send(method, "/healthz").status in (200, 405)
    assert by_route() == {}
    gateway.send("GET", "/pay")
    until(lambda: by_route(), "it is not counted")
    assert list(by_route().values()) == [1]
