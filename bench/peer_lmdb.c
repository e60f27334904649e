/*
 * peer_lmdb: LMDB with its defaults, which are durable: one write transaction a batch.
 */
#include <lmdb.h>
#include <string.h>

#include "adapter.h"
#include "bench.h"

#define MAP_BYTES ((size_t)16 << 30) /* address space; the file grows as needed */

struct lmdb_adapter {
    MDB_env *env;
    MDB_dbi record;
    MDB_dbi expiry;
    MDB_dbi evidence;
    uint64_t seq;
};

static void must(int result)
{
    if (result != 0) {
        bench_fail("lmdb: %s", mdb_strerror(result));
    }
}

static void *lmdb_open(const char *path)
{
    MDB_txn *txn;
    struct lmdb_adapter *self = adapter_alloc(sizeof *self);
    must(mdb_env_create(&self->env));
    must(mdb_env_set_mapsize(self->env, MAP_BYTES));
    must(mdb_env_set_maxdbs(self->env, 3));
    must(mdb_env_open(self->env, path, 0, 0666));
    must(mdb_txn_begin(self->env, NULL, 0, &txn));
    must(mdb_dbi_open(txn, "record", MDB_CREATE, &self->record));
    must(mdb_dbi_open(txn, "expiry", MDB_CREATE, &self->expiry));
    must(mdb_dbi_open(txn, "evidence", MDB_CREATE | MDB_INTEGERKEY, &self->evidence));
    must(mdb_txn_commit(txn));
    return self;
}

/* LMDB's values are not const, but it does not write to them. */
static MDB_val val(const void *bytes, size_t size)
{
    MDB_val result = {.mv_size = size};
    memcpy(&result.mv_data, &bytes, sizeof bytes);
    return result;
}

static void apply_one(struct lmdb_adapter *self, MDB_txn *txn, const struct op *op)
{
    MDB_val key = val(op->key, sizeof op->key);
    MDB_val value;
    int found = mdb_get(txn, self->record, &key, &value);
    if (found != (op->seal ? 0 : MDB_NOTFOUND)) {
        bench_fail("lmdb: a key is not as it should be");
    }
    value = val(op->value, op->seal ? OP_SEAL_BYTES : OP_BEGIN_BYTES);
    must(mdb_put(txn, self->record, &key, &value, 0));
    if (!op->seal) {
        unsigned char row[sizeof op->expires + OP_KEY_BYTES];
        uint32_t sorted = __builtin_bswap32(op->expires);
        memcpy(row, &sorted, sizeof sorted);
        memcpy(row + sizeof sorted, op->key, sizeof op->key);
        MDB_val expiry = val(row, sizeof row), nothing = val("", 0);
        must(mdb_put(txn, self->expiry, &expiry, &nothing, 0));
    }
    self->seq++;
    MDB_val seq = val(&self->seq, sizeof self->seq), line = val(op->evidence, OP_EVIDENCE_BYTES);
    must(mdb_put(txn, self->evidence, &seq, &line, MDB_APPEND));
}

static void lmdb_apply(void *context, const struct op *ops, size_t count)
{
    struct lmdb_adapter *self = context;
    MDB_txn *txn;
    must(mdb_txn_begin(self->env, NULL, 0, &txn));
    for (size_t i = 0; i < count; i++) {
        apply_one(self, txn, &ops[i]);
    }
    must(mdb_txn_commit(txn));
}

static void lmdb_close(void *context)
{
    struct lmdb_adapter *self = context;
    mdb_env_close(self->env);
    adapter_free(self);
}

const struct adapter adapter_lmdb = {"LMDB", lmdb_open, lmdb_apply, lmdb_close};
