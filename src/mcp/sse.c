#include "mcp/sse.h"

void sse_init(struct sse *sse, const struct mem *mem, size_t bytes_max)
{
    *sse = (struct sse){.retry_ms = -1};
    buf_init(&sse->line, mem, bytes_max);
    buf_init(&sse->data, mem, bytes_max);
}

void sse_release(struct sse *sse)
{
    buf_release(&sse->line);
    buf_release(&sse->data);
}

static void begin_event(struct sse *sse)
{
    buf_clear(&sse->data);
    sse->data_lines = 0;
    sse->is_other = false;
    sse->has_id = false;
}

void sse_restart(struct sse *sse)
{
    buf_clear(&sse->line);
    begin_event(sse);
    sse->is_begun = false;
    sse->was_cr = false;
}

/* A blank line. */
static void dispatch(struct sse *sse)
{
    if (sse->has_id) {
        memcpy(sse->last_id, sse->next_id, sse->id_len + 1);
    }
    if (sse->data.len > 0 && !sse->is_other && buf_status(&sse->data) == OK) {
        sse->event(sse->context, buf_view(&sse->data));
    }
    if (buf_status(&sse->data) == OK) {
        begin_event(sse);
    }
}

/* An id that cannot be sent back in a header counts as absent: the stream cannot be resumed after
 * it. */
static void take_id(struct sse *sse, struct slice value)
{
    bool is_usable = value.len <= SSE_ID_BYTES_MAX;
    for (size_t i = 0; is_usable && i < value.len; i++) {
        is_usable = (unsigned char)value.data[i] >= ' ' && value.data[i] != 0x7f;
    }
    sse->has_id = true;
    sse->id_len = is_usable ? value.len : 0;
    if (sse->id_len > 0) {
        memcpy(sse->next_id, value.data, sse->id_len);
    }
    sse->next_id[sse->id_len] = '\0';
}

static void take_retry(struct sse *sse, struct slice value)
{
    int64_t ms = 0;
    for (size_t i = 0; i < value.len; i++) {
        if (value.data[i] < '0' || value.data[i] > '9') {
            return;
        }
        ms = ms > SSE_RETRY_MS_MAX ? ms : 10 * ms + (value.data[i] - '0');
    }
    sse->retry_ms = value.len == 0 ? sse->retry_ms : ms > SSE_RETRY_MS_MAX ? SSE_RETRY_MS_MAX : ms;
}

static void take_field(struct sse *sse, struct slice name, struct slice value)
{
    if (slice_is(name, "data")) {
        if (sse->data_lines++ > 0) {
            buf_char(&sse->data, '\n');
        }
        buf_slice(&sse->data, value);
    } else if (slice_is(name, "event")) {
        sse->is_other = value.len > 0 && !slice_is(value, "message");
    } else if (slice_is(name, "id")) {
        take_id(sse, value);
    } else if (slice_is(name, "retry")) {
        take_retry(sse, value);
    }
}

static void take_line(struct sse *sse, struct slice line)
{
    if (!sse->is_begun && slice_starts(line, SLICE_LIT("\xef\xbb\xbf"))) {
        line = slice_of(line.data + 3, line.len - 3);
    }
    sse->is_begun = true;
    if (line.len == 0) {
        dispatch(sse);
        return;
    }
    const char *colon = memchr(line.data, ':', line.len);
    size_t name_len = colon == NULL ? line.len : (size_t)(colon - line.data);
    size_t skip = colon == NULL ? 0 : name_len + 1 < line.len && colon[1] == ' ' ? 2 : 1;
    take_field(sse, slice_of(line.data, name_len),
        slice_of(line.data + name_len + skip, line.len - name_len - skip));
}

/* The first line end; NULL: none. */
static const char *find_end(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] == '\n' || text.data[i] == '\r') {
            return text.data + i;
        }
    }
    return NULL;
}

enum status sse_read(struct sse *sse, struct slice piece)
{
    if (piece.len > 0) {
        size_t skip = sse->was_cr && piece.data[0] == '\n' ? 1 : 0;
        piece = slice_of(piece.data + skip, piece.len - skip);
        sse->was_cr = false;
    }
    for (const char *end = find_end(piece); end != NULL; end = find_end(piece)) {
        size_t len = (size_t)(end - piece.data);
        size_t taken = len + 1;
        if (sse->line.len == 0) {
            take_line(sse, slice_of(piece.data, len));
        } else {
            buf_slice(&sse->line, slice_of(piece.data, len));
            take_line(sse, buf_status(&sse->line) == OK ? buf_view(&sse->line) : SLICE_LIT(":"));
            sse->line.len = buf_status(&sse->line) == OK ? 0 : sse->line.len;
        }
        if (*end == '\r' && taken < piece.len && piece.data[taken] == '\n') {
            taken++;
        } else {
            sse->was_cr = *end == '\r' && taken == piece.len;
        }
        piece = slice_of(piece.data + taken, piece.len - taken);
    }
    buf_slice(&sse->line, piece);
    return buf_status(&sse->line) != OK ? buf_status(&sse->line) : buf_status(&sse->data);
}
