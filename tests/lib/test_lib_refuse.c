#include <stdio.h>
#include <string.h>

#include "lib/lib_help.h"

/* ---- what callers get wrong ---------------------------------------------------------------- */

/* None of these calls is accepted, so nothing may be called back. */
static void never_done(
    void *context, int result, struct once_answer *answer, const struct once_error *error)
{
    (void)context;
    (void)result;
    (void)answer;
    fail_msg("called back: %s", error->text);
}

static int never_visit(void *context, const struct once_operation *operation)
{
    (void)context;
    fail_msg("visited %s", operation->key);
    return 1;
}

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
    assert_int_equal(once_submit(once, call, never_done, NULL, &again), ONCE_E_INVALID);
    assert_string_equal(again.text, text);
}

static void a_bad_begin_is_refused_by_name(void **state)
{
    (void)state;
    memset(long_text, 'k', sizeof long_text - 1);
    const char *long_key = long_text + sizeof long_text - 1 - 256;
    const struct {
        struct once_begin begin;
        const char *text;
    } cases[] = {
        {{.key = NULL}, "key is empty"},
        {{.key = ""}, "key is empty"},
        {{.key = long_key}, "key is 256 bytes long, more than key_bytes_max (255)"},
        {{.key = "k", .scope = long_key},
            "scope is 256 bytes long, more than scope_bytes_max (255)"},
        {{.key = "k", .source = {.id = long_key}},
            "source.id is 256 bytes long, more than source_bytes_max (255)"},
        {{.key = "\xff"}, "key is not valid UTF-8: 0xff at byte 0"},
        {{.key = "a\x01"}, "key has the control character U+0001 at byte 1"},
        {{.key = "k", .scope = "s\n"}, "scope has the control character U+000A at byte 1"},
        {{.key = "k", .principal = "\x7f"}, "principal has the control character U+007F at byte 0"},
        {{.key = "k", .actor = "\x1b[0m"}, "actor has the control character U+001B at byte 0"},
        {{.key = "k", .source = {.type = "\t"}},
            "source.type has the control character U+0009 at byte 0"},
        {{.key = "k", .source = {.id = "\xc2\x85"}},
            "source.id has the control character U+0085 at byte 0"},
        {{.key = "k", .source = {.version = "1\r"}},
            "source.version has the control character U+000D at byte 1"},
        {{.key = "k", .request_id = "\xc0\x80"}, "request_id is not valid UTF-8"},
        {{.key = "k", .wait_ms = -1}, "wait is -1 ms; the least is 0 ms"},
        {{.key = "k", .ttl_ms = -1}, "ttl is -1 ms; the least is 1 ms"},
        {{.key = "k", .ttl_ms = INT64_MAX},
            "ttl is 9223372036854775807 ms; the most is 315360000000 ms (window_ms_max)"},
        {{.key = "k", .lease_ms = 9}, "lease is 9 ms; the least is 10 ms (lease_ms_min)"},
        {{.key = "k", .lease_ms = INT64_C(604800001)},
            "lease is 604800001 ms; the most is 604800000 ms (lease_ms_max)"},
        {{.key = "k", .wait_ms = 60001}, "wait is 60001 ms; the most is 60000 ms (wait_ms_max)"},
        {{.key = "k", .on_unknown = (enum once_on_unknown)7},
            "on_unknown is 7, neither ONCE_HOLD nor ONCE_TAKEOVER"},
        {{.key = "k", .payload = {NULL, 3}}, "payload has a size and no data"},
        {{.key = "k", .payload = {"x", 1}, .fingerprint = (const unsigned char *)long_text},
            "both payload and fingerprint are given"},
        {{.key = "k", .trace = "[]"}, "trace: not a JSON object"},
        {{.key = "k", .trace = long_text},
            "trace and request_id are more than trace_bytes_max (2048)"},
        {{.key = "k", .request_id = long_text},
            "trace and request_id are more than trace_bytes_max (2048)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        refused(&(struct once_call){.begin = &cases[i].begin}, cases[i].text);
    }
}

static void a_bad_seal_is_refused_by_name(void **state)
{
    (void)state;
    struct once_answer *grant = begin_key(once, "k", "");
    struct once_seal seal = {.operation_id = grant->operation_id, .fence = grant->fence};
    struct once_call call = {.seal = &seal};
    refused(&call, "status is 0; it must be ONCE_EXECUTED, ONCE_FAILED or ONCE_REJECTED");
    seal.status = ONCE_COMPENSATED;
    refused(&call, "status is 7; it must be ONCE_EXECUTED, ONCE_FAILED or ONCE_REJECTED");
    seal.status = ONCE_EXECUTED;
    seal.fence = 0;
    refused(&call, "fence is 0, which is never granted");
    seal.fence = 1;
    seal.operation_id = NULL;
    refused(&call, "operation_id '' is not \"op_\" and a UUID");
    seal.operation_id = "op_1";
    refused(&call, "operation_id 'op_1' is not \"op_\" and a UUID");
    seal.operation_id = grant->operation_id;
    seal.outcome.meta = (struct once_bytes){long_text, (16 << 10) + 1};
    refused(&call, "outcome.meta is 16385 bytes long, more than outcome_meta_bytes_max (16384)");
    seal.outcome = (struct once_outcome){.body = {NULL, 1}};
    refused(&call, "outcome.body has a size and no data");
    seal.outcome = (struct once_outcome){0};
    seal.effect_id = "ch\x02";
    refused(&call, "effect_id has the control character U+0002 at byte 2");
    once_answer_free(once, grant);
}

static void a_bad_resolve_or_hold_is_refused_by_name(void **state)
{
    (void)state;
    struct once_answer *grant = begin_key(once, "k", "");
    struct once_resolve resolve = {.operation_id = grant->operation_id};
    struct once_call call = {.resolve = &resolve};
    refused(&call, "status is 0; it must be ONCE_EXECUTED, ONCE_FAILED or ONCE_STATUS_RELEASED");
    resolve.status = ONCE_STATUS_RELEASED;
    refused(&call, "reason is missing: say who checked, and where");
    resolve.reason = "looked";
    resolve.effect_id = "ch_1";
    refused(&call, "what was not executed has neither effect_id nor outcome");
    struct once_hold hold = {
        .operation_id = grant->operation_id, .fence = grant->fence, .lease_ms = -5};
    refused(
        &(struct once_call){.renew = &hold}, "lease is -5 ms; the least is 10 ms (lease_ms_min)");
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
    assert_string_equal(error.text, "the request is NULL");
    assert_int_equal(
        once_begin(NULL, &(struct once_begin){.key = "k"}, &answer, &error), ONCE_E_MISUSE);
    assert_int_equal(
        once_begin(once, &(struct once_begin){.key = "k"}, NULL, &error), ONCE_E_MISUSE);
    assert_string_equal(error.text, "ret_answer is NULL: the grant would be lost");
    struct once_hold hold = {0};
    assert_int_equal(once_submit(once, &(struct once_call){.renew = &hold, .release = &hold},
                         never_done, NULL, &error),
        ONCE_E_MISUSE);
    assert_string_equal(error.text, "more than one member of the call is set");
    assert_int_equal(once_submit(once, NULL, never_done, NULL, &error), ONCE_E_MISUSE);
    assert_int_equal(once_iterate(once, NULL, NULL, NULL, &error), ONCE_E_MISUSE);
    assert_int_equal(once_evidence(once, NULL, NULL, NULL, NULL, &error), ONCE_E_MISUSE);
    assert_int_equal(once_get(once, "nonsense", &operation, &error), ONCE_E_INVALID);
    assert_int_equal(once_get(once, NULL, &operation, &error), ONCE_E_INVALID);
    assert_int_equal(once_lookup(once, "", "", "", &operation, &error), ONCE_E_INVALID);
    assert_string_equal(error.text, "key is empty");
    assert_int_equal(once_wait(once, "op_x", -1, &operation, &error), ONCE_E_INVALID);
    assert_int_equal(once_iterate(once, &(struct once_filter){.status = (enum once_status)9},
                         never_visit, NULL, &error),
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
    assert_string_equal(error.text, "tenant is not valid UTF-8: 0xff at byte 0");
    assert_int_equal(
        once_open(&(struct once_options){.store = "mem:", .tenant = "acme\n"}, &other, &error),
        ONCE_E_INVALID);
    assert_string_equal(error.text, "tenant has the control character U+000A at byte 4");
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

int main(int argc, char **argv)
{
    store_kind = argc > 1 ? argv[1] : store_kind;
    const struct CMUnitTest tests[] = {
        ON_STORE(a_bad_begin_is_refused_by_name),
        ON_STORE(a_bad_seal_is_refused_by_name),
        ON_STORE(a_bad_resolve_or_hold_is_refused_by_name),
        ON_STORE(misuse_is_said),
        ON_STORE(a_store_that_cannot_be_opened_says_why),
        ON_STORE(everything_has_a_name),
    };
    return cmocka_run_group_tests_name("lib_refuse", tests, NULL, NULL);
}
