/*
 * bench_engine: the engine over the journal, in this process, with calls in flight (B4).
 *
 * Each round runs the engine for half a second, then appends what it wrote, batch by batch in the
 * same sizes, to a zero-filled file with one fdatasync each: that is the disk's limit in the same
 * minute. The ratio of the two is what counts; it would be 1 if deciding, evidence and the index
 * cost nothing.
 *
 * bench_engine dir=PATH [seconds=0.5] [rounds=15] [in_flight=512] [options=write=direct]
 */
#include <string.h>

#include "bare.h"
#include "load.h"
#include "tap.h"

enum {
    OPERATIONS_A_SECOND = 500000, /* prepared; a round ends early when they are used up */
    OPERATIONS_MAX = 1500000,
    BATCHES_MAX = 1 << 20,
    WARM_OPERATIONS = 20000,
    WRITE_BYTES_MAX = 32 << 20, /* more than any batch */
};

#define RING_BYTES   ((uint64_t)256 << 20)
#define WARM_SECONDS 0.3
#define BAR          0.4 /* of B4 */

struct bench {
    const char *dir;
    const char *options; /* of the journal's URL */
    double seconds;
    size_t rounds;
    struct load load;
    struct tap tap;
    struct bare bare;
    char *bytes;     /* what the bare append writes: anything but zeros */
    uint64_t number; /* of the next operation */
};

/* What the rounds of one number in flight came to. */
struct figures {
    double calls[BENCH_ROUNDS_MAX];      /* a second */
    double bare_calls[BENCH_ROUNDS_MAX]; /* what the bare append would have carried */
    double ratios[BENCH_ROUNDS_MAX];
    double cpu_us[BENCH_ROUNDS_MAX]; /* a call */
    double bare_cpu_us[BENCH_ROUNDS_MAX];
    struct bench_times times;
    uint64_t calls_all;
    uint64_t batches_all;
    uint64_t bytes_all;
    double flush_s_all;
    double seconds_all;
};

static struct engine *open_engine(struct bench *bench, const char *path)
{
    char url[BENCH_PATH_MAX + 64];
    struct store_options options = {.io = &bench->tap.io};
    struct store *store = NULL;
    struct engine *engine = NULL;
    struct err err = {0};
    (void)snprintf(url, sizeof url, "journal:%s/store%s%s", path,
        bench->options[0] == '\0' ? "" : "?", bench->options);
    bench_must(store_open(url, &options, &store, &err), &err, url);
    bench_must(engine_new(store, NULL, &engine, &err), &err, "engine");
    return engine;
}

/* Append the noted batches again; seconds it took. */
static double replay(struct bench *bench, double *ret_cpu_s)
{
    double cpu = bench_cpu_s();
    uint64_t started = clock_nanos();
    for (size_t i = 0; i < bench->tap.count; i++) {
        bare_write(&bench->bare, bench->bytes, bench->tap.sizes[i]);
    }
    *ret_cpu_s = bench_cpu_s() - cpu;
    return (double)(clock_nanos() - started) / 1e9;
}

static void add_times(struct bench_times *to, const struct bench_times *from)
{
    to->count += from->count;
    for (size_t i = 0; i < sizeof to->slots / sizeof *to->slots; i++) {
        to->slots[i] += from->slots[i];
    }
}

/* The measured part of a round: calls for some time, with the batches they make noted. */
static struct load_result run_engine(
    struct bench *bench, struct engine *engine, struct figures *figures)
{
    struct engine_stats before, after;
    size_t count = (size_t)(bench->seconds * OPERATIONS_A_SECOND);
    load_prepare(&bench->load, bench->number, count < OPERATIONS_MAX ? count : OPERATIONS_MAX);
    tap_clear(&bench->tap);
    bench->tap.threads = bench->load.answering;
    bench->tap.thread_count = &bench->load.answering_count;
    engine_stats(engine, &before);
    bench->tap.open = true;
    struct load_result result = load_run(&bench->load, engine, bench->seconds);
    bench->tap.open = false;
    engine_stats(engine, &after);
    bench->number += bench->load.next;

    add_times(&figures->times, &bench->load.times);
    figures->calls_all += result.calls;
    figures->batches_all += bench->tap.count;
    figures->bytes_all += bench->tap.bytes;
    figures->flush_s_all += (double)(after.flush_nanos - before.flush_nanos) / 1e9;
    figures->seconds_all += result.seconds;
    return result;
}

static void run_round(
    struct bench *bench, struct engine *engine, struct figures *figures, size_t round)
{
    struct load_result result = run_engine(bench, engine, figures);
    if (bench->tap.count == 0 || bench->tap.count > bench->tap.cap ||
        bench->tap.size_largest > WRITE_BYTES_MAX) {
        bench_fail("%zu batches of at most %zu bytes cannot be written again", bench->tap.count,
            bench->tap.size_largest);
    }
    double bare_cpu_s = 0;
    double bare_s = replay(bench, &bare_cpu_s);
    figures->calls[round] = (double)result.calls / result.seconds;
    figures->bare_calls[round] = (double)result.calls / bare_s;
    figures->ratios[round] = bare_s / result.seconds;
    figures->cpu_us[round] = result.cpu_s * 1e6 / (double)result.calls;
    figures->bare_cpu_us[round] = bare_cpu_s * 1e6 / (double)result.calls;
}

