/*
 * Every refusal in every profile, against the table of docs/gateway.md (Profiles) and the words of
 * the documents that the profiles are named after; and the bodies of the chief ones to the byte.
 */
#include <stdio.h>

#include "canon/json.h"
#include "check_c.h"
#include "gateway/refusals.h"

enum { BYTES_MAX = 1 << 20 };

#define ID    "op_01"
#define EXTRA "\"differs\":[\"body\"],\"diff\":[{\"op\":\"replace\",\"path\":\"/a\",\"value\":2}]"

struct said {
    struct refused refused;
    struct buf out;
    struct arena arena;
    const struct json_value *json;
};

static void say_as(struct said *said, const struct config_route *route, struct refusal refusal)
{
    buf_init(&said->out, &mem_libc, BYTES_MAX);
    arena_init(&said->arena, &mem_libc, BYTES_MAX);
    said->refused = refusals_write(route, &refusal, SLICE_LIT("r-1"), &said->out);
    assert_int_equal(buf_status(&said->out), OK);
    struct err err;
    if (json_read(buf_view(&said->out), &said->arena, &said->json, &err) != OK) {
        fail_msg("%.*s: %s", SLICE_ARGS(buf_view(&said->out)), err.text);
    }
}

/* As the configuration sets them, unless a route says something else. */
static const unsigned usual_conflicts[CONFIG_PROFILES] = {
    [CONFIG_PROFILE_IETF] = 422,
    [CONFIG_PROFILE_GUARDIA] = 409,
    [CONFIG_PROFILE_ADR007] = 409,
    [CONFIG_PROFILE_OPS] = 409,
    [CONFIG_PROFILE_STRIPE] = 400,
};

static void say(struct said *said, enum config_profile profile, struct refusal refusal)
{
    struct config_route route = {.profile = profile, .conflict_status = usual_conflicts[profile]};
    say_as(said, &route, refusal);
}

static void hush(struct said *said)
{
    buf_release(&said->out);
    arena_release(&said->arena);
}

static void check_text(const struct json_value *object, const char *name, const char *expected)
{
    const struct json_value *value = json_find(object, slice_str(name));
    if (!json_is(value, JSON_STRING) || !slice_is(json_text(value), expected)) {
        fail_msg("%s is '%.*s', not '%s'", name, value == NULL ? 0 : SLICE_ARGS(json_text(value)),
            expected);
    }
}

