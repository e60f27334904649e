/*
 * bench_keys: what many live keys cost: speed of begins (B7), memory (B8), time to start (B9), and
 * finding the few that are due (B14).
 *
 * The keys are loaded through the store's commit as sealed operations without evidence entries,
 * because loading is not what is measured. Everything that measures memory or start runs in a child
 * process of its own, so that nothing of the load is left in it.
 *
 * bench_keys dir=PATH [keys=10000000] [few=100000] [seconds=0.3] [starts=3] [rounds=9]
 * bench_keys dir=PATH load=N: only loads N keys into journal:PATH/store
 */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/limits.h"
#include "load.h"

enum {
    COMMIT_RECORDS = 1024,    /* as many as the engine would */
    FLUSH_COMMITS = 8,        /* between two flushes while loading */
    BEGINS_A_SECOND = 600000, /* prepared; a run ends early when they are used up */
    IN_FLIGHT = 512,
    TEXT_BYTES = 32,
    STARTS_MAX = 16,
    DUES = 100,             /* records with a lease that is over, among the others */
    DUE_AFTER_US = 2500000, /* a due may be found a second late */
};

#define NUMBER_FRESH (UINT64_C(1) << 40) /* measured begins are on keys from here on */

/* The bars of B7 to B9 (docs/benchmarks.md), and of a search for dues. */
#define BAR_SPEED 0.6
#define BAR_BYTES 64
#define BAR_START 1.0
#define BAR_DUE   1000 /* microseconds: most of them read the records found */

struct bench {
    char many[BENCH_PATH_MAX]; /* data directories */
    char few[BENCH_PATH_MAX];
    uint64_t keys;
    uint64_t keys_few;
    double seconds;
    size_t rounds;
    size_t starts;   /* rounds of these */
    uint64_t number; /* of the next fresh key */
};

static struct store *open_store(const char *path)
{
    char url[BENCH_PATH_MAX + 64];
    struct store_options options = {0};
    struct store *store = NULL;
    struct err err = {0};
    (void)snprintf(url, sizeof url, "journal:%s/store", path);
    bench_must(store_open(url, &options, &store, &err), &err, url);
    return store;
}

static struct engine *open_engine(const char *path)
{
    struct err err = {0};
    struct engine *engine = NULL;
    bench_must(engine_new(open_store(path), NULL, &engine, &err), &err, "engine");
    return engine;
}

/* ---- loading ------------------------------------------------------------------------------- */

struct loading {
    struct record records[COMMIT_RECORDS];
    struct change changes[COMMIT_RECORDS];
    char texts[COMMIT_RECORDS][TEXT_BYTES];
};

static void make_record(
    struct record *record, uint64_t number, char *text, uint64_t fence, int64_t now_ms)
{
    struct err err = {0};
    *record = (struct record){.version = 1,
        .kind = RECORD_OPERATION,
        .status = RECORD_EXECUTED,
        .fingerprint_version = 1,
        .fence = fence,
        .attempt = 1,
        .created_ms = now_ms,
        .updated_ms = now_ms,
        .sealed_ms = now_ms,
        .window_ms = LIMIT_WINDOW_MS_DEFAULT,
        .window_expires_ms = now_ms + LIMIT_WINDOW_MS_DEFAULT,
        .outcome = {.code = 201}};
    load_key(number, text, &record->key);
    bench_must(record_key_seal(&record->key, &err), &err, "key");
    record->fingerprint = record->key.hash;
    record->operation_id = op_id_make(now_ms, &record->key.hash, fence);
}

static void commit_keys(struct store *store, struct loading *loading, uint64_t first, size_t count)
{
    struct clock clock;
    struct err err = {0};
    struct store_batch batch = {.fences = count};
    clock_system(&clock);
    struct clock_reading now = clock_read(&clock);
    bench_must(store->ops->prepare(store, &batch, &err), &err, "prepare");
    uint64_t fence = batch.fence_first;
    for (size_t i = 0; i < count; i++) {
        make_record(&loading->records[i], first + i, loading->texts[i], fence + i, now.wall_ms);
        loading->changes[i] = (struct change){.kind = CHANGE_PUT, .record = &loading->records[i]};
    }
    struct commit commit = {.changes = loading->changes, .count = count};
    bench_must(store->ops->commit(store, &commit, &err), &err, "commit");
}

