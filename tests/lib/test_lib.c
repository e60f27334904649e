#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/lib_help.h"

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
    free_answers(grant, sealed, replay);
}

static void assert_same_replay(const struct once_answer *one, const struct once_answer *two)
{
    const struct once_operation *a = one->operation;
    const struct once_operation *b = two->operation;
    assert_int_equal(one->decision, ONCE_DUPLICATE_REPLAYED);
    assert_int_equal(two->decision, ONCE_DUPLICATE_REPLAYED);
    assert_string_equal(a->operation_id, b->operation_id);
    assert_string_equal(a->effect_id, b->effect_id);
    assert_int_equal(a->status, b->status);
    assert_true(a->created_ms == b->created_ms && a->sealed_ms == b->sealed_ms);
    assert_true(a->window_expires_ms == b->window_expires_ms);
    assert_int_equal(a->outcome.code, b->outcome.code);
    assert_int_equal(a->outcome.meta.size, b->outcome.meta.size);
    assert_memory_equal(a->outcome.meta.data, b->outcome.meta.data, a->outcome.meta.size);
    assert_int_equal(a->outcome.body.size, b->outcome.body.size);
    assert_memory_equal(a->outcome.body.data, b->outcome.body.data, a->outcome.body.size);
    assert_true(b->duplicates > a->duplicates); /* and this is all that moves */
}

/* IDS-11, OPS-4: and the seal may keep it longer than the begin said (OPS-3). */
static void every_replay_says_the_same_for_as_long_as_the_seal_said(void **state)
{
    (void)state;
    const int64_t week_ms = INT64_C(604800000);
    struct once_begin begin = {.key = "k", .payload = {"{}", 2}, .ttl_ms = 20};
    struct once_answer *grant = begin_with(once, &begin);
    struct once_seal seal = {.operation_id = grant->operation_id,
        .fence = grant->fence,
        .status = ONCE_EXECUTED,
        .effect_id = "ch_1",
        .outcome = {.code = 201, .meta = {"m", 1}, .body = {"receipt", 7}},
        .ttl_ms = week_ms};
    assert_int_equal(once_seal(once, &seal, NULL, NULL), ONCE_OK);
    struct once_answer *first = begin_with(once, &begin);
    sleep_ms(60); /* the begin's own window would be over */
    struct once_answer *again = begin_with(once, &begin);
    assert_same_replay(first, again);
    assert_string_equal(again->operation_id, grant->operation_id);
    assert_string_equal(again->operation->effect_id, "ch_1");
    assert_true(again->operation->window_expires_ms == again->operation->sealed_ms + week_ms);
    free_answers(grant, first, again);
}

/* IDS-10: a stable answer with the id to ask with. */
static void a_duplicate_of_what_runs_hears_the_same_each_time(void **state)
{
    (void)state;
    struct once_answer *grant = begin_key(once, "k", "pay");
    for (int i = 0; i < 3; i++) {
        struct once_answer *running = begin_key(once, "k", "pay");
        assert_int_equal(running->decision, ONCE_IN_PROGRESS);
        assert_string_equal(running->rule, "B3");
        assert_string_equal(running->operation_id, grant->operation_id);
        assert_int_equal(running->fence, 0); /* nothing to seal with */
        assert_int_equal(running->attempt, 1);
        assert_true(running->retry_after_ms > 0);
        struct once_operation *asked = get_one(once, running->operation_id);
        assert_int_equal(asked->status, ONCE_STATUS_IN_PROGRESS);
        once_operation_free(once, asked);
        once_answer_free(once, running);
    }
    once_answer_free(once, grant);
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
    free_answers(first, again, other);
    free_answers(grant, replay, NULL);
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
    free_answers(grant, second, late);
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
    free_answers(grant, renewed, NULL);
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
    free_answers(grant, answer, held);
    free_answers(resolved, replay, NULL);
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
    free_answers(grant, running, again);
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
    free_answers(grant, held, taken);
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
        free_answers(grant, replay, again);
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
    free_answers(grant, sealed, fresh);
}

/* ---- payloads ------------------------------------------------------------------------------ */

static enum once_decision second_payload(const char *key, const char *first, const char *second)
{
    struct once_answer *a = begin_key(once, key, first);
    struct once_answer *b = begin_key(once, key, second);
    assert_int_equal(a->decision, ONCE_FIRST_SEEN);
    enum once_decision decision = b->decision;
    free_answers(a, b, NULL);
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
    free_answers(grant, sealed, conflict);
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
    free_answers(a, b, c);
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
    free_answers(grant, replay, second);
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
    free_answers(grant, again, other);
}

/* ---- what only a store on disk can show ---------------------------------------------------- */

static bool on_disk(void)
{
    return strcmp(store_kind, "mem") != 0;
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
    free_answers(grant, sealed, NULL);
    reopen_place(NULL);
    struct once_answer *replay = begin_key(once, "k", "pay");
    assert_int_equal(replay->decision, ONCE_DUPLICATE_REPLAYED);
    assert_memory_equal(replay->operation->outcome.body.data, "first", 5);
    struct once_answer *next = begin_key(once, "k2", "pay");
    assert_true(next->fence > fence);
    free_answers(replay, next, NULL);
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
    reopen_place("other");
    struct once_answer *own = begin_key(once, "k", "another payload");
    assert_int_equal(own->decision, ONCE_FIRST_SEEN);
    assert_null(get_one(once, id));
    struct once_answer *answer;
    struct once_seal seal = {.operation_id = id, .fence = fence, .status = ONCE_EXECUTED};
    assert_int_equal(once_seal(once, &seal, &answer, NULL), ONCE_OK);
    assert_int_equal(answer->decision, ONCE_NOT_FOUND);
    assert_null(answer->operation);
    size_t count = 0;
    assert_int_equal(once_iterate(once, NULL, count_operation, &count, NULL), ONCE_OK);
    assert_int_equal(count, 1);
    count = 0;
    assert_int_equal(once_evidence(once, NULL, NULL, count_entry, &count, NULL), ONCE_OK);
    assert_int_equal(count, 2); /* the own begin, and the seal that found nothing */
    free_answers(own, answer, NULL);
    reopen_place(NULL);
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
    assert_int_equal(once_evidence(reader, NULL, NULL, count_entry, &count, NULL), ONCE_OK);
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
    free_answers(grant, sealed, NULL);
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

int main(int argc, char **argv)
{
    store_kind = argc > 1 ? argv[1] : store_kind;
    const struct CMUnitTest tests[] = {
        ON_STORE(a_first_begin_is_granted),
        ON_STORE(a_duplicate_gets_the_first_outcome),
        ON_STORE(every_replay_says_the_same_for_as_long_as_the_seal_said),
        ON_STORE(a_duplicate_of_what_runs_hears_the_same_each_time),
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
        ON_STORE(a_replay_survives_closing_and_opening),
        ON_STORE(another_tenant_sees_nothing),
        ON_STORE(a_read_only_handle_looks_and_does_nothing_else),
        ON_STORE(a_second_writer_is_told_who_has_the_store),
        ON_STORE(all_memory_comes_from_the_given_allocator),
    };
    return cmocka_run_group_tests_name("lib", tests, NULL, NULL);
}
