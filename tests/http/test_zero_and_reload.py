"""0 as a value that somebody means, and a reload of what kept its name.

0 is not "not given": each setting that takes it has a row here that shows what it does, and a
setting that starts to take it without a row fails. Those of commands, connectors, effects, sources
and tools are tested one by one. A reload takes up a file whose name is the same
and whose content is not, and a setting that changed in place.
"""
import hashlib
import json
import re
import signal
import subprocess
import time

import pytest

import stores
from effects_help import ACKNOWLEDGED, Effects, config_of
from fences import begin_body
from once_gateway import DUPLICATES_FREE
from once_server import BINARY, until

UPSTREAM = "http://127.0.0.1:9"


def settings():
    """Every setting of the example that could be 0: path and its default."""
    text = subprocess.run([BINARY, "check", "--example"], capture_output=True, text=True).stdout
    found = re.findall(r"^# ([a-z_.0-9]+): default ([0-9][0-9a-zA-Z.]*)[;.]", text, re.M)
    assert len(found) > 20
    return dict(found)


def document_with(path, value):
    """The smallest file that has this one setting."""
    reconcile = {"get": "/{key}", "executed": [200]}
    document = {"gateway": {"upstream": UPSTREAM, "reconcile": reconcile}}
    at = document
    *above, last = path.split(".")
    for name in above:
        at = at.setdefault(name, {})
    at[last] = value
    return json.dumps(document)


def takes_zero(path, default):
    unit = re.sub(r"[0-9.]+", "", default)
    zero = f"0{unit}" if unit else 0
    return subprocess.run([BINARY, "check", "-"], input=document_with(path, zero), text=True,
        capture_output=True).returncode == 0


def begin(server, key, **more):
    status, _, document = server.request("POST", "/v1/fences", begin_body(key, {}, **more))
    return status, document


def seal(server, one, **more):
    return server.request("POST", f"/v1/fences/{one['operation_id']}/seal",
        {"fence": one["fence"], "status": "executed", **more})[0]


# --- What 0 does ---


def no_loops_is_one_for_each_core(make_server, make_gateway, origin):
    server = make_server(config="loops: 0\n")
    assert '"loops":0' not in server.stderr() and begin(server, "k")[0] == 201


def no_drain_cuts_at_once(make_server, make_gateway, origin):
    gateway = make_gateway(more={"drain": "0s"}, routes=[{"match": "POST /**"}])
    with gateway.peer() as peer:
        peer.send(b"POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nX-Do: hold=1\r\n"
            b"Content-Length: 0\r\n\r\n")
        origin.wait_for("k")
        began = time.monotonic()
        gateway.stop()
        assert time.monotonic() - began < 9  # the default is 10 s


def no_outcome_is_kept(make_server, make_gateway, origin):
    server = make_server(config="limits: {outcome_bytes_max: 0, duplicate_rate: 0}\n")
    one = begin(server, "k")[1]
    assert seal(server, one, outcome={"n": 1}) == 200
    replay = begin(server, "k")[1]
    assert (replay["decision"], replay["outcome_retained"]) == ("duplicate_replayed", False)


def no_limit_of_keys(make_server, make_gateway, origin):
    server = make_server(config="limits: {keys_max: 0}\n")
    assert [begin(server, f"k{number}")[0] for number in range(5)] == [201] * 5


def no_limit_of_duplicates(make_server, make_gateway, origin):
    server = make_server(config="limits: {duplicate_rate: 0, duplicate_burst: 1}\n")
    assert [begin(server, "k")[0] for _ in range(30)] == [201] + [202] * 29


def nobody_waits(make_server, make_gateway, origin):
    gateway = make_gateway(gateway={"wait": "0s"}, limits=DUPLICATES_FREE,
        routes=[{"match": "POST /**"}])
    with gateway.peer() as peer:
        peer.send(b"POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nX-Do: hold=1\r\n"
            b"Content-Type: application/json\r\nContent-Length: 13\r\n\r\n{\"amount\": 1}")
        origin.wait_for("k")
        began = time.monotonic()
        assert gateway.post("k", headers={"Prefer": "wait=9"}).status == 409
        assert time.monotonic() - began < 9
        origin.let_go()
        assert peer.read("POST").status == 200


