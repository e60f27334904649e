/*
 * What every store has to do, run over each of them. Each test opens a store of its own.
 * This file is past 800 lines because the suite is one list, run as a whole on each store.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/fault.h"
#include "store/kit.h"
#include "store/trace.h"

/* Which store the tests run on; set per group. */
struct subject {
    const char *name;
    bool durable;     /* can be closed and opened again */
    bool fault;       /* wrapped in a fault store, no fault armed */
    bool trace;       /* wrapped in a trace store */
    const char *form; /* the URL; %s is a directory */
};

static const struct subject subjects[] = {
    {.name = "mem", .form = "mem:"},
    {.name = "journal", .durable = true, .form = "journal:%s/data"},
    {.name = "journal with small segments",
        .durable = true,
        .form = "journal:%s/data?segment=64KiB&snapshot=64KiB"},
    {.name = "journal without a thread", .durable = true, .form = "%s/data?background=off"},
    {.name = "journal with direct writes", .durable = true, .form = "%s/data?write=direct"},
    {.name = "fault(mem)", .fault = true, .form = "mem:"},
    {.name = "trace(journal)", .durable = true, .trace = true, .form = "journal:%s/data"},
};

struct fixture {
    const struct subject *subject;
    struct kit_dir dir;
    char url[512];
    struct store *store;
    struct arena arena;
    unsigned lines; /* of the trace */
};

static void count_line(void *context, const char *line)
{
    struct fixture *fixture = context;
    assert_non_null(strstr(line, " -> "));
    fixture->lines++;
}

static void fixture_open(struct fixture *fixture)
{
    struct err err = {0};
    struct store_options options = {0};
    enum status status = store_open(fixture->url, &options, &fixture->store, &err);
    if (status != OK) {
        print_error("open: %s\n", err.text);
    }
    assert_int_equal(status, OK);
    if (fixture->subject->fault) {
        assert_int_equal(fault_new(fixture->store, NULL, &fixture->store, &err), OK);
    }
    if (fixture->subject->trace) {
        status = trace_new(fixture->store, NULL, count_line, fixture, &fixture->store, &err);
        assert_int_equal(status, OK);
    }
}

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    fixture->subject = *state;
    fixture->dir = kit_dir_make();
    (void)snprintf(fixture->url, sizeof fixture->url, fixture->subject->form, fixture->dir.path);
    arena_init(&fixture->arena, &mem_libc, 64 << 20);
    fixture_open(fixture);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(kit_close(fixture->store), OK);
    assert_true(!fixture->subject->trace || fixture->lines > 0);
    kit_dir_remove(&fixture->dir);
    arena_release(&fixture->arena);
    *state = (void *)(uintptr_t)fixture->subject;
    free(fixture);
    return 0;
}

/* Close and open again, for stores that remember. */
static void reopen(struct fixture *fixture)
{
    if (fixture->subject->durable) {
        assert_int_equal(kit_close(fixture->store), OK);
        fixture_open(fixture);
    }
}

static void what_is_put_is_loaded_and_survives(void **state)
{
    struct fixture *fixture = *state;
    struct record record = kit_record(1, 1);
    assert_null(kit_load(fixture->store, 1, &fixture->arena));
    assert_int_equal(kit_put(fixture->store, &record, 0), OK);
    for (int round = 0; round < 3; round++) {
        const struct record *found = kit_load(fixture->store, 1, &fixture->arena);
        assert_non_null(found);
        assert_true(slice_equal(found->key.key, record.key.key));
        assert_memory_equal(&found->operation_id, &record.operation_id, 16);
        assert_int_equal(found->version, 1);
        assert_int_equal(found->lease_expires_ms, record.lease_expires_ms);
        assert_null(kit_load(fixture->store, 2, &fixture->arena));
        if (round == 0) { /* before the flush, behind it, and after a restart */
            struct err err;
            assert_int_equal(fixture->store->ops->flush(fixture->store, &err), OK);
        } else {
            reopen(fixture);
        }
    }
}

static void many_are_loaded_at_once(void **state)
{
    struct fixture *fixture = *state;
    enum { COUNT = 300 };
    struct digest hashes[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        struct record record = kit_record(i, i + 1);
        hashes[i] = record.key.hash;
        if (i % 3 != 0) {
            assert_int_equal(kit_put(fixture->store, &record, 0), OK);
        }
    }
    reopen(fixture);
    const struct record *found[COUNT];
    struct err err;
    assert_int_equal(
        fixture->store->ops->load(fixture->store, hashes, COUNT, &fixture->arena, found, &err), OK);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(found[i] != NULL, i % 3 != 0);
        assert_true(found[i] == NULL || found[i]->fence == i + 1);
    }
}

