/*
 * A turn whose flush no thread waits for: the seat that led goes on, and its calls are answered
 * when the flush has landed and not before; whoever lands it, however it ends.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "check_c.h"
#include "engine/pace.h"
#include "engine/query.h"
#include "store/mem.h"

/* A store in memory whose flushes end when the test says so. Somebody who waits ends them. */
struct fixture {
    _Atomic int64_t now_ms;
    struct clock clock;
    const struct store_ops *inner; /* of the store in memory … */
    struct store_ops ops;          /* … and the same with flights */
    struct store *store;
    struct engine *engine;
    int event;
    _Atomic uint64_t committed; /* so far … */
    _Atomic uint64_t begun;     /* … of which a flush was begun … */
    _Atomic uint64_t durable;   /* … and has ended */
    atomic_bool is_held;        /* a flight does not end */
    atomic_bool is_blunt;       /* a flush that is begun ends at once */
    atomic_bool start_fails;
    atomic_bool end_fails;
    atomic_uint starts; /* flights begun */
};

static struct fixture fixture;

static struct clock_reading fake_read(void *context)
{
    (void)context;
    return (struct clock_reading){fixture.now_ms, fixture.now_ms};
}

static enum status on_commit(struct store *store, const struct commit *commit, struct err *err)
{
    enum status status = fixture.inner->commit(store, commit, err);
    fixture.committed += status == OK;
    return status;
}

static enum status ends(struct err *err)
{
    if (fixture.end_fails) {
        return err_set(err, E_UNKNOWN, "the disk is gone");
    }
    fixture.durable = fixture.begun;
    return OK;
}

static enum status on_flush(struct store *store, struct err *err)
{
    (void)store;
    fixture.begun = fixture.committed;
    return ends(err);
}

static enum status on_start(struct store *store, bool *ret_landed, struct err *err)
{
    (void)store;
    if (fixture.start_fails) {
        fixture.end_fails = true;
        return err_set(err, E_UNKNOWN, "the disk is gone");
    }
    fixture.starts++;
    fixture.begun = fixture.committed;
    *ret_landed = fixture.is_blunt;
    return *ret_landed ? ends(err) : OK;
}

static enum status on_land(struct store *store, bool *ret_landed, struct err *err)
{
    (void)store;
    *ret_landed = !fixture.is_held;
    return *ret_landed ? ends(err) : OK;
}

static int on_event(struct store *store)
{
    (void)store;
    return fixture.event;
}

static const struct store_flight flights = {.start = on_start, .land = on_land, .event = on_event};

static struct engine_stats stats(void)
{
    struct engine_stats stats;
    engine_stats(fixture.engine, &stats);
    return stats;
}

/* ---- calls and seats ----------------------------------------------------------------------- */

struct watching_seat {
    struct engine_seat seat; /* first */
    atomic_uint nudges;
    unsigned watches;
    bool cannot; /* it has no room for the descriptor */
};

static void on_nudge(struct engine_seat *seat)
{
    atomic_fetch_add(&((struct watching_seat *)seat)->nudges, 1);
}

static bool on_watch(struct engine_seat *seat, int fd)
{
    struct watching_seat *watching = (struct watching_seat *)seat;
    assert_int_equal(fd, fixture.event);
    watching->watches++;
    return !watching->cannot;
}

#define SEAT                                                                                       \
    {                                                                                              \
        .seat = {.nudge = on_nudge, .watch = on_watch }                                            \
    }

/* A begin of a key that nobody has begun. */
struct own_call {
    struct engine_call call; /* first */
    struct arena arena;
    char key[32];
    pthread_t thread;   /* where done ran … */
    uint64_t durable;   /* … with this much on the disk … */
    uint64_t committed; /* … of this */
    atomic_bool is_done;
};

static atomic_uint keys;

static void note_done(struct engine_call *call)
{
    struct own_call *own = (struct own_call *)call;
    own->thread = pthread_self();
    own->durable = fixture.durable;
    own->committed = fixture.committed;
    atomic_store(&own->is_done, true);
}

static void own_init(struct own_call *own, struct watching_seat *seat)
{
    *own = (struct own_call){.durable = 0};
    arena_init(&own->arena, &mem_libc, 1 << 20);
    (void)snprintf(own->key, sizeof own->key, "key %u", atomic_fetch_add(&keys, 1));
    own->call = (struct engine_call){.arena = &own->arena, .seat = &seat->seat, .done = note_done};
    own->call.request.kind = REQUEST_BEGIN;
    own->call.request.key.tenant = SLICE_LIT("default");
    own->call.request.key.key = slice_str(own->key);
    own->call.request.policy = policy_default;
    assert_int_equal(record_key_seal(&own->call.request.key, NULL), OK);
}

