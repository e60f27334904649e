/*
 * Whether a batch waits for calls that are about to come: the policy, and what it makes of callers
 * over a server, in a model of both with a clock of its own.
 */
#include <string.h>

#include "check_c.h"
#include "engine/gather.h"

#define MS UINT64_C(1000000)

enum { ROWS = 30 };

/* One batch of so many calls from its collection to its answers, in the time that it takes. */
static uint64_t one_batch(struct gather *gather, size_t count, uint64_t now, uint64_t took)
{
    gather_collected(gather, count);
    gather_answered(gather, count, now, now + took);
    return now + took;
}

/* How long a batch of so many calls would wait. */
static uint64_t wait_of(struct gather *gather, size_t waiting, uint64_t now)
{
    gather_begin(gather, waiting, now);
    return gather_left(gather, waiting, now);
}

static void a_caller_that_is_alone_never_waits(void **state)
{
    (void)state;
    struct gather gather;
    uint64_t now = 1000 * MS;
    gather_init(&gather, ROWS);
    for (unsigned i = 0; i < 1000; i++) {
        assert_int_equal(wait_of(&gather, 1, now), 0); /* GA1 */
        now = one_batch(&gather, 1, now, 2 * MS) + i % 3 * MS / 4;
    }
    assert_int_equal(gather.waits, 0);
}

/* GA1: those that were answered long ago do not come because of it. */
static void a_caller_long_after_the_others_does_not_wait(void **state)
{
    (void)state;
    struct gather gather;
    gather_init(&gather, ROWS);
    uint64_t now = one_batch(&gather, 50, MS, 4 * MS);
    assert_int_equal(wait_of(&gather, 1, now + MS), 0);
    assert_int_equal(wait_of(&gather, 1, now + MS - 1), 1); /* GA2 */
    assert_true(gather_waits(&gather, 43));
    assert_false(gather_waits(&gather, 44));
    assert_int_equal(gather_left(&gather, 44, now), 0);
}

static void a_wait_is_at_most_as_long_as_a_batch_and_some_milliseconds(void **state)
{
    (void)state;
    static const uint64_t took[] = {2 * MS, 10 * MS, 1000 * MS, 0};
    static const uint64_t most[] = {2 * MS, 10 * MS, GATHER_NANOS_MAX, 0};
    for (size_t i = 0; i < 4; i++) {
        struct gather gather;
        gather_init(&gather, ROWS);
        uint64_t now = one_batch(&gather, 50, MS, took[i]) + 7 * MS;
        gather_collected(&gather, 25);
        assert_int_equal(wait_of(&gather, 25, now), most[i]); /* GA2 */
        assert_int_equal(gather_left(&gather, 25, now + most[i]), 0);
    }
}

static void answers_make_a_wait_shorter(void **state)
{
    (void)state;
    struct gather gather;
    gather_init(&gather, ROWS);
    uint64_t now = one_batch(&gather, 50, MS, 4 * MS);
    gather_collected(&gather, 25);
    assert_int_equal(wait_of(&gather, 25, now), 4 * MS);
    gather_answered(&gather, 25, now - 3 * MS, now + MS);
    assert_int_equal(gather_left(&gather, 25, now + MS), MS); /* GA2: a quarter of 4 ms */
    gather_collected(&gather, 50);
    assert_int_equal(gather_left(&gather, 0, now + MS), 0);
}

static void where_a_commit_costs_little_no_batch_waits(void **state)
{
    (void)state;
    struct gather gather;
    gather_init(&gather, 0);
    uint64_t now = one_batch(&gather, 50, MS, 2 * MS);
    gather_collected(&gather, 25);
    assert_int_equal(wait_of(&gather, 25, now), 0);
}

