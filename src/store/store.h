/*
 * store: the table of operations that a place for records and evidence offers.
 *
 * A store finds records and commits changes together with their entries. It decides nothing
 * (core/decide.h) and composes no evidence (evidence/entry.h). A batch touches it twice:
 *
 *   idle --prepare--> prepared --commit | abort--> idle        commit ends it whatever it returns
 *
 * Promises:  S1  commit is all or nothing, in the order given, and visible to the next prepare or
 *                read as soon as it returns. abort leaves nothing behind.
 *            S2  flush returns OK only when everything committed before it was called is on stable
 *                storage. Nothing may be answered before that (P2).
 *            S3  a change is applied only if the record's version is the expected one; otherwise
 *                the whole commit is E_STALE, nothing happened, and the stale changes are marked.
 *            S4  a record or body that does not check out is E_CORRUPT, never absent (P11).
 *            S5  a live record is never dropped to make room (P12); E_LIMIT names the limit.
 *            S6  fences come out strictly increasing, through aborts and restarts too (P4).
 *            S7  entries come back in the order committed, byte for byte.
 *            S8  the time that prepare gives never goes back and does not follow a wall clock that
 *                jumps (P8; store/clock.h for stores that have no server's time).
 *
 * A shared store (store_ops.shared) is used by several processes at once, each through a handle of
 * its own. It promises besides:
 *            S9  what one handle committed, every other one sees at its next prepare or read. The
 *                fences and the time of a prepare are later than those of all records that it
 *                gives back: it draws them when it has read (or locked) these, not before.
 *            S10 a prepared batch holds nobody up for longer than LIMIT_PREPARED_MS_MAX, and a
 *                commit that comes later than that fails: E_UNAVAILABLE or E_STALE.
 *            S11 a reading that goes on after its cursor misses nothing, however the commits of
 *                several handles interleave: an entry is not shown before every entry that the
 *                store's order puts before it is there too.
 *            S12 a holder that beats is never reported as gone, and one that has not for
 *                LIMIT_HOLDER_GONE_MS, or whose handle was closed, is. By the store's time.
 *            S13 a settled record is announced to the other handles that listen, after its commit;
 *                an announcement may be lost, repeated or late.
 *
 * What a failure means:
 *   prepare E_UNAVAILABLE, E_LIMIT, E_NOMEM   nothing happened; there is nothing to commit or abort
 *   commit  E_STALE        lost a race with another process; nothing happened
 *           E_UNAVAILABLE, E_LIMIT, E_NOMEM   nothing happened
 *   both    E_UNKNOWN, E_CORRUPT              stop the process (P11); restart re-reads the truth.
 *           But an E_UNKNOWN of a shared store's commit concerns its own batch alone. The store
 *           refuses everything (E_UNAVAILABLE) until it has learnt what became of the commit. After
 *           the next prepare that is OK, head says it. A store that cannot learn it any more says
 *           E_UNKNOWN to that prepare.
 *   flush   anything but OK                   stop the process (P11)
 *
 * How shared stores do it. PostgreSQL: prepare opens a transaction and sends one pipeline: locks in
 * the order of the key hashes (rows, and advisory locks for absent keys), the records with bodies
 * and sources, one draw of a sequence, now(). commit sends all changes, entries and a marker row in
 * one pipeline with COMMIT; nothing is ever stale. When the connection breaks, the marker says
 * whether the commit happened; it is E_UNKNOWN when the server cannot be asked. abort is ROLLBACK.
 * Redis: one script reads and draws fences, a second one compares every version_expected and then
 * writes all, or reports the stale changes; abort does nothing. Both run queries on a second
 * connection: open_reader. Neither needs housekeeping.
 *
 * Ownership: arguments are read during the call only, but that a prepared batch's arenas must live
 *            until its commit; what is returned lives in the given arenas.
 * Threads:   one thread calls everything but flush; one other thread may call flush meanwhile. A
 *            reader is used by one thread at a time, while those two go on.
 */