/* One row a kind, written apart from the program's own. */
static const struct row {
    enum refusal_kind kind;
    unsigned status; /* of all profiles; a conflict has its own test */
    const char *code;
    const char *effect;
    const char *retry;
    const char *guardia_code;
    const char *guardia_reason;
    const char *adr007;
    const char *stripe_type;
    const char *stripe_code;
} rows[] = {
    {REFUSAL_KEY_MISSING, 400, "idempotency_key_missing", "no", "no", "ERR400_INVALID_ARGUMENT",
        "IDEMPOTENCY_KEY_REQUIRED", "idempotency_key_missing", "invalid_request_error",
        "idempotency_key_missing"},
    {REFUSAL_KEY_INVALID, 400, "idempotency_key_invalid", "no", "no", "ERR400_INVALID_ARGUMENT",
        "IDEMPOTENCY_KEY_INVALID", "idempotency_key_invalid", "invalid_request_error",
        "idempotency_key_invalid"},
    {REFUSAL_PRINCIPAL, 401, "unauthorized", "no", "no", "ERR401_UNAUTHORIZED",
        "PRINCIPAL_REQUIRED", "unauthorized", "invalid_request_error", "unauthorized"},
    {REFUSAL_REQUEST, 400, "malformed_request", "no", "no", "ERR400_INVALID_ARGUMENT",
        "MALFORMED_REQUEST", "malformed_request", "invalid_request_error", "malformed_request"},
    {REFUSAL_UPGRADE, 400, "upgrade_not_fenced", "no", "no", "ERR400_INVALID_ARGUMENT",
        "UPGRADE_NOT_FENCED", "upgrade_not_fenced", "invalid_request_error", "upgrade_not_fenced"},
    {REFUSAL_BODY_TOO_LARGE, 413, "body_too_large", "no", "no", "ERR413_CONTENT_TOO_LARGE",
        "BODY_TOO_LARGE", "body_too_large", "invalid_request_error", "body_too_large"},
    {REFUSAL_CONFLICT, 0, "idempotency_conflict", "no", "no", "ERR409_CONFLICT",
        "CONFLICTING_IDEMPOTENT_REQUEST", "idempotency_mismatch", "idempotency_error",
        "idempotency_conflict"},
    {REFUSAL_IN_PROGRESS, 409, "in_progress", "unknown", "after", "ERR409_CONFLICT",
        "IDEMPOTENT_REQUEST_IN_PROGRESS", "idempotency_in_progress", "invalid_request_error",
        "idempotency_key_in_use"},
    {REFUSAL_OUTCOME_UNKNOWN, 409, "outcome_unknown", "unknown", "no", "ERR409_CONFLICT",
        "OUTCOME_UNKNOWN", "outcome_unknown", "api_error", "outcome_unknown"},
    {REFUSAL_NOT_RETAINED, 410, "outcome_not_retained", "yes", "no", "ERR410_GONE",
        "OUTCOME_NOT_RETAINED", "outcome_not_retained", "api_error", "outcome_not_retained"},
    {REFUSAL_FLOODED, 429, "too_many_duplicates", "no", "after", "ERR429_TOO_MANY_REQUESTS",
        "TOO_MANY_DUPLICATES", "too_many_duplicates", "invalid_request_error",
        "too_many_duplicates"},
    {REFUSAL_NO_ROUTE, 404, "not_found", "no", "no", "ERR404_NOT_FOUND", "NO_ROUTE", "not_found",
        "invalid_request_error", "not_found"},
    {REFUSAL_UNREACHABLE, 502, "upstream_unreachable", "no", "safe", "ERR502_BAD_GATEWAY",
        "UPSTREAM_UNREACHABLE", "upstream_unreachable", "api_error", "upstream_unreachable"},
    {REFUSAL_NO_ANSWER, 504, "outcome_unknown", "unknown", "after", "ERR504_GATEWAY_TIMEOUT",
        "OUTCOME_UNKNOWN", "outcome_unknown", "api_error", "outcome_unknown"},
    {REFUSAL_BROKEN_ANSWER, 504, "outcome_unknown", "unknown", "after", "ERR504_GATEWAY_TIMEOUT",
        "OUTCOME_UNKNOWN", "outcome_unknown", "api_error", "outcome_unknown"},
    {REFUSAL_READ_FAILED, 504, "upstream_failed", "no", "safe", "ERR504_GATEWAY_TIMEOUT",
        "UPSTREAM_FAILED", "upstream_failed", "api_error", "upstream_failed"},
    {REFUSAL_UPSTREAM_BUSY, 503, "upstream_busy", "no", "after", "ERR503_SERVICE_UNAVAILABLE",
        "UPSTREAM_BUSY", "upstream_busy", "api_error", "upstream_busy"},
    {REFUSAL_STORE, 503, "unavailable", "no", "safe", "ERR503_SERVICE_UNAVAILABLE",
        "STORE_UNAVAILABLE", "unavailable", "api_error", "unavailable"},
    {REFUSAL_NOT_SEALED, 503, "outcome_not_sealed", "unknown", "after",
        "ERR503_SERVICE_UNAVAILABLE", "OUTCOME_NOT_SEALED", "outcome_not_sealed", "api_error",
        "outcome_not_sealed"},
    {REFUSAL_OVERLOADED, 503, "overloaded", "no", "after", "ERR503_SERVICE_UNAVAILABLE",
        "OVERLOADED", "overloaded", "api_error", "overloaded"},
    {REFUSAL_LIMIT, 503, "limit_reached", "no", "after", "ERR503_SERVICE_UNAVAILABLE",
        "LIMIT_REACHED", "limit_reached", "api_error", "limit_reached"},
    {REFUSAL_MEMORY, 503, "out_of_memory", "no", "safe", "ERR503_SERVICE_UNAVAILABLE",
        "OUT_OF_MEMORY", "out_of_memory", "api_error", "out_of_memory"},
    {REFUSAL_SPOOL, 507, "spool_full", "no", "safe", "ERR507_INSUFFICIENT_STORAGE", "SPOOL_FULL",
        "spool_full", "api_error", "spool_full"},
};

