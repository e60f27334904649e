/*
 * What every store has to do, run over each of them. Each test opens a store of its own.
 * This file is past 800 lines because the suite is one list, run as a whole on each store.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "core/source.h"
#include "prng.h"
#include "store/fault.h"
#include "store/subjects.h"

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
            subject_reopen(fixture);
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
    subject_reopen(fixture);
    static struct store_want wants[COUNT];
    struct err err;
    for (unsigned i = 0; i < COUNT; i++) {
        wants[i] = (struct store_want){.key = &hashes[i]};
    }
    struct store_batch batch = {.wants = wants, .count = COUNT, .arena = &fixture->arena};
    assert_int_equal(fixture->store->ops->prepare(fixture->store, &batch, &err), OK);
    fixture->store->ops->abort(fixture->store);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(wants[i].record != NULL, i % 3 != 0);
        assert_true(wants[i].record == NULL || wants[i].record->fence == i + 1);
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
    struct commit commit = {.changes = changes, .count = 2};
    struct err err;
    struct store_head before;
    struct store_head after;
    fixture->store->ops->head(fixture->store, &before);
    assert_int_equal(kit_commit(fixture->store, &commit, KIT_NOW, &err), E_STALE);
    fixture->store->ops->head(fixture->store, &after);
    assert_memory_equal(&before, &after, sizeof before);
    assert_null(kit_load(fixture->store, 2, &fixture->arena));
    subject_reopen(fixture);
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
    struct commit commit = {.changes = changes, .count = 3};
    struct err err;
    assert_int_equal(kit_commit(fixture->store, &commit, KIT_NOW, &err), OK);
    subject_reopen(fixture);
    const struct record *found = kit_load(fixture->store, 1, &fixture->arena);
    assert_int_equal(found->version, 2);
    assert_int_equal(found->status, RECORD_EXECUTED);
    assert_int_equal(found->duplicates, 1);
}

/* S1 for each thing that a store keeps beside its records: counts, ids, dues and bodies. */
static void of_a_failed_commit_nothing_stays_though_it_changed_a_key_twice(void **state)
{
    struct fixture *fixture = *state;
    struct store *store = fixture->store;
    struct record old = kit_record(1, 1);
    kit_put_flush(store, &old, 0);
    struct store_counts before = kit_counts(store, STORE_OPERATIONS);
    struct record fresh = kit_record(2, 2);
    fresh.request = kit_body(SLICE_LIT("pay"));
    struct record ends[2] = {kit_sealed(&fresh, KIT_NOW + 1), kit_sealed(&old, KIT_NOW + 1)};
    struct record last = ends[1];
    last.version++;
    struct change changes[] = {
        {.kind = CHANGE_PUT, .record = &fresh, .request_body = SLICE_LIT("pay")},
        {.kind = CHANGE_PUT,
            .record = &ends[0],
            .version_expected = 1,
            .request_body = SLICE_LIT("pay")}, /* as the engine brings it again */
        {.kind = CHANGE_PUT, .record = &ends[1], .version_expected = 1},
        {.kind = CHANGE_PUT, .record = &last, .version_expected = 1}, /* by now it is 2 */
    };
    bool stale[4] = {false};
    struct commit commit = {.changes = changes, .count = 4, .ret_stale = stale};
    struct err err;
    assert_int_equal(kit_commit(store, &commit, KIT_NOW, &err), E_STALE);
    assert_false(stale[0] || stale[1]); /* it was changed twice, and then the other one failed */
    assert_true(stale[3]);
    for (int round = 0; round < 2; round++) {
        const struct record *found = NULL;
        struct store_due dues[4];
        size_t due_count = 0;
        struct store_counts after = kit_counts(fixture->store, STORE_OPERATIONS);
        assert_memory_equal(&after, &before, sizeof after);
        assert_null(kit_load(fixture->store, 2, &fixture->arena));
        assert_int_equal(kit_load(fixture->store, 1, &fixture->arena)->status, RECORD_IN_PROGRESS);
        assert_int_equal(kit_find(fixture->store, &fresh.operation_id, STORE_OPERATIONS,
                             &fixture->arena, &found, &err),
            OK);
        assert_null(found);
        kit_set_time(KIT_NOW + 2); /* the windows of what did not happen would be over */
        assert_int_equal(
            kit_due(fixture->store, STORE_OPERATIONS, STORE_DUES_ALL, dues, 4, &due_count), OK);
        assert_int_equal(due_count, 0);
        subject_reopen(fixture);
    }
    fresh.request = (struct body_ref){.bytes = 0};
    kit_put_flush(fixture->store, &fresh, 0); /* it is as new as it was */
    assert_int_equal(kit_load(fixture->store, 2, &fixture->arena)->version, 1);
}

static void a_touch_counts_and_changes_nothing_else(void **state)
{
    struct fixture *fixture = *state;
    struct record record = kit_record(1, 1);
    kit_put_flush(fixture->store, &record, 0);
    struct change change = {.kind = CHANGE_TOUCH, .record = &record, .version_expected = 1};
    struct commit commit = {.changes = &change, .count = 1};
    struct err err;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kit_commit(fixture->store, &commit, KIT_NOW, &err), OK);
        subject_reopen(fixture);
    }
    const struct record *found = kit_load(fixture->store, 1, &fixture->arena);
    assert_int_equal(found->duplicates, 3);
    assert_int_equal(found->version, 1);
    struct record absent = kit_record(2, 2);
    change.record = &absent;
    change.version_expected = 0;
    assert_int_equal(kit_commit(fixture->store, &commit, KIT_NOW, &err), E_MISUSE);
}

