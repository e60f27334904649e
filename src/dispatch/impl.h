/*
 * impl: the machine of the dispatcher.
 *
 * A job is one record that this process is going to act on:
 *
 *                                  not pending, not unknown: over
 *   due found ──▶ FOUND ──▶ READING ──────────────────────────────────────────────▶ (over)
 *                   ▲          │ pending            │ unknown
 *        offered    │          ▼                    ├─ hold ─▶ (over)
 *           └───────┼───────▶ QUEUED                ├─ again, give up ─▶ SETTLING
 *                   │          │ its turn           └─ ask ──▶ CALLING
 *   about to be     │          ▼
 *   enqueued ───────┼─────▶ CLAIMING ─ somebody else was faster, or it is a duplicate ─▶ (over)
 *                   │          │     ─ the one before it in its lane is not over ─▶ RESTING
 *                   │          │ claimed, durably (P6)
 *                   │          ▼
 *                   │       CALLING ─ answered, failed or cut ─▶ SETTLING ─ settled ─▶ (over)
 *                   │                                               │ due again
 *                   └──────────────── RESTING ◀─────────────────────┘
 *
 * Transitions, all through job_move, which refuses any other:
 *   FOUND → READING      next_found    a place to read is free
 *   READING → QUEUED     on_read       it is pending
 *   FOUND → QUEUED       take_offered  its pending record was just made, and offered
 *   READING → CALLING    on_read       it is unknown, and the provider can be asked
 *   READING → SETTLING   on_read       it is unknown, and is sent again or given up
 *   QUEUED → CLAIMING    next_turn     it is its turn
 *   FOUND → CLAIMING     job_start     it is claimed in the commit that enqueues it
 *   FOUND → CALLING      run_granted   it is granted already (dispatch_run)
 *   CLAIMING → CALLING   on_claimed    it is ours
 *   CLAIMING → SETTLING  drop_stale    a newer version of its source was sealed meanwhile
 *   CALLING → SETTLING   settle        the answer was judged, or nothing could be sent
 *   READING, CLAIMING, CALLING, SETTLING → RESTING   job_rest   until its next attempt or question,
 *                                      or after a store that could not be reached
 *   RESTING → FOUND      job_found     its pause is over, or its due was found meanwhile (DJ2)
 *
 * What holds (job_check):
 *   DJ1 a QUEUED job is in a lane of its target and has no run. A FOUND job is in the list of found
 *       jobs. A RESTING job has a deadline. CLAIMING, CALLING, SETTLING and READING have a run.
 *   DJ2 a record has at most one job (the table by id). If its due is found meanwhile, the job
 *       notes it and reads the record again when it is over: no due is lost. A RESTING one reads it
 *       at once, because its pause may have been cut short; a QUEUED one only takes the new time. A
 *       job from job_start is in the table when its record has an id: once it is enqueued durably
 *       (on_claimed_with).
 *   DJ3 CALLING has a grant of this process and settles under its fence, or it is a question (P6).
 *       Nothing is sent when the lease no longer covers the call (P1): run.c, check_lease.
 *   DJ5 an ordered job keeps its lane while it rests, so that later jobs do not overtake it. The
 *       order itself is in the store (core/lane.h): a job is claimed only when the record before it
 *       is over, so that it holds across restarts and between processes.
 *   DJ4 a job that has taken a place of its target (in_flight) gives it back exactly once.
 *   DJ6 what changes a record without a claim (run.c, change) names the version that it was decided
 *       on: a record that was changed meanwhile is read and decided again.
 *
 * Threads. Every loop of the server runs the machine: a loop that has free places takes the next
 * jobs and does all their work, from the claim to the settling, so that nothing passes from thread
 * to thread. What the loops share is behind one lock: the table, lists and lanes of jobs, the
 * places, breakers and rates of the targets. So the limits hold for the process as a whole. The
 * lock is held for the choice of a job and never during a call to the engine, the door, an upstream
 * or a kind (except that on_found runs under the janitor's).
 *   - A run, and what the job with it has found out (gauge, tenant, lane, after), belongs to the
 *     loop of the run. Its state and is_due_again change under the lock.
 *   - A job without a run is used under the lock. A RESTING one has its deadline on the loop of its
 *     last run (worker).
 */
