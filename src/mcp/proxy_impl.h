/*
 * proxy_impl: shared by the files of the proxy.
 *
 *   proxy.c         messages: what they are, and where they go
 *   outstanding.c   what is not sent, answered or settled yet
 *   calls.c         the life of a guarded call
 *   model_texts.c   what a model reads when Once answers itself
 */
#ifndef ONCE_MCP_PROXY_IMPL_H
#define ONCE_MCP_PROXY_IMPL_H

#include "mcp/proxy.h"
#include "mcp/reply.h"

/* ---- proxy.c ---- */

/* Write a line to the log. */
void proxy_say(struct mcp_proxy *proxy, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A line for the server. */
void proxy_to_server(struct mcp_proxy *proxy, struct slice line);
/* The answer to a request, alone or with its batch. The request still has to be ended. */
void proxy_answer(struct mcp_proxy *proxy, struct mcp_request *request, struct slice line);
/* It needs no answer any more: it is freed as soon as its jobs are back. */
void proxy_end(struct mcp_proxy *proxy, struct mcp_request *request);
/* Our own tools/list, from a cursor as written in a result; empty: from the beginning. False: out
 * of memory. */
bool proxy_list(struct mcp_proxy *proxy, struct slice cursor);
bool proxy_is_listing(const struct mcp_proxy *proxy);

/* Our list is complete, or never will be. */
void proxy_listed(struct mcp_proxy *proxy);
/* The request with this id; NULL: none. */
struct mcp_request *proxy_find(struct mcp_proxy *proxy, struct slice raw_id);
/* Free what is over and has no job with the ledger (M5). */
void proxy_sweep(struct mcp_proxy *proxy);

/* ---- calls.c ---- */

/* A call of a tool: fence it, or pass it on. The message was read from request->line. */
void call_read(struct mcp_proxy *proxy, struct mcp_request *call);
/* The list of tools is complete, or will not come. */
void call_listed(struct mcp_proxy *proxy, struct mcp_request *call);
void call_done(struct mcp_proxy *proxy, struct mcp_request *call, struct mcp_job *job);
/* The server's answer. */
void call_answered(struct mcp_proxy *proxy, struct mcp_request *call, struct slice line);
void call_cancelled(struct mcp_proxy *proxy, struct mcp_request *call);
/* It will not be answered. */
void call_lost(struct mcp_proxy *proxy, struct mcp_request *call, bool was_sent, const char *why);
bool call_is_fresh(const struct mcp_proxy *proxy, const struct mcp_request *call);
void call_server_gone(struct mcp_proxy *proxy, struct mcp_request *call);
void call_tick(struct mcp_proxy *proxy, struct mcp_request *call);
/* When the call needs a tick; INT64_MAX: never. */
int64_t call_due(const struct mcp_proxy *proxy, const struct mcp_request *call);
void call_send(struct mcp_proxy *proxy, struct mcp_request *call);

/* ---- model_texts.c: each appends an answer to out ---- */

struct mcp_words {
    const struct mcp_proxy *proxy;
    const struct mcp_request *call;
    struct buf *out;
};
/* Nothing happened: the call was refused. */
void words_refused(const struct mcp_words *words, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void words_conflict(const struct mcp_words *words, const struct mcp_job *job);
void words_running(const struct mcp_words *words, const struct mcp_job *job);
/* Nobody knows. why: a sentence without its full stop. */
void words_unknown(const struct mcp_words *words, const char *operation_id, uint64_t fence,
    const char *decision, const char *why);
void words_replay(const struct mcp_words *words, const struct mcp_job *job);

#endif
