/*
 * pace: whether the store is quick enough for the thread that submits to flush it.
 *
 *   quick --a stall, or typical_nanos above PACE_SLOW_NANOS----------> slow   pace_took
 *   slow --no stall for calm_ms, typical_nanos below PACE_QUICK_NANOS--> quick  pace_took
 *
 * In each state:
 *   quick  nothing has stalled since it became quick.
 *   slow   the engine's own thread flushes, so that no loop is delayed. It becomes quick again only
 *          after it was quick for calm_ms. If it stalls soon after that, calm_ms doubles: a disk
 *          that stalls now and then soon stays with the engine's thread.
 *
 * What is typical is a moving median, not a mean: on a machine with more to do than cores a thread
 * often waits for a core after its flush, and a mean would take these few for a slow disk.
 *
 * It reads no clock, so tests need none. One thread at a time uses it.
 */
#ifndef ONCE_ENGINE_PACE_H
#define ONCE_ENGINE_PACE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    PACE_STALL_NANOS = 20000000, /* one flush this long is a stall; a healthy disk's takes 1/50 */
    PACE_SLOW_NANOS = 800000,    /* typically longer, a flush takes most of a loop's time, and its
                                    clients' next calls miss the next batch */
    PACE_QUICK_NANOS = 500000,   /* quick again: less, so that it does not change at every flush */
    PACE_FLIGHT = 2,             /* a flight may take this many times as long: with flights of at
                                    most 0.9 ms, loops had up to 1.9 of the rate of the engine's
                                    thread; from 1.7 ms on, 0.9 */
    PACE_CALM_MS = 1000,         /* without a stall, before it is quick again … */
    PACE_CALM_MS_MAX = 30000,    /* … at most */
    PACE_SOON = 4,               /* a stall within this many calm_ms of the return doubles it: rare
                                    stalls, such as a thread that waits for a core, cost little */
};

enum pace_state { PACE_QUICK, PACE_SLOW };

struct pace {
    enum pace_state state;
    uint64_t typical_nanos; /* of a flush; a moving median */
    int64_t calm_ms;        /* how long it must be without a stall */
    int64_t stalled_ms;     /* slow: boot clock of the last stall, or of the change to slow */
    int64_t returned_ms;    /* boot clock: when it last became quick again */
    uint64_t slowdowns;     /* how often it became slow */
};

void pace_init(struct pace *pace);
/* A flush took this long and ended now. */
void pace_took(struct pace *pace, uint64_t nanos, int64_t boot_ms);
/* The same for a flight, which no thread waits for. It delays nobody, so it is not a stall, and may
 * take longer. But if flushes typically take very long, a thread that waits for its flush is
 * faster: the result of a flight comes through more kernel threads, each of which waits for a
 * core. */
void pace_flush_took(struct pace *pace, uint64_t nanos, int64_t boot_ms);
/* Asserts what holds in its state. */
void pace_check(const struct pace *pace);

#endif
