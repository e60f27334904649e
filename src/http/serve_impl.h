/*
 * serve_impl: shared by the files of the server: serve.c (the server), conn.c (a connection's
 * life), request.c (reading a request), answer.c (answers), spread.c (connections and loops),
 * pool.c (memory that is reused).
 *
 * Threads:   a worker and everything it points to belong to its loop, except where noted.
 */
#ifndef ONCE_HTTP_SERVE_IMPL_H
#define ONCE_HTTP_SERVE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/check.h"
#include "base/clock.h"
#include "http/body.h"
#include "http/serve.h"
#include "http/width.h"
#include "http/write.h"
#include "net/listen.h"
#include "net/stream.h"
#include "net/tls.h"

enum {
    SERVE_LISTENERS_MAX = 16,          /* a handful of addresses and sockets */
    SERVE_BUFFER_EXTRA = 16 << 10,     /* of a read buffer past the longest head: usual bodies */
    SERVE_KEPT_BYTES_MAX = 64 << 10,   /* a buffer that grew past this is not kept for the next */
    SERVE_POOLED_MAX = 256,            /* idle objects of a kind kept by a loop; the rest are
                                          freed */
    SERVE_FLUSH_BYTES = 64 << 10,      /* gathered answers are sent at this size */
    SERVE_GATHER_BYTES = 16 << 10,     /* a stable body past this is sent from where it is */
    SERVE_CHUNK_BYTES = 20,            /* the framing of a chunk: 16 digits and two line ends */
    SERVE_TURN_BYTES = 256 << 10,      /* of a streamed answer in one turn; then others continue */
    SERVE_OUT_BYTES_MAX = 256 << 20,   /* of answers not sent: one, as long as it may ever be */
    SERVE_ARENA_BYTES_MAX = 512 << 20, /* of one exchange: a backstop, handlers bound their own */
    SERVE_LINGER_MS = 5000,            /* after an answer that closes, for the client to read it */
    SERVE_LINGER_BYTES_MAX = 16 << 20, /* read and thrown away meanwhile */
    SERVE_OVER_MAX = 128,          /* connections above the limit that get a refusal at a time */
    SERVE_RATE_BYTES_PER_S = 1024, /* the least progress of a body or an answer */
    SERVE_SAMPLE_MS = 100,         /* how often it is measured how busy the loops are */
    SERVE_ID_RANDOM_BYTES = 10,    /* of one UUIDv7, 74 bits of them used */
};

struct conn;
struct worker;

/* Received bytes. [start, at) belong to the request being read or handled, [at, len) are
 * unread. Held by a connection only while there are any. */
struct inbox {
    struct inbox *next; /* in the pool */
    uint32_t cap;
    uint32_t start;
    uint32_t at;
    uint32_t len;
    char data[];
};

/* Answers on their way out. */
struct outbox {
    struct outbox *next;    /* in the pool */
    struct buf buf;         /* heads, and bodies that are not long */
    struct slice tail;      /* a long stable body after them; in the exchange's arena or static */
    size_t total;           /* bytes of both when it was first sent */
    struct net_write write; /* while the kernel has not accepted all of it */
};

/* How the client sees the end of a streamed answer. */
enum stream_framing {
    STREAM_NONE,    /* nothing of the body is sent: HEAD, 204, 304, or there is no client */
    STREAM_LENGTH,  /* after as many bytes as the head says */
    STREAM_CHUNKED, /* by the last chunk */
    STREAM_CLOSE,   /* by the end of the connection: HTTP/1.0, and after a 101 */
};

struct exchange {
    struct http_exchange shown; /* first: what a handler sees */
    struct exchange *next;      /* in the pool */
    struct conn *conn;          /* whose; it stays until the answer, gone or not */
    struct worker *worker;
    struct net_task wake;               /* any thread, through http_wake */
    atomic_bool is_woken;               /* any thread; in the loop's list */
    struct http_head head;              /* of the request */
    struct http_body body;              /* of the request */
    struct buf spilled;                 /* a body that is chunked or does not fit into the inbox */
    size_t held;                        /* bytes of spilled that count as in flight */
    struct arena arena;                 /* the handler's */
    struct http_put put;                /* of the answer */
    enum stream_framing framing;        /* of a streamed answer */
    uint64_t left;                      /* bytes of it still to be given, for STREAM_LENGTH */
    bool is_head_done;                  /* the head was read whole, so that its method counts */
    bool is_shown;                      /* a handler has seen the head, so that it must not move */
    bool is_beginning;                  /* the begin hook has it right now */
    bool is_taken;                      /* a handler has it, and must answer (CN3) */
    bool is_whole;                      /* the body was read whole, or is absent */
    bool is_spilled;                    /* the body is in spilled */
    bool is_continued;                  /* 100 Continue was sent */
    bool is_paused;                     /* no piece of the body is wanted */
    bool is_failed;                     /* no memory for the answer, or the client is gone */
    bool is_begun;                      /* http_answer_begin was called */
    bool is_streaming;                  /* http_answer_stream was called */
    bool wants_drained;                 /* http_answer_piece returned false, and drained must be
                                           called */
    bool is_broken_off;                 /* the answer must not look complete */
    bool closes;                        /* the connection ends with this answer */
    char id[HTTP_REQUEST_ID_BYTES_MAX]; /* a fresh request id */
};

