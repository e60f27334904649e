/*
 * index: where the latest record of each key is, in memory.
 *
 * 1024 partitions by the first ten bits of the key's hash. Each is an open-addressed table that is
 * kept in the order of the hashes and grows by itself, so that no growth stalls for long.
 *
 * Invariants (index_check asserts them):
 *   X1  a slot's home is its hash scaled to the partition's homes; it sits there or after it, with
 *       no empty slot between.
 *   X2  the slots of a partition are in the order of their hashes. So a search ends at the first
 *       greater one, `find` by the first 48 bits of a hash is a search too, and a scan in the order
 *       of hashes needs no sorting.
 *   X3  window_min is no later than the end of any window in the partition, so a partition where
 *       nothing has expired is passed over without reading its slots.
 *
 * 40 bytes a slot, at most 3/4 full, grown by a quarter: 53 to 67 bytes a key. Fuller ones save
 * memory and cost time: at 7/8 a search passes some 30 slots, at 3/4 some 8, and with many keys
 * none of them is in the processor's caches.
 * Threads:   one.
 */
#ifndef ONCE_STORE_JOURNAL_INDEX_H
#define ONCE_STORE_JOURNAL_INDEX_H

#include <stdint.h>

#include "base/mem.h"
#include "core/record.h"

enum {
    INDEX_PARTS = 1024,            /* 10 M keys: 10 k slots each, moved in a fraction of a ms */
    INDEX_PART_BITS = 10,          /* of the hash that choose one */
    INDEX_DUE_NEVER = (int32_t)-1, /* as uint32_t: no due second */
};

struct slot {
    uint64_t key_high;   /* the first 64 bits of the key's hash, the first byte uppermost */
    uint64_t key_low;    /* the next 64 */
    uint64_t place;      /* of the latest record frame; 0: the slot is empty */
    uint32_t due_s;      /* record_due_ms in seconds since 1970, rounded up */
    uint32_t duplicates; /* touches since that frame */
    uint32_t version;    /* the lower half of the record's */
    uint8_t status;      /* enum record_status */
    uint8_t kind;        /* enum record_kind */
    uint8_t held;        /* 1: in progress, and an incarnation of our processes holds it */
    uint8_t unused;      /* zero */
};

struct part {
    struct slot *slots;
    uint32_t homes;      /* slots that a hash may be scaled to */
    uint32_t room;       /* slots there are: the homes and some after them */
    uint32_t count;      /* slots in use */
    uint32_t end;        /* no slot from here on is in use */
    uint32_t window_min; /* X3 */
};

struct index {
    const struct mem *mem;
    struct part parts[INDEX_PARTS];
    uint64_t count; /* slots in use */
};

void index_init(struct index *index, const struct mem *mem);
void index_release(struct index *index);

/* The slot's key and due second from a record. */
struct slot slot_of(const struct record *record, uint64_t place);
bool slot_is(const struct slot *slot, const struct digest *hash);
unsigned slot_part(const struct slot *slot);
/* Its due is the end of its window: then the store forgets it. Every other due is somebody's. */
static inline bool slot_expires(const struct slot *slot)
{
    return record_status_expires((enum record_status)slot->status); /* P8 */
}

/* NULL when there is none. Valid until the next put or remove. */
struct slot *index_find(struct index *index, const struct digest *hash);
/* Ask for the memory that index_find will look at: in a large index every search misses the cache,
 * and a batch of them can wait for all at once. */
void index_prefetch(const struct index *index, const struct digest *hash);
/* Insert or replace. E_NOMEM: nothing changed. */
enum status index_put(struct index *index, const struct slot *slot) MUST_CHECK;
/* Replace one that was found, by one of the same key. */
void index_replace(struct index *index, struct slot *found, const struct slot *slot);
void index_remove(struct index *index, struct slot *slot);
/* Make room for count slots in an empty partition, then append them in their order. */
enum status index_part_reserve(struct index *index, unsigned part, uint32_t count) MUST_CHECK;
/* false: out of order or no room; the slot was not appended. */
bool index_part_append(struct index *index, unsigned part, const struct slot *slot);
/* Give memory back when few of its slots are in use. Never fails: it then stays as it is. */
void index_part_shrink(struct index *index, unsigned part);

/* The first slot whose hash has this prefix of 48 bits or a greater one; NULL for none in this
 * partition. Then go on with index_next. */
struct slot *index_seek(struct index *index, uint64_t key_high, uint64_t key_low);
/* The next slot in use of the same partition; NULL at its end. slot may be NULL: the first. */
struct slot *index_next(struct index *index, unsigned part, struct slot *slot);

void index_check(const struct index *index);

#endif
