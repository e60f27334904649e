/*
 * Replays that are answered before their flush (engine/soon.h): which ones, for how long, and what
 * a crash between the answer and the flush leaves.
 */
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/limits.h"
#include "engine_kit.h"

static int set_up(void **state)
{
    int failed = kit_set_up(state);
    kit_close();
    kit.options.replays_soon = true;
    kit_open();
    return failed;
}

/* A call, and whether it was answered before a flush covered its commit. */
struct told {
    struct kit_gate gate;
    bool is_early;
};

/* On the thread that commits or flushes, which answers nothing else meanwhile. */
static void told_done(struct engine_call *call)
{
    struct told *told = call->context;
    told->is_early = kit.durable < kit.committed;
    call->context = &told->gate;
    kit_gate_done(call);
}

static struct told told_make(struct engine_call *call)
{
    call->done = told_done;
    return (struct told){.gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0}};
}

static bool is_early(struct engine_call *call, enum decision_kind expected)
{
    struct told told = told_make(call);
    call->context = &told;
    assert_int_equal(engine_submit(kit.engine, call, NULL), OK);
    kit_gate_pass(&told.gate, 1);
    assert_string_equal(call->err.text, "");
    assert_int_equal(call->decision.kind, expected);
    return told.is_early;
}

static struct engine_call sealed(const char *key)
{
    struct engine_call begun = kit_begin("acme", "charge", key);
    assert_false(is_early(&begun, DECISION_FIRST_SEEN));
    struct engine_call seal = kit_seal(&begun, SLICE_LIT("charged"));
    assert_false(is_early(&seal, DECISION_SEALED));
    return begun;
}

static void replay_early(const char *key)
{
    struct engine_call again = kit_begin("acme", "charge", key);
    assert_true(is_early(&again, DECISION_DUPLICATE_REPLAYED));
    assert_true(slice_is(again.outcome, "charged"));
}

static void wait_until_durable(void)
{
    while (kit.durable < kit.committed) {
        (void)sched_yield();
    }
}

static void only_a_replay_of_a_durable_outcome_is_answered_early(void **state)
{
    (void)state;
    (void)sealed("k");
    replay_early("k");
    replay_early("k"); /* of the same record, whose count is not durable */

    struct engine_call open = kit_begin("acme", "charge", "open");
    assert_false(is_early(&open, DECISION_FIRST_SEEN)); /* it flushes what was owed as well */
    assert_int_equal(kit.durable, kit.committed);
    struct engine_call again = kit_begin("acme", "charge", "open");
    assert_false(is_early(&again, DECISION_IN_PROGRESS));
    struct engine_call other = kit_begin("acme", "charge", "k");
    other.request.fingerprint.bytes[0] ^= 1;
    assert_false(is_early(&other, DECISION_CONFLICT_REJECTED));
    struct engine_call seal = kit_seal(&open, SLICE_LIT("charged"));
    assert_false(is_early(&seal, DECISION_SEALED));
    struct engine_call twice = kit_seal(&open, SLICE_LIT("charged"));
    assert_false(is_early(&twice, DECISION_SEALED)); /* a repeated seal is no replay */
    struct engine_call late = kit_seal(&open, SLICE_LIT("refunded"));
    assert_false(is_early(&late, DECISION_ALREADY_SEALED));
    struct note note = {.kind = NOTE_CONFIG_CHANGED, .reason = SLICE_LIT("tokens")};
    struct engine_call noted = {.arena = &kit.arena, .note = &note};
    assert_false(is_early(&noted, DECISION_NOTHING));
}

