/*
 * sim_gateway: the gateway in one thread, driven step by step from one seed, in the manner of
 * tests/sim.
 *
 *     clients ──▶ http.c ──▶ the gateway, outcalls, door ──▶ upstream.c ──▶ effects, counted
 *                                    │  ▲
 *                                    ▼  │ after a flush
 *                                  engine.c: cycle_run and the janitor, on the store in memory
 *
 * What the loop knows of sealed keys is wrong now and then (sealed_keys.c), so that it can decide
 * nothing.
 *
 * The real objects of src/gateway, src/outcall and src/door are linked; the files here stand in for
 * what is below them: the server's exchanges and loop (http.c), upstreams (upstream.c), the
 * engine's threads (engine.c), clocks and random bytes (world.c). Between any two steps the process
 * may be killed: its memory goes, requests that have left go on at the upstream, and of the commits
 * that were not flushed any number of the first survive.
 *
 * The upstream is not idempotent: it takes effect for each whole request that it answers with 2xx,
 * and for some that it answers with 5xx where the route does not call that free. One that was cut
 * off may take effect until reconcile.quiet is over. It does what a route's rules suppose, so that
 * any second effect is the gateway's.
 *
 * An operator frees what did not happen, now and then before the gateway's own question about it is
 * answered (operator.c).
 *
 * oracle.c says what must hold, from what the engine committed and what the upstream saw. Not
 * simulated: relayed requests, spool files, floods, principals, windows that end, clocks that are
 * set, several loops, want of memory below the gateway and its door.
 */
#ifndef ONCE_TESTS_SIM_GATEWAY_SIM_GATEWAY_H
#define ONCE_TESTS_SIM_GATEWAY_SIM_GATEWAY_H

#include "canon/digest.h"
#include "engine/cycle.h"
#include "engine/janitor.h"
#include "engine/parked.h"
#include "gateway/gateway.h"
#include "http/upstream.h"
#include "prng.h"

enum {
    SIM_ROUTES = 3,
    SIM_ROUTE_KEYS = 3,
    SIM_KEYS = SIM_ROUTES * SIM_ROUTE_KEYS,
    SIM_PAYLOADS = 3,
    SIM_EXCHANGES_MAX = 8, /* open at a time */
    SIM_BATCHES_MAX = 3,   /* committed and not flushed */
    SIM_BATCH_CALLS = 160,
    SIM_ATTEMPTS_MAX = 1024,
    SIM_ORPHANS_MAX = 256,
    SIM_REQUESTS_MAX = 4096, /* of clients */
    SIM_STEPS = 400,
    SIM_QUIET_MS = 10000, /* of the routes, and their timeout.total */
    SIM_LEASE_MS = 15000, /* likewise */
    SIM_OUTCOME_BYTES_MAX = 96 << 10,
};

#define SIM_CONTENT_TYPE "text/x-outcome" /* of all answers of the upstream */

/* How a route goes about what is unknown: its number. */
enum sim_route { ROUTE_HOLD, ROUTE_RECONCILE, ROUTE_TAKEOVER };

/* What has to happen sometimes, or the simulation proves less than it says. */
#define SIM_SOMETIMES(X)                                                                           \
    X(GRANTS, "grants")                                                                            \
    X(EFFECTS, "effects")                                                                          \
    X(FIRST_ANSWERS, "first answers given whole")                                                  \
    X(REPLAYS, "replays given")                                                                    \
    X(NO_REPLAY, "known keys that had no replay")                                                  \
    X(CONFLICTS, "conflicts refused")                                                              \
    X(IN_PROGRESS, "in progress answered")                                                         \
    X(HELD, "held unknown answered")                                                               \
    X(STILL_HELD, "held unknown after the upstream was asked")                                     \
    X(HELD_AFTER_JOINING, "held unknown after two questions")                                      \
    X(WAITED, "duplicates that waited")                                                            \
    X(LONG, "long answers sealed from their head")                                                 \
    X(GIVEN_IN_PIECES, "answers given piece by piece")                                             \
    X(NOT_SENT, "released: nothing was sent")                                                      \
    X(RELEASED_STATUS, "released by a status")                                                     \
    X(SENT_BROKEN, "broken after bytes left")                                                      \
    X(HEAD_BROKEN, "broken after the head")                                                        \
    X(TIMEOUTS, "upstream timeouts")                                                               \
    X(LATE_EFFECTS, "effects of requests that were cut off")                                       \
    X(LEASES_OVER, "unknown by the janitor")                                                       \
    X(TAKEOVERS, "taken over")                                                                     \
    X(RECONCILED_EXECUTED, "reconciled as executed")                                               \
    X(RECONCILED_RELEASED, "reconciled as not executed")                                           \
    X(OPERATOR_RELEASED, "freed by an operator")                                                   \
    X(OVERTAKEN, "answers about an attempt that was freed meanwhile")                              \
    X(CLIENT_LEFT, "clients left before their answer")                                             \
    X(BODY_CUT, "bodies cut")                                                                      \
    X(FLUSH_FAILED, "flushes failed")                                                              \
    X(KILLED, "kills")                                                                             \
    X(KILLED_UNFLUSHED, "kills with commits that were not flushed")                                \
    X(KILLED_CALLING, "kills with requests at the upstream")                                       \
    X(STARVED, "allocations of the gateway failed")                                                \
    X(RELOADS, "reloads")                                                                          \
    X(STANDSTILLS, "standstills of loop and engine")                                               \
    X(NOT_COVERED, "released: the lease would not cover the call")                                 \
    X(DRAINS, "drains")                                                                            \
    X(CUTS, "cuts while requests are under way")

enum sometimes {
#define SIM_NAME(name, text) SOMETIMES_##name,
    SIM_SOMETIMES(SIM_NAME)
#undef SIM_NAME
        SOMETIMES_COUNT
};

