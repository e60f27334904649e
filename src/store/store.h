/*
 * store: the interface of everything that keeps records and evidence, as a table of functions.
 *
 * A store finds records and commits changes together with their entries. It decides nothing
 * (core/decide.h) and composes no evidence (evidence/entry.h). A batch touches it twice:
 *
 *   idle --prepare--> prepared --commit | abort--> idle        commit ends it whatever it returns
 *
 * Promises:  S1  commit is all or nothing, in the order given, and visible to the next prepare or
 *                read as soon as it returns. abort leaves nothing behind.
 *            S2  flush returns OK only when everything committed before it was called is on stable
 *                storage; for a commit with a number, settle does. Nothing may be answered before
 *                that (P2).
 *            S3  a change is applied only if the record's version is the expected one; otherwise
 *                the whole commit is E_STALE, nothing happened, and the stale changes are marked.
 *                The same holds for an entry alone that was decided on a record: the entries of a
 *                record are in the order of its versions. A store that locks what prepare wanted
 *                has nothing to compare for it.
 *            S4  an invalid record or body is E_CORRUPT, never absent (P11).
 *            S5  a live record is never dropped to make room (P12); E_LIMIT names the limit.
 *            S6  fences are strictly increasing, across aborts and restarts too (P4).
 *            S7  entries are returned in the order committed, byte for byte.
 *            S8  the time that prepare returns never goes back and does not follow a wall clock
 *                that jumps (P8; store/clock.h for stores without a server's clock).
 *
 * A shared store (store_ops.shared) is used by several processes at once, each through its own
 * handle. It also promises:
 *            S9  a commit by one handle is visible to every other handle at its next prepare or
 *                read. The fences and the time of a prepare are later than those of all records
 *                that it returns: it draws them after it has read (or locked) the records.
 *            S10 a prepared batch blocks others for at most LIMIT_PREPARED_MS_MAX, and a later
 *                commit fails: E_UNAVAILABLE or E_STALE. If its process stalls while it sends to a
 *                server, or receives, LIMIT_STORE_LOCK_WAIT_MS.
 *            S11 a reader that continues at its cursor misses nothing, however the commits of
 *                several handles interleave: an entry is not shown until all entries before it in
 *                the store's order are visible.
 *            S12 a holder that beats is never reported as gone. A holder that has not beaten for
 *                LIMIT_HOLDER_GONE_MS by the store's time, or whose handle was closed, is.
 *            S13 a settled record is announced to the other handles that listen, after its commit;
 *                an announcement may be lost, repeated or late.
 *
 * A store with `settle` may return OK from a commit that gave ret_number before it is known whether
 * the commit happens, so that the next batch is prepared and decided meanwhile. It also promises:
 *            S14 such a commit was accepted: every version was the expected one, and nobody else
 *                changes or sees its records until its fate is known. settle returns the fate; OK
 *                means that it happened and is on stable storage.
 *            S15 commits of one handle happen in their order. If one does not happen, none that was
 *                made or prepared after it does: a commit of such a batch is E_UNAVAILABLE. head
 *                shows the chain as if all accepted commits happen; after the next prepare that
 *                returns OK, as it is.
 *
 * What a failure means:
 *   prepare E_UNAVAILABLE, E_LIMIT, E_NOMEM   nothing happened; there is nothing to commit or abort
 *   commit  E_STALE        lost a race with a different process; nothing happened
 *           E_UNAVAILABLE, E_LIMIT, E_NOMEM   nothing happened
 *   both    E_UNKNOWN, E_CORRUPT              stop the process (P11); restart re-reads the truth.
 *           On a shared store, E_UNKNOWN of a commit concerns its own batch alone. The store
 *           refuses everything (E_UNAVAILABLE) until it has found out whether the commit happened.
 *           After the next prepare that returns OK, head shows it. If the store can no longer find
 *           out, that prepare returns E_UNKNOWN.
 *   flush   anything but OK                   stop the process (P11)
 *
 * How shared stores do it. PostgreSQL: prepare opens a transaction and sends one pipeline: advisory
 * locks on all keys in the order of their hashes, the records with bodies and sources, one draw of
 * a sequence, now(). commit sends all changes, entries and a marker row in one pipeline with
 * COMMIT; the locks keep prepared records from becoming stale, and absent ones absent. When the
 * connection breaks, the marker says whether the commit happened; it is E_UNKNOWN if the server
 * cannot be asked. abort is ROLLBACK. Redis: one script reads and draws fences; a second one
 * compares every version_expected and then writes all changes, or reports the stale ones; abort
 * does nothing. A prepare may leave out the first one and presume that every key is absent, if each
 * want is of a call that then makes the record; the second script finds out (redis/presume.c). What
 * is decided on such a prepare holds only for keys that the commit changes. Both stores run queries
 * on a second connection (open_reader), and both have housekeeping.
 *
 * Ownership: arguments are read during the call only, except that a prepared batch's arenas must
 *            live until its commit. Results live in the given arenas.
 * Threads:   one thread at a time, not always the same, calls everything but flush and settle; one
 *            other thread may call these at the same time. A reader is used by one thread at a
 *            time, beside those two.
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
    uint64_t seq;       /* 1, 2, 3, … for evidence; for a checkpoint: of the last entry covered */
    struct digest hash; /* evidence/entry_form.h: entry_link; for a checkpoint: as seq */
    unsigned char chain_id[16]; /* its chain; a commit is in our own, unless it inherits */
    struct op_id operation_id;  /* zero if it concerns no operation */
    struct slice tenant;        /* the owner (P9); empty: no single tenant, or a checkpoint */
    int64_t time_ms;            /* when it was decided */
    struct slice bytes;         /* as stored: JSON, or the note's text; empty: no entry */
};

