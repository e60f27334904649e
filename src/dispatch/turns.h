/*
 * turns: the items that wait for one target, served round robin.
 *
 * Items wait in lanes, each first in, first out; lanes with items take turns. A lane is made for
 * each tenant and type of work, and for each value of an order, so that no backlog delays a
 * different lane. An ordered lane has one item out at a time: the next one comes when that is over.
 *
 * What holds (turns_check):
 *   TN1 a lane is in the ring exactly when it has items and, if it is ordered, none of them is out.
 *   TN2 a lane without items and without one out is forgotten.
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
#include "core/record.h"

enum {
    TURNS_BUCKETS = 256,  /* of lanes by their key */
    TURNS_TRIES_MAX = 64, /* lanes tried in one take, if none of them may go */
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
    void *owner;      /* the caller's: the owner of the lane */
    bool is_ordered;  /* one item is out at a time */
    uint32_t out;     /* items taken and not over */
    uint32_t waiting; /* its items */
    bool in_ring;
    struct op_id over; /* the caller's: the last item of the lane that is over, and all before it */
};

struct turns {
    const struct mem *mem;
    struct turns_lane *ring; /* whose turn it is; NULL: no lane's */
    struct turns_lane *buckets[TURNS_BUCKETS];
    uint64_t waiting; /* items in all lanes */
    uint64_t lanes;
};

void turns_init(struct turns *turns, const struct mem *mem);
/* The items are the caller's to free. */
void turns_release(struct turns *turns);

/* NULL: there is none. */
const struct turns_lane *turns_find(struct turns *turns, const struct digest *key);
/* The lane of that key, created if it is new; NULL: out of memory. It must be given an item. */
struct turns_lane *turns_lane(
    struct turns *turns, const struct digest *key, void *owner, bool is_ordered);
void turns_put(struct turns *turns, struct turns_lane *lane, struct turns_item *item);
/* Put it back at the head of its lane, instead of turns_over. */
void turns_put_back(struct turns *turns, struct turns_lane *lane, struct turns_item *item);
/* The first item of the next lane that may go; NULL: there is none, or TURNS_TRIES_MAX lanes may
 * not. */
struct turns_item *turns_take(struct turns *turns,
    bool (*may)(void *context, const struct turns_lane *lane), void *context,
    struct turns_lane **ret_lane);
/* A taken item is finished. This may free the lane. */
void turns_over(struct turns *turns, struct turns_lane *lane);
/* The first item of every lane that has one, in no order. */
void turns_heads(const struct turns *turns,
    void (*visit)(void *context, const struct turns_item *head), void *context);
void turns_check(const struct turns *turns);

#endif
