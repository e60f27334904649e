/*
 * ages: how many records there are of each age, roughly, and when the oldest of them began.
 *
 * Records are added and removed by the time at which they began, in any order. Times are kept as a
 * few spans with a count each: short spans for recent times, longer ones the older they are.
 *
 *   AG1 spans are disjoint, in order, and none is empty.
 *   AG2 a time that was added is inside the span that counts it, however spans are merged.
 *   AG3 the oldest time reported is at most one span before the true one, never after it.
 *
 * Promises:  fixed size; no allocation. Pure.
 */
#ifndef ONCE_ENGINE_AGES_H
#define ONCE_ENGINE_AGES_H

#include <stddef.h>
#include <stdint.h>

enum {
    AGES_SPANS_MAX = 32, /* with ages up to a day, an age is never shown as twice what it is */
    AGES_SPAN_MS = 1000, /* of a new span: what people who watch a gauge care about */
};

struct ages_span {
    int64_t from_ms;
    int64_t until_ms; /* exclusive */
    int64_t first_ms; /* earliest time added to it */
    uint64_t count;
};

/* Zeroed: empty. */
struct ages {
    struct ages_span spans[AGES_SPANS_MAX];
    size_t count;
};

void ages_add(struct ages *ages, int64_t time_ms);
/* The time must have been added before. */
void ages_remove(struct ages *ages, int64_t time_ms);
/* When the oldest began (AG3); 0: there is none. */
int64_t ages_oldest_ms(const struct ages *ages);
/* Asserts AG1. */
void ages_check(const struct ages *ages);

#endif