static void an_operation_is_found_by_its_id(void **state)
{
    struct fixture *fixture = *state;
    struct err err;
    for (unsigned i = 0; i < 50; i++) {
        struct record record = kit_record(i, i + 1);
        kit_put_flush(fixture->store, &record, 0);
    }
    subject_reopen(fixture);
    for (unsigned i = 0; i < 50; i++) {
        struct record record = kit_record(i, i + 1);
        const struct record *found = NULL;
        assert_int_equal(kit_find(fixture->store, &record.operation_id, STORE_OPERATIONS,
                             &fixture->arena, &found, &err),
            OK);
        assert_non_null(found);
        assert_int_equal(found->fence, i + 1);
        record.operation_id.bytes[9] ^= 1; /* another grant of the same key */
        assert_int_equal(kit_find(fixture->store, &record.operation_id, STORE_OPERATIONS,
                             &fixture->arena, &found, &err),
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
    struct commit commit = {.changes = &change, .count = 1};
    struct err err = {0};
    enum status status = kit_commit(store, &commit, KIT_NOW, &err);
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
    subject_reopen(fixture);
    struct record sealed =
        kit_sealed(kit_load(fixture->store, 1, &fixture->arena), KIT_NOW + 86400000);
    sealed.outcome.body = kit_body(slice_of(large, size));
    put_with_bodies(fixture->store, &sealed, 1, SLICE_EMPTY, slice_of(large, size));
    for (int round = 0; round < 2; round++) {
        struct slice bytes;
        struct err err = {0};
        assert_int_equal(kit_bytes(fixture->store, &record.key.hash, WANT_REQUEST, &fixture->arena,
                             &bytes, &err),
            OK);
        assert_true(slice_equal(bytes, request));
        assert_int_equal(kit_bytes(fixture->store, &record.key.hash, WANT_OUTCOME, &fixture->arena,
                             &bytes, &err),
            OK);
        assert_true(slice_equal(bytes, slice_of(large, size)));
        subject_reopen(fixture);
    }
    /* A record that names a body the store does not have is damaged (S4). */
    struct record other = *kit_load(fixture->store, 1, &fixture->arena);
    other.version++;
    other.request.digest.bytes[3] ^= 1;
    struct err err = {0};
    struct slice bytes;
    enum status status = kit_put(fixture->store, &other, 2);
    if (status == OK) { /* a store that moves bodies forward finds out at once */
        status = kit_bytes(
            fixture->store, &record.key.hash, WANT_REQUEST, &fixture->arena, &bytes, &err);
    }
    assert_int_equal(status, E_CORRUPT);
    free(large);
}

/* What reads a body finds the one that came last. */
static void assert_bodies(
    struct fixture *fixture, const struct record *record, const char *request, const char *outcome)
{
    struct slice bytes = SLICE_EMPTY;
    struct err err = {0};
    assert_int_equal(
        kit_bytes(fixture->store, &record->key.hash, WANT_REQUEST, &fixture->arena, &bytes, &err),
        OK);
    assert_true(slice_is(bytes, request));
    assert_int_equal(
        kit_bytes(fixture->store, &record->key.hash, WANT_OUTCOME, &fixture->arena, &bytes, &err),
        OK);
    assert_true(slice_is(bytes, outcome));
}

/* One commit brings a body, brings the same again with the next change of the record, and then
 * another one in its place: no store mixes them up, nor keeps the earlier one. */
static void a_body_that_one_commit_brings_again_is_the_one_that_stays(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    struct record first = kit_record(1, 1);
    first.request = kit_body(SLICE_LIT("pay"));
    struct record sealed = kit_sealed(&first, KIT_NOW + 86400000);
    sealed.outcome.body = kit_body(SLICE_LIT("done"));
    struct record last = sealed;
    last.version++;
    last.request = kit_body(SLICE_LIT("pay more"));
    last.outcome.body = kit_body(SLICE_LIT("done again"));
    struct change changes[] = {
        {.kind = CHANGE_PUT, .record = &first, .request_body = SLICE_LIT("pay")},
        {.kind = CHANGE_PUT,
            .record = &sealed,
            .version_expected = 1,
            .request_body = SLICE_LIT("pay"),
            .outcome_body = SLICE_LIT("done")},
        {.kind = CHANGE_PUT,
            .record = &last,
            .version_expected = 2,
            .request_body = SLICE_LIT("pay more"),
            .outcome_body = SLICE_LIT("done again")},
    };
    struct commit commit = {.changes = changes, .count = 2};
    assert_int_equal(kit_commit(fixture->store, &commit, KIT_NOW, &err), OK);
    assert_bodies(fixture, &first, "pay", "done");
    commit = (struct commit){.changes = &changes[2], .count = 1};
    assert_int_equal(kit_commit(fixture->store, &commit, KIT_NOW, &err), OK);

    first.key = kit_record(2, 2).key; /* and all three in one */
    first.operation_id = kit_record(2, 2).operation_id;
    sealed.key = last.key = first.key;
    sealed.operation_id = last.operation_id = first.operation_id;
    commit = (struct commit){.changes = changes, .count = 3};
    assert_int_equal(kit_commit(fixture->store, &commit, KIT_NOW, &err), OK);
    for (int round = 0; round < 2; round++) {
        for (unsigned number = 1; number <= 2; number++) {
            struct record record = kit_record(number, number);
            assert_bodies(fixture, &record, "pay more", "done again");
        }
        subject_reopen(fixture);
    }
    /* What brings none keeps them. */
    struct record kept = *kit_load(fixture->store, 2, &fixture->arena);
    kept.version++;
    kit_put_flush(fixture->store, &kept, kept.version - 1);
    subject_reopen(fixture);
    assert_bodies(fixture, &kept, "pay more", "done again");
}

/* Committed, aborted or merely drawn: no number comes twice (S6, P4). */
static void fences_only_grow(void **state)
{
    struct fixture *fixture = *state;
    uint64_t last = 0;
    kit_want_made(false); /* a put draws none: each number is known */
    for (unsigned i = 0; i < 20; i++) {
        uint64_t first = kit_fences(fixture->store, 1 + i % 3);
        assert_true(first > last);
        last = first + i % 3;
        assert_int_equal(kit_fence(fixture->store), last);
        struct record record = kit_record(i, first);
        kit_put_flush(fixture->store, &record, 0);
        if (i % 5 == 4) {
            subject_reopen(fixture);
        }
    }
    struct store_head head;
    fixture->store->ops->head(fixture->store, &head);
    assert_int_equal(kit_fence(fixture->store), last);
    assert_int_equal(head.moment.time_ms, KIT_NOW);
    assert_int_equal(head.moment.boot_id, KIT_BOOT_ID);
    struct commit raise = {.fence_floor = last + 1000};
    struct err err = {0};
    assert_int_equal(kit_commit(fixture->store, &raise, KIT_NOW, &err), OK);
    assert_int_equal(fixture->store->ops->flush(fixture->store, &err), OK);
    subject_reopen(fixture);
    assert_int_equal(kit_fences(fixture->store, 1), last + 1001);
    raise.fence_floor = 5; /* never lowered */
    assert_int_equal(kit_commit(fixture->store, &raise, KIT_NOW, &err), OK);
    assert_int_equal(kit_fences(fixture->store, 1), last + 1002);
}

/* The time that a batch is decided at is the store's, and goes on after a restart (S8). */
static void time_comes_from_the_store_and_never_goes_back(void **state)
{
    struct fixture *fixture = *state;
    struct store_batch batch = {.count = 0};
    struct commit nothing = {.count = 0};
    struct err err = {0};
    assert_int_equal(fixture->store->ops->read(fixture->store, &batch, &err), OK);
    assert_int_equal(batch.now_ms, KIT_NOW);
    assert_int_equal(kit_commit(fixture->store, &nothing, KIT_NOW + 5000, &err), OK);
    assert_int_equal(fixture->store->ops->flush(fixture->store, &err), OK);
    kit_set_time(KIT_NOW + 1000); /* set back */
    subject_reopen(fixture);
    assert_int_equal(fixture->store->ops->prepare(fixture->store, &batch, &err), OK);
    fixture->store->ops->abort(fixture->store);
    assert_int_equal(batch.now_ms, KIT_NOW + 5000);
    assert_false(batch.clock_held);
    kit_set_time(KIT_NOW + 6000);
    kit_jump(40000); /* followed, and not granted anew by an opening */
    assert_int_equal(kit_commit(fixture->store, &nothing, KIT_NOW + 6000, &err), OK);
    assert_int_equal(fixture->store->ops->flush(fixture->store, &err), OK);
    subject_reopen(fixture);
    struct store_head head;
    fixture->store->ops->head(fixture->store, &head);
    assert_int_equal(head.moment.time_ms, KIT_NOW + 46000);
    assert_in_range(head.moment.jump_ms, 35000, 40000);
    kit_jump(40000 + 30000);
    assert_int_equal(fixture->store->ops->read(fixture->store, &batch, &err), OK);
    assert_true(batch.clock_held);
}

/* A record of a source, as a seal leaves it. */
static struct record source_record(const struct record *sealed)
{
    struct record_key key;
    struct record next;
    struct err err = {0};
    assert_int_equal(source_key_seal(&sealed->key, &sealed->source, &key, &err), OK);
    assert_true(source_remember(NULL, sealed, &key, &next));
    return next;
}

/* Everything that a batch has to know comes with one prepare: by key, by id, twice, with the bodies
 * that each call needs and what is remembered of the sources. */
static void one_prepare_brings_everything(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    struct slice asked = SLICE_LIT("{\"amount\":1}");
    struct slice said = SLICE_LIT("{\"id\":\"ch_1\"}");
    struct record record = kit_record(1, 1);
    record.source = (struct source){SLICE_LIT("order"), SLICE_LIT("17"), SLICE_LIT("3")};
    record.request = kit_body(asked);
    put_with_bodies(fixture->store, &record, 0, asked, SLICE_EMPTY);
    struct record sealed =
        kit_sealed(kit_load(fixture->store, 1, &fixture->arena), KIT_NOW + 86400000);
    sealed.outcome.body = kit_body(said);
    struct record source = source_record(&sealed);
    struct change changes[2] = {{.kind = CHANGE_PUT, .record = &source},
        {.kind = CHANGE_PUT,
            .record = &sealed,
            .version_expected = 1,
            .outcome_body = said,
            .entry = kit_entry(fixture->store, &sealed.operation_id, "{}")}};
    struct commit commit = {.changes = changes, .count = 2};
    assert_int_equal(kit_commit(fixture->store, &commit, KIT_NOW, &err), OK);
    struct record absent = kit_record(2, 2);
    struct digest other = {{1}};
    for (int round = 0; round < 2; round++) {
        struct store_want wants[] = {
            {.key = &record.key.hash},
            {.key = &absent.key.hash, .bodies = WANT_OUTCOME, .arena = &fixture->arena},
            {.id = &record.operation_id, .kinds = STORE_OPERATIONS, .source = true},
            {.id = &absent.operation_id, .kinds = STORE_KINDS_ALL, .source = true},
            {.id = &record.operation_id, .kinds = STORE_KIND(RECORD_SOURCE)},
            {.key = &record.key.hash,
                .bodies = WANT_BY_FINGERPRINT,
                .fingerprint = &record.fingerprint,
                .arena = &fixture->arena},
            {.key = &record.key.hash,
                .bodies = WANT_BY_FINGERPRINT,
                .fingerprint = &other,
                .arena = &fixture->arena},
            {.key = &source.key.hash},
            {.key = &record.key.hash,
                .bodies = WANT_OUTCOME | WANT_REQUEST,
                .tenant = SLICE_LIT("other"),
                .arena = &fixture->arena},
        };
        wants[5].same = &wants[0];
        struct store_batch batch = {
            .wants = wants, .count = 9, .fences = 3, .arena = &fixture->arena};
        assert_int_equal(fixture->store->ops->prepare(fixture->store, &batch, &err), OK);
        fixture->store->ops->abort(fixture->store);
        assert_int_equal(wants[0].record->version, 2);
        assert_int_equal(wants[0].outcome.len + wants[0].request.len, 0);
        assert_null(wants[1].record);
        assert_int_equal(wants[2].record->version, 2);
        assert_non_null(wants[2].source_record);
        assert_true(slice_is(wants[2].source_record->source.version, "3"));
        assert_memory_equal(&wants[2].source_key.hash, &source.key.hash, DIGEST_BYTES);
        assert_null(wants[3].record);
        assert_null(wants[4].record); /* there, but of a different kind */
        assert_true(slice_equal(wants[5].outcome, said));
        assert_int_equal(wants[5].request.len, 0); /* a replay shows the outcome … */
        assert_true(slice_equal(wants[6].request, asked));
        assert_int_equal(wants[6].outcome.len, 0); /* … and a conflict the first request (P7) */
        assert_int_equal(wants[7].record->kind, RECORD_SOURCE);
        assert_int_equal(wants[8].outcome.len + wants[8].request.len, 0); /* P9 */
        assert_int_equal(batch.counts.records, 1); /* sources are not counted */
        assert_int_equal(batch.fence_first + 2, kit_fence(fixture->store));
        subject_reopen(fixture);
    }
}

/* What a call cannot take is its own failure; the others get theirs. */
static void a_body_without_room_is_the_failure_of_one_want(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    static char large[100000];
    memset(large, 'x', sizeof large);
    struct slice body = slice_of(large, sizeof large);
    struct record record = kit_record(1, 1);
    record.request = kit_body(body);
    put_with_bodies(fixture->store, &record, 0, body, SLICE_EMPTY);
    struct arena small;
    arena_init(&small, &mem_libc, 4096);
    struct store_want wants[] = {
        {.key = &record.key.hash, .bodies = WANT_REQUEST, .arena = &small},
        {.key = &record.key.hash, .bodies = WANT_REQUEST, .arena = &fixture->arena},
    };
    struct store_batch batch = {.wants = wants, .count = 2, .arena = &fixture->arena};
    assert_int_equal(fixture->store->ops->read(fixture->store, &batch, &err), OK);
    assert_int_equal(wants[0].body_status, E_NOMEM);
    assert_non_null(wants[0].record);
    assert_int_equal(wants[1].body_status, OK);
    assert_true(slice_equal(wants[1].request, body));
    arena_release(&small);
}

static void an_abort_leaves_nothing_behind(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    struct record record = kit_record(1, 1);
    kit_put_flush(fixture->store, &record, 0);
    struct store_head before;
    struct store_head after;
    fixture->store->ops->head(fixture->store, &before);
    kit_set_time(KIT_NOW + 1000);
    struct store_want want = {.key = &record.key.hash};
    for (int i = 0; i < 3; i++) {
        struct store_batch batch = {
            .wants = &want, .count = 1, .fences = 10, .arena = &fixture->arena};
        assert_int_equal(fixture->store->ops->prepare(fixture->store, &batch, &err), OK);
        assert_int_equal(batch.now_ms, KIT_NOW + 1000);
        fixture->store->ops->abort(fixture->store);
    }
    fixture->store->ops->head(fixture->store, &after);
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(kit_load(fixture->store, 1, &fixture->arena)->version, 1);
    struct record sealed = kit_sealed(&record, KIT_NOW + 86400000);
    kit_put_flush(fixture->store, &sealed, 1); /* and the next batch goes on */
    assert_int_equal(kit_load(fixture->store, 1, &fixture->arena)->version, 2);
}

/* Of several changes exactly those whose record has moved on are called stale (S3). */
static void stale_changes_are_named(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    enum { COUNT = 6 };
    struct record records[COUNT];
    struct record next[COUNT];
    struct change changes[COUNT];
    bool stale[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        records[i] = kit_record(i / 2, i / 2 + 1); /* two changes of each key */
        next[i] = records[i];
        next[i].version = 2 + i % 2;
        if (i % 2 == 0) {
            kit_put_flush(fixture->store, &records[i], 0);
        }
        changes[i] =
            (struct change){.kind = CHANGE_PUT, .record = &next[i], .version_expected = 1 + i % 2};
    }
    struct record sealed = kit_sealed(&records[2], KIT_NOW + 86400000);
    kit_put_flush(fixture->store, &sealed, 1); /* somebody else was faster at key 1 */
    struct commit commit = {.changes = changes, .count = COUNT, .ret_stale = stale};
    assert_int_equal(kit_commit(fixture->store, &commit, KIT_NOW, &err), E_STALE);
    assert_false(stale[0] || stale[1] || stale[4] || stale[5]);
    assert_true(stale[2]); /* the second of its changes happens to expect what is there */
    assert_int_equal(kit_load(fixture->store, 0, &fixture->arena)->version, 1);
    assert_int_equal(kit_load(fixture->store, 2, &fixture->arena)->version, 1);
    assert_int_equal(kit_load(fixture->store, 1, &fixture->arena)->status, RECORD_EXECUTED);
}

/* Every slice of a record counts when room for a commit is made, those that only some kinds have
 * included. */
static void a_commit_of_records_with_the_longest_details_fits(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    enum { COUNT = 64 };
    static const char bytes[LIMIT_DETAIL_BYTES_MAX] = {'d'};
    struct record records[COUNT];
    struct change changes[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        records[i] = kit_record(i, i + 1);
        records[i].detail = slice_of(bytes, sizeof bytes);
        changes[i] = (struct change){.kind = CHANGE_PUT, .record = &records[i]};
    }
    struct commit commit = {.changes = changes, .count = COUNT};
    assert_int_equal(kit_commit(fixture->store, &commit, KIT_NOW, &err), OK);
    assert_int_equal(fixture->store->ops->flush(fixture->store, &err), OK);
    subject_reopen(fixture);
    const struct record *last = kit_load(fixture->store, COUNT - 1, &fixture->arena);
    assert_true(slice_equal(last->detail, records[COUNT - 1].detail));
}

/* Operations and sources are told apart wherever several records are meant. */
static void kinds_are_told_apart(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    struct record record = kit_record(1, 1);
    record.source = (struct source){SLICE_LIT("order"), SLICE_LIT("17"), SLICE_LIT("3")};
    struct record running = kit_record(2, 2);
    kit_put_flush(fixture->store, &record, 0);
    kit_put_flush(fixture->store, &running, 0);
    struct record sealed = kit_sealed(&record, KIT_NOW + 86400000);
    struct record source = source_record(&sealed);
    kit_put_flush(fixture->store, &sealed, 1);
    kit_put_flush(fixture->store, &source, 0);
    subject_reopen(fixture);
    struct store_counts operations = kit_counts(fixture->store, STORE_OPERATIONS);
    struct store_counts sources = kit_counts(fixture->store, STORE_KIND(RECORD_SOURCE));
    assert_int_equal(operations.records, 2);
    assert_int_equal(operations.by_status[RECORD_IN_PROGRESS], 1);
    assert_int_equal(operations.by_status[RECORD_EXECUTED], 1);
    assert_int_equal(sources.records, 1);
    assert_int_equal(kit_counts(fixture->store, STORE_KINDS_ALL).records, 3);
    const struct record *found[4];
    size_t count = 0;
    static const struct {
        unsigned kinds;
        size_t count;
    } masks[] = {{STORE_OPERATIONS, 2}, {STORE_KIND(RECORD_SOURCE), 1}, {STORE_KINDS_ALL, 3},
        {STORE_KINDS_ASKED, 2}};
    for (size_t i = 0; i < 4; i++) {
        struct scan scan = {.kinds = masks[i].kinds, .limit = 4};
        assert_int_equal(
            fixture->store->ops->scan(fixture->store, &scan, &fixture->arena, found, &count, &err),
            OK);
        assert_int_equal(count, masks[i].count);
    }
    struct store_due dues[4];
    kit_set_time(KIT_NOW + 31000);
    assert_int_equal(
        kit_due(fixture->store, STORE_KIND(RECORD_SOURCE), STORE_DUES_ALL, dues, 4, &count), OK);
    assert_int_equal(count, 0);
    assert_int_equal(kit_due(fixture->store, STORE_KINDS_ALL, STORE_DUES_ALL, dues, 4, &count), OK);
    assert_int_equal(count, 1);
    assert_int_equal(dues[0].kind, RECORD_OPERATION);
    assert_int_equal(dues[0].due_ms, KIT_NOW + 30000);
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
    subject_reopen(fixture);
    struct scan scan = {.kinds = STORE_OPERATIONS, .limit = 7};
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
    struct scan sealed = {.kinds = STORE_OPERATIONS, .status = RECORD_EXECUTED, .limit = COUNT};
    assert_int_equal(
        fixture->store->ops->scan(fixture->store, &sealed, &fixture->arena, found, &count, &err),
        OK);
    assert_int_equal(count, COUNT / 4);
    struct scan key = {.kinds = STORE_OPERATIONS,
        .tenant = SLICE_LIT("acme"),
        .key = SLICE_LIT("key-17"),
        .limit = COUNT};
    assert_int_equal(
        fixture->store->ops->scan(fixture->store, &key, &fixture->arena, found, &count, &err), OK);
    assert_int_equal(count, 1);
    struct arena small; /* for what is shown, and not for what is passed */
    arena_init(&small, &mem_libc, 8 << 10);
    assert_int_equal(
        fixture->store->ops->scan(fixture->store, &key, &small, found, &count, &err), OK);
    arena_release(&small);
    assert_int_equal(count, 1);
    struct scan other = {.kinds = STORE_OPERATIONS, .tenant = SLICE_LIT("other"), .limit = COUNT};
    assert_int_equal(
        fixture->store->ops->scan(fixture->store, &other, &fixture->arena, found, &count, &err),
        OK);
    assert_int_equal(count, 0); /* P9 */
    struct scan late = {.kinds = STORE_OPERATIONS, .updated_from_ms = KIT_NOW + 1, .limit = COUNT};
    assert_int_equal(
        fixture->store->ops->scan(fixture->store, &late, &fixture->arena, found, &count, &err), OK);
    assert_int_equal(count, COUNT / 4);
}

static void leases_that_are_over_are_due(void **state)
{
    struct fixture *fixture = *state;
    struct record early = kit_record(1, 1);
    struct record late = kit_record(2, 2);
    late.lease_expires_ms = KIT_NOW + 90000;
    struct record sealed = kit_record(3, 3);
    kit_put_flush(fixture->store, &early, 0);
    kit_put_flush(fixture->store, &late, 0);
    kit_put_flush(fixture->store, &sealed, 0);
    sealed = kit_sealed(&sealed, KIT_NOW + 86400000);
    kit_put_flush(fixture->store, &sealed, 1);
    subject_reopen(fixture);
    static const struct {
        int64_t after_ms;
        size_t limit;
        size_t count;
    } times[] = {{29999, 8, 0}, {31000, 8, 1}, {99000, 8, 2}, {99000, 1, 1}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        struct store_due dues[8];
        size_t count = 9;
        kit_set_time(KIT_NOW + times[i].after_ms);
        assert_int_equal(
            kit_due(fixture->store, STORE_OPERATIONS, STORE_DUES_ALL, dues, times[i].limit, &count),
            OK);
        assert_int_equal(count, times[i].count); /* never one whose lease is alive */
        assert_true(i != 1 || op_id_equal(&dues[0].operation_id, &early.operation_id));
    }
}

/* Work that Once performs itself: due when its next attempt is, and never forgotten before it is
 * settled (P8), whatever its due. */
static void pending_work_is_due_and_stays(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    struct record pending = kit_record(1, 1);
    pending.kind = RECORD_EFFECT;
    pending.status = RECORD_PENDING;
    pending.fence = 0;
    pending.attempt = 0;
    pending.lease_expires_ms = 0;
    pending.due_ms = KIT_NOW + 5000;
    assert_int_equal(record_key_seal_as(&pending.key, RECORD_EFFECT, &err), OK);
    pending.operation_id = op_id_make(KIT_NOW, &pending.key.hash, 1);
    struct record other = kit_record(2, 2);
    kit_put_flush(fixture->store, &pending, 0);
    kit_put_flush(fixture->store, &other, 0);
    subject_reopen(fixture);
    struct store_due dues[4];
    size_t count = 9;
    kit_set_time(KIT_NOW + 4000);
    assert_int_equal(kit_due(fixture->store, STORE_KINDS_ALL, STORE_DUES_ALL, dues, 4, &count), OK);
    assert_int_equal(count, 0);
    struct commit time_passes = {.count = 0};
    assert_int_equal(kit_commit(fixture->store, &time_passes, KIT_NOW + 9000, &err), OK);
    assert_int_equal(fixture->store->ops->flush(fixture->store, &err), OK);
    assert_int_equal(kit_maintain(fixture->store, KIT_NOW + 9000, &err), OK);
    assert_int_equal(
        kit_due(fixture->store, STORE_KIND(RECORD_EFFECT), STORE_DUES_ALL, dues, 4, &count), OK);
    assert_int_equal(count, 1);
    assert_int_equal(dues[0].reason, RECORD_DUE_NEXT_ATTEMPT);
    assert_int_equal(dues[0].due_ms, KIT_NOW + 5000);
    assert_true(op_id_equal(&dues[0].operation_id, &pending.operation_id));
    const struct record *found = NULL;
    assert_int_equal(kit_find(fixture->store, &pending.operation_id, STORE_KIND(RECORD_EFFECT),
                         &fixture->arena, &found, &err),
        OK);
    assert_non_null(found);
    assert_int_equal(kit_counts(fixture->store, STORE_KIND(RECORD_EFFECT)).records, 1);
}

/* Whatever the order in which they were made: none is passed over for a later one. */
static void a_cursor_leads_through_dues_of_many_moments(void **state)
{
    enum { RECORDS = 40, PAGE = 3 };
    struct fixture *fixture = *state;
    struct store_due_cursor cursor = {0};
    struct store_due_filter filter = {.kinds = STORE_OPERATIONS,
        .reasons = STORE_DUE(RECORD_DUE_RECONCILE_AGAIN),
        .cursor = &cursor};
    struct err err = {0};
    for (unsigned i = 0; i < RECORDS; i++) {
        struct record record = kit_record(i + 1, i + 1);
        record.status = RECORD_UNKNOWN;
        record.lease_expires_ms = 0;
        record.door = RECORD_DOOR_GATEWAY;
        record.due_ms = KIT_NOW + 1000 * (1 + i * 7 % RECORDS);
        kit_put_flush(fixture->store, &record, 0);
    }
    kit_set_time(KIT_NOW + 100000 + (fixture->store->ops->shared ? LIMIT_PREPARED_MS_MAX : 0));
    for (unsigned given = 0; given < RECORDS;) {
        struct store_due dues[PAGE];
        size_t count = 0;
        assert_int_equal(
            fixture->store->ops->due(fixture->store, &filter, dues, PAGE, &count, &err), OK);
        assert_true(count > 0);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(dues[i].due_ms, KIT_NOW + 1000 * (1 + given++));
        }
    }
}

/* In order, each once, however few at a time; and what falls due later comes after it. */
static void a_cursor_leads_through_the_dues_once(void **state)
{
    enum { RECORDS = 10, PAGE = 3 };
    struct fixture *fixture = *state;
    struct record records[RECORDS];
    struct store_due_cursor cursor = {0};
    struct store_due_filter filter = {
        .kinds = STORE_OPERATIONS, .reasons = STORE_DUE(RECORD_DUE_RECONCILE_AGAIN)};
    struct err err = {0};
    filter.cursor = &cursor;
    for (unsigned i = 0; i < RECORDS; i++) {
        records[i] = kit_record(i + 1, i + 1);
        records[i].status = RECORD_UNKNOWN;
        records[i].lease_expires_ms = 0;
        records[i].door = RECORD_DOOR_GATEWAY;
        records[i].due_ms = i % 4 == 0 ? 0 : KIT_NOW + 1000 * (1 + i % 4); /* some at once */
        kit_put_flush(fixture->store, &records[i], 0);
    }
    subject_reopen(fixture);
    int64_t late_ms = fixture->store->ops->shared ? LIMIT_PREPARED_MS_MAX : 0;
    kit_set_time(KIT_NOW + 3000 + late_ms);
    unsigned given[RECORDS] = {0};
    for (unsigned rounds = 0; rounds < 8; rounds++) {
        struct store_due dues[PAGE];
        size_t count = 9;
        int64_t last_ms = 0;
        assert_int_equal(
            fixture->store->ops->due(fixture->store, &filter, dues, PAGE, &count, &err), OK);
        assert_true(count <= PAGE);
        for (size_t i = 0; i < count; i++) {
            assert_true(dues[i].due_ms / 1000 >= last_ms / 1000);
            last_ms = dues[i].due_ms;
            for (unsigned j = 0; j < RECORDS; j++) {
                given[j] += op_id_equal(&dues[i].operation_id, &records[j].operation_id);
            }
        }
        if (rounds == 4) { /* the first five found all there were by then */
            for (unsigned j = 0; j < RECORDS; j++) {
                assert_int_equal(given[j], j % 4 < 2);
            }
            kit_set_time(KIT_NOW + 60000);
        }
    }
    for (unsigned j = 0; j < RECORDS; j++) {
        assert_int_equal(given[j], 1);
    }
}

/* What processes of ours hold is found before its lease is over, and so is the oldest unknown one:
 * a store that was just opened may know that only after some housekeeping. */
static void agree_on_holders(struct fixture *fixture, const struct record *records, unsigned count)
{
    struct store_due_filter filter = {.kinds = STORE_KINDS_ALL, .held = true};
    struct store_due dues[128];
    size_t found = 0;
    struct err err = {0};
    assert_int_equal(
        fixture->store->ops->due(fixture->store, &filter, dues, 128, &found, &err), OK);
    size_t held = 0;
    int64_t unknown_since_ms = 0;
    for (unsigned i = 1; i <= count; i++) {
        const struct record *record = &records[i];
        held += record->holder != 0;
        if (record->status == RECORD_UNKNOWN &&
            (unknown_since_ms == 0 || record->updated_ms < unknown_since_ms)) {
            unknown_since_ms = record->updated_ms;
        }
    }
    assert_int_equal(found, held);
    if (fixture->store->ops->housekeeping != NULL) {
        assert_int_equal(fixture->store->ops->housekeeping->maintain(fixture->store, &err), OK);
    }
    struct store_counts counts = kit_counts(fixture->store, STORE_KINDS_ASKED);
    assert_int_equal(counts.unknown_since_ms, unknown_since_ms);
}

/* What is due, by looking at every record. A store may be a second late, never early. */
static void agree_on_dues(
    struct fixture *fixture, const struct record *records, unsigned count, int64_t now_ms)
{
    static const unsigned reasons[] = {STORE_DUE(RECORD_DUE_LEASE_OVER),
        STORE_DUE(RECORD_DUE_NEXT_ATTEMPT), STORE_DUE(RECORD_DUE_RECONCILE_AGAIN), STORE_DUES_ALL};
    struct store_due dues[128];
    size_t found = 0;
    assert_int_equal(
        kit_due(fixture->store, STORE_OPERATIONS, STORE_DUES_ALL, dues, 128, &found), OK);
    assert_int_equal(found, 0); /* all of it is effects */
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(
            kit_due(fixture->store, STORE_KIND(RECORD_EFFECT), reasons[i], dues, 128, &found), OK);
        size_t surely = 0;
        size_t perhaps = 0;
        for (unsigned j = 1; j <= count; j++) {
            const struct record *record = &records[j];
            bool asked = record->version > 0 && record_due(record) != RECORD_DUE_WINDOW_OVER &&
                         (reasons[i] & STORE_DUE(record_due(record))) != 0;
            surely += asked && record_due_ms(record) <= now_ms - 1000;
            perhaps += asked && record_due_ms(record) <= now_ms;
        }
        assert_true(found >= surely && found <= perhaps);
        for (size_t j = 0; j < found; j++) {
            assert_true(dues[j].due_ms <= now_ms); /* never early */
            assert_int_equal(dues[j].kind, RECORD_EFFECT);
            assert_true((reasons[i] & STORE_DUE(dues[j].reason)) != 0);
            for (size_t k = 0; k < j; k++) {
                assert_false(op_id_equal(&dues[j].operation_id, &dues[k].operation_id));
            }
        }
    }
    agree_on_holders(fixture, records, count);
}

