/*
 * What only the PostgreSQL store can get wrong: round trips, commits whose answer is lost, rows
 * that somebody changed, sessions that end, and its schema. It is past 800 lines because each
 * failure point has its test here.
 */
#include <libpq-fe.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "store/kit.h"
#include "store/postgres/postgres.h"
#include "store/proxy.h"

struct own {
    char schema[64];
    char url[512];     /* straight to the server */
    char through[512]; /* through the proxy */
    PGconn *psql;      /* as a person would look */
    struct proxy *proxy;
    struct store *store; /* through the proxy */
    struct arena arena;
};

static void run_sql(struct own *own, const char *sql)
{
    PGresult *result = PQexec(own->psql, sql);
    ExecStatusType kind = PQresultStatus(result);
    if (kind != PGRES_COMMAND_OK && kind != PGRES_TUPLES_OK) {
        print_error("%s: %s\n", sql, PQerrorMessage(own->psql));
    }
    assert_true(kind == PGRES_COMMAND_OK || kind == PGRES_TUPLES_OK);
    PQclear(result);
}

/* The one value that a query gives, as a number. */
static long ask_sql(struct own *own, const char *sql)
{
    PGresult *result = PQexec(own->psql, sql);
    if (PQresultStatus(result) != PGRES_TUPLES_OK) {
        print_error("%s: %s\n", sql, PQerrorMessage(own->psql));
    }
    assert_int_equal(PQntuples(result), 1);
    long value = strtol(PQgetvalue(result, 0, 0), NULL, 10);
    PQclear(result);
    return value;
}

static struct store *open_at(const char *url)
{
    struct store_options options = {.clock = &kit_clock};
    struct err err = {0};
    struct store *store = NULL;
    if (store_open(url, &options, &store, &err) != OK) {
        print_error("open: %s\n", err.text);
    }
    assert_non_null(store);
    return store;
}

static int setup(void **state)
{
    static unsigned number;
    struct own *own = calloc(1, sizeof *own);
    const char *server = getenv("ONCE_TEST_POSTGRES");
    const char *port = strrchr(server, ':') + 1;
    struct postgres_migration migration = {.grant_count = 0};
    char text[128];
    assert_non_null(own);
    (void)snprintf(own->schema, sizeof own->schema, "own_%u", number++);
    own->proxy = proxy_new((unsigned short)strtoul(port, NULL, 10));
    (void)snprintf(own->url, sizeof own->url, "%s?fsync=off&schema=%s", server, own->schema);
    (void)snprintf(own->through, sizeof own->through, "%.*s%u%s?fsync=off&schema=%s",
        (int)(port - server), server, proxy_port(own->proxy), strchr(port, '/'), own->schema);
    assert_int_equal(postgres_migrate(own->url, &migration, NULL), OK);
    own->psql = PQconnectdb(server);
    assert_int_equal(PQstatus(own->psql), CONNECTION_OK);
    (void)snprintf(text, sizeof text, "SET search_path = \"%s\"", own->schema);
    run_sql(own, text);
    kit_set_time(KIT_NOW);
    arena_init(&own->arena, &mem_libc, 64 << 20);
    own->store = open_at(own->through);
    *state = own;
    return 0;
}

static int teardown(void **state)
{
    struct own *own = *state;
    char text[128];
    run_sql(own, "ALTER SYSTEM RESET synchronous_standby_names"); /* a failed test's */
    run_sql(own, "SELECT pg_reload_conf()");
    if (own->store != NULL) {
        assert_int_equal(kit_close(own->store), OK);
    }
    proxy_free(own->proxy);
    (void)snprintf(text, sizeof text, "DROP SCHEMA \"%s\" CASCADE", own->schema);
    run_sql(own, "SET client_min_messages = warning");
    run_sql(own, text);
    PQfinish(own->psql);
    arena_release(&own->arena);
    free(own);
    return 0;
}

/* ---- round trips ------------------------------------------------------------------------- */

/* Begin so many operations at once, each with its entry; then seal them all. */
static void put_many(struct own *own, size_t count, uint64_t version, uint64_t *ret_trips)
{
    struct record *records = calloc(count, sizeof *records);
    struct store_want *wants = calloc(count, sizeof *wants);
    struct change *changes = calloc(count, sizeof *changes);
    char(*keys)[32] = calloc(count, sizeof *keys);
    struct err err = {0};
    struct store_head head;
    uint64_t before = postgres_round_trips(own->store);
    assert_true(records != NULL && wants != NULL && changes != NULL && keys != NULL);
    own->store->ops->head(own->store, &head);
    for (size_t i = 0; i < count; i++) {
        records[i] = kit_record((unsigned)i, i + 1);
        (void)snprintf(keys[i], sizeof keys[i], "key-%zu", i);
        records[i].key.key = slice_str(keys[i]);
        if (version == 1) {
            records[i] = kit_sealed(&records[i], KIT_NOW + 86400000);
        }
        wants[i] = (struct store_want){.key = &records[i].key.hash};
        changes[i] = (struct change){.kind = CHANGE_PUT,
            .record = &records[i],
            .version_expected = version,
            .entry = {.kind = ENTRY_EVIDENCE,
                .seq = head.seq + 1 + i,
                .operation_id = records[i].operation_id,
                .time_ms = KIT_NOW,
                .bytes = SLICE_LIT("{}")}};
    }
    struct store_batch batch = {
        .wants = wants, .count = count, .fences = count, .arena = &own->arena};
    assert_int_equal(own->store->ops->prepare(own->store, &batch, &err), OK);
    struct commit commit = {.changes = changes, .count = count};
    assert_int_equal(own->store->ops->commit(own->store, &commit, &err), OK);
    *ret_trips = postgres_round_trips(own->store) - before;
    free(records);
    free(wants);
    free(changes);
    free(keys);
}

static void a_batch_of_any_size_takes_two_round_trips(void **state)
{
    struct own *own = *state;
    static const size_t sizes[] = {1, 64, 1000};
    for (size_t i = 0; i < 3; i++) {
        uint64_t trips = 0;
        run_sql(own, "TRUNCATE records, tallies");
        put_many(own, sizes[i], 0, &trips);
        assert_int_equal(trips, 2);
        put_many(own, sizes[i], 1, &trips);
        assert_int_equal(trips, 2);
        assert_int_equal(
            ask_sql(own, "SELECT count(*) FROM operations WHERE status = 'executed'"), sizes[i]);
        assert_int_equal(
            kit_counts(own->store, STORE_OPERATIONS).by_status[RECORD_EXECUTED], sizes[i]);
    }
}

/* ---- rows that are alike ------------------------------------------------------------------- */

/* Commits new records. */
static void put_rows(struct own *own, const struct record *records, size_t count)
{
    struct change changes[4] = {{.kind = CHANGE_NONE}};
    struct err err = {0};
    struct store_batch batch = {.fences = 1};
    struct store_head head;
    assert_true(count <= 4);
    own->store->ops->head(own->store, &head);
    for (size_t i = 0; i < count; i++) {
        changes[i] = (struct change){.kind = CHANGE_PUT,
            .record = &records[i],
            .entry = {.kind = ENTRY_EVIDENCE,
                .seq = head.seq + 1 + i,
                .time_ms = KIT_NOW,
                .bytes = SLICE_LIT("{}")}};
    }
    struct commit commit = {.changes = changes, .count = count};
    assert_int_equal(own->store->ops->prepare(own->store, &batch, &err), OK);
    assert_int_equal(own->store->ops->commit(own->store, &commit, &err), OK);
}