def no_is_believed_at_once(make_server, make_gateway, origin):
    gateway = make_gateway(limits=DUPLICATES_FREE, routes=[{"match": "POST /**",
        "on_unknown": "reconcile", "timeout": {"first_byte": "9s", "total": "30s"},
        "reconcile": {"get": "/by-key/{key}", "executed": [200], "not_executed": [404],
            "quiet": "0s", "every": "100ms"}}])
    assert gateway.post("k", do="fault=reset_before").status == 504
    began = time.monotonic()
    answer = gateway.post("k")
    assert (answer.status, origin.effects["k"]) == (200, 1)
    assert time.monotonic() - began < 30


def no_answer_is_kept(make_server, make_gateway, origin):
    gateway = make_gateway(gateway={"limits": {"outcome_bytes_max": 0, "duplicate_rate": 0}},
        routes=[{"match": "POST /**"}])
    assert gateway.post("k").status == 200
    assert gateway.post("empty", do="body=empty").status == 200
    assert gateway.post("k").status == 410
    assert gateway.post("empty", do="body=empty").is_replay  # nothing was left out
    assert origin.total == 2


def no_limit_of_a_gateways_duplicates(make_server, make_gateway, origin):
    gateway = make_gateway(gateway={"limits": {"duplicate_rate": 0, "duplicate_burst": 1}},
        routes=[{"match": "POST /**"}])
    assert [gateway.post("k").status for _ in range(30)] == [200] * 30
    assert origin.total == 1


def everything_goes_to_disk(make_server, make_gateway, origin):
    gateway = make_gateway(gateway={"spool_memory": 0}, limits=DUPLICATES_FREE,
        routes=[{"match": "POST /**"}])
    first = gateway.post("k", {"text": "x" * 9000}, do="size=9000")
    again = gateway.post("k", {"text": "x" * 9000}, do="size=9000")
    assert first.status == 200 and again.is_replay and again.body == first.body
    assert bytes(origin.seen("k")[0].body) == json.dumps({"text": "x" * 9000}).encode()


def no_connection_is_kept(make_server, make_gateway, origin):
    gateway = make_gateway(gateway={"idle": "0s"}, routes=[{"match": "POST /**"}])
    for number in range(5):
        assert gateway.post(f"k{number}").status == 200
    assert origin.connections == 5


ZERO = {
    "loops": no_loops_is_one_for_each_core,
    "drain": no_drain_cuts_at_once,
    "limits.outcome_bytes_max": no_outcome_is_kept,
    "limits.keys_max": no_limit_of_keys,
    "limits.duplicate_rate": no_limit_of_duplicates,
    "gateway.wait": nobody_waits,
    "gateway.reconcile.quiet": no_is_believed_at_once,
    "gateway.limits.outcome_bytes_max": no_answer_is_kept,
    "gateway.limits.duplicate_rate": no_limit_of_a_gateways_duplicates,
    "gateway.spool_memory": everything_goes_to_disk,
    "gateway.idle": no_connection_is_kept,
}


def test_every_setting_that_takes_0_is_in_the_table():
    given = settings()
    taken = {path for path, default in given.items() if takes_zero(path, default)}
    assert taken - {path for path in ZERO} == set()
    assert {path for path in ZERO if path in given} <= taken


@pytest.mark.parametrize("setting", ZERO)
def test_0_means_0(make_server, make_gateway, origin, setting):
    ZERO[setting](make_server, make_gateway, origin)


ASKS = """
connectors:
  pay:
    url: {url}
    timeout: {{connect: 1s, first_byte: 5s, total: 6s}}
    lookup: {{get: "/by-key/{{idempotency_key}}", executed: 200, not_executed: 404, quiet: 0s}}
effects:
  pay.capture:
    connector: pay
    request: {{path: /charge, headers: {{X-Key: "{{idempotency_key}}"}}}}
    retry: {{attempts: 4, backoff: 20ms, backoff_max: 50ms, deadline: 0s}}
"""


