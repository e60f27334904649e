/* The requests that effects become, as the bytes on the wire. */
#include <string.h>

#include "base/limits.h"
#include "base/macros.h"
#include "check_c.h"
#include "effect/acknowledgement.h"
#include "effect/compose.h"

static struct arena arena;

static const struct config_connector pay = {.name = "pay",
    .base_path = "/api",
    .idempotency = {.header = "Idempotency-Key", .key_bytes_max = 64},
    .lookup = {.get = "/v1/charges/by-key/{idempotency_key}?t={tenant}"}};
static const struct config_connector service = {
    .name = "svc", .base_path = "/effects", .protocol = CONFIG_PROTOCOL_ENVELOPE};

static const struct record record = {.kind = RECORD_EFFECT,
    .key = {.tenant = {"acme", 4}, .scope = {"payment.capture", 15}, .key = {"order 1/2", 9}},
    .attempt = 3,
    .created_ms = INT64_C(784111777000),
    .trace = {"{\"correlation_id\":\"c1\"}", 23}};
static const struct effect_detail detail = {.effect_id = {"eff-7", 5},
    .command_id = {"cmd-9", 5},
    .target = {"{\"order_id\":\"a/b c\",\"n\":7}", 26},
    .extensions = {"{\"x_a\":1}", 9}};

static struct compose_from from_of(const struct config_effect *type, const char *payload)
{
    return (struct compose_from){.type = type,
        .record = &record,
        .detail = &detail,
        .payload = slice_str(payload),
        .authority = SLICE_LIT("api.pay.example"),
        .field = SLICE_LIT("Authorization"),
        .credential = SLICE_LIT("Bearer s3cret"),
        .request_id = SLICE_LIT("r1")};
}

static bool has(struct slice head, const char *line)
{
    return memmem(head.data, head.len, line, strlen(line)) != NULL;
}

static void an_attempt_is_these_bytes(void **state)
{
    static const struct config_effect type = {.name = "payment.capture",
        .connector = &pay,
        .method = "POST",
        .path = "/v1/charges/{target.order_id}/{target.n}",
        .headers = {{"X-Account", "acct-{payload.account}"}},
        .header_count = 1};
    struct compose_from from = from_of(&type, "{\"account\":\"a1\",\"amount\":1.50}");
    struct composed composed = {.method = HTTP_METHOD_NONE};
    struct err err;
    (void)state;
    assert_int_equal(compose_attempt(&from, &arena, &composed, &err), OK);
    assert_true(slice_is(composed.body, "{\"account\":\"a1\",\"amount\":1.50}"));
    assert_true(slice_is(composed.head, "POST /api/v1/charges/a%2Fb%20c/7 HTTP/1.1\r\n"
                                        "Host: api.pay.example\r\n"
                                        "User-Agent: once/" ONCE_VERSION "\r\n"
                                        "Accept: application/json, */*;q=0.1\r\n"
                                        "Accept-Encoding: identity\r\n"
                                        "Request-Id: r1\r\n"
                                        "Authorization: Bearer s3cret\r\n"
                                        "Content-Type: application/json\r\n"
                                        "Idempotency-Key: order 1/2\r\n"
                                        "X-Account: acct-a1\r\n"
                                        "Content-Length: 30\r\n\r\n"));
    assert_int_equal(composed.method, HTTP_METHOD_POST);
}

static void a_question_is_a_get_without_the_payload(void **state)
{
    static const struct config_effect type = {.connector = &pay, .method = "POST"};
    struct compose_from from = from_of(&type, "{\"card\":\"4242\"}");
    struct composed composed = {.method = HTTP_METHOD_NONE};
    struct err err;
    (void)state;
    assert_int_equal(compose_question(&from, &arena, &composed, &err), OK);
    assert_true(has(composed.head, "GET /api/v1/charges/by-key/order%201%2F2?t=acme HTTP/1.1\r\n"));
    assert_int_equal(composed.body.len, 0);
    assert_false(has(composed.head, "4242"));
    assert_false(has(composed.head, "Content-Length"));
}

static void a_long_key_is_sent_as_its_digest(void **state)
{
    static const struct config_idempotency how = {.key_bytes_max = 8};
    static const struct config_idempotency any = {.key_bytes_max = 0};
    char text[COMPOSE_KEY_BYTES_MAX];
    (void)state;
    assert_true(slice_is(compose_key(&how, SLICE_LIT("12345678"), text), "12345678"));
    /* SHA-256 of "abcdefghi", by a different implementation. */
    assert_true(slice_is(compose_key(&how, SLICE_LIT("abcdefghi"), text),
        "GcwC8m30PMVxvJ7XsMTSkiSj7CKVKSIXJe920CHIMm8"));
    assert_true(slice_is(compose_key(&any, SLICE_LIT("abcdefghi"), text), "abcdefghi"));
}

