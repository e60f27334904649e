/*
 * Recovery: the newest saved index, and every batch after it, folded into the index.
 *
 * An invalid batch at the very end is torn if some of its sectors were never written (JF3); it was
 * not acknowledged and is cut by writing zeros over it. Everything else that is invalid is
 * corruption: E_CORRUPT says where, and nothing is changed.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "store/journal/impl.h"

struct recovery {
    struct journal *journal;
    struct mark at;               /* before the next batch */
    uint64_t copied[INDEX_PARTS]; /* the place up to which the saved index has a partition */
    struct segment_header last;   /* of the last segment */
    uint64_t cut_from;            /* offsets in it that must be zeros again; equal: nothing */
    uint64_t cut_until;
};

static enum status corrupt_at(struct recovery *recovery, uint64_t segment, uint64_t offset,
    const char *wrong, struct err *err)
{
    (void)err_set(
        err, E_CORRUPT, "segment %" PRIu64 " offset %" PRIu64 ": %s", segment, offset, wrong);
    err_hint(err,
        "everything up to batch %" PRIu64 " (entry %" PRIu64
        ") checks out; keep a copy of '%s' and run once verify",
        recovery->at.batch - 1, recovery->at.seq, recovery->journal->options.path);
    return E_CORRUPT;
}

/* A failed read says nothing about the content. */
static enum status cursor_status(int error, uint64_t segment, struct err *err)
{
    return err_errno(err, error == -ENOMEM ? E_NOMEM : E_UNAVAILABLE, -error,
        "reading segment %" PRIu64, segment);
}

/* Opens a segment, checks its header, and adds it to the list. */
static enum status segment_note(
    struct recovery *recovery, uint64_t number, struct segment_header *ret_header, struct err *err)
{
    struct journal *journal = recovery->journal;
    struct segment segment = {.number = number, .fd = -1};
    int fd;
    enum status status = segment_fd(journal, &segment, &fd, err);
    if (status != OK) {
        return status;
    }
    struct cursor cursor;
    cursor_init(&cursor, journal->io, journal->mem, fd);
    const char *wrong = cursor_start(&cursor, ret_header);
    uint64_t size = cursor.size;
    int error = cursor.error;
    cursor_release(&cursor);
    segment_forget_fd(journal, &segment);
    if (error != 0) {
        return cursor_status(error, number, err);
    }
    if (wrong == NULL &&
        (ret_header->number != number ||
            memcmp(ret_header->chain_id, journal->identity.keys.chain_id, 16) != 0)) {
        wrong = "this segment belongs elsewhere";
    }
    if (wrong != NULL) {
        return corrupt_at(recovery, number, 0, wrong, err);
    }
    segment.mark = ret_header->mark;
    segment.end = size;
    segment.squeezed = ret_header->squeezed;
    segment.seed = segment_seed(ret_header->chain_id, number);
    return segment_add(journal, &segment, err);
}

static enum status segments_note(struct recovery *recovery, struct err *err)
{
    struct journal *journal = recovery->journal;
    uint64_t *numbers = NULL;
    size_t count = 0;
    enum status status =
        segment_list(journal->options.path, "segment", journal->mem, &numbers, &count, err);
    if (status == OK && count == 0) {
        status = err_set(err, E_CORRUPT, "'%s' has no segments", journal->options.path);
    }
    for (size_t i = 0; i < count && status == OK; i++) {
        if (i > 0 && numbers[i] != numbers[i - 1] + 1) {
            status = err_set(err, E_CORRUPT, "segment %" PRIu64 " is missing", numbers[i - 1] + 1);
            break;
        }
        status = segment_note(recovery, numbers[i], &recovery->last, err);
    }
    mem_free(journal->mem, numbers);
    return status;
}

static enum status fold_record(
    struct recovery *recovery, const struct frame *frame, uint64_t place, struct err *err)
{
    struct record record;
    enum status status = record_decode(frame->payload, &record, err);
    if (status != OK) {
        err_prefix(err, "segment %" PRIu64 " offset %" PRIu64, place_segment(place), frame->offset);
        return status;
    }
    struct journal *journal = recovery->journal;
    struct slot slot = slot_of(&record, place);
    if (place >= recovery->copied[slot_part(&slot)]) {
        struct slot *found = index_find(&journal->index, &record.key.hash);
        status = slot_set(journal, found, &slot, record.updated_ms);
    }
    return status == OK ? OK : err_set(err, status, "out of memory for the index");
}

