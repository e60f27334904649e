#include <pthread.h>
#include <stdio.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/lib_help.h"

static struct place place;
static struct once *once;

static int setup(void **state)
{
    (void)state;
    place_init(&place);
    once = open_url(place.url, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    close_once(once);
    place_release(&place);
    return 0;
}

static void free_all(struct once_answer *a, struct once_answer *b, struct once_answer *c)
{
    once_answer_free(once, a);
    once_answer_free(once, b);
    once_answer_free(once, c);
}

/* ---- the life of an operation -------------------------------------------------------------- */

static void a_first_begin_is_granted(void **state)
{
    (void)state;
    struct once_answer *grant = begin_with(once, &(struct once_begin){.scope = "charge",
                                                     .key = "order-7",
                                                     .principal = "alice",
                                                     .payload = {"{\"b\":2, \"a\":1.0}", 16},
                                                     .source = {"email", "m-1", "3"},
                                                     .request_id = "req-1",
                                                     .trace = "{\"z\":1,\"correlation_id\":\"c\"}",
                                                     .actor = "bob"});
    assert_int_equal(grant->decision, ONCE_FIRST_SEEN);
    assert_string_equal(grant->rule, "B1");
    assert_true(grant->fence > 0);
    assert_int_equal(grant->attempt, 1);
    assert_true(grant->lease_expires_ms > 0);
    assert_null(grant->diff);
    const struct once_operation *now = grant->operation;
    assert_string_equal(now->operation_id, grant->operation_id);
    assert_string_equal(now->tenant, "default");
    assert_string_equal(now->principal, "alice");
    assert_int_equal(now->status, ONCE_STATUS_IN_PROGRESS);
    assert_string_equal(now->source.version, "3");
    assert_string_equal(now->effect_id, "");
    assert_string_equal(now->trace, "{\"correlation_id\":\"c\",\"request_id\":\"req-1\",\"z\":1}");

    struct once_operation *found;
    assert_int_equal(once_lookup(once, "charge", "alice", "order-7", &found, NULL), ONCE_OK);
    assert_string_equal(found->operation_id, grant->operation_id);
    assert_int_equal(found->request.size, 13);
    assert_memory_equal(found->request.data, "{\"a\":1,\"b\":2}", 13);
    once_operation_free(once, found);
    assert_int_equal(once_lookup(once, "charge", "mallory", "order-7", &found, NULL), ONCE_OK);
    assert_null(found);
    once_answer_free(once, grant);
}

static void a_duplicate_gets_the_first_outcome(void **state)
{
    (void)state;
    struct once_answer *grant = begin_key(once, "k", "pay");
    struct once_answer *sealed;
    struct once_seal seal = {
        .operation_id = grant->operation_id,
        .fence = grant->fence,
        .status = ONCE_EXECUTED,
        .effect_id = "ch_1",
        .outcome = {.code = 201, .meta = {"m", 1}, .body = {"a\0b", 3}},
    };
    assert_int_equal(once_seal(once, &seal, &sealed, NULL), ONCE_OK);
    assert_int_equal(sealed->decision, ONCE_SEALED);
    assert_false(sealed->repeated);

    struct once_answer *replay = begin_key(once, "k", "pay");
    assert_int_equal(replay->decision, ONCE_DUPLICATE_REPLAYED);
    assert_int_equal(replay->fence, 0);
    const struct once_operation *was = replay->operation;
    assert_string_equal(was->effect_id, "ch_1");
    assert_int_equal(was->outcome.code, 201);
    assert_int_equal(was->outcome.meta.size, 1);
    assert_int_equal(was->outcome.body.size, 3);
    assert_memory_equal(was->outcome.body.data, "a\0b", 3);
    assert_true(was->outcome_retained);
    assert_true(was->window_expires_ms == was->sealed_ms + was->window_ms);
    assert_int_equal(was->window_ms, 86400000);
    free_all(grant, sealed, replay);
}

static void the_same_seal_again_is_repeated_and_another_refused(void **state)
{
    (void)state;
    struct once_answer *grant = begin_key(once, "k", "pay");
    struct once_answer *first = seal_text(once, grant, "one");
    struct once_answer *again = seal_text(once, grant, "one");
    struct once_answer *other = seal_text(once, grant, "two");
    assert_int_equal(again->decision, ONCE_SEALED);
    assert_true(again->repeated);
    assert_int_equal(other->decision, ONCE_ALREADY_SEALED);
    struct once_answer *replay = begin_key(once, "k", "pay");
    assert_memory_equal(replay->operation->outcome.body.data, "one", 3);
    free_all(first, again, other);
    free_all(grant, replay, NULL);
}

static void another_fence_changes_nothing(void **state)
{
    (void)state;
    struct once_answer *grant = begin_key(once, "k", "pay");
    struct once_hold hold = {.operation_id = grant->operation_id, .fence = grant->fence};
    assert_int_equal(once_release(once, &hold, NULL, NULL), ONCE_OK);
    struct once_answer *second = begin_key(once, "k", "pay");
    assert_int_equal(second->decision, ONCE_FIRST_SEEN);
    assert_int_equal(second->attempt, 2);
    assert_true(second->fence > grant->fence);

    struct once_answer *late = seal_text(once, grant, "late");
    assert_int_equal(late->decision, ONCE_STALE_FENCE);
    struct once_error error;
    assert_int_equal(once_renew(once, &hold, NULL, &error), ONCE_E_STALE);
    assert_string_equal(error.text, "the answer to renew is stale_fence");
    struct once_operation *now = get_one(once, grant->operation_id);
    assert_int_equal(now->status, ONCE_STATUS_IN_PROGRESS);
    assert_int_equal(now->fence, second->fence);
    once_operation_free(once, now);
    free_all(grant, second, late);
}

static void renewing_extends_the_lease(void **state)
{
    (void)state;
    struct once_answer *grant = begin_key(once, "k", "pay");
    struct once_answer *renewed;
    struct once_hold hold = {
        .operation_id = grant->operation_id, .fence = grant->fence, .lease_ms = 600000};
    assert_int_equal(once_renew(once, &hold, &renewed, NULL), ONCE_OK);
    assert_int_equal(renewed->decision, ONCE_RENEWED);
    assert_true(renewed->lease_expires_ms >= grant->lease_expires_ms + 500000);
    free_all(grant, renewed, NULL);
}

static void unknown_is_held_until_somebody_looked(void **state)
{
    (void)state;
    struct once_answer *grant = begin_key(once, "k", "pay");
    struct once_hold hold = {
        .operation_id = grant->operation_id, .fence = grant->fence, .reason = "no answer"};
    struct once_answer *answer;
    assert_int_equal(once_unknown(once, &hold, &answer, NULL), ONCE_OK);
    assert_int_equal(answer->decision, ONCE_MARKED_UNKNOWN);
    assert_string_equal(answer->operation->reason, "no answer");
    struct once_answer *held = begin_key(once, "k", "pay");
    assert_int_equal(held->decision, ONCE_HELD_UNKNOWN);
    assert_int_equal(held->operation->status, ONCE_STATUS_UNKNOWN);

    struct once_resolve resolve = {.operation_id = grant->operation_id,
        .status = ONCE_EXECUTED,
        .effect_id = "ch_9",
        .outcome = {.body = {"found", 5}},
        .reason = "seen in the provider's list",
        .actor = "carol"};
    struct once_answer *resolved;
    assert_int_equal(once_resolve(once, &resolve, &resolved, NULL), ONCE_OK);
    assert_int_equal(resolved->decision, ONCE_RESOLVED);
    struct once_answer *replay = begin_key(once, "k", "pay");
    assert_int_equal(replay->decision, ONCE_DUPLICATE_REPLAYED);
    assert_string_equal(replay->operation->effect_id, "ch_9");
    assert_memory_equal(replay->operation->outcome.body.data, "found", 5);
    free_all(grant, answer, held);
    free_all(resolved, replay, NULL);
}

static void not_executed_frees_the_key_again(void **state)
{
    (void)state;
    struct once_answer *grant = begin_key(once, "k", "pay");
    struct once_hold hold = {.operation_id = grant->operation_id, .fence = grant->fence};
    struct once_resolve resolve = {.operation_id = grant->operation_id,
        .status = ONCE_STATUS_RELEASED,
        .reason = "not in the provider's list"};
    struct once_answer *running;
    assert_int_equal(once_resolve(once, &resolve, &running, NULL), ONCE_OK);
    assert_int_equal(running->decision, ONCE_STILL_RUNNING);
    assert_int_equal(once_unknown(once, &hold, NULL, NULL), ONCE_OK);
    assert_int_equal(once_resolve(once, &resolve, NULL, NULL), ONCE_OK);
    struct once_answer *again = begin_key(once, "k", "pay");
    assert_int_equal(again->decision, ONCE_FIRST_SEEN);
    assert_int_equal(again->attempt, 2);
    free_all(grant, running, again);
}

static void a_lease_that_ended_is_held_or_taken_over(void **state)
{
    (void)state;
    struct once_begin begin = {.key = "k", .lease_ms = 20};
    struct once_answer *grant = begin_with(once, &begin);
    sleep_ms(60);
    struct once_answer *held = begin_with(once, &begin);
    assert_int_equal(held->decision, ONCE_HELD_UNKNOWN);
    begin.on_unknown = ONCE_TAKEOVER;
    begin.lease_ms = 0;
    struct once_answer *taken = begin_with(once, &begin);
    assert_int_equal(taken->decision, ONCE_FIRST_SEEN);
    assert_string_equal(taken->operation_id, grant->operation_id);
    assert_int_equal(taken->attempt, 2);
    struct once_answer *late = seal_text(once, grant, "late");
    assert_int_equal(late->decision, ONCE_STALE_FENCE);
    once_answer_free(once, late);
    free_all(grant, held, taken);
}

static void failed_and_rejected_may_be_tried_again_when_asked(void **state)
{
    (void)state;
    const enum once_status statuses[] = {ONCE_FAILED, ONCE_REJECTED};
    for (int i = 0; i < 2; i++) {
        struct once_begin begin = {.scope = i == 0 ? "failed" : "rejected", .key = "k"};
        struct once_answer *grant = begin_with(once, &begin);
        struct once_seal seal = {.operation_id = grant->operation_id,
            .fence = grant->fence,
            .status = statuses[i],
            .ttl_ms = 5000};
        assert_int_equal(once_seal(once, &seal, NULL, NULL), ONCE_OK);
        struct once_answer *replay = begin_with(once, &begin);
        assert_int_equal(replay->decision, ONCE_DUPLICATE_REPLAYED);
        assert_int_equal(replay->operation->status, statuses[i]);
        assert_int_equal(replay->operation->window_ms, 5000);
        begin.retry_failed = i == 0;
        begin.retry_rejected = i == 1;
        struct once_answer *again = begin_with(once, &begin);
        assert_int_equal(again->decision, ONCE_FIRST_SEEN);
        free_all(grant, replay, again);
    }
}

static void a_window_that_ended_starts_anew(void **state)
{
    (void)state;
    struct once_begin begin = {.key = "k", .ttl_ms = 30};
    struct once_answer *grant = begin_with(once, &begin);
    struct once_answer *sealed = seal_text(once, grant, "x");
    sleep_ms(80);
    struct once_answer *fresh = begin_with(once, &begin);
    assert_int_equal(fresh->decision, ONCE_FIRST_SEEN);
    assert_string_not_equal(fresh->operation_id, grant->operation_id);
    assert_true(fresh->fence > grant->fence);
    struct once_answer *late = seal_text(once, grant, "x");
    assert_int_equal(late->decision, ONCE_NOT_FOUND);
    assert_null(late->operation);
    assert_string_equal(late->operation_id, "");
    once_answer_free(once, late);
    free_all(grant, sealed, fresh);
}

/* ---- payloads ------------------------------------------------------------------------------ */

static enum once_decision second_payload(const char *key, const char *first, const char *second)
{
    struct once_answer *a = begin_key(once, key, first);
    struct once_answer *b = begin_key(once, key, second);
    assert_int_equal(a->decision, ONCE_FIRST_SEEN);
    enum once_decision decision = b->decision;
    free_all(a, b, NULL);
    return decision;
}

static void json_is_compared_by_value_and_all_else_by_bytes(void **state)
{
    (void)state;
    const struct {
        const char *first;
        const char *second;
        enum once_decision decision;
    } cases[] = {
        {"{\"a\":1.0,\"b\":[1e2]}", " {\"b\":[100],\"a\":1}", ONCE_IN_PROGRESS},
        {"{\"a\":1}", "{\"a\":2}", ONCE_CONFLICT_REJECTED},
        /* Lossy: their canonical forms are equal, they are not. */
        {"9007199254740993", "9007199254740992", ONCE_CONFLICT_REJECTED},
        {"9007199254740993", "9007199254740993", ONCE_IN_PROGRESS},
        {"1e400", "1e400", ONCE_IN_PROGRESS},
        {"plain text", "plain text", ONCE_IN_PROGRESS},
        {"plain text", "plain  text", ONCE_CONFLICT_REJECTED},
        {"{\"a\":1,\"a\":1}", "{\"a\":1}", ONCE_CONFLICT_REJECTED},
        {"", "", ONCE_IN_PROGRESS},
        {"", "\"\"", ONCE_CONFLICT_REJECTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "k%zu", i);
        assert_int_equal(second_payload(key, cases[i].first, cases[i].second), cases[i].decision);
    }
}

static void a_conflict_is_explained_and_shows_nothing_else(void **state)
{
    (void)state;
    struct once_answer *grant = begin_key(once, "k", "{\"amount\":1,\"to\":\"x\"}");
    struct once_answer *sealed = seal_text(once, grant, "secret");
    struct once_answer *conflict = begin_key(once, "k", "{\"amount\":2,\"to\":\"x\"}");
    assert_int_equal(conflict->decision, ONCE_CONFLICT_REJECTED);
    assert_null(conflict->operation);
    assert_int_equal(conflict->fence, 0);
    assert_string_equal(conflict->diff, "[{\"op\":\"replace\",\"path\":\"/amount\",\"value\":2}]");
    assert_false(conflict->diff_truncated);
    struct once_answer *raw = begin_key(once, "k", "not json");
    assert_int_equal(raw->decision, ONCE_CONFLICT_REJECTED);
    assert_null(raw->diff);
    once_answer_free(once, raw);
    free_all(grant, sealed, conflict);
}

static void a_caller_may_bring_its_own_fingerprint(void **state)
{
    (void)state;
    unsigned char one[32] = {1};
    unsigned char two[32] = {2};
    struct once_answer *a = begin_with(once, &(struct once_begin){.key = "k", .fingerprint = one});
    struct once_answer *b = begin_with(once, &(struct once_begin){.key = "k", .fingerprint = one});
    struct once_answer *c = begin_with(once, &(struct once_begin){.key = "k", .fingerprint = two});
    assert_int_equal(a->decision, ONCE_FIRST_SEEN);
    assert_int_equal(b->decision, ONCE_IN_PROGRESS);
    assert_int_equal(c->decision, ONCE_CONFLICT_REJECTED);
    assert_memory_not_equal(a->operation->fingerprint, one, sizeof one); /* keyed */
    free_all(a, b, c);
}

static void an_outcome_past_its_limit_is_sealed_without_its_bytes(void **state)
{
    (void)state;
    size_t size = (16u << 20) + 1;
    char *large = test_malloc(size);
    memset(large, 'x', size);
    struct once_answer *grant = begin_key(once, "k", "");
    struct once_seal seal = {.operation_id = grant->operation_id,
        .fence = grant->fence,
        .status = ONCE_EXECUTED,
        .outcome = {.code = 7, .body = {large, size}}};
    assert_int_equal(once_seal(once, &seal, NULL, NULL), ONCE_OK);
    assert_int_equal(once_seal(once, &seal, NULL, NULL), ONCE_OK); /* the same by its digest */
    struct once_answer *replay = begin_key(once, "k", "");
    assert_int_equal(replay->decision, ONCE_DUPLICATE_REPLAYED);
    assert_false(replay->operation->outcome_retained);
    assert_null(replay->operation->outcome.body.data);
    assert_int_equal(replay->operation->outcome.body.size, size);
    assert_int_equal(replay->operation->outcome.code, 7);

    /* The largest that is kept, comes back whole. */
    struct once_answer *second = begin_key(once, "k2", "");
    seal.operation_id = second->operation_id;
    seal.fence = second->fence;
    seal.outcome.body.size = size - 1;
    assert_int_equal(once_seal(once, &seal, NULL, NULL), ONCE_OK);
    struct once_operation *whole = get_one(once, second->operation_id);
    assert_true(whole->outcome_retained);
    assert_memory_equal(whole->outcome.body.data, large, size - 1);
    once_operation_free(once, whole);
    test_free(large);
    free_all(grant, replay, second);
}

static void a_first_payload_past_its_limit_is_compared_but_not_kept(void **state)
{
    (void)state;
    size_t size = (64u << 10) + 1;
    char *large = test_malloc(size + 1);
    memset(large, 'x', size);
    large[size] = '\0';
    struct once_answer *grant = begin_key(once, "k", large);
    struct once_answer *again = begin_key(once, "k", large);
    assert_int_equal(again->decision, ONCE_IN_PROGRESS);
    large[size - 1] = 'y';
    struct once_answer *other = begin_key(once, "k", large);
    assert_int_equal(other->decision, ONCE_CONFLICT_REJECTED);
    struct once_operation *kept = get_one(once, grant->operation_id);
    assert_int_equal(kept->request.size, 0);
    once_operation_free(once, kept);
    test_free(large);
    free_all(grant, again, other);
}

/* ---- waiting ------------------------------------------------------------------------------- */

static void *seal_soon(void *context)
{
    const struct once_answer *grant = context;
    sleep_ms(50);
    struct once_seal seal = {.operation_id = grant->operation_id,
        .fence = grant->fence,
        .status = ONCE_EXECUTED,
        .outcome = {.body = {"soon", 4}}};
    return once_seal(once, &seal, NULL, NULL) == ONCE_OK ? NULL : context;
}

static void a_duplicate_may_wait_for_the_replay(void **state)
{
    (void)state;
    struct once_answer *grant = begin_key(once, "k", "");
    struct once_answer *now = begin_key(once, "k", "");
    assert_int_equal(now->decision, ONCE_IN_PROGRESS);
    assert_true(now->retry_after_ms >= 100 && now->retry_after_ms <= 1000);
    pthread_t thread;
    void *failed;
    assert_int_equal(pthread_create(&thread, NULL, seal_soon, grant), 0);
    struct once_answer *replay =
        begin_with(once, &(struct once_begin){.scope = "test", .key = "k", .wait_ms = 20000});
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    assert_int_equal(replay->decision, ONCE_DUPLICATE_REPLAYED);
    assert_memory_equal(replay->operation->outcome.body.data, "soon", 4);
    free_all(grant, now, replay);
}

static void waiting_ends_with_its_time(void **state)
{
    (void)state;
    struct once_answer *grant = begin_key(once, "k", "");
    struct once_answer *late =
        begin_with(once, &(struct once_begin){.scope = "test", .key = "k", .wait_ms = 30});
    assert_int_equal(late->decision, ONCE_IN_PROGRESS);
    struct once_operation *operation;
    assert_int_equal(once_wait(once, grant->operation_id, 30, &operation, NULL), ONCE_OK);
    assert_int_equal(operation->status, ONCE_STATUS_IN_PROGRESS);
    once_operation_free(once, operation);
    free_all(grant, late, NULL);
}

static void an_operation_can_be_waited_for(void **state)
{
    (void)state;
    struct once_answer *grant = begin_key(once, "k", "");
    struct once_operation *operation;
    pthread_t thread;
    void *failed;
    assert_int_equal(pthread_create(&thread, NULL, seal_soon, grant), 0);
    assert_int_equal(once_wait(once, grant->operation_id, 20000, &operation, NULL), ONCE_OK);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    assert_int_equal(operation->status, ONCE_EXECUTED);
    once_operation_free(once, operation);
    assert_int_equal(
        once_wait(once, "op_00000000-0000-7000-8000-000000000000", 1000, &operation, NULL),
        ONCE_OK);
    assert_null(operation);
    once_answer_free(once, grant);
}

static void waiting_notices_a_lease_that_ends(void **state)
{
    (void)state;
    struct once_answer *grant = begin_with(once, &(struct once_begin){.key = "k", .lease_ms = 50});
    struct once_operation *operation;
    assert_int_equal(once_wait(once, grant->operation_id, 20000, &operation, NULL), ONCE_OK);
    assert_int_equal(operation->status, ONCE_STATUS_UNKNOWN);
    once_operation_free(once, operation);
    once_answer_free(once, grant);
}

/* ---- looking ------------------------------------------------------------------------------- */

struct seen {
    size_t count;
    size_t stop_after; /* 0: never */
    char last[40];
};

static int count_operation(void *context, const struct once_operation *operation)
{
    struct seen *seen = context;
    struct once_operation *same = get_one(once, operation->operation_id); /* a visitor may look */
    assert_string_equal(same->key, operation->key);
    once_operation_free(once, same);
    assert_null(operation->outcome.body.data);
    assert_int_equal(operation->request.size, 0);
    assert_string_not_equal(seen->last, operation->operation_id);
    memcpy(seen->last, operation->operation_id, sizeof seen->last);
    seen->count++;
    return seen->count == seen->stop_after;
}

static size_t count_by(struct once_filter *filter, size_t stop_after)
{
    struct seen seen = {.stop_after = stop_after};
    struct once_error error;
    if (once_iterate(once, filter, count_operation, &seen, &error) != ONCE_OK) {
        fail_msg("iterate: %s", error.text);
    }
    return seen.count;
}

static void operations_are_listed_by_what_they_are(void **state)
{
    (void)state;
    enum { COUNT = 150 }; /* more than two pages */
    for (int i = 0; i < COUNT; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "k%d", i);
        struct once_answer *grant = begin_with(
            once, &(struct once_begin){
                      .scope = i % 3 == 0 ? "third" : "rest", .key = key, .payload = {"p", 1}});
        if (i % 2 == 0) {
            once_answer_free(once, seal_text(once, grant, "done"));
        }
        once_answer_free(once, grant);
    }
    assert_int_equal(count_by(NULL, 0), COUNT);
    assert_int_equal(count_by(&(struct once_filter){.scope = "third"}, 0), COUNT / 3);
    assert_int_equal(count_by(&(struct once_filter){.status = ONCE_EXECUTED}, 0), COUNT / 2);
    assert_int_equal(count_by(&(struct once_filter){.key = "k7"}, 0), 1);
    assert_int_equal(count_by(&(struct once_filter){.limit = 70}, 0), 70);
    assert_int_equal(count_by(&(struct once_filter){.limit = 64}, 0), 64);
    assert_int_equal(count_by(NULL, 3), 3);
    assert_int_equal(count_by(&(struct once_filter){.updated_until_ms = 1}, 0), 0);
    assert_int_equal(count_by(&(struct once_filter){.updated_from_ms = 1}, 0), COUNT);
}

