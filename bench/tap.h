/*
 * tap: the machine's io, with the size of each batch noted as it is written.
 *
 * A batch is a write by a thread that flushes, in whichever way, which does not begin with zeros;
 * zeros written ahead and saved indexes are the journal's own affair, not what a bare append has to
 * write.
 */
#ifndef ONCE_BENCH_TAP_H
#define ONCE_BENCH_TAP_H

#include <pthread.h>
#include <stdbool.h>

#include "base/io.h"

struct tap {
    struct io io;             /* give this to the store */
    _Atomic bool open;        /* note sizes now */
    const pthread_t *threads; /* those that flush; set before opening */
    const size_t *thread_count;
    uint32_t *sizes;     /* of batches, in order */
    size_t count;        /* batches noted */
    size_t cap;          /* batches there is room for; the rest are only counted in bytes */
    uint64_t bytes;      /* in all of them */
    size_t size_largest; /* of one */
};

void tap_init(struct tap *tap, size_t batches_max);
void tap_release(struct tap *tap);
void tap_clear(struct tap *tap);

#endif
