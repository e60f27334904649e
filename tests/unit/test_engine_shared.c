/*
 * Engines over one shared store, each as a process of its own: what one hears of the other, what
 * becomes of a process that is gone, and of a store that is.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "check_c.h"
#include "engine/query.h"
#include "store/mem.h"

enum { ENGINES = 2, TRIES = 60000 }; /* of a millisecond each: after them a test has failed */

static struct {
    _Atomic int64_t now_ms; /* of all clocks */
    struct clock clock;
    struct store_mem_hub *hub;
    struct store *stores[ENGINES]; /* the engines' own */
    struct engine *engines[ENGINES];
    struct store_ops ops[ENGINES];
    const struct store_ops *inner; /* the hub's table */
    atomic_bool away;              /* nobody reaches the store */
    atomic_bool lost;              /* the store has given up to learn what became of a commit */
    atomic_int failing;            /* so many commits under way do not happen */
    atomic_int untold; /* 1: the next commit happens, and 2: it does not; nobody is told */
    struct engine_call
        *_Atomic racer;       /* the first engine does it just before a commit of the second */
    atomic_size_t wants_most; /* of one prepare of the second engine … */
    atomic_size_t prepares;   /* … and of how many */
    size_t commit_rows;       /* of the stores that are opened next */
    struct store *holders[2]; /* processes that only hold something */
    struct arena arena;
} world;

static struct clock_reading read_clock(void *context)
{
    (void)context;
    return (struct clock_reading){world.now_ms, world.now_ms};
}

static enum status refuse(struct err *err)
{
    return err_set(err, E_UNAVAILABLE, "nobody answers");
}

static enum status gated_prepare(struct store *store, struct store_batch *batch, struct err *err)
{
    if (store == world.stores[1] && batch->count > 0) {
        world.prepares++;
        world.wants_most = batch->count > world.wants_most ? batch->count : world.wants_most;
    }
    if (world.lost) {
        return err_set(err, E_UNKNOWN, "nobody will ever tell");
    }
    return world.away ? refuse(err) : world.inner->prepare(store, batch, err);
}

static enum status gated_commit(struct store *store, const struct commit *commit, struct err *err)
{
    int untold = world.untold;
    if (store == world.stores[1] && world.racer != NULL) {
        struct engine_call *racer = world.racer;
        world.racer = NULL;
        assert_int_equal(engine_do(world.engines[0], racer), OK);
    }
    if (untold == 2) {
        world.inner->abort(store);
    }
    struct commit now = *commit;
    now.ret_number = untold != 0 ? NULL : commit->ret_number; /* its fate is known, and not told */
    enum status status = untold == 2 ? OK : world.inner->commit(store, &now, err);
    if (untold != 0 && status == OK) {
        world.untold = 0;
        world.away = true; /* or somebody could tell */
        return err_set(err, E_UNKNOWN, "the answer is lost");
    }
    return status;
}

/* What becomes of a commit under way. */
static enum status fate(void *context, struct store *store, uint64_t number)
{
    (void)context;
    (void)store;
    (void)number;
    if (world.failing == 0) {
        return OK;
    }
    world.failing--;
    return E_UNAVAILABLE;
}

static enum status gated_read(struct store *store, struct store_batch *batch, struct err *err)
{
    return world.away ? refuse(err) : world.inner->read(store, batch, err);
}

static enum status gated_beat(struct store *store, uint64_t incarnation, struct err *err)
{
    return world.away ? refuse(err) : world.inner->beat(store, incarnation, err);
}

/* The notices of the second engine get lost. */
static void deaf_listen(struct store *store, store_notice notice, void *context)
{
    (void)store;
    (void)notice;
    (void)context;
}

static void start(size_t number, bool hears)
{
    struct err err = {0};
    struct engine_options options = {.clock = &world.clock};
    struct store *store = NULL;
    assert_int_equal(store_mem_hub_open(world.hub, NULL, &store, &err), OK);
    world.inner = store->ops;
    world.ops[number] = *store->ops;
    world.ops[number].commit_rows = world.commit_rows;
    world.ops[number].prepare = gated_prepare;
    world.ops[number].commit = gated_commit;
    world.ops[number].read = gated_read;
    world.ops[number].beat = gated_beat;
    if (!hears) {
        world.ops[number].listen = deaf_listen;
    }
    store->ops = &world.ops[number];
    world.stores[number] = store;
    assert_int_equal(engine_new(store, &options, &world.engines[number], &err), OK);
}

