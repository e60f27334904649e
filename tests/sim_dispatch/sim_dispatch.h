/*
 * sim_dispatch: several dispatchers over one shared store, in one thread, driven step by step from
 * one seed, in the manner of tests/sim_gateway.
 *
 *     programs ──▶ enqueue ──▶ engine.c: cycle_run and the janitor of each process, on one store
 *     clients ───▶ API and commands  │  ▲
 *       (commands.c)             │   │  │
 *     senders ───▶ API and inbox │   │  │
 *       (deliveries.c)           │   ▼  │
 *                      dispatcher and outbox of each process ──▶ provider.c ──▶ effects, counted
 *
 * Clients submit commands to any process, confirm and deny them with the tokens they were shown and
 * with others, and settle what is blocked as a person does who looked. The door of commands is the
 * real one from the request's head to its answer; its handlers are at the provider.
 *
 * Senders post events to any process, more than once and in any order, and operators skip them,
 * have them delivered again and settle them. The door of the inbox is the real one as well.
 *
 * The real objects of src/dispatch, src/effect and src/engine/cycle.c are linked. The files here
 * stand in for what is below them: loops and tasks, outcalls and upstreams (provider.c), the
 * engine's threads (engine.c), clocks, random bytes and memory (world.c). Between the prepare and
 * the commit of one process others run whole batches. Between any two steps a process may be
 * killed: its memory goes, and requests that have left go on at the provider.
 *
 * The provider does what a connector declares, and no more: with a key it recognises a repetition
 * for `keeps`; a lookup may say "not executed" for a while after it was, but not past `quiet`. So
 * every second effect is the dispatcher's fault. oracle.c says what must hold.
 */
#ifndef ONCE_TESTS_SIM_DISPATCH_SIM_DISPATCH_H
#define ONCE_TESTS_SIM_DISPATCH_SIM_DISPATCH_H

#include "api/api.h"
#include "command/command.h"
#include "dispatch/impl.h"
#include "effect/outbox.h"
#include "engine/cycle.h"
#include "engine/janitor.h"
#include "engine/queue.h"
#include "inbox/inbox.h"
#include "prng.h"

enum {
    SIM_PROCESSES = 3,
    SIM_EFFECTS_MAX = 24,
    SIM_WIRES_MAX = 512, /* requests and questions of one run */
    SIM_BATCH_CALLS = 160,
    SIM_STEPS = 700,
    SIM_STANDS_STEPS = 300, /* how long an engine may stand still */
    SIM_TOTAL_MS = 6000,    /* timeout.total of every connector */
    SIM_QUIET_MS = 10000,   /* of every lookup */
    SIM_KEEPS_MS = 30000,   /* of every key */
    SIM_PAUSE_MS = 5000,    /* of every breaker … */
    SIM_FAILURES = 3,       /* … after as many failures */
    SIM_ATTEMPTS = 4,       /* of every effect and command */
    SIM_COMMANDS = 10,
    SIM_RETURNED = 2, /* effects that a handler returns */
    SIM_OBJECTS = 2,  /* whose events are ordered, of each source */
    SIM_VERSIONS = 4, /* of each object */
    SIM_EFFECTS_ALL = SIM_EFFECTS_MAX + SIM_COMMANDS * SIM_RETURNED,
};

/* What a command's registry entry says; its number. */
enum sim_rule {
    RULE_HOLD,
    RULE_TAKEOVER,
    RULE_ASK,
    RULE_CONFIRM, /* then hold */
    RULE_PAY,     /* hold, and its handler returns required effects */
    SIM_RULES,
};

/* A source of events; its number. */
enum sim_source {
    SOURCE_HOLD,  /* ordered */
    SOURCE_AGAIN, /* ordered, and its handler may be called again */
    SOURCE_ASK,   /* the handler can be asked */
    SOURCE_SYNC,  /* the sender waits for the handler's answer */
    SIM_SOURCES,
};
enum { SIM_EVENTS = SIM_SOURCES * SIM_OBJECTS * SIM_VERSIONS };

/* What a type's connector declares; its number. */
enum sim_type {
    TYPE_KEYED, /* an idempotency key: S1 */
    TYPE_ASKED, /* a lookup: S4 */
    TYPE_BARE,  /* neither: S3 */
    TYPE_LANE,  /* as keyed, one after another */
    SIM_TYPES,
};

