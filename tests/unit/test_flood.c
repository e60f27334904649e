/* The flood limit: rate and burst to the duplicate, shares of tenants, and counts that add up. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "check_c.h"
#include "door/flood.h"
#include "prng.h"

static const struct flood_rate rate = {.per_second = 20, .burst = 40};
enum { SECOND = 1000000000 };

/* A key of a tenant; the texts are static for the few that are alive at a time. */
static struct record_key key_of(const char *tenant, uint64_t number)
{
    static _Thread_local char texts[64][32];
    static _Thread_local size_t turn;
    char *text = texts[turn++ % 64];
    (void)snprintf(text, sizeof texts[0], "k%llu", (unsigned long long)number);
    struct record_key key = {.tenant = slice_str(tenant),
        .scope = SLICE_LIT("pay"),
        .principal = SLICE_LIT("p"),
        .key = slice_str(text)};
    struct err err;
    assert_int_equal(record_key_seal(&key, &err), OK);
    return key;
}

/* A duplicate knocks: true when it was let in. */
static bool knock(struct flood *flood, const struct record_key *key, uint64_t now)
{
    int64_t after_ms = -1;
    if (flood_refuse(flood, key, rate, now, &after_ms)) {
        assert_true(after_ms > 0);
        return false;
    }
    flood_count(flood, key, rate, now);
    return true;
}

struct drained {
    uint64_t refused;
    uint64_t keys;
    struct slice tenant; /* only of this one; empty: of all */
};

static void add_up(void *context, const struct record_key *key, uint64_t refused)
{
    struct drained *drained = context;
    struct record_key again = *key;
    struct err err;
    assert_int_equal(record_key_seal(&again, &err), OK);
    assert_true(digest_equal(&again.hash, &key->hash)); /* the parts are those of the key */
    assert_true(refused > 0);
    if (drained->tenant.len == 0 || slice_equal(drained->tenant, key->tenant)) {
        drained->refused += refused;
        drained->keys++;
    }
}

static void the_burst_and_then_the_rate_hold_exactly(void **state)
{
    (void)state;
    struct flood *flood = flood_new(&mem_libc);
    struct record_key key = key_of("acme", 1);
    uint64_t now = SECOND, taken = 0;
    for (int i = 0; i < 100; i++) {
        taken += knock(flood, &key, now);
    }
    assert_int_equal(taken, 40);
    taken = 0;
    for (int i = 0; i < 100000; i++) { /* a hundred seconds, a knock each millisecond */
        taken += knock(flood, &key, now += SECOND / 1000);
    }
    assert_in_range(taken, 1999, 2000); /* rounding may keep the last one out */
    now += 60ull * SECOND;              /* quiet: the bucket is full again and no fuller */
    taken = 0;
    for (int i = 0; i < 100; i++) {
        taken += knock(flood, &key, now);
    }
    assert_int_equal(taken, 40);
    flood_free(flood);
}

static void who_comes_back_when_told_is_let_in(void **state)
{
    (void)state;
    struct flood *flood = flood_new(&mem_libc);
    struct record_key key = key_of("acme", 1);
    uint64_t now = SECOND;
    for (int round = 0; round < 200; round++) {
        while (knock(flood, &key, now)) {
        }
        int64_t after_ms = 0;
        assert_true(flood_refuse(flood, &key, rate, now, &after_ms));
        assert_in_range(after_ms, 1, 51);
        assert_true(flood_refuse(flood, &key, rate, now + 40000000, &after_ms));
        now += (uint64_t)after_ms * 1000000 + 40000000;
        assert_true(knock(flood, &key, now));
    }
    flood_free(flood);
}

static void a_key_that_has_no_duplicates_is_never_refused(void **state)
{
    (void)state;
    struct flood *flood = flood_new(&mem_libc);
    int64_t after_ms;
    for (uint64_t i = 0; i < 200000; i++) {
        struct record_key key = key_of("acme", i % 1000);
        assert_false(flood_refuse(flood, &key, rate, SECOND, &after_ms));
    }
    assert_int_equal(flood_keys(flood), 0);
    flood_free(flood);
}

