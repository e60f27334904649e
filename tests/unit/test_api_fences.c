#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api_door.h"
#include "check_c.h"

static void holder(
    const struct house_grant *grant, const char *verb, const char *members, struct reply *ret_reply)
{
    char target[128], body[4096];
    (void)snprintf(target, sizeof target, "/v1/fences/%s/%s", grant->id, verb);
    (void)snprintf(body, sizeof body, "{\"fence\":%s%s}", grant->fence, members);
    post(target, body, ret_reply);
}

static void expect_problem(struct reply *reply, unsigned status, const char *code)
{
    assert_string_equal(reply_get(reply, "code"), code);
    assert_int_equal(reply->status, status);
    assert_true(slice_is(reply->content_type, "application/problem+json"));
}

static void count_members(struct reply *reply, unsigned count)
{
    assert_non_null(reply->json);
    assert_int_equal(reply->json->type, JSON_OBJECT);
    assert_int_equal(reply->json->count, count);
}

#define BODY "{\"scope\":\"pay\",\"key\":\"k1\",\"payload\":{\"amount\":100}"

static void the_first_arrival_is_granted_and_told_where_to_look(void **state)
{
    (void)state;
    struct reply reply;
    char location[128];
    post("/v1/fences", BODY "}", &reply);
    assert_int_equal(reply.status, 201);
    assert_true(slice_is(reply.content_type, "application/json"));
    count_members(&reply, 5);
    assert_string_equal(reply_get(&reply, "decision"), "first_seen");
    assert_string_equal(reply_get(&reply, "attempt"), "1");
    assert_true(strtoull(reply_get(&reply, "fence"), NULL, 10) > 0);
    assert_int_equal(strlen(reply_get(&reply, "lease_expires_at")), 24);
    (void)snprintf(
        location, sizeof location, "/v1/operations/%s", reply_get(&reply, "operation_id"));
    assert_string_equal(reply_field(&reply, "Location"), location);
    reply_release(&reply);
}

static void a_duplicate_of_what_runs_is_told_to_come_back(void **state)
{
    (void)state;
    struct house_grant grant = begin(BODY "}");
    struct reply reply;
    char url[128];
    post("/v1/fences", BODY "}", &reply);
    assert_int_equal(reply.status, 202);
    count_members(&reply, 4);
    assert_string_equal(reply_get(&reply, "decision"), "in_progress");
    assert_string_equal(reply_get(&reply, "operation_id"), grant.id);
    assert_string_equal(reply_get(&reply, "retry_after_ms"), "1000");
    assert_string_equal(reply_field(&reply, "Retry-After"), "1");
    (void)snprintf(url, sizeof url, "/v1/operations/%s", grant.id);
    assert_string_equal(reply_get(&reply, "status_url"), url);
    reply_release(&reply);
}

static void a_seal_is_final_and_replayed_byte_for_byte(void **state)
{
    (void)state;
    struct house_grant grant = begin(BODY "}");
    struct reply first, again, replay;
    const char *members = ",\"status\":\"executed\",\"effect_id\":\"ch_1\","
                          "\"outcome\": {\"b\" : 1.0,\"a\":[ \"]}\\\"\", \"\\u00e9\"]}";
    holder(&grant, "seal", members, &first);
    assert_int_equal(first.status, 200);
    count_members(&first, 7);
    assert_string_equal(reply_get(&first, "decision"), "sealed");
    assert_string_equal(reply_get(&first, "operation_id"), grant.id);
    assert_string_equal(reply_get(&first, "status"), "executed");
    assert_string_equal(reply_get(&first, "effect_id"), "ch_1");
    holder(&grant, "seal", members, &again);
    assert_int_equal(again.status, 200);
    assert_string_equal(again.text, first.text);
    post("/v1/fences", BODY "}", &replay);
    assert_int_equal(replay.status, 200);
    count_members(&replay, 8);
    assert_string_equal(reply_get(&replay, "decision"), "duplicate_replayed");
    assert_string_equal(reply_get(&replay, "status"), "executed");
    assert_string_equal(reply_get(&replay, "effect_id"), "ch_1");
    assert_non_null(strstr(replay.text,
        "\"outcome\":{\"b\" : 1.0,\"a\":[ \"]}\\\"\", \"\\u00e9\"]},\"first_seen_at\":"));
    assert_string_equal(reply_get(&replay, "sealed_at"), reply_get(&first, "sealed_at"));
    assert_string_equal(reply_get(&replay, "first_seen_at"), reply_get(&first, "first_seen_at"));
    assert_string_equal(
        reply_get(&replay, "window_expires_at"), reply_get(&first, "window_expires_at"));
    reply_release(&first);
    reply_release(&again);
    reply_release(&replay);
}

