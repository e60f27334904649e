/*
 * The turn: whose thread collects, decides, commits and, for a small batch, flushes and answers.
 *
 *            +--lead_begin-----> led ------lead, seat_land--------+
 *            |                   | ^                              |
 *            |      flight_begin v | seat_land, engine_unseat     |
 *   free ----+                 flying                             +----> free
 *            |                   | ^                              |
 *            |          own_land v | own_land                     |
 *            +--collect--------> own ------own_land, own_end------+
 *                                 +-----collect--------> ended
 *
 * What holds:
 *   ET1 free   if calls wait, a thread comes for them: the engine's thread is awake or gathers more
 *              (gather.h), or a seat of a waiting call was nudged since the last turn. A nudged
 *              seat that does not come within a tick is not waited for any longer: the engine's
 *              thread takes the turn.
 *       led    a thread that submitted runs one turn. The store is embedded and quick (pace.h), no
 *              waiting call needs the engine's threads for its done, and neither a timer nor a
 *              query runs: a loop must not be held up by them.
 *       flying a thread that led began the flush of its batch, and no thread waits for it. Its seat
 *              watches it. Nothing is decided meanwhile: what comes makes one larger batch.
 *       own    the engine's thread runs one turn, with the timers.
 *       ended  nothing waits and nothing will: the engine was stopped.
 *   ET2 Before a thread gives the turn back, it checks again for waiting calls, under the lock
 *       under which they were added. So a submit during a turn wakes no thread.
 *   ET3 A lead is one turn. Then the oldest waiting call's seat is nudged, or the engine's thread
 *       is woken. When that thread asks for the turn, at most OVERTAKES_MAX leads come before it.
 *   ET4 A flight has one batch, which is answered when it has landed and not before (P2). Its seat
 *       lands it; if the seat does not come within a tick, the engine's thread does.
 *
 * past 800 lines because everything that is under the engine's lock is in this file.
 */
#include "engine/engine.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/macros.h"
#include "engine/cycle.h"
#include "engine/gather.h"
#include "engine/janitor.h"
#include "engine/pace.h"
#include "engine/parked.h"
#include "engine/query.h"
#include "engine/request_builder.h"
#include "engine/soon.h"

#define NANOS_PER_MS INT64_C(1000000)

enum {
    BATCHES = 4,            /* one collecting, one deciding, one flushing, one being answered */
    IDLE_TICK_MS = 250,     /* how often an idle engine checks its timers … */
    BUSY_TICK_MS = 5,       /* … and while others lead; as often as the most frequent duty */
    OVERTAKES_MAX = 8,      /* leads before the engine's thread, when it asks for the turn (ET3) */
    OWN_FLUSH_CALLS = 96,   /* a batch up to this is quicker without a second thread */
    FLUSH_MICROS_FIRST = 64 /* of the first bucket; a good disk takes about that long */
};

/* Keys that other processes settled since the engine thread last took them. */
struct notices {
    struct digest keys[LIMIT_NOTICES_MAX];
    size_t count;
    bool more; /* there were more than fit: any key may be among them */
};

/* A batch on its way: free -> filled by the turn -> flushed and answered -> free. */
struct batch {
    struct batch *next;
    size_t count;
    size_t collected;         /* calls that it began with … */
    uint64_t collected_nanos; /* … and when */
    uint64_t pending; /* number of its commit, to be settled before it is answered; 0: none */
    struct engine_call *calls[LIMIT_BATCH_REQUESTS_MAX];
};

/* A flush that no thread waits for (ET4). */
struct flight {
    struct batch *batch;      /* to be answered when it has landed; NULL: there is none */
    struct engine_seat *seat; /* that watches it */
    uint64_t begun_nanos;
};

enum turn_state { TURN_FREE, TURN_LED, TURN_FLYING, TURN_OWN, TURN_ENDED };

struct engine {
    const struct mem *mem;
    struct store *store;
    struct clock clock;
    struct store_identity identity;
    struct store_shared shared;
    struct digest_hmac_key fingerprint_key; /* the shared one, ready for use */

    /* Of whoever has the turn; the janitor's, of the engine thread alone. */
    struct cycle cycle;
    struct engine_call *deciding[LIMIT_BATCH_REQUESTS_MAX]; /* calls of a batch but its queries */
    struct parked parked;
    struct janitor janitor;
    struct soon soon;
    struct queue ready;     /* woken or timed-out calls, to go before new ones */
    struct notices hearing; /* the notices being acted on */
    int64_t asked_ms;       /* boot clock: when parked calls last asked again */
    struct queue again;     /* queries that continue, one for each batch, after earlier calls */
    uint64_t collected;     /* calls taken from the queue so far */
    int64_t boot_ms;        /* the boot clock at the latest turn */
    bool ending;            /* stopping, as seen by the turn */
    bool impatient;         /* waits_over, as seen by the turn */

    /* Shared, under lock. */
    pthread_mutex_t lock;
    pthread_cond_t work;      /* wakes the engine thread: calls to collect, or a free batch */
    pthread_cond_t flushable; /* wakes the flush thread: batches to flush */
    struct queue queue;       /* submitted, not collected */
    bool sleeping;            /* the engine thread waits for work and has not been woken */
    bool starved;             /* the engine thread waits for a free batch */
    enum turn_state state;    /* turn_move changes it */
    struct pace pace;         /* of the store: slow, and nobody leads */
    struct gather gather;     /* whether a batch waits for more calls */
    size_t unseated;          /* calls in the queue without a seat */
    bool nudged;              /* a seat was asked to lead since the last turn … */
    uint64_t nudged_nanos;    /* … at that time */
    bool wanted;              /* the engine thread waits for the end of a lead … */
    unsigned overtaken;       /* … and this many began since it asked */
    bool sleeps_long;         /* the engine thread sleeps for longer than a busy tick */
    uint64_t led_seen;        /* stats.turns_led when it last went to sleep */
    int64_t parked_next_ms;   /* parked.next_ms, as the last turn left it */
    int64_t soon_due_ms;      /* soon_due_ms, likewise */
    struct flight flight;     /* changed by whoever has the turn */
    bool flies;               /* the latest one that was begun could be left */
    bool flushing;            /* the flush thread has unanswered batches */
    struct batch *free;       /* batches nobody uses */
    struct batch *filled;     /* decided and committed, oldest first */
    struct batch *filled_last;
    struct notices notices; /* of a shared store */
    struct err away;        /* why the store cannot be reached; status OK: it can */
    bool stopping;          /* engine_free was called */
    bool waits_over;        /* engine_end_waits was called */
    bool drained;           /* the engine thread has ended: no batch will be filled again */
    uint64_t turn_nanos;    /* when the batch in hand was begun; 0: there is none */
    struct err failure;     /* status OK until the engine stopped for good (EN5) */
    struct engine_stats stats;
    uint64_t committed; /* commits so far … */
    uint64_t flushed;   /* … and how many of them the counted flushes cover */

    pthread_mutex_t reading; /* guards the reader; taken before the lock if both are needed */
    struct store *reader;    /* beside the engine; NULL: the store has none */

    pthread_t engine_thread;
    pthread_t flush_thread;
    struct batch batches[BATCHES];
};

/* ---- answering ----------------------------------------------------------------------------- */

/* From now on every call is answered with this failure (EN5). The first failure wins. */
static void engine_fail(struct engine *engine, const struct err *err)
{
    pthread_mutex_lock(&engine->lock);
    if (engine->failure.status == OK) {
        engine->failure = *err;
    }
    pthread_mutex_unlock(&engine->lock);
}

