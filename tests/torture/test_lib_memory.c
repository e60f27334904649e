#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "faulty_mem.h"
#include "lib/lib_help.h"

/*
 * A small life of one operation, again and again, each time with another allocation failing: once,
 * or from then on. Every call must do its work or say ONCE_E_NOMEM and have done nothing: so a step
 * that ran out of memory is taken again, and must decide as if the first try had never been.
 * Afterwards nothing may be left allocated, and a store on disk must hold exactly what was told.
 */

/* How far a run came, and what it was told. */
struct memory_run {
    struct once *once;
    bool told_granted;
    bool told_sealed;
    char operation_id[40];
    uint64_t fence;
};

static const char first_payload[] = "{\"amount\":100,\"to\":\"alice\"}";
static const char other_payload[] = "{\"amount\":200,\"to\":\"alice\"}";

static struct once_begin begin_of(const char *payload)
{
    return (struct once_begin){.scope = "torture",
        .key = "k",
        .payload = {payload, strlen(payload)},
        .request_id = "req-1",
        .trace = "{\"correlation_id\":\"c\"}"};
}

/* Begin, and see that the decision is the only right one. */
static int begin_expecting(struct memory_run *run, const char *payload, enum once_decision decision)
{
    struct once_begin begin = begin_of(payload);
    struct once_answer *answer;
    int result = once_begin(run->once, &begin, &answer, NULL);
    if (result != ONCE_OK) {
        assert_null(answer);
        return result;
    }
    assert_string_equal(once_decision_name(answer->decision), once_decision_name(decision));
    if (decision == ONCE_FIRST_SEEN) {
        run->told_granted = true;
        run->fence = answer->fence;
        memcpy(run->operation_id, answer->operation_id, sizeof run->operation_id);
    }
    if (decision == ONCE_DUPLICATE_REPLAYED) {
        assert_int_equal(answer->operation->outcome.body.size, 4);
        assert_memory_equal(answer->operation->outcome.body.data, "done", 4);
    }
    if (decision == ONCE_CONFLICT_REJECTED) {
        assert_non_null(answer->diff);
    }
    once_answer_free(run->once, answer);
    return ONCE_OK;
}

static int step_begin(struct memory_run *run)
{
    return begin_expecting(run, first_payload, ONCE_FIRST_SEEN);
}

static int step_duplicate(struct memory_run *run)
{
    return begin_expecting(run, first_payload, ONCE_IN_PROGRESS);
}

static int step_renew(struct memory_run *run)
{
    struct once_hold hold = {.operation_id = run->operation_id, .fence = run->fence};
    return once_renew(run->once, &hold, NULL, NULL);
}

static int step_seal(struct memory_run *run)
{
    struct once_answer *answer;
    struct once_seal seal = {.operation_id = run->operation_id,
        .fence = run->fence,
        .status = ONCE_EXECUTED,
        .effect_id = "e",
        .outcome = {.meta = {"meta", 4}, .body = {"done", 4}}};
    int result = once_seal(run->once, &seal, &answer, NULL);
    if (result == ONCE_OK) {
        assert_int_equal(answer->decision, ONCE_SEALED);
        assert_false(answer->repeated); /* an earlier try that ran out of memory did nothing */
        run->told_sealed = true;
        once_answer_free(run->once, answer);
    }
    return result;
}

static int step_replay(struct memory_run *run)
{
    return begin_expecting(run, first_payload, ONCE_DUPLICATE_REPLAYED);
}

static int step_conflict(struct memory_run *run)
{
    return begin_expecting(run, other_payload, ONCE_CONFLICT_REJECTED);
}

static int step_get(struct memory_run *run)
{
    struct once_operation *operation;
    int result = once_get(run->once, run->operation_id, &operation, NULL);
    if (result == ONCE_OK) {
        assert_non_null(operation);
        assert_int_equal(operation->status, ONCE_EXECUTED);
        assert_memory_equal(operation->outcome.body.data, "done", 4);
        assert_int_equal(operation->request.size, strlen(first_payload));
        once_operation_free(run->once, operation);
    }
    return result;
}

static int step_iterate(struct memory_run *run)
{
    size_t count = 0;
    int result = once_iterate(run->once, NULL, count_operation, &count, NULL);
    assert_true(result != ONCE_OK || count == 1);
    return result;
}

static int step_evidence(struct memory_run *run)
{
    size_t count = 0;
    int result = once_evidence(run->once, run->operation_id, NULL, count_entry, &count, NULL);
    assert_true(result != ONCE_OK || count >= 6);
    return result;
}

struct told {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
    int result;
    enum once_decision decision;
    struct once *once;
};

