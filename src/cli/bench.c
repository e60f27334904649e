/*
 * once bench: durable pairs of begin and seal per second, inside this process.
 *
 * A slot is one pair under way. The library answers on its own thread and hands the slot back to
 * the thread that owns it, which submits the next call.
 */
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "cli/out.h"
#include "cli/scratch.h"
#include "lib/inspect.h"

enum { THREADS_MAX = 64, IN_FLIGHT_MAX = 16384, SECONDS_MAX = 3600 };

struct bench_slot {
    struct bench_thread *owner;
    struct bench_slot *next; /* in the owner's list of ready ones */
    uint64_t number;         /* of the slot */
    uint64_t round;          /* pairs done in it */
    bool granted;            /* begun; to be sealed next */
    uint64_t fence;
    char operation_id[40];
};

struct bench_thread {
    struct bench *bench;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    struct bench_slot *ready; /* under mutex */
    size_t slots;             /* it owns */
    size_t flying;            /* submitted and not yet back; its own */
    uint64_t pairs;
};

struct bench {
    struct once *once;
    uint64_t nonce; /* so that a store may be measured again */
    uint64_t until_ns;
    struct bench_slot *slots;
    size_t slot_count;
    struct bench_thread threads[THREADS_MAX];
    size_t thread_count;
    pthread_mutex_t mutex;
    struct once_error error; /* the first; under mutex */
};

static void note_error(struct bench *bench, const struct once_error *error)
{
    (void)pthread_mutex_lock(&bench->mutex);
    if (bench->error.result == ONCE_OK) {
        bench->error = *error;
    }
    (void)pthread_mutex_unlock(&bench->mutex);
}

static bool has_error(struct bench *bench)
{
    (void)pthread_mutex_lock(&bench->mutex);
    bool has = bench->error.result != ONCE_OK;
    (void)pthread_mutex_unlock(&bench->mutex);
    return has;
}

/* On the library's thread: must not block. */
static void answered(
    void *context, int result, struct once_answer *answer, const struct once_error *error)
{
    struct bench_slot *slot = context;
    struct bench_thread *owner = slot->owner;
    if (result != ONCE_OK) {
        note_error(owner->bench, error);
    } else {
        slot->fence = answer->fence;
        memcpy(slot->operation_id, answer->operation_id, sizeof slot->operation_id);
        once_answer_free(owner->bench->once, answer);
    }
    (void)pthread_mutex_lock(&owner->mutex);
    slot->next = owner->ready;
    owner->ready = slot;
    (void)pthread_cond_signal(&owner->wake);
    (void)pthread_mutex_unlock(&owner->mutex);
}

static bool submit(struct bench_thread *owner, struct bench_slot *slot)
{
    struct once_error error;
    char key[64];
    struct once_begin begin = {.scope = "bench", .key = key, .payload = {"{\"n\":1}", 7}};
    struct once_seal seal = {.operation_id = slot->operation_id,
        .fence = slot->fence,
        .status = ONCE_EXECUTED,
        .outcome = {.code = 200, .body = {"{\"ok\":true}", 11}}};
    struct once_call call = {0};
    (void)snprintf(key, sizeof key, "%016llx-%llu-%llu", (unsigned long long)owner->bench->nonce,
        (unsigned long long)slot->number, (unsigned long long)slot->round);
    if (slot->granted) {
        call.seal = &seal;
    } else {
        call.begin = &begin;
    }
    if (once_submit(owner->bench->once, &call, answered, slot, &error) != ONCE_OK) {
        note_error(owner->bench, &error);
        return false;
    }
    owner->flying++;
    return true;
}

static struct bench_slot *take_ready(struct bench_thread *owner)
{
    (void)pthread_mutex_lock(&owner->mutex);
    while (owner->ready == NULL) {
        (void)pthread_cond_wait(&owner->wake, &owner->mutex);
    }
    struct bench_slot *list = owner->ready;
    owner->ready = NULL;
    (void)pthread_mutex_unlock(&owner->mutex);
    return list;
}

/* A slot came back: its pair goes on, or the next one begins. */
static void advance(struct bench_thread *owner, struct bench_slot *slot)
{
    bool over = clock_nanos() >= owner->bench->until_ns || has_error(owner->bench);
    owner->pairs += slot->granted ? 1 : 0;
    slot->round += slot->granted ? 1 : 0;
    slot->granted = !slot->granted;
    if (!over) {
        (void)submit(owner, slot);
    }
}

