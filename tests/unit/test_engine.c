/*
 * The engine over the reference store: what callers see of a batch, of waiting, of leases that run
 * out, of a store that fails, and of a holder from a future that was lost.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "check_c.h"
#include "engine/query.h"
#include "store/fault.h"
#include "store/mem.h"

/* A clock that tests move. */
struct fake_clock {
    _Atomic int64_t wall_ms;
    _Atomic int64_t boot_ms;
};

static struct clock_reading fake_read(void *context)
{
    struct fake_clock *fake = context;
    return (struct clock_reading){fake->wall_ms, fake->boot_ms};
}

struct fixture {
    struct fake_clock fake;
    struct clock clock;
    struct store *store;
    struct engine *engine;
    struct arena arena;
};

static void fixture_advance(struct fixture *fixture, int64_t ms)
{
    fixture->fake.wall_ms += ms;
    fixture->fake.boot_ms += ms;
}

static void fixture_start(struct fixture *fixture, struct store *store)
{
    struct err err = {0};
    struct engine_options options = {.clock = &fixture->clock};
    fixture->store = store;
    assert_int_equal(engine_new(store, &options, &fixture->engine, &err), OK);
}

static int set_up(void **state)
{
    static struct fixture fixture;
    struct store *store;
    struct err err = {0};
    memset(&fixture, 0, sizeof fixture);
    fixture.fake.wall_ms = 1794770607000;
    fixture.fake.boot_ms = 5000;
    fixture.clock = (struct clock){.read = fake_read, .boot_id = 7, .context = &fixture.fake};
    arena_init(&fixture.arena, &mem_libc, 64 << 20);
    const struct store_options options = {.clock = &fixture.clock};
    assert_int_equal(store_mem_new(&options, NULL, &store, &err), OK);
    fixture_start(&fixture, store);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    (void)engine_free(fixture->engine, NULL);
    arena_release(&fixture->arena);
    return 0;
}

static struct engine_call begin_call(struct fixture *fixture, const char *key, const char *payload)
{
    struct engine_call call = {.arena = &fixture->arena};
    struct digest plain;
    call.request.kind = REQUEST_BEGIN;
    call.request.key.tenant = SLICE_LIT("default");
    call.request.key.key = slice_str(key);
    assert_int_equal(record_key_seal(&call.request.key, NULL), OK);
    call.request.policy = policy_default;
    digest_sha256(payload, strlen(payload), &plain);
    engine_fingerprint(fixture->engine, &plain, &call.request.fingerprint);
    call.request_body = slice_str(payload);
    call.request.request =
        (struct body_ref){.digest = plain, .bytes = strlen(payload), .retained = true};
    return call;
}

static enum decision_kind do_begin(
    struct fixture *fixture, const char *key, const char *payload, struct engine_call *ret_call)
{
    *ret_call = begin_call(fixture, key, payload);
    assert_int_equal(engine_do(fixture->engine, ret_call), OK);
    return ret_call->decision.kind;
}

static struct engine_call holder_call(
    struct fixture *fixture, enum request_kind kind, const struct engine_call *begun)
{
    struct engine_call call = {.arena = &fixture->arena};
    call.request.kind = kind;
    call.request.key.tenant = SLICE_LIT("default");
    call.request.operation_id = begun->decision.next.operation_id;
    call.request.fence = begun->decision.next.fence;
    return call;
}

static enum decision_kind do_seal(
    struct fixture *fixture, const struct engine_call *begun, const char *outcome)
{
    struct engine_call call = holder_call(fixture, REQUEST_SEAL, begun);
    call.request.status = RECORD_EXECUTED;
    call.outcome_body = slice_str(outcome);
    call.request.outcome.body.bytes = strlen(outcome);
    call.request.outcome.body.retained = true;
    digest_sha256(outcome, strlen(outcome), &call.request.outcome.body.digest);
    assert_int_equal(engine_do(fixture->engine, &call), OK);
    return call.decision.kind;
}

