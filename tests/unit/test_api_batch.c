#include <stdio.h>
#include <string.h>

#include "api_door.h"
#include "base/buf.h"
#include "base/limits.h"
#include "check_c.h"

static void batch(const char *body, struct reply *ret_reply)
{
    house_ask(&house, "POST", "/v1/fences/batch", NULL, slice_str(body), ret_reply);
}

#define BEGIN(key, payload) "{\"scope\":\"s\",\"key\":\"" key "\",\"payload\":" payload "}"

static void begins_and_seals_are_answered_in_order(void **state)
{
    (void)state;
    struct reply reply;
    char body[1024];
    batch("[" BEGIN("a", "1") ",{\"begin\":" BEGIN("b", "1") "}," BEGIN("a", "1") "," BEGIN(
              "a", "2") "]",
        &reply);
    assert_int_equal(reply.status, 200);
    assert_int_equal(reply.json->count, 4);
    assert_string_equal(reply_get(&reply, "0/decision"), "first_seen");
    assert_string_equal(reply_get(&reply, "1/decision"), "first_seen");
    assert_string_equal(reply_get(&reply, "2/decision"), "in_progress");
    assert_string_equal(reply_get(&reply, "2/operation_id"), reply_get(&reply, "0/operation_id"));
    assert_string_equal(reply_get(&reply, "3/code"), "idempotency_conflict");
    assert_string_equal(reply_get(&reply, "3/status"), "409");
    assert_string_equal(reply_get(&reply, "3/diff/0/op"), "replace");
    (void)snprintf(body, sizeof body,
        "[{\"operation_id\":\"%s\",\"fence\":%s,\"status\":\"executed\",\"outcome\":[ 1 ]},"
        "{\"seal\":{\"operation_id\":\"%s\",\"fence\":999,\"status\":\"executed\"}},"
        "{\"operation_id\":\"nonsense\",\"fence\":1,\"status\":\"executed\"}," BEGIN("a", "1") "]",
        reply_get(&reply, "0/operation_id"), reply_get(&reply, "0/fence"),
        reply_get(&reply, "1/operation_id"));
    reply_release(&reply);
    batch(body, &reply);
    assert_int_equal(reply.status, 200);
    assert_string_equal(reply_get(&reply, "0/decision"), "sealed");
    assert_string_equal(reply_get(&reply, "1/code"), "stale_fence");
    assert_string_equal(reply_get(&reply, "2/code"), "operation_not_found");
    assert_string_equal(reply_get(&reply, "3/decision"), "duplicate_replayed");
    assert_non_null(strstr(reply.text, "\"outcome\":[ 1 ]"));
    reply_release(&reply);
}

/* A document in a batch is the one that the call alone gets. */
static void an_item_is_answered_as_the_call_alone(void **state)
{
    (void)state;
    struct reply one, many;
    char expected[4096];
    batch("[" BEGIN("a", "1") "]", &many);
    reply_release(&many);
    house_ask(&house, "POST", "/v1/fences", NULL, slice_str(BEGIN("a", "{\"x\":1}")), &one);
    batch("[" BEGIN("a", "{\"x\":1}") "]", &many);
    (void)snprintf(expected, sizeof expected, "[%s]", one.text);
    assert_string_equal(many.text, expected);
    reply_release(&one);
    reply_release(&many);
}

static void one_wrong_item_refuses_the_whole_batch(void **state)
{
    static const struct {
        const char *body;
        const char *code;
        const char *says;
    } wrongs[] = {
        {"{}", "invalid_body", "array"},
        {"[]", "invalid_body", "array"},
        {"[1]", "invalid_body", "item 0: "},
        {"[" BEGIN("a", "1") ",{\"scope\":\"s\"}]", "missing_member", "item 1: "},
        {"[" BEGIN("a", "1") "," BEGIN("b", "1,\"colour\":2") "]", "unknown_member",
            "item 1: unknown member 'colour'"},
        {"[" BEGIN("a", "1,\"wait\":\"1s\"") "]", "invalid_member", "item 0: member 'wait'"},
        {"[" BEGIN("a", "1") ",{\"operation_id\":7}]", "invalid_member", "item 1: "},
        {"[" BEGIN("a", "1") ",{\"seal\":{\"fence\":1}}]", "missing_member", "'operation_id'"},
        {"[" BEGIN("a", "1") ",{\"operation_id\":\"x\",\"fence\":0,\"status\":\"failed\"}]",
            "invalid_member", "item 1: member 'fence'"},
        {"[" BEGIN("a", "1") ",{\"begin\":1}]", "invalid_body", "item 1: "},
    };
    (void)state;
    struct reply reply;
    for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
        batch(wrongs[i].body, &reply);
        if (reply.status != 400 || strcmp(reply_get(&reply, "code"), wrongs[i].code) != 0 ||
            strstr(reply_get(&reply, "detail"), wrongs[i].says) == NULL) {
            fail_msg("%s: %u %s", wrongs[i].body, reply.status, reply.text);
        }
        reply_release(&reply);
    }
    batch("[" BEGIN("a", "1") "]", &reply);
    assert_string_equal(reply_get(&reply, "0/decision"), "first_seen");
    reply_release(&reply);
}

static void put_begins(struct buf *out, unsigned count)
{
    buf_clear(out);
    for (unsigned i = 0; i < count; i++) {
        buf_printf(
            out, "%c{\"scope\":\"s\",\"key\":\"n%u\",\"payload\":%u}", i == 0 ? '[' : ',', i, i);
    }
    buf_char(out, ']');
}

static void a_thousand_fit_and_one_more_does_not(void **state)
{
    (void)state;
    struct buf body;
    struct reply reply;
    buf_init(&body, &mem_libc, 1 << 20);
    put_begins(&body, LIMIT_GROUP_REQUESTS_MAX + 1);
    house_ask(&house, "POST", "/v1/fences/batch", NULL, buf_view(&body), &reply);
    assert_int_equal(reply.status, 400);
    assert_string_equal(reply_get(&reply, "code"), "batch_too_large");
    reply_release(&reply);
    put_begins(&body, LIMIT_GROUP_REQUESTS_MAX);
    house_ask(&house, "POST", "/v1/fences/batch", NULL, buf_view(&body), &reply);
    assert_int_equal(reply.status, 200);
    assert_int_equal(reply.json->count, LIMIT_GROUP_REQUESTS_MAX);
    for (uint32_t i = 0; i < reply.json->count; i++) {
        const struct json_value *decision = json_find(&reply.json->items[i], SLICE_LIT("decision"));
        assert_true(decision != NULL && slice_is(json_text(decision), "first_seen"));
    }
    reply_release(&reply);
    buf_release(&body);
}

#define DOOR(name) cmocka_unit_test_setup_teardown(name, open_door, close_door)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DOOR(begins_and_seals_are_answered_in_order),
        DOOR(an_item_is_answered_as_the_call_alone),
        DOOR(one_wrong_item_refuses_the_whole_batch),
        DOOR(a_thousand_fit_and_one_more_does_not),
    };
    return cmocka_run_group_tests_name("api_batch", tests, NULL, NULL);
}
