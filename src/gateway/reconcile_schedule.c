/*
 *   RESTING ── on_due ──▶ LOOKING ── a page ──▶ GOING ── SCHEDULE_QUESTIONS_MAX asked ──▶ FULL
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
#include "gateway/reconcile_schedule.h"

#include "base/check.h"
#include "base/macros.h"
#include "engine/query.h"
#include "gateway/reconcile.h"
#include "gateway/reconcile_rules.h"
#include "gateway/request_form.h"

enum {
    SCHEDULE_QUESTIONS_MAX = 16, /* asked at a time: an upstream that was down is not overrun */
    SCHEDULE_PAUSE_MS = 500,     /* between two rounds, at least */
    SCHEDULE_SHARE = 19,         /* … and so many times what the looking took: a twentieth of the
                                  engine's time at most, however many keys it has */
    PAGE_RECORDS = 64,
    LOOK_ARENA_BYTES_MAX = 16 << 20, /* so many records, or one with its bodies, at their limits */
};

enum schedule_state { SCHEDULE_RESTING, SCHEDULE_LOOKING, SCHEDULE_GOING, SCHEDULE_FULL };

/* A look, and the way back from the engine's thread. */
struct schedule_look {
    struct query look;    /* first, so that the engine's pointer is ours */
    struct net_task task; /* runs what follows it */
    struct schedule *schedule;
    struct arena arena;
};

struct schedule {
    struct gateway *gateway;
    enum schedule_state state;
    struct net_deadline deadline; /* the next round; off: there is nothing to ask */
    struct net_task wake;
    atomic_bool is_waking;         /* wake is in its loop's list */
    struct gateway_config *config; /* of this round; NULL: resting */
    size_t route;                  /* whose tenant is looked through */
    struct schedule_look page;     /* of unknown operations */
    size_t at;                     /* the next one in it */
    struct schedule_look one;      /* the operation before it, for its request */
    unsigned asked;                /* questions of ours under way */
    int64_t after_ms;      /* engine time when the last whole round began; 0: there was none */
    int64_t until_ms;      /* … when this one did; 0: its first page is not here */
    uint64_t looked_nanos; /* spent waiting for pages in this round */
    uint64_t look_nanos;   /* when this look began */
};

static struct net_loop *loop_of(const struct schedule *schedule)
{
    return http_server_loop(schedule->gateway->server, 0);
}

static bool can_ask(const struct gateway_config *config)
{
    for (size_t i = 0; i < config->settings->route_count; i++) {
        if (config->settings->routes[i].reconcile.get != NULL) {
            return true;
        }
    }
    return false;
}

#define TO(state) (1u << SCHEDULE_##state)
static const unsigned nexts[] = {
    [SCHEDULE_RESTING] = TO(GOING),
    [SCHEDULE_LOOKING] = TO(GOING) | TO(RESTING),
    [SCHEDULE_GOING] = TO(GOING) | TO(LOOKING) | TO(FULL) | TO(RESTING),
    [SCHEDULE_FULL] = TO(GOING),
};
#undef TO

static void schedule_move(struct schedule *schedule, enum schedule_state state)
{
    ASSERT((nexts[schedule->state] & 1u << state) != 0);
    schedule->state = state;
    ASSERT((schedule->config == NULL) == (state == SCHEDULE_RESTING)); /* D2 */
    ASSERT(schedule->asked <= SCHEDULE_QUESTIONS_MAX);
}

static void rest(struct schedule *schedule, uint64_t pause_ms)
{
    struct net_loop *loop = loop_of(schedule);
    net_loop_deadline(loop, &schedule->deadline, net_loop_now(loop) + pause_ms);
}

/* ---- the end of a round -------------------------------------------------------------------- */

static void end_round(struct schedule *schedule, bool is_whole)
{
    struct gateway *gateway = schedule->gateway;
    uint64_t pause_ms = SCHEDULE_SHARE * schedule->looked_nanos / 1000000;
    bool goes_on = can_ask(schedule->config) && !atomic_load(&gateway->is_cut);
    if (is_whole && schedule->until_ms > 0) {
        schedule->after_ms = schedule->until_ms;
    }
    gateway_config_drop(gateway, schedule->config);
    schedule->config = NULL;
    schedule_move(schedule, SCHEDULE_RESTING);
    arena_clear(&schedule->page.arena);
    arena_clear(&schedule->one.arena);
    if (goes_on) {
        rest(schedule, pause_ms > SCHEDULE_PAUSE_MS ? pause_ms : SCHEDULE_PAUSE_MS);
    }
    atomic_fetch_sub(&gateway->busy, 1);
}

/* ---- looking ------------------------------------------------------------------------------- */

/* On the engine's thread. */
static void on_looked(struct engine_call *call)
{
    struct schedule_look *look = (struct schedule_look *)(void *)call;
    struct gateway *gateway = look->schedule->gateway;
    net_loop_post(loop_of(look->schedule), &look->task);
    atomic_fetch_sub(&gateway->in_engine, 1);
}

