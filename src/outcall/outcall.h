/*
 * outcall: one call to a remote HTTP server: started, captured, judged, and turned into the request
 * that settles its operation.
 *
 *     outcall_init → outcall_start → (capture) → done → outcall_settle → outcall_release
 *
 *            start             head                 the answer is whole, and fits
 *   READY ─────────▶ CALLING ────────▶ CAPTURING ────────────────────────────────────▶ OVER
 *                     │  ▲ │              │  │ longer than is kept, and there is a stream ▲
 *                     │  └─┘ again        │  └───────▶ HELD ────────────▶ STREAMING ──────┤
 *                     │                   │             │ outcall_go_on        it ended   │
 *                     │                   │             └─ it had ended meanwhile ────────┤
 *                     └───────────────────┴── failed; or longer, and there is no stream ──┘
 *
 * Transitions, all made by move, which refuses any other:
 *   READY → CALLING        outcall_start   the request is with the upstream
 *   CALLING → CALLING      on_failed       a request without effect, whose connection was dead
 *   CALLING → CAPTURING    on_head         status, fields and effect id are here
 *   CAPTURING → HELD       too_long        judged by its status alone; the upstream is paused
 *   HELD → STREAMING       outcall_go_on   the owner takes the next bytes
 *   the others → OVER      over            done follows
 *                          end_stream, outcall_go_on   stream.ended follows
 *                          outcall_cancel              no event follows
 *
 * What holds (outcall_check):
 *   O1  CALLING, CAPTURING and STREAMING have a call with the upstream that has had no last event
 *       (is_up); READY and OVER have none. HELD may: the upstream may end while it is held.
 *   O2  CAPTURING, HELD and STREAMING have the status of the answer; HELD and STREAMING its head.
 *   O3  captured and after are complete in HELD, STREAMING and OVER, and in no earlier state.
 *
 * Promises:  a started call has exactly one last event (done, or stream.ended after stream.begin)
 *            unless it is cancelled. The verdict follows from judge.h alone. At most bytes_max of
 *            an answer are kept.
 * Does not:  know a connection, a client or the engine: the caller submits the request that
 *            outcall_settle writes. If a client leaves, the call continues.
 * Ownership: the outcall is the owner's memory; it owns what it captures (arena, spool) until
 *            outcall_release. head, body, upstream and the rules' statuses must outlive it.
 * Threads:   all of it, and its events, on one loop.
 */
#ifndef ONCE_OUTCALL_OUTCALL_H
#define ONCE_OUTCALL_OUTCALL_H

#include "base/arena.h"
#include "base/limits.h"
#include "base/spool.h"
#include "core/decide.h"
#include "http/fields.h"
#include "http/upstream.h"
#include "outcall/judge.h"

struct outcall;

enum outcall_state {
    OUTCALL_READY, /* 0, so that a zeroed outcall is READY */
    OUTCALL_CALLING,
    OUTCALL_CAPTURING,
    OUTCALL_HELD,
    OUTCALL_STREAMING,
    OUTCALL_OVER,
};

/* Receives an answer that is too long to keep, or that its owner passes on while it is captured. */
struct outcall_stream {
    /* CAPTURING: the answer's head came. */
    void (*head)(struct outcall *call);
    /* CAPTURING: more of the body is there (outcall_peek). The call does not wait for its owner: a
     * slow owner reads it later. */
    void (*more)(struct outcall *call);
    /* The answer is too long to keep, and verdict says what its status means. captured and after
     * are the bytes so far. The owner passes them on, then calls outcall_go_on; or it cancels. */
    void (*begin)(struct outcall *call);
    /* The next bytes, valid during the call. False: pause until outcall_go_on. */
    bool (*piece)(struct outcall *call, struct slice piece);
    /* Last event. */
    void (*ended)(struct outcall *call, bool is_whole);
};

struct outcall {
    /* Set by the owner before outcall_start, and unchanged until the call is over. */
    struct upstream *upstream;
    unsigned loop;
    struct slice head; /* the whole request head */
    struct slice body;
    enum http_method method;
    struct upstream_timeouts timeouts;
    struct judge_rules rules;
    struct fields_kept keeps;            /* fields of the answer to keep besides the usual ones */
    struct slice request_id;             /* the request id in the head; empty: none is kept */
    const struct outcall_stream *stream; /* NULL: a long answer is an outcome without its body */
    bool has_no_effect;                  /* may be sent a second time, on a fresh connection */
    bool wants_outcome_only;             /* keep a body only if it is an outcome's */
    void (*done)(struct outcall *call);  /* last event; verdict and all below are set */
    void *context;

    /* The result. */
    enum outcall_state state;
    enum outcall_verdict verdict;
    enum outcall_point point;
    enum upstream_cause cause;               /* if not ANSWERED: why */
    struct err err;                          /* the reason as text; may name addresses */
    unsigned status;                         /* of the answer; 0: its head did not come */
    const struct http_head *answer;          /* NULL until it came, or if it is not kept */
    struct slice meta;                       /* the fields that are kept (fields_keep) */
    struct slice effect_id;                  /* the server's name for the effect; may be empty */
    struct slice captured;                   /* the body, or its beginning */
    struct slice after;                      /* bytes after it that are not kept */
    struct body_ref ref;                     /* of the body, for an outcome */
    char reason[LIMIT_REASON_BYTES_MAX + 1]; /* of a release or an unknown; empty otherwise */

    /* Private. */
    struct upstream_call up;
    struct arena arena;
    struct mem mem; /* allocates from the arena */
    struct spool spool;
    uint64_t bytes_max;
    uint64_t dropped; /* bytes of a body that is not kept */
    bool is_up;       /* O1 */
    bool is_again;    /* sent a second time */
    bool has_ended;   /* HELD: the upstream has ended … */
    bool is_whole;    /* … with the whole answer */
};

/* How an answer is captured. */
struct outcall_capture {
    const struct mem *mem;
    const char *spool_dir;
    uint64_t memory_bytes;       /* of a body, before it is written to a file */
    uint64_t bytes_max;          /* of a body; a longer one is not kept */
    struct spool_budget *budget; /* shared with other calls; NULL: none */
};
/* Sets all members to zero (of err only those that are read), and the state to READY. */
void outcall_clear(struct outcall *call);
/* Initialises a zeroed outcall, whose public members may already be set. */
void outcall_init(struct outcall *call, const struct outcall_capture *capture);
/* Starts the call. Events may come before it returns. */
void outcall_start(struct outcall *call);
/* CAPTURING: some of the body so far, from that offset on, in place or in the buffer; valid until
 * the next event. Empty: there is no more so far, or it cannot be read now. */
struct slice outcall_peek(const struct outcall *call, uint64_t from, char *buffer, size_t room);
/* HELD, and STREAMING after a refused piece: continues with the next bytes or the last event. */
void outcall_go_on(struct outcall *call);
/* Cancels the call: no event follows. Allowed in any state. */
void outcall_cancel(struct outcall *call);
/* Cancels, and frees everything captured. A zeroed outcall is fine. */
void outcall_release(struct outcall *call);

/* Writes the verdict into a request that has its key, operation and fence: kind, status, outcome,
 * reason; *ret_body is the outcome's. VERDICT_LATER is a retry; the caller sets delay and
 * policy. */
void outcall_settle(const struct outcall *call, struct request *request, struct slice *ret_body);

#endif
