/*
 * replay: everything that a store holds, in the order in which it was committed, for a verifier.
 *
 * A stream of items. The identity comes first, then parts (segments of a journal). A part has
 * batches, and a batch has changes: the bodies of a record, the record or a touch, and the entry
 * that closes the change. Damage that the store itself detects (framing, checksums, files) is a
 * separate item, and the stream continues after it where possible.
 *
 * Promises:  read-only and without a lock: everything committed before it began is included. Items
 *            hold the stored bytes unchecked: the reader checks chains, digests and decisions
 *            (evidence/verify.h).
 * Ownership: an item and everything it points to are valid during the visit.
 */
#ifndef ONCE_STORE_REPLAY_H
#define ONCE_STORE_REPLAY_H

#include "store/store.h"

enum replay_kind {
    REPLAY_IDENTITY, /* once, first */
    REPLAY_PART,     /* a part begins */
    REPLAY_BATCH,    /* a batch begins, in a part */
    REPLAY_REQUEST,  /* the request body of the current change */
    REPLAY_OUTCOME,  /* the outcome body of the current change */
    REPLAY_RECORD,   /* the record of the current change */
    REPLAY_MOVED,    /* a record that was written again: nothing was decided */
    REPLAY_TOUCH,    /* the current change counts one more duplicate */
    REPLAY_ENTRY,    /* evidence, which closes its change; or a checkpoint, which has none */
    REPLAY_TAIL,     /* the end was never acknowledged: not damage */
    REPLAY_DAMAGE,   /* something is invalid */
};

struct replay_item {
    enum replay_kind kind;
    uint64_t part;        /* number of the part; 0: it is about the whole store */
    uint64_t offset;      /* position in the part, in bytes */
    uint64_t bytes_done;  /* read so far … */
    uint64_t bytes_total; /* … of this many; an estimate while the store is written to */

    const struct store_identity *identity; /* identity; NULL: unreadable, a damage item says why */
    bool inherits; /* identity: the store also has chains of a different store, which are not in the
                      stream (store_ops.chains) */

    /* Part. */
    bool part_known;           /* its beginning could be read: the next members are set */
    bool squeezed;             /* bodies, records and touches were dropped on purpose */
    uint64_t seq_before;       /* of the last entry before it; 0: it is the first */
    struct digest hash_before; /* its hash */

    /* Batch; for a part: the values of its first batch. */
    uint64_t batch;  /* its number */
    int64_t time_ms; /* when it was decided */
    uint64_t fence;  /* the highest given out so far */

    struct digest digest; /* bodies: as stored; touch: hash of the key */
    struct slice body;    /* bodies: the bytes */
    bool erased;          /* request: the bytes are zeros in place of what the digest is of */

    const struct record *record; /* record, moved */
    const struct entry *entry;   /* entry */
    bool tenant_known;           /* entry: its tenant was stored beside it */

    const char *text; /* damage: what, in lower case, without a full stop */
    bool lost;        /* damage: something is missing, so the next item may not continue */
};

/* Return false to stop. */
typedef bool (*replay_visit)(void *context, const struct replay_item *item);

/*
 * OK: replayed to the end or stopped by the visitor; damage is in the items. E_INVALID: the URL is
 * invalid, or names a store that cannot be replayed. E_UNAVAILABLE: no such store, no permission.
 * E_CORRUPT: nothing can be replayed. E_NOMEM.
 */
enum status store_replay(const char *url, const struct store_options *options, replay_visit visit,
    void *context, struct err *err) MUST_CHECK;

#endif
