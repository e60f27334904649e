/*
 * sim: the whole engine in one process, driven step by step from one seed.
 *
 *     clients, operator, rogue --queue--> janitor + cycle_run --> committed, not flushed
 *          ^                                                          |
 *          +---------------- answers <------------- flush ------------+
 *
 * Between any two arrows the process may be killed or the power may go; the clocks step, jump,
 * freeze and start over; the store refuses, or does not say whether it did. Nothing is random but
 * what the seed says, so that the same seed is the same run, and a failing seed can be replayed.
 *
 *   world.c    time, batches and flushes
 *   process.c  the process, its store and its crashes
 *   actors.c   clients with their provider, an operator, a rogue
 *   work.c     workers that perform commands and effects, in dependent groups
 *   oracle.c   what must hold, stated independently of the engine: the provider counts effects, and
 *              every later answer is compared with what was answered before
 *   rot.c      bits that flip on disk
 *   main.c     the program (seeds.h)
 */
#ifndef ONCE_TESTS_SIM_SIM_H
#define ONCE_TESTS_SIM_SIM_H

#include "engine/cycle.h"
#include "engine/janitor.h"
#include "engine/query.h"
#include "prng.h"
#include "store/fault.h"
#include "store/mem.h"
#include "store/shaky.h"

enum {
    SIM_KEYS = 6, /* two tenants with the same three keys */
    SIM_ORDERS = 3,
    SIM_WORKERS = 4,       /* more than orders, so that they meet */
    SIM_CLIENTS = 6,       /* enough to meet on every key */
    SIM_BATCHES_MAX = 3,   /* committed and not flushed, as the engine has it */
    SIM_BATCH_CALLS = 160, /* ours and the janitor's */
    SIM_CALLS_MAX = 8000,  /* of one run */
    SIM_OPERATIONS_MAX = 2048,
    SIM_OUTCOMES_MAX = 32, /* different seals sent for one operation */
    SIM_STEPS = 260,       /* long enough for every counter in a few hundred seeds */
};

/* What has to happen sometimes, or the simulation proves less than it says. */
#define SIM_SOMETIMES(X)                                                                           \
    X(GRANTS, "grants")                                                                            \
    X(REPLAYS, "replays")                                                                          \
    X(CONFLICTS, "conflicts")                                                                      \
    X(IN_PROGRESS, "answered in progress")                                                         \
    X(HELD, "held unknown")                                                                        \
    X(UNKNOWN_SAID, "unknown said by the holder")                                                  \
    X(UNKNOWN_LEASE, "unknown by the janitor")                                                     \
    X(TAKEOVERS, "takeovers")                                                                      \
    X(RELEASES, "released and granted again")                                                      \
    X(RETRIES, "failed and granted again")                                                         \
    X(EXPIRIES, "windows over and granted anew")                                                   \
    X(LATE_SEAL, "late seals accepted")                                                            \
    X(LATE_SEAL_REFUSED, "late seals refused after a takeover")                                    \
    X(SEAL_REPEATED, "seals repeated")                                                             \
    X(OTHER_SEAL_REFUSED, "second, different seals refused")                                       \
    X(RENEWED, "leases renewed")                                                                   \
    X(RESOLVED_EXECUTED, "resolved as executed")                                                   \
    X(RESOLVED_RELEASED, "resolved as not executed")                                               \
    X(RESOLVE_STALE, "resolved too late: granted again meanwhile")                                 \
    X(ROGUE_REFUSED, "wrong fences refused")                                                       \
    X(TENANT_REFUSED, "wrong tenants refused")                                                     \
    X(PARKED, "waited for a seal")                                                                 \
    X(REPLAY_IN_BATCH, "replayed in the batch that sealed")                                        \
    X(KILLED_COMMITTED, "killed after commit, before flush")                                       \
    X(KILLED_FLUSHED, "killed after flush, before the answer")                                     \
    X(KILLED_ANSWERING, "killed between two answers")                                              \
    X(KILLED_RECOVERING, "killed while recovering")                                                \
    X(POWER_LOST, "power losses")                                                                  \
    X(COMMITS_LOST, "unflushed commits lost")                                                      \
    X(WRITES_TORN, "unflushed writes lost or torn")                                                \
    X(ROT_FOUND, "rotten bytes found")                                                             \
    X(COMMITS_KEPT, "unflushed commits kept")                                                      \
    X(GRANT_UNTOLD, "grants that were not answered")                                               \
    X(COMMIT_UNAVAILABLE, "commits unavailable")                                                   \
    X(COMMIT_UNKNOWN_NOT, "commits unknown, not applied")                                          \
    X(COMMIT_UNKNOWN_DONE, "commits unknown, applied")                                             \
    X(FLUSH_FAILED, "flushes failed")                                                              \
    X(PREPARE_FAILED, "prepares failed")                                                           \
    X(COMMIT_STALE, "commits stale, decided again")                                                \
    X(CLOCK_BACK, "clock steps back")                                                              \
    X(CLOCK_JUMP, "clock jumps ahead")                                                             \
    X(CLOCK_HELD, "expiry paused by a jump")                                                       \
    X(CLOCK_FROZEN, "clock freezes")                                                               \
    X(VERSIONS_SEALED, "newer versions of a source sealed")                                        \
    X(VERSIONS_STALE, "older versions of a source refused")                                        \
    X(CLAIMS, "work claimed")                                                                      \
    X(WORK_EFFECTS, "effects of work")                                                             \
    X(DEAD, "work given up")                                                                       \
    X(GROUPS, "dependent groups")                                                                  \
    X(GROUPS_REFUSED, "dependent groups refused")                                                  \
    X(EFFECTS, "effects")

