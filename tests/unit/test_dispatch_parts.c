/* The pure parts of the dispatcher: backoff, breaker, rate, turns and figures. */
#include <stdio.h>
#include <string.h>

#include "base/backoff.h"
#include "base/macros.h"
#include "check_c.h"
#include "dispatch/breaker.h"
#include "dispatch/impl.h"
#include "dispatch/rate.h"
#include "dispatch/turns.h"

/* ---- backoff ------------------------------------------------------------------------------- */

static void the_ceiling_doubles_up_to_its_maximum(void **state)
{
    static const struct {
        int64_t first_ms;
        int64_t max_ms;
        unsigned tries;
        int64_t ceiling_ms;
    } rows[] = {
        {1000, 600000, 0, 1000},
        {1000, 600000, 1, 2000},
        {1000, 600000, 9, 512000},
        {1000, 600000, 10, 600000},
        {1000, 600000, 4000000000u, 600000},
        {5000, 1000, 0, 1000},
        {0, 1000, 7, 0},
        {INT64_MAX / 2 + 1, INT64_MAX, 1, INT64_MAX},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(backoff_ceiling_ms(rows[i].first_ms, rows[i].max_ms, rows[i].tries),
            rows[i].ceiling_ms);
    }
}

/* Full jitter: from nothing to the ceiling, both included, and even in between. */
static void jitter_is_even_between_nothing_and_the_ceiling(void **state)
{
    enum { ROUNDS = 100000, PARTS = 10 };
    unsigned parts[PARTS] = {0};
    uint64_t seed = 88172645463325252u;
    (void)state;
    assert_int_equal(backoff_jitter_ms(1000, 0), 0);
    assert_int_equal(backoff_jitter_ms(1000, 1000), 1000);
    assert_int_equal(backoff_jitter_ms(1000, 1001), 0);
    assert_int_equal(backoff_jitter_ms(0, UINT64_MAX), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        int64_t ms = backoff_jitter_ms(999, seed);
        assert_in_range(ms, 0, 999);
        parts[ms / 100]++;
    }
    for (unsigned i = 0; i < PARTS; i++) {
        assert_in_range(parts[i], ROUNDS / PARTS * 95 / 100, ROUNDS / PARTS * 105 / 100);
    }
}