static int set_up(void **state)
{
    (void)state;
    memset(&world, 0, sizeof world);
    world.now_ms = 1794770607000;
    world.clock = (struct clock){.read = read_clock, .boot_id = 3};
    arena_init(&world.arena, &mem_libc, 64 << 20);
    const struct store_options options = {.clock = &world.clock};
    assert_int_equal(store_mem_hub_new(&options, NULL, &world.hub, NULL), OK);
    store_mem_hub_defer(world.hub, fate, NULL);
    start(0, true);
    return 0;
}

static void kill_holder(size_t number)
{
    if (world.holders[number] != NULL) {
        store_mem_kill(world.holders[number]);
        world.holders[number] = NULL;
    }
}

static int tear_down(void **state)
{
    (void)state;
    for (size_t i = 0; i < ENGINES; i++) {
        (void)engine_free(world.engines[i], NULL);
        kill_holder(i);
    }
    store_mem_hub_free(world.hub);
    arena_release(&world.arena);
    return 0;
}

static struct engine_call begin_call(const char *key)
{
    struct engine_call call = {.arena = &world.arena};
    call.request.kind = REQUEST_BEGIN;
    call.request.key.tenant = SLICE_LIT("default");
    call.request.key.key = slice_str(key);
    assert_int_equal(record_key_seal(&call.request.key, NULL), OK);
    call.request.policy = policy_default;
    return call;
}

static enum decision_kind do_begin(size_t engine, const char *key, struct engine_call *ret_call)
{
    *ret_call = begin_call(key);
    assert_int_equal(engine_do(world.engines[engine], ret_call), OK);
    return ret_call->decision.kind;
}

static enum decision_kind do_seal(size_t engine, const struct engine_call *begun)
{
    struct engine_call call = {.arena = &world.arena};
    call.request.kind = REQUEST_SEAL;
    call.request.key.tenant = SLICE_LIT("default");
    call.request.operation_id = begun->decision.next.operation_id;
    call.request.fence = begun->decision.next.fence;
    call.request.status = RECORD_EXECUTED;
    assert_int_equal(engine_do(world.engines[engine], &call), OK);
    return call.decision.kind;
}

/* ---- waiting ------------------------------------------------------------------------------- */

static atomic_size_t answered;

static void count_answer(struct engine_call *call)
{
    (void)call;
    answered++;
}

/* Wait until the second engine has that many parked calls, and nothing else to do. */
static void wait_parked(size_t count)
{
    struct engine_stats stats = {0};
    for (int i = 0; i < TRIES && (stats.parked != count || stats.queued > 0); i++) {
        (void)usleep(1000);
        engine_stats(world.engines[1], &stats);
    }
    assert_int_equal(stats.parked, count);
}

static void submit_waiting(struct engine_call *calls, struct arena *arenas, size_t count)
{
    answered = 0;
    for (size_t i = 0; i < count; i++) {
        arena_init(&arenas[i], &mem_libc, 1 << 20);
        calls[i] = begin_call("k");
        calls[i].arena = &arenas[i];
        calls[i].wait_ms = 30000;
        calls[i].done = count_answer;
        assert_int_equal(engine_submit(world.engines[1], &calls[i], NULL), OK);
    }
    wait_parked(count);
}

/* All of them got the replay, while the clocks went on by this much a millisecond. */
static void assert_replayed(
    struct engine_call *calls, struct arena *arenas, size_t count, int64_t pace_ms)
{
    for (int i = 0; i < TRIES && answered < count; i++) {
        (void)usleep(1000);
        world.now_ms += pace_ms;
    }
    assert_int_equal(answered, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(calls[i].err.status, OK);
        assert_int_equal(calls[i].decision.kind, DECISION_DUPLICATE_REPLAYED);
        arena_release(&arenas[i]);
    }
}

/* The clocks stand still, so that nothing but the notice can wake it (EN7). */
static void who_waits_hears_of_a_seal_by_a_different_process(void **state)
{
    (void)state;
    struct engine_call first;
    struct engine_call waiting[1];
    struct arena arenas[1];
    start(1, true);
    assert_int_equal(do_begin(0, "k", &first), DECISION_FIRST_SEEN);
    submit_waiting(waiting, arenas, 1);
    assert_int_equal(do_seal(0, &first), DECISION_SEALED);
    assert_replayed(waiting, arenas, 1, 0);
}

