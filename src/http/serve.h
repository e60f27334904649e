/*
 * serve: an HTTP/1.1 server on libuv loops, one thread each.
 *
 *     accept → head → [begin] → [100 Continue] → body → handle → (elsewhere) → resume → write → …
 *
 * Promises:  a handler sees only complete, well-framed requests within the limits; all others are
 *            answered here with a problem document. With a begin hook it may see the head first,
 *            and take the body in pieces. Each request is answered exactly once, in the order of
 *            the connection. A slow or silent client occupies only its connection, for a bounded
 *            time (every wait has a limit). Every answer has a Request-Id (the client's if it is
 *            well formed, else a new UUIDv7), a Date and a length.
 * Does not:  know a path, a token or an operation.
 * Ownership: an exchange belongs to the server; the handler may keep it until it answers. If the
 *            client goes away meanwhile the exchange stays until the answer, which is then dropped.
 * Threads:   handle, resume and turn run on the exchange's own loop. http_wake may be called from
 *            any thread; everything else about an exchange only from its loop.
 */
#ifndef ONCE_HTTP_SERVE_H
#define ONCE_HTTP_SERVE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "http/head.h"

struct http_server;
struct http_exchange;
struct net_loop;

typedef void (*http_handle)(void *context, struct http_exchange *exchange);

enum { HTTP_REQUEST_ID_BYTES_MAX = 128 }; /* a longer one, or one with odd bytes, is replaced */

/* A piece of a body, decoded, valid during the call. */
typedef void (*http_piece)(void *context, struct http_exchange *exchange, struct slice piece);

/* One request and its answer. */
struct http_exchange {
    /* The request, valid until it is answered. */
    const struct http_head *head;
    struct slice body;       /* whole and decoded */
    struct slice request_id; /* what the answer carries */
    struct slice peer;       /* "127.0.0.1:51234", "unix" */
    unsigned listener;       /* number of the listener it came through, from http_server_listen */
    unsigned loop;          /* number of the loop it lives on, from 0; the connection's next one may
                                live on a different one */
    bool is_gone;           /* the client went away; on the exchange's loop only */
    uint64_t started_nanos; /* clock_nanos at the first byte of the request */

    struct arena *arena; /* of this exchange; cleared after the answer is written */
    void *state;         /* the handler's own */
    http_handle resume;  /* the handler's: what http_wake leads to */

    /* For begin to set; see below. */
    http_piece piece;        /* NULL: the body is gathered in memory, for handle */
    http_handle cut;         /* the body will never be complete, and handle will not be called */
    uint64_t body_bytes_max; /* for this request; the server's limit until it is set */
    bool is_switching;       /* with piece: it asks for a different protocol. Whatever follows its
                                head is a piece, untimed, and cut ends it. begin pauses them
                                (http_body_pause) until the answer is 101 */

    /* The handler's, at any time. */
    http_handle gone;    /* the client went away after handle, or after an answer began without
                            pieces; the exchange still has to be answered */
    http_handle drained; /* of a streamed answer: everything given so far was sent; give more */
    bool has_date;       /* the given fields include a Date; the server adds none */

    /* About the answer, for the log. */
    unsigned status; /* 0 until answered */
};

/*
 * Answer, on the exchange's loop: begin, any number of fields, then end with the body. The body is
 * copied unless it is in the exchange's arena or static (is_stable). To HEAD the server leaves the
 * body out and keeps its length. After the end the exchange must not be touched.
 */
void http_answer_begin(struct http_exchange *exchange, unsigned status);
void http_answer_field(struct http_exchange *exchange, struct slice name, struct slice value);
/* Close the connection after this answer. */
void http_answer_close(struct http_exchange *exchange);
void http_answer_end(
    struct http_exchange *exchange, struct slice content_type, struct slice body, bool is_stable);

/*
 * A streamed answer: begin, fields, stream, any number of pieces, finish. Pieces are copied or sent
 * before the call returns. After status 101, for one that is_switching, pieces are not framed, and
 * the handler gives the field Upgrade. length is the body's, or one of these:
 */
enum {
    HTTP_LENGTH_CHUNKED = -1, /* not known: chunked, to HTTP/1.0 until the close */
    HTTP_LENGTH_ABSENT = -2,  /* no body and no length field: 204, 304, answers to HEAD */
};
void http_answer_stream(struct http_exchange *exchange, int64_t length);
/* False: enough for now. Give the next piece after drained, which is called once. If the client
 * goes away, gone is called instead (or cut, while the body is still arriving). A piece that is
 * given earlier is queued anyway. Without a client everything is dropped. Nothing is sent to HEAD.
 * More bytes than the declared length are a bug of the caller (ASSERT). */
bool http_answer_piece(struct http_exchange *exchange, struct slice piece);
/* The answer is incomplete: the connection is closed so that the client sees that the answer broke
 * off. After this the exchange must not be touched. */
void http_answer_finish(struct http_exchange *exchange, bool is_whole);

/*
 * A body in pieces. begin sets exchange->piece; each piece is passed on as it arrives, then handle
 * is called with an empty body. No pieces come between pause and go_on, and the client is not timed
 * meanwhile. If the body cannot be completed (the client is gone or too slow, its framing is
 * invalid, it exceeds its limit), cut is called instead of handle: the handler gives up the
 * exchange and must not touch it again (a wake in flight is dropped; no other may follow), and the
 * server sends the answer, if any; an answer that was begun breaks off. cut also works without
 * piece, for a handler that holds something from begin on. An answer may end before the body is
 * complete: then neither piece, cut nor handle is called, and the connection is closed.
 */
