/* How many loops should serve: what a load leads to, and what holds under any. */
#include "check_c.h"
#include "http/width.h"
#include "prng.h"

enum { MS = 1000000, SAMPLE_MS = 100 };

struct drive {
    struct width width;
    uint64_t now_ns;
};

static void drive_init(struct drive *drive, unsigned loops)
{
    width_init(&drive->width, loops);
    drive->now_ns = 1;
    (void)width_sampled(&drive->width, drive->now_ns);
}

/* Each loop that serves is busy for that share of the time. */
static unsigned pass(struct drive *drive, uint64_t ms, unsigned percent)
{
    unsigned serving = drive->width.serving;
    for (uint64_t done = 0; done < ms; done += SAMPLE_MS) {
        for (unsigned i = 0; i < drive->width.serving; i++) {
            width_took(&drive->width, SAMPLE_MS * MS / 100 * percent);
        }
        drive->now_ns += SAMPLE_MS * MS;
        serving = width_sampled(&drive->width, drive->now_ns);
    }
    return serving;
}

/* As much work as `cores` hundredths of a core, spread evenly, until the time is over. */
static unsigned carry(struct drive *drive, uint64_t ms, unsigned cores)
{
    for (uint64_t done = 0; done < ms; done += SAMPLE_MS) {
        unsigned each = cores / drive->width.serving;
        (void)pass(drive, SAMPLE_MS, each > 100 ? 100 : each);
    }
    return drive->width.serving;
}

static void one_loop_serves_until_it_is_busy(void **state)
{
    (void)state;
    struct drive drive;
    drive_init(&drive, 8);
    assert_int_equal(pass(&drive, 60000, 84), 1);
    assert_int_equal(pass(&drive, 200, 85), 1);
    assert_int_equal(pass(&drive, 100, 85), 2);
}

static void a_short_peak_does_not_count(void **state)
{
    (void)state;
    struct drive drive;
    drive_init(&drive, 2);
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(pass(&drive, 200, 100), 1);
        assert_int_equal(pass(&drive, 100, 50), 1);
    }
}

static void there_are_never_more_than_there_are(void **state)
{
    (void)state;
    struct drive drive;
    drive_init(&drive, 3);
    assert_int_equal(pass(&drive, 60000, 100), 3);
    drive_init(&drive, 1);
    assert_int_equal(pass(&drive, 60000, 100), 1);
    assert_int_equal(pass(&drive, 60000, 0), 1);
}

/* One loop at its end is a limit for its connections, however idle the others are. */
static void one_busy_loop_among_idle_ones_is_enough(void **state)
{
    (void)state;
    struct drive drive;
    drive_init(&drive, 3);
    assert_int_equal(pass(&drive, 300, 100), 2);
    for (unsigned i = 0; i < 3; i++) {
        width_took(&drive.width, 90 * MS);
        width_took(&drive.width, 0);
        drive.now_ns += SAMPLE_MS * MS;
        (void)width_sampled(&drive.width, drive.now_ns);
    }
    assert_int_equal(drive.width.serving, 3);
}

static void when_the_load_falls_it_narrows_with_a_margin(void **state)
{
    (void)state;
    struct drive drive;
    drive_init(&drive, 4);
    assert_int_equal(carry(&drive, 5000, 300), 4);
    /* 190 hundredths would keep each of three at 63 %. */
    assert_int_equal(carry(&drive, 20000, 190), 4);
    assert_int_equal(carry(&drive, 2900, 100), 4);
    assert_int_equal(carry(&drive, 100, 100), 3);
    assert_int_equal(carry(&drive, 20000, 100), 2);
    assert_int_equal(carry(&drive, 20000, 10), 1);
}

