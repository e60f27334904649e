/*
 * Templates: what placeholders become in texts, paths, fields and JSON, and what is refused.
 */
#include <string.h>

#include "canon/template.h"
#include "check_c.h"

enum { MEMORY_MAX = 1 << 20 };

static struct arena arena;
static struct template_root roots[3];
static struct template_roots all = {.items = roots, .count = 3};

static const struct json_value *read_json(const char *text)
{
    const struct json_value *value;
    assert_int_equal(json_read(slice_str(text), &arena, &value, NULL), OK);
    return value;
}

static int open_roots(void **state)
{
    static struct json_value ref;
    (void)state;
    arena_init(&arena, &mem_libc, MEMORY_MAX);
    ref = template_string(SLICE_LIT("ch_7"));
    roots[0] = (struct template_root){
        SLICE_LIT("target"), read_json("{\"order_id\":\"A/1 ?\",\"n\":[7,{\"deep\":true}]}")};
    roots[1] = (struct template_root){SLICE_LIT("payload"),
        read_json("{\"amount\":9007199254740993,\"none\":null,\"dot\":\"..\",\"line\":\"a\\nb\","
                  "\"brace\":\"{provider_ref}\",\"empty\":\"\"}")};
    roots[2] = (struct template_root){SLICE_LIT("provider_ref"), &ref};
    all.known = NULL;
    return 0;
}

static int close_roots(void **state)
{
    (void)state;
    arena_release(&arena);
    return 0;
}

static void check_put(const char *text, enum template_way way, enum status status, const char *says)
{
    struct buf out;
    struct err err = {.status = OK};
    buf_init(&out, &mem_libc, MEMORY_MAX);
    enum status got = template_put(slice_str(text), &all, way, &out, &err);
    buf_char(&out, '\0');
    if (got != status || strcmp(status == OK ? out.data : err.text, says) != 0) {
        fail_msg("%s: status %d, '%s', '%s'", text, got, out.data, err.text);
    }
    buf_release(&out);
}

static void values_are_written_into_texts(void **state)
{
    (void)state;
    check_put("", TEMPLATE_TEXT, OK, "");
    check_put("plain", TEMPLATE_PATH, OK, "plain");
    check_put("/c/{target.order_id}/x", TEMPLATE_PATH, OK, "/c/A%2F1%20%3F/x");
    check_put("{target.order_id}", TEMPLATE_TEXT, OK, "A/1 ?");
    check_put("{target.n.0}-{target.n.1.deep}", TEMPLATE_TEXT, OK, "7-true");
    check_put("{payload.amount}", TEMPLATE_TEXT, OK, "9007199254740993");
    check_put("{provider_ref}", TEMPLATE_FIELD, OK, "ch_7");
}

static void what_is_absent_or_dangerous_is_refused_by_name(void **state)
{
    (void)state;
    check_put("{target.nope}", TEMPLATE_TEXT, E_INVALID, "{target.nope} is absent");
    check_put("{target.n.2}", TEMPLATE_TEXT, E_INVALID, "{target.n.2} is absent");
    check_put("{nobody}", TEMPLATE_TEXT, E_INVALID, "{nobody} is absent");
    check_put("{payload.none}", TEMPLATE_TEXT, E_INVALID,
        "{payload.none} must be a string, a number or a boolean");
    check_put(
        "{target}", TEMPLATE_TEXT, E_INVALID, "{target} must be a string, a number or a boolean");
    check_put("/{payload.dot}/x", TEMPLATE_PATH, E_INVALID,
        "{payload.dot} is '..', which cannot stand in a path");
    check_put("/{payload.empty}", TEMPLATE_PATH, E_INVALID,
        "{payload.empty} is '', which cannot stand in a path");
    check_put(
        "{payload.line}", TEMPLATE_FIELD, E_INVALID, "{payload.line} has a control character");
    check_put("a{b", TEMPLATE_TEXT, E_INVALID, "a brace that belongs to no placeholder");
    check_put("a}b", TEMPLATE_TEXT, E_INVALID, "a brace that belongs to no placeholder");
}

static void a_template_is_checked_without_values(void **state)
{
    static const char *const names[] = {"target", "payload", NULL};
    struct err err;
    (void)state;
    assert_int_equal(template_check(SLICE_LIT("/x/{target.a.b}?q={payload}"), names, &err), OK);
    assert_int_equal(template_check(SLICE_LIT("{provider_ref}"), names, &err), E_INVALID);
    assert_string_equal(err.text, "there is no value called {provider_ref}");
    assert_int_equal(template_check(SLICE_LIT("{target..a}"), names, &err), E_INVALID);
    assert_int_equal(template_check(SLICE_LIT("{}"), names, &err), E_INVALID);
    assert_int_equal(template_check(SLICE_LIT("{target"), names, &err), E_INVALID);
    assert_int_equal(
        template_check_json(read_json("[1,{\"a\":[\"{targets}\"]}]"), names, &err), E_INVALID);
}

static void check_json(const char *tree, const char *says)
{
    struct buf out;
    struct err err = {.status = OK};
    buf_init(&out, &mem_libc, MEMORY_MAX);
    assert_int_equal(template_put_json(read_json(tree), &all, &out, &err), OK);
    buf_char(&out, '\0');
    assert_string_equal(out.data, says);
    buf_release(&out);
}

static void a_json_template_keeps_types_and_exact_numbers(void **state)
{
    (void)state;
    check_json("{\"a\":\"{payload.amount}\",\"b\":\"is {payload.amount}\",\"c\":[\"{target.n}\","
               "null,1.50,true]}",
        "{\"a\":9007199254740993,\"b\":\"is 9007199254740993\",\"c\":[[7,{\"deep\":true}],null,1.5,"
        "true]}");
    /* A value is never a template itself. */
    check_json("{\"a\":\"{payload.brace}\"}", "{\"a\":\"{provider_ref}\"}");
}

static void values_for_later_render_the_same_without_the_roots(void **state)
{
    static const char tree[] = "{\"a\":\"{payload.amount}\",\"b\":\"x{payload.amount}\",\"c\":"
                               "\"{provider_ref}\",\"d\":\"{payload.brace}\"}";
    struct buf values;
    (void)state;
    buf_init(&values, &mem_libc, MEMORY_MAX);
    assert_int_equal(template_put_values(read_json(tree), &all, "provider_ref", &values, NULL), OK);
    buf_char(&values, '\0');
    assert_string_equal(
        values.data, "{\"payload.amount\":9007199254740993,\"payload.brace\":\"{provider_ref}\"}");
    roots[1].value = NULL;
    all.known = read_json(values.data);
    check_json(tree, "{\"a\":9007199254740993,\"b\":\"x9007199254740993\",\"c\":\"ch_7\",\"d\":"
                     "\"{provider_ref}\"}");
    buf_release(&values);
}

#define WITH(name) cmocka_unit_test_setup_teardown(name, open_roots, close_roots)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(values_are_written_into_texts),
        WITH(what_is_absent_or_dangerous_is_refused_by_name),
        WITH(a_template_is_checked_without_values),
        WITH(a_json_template_keeps_types_and_exact_numbers),
        WITH(values_for_later_render_the_same_without_the_roots),
    };
    return cmocka_run_group_tests_name("template", tests, NULL, NULL);
}