static void the_first_is_granted_and_every_duplicate_gets_its_outcome(void **state)
{
    struct fixture *fixture = *state;
    struct engine_call first, again;
    assert_int_equal(do_begin(fixture, "k", "{}", &first), DECISION_FIRST_SEEN);
    assert_int_equal(do_begin(fixture, "k", "{}", &again), DECISION_IN_PROGRESS);
    assert_int_equal(do_seal(fixture, &first, "charged"), DECISION_SEALED);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(do_begin(fixture, "k", "{}", &again), DECISION_DUPLICATE_REPLAYED);
        assert_true(slice_is(again.outcome, "charged"));
        assert_true(
            op_id_equal(&again.decision.next.operation_id, &first.decision.next.operation_id));
    }
    assert_int_equal(do_seal(fixture, &first, "charged"), DECISION_SEALED);
    assert_int_equal(do_seal(fixture, &first, "refunded"), DECISION_ALREADY_SEALED);
}

static void another_payload_is_refused_and_shown_the_first_but_not_the_outcome(void **state)
{
    struct fixture *fixture = *state;
    struct engine_call first, other;
    assert_int_equal(do_begin(fixture, "k", "{\"a\":1}", &first), DECISION_FIRST_SEEN);
    assert_int_equal(do_seal(fixture, &first, "secret"), DECISION_SEALED);
    assert_int_equal(do_begin(fixture, "k", "{\"a\":2}", &other), DECISION_CONFLICT_REJECTED);
    assert_true(slice_is(other.first_body, "{\"a\":1}"));
    assert_int_equal(other.outcome.len, 0);
}

static void another_tenant_finds_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct engine_call first;
    assert_int_equal(do_begin(fixture, "k", "{}", &first), DECISION_FIRST_SEEN);
    struct engine_call call = holder_call(fixture, REQUEST_RELEASE, &first);
    call.request.key.tenant = SLICE_LIT("other");
    assert_int_equal(engine_do(fixture->engine, &call), OK);
    assert_int_equal(call.decision.kind, DECISION_NOT_FOUND);
}

struct waiting {
    struct fixture *fixture;
    struct arena arena;
    pthread_t thread;
    struct engine_call call;
    enum status status;
};

static void *wait_main(void *context)
{
    struct waiting *waiting = context;
    waiting->status = engine_do(waiting->fixture->engine, &waiting->call);
    return NULL;
}

static void await_parked(struct fixture *fixture, uint64_t count)
{
    struct engine_stats stats = {0};
    for (int i = 0; i < 60000 && stats.parked != count; i++) {
        engine_stats(fixture->engine, &stats);
        usleep(1000);
    }
    assert_int_equal(stats.parked, count);
}

/* Begin the key and a duplicate of it that waits so long in a thread of its own. */
static void start_waiting(struct fixture *fixture, struct waiting *waiting, int64_t wait_ms,
    struct engine_call *ret_first)
{
    assert_int_equal(do_begin(fixture, "k", "{}", ret_first), DECISION_FIRST_SEEN);
    waiting->fixture = fixture;
    waiting->call = begin_call(fixture, "k", "{}");
    arena_init(&waiting->arena, &mem_libc, 1 << 20);
    waiting->call.wait_ms = wait_ms;
    waiting->call.arena = &waiting->arena;
    assert_int_equal(pthread_create(&waiting->thread, NULL, wait_main, waiting), 0);
    await_parked(fixture, 1);
}

static void a_waiting_duplicate_gets_the_replay_the_moment_it_exists(void **state)
{
    struct fixture *fixture = *state;
    struct engine_call first;
    struct waiting waiting;
    start_waiting(fixture, &waiting, 60000, &first);
    assert_int_equal(do_seal(fixture, &first, "done"), DECISION_SEALED);
    assert_int_equal(pthread_join(waiting.thread, NULL), 0);
    assert_int_equal(waiting.status, OK);
    assert_int_equal(waiting.call.decision.kind, DECISION_DUPLICATE_REPLAYED);
    assert_true(slice_is(waiting.call.outcome, "done"));
    arena_release(&waiting.arena);
}

static void a_wait_ends_when_its_time_is_over(void **state)
{
    struct fixture *fixture = *state;
    struct engine_call first;
    struct waiting waiting;
    start_waiting(fixture, &waiting, 1000, &first);
    fixture_advance(fixture, 1000);
    assert_int_equal(pthread_join(waiting.thread, NULL), 0);
    assert_int_equal(waiting.call.decision.kind, DECISION_IN_PROGRESS);
    arena_release(&waiting.arena);
}