static void fail_calls(struct engine_call *const *calls, size_t count, const struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        calls[i]->err = *err;
        calls[i]->parked = false;
    }
}

/*
 * Hands a batch to the flush thread. False: flush it here, because it is small and the flush thread
 * is idle: calls that arrive during the flush make one larger batch, and no thread is woken. A
 * commit that a server is still busy with is always handed over: the next batch is decided
 * meanwhile.
 */
static bool batch_hand_over(struct engine *engine, struct batch *batch)
{
    pthread_mutex_lock(&engine->lock);
    bool stays = !engine->flushing && batch->count <= OWN_FLUSH_CALLS && batch->pending == 0;
    batch->next = NULL;
    if (stays) {
        pthread_mutex_unlock(&engine->lock);
        return false;
    }
    if (engine->filled == NULL) {
        engine->filled = batch;
    } else {
        engine->filled_last->next = batch;
    }
    engine->filled_last = batch;
    if (!engine->flushing) {
        engine->flushing = true;
        pthread_cond_signal(&engine->flushable);
    }
    pthread_mutex_unlock(&engine->lock);
    return true;
}

/* The calls of a batch are no longer under way. With the lock. */
static void batch_over(struct engine *engine, struct batch *batch)
{
    gather_answered(&engine->gather, batch->collected, batch->collected_nanos, clock_nanos());
    batch->collected = 0;
    if (engine->gather.enough > 0) {
        pthread_cond_signal(&engine->work);
    }
}

/* Nobody uses the batch any more. With the lock. */
static void batch_free(struct engine *engine, struct batch *batch)
{
    batch_over(engine, batch);
    batch->next = engine->free;
    engine->free = batch;
}

/* Returns a batch to the free list without answering its calls. */
static void batch_recycle(struct engine *engine, struct batch *batch)
{
    pthread_mutex_lock(&engine->lock);
    batch_free(engine, batch);
    pthread_mutex_unlock(&engine->lock);
}

static void batch_answer(struct engine *engine, struct batch *batch, const struct err *failure)
{
    if (failure->status != OK) {
        fail_calls(batch->calls, batch->count, failure);
    }
    size_t count = batch->count;
    pthread_mutex_lock(&engine->lock);
    batch_over(engine, batch); /* before a caller can send its next call (GA1) */
    pthread_mutex_unlock(&engine->lock);
    for (size_t i = 0; i < count; i++) {
        batch->calls[i]->done(batch->calls[i]); /* the call may be freed after this */
    }
    pthread_mutex_lock(&engine->lock);
    engine->stats.calls += count;
    batch_free(engine, batch);
    if (engine->starved) {
        engine->starved = false;
        pthread_cond_signal(&engine->work);
    }
    pthread_mutex_unlock(&engine->lock);
}

/* Each bucket is twice as wide as the one before; the last takes the rest. */
static void histogram_add(uint64_t buckets[ENGINE_BUCKETS], uint64_t value, uint64_t first)
{
    size_t at = 0;
    while (at + 1 < ENGINE_BUCKETS && value > first << at) {
        at++;
    }
    buckets[at]++;
}

/*
 * Whether something was committed since a flush was last counted. Queries and idle turns flush too;
 * counting these short flushes would hide how long real ones take. With the lock.
 */
static bool takes_flush(struct engine *engine)
{
    bool takes = engine->committed != engine->flushed;
    engine->flushed = engine->committed;
    return takes;
}

/* A flush ended. Where flushes fly it held no loop up, or would not have. */
static void count_flush(struct engine *engine, uint64_t took)
{
    int64_t boot_ms = clock_read(&engine->clock).boot_ms;
    pthread_mutex_lock(&engine->lock);
    if (engine->flies) {
        pace_flush_took(&engine->pace, took, boot_ms);
    } else {
        pace_took(&engine->pace, took, boot_ms);
    }
    engine->stats.flushes++;
    engine->stats.flush_nanos += took;
    histogram_add(engine->stats.flush_micros, took / 1000, FLUSH_MICROS_FIRST);
    pthread_mutex_unlock(&engine->lock);
}

/*
 * Waits for the fate of a batch's commit. If it did not happen, or nobody can say, the calls in it
 * learn that, and the engine continues: the store rejects whatever was decided after it (S15).
 */
static void batch_settle(struct engine *engine, const struct batch *batch)
{
    struct store *store = engine->store;
    struct err err = {0};
    if (batch->pending == 0) {
        return;
    }
    enum status status = store->ops->settle(store, batch->pending, &err);
    if (status == E_CORRUPT) {
        engine_fail(engine, &err);
    }
    for (size_t i = 0; i < batch->count && status != OK; i++) {
        struct engine_call *call = batch->calls[i];
        ASSERT(!call->parked);
        if (call->err.status == OK && call->query == NULL) {
            call->err = err;
        }
    }
}

/* Makes one round of batches durable, then answers their calls (EN1). */
static void flush_round(struct engine *engine, struct batch *batch)
{
    pthread_mutex_lock(&engine->lock);
    struct err failure = engine->failure;
    bool is_counted = takes_flush(engine);
    pthread_mutex_unlock(&engine->lock);
    uint64_t started = clock_nanos();
    for (const struct batch *each = batch; each != NULL && failure.status == OK;
         each = each->next) {
        batch_settle(engine, each);
    }
    if (failure.status == OK && engine->store->ops->flush(engine->store, &failure) != OK) {
        engine_fail(engine, &failure);
    }
    if (is_counted) {
        count_flush(engine, clock_nanos() - started);
    }
    while (batch != NULL) {
        struct batch *next = batch->next;
        batch_answer(engine, batch, &failure);
        batch = next;
    }
}

static void *flush_main(void *context)
{
    struct engine *engine = context;
    (void)pthread_setname_np(pthread_self(), "once-flush");
    for (;;) {
        pthread_mutex_lock(&engine->lock);
        engine->flushing = engine->filled != NULL;
        while (engine->filled == NULL && !engine->drained) {
            pthread_cond_wait(&engine->flushable, &engine->lock);
        }
        struct batch *batch = engine->filled;
        engine->filled = NULL;
        if (batch != NULL && batch->pending != 0) { /* answered as soon as its own fate is known */
            engine->filled = batch->next;
            batch->next = NULL;
        }
        pthread_mutex_unlock(&engine->lock);
        if (batch == NULL) {
            return NULL;
        }
        flush_round(engine, batch);
    }
}

/* ---- collecting ---------------------------------------------------------------------------- */

static size_t call_bytes(const struct engine_call *call)
{
    return call->request_body.len + call->outcome_body.len;
}

/* How many calls at the head of a queue must go into one commit: one call, or a whole group. */
static size_t head_measure(const struct queue *queue, size_t *ret_bytes)
{
    size_t count = 1 + (size_t)queue->first->group_left;
    const struct engine_call *call = queue->first;
    *ret_bytes = 0;
    for (size_t i = 0; i < count; i++, call = call->next) {
        ASSERT(call != NULL && call->group_left == count - 1 - i);
        *ret_bytes += call_bytes(call);
    }
    return count;
}

/* Moves calls from a queue into the batch while it has room. One call or one group always fits,
 * whatever its bodies: a group is never split. */