/* Where a profile has its members, and those that say which refusal it is. */
static const struct json_value *check_words(
    const struct said *said, const struct row *row, enum config_profile profile)
{
    const struct json_value *errors = json_find(said->json, SLICE_LIT("errors"));
    const struct json_value *error = json_find(said->json, SLICE_LIT("error"));
    char type[80];
    switch (profile) {
    case CONFIG_PROFILE_IETF:
    case CONFIG_PROFILE_OPS:
        (void)snprintf(type, sizeof type, "/docs/problems.md#%s", row->code);
        check_text(said->json, "type", type);
        check_text(said->json, "code", row->code);
        check_text(error, "type", row->stripe_type);
        check_text(error, "code", row->code);
        return said->json;
    case CONFIG_PROFILE_GUARDIA:
        assert_true(json_is(errors, JSON_ARRAY));
        assert_int_equal(said->json->count, 2);
        check_text(error, "type", row->stripe_type);
        check_text(error, "code", row->code);
        assert_int_equal(errors->count, 1);
        check_text(&errors->items[0], "code", row->guardia_code);
        check_text(&errors->items[0], "reason", row->guardia_reason);
        return &errors->items[0];
    case CONFIG_PROFILE_ADR007: check_text(said->json, "error", row->adr007); return said->json;
    case CONFIG_PROFILE_STRIPE:
        assert_int_equal(said->json->count, 1);
        check_text(error, "type", row->stripe_type);
        check_text(error, "code", row->stripe_code);
        return error;
    }
    return NULL;
}

static void check_row(const struct row *row, enum config_profile profile)
{
    struct said said;
    bool is_problem = profile == CONFIG_PROFILE_IETF || profile == CONFIG_PROFILE_OPS;
    say(&said, profile,
        (struct refusal){.kind = row->kind,
            .operation_id = SLICE_LIT(ID),
            .retry_after_ms = 1500,
            .extra = SLICE_LIT(EXTRA)});
    const struct json_value *members = check_words(&said, row, profile);
    if (row->status != 0) {
        assert_int_equal(said.refused.status, row->status);
    }
    assert_string_equal(
        said.refused.content_type, is_problem ? "application/problem+json" : "application/json");
    assert_string_equal(said.refused.effect, row->effect);
    check_text(members, "effect", row->effect);
    bool is_settling = row->kind == REFUSAL_OUTCOME_UNKNOWN; /* because a time is given */
    check_text(members, "retry", is_settling ? "after" : row->retry);
    check_text(members, "operation_id", ID);
    check_text(members, "request_id", "r-1");
    int64_t ms = 0;
    assert_true(json_int(json_find(members, SLICE_LIT("retry_after_ms")), &ms));
    assert_int_equal(ms, 1500);
    assert_true(json_is(json_find(members, SLICE_LIT("diff")), JSON_ARRAY));
    struct slice message =
        json_text(json_find(members, is_problem ? SLICE_LIT("detail") : SLICE_LIT("message")));
    assert_true(message.len > 10);
    assert_string_equal(refusal_code(row->kind), row->code);
    hush(&said);
}

