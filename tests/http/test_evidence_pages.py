"""Evidence and figures over HTTP: what is shown proves itself, and is of one tenant alone."""
import hashlib
import json
import re
import time

import entry_link
import stores
from once_server import Wire

RIGHTS = "[execute, operate, audit]"


def two_tenants(make_server):
    rows = [f'    - {{sha256: "{hashlib.sha256(f"tok-{tenant}".encode()).hexdigest()}", '
            f'tenant: {tenant}, rights: {RIGHTS}, name: "auditor of {tenant}"}}'
            for tenant in ("acme", "zeta")]
    return make_server(config="auth:\n  tokens:\n" + "\n".join(rows) + "\n")


def ask(server, method, path, body=None, tenant=None):
    headers = {"Authorization": f"Bearer tok-{tenant}"} if tenant else {}
    status, _, answer = server.request(method, path, body, headers)
    assert status < 300, answer
    return answer


def begin(server, key, tenant=None, scope="pay"):
    return ask(server, "POST", "/v1/fences", {"scope": scope, "key": key, "payload": 1}, tenant)


def pages(server, limit, tenant=None):
    """All entries there were when the first page was asked for."""
    found, after = [], ""
    last = ask(server, "GET", "/v1/evidence/head", tenant=tenant)["seq"]
    while True:
        page = ask(server, "GET", f"/v1/evidence?after={after}&limit={limit}", tenant=tenant)
        assert len(page["entries"]) <= limit
        found += [entry for entry in page["entries"] if entry["seq"] <= last]
        after = page["next"]
        if after is None or len(found) < len(page["entries"]) or found and found[-1]["seq"] == last:
            return found


def test_shown_entries_are_dense_and_prove_themselves(server):
    for i in range(25):
        begin(server, f"key-{i}")
    entries = pages(server, 7)
    assert [entry["seq"] for entry in entries] == list(range(1, len(entries) + 1))
    before = "0" * 64
    for entry in entries:
        assert entry["prev_hash"] == before
        before = entry_link.link(bytes.fromhex(before), entry).hex()
        assert entry["hash"] == before


