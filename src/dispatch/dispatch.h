/*
 * dispatch: everything that Once calls by itself: effects to their providers, commands and
 * deliveries to their handlers. One machine for all kinds; what differs is in a table (struct
 * dispatch_kind) that the kind's own module gives.
 *
 *     enqueued ──▶ QUEUED ──▶ CLAIMING ──▶ CALLING ──▶ SETTLING ──▶ over
 *                 (impl.h has the whole diagram, its transitions and what holds)
 *
 * Promises:  no connection is opened before the claim is durable (P6). Each attempt is settled
 *            under its own fence (P4). What was sent and not answered is unknown, or sent again
 *            where the kind says that this is safe (P5). Queues are bounded: what does not fit
 *            stays in the store, is found by its due and is never dropped (P14). Lanes take turns:
 *            the backlog of one tenant or type keeps no other waiting.
 * Does not:  know what an effect, a command or a delivery is.
 * Crash:     before the claim is durable: nothing happened, and it is found again. After it and
 *            before its settling is durable: unknown at the next start, or when the holder is seen
 *            to be gone, though perhaps nothing was sent: nobody can tell.
 * Threads:   all of the machine, and the functions of a kind but for target and lane, on loop 0 of
 *            the server. dispatch_offer and the functions about plans from any thread.
 */
#ifndef ONCE_DISPATCH_DISPATCH_H
#define ONCE_DISPATCH_DISPATCH_H

#include "base/uuid.h"
#include "base/vault.h"
#include "dispatch/breaker.h"
#include "door/door.h"
#include "http/fields.h"
#include "outcall/outcall.h"
#include "outcall/upstreams.h"

struct dispatch;
struct dispatch_call;
struct dispatch_gauge; /* what is known of a target: its queue, breaker and rates; impl.h */
struct dispatch_plan;

/* Where calls go: a connector, or a handler. */
struct dispatch_target {
    /* The kind's. Texts live as long as the plan. */
    const char *name; /* unique among the targets of its kind; for figures and logs */
    struct upstreams_wanted upstream;
    struct upstream_timeouts timeouts;
    uint32_t concurrency; /* calls at a time, of this process; 0: 64 */
    double rate;          /* calls a second of each tenant, of this process; 0: no limit */
    struct breaker_rule breaker;
    uint64_t answer_bytes_max; /* of an answer that is kept; 0: 1 MiB */

    /* The dispatcher's. */
    struct upstreams_one *one;
    struct dispatch_gauge *gauge;
};

/* What to do about a record that nobody knows the outcome of. */
enum dispatch_unknown {
    DISPATCH_HOLD,  /* nothing: a person decides (S3) */
    DISPATCH_AGAIN, /* the same request again, which the provider recognises (S1) */
    DISPATCH_ASK,   /* ask the provider (S4) */
};

/* What one kind of record makes of a call. Functions are on loop 0 unless they say otherwise. */
struct dispatch_kind {
    const char *name; /* "effects" */
    enum record_kind kind;
    /* Where it goes; NULL: the configuration has no place for it, and it stays as it is. Any
     * thread: must not change the plan. */
    struct dispatch_target *(*target)(
        const struct dispatch_plan *plan, const struct record *record);
    /* Records with the same value are called one after another; empty: in any order. May be NULL.
     * Any thread. */
    struct slice (*lane)(
        const struct dispatch_plan *plan, const struct record *record, struct arena *arena);
    /* What to do about an unknown one. NULL: hold. To send it again it may set its detail, in the
     * arena. */
    enum dispatch_unknown (*unknown)(const struct dispatch_plan *plan, const struct record *record,
        int64_t now_ms, struct arena *arena, struct slice *ret_detail);
    /* Set what is sent: see struct dispatch_call. E_NOMEM, E_UNAVAILABLE: it is pending again, and
     * tried later. Any other: it can never be composed, and settle is called with fault set. */
    enum status (*compose)(struct dispatch_call *call, struct err *err);
    /* Set the calls that settle it. E_NOMEM: try again. */
    enum status (*settle)(struct dispatch_call *call, struct err *err);
    /* They are durable: the first one's decision is there. May be NULL. */
    void (*settled)(struct dispatch_call *call);
};

/* One attempt, or one question about an unknown one. */
struct dispatch_call {
    /* Set by the dispatcher. */
    struct dispatch *dispatch;
    const struct dispatch_plan *plan;
    struct dispatch_target *target;
    const struct record *record; /* in_progress and ours; of a question: unknown */
    struct slice body;           /* that was kept with it, in plain; may be empty */
    int64_t now_ms;              /* the store's time when it was claimed, or read */
    bool asks;                   /* a question: it must have no effect */
    uint64_t random;             /* for jitter */
    char request_id[UUID_TEXT_BYTES];
    struct arena *arena; /* until it is over */
    struct mem *mem;     /* that arena */

