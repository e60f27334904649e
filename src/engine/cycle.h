/*
 * cycle: one batch through prepare, decide and commit. The part of the engine without threads.
 *
 * The store is touched exactly twice: prepare brings everything that deciding needs, and commit or
 * abort ends it. The engine thread runs a cycle on real calls; the simulator runs it step by step
 * with a crash between any two. What it leaves undone on purpose: the flush, and answering anybody.
 *
 * A crash
 *   before commit:          nothing happened; nobody was answered.
 *   after commit, no flush: the batch may or may not be on disk; nobody was answered. If it is
 *                           there, grants in it run into their lease and become unknown.
 *   after flush:            the batch holds; callers that were not answered ask again and find it.
 *
 * Lost races. When a store says that records have changed since prepare, only the calls that rest
 * on them are prepared and decided again: those that read or wrote such a key, those that share a
 * key with one of these, and the rest of their dependent groups. All other decisions stay as they
 * are. The calls that are decided again go to the end of the batch, because their fences and their
 * time are newer; the entries of the others are chained anew. After STALE_ROUNDS_MAX rounds those
 * that are still stale get E_UNAVAILABLE, and the others are committed without them.
 */
#ifndef ONCE_ENGINE_CYCLE_H
#define ONCE_ENGINE_CYCLE_H

#include "engine/engine.h"
#include "engine/quarantine.h"
#include "evidence/entry.h"

enum { STALE_ROUNDS_MAX = 16 }; /* lost races in a row before a call is refused as too busy */

struct cycle_seen;

struct cycle {
    const struct mem *mem;
    struct store *store;
    struct chain chain;           /* of this process's evidence */
    struct arena arena;           /* of the batch */
    struct buf text;              /* one entry while it is composed */
    struct cycle_seen *seen;      /* keys of the batch and their records so far */
    uint32_t turn;                /* tells this batch's marks in seen from older ones */
    uint64_t keys_max;            /* live keys at most; 0: no limit */
    struct store_counts counts;   /* of live keys, with what the batch changed so far */
    int64_t now_ms;               /* the store's time, as the last prepare said … */
    bool clock_held;              /* … and whether its wall clock is not followed (P8) */
    uint64_t commits;             /* made so far */
    bool unsettled;               /* nobody knows yet what became of the last commit */
    struct quarantine quarantine; /* who holds what this store never gave */
    struct err away; /* why a shared store could not be reached, until it can; OK: it can be */
};

enum status cycle_init(
    struct cycle *cycle, struct store *store, const struct mem *mem, struct err *err) MUST_CHECK;
void cycle_release(struct cycle *cycle);

/*
 * At most LIMIT_BATCH_REQUESTS_MAX calls, none of them a query. On OK each call has its decision,
 * or its own err, or is parked (call->parked: a begin that waits; no entry was made, run it again
 * later). A call must not be answered before the store is flushed. On a shared store a commit whose
 * fate is not known is OK, and every call in it has the err E_UNKNOWN: the next batch goes on.
 * E_UNAVAILABLE, E_LIMIT, E_NOMEM: nothing happened to any call. E_UNKNOWN, E_CORRUPT: stop.
 */
enum status cycle_run(struct cycle *cycle, struct engine_call *const *calls, size_t count,
    struct err *err) MUST_CHECK;

/* What a touch of the store came to. A shared store is away from the first E_UNAVAILABLE until
 * something was written: one that can be read need not be writable. */
void cycle_touched(struct cycle *cycle, enum status status, bool writes, const struct err *err);

/* Commit the entry that evidence up to removable->seq leaves the store. Failures as cycle_run's. */
enum status cycle_archive(
    struct cycle *cycle, const struct store_removable *removable, struct err *err) MUST_CHECK;
/* Commit a signed checkpoint of the evidence so far. */
enum status cycle_checkpoint(
    struct cycle *cycle, const struct store_identity *identity, struct err *err) MUST_CHECK;

#endif