#ifndef ONCE_STORE_STORE_H
#define ONCE_STORE_STORE_H

#include "base/buf.h"
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
    unsigned char chain_id[16]; /* set by entries: its chain. What is committed is in our own */
    struct op_id operation_id;  /* zero when it is about no operation */
    struct slice tenant;        /* whose it is (P9); empty: nobody's alone, or a checkpoint */
    int64_t time_ms;            /* when it was decided */
    struct slice bytes;         /* canonical JSON, or the note's text; empty: no entry */
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
    const struct digest *prev_hash; /* of an entry that is inherited: of the one before it */
};

/* A store's time, and what it needs to go on from there after a restart (P8). */
struct store_moment {
    int64_t time_ms;  /* the store's time */
    int64_t boot_ms;  /* the boot clock at that moment … */
    uint64_t boot_id; /* … of this start of the machine */
    int64_t jump_ms;  /* of LIMIT_CLOCK_JUMP_MS_MAX, how much this start has used up */
};

/* Kinds of records as a set: STORE_KIND(RECORD_OPERATION) | STORE_KIND(…). */
#define STORE_KIND(kind) (1u << (unsigned)(kind))
#define STORE_KINDS_ALL  (~0u)
#define STORE_OPERATIONS STORE_KIND(RECORD_OPERATION)
/* Everything that somebody asked for; a source is only remembered beside it. */
#define STORE_KINDS_ASKED (STORE_KINDS_ALL & ~STORE_KIND(RECORD_SOURCE))

static inline bool store_kind_in(unsigned kinds, enum record_kind kind)
{
    return (kinds & STORE_KIND(kind)) != 0;
}

enum { STORE_KINDS = 8, STORE_STATUSES = 16 }; /* what is counted: more than there are */

/* How many records of some kinds are live, expired ones included until they are forgotten. */
struct store_counts {
    uint64_t records;
    uint64_t by_status[STORE_STATUSES]; /* of these, by enum record_status */
    int64_t unknown_since_ms; /* last change of the unknown one that is longest so; 0: there is
                                 none, or the store was just opened and does not know it yet */
};

/* Which bodies of a record are wanted besides it. */
enum want_bodies {
    WANT_NO_BODY = 0,
    WANT_OUTCOME = 1,        /* the outcome's, when it is retained */
    WANT_REQUEST = 2,        /* the first request's, when it is retained */
    WANT_BY_FINGERPRINT = 4, /* a replay's or a conflict's: the outcome's when the record has this
                                fingerprint, the first request's when it has a different one */
};

/* One record that a batch needs, by the hash of its key or by its id. */
struct store_want {
    /* Set by the caller. */
    const struct digest *key;         /* hash of the key; NULL: by id */
    const struct op_id *id;           /* operation_id of the record */
    unsigned kinds;                   /* by id: of which kinds it may be; a source has no id */
    struct slice tenant;              /* bodies of other tenants are not fetched; empty: of any */
    const struct store_want *same;    /* an earlier want of this batch with the same key: its record
                                          is taken over, only the bodies are fetched; or NULL */
    unsigned bodies;                  /* enum want_bodies, or-ed */
    const struct digest *fingerprint; /* for WANT_BY_FINGERPRINT */
    struct arena *arena;              /* for the bodies: the call's own */
    bool source;                      /* and what is remembered of the record's source */

    /* Set by the store. */
    const struct record *record;        /* NULL: absent. One past its window may still come back */
    const struct record *source_record; /* source: NULL: absent, or the record has no source */
    struct record_key source_key;       /* source: its key, sealed, when the record has a source */
    struct slice outcome;               /* bytes of the bodies, checked against their digests */
    struct slice request;
    enum status body_status; /* OK, or E_NOMEM: a body did not fit into its arena, which is the
                                failure of that call alone */
};

/* What is wanted of a store at once. Wants may repeat each other. */
struct store_batch {
    /* Set by the caller. */
    struct store_want *wants;
    size_t count;
    uint64_t fences;     /* how many numbers of grants are wanted; not for read */
    struct arena *arena; /* for the records */