/* A client that is told to come back later is told when. */
static void after_always_has_a_time(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool is_later = strcmp(rows[i].retry, "after") == 0;
        struct said said;
        say(&said, CONFIG_PROFILE_IETF, (struct refusal){.kind = rows[i].kind});
        check_text(said.json, "retry", rows[i].retry);
        int64_t ms = 0;
        assert_true(json_int(json_find(said.json, SLICE_LIT("retry_after_ms")), &ms) == is_later);
        assert_int_equal(ms, is_later ? 1000 : 0);
        assert_int_equal(said.refused.retry_after_ms, ms);
        hush(&said);
    }
}

/* Only a key makes it safe to send something again that may have happened. */
static void without_a_key_what_may_have_happened_is_not_sent_again(void **state)
{
    (void)state;
    for (unsigned profile = 0; profile < CONFIG_PROFILES; profile++) {
        struct said said;
        say(&said, (enum config_profile)profile,
            (struct refusal){.kind = REFUSAL_NO_ANSWER, .is_unfenced = true});
        check_text(check_words(&said, &rows[REFUSAL_NO_ANSWER], (enum config_profile)profile),
            "retry", "no");
        assert_int_equal(said.refused.retry_after_ms, 0);
        hush(&said);
    }
}

static void every_kind_is_said_in_every_profile(void **state)
{
    (void)state;
    assert_int_equal(sizeof rows / sizeof *rows, REFUSAL_KINDS);
    for (unsigned kind = 0; kind < REFUSAL_KINDS; kind++) {
        assert_int_equal(rows[kind].kind, kind);
        for (unsigned profile = 0; profile < CONFIG_PROFILES; profile++) {
            check_row(&rows[kind], (enum config_profile)profile);
        }
    }
}

static unsigned conflict_status(enum config_profile profile, unsigned route_status)
{
    struct said said;
    struct config_route route = {.profile = profile, .conflict_status = route_status};
    say_as(&said, &route, (struct refusal){.kind = REFUSAL_CONFLICT});
    unsigned status = said.refused.status;
    int64_t written = status;
    if (profile == CONFIG_PROFILE_IETF || profile == CONFIG_PROFILE_OPS) {
        assert_true(json_int(json_find(said.json, SLICE_LIT("status")), &written));
    }
    assert_int_equal(written, status);
    hush(&said);
    return status;
}

static void a_conflict_has_the_status_of_its_route(void **state)
{
    (void)state;
    for (unsigned profile = 0; profile < CONFIG_PROFILES; profile++) {
        assert_int_equal(conflict_status((enum config_profile)profile, 409), 409);
        assert_int_equal(conflict_status((enum config_profile)profile, 422), 422);
        assert_int_equal(conflict_status((enum config_profile)profile, 400), 400);
    }
    /* What the route says of conflicts is said of nothing else. */
    struct said said;
    struct config_route route = {.conflict_status = 400};
    say_as(&said, &route, (struct refusal){.kind = REFUSAL_IN_PROGRESS});
    assert_int_equal(said.refused.status, 409);
    hush(&said);
}

static void check_body(enum config_profile profile, struct refusal refusal, const char *expected)
{
    struct said said;
    say(&said, profile, refusal);
    if (!slice_is(buf_view(&said.out), expected)) {
        fail_msg("\n%.*s\n%s", SLICE_ARGS(buf_view(&said.out)), expected);
    }
    hush(&said);
}

static const char *should_retry(enum config_profile profile, enum refusal_kind kind)
{
    struct said said;
    say(&said, profile, (struct refusal){.kind = kind});
    const char *word = said.refused.should_retry;
    hush(&said);
    return word;
}

