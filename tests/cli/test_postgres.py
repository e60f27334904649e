"""The command line on a PostgreSQL store: its schema, its roles, and every command that reads or
changes operations."""
import json
import subprocess
import sys
import threading

import pytest

from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests"))
import servers  # noqa: E402

pytestmark = pytest.mark.skipif(not servers.Postgres.installed(), reason="no PostgreSQL here")


@pytest.fixture(scope="module")
def postgres():
    with servers.Postgres() as server:
        server.sql("CREATE ROLE owner LOGIN; CREATE ROLE app LOGIN; CREATE ROLE reader LOGIN;"
            f"GRANT CREATE ON DATABASE {server.DATABASE} TO owner")
        yield server


SCHEMAS = iter(f"s{number}" for number in range(1000))


class Place:
    """A schema of its own, made by its owner."""

    def __init__(self, server, once):
        self.server, self.once, self.schema = server, once, next(SCHEMAS)

    def url(self, user):
        base = self.server.url.replace("postgres@", f"{user}@")
        return f"{base}?fsync=off&schema={self.schema}"

    def migrate(self, *words):
        return self.once("migrate", "--store", self.url("owner"), "--grant", "app", "--grant-read",
            "reader", *words)

    def sql(self, text, user="postgres"):
        return self.server.sql(f"SET search_path = {self.schema}; {text}", user=user)


@pytest.fixture
def place(postgres, once):
    return Place(postgres, once)


@pytest.fixture
def store(place):
    assert place.migrate().code == 0
    return place


def run(place, key, *words, user="app", options=()):
    return place.once("run", "-k", key, "--store", place.url(user), *options, "--",
        *(words or ("echo", "done")))


def test_a_schema_is_made_once_however_often_it_is_asked_for(place):
    first, again = place.migrate(), place.migrate("--json")
    assert (first.code, again.code) == (0, 0)
    assert "version 8 now" in first.text
    assert json.loads(again.text) == {"version_before": 8, "version": 8}
    assert place.sql("SELECT version, applied_by FROM migrations") == \
        "1|owner\n2|owner\n3|owner\n4|owner\n5|owner\n6|owner\n7|owner\n8|owner"


def test_two_that_migrate_at_once_make_it_once(place):
    results = []
    threads = [threading.Thread(target=lambda: results.append(place.migrate())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.code for result in results] == [0] * 4, results
    assert sum("now" in result.text for result in results) == 1
    assert place.sql("SELECT count(*) FROM store") == "1"


def test_the_printed_script_makes_the_same_schema(place, postgres):
    printed = place.migrate("--print")
    assert printed.code == 0
    script = place.once.directory / "schema.sql"
    script.write_text(printed.text)
    subprocess.run(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p",
        str(postgres.port), "-U", "owner", "-f", str(script), postgres.DATABASE], check=True,
        capture_output=True)
    assert run(place, "a").code == 0
    assert "already" in place.migrate().text


ROW = """INSERT INTO records (key_hash, tenant_id, scope, principal, key, kind, status, version,
    operation_id, fence, attempt, duplicates, fingerprint, fingerprint_version, created_at,
    updated_at, window_ms, outcome_code, outcome_bytes, outcome_retained, request_bytes,
    request_retained, door, reconciles) VALUES (key_hash('operation', 'default', 's', '', 'older'),
    'default', 's', '', 'older', 'operation', 'released', 1, gen_random_uuid(), 1, 1, 0,
    sha256('x'), 1, now(), now(), 1, 0, 0, false, 0, false, 'fences', false)"""
SCHEMA = """SELECT relname, attname, format_type(atttypid, atttypmod), attnotnull FROM pg_class c
    JOIN pg_attribute ON attrelid = c.oid AND attnum > 0 WHERE relnamespace = '{0}'::regnamespace
    UNION ALL SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), true
    FROM pg_constraint WHERE connamespace = '{0}'::regnamespace
    UNION ALL SELECT proname, md5(prosrc), proconfig::text, prosecdef FROM pg_proc
    WHERE pronamespace = '{0}'::regnamespace
    UNION ALL SELECT tablename, indexname, indexdef, true FROM pg_indexes WHERE schemaname = '{0}'
    ORDER BY 1, 2, 3"""


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6, 7])
def test_an_older_schema_becomes_what_a_new_one_is(place, postgres, version):
    """With what is in it. The older one is the printed script up to its version."""
    new = place.migrate("--print").text
    end = f"\nINSERT INTO migrations (version, once_version) VALUES ({version}, "
    script = place.once.directory / "older.sql"
    script.write_text(new[:new.index("\n", new.index(end) + 1)] + "\nCOMMIT;\n")
    subprocess.run(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p",
        str(postgres.port), "-U", "owner", "-f", str(script), postgres.DATABASE], check=True,
        capture_output=True)
    refused = run(place, "a", user="owner", options=("--wait", "0s"))
    assert refused.code == 125 and f"has version {version}" in refused.message, refused
    place.sql(ROW)
    assert "version 8 now" in place.migrate().text
    assert place.sql("SELECT key FROM records") == "older"
    older = place.sql(SCHEMA.format(place.schema))
    place.sql(f"DROP SCHEMA {place.schema} CASCADE")
    assert place.migrate().code == 0
    assert place.sql(SCHEMA.format(place.schema)) == older
    assert run(place, "a").code == 0


def test_a_newer_schema_is_refused_by_name(store):
    store.sql("INSERT INTO migrations (version, once_version) VALUES (9, '9.9')")
    for refused in (store.migrate(), run(store, "a", options=("--wait", "0s"))):
        assert refused.code in (69, 125)
        assert f"schema '{store.schema}' has version 9" in refused.message
    store.sql("DELETE FROM migrations WHERE version = 9")
    assert run(store, "a").code == 0


