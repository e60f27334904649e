/*
 * flood: limits how often duplicates of one key are answered, per tenant and key.
 *
 * A token bucket for each key that has duplicates, in a table of fixed size. Only duplicates take
 * tokens: the door tells flood_count after the engine called an arrival a duplicate, and asks
 * flood_refuse before the next one of that key is let in. What was refused is counted per key and
 * handed out by flood_drain, about once a second, to become one entry of evidence each.
 *
 * Promises:  bounded memory; where the table is full the key that was quiet longest is forgotten
 *            (its refused count goes out with the next drain), of the tenant that holds the most of
 *            that part of the table: one tenant's flood leaves each other its equal share. A
 *            forgotten bucket lets duplicates in: it never refuses a key that is not flooded. What
 *            cannot be counted, for want of memory, is not refused.
 * Threads:   any.
 */
#ifndef ONCE_DOOR_FLOOD_H
#define ONCE_DOOR_FLOOD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "core/record.h"

struct flood;

enum { FLOOD_KEYS_MAX = 1 << 16 }; /* flooded keys at a time */

struct flood *flood_new(const struct mem *mem) MUST_CHECK;
void flood_free(struct flood *flood);

struct flood_rate {
    double per_second; /* 0: no limit */
    double burst;
};

/* True: refuse, and ask again after *ret_after_ms. It is counted. Takes no token. */
bool flood_refuse(struct flood *flood, const struct record_key *key, struct flood_rate rate,
    uint64_t now_nanos, int64_t *ret_after_ms);
/* An arrival of this key was a duplicate: take a token. */
void flood_count(
    struct flood *flood, const struct record_key *key, struct flood_rate rate, uint64_t now_nanos);

/* One key's refused duplicates since the last time, outside of every lock. The slices live until
 * the callback returns. A key that was forgotten and came back may be visited twice. */
typedef void (*flood_visit)(void *context, const struct record_key *key, uint64_t refused);
void flood_drain(struct flood *flood, flood_visit visit, void *context);

/* Keys that are held now, flooded or not any more. */
uint64_t flood_keys(struct flood *flood);

#endif
