/*
 * engine: batches of requests through prepare, decide, commit, flush, answer.
 *
 *     many threads            one thread at a time, which has the turn
 *     engine_submit --queue--> collect > prepare > decide > commit > flush > answer all
 *
 * Who has the turn. On an embedded store that flushes quickly, a thread that submits takes the turn
 * if it is free, and runs it for all waiting calls: it leads, and no other thread is woken
 * (engine_do, engine_submit_lead, engine_submit_seated). Calls that are submitted meanwhile only
 * queue; the end of the turn passes it on. While flushes are slow (measured: pace.h), on a shared
 * store, for calls whose done must not run on a caller's thread, for queries and for timers, the
 * engine's own thread has it. The turn is the same function.
 *
 * Where the store can write without a thread that waits (store_flight), a loop that leads begins
 * the flush and goes back to its connections; the turn stays with the flush until it has landed.
 *
 * The flush thread does the last two steps of a large batch, and of all batches that follow while
 * it works, so that the next batch is decided at the same time. For a small batch, waking a second
 * thread costs more than it saves: calls that arrive during its flush make one larger batch.
 *
 * Promises:  EN1 nothing is answered before the commit it depends on is durable (P2). A query is
 *                held back the same way: it may have read data that is not yet on disk. With
 *                engine_options.replays_soon, a pure replay is answered after its commit and before
 *                its flush (soon.h): the outcome that it shows is durable, its own entry is not.
 *            EN2 within a batch, later requests see the changes of earlier ones.
 *            EN3 an idle engine adds no delay: a batch is whatever was waiting. Over a store whose
 *                commits cost much, a batch beside others may wait a moment for more (gather.h).
 *            EN4 every arrival that gets an answer has exactly one evidence entry (P10).
 *            EN5 after a flush or a commit of unknown fate every call gets E_UNKNOWN and the engine
 *                stays stopped (P11). Restart re-reads the truth. On a shared store only the calls
 *                of that commit get E_UNKNOWN: the store finds out whether it happened before it
 *                prepares anything else.
 *            EN6 queues are bounded; a full one refuses with E_LIMIT (P14).
 *            EN7 on a shared store a parked call learns of a seal by a different process from the
 *                store's notice, or by asking again within LIMIT_ASK_AGAIN_MS. While the store
 *                cannot be reached every call gets E_UNAVAILABLE; the engine resumes by itself.
 * Ownership: a call belongs to the engine from submit until its done function is called.
 * Threads:   engine_submit from any thread; done functions run on the engine thread, on the flush
 *            thread or, of calls with a seat, on a thread that leads. Calls of one batch are
 *            answered one after the other.
 */
#ifndef ONCE_ENGINE_ENGINE_H
#define ONCE_ENGINE_ENGINE_H

#include <string.h>

#include "base/clock.h"
#include "evidence/note.h"
#include "store/store.h"

struct engine;
struct engine_call;

struct query; /* query.h */

/* Somebody who can be asked to lead: a loop, or a thread that waits for its own call. */
struct engine_seat {
    /* Calls of this seat wait and nobody has the turn: call engine_submit_lead soon. Called under
     * the engine's lock, and only while a call of this seat is in the queue. It must not block and
     * must not call the engine. NULL: it leads only when it submits. */
    void (*nudge)(struct engine_seat *seat);
    /* A flush that this seat began is under way, and no thread waits for it: call engine_land on
     * this thread when the descriptor is readable. The descriptor stays open until engine_free, and
     * is always the same one. Called by the thread that leads, without the lock; again, without an
     * engine_land in between, if the engine's thread landed the flight before (ET4). False: it
     * cannot; the thread then waits for the flush. NULL: it always waits. */
    bool (*watch)(struct engine_seat *seat, int fd);
};