static void load_keys(const char *path, uint64_t keys)
{
    struct err err = {0};
    struct loading *loading = mem_zalloc(&mem_libc, 1, sizeof *loading);
    if (loading == NULL) {
        bench_fail("out of memory");
    }
    struct store *store = open_store(path);
    uint64_t commits = 0;
    for (uint64_t at = 0; at < keys; at += COMMIT_RECORDS) {
        size_t count = keys - at < COMMIT_RECORDS ? (size_t)(keys - at) : COMMIT_RECORDS;
        commit_keys(store, loading, at, count);
        commits++;
        if (commits % FLUSH_COMMITS == 0) {
            bench_must(store->ops->flush(store, &err), &err, "flush");
            bench_must(store->ops->housekeeping->maintain(store, &err), &err, "maintain");
        }
        if (commits % 1024 == 0) {
            bench_progress("keys: %.1f M of %.1f M loaded", (double)at / 1e6, (double)keys / 1e6);
        }
    }
    bench_must(store->ops->flush(store, &err), &err, "flush");
    bench_must(store->ops->close(store, &err), &err, "close");
    mem_free(&mem_libc, loading);
}

/* ---- start and memory ---------------------------------------------------------------------- */

struct start {
    double seconds; /* until the first begin was answered */
    double cpu_s;   /* of that, of all threads */
    double bytes;   /* resident, more than before */
    uint64_t keys;  /* live */
};

/* A first begin, as a caller would find it. */
static void begin_one(struct engine *engine, uint64_t number)
{
    struct load load;
    load_init(&load, 1, true, 1);
    load_prepare(&load, number, 1);
    (void)load_run(&load, engine, 0);
    load_release(&load);
}

/* crash: end without closing, as kill -9 would. */
static struct start start_once(const char *path, uint64_t number, bool crash)
{
    struct err err = {0};
    struct engine_stats stats;
    uint64_t resident = bench_resident_bytes();
    double cpu = bench_cpu_s();
    uint64_t started = clock_nanos();
    struct engine *engine = open_engine(path);
    begin_one(engine, number);
    struct start start = {.seconds = (double)(clock_nanos() - started) / 1e9};
    start.cpu_s = bench_cpu_s() - cpu;
    start.bytes = (double)(bench_resident_bytes() - resident);
    engine_stats(engine, &stats);
    start.keys = stats.counts.records;
    if (!crash) {
        bench_must(engine_free(engine, &err), &err, "close");
    }
    return start;
}

/* Run in a child: what it left is read from a pipe. */
static struct start in_child(const struct bench *bench, uint64_t number, bool load, bool crash)
{
    int ends[2], status;
    struct start start = {0};
    bench_must_errno(pipe(ends), "pipe");
    pid_t child = fork();
    bench_must_errno(child, "fork");
    if (child == 0) {
        if (load) {
            load_keys(bench->many, bench->keys);
        } else {
            start = start_once(bench->many, number, crash);
        }
        _exit(write(ends[1], &start, sizeof start) == sizeof start ? 0 : 1);
    }
    (void)close(ends[1]);
    ssize_t got = read(ends[0], &start, sizeof start);
    (void)close(ends[0]);
    bench_must_errno(waitpid(child, &status, 0), "waitpid");
    if (got != sizeof start || status != 0) {
        bench_fail("a child process failed");
    }
    return start;
}

