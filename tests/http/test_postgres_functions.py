"""once_begin, once_seal and once_release: fences inside an application's own transaction, called
from libpq and compared with the API of a server over the same store."""
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from once_server import BINARY, LONG, ROOT, Server, until
from test_client_matrix import NPM_FILES

sys.path.insert(0, str(ROOT / "tests"))
import golang  # noqa: E402
import npm  # noqa: E402
import servers  # noqa: E402

psycopg2 = pytest.importorskip("psycopg2")
pytestmark = pytest.mark.skipif(not servers.Postgres.installed(), reason="no PostgreSQL here")

CHAIN = "00000000-0000-0000-0000-000000000001"


class Store:
    """A PostgreSQL with a store in it, migrated by its owner."""

    def __init__(self, server):
        self.server = server

    def url(self, user):
        return self.server.url.replace("postgres@", f"{user}@") + "?fsync=off"

    def once(self, *words):
        return subprocess.run([BINARY, *words], capture_output=True, text=True, timeout=120)

    def migrate(self, *words):
        return self.once("migrate", "--store", self.url("owner"), *words)

    def connect(self, user="shop"):
        connection = psycopg2.connect(self.server.url.replace("postgres@", f"{user}@"))
        connection.autocommit = True
        return connection

    def sql(self, text):
        return self.server.sql(f"SET search_path = once; {text}")

    def chained(self):
        """Wait until a process has passed and chained everything."""
        until(lambda: self.sql("SELECT count(*) FROM unchained") == "0", "nobody chains")


@pytest.fixture(scope="module")
def store():
    with servers.Postgres() as server:
        server.sql("CREATE ROLE owner LOGIN; CREATE ROLE app LOGIN; CREATE ROLE shop LOGIN;"
            "CREATE ROLE other LOGIN; CREATE ROLE mean LOGIN;"
            f"GRANT CREATE ON DATABASE {server.DATABASE} TO owner, mean;"
            "CREATE TABLE orders (id text, item text); GRANT ALL ON orders TO shop")
        place = Store(server)
        done = place.migrate("--grant", "app", "--grant-functions", "shop", "--grant-functions",
            "other=acme", "--grant-functions", "mean")
        assert done.returncode == 0, done.stderr
        yield place


class OnPostgres(Server):
    def command(self):
        return [BINARY, "serve", "--listen", "127.0.0.1:0", "--store", self.env["STORE"],
            *self.options]


@pytest.fixture(scope="module")
def api(store):
    """A server over the same store; its tenant is `default`."""
    server = OnPostgres(env={"STORE": store.url("app")})
    yield server
    server.kill9()


def call(connection, function, *values, **named):
    """One function, and the document that it answers with."""
    def text(value):
        return json.dumps(value) if isinstance(value, (dict, list)) else value
    words = ["%s"] * len(values) + [f"{name} => %s" for name in named]
    cursor = connection.cursor()
    cursor.execute(f"SELECT once.{function}({', '.join(words)})",
        [text(value) for value in (*values, *named.values())])
    return cursor.fetchone()[0]


def begin(connection, key, payload=None, **named):
    return call(connection, "once_begin", "orders", key,
        json.dumps({"n": 1} if payload is None else payload), **named)


KEYS = iter(f"key-{number}" for number in range(10 ** 6))


@pytest.fixture
def key():
    return next(KEYS)


@pytest.fixture
def shop(store):
    connection = store.connect()
    yield connection
    connection.close()


def seal(connection, granted, **named):
    return call(connection, "once_seal", granted["operation_id"], granted["fence"], **named)


# --- The application's transaction ---


def test_what_is_rolled_back_never_happened(store, shop, key):
    shop.autocommit = False
    granted = begin(shop, key)
    shop.cursor().execute("INSERT INTO orders (id) VALUES (%s)", (key,))
    assert seal(shop, granted, outcome={"ok": True})["decision"] == "sealed"
    before = store.sql("SELECT count(*) FROM unchained")
    shop.rollback()
    assert store.sql("SELECT count(*) FROM unchained") <= before
    assert store.sql(f"SELECT count(*) FROM records WHERE key = '{key}'") == "0"
    again = begin(shop, key)
    assert again["decision"] == "first_seen" and again["fence"] > granted["fence"]