@pytest.mark.parametrize("endings", [("lost_before",), ("503", "503")], ids=["quiet", "deadline"])
def test_an_effect_with_0_is_sent_again_at_once_and_without_a_deadline(make_server, make_provider,
        endings):
    """quiet: the lookup is believed at once. deadline: no attempt is too late."""
    provider = make_provider()
    provider.script("k", *endings)
    server = make_server(config=ASKS.format(url=provider.url))
    began = time.monotonic()
    effect_id = server.request("POST", "/v1/effects", {"effect_type": "pay.capture",
        "idempotency_key": "k", "target": {}, "payload": {}})[2]["effect_id"]
    until(lambda: server.request("GET", f"/v1/effects/{effect_id}")[2]["status"] == "acknowledged",
        "not sent again")
    assert time.monotonic() - began < 30  # the default of quiet is a minute
    assert provider.effects == {"k": 1} and len(provider.of("k")) == len(endings) + 1


def test_a_wait_of_0_asks_once_and_retries_of_0_send_once(make_server, origin, tmp_path):
    server = make_server(config="limits: {duplicate_rate: 0}\n")
    begin(server, "k")
    began = time.monotonic()
    assert begin(server, "k", wait="0s")[0] == 202
    assert time.monotonic() - began < 20
    sent = server.cli("send", "POST", origin.url + "/pay", "--idempotency-key", "s", "--retries",
        "0", "--header", "X-Do: status=503&effect=0")
    assert sent.returncode != 0 and len(origin.seen("s")) == 1


# --- Reload ---


def reload(server):
    """SIGHUP, until it says that it is done."""
    before = server.stderr().count('"event":"reloaded"')
    server.signal(signal.SIGHUP)
    def is_done():
        assert "reload_failed" not in server.stderr(), server.stderr()
        return server.stderr().count('"event":"reloaded"') > before
    until(is_done, "it was not reloaded")


def tokens(*pairs):
    return "auth:\n  tokens:\n" + "".join(
        f'    - {{sha256: "{hashlib.sha256(token.encode()).hexdigest()}", tenant: {tenant}, '
        f"rights: {rights}, name: same}}\n" for token, tenant, rights in pairs)


def test_a_token_that_kept_its_text_may_change_its_tenant_and_its_rights(make_server):
    server = make_server(config=tokens(("tok", "acme", "[execute, operate]")))
    path, bearer = server.directory / "once.yaml", {"Authorization": "Bearer tok"}
    body = begin_body("k", {})
    held = server.request("POST", "/v1/fences", body, bearer)[2]
    assert server.request("GET", f"/v1/operations/{held['operation_id']}", None, bearer)[0] == 200
    path.write_text(tokens(("tok", "zeta", "[execute, operate]")))
    reload(server)
    assert server.request("GET", f"/v1/operations/{held['operation_id']}", None, bearer)[0] == 404
    assert server.request("POST", "/v1/fences", body, bearer)[0] == 201
    path.write_text(tokens(("tok", "acme", "[operate]")))
    reload(server)
    assert server.request("POST", "/v1/fences", body, bearer)[0] == 403
    assert server.request("GET", f"/v1/operations/{held['operation_id']}", None, bearer)[0] == 200


def test_limits_change_in_place_and_go_back_to_their_defaults(make_server):
    server = make_server(config="limits: {duplicate_rate: 0}\n")
    path, large = server.directory / "once.yaml", {"t": "x" * 2000}

    def status_of(payload):
        return server.request("POST", "/v1/fences", begin_body("k", payload))[0]

    assert [status_of({}), status_of({}), status_of(large)] == [201, 202, 409]
    path.write_text("limits: {duplicate_rate: 1, duplicate_burst: 2, body_bytes_max: 1KiB}\n")
    reload(server)
    assert status_of(large) == 413
    assert 429 in [status_of({}) for _ in range(4)]
    path.write_text("limits: {duplicate_rate: 0}\n")
    reload(server)
    assert [status_of({}) for _ in range(30)] == [202] * 30
    assert status_of(large) == 409  # read as a whole, and a conflict


def test_the_log_of_decisions_goes_off_and_on_in_place(make_server):
    server = make_server(config="log: {level: info}\n")
    path = server.directory / "once.yaml"

    def decisions(least):
        """The log is written by a thread of its own: what is to come, and what is not."""
        until(lambda: server.stderr().count('"event":"decision"') >= least, "nothing is logged")
        time.sleep(0.2)
        return server.stderr().count('"event":"decision"')

    begin(server, "a")
    assert decisions(1) == 1
    path.write_text("log: {level: info, decisions: false}\n")
    reload(server)
    begin(server, "b")
    assert decisions(1) == 1
    path.write_text("log: {level: info, decisions: true}\n")
    reload(server)
    begin(server, "c")
    assert decisions(2) == 2