static void another_version_is_stale_and_nothing_happens(void **state)
{
    struct fixture *fixture = *state;
    struct record first = kit_record(1, 1);
    struct record second = kit_record(2, 2);
    kit_put_flush(fixture->store, &first, 0);
    struct record sealed = kit_sealed(&first, KIT_NOW + 86400000);
    assert_int_equal(kit_put(fixture->store, &sealed, 7), E_STALE);
    assert_int_equal(kit_put(fixture->store, &sealed, 0), E_STALE);
    assert_int_equal(kit_put(fixture->store, &second, 1), E_STALE);

    /* All or nothing: the good change in front of the stale one does not stay (S1, S3). */
    struct entry entry = kit_entry(fixture->store, &second.operation_id, "{}");
    struct change changes[2] = {
        {.kind = CHANGE_PUT, .record = &second, .entry = entry},
        {.kind = CHANGE_PUT, .record = &sealed, .version_expected = 9},
    };
    struct commit commit = {.changes = changes, .count = 2, .moment = {.time_ms = KIT_NOW}};
    struct err err;
    struct store_head before;
    struct store_head after;
    fixture->store->ops->head(fixture->store, &before);
    assert_int_equal(fixture->store->ops->commit(fixture->store, &commit, &err), E_STALE);
    fixture->store->ops->head(fixture->store, &after);
    assert_memory_equal(&before, &after, sizeof before);
    assert_null(kit_load(fixture->store, 2, &fixture->arena));
    reopen(fixture);
    assert_null(kit_load(fixture->store, 2, &fixture->arena));
    assert_int_equal(kit_load(fixture->store, 1, &fixture->arena)->version, 1);
}

static void one_commit_may_change_a_record_twice(void **state)
{
    struct fixture *fixture = *state;
    struct record first = kit_record(1, 1);
    struct record sealed = kit_sealed(&first, KIT_NOW + 86400000);
    struct change changes[3] = {
        {.kind = CHANGE_PUT, .record = &first},
        {.kind = CHANGE_PUT, .record = &sealed, .version_expected = 1},
        {.kind = CHANGE_TOUCH, .record = &sealed, .version_expected = 2},
    };
    struct commit commit = {.changes = changes, .count = 3, .moment = {.time_ms = KIT_NOW}};
    struct err err;
    assert_int_equal(fixture->store->ops->commit(fixture->store, &commit, &err), OK);
    reopen(fixture);
    const struct record *found = kit_load(fixture->store, 1, &fixture->arena);
    assert_int_equal(found->version, 2);
    assert_int_equal(found->status, RECORD_EXECUTED);
    assert_int_equal(found->duplicates, 1);
}

static void a_touch_counts_and_changes_nothing_else(void **state)
{
    struct fixture *fixture = *state;
    struct record record = kit_record(1, 1);
    kit_put_flush(fixture->store, &record, 0);
    struct change change = {.kind = CHANGE_TOUCH, .record = &record, .version_expected = 1};
    struct commit commit = {.changes = &change, .count = 1, .moment = {.time_ms = KIT_NOW}};
    struct err err;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fixture->store->ops->commit(fixture->store, &commit, &err), OK);
        reopen(fixture);
    }
    const struct record *found = kit_load(fixture->store, 1, &fixture->arena);
    assert_int_equal(found->duplicates, 3);
    assert_int_equal(found->version, 1);
    struct record absent = kit_record(2, 2);
    change.record = &absent;
    change.version_expected = 0;
    assert_int_equal(fixture->store->ops->commit(fixture->store, &commit, &err), E_MISUSE);
}

static void an_operation_is_found_by_its_id(void **state)
{
    struct fixture *fixture = *state;
    struct err err;
    for (unsigned i = 0; i < 50; i++) {
        struct record record = kit_record(i, i + 1);
        kit_put_flush(fixture->store, &record, 0);
    }
    reopen(fixture);
    for (unsigned i = 0; i < 50; i++) {
        struct record record = kit_record(i, i + 1);
        const struct record *found = NULL;
        assert_int_equal(fixture->store->ops->find(
                             fixture->store, &record.operation_id, &fixture->arena, &found, &err),
            OK);
        assert_non_null(found);
        assert_int_equal(found->fence, i + 1);
        record.operation_id.bytes[9] ^= 1; /* another grant of the same key */
        assert_int_equal(fixture->store->ops->find(
                             fixture->store, &record.operation_id, &fixture->arena, &found, &err),
            OK);
        assert_null(found);
    }
}