/* New rows that do not differ in most columns have shorter statements: what these write is what the
 * other one writes. */
static void rows_that_are_alike_are_written_as_others_are(void **state)
{
    struct own *own = *state;
    struct record records[6];
    for (unsigned i = 0; i < 6; i++) {
        records[i] = kit_record(i, i + 1);
        records[i].lease_expires_ms += i < 4 ? i : 4;
        records[i].trace = SLICE_LIT("{\"request_id\":\"r\"}");
    }
    put_rows(own, &records[0], 2); /* alike */
    records[3] = kit_sealed(&records[3], KIT_NOW + 86400000);
    records[3].version = 1;
    put_rows(own, &records[2], 2); /* not alike */
    put_rows(own, &records[4], 2); /* the same */
    assert_int_equal(
        ask_sql(own, "SELECT count(DISTINCT to_jsonb(r) - ARRAY['key', 'key_hash', 'operation_id',"
                     " 'fence', 'lease_expires_at', 'due_at']) FROM records r"
                     " WHERE status = 'in_progress'"),
        1);
    assert_int_equal(
        ask_sql(own, "SELECT count(*) FROM records WHERE status = 'in_progress' AND due_at ="
                     " lease_expires_at AND trace = '{\"request_id\":\"r\"}'"),
        5);
    assert_int_equal(ask_sql(own, "SELECT count(DISTINCT (lease_expires_at, fence, key))"
                                  " FROM records"),
        6);
    for (unsigned i = 0; i < 6; i++) {
        const struct record *found = kit_load(own->store, i, &own->arena);
        assert_non_null(found);
        assert_int_equal(found->fence, records[i].fence);
        assert_int_equal(found->lease_expires_ms, records[i].lease_expires_ms);
    }
}

/* ---- counts -------------------------------------------------------------------------------- */

static uint64_t counted(struct own *own)
{
    struct err err = {0};
    struct store_batch batch = {.fences = 1};
    assert_int_equal(own->store->ops->prepare(own->store, &batch, &err), OK);
    own->store->ops->abort(own->store);
    return batch.counts.records;
}

/* Batches in quick succession do not ask for the counts again, but keys_max depends on them. */
static void a_batch_counts_our_own_records_at_once_and_those_of_others_soon(void **state)
{
    struct own *own = *state;
    struct store *other = open_at(own->url);
    struct record records[3] = {kit_record(0, 1), kit_record(1, 2), kit_record(2, 3)};
    assert_int_equal(counted(own), 0);
    put_rows(own, records, 2);
    assert_int_equal(counted(own), 2);
    assert_int_equal(kit_put(other, &records[2], 0), OK);
    for (int i = 0; i < 1000 && counted(own) < 3; i++) {
        (void)usleep(10000);
    }
    assert_int_equal(counted(own), 3);
    records[0] = kit_sealed(&records[0], KIT_NOW + 86400000);
    assert_int_equal(kit_put(own->store, &records[0], 1), OK);
    assert_int_equal(counted(own), 3);
    assert_int_equal(kit_counts(own->store, STORE_OPERATIONS).by_status[RECORD_EXECUTED], 1);
    assert_int_equal(kit_close(other), OK);
}

/* ---- plans --------------------------------------------------------------------------------- */

enum { DUE_ROWS = 4000, DUE_LIMIT = 64 };

/* How many entries of these indexes were read, once the session that did it is over. */
static long index_reads(struct own *own)
{
    for (int i = 0; i < 3000 && ask_sql(own, "SELECT count(*) FROM pg_stat_activity"
                                             " WHERE application_name = 'once'") > 0;
         i++) {
        (void)usleep(10000);
    }
    return ask_sql(own, "SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname ="
                        " current_schema() AND indexrelname IN ('records_due', 'records_unknown')");
}

/* Copies of one record: half of them are due, half are unknown. */
static void copy_many(struct own *own)
{
    struct record record = kit_record(1, 1);
    char sql[1024];
    assert_int_equal(kit_put(own->store, &record, 0), OK);
    (void)snprintf(sql, sizeof sql,
        "INSERT INTO records SELECT x.* FROM records r, generate_series(1, %d) AS n,"
        " LATERAL jsonb_populate_record(r, jsonb_build_object('key_hash',"
        " sha256(int4send(n))::text, 'status', CASE n %% 2 WHEN 0 THEN 'unknown' ELSE"
        " 'in_progress' END, 'due_at', CASE n %% 2 WHEN 1 THEN r.created_at - n / 7 *"
        " interval '1 ms' END, 'updated_at', r.created_at + n * interval '1 ms')) AS x",
        DUE_ROWS);
    run_sql(own, sql);
}

/* Statements are planned while the table is empty, and a plan is kept. It must not read all of a
 * table that has grown: a process would come to a halt when many leases end at once. */
static void what_is_due_or_counted_is_found_without_reading_the_rest(void **state)
{
    struct own *own = *state;
    struct store_due dues[DUE_LIMIT];
    for (int turn = 0; turn < 2; turn++) {
        size_t count = 0;
        assert_int_equal(
            kit_due(own->store, STORE_OPERATIONS, STORE_DUES_ALL, dues, DUE_LIMIT, &count), OK);
        assert_int_equal(count, turn == 0 ? 0 : DUE_LIMIT);
        size_t others = 1; /* of the other kinds none is due */
        assert_int_equal(kit_due(own->store, STORE_KINDS_ALL & ~STORE_OPERATIONS, STORE_DUES_ALL,
                             dues + 1, 1, &others),
            OK);
        assert_int_equal(others, 0);
        (void)kit_counts(own->store, STORE_KINDS_ASKED);
        if (turn == 0) {
            copy_many(own);
        }
    }
    assert_true(dues[0].due_ms < dues[DUE_LIMIT - 1].due_ms); /* the earliest come first */
    assert_int_equal(dues[0].due_ms, KIT_NOW - (DUE_ROWS - 1) / 7);
    assert_int_equal(kit_close(own->store), OK);
    own->store = NULL;
    assert_in_range(index_reads(own), DUE_LIMIT, 4 * DUE_LIMIT);
}

/* ---- cut connections --------------------------------------------------------------------- */

/* What a commit says has happened has, and nothing else has. */
static void check_put(struct own *own, unsigned number, enum status status)
{
    char sql[160];
    (void)snprintf(sql, sizeof sql, "SELECT count(*) FROM records WHERE key = 'key-%u'", number);
    assert_true(status == OK || status == E_UNAVAILABLE);
    assert_int_equal(ask_sql(own, sql), status == OK);
    struct store_head head;
    own->store->ops->head(own->store, &head);
    assert_int_equal(ask_sql(own, "SELECT max(seq) FROM chains"), head.seq);
    assert_int_equal(
        ask_sql(own, "SELECT count(*) FROM entries WHERE kind = 'evidence'"), head.seq);
}

