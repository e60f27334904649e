/*
 *   RESTING ── on_due ──▶ LOOKING ── a page ──▶ GOING ── ROUNDS_QUESTIONS_MAX asked ──▶ FULL
 *      ▲                   ▲ │ ▲                 │ │ ▲                                   │
 *      │                   │ │ └── the next one ─┘ │ └────────── one is answered ────────┘
 *      │                   │ │                     │ a scope that was cut
 *      │                   └─┼──── a request ──────┘ (LOOKING, at one operation)
 *      └── no page is left, or the store cannot be read, or the gateway ends
 *
 * What holds:
 *   D1  LOOKING has a look in the engine, no other state has.
 *   D2  RESTING alone holds no configuration and does not keep the gateway busy.
 *   D3  questions may outlive the round they were asked in; asked counts them all.
 */
#include "gateway/rounds.h"

#include "base/check.h"
#include "engine/look.h"
#include "gateway/question.h"
#include "gateway/reconcile.h"

enum {
    ROUNDS_QUESTIONS_MAX = 16, /* asked at a time: an upstream that was down is not overrun */
    ROUNDS_PAUSE_MS = 500,     /* between two rounds, at least */
    ROUNDS_SHARE = 19,         /* … and so many times what the looking took: a twentieth of the
                                  engine's time at most, however many keys it has */
    PAGE_RECORDS = 64,
    LOOK_ARENA_BYTES_MAX = 16 << 20, /* so many records, or one with its bodies, at their limits */
};

enum rounds_state { ROUNDS_RESTING, ROUNDS_LOOKING, ROUNDS_GOING, ROUNDS_FULL };

/* A look, and the way back from the engine's thread. */
struct rounds_look {
    struct look look;     /* first, so that the engine's pointer is ours */
    struct net_task task; /* runs what follows it */
    struct rounds *rounds;
    struct arena arena;
};

struct rounds {
    struct gateway *gateway;
    enum rounds_state state;
    struct net_deadline deadline; /* the next round; off: there is nothing to ask */
    struct net_task wake;
    atomic_bool is_waking;   /* wake is in its loop's list */
    struct gate *gate;       /* of this round; NULL: resting */
    size_t route;            /* whose tenant is looked through */
    struct rounds_look page; /* of unknown operations */
    size_t at;               /* the next one in it */
    struct rounds_look one;  /* the operation before it, for its request */
    unsigned asked;          /* questions of ours under way */
    int64_t after_ms;        /* engine time when the last whole round began; 0: there was none */
    int64_t until_ms;        /* … when this one did; 0: its first page is not here */
    uint64_t looked_nanos;   /* spent waiting for pages in this round */
    uint64_t look_nanos;     /* when this look began */
};

static struct net_loop *loop_of(const struct rounds *rounds)
{
    return http_server_loop(rounds->gateway->server, 0);
}

static bool can_ask(const struct gate *gate)
{
    for (size_t i = 0; i < gate->gateway->route_count; i++) {
        if (gate->gateway->routes[i].reconcile.get != NULL) {
            return true;
        }
    }
    return false;
}

static void rounds_move(struct rounds *rounds, enum rounds_state state)
{
    rounds->state = state;
    ASSERT((rounds->gate == NULL) == (state == ROUNDS_RESTING)); /* D2 */
    ASSERT(rounds->asked <= ROUNDS_QUESTIONS_MAX);
}

static void rest(struct rounds *rounds, uint64_t pause_ms)
{
    struct net_loop *loop = loop_of(rounds);
    net_loop_deadline(loop, &rounds->deadline, net_loop_now(loop) + pause_ms);
}

/* ---- the end of a round -------------------------------------------------------------------- */

static void end_round(struct rounds *rounds, bool is_whole)
{
    struct gateway *gateway = rounds->gateway;
    uint64_t pause_ms = ROUNDS_SHARE * rounds->looked_nanos / 1000000;
    bool goes_on = can_ask(rounds->gate) && !atomic_load(&gateway->is_cut);
    if (is_whole && rounds->until_ms > 0) {
        rounds->after_ms = rounds->until_ms;
    }
    gate_drop(gateway, rounds->gate);
    rounds->gate = NULL;
    rounds_move(rounds, ROUNDS_RESTING);
    arena_clear(&rounds->page.arena);
    arena_clear(&rounds->one.arena);
    if (goes_on) {
        rest(rounds, pause_ms > ROUNDS_PAUSE_MS ? pause_ms : ROUNDS_PAUSE_MS);
    }
    atomic_fetch_sub(&gateway->busy, 1);
}

/* ---- looking ------------------------------------------------------------------------------- */

/* On the engine's thread. */
static void on_looked(struct engine_call *call)
{
    struct rounds_look *look = (struct rounds_look *)(void *)call;
    struct gateway *gateway = look->rounds->gateway;
    net_loop_post(loop_of(look->rounds), &look->task);
    atomic_fetch_sub(&gateway->in_engine, 1);
}

