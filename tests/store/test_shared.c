/*
 * What a store has to do that several processes share (S9 to S13), run over each of them: every
 * test has two handles or more. No test prepares the same key in two handles at once but from
 * different threads, because a store may let the second one wait for the first.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "store/subjects.h"

/* What a thread or a visitor found to be wrong; NULL: nothing. */
static void assert_well(const char *failed)
{
    if (failed != NULL) {
        print_error("%s\n", failed);
    }
    assert_null(failed);
}

static void close_handle(struct store *store)
{
    assert_int_equal(kit_close(store), OK);
}

static struct change put_change(
    struct store *store, const struct record *record, uint64_t version_expected)
{
    return (struct change){.kind = CHANGE_PUT,
        .record = record,
        .version_expected = version_expected,
        .entry = kit_entry(store, &record->operation_id, "{\"a\":1}")};
}

static void prepare_nothing(struct store *store)
{
    struct store_batch batch = {.fences = 1};
    struct err err = {0};
    assert_int_equal(store->ops->prepare(store, &batch, &err), OK);
}

/* ---- what is committed (S9) ---------------------------------------------------------------- */

static void what_one_handle_commits_every_other_one_sees(void **state)
{
    struct fixture *fixture = *state;
    struct store *a = fixture->store;
    struct store *b = subject_open(fixture);
    struct record record = kit_record(1, 1);
    struct slice body = SLICE_LIT("the request");
    record.request = kit_body(body);
    struct change change = put_change(a, &record, 0);
    change.request_body = body;
    struct commit commit = {.changes = &change, .count = 1};
    struct err err = {0};
    assert_null(kit_load(b, 1, &fixture->arena));
    assert_int_equal(kit_commit(a, &commit, KIT_NOW, &err), OK);
    const struct record *found = kit_load(b, 1, &fixture->arena);
    assert_non_null(found);
    assert_int_equal(found->version, 1);
    struct slice bytes = SLICE_EMPTY;
    assert_int_equal(
        kit_bytes(b, &record.key.hash, WANT_REQUEST, &fixture->arena, &bytes, &err), OK);
    assert_true(slice_equal(bytes, body));
    assert_int_equal(
        kit_find(b, &record.operation_id, STORE_OPERATIONS, &fixture->arena, &found, &err), OK);
    assert_non_null(found);
    struct record sealed = kit_sealed(&record, KIT_NOW + 86400000);
    assert_int_equal(kit_put(b, &sealed, 1), OK);
    assert_int_equal(kit_load(a, 1, &fixture->arena)->status, RECORD_EXECUTED);
    assert_int_equal(kit_counts(a, STORE_OPERATIONS).by_status[RECORD_EXECUTED], 1);
    close_handle(b);
}

static void each_opening_has_a_chain_of_its_own_and_all_share_the_secrets(void **state)
{
    struct fixture *fixture = *state;
    struct store *b = subject_open(fixture);
    struct store_identity identity[2];
    struct store_shared shared[2];
    struct store_head head;
    struct record record = kit_record(1, 1);
    kit_put_flush(fixture->store, &record, 0);
    fixture->store->ops->identity(fixture->store, &identity[0], &shared[0]);
    b->ops->identity(b, &identity[1], &shared[1]);
    assert_memory_not_equal(identity[0].chain_id, identity[1].chain_id, 16);
    assert_memory_not_equal(identity[0].signing_seed, identity[1].signing_seed, 32);
    assert_memory_equal(&shared[0], &shared[1], sizeof shared[0]);
    b->ops->head(b, &head);
    assert_int_equal(head.seq, 0);
    struct record other = kit_record(2, 2);
    kit_put_flush(b, &other, 0);
    b->ops->head(b, &head);
    assert_int_equal(head.seq, 1);
    fixture->store->ops->head(fixture->store, &head);
    assert_int_equal(head.seq, 1);
    close_handle(b);
}

/* A change that rests on an older version changes nothing and says so (S3), nor does anything that
 * was committed with it (S1). */
