/*
 * Commit encodes changes into the open batch and updates the index; flush writes the batch. This
 * file is past 800 lines because a batch is followed from its first frame to the disk in one place.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "store/journal/impl.h"

/* What a change did to the index, so that a commit that fails halfway can be undone. */
struct journal_undo {
    struct digest hash;
    struct slot old; /* all zero: there was none */
};

enum {
    COMMIT_BYTES_MAX = 128 << 20, /* several bodies at their limit, and no more */
    PASS_TIME_EVERY_MS = 60000,   /* an idle store forgets expired records up to this much later */
};

enum status journal_failed(struct journal *journal, struct err *err)
{
    if (!atomic_load_explicit(&journal->failed, memory_order_acquire)) {
        return OK;
    }
    if (err != NULL) {
        *err = journal->failure;
        err->status = E_UNKNOWN;
        err_prefix(err, "the journal has stopped");
    }
    return E_UNKNOWN;
}

enum status journal_fail(struct journal *journal, const struct err *cause, struct err *err)
{
    if (!atomic_load(&journal->failed)) {
        journal->failure = *cause;
        atomic_store_explicit(&journal->failed, true, memory_order_release);
        (void)pthread_cond_broadcast(&journal->changed);
    }
    (void)journal_failed(journal, err);
    err_hint(err, "restart: what was acknowledged is safe, and the truth is read again");
    return E_UNKNOWN;
}

void buffer_release(struct buffer *buffer, const struct mem *mem)
{
    mem_free(mem, buffer->memory);
    *buffer = (struct buffer){0};
}

static enum status buffer_reserve(struct buffer *buffer, const struct mem *mem, size_t size)
{
    if (size <= buffer->cap) {
        return OK;
    }
    size_t cap = buffer->cap < 64 << 10 ? 64 << 10 : buffer->cap;
    while (cap < size) {
        cap *= 2;
    }
    char *memory = mem_alloc(mem, cap + JOURNAL_BLOCK_BYTES);
    if (memory == NULL) {
        return E_NOMEM;
    }
    size_t skew = (uintptr_t)memory % JOURNAL_BLOCK_BYTES;
    char *data = memory + (skew == 0 ? 0 : JOURNAL_BLOCK_BYTES - skew);
    if (buffer->len > 0) {
        memcpy(data, buffer->data, buffer->len);
    }
    mem_free(mem, buffer->memory);
    buffer->memory = memory;
    buffer->data = data;
    buffer->cap = cap;
    return OK;
}

/* Finishes the bytes of a batch: zeros up to the block, and the header that covers it. */
static size_t buffer_finish(struct buffer *buffer, uint32_t seed)
{
    size_t length = (size_t)block_up(buffer->len);
    ASSERT(length <= buffer->cap);
    memset(buffer->data + buffer->len, 0, length - buffer->len);
    struct batch_header header = {.number = buffer->mark.batch,
        .length = (uint32_t)length,
        .content = (uint32_t)buffer->len,
        .frames = buffer->frames,
        .moment = buffer->after.moment,
        .fence = buffer->after.fence};
    unsigned char *bytes = (unsigned char *)buffer->data;
    header.zero_sectors = batch_zero_sectors(buffer->data, header.content);
    batch_header_encode(&header, seed, place_offset(buffer->mark.place), bytes);
    return length;
}

static struct buffer *buffer_after(struct journal *journal, const struct buffer *buffer)
{
    return &journal->buffers[(buffer - journal->buffers + 1) % JOURNAL_BUFFERS];
}

/* Drops the oldest kept batch. Its memory goes to the batch after the active one, which will need
 * as much: freeing and allocating again would fault in every page again. */
