/*
 * janitor: every duty of the engine that a timer drives.
 *
 *   duty                        how often
 *   the store's housekeeping    every 5 ms while busy (store maintain: expiry, snapshots, squeeze)
 *   leases that ran out         every 500 ms: in_progress becomes unknown, with evidence
 *   signed checkpoints          every minute when there is new evidence, and at close
 *   the oldest unknown one      every 100 ms a piece of the store, while there are any
 *   evidence past its retention every minute: an entry first, and when that is durable, out it goes
 *
 * Threads: the engine thread alone, but for the done function of its own calls.
 */
#ifndef ONCE_ENGINE_JANITOR_H
#define ONCE_ENGINE_JANITOR_H

#include <stdatomic.h>

#include "engine/cycle.h"
#include "engine/query.h"

enum { JANITOR_CALLS = 64 }; /* leases settled in one turn; the rest comes half a second later */

struct janitor {
    struct cycle *cycle;
    const struct store_identity *identity;
    int64_t checkpoint_every_ms;
    int64_t maintain_ms; /* boot clock: when each duty was done last */
    int64_t leases_ms;
    int64_t checkpoint_ms;
    uint64_t checkpoint_seq; /* evidence that the last checkpoint covers */
    int64_t archive_ms;
    uint64_t archiving;           /* what is to go once its entry is durable; 0: nothing */
    _Atomic bool archive_durable; /* its entry is */
    struct query barrier;         /* answered when that is so */
    struct arena barrier_arena;   /* unused, but every call has one */
    int64_t unknown_ms;           /* boot clock: when unknown ones were looked for last */
    struct digest unknown_after;  /* where that goes on */
    int64_t unknown_min_ms;       /* updated_ms of the oldest one found in this sweep; 0: none */
    int64_t unknown_since_ms;     /* the same as far as is known now */
    struct arena unknown_arena;   /* a piece of the sweep */
    _Atomic size_t in_flight;     /* own calls not answered yet */
    struct engine_call calls[JANITOR_CALLS];
    struct arena arenas[JANITOR_CALLS];
};

enum status janitor_init(struct janitor *janitor, struct cycle *cycle,
    const struct store_identity *identity, const struct engine_options *options,
    struct err *err) MUST_CHECK;
void janitor_release(struct janitor *janitor);

/* Do what is due by the boot clock; may append its own calls to the batch. Anything but OK: stop
 * the engine. */
enum status janitor_turn(struct janitor *janitor, int64_t boot_ms, struct engine_call **calls,
    size_t *count, struct err *err) MUST_CHECK;
/* The last duties, when no call is in flight any more. */
enum status janitor_close(struct janitor *janitor, struct err *err) MUST_CHECK;

#endif