static void retry_after_is_seconds_or_a_date(void **state)
{
    static const struct {
        const char *text;
        int64_t now_ms;
        int64_t after_ms;
    } rows[] = {
        {"120", 0, 120000},
        {"0", 0, 0},
        {"", 0, 0},
        {"soon", 0, 0},
        {"-5", 0, 0},
        {"1.5", 0, 0},
        {"99999999999999999999", 0, 0},
        {"999999999999", 0, INT64_C(31536000000)},
        {"Sun, 06 Nov 1994 08:49:37 GMT", INT64_C(784111777000) - 5000, 5000},
        {"Sun, 06 Nov 1994 08:49:37 GMT", INT64_C(784111777000) + 1, 0},
        {"Sun, 06 Nov 1994 08:49:37 UTC", 0, 0},
        {"Sun, 06 Nox 1994 08:49:37 GMT", 0, 0},
        {"Sun, 66 Nov 1994 08:49:37 GMT", 0, 0},
        {"Sunday, 06-Nov-94 08:49:37 GMT", 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (backoff_retry_after_ms(slice_str(rows[i].text), rows[i].now_ms) != rows[i].after_ms) {
            fail_msg("'%s'", rows[i].text);
        }
    }
}

/* ---- breaker ------------------------------------------------------------------------------- */

static const struct breaker_rule rule = {.failures = 3, .pause_ms = 1000};

static void fail_calls(struct breaker *breaker, unsigned count, int64_t now_ms)
{
    for (unsigned i = 0; i < count; i++) {
        breaker_report(breaker, &rule, breaker_begin(breaker, now_ms), false, now_ms);
    }
}

static void failures_in_a_row_open_it(void **state)
{
    struct breaker breaker = {.state = BREAKER_CLOSED};
    (void)state;
    fail_calls(&breaker, 2, 10);
    breaker_report(&breaker, &rule, breaker_begin(&breaker, 10), true, 10);
    fail_calls(&breaker, 2, 10);
    assert_int_equal(breaker.state, BREAKER_CLOSED); /* four, and not in a row */
    fail_calls(&breaker, 1, 10);
    assert_int_equal(breaker.state, BREAKER_OPEN);
    assert_int_equal(breaker.opened, 1);
    assert_false(breaker_admits(&breaker, 10));
    assert_false(breaker_admits(&breaker, 1009));
    assert_true(breaker_admits(&breaker, 1010));
}

static void it_half_opens_for_one_call(void **state)
{
    struct breaker breaker = {.state = BREAKER_CLOSED};
    (void)state;
    fail_calls(&breaker, 3, 0);
    uint64_t probe = breaker_begin(&breaker, 1000);
    assert_int_equal(breaker.state, BREAKER_HALF_OPEN);
    assert_false(breaker_admits(&breaker, 1000000)); /* BK2 */
    breaker_report(&breaker, &rule, probe, false, 2000);
    assert_int_equal(breaker.state, BREAKER_OPEN);
    assert_false(breaker_admits(&breaker, 2999));
    probe = breaker_begin(&breaker, 3000);
    breaker_report(&breaker, &rule, probe, true, 3001);
    assert_int_equal(breaker.state, BREAKER_CLOSED);
    fail_calls(&breaker, 2, 3002);
    assert_int_equal(breaker.state, BREAKER_CLOSED); /* counts from 0 */
}

/* BK3 */
static void calls_from_before_it_opened_change_nothing(void **state)
{
    struct breaker breaker = {.state = BREAKER_CLOSED};
    (void)state;
    uint64_t slow = breaker_begin(&breaker, 0);
    uint64_t slower = breaker_begin(&breaker, 0);
    fail_calls(&breaker, 3, 0);
    breaker_report(&breaker, &rule, slow, true, 1);
    assert_int_equal(breaker.state, BREAKER_OPEN);
    uint64_t probe = breaker_begin(&breaker, 1000);
    breaker_report(&breaker, &rule, slower, true, 1001);
    assert_int_equal(breaker.state, BREAKER_HALF_OPEN);
    breaker_report(&breaker, &rule, probe, true, 1002);
    assert_int_equal(breaker.state, BREAKER_CLOSED);
}

static void a_probe_that_says_nothing_lets_the_next_one_be_it(void **state)
{
    struct breaker breaker = {.state = BREAKER_CLOSED};
    (void)state;
    fail_calls(&breaker, 3, 0);
    uint64_t probe = breaker_begin(&breaker, 1000);
    breaker_abandon(&breaker, probe, 1001);
    assert_true(breaker_admits(&breaker, 1001));
    (void)breaker_begin(&breaker, 1001);
    assert_int_equal(breaker.state, BREAKER_HALF_OPEN);
}

static void without_a_rule_it_never_opens(void **state)
{
    static const struct breaker_rule never = {.failures = 0, .pause_ms = 1000};
    struct breaker breaker = {.state = BREAKER_CLOSED};
    (void)state;
    for (unsigned i = 0; i < 1000; i++) {
        breaker_report(&breaker, &never, breaker_begin(&breaker, i), false, i);
    }
    assert_int_equal(breaker.state, BREAKER_CLOSED);
}

/* ---- rate ---------------------------------------------------------------------------------- */

static void a_rate_holds_over_any_second(void **state)
{
    static const double rates[] = {0.5, 1, 7, 50, 1000};
    (void)state;
    for (size_t i = 0; i < COUNT(rates); i++) {
        struct rate rate = {.used = 0};
        unsigned taken = 0;
        for (int64_t ms = 1; ms <= 10000; ms++) {
            int64_t wait_ms = 0;
            while (rate_take(&rate, rates[i], ms, &wait_ms)) {
                taken++;
            }
            assert_true(wait_ms >= 1);
        }
        double burst = rates[i] > 1 ? rates[i] : 1;
        assert_in_range(taken, (unsigned)(10 * rates[i]), (unsigned)(10 * rates[i] + burst) + 1);
    }
}

static void the_wait_is_long_enough(void **state)
{
    struct rate rate = {.used = 0};
    int64_t wait_ms = 0;
    (void)state;
    assert_true(rate_take(&rate, 0.5, 1000, &wait_ms)); /* the first never waits */
    assert_false(rate_take(&rate, 0.5, 1000, &wait_ms));
    assert_in_range(wait_ms, 2000, 2001);
    assert_true(rate_take(&rate, 0.5, 1000 + wait_ms, &wait_ms));
    assert_false(rate_take(&rate, 0.5, 500, &wait_ms)); /* a clock that goes back */
    assert_true(rate_take(&rate, 0, 500, &wait_ms));    /* no limit */
}

/* ---- turns --------------------------------------------------------------------------------- */

struct thing {
    struct turns_item item;
    unsigned lane;
    unsigned number;
};

static struct digest key_of(unsigned lane)
{
    struct digest key;
    digest_sha256(&lane, sizeof lane, &key);
    return key;
}

static void put(struct turns *turns, struct thing *thing, unsigned lane, bool is_ordered)
{
    struct digest key = key_of(lane);
    thing->lane = lane;
    struct turns_lane *found = turns_lane(turns, &key, NULL, is_ordered);
    assert_non_null(found);
    turns_put(turns, found, &thing->item);
    turns_check(turns);
}

static bool anybody(void *context, const struct turns_lane *lane)
{
    (void)context;
    (void)lane;
    return true;
}

static bool not_this(void *context, const struct turns_lane *lane)
{
    struct digest key = key_of(*(const unsigned *)context);
    return !digest_equal(&key, &lane->key);
}

static struct thing *take(struct turns *turns, struct turns_lane **ret_lane)
{
    struct turns_item *item = turns_take(turns, anybody, NULL, ret_lane);
    turns_check(turns);
    return (struct thing *)(void *)item;
}

static void a_backlog_keeps_nobody_waiting(void **state)
{
    enum { MANY = 1000 };
    static struct thing things[MANY + 2];
    struct turns turns;
    struct turns_lane *lane = NULL;
    (void)state;
    turns_init(&turns, &mem_libc);
    for (unsigned i = 0; i < MANY; i++) {
        things[i].number = i;
        put(&turns, &things[i], 1, false);
    }
    struct thing *first = take(&turns, &lane);
    assert_int_equal(first->number, 0);
    put(&turns, &things[MANY], 2, false);
    put(&turns, &things[MANY + 1], 3, false);
    unsigned seen = 0;
    for (unsigned i = 0; i < 3; i++) {
        seen |= 1u << take(&turns, &lane)->lane;
    }
    assert_int_equal(seen, 1u << 1 | 1u << 2 | 1u << 3); /* each within one round */
    for (unsigned i = 2; i < MANY; i++) {
        assert_int_equal(take(&turns, &lane)->number, i); /* first in, first out */
    }
    assert_null(take(&turns, &lane));
    assert_int_equal(turns.waiting, 0);
    turns_release(&turns);
}

static void an_ordered_lane_has_one_out(void **state)
{
    static struct thing things[3];
    struct turns turns;
    struct turns_lane *lane = NULL;
    struct turns_lane *other = NULL;
    (void)state;
    turns_init(&turns, &mem_libc);
    put(&turns, &things[0], 1, true);
    put(&turns, &things[1], 1, true);
    put(&turns, &things[2], 2, true);
    assert_ptr_equal(take(&turns, &lane), &things[0]);
    assert_ptr_equal(take(&turns, &other), &things[2]);
    assert_null(take(&turns, &other)); /* things[1] waits for things[0] */
    turns_put_back(&turns, lane, &things[0].item);
    turns_check(&turns);
    assert_ptr_equal(take(&turns, &lane), &things[0]); /* it is still the first */
    turns_over(&turns, lane);
    assert_ptr_equal(take(&turns, &lane), &things[1]);
    turns_over(&turns, lane);
    turns_check(&turns);
    turns_release(&turns);
}

static void who_may_not_go_is_passed_by(void **state)
{
    static struct thing things[2];
    static unsigned barred = 1;
    struct turns turns;
    struct turns_lane *lane = NULL;
    (void)state;
    turns_init(&turns, &mem_libc);
    put(&turns, &things[0], 1, false);
    put(&turns, &things[1], 2, false);
    assert_ptr_equal(turns_take(&turns, not_this, &barred, &lane), &things[1].item);
    assert_null(turns_take(&turns, not_this, &barred, &lane));
    assert_ptr_equal(take(&turns, &lane), &things[0]);
    assert_int_equal(turns.lanes, 2);
    turns_release(&turns);
}

/* ---- figures ------------------------------------------------------------------------------- */

/* A sender has a queue of its own: what waited in it too long must not be sent. */
static void what_waits_in_a_sender_is_sent_in_time_or_not_at_all(void **state)
{
    static const struct {
        int64_t lease_ms, total_ms, own_ms, until_ms;
    } rows[] = {
        {15000, 10000, 0, 5000},    /* it ends within the lease */
        {600000, 10000, 0, 30000},  /* and others may not consider us gone (S12) */
        {15000, 10000, 4999, 4999}, /* its own time is earlier */
        {15000, 10000, 5001, 5000}, /* or later */
        {600000, 10000, 30001, 30000},
        {15000, 10000, -1, -1}, /* it is over */
        {9000, 10000, 0, -1000},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct door_grant grant = {
            .now_ms = 1000000, .boot_ms = 77, .lease_expires_ms = 1000000 + rows[i].lease_ms};
        int64_t own_ms = rows[i].own_ms == 0 ? 0 : 1000000 + rows[i].own_ms;
        assert_int_equal(
            run_sends_until_ms(&grant, rows[i].total_ms, own_ms), 77 + rows[i].until_ms);
    }
}

/* The server was away, or others had their turn first: too late is too late. */
static void an_attempt_that_comes_after_its_deadline_is_late(void **state)
{
    static const struct {
        int64_t deadline_ms, due_ms, now_ms;
        bool asks, is_late;
    } rows[] = {
        {5000, 2000, 6000, false, false}, {5000, 2000, 6001, false, true},
        {5000, 6000, 6001, false, true},  /* planned for the last moment */
        {5000, 6001, 9000, false, false}, /* planned after it, by a person */
        {0, 2000, 900000, false, false},  /* there is none */
        {5000, 0, 6001, false, false},    /* it is not known when it was planned for */
        {5000, 2000, 6001, true, false},  /* a question does nothing */
    };
    static const struct record record = {.created_ms = 1000};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct dispatch_call call = {.record = &record,
            .due_ms = rows[i].due_ms,
            .now_ms = rows[i].now_ms,
            .asks = rows[i].asks};
        assert_int_equal(dispatch_is_late(&call, rows[i].deadline_ms), rows[i].is_late);
    }
}

