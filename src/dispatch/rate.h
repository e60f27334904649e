/*
 * rate: limits the calls a second that a tenant may make to one target: a token bucket. Pure.
 *
 * The bucket holds the calls that may begin at once: a second's worth, and at least one. It starts
 * full, so that the first call never waits.
 */
#ifndef ONCE_DISPATCH_RATE_H
#define ONCE_DISPATCH_RATE_H

#include <stdbool.h>
#include <stdint.h>

struct rate {
    double used;   /* of the bucket; 0: it is full */
    int64_t at_ms; /* when `used` was computed */
};

/* Take one call. False: none is left; retry after *ret_wait_ms, at least 1. per_second 0: no limit.
 * A clock that goes back gives nothing and takes nothing. */
bool rate_take(struct rate *rate, double per_second, int64_t now_ms, int64_t *ret_wait_ms);

/* Give one call back that was taken and not made. */
void rate_return(struct rate *rate);

#endif
