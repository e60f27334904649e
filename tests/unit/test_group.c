/*
 * Groups: several requests of one caller that are accepted together and go into one commit.
 */
#include "base/limits.h"
#include "engine_kit.h"

enum { GROUP = LIMIT_GROUP_REQUESTS_MAX, OUTCOME_BYTES = 10 << 10 };

static struct engine_call calls[GROUP];
static struct engine_call seals[GROUP];
static struct engine_call *pointers[GROUP];
static char keys[GROUP][16];

static void fill_begins(struct kit_gate *gate)
{
    for (size_t i = 0; i < GROUP; i++) {
        (void)snprintf(keys[i], sizeof keys[i], "key-%zu", i);
        calls[i] = kit_begin("default", "", keys[i]);
        calls[i].context = gate;
        calls[i].done = kit_gate_done;
        pointers[i] = &calls[i];
    }
}

static void submit_and_wait(struct kit_gate *gate)
{
    struct err err = {0};
    size_t before = gate->done;
    assert_int_equal(engine_submit_all(kit.engine, pointers, GROUP, &err), OK);
    kit_gate_pass(gate, before + GROUP);
}

static void a_thousand_requests_with_their_bodies_are_one_commit(void **state)
{
    (void)state;
    static char outcome[OUTCOME_BYTES];
    struct kit_gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0};
    fill_begins(&gate);
    submit_and_wait(&gate);
    assert_int_equal(kit.changes_most, GROUP);
    kit.changes_most = 0;
    memset(outcome, 'x', sizeof outcome);
    for (size_t i = 0; i < GROUP; i++) {
        assert_int_equal(calls[i].decision.kind, DECISION_FIRST_SEEN);
        seals[i] = kit_seal(&calls[i], slice_of(outcome, sizeof outcome));
        seals[i].context = &gate;
        seals[i].done = kit_gate_done;
        pointers[i] = &seals[i];
    }
    submit_and_wait(&gate);
    assert_int_equal(kit.changes_most, GROUP); /* 10 MiB, more than one batch may otherwise have */
    for (size_t i = 0; i < GROUP; i++) {
        assert_int_equal(seals[i].decision.kind, DECISION_SEALED);
    }
    struct verify_result result;
    kit_verify(&result);
    assert_int_equal(result.redecided, 2 * GROUP);
    struct engine_call again = kit_begin("default", "", keys[GROUP - 1]);
    assert_int_equal(kit_do(&again), DECISION_DUPLICATE_REPLAYED);
    assert_int_equal(again.outcome.len, OUTCOME_BYTES);
}

/* Behind a hundred others a group of a thousand does not fit into what is left of the batch. */
static void a_group_is_never_taken_apart(void **state)
{
    (void)state;
    enum { OTHERS = 100 };
    static struct engine_call others[OTHERS];
    struct kit_gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0};
    struct query plug = {.kind = QUERY_NOTHING,
        .call = {.arena = &kit.arena, .context = &gate, .done = kit_gate_hold}};
    struct err err = {0};
    char names[OTHERS][16];
    fill_begins(&gate);
    assert_int_equal(query_submit(kit.engine, &plug, &err), OK);
    for (size_t i = 0; i < OTHERS; i++) {
        (void)snprintf(names[i], sizeof names[i], "other-%zu", i);
        others[i] = kit_begin("default", "", names[i]);
        others[i].context = &gate;
        others[i].done = kit_gate_done;
        assert_int_equal(engine_submit(kit.engine, &others[i], &err), OK);
    }
    assert_int_equal(engine_submit_all(kit.engine, pointers, GROUP, &err), OK);
    kit_gate_pass(&gate, 1 + OTHERS + GROUP);
    /* The others first, whatever room was left behind them; then the thousand, in their order. */
    assert_int_equal(kit.changes_most, GROUP);
    for (size_t i = 1; i < GROUP; i++) {
        assert_int_equal(calls[i].decision.kind, DECISION_FIRST_SEEN);
        assert_int_equal(calls[i].decision.next.fence, calls[i - 1].decision.next.fence + 1);
    }
}

static void requests_of_a_group_see_those_before_them(void **state)
{
    (void)state;
    struct kit_gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0};
    struct engine_call first = kit_begin("default", "", "k");
    struct engine_call again = kit_begin("default", "", "k");
    struct engine_call *const group[] = {&first, &again};
    struct err err = {0};
    first.context = again.context = &gate;
    first.done = again.done = kit_gate_done;
    assert_int_equal(engine_submit_all(kit.engine, group, 2, &err), OK);
    kit_gate_pass(&gate, 2);
    assert_int_equal(first.decision.kind, DECISION_FIRST_SEEN);
    assert_int_equal(again.decision.kind, DECISION_IN_PROGRESS);
    assert_int_equal(kit.commits, 1);
}

