"""openapi.json is true: every operation is driven from it, and every answer is held against it."""
import hashlib
import json
import re
import subprocess
from pathlib import Path
from urllib.parse import urlencode

import pytest

from schema import BadSchema, Validator

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENT = json.loads((ROOT / "src/api/openapi.json").read_text())
VALIDATOR = Validator(DOCUMENT)
NOBODY = "op_01890a5d-ac96-774b-bcce-b302099a8057"
METHODS = ("get", "post", "put", "patch", "delete", "options")
OPERATIONS = {operation["operationId"]: (method.upper(), path, operation)
              for path, item in DOCUMENT["paths"].items()
              for method, operation in item.items() if method in METHODS}


# Those of doors that need a configuration are held against the document where they are tested.
OF_DOORS = {"commands", "effects", "inbox"}
OWN = [name for name, (_, _, operation) in OPERATIONS.items()
       if not OF_DOORS & set(operation["tags"])]


def of_method(wanted):
    return [name for name in OWN if OPERATIONS[name][0] == wanted]


def follow(node):
    return VALIDATOR.resolve(node["$ref"]) if "$ref" in node else node


def parameters(operation, place):
    return [p for p in map(follow, operation["parameters"]) if p["in"] == place]


def examples(operation):
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    return {name: one["value"] for name, one in content.get("examples", {}).items()}


def body_schema(operation):
    return operation["requestBody"]["content"]["application/json"]["schema"]


def check(name, answer):
    """Hold an answer against the document: its status, fields, content type and body."""
    status, headers, body = answer
    _, _, operation = OPERATIONS[name]
    assert str(status) in operation["responses"], f"{name}: {status} is not described: {body}"
    described = follow(operation["responses"][str(status)])
    for field, rule in described["headers"].items():
        assert field in headers or not follow(rule).get("required"), f"{name} {status}: no {field}"
    kind = headers["Content-Type"].split(";")[0]
    assert kind in described["content"], f"{name} {status}: {kind} is not described"
    faults = VALIDATOR.faults(described["content"][kind]["schema"], body)
    assert not faults, f"{name} {status}: {faults}"
    if status >= 400 and kind == "application/problem+json":
        assert body["status"] == status
        assert body["type"] == "/docs/problems.md#" + body["code"]
        assert body["request_id"] == headers["Request-Id"]
    return answer


class Client:
    """Asks by operationId, and holds every answer against the document."""

    def __init__(self, server, token=None):
        self.server, self.token, self.turn = server, token, 0

    def ask(self, name, body=None, operation_id=None, query=None):
        method, path, _ = OPERATIONS[name]
        path = path.replace("{operation_id}", operation_id or NOBODY)
        path += "?" + urlencode(query) if query else ""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return check(name, self.server.request(method, path, body, headers))

    def begin(self, **more):
        """A fresh grant."""
        self.turn += 1
        body = {"scope": "made", "key": f"key-{self.turn}", "payload": self.turn, **more}
        status, _, answer = self.ask("beginFence", body)
        assert status == 201, answer
        return body, answer["operation_id"], answer["fence"]

    def held(self, status):
        """(operation_id, fence) of one that is in that state."""
        _, operation_id, fence = self.begin()
        if status == "unknown":
            assert self.ask("unknownFence", {"fence": fence}, operation_id)[0] == 200
        return operation_id, fence


@pytest.fixture
def client(server):
    return Client(server)


# --- The document alone ---------------------------------------------------------------------------


def test_the_validator_tells_good_from_bad():
    begin = {"$ref": "#/components/schemas/Begin"}
    good = {"scope": "s", "key": "k", "payload": None, "x_mine": 1, "extensions": {}}
    assert VALIDATOR.faults(begin, good) == []
    bad = [{}, {**good, "key": ""}, {**good, "nothing": 1}, {**good, "ttl": "soon"},
        {**good, "key_from": {"action": "a"}}, {"scope": "s", "key": "k"}, {**good, "scope": 1},
        {**good, "fingerprint": "0" * 64}, {**good, "on_unknown": "guess"}, [good], "x",
        {**good, "key": "k" * 256}, {**good, "source": {"type": ""}}]
    for value in bad:
        assert VALIDATOR.faults(begin, value), value
    assert VALIDATOR.faults({"const": 1}, True)
    assert VALIDATOR.faults({"type": "integer"}, True)
    assert VALIDATOR.faults({"oneOf": [{}, {"type": "null"}]}, None)
    with pytest.raises(BadSchema):
        VALIDATOR.faults({"unheardOf": 1}, 1)
    with pytest.raises(BadSchema):
        VALIDATOR.faults({"$ref": "#/components/schemas/Nothing"}, 1)


