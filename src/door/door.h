/*
 * door: what the doors of one process (the API, the gateway) share: calls gathered for the engine,
 * flood limits, metrics and the log line of each decision.
 *
 *     door_admit > door_submit > door_turn > (engine) > done … door_report
 *
 * Promises:  the calls of one loop turn reach the engine together, at the cost of one. Every
 *            decision is counted and logged once, in the same words whichever door it came through.
 *            Duplicates refused as a flood become evidence.
 * Does not:  know HTTP messages or documents.
 * Ownership: a call belongs to its door again once done or refused has been called.
 * Threads:   door_submit, door_submit_group, door_turn and door_report run on the thread that owns
 *            the slot. In the first three it may lead (engine_submit_lead): done of any call may
 *            then run on it, so done must only post, wake or count, and the caller holds no lock;
 *            the others on any thread. The server's loops own the slots from 0 on; a thread that is
 *            not a loop (a queue consumer) owns a slot after theirs and ends each of its rounds
 *            with door_turn.
 */
#ifndef ONCE_DOOR_DOOR_H
#define ONCE_DOOR_DOOR_H

#include "base/log.h"
#include "door/flood.h"
#include "door/metrics.h"
#include "engine/engine.h"

struct door;

struct door_options {
    const struct mem *mem; /* NULL: the C library's */
    struct engine *engine;
    struct log *log; /* may be NULL */
    unsigned slots;  /* threads that submit: the server's loops, then the others */
    /* Let the thread of this slot call door_turn soon. From any thread, under the engine's lock,
     * only for a slot with a call in the engine; it must not block. NULL: nobody can be called. */
    void (*nudge)(void *context, unsigned slot);
    void *nudge_context;
    /* Call door_turn on the thread of this slot when the descriptor is readable; -1: no longer.
     * Called on that thread, with one descriptor for all slots, with the context of nudge. False:
     * it cannot. NULL: nobody can. */
    bool (*watch)(void *context, unsigned slot, int fd);
};

enum status door_new(
    const struct door_options *options, struct door **ret_door, struct err *err) MUST_CHECK;
/* Call it after the server has been freed. Waits for notes that are still in the engine. NULL is
 * fine. */
void door_free(struct door *door);

struct engine *door_engine(const struct door *door);
struct log *door_log(const struct door *door);
struct metrics *door_metrics(const struct door *door);
struct flood *door_flood(const struct door *door);

/* A call on its way to the engine. */
struct door_call {
    struct engine_call engine; /* first, so that the engine's pointer is the door_call's */
    /* Called on the loop instead of engine.done when the engine did not take the call; engine.err
     * says why. */
    void (*refused)(struct door_call *call);
    struct flood_rate rate; /* limit for duplicates; a begin takes a token when it starts to wait */
    bool is_counted;        /* it has taken its token */
    struct door *door;      /* set by door_submit */
};
/* As engine_call_clear. */
static inline void door_call_clear(struct door_call *call)
{
    const size_t after = offsetof(struct door_call, refused);
    engine_call_clear(&call->engine);
    memset((char *)call + after, 0, sizeof *call - after);
}

/* Calls that go into one commit, as engine_submit_all takes them. */
struct door_group {
    struct engine_call *const *calls; /* until they are refused, or the first is done */
    size_t count;
    /* Called on the loop instead of done when the engine took none of them; err says why. */
    void (*refused)(struct door_group *group, const struct err *err);
};

/* Submit at the end of the slot's turn. */
void door_submit(struct door *door, unsigned slot, struct door_call *call);
/* Likewise; the group lives until its calls are done or refused. */
void door_submit_group(struct door *door, unsigned slot, struct door_group *group);
/* At the end of each turn, and when nudged: land a flush that has ended, submit the gathered calls,
 * and lead. About once a second, write the refused duplicates to the evidence. */
void door_turn(struct door *door, unsigned slot);
/* The thread of the slot is about to end. It may still call the two above. */
void door_end(struct door *door, unsigned slot);

/* Whether a begin of this key may be submitted. If not, retry after *ret_after_ms, at least 1. */
bool door_admit(struct door *door, const struct record_key *key, struct flood_rate rate,
    int64_t *ret_after_ms) MUST_CHECK;

/* A right to execute, as it was granted: for a door that sends something under it. */
struct door_grant {
    int64_t now_ms;           /* the store's time of the grant */
    int64_t boot_ms;          /* the boot clock at that time, or slightly earlier */
    int64_t lease_expires_ms; /* by the store's time */
};
struct door_grant door_grant_of(const struct engine_call *granted);
/* Whether a call of at most call_ms that begins now, by the boot clock, ends within the lease. If
 * not, nothing may be sent: the record may be unknown by now, settled as not executed, and granted
 * again (P1). */
bool door_grant_covers(const struct door *door, const struct door_grant *grant, int64_t boot_ms,
    int64_t call_ms) MUST_CHECK;

/* The result of a request, for metrics and log. */
struct door_report {
    const struct engine_call *call; /* the call, with its decision */
    int64_t flooded_ms;             /* > 0: refused by door_admit; nothing was decided */
    struct flood_rate rate;         /* limit for duplicates; 0: no limit */
    bool was_counted;               /* it took its token when it began to wait */
    struct slice tenant;
    struct slice label;      /* counted under this; empty: its scope. A gateway's scopes are paths
                                with ids in them, its routes are few */
    struct slice actor;      /* may be empty */
    struct slice request_id; /* of the attempt */
    struct slice trace_id;   /* may be empty */
    unsigned status;         /* of the answer; 0: no answer yet, as after a gateway's grant */
    size_t diff_bytes;       /* of a conflict */
    uint64_t started_nanos;  /* clock_nanos at the first byte of the request */
    bool logs;               /* write a log line */
};
/* Count and log a decision, or the engine's failure (call->err). */
void door_report(struct door *door, unsigned slot, const struct door_report *report);

#endif