static void recent_drop(struct journal *journal)
{
    ASSERT(journal->recent_count > 0);
    struct buffer *oldest = &journal->buffers[journal->recent_first];
    struct buffer *next = buffer_after(journal, journal->active);
    journal->recent_bytes -= oldest->cap;
    journal->recent_first = (journal->recent_first + 1) % JOURNAL_BUFFERS;
    journal->recent_count--;
    if (next->memory == NULL && oldest->cap <= JOURNAL_BUFFER_BYTES * 2) {
        *next = (struct buffer){.memory = oldest->memory, .data = oldest->data, .cap = oldest->cap};
        *oldest = (struct buffer){0};
    } else {
        buffer_release(oldest, journal->mem);
    }
}

/* The batch in flight is stable: its commits can now be read from the file. It is kept, and older
 * ones are dropped. */
static void flight_done(struct journal *journal, size_t length)
{
    struct buffer *flight = journal->flight;
    journal->flight = NULL;
    journal->snapshot_since += length;
    journal->recent_count++;
    journal->recent_bytes += flight->cap;
    while (journal->recent_bytes > JOURNAL_RECENT_BYTES ||
           journal->recent_count > JOURNAL_BUFFERS - 3) { /* flight, active, and one after it */
        recent_drop(journal);
    }
    const struct buffer *oldest = &journal->buffers[journal->recent_first];
    atomic_store_explicit(&journal->recent_place,
        journal->recent_count > 0 ? oldest->mark.place : atomic_load(&journal->stable),
        memory_order_release);
}

/* The batch in flight has been written, or not. With the mutex. */
static enum status flight_end(struct journal *journal, int failed, struct err *err)
{
    enum status status = OK;
    const struct buffer *buffer = journal->flight;
    size_t length = (size_t)block_up(buffer->len);
    if (failed == 0) {
        journal->stable_mark = journal->flight_after;
        atomic_store_explicit(&journal->stable, journal->flight_after.place, memory_order_release);
    } else {
        struct err cause = {0};
        (void)err_errno(&cause, E_UNKNOWN, -failed,
            "writing batch %" PRIu64 " to segment %" PRIu64 " of '%s'", buffer->mark.batch,
            journal->tail.number, journal->options.path);
        status = journal_fail(journal, &cause, err);
    }
    flight_done(journal, length);
    (void)pthread_cond_broadcast(&journal->changed);
    return status;
}

/* Lands a batch that no thread waits for, if it has been written. With the mutex, which is released
 * meanwhile. */
static enum status flight_land(
    struct journal *journal, bool wait, bool *ret_landed, struct err *err)
{
    ASSERT(journal->flight != NULL && journal->flight_unowned);
    int failed = 0;
    journal->flight_unowned = false; /* this thread has it now */
    (void)pthread_mutex_unlock(&journal->mutex);
    *ret_landed = batch_writer_ended(&journal->writer, wait, &failed);
    (void)pthread_mutex_lock(&journal->mutex);
    if (*ret_landed) {
        return flight_end(journal, failed, err);
    }
    journal->flight_unowned = true;
    (void)pthread_cond_broadcast(&journal->changed); /* a waiting thread may take it */
    return OK;
}

/* Writes the open batch, after the one that is in flight. With `wait` it is on stable storage when
 * this returns OK. Otherwise *ret_landed says whether it is; if not, no thread waits for it, and
 * the next one that needs it lands it. */
static enum status flight_start(
    struct journal *journal, bool wait, bool *ret_landed, struct err *err)
{
    while (journal->flight != NULL) {
        if (journal->flight_unowned) {
            (void)flight_land(journal, true, ret_landed, NULL);
        } else {
            (void)pthread_cond_wait(&journal->changed, &journal->mutex);
        }
    }
    *ret_landed = true;
    enum status status = journal_failed(journal, err);
    struct buffer *buffer = journal->active;
    if (status != OK || buffer->len == 0) {
        return status;
    }
    ASSERT(place_segment(buffer->mark.place) == journal->tail.number);
    size_t length = (size_t)block_up(buffer->len);
    ASSERT(place_offset(buffer->mark.place) + length <= journal->tail.zeroed); /* JF3 */
    journal->flight = buffer;
    journal->active = buffer_after(journal, buffer);
    ASSERT(journal->active->len == 0);
    journal->flight_after = buffer->after;
    journal->flight_after.place = buffer->mark.place + length;
    journal->flight_after.batch = buffer->mark.batch + 1;
    journal->next = journal->flight_after;
    (void)pthread_mutex_unlock(&journal->mutex);

