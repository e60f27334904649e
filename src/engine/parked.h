/*
 * parked: begins that wait for a running execution to settle.
 *
 * Promises:  a parked call leaves exactly once: woken by its key, timed out, or drained. At most
 *            LIMIT_WAITERS_MAX calls are parked; the next one is refused (P14).
 * Threads:   the one that has the engine's turn.
 */
#ifndef ONCE_ENGINE_PARKED_H
#define ONCE_ENGINE_PARKED_H

#include "engine/queue.h"

enum { PARKED_BUCKETS = 1024 }; /* a power of two; waiters are few compared with live keys */

struct parked {
    struct queue buckets[PARKED_BUCKETS]; /* by the first bytes of the key's hash */
    size_t count;
    int64_t next_ms; /* no call gives up before this; INT64_MAX: no calls */
};

void parked_init(struct parked *parked);
/* False: there is no room; answer it now. */
bool parked_add(struct parked *parked, struct engine_call *call);
/* Moves the calls for this key to out. */
void parked_wake(struct parked *parked, const struct digest *key_hash, struct queue *out);
/* Moves one call of each key to out, to ask for all of them. */
void parked_ask(struct parked *parked, struct queue *out);
/* Moves the calls that have waited long enough to out. */
void parked_expire(struct parked *parked, int64_t boot_ms, struct queue *out);

#endif
