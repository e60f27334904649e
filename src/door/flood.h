/*
 * flood: limits how often duplicates of one key are answered, per tenant and key.
 *
 * A token bucket for each key that has duplicates, in a table of fixed size. Only duplicates take
 * tokens: the door calls flood_count after the engine has decided that an arrival is a duplicate,
 * and flood_refuse before it lets in the next arrival of that key. Refusals are counted per key;
 * flood_drain hands the counts out about once a second, and each becomes one entry of evidence.
 *
 * Promises:  bounded memory. When a part of the table is full, the tenant that holds most of it
 *            loses the key that was quiet longest (its refused count goes out with the next drain),
 *            so one tenant's flood leaves every other tenant an equal share. Forgetting a bucket
 *            lets duplicates in; it never refuses a key that is not flooded. A refusal that cannot
 *            be counted, because memory is short, is not made.
 * Threads:   any.
 */
#ifndef ONCE_DOOR_FLOOD_H
#define ONCE_DOOR_FLOOD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "core/record.h"

struct flood;

enum { FLOOD_KEYS_MAX = 1 << 16 }; /* keys with a bucket at a time */

struct flood *flood_new(const struct mem *mem) MUST_CHECK;
void flood_free(struct flood *flood);

struct flood_rate {
    double per_second; /* 0: no limit */
    double burst;
};

/* True: refuse, and retry after *ret_after_ms. The refusal is counted; no token is taken. */
bool flood_refuse(struct flood *flood, const struct record_key *key, struct flood_rate rate,
    uint64_t now_nanos, int64_t *ret_after_ms);
/* An arrival of this key was a duplicate: take a token. */
void flood_count(
    struct flood *flood, const struct record_key *key, struct flood_rate rate, uint64_t now_nanos);

/* Called with one key's refused duplicates since the last drain, outside of every lock. The slices
 * live until the callback returns. A key that was forgotten and came back may be visited twice. */
typedef void (*flood_visit)(void *context, const struct record_key *key, uint64_t refused);
void flood_drain(struct flood *flood, flood_visit visit, void *context);

/* Keys held now, whether still flooded or not. */
uint64_t flood_keys(struct flood *flood);

#endif
