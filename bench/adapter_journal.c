/*
 * adapter_journal: our store through its own table, with records and chained entries of the size
 * that the others write. Unlike them it hashes every entry into the chain.
 */
#include <string.h>

#include "adapter.h"
#include "base/check.h"
#include "base/limits.h"
#include "base/text.h"
#include "bench.h"
#include "store/store.h"

enum { SEAL_META_BYTES = OP_SEAL_BYTES - OP_BEGIN_BYTES };

#define ARENA_BYTES_MAX ((size_t)64 << 20)
#define SCOPE           "POST /v1/charges of a merchant in Sao Paulo" /* makes 200 bytes of it */

struct journal_adapter {
    struct store *store;
    struct arena arena;
    struct clock clock;
    uint64_t seq;
    struct digest hash;
    struct digest hashes[OP_BATCH_MAX];
    struct record records[OP_BATCH_MAX];
    struct change changes[OP_BATCH_MAX];
    char texts[OP_BATCH_MAX][2 * sizeof(uint64_t) + 1]; /* of keys */
    struct store_want wants[OP_BATCH_MAX];
};

static void *journal_adapter_open(const char *path)
{
    char url[BENCH_PATH_MAX + 32];
    struct store_options options = {0};
    struct store_head head;
    struct err err = {0};
    struct journal_adapter *self = adapter_alloc(sizeof *self);
    (void)snprintf(url, sizeof url, "journal:%s/store", path);
    bench_must(store_open(url, &options, &self->store, &err), &err, url);
    self->store->ops->head(self->store, &head);
    self->seq = head.seq;
    self->hash = head.hash;
    clock_system(&self->clock);
    arena_init(&self->arena, &mem_libc, ARENA_BYTES_MAX);
    return self;
}

static void begun(
    struct record *record, const struct op *op, char *text, uint64_t fence, int64_t now_ms)
{
    *record = (struct record){.version = 1,
        .kind = RECORD_OPERATION,
        .status = RECORD_IN_PROGRESS,
        .fingerprint_version = 1,
        .fence = fence,
        .attempt = 1,
        .created_ms = now_ms,
        .updated_ms = now_ms,
        .lease_expires_ms = now_ms + LIMIT_WINDOW_MS_DEFAULT,
        .window_ms = LIMIT_WINDOW_MS_DEFAULT};
    record->key = (struct record_key){.tenant = SLICE_LIT("tenant-1"),
        .scope = SLICE_LIT(SCOPE),
        .key = slice_str(text_put_hex(text, &op->number, sizeof op->number))};
    memcpy(record->key.hash.bytes, op->key + OP_KEY_BYTES - DIGEST_BYTES, DIGEST_BYTES);
    record->fingerprint = record->key.hash;
    record->operation_id = op_id_make(now_ms, &record->key.hash, fence);
}

static void sealed(
    struct record *record, const struct record *found, const struct op *op, int64_t now_ms)
{
    *record = *found;
    record->version++;
    record->status = RECORD_EXECUTED;
    record->updated_ms = now_ms;
    record->sealed_ms = now_ms;
    record->lease_expires_ms = 0;
    record->window_expires_ms = now_ms + record->window_ms;
    record->outcome = (struct outcome){.code = 201, .meta = slice_of(op->value, SEAL_META_BYTES)};
}

static struct entry chained(
    struct journal_adapter *self, const struct op *op, const struct record *record, int64_t now_ms)
{
    struct entry entry = {.kind = ENTRY_EVIDENCE,
        .seq = ++self->seq,
        .operation_id = record->operation_id,
        .time_ms = now_ms,
        .bytes = slice_of(op->evidence, OP_EVIDENCE_BYTES)};
    digest_sha256_2(self->hash.bytes, DIGEST_BYTES, entry.bytes.data, entry.bytes.len, &entry.hash);
    self->hash = entry.hash;
    return entry;
}

static void journal_apply(void *context, const struct op *ops, size_t count)
{
    struct journal_adapter *self = context;
    struct store *store = self->store;
    struct err err = {0};
    struct clock_reading now = clock_read(&self->clock);
    arena_clear(&self->arena);
    for (size_t i = 0; i < count; i++) {
        memcpy(self->hashes[i].bytes, ops[i].key + OP_KEY_BYTES - DIGEST_BYTES, DIGEST_BYTES);
        self->wants[i] = (struct store_want){.key = &self->hashes[i]};
    }
    struct store_batch batch = {
        .wants = self->wants, .count = count, .fences = count, .arena = &self->arena};
    bench_must(store->ops->prepare(store, &batch, &err), &err, "prepare");
    for (size_t i = 0; i < count; i++) {
        const struct record *found = self->wants[i].record;
        ASSERT((found != NULL) == ops[i].seal);
        if (ops[i].seal) {
            sealed(&self->records[i], found, &ops[i], now.wall_ms);
        } else {
            begun(&self->records[i], &ops[i], self->texts[i], batch.fence_first + i, now.wall_ms);
        }
        self->changes[i] = (struct change){.kind = CHANGE_PUT,
            .record = &self->records[i],
            .version_expected = found == NULL ? 0 : found->version,
            .entry = chained(self, &ops[i], &self->records[i], now.wall_ms)};
    }
    struct commit commit = {.changes = self->changes, .count = count};
    bench_must(store->ops->commit(store, &commit, &err), &err, "commit");
    bench_must(store->ops->flush(store, &err), &err, "flush");
    bench_must(store->ops->housekeeping->maintain(store, &err), &err, "maintain");
}

static void journal_adapter_close(void *context)
{
    struct journal_adapter *self = context;
    struct err err = {0};
    bench_must(self->store->ops->close(self->store, &err), &err, "close");
    arena_release(&self->arena);
    adapter_free(self);
}

const struct adapter adapter_journal = {
    "our journal", journal_adapter_open, journal_apply, journal_adapter_close};