static void a_clock_that_goes_back_gives_nothing(void **state)
{
    (void)state;
    struct flood *flood = flood_new(&mem_libc);
    struct record_key key = key_of("acme", 1);
    while (knock(flood, &key, 100ull * SECOND)) {
    }
    assert_false(knock(flood, &key, SECOND));
    assert_false(knock(flood, &key, 100ull * SECOND));
    flood_free(flood);
}

static void no_rate_is_no_limit(void **state)
{
    (void)state;
    struct flood *flood = flood_new(&mem_libc);
    struct record_key key = key_of("acme", 1);
    int64_t after_ms;
    struct flood_rate none = {0, 40};
    for (int i = 0; i < 1000; i++) {
        assert_false(flood_refuse(flood, &key, none, SECOND, &after_ms));
        flood_count(flood, &key, none, SECOND);
    }
    assert_int_equal(flood_keys(flood), 0);
    flood_free(flood);
}

static void those_that_came_side_by_side_overdraw_a_burst_at_most(void **state)
{
    (void)state;
    struct flood *flood = flood_new(&mem_libc);
    struct record_key key = key_of("acme", 1);
    int64_t after_ms = 0;
    for (int i = 0; i < 10000; i++) {
        flood_count(flood, &key, rate, SECOND);
    }
    assert_true(flood_refuse(flood, &key, rate, SECOND, &after_ms));
    assert_in_range(after_ms, 2050, 2052); /* 41 tokens at 20 a second */
    flood_free(flood);
}

static void counts_add_up_through_drains_and_forgetting(void **state)
{
    (void)state;
    struct flood *flood = flood_new(&mem_libc);
    struct prng prng = {.state = 11};
    struct drained drained = {0};
    uint64_t refused = 0, now = SECOND;
    /* Far more keys than the table has room for, some of them hot. */
    for (int i = 0; i < 600000; i++) {
        bool is_hot = prng_below(&prng, 4) != 0;
        uint64_t number = is_hot ? prng_below(&prng, 50) : prng_below(&prng, 1000000);
        struct record_key key = key_of(number % 2 == 0 ? "acme" : "other", number);
        refused += !knock(flood, &key, now += 10000);
        if (i % 100000 == 99999) {
            flood_drain(flood, add_up, &drained);
        }
    }
    flood_drain(flood, add_up, &drained);
    assert_true(refused > 1000);
    assert_int_equal(drained.refused, refused);
    assert_true(flood_keys(flood) <= FLOOD_KEYS_MAX);
    drained = (struct drained){0};
    flood_drain(flood, add_up, &drained);
    assert_int_equal(drained.keys, 0);
    flood_free(flood);
}

/* Its bucket is another key's by then. */
static void what_was_refused_counts_although_its_key_is_forgotten(void **state)
{
    (void)state;
    struct flood *flood = flood_new(&mem_libc);
    struct drained drained = {0};
    struct record_key key = key_of("acme", 0);
    while (knock(flood, &key, SECOND)) {
    }
    for (uint64_t i = 1; i < 4 * FLOOD_KEYS_MAX; i++) {
        struct record_key other = key_of("acme", i);
        flood_count(flood, &other, rate, SECOND + i);
    }
    assert_true(knock(flood, &key, 2 * (uint64_t)SECOND)); /* forgotten: a fresh burst */
    flood_drain(flood, add_up, &drained);
    assert_int_equal(drained.refused, 1);
    assert_int_equal(drained.keys, 1);
    flood_free(flood);
}

static void one_tenants_flood_leaves_anothers_buckets(void **state)
{
    (void)state;
    enum { MINE = 2000 };
    struct flood *flood = flood_new(&mem_libc);
    uint64_t now = SECOND;
    for (uint64_t i = 0; i < MINE; i++) {
        struct record_key key = key_of("small", i);
        while (knock(flood, &key, now)) {
        }
    }
    /* The other one floods with more keys than there is room for, and later than we did. */
    for (uint64_t i = 0; i < 4 * FLOOD_KEYS_MAX; i++) {
        struct record_key key = key_of("large", i);
        flood_count(flood, &key, rate, now + 1000);
    }
    int64_t after_ms;
    for (uint64_t i = 0; i < MINE; i++) {
        struct record_key key = key_of("small", i);
        assert_true(flood_refuse(flood, &key, rate, now + 2000, &after_ms));
    }
    struct drained drained = {.tenant = SLICE_LIT("small")};
    flood_drain(flood, add_up, &drained);
    assert_int_equal(drained.keys, MINE);
    assert_int_equal(drained.refused, 2 * MINE);
    flood_free(flood);
}

