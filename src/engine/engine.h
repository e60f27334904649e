/*
 * engine: batches of requests through prepare, decide, commit, flush, answer.
 *
 *     many threads            engine thread
 *     engine_submit --queue--> collect > prepare > decide > commit > flush > answer all
 *
 * A large batch goes to the flush thread for its last two steps, so that the next one is decided
 * meanwhile, and whatever comes after it follows it there. For a small one waking another thread
 * costs more than it saves: calls that come during its flush make one larger batch.
 *
 * Promises:  E1  nothing is answered before the commit that it rests on is durable (P2). A query is
 *                held back the same way: it may have seen what is not yet on disk.
 *            E2  within a batch, later requests see the changes of earlier ones.
 *            E3  an idle engine adds no delay: a batch is whatever was waiting.
 *            E4  every arrival that gets an answer has exactly one evidence entry (P10).
 *            E5  after a flush or a commit of unknown fate nothing is answered any more: every call
 *                gets E_UNKNOWN and the engine stays stopped (P11). Restart re-reads the truth.
 *                On a shared store only the calls of that commit get E_UNKNOWN: the store finds out
 *                what became of it before it prepares anything else.
 *            E6  queues are bounded; a full one refuses with E_LIMIT (P14).
 *            E7  on a shared store a parked call hears of a seal by a different process: by the
 *                store's notice, and by asking again within LIMIT_ASK_AGAIN_MS. While the store
 *                cannot be reached every call gets E_UNAVAILABLE, and the engine goes on by itself
 *                when it can.
 * Ownership: a call belongs to the engine from submit until its done function is called.
 * Threads:   engine_submit from any thread; done functions run on the engine thread or on the flush
 *            thread, never on both at a time.
 */
#ifndef ONCE_ENGINE_ENGINE_H
#define ONCE_ENGINE_ENGINE_H

#include "base/clock.h"
#include "evidence/note.h"
#include "store/store.h"

struct engine;
struct engine_call;

struct query; /* query.h */

/* One request in flight. */
struct engine_call {
    /* Set by the caller. */
    struct request request;    /* key hash sealed (record_key_seal), fingerprint keyed */
    struct slice request_body; /* to keep with a begin; empty: none */
    struct slice outcome_body; /* to keep with a seal or resolve; empty: none */
    int64_t wait_ms;           /* a begin that finds in_progress waits this long for the seal */
    bool needs_previous;       /* it depends on the call before it in its group (below) */
    struct query *query;       /* instead of a request: what the store holds (query.h) */
    const struct note *note;   /* instead of a request: leave this in the evidence (note.h) */
    void *context;             /* the caller's */
    struct arena *arena; /* where the answer's bytes live; shared only by calls of one group */
    void (*done)(struct engine_call *call); /* must not block */
    /* It found in_progress and begins to wait, or goes on waiting. Must not block. NULL is fine. */
    void (*waits)(struct engine_call *call);

    /* Set by the engine before done. */
    struct err err;           /* status OK: decision holds; otherwise why not */
    struct decision decision; /* record and its slices in arena */
    struct slice outcome;     /* the stored outcome's bytes, to a replay */
    struct slice first_body;  /* the stored first request body, to a conflict or a claim */
    int64_t now_ms;           /* the store's time when it was decided, or the query went on */
    int64_t boot_ms;          /* the boot clock then, or a little later … */
    int64_t boot_before_ms;   /* … and a little earlier */
    bool refused;             /* err says that its dependent group did not happen, and this call was
                                 the one that was refused; decision says how, if it was decided */
    uint32_t decided;         /* how often it was decided: again after each lost race */

    /* The engine's own. */
    struct engine_call *next;
    uint32_t group_left;   /* calls after this one that must be in the same commit */
    bool again;            /* a query that goes on, after the calls that wait by now … */
    uint64_t again_after;  /* … which are collected when this many are */
    bool parked;           /* waits for somebody's seal; not answered yet */
    int64_t wait_until_ms; /* boot clock: when a parked call gives up; 0: not parked before */
    void *waiter;          /* engine_do's */
};

struct engine_options {
    const struct mem *mem;       /* NULL: the C library's */
    const struct clock *clock;   /* of its timers; NULL: the machine's */
    int64_t checkpoint_every_ms; /* signed checkpoints of the evidence; 0: 60 s */
    uint64_t keys_max;           /* live keys: a begin of another one is refused; 0: no limit */
};

enum { ENGINE_BUCKETS = 16 }; /* of a histogram; powers of two */

struct engine_stats {
    uint64_t calls;   /* answered */
    uint64_t batches; /* committed */
    uint64_t flushes;
    uint64_t flush_nanos;                 /* spent in them */
    uint64_t queued;                      /* waiting to be collected now */
    uint64_t parked;                      /* waiting for somebody's seal now */
    uint64_t batch_sizes[ENGINE_BUCKETS]; /* batches of at most 1, 2, 4, … calls; the last: more */
    uint64_t
        flush_micros[ENGINE_BUCKETS]; /* flushes of at most 64, 128, 256, … µs; the last: more */
    int64_t now_ms;                   /* the store's time; a little old */
    int64_t checkpoint_ms;            /* when a signed checkpoint last covered all evidence */
    uint64_t entries;                 /* of evidence in this process's chain */
    struct store_counts counts;       /* of live keys; a little old */
    struct store_counts kinds[STORE_KINDS]; /* of what Once does by itself: commands, effects,
                                               deliveries; 0 of others. Seconds old at most while
                                               the store answers */
    bool clock_held;      /* the wall clock jumped ahead; expiry follows the boot clock (P8) */
    bool store_away;      /* a shared store cannot be reached (engine_store_away) */
    uint64_t quarantined; /* tenants that showed a fence from a lost future (quarantine.h) */
};

