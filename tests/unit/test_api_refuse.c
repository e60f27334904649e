#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "api/routes.h"
#include "api_door.h"
#include "base/macros.h"
#include "check_c.h"

/* A body that is refused, and what the refusal says. */
struct wrong {
    const char *body;
    const char *code;
    const char *says; /* part of the detail: the member's name */
};

static void refuse_all(const char *target, const struct wrong *wrongs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct reply reply;
        house_ask(&house, "POST", target, NULL, slice_str(wrongs[i].body), &reply);
        if (reply.status != 400 || strstr(reply_get(&reply, "detail"), wrongs[i].says) == NULL ||
            strcmp(reply_get(&reply, "code"), wrongs[i].code) != 0) {
            fail_msg("%s: %u %s", wrongs[i].body, reply.status, reply.text);
        }
        assert_string_equal(reply_get(&reply, "effect"), "no");
        assert_string_equal(reply_get(&reply, "retry"), "no");
        reply_release(&reply);
    }
}

#define REFUSE_ALL(target, wrongs) refuse_all((target), (wrongs), sizeof(wrongs) / sizeof *(wrongs))

static unsigned status_of(const char *target, const char *body)
{
    struct reply reply;
    house_ask(&house, "POST", target, NULL, slice_str(body), &reply);
    unsigned status = reply.status;
    reply_release(&reply);
    return status;
}

/* Nothing happened: what could have been granted is granted now, for the first time. */
static void expect_untouched(void)
{
    struct reply reply;
    house_ask(&house, "POST", "/v1/fences", NULL,
        slice_str("{\"scope\":\"s\",\"key\":\"k\",\"payload\":1}"), &reply);
    assert_int_equal(reply.status, 201);
    assert_string_equal(reply_get(&reply, "attempt"), "1");
    reply_release(&reply);
}

#define HEX64 "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define SK    "\"scope\":\"s\",\"key\":\"k\""
#define SKP   "{" SK ",\"payload\":1"

/* Whatever its text says: the code is the limit's. */
static void the_limit_decides_the_code_of_a_refusal(void **state)
{
    (void)state;
    struct err err = {0};
    (void)err_limit(&err, ERR_LIMIT_QUEUE_REQUESTS, "too much is asked");
    assert_string_equal(api_problem_of(&err).code, "overloaded");
    (void)err_limit(&err, ERR_LIMIT_KEYS, "the house is overloaded with keys");
    assert_string_equal(api_problem_of(&err).code, "limit_reached");
    assert_int_equal(api_problem_of(&err).status, 503);
}

static void a_refusal_by_the_store_names_its_cause_and_no_place(void **state)
{
    (void)state;
    struct err err = {0};
    (void)err_errno(&err, E_UNAVAILABLE, 28, "cannot write '%s'", "/srv/once/x");
    err_prefix(&err, "the journal has stopped");
    assert_true(slice_is(api_problem_of(&err).detail, "No space left on device"));
    err.status = E_UNKNOWN;
    assert_true(slice_is(api_problem_of(&err).detail, "No space left on device"));
}

