/*
 * Which users share an upstream: those whose settings are all equal. Each setting that identify()
 * forgot would give one route the addresses, certificates or limits of another.
 */
#include <stdio.h>
#include <unistd.h>

#include "base/macros.h"
#include "check_c.h"
#include "outcall/upstreams.h"

static const char *const one_url[] = {"http://127.0.0.1:9", "http://127.0.0.1:10"};
static const char *const other_url[] = {"http://127.0.0.1:11"};

static struct upstreams *upstreams;

static int setup(void **state)
{
    (void)state;
    assert_int_equal(upstreams_new(&mem_libc, 1, &upstreams, NULL), OK);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    upstreams_free(upstreams);
    return 0;
}

static struct upstreams_one *hold(const struct upstreams_wanted *wanted)
{
    struct upstreams_one *one = NULL;
    struct err err;
    assert_int_equal(upstreams_hold(upstreams, wanted, &one, &err), OK);
    return one;
}

static void only_equal_settings_share(void **state)
{
    const struct upstreams_wanted all[] = {
        {.urls = one_url, .url_count = 1, .connections_max = 8, .idle_ms_max = 4000},
        {.urls = other_url, .url_count = 1, .connections_max = 8, .idle_ms_max = 4000},
        {.urls = one_url, .url_count = 2, .connections_max = 8, .idle_ms_max = 4000},
        {.urls = one_url, .url_count = 1, .connections_max = 9, .idle_ms_max = 4000},
        {.urls = one_url, .url_count = 1, .connections_max = 8, .idle_ms_max = 4001},
        {.urls = one_url, .url_count = 1, .connections_max = 8, .idle_ms_max = 0},
        {.urls = one_url,
            .url_count = 1,
            .connections_max = 8,
            .idle_ms_max = 4000,
            .is_public_only = true},
    };
    struct upstreams_one *held[COUNT(all)][2];
    (void)state;
    for (size_t i = 0; i < COUNT(all); i++) {
        for (size_t twice = 0; twice < 2; twice++) {
            held[i][twice] = hold(&all[i]);
        }
    }
    for (size_t i = 0; i < COUNT(all); i++) {
        assert_ptr_equal(held[i][0], held[i][1]);
        for (size_t j = 0; j < i; j++) {
            assert_ptr_not_equal(held[i][0], held[j][0]);
        }
        upstreams_drop(upstreams, held[i][0]);
        upstreams_drop(upstreams, held[i][1]);
    }
}

/* What the last holder dropped is never held again: it may be closed already. */
static void one_that_was_dropped_is_not_shared(void **state)
{
    const struct upstreams_wanted wanted = {.urls = one_url, .url_count = 1, .connections_max = 1};
    (void)state;
    struct upstreams_one *first = hold(&wanted);
    struct upstreams_one *again = hold(&wanted);
    upstreams_drop(upstreams, first);
    struct upstreams_one *third = hold(&wanted);
    assert_ptr_equal(again, third);
    upstreams_drop(upstreams, again);
    upstreams_drop(upstreams, third);
    struct upstreams_one *later = hold(&wanted);
    assert_ptr_not_equal(later, first);
    upstreams_drop(upstreams, later);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_equal_settings_share, setup, teardown),
        cmocka_unit_test_setup_teardown(one_that_was_dropped_is_not_shared, setup, teardown),
    };
    return cmocka_run_group_tests_name("upstreams", tests, NULL, NULL);
}
