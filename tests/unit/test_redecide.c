/*
 * Deciding again: what the engine wrote comes out the same, what somebody else wrote does not.
 */
#include <stdlib.h>

#include "check_c.h"
#include "entry_text.h"
#include "evidence/redecide.h"
#include "store/mem.h"
#include "workload.h"

enum { STEPS = 500, LINE_BYTES_MAX = 8192 };

struct world {
    struct store *store;
    struct workload workload;
    struct arena arena;
    struct buf scratch;
    struct redecide redecide;
    const char *from; /* replaced … */
    const char *to;   /* … by this, in the first entry that has it */
    uint64_t skip_until;
    bool replaced;
    uint64_t visited;
    uint64_t mismatches;
    struct err first; /* the first mismatch */
};

static const struct store_options store_options = {.clock = &workload_clock};

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    assert_int_equal(store_mem_new(&store_options, NULL, &world->store, NULL), OK);
    workload_init(&world->workload, world->store, 42);
    for (int i = 0; i < STEPS; i++) {
        workload_step(&world->workload);
    }
    arena_init(&world->arena, &mem_libc, 1 << 20);
    buf_init(&world->scratch, &mem_libc, 1 << 20);
    redecide_init(&world->redecide, &mem_libc);
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    redecide_release(&world->redecide);
    buf_release(&world->scratch);
    arena_release(&world->arena);
    workload_release(&world->workload);
    assert_int_equal(world->store->ops->close(world->store, NULL), OK);
    free(world);
    return 0;
}

/* The entry, changed when it is the one to be changed. */
static struct entry forged(struct world *world, const struct entry *entry, struct buf *text)
{
    struct entry changed = *entry;
    if (world->from != NULL && !world->replaced &&
        entry_replace(entry, world->from, world->to, text)) {
        world->replaced = true;
        changed.bytes = buf_view(text);
    }
    return changed;
}

static bool visit(void *context, const struct entry *entry)
{
    struct world *world = context;
    struct redecide_stored stored = {.squeezed = true};
    struct entry_view view;
    struct err err = {0};
    struct buf text;
    if (entry->seq <= world->skip_until) {
        return true;
    }
    arena_clear(&world->arena);
    buf_init(&text, &mem_libc, LINE_BYTES_MAX);
    struct entry told = forged(world, entry, &text);
    enum status status = entry_view_read(&told, &world->arena, &world->scratch, &view, &err);
    if (status == OK) {
        status = redecide_entry(&world->redecide, &view, &stored, &err);
    }
    if (status != OK) {
        assert_int_equal(status, E_CORRUPT);
        world->first = world->mismatches == 0 ? err : world->first;
        world->mismatches++;
    }
    buf_release(&text);
    world->visited++;
    return true;
}

static void run(struct world *world)
{
    struct entry_range all = {0};
    world->visited = world->mismatches = 0;
    assert_int_equal(world->store->ops->entries(world->store, &all, visit, world, NULL), OK);
}

static void what_the_engine_decided_comes_out_the_same(void **state)
{
    struct world *world = *state;
    run(world);
    if (world->mismatches > 0) {
        print_error("%s\n", world->first.text);
    }
    assert_int_equal(world->mismatches, 0);
    assert_true(world->visited > STEPS);
    assert_int_equal(world->redecide.redecided, world->visited);
    assert_int_equal(world->redecide.not_redecidable, 0);
}

static bool has(void *context, const struct entry *entry)
{
    struct world *world = context;
    char line[LINE_BYTES_MAX];
    world->replaced =
        world->replaced || strstr(entry_text(entry, line, sizeof line), world->from) != NULL;
    return true;
}

static void the_workload_reaches_every_rule(void **state)
{
    struct world *world = *state;
    static const char *const rules[] = {"B1", "B2", "B3", "B4", "B5", "B6", "B7", "B8", "H1", "H2",
        "H3", "H4", "H5", "N1", "N2", "N3", "N4", "N5", "J2"};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct entry_range all = {0};
        char text[32];
        (void)snprintf(text, sizeof text, "\"rule\":\"%s\"", rules[i]);
        world->from = text;
        world->replaced = false;
        assert_int_equal(world->store->ops->entries(world->store, &all, has, world, NULL), OK);
        if (!world->replaced) {
            print_error("rule %s was never applied\n", rules[i]);
        }
        assert_true(world->replaced);
    }
}