static void of_two_that_change_the_same_version_one_is_stale(void **state)
{
    struct fixture *fixture = *state;
    struct store *a = fixture->store;
    struct store *b = subject_open(fixture);
    struct record first = kit_record(1, 1);
    struct record other = kit_record(2, 2);
    struct store_head before;
    struct store_head after;
    struct err err = {0};
    prepare_nothing(a);
    a->ops->head(a, &before);
    assert_int_equal(kit_put(b, &first, 0), OK);
    struct change changes[2] = {put_change(a, &other, 0), put_change(a, &first, 0)};
    changes[1].entry = (struct entry){.bytes = SLICE_EMPTY};
    bool stale[2] = {true, false};
    struct commit commit = {.changes = changes, .count = 2, .ret_stale = stale};
    assert_int_equal(a->ops->commit(a, &commit, &err), E_STALE);
    assert_false(stale[0]);
    assert_true(stale[1]);
    assert_null(kit_load(a, 2, &fixture->arena));
    a->ops->head(a, &after);
    assert_int_equal(before.seq, after.seq);
    assert_memory_equal(&before.hash, &after.hash, sizeof before.hash);
    assert_int_equal(kit_put(a, &other, 0), OK);
    close_handle(b);
}

static void fences_come_from_one_counter(void **state)
{
    struct fixture *fixture = *state;
    struct store *handles[2] = {fixture->store, subject_open(fixture)};
    uint64_t last = 0;
    for (unsigned i = 0; i < 20; i++) {
        struct store *one = handles[i % 2];
        uint64_t first = kit_fences(one, 1 + i % 3);
        assert_true(first > last);
        last = first + i % 3;
        assert_true(kit_fence(handles[1 - i % 2]) >= last); /* none from the future (P4) */
    }
    struct commit raise = {.fence_floor = last + 1000};
    struct err err = {0};
    assert_int_equal(kit_commit(handles[0], &raise, KIT_NOW, &err), OK);
    assert_true(kit_fences(handles[1], 1) > last + 1000);
    close_handle(handles[1]);
}

/* The time of a prepare is not before what it reads (S8, S9), whose clock ever was behind. */
static void time_is_the_same_for_all_handles(void **state)
{
    struct fixture *fixture = *state;
    struct store *b = subject_open(fixture);
    struct store_batch batch = {.count = 0};
    struct commit nothing = {.count = 0};
    struct err err = {0};
    assert_int_equal(kit_commit(fixture->store, &nothing, KIT_NOW + 5000, &err), OK);
    kit_set_time(KIT_NOW + 1000);
    assert_int_equal(b->ops->read(b, &batch, &err), OK);
    assert_true(batch.now_ms >= KIT_NOW + 5000);
    close_handle(b);
}

/* A process that stalls between prepare and commit must not come back and write (S10). */
static void a_commit_long_after_its_prepare_fails(void **state)
{
    struct fixture *fixture = *state;
    struct record record = kit_record(1, 1);
    struct change change = put_change(fixture->store, &record, 0);
    struct commit commit = {.changes = &change, .count = 1};
    struct err err = {0};
    prepare_nothing(fixture->store);
    kit_set_time(KIT_NOW + LIMIT_PREPARED_MS_MAX + 1000);
    enum status status = fixture->store->ops->commit(fixture->store, &commit, &err);
    assert_true(status == E_UNAVAILABLE || status == E_STALE);
    assert_null(kit_load(fixture->store, 1, &fixture->arena));
    assert_int_equal(kit_put(fixture->store, &record, 0), OK); /* and it goes on */
}

/* ---- threads ------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 40, KEYS_CONTESTED = 2 };

/* A process that raises the versions of contested records, by compare and set. */
struct shared_writer {
    pthread_t thread;
    struct store *store;
    struct arena arena;
    unsigned wins;      /* commits */
    const char *failed; /* NULL: it went well */
};