void http_body_pause(struct http_exchange *exchange);
void http_body_go_on(struct http_exchange *exchange);

/* On the exchange's loop, for handlers that are not called by the server but, for example, by an
 * upstream's answer: the turn hook must run before the loop waits again. */
void http_turn(struct http_exchange *exchange);
/* From any thread, once for each time that the handler waits: run exchange->resume on its loop,
 * soon. */
void http_wake(struct http_exchange *exchange);

/* Limits of a server, besides those of a message (http/limits.h). Zero means the default. */
struct http_server_limits {
    struct http_limits message;
    uint32_t connections_max;         /* 10,000; one more gets 503 and close */
    uint32_t in_flight_bytes_max_mib; /* of bodies being read or held, in MiB; 256; past it 503 */
    int64_t head_ms_max;  /* from the first byte of a head to its end; 10 s; past it 408 */
    int64_t body_ms_max;  /* from the head to the end of the body; 30 s, and a least rate of
                                 1 KiB/s beyond; past it 408 */
    int64_t idle_ms_max;  /* between requests; 75 s; past it a silent close */
    int64_t write_ms_max; /* an answer that the client does not read; 30 s; past it a close */
};

struct http_server_options {
    const struct mem *mem; /* NULL: the C library's */
    unsigned loops;        /* threads; 0: one per core */
    bool follows_load;     /* only as few of them serve as carry the load: connections move between
                              them while they are idle. False: all do, and none moves */
    struct http_server_limits limits;
    /* NULL, or called when a head is whole, before its body is read or asked for (100 Continue):
     * answers, or sets piece and the like, or does nothing. */
    http_handle begin;
    http_handle handle; /* called for each whole request; answers, or sets resume and returns */
    /* Called after a loop turn in which something was handled, or that http_server_turn asked for:
     * for work that is cheaper once per turn. May be NULL. */
    void (*turn)(void *context, unsigned loop);
    /* Called on each loop before it ends, after its last handler: closes everything else on the
     * loop, which ends when that is closed. May be NULL. */
    void (*end)(void *context, unsigned loop);
    /* With follows_load: how much is in use of what that loop has a limit of, in percent; it counts
     * as the processor's time does. On the first loop. May be NULL. */
    unsigned (*fill)(void *context, unsigned loop);
    void *context;
};

struct http_tls_options {
    const char *cert_file; /* PEM, the chain; NULL: plain */
    const char *key_file;  /* PEM */
};

enum status http_server_new(const struct http_server_options *options,
    struct http_server **ret_server, struct err *err) MUST_CHECK;
/*
 * Bind before start: "127.0.0.1:7411", "[::1]:7411", "unix:/run/once.sock" (created with mode; an
 * old socket that no process serves is replaced). Port 0 takes any free port; *ret_text is what was
 * bound, valid until _free. E_INVALID: the address is invalid. E_UNAVAILABLE: cannot bind; the text
 * says why.
 */
enum status http_server_listen(struct http_server *server, const char *address, unsigned mode,
    const struct http_tls_options *tls, unsigned *ret_listener, const char **ret_text,
    struct err *err) MUST_CHECK;
/* The turn hook of that loop runs soon. From any thread, while the loop runs; it does not block. */
void http_server_turn(struct http_server *server, unsigned loop);
/* The turn hook of that loop runs whenever the descriptor is readable; -1: no longer. On that loop.
 * False: it cannot; a loop watches one descriptor. */
bool http_server_watch(struct http_server *server, unsigned loop, int fd);
/* The loop of that number, for other users of it, such as upstream connections. */
struct net_loop *http_server_loop(struct http_server *server, unsigned loop);
enum status http_server_start(struct http_server *server, struct err *err) MUST_CHECK;
/* Read the certificates again, all or none, without using them yet; http_server_tls_switch must
 * follow. One thread at a time. */
enum status http_server_tls_load(struct http_server *server, struct err *err) MUST_CHECK;
/* Use what was loaded for new connections, or drop it; open ones keep theirs. */
void http_server_tls_switch(struct http_server *server, bool is_used);
/* Stop accepting, close idle connections, let requests in flight end, up to the bound; "Connection:
 * close" on each answer from now on. Returns when done. True: everything was answered. */
bool http_server_drain(struct http_server *server, int64_t ms_max);
/* A current or later drain no longer waits for clients. Any thread. */
void http_server_hurry(struct http_server *server);
/* Whether it was called. Any thread. */
bool http_server_is_hurried(struct http_server *server);
/* After drain: when it returns, no handler runs any more. All callers of http_wake must have
 * stopped before; until then a late answer is accepted and dropped. server may be NULL. */
void http_server_free(struct http_server *server);

struct http_server_stats {
    uint64_t accepted;
    uint64_t open;      /* connections now */
    uint64_t in_flight; /* exchanges not answered yet */
    uint64_t loops_serving;
    uint64_t moved;      /* connections, to a different loop */
    uint64_t requests;   /* handled */
    uint64_t refused[6]; /* before a handler saw them: 400, 408, 413, 414 and 431, 503, others */
    uint64_t bytes_in;
    uint64_t bytes_out;
    int64_t certificate_expiry; /* of the certificate that expires first, in seconds since 1970; 0:
                               there is none */
};
void http_server_stats(struct http_server *server, struct http_server_stats *ret_stats);

#endif
