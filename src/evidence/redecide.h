/*
 * redecide: makes every decision again from the entries, and compares.
 *
 * A fold over the entries in order. Each entry is turned back into the request and the moment that
 * decide() was given, and decide() runs again on the records as folded so far. Its decision must
 * agree with the entry (decision, rule, fence, attempt, status, operation, fingerprints), and the
 * record that it makes with the record stored with the entry (lease, window, version, …). The last
 * sealed version of a source is folded from the seals in the same way, and must be the one that a
 * begin was given.
 *
 * Promises:  the only input is the evidence; stored records are compared, never trusted, except
 *            where the entries that made them are missing. Decisions that cannot be made again for
 *            that reason are counted and are not damage. Hostile entries cannot make decide()
 *            assert.
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
    bool swept;        /* records past their window were forgotten */
    /* Entries of several chains: they are in order for each record, but fences and times are not in
     * order across records. The last sealed version of a source is read without a lock there and is
     * not compared. */
    bool shared;
    bool partial;             /* entries are missing before this point … */
    uint64_t gap_seq;         /* … the last of them; the state folded up to it may be outdated */
    uint64_t fence_max;       /* the highest granted so far (P4) */
    int64_t now_ms;           /* of the last entry */
    uint64_t redecided;       /* decisions made again */
    uint64_t not_redecidable; /* decisions that depend on missing entries */
};

/* What is stored together with an entry. */
struct redecide_stored {
    bool squeezed;               /* records were dropped on purpose: their absence says nothing */
    const struct record *record; /* the record that was put; NULL: none */
    const struct digest *touch;  /* key hash of the record that was touched; NULL: none */
    const struct record *source; /* the source's record that was put; NULL: none */
};

void redecide_init(struct redecide *redecide, const struct mem *mem);
void redecide_release(struct redecide *redecide);
/* Compares a stored record with the one that the entries so far make. E_STALE: the stored record is
 * newer or older. E_CORRUPT: it is different. */
enum status redecide_record_check(struct redecide *redecide, const struct record *stored,
    bool *ret_newer, struct err *err) MUST_CHECK;
/* The version of a record after the entries so far; 0: not known. */
uint64_t redecide_version_of(struct redecide *redecide, const struct digest *key_hash);
/* A record that must be stored, was not checked, and is not past its window at now_ms; NULL: none
 * after *at, which starts with 0. */
const struct op_id *redecide_unseen(struct redecide *redecide, int64_t now_ms, size_t *at);
/* Entries up to this one are missing: archived, or damaged. */
void redecide_gap(struct redecide *redecide, uint64_t seq);
/* Decides again. E_CORRUPT: the result is different; the text says what, and the fold continues
 * from the stored record. E_NOMEM. */
enum status redecide_entry(struct redecide *redecide, const struct entry_view *view,
    const struct redecide_stored *stored, struct err *err) MUST_CHECK;

#endif