static void collect_from(struct queue *queue, struct batch *batch, size_t *bytes)
{
    while (queue->first != NULL) {
        size_t more = 0;
        size_t count = head_measure(queue, &more);
        if (batch->count + count > LIMIT_BATCH_REQUESTS_MAX ||
            (batch->count > 0 && *bytes + more > LIMIT_BATCH_BYTES_MAX)) {
            return;
        }
        *bytes += more;
        while (count-- > 0) {
            batch->calls[batch->count++] = queue_pop(queue);
        }
    }
}

/* Collects one query that continues, after all calls that waited before it: one for each batch, so
 * that many queries delay the others no more than one does. */
static void collect_again(struct engine *engine, struct batch *batch)
{
    const struct engine_call *first = engine->again.first;
    if (first != NULL && engine->collected >= first->again_after &&
        batch->count < LIMIT_BATCH_REQUESTS_MAX) {
        batch->calls[batch->count++] = queue_pop(&engine->again);
    }
}

/* Collects waiting calls in their order. With the lock. */
static void collect_all(struct engine *engine, struct batch *batch)
{
    size_t bytes = 0;
    size_t reads = engine->again.count;
    collect_from(&engine->ready, batch, &bytes);
    collect_again(engine, batch);
    size_t before = batch->count;
    collect_from(&engine->queue, batch, &bytes);
    engine->collected += batch->count - before;
    for (size_t i = before; i < batch->count; i++) {
        engine->unseated -= batch->calls[i]->seat == NULL;
    }
    if (engine->again.count == reads) {
        collect_again(engine, batch);
    }
}

/* Takes a batch; with the waiting calls, unless somebody else comes for them. With the lock. */
static struct batch *batch_take(struct engine *engine, bool takes_calls)
{
    struct batch *batch = engine->free;
    ASSERT(batch != NULL);
    engine->free = batch->next;
    batch->count = 0;
    batch->pending = 0;
    if (takes_calls) {
        collect_all(engine, batch);
    }
    batch->collected = batch->count;
    batch->collected_nanos = clock_nanos();
    gather_collected(&engine->gather, batch->collected);
    engine->ending = engine->stopping;
    engine->impatient = engine->stopping || engine->waits_over;
    return batch;
}

/* ---- the turn ------------------------------------------------------------------------------ */

/* Calls to be decided. With the lock, while nobody has the turn. */
static bool has_calls(const struct engine *engine)
{
    return engine->queue.first != NULL || engine->ready.first != NULL ||
           engine->again.first != NULL;
}

/* With the lock. */
static void turn_check(const struct engine *engine)
{
    bool comes = !engine->sleeping || engine->nudged || engine->gather.enough > 0;
    ASSERT(engine->state != TURN_FREE || comes || !has_calls(engine)); /* ET1 */
    ASSERT(engine->state != TURN_LED || !engine->store->ops->shared);
    ASSERT(engine->state != TURN_LED || engine->again.first == NULL);
    ASSERT(engine->state != TURN_FLYING || engine->flight.batch != NULL); /* ET4 */
    ASSERT(engine->state != TURN_FREE || engine->flight.batch == NULL);   /* ET4 */
    ASSERT(engine->state != TURN_ENDED || (engine->stopping && engine->queue.first == NULL));
    ASSERT(engine->unseated <= engine->queue.count);
    ASSERT(engine->overtaken <= OVERTAKES_MAX); /* ET3 */
}

/* Every change of state. With the lock. */
static void turn_move(struct engine *engine, enum turn_state to)
{
    switch (to) {
    case TURN_FREE: ASSERT(engine->state == TURN_LED || engine->state == TURN_OWN); break;
    case TURN_LED:
        ASSERT(engine->state == TURN_FREE || engine->state == TURN_FLYING);
        if (engine->state == TURN_FREE) {
            ASSERT(engine->pace.state == PACE_QUICK);
            engine->overtaken += engine->wanted;
            engine->nudged = false;
        }
        break;
    case TURN_FLYING: ASSERT(engine->state == TURN_LED || engine->state == TURN_OWN); break;
    case TURN_OWN:
        ASSERT(engine->state == TURN_FREE || engine->state == TURN_FLYING);
        engine->overtaken = 0;
        break;
    case TURN_ENDED: ASSERT(engine->state == TURN_OWN); break;
    }
    engine->state = to;
}

/* Wakes the engine thread. With the lock. */
static void wake(struct engine *engine)
{
    if (engine->sleeping) {
        engine->sleeping = false; /* the next submit need not wake it again */
        pthread_cond_signal(&engine->work);
    }
}

/* Whether a thread that submits may take the turn. With the lock. */
static bool may_lead(const struct engine *engine)
{
    bool is_quick = !engine->store->ops->shared && engine->pace.state == PACE_QUICK;
    bool is_well = !engine->stopping && engine->failure.status == OK && engine->free != NULL;
    bool is_fair = !engine->wanted || engine->overtaken < OVERTAKES_MAX;
    if (engine->state != TURN_FREE || !is_quick || !is_well || !is_fair || engine->unseated > 0 ||
        engine->again.first != NULL) {
        return false;
    }
    const struct engine_call *woken = engine->ready.first;
    while (woken != NULL && woken->seat != NULL) {
        woken = woken->next;
    }
    return woken == NULL;
}

/* After a turn: somebody must come for the calls that wait (ET1). A seat that was nudged before a
 * turn for the timers alone is not nudged again, and has no more time. With the lock. */
static void turn_pass(struct engine *engine)
{
    const struct engine_call *first =
        engine->ready.first != NULL ? engine->ready.first : engine->queue.first;
    if (has_calls(engine) && !engine->nudged) {
        struct engine_seat *seat = may_lead(engine) ? first->seat : NULL;
        engine->nudged = seat != NULL && seat->nudge != NULL;
        if (engine->nudged) {
            engine->nudged_nanos = clock_nanos();
            seat->nudge(seat);
        } else {
            wake(engine);
        }
    }
    if (engine->wanted) {
        pthread_cond_signal(&engine->work);
    }
}

/* Whoever has the turn gives it back. With the lock. */
static void turn_leave(struct engine *engine)
{
    turn_move(engine, TURN_FREE);
    turn_pass(engine);
    turn_check(engine);
}

/* Whether a nudged seat still has time to come. With the lock. */
static bool is_awaited(const struct engine *engine)
{
    return engine->nudged && may_lead(engine) &&
           clock_nanos() - engine->nudged_nanos < (uint64_t)BUSY_TICK_MS * 1000000;
}

/* How long until the next timer is due. */
static int64_t idle_ms(const struct engine *engine)
{
    int64_t wait_ms = engine->sleeps_long ? IDLE_TICK_MS : BUSY_TICK_MS;
    /* Read again, because the last turn may have been long. */
    int64_t now_ms = clock_read(&engine->clock).boot_ms;
    if (engine->parked_next_ms != INT64_MAX && engine->parked_next_ms - now_ms < wait_ms) {
        wait_ms = engine->parked_next_ms - now_ms + 1;
    }
    if (engine->soon_due_ms != INT64_MAX && engine->soon_due_ms - now_ms < wait_ms) {
        wait_ms = engine->soon_due_ms - now_ms;
    }
    int64_t ask_ms = engine->asked_ms + LIMIT_ASK_AGAIN_MS - now_ms;
    bool asks = engine->store->ops->shared && engine->stats.parked > 0;
    return asks && ask_ms < wait_ms ? ask_ms : wait_ms;
}