    int failed = 0;
    ASSERT(buffer_finish(buffer, journal->tail.seed) == length);
    batch_writer_begin(&journal->writer, !wait, journal->tail.fd_batch, buffer->data, length,
        place_offset(buffer->mark.place));
    *ret_landed = batch_writer_ended(&journal->writer, wait, &failed);

    (void)pthread_mutex_lock(&journal->mutex);
    if (*ret_landed) {
        return flight_end(journal, failed, err);
    }
    journal->flight_unowned = true;
    (void)pthread_cond_broadcast(&journal->changed);
    return OK;
}

enum status flush_locked(struct journal *journal, struct err *err)
{
    bool landed;
    return flight_start(journal, true, &landed, err);
}

/* Flushes everything. Without `wait` the last batch may still be in flight. */
static enum status flush_with(struct journal *journal, bool wait, bool *ret_landed, struct err *err)
{
    if (journal->read_only) {
        return err_set(err, E_MISUSE, "the store was opened read-only");
    }
    if (journal->inherited.pending.len > 0) { /* before the records that depend on it */
        enum status status = inherited_flush(journal, err);
        if (status != OK) {
            return status;
        }
    }
    (void)pthread_mutex_lock(&journal->mutex);
    enum status status = flight_start(journal, wait, ret_landed, err);
    (void)pthread_mutex_unlock(&journal->mutex);
    return status;
}

enum status journal_flush(struct store *store, struct err *err)
{
    bool landed;
    return flush_with(journal_of(store), true, &landed, err);
}

static enum status journal_flush_start(struct store *store, bool *ret_landed, struct err *err)
{
    return flush_with(journal_of(store), false, ret_landed, err);
}

static enum status journal_flush_land(struct store *store, bool *ret_landed, struct err *err)
{
    struct journal *journal = journal_of(store);
    (void)pthread_mutex_lock(&journal->mutex);
    enum status status = OK;
    bool landed = journal->flight == NULL;
    if (!landed && journal->flight_unowned) {
        status = flight_land(journal, false, &landed, err);
    }
    if (status == OK && landed) {
        status = journal_failed(journal, err); /* a different thread may have landed it */
    }
    (void)pthread_mutex_unlock(&journal->mutex);
    *ret_landed = landed;
    return status;
}

static int journal_flush_event(struct store *store)
{
    struct journal *journal = journal_of(store);
    (void)pthread_mutex_lock(&journal->mutex);
    bool waits = journal->flight != NULL && journal->flight_unowned;
    int fd = waits ? batch_writer_event(&journal->writer) : -1;
    (void)pthread_mutex_unlock(&journal->mutex);
    return fd;
}

const struct store_flight journal_flight = {
    .start = journal_flush_start,
    .land = journal_flush_land,
    .event = journal_flush_event,
};

/* A body in a different segment is written again, so that it is in its record's segment (JF6). */
static bool body_moves(const struct body_ref *body, struct slice bytes, uint64_t segment)
{
    return bytes.len == 0 && body->retained && body->bytes > 0 &&
           place_segment(body->place) != segment;
}

static uint64_t body_bound(const struct body_ref *body, struct slice bytes, uint64_t segment)
{
    return FRAME_HEADER_BYTES + sizeof body->digest.bytes +
           (body_moves(body, bytes, segment) ? body->bytes : bytes.len);
}

