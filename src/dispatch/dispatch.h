/*
 * dispatch: all calls that Once makes by itself: effects to their providers, commands and
 * deliveries to their handlers. One machine serves all kinds; the differences are in a table
 * (struct dispatch_kind) that the kind's own module provides.
 *
 *     enqueued ──▶ QUEUED ──▶ CLAIMING ──▶ CALLING ──▶ SETTLING ──▶ over
 *                 (impl.h has the whole diagram, its transitions and what holds)
 *
 * Promises:  no connection is opened before the claim is durable (P6), nor when its lease no longer
 *            covers the call (P1). Each attempt is settled under its own fence (P4). A call that
 *            was sent and not answered is unknown, or is sent again where the kind says that this
 *            is safe (P5). Queues are bounded: a record that does not fit stays in the store, is
 *            found by its due time and is never dropped (P14).
 *            Lanes take turns: the backlog of one tenant or type does not delay any other.
 * Does not:  know what an effect, a command or a delivery is.
 * Crash:     before the claim is durable: nothing happened, and the record is found again. After
 *            that, and before its settling is durable: the record is unknown at the next start, or
 *            when its holder is seen to be gone. Perhaps nothing was sent: nobody can tell. A
 *            record that was claimed in the commit that enqueued it is never seen pending first.
 * Threads:   every loop of the server runs the machine (impl.h). A call, with all functions of its
 *            kind, stays on one loop; calls of different loops run at the same time, so a kind's
 *            functions share nothing that changes without a lock. dispatch_offer and the functions
 *            for plans may be called on any thread, dispatch_run on a loop.
 */
#ifndef ONCE_DISPATCH_DISPATCH_H
#define ONCE_DISPATCH_DISPATCH_H

#include <limits.h>

#include "base/uuid.h"
#include "base/vault.h"
#include "dispatch/breaker.h"
#include "door/door.h"
#include "http/fields.h"
#include "outcall/outcall.h"
#include "outcall/upstreams.h"

#define DISPATCH_NO_LOOP UINT_MAX /* the caller is not on a loop of the server */

struct dispatch;
struct dispatch_call;
struct dispatch_gauge; /* the state of a target: its queue, breaker and rates; impl.h */
struct dispatch_plan;

/* One call that does not use HTTP. Made by the dispatcher; its sender sets the result. */
struct dispatch_sending {
    struct slice id;   /* the same in every attempt of a record */
    struct slice lane; /* calls with the same value should stay in order; may be empty */
    struct slice type; /* media type of the payload */
    struct slice payload;
    int64_t timeout_ms;
    int64_t send_until_boot_ms; /* by the boot clock: later nothing may be sent (P1) */
    /* Call it once, on any thread, when the result is set. */
    void (*done)(struct dispatch_sending *sending);
    struct dispatch_sending *next; /* the sender's */

    enum outcall_point point;
    enum outcall_verdict verdict;
    unsigned status; /* as HTTP would say it, for logs and metrics */
    char ref[LIMIT_EFFECT_ID_BYTES_MAX + 1];
    char reason[LIMIT_REASON_BYTES_MAX + 1];
};

/* Sends calls that do not use HTTP. */
struct dispatch_sender {
    /* Must not block. */
    void (*send)(struct dispatch_sender *sender, struct dispatch_sending *sending);
};

/* A destination of calls: a connector, or a handler. */
struct dispatch_target {
    /* Set by the kind. Texts live as long as the plan. */
    const char *name; /* unique among the targets of its kind; for metrics and logs */
    struct upstreams_wanted upstream;
    struct upstream_timeouts timeouts;
    uint32_t concurrency; /* concurrent calls of this process; 0: 64 */
    double rate;          /* calls a second of each tenant, in this process; 0: no limit */
    struct breaker_rule breaker;
    uint64_t answer_bytes_max; /* kept of an answer; 0: 1 MiB */
    /* Lives as long as the plan. Then upstream is not used, and of what compose sets only payload,
     * type, id and lane. NULL: HTTP. */
    struct dispatch_sender *sender;

    /* Set by the dispatcher. */
    struct upstreams_one *one;
    struct dispatch_gauge *gauge;
};

/* What to do about an unknown record. */
enum dispatch_unknown {
    DISPATCH_HOLD,    /* nothing: a person decides (shield S3) */
    DISPATCH_AGAIN,   /* send the same request again, which the provider recognises (shield S1) */
    DISPATCH_ASK,     /* ask the provider (shield S4) */
    DISPATCH_GIVE_UP, /* it was to be sent again, and no attempt is left: a dead letter */
};

/* How one kind of record is called. The functions run on the loop of the call unless stated
 * otherwise. */
