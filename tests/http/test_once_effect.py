"""once_effect: an effect written inside an application's own PostgreSQL transaction, sealed and
sent by whichever process of Once passes (docs/postgres-functions.md)."""
import json
import re
import subprocess
import sys
import threading
import time

import pytest

from once_server import BINARY, ROOT, until
from provider import Provider
from test_postgres_functions import OnPostgres, Store, call

sys.path.insert(0, str(ROOT / "tests"))
import servers  # noqa: E402

psycopg2 = pytest.importorskip("psycopg2")
pytestmark = pytest.mark.skipif(not servers.Postgres.installed(), reason="no PostgreSQL here")

KEYS = iter(f"k-{number}" for number in range(10 ** 6))
SECRET = "planted-secret"
LATER = "2999-01-01T00:00:00.000Z"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with servers.Postgres() as server:
        server.sql("CREATE ROLE owner LOGIN; CREATE ROLE app LOGIN; CREATE ROLE shop LOGIN;"
            "CREATE ROLE other LOGIN; CREATE ROLE reader LOGIN;"
            f"GRANT CREATE ON DATABASE {server.DATABASE} TO owner;"
            "CREATE TABLE orders (id text PRIMARY KEY, cents integer);"
            "GRANT ALL ON orders TO shop, other")
        place = Store(server)
        done = place.migrate("--grant", "app", "--grant-functions", "shop", "--grant-functions",
            "other=acme", "--grant-read", "reader")
        assert done.returncode == 0, done.stderr
        place.key = tmp_path_factory.mktemp("keys") / "body.key"
        place.key.write_text("00112233445566778899aabbccddeeff" * 2 + "\n")
        place.key.chmod(0o600)
        yield place


@pytest.fixture(scope="module")
def provider():
    made = Provider(keeps=True)
    yield made
    made.end()


def config_of(store, provider, more=""):
    return f"""
secrets: {{key_file: {store.key}}}
connectors:
  pay:
    url: {provider.url}
    idempotency: {{header: Idempotency-Key, keeps: 24h}}
    timeout: {{connect: 1s, first_byte: 5s, total: 6s}}
  theirs: {{url: "{provider.url}", tenants: [acme]}}
effects:
  payment.capture:
    connector: pay
    request: {{path: "/v1/charges/{{target.order_id}}"}}
    provider_ref: /id
    redact: [/card]
    retry: {{attempts: 4, backoff: 50ms, backoff_max: 200ms}}
  mail.send: {{connector: theirs}}
  label.print:
    connector: pay
    order: "{{target.order_id}}"
    retry: {{attempts: 4, backoff: 50ms, backoff_max: 200ms}}
{more}
"""


class Processes:
    """Any number of `once serve` over the store."""

    def __init__(self, store, provider, path):
        self.store, self.made = store, []
        self.path = path / "once.yaml"
        self.path.write_text(config_of(store, provider))

    def start(self):
        server = OnPostgres("--config", str(self.path), env={"STORE": self.store.url("app")})
        self.made.append(server)
        until(lambda: self.store.sql("SELECT count(*) FROM effect_types") == "3", "no types")
        return server

    def end(self):
        for server in self.made:
            server.kill9()
        self.made.clear()


@pytest.fixture(scope="module")
def kept(store, provider, tmp_path_factory):
    made = Processes(store, provider, tmp_path_factory.mktemp("once"))
    yield made
    made.end()


@pytest.fixture
def once(kept):
    """One that goes on running for the next test."""
    return kept.made[0] if kept.made else kept.start()


@pytest.fixture
def processes(store, provider, tmp_path, kept):
    """Those of one test, and no others."""
    kept.end()
    made = Processes(store, provider, tmp_path)
    yield made
    made.end()


@pytest.fixture
def key():
    return next(KEYS)


@pytest.fixture
def shop(store):
    connection = store.connect()
    yield connection
    connection.close()


