/*
 * Reads one batch after another from a segment's file. Each is checked as a whole before it is
 * returned.
 */
#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "store/journal/impl.h"

enum { CURSOR_WINDOW_BYTES = 1 << 20 }; /* many small batches in one read */

void cursor_init(struct cursor *cursor, const struct io *io, const struct mem *mem, int fd)
{
    *cursor = (struct cursor){.io = io, .mem = mem, .fd = fd, .window_bytes = CURSOR_WINDOW_BYTES};
}

void cursor_release(struct cursor *cursor)
{
    if (cursor->mem != NULL) {
        mem_free(cursor->mem, cursor->window);
        cursor->window = NULL;
    }
}

static int window_reserve(struct cursor *cursor, size_t size)
{
    if (size <= cursor->window_cap) {
        return 0;
    }
    char *window = mem_resize(cursor->mem, cursor->window, size);
    if (window == NULL) {
        return -ENOMEM;
    }
    cursor->window = window;
    cursor->window_cap = size;
    return 0;
}

const char *cursor_bytes(struct cursor *cursor, uint64_t offset, size_t size, int *ret_error)
{
    ASSERT(offset <= cursor->size && size <= cursor->size - offset);
    if (offset >= cursor->window_at && offset + size <= cursor->window_at + cursor->window_len) {
        return cursor->window + (offset - cursor->window_at);
    }
    uint64_t left = cursor->size - offset;
    size_t want = size > cursor->window_bytes ? size : cursor->window_bytes;
    want = left < want ? (size_t)left : want;
    int failed = window_reserve(cursor, want == 0 ? 1 : want);
    if (failed == 0) {
        cursor->window_len = 0;
        failed = io_read_full(cursor->io, cursor->fd, cursor->window, want, offset);
    }
    if (failed != 0) {
        *ret_error = failed;
        return NULL;
    }
    cursor->window_at = offset;
    cursor->window_len = want;
    return cursor->window;
}

const char *cursor_start(struct cursor *cursor, struct segment_header *ret_header)
{
    int64_t size = cursor->io->size(cursor->io->context, cursor->fd);
    cursor->error = size < 0 ? (int)size : 0;
    if (size < JOURNAL_BLOCK_BYTES) {
        return size < 0 ? "its size cannot be found out" : "it is shorter than its header";
    }
    cursor->size = (uint64_t)size;
    cursor->window_len = 0;
    int error = 0;
    const char *block = cursor_bytes(cursor, 0, JOURNAL_BLOCK_BYTES, &error);
    if (block == NULL) {
        cursor->error = error;
        return error == -ENOMEM ? "out of memory" : "its header cannot be read";
    }
    const char *wrong = segment_header_decode((const unsigned char *)block, ret_header);
    if (wrong == NULL) {
        cursor->offset = JOURNAL_BLOCK_BYTES;
        cursor->seed = segment_seed(ret_header->chain_id, ret_header->number);
        cursor->squeezed = ret_header->squeezed;
    }
    return wrong;
}

static enum cursor_result cursor_failed(struct cursor_batch *batch, int error)
{
    batch->error = error;
    batch->wrong = error == -ENOMEM ? "out of memory" : "it cannot be read";
    return CURSOR_FAILED;
}

static enum cursor_result cursor_damage(struct cursor_batch *batch, const char *wrong)
{
    batch->wrong = wrong;
    return CURSOR_DAMAGE;
}

/* Whether there is a batch header at the offset. */
static enum cursor_result cursor_header(struct cursor *cursor, struct cursor_batch *batch)
{
    uint64_t left = cursor->offset < cursor->size ? cursor->size - cursor->offset : 0;
    if (left == 0) {
        return CURSOR_END;
    }
    size_t size = left < JOURNAL_SECTOR_BYTES ? (size_t)left : JOURNAL_SECTOR_BYTES;
    int error;
    const char *bytes = cursor_bytes(cursor, cursor->offset, size, &error);
    if (bytes == NULL) {
        return cursor_failed(batch, error);
    }
    if (!cursor->squeezed && bytes_zero(bytes, size)) {
        return CURSOR_END;
    }
    if (size < BATCH_HEADER_BYTES) {
        return cursor_damage(batch, "the file ends inside of a batch");
    }
    batch->wrong = batch_header_decode(
        (const unsigned char *)bytes, cursor->seed, cursor->offset, &batch->header);
    return batch->wrong == NULL ? CURSOR_BATCH : CURSOR_DAMAGE;
}

enum cursor_result cursor_next(struct cursor *cursor, struct cursor_batch *ret_batch)
{
    *ret_batch = (struct cursor_batch){.offset = cursor->offset};
    enum cursor_result result = cursor_header(cursor, ret_batch);
    if (result != CURSOR_BATCH) {
        return result;
    }
    const struct batch_header *header = &ret_batch->header;
    uint64_t align = cursor->squeezed ? 1 : JOURNAL_BLOCK_BYTES;
    if (header->length % align != 0) {
        return cursor_damage(ret_batch, "the batch's length is not a multiple of the block");
    }
    if (header->length > cursor->size - cursor->offset) {
        return cursor_damage(ret_batch, "the file ends inside of a batch");
    }
    int error;
    ret_batch->bytes = cursor_bytes(cursor, cursor->offset, header->length, &error);
    if (ret_batch->bytes == NULL) {
        return cursor_failed(ret_batch, error);
    }
    const char *wrong = batch_check(ret_batch->bytes, header, cursor->seed, cursor->offset);
    if (wrong != NULL) {
        ret_batch->wrong = wrong;
        /* More zero sectors than were written: some never reached the disk (JF3). */
        uint32_t zero_sectors = batch_zero_sectors(ret_batch->bytes, header->content);
        bool torn = !cursor->squeezed && zero_sectors > header->zero_sectors;
        return torn ? CURSOR_TORN : CURSOR_DAMAGE;
    }
    cursor->offset += header->length;
    return CURSOR_BATCH;
}

uint64_t cursor_find(struct cursor *cursor, uint64_t from, int *ret_error)
{
    for (uint64_t at = block_up(from); at + BATCH_HEADER_BYTES <= cursor->size;
         at += JOURNAL_BLOCK_BYTES) {
        struct batch_header header;
        const char *bytes = cursor_bytes(cursor, at, BATCH_HEADER_BYTES, ret_error);
        if (bytes == NULL ||
            batch_header_decode((const unsigned char *)bytes, cursor->seed, at, &header) == NULL) {
            return at;
        }
    }
    return cursor->size;
}

bool batch_frame(const struct cursor_batch *batch, uint32_t *at, struct frame *ret_frame)
{
    if (*at < BATCH_HEADER_BYTES) {
        *at = BATCH_HEADER_BYTES;
    }
    if (*at >= batch->header.content) {
        return false;
    }
    const char *bytes = batch->bytes + *at;
    *ret_frame = (struct frame){.kind = (enum frame_kind)le32_get(bytes + 4),
        .offset = batch->offset + *at,
        .payload = slice_of(bytes + FRAME_HEADER_BYTES, le32_get(bytes))};
    *at += FRAME_HEADER_BYTES + (uint32_t)ret_frame->payload.len;
    return true;
}