static void a_replay_has_every_member_even_without_an_outcome(void **state)
{
    (void)state;
    struct house_grant grant = begin(BODY "}");
    struct reply reply;
    holder(&grant, "seal", ",\"status\":\"failed\"", &reply);
    assert_string_equal(reply_get(&reply, "effect_id"), "null");
    reply_release(&reply);
    post("/v1/fences", BODY "}", &reply);
    count_members(&reply, 8);
    assert_string_equal(reply_get(&reply, "status"), "failed");
    assert_string_equal(reply_get(&reply, "effect_id"), "null");
    assert_string_equal(reply_get(&reply, "outcome"), "null");
    reply_release(&reply);
}

/* Every kind of JSON value as an outcome, and null too. */
static void any_json_can_be_an_outcome(void **state)
{
    static const char *const outcomes[] = {
        "null", "true", "false", "0", "-1.50e+7", "\"\"", "\"a\\\"b\"", "[]", "{}", "[[1],{}]"};
    (void)state;
    for (size_t i = 0; i < sizeof outcomes / sizeof outcomes[0]; i++) {
        char body[256], members[256], expected[256];
        struct reply reply;
        (void)snprintf(body, sizeof body, "{\"scope\":\"s\",\"key\":\"o%zu\",\"payload\":null}", i);
        (void)snprintf(
            members, sizeof members, ",\"status\":\"rejected\",\"outcome\" : %s ", outcomes[i]);
        (void)snprintf(expected, sizeof expected, "\"outcome\":%s,", outcomes[i]);
        struct house_grant grant = begin(body);
        holder(&grant, "seal", members, &reply);
        assert_int_equal(reply.status, 200);
        reply_release(&reply);
        post("/v1/fences", body, &reply);
        assert_int_equal(reply.status, 200);
        assert_non_null(strstr(reply.text, expected));
        assert_null(strstr(reply.text, "outcome_retained"));
        reply_release(&reply);
    }
}

static void an_outcome_past_its_limit_is_sealed_without_its_bytes(void **state)
{
    (void)state;
    struct api_policy policy = house_policy();
    policy.outcome_bytes_max = 8;
    house_close(&house);
    assert_int_equal(house_open(&house, &mem_libc, &policy), OK);
    struct house_grant grant = begin(BODY "}");
    struct reply reply;
    holder(&grant, "seal", ",\"status\":\"executed\",\"outcome\":\"123456789\"", &reply);
    assert_int_equal(reply.status, 200);
    reply_release(&reply);
    post("/v1/fences", BODY "}", &reply);
    assert_int_equal(reply.status, 200);
    assert_string_equal(reply_get(&reply, "outcome"), "null");
    assert_string_equal(reply_get(&reply, "outcome_retained"), "false");
    reply_release(&reply);
}

static void a_different_seal_is_refused(void **state)
{
    (void)state;
    struct house_grant grant = begin(BODY "}");
    struct reply reply;
    holder(&grant, "seal", ",\"status\":\"executed\",\"outcome\":1", &reply);
    assert_int_equal(reply.status, 200);
    reply_release(&reply);
    holder(&grant, "seal", ",\"status\":\"executed\",\"outcome\":2", &reply);
    expect_problem(&reply, 409, "already_sealed");
    assert_string_equal(reply_get(&reply, "effect"), "no");
    assert_string_equal(reply_get(&reply, "retry"), "no");
    assert_string_equal(reply_get(&reply, "operation_id"), grant.id);
    reply_release(&reply);
}

static void another_fence_is_stale(void **state)
{
    static const char *const verbs[] = {"seal", "release", "unknown", "renew"};
    (void)state;
    struct house_grant grant = begin(BODY "}");
    (void)snprintf(grant.fence, sizeof grant.fence, "987654");
    for (size_t i = 0; i < 4; i++) {
        struct reply reply;
        holder(&grant, verbs[i], i == 0 ? ",\"status\":\"executed\"" : "", &reply);
        expect_problem(&reply, 409, "stale_fence");
        assert_string_equal(reply_get(&reply, "effect"), "no");
        reply_release(&reply);
    }
}