enum sometimes {
#define SIM_NAME(name, text) SOMETIMES_##name,
    SIM_SOMETIMES(SIM_NAME)
#undef SIM_NAME
        SOMETIMES_COUNT
};

/* Who sent a call. Clients are 0 and up. */
enum { FROM_OPERATOR = -1, FROM_ROGUE = -2, FROM_NOBODY = -3, FROM_WORKER = -4 };

/* An order is a command and the effect that it waits for (work.c). */
enum sim_part { PART_COMMAND, PART_EFFECT, PART_COUNT };

enum call_fate { FATE_OPEN = 0, FATE_ANSWERED, FATE_REFUSED, FATE_LOST };

/* One call on its way through the engine. */
struct sim_call {
    union {
        struct engine_call call;
        struct query query; /* begins with its call */
    };
    struct arena arena;
    struct sim_call *next;
    uint32_t id;        /* in its trace, so that evidence can be counted */
    int from;           /* a client, or FROM_… */
    int key;            /* index into sim.keys */
    int payload;        /* which of the key's payloads a begin has */
    uint32_t outcome;   /* number of the outcome that a seal or resolve gives */
    bool wrong_tenant;  /* the rogue's: of a different tenant */
    int64_t commit_ms;  /* engine time when it was decided */
    int worker;         /* a worker's: which … */
    int order;          /* … of which order … */
    enum sim_part part; /* … and what of it */
    char trace[32];
    char payload_text[48];
    char outcome_text[160];
    char outcome_meta[16];
    int source;       /* which of the tenant's sources a begin came from; -1: none */
    uint64_t version; /* and which version of it */
    char source_text[8];
    char version_text[24];
};

enum { SIM_TENANTS = 2, SIM_SOURCES = 2 };

/* What the oracle knows of one source (OPS-7). */
struct sim_source {
    uint64_t told;       /* the newest version whose seal was answered … */
    int64_t told_end_ms; /* … which is remembered at least until this engine time */
    uint64_t any;        /* the newest whose seal was committed, answered or not … */
    int64_t any_end_ms;  /* … and the earliest that it can be forgotten */
    uint64_t ever;       /* the newest that was ever committed */
};

/* What the oracle knows of one operation. */
struct sim_operation {
    struct op_id id;
    int key;
    int payload;        /* of the first grant; -1: not known */
    uint64_t fence;     /* of the latest grant that was answered */
    uint64_t fence_any; /* of the latest grant that was committed, answered or not */
    int64_t lease_ms;   /* engine time until which the holder of that grant has it */
    bool may_release;   /* since then something that frees it was committed */
    bool may_unknown;   /* since then the holder's own "unknown" was committed */
    bool may_retry;     /* since then a failure that may be tried again was committed */
    int64_t over_ms;    /* not expired before this engine time; INT64_MAX while not settled */
    bool sealed;        /* the seal was answered */
    uint32_t outcome;   /* which one it was */
    enum record_status status;
    uint32_t sent[SIM_OUTCOMES_MAX]; /* outcomes sent for it */
    size_t sent_count;
    bool dead;             /* work: that it was given up was answered */
    bool taken_up;         /* work: it was taken up again, answered or not */
    int effects;           /* times the provider did it */
    uint64_t effect_fence; /* with which grant, the last time */
};