static void every_wrong_member_of_a_begin_is_named(void **state)
{
    static const struct wrong wrongs[] = {
        {"", "invalid_json", "line 1, column 1"},
        {"{", "invalid_json", "line 1, column 2"},
        {"{\n \"scope\": x}", "invalid_json", "line 2, column 11"},
        {SKP ",\"key\":\"k\"}", "invalid_json", "duplicate member"},
        {"[]", "invalid_body", "not a JSON object"},
        {"\"x\"", "invalid_body", "not a JSON object"},
        {"null", "invalid_body", "not a JSON object"},
        {"{}", "missing_member", "'scope'"},
        {"{\"key\":\"k\",\"payload\":1}", "missing_member", "'scope'"},
        {"{\"scope\":\"s\",\"payload\":1}", "missing_member", "'key'"},
        {"{" SK "}", "missing_member", "'payload'"},
        {SKP ",\"colour\":1}", "unknown_member", "'colour'"},
        {SKP ",\"tenant\":\"t\"}", "unknown_member", "'tenant'"},
        {SKP ",\"tenant_id\":\"t\"}", "unknown_member", "'tenant_id'"},
        {SKP ",\"X_a\":1}", "unknown_member", "'X_a'"},
        {"{\"scope\":1,\"key\":\"k\",\"payload\":1}", "invalid_member", "'scope'"},
        {"{\"scope\":\"\",\"key\":\"k\",\"payload\":1}", "invalid_member", "'scope'"},
        {"{\"scope\":\"s\",\"key\":\"\",\"payload\":1}", "invalid_member", "'key'"},
        {"{\"scope\":\"s\",\"key\":7,\"payload\":1}", "invalid_member", "'key'"},
        {"{\"scope\":\"s\",\"key\":null,\"payload\":1}", "invalid_member", "'key'"},
        {SKP ",\"key_from\":{\"action\":\"a\"}}", "invalid_member", "'key_from'"},
        {SKP ",\"fingerprint\":\"" HEX64 "\"}", "invalid_member", "'fingerprint'"},
        {"{" SK ",\"fingerprint\":\"abc\"}", "invalid_member", "'fingerprint'"},
        {"{" SK ",\"fingerprint\":1}", "invalid_member", "'fingerprint'"},
        {SKP ",\"principal\":1}", "invalid_member", "'principal'"},
        {SKP ",\"ttl\":60}", "invalid_member", "'ttl'"},
        {SKP ",\"ttl\":\"soon\"}", "invalid_member", "'ttl'"},
        {SKP ",\"ttl\":\"0s\"}", "invalid_member", "ttl is 0 ms"},
        {SKP ",\"ttl\":\"36500d\"}", "invalid_member", "window_ms_max"},
        {SKP ",\"lease\":\"1ms\"}", "invalid_member", "lease_ms_min"},
        {SKP ",\"lease\":\"8d\"}", "invalid_member", "lease_ms_max"},
        {SKP ",\"lease\":true}", "invalid_member", "'lease'"},
        {SKP ",\"wait\":\"61s\"}", "invalid_member", "wait_ms_max"},
        {SKP ",\"wait\":5}", "invalid_member", "'wait'"},
        {SKP ",\"on_unknown\":\"reconcile\"}", "invalid_member", "'on_unknown'"},
        {SKP ",\"on_unknown\":1}", "invalid_member", "'on_unknown'"},
        {SKP ",\"source\":\"s\"}", "invalid_member", "'source'"},
        {SKP ",\"source\":{\"type\":1}}", "invalid_member", "'source.type'"},
        {SKP ",\"source\":{\"id\":[]}}", "invalid_member", "'source.id'"},
        {SKP ",\"source\":{\"version\":1.5}}", "invalid_member", "'source.version'"},
        {SKP ",\"source\":{\"version\":true}}", "invalid_member", "'source.version'"},
        {SKP ",\"source\":{\"colour\":1}}", "unknown_member", "'source.colour'"},
        {SKP ",\"trace\":\"t\"}", "invalid_member", "'trace'"},
        {SKP ",\"trace\":{\"n\":9007199254740993}}", "invalid_member", "trace"},
        {"{\"scope\":\"s\",\"payload\":1,\"key_from\":7}", "invalid_member", "'key_from'"},
        {"{\"scope\":\"s\",\"payload\":1,\"key_from\":{}}", "invalid_member", "key_from"},
        {"{\"scope\":\"s\",\"payload\":1,\"key_from\":{\"tenant_id\":\"t\",\"action\":\"a\"}}",
            "invalid_member", "'key_from.tenant_id'"},
        {"{\"scope\":\"s\",\"payload\":1,\"key_from\":{\"colour\":\"t\"}}", "unknown_member",
            "'key_from.colour'"},
        {"{\"scope\":\"s\",\"payload\":1,\"key_from\":{\"zebra\":\"t\",\"action\":\"a\"}}",
            "unknown_member", "'key_from.zebra'"},
        {"{\"scope\":\"s\",\"payload\":1,\"key_from\":{\"revision\":9007199254740993}}",
            "invalid_member", "key_from"},
    };
    (void)state;
    REFUSE_ALL("/v1/fences", wrongs);
    expect_untouched();
}

