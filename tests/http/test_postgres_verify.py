"""`once verify` over a PostgreSQL store: every chain by itself, all of them together, and whatever
a person with the owner's rights can do to the tables."""
import json
import subprocess
import sys
import threading

import pytest

from once_server import BINARY, ROOT

sys.path.insert(0, str(ROOT / "tests"))
import servers  # noqa: E402

psycopg2 = pytest.importorskip("psycopg2")
pytestmark = pytest.mark.skipif(not servers.Postgres.installed(), reason="no PostgreSQL here")

FUNCTIONS = "00000000-0000-0000-0000-000000000001"


class Place:
    """A store in a schema of its own."""

    def __init__(self, server, schema):
        self.server, self.schema = server, schema
        self.url = f"{server.url}?fsync=off&schema={schema}"
        assert self.once("migrate").returncode == 0

    def once(self, command, *words):
        return subprocess.run([BINARY, command, "--store", self.url, *words], capture_output=True,
            text=True, timeout=120)

    def run(self, key, *words):
        return self.once("run", "-k", key, "--", *(words or ("echo", "done")))

    def sql(self, text):
        return self.server.sql(f"SET search_path = {self.schema}; {text}")

    def verify(self, *words):
        done = self.once("verify", "--json", *words)
        assert done.returncode in (0, 1), done.stderr
        found = json.loads(done.stdout)
        assert found["ok"] == (done.returncode == 0)
        return found

    def fill(self):
        """Several chains, duplicates, a conflict, an unknown one, and an application's."""
        for key in ("a", "b", "a"):
            assert self.run(key).returncode == 0
        assert self.run("a", "echo", "other").returncode == 65
        assert self.run("u", "sh", "-c", "kill -9 $$").returncode == 75
        self.sql("SELECT once_begin('shop', 'f1'); SELECT once_begin('shop', 'f1');"
            "SELECT once_seal(said->>'operation_id', (said->>'fence')::bigint, outcome => '[1]')"
            " FROM (SELECT once_begin('shop', 'f2') AS said) AS b;"
            "SELECT once_begin('shop', 'f2', '2'); SELECT chain_decisions(100)")


@pytest.fixture(scope="module")
def postgres():
    with servers.Postgres() as server:
        yield server


SCHEMAS = iter(f"v{number}" for number in range(1000))


@pytest.fixture
def place(postgres):
    return Place(postgres, next(SCHEMAS))


def test_an_empty_store_is_whole(place):
    assert place.verify()["entries"] == 0


def test_what_processes_and_applications_wrote_is_whole(place):
    place.fill()
    found = place.verify()
    assert found["ok"] and found["damages"] == []
    assert found["redecided"] == found["entries"] == int(place.sql(
        "SELECT count(*) FROM entries WHERE kind = 'evidence'"))
    assert found["chains"] > 5 and found["records"] == 5 and not found["unsettled"]
    said = place.once("verify").stdout
    assert "every version of a record was decided once" in said


def test_decisions_that_are_not_chained_yet_are_counted_and_no_damage(place):
    place.fill()
    place.sql("SELECT once_begin('shop', 'late'); SELECT once_begin('shop', 'f1')")
    found = place.verify()
    assert found["ok"] and found["unchained"] == 2
    assert "not chained yet: 2" in place.once("verify").stdout
    place.sql("SELECT chain_decisions(10)")
    assert place.verify()["unchained"] == 0


def test_entries_removed_after_their_retention_are_counted(place):
    place.fill()
    before = place.verify()
    assert before["removed"] == 0 and "removed" not in place.once("verify").stdout
    dropped = place.sql("SELECT keep_partitions(clock_timestamp() + interval '70 days', '1 day')")
    assert int(dropped) > 0
    assert place.run("after").returncode == 0
    found = place.verify()
    assert found["ok"] and found["removed"] == before["entries"] and found["entries"] == 2, found
    assert f"not checked: {before['entries']} entries" in place.once("verify").stdout


WITHOUT_COMMIT = """SELECT count(*) FROM entries e WHERE kind = 'evidence' AND NOT EXISTS (SELECT
    FROM commits c WHERE c.chain_id = e.chain_id AND c.xid = e.xid
    AND e.seq BETWEEN c.seq_first AND c.seq_last)"""
THIS = "date_trunc('month', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'"  # month