    /* Set by the store. */
    uint64_t fence_first;       /* the first of the fences, which are consecutive: greater than all
                                   that were ever given out. With fences 0: the next to come */
    int64_t now_ms;             /* the store's time: what is decided is decided then */
    bool clock_held;            /* the wall clock jumped ahead and is not followed (P8) */
    struct store_counts counts; /* of STORE_KINDS_ASKED; may be a little old */
};

struct commit {
    const struct change *changes;
    size_t count;
    uint64_t fence_floor; /* fences from now on are greater than this as well */
    bool *ret_stale;      /* set on E_STALE, one for each change: its record is at a version other
                             than the expected one. NULL: nobody asks */
    bool inherits;        /* see struct store_inheriting */
};

/* The end of this process's chain, as it is known here without asking anybody. */
struct store_head {
    uint64_t seq;               /* of the last evidence entry; 0 for none */
    struct digest hash;         /* its chained hash; zero for none */
    struct store_moment moment; /* of the last commit; of a shared store: by any process, as far as
                                   it is known here */
};

/* What every process of one store has in common. Made once, when the store is created. Secret. */
struct store_shared {
    unsigned char fingerprint_key[32]; /* HMAC key for fingerprints (DESIGN section 6) */
};

/*
 * What each process that writes has alone. Secret but for the chain id. On a shared store every
 * open for writing makes a new one, in memory only, and starts a new chain with it: writers never
 * contend for a head, and no process needs a disk. The store keeps the public half (chains).
 */
struct store_identity {
    unsigned char chain_id[16];     /* a UUID; names this chain of evidence */
    unsigned char signing_seed[32]; /* Ed25519 private key of the checkpoints */
};

/* What a store knows of one chain of evidence. */
struct store_chain {
    unsigned char chain_id[16];
    unsigned char public_key[32]; /* Ed25519, of its checkpoints; made from the signing seed. Zero:
                                     it has none, and the checkpoints of others cover it */
    uint64_t incarnation;         /* the holder that beats for it; 0: it never did */
    int64_t started_ms;           /* the store's time when it was opened */
    int64_t seen_ms;              /* … and of its last beat; 0: it never did */
    bool ended;                   /* its handle was closed */
    /* For a verifier. A store that does not keep one of these leaves it zero. */
    uint64_t seq; /* of its last entry, and its hash … */
    struct digest hash;
    bool settled;               /* … and a reading that begins now shows that one */
    uint64_t removed_seq;       /* entries up to this one were removed after their retention … */
    struct digest removed_hash; /* … and what is left is chained to this */
    uint64_t unchained;         /* decisions whose entries are still to be put into this chain */
};

/* Called for each chain, the oldest first. Return false to stop. */
typedef bool (*store_chain_visit)(void *context, const struct store_chain *chain);

/* The record with this key hash was settled (left in_progress) by a different process. */
typedef void (*store_notice)(void *context, const struct digest *key_hash);

/* Reasons for a due as a set: STORE_DUE(RECORD_DUE_LEASE_OVER) | STORE_DUE(…). The end of a window
 * is the store's own affair and is none of them. */
#define STORE_DUE(reason) (1u << (unsigned)(reason))
#define STORE_DUES_ALL    (~STORE_DUE(RECORD_DUE_WINDOW_OVER))

/* How far a caller has come through the dues in their order; zeroed: nowhere. The store's own. */
struct store_due_cursor {
    uint64_t due;
    uint64_t key_high; /* of the key's hash */
    uint64_t key_low;
};

/* Which records are asked for. */
struct store_due_filter {
    unsigned kinds;   /* STORE_KIND(…), or-ed */
    unsigned reasons; /* STORE_DUE(…), or-ed */
    bool held;        /* those in progress that a process incarnation holds (record.holder) and
                         whose lease may not be over; reasons are not looked at. Embedded: of every
                         incarnation. Shared: of those that are gone (S12), never our own */
    /* NULL: in no order. Else in the order of their dues, those after the cursor, which moves to
     * the last one. A due is made for now or later, never for a past time, so that none is missed;
     * those of the present moment come a moment later. On a shared store now is the time of a
     * prepare whose commit may still come: dues of the last LIMIT_PREPARED_MS_MAX come later. */
    struct store_due_cursor *cursor;
};