enum cut { CUT_REQUEST, CUT_ANSWER, CUT_ANSWER_BY_PANIC };

static void cut_arm(struct own *own, enum cut cut, long bytes)
{
    /* As a server says it whose disk fails while it writes the commit. */
    static const char panic[] = "E\0\0\0\x27SPANIC\0VPANIC\0C58030\0Mdisk failed\0\0";
    switch (cut) {
    case CUT_REQUEST: proxy_cut_request(own->proxy, bytes); return;
    case CUT_ANSWER: proxy_cut_answer(own->proxy, bytes); return;
    case CUT_ANSWER_BY_PANIC:
        assert_int_equal(sizeof panic - 2, 0x27);
        proxy_end_answer(own->proxy, bytes, panic, sizeof panic - 1);
        return;
    }
}

/* Cut at every so many bytes of the commit. Returns how often it was cut and the commit had
 * happened all the same. */
static unsigned cut_commits(struct own *own, enum cut how, long stride)
{
    unsigned happened = 0;
    bool cut = true;
    for (long bytes = 0; cut; bytes += stride) {
        static unsigned number;
        struct err err = {0};
        struct store_batch batch = {.fences = 1};
        struct record record = kit_record(number + 1, number + 1);
        number++;
        struct change change = {.kind = CHANGE_PUT,
            .record = &record,
            .entry = kit_entry(own->store, &record.operation_id, "{\"a\":1}")};
        struct commit commit = {.changes = &change, .count = 1};
        assert_int_equal(own->store->ops->prepare(own->store, &batch, &err), OK);
        cut_arm(own, how, bytes);
        enum status status = own->store->ops->commit(own->store, &commit, &err);
        cut = proxy_has_cut(own->proxy);
        check_put(own, number, status);
        happened += cut && status == OK;
        assert_true(cut || status == OK);
    }
    return happened;
}

static void a_commit_cut_on_its_way_did_not_happen(void **state)
{
    struct own *own = *state;
    long stride = getenv("ONCE_TEST_LONG") != NULL ? 1 : 61;
    /* The last bytes are a sync that nothing depends on. */
    (void)cut_commits(own, CUT_REQUEST, stride);
}

static void a_commit_whose_answer_is_lost_is_looked_up(void **state)
{
    struct own *own = *state;
    long stride = getenv("ONCE_TEST_LONG") != NULL ? 1 : 23;
    assert_true(cut_commits(own, CUT_ANSWER, stride) > 3); /* never guessed: they did happen */
}

/* A server that fails may have written the commit: its last words do not say. */
static void a_commit_that_ends_in_a_panic_is_looked_up(void **state)
{
    struct own *own = *state;
    long stride = getenv("ONCE_TEST_LONG") != NULL ? 1 : 23;
    assert_true(cut_commits(own, CUT_ANSWER_BY_PANIC, stride) > 0);
}

/* The client gave the connection up, and the bytes of its commit come to the server later than its
 * question what became of it. */
static void a_commit_that_comes_after_its_fate_was_told_fails(void **state)
{
    struct own *own = *state;
    struct err err = {0};
    char answer[4096];
    struct store_batch batch = {.fences = 1};
    struct record record = kit_record(1, 1);
    struct change change = {.kind = CHANGE_PUT,
        .record = &record,
        .entry = kit_entry(own->store, &record.operation_id, "{\"a\":1}")};
    struct commit commit = {.changes = &change, .count = 1};
    assert_int_equal(own->store->ops->prepare(own->store, &batch, &err), OK);
    proxy_hold(own->proxy);
    enum status status = own->store->ops->commit(own->store, &commit, &err);
    assert_int_equal(status, E_UNAVAILABLE);
    assert_non_null(strstr(err.text, "nothing happened"));
    proxy_deliver(own->proxy, answer, sizeof answer);
    (void)usleep(100000);
    check_put(own, 1, E_UNAVAILABLE);
    assert_int_equal(kit_put(own->store, &record, 0), OK); /* and it goes on */
    check_put(own, 1, OK);
}

/* A handle of its own that commits while nobody can be asked what became of it. */
struct untold {
    struct own *own;
    struct proxy *proxy;
    struct store *store;
    bool answers; /* the answer is cut, not the request */
    struct record record;
    struct change change;
    enum status status; /* of the commit */
    struct err err;
};

static void untold_start(struct untold *untold, struct own *own, bool answers)
{
    const char *server = getenv("ONCE_TEST_POSTGRES");
    const char *port = strrchr(server, ':') + 1;
    unsigned number = answers ? 1 : 2;
    char url[512];
    struct err err = {0};
    struct store_batch batch = {.fences = 1};
    *untold = (struct untold){.own = own, .answers = answers};
    untold->proxy = proxy_new((unsigned short)strtoul(port, NULL, 10));
    (void)snprintf(url, sizeof url, "%.*s%u%s?fsync=off&schema=%s", (int)(port - server), server,
        proxy_port(untold->proxy), strchr(port, '/'), own->schema);
    untold->store = open_at(url);
    untold->record = kit_record(number, number);
    untold->change = (struct change){.kind = CHANGE_PUT,
        .record = &untold->record,
        .entry = kit_entry(untold->store, &untold->record.operation_id, "{\"a\":1}")};
    assert_int_equal(untold->store->ops->prepare(untold->store, &batch, &err), OK);
    if (answers) {
        proxy_cut_answer(untold->proxy, 0);
    } else {
        proxy_cut_request(untold->proxy, 0);
    }
}

static void *untold_commit(void *context)
{
    struct untold *untold = context;
    struct commit commit = {.changes = &untold->change, .count = 1};
    untold->status = untold->store->ops->commit(untold->store, &commit, &untold->err);
    return NULL;
}

static void untold_check(struct untold *untold)
{
    struct err err = {0};
    struct store_batch batch = {.fences = 1};
    struct store_head head;
    struct store *store = untold->store;
    char sql[160];
    assert_int_equal(untold->status, E_UNKNOWN);
    (void)snprintf(sql, sizeof sql, "SELECT count(*) FROM records WHERE key = 'key-%u'",
        untold->answers ? 1 : 2);
    assert_int_equal(ask_sql(untold->own, sql), untold->answers);
    assert_int_equal(store->ops->prepare(store, &batch, &err), OK); /* P11: settled, not guessed */
    store->ops->abort(store);
    store->ops->head(store, &head);
    assert_int_equal(head.seq, untold->answers);
    assert_int_equal(kit_put(store, &untold->record, 0), untold->answers ? E_STALE : OK);
    assert_int_equal(kit_close(store), OK);
    proxy_free(untold->proxy);
}

/* The time in which it may be asked runs out. The calls of the commit are not told what became of
 * it; the store knows as soon as the server is back, and goes on. */
static void a_commit_that_nobody_could_ask_about_is_settled_later(void **state)
{
    struct own *own = *state;
    struct untold untold[2];
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++) {
        untold_start(&untold[i], own, i == 0);
    }
    run_sql(own, "ALTER TABLE migrations RENAME TO hidden"); /* no new connection is of use */
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, untold_commit, &untold[i]), 0);
    }
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    run_sql(own, "ALTER TABLE hidden RENAME TO migrations");
    for (size_t i = 0; i < 2; i++) {
        untold_check(&untold[i]);
    }
}