/* How an attempt was settled last, by what was committed. */
enum sim_settled { SETTLED_NOT, SETTLED_SEALED, SETTLED_RELEASED, SETTLED_UNKNOWN };
/* How much of an attempt's request has left. */
enum sim_sent { SENT_NOTHING, SENT_PART, SENT_WHOLE };

/* One grant: what the engine, the upstream and the oracle know of it. */
struct sim_attempt {
    char operation_id[OP_ID_TEXT_BYTES];
    uint64_t fence;
    char request_id[24]; /* of the client's request that it was granted to */
    int key;
    int payload;
    bool is_durable; /* the grant was flushed */
    int64_t granted_ms;
    int64_t lease_ends_ms;
    enum sim_sent sent;
    int effects;
    unsigned status;      /* of the upstream's answer; 0: its head did not come */
    bool is_whole;        /* all of that answer came … */
    bool is_long;         /* … or it is longer than is kept, and its head says all */
    struct digest answer; /* of its body */
    enum sim_settled settled;
    bool settled_durably;
    int64_t unknown_ms; /* when it became so */
    unsigned sealed_status;
    struct digest sealed; /* of the body */
    bool is_retained;     /* it was kept */
};

struct sim_key {
    char name[16];
    enum sim_route route;
    int effects;
    uint64_t asked_fence; /* of the attempt that the upstream was asked about last */
};

/* A request that has left and that nobody waits for. */
struct sim_orphan {
    struct sim_attempt *attempt;
    int64_t until_ms; /* it takes effect before this, or never */
};

struct sim_exchange;
struct sim_call;

struct sim_batch {
    struct engine_call *calls[SIM_BATCH_CALLS];
    size_t count;
};

struct engine {
    struct cycle cycle;
    struct janitor janitor;
    struct store_identity identity;
    struct store_shared shared;
    struct queue queue;
    struct queue ready; /* parked before */
    struct parked parked;
    struct sim_batch batches[SIM_BATCHES_MAX]; /* oldest first */
    size_t batch_count;
    struct err failure;
    bool is_impatient;
};

struct sim {
    uint64_t seed;
    struct prng prng;
    struct prng bytes; /* what rand_bytes gives */
    bool is_traced;
    uint64_t step;
    uint64_t trace; /* hash of all that clients were answered */
    char violation[256];
    uint64_t *sometimes;
    int64_t now_ms;

    /* Outlives a process. */
    struct clock clock;
    struct store *store;
    struct sim_key keys[SIM_KEYS];
    struct sim_attempt attempts[SIM_ATTEMPTS_MAX];
    size_t attempt_count;
    struct sim_orphan orphans[SIM_ORPHANS_MAX];
    size_t orphan_count;
    uint64_t answer_count;
    uint64_t request_count;
    unsigned char held[SIM_REQUESTS_MAX]; /* how often each was decided as held unknown */

    /* The process. */
    bool is_narrow;           /* most requests are for one key, which the upstream is asked about */
    bool is_poor;             /* it runs short of memory now and then */
    uint64_t memory_fails_in; /* one of that many allocations fails; 0: none */
    struct mem mem;           /* what it allocated is counted, and goes with it */
    struct sim_block *blocks;
    struct engine engine;
    struct door *door;
    struct gateway *gateway;
    struct net_loop *loop;
    struct net_task *tasks; /* oldest first */
    struct sim_exchange *exchanges;
    size_t exchange_count;
    struct sim_call *calls; /* with upstreams */
    int dies_in;            /* steps, after the engine has stopped; 0: it goes on */
};

/* The one that runs: what is faked has no other way to it. */
extern struct sim *sim;

bool sim_run(uint64_t seed);

/* ---- world.c ---- */
void sim_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void sim_violate(const char *format, ...) __attribute__((format(printf, 1, 2)));
void sim_note(enum sometimes what);
bool sim_once_in(uint64_t every);
uint64_t sim_below(uint64_t count);
/* Zeroed; outlives the process. To be freed. */
void *sim_alloc(size_t size);

/* ---- http.c ---- */
/* Here and below: one step of one of them; false: there was nothing to do. */
bool clients_arrive(void);
bool clients_step(bool may_leave);
bool clients_wake(void);
bool clients_have_woken(void);
bool tasks_run(void);
void clients_lose(void);

/* ---- upstream.c ---- */
bool upstream_step(void);
void upstream_time(void);
void upstream_lose(void);
bool upstream_has(const struct sim_attempt *attempt); /* a request under way, or an orphan */
bool upstream_is_asked(int key);                      /* a lookup is under way */

/* ---- engine.c ---- */
void engine_open(void);
void engine_close(void);
bool engine_is_idle(void);
bool engine_batch(void);
bool engine_flush(bool fails);

/* ---- operator.c ---- */
bool operator_settle(void);

/* ---- oracle.c ---- */
struct sim_attempt *oracle_attempt(struct slice operation_id, uint64_t fence);
void oracle_committed(const struct engine_call *call);
void oracle_flushed(const struct engine_call *call);
void oracle_sending(const struct sim_attempt *attempt);
void oracle_effect(struct sim_attempt *attempt);

/* What a client got. */
struct sim_answer {
    int key;
    int payload;
    const char *request_id;
    unsigned status;
    char decision[32];
    char effect[16];
    char type[32]; /* the upstream's Content-Type */
    char operation_id[OP_ID_TEXT_BYTES];
    bool is_ours;  /* a problem document of the gateway */
    bool is_whole; /* it did not break off */
    struct slice body;
};
/* Its first byte leaves. */
void oracle_answering(const struct sim_answer *answer);
void oracle_answered(const struct sim_answer *answer);

#endif
