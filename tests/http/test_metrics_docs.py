"""The metrics are the same in the documentation, in the code and in a running server; and what
contrib/ asks Prometheus for is there, by name and by label."""
import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

import prometheus
from once_server import ROOT, Wire, until
from test_serve_tls import make_certificate

NAMES = re.compile(r"\b(?:once|process)_[a-z_]+\b")
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \|([a-z, ]*)\|", re.M)
SELECTOR = re.compile(r"\b((?:once|process)_[a-z_]+)\s*(?:\{([^}]*)\})?")
GROUPED = re.compile(r"\bby \(([a-z, ]+)\)")
OF_PROMETHEUS = {"instance", "job", "le"}  # labels that the scrape or a histogram adds


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificate")
    make_certificate(folder, "a")
    return folder


def families(server):
    with Wire(str(server.data_dir / "once.sock")) as wire:
        wire.send(b"GET /metrics HTTP/1.1\r\nHost: once\r\n\r\n")
        return prometheus.read(wire.answer_bytes()[2])


@pytest.fixture
def page(make_gateway, certificate):
    """The families of a gateway with TLS on a second address that has seen every kind of event, and
    has a connector and a queue."""
    tls = {"cert": str(certificate / "a.pem"), "key": str(certificate / "a.key")}
    gateway = make_gateway(routes=[{"match": "POST /**", "profile": "ops"}],
        more={"listen": "127.0.0.1:0", "tls": tls,
            "connectors": {"pay": {"url": "http://127.0.0.1:9"}},
            "effects": {"payment.capture": {"connector": "pay"}},
            "inbox": {"sources": {"shop": {"preset": "none", "handler": "http://127.0.0.1:9/shop"}},
                "queues": {"orders": {"from": "redis://127.0.0.1:9/orders?group=once",
                "format": "cloudevents", "handler": "http://127.0.0.1:9/orders"}}}})
    gateway.post("a")
    gateway.post("a", {"amount": 2})
    gateway.send("GET", "/pay")
    effect = b'{"effect_type":"payment.capture","idempotency_key":"k","target":{},"payload":{}}'
    with Wire(str(gateway.data_dir / "once.sock")) as wire:  # nobody is there to be called
        wire.send(b"POST /v1/effects HTTP/1.1\r\nHost: once\r\nContent-Type: application/json"
            b"\r\nContent-Length: %d\r\n\r\n%s" % (len(effect), effect))
        assert wire.answer_bytes()[0] == 202
        wire.send(b"POST /in/shop HTTP/1.1\r\nHost: once\r\nContent-Type: application/json"
            b"\r\nContent-Length: 2\r\n\r\n{}")
        assert wire.answer_bytes()[0] == 200
    until(lambda: "once_dispatch_scope_waited_total" in families(gateway), "it was not tried")
    return families(gateway)


def documented():
    """{name: (type, labels)}"""
    text = (ROOT / "docs/metrics.md").read_text()
    rows = ROW.findall(text)
    assert len(rows) == len({name for name, *_ in rows}), "a metric is there twice"
    return {name: (kind, {label for label in labels.replace(" ", "").split(",") if label})
        for name, kind, labels in rows}


def test_documentation_and_server_have_the_same_metrics(page):
    shown = {name: (family.type, family.label_names()) for name, family in page.items()}
    assert shown == documented()


def test_documentation_and_code_have_the_same_metrics():
    source = (ROOT / "src/door/metrics.c").read_text()
    assert set(NAMES.findall(" ".join(re.findall(r'"[^"\n]*"', source)))) == set(documented())


def test_no_label_has_a_path_with_an_id(make_gateway):
    gateway = make_gateway(routes=[{"match": "POST /v1/items/*/capture"}])
    for number in range(5):
        gateway.send("POST", f"/v1/items/{number}/capture", {"amount": 1}, key=f"k{number}")
    samples = families(gateway)["once_decisions_total"].samples
    scopes = {dict(labels)["scope"] for _, labels in samples}
    assert scopes == {"POST /v1/items/*/capture"}
    sealed = {"decision": "sealed", "scope": "POST /v1/items/*/capture", "tenant": "default"}
    assert samples[("once_decisions_total", tuple(sorted(sealed.items())))] == 5