/* One record's change and the entry that describes it. A source's record changes without its own
 * entry, just before the change of the sealed operation. */
struct change {
    enum decision_change kind;       /* put, touch (duplicates + 1), or none: an entry alone */
    const struct record *record;     /* put: the new record; touch: the record; none: NULL */
    const struct digest *decided_on; /* none: hash of the key that the entry was decided on, wanted
                                        by this batch's prepare; NULL: it depends on no record */
    uint64_t version_expected;       /* the stored version, 0 if absent */
    struct slice request_body;       /* new bytes for record->request; empty: unchanged */
    struct slice outcome_body;       /* new bytes for record->outcome.body; empty: unchanged */
    struct entry entry;
    const struct digest *prev_hash; /* of an inherited entry: the hash of the entry before it */
};

/* The hash of the key whose record must have the expected version (S3); NULL: none. */
static inline const struct digest *change_key(const struct change *change)
{
    return change->kind == CHANGE_NONE ? change->decided_on : &change->record->key.hash;
}

/* A store's time, and what it needs to continue from there after a restart (P8). */
struct store_moment {
    int64_t time_ms;  /* the store's time */
    int64_t boot_ms;  /* the boot clock at that time … */
    uint64_t boot_id; /* … of this start of the machine */
    int64_t jump_ms;  /* how much of LIMIT_CLOCK_JUMP_MS_MAX this start has used up */
};

/* A set of record kinds: STORE_KIND(RECORD_OPERATION) | STORE_KIND(…). */
#define STORE_KIND(kind) (1u << (unsigned)(kind))
#define STORE_KINDS_ALL  (~0u)
#define STORE_OPERATIONS STORE_KIND(RECORD_OPERATION)
/* Every kind that a caller asks for; a source's record is only made beside them. */
#define STORE_KINDS_ASKED (STORE_KINDS_ALL & ~STORE_KIND(RECORD_SOURCE))

static inline bool store_kind_in(unsigned kinds, enum record_kind kind)
{
    return (kinds & STORE_KIND(kind)) != 0;
}

enum { STORE_KINDS = 8, STORE_STATUSES = 16 }; /* sizes of tables: more than there are */

/* How many records of some kinds are live. Expired records count until they are forgotten. */
struct store_counts {
    uint64_t records;
    uint64_t by_status[STORE_STATUSES]; /* of these, by enum record_status */
    int64_t unknown_since_ms; /* last change of the record that has been unknown longest; 0: none,
                                 or not known yet because the store was just opened */
};

