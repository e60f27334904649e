#include "mcp/lines.h"

#include "base/check.h"

void mcp_lines_init(struct mcp_lines *lines, const struct mem *mem, size_t max)
{
    *lines = (struct mcp_lines){.max = max};
    /* At most max bytes stay when a chunk comes. */
    buf_init(&lines->bytes, mem, max + MCP_LINES_CHUNK_BYTES);
}

void mcp_lines_release(struct mcp_lines *lines)
{
    buf_release(&lines->bytes);
}

char *mcp_lines_room(struct mcp_lines *lines)
{
    struct buf *bytes = &lines->bytes;
    ASSERT(lines->searched == bytes->len);
    ASSERT(bytes->len <= lines->max);
    return buf_reserve(bytes, MCP_LINES_CHUNK_BYTES) == OK ? bytes->data + bytes->len : NULL;
}

/* A line that has ended, or all that there is of one. */
static void take(struct mcp_lines *lines, struct slice line)
{
    if (lines->is_skipping) {
        return;
    }
    if (line.len > lines->max) {
        lines->too_long(lines->context);
    } else {
        lines->line(lines->context, line);
    }
}

void mcp_lines_came(struct mcp_lines *lines, size_t len)
{
    struct buf *bytes = &lines->bytes;
    size_t from = 0;
    bytes->len += len;
    while (lines->searched < bytes->len) {
        const char *newline =
            memchr(bytes->data + lines->searched, '\n', bytes->len - lines->searched);
        if (newline == NULL) {
            break;
        }
        size_t end = (size_t)(newline - bytes->data);
        take(lines, slice_of(bytes->data + from, end - from));
        lines->is_skipping = false;
        from = lines->searched = end + 1;
    }
    if (from > 0) {
        memmove(bytes->data, bytes->data + from, bytes->len - from);
        bytes->len -= from;
    }
    if (lines->is_skipping || bytes->len > lines->max) {
        take(lines, buf_view(bytes));
        lines->is_skipping = true;
        bytes->len = 0;
    }
    lines->searched = bytes->len;
}

void mcp_lines_end(struct mcp_lines *lines)
{
    if (lines->bytes.len > 0) {
        take(lines, buf_view(&lines->bytes));
    }
    lines->bytes.len = lines->searched = 0;
    lines->is_skipping = false;
}