static const char *write_once(struct shared_writer *writer, unsigned number, bool *ret_done)
{
    struct store *store = writer->store;
    struct record wanted = {.key = {.tenant = SLICE_LIT("acme"), .scope = SLICE_LIT("orders")}};
    char key[24];
    (void)snprintf(key, sizeof key, "key-%u", number);
    wanted.key.key = slice_str(key);
    struct err err = {0};
    if (record_key_seal(&wanted.key, &err) != OK) {
        return "the key is invalid";
    }
    struct store_want want = {.key = &wanted.key.hash};
    struct store_batch batch = {.wants = &want, .count = 1, .fences = 1, .arena = &writer->arena};
    if (store->ops->prepare(store, &batch, &err) != OK) {
        return "prepare failed";
    }
    struct record next = want.record != NULL ? *want.record : wanted;
    uint64_t expected = next.version;
    if (want.record != NULL && want.record->fence >= batch.fence_first) {
        return "a fence is not greater than those of the records that came with it (S9)";
    }
    next.version++;
    next.kind = RECORD_OPERATION;
    next.status = RECORD_IN_PROGRESS;
    next.fingerprint_version = 1;
    next.fence = batch.fence_first;
    next.attempt++;
    next.created_ms = next.updated_ms = KIT_NOW;
    next.lease_expires_ms = KIT_NOW + 30000;
    next.window_ms = 86400000;
    next.operation_id = op_id_make(KIT_NOW, &next.key.hash, next.fence);
    struct change change = put_change(store, &next, expected);
    struct commit commit = {.changes = &change, .count = 1};
    enum status status = store->ops->commit(store, &commit, &err);
    *ret_done = status == OK;
    return status == OK || status == E_STALE ? NULL : "commit failed";
}

static void *write_main(void *context)
{
    struct shared_writer *writer = context;
    while (writer->wins < ROUNDS && writer->failed == NULL) {
        bool done = false;
        arena_clear(&writer->arena);
        writer->failed = write_once(writer, writer->wins % KEYS_CONTESTED, &done);
        writer->wins += done;
    }
    return NULL;
}

/* A process that changes a record while an entry about it is to be committed. */
struct changer {
    pthread_t thread;
    struct store *store;
    const struct record *record; /* as it will be */
    atomic_bool done;
    const char *failed;
};

static void *change_main(void *context)
{
    struct changer *changer = context;
    struct store *store = changer->store;
    struct arena arena;
    struct err err = {0};
    arena_init(&arena, &mem_libc, 1 << 20);
    struct store_want want = {.key = &changer->record->key.hash};
    struct store_batch batch = {.wants = &want, .count = 1, .arena = &arena};
    struct change change = put_change(store, changer->record, changer->record->version - 1);
    change.entry = kit_entry(store, &changer->record->operation_id, "{\"changed\":1}");
    struct commit commit = {.changes = &change, .count = 1};
    changer->failed = store->ops->prepare(store, &batch, &err) != OK   ? "prepare failed"
                      : store->ops->commit(store, &commit, &err) != OK ? "commit failed"
                                                                       : NULL;
    atomic_store(&changer->done, true);
    arena_release(&arena);
    return NULL;
}

/* Stops if an entry about the old version follows the change of it. */
struct ordered {
    const struct op_id *id;
    unsigned alone;
    bool changed;
    const char *failed;
};

static bool check_order(void *context, const struct entry *entry)
{
    struct ordered *ordered = context;
    bool alone = slice_is(entry->bytes, "{\"alone\":1}");
    if (op_id_equal(&entry->operation_id, ordered->id)) {
        ordered->changed = ordered->changed || slice_is(entry->bytes, "{\"changed\":1}");
        ordered->alone += alone;
        ordered->failed = alone && ordered->changed
                              ? "an entry was decided on a version that had been changed (S3)"
                              : NULL;
    }
    return ordered->failed == NULL;
}