static int count_entry(void *context, const struct once_entry *entry)
{
    struct seen *seen = context;
    seen->count++;
    assert_int_equal(entry->seq, seen->count); /* dense */
    assert_true(entry->json.size > 2);
    assert_true(entry->time_ms > 0);
    return seen->count == seen->stop_after;
}

static int count_only(void *context, const struct once_entry *entry)
{
    (void)entry;
    ++*(size_t *)context;
    return 0;
}

static void every_decision_leaves_evidence(void **state)
{
    (void)state;
    enum { PAIRS = 100 }; /* more than a page of entries */
    char first[40] = "";
    for (int i = 0; i < PAIRS; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "k%d", i);
        struct once_answer *grant = begin_key(once, key, "p");
        struct once_answer *sealed = seal_text(once, grant, "done");
        if (i == 0) {
            memcpy(first, grant->operation_id, sizeof first);
        }
        free_all(grant, sealed, begin_key(once, key, "p"));
    }
    struct seen seen = {0};
    assert_int_equal(once_evidence(once, NULL, 0, count_entry, &seen, NULL), ONCE_OK);
    assert_int_equal(seen.count, 3 * PAIRS);
    size_t count = 0;
    assert_int_equal(once_evidence(once, first, 0, count_only, &count, NULL), ONCE_OK);
    assert_int_equal(count, 3);
    count = 0;
    assert_int_equal(once_evidence(once, NULL, 290, count_only, &count, NULL), ONCE_OK);
    assert_int_equal(count, 10);
    seen = (struct seen){.stop_after = 5};
    assert_int_equal(once_evidence(once, NULL, 0, count_entry, &seen, NULL), ONCE_OK);
    assert_int_equal(seen.count, 5);
}