/*
 * A connection.
 *
 *   (accepted) ──▶ MOVING ◀──▶ IDLE
 *
 *            first byte            end of head           end of body
 *   IDLE ───────────────▶ HEAD ───────────────▶ BODY ───────────────▶ HANDLED ─────▶ STREAMED
 *    ▲ ▲                   │ │ begin took it                         ▲  │ _end   _stream │
 *    │ │                   │ └──────────────▶ PIECES ────────────────┘  │                │ _finish
 *    │ │                   │ refused, late     │ cut, answered early    ▼                ▼
 *    │ └── answered, more ─┼───────────────────┼────────────────────▶ ANSWERED ◀─────────┘
 *    └─────── to come ─────┴───────────────────┘                        │ closes
 *   any other: broken, late, drained ──▶ CLOSING ──▶ (recycled)  ◀── LINGER
 *
 * Transitions, all through conn_move:
 *   MOVING → IDLE       conn_arrive     its loop, the first or a different one, takes it in
 *   IDLE → MOVING       conn_leave      it goes to a different loop
 *   IDLE → HEAD         request_idle    there are bytes
 *   HEAD → BODY         request_head    the reader is done; the begin hook is called in BODY
 *   BODY → PIECES       conn_begun      the hook wants the body in pieces
 *   BODY → HANDLED, STREAMED  conn_begun   it began to answer and wants nothing of the body
 *   BODY → HANDLED      request_body    the body is whole; the handler is called
 *   PIECES → HANDLED    request_pieces  the same; STREAMED if the answer is being streamed already
 *   HANDLED → STREAMED  conn_streams    the head of a streamed answer was written
 *   IDLE, HEAD, BODY → ANSWERED  conn_refuse   a problem document was written
 *   PIECES → ANSWERED   conn_cut        the body will not be whole; the handler has let go
 *   BODY, PIECES, HANDLED, STREAMED → ANSWERED  conn_answered   the handler ended its answer
 *   ANSWERED → IDLE     step_answered   the next request may be read
 *   ANSWERED → LINGER   step_answered   the answer was sent and the connection ends
 *   any but MOVING → CLOSING  conn_close   the stream is closed; a handler may have the exchange
 *   CLOSING → recycled  conn_recycle    the stream is closed and no handler has the exchange
 *
 * What holds (conn_check):
 *   CN1 IDLE at rest has no exchange, no inbox and no outbox: an idle connection is small.
 *   CN2 HEAD to ANSWERED have an exchange that is this connection's.
 *   CN3 A handler has the exchange (is_taken) in PIECES, HANDLED and STREAMED, and in CLOSING when
 *       it came from one of the last two (is_awaited). It has it in no other state, so that each
 *       exchange taken is ended exactly once: by its answer, or by cut. In BODY it owes nothing,
 *       but when cut is called instead of handle, it gives up what it has held since begin.
 *   CN4 Once a handler has seen the head (is_shown), bytes of the inbox before at do not move.
 *   CN5 While something is being sent (sending) no request is read or handled: a client that does
 *       not read our answers cannot make us do more work. Only pieces of the body whose own answer
 *       is being streamed continue; the handler that streams it pauses them.
 *   CN6 A streamed answer holds back its handler: while more than SERVE_FLUSH_BYTES wait, the
 *       handler is asked to pause, and the drained it is owed comes: at rest something is being
 *       sent, or the connection gets a further turn (is_later).
 *   CN7 While a body is paused, nothing of it is passed on and the client is not timed. What
 *       arrives fills the inbox and then stays in the kernel, and so does the end of the
 *       connection. So a handler that pauses must resume eventually. The body of a request that
 *       is_switching is not timed at all, and has no end but cut: it ends with its answer or its
 *       connection.
 *   CN8 No handler is called from within a handler's own call: what is noticed there waits for the
 *       end of the turn (conn_ready).
 *   CN9 MOVING is as small as IDLE at rest, in no list and in no wheel: the connection belongs to
 *       the task that takes it to conn->worker. It counts as open, so a drain waits for it, and the
 *       loop that it comes to closes it.
 */
