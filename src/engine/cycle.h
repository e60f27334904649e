/*
 * cycle: one batch through load, decide and commit. The part of the engine without threads.
 *
 * The engine thread runs it on real calls; the simulator runs it step by step with a crash between
 * any two. What it leaves undone on purpose: the flush, and telling anybody.
 *
 * A crash
 *   before commit:          nothing happened; nobody was told anything.
 *   after commit, no flush: the batch may or may not be on disk; nobody was told anything. If it is
 *                           there, grants in it run into their lease and become unknown.
 *   after flush:            the batch holds; callers that were not told ask again and find it.
 */
#ifndef ONCE_ENGINE_CYCLE_H
#define ONCE_ENGINE_CYCLE_H

#include "engine/engine.h"
#include "engine/quarantine.h"
#include "evidence/entry.h"

struct cycle_seen;

struct cycle {
    const struct mem *mem;
    struct store *store;
    struct chain chain;           /* of this process's evidence */
    struct arena arena;           /* of the batch */
    struct buf text;              /* one entry while it is composed */
    struct cycle_seen *seen;      /* keys of the batch and their records so far */
    uint64_t keys_max;            /* live keys at most; 0: no limit */
    uint64_t keys_made;           /* by this batch, not yet in the store's count */
    uint32_t turn;                /* tells this batch's marks in seen from older ones */
    struct quarantine quarantine; /* who holds what this store never gave */
};

enum status cycle_init(
    struct cycle *cycle, struct store *store, const struct mem *mem, struct err *err) MUST_CHECK;
void cycle_release(struct cycle *cycle);

/*
 * At most LIMIT_BATCH_REQUESTS_MAX calls. On OK each call has its decision, or its own err, or is
 * parked (call->parked: a begin that waits; no entry was made, run it again later). A call must not
 * be answered before the store is flushed.
 * E_UNAVAILABLE, E_LIMIT, E_NOMEM: nothing happened to any call. E_UNKNOWN, E_CORRUPT: stop.
 */
enum status cycle_run(struct cycle *cycle, struct engine_call *const *calls, size_t count,
    const struct store_moment *moment, struct err *err) MUST_CHECK;

/* Commit the entry that evidence up to removable->seq leaves the store. */
enum status cycle_archive(struct cycle *cycle, const struct store_removable *removable,
    const struct store_moment *moment, struct err *err) MUST_CHECK;
/* Commit a signed checkpoint or another note that belongs to no call. */
enum status cycle_note(struct cycle *cycle, const struct entry *note,
    const struct store_moment *moment, struct err *err) MUST_CHECK;

#endif
