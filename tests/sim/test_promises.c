/*
 * The engine with its threads on a store that fails when it is told to: nothing is answered before
 * it is on stable storage, and nothing at all after that went wrong (EN1, EN5).
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#include "check_c.h"
#include "engine/engine.h"
#include "store/fault.h"
#include "store/mem.h"

enum { CALLS = 200 };

struct bench {
    struct store *memory;
    struct store *fault; /* around it */
    struct engine *engine;
    _Atomic uint64_t answered;
    _Atomic uint64_t early; /* answers to what is not durable */
};

struct asked {
    struct engine_call call;
    struct arena arena;
    struct bench *bench;
    char key[16];
};

static void bench_start(struct bench *bench)
{
    static const struct store_options options = {0};
    *bench = (struct bench){0};
    assert_int_equal(store_mem_new(&options, NULL, &bench->memory, NULL), OK);
    assert_int_equal(fault_new(bench->memory, NULL, &bench->fault, NULL), OK);
}

static void bench_run(struct bench *bench)
{
    struct err err = {0};
    assert_int_equal(engine_new(bench->fault, NULL, &bench->engine, &err), OK);
}

static void bench_end(struct bench *bench)
{
    (void)engine_free(bench->engine, NULL); /* what failed, failed; the tests have seen it */
}

static void ask(struct asked *asked, struct bench *bench, int number)
{
    *asked = (struct asked){.bench = bench};
    arena_init(&asked->arena, &mem_libc, 1 << 16);
    int len = snprintf(asked->key, sizeof asked->key, "k%d", number);
    struct request *request = &asked->call.request;
    request->kind = REQUEST_BEGIN;
    request->policy = policy_default;
    request->key.tenant = SLICE_LIT("acme");
    request->key.key = slice_of(asked->key, (size_t)len);
    assert_int_equal(record_key_seal(&request->key, NULL), OK);
    asked->call.arena = &asked->arena;
    asked->call.context = asked;
}

/* On the thread that flushed, which alone moves the mark of what is durable. */
static void look_whether_durable(struct engine_call *call)
{
    struct asked *asked = call->context;
    struct bench *bench = asked->bench;
    uint64_t number = atomic_fetch_add(&bench->answered, 1) + 1;
    if (call->err.status == OK && store_mem_durable_seq(bench->memory) < number) {
        atomic_fetch_add(&bench->early, 1);
    }
}

static void nothing_is_answered_before_it_is_durable(void **state)
{
    (void)state;
    static struct asked asked[CALLS];
    struct bench bench;
    bench_start(&bench);
    bench_run(&bench);
    /* One at a time: then the nth answer rests on the nth entry. */
    for (int i = 0; i < CALLS; i++) {
        ask(&asked[i], &bench, i);
        asked[i].call.done = look_whether_durable;
        assert_int_equal(engine_submit(bench.engine, &asked[i].call, NULL), OK);
        while (atomic_load(&bench.answered) < (uint64_t)i + 1) {
            (void)sched_yield();
        }
        assert_int_equal(asked[i].call.decision.kind, DECISION_FIRST_SEEN);
        arena_release(&asked[i].arena);
    }
    assert_int_equal(atomic_load(&bench.early), 0);
    bench_end(&bench);
}

static enum status begin(struct bench *bench, int number)
{
    struct asked asked;
    ask(&asked, bench, number);
    enum status status = engine_do(bench->engine, &asked.call);
    arena_release(&asked.arena);
    return status;
}

static void after_a_failed_flush_nothing_is_answered_any_more(void **state)
{
    (void)state;
    static const enum fault_when plans[] = {FAULT_BEFORE, FAULT_AFTER};
    for (size_t i = 0; i < 2; i++) {
        struct bench bench;
        bench_start(&bench);
        fault_arm(bench.fault, STORE_CALL_FLUSH, 1, E_UNKNOWN, plans[i]);
        bench_run(&bench);
        assert_int_equal(begin(&bench, 1), E_UNKNOWN);
        assert_int_equal(begin(&bench, 2), E_UNKNOWN);
        bench_end(&bench);
    }
}

static void after_a_commit_of_unknown_fate_nothing_is_answered_any_more(void **state)
{
    (void)state;
    static const enum fault_when plans[] = {FAULT_BEFORE, FAULT_AFTER};
    for (size_t i = 0; i < 2; i++) {
        struct bench bench;
        bench_start(&bench);
        fault_arm(bench.fault, STORE_CALL_COMMIT, 1, E_UNKNOWN, plans[i]);
        bench_run(&bench);
        assert_int_equal(begin(&bench, 1), E_UNKNOWN);
        assert_int_equal(begin(&bench, 2), E_UNKNOWN);
        bench_end(&bench);
    }
}

static void a_commit_that_certainly_did_not_happen_stops_nothing(void **state)
{
    (void)state;
    struct bench bench;
    bench_start(&bench);
    fault_arm(bench.fault, STORE_CALL_COMMIT, 1, E_UNAVAILABLE, FAULT_BEFORE);
    bench_run(&bench);
    assert_int_equal(begin(&bench, 1), E_UNAVAILABLE);
    assert_int_equal(begin(&bench, 1), OK);
    bench_end(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_is_answered_before_it_is_durable),
        TEST(after_a_failed_flush_nothing_is_answered_any_more),
        TEST(after_a_commit_of_unknown_fate_nothing_is_answered_any_more),
        TEST(a_commit_that_certainly_did_not_happen_stops_nothing),
    };
    return cmocka_run_group_tests_name("promises", tests, NULL, NULL);
}