static void measure_start(struct bench *bench)
{
    double seconds[STARTS_MAX], crashed[STARTS_MAX], bytes[STARTS_MAX];
    double cpu[STARTS_MAX];
    char what[128], detail[128];
    uint64_t keys = 0;
    for (size_t i = 0; i < bench->starts; i++) {
        bench_progress("start, round %zu of %zu", i + 1, bench->starts);
        /* This one ends without closing, so the next finds what a crash leaves. */
        struct start start = in_child(bench, bench->number++, false, true);
        seconds[i] = start.seconds;
        cpu[i] = start.cpu_s;
        bytes[i] = start.bytes / (double)start.keys;
        keys = start.keys;
        crashed[i] = in_child(bench, bench->number++, false, false).seconds;
    }
    if (keys < bench->keys) {
        bench_fail("only %llu keys are there", (unsigned long long)keys);
    }
    (void)snprintf(
        what, sizeof what, "resident memory a live key, %.4g M keys", (double)keys / 1e6);
    bench_report(&(struct bench_row){.id = "B8",
        .what = what,
        .figure = bench_median(bytes, bench->starts),
        .unit = "bytes",
        .better = BENCH_AT_MOST,
        .bar = BAR_BYTES});
    (void)snprintf(
        what, sizeof what, "start to first begin answered, %.4g M keys", (double)keys / 1e6);
    (void)snprintf(detail, sizeof detail, "\"after_crash_s\":%.3f,\"cpu_s\":%.3f",
        bench_median(crashed, bench->starts), bench_median(cpu, bench->starts));
    bench_report(&(struct bench_row){.id = "B9",
        .what = what,
        .figure = bench_median(seconds, bench->starts),
        .unit = "s",
        .better = BENCH_AT_MOST,
        .bar = BAR_START,
        .detail = detail});
}

/* ---- dues ---------------------------------------------------------------------------------- */

/* Grant some operations with a lease that ends at once. */
static void grant_briefly(struct bench *bench, struct store *store)
{
    static struct loading loading;
    struct err err = {0};
    struct store_batch batch = {.fences = DUES};
    bench_must(store->ops->prepare(store, &batch, &err), &err, "prepare");
    for (size_t i = 0; i < DUES; i++) {
        struct record *record = &loading.records[i];
        make_record(record, bench->number++, loading.texts[i], batch.fence_first + i, batch.now_ms);
        record->status = RECORD_IN_PROGRESS;
        record->sealed_ms = record->window_expires_ms = 0;
        record->outcome = (struct outcome){0};
        record->lease_expires_ms = batch.now_ms + 1;
        loading.changes[i] = (struct change){.kind = CHANGE_PUT, .record = record};
    }
    struct commit commit = {.changes = loading.changes, .count = DUES};
    bench_must(store->ops->commit(store, &commit, &err), &err, "commit");
    bench_must(store->ops->flush(store, &err), &err, "flush");
}

/* Microseconds until the store gave them. */
static double ask_for_dues(struct store *store)
{
    static const struct store_due_filter leases = {
        .kinds = STORE_KINDS_ALL, .reasons = STORE_DUE(RECORD_DUE_LEASE_OVER)};
    struct store_due dues[DUES];
    struct err err = {0};
    size_t count = 0;
    uint64_t started = clock_nanos();
    bench_must(store->ops->due(store, &leases, dues, DUES, &count, &err), &err, "due");
    double micros = (double)(clock_nanos() - started) / 1e3;
    if (count != DUES) {
        bench_fail("%zu of %d dues were found", count, DUES);
    }
    return micros;
}

/* The same by going through the whole index, as the janitor did before there were dues: every key
 * that is in progress is read to see when its lease ends. */
static double sweep_for_dues(struct store *store, struct arena *arena)
{
    const struct record *records[2 * DUES];
    struct store_batch time = {.count = 0};
    struct scan scan = {
        .kinds = STORE_KINDS_ALL, .status = RECORD_IN_PROGRESS, .limit = 2 * (size_t)DUES};
    struct err err = {0};
    size_t count = 0;
    size_t due = 0;
    arena_clear(arena);
    uint64_t started = clock_nanos();
    bench_must(store->ops->read(store, &time, &err), &err, "read");
    bench_must(store->ops->scan(store, &scan, arena, records, &count, &err), &err, "scan");
    for (size_t i = 0; i < count; i++) {
        due += records[i]->lease_expires_ms <= time.now_ms;
    }
    double micros = (double)(clock_nanos() - started) / 1e3;
    if (due != DUES) {
        bench_fail("%zu of %d dues were found by a sweep", due, DUES);
    }
    return micros;
}