/* ---- without blocking ---------------------------------------------------------------------- */

struct done {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int count;
    int result;
    struct once_answer *answer;
};

static void note_done(
    void *context, int result, struct once_answer *answer, const struct once_error *error)
{
    struct done *done = context;
    (void)pthread_mutex_lock(&done->lock);
    done->count++;
    done->result = result == error->result ? result : 1;
    done->answer = answer;
    (void)pthread_cond_signal(&done->changed);
    (void)pthread_mutex_unlock(&done->lock);
}

static struct once_answer *submit_and_wait(const struct once_call *call)
{
    struct done done = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, NULL};
    struct once_error error;
    if (once_submit(once, call, note_done, &done, &error) != ONCE_OK) {
        fail_msg("submit: %s", error.text);
    }
    (void)pthread_mutex_lock(&done.lock);
    while (done.count == 0) {
        (void)pthread_cond_wait(&done.changed, &done.lock);
    }
    (void)pthread_mutex_unlock(&done.lock);
    assert_int_equal(done.count, 1);
    assert_int_equal(done.result, ONCE_OK);
    return done.answer;
}

static void every_call_can_be_submitted(void **state)
{
    (void)state;
    struct once_begin begin = {.key = "k", .payload = {"{}", 2}};
    struct once_answer *grant = submit_and_wait(&(struct once_call){.begin = &begin});
    assert_int_equal(grant->decision, ONCE_FIRST_SEEN);
    struct once_hold hold = {.operation_id = grant->operation_id, .fence = grant->fence};
    struct once_answer *renewed = submit_and_wait(&(struct once_call){.renew = &hold});
    assert_int_equal(renewed->decision, ONCE_RENEWED);
    struct once_answer *unknown = submit_and_wait(&(struct once_call){.unknown = &hold});
    assert_int_equal(unknown->decision, ONCE_MARKED_UNKNOWN);
    struct once_resolve resolve = {
        .operation_id = grant->operation_id, .status = ONCE_STATUS_RELEASED, .reason = "looked"};
    struct once_answer *resolved = submit_and_wait(&(struct once_call){.resolve = &resolve});
    assert_int_equal(resolved->decision, ONCE_RESOLVED);
    struct once_answer *again = submit_and_wait(&(struct once_call){.begin = &begin});
    struct once_seal seal = {.operation_id = again->operation_id,
        .fence = again->fence,
        .status = ONCE_EXECUTED,
        .outcome = {.body = {"done", 4}}};
    struct once_answer *sealed = submit_and_wait(&(struct once_call){.seal = &seal});
    assert_int_equal(sealed->decision, ONCE_SEALED);
    begin.payload = (struct once_bytes){"[]", 2};
    struct once_answer *conflict = submit_and_wait(&(struct once_call){.begin = &begin});
    assert_int_equal(conflict->decision, ONCE_CONFLICT_REJECTED);
    assert_non_null(conflict->diff);
    free_all(grant, renewed, unknown);
    free_all(resolved, again, sealed);
    once_answer_free(once, conflict);
}

