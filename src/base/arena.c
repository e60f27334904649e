#include "base/arena.h"

#include <stdint.h>
#include <string.h>

#include "base/check.h"

enum {
    ARENA_ALIGN = 16,                /* enough for every scalar type */
    ARENA_CHUNK_BYTES = 16384,       /* one chunk serves a usual request */
    ARENA_CHUNK_BYTES_MAX = 1 << 20, /* chunks of a busy arena double up to this */
};

struct arena_chunk {
    struct arena_chunk *next;
    size_t size; /* bytes after this header */
};

static_assert(sizeof(struct arena_chunk) % ARENA_ALIGN == 0, "chunk data starts aligned");

void arena_init(struct arena *arena, const struct mem *mem, size_t bytes_max)
{
    *arena = (struct arena){.mem = mem, .max = bytes_max};
}

static void chunks_free(struct arena *arena, struct arena_chunk *chunk)
{
    while (chunk != NULL) {
        struct arena_chunk *next = chunk->next;
        arena->held -= chunk->size;
        mem_free(arena->mem, chunk);
        chunk = next;
    }
}

static void arena_use(struct arena *arena, struct arena_chunk *chunk)
{
    arena->chunks = chunk;
    arena->at = chunk == NULL ? NULL : (char *)(chunk + 1);
    arena->end = chunk == NULL ? NULL : arena->at + chunk->size;
}

void arena_release(struct arena *arena)
{
    if (arena != NULL && arena->mem != NULL) {
        chunks_free(arena, arena->chunks);
        arena_use(arena, NULL);
        ASSERT(arena->held == 0);
    }
}

void arena_clear(struct arena *arena)
{
    struct arena_chunk *keep = arena->chunks;
    if (keep != NULL) {
        chunks_free(arena, keep->next);
        keep->next = NULL;
    }
    arena_use(arena, keep);
}

static void *arena_grow(struct arena *arena, size_t size)
{
    size_t room = arena->max - arena->held;
    if (size > room) {
        return NULL;
    }
    /* As much as all chunks so far: arena_clear keeps the newest chunk, so an arena that is reused
     * soon fits in one chunk and allocates no more. */
    size_t want = arena->held > ARENA_CHUNK_BYTES ? arena->held : ARENA_CHUNK_BYTES;
    want = want > ARENA_CHUNK_BYTES_MAX ? ARENA_CHUNK_BYTES_MAX : want;
    want = size > want ? size : want;
    if (want > room) {
        want = room;
    }
    struct arena_chunk *chunk = mem_alloc(arena->mem, sizeof *chunk + want);
    if (chunk == NULL) {
        return NULL;
    }
    chunk->next = arena->chunks;
    chunk->size = want;
    arena->held += want;
    arena_use(arena, chunk);
    arena->at += size;
    return chunk + 1;
}

void *arena_alloc(struct arena *arena, size_t size)
{
    ASSERT(arena->mem != NULL);
    if (size > SIZE_MAX - ARENA_ALIGN) {
        return NULL;
    }
    size_t need = (size + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    if (need <= (size_t)(arena->end - arena->at)) {
        void *place = arena->at;
        arena->at += need;
        return place;
    }
    return arena_grow(arena, need);
}

void *arena_zalloc(struct arena *arena, size_t size)
{
    void *place = arena_alloc(arena, size);
    if (place != NULL) {
        memset(place, 0, size);
    }
    return place;
}

enum status arena_copy(struct arena *arena, struct slice from, struct slice *ret)
{
    if (from.len == 0) {
        *ret = SLICE_EMPTY;
        return OK;
    }
    char *place = arena_alloc(arena, from.len);
    if (place == NULL) {
        return E_NOMEM;
    }
    memcpy(place, from.data, from.len);
    *ret = slice_of(place, from.len);
    return OK;
}

/* Precedes each block of an arena's allocator, because an arena does not record block sizes. */
struct arena_block {
    size_t bytes;
    size_t unused; /* keeps what follows aligned to 16 */
};

static void *arena_resize(void *context, void *pointer, size_t size)
{
    if (size == 0) {
        return NULL;
    }
    struct arena_block *block = arena_alloc(context, sizeof *block + size);
    if (block == NULL) {
        return NULL;
    }
    block->bytes = size;
    if (pointer != NULL) {
        const struct arena_block *old = (const struct arena_block *)pointer - 1;
        memcpy(block + 1, pointer, old->bytes < size ? old->bytes : size);
    }
    return block + 1;
}

struct mem arena_mem(struct arena *arena)
{
    return (struct mem){.resize = arena_resize, .context = arena};
}