static void a_lease_that_ran_out_becomes_unknown_by_itself(void **state)
{
    struct fixture *fixture = *state;
    struct engine_call first, again;
    struct engine_stats stats = {0};
    assert_int_equal(do_begin(fixture, "k", "{}", &first), DECISION_FIRST_SEEN);
    fixture_advance(fixture, LIMIT_LEASE_MS_DEFAULT);
    for (int i = 0; i < 60000 && stats.counts.by_status[RECORD_UNKNOWN] == 0; i++) {
        engine_stats(fixture->engine, &stats);
        usleep(1000);
    }
    assert_int_equal(stats.counts.by_status[RECORD_UNKNOWN], 1);
    assert_int_equal(do_begin(fixture, "k", "{}", &again), DECISION_HELD_UNKNOWN);
    /* Nobody took over: the holder may still say what it became. */
    assert_int_equal(do_seal(fixture, &first, "late"), DECISION_SEALED);
}

static void a_jump_of_the_wall_clock_ends_no_lease(void **state)
{
    struct fixture *fixture = *state;
    struct engine_call first, again;
    struct engine_stats stats = {0};
    assert_int_equal(do_begin(fixture, "k", "{}", &first), DECISION_FIRST_SEEN);
    fixture->fake.wall_ms += 365 * INT64_C(86400000);
    assert_int_equal(do_begin(fixture, "k", "{}", &again), DECISION_IN_PROGRESS);
    engine_stats(fixture->engine, &stats);
    assert_true(stats.clock_held);
}

static void a_holder_from_a_lost_future_stops_the_grants_of_its_tenant(void **state)
{
    struct fixture *fixture = *state;
    struct engine_call first, again;
    assert_int_equal(do_begin(fixture, "k", "{}", &first), DECISION_FIRST_SEEN);

    /* A wrong fence alone is only stale. */
    struct engine_call wrong = holder_call(fixture, REQUEST_RELEASE, &first);
    wrong.request.fence += 1000;
    assert_int_equal(engine_do(fixture->engine, &wrong), OK);
    assert_int_equal(wrong.decision.kind, DECISION_STALE_FENCE);

    /* One that nobody can have been given in this world is made up: it uses no fences up. */
    struct engine_call forged = holder_call(fixture, REQUEST_RELEASE, &first);
    forged.request.fence = UINT64_MAX - 1;
    forged.request.operation_id =
        op_id_make(fixture->fake.wall_ms + 5, &first.request.fingerprint, forged.request.fence);
    assert_int_equal(engine_do(fixture->engine, &forged), OK);
    assert_int_equal(forged.decision.kind, DECISION_NOT_FOUND);

    struct engine_call lost = holder_call(fixture, REQUEST_RELEASE, &first);
    lost.request.fence = 500000;
    lost.request.operation_id =
        op_id_make(fixture->fake.wall_ms + 5, &first.request.fingerprint, 500000);
    assert_int_equal(engine_do(fixture->engine, &lost), E_UNAVAILABLE);
    assert_non_null(strstr(lost.err.text, "quarantined"));
    again = begin_call(fixture, "other", "{}");
    assert_int_equal(engine_do(fixture->engine, &again), E_UNAVAILABLE);

    /* Another tenant is not held (P9), and is never given a fence that was lost (P4). */
    again = begin_call(fixture, "other", "{}");
    again.request.key.tenant = SLICE_LIT("other");
    assert_int_equal(record_key_seal(&again.request.key, NULL), OK);
    assert_int_equal(engine_do(fixture->engine, &again), OK);
    assert_int_equal(again.decision.kind, DECISION_FIRST_SEEN);
    assert_true(again.decision.next.fence > 500000);
    assert_int_equal(do_seal(fixture, &first, "x"), DECISION_SEALED);
}

