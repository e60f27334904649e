"""once mcp between the official SDK's client and the SDK's own example server; and the conformance
suite, in the long tier.

What the client gets is what it gets without the proxy, except for the two arguments and the hint
that a list of tools gains. Skipped without npm or its registry (npm.py). The suite is 0.1.13:
later ones need Node 22.
"""
import fnmatch
import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest

import npm
import servers
from conftest import BINARY, Once
from mcp_web_client import Endpoint

FILES = servers.ROOT / "tests/clients/mcp"
WAIT_S = 300
OURS = ("idempotency_key", "request_id")
LONG = pytest.mark.skipif(not os.environ.get("ONCE_TEST_LONG"), reason="it takes minutes")


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    try:
        npm.check_node(FILES)
        installed = npm.node_modules(FILES)
    except npm.Absent as absent:
        pytest.skip(str(absent))
    place = tmp_path_factory.mktemp("sdk")
    (place / "node_modules").symlink_to(installed)
    for script in FILES.glob("*.mjs"):
        (place / script.name).write_text(script.read_text())
    (place / "package.json").write_text('{"type": "module"}')
    return place


def everything(modules):
    return ["node", modules / "node_modules/@modelcontextprotocol/server-everything/dist/index.js"]


@pytest.fixture
def http_server(modules):
    """The same server over streamable HTTP; its URL."""
    port = servers.free_port()
    process = subprocess.Popen([*everything(modules), "streamableHttp"], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env={**os.environ, "PORT": str(port)})
    until = time.monotonic() + WAIT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            assert time.monotonic() < until and process.poll() is None
            time.sleep(0.05)
    yield f"http://127.0.0.1:{port}/mcp"
    process.send_signal(signal.SIGKILL)
    process.wait()