/* How many records of one kind, status, tenant and scope there are. */
struct store_backlog {
    enum record_kind kind;
    enum record_status status;
    struct slice tenant;
    struct slice scope;
    uint64_t count;
    int64_t since_ms; /* when the oldest was created (pending), or last changed (any other) */
};
enum { STORE_BACKLOG_MAX = 500 }; /* read in about a millisecond, between two batches */
/* The line is valid during the call. */
typedef void (*store_backlog_visit)(void *context, const struct store_backlog *line);

/* Which bodies to load with a record. */
enum want_bodies {
    WANT_NO_BODY = 0,
    WANT_OUTCOME = 1,        /* the outcome's, if retained */
    WANT_REQUEST = 2,        /* the first request's, if retained */
    WANT_BY_FINGERPRINT = 4, /* for a replay or a conflict: the outcome's if the record has this
                                fingerprint, the first request's if it has a different one */
};

/* One record that a batch needs, by the hash of its key or by its id. */
struct store_want {
    /* Set by the caller. */
    const struct digest *key;         /* hash of the key; NULL: by id */
    const struct op_id *id;           /* operation_id of the record */
    unsigned kinds;                   /* by id: the kinds it may have; a source has no id */
    struct slice tenant;              /* bodies of other tenants are not loaded; empty: any */
    const struct store_want *same;    /* an earlier want of this batch with the same key, whose
                                         record is used: only the bodies are loaded; or NULL */
    unsigned bodies;                  /* enum want_bodies, or-ed */
    const struct digest *fingerprint; /* for WANT_BY_FINGERPRINT */
    struct arena *arena;              /* for the bodies: the call's own */
    bool source;                      /* also load the record of its source */

    /* Set by the store. */
    const struct record *record;        /* NULL: absent. It may be past its window */
    const struct record *source_record; /* with source; NULL: absent, or the record has no source */
    struct record_key source_key;       /* with source: its sealed key, if there is a source */
    struct slice outcome;               /* bytes of the bodies, checked against their digests */
    struct slice request;
    enum status body_status; /* OK, or E_NOMEM for this call alone: a body did not fit */
    bool durable;            /* by key: the record and its bodies are on stable storage, apart from
                                touches. A store that does not know leaves it false */
};

/* Everything that a batch needs from a store. Wants may repeat each other. */
struct store_batch {
    /* Set by the caller. */
    struct store_want *wants;
    size_t count;
    uint64_t fences; /* how many fences are needed; not for read */
    uint64_t
        records_max; /* with this many, the caller makes no new record, and commits nothing about
                             its key (P12); 0: no limit */
    struct arena *arena; /* for the records */

    /* Set by the store. */
    uint64_t fence_first;       /* the first of the fences, which are consecutive and greater than
                                   all given out before. With fences 0: the next one */
    int64_t now_ms;             /* the store's time, which decisions use */
    int64_t clock_ms;           /* of a handle that only reads: what the store's clock shows, if
                                   now_ms is the time of the last commit; 0: now_ms is that */
    bool clock_held;            /* the wall clock jumped ahead and is not followed (P8) */
    struct store_counts counts; /* of STORE_KINDS_ASKED; may be slightly old */
};

struct commit {
    const struct change *changes;
    size_t count;
    uint64_t fence_floor; /* later fences must also be greater than this */
    bool *ret_stale;      /* set on E_STALE, one for each change: its record does not have the
                             expected version. NULL: not needed */
    bool inherits;        /* see struct store_inheriting */
    /* Set on OK to the number to settle, or to 0 if the commit has happened. Give it only if every
     * changed record but those of sources was wanted by this batch's prepare. NULL: commit returns
     * when the fate is known. */
    uint64_t *ret_number;
};

/* The end of this process's chain, as known here without asking the server. */
struct store_head {
    uint64_t seq;               /* of the last evidence entry; 0 for none */
    struct digest hash;         /* its chained hash; zero for none */
    struct store_moment moment; /* of the last known commit; on a shared store by any process */
};

/* What all processes of one store share. Made once, when the store is created. Secret. */
struct store_shared {
    unsigned char fingerprint_key[32]; /* HMAC key for fingerprints */
};