/* Takes the store over, even on failure. */
enum status engine_new(struct store *store, const struct engine_options *options,
    struct engine **ret_engine, struct err *err) MUST_CHECK;
/* Answer everything accepted, flush, sign a last checkpoint, close the store. NULL is fine. */
enum status engine_free(struct engine *engine, struct err *err);

/* OK: done will be called exactly once. E_LIMIT: the queue is full ("overloaded"); E_UNKNOWN or
 * E_UNAVAILABLE: the engine stopped, the text says why. E_INVALID: builder_check's or note_check's.
 * A begin of a tenant in quarantine is answered with E_UNAVAILABLE (quarantine.h), and one of a new
 * key past keys_max with E_LIMIT: existing keys go on and none is dropped to make room (P12). */
enum status engine_submit(
    struct engine *engine, struct engine_call *call, struct err *err) MUST_CHECK;
/* The same for several that have nothing to do with each other, for the price of one: the first
 * *ret_taken of them are accepted, in this order. Always set; less than count exactly when the
 * status is not OK, and then it is what engine_submit says of the next one. */
enum status engine_submit_each(struct engine *engine, struct engine_call *const *calls,
    size_t count, size_t *ret_taken, struct err *err) MUST_CHECK;
/*
 * The same for several that are accepted or refused together, decided in this order and go into one
 * commit: at most LIMIT_GROUP_REQUESTS_MAX. None of them may wait (E_INVALID). Each gets its own
 * decision and its own done.
 *
 * A call with needs_previous depends on the one before it: both are in one dependent group, which
 * holds whole or not at all. A call is refused when it gets an err, or when its decision did not do
 * what was asked: a begin was not granted (anything but first_seen, so a duplicate too); an enqueue
 * was in conflict or outdated (a duplicate is not refused: the work is there); any other request
 * was not accepted (not_found, stale_fence, already_sealed, still_running, wrong_status, not_due,
 * too_late, stale_version, nothing). A holder's call that repeats what was done before is not
 * refused: what it asks for holds. A note is refused only by an err. When one is refused, nothing
 * of its dependent group is committed, evidence included: every call of it gets an err,
 * E_UNAVAILABLE ("certainly did not happen") unless it failed by itself, and the one that was
 * refused has `refused` set. A query cannot be in a dependent group (E_INVALID), nor can the first
 * call of all depend (E_INVALID).
 */
enum status engine_submit_all(struct engine *engine, struct engine_call *const *calls, size_t count,
    struct err *err) MUST_CHECK;
/* Submit and wait; done is not used. Returns call->err.status. */
enum status engine_do(struct engine *engine, struct engine_call *call) MUST_CHECK;

/* The fingerprint as records hold it: HMAC with the store's own key, so that evidence does not give
 * away what a guessable payload was (DESIGN section 6). Any thread. */
void engine_fingerprint(
    const struct engine *engine, const struct digest *plain, struct digest *ret_keyed);

/* A reader beside the engine, the caller's alone until it gives it back with what reading came to:
 * damage stops the engine (E5). NULL: the store has none, or the engine has stopped; then queries
 * are submitted. May block for as long as others read. Any thread but the engine's. */
struct store *engine_reader_take(struct engine *engine);
void engine_reader_give(struct engine *engine, const struct err *err);

/* Whether the engine stopped for good (E5), and why: whoever runs it should end the process,
 * because only opening the store again reads the truth. Any thread. */
bool engine_failure(struct engine *engine, struct err *ret_err);

/* Whether a shared store cannot be reached, and why. Calls get E_UNAVAILABLE meanwhile; the engine
 * asks again by itself. Any thread. */
bool engine_store_away(struct engine *engine, struct err *ret_err);

/* From now on nobody waits for a seal: a caller that would wait gets "in progress" at once. For a
 * server that is about to end. Any thread. */
void engine_end_waits(struct engine *engine);

void engine_stats(struct engine *engine, struct engine_stats *ret_stats);
const struct store_identity *engine_identity(const struct engine *engine);
/*
 * Which process this is to the records of its store. A door whose work ends with the process names
 * it as the holder of its grants. Embedded: it is greater than that of every process that granted
 * anything before, and what those held became unknown when the engine was made. Shared: nobody else
 * has it, and what it holds becomes unknown when it has not beaten for LIMIT_HOLDER_GONE_MS.
 */
uint64_t engine_incarnation(const struct engine *engine);

/* Who acts on dues. Set by the subscriber, who keeps it until engine_off_due. */
struct due_subscription {
    struct store_due_filter filter; /* its cursor is the engine's own */
    /* Each due is given once, in the order of the dues, and never again before it changes or is
     * subscribed to anew. Otherwise it comes again until its record changes, so it is acted on or
     * postponed. */
    bool is_once;
    /* Called on the engine thread, every half a second while there are any, with some of the
     * records that are due; with is_once, several times. False: it takes none of these now, and
     * they come again. Must not block; it may submit calls, but not subscribe. */
    bool (*found)(void *context, const struct store_due *dues, size_t count);
    void *context;
    struct store_due_cursor given; /* the engine's own: how far is_once has come */
    struct due_subscription *next; /* likewise */
};
void engine_on_due(struct engine *engine, struct due_subscription *subscription);
/* When it returns, found is not running and will not be called again. */
void engine_off_due(struct engine *engine, struct due_subscription *subscription);

#endif
