/*
 * The decision: the rows of its table as sentences, for the reader. test_decide_all.c has the rest:
 * every state and every history, against a model.
 */
#include <string.h>

#include "cases.h"
#include "check_c.h"
#include "core/decide.h"
#include "model.h"

static struct decision decide_at(
    const struct record *found, const struct request *request, int64_t now_ms)
{
    return decide(found, request, (struct decide_moment){.now_ms = now_ms, .fence_next = 60});
}

static void a_new_key_is_granted(void **state)
{
    (void)state;
    struct request request = begin_request();
    struct decision said = decide_at(NULL, &request, START_MS);
    assert_string_equal(said.rule, "B1");
    assert_int_equal(said.kind, DECISION_FIRST_SEEN);
    assert_int_equal(said.change, CHANGE_PUT);
    assert_int_equal(said.next.status, RECORD_IN_PROGRESS);
    assert_int_equal(said.next.fence, 60);
    assert_int_equal(said.next.attempt, 1);
    assert_int_equal(said.next.version, 1);
    assert_int_equal(said.next.lease_expires_ms, START_MS + LEASE_MS);
    assert_int_equal(said.next.window_expires_ms, 0);
}

static void a_key_whose_window_is_over_is_a_new_operation(void **state)
{
    (void)state;
    struct record found = shape(RECORD_EXECUTED);
    struct request request = begin_request();
    request.fingerprint = print_b;
    struct decision said = decide_at(&found, &request, START_MS + WINDOW_MS);
    assert_string_equal(said.rule, "B1");
    assert_int_equal(said.next.attempt, 1);
    assert_int_equal(said.next.version, found.version + 1);
    assert_false(op_id_equal(&said.next.operation_id, &found.operation_id));
    said = decide_at(&found, &request, START_MS + WINDOW_MS - 1);
    assert_string_equal(said.rule, "B2");
}

static void another_payload_is_refused_before_anything_else_is_said(void **state)
{
    (void)state;
    for (int status = RECORD_IN_PROGRESS; status <= RECORD_COMPENSATED; status++) {
        struct record found = shape((enum record_status)status);
        struct request request = begin_request();
        request.fingerprint = print_b;
        request.policy.on_unknown = ON_UNKNOWN_TAKEOVER;
        request.policy.retry_failed = request.policy.retry_rejected = true;
        struct decision said = decide_at(&found, &request, START_MS + LEASE_MS);
        assert_string_equal(said.rule, "B2");
        assert_int_equal(said.change, CHANGE_TOUCH);
        said.next.duplicates--;
        assert_true(model_same_record(&found, &said.next));
    }
}

static void a_duplicate_of_a_running_operation_hears_in_progress(void **state)
{
    (void)state;
    struct record found = shape(RECORD_IN_PROGRESS);
    struct request request = begin_request();
    request.policy.on_unknown = ON_UNKNOWN_TAKEOVER;
    struct decision said = decide_at(&found, &request, START_MS + LEASE_MS - 1);
    assert_string_equal(said.rule, "B3");
    assert_int_equal(said.kind, DECISION_IN_PROGRESS);
    assert_int_equal(said.next.duplicates, 5);
}

static void a_lease_that_is_over_means_unknown_not_free(void **state)
{
    (void)state;
    struct record found = shape(RECORD_IN_PROGRESS);
    struct request request = begin_request();
    struct decision said = decide_at(&found, &request, START_MS + LEASE_MS);
    assert_string_equal(said.rule, "B5");
    assert_int_equal(said.kind, DECISION_HELD_UNKNOWN);
    assert_int_equal(said.next.status, RECORD_UNKNOWN);
    assert_int_equal(said.next.fence, FENCE);
    assert_true(slice_is(said.next.reason, "lease_expired"));
}

static void unknown_is_held_unless_the_policy_takes_over(void **state)
{
    (void)state;
    struct record found = shape(RECORD_UNKNOWN);
    struct request request = begin_request();
    assert_string_equal(decide_at(&found, &request, INT64_MAX - 1000).rule, "B5");
    request.policy.on_unknown = ON_UNKNOWN_RECONCILE;
    assert_string_equal(decide_at(&found, &request, START_MS).rule, "B5");
    request.policy.on_unknown = ON_UNKNOWN_TAKEOVER;
    struct decision said = decide_at(&found, &request, START_MS);
    assert_string_equal(said.rule, "B4");
    assert_int_equal(said.kind, DECISION_FIRST_SEEN);
    assert_int_equal(said.next.fence, 60);
    assert_int_equal(said.next.attempt, 4);
    assert_true(op_id_equal(&said.next.operation_id, &found.operation_id));
}

