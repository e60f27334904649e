/* The journal's dues: against a look at every slot, through random lives, and without memory. */
#include <string.h>

#include "check_c.h"
#include "faulty_mem.h"
#include "prng.h"
#include "store/journal/due.h"

enum { KEYS = 300, STEPS = 20000, SECONDS = 500 };

/* An index and its dues, changed together as the journal does it. */
struct world {
    struct index index;
    struct dues dues;
    struct prng prng;
    struct slot slots[KEYS]; /* the model: place 0 for absent */
    int64_t changed_ms[KEYS];
};

static void world_init(struct world *world, const struct mem *mem, uint64_t seed)
{
    memset(world, 0, sizeof *world);
    index_init(&world->index, mem);
    dues_init(&world->dues, mem);
    world->prng.state = seed;
}

static void world_release(struct world *world)
{
    index_release(&world->index);
    dues_release(&world->dues);
}

static struct digest hash_of(unsigned key)
{
    struct digest hash;
    digest_sha256(&key, sizeof key, &hash);
    return hash;
}

/* Any status that one of our kinds has, with a due that goes with it. */
static struct slot slot_draw(struct world *world, unsigned key)
{
    static const uint8_t kinds[] = {RECORD_OPERATION, RECORD_EFFECT, RECORD_DELIVERY};
    struct prng *prng = &world->prng;
    struct digest hash = hash_of(key);
    struct record record = {.key.hash = hash};
    struct slot slot = slot_of(&record, 1 + prng_below(prng, 1000));
    slot.status = (uint8_t)(1 + prng_below(prng, RECORD_STATUS_END - 1));
    /* A key stays of one kind for its life; it is a different one after it was forgotten. */
    slot.kind = world->slots[key].place != 0 ? world->slots[key].kind : kinds[prng_below(prng, 3)];
    slot.version = world->slots[key].version + 1;
    slot.due_s = (uint32_t)(1 + prng_below(prng, SECONDS));
    bool never = slot.status == RECORD_WAITING || slot.status == RECORD_UNKNOWN ||
                 slot.status == RECORD_COMPENSATING;
    if (slot.status == RECORD_DEAD || (never && prng_below(prng, 2) == 0)) {
        slot.due_s = (uint32_t)INDEX_DUE_NEVER;
    }
    slot.held = slot.status == RECORD_IN_PROGRESS && prng_below(prng, 2) == 0;
    return slot;
}

/* false: there was no memory, and nothing changed. */
static bool world_put(struct world *world, unsigned key, const struct slot *slot, int64_t at_ms)
{
    struct digest hash = hash_of(key);
    if (dues_reserve(&world->dues, slot) != OK || index_put(&world->index, slot) != OK) {
        return false;
    }
    const struct slot *before = world->slots[key].place == 0 ? NULL : &world->slots[key];
    dues_change(&world->dues, before, slot, at_ms);
    assert_non_null(index_find(&world->index, &hash));
    world->slots[key] = *slot;
    world->changed_ms[key] = at_ms;
    return true;
}

static void world_drop(struct world *world, unsigned key)
{
    struct digest hash = hash_of(key);
    struct slot *slot = index_find(&world->index, &hash);
    if (slot != NULL) {
        dues_change(&world->dues, slot, NULL, 0);
        index_remove(&world->index, slot);
        world->slots[key].place = 0;
    }
}

struct visited {
    size_t count;
    size_t max;
    uint64_t until;
    bool late; /* one came that is not due */
};

static bool visit(void *context, const struct due_entry *entry)
{
    struct visited *visited = context;
    visited->late = visited->late || entry->order > visited->until;
    visited->count++;
    return visited->count < visited->max;
}

/* Leaves out what is later than max. */
static bool narrow(void *context, const struct due_entry *entry)
{
    struct visited *visited = context;
    visited->count++;
    visited->until = visited->max;
    return entry->order > 0;
}

static void agree(struct world *world, uint32_t now_s)
{
    dues_check(&world->dues, &world->index);
    for (unsigned kind = 0; kind < DUE_KINDS; kind++) {
        int64_t oldest_ms = INT64_MAX;
        for (unsigned group = 0; group < DUE_GROUPS; group++) {
            struct visited visited = {.max = SIZE_MAX, .until = now_s};
            due_heap_visit(&world->dues.groups[kind][group], &visited.until, visit, &visited);
            size_t wanted = 0;
            for (unsigned i = 0; i < KEYS; i++) {
                const struct slot *slot = &world->slots[i];
                wanted += slot->place != 0 && slot->kind == kind && slot->due_s <= now_s &&
                          slot_group(slot) == (enum due_group)group;
            }
            assert_false(visited.late);
            assert_int_equal(visited.count, wanted);
        }
        for (unsigned i = 0; i < KEYS; i++) {
            const struct slot *slot = &world->slots[i];
            bool counts = slot->place != 0 && slot->kind == kind && slot->status == RECORD_UNKNOWN;
            oldest_ms =
                counts && world->changed_ms[i] < oldest_ms ? world->changed_ms[i] : oldest_ms;
        }
        const struct due_entry *first = due_heap_first(&world->dues.unknown[kind]);
        assert_int_equal(first == NULL ? INT64_MAX : (int64_t)first->order, oldest_ms);
    }
}

