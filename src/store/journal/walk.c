/*
 * A walk over all files of a journal that reports damage and continues where possible.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/macros.h"
#include "store/journal/impl.h"

struct walker {
    const char *path;
    const struct io *io;
    const struct mem *mem;
    journal_visit visit;
    void *context;
    struct identity identity;
    struct journal_walk now;      /* what the visitor is shown */
    struct segment_header header; /* of the segment */
    struct mark at;               /* before the next batch; batch 0: not known */
    uint64_t last;                /* number of the last segment */
    bool stopped;
    bool out_of_memory;
};

/* A failure to read is not damage: the walk ends if there is no memory. */
static void walk_error(struct walker *walker, int error)
{
    if (error == -ENOMEM) {
        walker->out_of_memory = true;
        walker->stopped = true;
    }
}

static void walk_show(struct walker *walker, enum journal_walk_event event, uint64_t offset)
{
    walker->now.event = event;
    walker->now.offset = offset;
    if (!walker->stopped) {
        walker->stopped = !walker->visit(walker->context, &walker->now);
    }
    walker->now.text = NULL;
    walker->now.frame = NULL;
}

static void walk_damage(struct walker *walker, uint64_t offset, const char *text)
{
    walker->now.text = text;
    walk_show(walker, JOURNAL_WALK_DAMAGE, offset);
}

/* The visitor checks the content of a frame; here only the end of the evidence is tracked. */
static void walk_frame(struct walker *walker, const struct frame *frame)
{
    struct entry entry;
    if (frame->kind == FRAME_ENTRY && entry_decode(frame->payload, &entry) == NULL &&
        entry.kind == ENTRY_EVIDENCE) {
        walker->at.seq = entry.seq;
        walker->at.hash = entry.hash;
    }
    walker->now.frame = frame;
    walk_show(walker, JOURNAL_WALK_FRAME, frame->offset);
}

static void walk_batch(struct walker *walker, const struct cursor_batch *batch)
{
    walker->now.batch = &batch->header;
    walk_show(walker, JOURNAL_WALK_BATCH, batch->offset);
    if (walker->at.batch != 0 && batch->header.number != walker->at.batch) {
        walk_damage(walker, batch->offset, "a different batch is expected here");
        walker->at.batch = 0;
    } else if (batch->header.fence < walker->at.fence) {
        walk_damage(walker, batch->offset, "the fences go back");
    }
    struct frame frame;
    uint32_t at = 0;
    while (!walker->stopped && batch_frame(batch, &at, &frame)) {
        walk_frame(walker, &frame);
    }
    walker->at.batch = batch->header.number + 1;
    walker->at.fence = batch->header.fence;
    walker->now.batch = NULL;
}

/* Only zeros may follow the last batch of a segment. */
static void walk_rest(struct walker *walker, struct cursor *cursor, uint64_t from)
{
    for (uint64_t at = from; at < cursor->size && !walker->stopped;) {
        uint64_t left = cursor->size - at;
        size_t size = left < JOURNAL_BLOCK_BYTES ? (size_t)left : JOURNAL_BLOCK_BYTES;
        int error;
        const char *bytes = cursor_bytes(cursor, at, size, &error);
        if (bytes == NULL) {
            walk_error(walker, error);
            walk_damage(walker, at, "it cannot be read");
            return;
        }
        if (!bytes_zero(bytes, size)) {
            bool last = walker->now.segment == walker->last;
            walker->now.text = "something that is not a batch follows the last one";
            walk_show(walker, last ? JOURNAL_WALK_TAIL : JOURNAL_WALK_DAMAGE, at);
            return;
        }
        at += size;
    }
}

/* The next block at which a batch begins, to continue after damage; or the file's size. */
static uint64_t walk_resume(struct cursor *cursor, uint64_t from)
{
    for (;;) {
        int error = 0;
        uint64_t at = cursor_find(cursor, from, &error);
        if (error == 0) {
            return at;
        }
        from = at + 1; /* no batch begins at an unreadable block */
    }
}

/* Reports an invalid batch. true: continue at cursor->offset. */
static bool walk_bad(struct walker *walker, struct cursor *cursor, enum cursor_result result,
    const struct cursor_batch *batch)
{
    uint64_t next = cursor->squeezed ? cursor->size : walk_resume(cursor, batch->offset + 1);
    bool torn =
        result == CURSOR_TORN && walker->now.segment == walker->last && next == cursor->size;
    walk_error(walker, batch->error);
    walker->now.text = batch->wrong;
    walk_show(walker, torn ? JOURNAL_WALK_TAIL : JOURNAL_WALK_DAMAGE, batch->offset);
    if (torn) {
        walk_rest(walker, cursor, batch->offset + batch->header.length);
        return false;
    }
    walker->at.batch = 0;
    cursor->offset = next;
    return next < cursor->size;
}

static void walk_batches(struct walker *walker, struct cursor *cursor)
{
    while (!walker->stopped) {
        struct cursor_batch batch;
        uint64_t from = cursor->offset;
        enum cursor_result result = cursor_next(cursor, &batch);
        if (result == CURSOR_BATCH) {
            walk_batch(walker, &batch);
            walker->now.bytes_done += cursor->offset - from;
        } else if (result == CURSOR_END) {
            /* A batch after zeros: the batch that was here is lost. */
            uint64_t next = cursor->squeezed ? cursor->size : walk_resume(cursor, from + 1);
            if (next >= cursor->size) {
                walk_rest(walker, cursor, from);
                return;
            }
            walk_damage(walker, from, "a batch is missing here");
            walker->at.batch = 0;
            cursor->offset = next;
        } else if (!walk_bad(walker, cursor, result, &batch)) {
            return;
        }
    }
}

