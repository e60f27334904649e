/*
 * lines: cuts what one side of MCP writes on a pipe into messages, one a line.
 *
 * Promises:  a line is handed on whole, without its newline, or not at all. The result does not
 *            depend on how the bytes were split. A line longer than max is reported once and
 *            dropped, and the lines after it are read. A last line may lack its newline. An empty
 *            line is handed on too.
 * Does not:  read a descriptor; know what is in a line.
 */
#ifndef ONCE_MCP_LINES_H
#define ONCE_MCP_LINES_H

#include "base/buf.h"

enum { MCP_LINES_CHUNK_BYTES = 65536 }; /* room for one read */

struct mcp_lines {
    struct buf bytes; /* a line that has not ended yet, and during a read what follows it */
    size_t searched;  /* bytes that have no newline */
    size_t max;       /* bytes of a line */
    bool is_skipping; /* in the rest of a line that is too long */
    void (*line)(void *context, struct slice line); /* valid until it returns */
    void (*too_long)(void *context);
    void *context;
};

/* The caller sets line, too_long and context. */
void mcp_lines_init(struct mcp_lines *lines, const struct mem *mem, size_t max);
void mcp_lines_release(struct mcp_lines *lines);
/* Room for MCP_LINES_CHUNK_BYTES bytes; NULL: there is no memory, which sticks in bytes. */
char *mcp_lines_room(struct mcp_lines *lines) MUST_CHECK;
/* This many bytes were put into that room. May be 0. */
void mcp_lines_came(struct mcp_lines *lines, size_t len);
/* No more bytes will come. */
void mcp_lines_end(struct mcp_lines *lines);

#endif