static void put_with_bodies(struct store *store, const struct record *record, uint64_t expected,
    struct slice request, struct slice outcome)
{
    struct change change = {.kind = CHANGE_PUT,
        .record = record,
        .version_expected = expected,
        .request_body = request,
        .outcome_body = outcome};
    struct commit commit = {.changes = &change, .count = 1, .moment = {.time_ms = KIT_NOW}};
    struct err err = {0};
    enum status status = store->ops->commit(store, &commit, &err);
    if (status != OK) {
        print_error("commit: %s\n", err.text);
    }
    assert_int_equal(status, OK);
}

static void bodies_come_back_byte_for_byte(void **state)
{
    struct fixture *fixture = *state;
    struct slice request = SLICE_LIT("{\"amount\":1}");
    size_t size = 3 << 20;
    char *large = malloc(size);
    assert_non_null(large);
    for (size_t i = 0; i < size; i++) {
        large[i] = (char)(i % 251);
    }
    memset(large + 5000, 0, 5000); /* sectors of zeros are content too */
    struct record record = kit_record(1, 1);
    record.request = kit_body(request);
    put_with_bodies(fixture->store, &record, 0, request, SLICE_EMPTY);
    reopen(fixture);
    struct record sealed =
        kit_sealed(kit_load(fixture->store, 1, &fixture->arena), KIT_NOW + 86400000);
    sealed.outcome.body = kit_body(slice_of(large, size));
    put_with_bodies(fixture->store, &sealed, 1, SLICE_EMPTY, slice_of(large, size));
    for (int round = 0; round < 2; round++) {
        const struct record *found = kit_load(fixture->store, 1, &fixture->arena);
        struct slice bytes;
        struct err err = {0};
        assert_int_equal(fixture->store->ops->body(
                             fixture->store, &found->request, &fixture->arena, &bytes, &err),
            OK);
        assert_true(slice_equal(bytes, request));
        assert_int_equal(fixture->store->ops->body(
                             fixture->store, &found->outcome.body, &fixture->arena, &bytes, &err),
            OK);
        assert_true(slice_equal(bytes, slice_of(large, size)));
        struct body_ref other = found->request;
        other.digest.bytes[3] ^= 1;
        assert_int_equal(
            fixture->store->ops->body(fixture->store, &other, &fixture->arena, &bytes, &err),
            E_CORRUPT); /* S4 */
        reopen(fixture);
    }
    free(large);
}

static void fences_only_grow(void **state)
{
    struct fixture *fixture = *state;
    uint64_t last = 0;
    struct err err;
    for (unsigned i = 0; i < 20; i++) {
        uint64_t first = 0;
        assert_int_equal(fixture->store->ops->fences(fixture->store, 1 + i % 3, &first, &err), OK);
        assert_true(first > last); /* S6 */
        last = first + i % 3;
        struct record record = kit_record(i, first);
        kit_put_flush(fixture->store, &record, 0);
        if (i % 5 == 4) {
            reopen(fixture);
        }
    }
    struct store_head head;
    fixture->store->ops->head(fixture->store, &head);
    assert_int_equal(head.fence, last);
    assert_int_equal(head.moment.time_ms, KIT_NOW);
    assert_int_equal(head.moment.boot_ms, 5);
    assert_int_equal(head.moment.boot_id, 7);
    assert_int_equal(head.moment.jump_ms, 40000); /* P8: not granted anew by an opening */
}

static void a_scan_is_in_order_and_filters(void **state)
{
    struct fixture *fixture = *state;
    enum { COUNT = 100 };
    struct err err;
    for (unsigned i = 0; i < COUNT; i++) {
        struct record record = kit_record(i, i + 1);
        assert_int_equal(kit_put(fixture->store, &record, 0), OK);
        if (i % 4 == 0) {
            struct record sealed = kit_sealed(&record, KIT_NOW + 86400000);
            assert_int_equal(kit_put(fixture->store, &sealed, 1), OK);
        }
    }
    reopen(fixture);
    struct scan scan = {.limit = 7};
    const struct record *found[COUNT];
    unsigned seen = 0;
    size_t count = scan.limit;
    while (count == scan.limit) {
        assert_int_equal(
            fixture->store->ops->scan(fixture->store, &scan, &fixture->arena, found, &count, &err),
            OK);
        for (size_t i = 0; i < count; i++) {
            assert_true(memcmp(&found[i]->key.hash, &scan.after, 32) > 0);
            scan.after = found[i]->key.hash;
            seen++;
        }
    }
    assert_int_equal(seen, COUNT);
    struct scan sealed = {.status = RECORD_EXECUTED, .limit = COUNT};
    assert_int_equal(
        fixture->store->ops->scan(fixture->store, &sealed, &fixture->arena, found, &count, &err),
        OK);
    assert_int_equal(count, COUNT / 4);
    struct scan key = {.tenant = SLICE_LIT("acme"), .key = SLICE_LIT("key-17"), .limit = COUNT};
    assert_int_equal(
        fixture->store->ops->scan(fixture->store, &key, &fixture->arena, found, &count, &err), OK);
    assert_int_equal(count, 1);
    struct scan other = {.tenant = SLICE_LIT("other"), .limit = COUNT};
    assert_int_equal(
        fixture->store->ops->scan(fixture->store, &other, &fixture->arena, found, &count, &err),
        OK);
    assert_int_equal(count, 0); /* P9 */
    struct scan late = {.updated_from_ms = KIT_NOW + 1, .limit = COUNT};
    assert_int_equal(
        fixture->store->ops->scan(fixture->store, &late, &fixture->arena, found, &count, &err), OK);
    assert_int_equal(count, COUNT / 4);
}