/* A record that needs somebody to act. */
struct store_due {
    enum record_kind kind;
    enum record_due reason;
    enum record_door door; /* that made it */
    struct op_id operation_id;
    int64_t due_ms; /* since when, at the latest */
    uint64_t fence; /* of its last grant; 0: it was never granted */
};

/* A bound on what one call of scan may cost; the caller goes on with scan.after = after. */
struct scan_pace {
    size_t looks_max;    /* at most this many keys are looked at, at least 1; … */
    size_t reads_max;    /* … at most this many records are read to see if they match, likewise */
    struct digest after; /* set: everything up to this key hash was looked at */
    bool done;           /* set: there is nothing after it */
};

struct scan {
    unsigned kinds;            /* of records, not 0 */
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

/*
 * A place in the evidence of a store: after one entry of one chain. Zeroed: before all of it. A
 * store gives cursors out (entry_pace.at) and takes them back. A store of many chains has them in
 * an order of its own and finds the place by the entry. As text: evidence/cursor.h.
 */
struct entry_cursor {
    unsigned char chain_id[16]; /* a UUID, of the chain; zero: of none, then seq is 0 too */
    uint64_t seq;               /* of the entry; 0: before the first of that chain, and before all
                                   of a store of many chains */
};

/* Called for each entry in order. Return false to stop. The bytes are valid during the call. */
typedef bool (*entry_visit)(void *context, const struct entry *entry);

/*
 * A bound on what one call of entries may cost, and how far it came: zeroed but for bytes_max it
 * starts, and the same one goes on in the next call. Meanwhile evidence may be added, rewritten and
 * removed: it goes on after the last entry that it passed. Checkpoint notes are left out.
 */
struct entry_pace {
    size_t bytes_max;       /* read in one call, roughly: a batch is always read whole; not 0 */
    struct entry_cursor at; /* of the last entry passed, matching or not; in a visit the one before;
                               it names a chain even when nothing was passed */
    struct digest hash; /* in a visit: of the entry before it in its chain; zero for the first */
    uint64_t place;     /* the store's own: where to go on; 0: not begun */
    bool squeezed;      /* the store's own: what place is in had been rewritten */
    bool done;          /* set: there is nothing after, now */
};

struct entry_range {
    struct slice tenant;              /* only its own (P9); empty: of all tenants */
    struct entry_cursor after;        /* only those after it; zeroed for all */
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

/*
 * What only some stores need done for them, in small pieces between batches: a server that has its
 * own expiry and retention does without the table.
 */
struct store_housekeeping {
    /* A bounded piece: forget expired ones, write ahead, save the index, squeeze. Called often;
     * returns at once when there is nothing to do. Same failures as commit. */
    enum status (*maintain)(struct store *store, struct err *err);
    /* Evidence that may go, and letting it go. The entry that says so must be flushed before
     * remove. A crash between the two leaves both: it is removable again. */
    enum status (*removable)(
        struct store *store, struct store_removable *ret_removable, struct err *err);
    enum status (*remove)(struct store *store, uint64_t place, struct err *err);
};

/*
 * What a store takes over from a different one (`once copy`). A store that is opened with it is
 * made by that, or is the unfinished copy of the same store in the same state. Until it is finished
 * nobody else can open it. Chains that were taken over have ended: this store continues none of
 * them, but those that no process has alone (PostgreSQL's functions).
 */
struct store_inheritance {
    const char *from;                 /* the other store, for people: without passwords */
    struct digest origin;             /* stands for that store and the state that it is in */
    struct store_shared shared;       /* its key: what was fingerprinted there is known here */
    int64_t time_ms;                  /* its time, which ours is never before (P8) */
    uint64_t fence;                   /* the highest that it gave out; ours are greater (P4) */
    const struct store_chain *chains; /* as they ended, the oldest first */
    size_t chain_count;
};

/*
 * A commit that inherits has records without entries, as they were, with version_expected 0; or
 * entries without records, byte for byte, all of one chain, each with its chain_id and prev_hash.
 * Entries come in the order of the other store, and all of them before the first record. A crash
 * leaves some beginning of what was committed.
 */
struct store_inheriting {
    /* How many entries were taken over so far. Failures as read's. */
    enum status (*entries)(struct store *store, uint64_t *ret_count, struct err *err);
    /* Everything is here: it is a store from now on. Flushed. E_UNKNOWN: or it is not yet. */
    enum status (*finish)(struct store *store, struct err *err);
};

struct store_ops {
    const char *name; /* "journal", "mem", … */
    bool shared;      /* other processes may change it (S9 to S13): beat and listen are set,
                         and a commit may be E_STALE */

