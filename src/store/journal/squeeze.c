/*
 * Squeezing: an old segment is rewritten with only its entries, once it has no live records. If few
 * are live, they are first written again at the end of the journal. Past its retention the segment
 * is removed.
 *
 *   idle --candidate--> moving --none live--> settling --all stable--> rewriting --renamed--> idle
 *
 *   Crash while moving: the record is in both places; the later one counts.
 *   Crash while settling: the frame that replaced a record may not have reached the disk. The one
 *   in this segment is still there and counts again (P1).
 *   Crash while rewriting: `squeeze.tmp` is left and removed later; the segment is as it was.
 *   Crash after the rename: the segment is squeezed, as its header says.
 *
 * Oldest first (JF7): if a younger segment were squeezed before an older one, a recovery without a
 * saved index would bring back records of the older one that were replaced in the younger one.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "store/journal/impl.h"

enum {
    SQUEEZE_SLOTS_A_STEP = 40000,      /* visited in one call */
    SQUEEZE_MOVES_A_STEP = 64,         /* records written again in one call */
    SQUEEZE_BYTES_PER_LIVE = 16 << 10, /* of the segment: fewer live ones are worth moving */
    SQUEEZE_WRITE_BYTES = 1 << 20,     /* gathered before they are written */
};

enum squeeze_state {
    SQUEEZE_MOVING,
    SQUEEZE_SETTLING,
    SQUEEZE_REWRITING,
    SQUEEZE_DONE,
    SQUEEZE_FAILED,
};

#define TO(state) (1u << SQUEEZE_##state)

struct squeeze {
    enum squeeze_state state; /* under the mutex; the writer's while rewriting */
    uint64_t number;          /* of the segment */
    unsigned part;            /* where to search for live records next */
    uint64_t settled_at;      /* everything that replaced its records is before this place */
    uint64_t end;             /* of the rewritten file */
};

static struct segment *squeeze_candidate(struct journal *journal)
{
    /* A segment that could not be squeezed is not tried again before the next index is saved. */
    for (size_t i = 0;
         i < journal->segments_count && journal->squeeze_failed != journal->snapshot_place; i++) {
        struct segment *segment = &journal->segments[i];
        if (segment->squeezed) {
            continue;
        }
        if (erase_is_at(journal, segment->number)) {
            return NULL; /* when that is done */
        }
        bool is_saved = segment->number < place_segment(journal->snapshot_place) &&
                        segment->number < journal->tail.number;
        return is_saved && (uint64_t)segment->live * SQUEEZE_BYTES_PER_LIVE <= segment->end
                   ? segment
                   : NULL;
    }
    return NULL;
}

/* Moves the live records of one partition. Slots are copied first: moving changes them. */
static enum status part_move(
    struct journal *journal, unsigned number, uint64_t segment, size_t *moves, struct err *err)
{
    struct slot live[SQUEEZE_MOVES_A_STEP];
    size_t count = 0;
    struct slot *slot = index_next(&journal->index, number, NULL);
    for (; slot != NULL && count < SQUEEZE_MOVES_A_STEP;
         slot = index_next(&journal->index, number, slot)) {
        if (place_segment(slot->place) == segment) {
            live[count++] = *slot;
        }
    }
    enum status status = OK;
    for (size_t i = 0; i < count && status == OK; i++) {
        status = journal_move(journal, &live[i], err);
    }
    *moves += count;
    return status;
}

static enum status squeeze_move(
    struct journal *journal, struct squeeze *squeeze, struct segment *segment, struct err *err)
{
    size_t looked = 0;
    size_t moves = 0;
    enum status status = OK;
    while (status == OK && segment->live > 0 && looked < SQUEEZE_SLOTS_A_STEP &&
           moves < SQUEEZE_MOVES_A_STEP) {
        looked += journal->index.parts[squeeze->part].end + 1;
        size_t before = moves;
        status = part_move(journal, squeeze->part, squeeze->number, &moves, err);
        segment = segment_get(journal, squeeze->number); /* a move may have added a segment */
        if (moves - before < SQUEEZE_MOVES_A_STEP) {
            squeeze->part = (squeeze->part + 1) % INDEX_PARTS;
        }
    }
    return status;
}

/* With the mutex. */
static void state_move(struct squeeze *squeeze, enum squeeze_state state)
{
    static const unsigned nexts[] = {
        [SQUEEZE_MOVING] = TO(SETTLING),
        [SQUEEZE_SETTLING] = TO(REWRITING),
        [SQUEEZE_REWRITING] = TO(DONE) | TO(FAILED),
        [SQUEEZE_DONE] = 0,
        [SQUEEZE_FAILED] = 0,
    };
    ASSERT((nexts[squeeze->state] & 1u << state) != 0);
    squeeze->state = state;
}

static void squeeze_set(struct journal *journal, enum squeeze_state state)
{
    (void)pthread_mutex_lock(&journal->mutex);
    state_move(journal->squeeze, state);
    (void)pthread_cond_signal(&journal->work);
    (void)pthread_mutex_unlock(&journal->mutex);
}