static void leases_that_are_over_are_due(void **state)
{
    struct fixture *fixture = *state;
    struct err err;
    struct record early = kit_record(1, 1);
    struct record late = kit_record(2, 2);
    late.lease_expires_ms = KIT_NOW + 90000;
    struct record sealed = kit_record(3, 3);
    kit_put_flush(fixture->store, &early, 0);
    kit_put_flush(fixture->store, &late, 0);
    kit_put_flush(fixture->store, &sealed, 0);
    sealed = kit_sealed(&sealed, KIT_NOW + 86400000);
    kit_put_flush(fixture->store, &sealed, 1);
    reopen(fixture);
    struct op_id ids[8];
    size_t count = 9;
    assert_int_equal(
        fixture->store->ops->due(fixture->store, KIT_NOW + 29999, ids, 8, &count, &err), OK);
    assert_int_equal(count, 0); /* never one whose lease is alive */
    assert_int_equal(
        fixture->store->ops->due(fixture->store, KIT_NOW + 31000, ids, 8, &count, &err), OK);
    assert_int_equal(count, 1);
    assert_true(op_id_equal(&ids[0], &early.operation_id));
    assert_int_equal(
        fixture->store->ops->due(fixture->store, KIT_NOW + 99000, ids, 8, &count, &err), OK);
    assert_int_equal(count, 2);
    assert_int_equal(
        fixture->store->ops->due(fixture->store, KIT_NOW + 99000, ids, 1, &count, &err), OK);
    assert_int_equal(count, 1);
}

static void only_what_expired_is_forgotten(void **state)
{
    enum { COUNT = 2000 }; /* so that what goes and what stays are neighbours in every index */
    struct fixture *fixture = *state;
    struct err err;
    int64_t day = 86400000;
    for (unsigned i = 0; i < COUNT; i++) {
        struct record record = kit_record(i, i + 1);
        assert_int_equal(kit_put(fixture->store, &record, 0), OK);
        if (i % 2 == 0) {
            record = kit_sealed(&record, i % 4 == 0 ? KIT_NOW + day : KIT_NOW + 9 * day);
            assert_int_equal(kit_put(fixture->store, &record, 1), OK);
        }
    }
    struct commit time_passes = {.moment = {.time_ms = KIT_NOW + 2 * day}};
    assert_int_equal(fixture->store->ops->commit(fixture->store, &time_passes, &err), OK);
    assert_int_equal(fixture->store->ops->flush(fixture->store, &err), OK);
    assert_int_equal(fixture->store->ops->maintain(fixture->store, KIT_NOW + 2 * day, &err), OK);
    for (unsigned i = 0; i < COUNT; i++) {
        const struct record *found = kit_load(fixture->store, i, &fixture->arena);
        assert_int_equal(found == NULL, i % 4 == 0); /* P8 */
    }
    struct store_head head;
    fixture->store->ops->head(fixture->store, &head);
    assert_int_equal(head.records, COUNT / 4 * 3);
    assert_int_equal(head.in_progress, COUNT / 2);
    reopen(fixture);
    assert_int_equal(fixture->store->ops->maintain(fixture->store, KIT_NOW + 2 * day, &err), OK);
    fixture->store->ops->head(fixture->store, &head);
    assert_int_equal(head.records, COUNT / 4 * 3);
    assert_int_equal(head.moment.time_ms, KIT_NOW + 2 * day);
    struct record again = kit_record(0, 100);
    kit_put_flush(fixture->store, &again, 0);
}