def envelope(key, **more):
    whole = {"effect_type": "payment.capture", "idempotency_key": key,
        "target": {"order_id": "o-1"}, "payload": {"amount": 5, "card": SECRET}, **more}
    return {name: value for name, value in whole.items() if value is not None}


def effect(connection, key, **more):
    return call(connection, "once_effect", envelope(key, **more))


def show(server, said):
    return server.request("GET", said["status_url"])[2]


def acknowledged(server, said):
    until(lambda: show(server, said)["status"] == "acknowledged", "it is not sent")
    return show(server, said)


def left(store):
    return store.sql("SELECT (SELECT count(*) FROM intake),"
        "(SELECT count(*) FROM intake_envelopes)")


# --- The transaction ---


def test_an_effect_is_committed_with_the_transaction_and_sent(store, once, provider, shop, key):
    shop.autocommit = False
    said = effect(shop, key)
    assert (said["decision"], said["status"], said["idempotency_key"]) == \
        ("first_seen", "pending", key)
    shop.cursor().execute("INSERT INTO orders VALUES (%s, 5)", (key,))
    time.sleep(0.6)  # three looks of a process: nothing is there before the commit
    assert once.request("GET", said["status_url"])[0] == 404 and not provider.of(key)
    started = time.monotonic()
    shop.commit()
    until(lambda: provider.of(key), "it is not sent")
    assert time.monotonic() - started < 30  # within a second on a machine that has the time
    shown = acknowledged(once, said)
    assert shown["effect_id"] == said["effect_id"]
    assert shown["acknowledgement"]["provider_ref"] == f"ch_{key}"
    assert shown["payload"] == {"amount": 5, "card": "[redacted]"}
    assert provider.effects[key] == 1 and provider.of(key)[0]["path"] == "/v1/charges/o-1"
    assert json.loads(provider.of(key)[0]["body"]) == {"amount": 5, "card": SECRET}
    assert left(store) == "0|0"


def test_an_effect_is_sent_within_a_second_of_its_commit(once, provider, shop):
    # Each is committed just after a look of the process, and so waits for a whole pause between
    # two. The fastest of ten counts: a busy machine is not slow ten times in a row by chance.
    assert once
    waits = []
    for key in (next(KEYS) for _ in range(10)):
        started = time.monotonic()
        effect(shop, key)
        until(lambda: provider.of(key), "it is not sent")  # pylint: disable=cell-var-from-loop
        waits.append(provider.of(key)[0]["at"] - started)
    assert min(waits) < 1


def test_what_is_rolled_back_never_happened(store, once, provider, shop, key):
    shop.autocommit = False
    said = effect(shop, key)
    shop.rollback()
    time.sleep(0.6)
    assert once.request("GET", said["status_url"])[0] == 404
    assert left(store) == "0|0" and not provider.of(key)
    cursor = shop.cursor()
    cursor.execute("SAVEPOINT here")
    effect(shop, key, payload={"amount": 1})
    cursor.execute("ROLLBACK TO SAVEPOINT here")
    assert effect(shop, key)["decision"] == "first_seen"  # the first payload was never there
    cursor.execute("SAVEPOINT here")
    assert effect(shop, key)["decision"] == "in_progress"
    cursor.execute("ROLLBACK TO SAVEPOINT here")
    shop.commit()
    until(lambda: provider.effects.get(key) == 1, "it is not sent")
    assert len(provider.of(key)) == 1


def test_duplicates_of_one_and_of_two_transactions(once, provider, store, shop, key):
    shop.autocommit = False
    first, again = effect(shop, key), effect(shop, key)
    assert (again["decision"], again["effect_id"]) == ("in_progress", first["effect_id"])
    shop.commit()
    acknowledged(once, first)
    other = store.connect()
    later = effect(other, key)
    assert (later["decision"], later["status"], later["effect_id"]) == \
        ("duplicate_replayed", "acknowledged", first["effect_id"])
    assert later["acknowledgement"]["provider_ref"] == f"ch_{key}"
    status, _, answer = once.request("POST", "/v1/effects", envelope(key))
    assert (status, answer["effect_id"]) == (200, first["effect_id"])  # one key for both
    other.close()
    assert provider.effects[key] == 1 and len(provider.of(key)) == 1


