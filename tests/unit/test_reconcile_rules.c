/* What an upstream is asked about an unknown operation, when, and what its answer means. */
#include "check_c.h"
#include "gateway/reconcile_rules.h"
#include "gateway/request_form.h"

static const struct config_reconcile usual = {.executed = {200, 201},
    .executed_count = 2,
    .not_executed = {404, 410},
    .not_executed_count = 2,
    .every_ms = 1000,
    .every_ms_max = 8000};

static void only_a_named_status_means_anything(void **state)
{
    struct reconcile_statuses statuses;
    (void)state;
    for (unsigned quiet = 0; quiet < 2; quiet++) {
        struct judge_rules rules = reconcile_rules(&usual, quiet > 0, &statuses);
        for (unsigned status = 100; status < 600; status++) {
            bool is_no = status == 404 || status == 410;
            enum outcall_verdict wanted = status == 200 || status == 201 ? VERDICT_EXECUTED
                                          : is_no && quiet > 0           ? VERDICT_RELEASED
                                                                         : VERDICT_UNKNOWN;
            assert_int_equal(judge(&rules, OUTCALL_ANSWERED, status), wanted);
            assert_int_equal(judge(&rules, OUTCALL_HEAD, status), VERDICT_UNKNOWN);
            assert_int_equal(reconcile_is_not_executed(&usual, status), is_no);
        }
        assert_int_equal(judge(&rules, OUTCALL_NOT_SENT, 0), VERDICT_UNKNOWN);
        assert_int_equal(judge(&rules, OUTCALL_SENT, 0), VERDICT_UNKNOWN);
    }
}

static void check_target(const char *template, const char *key, const char *expected)
{
    struct buf out;
    struct err err;
    buf_init(&out, &mem_libc, 4096);
    enum status status = reconcile_target(
        template, &(struct reconcile_names){slice_str(key), SLICE_LIT("op_7")}, &out, &err);
    assert_int_equal(status, expected == NULL ? E_INVALID : OK);
    if (expected != NULL && !slice_is(buf_view(&out), expected)) {
        fail_msg("'%.*s' should be '%s'", SLICE_ARGS(buf_view(&out)), expected);
    }
    assert_true(expected != NULL || out.len == 0);
    buf_release(&out);
}

static void the_key_takes_each_of_its_places_and_no_more(void **state)
{
    (void)state;
    check_target("/by-key/{key}", "order-7", "/by-key/order-7");
    check_target("/{key}/x?k={key}", "a/b", "/a%2Fb/x?k=a%2Fb");
    check_target(
        "/by-key/{key}", "?#&=+ \"\\%{key}", "/by-key/%3F%23%26%3D%2B%20%22%5C%25%7Bkey%7D");
    check_target("/by-key/{key}", "\xc3\xa9", "/by-key/%C3%A9");
    check_target("/by-key/{key}", "...", "/by-key/...");
    check_target("/by-key/{key}", "a..b", "/by-key/a..b");
    check_target("/op/{operation_id}", "..", "/op/op_7");
    check_target("/op/{operation_id}/{key}", "k", "/op/op_7/k");
}

static void a_key_with_dot_segments_leads_nowhere(void **state)
{
    static const char *const keys[] = {
        ".", "..", "../x", "x/..", "a/./b", "a\\..\\b", "..;x", "..?x", "..#x", "/..", "/../"};
    (void)state;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        check_target("/by-key/{key}", keys[i], NULL);
        check_target("/by-key/{key}?x=1", keys[i], NULL);
    }
    check_target("/by-key/.{key}", ".", NULL);
    check_target("/{key}.", ".", NULL);
    check_target("/by-key?key={key}", "../x", "/by-key?key=..%2Fx"); /* a value, no path */
}

static void a_target_too_long_is_refused_and_leaves_nothing(void **state)
{
    struct buf out;
    struct err err;
    (void)state;
    buf_init(&out, &mem_libc, 16);
    assert_int_equal(
        reconcile_target("/by-key/{key}",
            &(struct reconcile_names){SLICE_LIT("123456789"), SLICE_EMPTY}, &out, &err),
        E_LIMIT);
    buf_release(&out);
}