def test_effect_seal_and_evidence_are_committed_together(store, shop, key):
    shop.autocommit = False
    granted = begin(shop, key)
    shop.cursor().execute("INSERT INTO orders (id) VALUES (%s)", (key,))
    seal(shop, granted, effect_id="e-1", outcome={"order": key})
    assert store.sql(f"SELECT count(*) FROM records WHERE key = '{key}'") == "0"  # not yet
    shop.commit()
    again = begin(shop, key)
    assert (again["decision"], again["outcome"], again["effect_id"]) == \
        ("duplicate_replayed", {"order": key}, "e-1")
    shop.commit()
    entries = store.sql("SELECT entry->'decided'->>'decision' FROM (SELECT entry FROM unchained"
        " UNION ALL SELECT entry::jsonb FROM entries) AS e WHERE entry->>'idempotency_key' ="
        f" '{key}' ORDER BY (entry->'decided'->>'now_ms')::bigint")
    assert entries.split() == ["first_seen", "sealed", "duplicate_replayed"]


def test_of_two_transactions_the_second_waits_for_the_first(store, key):
    first, second = store.connect(), store.connect()
    first.autocommit = False
    granted, answers = begin(first, key), []
    waiter = threading.Thread(target=lambda: answers.append(begin(second, key)))
    waiter.start()
    time.sleep(0.2)
    assert answers == []  # its key is locked
    seal(first, granted, outcome=[1])
    first.commit()
    waiter.join(20)
    assert answers[0]["decision"] == "duplicate_replayed" and answers[0]["outcome"] == [1]


def test_of_many_at_once_one_is_granted(store, key):
    answers = []

    def one():
        connection = store.connect()
        answers.append(begin(connection, key)["decision"])
        connection.close()
    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == ["first_seen"] + ["in_progress"] * 7


def test_an_old_snapshot_is_an_error_and_never_a_second_grant(store, key):
    first, second = store.connect(), store.connect()
    second.autocommit = False
    second.set_session(isolation_level="REPEATABLE READ")
    second.cursor().execute("SELECT 1 FROM orders LIMIT 1")  # its snapshot is of now
    assert begin(first, key)["decision"] == "first_seen"
    with pytest.raises(psycopg2.OperationalError) as failed:
        begin(second, key)
    assert failed.value.pgcode == "40001"


def test_a_transaction_that_stalls_is_ended(store, key):
    first = store.connect()
    first.autocommit = False
    begin(first, key)
    cursor = first.cursor()
    cursor.execute("SHOW idle_in_transaction_session_timeout")
    assert cursor.fetchone()[0] == "10s"
    first.rollback()
    cursor.execute("SHOW idle_in_transaction_session_timeout")
    assert cursor.fetchone()[0] == "0"  # only of that transaction


# --- The same as the API ---


def test_a_key_is_one_for_functions_and_api(api, shop, key):
    granted = begin(shop, key, {"b": 1.50, "a": "é"})
    body = {"scope": "orders", "key": key, "payload": {"a": "\u00e9", "b": 1.5}}
    assert api.request("POST", "/v1/fences", body)[0] == 202
    assert api.request("POST", "/v1/fences", {**body, "payload": 2})[0] == 409
    sealed = api.request("POST", f"/v1/fences/{granted['operation_id']}/seal",
        {"fence": granted["fence"], "status": "executed", "outcome": {"x": [1, 2]}})
    assert sealed[0] == 200
    assert begin(shop, key, {"b": 1.5, "a": "é"})["outcome"] == {"x": [1, 2]}


