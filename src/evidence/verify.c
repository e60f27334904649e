/*
 * This file is past 800 lines because every item of a change is checked against the others in one
 * pass.
 */
#include "evidence/verify.h"

#include <stdio.h>

#include "base/check.h"
#include "base/text.h"
#include "core/lane.h"
#include "core/source.h"
#include "evidence/checkpoint.h"
#include "evidence/entry_view.h"
#include "evidence/redecide.h"
#include "evidence/verify_shared.h"
#include "store/replay.h"

enum {
    CHANGE_ARENA_BYTES_MAX = 4 << 20, /* one record and one entry at their limits, and its tree */
    ENTRY_CANONICAL_BYTES_MAX = 1 << 20,
    PROGRESS_EVERY_BYTES = 64 << 10, /* a millisecond or so */
};

/* A body of the current change. */
struct body_seen {
    bool there;
    struct digest digest;
    uint64_t bytes;
};

/* The items of one change, until the entry that closes it. */
struct pending {
    struct body_seen request;
    struct body_seen outcome;
    bool put;
    struct record record; /* in the arena */
    bool sourced;
    struct record source; /* the record of the operation's source; in the arena */
    bool touched;
    struct digest touch; /* the key hash */
};

struct verify {
    const struct verify_options *options;
    const struct mem *mem;
    struct verify_result result;
    struct checkpoint_key key; /* the key that notes must be signed with, if key_known */
    bool key_known;
    struct checkpoint outside; /* a checkpoint kept elsewhere, if outside_given */
    bool outside_given;
    struct arena arena; /* of one change */
    struct buf scratch; /* the canonical form of one entry */
    struct redecide redecide;
    struct pending pending;
    uint64_t part;             /* the last one that began; 0: none yet */
    uint64_t batch;            /* the last one that began */
    uint64_t batch_fence;      /* the highest given out, according to the current batch */
    uint64_t seq;              /* of the last entry */
    struct digest hash;        /* its hash */
    uint64_t fence;            /* of the last grant */
    int64_t time_ms;           /* of the last entry */
    struct digest anchor_hash; /* of the last entry before those that are kept … */
    uint64_t anchor_seq;       /* … and its number; 0: nothing is missing */
    bool is_anchor_recorded;   /* an entry says that everything up to it was archived */
    bool squeezed;             /* the current part is squeezed */
    bool inherits;             /* there are chains besides this one */
    bool lost;                 /* after damage: the next item need not continue */
    bool is_damaged;           /* there is damage in the parts so far */
    uint64_t progress_bytes;   /* at the last report */
    enum status status;        /* why we stopped the stream; OK: we did not */
    struct err err;            /* the same in words */
};

/* The place of a damage. */
struct spot {
    uint64_t segment;
    uint64_t offset;
    uint64_t seq;
    const struct op_id *operation_id; /* NULL: not known */
};

