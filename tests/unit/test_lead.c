/*
 * Who has the engine's turn: a thread that submits, while flushes are quick, or the engine's own
 * thread; how it is passed on; and what makes a store quick or slow.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "check_c.h"
#include "engine/pace.h"
#include "engine/query.h"
#include "store/fault.h"
#include "store/mem.h"

/* ---- the pace ------------------------------------------------------------------------------ */

enum { QUICK = PACE_QUICK_NANOS / 2, BETWEEN = (PACE_QUICK_NANOS + PACE_SLOW_NANOS) / 2 };

static void take(struct pace *pace, unsigned times, uint64_t nanos, int64_t boot_ms)
{
    for (unsigned i = 0; i < times; i++) {
        pace_took(pace, nanos, boot_ms);
    }
}

static void one_stall_makes_it_slow_until_it_was_quick_for_a_while(void **state)
{
    (void)state;
    struct pace pace;
    pace_init(&pace);
    take(&pace, 100, QUICK, 10000);
    assert_int_equal(pace.state, PACE_QUICK);
    pace_took(&pace, PACE_STALL_NANOS, 10000);
    assert_int_equal(pace.state, PACE_SLOW);
    take(&pace, 100, QUICK, 10000 + PACE_CALM_MS - 1);
    assert_int_equal(pace.state, PACE_SLOW);
    pace_took(&pace, PACE_STALL_NANOS, 10500); /* the time begins again */
    take(&pace, 100, QUICK, 10500 + PACE_CALM_MS - 1);
    assert_int_equal(pace.state, PACE_SLOW);
    pace_took(&pace, QUICK, 10500 + PACE_CALM_MS);
    assert_int_equal(pace.state, PACE_QUICK);
    assert_int_equal(pace.slowdowns, 1);
}

static void a_disk_that_stalls_again_and_again_must_be_quick_for_longer(void **state)
{
    (void)state;
    struct pace pace;
    int64_t now_ms = 1000000;
    int64_t calm_ms = PACE_CALM_MS;
    pace_init(&pace);
    for (int i = 0; i < 10; i++) {
        pace_took(&pace, PACE_STALL_NANOS, now_ms);
        assert_int_equal(pace.calm_ms, calm_ms);
        now_ms += calm_ms;
        take(&pace, 8, QUICK, now_ms);
        assert_int_equal(pace.state, PACE_QUICK);
        calm_ms = 2 * calm_ms < PACE_CALM_MS_MAX ? 2 * calm_ms : PACE_CALM_MS_MAX;
    }
    now_ms += PACE_SOON * PACE_CALM_MS_MAX; /* long enough: forgotten */
    pace_took(&pace, PACE_STALL_NANOS, now_ms);
    assert_int_equal(pace.calm_ms, PACE_CALM_MS);
}

static void what_is_typical_makes_it_slow_and_a_little_less_does_not_make_it_quick(void **state)
{
    (void)state;
    struct pace pace;
    pace_init(&pace);
    take(&pace, 1000, BETWEEN, 1000);
    assert_int_equal(pace.state, PACE_QUICK);
    take(&pace, 1000, PACE_SLOW_NANOS * 2, 1000);
    assert_int_equal(pace.state, PACE_SLOW);
    take(&pace, 1000, BETWEEN, 100000);
    assert_int_equal(pace.state, PACE_SLOW);
    take(&pace, 1000, QUICK, 100000);
    assert_int_equal(pace.state, PACE_QUICK);
}

static void a_few_long_ones_among_many_are_not_typical(void **state)
{
    (void)state;
    struct pace pace;
    pace_init(&pace);
    for (int i = 0; i < 1000; i++) {
        take(&pace, 4, QUICK, 1000 + i);
        take(&pace, 1, PACE_STALL_NANOS / 2, 1000 + i);
    }
    assert_int_equal(pace.state, PACE_QUICK);
    assert_int_equal(pace.slowdowns, 0);
}

/* ---- an engine ----------------------------------------------------------------------------- */

/* A point in the store where a test can hold whoever comes by. */
struct gate {
    sem_t reached;
    sem_t go_on;
};

struct fixture {
    _Atomic int64_t now_ms;
    struct clock clock;
    struct store *store; /* a fault store */
    struct engine *engine;
    struct gate gate;
    atomic_bool is_held;    /* the next commit stops at the gate */
    atomic_bool is_new;     /* something was committed since the last flush */
    atomic_uint stalls;     /* the next so many flushes of something stall */
    _Atomic pthread_t last; /* whose thread committed last */
};