def test_a_caller_that_waits_at_the_api_hears_of_the_seal(api, shop, key):
    granted, answers = begin(shop, key), []
    waiter = threading.Thread(target=lambda: answers.append(api.request("POST", "/v1/fences",
        {"scope": "orders", "key": key, "payload": {"n": 1}, "wait": "20s"})))
    waiter.start()
    time.sleep(0.3)
    seal(shop, granted, outcome=["done"])
    waiter.join(20)
    assert answers[0][0] == 200 and answers[0][2]["outcome"] == ["done"]


def numbers():
    lines = (ROOT / "tests/vectors/numbers/es.txt").read_text().split()
    return [line.split(",")[1] for line in lines[::1 if LONG else 7]]


def test_numbers_have_the_form_that_ecmascript_gives_them(store):
    cursor = store.connect("postgres").cursor()
    cursor.execute("SET search_path = once; SET extra_float_digits = 1;"
        "SELECT n, canonical(n::jsonb) FROM unnest(%s) AS n", (numbers(),))
    wrong = [(given, form) for given, form in cursor.fetchall() if given != form]
    assert wrong == []


@pytest.mark.parametrize("name", ["arrays", "french", "structures", "unicode", "weird"])
def test_the_canonical_form_is_that_of_rfc_8785(store, name):
    cursor = store.connect("postgres").cursor()
    given = (ROOT / f"tests/vectors/jcs/input/{name}.json").read_text()
    cursor.execute("SET search_path = once; SELECT canonical(%s)", (given,))
    assert cursor.fetchone()[0] == (ROOT / f"tests/vectors/jcs/output/{name}.json").read_text()


@pytest.mark.parametrize("number", ["9007199254740993", "0.1000000000000000055511151231257827",
    "1e400", "1e-400", "5.6843418860808015e-14", "123456789012345678901", "333333333.33333329"])
def test_a_number_that_would_not_survive_is_refused(shop, key, number):
    with pytest.raises(psycopg2.DataError, match="does not survive"):
        call(shop, "once_begin", "orders", key, f'{{"n": {number}}}')


class OverHttp:
    """The API, with the manners of the functions."""

    def __init__(self, server):
        self.server = server

    def begin(self, **members):
        return self.server.request("POST", "/v1/fences", members)[2]

    def hold(self, verb, granted, **members):
        path = f"/v1/fences/{granted['operation_id']}/{verb}"
        return self.server.request("POST", path, {"fence": granted["fence"], **members})[2]


class InSql:
    def __init__(self, connection):
        self.connection = connection

    def begin(self, scope, key, payload, **members):
        return call(self.connection, "once_begin", scope, key, json.dumps(payload), **members)

    def hold(self, verb, granted, **members):
        return call(self.connection, f"once_{verb}", granted["operation_id"], granted["fence"],
            **members)


SKIPPED = {"request_id", "retry_after_ms", "lease_expires_at", "first_seen_at", "sealed_at",
    "window_expires_at"}


def plain(document, ids, fences):
    """Without times, and with ids and fences by the order in which they appeared."""
    def one(name, value):
        if name in ("operation_id", "status_url"):
            found = re.search(r"op_[-0-9a-f]+", value).group()
            return value.replace(found, f"op-{ids.setdefault(found, len(ids))}")
        if name == "fence":
            return fences.setdefault(value, len(fences))
        return value
    return {name: one(name, value) for name, value in sorted(document.items())
        if name not in SKIPPED}


SHORT = "10ms"  # a lease or a window that is over at the next step
SHORT_OVER_S = 0.3  # by both clocks: a process knows the server's a little late