#ifndef ONCE_DISPATCH_IMPL_H
#define ONCE_DISPATCH_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/spool.h"
#include "dispatch/dispatch.h"
#include "dispatch/rate.h"
#include "dispatch/turns.h"
#include "engine/query.h"
#include "net/loop.h"
#include "outcall/quiet.h"

enum {
    JOBS_MAX = 1 << 17,                /* 20 MiB; any more stay in the store until there is room */
    JOBS_FOUND_MAX = JOBS_MAX / 4 * 3, /* of them found by their due: the others are for new jobs,
                                          so that a backlog does not fill all places */
    LANE_OFFERS_MAX = JOBS_MAX / 16,   /* that wait in one lane, of the other places: a new job
                                          beyond this is found by its due later, and leaves its
                                          place to a different lane */
    JOB_BUCKETS = 1 << 14,             /* by id */
    READS_MAX = 64,                    /* records read at a time */
    QUESTIONS_MAX = 16,                /* at a time: a provider that was down is not overrun */
    RUNS_MAX = 1024,                   /* claimed, called or settled at a time */
    STARTS_MAX = 256,                  /* enqueues of one loop that are held back for a place … */
    START_MS = 10,                     /* … for at most this long, about as long as a flush … */
    START_QUEUE = 2,                   /* … if calls usually take no longer, and at most this many
                                          times as many as it has places wait */
    RUNS_STARTED_MAX = RUNS_MAX / 2,   /* with more, records wait for their turn: no target may keep
                                          the others from a run */
    RUNS_AHEAD_MAX = 8,                /* a loop with this many runs more than a different one hands
                                          it the next: fewer would cost wake-ups under any load */
    TENANT_BUCKETS = 64,               /* of one target, by the tenant's name */
    FOUND_MAX = 1 << 11,               /* dues in transit from the engine's thread */
    WAKES_MAX = 64,                    /* jobs of one loop whose rest is about to end early; others
                                          rest until their time */
    CONCURRENCY_USUAL = 64,
    CALL_MEAN_OF = 16,     /* calls of a moving mean */
    ORDER_MS = 200,        /* until a job asks again whether the one before it is over, when that is
                              with a different process */
    AGAIN_MS = 1000,       /* after the store could not be reached, or memory was short */
    OLDEST_MS = 1000,      /* between two searches for the oldest waiting call */
    REST_MS_MAX = 60000,   /* in memory; a record that is due later is found by its due */
    LEASE_SPARE_MS = 5000, /* by which a lease outlasts its call: time to settle */
    SETTLES_MAX_CUT = 3,   /* tries to settle while the server is ending */
    STARVED_MAX = 2,       /* tries to settle without memory for the calls */
    RACES_MAX = 64,        /* lost for the second record of a group; then it is left out */
    RUN_ARENA_BYTES_MAX = 64 << 20,
    ANSWER_BYTES_USUAL = 1 << 20,
    ANSWER_MEMORY_BYTES = 64 << 10,
    SPOOLED_BYTES_MAX = 1 << 30, /* of all answers together */
};

enum job_state {
    JOB_FOUND,
    JOB_READING,
    JOB_QUEUED,
    JOB_CLAIMING,
    JOB_CALLING,
    JOB_SETTLING,
    JOB_RESTING,
    JOB_STATES,
};

struct dispatching;

struct job {
    struct turns_item item; /* first; in its lane, or in the list of found jobs */
    struct net_deadline deadline;
    struct job *chain; /* of its bucket */
    struct dispatch *dispatch;
    struct dispatch_worker *worker; /* of its run, or its last one; NULL: it had none */
    struct op_id operation_id;
    struct op_id after; /* the record that must be over before; if has_after */
    struct digest lane_key;
    struct dispatch_gauge *gauge; /* QUEUED and later */
    struct gauge_tenant *tenant;  /* likewise */
    struct turns_lane *lane;      /* the lane it was taken from, while it is out */
    struct dispatching *run;      /* DJ1 */
    enum job_state state;
    bool is_ordered;   /* its lane is ordered */
    bool has_after;    /* it is not known yet whether `after` is over */
    bool is_due_again; /* DJ2 */
    bool has_lane;     /* it is in its lane, or taken from it */
    int64_t due_ms;    /* of the record, when it was read; 0: not known */
};

