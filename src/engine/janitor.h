/*
 * janitor: everything in the engine that is driven by time. It is either the due of a record, which
 * a subscriber acts on, or a row in one table of duties (janitor.c):
 *
 *   duty                        how often
 *   the store's housekeeping    every 5 ms while busy (store maintain: expiry, snapshots, squeeze)
 *   holders, of a shared store  every 5 s: beat, and make the grants of gone holders unknown
 *   dues                        every 500 ms: each subscriber gets its due records. The engine's
 *                               own subscription makes operations past their lease unknown
 *   the intake                  every 200 ms, of a store with functions for applications: effects
 *                               whose payload must be sealed are given to the intake's module
 *   signed checkpoints          every minute if there is new evidence, and at close
 *   counts for the statistics   every 100 ms; on a shared store every second
 *   counts of one kind, in turn as often: of commands, effects and deliveries
 *   the backlog                 of an embedded store every 5 ms, a page at a time, until all that
 *                               was there at the start is found; of a shared one every 2 s one kind
 *   evidence past its retention every minute: an entry first; once that is durable, the evidence
 *                               is removed
 *
 * When the engine is made on an embedded store, the grants of earlier incarnations become unknown
 * at once. On a shared store, a process reports a holder as gone only after it has itself beaten
 * without a gap for as long as a holder may be silent: after an outage of the store, every process
 * must have had the time to come back.
 *
 * Janitors of several processes find the same dues. Each names the record by id and, for a holder,
 * by fence. The second request is decided on the record that the first one left, and does nothing.
 *
 * Threads: the engine thread alone, except for subscribing and the done function of its own calls.
 */
#ifndef ONCE_ENGINE_JANITOR_H
#define ONCE_ENGINE_JANITOR_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/cycle.h"
#include "engine/query.h"

enum {
    JANITOR_CALLS = 64, /* dues acted on in one turn; the rest follow half a second later */
    JANITOR_PAGES = 32, /* pages of that many, for a subscriber that takes each due once */
};

enum janitor_duty {
    DUTY_HOUSEKEEPING,
    DUTY_HOLDERS,
    DUTY_DUES,
    DUTY_INTAKE,
    DUTY_CHECKPOINT,
    DUTY_COUNTS,
    DUTY_KINDS,
    DUTY_BACKLOG,
    DUTY_REMOVE,
    DUTY_ARCHIVE,
    JANITOR_DUTIES,
};

/* The input of one turn. */
struct janitor_turn {
    int64_t boot_ms;            /* the boot clock */
    struct engine_call **calls; /* the batch being collected: a duty may add to it … */
    size_t count;               /* … up to LIMIT_BATCH_REQUESTS_MAX */
};

struct janitor {
    struct cycle *cycle;
    const struct store_identity *identity;
    uint64_t incarnation;            /* of this process */
    int64_t beaten_ms;               /* boot clock: of the last recorded beat … */
    int64_t steady_ms;               /* … and since when none was late */
    int64_t checkpoint_every_ms;     /* 0: the table's value */
    int64_t done_ms[JANITOR_DUTIES]; /* boot clock: when each duty was done last */
    struct janitor_turn *turn;       /* during janitor_run */
    pthread_mutex_t lock;            /* guards the subscriptions, also while they are called */
    struct due_subscription *subscriptions;
    struct engine_intake *intake;           /* under the lock too; NULL: nobody seals */
    struct due_subscription leases;         /* the engine's own */
    uint64_t checkpoint_seq;                /* evidence that the last checkpoint covers */
    int64_t checkpoint_ms;                  /* the store's time: when it last covered all of it */
    struct store_counts kinds[STORE_KINDS]; /* of commands, effects, deliveries; statistics */
    enum record_kind kind_read;             /* the kind that was counted last */
    struct backlog *backlog;                /* NULL: nobody asks */
    enum record_kind backlog_read;          /* the kind that a shared store was asked for last */
    bool is_backlog_counted;                /* its records from before the start were found */
    uint64_t archiving;           /* evidence to remove once its entry is durable; 0: none */
    _Atomic bool archive_durable; /* its entry is durable */
    struct query barrier;         /* answered when it is */
    struct arena barrier_arena;   /* unused, but every call needs one */
    _Atomic size_t in_flight;     /* its own calls not answered yet */
    struct engine_call calls[JANITOR_CALLS];
    struct arena arenas[JANITOR_CALLS];
};

enum status janitor_init(struct janitor *janitor, struct cycle *cycle,
    const struct store_identity *identity, const struct engine_options *options,
    struct err *err) MUST_CHECK;
void janitor_release(struct janitor *janitor);
/* Takes an incarnation; on an embedded store, makes the grants of earlier ones unknown. Call it
 * before the engine's threads run. */
enum status janitor_start(struct janitor *janitor, struct err *err) MUST_CHECK;

/* engine_on_due and engine_off_due. From any thread. */
void janitor_on_due(struct janitor *janitor, struct due_subscription *subscription);
void janitor_off_due(struct janitor *janitor, struct due_subscription *subscription);

/* engine_on_intake. */
void janitor_on_intake(struct janitor *janitor, struct engine_intake *intake);

/* Does the duties that are due by the boot clock; may append its own calls to the batch. Anything
 * but OK: stop the engine. */
enum status janitor_run(
    struct janitor *janitor, struct janitor_turn *turn, struct err *err) MUST_CHECK;
/* Does the last duties, after all calls have been answered. */
enum status janitor_close(struct janitor *janitor, struct err *err) MUST_CHECK;

#endif