/* A server that comes back finds the store as it was left, and nothing is granted meanwhile. */
static void a_server_that_was_away_is_used_again(void **state)
{
    struct own *own = *state;
    struct err err = {0};
    struct store_batch batch = {.fences = 1};
    struct record record = kit_record(1, 1);
    assert_int_equal(kit_put(own->store, &record, 0), OK);
    proxy_block(own->proxy, true);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(own->store->ops->prepare(own->store, &batch, &err), E_UNAVAILABLE);
    }
    proxy_block(own->proxy, false);
    kit_set_time(KIT_NOW + 5000); /* past the pause between two attempts */
    assert_int_equal(own->store->ops->prepare(own->store, &batch, &err), OK);
    own->store->ops->abort(own->store);
    assert_non_null(kit_load(own->store, 1, &own->arena));
}

/* ---- two commits under way ----------------------------------------------------------------- */

/* A commit of one new record, which may be under way when this returns. */
struct under_way {
    struct record record;
    struct store_want want;
    struct store_batch batch;
    uint64_t number; /* 0: it is not under way */
    enum status status;
    struct err err;
};

static enum status way_prepare(struct own *own, struct under_way *way, unsigned number)
{
    *way = (struct under_way){.record = kit_record(number, number)};
    way->want = (struct store_want){.key = &way->record.key.hash};
    way->batch =
        (struct store_batch){.wants = &way->want, .count = 1, .fences = 1, .arena = &own->arena};
    return own->store->ops->prepare(own->store, &way->batch, &way->err);
}

static void way_commit(struct own *own, struct under_way *way)
{
    struct change change = {.kind = CHANGE_PUT,
        .record = &way->record,
        .entry = kit_entry(own->store, &way->record.operation_id, "{\"a\":1}")};
    struct commit commit = {.changes = &change, .count = 1, .ret_number = &way->number};
    way->status = own->store->ops->commit(own->store, &commit, &way->err);
}

static enum status way_settle(struct own *own, struct under_way *way)
{
    if (way->status == OK && way->number != 0) {
        way->status = own->store->ops->settle(own->store, way->number, &way->err);
    }
    return way->status;
}

static bool is_there(struct own *own, unsigned number)
{
    char sql[160];
    (void)snprintf(sql, sizeof sql, "SELECT count(*) FROM records WHERE key = 'key-%u'", number);
    return ask_sql(own, sql) == 1;
}

enum { WAY_FIRST = 100 }; /* keys before it are there from the start */

/* Enough commits for a second connection; then COMMIT of key-101 waits for a lock that we hold, and
 * fails if it is told to. */
static void way_begin(struct own *own, bool fails)
{
    for (unsigned i = 0; i < 20; i++) {
        struct record record = kit_record(i, i + 1);
        assert_int_equal(kit_put(own->store, &record, 0), OK);
    }
    run_sql(own, "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                 " PERFORM pg_advisory_lock(77); PERFORM pg_advisory_unlock(77);"
                 " IF TG_ARGV[0] = 'fails' THEN RAISE 'no room for this commit'; END IF;"
                 " RETURN NULL; END $$");
    run_sql(own, fails ? "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON records DEFERRABLE"
                         " INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.key = 'key-101')"
                         " EXECUTE FUNCTION slow('fails')"
                       : "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON records DEFERRABLE"
                         " INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.key = 'key-101')"
                         " EXECUTE FUNCTION slow()");
    run_sql(own, "SELECT pg_advisory_lock(77)");
}

/* The store goes on, and the chain is what the database has. */
static void way_end(struct own *own)
{
    struct store_head head;
    struct record record = kit_record(WAY_FIRST + 50, WAY_FIRST + 50);
    run_sql(own, "DROP TRIGGER slow ON records");
    struct store_batch empty = {.fences = 1};
    struct err err = {0};
    kit_set_time(KIT_NOW + 5000); /* past the pause between two attempts to connect */
    assert_int_equal(own->store->ops->prepare(own->store, &empty, &err), OK); /* shows the head */
    own->store->ops->abort(own->store);
    assert_int_equal(kit_put(own->store, &record, 0), OK);
    own->store->ops->head(own->store, &head);
    assert_int_equal(ask_sql(own, "SELECT max(seq) FROM chains"), head.seq);
    assert_int_equal(
        ask_sql(own, "SELECT count(*) FROM entries WHERE kind = 'evidence'"), head.seq);
    assert_int_equal(kit_counts(own->store, STORE_OPERATIONS).records,
        ask_sql(own, "SELECT count(*) FROM records"));
}

static void the_next_batch_is_prepared_while_a_commit_is_under_way(void **state)
{
    struct own *own = *state;
    struct under_way ways[2];
    way_begin(own, false);
    assert_int_equal(way_prepare(own, &ways[0], 101), OK);
    uint64_t before = postgres_round_trips(own->store);
    way_commit(own, &ways[0]);
    assert_int_equal(ways[0].status, OK);
    assert_true(ways[0].number > 0);
    assert_false(is_there(own, 101)); /* P2: nobody sees it yet */
    assert_int_equal(way_prepare(own, &ways[1], 102), OK);
    run_sql(own, "SELECT pg_advisory_unlock(77)");
    way_commit(own, &ways[1]);
    assert_int_equal(way_settle(own, &ways[1]), OK);
    assert_int_equal(way_settle(own, &ways[0]), OK);                /* in any order */
    assert_int_equal(postgres_round_trips(own->store) - before, 3); /* commit, prepare, commit */
    assert_true(is_there(own, 101) && is_there(own, 102));
    way_end(own);
}

/* The counterpart of the same: waits until somebody waits for the lock of a key, then lets COMMIT
 * go on. */
static void *let_go(void *context)
{
    struct own *own = context;
    for (int i = 0; i < 500 && ask_sql(own, "SELECT count(*) FROM pg_locks WHERE NOT granted"
                                            " AND locktype = 'advisory'") < 2;
         i++) {
        (void)usleep(10000);
    }
    run_sql(own, "SELECT pg_advisory_unlock(77)");
    return NULL;
}

static void a_prepare_of_the_same_key_waits_for_the_commit_under_way(void **state)
{
    struct own *own = *state;
    struct under_way ways[2];
    pthread_t thread;
    way_begin(own, false);
    assert_int_equal(way_prepare(own, &ways[0], 101), OK);
    way_commit(own, &ways[0]);
    assert_int_equal(pthread_create(&thread, NULL, let_go, own), 0);
    assert_int_equal(way_prepare(own, &ways[1], 101), OK);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_non_null(ways[1].want.record); /* S1 */
    own->store->ops->abort(own->store);
    assert_int_equal(way_settle(own, &ways[0]), OK);
    way_end(own);
}

