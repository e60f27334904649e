/*
 * endpoint: the HTTP side of once mcp --listen: MCP clients over streamable HTTP, each of which has
 * its own session behind a channel (channel.h).
 *
 *     POST     a message, or a batch. A request is answered with one JSON document if its answer
 *              comes within MCP_STREAM_OPEN_MS and nothing precedes it; else with a stream of
 *              events
 *     GET      the server's own messages; with Last-Event-ID the rest of a stream that broke
 *     DELETE   ends the session
 *
 * Two generations of the protocol, distinguished by each message:
 *   sessions (2025-03-26 to 2025-11-25)   initialize opens one, with a server of its own; its id is
 *              in Mcp-Session-Id. A client that goes away cancels nothing, and its streams can be
 *              resumed: every event has an id.
 *   stateless (2026-07-28)   All clients with the same credentials share a server: a lane. Ids and
 *              progress tokens are made unique on the way in, and restored on the way out. A client
 *              that closes its stream cancels its request.
 *
 * Promises:  ME1 A message reaches the session of its credentials only (P9), and no message of a
 *                session reaches the client of a different session.
 *            ME2 A request is answered at most once, on its own stream.
 *            ME3 Nothing is done for a request whose Origin or Host is not allowed, or that has no
 *                token where one is needed.
 * Does not:  know what a tool is.
 * Threads:   the loop's, except where it says so.
 */
#ifndef ONCE_MCP_ENDPOINT_H
#define ONCE_MCP_ENDPOINT_H

#include "api/auth.h"
#include "http/serve.h"
#include "mcp/channel.h"
#include "net/loop.h"

enum {
    MCP_SESSIONS_MAX = 64,             /* each may be a process; the one that was idle longest is
                                         ended for a new one */
    MCP_SESSION_STREAMS_MAX = 256,     /* requests of a session that are not answered */
    MCP_SESSION_UNDELIVERED_MAX = 256, /* messages of a server that no stream takes */
    MCP_SESSION_KEPT_BYTES = 8 << 20,  /* events for Last-Event-ID; the last one in any case */
    MCP_SESSION_KEPT_MS = 300000,      /* how long */
    MCP_SESSION_IDLE_MS = 1800000,     /* without a request or a stream; then it is ended */
    MCP_SESSION_SPARE_MS = 60000,      /* after this long idle, it may be ended to make room for a
                                         new one */
    MCP_SESSION_END_MS = 10000,        /* for a server to end after its client has gone */
    MCP_STREAM_OPEN_MS = 1000,         /* without an answer: then the answer becomes a stream */
    MCP_STREAM_ALIVE_MS = 15000, /* between two keep-alive messages: less than the usual timeouts of
                                    proxies */
    MCP_ORIGINS_MAX = 32,
};

struct mcp_session;

/* What a session's thread gets; valid until it has left. */
struct mcp_session_facts {
    struct mcp_channel *channel;
    const char *principal;     /* of the client's credentials (gateway/principal.h) */
    const char *authorization; /* the field's value; "": there is none */
    unsigned rights;           /* of the token (enum config_right); every one without tokens */
};

struct mcp_endpoint_options {
    const struct mem *mem;
    const struct api_policy *policy; /* the tokens; may have none */
    unsigned rights;                 /* of enum config_right: a token needs one of them */
    const char *const *origins;      /* of web pages that may use it; ends with NULL */
    bool is_local;                   /* it listens on loopback addresses only */
    /* Start a thread for the session, which calls mcp_channel_leave at its end. False: it cannot,
     * and err says why. */
    bool (*open)(void *context, const struct mcp_session_facts *facts, struct err *err);
    void (*say)(void *context, const char *text); /* a line for the log; from the loop */
    void *context;
};

struct mcp_endpoint;

/* E_NOMEM. The handler of a server is mcp_endpoint_handle, with the endpoint as its context. */
enum status mcp_endpoint_new(const struct mcp_endpoint_options *options,
    struct mcp_endpoint **ret_endpoint, struct err *err) MUST_CHECK;
/* The loop of the server, before that is started. */
void mcp_endpoint_attach(struct mcp_endpoint *endpoint, struct net_loop *loop);
void mcp_endpoint_handle(void *endpoint, struct http_exchange *exchange);
/* Accept no more clients, and end every session; returns when their threads have ended. From any
 * thread but the loop's. */
void mcp_endpoint_stop(struct mcp_endpoint *endpoint);
/* The server's end hook: closes everything it has on the loop. */
void mcp_endpoint_end(void *endpoint, unsigned loop);
/* After the server is gone. NULL is fine. */
void mcp_endpoint_free(struct mcp_endpoint *endpoint);

#endif