static void long_names_are_refused_with_their_limit(void **state)
{
    static const char *const names[] = {"scope", "key", "principal"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        char body[1024], text[300];
        memset(text, 'a', sizeof text);
        text[256] = '\0';
        const char *values[] = {"s", "k", "p"};
        values[i] = text;
        (void)snprintf(body, sizeof body,
            "{\"scope\":\"%s\",\"key\":\"%s\",\"principal\":\"%s\",\"payload\":1}", values[0],
            values[1], values[2]);
        struct wrong wrong = {body, "invalid_member", names[i]};
        refuse_all("/v1/fences", &wrong, 1);
        text[255] = '\0';
        (void)snprintf(body, sizeof body,
            "{\"scope\":\"%s\",\"key\":\"%s\",\"principal\":\"%s\",\"payload\":1}", values[0],
            values[1], values[2]);
        assert_int_equal(status_of("/v1/fences", body), 201);
    }
}

static void extensions_are_passed_over(void **state)
{
    (void)state;
    assert_int_equal(
        status_of("/v1/fences", SKP ",\"x_mine\":{\"a\":1},\"extensions\":[1],\"x_\":null}"), 201);
    assert_int_equal(status_of("/v1/fences", SKP "}"), 202);
}

static void every_wrong_member_of_the_holders_calls_is_named(void **state)
{
#define ID "op_018f0000-0000-7000-8000-000000000000"
    static const struct wrong seals[] = {
        {"{}", "missing_member", "'fence'"},
        {"{\"status\":\"executed\"}", "missing_member", "'fence'"},
        {"{\"fence\":1}", "missing_member", "'status'"},
        {"{\"fence\":0,\"status\":\"executed\"}", "invalid_member", "'fence'"},
        {"{\"fence\":-1,\"status\":\"executed\"}", "invalid_member", "'fence'"},
        {"{\"fence\":1.5,\"status\":\"executed\"}", "invalid_member", "'fence'"},
        {"{\"fence\":\"1\",\"status\":\"executed\"}", "invalid_member", "'fence'"},
        {"{\"fence\":1,\"status\":\"done\"}", "invalid_member", "'status'"},
        {"{\"fence\":1,\"status\":\"unknown\"}", "invalid_member", "'status'"},
        {"{\"fence\":1,\"status\":1}", "invalid_member", "'status'"},
        {"{\"fence\":1,\"status\":\"executed\",\"effect_id\":1}", "invalid_member", "'effect_id'"},
        {"{\"fence\":1,\"status\":\"executed\",\"effect_id\":\"\"}", "invalid_member",
            "'effect_id'"},
        {"{\"fence\":1,\"status\":\"executed\",\"ttl\":1}", "invalid_member", "'ttl'"},
        {"{\"fence\":1,\"status\":\"executed\",\"operation_id\":\"" ID "\"}", "unknown_member",
            "'operation_id'"},
        {"{\"fence\":1,\"status\":\"executed\",\"reason\":\"r\"}", "unknown_member", "'reason'"},
        {"[]", "invalid_body", "not a JSON object"},
    };
    static const struct wrong releases[] = {
        {"{}", "missing_member", "'fence'"},
        {"{\"fence\":1,\"reason\":1}", "invalid_member", "'reason'"},
        {"{\"fence\":1,\"lease\":\"1s\"}", "unknown_member", "'lease'"},
        {"{\"fence\":1,\"outcome\":1}", "unknown_member", "'outcome'"},
    };
    static const struct wrong renewals[] = {
        {"{}", "missing_member", "'fence'"},
        {"{\"fence\":1,\"lease\":1}", "invalid_member", "'lease'"},
        {"{\"fence\":1,\"lease\":\"9ms\"}", "invalid_member", "lease_ms_min"},
        {"{\"fence\":1,\"reason\":\"r\"}", "unknown_member", "'reason'"},
    };
    static const struct wrong resolves[] = {
        {"{}", "missing_member", "'status'"},
        {"{\"status\":\"executed\"}", "missing_member", "'reason'"},
        {"{\"status\":\"executed\",\"reason\":\"\"}", "invalid_member", "'reason'"},
        {"{\"status\":\"rejected\",\"reason\":\"r\"}", "invalid_member", "'status'"},
        {"{\"status\":\"not_executed\",\"reason\":\"r\",\"effect_id\":\"e\"}", "invalid_member",
            "'effect_id'"},
        {"{\"status\":\"not_executed\",\"reason\":\"r\",\"outcome\":1}", "invalid_member",
            "'outcome'"},
        {"{\"status\":\"failed\",\"reason\":\"r\",\"fence\":0}", "invalid_member", "'fence'"},
        {"{\"status\":\"failed\",\"reason\":\"r\",\"colour\":0}", "unknown_member", "'colour'"},
    };
    (void)state;
    REFUSE_ALL("/v1/fences/" ID "/seal", seals);
    REFUSE_ALL("/v1/fences/" ID "/release", releases);
    REFUSE_ALL("/v1/fences/" ID "/unknown", releases);
    REFUSE_ALL("/v1/fences/" ID "/renew", renewals);
    REFUSE_ALL("/v1/operations/" ID "/resolve", resolves);
}