    /* Everything that a batch has to know, at once. Afterwards exactly one commit or abort. */
    enum status (*prepare)(struct store *store, struct store_batch *batch, struct err *err);
    enum status (*commit)(struct store *store, const struct commit *commit, struct err *err);
    void (*abort)(struct store *store);
    enum status (*flush)(struct store *store, struct err *err);

    /* The same as prepare for those who only read: no fences, no locks, nothing to end. Not while a
     * batch is prepared. The time of a read-only handle is that of the last commit it sees. */
    enum status (*read)(struct store *store, struct store_batch *batch, struct err *err);
    /* Ordered by key hash; fewer than limit means that was all, unless a pace says otherwise. */
    enum status (*scan)(struct store *store, const struct scan *scan, struct arena *arena,
        const struct record **ret_records, size_t *ret_count, struct err *err);
    /* Records that are due by the store's time, in no order. May miss some that fell due in the
     * last second; never returns one early. Costs what is due, not what is live. Without a cursor,
     * what is returned is returned again until its record changes, and may keep others back that do
     * not fit into the limit: the caller acts on all it gets. */
    enum status (*due)(struct store *store, const struct store_due_filter *filter,
        struct store_due *ret_dues, size_t limit, size_t *ret_count, struct err *err);
    /* E_INVALID: range->after is of a chain that the store does not have: it would read as an empty
     * page otherwise. */
    enum status (*entries)(struct store *store, const struct entry_range *range, entry_visit visit,
        void *context, struct err *err);
    /* May be a little old. */
    enum status (*counts)(
        struct store *store, unsigned kinds, struct store_counts *ret_counts, struct err *err);

    void (*head)(struct store *store, struct store_head *ret_head);
    /* Either may be NULL. */
    void (*identity)(
        struct store *store, struct store_identity *ret_identity, struct store_shared *ret_shared);
    /* Flush, tidy up and free. The store is gone whatever is returned. */
    enum status (*close)(struct store *store, struct err *err);

    const struct store_housekeeping *housekeeping; /* NULL: it needs none */
    const struct store_inheriting *inheriting;     /* NULL: it cannot be the target of a copy */

    /* Shared stores alone have the next two; NULL otherwise. */

    /* This process is alive as this incarnation, a fence that it drew: called before the first
     * grant that names it as the holder, then every LIMIT_BEAT_MS. A prepare of the same handle may
     * count as one. E_UNAVAILABLE, E_NOMEM: it was not noted. */
    enum status (*beat)(struct store *store, uint64_t incarnation, struct err *err);
    /* Call notice for each record that a different handle settles from now on (S13), from any
     * thread, until close returns. It must not block nor call the store. At most once, before any
     * other thread uses the handle. */
    void (*listen)(struct store *store, store_notice notice, void *context);
    /* Every chain whose evidence is in the store. Failures as read's. Every shared store has it,
     * and an embedded one that can be copied or hold the evidence of a different store. */
    enum status (*chains)(
        struct store *store, store_chain_visit visit, void *context, struct err *err);

