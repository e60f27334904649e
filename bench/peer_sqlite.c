/*
 * peer_sqlite: SQLite with a write-ahead log and synchronous=FULL, one transaction a batch.
 */
#include <sqlite3.h>

#include "adapter.h"
#include "bench.h"

struct sqlite_adapter {
    sqlite3 *db;
    sqlite3_stmt *begin;
    sqlite3_stmt *commit;
    sqlite3_stmt *get;
    sqlite3_stmt *put;
    sqlite3_stmt *expiry;
    sqlite3_stmt *evidence;
};

static void must(struct sqlite_adapter *self, int result, int wanted)
{
    if (result != wanted) {
        bench_fail("sqlite: %s", sqlite3_errmsg(self->db));
    }
}

static sqlite3_stmt *prepare(struct sqlite_adapter *self, const char *text)
{
    sqlite3_stmt *statement = NULL;
    must(self, sqlite3_prepare_v2(self->db, text, -1, &statement, NULL), SQLITE_OK);
    return statement;
}

static void *sqlite_open(const char *path)
{
    char file[BENCH_PATH_MAX + 16];
    struct sqlite_adapter *self = adapter_alloc(sizeof *self);
    (void)snprintf(file, sizeof file, "%s/once.db", path);
    must(self, sqlite3_open(file, &self->db), SQLITE_OK);
    must(self,
        sqlite3_exec(self->db,
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA cache_size=-262144;"
            "CREATE TABLE record (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID;"
            "CREATE TABLE expiry (bucket INTEGER, key BLOB, PRIMARY KEY (bucket, key))"
            " WITHOUT ROWID;"
            "CREATE TABLE evidence (seq INTEGER PRIMARY KEY, value BLOB)",
            NULL, NULL, NULL),
        SQLITE_OK);
    self->begin = prepare(self, "BEGIN IMMEDIATE");
    self->commit = prepare(self, "COMMIT");
    self->get = prepare(self, "SELECT value FROM record WHERE key = ?");
    self->put = prepare(self, "INSERT OR REPLACE INTO record VALUES (?, ?)");
    self->expiry = prepare(self, "INSERT INTO expiry VALUES (?, ?)");
    self->evidence = prepare(self, "INSERT INTO evidence (value) VALUES (?)");
    return self;
}

static void run(struct sqlite_adapter *self, sqlite3_stmt *statement, int wanted)
{
    must(self, sqlite3_step(statement), wanted);
    must(self, sqlite3_reset(statement), SQLITE_OK);
}

static void bind(
    struct sqlite_adapter *self, sqlite3_stmt *statement, int place, const void *bytes, int size)
{
    must(self, sqlite3_bind_blob(statement, place, bytes, size, SQLITE_STATIC), SQLITE_OK);
}

static void apply_one(struct sqlite_adapter *self, const struct op *op)
{
    bind(self, self->get, 1, op->key, sizeof op->key);
    run(self, self->get, op->seal ? SQLITE_ROW : SQLITE_DONE);
    bind(self, self->put, 1, op->key, sizeof op->key);
    bind(self, self->put, 2, op->value, op->seal ? OP_SEAL_BYTES : OP_BEGIN_BYTES);
    run(self, self->put, SQLITE_DONE);
    if (!op->seal) {
        must(self, sqlite3_bind_int64(self->expiry, 1, op->expires), SQLITE_OK);
        bind(self, self->expiry, 2, op->key, sizeof op->key);
        run(self, self->expiry, SQLITE_DONE);
    }
    bind(self, self->evidence, 1, op->evidence, OP_EVIDENCE_BYTES);
    run(self, self->evidence, SQLITE_DONE);
}

static void sqlite_apply(void *context, const struct op *ops, size_t count)
{
    struct sqlite_adapter *self = context;
    run(self, self->begin, SQLITE_DONE);
    for (size_t i = 0; i < count; i++) {
        apply_one(self, &ops[i]);
    }
    run(self, self->commit, SQLITE_DONE);
}

static void sqlite_close(void *context)
{
    struct sqlite_adapter *self = context;
    sqlite3_stmt *all[] = {
        self->begin, self->commit, self->get, self->put, self->expiry, self->evidence};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        (void)sqlite3_finalize(all[i]);
    }
    (void)sqlite3_close(self->db);
    adapter_free(self);
}

const struct adapter adapter_sqlite = {
    "SQLite, WAL, synchronous=FULL", sqlite_open, sqlite_apply, sqlite_close};