/* A record of an effect in some status, with a due of that status at that time. */
static struct record work(unsigned number, enum record_status status, int64_t due_ms)
{
    struct record record = kit_record(number, number);
    struct err err;
    record.kind = RECORD_EFFECT;
    assert_int_equal(record_key_seal_as(&record.key, RECORD_EFFECT, &err), OK);
    record.operation_id = op_id_make(KIT_NOW, &record.key.hash, number);
    record.status = status;
    record.lease_expires_ms = status == RECORD_IN_PROGRESS ? due_ms : 0;
    record.due_ms = status == RECORD_IN_PROGRESS ? 0 : due_ms;
    if (status == RECORD_EXECUTED) {
        record.due_ms = 0;
        record.sealed_ms = KIT_NOW;
        record.window_expires_ms = due_ms + 86400000;
    }
    return record;
}

/* Random lives of work, against what a look at every record says: a store never finds a due early,
 * finds each in the end, and knows kinds and reasons apart. */
static void what_is_due_is_found_and_nothing_else(void **state)
{
    struct fixture *fixture = *state;
    enum { COUNT = 60, STEPS = 400 };
    static const enum record_status statuses[] = {
        RECORD_IN_PROGRESS, RECORD_PENDING, RECORD_UNKNOWN, RECORD_UNKNOWN, RECORD_EXECUTED};
    struct record records[COUNT + 1] = {{.version = 0}};
    struct prng prng = {.state = 9};
    int64_t now_ms = KIT_NOW;
    for (unsigned step = 0; step < STEPS; step++) {
        unsigned number = 1 + (unsigned)prng_below(&prng, COUNT);
        enum record_status status = statuses[prng_below(&prng, 5)];
        int64_t due_ms = KIT_NOW + 1 + (int64_t)prng_below(&prng, 200000);
        bool never = status == RECORD_UNKNOWN && prng_below(&prng, 2) == 0;
        struct record next = work(number, status, never ? 0 : due_ms);
        next.version = records[number].version + 1;
        next.updated_ms = KIT_NOW + step;
        next.holder = status == RECORD_IN_PROGRESS ? prng_below(&prng, 2) : 0;
        assert_int_equal(kit_put(fixture->store, &next, next.version - 1), OK);
        records[number] = next;
        now_ms += (int64_t)prng_below(&prng, 800);
        kit_set_time(now_ms);
        if (step % 100 == 99) {
            subject_reopen(fixture);
            kit_set_time(now_ms);
        }
        if (step % 10 == 0) {
            agree_on_dues(fixture, records, COUNT, now_ms);
        }
    }
    agree_on_dues(fixture, records, COUNT, now_ms);
}