static void submit(struct schedule *schedule, struct schedule_look *look)
{
    struct gateway *gateway = schedule->gateway;
    struct err err;
    look->look.call.arena = &look->arena;
    look->look.call.done = on_looked;
    schedule->look_nanos = clock_nanos();
    schedule_move(schedule, SCHEDULE_LOOKING);
    atomic_fetch_add(&gateway->in_engine, 1);
    if (query_submit(door_engine(gateway->door), &look->look, &err) != OK) {
        atomic_fetch_sub(&gateway->in_engine, 1);
        end_round(schedule, false);
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

static void look_page(struct schedule *schedule, const struct digest *after)
{
    arena_clear(&schedule->page.arena);
    schedule->at = 0;
    schedule->page.look = (struct query){.kind = QUERY_RECORDS,
        .tenant = slice_str(schedule->config->settings->routes[schedule->route].tenant),
        .scan = {.status = RECORD_UNKNOWN, .limit = PAGE_RECORDS, .after = *after}};
    submit(schedule, &schedule->page);
}

/* The first page of the tenant of this route, or of the next one that asks; else it is over. */
static void look_tenant(struct schedule *schedule)
{
    static const struct digest none = {{0}};
    const struct config_gateway *config = schedule->config->settings;
    while (schedule->route < config->route_count &&
           (!is_asking(config, schedule->route) || is_seen(config, schedule->route))) {
        schedule->route++;
    }
    if (schedule->route == config->route_count) {
        end_round(schedule, true);
    } else {
        look_page(schedule, &none);
    }
}

/* ---- asking -------------------------------------------------------------------------------- */

static void go_on(struct schedule *schedule);

static void on_asked(void *context)
{
    struct schedule *schedule = context;
    ASSERT(schedule->asked > 0);
    schedule->asked--;
    if (schedule->state == SCHEDULE_FULL) {
        go_on(schedule);
    }
}

static bool is_due(const struct schedule *schedule, const struct config_reconcile *reconcile,
    const struct record *record)
{
    return reconcile_is_due(reconcile, record->updated_ms, schedule->after_ms, schedule->until_ms);
}

/* Ask about it, if its route says so and its time has come. */
static void ask(struct schedule *schedule, const struct record *record,
    const struct engine_call *read, unsigned method, struct slice path)
{
    struct upstreams_one *upstream;
    const struct gateway_config *config = schedule->config;
    const struct config_route *route = gateway_config_route(config, method, path, &upstream);
    if (route == NULL || route == config->settings->otherwise || (route->fenced & method) == 0 ||
        route->reconcile.get == NULL || !slice_is(record->key.tenant, route->tenant) || /* P9 */
        !is_due(schedule, &route->reconcile, record)) {
        return;
    }
    struct reconcile_about about = {.loop = 0,
        .config = schedule->config,
        .route = route,
        .upstream = upstream,
        .record = record,
        .read = read};
    if (reconcile_now(schedule->gateway, &about, on_asked, schedule)) {
        schedule->asked++;
    }
}

/* Its request was looked up, for the path. */
static void on_one(struct net_task *task)
{
    struct schedule_look *look = CONTAINER_OF(task, struct schedule_look, task);
    struct schedule *schedule = look->schedule;
    const struct record *record = look->look.record;
    struct reconcile_scope scope;
    struct slice path;
    schedule->looked_nanos += clock_nanos() - schedule->look_nanos;
    schedule_move(schedule, SCHEDULE_GOING);
    if (look->look.call.err.status == OK && record != NULL && record->status == RECORD_UNKNOWN &&
        reconcile_scope(record->key.scope, &scope) &&
        request_form_kept_path(look->look.request_body, &look->arena, &path)) {
        ask(schedule, record, &look->look.call, scope.method, path);
    }
    go_on(schedule);
}

/* Whether any route of its tenant would ask about it now: before its own is known. */
static bool may_be_due(const struct schedule *schedule, const struct record *record)
{
    const struct config_gateway *config = schedule->config->settings;
    for (size_t i = 0; i < config->route_count; i++) {
        if (is_asking(config, i) && slice_is(record->key.tenant, config->routes[i].tenant) &&
            is_due(schedule, &config->routes[i].reconcile, record)) {
            return true;
        }
    }
    return false;
}

static void look_one(struct schedule *schedule, const struct record *record)
{
    arena_clear(&schedule->one.arena);
    schedule->one.look = (struct query){.kind = QUERY_OPERATION,
        .tenant = record->key.tenant,
        .operation_id = record->operation_id};
    submit(schedule, &schedule->one);
}

/* The rest of the page, as far as there is room for questions; then the next one. */
static void go_on(struct schedule *schedule)
{
    const struct query *page = &schedule->page.look;
    schedule_move(schedule, SCHEDULE_GOING);
    while (schedule->at < page->count) {
        if (atomic_load(&schedule->gateway->is_cut)) {
            end_round(schedule, false);
            return;
        }
        if (schedule->asked == SCHEDULE_QUESTIONS_MAX) {
            schedule_move(schedule, SCHEDULE_FULL);
            return;
        }
        const struct record *record = page->records[schedule->at++];
        struct reconcile_scope scope;
        if (!reconcile_scope(record->key.scope, &scope)) {
            continue;
        }
        if (!scope.is_cut) {
            ask(schedule, record, &page->call, scope.method, scope.path);
        } else if (may_be_due(schedule, record)) {
            look_one(schedule, record);
            return;
        }
    }
    if (page->has_more) {
        struct digest after = page->after;
        look_page(schedule, &after);
    } else {
        schedule->route++;
        look_tenant(schedule);
    }
}

static void on_page(struct net_task *task)
{
    struct schedule_look *look = CONTAINER_OF(task, struct schedule_look, task);
    struct schedule *schedule = look->schedule;
    const struct engine_call *call = &look->look.call;
    schedule->looked_nanos += clock_nanos() - schedule->look_nanos;
    schedule_move(schedule, SCHEDULE_GOING);
    if (call->err.status != OK) {
        end_round(schedule, false);
        return;
    }
    if (schedule->until_ms == 0) {
        schedule->until_ms = call->now_ms;
    }
    go_on(schedule);
}

/* ---- the beginning of a round -------------------------------------------------------------- */

static void on_due(struct net_deadline *deadline, uint64_t now_ms)
{
    struct schedule *schedule = CONTAINER_OF(deadline, struct schedule, deadline);
    struct gateway *gateway = schedule->gateway;
    struct engine_stats stats;
    (void)now_ms;
    ASSERT(schedule->state == SCHEDULE_RESTING);
    atomic_fetch_add(&gateway->busy, 1); /* before is_cut is asked */
    if (atomic_load(&gateway->is_cut)) {
        atomic_fetch_sub(&gateway->busy, 1);
        return;
    }
    schedule->config = gateway_config_take(gateway);
    schedule_move(schedule, SCHEDULE_GOING);
    schedule->route = 0;
    schedule->until_ms = 0;
    schedule->looked_nanos = 0;
    engine_stats(door_engine(gateway->door), &stats);
    if (stats.counts.by_status[RECORD_UNKNOWN] == 0) {
        end_round(schedule, false);
    } else {
        look_tenant(schedule);
    }
}

static void on_wake(struct net_task *task)
{
    struct schedule *schedule = CONTAINER_OF(task, struct schedule, wake);
    atomic_store(&schedule->is_waking, false);
    struct gateway_config *config = gateway_config_take(schedule->gateway);
    if (schedule->state == SCHEDULE_RESTING && can_ask(config) &&
        !atomic_load(&schedule->gateway->is_cut)) {
        rest(schedule, 0);
    }
    gateway_config_drop(schedule->gateway, config);
}

void schedule_wake(struct gateway *gateway)
{
    struct schedule *schedule = gateway->schedule;
    if (gateway->server != NULL && !atomic_exchange(&schedule->is_waking, true)) {
        net_loop_post(loop_of(schedule), &schedule->wake);
    }
}

/* ---- the whole ----------------------------------------------------------------------------- */

static void look_init(
    struct schedule *schedule, struct schedule_look *look, void (*run)(struct net_task *))
{
    look->schedule = schedule;
    look->task.run = run;
    arena_init(&look->arena, schedule->gateway->mem, LOOK_ARENA_BYTES_MAX);
}

enum status schedule_new(struct gateway *gateway, struct schedule **ret_schedule, struct err *err)
{
    struct schedule *schedule = mem_zalloc(gateway->mem, 1, sizeof *schedule);
    if (schedule == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    schedule->gateway = gateway;
    schedule->deadline.due = on_due;
    schedule->wake.run = on_wake;
    atomic_init(&schedule->is_waking, false);
    look_init(schedule, &schedule->page, on_page);
    look_init(schedule, &schedule->one, on_one);
    *ret_schedule = schedule;
    return OK;
}

void schedule_start(struct gateway *gateway)
{
    if (can_ask(gateway->config)) {
        rest(gateway->schedule, 0);
    }
}

void schedule_end(struct gateway *gateway, unsigned loop)
{
    if (loop == 0) {
        ASSERT(gateway->schedule->state == SCHEDULE_RESTING);
        net_wheel_remove(&loop_of(gateway->schedule)->wheel, &gateway->schedule->deadline);
    }
}

void schedule_free(struct schedule *schedule)
{
    if (schedule != NULL) {
        arena_release(&schedule->page.arena);
        arena_release(&schedule->one.arena);
        mem_free(schedule->gateway->mem, schedule);
    }
}