static void a_replay_of_an_outcome_in_its_own_batch_waits(void **state)
{
    (void)state;
    struct engine_call begun = kit_begin("acme", "charge", "k");
    assert_int_equal(kit_do(&begun), DECISION_FIRST_SEEN);
    struct engine_call seal = kit_seal(&begun, SLICE_LIT("charged"));
    struct engine_call again = kit_begin("acme", "charge", "k");
    struct engine_call *both[] = {&seal, &again};
    struct told told[] = {told_make(&seal), told_make(&again)};
    seal.context = &told[0];
    again.context = &told[1];
    assert_int_equal(engine_submit_all(kit.engine, both, 2, NULL), OK);
    kit_gate_pass(&told[0].gate, 1);
    kit_gate_pass(&told[1].gate, 1);
    assert_int_equal(again.decision.kind, DECISION_DUPLICATE_REPLAYED);
    assert_false(told[0].is_early);
    assert_false(told[1].is_early);
    replay_early("k"); /* it is durable now */
}

static void the_flush_follows_in_time(void **state)
{
    (void)state;
    (void)sealed("k");
    replay_early("k");
    assert_true(kit.durable < kit.committed); /* the clock stands still */
    kit.now_ms += LIMIT_REPLAYS_SOON_MS;
    wait_until_durable();
}

static void the_flush_follows_at_the_limit(void **state)
{
    (void)state;
    (void)sealed("k");
    for (int i = 0; i < LIMIT_REPLAYS_SOON_MAX - 1; i++) {
        replay_early("k");
    }
    assert_true(kit.durable < kit.committed);
    replay_early("k");
    wait_until_durable();
    replay_early("k"); /* counted from the start again */
}

static void durable_is_the_default(void **state)
{
    (void)state;
    kit_close();
    kit.options.replays_soon = false;
    kit_open();
    (void)sealed("k");
    struct engine_call again = kit_begin("acme", "charge", "k");
    assert_false(is_early(&again, DECISION_DUPLICATE_REPLAYED));
}

/* In a process of its own: a sealed outcome, replays that are answered, and no flush any more. */
static void crash_after_replays(const char *key, int replays)
{
    kit_close();
    pid_t child = fork();
    if (child == 0) {
        kit_open();
        (void)sealed(key);
        for (int i = 0; i < replays; i++) {
            replay_early(key);
        }
        (void)kill(getpid(), SIGKILL);
    }
    int ended = 0;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL);
}

static void a_crash_loses_only_that_duplicates_were_answered(void **state)
{
    (void)state;
    struct verify_result result;
    kit_verify(&result);
    size_t entries = result.entries;
    crash_after_replays("k", 3);
    kit_open(); /* with soon: the mark stays, and the entry is written */
    kit_verify(&result);
    assert_int_equal(result.entries, entries + 3); /* granted, sealed, interrupted */
    assert_int_equal(result.redecided, 2);
    struct engine_call again = kit_begin("acme", "charge", "k");
    assert_true(is_early(&again, DECISION_DUPLICATE_REPLAYED)); /* P1, P3 */
    assert_true(slice_is(again.outcome, "charged"));
    assert_int_equal(again.decision.next.duplicates, 1); /* the lost ones are not counted */
    kit_verify(&result);
    assert_int_equal(result.entries, entries + 4); /* after a clean end nothing is said */
}

static void a_start_without_soon_says_it_too(void **state)
{
    (void)state;
    struct verify_result result;
    kit_verify(&result);
    size_t entries = result.entries;
    crash_after_replays("k", 1);
    kit.options.replays_soon = false;
    kit_open();
    kit_verify(&result);
    assert_int_equal(result.entries, entries + 3);
    kit_verify(&result);
    assert_int_equal(result.entries, entries + 3); /* once */
}

int main(void)
{
#define SOON_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, kit_tear_down)
    const struct CMUnitTest tests[] = {
        SOON_TEST(only_a_replay_of_a_durable_outcome_is_answered_early),
        SOON_TEST(a_replay_of_an_outcome_in_its_own_batch_waits),
        SOON_TEST(the_flush_follows_in_time),
        SOON_TEST(the_flush_follows_at_the_limit),
        SOON_TEST(durable_is_the_default),
        SOON_TEST(a_crash_loses_only_that_duplicates_were_answered),
        SOON_TEST(a_start_without_soon_says_it_too),
    };
    return cmocka_run_group_tests_name("soon", tests, NULL, NULL);
}