def test_every_reference_leads_somewhere():
    def walk(node):
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                VALIDATOR.resolve(node["$ref"])
            for inner in node.values():
                walk(inner)
        elif isinstance(node, list):
            for inner in node:
                walk(inner)
    walk(DOCUMENT)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_example_fits_its_schema(name):
    _, path, operation = OPERATIONS[name]
    if "requestBody" in operation:
        assert examples(operation), "no example to execute"
    for value in examples(operation).values():
        assert VALIDATOR.faults(body_schema(operation), value) == []
    for parameter in map(follow, operation["parameters"]):
        assert VALIDATOR.faults(parameter["schema"], parameter["example"]) == []
    assert ("{" in path) == bool(parameters(operation, "path"))


def schemas_in(node):
    """Every schema below a node, as far as generators of clients look into it."""
    if isinstance(node, dict):
        yield node
        node = list(node.values())
    for inner in node if isinstance(node, list) else []:
        yield from schemas_in(inner)


def test_a_client_made_from_the_document_can_leave_out_what_is_optional():
    """openapi-typescript makes a member with a default required: defaults are said in words."""
    for schema in schemas_in({**DOCUMENT["paths"], **DOCUMENT["components"]}):
        assert not ("default" in schema and {"type", "enum", "$ref"} & set(schema)), schema


def test_every_required_member_is_described():
    def described(schema):
        own = set(schema.get("properties", {}))
        return own.union(*(described(follow(part)) for part in schema.get("allOf", [])))
    for schema in schemas_in(DOCUMENT["components"]["schemas"]):
        if schema.get("type") == "object" and isinstance(schema.get("required"), list):
            assert set(schema["required"]) <= described(schema), schema


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_describes_a_refusal_of_the_caller(name):
    assert any(status.startswith("4") for status in OPERATIONS[name][2]["responses"])


