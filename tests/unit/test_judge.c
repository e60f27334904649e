/* What one call to somebody's server means for the operation it was made for, a row each. */
#include "base/macros.h"
#include "check_c.h"
#include "outcall/judge.h"

/* As a route of the gateway has them: what says that nothing was done is released, and a 5xx that
 * does not say so is unknown. */
static const struct judge_status passing[] = {
    {408, JUDGE_RELEASE}, {425, JUDGE_RELEASE}, {429, JUDGE_RELEASE}, {503, JUDGE_RELEASE}};
static const struct judge_rules usual = {.statuses = passing,
    .status_count = COUNT(passing),
    .classes = {[2] = JUDGE_SEAL, [3] = JUDGE_SEAL, [4] = JUDGE_SEAL, [5] = JUDGE_UNKNOWN},
    .not_sent = JUDGE_RELEASE};

/* on_status: {5xx: unknown, 503: release, 500: seal, 4xx: release, 409: seal, 202: unknown} */
static const struct judge_status chosen[] = {
    {503, JUDGE_RELEASE}, {500, JUDGE_SEAL}, {409, JUDGE_SEAL}, {202, JUDGE_UNKNOWN}};
static const struct judge_rules by_status = {.statuses = chosen,
    .status_count = COUNT(chosen),
    .classes = {[2] = JUDGE_SEAL, [3] = JUDGE_SEAL, [4] = JUDGE_RELEASE, [5] = JUDGE_UNKNOWN},
    .not_sent = JUDGE_RELEASE};

/* A lookup: only what is named means anything. */
static const struct judge_status named[] = {
    {200, JUDGE_EXECUTED}, {409, JUDGE_EXECUTED}, {404, JUDGE_RELEASE}};
static const struct judge_rules lookup = {.statuses = named, .status_count = COUNT(named)};

/* An effect whose provider knows its key: everything that did not say no is tried again. */
static const struct judge_status again[] = {
    {408, JUDGE_LATER}, {425, JUDGE_LATER}, {429, JUDGE_LATER}, {503, JUDGE_LATER}};
static const struct judge_rules effect = {.statuses = again,
    .status_count = COUNT(again),
    .classes = {[2] = JUDGE_SEAL, [3] = JUDGE_SEAL, [4] = JUDGE_SEAL},
    .not_sent = JUDGE_LATER,
    .no_answer = JUDGE_LATER};

struct row {
    const struct judge_rules *rules;
    enum outcall_point point;
    unsigned status;
    enum outcall_verdict verdict;
};

static void check_rows(const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        enum outcall_verdict verdict = judge(rows[i].rules, rows[i].point, rows[i].status);
        if (verdict != rows[i].verdict) {
            fail_msg("row %zu: status %u at point %d is %d, not %d", i, rows[i].status,
                (int)rows[i].point, (int)verdict, (int)rows[i].verdict);
        }
    }
}

static void an_answer_is_sealed_by_its_class(void **state)
{
    static const struct row rows[] = {
        {&usual, OUTCALL_ANSWERED, 200, VERDICT_EXECUTED},
        {&usual, OUTCALL_ANSWERED, 201, VERDICT_EXECUTED},
        {&usual, OUTCALL_ANSWERED, 204, VERDICT_EXECUTED},
        {&usual, OUTCALL_ANSWERED, 299, VERDICT_EXECUTED},
        {&usual, OUTCALL_ANSWERED, 300, VERDICT_EXECUTED},
        {&usual, OUTCALL_ANSWERED, 304, VERDICT_EXECUTED},
        {&usual, OUTCALL_ANSWERED, 399, VERDICT_EXECUTED},
        {&usual, OUTCALL_ANSWERED, 400, VERDICT_FAILED},
        {&usual, OUTCALL_ANSWERED, 422, VERDICT_FAILED},
        {&usual, OUTCALL_ANSWERED, 499, VERDICT_FAILED},
    };
    (void)state;
    check_rows(rows, COUNT(rows));
}

static void only_what_says_that_nothing_was_done_frees_the_key(void **state)
{
    static const struct row rows[] = {
        {&usual, OUTCALL_ANSWERED, 408, VERDICT_RELEASED},
        {&usual, OUTCALL_ANSWERED, 425, VERDICT_RELEASED},
        {&usual, OUTCALL_ANSWERED, 429, VERDICT_RELEASED},
        {&usual, OUTCALL_ANSWERED, 500, VERDICT_UNKNOWN},
        {&usual, OUTCALL_ANSWERED, 502, VERDICT_UNKNOWN},
        {&usual, OUTCALL_ANSWERED, 503, VERDICT_RELEASED},
        {&usual, OUTCALL_ANSWERED, 504, VERDICT_UNKNOWN},
        {&usual, OUTCALL_ANSWERED, 599, VERDICT_UNKNOWN},
        {&usual, OUTCALL_ANSWERED, 600, VERDICT_UNKNOWN}, /* no class of its own: as a 5xx */
        {&usual, OUTCALL_ANSWERED, 999, VERDICT_UNKNOWN},
    };
    (void)state;
    check_rows(rows, COUNT(rows));
}

