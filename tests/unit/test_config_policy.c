/*
 * Policy files: what is taken as it stands in the source, what each line means, what is refused,
 * and every allocation of a gateway's configuration failing in turn.
 */
#include "config_drive.h"
#include "faulty_mem.h"

static void the_policy_of_the_source_holds_for_every_route(void **state)
{
    (void)state;
    static const char *const names[] = {"idempotency.yml", "indented.yml"};
    for (size_t i = 0; i < 2; i++) {
        struct buf policy;
        read_vector(names[i], &policy);
        struct config *config = take_with(
            "gateway: {" UP ", window: 30h, routes: [{match: /a},\n"
            "  {match: /w, kind: webhook}, {match: /b, kind: batch}, {match: /own, window: 25h,\n"
            "   profile: ietf, key: optional}]}\n",
            policy.data);
        const struct config_route *routes = config->gateway.routes;
        assert_int_equal(routes[0].profile, CONFIG_PROFILE_OPS);
        assert_int_equal(routes[0].window_ms, 48 * HOUR_MS);
        assert_int_equal(routes[0].key, CONFIG_KEY_REQUIRED);
        assert_int_equal(routes[0].conflict_status, 409);
        assert_true(routes[0].conflict_diff);
        assert_int_equal(routes[1].window_ms, 14 * DAY_MS);
        assert_int_equal(routes[2].window_ms, 3 * DAY_MS);
        assert_int_equal(routes[3].window_ms, 25 * HOUR_MS);
        assert_int_equal(routes[3].profile, CONFIG_PROFILE_IETF);
        assert_int_equal(routes[3].key, CONFIG_KEY_OPTIONAL);
        assert_int_equal(routes[3].conflict_status, 409);
        assert_int_equal(config->gateway.require_header_count, 0);
        config_free(config);
        buf_release(&policy);
    }
}

static void each_line_of_a_policy_is_told_with_its_meaning(void **state)
{
    (void)state;
    struct buf text;
    struct config *config = NULL;
    struct config_faults faults = {0};
    read_vector("idempotency.yml", &text);
    assert_int_equal(config_new(&mem_libc, &config, NULL), OK);
    struct slice bytes = slice_str(text.data);
    assert_true(config_is_policy(&mem_libc, bytes));
    assert_int_equal(config_policy_read(config, bytes, &faults), OK);
    static const struct {
        unsigned line;
        const char *setting;
        const char *value;
        bool is_note;
    } lines[] = {{3, "require_headers", "Idempotency-Key", false},
        {4, "reject_on_body_mismatch", "true", false}, {6, "stores.fence", "redis", true},
        {8, "ttl.webhook_days", "14", false}, {9, "ttl.api_hours", "48", false},
        {10, "ttl.batch_days", "3", false},
        {13, "logging.include_fields", "idempotency_key", false},
        {14, "logging.include_fields", "effect_id", false},
        {15, "logging.include_fields", "decision", false},
        {16, "logging.include_fields", "source_type", false},
        {17, "logging.include_fields", "source_id", false},
        {19, "on_conflict.status", "409", false}, {20, "on_conflict.include_diff", "true", false}};
    assert_int_equal(config->policy.count, sizeof lines / sizeof lines[0]);
    for (size_t i = 0; i < config->policy.count; i++) {
        assert_int_equal(config->policy.lines[i].line, lines[i].line);
        assert_string_equal(config->policy.lines[i].setting, lines[i].setting);
        assert_string_equal(config->policy.lines[i].value, lines[i].value);
        assert_int_equal(config->policy.lines[i].is_note, lines[i].is_note);
        assert_true(strlen(config->policy.lines[i].meaning) > 20);
    }
    assert_non_null(
        strstr(config->policy.lines[2].meaning, "this process keeps fences in 'journal:"));
    config_free(config);
    buf_release(&text);
}

static void refuse_policy(
    const char *text, unsigned line, unsigned column, const char *says, const char *hint)
{
    struct reading reading = read_all("", text);
    judge(text, &reading, line, column, says, hint);
}