/* Each is a change of one decision that leaves the entry canonical and its members agreeing. */
static const struct {
    const char *from;
    const char *to;
} forgeries[] = {
    {"\"rule\":\"B8\"", "\"rule\":\"B3\""},
    {"\"rule\":\"H5\"", "\"rule\":\"H3\""},
    {"\"decision\":\"stale_fence\"", "\"decision\":\"not_found\""},
    {"\"decided\":{\"attempt\":1", "\"decided\":{\"attempt\":2"},
    {"\"decided\":{\"attempt\":2", "\"decided\":{\"attempt\":1"},
    {"\"executed\":false", "\"executed\":true"},
    {"\"executed\":true", "\"executed\":false"},
    {"\"type\":\"execution.started\"", "\"type\":\"execution.executed\""},
    {"\"detail\":\"held_unknown\"", "\"detail\":\"in_progress\""},
    {"\"on_unknown\":\"takeover\",\"request\":\"begin\",\"rule\":\"B4\"",
        "\"on_unknown\":\"hold\",\"request\":\"begin\",\"rule\":\"B4\""},
    {"\"stored_fingerprint\":\"",
        "\"stored_fingerprint\":\"0000000000000000000000000000000000000000"
        "000000000000000000000000\",\"x_\":\""},
    {"\"retained\":true},\"request\":\"seal\",\"rule\":\"H5\",\"status\":\"executed\"",
        "\"retained\":true},\"request\":\"seal\",\"rule\":\"H5\",\"status\":\"failed\""},
    {"\"effect_id\":\"ch_0\",\"entry_id\"", "\"effect_id\":\"ch_9\",\"entry_id\""},
    {"\"lifecycle_state\":\"unknown\"", "\"lifecycle_state\":\"released\""},
    {",\"fence_next\":", ",\"fence_next\":0"},
    {"\"rule\":\"B1\",\"version\":0", "\"rule\":\"B1\",\"version\":1"},
    {"\"rule\":\"B8\",\"version\":2", "\"rule\":\"B8\",\"version\":3"},
    {"\"rule\":\"B2\",\"version\":1", "\"rule\":\"B2\",\"version\":0"},
    {"\"rule\":\"H2\",\"status\":\"failed\",\"version\":",
        "\"rule\":\"H2\",\"status\":\"failed\",\"version\":1"},
};

static void a_decision_that_was_changed_is_found(void **state)
{
    struct world *world = *state;
    for (size_t i = 0; i < sizeof forgeries / sizeof *forgeries; i++) {
        redecide_release(&world->redecide);
        redecide_init(&world->redecide, &mem_libc);
        world->from = forgeries[i].from;
        world->to = forgeries[i].to;
        world->replaced = false;
        run(world);
        if (!world->replaced || world->mismatches == 0) {
            print_error("%s: %s\n", forgeries[i].from, world->replaced ? "not found" : "no entry");
        }
        assert_true(world->replaced);
        assert_true(world->mismatches > 0);
    }
}

/* The entry in version 1, which is the full document, in `line`. */
static struct entry version_1(const struct entry *entry, char line[LINE_BYTES_MAX])
{
    struct entry old = *entry;
    (void)entry_text(entry, line, LINE_BYTES_MAX);
    old.bytes = slice_of(line, strlen(line) - strlen(ENTRY_VERSION_2) + 1);
    line[old.bytes.len - 1] = '}';
    line[old.bytes.len] = '\0';
    return old;
}

static bool visit_version_1(void *context, const struct entry *entry)
{
    char line[LINE_BYTES_MAX];
    struct entry old = version_1(entry, line);
    return visit(context, &old);
}

static void entries_of_version_1_are_decided_again(void **state)
{
    struct world *world = *state;
    struct entry_range all = {0};
    assert_int_equal(
        world->store->ops->entries(world->store, &all, visit_version_1, world, NULL), OK);
    assert_int_equal(world->mismatches, 0);
    assert_int_equal(world->redecide.redecided, world->visited);
}