/* S15: what was decided on a commit that did not happen does not happen either. */
static void after_a_failed_commit_nothing_that_was_prepared_happens(void **state)
{
    struct own *own = *state;
    struct under_way ways[2];
    way_begin(own, true);
    assert_int_equal(way_prepare(own, &ways[0], 101), OK);
    way_commit(own, &ways[0]);
    assert_int_equal(ways[0].status, OK);
    assert_int_equal(way_prepare(own, &ways[1], 102), OK);
    run_sql(own, "SELECT pg_advisory_unlock(77)");
    way_commit(own, &ways[1]);
    assert_int_equal(way_settle(own, &ways[0]), E_UNAVAILABLE);
    assert_int_equal(way_settle(own, &ways[1]), E_UNAVAILABLE);
    assert_false(is_there(own, 101) || is_there(own, 102));
    way_end(own);
}

enum { SOON_TRIES = 3000, SOON_MS = 10 };

/* Waits until a session waits for this. Returns its pid. */
static int waits_for(struct own *own, const char *event, int not_pid)
{
    char sql[256];
    (void)snprintf(sql, sizeof sql,
        "SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE application_name = 'once'"
        " AND wait_event = '%s' AND pid <> %d",
        event, not_pid);
    for (int i = 0; i < SOON_TRIES; i++) {
        long pid = ask_sql(own, sql);
        if (pid > 0) {
            return (int)pid;
        }
        (void)usleep(SOON_MS * 1000);
    }
    print_error("no session waits for %s\n", event);
    fail();
    return 0;
}

