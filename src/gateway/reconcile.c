/*
 * The life of one question:
 *
 *   reconcile_now ──▶ ASKING ── the answer means something ──▶ SETTLING ──▶ OVER
 *                        └───── it does not, or none came ────────────────────▲
 *
 * Transitions, all through move, which refuses any other:
 *   ASKING → SETTLING   on_answered   the outcall judged it executed, or not executed
 *   ASKING → OVER       over          still unknown
 *   SETTLING → OVER     over          on_settled, on a thread of the engine, has posted it here
 *
 * What holds:
 *   RQ1 one question in the list of an operation, from reconcile_now to over. All who wait for it
 *       are in its list, which only the gateway's lock protects.
 *   RQ2 ASKING has an outcall that is not over, or that is over and has posted `over`; SETTLING has
 *       a call in the engine; neither has both.
 *   RQ3 over runs as a separate task of the loop, so that done never runs inside reconcile_now or
 *       an event of the upstream.
 *
 * After a crash before the settling is durable, the operation is still unknown, and the upstream is
 * asked again.
 */
#include "gateway/reconcile.h"

#include "base/check.h"
#include "base/macros.h"
#include "base/uuid.h"
#include "engine/request_builder.h"

enum {
    RECONCILING_MAX = 256,     /* at a time: a burst of duplicates of many operations must not take
                                  all connections */
    ARENA_BYTES_MAX = 1 << 20, /* a record and a head, at their limits */
    HEAD_BYTES_MAX = 64 << 10, /* a long template with a credential */
};

enum reconciling_state { RECONCILING_ASKING, RECONCILING_SETTLING, RECONCILING_OVER };

struct reconciling {
    struct engine_call settle;
    struct net_task task; /* to the loop: runs over */
    struct outcall out;
    enum reconciling_state state;
    struct reconciling *prev; /* in the gateway's list */
    struct reconciling *next;
    struct gateway *gateway;
    unsigned loop;
    struct gateway_config *config; /* held */
    const struct config_route *route;
    struct upstreams_one *upstream;
    struct reconcile_wait *waits; /* RQ1 */
    uint64_t started_nanos;
    struct arena arena;
    struct mem mem; /* that arena */

    /* The operation in question. */
    struct record_key key;
    struct op_id operation_id;
    uint64_t fence; /* of the attempt in question */
    bool is_quiet;  /* that attempt could no longer take effect when the upstream was asked */
    char operation_text[OP_ID_TEXT_BYTES];
    char request_id[UUID_TEXT_BYTES];
    struct slice target;
    struct slice head;
    struct reconcile_statuses statuses; /* the meaning of each status */
    char reason[LIMIT_REASON_BYTES_MAX + 1];
};

static void move(struct reconciling *reconciling, enum reconciling_state state)
{
    enum reconciling_state from = reconciling->state;
    ASSERT(from != RECONCILING_OVER);
    ASSERT(
        state == RECONCILING_OVER || (from == RECONCILING_ASKING && state == RECONCILING_SETTLING));
    ASSERT(reconciling->out.state == OUTCALL_OVER); /* RQ2 */
    reconciling->state = state;
}

/* ---- one at a time ------------------------------------------------------------------------- */

/* By the engine's time when the record was read, which is before the question is sent. The wall
 * clock decides nothing here: a step ahead would end the quiet time at once (P5, P8). Nor does the
 * time that the machine slept: an upstream on this machine slept too, and still has the request. */
static bool is_quiet(struct gateway *gateway, const struct config_route *route,
    const struct record *record, const struct engine_call *read)
{
    int64_t awake_ms = read->boot_ms - clock_asleep_ms(&gateway->clock);
    (void)pthread_mutex_lock(&gateway->lock);
    quiet_note(&gateway->watch, read->now_ms, awake_ms);
    int64_t quiet_ms = quiet_for_ms(&gateway->watch, record->updated_ms, read->now_ms);
    (void)pthread_mutex_unlock(&gateway->lock);
    return quiet_ms >= route->reconcile.quiet_ms;
}

static void wait_for(struct reconciling *reconciling, struct reconcile_wait *wait)
{
    wait->next = reconciling->waits;
    reconciling->waits = wait;
}

static struct reconciling *find(const struct gateway *gateway, const struct op_id *operation_id)
{
    struct reconciling *at = gateway->reconciling;
    while (at != NULL && !op_id_equal(&at->operation_id, operation_id)) {
        at = at->next;
    }
    return at;
}

