#include "dispatch/turns.h"

#include <string.h>

#include "base/check.h"

static struct turns_lane **bucket_of(struct turns *turns, const struct digest *key)
{
    return &turns->buckets[key->bytes[0] % TURNS_BUCKETS];
}

static bool belongs_in_ring(const struct turns_lane *lane)
{
    return lane->first != NULL && !(lane->is_ordered && lane->out > 0);
}

void turns_heads(const struct turns *turns,
    void (*visit)(void *context, const struct turns_item *head), void *context)
{
    for (size_t i = 0; i < TURNS_BUCKETS; i++) {
        for (const struct turns_lane *lane = turns->buckets[i]; lane != NULL; lane = lane->chain) {
            if (lane->first != NULL) {
                visit(context, lane->first);
            }
        }
    }
}

void turns_check(const struct turns *turns)
{
    uint64_t lanes = 0;
    for (size_t i = 0; i < TURNS_BUCKETS; i++) {
        for (const struct turns_lane *at = turns->buckets[i]; at != NULL; at = at->chain) {
            ASSERT(at->in_ring == belongs_in_ring(at)); /* TN1 */
            ASSERT(at->first != NULL || at->out > 0);   /* TN2 */
            ASSERT((at->first == NULL) == (at->last == NULL));
            ASSERT((at->first == NULL) == (at->waiting == 0));
            lanes++;
        }
    }
    ASSERT(lanes == turns->lanes);
}

static void ring_leave(struct turns *turns, struct turns_lane *lane)
{
    turns->ring = turns->ring != lane ? turns->ring : lane->next != lane ? lane->next : NULL;
    lane->prev->next = lane->next;
    lane->next->prev = lane->prev;
    lane->in_ring = false;
}

/* At the end of the ring: before the lane whose turn it is. */
static void ring_enter(struct turns *turns, struct turns_lane *lane)
{
    if (turns->ring == NULL) {
        lane->prev = lane->next = lane;
        turns->ring = lane;
    } else {
        lane->next = turns->ring;
        lane->prev = turns->ring->prev;
        lane->prev->next = lane;
        lane->next->prev = lane;
    }
    lane->in_ring = true;
}

/* Restore TN1 and TN2 after any change of the lane. */
static void settle(struct turns *turns, struct turns_lane *lane)
{
    bool belongs = belongs_in_ring(lane);
    if (belongs && !lane->in_ring) {
        ring_enter(turns, lane);
    } else if (!belongs && lane->in_ring) {
        ring_leave(turns, lane);
    }
    if (lane->first == NULL && lane->out == 0) {
        struct turns_lane **at = bucket_of(turns, &lane->key);
        while (*at != lane) {
            at = &(*at)->chain;
        }
        *at = lane->chain;
        turns->lanes--;
        mem_free(turns->mem, lane);
    }
}

void turns_init(struct turns *turns, const struct mem *mem)
{
    *turns = (struct turns){.mem = mem};
}

void turns_release(struct turns *turns)
{
    for (size_t i = 0; i < TURNS_BUCKETS; i++) {
        for (struct turns_lane *at = turns->buckets[i], *next; at != NULL; at = next) {
            next = at->chain;
            mem_free(turns->mem, at);
        }
    }
    *turns = (struct turns){.mem = turns->mem};
}

static struct turns_lane *find(struct turns *turns, const struct digest *key)
{
    struct turns_lane *at = *bucket_of(turns, key);
    while (at != NULL && !digest_equal(&at->key, key)) {
        at = at->chain;
    }
    return at;
}

const struct turns_lane *turns_find(struct turns *turns, const struct digest *key)
{
    return find(turns, key);
}

struct turns_lane *turns_lane(
    struct turns *turns, const struct digest *key, void *owner, bool is_ordered)
{
    struct turns_lane **bucket = bucket_of(turns, key);
    struct turns_lane *lane = find(turns, key);
    if (lane != NULL) {
        return lane;
    }
    lane = mem_zalloc(turns->mem, 1, sizeof *lane);
    if (lane != NULL) {
        lane->key = *key;
        lane->owner = owner;
        lane->is_ordered = is_ordered;
        lane->chain = *bucket;
        *bucket = lane;
        turns->lanes++;
    }
    return lane;
}

void turns_put(struct turns *turns, struct turns_lane *lane, struct turns_item *item)
{
    item->next = NULL;
    if (lane->last == NULL) {
        lane->first = item;
    } else {
        lane->last->next = item;
    }
    lane->last = item;
    turns->waiting++;
    lane->waiting++;
    settle(turns, lane);
}

void turns_put_back(struct turns *turns, struct turns_lane *lane, struct turns_item *item)
{
    ASSERT(lane->out > 0);
    lane->out--;
    item->next = lane->first;
    lane->first = item;
    lane->last = lane->last == NULL ? item : lane->last;
    turns->waiting++;
    lane->waiting++;
    settle(turns, lane);
}

struct turns_item *turns_take(struct turns *turns,
    bool (*may)(void *context, const struct turns_lane *lane), void *context,
    struct turns_lane **ret_lane)
{
    struct turns_lane *lane = turns->ring;
    const struct turns_lane *begun = lane;
    for (unsigned looks = 0; lane != NULL && looks < TURNS_TRIES_MAX; looks++) {
        turns->ring = lane->next; /* its turn is over, whether it may or not */
        if (may(context, lane)) {
            struct turns_item *item = lane->first;
            lane->first = item->next;
            lane->last = lane->first == NULL ? NULL : lane->last;
            lane->out++;
            turns->waiting--;
            lane->waiting--;
            *ret_lane = lane;
            settle(turns, lane);
            return item;
        }
        lane = lane->next == begun ? NULL : lane->next;
    }
    return NULL;
}

void turns_over(struct turns *turns, struct turns_lane *lane)
{
    ASSERT(lane->out > 0);
    lane->out--;
    settle(turns, lane);
}
