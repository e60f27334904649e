/*
 * bench_stores: the same begins and seals on our journal, on databases one could have used instead,
 * and on bare files; 1, 8, 64 and 512 calls in each durable commit.
 *
 * A begin looks the key up, puts 200 bytes, a row to find it by its expiry, and 250 bytes of
 * evidence; a seal reads the record, rewrites it with 500 bytes, and adds 250 of evidence. Keys are
 * uniform, as hashes are. All places are open from start to end and take turns within a round, each
 * round starting with a different one; ratios are of neighbours in time.
 *
 * bench_stores dir=PATH [seconds=0.7] [rounds=3] [keys=100000] [batch=64]
 */
#include <stdlib.h>
#include <string.h>

#include "adapter.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rand.h"
#include "bench.h"
#include "canon/digest.h"

enum {
    POOL_BYTES = 1 << 20, /* random bytes that values are cut from */
    SEAL_BEHIND = 64,     /* a seal comes this many operations after its begin, or a batch later */
    PLACES_MAX = 8,
    BATCHES = 4,
};

static const size_t batch_sizes[BATCHES] = {1, 8, 64, 512};

/* One place under test. */
struct place {
    const struct adapter *adapter; /* NULL: not built here */
    const char *name;
    void *self;
    char path[BENCH_PATH_MAX];
    uint64_t begun;  /* operations */
    uint64_t sealed; /* of these, in the same order */
    double pairs[BATCHES][BENCH_ROUNDS_MAX];
    double cpu_us[BATCHES][BENCH_ROUNDS_MAX]; /* a call */
    struct bench_times times[BATCHES];        /* of one commit */
};

struct bench {
    char *pool;
    struct place places[PLACES_MAX];
    size_t count;
    double seconds;
    size_t rounds;
    size_t batch_only; /* 0: all */
};

void *adapter_alloc(size_t size)
{
    void *memory = mem_zalloc(&mem_libc, 1, size);
    if (memory == NULL) {
        bench_fail("out of memory");
    }
    return memory;
}

void adapter_free(void *pointer)
{
    mem_free(&mem_libc, pointer);
}

/* ---- the workload -------------------------------------------------------------------------- */

static void make_op(const struct bench *bench, struct op *op, uint64_t number, bool seal)
{
    struct digest digest;
    digest_sha256(&number, sizeof number, &digest);
    *op = (struct op){.number = number, .seal = seal, .expires = (uint32_t)(number >> 12)};
    memcpy(op->key, "tenant-1", OP_KEY_BYTES - DIGEST_BYTES);
    memcpy(op->key + OP_KEY_BYTES - DIGEST_BYTES, digest.bytes, DIGEST_BYTES);
    op->value = bench->pool + number * 61 % (POOL_BYTES - OP_SEAL_BYTES);
    op->evidence = bench->pool + number * 89 % (POOL_BYTES - OP_EVIDENCE_BYTES);
}

/* Begins and seals in turn; what is sealed was begun in an earlier batch. */
static void make_batch(const struct bench *bench, struct place *place, struct op *ops, size_t count)
{
    uint64_t behind = count > SEAL_BEHIND ? count : SEAL_BEHIND;
    uint64_t begun_before = place->begun;
    for (size_t i = 0; i < count; i++) {
        bool seal = place->sealed + behind < place->begun && place->sealed < begun_before;
        uint64_t number = seal ? place->sealed++ : place->begun++;
        make_op(bench, &ops[i], number, seal);
    }
}

/* Keys that are there from the start, begun only. */
static void fill(struct bench *bench, struct place *place, uint64_t keys)
{
    static struct op ops[OP_BATCH_MAX];
    while (place->begun < keys) {
        size_t count =
            keys - place->begun < OP_BATCH_MAX ? (size_t)(keys - place->begun) : OP_BATCH_MAX;
        for (size_t i = 0; i < count; i++) {
            make_op(bench, &ops[i], place->begun + i, false);
        }
        place->adapter->apply(place->self, ops, count);
        place->begun += count;
    }
    place->sealed = place->begun; /* these stay as they are */
}

static void run_place(struct bench *bench, struct place *place, size_t batch, size_t round)
{
    static struct op ops[OP_BATCH_MAX];
    size_t size = batch_sizes[batch];
    uint64_t calls = 0, spent = 0;
    double cpu = 0;
    while ((double)spent < bench->seconds * 1e9) {
        make_batch(bench, place, ops, size); /* not in the time */
        double cpu_before = bench_cpu_s();
        uint64_t started = clock_nanos();
        place->adapter->apply(place->self, ops, size);
        uint64_t took = clock_nanos() - started;
        cpu += bench_cpu_s() - cpu_before;
        bench_times_add(&place->times[batch], took);
        spent += took;
        calls += size;
    }
    place->pairs[batch][round] = (double)calls / 2 / ((double)spent / 1e9);
    place->cpu_us[batch][round] = cpu * 1e6 / (double)calls;
}

/* ---- all places ---------------------------------------------------------------------------- */

static void add_place(struct bench *bench, const struct adapter *adapter, const char *name)
{
    struct place *place = &bench->places[bench->count++];
    place->adapter = adapter;
    place->name = adapter == NULL ? name : adapter->name;
}