/*
 * The identity of one writing process. Secret except for the chain id. On a shared store every open
 * for writing makes a new identity, in memory only, and starts a new chain with it: writers never
 * contend for a head, and no process needs a disk. The store keeps the public half (chains).
 */
struct store_identity {
    unsigned char chain_id[16];     /* a UUID; names this chain of evidence */
    unsigned char signing_seed[32]; /* Ed25519 private key of the checkpoints */
};

/* What a store knows of one chain of evidence. */
struct store_chain {
    unsigned char chain_id[16];
    unsigned char public_key[32]; /* Ed25519 key of its checkpoints, made from the signing seed.
                                     Zero: it has none, and checkpoints of other chains cover it */
    uint64_t incarnation;         /* the holder that beats for it; 0: none has */
    int64_t started_ms;           /* the store's time when it was opened */
    int64_t seen_ms;              /* … and at its last beat; 0: no beat yet */
    bool ended;                   /* its handle was closed */
    /* For a verifier. A store leaves the members that it does not keep zero. */
    uint64_t seq; /* of its last entry, and its hash … */
    struct digest hash;
    bool settled;               /* … and a reader that starts now sees that entry */
    uint64_t removed_seq;       /* entries up to this one were removed after their retention … */
    struct digest removed_hash; /* … and the rest is chained to this */
    uint64_t unchained;         /* decisions whose entries are not in this chain yet */
};

/* Called for each chain, the oldest first. Return false to stop. */
typedef bool (*store_chain_visit)(void *context, const struct store_chain *chain);

/* The record with this key hash was settled (left in_progress) by a different process. */
typedef void (*store_notice)(void *context, const struct digest *key_hash);

/* A set of reasons for a due: STORE_DUE(RECORD_DUE_LEASE_OVER) | STORE_DUE(…). The end of a window
 * is not among them: the store itself handles it. */
#define STORE_DUE(reason) (1u << (unsigned)(reason))
#define STORE_DUES_ALL    (~STORE_DUE(RECORD_DUE_WINDOW_OVER))

/* A caller's position in the ordered dues; zeroed: at the start. Only the store reads it. */
struct store_due_cursor {
    uint64_t due;
    uint64_t key_high; /* of the key's hash */
    uint64_t key_low;
};

/* Which records the caller wants. */
struct store_due_filter {
    unsigned kinds;   /* STORE_KIND(…), or-ed */
    unsigned reasons; /* STORE_DUE(…), or-ed */
    bool held;        /* records in progress that a process incarnation holds (record.holder), even
                         if their lease is not over; reasons are ignored. Embedded: of every
                         incarnation. Shared: of incarnations that are gone (S12), never our own */
    /* NULL: in no order. Otherwise ordered by due, starting after the cursor, which moves to the
     * last record returned. A due is never set to a past time, so none is missed; dues of the
     * present moment are returned a moment later. On a shared store the commit of an earlier
     * prepare may still be under way, so dues of the last LIMIT_PREPARED_MS_MAX come later. */
    struct store_due_cursor *cursor;
};

/* A record that needs somebody to act. */
struct store_due {
    enum record_kind kind;
    enum record_due reason;
    enum record_door door; /* the door that made it */
    struct op_id operation_id;
    int64_t due_ms; /* when it fell due, at the latest */
    uint64_t fence; /* of its last grant; 0: never granted */
};

/* A bound on the cost of one call of scan; the caller continues with scan.after = after. */
struct scan_pace {
    size_t looks_max;    /* at most this many keys are visited, at least 1; … */
    size_t reads_max;    /* … at most this many records are read to compare them, at least 1 */
    struct digest after; /* set: everything up to this key hash was visited */
    bool done;           /* set: there is nothing after it */
};

struct scan {
    unsigned kinds;            /* kinds of records, not 0 */
    struct slice tenant;       /* empty: any; only for the operator's own tools */
    struct slice scope;        /* empty: any */
    struct slice key;          /* empty: any */
    enum record_status status; /* 0: any */
    int64_t updated_from_ms;   /* 0: any */
    int64_t updated_until_ms;  /* 0: any; exclusive */
    int64_t now_ms;            /* leave out records past their window; 0: include them */
    struct digest after;       /* key hash of the last record returned; zero to start */
    size_t limit;              /* at most this many */
    struct scan_pace *pace;    /* NULL: continue until the limit or the end */
};

