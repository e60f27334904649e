"""The metrics are the same in the documentation, in the code and in a running server; and what
contrib/ asks Prometheus for is there, by name and by label."""
import json
import re
import shutil
import signal
import subprocess
import time

import pytest

import prometheus
from once_server import ROOT, Wire
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
    """The families of a gateway with TLS on a second address that has seen every kind of event."""
    tls = {"cert": str(certificate / "a.pem"), "key": str(certificate / "a.key")}
    gateway = make_gateway(routes=[{"match": "POST /**", "profile": "ops"}],
        more={"listen": "127.0.0.1:0", "tls": tls})
    gateway.post("a")
    gateway.post("a", {"amount": 2})
    gateway.send("GET", "/pay")
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
        "seen", "--store", f"journal:{gateway.data_dir}")
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


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_takes_the_rules():
    done = subprocess.run(["promtool", "check", "rules",
        ROOT / "contrib/prometheus/once.rules.yaml"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