/* A thread that leads submits groups and single calls at once: each group is one commit, and one
 * that cannot be accepted leaves those before it. */
static void groups_among_other_calls_are_taken_whole_or_not_at_all(void **state)
{
    (void)state;
    struct kit_gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0};
    struct engine_call alone = kit_begin("default", "", "alone");
    struct engine_call first = kit_begin("default", "", "k");
    struct engine_call again = kit_begin("default", "", "k");
    struct engine_call good = kit_begin("default", "", "good");
    struct engine_call waits = kit_begin("default", "", "waits");
    struct engine_call *const list[] = {&alone, &first, &again, &good, &waits};
    struct err err = {0};
    size_t taken = 0;
    first.group_left = good.group_left = 1;
    again.needs_previous = true; /* a begin that is not granted: refused, and first with it */
    waits.wait_ms = 1000;        /* which no group can */
    for (size_t i = 0; i < 5; i++) {
        list[i]->context = &gate;
        list[i]->done = kit_gate_done;
    }
    assert_int_equal(engine_submit_lead(kit.engine, list, 5, &taken, &err), E_INVALID);
    assert_int_equal(taken, 3);
    assert_non_null(strstr(err.text, "request 1 of the group: wait is not possible"));
    kit_gate_pass(&gate, 3);
    assert_int_equal(alone.decision.kind, DECISION_FIRST_SEEN);
    assert_int_equal(first.err.status, E_UNAVAILABLE);
    assert_true(again.refused);
    struct engine_call later = kit_begin("default", "", "k");
    assert_int_equal(kit_do(&later), DECISION_FIRST_SEEN);
    struct engine_call next = kit_begin("default", "", "good");
    assert_int_equal(kit_do(&next), DECISION_FIRST_SEEN); /* nothing of its group was there */
}

static struct body_ref body_of(const char *text)
{
    struct body_ref body = {.bytes = strlen(text), .retained = true};
    digest_sha256(text, strlen(text), &body.digest);
    return body;
}

static struct engine_call enqueue_effect(const char *key, const char *text)
{
    struct engine_call call = kit_begin("default", "", key);
    call.request.kind = REQUEST_ENQUEUE;
    call.request.record_kind = RECORD_EFFECT;
    assert_int_equal(record_key_seal_as(&call.request.key, RECORD_EFFECT, NULL), OK);
    call.request.policy.retry_failed = true;
    call.request.request = body_of(text);
    call.request_body = slice_str(text);
    return call;
}

static struct engine_call claim_of(const struct engine_call *enqueued)
{
    struct engine_call call = {.arena = &kit.arena};
    call.request.kind = REQUEST_CLAIM;
    call.request.operation_id = enqueued->decision.next.operation_id;
    call.request.policy.lease_ms = policy_default.lease_ms;
    return call;
}

/* The claim changes the record before the store has what the enqueue brought: it writes the body
 * again, or the record would name bytes that are nowhere. An empty one is not the one before. */
static void a_claim_in_the_commit_of_its_enqueue_keeps_the_body(void **state)
{
    (void)state;
    static const char *const texts[] = {"send this", "send that instead", ""};
    struct err err = {0};
    struct engine_call first = enqueue_effect("charge", texts[0]);
    assert_int_equal(kit_do(&first), DECISION_ENQUEUED);
    struct engine_call claim = claim_of(&first);
    assert_int_equal(kit_do(&claim), DECISION_CLAIMED);
    for (size_t i = 1; i < sizeof texts / sizeof *texts; i++) {
        struct kit_gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0};
        struct engine_call failed = kit_seal(&claim, SLICE_LIT("no"));
        failed.request.status = RECORD_FAILED;
        assert_int_equal(kit_do(&failed), DECISION_SEALED);
        struct engine_call again = enqueue_effect("charge", texts[i]);
        again.request.fingerprint = first.request.fingerprint;
        claim = claim_of(&first);
        struct engine_call *const group[] = {&again, &claim};
        again.context = claim.context = &gate;
        again.done = claim.done = kit_gate_done;
        assert_int_equal(engine_submit_all(kit.engine, group, 2, &err), OK);
        kit_gate_pass(&gate, 2);
        assert_string_equal(claim.err.text, "");
        assert_int_equal(again.decision.kind, DECISION_ENQUEUED);
        assert_int_equal(claim.decision.kind, DECISION_CLAIMED);
        assert_true(slice_is(claim.first_body, texts[i]));

        struct verify_result result;
        kit_verify(&result); /* opens it again */
        struct engine_call other = enqueue_effect("charge", "something else");
        other.request.fingerprint.bytes[0] ^= 1;
        assert_int_equal(kit_do(&other), DECISION_CONFLICT_REJECTED);
        assert_true(slice_is(other.first_body, texts[i]));
    }
}