/*
 * A place in the evidence of a store: after one entry of one chain. Zeroed: before all of it. A
 * store issues cursors (entry_pace.at) and accepts them again. A store of many chains has its own
 * order of entries and finds the place by the entry. As text: evidence/cursor.h.
 */
struct entry_cursor {
    unsigned char chain_id[16]; /* the chain's UUID; zero: no chain, and seq is 0 too */
    uint64_t seq;               /* of the entry; 0: before the first entry of that chain, or of the
                                   whole store if it has many chains */
};

/* Called for each entry in order. Return false to stop. The bytes are valid during the call. */
typedef bool (*entry_visit)(void *context, const struct entry *entry);

/*
 * A bound on the cost of one call of entries, and its progress. Start with everything zero except
 * bytes_max, and pass the same pace to the next call. Evidence may be added, rewritten and removed
 * in between: the next call continues after the last entry passed. Checkpoint notes are left out.
 */
struct entry_pace {
    size_t bytes_max;       /* bytes to read in one call, roughly: batches are read whole; not 0 */
    struct entry_cursor at; /* of the last entry passed, matching or not; during a visit: of the
                               entry before. It names a chain even if no entry was passed */
    struct digest hash;     /* during a visit: of the entry before it in its chain; or zero */
    int64_t time_ms;        /* when the last entry passed was decided; 0: none was passed */
    uint64_t place;         /* the store's own: where to continue; 0: not begun */
    bool squeezed;          /* the store's own: the part that place is in had been rewritten */
    bool done;              /* set: there are no more entries now */
};

struct entry_range {
    struct slice tenant;              /* only entries of this tenant (P9); empty: of all */
    struct entry_cursor after;        /* only entries after it; zeroed: all */
    int64_t from_ms;                  /* only entries decided then or later; 0: all */
    const struct op_id *operation_id; /* only entries of this operation; NULL: all */
    struct entry_pace *pace;          /* NULL: continue until the visitor stops or the end */
};

/* The oldest part of the evidence, if all of it is past its retention. */
struct store_removable {
    uint64_t place;     /* the store's name for it; 0: there is none */
    uint64_t seq;       /* of the last entry in it */
    struct digest hash; /* its hash: the rest is chained to it */
    int64_t newest_ms;  /* when that entry was decided, at the latest */
};

/*
 * Work that some stores need, done in small pieces between batches. A store on a server with its
 * own expiry and retention needs no such table.
 */
struct store_housekeeping {
    /* Does a bounded piece of work: forgets expired records, writes ahead, saves the index,
     * squeezes. Called often; returns at once if there is nothing to do. Fails as commit does. */
    enum status (*maintain)(struct store *store, struct err *err);
    /* Find evidence that may be removed, and remove it. The entry that reports the removal must be
     * flushed before remove. After a crash between the two it is removable again. */
    enum status (*removable)(
        struct store *store, struct store_removable *ret_removable, struct err *err);
    enum status (*remove)(struct store *store, uint64_t place, struct err *err);
};

/* A type of effect, as the functions of a store must know it. Texts are terminated. */
struct store_effect_type {
    const char *name;
    const char *const *tenants; /* that may use it */
    size_t tenant_count;        /* 0: all */
    int64_t window_ms;
    bool is_ordered; /* its effects are given to one process at a time, in order */
};

/* An effect that an application wrote in its own transaction: its record waits. */
struct store_intake_row {
    struct slice tenant;
    struct op_id operation_id;
    struct slice envelope; /* in clear, with the key */
};

/*
 * Effects that applications write by functions of the store, without a process of Once. Their
 * payloads are in clear until a process wakes their records with a sealed body, or cancels them:
 * the commit that does so removes the clear text.
 */
struct store_intake {
    /* Replaces the types that the functions accept, for all processes. */
    enum status (*types)(
        struct store *store, const struct store_effect_type *types, size_t count, struct err *err);
    /* Takes some of these types, oldest first. Other processes leave them alone for some seconds;
     * afterwards they are returned again. An effect of an ordered type is not taken while a
     * different process has an older one of the same tenant. Both fail as due does. */
    enum status (*take)(struct store *store, const struct store_effect_type *types,
        size_t type_count, struct arena *arena, struct store_intake_row *ret_rows, size_t limit,
        size_t *ret_count, struct err *err);
};