/* The engine thread sleeps until it is woken, or for this long. With the lock. */
static void sleep_until_work(struct engine *engine, int64_t wait_nanos)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t nanos = until.tv_nsec + wait_nanos;
    until.tv_sec += nanos / 1000000000;
    until.tv_nsec = nanos % 1000000000;
    (void)pthread_cond_timedwait(&engine->work, &engine->lock, &until);
}

static void wait_for_work(struct engine *engine)
{
    engine->sleeps_long = engine->stats.turns_led == engine->led_seen && !engine->nudged;
    engine->led_seen = engine->stats.turns_led;
    engine->sleeping = true;
    int64_t wait_ms = idle_ms(engine);
    sleep_until_work(engine, (wait_ms < 1 ? 1 : wait_ms) * NANOS_PER_MS);
    engine->sleeping = false;
    engine->sleeps_long = false;
}

/* How many calls a batch could be made of. With the lock. */
static size_t waiting_calls(const struct engine *engine)
{
    return engine->queue.count + engine->ready.count + engine->again.count;
}

/* A batch waits for calls that are about to come (gather.h). Whatever else wakes the engine thread
 * ends that, and answers make it shorter. With the lock. */
static void gather_calls(struct engine *engine)
{
    if (engine->stopping || engine->waits_over || engine->state != TURN_FREE) {
        return;
    }
    uint64_t left = 0;
    engine->sleeping = true;
    gather_begin(&engine->gather, waiting_calls(engine), clock_nanos());
    while (engine->sleeping && !engine->stopping && !engine->waits_over &&
           (left = gather_left(&engine->gather, waiting_calls(engine), clock_nanos())) > 0) {
        sleep_until_work(engine, (int64_t)left);
    }
    engine->sleeping = false;
}

/* ---- flights ------------------------------------------------------------------------------- */

/* Whether the flush of a led batch may be begun and left. With the lock. */
static bool may_fly(
    const struct engine *engine, const struct batch *batch, const struct engine_seat *seat)
{
    return engine->store->ops->flight != NULL && seat != NULL && seat->watch != NULL &&
           !engine->flushing && engine->failure.status == OK &&
           (engine->flies || batch->count <= OWN_FLUSH_CALLS);
}

/*
 * Begins the flush of a led batch, for the seat to watch (ET4). False: it has ended already, or has
 * to be waited for, or has failed for good: flush_round finds that out and answers.
 */
static bool flight_begin(struct engine *engine, struct batch *batch, struct engine_seat *seat)
{
    struct store *store = engine->store;
    const struct store_flight *ops = store->ops->flight;
    pthread_mutex_lock(&engine->lock);
    bool is_begun = may_fly(engine, batch, seat) && takes_flush(engine);
    pthread_mutex_unlock(&engine->lock);
    if (!is_begun) {
        return false;
    }
    ASSERT(batch->pending == 0); /* a shared store is not led */
    bool landed = true;
    uint64_t begun = clock_nanos();
    enum status status = ops->start(store, &landed, NULL);
    int fd = status == OK && !landed ? ops->event(store) : -1;
    bool flies = fd >= 0 && seat->watch(seat, fd);
    pthread_mutex_lock(&engine->lock);
    engine->flies = flies;
    if (flies) {
        engine->flight = (struct flight){.batch = batch, .seat = seat, .begun_nanos = begun};
        turn_move(engine, TURN_FLYING);
        turn_check(engine);
    }
    pthread_mutex_unlock(&engine->lock);
    if (!flies) {
        count_flush(engine, clock_nanos() - begun);
    }
    return flies;
}

/* Lands the flight, if it has ended or with `waits`, and answers its calls. By the thread that has
 * the turn, without the lock. */
static bool flight_land(struct engine *engine, bool waits)
{
    struct store *store = engine->store;
    struct flight flight = engine->flight;
    struct err failure = {0};
    bool landed = waits;
    enum status status = waits ? store->ops->flush(store, &failure)
                               : store->ops->flight->land(store, &landed, &failure);
    ASSERT(flight.batch != NULL);
    if (status == OK && !landed) {
        return false;
    }
    if (status != OK) {
        engine_fail(engine, &failure);
    }
    count_flush(engine, clock_nanos() - flight.begun_nanos);
    pthread_mutex_lock(&engine->lock);
    engine->flight = (struct flight){0};
    pthread_mutex_unlock(&engine->lock);
    batch_answer(engine, flight.batch, &failure);
    return true;
}

/* The engine thread lands a flight that is late, or the last one. With the lock. */
static void own_land(struct engine *engine)
{
    bool waits = engine->stopping;
    bool is_late = clock_nanos() - engine->flight.begun_nanos >= BUSY_TICK_MS * UINT64_C(1000000);
    if (waits || is_late) {
        turn_move(engine, TURN_OWN);
        pthread_mutex_unlock(&engine->lock);
        bool landed = flight_land(engine, waits);
        pthread_mutex_lock(&engine->lock);
        turn_move(engine, landed ? TURN_FREE : TURN_FLYING);
        if (landed) {
            return;
        }
    }
    sleep_until_work(engine, BUSY_TICK_MS * NANOS_PER_MS);
}

/* The engine thread takes the turn, and waits until it can. A batch with all waiting calls, unless
 * a nudged seat comes for them. With the lock. */
static struct batch *own_begin(struct engine *engine)
{
    while (engine->state != TURN_FREE || engine->free == NULL) {
        engine->wanted = engine->state != TURN_FREE;
        engine->starved = engine->free == NULL;
        if (engine->state == TURN_FLYING) {
            own_land(engine);
        } else {
            pthread_cond_wait(&engine->work, &engine->lock);
        }
    }
    engine->wanted = false;
    engine->starved = false;
    bool takes_calls = !is_awaited(engine);
    engine->nudged = !takes_calls;
    turn_move(engine, TURN_OWN);
    turn_check(engine);
    return batch_take(engine, takes_calls);
}

static void own_end(struct engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    turn_leave(engine);
    pthread_mutex_unlock(&engine->lock);
}

/*
 * The engine thread's: a batch with all waiting calls (EN3), possibly none if only a timer is due
 * or a nudged seat comes for them. NULL: stopping and nothing left.
 */
static struct batch *collect(struct engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    bool heard = engine->stats.parked > 0 && (engine->notices.count > 0 || engine->notices.more);
    bool work = heard || (engine->state == TURN_FREE && has_calls(engine) && !is_awaited(engine));
    if (!work && !engine->stopping) {
        wait_for_work(engine);
    }
    gather_calls(engine);
    struct batch *batch = own_begin(engine);
    bool ended = engine->ending && batch->count == 0 && engine->parked.count == 0;
    if (ended) {
        batch_free(engine, batch);
        turn_move(engine, TURN_ENDED);
        turn_check(engine);
    }
    pthread_mutex_unlock(&engine->lock);
    return ended ? NULL : batch;
}

/* ---- deciding ------------------------------------------------------------------------------ */

/* Puts an unfinished query after the calls waiting now. false: the engine is ending. */
static bool query_on(struct engine *engine, struct engine_call *call)
{
    if (engine->ending) {
        (void)err_set(&call->err, E_UNAVAILABLE, "the engine is shutting down");
        return false;
    }
    pthread_mutex_lock(&engine->lock);
    call->again_after = engine->collected + engine->queue.count;
    pthread_mutex_unlock(&engine->lock);
    queue_push(&engine->again, call);
    return true;
}