/* One request in flight. */
struct engine_call {
    /* Set by the caller. */
    struct request request;    /* key hash sealed (record_key_seal), fingerprint keyed */
    struct slice request_body; /* to store with a begin; empty: none */
    struct slice outcome_body; /* to store with a seal or resolve; empty: none */
    int64_t wait_ms;           /* a begin that finds in_progress waits this long for the seal */
    /* A begin without what a grant needs: if the decision would be anything but a replay, nothing
     * is decided, not even in the evidence, and err is E_STALE. Not in a group. */
    bool replays_only;
    /* An enqueue that was decided before, only waits for its end: it counts no duplicate, makes no
     * entry and enqueues nothing. The decision is what a duplicate would get, with the record as it
     * is; nothing, if there is no such record any more. Not in a group. */
    bool looks_only;
    bool needs_previous;     /* it depends on the call before it in its group (below) */
    bool claims_previous;    /* it claims what the call before it in its group enqueues (below) */
    struct query *query;     /* instead of a request: read from the store (query.h) */
    const struct note *note; /* instead of a request: add this to the evidence (note.h) */
    void *context;           /* the caller's */
    struct arena *arena;     /* for the answer's bytes; shared only by calls of one group */
    void (*done)(struct engine_call *call); /* must not block */
    /* Set: done and waits may run on any thread that leads, also inside engine_submit_lead.
     * NULL: only on the engine's own threads, as always with a query. */
    struct engine_seat *seat;
    /* Called when it starts or continues to wait for a seal. Must not block. May be NULL. */
    void (*waits)(struct engine_call *call);

    /* Set by the engine before done. */
    struct err err;           /* status OK: decision is valid; otherwise the reason */
    struct decision decision; /* record and its slices in arena */
    struct slice outcome;     /* with a replay: the bytes of the stored outcome */
    struct slice first_body;  /* with a conflict or a claim: the stored first request body; not with
                                 claims_previous, because the caller brings it */
    int64_t now_ms;           /* the store's time of the decision, or of the query's last turn */
    int64_t boot_ms;          /* the boot clock at that time, or slightly later … */
    int64_t boot_before_ms;   /* … and slightly earlier */
    bool refused;             /* its dependent group did not happen because this call was refused;
                                 decision says how, if it was decided */
    bool is_pure_replay;      /* it shows a durable outcome, and only its own entry and the count of
                                 duplicates are not durable yet (soon.h) */
    uint32_t decided;         /* how often it was decided: once more after each lost race */

    /* The engine's own. */
    struct engine_call *next;
    uint32_t group_left;   /* calls after this one that must be in the same commit. Set by the
                              caller of engine_submit_lead */
    bool again;            /* a query that continues after the calls waiting now … */
    uint64_t again_after;  /* … that is, once this many calls have been collected */
    bool parked;           /* waits for a seal; not answered yet */
    int64_t wait_until_ms; /* boot clock: when a parked call gives up; 0: never parked */
    void *waiter;          /* engine_do's */
};

/* Make a call that was answered ready to be asked again: its request, the bodies and wait_ms stay;
 * all else becomes zero, of err what is read. */
static inline void engine_call_again(struct engine_call *call)
{
    const size_t from = offsetof(struct engine_call, replays_only);
    const size_t after = offsetof(struct engine_call, decision);
    memset((char *)call + from, 0, offsetof(struct engine_call, err) - from);
    err_clear(&call->err);
    memset((char *)call + after, 0, sizeof *call - after);
}

/* Make all members zero; of err what is read. */
static inline void engine_call_clear(struct engine_call *call)
{
    memset(call, 0, offsetof(struct engine_call, replays_only));
    engine_call_again(call);
}

struct engine_options {
    const struct mem *mem;       /* NULL: the C library's */
    const struct clock *clock;   /* of its timers; NULL: the machine's */
    int64_t checkpoint_every_ms; /* signed checkpoints of the evidence; 0: 60 s */
    uint64_t keys_max;           /* live keys: a begin beyond this is refused; 0: no limit */
    bool replays_soon;           /* answer pure replays before their flush, where the store can */
};

enum { ENGINE_BUCKETS = 16 }; /* of a histogram; powers of two */