/* Of several kinds together, and of each alone: people are told of the longest uncertainty. */
static void the_oldest_unknown_one_is_the_oldest_of_all_kinds(void **state)
{
    struct fixture *fixture = *state;
    struct err err;
    for (unsigned turn = 0; turn < 2; turn++) { /* the older one is of either kind */
        struct record operation = kit_record(1, 1);
        struct record effect = work(2, RECORD_UNKNOWN, 0);
        int64_t older_ms = KIT_NOW + 1000 - 200 * turn;
        operation.status = RECORD_UNKNOWN;
        operation.lease_expires_ms = 0;
        operation.version = effect.version = turn + 1;
        operation.updated_ms = turn == 0 ? older_ms + 500 : older_ms;
        effect.updated_ms = turn == 0 ? older_ms : older_ms + 500;
        assert_int_equal(kit_put(fixture->store, &operation, turn), OK);
        assert_int_equal(kit_put(fixture->store, &effect, turn), OK);
        if (fixture->store->ops->housekeeping != NULL) {
            assert_int_equal(fixture->store->ops->housekeeping->maintain(fixture->store, &err), OK);
        }
        assert_int_equal(kit_counts(fixture->store, STORE_KINDS_ASKED).unknown_since_ms, older_ms);
        assert_int_equal(
            kit_counts(fixture->store, STORE_OPERATIONS).unknown_since_ms, operation.updated_ms);
        assert_int_equal(kit_counts(fixture->store, STORE_KIND(RECORD_EFFECT)).unknown_since_ms,
            effect.updated_ms);
    }
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
    struct commit time_passes = {.count = 0};
    assert_int_equal(kit_commit(fixture->store, &time_passes, KIT_NOW + 2 * day, &err), OK);
    assert_int_equal(fixture->store->ops->flush(fixture->store, &err), OK);
    assert_int_equal(kit_maintain(fixture->store, KIT_NOW + 2 * day, &err), OK);
    for (unsigned i = 0; i < COUNT; i++) {
        const struct record *found = kit_load(fixture->store, i, &fixture->arena);
        assert_int_equal(found == NULL, i % 4 == 0); /* P8 */
    }
    struct store_counts counts = kit_counts(fixture->store, STORE_OPERATIONS);
    assert_int_equal(counts.records, COUNT / 4 * 3);
    assert_int_equal(counts.by_status[RECORD_IN_PROGRESS], COUNT / 2);
    subject_reopen(fixture);
    assert_int_equal(kit_maintain(fixture->store, KIT_NOW + 2 * day, &err), OK);
    struct store_head head;
    fixture->store->ops->head(fixture->store, &head);
    assert_int_equal(kit_counts(fixture->store, STORE_OPERATIONS).records, COUNT / 4 * 3);
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
    subject_reopen(fixture);
    unsigned seen;
    for (size_t looks = 1; looks < COUNT + 2; looks += looks < 4 ? 1 : 13) {
        struct scan_pace pace = {.looks_max = looks, .reads_max = COUNT};
        struct scan all = {.kinds = STORE_OPERATIONS, .pace = &pace};
        assert_true(pace_through(fixture, all, &seen) >= COUNT / (looks < 3 ? looks : 3));
        assert_int_equal(seen, COUNT);
        struct scan sealed = {.kinds = STORE_OPERATIONS, .status = RECORD_EXECUTED, .pace = &pace};
        assert_true(pace_through(fixture, sealed, &seen) >= COUNT / looks);
        assert_int_equal(seen, COUNT / 4);
        struct scan other = {
            .kinds = STORE_OPERATIONS, .tenant = SLICE_LIT("other"), .pace = &pace};
        assert_true(pace_through(fixture, other, &seen) >= COUNT / looks);
        assert_int_equal(seen, 0);
        pace.reads_max = 1;
        struct scan key = {.kinds = STORE_OPERATIONS, .key = SLICE_LIT("key-17"), .pace = &pace};
        assert_true(pace_through(fixture, key, &seen) >= COUNT);
        assert_int_equal(seen, 1);
        pace.looks_max = SIZE_MAX; /* what the status rules out costs no read */
        assert_true(pace_through(fixture, sealed, &seen) <= COUNT / 4 + 1);
        assert_int_equal(seen, COUNT / 4);
    }
    struct scan_pace slow = {.looks_max = 1, .reads_max = 1};
    struct scan late = {.kinds = STORE_OPERATIONS, .now_ms = KIT_NOW + 86400000, .pace = &slow};
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
    struct scan scan = {.kinds = STORE_OPERATIONS, .limit = 5, .pace = &pace};
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
    assert_int_equal(paced->pace.at.seq, paced->last);
    assert_memory_equal(&paced->pace.hash, &paced->hash, sizeof paced->hash);
    paced->last = entry->seq;
    paced->hash = entry->hash;
    return ++paced->seen != paced->a_call;
}

