/*
 * wheel: deadlines of many connections, checked ten times a second.
 *
 * Promises:  a deadline never fires early, and late by at most two ticks of its loop. Moving one
 *            later, or switching it off, costs one store: it stays in its slot and is sorted again
 *            when the slot comes up. So a busy connection pays nothing.
 * Does not:  know the time or allocate; the loop does both.
 * Threads:   one; each loop has its own.
 *
 * WH1 A linked deadline is in the slot of slot_tick, and slot_tick is after done_tick.
 * WH2 A deadline that is on (at_ms > 0) is linked, in a slot not after its own tick.
 */
#ifndef ONCE_NET_WHEEL_H
#define ONCE_NET_WHEEL_H

#include <stddef.h>
#include <stdint.h>

enum {
    NET_TICK_MS = 100,     /* all our limits are seconds; a tenth more does no harm */
    NET_WHEEL_SLOTS = 512, /* 51 s a turn; a later deadline is sorted again once a turn */
};

struct net_deadline;
typedef void (*net_due)(struct net_deadline *deadline, uint64_t now_ms);

struct net_deadline {
    struct net_deadline *prev; /* in its slot; NULL: not linked */
    struct net_deadline *next;
    net_due due;        /* what it leads to; set once, by its owner */
    uint64_t at_ms;     /* when it is due; 0: off */
    uint64_t slot_tick; /* the tick of the slot it is in */
};

struct net_wheel {
    struct net_deadline slots[NET_WHEEL_SLOTS]; /* heads of circular lists */
    uint64_t done_tick;                         /* all slots up to here were checked */
    size_t count;                               /* linked deadlines */
};

void net_wheel_init(struct net_wheel *wheel, uint64_t now_ms);
void net_wheel_set(
    struct net_wheel *wheel, struct net_deadline *deadline, uint64_t now_ms, uint64_t at_ms);
/* Unlink, before its memory goes. One that is not linked is fine. */
void net_wheel_remove(struct net_wheel *wheel, struct net_deadline *deadline);
/* Calls due for each deadline that has passed; it is then off and unlinked, and may be set
 * again. */
void net_wheel_run(struct net_wheel *wheel, uint64_t now_ms);
void net_wheel_check(const struct net_wheel *wheel);

static inline void net_deadline_off(struct net_deadline *deadline)
{
    deadline->at_ms = 0;
}

#endif