/* What a job needs while it is active. */
struct dispatching {
    struct query read;
    struct door_call claim; /* or the resolution that makes an unknown record pending again */
    struct net_task task;   /* the engine answered */
    void (*then)(struct dispatching *run);
    struct job *job;
    struct dispatch_worker *worker; /* whose loop it belongs to */
    struct dispatch_plan *plan;     /* held */
    struct arena arena;
    struct mem mem; /* that arena */
    struct record record;
    struct outcall out;
    struct dispatch_sending sending;
    struct dispatch_call call;
    struct dispatch_granted granted; /* from dispatch_run; done NULL: we claimed it ourselves */
    struct door_grant grant;         /* CALLING, and not a question: when it was granted */
    bool has_plain;                  /* call.body was given to us, and is not sealed */
    bool has_place;                  /* in its target: DJ4 */
    bool is_question;                /* it is counted as a question */
    uint64_t ticket;                 /* of the breaker */
    uint64_t started_nanos;
    uint64_t called_nanos;     /* when the call began … */
    int64_t delay_ms;          /* … and how long after its due time; -1: it did not wait */
    unsigned settles;          /* tries to settle so far */
    unsigned races;            /* of them: lost for call.other */
    struct net_deadline pause; /* until the next try */
    struct door_group group;   /* the calls that settle it, on their way to the engine … */
    atomic_uint unsettled;     /* … and how many are not answered yet */
};

/* Until when, by the boot clock, a sender with a queue may begin a call of at most total_ms: it
 * must end within the lease, begin before other processes may consider this one gone, and not
 * begin after the call's own time (0: none). */
static inline int64_t run_sends_until_ms(
    const struct door_grant *grant, int64_t total_ms, int64_t send_until_ms)
{
    int64_t left_ms = grant->lease_expires_ms - grant->now_ms - total_ms;
    left_ms = left_ms < LIMIT_HOLDER_GONE_MS ? left_ms : LIMIT_HOLDER_GONE_MS; /* S12 */
    int64_t own_ms = send_until_ms > 0 ? send_until_ms - grant->now_ms : left_ms;
    return grant->boot_ms + (own_ms < left_ms ? own_ms : left_ms);
}

/* The calls of one tenant to one target. Never freed before the gauge: there are only as many
 * tenants as the configuration names. */
struct gauge_tenant {
    struct gauge_tenant *next;
    struct digest key;
    struct rate rate; /* under the lock */
};

/* Everything under the lock, except what never changes. */
struct dispatch_gauge {
    struct dispatch_gauge *next;
    struct dispatch *dispatch;
    const struct dispatch_kind *kind;
    char *name;
    /* From the newest plan. */
    uint32_t concurrency;
    double rate;
    struct breaker_rule rule;
    int64_t total_ms; /* the longest a call may take */

    struct breaker breaker;
    struct turns turns; /* the waiting jobs */
    uint64_t in_flight;
    uint64_t attempts[METRICS_VERDICTS]; /* finished, by enum outcall_verdict */
    uint64_t questions;                  /* likewise */
    int64_t oldest_due_ms;               /* of the waiting calls, up to a second ago; 0: none */
    uint64_t delays[METRICS_DELAYS];     /* calls begun, by metrics_delay */
    uint64_t delay_ms_sum;               /* their sum */
    uint64_t calls[METRICS_DELAYS];      /* calls ended, by how long they took */
    uint64_t call_ms_sum;                /* their sum */
    int64_t call_ms_mean;                /* moving mean of the latest, times CALL_MEAN_OF */
    struct gauge_tenant *tenants[TENANT_BUCKETS];
};