/* An upper bound of the bytes that the change takes in that segment, including frame headers. */
static uint64_t change_bound(const struct change *change, uint64_t segment)
{
    uint64_t bound = 2 * FRAME_HEADER_BYTES + ENTRY_LEAD_BYTES_MAX + change->entry.bytes.len +
                     sizeof(struct digest);
    if (change->kind == CHANGE_PUT) {
        const struct record *record = change->record;
        bound += record_bytes_max(record) +
                 body_bound(&record->request, change->request_body, segment) +
                 body_bound(&record->outcome.body, change->outcome_body, segment);
    }
    return bound;
}

static enum status commit_bytes(
    const struct commit *commit, uint64_t segment, size_t *ret_bytes, struct err *err)
{
    size_t bytes = 0;
    for (size_t i = 0; i < commit->count; i++) {
        uint64_t bound = change_bound(&commit->changes[i], segment);
        if (bound > COMMIT_BYTES_MAX - bytes) {
            return err_limit(err, ERR_LIMIT_COMMIT_BYTES,
                "the commit is larger than commit_bytes_max (%d)", COMMIT_BYTES_MAX);
        }
        bytes += (size_t)bound;
    }
    *ret_bytes = bytes;
    return OK;
}

/* Rolls to the next segment, with room for the whole commit and for all bodies that move. */
static enum status room_roll(struct journal *journal, const struct commit *commit, struct err *err)
{
    size_t bytes = 0;
    enum status status = flush_locked(journal, err); /* waits for the one in flight */
    if (status == OK) {
        status = commit_bytes(commit, 0, &bytes, err);
    }
    return status == OK ? segment_roll(journal, block_up(BATCH_HEADER_BYTES + bytes), err) : status;
}

/*
 * Makes sure that the commit fits into the open batch: its memory, the segment, and zeros in the
 * file. Flushes and rolls to the next segment if necessary.
 */
static enum status room_make(struct journal *journal, const struct commit *commit, struct err *err)
{
    for (;;) {
        size_t bytes = 0;
        enum status status = journal_failed(journal, err);
        if (status == OK) {
            status = commit_bytes(commit, journal->tail.number, &bytes, err);
        }
        if (status != OK) {
            return status;
        }
        struct buffer *active = journal->active;
        size_t len = active->len == 0 ? BATCH_HEADER_BYTES : active->len;
        uint64_t end = place_offset(journal->next.place) + block_up(len + bytes);
        bool full = len + bytes > JOURNAL_BUFFER_BYTES || end > journal->tail.size;
        if (active->len > 0 && full) {
            status = flush_locked(journal, err);
        } else if (end > journal->tail.size) {
            status = room_roll(journal, commit, err);
        } else if (end > journal->tail.zeroed) {
            status = segment_grow(journal, end, err);
        } else {
            status = buffer_reserve(active, journal->mem, (size_t)block_up(len + bytes));
            return status == OK ? OK : err_set(err, status, "out of memory for a batch");
        }
        if (status != OK) {
            return status;
        }
    }
}

static void batch_open(struct journal *journal)
{
    struct buffer *active = journal->active;
    if (active->len == 0) {
        active->mark = journal->next;
        active->len = BATCH_HEADER_BYTES;
        active->frames = 0;
    }
}

/* Where the next frame's payload goes. */
static char *frame_payload(const struct journal *journal)
{
    return journal->active->data + journal->active->len + FRAME_HEADER_BYTES;
}

/* Appends the frame whose payload is already in place. Returns its place. */
static uint64_t frame_close(struct journal *journal, enum frame_kind kind, size_t size)
{
    struct buffer *active = journal->active;
    ASSERT(active->len + FRAME_HEADER_BYTES + size <= active->cap); /* room_make */
    uint64_t place = active->mark.place + active->len;
    frame_header_encode(
        active->data + active->len, kind, (uint32_t)size, journal->tail.seed, place_offset(place));
    active->len += FRAME_HEADER_BYTES + size;
    active->frames++;
    return place;
}