/* What has to happen sometimes, or the simulation proves less than it says. */
#define SIM_SOMETIMES(X)                                                                           \
    X(CREATED, "effects created")                                                                  \
    X(SENT, "attempts sent")                                                                       \
    X(ASKED, "questions asked")                                                                    \
    X(EFFECTS, "effects happened")                                                                 \
    X(LATE_EFFECTS, "effects after the caller had gone or given up")                               \
    X(REPEATED, "repetitions that the provider recognised")                                        \
    X(LIES, "lookups that did not know yet")                                                       \
    X(LOST, "answers lost")                                                                        \
    X(TIMEOUTS, "timeouts")                                                                        \
    X(NOT_CONNECTED, "not connected")                                                              \
    X(REFUSED, "refused by the provider")                                                          \
    X(LATER, "told to come later")                                                                 \
    X(ACKNOWLEDGED, "ended acknowledged")                                                          \
    X(FAILED, "ended failed")                                                                      \
    X(DEAD, "ended as dead letters")                                                               \
    X(UNCERTAIN, "ended uncertain")                                                                \
    X(SENT_AGAIN, "sent again after uncertainty")                                                  \
    X(PAST_KEEPS, "uncertain past keeps")                                                          \
    X(IN_LANES, "ordered effects sent after earlier ones")                                         \
    X(PARKED, "ordered effects sent after one that was parked")                                    \
    X(BREAKERS, "breakers opened")                                                                 \
    X(PROBES, "probes of an open breaker")                                                         \
    X(STALE, "calls decided again for a lost race")                                                \
    X(FASTER, "claims that somebody else was faster with")                                         \
    X(KILLED, "kills")                                                                             \
    X(KILLED_CALLING, "kills with requests under way")                                             \
    X(DUPLICATES, "duplicates created")                                                            \
    X(HELD_BACK, "effects held back until a place was free")                                       \
    X(CLAIMED_WITH, "claims in the commit that enqueues")                                          \
    X(CLAIMED_STALE, "such claims decided again for a lost race")                                  \
    X(CLAIMED_NOTHING, "such claims of duplicates")                                                \
    X(CALLED, "handlers called")                                                                   \
    X(HANDLED, "handlers that did it")                                                             \
    X(EXECUTED, "commands answered as executed")                                                   \
    X(REPLAYED, "commands replayed")                                                               \
    X(CONFIRMED, "confirmations accepted")                                                         \
    X(NOT_CONFIRMED, "confirmations refused")                                                      \
    X(DENIED, "confirmations denied")                                                              \
    X(EXPIRED, "confirmations expired")                                                            \
    X(EXPIRED_LATE, "expiries that were too late")                                                 \
    X(STARTED_OVER, "commands submitted again after a rejection")                                  \
    X(TAKEN_OVER, "handlers called again that may be")                                             \
    X(SETTLED, "blocked commands that a person settled")                                           \
    X(CANCELLED, "commands that a person cancelled")                                               \
    X(NOT_CANCELLED, "cancellations refused: it may have happened")                                \
    X(AWAITED, "commands that waited for their effects")                                           \
    X(C_EXECUTED, "commands ended executed")                                                       \
    X(C_FAILED, "commands ended failed")                                                           \
    X(C_REJECTED, "commands ended rejected")                                                       \
    X(C_DEAD, "commands ended given up")                                                           \
    X(C_HELD, "commands ended held")                                                               \
    X(SENT_IN, "events sent")                                                                      \
    X(TAKEN_IN, "events taken in")                                                                 \
    X(AGAIN_IN, "events that were known")                                                          \
    X(STALE_IN, "events refused as stale")                                                         \
    X(OTHER_IN, "events refused for their payload")                                                \
    X(RECEIPTS, "receipts shown")                                                                  \
    X(DELIVERED, "handlers of events called")                                                      \
    X(REDELIVERED, "handlers of events called again that may be")                                  \
    X(LATE_FENCES, "calls with an old fence that a handler refused")                               \
    X(IN_ORDER, "ordered events delivered after earlier ones")                                     \
    X(OVERTAKEN, "ordered events delivered after one that was parked")                             \
    X(DROPPED, "events dropped as stale before their turn")                                        \
    X(SKIPPED, "events skipped")                                                                   \
    X(SKIP_RACES, "skips that read the event again")                                               \
    X(NOT_SKIPPED, "skips refused")                                                                \
    X(TAKEN_UP, "events that an operator had delivered again")                                     \
    X(RESOLVED, "events that a person settled")                                                    \
    X(D_EXECUTED, "events ended executed")                                                         \
    X(D_FAILED, "events ended failed")                                                             \
    X(D_DEAD, "events ended as dead letters")                                                      \
    X(D_HELD, "events ended held")

enum sometimes {
#define SIM_NAME(name, text) SOMETIMES_##name,
    SIM_SOMETIMES(SIM_NAME)
#undef SIM_NAME
        SOMETIMES_COUNT
};

/* An effect that the provider never does. */
enum sim_poison { POISON_NONE, POISON_LATER, POISON_LOST };

