/*
 * faulty_mem: the allocator of tests that run out of memory. A call fails, or all from one on, or a
 * number of them; what was not given back is counted. Any thread.
 */
#ifndef ONCE_TESTS_FAULTY_MEM_H
#define ONCE_TESTS_FAULTY_MEM_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#define FAULTY_FOR_GOOD LONG_MAX

/* All zero: nothing fails. */
struct faulty {
    atomic_long live;    /* blocks that somebody has */
    atomic_long asked;   /* calls so far */
    atomic_long fail_at; /* the number of the first that fails, from 1; 0: none does */
    atomic_long fails;   /* how many fail from there on; 0: that one alone */
};

/* Count from now on. */
static inline void faulty_arm(struct faulty *faulty, long fail_at, long fails)
{
    faulty->fail_at = 0;
    faulty->asked = 0;
    faulty->fails = fails;
    faulty->fail_at = fail_at;
}

/* For struct mem; the context is a struct faulty. */
static inline void *faulty_resize(void *context, void *pointer, size_t size)
{
    struct faulty *faulty = context;
    if (size == 0) {
        faulty->live -= pointer != NULL;
        free(pointer);
        return NULL;
    }
    long number = ++faulty->asked;
    long fail_at = faulty->fail_at;
    long fails = faulty->fails;
    if (fail_at > 0 && number >= fail_at && number - fail_at < (fails > 0 ? fails : 1)) {
        return NULL;
    }
    void *result = realloc(pointer, size);
    faulty->live += result != NULL && pointer == NULL;
    return result;
}

#endif