static void targets_past_the_most_are_added_up(void **state)
{
    static const struct dispatch_kind commands = {.name = "commands"},
                                      effects = {.name = "effects"};
    static const char *const names[] = {"a", "b", "c"};
    struct dispatch dispatch = {.mem = &mem_libc, .lock = PTHREAD_MUTEX_INITIALIZER};
    struct dispatch_target of_commands[COUNT(names)] = {0}, of_effects[1] = {0};
    struct dispatch_plan plans[] = {{.kind = &commands, .targets = of_commands, .target_count = 3},
        {.kind = &effects, .targets = of_effects, .target_count = 1}};
    struct metrics_target told[4];
    (void)state;
    assert_int_equal(dispatch_figures(&dispatch, told, 4), 0);
    for (size_t i = 0; i < COUNT(names); i++) {
        of_commands[i].gauge = gauge_of(&dispatch, &commands, names[i]);
        of_commands[i].gauge->turns.waiting = 10 * (i + 1);
        gauge_judged(of_commands[i].gauge, false, VERDICT_LATER);
        gauge_judged(of_commands[i].gauge, true, VERDICT_UNKNOWN);
    }
    of_effects[0].gauge = gauge_of(&dispatch, &effects, "a"); /* a name of both kinds */
    of_effects[0].gauge->breaker.state = BREAKER_OPEN;
    dispatch.plans[RECORD_COMMAND] = &plans[0];
    dispatch.plans[RECORD_EFFECT] = &plans[1];

    assert_int_equal(dispatch_figures(&dispatch, told, 4), 4);
    assert_string_equal(told[0].kind, "effects");
    assert_int_equal(told[0].breakers[BREAKER_OPEN], 1);
    assert_int_equal(told[0].breakers[BREAKER_CLOSED], 0);
    assert_int_equal(told[0].attempts[VERDICT_LATER], 0);
    assert_string_equal(told[3].name, "c");
    assert_int_equal(told[3].queued, 30);
    assert_int_equal(told[3].attempts[VERDICT_LATER], 1);
    assert_int_equal(told[3].attempts[VERDICT_UNKNOWN], 0);
    assert_int_equal(told[3].questions, 1);

    assert_int_equal(dispatch_figures(&dispatch, told, 3), 3);
    assert_string_equal(told[1].name, "a");
    assert_int_equal(told[1].queued, 10);
    assert_null(told[2].kind);
    assert_null(told[2].name);
    assert_int_equal(told[2].queued, 20 + 30);
    assert_int_equal(told[2].breakers[BREAKER_CLOSED], 2);
    for (struct dispatch_gauge *at = dispatch.gauges, *next; at != NULL; at = next) {
        next = at->next;
        gauge_free(at);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_ceiling_doubles_up_to_its_maximum),
        TEST(jitter_is_even_between_nothing_and_the_ceiling),
        TEST(retry_after_is_seconds_or_a_date),
        TEST(failures_in_a_row_open_it),
        TEST(it_half_opens_for_one_call),
        TEST(calls_from_before_it_opened_change_nothing),
        TEST(a_probe_that_says_nothing_lets_the_next_one_be_it),
        TEST(without_a_rule_it_never_opens),
        TEST(a_rate_holds_over_any_second),
        TEST(the_wait_is_long_enough),
        TEST(a_backlog_keeps_nobody_waiting),
        TEST(an_ordered_lane_has_one_out),
        TEST(who_may_not_go_is_passed_by),
        TEST(what_waits_in_a_sender_is_sent_in_time_or_not_at_all),
        TEST(an_attempt_that_comes_after_its_deadline_is_late),
        TEST(targets_past_the_most_are_added_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