def test_without_a_schema_it_says_what_to_run(place):
    refused = place.once("ls", "--store", place.url("app"))
    assert refused.code == 69
    assert "no store in the schema" in refused.message and "once migrate" in refused.message


def test_an_unreachable_server_is_named_and_its_password_is_not(once):
    refused = once("ls", "--store", "postgres://u:hunter2@127.0.0.1:1/x")
    assert refused.code == 69
    assert "cannot reach PostgreSQL" in refused.message and "hunter2" not in refused.message


def test_a_wrong_option_of_the_url_is_named_unless_there_is_a_password(once):
    done = once("ls", "--store", "postgres://someone@127.0.0.1:1/app?sslmod=require")
    assert done.code == 64 and '"sslmod"' in done.message, done
    done = once("ls", "--store", "postgres://someone:hunter2@127.0.0.1:1/app?sslmod=require")
    assert done.code == 64 and "sslmod" not in done.message, done


def test_a_journal_has_no_schema(once):
    refused = once("migrate", "--store", "journal:./data")
    assert refused.code == 64
    assert "no schema to migrate" in refused.message


def test_a_command_runs_once_and_its_outcome_is_replayed(store):
    first = run(store, "k", "sh", "-c", "echo ran; echo x >> effects; exit 3")
    again = run(store, "k", "sh", "-c", "echo ran; echo x >> effects; exit 3")
    assert (first.code, first.text) == (again.code, again.text) == (3, "ran\n")
    assert (store.once.directory / "effects").read_text() == "x\n"
    other = run(store, "k", "echo", "other")
    assert other.code == 65
    assert store.sql("SELECT key, status, duplicates FROM operations") == "k|failed|2"
    assert store.sql("SELECT count(*) FROM evidence WHERE NOT hash_holds") == "0"
    told = store.once("tail", "--json", "--lines", "99", "--store", store.url("app")).text
    shown = [json.loads(line) for line in store.sql("SELECT entry FROM evidence").splitlines()]
    assert {entry["v"] for entry in shown} == {2} and len(shown) == 4
    assert sorted(map(str, map(sorted_members, shown))) == sorted(
        str(sorted_members(json.loads(line))) for line in told.splitlines())
    assert store.sql("SELECT count(*) FROM evidence WHERE NOT hash_holds", user="reader") == "0"


def sorted_members(entry):
    return json.dumps(entry, sort_keys=True)


def test_of_many_that_run_one_key_at_once_one_does(store):
    processes = [store.once.start("run", "-k", "k", "--store", store.url("app"), "--", "sh", "-c",
        "sleep 0.2; echo x >> effects") for _ in range(6)]
    assert [process.wait(60) for process in processes] == [0] * 6
    assert (store.once.directory / "effects").read_text() == "x\n"


def test_every_command_that_looks_works_with_the_readers_role(store):
    assert run(store, "a").code == 0
    unknown = run(store, "b", "sh", "-c", "kill -9 $$")
    assert unknown.code == 75
    at = ("--store", store.url("reader"))
    listed = store.once("ls", "--json", *at)
    assert {row["key"]: row["status"] for row in json.loads(listed.text)} == \
        {"a": "executed", "b": "unknown"}
    shown = store.once("show", "--key", "a", *at)
    assert shown.code == 0 and "done" in shown.text
    why = store.once("why", "--key", "b", *at)
    assert why.code == 0 and "killed by signal 9" in why.text
    tail = store.once("tail", *at)
    assert tail.code == 0 and tail.text.count("execution.started") == 2


def test_an_unknown_operation_is_settled(store):
    words = ("sh", "-c", "test -e tried && echo done || { touch tried; kill -9 $$; }")
    assert run(store, "b", *words).code == 75
    listed = json.loads(store.once("ls", "--json", "--store", store.url("app")).text)
    settled = store.once("resolve", listed[0]["operation_id"], "--store",
        store.url("app"), "--status", "not_executed", "--reason", "nothing arrived")
    assert settled.code == 0, settled.message
    assert run(store, "b", *words).text == "done\n"


@pytest.mark.parametrize("role, statement", [
    ("app", "DELETE FROM entries"), ("app", "UPDATE entries SET entry = '{}'"),
    ("app", "DELETE FROM commits"), ("app", "DROP TABLE records"), ("app", "DELETE FROM chains"),
    ("app", "UPDATE store SET fingerprint_key = sha256('x')"), ("app", "TRUNCATE records"),
    ("app", "SELECT keep_partitions(now(), interval '1 minute')"),
    ("reader", "SELECT fingerprint_key FROM store"), ("reader", "DELETE FROM records"),
    ("reader", "SELECT draw_fences(1)"), ("reader", "SELECT keep_partitions(now(), '400 days')")])
def test_a_role_may_do_no_more_than_it_needs(store, role, statement):
    assert run(store, "a").code == 0
    with pytest.raises(subprocess.CalledProcessError) as refused:
        store.sql(statement, user=role)
    assert "permission denied" in refused.value.stderr or "must be owner" in refused.value.stderr \
        or "a day at least" in refused.value.stderr


def test_a_role_without_grants_is_refused_by_name(store):
    refused = store.once("ls", "--store", store.url("owner").replace("owner@", "nobody_at_all@"))
    assert refused.code == 69 and "nobody_at_all" in refused.message


def test_a_role_that_may_not_migrate_is_told_which_one_may(store):
    refused = store.once("migrate", "--store", store.url("app"))
    assert refused.code == 69 and "permission denied" in refused.message
    assert "the role that owns the schema" in refused.message and "--grant" not in refused.message