/* Records number `made` and the next one, in one commit. */
static void put_two(struct store *store, unsigned made)
{
    struct record records[2];
    struct change changes[2];
    struct err err = {0};
    for (unsigned i = 0; i < 2; i++) {
        records[i] = kit_record(made + i, made + i + 1);
        changes[i] = (struct change){.kind = CHANGE_PUT,
            .record = &records[i],
            .entry = kit_entry(store, &records[i].operation_id, "{\"two\":true}")};
    }
    struct entry *second = &changes[1].entry;
    second->seq++;
    digest_sha256_2(&changes[0].entry.hash, sizeof second->hash, second->bytes.data,
        second->bytes.len, &second->hash);
    struct commit commit = {.changes = changes, .count = 2};
    assert_int_equal(kit_commit(store, &commit, KIT_NOW, &err), OK);
}

static void paced_entries_go_on_where_they_stopped(void **state)
{
    struct fixture *fixture = *state;
    enum { COUNT = 50 }; /* even: they come two by two, so that a stop is inside of a batch */
    struct err err;
    unsigned made = 0;
    struct paced paced = {.pace = {.bytes_max = 1}};
    for (unsigned step = 0; paced.last < COUNT || !paced.pace.done; step++) {
        if (made < COUNT) { /* more comes meanwhile, flushed or not */
            put_two(fixture->store, made);
            made += 2;
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
            struct entry_range range = {
                .after = subject_cursor(fixture, after), .pace = &fresh.pace};
            const struct entry_range before = {
                .after = subject_cursor(fixture, after == 0 ? 0 : after - 1)};
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
            subject_reopen(fixture);
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
        range.after = subject_cursor(fixture, 150);
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
        subject_reopen(fixture);
    }
}

struct visited {
    struct entry_pace *pace;
    struct entry_cursor cursors[8]; /* of each entry, in order */
    size_t count;
};

static bool keep_cursor(void *context, const struct entry *entry)
{
    struct visited *visited = context;
    struct entry_cursor *cursor = &visited->cursors[visited->count++];
    cursor->seq = entry->seq;
    memcpy(cursor->chain_id, entry->chain_id, sizeof cursor->chain_id);
    assert_memory_equal(visited->pace->at.chain_id, entry->chain_id, sizeof entry->chain_id);
    return true;
}

/* Whatever gave a cursor, an entry or the end of a reading, the next reading goes on after it. */
static void a_cursor_is_where_a_later_reading_goes_on(void **state)
{
    struct fixture *fixture = *state;
    struct err err;
    enum { COUNT = 6 };
    struct entry_pace pace = {.bytes_max = SIZE_MAX};
    struct visited visited = {.pace = &pace};
    struct entry_range range = {.pace = &pace};
    struct store *store = fixture->store;
    assert_int_equal(store->ops->entries(store, &range, keep_cursor, &visited, &err), OK);
    assert_int_equal(visited.count, 0);
    struct entry_cursor before_all = pace.at;
    for (unsigned i = 0; i < COUNT; i++) {
        struct record record = kit_record(i, i + 1);
        kit_put_flush(store, &record, 0);
    }
    pace = (struct entry_pace){.bytes_max = SIZE_MAX};
    assert_int_equal(store->ops->entries(store, &range, keep_cursor, &visited, &err), OK);
    assert_int_equal(visited.count, COUNT);
    assert_memory_equal(&pace.at, &visited.cursors[COUNT - 1], sizeof pace.at);
    subject_reopen(fixture);
    store = fixture->store;
    for (size_t i = 0; i <= COUNT; i++) {
        struct seen rest = {.next = i + 1};
        struct entry_range after = {.after = i == 0 ? before_all : visited.cursors[i - 1]};
        assert_int_equal(store->ops->entries(store, &after, see, &rest, &err), OK);
        assert_int_equal(rest.count, COUNT - i);
    }
}

static void a_cursor_of_a_chain_that_is_not_there_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct store *store = fixture->store;
    struct record record = kit_record(1, 1);
    kit_put_flush(store, &record, 0);
    for (uint64_t seq = 0; seq < 3; seq++) {
        struct err err = {0};
        struct seen none = {0};
        struct entry_range range = {.after = entry_cursor_own(store, seq)};
        range.after.chain_id[15] ^= 1;
        assert_int_equal(store->ops->entries(store, &range, see, &none, &err), E_INVALID);
        assert_non_null(strstr(err.text, "different chain"));
        assert_int_equal(none.count, 0);
    }
    struct seen all = {.next = 1}; /* the store goes on */
    struct entry_range range = {.after = entry_cursor_own(store, 0)};
    assert_int_equal(store->ops->entries(store, &range, see, &all, NULL), OK);
    assert_int_equal(all.count, 1);
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
        struct commit commit = {.changes = &change, .count = 1};
        change.entry.tenant = slice_str(tenants[i % 4]);
        assert_int_equal(kit_commit(fixture->store, &commit, KIT_NOW, &err), OK);
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
        subject_reopen(fixture);
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
    struct commit commit = {.changes = changes, .count = 1};
    assert_int_equal(kit_commit(fixture->store, &commit, KIT_NOW, &err), E_MISUSE); /* P10 */
    changes[0].entry = good;
    changes[1].entry = good;
    changes[1].entry.kind = ENTRY_CHECKPOINT;
    commit.count = 2;
    assert_int_equal(kit_commit(fixture->store, &commit, KIT_NOW, &err), OK);
    subject_reopen(fixture);
    if (!fixture->store->ops->shared) { /* one that is opened anew begins a chain */
        struct store_head head;
        fixture->store->ops->head(fixture->store, &head);
        assert_int_equal(head.seq, 1);
        assert_memory_equal(&head.hash, &good.hash, 32);
    }
    struct seen both = {.text = "{\"a\":1}"};
    struct entry_range range = {0};
    assert_int_equal(fixture->store->ops->entries(fixture->store, &range, see, &both, &err), OK);
    assert_int_equal(both.count, 2);
}