static void invalid_json_says_where(void **state)
{
    (void)state;
    struct reply reply;
    house_ask(&house, "POST", "/v1/fences", NULL, slice_str("{\n  \"scope\" \"s\"}"), &reply);
    assert_string_equal(reply_get(&reply, "code"), "invalid_json");
    assert_string_equal(reply_get(&reply, "line"), "2");
    assert_string_equal(reply_get(&reply, "column"), "11");
    reply_release(&reply);
}

static void a_body_past_its_limit_is_413(void **state)
{
    (void)state;
    struct api_policy policy = house_policy();
    struct house small;
    struct reply reply;
    policy.body_bytes_max = 16;
    assert_int_equal(house_open(&small, &mem_libc, &policy), OK);
    house_ask(&small, "POST", "/v1/fences", NULL, slice_str("{\"scope\":\"sssss\"}"), &reply);
    assert_int_equal(reply.status, 413);
    assert_non_null(strstr(reply_get(&reply, "detail"), "body_bytes_max"));
    reply_release(&reply);
    house_close(&small);
}

static void unknown_paths_and_methods_are_told_apart(void **state)
{
    static const char *const nowhere[] = {"/", "/v1", "/v1/", "/v1/fences/", "/v1/fences/x",
        "/v1/fences//seal", "/v1/fences/x/seal/", "/v1/fences/x/y", "/v2/fences", "/V1/fences",
        "/v1/operations/", "/v1/fences/x/resolve", "/metrics/", "/v1/%66ences", "*"};
    (void)state;
    struct reply reply;
    for (size_t i = 0; i < sizeof nowhere / sizeof nowhere[0]; i++) {
        house_ask(&house, strcmp(nowhere[i], "*") == 0 ? "OPTIONS" : "POST", nowhere[i], NULL,
            SLICE_EMPTY, &reply);
        if (reply.status != 404 || strcmp(reply_get(&reply, "code"), "not_found") != 0) {
            fail_msg("%s: %u %s", nowhere[i], reply.status, reply.text);
        }
        reply_release(&reply);
    }
    house_ask(&house, "GET", "/v1/fences", NULL, SLICE_EMPTY, &reply);
    assert_int_equal(reply.status, 405);
    assert_string_equal(reply_get(&reply, "code"), "method_not_allowed");
    assert_string_equal(reply_field(&reply, "Allow"), "POST");
    reply_release(&reply);
    house_ask(&house, "DELETE", "/v1/operations/x", NULL, SLICE_EMPTY, &reply);
    assert_int_equal(reply.status, 405);
    assert_string_equal(reply_field(&reply, "Allow"), "GET, HEAD");
    reply_release(&reply);
    house_ask(&house, "HEAD", "/v1/operations", NULL, SLICE_EMPTY, &reply);
    assert_int_equal(reply.status, 200);
    reply_release(&reply);
}