/* Cut the version out of an entry, as the first releases wrote it. */
static bool visit_unversioned(void *context, const struct entry *entry)
{
    static const char member[] = ",\"version\":";
    char line[LINE_BYTES_MAX];
    struct entry old = version_1(entry, line);
    char *at = line;
    char *end = line; /* the version of a source is a text: pass it over */
    while (*end < '0' || *end > '9') {
        at = strstr(end, member);
        assert_non_null(at);
        end = at + sizeof member - 1;
    }
    while (*end >= '0' && *end <= '9') { /* what follows is at least a brace */
        end++;
    }
    old.bytes.len -= (size_t)(end - at);
    memmove(at, end, strlen(end) + 1);
    return visit(context, &old);
}

static void entries_without_a_version_are_decided_again(void **state)
{
    struct world *world = *state;
    struct entry_range all = {0};
    assert_int_equal(
        world->store->ops->entries(world->store, &all, visit_unversioned, world, NULL), OK);
    assert_int_equal(world->mismatches, 0);
    assert_true(world->visited > STEPS);
    assert_int_equal(world->redecide.redecided, world->visited);
}

static void a_fence_that_was_granted_before_is_found(void **state)
{
    struct world *world = *state;
    run(world);
    uint64_t fence = world->redecide.fence_max;
    redecide_release(&world->redecide);
    redecide_init(&world->redecide, &mem_libc);
    world->redecide.fence_max = fence; /* as if everything had been granted before */
    run(world);
    assert_true(world->mismatches > 0);
    assert_non_null(strstr(world->first.text, "is not greater than"));
}

static void what_rests_on_archived_entries_is_counted_and_no_damage(void **state)
{
    struct world *world = *state;
    run(world);
    uint64_t all = world->visited;
    for (uint64_t cut = 1; cut < all; cut += 1 + cut / 4) {
        redecide_release(&world->redecide);
        redecide_init(&world->redecide, &mem_libc);
        redecide_gap(&world->redecide, cut);
        world->skip_until = cut;
        run(world);
        assert_int_equal(world->mismatches, 0);
        assert_int_equal(world->redecide.redecided + world->redecide.not_redecidable, all - cut);
    }
    assert_true(world->redecide.not_redecidable > 0);
}

/* Decide, compose the entry, and have it decided again. */
static struct decision feed(struct world *world, struct chain *chain, const struct request *request,
    const struct record *found, struct decide_moment moment)
{
    struct redecide_stored stored = {.squeezed = true};
    struct decision decision = decide(found, request, moment);
    struct entry_facts facts = {request, found, &decision, moment};
    struct entry entry;
    struct entry_view view;
    struct err err = {0};
    struct buf text;
    buf_init(&text, &mem_libc, 8192);
    arena_clear(&world->arena);
    assert_int_equal(entry_compose(chain, &facts, &text, &entry), OK);
    assert_int_equal(entry_view_read(&entry, &world->arena, &world->scratch, &view, &err), OK);
    assert_int_equal(redecide_entry(&world->redecide, &view, &stored, &err), OK);
    buf_release(&text);
    return decision;
}

static struct decision feed_begin(struct world *world, struct chain *chain, uint64_t i)
{
    struct request request = {.kind = REQUEST_BEGIN, .policy = policy_default};
    struct decide_moment moment = {.now_ms = 1000 + (int64_t)i, .fence_next = i};
    char key[32];
    (void)snprintf(key, sizeof key, "k%llu", (unsigned long long)i);
    request.key.tenant = SLICE_LIT("t");
    request.key.key = slice_str(key);
    assert_int_equal(record_key_seal(&request.key, NULL), OK);
    struct decision decision = feed(world, chain, &request, NULL, moment);
    decision.next.key.key = SLICE_LIT("k"); /* the text goes with this function; the hash counts */
    return decision;
}