def test_another_payload_is_a_conflict(once, provider, shop, key):
    first = effect(shop, key)
    refused = effect(shop, key, payload={"amount": 6})
    assert (refused["code"], refused["status"], refused["effect"]) == \
        ("idempotency_conflict", 409, "no")
    assert refused["effect_id"] == first["effect_id"]
    assert effect(shop, key, target={"order_id": "o-2"})["code"] == "idempotency_conflict"
    acknowledged(once, first)
    status, _, answer = once.request("POST", "/v1/effects", envelope(key, payload={"amount": 6}))
    assert (status, answer["code"]) == (409, "idempotency_conflict")
    assert provider.effects[key] == 1


def test_one_hundred_at_once_are_one_effect(store, once, provider, key):
    said, faults = [], []

    def one():
        try:
            connection = store.connect()
            for _ in range(5):
                said.append(effect(connection, key))
            connection.close()
        except psycopg2.Error as fault:
            faults.append(fault)
    threads = [threading.Thread(target=one) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults and len(said) == 100
    assert len({one["effect_id"] for one in said}) == 1
    assert sum(one["decision"] == "first_seen" for one in said) == 1
    until(lambda: provider.effects.get(key) == 1, "it is not sent")
    acknowledged(once, said[0] if "status_url" in said[0] else
        {"status_url": "/v1/effects/" + said[0]["effect_id"]})
    assert len(provider.of(key)) == 1 and left(store) == "0|0"


# --- The envelope ---


@pytest.mark.parametrize("more", [
    {}, {"target": None}, {"ordinal": 0}, {"ordinal": 3}, {"target": {"b": 1, "a": [1.50, None]}},
    {"target": "\u20ac\U0001f600"}, {"target": {"\U0001f600": 1, "\ufb33": 2}}])
def test_the_key_is_the_one_that_once_key_derives(store, once, shop, key, more):
    whole = envelope(None, command_id=f"order-{key}", not_before=LATER, **more)
    said = call(shop, "once_effect", whole)
    keyed = {name: whole[name] for name in ("command_id", "effect_type", "target", "ordinal")
        if name in whole}
    done = subprocess.run([BINARY, "key", "effect"], text=True, capture_output=True, timeout=60,
        input=json.dumps({**keyed, "tenant_id": "default"}))
    assert done.returncode == 0, done.stderr
    assert said["idempotency_key"] == done.stdout.strip()
    if "order_id" in (more.get("target") or {"order_id": 1}) and "target" not in more:
        status, _, answer = once.request("POST", "/v1/effects", whole)
        assert status in (200, 202) and answer["effect_id"] == said["effect_id"]


@pytest.mark.parametrize("more,fault", [
    ({"effect_type": "none"}, "there is no effect type 'none'"),
    ({"effect_type": "mail.send"}, "there is no effect type 'mail.send'"),  # another tenant's
    ({"target": 9007199254740993, "idempotency_key": None, "command_id": "c"}, "does not survive"),
    ({"payload": {"a": 9007199254740993}}, "does not survive"),
    ({"idempotency_key": None}, "command_id"), ({"payload": None}, "'payload' is missing"),
    ({"wait": "1s"}, "'wait'"), ({"x": 1}, "'x'"), ({"ordinal": -1}, "ordinal"),
    ({"ordinal": 1.5}, "ordinal"), ({"tenant_id": "acme"}, "tenant_id"),
    ({"policy_refs": 1}, "policy_refs"), ({"not_before": "soon"}, "not_before"),
    ({"effect_id": "a\nb"}, "control character"), ({"command_id": 7}, "command_id"),
    ({"payload": "x" * 1048577}, "effect_payload_bytes_max"),
    ({"target": "x" * 5000}, "detail_bytes_max"), ({"trace": 7}, "trace")])
def test_what_is_wrong_is_refused_by_name(once, shop, key, more, fault):
    del once
    with pytest.raises(psycopg2.DataError, match=fault):
        effect(shop, key, **more)
    with pytest.raises(psycopg2.DataError, match="not a JSON object"):
        call(shop, "once_effect", [1])


def test_a_template_that_cannot_be_filled_ends_the_effect_with_a_reason(once, provider, shop, key):
    said = effect(shop, key, target={"other": 1})
    until(lambda: show(once, said)["status"] == "failed", "it does not end")
    assert "target.order_id" in show(once, said)["reason"] and not provider.of(key)


def test_names_and_extensions_are_kept(once, shop, key):
    said = effect(shop, key, effect_id=f"own-{key}", command_id="op_" + "0" * 8 + "-0000-7000-8000"
        "-" + "1" * 12, x_mine={"a": 1}, trace={"request_id": "r"}, policy_refs=["p"], ordinal=2,
        not_before=LATER)
    assert said["effect_id"] == f"own-{key}"
    until(lambda: "x_mine" in show(once, said), "it is not sealed")
    shown = show(once, said)
    assert shown["x_mine"] == {"a": 1} and shown["policy_refs"] == ["p"] and shown["ordinal"] == 2
    assert shown["trace"] == {"request_id": "r"} and shown["next_attempt_at"].startswith("2999")


# --- Tenants and rights ---


def test_the_tenant_is_the_roles(store, once, shop, key):
    other = store.connect("other")
    mine = effect(shop, key, not_before=LATER)
    theirs = effect(other, key, payload={"amount": 7}, not_before=LATER)
    assert theirs["decision"] == "first_seen" and theirs["effect_id"] != mine["effect_id"]
    assert once.request("GET", theirs["status_url"])[0] == 404  # the server's tenant is `default`
    assert call(other, "once_effect", {"effect_type": "mail.send", "idempotency_key": key,
        "payload": 1, "not_before": LATER})["decision"] == "first_seen"
    tenants = store.sql("SELECT string_agg(DISTINCT tenant_id, ',') FROM records "
        f"WHERE key = '{key}'")
    assert tenants == "acme,default"
    other.close()


@pytest.mark.parametrize("user", ["shop", "reader", "app"])
def test_nobody_but_the_owner_reads_payloads_in_clear(store, user):
    connection = store.connect(user)
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        connection.cursor().execute("SELECT * FROM once.intake_envelopes")
    for function in ("take_intake('{a}', '{}', 1)", "drop_intake('{}')",
            "register_effect_types('[]')"):
        if user != "app":
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                connection.cursor().execute(f"SELECT once.{function}")
    connection.close()


# --- Without a process, with several, and killed ---


def test_without_a_process_it_waits_and_no_table_has_it_in_clear_afterwards(store, processes, shop,
        key):
    processes.start()  # registers the types
    processes.end()
    said = effect(shop, key, payload={"amount": 1, "note": SECRET + key}, not_before=LATER)
    assert said["status"] == "pending" and left(store) == "1|1"
    assert SECRET + key in dump(store)  # as the page says
    processes.start()
    until(lambda: left(store) == "0|0", "it is not sealed")
    assert SECRET + key not in dump(store)


def test_a_copy_does_not_leave_payloads_behind(store, processes, shop, key, tmp_path):
    """They are in a table of the source alone: in the copy the effect would wait for ever."""
    def copy():
        store.sql("UPDATE chains SET ended_at = now() WHERE ended_at IS NULL")  # it is not in use
        return store.once("copy", store.url("owner"), f"journal:{tmp_path}/target")
    processes.start().stop()
    said = effect(shop, key)
    done = copy()
    assert done.returncode == 69 and "encrypt them: 1\n" in done.stderr, done.stderr
    server = processes.start()
    acknowledged(server, said)
    server.stop()
    done = copy()
    assert done.returncode == 0, done.stderr


def dump(store):
    done = subprocess.run([servers.Postgres.program("pg_dump"), "--inserts", store.server.url],
        capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_evidence_is_chained_and_decided_again(store, once, provider, shop, key):
    first = effect(shop, key)
    effect(shop, key)
    effect(shop, key, payload={"amount": 9})
    acknowledged(once, first)
    effect(shop, key)
    store.chained()
    entries = []
    page = once.request("GET", f"/v1/evidence?operation_id={first['effect_id']}&limit=100")[2]
    entries += page["entries"]
    types = [entry["type"] for entry in entries]
    assert types.count("effect.created") == 1 and types.count("execution.rejected") == 1
    assert types.count("effect.dispatched") == 1 and types.count("effect.acknowledged") == 1
    created = next(entry for entry in entries if entry["type"] == "effect.created")
    assert (created["actor"], created["decided"]["rule"], created["effect_id"]) == \
        ("shop", "E1", first["effect_id"])
    done = store.once("verify", "--redecide", "--store", store.url("app"))
    assert done.returncode == 0, done.stdout + done.stderr
    counts = store.sql("SELECT kind, status, sum(records) FROM counts WHERE kind = 'effect' "
        "GROUP BY kind, status ORDER BY status")
    truth = store.sql("SELECT kind, status, count(*) FROM records WHERE kind = 'effect' "
        "GROUP BY kind, status ORDER BY status")
    assert counts == truth


@pytest.mark.parametrize("step", ["committed", "sealed", "claimed", "sent"])
def test_killed_at_each_step_it_is_sent_once(store, processes, provider, shop, key, step):
    first = processes.start()
    if step in ("claimed", "sent"):
        provider.kill = first.kill9
        provider.script(key, "kill_before" if step == "claimed" else "kill_after")
    if step == "committed":
        first.kill9()
    said = effect(shop, key, **({"not_before": LATER} if step == "sealed"
        else {}))
    if step == "sealed":
        until(lambda: left(store) == "0|0", "it is not sealed")
        first.kill9()
    elif step != "committed":
        until(lambda: first.process.poll() is not None, "it was not killed")
    second = processes.start()
    if step == "sealed":
        assert second.request("POST", said["status_url"] + "/retry")[0] == 200
    until(lambda: provider.effects.get(key) == 1, "it is not sent")
    until(lambda: show(second, said)["status"] == "acknowledged", "it is not settled", 90)
    provider.kill = None
    assert provider.effects[key] == 1


def test_two_processes_seal_and_send_each_effect_once(store, processes, provider, shop):
    keys = [next(KEYS) for _ in range(60)]
    one, two = processes.start(), processes.start()
    said = [effect(shop, key) for key in keys]
    for server, document in zip((one, two) * 30, said):
        acknowledged(server, document)
    assert [provider.effects.get(key) for key in keys] == [1] * 60
    assert [len(provider.of(key)) for key in keys] == [1] * 60
    assert left(store) == "0|0"


@pytest.mark.parametrize("is_backlog", [False, True])
def test_effects_of_one_order_are_sent_in_the_order_they_were_written(store, processes, provider,
        shop, is_backlog):
    one, two = processes.start(), processes.start()
    if is_backlog:  # both meet all of it at once
        processes.end()
    shop.autocommit = False
    lanes = {next(KEYS): [] for _ in range(3)}
    for number in range(12):
        for lane, said in lanes.items():
            key = f"{lane}-{number}"
            if number % 4 == 0:  # rests for a while: whoever is after it could pass
                provider.script(key, "503")
            said.append(effect(shop, key, effect_type="label.print", target={"order_id": lane}))
        if number == 5:
            shop.commit()
    shop.commit()
    if is_backlog:
        one, two = processes.start(), processes.start()
    for said in lanes.values():
        for server, document in zip((one, two) * 6, said):
            acknowledged(server, document)
    for lane in lanes:
        wanted = [f"{lane}-{number}" for number in range(12)]
        sent = [request["key"] for request in provider.requests if request["key"] in wanted]
        assert list(dict.fromkeys(sent)) == wanted and len(sent) == 12 + 3
        assert [provider.effects[key] for key in wanted] == [1] * 12
    done = store.once("verify", "--redecide", "--store", store.url("app"))
    assert done.returncode == 0, done.stdout + done.stderr
    # Each but the first names the one that was written before it (LN1), in both processes.
    for lane, said in lanes.items():
        sources = store.sql("SELECT source_type FROM records WHERE kind = 'effect' AND "
            f"key LIKE '{lane}-%' ORDER BY created_at, fence, (split_part(key, '-', 3))::int")
        names = [document["status_url"].rsplit("/", 1)[1] for document in said]
        assert set(sources.split()) == {"order", *names[:-1]}


def test_of_an_ordered_type_none_is_taken_past_an_older_one(store, processes, shop, key):
    processes.start()  # registers the types
    processes.end()
    for number in range(3):
        effect(shop, f"{key}-{number}", effect_type="label.print", not_before=LATER)
    effect(shop, f"{key}-3", not_before=LATER)

    def take(most):
        taken = store.sql("SELECT envelope::jsonb ->> 'idempotency_key' FROM take_intake("
            f"'{{label.print,payment.capture}}', '{{label.print}}', {most})")
        return [one.rsplit("-", 1)[1] for one in taken.split()]
    assert take(1) == ["0"]
    assert take(9) == ["3"]  # 1 and 2 wait for 0, which somebody has
    store.sql("UPDATE intake SET taken_until = '-infinity'")
    assert take(9) == ["0", "1", "2", "3"] and take(9) == []
    connection = store.connect("app")  # somebody takes: nobody knows yet what
    connection.autocommit = False
    store.sql("UPDATE intake SET taken_until = '-infinity'")
    connection.cursor().execute("SELECT once.take_intake('{label.print}', '{label.print}', 1)")
    assert take(9) == ["3"]
    connection.close()


def test_an_effect_by_sql_and_one_by_the_api_share_a_lane(store, once, provider, shop, key):
    target = {"order_id": key}
    first = effect(shop, f"{key}-0", effect_type="label.print", target=target, not_before="2999-"
        "01-01T00:00:00+02:00")
    until(lambda: left(store) == "0|0", "it is not sealed")
    assert show(once, first)["next_attempt_at"] == "2998-12-31T22:00:00.000Z"
    status, _, second = once.request("POST", "/v1/effects", envelope(f"{key}-1",
        effect_type="label.print", target=target))
    assert status == 202
    third = effect(shop, f"{key}-2", effect_type="label.print", target=target)
    until(lambda: left(store) == "0|0", "it is not sealed")
    time.sleep(0.6)
    assert not [request for request in provider.requests if request["key"].startswith(f"{key}-")]
    assert once.request("POST", first["status_url"] + "/retry")[0] == 200
    for document in (first, second, third):
        acknowledged(once, document)
    assert [request["key"] for request in provider.requests
        if request["key"].startswith(f"{key}-")] == [f"{key}-{number}" for number in range(3)]


# --- The page ---


def test_the_example_of_the_page_orders_and_pays_once(store, once, provider, shop, key):
    page = (ROOT / "docs/postgres-functions.md").read_text()
    block = next(text for text in re.findall(r"```python\n(.*?)```", page, re.S)
        if "once_effect" in text)
    names = {}
    exec(block, names)  # pylint: disable=exec-used
    shop.autocommit = False
    said = names["order_and_pay"](shop, key, 1200)
    acknowledged(once, said)
    again = names["order_and_pay"](shop, key, 1200)
    assert again["effect_id"] == said["effect_id"]
    assert store.server.sql(f"SELECT count(*) FROM orders WHERE id = '{key}'") == "1"
    assert list(provider.effects.values()).count(2) == 0
