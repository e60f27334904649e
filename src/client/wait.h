/*
 * wait: how long to pause before the next attempt.
 *
 * Full jitter: random between nothing and a ceiling that doubles, so that clients that failed
 * together do not come back together. The server's Retry-After is a lower bound. Pure: clocks and
 * random bits are arguments.
 */
#ifndef ONCE_CLIENT_WAIT_H
#define ONCE_CLIENT_WAIT_H

#include <stdint.h>

#include "base/slice.h"

struct client_wait {
    int64_t base_ms;  /* the first ceiling */
    int64_t max_ms;   /* the last one */
    unsigned retry;   /* 0 before the first retry */
    uint64_t random;  /* 64 random bits */
    int64_t after_ms; /* the value of Retry-After; 0: absent */
    int64_t left_ms;  /* until the deadline */
};

/* Milliseconds to pause, fewer than are left; -1 when the next attempt would come too late. */
int64_t client_wait_ms(const struct client_wait *wait);

/* The milliseconds of a Retry-After (RFC 9110 section 10.2.3): seconds, or a date. 0 when it is
 * neither, or in the past. */
int64_t client_retry_after_ms(struct slice text, int64_t wall_ms);

#endif
