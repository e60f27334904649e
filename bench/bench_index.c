/*
 * Memory per live key and time from start to ready (B8 and B9 of DESIGN section 15).
 *
 *   bench_index [keys] [directory]
 *
 * Fills a journal with that many live keys, reads the resident set, closes it, opens it again and
 * times that, then times loads and commits. One JSON line a figure.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "store/journal/journal.h"
#include "store/store.h"

enum { BATCH = 1000, SAMPLES = 200000 };

static uint64_t resident_bytes(void)
{
    unsigned long long pages = 0;
    unsigned long long all = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%llu %llu", &all, &pages) != 2) {
        pages = 0;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void must(enum status status, const struct err *err)
{
    if (status != OK) {
        (void)fprintf(stderr, "bench_index: %s\n", err->text);
        exit(1);
    }
}

static void record_make(struct record *record, char key[32], uint64_t number)
{
    struct err err;
    (void)snprintf(key, 32, "order-%010llu", (unsigned long long)number);
    *record = (struct record){
        .key = {.tenant = SLICE_LIT("default"), .scope = SLICE_LIT("bench"), .key = slice_str(key)},
        .version = 1,
        .kind = RECORD_OPERATION,
        .status = RECORD_IN_PROGRESS,
        .fence = number + 1,
        .attempt = 1,
        .created_ms = 1700000000000,
        .updated_ms = 1700000000000,
        .lease_expires_ms = 1700000030000,
        .window_ms = 86400000,
    };
    must(record_key_seal(&record->key, &err), &err);
    record->operation_id = op_id_make(record->created_ms, &record->key.hash, record->fence);
}

static void commit_range(struct store *store, uint64_t from, unsigned count)
{
    static struct record records[BATCH];
    static char keys[BATCH][32];
    static struct change changes[BATCH];
    struct err err = {0};
    for (unsigned i = 0; i < count; i++) {
        record_make(&records[i], keys[i], from + i);
        changes[i] = (struct change){.kind = CHANGE_PUT, .record = &records[i]};
    }
    struct commit commit = {
        .changes = changes, .count = count, .moment = {.time_ms = 1700000000000}};
    must(store->ops->commit(store, &commit, &err), &err);
}

static void fill(struct store *store, uint64_t keys)
{
    struct err err = {0};
    for (uint64_t at = 0; at < keys; at += BATCH) {
        commit_range(store, at, keys - at < BATCH ? (unsigned)(keys - at) : BATCH);
        if (at / BATCH % 20 == 19) {
            must(store->ops->flush(store, &err), &err);
        }
        must(store->ops->maintain(store, 1700000000000, &err), &err);
    }
    must(store->ops->flush(store, &err), &err);
}

/* CPU time of this thread: what a core is busy with, whatever else the machine does. */
static uint64_t cpu_nanos(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static double load_nanos(struct store *store, uint64_t keys)
{
    static struct digest hashes[SAMPLES];
    struct err err = {0};
    struct arena arena;
    arena_init(&arena, &mem_libc, 1 << 20);
    uint64_t seed = 88172645463325252u;
    for (unsigned i = 0; i < SAMPLES; i++) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        struct record record;
        char key[32];
        record_make(&record, key, seed % keys);
        hashes[i] = record.key.hash;
    }
    uint64_t start = cpu_nanos();
    for (unsigned i = 0; i < SAMPLES; i++) {
        const struct record *found = NULL;
        must(store->ops->load(store, &hashes[i], 1, &arena, &found, &err), &err);
        if (found == NULL) {
            (void)fprintf(stderr, "bench_index: a key is missing\n");
            exit(1);
        }
        arena_clear(&arena);
    }
    double nanos = (double)(cpu_nanos() - start) / SAMPLES;
    arena_release(&arena);
    return nanos;
}

static double commit_nanos(struct store *store, uint64_t keys)
{
    struct err err = {0};
    static struct record records[BATCH];
    static char names[BATCH][32];
    static struct change changes[BATCH];
    uint64_t spent = 0;
    for (unsigned round = 0; round < 100; round++) {
        for (unsigned i = 0; i < BATCH; i++) {
            record_make(&records[i], names[i], keys + round * BATCH + i);
            changes[i] = (struct change){.kind = CHANGE_PUT, .record = &records[i]};
        }
        struct commit commit = {
            .changes = changes, .count = BATCH, .moment = {.time_ms = 1700000000000}};
        uint64_t start = cpu_nanos();
        must(store->ops->commit(store, &commit, &err), &err);
        spent += cpu_nanos() - start;
        must(store->ops->flush(store, &err), &err);
    }
    return (double)spent / (100.0 * BATCH);
}

int main(int argc, char **argv)
{
    uint64_t keys = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000000;
    const char *directory = argc > 2 ? argv[2] : "bench-index-data";
    struct err err = {0};
    struct store *store;
    uint64_t before = resident_bytes();
    must(store_open(directory, NULL, &store, &err), &err);
    fill(store, keys);
    double per_key = (double)(resident_bytes() - before) / (double)keys;
    (void)printf("{\"id\":\"B8\",\"keys\":%llu,\"bytes_per_key\":%.1f,\"bar\":96}\n",
        (unsigned long long)keys, per_key);
    must(store->ops->close(store, &err), &err);
    uint64_t start = clock_nanos();
    must(store_open(directory, NULL, &store, &err), &err);
    double seconds = (double)(clock_nanos() - start) / 1e9;
    struct store_head head;
    store->ops->head(store, &head);
    (void)printf("{\"id\":\"B9\",\"keys\":%llu,\"seconds\":%.3f,\"bar\":2}\n",
        (unsigned long long)head.records, seconds);
    (void)printf("{\"id\":\"load\",\"keys\":%llu,\"cpu_nanos\":%.0f}\n", (unsigned long long)keys,
        load_nanos(store, keys));
    (void)printf("{\"id\":\"commit\",\"keys\":%llu,\"cpu_nanos_per_change\":%.0f}\n",
        (unsigned long long)keys, commit_nanos(store, keys));
    must(store->ops->close(store, &err), &err);
    return 0;
}
