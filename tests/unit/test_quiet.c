/* How long a lost attempt has certainly been quiet: no step of time counts. */
#include "check_c.h"
#include "outcall/quiet.h"

static void quiet_counts_from_when_it_became_unknown(void **state)
{
    struct quiet_watch watch = {0};
    (void)state;
    quiet_note(&watch, 1000000, 5000);
    quiet_note(&watch, 1200000, 205000);
    assert_int_equal(quiet_for_ms(&watch, 1100000, 1099000), 0);
    assert_int_equal(quiet_for_ms(&watch, 1100000, 1100000), 0);
    assert_int_equal(quiet_for_ms(&watch, 1100000, 1159999), 59999);
}

/* What came before the watch may have been a step. */
static void quiet_counts_from_the_first_reading_at_the_earliest(void **state)
{
    struct quiet_watch watch = {0};
    (void)state;
    quiet_note(&watch, 1000000, 5000);
    assert_int_equal(quiet_for_ms(&watch, 1, 1000000), 0);
    assert_int_equal(quiet_for_ms(&watch, 1, 1060000), 60000);
}

static void a_step_that_the_store_follows_begins_the_quiet_time_anew(void **state)
{
    struct quiet_watch watch = {0};
    (void)state;
    quiet_note(&watch, 1000000, 5000);
    quiet_note(&watch, 1020000, 25001); /* rounding is no step */
    assert_int_equal(quiet_for_ms(&watch, 1010000, 1020000), 10000);
    quiet_note(&watch, 1080000, 35000); /* 50 s ahead; 20 s have passed */
    assert_int_equal(quiet_for_ms(&watch, 1010000, 1080000), 0);
    assert_int_equal(quiet_for_ms(&watch, 1010000, 1140000), 60000);
    quiet_note(&watch, 1030000, 35000); /* read before the step, noted after it */
    quiet_note(&watch, 1090000, 45000);
    assert_int_equal(quiet_for_ms(&watch, 1010000, 1140000), 60000);
    for (int64_t i = 1; i <= 600; i++) { /* many small steps are one large one */
        quiet_note(&watch, 1140000 + i * 105, 95000 + i * 5);
    }
    assert_true(quiet_for_ms(&watch, 1140000, 1203000) < 60000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(quiet_counts_from_when_it_became_unknown),
        TEST(quiet_counts_from_the_first_reading_at_the_earliest),
        TEST(a_step_that_the_store_follows_begins_the_quiet_time_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