static const char *fold_touch(struct recovery *recovery, const struct frame *frame, uint64_t place)
{
    struct digest hash;
    if (frame->payload.len != sizeof hash.bytes) {
        return "a touch is not the size of a hash";
    }
    memcpy(hash.bytes, frame->payload.data, sizeof hash.bytes);
    struct slot *slot = index_find(&recovery->journal->index, &hash);
    /* NULL: the record expired, and its frame was squeezed out since. */
    if (slot != NULL && place >= recovery->copied[slot_part(slot)]) {
        slot->duplicates += slot->duplicates < UINT32_MAX;
    }
    return NULL;
}

static const char *fold_entry(struct recovery *recovery, const struct frame *frame)
{
    struct entry entry;
    const char *wrong = entry_decode(frame->payload, &entry);
    if (wrong == NULL && entry.kind == ENTRY_EVIDENCE) {
        if (entry.seq != recovery->at.seq + 1) {
            return "an entry does not follow the one before it";
        }
        recovery->at.seq = entry.seq;
        recovery->at.hash = entry.hash;
    }
    return wrong;
}

static enum status fold_frame(
    struct recovery *recovery, uint64_t segment, const struct frame *frame, struct err *err)
{
    uint64_t place = place_make(segment, frame->offset);
    const char *wrong = NULL;
    switch (frame->kind) {
    case FRAME_RECORD:
    case FRAME_MOVED: return fold_record(recovery, frame, place, err);
    case FRAME_TOUCH: wrong = fold_touch(recovery, frame, place); break;
    case FRAME_ENTRY: wrong = fold_entry(recovery, frame); break;
    case FRAME_REQUEST:
    case FRAME_OUTCOME: break; /* found through their records */
    case FRAME_ERASED: break;
    }
    return wrong == NULL ? OK : corrupt_at(recovery, segment, frame->offset, wrong, err);
}

static enum status fold_batch(
    struct recovery *recovery, uint64_t segment, const struct cursor_batch *batch, struct err *err)
{
    if (batch->header.number != recovery->at.batch) {
        return corrupt_at(
            recovery, segment, batch->offset, "a different batch is expected here", err);
    }
    if (batch->header.fence < recovery->at.fence) {
        return corrupt_at(recovery, segment, batch->offset, "the fences go back", err); /* P4 */
    }
    struct frame frame;
    uint32_t at = 0;
    while (batch_frame(batch, &at, &frame)) {
        enum status status = fold_frame(recovery, segment, &frame, err);
        if (status != OK) {
            return status;
        }
    }
    recovery->at.batch++;
    recovery->at.fence = batch->header.fence;
    recovery->at.moment = batch->header.moment;
    return OK;
}

/* Finds the first byte that is not zero. OK with *ret_at == until: there is none. */
static enum status zeros_check(
    struct cursor *cursor, uint64_t from, uint64_t until, uint64_t *ret_at, struct err *err)
{
    for (uint64_t at = from; at < until;) {
        size_t size = until - at < JOURNAL_BLOCK_BYTES ? (size_t)(until - at) : JOURNAL_BLOCK_BYTES;
        int error;
        const char *bytes = cursor_bytes(cursor, at, size, &error);
        if (bytes == NULL) {
            return err_errno(err, error == -ENOMEM ? E_NOMEM : E_UNAVAILABLE, -error,
                "reading what follows the last batch");
        }
        if (!bytes_zero(bytes, size)) {
            *ret_at = at;
            return OK;
        }
        at += size;
    }
    *ret_at = until;
    return OK;
}

/* Whether a batch begins at a later block: then everything before it is damaged (JF5). */
static enum status batches_after(
    struct cursor *cursor, uint64_t from, bool *ret_found, struct err *err)
{
    int error = 0;
    bool found = cursor_find(cursor, from, &error) < cursor->size;
    if (error != 0) {
        return err_errno(err, error == -ENOMEM ? E_NOMEM : E_UNAVAILABLE, -error,
            "reading what follows the last batch");
    }
    *ret_found = found;
    return OK;
}

/*
 * The last segment's batches end at cursor->offset. After it there must be zeros, or the remains of
 * one batch that was in flight; length is from its header, 0 if that is absent.
 */