/* Appends a frame whose payload is in two parts. Returns its place. */
static uint64_t frame_append(
    struct journal *journal, enum frame_kind kind, struct slice first, struct slice second)
{
    size_t size = first.len + second.len;
    ASSERT(journal->active->len + FRAME_HEADER_BYTES + size <= journal->active->cap);
    char *payload = frame_payload(journal);
    memcpy(payload, first.data, first.len);
    if (second.len > 0) {
        memcpy(payload + first.len, second.data, second.len);
    }
    return frame_close(journal, kind, size);
}

/* Appends a record's frame. It is encoded in place: room_make has reserved more than it takes, and
 * a buffer at its own limit never grows. */
static uint64_t frame_record(
    struct journal *journal, enum frame_kind kind, const struct record *record)
{
    struct buffer *active = journal->active;
    ASSERT(active->len + FRAME_HEADER_BYTES < active->cap);
    size_t room = active->cap - active->len - FRAME_HEADER_BYTES;
    struct buf payload = {.data = frame_payload(journal), .cap = room, .max = room};
    record_encode(record, &payload);
    ASSERT(buf_status(&payload) == OK);
    return frame_close(journal, kind, payload.len);
}

static void live_add(struct journal *journal, const struct slot *slot, int one)
{
    struct segment *segment = segment_get(journal, place_segment(slot->place));
    if (segment != NULL) {
        segment->live += (uint32_t)one;
    }
    store_tally_add(
        &journal->tally, (enum record_kind)slot->kind, (enum record_status)slot->status, one > 0);
}

enum status slot_set(
    struct journal *journal, struct slot *found, const struct slot *slot, int64_t changed_ms)
{
    /* Both before anything changes: a record whose due cannot be stored is not written. */
    enum status status = dues_reserve(&journal->dues, slot);
    if (status == OK && found == NULL) {
        status = index_put(&journal->index, slot);
    }
    if (status != OK) {
        return status;
    }
    dues_change(&journal->dues, found, slot, changed_ms);
    if (found != NULL) {
        live_add(journal, found, -1);
        index_replace(&journal->index, found, slot);
    }
    live_add(journal, slot, 1);
    return OK;
}

/* Most slots that a start loads are settled: they have no due and are only counted. */
enum status slot_count(struct journal *journal, const struct slot *slot)
{
    if (slot_group(slot) != DUE_NOT || slot->status == RECORD_UNKNOWN) {
        enum status status = dues_reserve(&journal->dues, slot);
        if (status != OK) {
            return status;
        }
        dues_change(&journal->dues, NULL, slot, DUE_CHANGED_UNKNOWN);
    }
    live_add(journal, slot, 1);
    return OK;
}

void slot_drop(struct journal *journal, struct slot *slot)
{
    live_add(journal, slot, -1);
    dues_change(&journal->dues, slot, NULL, DUE_CHANGED_UNKNOWN);
    index_remove(&journal->index, slot);
}

void slots_clear(struct journal *journal)
{
    index_release(&journal->index);
    index_init(&journal->index, journal->mem);
    dues_release(&journal->dues);
    dues_init(&journal->dues, journal->mem);
    journal->tally = (struct store_tally){.counts = {{0}}};
    for (size_t i = 0; i < journal->segments_count; i++) {
        journal->segments[i].live = 0;
    }
}

static void undo_all(struct journal *journal)
{
    const struct journal_undo *undone =
        (const struct journal_undo *)(const void *)journal->undo.data;
    for (size_t i = journal->undo.len / sizeof *undone; i > 0; i--) {
        const struct journal_undo *undo = &undone[i - 1];
        struct slot *slot = index_find(&journal->index, &undo->hash);
        ASSERT(slot != NULL);
        if (undo->old.place == 0) {
            slot_drop(journal, slot);
        } else {
            live_add(journal, slot, -1);
            dues_change(&journal->dues, slot, &undo->old, DUE_CHANGED_UNKNOWN);
            *slot = undo->old;
            live_add(journal, slot, 1);
        }
    }
}