struct engine_stats {
    uint64_t calls;   /* answered */
    uint64_t batches; /* committed */
    uint64_t flushes;
    uint64_t flush_nanos;                 /* spent in them */
    uint64_t queued;                      /* waiting to be collected now */
    uint64_t parked;                      /* waiting for a seal now */
    uint64_t batch_sizes[ENGINE_BUCKETS]; /* batches of at most 1, 2, 4, … calls; the last: more */
    uint64_t
        flush_micros[ENGINE_BUCKETS]; /* flushes of at most 64, 128, 256, … µs; the last: more */
    int64_t now_ms;                   /* the store's time; slightly old */
    int64_t checkpoint_ms;            /* when a signed checkpoint last covered all evidence */
    uint64_t entries;                 /* of evidence in this process's chain */
    struct store_counts counts;       /* of live keys; slightly old */
    struct store_counts kinds[STORE_KINDS]; /* of commands, effects and deliveries; 0 for other
                                               kinds. At most seconds old while the store answers */
    bool clock_held;      /* the wall clock jumped ahead; expiry follows the boot clock (P8) */
    bool store_away;      /* a shared store cannot be reached (engine_store_away) */
    int64_t turn_ms;      /* how long the current batch has been decided and committed; 0: there is
                             none */
    uint64_t quarantined; /* tenants that presented a fence from a lost future (quarantine.h) */
    uint64_t turns_led;   /* turns that a thread that submitted ran … */
    uint64_t turns_own;   /* … and turns with calls that the engine's thread ran */
    uint64_t gathers;     /* batches that waited a moment for more calls (gather.h) */
    uint64_t slowdowns;   /* how often flushes became too slow for threads that submit (pace.h) */
    uint64_t flush_typical_nanos; /* moving median of the latest flushes */
    bool leads;                   /* threads that submit may lead now */
};

/* Takes ownership of the store, even on failure. */
enum status engine_new(struct store *store, const struct engine_options *options,
    struct engine **ret_engine, struct err *err) MUST_CHECK;
/* Answers all accepted calls, flushes, signs a last checkpoint, closes the store. NULL is fine. */
enum status engine_free(struct engine *engine, struct err *err);

/* OK: done will be called exactly once. E_LIMIT: the queue is full ("overloaded"); E_UNKNOWN or
 * E_UNAVAILABLE: the engine stopped, the text says why. E_INVALID: from builder_check or
 * note_check. A begin of a tenant in quarantine is answered with E_UNAVAILABLE (quarantine.h), and
 * a begin of a new key past keys_max with E_LIMIT: existing keys still work and none is dropped to
 * make room (P12). */
enum status engine_submit(
    struct engine *engine, struct engine_call *call, struct err *err) MUST_CHECK;
/* Submits several calls at the cost of one: the first *ret_taken are accepted, in this order.
 * *ret_taken is always set. It is less than count exactly if the status is not OK; the status is
 * then that of the first call not accepted. A call whose group_left is not 0 is the first of a
 * group, as engine_submit_all takes one: that many calls after it belong to it.
 * Then, if calls wait and nobody has the turn, runs one turn on this thread for all of them, if
 * each has a seat and the store is quick. So done of any call that has a seat may run before this
 * returns, and this may take as long as a flush. count may be 0: only the second half. The caller
 * holds no lock that a done or waits function takes. */
enum status engine_submit_lead(struct engine *engine, struct engine_call *const *calls,
    size_t count, size_t *ret_taken, struct err *err) MUST_CHECK;
/* The same by the thread of a seat. If the seat can watch and the store can write without a thread
 * that waits, this returns while the flush is under way, and engine_land answers. */
enum status engine_submit_seated(struct engine *engine, struct engine_seat *seat,
    struct engine_call *const *calls, size_t count, size_t *ret_taken, struct err *err) MUST_CHECK;
/* If the flush that this seat began has ended, answers its calls and passes the turn on. Returns
 * whether nothing of this seat is under way any more. Only on the seat's thread. */
bool engine_land(struct engine *engine, struct engine_seat *seat);
/* The seat's thread is about to end: waits for a flush that it began, because the kernel would
 * cancel it. The seat must not watch again. Only on the seat's thread. */
void engine_unseat(struct engine *engine, struct engine_seat *seat);
/*
 * Submits several calls, at most LIMIT_GROUP_REQUESTS_MAX, that are accepted or refused together,
 * decided in this order and committed together. None of them may wait (E_INVALID). Each gets its
 * own decision and its own done.
 *
 * A call with needs_previous depends on the call before it: both are in one dependent group, which
 * is committed whole or not at all. A call is refused if it gets an err, or if its decision is not
 * the one asked for: a begin was not granted (anything but first_seen, so a duplicate too); an
 * enqueue was in conflict or outdated (a duplicate is not refused: the work is there); any other
 * request was refused (not_found, stale_fence, already_sealed, still_running, wrong_status,
 * not_due, too_late, stale_version, nothing). A holder's call that repeats an earlier one is not
 * refused. A note is refused only by an err. When a call is refused, nothing of its dependent group
 * is committed, not even evidence: every call of the group gets an err, E_UNAVAILABLE ("certainly
 * did not happen") unless it failed by itself, and the refused call has `refused` set. A query
 * cannot be in a dependent group, and the first call cannot have needs_previous (both E_INVALID).
 *
 * A claim with claims_previous is for the record that the enqueue just before it makes (anything
 * else before it: E_INVALID). The engine sets its operation_id. If that enqueue makes none, nothing
 * is claimed: the claim is answered with DECISION_NOTHING, without an entry. Its operation_id is
 * then zero, because the enqueue was a duplicate or was refused; or it names a record that existed
 * and is pending again. The enqueue does not depend on the claim.
 */