static enum status tail_check(
    struct recovery *recovery, struct cursor *cursor, uint32_t length, struct err *err)
{
    uint64_t end = cursor->offset;
    uint64_t number = recovery->last.number;
    bool is_followed = false;
    enum status status = batches_after(cursor, end + 1, &is_followed, err);
    if (status != OK) {
        return status;
    }
    if (is_followed) {
        return corrupt_at(recovery, number, end, "a batch is damaged and others follow it", err);
    }
    uint64_t dirty = 0;
    status = zeros_check(cursor, end + length, cursor->size, &dirty, err);
    if (status != OK) {
        return status;
    }
    if (length > 0 && dirty < cursor->size) {
        return corrupt_at(recovery, number, dirty, "something was written after a torn batch", err);
    }
    recovery->cut_from = recovery->cut_until = end;
    if (length > 0) {
        recovery->cut_until = end + length;
    } else if (dirty < cursor->size) {
        /* The torn batch's first sector is missing, so its length is not known. */
        recovery->cut_until = cursor->size;
    }
    return OK;
}

/*
 * For a reader that finds no whole batch: a writer may not have completed it yet. But if a later
 * batch exists, this one was stable before that one was begun (JF5), and reading it once more shows
 * it whole. If not, it is damaged (P11). *ret_result is CURSOR_BATCH if it is whole.
 */
static enum status reader_goes_on(struct recovery *recovery, struct cursor *cursor,
    enum cursor_result *ret_result, struct cursor_batch *ret_batch, struct err *err)
{
    bool is_followed = false;
    enum status status = cursor->offset < cursor->size
                             ? batches_after(cursor, cursor->offset + 1, &is_followed, err)
                             : OK;
    if (status != OK || !is_followed) {
        return status;
    }
    cursor->window_len = 0; /* read it from the file again */
    *ret_result = cursor_next(cursor, ret_batch);
    if (*ret_result == CURSOR_BATCH || *ret_result == CURSOR_FAILED) {
        return OK;
    }
    return corrupt_at(recovery, recovery->last.number, cursor->offset,
        "a batch is damaged and others follow it", err);
}

static enum status segment_end(struct recovery *recovery, struct cursor *cursor,
    enum cursor_result result, const struct cursor_batch *batch, uint64_t number, struct err *err)
{
    if (result == CURSOR_FAILED) {
        return cursor_status(batch->error, number, err);
    }
    if (result != CURSOR_END && number != recovery->last.number) {
        return corrupt_at(recovery, number, batch->offset, batch->wrong, err);
    }
    if (number != recovery->last.number) {
        return OK;
    }
    if (recovery->journal->read_only) {
        return OK; /* reader_goes_on checked it */
    }
    if (result == CURSOR_DAMAGE) {
        return corrupt_at(recovery, number, batch->offset, batch->wrong, err);
    }
    return tail_check(recovery, cursor, result == CURSOR_TORN ? batch->header.length : 0, err);
}

static enum status segment_fold(
    struct recovery *recovery, struct segment *segment, uint64_t offset, struct err *err)
{
    struct journal *journal = recovery->journal;
    int fd;
    enum status status = segment_fd(journal, segment, &fd, err);
    if (status != OK) {
        return status;
    }
    struct cursor cursor;
    cursor_init(&cursor, journal->io, journal->mem, fd);
    struct segment_header header;
    const char *wrong = cursor_start(&cursor, &header);
    if (cursor.error != 0) {
        status = cursor_status(cursor.error, segment->number, err);
    } else if (wrong != NULL) {
        status = corrupt_at(recovery, segment->number, 0, wrong, err);
    } else if (offset > cursor.offset) {
        cursor.offset = offset;
    }
    uint64_t begun = cursor.offset;
    while (status == OK) {
        struct cursor_batch batch;
        enum cursor_result result = cursor_next(&cursor, &batch);
        if (journal->read_only && segment->number == recovery->last.number &&
            result != CURSOR_BATCH && result != CURSOR_FAILED) {
            status = reader_goes_on(recovery, &cursor, &result, &batch, err);
        }
        if (status == OK && result != CURSOR_BATCH) {
            status = segment_end(recovery, &cursor, result, &batch, segment->number, err);
            break;
        }
        if (status != OK) {
            break;
        }
        status = fold_batch(recovery, segment->number, &batch, err);
    }
    segment->end = cursor.offset;
    journal->snapshot_since += cursor.offset - begun;
    cursor_release(&cursor);
    recovery->at.place = place_make(segment->number, segment->end);
    return status;
}

/* Each segment states what came before it, which must be the end of the segment before it. */
static enum status segment_follows(
    struct recovery *recovery, const struct segment *segment, struct err *err)
{
    const struct mark *mark = &segment->mark;
    const struct mark *at = &recovery->at;
    if (mark->batch != at->batch || mark->seq != at->seq ||
        memcmp(&mark->hash, &at->hash, sizeof at->hash) != 0) {
        (void)err_set(err, E_CORRUPT,
            "segment %" PRIu64 " begins with batch %" PRIu64
            ", but the ones before it end at %" PRIu64,
            segment->number, mark->batch, at->batch - 1);
        return E_CORRUPT;
    }
    return OK;
}

