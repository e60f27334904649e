"""Client libraries that nobody here wrote, through the gateway as it is when nothing is configured.

The API has no idempotency of its own and counts effects. The first request of each key meets one
failure; the API then works. Each client retries as it does in the field. Every cell (a client, a
door, a failure) runs at once; docs/profiles.md has the table of what the client gets at the end,
and this file compares. "Without Once" is measured too: it shows that the clients do retry.

The libraries of npm are those of tests/clients/package-lock.json. They are installed into the cache
directory of the user; without npm or its registry their rows are skipped.
"""
import concurrent.futures
import dataclasses
import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlencode

import npm
import pytest
from once_gateway import Gateway
from origin import Origin

ROOT = Path(__file__).resolve().parent.parent.parent
NPM_FILES = ROOT / "tests/clients"
PAGE = ROOT / "docs/profiles.md"
WAIT_S = 300  # far above what anything takes; a hang is a failure, not a wait
CLIENT_S, SLOW_MS = 7, 11000  # each client gives up before the slow answer, and asks again
RETRIES = 2
PATH = "/v1/payment_intents"  # the one that Stripe's SDK asks for
BODY = {"amount": 1000, "currency": "eur"}
HEADERS = {"Authorization": "Bearer sk_test_matrix"}

DOORS = {"Without Once": None, "Profile `ietf`, the default": [],
    "Profile `stripe`": ["--profile", "stripe"]}
FAILED = {"text": '{"error":{"type":"api_error","message":"it broke"}}'}
WORKS = {"status": 201}
FAILURES = {  # of the first request: what the API does, and whether that has the effect
    "works": (WORKS, True),
    "503, not done": ({"status": 503, "effect": 0, **FAILED}, False),
    "hangs up, not done": ({"fault": "close_before"}, False),
    "hangs up, done": ({"fault": "close_after"}, True),
    "500, done": ({"status": 500, **FAILED}, True),
    "slow": ({**WORKS, "after_ms": SLOW_MS}, True),
}
NPM_CLIENTS = ["stripe", "axios-retry", "got", "ky", "undici"]
PYTHON_CLIENTS = ["urllib3", "requests"]
CLIENTS = [*NPM_CLIENTS, *PYTHON_CLIENTS, "curl"]


@dataclasses.dataclass
class Cell:
    """One call of one library, and what became of it."""

    client: str
    door: str
    failure: str
    url: str
    ok: bool = False  # the library called it a success
    status: int = None  # of the answer it handed over; None: it had none
    headers: dict = dataclasses.field(default_factory=dict)
    answer: dict = None
    effects: int = 0
    first_answer: dict = None  # the body that went with its first effect

    @property
    def key(self):
        places = (list(DOORS).index(self.door), list(FAILURES).index(self.failure))
        return "-".join([self.client, *map(str, places)])

    @property
    def words(self):
        """As the page says it."""
        fields = {name.lower(): value for name, value in self.headers.items()}
        said = " replayed" if fields.get("idempotent-replayed") == "true" else \
            " unknown" if fields.get("once-effect") == "unknown" else ""
        got = f"{self.status}{said}" if self.status else "no answer"
        return f"{self.effects} · {got}" if self.effects < 2 else f"**{self.effects}** · {got}"


# --- The clients ----------------------------------------------------------------------------------


def curl_call(cell):
    """--fail-with-body: a refusal is a failure, as in a script that looks at the exit status."""
    fields = {**HEADERS, "Content-Type": "application/json", "Idempotency-Key": cell.key}
    done = subprocess.run(["curl", "-sS", "-i", "--fail-with-body", "--retry", str(RETRIES),
        "--retry-all-errors", "--max-time", str(CLIENT_S), "-d", json.dumps(BODY),
        *[word for name, value in fields.items() for word in ("-H", f"{name}: {value}")],
        cell.url], capture_output=True, text=True, timeout=WAIT_S)
    if done.returncode not in (0, 22):
        return
    head, _, body = done.stdout.replace("\r", "").rpartition("HTTP/1.1 ")[2].partition("\n\n")
    cell.ok, cell.status = done.returncode == 0, int(head[:3])
    cell.headers = dict(line.split(": ", 1) for line in head.splitlines()[1:])
    cell.answer = json.loads(body)


def python_retry():
    from urllib3.util.retry import Retry
    return Retry(total=RETRIES, allowed_methods=["POST"], backoff_factor=0.2,
        status_forcelist=[429, 500, 502, 503, 504], raise_on_status=False)


def urllib3_call(cell):
    import urllib3
    fields = {**HEADERS, "Content-Type": "application/json", "Idempotency-Key": cell.key}
    with urllib3.PoolManager(retries=python_retry(), timeout=CLIENT_S) as pool:
        try:
            answer = pool.request("POST", cell.url, body=json.dumps(BODY), headers=fields)
        except urllib3.exceptions.HTTPError:
            return
    cell.ok, cell.status, cell.headers = answer.status < 400, answer.status, dict(answer.headers)
    cell.answer = json.loads(answer.data)