/* Put the question into the list, or join the one that is there. */
static enum reconcile_begun enter(struct reconciling *reconciling, struct reconcile_wait *wait)
{
    struct gateway *gateway = reconciling->gateway;
    enum reconcile_begun begun = RECONCILE_NOT_ASKED;
    (void)pthread_mutex_lock(&gateway->lock);
    struct reconciling *other = find(gateway, &reconciling->operation_id); /* RQ1 */
    if (other != NULL && other->fence == reconciling->fence) {
        wait_for(other, wait);
        begun = RECONCILE_JOINED;
    } else if (other == NULL && gateway->reconciling_count < RECONCILING_MAX) {
        wait_for(reconciling, wait);
        reconciling->next = gateway->reconciling;
        if (reconciling->next != NULL) {
            reconciling->next->prev = reconciling;
        }
        gateway->reconciling = reconciling;
        gateway->reconciling_count++;
        begun = RECONCILE_ASKED;
    }
    (void)pthread_mutex_unlock(&gateway->lock);
    return begun;
}

/* All who waited for it: from here on nobody joins. */
static struct reconcile_wait *leave(struct reconciling *reconciling)
{
    struct gateway *gateway = reconciling->gateway;
    (void)pthread_mutex_lock(&gateway->lock);
    *(reconciling->prev == NULL ? &gateway->reconciling : &reconciling->prev->next) =
        reconciling->next;
    if (reconciling->next != NULL) {
        reconciling->next->prev = reconciling->prev;
    }
    ASSERT(gateway->reconciling_count > 0);
    gateway->reconciling_count--;
    struct reconcile_wait *waits = reconciling->waits;
    (void)pthread_mutex_unlock(&gateway->lock);
    return waits;
}

static void reconciling_free(struct reconciling *reconciling)
{
    const struct mem *mem = reconciling->gateway->mem;
    outcall_release(&reconciling->out);
    gateway_config_drop(reconciling->gateway, reconciling->config);
    arena_release(&reconciling->arena);
    mem_free(mem, reconciling);
}

/* ---- the end ------------------------------------------------------------------------------- */

static bool is_still_unknown(const struct reconciling *reconciling)
{
    return reconciling->out.verdict == VERDICT_UNKNOWN;
}

static void report_settled(const struct reconciling *reconciling)
{
    struct door_report report = {.call = &reconciling->settle,
        .tenant = reconciling->key.tenant,
        .label = slice_str(reconciling->route->match),
        .actor = reconciling->settle.request.actor,
        .request_id = slice_str(reconciling->request_id),
        .status = reconciling->out.status,
        .started_nanos = reconciling->started_nanos,
        .logs = reconciling->config->whole->log_decisions};
    door_report(reconciling->gateway->door, reconciling->loop, &report);
}

static struct slice why_unknown(const struct reconciling *reconciling)
{
    const struct outcall *out = &reconciling->out;
    if (out->point != OUTCALL_ANSWERED) {
        return slice_str(out->err.text);
    }
    return reconcile_is_not_executed(&reconciling->route->reconcile, out->status)
               ? SLICE_LIT("not executed so far; believed after reconcile.quiet")
               : SLICE_LIT("the answer is neither executed nor not_executed");
}

/* Tells an operator why an operation stays unknown. */
static void report_unknown(const struct reconciling *reconciling)
{
    const struct outcall *out = &reconciling->out;
    struct log_field fields[] = {
        LOG_TEXT("operation_id", slice_str(reconciling->operation_text)),
        LOG_TEXT("tenant", reconciling->key.tenant),
        LOG_TEXT("scope", reconciling->key.scope),
        LOG_TEXT("idempotency_key", reconciling->key.key),
        LOG_TEXT("request_id", slice_str(reconciling->request_id)),
        LOG_NUMBER("status", out->point == OUTCALL_ANSWERED ? out->status : 0),
        LOG_TEXT("text", why_unknown(reconciling)),
    };
    log_event(
        door_log(reconciling->gateway->door), LOG_WARN, "reconcile_open", fields, COUNT(fields));
}

static void wait_over(struct net_task *task)
{
    struct reconcile_wait *wait = CONTAINER_OF(task, struct reconcile_wait, task);
    struct gateway *gateway = wait->gateway;
    wait->done(wait);
    atomic_fetch_sub(&gateway->busy, 1);
}

