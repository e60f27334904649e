/*
 * The life of one question:
 *
 *   reconcile_now ──▶ ASKING ── the whole answer, and it means something ──▶ SETTLING ──▶ OVER
 *                        └───── anything else, or no answer ─────────────────────────────▲
 *
 *   reconcile_now   nobody else asks: into the list, then GET
 *   answered        what the answer means; settle, or over
 *   on_settled      on the engine's thread: back to the loop
 *   over            out of the list, told, done
 *
 * What holds:
 *   Q1  one question in the list of an operation, from reconcile_now to over.
 *   Q2  ASKING has a call with the upstream, SETTLING one in the engine; neither has both.
 *   Q3  over runs by itself, as a task of the loop, so that done never runs inside of reconcile_now
 *       or of an event of the upstream.
 *
 * A crash before the settling is durable: the operation is as unknown as before, and is asked about
 * again.
 */
#include "gateway/reconcile.h"

#include "base/check.h"
#include "base/uuid.h"
#include "canon/trace.h"
#include "gateway/reconcile_rules.h"

enum {
    QUESTIONS_MAX = 256,                /* under way at a time: a burst of duplicates of many
                                         operations is not to take all connections */
    QUESTION_ARENA_BYTES_MAX = 1 << 20, /* a record, two heads and fields, at their limits */
    QUESTION_HEAD_BYTES_MAX = 64 << 10, /* a long template with a credential */
};

enum reconciling_state { RECONCILING_ASKING, RECONCILING_SETTLING, RECONCILING_OVER };

struct reconciling {
    struct engine_call settle; /* first, so that the engine's pointer is ours */
    struct net_task task;      /* to the loop: over */
    struct upstream_call up;
    enum reconciling_state state;
    struct reconciling *prev; /* in the gateway's list */
    struct reconciling *next;
    struct gateway *gateway;
    unsigned loop;
    struct gate *gate; /* held */
    const struct config_route *route;
    struct upstreams_one *upstream;
    void (*done)(void *context);
    void *context;
    uint64_t started_nanos;
    struct arena arena;
    struct mem mem; /* that arena */

    /* Asked. */
    struct record_key key;
    struct op_id operation_id;
    uint64_t fence; /* of the attempt that is asked about */
    bool is_quiet;  /* nothing of that attempt could still come when it was asked about */
    char operation_text[OP_ID_TEXT_BYTES];
    char request_id[UUID_TEXT_BYTES];
    struct slice target;
    struct slice head;
    bool is_again; /* tried a second time, on a fresh connection */

    /* Answered. */
    enum reconcile_verdict verdict;
    unsigned status;
    struct err fault; /* why it is still open */
    struct slice effect_id;
    struct buf meta;
    struct spool body;
    uint64_t dropped;    /* bytes of a body that is not kept */
    struct body_ref ref; /* of the body, as it is to be kept */
    struct slice view;
    char reason[LIMIT_REASON_BYTES_MAX + 1];
};

static struct reconciling *reconciling_of(struct upstream_call *up)
{
    return up->context;
}

/* ---- one at a time ------------------------------------------------------------------------- */

/* By the engine's time when the record was read, which is before the question is sent. The wall
 * clock decides nothing here: a step ahead would end the quiet time at once (P5, P8). */
static bool is_quiet(struct gateway *gateway, const struct config_route *route,
    const struct record *record, const struct engine_call *read)
{
    (void)pthread_mutex_lock(&gateway->lock);
    reconcile_watch(&gateway->watch, read->now_ms, read->boot_ms);
    bool is_quiet =
        reconcile_is_quiet(&route->reconcile, &gateway->watch, record->updated_ms, read->now_ms);
    (void)pthread_mutex_unlock(&gateway->lock);
    return is_quiet;
}

