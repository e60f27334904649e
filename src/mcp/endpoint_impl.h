/*
 * endpoint_impl: shared by the files of the endpoint.
 *
 *   endpoint.c           who may come in, GET and DELETE, the start and the end
 *   endpoint_post.c      messages of clients
 *   endpoint_session.c   sessions, and what comes from them
 *   endpoint_stream.c    answers, alone or as events
 */
#ifndef ONCE_MCP_ENDPOINT_IMPL_H
#define ONCE_MCP_ENDPOINT_IMPL_H

#include "mcp/endpoint.h"
#include "mcp/message_id.h"
#include "mcp/reply.h"

enum {
    MCP_SESSION_ID_BYTES = 33,          /* 128 random bits in hex: it cannot be guessed */
    MCP_PRINCIPAL_BYTES = 96,           /* "api-key:" and a digest */
    MCP_AUTHORIZATION_BYTES = 16 << 10, /* as much as a head may have */
};

/* A request of a client that has no answer yet. */
struct mcp_pending {
    struct mcp_pending *next;
    struct buf id;         /* canonical, as the session has it */
    struct buf id_text;    /* as the client wrote it */
    struct buf token;      /* of its progress: canonical, as the session has it; may be empty */
    struct buf token_text; /* as the client wrote it */
};

/* Where messages for a client go: the answer to a POST or a GET. */
struct mcp_stream {
    struct mcp_stream *next; /* in the order of their start */
    struct mcp_session *session;
    uint64_t number;                /* in its session; the first half of an event's id */
    uint64_t events;                /* so far; the second half */
    struct http_exchange *exchange; /* NULL: the client went away */
    struct mcp_pending *pending;
    bool is_listening; /* a GET: it does not end by itself */
    bool is_begun;     /* as a stream of events */
    bool is_opening;   /* of initialize */
    size_t owed_bytes; /* given to the connection, which was full */
    uint64_t since_ms; /* its start, or the last sign of life */
};

/* An event that may be asked for again. */
struct mcp_event {
    struct mcp_event *next;
    uint64_t stream;
    uint64_t number;
    uint64_t at_ms;
    struct buf line;
};

struct mcp_session {
    struct net_task leaving; /* the thread has left */
    struct net_task ending;  /* its server has ended */
    struct mcp_session *next;
    struct mcp_endpoint *endpoint;
    struct mcp_channel channel;
    struct mcp_session_facts facts;
    char id[MCP_SESSION_ID_BYTES]; /* "": a lane */
    char principal[MCP_PRINCIPAL_BYTES];
    char authorization[MCP_AUTHORIZATION_BYTES]; /* wiped at its end */
    bool can_prime;  /* its protocol knows events without data (2025-11-25) */
    bool is_closing; /* the thread was asked to end */
    bool is_hurried;
    uint64_t used_ms;  /* the last time that a client was there */
    uint64_t close_ms; /* when it was asked to end */
    struct mcp_stream *streams;
    size_t stream_count;
    uint64_t numbers;         /* of streams, from 1, or of requests of a lane, so far */
    uint64_t listened;        /* events of the streams of GET, whose number is 0 */
    struct mcp_event *events; /* oldest first */
    size_t event_bytes;
    struct mcp_event *undelivered; /* oldest first */
    size_t undelivered_count;
};

struct mcp_endpoint {
    struct mcp_endpoint_options options;
    struct net_loop *loop;
    struct net_deadline janitor;
    struct mcp_session *sessions;
    size_t session_count;
    bool is_stopping;
    bool is_change_reported; /* a principal that may change was reported */
    pthread_mutex_t mutex;
    pthread_cond_t emptied; /* no session is left, after is_stopping */
    bool is_empty;          /* under mutex: that */
    struct net_task stop;
};

/* ---- endpoint.c ---- */

void mcp_endpoint_say(struct mcp_endpoint *endpoint, const char *text);
/* Answer with a JSON-RPC error. id: as received; empty: null. */
void mcp_endpoint_refuse(struct http_exchange *exchange, unsigned status, struct slice id, int code,
    const char *format, ...) __attribute__((format(printf, 5, 6)));
/* The client's principal; false: the request was answered. */
bool mcp_endpoint_principal(
    struct mcp_endpoint *endpoint, struct http_exchange *exchange, struct slice *ret_principal);
/* A field that may come at most once; empty: absent. False: it came twice, and the request was
 * answered. */
bool mcp_endpoint_field(struct http_exchange *exchange, const char *name, struct slice *ret_value);
/* The session that Mcp-Session-Id names, if it is the principal's; NULL: the request was
 * answered. */
struct mcp_session *mcp_endpoint_named(
    struct mcp_endpoint *endpoint, struct http_exchange *exchange, struct slice id);

/* ---- endpoint_post.c ---- */

void mcp_endpoint_post(
    struct mcp_endpoint *endpoint, struct http_exchange *exchange, unsigned rights);

/* ---- endpoint_session.c ---- */

/* What a new session needs to know of the request that opens it. */
struct mcp_opening {
    struct slice principal;
    struct slice authorization;
    unsigned rights;
    bool is_lane;
};
/* NULL: it cannot be made, and err says why. */
struct mcp_session *mcp_session_open(
    struct mcp_endpoint *endpoint, const struct mcp_opening *opening, struct err *err);
/* The lane of a principal; NULL: there is none. */
struct mcp_session *mcp_session_lane(const struct mcp_endpoint *endpoint, struct slice principal);
/* Asks its thread to end. Its streams end when the thread has ended. */
void mcp_session_close(struct mcp_session *session);
/* Do what is due. */
void mcp_session_tick(struct mcp_session *session, uint64_t now_ms);

/* ---- endpoint_stream.c ---- */

/* The answer to an exchange. NULL: out of memory. */
struct mcp_stream *mcp_stream_new(struct mcp_session *session, struct http_exchange *exchange);
/* It is unlinked and freed; an unfinished answer is broken off. */
void mcp_stream_free(struct mcp_stream *stream);
/* NULL: out of memory. */
struct mcp_pending *mcp_stream_await(struct mcp_stream *stream);
void mcp_pending_free(const struct mem *mem, struct mcp_pending *pending);
/* A message; is_last: nothing follows, and the stream is freed. */
void mcp_stream_send(struct mcp_stream *stream, struct slice line, bool is_last);
/* Begin it as a stream of events. */
void mcp_stream_begin(struct mcp_stream *stream);
/* Sends the events after that number of a stream that may be over. */
void mcp_stream_replay(struct mcp_stream *stream, uint64_t of, uint64_t after);
void mcp_stream_tick(struct mcp_stream *stream, uint64_t now_ms);
/* Ends it, if everything was sent. */
void mcp_stream_finish(struct mcp_stream *stream);
struct mcp_event *mcp_event_new(const struct mem *mem, struct slice line);
void mcp_event_free(const struct mem *mem, struct mcp_event *event);

#endif