enum conn_state {
    CONN_IDLE,
    CONN_HEAD,
    CONN_BODY,
    CONN_PIECES,
    CONN_HANDLED,
    CONN_STREAMED,
    CONN_ANSWERED,
    CONN_LINGER,
    CONN_MOVING,
    CONN_CLOSING,
};

struct conn {
    struct net_stream stream; /* first */
    struct net_deadline deadline;
    struct net_task arrival; /* MOVING: takes it to its worker */
    struct conn *prev;       /* in the worker's list */
    struct conn *next;       /* and in the pool */
    struct conn *ready_next; /* in the worker's list of connections to continue */
    struct conn *later_next; /* in its list of connections to continue in the next turn */
    struct conn *spent_next; /* in its list of those to recycle */
    struct worker *worker;
    struct exchange *exchange; /* NULL while idle */
    struct inbox *in;          /* NULL while there are no bytes */
    struct outbox *out;        /* being written; NULL while nothing is to be sent */
    struct outbox *sending;    /* being sent; NULL while nothing is */
    uint64_t since_ms;         /* of the state, or of the last time that enough of a body came */
    uint64_t progress;         /* bytes of the body at since_ms */
    uint64_t sending_ms;       /* since when, or the last time that enough had left */
    uint64_t unsent;           /* bytes at sending_ms */
    uint64_t turn;             /* the turn that turn_bytes are of */
    uint64_t turn_bytes;       /* of a streamed answer, sent in one turn */
    uint32_t lingered;         /* bytes thrown away */
    unsigned spread;           /* the server's when its loop was last chosen */
    uint16_t listener;         /* its number */
    uint8_t state;             /* enum conn_state */
    uint8_t peer_len;
    bool is_stepping : 1; /* conn_advance is at work */
    bool has_input : 1;   /* bytes or the end arrived while it was */
    bool is_ready : 1;    /* in the worker's ready list */
    bool is_later : 1;    /* in its list for the next turn */
    bool has_ended : 1;   /* the client sends no more */
    bool is_over : 1;     /* above connections_max: only refused */
    bool is_new : 1;      /* accepted, and on its way to its first loop */
    bool is_closed : 1;   /* the stream is closed */
    bool is_awaited : 1;  /* CLOSING, and a handler still has the exchange */
    char peer[NET_PEER_BYTES_MAX];
};

struct worker_stats { /* written by the loop, read by anybody */
    _Atomic uint64_t accepted;
    _Atomic uint64_t closed;
    _Atomic uint64_t moved; /* came here from a different loop */
    _Atomic uint64_t begun; /* handed to the handler */
    _Atomic uint64_t ended; /* answered by it */
    _Atomic uint64_t refused[6];
    _Atomic uint64_t bytes_in;
    _Atomic uint64_t bytes_out;
};

struct worker {
    struct net_loop loop;
    struct http_server *server;
    unsigned number;
    struct conn conns;  /* head of the circular list of all, those in CLOSING too */
    struct conn *ready; /* answered outside of conn_advance; newest first */
    struct conn *spent; /* to be recycled at the end of the turn */
    struct conn *later; /* connections that sent enough for this turn */
    uint64_t turns;     /* so far */
    struct net_listener listeners[SERVE_LISTENERS_MAX];
    bool has_handled;     /* since the last turn hook */
    bool is_draining;     /* no request is begun after the ones being read */
    _Atomic uint64_t cut; /* connections that were cut when a drain ended; any thread */
    struct net_task stop; /* any thread, through http_server_drain and _free */
    struct net_task cut_off;
    struct net_task end;
    struct net_task again; /* while there are any in later */
    struct net_task turn;  /* any thread, through http_server_turn … */
    atomic_bool has_turn;  /* … which posted it */

    struct inbox *inboxes; /* pools */
    struct outbox *outboxes;
    struct exchange *exchanges;
    struct conn *spare_conns;
    unsigned inbox_count;
    unsigned outbox_count;
    unsigned exchange_count;
    unsigned conn_count;