static void check_key(const char *key, const char *expected)
{
    struct buf out;
    buf_init(&out, &mem_libc, 4096);
    reconcile_key(slice_str(key), &out);
    assert_true(slice_is(buf_view(&out), expected));
    if (out.len > 0) { /* it names the same key */
        struct arena arena;
        struct slice back;
        struct err err;
        arena_init(&arena, &mem_libc, 1 << 16);
        assert_int_equal(request_form_key(buf_view(&out), &arena, &back, &err), OK);
        assert_true(slice_is(back, key));
        arena_release(&arena);
    }
    buf_release(&out);
}

static void a_key_is_sent_in_a_form_that_names_it(void **state)
{
    (void)state;
    check_key("order-7", "order-7");
    check_key("a b", "\"a b\"");
    check_key("a,b", "\"a,b\"");
    check_key("a\"\\", "\"a\\\"\\\\\"");
    check_key("\xc3\xa9", "");
    check_key("a\nb", "");
}

static void a_scope_of_the_gateway_is_read_and_no_other(void **state)
{
    static const char *const others[] = {
        "", "run", "POST", "POST ", "POST x", "GET /v1", "post /v1", " /v1"};
    struct reconcile_scope scope;
    (void)state;
    assert_true(reconcile_scope(SLICE_LIT("POST /v1/payments"), &scope));
    assert_int_equal(scope.method, CONFIG_METHOD_POST);
    assert_true(slice_is(scope.path, "/v1/payments"));
    assert_false(scope.is_cut);
    assert_true(reconcile_scope(SLICE_LIT("DELETE /"), &scope));
    assert_int_equal(scope.method, CONFIG_METHOD_DELETE);
    assert_true(reconcile_scope(SLICE_LIT("POST shop.example:81/v1/payments"), &scope));
    assert_true(slice_is(scope.path, "/v1/payments"));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_false(reconcile_scope(slice_str(others[i]), &scope));
    }
}

static void a_scope_that_was_cut_shows(void **state)
{
    char path[1000] = "/";
    struct reconcile_scope scope;
    struct arena arena;
    struct slice text;
    (void)state;
    memset(path + 1, 'x', sizeof path - 2);
    arena_init(&arena, &mem_libc, 1 << 16);
    struct request_form_place place = {.method = SLICE_LIT("PUT"), .path = slice_str(path)};
    assert_int_equal(request_form_scope(&place, &arena, &text), OK);
    assert_true(reconcile_scope(text, &scope));
    assert_true(scope.is_cut);
    assert_int_equal(scope.method, CONFIG_METHOD_PUT);
    arena_release(&arena);
}

static void a_reason_has_no_query_and_fits(void **state)
{
    char text[LIMIT_REASON_BYTES_MAX + 1];
    char path[1000] = "/";
    (void)state;
    reconcile_reason(SLICE_LIT("/by-key/a?secret=1"), 200, text);
    assert_string_equal(text, "reconciled: GET /by-key/a answered 200");
    memset(path + 1, 'x', sizeof path - 2);
    for (size_t len = 200; len < 300; len++) {
        reconcile_reason(slice_of(path, len), 404, text);
        assert_non_null(strstr(text, " answered 404"));
        assert_int_equal(strstr(text, "...") != NULL, len > 223);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(only_a_named_status_means_anything),
        TEST(the_key_takes_each_of_its_places_and_no_more),
        TEST(a_key_with_dot_segments_leads_nowhere),
        TEST(a_target_too_long_is_refused_and_leaves_nothing),
        TEST(a_key_is_sent_in_a_form_that_names_it),
        TEST(a_scope_of_the_gateway_is_read_and_no_other),
        TEST(a_scope_that_was_cut_shows),
        TEST(a_reason_has_no_query_and_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