/* False: somebody asks about this operation already, or too many are asked about. */
static bool enter(struct reconciling *reconciling)
{
    struct gateway *gateway = reconciling->gateway;
    (void)pthread_mutex_lock(&gateway->lock);
    bool is_free = gateway->reconcile_count < QUESTIONS_MAX;
    for (const struct reconciling *at = gateway->questions; is_free && at != NULL; at = at->next) {
        is_free = !op_id_equal(&at->operation_id, &reconciling->operation_id); /* Q1 */
    }
    if (is_free) {
        reconciling->next = gateway->questions;
        if (reconciling->next != NULL) {
            reconciling->next->prev = reconciling;
        }
        gateway->questions = reconciling;
        gateway->reconcile_count++;
    }
    (void)pthread_mutex_unlock(&gateway->lock);
    return is_free;
}

static void leave(struct reconciling *reconciling)
{
    struct gateway *gateway = reconciling->gateway;
    (void)pthread_mutex_lock(&gateway->lock);
    *(reconciling->prev == NULL ? &gateway->questions : &reconciling->prev->next) =
        reconciling->next;
    if (reconciling->next != NULL) {
        reconciling->next->prev = reconciling->prev;
    }
    ASSERT(gateway->reconcile_count > 0);
    gateway->reconcile_count--;
    (void)pthread_mutex_unlock(&gateway->lock);
}

static void reconciling_free(struct reconciling *reconciling)
{
    const struct mem *mem = reconciling->gateway->mem;
    gate_drop(reconciling->gateway, reconciling->gate);
    spool_release(&reconciling->body);
    arena_release(&reconciling->arena);
    mem_free(mem, reconciling);
}

/* ---- the end ------------------------------------------------------------------------------- */

static void tell_settled(const struct reconciling *reconciling)
{
    struct door_report report = {.call = &reconciling->settle,
        .tenant = reconciling->key.tenant,
        .actor = reconciling->settle.request.actor,
        .request_id = slice_str(reconciling->request_id),
        .status = reconciling->status,
        .started_nanos = reconciling->started_nanos,
        .logs = reconciling->gate->config->log_decisions};
    door_report(reconciling->gateway->door, reconciling->loop, &report);
}

/* Whoever wonders why an operation stays unknown finds it here. */
static void tell_open(const struct reconciling *reconciling)
{
    struct log_field fields[] = {
        LOG_TEXT("operation_id", slice_str(reconciling->operation_text)),
        LOG_TEXT("tenant", reconciling->key.tenant),
        LOG_TEXT("scope", reconciling->key.scope),
        LOG_TEXT("idempotency_key", reconciling->key.key),
        LOG_TEXT("request_id", slice_str(reconciling->request_id)),
        LOG_NUMBER("status", reconciling->status),
        LOG_TEXT("text", reconciling->fault.text[0] == '\0'
                             ? SLICE_LIT("the answer is neither executed nor not_executed")
                             : slice_str(reconciling->fault.text)),
    };
    log_event(door_log(reconciling->gateway->door), LOG_WARN, "reconcile_open", fields,
        sizeof fields / sizeof fields[0]);
}

static void over(struct net_task *task)
{
    struct reconciling *reconciling =
        (struct reconciling *)(void *)((char *)task - offsetof(struct reconciling, task));
    struct gateway *gateway = reconciling->gateway;
    void (*done)(void *context) = reconciling->done;
    void *context = reconciling->context;
    ASSERT(reconciling->state != RECONCILING_OVER);
    if (reconciling->verdict == RECONCILE_OPEN) {
        tell_open(reconciling);
    } else {
        tell_settled(reconciling);
    }
    reconciling->state = RECONCILING_OVER;
    leave(reconciling);
    reconciling_free(reconciling);
    done(context);
    atomic_fetch_sub(&gateway->busy, 1);
}

static void post_over(struct reconciling *reconciling)
{
    reconciling->task.run = over;
    net_loop_post(
        http_server_loop(reconciling->gateway->server, reconciling->loop), &reconciling->task);
}

static void stay_open(struct reconciling *reconciling)
{
    reconciling->verdict = RECONCILE_OPEN;
    post_over(reconciling);
}

/* ---- settling ------------------------------------------------------------------------------ */

/* On the engine's thread. */
static void on_settled(struct engine_call *call)
{
    struct reconciling *reconciling = (struct reconciling *)(void *)call;
    struct gateway *gateway = reconciling->gateway;
    post_over(reconciling); /* from here on it may be gone */
    atomic_fetch_sub(&gateway->in_engine, 1);
}

