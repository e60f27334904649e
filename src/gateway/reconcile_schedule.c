/*
 * One unknown operation, from when the engine reports that it is due:
 *
 *   found ──▶ READY ── a place is free ──▶ ASKED ── still unknown ──▶ RESTING ──┐
 *               ▲                            └ settled, or nobody can ask: forgotten
 *               └──────────────── its pause is over ────────────────────────────┘
 *
 * Transitions: all through topic_move, which refuses any other; topic_free forgets one.
 *
 * What holds:
 *   RS1 a READY topic is in the list, a RESTING one has a deadline, an ASKED one has one of
 *       SCHEDULE_PLACES places, and none has two of these.
 *   RS2 each place in use keeps the gateway busy; nothing else here does.
 *   RS3 an operation has one topic: the engine reports each due once to a subscription, and a new
 *       subscription begins without topics, except those ASKED, which are forgotten when answered.
 */
#include "gateway/reconcile_schedule.h"

#include "base/check.h"
#include "base/macros.h"
#include "engine/query.h"
#include "gateway/reconcile.h"
#include "gateway/request_form.h"

enum {
    SCHEDULE_PLACES = 16,            /* asked at a time: an upstream that was down is not overrun */
    TOPICS_MAX = 1 << 16,            /* 8 MiB; any more unknown operations wait in the engine */
    FOUND_MAX = 64,                  /* reported by the engine at a time */
    AGAIN_MS = 1000,                 /* after the store could not be read, or memory was short */
    READ_ARENA_BYTES_MAX = 16 << 20, /* one operation with its bodies, at their limits */
};

enum topic_state { TOPIC_READY, TOPIC_ASKED, TOPIC_RESTING };

/* An unknown operation that was due. */
struct topic {
    struct net_deadline deadline; /* the end of its pause */
    struct topic *prev;           /* in the list of all */
    struct topic *next;
    struct topic *next_ready;
    struct schedule *schedule;
    enum topic_state state;
    bool is_old; /* from an earlier subscription: forgotten when it is answered */
    struct op_id operation_id;
    int64_t pause_ms; /* the last pause; 0: none yet */
};

/* A place for one operation that is read and asked about. */
struct schedule_place {
    struct query read;
    struct net_task task; /* the operation was read */
    struct arena arena;
    struct schedule *schedule;
    struct topic *topic; /* NULL: the place is free */
    struct gateway_config *config;
    const struct config_route *route; /* of its question */
    struct reconcile_wait wait;
};

struct schedule {
    struct gateway *gateway;
    bool is_ended;
    bool is_subscribed;
    struct due_subscription subscription;
    struct net_deadline deadline; /* subscribe again: a topic was lost */
    struct net_task wake;
    atomic_bool is_waking; /* wake is in its loop's list */
    struct topic *topics;
    atomic_uint topic_count;
    struct topic *ready; /* oldest first */
    struct topic **ready_last;
    struct schedule_place places[SCHEDULE_PLACES];