static void damage(struct verify *verify, const struct spot *spot, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

void verify_damage_put(struct verify_result *result, const struct verify_damage *place,
    const char *format, va_list args)
{
    if (result->damage_count < VERIFY_DAMAGES_MAX) {
        struct verify_damage *damage = &result->damages[result->damage_count];
        *damage = *place;
        (void)vsnprintf(damage->what, sizeof damage->what, format, args);
    }
    result->damage_count++;
}

static void damage(struct verify *verify, const struct spot *spot, const char *format, ...)
{
    struct verify_damage place = {
        .segment = spot->segment, .offset = spot->offset, .seq = spot->seq};
    va_list args;
    if (spot->operation_id != NULL) {
        place.operation_id = *spot->operation_id;
    }
    va_start(args, format);
    verify_damage_put(&verify->result, &place, format, args);
    va_end(args);
    verify->is_damaged = verify->is_damaged || spot->segment != 0;
}

static struct spot spot_of(const struct replay_item *item)
{
    return (struct spot){.segment = item->part, .offset = item->offset};
}

static bool stop(struct verify *verify, enum status status)
{
    ASSERT(status != OK);
    verify->status = status;
    return false;
}

static void change_clear(struct verify *verify)
{
    verify->pending = (struct pending){0};
    arena_clear(&verify->arena);
}

/* ---- parts and batches -------------------------------------------------------------------- */

/* Starts the chain at the first kept part: everything before was archived, or did not exist. */
static void anchor(struct verify *verify, const struct replay_item *item)
{
    ASSERT(verify->part == 0); /* later parts continue from the first */
    ASSERT(item->part_known);
    verify->seq = item->seq_before;
    verify->hash = item->hash_before;
    verify->batch = item->batch - 1;
    verify->anchor_seq = item->seq_before;
    verify->anchor_hash = item->hash_before;
    verify->result.first_seq = item->seq_before + 1;
    verify->result.good_seq = item->seq_before;
    verify->result.good_batch = item->batch - 1;
    if (item->seq_before > 0) {
        redecide_gap(&verify->redecide, item->seq_before);
    }
    const struct checkpoint *outside = &verify->outside;
    if (verify->outside_given && outside->seq == item->seq_before) {
        verify->result.outside_compared = true;
        if (!digest_equal(&outside->hash, &item->hash_before)) {
            damage(verify, &(struct spot){.seq = item->seq_before},
                "the external checkpoint has a different hash for entry %llu",
                (unsigned long long)item->seq_before);
        }
    }
}

/* The store checks that it follows the part before it and belongs to this store. */
static void on_part(struct verify *verify, const struct replay_item *item)
{
    verify->result.segments++;
    if (!item->part_known) {
        verify->lost = true; /* the store reports that damage itself */
    } else {
        verify->squeezed = item->squeezed;
        verify->result.squeezed += item->squeezed;
        if (verify->part == 0) {
            anchor(verify, item);
        }
    }
    verify->part = item->part;
}

/* An entry closes its change, so no change may be open between batches. */
static void close_batch(struct verify *verify, const struct replay_item *item)
{
    const struct pending *pending = &verify->pending;
    if (pending->put || pending->touched || pending->sourced || pending->request.there ||
        pending->outcome.there) {
        struct spot spot = spot_of(item);
        spot.operation_id = pending->put ? &pending->record.operation_id : NULL;
        damage(verify, &spot, "a change in the batch before has no entry");
    }
    change_clear(verify);
    if (!verify->is_damaged) {
        verify->result.good_batch = verify->batch;
    }
}

/* The store checks that its number and fence continue from the batch before. */
static void on_batch(struct verify *verify, const struct replay_item *item)
{
    struct spot spot = spot_of(item);
    close_batch(verify, item);
    verify->result.batches++;
    if (item->time_ms < verify->time_ms) {
        damage(verify, &spot, "the batch's time goes back"); /* P8 */
    }
    verify->batch = item->batch;
    verify->batch_fence = item->fence;
}

/* ---- a change ----------------------------------------------------------------------------- */

static void on_body(
    struct verify *verify, const struct replay_item *item, struct body_seen *ret_seen)
{
    struct spot spot = spot_of(item);
    struct body_seen seen = {.there = true, .digest = item->digest, .bytes = item->body.len};
    struct digest digest;
    verify->result.bodies++;
    if (ret_seen->there) {
        damage(verify, &spot, "a body without its digest, or one too many");
        return;
    }
    digest_sha256(item->body.data, item->body.len, &digest);
    if (!item->erased && !digest_equal(&digest, &seen.digest)) {
        damage(verify, &spot, "a body of length %llu does not have its digest",
            (unsigned long long)seen.bytes);
    }
    *ret_seen = seen;
}

/* A body that came with the change must be the record's. */
static void check_body(struct verify *verify, const struct spot *spot, const char *name,
    const struct body_seen *seen, const struct body_ref *body)
{
    if (seen->there && (!body->retained || body->bytes != seen->bytes ||
                           !digest_equal(&body->digest, &seen->digest))) {
        damage(verify, spot, "the %s stored with the record is not the one it names", name);
    }
}

/* Checks a record by itself and copies it into the arena. */
static enum status read_record(
    struct verify *verify, const struct replay_item *item, struct record *ret_record)
{
    const struct record *record = item->record;
    struct record_key key = record->key;
    struct err err = {0};
    struct spot spot = spot_of(item);
    spot.operation_id = &record->operation_id;
    verify->result.records++;
    if (record_key_seal_as(&key, record->kind, &err) != OK ||
        !digest_equal(&key.hash, &record->key.hash)) {
        damage(verify, &spot, "the record's key does not have its hash");
    }
    if (record->fence > verify->batch_fence) {
        damage(verify, &spot, "the record has fence %llu, and %llu is the highest given out",
            (unsigned long long)record->fence, (unsigned long long)verify->batch_fence); /* P4 */
    }
    check_body(verify, &spot, "request", &verify->pending.request, &record->request);
    check_body(verify, &spot, "outcome", &verify->pending.outcome, &record->outcome.body);
    enum status status = record_copy(record, &verify->arena, ret_record);
    return status == OK ? OK : err_set(&verify->err, status, "out of memory for a record");
}

static enum status on_record(struct verify *verify, const struct replay_item *item)
{
    struct spot spot = spot_of(item);
    struct pending *pending = &verify->pending;
    ASSERT(item->record != NULL);
    bool source = item->record->kind == RECORD_SOURCE;
    if (pending->put || pending->touched || (source && pending->sourced)) {
        damage(verify, &spot, "two records in one change");
    }
    enum status status = read_record(verify, item, source ? &pending->source : &pending->record);
    pending->sourced = pending->sourced || (source && status == OK);
    pending->put = pending->put || (!source && status == OK);
    return status;
}

/* A record that was written again so that its segment can be squeezed: no decision, no entry. */
static enum status on_moved(struct verify *verify, const struct replay_item *item)
{
    struct record record;
    struct spot spot = spot_of(item);
    ASSERT(item->record != NULL);
    if (verify->pending.put || verify->pending.touched || verify->pending.sourced) {
        damage(verify, &spot, "two records in one change");
    }
    enum status status = read_record(verify, item, &record);
    change_clear(verify);
    return status;
}

static void on_touch(struct verify *verify, const struct replay_item *item)
{
    struct spot spot = spot_of(item);
    struct pending *pending = &verify->pending;
    if (pending->put || pending->touched) {
        damage(verify, &spot, "a duplicate is counted without a key, or twice");
        return;
    }
    pending->touched = true;
    pending->touch = item->digest;
}

/* ---- entries ------------------------------------------------------------------------------ */

/* Checks seq, previous hash and hash. Continues from the entry's own values. */
static void check_chain(struct verify *verify, const struct spot *spot, const struct entry *entry)
{
    struct digest hash;
    entry_link(&verify->hash, entry, &hash);
    if (verify->lost && entry->seq > verify->seq + 1) {
        /* The entry it is chained to is part of damage that was already reported. */
        redecide_gap(&verify->redecide, entry->seq - 1);
    } else if (entry->seq != verify->seq + 1) {
        damage(verify, spot, "entry %llu stands where %llu belongs", (unsigned long long)entry->seq,
            (unsigned long long)verify->seq + 1); /* P10 */
        redecide_gap(&verify->redecide, verify->seq);
    } else if (!digest_equal(&hash, &entry->hash)) {
        damage(verify, spot, "the chain is broken at entry %llu", (unsigned long long)entry->seq);
    }
    verify->lost = false;
    verify->result.first_seq =
        verify->result.first_seq == 0 ? entry->seq : verify->result.first_seq;
    verify->seq = entry->seq;
    verify->hash = entry->hash;
}

static void check_outside(struct verify *verify, const struct spot *spot)
{
    if (!verify->outside_given || verify->outside.seq != verify->seq) {
        return;
    }
    verify->result.outside_compared = true;
    if (!digest_equal(&verify->outside.hash, &verify->hash)) {
        damage(verify, spot, "the external checkpoint has a different hash for entry %llu",
            (unsigned long long)verify->seq);
        /* Somebody wrote a different, valid history: how far back it goes is not known. */
        verify->result.good_seq = 0;
        verify->result.good_batch = 0;
    }
}

/* Compares the frame with the JSON. */
static void check_frame(struct verify *verify, const struct spot *spot, const struct entry *entry,
    const struct entry_view *view)
{
    if (view->seq != entry->seq) {
        damage(verify, spot, "the entry says seq %llu, its frame %llu",
            (unsigned long long)view->seq, (unsigned long long)entry->seq);
    }
    if (!slice_is(view->chain_id, verify->result.chain_id)) {
        damage(verify, spot, "the entry belongs to a different chain, %.*s",
            SLICE_ARGS(view->chain_id));
    }
    if (!op_id_equal(&view->operation_id, &entry->operation_id)) {
        damage(verify, spot, "the entry and its frame name different operations");
    }
    if (view->decides && view->moment.now_ms != entry->time_ms) {
        damage(verify, spot, "the entry's time is not the one its frame says");
    }
    if (entry->time_ms < verify->time_ms) {
        damage(verify, spot, "time goes back by %lld ms",
            (long long)(verify->time_ms - entry->time_ms)); /* P8 */
    }
    verify->time_ms = entry->time_ms;
}

/* Every grant has a greater fence than the one before (P4). */
static void check_grant(
    struct verify *verify, const struct spot *spot, const struct entry_view *view)
{
    ASSERT(view->decides);
    if (!slice_is(view->decision, decision_name(DECISION_FIRST_SEEN))) {
        return;
    }
    if (view->fence <= verify->fence || view->fence > verify->batch_fence) {
        damage(verify, spot, "fence %llu is granted after %llu, and %llu is the highest given out",
            (unsigned long long)view->fence, (unsigned long long)verify->fence,
            (unsigned long long)verify->batch_fence);
    }
    verify->fence = view->fence > verify->fence ? view->fence : verify->fence;
}

/* Compares the outcome of a seal or resolve with the record and the body stored with it. */
static void check_settled(
    struct verify *verify, const struct spot *spot, const struct entry_view *view)
{
    const struct pending *pending = &verify->pending;
    const struct outcome *stated = &view->request.outcome;
    const struct outcome *stored = &pending->record.outcome;
    struct digest meta;
    ASSERT(pending->put);
    ASSERT(request_settles(&view->request));
    if (!record_status_sealed(pending->record.status)) {
        return; /* resolved as not executed: there is no outcome */
    }
    digest_sha256(stored->meta.data, stored->meta.len, &meta);
    if (stated->code != stored->code || stated->body.bytes != stored->body.bytes ||
        !digest_equal(&stated->body.digest, &stored->body.digest) ||
        (stated->meta.len > 0) != (stored->meta.len > 0) ||
        (stated->meta.len > 0 && memcmp(stated->meta.data, meta.bytes, sizeof meta.bytes) != 0)) {
        damage(verify, spot, "the record does not have the outcome that the entry says");
    }
    if (stated->body.retained && stated->body.bytes > 0 && !pending->outcome.there) {
        damage(verify, spot, "the outcome's bytes are missing");
    }
}

/* Whether the entry must have the record's fence: it was granted, or the holder presented it. The
 * janitor, an operator, and a request that gives up work that nobody holds present no fence. */
static bool shows_fence(const struct entry_view *view)
{
    enum request_kind kind = view->request.kind;
    return view->fence != 0 || request_takes_fence(&view->request) || kind == REQUEST_SEAL ||
           kind == REQUEST_RELEASE || kind == REQUEST_UNKNOWN || kind == REQUEST_RENEW ||
           kind == REQUEST_RETRY || kind == REQUEST_WAIT;
}

/* The request brought the bytes of its body. */
static bool brings_request(const struct entry_view *view, const struct record *record)
{
    bool begun = view->request.kind == REQUEST_BEGIN && record->attempt == 1 &&
                 record->status == RECORD_IN_PROGRESS;
    return (begun || slice_is(view->decision, "enqueued")) && record->request.retained &&
           record->request.bytes > 0;
}

/* Compares the record stored with an entry with the entry. */
static void check_put(struct verify *verify, const struct spot *spot, const struct entry_view *view)
{
    const struct record *record = &verify->pending.record;
    bool by_key = request_by_key(view->request.kind);
    ASSERT(verify->pending.put);
    if (!view->decides || !view->keyed ||
        !digest_equal(&view->request.key.hash, &record->key.hash) ||
        !op_id_equal(&view->operation_id, &record->operation_id)) {
        damage(verify, spot, "the record stored with the entry belongs to a different operation");
        return;
    }
    if (!slice_is(view->lifecycle_state, record_status_name(record->status)) ||
        (shows_fence(view) && view->fence != record->fence) || view->attempt != record->attempt ||
        (view->request.kind != REQUEST_POSTPONE && view->moment.now_ms != record->updated_ms) ||
        (view->versioned && view->version + 1 != record->version) ||
        !entry_view_has_ref(view, record->effect_id)) {
        damage(verify, spot, "the record stored with the entry does not match the entry");
    }
    if (!entry_view_has_names(view, record, &verify->scratch)) {
        damage(verify, spot, "the entry names an effect or a command that is not its record's");
    }
    if (by_key && (view->request.fingerprint_version != record->fingerprint_version ||
                      !digest_equal(&view->request.fingerprint, &record->fingerprint))) {
        damage(verify, spot, "the record does not have the fingerprint that the entry says");
    }
    if (brings_request(view, record) && !verify->pending.request.there) {
        damage(verify, spot, "the request's bytes are missing");
    }
    /* N8: it was settled before and keeps that outcome. */
    if (request_settles(&view->request) && !slice_is(view->rule, "N8")) {
        check_settled(verify, spot, view);
    }
}

/* Compares a source's record with the operation that was sealed with it (R7). */
static void check_source(
    struct verify *verify, const struct spot *spot, const struct entry_view *view)
{
    const struct pending *pending = &verify->pending;
    const struct record *source = &pending->source;
    const struct record *sealed = &pending->record;
    struct record_key key;
    struct err err = {0};
    ASSERT(pending->sourced);
    bool joins = slice_is(view->decision, "enqueued") || view->request.kind == REQUEST_WAKE;
    if (pending->put && lane_kind(sealed->kind) && joins) {
        if (!lane_ends_with(source, sealed)) {
            damage(verify, spot, "the lane stored with the entry is a different record's");
        }
        return;
    }
    if (!pending->put || !view->keyed || !record_status_sealed(sealed->status) ||
        source_key_seal(&sealed->key, &sealed->source, &key, &err) != OK ||
        !digest_equal(&key.hash, &source->key.hash)) {
        damage(verify, spot, "the source stored with the entry belongs to a different operation");
        return;
    }
    if (!source_equal(&source->source, &sealed->source) ||
        !source_equal(&view->source, &sealed->source) || source->fence != sealed->fence ||
        !op_id_equal(&source->operation_id, &sealed->operation_id) ||
        source->sealed_ms != sealed->sealed_ms ||
        source->window_expires_ms != sealed->window_expires_ms ||
        !slice_equal(view->moment.version_sealed, source->source.version)) {
        damage(verify, spot, "the source stored with the entry does not match the entry");
    }
}

static void check_change(
    struct verify *verify, const struct spot *spot, const struct entry_view *view)
{
    const struct pending *pending = &verify->pending;
    if (pending->sourced) {
        check_source(verify, spot, view);
    }
    if (pending->put) {
        check_put(verify, spot, view);
    } else if (pending->request.there || pending->outcome.there) {
        damage(verify, spot, "a body is stored without a record that names it");
    }
    if (pending->touched &&
        (!view->keyed || !digest_equal(&view->request.key.hash, &pending->touch))) {
        damage(verify, spot, "a duplicate is counted for a key other than the entry's");
    }
    bool grant = view->decides &&
                 (slice_is(view->decision, "first_seen") || slice_is(view->decision, "claimed"));
    if (grant && !pending->put && !verify->squeezed) {
        damage(verify, spot, "the record of a grant is missing");
    }
}

static enum status run_redecide(
    struct verify *verify, const struct spot *spot, const struct entry_view *view)
{
    const struct pending *pending = &verify->pending;
    struct redecide_stored stored = {.squeezed = verify->squeezed,
        .record = pending->put ? &pending->record : NULL,
        .touch = pending->touched ? &pending->touch : NULL,
        .source = pending->sourced ? &pending->source : NULL};
    struct err err = {0};
    ASSERT(stored.record == NULL || stored.record->kind != RECORD_SOURCE);
    ASSERT(stored.source == NULL || stored.source->kind == RECORD_SOURCE);
    enum status status = redecide_entry(&verify->redecide, view, &stored, &err);
    if (status == E_CORRUPT) {
        damage(verify, spot, "%s", err.text);
        return OK;
    }
    verify->err = status == OK ? verify->err : err;
    return status;
}

/* Entries missing at the start must have been archived, and a later entry must say so. */
static void check_archived(struct verify *verify, const struct entry_view *view)
{
    if (view->archives && view->archived_seq == verify->anchor_seq &&
        digest_equal(&view->archived_hash, &verify->anchor_hash)) {
        verify->is_anchor_recorded = true;
    }
}

static enum status on_evidence(
    struct verify *verify, const struct replay_item *item, const struct entry *entry)
{
    ASSERT(entry->kind == ENTRY_EVIDENCE);
    struct spot spot = spot_of(item);
    struct entry_view view;
    struct err err = {0};
    spot.seq = entry->seq;
    spot.operation_id = &entry->operation_id;
    verify->result.entries++;
    check_chain(verify, &spot, entry);
    check_outside(verify, &spot);
    enum status status = entry_view_read(entry, &verify->arena, &verify->scratch, &view, &err);
    if (status == E_CORRUPT) {
        damage(verify, &spot, "%s", err.text);
        redecide_gap(&verify->redecide, entry->seq);
        status = OK;
    } else if (status == OK) {
        check_frame(verify, &spot, entry, &view);
        if (item->tenant_known && !slice_equal(view.request.key.tenant, entry->tenant)) {
            damage(verify, &spot, "the entry is of a different tenant than its frame says");
        }
        check_change(verify, &spot, &view);
        check_archived(verify, &view);
        if (view.decides) {
            check_grant(verify, &spot, &view);
        }
        /* Decisions that depend on other chains are made again with all chains together. */
        bool alone = verify->options->redecide && !verify->inherits;
        status = alone ? run_redecide(verify, &spot, &view) : OK;
    } else {
        verify->err = err;
    }
    change_clear(verify);
    if (!verify->is_damaged) {
        verify->result.good_seq = entry->seq;
    }
    return status;
}

static enum status on_checkpoint(
    struct verify *verify, const struct replay_item *item, const struct entry *entry)
{
    ASSERT(entry->kind == ENTRY_CHECKPOINT);
    struct spot spot = spot_of(item);
    static const struct op_id about_none = {{0}};
    struct checkpoint checkpoint;
    struct err err = {0};
    spot.seq = entry->seq;
    verify->result.checkpoints++;
    if (verify->pending.put || verify->pending.touched || verify->pending.request.there ||
        verify->pending.outcome.there) {
        damage(verify, &spot, "a change is closed by a checkpoint instead of an entry");
        change_clear(verify);
    }
    if (!verify->key_known) {
        return OK; /* reported already, with the identity */
    }
    enum status status = checkpoint_verify(entry->bytes, &verify->key, &checkpoint, &err);
    if (status != OK && status != E_INVALID && status != E_CORRUPT) {
        verify->err = err;
        return status;
    }
    if (status != OK) {
        damage(verify, &spot, "%s", err.text);
    } else if (checkpoint.seq != entry->seq || !digest_equal(&checkpoint.hash, &entry->hash) ||
               checkpoint.time_ms != entry->time_ms ||
               !op_id_equal(&entry->operation_id, &about_none)) {
        damage(verify, &spot, "the checkpoint is not the one its frame says");
    } else if (!verify->lost &&
               (checkpoint.seq != verify->seq || !digest_equal(&checkpoint.hash, &verify->hash))) {
        damage(verify, &spot,
            "the checkpoint about entry %llu is not about the chain, at entry %llu",
            (unsigned long long)checkpoint.seq, (unsigned long long)verify->seq);
    } else {
        verify->result.last_checkpoint_seq = checkpoint.seq;
    }
    return OK;
}

static enum status on_entry(struct verify *verify, const struct replay_item *item)
{
    switch (item->entry->kind) {
    case ENTRY_EVIDENCE: return on_evidence(verify, item, item->entry);
    case ENTRY_CHECKPOINT: break;
    }
    return on_checkpoint(verify, item, item->entry);
}

static void on_damage(struct verify *verify, const struct replay_item *item)
{
    struct spot spot = spot_of(item);
    damage(verify, &spot, "%s", item->text);
    if (item->lost) {
        change_clear(verify);
        verify->lost = true;
    }
}

/* ---- trusted keys ------------------------------------------------------------------------- */

/* The store's own public key; if it is unreadable, no note can be checked with it. */
static enum status read_identity(
    struct verify *verify, const struct store_identity *identity, struct err *err)
{
    if (identity == NULL) {
        return OK;
    }
    struct chain chain;
    chain_init(&chain, &(struct store_head){0}, identity);
    memcpy(verify->result.chain_id, chain.chain_id, sizeof chain.chain_id);
    enum status status = checkpoint_key_of(identity, &verify->key, err);
    verify->key_known = status == OK;
    return status;
}

/* Reads the public key for notes, and the checkpoint kept elsewhere. */
static enum status read_trust(
    struct verify *verify, const struct store_identity *identity, struct err *err)
{
    const struct verify_options *options = verify->options;
    enum status status = read_identity(verify, identity, err);
    if (status == OK && options->public_key.len > 0) {
        status = checkpoint_key_read(options->public_key, &verify->key, err);
        verify->key_known = status == OK;
    }
    if (status != OK) {
        return status;
    }
    if (verify->key_known) {
        (void)checkpoint_key_put(verify->result.public_key, &verify->key);
    }
    if (options->checkpoint.len == 0) {
        return OK;
    }
    if (!verify->key_known) {
        return err_set(err, E_UNAVAILABLE,
            "the outside checkpoint cannot be checked: the journal's key is not readable");
    }
    struct err wrong = {0};
    status = checkpoint_verify(options->checkpoint, &verify->key, &verify->outside, &wrong);
    verify->outside_given = status == OK;
    ASSERT(!verify->outside_given || strcmp(verify->outside.chain_id, verify->key.chain_id) == 0);
    if (status == E_CORRUPT) {
        damage(verify, &(struct spot){0}, "against the outside checkpoint: %s", wrong.text);
        return OK;
    }
    return status == OK ? OK : err_set(err, status, "the outside checkpoint is %s", wrong.text);
}

/* ---- the stream --------------------------------------------------------------------------- */

static bool report(struct verify *verify, uint64_t bytes_done, uint64_t bytes_total)
{
    verify->progress_bytes = bytes_done;
    if (verify->options->progress == NULL) {
        return true;
    }
    struct verify_progress progress = {
        .bytes_done = bytes_done, .bytes_total = bytes_total, .entries = verify->result.entries};
    return verify->options->progress(verify->options->context, &progress);
}

static bool visit(void *context, const struct replay_item *item)
{
    struct verify *verify = context;
    enum status status = OK;
    verify->result.bytes = item->bytes_done;
    switch (item->kind) {
    case REPLAY_IDENTITY:
        verify->inherits = item->inherits;
        status = read_trust(verify, item->identity, &verify->err);
        break;
    case REPLAY_PART: on_part(verify, item); break;
    case REPLAY_BATCH: on_batch(verify, item); break;
    case REPLAY_REQUEST: on_body(verify, item, &verify->pending.request); break;
    case REPLAY_OUTCOME: on_body(verify, item, &verify->pending.outcome); break;
    case REPLAY_RECORD: status = on_record(verify, item); break;
    case REPLAY_MOVED: status = on_moved(verify, item); break;
    case REPLAY_TOUCH: on_touch(verify, item); break;
    case REPLAY_ENTRY: status = on_entry(verify, item); break;
    case REPLAY_TAIL: verify->result.torn_tail = true; break;
    case REPLAY_DAMAGE: on_damage(verify, item); break;
    }
    if (status != OK) {
        return stop(verify, status);
    }
    if (item->bytes_done - verify->progress_bytes >= PROGRESS_EVERY_BYTES &&
        !report(verify, item->bytes_done, item->bytes_total)) {
        return stop(
            verify, err_set(&verify->err, E_UNAVAILABLE, "stopped before everything was checked"));
    }
    return true;
}

static void check_end(struct verify *verify)
{
    struct verify_result *result = &verify->result;
    const struct replay_item nowhere = {.part = verify->part};
    ASSERT(verify->status == OK); /* not stopped: this is the end */
    close_batch(verify, &nowhere);
    result->last_seq = verify->seq;
    result->last_hash = verify->hash;
    result->redecided = verify->redecide.redecided;
    result->not_redecidable = verify->redecide.not_redecidable;
    if (verify->anchor_seq > 0 && !verify->is_anchor_recorded) {
        damage(verify, &(struct spot){.seq = verify->anchor_seq},
            "entries 1 to %llu are missing, and no entry says that they were archived",
            (unsigned long long)verify->anchor_seq);
    }
    if (verify->outside_given && verify->outside.seq > verify->seq) {
        damage(verify, &(struct spot){.segment = verify->part, .seq = verify->seq},
            "older than the checkpoint: it ends with entry %llu, the checkpoint covers entry %llu",
            (unsigned long long)verify->seq, (unsigned long long)verify->outside.seq);
    }
}

static enum status run(struct verify *verify, struct err *err)
{
    struct err replay_err = {0};
    struct store_options options = {
        .mem = verify->mem, .io = verify->options->io, .unfinished = verify->options->unfinished};
    enum status status = store_replay(verify->options->url, &options, visit, verify, &replay_err);
    if (status == E_CORRUPT) {
        /* It cannot be replayed at all. That is a finding, not a failure to check. */
        damage(verify, &(struct spot){0}, "%s", replay_err.text);
        status = OK;
    } else if (status != OK) {
        *err = replay_err;
        return status;
    }
    if (verify->status != OK) {
        return err_set(err, verify->status, "%s", verify->err.text);
    }
    check_end(verify);
    (void)report(verify, verify->result.bytes, verify->result.bytes);
    return OK;
}

enum status verify_run(
    const struct verify_options *options, struct verify_result *ret_result, struct err *err)
{
    const struct mem *mem = options->mem == NULL ? &mem_libc : options->mem;
    if (options->url != NULL && store_url_shared(options->url)) {
        return verify_shared_run(options, ret_result, err);
    }
    struct verify *verify = mem_zalloc(mem, 1, sizeof *verify);
    if (verify == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    verify->options = options;
    verify->mem = mem;
    arena_init(&verify->arena, mem, CHANGE_ARENA_BYTES_MAX);
    buf_init(&verify->scratch, mem, ENTRY_CANONICAL_BYTES_MAX);
    redecide_init(&verify->redecide, mem);
    enum status status = run(verify, err);
    if (status == OK && verify->inherits) {
        status = verify_inherited_run(options, &verify->result, err);
    }
    if (status == OK) {
        *ret_result = verify->result;
    }
    redecide_release(&verify->redecide);
    buf_release(&verify->scratch);
    arena_release(&verify->arena);
    mem_free(mem, verify);
    return status;
}