static const char *walk_header(struct walker *walker, uint64_t number)
{
    const struct segment_header *header = &walker->header;
    if (header->number != number ||
        memcmp(header->chain_id, walker->identity.keys.chain_id, 16) != 0) {
        return "this segment belongs elsewhere";
    }
    const struct mark *at = &walker->at;
    if (at->batch != 0 && (header->mark.batch != at->batch || header->mark.seq != at->seq ||
                              memcmp(&header->mark.hash, &at->hash, sizeof at->hash) != 0)) {
        return "the segment does not follow the one before it";
    }
    return NULL;
}

static void walk_segment(struct walker *walker, uint64_t number)
{
    struct path path = segment_path(walker->path, number);
    walker->now.segment = number;
    walker->now.header = NULL;
    int fd = walker->io->open(walker->io->context, path.text, O_RDONLY, 0);
    if (fd < 0) {
        walk_damage(walker, 0, "the segment cannot be opened");
        walker->at.batch = 0;
        return;
    }
    struct cursor cursor;
    cursor_init(&cursor, walker->io, walker->mem, fd);
    const char *wrong = cursor_start(&cursor, &walker->header);
    walk_error(walker, cursor.error);
    if (wrong == NULL) {
        walker->now.header = &walker->header;
        wrong = walk_header(walker, number);
    }
    walk_show(walker, JOURNAL_WALK_SEGMENT, 0);
    if (wrong != NULL) {
        walk_damage(walker, 0, wrong);
        walker->at.batch = 0;
        /* The seed of its checksums is known without the header. */
        cursor.seed = segment_seed(walker->identity.keys.chain_id, number);
        cursor.offset = cursor.offset == 0 ? JOURNAL_BLOCK_BYTES : cursor.offset;
    }
    if (walker->now.header != NULL && walker->at.batch == 0) {
        walker->at = walker->header.mark;
    }
    walk_batches(walker, &cursor);
    cursor_release(&cursor);
    (void)walker->io->close(walker->io->context, fd);
}

int identity_open(const struct io *io, const char *directory, struct path *ret_path)
{
    static const char *const names[] = {"identity", IDENTITY_UNFINISHED};
    int fd = -ENOENT;
    for (size_t i = 0; i < COUNT(names) && fd == -ENOENT; i++) {
        *ret_path = path_in(directory, names[i]);
        fd = io->open(io->context, ret_path->text, O_RDONLY, 0);
    }
    return fd;
}

int identity_read(
    const struct io *io, int fd, struct identity *ret_identity, const char **ret_wrong)
{
    unsigned char bytes[IDENTITY_BYTES];
    int64_t size = io->size(io->context, fd);
    int failed = size < 0 ? (int)size : 0;
    *ret_wrong = NULL;
    if (failed == 0 && size != IDENTITY_BYTES) {
        *ret_wrong = "it has not the right size";
    } else if (failed == 0) {
        failed = io_read_full(io, fd, bytes, sizeof bytes, 0);
        *ret_wrong = failed == 0 ? identity_decode(bytes, ret_identity) : NULL;
    }
    mem_wipe(bytes, sizeof bytes);
    (void)io->close(io->context, fd);
    return failed;
}

static enum status walk_identity(struct walker *walker, struct err *err)
{
    const char *wrong = NULL;
    struct path path;
    int fd = identity_open(walker->io, walker->path, &path);
    if (fd < 0) {
        return err_errno(err, E_UNAVAILABLE, -fd, "cannot open store '%s'", walker->path);
    }
    int failed = identity_read(walker->io, fd, &walker->identity, &wrong);
    if (failed != 0) {
        return err_errno(err, E_UNAVAILABLE, -failed, "cannot read '%s'", path.text);
    }
    return wrong == NULL ? OK
                         : err_set(err, E_CORRUPT, "the identity of '%s': %s", walker->path, wrong);
}

enum status journal_walk(const char *path, const struct io *io, const struct mem *mem,
    journal_visit visit, void *context, struct err *err)
{
    struct walker walker = {.path = path,
        .io = io == NULL ? &io_system : io,
        .mem = mem == NULL ? &mem_libc : mem,
        .visit = visit,
        .context = context};
    uint64_t *numbers = NULL;
    size_t count = 0;
    enum status status = walk_identity(&walker, err);
    if (status == OK) {
        status = segment_list(path, "segment", walker.mem, &numbers, &count, err);
    }
    if (status == OK && count == 0) {
        status = err_set(err, E_CORRUPT, "'%s' has no segments", path);
    }
    for (size_t i = 0; i < count && status == OK; i++) {
        walker.now.bytes_total += segment_file_bytes(walker.io, path, numbers[i]);
    }
    for (size_t i = 0; i < count && status == OK && !walker.stopped; i++) {
        walker.last = numbers[count - 1];
        if (i > 0 && numbers[i] != numbers[i - 1] + 1) {
            walker.now.segment = numbers[i - 1] + 1;
            walk_damage(&walker, 0, "the segment is missing");
            walker.at.batch = 0;
        }
        walk_segment(&walker, numbers[i]);
    }
    if (status == OK && walker.out_of_memory) {
        status = err_set(err, E_NOMEM, "out of memory for a batch of '%s'", path);
    }
    mem_free(walker.mem, numbers);
    mem_wipe(&walker.identity, sizeof walker.identity);
    return status;
}
