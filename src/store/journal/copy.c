/*
 * Copies a journal that may be in use. The copy is a prefix of it, as a crash would leave.
 *
 * No lock is taken and the writer is not asked, so that a copy works beside any writer, without
 * one, and while it is killed and restarted. What the writer may do during the copy, and why it is
 * safe:
 *
 *   It appends.   The current segment is copied last and ends after a whole batch. That batch is
 *                 flushed in the source first: the copy is never ahead of the disk.
 *   It rolls.     A segment with a successor is complete, and is copied as it is.
 *   It squeezes.  By rename: an open file stays as it was. A squeezed segment's live records are
 *                 stable at the end of the journal before the rename, and the end is copied later.
 *   It squeezes several. JF7 has to hold in the copy too. So closed segments are copied newest
 *                 first: when one is squeezed, the older ones that are copied after it are as well.
 *                 When a segment that was made during the copy is squeezed already, the older ones
 *                 are copied again.
 *   It archives.  Oldest first: if a segment is gone, all older ones are too.
 *
 * Saved indexes are not copied: opening the copy makes a new one.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"
#include "base/clock.h"
#include "store/journal/impl.h"

enum {
    LIST_TRIES = 5,
    COPY_BYTES = 1 << 20, /* read and written at a time */
    SETTLE_TRIES = 100,   /* how often the end is read again … */
    SETTLE_SLEEP_MS = 10, /* … which is about a second: far longer than a write takes */
};

struct copier {
    const struct journal_copy *how;
    const struct io *io;
    const struct mem *mem;
    char *bytes;       /* COPY_BYTES */
    uint64_t first;    /* number of the oldest segment of the copy */
    uint64_t last;     /* of the newest one in the source */
    uint64_t squeezed; /* newest squeezed segment in the copy, as all older ones are; or 0 */
    uint64_t done;     /* bytes copied … */
    uint64_t total;    /* … of about this many */
};

/* ---- files -------------------------------------------------------------------------------- */

/* One file of the journal and its copy, both open. */
struct pair {
    struct path from_path;
    struct path to_path;
    int from;
    int to;
};

static enum status unreadable(const struct pair *pair, int failed, struct err *err)
{
    return err_errno(err, failed == -ENOMEM ? E_NOMEM : E_UNAVAILABLE, -failed, "cannot read '%s'",
        pair->from_path.text);
}

static enum status unwritable(const struct pair *pair, int failed, struct err *err)
{
    return err_errno(err, E_UNAVAILABLE, -failed, "cannot write '%s'", pair->to_path.text);
}

