/*
 * failing_mem: an allocator for test programs with threads, of which a number of calls fail: those
 * after the first `left`, as many as `fails`. faulty_mem.h is the one for a single thread.
 */
#ifndef ONCE_TESTS_FAILING_MEM_H
#define ONCE_TESTS_FAILING_MEM_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct failing {
    atomic_llong left;  /* calls that still succeed; below 0: that many have come since */
    atomic_llong fails; /* calls that fail then; after them memory is back */
};

/* No call fails. */
static inline void failing_init(struct failing *failing)
{
    atomic_init(&failing->left, INT64_MAX);
    atomic_init(&failing->fails, INT64_MAX);
}

/* For struct mem; the context is a struct failing. */
static inline void *failing_resize(void *context, void *pointer, size_t size)
{
    struct failing *failing = context;
    if (size == 0) {
        free(pointer);
        return NULL;
    }
    long long left = atomic_fetch_sub(&failing->left, 1);
    return left <= 0 && left > -atomic_load(&failing->fails) ? NULL : realloc(pointer, size);
}

#endif
