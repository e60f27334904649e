/*
 * message_id: the ids of JSON-RPC requests and the tokens of their progress, compared by their
 * canonical form: a server may write one differently from its client.
 */
#ifndef ONCE_MCP_MESSAGE_ID_H
#define ONCE_MCP_MESSAGE_ID_H

#include "base/buf.h"

enum { MCP_ID_BYTES_MAX = 4096 }; /* ids are numbers and UUIDs */

/* Append the canonical form of an id or a token. False: it is not a string or a number, or too
 * long, or memory is short. */
bool mcp_id_canonical(const struct mem *mem, struct slice raw, struct buf *out);

#endif
