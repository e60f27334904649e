/*
 * fuzz_sse: the reader of event streams on any bytes, in one piece and cut anywhere.
 *
 * The first byte says how it is cut. The events, the last id and the asked pause are the same for
 * both; no event is empty; a stream that is too large is refused by both.
 */
#include <stdint.h>

#include "base/check.h"
#include "mcp/sse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { EVENT_BYTES_MAX = 512 };

static void take_event(void *context, struct slice data)
{
    struct buf *all = context;
    ASSERT(data.len > 0 && data.len <= EVENT_BYTES_MAX);
    buf_slice(all, data);
    buf_char(all, '\0');
}

/* Every piece has at most step bytes; 0: one piece. */
static enum status read_all(struct sse *sse, struct buf *all, struct slice stream, size_t step)
{
    enum status status = OK;
    buf_init(all, &mem_libc, SIZE_MAX / 2);
    sse_init(sse, &mem_libc, EVENT_BYTES_MAX);
    sse->event = take_event;
    sse->context = all;
    for (size_t at = 0; at < stream.len && status == OK;) {
        size_t left = stream.len - at;
        size_t len = step == 0 || step > left ? left : step;
        /* Its own memory, so that a byte too far is seen. */
        char *piece = mem_alloc(&mem_libc, len);
        ASSERT(piece != NULL);
        memcpy(piece, stream.data + at, len);
        status = sse_read(sse, slice_of(piece, len));
        mem_free(&mem_libc, piece);
        at += len;
    }
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sse whole;
    struct sse cut;
    struct buf events;
    struct buf cut_events;
    if (size == 0) {
        return 0;
    }
    struct slice stream = slice_of(data + 1, size - 1);
    enum status status = read_all(&whole, &events, stream, 0);
    enum status cut_status = read_all(&cut, &cut_events, stream, (size_t)data[0] % 16 + 1);
    if (status == OK && cut_status == OK) {
        ASSERT(slice_equal(buf_view(&events), buf_view(&cut_events)));
        ASSERT(slice_equal(slice_str(whole.last_id), slice_str(cut.last_id)));
        ASSERT(whole.retry_ms == cut.retry_ms);
        ASSERT(whole.retry_ms >= -1 && whole.retry_ms <= SSE_RETRY_MS_MAX);
    }
    sse_release(&whole);
    sse_release(&cut);
    buf_release(&events);
    buf_release(&cut_events);
    return 0;
}