static void every_answer_has_one_entry(void **state)
{
    struct fixture *fixture = *state;
    struct engine_call first, again;
    uint64_t seq = 0;
    (void)do_begin(fixture, "k", "{}", &first);
    (void)do_begin(fixture, "k", "{}", &again);
    (void)do_begin(fixture, "k", "[]", &again);
    (void)do_seal(fixture, &first, "x");
    struct query all = {.kind = QUERY_ENTRIES,
        .tenant = first.request.key.tenant,
        .limit = 10,
        .call = {.arena = &fixture->arena}};
    assert_int_equal(query_do(fixture->engine, &all), OK);
    for (; seq < all.count; seq++) {
        assert_int_equal(all.entries[seq].entry.seq, seq + 1);
    }
    assert_int_equal(seq, 4);
}

struct racer {
    struct fixture *fixture;
    struct arena arena;
    unsigned first;
    unsigned other;
};

enum { RACERS = 16, RACES = 50 };

static void *race_main(void *context)
{
    struct racer *racer = context;
    for (int i = 0; i < RACES; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "key-%d", i);
        struct engine_call call = begin_call(racer->fixture, key, "{}");
        call.arena = &racer->arena;
        assert_int_equal(engine_do(racer->fixture->engine, &call), OK);
        racer->first += call.decision.kind == DECISION_FIRST_SEEN;
        racer->other += call.decision.kind == DECISION_IN_PROGRESS;
    }
    return NULL;
}

static void of_many_threads_on_one_key_exactly_one_is_granted(void **state)
{
    struct fixture *fixture = *state;
    static struct racer racers[RACERS];
    pthread_t threads[RACERS];
    unsigned first = 0;
    unsigned other = 0;
    for (size_t i = 0; i < RACERS; i++) {
        racers[i] = (struct racer){.fixture = fixture};
        arena_init(&racers[i].arena, &mem_libc, 1 << 20);
        assert_int_equal(pthread_create(&threads[i], NULL, race_main, &racers[i]), 0);
    }
    for (size_t i = 0; i < RACERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        first += racers[i].first;
        other += racers[i].other;
        arena_release(&racers[i].arena);
    }
    assert_int_equal(first, RACES);
    assert_int_equal(other, RACES * (RACERS - 1));
}

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
    size_t done;
};

/* Keeps the engine thread, which answers, until the gate is opened. */
static void wait_and_count(struct engine_call *call)
{
    struct gate *gate = call->context;
    (void)pthread_mutex_lock(&gate->lock);
    while (!gate->open) {
        (void)pthread_cond_wait(&gate->changed, &gate->lock);
    }
    gate->done++;
    (void)pthread_cond_broadcast(&gate->changed);
    (void)pthread_mutex_unlock(&gate->lock);
}

static void gated_call(struct fixture *fixture, struct gate *gate, struct query *ret_query)
{
    ret_query->kind = QUERY_NOTHING;
    ret_query->call.query = ret_query;
    ret_query->call.arena = &fixture->arena;
    ret_query->call.context = gate;
    ret_query->call.done = wait_and_count;
}

/* EN6: past its bound the queue refuses, and what it took before is answered all the same. */
static void a_full_queue_refuses_by_name_and_answers_what_it_took(void **state)
{
    struct fixture *fixture = *state;
    struct gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0};
    size_t most = LIMIT_QUEUE_REQUESTS_MAX + 6 * LIMIT_BATCH_REQUESTS_MAX;
    struct query *calls = test_calloc(most, sizeof *calls);
    struct err err = {0};
    size_t taken = 0;
    enum status status = OK;
    while (status == OK && taken < most) {
        gated_call(fixture, &gate, &calls[taken]);
        status = engine_submit(fixture->engine, &calls[taken].call, &err);
        taken += status == OK;
    }
    (void)pthread_mutex_lock(&gate.lock);
    gate.open = true;
    (void)pthread_cond_broadcast(&gate.changed);
    while (gate.done < taken) {
        (void)pthread_cond_wait(&gate.changed, &gate.lock);
    }
    (void)pthread_mutex_unlock(&gate.lock);
    test_free(calls);
    /* Only now, because an engine that waits at the gate cannot be torn down. */
    assert_int_equal(status, E_LIMIT);
    assert_non_null(strstr(err.text, "queue_requests_max"));
    assert_true(taken >= LIMIT_QUEUE_REQUESTS_MAX);
    struct engine_call after;
    assert_int_equal(do_begin(fixture, "k", "{}", &after), DECISION_FIRST_SEEN);
}

