/*
 * serve: an HTTP/1.1 server on libuv loops, one thread each.
 *
 *     accept → read head → [100 Continue] → read body → handle → (elsewhere) → resume → write → …
 *
 * Promises:  a handler sees only whole, well-framed requests within the limits; what is refused
 *            before is answered here with a problem document. Each request is answered exactly
 *            once, in the order of the connection. A slow or silent client holds its connection and
 *            nothing else, and not for long (every wait has a limit). Every answer has a Request-Id
 *            (the client's when it is well formed, else a fresh UUIDv7), a Date and a length.
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

typedef void (*http_handle)(void *context, struct http_exchange *exchange);

enum { HTTP_REQUEST_ID_BYTES_MAX = 128 }; /* a longer one, or one with odd bytes, is replaced */

/* One request and its answer. */
struct http_exchange {
    /* The request, valid until it is answered. */
    const struct http_head *head;
    struct slice body;       /* whole and decoded */
    struct slice request_id; /* what the answer carries */
    struct slice peer;       /* "127.0.0.1:51234", "unix" */
    unsigned listener;      /* number of the listener it came through, as http_server_listen said */
    unsigned loop;          /* number of the loop it lives on, from 0 */
    bool is_gone;           /* the client went away; on the exchange's loop only */
    uint64_t started_nanos; /* clock_nanos at the first byte of the request */

    struct arena *arena; /* of this exchange; cleared after the answer is written */
    void *state;         /* the handler's own */
    http_handle resume;  /* the handler's: what http_wake leads to */

    /* Said of the answer, for the log. */
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

/* From any thread, once for each time it is awaited: run exchange->resume on its loop, soon. */
void http_wake(struct http_exchange *exchange);

/* Bounds of a server beside those of a message (http/limits.h). Zero means the default. */
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
    unsigned loops;        /* threads; 0: one a core */
    struct http_server_limits limits;
    http_handle handle; /* called for each whole request; answers, or sets resume and returns */
    /* After a loop turn in which something was handled; NULL: none. For what is cheaper once. */
    void (*turn)(void *context, unsigned loop);
    void *context;
};

struct http_tls_options {
    const char *cert_file; /* PEM, the chain; NULL: plain */
    const char *key_file;  /* PEM */
};

enum status http_server_new(const struct http_server_options *options,
    struct http_server **ret_server, struct err *err) MUST_CHECK;
/*
 * Bind before start: "127.0.0.1:7411", "[::1]:7411", "unix:/run/once.sock" (made with mode, an old
 * one that nobody serves is replaced). Port 0 is any; *ret_text is what was bound, until _free.
 * E_INVALID: the address is wrong. E_UNAVAILABLE: cannot bind; the text says why.
 */
enum status http_server_listen(struct http_server *server, const char *address, unsigned mode,
    const struct http_tls_options *tls, unsigned *ret_listener, const char **ret_text,
    struct err *err) MUST_CHECK;
enum status http_server_start(struct http_server *server, struct err *err) MUST_CHECK;
/* Read the certificates again, all or none; those connected keep theirs. Any thread. */
enum status http_server_tls_reload(struct http_server *server, struct err *err) MUST_CHECK;
/* Stop accepting, close idle connections, let what is in flight end, up to the bound; "Connection:
 * close" on each answer from now on. Returns when done. True: everything was answered. */
bool http_server_drain(struct http_server *server, int64_t ms_max);
/* A drain that is under way, or comes, waits for nobody any more. Any thread. */
void http_server_hurry(struct http_server *server);
/* After drain: no handler runs any more when it returns. Whoever might call http_wake has to have
 * stopped; until here a late answer is taken and dropped. NULL is fine. */
void http_server_free(struct http_server *server);

struct http_server_stats {
    uint64_t accepted;
    uint64_t open;       /* connections now */
    uint64_t in_flight;  /* exchanges not answered yet */
    uint64_t requests;   /* handled */
    uint64_t refused[6]; /* before a handler saw them: 400, 408, 413, 414 and 431, 503, others */
    uint64_t bytes_in;
    uint64_t bytes_out;
};
void http_server_stats(struct http_server *server, struct http_server_stats *ret_stats);

#endif