static void a_batch_of_many_calls_does_not_wait(void **state)
{
    (void)state;
    struct gather gather;
    gather_init(&gather, ROWS);
    uint64_t now = one_batch(&gather, 1000, MS, 2 * MS);
    gather_collected(&gather, 500);
    assert_int_equal(wait_of(&gather, GATHER_ENOUGH * ROWS, now), 0);
    assert_true(wait_of(&gather, GATHER_ENOUGH * ROWS - 1, now) > 0);
}

/* So many batches while other calls are under way, each of 5 calls, or of more after a wait.
 * Returns how many waited. */
static uint64_t batches_beside(struct gather *gather, unsigned batches, size_t gathered)
{
    uint64_t before = gather->waits;
    uint64_t now = MS;
    for (unsigned i = 0; i < batches; i++) {
        gather_collected(gather, 20);
        size_t count = wait_of(gather, 5, now) > 0 ? gathered : 5;
        now = one_batch(gather, count, now, 2 * MS);
        gather_answered(gather, 20, now - 2 * MS, now);
    }
    return gather->waits - before;
}

/* GA3: of a thousand batches that could wait, few do; and when callers come again, nearly all. */
static void waits_in_vain_become_rare(void **state)
{
    (void)state;
    struct gather gather;
    gather_init(&gather, ROWS);
    assert_int_equal(batches_beside(&gather, GATHER_FAILURES + 1, 5), GATHER_FAILURES);
    assert_in_range(batches_beside(&gather, 1000, 5), 1000 / (GATHER_SKIPS_MAX + 1), 25);
    assert_in_range(batches_beside(&gather, 1000, 22), 1000 - GATHER_SKIPS_MAX, 1000);
    assert_in_range(
        batches_beside(&gather, 1000, 12), 10, 25); /* some come, as they would anyway */
}

/* ---- a model of the engine, its store and its callers --------------------------------------- */

enum { CALLERS = 64, NEVER = 1 << 30 };

/* All times in microseconds. At most one commit waits for the disk; the next batch is written
 * meanwhile, and accepted when that has ended. */
struct model {
    struct gather gather;
    unsigned now;
    unsigned commit;           /* what writing a batch takes, beside its rows … */
    unsigned row;              /* … and each of these */
    unsigned disk;             /* what COMMIT takes */
    unsigned think;            /* after its answer a caller comes back within this time */
    unsigned comes[CALLERS];   /* when its next call comes; NEVER: one is under way */
    bool is_in[CALLERS];       /* its call is in the batch that waits for the disk … */
    unsigned collected, ready; /* … which was collected then, and is answered then */
    size_t count;              /* … and has so many calls; 0: there is none */
    unsigned random;
    unsigned commits, calls;
    uint64_t waited; /* of all calls together, from when they came to their answers */
};

static unsigned model_random(struct model *model, unsigned below)
{
    model->random = model->random * 1664525 + 1013904223;
    return (model->random >> 8) % below;
}

static size_t waiting_at(const struct model *model, unsigned when)
{
    size_t count = 0;
    for (size_t i = 0; i < CALLERS; i++) {
        count += model->comes[i] <= when;
    }
    return count;
}

/* The batch that waits for the disk is answered, if it is by then. */
static void model_answer(struct model *model, unsigned until)
{
    if (model->count == 0 || model->ready > until) {
        return;
    }
    gather_answered(&model->gather, model->count, model->collected * UINT64_C(1000),
        model->ready * UINT64_C(1000));
    model->count = 0;
    for (size_t i = 0; i < CALLERS; i++) {
        if (model->is_in[i]) {
            model->is_in[i] = false;
            model->comes[i] = model->ready + 50 + model_random(model, model->think);
        }
    }
}

/* Lets time pass until a batch can be collected: calls wait, and it does not wait for more. */
static void model_gather(struct model *model)
{
    model_answer(model, model->now);
    while (waiting_at(model, model->now) == 0) {
        model_answer(model, ++model->now);
    }
    gather_begin(&model->gather, waiting_at(model, model->now), model->now * UINT64_C(1000));
    while (gather_left(&model->gather, waiting_at(model, model->now), model->now * UINT64_C(1000)) >
           0) {
        model_answer(model, ++model->now);
    }
}

