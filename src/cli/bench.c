/*
 * once bench: durable pairs of begin and seal per second, inside this process.
 *
 * A slot is one pair in progress. The library answers on its own thread and puts the slot on the
 * ready list, from which the threads take slots and submit their next call.
 */
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "cli/out.h"
#include "cli/scratch.h"
#include "lib/inspect.h"

enum { THREADS_MAX = 64, IN_FLIGHT_MAX = 16384, SECONDS_MAX = 3600 };

struct bench_slot {
    struct cli_bench *bench;
    struct bench_slot *next; /* in the ready list */
    uint64_t number;         /* of the slot */
    uint64_t round;          /* pairs done in it */
    bool is_granted;         /* begun; to be sealed next */
    uint64_t fence;
    char operation_id[40];
};

struct cli_bench {
    struct once *once;
    uint64_t nonce; /* so that a store can be measured again */
    uint64_t until_ns;
    struct bench_slot *slots;
    size_t slot_count;
    pthread_t threads[THREADS_MAX];
    size_t thread_count;
    pthread_mutex_t mutex; /* guards the members below */
    pthread_cond_t changed;
    struct bench_slot *ready; /* slots whose call was answered, or is their first */
    size_t active;            /* slots in use */
    uint64_t pairs;
    struct once_error error; /* the first */
};

/* Put a slot on the ready list. The caller holds the mutex; error is NULL unless its call
 * failed. */
static void put_ready(struct bench_slot *slot, const struct once_error *error)
{
    struct cli_bench *bench = slot->bench;
    if (error != NULL && bench->error.result == ONCE_OK) {
        bench->error = *error;
    }
    slot->next = bench->ready;
    bench->ready = slot;
    (void)pthread_cond_signal(&bench->changed);
}

/* On the library's thread: must not block. */
static void answered(
    void *context, int result, struct once_answer *answer, const struct once_error *error)
{
    struct bench_slot *slot = context;
    struct cli_bench *bench = slot->bench;
    uint64_t done = slot->is_granted ? 1 : 0;
    if (result == ONCE_OK) {
        slot->fence = answer->fence;
        memcpy(slot->operation_id, answer->operation_id, sizeof slot->operation_id);
        slot->is_granted = !slot->is_granted;
        slot->round += done;
        once_answer_free(bench->once, answer);
    }
    (void)pthread_mutex_lock(&bench->mutex);
    bench->pairs += result == ONCE_OK ? done : 0;
    put_ready(slot, result == ONCE_OK ? NULL : error);
    (void)pthread_mutex_unlock(&bench->mutex);
}

static int submit(struct bench_slot *slot, struct once_error *error)
{
    char key[64];
    struct once_begin begin = {.scope = "bench", .key = key, .payload = {"{\"n\":1}", 7}};
    struct once_seal seal = {.operation_id = slot->operation_id,
        .fence = slot->fence,
        .status = ONCE_EXECUTED,
        .outcome = {.code = 200, .body = {"{\"ok\":true}", 11}}};
    struct once_call call = {
        .begin = slot->is_granted ? NULL : &begin, .seal = slot->is_granted ? &seal : NULL};
    (void)snprintf(key, sizeof key, "%016llx-%llu-%llu", (unsigned long long)slot->bench->nonce,
        (unsigned long long)slot->number, (unsigned long long)slot->round);
    return once_submit(slot->bench->once, &call, answered, slot, error);
}

static void *thread_main(void *context)
{
    struct cli_bench *bench = context;
    (void)pthread_mutex_lock(&bench->mutex);
    while (bench->active > 0) {
        struct bench_slot *slot = bench->ready;
        if (slot == NULL) {
            (void)pthread_cond_wait(&bench->changed, &bench->mutex);
            continue;
        }
        bench->ready = slot->next;
        if (clock_nanos() >= bench->until_ns || bench->error.result != ONCE_OK) {
            bench->active--;
            continue;
        }
        struct once_error error;
        (void)pthread_mutex_unlock(&bench->mutex);
        int result = submit(slot, &error);
        (void)pthread_mutex_lock(&bench->mutex);
        if (result != ONCE_OK) {
            put_ready(slot, &error);
        }
    }
    (void)pthread_cond_broadcast(&bench->changed);
    (void)pthread_mutex_unlock(&bench->mutex);
    return NULL;
}

static double measure(struct cli_bench *bench, uint64_t seconds)
{
    uint64_t start = clock_nanos();
    bench->until_ns = start + seconds * 1000000000;
    bench->active = bench->slot_count;
    for (size_t i = 0; i < bench->slot_count; i++) {
        bench->slots[i] = (struct bench_slot){.bench = bench, .number = i, .next = bench->ready};
        bench->ready = &bench->slots[i];
    }
    for (size_t i = 0; i < bench->thread_count; i++) {
        ASSERT(pthread_create(&bench->threads[i], NULL, thread_main, bench) == 0);
    }
    for (size_t i = 0; i < bench->thread_count; i++) {
        ASSERT(pthread_join(bench->threads[i], NULL) == 0);
    }
    return (double)(clock_nanos() - start) / 1e9;
}