static void what_is_submitted_was_copied(void **state)
{
    (void)state;
    enum { COUNT = 64 };
    struct done done = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, NULL};
    struct once_answer *first = begin_key(once, "x", "payload");
    for (int i = 0; i < COUNT; i++) {
        char *key = test_malloc(2);
        char *payload = test_malloc(7);
        memcpy(key, "x", 2);
        memcpy(payload, "payload", 7);
        struct once_begin begin = {.scope = "test", .key = key, .payload = {payload, 7}};
        struct once_call call = {.begin = &begin};
        (void)pthread_mutex_lock(&done.lock);
        int before = done.count;
        (void)pthread_mutex_unlock(&done.lock);
        assert_int_equal(once_submit(once, &call, note_done, &done, NULL), ONCE_OK);
        memset(key, '!', 1);
        memset(payload, '!', 7);
        test_free(key);
        test_free(payload);
        (void)pthread_mutex_lock(&done.lock);
        while (done.count == before) {
            (void)pthread_cond_wait(&done.changed, &done.lock);
        }
        (void)pthread_mutex_unlock(&done.lock);
        assert_int_equal(done.answer->decision, ONCE_IN_PROGRESS);
        once_answer_free(once, done.answer);
    }
    once_answer_free(once, first);
}

/* ---- what callers get wrong ---------------------------------------------------------------- */

