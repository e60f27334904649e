#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api_door.h"
#include "base/limits.h"
#include "check_c.h"

static void get(const char *target, struct reply *ret_reply)
{
    house_ask(&house, "GET", target, NULL, SLICE_EMPTY, ret_reply);
}

/* Say something of an operation: "/v1/fences/<id>/<verb>", the fence and more members. */
static void say(const char *door_path, const struct house_grant *grant, const char *verb,
    const char *members, struct reply *ret_reply)
{
    char target[128], body[2048];
    (void)snprintf(target, sizeof target, "/v1/%s/%s/%s", door_path, grant->id, verb);
    (void)snprintf(body, sizeof body, "{\"fence\":%s%s}", grant->fence, members);
    post(target, body, ret_reply);
}

static void look(const struct house_grant *grant, struct reply *ret_reply)
{
    char target[128];
    (void)snprintf(target, sizeof target, "/v1/operations/%s", grant->id);
    get(target, ret_reply);
}

static void an_operation_shows_all_that_is_remembered(void **state)
{
    (void)state;
    struct house_grant grant = begin("{\"scope\":\"pay\",\"key\":\"k\",\"principal\":\"alice\","
                                     "\"payload\":{\"b\":2,\"a\":1},\"source\":{\"type\":\"order\","
                                     "\"id\":\"o-1\",\"version\":7}}");
    struct reply reply;
    look(&grant, &reply);
    assert_int_equal(reply.status, 200);
    assert_string_equal(reply_get(&reply, "operation_id"), grant.id);
    assert_string_equal(reply_get(&reply, "status"), "in_progress");
    assert_string_equal(reply_get(&reply, "scope"), "pay");
    assert_string_equal(reply_get(&reply, "principal"), "alice");
    assert_string_equal(reply_get(&reply, "key"), "k");
    assert_string_equal(reply_get(&reply, "fence"), grant.fence);
    assert_string_equal(reply_get(&reply, "attempt"), "1");
    assert_string_equal(reply_get(&reply, "duplicates"), "0");
    assert_string_equal(reply_get(&reply, "created_at"), reply_get(&reply, "first_seen_at"));
    assert_string_equal(reply_get(&reply, "sealed_at"), "(none)");
    assert_string_equal(reply_get(&reply, "window_expires_at"), "(none)");
    assert_int_equal(strlen(reply_get(&reply, "lease_expires_at")), 24);
    assert_string_equal(reply_get(&reply, "effect_id"), "(none)");
    assert_string_equal(reply_get(&reply, "reason"), "(none)");
    assert_int_equal(strlen(reply_get(&reply, "fingerprint")), 64);
    assert_string_equal(reply_get(&reply, "source/type"), "order");
    assert_string_equal(reply_get(&reply, "source/id"), "o-1");
    assert_string_equal(reply_get(&reply, "source/version"), "7");
    assert_string_equal(reply_get(&reply, "trace/request_id"), "req-1");
    assert_string_equal(reply_get(&reply, "outcome"), "(none)");
    assert_string_equal(reply_get(&reply, "outcome_retained"), "(none)");
    assert_non_null(strstr(reply.text, "\"request\":{\"a\":1,\"b\":2}"));
    reply_release(&reply);
    say("fences", &grant, "seal", ",\"status\":\"executed\",\"outcome\":{\"z\" :1}", &reply);
    reply_release(&reply);
    look(&grant, &reply);
    assert_string_equal(reply_get(&reply, "status"), "executed");
    assert_non_null(strstr(reply.text, "\"outcome\":{\"z\" :1}"));
    assert_string_equal(reply_get(&reply, "outcome_retained"), "true");
    assert_string_equal(reply_get(&reply, "lease_expires_at"), "(none)");
    reply_release(&reply);
}

static void what_was_never_there_is_404(void **state)
{
    (void)state;
    struct reply absent, bad;
    get("/v1/operations/op_018f0000-0000-7000-8000-000000000000", &absent);
    get("/v1/operations/nonsense", &bad);
    assert_int_equal(absent.status, 404);
    assert_string_equal(reply_get(&absent, "code"), "operation_not_found");
    assert_string_equal(absent.text, bad.text);
    reply_release(&absent);
    reply_release(&bad);
}