static void show(struct api_request *request)
{
    api_answer_begin(request, 200);
    http_answer_field(request->exchange, SLICE_LIT("Path-Value"), request->path_value);
    http_answer_field(request->exchange, SLICE_LIT("State"), slice_str(request->state));
    api_answer_end(request, SLICE_LIT("text/plain"), SLICE_EMPTY, true);
}

static const struct api_route more_routes[] = {
    {.method = HTTP_METHOD_POST, .pattern = "/v1/things", .rights = 1, .handle = show},
    {.method = HTTP_METHOD_GET, .pattern = "/v1/things", .rights = 1, .handle = show},
    {.method = HTTP_METHOD_POST,
        .pattern = "/v1/things/{thing_id}/go",
        .rights = 1,
        .handle = show},
    {.method = HTTP_METHOD_POST, .pattern = "/in/{source}", .is_open = true, .handle = show},
    {.method = HTTP_METHOD_OPTIONS, .pattern = "/in/{source}", .is_open = true, .handle = show},
};
static char more_state[] = "theirs";

static struct api_routes more_doors(struct house *open)
{
    assert_non_null(open->engine);
    return (struct api_routes){more_routes, COUNT(more_routes), more_state};
}

static void routes_of_other_doors_are_served(void **state)
{
    static const struct {
        const char *method, *path, *value, *field;
        unsigned status;
    } cases[] = {
        {"POST", "/v1/things/7/go", "7", "Path-Value", 200},
        {"POST", "/v1/things/7/go", "theirs", "State", 200},
        {"OPTIONS", "/in/shop", "shop", "Path-Value", 200},
        {"PUT", "/v1/things", "GET, HEAD, POST", "Allow", 405},
        {"GET", "/in/shop", "POST, OPTIONS", "Allow", 405},
        {"GET", "/v1/things/7/go", "POST", "Allow", 405},
        {"GET", "/v1/operations/x/y", "(none)", "Allow", 404},
        {"GET", "/v1/operations", "(none)", "State", 200},
    };
    (void)state;
    struct house open;
    struct api_policy policy = house_policy();
    assert_int_equal(house_open_with(&open, &mem_libc, &policy, more_doors), OK);
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct reply reply;
        house_ask(&open, cases[i].method, cases[i].path, NULL, SLICE_EMPTY, &reply);
        assert_int_equal(reply.status, cases[i].status);
        assert_string_equal(reply_field(&reply, cases[i].field), cases[i].value);
        reply_release(&reply);
    }
    house_close(&open);
}

