/*
 * impl: the machine of the dispatcher.
 *
 * A job is one record that this process means to do something about:
 *
 *                                  not pending, not unknown: over
 *   due found ──▶ FOUND ──▶ READING ──────────────────────────────────────────────▶ (over)
 *                   ▲          │ pending            │ unknown
 *        offered    │          ▼                    ├─ hold ─▶ (over)
 *           └───────┼───────▶ QUEUED                ├─ again ─▶ SETTLING
 *                   │          │ its turn           └─ ask ──▶ CALLING
 *                   │          ▼
 *                   │       CLAIMING ─ somebody else was faster ─▶ (over)
 *                   │          │ claimed, durably (P6)
 *                   │          ▼
 *                   │       CALLING ─ answered, failed or cut ─▶ SETTLING ─ settled ─▶ (over)
 *                   │                                               │ due again
 *                   └──────────────── RESTING ◀─────────────────────┘
 *
 * Transitions, all through job_move, which refuses any other:
 *   FOUND → READING      read_next     a place to read is free
 *   READING → QUEUED     on_read       it is pending
 *   READING → CALLING    on_read       it is unknown, and the provider can be asked
 *   READING → SETTLING   on_read       it is unknown, and may be sent again
 *   QUEUED → CLAIMING    start         it is its turn
 *   FOUND → CALLING      run_granted   it is granted already (dispatch_run)
 *   CLAIMING → CALLING   on_claimed    it is ours
 *   CLAIMING → SETTLING  drop_stale    a newer version of its source was sealed meanwhile
 *   CALLING → SETTLING   settle        the answer was judged, or nothing could be sent
 *   any but QUEUED → RESTING   job_rest   until its next attempt or question, or after a store that
 *                                      could not be reached; then FOUND again
 *
 * What holds (job_check):
 *   D1  QUEUED ones are in a lane of their target and have no run. FOUND ones are in the list of
 *       those. RESTING ones have a deadline. CLAIMING, CALLING, SETTLING and READING have a run.
 *   D2  a record has one job at most (the table by id). A due that is found meanwhile is noted in
 *       the job, which looks again when it is over: none is lost.
 *   D3  CALLING has a grant of this process, whose fence it settles under, or asks (P6).
 *   D5  one of an order keeps its lane while it rests, so that those after it do not overtake it. A
 *       restart forgets who rested: then the one that is due first goes first.
 *   D4  one that has taken a place of its target (in_flight) gives it back exactly once.
 */
#ifndef ONCE_DISPATCH_IMPL_H
#define ONCE_DISPATCH_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/spool.h"
#include "dispatch/dispatch.h"
#include "dispatch/rate.h"
#include "dispatch/turns.h"
#include "engine/query.h"
#include "net/loop.h"