static void put_outcome(struct reconciling *reconciling)
{
    struct engine_call *engine = &reconciling->settle;
    struct outcome *outcome = &engine->request.outcome;
    engine->request.effect_id = reconciling->effect_id;
    outcome->code = (int32_t)reconciling->status;
    outcome->meta = buf_view(&reconciling->meta);
    outcome->body = reconciling->ref;
    engine->outcome_body = reconciling->ref.retained ? reconciling->view : SLICE_EMPTY;
}

/* So that the evidence leads to the upstream's own log. */
static struct slice trace_of(struct reconciling *reconciling)
{
    struct trace_member own[] = {{SLICE_LIT("request_id"), slice_str(reconciling->request_id)}};
    struct buf out;
    struct err err;
    buf_init(&out, &reconciling->mem, LIMIT_TRACE_BYTES_MAX);
    return trace_write(NULL, own, 1, &out, &err) == OK ? buf_view(&out) : SLICE_EMPTY;
}

static void settle(struct reconciling *reconciling)
{
    struct gateway *gateway = reconciling->gateway;
    bool was_executed = reconciling->verdict == RECONCILE_EXECUTED;
    ASSERT(reconciling->state == RECONCILING_ASKING);
    ASSERT(reconciling->verdict != RECONCILE_OPEN);
    reconcile_reason(reconciling->target, reconciling->status, reconciling->reason);
    reconciling->settle = (struct engine_call){
        .request = {.kind = REQUEST_RESOLVE,
            .key = reconciling->key,
            .operation_id = reconciling->operation_id,
            .fence = reconciling->fence, /* N6: of a later attempt the answer says nothing */
            .status = was_executed ? RECORD_EXECUTED : RECORD_RELEASED,
            .trace = trace_of(reconciling),
            .actor = SLICE_LIT("reconcile"),
            .reason = slice_str(reconciling->reason)},
        .arena = &reconciling->arena,
        .done = on_settled};
    if (was_executed) {
        put_outcome(reconciling);
    }
    reconciling->state = RECONCILING_SETTLING;
    atomic_fetch_add(&gateway->in_engine, 1);
    struct err err;
    if (engine_submit(door_engine(gateway->door), &reconciling->settle, &err) != OK) {
        reconciling->settle.err = err;
        on_settled(&reconciling->settle);
    }
}

/* ---- the answer ---------------------------------------------------------------------------- */

/* All of it that is needed is here, and its verdict was read from its head. */
static void answered(struct reconciling *reconciling)
{
    if (reconciling->verdict == RECONCILE_OPEN) {
        stay_open(reconciling);
    } else {
        settle(reconciling);
    }
}

/* The answer cannot be kept for want of something: as if there had been none. */
static void give_up(struct reconciling *reconciling)
{
    (void)upstream_cancel(&reconciling->up);
    reconciling->status = 0;
    stay_open(reconciling);
}

static enum status keep_head(struct reconciling *reconciling, const struct http_head *head)
{
    struct slice id = SLICE_EMPTY;
    buf_init(&reconciling->meta, &reconciling->mem, LIMIT_OUTCOME_META_BYTES_MAX);
    struct fields_kept kept = route_kept(reconciling->route);
    enum status status = fields_keep(head, &kept, &reconciling->meta);
    if (status == E_LIMIT) {
        buf_clear(&reconciling->meta); /* too many fields: the body is kept, with its type */
        status = fields_keep(head, NULL, &reconciling->meta);
    }
    if (status == OK && http_find_single(head, SLICE_LIT("Once-Effect-Id"), &id) &&
        id.len <= LIMIT_EFFECT_ID_BYTES_MAX && text_utf8(id)) {
        status = arena_copy(&reconciling->arena, id, &reconciling->effect_id);
    }
    return status;
}

/* Longer than is kept: an outcome without its body. */
static void answered_long(struct reconciling *reconciling, uint64_t bytes)
{
    (void)upstream_cancel(&reconciling->up);
    reconciling->ref = (struct body_ref){.bytes = bytes, .retained = false};
    answered(reconciling);
}