static void a_status_goes_before_its_class(void **state)
{
    static const struct row rows[] = {
        {&by_status, OUTCALL_ANSWERED, 500, VERDICT_FAILED},
        {&by_status, OUTCALL_ANSWERED, 501, VERDICT_UNKNOWN},
        {&by_status, OUTCALL_ANSWERED, 503, VERDICT_RELEASED},
        {&by_status, OUTCALL_ANSWERED, 504, VERDICT_UNKNOWN},
        {&by_status, OUTCALL_ANSWERED, 404, VERDICT_RELEASED},
        {&by_status, OUTCALL_ANSWERED, 409, VERDICT_FAILED},
        {&by_status, OUTCALL_ANSWERED, 200, VERDICT_EXECUTED},
        {&by_status, OUTCALL_ANSWERED, 202, VERDICT_UNKNOWN},
        {&by_status, OUTCALL_ANSWERED, 302, VERDICT_EXECUTED},
    };
    (void)state;
    check_rows(rows, COUNT(rows));
}

static void only_what_a_lookup_names_means_anything(void **state)
{
    (void)state;
    for (unsigned status = 100; status < 1000; status++) {
        enum outcall_verdict wanted = status == 200 || status == 409 ? VERDICT_EXECUTED
                                      : status == 404                ? VERDICT_RELEASED
                                                                     : VERDICT_UNKNOWN;
        assert_int_equal(judge(&lookup, OUTCALL_ANSWERED, status), wanted);
    }
    assert_int_equal(judge(&lookup, OUTCALL_NOT_SENT, 0), VERDICT_UNKNOWN);
}

/* P5, with each set of rules and each status that may have come before the answer broke off. */
static void what_was_sent_and_not_answered_is_never_released(void **state)
{
    static const struct judge_rules *const all[] = {&usual, &by_status, &lookup, &effect};
    (void)state;
    for (size_t i = 0; i < COUNT(all); i++) {
        enum outcall_verdict wanted = all[i] == &effect ? VERDICT_LATER : VERDICT_UNKNOWN;
        assert_int_equal(judge(all[i], OUTCALL_SENT, 0), wanted);
        for (unsigned status = 100; status < 1000; status++) {
            assert_int_equal(judge(all[i], OUTCALL_HEAD, status), wanted);
        }
    }
}

static void what_was_not_sent_is_free_or_waits(void **state)
{
    static const struct row rows[] = {
        {&usual, OUTCALL_NOT_SENT, 0, VERDICT_RELEASED},
        {&by_status, OUTCALL_NOT_SENT, 0, VERDICT_RELEASED},
        {&effect, OUTCALL_NOT_SENT, 0, VERDICT_LATER},
    };
    (void)state;
    check_rows(rows, COUNT(rows));
}

static void an_effect_is_tried_again_where_its_rules_say_so(void **state)
{
    static const struct row rows[] = {
        {&effect, OUTCALL_ANSWERED, 200, VERDICT_EXECUTED},
        {&effect, OUTCALL_ANSWERED, 402, VERDICT_FAILED},
        {&effect, OUTCALL_ANSWERED, 408, VERDICT_LATER},
        {&effect, OUTCALL_ANSWERED, 429, VERDICT_LATER},
        {&effect, OUTCALL_ANSWERED, 500, VERDICT_UNKNOWN}, /* not declared */
        {&effect, OUTCALL_ANSWERED, 503, VERDICT_LATER},
    };
    (void)state;
    check_rows(rows, COUNT(rows));
}

static void only_what_is_executed_or_failed_is_an_outcome(void **state)
{
    (void)state;
    assert_true(judge_is_outcome(VERDICT_EXECUTED));
    assert_true(judge_is_outcome(VERDICT_FAILED));
    assert_false(judge_is_outcome(VERDICT_RELEASED));
    assert_false(judge_is_outcome(VERDICT_UNKNOWN));
    assert_false(judge_is_outcome(VERDICT_LATER));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_answer_is_sealed_by_its_class),
        TEST(only_what_says_that_nothing_was_done_frees_the_key),
        TEST(a_status_goes_before_its_class),
        TEST(only_what_a_lookup_names_means_anything),
        TEST(what_was_sent_and_not_answered_is_never_released),
        TEST(what_was_not_sent_is_free_or_waits),
        TEST(an_effect_is_tried_again_where_its_rules_say_so),
        TEST(only_what_is_executed_or_failed_is_an_outcome),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