def test_the_page_is_what_the_document_says():
    done = subprocess.run([ROOT / "tools/make_api_page.py", "--check"], capture_output=True,
        text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def routes():
    """The tables of all doors: {(method, pattern): (rights, parameters, open)}."""
    text = "\n".join(path.read_text() for path in sorted(ROOT.glob("src/*/*.c")))
    readers = re.search(r"#define API_READERS\s+\(([^)]*)\)",
        (ROOT / "src/api/routes.h").read_text()).group(1)
    tables = re.findall(r"^static const struct api_route \w+\[\] = \{\n(.*?)\n\};", text,
        re.S | re.M)
    found = {}
    for row in re.findall(r"\{\.method.*?\}(?=,|\Z)", ",\n".join(tables), re.S):
        def member(pattern, row=row):
            match = re.search(pattern, row)
            return match.group(1) if match else ""
        rights = re.findall(r"CONFIG_RIGHT_(\w+)", row.replace("API_READERS", readers))
        found[member(r"HTTP_METHOD_(\w+)"), member(r'\.pattern = "([^"]+)"')] = (
            {right.lower() for right in rights}, set(member(r'\.params = "([^"]+)"').split()),
            ".is_open = true" in row)
    return found


def test_the_table_of_routes_and_the_document_agree():
    described = {(method, path): (set(operation["x-once-rights"]),
        {p["name"] for p in parameters(operation, "query")}, operation.get("security") == [])
        for method, path, operation in OPERATIONS.values()}
    assert routes() == described


def test_every_code_that_is_described_is_somewhere_in_the_source_and_the_other_way_round():
    sources = [path for folder in ("api", "canon", "command", "door", "effect", "http", "inbox")
        for path in ROOT.glob(f"src/{folder}/*.c")]
    text = "\n".join(path.read_text() for path in sources)
    described = set(DOCUMENT["components"]["schemas"]["Problem"]["properties"]["code"]["enum"])
    assert {code for code in described if f'"{code}"' not in text} == set()
    used = re.findall(r'code = "([a-z_]+)"|member_refuse\(\s*fault, "([a-z_]+)"'
                      r'|refuse_plain\(\s*request, \d+, "([a-z_]+)"', text)
    assert {"unknown_member", "not_found", "internal"} <= {one for match in used for one in match}
    assert {one for match in used for one in match if one} - described == set()


def test_every_code_has_a_section_on_the_page_that_type_names():
    described = set(DOCUMENT["components"]["schemas"]["Problem"]["properties"]["code"]["enum"])
    refusals = (ROOT / "src/gateway/refusals.c").read_text()
    described |= set(re.findall(r'^    \[REFUSAL_\w+\] = \{\d+, "([a-z_]+)"', refusals, re.M))
    page = (ROOT / "docs/problems.md").read_text()
    assert set(re.findall(r"^### (\S+)$", page, re.M)) == described


# --- Every operation ------------------------------------------------------------------------------


def test_the_document_that_is_served_is_this_one(client):
    served = client.ask("getOpenapi")[2]
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", served["info"]["version"])
    served["info"]["version"] = DOCUMENT["info"]["version"]
    assert served == DOCUMENT


@pytest.mark.parametrize("name", of_method("POST"))
def test_every_example_is_executed(client, name):
    _, path, operation = OPERATIONS[name]
    for value in examples(operation).values():
        operation_id = None
        if "{operation_id}" in path:
            held = "unknown" if name == "resolveOperation" else "in_progress"
            operation_id, fence = client.held(held)
            value = {**value, "fence": fence} if "fence" in value else value
        status = client.ask(name, value, operation_id)[0]
        assert 200 <= status < 300


@pytest.mark.parametrize("name", of_method("GET"))
def test_every_read_is_made_with_each_parameter_and_with_all(client, name):
    _, path, operation = OPERATIONS[name]
    body, operation_id, fence = client.begin(scope="payments", key="order-4711")
    client.ask("sealFence", {"fence": fence, "status": "executed", "outcome": [1]}, operation_id)
    known = {p["name"]: p["example"] for p in parameters(operation, "query")}
    queries = [{}, *({key: value} for key, value in known.items()), known]
    for query in queries:
        assert client.ask(name, None, operation_id, query)[0] == 200
    path = path.replace("{operation_id}", operation_id)
    status, headers, nothing = client.server.request("HEAD", path)
    assert (status, nothing) == (200, None)
    assert int(headers["Content-Length"]) > 0


@pytest.mark.parametrize("name", OWN)
def test_every_refusal_is_described(client, name):
    method, path, operation = OPERATIONS[name]
    if operation.get("security") != [] or name == "getReady":
        if "400" in operation["responses"]:
            assert client.ask(name, None, None, {"nothing": "1"})[0] == 400
    for parameter in parameters(operation, "query"):
        if parameter["name"] in ("limit", "after", "status", "operation_id"):
            answer = client.ask(name, None, None, {parameter["name"]: "no such value"})
            assert (answer[0], answer[2]["code"]) == (400, "invalid_parameter")
    if method == "POST":
        for body, code in ((b"{", "invalid_json"), (b"", "invalid_json"), (b"3", "invalid_body")):
            answer = client.ask(name, body, NOBODY)
            assert (answer[0], answer[2]["code"]) == (400, code)
    if "404" in operation["responses"]:
        body = next(iter(examples(operation).values()), None)
        answer = client.ask(name, body, NOBODY)
        assert (answer[0], answer[2]["code"]) == (404, "operation_not_found")
    wrong = "DELETE" if method == "GET" else "GET"
    path = path.replace("{operation_id}", NOBODY)
    status, headers, body = client.server.request(wrong, path)
    if path != "/v1/fences/batch":
        assert (status, body["code"]) == (405, "method_not_allowed")
        assert method in headers["Allow"]


def test_each_decision_has_its_document(client):
    ask = client.ask
    begin, operation_id, fence = client.begin()
    assert ask("beginFence", begin)[0] == 202
    assert ask("beginFence", {**begin, "payload": "other"})[2]["code"] == "idempotency_conflict"
    resolve = {"status": "executed", "reason": "x"}
    assert ask("resolveOperation", resolve, operation_id)[2]["code"] == "still_running"
    seal = {"fence": fence, "status": "executed", "effect_id": "e", "outcome": {"a": [1, None]}}
    stale = {**seal, "fence": fence + 1000}
    assert ask("sealFence", stale, operation_id)[2]["code"] == "stale_fence"
    first = ask("sealFence", seal, operation_id)[2]
    assert ask("sealFence", seal, operation_id)[2] == first
    other = {**seal, "effect_id": "f"}
    assert ask("sealFence", other, operation_id)[2]["code"] == "already_sealed"
    replay = ask("beginFence", begin)
    assert (replay[0], replay[2]["outcome"]) == (200, {"a": [1, None]})

    begin, operation_id, fence = client.begin()
    assert ask("unknownFence", {"fence": fence, "reason": "r"}, operation_id)[0] == 200
    held = ask("beginFence", begin)
    assert (held[0], held[2]["code"], held[2]["effect"]) == (409, "outcome_unknown", "unknown")
    resolve = {"status": "not_executed", "reason": "x"}
    assert ask("resolveOperation", resolve, operation_id)[0] == 200
    assert ask("beginFence", begin)[0] == 201


def test_a_batch_answers_each_item_as_if_alone(client):
    begin, operation_id, fence = client.begin()
    seal = {"operation_id": operation_id, "fence": fence, "status": "executed"}
    batch = [seal, begin, {**begin, "payload": "other"}, {**seal, "fence": fence + 1000}]
    answers = client.ask("batchFences", batch)[2]
    assert [a.get("decision") or a["code"] for a in answers] == [
        "sealed", "duplicate_replayed", "idempotency_conflict", "stale_fence"]


# --- Rights ---------------------------------------------------------------------------------------

RIGHTS = ("execute", "confirm", "operate", "audit")


def config_of(tokens):
    rows = [f'    - {{sha256: "{hashlib.sha256(text.encode()).hexdigest()}", tenant: "{tenant}", '
            + (f'rights: [{", ".join(rights)}]}}' if rights else "}")
            for text, (tenant, rights) in tokens.items()]
    return "auth:\n  tokens:\n" + "\n".join(rows) + "\n"


def test_each_route_asks_for_its_rights(make_server):
    tokens = {f"tok-{right}": ("acme", [right]) for right in RIGHTS}
    tokens["tok-all"] = ("*", [])
    server = make_server(config=config_of(tokens))
    for name in OWN:
        operation = OPERATIONS[name][2]
        body = next(iter(examples(operation).values()), None)
        if operation.get("security") == []:
            assert Client(server).ask(name)[0] == 200
            continue
        assert Client(server).ask(name, body)[0] == 401
        assert Client(server, "tok-nobody").ask(name, body)[0] == 401
        may = operation["x-once-rights"] or ["operate", "audit"]  # /metrics says it itself
        for right in RIGHTS:
            status = Client(server, f"tok-{right}").ask(name, body)[0]
            assert (status == 403) == (right not in may), (name, right, status)
        status = Client(server, "tok-all").ask(name, body)[0]
        assert (status == 200) if name == "getMetrics" else (status == 403), (name, status)


# --- Limits ---------------------------------------------------------------------------------------


def test_a_body_that_is_too_large_learns_how_much_is_allowed(make_server):
    server = make_server(config="limits: {body_bytes_max: 64KiB}\n")
    body = Client(server).ask("beginFence", b"x" * 65537)[2]
    assert (body["code"], body["body_bytes_max"]) == ("body_too_large", 65536)


@pytest.mark.parametrize("member, value, detail", [
    ("ttl", "0s", "ttl is 0 ms; the least is 1 ms"),
    ("lease", "5ms", "lease is 5 ms; the least is 10 ms (lease_ms_min)"),
    ("wait", "2m", "wait is 120000 ms; the most is 60000 ms (wait_ms_max)")])
def test_a_duration_out_of_bounds_learns_the_bound(client, member, value, detail):
    body = {"scope": "s", "key": "k", "payload": 1, member: value}
    assert client.ask("beginFence", body)[2]["detail"] == detail


DOORS = """
commands: {order.cancel: {class: I1, handler: "http://127.0.0.1:9/"}}
connectors: {pay: {url: "http://127.0.0.1:9"}}
effects: {payment.capture: {connector: pay, request: {method: POST, path: /}}}
inbox: {sources: {shop: {preset: none, handler: "http://127.0.0.1:9/"}}}
"""
IDS = {"operation_id": NOBODY, "command_id": "cmd" + NOBODY[2:], "effect_id": "eff" + NOBODY[2:],
       "delivery_id": "dlv" + NOBODY[2:], "source": "shop"}


def test_a_body_of_every_other_json_type_is_refused_by_every_door(make_server):
    server = make_server(config=DOORS)
    for name, (method, path, operation) in OPERATIONS.items():
        if method != "POST" or name == "receive":
            continue
        target = path.format(**IDS)
        for body in (b"[]", b"[1]", b'"text"', b"1", b"null", b"true"):
            status, _, document = server.request("POST", target, body)
            assert 400 <= status < 500, (name, body, status, document)
