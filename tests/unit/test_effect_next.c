/* What happens to an effect after an attempt: the rules of effect/next_step.h, a row each. */
#include "base/macros.h"
#include "check_c.h"
#include "effect/next_step.h"

enum { HOUR_MS = 3600000, DAY_MS = 24 * HOUR_MS };

/* A provider that keeps keys for a day, one that can only be asked, and one that can do nothing. */
static const struct config_connector keyed = {
    .idempotency = {.header = "Idempotency-Key", .keeps_ms = DAY_MS}, .total_ms = 60000};
static const struct config_connector bodied = {
    .idempotency = {.body = "/key", .keeps_ms = DAY_MS}, .total_ms = 60000};
static const struct config_connector asked = {
    .lookup = {.get = "/by/{idempotency_key}", .quiet_ms = 60000}, .total_ms = 60000};
static const struct config_connector bare = {.total_ms = 60000};
static const struct config_connector by_hand = {
    .idempotency = {.header = "Idempotency-Key", .keeps_ms = DAY_MS},
    .approve = CONFIG_APPROVE_MANUAL,
    .total_ms = 60000};

static void an_answer_has_the_verdict_of_the_design(void **state)
{
    static const struct {
        enum outcall_point point;
        unsigned status;
        enum outcall_verdict verdict;
    } rows[] = {
        {OUTCALL_ANSWERED, 200, VERDICT_EXECUTED},
        {OUTCALL_ANSWERED, 201, VERDICT_EXECUTED},
        {OUTCALL_ANSWERED, 204, VERDICT_EXECUTED},
        {OUTCALL_ANSWERED, 299, VERDICT_EXECUTED},
        {OUTCALL_ANSWERED, 301, VERDICT_UNKNOWN},
        {OUTCALL_ANSWERED, 303, VERDICT_UNKNOWN},
        {OUTCALL_ANSWERED, 307, VERDICT_UNKNOWN},
        {OUTCALL_ANSWERED, 400, VERDICT_FAILED},
        {OUTCALL_ANSWERED, 401, VERDICT_FAILED},
        {OUTCALL_ANSWERED, 402, VERDICT_FAILED},
        {OUTCALL_ANSWERED, 404, VERDICT_FAILED},
        {OUTCALL_ANSWERED, 408, VERDICT_LATER},
        {OUTCALL_ANSWERED, 409, VERDICT_FAILED},
        {OUTCALL_ANSWERED, 422, VERDICT_FAILED},
        {OUTCALL_ANSWERED, 425, VERDICT_LATER},
        {OUTCALL_ANSWERED, 429, VERDICT_LATER},
        {OUTCALL_ANSWERED, 500, VERDICT_UNKNOWN},
        {OUTCALL_ANSWERED, 501, VERDICT_UNKNOWN},
        {OUTCALL_ANSWERED, 502, VERDICT_UNKNOWN},
        {OUTCALL_ANSWERED, 503, VERDICT_LATER},
        {OUTCALL_ANSWERED, 504, VERDICT_UNKNOWN},
        {OUTCALL_ANSWERED, 599, VERDICT_UNKNOWN},
        {OUTCALL_NOT_SENT, 0, VERDICT_LATER},
        {OUTCALL_SENT, 0, VERDICT_UNKNOWN},
        {OUTCALL_HEAD, 200, VERDICT_UNKNOWN},
    };
    const struct judge_rules rules = next_attempt_rules();
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (judge(&rules, rows[i].point, rows[i].status) != rows[i].verdict) {
            fail_msg("point %d, status %u", (int)rows[i].point, rows[i].status);
        }
    }
}