/* It was granted, and that was on the disk before anybody knew (P2). */
static void own_release(struct own_call *own)
{
    assert_true(atomic_load(&own->is_done));
    assert_int_equal(own->call.err.status, OK);
    assert_int_equal(own->call.decision.kind, DECISION_FIRST_SEEN);
    assert_int_equal(own->durable, own->committed);
    arena_release(&own->arena);
}

static void submit(struct watching_seat *seat, struct own_call *own)
{
    struct engine_call *call = &own->call;
    size_t taken = 0;
    own_init(own, seat);
    assert_int_equal(engine_submit_seated(fixture.engine, &seat->seat, &call, 1, &taken, NULL), OK);
    assert_int_equal(taken, 1);
}

static void lead(struct watching_seat *seat)
{
    size_t none;
    assert_int_equal(engine_submit_seated(fixture.engine, &seat->seat, NULL, 0, &none, NULL), OK);
}

/* Submits until a call's flush is under way: the engine's thread may have the turn just then. */
static void fly(struct watching_seat *seat, struct own_call *own)
{
    unsigned before = seat->watches;
    submit(seat, own);
    for (int i = 0; i < 300000 && seat->watches == before; i++) {
        if (atomic_load(&own->is_done)) {
            own_release(own);
            submit(seat, own);
        } else {
            (void)usleep(200);
            lead(seat);
        }
    }
    assert_int_equal(seat->watches, before + 1);
    assert_false(atomic_load(&own->is_done));
}

/* Longer than any machine takes: a call that nobody comes for is a failure, not a hang. */
static void await(const struct own_call *own)
{
    for (int i = 0; i < 75000 && !atomic_load(&own->is_done); i++) {
        (void)usleep(200);
    }
    assert_true(atomic_load(&own->is_done));
}

/* The timers' own commit, of the first checkpoint, is over; the clock of the tests stands still. */
static void settle(void)
{
    struct watching_seat seat = SEAT;
    struct own_call own;
    fixture.is_blunt = true;
    submit(&seat, &own);
    await(&own);
    own_release(&own);
    while (stats().checkpoint_ms == 0) {
        (void)usleep(200);
    }
    fixture.is_blunt = false;
}

static int set_up(void **state)
{
    (void)state;
    fixture = (struct fixture){.now_ms = 1794770607000, .is_held = true};
    fixture.clock = (struct clock){.read = fake_read, .boot_id = 7};
    fixture.event = eventfd(0, EFD_CLOEXEC);
    assert_true(fixture.event >= 0);
    const struct store_options store = {.clock = &fixture.clock};
    const struct engine_options options = {.clock = &fixture.clock};
    assert_int_equal(store_mem_new(&store, NULL, &fixture.store, NULL), OK);
    fixture.inner = fixture.store->ops;
    fixture.ops = *fixture.inner;
    fixture.ops.commit = on_commit;
    fixture.ops.flush = on_flush;
    fixture.ops.flight = &flights;
    fixture.store->ops = &fixture.ops;
    assert_int_equal(engine_new(fixture.store, &options, &fixture.engine, NULL), OK);
    settle();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    enum status ended = engine_free(fixture.engine, NULL);
    assert_int_equal(ended, fixture.end_fails ? E_UNKNOWN : OK);
    (void)close(fixture.event);
    return 0;
}

static bool is_here(const struct own_call *own)
{
    return pthread_equal(own->thread, pthread_self()) != 0;
}

/* ---- a flight ------------------------------------------------------------------------------ */

static void nothing_is_answered_before_the_flight_has_landed(void **state)
{
    (void)state;
    struct watching_seat seat = SEAT;
    struct own_call own;
    fly(&seat, &own);
    for (int i = 0; i < 200; i++) { /* the engine's thread looks, too, and finds the same */
        assert_false(engine_land(fixture.engine, &seat.seat));
        (void)usleep(200);
    }
    assert_false(atomic_load(&own.is_done));
    fixture.is_held = false;
    while (!engine_land(fixture.engine, &seat.seat)) {
    }
    await(&own);
    own_release(&own);
    assert_true(engine_land(fixture.engine, &seat.seat)); /* and nothing happens */
}

