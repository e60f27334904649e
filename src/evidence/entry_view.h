/*
 * entry_view: reads an evidence entry.
 *
 * Promises:  accepts only canonical JSON whose members agree with each other (entry_id with chain
 *            and seq, occurred_at with the input of decide, …), and of version 2 only what leaves
 *            out all that follows from the rest: an entry has one spelling. The
 *            values it returns are within the limits that decide() asserts: hostile bytes are
 *            E_CORRUPT here and never an assertion there. Unknown members are ignored: later
 *            versions may add some.
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
    enum record_kind kind; /* of the record, from the prefix of operation_id */
    struct op_id operation_id;
    bool keyed;                   /* the whole key is there and request.key.hash is sealed */
    struct slice lifecycle_state; /* the record's status after the decision, or "absent" */
    struct slice effect_id;       /* of the record; of an effect: the effect's own name */
    struct slice command_id;      /* of an effect: from its envelope; may be empty */
    struct slice provider_ref;    /* of an effect: the record's effect_id; may be empty */
    struct source source;         /* of the record, or of the request if there is none */
    bool archives;                /* type evidence.archived: all entries up to … */
    uint64_t archived_seq;        /* … this entry left the journal, … */
    struct digest archived_hash;  /* … whose hash is this */
    uint64_t count;               /* of a note: duplicates refused, entries read; 0: absent */
    bool decides;                 /* it is about a decision: the members below are set */
    struct request request;       /* the input of decide; outcome.meta and detail are digests */
    struct decide_moment moment;  /* the input of decide; fence_next is 0 unless it can be taken */
    struct slice decision;        /* its name … */
    struct slice rule;            /* … and the row that held */
    uint64_t fence;               /* the record's, or the one that the holder presented */
    uint64_t attempt;             /* the record's; 0: absent */
    bool versioned;               /* the entry says on which version; old entries do not */
    uint64_t version;             /* of the record that was decided on; 0: it was absent */
    bool conflict;                /* there are two fingerprints */
    struct digest stored;         /* conflict: the record's fingerprint */
    bool dedupe;                  /* the answer to a begin or an enqueue */
    struct slice dedupe_decision; /* as IDS names it */
    struct slice dedupe_detail;   /* our own name, if IDS has no name for it */
    bool executed;                /* dedupe: a grant was given */
    bool outcome_known;           /* dedupe: an outcome is referred to … */
    struct digest outcome_digest; /* … by the digest of its bytes */
};

/*
 * Reads a stored entry of either version: its bytes, and for version 2 its chain_id and seq.
 * E_CORRUPT says what is wrong; E_NOMEM. `scratch` is cleared and used for the full document; it
 * needs about 1 KiB more room than the entry's bytes.
 */
enum status entry_view_read(const struct entry *entry, struct arena *arena, struct buf *scratch,
    struct entry_view *ret_view, struct err *err) MUST_CHECK;

/* Whether the entry agrees with the record's effect_id. For an effect it is in provider_ref; the
 * first releases wrote it as effect_id, and their entries have no other names. */
bool entry_view_has_ref(const struct entry_view *view, struct slice effect_id);

/* Whether the entry names an effect and its command as the record does (CCO-8). Entries of the
 * first releases have no names. `scratch` is cleared and used. */
bool entry_view_has_names(
    const struct entry_view *view, const struct record *record, struct buf *scratch);

#endif