/*
 * For answers that leave before their commit is durable (engine/soon.h). A process that gives such
 * answers marks the store first, and removes the mark after its last flush. Only a store that sets
 * store_want.durable has this.
 */
struct store_soon {
    /* Whether the mark was there when the store was opened, or has been set since. */
    bool (*is_marked)(struct store *store);
    /* Sets or removes the mark, durably. E_UNAVAILABLE: it is unchanged, or removed but not
     * durably. */
    enum status (*mark)(struct store *store, bool on, struct err *err);
};

/*
 * What a store takes over from a different store (`once copy`). Opening with it creates the store,
 * or continues the unfinished copy of the same store in the same state. Until the copy is finished
 * nobody else can open it. Inherited chains have ended: this store continues none of them, except
 * chains that belong to no single process (PostgreSQL's functions).
 */
struct store_inheritance {
    const char *from;                 /* the other store, for people; without passwords */
    struct digest origin;             /* identifies that store and its state */
    struct store_shared shared;       /* its key, so that its fingerprints stay valid here */
    int64_t time_ms;                  /* its time; ours is never earlier (P8) */
    uint64_t fence;                   /* the highest fence it gave out; ours are greater (P4) */
    const struct store_chain *chains; /* as they ended, the oldest first */
    size_t chain_count;
};

/*
 * A commit that inherits has either unchanged records without entries, with version_expected 0, or
 * entries without records, byte for byte, all of one chain, each with its chain_id and prev_hash.
 * Entries come in the order of the other store, all of them before the first record. A crash leaves
 * a prefix of the commits.
 */
struct store_inheriting {
    /* How many entries were taken over so far. Fails as read does. */
    enum status (*entries)(struct store *store, uint64_t *ret_count, struct err *err);
    /* The copy is complete and becomes a store, durably. E_UNKNOWN: it may not be one yet. */
    enum status (*finish)(struct store *store, struct err *err);
};

/*
 * A flush that no thread waits for, besides flush. Other calls continue meanwhile, and any of them
 * may land it, because it needs the disk: call land before waiting for the event.
 */
struct store_flight {
    /* Begins to write everything committed. *ret_landed: it is already on stable storage, as always
     * if the machine does not support more. Not while one is under way: it would wait for it. The
     * thread that calls this must live until it has landed. Fails as flush does. */
    enum status (*start)(struct store *store, bool *ret_landed, struct err *err);
    /* Whether everything that the last start began is on stable storage. Returns at once; from any
     * thread. E_UNKNOWN: as for flush, and permanently. */
    enum status (*land)(struct store *store, bool *ret_landed, struct err *err);
    /* A descriptor to poll for reading: land may succeed then. -1: nothing is under way. It belongs
     * to the store, is always the same one, and stays open until close. */
    int (*event)(struct store *store);
};

struct store_ops {
    const char *name;   /* "journal", "mem", … */
    bool shared;        /* other processes may change it (S9 to S13): beat and listen are set, and a
                         commit may return E_STALE */
    size_t commit_rows; /* what a commit costs a server beside its rows, in rows: a batch of few may
                           wait a moment for more (engine/gather.h). 0: little */

    /* Loads everything that a batch needs, at once. Exactly one commit or abort must follow. */
    enum status (*prepare)(struct store *store, struct store_batch *batch, struct err *err);
    enum status (*commit)(struct store *store, const struct commit *commit, struct err *err);
    void (*abort)(struct store *store);
    enum status (*flush)(struct store *store, struct err *err);
    /* Waits until it is known whether the commit with this number happened (S14). E_UNAVAILABLE: it
     * did not. E_UNKNOWN, E_CORRUPT: as in commit. Of the last LIMIT_SETTLED_MAX commits, in any
     * order, and from the thread of flush too. NULL: commit always knows. */
    enum status (*settle)(struct store *store, uint64_t number, struct err *err);

