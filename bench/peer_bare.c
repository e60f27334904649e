/*
 * peer_bare: the same bytes appended to one file, three ways. No index, no look at the key: the
 * disk's limit, which no store can pass.
 */
#include <stdlib.h>
#include <string.h>

#include "adapter.h"
#include "bare.h"
#include "bench.h"

enum { DELTA_BYTES = OP_SEAL_BYTES - OP_BEGIN_BYTES }; /* a log keeps what a seal adds */

#define RING_BYTES  ((uint64_t)256 << 20)
#define BATCH_BYTES ((size_t)1 << 20) /* 1024 calls of less than 600 bytes */

struct bare_adapter {
    struct bare bare;
    char *batch;
};

static void *open_as(const char *path, enum bare_mode mode)
{
    char file[BENCH_PATH_MAX + 8];
    struct bare_adapter *self = adapter_alloc(sizeof *self);
    (void)snprintf(file, sizeof file, "%s/ring", path);
    bare_open(&self->bare, file, mode, RING_BYTES);
    void *memory = NULL; /* aligned, which struct mem does not offer */
    if (posix_memalign(&memory, BARE_BLOCK_BYTES, BATCH_BYTES) != 0) {
        bench_fail("out of memory");
    }
    memset(memory, 0x5a, BATCH_BYTES);
    self->batch = memory;
    return self;
}

static void *zeroed_open(const char *path)
{
    return open_as(path, BARE_ZEROED);
}

static void *direct_open(const char *path)
{
    return open_as(path, BARE_DIRECT);
}

static void *growing_open(const char *path)
{
    return open_as(path, BARE_GROWING);
}

static char *put(char *at, const void *bytes, size_t size)
{
    memcpy(at, bytes, size);
    return at + size;
}

static void bare_apply(void *context, const struct op *ops, size_t count)
{
    struct bare_adapter *self = context;
    char *at = self->batch;
    for (size_t i = 0; i < count; i++) {
        at = put(at, ops[i].key, sizeof ops[i].key);
        at = put(at, &ops[i].expires, sizeof ops[i].expires);
        at = put(at, ops[i].value, ops[i].seal ? DELTA_BYTES : OP_BEGIN_BYTES);
        at = put(at, ops[i].evidence, OP_EVIDENCE_BYTES);
    }
    bare_write(&self->bare, self->batch, (size_t)(at - self->batch));
}

static void bare_adapter_close(void *context)
{
    struct bare_adapter *self = context;
    bare_close(&self->bare);
    adapter_free(self->batch);
    adapter_free(self);
}

const struct adapter adapter_zeroed = {
    "bare append, zero-filled", zeroed_open, bare_apply, bare_adapter_close};
const struct adapter adapter_direct = {
    "bare append, O_DIRECT + O_DSYNC", direct_open, bare_apply, bare_adapter_close};
const struct adapter adapter_growing = {
    "bare append, growing file", growing_open, bare_apply, bare_adapter_close};