static struct clock_reading fake_read(void *context)
{
    struct fixture *fixture = context;
    return (struct clock_reading){fixture->now_ms, fixture->now_ms};
}

static void on_commit(void *context)
{
    struct fixture *fixture = context;
    fixture->last = pthread_self();
    atomic_store(&fixture->is_new, true);
    if (atomic_exchange(&fixture->is_held, false)) {
        sem_post(&fixture->gate.reached);
        sem_wait(&fixture->gate.go_on);
    }
}

static void on_flush(void *context)
{
    struct fixture *fixture = context;
    if (atomic_exchange(&fixture->is_new, false) && atomic_load(&fixture->stalls) > 0) {
        atomic_fetch_sub(&fixture->stalls, 1);
        (void)usleep(2 * PACE_STALL_NANOS / 1000);
    }
}

static int set_up(void **state)
{
    static struct fixture fixture;
    struct store *memory;
    fixture = (struct fixture){.now_ms = 1794770607000};
    fixture.clock = (struct clock){.read = fake_read, .boot_id = 7, .context = &fixture};
    sem_init(&fixture.gate.reached, 0, 0);
    sem_init(&fixture.gate.go_on, 0, 0);
    const struct store_options store = {.clock = &fixture.clock};
    const struct engine_options options = {.clock = &fixture.clock};
    assert_int_equal(store_mem_new(&store, NULL, &memory, NULL), OK);
    assert_int_equal(fault_new(memory, NULL, &fixture.store, NULL), OK);
    fault_hook(fixture.store, STORE_CALL_COMMIT, on_commit, &fixture);
    fault_hook(fixture.store, STORE_CALL_FLUSH, on_flush, &fixture);
    assert_int_equal(engine_new(fixture.store, &options, &fixture.engine, NULL), OK);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(engine_free(fixture->engine, NULL), OK);
    return 0;
}

static struct engine_stats stats_of(const struct fixture *fixture)
{
    struct engine_stats stats;
    engine_stats(fixture->engine, &stats);
    return stats;
}

/* A begin of a key that nobody has begun. */
struct own_call {
    struct engine_call call; /* first */
    struct arena arena;
    char key[32];
    struct fixture *fixture;
    bool is_first;       /* it was done before the call that its done submitted */
    pthread_t thread;    /* where done ran … */
    atomic_bool is_done; /* … and that it did */
};

static atomic_uint keys;

static void note_done(struct engine_call *call)
{
    struct own_call *own = (struct own_call *)call;
    own->thread = pthread_self();
    atomic_store(&own->is_done, true);
}

static void own_init(struct own_call *own, struct fixture *fixture, struct engine_seat *seat)
{
    *own = (struct own_call){.fixture = fixture};
    arena_init(&own->arena, &mem_libc, 1 << 20);
    (void)snprintf(own->key, sizeof own->key, "key %u", atomic_fetch_add(&keys, 1));
    own->call = (struct engine_call){.arena = &own->arena, .seat = seat, .done = note_done};
    own->call.request.kind = REQUEST_BEGIN;
    own->call.request.key.tenant = SLICE_LIT("default");
    own->call.request.key.key = slice_str(own->key);
    own->call.request.policy = policy_default;
    assert_int_equal(record_key_seal(&own->call.request.key, NULL), OK);
}

static void own_release(struct own_call *own)
{
    assert_int_equal(own->call.err.status, OK);
    assert_int_equal(own->call.decision.kind, DECISION_FIRST_SEEN);
    arena_release(&own->arena);
}

/* Longer than any machine takes: a call that nobody comes for is a failure, not a hang. */
static void await(const struct own_call *own)
{
    for (int i = 0; i < 300000 && !atomic_load(&own->is_done); i++) {
        (void)usleep(200);
    }
    assert_true(atomic_load(&own->is_done));
}

static void *do_one(void *context)
{
    struct own_call *own = context;
    (void)!engine_do(own->fixture->engine, &own->call); /* own_release reads its err */
    return NULL;
}

/* Begins and waits; returns whether it was decided on this thread. */
static bool leads(struct fixture *fixture)
{
    struct own_call own;
    own_init(&own, fixture, NULL);
    (void)do_one(&own);
    own_release(&own);
    return pthread_equal(fixture->last, pthread_self()) != 0;
}