static void dues_follow_their_records_through_any_life(void **state)
{
    (void)state;
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        world_init(world, &mem_libc, seed);
        for (int64_t step = 1; step <= STEPS / 3; step++) {
            unsigned key = (unsigned)prng_below(&world->prng, KEYS);
            struct slot slot = slot_draw(world, key);
            if (prng_below(&world->prng, 4) == 0) {
                world_drop(world, key);
            } else {
                assert_true(world_put(world, key, &slot, step));
            }
            if (step % 50 == 0) {
                agree(world, (uint32_t)prng_below(&world->prng, SECONDS + 2));
            }
        }
        world_release(world);
    }
    free(world);
}

/* The bound: renewals and operations that end leave no entry behind. */
static void a_thousand_renewals_are_one_entry(void **state)
{
    (void)state;
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    world_init(world, &mem_libc, 7);
    struct slot slot = slot_draw(world, 1);
    slot.status = RECORD_IN_PROGRESS;
    slot.kind = RECORD_OPERATION;
    slot.held = false;
    for (uint32_t i = 0; i < 1000; i++) {
        slot.due_s = 1 + i * 37 % 101; /* longer and shorter leases */
        slot.version++;
        assert_true(world_put(world, 1, &slot, i + 1));
        assert_int_equal(world->dues.groups[RECORD_OPERATION][DUE_LEASE].count, 1);
    }
    slot.status = RECORD_EXECUTED;
    assert_true(world_put(world, 1, &slot, 2000));
    assert_int_equal(world->dues.groups[RECORD_OPERATION][DUE_LEASE].count, 0);
    agree(world, SECONDS);
    world_release(world);
    free(world);
}

static void a_visit_stops_when_the_caller_has_enough(void **state)
{
    (void)state;
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    world_init(world, &mem_libc, 8);
    for (unsigned key = 0; key < 100; key++) {
        struct slot slot = slot_draw(world, key);
        slot.status = RECORD_PENDING;
        slot.held = false;
        slot.kind = RECORD_EFFECT;
        slot.due_s = key + 1;
        assert_true(world_put(world, key, &slot, 1));
    }
    struct visited visited = {.max = 10, .until = 50};
    const struct due_heap *heap = &world->dues.groups[RECORD_EFFECT][DUE_NEXT_ATTEMPT];
    due_heap_visit(heap, &visited.until, visit, &visited);
    assert_int_equal(visited.count, 10);
    assert_false(visited.late);
    struct visited narrowed = {.max = 5, .until = 50};
    due_heap_visit(heap, &narrowed.until, narrow, &narrowed);
    assert_int_equal(narrowed.count, 5); /* the earliest five, and a look at no other */
    world_release(world);
    free(world);
}

/* What was read after a start takes its place among the others. */
static void an_unknown_one_whose_time_was_read_takes_its_place(void **state)
{
    (void)state;
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    world_init(world, &mem_libc, 9);
    static const int64_t times[] = {50, DUE_CHANGED_UNKNOWN, 20};
    for (unsigned key = 0; key < 3; key++) {
        struct slot slot = slot_draw(world, key);
        slot.status = RECORD_UNKNOWN;
        slot.held = false;
        slot.kind = RECORD_OPERATION;
        slot.due_s = (uint32_t)INDEX_DUE_NEVER;
        assert_true(world_put(world, key, &slot, times[key]));
    }
    struct due_heap *heap = &world->dues.unknown[RECORD_OPERATION];
    assert_int_equal(due_heap_first(heap)->order, DUE_CHANGED_UNKNOWN);
    due_heap_correct_first(heap, 30);
    assert_int_equal(due_heap_first(heap)->order, 20);
    dues_check(&world->dues, &world->index);
    world_release(world);
    free(world);
}

/* Every allocation fails in turn: the put is refused, and nothing has changed. */
static void a_due_that_cannot_be_noted_changes_nothing(void **state)
{
    (void)state;
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    unsigned refused = 0;
    for (long fail_at = 1; fail_at < 60; fail_at++) {
        struct faulty faulty = {.fail_at = fail_at};
        struct mem mem = {.resize = faulty_resize, .context = &faulty};
        world_init(world, &mem, (uint64_t)fail_at);
        for (unsigned key = 0; key < KEYS; key++) {
            struct slot slot = slot_draw(world, key);
            if (!world_put(world, key, &slot, 1)) {
                refused++;
                agree(world, SECONDS);
                assert_true(world_put(world, key, &slot, 1)); /* the next try goes well */
            }
        }
        agree(world, SECONDS);
        world_release(world);
        assert_int_equal(faulty.live, 0);
    }
    assert_true(refused > 50);
    free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(dues_follow_their_records_through_any_life),
        TEST(a_thousand_renewals_are_one_entry),
        TEST(a_visit_stops_when_the_caller_has_enough),
        TEST(an_unknown_one_whose_time_was_read_takes_its_place),
        TEST(a_due_that_cannot_be_noted_changes_nothing),
    };
    return cmocka_run_group_tests_name("due", tests, NULL, NULL);
}