/* Several at a time: as many as there is room for, and one that is wrong stops only itself. */
static void of_several_at_once_each_is_taken_or_refused_for_itself(void **state)
{
    struct fixture *fixture = *state;
    struct gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0};
    size_t most = LIMIT_QUEUE_REQUESTS_MAX + 6 * LIMIT_BATCH_REQUESTS_MAX;
    struct query *calls = test_calloc(most, sizeof *calls);
    struct engine_call **list = test_calloc(most, sizeof *list);
    for (size_t i = 0; i < most; i++) {
        gated_call(fixture, &gate, &calls[i]);
        list[i] = &calls[i].call;
    }
    calls[2].call.query = NULL; /* a request without a key */
    struct err wrong = {0};
    size_t before = 99;
    enum status invalid = engine_submit_lead(fixture->engine, list, 5, &before, &wrong);
    struct err full = {0};
    size_t taken = 0;
    enum status limit = engine_submit_lead(fixture->engine, list + 3, most - 3, &taken, &full);
    (void)pthread_mutex_lock(&gate.lock);
    gate.open = true;
    (void)pthread_cond_broadcast(&gate.changed);
    while (gate.done < before + taken) {
        (void)pthread_cond_wait(&gate.changed, &gate.lock);
    }
    (void)pthread_mutex_unlock(&gate.lock);
    test_free(list);
    test_free(calls);
    assert_int_equal(invalid, E_INVALID);
    assert_int_equal(before, 2);
    assert_int_equal(limit, E_LIMIT);
    assert_non_null(strstr(full.text, "queue_requests_max"));
    assert_in_range(taken, LIMIT_QUEUE_REQUESTS_MAX - 2, most - 4);
    assert_int_equal(gate.done, before + taken);
}

static enum status fail_flush(struct store *store, struct err *err)
{
    (void)store;
    return err_set(err, E_UNKNOWN, "the disk is gone");
}

/* EN5, and the server can see it. */
static void an_engine_that_stopped_for_good_says_so(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    struct engine_call call;
    (void)do_begin(fixture, "k", "{}", &call);
    assert_false(engine_failure(fixture->engine, &err));
    struct store_ops ops = *fixture->store->ops;
    ops.flush = fail_flush;
    (void)engine_free(fixture->engine, NULL);
    struct store *store;
    const struct store_options options = {.clock = &fixture->clock};
    assert_int_equal(store_mem_new(&options, NULL, &store, &err), OK);
    store->ops = &ops;
    fixture_start(fixture, store);
    call = begin_call(fixture, "l", "{}");
    assert_int_equal(engine_do(fixture->engine, &call), E_UNKNOWN);
    assert_true(engine_failure(fixture->engine, &err));
    assert_int_equal(err.status, E_UNKNOWN);
    assert_string_equal(err.text, "the disk is gone");
    (void)engine_free(fixture->engine, NULL);
    fixture->engine = NULL;
}

static void requests_beyond_the_limits_are_refused_by_name(void **state)
{
    struct fixture *fixture = *state;
    struct engine_call call = begin_call(fixture, "k", "{}");
    call.request.policy.lease_ms = 1;
    assert_int_equal(engine_do(fixture->engine, &call), E_INVALID);
    assert_non_null(strstr(call.err.text, "lease"));
    call = begin_call(fixture, "k", "{}");
    call.request.actor = SLICE_LIT("\xff");
    assert_int_equal(engine_do(fixture->engine, &call), E_INVALID);
    assert_string_equal(call.err.text, "actor is not valid UTF-8: 0xff at byte 0");
    call = begin_call(fixture, "k\n", "{}");
    assert_int_equal(engine_do(fixture->engine, &call), E_INVALID);
    assert_string_equal(call.err.text, "key has the control character U+000A at byte 1");
}

static enum status do_kind(struct store *store, enum query_kind kind)
{
    struct arena arena;
    arena_init(&arena, &mem_libc, 1 << 16);
    struct query query = {.kind = kind, .call = {.arena = &arena}};
    enum status status = query_run(store, &query);
    arena_release(&arena);
    return status;
}

