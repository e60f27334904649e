/*
 * redecide: make every decision again from what the entries say, and compare.
 *
 * A fold over the entries in order. Each is turned back into the request and the moment that
 * decide() was given. decide() is run again on the records as folded so far. What it says must be
 * what the entry says (decision, rule, fence, attempt, status, operation, fingerprints), and the
 * record stored with the entry must be the one that it makes (lease, window, version, …). Which
 * version of a source was sealed last is folded from the seals in the same way, and must be the one
 * that a begin was given.
 *
 * Promises:  the only input is the evidence; stored records are compared, never believed, except
 *            where the entries that made them are no longer there. What cannot be decided again for
 *            that reason is counted, and is no damage. Hostile entries cannot make decide() assert.
 * Memory:    about 300 bytes for each record whose window is not over.
 * Threads:   one.
 */
#ifndef ONCE_EVIDENCE_REDECIDE_H
#define ONCE_EVIDENCE_REDECIDE_H

#include "evidence/entry_view.h"

struct redecide_record;

struct redecide {
    const struct mem *mem;
    struct redecide_record *records; /* in no order; the first count are in use */
    size_t count;
    size_t cap;
    uint32_t *slots;   /* open addressing by op_id_prefix: index + 1; 0 for empty */
    size_t slot_count; /* a power of two, at least twice cap */
    bool swept;        /* records past their windows were forgotten */
    /* Entries of several chains: of one record they come in order, of all records fences and times
     * do not. What was sealed last of a source is read without a lock there and is not compared. */
    bool shared;
    bool partial;       /* entries are missing before this point … */
    uint64_t gap_seq;   /* … the last of them; what was folded up to it may be out of date */
    uint64_t fence_max; /* the highest granted so far (P4) */
    int64_t now_ms;     /* of the last entry */
    uint64_t redecided; /* decisions made again */
    uint64_t not_redecidable; /* decisions that rest on entries which are missing */
};

/* What was stored together with an entry. */
struct redecide_stored {
    bool squeezed;               /* records were dropped on purpose: their absence says nothing */
    const struct record *record; /* the record as put; NULL: none was */
    const struct digest *touch;  /* key hash of the record that was touched; NULL: none was */
    const struct record *source; /* what is remembered of the source as put; NULL: none was */
};

void redecide_init(struct redecide *redecide, const struct mem *mem);
void redecide_release(struct redecide *redecide);
/* A record that is stored, against what the entries so far make of it. E_STALE: the record is newer
 * than these, or older. E_CORRUPT: it is not what they make of it. */
enum status redecide_record_check(struct redecide *redecide, const struct record *stored,
    bool *ret_newer, struct err *err) MUST_CHECK;
/* The version that the entries so far make of a record; 0: it is not known. */
uint64_t redecide_version_of(struct redecide *redecide, const struct digest *key_hash);
/* A record that must be stored, was not among those checked, and is not over by then; NULL: there
 * is none after *at, which starts with 0. */
const struct op_id *redecide_unseen(struct redecide *redecide, int64_t now_ms, size_t *at);
/* Entries up to this one are missing: archived, or damaged. */
void redecide_gap(struct redecide *redecide, uint64_t seq);
/* Decide again. E_CORRUPT: it comes out otherwise, the text says what, and the fold goes on from
 * what was stored. E_NOMEM. */
enum status redecide_entry(struct redecide *redecide, const struct entry_view *view,
    const struct redecide_stored *stored, struct err *err) MUST_CHECK;

#endif
