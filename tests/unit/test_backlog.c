/* What waits, by scope and tenant (engine/backlog.h), and how old it is (engine/ages.h). */
#include <stdio.h>
#include <stdlib.h>

#include "base/macros.h"
#include "check_c.h"
#include "engine/ages.h"
#include "engine/backlog.h"
#include "prng.h"
#include "store/mem.h"

/* ---- ages ---------------------------------------------------------------------------------- */

static void none_is_0(void **state)
{
    (void)state;
    struct ages ages = {.count = 0};
    assert_int_equal(ages_oldest_ms(&ages), 0);
    ages_add(&ages, 5000);
    assert_int_equal(ages_oldest_ms(&ages), 5000);
    ages_remove(&ages, 5000);
    assert_int_equal(ages_oldest_ms(&ages), 0);
}

/* AG3, against a plain list: never younger than the truth, and not much older. */
static void the_oldest_is_never_younger_and_not_much_older(void **state)
{
    (void)state;
    enum { MOST = 4000, STEPS = 60000 };
    static int64_t times[MOST];
    struct prng prng = {.state = 7};
    struct ages ages = {.count = 0};
    size_t count = 0;
    int64_t now_ms = 1700000000000;
    double worst = 0;
    for (int step = 0; step < STEPS; step++) {
        now_ms += (int64_t)prng_below(&prng, 3000);
        bool adds = count == 0 || (count < MOST && prng_once_in(&prng, 2));
        if (adds) {
            int64_t back_ms = prng_once_in(&prng, 10) ? (int64_t)prng_below(&prng, 90000000) : 0;
            times[count++] = now_ms - back_ms;
            ages_add(&ages, now_ms - back_ms);
        } else {
            size_t at = (size_t)prng_below(&prng, count);
            ages_remove(&ages, times[at]);
            times[at] = times[--count];
        }
        ages_check(&ages);
        int64_t oldest_ms = INT64_MAX;
        for (size_t i = 0; i < count; i++) {
            oldest_ms = times[i] < oldest_ms ? times[i] : oldest_ms;
        }
        if (count == 0) {
            assert_int_equal(ages_oldest_ms(&ages), 0);
            continue;
        }
        assert_true(ages_oldest_ms(&ages) <= oldest_ms);
        double true_ms = (double)(now_ms - oldest_ms) + AGES_SPAN_MS;
        double over = (double)(oldest_ms - ages_oldest_ms(&ages)) / true_ms;
        worst = over > worst ? over : worst;
    }
    assert_true(worst < 1);
}

/* ---- the backlog --------------------------------------------------------------------------- */

struct seen {
    uint64_t counts[BACKLOG_STATUSES];
    int64_t since_ms[BACKLOG_STATUSES];
    size_t lines;
    const char *tenant, *scope; /* only this one */
};

static void see(void *context, const struct backlog_line *line)
{
    struct seen *seen = context;
    seen->lines++;
    if (!slice_is(line->tenant, seen->tenant) || !slice_is(line->scope, seen->scope)) {
        return;
    }
    for (size_t i = 0; i < BACKLOG_STATUSES; i++) {
        seen->counts[i] += line->counts[i];
        seen->since_ms[i] = line->since_ms[i];
    }
}

static struct seen seen_of(struct backlog *backlog, const char *tenant, const char *scope)
{
    struct seen seen = {.tenant = tenant, .scope = scope};
    backlog_lines(backlog, see, &seen);
    return seen;
}

/* Everything was looked for: the store is empty. */
static struct backlog *backlog_of_nothing(void)
{
    struct backlog *backlog = backlog_new(&mem_libc);
    struct store *store = NULL;
    struct err err;
    bool is_done = false;
    const struct store_options options = {.mem = NULL};
    assert_non_null(backlog);
    assert_int_equal(store_open("mem:", &options, &store, &err), OK);
    assert_int_equal(backlog_read(backlog, store, &is_done, &err), OK);
    assert_true(is_done);
    assert_int_equal(store->ops->close(store, &err), OK);
    return backlog;
}

static struct record record_of(
    const char *tenant, const char *scope, enum record_status status, int64_t created_ms)
{
    return (struct record){.kind = RECORD_EFFECT,
        .key = {.tenant = slice_str(tenant), .scope = slice_str(scope)},
        .status = status,
        .created_ms = created_ms,
        .updated_ms = created_ms + 1};
}