struct dispatch_kind {
    const char *name; /* "effects" */
    enum record_kind kind;
    /* The target of a record. NULL: the configuration has none, and the record stays as it is. Any
     * thread: must not change the plan. */
    struct dispatch_target *(*target)(
        const struct dispatch_plan *plan, const struct record *record);
    /* Records with the same value are called one after another; empty: in any order. May be NULL.
     * Any thread. */
    struct slice (*lane)(
        const struct dispatch_plan *plan, const struct record *record, struct arena *arena);
    /* The record before this one in its lane, in any process: this one is claimed when that one
     * needs no further attempt (core/lane.h). False: there is none. May be NULL. Any thread. */
    bool (*after)(const struct record *record, struct op_id *ret_id);
    /* What to do about an unknown record. NULL: hold. To have it sent again or given up, it may set
     * the record's detail, in the arena. */
    enum dispatch_unknown (*unknown)(const struct dispatch_plan *plan, const struct record *record,
        int64_t now_ms, struct arena *arena, struct slice *ret_detail);
    /* Set what is sent: see struct dispatch_call. E_NOMEM, E_UNAVAILABLE: the record is pending
     * again and is tried later. Any other error: it can never be composed, and settle is called
     * with fault set. */
    enum status (*compose)(struct dispatch_call *call, struct err *err);
    /* A second record that the settling changes as well. True: it is read just before settle, into
     * call->other. If the group is refused because that record has changed since, it is read and
     * settle is called again. May be NULL. */
    bool (*other)(struct dispatch_call *call, struct op_id *ret_id);
    /* Set the calls that settle the record. E_NOMEM: try again. */
    enum status (*settle)(struct dispatch_call *call, struct err *err);
    /* Those calls are durable; the first has its decision. May be NULL. */
    void (*settled)(struct dispatch_call *call);
};

/* One attempt, or one question about an unknown record. */
struct dispatch_call {
    /* Set by the dispatcher. */
    struct dispatch *dispatch;
    unsigned loop; /* that it runs on */
    const struct dispatch_plan *plan;
    struct dispatch_target *target;
    const struct record *record; /* in_progress and held by us; for a question: unknown */
    struct slice body;           /* kept with the record, decrypted; may be empty */
    int64_t now_ms;              /* the store's time when the record was claimed or read */
    int64_t due_ms;              /* of an attempt: when it was planned for; 0: not known */
    int64_t quiet_ms;            /* of a question: how long it has certainly been unknown */
    bool asks;                   /* it is a question, which must have no effect */
    uint64_t random;             /* for jitter */
    char request_id[UUID_TEXT_BYTES];
    struct arena *arena; /* lives until the call is over */
    struct mem *mem;     /* that arena */

    /* Set by compose. */
    struct slice head; /* the whole request head, including its empty line */
    struct slice payload;
    struct slice type, id, lane; /* for a sender */
    int64_t send_until_ms; /* for a sender: not after this, by the store's time; 0: the lease's */
    int64_t deadline_ms;   /* of an attempt, from the record's creation; 0: there is none */
    enum http_method method;
    struct judge_rules rules;
    struct fields_kept keeps;
    void *own; /* the kind's, in arena */

    /* For settle. */
    const struct outcall *out;  /* finished; NULL: nothing was sent, and fault says why */
    struct err fault;           /* compose failed, or the server is ending */
    bool is_alone;              /* the group was refused: add only the call that settles the record
                                  itself */
    const struct record *other; /* as dispatch_kind.other asks; NULL: absent, or not asked for */

    /* Set by settle: one dependent group. The first call settles the record itself. Made by
     * dispatch_settle_new. */
    struct engine_call *calls[LIMIT_DISPATCH_GROUP_MAX];
    size_t call_count;
};

/* Whether an attempt that was planned in time begins after the deadline, which counts from the
 * record's creation (0: none): the server was away, or its turn came late. What a person plans
 * after the deadline is attempted. */
static inline bool dispatch_is_late(const struct dispatch_call *call, int64_t deadline_ms)
{
    int64_t end_ms = call->record->created_ms + deadline_ms;
    return deadline_ms > 0 && !call->asks && call->due_ms > 0 && call->due_ms <= end_ms &&
           call->now_ms > end_ms;
}

/* Add a call to the group. It is zeroed except for its memory; the first one also has the record's
 * operation, fence and key, the trace of this attempt and the actor. NULL: out of memory, or the
 * group has LIMIT_DISPATCH_GROUP_MAX calls. */
struct engine_call *dispatch_settle_new(struct dispatch_call *call);

/* The targets of one kind, from one configuration. In the kind's memory. */
struct dispatch_plan {
    const struct dispatch_kind *kind;
    struct dispatch_target *targets;
    size_t target_count;
    void *state; /* the kind's */
    /* Called when nobody uses the plan any more. */
    void (*release)(struct dispatch_plan *plan);
    unsigned holders; /* the dispatcher's */
};

struct dispatch_options {
    const struct mem *mem; /* NULL: the C library's */
    struct door *door;
    struct http_server *server;
    unsigned loops;
    const char *spool_dir;
    bool logs; /* as for dispatch_log */
};

