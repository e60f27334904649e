/*
 * outcall: one call of ours to somebody's HTTP server: started, captured, judged, and made into the
 * request that settles the operation it was made for.
 *
 *     outcall_init → outcall_start → (capture) → done → outcall_settle → outcall_release
 *
 *            start             head                 the answer is whole, and fits
 *   READY ─────────▶ CALLING ────────▶ CAPTURING ────────────────────────────────────▶ OVER
 *                     │  ▲ │              │  │ longer than is kept, and there is a stream ▲
 *                     │  └─┘ again        │  └───────▶ HELD ────────────▶ STREAMING ──────┤
 *                     │                   │              outcall_go_on         it ended   │
 *                     └───────────────────┴── failed; or longer, and there is no stream ──┘
 *
 * Transitions, all through move, which refuses any other:
 *   READY → CALLING        outcall_start   the request is with the upstream
 *   CALLING → CALLING      on_failed       a request without effect, whose connection was dead
 *   CALLING → CAPTURING    on_head         status, fields and effect id are here
 *   CAPTURING → HELD       too_long        judged by its status alone; the upstream is paused
 *   HELD → STREAMING       outcall_go_on   the owner takes what follows
 *   all of them → OVER     over            the last word: done or stream.ended follows, or nothing
 *                                          (outcall_cancel)
 *
 * What holds (outcall_check):
 *   O1  CALLING, CAPTURING and STREAMING have a call with the upstream that has had no last event
 *       (is_up); READY and OVER have none. HELD may: the upstream may end while it is held.
 *   O2  CAPTURING, HELD and STREAMING have the status of the answer; HELD and STREAMING its head.
 *   O3  what was captured (captured, after) is complete in HELD, STREAMING and OVER, and nowhere
 *       before.
 *
 * Promises:  a call that was started has exactly one last event (done, or stream.ended after
 *            stream.begin) unless it is cancelled. The verdict follows from judge.h alone. Never
 *            more than bytes_max of an answer are kept.
 * Does not:  know a connection, a client or the engine: whoever made the call submits what
 *            outcall_settle writes. A client may leave; the call goes on.
 * Ownership: the outcall is the owner's memory; what it captures is its own (arena, spool), until
 *            outcall_release. head, body, upstream and the rules' statuses have to outlive it.
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
    OUTCALL_READY, /* 0, so that a zeroed one is */
    OUTCALL_CALLING,
    OUTCALL_CAPTURING,
    OUTCALL_HELD,
    OUTCALL_STREAMING,
    OUTCALL_OVER,
};

/* Where an answer goes before it is over: one that is longer than is kept, and one that its owner
 * passes on while it is captured. */
struct outcall_stream {
    /* CAPTURING: its head came. */
    void (*head)(struct outcall *call);
    /* CAPTURING: a piece more is there (outcall_peek). The call does not wait for its owner to pass
     * it on: an owner that is slow reads it later. */
    void (*more)(struct outcall *call);
    /* It is, and verdict says what its status means. captured and after are what came so far. The
     * owner gives these away, then calls outcall_go_on; or cancels. */
    void (*begin)(struct outcall *call);
    /* What follows, valid during the call. False: enough, until outcall_go_on. */
    bool (*piece)(struct outcall *call, struct slice piece);
    /* Last event. */
    void (*ended)(struct outcall *call, bool is_whole);
};

struct outcall {
    /* Set by the owner before outcall_start, and unchanged until it is over. */
    struct upstream *upstream;
    unsigned loop;
    struct slice head; /* the whole request head */
    struct slice body;
    enum http_method method;
    struct upstream_timeouts timeouts;
    struct judge_rules rules;
    struct fields_kept keeps;            /* of the answer's fields, beside the usual ones */
    struct slice request_id;             /* that the head has; empty: none is kept */
    const struct outcall_stream *stream; /* NULL: what is too long is an outcome without its body */
    bool has_no_effect;                  /* may be sent a second time, on a fresh connection */
    bool wants_outcome_only;             /* the body of any other answer is not kept */
    void (*done)(struct outcall *call);  /* last event; verdict and all below are set */
    void *context;

    /* What became of it. */
    enum outcall_state state;
    enum outcall_verdict verdict;
    enum outcall_point point;
    enum upstream_cause cause;      /* not ANSWERED: why */
    struct err err;                 /* likewise; may name addresses */
    unsigned status;                /* of the answer; 0: its head did not come */
    const struct http_head *answer; /* NULL as long as it did not come, or where it is not kept */
    struct slice meta;              /* its fields that are kept (fields_keep) */
    struct slice effect_id;         /* the server's name for what it did; may be empty */
    struct slice captured;          /* its body, or the beginning of it */
    struct slice after;             /* a piece after it that was not kept */
    struct body_ref ref;            /* of the body, as an outcome has it */
    char reason[LIMIT_REASON_BYTES_MAX + 1]; /* of a release or an unknown; empty otherwise */

    /* Its own. */
    struct upstream_call up;
    struct arena arena;
    struct mem mem; /* that arena */
    struct spool spool;
    uint64_t bytes_max;
    uint64_t dropped; /* bytes of a body that is not kept */
    bool is_up;       /* O1 */
    bool is_again;    /* sent a second time */
    bool has_ended;   /* HELD: the upstream did */
    bool is_whole;    /* … with the whole answer */
};

/* How an answer is captured. */
struct outcall_capture {
    const struct mem *mem;
    const char *spool_dir;
    uint64_t memory_bytes;       /* of a body, before it goes to a file */
    uint64_t bytes_max;          /* of a body; one that is longer is not kept */
    struct spool_budget *budget; /* shared with others; NULL: none */
};
/* Of a zeroed one, whose other members may be set. */
void outcall_init(struct outcall *call, const struct outcall_capture *capture);
/* Events may come before it returns. */
void outcall_start(struct outcall *call);
/* CAPTURING: some of the body so far, from that offset on, in place or in the buffer; valid until
 * the next event. Empty: that is the end, or it cannot be read now. */
struct slice outcall_peek(const struct outcall *call, uint64_t from, char *buffer, size_t room);
/* HELD, and STREAMING after a piece was refused: give what follows, the last event too. */
void outcall_go_on(struct outcall *call);
/* No event comes after it. Fine in any state. */
void outcall_cancel(struct outcall *call);
/* Cancel, and let go of all that was captured. A zeroed one is fine. */
void outcall_release(struct outcall *call);

/* Write the verdict into a request that has its key, operation and fence: kind, status, outcome,
 * reason; *ret_body is the outcome's. VERDICT_LATER becomes a retry, whose delay and policy are the
 * caller's to set. */
void outcall_settle(const struct outcall *call, struct request *request, struct slice *ret_body);

#endif