static void queries_are_read_strictly(void **state)
{
    static const struct wrong wrongs[] = {
        {"/v1/operations?colour=1", "invalid_parameter", "'colour'"},
        {"/v1/operations?scope=a&scope=a", "invalid_parameter", "'scope' is there twice"},
        {"/v1/operations?scope=a&s%63ope=b", "invalid_parameter", "'scope' is there twice"},
        {"/v1/operations?scope=%ff", "invalid_parameter", "'scope'"},
        {"/v1/operations?status=done", "invalid_parameter", "'status'"},
        {"/v1/operations?limit=0", "invalid_parameter", "'limit'"},
        {"/v1/operations?limit=1001", "invalid_parameter", "'limit'"},
        {"/v1/operations?limit=x", "invalid_parameter", "'limit'"},
        {"/v1/operations?limit=", "invalid_parameter", "'limit'"},
        {"/v1/operations?after=12", "invalid_parameter", "'after'"},
        {"/livez?x", "invalid_parameter", "'x'"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
        struct reply reply;
        house_ask(&house, "GET", wrongs[i].body, NULL, SLICE_EMPTY, &reply);
        if (reply.status != 400 || strcmp(reply_get(&reply, "code"), wrongs[i].code) != 0 ||
            strstr(reply_get(&reply, "detail"), wrongs[i].says) == NULL) {
            fail_msg("%s: %u %s", wrongs[i].body, reply.status, reply.text);
        }
        reply_release(&reply);
    }
    struct reply reply;
    house_ask(&house, "GET",
        "/v1/operations?scope=a+b%20c&&key=%e2%82%ac&limit=1000&status=unknown", NULL, SLICE_EMPTY,
        &reply);
    assert_int_equal(reply.status, 200);
    reply_release(&reply);
}

/* ---- tokens -------------------------------------------------------------------------------- */

static struct config_token token_of(const char *text, const char *tenant, unsigned rights)
{
    struct config_token token = {.tenant = slice_str(tenant), .rights = rights};
    digest_sha256(text, strlen(text), &token.sha256);
    return token;
}

static void open_guarded(struct house *guarded)
{
    struct api_policy policy = house_policy();
    struct config_token tokens[] = {token_of("acme-all", "acme", 15),
        token_of("acme-audit", "acme", CONFIG_RIGHT_AUDIT), token_of("evil-all", "evil", 15),
        token_of("all", "*", 15)};
    policy.needs_token = true;
    policy.tokens = tokens;
    policy.token_count = sizeof tokens / sizeof tokens[0];
    assert_int_equal(house_open(guarded, &mem_libc, &policy), OK);
}

static void a_token_is_asked_for_and_its_rights_are_kept(void **state)
{
    (void)state;
    struct house guarded;
    struct reply reply;
    open_guarded(&guarded);
    struct slice body = slice_str(SKP "}");
    house_ask(&guarded, "POST", "/v1/fences", NULL, body, &reply);
    assert_int_equal(reply.status, 401);
    assert_string_equal(reply_get(&reply, "code"), "unauthorized");
    assert_string_equal(reply_field(&reply, "WWW-Authenticate"), "Bearer");
    reply_release(&reply);
    house_ask(&guarded, "POST", "/v1/fences", "Authorization: Bearer wrong\r\n", body, &reply);
    assert_int_equal(reply.status, 401);
    assert_string_equal(reply_field(&reply, "WWW-Authenticate"), "Bearer error=\"invalid_token\"");
    reply_release(&reply);
    house_ask(&guarded, "POST", "/v1/fences", "Authorization: Bearer acme-audit\r\n", body, &reply);
    assert_int_equal(reply.status, 403);
    assert_string_equal(reply_get(&reply, "code"), "forbidden");
    assert_non_null(strstr(reply_get(&reply, "detail"), "'execute'"));
    reply_release(&reply);
    house_ask(&guarded, "POST", "/v1/fences", "Authorization: Bearer all\r\n", body, &reply);
    assert_int_equal(reply.status, 403);
    reply_release(&reply);
    house_ask(&guarded, "GET", "/v1/operations", "Authorization: Bearer acme-audit\r\n",
        SLICE_EMPTY, &reply);
    assert_int_equal(reply.status, 200);
    reply_release(&reply);
    house_ask(&guarded, "GET", "/livez", NULL, SLICE_EMPTY, &reply);
    assert_int_equal(reply.status, 200);
    reply_release(&reply);
    house_ask(&guarded, "GET", "/metrics", NULL, SLICE_EMPTY, &reply);
    assert_int_equal(reply.status, 401);
    reply_release(&reply);
    house_ask(&guarded, "GET", "/metrics", "Authorization: Bearer all\r\n", SLICE_EMPTY, &reply);
    assert_int_equal(reply.status, 200);
    reply_release(&reply);
    house_close(&guarded);
}

/* The same bytes for what is another's and for what never was. */
static void another_tenants_operation_is_not_there(void **state)
{
    static const struct {
        const char *method;
        const char *before;
        const char *after;
        const char *members;
    } calls[] = {
        {"POST", "/v1/fences/", "/seal", ",\"status\":\"executed\""},
        {"POST", "/v1/fences/", "/release", ""},
        {"POST", "/v1/fences/", "/unknown", ""},
        {"POST", "/v1/fences/", "/renew", ""},
        {"POST", "/v1/operations/", "/resolve", ",\"status\":\"executed\",\"reason\":\"r\""},
        {"GET", "/v1/operations/", "", ""},
    };
    static const char evil[] = "Authorization: Bearer evil-all\r\n";
    static const char absent[] = "op_018f0000-0000-7000-8000-000000000000";
    (void)state;
    struct house guarded;
    struct reply reply, theirs, none;
    open_guarded(&guarded);
    house_ask(&guarded, "POST", "/v1/fences", "Authorization: Bearer acme-all\r\n",
        slice_str(SKP "}"), &reply);
    assert_int_equal(reply.status, 201);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        char target[128], body[128];
        const char *fence = reply_get(&reply, "fence");
        const char *id = reply_get(&reply, "operation_id");
        (void)snprintf(body, sizeof body, "{\"fence\":%s%s}", fence, calls[i].members);
        (void)snprintf(target, sizeof target, "%s%s%s", calls[i].before, id, calls[i].after);
        house_ask(&guarded, calls[i].method, target, evil, slice_str(body), &theirs);
        (void)snprintf(target, sizeof target, "%s%s%s", calls[i].before, absent, calls[i].after);
        house_ask(&guarded, calls[i].method, target, evil, slice_str(body), &none);
        assert_int_equal(theirs.status, 404);
        assert_string_equal(theirs.text, none.text);
        assert_string_equal(theirs.fields, none.fields);
        reply_release(&theirs);
        reply_release(&none);
    }
    house_ask(&guarded, "GET", "/v1/operations", evil, SLICE_EMPTY, &theirs);
    assert_string_equal(theirs.text, "{\"operations\":[],\"next\":null}");
    reply_release(&theirs);
    /* The same key of another tenant is another operation. */
    house_ask(&guarded, "POST", "/v1/fences", evil, slice_str(SKP "}"), &theirs);
    assert_int_equal(theirs.status, 201);
    assert_string_not_equal(reply_get(&theirs, "operation_id"), reply_get(&reply, "operation_id"));
    reply_release(&theirs);
    reply_release(&reply);
    house_close(&guarded);
}

#define DOOR(name) cmocka_unit_test_setup_teardown(name, open_door, close_door)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_limit_decides_the_code_of_a_refusal),
        cmocka_unit_test(a_refusal_by_the_store_names_its_cause_and_no_place),
        DOOR(every_wrong_member_of_a_begin_is_named),
        DOOR(long_names_are_refused_with_their_limit),
        DOOR(extensions_are_passed_over),
        DOOR(every_wrong_member_of_the_holders_calls_is_named),
        DOOR(invalid_json_says_where),
        DOOR(a_body_past_its_limit_is_413),
        DOOR(unknown_paths_and_methods_are_told_apart),
        cmocka_unit_test(routes_of_other_doors_are_served),
        DOOR(queries_are_read_strictly),
        DOOR(a_token_is_asked_for_and_its_rights_are_kept),
        DOOR(another_tenants_operation_is_not_there),
    };
    return cmocka_run_group_tests_name("api_refuse", tests, NULL, NULL);
}