/* One call asks for all that wait for its key. */
static void who_waits_asks_again_when_the_notice_is_lost(void **state)
{
    (void)state;
    enum { WAITERS = 50 };
    struct engine_call first;
    static struct engine_call waiting[WAITERS];
    static struct arena arenas[WAITERS];
    start(1, false);
    assert_int_equal(do_begin(0, "k", &first), DECISION_FIRST_SEEN);
    submit_waiting(waiting, arenas, WAITERS);
    size_t before = world.prepares;
    world.wants_most = 0;
    for (int i = 0; i < TRIES && world.prepares < before + 3; i++) {
        (void)usleep(1000);
        world.now_ms += 10;
    }
    assert_true(world.prepares >= before + 3);
    assert_int_equal(world.wants_most, 1);
    wait_parked(WAITERS);
    assert_int_equal(do_seal(0, &first), DECISION_SEALED);
    int64_t sealed_ms = world.now_ms;
    assert_replayed(waiting, arenas, WAITERS, 1); /* seconds of a busy machine are no matter */
    assert_true(world.now_ms - sealed_ms < WAITERS * LIMIT_ASK_AGAIN_MS / 2); /* not one by one */
}

/* ---- commits under way ---------------------------------------------------------------------- */

/* EN1, S15: nobody is told of a grant that did not happen, and the engine goes on after it. */
static void a_call_learns_what_became_of_a_commit_under_way(void **state)
{
    (void)state;
    struct engine_call first;
    struct engine_call lost = begin_call("lost");
    assert_int_equal(do_begin(0, "k", &first), DECISION_FIRST_SEEN);
    world.failing = 1;
    assert_int_equal(engine_do(world.engines[0], &lost), E_UNAVAILABLE);
    assert_int_equal(world.failing, 0);
    assert_int_equal(do_begin(0, "lost", &lost), DECISION_FIRST_SEEN);
    assert_int_equal(do_seal(0, &first), DECISION_SEALED);
    assert_int_equal(do_begin(0, "k", &first), DECISION_DUPLICATE_REPLAYED);
    assert_false(engine_failure(world.engines[0], NULL));
}

/* ---- batches that wait for more calls -------------------------------------------------------- */

enum { CALLERS = 8, EACH = 200 };

static struct engine_stats stats_of(size_t engine)
{
    struct engine_stats stats;
    engine_stats(world.engines[engine], &stats);
    return stats;
}

/* One caller of the second engine: one call after the other, each of a new key. */
static void *call_again_and_again(void *context)
{
    const char *name = context;
    struct arena arena;
    arena_init(&arena, &mem_libc, 1 << 20);
    for (int i = 0; i < EACH; i++) {
        char key[32];
        struct engine_call call;
        (void)snprintf(key, sizeof key, "%s-%d", name, i);
        call = begin_call(key);
        call.arena = &arena;
        assert_int_equal(engine_do(world.engines[1], &call), OK);
        assert_int_equal(call.decision.kind, DECISION_FIRST_SEEN);
        arena_clear(&arena);
    }
    arena_release(&arena);
    return NULL;
}