/* A receiver drops the blanks at both ends of a field's value (RFC 9110 section 5.5). */
static void keys_that_differ_by_a_blank_at_an_end_stay_different(void **state)
{
    static const char *const keys[] = {" a", "a ", " a ", " ", "  "};
    static const struct config_idempotency how = {.header = "Key", .key_bytes_max = 255};
    static const struct config_idempotency in_body = {.body = "/key", .key_bytes_max = 255};
    char text[COMPOSE_KEY_BYTES_MAX];
    (void)state;
    for (size_t i = 0; i < COUNT(keys); i++) {
        assert_int_equal(compose_key(&how, slice_str(keys[i]), text).len, 43);
        assert_true(slice_is(compose_key(&in_body, slice_str(keys[i]), text), keys[i]));
    }
    assert_true(slice_is(compose_key(&how, SLICE_LIT("a b"), text), "a b"));
}

/* "not executed" about a key that the provider never got would be wrong. */
static void a_question_names_the_key_as_it_was_sent(void **state)
{
    static const char as_it_is[] = "GET /by-key/order%201%2F2 HTTP/1.1\r\n";
    static const char sent[] = /* SHA-256 of "order 1/2", by a different implementation */
        "GET /by-key/QtjeEVSXnjOz2Hl2lk1r9xnIqk5_Ht08VgmwzuKc7GE HTTP/1.1\r\n";
    static const struct {
        struct config_idempotency how;
        enum config_protocol protocol;
        const char *line;
    } rows[] = {
        {{.header = "Key", .key_bytes_max = 8}, CONFIG_PROTOCOL_HTTP, sent},
        {{.body = "/key", .key_bytes_max = 8}, CONFIG_PROTOCOL_HTTP, sent},
        {{.header = "Key", .key_bytes_max = 9}, CONFIG_PROTOCOL_HTTP, as_it_is},
        {{.key_bytes_max = 8}, CONFIG_PROTOCOL_HTTP, as_it_is}, /* it has no place for a key */
        {{.header = "Key", .key_bytes_max = 8}, CONFIG_PROTOCOL_ENVELOPE, as_it_is},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct config_connector connector = {.base_path = "",
            .protocol = rows[i].protocol,
            .idempotency = rows[i].how,
            .lookup = {.get = "/by-key/{idempotency_key}"}};
        const struct config_effect type = {.connector = &connector, .method = "POST"};
        struct compose_from from = from_of(&type, "{}");
        struct composed composed = {.method = HTTP_METHOD_NONE};
        struct err err;
        assert_int_equal(compose_question(&from, &arena, &composed, &err), OK);
        assert_true(has(composed.head, rows[i].line));
    }
}

/* 300 bytes: longer than any buffer for one name may be assumed to be. */
#define LONG_50   "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define LONG_NAME LONG_50 LONG_50 LONG_50 LONG_50 LONG_50 LONG_50
#define KEY_TEXT  "\"order 1/2\""

/* Where a key goes; without a body, the payload has no place for it. */
struct key_row {
    const char *pointer;
    const char *payload;
    const char *body;
};

static void check_keys(const struct key_row *rows, size_t count, enum config_effect_body how)
{
    for (size_t i = 0; i < count; i++) {
        const struct config_connector connector = {
            .name = "square", .base_path = "", .idempotency = {.body = rows[i].pointer}};
        const struct config_effect type = {.connector = &connector, .method = "POST", .body = how};
        struct compose_from from = from_of(&type, rows[i].payload);
        struct composed composed = {.method = HTTP_METHOD_NONE};
        struct err err;
        enum status status = compose_attempt(&from, &arena, &composed, &err);
        if (status != (rows[i].body == NULL ? E_INVALID : OK) ||
            (rows[i].body != NULL && !slice_is(composed.body, rows[i].body))) {
            fail_msg("%s in %s: %d, %.*s", rows[i].pointer, rows[i].payload, status,
                (int)composed.body.len, composed.body.data);
        }
        assert_true(status == OK || strstr(err.text, rows[i].pointer) != NULL);
    }
}