/*
 * Whether calls parked on a call's key should be decided again: the call settled the record, or it
 * had waited and found that a different process did.
 */
static bool wakes(const struct engine *engine, const struct engine_call *call)
{
    ASSERT(!call->parked); /* its answer is final */
    if (call->query != NULL || call->note != NULL || call->err.status != OK) {
        return false;
    }
    bool settled =
        call->decision.change == CHANGE_PUT && call->decision.next.status != RECORD_IN_PROGRESS;
    bool waited = engine->store->ops->shared && call->wait_until_ms != 0;
    return settled || (waited && call->decision.kind != DECISION_IN_PROGRESS);
}

/* Takes parked calls and unfinished queries out of a decided batch, and wakes calls that wait for
 * records it settled. */
static void park_and_wake(struct engine *engine, struct batch *batch)
{
    size_t kept = 0;
    for (size_t i = 0; i < batch->count; i++) {
        struct engine_call *call = batch->calls[i];
        if (call->parked) {
            if (call->wait_until_ms == 0) {
                call->wait_until_ms = engine->boot_ms + call->wait_ms;
            }
            if (!parked_add(&engine->parked, call)) {
                call->wait_ms = 0; /* no room to wait: it gets "in progress" in the next turn */
                queue_push(&engine->ready, call);
            }
            continue;
        }
        if (call->query != NULL && call->again && call->err.status == OK &&
            query_on(engine, call)) {
            continue;
        }
        batch->calls[kept++] = call;
        if (wakes(engine, call)) {
            parked_wake(&engine->parked, &call->decision.next.key.hash, &engine->ready);
        }
    }
    batch->count = kept;
}

/* Runs queries between two batches. A failure concerns the query alone, except damage. *ret_count
 * calls remain to be decided. */
static enum status run_queries(
    struct engine *engine, const struct batch *batch, size_t *ret_count, struct err *err)
{
    size_t count = 0;
    for (size_t i = 0; i < batch->count; i++) {
        struct engine_call *call = batch->calls[i];
        if (call->query == NULL) {
            engine->deciding[count++] = call;
        } else if (query_turn(engine->store, call) == E_CORRUPT) {
            return err_set(err, E_CORRUPT, "%s", call->err.text);
        }
    }
    *ret_count = count;
    return OK;
}

static void run_batch(struct engine *engine, struct batch *batch)
{
    struct err err = {0};
    size_t count = 0;
    enum status status = run_queries(engine, batch, &count, &err);
    if (status == OK && count > 0) {
        status = cycle_run(&engine->cycle, engine->deciding, count, &err);
    }
    struct clock_reading after = clock_read(&engine->clock);
    for (size_t i = 0; i < batch->count; i++) {
        batch->calls[i]->boot_ms = after.boot_ms;
        batch->calls[i]->boot_before_ms = engine->boot_ms;
    }
    if (status == E_UNKNOWN || status == E_CORRUPT) {
        fail_calls(batch->calls, batch->count, &err);
        engine_fail(engine, &err);
        return;
    }
    if (status != OK) { /* results already read stay */
        fail_calls(engine->deciding, count, &err);
    }
    park_and_wake(engine, batch);
}

/* ---- other processes ----------------------------------------------------------------------- */

/* The store's notice, from any thread. */
static void on_notice(void *context, const struct digest *key_hash)
{
    struct engine *engine = context;
    ASSERT(engine->store->ops->shared);
    pthread_mutex_lock(&engine->lock);
    if (engine->notices.count < LIMIT_NOTICES_MAX) {
        engine->notices.keys[engine->notices.count++] = *key_hash;
    } else {
        engine->notices.more = true;
    }
    if (engine->stats.parked > 0) {
        wake(engine);
    }
    pthread_mutex_unlock(&engine->lock);
}

/* Lets parked calls ask again: those whose keys other processes settled and, in case a notice was
 * lost, now and then one of each key. */
static void ask_again(struct engine *engine)
{
    struct notices *hearing = &engine->hearing;
    pthread_mutex_lock(&engine->lock);
    hearing->count = engine->notices.count;
    hearing->more = engine->notices.more;
    ASSERT(hearing->count <= LIMIT_NOTICES_MAX); /* P14 */
    memcpy(hearing->keys, engine->notices.keys, hearing->count * sizeof *hearing->keys);
    engine->notices.count = 0;
    engine->notices.more = false;
    pthread_mutex_unlock(&engine->lock);
    for (size_t i = 0; i < hearing->count; i++) {
        parked_wake(&engine->parked, &hearing->keys[i], &engine->ready);
    }
    if (hearing->more || engine->boot_ms - engine->asked_ms >= LIMIT_ASK_AGAIN_MS) {
        engine->asked_ms = engine->boot_ms;
        parked_ask(&engine->parked, &engine->ready);
    }
}

/* The timers of a turn; they may add calls to its batch. The engine thread alone. */
static void run_timers(struct engine *engine, struct batch *batch)
{
    parked_expire(&engine->parked, engine->impatient ? INT64_MAX : engine->boot_ms, &engine->ready);
    if (engine->store->ops->shared) {
        ask_again(engine);
    }
    struct err err = {0};
    struct janitor_turn timers = {
        .boot_ms = engine->boot_ms, .calls = batch->calls, .count = batch->count};
    if (janitor_run(&engine->janitor, &timers, &err) != OK) {
        engine_fail(engine, &err);
    }
    batch->count = timers.count;
}

/* What others may know of the turn that ends. With the lock. */
static void turn_publish(struct engine *engine, size_t decided, bool is_led)
{
    struct engine_stats *stats = &engine->stats;
    engine->turn_nanos = 0;
    if (decided > 0) {
        stats->batches++;
        histogram_add(stats->batch_sizes, decided, 1);
    }
    stats->turns_led += is_led;
    stats->turns_own += !is_led && decided > 0;
    stats->now_ms = engine->cycle.now_ms;
    stats->parked = engine->parked.count;
    stats->clock_held = engine->cycle.clock_held;
    stats->quarantined = engine->cycle.quarantine.count + engine->cycle.quarantine.all;
    stats->entries = engine->cycle.chain.seq;
    stats->counts = engine->cycle.counts;
    if (!is_led) {
        stats->checkpoint_ms = engine->janitor.checkpoint_ms;
        memcpy(stats->kinds, engine->janitor.kinds, sizeof stats->kinds);
    }
    engine->away = engine->cycle.away;
    stats->store_away = engine->away.status != OK;
    engine->committed = engine->cycle.commits;
    engine->parked_next_ms = engine->parked.next_ms;
    engine->soon_due_ms = soon_due_ms(&engine->soon);
}

/* Answers the pure replays of a batch whose flush is to come (soon.h). Not while the flush thread
 * works: done functions run on one thread at a time. */
static void answer_soon(struct engine *engine, struct batch *batch)
{
    pthread_mutex_lock(&engine->lock);
    bool waits = engine->flushing || engine->failure.status != OK;
    pthread_mutex_unlock(&engine->lock);
    if (!engine->soon.is_on || waits) {
        return;
    }
    struct engine_call **early = engine->deciding; /* the batch is decided */
    size_t count = soon_part(
        &engine->soon, batch->calls, &batch->count, early, clock_read(&engine->clock).boot_ms);
    for (size_t i = 0; i < count; i++) {
        early[i]->done(early[i]); /* the call may be freed after this */
    }
    pthread_mutex_lock(&engine->lock);
    engine->stats.calls += count;
    pthread_mutex_unlock(&engine->lock);
}