static void a_life_is_counted_where_it_is(void **state)
{
    (void)state;
    struct backlog *backlog = backlog_of_nothing();
    struct record pending = record_of("a", "pay", RECORD_PENDING, 1000);
    struct record running = record_of("a", "pay", RECORD_IN_PROGRESS, 1000);
    struct record unknown = record_of("a", "pay", RECORD_UNKNOWN, 1000);
    struct record dead = record_of("a", "pay", RECORD_DEAD, 1000);
    struct record executed = record_of("a", "pay", RECORD_EXECUTED, 1000);
    backlog_change(backlog, NULL, &pending);
    struct seen seen = seen_of(backlog, "a", "pay");
    assert_int_equal(seen.counts[BACKLOG_PENDING], 1);
    assert_int_equal(seen.since_ms[BACKLOG_PENDING], 1000);
    backlog_change(backlog, &pending, &running);
    backlog_change(backlog, &running, &unknown);
    seen = seen_of(backlog, "a", "pay");
    assert_int_equal(seen.counts[BACKLOG_PENDING], 0);
    assert_int_equal(seen.since_ms[BACKLOG_PENDING], 0);
    assert_int_equal(seen.counts[BACKLOG_UNKNOWN], 1);
    assert_int_equal(seen.since_ms[BACKLOG_UNKNOWN], 1001);
    backlog_change(backlog, &unknown, &pending);
    backlog_change(backlog, &pending, &dead);
    assert_int_equal(seen_of(backlog, "a", "pay").counts[BACKLOG_DEAD], 1);
    backlog_change(backlog, &dead, &executed);
    seen = seen_of(backlog, "a", "pay");
    assert_int_equal(seen.counts[BACKLOG_DEAD] + seen.counts[BACKLOG_UNKNOWN], 0);
    backlog_free(backlog);
}

static void tenants_scopes_and_kinds_are_apart(void **state)
{
    (void)state;
    struct backlog *backlog = backlog_of_nothing();
    struct record records[] = {record_of("a", "pay", RECORD_PENDING, 1),
        record_of("b", "pay", RECORD_PENDING, 2), record_of("a", "mail", RECORD_PENDING, 3),
        record_of("ap", "ay", RECORD_PENDING, 4), record_of("a", "pay", RECORD_PENDING, 5)};
    records[4].kind = RECORD_OPERATION;
    for (size_t i = 0; i < COUNT(records); i++) {
        backlog_change(backlog, NULL, &records[i]);
    }
    struct seen seen = seen_of(backlog, "a", "pay");
    assert_int_equal(seen.lines, 4); /* operations are not counted here */
    assert_int_equal(seen.counts[BACKLOG_PENDING], 1);
    backlog_free(backlog);
}

/* BL2: a record that has no line leaves no line either. */
static void what_has_no_line_is_other(void **state)
{
    (void)state;
    struct backlog *backlog = backlog_of_nothing();
    enum { MORE = 10 };
    char scope[16];
    for (int i = 0; i < BACKLOG_LINES_MAX + MORE; i++) {
        (void)snprintf(scope, sizeof scope, "s%d", i);
        struct record record = record_of("a", scope, RECORD_PENDING, 7);
        backlog_change(backlog, NULL, &record);
    }
    assert_int_equal(seen_of(backlog, "", "").counts[BACKLOG_PENDING], MORE);
    assert_int_equal(seen_of(backlog, "", "").lines, BACKLOG_LINES_MAX + 1);
    for (int i = 0; i < BACKLOG_LINES_MAX + MORE; i++) {
        (void)snprintf(scope, sizeof scope, "s%d", i);
        struct record record = record_of("a", scope, RECORD_PENDING, 7);
        struct record after = record_of("a", scope, RECORD_EXECUTED, 7);
        backlog_change(backlog, &record, &after);
    }
    assert_int_equal(seen_of(backlog, "", "").counts[BACKLOG_PENDING], 0);
    assert_int_equal(seen_of(backlog, "a", "s3").counts[BACKLOG_PENDING], 0);
    backlog_free(backlog);
}

/* What a shared store reports takes the place of what it reported before. */
static void a_report_replaces_the_one_before(void **state)
{
    (void)state;
    struct backlog *backlog = backlog_new(&mem_libc);
    struct store_counts counts = {.records = 0};
    struct store_backlog line = {.kind = RECORD_EFFECT,
        .status = RECORD_UNKNOWN,
        .tenant = SLICE_LIT("a"),
        .scope = SLICE_LIT("pay"),
        .count = 3,
        .since_ms = 50};
    counts.by_status[RECORD_UNKNOWN] = 10;
    backlog_begin(backlog, RECORD_EFFECT);
    backlog_put(backlog, &line);
    backlog_end(backlog, RECORD_EFFECT, &counts);
    assert_int_equal(seen_of(backlog, "a", "pay").counts[BACKLOG_UNKNOWN], 3);
    assert_int_equal(seen_of(backlog, "a", "pay").since_ms[BACKLOG_UNKNOWN], 50);
    assert_int_equal(seen_of(backlog, "", "").counts[BACKLOG_UNKNOWN], 7);
    counts.by_status[RECORD_UNKNOWN] = 0;
    backlog_begin(backlog, RECORD_EFFECT);
    backlog_end(backlog, RECORD_EFFECT, &counts);
    assert_int_equal(seen_of(backlog, "a", "pay").counts[BACKLOG_UNKNOWN], 0);
    assert_int_equal(seen_of(backlog, "a", "pay").since_ms[BACKLOG_UNKNOWN], 0);
    assert_int_equal(seen_of(backlog, "", "").counts[BACKLOG_UNKNOWN], 0);
    backlog_free(backlog);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(none_is_0),
        cmocka_unit_test(the_oldest_is_never_younger_and_not_much_older),
        cmocka_unit_test(a_life_is_counted_where_it_is),
        cmocka_unit_test(tenants_scopes_and_kinds_are_apart),
        cmocka_unit_test(what_has_no_line_is_other),
        cmocka_unit_test(a_report_replaces_the_one_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