static void stripes_libraries_hear_whether_to_try_again(void **state)
{
    (void)state;
    enum config_profile stripe = CONFIG_PROFILE_STRIPE;
    assert_string_equal(should_retry(stripe, REFUSAL_OUTCOME_UNKNOWN), "false");
    assert_string_equal(should_retry(stripe, REFUSAL_NO_ANSWER), "false");
    assert_string_equal(should_retry(stripe, REFUSAL_BROKEN_ANSWER), "false");
    assert_string_equal(should_retry(stripe, REFUSAL_IN_PROGRESS), "true");
    assert_null(should_retry(stripe, REFUSAL_CONFLICT));
    assert_null(should_retry(stripe, REFUSAL_UNREACHABLE));
    assert_null(should_retry(CONFIG_PROFILE_IETF, REFUSAL_OUTCOME_UNKNOWN));
}

static void the_chief_bodies_are_these_bytes(void **state)
{
    (void)state;
    struct refusal conflict = {.kind = REFUSAL_CONFLICT,
        .operation_id = SLICE_LIT(ID),
        .extra = SLICE_LIT("\"diff\":null")};
    check_body(CONFIG_PROFILE_IETF, (struct refusal){.kind = REFUSAL_KEY_MISSING},
        "{\"type\":\"/docs/problems.md#idempotency_key_missing\",\"title\":\"Bad Request\","
        "\"status\":400,\"detail\":\"the Idempotency-Key field is missing; nothing was done\","
        "\"code\":\"idempotency_key_missing\","
        "\"effect\":\"no\",\"retry\":\"no\",\"request_id\":\"r-1\","
        "\"error\":{\"type\":\"invalid_request_error\",\"code\":\"idempotency_key_missing\","
        "\"message\":\"the Idempotency-Key field is missing; nothing was done\"}}");
    check_body(CONFIG_PROFILE_GUARDIA, conflict,
        "{\"errors\":[{\"code\":\"ERR409_CONFLICT\",\"reason\":\"CONFLICTING_IDEMPOTENT_REQUEST\","
        "\"message\":\"the idempotency key was used with a different request; nothing was "
        "done\",\"effect\":\"no\",\"retry\":\"no\",\"request_id\":\"r-1\",\"operation_id\":\"op_"
        "01\",\"diff\":null}],\"error\":{\"type\":\"idempotency_error\",\"code\":"
        "\"idempotency_conflict\",\"message\":\"the idempotency key was used with a different "
        "request; nothing was done\"}}");
    check_body(CONFIG_PROFILE_ADR007, conflict,
        "{\"error\":\"idempotency_mismatch\",\"message\":\"the idempotency key was used with a "
        "different request; nothing was done\",\"effect\":\"no\",\"retry\":\"no\",\"request_"
        "id\":\"r-1\",\"operation_id\":\"op_01\",\"diff\":null}");
    check_body(CONFIG_PROFILE_STRIPE, conflict,
        "{\"error\":{\"type\":\"idempotency_error\",\"code\":\"idempotency_conflict\",\"message\":"
        "\"the idempotency key was used with a different request; nothing was done\",\"effect\":"
        "\"no\",\"retry\":\"no\",\"request_id\":\"r-1\",\"operation_id\":\"op_01\",\"diff\":null}"
        "}");
}

static void a_conflict_under_ops_has_a_diff_though_none_was_made(void **state)
{
    (void)state;
    struct said said;
    say(&said, CONFIG_PROFILE_OPS, (struct refusal){.kind = REFUSAL_CONFLICT});
    assert_true(json_is(json_find(said.json, SLICE_LIT("diff")), JSON_NULL));
    hush(&said);
    say(&said, CONFIG_PROFILE_OPS,
        (struct refusal){.kind = REFUSAL_CONFLICT, .extra = SLICE_LIT(EXTRA)});
    assert_true(json_is(json_find(said.json, SLICE_LIT("diff")), JSON_ARRAY));
    hush(&said);
    say(&said, CONFIG_PROFILE_IETF, (struct refusal){.kind = REFUSAL_CONFLICT});
    assert_null(json_find(said.json, SLICE_LIT("diff")));
    hush(&said);
}

