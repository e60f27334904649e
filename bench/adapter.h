/*
 * adapter: one durable place that the write comparison runs on. bench_stores.c has the workload.
 *
 * apply does for all calls of a batch what a begin or a seal needs, and returns when the batch is
 * on stable storage. Whatever goes wrong ends the program.
 */
#ifndef ONCE_BENCH_ADAPTER_H
#define ONCE_BENCH_ADAPTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    OP_KEY_BYTES = 40,       /* 8 of a tenant, 32 of a hash */
    OP_BEGIN_BYTES = 200,    /* the record when begun */
    OP_SEAL_BYTES = 500,     /* … and sealed */
    OP_EVIDENCE_BYTES = 250, /* for each of both */
    OP_BATCH_MAX = 1024,
};

struct op {
    uint64_t number; /* of the operation */
    bool seal;       /* otherwise begin: the key must not be there yet */
    unsigned char key[OP_KEY_BYTES];
    uint32_t expires;     /* a begin also leaves a row (expires, key) to be found by time */
    const char *value;    /* OP_BEGIN_BYTES or OP_SEAL_BYTES that do not compress */
    const char *evidence; /* OP_EVIDENCE_BYTES */
};

struct adapter {
    const char *name; /* as the table says it */
    void *(*open)(const char *path);
    void (*apply)(void *self, const struct op *ops, size_t count);
    void (*close)(void *self);
};

extern const struct adapter adapter_journal;
extern const struct adapter adapter_zeroed;
extern const struct adapter adapter_direct;
extern const struct adapter adapter_growing;
extern const struct adapter adapter_sqlite;
extern const struct adapter adapter_lmdb;
extern const struct adapter adapter_rocksdb;

/* Zeroed memory, or the end of the program. */
void *adapter_alloc(size_t size);
void adapter_free(void *pointer);

#endif
