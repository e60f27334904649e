"""What /metrics says of the work that Once does by itself: effects on their way to a provider."""
import hashlib
import signal

import pytest

import prometheus
from once_server import until
from provider import Provider

CONNECTOR = """
  {name}:
    url: {url}
    timeout: {{connect: 1s, first_byte: 5s, total: 6s}}
    breaker: {{failures: {failures}, pause: 1h}}
"""
EFFECT = """
  {name}.send:
    connector: {name}
    request: {{path: "/", headers: {{X-Key: "{{idempotency_key}}"}}}}
    retry: {{attempts: 2, backoff: 20ms, backoff_max: 20ms}}
"""
LATER = "2999-01-01T00:00:00.000Z"


@pytest.fixture
def provider(tmp_path):
    made = Provider(keeps=False)
    made.key_file = tmp_path / "body.key"  # what a shared store asks for
    made.key_file.write_text("00112233445566778899aabbccddeeff" * 2 + "\n")
    made.key_file.chmod(0o600)
    yield made
    made.end()


def config_of(provider, more="", **failures):
    """A connector and an effect of each name, whose breaker opens after so many failures."""
    return more + f"secrets: {{key_file: {provider.key_file}}}\nconnectors:" + "".join(
        CONNECTOR.format(name=name, url=provider.url, failures=count)
        for name, count in failures.items()) + "effects:" + "".join(
        EFFECT.format(name=name) for name in failures)


def put(server, key, name="pay", token=None, **more):
    status, _, answer = server.request("POST", "/v1/effects", {"effect_type": f"{name}.send",
        "idempotency_key": key, "target": {}, "payload": {}, **more},
        {"Authorization": f"Bearer {token}"} if token else {})
    assert status in (200, 202), answer


def figures(server, token=None):
    """{(name, ((label, value), …)): number} of the page that a token sees."""
    field = b"Authorization: Bearer %s\r\n" % token.encode() if token else b""
    with server.wire() as wire:
        wire.send(b"GET /metrics HTTP/1.1\r\nHost: once\r\n" + field + b"\r\n")
        status, _, body = wire.answer_bytes()
    assert status == 200, body
    return {sample: value for family in prometheus.read(body).values()
        for sample, value in family.samples.items()}


def value(shown, name, **labels):
    return shown[(name, tuple(sorted(labels.items())))]


def until_shown(server, expected, name, **labels):
    until(lambda: figures(server).get((name, tuple(sorted(labels.items())))) == expected,
        f"{name} {labels} is never {expected}")


ATTEMPTS = {"executed": 1, "unknown": 1, "later": 2, "failed": 0, "released": 0}


def attempts_of(shown):
    return {dict(labels)["verdict"]: number for (name, labels), number in shown.items()
        if name == "once_dispatch_attempts_total"}


def test_each_status_of_effects_is_counted(make_server, provider):
    server = make_server(config=config_of(provider, pay=10))
    provider.script("lost", "lost")
    provider.script("dead", "503", "503")
    for key in ("well", "lost", "dead"):
        put(server, key)
    put(server, "later", not_before=LATER)
    for status in ("dead", "unknown", "pending"):
        until_shown(server, 1, "once_work", kind="effects", status=status)
    until_shown(server, 1, "once_dispatch_attempts_total", kind="effects", target="pay",
        verdict="executed")
    until_shown(server, 0, "once_work", kind="effects", status="in_progress")
    until(lambda: attempts_of(figures(server)) == ATTEMPTS, "not all attempts are counted")
    shown = figures(server)
    for kind in ("commands", "deliveries"):
        assert {number for (name, labels), number in shown.items()
            if name == "once_work" and dict(labels)["kind"] == kind} == {0}
        assert value(shown, "once_work_unknown_oldest_seconds", kind=kind) == 0
    until(lambda: 0 < value(figures(server), "once_work_unknown_oldest_seconds", kind="effects")
        < 60, "it has no age")
    assert attempts_of(shown) == ATTEMPTS
    assert len(provider.requests) == sum(ATTEMPTS.values())
    until_shown(server, 0, "once_dispatch_in_flight", kind="effects", target="pay")
    assert value(shown, "once_dispatch_questions_total", kind="effects", target="pay") == 0
    assert value(shown, "once_dispatch_breaker", kind="effects", target="pay", state="closed") == 1


def test_how_long_calls_waited_is_counted(make_server, provider):
    server = make_server(config=config_of(provider, pay=10))
    for number in range(3):
        put(server, f"k{number}")
    until_shown(server, 3, "once_dispatch_delay_seconds_count", kind="effects", target="pay")
    shown = figures(server)
    assert value(shown, "once_dispatch_delay_seconds_bucket", kind="effects", target="pay",
        le="3600") == 3
    assert value(shown, "once_dispatch_delay_seconds_sum", kind="effects", target="pay") < 3600
    where = {"scope": "pay.send", "tenant": "default"}  # by effect type and tenant
    assert value(shown, "once_decisions_total", decision="enqueued", **where) == 3
    until_shown(server, 3, "once_dispatch_scope_attempts_total", verdict="executed", **where)
    shown = figures(server)
    assert value(shown, "once_dispatch_scope_waited_total", **where) == 3
    assert value(shown, "once_dispatch_scope_delay_seconds_total", **where) < 3600
    assert value(shown, "once_dispatch_scope_call_seconds_total", **where) < 3600