static void what_was_released_may_be_tried_again(void **state)
{
    (void)state;
    struct record found = shape(RECORD_RELEASED);
    struct request request = begin_request();
    struct decision said = decide_at(&found, &request, START_MS + 1);
    assert_string_equal(said.rule, "B6");
    assert_int_equal(said.kind, DECISION_FIRST_SEEN);
    assert_int_equal(said.next.attempt, 4);
    assert_int_equal(said.next.fence, 60);
}

static void a_failure_is_final_unless_the_policy_tries_again(void **state)
{
    (void)state;
    struct record failed = shape(RECORD_FAILED);
    struct record rejected = shape(RECORD_REJECTED);
    struct request request = begin_request();
    assert_string_equal(decide_at(&failed, &request, START_MS).rule, "B8");
    request.policy.retry_rejected = true;
    assert_string_equal(decide_at(&failed, &request, START_MS).rule, "B8");
    struct decision said = decide_at(&rejected, &request, START_MS);
    assert_string_equal(said.rule, "B7");
    assert_int_equal(said.next.outcome.body.bytes, 0);
    assert_int_equal(said.next.sealed_ms, 0);
}

static void a_sealed_operation_is_replayed(void **state)
{
    (void)state;
    for (int status = RECORD_EXECUTED; status <= RECORD_COMPENSATED; status++) {
        struct record found = shape((enum record_status)status);
        struct request request = begin_request();
        struct decision said = decide_at(&found, &request, START_MS + WINDOW_MS - 1);
        assert_string_equal(said.rule, "B8");
        assert_int_equal(said.kind, DECISION_DUPLICATE_REPLAYED);
        assert_true(model_same_outcome(&said.next.outcome, &found.outcome));
    }
}

static void the_window_counts_from_the_seal(void **state)
{
    (void)state;
    struct record found = shape(RECORD_IN_PROGRESS);
    struct request request = holder_request(REQUEST_SEAL, &found);
    struct decision said = decide_at(&found, &request, START_MS + 5);
    assert_string_equal(said.rule, "H5");
    assert_int_equal(said.next.sealed_ms, START_MS + 5);
    assert_int_equal(said.next.window_expires_ms, START_MS + 5 + WINDOW_MS);
    request.policy.window_ms = WINDOW_MS_OTHER;
    said = decide_at(&found, &request, START_MS + 5);
    assert_int_equal(said.next.window_expires_ms, START_MS + 5 + WINDOW_MS_OTHER);
}

static void the_holder_may_seal_long_after_its_lease(void **state)
{
    (void)state;
    struct record running = shape(RECORD_IN_PROGRESS);
    struct record unknown = shape(RECORD_UNKNOWN);
    struct request request = holder_request(REQUEST_SEAL, &running);
    assert_int_equal(decide_at(&running, &request, START_MS + 99999).kind, DECISION_SEALED);
    assert_int_equal(decide_at(&unknown, &request, START_MS + 99999).kind, DECISION_SEALED);
}

static void another_fence_changes_nothing(void **state)
{
    (void)state;
    static const enum request_kind kinds[] = {
        REQUEST_SEAL, REQUEST_RELEASE, REQUEST_UNKNOWN, REQUEST_RENEW};
    for (int status = RECORD_IN_PROGRESS; status <= RECORD_COMPENSATED; status++) {
        for (size_t i = 0; i < 4; i++) {
            struct record found = shape((enum record_status)status);
            struct request request = holder_request(kinds[i], &found);
            request.fence = FENCE - 1;
            struct decision said = decide_at(&found, &request, START_MS);
            assert_string_equal(said.rule, "H2");
            assert_int_equal(said.kind, DECISION_STALE_FENCE);
            assert_int_equal(said.change, CHANGE_NONE);
        }
    }
}

static void a_seal_is_final_and_the_same_seal_again_is_fine(void **state)
{
    (void)state;
    struct record found = shape(RECORD_EXECUTED);
    struct request request = holder_request(REQUEST_SEAL, &found);
    struct decision said = decide_at(&found, &request, START_MS + 1);
    assert_int_equal(said.kind, DECISION_SEALED);
    assert_true(said.repeated);
    assert_int_equal(said.change, CHANGE_NONE);
    for (int which = 1; which <= 5; which++) {
        request.outcome = outcome_of(which);
        said = decide_at(&found, &request, START_MS + 1);
        assert_string_equal(said.rule, "H3");
        assert_int_equal(said.kind, DECISION_ALREADY_SEALED);
        assert_true(model_same_record(&said.next, &found));
    }
}