static enum status segments_fold(struct recovery *recovery, struct err *err)
{
    struct journal *journal = recovery->journal;
    struct segment *first = segment_get(journal, place_segment(recovery->at.place));
    ASSERT(first != NULL);
    enum status status = segment_fold(recovery, first, place_offset(recovery->at.place), err);
    for (size_t i = (size_t)(first - journal->segments) + 1;
         i < journal->segments_count && status == OK; i++) {
        status = segment_follows(recovery, &journal->segments[i], err);
        if (status == OK) {
            status = segment_fold(recovery, &journal->segments[i], 0, err);
        }
    }
    return status;
}

/* Starts at the end of the saved index, or at the very beginning. */
static enum status recovery_start(struct recovery *recovery, uint64_t *ret_until, struct err *err)
{
    struct journal *journal = recovery->journal;
    *ret_until = 0;
    if (snapshot_load(journal, recovery->copied, &recovery->at, ret_until)) {
        return OK;
    }
    slots_clear(journal);
    memset(recovery->copied, 0, sizeof recovery->copied);
    recovery->at = journal->segments[0].mark;
    if (recovery->at.place != place_make(journal->segments[0].number, JOURNAL_BLOCK_BYTES)) {
        return corrupt_at(recovery, journal->segments[0].number, 0, "it has no beginning", err);
    }
    return OK;
}

/* Through the page cache whatever the way: the remains of a file that was cut may end anywhere. */
static int remains_zero(const struct recovery *recovery)
{
    const struct io *io = recovery->journal->io;
    struct path path = segment_path(recovery->journal->options.path, recovery->last.number);
    int fd = io->open(io->context, path.text, O_RDWR, 0);
    int failed = fd < 0 ? fd : segment_zero(io, fd, recovery->cut_from, recovery->cut_until);
    if (fd >= 0) {
        int closed = io->close(io->context, fd);
        failed = failed != 0 ? failed : closed;
    }
    return failed;
}

static enum status recovery_cut(struct recovery *recovery, struct err *err)
{
    struct journal *journal = recovery->journal;
    enum status status = tail_open(journal, &recovery->last, err);
    if (status != OK) {
        return status;
    }
    int failed = 0;
    if (recovery->cut_from < recovery->cut_until) {
        failed = remains_zero(recovery);
    }
    if (failed == 0) {
        /* Zeros that a killed process wrote ahead may not be on the disk yet (JF3). */
        failed = journal->io->fsync(journal->io->context, journal->tail.fd);
    }
    return failed == 0 ? OK
                       : err_errno(err, E_UNAVAILABLE, -failed,
                             "cannot prepare the end of segment %" PRIu64, journal->tail.number);
}

static void recovery_finish(struct recovery *recovery)
{
    struct journal *journal = recovery->journal;
    journal->next = recovery->at;
    journal->stable_mark = recovery->at;
    atomic_store(&journal->stable, recovery->at.place);
    atomic_store(&journal->recent_place, recovery->at.place);
    journal->head.seq = recovery->at.seq;
    journal->head.hash = recovery->at.hash;
    journal->fence = recovery->at.fence;
    journal->head.moment = recovery->at.moment;
    store_clock_init(&journal->clock, journal->clock.clock, &recovery->at.moment);
}

enum status journal_recover(struct journal *journal, struct err *err)
{
    struct recovery *recovery = mem_zalloc(journal->mem, 1, sizeof *recovery);
    if (recovery == NULL) {
        return err_set(err, E_NOMEM, "out of memory for recovery");
    }
    recovery->journal = journal;
    uint64_t until = 0;
    enum status status = segments_note(recovery, err);
    if (status == OK) {
        status = recovery_start(recovery, &until, err);
    }
    if (status == OK) {
        status = segments_fold(recovery, err);
    }
    if (status == OK && recovery->at.place < until) {
        status = corrupt_at(recovery, place_segment(recovery->at.place),
            place_offset(recovery->at.place), "the journal ends before its saved index does", err);
    }
    if (status == OK) {
        recovery_finish(recovery);
    }
    if (status == OK && !journal->read_only) {
        status = recovery_cut(recovery, err);
    }
    mem_free(journal->mem, recovery);
    return status;
}