/* A store may keep the entries of one commit together; they are still read one by one. */
static void a_cursor_may_be_in_the_middle_of_a_commit(void **state)
{
    struct fixture *fixture = *state;
    struct err err;
    struct op_id none = {{0}};
    enum { COUNT = 150 };
    struct change changes[COUNT] = {{.kind = CHANGE_NONE}};
    for (unsigned i = 0; i < COUNT; i++) {
        changes[i].entry = kit_entry(fixture->store, &none, "{\"a\":1}");
        struct entry *entry = &changes[i].entry;
        if (i > 0) {
            entry->seq += i;
            digest_sha256_2(&changes[i - 1].entry.hash, sizeof entry->hash, entry->bytes.data,
                entry->bytes.len, &entry->hash);
        }
    }
    struct commit commit = {.changes = changes, .count = COUNT};
    assert_int_equal(kit_commit(fixture->store, &commit, KIT_NOW, &err), OK);
    assert_int_equal(fixture->store->ops->flush(fixture->store, &err), OK);
    for (uint64_t after = 0; after <= COUNT; after++) {
        struct seen rest = {.next = after + 1, .text = "{\"a\":1}"};
        struct entry_range range = {.after = entry_cursor_own(fixture->store, after)};
        assert_int_equal(
            fixture->store->ops->entries(fixture->store, &range, see, &rest, &err), OK);
        assert_int_equal(rest.count, COUNT - after);
    }
    struct entry_pace pace = {.bytes_max = 1};
    struct entry_range paced = {.pace = &pace};
    struct seen all = {.next = 1};
    while (!pace.done) {
        assert_int_equal(fixture->store->ops->entries(fixture->store, &paced, see, &all, &err), OK);
    }
    assert_int_equal(all.count, COUNT);
}