enum {
    JOBS_MAX = 1 << 17,    /* 20 MiB; more stays in the store until there is room */
    JOB_BUCKETS = 1 << 14, /* by id */
    READS_MAX = 64,        /* records that are read at a time */
    QUESTIONS_MAX = 16,    /* asked at a time: a provider that was down is not overrun */
    RUNS_MAX = 1024,       /* claimed, called or settled at a time */
    CLAIMS_MAX = 256,      /* handed to the engine together */
    TENANT_BUCKETS = 64,   /* of one target, by the tenant's name */
    FOUND_MAX = 1 << 11,   /* dues on their way from the engine's thread */
    CONCURRENCY_USUAL = 64,
    AGAIN_MS = 1000,       /* after a store that could not be reached, or no memory */
    OLDEST_MS = 1000,      /* between two looks for the oldest that waits */
    REST_MS_MAX = 60000,   /* in memory; what is due later is found by its due */
    LEASE_SPARE_MS = 5000, /* that a lease outlasts its call by: time to settle */
    SETTLES_MAX_CUT = 3,   /* tries to settle once the server ends */
    RUN_ARENA_BYTES_MAX = 64 << 20,
    ANSWER_BYTES_USUAL = 1 << 20,
    ANSWER_MEMORY_BYTES = 64 << 10,
    SPOOLED_BYTES_MAX = 1 << 30, /* of all answers at a time */
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

/* What dispatch_run was given, on its way to loop 0. */
struct granted_copy {
    struct dispatch_granted granted;
    struct record record; /* in arena, as the body is */
    struct arena arena;
};

struct job {
    struct turns_item item; /* first; in its lane, or in the list of those found */
    struct net_deadline deadline;
    struct job *chain; /* of its bucket */
    struct dispatch *dispatch;
    struct op_id operation_id;
    struct digest lane_key;
    struct dispatch_gauge *gauge; /* QUEUED and later */
    struct gauge_tenant *tenant;  /* likewise */
    struct turns_lane *lane;      /* it was taken from, and is out of */
    struct dispatching *run;      /* D1 */
    struct granted_copy *granted; /* of an arrival that was; NULL: it is not */
    enum job_state state;
    bool is_ordered;   /* its lane is */
    bool is_due_again; /* D2 */
    bool has_lane;     /* it is in its lane, or out of it */
    int64_t due_ms;    /* of the record, as it was read; 0: not known */
};

/* What a job needs while it is at work. */
struct dispatching {
    struct query read;        /* first, so that the engine's pointer is ours */
    struct engine_call claim; /* or the resolution that sends an unknown one again */
    struct net_task task;     /* the engine answered */
    void (*then)(struct dispatching *run);
    struct job *job;
    struct dispatch_plan *plan; /* held */
    struct arena arena;
    struct mem mem; /* that arena */
    struct record record;
    struct outcall out;
    struct dispatch_call call;
    struct dispatch_granted granted; /* of dispatch_run; done NULL: it was claimed by us */
    bool is_granted;
    bool has_place;   /* of its target: D4 */
    bool is_question; /* it counts among the questions */
    uint64_t ticket;  /* of the breaker */
    uint64_t started_nanos;
    unsigned settles;          /* tries so far */
    struct net_deadline pause; /* until the next try */
    atomic_uint unsettled;     /* calls of the group that the engine has */
};

/* The calls of one tenant to one target. Stays: tenants are as many as the configuration names. */
struct gauge_tenant {
    struct gauge_tenant *next;
    struct digest key;
    struct rate rate; /* loop 0 alone */
};

struct dispatch_gauge {
    struct dispatch_gauge *next;
    struct dispatch *dispatch;
    const struct dispatch_kind *kind;
    char *name;
    /* As the newest plan has them; under the lock. */
    uint32_t concurrency;
    double rate;
    struct breaker_rule rule;
    int64_t total_ms; /* that a call may take */
    /* Loop 0 writes, under the lock. */
    struct breaker breaker;
    uint64_t in_flight;
    uint64_t waiting;
    uint64_t attempts[METRICS_VERDICTS];          /* that are over, by enum outcall_verdict */
    uint64_t questions;                           /* likewise */
    int64_t oldest_due_ms;                        /* of those waiting, a second ago; 0: none */
    uint64_t delays[METRICS_DELAYS];              /* calls that were begun, by metrics_delay */
    uint64_t delay_ms_sum;                        /* of these */
    struct gauge_tenant *tenants[TENANT_BUCKETS]; /* under the lock */
    /* Loop 0 alone. */
    struct turns turns;
};

struct dispatch {
    const struct mem *mem;
    struct door *door;
    struct http_server *server;
    const char *spool_dir;
    const struct vault *vault;
    bool logs;
    struct upstreams *upstreams;
    struct spool_budget spooled;
    pthread_mutex_t lock;                             /* over plans, gauges, arrivals and found */
    struct dispatch_plan *plans[RECORD_DELIVERY + 1]; /* by kind; NULL: none */
    struct dispatch_gauge *gauges;

    /* To loop 0. */
    struct net_task arrival;
    bool is_arriving;     /* it is posted */
    struct job *arrivals; /* offered and granted, newest first */
    struct store_due found[FOUND_MAX];
    size_t found_count;
    struct store_due taking[FOUND_MAX]; /* loop 0's copy */
    bool is_resubscribing;              /* a plan of a new kind came, or a due was lost */
    struct net_task cut;

