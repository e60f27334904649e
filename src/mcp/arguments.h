/*
 * arguments: a call of a tool as Once needs it: the key that names it, and the call as the server
 * gets it, without what was meant for Once.
 *
 * A key may be in four places: the argument that tools/list gained (tools.h), an argument
 * idempotencyKey or _idempotency_key, params.idempotencyKey (SEP-3182), and the header field
 * Idempotency-Key. All keys that are given must be equal. Null and "" mean absent: models fill in
 * optional arguments like that.
 *
 * Promises:  an argument that the tool itself declares is not changed. If nothing has to be
 *            removed, the whole message is not changed.
 */
#ifndef ONCE_MCP_ARGUMENTS_H
#define ONCE_MCP_ARGUMENTS_H

#include "base/buf.h"
#include "base/err.h"
#include "canon/digest.h"
#include "canon/json.h"
#include "mcp/tools.h"

/* A message of the client that calls a tool. */
struct mcp_tool_call {
    struct slice text;             /* the message */
    const struct json_value *root; /* read from it */
    struct slice key;              /* that came with it in a header field; empty: none */
};

/* Slices point into the tree. */
struct mcp_arguments {
    struct slice key;        /* empty: none was given */
    struct slice request_id; /* likewise */
};

/* The name of the tool; empty: it is not a call of one. */
struct slice arguments_tool(const struct json_value *root);
/* Read the call. What the server gets is appended to line, and its arguments to payload ("{}" when
 * absent); failures stick in these. tool is NULL if it is not listed. E_INVALID: err says why, for
 * the model. */
enum status arguments_read(const struct mcp_tool_call *message, const struct mcp_tool *tool,
    struct buf *line, struct buf *payload, struct mcp_arguments *ret_arguments,
    struct err *err) MUST_CHECK;

enum { DERIVED_KEY_BYTES = sizeof "derived-" + 64 };
/* A key that only calls of this tool with equal arguments have. E_INVALID: the arguments have no
 * canonical form. */
enum status arguments_derive(struct slice tool, struct slice payload, const struct mem *mem,
    char ret_key[DERIVED_KEY_BYTES], struct err *err) MUST_CHECK;
/* Whether one of the pointers leads to a value; then also the fingerprint of all arguments. */
bool arguments_redacted(struct slice payload, const char *const *pointers, size_t count,
    const struct mem *mem, struct digest *ret_fingerprint);

#endif