def test_what_an_operator_settles_of_a_gateway_has_no_path_in_a_label(make_gateway):
    gateway = make_gateway(routes=[{"match": "POST /v1/items/*"}])
    gateway.send("POST", "/v1/items/7", {"amount": 1}, key="k", do="fault=close_after")
    operation, = gateway.operations()
    done = gateway.cli("resolve", operation["operation_id"], "--status", "executed", "--reason",
        "seen", "--store", gateway.store)
    assert done.returncode == 0, done.stderr
    samples = families(gateway)["once_decisions_total"].samples
    scopes = {dict(labels)["scope"] for _, labels in samples}
    assert scopes == {"POST /v1/items/*", "_other"}


def test_counters_are_at_zero_before_the_first_event(make_gateway, make_server):
    gateway = make_gateway(routes=[{"match": "POST /pay", "tenant": "acme"}])
    shown = families(gateway)
    assert {dict(labels)["tenant"] for _, labels in shown["once_unknown_total"].samples} == \
        {"acme", "default"}
    assert {dict(labels)["scope"] for _, labels in shown["once_decisions_total"].samples} == \
        {"POST /pay"}
    for name in ("once_conflicts_total", "once_duplicates_refused_total", "once_unknown_total",
            "once_decisions_total", "once_upstream_calls_total", "once_http_refused_total"):
        assert set(shown[name].samples.values()) == {0}, name
    digest = "0" * 64
    server = make_server(config='auth: {tokens: [{sha256: "%s", tenant: corp, rights: [audit]}, '
        '{sha256: "%s", tenant: "*"}]}\n' % (digest, "1" * 64))
    tenants = {dict(labels)["tenant"] for _, labels in
        families(server)["once_conflicts_total"].samples}
    assert tenants == {"corp"}


def test_a_reload_that_fails_and_one_that_works_are_shown(make_server):
    server = make_server(config="limits: {body_bytes_max: 1MiB}\n")
    path = server.directory / "once.yaml"

    def reload(text, event):
        path.write_text(text)
        server.signal(signal.SIGHUP)
        until = time.monotonic() + 30
        while f'"{event}"' not in server.stderr():
            assert time.monotonic() < until
            time.sleep(0.02)
        shown = families(server)
        at = "once_config_last_reload_success_timestamp_seconds"
        good = "once_config_last_reload_successful"
        return shown[good].samples[(good, ())], shown[at].samples[(at, ())]

    failed, started = reload("nonsense: 1\n", "reload_failed")
    assert failed == 0 and abs(started - time.time()) < 300
    worked, at = reload("limits: {body_bytes_max: 2MiB}\n", "reloaded")
    assert worked == 1 and at > started


def test_figures_of_store_and_process_are_those_of_the_machine(server):
    shown = families(server)

    def value(name):
        return shown[name].samples[(name, ())]

    files = [file for file in server.data_dir.iterdir() if file.is_file()]
    assert value("once_store_segments") == sum(file.name.startswith("segment-") for file in files)
    assert value("once_store_bytes") == sum(file.stat().st_blocks * 512 for file in files)
    free = shutil.disk_usage(server.data_dir).free
    assert abs(value("once_store_disk_free_bytes") - free) < 0.05 * free
    assert value("process_max_fds") >= value("process_open_fds") > 3
    assert 0 < value("process_cpu_seconds_total") < 60
    assert value("once_checkpoint_age_seconds") < 120


# --- contrib/ ------------------------------------------------------------------------------------


def rules():
    """The expressions of the alert rules, without their comments."""
    text = (ROOT / "contrib/prometheus/once.rules.yaml").read_text()
    found = re.findall(r"^ +expr: (.+?)(?:   #.*)?$", text, re.M)
    assert len(found) == text.count("- alert:") > 10
    return found


def panels():
    document = json.loads((ROOT / "contrib/grafana/once.json").read_text())
    found = [target["expr"] for panel in document["panels"] for target in panel["targets"]]
    queries = [each["query"]["query"] for each in document["templating"]["list"]
        if each["type"] == "query"]
    assert len(found) > 20 and len(queries) == 2
    return found + [re.fullmatch(r"label_values\((.*), (\w+)\)", query).expand(r"sum by (\2) (\1)")
        for query in queries]


