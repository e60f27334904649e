/*
 * cycle: one batch through prepare, decide and commit. The part of the engine without threads.
 *
 * The store is touched exactly twice: prepare loads everything that deciding needs, and commit or
 * abort ends the batch. The thread that has the engine's turn runs a cycle on real calls; the
 * simulator runs it step by step with a crash between any two. It neither flushes nor answers.
 *
 * A crash
 *   before commit:          nothing happened; nobody was answered.
 *   after commit, no flush: the batch may or may not be on disk; nobody was answered. If it is
 *                           there, grants in it run into their lease and become unknown.
 *   after flush:            the batch holds; callers that were not answered ask again and find it.
 *
 * Lost races. When a store reports that records have changed since prepare, only the calls that
 * depend on them are prepared and decided again: calls that read or wrote such a key, calls that
 * share a key with one of these, and the rest of their dependent groups. So are all calls that
 * change no record: their entries depend on locks that the store gave up. All other decisions stay
 * as they are. Calls that are decided again move to the end of the batch, because their fences and
 * their time are newer; the entries of the others are chained again. After STALE_ROUNDS_MAX rounds,
 * calls that are still stale get E_UNAVAILABLE, and the others are committed without them.
 */
#ifndef ONCE_ENGINE_CYCLE_H
#define ONCE_ENGINE_CYCLE_H

#include "engine/backlog.h"
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
    uint32_t turn;                /* distinguishes this batch's marks in seen from older ones */
    uint64_t keys_max;            /* maximal number of live keys; 0: no limit */
    struct store_counts counts;   /* of live keys, including the batch's changes so far */
    int64_t now_ms;               /* the store's time, from the last prepare … */
    bool clock_held;              /* … and whether its wall clock is not followed (P8) */
    uint64_t commits;             /* made so far */
    uint64_t pending;             /* number of the last batch's commit, to be settled; 0: none */
    bool unsettled;               /* it is not known yet whether the last commit happened */
    struct quarantine quarantine; /* tenants with grants that this store never gave */
    struct backlog *backlog;      /* counts the changes of an embedded store; NULL: nobody does */
    struct err away;              /* why a shared store cannot be reached; OK: it can */
};

enum status cycle_init(
    struct cycle *cycle, struct store *store, const struct mem *mem, struct err *err) MUST_CHECK;
void cycle_release(struct cycle *cycle);

/*
 * Runs at most LIMIT_BATCH_REQUESTS_MAX calls, none of them a query. On OK each call has its
 * decision, or its own err, or is parked (call->parked: a begin that waits; no entry was made, run
 * it again later). A call must not be answered before the store is flushed and cycle->pending, if
 * it is not 0, is settled: if that fails, nothing in the batch was committed. On a shared store a
 * commit of unknown fate is OK, and every call in it has the err E_UNKNOWN: the next batch
 * continues. E_UNAVAILABLE, E_LIMIT, E_NOMEM: nothing happened to any call. E_UNKNOWN, E_CORRUPT:
 * stop.
 */
enum status cycle_run(struct cycle *cycle, struct engine_call *const *calls, size_t count,
    struct err *err) MUST_CHECK;

/* Records the result of a touch of the store. A shared store counts as away from the first
 * E_UNAVAILABLE until a write succeeds: a store that can be read may not be writable. */
void cycle_touched(struct cycle *cycle, enum status status, bool writes, const struct err *err);

/* Commits the entry about the removal of evidence up to removable->seq. Fails as cycle_run does. */
enum status cycle_archive(
    struct cycle *cycle, const struct store_removable *removable, struct err *err) MUST_CHECK;
/* Commits a signed checkpoint of the evidence so far. */
enum status cycle_checkpoint(
    struct cycle *cycle, const struct store_identity *identity, struct err *err) MUST_CHECK;

#endif
