/*
 * janitor: everything in the engine that a clock drives. It is the due of some record, which a
 * subscriber acts on, or a row in one table of duties (janitor.c):
 *
 *   duty                        how often
 *   the store's housekeeping    every 5 ms while busy (store maintain: expiry, snapshots, squeeze)
 *   holders, of a shared store  every 5 s: beat, and make unknown what holders have that are gone
 *   dues                        every 500 ms: each subscriber gets what is due for it. The engine's
 *                               own subscription makes unknown whatever has its lease over
 *   signed checkpoints          every minute when there is new evidence, and at close
 *   counts for the statistics   every 100 ms; of a shared store every second
 *   those of one kind, in turn  likewise: of commands, effects and deliveries
 *   evidence past its retention every minute: an entry first, and when that is durable, it is
 *                               removed
 *
 * When the engine is made on an embedded store, what earlier incarnations of the process held
 * becomes unknown at once. On a shared store nobody is called gone by a process that has not itself
 * beaten for as long as a holder may be silent: when the store was away for everybody, each of them
 * must have had the time to come back.
 *
 * Janitors of several processes find the same dues. Each asks for what it found by id and, of a
 * holder, by fence; who comes second is decided on what the first one left, and does nothing.
 *
 * Threads: the engine thread alone, but for subscribing and the done function of its own calls.
 */
#ifndef ONCE_ENGINE_JANITOR_H
#define ONCE_ENGINE_JANITOR_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/cycle.h"
#include "engine/query.h"

enum {
    JANITOR_CALLS = 64, /* dues acted on in one turn; the rest comes half a second later */
    JANITOR_PAGES = 32, /* of so many, for a subscriber that takes each due once */
};

enum janitor_duty {
    DUTY_HOUSEKEEPING,
    DUTY_HOLDERS,
    DUTY_DUES,
    DUTY_CHECKPOINT,
    DUTY_COUNTS,
    DUTY_KINDS,
    DUTY_REMOVE,
    DUTY_ARCHIVE,
    JANITOR_DUTIES,
};

/* What one turn works with. */
struct janitor_turn {
    int64_t boot_ms;            /* the boot clock */
    struct engine_call **calls; /* the batch that is being collected: a duty may add to it … */
    size_t count;               /* … up to LIMIT_BATCH_REQUESTS_MAX */
};

struct janitor {
    struct cycle *cycle;
    const struct store_identity *identity;
    uint64_t incarnation;            /* of this process */
    int64_t beaten_ms;               /* boot clock: of the last beat that was noted … */
    int64_t steady_ms;               /* … and since when there was none too late */
    int64_t checkpoint_every_ms;     /* 0: as the table says */
    int64_t done_ms[JANITOR_DUTIES]; /* boot clock: when each duty was done last */
    struct janitor_turn *turn;       /* during janitor_run */
    pthread_mutex_t lock;            /* over the subscriptions, and while they are called */
    struct due_subscription *subscriptions;
    struct due_subscription leases;         /* the engine's own */
    uint64_t checkpoint_seq;                /* evidence that the last checkpoint covers */
    int64_t checkpoint_ms;                  /* the store's time: when it last covered all of it */
    struct store_counts kinds[STORE_KINDS]; /* of what Once does by itself, for the statistics */
    enum record_kind kind_read;             /* of them, the one that was counted last */
    uint64_t archiving;           /* what is to go once its entry is durable; 0: nothing */
    _Atomic bool archive_durable; /* its entry is */
    struct query barrier;         /* answered when that is so */
    struct arena barrier_arena;   /* unused, but every call has one */
    _Atomic size_t in_flight;     /* own calls not answered yet */
    struct engine_call calls[JANITOR_CALLS];
    struct arena arenas[JANITOR_CALLS];
};

enum status janitor_init(struct janitor *janitor, struct cycle *cycle,
    const struct store_identity *identity, const struct engine_options *options,
    struct err *err) MUST_CHECK;
void janitor_release(struct janitor *janitor);
/* Take an incarnation; on an embedded store, make unknown what earlier ones held. Before the
 * engine's threads run. */
enum status janitor_start(struct janitor *janitor, struct err *err) MUST_CHECK;

/* engine_on_due and engine_off_due. From any thread. */
void janitor_on_due(struct janitor *janitor, struct due_subscription *subscription);
void janitor_off_due(struct janitor *janitor, struct due_subscription *subscription);

/* Do what is due by the boot clock; may append its own calls to the batch. Anything but OK: stop
 * the engine. */
enum status janitor_run(
    struct janitor *janitor, struct janitor_turn *turn, struct err *err) MUST_CHECK;
/* The last duties, when no call is in flight any more. */
enum status janitor_close(struct janitor *janitor, struct err *err) MUST_CHECK;

#endif