def step(rng, place, keys, side, state):
    """One call on one side; both sides take the same steps."""
    key = rng.choice(keys)
    verb = rng.choice(["begin"] * 4 + ["seal"] * 3 + ["release"])
    payload = {"n": rng.choice([1, 1, 1, 2]), "list": [1, {"a": rng.choice([1, 1, 2])}]}
    more = {}
    if rng.random() < 0.3:
        more["lease"] = SHORT
    if rng.random() < 0.3:
        more["on_unknown"] = "takeover"
    if rng.random() < 0.3:
        more["retry_failed"] = True
    if rng.random() < 0.4:
        more["source"] = {"type": "t", "id": f"{place}", "version": str(rng.choice([8, 9, 10]))}
    if rng.random() < 0.2:
        more["ttl"] = rng.choice([SHORT, "1h"])
    status = rng.choice(["executed", "executed", "failed", "rejected"])
    outcome = rng.choice([{"ok": 1}, {"ok": 1}, [2]])
    wrong = rng.random() < 0.15
    if verb == "begin":
        answer = side.begin(scope=f"s{place}", key=key, payload=payload, **more)
        if answer.get("decision") == "first_seen":
            state[key] = {**answer, "ttl": more.get("ttl")}
            state["short"] = more.get("lease") == SHORT
        return answer
    granted = state.get(key)
    if granted is None:
        return None
    granted = {**granted, "fence": granted["fence"] + 10 ** 6} if wrong else granted
    state["short"] = granted["ttl"] == SHORT
    if verb == "release":
        return side.hold("release", granted, reason="why not")
    return side.hold("seal", granted, status=status, outcome=outcome, effect_id="e")


@pytest.mark.parametrize("seed", range(60 if LONG else 12))
def test_functions_and_api_decide_the_same(api, store, seed):
    """The same calls, to the API for one tenant and to the functions for the other."""
    sides = [OverHttp(api), InSql(store.connect("other"))]
    seen = [({}, {}) for _ in sides]
    states = [{} for _ in sides]
    place = f"{seed}-{time.monotonic_ns()}"
    for number in range(40):
        answers = []
        for side, state in zip(sides, states):
            rng = random.Random(seed * 1000 + number)
            answers.append(step(rng, place, ["a", "b", "c"], side, state))
        if any([state.pop("short", False) for state in states]):
            time.sleep(SHORT_OVER_S)
        if answers[0] is not None:
            shown = [plain(answer, *names) for answer, names in zip(answers, seen)]
            assert shown[0] == shown[1], (number, answers)


# --- Who may do what ---


def test_the_tenant_is_the_roles(store, api, key):
    shop, other = store.connect("shop"), store.connect("other")
    assert begin(shop, key)["decision"] == begin(other, key)["decision"] == "first_seen"
    rows = store.sql(f"SELECT tenant_id FROM records WHERE key = '{key}' ORDER BY 1").split()
    assert rows == ["acme", "default"]
    cursor = store.connect("postgres").cursor()
    cursor.execute("SET ROLE other; SELECT once.once_begin('orders', %s)", (key,))
    assert cursor.fetchone()[0]["code"] == "idempotency_conflict"  # the session's role counts


def test_the_short_names_work_with_the_usual_search_path(store, key):
    """Where the owner may create them; without that right, a migration leaves them out."""
    call = f"SELECT once_begin('orders', '{key}', '{{}}')"
    shop = store.connect("shop").cursor()
    with pytest.raises(psycopg2.errors.UndefinedFunction):
        shop.execute(call)
    store.server.sql("GRANT CREATE ON SCHEMA public TO owner")
    for _ in range(2):
        assert store.migrate().returncode == 0
    shop.execute(call)
    granted = shop.fetchone()[0]
    assert granted["decision"] == "first_seen"
    shop.execute("SELECT once_seal(%s, %s, outcome => '[1]')",
        (granted["operation_id"], granted["fence"]))
    shop.execute(call)
    assert shop.fetchone()[0]["outcome"] == [1]
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        store.connect("app").cursor().execute(call)


def test_an_operation_of_a_different_tenant_does_not_exist(store, key):
    granted = begin(store.connect("shop"), key)
    answer = seal(store.connect("other"), granted)
    assert (answer["status"], answer["code"]) == (404, "operation_not_found")
    assert key not in json.dumps(answer)