/* The session of the commit under way is ended, or both are. */
static void end_sessions(struct own *own, bool both)
{
    struct under_way ways[2];
    way_begin(own, false);
    assert_int_equal(way_prepare(own, &ways[0], 101), OK);
    way_commit(own, &ways[0]);
    assert_int_equal(way_prepare(own, &ways[1], 102), OK);
    (void)waits_for(own, "advisory", 0); /* COMMIT was sent, and may not have arrived */
    assert_true(ask_sql(own, both ? "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                                    " WHERE application_name = 'once' AND pid <> pg_backend_pid()"
                                  : "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                                    " WHERE wait_event = 'advisory'") >= (both ? 2 : 1));
    run_sql(own, "SELECT pg_advisory_unlock(77)");
    way_commit(own, &ways[1]);
    assert_int_equal(way_settle(own, &ways[1]), E_UNAVAILABLE);
    assert_int_equal(way_settle(own, &ways[0]), E_UNAVAILABLE); /* looked up, not guessed */
    assert_false(is_there(own, 101) || is_there(own, 102));
    way_end(own);
}

static void a_commit_under_way_whose_session_ends_did_not_happen(void **state)
{
    end_sessions(*state, false);
}

static void two_sessions_that_end_take_both_commits_with_them(void **state)
{
    end_sessions(*state, true);
}

/* Cut both directions at every so many bytes while two commits are under way: what each is told is
 * what the database has. */
static unsigned cut_pairs(struct own *own, bool answers, long stride)
{
    static unsigned number = 1000;
    unsigned happened = 0;
    bool cut = true;
    for (long bytes = 0; cut; bytes += stride) {
        struct under_way ways[2];
        unsigned first = number;
        number += 2;
        assert_int_equal(way_prepare(own, &ways[0], first), OK);
        if (answers) {
            proxy_cut_answer(own->proxy, bytes);
        } else {
            proxy_cut_request(own->proxy, bytes);
        }
        way_commit(own, &ways[0]);
        enum status prepared = way_prepare(own, &ways[1], first + 1);
        ways[1].status = prepared;
        if (prepared == OK) {
            way_commit(own, &ways[1]);
        }
        for (unsigned i = 0; i < 2; i++) {
            enum status status = way_settle(own, &ways[i]);
            assert_true(status == OK || status == E_UNAVAILABLE);
            assert_int_equal(is_there(own, first + i), status == OK);
        }
        cut = proxy_has_cut(own->proxy);
        happened += cut && ways[0].status == OK;
        struct store_batch empty = {.fences = 1};
        assert_int_equal(own->store->ops->prepare(own->store, &empty, &ways[0].err), OK);
        own->store->ops->abort(own->store);
        struct store_head head;
        own->store->ops->head(own->store, &head);
        assert_int_equal(ask_sql(own, "SELECT max(seq) FROM chains"), head.seq);
    }
    return happened;
}

static void two_commits_cut_anywhere_are_told_what_became_of_them(void **state)
{
    struct own *own = *state;
    bool is_long = getenv("ONCE_TEST_LONG") != NULL;
    for (unsigned i = 0; i < 20; i++) {
        struct record record = kit_record(i, i + 1);
        assert_int_equal(kit_put(own->store, &record, 0), OK);
    }
    (void)cut_pairs(own, false, is_long ? 1 : 397);
    assert_true(cut_pairs(own, true, is_long ? 1 : 61) > 3);
}

/* ---- the database is killed while two commits are under way --------------------------------- */

/* How far the two have come. */
enum killed_at {
    KILLED_EARLY,   /* the first is not written to the log yet; the marker of the second waits */
    KILLED_BETWEEN, /* the first is in the log, and not answered: it waits for a standby */
    KILLED_LATE,    /* both are in the log, and the client has no answer to either */
};

/* A commit on a thread of its own: its marker waits on the server for the one before. */
struct pg_sent {
    struct own *own;
    struct under_way way;
    pthread_t thread;
};

static void *sent_commit(void *context)
{
    struct pg_sent *sent = context;
    way_commit(sent->own, &sent->way);
    return NULL;
}

/* From now on (or no longer) a commit waits for a standby, after it is in the log: there is none. A
 * change of the setting takes its time, so a commit of ours tells when it holds. */
static void standby_wanted(struct own *own, bool is_wanted)
{
    run_sql(own, is_wanted ? "ALTER SYSTEM SET synchronous_standby_names = 'nobody'"
                           : "ALTER SYSTEM RESET synchronous_standby_names");
    run_sql(own, "SELECT pg_reload_conf()");
    PGconn *probe = PQconnectdb(getenv("ONCE_TEST_POSTGRES"));
    assert_int_equal(PQstatus(probe), CONNECTION_OK);
    bool waits = !is_wanted;
    for (int i = 0; i < SOON_TRIES && waits != is_wanted; i++) {
        assert_true(PQsendQuery(probe, "SELECT pg_logical_emit_message(true, 'probe', '')"));
        char sql[128];
        (void)snprintf(sql, sizeof sql,
            "SELECT count(*) FROM pg_stat_activity WHERE pid = %d AND wait_event = 'SyncRep'",
            PQbackendPID(probe));
        waits = false;
        for (int j = 0; j < SOON_TRIES && !waits && PQconsumeInput(probe) && PQisBusy(probe); j++) {
            waits = ask_sql(own, sql) == 1;
        }
        char text[256];
        PGcancel *cancel = PQgetCancel(probe);
        assert_true(!waits || PQcancel(cancel, text, sizeof text));
        PQfreeCancel(cancel);
        for (PGresult *result; (result = PQgetResult(probe)) != NULL;) {
            PQclear(result);
        }
    }
    assert_int_equal(waits, is_wanted);
    PQfinish(probe);
}

/* Whether it was started for the tests: somebody's own is not for killing. */
static bool is_private(struct own *own)
{
    return ask_sql(own, "SELECT count(*) FROM pg_settings WHERE name = 'data_directory'"
                        " AND setting LIKE '%/once-postgres-%'") == 1;
}

/* Once the server has ended our session too, and has recovered. */
static void connect_again(struct own *own)
{
    char text[128];
    for (int i = 0; i < SOON_TRIES && PQstatus(own->psql) == CONNECTION_OK; i++) {
        PQclear(PQexec(own->psql, "SELECT 1"));
        (void)usleep(SOON_MS * 1000);
    }
    assert_int_equal(PQstatus(own->psql), CONNECTION_BAD);
    for (int i = 0; i < SOON_TRIES; i++) {
        PQreset(own->psql);
        if (PQstatus(own->psql) == CONNECTION_OK) {
            break;
        }
        (void)usleep(SOON_MS * 1000);
    }
    (void)snprintf(text, sizeof text, "SET search_path = \"%s\"", own->schema);
    run_sql(own, text);
}

/* Has both under way as far as that. Returns a session to kill. */
static int two_under_way(
    struct own *own, enum killed_at at, struct under_way *first, struct pg_sent *second)
{
    way_begin(own, false);
    if (at != KILLED_EARLY) {
        run_sql(own, "SELECT pg_advisory_unlock(77)");
        standby_wanted(own, true);
    }
    assert_int_equal(way_prepare(own, first, 101), OK);
    way_commit(own, first);
    assert_int_equal(first->status, OK);
    assert_true(first->number > 0);
    int pid = waits_for(own, at == KILLED_EARLY ? "advisory" : "SyncRep", 0);
    second->own = own;
    assert_int_equal(way_prepare(own, &second->way, 102), OK);
    assert_int_equal(pthread_create(&second->thread, NULL, sent_commit, second), 0);
    int after = waits_for(own, "transactionid", pid);
    if (at == KILLED_LATE) {
        char sql[64];
        proxy_mute(own->proxy, true);
        (void)snprintf(sql, sizeof sql, "SELECT pg_cancel_backend(%d)", pid);
        run_sql(own, sql); /* it no longer waits for the standby: it has happened */
        assert_int_equal(waits_for(own, "SyncRep", pid), after);
    }
    return pid;
}

/* On a machine that stalls, the time in which it may be asked can run out. */
static void check_fate(enum status status, bool happened)
{
    assert_true(status == E_UNKNOWN || status == (happened ? OK : E_UNAVAILABLE));
}

/* P1, P2, P11: what each is told is what the database has, and nothing is granted again. */
static void kill_two(struct own *own, enum killed_at at)
{
    struct under_way first;
    struct pg_sent second;
    if (!is_private(own)) {
        skip();
    }
    int pid = two_under_way(own, at, &first, &second);
    /* The server ends all other sessions too, and recovers from its log. */
    assert_int_equal(kill(pid, SIGKILL), 0);
    connect_again(own);
    proxy_mute(own->proxy, false);
    if (at != KILLED_EARLY) {
        standby_wanted(own, false); /* whoever asks what became of it commits too */
    }
    assert_int_equal(pthread_join(second.thread, NULL), 0);
    check_fate(way_settle(own, &first), at != KILLED_EARLY);
    check_fate(way_settle(own, &second.way), at == KILLED_LATE);
    assert_int_equal(is_there(own, 101), at != KILLED_EARLY);
    assert_int_equal(is_there(own, 102), at == KILLED_LATE);
    way_end(own);
    assert_int_equal(kit_put(own->store, &first.record, 0), at == KILLED_EARLY ? OK : E_STALE);
    assert_int_equal(kit_put(own->store, &second.way.record, 0), at == KILLED_LATE ? E_STALE : OK);
}

static void two_commits_killed_before_the_log_did_not_happen(void **state)
{
    kill_two(*state, KILLED_EARLY);
}

static void of_two_commits_killed_the_one_in_the_log_happened(void **state)
{
    kill_two(*state, KILLED_BETWEEN);
}

static void two_commits_killed_after_the_log_happened_though_nobody_was_told(void **state)
{
    kill_two(*state, KILLED_LATE);
}

/* ---- sessions ---------------------------------------------------------------------------- */

/* What the server does to a session that holds its locks for too long. */
static void the_commit_of_a_session_that_was_ended_fails(void **state)
{
    struct own *own = *state;
    struct err err = {0};
    struct record record = kit_record(1, 1);
    struct store_want want = {.key = &record.key.hash};
    struct store_batch batch = {.wants = &want, .count = 1, .fences = 1, .arena = &own->arena};
    struct change change = {.kind = CHANGE_PUT,
        .record = &record,
        .entry = kit_entry(own->store, &record.operation_id, "{\"a\":1}")};
    struct commit commit = {.changes = &change, .count = 1};
    assert_int_equal(own->store->ops->prepare(own->store, &batch, &err), OK);
    assert_int_equal(ask_sql(own, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
                                  " AND granted"),
        1);
    assert_int_equal(ask_sql(own, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                                  " WHERE state = 'idle in transaction'"),
        1);
    struct store *other = open_at(own->url);
    assert_int_equal(kit_put(other, &record, 0), OK); /* its keys are free */
    assert_int_equal(own->store->ops->commit(own->store, &commit, &err), E_UNAVAILABLE);
    assert_int_equal(kit_load(own->store, 1, &own->arena)->version, 1);
    assert_int_equal(kit_close(other), OK);
}

/* A connection broke, and the server does not know: its session waits in the middle of a request,
 * and holds the row of our chain. The look-up that waits for the row ends it. */
static void a_session_that_holds_up_its_own_look_up_is_ended(void **state)
{
    struct own *own = *state;
    struct err err = {0};
    struct store_batch batch = {.fences = 1};
    struct record record = kit_record(1, 1);
    struct change change = {.kind = CHANGE_PUT,
        .record = &record,
        .entry = kit_entry(own->store, &record.operation_id, "{\"a\":1}")};
    struct commit commit = {.changes = &change, .count = 1};
    char search[96];
    (void)snprintf(search, sizeof search, "SET search_path = \"%s\"", own->schema);
    const char *const words[] = {search, "BEGIN", "SELECT pg_advisory_xact_lock(1)",
        "UPDATE chains SET epoch = epoch", "SELECT 1"};
    PGconn *stalled = PQconnectdb(getenv("ONCE_TEST_POSTGRES"));
    assert_int_equal(PQenterPipelineMode(stalled), 1);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        assert_int_equal(PQsendQueryParams(stalled, words[i], 0, NULL, NULL, NULL, NULL, 0), 1);
    }
    assert_int_equal(PQflush(stalled), 0); /* and no sync */
    while (ask_sql(own, "SELECT count(*) FROM pg_locks WHERE relation = 'chains'::regclass"
                        " AND mode = 'RowExclusiveLock' AND granted") == 0) {
        (void)usleep(10000);
    }
    assert_int_equal(own->store->ops->prepare(own->store, &batch, &err), OK);
    proxy_cut_request(own->proxy, 0);
    enum status status = own->store->ops->commit(own->store, &commit, &err);
    enum status next = own->store->ops->prepare(own->store, &batch, &err);
    PQfinish(stalled);
    assert_int_equal(status, E_UNKNOWN); /* its time is over */
    assert_int_equal(next, OK);
    own->store->ops->abort(own->store);
    check_put(own, 1, E_UNAVAILABLE);
    assert_int_equal(kit_put(own->store, &record, 0), OK);
}

/* The bound itself, on the server's clock. */
static void a_stalled_process_holds_its_keys_for_a_bounded_time(void **state)
{
    struct own *own = *state;
    struct err err = {0};
    struct record record = kit_record(1, 1);
    struct store_want want = {.key = &record.key.hash};
    struct store_batch batch = {.wants = &want, .count = 1, .fences = 1, .arena = &own->arena};
    assert_int_equal(ask_sql(own, "SELECT count(*) FROM pg_settings WHERE false"), 0);
    if (getenv("ONCE_TEST_LONG") == NULL) {
        skip();
    }
    assert_int_equal(own->store->ops->prepare(own->store, &batch, &err), OK);
    struct store *other = open_at(own->url);
    struct store_want same = {.key = &record.key.hash};
    struct store_batch waits = {.wants = &same, .count = 1, .fences = 1, .arena = &own->arena};
    uint64_t began = clock_nanos();
    assert_int_equal(other->ops->prepare(other, &waits, &err), OK);
    uint64_t took_ms = (clock_nanos() - began) / 1000000;
    assert_in_range(took_ms, LIMIT_PREPARED_MS_MAX - 2000, LIMIT_PREPARED_MS_MAX + 2000);
    other->ops->abort(other);
    assert_int_equal(kit_close(other), OK);
    own->store->ops->abort(own->store);
}

/* ---- rows that somebody changed ---------------------------------------------------------- */

static void the_primary_key_is_the_hash_and_the_tenant(void **state)
{
    struct own *own = *state;
    assert_int_equal(ask_sql(own, "SELECT count(*) FROM pg_index WHERE indisprimary"
                                  " AND indrelid = 'records'::regclass"
                                  " AND pg_get_indexdef(indexrelid)"
                                  " LIKE '%(key_hash, tenant_id)'"),
        1); /* ADR-5 */
}

static void a_row_that_does_not_check_out_is_corrupt(void **state)
{
    struct own *own = *state;
    static const char *const changes[] = {
        "UPDATE records SET key = 'other'",
        "UPDATE records SET scope = 'other'",
        "UPDATE records SET kind = 'effect'",
        "UPDATE records SET status = 'executed'",
        "UPDATE records SET lease_expires_at = NULL",
        "UPDATE records SET fence = 0",
        "UPDATE records SET request_body = 'PAY'",
        "UPDATE records SET request_body = NULL",
        "UPDATE records SET request_digest = sha256('pay it')",
    };
    struct slice body = SLICE_LIT("pay");
    struct record record = kit_record(1, 1);
    record.request = kit_body(body);
    struct change change = {.kind = CHANGE_PUT, .record = &record, .request_body = body};
    struct commit commit = {.changes = &change, .count = 1};
    struct err err = {0};
    assert_int_equal(kit_commit(own->store, &commit, KIT_NOW, &err), OK);
    run_sql(own, "CREATE TABLE kept AS SELECT * FROM records");
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        struct slice bytes = SLICE_EMPTY;
        run_sql(own, changes[i]);
        enum status status =
            kit_bytes(own->store, &record.key.hash, WANT_REQUEST, &own->arena, &bytes, &err);
        if (status != E_CORRUPT) {
            print_error("%s: %s\n", changes[i], status_name(status));
        }
        assert_int_equal(status, E_CORRUPT); /* P11: never absent */
        run_sql(own, "DELETE FROM records");
        run_sql(own, "INSERT INTO records SELECT * FROM kept");
        assert_int_equal(
            kit_bytes(own->store, &record.key.hash, WANT_REQUEST, &own->arena, &bytes, &err), OK);
    }
}

