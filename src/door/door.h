/*
 * door: what the doors of one process (the API, the gateway) share: calls gathered for the engine,
 * flood limits, figures and the line in the log that each decision leaves.
 *
 *     door_admit > door_submit > door_turn > (engine) > done … door_report
 *
 * Promises:  calls of one loop turn reach the engine together, for the price of one. Every decision
 *            is counted and logged once, in the same words whichever door it came through. What a
 *            flood refused becomes evidence.
 * Does not:  know HTTP messages or documents.
 * Ownership: a call is its door's again once done or refused was called.
 * Threads:   door_submit, door_turn and door_report on the thread whose slot they are given; the
 *            others on any thread. The server's loops have the slots from 0 on; a thread that is no
 *            loop (a consumer of a queue) has a slot after theirs, and ends each of its rounds with
 *            door_turn as a loop ends its turn.
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
    unsigned slots;  /* of threads that submit: the server's loops, and those after them */
};

enum status door_new(
    const struct door_options *options, struct door **ret_door, struct err *err) MUST_CHECK;
/* After the server is gone: waits for the notes that are in the engine. NULL is fine. */
void door_free(struct door *door);

struct engine *door_engine(const struct door *door);
struct log *door_log(const struct door *door);
struct metrics *door_metrics(const struct door *door);
struct flood *door_flood(const struct door *door);

/* A call on its way to the engine. */
struct door_call {
    struct engine_call engine; /* first, so that the engine's pointer is ours */
    /* Instead of engine.done, on the loop: the engine did not take it; engine.err says why. */
    void (*refused)(struct door_call *call);
    struct flood_rate rate; /* of duplicates; a begin that waits takes from it when it starts to */
    bool is_counted;        /* it did */
    struct door *door;      /* it goes through; door_submit's */
};

/* Submit at the end of the slot's turn. */
void door_submit(struct door *door, unsigned slot, struct door_call *call);
/* At the end of each turn: submit what was gathered; about once a second hand what the
 * flood refused to the evidence. */
void door_turn(struct door *door, unsigned slot);

/* Whether a begin of this key may be asked; else come back after *ret_after_ms, at least 1. */
bool door_admit(struct door *door, const struct record_key *key, struct flood_rate rate,
    int64_t *ret_after_ms) MUST_CHECK;

/* What became of a request, for figures and log. */
struct door_report {
    const struct engine_call *call; /* what was asked and decided */
    int64_t flooded_ms;             /* > 0: refused by door_admit; nothing was decided */
    struct flood_rate rate;         /* of duplicates, which take from it; 0: no limit */
    bool was_counted;               /* it took from it when it began to wait */
    struct slice tenant;
    struct slice label;      /* what it is counted under; empty: its scope. A gateway's scopes are
                                paths with ids in them, its routes are few */
    struct slice actor;      /* may be empty */
    struct slice request_id; /* of the attempt */
    struct slice trace_id;   /* may be empty */
    unsigned status;         /* of the answer; 0: there is none yet, as of a gateway's grant */
    size_t diff_bytes;       /* of a conflict */
    uint64_t started_nanos;  /* clock_nanos at the first byte of the request */
    bool logs;               /* a line for it */
};
/* Count it and log it: a decision, or that the engine failed (call->err). */
void door_report(struct door *door, unsigned slot, const struct door_report *report);

#endif