static void a_wrong_policy_is_refused_at_its_place(void **state)
{
    (void)state;
    refuse_policy("ttl: {api_hours: 73}\n", 1, 18, "73 is more than 72 hours", "24 to 72 hours");
    refuse_policy("ttl: {api_hours: 23}\n", 1, 18, "23 is less than 24 hours", "24 to 72 hours");
    refuse_policy("ttl: {webhook_days: 6}\n", 1, 21, "6 is less than 7 days", "senders repeat");
    refuse_policy("ttl: {batch_days: 0}\n", 1, 19, "0 is less than 1 days", "its whole run");
    refuse_policy("ttl: {api_hours: 2.5}\n", 1, 18, "is not a whole number of hours", NULL);
    refuse_policy("ttl: {api_hours: }\n", 1, 18, "must be one value", NULL);
    refuse_policy("reject_on_body_mismatch: false\n", 1, 26, "is refused: a different body", NULL);
    refuse_policy("reject_on_body_mismatch: yes\n", 1, 26, "is not true or false", NULL);
    refuse_policy("stores: {fence: memcached}\n", 1, 17, "is not a store", "journal, redis");
    refuse_policy("logging: {include_fields: [desicion]}\n", 1, 28, "is not a field of the log",
        "did you mean 'decision'?");
    refuse_policy("on_conflict: {status: 200}\n", 1, 23, "is not a status of a conflict", NULL);
    refuse_policy("require_headers: ['a b']\n", 1, 19, "is not the name of a field", NULL);
    refuse_policy("require_headers: {a: b}\n", 1, 18, "must be a list", NULL);
    refuse_policy("ttls: {api_hours: 48}\n", 1, 1, "unknown key 'ttls'", "did you mean 'ttl'?");
    refuse_policy("ttl: {api_hour: 48}\n", 1, 7, "unknown key 'api_hour'", "'api_hours'");
    refuse_policy("ttl: 48h\n", 1, 6, "ttl must be a map", NULL);
    refuse_policy("- a\n", 1, 1, "must be a map of rules", NULL);
    refuse_policy("", 1, 1, "must be a map of rules", NULL);
    /* Beside a map that is not empty, or not there, nothing says what it belongs to. */
    refuse_policy("fence: redis\n", 1, 1, "'fence' is not at its place", "under 'stores:'");
    refuse_policy("on_conflict: {status: 409}\ninclude_diff: true\n", 2, 1, "not at its place",
        "under 'on_conflict:'");
}

static void other_headers_are_kept_for_the_gateway(void **state)
{
    (void)state;
    struct config *config = take_with("gateway: {" UP "}\n",
        "require_headers: [idempotency-key, X-Tenant, x-tenant, Request-Id]\n"
        "on_conflict: {status: 422, include_diff: false}\n");
    const struct config_gateway *gateway = &config->gateway;
    assert_int_equal(gateway->require_header_count, 2);
    assert_string_equal(gateway->require_headers[0], "X-Tenant");
    assert_string_equal(gateway->require_headers[1], "Request-Id");
    assert_int_equal(gateway->routes[0].conflict_status, 422);
    assert_false(gateway->routes[0].conflict_diff);
    config_free(config);
}

static void a_policy_that_does_not_fit_a_route_is_told_of_it(void **state)
{
    (void)state;
    static const char text[] = "gateway:\n  " UP "\n  routes:\n"
                               "    - {match: /a, profile: guardia}\n";
    struct reading reading = read_all(text, "ttl: {api_hours: 48}\n");
    judge(
        text, &reading, 4, 7, "a window of 48h (line 1 of the policy file) is more than 24h", NULL);
    reading = read_all(
        "log: {decisions: false}\ngateway: {" UP "}\n", "logging: {include_fields: [decision]}\n");
    judge("log", &reading, 0, 0, "log.decisions is false", NULL);
}

