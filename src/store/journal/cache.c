/*
 * Frames that were read for a duplicate, so that the next one reads no file: the record, and the
 * body of its outcome.
 *
 * A frame is named by its place, which is never written again (JF1) except when the whole segment
 * is replaced: squeezed, erased from, or archived. Then its frames are dropped
 * (segment_replaced). A frame is kept only if it is stable: what is not may be taken back and its
 * place used again. What is kept was checked; the caller compares it with the index or the record
 * as if it came from the file. A key that is granted again or moved has a new place. Only the
 * thread of the commits uses it.
 */
#include <string.h>

#include "base/check.h"
#include "store/journal/impl.h"

enum {
    CACHE_SLOTS = 16384,              /* more than frames of usual size fit */
    CACHE_WAYS = 4,                   /* slots that a place can be in */
    CACHE_BYTES_MAX = 8 << 20,        /* of frames; about ten thousand duplicates that come back */
    CACHE_FRAME_BYTES_MAX = 64 << 10, /* reading a longer one costs less than copying it */
};

struct cached {
    uint64_t place; /* 0: empty */
    char *payload;  /* owned */
    uint32_t size;
    uint32_t used; /* the cache's time of its last use */
    enum frame_kind kind;
};

static struct cached *set_of(const struct cache *cache, uint64_t place)
{
    uint64_t mixed = place * UINT64_C(0x9E3779B97F4A7C15); /* places of one segment are close */
    return &cache->slots[(mixed >> 40) % (CACHE_SLOTS / CACHE_WAYS) * CACHE_WAYS];
}

static void drop(struct journal *journal, struct cached *cached)
{
    if (cached->place != 0) {
        ASSERT(journal->cache.bytes >= cached->size);
        journal->cache.bytes -= cached->size;
        mem_free(journal->mem, cached->payload);
        *cached = (struct cached){.place = 0};
    }
}

/* An empty slot for a place: the one that was used longest ago makes room. */
static struct cached *make_room(struct journal *journal, uint64_t place, size_t size)
{
    struct cache *cache = &journal->cache;
    struct cached *set = set_of(cache, place);
    struct cached *oldest = set;
    for (size_t i = 1; i < CACHE_WAYS && oldest->place != 0; i++) {
        bool is_older = cache->time - set[i].used > cache->time - oldest->used;
        oldest = set[i].place == 0 || is_older ? &set[i] : oldest;
    }
    drop(journal, oldest);
    while (cache->bytes + size > CACHE_BYTES_MAX) {
        drop(journal, &cache->slots[cache->hand++ % CACHE_SLOTS]);
    }
    return oldest;
}

void cache_keep(struct journal *journal, uint64_t place, const struct frame *frame)
{
    struct cache *cache = &journal->cache;
    size_t size = frame->payload.len;
    if (journal->read_only || size == 0 || size > CACHE_FRAME_BYTES_MAX ||
        place >= atomic_load_explicit(&journal->stable, memory_order_acquire)) {
        return;
    }
    if (cache->slots == NULL) {
        cache->slots = mem_zalloc(journal->mem, CACHE_SLOTS, sizeof *cache->slots);
    }
    char *payload = cache->slots == NULL ? NULL : mem_alloc(journal->mem, size);
    if (payload == NULL) {
        return; /* it is read again next time */
    }
    memcpy(payload, frame->payload.data, size);
    struct cached *cached = make_room(journal, place, size);
    *cached = (struct cached){.place = place,
        .payload = payload,
        .size = (uint32_t)size,
        .used = cache->time++,
        .kind = frame->kind};
    cache->bytes += size;
}

bool cache_find(struct journal *journal, uint64_t place, struct frame *ret_frame)
{
    struct cache *cache = &journal->cache;
    struct cached *set = cache->slots == NULL ? NULL : set_of(cache, place);
    for (size_t i = 0; set != NULL && i < CACHE_WAYS; i++) {
        if (set[i].place == place) {
            set[i].used = cache->time++;
            ret_frame->kind = set[i].kind;
            ret_frame->payload = slice_of(set[i].payload, set[i].size);
            return true;
        }
    }
    return false;
}

void segment_replaced(struct journal *journal, struct segment *segment)
{
    const struct cache *cache = &journal->cache;
    segment_forget_fd(journal, segment);
    for (size_t i = 0; cache->slots != NULL && i < CACHE_SLOTS; i++) {
        if (place_segment(cache->slots[i].place) == segment->number) {
            drop(journal, &cache->slots[i]);
        }
    }
}

void cache_release(struct journal *journal)
{
    struct cache *cache = &journal->cache;
    for (size_t i = 0; cache->slots != NULL && i < CACHE_SLOTS; i++) {
        drop(journal, &cache->slots[i]);
    }
    ASSERT(cache->bytes == 0);
    mem_free(journal->mem, cache->slots);
    *cache = (struct cache){.slots = NULL};
}