static void a_key_in_the_body_leaves_the_rest_as_it_came(void **state)
{
    static const struct key_row rows[] = {
        {"/m/k", "{\"amount\":1.50, \"m\":{}}", "{\"amount\":1.50, \"m\":{\"k\":" KEY_TEXT "}}"},
        {"/m/k", "{\"m\":{\"a\":9007199254740993}, \"b\":2}",
            "{\"m\":{\"a\":9007199254740993,\"k\":" KEY_TEXT "}, \"b\":2}"},
        {"/m/k", "{\"m\":{\"k\":\"mine\" , \"a\":1}}", "{\"m\":{\"k\":" KEY_TEXT " , \"a\":1}}"},
        {"/m/k", "{\"m\":{\"k\":{\"deep\":[1]}}}", "{\"m\":{\"k\":" KEY_TEXT "}}"},
        {"/k", "{}", "{\"k\":" KEY_TEXT "}"},
        {"/k", " { \"a\" : 1 } ", " { \"a\" : 1 ,\"k\":" KEY_TEXT "} "},
        {"/", "{\"a\":1}", "{\"a\":1,\"\":" KEY_TEXT "}"},
        {"/a~1b/c~0~1d", "{\"a/b\":{}}", "{\"a/b\":{\"c~/d\":" KEY_TEXT "}}"},
        {"/c~01", "{\"c/\":0}", "{\"c/\":0,\"c~1\":" KEY_TEXT "}"},
        {"/l/1/k", "{\"l\":[7,{\"a\":1}]}", "{\"l\":[7,{\"a\":1,\"k\":" KEY_TEXT "}]}"},
        {"/\"x", "{}", "{\"\\\"x\":" KEY_TEXT "}"},
        {"/" LONG_NAME, "{}", "{\"" LONG_NAME "\":" KEY_TEXT "}"},
        {"/" LONG_NAME "/k", "{\"" LONG_NAME "\":{}}", "{\"" LONG_NAME "\":{\"k\":" KEY_TEXT "}}"},
    };
    (void)state;
    check_keys(rows, COUNT(rows), CONFIG_EFFECT_BODY_PAYLOAD);
}

static void a_payload_without_a_place_for_the_key_is_not_sent(void **state)
{
    static const struct key_row rows[] = {
        {"/m/k", "{}", NULL},
        {"/m/k", "{\"m\":null}", NULL},
        {"/m/k", "{\"m\":\"text\"}", NULL},
        {"/m/k", "{\"m\":7}", NULL},
        {"/m/k", "{\"m\":[]}", NULL},
        {"/m/0", "{\"m\":[1]}", NULL},
        {"/m/-", "{\"m\":[]}", NULL},
        {"/m/1/k", "{\"m\":[{}]}", NULL},
        {"/m/00/k", "{\"m\":[{}]}", NULL},
        {"/m/n/k", "{\"m\":{}}", NULL},
        {"/a~1b/k", "{\"a\":{\"b\":{}}}", NULL},
        {"/" LONG_NAME "/k", "{\"" LONG_50 "\":{}}", NULL},
        {"/k", "[1]", NULL},
        {"/k", "null", NULL},
        {"/k", "\"text\"", NULL},
        {"", "{\"a\":1}", NULL},
        {"k", "{\"k\":1}", NULL},
        {"/~2", "{}", NULL},
    };
    (void)state;
    check_keys(rows, COUNT(rows), CONFIG_EFFECT_BODY_PAYLOAD);
    check_keys(rows, COUNT(rows) - 6, CONFIG_EFFECT_BODY_FORM);
    check_keys(rows + COUNT(rows) - 3, 3, CONFIG_EFFECT_BODY_FORM);
}

static void a_key_in_a_form_is_there_once(void **state)
{
    static const struct key_row rows[] = {
        {"/k", "{}", "k=order%201%2F2"},
        {"/k", "{\"a\":1}", "a=1&k=order%201%2F2"},
        {"/k", "{\"k\":\"mine\",\"z\":1}", "k=order%201%2F2&z=1"},
        {"/k", "{\"k\":{\"a\":1,\"b\":[2]},\"z\":1}", "k=order%201%2F2&z=1"},
        {"/m/k", "{\"m\":{}}", "m[k]=order%201%2F2"},
        {"/m/k", "{\"m\":{\"k\":1,\"a\":2}}", "m[a]=2&m[k]=order%201%2F2"},
        {"/l/0/k", "{\"l\":[{}]}", "l[0][k]=order%201%2F2"},
        {"/a~1b", "{}", "a%2Fb=order%201%2F2"},
        {"/" LONG_NAME, "{}", LONG_NAME "=order%201%2F2"},
    };
    (void)state;
    check_keys(rows, COUNT(rows), CONFIG_EFFECT_BODY_FORM);
}

