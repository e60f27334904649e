/*
 * peer_rocksdb: RocksDB, one synchronous WriteBatch a batch, no compression. Debian's build has
 * assertions on, which costs it some of its speed.
 */
#include <rocksdb/c.h>
#include <string.h>

#include "adapter.h"
#include "bench.h"

struct rocksdb_adapter {
    rocksdb_t *db;
    rocksdb_options_t *options;
    rocksdb_writeoptions_t *write;
    rocksdb_readoptions_t *read;
    rocksdb_writebatch_t *batch;
    uint64_t seq;
};

static void must(const char *fault)
{
    if (fault != NULL) {
        bench_fail("rocksdb: %s", fault);
    }
}

static void *rocks_open(const char *path)
{
    char *fault = NULL;
    struct rocksdb_adapter *self = adapter_alloc(sizeof *self);
    self->options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(self->options, 1);
    rocksdb_options_set_compression(self->options, rocksdb_no_compression);
    rocksdb_options_increase_parallelism(self->options, 2);
    self->write = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_sync(self->write, 1);
    self->read = rocksdb_readoptions_create();
    self->batch = rocksdb_writebatch_create();
    self->db = rocksdb_open(self->options, path, &fault);
    must(fault);
    return self;
}

/* Kinds of rows are told apart by the first byte of their key. */
static size_t row_key(char *ret_row, char kind, const void *first, size_t first_size,
    const void *second, size_t second_size)
{
    ret_row[0] = kind;
    memcpy(ret_row + 1, first, first_size);
    memcpy(ret_row + 1 + first_size, second, second_size);
    return 1 + first_size + second_size;
}

static void apply_one(struct rocksdb_adapter *self, const struct op *op)
{
    char row[64];
    char *fault = NULL;
    size_t size = row_key(row, 'r', op->key, sizeof op->key, "", 0);
    rocksdb_pinnableslice_t *found = rocksdb_get_pinned(self->db, self->read, row, size, &fault);
    must(fault);
    if ((found != NULL) != op->seal) {
        bench_fail("rocksdb: a key is not as it should be");
    }
    rocksdb_pinnableslice_destroy(found);
    rocksdb_writebatch_put(
        self->batch, row, size, op->value, op->seal ? OP_SEAL_BYTES : OP_BEGIN_BYTES);
    if (!op->seal) {
        uint32_t sorted = __builtin_bswap32(op->expires);
        size = row_key(row, 'x', &sorted, sizeof sorted, op->key, sizeof op->key);
        rocksdb_writebatch_put(self->batch, row, size, "", 0);
    }
    self->seq++;
    uint64_t sorted = __builtin_bswap64(self->seq);
    size = row_key(row, 'e', &sorted, sizeof sorted, "", 0);
    rocksdb_writebatch_put(self->batch, row, size, op->evidence, OP_EVIDENCE_BYTES);
}

static void rocks_apply(void *context, const struct op *ops, size_t count)
{
    struct rocksdb_adapter *self = context;
    char *fault = NULL;
    rocksdb_writebatch_clear(self->batch);
    for (size_t i = 0; i < count; i++) {
        apply_one(self, &ops[i]);
    }
    rocksdb_write(self->db, self->write, self->batch, &fault);
    must(fault);
}

static void rocks_close(void *context)
{
    struct rocksdb_adapter *self = context;
    rocksdb_close(self->db);
    rocksdb_writebatch_destroy(self->batch);
    rocksdb_readoptions_destroy(self->read);
    rocksdb_writeoptions_destroy(self->write);
    rocksdb_options_destroy(self->options);
    adapter_free(self);
}

const struct adapter adapter_rocksdb = {
    "RocksDB, sync WriteBatch", rocks_open, rocks_apply, rocks_close};
