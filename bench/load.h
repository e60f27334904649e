/*
 * load: keeps a number of calls in flight on an engine; each answer submits the next call.
 *
 * An operation is a begin with a kept payload of 150 bytes and, when asked for, its seal with an
 * outcome of 60 bytes. What a door does before it submits (hashing key and payload) is prepared
 * before the clock starts, because doors have threads of their own and the callback must be quick.
 */
#ifndef ONCE_BENCH_LOAD_H
#define ONCE_BENCH_LOAD_H

#include <pthread.h>

#include "bench.h"
#include "engine/engine.h"

struct load_prepared;
struct load_slot;
struct load_latch;

enum { LOAD_THREADS = 2 }; /* the engine's own and the one it has for flushes */

struct load {
    struct engine *engine;
    bool seals;       /* begin and seal; otherwise begins alone */
    size_t in_flight; /* calls at any time */

    struct load_slot *slots;
    struct load_prepared *prepared;
    size_t prepared_cap;   /* operations that a run may have */
    size_t prepared_count; /* operations that are prepared */
    uint64_t number_first; /* of the first prepared operation; no two have the same number */
    struct digest outcome; /* of the outcome's bytes, which are the same for all */

    /* One run; after the first submits only done functions touch it. */
    size_t next;    /* operation to begin */
    uint64_t until; /* no call is begun after this, in clock_nanos */
    size_t running; /* slots that are not idle */
    uint64_t ended; /* when the last call was answered */
    uint64_t calls; /* answered */
    struct bench_times times;
    struct load_latch *latch;
    pthread_t answering[LOAD_THREADS]; /* those that called back */
    size_t answering_count;
};

/* operations_max: how many a run may do; it ends early when they are used up. */
void load_init(struct load *load, size_t in_flight, bool seals, size_t operations_max);
void load_release(struct load *load);
/* Prepare operations 'number' and following. */
void load_prepare(struct load *load, uint64_t number, size_t count);

struct load_result {
    double seconds;
    double cpu_s;
    uint64_t calls;
    uint64_t operations; /* begun */
};

/* Run for so long on this engine, until everything is answered. Any answer but the expected one
 * ends the program. */
struct load_result load_run(struct load *load, struct engine *engine, double seconds);

/* The key of the operation of this number, not sealed. Its text is put into ret_text. */
void load_key(uint64_t number, char ret_text[32], struct record_key *ret_key);

#endif