/* The dispatcher on one loop. Only that loop uses it, except for `runs`. */
struct dispatch_worker {
    struct dispatch *dispatch;
    unsigned number;                     /* of its loop, and of that loop's slot at the door */
    unsigned runs;                       /* that belong to it; under the lock */
    bool is_pumping;                     /* a call may end before it has begun */
    struct dispatching *spare;           /* memory for its next run; NULL: none */
    struct dispatch_start *starts;       /* held back for a place, oldest first */
    unsigned start_count;                /* of them; each counts in at_work */
    struct net_deadline start_deadline;  /* of the oldest */
    struct net_deadline pump_deadline;   /* a rate or a breaker lets the next one begin */
    struct net_deadline oldest_deadline; /* when to update the gauges */
    struct net_task cut;
    struct net_task wake;          /* end the rest of … */
    struct op_id wakes[WAKES_MAX]; /* … these, which belong to its loop; under the lock */
    size_t wake_count;
};

struct dispatch {
    const struct mem *mem;
    struct door *door;
    struct http_server *server;
    const char *spool_dir;
    struct clock clock; /* for the time that the machine slept */
    const struct vault *vault;
    atomic_bool logs;
    struct upstreams *upstreams;
    struct spool_budget spooled;
    struct dispatch_worker *workers; /* of each loop */
    unsigned worker_count;

    pthread_mutex_t lock;                             /* guards the following */
    struct dispatch_plan *plans[RECORD_DELIVERY + 1]; /* by kind; NULL: none */
    struct dispatch_gauge *gauges;
    struct dispatch_gauge *next_gauge; /* whose turn it is; NULL: the first's */
    struct job **buckets;              /* the table by id */
    struct turns_item *found_first;    /* FOUND jobs, oldest first */
    struct turns_item *found_last;
    unsigned reads;
    unsigned questions;
    struct quiet_watch watch; /* of the store's time, for questions */
    unsigned runs;
    bool is_oldest_due; /* a worker has set its oldest_deadline */
    /* To loop 0. */
    struct net_task arrival;
    bool is_arriving;     /* arrival is posted */
    struct job *arrivals; /* offered by threads that are no loops, newest first */
    struct store_due found[FOUND_MAX];
    size_t found_count;
    bool is_resubscribing; /* a plan of a new kind arrived */
    bool is_lost;          /* a due was found, and could not be kept */

    /* Loop 0 only. */
    struct store_due taking[FOUND_MAX]; /* its copy of found */
    struct due_subscription subscription;
    bool is_subscribed;
    bool is_ended;
    struct net_deadline lost_deadline;

    atomic_bool is_draining;
    atomic_bool is_cut;
    atomic_uint job_count;
    atomic_uint at_work; /* jobs with a run; read by dispatch_is_busy */
};

static inline void dispatch_lock(struct dispatch *dispatch)
{
    (void)pthread_mutex_lock(&dispatch->lock);
}

static inline void dispatch_unlock(struct dispatch *dispatch)
{
    (void)pthread_mutex_unlock(&dispatch->lock);
}

/* dispatch.c */
struct net_loop *worker_loop(const struct dispatch_worker *worker);
/* The plan of a kind, held; NULL: none. Takes the lock, as dispatch_plan_drop does. */
struct dispatch_plan *dispatch_plan_take(struct dispatch *dispatch, enum record_kind kind);
/* Subscribe to the dues again, because one was lost. Under the lock. */
void dispatch_lost(struct dispatch *dispatch);

/* gauge.c; all under the lock */
/* The gauge of a target. NULL: out of memory. */
struct dispatch_gauge *gauge_of(
    struct dispatch *dispatch, const struct dispatch_kind *kind, const char *name);
void gauge_free(struct dispatch_gauge *gauge);
/* NULL: out of memory. */
struct gauge_tenant *gauge_tenant(struct dispatch_gauge *gauge, struct slice tenant);
/* Whether a call of any tenant may begin now. *ret_wait_ms: when to try again; 0: when a call
 * ends. */
