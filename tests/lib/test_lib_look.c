#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "lib/lib_help.h"

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
    free_answers(grant, now, replay);
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
    free_answers(grant, late, NULL);
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
    char cursor[64]; /* of entry 290 */
};

static int check_operation(void *context, const struct once_operation *operation)
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
    if (once_iterate(once, filter, check_operation, &seen, &error) != ONCE_OK) {
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

static int check_entry(void *context, const struct once_entry *entry)
{
    struct seen *seen = context;
    seen->count++;
    assert_int_equal(entry->seq, seen->count); /* dense */
    assert_true(entry->json.size > 2);
    assert_true(entry->time_ms > 0);
    if (entry->seq == 290) {
        (void)snprintf(seen->cursor, sizeof seen->cursor, "%s", entry->cursor);
    }
    return seen->count == seen->stop_after;
}

static int ignore_entry(void *context, const struct once_entry *entry)
{
    (void)context;
    (void)entry;
    return 0;
}

static void a_cursor_of_a_different_store_is_refused(void **state)
{
    (void)state;
    struct once_error error = {0};
    free_answers(begin_key(once, "k", "p"), NULL, NULL);
    static const char *const wrong[] = {
        "1", "=", "AQ", "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "AgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(
            once_evidence(once, NULL, wrong[i], ignore_entry, NULL, &error), ONCE_E_INVALID);
        bool chain = wrong[i][1] == 'Q' && wrong[i][2] != '\0';
        assert_non_null(strstr(error.text, chain ? "a different chain" : "not a cursor"));
    }
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
        free_answers(grant, sealed, begin_key(once, key, "p"));
    }
    struct seen seen = {0};
    assert_int_equal(once_evidence(once, NULL, NULL, check_entry, &seen, NULL), ONCE_OK);
    assert_int_equal(seen.count, 3 * PAIRS);
    size_t count = 0;
    assert_int_equal(once_evidence(once, first, NULL, count_entry, &count, NULL), ONCE_OK);
    assert_int_equal(count, 3);
    count = 0;
    assert_int_equal(once_evidence(once, NULL, seen.cursor, count_entry, &count, NULL), ONCE_OK);
    assert_int_equal(count, 10);
    seen = (struct seen){.stop_after = 5};
    assert_int_equal(once_evidence(once, NULL, NULL, check_entry, &seen, NULL), ONCE_OK);
    assert_int_equal(seen.count, 5);
}

/* ---- what evidence says -------------------------------------------------------------------- */

enum { ENTRIES_KEPT = 5, ENTRY_TEXT_BYTES = 2048 };

struct kept_entries {
    size_t count;
    char text[ENTRIES_KEPT][ENTRY_TEXT_BYTES];
};

static int keep_entry(void *context, const struct once_entry *entry)
{
    struct kept_entries *kept = context;
    assert_true(kept->count < ENTRIES_KEPT && entry->json.size < ENTRY_TEXT_BYTES);
    memcpy(kept->text[kept->count], entry->json.data, entry->json.size);
    kept->text[kept->count++][entry->json.size] = '\0';
    return 0;
}

static void assert_says(const char *entry, const char *part)
{
    if (strstr(entry, part) == NULL) {
        fail_msg("%s is not in %s", part, entry);
    }
}

/* The 64 digits behind a member's name. */
static void digits_of(const char *entry, const char *member, char ret_digits[65])
{
    const char *at = strstr(entry, member);
    assert_non_null(at);
    (void)snprintf(ret_digits, 65, "%.64s", at + strlen(member));
    assert_int_equal(strspn(ret_digits, "0123456789abcdef"), 64);
}

/* IDS-14 for each answer to a begin, and IDS-8 for the conflict. */
static void evidence_says_what_was_decided_and_about_what(void **state)
{
    (void)state;
    struct kept_entries kept = {0};
    struct once_answer *grant = begin_key(once, "k", "{\"a\":1}");
    struct once_answer *running = begin_key(once, "k", "{\"a\":1}");
    struct once_answer *sealed = seal_text(once, grant, "done");
    free_answers(running, sealed, begin_key(once, "k", "{\"a\":1}"));
    once_answer_free(once, begin_key(once, "k", "{\"a\":2}"));
    assert_int_equal(once_evidence(once, NULL, NULL, keep_entry, &kept, NULL), ONCE_OK);
    assert_int_equal(kept.count, ENTRIES_KEPT);

    static const struct {
        const char *type;
        const char *dedupe;
    } wanted[ENTRIES_KEPT] = {
        {"execution.started", "{\"decision\":\"first_seen\",\"executed\":true,"},
        {"observation.emitted", "{\"decision\":\"duplicate_replayed\",\"detail\":"
                                "\"in_progress\",\"executed\":false,"},
        {"execution.executed", NULL},
        {"observation.emitted", "{\"decision\":\"duplicate_replayed\",\"executed\":false,"},
        {"execution.rejected", "{\"decision\":\"conflict_rejected\",\"executed\":false,"},
    };
    for (size_t i = 0; i < ENTRIES_KEPT; i++) {
        char part[256];
        (void)snprintf(part, sizeof part, "\"type\":\"%s\",\"v\":2}", wanted[i].type);
        assert_says(kept.text[i], part);
        assert_says(kept.text[i], "\"idempotency_key\":\"k\"");
        (void)snprintf(part, sizeof part, "\"operation_id\":\"%s\"", grant->operation_id);
        assert_says(kept.text[i], part);
        if (wanted[i].dedupe != NULL) {
            (void)snprintf(part, sizeof part, "\"dedupe\":%s\"original_operation_id\":\"%s\"",
                wanted[i].dedupe, grant->operation_id);
            assert_says(kept.text[i], part);
        }
    }
    /* SHA-256 of "done": what was replayed can be told from the evidence alone. */
    assert_says(kept.text[3], "\"outcome_ref\":\"sha256:"
                              "a4c3ed04a95a3da14a9d235c83d868bed7c0f45cf7f3faa751ee8f50598d2211\"");
    char asked[65], stored[65], received[65];
    digits_of(kept.text[0], "\"fingerprint\":\"", asked);
    digits_of(kept.text[4], "\"stored_fingerprint\":\"", stored);
    digits_of(kept.text[4], "\"received_fingerprint\":\"", received);
    assert_string_equal(stored, asked);
    assert_string_not_equal(received, stored);
    assert_says(kept.text[4], "\"outcome\":{\"reason\":\"idempotency_conflict\",");
    once_answer_free(once, grant);
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
    free_answers(grant, renewed, unknown);
    free_answers(resolved, again, sealed);
    once_answer_free(once, conflict);
}

