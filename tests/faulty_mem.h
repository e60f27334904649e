/*
 * faulty_mem: an allocator for tests whose nth call fails; it counts what was not given back.
 */
#ifndef ONCE_TESTS_FAULTY_MEM_H
#define ONCE_TESTS_FAULTY_MEM_H

#include <stddef.h>
#include <stdlib.h>

struct faulty {
    long live;    /* blocks that somebody has */
    long asked;   /* calls so far */
    long fail_at; /* the number of the one that fails, from 1; 0: none does */
};

/* For struct mem; the context is a struct faulty. */
static inline void *faulty_resize(void *context, void *pointer, size_t size)
{
    struct faulty *faulty = context;
    if (size == 0) {
        faulty->live -= pointer != NULL;
        free(pointer);
        return NULL;
    }
    if (++faulty->asked == faulty->fail_at) {
        return NULL;
    }
    void *result = realloc(pointer, size);
    faulty->live += result != NULL && pointer == NULL;
    return result;
}

#endif
