/*
 * The engine's time: never back, not across restarts either, and no belief in jumps (P8).
 */
#include "base/limits.h"
#include "check_c.h"
#include "store/clock.h"

struct fake {
    struct clock_reading now;
};

static struct clock_reading fake_read(void *context)
{
    return ((struct fake *)context)->now;
}

static const int64_t noon = 1794770607000;

static void start(
    struct store_clock *moment, struct fake *fake, struct clock *clock, struct store_moment last)
{
    *clock = (struct clock){.read = fake_read, .boot_id = 9, .context = fake};
    store_clock_init(moment, clock, &last);
}

static void step(struct fake *fake, int64_t wall_ms, int64_t boot_ms)
{
    fake->now.wall_ms += wall_ms;
    fake->now.boot_ms += boot_ms;
}

static void it_follows_the_wall_clock_while_both_agree(void **state)
{
    (void)state;
    struct fake fake = {{noon, 1000}};
    struct clock clock;
    struct store_clock moment;
    start(&moment, &fake, &clock, (struct store_moment){0});
    step(&fake, 5000, 5000);
    assert_int_equal(store_clock_now(&moment).time_ms, noon + 5000);
    step(&fake, 30000, 1000); /* half a minute ahead is a correction, not a jump */
    assert_int_equal(store_clock_now(&moment).time_ms, noon + 35000);
    assert_false(moment.held);
}

static void a_step_back_neither_turns_nor_stops_it(void **state)
{
    (void)state;
    struct fake fake = {{noon, 1000}};
    struct clock clock;
    struct store_clock moment;
    start(&moment, &fake, &clock, (struct store_moment){0});
    step(&fake, -3600000, 1000);
    assert_int_equal(store_clock_now(&moment).time_ms, noon + 1000);
    step(&fake, 1000, 1000);
    assert_int_equal(store_clock_now(&moment).time_ms, noon + 2000);
}

static void a_jump_ahead_is_not_believed_until_it_is_taken_back(void **state)
{
    (void)state;
    struct fake fake = {{noon, 1000}};
    struct clock clock;
    struct store_clock moment;
    start(&moment, &fake, &clock, (struct store_moment){0});
    step(&fake, LIMIT_CLOCK_JUMP_MS_MAX + 2000, 1000);
    assert_int_equal(store_clock_now(&moment).time_ms, noon + 1000);
    assert_true(moment.held);
    step(&fake, -LIMIT_CLOCK_JUMP_MS_MAX, 1000);
    assert_int_equal(store_clock_now(&moment).time_ms, noon + 2000);
    assert_false(moment.held);
}

static void many_small_steps_do_not_add_up_to_a_jump(void **state)
{
    (void)state;
    struct fake fake = {{noon, 1000}};
    struct clock clock;
    struct store_clock moment;
    start(&moment, &fake, &clock, (struct store_moment){0});
    for (int i = 0; i < 100; i++) {
        step(&fake, 50000, 10);
        (void)store_clock_now(&moment);
    }
    assert_true(moment.time_ms <= noon + 1000 + LIMIT_CLOCK_JUMP_MS_MAX + 1);
}

static void a_restart_on_the_same_boot_goes_on_by_the_boot_clock(void **state)
{
    (void)state;
    struct fake fake = {{noon + 86400000, 61000}};
    struct clock clock;
    struct store_clock moment;
    start(&moment, &fake, &clock, (struct store_moment){noon, 1000, 9, 0});
    assert_int_equal(store_clock_now(&moment).time_ms, noon + 60000);
    assert_true(moment.held);
}

/* A lease of two minutes would be over after three restarts in three seconds (P8). */
static void restarts_do_not_grant_the_tolerated_jump_anew(void **state)
{
    (void)state;
    struct fake fake = {{noon, 1000}};
    struct clock clock;
    struct store_clock moment;
    struct store_moment last = {0};
    for (int i = 0; i < 20; i++) {
        start(&moment, &fake, &clock, last);
        last = store_clock_now(&moment);
        step(&fake, 50000, 1000);
    }
    assert_true(last.time_ms > noon + 19000);
    assert_true(last.time_ms <= noon + 19000 + LIMIT_CLOCK_JUMP_MS_MAX + 19);
    assert_true(moment.held);
}

/* Otherwise a machine whose clock runs a little fast would be held for the rest of its days. */
static void the_tolerated_jump_comes_back_by_a_thousandth_of_the_time(void **state)
{
    (void)state;
    struct fake fake = {{noon, 1000}};
    struct clock clock;
    struct store_clock moment;
    start(&moment, &fake, &clock, (struct store_moment){0});
    step(&fake, 50000, 0);
    struct store_moment last = store_clock_now(&moment);
    step(&fake, 40000000, 40000000); /* eleven hours, in which 40 of the 50 s come back */
    start(&moment, &fake, &clock, last);
    last = store_clock_now(&moment);
    assert_int_equal(last.jump_ms, 10000);
    start(&moment, &fake, &clock, last);
    step(&fake, 49000, 0);
    assert_int_equal(store_clock_now(&moment).time_ms, fake.now.wall_ms);
    assert_false(moment.held);
}

static void what_was_followed_ahead_is_forgotten_with_the_boot(void **state)
{
    (void)state;
    struct fake fake = {{noon, 1000}};
    struct clock clock;
    struct store_clock moment;
    start(&moment, &fake, &clock, (struct store_moment){noon, 999999, 8, 60000});
    step(&fake, 59000, 0);
    assert_int_equal(store_clock_now(&moment).time_ms, noon + 59000);
    assert_int_equal(store_clock_now(&moment).jump_ms, 59000);
}

static void a_restart_of_the_machine_believes_a_later_wall_clock_only(void **state)
{
    (void)state;
    struct fake fake = {{noon + 86400000, 10}};
    struct clock clock;
    struct store_clock moment;
    start(&moment, &fake, &clock, (struct store_moment){noon, 999999, 8, 0});
    assert_int_equal(store_clock_now(&moment).time_ms, noon + 86400000);
    fake.now.wall_ms = 0; /* the clock lost its battery */
    start(&moment, &fake, &clock, (struct store_moment){noon, 999999, 8, 0});
    assert_int_equal(store_clock_now(&moment).time_ms, noon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(it_follows_the_wall_clock_while_both_agree),
        TEST(a_step_back_neither_turns_nor_stops_it),
        TEST(a_jump_ahead_is_not_believed_until_it_is_taken_back),
        TEST(many_small_steps_do_not_add_up_to_a_jump),
        TEST(a_restart_on_the_same_boot_goes_on_by_the_boot_clock),
        TEST(restarts_do_not_grant_the_tolerated_jump_anew),
        TEST(the_tolerated_jump_comes_back_by_a_thousandth_of_the_time),
        TEST(what_was_followed_ahead_is_forgotten_with_the_boot),
        TEST(a_restart_of_the_machine_believes_a_later_wall_clock_only),
    };
    return cmocka_run_group_tests_name("store_clock", tests, NULL, NULL);
}