/* No record in the segment is live any more, because of moves or of any commit. All of these are
 * before the current end of the commits. */
static void squeeze_settle(struct journal *journal, struct squeeze *squeeze)
{
    (void)pthread_mutex_lock(&journal->mutex);
    squeeze->settled_at = journal->active->len > 0
                              ? journal->active->mark.place + journal->active->len
                              : journal->next.place;
    state_move(squeeze, SQUEEZE_SETTLING);
    (void)pthread_mutex_unlock(&journal->mutex);
}

void squeeze_abandon(struct journal *journal)
{
    (void)pthread_mutex_lock(&journal->mutex);
    struct squeeze *squeeze = journal->squeeze;
    journal->squeeze = NULL;
    (void)pthread_mutex_unlock(&journal->mutex);
    mem_free(journal->mem, squeeze);
}

static enum status squeeze_begin(struct journal *journal, struct err *err)
{
    const struct segment *segment = squeeze_candidate(journal);
    if (segment == NULL) {
        return OK;
    }
    struct squeeze *squeeze = mem_zalloc(journal->mem, 1, sizeof *squeeze);
    if (squeeze == NULL) {
        return err_set(err, E_NOMEM, "out of memory for squeezing a segment");
    }
    squeeze->number = segment->number;
    (void)pthread_mutex_lock(&journal->mutex);
    journal->squeeze = squeeze;
    (void)pthread_mutex_unlock(&journal->mutex);
    return OK;
}

bool squeeze_is_at(const struct journal *journal, uint64_t number)
{
    return journal->squeeze != NULL && journal->squeeze->number == number;
}

enum status squeeze_step(struct journal *journal, struct err *err)
{
    if (journal->squeeze == NULL) {
        return squeeze_begin(journal, err);
    }
    (void)pthread_mutex_lock(&journal->mutex);
    enum squeeze_state state = journal->squeeze->state;
    (void)pthread_mutex_unlock(&journal->mutex);
    struct squeeze *squeeze = journal->squeeze;
    struct segment *segment = segment_get(journal, squeeze->number);
    ASSERT(segment != NULL);
    switch (state) {
    case SQUEEZE_MOVING:
        if (segment->live > 0) {
            return squeeze_move(journal, squeeze, segment, err);
        }
        squeeze_settle(journal, squeeze);
        return OK;
    case SQUEEZE_SETTLING:
        if (atomic_load(&journal->stable) >= squeeze->settled_at) {
            squeeze_set(journal, SQUEEZE_REWRITING);
        }
        return OK;
    case SQUEEZE_REWRITING: return OK;
    case SQUEEZE_DONE:
        segment_replaced(journal, segment);
        segment->squeezed = true;
        segment->end = squeeze->end;
        squeeze_abandon(journal);
        return OK;
    case SQUEEZE_FAILED:
        journal->squeeze_failed = journal->snapshot_place;
        squeeze_abandon(journal);
        return OK;
    }
    return OK;
}

/* The writer's part ------------------------------------------------------------------------ */

static int rewrite_flush(struct rewrite *rewrite)
{
    if (buf_status(&rewrite->bytes) != OK) {
        return -ENOMEM;
    }
    int failed = io_write_full(
        rewrite->io, rewrite->to, rewrite->bytes.data, rewrite->bytes.len, rewrite->offset);
    rewrite->offset += rewrite->bytes.len;
    buf_clear(&rewrite->bytes);
    return failed;
}

/* Writes the batch with only its entries; same number, moment and fence, no zeros at the end. */
static void squeeze_batch(struct rewrite *rewrite, const struct cursor_batch *batch)
{
    struct buf *out = &rewrite->bytes;
    size_t start = out->len;
    uint64_t offset = rewrite->offset + start;
    struct batch_header header = batch->header;
    header.frames = 0;
    (void)buf_extend(out, BATCH_HEADER_BYTES);
    struct frame frame;
    uint32_t at = 0;
    while (batch_frame(batch, &at, &frame)) {
        if (frame.kind != FRAME_ENTRY) {
            continue;
        }
        uint64_t place = rewrite->offset + out->len;
        char *bytes = buf_extend(out, FRAME_HEADER_BYTES + frame.payload.len);
        if (bytes == NULL) {
            return;
        }
        memcpy(bytes + FRAME_HEADER_BYTES, frame.payload.data, frame.payload.len);
        frame_header_encode(bytes, FRAME_ENTRY, (uint32_t)frame.payload.len, rewrite->seed, place);
        header.frames++;
    }
    if (buf_status(out) == OK) {
        header.content = header.length = (uint32_t)(out->len - start);
        header.zero_sectors = 0;
        batch_header_encode(&header, rewrite->seed, offset, (unsigned char *)out->data + start);
    }
}