@pytest.mark.parametrize("statement", ["SELECT fingerprint_key FROM once.store",
    "SELECT hmac_inner FROM once.store", "SELECT * FROM once.records", "SELECT * FROM once.roles",
    "SELECT * FROM once.unchained", "DELETE FROM once.unchained", "SELECT once.draw_fences(1)",
    "INSERT INTO once.roles VALUES ('shop', 'acme')", "SELECT once.chain_decisions(1)",
    "SELECT once.put_record(NULL, NULL)", "SELECT once.canonical('1')",
    "SELECT * FROM once.entries", "SELECT once.session_tenant()"])
def test_the_applications_role_may_call_three_functions_and_nothing_else(shop, statement):
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        shop.cursor().execute(statement)


def test_names_of_the_caller_do_not_reach_into_the_functions(store, key):
    mean = store.connect("mean")
    cursor = mean.cursor()
    cursor.execute("CREATE SCHEMA IF NOT EXISTS trap; SET search_path = trap, pg_temp, pg_catalog;"
        "CREATE TEMP TABLE roles (role_name name, tenant_id text);"
        "INSERT INTO roles VALUES ('mean', 'acme'); CREATE TEMP TABLE records (LIKE pg_class);"
        "CREATE OR REPLACE FUNCTION trap.sha256(bytea) RETURNS bytea LANGUAGE sql AS"
        " 'SELECT ''\\x00''::bytea'; CREATE OR REPLACE FUNCTION trap.session_tenant()"
        " RETURNS text LANGUAGE sql AS 'SELECT ''acme''::text'")
    assert begin(mean, key)["decision"] == "first_seen"
    assert store.sql(f"SELECT tenant_id FROM records WHERE key = '{key}'") == "default"


@pytest.mark.parametrize("words, fault", [
    ({"scope": ""}, "scope is empty"), ({"key": ""}, "key is empty"),
    ({"key": "x" * 256}, "key_bytes_max"), ({"key": "a\u0085b"}, "control character"),
    ({"lease": "1"}, "duration"), ({"lease": "8d"}, "most"), ({"ttl": "0s"}, "least"),
    ({"on_unknown": "guess"}, "on_unknown"), ({"fingerprint": "zz"}, "64 hexadecimal"),
    ({"fingerprint": "0" * 64, "payload": "1"}, "both given"), ({"source": "[]"}, "source"),
    ({"source": '{"typo": 1}'}, "source"), ({"trace": '{"t": "%s"}' % ("x" * 3000)}, "trace")])
def test_what_is_wrong_is_refused_by_name(shop, words, fault):
    with pytest.raises(psycopg2.DataError, match=fault):
        call(shop, "once_begin", **{"scope": "orders", "key": "k", **words})


# --- Evidence ---


def test_evidence_is_chained_by_the_process_that_passes(store, api, shop, key):
    granted = begin(shop, key)
    seal(shop, granted)
    store.chained()
    assert store.sql("SELECT count(*) FROM evidence WHERE NOT hash_holds") == "0"
    seen = store.sql(f"SELECT entry->>'type' FROM evidence WHERE chain_id = '{CHAIN}' AND"
        f" entry->>'idempotency_key' = '{key}' ORDER BY seq").split()
    assert seen == ["execution.started", "execution.executed"]
    listed = api.request("GET", f"/v1/evidence?operation_id={granted['operation_id']}")[2]
    assert [entry["type"] for entry in listed["entries"]] == seen
    assert {entry["actor"] for entry in listed["entries"]} == {"shop"}
    counted = store.sql("SELECT coalesce(sum(records), 0) FROM counts WHERE kind = 'operation'")
    assert counted == store.sql("SELECT count(*) FROM records WHERE kind = 'operation'")


# --- The page ---