static void a_list_is_filtered_and_paged(void **state)
{
    (void)state;
    struct reply reply;
    for (int i = 0; i < 25; i++) {
        char body[128];
        (void)snprintf(body, sizeof body, "{\"scope\":\"%s\",\"key\":\"k%d\",\"payload\":%d}",
            i % 5 == 0 ? "few" : "many", i, i);
        (void)begin(body);
    }
    char target[256] = "/v1/operations?limit=10";
    unsigned seen = 0, pages = 0;
    for (bool more = true; more; pages++) {
        get(target, &reply);
        assert_int_equal(reply.status, 200);
        seen += json_find(reply.json, SLICE_LIT("operations"))->count;
        const char *next = reply_get(&reply, "next");
        more = strcmp(next, "null") != 0;
        (void)snprintf(target, sizeof target, "/v1/operations?limit=10&after=%s", next);
        assert_string_equal(reply_get(&reply, "operations/0/outcome"), "(none)");
        assert_string_equal(reply_get(&reply, "operations/0/request"), "(none)");
        reply_release(&reply);
    }
    assert_int_equal(seen, 25);
    assert_int_equal(pages, 3);
    get("/v1/operations?scope=few", &reply);
    assert_int_equal(json_find(reply.json, SLICE_LIT("operations"))->count, 5);
    assert_string_equal(reply_get(&reply, "next"), "null");
    reply_release(&reply);
    get("/v1/operations?key=k7", &reply);
    assert_int_equal(json_find(reply.json, SLICE_LIT("operations"))->count, 1);
    assert_string_equal(reply_get(&reply, "operations/0/key"), "k7");
    reply_release(&reply);
    get("/v1/operations?status=executed", &reply);
    assert_string_equal(reply.text, "{\"operations\":[],\"next\":null}");
    reply_release(&reply);
}

static void an_unknown_one_is_resolved(void **state)
{
    (void)state;
    struct house_grant grant = begin("{\"scope\":\"s\",\"key\":\"k\",\"payload\":1}");
    struct reply reply;
    say("operations", &grant, "resolve", ",\"status\":\"executed\",\"reason\":\"r\"", &reply);
    assert_int_equal(reply.status, 409);
    assert_string_equal(reply_get(&reply, "code"), "still_running");
    assert_string_equal(reply_get(&reply, "retry"), "after");
    assert_string_not_equal(reply_field(&reply, "Retry-After"), "(none)");
    reply_release(&reply);
    say("fences", &grant, "unknown", "", &reply);
    reply_release(&reply);
    say("operations", &grant, "resolve",
        ",\"status\":\"executed\",\"effect_id\":\"ch_9\",\"outcome\":[1, 2],\"reason\":\"seen\"",
        &reply);
    assert_int_equal(reply.status, 200);
    assert_string_equal(reply_get(&reply, "decision"), "resolved");
    assert_string_equal(reply_get(&reply, "operation_id"), grant.id);
    assert_string_equal(reply_get(&reply, "status"), "executed");
    assert_string_equal(reply_get(&reply, "reason"), "seen");
    assert_string_equal(reply_get(&reply, "effect_id"), "ch_9");
    reply_release(&reply);
    post("/v1/fences", "{\"scope\":\"s\",\"key\":\"k\",\"payload\":1}", &reply);
    assert_int_equal(reply.status, 200);
    assert_non_null(strstr(reply.text, "\"outcome\":[1, 2]"));
    reply_release(&reply);
    say("operations", &grant, "resolve", ",\"status\":\"failed\",\"reason\":\"r\"", &reply);
    assert_int_equal(reply.status, 409);
    assert_string_equal(reply_get(&reply, "code"), "already_sealed");
    reply_release(&reply);
}

