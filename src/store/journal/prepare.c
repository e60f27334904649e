/*
 * Prepare: loads everything that a batch needs, in one pass over its wants.
 */
#include <string.h>

#include "base/check.h"
#include "core/source.h"
#include "store/journal/impl.h"

/* *ret_durable: the record, and with it its bodies (JF6), is on stable storage. */
static enum status key_read(struct journal *journal, const struct digest *hash, struct arena *arena,
    const struct record **ret_record, bool *ret_durable, struct err *err)
{
    *ret_durable = false;
    const struct slot *slot = index_find(&journal->index, hash);
    if (slot == NULL) {
        return OK;
    }
    const struct record *record = NULL;
    enum status status = record_read_again(journal, slot, arena, &record, err);
    /* 128 equal bits of SHA-256 and a different key: the disk is damaged, not the hash. */
    if (status == OK && memcmp(&record->key.hash, hash, sizeof *hash) != 0) {
        return place_corrupt(slot->place, "the record here has a different key", err);
    }
    *ret_record = status == OK ? record : NULL;
    *ret_durable =
        status == OK && slot->place < atomic_load_explicit(&journal->stable, memory_order_acquire);
    return status;
}

static enum status id_read(struct journal *journal, const struct store_want *want,
    struct arena *arena, const struct record **ret_record, struct err *err)
{
    uint64_t prefix = op_id_prefix(want->id);
    struct slot *slot = index_seek(&journal->index, prefix << 16, 0);
    while (slot != NULL && slot->key_high >> 16 == prefix) {
        const struct record *record = NULL;
        enum status status = record_read(journal, slot, arena, &record, err);
        if (status != OK) {
            return status;
        }
        if (store_kind_in(want->kinds, record->kind) &&
            op_id_equal(&record->operation_id, want->id)) {
            *ret_record = record;
            return OK;
        }
        slot = index_next(&journal->index, slot_part(slot), slot);
    }
    return OK;
}

/* If there is no memory for the body, only the call that wants it fails, not the batch. */
static enum status body_want(enum status status, struct store_want *want)
{
    if (status == E_NOMEM) {
        want->body_status = E_NOMEM;
        return OK;
    }
    return status;
}

/* Loads what belongs to a found record: its source's record, and bodies. */
static enum status want_more(
    struct journal *journal, struct store_want *want, struct store_batch *batch, struct err *err)
{
    const struct record *record = want->record;
    struct want_choice choice = want_choose(want, batch->now_ms);
    enum status status = OK;
    bool is_durable; /* of the source: nobody asks */
    if (want->source && source_ordered(&record->source)) {
        status = source_key_seal(&record->key, &record->source, &want->source_key, err);
        status = status == OK ? key_read(journal, &want->source_key.hash, batch->arena,
                                    &want->source_record, &is_durable, err)
                              : status;
    }
    if (status == OK && choice.outcome) {
        status = body_want(
            body_read_again(journal, &record->outcome.body, want->arena, &want->outcome, err),
            want);
    }
    if (status == OK && choice.request) {
        status =
            body_want(body_read(journal, &record->request, want->arena, &want->request, err), want);
    }
    return status;
}

static enum status want_read(
    struct journal *journal, struct store_want *want, struct store_batch *batch, struct err *err)
{
    enum status status = OK;
    want->record = want->source_record = NULL;
    want->outcome = want->request = SLICE_EMPTY;
    want->body_status = OK;
    want->durable = false;
    if (want->same != NULL) {
        ASSERT(want->same >= batch->wants && want->same < want);
        want->record = want->same->record;
        want->durable = want->same->durable;
    } else if (want->key != NULL) {
        status = key_read(journal, want->key, batch->arena, &want->record, &want->durable, err);
    } else {
        status = id_read(journal, want, batch->arena, &want->record, err);
    }
    return status == OK && want->record != NULL ? want_more(journal, want, batch, err) : status;
}

enum status journal_read(struct store *store, struct store_batch *batch, struct err *err)
{
    struct journal *journal = journal_of(store);
    ASSERT(!journal->prepared);
    /* A reader sees the commits before it was opened, so that is its time too. */
    journal->now = journal->read_only ? journal->head.moment : store_clock_now(&journal->clock);
    batch->now_ms = journal->now.time_ms;
    batch->clock_held = journal->clock.held;
    batch->fence_first = journal->fence + 1;
    batch->counts = counts_of(journal, STORE_KINDS_ASKED);
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->wants[i].key != NULL) {
            index_prefetch(&journal->index, batch->wants[i].key);
        }
    }
    enum status status = journal_failed(journal, err);
    for (size_t i = 0; i < batch->count && status == OK; i++) {
        status = want_read(journal, &batch->wants[i], batch, err);
    }
    return status;
}

enum status journal_prepare(struct store *store, struct store_batch *batch, struct err *err)
{
    struct journal *journal = journal_of(store);
    if (journal->read_only) {
        return err_set(err, E_MISUSE, "the store was opened read-only");
    }
    enum status status = journal_read(store, batch, err);
    if (status == OK) {
        ASSERT(journal->fence < UINT64_MAX - batch->fences); /* P4 */
        journal->fence += batch->fences;
        journal->prepared = true;
    }
    return status;
}

void journal_abort(struct store *store)
{
    struct journal *journal = journal_of(store);
    ASSERT(journal->prepared);
    ASSERT(!journal->read_only);
    journal->prepared = false;
}