static void each_rule_has_its_step(void **state)
{
    static const struct {
        const char *rule;
        const struct config_connector *connector;
        bool is_uncertain; /* an attempt before this one was */
        uint32_t attempt;
        int64_t first_sent_ms;
        int64_t now_ms;
        int64_t delay_ms;
        enum outcall_verdict verdict;
        unsigned status;
        enum next_step step;
    } rows[] = {
        {"2xx", &bare, false, 1, 1, 1, 0, VERDICT_EXECUTED, 200, NEXT_ACKNOWLEDGED},
        {"4xx", &bare, false, 1, 1, 1, 0, VERDICT_FAILED, 402, NEXT_FAILED},
        {"409", &keyed, false, 1, 1, 1, 0, VERDICT_FAILED, 409, NEXT_FAILED},
        {"503", &bare, false, 1, 1, 1, 0, VERDICT_LATER, 503, NEXT_RETRY},
        {"503, used up", &bare, false, 5, 1, 1, 0, VERDICT_LATER, 503, NEXT_RETRY},
        {"N1", &keyed, false, 1, 1, 1000, 10, VERDICT_UNKNOWN, 0, NEXT_RESEND},
        {"N1, in the body", &bodied, false, 1, 1, 1000, 10, VERDICT_UNKNOWN, 500, NEXT_RESEND},
        {"N1, past keeps", &keyed, false, 1, 1, DAY_MS, 10, VERDICT_UNKNOWN, 0, NEXT_UNKNOWN},
        {"N1, keeps ends during the call", &keyed, false, 1, 1, DAY_MS - 30000, 0, VERDICT_UNKNOWN,
            0, NEXT_UNKNOWN},
        {"N1, keeps ends during the pause", &keyed, false, 1, 1, HOUR_MS, DAY_MS, VERDICT_UNKNOWN,
            0, NEXT_UNKNOWN},
        {"N1, nothing was sent before", &keyed, false, 1, 0, 1000, 0, VERDICT_UNKNOWN, 0,
            NEXT_UNKNOWN},
        {"N2, asked", &asked, false, 1, 1, 1000, 0, VERDICT_UNKNOWN, 500, NEXT_UNKNOWN},
        {"N2, held", &bare, false, 1, 1, 1000, 0, VERDICT_UNKNOWN, 0, NEXT_UNKNOWN},
        {"N3", &by_hand, false, 1, 1, 1000, 0, VERDICT_UNKNOWN, 0, NEXT_UNKNOWN},
        {"N4, 2xx", &keyed, true, 2, 1, 1000, 0, VERDICT_EXECUTED, 200, NEXT_ACKNOWLEDGED},
        {"N4, 503", &keyed, true, 2, 1, 1000, 0, VERDICT_LATER, 503, NEXT_RESEND},
        {"N4, not connected", &keyed, true, 2, 1, 1000, 0, VERDICT_LATER, 0, NEXT_RESEND},
        {"N4, 409", &keyed, true, 2, 1, 1000, 0, VERDICT_FAILED, 409, NEXT_RESEND},
        {"N4, past keeps", &keyed, true, 2, 1, DAY_MS, 0, VERDICT_LATER, 503, NEXT_UNKNOWN},
        {"N5, 401", &keyed, true, 2, 1, 1000, 0, VERDICT_FAILED, 401, NEXT_UNKNOWN},
        {"N5, 422", &keyed, true, 2, 1, 1000, 0, VERDICT_FAILED, 422, NEXT_UNKNOWN},
        {"N6, attempts", &keyed, true, 5, 1, 1000, 0, VERDICT_LATER, 503, NEXT_UNKNOWN},
        {"N6, first uncertain is the last", &keyed, false, 5, 1, 1000, 0, VERDICT_UNKNOWN, 0,
            NEXT_UNKNOWN},
        {"N6, deadline", &keyed, true, 2, 20 * HOUR_MS, 23 * HOUR_MS, 2 * HOUR_MS, VERDICT_LATER,
            503, NEXT_UNKNOWN},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct config_effect type = {
            .connector = rows[i].connector, .attempts = 5, .deadline_ms = DAY_MS};
        struct next_facts facts = {.type = &type,
            .attempt = rows[i].attempt,
            .first_sent_ms = rows[i].first_sent_ms,
            .is_uncertain = rows[i].is_uncertain,
            .now_ms = rows[i].now_ms,
            .delay_ms = rows[i].delay_ms};
        if (next_after_attempt(&facts, rows[i].verdict, rows[i].status) != rows[i].step) {
            fail_msg("%s", rows[i].rule);
        }
    }
}