/* A record of which one handle prepares an entry alone while a different one changes it. */
static void entry_alone_or_change(
    struct fixture *fixture, struct store *other, const struct record *next)
{
    struct store *a = fixture->store;
    struct err err = {0};
    struct store_want want = {.key = &next->key.hash};
    struct store_batch batch = {.wants = &want, .count = 1, .arena = &fixture->arena};
    assert_int_equal(a->ops->prepare(a, &batch, &err), OK);
    assert_int_equal(want.record == NULL ? 0 : want.record->version, next->version - 1);
    struct changer changer = {.store = other, .record = next};
    assert_int_equal(pthread_create(&changer.thread, NULL, change_main, &changer), 0);
    for (unsigned i = 0; i < 300 && !atomic_load(&changer.done); i++) {
        (void)usleep(1000); /* a store that locks lets it wait for us */
    }
    bool is_changed = atomic_load(&changer.done);
    struct change alone = {.kind = CHANGE_NONE,
        .decided_on = &next->key.hash,
        .version_expected = next->version - 1,
        .entry = kit_entry(a, &next->operation_id, "{\"alone\":1}")};
    bool stale = false;
    struct commit commit = {.changes = &alone, .count = 1, .ret_stale = &stale};
    enum status status = a->ops->commit(a, &commit, &err);
    assert_int_equal(pthread_join(changer.thread, NULL), 0);
    assert_well(changer.failed);
    assert_true(status == E_STALE || (status == OK && !is_changed));
    assert_int_equal(stale, status == E_STALE);
    struct ordered ordered = {.id = &next->operation_id};
    const struct entry_range all = {.pace = NULL};
    assert_int_equal(a->ops->entries(a, &all, check_order, &ordered, &err), OK);
    assert_well(ordered.failed);
    assert_true(ordered.changed);
    assert_int_equal(ordered.alone, status == OK);
}

/* The entries of a record are in the order of its versions, and so are those of decisions that
 * leave it as it is, or absent (S3, P10). */
static void an_entry_alone_does_not_follow_the_change_of_its_record(void **state)
{
    struct fixture *fixture = *state;
    struct store *b = subject_open(fixture);
    struct record made = kit_record(2, 2);
    struct record record = kit_record(1, 1);
    struct record sealed = kit_sealed(&record, KIT_NOW + 86400000);
    struct err err = {0};
    entry_alone_or_change(fixture, b, &made);
    kit_put_flush(b, &record, 0);
    entry_alone_or_change(fixture, b, &sealed);
    struct store_want want = {.key = &record.key.hash};
    struct store_batch batch = {.wants = &want, .count = 1, .arena = &fixture->arena};
    assert_int_equal(b->ops->prepare(b, &batch, &err), OK);
    struct change alone = {.kind = CHANGE_NONE,
        .decided_on = &record.key.hash,
        .version_expected = 2,
        .entry = kit_entry(b, &record.operation_id, "{\"last\":1}")};
    struct commit commit = {.changes = &alone, .count = 1};
    assert_int_equal(b->ops->commit(b, &commit, &err), OK); /* of the version that is there */
    assert_int_equal(kit_load(b, 1, &fixture->arena)->version, 2);
    close_handle(b);
}

/* How far each chain has come to a reading that goes on by cursor. */
struct followed {
    unsigned char chains[THREADS][16];
    uint64_t seqs[THREADS];
    struct digest hashes[THREADS];
    struct entry_pace *pace;
    size_t chain_count;
    size_t count;
    unsigned a_call; /* entries of one call */
    unsigned seen;   /* in this call */
    const char *failed;
};

static bool follow(void *context, const struct entry *entry)
{
    struct followed *followed = context;
    size_t at = 0;
    while (at < followed->chain_count && memcmp(followed->chains[at], entry->chain_id, 16) != 0) {
        at++;
    }
    if (at == THREADS) {
        followed->failed = "an entry is of a chain that nobody has";
        return false;
    }
    if (at == followed->chain_count) {
        memcpy(followed->chains[followed->chain_count++], entry->chain_id, 16);
    }
    if (entry->seq != followed->seqs[at] + 1) {
        followed->failed = "an entry was missed or came twice (S11)";
        return false;
    }
    if (!digest_equal(&followed->pace->hash, &followed->hashes[at])) {
        followed->failed = "an entry does not come with the hash before it in its chain";
        return false;
    }
    followed->seqs[at] = entry->seq;
    followed->hashes[at] = entry->hash;
    followed->count++;
    return ++followed->seen < followed->a_call;
}

