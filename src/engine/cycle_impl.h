/*
 * cycle_impl: what the two files of the cycle share: the batch (cycle.c) and one call of it
 * (step.c). Nobody else includes this.
 */
#ifndef ONCE_ENGINE_CYCLE_IMPL_H
#define ONCE_ENGINE_CYCLE_IMPL_H

#include "engine/cycle.h"

enum { CHANGES_A_CALL = 2 }; /* the operation's record, and its source's or its lane's */

/* A key of the batch, and its record with the batch's changes so far (EN2). */
struct cycle_seen {
    uint32_t turn; /* valid when it equals the cycle's */
    bool loaded;   /* record is the one that prepare found, or that the batch made of it */
    bool stale;    /* it has changed since: calls that depend on it are decided again */
    bool durable;  /* record and bodies are on stable storage, apart from a count of duplicates */
    struct digest hash;
    const struct record *record; /* NULL: absent */
    struct store_want *want;     /* the first want of this key; NULL: none */
    struct slice request_body;   /* the record's, if brought by this batch and not stored yet */
    struct slice outcome_body;   /* likewise */
};

/* One call on its way through the batch. */
struct step {
    struct engine_call *call;
    size_t group;               /* number of the first call of its dependent group */
    const struct step *claims;  /* the enqueue before it whose record it claims; NULL: none */
    struct store_want *want;    /* for its record; NULL: it concerns no record */
    struct cycle_seen *key;     /* its record's key; NULL: absent, or none */
    struct cycle_seen *source;  /* its source's record; NULL: it has no source */
    struct record_key from;     /* key of its source's record */
    struct cycle_seen *lane;    /* the record of the lane that it joins; NULL: it joins none */
    struct record_key lane_key; /* that record's */
    const struct record *found; /* the record it was decided on; NULL: absent */
    const struct record *next;  /* the record afterwards; NULL: unchanged */
    struct note *note;          /* the note, if it is one */
    struct decide_moment moment;
    size_t first;   /* its first change; its last change has the entry */
    size_t changes; /* how many changes; 0: it changes nothing */
    bool again;     /* it depends on a stale key */
};

/* A batch while it is decided. */
struct work {
    struct step *steps;  /* in the order of the calls */
    struct step **order; /* in the order of the chain */
    struct step **later; /* room for calls that are decided again */
    size_t count;        /* of all three */
    struct store_batch batch;
    struct change *changes;
    size_t used;             /* of changes */
    bool *stale;             /* one for each change */
    struct cycle_undo *undo; /* changes of dependent groups in seen; NULL: there are none */
    size_t undo_count;
    uint64_t fence_next; /* the fence that the next grant gets */
};

/* A mark in seen before a member of a dependent group changed it. */
struct cycle_undo {
    struct cycle_seen *seen;
    struct cycle_seen before;
};

/* It names its record by key, and makes it if it is absent. */
static inline bool by_key(const struct engine_call *call)
{
    return call->note == NULL && request_by_key(call->request.kind);
}

/* Deciding it may use a fence up. */
static inline bool takes_fence(const struct engine_call *call)
{
    return call->note == NULL && request_takes_fence(&call->request);
}

/* cycle.c: the mark of a key in this batch; a new mark is not loaded. */
struct cycle_seen *seen_of(struct cycle *cycle, const struct digest *hash);

/* step.c: decides one call and appends its changes. A failure of this call alone is in its err. */
enum status step_decide(
    struct cycle *cycle, struct work *work, struct step *step, struct err *err) MUST_CHECK;
/* After its group was undone because of this call: if it is in conflict with a record that exists
 * without the group, the refusal is a decision like any other, and has its entry (P7, P10). */
void step_keep_conflict(struct cycle *cycle, struct work *work, struct step *step);
/* Forgets the decision. */
void step_clear(struct step *step, int64_t now_ms);
/* Composes its entry as the next of the chain. E_NOMEM, E_LIMIT: also in the call's err. */
enum status step_compose(
    struct cycle *cycle, const struct step *step, struct entry *ret_entry) MUST_CHECK;
/* Updates the counts for a key whose record was `found` and is now `next`; NULL: absent. */
void count_change(struct cycle *cycle, const struct record *found, const struct record *next);

#endif