/* A thread leads, and stops in its commit. */
static void hold_leader(struct fixture *fixture, struct own_call *own, pthread_t *ret_thread)
{
    own_init(own, fixture, NULL);
    atomic_store(&fixture->is_held, true);
    assert_int_equal(pthread_create(ret_thread, NULL, do_one, own), 0);
    sem_wait(&fixture->gate.reached);
}

static void let_go(struct fixture *fixture, struct own_call *own, pthread_t thread)
{
    sem_post(&fixture->gate.go_on);
    assert_int_equal(pthread_join(thread, NULL), 0);
    own_release(own);
}

/* The timers' own commit, of the first checkpoint, is over. */
static void settle(struct fixture *fixture)
{
    (void)leads(fixture);
    while (stats_of(fixture).checkpoint_ms == 0) {
        (void)usleep(200);
    }
}

/* ---- who decides --------------------------------------------------------------------------- */

static void a_thread_that_waits_for_its_call_decides_it_itself(void **state)
{
    struct fixture *fixture = *state;
    settle(fixture);
    uint64_t before = stats_of(fixture).turns_led;
    unsigned led = 0;
    for (int i = 0; i < 100; i++) {
        led += leads(fixture);
    }
    assert_true(led > 0); /* the engine's thread may have had the turn for its timers */
    assert_true(stats_of(fixture).turns_led - before >= led);
}

static void a_call_without_a_seat_is_answered_on_the_engines_thread(void **state)
{
    struct fixture *fixture = *state;
    struct own_call own;
    size_t taken;
    own_init(&own, fixture, NULL);
    struct engine_call *call = &own.call;
    assert_int_equal(engine_submit_lead(fixture->engine, &call, 1, &taken, NULL), OK);
    await(&own);
    assert_false(pthread_equal(own.thread, pthread_self()));
    own_release(&own);
}

static void a_stalled_flush_hands_over_and_a_quick_disk_takes_it_back(void **state)
{
    struct fixture *fixture = *state;
    settle(fixture);
    while (!leads(fixture)) {
    }
    for (int round = 1; round <= 2; round++) {
        atomic_store(&fixture->stalls, 1);
        while (atomic_load(&fixture->stalls) > 0) {
            (void)leads(fixture);
        }
        assert_true(stats_of(fixture).slowdowns >= (uint64_t)round);
        assert_false(stats_of(fixture).leads);
        for (int i = 0; i < 50; i++) { /* its time does not pass: it stays with the engine */
            assert_false(leads(fixture));
        }
        fixture->now_ms += 4 * PACE_CALM_MS;
        bool is_back = false;
        for (int i = 0; i < 100000 && !is_back; i++) {
            is_back = leads(fixture);
        }
        assert_true(is_back);
    }
}

/* ---- passing it on ------------------------------------------------------------------------- */

struct counted_seat {
    struct engine_seat seat; /* first */
    atomic_uint nudges;
};

static void count_nudge(struct engine_seat *seat)
{
    atomic_fetch_add(&((struct counted_seat *)seat)->nudges, 1);
}

/* Submitted during a turn, it only queues; then its seat is nudged, does not come, and is not
 * waited for. */
static void submit_and_do_not_come(struct fixture *fixture)
{
    struct counted_seat seat = {.seat = {.nudge = count_nudge}};
    struct own_call held;
    struct own_call own;
    pthread_t leader;
    size_t taken;
    hold_leader(fixture, &held, &leader);
    own_init(&own, fixture, &seat.seat);
    struct engine_call *call = &own.call;
    assert_int_equal(engine_submit_lead(fixture->engine, &call, 1, &taken, NULL), OK);
    assert_int_equal(stats_of(fixture).queued, 1);
    let_go(fixture, &held, leader);
    await(&own);
    assert_false(pthread_equal(own.thread, pthread_self()));
    assert_true(atomic_load(&seat.nudges) <= 1); /* none, if the timers were due at that moment */
    own_release(&own);
}

/* Several times: the first lead after a quiet time wakes the engine's thread for its timers. */
static void a_seat_that_does_not_come_is_not_waited_for(void **state)
{
    settle(*state);
    for (int i = 0; i < 10; i++) {
        submit_and_do_not_come(*state);
    }
}

