/*
 * fuzz_mcp_lines: the reader of MCP's lines on any bytes, cut anywhere.
 *
 * The first two bytes say how the rest is cut. What is handed on is compared with the plain reading
 * of the same bytes: cut at newlines, and a piece that is too long is only reported.
 */
#include <stdint.h>

#include "base/check.h"
#include "mcp/lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LINE_BYTES_MAX = 24 };

static void put_line(void *context, struct slice line)
{
    struct buf *all = context;
    ASSERT(line.len <= LINE_BYTES_MAX);
    ASSERT(line.len == 0 || memchr(line.data, '\n', line.len) == NULL);
    buf_slice(all, line);
    buf_str(all, "\n<");
}

static void put_too_long(void *context)
{
    struct buf *all = context;
    buf_str(all, "\n!");
}

/* What the lines are, by the words of lines.h. */
static void read_plainly(struct buf *all, struct slice text)
{
    while (text.len > 0) {
        const char *newline = memchr(text.data, '\n', text.len);
        size_t len = newline == NULL ? text.len : (size_t)(newline - text.data);
        if (len > LINE_BYTES_MAX) {
            put_too_long(all);
        } else {
            put_line(all, slice_of(text.data, len));
        }
        len += newline != NULL;
        text = slice_of(text.data + len, text.len - len);
    }
}

/* Pieces of first bytes, then of step bytes. */
static void read_cut(struct buf *all, struct slice text, size_t first, size_t step)
{
    struct mcp_lines lines;
    mcp_lines_init(&lines, &mem_libc, LINE_BYTES_MAX);
    lines.line = put_line;
    lines.too_long = put_too_long;
    lines.context = all;
    for (size_t at = 0, len = first; at < text.len; at += len, len = step) {
        len = len > text.len - at ? text.len - at : len;
        len = len > MCP_LINES_CHUNK_BYTES ? MCP_LINES_CHUNK_BYTES : len;
        char *room = mcp_lines_room(&lines);
        ASSERT(room != NULL);
        memcpy(room, text.data + at, len);
        mcp_lines_came(&lines, len);
        ASSERT(lines.bytes.len <= LINE_BYTES_MAX);
    }
    mcp_lines_end(&lines);
    mcp_lines_release(&lines);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf plain;
    struct buf cut;
    if (size < 2) {
        return 0;
    }
    struct slice text = slice_of(data + 2, size - 2);
    buf_init(&plain, &mem_libc, SIZE_MAX / 2);
    buf_init(&cut, &mem_libc, SIZE_MAX / 2);
    read_plainly(&plain, text);
    read_cut(&cut, text, data[0], (size_t)data[1] + 1);
    ASSERT(slice_equal(buf_view(&plain), buf_view(&cut)));
    buf_release(&plain);
    buf_release(&cut);
    return 0;
}