/* Before each piece of a process's memory. */
struct sim_block {
    _Alignas(max_align_t) struct sim_block *prev;
    struct sim_block *next;
};

/* What the oracle knows of the breaker of one connector in one process. */
struct sim_breaker {
    int failures;      /* in a row, while it is closed */
    bool is_open;      /* and since then no call went well */
    int64_t opened_ms; /* the pause counts from here */
    int64_t closed_ms; /* after it was open; 0: never */
};

/* Memory that is dropped whole. */
struct sim_memory {
    struct mem mem;
    struct sim_block blocks;
};

/* The engine of one process, without its threads. */
struct engine {
    struct store_ops ops; /* of the store, with other processes in between */
    struct store *store;
    struct cycle cycle;
    struct janitor janitor;
    struct store_identity identity;
    struct store_shared shared;
    struct queue queue;
    struct engine_call *answers[4 * SIM_BATCH_CALLS];
    size_t answer_count;
    bool is_busy; /* between prepare and commit */
};

struct sim_process {
    struct engine engine; /* first: its address stands for the door and the server as well */
    struct net_loop *loop;
    struct net_task *tasks; /* newest first */
    struct dispatch *dispatch;
    struct effect_outbox *outbox;
    struct commands *commands;
    struct inbox_door *inbox;
    struct api *api;
    struct flood *flood;
    struct metrics *metrics;
    struct sim_memory memory; /* that goes with it */
    struct sim_breaker breakers[SIM_TYPES];
    bool is_up;
    int64_t start_ms;      /* when it is started again */
    uint64_t stands_until; /* the step until which its engine stands still */
};

/* One request to a process. */
struct sim_exchange {
    struct http_exchange http; /* first */
    struct net_task task;
    struct sim_process *process;
    struct http_head head;
    struct arena arena;
    char text[512];
    char body[256];
    int number;     /* of the command or the event that it is about */
    int asked;      /* what it asks for: enum asked of its file */
    bool has_token; /* a right one, of … */
    int epoch;
    bool is_begun;
    /* The whole answer; root is its JSON, NULL if it is empty. */
    void (*answered)(
        struct sim_exchange *exchange, struct slice body, const struct json_value *root);
};

/* One event, and what its senders, its handler and the oracle know of it. */
struct sim_event {
    char key[16];
    enum sim_source source;
    int object;
    int number;       /* its version of the object */
    char id[64];      /* as it was answered; empty: nobody knows it */
    char receipt[64]; /* the first that was shown; empty: none was */
    char answer[64];  /* the handler's, when it did it */
    struct op_id op;  /* of the record */
    uint64_t version; /* of the record; 0: it is absent */
    uint64_t fence;   /* of the record */
    enum record_status status;
    int joined;         /* its place among all events, by the order of the commits */
    int calls;          /* that arrived at the handler */
    int done;           /* times the handler did it */
    uint64_t fence_max; /* that the handler has seen */
    int64_t visible_ms;
    bool is_doubtful; /* a call was sent, and nobody said that nothing was done */
    bool was_parked;  /* it was a dead letter or held: it has lost its place */
    bool was_refused; /* by the handler, for good */
    bool was_skipped;
    bool is_busy; /* its handler never does it */
};

/* One command, and what its clients, its handler and the oracle know of it. */
struct sim_command {
    char key[16];
    enum sim_rule rule;
    char id[64]; /* as it was answered; empty: nobody knows it */
    char token[64];
    char outcome[160]; /* the first that was shown; empty: none was */
    struct op_id op;   /* of the record */
    uint64_t version;  /* of the record; 0: it is absent */
    uint64_t attempt;  /* of the record */
    enum record_status status;
    int epochs;      /* times it was taken in: by its first submission, and after rejections */
    int tokens;      /* shown */
    int token_epoch; /* of token */
    int sent_epoch;  /* the newest whose token a client has sent */
    int starts;      /* by confirmations */
    int start_epoch; /* of the last one */
    int returned;    /* effects */
    int done;        /* times the handler did it */
    int64_t visible_ms;
    bool is_doubtful;  /* a call was sent, and nobody said that nothing was done */
    int64_t due_ms;    /* of the record */
    bool is_unsettled; /* takeover: an attempt may have done it, and nobody has said since then */
    bool was_refused;  /* by the handler, for good */
    bool is_busy;      /* its handler never does it */
};

/* One effect, and what the provider and the oracle know of it. */
struct sim_effect {
    char key[72];
    enum sim_type type;
    int lane;
    enum sim_poison poison;
    struct op_id id;
    bool is_known; /* its id is */
    int created;   /* its number in its lane, by the order of the commits; 0: not yet */
    int sent;      /* attempts that were begun */
    int effects;
    int64_t first_ms;   /* when the provider first saw its key; 0: never */
    int64_t visible_ms; /* when a lookup shows it; 0: never */
    bool is_passed;     /* a later one of its lane was sent while it was uncertain */
    bool was_refused;   /* for good */
};

