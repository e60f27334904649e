/*
 * format: the bytes of a journal, as docs/formats/journal.md describes them.
 *
 * A segment is a header block and batches after it; a batch is one flush: a header, frames, and
 * zeros up to the next block. Everything is little-endian and without compiler padding.
 *
 * Invariants (cited by number elsewhere):
 *   JF1 a batch starts on a block, so that an acknowledged sector is never written again.
 *   JF2 batches are numbered densely from 1, across segments.
 *   JF3 a batch is written only where zeros were written and flushed before. So a sector that never
 *       reached the disk reads as zeros, which distinguishes a torn batch from a damaged one.
 *   JF4 the chain, the segment and the offset are part of every checksum: a frame in a different
 *       place than it was written to fails the check.
 *   JF5 one flush is in flight at a time: nothing was ever written after a torn batch.
 *   JF6 a record's bodies are in the same segment as its latest frame. So a segment without live
 *       records has no live bodies either.
 *   JF7 segments are squeezed oldest first, and only those before the newest saved index. So a
 *       record that was squeezed out never comes back from an older frame.
 *
 * Does not: read or write files. All decoders here accept hostile bytes.
 */
#ifndef ONCE_STORE_JOURNAL_FORMAT_H
#define ONCE_STORE_JOURNAL_FORMAT_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

#include "base/limits.h"
#include "store/store.h"

enum {
    JOURNAL_VERSION = 1,        /* of every file; any other version is refused */
    JOURNAL_BLOCK_BYTES = 4096, /* batches are aligned to this: a page, and a sector of any disk */
    JOURNAL_SECTOR_BYTES = 512, /* what a disk writes whole or not at all */
    BATCH_HEADER_BYTES = 64,    /* fits in the first sector, so it is written whole or not at all */
    FRAME_HEADER_BYTES = 12,    /* length, kind, checksum */
    ENTRY_HEADER_BYTES = 72,    /* in front of an entry's tenant and own bytes */
    ENTRY_LEAD_BYTES_MAX = ENTRY_HEADER_BYTES + LIMIT_TENANT_BYTES_MAX,
    BATCH_BYTES_MAX = 256 << 20, /* far more than a commit can hold; limits a hostile length */
    IDENTITY_BYTES = 256,        /* the whole identity file */
};

/* Values are on disk: never renumber. */
enum frame_kind {
    FRAME_RECORD = 1,  /* record_encode's bytes: the new record */
    FRAME_TOUCH = 2,   /* a key hash: one more duplicate of it was seen */
    FRAME_ENTRY = 3,   /* evidence or a checkpoint note */
    FRAME_REQUEST = 4, /* digest and bytes of a request body */
    FRAME_OUTCOME = 5, /* digest and bytes of an outcome body */
    FRAME_MOVED = 6,   /* a record written again because its segment will be squeezed */
    FRAME_ERASED = 7,  /* a request body that was erased: its digest, and zeros in place of it */
};

/* A place: the segment's number in the upper half, the offset in the lower. */
static inline uint64_t place_make(uint64_t segment, uint64_t offset)
{
    return segment << 32 | offset;
}

static inline uint64_t place_segment(uint64_t place)
{
    return place >> 32;
}

static inline uint64_t place_offset(uint64_t place)
{
    return place & UINT32_MAX;
}

static inline uint64_t block_up(uint64_t bytes)
{
    return (bytes + JOURNAL_BLOCK_BYTES - 1) / JOURNAL_BLOCK_BYTES * JOURNAL_BLOCK_BYTES;
}

/* Little-endian numbers anywhere in memory. */
static inline void le32_put(void *to, uint32_t value)
{
    value = htole32(value);
    memcpy(to, &value, sizeof value);
}

static inline void le64_put(void *to, uint64_t value)
{
    value = htole64(value);
    memcpy(to, &value, sizeof value);
}

static inline uint32_t le32_get(const void *from)
{
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return le32toh(value);
}

static inline uint64_t le64_get(const void *from)
{
    uint64_t value;
    memcpy(&value, from, sizeof value);
    return le64toh(value);
}

bool bytes_zero(const void *bytes, size_t size);