static void a_flag_wins_over_a_policy(void **state)
{
    (void)state;
    struct config_faults faults = {0};
    struct config *config = NULL;
    assert_int_equal(config_new(&mem_libc, &config, NULL), OK);
    assert_int_equal(config_set(config, config_option_find("gateway.upstream"), "http://a",
                         "--upstream", false, &faults),
        OK);
    assert_int_equal(config_set(config, config_option_find("gateway.profile"), "adr007",
                         "--profile", false, &faults),
        OK);
    assert_int_equal(config_policy_read(config, SLICE_LIT("ttl: {api_hours: 30}\n"), &faults), OK);
    assert_int_equal(config_check(config, &faults), OK);
    assert_int_equal(config->gateway.routes[0].profile, CONFIG_PROFILE_ADR007);
    assert_int_equal(config->gateway.routes[0].window_ms, 30 * HOUR_MS);
    config_free(config);
}

static void a_configuration_is_no_policy(void **state)
{
    (void)state;
    assert_false(config_is_policy(&mem_libc, SLICE_LIT("")));
    assert_false(config_is_policy(&mem_libc, SLICE_LIT("listen: x\n")));
    assert_false(config_is_policy(&mem_libc, SLICE_LIT("gateway: {}\nttl: {}\n")));
    assert_false(config_is_policy(&mem_libc, SLICE_LIT("[require_headers]\n")));
    assert_false(config_is_policy(&mem_libc, SLICE_LIT("ttl: [\n")));
    assert_true(config_is_policy(&mem_libc, SLICE_LIT("ttl: {}\n")));
    assert_true(config_is_policy(&mem_libc, SLICE_LIT("zzz: 1\nrequire_headers: []\n")));
}

/* ---- no memory --------------------------------------------------------------------------- */

static enum status read_faulty(const struct mem *mem, struct slice text, struct slice policy,
    struct config **ret_config, struct config_faults *faults)
{
    enum status status = config_new(mem, ret_config, NULL);
    if (status == OK) {
        status = config_read(*ret_config, text, faults);
    }
    if (status == OK) {
        status = config_policy_read(*ret_config, policy, faults);
    }
    return status == OK ? config_check(*ret_config, faults) : status;
}

static void no_allocation_that_fails_is_taken_for_a_gateway(void **state)
{
    (void)state;
    struct faulty faulty = {0};
    struct mem mem = {faulty_resize, &faulty};
    struct buf text;
    struct buf policy;
    buf_init(&text, &mem_libc, 1 << 20);
    read_vector("idempotency.yml", &policy);
    buf_str(&text, "gateway:\n  " UP "\n  routes:\n");
    for (int i = 0; i < 150; i++) {
        buf_printf(&text,
            "    - {match: 'POST /r%d', upstream: http://a%d/, ignore: [/a, /b, /c],\n"
            "       principal: header:X-%d}\n",
            i, i, i);
    }
    enum status status = E_NOMEM;
    for (faulty.fail_at = 1; status != OK; faulty.fail_at++) {
        struct config *config = NULL;
        struct config_faults faults = {0};
        faulty.asked = 0;
        status = read_faulty(&mem, buf_view(&text), slice_str(policy.data), &config, &faults);
        assert_true(status == OK || status == E_NOMEM);
        assert_int_equal(faults.count, 0);
        assert_true(status != OK || config->gateway.route_count == 150);
        config_free(config);
        assert_int_equal(faulty.live, 0);
        assert_true(faulty.fail_at < 1000);
    }
    assert_true(faulty.fail_at > 5);
    buf_release(&text);
    buf_release(&policy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_policy_of_the_source_holds_for_every_route),
        TEST(each_line_of_a_policy_is_told_with_its_meaning),
        TEST(a_wrong_policy_is_refused_at_its_place),
        TEST(other_headers_are_kept_for_the_gateway),
        TEST(a_policy_that_does_not_fit_a_route_is_told_of_it),
        TEST(a_flag_wins_over_a_policy),
        TEST(a_configuration_is_no_policy),
        TEST(no_allocation_that_fails_is_taken_for_a_gateway),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