def test_the_example_of_the_page_places_an_order_once(store, shop, key):
    page = (ROOT / "docs/postgres-functions.md").read_text()
    names = {}
    exec(re.search(r"```python\n(.*?)```", page, re.S).group(1), names)  # pylint: disable=exec-used
    shop.autocommit = False
    order = {"item": "book"}
    assert [names["place_order"](shop, key, order) for _ in range(3)] == [{"order": key}] * 3
    assert store.server.sql(f"SELECT count(*) FROM orders WHERE id = '{key}'") == "1"
    other = names["place_order"](shop, key, {"item": "pen"})
    assert (other["code"], other["effect"]) == ("idempotency_conflict", "no")
    with pytest.raises(psycopg2.Error):
        names["place_order"](shop, key + "x", {"item": {}})
    assert store.sql(f"SELECT count(*) FROM records WHERE key = '{key}x'") == "0"  # rolled back


def test_the_example_works_with_psycopg_3_after_the_changes_that_the_page_names(store, key):
    psycopg = pytest.importorskip("psycopg")
    page = (ROOT / "docs/postgres-functions.md").read_text()
    code, names = re.search(r"```python\n(.*?)```", page, re.S).group(1), {}
    table = page[page.index("| psycopg2 | psycopg 3 |"):].split("\n\n")[0]
    for old, new in re.findall(r"^\| (`.*?) \| (.*?) \|$", table, re.M):
        for here, there in zip(re.findall("`(.*?)`", old), re.findall("`(.*?)`", new)):
            assert here in code
            code = code.replace(here, there)
    exec(code, names)  # pylint: disable=exec-used
    with psycopg.connect(f"postgres://shop@127.0.0.1:{store.server.port}/once") as shop:
        order = {"item": "book"}
        assert [names["place_order"](shop, key, order) for _ in range(2)] == [{"order": key}] * 2
        with pytest.raises(psycopg.Error):
            names["place_order"](shop, key + "x", {"item": {}})
    assert store.server.sql(f"SELECT count(*) FROM orders WHERE id = '{key}'") == "1"
    assert store.sql(f"SELECT count(*) FROM records WHERE key = '{key}x'") == "0"  # rolled back


NODE = """
const pg = require("pg");
(async () => {
  const [key, item] = process.argv.slice(2), order = {item: JSON.parse(item)};
  const client = new pg.Client({connectionString: process.env.SHOP});
  await client.connect();
  await client.query("BEGIN");
  try {
%s
    await client.query("COMMIT");
    console.log(JSON.stringify(said));
  } catch (fault) {
    await client.query("ROLLBACK");
    console.log(JSON.stringify({fault: fault.message}));
  }
  await client.end();
})();
"""
GO = """package main

import ("database/sql"; "encoding/json"; "fmt"; "os"; _ "github.com/lib/pq")

func main() {
    var item string
    json.Unmarshal([]byte(os.Args[2]), &item)
    key, payload := os.Args[1], `{"item":` + os.Args[2] + `}`
    outcome := `{"order":"` + key + `"}`
    var decision, id sql.NullString
    var fence sql.NullInt64
    db, _ := sql.Open("postgres", os.Getenv("SHOP"))
    tx, fault := db.Begin()
    if fault != nil { panic(fault) }
%s
    if err == nil { err = tx.Commit() } else { tx.Rollback() }
    said, _ := json.Marshal(map[string]any{"decision": decision.String, "failed": err != nil})
    fmt.Println(string(said))
}
"""
GO_LIBRARY = Path("/usr/share/gocode/src/github.com/lib/pq")  # of golang-github-lib-pq-dev


def example_of(language):
    page = (ROOT / "docs/postgres-functions.md").read_text()
    return re.search(rf"```{language}\n(.*?)```", page, re.S).group(1)


def node_example(directory):
    try:
        npm.check_node(NPM_FILES)
        modules = npm.node_modules(NPM_FILES)
    except npm.Absent as why:
        pytest.skip(str(why))
    (directory / "example.cjs").write_text(NODE % example_of("js"))
    return ["node", directory / "example.cjs"], {"NODE_PATH": str(modules)}


