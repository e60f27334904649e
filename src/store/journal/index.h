/*
 * index: where the latest record of each key is, in memory.
 *
 * 1024 partitions by the first ten bits of the key's hash. Each is an open-addressed table, ordered
 * by hash, that grows on its own, so that no growth stalls for long.
 *
 * Invariants (index_check asserts them):
 *   IX1 a slot's home is its hash scaled to the partition's homes; the slot is there or after it,
 *       with no empty slot between.
 *   IX2 the slots of a partition are ordered by hash. So a search ends at the first greater hash,
 *       finding by the first 48 bits of a hash is a search too, and a scan in hash order needs no
 *       sorting.
 *   IX3 window_min is no later than the end of any window in the partition, so a partition where
 *       nothing has expired is skipped without reading its slots.
 *
 * 40 bytes a slot, at most 3/4 full, grown by a quarter: 53 to 67 bytes a key. Fuller tables save
 * memory and cost time: at 7/8 a search passes some 30 slots, at 3/4 some 8, and with many keys
 * none of them is in the processor's caches. Threads: one.
 */
#ifndef ONCE_STORE_JOURNAL_INDEX_H
#define ONCE_STORE_JOURNAL_INDEX_H

#include <stdint.h>

#include "base/mem.h"
#include "core/record.h"

enum {
    INDEX_PARTS = 1024,            /* 10 M keys: 10 k slots each, moved in a fraction of a ms */
    INDEX_PART_BITS = 10,          /* bits of the hash that choose the partition */
    INDEX_DUE_NEVER = (int32_t)-1, /* as uint32_t: no due second */
};

struct slot {
    uint64_t key_high;   /* the first 64 bits of the key's hash, the first byte uppermost */
    uint64_t key_low;    /* the next 64 */
    uint64_t place;      /* of the latest record frame; 0: the slot is empty */
    uint32_t due_s;      /* record_due_ms in seconds since 1970, rounded up */
    uint32_t duplicates; /* touches since that frame */
    uint32_t version;    /* the lower half of the record's version */
    uint8_t status;      /* enum record_status */
    uint8_t kind;        /* enum record_kind */
    uint8_t held;        /* 1: in progress, and an incarnation of our processes holds it */
    uint8_t unused;      /* zero */
};

struct part {
    struct slot *slots;
    uint32_t homes;      /* slots that hashes are scaled to */
    uint32_t room;       /* all slots: the homes and some after them */
    uint32_t count;      /* slots in use */
    uint32_t end;        /* no slot from here on is in use */
    uint32_t window_min; /* IX3 */
};

struct index {
    const struct mem *mem;
    struct part parts[INDEX_PARTS];
    uint64_t count; /* slots in use */
};

void index_init(struct index *index, const struct mem *mem);
void index_release(struct index *index);

/* The slot of a record: its key, due second, status, … */
struct slot slot_of(const struct record *record, uint64_t place);
bool slot_is(const struct slot *slot, const struct digest *hash);
unsigned slot_part(const struct slot *slot);
/* Its due is the end of its window, when the store forgets it. For any other, somebody must act. */
static inline bool slot_expires(const struct slot *slot)
{
    return record_status_expires((enum record_status)slot->status); /* P8 */
}

/* NULL if absent. Valid until the next put or remove. */
struct slot *index_find(struct index *index, const struct digest *hash);
/* Prefetches the memory that index_find will read: in a large index every search misses the cache,
 * and a batch of searches can wait for all at once. */
void index_prefetch(const struct index *index, const struct digest *hash);
/* Inserts or replaces. E_NOMEM: nothing changed. */
enum status index_put(struct index *index, const struct slot *slot) MUST_CHECK;
/* Replaces a slot that was found by one of the same key. */
void index_replace(struct index *index, struct slot *found, const struct slot *slot);
void index_remove(struct index *index, struct slot *slot);
/* Makes room for count slots in an empty partition, which are then appended in their order. */
enum status index_part_reserve(struct index *index, unsigned part, uint32_t count) MUST_CHECK;
/* false: out of order or no room; the slot was not appended. */
bool index_part_append(struct index *index, unsigned part, const struct slot *slot);
/* Releases memory if few of the slots are in use. If it cannot, the partition stays as it is. */
void index_part_shrink(struct index *index, unsigned part);

/* The first slot with this hash or a greater one; NULL: none here. Continue with index_next. */
struct slot *index_seek(struct index *index, uint64_t key_high, uint64_t key_low);
/* The next used slot of the same partition; NULL at its end. slot may be NULL: the first. */
struct slot *index_next(struct index *index, unsigned part, struct slot *slot);

void index_check(const struct index *index);

#endif