static int rewrite_all(struct rewrite *rewrite)
{
    struct segment_header header;
    if (cursor_start(&rewrite->cursor, &header) != NULL) {
        return -EIO;
    }
    header.squeezed = rewrite->squeezes;
    rewrite->seed = rewrite->cursor.seed;
    unsigned char block[JOURNAL_BLOCK_BYTES];
    segment_header_encode(&header, block);
    buf_append(&rewrite->bytes, block, sizeof block);
    for (;;) {
        struct cursor_batch batch;
        enum cursor_result result = cursor_next(&rewrite->cursor, &batch);
        if (result == CURSOR_END) {
            return rewrite_flush(rewrite);
        }
        if (result != CURSOR_BATCH) {
            return -EIO; /* damaged: keep it for once verify */
        }
        rewrite->batch(rewrite, &batch);
        int failed = rewrite->bytes.len > SQUEEZE_WRITE_BYTES ? rewrite_flush(rewrite) : 0;
        if (failed != 0) {
            return failed;
        }
    }
}

int segment_rewrite(struct journal *journal, uint64_t number, struct rewrite *rewrite)
{
    const struct io *io = journal->io;
    struct path path = segment_path(journal->options.path, number);
    struct path temp = journal_path(journal, "squeeze.tmp");
    int from = io->open(io->context, path.text, O_RDONLY, 0);
    rewrite->io = io;
    rewrite->to = io->open(io->context, temp.text, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cursor_init(&rewrite->cursor, io, journal->mem, from);
    buf_init(&rewrite->bytes, journal->mem, SIZE_MAX / 2);
    int failed = from < 0 ? from : rewrite->to < 0 ? rewrite->to : rewrite_all(rewrite);
    if (failed == 0) {
        failed = io->fsync(io->context, rewrite->to);
    }
    cursor_release(&rewrite->cursor);
    buf_release(&rewrite->bytes);
    if (from >= 0) {
        (void)io->close(io->context, from);
    }
    if (rewrite->to >= 0) {
        (void)io->close(io->context, rewrite->to);
    }
    if (failed == 0) {
        failed = io->rename(io->context, temp.text, path.text);
    }
    return failed == 0 ? io_sync_dir(io, journal->options.path) : failed;
}

bool squeeze_work(struct journal *journal)
{
    (void)pthread_mutex_lock(&journal->mutex);
    struct squeeze *squeeze = journal->squeeze;
    bool mine = squeeze != NULL && squeeze->state == SQUEEZE_REWRITING;
    (void)pthread_mutex_unlock(&journal->mutex);
    if (!mine) {
        return false;
    }
    struct rewrite rewrite = {.batch = squeeze_batch, .squeezes = true};
    int failed = segment_rewrite(journal, squeeze->number, &rewrite);
    squeeze->end = rewrite.offset;
    (void)pthread_mutex_lock(&journal->mutex);
    state_move(squeeze, failed == 0 ? SQUEEZE_DONE : SQUEEZE_FAILED);
    (void)pthread_mutex_unlock(&journal->mutex);
    return true;
}

/* Retention -------------------------------------------------------------------------------- */

enum status journal_removable(
    struct store *store, struct store_removable *ret_removable, struct err *err)
{
    (void)err;
    struct journal *journal = journal_of(store);
    int64_t now_ms = store_clock_now(&journal->clock).time_ms;
    *ret_removable = (struct store_removable){0};
    bool busy = squeeze_is_at(journal, journal->segments[0].number);
    if (journal->segments_count < 2 || !journal->segments[0].squeezed || busy) {
        return OK;
    }
    const struct mark *after = &journal->segments[1].mark;
    if (after->moment.time_ms < now_ms - journal->retain_ms) {
        *ret_removable = (struct store_removable){.place = journal->segments[0].number,
            .seq = after->seq,
            .hash = after->hash,
            .newest_ms = after->moment.time_ms};
    }
    return OK;
}

enum status journal_remove(struct store *store, uint64_t number, struct err *err)
{
    struct journal *journal = journal_of(store);
    struct segment *segment = &journal->segments[0];
    if (journal->read_only || segment->number != number || !segment->squeezed ||
        journal->segments_count < 2) {
        return err_set(err, E_MISUSE, "segment %" PRIu64 " cannot be removed", number);
    }
    const struct io *io = journal->io;
    struct path archive = journal_path(journal, "archive");
    int failed = io->mkdir(io->context, archive.text, 0700);
    struct path from = segment_path(journal->options.path, number);
    struct path to = segment_path(archive.text, number);
    failed = failed == -EEXIST ? 0 : failed;
    if (failed == 0) {
        failed = io->rename(io->context, from.text, to.text);
    }
    if (failed != 0) {
        return err_errno(err, E_UNAVAILABLE, -failed, "cannot move '%s' to the archive", from.text);
    }
    segment_replaced(journal, segment);
    journal->segments_count--;
    memmove(segment, segment + 1, journal->segments_count * sizeof *segment);
    failed = io_sync_dir(io, archive.text);
    failed = failed == 0 ? io_sync_dir(io, journal->options.path) : failed;
    /* Nothing depends on it: after a power loss the segment may be back, and is removable again. */
    return failed == 0 ? OK
                       : err_errno(err, E_UNAVAILABLE, -failed, "cannot flush '%s'", archive.text);
}