static void over(struct net_task *task)
{
    struct reconciling *reconciling = CONTAINER_OF(task, struct reconciling, task);
    struct gateway *gateway = reconciling->gateway;
    if (is_still_unknown(reconciling)) {
        report_unknown(reconciling);
    } else {
        report_settled(reconciling);
    }
    move(reconciling, RECONCILING_OVER);
    struct reconcile_wait *wait = leave(reconciling);
    reconciling_free(reconciling);
    while (wait != NULL) {
        struct reconcile_wait *next = wait->next;
        atomic_fetch_add(&gateway->busy, 1); /* until its task has run: its loop must not end */
        wait->task.run = wait_over;
        net_loop_post(wait->loop, &wait->task);
        wait = next;
    }
    atomic_fetch_sub(&gateway->busy, 1);
}

static void post_over(struct reconciling *reconciling)
{
    reconciling->task.run = over;
    net_loop_post(
        http_server_loop(reconciling->gateway->server, reconciling->loop), &reconciling->task);
}

/* ---- settling ------------------------------------------------------------------------------ */

/* On a thread of the engine. */
static void on_settled(struct engine_call *call)
{
    struct reconciling *reconciling = CONTAINER_OF(call, struct reconciling, settle);
    struct gateway *gateway = reconciling->gateway;
    post_over(reconciling); /* it may be freed from here on */
    atomic_fetch_sub(&gateway->in_engine, 1);
}

/* So that the evidence leads to the upstream's own log. */
static struct slice trace_of(struct reconciling *reconciling)
{
    struct slice trace = SLICE_EMPTY;
    (void)!builder_trace(
        NULL, slice_str(reconciling->request_id), SLICE_EMPTY, &reconciling->mem, &trace, NULL);
    return trace;
}

/* Turn the outcall's verdict into a resolution. */
static void put_resolve(struct reconciling *reconciling)
{
    struct engine_call *settle = &reconciling->settle;
    *settle = (struct engine_call){
        .request = {.key = reconciling->key,
            .operation_id = reconciling->operation_id,
            .fence = reconciling->fence, /* N6: of a later attempt the answer says nothing */
            .trace = trace_of(reconciling),
            .actor = SLICE_LIT("reconcile")},
        .arena = &reconciling->arena,
        .done = on_settled};
    outcall_settle(&reconciling->out, &settle->request, &settle->outcome_body);
    if (settle->request.kind == REQUEST_RELEASE) {
        settle->request.status = RECORD_RELEASED;
    }
    settle->request.kind = REQUEST_RESOLVE;
    reconcile_reason(reconciling->target, reconciling->out.status, reconciling->reason);
    settle->request.reason = slice_str(reconciling->reason);
}

static void on_answered(struct outcall *out)
{
    struct reconciling *reconciling = out->context;
    struct gateway *gateway = reconciling->gateway;
    if (is_still_unknown(reconciling)) {
        post_over(reconciling);
        return;
    }
    put_resolve(reconciling);
    move(reconciling, RECONCILING_SETTLING);
    atomic_fetch_add(&gateway->in_engine, 1);
    struct err err;
    if (engine_submit(door_engine(gateway->door), &reconciling->settle, &err) != OK) {
        reconciling->settle.err = err;
        on_settled(&reconciling->settle);
    }
}

/* ---- asking -------------------------------------------------------------------------------- */

static void put_field(struct http_put *put, const char *name, struct slice value)
{
    if (value.len > 0) {
        http_put_field(put, slice_str(name), value);
    }
}

static enum status put_head(struct reconciling *reconciling)
{
    struct http_put put;
    struct buf key, head;
    buf_init(&key, &reconciling->mem, 2 * LIMIT_KEY_BYTES_MAX + 2);
    buf_init(&head, &reconciling->mem, HEAD_BYTES_MAX);
    reconcile_key(reconciling->key.key, &key);
    http_put_request(&put, &head, SLICE_LIT("GET"), reconciling->target);
    put_field(&put, "Host", upstreams_authority(reconciling->upstream));
    put_field(&put, "User-Agent", SLICE_LIT("once/" ONCE_VERSION));
    put_field(
        &put, "Authorization", gateway_config_credential(reconciling->config, reconciling->route));
    put_field(&put, "Idempotency-Key", buf_view(&key));
    put_field(&put, "Request-Id", slice_str(reconciling->request_id));
    put_field(&put, "Once-Operation-Id", slice_str(reconciling->operation_text));
    http_put_number(&put, SLICE_LIT("Once-Fence"), reconciling->fence);
    enum status status = http_put_end(&put);
    status = status == OK ? buf_status(&key) : status;
    reconciling->head = buf_view(&head);
    return status;
}

