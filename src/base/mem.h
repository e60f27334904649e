/*
 * mem: the allocator everything in the library goes through.
 *
 * Promises:  no module calls malloc itself, so an embedding program can supply its own allocator
 *            and the torture tests can fail every allocation in turn.
 * Ownership: a struct mem must outlive every object made with it.
 * Threads:   resize is called from several threads and must be thread-safe.
 */
#ifndef ONCE_BASE_MEM_H
#define ONCE_BASE_MEM_H

#include <stddef.h>

#include "base/slice.h"
#include "base/status.h"

struct mem {
    /* Like realloc; size 0 frees and returns NULL. */
    void *(*resize)(void *context, void *pointer, size_t size);
    void *context; /* handed back to resize */
};

/* The C library's allocator. */
extern const struct mem mem_libc;

/* NULL on failure. The bytes are not cleared. */
void *mem_alloc(const struct mem *mem, size_t size) MUST_CHECK;
/* count * size bytes, zeroed; NULL on failure or overflow. */
void *mem_zalloc(const struct mem *mem, size_t count, size_t size) MUST_CHECK;
/* NULL on failure, and then the old block is still valid. */
void *mem_resize(const struct mem *mem, void *pointer, size_t size) MUST_CHECK;
/* A copy with a terminator; NULL on failure. */
char *mem_copy_text(const struct mem *mem, struct slice text) MUST_CHECK;
void mem_free(const struct mem *mem, void *pointer);

/* Overwrite a secret in a way the compiler may not drop. */
void mem_wipe(void *pointer, size_t size);

#endif
