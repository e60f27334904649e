/*
 * cycle_impl: what the two files of the cycle share: the batch (cycle.c) and one call of it
 * (step.c). Nobody else includes this.
 */
#ifndef ONCE_ENGINE_CYCLE_IMPL_H
#define ONCE_ENGINE_CYCLE_IMPL_H

#include "engine/cycle.h"

enum { CHANGES_A_CALL = 2 }; /* of the operation's record and its source's */

/* A key that the batch has met, and its record as the batch left it so far (E2). */
struct cycle_seen {
    uint32_t turn; /* valid when it equals the cycle's */
    bool loaded;   /* record is what prepare found, or what the batch made of it */
    bool stale;    /* it has changed since: what rests on it is decided again */
    struct digest hash;
    const struct record *record; /* NULL: absent */
    struct store_want *want;     /* the first that asks for it by its key; NULL: none does */
    struct slice request_body;   /* the record's, when this batch brought it: the store does not
                                    have it yet */
    struct slice outcome_body;   /* likewise */
};

/* One call on its way through the batch. */
struct step {
    struct engine_call *call;
    size_t group;               /* number of the call that its dependent group begins with */
    struct store_want *want;    /* for the record that it is about; NULL: it is about none */
    struct cycle_seen *key;     /* that record's; NULL: absent, or none */
    struct cycle_seen *source;  /* of what is remembered of its source; NULL: it has none */
    struct record_key from;     /* key of the source that it is ordered by */
    const struct record *found; /* what it was decided on; NULL: absent */
    const struct record *next;  /* what the record became; NULL: it stays */
    struct note *note;          /* what is noted, for a note */
    struct decide_moment moment;
    size_t first;   /* of its changes; the last of them has the entry */
    size_t changes; /* how many; 0: it leaves nothing behind */
    bool again;     /* it rests on a stale key */
};

/* A batch while it is decided. */
struct work {
    struct step *steps;  /* in the order of the calls */
    struct step **order; /* in the order of the chain */
    struct step **later; /* room for those that are decided again */
    size_t count;        /* of all three */
    struct store_batch batch;
    struct change *changes;
    size_t used;             /* of changes */
    bool *stale;             /* one for each change */
    struct cycle_undo *undo; /* what dependent groups changed in seen; NULL: there are none */
    size_t undo_count;
    uint64_t fence_next; /* what the next begin gets */
};

/* A mark in seen before a member of a dependent group changed it. */
struct cycle_undo {
    struct cycle_seen *seen;
    struct cycle_seen before;
};

/* It names its record by key, and makes it when there is none. */
static inline bool by_key(const struct engine_call *call)
{
    return call->note == NULL && request_by_key(call->request.kind);
}

/* Deciding it may use a fence up. */
static inline bool takes_fence(const struct engine_call *call)
{
    return call->note == NULL && request_takes_fence(&call->request);
}

/* cycle.c: the mark of a key in this batch; a fresh one is not loaded. */
struct cycle_seen *seen_of(struct cycle *cycle, const struct digest *hash);

/* step.c: decide one call; what it changes goes after the changes so far. What fails for it alone
 * is in its err. */
enum status step_decide(
    struct cycle *cycle, struct work *work, struct step *step, struct err *err) MUST_CHECK;
/* Forget what was decided. */
void step_clear(struct step *step, int64_t now_ms);
/* Compose its entry as the next of the chain. E_NOMEM, E_LIMIT: also in the call's err. */
enum status step_compose(
    struct cycle *cycle, const struct step *step, struct entry *ret_entry) MUST_CHECK;
/* Count a key that was one thing, NULL for absent, and is another now. */
void count_change(struct cycle *cycle, const struct record *found, const struct record *next);

#endif