static void add_places(struct bench *bench)
{
    add_place(bench, &adapter_journal, NULL);
    add_place(bench, &adapter_zeroed, NULL);
    add_place(bench, &adapter_direct, NULL);
    add_place(bench, &adapter_growing, NULL);
#ifdef BENCH_ROCKSDB
    add_place(bench, &adapter_rocksdb, NULL);
#else
    add_place(bench, NULL, "RocksDB");
#endif
#ifdef BENCH_SQLITE
    add_place(bench, &adapter_sqlite, NULL);
#else
    add_place(bench, NULL, "SQLite");
#endif
#ifdef BENCH_LMDB
    add_place(bench, &adapter_lmdb, NULL);
#else
    add_place(bench, NULL, "LMDB");
#endif
}

static void open_places(struct bench *bench, const char *dir, uint64_t keys)
{
    for (size_t i = 0; i < bench->count; i++) {
        struct place *place = &bench->places[i];
        char name[32];
        if (place->adapter != NULL) {
            bench_progress("stores: %.4g k keys into %s", (double)keys / 1e3, place->name);
            (void)snprintf(name, sizeof name, "place-%zu", i);
            bench_dir_make(place->path, dir, name);
            place->self = place->adapter->open(place->path);
            fill(bench, place, keys);
        }
    }
}

static void close_places(struct bench *bench)
{
    for (size_t i = 0; i < bench->count; i++) {
        struct place *place = &bench->places[i];
        if (place->adapter != NULL) {
            place->adapter->close(place->self);
            bench_dir_remove(place->path);
        }
    }
}

/* ---- results ------------------------------------------------------------------------------- */

static void report_place(struct bench *bench, struct place *place, size_t batch, double journal)
{
    double ratios[BENCH_ROUNDS_MAX];
    char id[16], what[128], detail[128];
    bool ours = place == &bench->places[0];
    for (size_t i = 0; i < bench->rounds; i++) {
        ratios[i] = place->pairs[batch][i] / bench->places[0].pairs[batch][i];
    }
    (void)snprintf(id, sizeof id, "W%zu", batch_sizes[batch]);
    (void)snprintf(what, sizeof what, "%s", place->name);
    if (place->adapter == NULL) {
        bench_skip(id, what, "its development package is not installed");
        return;
    }
    (void)snprintf(detail, sizeof detail,
        "\"commit_p50_us\":%.0f,\"commit_p99_us\":%.0f,\"cpu_us_per_call\":%.2f",
        bench_times_us(&place->times[batch], 0.5), bench_times_us(&place->times[batch], 0.99),
        bench_median(place->cpu_us[batch], bench->rounds));
    double pairs[BENCH_ROUNDS_MAX];
    memcpy(pairs, place->pairs[batch], sizeof pairs);
    bench_report(&(struct bench_row){.id = id,
        .what = what,
        .figure = bench_median(pairs, bench->rounds),
        .unit = "pairs/s",
        .compared = ours ? NULL : "our journal",
        .compared_figure = journal,
        .ratios = ours ? NULL : ratios,
        .rounds = bench->rounds,
        .detail = detail});
}

static void report(struct bench *bench)
{
    for (size_t batch = 0; batch < BATCHES; batch++) {
        if (bench->batch_only != 0 && bench->batch_only != batch_sizes[batch]) {
            continue;
        }
        double journal[BENCH_ROUNDS_MAX];
        memcpy(journal, bench->places[0].pairs[batch], sizeof journal);
        for (size_t i = 0; i < bench->count; i++) {
            report_place(bench, &bench->places[i], batch, bench_median(journal, bench->rounds));
        }
    }
}

static void run_all(struct bench *bench)
{
    for (size_t batch = 0; batch < BATCHES; batch++) {
        if (bench->batch_only != 0 && bench->batch_only != batch_sizes[batch]) {
            continue;
        }
        for (size_t round = 0; round < bench->rounds; round++) {
            for (size_t i = 0; i < bench->count; i++) {
                struct place *place = &bench->places[(i + round) % bench->count];
                bench_progress("stores, %zu calls a commit, round %zu of %zu: %s",
                    batch_sizes[batch], round + 1, bench->rounds, place->name);
                if (place->adapter != NULL) {
                    run_place(bench, place, batch, round);
                }
            }
        }
    }
}

int main(int argc, char **argv)
{
    static struct bench bench;
    struct err err = {0};
    bench.seconds = bench_number(argc, argv, "seconds", 0.7);
    bench.rounds = bench_rounds(argc, argv, 3);
    bench.batch_only = (size_t)bench_number(argc, argv, "batch", 0);
    bench.pool = adapter_alloc(POOL_BYTES);
    bench_must(rand_bytes(bench.pool, POOL_BYTES, &err), &err, "random bytes");
    add_places(&bench);
    open_places(&bench, bench_text(argc, argv, "dir", "."),
        (uint64_t)bench_number(argc, argv, "keys", 1e5));
    run_all(&bench);
    report(&bench);
    close_places(&bench);
    adapter_free(bench.pool);
    return 0;
}