static void what_was_released_can_be_begun_again(void **state)
{
    (void)state;
    struct house_grant grant = begin(BODY "}");
    struct reply reply;
    holder(&grant, "release", ",\"reason\":\"no stock\"", &reply);
    assert_int_equal(reply.status, 200);
    count_members(&reply, 5);
    assert_string_equal(reply_get(&reply, "decision"), "released");
    assert_string_equal(reply_get(&reply, "status"), "released");
    assert_string_equal(reply_get(&reply, "operation_id"), grant.id);
    assert_string_equal(reply_get(&reply, "fence"), grant.fence);
    assert_string_equal(reply_get(&reply, "attempt"), "1");
    reply_release(&reply);
    post("/v1/fences", BODY "}", &reply);
    assert_int_equal(reply.status, 201);
    assert_string_equal(reply_get(&reply, "operation_id"), grant.id);
    assert_string_equal(reply_get(&reply, "attempt"), "2");
    assert_string_not_equal(reply_get(&reply, "fence"), grant.fence);
    reply_release(&reply);
}

static void what_nobody_knows_is_held_unless_taken_over(void **state)
{
    (void)state;
    struct house_grant grant = begin(BODY "}");
    struct reply reply;
    holder(&grant, "unknown", ",\"reason\":\"timeout\"", &reply);
    assert_int_equal(reply.status, 200);
    assert_string_equal(reply_get(&reply, "decision"), "unknown");
    assert_string_equal(reply_get(&reply, "status"), "unknown");
    reply_release(&reply);
    post("/v1/fences", BODY "}", &reply);
    expect_problem(&reply, 409, "outcome_unknown");
    assert_string_equal(reply_get(&reply, "effect"), "unknown");
    assert_string_equal(reply_get(&reply, "retry"), "no");
    assert_string_equal(reply_get(&reply, "operation_id"), grant.id);
    reply_release(&reply);
    post("/v1/fences", BODY ",\"on_unknown\":\"hold\"}", &reply);
    expect_problem(&reply, 409, "outcome_unknown");
    reply_release(&reply);
    post("/v1/fences", BODY ",\"on_unknown\":\"takeover\"}", &reply);
    assert_int_equal(reply.status, 201);
    assert_string_equal(reply_get(&reply, "attempt"), "2");
    reply_release(&reply);
}

static void a_lease_is_renewed(void **state)
{
    (void)state;
    struct house_grant grant = begin(BODY ",\"lease\":\"1s\"}");
    struct reply reply, again;
    holder(&grant, "renew", ",\"lease\":\"1h\"", &reply);
    assert_int_equal(reply.status, 200);
    count_members(&reply, 4);
    assert_string_equal(reply_get(&reply, "decision"), "renewed");
    assert_string_equal(reply_get(&reply, "fence"), grant.fence);
    holder(&grant, "renew", "", &again);
    assert_int_equal(again.status, 200);
    assert_string_equal(
        reply_get(&again, "lease_expires_at"), reply_get(&reply, "lease_expires_at"));
    reply_release(&reply);
    reply_release(&again);
}

static void a_conflict_is_explained_and_shows_nothing_else(void **state)
{
    (void)state;
    struct house_grant grant = begin(BODY "}");
    struct reply reply;
    holder(&grant, "seal",
        ",\"status\":\"executed\",\"effect_id\":\"ch_secret\",\"outcome\":\"secret\"", &reply);
    reply_release(&reply);
    post("/v1/fences", "{\"scope\":\"pay\",\"key\":\"k1\",\"payload\":{\"amount\":200,\"x\":1}}",
        &reply);
    expect_problem(&reply, 409, "idempotency_conflict");
    assert_string_equal(reply_get(&reply, "effect"), "no");
    assert_string_equal(reply_get(&reply, "retry"), "no");
    assert_string_equal(reply_get(&reply, "diff/0/op"), "replace");
    assert_string_equal(reply_get(&reply, "diff/0/path"), "/amount");
    assert_string_equal(reply_get(&reply, "diff/0/value"), "200");
    assert_string_equal(reply_get(&reply, "diff/1/op"), "add");
    assert_string_equal(reply_get(&reply, "diff_truncated"), "false");
    assert_null(strstr(reply.text, "secret"));
    assert_string_equal(reply_get(&reply, "outcome"), "(none)");
    assert_string_equal(reply_get(&reply, "fence"), "(none)");
    reply_release(&reply);
}