def check_expression(page, expression):
    labels = set()
    for name, selector in SELECTOR.findall(expression):
        family = page.get(name) or page.get(re.sub("_(bucket|sum|count)$", "", name))
        assert family is not None, f"{name} is no metric: {expression}"
        assert (family.name == name) == (family.type != "histogram"), expression
        labels |= family.label_names()
        for label, sign, value in re.findall(r'(\w+)\s*(=~|!=|=)\s*"([^"]*)"', selector):
            assert label in family.label_names() | OF_PROMETHEUS, f"{label}: {expression}"
            shown = {dict(pairs).get(label) for _, pairs in family.samples}
            assert sign == "=~" or label in OF_PROMETHEUS or value in shown, expression
    for group in GROUPED.findall(expression):
        assert {label.strip() for label in group.split(",")} <= labels | OF_PROMETHEUS, expression
    assert expression.count("(") == expression.count(")")


def test_every_expression_of_contrib_asks_for_what_is_there(page):
    for expression in rules() + panels():
        check_expression(page, expression)


def test_an_expression_for_what_is_not_there_is_found(page):
    for wrong in ("once_nothing > 0", 'once_operations{state="x"}', 'once_operations{status="x"}',
            "sum by (path) (once_live_keys)", "rate(once_flush_seconds[5m])"):
        with pytest.raises(AssertionError):
            check_expression(page, wrong)


# --- promtool ------------------------------------------------------------------------------------

# Of each alert: a series with which it fires within 30 minutes, and one with which it does not. The
# values are promtool's: first+stepxtimes, one a minute.
GROWS, IS_ONE, FEW_IN_TIME = ("0+60x40", "0x40"), ("1x40", "0x40"), ("0+1x40", "0+9x40")
ALERTS = {
    "OnceUnknownNotSettled": ("once_unknown_oldest_seconds", *GROWS),
    "OnceUnknownIncreasing": ('once_unknown_total{tenant="a"}', "0+1x40", "7x40"),
    "OnceDiskFilling": ("once_store_disk_free_bytes", "4000000000x40", "9000000000x40"),
    "OnceFlushSlow": ('once_flush_seconds_bucket{le="0.064"}', "0+5x40", "0+9x40"),
    "OnceOverloaded": ('once_http_refused_total{reason="overloaded"}', "0+9x40", "9x40"),
    "OnceServerErrors": ('once_http_requests_total{route="r",code="503"}', "0+60x40", "5x40"),
    "OnceUpstreamInDoubt": ('once_upstream_failed_total{upstream="u",point="sent"}', "0+1x40",
        "1x40"),
    "OnceUpstreamDown": ('once_upstream_addresses_down{upstream="u"}', *IS_ONE),
    "OnceDeadLetters": ('once_work_scope{kind="effects",scope="s",tenant="a",status="dead"}',
        "0x9 1x31", "0x40"),
    "OnceEffectsUncertain": ('once_work_scope_oldest_seconds{kind="effects",scope="s",tenant="a",'
        'status="unknown"}', *GROWS),
    "OnceEffectsLate": ('once_dispatch_oldest_due_seconds{kind="effects",target="t"}', *GROWS),
    "OnceDispatchSlow": ('once_dispatch_delay_seconds_bucket{kind="effects",target="t",le="10"}',
        *FEW_IN_TIME),
    "OnceHandlerSlow": ('once_dispatch_call_seconds_bucket{kind="deliveries",target="s",le="10"}',
        *FEW_IN_TIME),
    "OnceDeliveriesLate": ('once_dispatch_oldest_due_seconds{kind="deliveries",target="s"}',
        *GROWS),
    "OnceDeliveriesUnknown": ('once_work_scope_oldest_seconds{kind="deliveries",scope="s",'
        'tenant="a",status="unknown"}', *GROWS),
    "OnceQueueDisconnected": ('once_queue_connected{queue="q"}', "0x40", "1x40"),
    "OnceQueueLagGrows": ('once_queue_lag{queue="q"}', "2000+50x40", "2000x40"),
    "OnceQueueParks": ('once_queue_parked_total{queue="q"}', "0+1x40", "5x40"),
    "OnceInboxRefuses": ('once_inbox_refused_total{source="s",reason="signature_mismatch"}',
        "0+60x40", "60x40"),
    "OnceBreakerOpen": ('once_dispatch_breaker{kind="effects",target="t",state="open"}', *IS_ONE),
    "OnceConflicts": ('once_conflicts_total{tenant="a"}', "0+2x40", "50x40"),
    "OnceDuplicatesFlooding": ('once_duplicates_refused_total{tenant="a"}', "0+90x40", "90x40"),
    "OnceTenantQuarantined": ("once_quarantined_tenants", *IS_ONE),
    "OnceEvidenceWentBack": ("once_evidence_seq", "90x9 5x31", "0+5x40"),
    "OnceCheckpointLate": ("once_checkpoint_age_seconds", "0+60x40", "30x40"),
    "OnceClockHeld": ("once_clock_held", *IS_ONE),
    "OnceReloadFailed": ("once_config_last_reload_successful", "0x40", "1x40"),
    "OnceCertificateEnding": ("once_certificate_expiry_timestamp_seconds", "86400x40",
        "9999999999x40"),  # promtool's time begins at 0
    "OnceFileDescriptorsShort": ('process_open_fds{job="once"}', "900x40", "100x40"),
    "OnceRestarting": ('process_start_time_seconds{job="once"}', "0+60x40", "60x40"),
    "OnceLogDropped": ("once_log_dropped_total", "0+1x40", "3x40"),
}
# What some of them need besides.
BESIDES = [('once_flush_seconds_bucket{le="0.256"}', "0+9x40"),
    ('once_flush_seconds_bucket{le="+Inf"}', "0+9x40"),
    ('once_dispatch_delay_seconds_bucket{kind="effects",target="t",le="60"}', "0+9x40"),
    ('once_dispatch_delay_seconds_bucket{kind="effects",target="t",le="+Inf"}', "0+9x40"),
    ('once_dispatch_call_seconds_bucket{kind="deliveries",target="s",le="60"}', "0+9x40"),
    ('once_dispatch_call_seconds_bucket{kind="deliveries",target="s",le="+Inf"}', "0+9x40"),
    ('process_max_fds{job="once"}', "1000x40")]