static void who_released_has_given_up_the_right_to_seal(void **state)
{
    (void)state;
    struct record found = shape(RECORD_RELEASED);
    struct request seal = holder_request(REQUEST_SEAL, &found);
    struct request release = holder_request(REQUEST_RELEASE, &found);
    assert_int_equal(decide_at(&found, &seal, START_MS).kind, DECISION_STALE_FENCE);
    struct decision said = decide_at(&found, &release, START_MS);
    assert_string_equal(said.rule, "H4");
    assert_true(said.repeated);
}

static void an_operator_settles_what_is_unknown_and_not_what_runs(void **state)
{
    (void)state;
    struct record running = shape(RECORD_IN_PROGRESS);
    struct record unknown = shape(RECORD_UNKNOWN);
    struct request request = holder_request(REQUEST_RESOLVE, &running);
    assert_string_equal(decide_at(&running, &request, START_MS + LEASE_MS - 1).rule, "N4");
    assert_string_equal(decide_at(&running, &request, START_MS + LEASE_MS).rule, "N5");
    struct decision said = decide_at(&unknown, &request, START_MS);
    assert_string_equal(said.rule, "N5");
    assert_int_equal(said.next.status, RECORD_EXECUTED);
    request.status = RECORD_RELEASED;
    said = decide_at(&unknown, &request, START_MS);
    assert_int_equal(said.next.status, RECORD_RELEASED);
    assert_int_equal(said.next.sealed_ms, 0);
    assert_int_equal(said.next.outcome.body.bytes, 0);
}

static void an_operator_settles_the_attempt_that_was_looked_into_and_no_later_one(void **state)
{
    (void)state;
    struct record found = shape(RECORD_UNKNOWN);
    struct request request = holder_request(REQUEST_RESOLVE, &found);
    request.status = RECORD_RELEASED;
    request.fence = FENCE - 1;
    struct decision said = decide_at(&found, &request, START_MS);
    assert_string_equal(said.rule, "N6");
    assert_int_equal(said.kind, DECISION_STALE_FENCE);
    assert_int_equal(said.change, CHANGE_NONE);
    request.fence = 0; /* any: whoever asks takes it upon themselves */
    assert_string_equal(decide_at(&found, &request, START_MS).rule, "N5");
}

static void the_janitor_only_turns_what_ran_out_into_unknown(void **state)
{
    (void)state;
    for (int status = RECORD_IN_PROGRESS; status <= RECORD_COMPENSATED; status++) {
        struct record found = shape((enum record_status)status);
        struct request request = holder_request(REQUEST_LEASE_OVER, &found);
        assert_string_equal(decide_at(&found, &request, START_MS + LEASE_MS - 1).rule, "J3");
        const char *rule = status == RECORD_IN_PROGRESS ? "J2" : "J3";
        assert_string_equal(decide_at(&found, &request, START_MS + LEASE_MS).rule, rule);
    }
    struct record found = shape(RECORD_IN_PROGRESS);
    struct request request = holder_request(REQUEST_LEASE_OVER, &found);
    assert_string_equal(decide_at(NULL, &request, START_MS).rule, "J1");
}

static void assert_refused(const struct request *request, const char *text)
{
    struct err err = {0};
    assert_int_equal(request_check(request, &err), E_INVALID);
    if (strstr(err.text, text) == NULL) {
        fail_msg("'%s' does not say '%s'", err.text, text);
    }
}

static void a_request_outside_its_limits_is_refused_by_name(void **state)
{
    (void)state;
    static char long_text[300];
    memset(long_text, 'x', sizeof long_text);
    struct request request = begin_request();
    assert_int_equal(request_check(&request, NULL), OK);
    request.policy.lease_ms = 9;
    assert_refused(&request, "lease is 9 ms; the least is 10 ms (lease_ms_min)");
    request.policy.lease_ms = LEASE_MS;
    request.policy.window_ms = 0;
    assert_refused(&request, "ttl");
    request.policy.window_ms = INT64_MAX; /* now + window would overflow */
    assert_refused(&request, "ttl");
    request.policy.window_ms = WINDOW_MS;
    request.source.id = slice_of(long_text, 256);
    assert_refused(&request, "source.id is 256 bytes long, more than source_bytes_max (255)");
    request.source.id = SLICE_LIT("\xff");
    assert_refused(&request, "source.id is not valid UTF-8: 0xff at byte 0");
}