static enum status copy_key(
    struct arena *arena, const struct record_key *key, struct record_key *ret_key)
{
    *ret_key = *key;
    enum status status = arena_copy(arena, key->tenant, &ret_key->tenant);
    status = status == OK ? arena_copy(arena, key->scope, &ret_key->scope) : status;
    status = status == OK ? arena_copy(arena, key->principal, &ret_key->principal) : status;
    return status == OK ? arena_copy(arena, key->key, &ret_key->key) : status;
}

static enum status prepare(struct reconciling *reconciling, const struct record *record)
{
    struct buf target;
    struct err err;
    buf_init(&target, &reconciling->mem, HEAD_BYTES_MAX);
    (void)op_id_put(reconciling->operation_text, &record->operation_id);
    enum status status = copy_key(&reconciling->arena, &record->key, &reconciling->key);
    status = status == OK ? uuid_new_name(reconciling->request_id, &err) : status;
    struct reconcile_names names = {record->key.key, slice_str(reconciling->operation_text)};
    status = status == OK
                 ? reconcile_target(reconciling->route->reconcile.get, &names, &target, &err)
                 : status;
    reconciling->target = buf_view(&target);
    return status == OK ? put_head(reconciling) : status;
}

static void start(struct reconciling *reconciling)
{
    struct gateway *gateway = reconciling->gateway;
    const struct config_route *route = reconciling->route;
    struct outcall *out = &reconciling->out;
    *out = (struct outcall){
        .upstream = upstreams_on(gateway->upstreams, reconciling->upstream, reconciling->loop),
        .loop = reconciling->loop,
        .head = reconciling->head,
        .method = HTTP_METHOD_GET,
        .timeouts = {.connect_ms = route->connect_ms,
            .first_byte_ms = route->first_byte_ms,
            .total_ms = route->total_ms},
        .rules = reconcile_rules(&route->reconcile, reconciling->is_quiet, &reconciling->statuses),
        .keeps = {route->replay_headers, route->replay_header_count},
        .has_no_effect = true,
        .wants_outcome_only = true,
        .done = on_answered,
        .context = reconciling};
    outcall_init(out, &(struct outcall_capture){.mem = gateway->mem,
                          .spool_dir = gateway->spool_dir,
                          .memory_bytes = reconciling->config->settings->spool_memory_bytes,
                          .bytes_max = route->outcome_bytes_max,
                          .budget = &gateway->spooled});
    outcall_start(out);
}

static struct reconciling *reconciling_new(
    struct gateway *gateway, const struct reconcile_about *about)
{
    struct reconciling *reconciling = mem_zalloc(gateway->mem, 1, sizeof *reconciling);
    if (reconciling == NULL) {
        return NULL;
    }
    arena_init(&reconciling->arena, gateway->mem, ARENA_BYTES_MAX);
    reconciling->mem = arena_mem(&reconciling->arena);
    reconciling->gateway = gateway;
    reconciling->loop = about->loop;
    reconciling->config = about->config;
    reconciling->route = about->route;
    reconciling->upstream = about->upstream;
    reconciling->operation_id = about->record->operation_id;
    reconciling->fence = about->record->fence;
    reconciling->is_quiet = is_quiet(gateway, about->route, about->record, about->read);
    reconciling->started_nanos = clock_nanos();
    gateway_config_hold(gateway, about->config);
    return reconciling;
}

enum reconcile_begun reconcile_now(
    struct gateway *gateway, const struct reconcile_about *about, struct reconcile_wait *wait)
{
    ASSERT(about->record->fence > 0); /* P4 */
    if (about->route->reconcile.get == NULL) {
        return RECONCILE_NOT_ASKED;
    }
    struct reconciling *reconciling = reconciling_new(gateway, about);
    if (reconciling == NULL) {
        return RECONCILE_NOT_ASKED;
    }
    wait->gateway = gateway;
    wait->loop = http_server_loop(gateway->server, about->loop);
    atomic_fetch_add(&gateway->busy, 1); /* before is_cut is read */
    bool can_ask = !atomic_load(&gateway->is_cut) && prepare(reconciling, about->record) == OK;
    enum reconcile_begun begun = can_ask ? enter(reconciling, wait) : RECONCILE_NOT_ASKED;
    if (begun == RECONCILE_ASKED) {
        start(reconciling);
    } else {
        reconciling_free(reconciling);
        atomic_fetch_sub(&gateway->busy, 1);
    }
    return begun;
}