    /* Set by compose. */
    struct slice head; /* the whole request head, its empty line included */
    struct slice payload;
    enum http_method method;
    struct judge_rules rules;
    struct fields_kept keeps;
    void *own; /* the kind's, in arena */

    /* For settle. */
    const struct outcall *out; /* over; NULL: nothing was sent, and fault says why */
    struct err fault;          /* compose failed, or the server ends */
    bool is_alone;             /* the group was refused: only what settles the record itself */

    /* Set by settle: one dependent group; the first settles the record itself. dispatch_settle_new
     * makes them. */
    struct engine_call *calls[LIMIT_DISPATCH_GROUP_MAX];
    size_t call_count;
};

/* A further call of the group, zeroed but for its memory, and for the first one the record's
 * operation, fence and key, the trace of this attempt and the actor. NULL: out of memory, or
 * LIMIT_DISPATCH_GROUP_MAX are there. */
struct engine_call *dispatch_settle_new(struct dispatch_call *call);

/* The targets of one kind as one configuration has them. The kind's memory. */
struct dispatch_plan {
    const struct dispatch_kind *kind;
    struct dispatch_target *targets;
    size_t target_count;
    void *state; /* the kind's */
    /* Nobody uses it any more. */
    void (*release)(struct dispatch_plan *plan);
    unsigned holders; /* the dispatcher's */
};

struct dispatch_options {
    const struct mem *mem; /* NULL: the C library's */
    struct door *door;
    struct http_server *server;
    unsigned loops;
    const char *spool_dir;
    bool logs; /* a line for each decision */
};

enum status dispatch_new(const struct dispatch_options *options, struct dispatch **ret_dispatch,
    struct err *err) MUST_CHECK;
/* What opens the bodies that were kept; outlives the dispatcher. Before any plan is used. */
void dispatch_vault(struct dispatch *dispatch, const struct vault *vault);
/* After the server is gone. NULL is fine. */
void dispatch_free(struct dispatch *dispatch);

/* Make what a plan needs of us; dispatch_plan_use or dispatch_plan_drop must follow. E_INVALID,
 * E_UNAVAILABLE: a URL or CA file is wrong; the text says which. */
enum status dispatch_plan_prepare(
    struct dispatch *dispatch, struct dispatch_plan *plan, struct err *err) MUST_CHECK;
/* For what begins from now on, in place of the plan that its kind had. */
void dispatch_plan_use(struct dispatch *dispatch, struct dispatch_plan *plan);
/* Instead: it is released. */
void dispatch_plan_drop(struct dispatch *dispatch, struct dispatch_plan *plan);

/* A record that was just enqueued durably: it goes on now, not when its due is found. If it cannot
 * (queue full, draining, no memory, not due yet) it is found later: nothing is lost. Any thread. */
void dispatch_offer(struct dispatch *dispatch, const struct record *record);

/* Who granted a record to this process, and wants to know when it is settled. */
struct dispatch_granted {
    const struct record *record; /* in_progress, its holder is this process; copied */
    struct slice body;           /* in plain; copied */
    int64_t now_ms;              /* the store's time of the grant */
    /* It is settled, or was given up; on loop 0, exactly once. call->calls[0] has the decision;
     * call_count 0: nothing was settled, and its lease will run out. */
    void (*done)(void *context, const struct dispatch_call *call);
    void *context;
};
/* Run what is granted already. It does not wait for a turn: when its target is busy nothing is
 * sent, and settle is called with a fault of E_LIMIT. E_LIMIT, E_NOMEM, E_UNAVAILABLE (the server
 * ends): it was not taken, done is not called and nothing was sent. Any thread. */
enum status dispatch_run(
    struct dispatch *dispatch, const struct dispatch_granted *granted, struct err *err) MUST_CHECK;

/* For struct server_door. */
void dispatch_drain(struct dispatch *dispatch);         /* start nothing new */
bool dispatch_is_busy(const struct dispatch *dispatch); /* calls are under way */
void dispatch_cut(struct dispatch *dispatch);           /* what was sent becomes unknown, durably */
bool dispatch_is_idle(const struct dispatch *dispatch);
void dispatch_end(struct dispatch *dispatch, unsigned loop);

/* The targets of the plans in use, for metrics_targets; context: the dispatcher. Any thread. */
size_t dispatch_figures(void *context, struct metrics_target *ret_targets, size_t max);

#endif