    /* NULL: queries run on the thread of the store. A handle of its own that reads beside it and
     * waits for nothing but memory and the medium: only read, scan, entries, counts, head, identity
     * and close are in its table. It sees what is flushed and nothing else (P2), each call all of
     * it. To be closed before the store. E_UNAVAILABLE, E_NOMEM. */
    enum status (*open_reader)(struct store *store, struct store **ret_reader, struct err *err);

    /* What weakens a promise where this store is kept, a sentence for people: number counts from 0,
     * NULL past the last. It was read at opening, lives as long as the handle and has no secrets.
     * NULL: nothing can. */
    const char *(*caution)(struct store *store, size_t number);
};

/* A new chain id and signing seed. E_UNAVAILABLE: there were no random bytes. */
enum status store_identity_make(struct store_identity *ret_identity, struct err *err) MUST_CHECK;
/* The public half of the signing key, for store_chain. E_UNAVAILABLE: the crypto library has no
 * Ed25519. */
enum status store_identity_public(
    const struct store_identity *identity, unsigned char ret_key[32], struct err *err) MUST_CHECK;

/* What the members above mean, for all stores. */
struct store_due store_due_of(const struct record *record);
bool store_due_before(const struct store_due_cursor *a, const struct store_due_cursor *b);
bool scan_match(const struct scan *scan, const struct record *record);
/* What a range asks for, but that it is after the cursor. */
bool entry_match(const struct entry_range *range, const struct entry *entry);
/* With the cursor, for stores of one chain. */
bool entry_in_range(const struct entry_range *range, const struct entry *entry);
/* Likewise: E_INVALID: the cursor is of a different chain. */
enum status entry_cursor_check(const struct entry_cursor *cursor, const unsigned char chain_id[16],
    struct err *err) MUST_CHECK;
/* The place after an entry of a store's own chain. */
struct entry_cursor entry_cursor_own(struct store *store, uint64_t seq);

/* Live records by kind and status, for the stores. */
struct store_tally {
    uint64_t counts[STORE_KINDS][STORE_STATUSES];
};
/* One more, or one less. */
void store_tally_add(
    struct store_tally *tally, enum record_kind kind, enum record_status status, bool more);
struct store_counts store_tally_of(const struct store_tally *tally, unsigned kinds);

/* Which bodies a want asks for, now that its record is known. */
struct want_choice {
    bool outcome;
    bool request;
};
struct want_choice want_choose(const struct store_want *want, int64_t now_ms);

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
    const struct mem *mem;     /* NULL: the C library's */
    const struct io *io;       /* NULL: the machine's own */
    const struct clock *clock; /* NULL: the machine's own, of a shared store its server's; must
                                  outlive the store */
    bool read_only;            /* look without locking; every change is E_MISUSE */
    bool must_exist;           /* do not create it */
    int64_t lock_wait_ms;      /* how long to wait for another process to let go */
    int64_t retain_ms;         /* evidence older than this may be removed; 0: 400 days */
    bool to_copy;    /* with read_only: an embedded store is locked all the same, and a shared one
                       reads its fingerprint key */
    bool unfinished; /* with read_only: also a copy that is not finished */
    const struct store_inheritance *inherit; /* open it to inherit; NULL: as usual */
};

/*
 * Open by URL: "journal:./once-data", "mem:". A plain path is a journal.
 * E_INVALID: the URL is wrong. E_UNAVAILABLE: in use ("in use by pid 4711"), no permission, no such
 * directory. E_CORRUPT: what is there does not check out; nothing was changed.
 */
enum status store_open(const char *url, const struct store_options *options,
    struct store **ret_store, struct err *err) MUST_CHECK;
/* It is of a store that several processes share; false also for what is no URL. */
bool store_url_shared(const char *url);
/* Whether a URL is right, without looking for what it names. E_INVALID as store_open's. */
enum status store_url_check(const char *url, struct err *err) MUST_CHECK;
/* Append the URL with its passwords masked, as people, logs and answers may see it. */
void store_url_show(struct buf *out, const char *url);

#endif