static void what_comes_during_a_flight_is_decided_after_it(void **state)
{
    (void)state;
    struct watching_seat seat = SEAT;
    struct watching_seat other = SEAT;
    struct own_call first;
    struct own_call second;
    struct own_call third;
    fly(&seat, &first);
    uint64_t committed = fixture.committed;
    submit(&other, &second);
    submit(&seat, &third);
    (void)usleep(20000);
    assert_int_equal(fixture.committed, committed);
    assert_int_equal(stats().queued, 2);
    fixture.is_held = false;
    while (!engine_land(fixture.engine, &seat.seat)) {
    }
    await(&first);
    for (int i = 0; i < 300000 && !atomic_load(&third.is_done); i++) {
        lead(&other); /* it was nudged, unless the engine's thread came first */
        (void)engine_land(fixture.engine, &other.seat);
    }
    await(&second);
    await(&third);
    assert_int_equal(fixture.committed, committed + 1); /* one batch for both */
    own_release(&first);
    own_release(&second);
    own_release(&third);
}

static void a_flight_that_fails_is_unknown_and_stops_the_engine(void **state)
{
    (void)state;
    struct watching_seat seat = SEAT;
    struct own_call own;
    struct own_call waits;
    struct err err = {0};
    fly(&seat, &own);
    submit(&seat, &waits);
    fixture.end_fails = true;
    fixture.is_held = false;
    while (!engine_land(fixture.engine, &seat.seat)) {
    }
    await(&own);
    await(&waits);
    assert_int_equal(own.call.err.status, E_UNKNOWN); /* P11 */
    assert_int_equal(waits.call.err.status, E_UNKNOWN);
    assert_true(engine_failure(fixture.engine, &err));
    assert_non_null(strstr(err.text, "the disk is gone"));
    arena_release(&own.arena);
    arena_release(&waits.arena);
}

static void a_flight_that_cannot_be_begun_is_unknown(void **state)
{
    (void)state;
    struct watching_seat seat = SEAT;
    struct own_call own;
    fixture.start_fails = true;
    for (bool over = false; !over;) {
        submit(&seat, &own);
        await(&own);
        over = own.call.err.status != OK;
        arena_release(&own.arena);
    }
    assert_int_equal(own.call.err.status, E_UNKNOWN);
    assert_int_equal(seat.watches, 0);
    assert_true(engine_failure(fixture.engine, NULL));
}

/* ---- who lands it -------------------------------------------------------------------------- */

/* ET4: a loop that is held up does not hold up the calls of others. */
static void a_flight_that_its_seat_does_not_land_is_landed(void **state)
{
    (void)state;
    struct watching_seat seat = SEAT;
    struct own_call own;
    fly(&seat, &own);
    fixture.is_held = false;
    await(&own);
    assert_false(is_here(&own));
    own_release(&own);
    while (!engine_land(fixture.engine, &seat.seat)) {
    }
}

/* Its seat leads again before it knows. */
static void a_seat_whose_flight_was_landed_flies_again(void **state)
{
    (void)state;
    struct watching_seat seat = SEAT;
    struct own_call first;
    struct own_call second;
    fly(&seat, &first);
    fixture.is_held = false;
    await(&first);
    fixture.is_held = true;
    fly(&seat, &second);
    assert_false(engine_land(fixture.engine, &seat.seat));
    fixture.is_held = false;
    await(&second);
    own_release(&first);
    own_release(&second);
}

static void a_query_waits_for_the_flight_and_no_longer(void **state)
{
    (void)state;
    struct watching_seat seat = SEAT;
    struct own_call own;
    struct arena arena;
    fly(&seat, &own);
    fixture.is_held = false;
    arena_init(&arena, &mem_libc, 1 << 20);
    struct query nothing = {.kind = QUERY_NOTHING, .call = {.arena = &arena}};
    nothing.call.query = &nothing;
    assert_int_equal(engine_do(fixture.engine, &nothing.call), OK);
    arena_release(&arena);
    own_release(&own);
}

static void a_seat_that_ends_waits_for_its_flight(void **state)
{
    (void)state;
    struct watching_seat seat = SEAT;
    struct own_call own;
    fly(&seat, &own);
    engine_unseat(fixture.engine, &seat.seat);
    own_release(&own);
    engine_unseat(fixture.engine, &seat.seat); /* it has none */
}

