/*
 * One batch without threads: what its later calls see of its earlier ones (E2).
 */
#include <string.h>

#include "check_c.h"
#include "engine/cycle.h"
#include "store/mem.h"

static struct store *store;
static struct cycle cycle;
static struct arena arena;
static const struct store_moment now = {.time_ms = 1794770607000, .boot_ms = 5000, .boot_id = 7};

static int set_up(void **state)
{
    (void)state;
    arena_init(&arena, &mem_libc, 1 << 20);
    assert_int_equal(store_mem_new(&mem_libc, NULL, &store, NULL), OK);
    return cycle_init(&cycle, store, &mem_libc, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    cycle_release(&cycle);
    arena_release(&arena);
    return store->ops->close(store, NULL);
}

static struct body_ref body_of(const char *text)
{
    struct body_ref body = {.bytes = strlen(text), .retained = true};
    digest_sha256(text, strlen(text), &body.digest);
    return body;
}

static struct engine_call begin_call(const char *payload)
{
    struct engine_call call = {.arena = &arena, .request_body = slice_str(payload)};
    call.request.kind = REQUEST_BEGIN;
    call.request.key.tenant = SLICE_LIT("default");
    call.request.key.key = SLICE_LIT("k");
    assert_int_equal(record_key_seal(&call.request.key, NULL), OK);
    call.request.policy = policy_default;
    call.request.request = body_of(payload);
    call.request.fingerprint = call.request.request.digest;
    return call;
}

static struct engine_call seal_call(const struct engine_call *begun, const char *body)
{
    struct engine_call call = {.arena = &arena, .outcome_body = slice_str(body)};
    call.request.kind = REQUEST_SEAL;
    call.request.operation_id = begun->decision.next.operation_id;
    call.request.fence = begun->decision.next.fence;
    call.request.status = RECORD_EXECUTED;
    call.request.outcome.body = body_of(body);
    return call;
}

static void run(struct engine_call *a, struct engine_call *b)
{
    struct engine_call *calls[] = {a, b};
    struct err err = {0};
    if (cycle_run(&cycle, calls, b == NULL ? 1 : 2, &now, &err) != OK) {
        fail_msg("%s", err.text);
    }
}

static void a_duplicate_is_replayed_in_the_batch_of_the_seal(void **state)
{
    (void)state;
    struct engine_call first = begin_call("pay");
    run(&first, NULL);
    struct engine_call seal = seal_call(&first, "done");
    struct engine_call again = begin_call("pay");
    run(&seal, &again);
    assert_int_equal(seal.decision.kind, DECISION_SEALED);
    assert_int_equal(again.decision.kind, DECISION_DUPLICATE_REPLAYED);
    assert_true(slice_is(again.outcome, "done"));
    assert_ptr_not_equal(again.outcome.data, seal.outcome_body.data); /* it may be gone by then */

    struct engine_call later = begin_call("pay");
    run(&later, NULL);
    assert_true(slice_is(later.outcome, "done"));
}

static void a_conflict_is_explained_in_the_batch_of_the_first(void **state)
{
    (void)state;
    struct engine_call first = begin_call("one");
    struct engine_call other = begin_call("two");
    run(&first, &other);
    assert_int_equal(first.decision.kind, DECISION_FIRST_SEEN);
    assert_int_equal(other.decision.kind, DECISION_CONFLICT_REJECTED);
    assert_true(slice_is(other.first_body, "one"));
}

static void the_same_seal_twice_in_a_batch_is_repeated(void **state)
{
    (void)state;
    struct engine_call first = begin_call("pay");
    run(&first, NULL);
    struct engine_call seal = seal_call(&first, "done");
    struct engine_call again = seal_call(&first, "done");
    run(&seal, &again);
    assert_false(seal.decision.repeated);
    assert_true(again.decision.repeated);
    assert_true(slice_is(again.outcome, "done"));
}

#define IN_CYCLE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_CYCLE(a_duplicate_is_replayed_in_the_batch_of_the_seal),
        IN_CYCLE(a_conflict_is_explained_in_the_batch_of_the_first),
        IN_CYCLE(the_same_seal_twice_in_a_batch_is_repeated),
    };
    return cmocka_run_group_tests_name("cycle", tests, NULL, NULL);
}