static void a_form_holds_members_of_members(void **state)
{
    static const struct config_effect type = {
        .connector = &pay, .method = "POST", .body = CONFIG_EFFECT_BODY_FORM};
    struct compose_from from =
        from_of(&type, "{\"a\":1,\"b\":{\"c\":\"x&y=z\",\"d\":[true,null]},\"e f\":\"\xc3\xa4\"}");
    struct composed composed = {.method = HTTP_METHOD_NONE};
    struct err err;
    (void)state;
    assert_int_equal(compose_attempt(&from, &arena, &composed, &err), OK);
    assert_true(slice_is(composed.body, "a=1&b[c]=x%26y%3Dz&b[d][0]=true&b[d][1]=&e%20f=%C3%A4"));
    assert_true(has(composed.head, "Content-Type: application/x-www-form-urlencoded\r\n"));
}

static void an_envelope_is_the_whole_of_it(void **state)
{
    static const struct config_effect type = {.connector = &service, .method = "POST"};
    struct compose_from from = from_of(&type, "{\"amount\":5}");
    struct composed composed = {.method = HTTP_METHOD_NONE};
    struct err err;
    (void)state;
    from.ack_token = SLICE_LIT("tok");
    assert_int_equal(compose_attempt(&from, &arena, &composed, &err), OK);
    assert_true(has(composed.head, "POST /effects HTTP/1.1\r\n"));
    assert_true(slice_is(composed.body,
        "{\"effect_id\":\"eff-7\",\"command_id\":\"cmd-9\",\"tenant_id\":\"acme\","
        "\"idempotency_key\":\"order 1/2\",\"effect_type\":\"payment.capture\","
        "\"target\":{\"order_id\":\"a/b c\",\"n\":7},\"payload\":{\"amount\":5},"
        "\"trace\":{\"correlation_id\":\"c1\"},\"attempt\":3,"
        "\"created_at\":\"1994-11-06T08:49:37.000Z\",\"ack_token\":\"tok\",\"x_a\":1}"));
}