def tour(modules, *command):
    done = subprocess.run(["node", "everything.mjs", *map(str, command)], cwd=modules,
        capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def without_ours(tools):
    """The list as the server wrote it; and the names of the tools that gained something."""
    gained = set()
    for tool in tools:
        properties = tool["inputSchema"].get("properties", {})
        if OURS[0] in properties:
            gained.add(tool["name"])
            assert tool["annotations"]["idempotentHint"] is True
            for name in OURS:
                del properties[name]
    return gained


def compare(direct, proxied):
    gained = without_ours(proxied["tools"])
    assert without_ours(direct["tools"]) == set()
    writers = {tool["name"] for tool in direct["tools"]
               if not tool["annotations"]["readOnlyHint"]}
    assert gained == writers and writers
    for one in direct["tools"] + proxied["tools"]:
        one["annotations"].pop("idempotentHint", None)
        if not one["inputSchema"].get("properties"):
            one["inputSchema"].pop("properties", None)
    # The SDK may drop a last notification that it reads together with the answer.
    assert direct.pop("steps") > 0 and proxied.pop("steps") > 0
    for name, value in direct.items():
        assert proxied[name] == value, name
    assert ["elicitation"] in direct["asked"]


def test_the_sdk_gets_the_same_answers_through_the_proxy(modules, tmp_path):
    command = [*everything(modules), "stdio"]
    store = ["--store", tmp_path / "store"]
    compare(tour(modules, *command), tour(modules, BINARY, "mcp", *store, "--", *command))


def test_the_sdk_gets_the_same_answers_over_http(modules, http_server, tmp_path):
    direct = tour(modules, *everything(modules), "stdio")
    proxied = tour(modules, BINARY, "mcp", "--store", tmp_path / "store", "--upstream", http_server)
    compare(direct, proxied)


def test_the_sdk_gets_the_same_answers_from_an_endpoint(modules, once):
    """The SDK as a client over HTTP, and as a server of standard input and output."""
    command = [*everything(modules), "stdio"]
    endpoint = Endpoint(once, behind=["--", *command])
    compare(tour(modules, *command), tour(modules, f"http://127.0.0.1:{endpoint.port}/mcp"))


@LONG
def test_the_sdk_gets_the_same_answers_from_an_endpoint_before_a_url(modules, http_server, once):
    """Over HTTP on both sides."""
    endpoint = Endpoint(once, behind=["--upstream", http_server])
    compare(tour(modules, http_server), tour(modules, f"http://127.0.0.1:{endpoint.port}/mcp"))


def test_the_sdk_calls_tools_of_once_itself(modules, tmp_path):
    script = modules / "own.mjs"
    script.write_text('''
import {Client} from "@modelcontextprotocol/sdk/client/index.js";
import {StdioClientTransport} from "@modelcontextprotocol/sdk/client/stdio.js";
const client = new Client({name: "t", version: "1"});
const [command, ...args] = process.argv.slice(2);
await client.connect(new StdioClientTransport({command, args, stderr: "inherit"}));
const names = (await client.listTools()).tools.map((tool) => tool.name);
const call = async (name, args) =>
  (await client.callTool({name, arguments: args})).structuredContent;
const begun = await call("once_begin", {key: "k", payload: [1]});
const sealed = await call("once_seal",
  {operation_id: begun.operation_id, fence: begun.fence, status: "executed", outcome: {a: 1}});
const again = await call("once_begin", {key: "k", payload: [1]});
console.log(JSON.stringify([names.length, begun.decision, sealed.decision, again.decision,
  again.operation.outcome]));
await client.close();
''')
    done = subprocess.run(["node", script, BINARY, "mcp", "--serve", "--store", tmp_path / "store"],
        cwd=modules, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [7, "first_seen", "sealed", "duplicate_replayed", {"a": 1}]


# ---- the conformance suite --------------------------------------------------------------------


def conformance(modules, *words):
    suite = modules / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
    done = subprocess.run(["node", suite, *map(str, words)], cwd=modules, capture_output=True,
        text=True, timeout=2 * WAIT_S)
    return done.stdout + done.stderr


def scenarios(modules, heading):
    """The names of the scenarios that the suite has under a heading."""
    listed = conformance(modules, "list").split(f"{heading} scenarios")[1].split("\n\n")[0]
    return re.findall(r"^ +- (\S+)$", listed, re.M)


def expected_failures(heading):
    """Scenarios that docs/mcp.md says cannot pass, with stars: the first column of its table."""
    page = (servers.ROOT / "docs/mcp.md").read_text()
    table = page.split(f"\n| {heading} |")[1].split("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    assert rows and all(len(row) == 2 and row[1] for row in rows)
    return [name for row in rows for name in re.findall("`([^`]+)`", row[0])]


def matching(names, patterns):
    """The names that a pattern matches; each pattern matches some."""
    for one in patterns:
        assert fnmatch.filter(names, one), one
    return {name for name in names if any(fnmatch.fnmatchcase(name, one) for one in patterns)}


@pytest.mark.parametrize("kind", ["Client", "Server"])
def test_what_cannot_pass_is_of_the_suite_and_not_all_of_it(modules, kind):
    names = scenarios(modules, kind)
    assert set() < matching(names, expected_failures(f"scenario of a {kind.lower()}")) < set(names)


@LONG
def test_the_proxy_is_a_client_as_the_suite_wants_it(modules, tmp_path):
    names = scenarios(modules, "Client")
    expected = matching(names, expected_failures("scenario of a client"))
    failed = {}
    for name in set(names) - expected:
        command = f"node {modules}/conformance_client.mjs {BINARY} {tmp_path}/{name}"
        said = conformance(modules, "client", "--command", command, "--scenario", name,
                           "--output-dir", tmp_path / f"out-{name}")
        checks = [check for path in tmp_path.glob(f"out-{name}/*/checks.json")
                  for check in json.loads(path.read_text())]
        if not checks or any(check["status"] == "FAILURE" and
                not check.get("details", {}).get("veryLate") for check in checks):
            failed[name] = said  # a slow machine alone is not a fault
    assert not failed and len(names) > len(expected) > 0


def verdicts(modules, url):
    """What the suite finds of a server, by scenario."""
    said = conformance(modules, "server", "--suite", "all", "--url", url, "--output-dir",
                       modules / "server")
    found = dict(re.findall(r"^. ([a-z0-9-]+): (\d+ passed, \d+ failed)", said, re.M))
    return found, said


def failures(found):
    return {name for name, verdict in found.items() if not verdict.endswith(" 0 failed")}


@LONG
def test_once_itself_is_a_server_as_the_suite_wants_it(modules, once):
    """What it asks for and a server of fences does not have is said in docs/mcp.md."""
    names = scenarios(modules, "Server")
    endpoint = Endpoint(once, behind=["--serve"])
    found, said = verdicts(modules, f"http://127.0.0.1:{endpoint.port}/mcp")
    assert set(found) == set(names)
    assert failures(found) == matching(names, expected_failures("scenario of a server")), said


@LONG
@pytest.mark.parametrize("way", ["command", "url"])
def test_the_suite_finds_no_fault_behind_the_proxy(modules, tmp_path, way):
    """The server behind it has all that the suite asks for."""
    programs = [Once(tmp_path / "server"), Once(tmp_path / "url")]
    for program in programs:
        program.directory.mkdir()
    try:
        behind = ["--", "node", modules / "suite_server.mjs"]
        for program in programs[:1 if way == "command" else 2]:
            endpoint = Endpoint(program, behind=behind)
            url = f"http://127.0.0.1:{endpoint.port}/mcp"
            behind = ["--upstream", url]
        found, said = verdicts(modules, url)
    finally:
        for program in programs:
            program.end()
    assert set(found) == set(scenarios(modules, "Server")) and not failures(found), said
    assert sum(int(verdict.split()[0]) for verdict in found.values()) > 40, said


# What the suite finds of an endpoint is what it finds of the server behind it, except that the
# example server checks neither Origin nor Host, and Once does.
EXPECTED = {"dns-rebinding-protection": "2 passed, 0 failed"}
# These look at answers that are streams of events. The example server always makes one; Once
# answers with a document what is there in time.
STREAMS = ("server-sse-multiple-streams", "server-sse-polling")


@LONG
def test_the_suite_finds_the_same_behind_the_proxy_as_without_it(modules, http_server, once):
    """The example server has not all that the suite asks for: what passes and fails is compared."""
    endpoint = Endpoint(once, behind=["--upstream", http_server])
    plain, _ = verdicts(modules, http_server)
    found, said = verdicts(modules, f"http://127.0.0.1:{endpoint.port}/mcp")
    assert not {*STREAMS} & failures(found), said
    for name in STREAMS:
        del plain[name], found[name]
    assert len(plain) > 20 and found == {**plain, **EXPECTED}, said