def test_the_log_of_decisions_goes_off_and_on_for_what_is_sent(make_server, make_provider):
    """The dispatcher's own decisions: an effect's claim and seal."""
    provider = make_provider()
    server = make_server(config=config_of(provider, more="log: {level: info}\n"))
    effects = Effects(server)

    def logged(key, how):
        text = config_of(provider, more=f"log: {{level: info, decisions: {how}}}\n")
        (server.directory / "once.yaml").write_text(stores.with_key(text))
        reload(server)
        effects.settled(effects.put(key), ACKNOWLEDGED)
        begin(server, "after " + key)
        time.sleep(0.2)  # the log is written by a thread of its own
        return [line for line in server.stderr().splitlines()
            if f'"idempotency_key":"{key}"' in line]

    assert len(logged("a", "true")) >= 2  # enqueued; sealed
    assert logged("b", "false") == []
    assert len(logged("c", "true")) >= 2


def test_a_route_that_kept_its_match_takes_up_all_its_other_settings(origin, make_gateway,
        make_origin):
    other = make_origin()
    limits = DUPLICATES_FREE
    gateway = make_gateway(limits=limits, routes=[{"match": "POST /pay",
        "on_status": {"5xx": "seal"},
        "timeout": {"first_byte": "10s", "total": "20s"}}])
    assert gateway.post("a", do="status=500").status == 500
    assert gateway.status_of("a") == "failed"
    gateway.rewrite(limits=limits, routes=[{"match": "POST /pay", "on_status": {"5xx": "release"},
        "timeout": {"first_byte": "1500ms", "total": "20s"}}])
    reload(gateway)
    assert gateway.post("b", do="status=500").status == 500
    assert gateway.status_of("b") == "released"
    assert gateway.post("c", do="before_ms=8000").status == 504
    gateway.rewrite(limits=limits, routes=[{"match": "POST /pay", "upstream": other.url}])
    reload(gateway)
    assert gateway.post("d").status == 200
    assert (other.effects["d"], origin.effects["d"]) == (1, 0)
    gateway.rewrite(limits=limits, routes=[{"match": "POST /pay"}])
    reload(gateway)
    assert gateway.post("e").status == 200
    assert (other.effects["e"], origin.effects["e"]) == (0, 1)


def test_a_drain_takes_as_long_as_the_latest_file_says(origin, make_gateway):
    gateway = make_gateway(more={"drain": "40s"}, routes=[{"match": "POST /**"}])
    gateway.rewrite(more={"drain": "100ms"}, routes=[{"match": "POST /**"}])
    reload(gateway)
    with gateway.peer() as peer:
        peer.send(b"POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nX-Do: hold=1\r\n"
            b"Content-Length: 0\r\n\r\n")
        origin.wait_for("k")
        began = time.monotonic()
        gateway.stop()
        assert time.monotonic() - began < 30


def test_a_change_that_needs_a_restart_is_named_and_nothing_else_is(make_server):
    server = make_server(config="limits: {duplicate_rate: 0}\n")
    path = server.directory / "once.yaml"
    changes = {"loops": 3, "limits.in_flight_bytes_max": "64MiB", "limits.connections_max": 77,
        "limits.keys_max": 99, "limits.head_timeout": "7s", "limits.body_timeout": "8s",
        "limits.idle_timeout": "9s", "limits.write_timeout": "11s", "log.level": "debug",
        "log.format": "human", "limits.duplicate_rate": 5, "drain": "3s",
        "limits.outcome_bytes_max": "9KiB", "log.decisions": False}
    for number, (setting, value) in enumerate(changes.items(), 1):
        section, _, name = setting.rpartition(".")
        path.write_text(json.dumps({section: {name: value}} if section else {name: value}))
        reload(server)
        events = [json.loads(line) for line in server.stderr().splitlines()]
        done = [at for at, event in enumerate(events) if event["event"] == "reloaded"][-2:]
        since = events[done[0] + 1 if len(done) == 2 else 0:]
        named = [event["setting"] for event in since if event["event"] == "restart_needed"]
        assert named == ([setting] if number <= 10 else []), setting