static void all_call(const char *names)
{
    pthread_t threads[CALLERS];
    char each[CALLERS][3];
    for (size_t i = 0; i < CALLERS; i++) {
        (void)snprintf(each[i], sizeof each[i], "%c%c", names[0], (char)('a' + i));
        assert_int_equal(pthread_create(&threads[i], NULL, call_again_and_again, each[i]), 0);
    }
    for (size_t i = 0; i < CALLERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
}

/* GA1 */
static void who_calls_alone_waits_for_nobody(void **state)
{
    (void)state;
    char alone[] = "x";
    world.commit_rows = 30;
    start(1, true);
    (void)call_again_and_again(alone);
    assert_int_equal(stats_of(1).gathers, 0);
    all_call("c");
    assert_true(stats_of(1).gathers > 0);
    assert_int_equal(stats_of(0).gathers, 0);
}

/* Nor does a batch of an engine that is about to end. */
static void without_waits_no_batch_waits(void **state)
{
    (void)state;
    world.commit_rows = 30;
    start(1, true);
    engine_end_waits(world.engines[1]);
    all_call("c");
    assert_int_equal(stats_of(1).gathers, 0);
}

static void where_commits_cost_little_no_batch_waits(void **state)
{
    (void)state;
    start(1, true);
    all_call("c");
    assert_int_equal(stats_of(1).gathers, 0);
}

/* ---- lanes --------------------------------------------------------------------------------- */

enum { LINE = 40 };

static struct engine_call arrive_call(struct arena *arena, int number)
{
    char *key = arena_alloc(arena, 16);
    struct engine_call call = {.arena = arena};
    assert_non_null(key);
    (void)snprintf(key, 16, "%d", number);
    call.request = (struct request){.kind = REQUEST_ENQUEUE,
        .record_kind = RECORD_DELIVERY,
        .key = {.tenant = SLICE_LIT("default"), .scope = SLICE_LIT("s"), .key = slice_str(key)},
        .source = {.type = SLICE_LIT("s"), .id = SLICE_LIT("thing"), .version = slice_str(key)},
        .policy = policy_default,
        .door = RECORD_DOOR_INBOX};
    assert_int_equal(record_key_seal_as(&call.request.key, RECORD_DELIVERY, NULL), OK);
    return call;
}

/* The delivery that names this one as the one before it; -1: none does. */
static int next_of(const struct engine_call *calls, const struct op_id *id)
{
    int found = -1;
    for (int i = 0; i < LINE; i++) {
        if (op_id_equal(&calls[i].decision.next.parent, id)) {
            assert_int_equal(found, -1); /* LN1 */
            found = i;
        }
    }
    return found;
}

/* LN1: each of the second engine loses a race against one of the first, and is decided again. */
static void deliveries_of_two_processes_stand_in_one_line(void **state)
{
    (void)state;
    static struct engine_call calls[LINE];
    static struct arena arenas[LINE]; /* one each: two engines write */
    struct op_id at = {{0}};
    int length = 0;
    start(1, true);
    for (int i = 0; i < LINE; i++) {
        arena_init(&arenas[i], &mem_libc, 1 << 20);
        calls[i] = arrive_call(&arenas[i], i);
    }
    for (int i = 0; i < LINE; i += 2) {
        world.racer = &calls[i];
        assert_int_equal(engine_do(world.engines[1], &calls[i + 1]), OK);
        assert_null(world.racer);
        assert_int_equal(calls[i + 1].decided, 2);
    }
    for (int i = 0; i < LINE; i++) {
        assert_int_equal(calls[i].decision.kind, DECISION_ENQUEUED);
    }
    for (int i = next_of(calls, &at); i >= 0; i = next_of(calls, &at), length++) {
        at = calls[i].decision.next.operation_id;
    }
    assert_int_equal(length, LINE);
    for (int i = 0; i < LINE; i++) {
        arena_release(&arenas[i]);
    }
}

/* ---- holders ------------------------------------------------------------------------------- */

/* A process that holds a key and does nothing else. */
static struct store *hold(size_t number, const char *key, uint64_t *ret_incarnation)
{
    struct err err = {0};
    struct store *store = NULL;
    struct store_batch batch = {.fences = 2};
    assert_int_equal(store_mem_hub_open(world.hub, NULL, &store, &err), OK);
    assert_int_equal(store->ops->prepare(store, &batch, &err), OK);
    assert_int_equal(store->ops->beat(store, batch.fence_first, &err), OK);
    struct engine_call begin = begin_call(key);
    struct decision decision;
    begin.request.holder = batch.fence_first;
    begin.request.policy.lease_ms = 86400000;
    decide_into(NULL, &begin.request,
        (struct decide_moment){.now_ms = batch.now_ms, .fence_next = batch.fence_first + 1},
        &decision);
    struct change change = {.kind = CHANGE_PUT, .record = &decision.next};
    struct commit commit = {.changes = &change, .count = 1};
    assert_int_equal(store->ops->commit(store, &commit, &err), OK);
    *ret_incarnation = batch.fence_first;
    world.holders[number] = store;
    return store;
}

static enum record_status status_of(const char *key)
{
    struct query query = {.kind = QUERY_OPERATION,
        .tenant = SLICE_LIT("default"),
        .key = begin_call(key).request.key,
        .call = {.arena = &world.arena}};
    assert_int_equal(query_do(world.engines[0], &query), OK);
    assert_non_null(query.record);
    return query.record->status;
}

/* Let time pass; the holder beats meanwhile, or not. */
static void pass(int64_t ms, struct store *holder, uint64_t incarnation)
{
    for (int64_t passed = 0; passed < ms; passed += 500) {
        world.now_ms += 500;
        if (holder != NULL) {
            assert_int_equal(holder->ops->beat(holder, incarnation, NULL), OK);
        }
        /* The engine has its turn: a batch of its own, after whatever the turn brought. */
        for (int i = 0; i < 2; i++) {
            struct query turn = {.kind = QUERY_NOTHING, .call = {.arena = &world.arena}};
            turn.call.query = &turn;
            assert_int_equal(engine_do(world.engines[0], &turn.call), OK);
        }
    }
}

static void what_a_dead_process_held_becomes_unknown_and_what_a_living_one_holds_does_not(
    void **state)
{
    (void)state;
    uint64_t incarnations[2];
    (void)hold(0, "dead", &incarnations[0]);
    struct store *living = hold(1, "living", &incarnations[1]);
    pass(60000, living, incarnations[1]);
    assert_int_equal(status_of("dead"), RECORD_UNKNOWN);
    assert_int_equal(status_of("living"), RECORD_IN_PROGRESS);
    kill_holder(0);
    pass(60000, living, incarnations[1]);
    assert_int_equal(status_of("living"), RECORD_IN_PROGRESS);
    kill_holder(1);
    pass(LIMIT_HOLDER_GONE_MS - LIMIT_BEAT_MS, NULL, 0);
    assert_int_equal(status_of("living"), RECORD_IN_PROGRESS);
    pass(3 * LIMIT_BEAT_MS, NULL, 0);
    assert_int_equal(status_of("living"), RECORD_UNKNOWN);
}

/* When the store was away for everybody, nobody could beat: who is back first must not take the
 * others for dead. */
static void after_an_outage_others_have_time_to_come_back(void **state)
{
    (void)state;
    uint64_t incarnation;
    struct store *holder = hold(0, "k", &incarnation);
    pass(40000, holder, incarnation);
    world.away = true;
    pass(2 * LIMIT_HOLDER_GONE_MS, NULL, 0);
    world.away = false;
    pass(LIMIT_HOLDER_GONE_MS - 5000, NULL, 0);
    assert_int_equal(status_of("k"), RECORD_IN_PROGRESS);
    pass(60000, holder, incarnation);
    assert_int_equal(status_of("k"), RECORD_IN_PROGRESS);
    pass(60000, NULL, 0);
    assert_int_equal(status_of("k"), RECORD_UNKNOWN);
}

static void two_janitors_settle_a_lease_once(void **state)
{
    (void)state;
    struct engine_call first;
    start(1, true);
    assert_int_equal(do_begin(0, "k", &first), DECISION_FIRST_SEEN);
    for (int i = 0; i < TRIES && status_of("k") != RECORD_UNKNOWN; i++) {
        (void)usleep(1000);
        world.now_ms += 100;
    }
    pass(3000, NULL, 0);
    struct query query = {.kind = QUERY_OPERATION,
        .tenant = SLICE_LIT("default"),
        .key = begin_call("k").request.key,
        .call = {.arena = &world.arena}};
    assert_int_equal(query_do(world.engines[0], &query), OK);
    assert_int_equal(query.record->version, 2);
    struct query entries = {.kind = QUERY_ENTRIES,
        .tenant = SLICE_LIT("default"),
        .limit = 100,
        .call = {.arena = &world.arena}};
    assert_int_equal(query_do(world.engines[0], &entries), OK);
    assert_int_equal(entries.count, 2); /* the grant, and that its lease is over (P10) */
}

/* ---- the store ----------------------------------------------------------------------------- */

static void wait_away(bool away)
{
    for (int i = 0; i < TRIES && engine_store_away(world.engines[0], NULL) != away; i++) {
        (void)usleep(1000);
        world.now_ms += 20;
    }
    assert_int_equal(engine_store_away(world.engines[0], NULL), away);
}

static void a_store_that_is_away_grants_nothing_and_is_found_again(void **state)
{
    (void)state;
    struct engine_call call = begin_call("k");
    struct err err = {0};
    assert_false(engine_store_away(world.engines[0], NULL));
    world.away = true;
    assert_int_equal(engine_do(world.engines[0], &call), E_UNAVAILABLE);
    assert_string_equal(call.err.text, "nobody answers");
    wait_away(true);
    assert_true(engine_store_away(world.engines[0], &err));
    assert_string_equal(err.text, "nobody answers");
    world.away = false;
    wait_away(false); /* though nobody calls */
    assert_false(engine_failure(world.engines[0], NULL));
    assert_int_equal(do_begin(0, "k", &call), DECISION_FIRST_SEEN);
    world.away = true;
    wait_away(true); /* though nobody calls */
    world.away = false;
    wait_away(false);
}

/* Only its own calls are not told: the next ones are refused, and then everything goes on. */
static void a_commit_of_unknown_fate_ends_nobody(void **state)
{
    (void)state;
    for (int untold = 1; untold <= 2; untold++) {
        const char *key = untold == 1 ? "happened" : "did not";
        struct engine_call call = begin_call(key);
        world.untold = untold;
        assert_int_equal(engine_do(world.engines[0], &call), E_UNKNOWN);
        assert_true(engine_store_away(world.engines[0], NULL));
        call = begin_call(key);
        assert_int_equal(engine_do(world.engines[0], &call), E_UNAVAILABLE);
        world.away = false;
        wait_away(false); /* though nobody calls */
        assert_false(engine_failure(world.engines[0], NULL));
        assert_int_equal(
            do_begin(0, key, &call), untold == 1 ? DECISION_IN_PROGRESS : DECISION_FIRST_SEEN);
        assert_int_equal(do_begin(0, key, &call), DECISION_IN_PROGRESS);
    }
}

static void a_store_that_will_never_know_stops_the_engine(void **state)
{
    (void)state;
    struct engine_call call = begin_call("k");
    world.untold = 1;
    assert_int_equal(engine_do(world.engines[0], &call), E_UNKNOWN);
    world.lost = true;
    call = begin_call("other");
    assert_int_equal(engine_do(world.engines[0], &call), E_UNKNOWN);
    assert_true(engine_failure(world.engines[0], NULL)); /* EN5 */
}

/* A fence of a different process is not from a lost future (quarantine.h), though its operation is
 * forgotten by now. */
static void the_fence_of_a_different_process_quarantines_nobody(void **state)
{
    (void)state;
    struct engine_call first = begin_call("k");
    struct engine_stats stats;
    start(1, true);
    first.request.policy.window_ms = 1000;
    assert_int_equal(engine_do(world.engines[1], &first), OK);
    assert_int_equal(do_seal(1, &first), DECISION_SEALED);
    pass(5000, NULL, 0);
    assert_int_equal(do_seal(0, &first), DECISION_NOT_FOUND);
    engine_stats(world.engines[0], &stats);
    assert_int_equal(stats.quarantined, 0);
    struct engine_call next;
    assert_int_equal(do_begin(0, "another", &next), DECISION_FIRST_SEEN);
    assert_true(next.decision.next.fence > first.decision.next.fence);
}

static void every_process_is_an_incarnation_of_its_own(void **state)
{
    (void)state;
    start(1, true);
    uint64_t one = engine_incarnation(world.engines[0]);
    uint64_t two = engine_incarnation(world.engines[1]);
    assert_true(one > 0 && two > one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            who_waits_hears_of_a_seal_by_a_different_process, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            who_waits_asks_again_when_the_notice_is_lost, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            what_a_dead_process_held_becomes_unknown_and_what_a_living_one_holds_does_not, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(
            after_an_outage_others_have_time_to_come_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(two_janitors_settle_a_lease_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            a_store_that_is_away_grants_nothing_and_is_found_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            deliveries_of_two_processes_stand_in_one_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            a_call_learns_what_became_of_a_commit_under_way, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_calls_alone_waits_for_nobody, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_waits_no_batch_waits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            where_commits_cost_little_no_batch_waits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_commit_of_unknown_fate_ends_nobody, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            a_store_that_will_never_know_stops_the_engine, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            the_fence_of_a_different_process_quarantines_nobody, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            every_process_is_an_incarnation_of_its_own, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