static void what_was_not_executed_can_be_begun_again(void **state)
{
    (void)state;
    struct house_grant grant = begin("{\"scope\":\"s\",\"key\":\"k\",\"payload\":1}");
    struct reply reply;
    say("fences", &grant, "unknown", "", &reply);
    reply_release(&reply);
    struct house_grant stale = grant;
    (void)snprintf(stale.fence, sizeof stale.fence, "77777");
    say("operations", &stale, "resolve", ",\"status\":\"not_executed\",\"reason\":\"r\"", &reply);
    assert_int_equal(reply.status, 409);
    assert_string_equal(reply_get(&reply, "code"), "stale_fence");
    reply_release(&reply);
    say("operations", &grant, "resolve", ",\"status\":\"not_executed\",\"reason\":\"r\"", &reply);
    assert_int_equal(reply.status, 200);
    assert_string_equal(reply_get(&reply, "status"), "released");
    reply_release(&reply);
    post("/v1/fences", "{\"scope\":\"s\",\"key\":\"k\",\"payload\":1}", &reply);
    assert_int_equal(reply.status, 201);
    assert_string_equal(reply_get(&reply, "attempt"), "2");
    reply_release(&reply);
}

/* An outcome that another door sealed, of any bytes and with any mark. */
static void outcomes_of_other_doors_are_shown_in_parts(void **state)
{
    static const struct {
        const char *meta;
        const char *body;
        const char *shown;
    } sealed[] = {
        {"text", "hello", "\"outcome\":{\"code\":7,\"meta\":\"text\",\"body\":\"hello\"}"},
        {"text", "\xff", "\"outcome\":{\"code\":7,\"meta\":\"text\",\"body_base64\":\"/w==\"}"},
        {"application/json", "{\"a\":1}", "\"outcome\":{\"a\":1}"},
        {"application/json", "1,\"x\":2", "\"body\":\"1,\\\"x\\\":2\""},
        {"application/json", "{},\"x\":2", "\"body\":\"{},"},
        {"application/json", "\"a\",\"x\":2", "\"body\":\"\\\"a\\\","},
        {"application/json", "{\"a\":\"}", "\"body\":\"{\\\"a\\\":"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof sealed / sizeof sealed[0]; i++) {
        char body[128];
        struct arena arena;
        struct reply reply;
        (void)snprintf(body, sizeof body, "{\"scope\":\"s\",\"key\":\"d%zu\",\"payload\":1}", i);
        struct house_grant grant = begin(body);
        arena_init(&arena, &mem_libc, 1 << 20);
        struct engine_call call = {.arena = &arena, .outcome_body = slice_str(sealed[i].body)};
        call.request = (struct request){.kind = REQUEST_SEAL,
            .fence = strtoull(grant.fence, NULL, 10),
            .status = RECORD_EXECUTED};
        call.request.key.tenant = SLICE_LIT("default");
        assert_true(op_id_read(slice_str(grant.id), &call.request.operation_id));
        call.request.outcome = (struct outcome){.code = 7, .meta = slice_str(sealed[i].meta)};
        call.request.outcome.body =
            (struct body_ref){.bytes = strlen(sealed[i].body), .retained = true};
        digest_sha256(sealed[i].body, strlen(sealed[i].body), &call.request.outcome.body.digest);
        assert_int_equal(engine_do(house.engine, &call), OK);
        arena_release(&arena);
        post("/v1/fences", body, &reply);
        assert_int_equal(reply.status, 200);
        assert_non_null(reply.json);
        assert_int_equal(reply.json->count, 8);
        if (strstr(reply.text, sealed[i].shown) == NULL) {
            fail_msg("%s", reply.text);
        }
        reply_release(&reply);
        look(&grant, &reply);
        assert_non_null(strstr(reply.text, sealed[i].shown));
        reply_release(&reply);
    }
}

#define DOOR(name) cmocka_unit_test_setup_teardown(name, open_door, close_door)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DOOR(an_operation_shows_all_that_is_remembered),
        DOOR(what_was_never_there_is_404),
        DOOR(a_list_is_filtered_and_paged),
        DOOR(an_unknown_one_is_resolved),
        DOOR(what_was_not_executed_can_be_begun_again),
        DOOR(outcomes_of_other_doors_are_shown_in_parts),
    };
    return cmocka_run_group_tests_name("api_operations", tests, NULL, NULL);
}