def partition(place, table, day):
    """The name of the one that has the evidence of a day."""
    said = place.sql(f"SELECT '{table}' || to_char(({day}) AT TIME ZONE 'UTC', '_YYYY_MM')")
    return said.split()[-1]


def without_partitions(place, *tables):
    """What is written now goes to *_other."""
    for table in tables:
        place.sql(f"DROP TABLE {partition(place, table, 'now()')}")


@pytest.mark.parametrize("tables", [(), ("entries", "commits"), ("commits",), ("entries",)])
def test_evidence_goes_in_steps_and_a_commit_with_its_entries(place, tables):
    """Wherever the rows are, and wherever it stops: what is left of a chain checks out, and each
    entry finds its commit. At the end nothing is left."""
    without_partitions(place, *tables)
    place.fill()
    whole = place.verify()["entries"]
    steps, left = 0, whole
    step = "SELECT keep_partitions(clock_timestamp() + interval '70 days', '1 day', 3)"
    while place.sql(step).split()[-1] == "1":
        steps += 1
        assert steps < 100
        assert place.sql(WITHOUT_COMMIT).split()[-1] == "0"
        found = place.verify()
        assert found["ok"] and found["entries"] + found["removed"] == whole, found
        assert found["entries"] <= left
        left = found["entries"]
    assert steps > whole / 3
    assert place.sql("SELECT count(*) FROM entries UNION ALL SELECT count(*) FROM commits UNION ALL"
        " SELECT count(*) FROM removing").split()[-3:] == ["0", "0", "0"]
    assert place.run("after").returncode == 0
    found = place.verify()
    assert found["ok"] and found["removed"] == whole and found["entries"] == 2, found


def test_a_commit_stays_as_long_as_its_entries_are_in_the_partition_of_a_month(place):
    """They go when the month is over, and commits without a partition of theirs not before."""
    without_partitions(place, "commits")
    place.fill()
    whole = int(place.sql("SELECT count(*) FROM commits").split()[-1])
    for _ in range(3):  # all is older than the retention, and the month is not over
        place.sql(f"SELECT keep_partitions({THIS} + interval '1 month 23 hours', '1 day')")
    assert place.sql(WITHOUT_COMMIT).split()[-1] == "0"
    assert int(place.sql("SELECT count(*) FROM commits").split()[-1]) == whole > 0
    assert place.verify()["removed"] == 0


def test_a_decision_that_is_chained_late_does_not_go_before_those_before_it(place):
    """A transaction of the month before commits after one of this month was chained."""
    for table in ("commits", "entries"):
        before = partition(place, table, f"{THIS} - interval '1 day'")
        place.sql(f"DO $$ BEGIN EXECUTE format('CREATE TABLE {before} PARTITION OF {table}"
            f" FOR VALUES FROM (%L) TO (%L)', {THIS} - interval '1 month', {THIS}); END $$")
    place.sql("SELECT once_begin('shop', 'k'); SELECT once_begin('shop', 'k');"
        "UPDATE unchained SET decided_at = decided_at - interval '1 month',"
        " entry = jsonb_set(entry, '{decided,now_ms}',"
        " to_jsonb(millis(decided_at - interval '1 month')))"
        " || jsonb_build_object('occurred_at', time_text(decided_at - interval '1 month'))"
        " WHERE entry->'decided'->>'decision' = 'in_progress'; SELECT chain_decisions(10)")
    before = place.verify()
    assert [damage["what"] for damage in before["damages"]] == [] and before["entries"] == 2
    place.sql("SELECT keep_partitions(now() + interval '1 day', '1 day')")
    after = place.verify()
    assert after["damages"] == [] and after["entries"] + after["removed"] == 2, after


def test_an_application_that_is_chained_late_is_put_in_order(place):
    """A process decides on the operation before the application's own entry is in a chain."""
    said = json.loads(place.sql("SELECT once_begin('shop', 'k', lease => '10ms')"))
    hold = psycopg2.connect(place.server.url)  # as if a different process were at it
    hold.cursor().execute(f"SELECT FROM {place.schema}.chains WHERE chain_id = '{FUNCTIONS}'"
        " FOR UPDATE")
    settled = place.once("resolve", said["operation_id"], "--status", "executed", "--reason", "x")
    assert settled.returncode == 0, settled.stderr
    hold.close()
    place.sql("SELECT once_begin('shop', 'k')")
    place.sql("SELECT chain_decisions(10)")
    order = place.sql("SELECT entry->'decided'->>'version' FROM evidence"
        " ORDER BY xid, chain_id, seq")
    assert order.split() != sorted(order.split())  # or this shows nothing
    assert place.verify()["ok"]