static void measure_due(struct bench *bench)
{
    double micros[BENCH_ROUNDS_MAX], swept[BENCH_ROUNDS_MAX];
    struct err err = {0};
    struct arena arena;
    char what[128];
    struct store *store = open_store(bench->many);
    arena_init(&arena, &mem_libc, SIZE_MAX / 2);
    grant_briefly(bench, store);
    (void)usleep(DUE_AFTER_US);
    for (size_t i = 0; i < bench->rounds; i++) {
        micros[i] = ask_for_dues(store);
        swept[i] = sweep_for_dues(store, &arena);
    }
    arena_release(&arena);
    bench_must(store->ops->close(store, &err), &err, "close");
    (void)snprintf(what, sizeof what, "finding %d due records among %.4g M keys", DUES,
        (double)bench->keys / 1e6);
    bench_report(&(struct bench_row){.id = "B14",
        .what = what,
        .figure = bench_median(micros, bench->rounds),
        .unit = "us",
        .compared = "by a sweep of the whole index",
        .compared_figure = bench_median(swept, bench->rounds),
        .better = BENCH_AT_MOST,
        .bar = BAR_DUE});
}

/* ---- speed --------------------------------------------------------------------------------- */

static double begins_a_second(struct bench *bench, struct load *load, struct engine *engine)
{
    load_prepare(load, bench->number, (size_t)(bench->seconds * BEGINS_A_SECOND));
    struct load_result result = load_run(load, engine, bench->seconds);
    bench->number += load->next;
    return (double)result.calls / result.seconds;
}

static void measure_speed(struct bench *bench, const char *dir)
{
    double many[BENCH_ROUNDS_MAX], few[BENCH_ROUNDS_MAX], ratios[BENCH_ROUNDS_MAX];
    char what[128], compared[128];
    struct err err = {0};
    struct load load;
    load_init(&load, IN_FLIGHT, false, (size_t)(bench->seconds * BEGINS_A_SECOND));
    struct engine *engine = open_engine(bench->many);
    for (size_t i = 0; i < bench->rounds; i++) {
        bench_progress("begins, round %zu of %zu", i + 1, bench->rounds);
        /* Made again each time: the begins measured would make many of few. */
        bench_dir_make(bench->few, dir, "few");
        load_keys(bench->few, bench->keys_few);
        struct engine *engine_few = open_engine(bench->few);
        (void)begins_a_second(bench, &load, engine_few); /* warm up */
        few[i] = begins_a_second(bench, &load, engine_few);
        many[i] = begins_a_second(bench, &load, engine);
        ratios[i] = many[i] / few[i];
        bench_must(engine_free(engine_few, &err), &err, "close");
        bench_dir_remove(bench->few);
    }
    bench_must(engine_free(engine, &err), &err, "close");
    load_release(&load);
    (void)snprintf(what, sizeof what, "begins in-process, %d in flight, %.4g M live keys",
        IN_FLIGHT, (double)bench->keys / 1e6);
    (void)snprintf(
        compared, sizeof compared, "with %.4g k live keys", (double)bench->keys_few / 1e3);
    bench_report(&(struct bench_row){.id = "B7",
        .what = what,
        .figure = bench_median(many, bench->rounds),
        .unit = "begins/s",
        .compared = compared,
        .compared_figure = bench_median(few, bench->rounds),
        .ratios = ratios,
        .rounds = bench->rounds,
        .better = BENCH_AT_LEAST,
        .bar = BAR_SPEED});
}

int main(int argc, char **argv)
{
    static struct bench bench;
    const char *dir = bench_text(argc, argv, "dir", ".");
    double load = bench_number(argc, argv, "load", 0);
    if (load > 0) {
        load_keys(dir, (uint64_t)load);
        return 0;
    }
    bench.keys = (uint64_t)bench_number(argc, argv, "keys", 1e7);
    bench.keys_few = (uint64_t)bench_number(argc, argv, "few", 1e5);
    bench.seconds = bench_number(argc, argv, "seconds", 0.3);
    bench.rounds = bench_rounds(argc, argv, 9);
    bench.starts = (size_t)bench_number(argc, argv, "starts", 3);
    if (bench.starts < 1 || bench.starts > STARTS_MAX) {
        bench_fail("starts is between 1 and %d", STARTS_MAX);
    }
    bench.number = NUMBER_FRESH;
    bench_dir_make(bench.many, dir, "many");
    (void)in_child(&bench, 0, true, false);
    measure_start(&bench);
    measure_due(&bench);
    measure_speed(&bench, dir);
    bench_dir_remove(bench.many);
    return 0;
}
