/*
 * backoff: how long to wait before the next try. Pure: clocks and random bits are arguments.
 *
 * Full jitter: uniform between nothing and a ceiling that doubles with each try, so that callers
 * that failed together do not come back together.
 */
#ifndef ONCE_BASE_BACKOFF_H
#define ONCE_BASE_BACKOFF_H

#include <stdint.h>

#include "base/slice.h"

/* The longest pause after this many failed tries: first_ms doubled that many times, at most
 * max_ms. */
int64_t backoff_ceiling_ms(int64_t first_ms, int64_t max_ms, unsigned tries);

/* The pause: random up to the ceiling, from 64 random bits. */
int64_t backoff_jitter_ms(int64_t ceiling_ms, uint64_t random);

/* The milliseconds of a Retry-After (RFC 9110 section 10.2.3): seconds, or a date in the one form
 * that is to be sent. 0 when it is neither, or past. At most a year: keeps sums small. */
int64_t backoff_retry_after_ms(struct slice text, int64_t now_ms);

#endif