static void *thread_main(void *context)
{
    struct bench_thread *owner = context;
    struct bench *bench = owner->bench;
    for (size_t i = 0; i < bench->slot_count; i++) {
        if (bench->slots[i].owner == owner && !submit(owner, &bench->slots[i])) {
            break;
        }
    }
    while (owner->flying > 0) {
        struct bench_slot *list = take_ready(owner);
        while (list != NULL) {
            struct bench_slot *slot = list;
            list = slot->next;
            owner->flying--;
            advance(owner, slot);
        }
    }
    return NULL;
}

static double measure(struct bench *bench, uint64_t seconds, uint64_t *ret_pairs)
{
    uint64_t start = clock_nanos();
    uint64_t pairs = 0;
    bench->until_ns = start + seconds * 1000000000;
    for (size_t i = 0; i < bench->thread_count; i++) {
        struct bench_thread *thread = &bench->threads[i];
        thread->bench = bench;
        (void)pthread_mutex_init(&thread->mutex, NULL);
        (void)pthread_cond_init(&thread->wake, NULL);
    }
    for (size_t i = 0; i < bench->slot_count; i++) {
        bench->slots[i].owner = &bench->threads[i % bench->thread_count];
        bench->slots[i].number = i;
    }
    for (size_t i = 0; i < bench->thread_count; i++) {
        ASSERT(
            pthread_create(&bench->threads[i].thread, NULL, thread_main, &bench->threads[i]) == 0);
    }
    for (size_t i = 0; i < bench->thread_count; i++) {
        ASSERT(pthread_join(bench->threads[i].thread, NULL) == 0);
        pairs += bench->threads[i].pairs;
    }
    *ret_pairs = pairs;
    return (double)(clock_nanos() - start) / 1e9;
}

static int print_result(
    struct cli *cli, const struct bench *bench, const char *dir, uint64_t pairs, double seconds)
{
    struct inspect_speed speed = {0};
    bool timed = dir != NULL && inspect_speed(dir, &speed, NULL) == OK;
    double p50_ms = (double)speed.buffered_p50_ns / 1e6;
    double p99_ms = (double)speed.buffered_p99_ns / 1e6;
    if (cli->json) {
        struct buf bytes;
        struct jsonw json = {.out = &bytes};
        buf_init(&bytes, &mem_libc, 1 << 16);
        jsonw_open(&json, NULL, '{');
        jsonw_u64(&json, "pairs", pairs);
        jsonw_real(&json, "seconds", seconds);
        jsonw_real(&json, "pairs_per_second", (double)pairs / seconds);
        jsonw_u64(&json, "threads", bench->thread_count);
        jsonw_u64(&json, "in_flight", bench->slot_count);
        if (timed) {
            jsonw_real(&json, "flush_p50_ms", p50_ms);
            jsonw_real(&json, "flush_p99_ms", p99_ms);
        }
        jsonw_close(&json, '}');
        int code = jsonw_print(&json);
        buf_release(&bytes);
        return code;
    }
    out_text(
        "%.0f pairs of begin and seal per second (%llu in %.2f s, %zu in flight, %zu threads)\n",
        (double)pairs / seconds, (unsigned long long)pairs, seconds, bench->slot_count,
        bench->thread_count);
    if (timed) {
        out_text("one flush: p50 %.3f ms, p99 %.3f ms\n", p50_ms, p99_ms);
    }
    return out_finish();
}

static int run_on(struct cli *cli, struct bench *bench, const char *url)
{
    struct once_error error = {0};
    struct once_options options = {.store = url, .lock_wait_ms = 1000};
    if (once_open(&options, &bench->once, &error) != ONCE_OK) {
        return cli_fail(&error);
    }
    uint64_t pairs = 0;
    double seconds = measure(bench, cli_count(cli, "seconds"), &pairs);
    int closed = once_close(bench->once, &error);
    if (bench->error.result != ONCE_OK) {
        return cli_fail(&bench->error);
    }
    if (closed != ONCE_OK) {
        return cli_fail(&error);
    }
    return print_result(cli, bench, cli_store_dir(cli, url), pairs, seconds);
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
    struct bench *bench = arena_zalloc(&cli->arena, sizeof *bench);
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
    if (store != NULL) {
        return run_on(cli, bench, store);
    }
    code = scratch_make(".", "once-bench", dir, sizeof dir); /* the disk one stands on */
    if (code == CLI_OK) {
        (void)snprintf(url, sizeof url, "journal:%s/data", dir);
        code = run_on(cli, bench, url);
        scratch_remove(dir);
    }
    return code;
}