/* Read on from where the reading stands, each time anew by its cursor. */
static void follow_on(struct store *store, struct followed *followed, struct entry_cursor *cursor)
{
    struct entry_pace pace = {.bytes_max = 100};
    struct entry_range range = {.after = *cursor, .pace = &pace};
    struct err err = {0};
    followed->pace = &pace;
    followed->seen = 0;
    do {
        assert_int_equal(store->ops->entries(store, &range, follow, followed, &err), OK);
        assert_well(followed->failed);
    } while (!pace.done && followed->seen < followed->a_call);
    *cursor = pace.at;
}

/* Compare and set from many threads: no version is made twice, no fence is out of order, and a
 * reading that follows meanwhile sees every entry once, in the order of its chain. */
static void versions_and_entries_hold_when_many_write_at_once(void **state)
{
    struct fixture *fixture = *state;
    static struct shared_writer writers[THREADS];
    struct followed followed = {.a_call = 3};
    struct entry_cursor cursor = {.seq = 0};
    for (unsigned i = 0; i < THREADS; i++) {
        writers[i] = (struct shared_writer){.store = subject_open(fixture)};
        arena_init(&writers[i].arena, &mem_libc, 1 << 20);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&writers[i].thread, NULL, write_main, &writers[i]), 0);
    }
    while (followed.count < THREADS * ROUNDS / 2) {
        follow_on(fixture->store, &followed, &cursor);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(writers[i].thread, NULL), 0);
        assert_well(writers[i].failed);
        close_handle(writers[i].store);
        arena_release(&writers[i].arena);
    }
    for (size_t last = SIZE_MAX; last != followed.count;) {
        last = followed.count;
        follow_on(fixture->store, &followed, &cursor);
    }
    assert_int_equal(followed.count, THREADS * ROUNDS);
    uint64_t versions = 0;
    for (unsigned i = 0; i < KEYS_CONTESTED; i++) {
        versions += kit_load(fixture->store, i, &fixture->arena)->version;
    }
    assert_int_equal(versions, THREADS * ROUNDS); /* S3: none was lost and none made twice */
}

/* ---- evidence (S11) ------------------------------------------------------------------------ */

/* Whoever prepared first commits last: the reading must neither pass its entry by nor repeat. */
static void a_cursor_misses_nothing_when_commits_interleave(void **state)
{
    struct fixture *fixture = *state;
    struct store *handles[3] = {fixture->store, subject_open(fixture), subject_open(fixture)};
    struct followed followed = {.a_call = 2};
    struct entry_cursor cursor = {.seq = 0};
    unsigned number = 0;
    for (unsigned round = 0; round < 12; round++) {
        static const unsigned orders[3][3] = {{2, 0, 1}, {1, 2, 0}, {0, 1, 2}};
        for (unsigned i = 0; i < 3; i++) {
            prepare_nothing(handles[i]);
        }
        for (unsigned i = 0; i < 3; i++) {
            struct store *one = handles[orders[round % 3][i]];
            number++;
            struct record record = kit_record(number, number);
            struct change change = put_change(one, &record, 0);
            struct commit commit = {.changes = &change, .count = 1};
            struct err err = {0};
            if (round % 4 == 3 && i == 1) {
                one->ops->abort(one);
            } else {
                assert_int_equal(one->ops->commit(one, &commit, &err), OK);
            }
            if (round % 2 == 0) {
                struct store *reader = subject_open(fixture);
                follow_on(reader, &followed, &cursor);
                close_handle(reader);
            }
        }
    }
    for (size_t last = SIZE_MAX; last != followed.count;) {
        last = followed.count;
        follow_on(fixture->store, &followed, &cursor);
    }
    assert_int_equal(followed.count, 12 * 3 - 3);
    close_handle(handles[1]);
    close_handle(handles[2]);
}