/* A reader sees the keys 1 to 3 at these versions, 0 for absent, and all else as it was then. */
static void assert_read(struct fixture *fixture, struct store *reader, const uint64_t versions[3])
{
    struct store_head head;
    struct store_counts counts;
    struct seen all = {.next = 1};
    struct entry_range range = {.after = entry_cursor_own(reader, 0)};
    struct scan scan = {.kinds = STORE_OPERATIONS, .limit = 3};
    const struct record *records[3];
    size_t scanned = 0;
    uint64_t live = 0;
    uint64_t changes = 0;
    for (unsigned i = 0; i < 3; i++) {
        const struct record *found = kit_load(reader, i + 1, &fixture->arena);
        assert_int_equal(found == NULL ? 0 : found->version, versions[i]);
        live += versions[i] > 0;
        changes += versions[i];
    }
    assert_int_equal(
        reader->ops->scan(reader, &scan, &fixture->arena, records, &scanned, NULL), OK);
    assert_int_equal(scanned, live);
    assert_int_equal(reader->ops->counts(reader, STORE_OPERATIONS, &counts, NULL), OK);
    assert_int_equal(counts.records, live);
    assert_int_equal(reader->ops->entries(reader, &range, see, &all, NULL), OK);
    assert_int_equal(all.count, changes);
    reader->ops->head(reader, &head);
    assert_int_equal(head.seq, changes);
}