    uint64_t wall_at_ms; /* loop time at which wall_ms was read */
    int64_t wall_ms;
    int64_t date_s;     /* the second that date_line is of */
    char date_line[64]; /* "Date: …\r\n" */
    size_t date_len;
    unsigned char random[SERVE_ID_RANDOM_BYTES]; /* of the last request id */
    struct worker_stats stats;
};

struct server_listener {
    struct net_address address;
    struct net_tls_context *tls; /* NULL: plain */
    bool is_bound;               /* its socket file is ours to remove */
};

struct http_server {
    const struct mem *mem;
    struct http_server_limits limits; /* with the defaults filled in */
    http_handle begin;                /* NULL: none */
    http_handle handle;
    void (*turn)(void *context, unsigned loop);
    void (*end)(void *context, unsigned loop);
    unsigned (*fill)(void *context, unsigned loop);
    void *context;
    struct clock clock;
    uint32_t inbox_bytes; /* of a read buffer */
    struct worker *workers;
    unsigned worker_count;
    unsigned ready_count; /* workers whose loop was initialised */
    struct server_listener listeners[SERVE_LISTENERS_MAX];
    unsigned listener_count;
    bool follows_load;           /* as few loops serve as carry the load, from the first on */
    atomic_uint spread;          /* how many serve, and how often that changed; spread.c */
    atomic_uint next_worker;     /* whose turn the next connection is that has to be placed */
    struct width width;          /* the first loop's, as the rest of these */
    uint64_t sampled_ms;         /* when it was last measured how busy the loops are */
    uint64_t *busy_ns;           /* the processor time of each by then */
    struct net_deadline sampler; /* while more than one serves */
    atomic_uint open;            /* connections */
    atomic_uint awaited;         /* exchanges with a handler whose client went away */
    atomic_size_t body_bytes;    /* of bodies in flight */
    atomic_bool is_draining;     /* every answer from now on has Connection: close */
    atomic_uint drain_steps;     /* workers that did what drain asked, of each of its two steps */
    bool is_started;
    bool is_drained;
    bool is_hurried;      /* under lock: a drain no longer waits */
    pthread_mutex_t lock; /* with changed: for open to become 0 */
    pthread_cond_t changed;
};

static inline void stat_add(_Atomic uint64_t *stat, uint64_t value)
{
    /* One writer: a load and a store, not a locked addition. */
    uint64_t was = atomic_load_explicit(stat, memory_order_relaxed);
    atomic_store_explicit(stat, was + value, memory_order_relaxed);
}

static inline bool conn_has_bytes(const struct conn *conn)
{
    return conn->in != NULL && conn->in->at < conn->in->len;
}

/* Every change of state. */
static inline void conn_move(struct conn *conn, enum conn_state state)
{
    enum {
        ANSWERED = 1 << CONN_ANSWERED | 1 << CONN_CLOSING,
        TAKEN = 1 << CONN_HANDLED | 1 << CONN_STREAMED,
    };
    static const uint16_t nexts[] = {
        [CONN_IDLE] = 1 << CONN_HEAD | 1 << CONN_MOVING | ANSWERED,
        [CONN_HEAD] = 1 << CONN_BODY | ANSWERED,
        [CONN_BODY] = 1 << CONN_PIECES | TAKEN | ANSWERED,
        [CONN_PIECES] = TAKEN | ANSWERED,
        [CONN_HANDLED] = 1 << CONN_STREAMED | ANSWERED,
        [CONN_STREAMED] = ANSWERED,
        [CONN_ANSWERED] = 1 << CONN_IDLE | 1 << CONN_LINGER | 1 << CONN_CLOSING,
        [CONN_LINGER] = 1 << CONN_CLOSING,
        [CONN_MOVING] = 1 << CONN_IDLE,
        [CONN_CLOSING] = 0,
    };
    ASSERT((nexts[conn->state] & 1 << state) != 0);
    conn->state = (uint8_t)state;
    conn->since_ms = net_loop_now(&conn->worker->loop);
    conn->progress = 0;
}

/* A handler has the exchange from here on; CN3. */
static inline void conn_lend(struct conn *conn)
{
    ASSERT(!conn->exchange->is_taken);
    conn->exchange->is_taken = true;
    stat_add(&conn->worker->stats.begun, 1);
}