static void on_head(struct upstream_call *up, const struct http_head *head)
{
    struct reconciling *reconciling = reconciling_of(up);
    const struct config_route *route = reconciling->route;
    reconciling->status = head->status;
    reconciling->verdict = reconcile_verdict_of(&route->reconcile, head->status);
    if (reconciling->verdict == RECONCILE_NOT_EXECUTED && !reconciling->is_quiet) {
        reconciling->verdict = RECONCILE_OPEN;
        (void)err_set(
            &reconciling->fault, E_UNKNOWN, "not executed so far; believed after reconcile.quiet");
    }
    if (reconciling->verdict != RECONCILE_EXECUTED) {
        return;
    }
    spool_init(&reconciling->body, reconciling->gateway->mem, reconciling->gateway->spool_dir,
        reconciling->gate->gateway->spool_memory_bytes, route->outcome_bytes_max);
    if (keep_head(reconciling, head) != OK) {
        (void)err_set(&reconciling->fault, E_NOMEM, "out of memory for the head of the answer");
        give_up(reconciling);
    } else if (head->framing == HTTP_BODY_LENGTH && head->length > route->outcome_bytes_max) {
        answered_long(reconciling, head->length);
    }
}

static void on_piece(struct upstream_call *up, struct slice piece)
{
    struct reconciling *reconciling = reconciling_of(up);
    if (reconciling->verdict != RECONCILE_EXECUTED) {
        reconciling->dropped += piece.len;
        if (reconciling->dropped > GATEWAY_DISCARD_BYTES_MAX) {
            (void)upstream_cancel(up); /* its status says all */
            answered(reconciling);
        }
        return;
    }
    enum status status = spool_put(&reconciling->body, piece, &reconciling->fault);
    if (status == E_LIMIT) {
        answered_long(reconciling, reconciling->route->outcome_bytes_max + 1);
    } else if (status != OK) {
        give_up(reconciling);
    }
}

static void on_end(struct upstream_call *up)
{
    struct reconciling *reconciling = reconciling_of(up);
    if (reconciling->verdict == RECONCILE_EXECUTED) {
        if (spool_view(&reconciling->body, &reconciling->view, &reconciling->fault) != OK) {
            reconciling->status = 0;
            stay_open(reconciling);
            return;
        }
        struct slice view = reconciling->view;
        reconciling->ref = (struct body_ref){.bytes = view.len, .retained = true};
        digest_sha256(view.data, view.len, &reconciling->ref.digest);
    }
    answered(reconciling);
}

static void start(struct reconciling *reconciling);

static void on_failed(struct upstream_call *up, enum upstream_point point,
    enum upstream_cause cause, const struct err *err)
{
    struct reconciling *reconciling = reconciling_of(up);
    bool is_stale = point == UPSTREAM_SENT && cause == UPSTREAM_CAUSE_BROKEN;
    if (is_stale && !reconciling->is_again && !atomic_load(&reconciling->gateway->is_cut)) {
        reconciling->is_again = true; /* the connection had been idle; a GET may be sent again */
        start(reconciling);
        return;
    }
    reconciling->status = 0;
    reconciling->fault = *err;
    stay_open(reconciling);
}

/* ---- asking -------------------------------------------------------------------------------- */

static const struct upstream_events reconcile_events = {
    .head = on_head, .piece = on_piece, .end = on_end, .failed = on_failed};

static void start(struct reconciling *reconciling)
{
    const struct config_route *route = reconciling->route;
    reconciling->up = (struct upstream_call){.events = &reconcile_events,
        .head = reconciling->head,
        .method = HTTP_METHOD_GET,
        .timeouts = {.connect_ms = route->connect_ms,
            .first_byte_ms = route->first_byte_ms,
            .total_ms = route->total_ms},
        .context = reconciling};
    upstream_start(
        upstreams_on(reconciling->gateway->upstreams, reconciling->upstream, reconciling->loop),
        reconciling->loop, &reconciling->up);
}