    /* Loop 0 alone. */
    struct due_subscription subscription;
    bool is_subscribed;
    bool is_ended;
    struct net_deadline pump_deadline;
    struct net_deadline lost_deadline;
    struct net_deadline oldest_deadline; /* gauges are to be brought up to date */
    bool is_oldest_due;                  /* it is set */
    struct turns_item *found_first;      /* FOUND ones, oldest first */
    struct turns_item *found_last;
    struct job **buckets;
    unsigned reads;
    unsigned questions;
    unsigned runs;
    bool is_pumping;

    atomic_bool is_draining;
    atomic_bool is_cut;
    atomic_uint job_count;
    atomic_uint at_work; /* jobs with a run: what dispatch_is_busy reads */
};

/* dispatch.c */
struct net_loop *dispatch_loop(const struct dispatch *dispatch);
/* The plan of a kind, held; NULL: none. */
struct dispatch_plan *dispatch_plan_take(struct dispatch *dispatch, enum record_kind kind);
void dispatch_plan_give(struct dispatch *dispatch, struct dispatch_plan *plan);
/* Subscribe to the dues anew, as one was lost. */
void dispatch_lost(struct dispatch *dispatch);

/* gauge.c */
/* Of a target; under the lock. NULL: out of memory. */
struct dispatch_gauge *gauge_of(
    struct dispatch *dispatch, const struct dispatch_kind *kind, const char *name);
void gauge_free(struct dispatch_gauge *gauge);
/* Whether a call may begin now, of whatever tenant. *ret_wait_ms: when to look again; 0: when
 * something is over. */
bool gauge_admits(struct dispatch_gauge *gauge, int64_t now_ms, int64_t *ret_wait_ms);
/* Under the lock. NULL: out of memory. */
struct gauge_tenant *gauge_tenant(struct dispatch_gauge *gauge, struct slice tenant);
/* A call begins, and ends: D4. */
uint64_t gauge_enter(struct dispatch_gauge *gauge, int64_t now_ms);
enum gauge_end { GAUGE_WELL, GAUGE_FAILED, GAUGE_NOTHING };
/* What a call was judged to be: for the figures alone. */
void gauge_judged(struct dispatch_gauge *gauge, bool is_question, enum outcall_verdict verdict);
void gauge_leave(struct dispatch_gauge *gauge, uint64_t ticket, enum gauge_end end, int64_t now_ms);
/* A call begins this long after its due. */
void gauge_begun(struct dispatch_gauge *gauge, int64_t delay_ms);
/* Find the oldest that waits, of each. Loop 0. */
void gauges_look(struct dispatch *dispatch);

/* job.c */
struct job *job_find(const struct dispatch *dispatch, const struct op_id *id);
/* FOUND, and in no list and no table yet. NULL: out of memory, or too many. Any thread. */
struct job *job_new(struct dispatch *dispatch, const struct op_id *id);
/* Into the table: D2. */
void job_enter(struct job *job);
/* Out of the table, if it is in. */
void job_free(struct job *job);
void job_move(struct job *job, enum job_state state);
void job_found(struct job *job); /* to the list of those that are to be read */
void job_queue(struct job *job); /* to its lane */
void job_rest(struct job *job, int64_t ms);
/* Its work is done: look again if there was a due, else it is gone. */
void job_over(struct job *job);
/* Read, claim and call what can be. */
void dispatch_pump(struct dispatch *dispatch);
/* Which lane a record belongs in. False: it has no target now, or no memory. Any thread. */
bool job_place(struct job *job, const struct dispatch_plan *plan, const struct record *record);

/* run.c */
struct dispatching *run_new(struct job *job);
void run_free(struct dispatching *run);
/* Submit the read. */
void run_read(struct dispatching *run);
/* Make the claim, for the caller to submit. */
void run_claim(struct dispatching *run);
void run_claim_refused(struct dispatching *run, const struct err *err);
/* Call what was granted before: run->granted. */
void run_granted(struct dispatching *run);

#endif