enum status dispatch_new(const struct dispatch_options *options, struct dispatch **ret_dispatch,
    struct err *err) MUST_CHECK;
struct door *dispatch_door(const struct dispatch *dispatch);
/* Whether each decision is logged, from now on. Any thread. */
void dispatch_log(struct dispatch *dispatch, bool logs);
/* Set the vault that decrypts kept bodies; it must outlive the dispatcher. Call it before any plan
 * is used. */
void dispatch_vault(struct dispatch *dispatch, const struct vault *vault);
/* Call it after the server has been freed. NULL is fine. */
void dispatch_free(struct dispatch *dispatch);

/* Prepare a plan for use; dispatch_plan_use or dispatch_plan_drop must follow. E_INVALID,
 * E_UNAVAILABLE: a URL or CA file is invalid; the text says which. */
enum status dispatch_plan_prepare(
    struct dispatch *dispatch, struct dispatch_plan *plan, struct err *err) MUST_CHECK;
/* Use it for calls that begin from now on, in place of its kind's current plan. */
void dispatch_plan_use(struct dispatch *dispatch, struct dispatch_plan *plan);
/* Release it instead; also for a plan that was taken (impl.h). NULL is fine. */
void dispatch_plan_drop(struct dispatch *dispatch, struct dispatch_plan *plan);

/* Start a record that was just enqueued durably, before its due is found. If that is not possible
 * (queue full, draining, no memory, not due yet), the record is found later: nothing is lost. Any
 * thread that holds no lock; loop: the one that this is called on, or DISPATCH_NO_LOOP. */
void dispatch_offer(struct dispatch *dispatch, unsigned loop, const struct record *record);

/*
 * A record that is about to be enqueued. If its call can begin at once, it is claimed in the commit
 * that enqueues it, which saves a commit: it is due and has no order, no call waits for its target,
 * and the target admits one more (places, rate, breaker). The place is taken first, and given back
 * if nothing is enqueued, because it is a duplicate for example. If only a place is missing, and
 * calls of the target are short, the enqueue is held back for some milliseconds.
 * The caller's memory, until ready is called.
 */
struct dispatch_start {
    /* Set by the caller. */
    const struct engine_call *enqueue;
    struct slice body; /* what the enqueue keeps, in plain; copied */
    /* Submit the enqueue now. With a claim, which must follow it in one group, or be given to
     * dispatch_claim_refused: the record is then the dispatcher's, so do not offer it. NULL: submit
     * it alone, and offer its record. Called exactly once, on the same loop, perhaps before
     * dispatch_start_with returns. */
    void (*ready)(struct dispatch_start *start, struct engine_call *claim);

    /* The dispatcher's. */
    struct dispatch_start *next;
    const struct dispatch_gauge *gauge; /* where a place is missing */
    int64_t until_ms;                   /* by the loop's clock: no longer */
};
/* On this loop, which holds no lock. */
void dispatch_start_with(struct dispatch *dispatch, unsigned loop, struct dispatch_start *start);
/* The engine did not take the group. On the same loop. */
void dispatch_claim_refused(struct engine_call *claim, const struct err *err);

/* A record granted to this process, for a caller that wants to know when it is settled. */
struct dispatch_granted {
    const struct record *record; /* in_progress, held by this process; copied */
    struct slice body;           /* decrypted; copied */
    struct door_grant grant;     /* when, and for how long */
    /* The record is settled, or was given up. Called on the loop that it was granted on, exactly
     * once, perhaps before dispatch_run returns. call->calls[0] has the decision; if call_count is
     * 0, nothing was settled, and the lease will run out. */
    void (*done)(void *context, const struct dispatch_call *call);
    void *context;
};
/* Run a record that is already granted. It does not wait for a turn: if its target is busy, nothing
 * is sent, and settle is called with a fault of E_LIMIT. E_LIMIT, E_NOMEM, E_UNAVAILABLE (the
 * server is ending): it was not accepted, done is not called and nothing was sent. On this loop. */
enum status dispatch_run(struct dispatch *dispatch, unsigned loop,
    const struct dispatch_granted *granted, struct err *err) MUST_CHECK;

/* For struct server_door. */
void dispatch_drain(struct dispatch *dispatch);         /* start nothing new */
bool dispatch_is_busy(const struct dispatch *dispatch); /* calls are in progress */
void dispatch_cut(struct dispatch *dispatch);           /* calls that were sent become unknown,
                                                           durably */
bool dispatch_is_idle(const struct dispatch *dispatch);
void dispatch_end(struct dispatch *dispatch, unsigned loop);

/* The targets of the plans in use, for metrics_targets; context is the dispatcher. Any thread. */
size_t dispatch_figures(void *context, struct metrics_target *ret_targets, size_t max);

#endif