static char long_text[2 + (16 << 10)];

static void refused(const struct once_call *call, const char *text)
{
    struct once_error error;
    struct once_answer *answer = (struct once_answer *)&error;
    int result = 0;
    if (call->begin != NULL) {
        result = once_begin(once, call->begin, &answer, &error);
    } else if (call->seal != NULL) {
        result = once_seal(once, call->seal, &answer, &error);
    } else if (call->renew != NULL) {
        result = once_renew(once, call->renew, &answer, &error);
    } else if (call->release != NULL) {
        result = once_release(once, call->release, &answer, &error);
    } else if (call->resolve != NULL) {
        result = once_resolve(once, call->resolve, &answer, &error);
    }
    assert_string_equal(error.text, text);
    assert_int_equal(result, ONCE_E_INVALID);
    assert_int_equal(error.result, ONCE_E_INVALID);
    assert_null(answer);
    struct once_error again;
    assert_int_equal(once_submit(once, call, note_done, NULL, &again), ONCE_E_INVALID);
    assert_string_equal(again.text, text);
}

#define BEGIN(...)                                                                                 \
    &(struct once_call)                                                                            \
    {                                                                                              \
        .begin = &(struct once_begin)                                                              \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static void a_bad_begin_is_refused_by_name(void **state)
{
    (void)state;
    memset(long_text, 'k', sizeof long_text - 1);
    const char *long_key = long_text + sizeof long_text - 1 - 256;
    refused(BEGIN(.key = NULL), "key is missing");
    refused(BEGIN(.key = ""), "key is empty");
    refused(BEGIN(.key = long_key), "key is 256 bytes long, more than key_bytes_max (255)");
    refused(BEGIN(.key = "k", .scope = long_key),
        "scope is 256 bytes long, more than scope_bytes_max (255)");
    refused(BEGIN(.key = "k", .source = {.id = long_key}),
        "source.id is 256 bytes long, more than source_bytes_max (255)");
    refused(BEGIN(.key = "\xff"), "key is not valid UTF-8");
    refused(BEGIN(.key = "k", .request_id = "\xc0\x80"), "request_id is not valid UTF-8");
    refused(BEGIN(.key = "k", .ttl_ms = -1), "ttl_ms must be positive");
    refused(BEGIN(.key = "k", .ttl_ms = INT64_MAX),
        "ttl_ms is 9223372036854775807, more than window_ms_max (315360000000)");
    refused(BEGIN(.key = "k", .lease_ms = 9), "lease_ms is 9, less than lease_ms_min (10)");
    refused(BEGIN(.key = "k", .lease_ms = INT64_C(604800001)),
        "lease_ms is 604800001, more than lease_ms_max (604800000)");
    refused(BEGIN(.key = "k", .wait_ms = 60001), "wait_ms is 60001, more than wait_ms_max (60000)");
    refused(BEGIN(.key = "k", .on_unknown = (enum once_on_unknown)7),
        "on_unknown is 7, neither ONCE_HOLD nor ONCE_TAKEOVER");
    refused(BEGIN(.key = "k", .payload = {NULL, 3}), "payload has a size and no data");
    refused(BEGIN(.key = "k", .payload = {"x", 1}, .fingerprint = (const unsigned char *)long_text),
        "both payload and fingerprint are given");
    refused(BEGIN(.key = "k", .trace = "[]"), "trace: not a JSON object");
    refused(BEGIN(.key = "k", .trace = long_text),
        "trace and request_id are more than trace_bytes_max (2048)");
    refused(BEGIN(.key = "k", .request_id = long_text),
        "trace and request_id are more than trace_bytes_max (2048)");
}

static void a_bad_seal_is_refused_by_name(void **state)
{
    (void)state;
    struct once_answer *grant = begin_key(once, "k", "");
    struct once_seal seal = {.operation_id = grant->operation_id, .fence = grant->fence};
    struct once_call call = {.seal = &seal};
    refused(&call, "status is 0, none of ONCE_EXECUTED, ONCE_FAILED and ONCE_REJECTED");
    seal.status = ONCE_COMPENSATED;
    refused(&call, "status is 7, none of ONCE_EXECUTED, ONCE_FAILED and ONCE_REJECTED");
    seal.status = ONCE_EXECUTED;
    seal.fence = 0;
    refused(&call, "fence is 0, which is never granted");
    seal.fence = 1;
    seal.operation_id = NULL;
    refused(&call, "operation_id is missing");
    seal.operation_id = "op_1";
    refused(&call, "operation_id 'op_1' is not \"op_\" and a UUID");
    seal.operation_id = grant->operation_id;
    seal.outcome.meta = (struct once_bytes){long_text, (16 << 10) + 1};
    refused(&call, "outcome.meta is 16385 bytes long, more than outcome_meta_bytes_max (16384)");
    seal.outcome = (struct once_outcome){.body = {NULL, 1}};
    refused(&call, "outcome.body has a size and no data");
    once_answer_free(once, grant);
}

static void a_bad_resolve_or_hold_is_refused_by_name(void **state)
{
    (void)state;
    struct once_answer *grant = begin_key(once, "k", "");
    struct once_resolve resolve = {.operation_id = grant->operation_id};
    struct once_call call = {.resolve = &resolve};
    refused(&call, "status is 0, none of ONCE_EXECUTED, ONCE_FAILED and ONCE_STATUS_RELEASED");
    resolve.status = ONCE_STATUS_RELEASED;
    refused(&call, "reason is missing: say who looked where");
    resolve.reason = "looked";
    resolve.effect_id = "ch_1";
    refused(&call, "what was not executed has neither effect_id nor outcome");
    struct once_hold hold = {
        .operation_id = grant->operation_id, .fence = grant->fence, .lease_ms = -5};
    refused(&(struct once_call){.renew = &hold}, "lease_ms must be positive");
    hold.reason = long_text + sizeof long_text - 1 - 256;
    refused(&(struct once_call){.release = &hold},
        "reason is 256 bytes long, more than reason_bytes_max (255)");
    once_answer_free(once, grant);
}

static void misuse_is_said(void **state)
{
    (void)state;
    struct once_error error;
    struct once_answer *answer;
    struct once_operation *operation;
    assert_int_equal(once_begin(once, NULL, &answer, &error), ONCE_E_MISUSE);
    assert_string_equal(error.text, "nothing is asked: the request is NULL");
    assert_int_equal(
        once_begin(NULL, &(struct once_begin){.key = "k"}, &answer, &error), ONCE_E_MISUSE);
    assert_int_equal(
        once_begin(once, &(struct once_begin){.key = "k"}, NULL, &error), ONCE_E_MISUSE);
    assert_string_equal(error.text, "ret_answer is NULL: the grant would be lost");
    struct once_hold hold = {0};
    assert_int_equal(once_submit(once, &(struct once_call){.renew = &hold, .release = &hold},
                         note_done, NULL, &error),
        ONCE_E_MISUSE);
    assert_string_equal(error.text, "more than one member of the call is set");
    assert_int_equal(once_submit(once, NULL, note_done, NULL, &error), ONCE_E_MISUSE);
    assert_int_equal(once_iterate(once, NULL, NULL, NULL, &error), ONCE_E_MISUSE);
    assert_int_equal(once_evidence(once, NULL, 0, NULL, NULL, &error), ONCE_E_MISUSE);
    assert_int_equal(once_get(once, "nonsense", &operation, &error), ONCE_E_INVALID);
    assert_int_equal(once_get(once, NULL, &operation, &error), ONCE_E_INVALID);
    assert_int_equal(once_lookup(once, "", "", "", &operation, &error), ONCE_E_INVALID);
    assert_string_equal(error.text, "key is empty");
    assert_int_equal(once_wait(once, "op_x", -1, &operation, &error), ONCE_E_INVALID);
    assert_int_equal(once_iterate(once, &(struct once_filter){.status = (enum once_status)9},
                         count_operation, NULL, &error),
        ONCE_E_INVALID);
    once_answer_free(once, NULL);
    once_operation_free(once, NULL);
    assert_int_equal(once_close(NULL, NULL), ONCE_OK);
}

static void a_store_that_cannot_be_opened_says_why(void **state)
{
    (void)state;
    struct once *other = (struct once *)&place;
    struct once_error error;
    assert_int_equal(
        once_open(&(struct once_options){.store = "nosuch:x"}, &other, &error), ONCE_E_INVALID);
    assert_true(error.text[0] != '\0');
    assert_null(other);
    assert_int_equal(
        once_open(&(struct once_options){.store = "mem:", .lock_wait_ms = -1}, &other, &error),
        ONCE_E_INVALID);
    assert_int_equal(
        once_open(&(struct once_options){.store = "mem:", .tenant = "\xff"}, &other, &error),
        ONCE_E_INVALID);
    assert_string_equal(error.text, "tenant is not valid UTF-8");
    assert_int_equal(once_open(NULL, NULL, &error), ONCE_E_MISUSE);
}

static void everything_has_a_name(void **state)
{
    (void)state;
    assert_string_equal(once_decision_name(ONCE_FIRST_SEEN), "first_seen");
    assert_string_equal(once_decision_name(ONCE_STILL_RUNNING), "still_running");
    assert_string_equal(once_status_name(ONCE_COMPENSATED), "compensated");
    assert_string_equal(once_status_name((enum once_status)99), "unnamed");
    assert_string_equal(once_result_name(ONCE_E_UNAVAILABLE), "unavailable");
    assert_string_equal(once_result_name(12), "unnamed");
    assert_string_equal(once_version(), ONCE_VERSION);
}

/* ---- what only a store on disk can show ---------------------------------------------------- */

static bool on_disk(void)
{
    return strcmp(store_kind, "mem") != 0;
}

static void reopen(const char *tenant)
{
    close_once(once);
    once = open_url(place.url, tenant);
}

static void a_replay_survives_closing_and_opening(void **state)
{
    (void)state;
    if (!on_disk()) {
        skip();
    }
    struct once_answer *grant = begin_key(once, "k", "pay");
    struct once_answer *sealed = seal_text(once, grant, "first");
    uint64_t fence = grant->fence;
    free_all(grant, sealed, NULL);
    reopen(NULL);
    struct once_answer *replay = begin_key(once, "k", "pay");
    assert_int_equal(replay->decision, ONCE_DUPLICATE_REPLAYED);
    assert_memory_equal(replay->operation->outcome.body.data, "first", 5);
    struct once_answer *next = begin_key(once, "k2", "pay");
    assert_true(next->fence > fence);
    free_all(replay, next, NULL);
}

static void another_tenant_sees_nothing(void **state)
{
    (void)state;
    if (!on_disk()) {
        skip();
    }
    struct once_answer *grant = begin_key(once, "k", "pay");
    char id[40];
    uint64_t fence = grant->fence;
    memcpy(id, grant->operation_id, sizeof id);
    once_answer_free(once, grant);
    reopen("other");
    struct once_answer *own = begin_key(once, "k", "another payload");
    assert_int_equal(own->decision, ONCE_FIRST_SEEN);
    assert_null(get_one(once, id));
    struct once_answer *answer;
    struct once_seal seal = {.operation_id = id, .fence = fence, .status = ONCE_EXECUTED};
    assert_int_equal(once_seal(once, &seal, &answer, NULL), ONCE_OK);
    assert_int_equal(answer->decision, ONCE_NOT_FOUND);
    assert_null(answer->operation);
    assert_int_equal(count_by(NULL, 0), 1);
    size_t count = 0;
    assert_int_equal(once_evidence(once, NULL, 0, count_only, &count, NULL), ONCE_OK);
    assert_int_equal(count, 2); /* the own begin, and the seal that found nothing */
    free_all(own, answer, NULL);
    reopen(NULL);
    struct once_operation *operation = get_one(once, id);
    assert_int_equal(operation->status, ONCE_STATUS_IN_PROGRESS);
    once_operation_free(once, operation);
}

static void a_read_only_handle_looks_and_does_nothing_else(void **state)
{
    (void)state;
    if (!on_disk()) {
        skip();
    }
    struct once_answer *grant = begin_key(once, "k", "pay");
    struct once_answer *sealed = seal_text(once, grant, "body");
    struct once *reader;
    struct once_error error;
    struct once_options options = {.store = place.url, .read_only = 1};
    if (once_open(&options, &reader, &error) != ONCE_OK) {
        fail_msg("read-only: %s", error.text);
    }
    struct once_operation *operation = get_one(reader, grant->operation_id);
    assert_non_null(operation);
    assert_memory_equal(operation->outcome.body.data, "body", 4);
    once_operation_free(reader, operation);
    size_t count = 0;
    assert_int_equal(once_evidence(reader, NULL, 0, count_only, &count, NULL), ONCE_OK);
    assert_int_equal(count, 2);
    assert_int_equal(once_lookup(reader, "test", NULL, "k", &operation, NULL), ONCE_OK);
    assert_string_equal(operation->operation_id, grant->operation_id);
    once_operation_free(reader, operation);
    struct once_answer *answer;
    assert_int_equal(
        once_begin(reader, &(struct once_begin){.key = "x"}, &answer, &error), ONCE_E_MISUSE);
    assert_string_equal(error.text, "the store was opened read-only");
    assert_int_equal(once_wait(reader, grant->operation_id, 1, &operation, NULL), ONCE_E_MISUSE);
    close_once(reader);
    free_all(grant, sealed, NULL);
}

static void a_second_writer_is_told_who_has_the_store(void **state)
{
    (void)state;
    if (!on_disk()) {
        skip();
    }
    struct once *second;
    struct once_error error;
    struct once_options options = {.store = place.url};
    assert_int_equal(once_open(&options, &second, &error), ONCE_E_UNAVAILABLE);
    assert_non_null(strstr(error.text, "in use by"));
    options = (struct once_options){.store = "journal:/tmp/once-lib-none/x", .must_exist = 1};
    assert_int_equal(once_open(&options, &second, &error), ONCE_E_UNAVAILABLE);
    options = (struct once_options){.store = "journal:/tmp/once-lib-none/x", .read_only = 1};
    assert_int_equal(once_open(&options, &second, &error), ONCE_E_UNAVAILABLE);
}

/* ---- memory -------------------------------------------------------------------------------- */

struct counted {
    pthread_mutex_t lock;
    long live;
    long total;
};

static void *counted_resize(void *context, void *pointer, size_t size)
{
    struct counted *counted = context;
    void *result = NULL;
    if (size == 0) {
        free(pointer);
    } else {
        result = realloc(pointer, size);
    }
    (void)pthread_mutex_lock(&counted->lock);
    counted->live += size == 0 ? -1 : pointer == NULL ? 1 : 0;
    counted->total++;
    (void)pthread_mutex_unlock(&counted->lock);
    return result;
}

static void all_memory_comes_from_the_given_allocator(void **state)
{
    (void)state;
    struct place own;
    struct counted counted = {PTHREAD_MUTEX_INITIALIZER, 0, 0};
    place_init(&own);
    struct once_options options = {
        .store = own.url, .resize = counted_resize, .resize_context = &counted};
    struct once *other;
    assert_int_equal(once_open(&options, &other, NULL), ONCE_OK);
    struct once_answer *grant = begin_key(other, "k", "{}");
    long before = counted.total;
    struct once_answer *sealed = seal_text(other, grant, "x");
    assert_true(counted.total > before);
    once_answer_free(other, grant);
    once_answer_free(other, sealed);
    close_once(other);
    assert_int_equal(counted.live, 0);
    place_release(&own);
}

#define ON_STORE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
    store_kind = argc > 1 ? argv[1] : store_kind;
    const struct CMUnitTest tests[] = {
        ON_STORE(a_first_begin_is_granted),
        ON_STORE(a_duplicate_gets_the_first_outcome),
        ON_STORE(the_same_seal_again_is_repeated_and_another_refused),
        ON_STORE(another_fence_changes_nothing),
        ON_STORE(renewing_extends_the_lease),
        ON_STORE(unknown_is_held_until_somebody_looked),
        ON_STORE(not_executed_frees_the_key_again),
        ON_STORE(a_lease_that_ended_is_held_or_taken_over),
        ON_STORE(failed_and_rejected_may_be_tried_again_when_asked),
        ON_STORE(a_window_that_ended_starts_anew),
        ON_STORE(json_is_compared_by_value_and_all_else_by_bytes),
        ON_STORE(a_conflict_is_explained_and_shows_nothing_else),
        ON_STORE(a_caller_may_bring_its_own_fingerprint),
        ON_STORE(an_outcome_past_its_limit_is_sealed_without_its_bytes),
        ON_STORE(a_first_payload_past_its_limit_is_compared_but_not_kept),
        ON_STORE(a_duplicate_may_wait_for_the_replay),
        ON_STORE(waiting_ends_with_its_time),
        ON_STORE(an_operation_can_be_waited_for),
        ON_STORE(waiting_notices_a_lease_that_ends),
        ON_STORE(operations_are_listed_by_what_they_are),
        ON_STORE(every_decision_leaves_evidence),
        ON_STORE(every_call_can_be_submitted),
        ON_STORE(what_is_submitted_was_copied),
        ON_STORE(a_bad_begin_is_refused_by_name),
        ON_STORE(a_bad_seal_is_refused_by_name),
        ON_STORE(a_bad_resolve_or_hold_is_refused_by_name),
        ON_STORE(misuse_is_said),
        ON_STORE(a_store_that_cannot_be_opened_says_why),
        ON_STORE(everything_has_a_name),
        ON_STORE(a_replay_survives_closing_and_opening),
        ON_STORE(another_tenant_sees_nothing),
        ON_STORE(a_read_only_handle_looks_and_does_nothing_else),
        ON_STORE(a_second_writer_is_told_who_has_the_store),
        ON_STORE(all_memory_comes_from_the_given_allocator),
    };
    return cmocka_run_group_tests_name("lib", tests, NULL, NULL);
}