static void live_records_are_held_and_expired_ones_forgotten(void **state)
{
    struct world *world = *state;
    struct chain chain;
    chain_init(&chain, &(struct store_head){0}, &(struct store_identity){.chain_id = {1, 0x92}});
    for (uint64_t i = 1; i <= 5000; i++) {
        (void)feed_begin(world, &chain, i);
    }
    assert_int_equal(world->redecide.redecided, 5000);
    assert_int_equal(world->redecide.count, 5000); /* P8: in progress, none expires */
    size_t cap = world->redecide.cap;
    for (uint64_t i = 5001; i <= 15000; i++) {
        struct decision begun = feed_begin(world, &chain, i);
        struct request request = {.kind = REQUEST_SEAL,
            .operation_id = begun.next.operation_id,
            .fence = begun.next.fence,
            .status = RECORD_EXECUTED,
            .policy = {.window_ms = 1}};
        struct decide_moment moment = {.now_ms = 1000 + (int64_t)i};
        char key[32];
        (void)snprintf(key, sizeof key, "k%llu", (unsigned long long)i);
        begun.next.key.key = slice_str(key);
        (void)feed(world, &chain, &request, &begun.next, moment);
    }
    assert_int_equal(world->redecide.redecided, 25000);
    assert_int_equal(world->redecide.not_redecidable, 0);
    assert_true(world->redecide.cap <= 2 * cap);
}

/* Read and decide again on top of everything; it may say anything, but it must say it. */
static void try_line(struct world *world, const struct entry *entry, struct slice line)
{
    struct entry tried = *entry;
    tried.bytes = line;
    struct redecide_stored stored = {.squeezed = true};
    struct entry_view view;
    struct err err = {0};
    arena_clear(&world->arena);
    enum status status = entry_view_read(&tried, &world->arena, &world->scratch, &view, &err);
    if (status == OK) {
        world->visited++;
        status = redecide_entry(&world->redecide, &view, &stored, &err);
    }
    assert_true(status == OK || status == E_CORRUPT);
}

static void try_numbers_of(struct world *world, const struct entry *entry)
{
    static const char *const extremes[] = {"0", "1", "4294967295", "9007199254740992",
        "\"18446744073709551615\"", "253402300799999", "604800000", "315360000000", "-1"};
    char line[LINE_BYTES_MAX];
    const char *text = entry->bytes.data;
    for (size_t i = 2; i < entry->bytes.len; i++) {
        if (text[i] < '0' || text[i] > '9' || text[i - 1] != ':' || text[i - 2] != '"') {
            continue;
        }
        size_t end = i;
        while (text[end] >= '0' && text[end] <= '9') {
            end++;
        }
        for (size_t k = 0; k < sizeof extremes / sizeof *extremes; k++) {
            int length = snprintf(line, sizeof line, "%.*s%s%.*s", (int)i, text, extremes[k],
                (int)(entry->bytes.len - end), text + end);
            try_line(world, entry, slice_of(line, (size_t)length));
        }
    }
}

static bool try_numbers(void *context, const struct entry *entry)
{
    char line[LINE_BYTES_MAX];
    struct entry old = version_1(entry, line);
    try_numbers_of(context, entry);
    try_numbers_of(context, &old);
    return entry->seq < 200;
}

static void extreme_numbers_never_reach_an_assertion(void **state)
{
    struct world *world = *state;
    struct entry_range all = {0};
    assert_int_equal(world->store->ops->entries(world->store, &all, try_numbers, world, NULL), OK);
    assert_true(world->visited > 1000); /* many of them can be read */
}

#define REDECIDE_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        REDECIDE_TEST(what_the_engine_decided_comes_out_the_same),
        REDECIDE_TEST(the_workload_reaches_every_rule),
        REDECIDE_TEST(a_decision_that_was_changed_is_found),
        REDECIDE_TEST(entries_of_version_1_are_decided_again),
        REDECIDE_TEST(entries_without_a_version_are_decided_again),
        REDECIDE_TEST(a_fence_that_was_granted_before_is_found),
        REDECIDE_TEST(what_rests_on_archived_entries_is_counted_and_no_damage),
        REDECIDE_TEST(live_records_are_held_and_expired_ones_forgotten),
        REDECIDE_TEST(extreme_numbers_never_reach_an_assertion),
    };
    return cmocka_run_group_tests_name("redecide", tests, NULL, NULL);
}