struct sim_key {
    struct record_key key;
    struct policy policy;
    struct sim_operation *told; /* whose grant was answered last; NULL: none */
};

enum client_state {
    CLIENT_IDLE,
    CLIENT_BEGIN,   /* is to send, or has sent, its begin */
    CLIENT_HOLDS,   /* has a grant, and something to do at wake_ms */
    CLIENT_SETTLES, /* is to send, or has sent, how it ended */
};

/* How the execution of a grant goes. */
enum client_plan {
    PLAN_EXECUTE,
    PLAN_FAIL,        /* the provider refuses for good: no effect */
    PLAN_NOT_STARTED, /* it could not begin: release */
    PLAN_LOSE_ANSWER, /* the effect happens, the answer is lost, the client says so */
    PLAN_DIE_AFTER,   /* the effect happens, then the client dies */
    PLAN_DIE_BEFORE,  /* the client dies at once */
    PLAN_PAUSE,       /* past its lease, then executes and seals late */
    PLAN_RENEW,       /* keeps its lease alive for a while */
    PLAN_COUNT,
};

struct sim_client {
    enum client_state state;
    enum client_plan plan;
    int key;
    int payload;
    int source;       /* of its job; -1: none */
    uint64_t version; /* of that source */
    struct op_id operation_id;
    uint64_t fence;
    enum request_kind settles_with;
    enum record_status settles_as;
    uint32_t outcome;
    int renewals;             /* left to do */
    int64_t lease_ms;         /* engine time of its end, as it was answered */
    int64_t wake_ms;          /* true time of its next move */
    struct sim_call *waiting; /* for this call's answer */
};

struct sim_order {
    struct record_key keys[PART_COUNT];
    struct op_id ids[PART_COUNT]; /* as answered last; zero: never answered */
};

/* Does one thing at a time: asks something, or holds a claim. */
struct sim_worker {
    int order;
    enum sim_part part;
    struct op_id id; /* of what it holds … */
    uint64_t fence;  /* … with this grant; 0: nothing */
    bool acted;      /* the effect happened */
    bool settling;   /* it has said how it ended */
    int waiting;     /* calls on their way */
};

struct sim_batch {
    struct engine_call *calls[SIM_BATCH_CALLS];
    size_t count;
};

struct sim {
    uint64_t seed;
    struct prng prng;
    bool verbose;
    const char *directory; /* where journals may be made; NULL: nowhere */
    bool ending;           /* no new work, no more trouble: everything has to come to an end */
    uint64_t step;
    uint64_t trace; /* hash of everything that was answered */
    char violation[256];
    uint64_t *sometimes; /* counters over all seeds */

    /* Time. */
    int64_t true_ms;         /* what time it really is */
    int64_t wall_off_ms;     /* the wall clock's error */
    int64_t boot_from_ms;    /* true time when the machine started */
    int64_t frozen_until_ms; /* the wall clock stands still until then */
    int64_t frozen_wall_ms;  /* and shows this */
    bool calm;               /* no trouble with clocks in this run */
    struct clock clock;
    int64_t drift_max_ms;  /* the most that engine time may be ahead of true time now … */
    int64_t drift_from_ms; /* … counted from this true time */
    int64_t engine_ms;     /* the latest engine time that any process had */
    int64_t acked_ms;      /* latest engine time that an answer rests on */

    /* The process. */
    bool on_journal;             /* the real journal on a shaky disk, or else the store in memory */
    struct store *memory;        /* that one, which outlives its processes … */
    size_t memory_kept;          /* commits that were not flushed and survived the last crash */
    struct shaky shaky;          /* … or the disk, which does */
    char path[128];              /* of the journal */
    struct store *store;         /* fails when a fault is armed; closing it closes the journal */
    enum sometimes commit_fault; /* what the fault that is armed for a commit counts as */
    struct cycle cycle;
    struct janitor janitor;
    struct store_identity identity;
    bool up;                                   /* a process runs */
    struct sim_batch batches[SIM_BATCHES_MAX]; /* committed, not flushed, oldest first */
    size_t batch_count;
    struct sim_call *queue; /* not yet collected, oldest first */
    struct sim_call *parked;