/* Whether a decided batch with no calls left needs no flush of its own now. */
static bool flush_can_wait(const struct engine *engine)
{
    if (engine->again.first != NULL) {
        return true; /* the batch that answers the query will flush */
    }
    int64_t due_ms = soon_due_ms(&engine->soon);
    return due_ms != INT64_MAX && due_ms > clock_read(&engine->clock).boot_ms;
}

/*
 * One turn, whoever has it: timers (the engine thread's turns only), then a batch. Its flush and
 * answers follow here or on the flush thread; or the flush is begun here, for the seat to watch.
 * Returns whether it is: the turn is not over then.
 */
static bool turn(struct engine *engine, struct batch *batch, bool is_led, struct engine_seat *seat)
{
    engine->boot_ms = clock_read(&engine->clock).boot_ms;
    if (!is_led) {
        run_timers(engine, batch);
    }
    pthread_mutex_lock(&engine->lock);
    struct err err = engine->failure;
    engine->turn_nanos = clock_nanos();
    pthread_mutex_unlock(&engine->lock);
    if (err.status != OK) {
        fail_calls(batch->calls, batch->count, &err);
    } else if (batch->count > 0) {
        engine->cycle.pending = 0;
        run_batch(engine, batch);
        batch->pending = engine->cycle.pending;
    }
    size_t decided = batch->count;
    answer_soon(engine, batch);
    bool waits = batch->count == 0 && flush_can_wait(engine);
    if (!waits) {
        soon_flushing(&engine->soon);
    }
    pthread_mutex_lock(&engine->lock);
    turn_publish(engine, decided, is_led);
    pthread_mutex_unlock(&engine->lock);
    if (waits) {
        batch_recycle(engine, batch);
    } else if (is_led && flight_begin(engine, batch, seat)) {
        return true;
    } else if (!batch_hand_over(engine, batch)) {
        flush_round(engine, batch);
    }
    return false;
}

static void *engine_main(void *context)
{
    struct engine *engine = context;
    struct batch *batch;
    (void)pthread_setname_np(pthread_self(), "once-engine");
    while ((batch = collect(engine)) != NULL) {
        bool flies = turn(engine, batch, false, NULL);
        ASSERT(!flies);
        own_end(engine);
    }
    pthread_mutex_lock(&engine->lock);
    engine->drained = true;
    pthread_cond_signal(&engine->flushable);
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}

/* After calls were added: the engine thread comes, unless somebody has the turn (ET2). With the
 * lock. */
static void calls_came(struct engine *engine)
{
    if (engine->state == TURN_FREE && !gather_waits(&engine->gather, waiting_calls(engine))) {
        wake(engine);
    }
}

/* ---- leading ------------------------------------------------------------------------------- */

/* Takes the turn with all waiting calls. NULL: there are none, or somebody else decides them. With
 * the lock. */
static struct batch *lead_begin(struct engine *engine)
{
    if (engine->state != TURN_FREE) {
        engine->nudged = false; /* it may be the seat that was nudged, and it does not wait */
        return NULL;            /* ET2 */
    }
    if (!has_calls(engine)) {
        return NULL;
    }
    if (!may_lead(engine)) {
        calls_came(engine);
        return NULL;
    }
    turn_move(engine, TURN_LED);
    turn_check(engine);
    return batch_take(engine, true);
}

/* One turn on the caller's thread (ET3). */
static void lead(struct engine *engine, struct batch *batch, struct engine_seat *seat)
{
    bool flies = turn(engine, batch, true, seat);
    pthread_mutex_lock(&engine->lock);
    if (engine->sleeps_long) {
        wake(engine); /* the timers of a busy engine */
    }
    if (!flies) {
        turn_leave(engine);
    }
    pthread_mutex_unlock(&engine->lock);
}

/* The thread of a seat lands its flight, if it has ended or with `waits`. Returns whether there is
 * none of that seat any more. */
static bool seat_land(struct engine *engine, const struct engine_seat *seat, bool waits)
{
    pthread_mutex_lock(&engine->lock);
    bool is_ours = engine->flight.batch != NULL && engine->flight.seat == seat;
    bool lands = is_ours && engine->state == TURN_FLYING; /* or the engine's thread is about to */
    if (lands) {
        turn_move(engine, TURN_LED);
    }
    pthread_mutex_unlock(&engine->lock);
    if (!lands) {
        return !is_ours;
    }
    bool landed = flight_land(engine, waits);
    pthread_mutex_lock(&engine->lock);
    if (landed) {
        turn_leave(engine);
    } else {
        turn_move(engine, TURN_FLYING);
        turn_check(engine);
    }
    pthread_mutex_unlock(&engine->lock);
    return landed;
}

/* ---- the interface ------------------------------------------------------------------------- */

static enum status call_check(const struct engine_call *call, struct err *err)
{
    ASSERT(call->done != NULL && call->arena != NULL);
    if (call->note != NULL) {
        return note_check(call->note, err);
    }
    return call->query != NULL ? OK : builder_check(call, err);
}

/* Why no call can be accepted now; OK if that many more can. With the lock. */
static enum status refuse(const struct engine *engine, size_t count, struct err *err)
{
    if (engine->failure.status != OK) {
        if (err != NULL) {
            *err = engine->failure;
        }
        return engine->failure.status;
    }
    if (engine->stopping) {
        return err_set(err, E_UNAVAILABLE, "the engine is shutting down");
    }
    if (engine->queue.count + count > LIMIT_QUEUE_REQUESTS_MAX) {
        return err_limit(err, ERR_LIMIT_QUEUE_REQUESTS,
            "overloaded: queue_requests_max (%d) requests are waiting", LIMIT_QUEUE_REQUESTS_MAX);
    }
    return OK;
}

static void call_prepare(struct engine_call *call, size_t group_left)
{
    call->wait_until_ms = 0;
    call->parked = false;
    call->is_pure_replay = false;
    call->group_left = (uint32_t)group_left;
}

static bool is_request(const struct engine_call *call, enum request_kind kind)
{
    return call->query == NULL && call->note == NULL && call->request.kind == kind;
}

/* Whether a call can have claims_previous, after that one. */
static bool claims(const struct engine_call *call, const struct engine_call *previous)
{
    return is_request(call, REQUEST_CLAIM) && is_request(previous, REQUEST_ENQUEUE);
}

/* Whether calls can be one group. */
static enum status group_check(struct engine_call *const *calls, size_t count, struct err *err)
{
    if (count == 0 || count > LIMIT_GROUP_REQUESTS_MAX) {
        return err_set(err, E_INVALID,
            "a group of %zu requests, outside of 1 to "
            "group_requests_max (%d)",
            count, LIMIT_GROUP_REQUESTS_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        enum status status = call_check(calls[i], err);
        if (status == OK && calls[i]->wait_ms != 0) {
            /* A waiting call would be decided in a later commit than the others. */
            status = err_set(err, E_INVALID, "wait is not possible in a group");
        }
        if (status == OK && calls[i]->needs_previous &&
            (i == 0 || calls[i]->query != NULL || calls[i - 1]->query != NULL)) {
            status = err_set(err, E_INVALID, "there is nothing that it could depend on");
        }
        if (status == OK && calls[i]->claims_previous &&
            (i == 0 || !claims(calls[i], calls[i - 1]))) {
            status = err_set(err, E_INVALID, "there is nothing that it could claim");
        }
        if (status != OK) {
            if (err != NULL) {
                err_prefix(err, "request %zu of the group", i);
            }
            return status;
        }
    }
    return OK;
}

/* With the lock. */
static void call_push(struct engine *engine, struct engine_call *call)
{
    ASSERT(call->query == NULL || call->seat == NULL);
    queue_push(&engine->queue, call);
    engine->unseated += call->seat == NULL;
}

/* Puts a whole group into the queue, or nothing. */
static enum status enqueue(
    struct engine *engine, struct engine_call *const *calls, size_t count, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        call_prepare(calls[i], count - 1 - i);
    }
    pthread_mutex_lock(&engine->lock);
    enum status status = refuse(engine, count, err);
    for (size_t i = 0; i < count && status == OK; i++) {
        call_push(engine, calls[i]);
    }
    if (status == OK) {
        calls_came(engine);
    }
    pthread_mutex_unlock(&engine->lock);
    return status;
}