static void a_reader_sees_what_is_flushed_and_nothing_else(void **state)
{
    struct fixture *fixture = *state;
    struct store *store = fixture->store;
    struct store *reader;
    struct err err;
    if (store->ops->open_reader == NULL) {
        return; /* its queries run on its own thread */
    }
    assert_int_equal(store->ops->open_reader(store, &reader, &err), OK);
    assert_read(fixture, reader, (uint64_t[]){0, 0, 0});
    struct record one = kit_record(1, 1);
    struct record two = kit_record(2, 2);
    assert_int_equal(kit_put(store, &one, 0), OK);
    assert_int_equal(kit_put(store, &two, 0), OK);
    if (!store->ops->shared) { /* where a commit is durable when it returns */
        assert_read(fixture, reader, (uint64_t[]){0, 0, 0}); /* P2 */
    }
    assert_int_equal(store->ops->flush(store, &err), OK);
    assert_read(fixture, reader, (uint64_t[]){1, 1, 0});
    struct record sealed = kit_sealed(kit_load(store, 1, &fixture->arena), KIT_NOW + 86400000);
    struct record three = kit_record(3, 3);
    assert_int_equal(kit_put(store, &sealed, 1), OK);
    assert_int_equal(kit_put(store, &three, 0), OK);
    if (!store->ops->shared) {
        assert_read(fixture, reader, (uint64_t[]){1, 1, 0});
    }
    assert_int_equal(store->ops->flush(store, &err), OK);
    assert_read(fixture, reader, (uint64_t[]){2, 1, 1});
    assert_int_equal(reader->ops->close(reader, &err), OK);
}

static void the_identity_stays(void **state)
{
    struct fixture *fixture = *state;
    struct store_identity identity[2];
    struct store_shared shared[2];
    fixture->store->ops->identity(fixture->store, &identity[0], &shared[0]);
    subject_reopen(fixture);
    fixture->store->ops->identity(fixture->store, &identity[1], NULL);
    fixture->store->ops->identity(fixture->store, NULL, &shared[1]);
    if (!fixture->store->ops->shared) { /* each handle of these has a chain of its own */
        assert_memory_equal(&identity[0], &identity[1], sizeof identity[0]);
    }
    assert_memory_equal(&shared[0], &shared[1], sizeof shared[0]);
    unsigned char zeros[32] = {0};
    assert_memory_not_equal(identity[0].signing_seed, zeros, 32);
    assert_memory_not_equal(shared[0].fingerprint_key, zeros, 32);
}

/* The same random commits to this store and to a mem store: they must agree throughout. */
static void it_agrees_with_the_reference(void **state)
{
    struct fixture *fixture = *state;
    struct err err;
    struct store *reference;
    struct store_options options = {.clock = &kit_clock};
    assert_int_equal(store_open("mem:", &options, &reference, &err), OK);
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
            subject_reopen(fixture);
        }
        arena_clear(&fixture->arena);
    }
    struct store_head heads[2];
    fixture->store->ops->head(fixture->store, &heads[0]);
    reference->ops->head(reference, &heads[1]);
    if (!fixture->store->ops->shared) {
        assert_int_equal(heads[0].seq, heads[1].seq);
        assert_memory_equal(&heads[0].hash, &heads[1].hash, 32);
    }
    struct store_counts counts[2] = {
        kit_counts(fixture->store, STORE_KINDS_ALL), kit_counts(reference, STORE_KINDS_ALL)};
    assert_memory_equal(&counts[0], &counts[1], sizeof counts[0]);
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
    static const char *const wrong[] = {"mem:x", "jornal:/tmp/x", "journal:", "postgres://x?y=z",
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
    struct store_options options = {.clock = &kit_clock};
    assert_int_equal(store_open("mem:", &options, &store, &err), OK);
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
    assert_int_equal(fault_calls(store, STORE_CALL_PREPARE), 3);
    assert_int_equal(fault_calls(store, STORE_CALL_READ), 2);
    fault_arm(store, STORE_CALL_PREPARE, 1, E_UNAVAILABLE, FAULT_AFTER); /* nothing stays open */
    assert_true(fault_is_armed(store, STORE_CALL_PREPARE));
    struct record third = kit_record(3, 3);
    assert_int_equal(kit_put(store, &third, 0), E_UNAVAILABLE);
    assert_false(fault_is_armed(store, STORE_CALL_PREPARE));
    bool stale[1] = {false};
    struct change change = {.kind = CHANGE_PUT, .record = &third};
    struct commit commit = {.changes = &change, .count = 1, .ret_stale = stale};
    fault_arm(store, STORE_CALL_COMMIT, 1, E_STALE, FAULT_BEFORE);
    assert_int_equal(kit_commit(store, &commit, KIT_NOW, &err), E_STALE);
    assert_true(stale[0]);
    assert_int_equal(kit_put(store, &third, 0), OK);
    fault_arm(store, STORE_CALL_FLUSH, 1, E_UNKNOWN, FAULT_BEFORE);
    assert_int_equal(store->ops->flush(store, &err), E_UNKNOWN);
    assert_int_equal(store->ops->flush(store, &err), OK);
    assert_int_equal(kit_close(store), OK);
    arena_release(&arena);
}

int main(void)
{
    int failed = 0;
    for (size_t i = 0; i < subjects_count; i++) {
        if (!subject_runs(&subjects[i])) {
            continue;
        }
        struct CMUnitTest tests[] = {
            ON_SUBJECT(what_is_put_is_loaded_and_survives),
            ON_SUBJECT(many_are_loaded_at_once),
            ON_SUBJECT(another_version_is_stale_and_nothing_happens),
            ON_SUBJECT(one_commit_may_change_a_record_twice),
            ON_SUBJECT(of_a_failed_commit_nothing_stays_though_it_changed_a_key_twice),
            ON_SUBJECT(a_touch_counts_and_changes_nothing_else),
            ON_SUBJECT(an_operation_is_found_by_its_id),
            ON_SUBJECT(bodies_come_back_byte_for_byte),
            ON_SUBJECT(a_body_that_one_commit_brings_again_is_the_one_that_stays),
            ON_SUBJECT(fences_only_grow),
            ON_SUBJECT(time_comes_from_the_store_and_never_goes_back),
            ON_SUBJECT(one_prepare_brings_everything),
            ON_SUBJECT(a_body_without_room_is_the_failure_of_one_want),
            ON_SUBJECT(an_abort_leaves_nothing_behind),
            ON_SUBJECT(stale_changes_are_named),
            ON_SUBJECT(a_commit_of_records_with_the_longest_details_fits),
            ON_SUBJECT(kinds_are_told_apart),
            ON_SUBJECT(a_scan_is_in_order_and_filters),
            ON_SUBJECT(a_paced_scan_sees_all_in_bounded_steps),
            ON_SUBJECT(a_paced_scan_goes_on_while_keys_change),
            ON_SUBJECT(leases_that_are_over_are_due),
            ON_SUBJECT(pending_work_is_due_and_stays),
            ON_SUBJECT(a_cursor_leads_through_the_dues_once),
            ON_SUBJECT(a_cursor_leads_through_dues_of_many_moments),
            ON_SUBJECT(what_is_due_is_found_and_nothing_else),
            ON_SUBJECT(the_oldest_unknown_one_is_the_oldest_of_all_kinds),
            ON_SUBJECT(only_what_expired_is_forgotten),
            ON_SUBJECT(entries_come_back_in_order),
            ON_SUBJECT(a_cursor_is_where_a_later_reading_goes_on),
            ON_SUBJECT(a_cursor_of_a_chain_that_is_not_there_is_refused),
            ON_SUBJECT(paced_entries_go_on_where_they_stopped),
            ON_SUBJECT(an_entry_keeps_its_tenant_and_is_found_by_it),
            ON_SUBJECT(entries_are_dense_and_notes_are_apart),
            ON_SUBJECT(a_cursor_may_be_in_the_middle_of_a_commit),
            ON_SUBJECT(a_reader_sees_what_is_flushed_and_nothing_else),
            ON_SUBJECT(the_identity_stays),
            ON_SUBJECT(it_agrees_with_the_reference),
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