def requests_call(cell):
    import requests
    with requests.Session() as session:
        session.mount("http://", requests.adapters.HTTPAdapter(max_retries=python_retry()))
        try:
            answer = session.post(cell.url, json=BODY, timeout=CLIENT_S,
                headers={**HEADERS, "Idempotency-Key": cell.key})
        except requests.RequestException:
            return
    cell.ok, cell.status, cell.headers = answer.ok, answer.status_code, dict(answer.headers)
    cell.answer = answer.json()


def npm_calls(cells, directory):
    """One process for all of them: they wait, they do not compute."""
    plan = {"timeout_ms": CLIENT_S * 1000, "retries": RETRIES, "body": BODY, "headers": HEADERS,
        "cells": [{"client": cell.client, "url": cell.url, "key": cell.key} for cell in cells]}
    done = subprocess.run(["node", directory / "npm_clients.mjs"], input=json.dumps(plan),
        capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    results = {result.pop("key"): result for result in json.loads(done.stdout)}
    for cell in cells:
        for name, value in results[cell.key].items():
            setattr(cell, name, value)


# --- The matrix -----------------------------------------------------------------------------------


class Matrix:
    """Every cell by (client, door, failure); why a client is absent."""

    def __init__(self, origin, urls):
        self.absent = {}
        self.cells = {(client, door, failure): Cell(client, door, failure, url)
            for client in CLIENTS for door, url in urls.items() for failure in FAILURES}
        by_key = {cell.key: cell for cell in self.cells.values()}
        origin.does[None] = lambda request: self._does(origin, by_key, request)

    @staticmethod
    def _does(origin, by_key, request):
        """The first request of a key meets its failure; later ones find an API that works."""
        is_first = origin.seen(request.key) == [request]
        return urlencode(FAILURES[by_key[request.key].failure][0] if is_first else WORKS)

    def of(self, client):
        return [cell for cell in self.cells.values() if cell.client == client]

    def run(self, directory):
        calls = {"curl": curl_call, "urllib3": urllib3_call, "requests": requests_call}
        for client in PYTHON_CLIENTS:
            if importlib.util.find_spec(client) is None:
                self.absent[client] = f"python3-{client} is not installed (tools/deps test)"
        alone = [cell for client in calls if client not in self.absent for cell in self.of(client)]
        with concurrent.futures.ThreadPoolExecutor(len(alone) + 1) as pool:
            running = [pool.submit(calls[cell.client], cell) for cell in alone]
            running.append(pool.submit(self._run_npm, directory))
            for one in running:
                one.result()

    def _run_npm(self, directory):
        try:
            npm.check_node(NPM_FILES)
            (directory / "node_modules").symlink_to(npm.node_modules(NPM_FILES))
        except npm.Absent as absent:
            self.absent.update(dict.fromkeys(NPM_CLIENTS, str(absent)))
            return
        shutil.copy(NPM_FILES / "npm_clients.mjs", directory)
        npm_calls([cell for client in NPM_CLIENTS for cell in self.of(client)], directory)


@pytest.fixture(scope="module")
def matrix(tmp_path_factory):
    origin = Origin()
    gateways = {door: Gateway(*options, origin=origin)
        for door, options in DOORS.items() if options is not None}
    try:
        matrix = Matrix(origin, {door: (gateways[door] if door in gateways else origin).url + PATH
            for door in DOORS})
        matrix.run(tmp_path_factory.mktemp("clients"))
        for gateway in gateways.values():
            gateway.stop()  # so that whatever is still under way has its effect now
        for cell in matrix.cells.values():
            cell.effects = origin.effects[cell.key]
            cell.first_answer = json.loads(origin.answers.get(cell.key, b"null"))
        return matrix
    finally:
        for gateway in gateways.values():
            gateway.remove()
        origin.close()


@pytest.fixture
def cells(matrix, client):
    if client in matrix.absent:
        pytest.skip(matrix.absent[client])
    return matrix.of(client)


def table_of_page(door):
    """{client: [cell, …]} under a door's heading."""
    text = re.search(rf"^### {re.escape(door)}\n(.*?)(?=^#|\Z)", PAGE.read_text(), re.M | re.S)
    lines = [[each.strip() for each in line.strip("|").split("|")]
        for line in text.group(1).splitlines() if line.startswith("|")]
    assert lines[0][1:] == list(FAILURES)
    return {line[0]: line[1:] for line in lines[2:]}


@pytest.mark.parametrize("client", CLIENTS)
def test_through_once_there_is_one_effect_whatever_fails(client, cells):
    for cell in cells:
        if DOORS[cell.door] is not None:
            least = 1 if FAILURES[cell.failure][1] or cell.ok else 0
            assert least <= cell.effects <= 1, cell


@pytest.mark.parametrize("client", CLIENTS)
def test_a_success_is_the_answer_of_the_one_effect(client, cells):
    for cell in cells:
        assert cell.ok == (cell.status is not None and cell.status < 300), cell
        if cell.ok and DOORS[cell.door] is not None:
            assert {name: cell.answer[name] for name in cell.first_answer} == cell.first_answer


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_gets_what_the_page_says(client, door, cells):
    measured = [cell.words for cell in cells if cell.door == door]
    assert measured == table_of_page(door).get(client), f"| {client} | {' | '.join(measured)} |"


def test_the_page_names_these_clients_and_no_others():
    assert [list(table_of_page(door)) for door in DOORS] == [CLIENTS] * len(DOORS)