static void a_group_with_one_bad_request_is_refused_whole(void **state)
{
    (void)state;
    struct kit_gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0};
    struct engine_call first = kit_begin("default", "", "k");
    struct engine_call waits = kit_begin("default", "", "l");
    struct engine_call *const group[] = {&first, &waits};
    struct err err = {0};
    first.context = waits.context = &gate;
    first.done = waits.done = kit_gate_done;
    waits.wait_ms = 1;
    assert_int_equal(engine_submit_all(kit.engine, group, 2, &err), E_INVALID);
    assert_string_equal(err.text, "request 1 of the group: wait is not possible in a group");
    waits.wait_ms = 0;
    waits.request.policy.lease_ms = 1;
    assert_int_equal(engine_submit_all(kit.engine, group, 2, &err), E_INVALID);
    assert_int_equal(engine_submit_all(kit.engine, group, 0, &err), E_INVALID);
    assert_int_equal(engine_submit_all(kit.engine, group, GROUP + 1, &err), E_INVALID);
    assert_non_null(strstr(err.text, "group_requests_max"));
    assert_int_equal(gate.done, 0);
    assert_int_equal(kit.commits, 0);
}

/* P12, P14: also within one commit, before the store has counted any of it. */
static void past_keys_max_new_keys_are_refused_and_all_others_go_on(void **state)
{
    (void)state;
    struct kit_gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0};
    kit_close();
    kit.options.keys_max = 3;
    kit_open();
    struct engine_call first = kit_begin("default", "", "k0");
    assert_int_equal(kit_do(&first), DECISION_FIRST_SEEN);
    struct engine_call more[4];
    struct engine_call *group[4];
    static const char *const names[] = {"k1", "k2", "k3", "k0"};
    struct err err = {0};
    for (size_t i = 0; i < 4; i++) {
        more[i] = kit_begin("default", "", names[i]);
        more[i].context = &gate;
        more[i].done = kit_gate_done;
        group[i] = &more[i];
    }
    assert_int_equal(engine_submit_all(kit.engine, group, 4, &err), OK);
    kit_gate_pass(&gate, 4);
    assert_int_equal(more[0].decision.kind, DECISION_FIRST_SEEN);
    assert_int_equal(more[1].decision.kind, DECISION_FIRST_SEEN);
    assert_int_equal(more[2].err.status, E_LIMIT);
    assert_string_equal(more[2].err.text, "cannot remember a new key: keys_max (3) is reached");
    assert_int_equal(more[3].err.status, OK);
    assert_int_equal(more[3].decision.kind, DECISION_IN_PROGRESS);
    struct engine_call seal = kit_seal(&first, SLICE_LIT("done"));
    assert_int_equal(kit_do(&seal), DECISION_SEALED);
    assert_int_equal(kit_do(&(struct engine_call){
                         .arena = &kit.arena, .request = kit_begin("default", "", "k0").request}),
        DECISION_DUPLICATE_REPLAYED);
    struct verify_result result;
    kit_verify(&result);
    assert_int_equal(result.entries, 6); /* nothing of what was refused */
    kit.options.keys_max = 0;
}

int main(void)
{
#define GROUP_TEST(name) cmocka_unit_test_setup_teardown(name, kit_set_up, kit_tear_down)
    const struct CMUnitTest tests[] = {
        GROUP_TEST(a_thousand_requests_with_their_bodies_are_one_commit),
        GROUP_TEST(a_group_is_never_taken_apart),
        GROUP_TEST(requests_of_a_group_see_those_before_them),
        GROUP_TEST(groups_among_other_calls_are_taken_whole_or_not_at_all),
        GROUP_TEST(a_claim_in_the_commit_of_its_enqueue_keeps_the_body),
        GROUP_TEST(a_group_with_one_bad_request_is_refused_whole),
        GROUP_TEST(past_keys_max_new_keys_are_refused_and_all_others_go_on),
    };
    return cmocka_run_group_tests_name("group", tests, NULL, NULL);
}