/* *ret_absent: there is nothing to copy, and nothing is open. */
static enum status pair_open(
    struct copier *copier, struct pair *pair, bool *ret_absent, struct err *err)
{
    const struct io *io = copier->io;
    pair->from = io->open(io->context, pair->from_path.text, O_RDONLY, 0);
    *ret_absent = pair->from == -ENOENT;
    if (pair->from < 0) {
        return *ret_absent ? OK : unreadable(pair, pair->from, err);
    }
    pair->to = io->open(io->context, pair->to_path.text, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (pair->to < 0) {
        (void)io->close(io->context, pair->from);
        return unwritable(pair, pair->to, err);
    }
    return OK;
}

/* Flushes the copy, unless something failed before. */
static enum status pair_close(
    struct copier *copier, struct pair *pair, enum status status, struct err *err)
{
    const struct io *io = copier->io;
    ASSERT(pair->from >= 0);
    ASSERT(pair->to >= 0);
    int failed = status == OK ? io->fsync(io->context, pair->to) : 0;
    int closed = io->close(io->context, pair->to);
    (void)io->close(io->context, pair->from);
    failed = failed != 0 ? failed : closed;
    return status == OK && failed != 0 ? unwritable(pair, failed, err) : status;
}

static enum status advance(struct copier *copier, uint64_t bytes, struct err *err)
{
    copier->done += bytes;
    copier->total = copier->done > copier->total ? copier->done : copier->total;
    ASSERT(copier->done >= bytes);
    bool more = copier->how->progress == NULL ||
                copier->how->progress(copier->how->context, copier->done, copier->total);
    return more ? OK : err_set(err, E_UNAVAILABLE, "the copy was stopped");
}

static enum status copy_bytes(
    struct copier *copier, const struct pair *pair, uint64_t size, struct err *err)
{
    enum status status = OK;
    for (uint64_t at = 0; at < size && status == OK;) {
        size_t piece = size - at < COPY_BYTES ? (size_t)(size - at) : COPY_BYTES;
        int failed = io_read_full(copier->io, pair->from, copier->bytes, piece, at);
        if (failed != 0) {
            return unreadable(pair, failed, err);
        }
        failed = io_write_full(copier->io, pair->to, copier->bytes, piece, at);
        if (failed != 0) {
            return unwritable(pair, failed, err);
        }
        at += piece;
        status = advance(copier, piece, err);
    }
    return status;
}

static enum status copy_whole(struct copier *copier, const struct pair *pair, struct err *err)
{
    int64_t size = copier->io->size(copier->io->context, pair->from);
    return size < 0 ? unreadable(pair, (int)size, err)
                    : copy_bytes(copier, pair, (uint64_t)size, err);
}

/* Copies a file that is only ever replaced as a whole. */
static enum status copy_file(
    struct copier *copier, const char *name, bool must_exist, struct err *err)
{
    struct pair pair = {
        .from_path = path_in(copier->how->from, name), .to_path = path_in(copier->how->to, name)};
    bool absent;
    enum status status = pair_open(copier, &pair, &absent, err);
    if (status != OK || absent) {
        return absent && must_exist ? unreadable(&pair, -ENOENT, err) : status;
    }
    return pair_close(copier, &pair, copy_whole(copier, &pair, err), err);
}

/* ---- closed segments ---------------------------------------------------------------------- */

static struct pair segment_pair(const struct copier *copier, uint64_t number)
{
    return (struct pair){.from_path = segment_path(copier->how->from, number),
        .to_path = segment_path(copier->how->to, number)};
}

static enum status corrupt(uint64_t segment, uint64_t offset, const char *wrong, struct err *err)
{
    (void)err_set(
        err, E_CORRUPT, "segment %" PRIu64 " offset %" PRIu64 ": %s", segment, offset, wrong);
    err_hint(err, "run once verify");
    return E_CORRUPT;
}

static enum status read_header(struct copier *copier, const struct pair *pair, uint64_t number,
    struct segment_header *ret_header, struct err *err)
{
    unsigned char block[JOURNAL_BLOCK_BYTES];
    int failed = io_read_full(copier->io, pair->from, block, sizeof block, 0);
    const char *wrong = failed == 0 ? segment_header_decode(block, ret_header) : NULL;
    if (failed != 0) {
        return unreadable(pair, failed, err);
    }
    return wrong == NULL ? OK : corrupt(number, 0, wrong, err);
}

struct closed {
    bool is_absent;   /* it was archived */
    bool is_squeezed; /* the copy is squeezed */
};

static enum status copy_closed(
    struct copier *copier, uint64_t number, struct closed *ret_closed, struct err *err)
{
    struct pair pair = segment_pair(copier, number);
    struct segment_header header = {0};
    *ret_closed = (struct closed){.is_absent = false};
    enum status status = pair_open(copier, &pair, &ret_closed->is_absent, err);
    if (status != OK || ret_closed->is_absent) {
        return status;
    }
    status = read_header(copier, &pair, number, &header, err);
    if (status == OK) {
        status = copy_whole(copier, &pair, err);
    }
    ret_closed->is_squeezed = header.squeezed;
    return pair_close(copier, &pair, status, err);
}

/* This segment and all older ones were archived: removes their copies. */
static void forget_older(struct copier *copier, uint64_t number)
{
    ASSERT(number >= copier->first);
    ASSERT(number < copier->last);
    for (uint64_t old = copier->first; old <= number; old++) {
        struct path path = segment_path(copier->how->to, old);
        (void)copier->io->unlink(copier->io->context, path.text); /* it may not be there yet */
    }
    copier->first = number + 1;
}

/* Copies newest first, down to those whose copies are already squeezed (JF7). */
static enum status copy_older(struct copier *copier, uint64_t newest, struct err *err)
{
    uint64_t squeezed = copier->squeezed;
    enum status status = OK;
    ASSERT(newest < copier->last);
    ASSERT(squeezed < copier->last); /* the current one is never squeezed */
    for (uint64_t number = newest; number >= copier->first && number > copier->squeezed; number--) {
        struct closed closed;
        status = copy_closed(copier, number, &closed, err);
        if (status != OK) {
            return status;
        }
        if (closed.is_absent) {
            forget_older(copier, number);
            break;
        }
        squeezed = closed.is_squeezed && number > squeezed ? number : squeezed;
    }
    ASSERT(squeezed >= copier->squeezed);
    copier->squeezed = squeezed;
    return status;
}

/* Copies the newest known segment, which now has a successor. */
static enum status copy_newest_closed(struct copier *copier, struct err *err)
{
    struct closed closed;
    ASSERT(copier->first <= copier->last);
    ASSERT(copier->squeezed < copier->last);
    enum status status = copy_closed(copier, copier->last, &closed, err);
    if (status == OK && closed.is_absent) {
        status = err_set(
            err, E_UNAVAILABLE, "segment %" PRIu64 " was archived during the copy", copier->last);
    }
    if (status == OK && closed.is_squeezed) {
        status = copy_older(copier, copier->last - 1, err);
        copier->squeezed = copier->last;
    }
    copier->last++;
    return status;
}

/* ---- the current segment ------------------------------------------------------------------ */

/* Reads the batch at the end again from the file. */
static enum cursor_result read_again(struct cursor *cursor, struct cursor_batch *ret_batch)
{
    struct segment_header header;
    uint64_t at = cursor->offset;
    ASSERT(at >= JOURNAL_BLOCK_BYTES);
    *ret_batch = (struct cursor_batch){.offset = at};
    ret_batch->wrong = cursor_start(cursor, &header); /* the file may have grown */
    if (ret_batch->wrong != NULL) {
        ret_batch->error = cursor->error;
        return cursor->error != 0 ? CURSOR_FAILED : CURSOR_DAMAGE;
    }
    cursor->offset = at;
    enum cursor_result result = cursor_next(cursor, ret_batch);
    cursor->offset = at;
    return result;
}

/*
 * Checks what follows the last whole batch. Zeros: the end. Anything else is a batch that is being
 * written, and is whole a moment later; or a torn batch; or damage, and then the copy must not end
 * here as if nothing had been lost (P11).
 */
static enum status check_end(struct cursor *cursor, uint64_t number, struct err *err)
{
    ASSERT(!cursor->squeezed);
    ASSERT(cursor->offset % JOURNAL_BLOCK_BYTES == 0); /* JF1 */
    for (unsigned tries = 0;; tries++) {
        struct cursor_batch batch;
        enum cursor_result result = read_again(cursor, &batch);
        int error = 0;
        bool has_more = cursor->offset < cursor->size &&
                        cursor_find(cursor, cursor->offset + 1, &error) < cursor->size;
        error = result == CURSOR_FAILED ? batch.error : error;
        if (error != 0) {
            return err_errno(err, error == -ENOMEM ? E_NOMEM : E_UNAVAILABLE, -error,
                "cannot read segment %" PRIu64, number);
        }
        if (result == CURSOR_BATCH || (result == CURSOR_END && !has_more)) {
            return OK;
        }
        if (tries >= SETTLE_TRIES) {
            return result == CURSOR_TORN && !has_more
                       ? OK
                       : corrupt(number, cursor->offset,
                             has_more ? "a batch is damaged and others follow it" : batch.wrong,
                             err);
        }
        clock_sleep_ms(SETTLE_SLEEP_MS);
    }
}

static enum status copy_batches(
    struct copier *copier, const struct pair *pair, struct cursor *cursor, struct err *err)
{
    struct cursor_batch batch;
    enum status status = copy_bytes(copier, pair, JOURNAL_BLOCK_BYTES, err);
    while (status == OK && cursor_next(cursor, &batch) == CURSOR_BATCH) {
        ASSERT(batch.offset >= JOURNAL_BLOCK_BYTES);
        ASSERT(batch.offset + batch.header.length == cursor->offset);
        int failed =
            io_write_full(copier->io, pair->to, batch.bytes, batch.header.length, batch.offset);
        status =
            failed == 0 ? advance(copier, batch.header.length, err) : unwritable(pair, failed, err);
    }
    return status;
}

/* Flushes the source: a batch may have been read before its flush. A read-only file system has
 * nothing to flush. */
static enum status flush_source(struct copier *copier, const struct pair *pair, struct err *err)
{
    int failed = copier->io->fdatasync(copier->io->context, pair->from);
    return failed == 0 || failed == -EROFS || failed == -EINVAL
               ? OK
               : err_errno(err, E_UNAVAILABLE, -failed, "cannot flush '%s'", pair->from_path.text);
}

static enum status copy_to_end(
    struct copier *copier, const struct pair *pair, struct cursor *cursor, struct err *err)
{
    enum status status = copy_batches(copier, pair, cursor, err);
    if (status == OK) {
        status = check_end(cursor, copier->last, err);
    }
    return status == OK ? flush_source(copier, pair, err) : status;
}

/* *ret_is_closed: it is already squeezed, so it has a successor and is not the current segment. */
static enum status copy_current(struct copier *copier, bool *ret_is_closed, struct err *err)
{
    struct pair pair = segment_pair(copier, copier->last);
    struct segment_header header = {0};
    struct cursor cursor;
    bool absent;
    ASSERT(copier->first <= copier->last);
    *ret_is_closed = false;
    enum status status = pair_open(copier, &pair, &absent, err);
    if (status != OK || absent) {
        return absent ? unreadable(&pair, -ENOENT, err) : status;
    }
    cursor_init(&cursor, copier->io, copier->mem, pair.from);
    const char *wrong = cursor_start(&cursor, &header);
    if (wrong != NULL) {
        status = cursor.error != 0 ? unreadable(&pair, cursor.error, err)
                                   : corrupt(copier->last, 0, wrong, err);
    }
    *ret_is_closed = header.squeezed;
    if (status == OK && !header.squeezed) {
        status = copy_to_end(copier, &pair, &cursor, err);
    }
    cursor_release(&cursor);
    return pair_close(copier, &pair, status, err);
}

static bool has_successor(const struct copier *copier)
{
    struct path path = segment_path(copier->how->from, copier->last + 1);
    int fd = copier->io->open(copier->io->context, path.text, O_RDONLY, 0);
    if (fd >= 0) {
        (void)copier->io->close(copier->io->context, fd);
    }
    return fd >= 0;
}

static enum status copy_newer(struct copier *copier, struct err *err)
{
    enum status status = OK;
    bool again = true;
    while (status == OK && again) {
        if (has_successor(copier)) {
            status = copy_newest_closed(copier, err);
        } else {
            status = copy_current(copier, &again, err);
        }
    }
    return status;
}

/* ---- all of it ---------------------------------------------------------------------------- */

/* Numbers have no gaps; the first segment ever is 1. */
static bool is_dense(const uint64_t *numbers, size_t count)
{
    return numbers[0] > 0 && numbers[count - 1] - numbers[0] == count - 1;
}

static enum status note_segments(
    struct copier *copier, const uint64_t *numbers, size_t count, struct err *err)
{
    if (count == 0 || !is_dense(numbers, count)) {
        (void)err_set(err, E_CORRUPT, count == 0 ? "'%s' has no segments" : "'%s' lacks a segment",
            copier->how->from);
        err_hint(err, "run once verify");
        return E_CORRUPT;
    }
    copier->first = numbers[0];
    copier->last = numbers[count - 1];
    copier->total = 0;
    for (size_t i = 0; i < count; i++) {
        copier->total += segment_file_bytes(copier->io, copier->how->from, numbers[i]);
    }
    return OK;
}

/* A name that is replaced while the directory is read may be missing from the list. So a list with
 * gaps is read again; after that, a missing segment was archived. */
static enum status find_segments(struct copier *copier, struct err *err)
{
    enum status status = E_CORRUPT;
    for (unsigned tries = 0; status == E_CORRUPT && tries < LIST_TRIES; tries++) {
        uint64_t *numbers = NULL;
        size_t count = 0;
        status = segment_list(copier->how->from, "segment", copier->mem, &numbers, &count, err);
        status = status == OK ? note_segments(copier, numbers, count, err) : status;
        mem_free(copier->mem, numbers);
    }
    return status;
}

enum status journal_copy(const struct journal_copy *how, struct err *err)
{
    struct copier copier = {.how = how,
        .io = how->io == NULL ? &io_system : how->io,
        .mem = how->mem == NULL ? &mem_libc : how->mem};
    copier.bytes = mem_alloc(copier.mem, COPY_BYTES);
    if (copier.bytes == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a copy");
    }
    enum status status = find_segments(&copier, err);
    status = status == OK ? advance(&copier, 0, err) : status;
    /* `reached` is copied before the batches, so that the copy reaches at least that far. */
    status = status == OK ? copy_file(&copier, "identity", true, err) : status;
    status = status == OK ? copy_file(&copier, "reached", false, err) : status;
    status = status == OK ? copy_file(&copier, "inherited", false, err) : status;
    status = status == OK ? copy_older(&copier, copier.last - 1, err) : status;
    status = status == OK ? copy_newer(&copier, err) : status;
    mem_wipe(copier.bytes, COPY_BYTES); /* it held the identity */
    mem_free(copier.mem, copier.bytes);
    int failed = status == OK ? io_sync_dir(copier.io, how->to) : 0;
    return failed == 0 ? status
                       : err_errno(err, E_UNAVAILABLE, -failed, "cannot flush '%s'", how->to);
}