static void a_seal_says_what_it_became_and_only_a_resolve_says_not_executed(void **state)
{
    (void)state;
    struct record found = shape(RECORD_IN_PROGRESS);
    static const struct {
        enum record_status status;
        bool seal;
        bool resolve;
    } rows[] = {{RECORD_EXECUTED, true, true}, {RECORD_FAILED, true, true},
        {RECORD_REJECTED, true, false}, {RECORD_RELEASED, false, true}, {0, false, false},
        {RECORD_IN_PROGRESS, false, false}, {RECORD_UNKNOWN, false, false},
        {RECORD_COMPENSATED, false, false}, {RECORD_PENDING, false, true},
        {RECORD_WAITING, false, false}, {(enum record_status)RECORD_STATUS_END, false, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct request seal = holder_request(REQUEST_SEAL, &found);
        struct request resolve = holder_request(REQUEST_RESOLVE, &found);
        seal.status = resolve.status = rows[i].status;
        assert_int_equal(request_check(&seal, NULL), rows[i].seal ? OK : E_INVALID);
        assert_int_equal(request_check(&resolve, NULL), rows[i].resolve ? OK : E_INVALID);
    }
}

static struct decision ask_at(int64_t now_ms, const struct record *found, struct request request)
{
    return decide(found, &request, (struct decide_moment){.now_ms = now_ms, .fence_next = 60});
}

static void work_is_claimed_when_it_is_due_and_not_before(void **state)
{
    (void)state;
    struct record found = shape_as(RECORD_EFFECT, RECORD_PENDING);
    struct request claim = holder_request(REQUEST_CLAIM, &found);
    claim.holder = LIVING;
    struct decision early = ask_at(DUE_MS - 1, &found, claim);
    assert_int_equal(early.kind, DECISION_NOT_DUE);
    assert_int_equal(early.change, CHANGE_NONE);
    struct decision claimed = ask_at(DUE_MS, &found, claim);
    assert_int_equal(claimed.kind, DECISION_CLAIMED);
    assert_int_equal(claimed.next.status, RECORD_IN_PROGRESS);
    assert_true(claimed.next.fence == 60 && claimed.next.attempt == found.attempt + 1);
    assert_true(claimed.next.holder == LIVING);
    assert_true(claimed.next.lease_expires_ms == DUE_MS + LEASE_MS);
    assert_int_equal(ask_at(DUE_MS, &claimed.next, claim).kind, DECISION_WRONG_STATUS);
}

static void an_enqueue_grants_nothing_and_its_duplicates_do_not_enqueue_again(void **state)
{
    (void)state;
    struct request enqueue = first_request(REQUEST_ENQUEUE, RECORD_EFFECT);
    enqueue.delay_ms = DELAY_MS;
    struct decision first = ask_at(START_MS, NULL, enqueue);
    assert_int_equal(first.kind, DECISION_ENQUEUED);
    assert_int_equal(first.next.status, RECORD_PENDING);
    assert_true(first.next.fence == 0 && first.next.attempt == 0);
    assert_true(first.next.due_ms == START_MS + DELAY_MS);
    assert_true(decision_took_fence(&first)); /* its id is made from the number */
    assert_int_equal(ask_at(START_MS, &first.next, enqueue).kind, DECISION_IN_PROGRESS);
    enqueue.fingerprint = print_b;
    struct decision conflict = ask_at(START_MS, &first.next, enqueue);
    assert_int_equal(conflict.kind, DECISION_CONFLICT_REJECTED);
    struct record executed = shape_as(RECORD_EFFECT, RECORD_EXECUTED);
    assert_int_equal(ask_at(START_MS, &executed, enqueue).kind, DECISION_CONFLICT_REJECTED);
    enqueue.fingerprint = print_a;
    assert_int_equal(ask_at(START_MS, &executed, enqueue).kind, DECISION_DUPLICATE_REPLAYED);
}

static void a_retry_is_the_holders_and_dies_with_its_attempts(void **state)
{
    (void)state;
    struct record found = shape_as(RECORD_EFFECT, RECORD_IN_PROGRESS);
    struct request retry = holder_request(REQUEST_RETRY, &found);
    retry.delay_ms = DELAY_MS;
    retry.policy.attempts_max = found.attempt + 1;
    struct decision later = ask_at(START_MS, &found, retry);
    assert_int_equal(later.kind, DECISION_DONE);
    assert_int_equal(later.next.status, RECORD_PENDING);
    assert_true(later.next.due_ms == START_MS + DELAY_MS && later.next.holder == 0);
    assert_true(ask_at(START_MS, &later.next, retry).repeated);
    struct request seal = holder_request(REQUEST_SEAL, &found);
    assert_int_equal(ask_at(START_MS, &later.next, seal).kind, DECISION_STALE_FENCE);
    retry.policy.attempts_max = found.attempt;
    assert_int_equal(ask_at(START_MS, &found, retry).next.status, RECORD_DEAD);
    retry.fence--;
    assert_int_equal(ask_at(START_MS, &found, retry).kind, DECISION_STALE_FENCE);
}

static void what_a_dead_process_held_is_unknown_at_once_and_nothing_else(void **state)
{
    (void)state;
    struct record found = shape_as(RECORD_EFFECT, RECORD_IN_PROGRESS);
    struct request gone = holder_request(REQUEST_HOLDER_GONE, &found);
    struct decision unknown = ask_at(START_MS, &found, gone);
    assert_int_equal(unknown.kind, DECISION_UNKNOWN);
    assert_int_equal(unknown.next.status, RECORD_UNKNOWN);
    assert_true(slice_is(unknown.next.reason, "holder_gone"));
    gone.fence++; /* the grant that was meant is over, and a living process may hold this one */
    assert_int_equal(ask_at(START_MS, &found, gone).kind, DECISION_NOTHING);
    gone.fence = 0;
    assert_int_equal(ask_at(START_MS, &found, gone).kind, DECISION_UNKNOWN);
    found.holder = LIVING;
    assert_int_equal(ask_at(START_MS, &found, gone).kind, DECISION_NOTHING);
    found.holder = 0; /* a caller outside: only its lease says when it is over */
    assert_int_equal(ask_at(START_MS, &found, gone).kind, DECISION_NOTHING);
}

static void what_becomes_unknown_is_due_at_once_where_its_door_reconciles(void **state)
{
    (void)state;
    struct request begin = begin_request();
    begin.door = RECORD_DOOR_RUN;
    struct record nobody = ask_at(START_MS, NULL, begin).next;
    begin.policy.on_unknown = ON_UNKNOWN_RECONCILE;
    begin.door = RECORD_DOOR_GATEWAY;
    struct record gateways = ask_at(START_MS, NULL, begin).next;
    struct request over = holder_request(REQUEST_LEASE_OVER, &gateways);
    int64_t end_ms = START_MS + LEASE_MS;
    assert_true(record_due_ms(&(struct record){.status = RECORD_UNKNOWN}) == INT64_MAX);
    struct record unknown = ask_at(end_ms, &gateways, over).next;
    assert_true(record_due_ms(&unknown) == end_ms);
    over.operation_id = nobody.operation_id;
    struct record held = ask_at(end_ms, &nobody, over).next;
    assert_true(record_due_ms(&held) == INT64_MAX);
    struct request postpone = holder_request(REQUEST_POSTPONE, &unknown);
    postpone.delay_ms = DELAY_MS;
    struct record later = ask_at(end_ms + 1, &unknown, postpone).next;
    assert_true(later.due_ms == end_ms + 1 + DELAY_MS);
    assert_true(later.updated_ms == unknown.updated_ms); /* it is unknown since then, as before */
    postpone.fence++;
    assert_int_equal(ask_at(end_ms, &unknown, postpone).kind, DECISION_STALE_FENCE);
}

/* Nobody may ever submit a command again; an operation's caller has to come back for it anyway. */
static void what_once_performs_is_due_at_once_where_it_may_be_taken_over(void **state)
{
    (void)state;
    static const enum record_kind kinds[] = {RECORD_OPERATION, RECORD_COMMAND};
    for (size_t i = 0; i < 2; i++) {
        enum record_kind kind = kinds[i];
        struct request begin = first_request(REQUEST_BEGIN, kind);
        begin.door = kind == RECORD_COMMAND ? RECORD_DOOR_COMMANDS : RECORD_DOOR_RUN;
        begin.policy.on_unknown = ON_UNKNOWN_TAKEOVER;
        struct record running = ask_at(START_MS, NULL, begin).next;
        struct request over = holder_request(REQUEST_LEASE_OVER, &running);
        int64_t end_ms = START_MS + LEASE_MS;
        struct record unknown = ask_at(end_ms, &running, over).next;
        assert_int_equal(unknown.status, RECORD_UNKNOWN);
        int64_t due_ms = kind == RECORD_COMMAND ? end_ms : INT64_MAX;
        assert_true(record_due_ms(&unknown) == due_ms);
    }
}

static void a_command_waits_and_is_not_started_after_its_confirmation_is_over(void **state)
{
    (void)state;
    struct request enqueue = first_request(REQUEST_ENQUEUE, RECORD_COMMAND);
    enqueue.status = RECORD_WAITING;
    enqueue.delay_ms = DELAY_MS;
    struct record waiting = ask_at(START_MS, NULL, enqueue).next;
    struct request wake = holder_request(REQUEST_WAKE, &waiting);
    wake.status = RECORD_IN_PROGRESS;
    struct decision started = ask_at(START_MS, &waiting, wake);
    assert_int_equal(started.kind, DECISION_CLAIMED);
    assert_true(started.next.fence == 60 && started.next.attempt == 1);
    assert_int_equal(ask_at(START_MS + DELAY_MS, &waiting, wake).kind, DECISION_TOO_LATE);
    wake.status = RECORD_REJECTED;
    assert_int_equal(ask_at(START_MS + DELAY_MS, &waiting, wake).next.status, RECORD_REJECTED);
    wake.status = RECORD_EXECUTED; /* P6: it never ran */
    assert_int_equal(ask_at(START_MS, &waiting, wake).kind, DECISION_WRONG_STATUS);
}

static void a_wake_for_an_earlier_version_starts_nothing(void **state)
{
    (void)state;
    struct request enqueue = first_request(REQUEST_ENQUEUE, RECORD_COMMAND);
    enqueue.status = RECORD_WAITING;
    struct record waiting = ask_at(START_MS, NULL, enqueue).next;
    struct request wake = holder_request(REQUEST_WAKE, &waiting);
    wake.status = RECORD_IN_PROGRESS;
    wake.version = waiting.version;
    assert_int_equal(ask_at(START_MS, &waiting, wake).kind, DECISION_CLAIMED);
    /* Denied and submitted again meanwhile: the same operation, with a different token. */
    struct request deny = holder_request(REQUEST_WAKE, &waiting);
    deny.status = RECORD_REJECTED;
    struct record denied = ask_at(START_MS, &waiting, deny).next;
    enqueue.policy.retry_rejected = true;
    struct record again = ask_at(START_MS, &denied, enqueue).next;
    assert_int_equal(again.status, RECORD_WAITING);
    struct decision said = ask_at(START_MS, &again, wake);
    assert_int_equal(said.kind, DECISION_WRONG_STATUS);
    assert_int_equal(said.change, CHANGE_NONE);
}

/* An effect may have been sent since it was read: "cancelled" would say that it did not happen. */
static void a_cancellation_for_an_earlier_version_changes_nothing(void **state)
{
    (void)state;
    struct record found = shape_as(RECORD_EFFECT, RECORD_PENDING);
    struct request cancel = holder_request(REQUEST_CANCEL, &found);
    cancel.version = found.version;
    assert_int_equal(ask_at(START_MS, &found, cancel).next.status, RECORD_REJECTED);
    found.version += 2; /* claimed, and pending again because the provider knows the key */
    struct decision said = ask_at(START_MS, &found, cancel);
    assert_int_equal(said.kind, DECISION_WRONG_STATUS);
    assert_int_equal(said.change, CHANGE_NONE);
    assert_string_equal(said.rule, "X6");
}

/* It may have been called again since it was read: a detail made for the earlier version would
 * forget that (P5). */
static void a_retry_for_an_earlier_version_changes_nothing(void **state)
{
    (void)state;
    struct record found = shape_as(RECORD_COMMAND, RECORD_DEAD);
    struct request again = holder_request(REQUEST_TAKE_UP, &found);
    again.version = found.version;
    assert_int_equal(ask_at(START_MS, &found, again).next.status, RECORD_PENDING);
    found.version += 2;
    struct decision said = ask_at(START_MS, &found, again);
    assert_int_equal(said.kind, DECISION_WRONG_STATUS);
    assert_int_equal(said.change, CHANGE_NONE);
    assert_string_equal(said.rule, "U4");
}

/* Somebody has parked it since, and the ones behind it in its order went on. */
static void a_resolution_for_an_earlier_version_changes_nothing(void **state)
{
    (void)state;
    struct record found = shape_as(RECORD_EFFECT, RECORD_UNKNOWN);
    struct request again = holder_request(REQUEST_RESOLVE, &found);
    again.status = RECORD_PENDING;
    again.version = found.version;
    assert_int_equal(ask_at(START_MS, &found, again).next.status, RECORD_PENDING);
    struct request parks = holder_request(REQUEST_POSTPONE, &found);
    struct record parked = ask_at(START_MS, &found, parks).next;
    assert_int_equal(record_due_ms(&parked), INT64_MAX);
    struct decision said = ask_at(START_MS, &parked, again);
    assert_int_equal(said.kind, DECISION_WRONG_STATUS);
    assert_int_equal(said.change, CHANGE_NONE);
    assert_string_equal(said.rule, "N9");
}

/* "rejected" lets a fresh submission run the handler again, and its effects may have happened. */
static void a_command_that_waits_for_effects_cannot_be_cancelled(void **state)
{
    (void)state;
    struct record found = shape_as(RECORD_COMMAND, RECORD_WAITING);
    struct request cancel = holder_request(REQUEST_CANCEL, &found);
    assert_true(found.fence > 0);
    assert_string_equal(ask_at(START_MS, &found, cancel).rule, "X5");
    found.fence = found.attempt = 0; /* it waits for its confirmation */
    assert_int_equal(ask_at(START_MS, &found, cancel).next.status, RECORD_REJECTED);
}

/* It had an attempt that did nothing, was cancelled, and is submitted anew: it waits for its
 * confirmation, not for effects. */
static void a_command_submitted_anew_waits_for_its_confirmation_again(void **state)
{
    (void)state;
    struct request enqueue = first_request(REQUEST_ENQUEUE, RECORD_COMMAND);
    enqueue.status = RECORD_WAITING;
    enqueue.delay_ms = DELAY_MS;
    enqueue.policy.retry_rejected = true;
    struct record waiting = ask_at(START_MS, NULL, enqueue).next;
    struct request wake = holder_request(REQUEST_WAKE, &waiting);
    wake.status = RECORD_IN_PROGRESS;
    struct record running = ask_at(START_MS, &waiting, wake).next;
    struct record later = ask_at(START_MS, &running, holder_request(REQUEST_RETRY, &running)).next;
    struct record over = ask_at(START_MS, &later, holder_request(REQUEST_CANCEL, &later)).next;
    assert_int_equal(over.status, RECORD_REJECTED);
    struct record anew = ask_at(START_MS, &over, enqueue).next;
    assert_string_equal(kind_word(anew.kind, anew.status, anew.attempt), "awaiting_confirmation");
    assert_true(anew.fence == running.fence); /* P4: the next grant's is greater */
    struct decision again = ask_at(START_MS, &anew, holder_request(REQUEST_CANCEL, &anew));
    assert_string_equal(again.rule, "X2");
}

static void what_is_compensated_keeps_its_outcome(void **state)
{
    (void)state;
    struct record found = shape_as(RECORD_EFFECT, RECORD_EXECUTED);
    struct request undo = holder_request(REQUEST_COMPENSATE, &found);
    struct record undoing = ask_at(START_MS, &found, undo).next;
    assert_int_equal(undoing.status, RECORD_COMPENSATING);
    assert_false(record_window_over(&undoing, INT64_MAX)); /* P8: somebody still acts on it */
    struct request duplicate = first_request(REQUEST_ENQUEUE, RECORD_EFFECT);
    assert_int_equal(ask_at(START_MS, &undoing, duplicate).kind, DECISION_DUPLICATE_REPLAYED);
    struct request settle = holder_request(REQUEST_COMPENSATION_SETTLE, &found);
    settle.status = RECORD_UNKNOWN;
    struct record in_doubt = ask_at(START_MS, &undoing, settle).next;
    assert_int_equal(in_doubt.status, RECORD_UNKNOWN);
    assert_int_equal(ask_at(START_MS, &in_doubt, duplicate).kind, DECISION_DUPLICATE_REPLAYED);
    struct request resolve = holder_request(REQUEST_RESOLVE, &found);
    resolve.status = RECORD_PENDING; /* it happened: it must not run again */
    assert_int_equal(ask_at(START_MS, &in_doubt, resolve).kind, DECISION_ALREADY_SEALED);
    settle.status = RECORD_COMPENSATED;
    struct record undone = ask_at(START_MS, &in_doubt, settle).next;
    assert_int_equal(undone.status, RECORD_COMPENSATED);
    assert_true(model_same_outcome(&undone.outcome, &found.outcome));
    assert_true(undone.sealed_ms == found.sealed_ms);
}

static void only_a_person_takes_up_what_was_given_up(void **state)
{
    (void)state;
    struct record found = shape_as(RECORD_DELIVERY, RECORD_PENDING);
    struct request give_up = holder_request(REQUEST_GIVE_UP, &found);
    give_up.fence = 0;
    give_up.policy.attempts_max = found.attempt + 1;
    assert_int_equal(ask_at(START_MS, &found, give_up).kind, DECISION_NOT_DUE);
    give_up.policy.attempts_max = found.attempt;
    struct record dead = ask_at(START_MS, &found, give_up).next;
    assert_int_equal(dead.status, RECORD_DEAD);
    struct request claim = holder_request(REQUEST_CLAIM, &found);
    assert_int_equal(ask_at(DUE_MS, &dead, claim).kind, DECISION_WRONG_STATUS);
    struct request take_up = holder_request(REQUEST_TAKE_UP, &found);
    assert_int_equal(ask_at(START_MS, &dead, take_up).next.status, RECORD_PENDING);
    struct request cancel = holder_request(REQUEST_CANCEL, &found);
    assert_int_equal(ask_at(START_MS, &dead, cancel).next.status, RECORD_REJECTED);
}

static void an_operation_is_not_asked_what_only_work_is(void **state)
{
    (void)state;
    struct record found = shape(RECORD_IN_PROGRESS);
    struct request retry = holder_request(REQUEST_RETRY, &found);
    struct decision refused = ask_at(START_MS, &found, retry);
    assert_int_equal(refused.kind, DECISION_WRONG_STATUS);
    assert_string_equal(refused.rule, "A1");
    struct request enqueue = first_request(REQUEST_ENQUEUE, RECORD_OPERATION);
    assert_int_equal(request_check(&enqueue, NULL), E_INVALID);
    enqueue = first_request(REQUEST_ENQUEUE, RECORD_EFFECT);
    assert_int_equal(request_check(&enqueue, NULL), OK);
    enqueue.status = RECORD_WAITING; /* until its payload is sealed */
    assert_int_equal(request_check(&enqueue, NULL), OK);
    struct request gone = holder_request(REQUEST_HOLDER_GONE, &found);
    assert_int_equal(request_check(&gone, NULL), OK);
    gone.holder = 0;
    assert_int_equal(request_check(&gone, NULL), E_INVALID);
}

static void the_words_are_those_of_the_api(void **state)
{
    (void)state;
    assert_string_equal(decision_name(DECISION_FIRST_SEEN), "first_seen");
    assert_string_equal(decision_name(DECISION_DUPLICATE_REPLAYED), "duplicate_replayed");
    assert_string_equal(decision_name(DECISION_IN_PROGRESS), "in_progress");
    assert_string_equal(decision_name(DECISION_CONFLICT_REJECTED), "conflict_rejected");
    assert_string_equal(decision_name(DECISION_HELD_UNKNOWN), "held_unknown");
    assert_string_equal(on_unknown_name(ON_UNKNOWN_HOLD), "hold");
    assert_string_equal(on_unknown_name(ON_UNKNOWN_TAKEOVER), "takeover");
    assert_string_equal(on_unknown_name(ON_UNKNOWN_RECONCILE), "reconcile");
    assert_int_equal(policy_default.on_unknown, ON_UNKNOWN_HOLD);
    assert_int_equal(policy_default.window_ms, 86400000);
    assert_false(policy_default.retry_failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_new_key_is_granted),
        TEST(a_key_whose_window_is_over_is_a_new_operation),
        TEST(another_payload_is_refused_before_anything_else_is_said),
        TEST(a_duplicate_of_a_running_operation_hears_in_progress),
        TEST(a_lease_that_is_over_means_unknown_not_free),
        TEST(unknown_is_held_unless_the_policy_takes_over),
        TEST(what_was_released_may_be_tried_again),
        TEST(a_failure_is_final_unless_the_policy_tries_again),
        TEST(a_sealed_operation_is_replayed),
        TEST(the_window_counts_from_the_seal),
        TEST(the_holder_may_seal_long_after_its_lease),
        TEST(another_fence_changes_nothing),
        TEST(a_seal_is_final_and_the_same_seal_again_is_fine),
        TEST(who_released_has_given_up_the_right_to_seal),
        TEST(an_operator_settles_what_is_unknown_and_not_what_runs),
        TEST(an_operator_settles_the_attempt_that_was_looked_into_and_no_later_one),
        TEST(the_janitor_only_turns_what_ran_out_into_unknown),
        TEST(a_request_outside_its_limits_is_refused_by_name),
        TEST(a_seal_says_what_it_became_and_only_a_resolve_says_not_executed),
        TEST(work_is_claimed_when_it_is_due_and_not_before),
        TEST(an_enqueue_grants_nothing_and_its_duplicates_do_not_enqueue_again),
        TEST(a_retry_is_the_holders_and_dies_with_its_attempts),
        TEST(what_a_dead_process_held_is_unknown_at_once_and_nothing_else),
        TEST(what_becomes_unknown_is_due_at_once_where_its_door_reconciles),
        TEST(what_once_performs_is_due_at_once_where_it_may_be_taken_over),
        TEST(a_command_waits_and_is_not_started_after_its_confirmation_is_over),
        TEST(a_wake_for_an_earlier_version_starts_nothing),
        TEST(a_cancellation_for_an_earlier_version_changes_nothing),
        TEST(a_retry_for_an_earlier_version_changes_nothing),
        TEST(a_resolution_for_an_earlier_version_changes_nothing),
        TEST(a_command_that_waits_for_effects_cannot_be_cancelled),
        TEST(a_command_submitted_anew_waits_for_its_confirmation_again),
        TEST(what_is_compensated_keeps_its_outcome),
        TEST(only_a_person_takes_up_what_was_given_up),
        TEST(an_operation_is_not_asked_what_only_work_is),
        TEST(the_words_are_those_of_the_api),
    };
    return cmocka_run_group_tests_name("decide", tests, NULL, NULL);
}