static void a_conflict_of_fingerprints_has_no_diff(void **state)
{
    (void)state;
    static const char first[] =
        "{\"scope\":\"s\",\"key\":\"f\",\"fingerprint\":\""
        "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\"}";
    static const char other[] =
        "{\"scope\":\"s\",\"key\":\"f\",\"fingerprint\":\""
        "ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\"}";
    struct reply reply;
    (void)begin(first);
    post("/v1/fences", first, &reply);
    assert_int_equal(reply.status, 202);
    reply_release(&reply);
    post("/v1/fences", other, &reply);
    expect_problem(&reply, 409, "idempotency_conflict");
    assert_string_equal(reply_get(&reply, "diff"), "null");
    reply_release(&reply);
}

static void payloads_are_compared_by_value_and_never_lossily(void **state)
{
    (void)state;
    struct reply reply;
    (void)begin("{\"scope\":\"s\",\"key\":\"v\",\"payload\":{\"a\":1,\"b\":[1e2]}}");
    post("/v1/fences", "{\"payload\" : { \"b\":[100.0] ,\"a\":1 },\"key\":\"v\",\"scope\":\"s\"}",
        &reply);
    assert_int_equal(reply.status, 202);
    reply_release(&reply);
    (void)begin("{\"scope\":\"s\",\"key\":\"l\",\"payload\":9007199254740993}");
    post("/v1/fences", "{ \"payload\": 9007199254740993 , \"key\":\"l\",\"scope\":\"s\"}", &reply);
    assert_int_equal(reply.status, 202); /* its own bytes count, not what is around them */
    reply_release(&reply);
    post("/v1/fences", "{\"scope\":\"s\",\"key\":\"l\",\"payload\":9007199254740992}", &reply);
    expect_problem(&reply, 409, "idempotency_conflict");
    reply_release(&reply);
}

static void scopes_and_principals_separate_keys(void **state)
{
    (void)state;
    struct house_grant a = begin(BODY "}");
    struct house_grant b = begin(BODY ",\"principal\":\"alice\"}");
    struct house_grant c =
        begin("{\"scope\":\"other\",\"key\":\"k1\",\"payload\":{\"amount\":100}}");
    assert_string_not_equal(a.id, b.id);
    assert_string_not_equal(a.id, c.id);
}

/* SHA-256 of {"action":"sync","source_id":"o-1","source_type":"order","tenant_id":"default"}. */
static void a_key_is_derived_from_its_source_and_the_tenant(void **state)
{
    (void)state;
    struct reply reply;
    struct digest digest;
    char hex[DIGEST_HEX_BYTES], body[256];
    static const char form[] = "{\"action\":\"sync\",\"source_id\":\"o-1\",\"source_type\":"
                               "\"order\",\"tenant_id\":\"default\"}";
    (void)begin("{\"scope\":\"s\",\"payload\":1,\"key_from\":{\"source_type\":\"order\","
                "\"source_id\":\"o-1\",\"action\":\"sync\"}}");
    digest_sha256(form, strlen(form), &digest);
    (void)snprintf(body, sizeof body, "{\"scope\":\"s\",\"payload\":1,\"key\":\"%s\"}",
        digest_put_hex(hex, &digest));
    post("/v1/fences", body, &reply);
    assert_int_equal(reply.status, 202);
    reply_release(&reply);
}

static void a_stale_operation_and_a_bad_id_are_the_same_404(void **state)
{
    (void)state;
    struct house_grant absent = {"op_018f0000-0000-7000-8000-000000000000", "1"};
    struct house_grant bad = {"nonsense", "1"};
    struct reply first, second;
    holder(&absent, "release", "", &first);
    holder(&bad, "release", "", &second);
    expect_problem(&first, 404, "operation_not_found");
    assert_string_equal(first.text, second.text);
    reply_release(&first);
    reply_release(&second);
}

