/*
 * tools: the tools of a server, as far as Once has seen its tools/list, and the list as the client
 * gets it.
 *
 * Promises:  a tool that is read-only, or whose policy is pass, is listed unchanged. Every other
 *            tool's input schema gets two optional strings, and its annotations.idempotentHint is
 *            true. All other bytes stay.
 * Ownership: names are copied.
 */
#ifndef ONCE_MCP_TOOLS_H
#define ONCE_MCP_TOOLS_H

#include "base/buf.h"
#include "config/mcp.h"

enum { MCP_TOOLS_MAX = 4096 }; /* more than any client shows to a model */

struct mcp_tool {
    struct slice name;
    bool is_read_only;
    const char *key_name;     /* the argument that has the key; NULL: the tool has all the names */
    const char *request_name; /* the argument that has the request id; NULL as above */
    bool owns_camel;          /* the tool has its own argument idempotencyKey */
    bool owns_hidden;         /* the same of _idempotency_key */
    char
        *headers; /* arguments that HTTP repeats (x-mcp-header): a pointer and a name for each, each
                      terminated, and an empty one; NULL: none */
};

struct mcp_tools {
    const struct mem *mem;
    struct mcp_tool *items;
    size_t count;
    size_t room;      /* of items */
    bool is_open;     /* the first page was seen, and not yet the last */
    bool is_complete; /* every page was seen */
};

/* A line for the log about a tool. */
typedef void (*tools_say)(void *context, struct slice tool, const char *text);

/* A list on its way to the client. */
struct mcp_listing {
    const struct config_mcp *policy;
    struct slice result; /* of tools/list, as received */
    bool is_first;       /* it was asked for without a cursor */
    tools_say say;       /* once for each tool whose arguments have Once's names */
    void *context;
};

void tools_init(struct mcp_tools *tools, const struct mem *mem);
void tools_release(struct mcp_tools *tools);
/* The server says that its tools have changed: forget them. */
void tools_forget(struct mcp_tools *tools);
/* NULL: not seen. */
const struct mcp_tool *tools_find(const struct mcp_tools *tools, struct slice name);

/* Remember the tools of a page, and append it as the client gets it. *ret_cursor is the cursor of
 * the next page as written in the result; empty: there is none. False: it is not a list that can be
 * read, and nothing was appended. */
bool tools_list(struct mcp_tools *tools, const struct mcp_listing *listing, struct buf *out,
    struct slice *ret_cursor) MUST_CHECK;

/* Append the answer to initialize or server/discover. If the server has tools, adds the capability
 * of SEP-3182, tools.idempotency: a client that knows it sends params.idempotencyKey. result lies
 * in the line. */
void tools_announce(struct slice line, struct slice result, struct buf *out);

#endif