/* A cursor that was given out before anything was there leaves nothing out later. */
static void a_cursor_from_before_all_evidence_misses_no_chain(void **state)
{
    struct fixture *fixture = *state;
    struct followed followed = {.a_call = 100};
    struct entry_cursor cursor = {.seq = 0};
    follow_on(fixture->store, &followed, &cursor);
    struct store *b = subject_open(fixture);
    struct record one = kit_record(1, 1);
    struct record two = kit_record(2, 2);
    kit_put_flush(b, &one, 0);
    kit_put_flush(fixture->store, &two, 0);
    follow_on(fixture->store, &followed, &cursor);
    assert_int_equal(followed.count, 2);
    close_handle(b);
}

struct listed {
    struct store_chain chains[8];
    size_t count;
};

static bool list_chain(void *context, const struct store_chain *chain)
{
    struct listed *listed = context;
    assert_true(listed->count < 8);
    listed->chains[listed->count++] = *chain;
    return true;
}

static void every_chain_is_known_with_its_public_key(void **state)
{
    struct fixture *fixture = *state;
    struct store *handles[2] = {fixture->store, subject_open(fixture)};
    struct err err = {0};
    uint64_t incarnation = kit_fences(handles[1], 1);
    struct record records[2] = {kit_record(1, 1), kit_record(2, 2)};
    for (unsigned i = 0; i < 2; i++) {
        kit_put_flush(handles[i], &records[i], 0);
    }
    assert_int_equal(handles[1]->ops->beat(handles[1], incarnation, &err), OK);
    struct store_identity identity;
    unsigned char public_key[32];
    handles[1]->ops->identity(handles[1], &identity, NULL);
    assert_int_equal(store_identity_public(&identity, public_key, &err), OK);
    for (unsigned round = 0; round < 2; round++) {
        struct listed listed = {.count = 0};
        assert_int_equal(handles[0]->ops->chains(handles[0], list_chain, &listed, &err), OK);
        assert_int_equal(listed.count, 2);
        assert_memory_equal(listed.chains[0].chain_id, fixture->chain_id, 16);
        assert_memory_equal(listed.chains[1].chain_id, identity.chain_id, 16);
        assert_memory_equal(listed.chains[1].public_key, public_key, 32);
        assert_int_equal(listed.chains[1].incarnation, incarnation);
        assert_int_equal(listed.chains[1].started_ms, KIT_NOW);
        assert_int_equal(listed.chains[1].seen_ms, KIT_NOW);
        assert_int_equal(listed.chains[1].ended, round == 1);
        if (round == 0) {
            close_handle(handles[1]);
        }
    }
}

/* ---- holders (S12) ------------------------------------------------------------------------- */

static size_t count_gone(struct store *store, struct store_due *ret_first)
{
    struct store_due_filter filter = {.kinds = STORE_KINDS_ALL, .held = true};
    struct store_due dues[8];
    size_t count = 9;
    struct err err = {0};
    assert_int_equal(store->ops->due(store, &filter, dues, 8, &count, &err), OK);
    if (count > 0 && ret_first != NULL) {
        *ret_first = dues[0];
    }
    return count;
}

static void a_holder_is_gone_when_its_heart_stops_and_not_before(void **state)
{
    struct fixture *fixture = *state;
    struct store *a = fixture->store;
    struct store *b = subject_open(fixture);
    struct err err = {0};
    uint64_t incarnation = kit_fences(a, 1);
    assert_int_equal(a->ops->beat(a, incarnation, &err), OK);
    assert_int_equal(b->ops->beat(b, kit_fences(b, 1), &err), OK);
    struct record record = kit_record(1, kit_fences(a, 1));
    record.holder = incarnation;
    record.lease_expires_ms = KIT_NOW + 86400000;
    struct record outside = kit_record(2, kit_fences(a, 1)); /* held by no process of ours */
    outside.lease_expires_ms = KIT_NOW + 86400000;
    kit_put_flush(a, &record, 0);
    kit_put_flush(a, &outside, 0);
    assert_int_equal(count_gone(b, NULL), 0);
    int64_t now_ms = KIT_NOW;
    for (unsigned i = 0; i < 3; i++) { /* it beats late, and is alive */
        now_ms += LIMIT_HOLDER_GONE_MS - 1000;
        kit_set_time(now_ms);
        assert_int_equal(count_gone(b, NULL), 0);
        assert_int_equal(a->ops->beat(a, incarnation, &err), OK);
    }
    kit_set_time(now_ms + LIMIT_HOLDER_GONE_MS - 1000);
    assert_int_equal(count_gone(b, NULL), 0);
    kit_set_time(now_ms + LIMIT_HOLDER_GONE_MS + 1000);
    struct store_due due = {.fence = 0};
    assert_int_equal(count_gone(b, &due), 1);
    assert_true(op_id_equal(&due.operation_id, &record.operation_id));
    assert_int_equal(due.fence, record.fence);
    assert_int_equal(count_gone(a, NULL), 0); /* never its own */
    assert_int_equal(a->ops->beat(a, incarnation, &err), OK);
    assert_int_equal(count_gone(b, NULL), 0); /* it was only slow */
    close_handle(b);
}

