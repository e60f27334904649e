/*
 * entry_view: what an evidence entry says, read back.
 *
 * Promises:  takes only canonical JSON whose members agree with each other (entry_id with chain and
 *            seq, occurred_at with what decide was given, …), so an entry has one spelling. What it
 *            hands out is within the limits that decide() asserts: hostile bytes are E_CORRUPT here
 *            and never an assertion there. Members it does not know are left to later versions.
 * Does not:  check the chain, or whether the decision was right (verify.h, redecide.h).
 * Ownership: slices point into the bytes read and into the arena.
 */
#ifndef ONCE_EVIDENCE_ENTRY_VIEW_H
#define ONCE_EVIDENCE_ENTRY_VIEW_H

#include "evidence/entry.h"

struct entry_view {
    struct slice chain_id;
    struct slice type; /* "execution.started", … */
    uint64_t seq;
    enum record_kind kind; /* of the record, as the prefix of operation_id says */
    struct op_id operation_id;
    bool keyed;                   /* the whole key is there and request.key.hash is sealed */
    struct slice lifecycle_state; /* of the record from now on, or "absent" */
    struct slice effect_id;       /* of the record; of an effect: the effect's own name */
    struct slice command_id;      /* of an effect: as its envelope gave it; may be empty */
    struct slice provider_ref;    /* of an effect: the record's effect_id; may be empty */
    struct source source;         /* of the record, or of the request when there is none */
    bool archives;                /* type evidence.archived: everything up to … */
    uint64_t archived_seq;        /* … this entry left the journal, … */
    struct digest archived_hash;  /* … whose hash is this */
    uint64_t count;               /* of a note: duplicates refused, entries read; 0: it says none */
    bool decides;                 /* it is about a decision: what follows is filled in */
    struct request request;       /* as decide was given; outcome.meta and detail are digests */
    struct decide_moment moment;  /* as decide was given; fence_next 0 unless it can be taken */
    struct slice decision;        /* its name … */
    struct slice rule;            /* … and the row that held */
    uint64_t fence;               /* the record's, or the one the holder showed */
    uint64_t attempt;             /* the record's, 0 when there is none */
    bool versioned;               /* the entry says on which version: those of old do not */
    uint64_t version;             /* of the record that decide was given; 0: it was absent */
    bool conflict;                /* there are two fingerprints */
    struct digest stored;         /* conflict: the record's fingerprint */
    bool dedupe;                  /* the answer to a begin or an enqueue */
    struct slice dedupe_decision; /* as IDS names it */
    struct slice dedupe_detail;   /* our own name, where IDS has none */
    bool executed;                /* dedupe: a grant was given */
    bool outcome_known;           /* dedupe: an outcome is referred to … */
    struct digest outcome_digest; /* … by the digest of its bytes */
};

/*
 * Read one. E_CORRUPT says what is wrong; E_NOMEM. `scratch` is cleared and used for the canonical
 * form; it must have room for as many bytes as the entry has, and some.
 */
enum status entry_view_read(struct slice bytes, struct arena *arena, struct buf *scratch,
    struct entry_view *ret_view, struct err *err) MUST_CHECK;

/* Whether this is what the entry says of the record's effect_id. An effect's is provider_ref; the
 * first releases wrote it as effect_id, and their entries have neither of the other two. */
bool entry_view_tells_ref(const struct entry_view *view, struct slice effect_id);

/* Whether an effect and its command are called what its record calls them (CCO-8). An entry of the
 * first releases did not say. `scratch` is cleared and used. */
bool entry_view_tells_names(
    const struct entry_view *view, const struct record *record, struct buf *scratch);

#endif