def go_example(directory):
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    if not GO_LIBRARY.exists():
        pytest.skip("golang-github-lib-pq-dev is not installed")
    (directory / "example.go").write_text(GO % example_of("go"))
    env = {"GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOFLAGS": "", **golang.cache()}
    with golang.turn():
        done = subprocess.run(["go", "build", "-o", directory / "example",
            directory / "example.go"], capture_output=True, text=True, env={**os.environ, **env})
    assert done.returncode == 0, done.stderr
    return [directory / "example"], {}


@pytest.mark.parametrize("example", [node_example, go_example])
def test_the_examples_for_node_and_go_place_an_order_once(store, key, example, tmp_path):
    command, env = example(tmp_path)
    env = {**os.environ, **env, "SHOP": f"postgres://shop@127.0.0.1:{store.server.port}/once"
        "?sslmode=disable"}

    def place(item, name=key):
        done = subprocess.run([*command, name, json.dumps(item)], capture_output=True, text=True,
            env=env)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert [place("book").get("decision") for _ in range(3)] == ["first_seen",
        "duplicate_replayed", "duplicate_replayed"]
    assert store.server.sql(f"SELECT count(*) FROM orders WHERE id = '{key}'") == "1"
    assert place("pen").get("decision") in (None, "")  # a conflict has none
    store.server.sql("ALTER TABLE orders ADD CONSTRAINT no_pens CHECK (item <> 'pen')")
    try:
        failed = place("pen", key + "x")
        assert failed.get("fault") or failed["failed"], failed
    finally:
        store.server.sql("ALTER TABLE orders DROP CONSTRAINT no_pens")
    assert store.sql(f"SELECT count(*) FROM records WHERE key = '{key}x'") == "0"  # rolled back


# --- Migration ---


def test_a_store_of_version_1_gets_the_functions(store, key):
    """With what is in it, and with the roles that were granted."""
    schema = (ROOT / "src/store/postgres/schema_1.sql").read_text()
    name = f"old_{key.replace('-', '_')}"
    store.server.sql(f"CREATE SCHEMA {name} AUTHORIZATION owner")
    store.server.sql(f"SET search_path = {name}, pg_temp; CREATE TABLE migrations (version integer"
        " PRIMARY KEY, once_version text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now(),"
        " applied_by text NOT NULL DEFAULT current_user);" + schema +
        "INSERT INTO migrations (version, once_version) VALUES (1, '0');"
        f"GRANT USAGE ON SCHEMA {name} TO app; GRANT SELECT ON ALL TABLES IN SCHEMA {name} TO app;"
        "GRANT EXECUTE ON FUNCTION keep_partitions TO app;"
        "INSERT INTO records VALUES (key_hash('operation', 'default', 'orders', '', 'a'),"
        " 'default', 'orders', '', 'a', 'operation', 'in_progress', 1,"
        " '01a00000-0000-7000-8000-000000000000', 1, 1, 0, sha256('x'), 1, now(), now(), NULL,"
        " now() + interval '1 h', NULL, 1000, now() + interval '1 h', NULL, NULL, 0, NULL, NULL, 0,"
        " false, NULL, NULL, 0, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'fences', false,"
        " NULL, NULL, NULL)", user="owner")
    url = f"{store.url('owner')}&schema={name}"
    refused = store.once("ls", "--store", url)
    assert refused.returncode == 69 and "once migrate" in refused.stderr
    done = store.once("migrate", "--store", url, "--grant-functions", "shop=acme", "--json")
    assert json.loads(done.stdout) == {"version_before": 1, "version": 8}, done.stderr
    shop = store.connect("shop")
    cursor = shop.cursor()
    cursor.execute(f"SELECT {name}.once_begin('orders', 'a')")
    assert cursor.fetchone()[0]["decision"] == "first_seen"  # acme's, not default's
    app = store.connect("app").cursor()
    app.execute(f"SET search_path = {name}; SELECT chain_decisions(10)")
    assert app.fetchone()[0] == 1
    app.execute("SELECT keep_partitions(now(), '400 days'), (SELECT count(*) FROM removing)")
    assert app.fetchone() == (0, 0)