/* All keys that a paced scan shows, in order and none twice; how many calls it took. */
static unsigned pace_through(struct fixture *fixture, struct scan scan, unsigned *ret_seen)
{
    const struct record *found[3];
    struct digest last = {{0}};
    unsigned calls = 0;
    struct err err;
    *ret_seen = 0;
    do {
        size_t count = 0;
        scan.limit = 3;
        assert_int_equal(
            fixture->store->ops->scan(fixture->store, &scan, &fixture->arena, found, &count, &err),
            OK);
        for (size_t i = 0; i < count; i++) {
            assert_true(memcmp(&found[i]->key.hash, &last, sizeof last) > 0);
            last = found[i]->key.hash;
            assert_true(memcmp(&last, &scan.pace->after, sizeof last) <= 0);
            ++*ret_seen;
        }
        assert_true(scan.pace->done || memcmp(&scan.pace->after, &scan.after, 32) > 0);
        scan.after = scan.pace->after;
        calls++;
    } while (!scan.pace->done);
    return calls;
}

static void a_paced_scan_sees_all_in_bounded_steps(void **state)
{
    struct fixture *fixture = *state;
    enum { COUNT = 60 };
    for (unsigned i = 0; i < COUNT; i++) {
        struct record record = kit_record(i, i + 1);
        assert_int_equal(kit_put(fixture->store, &record, 0), OK);
        if (i % 4 == 0) {
            struct record sealed = kit_sealed(&record, KIT_NOW + 86400000);
            assert_int_equal(kit_put(fixture->store, &sealed, 1), OK);
        }
    }
    reopen(fixture);
    unsigned seen;
    for (size_t looks = 1; looks < COUNT + 2; looks += looks < 4 ? 1 : 13) {
        struct scan_pace pace = {.looks_max = looks, .reads_max = COUNT};
        struct scan all = {.pace = &pace};
        assert_true(pace_through(fixture, all, &seen) >= COUNT / (looks < 3 ? looks : 3));
        assert_int_equal(seen, COUNT);
        struct scan sealed = {.status = RECORD_EXECUTED, .pace = &pace};
        assert_true(pace_through(fixture, sealed, &seen) >= COUNT / looks);
        assert_int_equal(seen, COUNT / 4);
        struct scan other = {.tenant = SLICE_LIT("other"), .pace = &pace};
        assert_true(pace_through(fixture, other, &seen) >= COUNT / looks);
        assert_int_equal(seen, 0);
        pace.reads_max = 1;
        struct scan key = {.key = SLICE_LIT("key-17"), .pace = &pace};
        assert_true(pace_through(fixture, key, &seen) >= COUNT);
        assert_int_equal(seen, 1);
        pace.looks_max = SIZE_MAX; /* what the status rules out costs no read */
        assert_true(pace_through(fixture, sealed, &seen) <= COUNT / 4 + 1);
        assert_int_equal(seen, COUNT / 4);
    }
    struct scan_pace slow = {.looks_max = 1, .reads_max = 1};
    struct scan late = {.now_ms = KIT_NOW + 86400000, .pace = &slow};
    (void)pace_through(fixture, late, &seen);
    assert_int_equal(seen, COUNT / 4 * 3); /* past its window is as absent */
}

/* Keys come and go between two steps; those that were there all the time are seen once. */
static void a_paced_scan_goes_on_while_keys_change(void **state)
{
    struct fixture *fixture = *state;
    enum { COUNT = 40 };
    struct err err;
    bool seen[3 * COUNT] = {false};
    for (unsigned i = 0; i < COUNT; i++) {
        struct record record = kit_record(i, i + 1);
        kit_put_flush(fixture->store, &record, 0);
    }
    struct scan_pace pace = {.looks_max = 2, .reads_max = 2};
    struct scan scan = {.limit = 5, .pace = &pace};
    for (unsigned step = 0; !pace.done; step++) {
        const struct record *found[5];
        size_t count = 0;
        assert_int_equal(
            fixture->store->ops->scan(fixture->store, &scan, &fixture->arena, found, &count, &err),
            OK);
        for (size_t i = 0; i < count; i++) {
            size_t number = (size_t)found[i]->fence - 1;
            assert_false(seen[number]);
            seen[number] = true;
        }
        scan.after = pace.after;
        if (step < COUNT) {
            struct record more = kit_record(COUNT + step, COUNT + step + 1);
            kit_put_flush(fixture->store, &more, 0);
            struct record sealed =
                kit_sealed(kit_load(fixture->store, step, &fixture->arena), KIT_NOW + 86400000);
            kit_put_flush(fixture->store, &sealed, 1);
        }
    }
    for (unsigned i = 0; i < COUNT; i++) {
        assert_true(seen[i]);
    }
}

static bool see_first(void *context, const struct entry *entry)
{
    *(struct entry *)context = *entry;
    return false;
}

struct paced {
    struct entry_pace pace;
    uint64_t last;      /* seq of the last one seen */
    struct digest hash; /* its hash */
    unsigned a_call;    /* stop behind so many; 0: never */
    unsigned seen;      /* in this call */
};

