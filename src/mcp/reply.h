/*
 * reply: the lines that Once itself writes to an MCP client.
 *
 * Promises:  one JSON-RPC message, without a newline inside; the caller ends the line. A stored
 *            result keeps its bytes, except that Once's decision is added to its _meta.
 * Failures:  stick in the buffer.
 */
#ifndef ONCE_MCP_REPLY_H
#define ONCE_MCP_REPLY_H

#include "base/buf.h"

/* JSON-RPC 2.0 section 5.1. */
enum {
    MCP_PARSE_ERROR = -32700,
    MCP_INVALID_REQUEST = -32600,
    MCP_METHOD_NOT_FOUND = -32601,
    MCP_INVALID_PARAMS = -32602,
    MCP_INTERNAL_ERROR = -32603,
    MCP_HEADER_MISMATCH = -32020, /* these three: MCP 2026-07-28 */
    MCP_MISSING_CAPABILITY = -32021,
    MCP_UNSUPPORTED_VERSION = -32022,
    MCP_URL_ELICITATION = -32042, /* MCP 2025-11-25: the user must visit a page first */
};

/* What an answer of ours is about. */
struct mcp_reply {
    struct slice id;          /* the request's, as the client wrote it; empty: null */
    const char *decision;     /* of Once, for _meta; NULL: none */
    const char *operation_id; /* likewise */
};

/* The result of a tool that is this text; is_error: the tool failed. */
void mcp_reply_text(
    struct buf *out, const struct mcp_reply *reply, bool is_error, struct slice text);
/* A stored result: a JSON object without white space around it. */
void mcp_reply_result(struct buf *out, const struct mcp_reply *reply, struct slice result);
/* An error of the protocol. */
void mcp_reply_error(struct buf *out, struct slice id, int code, const char *text);

#endif
