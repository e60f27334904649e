/*
 * store: the table of operations that a place for records and evidence offers.
 *
 * A store only knows how to load records and how to commit a set of changes with their entries
 * atomically. It decides nothing (core/decide.h) and composes no evidence (evidence/entry.h).
 *
 * Promises:  S1  commit is all or nothing, in the order given, and visible to load when it returns.
 *            S2  flush returns OK only when everything committed before it was called is on stable
 *                storage. Nothing may be told to anybody before that (P2).
 *            S3  a change is applied only if the record's version is the expected one; otherwise
 *                the whole commit is E_STALE and nothing happened.
 *            S4  a record or body that does not check out is E_CORRUPT, never absent (P11).
 *            S5  a live record is never dropped to make room (P12); E_LIMIT names the limit.
 *            S6  fences come out strictly increasing, across restarts too (P4).
 *            S7  entries come back in the order committed, byte for byte.
 *
 * What a failure means:
 *   commit  E_STALE        lost a race with another process; nothing happened
 *           E_UNAVAILABLE, E_LIMIT, E_NOMEM   nothing happened
 *           E_UNKNOWN, E_CORRUPT              stop the process (P11); restart re-reads the truth
 *   flush   anything but OK                   stop the process (P11)
 *
 * Ownership: arguments are read during the call only; what is returned lives in the given arena.
 * Threads:   one thread calls everything but flush; one other thread may call flush meanwhile.
 */
#ifndef ONCE_STORE_STORE_H
#define ONCE_STORE_STORE_H

#include "base/clock.h"
#include "base/io.h"
#include "core/decide.h"

struct store {
    const struct store_ops *ops;
};

/* Values are on disk: never renumber. */
enum entry_kind {
    ENTRY_EVIDENCE = 1,   /* one decision, in canonical JSON; chained and dense */
    ENTRY_CHECKPOINT = 2, /* a signed note about the chain; not part of it */
};

/* One evidence line, composed by evidence/entry.h. */
struct entry {
    enum entry_kind kind;
    uint64_t seq;       /* 1, 2, 3, … for evidence; of the last one covered for a checkpoint */
    struct digest hash; /* SHA-256(previous hash ‖ bytes); of the last one for a checkpoint */
    struct op_id operation_id; /* zero when it is about no operation */
    struct slice tenant;       /* whose it is (P9); empty: nobody's alone, or a checkpoint */
    int64_t time_ms;           /* when it was decided */
    struct slice bytes;        /* canonical JSON, or the note's text; empty: no entry */
};

/* One record's change and the entry that describes it. What is remembered of a source changes
 * without an entry of its own, just before the change of the operation that was sealed. */
struct change {
    enum decision_change kind;   /* put, touch (duplicates + 1), or none: an entry alone */
    const struct record *record; /* put: the record from now on; touch: the record; none: NULL */
    uint64_t version_expected;   /* the stored version, 0 when absent; not looked at for none */
    struct slice request_body;   /* new bytes for record->request; empty: as stored before */
    struct slice outcome_body;   /* new bytes for record->outcome.body; empty: as stored before */
    struct entry entry;
};

/* The engine's time when a batch was decided. Kept, so that time never goes back (P8). */
struct store_moment {
    int64_t time_ms;  /* engine time */
    int64_t boot_ms;  /* the boot clock at that moment … */
    uint64_t boot_id; /* … of this start of the machine */
    int64_t jump_ms;  /* of LIMIT_CLOCK_JUMP_MS_MAX, how much this start has used up */
};

struct commit {
    const struct change *changes;
    size_t count;
    struct store_moment moment;
};

/* Where a store stands. */
struct store_head {
    uint64_t seq;               /* of the last evidence entry; 0 for none */
    struct digest hash;         /* its chained hash; zero for none */
    uint64_t fence;             /* the highest ever given out */
    struct store_moment moment; /* of the last commit */
    uint64_t records;           /* operations live now, expired ones included until swept */
    uint64_t in_progress;       /* of these */
    uint64_t unknown;           /* of these */
    uint64_t sources;           /* records of sources (core/source.h), not among these */
};

/* Made once, when the store is created. Secret but for the chain id. */
struct store_identity {
    unsigned char chain_id[16];        /* a UUID; names this chain of evidence */
    unsigned char fingerprint_key[32]; /* HMAC key for fingerprints (DESIGN section 6) */
    unsigned char signing_seed[32];    /* Ed25519 private key of the checkpoints */
};

/* A bound on what one call of scan may cost; the caller goes on with scan.after = after. */
struct scan_pace {
    size_t looks_max;    /* at most so many keys are looked at, at least 1; … */
    size_t reads_max;    /* … at most so many records are read to see if they match, likewise */
    struct digest after; /* set: everything up to this key hash was looked at */
    bool done;           /* set: there is nothing behind it */
};

struct scan {
    struct slice tenant;       /* empty: any; only for the operator's own tools */
    struct slice scope;        /* empty: any */
    struct slice key;          /* empty: any */
    enum record_status status; /* 0: any */
    int64_t updated_from_ms;   /* 0: any */
    int64_t updated_until_ms;  /* 0: any; exclusive */
    int64_t now_ms;            /* leave out those past their window by then; 0: as they are */
    struct digest after;       /* key hash of the last one returned; zero to start */
    size_t limit;              /* at most this many */
    struct scan_pace *pace;    /* NULL: go on until the limit or the end */
};

/* Called for each entry in order. Return false to stop. The bytes are valid during the call. */
typedef bool (*entry_visit)(void *context, const struct entry *entry);