static void an_engine_that_ends_answers_what_is_in_flight(void **state)
{
    (void)state;
    struct watching_seat seat = SEAT;
    struct own_call own;
    struct own_call waits;
    fly(&seat, &own);
    submit(&seat, &waits);
    assert_int_equal(engine_free(fixture.engine, NULL), OK);
    fixture.engine = NULL;
    own_release(&own);
    own_release(&waits);
}

static void who_cannot_watch_waits(void **state)
{
    (void)state;
    struct watching_seat seat = SEAT;
    struct own_call own;
    for (int way = 0; way < 2; way++) {
        seat.cannot = way == 0;
        fixture.is_blunt = way == 1; /* as without a ring */
        for (int i = 0; i < 50; i++) {
            submit(&seat, &own);
            await(&own);
            own_release(&own);
        }
    }
    assert_true(seat.watches <= 50);
}

/* ---- the pace ------------------------------------------------------------------------------ */

/* A stall holds nobody up, so it is no reason to wake a thread for each batch from then on. */
static void a_flight_that_stalls_leaves_the_turn_with_the_loops(void **state)
{
    (void)state;
    struct pace pace;
    pace_init(&pace);
    for (int i = 0; i < 100; i++) {
        pace_flush_took(
            &pace, i % 5 == 0 ? 10 * (uint64_t)PACE_STALL_NANOS : PACE_QUICK_NANOS / 2, 1000);
    }
    assert_int_equal(pace.state, PACE_QUICK);
    for (int i = 0; i < 100; i++) { /* it may take longer than one that holds a loop up … */
        pace_flush_took(&pace, (uint64_t)PACE_SLOW_NANOS * 3 / 2, 1000);
    }
    assert_int_equal(pace.state, PACE_QUICK);
    for (int i = 0; i < 100; i++) { /* … but not much longer */
        pace_flush_took(&pace, (uint64_t)PACE_SLOW_NANOS * 3, 1000);
    }
    assert_int_equal(pace.state, PACE_SLOW);
}

/* ---- many at once -------------------------------------------------------------------------- */

struct crew {
    struct watching_seat seat;
    pthread_t thread;
    unsigned answered;
};

enum { CREW = 3, ROUNDS = 300 };

static void *work(void *context)
{
    struct crew *crew = context;
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct own_call own;
        submit(&crew->seat, &own);
        while (!atomic_load(&own.is_done)) {
            lead(&crew->seat);
            (void)engine_land(fixture.engine, &crew->seat.seat);
        }
        crew->answered += own.call.err.status == OK && own.durable > 0;
        arena_release(&own.arena);
    }
    engine_unseat(fixture.engine, &crew->seat.seat);
    return NULL;
}

static void loops_that_fly_in_turns_answer_everything(void **state)
{
    (void)state;
    struct crew crew[CREW] = {{.seat = SEAT}, {.seat = SEAT}, {.seat = SEAT}};
    fixture.is_held = false;
    for (size_t i = 0; i < CREW; i++) {
        assert_int_equal(pthread_create(&crew[i].thread, NULL, work, &crew[i]), 0);
    }
    for (size_t i = 0; i < CREW; i++) {
        assert_int_equal(pthread_join(crew[i].thread, NULL), 0);
        assert_int_equal(crew[i].answered, ROUNDS);
    }
    assert_true(fixture.starts > 1); /* settle's is one */
}

int main(void)
{
#define ENGINE_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        ENGINE_TEST(nothing_is_answered_before_the_flight_has_landed),
        ENGINE_TEST(what_comes_during_a_flight_is_decided_after_it),
        ENGINE_TEST(a_flight_that_fails_is_unknown_and_stops_the_engine),
        ENGINE_TEST(a_flight_that_cannot_be_begun_is_unknown),
        ENGINE_TEST(a_flight_that_its_seat_does_not_land_is_landed),
        ENGINE_TEST(a_seat_whose_flight_was_landed_flies_again),
        ENGINE_TEST(a_query_waits_for_the_flight_and_no_longer),
        ENGINE_TEST(a_seat_that_ends_waits_for_its_flight),
        ENGINE_TEST(an_engine_that_ends_answers_what_is_in_flight),
        ENGINE_TEST(who_cannot_watch_waits),
        TEST(a_flight_that_stalls_leaves_the_turn_with_the_loops),
        ENGINE_TEST(loops_that_fly_in_turns_answer_everything),
    };
    return cmocka_run_group_tests_name("flight_turn", tests, NULL, NULL);
}