static void a_server_that_lost_our_commits_is_an_older_copy(void **state)
{
    struct own *own = *state;
    struct err err = {0};
    struct store_batch batch = {.fences = 1};
    struct record records[2] = {kit_record(1, 1), kit_record(2, 2)};
    assert_int_equal(kit_put(own->store, &records[0], 0), OK);
    assert_int_equal(kit_put(own->store, &records[1], 0), OK);
    run_sql(own, "UPDATE chains SET commits = 1");
    proxy_block(own->proxy, true);
    assert_int_equal(own->store->ops->prepare(own->store, &batch, &err), E_UNAVAILABLE);
    proxy_block(own->proxy, false);
    kit_set_time(KIT_NOW + 5000);
    assert_int_equal(own->store->ops->prepare(own->store, &batch, &err), E_CORRUPT);
    assert_non_null(strstr(err.text, "older copy"));
}

/* ---- housekeeping ------------------------------------------------------------------------ */

/* Housekeeping of one process does not take away what a batch of a different one has read. */
static void a_record_of_a_prepared_batch_is_not_forgotten(void **state)
{
    struct own *own = *state;
    struct err err = {0};
    struct record record = kit_record(1, 1);
    struct record sealed = kit_sealed(&record, KIT_NOW + 5000);
    struct commit time_passes = {.count = 0};
    struct store *other = open_at(own->url);
    assert_int_equal(kit_put(own->store, &record, 0), OK);
    assert_int_equal(kit_put(own->store, &sealed, 1), OK);
    struct store_want want = {.key = &record.key.hash};
    struct store_batch batch = {.wants = &want, .count = 1, .fences = 1, .arena = &own->arena};
    assert_int_equal(own->store->ops->prepare(own->store, &batch, &err), OK);
    assert_int_equal(kit_commit(other, &time_passes, KIT_NOW + 6000, &err), OK);
    assert_int_equal(kit_maintain(other, KIT_NOW + 6000, &err), OK);
    assert_int_equal(ask_sql(own, "SELECT count(*) FROM records"), 1);
    own->store->ops->abort(own->store);
    assert_int_equal(kit_maintain(other, KIT_NOW + 8000, &err), OK);
    assert_int_equal(ask_sql(own, "SELECT count(*) FROM records"), 0);
    assert_int_equal(kit_counts(own->store, STORE_OPERATIONS).records, 0);
    assert_int_equal(kit_close(other), OK);
}

static void evidence_past_its_retention_goes_with_its_partition(void **state)
{
    struct own *own = *state;
    struct err err = {0};
    assert_true(ask_sql(own, "SELECT count(*) FROM pg_inherits WHERE inhparent ="
                             " 'entries'::regclass") >= 3);
    run_sql(own, "CREATE TABLE entries_2022_03 PARTITION OF entries"
                 " FOR VALUES FROM ('2022-03-01 00:00+00') TO ('2022-04-01 00:00+00')");
    run_sql(own, "INSERT INTO entries (chain_id, seq, kind, decided_at, tenant_id, prev_hash, hash,"
                 " entry) SELECT gen_random_uuid(), 7, 'evidence', '2022-03-02', 't', sha256('a'),"
                 " sha256('b'), '{}'");
    struct record record = kit_record(1, 1);
    assert_int_equal(kit_put(own->store, &record, 0), OK);
    assert_int_equal(kit_maintain(own->store, KIT_NOW + 20000, &err), OK);
    assert_int_equal(ask_sql(own, "SELECT count(*) FROM entries"), 1); /* 2023's stays */
    assert_int_equal(ask_sql(own, "SELECT (to_regclass('entries_2022_03') IS NULL)::int"), 1);
    assert_int_equal(ask_sql(own, "SELECT seq FROM removals WHERE hash = sha256('b')"), 7);
}