    /* From the engine's thread to the loop. */
    struct net_task arrival;
    atomic_bool is_arriving; /* found belongs to the loop until this is false */
    struct op_id found[FOUND_MAX];
    size_t found_count;
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

/* ---- topics -------------------------------------------------------------------------------- */

static void topic_move(struct topic *topic, enum topic_state state)
{
    static const enum topic_state nexts[] = {
        [TOPIC_READY] = TOPIC_ASKED, [TOPIC_ASKED] = TOPIC_RESTING, [TOPIC_RESTING] = TOPIC_READY};
    ASSERT(nexts[topic->state] == state);
    topic->state = state;
}

static void ready_add(struct schedule *schedule, struct topic *topic)
{
    topic->next_ready = NULL;
    *schedule->ready_last = topic;
    schedule->ready_last = &topic->next_ready;
}

static struct topic *ready_take(struct schedule *schedule)
{
    struct topic *topic = schedule->ready;
    if (topic != NULL) {
        schedule->ready = topic->next_ready;
        schedule->ready_last = schedule->ready == NULL ? &schedule->ready : schedule->ready_last;
    }
    return topic;
}

static void topic_free(struct topic *topic)
{
    struct schedule *schedule = topic->schedule;
    ASSERT(topic->deadline.prev == NULL); /* RS1 */
    *(topic->prev == NULL ? &schedule->topics : &topic->prev->next) = topic->next;
    if (topic->next != NULL) {
        topic->next->prev = topic->prev;
    }
    mem_free(schedule->gateway->mem, topic);
    atomic_fetch_sub(&schedule->topic_count, 1);
}

static void go_on(struct schedule *schedule);

static void on_rested(struct net_deadline *deadline, uint64_t now_ms)
{
    struct topic *topic = CONTAINER_OF(deadline, struct topic, deadline);
    (void)now_ms;
    topic_move(topic, TOPIC_READY);
    ready_add(topic->schedule, topic);
    go_on(topic->schedule);
}

static void topic_rest(struct topic *topic, int64_t pause_ms)
{
    struct net_loop *loop = loop_of(topic->schedule);
    ASSERT(pause_ms > 0);
    topic_move(topic, TOPIC_RESTING);
    net_loop_deadline(loop, &topic->deadline, net_loop_now(loop) + (uint64_t)pause_ms);
}

static bool topic_new(struct schedule *schedule, const struct op_id *operation_id)
{
    struct topic *topic = mem_zalloc(schedule->gateway->mem, 1, sizeof *topic);
    if (topic == NULL) {
        return false;
    }
    topic->schedule = schedule;
    topic->operation_id = *operation_id;
    topic->deadline.due = on_rested;
    topic->next = schedule->topics;
    if (topic->next != NULL) {
        topic->next->prev = topic;
    }
    schedule->topics = topic;
    atomic_fetch_add(&schedule->topic_count, 1);
    ready_add(schedule, topic);
    return true;
}

/* Forget all topics except those that are being asked about. */
static void topics_forget(struct schedule *schedule)
{
    struct net_wheel *wheel = &loop_of(schedule)->wheel;
    schedule->ready = NULL;
    schedule->ready_last = &schedule->ready;
    for (struct topic *topic = schedule->topics, *next; topic != NULL; topic = next) {
        next = topic->next;
        net_wheel_remove(wheel, &topic->deadline);
        if (topic->state == TOPIC_ASKED) {
            topic->is_old = true; /* RS3 */
        } else {
            topic_free(topic);
        }
    }
}

/* ---- asking -------------------------------------------------------------------------------- */

/* Free the place. again_ms: the topic's next pause; 0: it is forgotten. */
static void leave(struct schedule_place *place, int64_t again_ms)
{
    struct schedule *schedule = place->schedule;
    struct topic *topic = place->topic;
    gateway_config_drop(schedule->gateway, place->config);
    arena_clear(&place->arena);
    place->topic = NULL;
    if (again_ms == 0 || topic->is_old || schedule->is_ended) {
        topic_free(topic);
    } else {
        topic_rest(topic, again_ms);
    }
    go_on(schedule);
    atomic_fetch_sub(&schedule->gateway->busy, 1);
}

/* Settled or not: the next read shows it. */
static void on_asked(struct reconcile_wait *wait)
{
    struct schedule_place *place = CONTAINER_OF(wait, struct schedule_place, wait);
    struct topic *topic = place->topic;
    const struct config_reconcile *reconcile = &place->route->reconcile;
    topic->pause_ms = topic->pause_ms == 0
                          ? reconcile->every_ms
                          : clock_doubled_ms(topic->pause_ms, reconcile->every_ms_max);
    leave(place, topic->pause_ms);
}

/* The route that can ask about it; NULL: none can. */
static const struct config_route *route_of(const struct schedule_place *place,
    const struct record *record, struct arena *arena, struct upstreams_one **ret_upstream)
{
    const struct gateway_config *config = place->config;
    struct reconcile_scope scope;
    if (!reconcile_scope(record->key.scope, &scope) ||
        (scope.is_cut && !request_form_kept_path(place->read.request_body, arena, &scope.path))) {
        return NULL;
    }
    const struct config_route *route =
        gateway_config_route(config, scope.method, scope.path, ret_upstream);
    bool can = route != NULL && route != config->settings->otherwise &&
               (route->fenced & scope.method) != 0 && route->reconcile.get != NULL &&
               slice_is(record->key.tenant, route->tenant); /* P9 */
    return can ? route : NULL;
}

static void on_read(struct net_task *task)
{
    struct schedule_place *place = CONTAINER_OF(task, struct schedule_place, task);
    const struct record *record = place->read.record;
    struct upstreams_one *upstream = NULL;
    if (place->read.call.err.status != OK) {
        leave(place, AGAIN_MS);
        return;
    }
    bool is_unknown = record != NULL && record->status == RECORD_UNKNOWN;
    place->route = is_unknown ? route_of(place, record, &place->arena, &upstream) : NULL;
    if (place->route == NULL) {
        leave(place, 0);
        return;
    }
    struct reconcile_about about = {.loop = 0,
        .config = place->config,
        .route = place->route,
        .upstream = upstream,
        .record = record,
        .read = &place->read.call};
    place->wait.done = on_asked;
    if (reconcile_now(place->schedule->gateway, &about, &place->wait) == RECONCILE_NOT_ASKED) {
        on_asked(&place->wait); /* not possible now */
    }
}

/* On a thread of the engine. */
static void on_query(struct engine_call *call)
{
    struct schedule_place *place = CONTAINER_OF(call, struct schedule_place, read.call);
    struct gateway *gateway = place->schedule->gateway;
    net_loop_post(loop_of(place->schedule), &place->task);
    atomic_fetch_sub(&gateway->in_engine, 1);
}

static void read_topic(struct schedule_place *place, struct topic *topic)
{
    struct gateway *gateway = place->schedule->gateway;
    struct err err;
    topic_move(topic, TOPIC_ASKED);
    place->topic = topic;
    place->config = gateway_config_take(gateway);
    place->read = (struct query){.kind = QUERY_OPERATION,
        .any_tenant = true,
        .operation_id = topic->operation_id,
        .call = {.arena = &place->arena, .done = on_query}};
    atomic_fetch_add(&gateway->in_engine, 1);
    if (query_submit(door_engine(gateway->door), &place->read, &err) != OK) {
        place->read.call.err = err;
        on_query(&place->read.call);
    }
}

/* Start the topics that are ready, as long as there are places. */
static void go_on(struct schedule *schedule)
{
    struct gateway *gateway = schedule->gateway;
    for (size_t i = 0; i < SCHEDULE_PLACES && schedule->ready != NULL; i++) {
        if (schedule->places[i].topic != NULL) {
            continue;
        }
        atomic_fetch_add(&gateway->busy, 1); /* before is_cut is read; RS2 */
        if (atomic_load(&gateway->is_cut)) {
            atomic_fetch_sub(&gateway->busy, 1);
            return;
        }
        read_topic(&schedule->places[i], ready_take(schedule));
    }
}

/* ---- dues ---------------------------------------------------------------------------------- */

/* On the engine's thread. */
static bool on_found(void *context, const struct store_due *dues, size_t count)
{
    struct schedule *schedule = context;
    if (atomic_load(&schedule->is_arriving) ||
        atomic_load(&schedule->topic_count) + count > TOPICS_MAX) {
        return false;
    }
    ASSERT(count <= FOUND_MAX);
    for (size_t i = 0; i < count; i++) {
        schedule->found[i] = dues[i].operation_id;
    }
    schedule->found_count = count;
    atomic_store(&schedule->is_arriving, true);
    net_loop_post(loop_of(schedule), &schedule->arrival);
    return true;
}

static void on_arrival(struct net_task *task)
{
    struct schedule *schedule = CONTAINER_OF(task, struct schedule, arrival);
    struct net_loop *loop = loop_of(schedule);
    for (size_t i = 0; i < schedule->found_count && !schedule->is_ended; i++) {
        if (!topic_new(schedule, &schedule->found[i])) {
            net_loop_deadline(loop, &schedule->deadline, net_loop_now(loop) + AGAIN_MS);
        }
    }
    atomic_store(&schedule->is_arriving, false);
    go_on(schedule);
}

static void unsubscribe(struct schedule *schedule)
{
    if (schedule->is_subscribed) {
        engine_off_due(door_engine(schedule->gateway->door), &schedule->subscription);
        schedule->is_subscribed = false;
        schedule->found_count = 0; /* dues in transit are reported again */
    }
}

/* Subscribe from the beginning, to every unknown operation, if a route can ask. */
static void subscribe(struct schedule *schedule)
{
    struct gateway_config *config = gateway_config_take(schedule->gateway);
    unsubscribe(schedule);
    topics_forget(schedule);
    if (can_ask(config)) {
        engine_on_due(door_engine(schedule->gateway->door), &schedule->subscription);
        schedule->is_subscribed = true;
    }
    gateway_config_drop(schedule->gateway, config);
}

static void on_lost(struct net_deadline *deadline, uint64_t now_ms)
{
    (void)now_ms;
    subscribe(CONTAINER_OF(deadline, struct schedule, deadline));
}

static void on_wake(struct net_task *task)
{
    struct schedule *schedule = CONTAINER_OF(task, struct schedule, wake);
    atomic_store(&schedule->is_waking, false);
    if (!schedule->is_ended) {
        subscribe(schedule);
    }
}

/* ---- start and end ------------------------------------------------------------------------- */

void schedule_wake(struct gateway *gateway)
{
    struct schedule *schedule = gateway->schedule;
    if (gateway->server != NULL && !atomic_exchange(&schedule->is_waking, true)) {
        net_loop_post(loop_of(schedule), &schedule->wake);
    }
}

enum status schedule_new(struct gateway *gateway, struct schedule **ret_schedule, struct err *err)
{
    struct schedule *schedule = mem_zalloc(gateway->mem, 1, sizeof *schedule);
    if (schedule == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    schedule->gateway = gateway;
    schedule->subscription = (struct due_subscription){
        .filter = {.kinds = STORE_OPERATIONS, .reasons = STORE_DUE(RECORD_DUE_RECONCILE_AGAIN)},
        .is_once = true,
        .found = on_found,
        .context = schedule};
    schedule->deadline.due = on_lost;
    schedule->wake.run = on_wake;
    schedule->arrival.run = on_arrival;
    schedule->ready_last = &schedule->ready;
    for (size_t i = 0; i < SCHEDULE_PLACES; i++) {
        schedule->places[i].schedule = schedule;
        schedule->places[i].task.run = on_read;
        arena_init(&schedule->places[i].arena, gateway->mem, READ_ARENA_BYTES_MAX);
    }
    *ret_schedule = schedule;
    return OK;
}

void schedule_start(struct gateway *gateway)
{
    schedule_wake(gateway); /* when its loop runs: a loop that never runs gets no dues */
}

void schedule_end(struct gateway *gateway, unsigned loop)
{
    struct schedule *schedule = gateway->schedule;
    if (loop == 0) {
        unsubscribe(schedule);
        topics_forget(schedule);
        schedule->is_ended = true;
        ASSERT(schedule->topics == NULL); /* the gateway is idle */
        net_wheel_remove(&loop_of(schedule)->wheel, &schedule->deadline);
    }
}

void schedule_free(struct schedule *schedule)
{
    if (schedule == NULL) {
        return;
    }
    ASSERT(!schedule->is_subscribed);
    for (size_t i = 0; i < SCHEDULE_PLACES; i++) {
        arena_release(&schedule->places[i].arena);
    }
    mem_free(schedule->gateway->mem, schedule);
}
