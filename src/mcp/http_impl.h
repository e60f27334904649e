/*
 * http_impl: shared by http.c, which has the session, and exchange.c, which has one request.
 */
#ifndef ONCE_MCP_HTTP_IMPL_H
#define ONCE_MCP_HTTP_IMPL_H

#include "mcp/exchange.h"
#include "mcp/http.h"

enum {
    MCP_HTTP_QUEUED_BYTES_MAX = 8 << 20, /* for the client; meanwhile nothing is read (MH4) */
    MCP_HTTP_FIELD_BYTES_MAX = 8192,     /* of a header field */
};

struct mcp_http {
    struct mcp_http_options options;
    struct once_client *client;
    CURLM *multi;
    struct mcp_exchange *exchanges;
    struct buf initialize;                  /* the client's; empty: no session */
    char session[MCP_HTTP_FIELD_BYTES_MAX]; /* its id; "": the server gave none */
    char version[64];                       /* as agreed; "": not yet */
    bool has_no_listen;                     /* the server does not offer a stream for its own
                                               messages */
    bool is_hurried;
    bool is_closing;
    int64_t finish_ms;  /* when the client was gone; 0: it is there */
    enum status failed; /* a message could not be sent because memory ran out */
    int64_t now_ms;
};

/* ---- http.c ---- */

bool mcp_http_is_full(const struct mcp_http *http);
/* The answer to initialize. */
void mcp_http_opened(struct mcp_http *http, struct slice message);

/* ---- exchange.c ---- */

/* NULL: out of memory. */
struct mcp_exchange *mcp_exchange_new(
    struct mcp_http *http, enum mcp_exchange_kind kind, struct slice line) MUST_CHECK;
/* Every change of state. */
void mcp_exchange_move(struct mcp_exchange *exchange, enum mcp_exchange_state state);
/* It must not be RUNNING. */
void mcp_exchange_free(struct mcp_exchange *exchange);
/* Keep the parts of the message that its header fields repeat. */
void mcp_exchange_fields(struct mcp_exchange *exchange, const struct mcp_message *message);
/* Make it RUNNING. A failure to do so is reported like one to connect. */
void mcp_exchange_start(struct mcp_exchange *exchange);
/* The same, by GET, after the last event that came. */
void mcp_exchange_resume(struct mcp_exchange *exchange);
/* It has ended, or is given up: take it from libcurl. */
void mcp_exchange_stop(
    struct mcp_exchange *exchange, CURLcode failed, struct attempt_facts *ret_facts);
/* A message of the server for the proxy. If is_fine is false, only a message with this request's id
 * is accepted: anything may come with an error. */
void mcp_exchange_deliver(struct mcp_exchange *exchange, struct slice message, bool is_fine);

#endif