static bool see_paced(void *context, const struct entry *entry)
{
    struct paced *paced = context;
    assert_int_equal(entry->kind, ENTRY_EVIDENCE);
    assert_int_equal(entry->seq, paced->last + 1);
    assert_int_equal(paced->pace.seq, paced->last);
    assert_memory_equal(&paced->pace.hash, &paced->hash, sizeof paced->hash);
    paced->last = entry->seq;
    paced->hash = entry->hash;
    return ++paced->seen != paced->a_call;
}

static void paced_entries_go_on_where_they_stopped(void **state)
{
    struct fixture *fixture = *state;
    enum { COUNT = 50 };
    struct err err;
    unsigned made = 0;
    struct paced paced = {.pace = {.bytes_max = 1}};
    for (unsigned step = 0; paced.last < COUNT || !paced.pace.done; step++) {
        if (made < COUNT) { /* more comes meanwhile, flushed or not */
            struct record record = kit_record(made, made + 1);
            assert_int_equal(kit_put(fixture->store, &record, 0), OK);
            made++;
        }
        if (step % 3 == 0) {
            assert_int_equal(fixture->store->ops->flush(fixture->store, &err), OK);
        }
        struct entry_range range = {.pace = &paced.pace};
        paced.seen = 0;
        paced.a_call = step % 2;
        assert_int_equal(
            fixture->store->ops->entries(fixture->store, &range, see_paced, &paced, &err), OK);
        assert_true(step < 10 * COUNT);
    }
    assert_int_equal(paced.last, COUNT);
    for (unsigned page = 1; page < 9; page++) { /* pages that begin anew behind a seq */
        for (uint64_t after = 0; after < COUNT;) {
            struct paced fresh = {.pace = {.bytes_max = 100}, .a_call = page, .last = after};
            struct entry_range range = {.after_seq = after, .pace = &fresh.pace};
            const struct entry_range before = {.after_seq = after == 0 ? 0 : after - 1};
            struct entry found = {0};
            assert_int_equal(
                fixture->store->ops->entries(fixture->store, &before, see_first, &found, &err), OK);
            fresh.hash = after == 0 ? fresh.hash : found.hash;
            while (fresh.seen < page && !fresh.pace.done) {
                assert_int_equal(
                    fixture->store->ops->entries(fixture->store, &range, see_paced, &fresh, &err),
                    OK);
            }
            after = fresh.last;
        }
        if (page % 3 == 0) {
            reopen(fixture);
        }
    }
}

struct seen {
    uint64_t next;
    uint64_t count;
    uint64_t stop_at;
    const char *text;
};

static bool see(void *context, const struct entry *entry)
{
    struct seen *seen = context;
    if (seen->next != 0) {
        assert_int_equal(entry->seq, seen->next++);
    }
    if (seen->text != NULL) {
        assert_true(slice_is(entry->bytes, seen->text));
    }
    seen->count++;
    return seen->count != seen->stop_at;
}

static void entries_come_back_in_order(void **state)
{
    struct fixture *fixture = *state;
    struct err err;
    enum { COUNT = 200 };
    for (unsigned i = 0; i < COUNT; i++) {
        struct record record = kit_record(i, i + 1);
        assert_int_equal(kit_put(fixture->store, &record, 0), OK);
        if (i % 7 == 0) {
            assert_int_equal(fixture->store->ops->flush(fixture->store, &err), OK);
        }
    }
    for (int round = 0; round < 2; round++) {
        struct seen all = {.next = 1, .text = "{\"type\":\"execution.started\"}"};
        struct entry_range range = {0};
        assert_int_equal(fixture->store->ops->entries(fixture->store, &range, see, &all, &err), OK);
        assert_int_equal(all.count, COUNT); /* S7 */
        struct seen some = {.next = 151, .stop_at = 10};
        range.after_seq = 150;
        assert_int_equal(
            fixture->store->ops->entries(fixture->store, &range, see, &some, &err), OK);
        assert_int_equal(some.count, 10);
        struct record record = kit_record(42, 43);
        struct seen one = {.next = 43};
        range = (struct entry_range){.operation_id = &record.operation_id};
        assert_int_equal(fixture->store->ops->entries(fixture->store, &range, see, &one, &err), OK);
        assert_int_equal(one.count, 1);
        struct seen late = {.next = 101};
        range = (struct entry_range){.from_ms = KIT_NOW + 100};
        assert_int_equal(
            fixture->store->ops->entries(fixture->store, &range, see, &late, &err), OK);
        assert_int_equal(late.count, 100);
        reopen(fixture);
    }
}