/* A connection that knows a different one has to be placed; spread.c. */
static inline unsigned spread_now(const struct http_server *server)
{
    return atomic_load_explicit(&server->spread, memory_order_relaxed);
}

/* CN8: never called from within a handler's call. May be NULL. */
static inline void conn_call(struct conn *conn, http_handle what)
{
    struct worker *worker = conn->worker;
    if (what != NULL) {
        worker->has_handled = true;
        what(worker->server->context, &conn->exchange->shown);
    }
}

/* pool.c: all NULL when memory is out; given back at the end of use. */
struct inbox *inbox_take(struct worker *worker) MUST_CHECK;
void inbox_return(struct worker *worker, struct inbox *inbox);
struct outbox *outbox_take(struct worker *worker) MUST_CHECK;
void outbox_return(struct worker *worker, struct outbox *outbox);
struct exchange *exchange_take(struct worker *worker) MUST_CHECK;
/* Forget the request but keep it with its connection, for the next. */
void exchange_clear(struct exchange *exchange);
void exchange_return(struct exchange *exchange);
struct conn *conn_take(struct worker *worker) MUST_CHECK;
void conn_return(struct worker *worker, struct conn *conn);
void pools_release(struct worker *worker);
/* Room for a piece of a body. E_LIMIT: past in_flight_bytes_max_mib; E_NOMEM. */
enum status exchange_hold(struct exchange *exchange, struct slice piece) MUST_CHECK;

/* answer.c */
void request_id_choose(struct exchange *exchange);
/* Answer what no handler sees, and close after it. */
void answer_refusal(struct exchange *exchange, unsigned status, const char *reason);

/* request.c: the steps of IDLE, HEAD, BODY and PIECES. True: something changed, step again. */
bool request_idle(struct conn *conn);
bool request_head(struct conn *conn);
bool request_body(struct conn *conn);
bool request_pieces(struct conn *conn);

/* conn.c */
/* Any state before HANDLED, and no handler has the exchange (any more): answer with a problem. */
void conn_refuse(struct conn *conn, unsigned status, const char *reason);
/* PIECES, and the body will never be whole. If an answer was begun, the client sees it break. */
void conn_cut(struct conn *conn, unsigned status, const char *reason);
/* Make room for the rest of a request that no handler has seen; CN4. */
void conn_compact(struct conn *conn);
void conn_answered(struct conn *conn);
/* The head of a streamed answer was written. */
void conn_streams(struct conn *conn);
/* Continue with it at the end of the turn, unless that happens anyway. */
void conn_ready(struct conn *conn);
/* The same in the next turn: others first. */
void conn_later(struct conn *conn);
/* Send what is gathered, unless something is being sent. False: the other side is gone; the caller
 * must close the connection. */
bool conn_push(struct conn *conn) MUST_CHECK;
/* CN6: not too much waits for the client, and not too much was sent to it in this turn. */
bool conn_has_room(const struct conn *conn);
void conn_advance(struct conn *conn);
extern const struct net_events conn_events;
/* Asserts what holds in its state; conn_is_at_rest: IDLE, and as small as CN1 says. */
void conn_check(const struct conn *conn);
bool conn_is_at_rest(const struct conn *conn);
/* Its deadline, and what happens then. */
void conn_arm(struct conn *conn);
void conn_due(struct net_deadline *deadline, uint64_t now_ms);
void conn_close(struct conn *conn);
void conn_drain(struct conn *conn);
void conn_recycle(struct conn *conn);
struct outbox *conn_out(struct conn *conn) MUST_CHECK;
/* Work that must wait for the end of the turn: answers given elsewhere, connections to recycle. */
void worker_ready(struct worker *worker);
void worker_again(struct net_task *task);
void worker_recycle(struct worker *worker);
/* One fewer open, or awaited, connection: wakes the thread that waits for zero. */
void server_less(struct worker *worker, atomic_uint *count);

/* spread.c */
void spread_init(struct http_server *server);
/* As many serve from now on: on the first loop, or before the loops run. */
void spread_set(struct http_server *server, unsigned serving);
unsigned spread_serving(const struct http_server *server);
/* A connection that was accepted on this loop, for any. */
void conn_accept(struct worker *worker, unsigned listener, int fd, struct slice peer);
/* IDLE, after a request, with a different server->spread: it may go to a different loop. */
void conn_place(struct conn *conn);
/* It has left its loop. */
void conn_left(struct net_stream *stream);
/* Once a turn of the first loop: see how many should serve. */
void spread_turn(struct worker *worker);

#endif