static const char *effect_not_sealed(enum problem_effect known)
{
    struct said said;
    say(&said, CONFIG_PROFILE_IETF,
        (struct refusal){.kind = REFUSAL_NOT_SEALED, .effect_known = known});
    check_text(said.json, "effect", said.refused.effect);
    hush(&said);
    return said.refused.effect;
}

static void what_was_sent_is_never_said_to_have_had_no_effect(void **state)
{
    (void)state;
    assert_string_equal(effect_not_sealed(PROBLEM_EFFECT_YES), "yes");
    assert_string_equal(effect_not_sealed(PROBLEM_EFFECT_UNKNOWN), "unknown");
    assert_string_equal(effect_not_sealed(PROBLEM_EFFECT_NO), "unknown");
}

static const char *challenge(enum refusal_kind kind, enum config_principal principal)
{
    struct said said;
    struct config_route route = {.principal = principal};
    say_as(&said, &route, (struct refusal){.kind = kind});
    hush(&said);
    return said.refused.authenticate;
}

static void a_token_that_is_missing_is_asked_for(void **state)
{
    (void)state;
    assert_string_equal(challenge(REFUSAL_PRINCIPAL, CONFIG_PRINCIPAL_JWT), "Bearer");
    assert_null(challenge(REFUSAL_PRINCIPAL, CONFIG_PRINCIPAL_HEADER));
    assert_null(challenge(REFUSAL_CONFLICT, CONFIG_PRINCIPAL_JWT));
}

static void a_detail_of_its_own_is_escaped_in_every_profile(void **state)
{
    (void)state;
    for (unsigned profile = 0; profile < CONFIG_PROFILES; profile++) {
        struct said said;
        say(&said, (enum config_profile)profile,
            (struct refusal){.kind = REFUSAL_KEY_INVALID,
                .detail = SLICE_LIT("a \"quoted\" word\\ and\n a line")});
        const struct json_value *members =
            check_words(&said, &rows[REFUSAL_KEY_INVALID], (enum config_profile)profile);
        bool is_problem = profile == CONFIG_PROFILE_IETF || profile == CONFIG_PROFILE_OPS;
        check_text(members, is_problem ? "detail" : "message", "a \"quoted\" word\\ and\n a line");
        assert_null(json_find(members, SLICE_LIT("operation_id")));
        assert_null(json_find(members, SLICE_LIT("retry_after_ms")));
        hush(&said);
    }
}

static void a_body_that_does_not_fit_is_told_by_the_buffer(void **state)
{
    (void)state;
    for (unsigned profile = 0; profile < CONFIG_PROFILES; profile++) {
        struct buf out;
        struct config_route route = {
            .profile = (enum config_profile)profile, .conflict_status = usual_conflicts[profile]};
        struct refusal refusal = {.kind = REFUSAL_CONFLICT};
        buf_init(&out, &mem_libc, 40);
        struct refused refused = refusals_write(&route, &refusal, SLICE_EMPTY, &out);
        assert_int_equal(buf_status(&out), E_LIMIT);
        assert_string_equal(refused.effect, "no");
        buf_release(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_kind_is_said_in_every_profile),
        TEST(after_always_has_a_time),
        TEST(without_a_key_what_may_have_happened_is_not_sent_again),
        TEST(a_conflict_has_the_status_of_its_route),
        TEST(stripes_libraries_hear_whether_to_try_again),
        TEST(the_chief_bodies_are_these_bytes),
        TEST(a_conflict_under_ops_has_a_diff_though_none_was_made),
        TEST(what_was_sent_is_never_said_to_have_had_no_effect),
        TEST(a_token_that_is_missing_is_asked_for),
        TEST(a_detail_of_its_own_is_escaped_in_every_profile),
        TEST(a_body_that_does_not_fit_is_told_by_the_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
