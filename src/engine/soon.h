/*
 * soon: answers that may leave before their flush (`evidence.replays: soon`), and when it is due.
 *
 * A pure replay shows an outcome that is on stable storage already and changes only the count of
 * duplicates. A crash before its flush loses its entry and its count, never an effect, a seal or a
 * grant. Everything else waits for its flush (EN1).
 *
 * Promises:  SN1 only a call that the cycle marked as a pure replay is answered early
 *                (engine_call.is_pure_replay).
 *            SN2 at most LIMIT_REPLAYS_SOON_MAX answered replays have no durable entry at a time;
 *                the next one waits for the flush.
 *            SN3 the flush begins within LIMIT_REPLAYS_SOON_MS of the first of them, or with the
 *                next batch that flushes. While a flush is under way no replay is answered early,
 *                so a slow disk does not make more of them.
 *            SN4 the store is marked durably before the first early answer, and the mark is removed
 *                after the last flush. A start that finds the mark writes an entry
 *                (`evidence.interrupted`) that says that entries about replays may be missing.
 * Threads:   the one that has the turn (engine.c).
 */
#ifndef ONCE_ENGINE_SOON_H
#define ONCE_ENGINE_SOON_H

#include "engine/cycle.h"

struct soon {
    struct store *store;
    bool is_on;    /* the store is marked, and pure replays are answered early */
    uint64_t owed; /* replays answered since a flush last began */
    int64_t
        since_ms; /* boot clock: when the first of them was answered; not read if there is none */
};

/* Writes the entry if the last process left the mark, then sets or removes the mark. A store that
 * cannot be marked, or has no room for the entry, leaves it off. E_UNKNOWN, E_CORRUPT: stop. */
enum status soon_start(
    struct soon *soon, struct cycle *cycle, bool is_wanted, struct err *err) MUST_CHECK;
/* Flushes and removes the mark. E_UNKNOWN: the flush failed. */
enum status soon_end(struct soon *soon, struct err *err) MUST_CHECK;

/* Moves the calls that may be answered now from calls to ret_early, and counts them. Both keep
 * their order. Returns how many there are. */
size_t soon_part(struct soon *soon, struct engine_call **calls, size_t *count,
    struct engine_call **ret_early, int64_t boot_ms);
/* When the flush must begin, by the boot clock; INT64_MAX: nothing is owed. */
int64_t soon_due_ms(const struct soon *soon);
/* A flush begins that covers everything committed so far. */
void soon_flushing(struct soon *soon);

#endif