enum status engine_submit(struct engine *engine, struct engine_call *call, struct err *err)
{
    enum status status = call_check(call, err);
    return status == OK ? enqueue(engine, &call, 1, err) : status;
}

/* How many calls, from this one on, are accepted or refused together. */
static size_t group_size(const struct engine_call *call)
{
    return 1 + (size_t)call->group_left;
}

/* Adds calls, each with the rest of its group, until one is refused. With the lock. */
static enum status push_each(struct engine *engine, struct engine_call *const *calls, size_t count,
    size_t *ret_taken, struct err *err)
{
    enum status status = OK;
    size_t taken = 0;
    while (taken < count && (status = refuse(engine, group_size(calls[taken]), err)) == OK) {
        size_t end = taken + group_size(calls[taken]);
        while (taken < end) {
            call_push(engine, calls[taken++]);
        }
    }
    *ret_taken = taken;
    return status;
}

/* Prepares calls, each with the rest of its group, until one cannot be accepted. Returns how many
 * can. */
static size_t prepare_each(
    struct engine_call *const *calls, size_t count, enum status *ret_status, struct err *err)
{
    size_t good = 0;
    *ret_status = OK;
    while (good < count) {
        size_t size = group_size(calls[good]);
        ASSERT(size <= count - good);
        *ret_status = size == 1 && !calls[good]->needs_previous && !calls[good]->claims_previous
                          ? call_check(calls[good], err)
                          : group_check(calls + good, size, err);
        if (*ret_status != OK) {
            break;
        }
        for (size_t i = 0; i < size; i++) {
            call_prepare(calls[good + i], size - 1 - i);
        }
        good += size;
    }
    return good;
}

enum status engine_submit_seated(struct engine *engine, struct engine_seat *seat,
    struct engine_call *const *calls, size_t count, size_t *ret_taken, struct err *err)
{
    enum status status = OK;
    size_t good = prepare_each(calls, count, &status, err);
    pthread_mutex_lock(&engine->lock);
    enum status refused = push_each(engine, calls, good, ret_taken, err);
    struct batch *batch = lead_begin(engine);
    pthread_mutex_unlock(&engine->lock);
    if (batch != NULL) {
        lead(engine, batch, seat);
    }
    return refused != OK ? refused : status;
}

enum status engine_submit_lead(struct engine *engine, struct engine_call *const *calls,
    size_t count, size_t *ret_taken, struct err *err)
{
    return engine_submit_seated(engine, NULL, calls, count, ret_taken, err);
}

bool engine_land(struct engine *engine, struct engine_seat *seat)
{
    return seat_land(engine, seat, false);
}

void engine_unseat(struct engine *engine, struct engine_seat *seat)
{
    while (!seat_land(engine, seat, true)) {
        (void)sched_yield(); /* the engine's thread has it for a moment */
    }
}

enum status engine_submit_all(
    struct engine *engine, struct engine_call *const *calls, size_t count, struct err *err)
{
    enum status status = group_check(calls, count, err);
    return status == OK ? enqueue(engine, calls, count, err) : status;
}

/* A thread that waits for its own call. */
struct waiter {
    struct engine_seat seat;
    pthread_mutex_t lock; /* taken after the engine's */
    pthread_cond_t changed;
    bool nudged; /* it should lead */
    bool done;
};

static void waiter_done(struct engine_call *call)
{
    struct waiter *waiter = call->waiter;
    pthread_mutex_lock(&waiter->lock);
    waiter->done = true;
    pthread_cond_signal(&waiter->changed);
    pthread_mutex_unlock(&waiter->lock);
}

/* Its call still waits to be collected, so the waiter is still there. */
static void waiter_nudge(struct engine_seat *seat)
{
    struct waiter *waiter = CONTAINER_OF(seat, struct waiter, seat);
    pthread_mutex_lock(&waiter->lock);
    waiter->nudged = true;
    pthread_cond_signal(&waiter->changed);
    pthread_mutex_unlock(&waiter->lock);
}

/* Waits until the call is done; leads when asked to. A nudge that comes together with the answer is
 * void: a turn was taken after it, and its end passed on what still waited (ET1). */
static void waiter_wait(struct engine *engine, struct waiter *waiter)
{
    pthread_mutex_lock(&waiter->lock);
    while (!waiter->done) {
        if (waiter->nudged) {
            size_t none;
            waiter->nudged = false;
            pthread_mutex_unlock(&waiter->lock);
            (void)!engine_submit_lead(engine, NULL, 0, &none, NULL); /* nothing to refuse */
            pthread_mutex_lock(&waiter->lock);
        } else {
            pthread_cond_wait(&waiter->changed, &waiter->lock);
        }
    }
    pthread_mutex_unlock(&waiter->lock);
}

enum status engine_do(struct engine *engine, struct engine_call *call)
{
    struct waiter waiter = {.seat = {.nudge = waiter_nudge},
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER};
    size_t taken = 0;
    call->waiter = &waiter;
    call->done = waiter_done;
    call->seat = call->query == NULL ? &waiter.seat : NULL;
    call->group_left = 0;
    enum status status = engine_submit_lead(engine, &call, 1, &taken, &call->err);
    if (status != OK) {
        return status;
    }
    waiter_wait(engine, &waiter);
    return call->err.status;
}

void engine_fingerprint(
    const struct engine *engine, const struct digest *plain, struct digest *ret_keyed)
{
    digest_hmac_keyed(&engine->fingerprint_key, plain->bytes, sizeof plain->bytes, ret_keyed);
}

struct store *engine_reader_take(struct engine *engine)
{
    if (engine->reader == NULL || engine_failure(engine, NULL)) {
        return NULL;
    }
    pthread_mutex_lock(&engine->reading);
    return engine->reader;
}

void engine_reader_return(struct engine *engine, const struct err *err)
{
    ASSERT(engine->reader != NULL);
    pthread_mutex_unlock(&engine->reading);
    if (err->status == E_CORRUPT) {
        engine_fail(engine, err);
    }
}

bool engine_failure(struct engine *engine, struct err *ret_err)
{
    pthread_mutex_lock(&engine->lock);
    bool failed = engine->failure.status != OK;
    if (failed && ret_err != NULL) {
        *ret_err = engine->failure;
    }
    pthread_mutex_unlock(&engine->lock);
    return failed;
}

bool engine_store_away(struct engine *engine, struct err *ret_err)
{
    pthread_mutex_lock(&engine->lock);
    bool away = engine->away.status != OK;
    if (away && ret_err != NULL) {
        *ret_err = engine->away;
    }
    pthread_mutex_unlock(&engine->lock);
    return away;
}