static struct slice credential_of(const struct reconciling *reconciling)
{
    const struct gate *gate = reconciling->gate;
    size_t number = (size_t)(reconciling->route - gate->gateway->routes);
    ASSERT(number < gate->gateway->route_count); /* `otherwise` fences nothing */
    return buf_view(&gate->credentials[number]);
}

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
    buf_init(&head, &reconciling->mem, QUESTION_HEAD_BYTES_MAX);
    reconcile_key(reconciling->key.key, &key);
    http_put_request(&put, &head, SLICE_LIT("GET"), reconciling->target);
    put_field(&put, "Host", upstreams_authority(reconciling->upstream));
    put_field(&put, "User-Agent", SLICE_LIT("once/" ONCE_VERSION));
    put_field(&put, "Authorization", credential_of(reconciling));
    put_field(&put, "Idempotency-Key", buf_view(&key));
    put_field(&put, "Request-Id", slice_str(reconciling->request_id));
    put_field(&put, "Once-Operation-Id", slice_str(reconciling->operation_text));
    http_put_number(&put, SLICE_LIT("Once-Fence"), reconciling->fence);
    enum status status = http_put_end(&put);
    status = status == OK ? buf_status(&key) : status;
    reconciling->head = buf_view(&head);
    return status;
}

static enum status prepare(struct reconciling *reconciling, const struct record *record)
{
    struct arena *arena = &reconciling->arena;
    struct buf target;
    struct err err;
    buf_init(&target, &reconciling->mem, QUESTION_HEAD_BYTES_MAX);
    (void)op_id_put(reconciling->operation_text, &record->operation_id);
    reconciling->key = record->key;
    enum status status = arena_copy(arena, record->key.tenant, &reconciling->key.tenant);
    status = status == OK ? arena_copy(arena, record->key.scope, &reconciling->key.scope) : status;
    status = status == OK ? arena_copy(arena, record->key.principal, &reconciling->key.principal)
                          : status;
    status = status == OK ? arena_copy(arena, record->key.key, &reconciling->key.key) : status;
    status = status == OK ? uuid_new(reconciling->request_id, &err) : status;
    struct reconcile_names names = {record->key.key, slice_str(reconciling->operation_text)};
    status = status == OK
                 ? reconcile_target(reconciling->route->reconcile.get, &names, &target, &err)
                 : status;
    reconciling->target = buf_view(&target);
    return status == OK ? put_head(reconciling) : status;
}

static struct reconciling *reconciling_new(struct gateway *gateway, unsigned loop,
    struct gate *gate, const struct config_route *route, const struct record *record)
{
    struct reconciling *reconciling = mem_zalloc(gateway->mem, 1, sizeof *reconciling);
    if (reconciling == NULL) {
        return NULL;
    }
    arena_init(&reconciling->arena, gateway->mem, QUESTION_ARENA_BYTES_MAX);
    reconciling->mem = arena_mem(&reconciling->arena);
    reconciling->gateway = gateway;
    reconciling->loop = loop;
    reconciling->gate = gate;
    reconciling->route = route;
    reconciling->operation_id = record->operation_id;
    reconciling->fence = record->fence;
    reconciling->started_nanos = clock_nanos();
    gate_hold(gateway, gate);
    return reconciling;
}

bool reconcile_now(struct gateway *gateway, unsigned loop, struct gate *gate,
    const struct config_route *route, struct upstreams_one *upstream, const struct record *record,
    const struct engine_call *read, void (*done)(void *context), void *context)
{
    ASSERT(record->fence > 0); /* P4 */
    if (route->reconcile.get == NULL) {
        return false;
    }
    struct reconciling *reconciling = reconciling_new(gateway, loop, gate, route, record);
    if (reconciling == NULL) {
        return false;
    }
    reconciling->upstream = upstream;
    reconciling->is_quiet = is_quiet(gateway, route, record, read);
    reconciling->done = done;
    reconciling->context = context;
    atomic_fetch_add(&gateway->busy, 1); /* before is_cut is asked */
    bool is_in = !atomic_load(&gateway->is_cut) && enter(reconciling);
    if (!is_in || prepare(reconciling, record) != OK) {
        if (is_in) {
            leave(reconciling);
        }
        reconciling_free(reconciling);
        atomic_fetch_sub(&gateway->busy, 1);
        return false;
    }
    start(reconciling);
    return true;
}
