/*
 * arena: memory that is allocated piece by piece and freed whole.
 *
 * Promises:  never holds more than its maximum; a request owns one and frees it in one call.
 * Ownership: everything allocated lives until arena_clear or arena_release.
 * Threads:   one thread at a time.
 */
#ifndef ONCE_BASE_ARENA_H
#define ONCE_BASE_ARENA_H

#include "base/mem.h"
#include "base/slice.h"

struct arena_chunk;

struct arena {
    const struct mem *mem;      /* where chunks come from */
    struct arena_chunk *chunks; /* newest first */
    char *at;                   /* next free byte in the newest chunk */
    char *end;                  /* its end */
    size_t held;                /* bytes in all chunks */
    size_t max;                 /* bytes that may ever be held */
};

void arena_init(struct arena *arena, const struct mem *mem, size_t bytes_max);
void arena_release(struct arena *arena);
/* Frees everything but keeps one chunk, so that a cycle of requests does not call malloc. */
void arena_clear(struct arena *arena);
/* 16-byte aligned, not cleared. NULL when memory or the maximum is exhausted. */
void *arena_alloc(struct arena *arena, size_t size) MUST_CHECK;
void *arena_zalloc(struct arena *arena, size_t size) MUST_CHECK;
/* A copy that lives in the arena; *ret is untouched on failure. */
enum status arena_copy(struct arena *arena, struct slice from, struct slice *ret) MUST_CHECK;

/* The arena as an allocator, for buffers: nothing is freed before the arena is cleared. */
struct mem arena_mem(struct arena *arena);

#endif
