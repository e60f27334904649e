/*
 * replay: everything that a store holds, in the order in which it was committed, for a verifier.
 *
 * A stream of items. The identity comes first, then parts (a segment of a journal), in them
 * batches, and in a batch changes: the bodies of a record, the record or a touch, and the entry
 * that closes the change. What the store itself can see to be wrong (framing, checksums, files) is
 * an item of its own, and the stream goes on after it where it can.
 *
 * Promises:  read-only and without a lock: what was committed before it began is in it. Items hold
 *            what was stored, whatever it says: whether entries are chained, digests are right and
 *            decisions come out the same is the reader's to check (evidence/verify.h).
 * Ownership: an item and what it points to are valid during the visit.
 */
#ifndef ONCE_STORE_REPLAY_H
#define ONCE_STORE_REPLAY_H

#include "store/store.h"

enum replay_kind {
    REPLAY_IDENTITY, /* once, first */
    REPLAY_PART,     /* a part begins */
    REPLAY_BATCH,    /* a batch begins, in a part */
    REPLAY_REQUEST,  /* the request's body of the change at hand */
    REPLAY_OUTCOME,  /* likewise the outcome's */
    REPLAY_RECORD,   /* the record of the change at hand */
    REPLAY_MOVED,    /* a record that was written again: nothing was decided */
    REPLAY_TOUCH,    /* the change at hand counts one more duplicate */
    REPLAY_ENTRY,    /* evidence, which closes its change; or a checkpoint, which has none */
    REPLAY_TAIL,     /* what was never acknowledged is at the end: not damage */
    REPLAY_DAMAGE,   /* something does not check out */
};

struct replay_item {
    enum replay_kind kind;
    uint64_t part;        /* number of the part; 0: it is about the whole store */
    uint64_t offset;      /* where in it, in bytes */
    uint64_t bytes_done;  /* read so far … */
    uint64_t bytes_total; /* … of this many; an estimate while the store is written to */

    const struct store_identity *identity; /* identity; NULL: not readable, damage says why */
    bool inherits; /* identity: the store has chains of a different one too, which are not in the
                      stream (store_ops.chains) */

    /* Part. */
    bool part_known;           /* its beginning could be read: what follows is set */
    bool squeezed;             /* bodies, records and touches were dropped on purpose */
    uint64_t seq_before;       /* of the last entry before it; 0: it is the first */
    struct digest hash_before; /* its hash */

    /* Batch; part: of the first one that is to be in it. */
    uint64_t batch;  /* its number */
    int64_t time_ms; /* when it was decided */
    uint64_t fence;  /* the highest given out by then */

    struct digest digest; /* bodies: as stored; touch: hash of the key */
    struct slice body;    /* bodies: the bytes */

    const struct record *record; /* record, moved */
    const struct entry *entry;   /* entry */
    bool tenant_known;           /* entry: its tenant was stored beside it */

    const char *text; /* damage: what, in lower case, without a full stop */
    bool lost;        /* damage: something is missing, and what follows need not go on from it */
};

/* Return false to stop. */
typedef bool (*replay_visit)(void *context, const struct replay_item *item);

/*
 * OK: replayed to the end or stopped by the visitor; the items say what is damaged. E_INVALID: the
 * URL is wrong, or of a store that cannot be replayed. E_UNAVAILABLE: no such store, no permission.
 * E_CORRUPT: there is nothing that could be replayed. E_NOMEM.
 */
enum status store_replay(const char *url, const struct store_options *options, replay_visit visit,
    void *context, struct err *err) MUST_CHECK;

#endif