    /* Like prepare, but only reads: no fences, no locks, no commit or abort. Not while a batch is
     * prepared. A read-only handle returns the time of the last commit it sees. */
    enum status (*read)(struct store *store, struct store_batch *batch, struct err *err);
    /* Ordered by key hash; fewer than limit means the end, unless a pace says otherwise. */
    enum status (*scan)(struct store *store, const struct scan *scan, struct arena *arena,
        const struct record **ret_records, size_t *ret_count, struct err *err);
    /* Records that are due by the store's time, in no order. May miss some that fell due in the
     * last second; never returns one early. The cost grows with the due records, not the live ones.
     * Without a cursor, a record is returned again until it changes, and may displace others beyond
     * the limit: the caller must act on all it gets. */
    enum status (*due)(struct store *store, const struct store_due_filter *filter,
        struct store_due *ret_dues, size_t limit, size_t *ret_count, struct err *err);
    /* E_INVALID: the chain of range->after is absent, which would look like an empty page. */
    enum status (*entries)(struct store *store, const struct entry_range *range, entry_visit visit,
        void *context, struct err *err);
    /* May be slightly old. */
    enum status (*counts)(
        struct store *store, unsigned kinds, struct store_counts *ret_counts, struct err *err);

    /* The records of a kind that are pending, unknown or dead letters, by scope and tenant: of each
     * status at most STORE_BACKLOG_MAX are read, those due first or unchanged for longest. A line
     * may come in parts. ret_counts: all of the kind at the same moment. Fails as counts does.
     * Shared stores only; NULL: it cannot say. */
    enum status (*backlog)(struct store *store, enum record_kind kind, store_backlog_visit visit,
        void *context, struct store_counts *ret_counts, struct err *err);

    void (*head)(struct store *store, struct store_head *ret_head);
    /* Either may be NULL. */
    void (*identity)(
        struct store *store, struct store_identity *ret_identity, struct store_shared *ret_shared);
    /* Flushes, tidies up and frees. The store is invalid afterwards, whatever is returned. */
    enum status (*close)(struct store *store, struct err *err);

    const struct store_housekeeping *housekeeping; /* NULL: it needs none */
    const struct store_inheriting *inheriting;     /* NULL: it cannot be the target of a copy */
    const struct store_intake *intake;             /* NULL: it has no functions for applications */
    const struct store_flight *flight;             /* NULL: only flush */
    const struct store_soon *soon; /* NULL: its commits are durable when they return, or no answer
                                      may leave before their flush */

    /* Only shared stores have the next two; NULL otherwise. */

    /* Reports that this process is alive as this incarnation, a fence that it drew. Called before
     * the first grant that names it as the holder, then every LIMIT_BEAT_MS. A prepare of the same
     * handle may count as a beat. E_UNAVAILABLE, E_NOMEM: the beat was not recorded. */
    enum status (*beat)(struct store *store, uint64_t incarnation, struct err *err);
    /* Calls notice for each record that a different handle settles from now on (S13), from any
     * thread, until close returns. notice must neither block nor call the store. Call listen at
     * most once, before any other thread uses the handle. */
    void (*listen)(struct store *store, store_notice notice, void *context);
    /* Visits every chain whose evidence is in the store. Fails as read does. Set for every shared
     * store, and for an embedded one that can be copied or hold other chains. */
    enum status (*chains)(
        struct store *store, store_chain_visit visit, void *context, struct err *err);

    /* Opens a second handle that reads beside the store and waits only for memory and the medium.
     * Its table has only read, scan, entries, counts, head, identity and close. Each call sees
     * everything flushed and nothing else (P2). Close it before the store. E_UNAVAILABLE, E_NOMEM.
     * NULL: queries run on the store's thread. */
    enum status (*open_reader)(struct store *store, struct store **ret_reader, struct err *err);

    /* A condition that weakens a promise of this store, as a sentence for people. number counts
     * from 0; returns NULL past the last. Read at opening, lives as long as the handle, has no
     * secrets. NULL: there are no cautions. */
    const char *(*caution)(struct store *store, size_t number);
};