def test_each_reading_leaves_who_read_what(make_server):
    server = two_tenants(make_server)
    operation = begin(server, "k", "acme")["operation_id"]
    trace = {"request_id": "look-1",
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    assert server.request("GET", f"/v1/evidence?operation_id={operation}&limit=5", None,
        {"Authorization": "Bearer tok-acme", "Request-Id": trace["request_id"],
         "traceparent": trace["traceparent"]})[0] == 200
    head = ask(server, "GET", "/v1/evidence/head", tenant="acme")
    entry = next(e for e in pages(server, 100, "acme") if e["seq"] == head["seq"])
    assert (entry["type"], entry["operation_id"]) == ("access.read", operation)
    assert entry["hash"] == head["hash"]
    assert entry["count"] == 1 and entry["trace"] == trace
    assert "auditor of acme" in json.dumps(entry)
    assert operation in json.dumps(entry["outcome"])


def test_a_tenant_reads_its_own_entries_alone(make_server):
    server = two_tenants(make_server)
    mine = begin(server, "k", "acme")["operation_id"]
    theirs = begin(server, "secret", "zeta")["operation_id"]
    entries = pages(server, 100, "acme")
    assert {entry["tenant_id"] for entry in entries} == {"acme"}
    assert mine in json.dumps(entries)
    assert theirs not in json.dumps(entries) and "secret" not in json.dumps(entries)
    page = ask(server, "GET", f"/v1/evidence?operation_id={theirs}", tenant="acme")
    assert (page["entries"], page["next"]) == ([], None)
    # That somebody asked for it is in the asker's evidence, not in the owner's.
    assert "access.read" not in {entry["type"] for entry in pages(server, 100, "zeta")}


def test_the_tenant_is_the_tokens_whatever_a_header_says(make_server):
    """Once-Tenant is for the socket in the data directory alone (P9)."""
    server = two_tenants(make_server)
    body = {"scope": "pay", "key": "k", "payload": 1}
    said = {"Once-Tenant": "zeta", "X-Tenant": "zeta", "Tenant-Id": "zeta"}
    assert server.request("POST", "/v1/fences", body, said)[0] == 401
    token = {"Authorization": "Bearer tok-acme"}
    status, _, grant = server.request("POST", "/v1/fences", body, {**token, **said})
    assert status == 201
    path = "/v1/operations/" + grant["operation_id"]
    assert ask(server, "GET", path, tenant="acme")["key"] == "k"
    assert server.request("GET", path, None, {"Authorization": "Bearer tok-zeta"})[0] == 404
    begin(server, "k", "zeta")


def test_without_tokens_there_is_one_tenant_whatever_a_header_says(server):
    body = {"scope": "pay", "key": "k", "payload": 1}
    assert server.request("POST", "/v1/fences", body, {"Once-Tenant": "zeta"})[0] == 201
    assert server.request("POST", "/v1/fences", body, {"Once-Tenant": "acme"})[0] == 202
    assert {entry["tenant_id"] for entry in pages(server, 100)} == {"default"}


@stores.journal_only("its directory has a socket")
def test_all_tenants_are_listed_on_the_own_socket_and_nowhere_else(make_server):
    """Whoever may open the data directory may read every tenant there; no token may (P9)."""
    server = two_tenants(make_server)
    begin(server, "k", "acme")
    begin(server, "k", "zeta")
    every = {"Once-Tenant": "*"}
    with Wire(str(server.data_dir / "once.sock")) as own:
        listed = own.request("GET", "/v1/operations?scope=pay", None, every)[2]["operations"]
        assert sorted(operation["tenant"] for operation in listed) == ["acme", "zeta"]
        path = "/v1/operations/" + listed[0]["operation_id"]
        begun = {"scope": "pay", "key": "new", "payload": 1}
        for method, path, body in (("GET", path, None), ("POST", "/v1/fences", begun),
                ("POST", "/v1/fences/batch", [begun])):
            status, _, problem = own.request(method, path, body, every)
            assert (status, problem["code"]) == (403, "forbidden"), (method, path)
    shown = json.loads(server.cli("ls", "--all-tenants", "--json", "--store",
        server.store).stdout)
    assert sorted(operation["tenant"] for operation in shown) == ["acme", "zeta"]
    token = {"Authorization": "Bearer tok-acme", **every}
    mine = server.request("GET", "/v1/operations", None, token)[2]["operations"]
    assert {operation["tenant"] for operation in mine} == {"acme"}


@stores.journal_only("its directory has a socket")
def test_every_tenants_evidence_is_read_on_the_own_socket_and_nowhere_else(make_server):
    """Also what has no tenant; and that it was read is evidence without one (P9)."""
    server = two_tenants(make_server)
    operation = begin(server, "k", "acme")["operation_id"]
    begin(server, "k", "zeta")
    every = {"Once-Tenant": "*", "Request-Id": "r-all"}
    with Wire(str(server.data_dir / "once.sock")) as own:
        page = own.request("GET", "/v1/evidence", None, every)[2]
        assert [entry["seq"] for entry in page["entries"]] == \
            list(range(1, len(page["entries"]) + 1))  # dense: nothing is hidden
        assert {"acme", "zeta"} <= {entry["tenant_id"] for entry in page["entries"]}
        one = own.request("GET", f"/v1/evidence?operation_id={operation}", None, every)[2]
        assert {entry["tenant_id"] for entry in one["entries"]} == {"acme"}
        assert own.request("GET", "/v1/evidence/head", None, every)[0] == 200
        after = own.request("GET", f"/v1/evidence?after={page['resume']}", None, every)[2]
    reads = [entry for entry in after["entries"] if entry["type"] == "access.read"]
    assert [entry["tenant_id"] for entry in reads] == ["", ""]
    assert operation in reads[1]["outcome"]["reason"]
    assert set(reads[1]["operation_id"]) <= set("op_0-")  # a tenant's id is not in its place
    for tenant in ("acme", "zeta"):
        token = {"Authorization": f"Bearer tok-{tenant}", "Once-Tenant": "*"}
        shown = server.request("GET", "/v1/evidence", None, token)[2]["entries"]
        assert {entry["tenant_id"] for entry in shown} == {tenant}
    lines = server.cli("tail", "--all-tenants", "-n", "1000", "--store", server.store).stdout
    begins = {line.split()[0] for line in lines.splitlines()}
    assert {"acme", "zeta", "*"} == begins
    assert "\n*  " in lines and "access.read" in lines
    server.stop()
    assert server.cli("verify", "--redecide", "--store", server.store).returncode == 0


def test_a_tenants_figures_do_not_change_with_anothers_traffic(make_server):
    server = two_tenants(make_server)
    begin(server, "k", "acme")
    before = ask(server, "GET", "/metrics", tenant="acme")
    assert 'once_decisions_total{decision="first_seen",scope="pay",tenant="acme"} 1' in before
    for i in range(20):
        begin(server, f"secret-{i}", "zeta", "secret scope")
    assert ask(server, "GET", "/metrics", tenant="acme") == before


def test_without_a_token_nothing_is_told_of_places(make_server):
    server = two_tenants(make_server)
    told = ask(server, "GET", "/readyz?verbose")
    assert told["status"] == "ready"
    assert str(server.directory) not in json.dumps(told)
    assert ask(server, "GET", "/livez") == "ok"


def flushes(server):
    page = ask(server, "GET", "/metrics")
    return int(re.search(r"^once_flush_seconds_count (\d+)$", page, re.M).group(1))


def test_a_flush_that_had_nothing_to_write_is_not_counted(server):
    before = flushes(server)
    time.sleep(0.5)  # the engine's timers go on, and looks are asked
    ask(server, "GET", "/v1/operations")
    assert flushes(server) == before
    begin(server, "k")
    until = time.monotonic() + 30  # it is counted just after the answer
    while flushes(server) == before:
        assert time.monotonic() < until
    assert flushes(server) == before + 1