/* Writes a body of an older segment again. */
static enum status body_move(
    struct journal *journal, enum frame_kind kind, struct body_ref *body, struct err *err)
{
    const struct segment *segment = segment_get(journal, place_segment(body->place));
    if (segment == NULL || segment->squeezed) {
        return err_set(err, E_STALE, "a body of the record has moved since it was loaded");
    }
    struct arena arena;
    arena_init(&arena, journal->mem, BATCH_BYTES_MAX);
    struct slice bytes = SLICE_EMPTY;
    enum status status = body_read_closed(journal, body, &arena, &bytes, err);
    if (status == OK) {
        struct slice digest = slice_of(body->digest.bytes, sizeof body->digest.bytes);
        body->place = frame_append(journal, kind, digest, bytes);
    }
    arena_release(&arena);
    return status;
}

static enum status body_put(struct journal *journal, enum frame_kind kind, struct slice bytes,
    struct body_ref *body, struct err *err)
{
    if (body_moves(body, bytes, journal->tail.number)) {
        return body_move(journal, kind, body, err);
    }
    if (bytes.len == 0) {
        return OK;
    }
    if (!body->retained || body->bytes != bytes.len) {
        return err_set(
            err, E_MISUSE, "a body of length %zu does not belong to its record", bytes.len);
    }
    struct slice digest = slice_of(body->digest.bytes, sizeof body->digest.bytes);
    body->place = frame_append(journal, kind, digest, bytes);
    return OK;
}

/* Two changes of one record in a commit bring the same bytes. A second copy would belong to no
 * record, and stay when the first is erased. */
static enum status request_put(
    struct journal *journal, const struct change *change, struct record *record, struct err *err)
{
    struct journal_last_body *last_body = &journal->last_body;
    struct slice bytes = change->request_body;
    if (bytes.len > 0 && bytes.data == last_body->bytes.data && bytes.len == last_body->bytes.len &&
        op_id_equal(&record->operation_id, &last_body->operation_id)) {
        record->request.place = last_body->place;
        return OK;
    }
    enum status status = body_put(journal, FRAME_REQUEST, bytes, &record->request, err);
    if (status == OK && bytes.len > 0) {
        *last_body = (struct journal_last_body){
            .operation_id = record->operation_id, .bytes = bytes, .place = record->request.place};
    }
    return status;
}

static enum status record_put(struct journal *journal, const struct change *change,
    enum frame_kind kind, struct slot *ret_slot, struct err *err)
{
    struct record record = *change->record;
    enum status status = request_put(journal, change, &record, err);
    if (status == OK) {
        status = body_put(journal, FRAME_OUTCOME, change->outcome_body, &record.outcome.body, err);
    }
    if (status != OK) {
        return status;
    }
    if (kind == FRAME_RECORD) {
        erase_mark(journal, &record);
    }
    *ret_slot = slot_of(&record, frame_record(journal, kind, &record));
    return OK;
}

static enum status undo_push(
    struct journal *journal, const struct journal_undo *undo, struct err *err)
{
    buf_append(&journal->undo, undo, sizeof *undo);
    enum status status = buf_status(&journal->undo);
    return status == OK ? OK : err_set(err, status, "out of memory for a commit");
}