CHAINED = """CREATE FUNCTION forge(which uuid, line text) RETURNS void LANGUAGE sql AS $$
    WITH head AS (SELECT seq, hash FROM chains WHERE chain_id = which),
    put AS (INSERT INTO entries (chain_id, seq, kind, decided_at, tenant_id, operation_id,
        prev_hash, hash, entry) SELECT which, seq + 1, 'evidence',
        to_timestamp((line::jsonb->'decided'->>
        'now_ms')::numeric / 1000), line::jsonb->>'tenant_id', substr(line::jsonb->>'operation_id',
        4)::uuid, hash, sha256(hash || convert_to(line, 'UTF8')), line FROM head)
    UPDATE chains SET seq = seq + 1, hash = sha256(hash || convert_to(line, 'UTF8'))
        WHERE chain_id = which $$;"""

MIDDLE = f"chain_id = '{FUNCTIONS}' AND seq = 2"
DAMAGES = {
    "a changed byte": (f"UPDATE entries SET entry = replace(entry, 'shop', 'shoq') WHERE {MIDDLE}",
        "chain is broken"),
    "a dropped entry": (f"DELETE FROM entries WHERE {MIDDLE}", "stands where 2 belongs"),
    "a dropped last entry": ("DELETE FROM entries e USING chains c WHERE c.chain_id = e.chain_id"
        f" AND c.chain_id = '{FUNCTIONS}' AND e.seq = c.seq", "was committed"),
    "a whole chain": (f"DELETE FROM entries WHERE chain_id = '{FUNCTIONS}'", "was committed"),
    "two entries swapped": (f"UPDATE entries SET seq = 5 - seq WHERE chain_id = '{FUNCTIONS}'"
        " AND seq IN (2, 3)", "chain is broken"),
    "a row that says otherwise": (f"UPDATE entries SET tenant_id = 'x' WHERE {MIDDLE}",
        "not the one that its row says"),
    "a second grant, well chained": (CHAINED + f"SELECT forge('{FUNCTIONS}', canonical(entry::jsonb"
        "|| jsonb_build_object('seq', 6, 'entry_id', 'ent_00000000_6'))) FROM entries WHERE"
        f" chain_id = '{FUNCTIONS}' AND seq = 1", "granted before"),
    "a checkpoint of somebody else": ("UPDATE entries SET entry = replace(entry, 'time ', 'time  ')"
        " WHERE kind = 'checkpoint'", "not a checkpoint"),
    "a record's fence": ("UPDATE records SET fence = fence + 1 WHERE key = 'f1'", "fence"),
    "a record's outcome": ("UPDATE records SET outcome_digest = sha256('x') WHERE key = 'f2'",
        "not the one that was decided"),
    "a record's version": ("UPDATE records SET version = 7 WHERE key = 'a'", "version 7"),
    "a record from nowhere": ("INSERT INTO records SELECT key_hash('operation', tenant_id, scope,"
        " principal, 'new'), tenant_id, scope, principal, 'new', kind, status, version,"
        " overlay(operation_id::text placing encode(substr(key_hash('operation', tenant_id, scope,"
        " principal, 'new'), 1, 6), 'hex') from 25)::uuid, fence, attempt, duplicates, fingerprint,"
        " fingerprint_version, created_at, updated_at, sealed_at, lease_expires_at,"
        " window_expires_at, window_ms, due_at, due_given_at, effect_id, outcome_code,"
        " outcome_meta, outcome_digest, outcome_bytes, outcome_retained, outcome_body,"
        " request_digest,"
        " request_bytes, request_retained, request_body, source_type, source_id, source_version,"
        " source_hash, trace, reason, door, reconciles, holder, parent, detail FROM records"
        " WHERE key = 'b'", "entries lead to version 0"),
    "a record that is gone": ("DELETE FROM records WHERE key = 'u'", "is missing"),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_damage_is_found(place, what):
    place.fill()
    statement, words = DAMAGES[what]
    place.sql(statement)
    found = place.verify()
    assert not found["ok"], what
    said = [damage["what"] for damage in found["damages"]]
    assert any(words in text for text in said), said


def test_a_checkpoint_kept_elsewhere_shows_a_chain_that_was_cut(place, tmp_path):
    place.fill()
    chain, note = place.sql("SELECT chain_id, encode(convert_to(entry, 'UTF8'), 'hex') FROM entries"
        " WHERE kind = 'checkpoint' ORDER BY seq DESC LIMIT 1").split("|")
    kept = tmp_path / "note"
    kept.write_bytes(bytes.fromhex(note))
    assert place.verify("--checkpoint", str(kept))["outside_checkpoint_compared"]
    place.sql(f"DELETE FROM entries WHERE chain_id = '{chain}'; UPDATE chains SET seq = 0, hash ="
        f" decode(repeat('00', 32), 'hex') WHERE chain_id = '{chain}'")
    found = place.verify("--checkpoint", str(kept))
    assert any("older than the checkpoint" in damage["what"] for damage in found["damages"])


def test_it_can_be_checked_while_others_write(place):
    ended = threading.Event()

    def write(number):
        at = 0
        while not ended.is_set():
            at += 1
            place.sql(f"SELECT once_begin('shop', 'w{number}-{at}')" if number == 0 else
                f"SELECT chain_decisions(10); SELECT once_begin('shop', 'w0-{at}')")
            place.run(f"r{number}-{at % 3}")
    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(6):
            found = place.verify()
            assert found["damages"] == []
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert place.verify()["ok"]


def test_checkpoints_tie_the_chains_together(place):
    """A chain whose process is gone is rewritten so that it checks out by itself."""
    place.fill()
    place.run("last")
    notes = place.sql("SELECT entry FROM entries WHERE kind = 'checkpoint' ORDER BY xid")
    assert f"chain {FUNCTIONS} 5 " in notes and place.verify()["ok"]
    place.sql(f"WITH gone AS (DELETE FROM entries WHERE chain_id = '{FUNCTIONS}' AND seq = 5)"
        " UPDATE chains SET seq = 4, hash = (SELECT hash FROM entries WHERE chain_id ="
        f" '{FUNCTIONS}' AND seq = 4) WHERE chain_id = '{FUNCTIONS}'; DELETE FROM commits WHERE"
        f" chain_id = '{FUNCTIONS}' AND seq_first = 5")
    said = [damage["what"] for damage in place.verify()["damages"]]
    assert any("a checkpoint of chain" in text for text in said), said


@pytest.mark.parametrize("prefix, decided, word", [
    ("op_", {"decision": "claimed"}, "in_progress"),
    ("cmd_", {"decision": "claimed"}, "started"),
    ("cmd_", {"decision": "unknown"}, "blocked"),
    ("cmd_", {"decision": "in_progress", "attempt": 0, "state": "waiting"},
        "awaiting_confirmation"),
    ("cmd_", {"decision": "done", "delay_ms": 1, "request": "wake", "status": "waiting"},
        "awaiting_effects"),
    ("cmd_", {"decision": "done", "request": "wake", "status": "waiting"}, "blocked"),
    ("cmd_", {"decision": "done", "request": "wake", "status": "pending"}, "confirmed"),
    ("cmd_", {"decision": "enqueued", "status": "pending"}, "received"),
    ("eff_", {"decision": "claimed"}, "dispatched"),
    ("eff_", {"decision": "sealed", "status": "executed"}, "acknowledged"),
    ("dlv_", {"decision": "claimed"}, "delivering"),
    ("dlv_", {"decision": "done", "status": "dead"}, "dead_letter"),
])
def test_the_view_has_the_words_of_each_kind(place, prefix, decided, word):
    """As src/evidence/entry_form.c has them, and docs/formats/evidence.md."""
    entry = {"decided": {"request": "begin", "now_ms": 1794770607123, **decided}, "v": 2,
        "operation_id": prefix + "019a8990-6013-7000-8001-8d2f1b0c7a55"}
    state = entry["decided"].pop("state", None)
    entry.update({"lifecycle_state": state} if state else {})
    found = place.sql(f"SELECT entry_in_words(full_entry('{FUNCTIONS}', 1, "
        f"'{json.dumps(entry)}'))->>"
        "'lifecycle_state'")
    assert found.splitlines()[-1] == word