def promtool(*words):
    program = shutil.which("promtool", path=f"{ROOT}/build-tools:{os.environ['PATH']}")
    if program is None:
        pytest.skip("promtool is not here, and tools/deps could not fetch it")
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_takes_the_rules():
    said = promtool("check", "rules", str(ROOT / "contrib/prometheus/once.rules.yaml"))
    assert f"{len(rules())} rules found" in said


def test_promtool_sees_the_alerts_fire(tmp_path):
    def expected(column, names):
        pairs = [(each[0], each[column]) for each in ALERTS.values()] + BESIDES
        series = [{"series": name, "values": values} for name, values in pairs]
        samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in names]
        return {"interval": "1m", "input_series": series, "promql_expr_test": [
            {"expr": 'count by (alertname) (ALERTS{alertstate="firing"})', "eval_time": "30m",
                "exp_samples": samples}]}

    text = (ROOT / "contrib/prometheus/once.rules.yaml").read_text()
    assert set(ALERTS) == set(re.findall(r"- alert: (\w+)", text))
    tests = tmp_path / "alerts.yaml"  # JSON is YAML
    tests.write_text(json.dumps({"rule_files": [str(ROOT / "contrib/prometheus/once.rules.yaml")],
        "evaluation_interval": "1m", "tests": [expected(1, ALERTS), expected(2, [])]}))
    promtool("test", "rules", str(tests))


# --- Grafana -------------------------------------------------------------------------------------


def test_the_dashboard_is_of_the_shape_that_grafana_imports():
    """What its import asks for: an id of its own, a schema version, and panels that each have a
    place on the grid and the data source that the user chooses."""
    board = json.loads((ROOT / "contrib/grafana/once.json").read_text())
    assert "id" not in board or board["id"] is None  # one of a server would replace what it has
    assert re.fullmatch(r"[\w-]{1,40}", board["uid"]) and board["title"]
    assert board["schemaVersion"] >= 36 and set(board["time"]) == {"from", "to"}
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    variables = {each["name"]: each for each in board["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    assert all(each["datasource"] == chosen for each in variables.values()
        if each["type"] == "query")
    taken, ids = set(), set()
    for panel in board["panels"]:
        assert panel["type"] in ("stat", "timeseries") and panel["title"], panel
        assert panel["datasource"] == chosen and panel["id"] not in ids
        ids.add(panel["id"])
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])}
        assert place["x"] + place["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
        refs = [target["refId"] for target in panel["targets"]]
        assert refs == sorted(set(refs)) and refs
        for target in panel["targets"]:
            assert target["datasource"] == chosen and target["expr"]
            unknown = set(re.findall(r"\$(\w+)", target["expr"])) - set(variables) - \
                {"__rate_interval", "__interval", "__range"}
            assert not unknown, (panel["title"], unknown)