static bool see_tenant(void *context, const struct entry *entry)
{
    struct seen *seen = context;
    assert_true(slice_is(entry->tenant, seen->text));
    seen->count++;
    return true;
}

static void an_entry_keeps_its_tenant_and_is_found_by_it(void **state)
{
    struct fixture *fixture = *state;
    static const char *const tenants[] = {"acme", "a \"quoted\\\" one", "", "acm"};
    struct op_id none = {{0}};
    struct err err;
    for (size_t i = 0; i < 12; i++) {
        struct change change = {
            .kind = CHANGE_NONE, .entry = kit_entry(fixture->store, &none, "{\"a\":1}")};
        struct commit commit = {.changes = &change, .count = 1, .moment = {.time_ms = KIT_NOW}};
        change.entry.tenant = slice_str(tenants[i % 4]);
        assert_int_equal(fixture->store->ops->commit(fixture->store, &commit, &err), OK);
    }
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < 4; i++) {
            struct seen own = {.text = tenants[i]};
            struct entry_range range = {.tenant = slice_str(tenants[i])};
            if (range.tenant.len > 0) {
                assert_int_equal(
                    fixture->store->ops->entries(fixture->store, &range, see_tenant, &own, &err),
                    OK);
                assert_int_equal(own.count, 3); /* P9 */
            }
        }
        struct seen all = {.next = 1};
        struct entry_range range = {0};
        assert_int_equal(fixture->store->ops->entries(fixture->store, &range, see, &all, &err), OK);
        assert_int_equal(all.count, 12);
        reopen(fixture);
    }
}

static void entries_are_dense_and_notes_are_apart(void **state)
{
    struct fixture *fixture = *state;
    struct err err;
    struct op_id none = {{0}};
    struct entry good = kit_entry(fixture->store, &none, "{\"a\":1}");
    struct entry gap = good;
    gap.seq++;
    struct change changes[2] = {{.kind = CHANGE_NONE, .entry = gap}, {.kind = CHANGE_NONE}};
    struct commit commit = {.changes = changes, .count = 1, .moment = {.time_ms = KIT_NOW}};
    assert_int_equal(
        fixture->store->ops->commit(fixture->store, &commit, &err), E_MISUSE); /* P10 */
    changes[0].entry = good;
    changes[1].entry = good;
    changes[1].entry.kind = ENTRY_CHECKPOINT;
    commit.count = 2;
    assert_int_equal(fixture->store->ops->commit(fixture->store, &commit, &err), OK);
    reopen(fixture);
    struct store_head head;
    fixture->store->ops->head(fixture->store, &head);
    assert_int_equal(head.seq, 1);
    assert_memory_equal(&head.hash, &good.hash, 32);
    struct seen both = {.text = "{\"a\":1}"};
    struct entry_range range = {0};
    assert_int_equal(fixture->store->ops->entries(fixture->store, &range, see, &both, &err), OK);
    assert_int_equal(both.count, 2);
}

static void the_identity_stays(void **state)
{
    struct fixture *fixture = *state;
    struct store_identity before;
    struct store_identity after;
    fixture->store->ops->identity(fixture->store, &before);
    reopen(fixture);
    fixture->store->ops->identity(fixture->store, &after);
    assert_memory_equal(&before, &after, sizeof before);
    unsigned char zeros[32] = {0};
    assert_memory_not_equal(before.signing_seed, zeros, 32);
}

/* The same random commits to this store and to a mem store: they must agree throughout. */
static void it_agrees_with_the_reference(void **state)
{
    struct fixture *fixture = *state;
    struct err err;
    struct store *reference;
    assert_int_equal(store_open("mem:", NULL, &reference, &err), OK);
    enum { KEYS = 60 };
    uint32_t seed = 12345;
    for (unsigned step = 0; step < 1500; step++) {
        seed = seed * 1664525u + 1013904223u;
        unsigned number = (seed >> 8) % KEYS;
        struct store *both[2] = {fixture->store, reference};
        enum status results[2];
        for (int i = 0; i < 2; i++) {
            const struct record *found = kit_load(both[i], number, &fixture->arena);
            struct record next = found == NULL ? kit_record(number, step + 1) : *found;
            uint64_t expected = found == NULL ? 0 : found->version;
            if (found != NULL && next.status == RECORD_IN_PROGRESS) {
                next = kit_sealed(&next, KIT_NOW + 86400000);
            } else {
                next.version = expected + 1;
            }
            expected += seed % 16 == 0;
            results[i] = kit_put(both[i], &next, expected);
        }
        assert_int_equal(results[0], results[1]);
        if (seed % 97 == 0) {
            reopen(fixture);
        }
        arena_clear(&fixture->arena);
    }
    struct store_head heads[2];
    fixture->store->ops->head(fixture->store, &heads[0]);
    reference->ops->head(reference, &heads[1]);
    assert_int_equal(heads[0].seq, heads[1].seq);
    assert_memory_equal(&heads[0].hash, &heads[1].hash, 32);
    assert_int_equal(heads[0].records, heads[1].records);
    assert_int_equal(heads[0].in_progress, heads[1].in_progress);
    for (unsigned i = 0; i < KEYS; i++) {
        const struct record *a = kit_load(fixture->store, i, &fixture->arena);
        const struct record *b = kit_load(reference, i, &fixture->arena);
        assert_int_equal(a == NULL, b == NULL);
        assert_true(a == NULL || (a->version == b->version && a->status == b->status));
    }
    assert_int_equal(kit_close(reference), OK);
}