/* kind is that of the record's frame, if it is put. */
static enum status change_record(
    struct journal *journal, const struct change *change, enum frame_kind kind, struct err *err)
{
    const struct digest *hash = &change->record->key.hash;
    struct slot *slot = index_find(&journal->index, hash);
    if (slot == NULL ? change->version_expected != 0
                     : slot->version != (uint32_t)change->version_expected) {
        return err_set(err, E_STALE, "the record has changed since it was loaded");
    }
    struct journal_undo undo = {.hash = *hash, .old = slot == NULL ? (struct slot){0} : *slot};
    /* Pushed first, so that nothing can fail once the index has changed. */
    enum status status = undo_push(journal, &undo, err);
    if (status != OK) {
        return status;
    }
    struct slot next = undo.old;
    if (change->kind == CHANGE_PUT) {
        status = record_put(journal, change, kind, &next, err);
    } else if (slot == NULL) {
        status = err_set(err, E_MISUSE, "an absent record cannot be touched");
    } else {
        next.duplicates += next.duplicates < UINT32_MAX;
        (void)frame_append(
            journal, FRAME_TOUCH, slice_of(hash->bytes, sizeof hash->bytes), SLICE_EMPTY);
    }
    if (status == OK) {
        status = slot_set(journal, slot, &next, change->record->updated_ms);
        if (status != OK) {
            (void)err_set(err, status, "out of memory for the index");
        }
    }
    if (status != OK) {
        journal->undo.len -= sizeof undo;
    }
    return status;
}

static enum status change_entry(
    struct journal *journal, const struct change *change, bool inherits, struct err *err)
{
    const struct entry *entry = &change->entry;
    if (entry->bytes.len == 0) {
        return OK;
    }
    if (inherits) {
        return inherited_add(journal, change, err);
    }
    if (entry->kind == ENTRY_EVIDENCE) {
        if (entry->seq != journal->head.seq + 1) {
            return err_set(err, E_MISUSE, "entry %" PRIu64 " does not follow %" PRIu64, entry->seq,
                journal->head.seq); /* P10: dense */
        }
        journal->head.seq = entry->seq;
        journal->head.hash = entry->hash;
    }
    unsigned char lead[ENTRY_LEAD_BYTES_MAX];
    size_t lead_bytes = entry_lead_encode(entry, lead);
    (void)frame_append(journal, FRAME_ENTRY, slice_of(lead, lead_bytes), entry->bytes);
    return OK;
}

/* Wakes the background thread if it is time to write zeros ahead, or to make the spare. */
static void ahead_signal(struct journal *journal)
{
    uint64_t end = place_offset(journal->next.place) + journal->active->len;
    uint64_t ahead = end + journal->zero_step / 2;
    bool zeros = ahead > journal->tail.zeroed && journal->tail.zeroed < journal->tail.size;
    if (journal->thread_runs && (zeros || spare_wanted(journal) > 0)) {
        (void)pthread_cond_signal(&journal->work);
    }
}

/* Records the state after the commit that was just added to the batch. */
static void batch_note(struct journal *journal)
{
    journal->active->after = (struct mark){.seq = journal->head.seq,
        .hash = journal->head.hash,
        .fence = journal->fence,
        .moment = journal->head.moment};
    ahead_signal(journal);
}

/* Every change is checked, so that all stale ones are reported. */
static enum status commit_apply(
    struct journal *journal, const struct commit *commit, struct err *err)
{
    bool stale = false;
    enum status status = OK;
    for (size_t i = 0; i < commit->count && status == OK; i++) {
        const struct change *change = &commit->changes[i];
        if (change->kind != CHANGE_NONE) {
            /* An inherited record was not decided here: it only moved. */
            status =
                change_record(journal, change, commit->inherits ? FRAME_MOVED : FRAME_RECORD, err);
        }
        if (commit->ret_stale != NULL) {
            commit->ret_stale[i] = status == E_STALE;
        }
        stale = stale || status == E_STALE;
        status = status == E_STALE ? OK : status;
        if (status == OK) {
            status = change_entry(journal, change, commit->inherits, err);
        }
    }
    return status == OK && stale ? err_set(err, E_STALE, "a record has changed since it was read")
                                 : status;
}