static void hear(
    void *context, int result, struct once_answer *answer, const struct once_error *error)
{
    struct told *told = context;
    (void)error;
    (void)pthread_mutex_lock(&told->lock);
    told->result = result;
    told->decision = answer == NULL ? ONCE_NOT_FOUND : answer->decision;
    once_answer_free(told->once, answer);
    told->done = true; /* nothing of told may be touched once it is unlocked */
    (void)pthread_cond_signal(&told->changed);
    (void)pthread_mutex_unlock(&told->lock);
}

static int step_submit(struct memory_run *run)
{
    struct told told = {
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0, ONCE_NOT_FOUND, run->once};
    struct once_begin begin = begin_of(first_payload);
    int result = once_submit(run->once, &(struct once_call){.begin = &begin}, hear, &told, NULL);
    if (result != ONCE_OK) {
        return result;
    }
    (void)pthread_mutex_lock(&told.lock);
    while (!told.done) {
        (void)pthread_cond_wait(&told.changed, &told.lock);
    }
    (void)pthread_mutex_unlock(&told.lock);
    assert_true(told.result != ONCE_OK || told.decision == ONCE_DUPLICATE_REPLAYED);
    return told.result;
}

static const struct {
    const char *name;
    int (*take)(struct memory_run *run);
} steps[] = {
    {"begin", step_begin},
    {"duplicate", step_duplicate},
    {"renew", step_renew},
    {"seal", step_seal},
    {"replay", step_replay},
    {"conflict", step_conflict},
    {"get", step_get},
    {"iterate", step_iterate},
    {"evidence", step_evidence},
    {"submit", step_submit},
};

/* Take every step, a second time where memory was short the first time. */
static void take_steps(struct memory_run *run, struct faulty *faulty)
{
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        int result = steps[i].take(run);
        if (result == ONCE_E_NOMEM) {
            result = steps[i].take(run);
        }
        if (result == ONCE_E_NOMEM && faulty->fails == FAULTY_FOR_GOOD) {
            return;
        }
        if (result != ONCE_OK) {
            fail_msg("%s: %s after allocation %ld failed", steps[i].name, once_result_name(result),
                faulty->fail_at);
        }
    }
}

static void run_once(struct memory_run *run, const char *url, struct faulty *faulty)
{
    struct once_options options = {.store = url, .resize = faulty_resize, .resize_context = faulty};
    struct once_error error;
    int result = once_open(&options, &run->once, &error);
    if (result == ONCE_E_NOMEM && faulty->fails != FAULTY_FOR_GOOD) {
        result = once_open(&options, &run->once, &error);
    }
    if (result == ONCE_OK) {
        take_steps(run, faulty);
        result = once_close(run->once, &error);
    }
    if (result != ONCE_OK && result != ONCE_E_NOMEM) {
        fail_msg("open or close: %s after allocation %ld failed", error.text, faulty->fail_at);
    }
}

/* With memory again: the store holds what was told, no more and no less. */
static void check_after(const struct memory_run *run, const char *url)
{
    struct memory_run after = {.once = open_url(url, NULL)};
    enum once_decision decision = run->told_sealed    ? ONCE_DUPLICATE_REPLAYED
                                  : run->told_granted ? ONCE_IN_PROGRESS
                                                      : ONCE_FIRST_SEEN;
    assert_int_equal(begin_expecting(&after, first_payload, decision), ONCE_OK);
    close_once(after.once);
}

/* Returns how many allocations were asked for. */
static long run_failing(long fail_at, bool sticky)
{
    struct place where;
    struct faulty faulty = {.fail_at = fail_at, .fails = sticky ? FAULTY_FOR_GOOD : 1};
    struct memory_run run = {0};
    place_init(&where);
    run_once(&run, where.url, &faulty);
    if (faulty.live != 0) {
        fail_msg("%ld blocks leaked after allocation %ld failed", faulty.live, fail_at);
    }
    if (where.directory[0] != '\0') {
        check_after(&run, where.url);
    }
    place_release(&where);
    return faulty.asked;
}

static void fail_each(bool sticky)
{
    long fail_at = 1;
    while (run_failing(fail_at, sticky) >= fail_at) {
        fail_at++;
    }
    assert_true(fail_at > 20); /* else the allocator was not used */
    print_message("%ld allocations failed in turn\n", fail_at - 1);
}

static void nothing_goes_wrong_when_nothing_fails(void **state)
{
    (void)state;
    assert_true(run_failing(0, false) > 20);
}

static void each_allocation_may_fail_once(void **state)
{
    (void)state;
    fail_each(false);
}

static void memory_may_run_out_for_good(void **state)
{
    (void)state;
    fail_each(true);
}

int main(int argc, char **argv)
{
    store_kind = argc > 1 ? argv[1] : store_kind;
    const struct CMUnitTest tests[] = {
        TEST(nothing_goes_wrong_when_nothing_fails),
        TEST(each_allocation_may_fail_once),
        TEST(memory_may_run_out_for_good),
    };
    return cmocka_run_group_tests_name("lib_memory", tests, NULL, NULL);
}