static void submit(struct rounds *rounds, struct rounds_look *look)
{
    struct gateway *gateway = rounds->gateway;
    struct err err;
    look->look.call.arena = &look->arena;
    look->look.call.done = on_looked;
    rounds->look_nanos = clock_nanos();
    rounds_move(rounds, ROUNDS_LOOKING);
    atomic_fetch_add(&gateway->in_engine, 1);
    if (look_submit(door_engine(gateway->door), &look->look, &err) != OK) {
        atomic_fetch_sub(&gateway->in_engine, 1);
        end_round(rounds, false);
    }
}

static bool is_asking(const struct config_gateway *config, size_t route)
{
    return config->routes[route].reconcile.get != NULL;
}

/* Whether a route before it that asks is of the same tenant. */
static bool is_seen(const struct config_gateway *config, size_t route)
{
    for (size_t i = 0; i < route; i++) {
        if (is_asking(config, i) &&
            strcmp(config->routes[i].tenant, config->routes[route].tenant) == 0) {
            return true;
        }
    }
    return false;
}

static void look_page(struct rounds *rounds, const struct digest *after)
{
    arena_clear(&rounds->page.arena);
    rounds->at = 0;
    rounds->page.look = (struct look){.kind = LOOK_RECORDS,
        .tenant = slice_str(rounds->gate->gateway->routes[rounds->route].tenant),
        .scan = {.status = RECORD_UNKNOWN, .limit = PAGE_RECORDS, .after = *after}};
    submit(rounds, &rounds->page);
}

/* The first page of the tenant of this route, or of the next one that asks; else it is over. */
static void look_tenant(struct rounds *rounds)
{
    static const struct digest none = {{0}};
    const struct config_gateway *config = rounds->gate->gateway;
    while (rounds->route < config->route_count &&
           (!is_asking(config, rounds->route) || is_seen(config, rounds->route))) {
        rounds->route++;
    }
    if (rounds->route == config->route_count) {
        end_round(rounds, true);
    } else {
        look_page(rounds, &none);
    }
}

/* ---- asking -------------------------------------------------------------------------------- */

static void go_on(struct rounds *rounds);

static void on_asked(void *context)
{
    struct rounds *rounds = context;
    ASSERT(rounds->asked > 0);
    rounds->asked--;
    if (rounds->state == ROUNDS_FULL) {
        go_on(rounds);
    }
}

static bool is_due(const struct rounds *rounds, const struct config_reconcile *reconcile,
    const struct record *record)
{
    return question_is_due(reconcile, record->updated_ms, rounds->after_ms, rounds->until_ms);
}

/* Ask about it, if its route says so and its time has come. */
static void ask(struct rounds *rounds, const struct record *record, const struct engine_call *read,
    unsigned method, struct slice path)
{
    struct upstreams_one *upstream;
    const struct gate *gate = rounds->gate;
    const struct config_route *route = gate_route(gate, method, path, &upstream);
    if (route == NULL || route == gate->gateway->otherwise || (route->fenced & method) == 0 ||
        route->reconcile.get == NULL || !slice_is(record->key.tenant, route->tenant) || /* P9 */
        !is_due(rounds, &route->reconcile, record)) {
        return;
    }
    if (reconcile_now(
            rounds->gateway, 0, rounds->gate, route, upstream, record, read, on_asked, rounds)) {
        rounds->asked++;
    }
}

/* Its request was looked up, for the path. */
static void on_one(struct net_task *task)
{
    struct rounds_look *look =
        (struct rounds_look *)(void *)((char *)task - offsetof(struct rounds_look, task));
    struct rounds *rounds = look->rounds;
    const struct record *record = look->look.record;
    struct question_scope scope;
    struct slice path;
    rounds->looked_nanos += clock_nanos() - rounds->look_nanos;
    rounds_move(rounds, ROUNDS_GOING);
    if (look->look.call.err.status == OK && record != NULL && record->status == RECORD_UNKNOWN &&
        question_scope(record->key.scope, &scope) &&
        asked_kept_path(look->look.request_body, &look->arena, &path)) {
        ask(rounds, record, &look->look.call, scope.method, path);
    }
    go_on(rounds);
}

/* Whether any route of its tenant would ask about it now: before its own is known. */
static bool may_be_due(const struct rounds *rounds, const struct record *record)
{
    const struct config_gateway *config = rounds->gate->gateway;
    for (size_t i = 0; i < config->route_count; i++) {
        if (is_asking(config, i) && slice_is(record->key.tenant, config->routes[i].tenant) &&
            is_due(rounds, &config->routes[i].reconcile, record)) {
            return true;
        }
    }
    return false;
}

static void look_one(struct rounds *rounds, const struct record *record)
{
    arena_clear(&rounds->one.arena);
    rounds->one.look = (struct look){
        .kind = LOOK_OPERATION, .tenant = record->key.tenant, .operation_id = record->operation_id};
    submit(rounds, &rounds->one);
}