static enum status commit_locked(
    struct journal *journal, const struct commit *commit, struct err *err)
{
    enum status status = room_make(journal, commit, err);
    if (status != OK) {
        return status;
    }
    struct buffer *active = journal->active;
    struct buffer before = *active;
    struct store_head head = journal->head;
    buf_clear(&journal->undo);
    journal->last_body = (struct journal_last_body){.place = 0};
    batch_open(journal);
    status = commit_apply(journal, commit, err);
    if (status != OK) {
        undo_all(journal);
        journal->head = head;
        *active = before;
        return status;
    }
    ASSERT(journal->now.time_ms >= head.moment.time_ms); /* P8 */
    journal->head.moment = journal->now;
    if (journal->fence < commit->fence_floor) {
        journal->fence = commit->fence_floor;
    }
    batch_note(journal);
    return OK;
}

enum status journal_commit(struct store *store, const struct commit *commit, struct err *err)
{
    struct journal *journal = journal_of(store);
    ASSERT(journal->prepared);
    journal->prepared = false;
    (void)pthread_mutex_lock(&journal->mutex);
    enum status status = journal_failed(journal, err);
    if (status == OK) {
        status = commit_locked(journal, commit, err);
    }
    (void)pthread_mutex_unlock(&journal->mutex);
    return status;
}

/* Records are forgotten by committed time only (P8), and an idle store commits none. */
enum status journal_pass_time(struct journal *journal, struct err *err)
{
    ASSERT(!journal->prepared && !journal->read_only);
    struct store_counts counts = store_tally_of(&journal->tally, STORE_KINDS_ALL);
    uint64_t expiring = 0;
    for (unsigned status = RECORD_IN_PROGRESS; status < RECORD_STATUS_END; status++) {
        expiring +=
            record_status_expires((enum record_status)status) ? counts.by_status[status] : 0;
    }
    struct store_moment now = store_clock_now(&journal->clock);
    if (expiring == 0 || now.time_ms - journal->head.moment.time_ms < PASS_TIME_EVERY_MS) {
        return OK;
    }
    struct commit commit = {.count = 0};
    journal->now = now;
    (void)pthread_mutex_lock(&journal->mutex);
    enum status status = commit_locked(journal, &commit, err);
    (void)pthread_mutex_unlock(&journal->mutex);
    return status;
}

enum status journal_roll(struct journal *journal, struct err *err)
{
    ASSERT(!journal->prepared && !journal->read_only);
    (void)pthread_mutex_lock(&journal->mutex);
    enum status status = flush_locked(journal, err);
    if (status == OK && journal->active->len == 0) {
        status = segment_roll(journal, 0, err);
    }
    (void)pthread_mutex_unlock(&journal->mutex);
    return status;
}

static enum status move_locked(
    struct journal *journal, const struct record *record, struct err *err)
{
    struct change change = {.kind = CHANGE_PUT, .record = record};
    struct commit commit = {.changes = &change, .count = 1};
    enum status status = room_make(journal, &commit, err);
    if (status != OK) {
        return status;
    }
    struct buffer before = *journal->active;
    struct slot next;
    batch_open(journal);
    status = record_put(journal, &change, FRAME_MOVED, &next, err);
    if (status == OK) {
        status = slot_set(
            journal, index_find(&journal->index, &record->key.hash), &next, record->updated_ms);
    }
    if (status != OK) {
        *journal->active = before;
        return status;
    }
    batch_note(journal);
    return OK;
}

enum status journal_move(struct journal *journal, const struct slot *slot, struct err *err)
{
    struct arena arena;
    arena_init(&arena, journal->mem, BATCH_BYTES_MAX);
    const struct record *record;
    enum status status = record_read(journal, slot, &arena, &record, err);
    if (status == OK) {
        (void)pthread_mutex_lock(&journal->mutex);
        status = move_locked(journal, record, err);
        (void)pthread_mutex_unlock(&journal->mutex);
    }
    arena_release(&arena);
    return status;
}