static void two_tenants_with_the_same_key_do_not_meet(void **state)
{
    (void)state;
    struct flood *flood = flood_new(&mem_libc);
    struct record_key mine = key_of("acme", 1), theirs = key_of("other", 1);
    while (knock(flood, &mine, SECOND)) {
    }
    assert_true(knock(flood, &theirs, SECOND));
    struct drained drained = {.tenant = SLICE_LIT("other")};
    flood_drain(flood, add_up, &drained);
    assert_int_equal(drained.refused, 0);
    flood_free(flood);
}

struct flood_run {
    struct flood *flood;
    atomic_ullong refused;
    atomic_ullong taken;
    atomic_bool is_over;
    struct drained drained;
};

static void *knock_much(void *context)
{
    struct flood_run *run = context;
    for (uint64_t i = 0; i < 20000; i++) {
        struct record_key key = key_of("acme", i % 7);
        bool taken = knock(run->flood, &key, SECOND);
        atomic_fetch_add(taken ? &run->taken : &run->refused, 1);
    }
    return NULL;
}

static void *drain_much(void *context)
{
    struct flood_run *run = context;
    while (!atomic_load(&run->is_over)) {
        flood_drain(run->flood, add_up, &run->drained);
    }
    return NULL;
}

static void threads_lose_no_count(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    struct flood_run run = {.flood = flood_new(&mem_libc)};
    pthread_t threads[THREADS], drainer;
    assert_int_equal(pthread_create(&drainer, NULL, drain_much, &run), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, knock_much, &run), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    atomic_store(&run.is_over, true);
    assert_int_equal(pthread_join(drainer, NULL), 0);
    flood_drain(run.flood, add_up, &run.drained);
    assert_int_equal(run.drained.refused, run.refused);
    assert_int_equal(run.taken + run.refused, THREADS * 20000);
    /* Between asking and counting others slip in, one a thread at most. */
    assert_in_range(run.taken, 7 * 40, 7 * (40 + THREADS - 1));
    flood_free(run.flood);
}

static void *resize_once(void *context, void *pointer, size_t size)
{
    int *left = context;
    if (size > 0 && (*left)-- <= 0) {
        return NULL;
    }
    return mem_libc.resize(mem_libc.context, pointer, size);
}

static void what_cannot_be_counted_is_not_refused(void **state)
{
    (void)state;
    int left = 0;
    struct mem mem = {resize_once, &left};
    assert_null(flood_new(&mem));
    left = 1;
    struct flood *flood = flood_new(&mem);
    struct record_key key = key_of("acme", 1);
    for (int i = 0; i < 1000; i++) {
        assert_true(knock(flood, &key, SECOND));
    }
    left = 1;
    assert_false(knock(flood, &key, SECOND));
    flood_free(flood);
    flood_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_burst_and_then_the_rate_hold_exactly),
        TEST(who_comes_back_when_told_is_let_in),
        TEST(a_key_that_has_no_duplicates_is_never_refused),
        TEST(a_clock_that_goes_back_gives_nothing),
        TEST(no_rate_is_no_limit),
        TEST(those_that_came_side_by_side_overdraw_a_burst_at_most),
        TEST(counts_add_up_through_drains_and_forgetting),
        TEST(what_was_refused_counts_although_its_key_is_forgotten),
        TEST(one_tenants_flood_leaves_anothers_buckets),
        TEST(two_tenants_with_the_same_key_do_not_meet),
        TEST(threads_lose_no_count),
        TEST(what_cannot_be_counted_is_not_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