static void request_id_and_traceparent_are_in_the_trace(void **state)
{
    (void)state;
    struct reply reply;
    static const char parent[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    char headers[256], target[128];
    (void)snprintf(headers, sizeof headers, "Request-Id: abc\r\ntraceparent: %s\r\n", parent);
    house_ask(&house, "POST", "/v1/fences", headers,
        slice_str(BODY ",\"trace\":{\"correlation_id\":\"c\",\"request_id\":\"mine\"}}"), &reply);
    assert_int_equal(reply.status, 201);
    (void)snprintf(target, sizeof target, "/v1/operations/%s", reply_get(&reply, "operation_id"));
    reply_release(&reply);
    house_ask(&house, "GET", target, NULL, SLICE_EMPTY, &reply);
    assert_string_equal(reply_get(&reply, "trace/correlation_id"), "c");
    assert_string_equal(reply_get(&reply, "trace/request_id"), "abc");
    assert_string_equal(reply_get(&reply, "trace/traceparent"), parent);
    reply_release(&reply);
}

static void a_traceparent_that_is_none_is_left_out(void **state)
{
    static const char *const bad[] = {
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct reply reply;
        char headers[128], body[128], target[128];
        (void)snprintf(headers, sizeof headers, "traceparent: %s\r\n", bad[i]);
        (void)snprintf(body, sizeof body, "{\"scope\":\"s\",\"key\":\"t%zu\",\"payload\":1}", i);
        house_ask(&house, "POST", "/v1/fences", headers, slice_str(body), &reply);
        assert_int_equal(reply.status, 201);
        (void)snprintf(
            target, sizeof target, "/v1/operations/%s", reply_get(&reply, "operation_id"));
        reply_release(&reply);
        house_ask(&house, "GET", target, NULL, SLICE_EMPTY, &reply);
        assert_string_equal(reply_get(&reply, "trace/traceparent"), "(none)");
        assert_string_equal(reply_get(&reply, "trace/request_id"), "req-1");
        reply_release(&reply);
    }
}

static void a_flood_of_one_key_is_refused(void **state)
{
    (void)state;
    struct api_policy policy = house_policy();
    policy.duplicate_rate = 1;
    policy.duplicate_burst = 2;
    struct house flooded;
    assert_int_equal(house_open(&flooded, &mem_libc, &policy), OK);
    struct reply reply;
    unsigned last = 0;
    for (int i = 0; i < 10; i++) {
        house_ask(&flooded, "POST", "/v1/fences", NULL, slice_str(BODY "}"), &reply);
        last = reply.status;
        if (last == 429) {
            expect_problem(&reply, 429, "too_many_duplicates");
            assert_string_equal(reply_get(&reply, "effect"), "no");
            assert_string_equal(reply_get(&reply, "retry"), "after");
            assert_string_not_equal(reply_field(&reply, "Retry-After"), "(none)");
        }
        reply_release(&reply);
    }
    assert_int_equal(last, 429);
    house_close(&flooded);
}

#define DOOR(name) cmocka_unit_test_setup_teardown(name, open_door, close_door)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DOOR(the_first_arrival_is_granted_and_told_where_to_look),
        DOOR(a_duplicate_of_what_runs_is_told_to_come_back),
        DOOR(a_seal_is_final_and_replayed_byte_for_byte),
        DOOR(a_replay_has_every_member_even_without_an_outcome),
        DOOR(any_json_can_be_an_outcome),
        DOOR(an_outcome_past_its_limit_is_sealed_without_its_bytes),
        DOOR(a_different_seal_is_refused),
        DOOR(another_fence_is_stale),
        DOOR(what_was_released_can_be_begun_again),
        DOOR(what_nobody_knows_is_held_unless_taken_over),
        DOOR(a_lease_is_renewed),
        DOOR(a_conflict_is_explained_and_shows_nothing_else),
        DOOR(a_conflict_of_fingerprints_has_no_diff),
        DOOR(payloads_are_compared_by_value_and_never_lossily),
        DOOR(scopes_and_principals_separate_keys),
        DOOR(a_key_is_derived_from_its_source_and_the_tenant),
        DOOR(a_stale_operation_and_a_bad_id_are_the_same_404),
        DOOR(request_id_and_traceparent_are_in_the_trace),
        DOOR(a_traceparent_that_is_none_is_left_out),
        DOOR(a_flood_of_one_key_is_refused),
    };
    return cmocka_run_group_tests_name("api_fences", tests, NULL, NULL);
}