static void a_retention_of_an_hour_removes_evidence_too(void **state)
{
    struct own *own = *state;
    struct err err = {0};
    struct store_options options = {.clock = &kit_clock, .retain_ms = 3600000};
    struct store *store = NULL;
    assert_int_equal(store_open(own->url, &options, &store, &err), OK);
    run_sql(own, "CREATE TABLE entries_2022_03 PARTITION OF entries"
                 " FOR VALUES FROM ('2022-03-01 00:00+00') TO ('2022-04-01 00:00+00')");
    struct record record = kit_record(1, 1);
    assert_int_equal(kit_put(store, &record, 0), OK);
    assert_int_equal(kit_maintain(store, KIT_NOW + 20000, &err), OK);
    assert_int_equal(ask_sql(own, "SELECT (to_regclass('entries_2022_03') IS NULL)::int"), 1);
    assert_int_equal(ask_sql(own, "SELECT count(*) FROM entries"), 1); /* kept for a day */
    assert_int_equal(store->ops->close(store, &err), OK);
}

static void a_process_whose_machine_slept_for_a_month_goes_on(void **state)
{
    struct own *own = *state;
    struct err err = {0};
    struct record record = kit_record(1, 1);
    assert_int_equal(kit_put(own->store, &record, 0), OK);
    assert_int_equal(kit_maintain(own->store, KIT_NOW + 20000, &err), OK);
    assert_int_equal(kit_maintain(own->store, KIT_NOW + INT64_C(31) * 86400000, &err), OK);
    assert_int_equal(ask_sql(own, "SELECT count(*) FROM chains WHERE ended_at IS NULL"), 1);
    record = kit_record(2, 1);
    assert_int_equal(kit_put(own->store, &record, 0), OK);
}

/* ---- the schema -------------------------------------------------------------------------- */

static void the_schema_can_be_migrated_again_and_a_newer_one_is_refused(void **state)
{
    struct own *own = *state;
    struct err err = {0};
    struct postgres_migration migration = {.grant_count = 0};
    struct store *store = NULL;
    struct store_options options = {.clock = &kit_clock};
    assert_int_equal(postgres_migrate(own->url, &migration, &err), OK);
    assert_int_equal(migration.version_before, migration.version_after);
    run_sql(own, "INSERT INTO migrations (version, once_version) VALUES (99, '9.9')");
    assert_int_equal(postgres_migrate(own->url, &migration, &err), E_UNAVAILABLE);
    assert_non_null(strstr(err.text, "version 99"));
    assert_int_equal(store_open(own->url, &options, &store, &err), E_UNAVAILABLE);
    assert_non_null(strstr(err.text, "version 99"));
    run_sql(own, "DELETE FROM migrations WHERE version = 99");
}

static void what_is_wrong_with_a_database_is_named(void **state)
{
    struct own *own = *state;
    struct err err = {0};
    struct store *store = NULL;
    char url[600];
    const char *server = getenv("ONCE_TEST_POSTGRES");
    static const struct store_options options = {0};
    (void)snprintf(url, sizeof url, "%s?fsync=off&schema=absent", server);
    assert_int_equal(store_open(url, &options, &store, &err), E_UNAVAILABLE);
    assert_non_null(strstr(err.text, "no store in the schema 'absent'"));
    assert_non_null(strstr(err.hint, "once migrate"));
    (void)snprintf(url, sizeof url, "%s?schema=%s", server, own->schema);
    assert_int_equal(store_open(url, &options, &store, &err), E_UNAVAILABLE);
    assert_non_null(strstr(err.text, "fsync = off")); /* P2 */
    assert_int_equal(
        store_open("postgres://u:secret@127.0.0.1:1/x", &options, &store, &err), E_UNAVAILABLE);
    assert_non_null(strstr(err.text, "cannot reach PostgreSQL"));
    assert_null(strstr(err.text, "secret"));
    assert_int_equal(
        store_open("postgres://u:secret@h/x?nonsense=1", &options, &store, &err), E_INVALID);
    assert_null(strstr(err.text, "secret"));
    assert_int_equal(store_open("postgres://h/x?schema=a%20b", &options, &store, &err), E_INVALID);
    assert_non_null(strstr(err.text, "schema"));
}

int main(void)
{
    if (getenv("ONCE_TEST_POSTGRES") == NULL) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
#define OWN(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        OWN(a_batch_of_any_size_takes_two_round_trips),
        OWN(rows_that_are_alike_are_written_as_others_are),
        OWN(a_batch_counts_our_own_records_at_once_and_those_of_others_soon),
        OWN(what_is_due_or_counted_is_found_without_reading_the_rest),
        OWN(a_commit_cut_on_its_way_did_not_happen),
        OWN(a_commit_whose_answer_is_lost_is_looked_up),
        OWN(a_commit_that_ends_in_a_panic_is_looked_up),
        OWN(a_commit_that_comes_after_its_fate_was_told_fails),
        OWN(a_commit_that_nobody_could_ask_about_is_settled_later),
        OWN(a_server_that_was_away_is_used_again),
        OWN(the_next_batch_is_prepared_while_a_commit_is_under_way),
        OWN(a_prepare_of_the_same_key_waits_for_the_commit_under_way),
        OWN(after_a_failed_commit_nothing_that_was_prepared_happens),
        OWN(a_commit_under_way_whose_session_ends_did_not_happen),
        OWN(two_sessions_that_end_take_both_commits_with_them),
        OWN(two_commits_cut_anywhere_are_told_what_became_of_them),
        OWN(two_commits_killed_before_the_log_did_not_happen),
        OWN(of_two_commits_killed_the_one_in_the_log_happened),
        OWN(two_commits_killed_after_the_log_happened_though_nobody_was_told),
        OWN(the_commit_of_a_session_that_was_ended_fails),
        OWN(a_session_that_holds_up_its_own_look_up_is_ended),
        OWN(a_stalled_process_holds_its_keys_for_a_bounded_time),
        OWN(the_primary_key_is_the_hash_and_the_tenant),
        OWN(a_row_that_does_not_check_out_is_corrupt),
        OWN(a_server_that_lost_our_commits_is_an_older_copy),
        OWN(a_record_of_a_prepared_batch_is_not_forgotten),
        OWN(evidence_past_its_retention_goes_with_its_partition),
        OWN(a_retention_of_an_hour_removes_evidence_too),
        OWN(a_process_whose_machine_slept_for_a_month_goes_on),
        OWN(the_schema_can_be_migrated_again_and_a_newer_one_is_refused),
        OWN(what_is_wrong_with_a_database_is_named),
    };
    return cmocka_run_group_tests_name("postgres", tests, NULL, NULL);
}
