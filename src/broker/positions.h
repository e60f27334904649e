/*
 * positions: how far a group of Kafka may be committed, by partition. Pure but for its memory.
 *
 *     take 4, 5, 6, 7   done 5, 7 → nothing     done 4 → 6 is next     done 6 → 8 is next
 *
 * Promises:  `next` is never after an offset that was taken and is not done (OPS-8). An offset of a
 *            partition that was cleared, or that was never taken, changes nothing.
 * Does not:  know Kafka; commit.
 */
#ifndef ONCE_BROKER_POSITIONS_H
#define ONCE_BROKER_POSITIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

enum {
    POSITION_SPAN_MAX = 65536, /* offsets between `next` and the newest that was taken: then the
                                  partition is paused */
    POSITIONS_MAX = 4096,      /* partitions of one process */
};

struct taken_offset {
    int64_t offset;
    bool is_done;
};

/* The taken offsets of one partition, in order; those before `first` are done. */
struct position {
    int32_t partition;
    struct taken_offset *offsets;
    size_t first;
    size_t count; /* from first on */
    size_t room;
    int64_t next;   /* may be committed: all before it are done; -1: none yet */
    bool is_dirty;  /* `next` has moved since the owner last read it */
    bool is_paused; /* the owner's */
};

struct positions {
    struct position *items;
    size_t count;
};

/* The offset was taken. An offset before those taken earlier means that the topic was recreated, or
 * the group was reset: then nothing older counts. False: out of memory. */
bool positions_take(struct positions *positions, int32_t partition, int64_t offset);
/* PARTITION-OFFSET is done. */
void positions_done(struct positions *positions, struct slice id);
/* Whether no more should be taken from it; once paused, it stays so until half of it is done. */
bool position_is_long(const struct position *position, bool is_paused);
/* Forget everything; zeroed is fine. */
void positions_clear(struct positions *positions);

#endif