/* A type may say so too. */
static void a_type_approved_by_hand_is_never_sent_again(void **state)
{
    struct config_effect type = {
        .connector = &keyed, .attempts = 5, .approve = CONFIG_APPROVE_MANUAL};
    struct next_facts facts = {.type = &type, .attempt = 1, .first_sent_ms = 1, .now_ms = 2};
    (void)state;
    assert_false(next_may_resend(&facts));
    assert_true(next_is_held(&type)); /* NX9 */
    type.approve = CONFIG_APPROVE_NONE;
    assert_true(next_may_resend(&facts));
    assert_false(next_is_held(&type));
}

static void what_cannot_be_sent_is_unknown_if_it_may_have_happened(void **state)
{
    static const struct {
        uint32_t attempt;
        bool is_uncertain, is_readable, is_unknown;
    } rows[] = {
        {1, false, true, false}, /* the first attempt: nothing was ever sent */
        {1, false, false, false},
        {3, false, true, false}, /* each earlier one is known not to have happened */
        {3, true, true, true},
        {2, false, false, true}, /* nobody can read what became of the first */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct next_facts facts = {
            .attempt = rows[i].attempt, .is_uncertain = rows[i].is_uncertain};
        assert_int_equal(next_may_have_happened(&facts, rows[i].is_readable), rows[i].is_unknown);
    }
}

static void a_lookup_means_what_it_names(void **state)
{
    static const struct config_lookup lookup = {.get = "/x",
        .executed = {200, 201},
        .executed_count = 2,
        .not_executed = {404},
        .not_executed_count = 1};
    struct next_lookup_statuses statuses;
    const struct judge_rules rules = next_lookup_rules(&lookup, &statuses);
    (void)state;
    assert_int_equal(judge(&rules, OUTCALL_ANSWERED, 200), VERDICT_EXECUTED);
    assert_int_equal(judge(&rules, OUTCALL_ANSWERED, 201), VERDICT_EXECUTED);
    assert_int_equal(judge(&rules, OUTCALL_ANSWERED, 404), VERDICT_RELEASED);
    assert_int_equal(judge(&rules, OUTCALL_ANSWERED, 204), VERDICT_UNKNOWN);
    assert_int_equal(judge(&rules, OUTCALL_ANSWERED, 500), VERDICT_UNKNOWN);
    assert_int_equal(judge(&rules, OUTCALL_NOT_SENT, 0), VERDICT_UNKNOWN);
    assert_int_equal(judge(&rules, OUTCALL_SENT, 0), VERDICT_UNKNOWN);
}

static void not_executed_is_believed_after_quiet(void **state)
{
    static const struct config_lookup lookup = {
        .quiet_ms = 60000, .every_ms = 1000, .every_ms_max = 600000};
    (void)state;
    assert_int_equal(next_quiet_ms(&lookup, 0), 60000);
    assert_int_equal(next_quiet_ms(&lookup, 59999), 1);
    assert_int_equal(next_quiet_ms(&lookup, 60000), 0);
    assert_int_equal(next_quiet_ms(&lookup, 60001), 0);
}

static void questions_come_ever_later(void **state)
{
    static const struct config_lookup lookup = {.every_ms = 1000, .every_ms_max = 600000};
    (void)state;
    assert_int_equal(next_question_ms(&lookup, 0, 0), 1000);
    assert_int_equal(next_question_ms(&lookup, 0, 2000), 2000);
    assert_int_equal(next_question_ms(&lookup, 0, 64000), 64000);
    assert_int_equal(next_question_ms(&lookup, 0, DAY_MS), 600000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_answer_has_the_verdict_of_the_design),
        TEST(each_rule_has_its_step),
        TEST(a_type_approved_by_hand_is_never_sent_again),
        TEST(what_cannot_be_sent_is_unknown_if_it_may_have_happened),
        TEST(a_lookup_means_what_it_names),
        TEST(not_executed_is_believed_after_quiet),
        TEST(questions_come_ever_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