/* The state of a store at the start of a batch. */
struct mark {
    uint64_t place;             /* where that batch begins */
    uint64_t batch;             /* its number */
    uint64_t seq;               /* of the last entry before it */
    struct digest hash;         /* its hash */
    uint64_t fence;             /* the highest given out before it */
    struct store_moment moment; /* of the last commit before it */
};

enum { MARK_BYTES = 88 };

void mark_encode(const struct mark *mark, unsigned char ret_bytes[MARK_BYTES]);
void mark_decode(const unsigned char bytes[MARK_BYTES], struct mark *ret_mark);

struct segment_header {
    uint64_t number;
    uint64_t size;    /* the segment's maximal end */
    bool squeezed;    /* records and bodies were removed; batches are no longer aligned */
    struct mark mark; /* before its first batch */
    unsigned char chain_id[16];
};

void segment_header_encode(
    const struct segment_header *header, unsigned char ret_block[JOURNAL_BLOCK_BYTES]);
/* NULL when it is valid, otherwise what is wrong with it. */
const char *segment_header_decode(
    const unsigned char block[JOURNAL_BLOCK_BYTES], struct segment_header *ret_header);

/* The seed of the checksums of one segment (JF4). */
uint32_t segment_seed(const unsigned char chain_id[16], uint64_t number);

struct batch_header {
    uint64_t number;
    uint32_t length;            /* bytes, including the header and the zeros at the end */
    uint32_t content;           /* bytes without the zeros at the end */
    uint32_t frames;            /* count */
    uint32_t zero_sectors;      /* written sectors of the content that are zero */
    struct store_moment moment; /* of its last commit */
    uint64_t fence;             /* the highest given out so far */
};

void batch_header_encode(const struct batch_header *header, uint32_t seed, uint64_t offset,
    unsigned char ret_bytes[BATCH_HEADER_BYTES]);
/* NULL when it is valid, otherwise what is wrong with it. */
const char *batch_header_decode(const unsigned char bytes[BATCH_HEADER_BYTES], uint32_t seed,
    uint64_t offset, struct batch_header *ret_header);

/* How many whole sectors of the batch's content are zeros, not counting the first. */
uint32_t batch_zero_sectors(const char *bytes, uint32_t content);

struct frame {
    enum frame_kind kind;
    uint64_t offset; /* of its header in the segment */
    struct slice payload;
};

/* Writes the 12 bytes in front of a payload that is already in place. */
void frame_header_encode(
    char *frame, enum frame_kind kind, uint32_t payload_bytes, uint32_t seed, uint64_t offset);
/* Decodes the frame at the start of bytes, which may be longer. NULL, or what is wrong. */
const char *frame_decode(
    struct slice bytes, uint32_t seed, uint64_t offset, struct frame *ret_frame);

/* Checks a whole batch: each frame, their count, the zeros at the end. NULL, or what is wrong. */
const char *batch_check(
    const char *bytes, const struct batch_header *header, uint32_t seed, uint64_t offset);

/* Writes what precedes an entry's own bytes: the header and the tenant. Returns how many bytes. */
size_t entry_lead_encode(const struct entry *entry, unsigned char ret_bytes[ENTRY_LEAD_BYTES_MAX]);
/* The bytes and the tenant point into payload; the tenant is empty if the frame has none. NULL, or
 * what is wrong. */
const char *entry_decode(struct slice payload, struct entry *ret_entry);
/* Whether the frame of a decoded entry has its tenant. Evidence from the first releases has the
 * tenant only in the entry's own bytes. */
bool entry_has_tenant(struct slice payload);

struct identity {
    struct store_identity keys;
    struct store_shared shared;
    uint64_t segment_bytes; /* the size of new segments */
    int64_t created_ms;     /* wall clock, for people */
    struct digest origin;   /* of the store that it was copied from, whose evidence is in the file
                               `inherited`; zero: none */
};

void identity_encode(const struct identity *identity, unsigned char ret_bytes[IDENTITY_BYTES]);
const char *identity_decode(
    const unsigned char bytes[IDENTITY_BYTES], struct identity *ret_identity);

#endif