    /* The world. */
    struct sim_key keys[SIM_KEYS];
    char key_names[SIM_KEYS][16];
    bool sourced; /* jobs come from sources that have versions */
    struct sim_client clients[SIM_CLIENTS];
    struct sim_order orders[SIM_ORDERS];
    struct sim_worker workers[SIM_WORKERS];
    struct sim_call *operator_call; /* at most one of its calls is on its way */

    /* The oracle. */
    struct sim_operation operations[SIM_OPERATIONS_MAX];
    size_t operation_count;
    unsigned char fates[SIM_CALLS_MAX];   /* enum call_fate by call id */
    unsigned char entries[SIM_CALLS_MAX]; /* evidence entries by call id */
    uint32_t call_count;
    uint32_t outcome_count;
    uint64_t fence_told; /* the highest that was answered */
    struct sim_source sources[SIM_TENANTS][SIM_SOURCES];
};

/* One run. False: sim->violation says what went wrong. Caller's memory, zeroed but for
 * sometimes, directory and verbose. */
bool sim_run(struct sim *sim, uint64_t seed);

/* ---- world.c ---- */
void sim_say(const struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_violate(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_note(struct sim *sim, enum sometimes what);
void sim_submit(struct sim *sim, struct sim_call *call);
struct sim_call *sim_pop(struct sim_call **queue);
/* It will never be answered. */
void sim_lose(struct sim *sim, struct sim_call *call);
int64_t sim_draw_ms(struct sim *sim, int64_t max_ms);
/* The janitor's own calls have a done function; ours do not. */
static inline bool sim_is_ours(const struct engine_call *call)
{
    return call->done == NULL;
}

/* ---- process.c ---- */
/* The store's time; the latest that any process had when the disk is dead. */
int64_t process_time_ms(struct sim *sim);
void process_first(struct sim *sim);
void process_last(struct sim *sim);
/* Ends the process without closing, loses what a crash loses, and starts it again, perhaps after
 * several attempts. */
void process_crash(struct sim *sim, bool power);

/* ---- rot.c ---- */
/* Flips bits of the journal that the run left, and checks that each is found. */
void rot_check(struct sim *sim);

/* ---- actors.c ---- */
struct sim_call *actor_call(struct sim *sim, int from, int key, enum request_kind kind);
void actors_init(struct sim *sim);
void actors_turn(struct sim *sim);
/* The answer came; nothing happened; or nobody will ever know. */
void actors_answered(struct sim *sim, struct sim_call *call);
void actors_refused(struct sim *sim, struct sim_call *call);
void actors_lost(struct sim *sim, struct sim_call *call);
bool actors_idle(const struct sim *sim);
/* The text of outcome `number`; the length is 0 for some. */
size_t actor_outcome_text(uint32_t number, char *ret_text, size_t size);

/* ---- work.c ---- */
void work_init(struct sim *sim);
void work_turn(struct sim *sim);
void work_committed(struct sim *sim, const struct sim_call *call);
void work_answered(struct sim *sim, const struct sim_call *call);
void work_lost(struct sim *sim, const struct sim_call *call);
bool work_idle(const struct sim *sim);

/* ---- oracle.c ---- */
struct sim_operation *oracle_operation(struct sim *sim, const struct op_id *id, int key);
void oracle_sent(struct sim *sim, const struct op_id *id, int key, uint32_t outcome);
/* The call was committed, maybe durably. */
void oracle_committed(struct sim *sim, const struct sim_call *call);
void oracle_answered(struct sim *sim, const struct sim_call *call);
void oracle_effect(struct sim *sim, const struct sim_client *client);
/* Everything that was answered is still there, and the evidence says so. Anything but OK: the store
 * could not be read, which is for the caller to judge. */
enum status oracle_audit(struct sim *sim);
void oracle_clock(struct sim *sim, int64_t engine_ms);

#endif