static void report(struct bench *bench, struct figures *figures, size_t in_flight, bool bar)
{
    char id[32], what[128], detail[512];
    size_t rounds = bench->rounds;
    (void)snprintf(id, sizeof id, bar ? "B4" : "B4-%zu", in_flight);
    (void)snprintf(
        what, sizeof what, "engine in-process, begin and seal, %zu in flight", in_flight);
    (void)snprintf(detail, sizeof detail,
        "\"p50_us\":%.0f,\"p99_us\":%.0f,\"p999_us\":%.0f,\"cpu_us_per_call\":%.2f,"
        "\"bare_cpu_us_per_call\":%.2f,\"calls_per_batch\":%.1f,\"bytes_per_call\":%.0f,"
        "\"flush_part\":%.2f,\"rounds\":%zu",
        bench_times_us(&figures->times, 0.5), bench_times_us(&figures->times, 0.99),
        bench_times_us(&figures->times, 0.999), bench_median(figures->cpu_us, rounds),
        bench_median(figures->bare_cpu_us, rounds),
        (double)figures->calls_all / (double)figures->batches_all,
        (double)figures->bytes_all / (double)figures->calls_all,
        figures->flush_s_all / figures->seconds_all, rounds);
    bench_report(&(struct bench_row){.id = id,
        .what = what,
        .figure = bench_median(figures->calls, rounds),
        .unit = "calls/s",
        .compared = "the same batches: zero-filled append + fdatasync",
        .compared_figure = bench_median(figures->bare_calls, rounds),
        .ratios = figures->ratios,
        .rounds = rounds,
        .better = bar ? BENCH_AT_LEAST : BENCH_INFO,
        .bar = BAR,
        .detail = detail});
}

/* Caches, the first segments, and which thread it is that answers. */
static void warm_up(struct bench *bench, struct engine *engine)
{
    load_prepare(&bench->load, bench->number, WARM_OPERATIONS);
    (void)load_run(&bench->load, engine, WARM_SECONDS);
    bench->number += bench->load.next;
}

static void run_in_flight(struct bench *bench, size_t in_flight, bool bar)
{
    struct figures *figures = mem_zalloc(&mem_libc, 1, sizeof *figures);
    if (figures == NULL) {
        bench_fail("out of memory");
    }
    char path[BENCH_PATH_MAX];
    struct err err = {0};
    load_init(&bench->load, in_flight, true, OPERATIONS_MAX);
    bench_dir_make(path, bench->dir, "engine");
    struct engine *engine = open_engine(bench, path);
    warm_up(bench, engine);
    for (size_t i = 0; i < bench->rounds; i++) {
        bench_progress("engine, %zu in flight, round %zu of %zu", in_flight, i + 1, bench->rounds);
        run_round(bench, engine, figures, i);
    }
    bench_must(engine_free(engine, &err), &err, "close");
    bench_dir_remove(path);
    report(bench, figures, in_flight, bar);
    load_release(&bench->load);
    mem_free(&mem_libc, figures);
}

int main(int argc, char **argv)
{
    static struct bench bench;
    char path[BENCH_PATH_MAX], file[BENCH_PATH_MAX + 8];
    bench.dir = bench_text(argc, argv, "dir", ".");
    bench.options = bench_text(argc, argv, "options", "");
    bench.seconds = bench_number(argc, argv, "seconds", 0.5);
    bench.rounds = bench_rounds(argc, argv, 15);
    size_t only = (size_t)bench_number(argc, argv, "in_flight", 0);
    bench.bytes = mem_alloc(&mem_libc, WRITE_BYTES_MAX);
    if (bench.bytes == NULL) {
        bench_fail("out of memory");
    }
    memset(bench.bytes, 0x5a, WRITE_BYTES_MAX);
    tap_init(&bench.tap, BATCHES_MAX);
    bench_dir_make(path, bench.dir, "bare");
    (void)snprintf(file, sizeof file, "%s/ring", path);
    bare_open(&bench.bare, file, BARE_ZEROED, RING_BYTES);

    static const size_t in_flight[] = {512, 64, 1};
    for (size_t i = 0; i < sizeof in_flight / sizeof *in_flight; i++) {
        if (only == 0 || only == in_flight[i]) {
            run_in_flight(&bench, in_flight[i], i == 0);
        }
    }
    bare_close(&bench.bare);
    bench_dir_remove(path);
    tap_release(&bench.tap);
    mem_free(&mem_libc, bench.bytes);
    return 0;
}
