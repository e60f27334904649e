/*
 * load: a process that is there to be killed. Several threads begin, seal, release, renew and give
 * up on operations of one journal, and tell the parent of every answer (crash.h).
 *
 *     load URL LOG_FD SHARED_FD SEED FIRST_KEY ROUND_KEY MILLISECONDS PLANT
 *
 * ROUND_KEY is the first fresh key of this run; keys from FIRST_KEY on are asked for again. After
 * so many milliseconds (0: never) it closes the journal and ends.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "crash.h"
#include "once/once.h"

enum { THREADS = 4 };

struct load {
    struct once *once;
    struct crash_shared *shared;
    int log_fd;
    uint64_t seed;
    uint32_t first_key;
    uint32_t round_key;
    _Atomic uint32_t fresh; /* of this round's keys, so many were taken */
    uint64_t until;         /* clock_nanos; UINT64_MAX: for ever */
    enum plant plant;
};

struct load_worker {
    struct load *load;
    struct prng prng;
    struct buf outcome;
    pthread_t thread;
};

/* One event, one write: it is in the parent's memory, or it never was. */
static void tell(const struct load *load, const struct crash_event *event)
{
    if (write(load->log_fd, event, sizeof *event) != (ssize_t)sizeof *event) {
        abort();
    }
}

static void tell_kind(
    const struct load *load, enum event_kind kind, const struct crash_event *about)
{
    struct crash_event event = *about;
    event.kind = kind;
    tell(load, &event);
}

static void tell_wrong(
    const struct load *load, const struct crash_event *about, const char *what, const char *text)
{
    struct crash_event event = *about;
    event.kind = EVENT_WRONG;
    (void)snprintf(event.text, sizeof event.text, "%.40s: %.110s", what, text);
    tell(load, &event);
}

static void outcome_make(struct load_worker *worker, struct crash_event *event)
{
    crash_outcome(event->key, event->fence, &worker->outcome);
    event->bytes = worker->outcome.len;
    digest_sha256(worker->outcome.data, worker->outcome.len, &event->digest);
}

static void seal(struct load_worker *worker, struct crash_event *event)
{
    struct load *load = worker->load;
    struct once_error error;
    outcome_make(worker, event);
    tell_kind(load, EVENT_SEAL_TRY, event);
    if (load->plant == PLANT_ACK_EARLY) {
        tell_kind(load, EVENT_SEALED, event);
        (void)usleep(3000);
    }
    struct once_seal seal = {.operation_id = event->operation_id,
        .fence = event->fence,
        .status = prng_once_in(&worker->prng, 5) ? ONCE_FAILED : ONCE_EXECUTED,
        .outcome.body = {worker->outcome.data, worker->outcome.len}};
    if (once_seal(load->once, &seal, NULL, &error) != ONCE_OK) {
        tell_wrong(load, event, "seal", error.text);
        return;
    }
    tell_kind(load, EVENT_SEALED, event);
}

static void let_go(struct load_worker *worker, struct crash_event *event, bool release)
{
    struct load *load = worker->load;
    struct once_error error;
    struct once_hold hold = {
        .operation_id = event->operation_id, .fence = event->fence, .reason = "by the load"};
    tell_kind(load, release ? EVENT_RELEASE_TRY : EVENT_UNKNOWN_TRY, event);
    int result = release ? once_release(load->once, &hold, NULL, &error)
                         : once_unknown(load->once, &hold, NULL, &error);
    if (result != ONCE_OK) {
        tell_wrong(load, event, release ? "release" : "unknown", error.text);
        return;
    }
    tell_kind(load, release ? EVENT_RELEASED : EVENT_UNKNOWN, event);
}

/* Only its first holder knows which payload a key was granted with. */
static void conflict(struct load_worker *worker, const struct crash_event *event, const char *key)
{
    struct load *load = worker->load;
    struct once_error error;
    struct once_answer *answer;
    struct once_begin begin = {.scope = "crash", .key = key, .payload = {"{\"other\":true}", 14}};
    if (once_begin(load->once, &begin, &answer, &error) != ONCE_OK) {
        tell_wrong(load, event, "conflict", error.text);
        return;
    }
    bool right = answer->decision == ONCE_CONFLICT_REJECTED || crash_transient(event->key);
    if (right) {
        tell_kind(load, EVENT_CONFLICT, event);
    } else {
        tell_wrong(load, event, "another payload got", once_decision_name(answer->decision));
    }
    once_answer_free(load->once, answer);
}

/* What a holder does: mostly the effect and the seal. */
static void hold(struct load_worker *worker, struct crash_event *event, const char *key)
{
    struct load *load = worker->load;
    uint64_t fate = prng_below(&worker->prng, 100);
    if (event->key >= CRASH_SHORT_BASE && crash_transient(event->key)) {
        fate =
            50; /* what stays open never expires, and would keep its segment from being squeezed */
    }
    tell_kind(load, EVENT_GRANT, event);
    if (fate < 12) {
        let_go(worker, event, true);
        return;
    }
    tell_kind(load, EVENT_EFFECT, event);
    if (fate < 20) {
        let_go(worker, event, false);
    } else if (fate < 26) {
        return; /* forgets about it: its lease runs out */
    } else {
        if (fate < 36) {
            struct once_hold renew = {
                .operation_id = event->operation_id, .fence = event->fence, .lease_ms = 60000};
            struct once_error error;
            if (once_renew(load->once, &renew, NULL, &error) != ONCE_OK) {
                tell_wrong(load, event, "renew", error.text);
            }
            tell_kind(load, EVENT_RENEWED, event);
        }
        seal(worker, event);
    }
    if (fate >= 90 && !crash_transient(event->key)) {
        conflict(worker, event, key);
    }
}