/*
 * A bound on what one call of entries may cost, and how far it came: zeroed but for bytes_max it
 * starts, and the same one goes on in the next call. Meanwhile evidence may be added, rewritten and
 * removed: it goes on behind the last entry that it passed. Checkpoint notes are left out.
 */
struct entry_pace {
    size_t bytes_max;   /* read in one call, roughly: a batch is always read whole; not 0 */
    uint64_t seq;       /* of the last entry passed, matching or not; in a visit the one before */
    struct digest hash; /* of that one: what the next is chained to */
    uint64_t place;     /* the store's own: where to go on; 0: not begun */
    bool squeezed;      /* the store's own: what place is in had been rewritten */
    bool done;          /* set: there is nothing behind, now */
};

struct entry_range {
    struct slice tenant;              /* only its own (P9); empty: of all tenants */
    uint64_t after_seq;               /* only those after it; 0 for all */
    int64_t from_ms;                  /* only those decided then or later; 0 for all */
    const struct op_id *operation_id; /* only those of it; NULL for all */
    struct entry_pace *pace;          /* NULL: go on until the visitor stops or the end */
};

/* The oldest evidence, when all of it is past its retention. */
struct store_removable {
    uint64_t place;     /* the store's name for it; 0: there is none */
    uint64_t seq;       /* of the last entry that goes with it */
    struct digest hash; /* its hash: what is left is chained to it */
    int64_t newest_ms;  /* when that entry was decided, at the latest */
};

struct store_ops {
    const char *name; /* "journal", "mem", … */

    /* ret_records[i] is NULL when there is none. Records past their window may still come back. */
    enum status (*load)(struct store *store, const struct digest *hashes, size_t count,
        struct arena *arena, const struct record **ret_records, struct err *err);
    /* *ret_record is NULL when there is none. Operations only. */
    enum status (*find)(struct store *store, const struct op_id *id, struct arena *arena,
        const struct record **ret_record, struct err *err);
    /* The bytes of a retained body, checked against the digest. */
    enum status (*body)(struct store *store, const struct body_ref *body, struct arena *arena,
        struct slice *ret_bytes, struct err *err);
    enum status (*commit)(struct store *store, const struct commit *commit, struct err *err);
    enum status (*flush)(struct store *store, struct err *err);
    /* The first of count consecutive fences that nobody was ever given. */
    enum status (*fences)(
        struct store *store, uint64_t count, uint64_t *ret_first, struct err *err);

    /* Operations only, ordered by key hash; fewer than limit means that was all, unless a pace says
     * otherwise. */
    enum status (*scan)(struct store *store, const struct scan *scan, struct arena *arena,
        const struct record **ret_records, size_t *ret_count, struct err *err);
    /* Operations in progress whose lease is over, in no order. May miss some that fell due in the
     * last seconds; never returns one whose lease is alive. */
    enum status (*due)(struct store *store, int64_t now_ms, struct op_id *ret_ids, size_t limit,
        size_t *ret_count, struct err *err);
    enum status (*entries)(struct store *store, const struct entry_range *range, entry_visit visit,
        void *context, struct err *err);

    void (*head)(struct store *store, struct store_head *ret_head);
    void (*identity)(struct store *store, struct store_identity *ret_identity);
    /* A bounded piece of housekeeping: forget expired ones, write ahead, save the index, squeeze.
     * Called often; returns at once when there is nothing to do. Same failures as commit. */
    enum status (*maintain)(struct store *store, int64_t now_ms, struct err *err);
    /* Evidence that may go, and letting it go; both NULL where it is kept for ever. The entry that
     * says so must be flushed before remove. A crash between the two leaves both: it is removable
     * again. */
    enum status (*removable)(struct store *store, int64_t now_ms,
        struct store_removable *ret_removable, struct err *err);
    enum status (*remove)(struct store *store, uint64_t place, struct err *err);
    /* Flush, tidy up and free. The store is gone whatever is returned. */
    enum status (*close)(struct store *store, struct err *err);
};

/* What the members above mean, for all stores. */
bool scan_match(const struct scan *scan, const struct record *record);
bool entry_in_range(const struct entry_range *range, const struct entry *entry);

/* How far a scan has come, for the stores. */
struct scan_walk {
    struct scan_pace *pace; /* NULL: as far as there is */
    struct digest after;    /* of the last key looked at */
    size_t looks;           /* so far */
    size_t reads;           /* likewise */
};
struct scan_walk scan_walk_start(const struct scan *scan);
/* Before a key is looked at, and read or not. false: the pace does not allow it, stop here. */
bool scan_walk_step(struct scan_walk *walk, const struct digest *hash, bool reads) MUST_CHECK;
/* Say in the pace how far it came. */
void scan_walk_end(struct scan_walk *walk, bool done);

struct store_options {
    const struct mem *mem; /* NULL: the C library's */
    const struct io *io;   /* NULL: the machine's own */
    bool read_only;        /* look without locking; every change is E_MISUSE */
    bool must_exist;       /* do not create it */
    int64_t lock_wait_ms;  /* how long to wait for another process to let go */
    int64_t retain_ms;     /* evidence older than this may be removed; 0: 400 days */
};

/*
 * Open by URL: "journal:./once-data", "mem:". A plain path is a journal.
 * E_INVALID: the URL is wrong. E_UNAVAILABLE: in use ("in use by pid 4711"), no permission, no such
 * directory. E_CORRUPT: what is there does not check out; nothing was changed.
 */
enum status store_open(const char *url, const struct store_options *options,
    struct store **ret_store, struct err *err) MUST_CHECK;
/* Whether a URL is right, without looking for what it names. E_INVALID as store_open's. */
enum status store_url_check(const char *url, struct err *err) MUST_CHECK;

#endif