static int print_result(
    struct cli *cli, const struct cli_bench *bench, const char *dir, double seconds)
{
    uint64_t pairs = bench->pairs;
    struct inspect_speed speed = {0};
    bool timed = dir != NULL && inspect_speed(dir, &speed, NULL) == OK;
    const struct inspect_way *way = &speed.ways[0];
    for (size_t i = 0; i < INSPECT_WAYS; i++) {
        way = speed.ways[i].is_fastest ? &speed.ways[i] : way;
    }
    double p50_ms = (double)way->p50_ns / 1e6;
    double p99_ms = (double)way->p99_ns / 1e6;
    if (cli->json) {
        struct out_json whole;
        struct jsonw *json = out_json_begin(&whole, 1 << 16);
        jsonw_u64(json, "pairs", pairs);
        jsonw_real(json, "seconds", seconds);
        jsonw_real(json, "pairs_per_second", (double)pairs / seconds);
        jsonw_u64(json, "threads", bench->thread_count);
        jsonw_u64(json, "in_flight", bench->slot_count);
        if (timed) {
            jsonw_real(json, "flush_p50_ms", p50_ms);
            jsonw_real(json, "flush_p99_ms", p99_ms);
        }
        return out_json_end(&whole);
    }
    out_text("%.0f pairs of begin and seal per second (%llu in %.2f s, %zu in flight, %s)\n",
        (double)pairs / seconds, (unsigned long long)pairs, seconds, bench->slot_count,
        COUNTED(bench->thread_count, "thread", "threads"));
    if (timed) {
        out_text("one flush, %s: p50 %.3f ms, p99 %.3f ms\n", way->text, p50_ms, p99_ms);
    }
    return out_finish();
}

static int run_on(struct cli *cli, struct cli_bench *bench, const char *url)
{
    struct once_error error = {0};
    struct once_options options = {.store = url, .lock_wait_ms = 1000};
    if (once_open(&options, &bench->once, &error) != ONCE_OK) {
        return cli_fail(&error);
    }
    double seconds = measure(bench, cli_count(cli, "seconds"));
    int closed = once_close(bench->once, &error);
    if (bench->error.result != ONCE_OK) {
        return cli_fail(&bench->error);
    }
    if (closed != ONCE_OK) {
        return cli_fail(&error);
    }
    return print_result(cli, bench, cli_store_dir(cli, url), seconds);
}

static int check_options(struct cli *cli)
{
    uint64_t threads = cli_count(cli, "threads");
    uint64_t in_flight = cli_count(cli, "in-flight");
    uint64_t seconds = cli_count(cli, "seconds");
    if (threads < 1 || threads > THREADS_MAX || in_flight < threads || in_flight > IN_FLIGHT_MAX ||
        seconds < 1 || seconds > SECONDS_MAX) {
        return cli_usage(cli,
            "bench: --threads is 1 to %d, --in-flight at least that and at most %d, --seconds 1 to "
            "%d",
            THREADS_MAX, IN_FLIGHT_MAX, SECONDS_MAX);
    }
    return CLI_OK;
}

int cmd_bench(struct cli *cli)
{
    char dir[PATH_MAX];
    char url[PATH_MAX + 32];
    const char *store = cli_text(cli, "store");
    struct cli_bench *bench = arena_zalloc(&cli->arena, sizeof *bench);
    int code = check_options(cli);
    if (code != CLI_OK || bench == NULL) {
        return code != CLI_OK ? code : CLI_UNAVAILABLE;
    }
    bench->thread_count = (size_t)cli_count(cli, "threads");
    bench->slot_count = (size_t)cli_count(cli, "in-flight");
    bench->nonce = clock_nanos() ^ (uint64_t)cli_now_ms() << 20;
    bench->slots = arena_zalloc(&cli->arena, bench->slot_count * sizeof *bench->slots);
    if (bench->slots == NULL) {
        return CLI_UNAVAILABLE;
    }
    (void)pthread_mutex_init(&bench->mutex, NULL);
    (void)pthread_cond_init(&bench->changed, NULL);
    if (store != NULL) {
        return run_on(cli, bench, store);
    }
    code = scratch_make(".", "once-bench", dir, sizeof dir); /* on the current disk */
    if (code == CLI_OK) {
        (void)snprintf(url, sizeof url, "journal:%s/data", dir);
        code = run_on(cli, bench, url);
        scratch_remove(dir);
    }
    return code;
}