static void a_wrong_url_is_refused(void **state)
{
    (void)state;
    struct err err = {0};
    struct store *store = NULL;
    static const char *const wrong[] = {"mem:x", "jornal:/tmp/x", "journal:", "postgres://x",
        "journal:/tmp/x?segment=1", "journal:/tmp/x?speed=9", "journal:/tmp/x?write"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(store_open(wrong[i], NULL, &store, &err), E_INVALID);
        assert_true(err.text[0] != '\0');
    }
}

/* The nth call of each kind fails as told, before or after the wrapped store did it. */
static void a_fault_strikes_before_or_after(void **state)
{
    (void)state;
    struct err err = {0};
    struct store *store;
    struct arena arena;
    arena_init(&arena, &mem_libc, 1 << 20);
    assert_int_equal(store_open("mem:", NULL, &store, &err), OK);
    assert_int_equal(fault_new(store, NULL, &store, &err), OK);
    struct record first = kit_record(1, 1);
    struct record second = kit_record(2, 2);
    fault_arm(store, STORE_CALL_COMMIT, 2, E_UNAVAILABLE, FAULT_BEFORE);
    assert_int_equal(kit_put(store, &first, 0), OK);
    assert_int_equal(kit_put(store, &second, 0), E_UNAVAILABLE);
    assert_null(kit_load(store, 2, &arena));
    fault_arm(store, STORE_CALL_COMMIT, 1, E_UNKNOWN, FAULT_AFTER);
    assert_int_equal(kit_put(store, &second, 0), E_UNKNOWN);
    assert_non_null(kit_load(store, 2, &arena));
    assert_int_equal(fault_calls(store, STORE_CALL_COMMIT), 3);
    assert_int_equal(fault_calls(store, STORE_CALL_LOAD), 2);
    fault_arm(store, STORE_CALL_FLUSH, 1, E_UNKNOWN, FAULT_BEFORE);
    assert_int_equal(store->ops->flush(store, &err), E_UNKNOWN);
    assert_int_equal(store->ops->flush(store, &err), OK);
    assert_int_equal(kit_close(store), OK);
    arena_release(&arena);
}

#define ON(name)                                                                                   \
    {                                                                                              \
#name, name, setup, teardown, NULL                                                         \
    }

int main(void)
{
    int failed = 0;
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++) {
        struct CMUnitTest tests[] = {
            ON(what_is_put_is_loaded_and_survives),
            ON(many_are_loaded_at_once),
            ON(another_version_is_stale_and_nothing_happens),
            ON(one_commit_may_change_a_record_twice),
            ON(a_touch_counts_and_changes_nothing_else),
            ON(an_operation_is_found_by_its_id),
            ON(bodies_come_back_byte_for_byte),
            ON(fences_only_grow),
            ON(a_scan_is_in_order_and_filters),
            ON(a_paced_scan_sees_all_in_bounded_steps),
            ON(a_paced_scan_goes_on_while_keys_change),
            ON(leases_that_are_over_are_due),
            ON(only_what_expired_is_forgotten),
            ON(entries_come_back_in_order),
            ON(paced_entries_go_on_where_they_stopped),
            ON(an_entry_keeps_its_tenant_and_is_found_by_it),
            ON(entries_are_dense_and_notes_are_apart),
            ON(the_identity_stays),
            ON(it_agrees_with_the_reference),
        };
        for (size_t j = 0; j < sizeof tests / sizeof *tests; j++) {
            tests[j].initial_state = (void *)(uintptr_t)&subjects[i];
        }
        failed += _cmocka_run_group_tests(
            subjects[i].name, tests, sizeof tests / sizeof *tests, NULL, NULL);
    }
    const struct CMUnitTest others[] = {
        TEST(a_wrong_url_is_refused),
        TEST(a_fault_strikes_before_or_after),
    };
    return failed + cmocka_run_group_tests_name("all stores", others, NULL, NULL);
}