static int find_actor(void *context, const struct once_entry *entry)
{
    const char *json = entry->json.data;
    const char *actor = "\"actor\":\"alice\"";
    for (size_t at = 0; at + strlen(actor) <= entry->json.size; at++) {
        *(bool *)context |= memcmp(json + at, actor, strlen(actor)) == 0;
    }
    return 0;
}

/* The submitted begin waits for the first to be released, which is after its strings are gone. */
static void what_is_submitted_was_copied(void **state)
{
    (void)state;
    struct done done = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, NULL};
    struct once_answer *first = begin_key(once, "x", "payload");
    char *text = test_malloc(16);
    memcpy(text, "x\0payload\0alice", 16);
    struct once_begin begin = {.scope = "test",
        .key = text,
        .payload = {text + 2, 7},
        .actor = text + 10,
        .wait_ms = 20000};
    struct once_call call = {.begin = &begin};
    assert_int_equal(once_submit(once, &call, note_done, &done, NULL), ONCE_OK);
    memset(text, '!', 16);
    test_free(text);
    sleep_ms(20);
    struct once_hold hold = {.operation_id = first->operation_id, .fence = first->fence};
    assert_int_equal(once_release(once, &hold, NULL, NULL), ONCE_OK);
    (void)pthread_mutex_lock(&done.lock);
    while (done.count == 0) {
        (void)pthread_cond_wait(&done.changed, &done.lock);
    }
    (void)pthread_mutex_unlock(&done.lock);
    assert_int_equal(done.answer->decision, ONCE_FIRST_SEEN);
    bool found = false;
    assert_int_equal(
        once_evidence(once, first->operation_id, NULL, find_actor, &found, NULL), ONCE_OK);
    assert_true(found);
    free_answers(first, done.answer, NULL);
}

/* ---- the document -------------------------------------------------------------------------- */

static void expect_in_document(const char *operation_id, bool has_bodies, const char *part)
{
    struct once_operation *operation;
    struct once_bytes json = {0};
    assert_int_equal(once_get(once, operation_id, &operation, NULL), ONCE_OK);
    assert_int_equal(once_document(once, operation, has_bodies, &json, NULL), ONCE_OK);
    if (memmem(json.data, json.size, part, strlen(part)) == NULL) {
        fail_msg("%s is not in %.*s", part, (int)json.size, (const char *)json.data);
    }
    assert_null(memmem(json.data, json.size, "null", 4));
    once_document_free(once, json);
    once_operation_free(once, operation);
}

/* That it is the same byte for byte is in tests/cli/test_run_server.py. */
static void the_document_is_the_same_as_the_servers(void **state)
{
    (void)state;
    struct once_answer *text = begin_key(once, "text", "not JSON");
    struct once_answer *json = begin_key(once, "json", "{\"b\":1, \"a\":2}");
    expect_in_document(text->operation_id, true, ",\"request\":\"not JSON\"}");
    expect_in_document(json->operation_id, true, ",\"request\":{\"a\":2,\"b\":1}}");
    expect_in_document(json->operation_id, false, "\"status\":\"in_progress\",\"tenant\"");
    struct once_seal seal = {.operation_id = text->operation_id,
        .fence = text->fence,
        .status = ONCE_FAILED,
        .outcome = {.code = 3, .meta = {"m", 1}, .body = {"\xff", 1}}};
    assert_int_equal(once_seal(once, &seal, NULL, NULL), ONCE_OK);
    expect_in_document(text->operation_id, true,
        "\"outcome\":{\"code\":3,\"meta\":\"m\",\"body_base64\":\"/w==\"}");
    assert_int_equal(once_document(once, NULL, 0, NULL, NULL), ONCE_E_MISUSE);
    once_document_free(once, (struct once_bytes){0});
    free_answers(text, json, NULL);
}

int main(int argc, char **argv)
{
    store_kind = argc > 1 ? argv[1] : store_kind;
    const struct CMUnitTest tests[] = {
        ON_STORE(a_duplicate_may_wait_for_the_replay),
        ON_STORE(waiting_ends_with_its_time),
        ON_STORE(an_operation_can_be_waited_for),
        ON_STORE(waiting_notices_a_lease_that_ends),
        ON_STORE(operations_are_listed_by_what_they_are),
        ON_STORE(every_decision_leaves_evidence),
        ON_STORE(a_cursor_of_a_different_store_is_refused),
        ON_STORE(evidence_says_what_was_decided_and_about_what),
        ON_STORE(every_call_can_be_submitted),
        ON_STORE(what_is_submitted_was_copied),
        ON_STORE(the_document_is_the_same_as_the_servers),
    };
    return cmocka_run_group_tests_name("lib_look", tests, NULL, NULL);
}