/* The rest of the page, as far as there is room for questions; then the next one. */
static void go_on(struct rounds *rounds)
{
    const struct look *page = &rounds->page.look;
    rounds_move(rounds, ROUNDS_GOING);
    while (rounds->at < page->count) {
        if (atomic_load(&rounds->gateway->is_cut)) {
            end_round(rounds, false);
            return;
        }
        if (rounds->asked == ROUNDS_QUESTIONS_MAX) {
            rounds_move(rounds, ROUNDS_FULL);
            return;
        }
        const struct record *record = page->records[rounds->at++];
        struct question_scope scope;
        if (!question_scope(record->key.scope, &scope)) {
            continue;
        }
        if (!scope.is_cut) {
            ask(rounds, record, &page->call, scope.method, scope.path);
        } else if (may_be_due(rounds, record)) {
            look_one(rounds, record);
            return;
        }
    }
    if (page->has_more) {
        struct digest after = page->after;
        look_page(rounds, &after);
    } else {
        rounds->route++;
        look_tenant(rounds);
    }
}

static void on_page(struct net_task *task)
{
    struct rounds_look *look =
        (struct rounds_look *)(void *)((char *)task - offsetof(struct rounds_look, task));
    struct rounds *rounds = look->rounds;
    const struct engine_call *call = &look->look.call;
    rounds->looked_nanos += clock_nanos() - rounds->look_nanos;
    rounds_move(rounds, ROUNDS_GOING);
    if (call->err.status != OK) {
        end_round(rounds, false);
        return;
    }
    if (rounds->until_ms == 0) {
        rounds->until_ms = call->now_ms;
    }
    go_on(rounds);
}

/* ---- the beginning of a round -------------------------------------------------------------- */

static void on_due(struct net_deadline *deadline, uint64_t now_ms)
{
    struct rounds *rounds =
        (struct rounds *)(void *)((char *)deadline - offsetof(struct rounds, deadline));
    struct gateway *gateway = rounds->gateway;
    struct engine_stats stats;
    (void)now_ms;
    ASSERT(rounds->state == ROUNDS_RESTING);
    atomic_fetch_add(&gateway->busy, 1); /* before is_cut is asked */
    if (atomic_load(&gateway->is_cut)) {
        atomic_fetch_sub(&gateway->busy, 1);
        return;
    }
    rounds->gate = gate_take(gateway);
    rounds_move(rounds, ROUNDS_GOING);
    rounds->route = 0;
    rounds->until_ms = 0;
    rounds->looked_nanos = 0;
    engine_stats(door_engine(gateway->door), &stats);
    if (stats.head.unknown == 0) {
        end_round(rounds, false);
    } else {
        look_tenant(rounds);
    }
}

static void on_wake(struct net_task *task)
{
    struct rounds *rounds = (struct rounds *)(void *)((char *)task - offsetof(struct rounds, wake));
    atomic_store(&rounds->is_waking, false);
    struct gate *gate = gate_take(rounds->gateway);
    if (rounds->state == ROUNDS_RESTING && can_ask(gate) &&
        !atomic_load(&rounds->gateway->is_cut)) {
        rest(rounds, 0);
    }
    gate_drop(rounds->gateway, gate);
}

void rounds_wake(struct gateway *gateway)
{
    struct rounds *rounds = gateway->rounds;
    if (gateway->server != NULL && !atomic_exchange(&rounds->is_waking, true)) {
        net_loop_post(loop_of(rounds), &rounds->wake);
    }
}

/* ---- the whole ----------------------------------------------------------------------------- */

static void look_init(
    struct rounds *rounds, struct rounds_look *look, void (*run)(struct net_task *))
{
    look->rounds = rounds;
    look->task.run = run;
    arena_init(&look->arena, rounds->gateway->mem, LOOK_ARENA_BYTES_MAX);
}

enum status rounds_new(struct gateway *gateway, struct rounds **ret_rounds, struct err *err)
{
    struct rounds *rounds = mem_zalloc(gateway->mem, 1, sizeof *rounds);
    if (rounds == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    rounds->gateway = gateway;
    rounds->deadline.due = on_due;
    rounds->wake.run = on_wake;
    atomic_init(&rounds->is_waking, false);
    look_init(rounds, &rounds->page, on_page);
    look_init(rounds, &rounds->one, on_one);
    *ret_rounds = rounds;
    return OK;
}

void rounds_start(struct gateway *gateway)
{
    if (can_ask(gateway->gate)) {
        rest(gateway->rounds, 0);
    }
}

void rounds_end(struct gateway *gateway, unsigned loop)
{
    if (loop == 0) {
        ASSERT(gateway->rounds->state == ROUNDS_RESTING);
        net_wheel_remove(&loop_of(gateway->rounds)->wheel, &gateway->rounds->deadline);
    }
}

void rounds_free(struct rounds *rounds)
{
    if (rounds != NULL) {
        arena_release(&rounds->page.arena);
        arena_release(&rounds->one.arena);
        mem_free(rounds->gateway->mem, rounds);
    }
}