static void answered(struct load_worker *worker, struct crash_event *event,
    const struct once_answer *answer, const char *key)
{
    struct load *load = worker->load;
    const struct once_operation *operation = answer->operation;
    event->fence = answer->decision == ONCE_FIRST_SEEN ? answer->fence
                   : operation != NULL                 ? operation->fence
                                                       : 0;
    (void)snprintf(event->operation_id, sizeof event->operation_id, "%s", answer->operation_id);
    if (answer->decision == ONCE_FIRST_SEEN) {
        hold(worker, event, key);
    } else if (answer->decision == ONCE_DUPLICATE_REPLAYED) {
        event->bytes = operation->outcome.body.size;
        digest_sha256(operation->outcome.body.data, event->bytes, &event->digest);
        tell_kind(load, EVENT_REPLAY, event);
    } else if (answer->decision == ONCE_IN_PROGRESS) {
        tell_kind(load, EVENT_BUSY, event);
        if (load->plant == PLANT_SECOND_EFFECT) {
            tell_kind(load, EVENT_EFFECT, event);
        }
    } else if (answer->decision == ONCE_HELD_UNKNOWN) {
        tell_kind(load, EVENT_HELD, event);
    } else {
        tell_wrong(load, event, "a begin got", once_decision_name(answer->decision));
    }
}

static void one_operation(struct load_worker *worker)
{
    struct load *load = worker->load;
    struct crash_event event = {0};
    uint32_t fresh = CRASH_KEYS_PER_ROUND;
    if (prng_below(&worker->prng, 10) < 7) {
        fresh = atomic_fetch_add(&load->fresh, 1);
    }
    uint32_t known = load->round_key + CRASH_KEYS_PER_ROUND - load->first_key;
    event.key = fresh < CRASH_KEYS_PER_ROUND
                    ? load->round_key + fresh
                    : load->first_key + (uint32_t)prng_below(&worker->prng, known);
    char key[24];
    char payload[48];
    (void)crash_key_text(key, event.key);
    int size = snprintf(payload, sizeof payload, "{\"key\":%u}", event.key);
    struct once_begin begin = {.scope = "crash",
        .key = key,
        .payload = {payload, (size_t)size},
        .ttl_ms = crash_transient(event.key) ? CRASH_TRANSIENT_MS : 0,
        .lease_ms = event.key % 3 == 0 ? 20 : 60000};
    struct once_error error;
    struct once_answer *answer;
    if (once_begin(load->once, &begin, &answer, &error) != ONCE_OK) {
        tell_wrong(load, &event, "begin", error.text);
        return;
    }
    answered(worker, &event, answer, key);
    once_answer_free(load->once, answer);
}

static void *work(void *context)
{
    struct load_worker *worker = context;
    while (clock_nanos() < worker->load->until) {
        one_operation(worker);
    }
    return NULL;
}

static void run(struct load *load)
{
    struct load_worker workers[THREADS] = {0};
    for (size_t i = 0; i < THREADS; i++) {
        workers[i].load = load;
        workers[i].prng.state = load->seed + i * 7919;
        buf_init(&workers[i].outcome, &mem_libc, CRASH_OUTCOME_MAX);
        ASSERT(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        ASSERT(pthread_join(workers[i].thread, NULL) == 0);
        buf_release(&workers[i].outcome);
    }
}

int main(int argc, char **argv)
{
    ASSERT(argc == 9);
    uint64_t milliseconds = strtoull(argv[7], NULL, 10);
    struct load load = {.log_fd = (int)strtol(argv[2], NULL, 10),
        .seed = strtoull(argv[4], NULL, 10),
        .first_key = (uint32_t)strtoul(argv[5], NULL, 10),
        .round_key = (uint32_t)strtoul(argv[6], NULL, 10),
        .plant = (enum plant)strtol(argv[8], NULL, 10)};
    load.shared = mmap(NULL, sizeof *load.shared, PROT_READ | PROT_WRITE, MAP_SHARED,
        (int)strtol(argv[3], NULL, 10), 0);
    ASSERT(load.shared != MAP_FAILED);
    atomic_store(&load.shared->phase, PHASE_OPENING);
    struct once_options options = {.store = argv[1]};
    struct once_error error;
    if (once_open(&options, &load.once, &error) != ONCE_OK) {
        struct crash_event about = {0};
        tell_wrong(&load, &about, "open", error.text);
        return 1;
    }
    atomic_store(&load.shared->phase, PHASE_LOADING);
    load.until = milliseconds == 0 ? UINT64_MAX : clock_nanos() + milliseconds * 1000000;
    run(&load);
    atomic_store(&load.shared->phase, PHASE_CLOSING);
    if (once_close(load.once, &error) != ONCE_OK) {
        struct crash_event about = {0};
        tell_wrong(&load, &about, "close", error.text);
    }
    atomic_store(&load.shared->phase, PHASE_CLOSED);
    _exit(0); /* a kill while a sanitizer looks for leaks reads like a report of one */
}