def test_a_call_under_way_is_shown(make_server, provider):
    server = make_server(config=config_of(provider, pay=10))
    provider.slow_s = 3
    provider.script("slow", "slow")
    put(server, "slow")
    until_shown(server, 1, "once_dispatch_in_flight", kind="effects", target="pay")
    until_shown(server, 0, "once_dispatch_in_flight", kind="effects", target="pay")


def test_an_open_breaker_is_shown_while_its_target_is_configured(make_server, provider):
    server = make_server(config=config_of(provider, pay=10, down=2))
    provider.script("a", "503", "503")
    put(server, "a", "down")

    def states(target):
        return {dict(labels)["state"]: number for (name, labels), number in figures(server).items()
            if name == "once_dispatch_breaker" and dict(labels)["target"] == target}

    until(lambda: states("down") == {"closed": 0, "open": 1, "half_open": 0}, "it never opened")
    assert states("pay") == {"closed": 1, "open": 0, "half_open": 0}
    put(server, "b", "down")
    until_shown(server, 1, "once_dispatch_queued", kind="effects", target="down")
    until(lambda: value(figures(server), "once_dispatch_oldest_due_seconds", kind="effects",
        target="down") > 1, "what waits does not grow old")
    shown = figures(server)
    assert value(shown, "once_dispatch_oldest_due_seconds", kind="effects", target="pay") == 0
    assert value(shown, "once_dispatch_breaker_opened_total", kind="effects", target="down") == 1
    assert value(shown, "once_dispatch_breaker_opened_total", kind="effects", target="pay") == 0
    (server.directory / "once.yaml").write_text(config_of(provider, pay=10))
    server.signal(signal.SIGHUP)
    until(lambda: states("down") == {}, "what is no longer configured is shown")
    assert states("pay")["closed"] == 1


def test_a_tenant_sees_nothing_of_it_but_its_own(make_server, provider):
    rows = "".join(f'    - {{sha256: "{hashlib.sha256(token.encode()).hexdigest()}", '
        f'tenant: "{tenant}"{rights}}}\n' for token, tenant, rights in
        (("own", "acme", ", rights: [execute, operate, audit]"), ("all", "*", "")))
    server = make_server(config=config_of(provider, "auth:\n  tokens:\n" + rows, pay=10))
    put(server, "later", token="own", not_before=LATER)
    until(lambda: value(figures(server, "all"), "once_work", kind="effects", status="pending") == 1,
        "it is not counted")
    shown = figures(server, "own")
    own = {name for name, labels in shown if dict(labels).get("tenant") != "acme" or
        name == "once_decisions_total"}
    assert "once_decisions_total" in own
    assert not [name for name in own if name.startswith(("once_work", "once_dispatch"))]


# --- By type and tenant ---

def waits(server, token=None):
    """{(kind, scope, tenant, status): number} of what waits, zeros left out."""
    return {tuple(dict(labels)[name] for name in ("kind", "scope", "tenant", "status")): number
        for (name, labels), number in figures(server, token).items()
        if name == "once_work_scope" and number}


def test_what_waits_is_counted_by_type_and_tenant_and_after_a_restart(make_server, provider):
    auth = "auth:\n  tokens:\n" + "".join(f'    - {{sha256: "'
        f'{hashlib.sha256(token.encode()).hexdigest()}", tenant: "{tenant}"{rights}}}\n'
        for token, tenant, rights in (("a", "a", ", rights: [execute, operate, audit]"),
            ("b", "b", ", rights: [execute, operate, audit]"), ("all", "*", "")))
    server = make_server(config=config_of(provider, auth, pay=100, mail=100))
    for number in range(3):
        put(server, f"p{number}", "pay", "a", not_before=LATER)
    put(server, "m", "mail", "a", not_before=LATER)
    put(server, "p", "pay", "b", not_before=LATER)
    provider.script("lost", "lost")
    put(server, "lost", "pay", "b")
    provider.script("dead", "503", "503")
    put(server, "dead", "mail", "b")
    of_b = {("effects", "pay.send", "b", "pending"): 1, ("effects", "pay.send", "b", "unknown"): 1,
        ("effects", "mail.send", "b", "dead"): 1}
    expected = {("effects", "pay.send", "a", "pending"): 3,
        ("effects", "mail.send", "a", "pending"): 1, **of_b}
    until(lambda: waits(server, "all") == expected, "they are not counted")
    assert waits(server, "b") == of_b  # P9
    until(lambda: value(figures(server, "all"), "once_work_scope_oldest_seconds", kind="effects",
        scope="pay.send", tenant="b", status="unknown") > 0.5, "it has no age")
    server.stop()
    server.start()
    until(lambda: waits(server, "all") == expected, "they are not found after a restart")
    page = server.request("GET", "/v1/effects?status=dead_letter", headers={
        "Authorization": "Bearer b"})[2]
    path = f"/v1/effects/{page['effects'][0]['effect_id']}"
    assert server.request("POST", path + "/retry", {}, {"Authorization": "Bearer b"})[0] == 200
    del expected[("effects", "mail.send", "b", "dead")]
    until(lambda: waits(server, "all") == expected, "the one that was taken up is still counted")