static void model_batch(struct model *model)
{
    bool is_next[CALLERS] = {false};
    size_t count = waiting_at(model, model->now);
    unsigned collected = model->now;
    gather_collected(&model->gather, count);
    for (size_t i = 0; i < CALLERS; i++) {
        is_next[i] = model->comes[i] <= model->now;
        model->waited += is_next[i] ? model->now - model->comes[i] : 0;
        model->comes[i] = is_next[i] ? NEVER : model->comes[i];
    }
    model->now += model->commit + model->row * (unsigned)count;
    model->now = model->count > 0 && model->ready > model->now ? model->ready : model->now;
    model_answer(model, model->now);
    memcpy(model->is_in, is_next, sizeof is_next);
    model->collected = collected;
    model->ready = model->now + model->disk;
    model->count = count;
    model->commits++;
    model->calls += (unsigned)count;
    model->waited += count * (model->ready - collected);
}

/* Runs it with a store of so many commit_rows. */
static void model_run(struct model *model, size_t commit_rows)
{
    gather_init(&model->gather, commit_rows);
    model->random = 7;
    for (size_t i = 0; i < CALLERS; i++) {
        model->comes[i] = (unsigned)i * 20;
    }
    while (model->commits < 500) {
        model_gather(model);
        model_batch(model);
    }
}

/* What the server works for one call, and what a caller waits. */
static unsigned cost_of(const struct model *model)
{
    return model->row + model->commit * model->commits / model->calls;
}

static unsigned latency_of(const struct model *model)
{
    return (unsigned)(model->waited / model->calls);
}

/* On a quick disk, and on one that is slow or far away. */
static void halves_of_the_callers_become_one(void **state)
{
    (void)state;
    static const unsigned disks[] = {100, 300, 3000, 10000};
    for (size_t i = 0; i < 4; i++) {
        struct model apart = {.commit = 600, .row = 20, .disk = disks[i], .think = 100};
        struct model together = apart;
        model_run(&apart, 0);
        model_run(&together, ROWS);
        assert_in_range(apart.calls / apart.commits, CALLERS / 4, CALLERS / 2);
        assert_in_range(together.calls / together.commits, CALLERS * 3 / 4, CALLERS);
        assert_true(cost_of(&together) * 5 <= cost_of(&apart) * 4);
        assert_true(latency_of(&together) < latency_of(&apart));
        assert_true(
            together.now / together.calls <= apart.now / apart.calls); /* as many a second */
    }
}

/* Callers that do other work after each answer, little or much: a second batch waits for few. */
static void callers_that_take_their_time_hardly_wait(void **state)
{
    (void)state;
    static const unsigned thinks[] = {1000, 3000, 10000, 100000};
    for (size_t i = 0; i < 4; i++) {
        struct model apart = {.commit = 600, .row = 20, .disk = 200, .think = thinks[i]};
        struct model together = apart;
        model_run(&apart, 0);
        model_run(&together, ROWS);
        assert_true(latency_of(&together) * 10 < latency_of(&apart) * 12);
        assert_true(together.now / together.calls * 20 < apart.now / apart.calls * 21);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_caller_that_is_alone_never_waits),
        cmocka_unit_test(a_caller_long_after_the_others_does_not_wait),
        cmocka_unit_test(a_wait_is_at_most_as_long_as_a_batch_and_some_milliseconds),
        cmocka_unit_test(answers_make_a_wait_shorter),
        cmocka_unit_test(where_a_commit_costs_little_no_batch_waits),
        cmocka_unit_test(a_batch_of_many_calls_does_not_wait),
        cmocka_unit_test(waits_in_vain_become_rare),
        cmocka_unit_test(halves_of_the_callers_become_one),
        cmocka_unit_test(callers_that_take_their_time_hardly_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