/* A request, or a question, on its way. */
struct sim_wire {
    struct outcall *out; /* NULL: nobody waits any more */
    int process;
    int effect;
    int command; /* -1: it is not about a command */
    int event;   /* -1: it is not about an event */
    uint64_t fence;
    bool asks;
    int64_t admitted_ms; /* by the breaker */
    int64_t arrives_ms;  /* at the provider; INT64_MAX: never, or it has */
    int64_t answers_ms;  /* back at the process; INT64_MAX: never */
    int64_t gives_up_ms;
    unsigned status; /* of the answer; 0: the connection breaks */
    bool does;       /* it takes effect when it arrives */
    bool is_connected;
};

struct sim {
    uint64_t seed;
    struct prng prng;
    struct prng bytes; /* random bytes for the program */
    uint64_t step;
    uint64_t trace;
    uint64_t *sometimes;
    char violation[256];
    bool is_traced;
    bool is_ending; /* no new work, no more trouble */
    int64_t now_ms;
    struct clock clock;
    struct sim_memory memory; /* of the configuration */
    struct config *config;
    struct vault *vault;
    struct store_mem_hub *hub;
    const struct store_ops *inner;
    struct store *reader; /* the oracle's own handle */
    struct sim_process processes[SIM_PROCESSES];
    struct sim_effect effects[SIM_EFFECTS_ALL]; /* those of programs, then those of commands */
    int effect_count;                           /* of programs */
    struct sim_command commands[SIM_COMMANDS];
    struct sim_event events[SIM_EVENTS];
    int newest[SIM_SOURCES][SIM_OBJECTS]; /* sealed version; 0: none */
    int late;   /* the command whose expiry a process is late with; -1: none */
    int joined; /* effects and events that joined a lane */
    struct sim_wire wires[SIM_WIRES_MAX];
    int wire_count;
    int64_t down_until_ms; /* the provider answers 503 to all until then */
};

extern struct sim *sim;

bool sim_run(uint64_t seed);

/* world.c */
void sim_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void sim_violate(const char *format, ...) __attribute__((format(printf, 1, 2)));
void sim_note(enum sometimes what);
uint64_t sim_below(uint64_t count);
bool sim_once_in(uint64_t every);

/* engine.c */
void engine_open(struct sim_process *process);
void engine_close(struct sim_process *process);
bool engine_batch(struct sim_process *process);
bool engine_answer(struct sim_process *process);

/* commands.c */
void commands_make(void);
void commands_step(struct sim_process *process);
int command_find(struct slice key);
int command_of(const struct op_id *id); /* -1: there is none */
/* The handler's answer. */
struct slice command_answer(const struct sim_wire *wire);
void command_arrives(struct sim_wire *wire);
void command_begins(const struct sim_wire *wire, const struct dispatching *run);
/* point: how far the call got; status: of an answer */
void command_ends(const struct sim_wire *wire, enum outcall_point point, unsigned status);
void command_decided(const struct engine_call *call);
void commands_end(void);

/* deliveries.c */
void deliveries_make(void);
void deliveries_step(struct sim_process *process);
int event_find(struct slice key);
struct slice event_answer(const struct sim_wire *wire);
void event_arrives(struct sim_wire *wire);
void event_begins(struct sim_wire *wire, const struct dispatching *run);
void event_ends(const struct sim_wire *wire, enum outcall_point point, unsigned status);
void event_decided(const struct engine_call *call);
void deliveries_end(void);

/* exchange.c */
struct sim_exchange *exchange_new(struct sim_process *process, int number,
    void (*answered)(
        struct sim_exchange *exchange, struct slice body, const struct json_value *root));
void exchange_ask(struct sim_exchange *exchange, const char *method, const char *path);
/* A text member of an object; empty: absent. */
struct slice exchange_member(const struct json_value *object, const char *name);

/* provider.c */
/* A call of this command or event may still arrive, or its answer be settled. */
bool provider_is_calling(enum record_kind kind, int number);
void provider_time(void);
void provider_lose(int process);
bool provider_is_idle(void);
/* When something happens next; INT64_MAX: never. */
int64_t provider_next_ms(void);

/* oracle.c */
bool oracle_stored(
    enum record_kind kind, const struct op_id *id, struct arena *arena, struct record *ret_record);
void oracle_enqueued(const struct engine_call *call);
void oracle_begins(struct sim_wire *wire, const struct dispatching *run);
void oracle_ends(const struct sim_wire *wire, bool is_well);
void oracle_end(void);

#endif