/* A new chain id and signing seed. E_UNAVAILABLE: there were no random bytes. */
enum status store_identity_make(struct store_identity *ret_identity, struct err *err) MUST_CHECK;
/* The public half of the signing key, for store_chain. E_UNAVAILABLE: the crypto library has no
 * Ed25519. */
enum status store_identity_public(
    const struct store_identity *identity, unsigned char ret_key[32], struct err *err) MUST_CHECK;

/* Helpers for all stores: the meaning of the members above. */
struct store_due store_due_of(const struct record *record);
bool store_due_before(const struct store_due_cursor *a, const struct store_due_cursor *b);
bool scan_match(const struct scan *scan, const struct record *record);
/* The entry matches the range, its cursor aside. */
bool entry_match(const struct entry_range *range, const struct entry *entry);
/* The same with the cursor, for stores of one chain. */
bool entry_in_range(const struct entry_range *range, const struct entry *entry);
/* For stores of one chain. E_INVALID: the cursor belongs to a different chain. */
enum status entry_cursor_check(const struct entry_cursor *cursor, const unsigned char chain_id[16],
    struct err *err) MUST_CHECK;
/* The place after an entry of a store's own chain. */
struct entry_cursor entry_cursor_own(struct store *store, uint64_t seq);

/* Live records by kind and status, for the stores. */
struct store_tally {
    uint64_t counts[STORE_KINDS][STORE_STATUSES];
};
/* Counts one record more, or one less. */
void store_tally_add(
    struct store_tally *tally, enum record_kind kind, enum record_status status, bool more);
struct store_counts store_tally_of(const struct store_tally *tally, unsigned kinds);

/* Which bodies to load for a want, once its record is known. */
struct want_choice {
    bool outcome;
    bool request;
};
struct want_choice want_choose(const struct store_want *want, int64_t now_ms);

/* The progress of a scan, for the stores. */
struct scan_walk {
    struct scan_pace *pace; /* NULL: until the end */
    struct digest after;    /* of the last key visited */
    size_t looks;           /* so far */
    size_t reads;           /* likewise */
};
struct scan_walk scan_walk_start(const struct scan *scan);
/* Called before a key is visited, and its record read or not. false: stop, the pace is used up. */
bool scan_walk_step(struct scan_walk *walk, const struct digest *hash, bool reads) MUST_CHECK;
/* Writes the progress into the pace. */
void scan_walk_end(struct scan_walk *walk, bool done);

struct store_options {
    const struct mem *mem;     /* NULL: the C library's */
    const struct io *io;       /* NULL: the machine's own */
    const struct clock *clock; /* NULL: the machine's own, or the server's for a shared store; must
                                  outlive the store */
    bool read_only;            /* read without locking; every change is E_MISUSE */
    bool must_exist;           /* do not create it */
    bool briefly;              /* for a few changes: take no time to find out what is fastest */
    int64_t lock_wait_ms;      /* how long to wait for a different process to close the store */
    int64_t retain_ms;         /* evidence older than this may be removed; 0: 400 days */
    bool to_copy;    /* with read_only: an embedded store is locked nevertheless; a shared one loads
                        its fingerprint key */
    bool unfinished; /* with read_only: open an unfinished copy too */
    const struct store_inheritance *inherit; /* open it as the target of a copy; NULL: as usual */
};

/*
 * Opens by URL: "journal:./once-data", "mem:", "postgres://…", "redis://…". A plain path is a
 * journal. E_INVALID: the URL is invalid. E_UNAVAILABLE: in use ("in use by pid 4711"), no
 * permission, no such directory. E_CORRUPT: the store is damaged; nothing was changed.
 */
enum status store_open(const char *url, const struct store_options *options,
    struct store **ret_store, struct err *err) MUST_CHECK;
/* The URL names a shared store; false also if it is not a URL. */
bool store_url_shared(const char *url);
/* The data directory of an embedded store; NULL: it has none, or out of memory. In the arena. */
const char *store_url_dir(const char *url, struct arena *arena);
/* Checks a URL without opening the store. E_INVALID as in store_open. */
enum status store_url_check(const char *url, struct err *err) MUST_CHECK;
/* Appends the URL with its passwords masked, fit for people, logs and answers. */
void store_url_show(struct buf *out, const char *url);

#endif