/* As one of a server that is down. Asked without the engine, whose own duties read too. */
static void a_store_out_of_reach_is_not_ready(void **state)
{
    (void)state;
    struct store *memory;
    struct store *store;
    assert_int_equal(store_mem_new(&(struct store_options){0}, NULL, &memory, NULL), OK);
    assert_int_equal(fault_new(memory, NULL, &store, NULL), OK);
    assert_int_equal(do_kind(store, QUERY_READY), OK);
    fault_arm(store, STORE_CALL_READ, 1, E_UNAVAILABLE, FAULT_BEFORE);
    assert_int_equal(do_kind(store, QUERY_NOTHING), OK); /* no reason to end the process */
    assert_int_equal(do_kind(store, QUERY_READY), E_UNAVAILABLE);
    assert_int_equal(do_kind(store, QUERY_READY), OK);
    assert_int_equal(store->ops->close(store, NULL), OK);
}

/* On the engine's thread, in a commit: it ends when the figures show how long it takes. */
static void until_shown(void *context)
{
    struct fixture *fixture = context;
    struct engine_stats stats = {0};
    while (fixture->engine != NULL && stats.turn_ms < 2) {
        (void)usleep(1000);
        engine_stats(fixture->engine, &stats);
    }
}

static void a_batch_that_does_not_end_is_seen(void **state)
{
    struct fixture fixture = {0};
    struct engine_call call;
    struct engine_stats stats = {.turn_ms = 1};
    struct store *memory;
    struct store *store;
    (void)state;
    arena_init(&fixture.arena, &mem_libc, 64 << 20);
    assert_int_equal(store_mem_new(&(struct store_options){0}, NULL, &memory, NULL), OK);
    assert_int_equal(fault_new(memory, NULL, &store, NULL), OK);
    assert_int_equal(engine_new(store, &(struct engine_options){0}, &fixture.engine, NULL), OK);
    assert_int_equal(do_begin(&fixture, "k", "{}", &call), DECISION_FIRST_SEEN);
    while (stats.checkpoint_ms == 0) { /* the last commit that the engine makes by itself */
        engine_stats(fixture.engine, &stats);
    }
    fault_hook(store, STORE_CALL_COMMIT, until_shown, &fixture);
    assert_int_equal(do_begin(&fixture, "l", "{}", &call), DECISION_FIRST_SEEN);
    fault_hook(store, STORE_CALL_COMMIT, NULL, NULL);
    while (stats.turn_ms > 0) {
        engine_stats(fixture.engine, &stats);
    }
    assert_int_equal(engine_free(fixture.engine, NULL), OK);
    arena_release(&fixture.arena);
}

int main(void)
{
#define ENGINE_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        ENGINE_TEST(the_first_is_granted_and_every_duplicate_gets_its_outcome),
        ENGINE_TEST(another_payload_is_refused_and_shown_the_first_but_not_the_outcome),
        ENGINE_TEST(another_tenant_finds_nothing),
        ENGINE_TEST(a_waiting_duplicate_gets_the_replay_the_moment_it_exists),
        ENGINE_TEST(a_wait_ends_when_its_time_is_over),
        ENGINE_TEST(a_lease_that_ran_out_becomes_unknown_by_itself),
        ENGINE_TEST(a_jump_of_the_wall_clock_ends_no_lease),
        ENGINE_TEST(a_holder_from_a_lost_future_stops_the_grants_of_its_tenant),
        ENGINE_TEST(every_answer_has_one_entry),
        ENGINE_TEST(of_many_threads_on_one_key_exactly_one_is_granted),
        ENGINE_TEST(a_full_queue_refuses_by_name_and_answers_what_it_took),
        ENGINE_TEST(of_several_at_once_each_is_taken_or_refused_for_itself),
        ENGINE_TEST(an_engine_that_stopped_for_good_says_so),
        ENGINE_TEST(requests_beyond_the_limits_are_refused_by_name),
        TEST(a_store_out_of_reach_is_not_ready),
        TEST(a_batch_that_does_not_end_is_seen),
    };
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