static void a_holder_whose_handle_was_closed_is_gone_at_once(void **state)
{
    struct fixture *fixture = *state;
    struct store *b = subject_open(fixture);
    struct err err = {0};
    uint64_t incarnation = kit_fences(b, 1);
    assert_int_equal(b->ops->beat(b, incarnation, &err), OK);
    struct record record = kit_record(1, kit_fences(b, 1));
    record.holder = incarnation;
    kit_put_flush(b, &record, 0);
    assert_int_equal(count_gone(fixture->store, NULL), 0);
    close_handle(b);
    assert_int_equal(count_gone(fixture->store, NULL), 1);
}

/* ---- dues ---------------------------------------------------------------------------------- */

/* A due is made for the time of its prepare. The cursor of a different process must not have
 * passed that when the commit comes. */
static void a_due_whose_commit_came_late_is_not_passed_by(void **state)
{
    struct fixture *fixture = *state;
    struct store *b = subject_open(fixture);
    struct store_due_cursor cursor = {0};
    struct store_due_filter filter = {.kinds = STORE_OPERATIONS,
        .reasons = STORE_DUE(RECORD_DUE_RECONCILE_AGAIN),
        .cursor = &cursor};
    struct record records[2];
    struct err err = {0};
    for (unsigned i = 0; i < 2; i++) {
        records[i] = kit_record(i + 1, i + 1);
        records[i].status = RECORD_UNKNOWN;
        records[i].lease_expires_ms = 0;
        records[i].door = RECORD_DOOR_GATEWAY;
        records[i].due_ms = KIT_NOW + 1000 * (1 + i);
    }
    kit_set_time(KIT_NOW + 1000);
    prepare_nothing(fixture->store);
    kit_set_time(KIT_NOW + 2000);
    kit_put_flush(b, &records[1], 0);
    unsigned given[2] = {0};
    for (int64_t late_ms = 0; late_ms < 30000; late_ms += 1000) {
        struct store_due dues[4];
        size_t count = 9;
        kit_set_time(KIT_NOW + 2000 + late_ms);
        if (late_ms == LIMIT_PREPARED_MS_MAX - 2000) {
            struct change change = put_change(fixture->store, &records[0], 0);
            struct commit commit = {.changes = &change, .count = 1};
            assert_int_equal(fixture->store->ops->commit(fixture->store, &commit, &err), OK);
        }
        assert_int_equal(b->ops->due(b, &filter, dues, 4, &count, &err), OK);
        for (size_t i = 0; i < count; i++) {
            for (unsigned j = 0; j < 2; j++) {
                given[j] += op_id_equal(&dues[i].operation_id, &records[j].operation_id);
            }
        }
    }
    assert_int_equal(given[0], 1);
    assert_int_equal(given[1], 1);
    close_handle(b);
}

/* ---- notices (S13) ------------------------------------------------------------------------- */

enum { NOTICES_TRIED = 30 };

struct heard {
    pthread_mutex_t lock;
    struct digest last;
    unsigned count;
};