static void a_load_that_comes_and_goes_is_met_with_more_patience(void **state)
{
    (void)state;
    struct drive drive;
    unsigned narrowings = 0;
    drive_init(&drive, 2);
    for (unsigned second = 0; second < 600; second++) {
        unsigned before = drive.width.serving;
        (void)carry(&drive, 1000, second % 8 < 4 ? 95 : 5);
        narrowings += drive.width.serving < before;
    }
    assert_in_range(narrowings, 1, 2);
    assert_int_equal(carry(&drive, 600000, 5), 1); /* but it does in the end */
    assert_int_equal(carry(&drive, 300, 100), 2);
    assert_int_equal(carry(&drive, 3100, 5), 1); /* and that is forgotten */
}

static void a_gap_says_nothing_about_now(void **state)
{
    (void)state;
    struct drive drive;
    drive_init(&drive, 2);
    (void)pass(&drive, 200, 100);
    width_took(&drive.width, UINT64_MAX);
    drive.now_ns += 2 * WIDTH_GAP_NS; /* asleep, or nothing to do */
    assert_int_equal(width_sampled(&drive.width, drive.now_ns), 1);
    assert_int_equal(pass(&drive, 300, 100), 2);
    width_took(&drive.width, 1);
    drive.now_ns += 9000 * (uint64_t)MS; /* all threads were stopped: that is not rest */
    assert_int_equal(width_sampled(&drive.width, drive.now_ns), 2);
    drive.now_ns = 5; /* the clock went back */
    assert_int_equal(width_sampled(&drive.width, drive.now_ns), 2);
    assert_int_equal(pass(&drive, 2900, 0), 2);
    assert_int_equal(pass(&drive, 100, 0), 1);
}

/* Whatever is measured, however often: by one at a time, within its bounds, never narrower within
 * three seconds, and not wider and narrower again and again. */
static void it_holds_under_any_load(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct prng prng = {.state = seed};
        struct drive drive;
        unsigned loops = 1 + (unsigned)prng_below(&prng, 6);
        unsigned serving = 1, turns = 0, percent = 0;
        bool has_narrowed = false;
        uint64_t began_ns = 0;
        drive_init(&drive, loops);
        for (unsigned i = 0; i < 5000; i++) {
            uint64_t step_ns = prng_below(&prng, 200) == 0 ? prng_below(&prng, 30) * 1000 * MS
                                                           : prng_below(&prng, 300) * MS;
            percent = prng_below(&prng, 40) == 0 ? (unsigned)prng_below(&prng, 130) : percent;
            if (seed % 2 == 0) { /* always the load that this number is wrong for */
                percent = serving > 1 ? 5 : 100;
            }
            for (unsigned loop = 0; loop < serving; loop++) {
                width_took(&drive.width, step_ns / 100 * percent);
            }
            drive.now_ns += step_ns;
            unsigned now = width_sampled(&drive.width, drive.now_ns);
            assert_in_range(now, serving > 1 ? serving - 1 : 1, serving + 1);
            assert_in_range(now, 1, loops);
            if (now < serving) {
                assert_true(drive.now_ns - began_ns >= WIDTH_PATIENCE_NS);
                began_ns = drive.now_ns;
                has_narrowed = true;
            } else if (now > serving) {
                turns += has_narrowed;
                has_narrowed = false;
                began_ns = drive.now_ns;
            }
            serving = now;
        }
        /* Each either waited as long as is not soon, or doubled the patience. */
        assert_true(turns <= drive.now_ns / (WIDTH_SOON * WIDTH_PATIENCE_NS) + 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_loop_serves_until_it_is_busy),
        cmocka_unit_test(a_short_peak_does_not_count),
        cmocka_unit_test(there_are_never_more_than_there_are),
        cmocka_unit_test(one_busy_loop_among_idle_ones_is_enough),
        cmocka_unit_test(when_the_load_falls_it_narrows_with_a_margin),
        cmocka_unit_test(a_load_that_comes_and_goes_is_met_with_more_patience),
        cmocka_unit_test(a_gap_says_nothing_about_now),
        cmocka_unit_test(it_holds_under_any_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