static void what_a_template_does_not_find_is_named(void **state)
{
    static const struct {
        const char *path;
        const char *header;
        const char *says;
    } rows[] = {
        {"/a/{target.nothing}", "x", "target.nothing"},
        {"/a", "{payload.card}", "payload.card"},
        {"/a", "{payload.line}", "payload.line"},
        {"/a/{payload.dots}", "x", "payload.dots"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct config_effect type = {.connector = &pay,
            .method = "POST",
            .path = rows[i].path,
            .headers = {{"X-Own", rows[i].header}},
            .header_count = 1};
        struct compose_from from =
            from_of(&type, "{\"line\":\"a\\r\\nX-Evil: 1\",\"dots\":\"..\"}");
        struct composed composed = {.method = HTTP_METHOD_NONE};
        struct err err;
        assert_int_equal(compose_attempt(&from, &arena, &composed, &err), E_INVALID);
        assert_non_null(strstr(err.text, rows[i].says));
    }
}

static void an_acknowledgement_is_read_strictly(void **state)
{
    static const struct {
        const char *text;
        bool is_one;
        enum effect_ack status;
    } rows[] = {
        {"{\"status\":\"acknowledged\",\"provider_ref\":\"p1\",\"retryable\":false}", true,
            EFFECT_ACK_ACKNOWLEDGED},
        {"{\"status\":\"rejected\"}", true, EFFECT_ACK_REJECTED},
        {"{\"status\":\"failed\",\"retryable\":true}", true, EFFECT_ACK_FAILED},
        {"{\"status\":\"pending\",\"provider_ref\":null}", true, EFFECT_ACK_PENDING},
        {"{\"status\":\"done\"}", false, EFFECT_ACK_NONE},
        {"{\"status\":true}", false, EFFECT_ACK_NONE},
        {"{}", false, EFFECT_ACK_NONE},
        {"", false, EFFECT_ACK_NONE},
        {"\"acknowledged\"", false, EFFECT_ACK_NONE},
        {"{\"status\":\"acknowledged\",\"provider_ref\":7}", false, EFFECT_ACK_NONE},
        {"{\"status\":\"acknowledged\",\"retryable\":\"no\"}", false, EFFECT_ACK_NONE},
        {"{\"status\":\"acknowledged\"", false, EFFECT_ACK_NONE},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct acknowledgement ack = {.status = EFFECT_ACK_NONE};
        if (acknowledgement_read(slice_str(rows[i].text), &arena, &ack) != rows[i].is_one ||
            ack.status != rows[i].status) {
            fail_msg("%s", rows[i].text);
        }
    }
}

static void an_answer_shows_what_was_found_or_says_nothing(void **state)
{
    static const struct {
        const char *text;
        enum acknowledgement_found found;
        const char *ref;
    } rows[] = {
        {"{\"data\":[{\"id\":\"ch_1\"}]}", ACKNOWLEDGEMENT_FOUND, "ch_1"},
        {"{\"data\":[{\"id\":7},{\"id\":8}]}", ACKNOWLEDGEMENT_FOUND, "7"},
        {"{\"data\":[{\"id\":{\"x\":1}}]}", ACKNOWLEDGEMENT_FOUND, ""},
        {"{\"data\":[]}", ACKNOWLEDGEMENT_NOT_FOUND, ""},
        {"{\"data\":null}", ACKNOWLEDGEMENT_NOT_FOUND, ""},
        {"{\"data\":[null]}", ACKNOWLEDGEMENT_NOT_FOUND, ""},
        {"{\"data\":[{\"id\":null}]}", ACKNOWLEDGEMENT_NOT_FOUND, ""},
        {"{\"data\":[{\"id\":\"\"}]}", ACKNOWLEDGEMENT_NOT_FOUND, ""},
        {"{\"data\":[{}]}", ACKNOWLEDGEMENT_SILENT, ""},
        {"{\"data\":{}}", ACKNOWLEDGEMENT_SILENT, ""},
        {"{\"error\":\"down for maintenance\"}", ACKNOWLEDGEMENT_SILENT, ""},
        {"{\"data\":7}", ACKNOWLEDGEMENT_SILENT, ""},
        {"{\"data\":[", ACKNOWLEDGEMENT_SILENT, ""},
        {"", ACKNOWLEDGEMENT_SILENT, ""},
        {"[]", ACKNOWLEDGEMENT_SILENT, ""},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct slice ref = SLICE_EMPTY;
        if (acknowledgement_found("/data/0/id", slice_str(rows[i].text), &arena, &ref) !=
                rows[i].found ||
            !slice_is(ref, rows[i].ref)) {
            fail_msg("%s", rows[i].text);
        }
    }
}

static void a_list_is_found_when_it_has_items(void **state)
{
    struct slice ref = SLICE_EMPTY;
    (void)state;
    assert_int_equal(acknowledgement_found("/data", SLICE_LIT("{\"data\":[]}"), &arena, &ref),
        ACKNOWLEDGEMENT_NOT_FOUND);
    assert_int_equal(acknowledgement_found("/data", SLICE_LIT("{\"data\":[0]}"), &arena, &ref),
        ACKNOWLEDGEMENT_FOUND);
    assert_int_equal(acknowledgement_found("/data/x", SLICE_LIT("{\"data\":[]}"), &arena, &ref),
        ACKNOWLEDGEMENT_SILENT);
    assert_int_equal(
        acknowledgement_found("/0", SLICE_LIT("[]"), &arena, &ref), ACKNOWLEDGEMENT_NOT_FOUND);
}

static int setup(void **state)
{
    (void)state;
    arena_init(&arena, &mem_libc, 64 << 20);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_release(&arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_attempt_is_these_bytes),
        TEST(a_question_is_a_get_without_the_payload),
        TEST(a_long_key_is_sent_as_its_digest),
        TEST(keys_that_differ_by_a_blank_at_an_end_stay_different),
        TEST(a_question_names_the_key_as_it_was_sent),
        TEST(a_key_in_the_body_leaves_the_rest_as_it_came),
        TEST(a_payload_without_a_place_for_the_key_is_not_sent),
        TEST(a_key_in_a_form_is_there_once),
        TEST(a_form_holds_members_of_members),
        TEST(an_envelope_is_the_whole_of_it),
        TEST(what_a_template_does_not_find_is_named),
        TEST(an_acknowledgement_is_read_strictly),
        TEST(an_answer_shows_what_was_found_or_says_nothing),
        TEST(a_list_is_found_when_it_has_items),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