static void a_nudged_seat_leads_for_all_who_wait(void **state)
{
    struct fixture *fixture = *state;
    enum { WAITING = 5 };
    struct own_call held;
    struct own_call own[WAITING];
    pthread_t leader;
    pthread_t threads[WAITING];
    settle(fixture);
    uint64_t before = stats_of(fixture).batches;
    hold_leader(fixture, &held, &leader);
    for (size_t i = 0; i < WAITING; i++) {
        own_init(&own[i], fixture, NULL);
        assert_int_equal(pthread_create(&threads[i], NULL, do_one, &own[i]), 0);
    }
    while (stats_of(fixture).queued < WAITING) {
        (void)usleep(200);
    }
    let_go(fixture, &held, leader);
    for (size_t i = 0; i < WAITING; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        own_release(&own[i]);
    }
    assert_int_equal(stats_of(fixture).batches - before, 2);
}

/* A done function may submit, and lead: it only queues, because its own turn is not over. */
static void done_again(struct engine_call *call)
{
    struct own_call *own = (struct own_call *)call;
    struct own_call *next = own->call.context;
    struct engine_call *calls[] = {&next->call};
    size_t taken;
    bool is_taken = engine_submit_lead(own->fixture->engine, calls, 1, &taken, NULL) == OK;
    own->is_first = is_taken && !atomic_load(&next->is_done);
    note_done(call);
}

static void a_done_function_may_submit_the_next_call(void **state)
{
    struct fixture *fixture = *state;
    struct engine_seat seat = {.nudge = NULL};
    struct own_call first;
    struct own_call second;
    size_t taken;
    own_init(&first, fixture, &seat);
    own_init(&second, fixture, &seat);
    first.call.context = &second;
    first.call.done = done_again;
    struct engine_call *call = &first.call;
    assert_int_equal(engine_submit_lead(fixture->engine, &call, 1, &taken, NULL), OK);
    await(&first);
    await(&second);
    assert_true(first.is_first);
    own_release(&first);
    own_release(&second);
}

struct crowd {
    struct fixture *fixture;
    atomic_bool is_over;
};

static void *lead_on_and_on(void *context)
{
    struct crowd *crowd = context;
    while (!atomic_load(&crowd->is_over)) {
        (void)leads(crowd->fixture);
    }
    return NULL;
}

/* ET3: however many lead, the engine's thread gets the turn when it needs it. */
static void those_who_lead_leave_the_engines_thread_its_turn(void **state)
{
    struct fixture *fixture = *state;
    struct crowd crowd = {.fixture = fixture};
    pthread_t threads[4];
    for (size_t i = 0; i < COUNT(threads); i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, lead_on_and_on, &crowd), 0);
    }
    for (int i = 0; i < 100; i++) {
        struct arena arena;
        arena_init(&arena, &mem_libc, 1 << 20);
        struct query nothing = {.kind = QUERY_NOTHING, .call = {.arena = &arena}};
        nothing.call.query = &nothing;
        assert_int_equal(engine_do(fixture->engine, &nothing.call), OK);
        arena_release(&arena);
    }
    for (int waited = 0; stats_of(fixture).turns_led == 0 && waited < 10000; waited++) {
        clock_sleep_ms(1); /* on a busy machine the queries may end before a thread has led */
    }
    atomic_store(&crowd.is_over, true);
    for (size_t i = 0; i < COUNT(threads); i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_true(stats_of(fixture).turns_led > 0);
    assert_true(stats_of(fixture).turns_own > 0);
}

int main(void)
{
#define ENGINE_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(one_stall_makes_it_slow_until_it_was_quick_for_a_while),
        TEST(a_disk_that_stalls_again_and_again_must_be_quick_for_longer),
        TEST(what_is_typical_makes_it_slow_and_a_little_less_does_not_make_it_quick),
        TEST(a_few_long_ones_among_many_are_not_typical),
        ENGINE_TEST(a_thread_that_waits_for_its_call_decides_it_itself),
        ENGINE_TEST(a_call_without_a_seat_is_answered_on_the_engines_thread),
        ENGINE_TEST(a_stalled_flush_hands_over_and_a_quick_disk_takes_it_back),
        ENGINE_TEST(a_seat_that_does_not_come_is_not_waited_for),
        ENGINE_TEST(a_nudged_seat_leads_for_all_who_wait),
        ENGINE_TEST(a_done_function_may_submit_the_next_call),
        ENGINE_TEST(those_who_lead_leave_the_engines_thread_its_turn),
    };
    return cmocka_run_group_tests_name("lead", tests, NULL, NULL);
}