bool gauge_admits(struct dispatch_gauge *gauge, int64_t now_ms, int64_t *ret_wait_ms);
/* A call begins, and ends: DJ4. */
uint64_t gauge_enter(struct dispatch_gauge *gauge, int64_t now_ms);
enum gauge_end { GAUGE_WELL, GAUGE_FAILED, GAUGE_NOTHING };
void gauge_leave(struct dispatch_gauge *gauge, uint64_t ticket, enum gauge_end end, int64_t now_ms);
/* Count a call's verdict: for the metrics only. */
void gauge_judged(struct dispatch_gauge *gauge, bool is_question, enum outcall_verdict verdict);
/* A call has ended, this long after it began. */
void gauge_ended(struct dispatch_gauge *gauge, int64_t took_ms);
/* A call begins this long after its due time. */
void gauge_begun(struct dispatch_gauge *gauge, int64_t delay_ms);
/* Find the oldest waiting call of each gauge. */
void gauges_measure(struct dispatch *dispatch);

/* job.c; under the lock, unless stated otherwise */
struct job *job_find(const struct dispatch *dispatch, const struct op_id *id);
/* A FOUND job, not yet in any list or table. NULL: out of memory, or too many jobs. With or without
 * the lock. */
struct job *job_new(struct dispatch *dispatch, const struct op_id *id);
/* Free a job that is in no list or table. With or without the lock. */
void job_drop(struct job *job);
/* Add it to the table: DJ2. */
void job_enter(struct job *job);
/* Take it out of the table, and free it. */
void job_free(struct job *job);
void job_move(struct job *job, enum job_state state);
void job_found(struct job *job); /* to the list of jobs to be read */
void job_queue(struct job *job); /* to its lane; frees it if there is no memory */
/* Whether its lane has room for one that was just offered. */
bool job_fits(const struct job *job);
void job_rest(struct job *job, int64_t ms); /* on the loop of its worker */
void job_leave_lane(struct job *job);       /* let the jobs after it go first */
/* The job is finished: read the record again if a due was noted, else free the job. */
void job_over(struct job *job);
/* Find the target of a record, and no lane: for one that does not wait for a turn. False: as
 * job_place. Takes the lock. */
bool job_find_target(
    struct job *job, const struct dispatch_plan *plan, const struct record *record);
/* Find the lane of a record. False: it has no target now, or no memory. Takes the lock. */
bool job_place(struct job *job, const struct dispatch_plan *plan, const struct record *record);
/* Whether a record may be claimed with its enqueue. */
enum start_when {
    START_NOW,   /* nothing waits for its target, and a call may begin */
    START_SOON,  /* it may when some short calls have ended */
    START_NEVER, /* it waits for its turn like any other */
};
/* Takes the lock. */
enum start_when job_start_when(
    struct dispatch_worker *worker, const struct dispatch_target *target);
/* Take a place of its target, if that is possible now, for a job with a target that needs no turn.
 * False: it is not. Takes the lock. */
bool job_start(struct job *job, struct dispatching *run, struct dispatch_worker *worker);
/* Start the enqueues that were held back, as far as there are places, and those that have waited
 * long enough. On the worker's loop, without the lock. */
void dispatch_starts(struct dispatch_worker *worker);
/* Read, claim and call whatever is possible now. On the worker's loop, without the lock. */
void dispatch_pump(struct dispatch_worker *worker);

/* run.c; on the worker's loop, without the lock, unless stated otherwise */
/* A run of the worker that has no job yet. NULL: out of memory. */
struct dispatching *run_new(struct dispatch_worker *worker);
/* A run that was not used. */
void run_drop(struct dispatching *run);
/* Give it to the job, and to this worker, from now on. Under the lock. */
void run_enter(struct dispatching *run, struct job *job, struct dispatch_worker *worker);
/* Read or claim the record, by the state of the job. */
void run_begin(struct dispatching *run);
/* Call run_begin on the loop of the run's worker. */
void run_hand(struct dispatching *run);
/* Call a record that was granted before: run->granted, run->record. */
void run_granted(struct dispatching *run);
/* The claim for dispatch_claim_with. */
struct engine_call *run_claim_with(struct dispatching *run);
/* Keep a body that is not sealed. */
enum status run_body(struct dispatching *run, struct slice plain) MUST_CHECK;

#endif