void engine_end_waits(struct engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    engine->waits_over = true;
    pthread_cond_signal(&engine->work);
    pthread_mutex_unlock(&engine->lock);
}

void engine_stats(struct engine *engine, struct engine_stats *ret_stats)
{
    pthread_mutex_lock(&engine->lock);
    *ret_stats = engine->stats;
    ret_stats->queued = engine->queue.count;
    ret_stats->slowdowns = engine->pace.slowdowns;
    ret_stats->gathers = engine->gather.waits;
    ret_stats->flush_typical_nanos = engine->pace.typical_nanos * (engine->flies ? PACE_FLIGHT : 1);
    ret_stats->leads = engine->pace.state == PACE_QUICK && !engine->store->ops->shared;
    ret_stats->turn_ms =
        engine->turn_nanos == 0 ? 0 : (int64_t)((clock_nanos() - engine->turn_nanos) / 1000000);
    pthread_mutex_unlock(&engine->lock);
}

struct backlog *engine_backlog(const struct engine *engine)
{
    return engine->janitor.backlog;
}

uint64_t engine_incarnation(const struct engine *engine)
{
    return engine->janitor.incarnation;
}

void engine_on_due(struct engine *engine, struct due_subscription *subscription)
{
    janitor_on_due(&engine->janitor, subscription);
}

void engine_off_due(struct engine *engine, struct due_subscription *subscription)
{
    janitor_off_due(&engine->janitor, subscription);
}

void engine_on_intake(struct engine *engine, struct engine_intake *intake)
{
    janitor_on_intake(&engine->janitor, intake);
}

const struct store_identity *engine_identity(const struct engine *engine)
{
    return &engine->identity;
}

static void engine_init_sync(struct engine *engine)
{
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&engine->lock, NULL);
    (void)pthread_mutex_init(&engine->reading, NULL);
    (void)pthread_cond_init(&engine->work, &attributes);
    (void)pthread_cond_init(&engine->flushable, NULL);
    (void)pthread_condattr_destroy(&attributes);
    for (size_t i = 0; i < BATCHES; i++) {
        engine->batches[i].next = engine->free;
        engine->free = &engine->batches[i];
    }
}

static enum status engine_start(struct engine *engine, struct err *err)
{
    int failed = pthread_create(&engine->flush_thread, NULL, flush_main, engine);
    if (failed != 0) {
        return err_errno(err, E_UNAVAILABLE, failed, "cannot start a thread");
    }
    failed = pthread_create(&engine->engine_thread, NULL, engine_main, engine);
    if (failed == 0) {
        return OK;
    }
    pthread_mutex_lock(&engine->lock);
    engine->drained = true;
    pthread_cond_signal(&engine->flushable);
    pthread_mutex_unlock(&engine->lock);
    (void)pthread_join(engine->flush_thread, NULL);
    return err_errno(err, E_UNAVAILABLE, failed, "cannot start a thread");
}

/* Frees everything that engine_new made, after the threads have ended. Closes the store. */
static enum status engine_dispose(struct engine *engine, struct err *err)
{
    enum status status = engine->failure.status;
    if (status != OK && err != NULL) {
        *err = engine->failure;
    }
    janitor_release(&engine->janitor);
    cycle_release(&engine->cycle);
    backlog_free(engine->janitor.backlog);
    if (engine->reader != NULL) {
        (void)engine->reader->ops->close(engine->reader, NULL); /* it only read */
    }
    enum status closed = engine->store->ops->close(engine->store, status == OK ? err : NULL);
    mem_wipe(&engine->identity, sizeof engine->identity);
    mem_wipe(&engine->shared, sizeof engine->shared);
    mem_wipe(&engine->fingerprint_key, sizeof engine->fingerprint_key);
    (void)pthread_mutex_destroy(&engine->lock);
    (void)pthread_mutex_destroy(&engine->reading);
    (void)pthread_cond_destroy(&engine->work);
    (void)pthread_cond_destroy(&engine->flushable);
    mem_free(engine->mem, engine);
    return status == OK ? closed : status;
}

enum status engine_new(struct store *store, const struct engine_options *options,
    struct engine **ret_engine, struct err *err)
{
    static const struct engine_options none = {0};
    options = options == NULL ? &none : options;
    const struct mem *mem = options->mem == NULL ? &mem_libc : options->mem;
    struct engine *engine = mem_zalloc(mem, 1, sizeof *engine);
    if (engine == NULL) {
        (void)store->ops->close(store, NULL); /* nothing was committed */
        return err_set(err, E_NOMEM, "out of memory for the engine");
    }
    engine->mem = mem;
    engine->store = store;
    if (options->clock == NULL) {
        clock_system(&engine->clock);
    } else {
        engine->clock = *options->clock;
    }
    engine_init_sync(engine);
    store->ops->identity(store, &engine->identity, &engine->shared);
    digest_hmac_key_make(
        slice_of(engine->shared.fingerprint_key, sizeof engine->shared.fingerprint_key),
        &engine->fingerprint_key);
    parked_init(&engine->parked);
    engine->parked_next_ms = engine->parked.next_ms;
    engine->soon_due_ms = INT64_MAX;
    pace_init(&engine->pace);
    gather_init(&engine->gather, store->ops->commit_rows);
    enum status status = cycle_init(&engine->cycle, store, mem, err);
    engine->cycle.keys_max = options->keys_max;
    if (status == OK) {
        status = janitor_init(&engine->janitor, &engine->cycle, &engine->identity, options, err);
    }
    if (status == OK) {
        engine->janitor.backlog = backlog_new(mem);
        engine->cycle.backlog = store->ops->shared ? NULL : engine->janitor.backlog;
        status = engine->janitor.backlog == NULL ? err_set(err, E_NOMEM, "out of memory") : OK;
    }
    if (status == OK) {
        status = janitor_start(&engine->janitor, err);
    }
    if (status == OK) {
        status = soon_start(&engine->soon, &engine->cycle, options->replays_soon, err);
        engine->stats.entries = engine->cycle.chain.seq;
        engine->stats.counts = engine->cycle.counts;
    }
    if (status == OK && store->ops->open_reader != NULL) {
        status = store->ops->open_reader(store, &engine->reader, err);
    }
    if (status == OK && store->ops->listen != NULL) {
        store->ops->listen(store, on_notice, engine);
    }
    if (status == OK) {
        status = engine_start(engine, err);
    }
    if (status != OK) {
        (void)engine_dispose(engine, NULL); /* the first failure is reported */
        return status;
    }
    *ret_engine = engine;
    return OK;
}

enum status engine_free(struct engine *engine, struct err *err)
{
    if (engine == NULL) {
        return OK;
    }
    pthread_mutex_lock(&engine->lock);
    engine->stopping = true;
    pthread_cond_signal(&engine->work);
    pthread_mutex_unlock(&engine->lock);
    (void)pthread_join(engine->engine_thread, NULL);
    (void)pthread_join(engine->flush_thread, NULL);

    struct err closing = {0};
    if (engine->failure.status == OK && janitor_close(&engine->janitor, &closing) != OK) {
        engine->failure = closing;
    }
    if (engine->failure.status == OK && soon_end(&engine->soon, &closing) != OK) {
        engine->failure = closing;
    }
    return engine_dispose(engine, err);
}