enum status engine_submit_all(struct engine *engine, struct engine_call *const *calls, size_t count,
    struct err *err) MUST_CHECK;
/* Submits and waits, and leads meanwhile; done and seat are not used. Returns call->err.status. Not
 * in a done function. */
enum status engine_do(struct engine *engine, struct engine_call *call) MUST_CHECK;

/* The fingerprint as stored in records: an HMAC with the store's own key, so that evidence does not
 * reveal a guessable payload. Any thread. */
void engine_fingerprint(
    const struct engine *engine, const struct digest *plain, struct digest *ret_keyed);

/* Lends a reader beside the engine to the caller, who returns it with the status of the reading:
 * damage stops the engine (EN5). NULL: the store has no readers, or the engine has stopped; submit
 * the query instead. May block while others read. Any thread but the engine's. */
struct store *engine_reader_take(struct engine *engine);
void engine_reader_return(struct engine *engine, const struct err *err);

/* Whether the engine has stopped for good (EN5), and why. The caller should end the process: only
 * reopening the store re-reads the truth. Any thread. */
bool engine_failure(struct engine *engine, struct err *ret_err);

/* Whether a shared store cannot be reached, and why. Until it can, calls get E_UNAVAILABLE; the
 * engine retries by itself. Any thread. */
bool engine_store_away(struct engine *engine, struct err *ret_err);

/* From now on no call waits for a seal: it gets "in progress" at once. For a server that is
 * shutting down. Any thread. */
void engine_end_waits(struct engine *engine);

void engine_stats(struct engine *engine, struct engine_stats *ret_stats);
/* What waits, by scope and tenant (backlog.h). */
struct backlog *engine_backlog(const struct engine *engine);
const struct store_identity *engine_identity(const struct engine *engine);
/*
 * The number of this process in the records of its store. A door whose work ends with the process
 * names it as the holder of its grants. Embedded: it is greater than that of every earlier process
 * that granted anything, and their grants became unknown when the engine was made. Shared: it is
 * unique, and its grants become unknown when it has not beaten for LIMIT_HOLDER_GONE_MS.
 */
uint64_t engine_incarnation(const struct engine *engine);

/* A subscriber to dues. The subscriber sets it and keeps it until engine_off_due. */
struct due_subscription {
    struct store_due_filter filter; /* the engine sets its cursor */
    /* True: each due is reported once, in order, and again only after it changes or after a new
     * subscription. False: it is reported again until its record changes, so the subscriber must
     * act on it or postpone it. */
    bool is_once;
    /* Called on the engine thread with some of the due records, every half a second while there are
     * any; with is_once, several times in a row. False: none of these are taken now, and they are
     * reported again. Must not block; it may submit calls, but not subscribe. */
    bool (*found)(void *context, const struct store_due *dues, size_t count);
    void *context;
    struct store_due_cursor given; /* the engine's own: the position of is_once */
    struct due_subscription *next; /* likewise */
};
void engine_on_due(struct engine *engine, struct due_subscription *subscription);
/* After it returns, found is not running and will not be called again. */
void engine_off_due(struct engine *engine, struct due_subscription *subscription);

/* The module that seals the effects that applications wrote in their own transactions (struct
 * store_intake). */
struct engine_intake {
    const struct store_effect_type *types; /* that it can seal; registered with the store */
    size_t type_count;
    /* Whether it takes more now. Both are called on the engine thread and must not block. */
    bool (*is_ready)(void *context);
    /* The rows are valid during the call. It may submit calls. */
    void (*found)(void *context, const struct store_intake_row *rows, size_t count);
    void *context;
    bool is_registered; /* the engine's own: the store knows the types */
};
/* Replaces the one before; NULL: nobody seals. After it returns, the one before is not running and
 * will not be called again. Stores without such functions never call it. Any thread but the
 * engine's. */
void engine_on_intake(struct engine *engine, struct engine_intake *intake);

#endif
