/*
 * turns: what waits for one target, served round robin.
 *
 * Items wait in lanes, each first in, first out; lanes with items take turns. A lane is made for
 * each tenant and type of work, and for each value of an order, so that no backlog keeps another
 * one waiting. An ordered lane has one item out at a time: the next one comes when that is over.
 *
 * What holds (turns_check):
 *   N1  a lane is in the ring exactly when it has items and, if it is ordered, none of them is out.
 *   N2  a lane without items and without one out is forgotten.
 *
 * Ownership: items are the caller's memory; lanes are ours.
 * Threads:   one.
 */
#ifndef ONCE_DISPATCH_TURNS_H
#define ONCE_DISPATCH_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "canon/digest.h"

enum {
    TURNS_BUCKETS = 256,  /* of lanes by their key */
    TURNS_LOOKS_MAX = 64, /* lanes that are asked in one take, when none of them may */
};

struct turns_item {
    struct turns_item *next;
};

struct turns_lane {
    struct turns_lane *prev; /* in the ring */
    struct turns_lane *next;
    struct turns_lane *chain; /* of its bucket */
    struct digest key;
    struct turns_item *first;
    struct turns_item *last;
    void *owner;     /* the caller's: whose lane it is */
    bool is_ordered; /* one item is out at a time */
    uint32_t out;    /* items taken and not over */
    bool in_ring;
};

struct turns {
    const struct mem *mem;
    struct turns_lane *ring; /* whose turn it is; NULL: nobody's */
    struct turns_lane *buckets[TURNS_BUCKETS];
    uint64_t waiting; /* items in all lanes */
    uint64_t lanes;
};

void turns_init(struct turns *turns, const struct mem *mem);
/* The items are the caller's to free. */
void turns_release(struct turns *turns);

/* The lane of that key, made when it is new; NULL: out of memory. It must be given an item. */
struct turns_lane *turns_lane(
    struct turns *turns, const struct digest *key, void *owner, bool is_ordered);
void turns_put(struct turns *turns, struct turns_lane *lane, struct turns_item *item);
/* To the head of its lane again, instead of turns_over. */
void turns_put_back(struct turns *turns, struct turns_lane *lane, struct turns_item *item);
/* The first item of the next lane that may; NULL: there is none, or TURNS_LOOKS_MAX may not. */
struct turns_item *turns_take(struct turns *turns,
    bool (*may)(void *context, const struct turns_lane *lane), void *context,
    struct turns_lane **ret_lane);
/* An item that was taken is over. The lane may be gone after it. */
void turns_over(struct turns *turns, struct turns_lane *lane);
/* The first item of every lane that has one, in no order. */
void turns_heads(const struct turns *turns,
    void (*visit)(void *context, const struct turns_item *head), void *context);
void turns_check(const struct turns *turns);

#endif