static void hear(void *context, const struct digest *key_hash)
{
    struct heard *heard = context;
    (void)pthread_mutex_lock(&heard->lock);
    heard->last = *key_hash;
    heard->count++;
    (void)pthread_mutex_unlock(&heard->lock);
}

/* How many there were, at the latest a second later, when that is not enough. */
static unsigned wait_heard(struct heard *heard, unsigned enough)
{
    unsigned count = 0;
    for (unsigned i = 0; i < 1000; i++) {
        (void)pthread_mutex_lock(&heard->lock);
        count = heard->count;
        (void)pthread_mutex_unlock(&heard->lock);
        if (count >= enough) {
            break;
        }
        (void)usleep(1000);
    }
    return count;
}

static void a_settled_record_is_announced_to_the_others(void **state)
{
    struct fixture *fixture = *state;
    struct store *a = fixture->store;
    struct store *b = subject_open(fixture);
    struct heard heard = {.lock = PTHREAD_MUTEX_INITIALIZER};
    b->ops->listen(b, hear, &heard);
    /* Listening begins by itself, some time after listen: a record that is settled before is not
     * announced. */
    struct digest told[NOTICES_TRIED];
    unsigned count = 0;
    do {
        struct record record = kit_record(count + 1, count + 1);
        kit_put_flush(a, &record, 0);
        struct record sealed = kit_sealed(&record, KIT_NOW + 86400000);
        kit_put_flush(a, &sealed, 1);
        told[count++] = record.key.hash;
    } while (wait_heard(&heard, 1) < 1 && count < NOTICES_TRIED);
    assert_true(wait_heard(&heard, 1) >= 1);
    bool is_ours = false;
    (void)pthread_mutex_lock(&heard.lock);
    for (unsigned i = 0; i < count; i++) {
        is_ours = is_ours || digest_equal(&heard.last, &told[i]);
    }
    (void)pthread_mutex_unlock(&heard.lock);
    assert_true(is_ours);
    close_handle(b);
    unsigned before = heard.count;
    struct record other = kit_record(NOTICES_TRIED + 1, NOTICES_TRIED + 1);
    other.status = RECORD_UNKNOWN;
    other.lease_expires_ms = 0;
    kit_put_flush(a, &other, 0);
    (void)usleep(50000);
    assert_int_equal(heard.count, before); /* it was closed */
}

int main(void)
{
    int failed = 0;
    for (size_t i = 0; i < subjects_count; i++) {
        if (!subjects[i].shared || !subject_runs(&subjects[i])) {
            continue;
        }
        struct CMUnitTest tests[] = {
            ON_SUBJECT(what_one_handle_commits_every_other_one_sees),
            ON_SUBJECT(each_opening_has_a_chain_of_its_own_and_all_share_the_secrets),
            ON_SUBJECT(of_two_that_change_the_same_version_one_is_stale),
            ON_SUBJECT(fences_come_from_one_counter),
            ON_SUBJECT(time_is_the_same_for_all_handles),
            ON_SUBJECT(a_commit_long_after_its_prepare_fails),
            ON_SUBJECT(an_entry_alone_does_not_follow_the_change_of_its_record),
            ON_SUBJECT(versions_and_entries_hold_when_many_write_at_once),
            ON_SUBJECT(a_cursor_misses_nothing_when_commits_interleave),
            ON_SUBJECT(a_cursor_from_before_all_evidence_misses_no_chain),
            ON_SUBJECT(every_chain_is_known_with_its_public_key),
            ON_SUBJECT(a_holder_is_gone_when_its_heart_stops_and_not_before),
            ON_SUBJECT(a_holder_whose_handle_was_closed_is_gone_at_once),
            ON_SUBJECT(a_due_whose_commit_came_late_is_not_passed_by),
            ON_SUBJECT(a_settled_record_is_announced_to_the_others),
        };
        for (size_t j = 0; j < sizeof tests / sizeof *tests; j++) {
            tests[j].initial_state = (void *)(uintptr_t)&subjects[i];
        }
        failed += _cmocka_run_group_tests(
            subjects[i].name, tests, sizeof tests / sizeof *tests, NULL, NULL);
    }
    return failed;
}
