/*
 * fence: the life of a request that may take effect once, in the order of DESIGN section 9:
 *
 *   fence_begin    key and principal, from the head alone; where the body goes (arrive.c)
 *   fence_handle   the body is whole: fingerprint (arrive.c), flood, begin
 *   decided        granted: forward. Else a replay, or a refusal
 *   forward        the first byte to the upstream, behind a durable grant (P6)
 *   on_head, on_piece, on_end, on_failed   its answer, captured; or how far it got
 *   fence_settle   seal, release or unknown, by the route's rules (long.c: without all of it)
 *   fence_settled  durable: the answer goes to the client (P2)
 *
 * A crash:
 *   before the grant is durable                   nothing happened; the key is fresh
 *   after it, before the first byte upstream      in progress, and unknown once the lease is over,
 *                                                 though nothing was sent: nobody can tell any more
 *   after that, before the seal is durable        the same, and it may have happened
 *   after the seal, before the answer             the client's retry gets the replay
 */
#include <stdio.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/text.h"
#include "gateway/impl.h"
#include "gateway/reconcile.h"

static void ask(struct pass *pass);

static struct pass *pass_of(struct upstream_call *up)
{
    return up->context;
}

/* ---- asking -------------------------------------------------------------------------------- */

void fence_begin(struct pass *pass)
{
    arrive_head(pass);
}

static void refuse_fault(struct pass *pass, enum status status, enum refusal_kind kind)
{
    answer_refusal_now(pass,
        &(struct refusal){.kind = status == E_NOMEM ? REFUSAL_MEMORY : kind,
            .detail = status == E_NOMEM ? SLICE_EMPTY : slice_str(pass->fault.text)},
        NULL);
}

static struct flood_rate rate_of(const struct config_route *route)
{
    return (struct flood_rate){route->duplicate_rate, route->duplicate_burst};
}

void fence_handle(struct pass *pass)
{
    const struct http_head *head = pass->exchange->head;
    struct slice body;
    if (pass->has_refusal) {
        answer_refusal_now(pass, &pass->refusal, NULL);
        return;
    }
    enum status status = request_form_query(
        http_text(head, head->query), pass->exchange->arena, &pass->query, &pass->fault);
    if (status != OK) {
        refuse_fault(pass, status, REFUSAL_REQUEST);
        return;
    }
    status = arrive_body(pass, &body);
    if (status != OK) {
        refuse_fault(pass, status, REFUSAL_SPOOL);
        return;
    }
    status = arrive_begin(pass, body);
    if (status != OK) {
        refuse_fault(pass, status, REFUSAL_REQUEST);
        return;
    }
    if (!door_admit(pass->gateway->door, &pass->call.engine.request.key, rate_of(pass->route),
            &pass->flooded_ms)) {
        answer_refusal_now(pass,
            &(struct refusal){.kind = REFUSAL_FLOODED, .retry_after_ms = pass->flooded_ms},
            "duplicate_refused");
        return;
    }
    ask(pass);
}

/* ---- deciding ------------------------------------------------------------------------------ */

static void wake(struct engine_call *engine)
{
    http_wake(engine->context);
}

static void call_refused(struct door_call *call)
{
    struct http_exchange *exchange = call->engine.context;
    exchange->resume(NULL, exchange);
}

void pass_submit(struct pass *pass, http_handle resume)
{
    struct http_exchange *exchange = pass->exchange;
    exchange->resume = resume;
    pass->call.refused = call_refused;
    pass->call.engine.done = wake;
    pass->call.engine.context = exchange;
    pass->call.engine.arena = exchange->arena;
    pass->call.engine.err = (struct err){.status = OK};
    door_submit(pass->gateway->door, exchange->loop, &pass->call);
    http_turn(exchange);
}

static void forward(struct pass *pass);

static void refuse_conflict(struct pass *pass)
{
    const struct engine_call *engine = &pass->call.engine;
    struct buf extra;
    buf_init(&extra, &pass->mem, 2 * LIMIT_DIFF_BYTES_MAX);
    /* What cannot be explained is a conflict all the same. */
    bool is_told =
        request_form_explain(engine->first_body, &pass->asked, pass->route->conflict_diff,
            pass->route->redact, pass->route->redact_count, &extra, &pass->diff_bytes) == OK;
    answer_refusal_now(pass,
        &(struct refusal){.kind = REFUSAL_CONFLICT,
            .operation_id = slice_str(pass->operation_text),
            .extra = is_told ? buf_view(&extra) : SLICE_EMPTY},
        "conflict_rejected");
}

static void refuse_engine(struct pass *pass)
{
    const struct err *err = &pass->call.engine.err;
    enum refusal_kind kind = err->status == E_LIMIT   ? REFUSAL_OVERLOADED
                             : err->status == E_NOMEM ? REFUSAL_MEMORY
                                                      : REFUSAL_STORE;
    answer_refusal_now(pass,
        &(struct refusal){.kind = kind,
            .detail = err->status == E_LIMIT ? slice_str(err->text) : SLICE_EMPTY,
            .retry_after_ms = 1000},
        NULL);
}

/* The upstream is asked what became of it, once; then the same question again. */
static void reconciled(void *context)
{
    struct pass *pass = context;
    ask(pass);
}

static void held_unknown(struct pass *pass)
{
    const struct record *record = &pass->call.engine.decision.next;
    if (pass->route->on_unknown == CONFIG_UNKNOWN_RECONCILE && !pass->was_reconciled) {
        pass->was_reconciled = true;
        if (reconcile_now(pass->gateway, pass->exchange->loop, pass->gate, pass->route,
                pass->upstream, record, &pass->call.engine, reconciled, pass)) {
            return;
        }
    }
    answer_refusal_now(pass,
        &(struct refusal){.kind = REFUSAL_OUTCOME_UNKNOWN,
            .operation_id = slice_str(pass->operation_text),
            .retry_after_ms = pass->route->on_unknown == CONFIG_UNKNOWN_RECONCILE
                                  ? pass->route->reconcile.every_ms
                                  : 0},
        "held_unknown");
}

static void decided(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct pass *pass = exchange->state;
    const struct engine_call *engine = &pass->call.engine;
    const struct record *record = &engine->decision.next;
    if (engine->err.status != OK) {
        refuse_engine(pass);
        return;
    }
    if (record->fence > 0) {
        pass->operation_id = record->operation_id;
        (void)op_id_put(pass->operation_text, &record->operation_id);
    }
    switch (engine->decision.kind) {
    case DECISION_FIRST_SEEN:
        pass->fence = record->fence;
        pass->attempt = record->attempt;
        answer_tell(pass, 0);
        forward(pass);
        break;
    case DECISION_DUPLICATE_REPLAYED: answer_replay(pass); break;
    case DECISION_IN_PROGRESS:
        answer_refusal_now(pass,
            &(struct refusal){.kind = REFUSAL_IN_PROGRESS,
                .operation_id = slice_str(pass->operation_text),
                .retry_after_ms = 1000},
            "in_progress");
        break;
    case DECISION_CONFLICT_REJECTED: refuse_conflict(pass); break;
    case DECISION_HELD_UNKNOWN: held_unknown(pass); break;
    case DECISION_SEALED:
    case DECISION_RELEASED:
    case DECISION_UNKNOWN:
    case DECISION_RENEWED:
    case DECISION_RESOLVED:
    case DECISION_NOT_FOUND:
    case DECISION_STALE_FENCE:
    case DECISION_ALREADY_SEALED:
    case DECISION_STILL_RUNNING:
    case DECISION_STALE_VERSION:
    case DECISION_NOTHING:
    case DECISION_ENQUEUED:
    case DECISION_CLAIMED:
    case DECISION_DONE:
    case DECISION_NOT_DUE:
    case DECISION_TOO_LATE:
    case DECISION_WRONG_STATUS: ASSERT(false); /* not to a begin of an operation without a source */
    }
}

static void ask(struct pass *pass)
{
    const struct engine_call *asked = &pass->call.engine;
    pass->call.engine = (struct engine_call){
        .request = asked->request, .request_body = asked->request_body, .wait_ms = asked->wait_ms};
    pass_move(pass, PASS_ASKED);
    pass_submit(pass, decided);
}

/* ---- settling ------------------------------------------------------------------------------ */

static void settle(struct pass *pass, enum request_kind kind, enum pass_state state)
{
    ASSERT(pass->fence > 0); /* P4 */
    struct request *request = &pass->call.engine.request;
    struct slice trace = request->trace;
    struct record_key key = request->key;
    pass->call.engine = (struct engine_call){.request = {.kind = kind,
                                                 .key = key,
                                                 .operation_id = pass->operation_id,
                                                 .fence = pass->fence,
                                                 .trace = trace,
                                                 .reason = slice_str(pass->reason)}};
    pass_move(pass, state);
}

static void because(struct pass *pass, const char *text)
{
    (void)snprintf(pass->reason, sizeof pass->reason, "%.*s", (int)sizeof pass->reason - 1, text);
    if (!text_utf8(slice_str(pass->reason))) { /* cut inside a character, or not ours */
        (void)snprintf(pass->reason, sizeof pass->reason, "the upstream failed");
    }
}

static void release(struct pass *pass, const char *reason)
{
    because(pass, reason);
    settle(pass, REQUEST_RELEASE, PASS_SETTLING);
    pass_submit(pass, fence_settled);
}

static void doubt(struct pass *pass, const char *reason)
{
    because(pass, reason);
    settle(pass, REQUEST_UNKNOWN, PASS_SETTLING);
    pass_submit(pass, fence_settled);
}

/* RFC 9110 section 15.5: what these say is that the request was not looked at. To replay them for a
 * day would wedge a key for a passing reason. */
static bool is_passing(unsigned status)
{
    return status == 408 || status == 425 || status == 429;
}

static void put_outcome(struct pass *pass)
{
    struct engine_call *engine = &pass->call.engine;
    struct outcome *outcome = &engine->request.outcome;
    engine->request.status = pass->kept_status >= 400 ? RECORD_FAILED : RECORD_EXECUTED;
    engine->request.effect_id = pass->effect_id;
    outcome->code = (int32_t)pass->kept_status;
    outcome->meta = buf_view(&pass->meta);
}

/* What the route makes of the upstream's answer. */
static enum request_kind rule_of(const struct pass *pass)
{
    if (is_passing(pass->kept_status)) {
        return REQUEST_RELEASE;
    }
    if (pass->kept_status < 500) {
        return REQUEST_SEAL;
    }
    switch (pass->route->on_5xx) {
    case CONFIG_5XX_SEAL: return REQUEST_SEAL;
    case CONFIG_5XX_UNKNOWN: return REQUEST_UNKNOWN;
    case CONFIG_5XX_RELEASE: break;
    }
    return REQUEST_RELEASE;
}

/* By its rule, with the body as it is to be kept. */
void fence_settle(struct pass *pass, const struct body_ref *body, enum pass_state state)
{
    enum request_kind kind = rule_of(pass);
    char reason[64];
    (void)snprintf(reason, sizeof reason, "the upstream answered %u", pass->kept_status);
    because(pass, kind == REQUEST_SEAL ? "" : reason);
    settle(pass, kind, state);
    if (kind == REQUEST_SEAL) {
        put_outcome(pass);
        pass->call.engine.request.outcome.body = *body;
        pass->call.engine.outcome_body = body->retained ? pass->view : SLICE_EMPTY;
    } else {
        pass->effect = kind == REQUEST_UNKNOWN ? "unknown" : "no";
    }
}

/* All of it is here. */
static void settle_whole(struct pass *pass)
{
    struct body_ref body = {.bytes = pass->view.len, .retained = true};
    digest_sha256(pass->view.data, pass->view.len, &body.digest);
    fence_settle(pass, &body, PASS_SETTLING);
    pass_submit(pass, fence_settled);
}

/* Otherwise an operator was faster, or somebody took over: then this answer is not the one that
 * duplicates get (P3). */
static bool is_settled(enum decision_kind kind)
{
    return kind == DECISION_SEALED || kind == DECISION_RELEASED || kind == DECISION_UNKNOWN;
}

bool fence_is_settled(const struct pass *pass)
{
    const struct engine_call *engine = &pass->call.engine;
    return engine->err.status == OK && is_settled(engine->decision.kind);
}

/* Settled, durably, or it can never be. */
void fence_settled(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct pass *pass = exchange->state;
    answer_tell(pass, pass->has_head ? pass->kept_status : 0);
    if (pass->call.engine.err.status != OK) {
        /* What the upstream did is done; only nobody will remember its answer. */
        answer_refusal_now(pass,
            &(struct refusal){.kind = REFUSAL_NOT_SEALED,
                .operation_id = slice_str(pass->operation_text),
                .effect_known = !pass->has_head            ? PROBLEM_EFFECT_UNKNOWN
                                : pass->kept_status >= 400 ? PROBLEM_EFFECT_NO
                                                           : PROBLEM_EFFECT_YES},
            "first_seen");
    } else if (!is_settled(pass->call.engine.decision.kind)) {
        answer_refusal_now(pass,
            &(struct refusal){.kind = REFUSAL_OUTCOME_UNKNOWN,
                .detail = SLICE_LIT("somebody else settled this operation while it ran"),
                .operation_id = slice_str(pass->operation_text),
                .retry_after_ms = 1000},
            "first_seen");
    } else if (pass->has_head) {
        answer_first(pass);
    } else {
        answer_refusal_now(pass,
            &(struct refusal){
                .kind = pass->failure, .operation_id = slice_str(pass->operation_text)},
            "first_seen");
    }
}

/* ---- the upstream's answer ----------------------------------------------------------------- */

static enum status head_copy(struct pass *pass, const struct http_head *head)
{
    struct arena *arena = pass->exchange->arena;
    struct http_head *copy = arena_alloc(arena, sizeof *copy);
    struct slice bytes;
    if (copy == NULL || arena_copy(arena, slice_of(head->base, head->bytes), &bytes) != OK) {
        return E_NOMEM;
    }
    *copy = *head;
    copy->base = bytes.data;
    pass->answer_head = copy;
    return OK;
}

static void take_effect_id(struct pass *pass)
{
    struct slice id = SLICE_EMPTY;
    if (http_find_single(pass->answer_head, SLICE_LIT("Once-Effect-Id"), &id) &&
        id.len <= LIMIT_EFFECT_ID_BYTES_MAX && text_utf8(id)) {
        pass->effect_id = id;
    }
}

static void fail_up(struct pass *pass, const char *reason)
{
    pass->is_up = false;
    (void)upstream_cancel(&pass->up); /* it was sent: nothing is known but that */
    pass->has_head = false;
    pass->failure = REFUSAL_BROKEN_ANSWER;
    doubt(pass, reason);
}

static void on_head(struct upstream_call *up, const struct http_head *head)
{
    struct pass *pass = pass_of(up);
    ASSERT(pass->state == PASS_FORWARDED);
    pass->kept_status = head->status;
    buf_init(&pass->meta, &pass->mem, LIMIT_OUTCOME_META_BYTES_MAX);
    enum status status = head_copy(pass, head);
    struct fields_kept kept = route_kept(pass->route);
    if (status == OK && fields_keep(pass->answer_head, &kept, &pass->meta) == E_LIMIT) {
        buf_clear(&pass->meta); /* too many fields to keep: the body is kept, with its type */
        status = fields_keep(pass->answer_head, NULL, &pass->meta);
    }
    status = status == OK ? buf_status(&pass->meta) : status;
    if (status != OK) {
        fail_up(pass, "out of memory for the head of the upstream's answer");
        return;
    }
    pass->has_head = true;
    take_effect_id(pass);
    pass_spool_init(pass, &pass->answer, pass->route->outcome_bytes_max);
    if (head->framing == HTTP_BODY_LENGTH && head->length > pass->route->outcome_bytes_max) {
        long_settle(pass);
    }
}

static void on_piece(struct upstream_call *up, struct slice piece)
{
    struct pass *pass = pass_of(up);
    if (pass->state == PASS_STREAMING) {
        long_piece(pass, piece);
        return;
    }
    ASSERT(pass->state == PASS_FORWARDED); /* paused while sealing */
    if (pass_spool(pass, &pass->answer, piece) == OK) {
        return;
    }
    /* This piece is not in the spool: it goes behind it. */
    if (arena_copy(pass->exchange->arena, piece, &pass->rest) != OK ||
        spool_view(&pass->answer, &pass->view, &pass->fault) != OK) {
        fail_up(pass, "out of memory for the upstream's answer");
        return;
    }
    long_settle(pass);
}

static void on_end(struct upstream_call *up)
{
    struct pass *pass = pass_of(up);
    pass->is_up = false;
    if (pass->state != PASS_FORWARDED) {
        long_ended(pass, true);
        return;
    }
    enum status status = spool_view(&pass->answer, &pass->view, &pass->fault);
    if (status != OK) {
        pass->has_head = false;
        pass->failure = REFUSAL_BROKEN_ANSWER;
        doubt(pass, pass->fault.text);
        return;
    }
    settle_whole(pass);
}

static void on_failed(struct upstream_call *up, enum upstream_point point,
    enum upstream_cause cause, const struct err *err)
{
    struct pass *pass = pass_of(up);
    pass->is_up = false;
    if (pass->state != PASS_FORWARDED) {
        long_ended(pass, false);
        return;
    }
    pass->has_head = false;
    answer_log_failure(pass, err);
    if (point == UPSTREAM_NOT_SENT) {
        pass->failure = cause == UPSTREAM_CAUSE_BUSY ? REFUSAL_UPSTREAM_BUSY : REFUSAL_UNREACHABLE;
        release(pass, err->text);
    } else {
        pass->failure = point == UPSTREAM_HEAD || cause == UPSTREAM_CAUSE_MALFORMED
                            ? REFUSAL_BROKEN_ANSWER
                            : REFUSAL_NO_ANSWER;
        doubt(pass, err->text);
    }
}

static const struct upstream_events fence_events = {
    .head = on_head, .piece = on_piece, .end = on_end, .failed = on_failed};

/* ---- forwarding ---------------------------------------------------------------------------- */

static enum status forward_head(struct pass *pass, struct slice body)
{
    const struct http_head *head = pass->exchange->head;
    struct fields_added added = {.authority = upstreams_authority(pass->upstream),
        .idempotency_key = pass->key_field,
        .request_id = pass->exchange->request_id,
        .operation_id = slice_str(pass->operation_text),
        .fence = pass->fence,
        .attempt = pass->attempt,
        .traceparent = pass->traceparent,
        .peer = pass->exchange->peer,
        .is_tls = pass->gate->gateway->tls_cert != NULL,
        .length = head->framing == HTTP_BODY_NONE ? HTTP_LENGTH_ABSENT : (int64_t)body.len};
    buf_init(&pass->request_head, &pass->mem, 64 << 10);
    return fields_request(head, &added, &pass->request_head);
}

static void forward(struct pass *pass)
{
    ASSERT(pass->fence > 0); /* P6: the grant is durable, the engine said so */
    struct slice body;
    struct http_exchange *exchange = pass->exchange;
    enum status status = arrive_body(pass, &body);
    status = status == OK ? forward_head(pass, body) : status;
    if (status != OK || atomic_load(&pass->gateway->is_cut)) {
        pass->failure = status == OK ? REFUSAL_OVERLOADED : REFUSAL_MEMORY;
        release(pass, status == OK ? "the gateway is about to end; nothing was sent"
                                   : "out of memory before anything was sent");
        return;
    }
    pass->up = (struct upstream_call){.events = &fence_events,
        .head = buf_view(&pass->request_head),
        .body = body,
        .method = exchange->head->method,
        .timeouts = {.connect_ms = pass->route->connect_ms,
            .first_byte_ms = pass->route->first_byte_ms,
            .total_ms = pass->route->total_ms},
        .context = pass};
    pass->is_up = true;
    pass_move(pass, PASS_FORWARDED);
    upstream_start(upstreams_on(pass->gateway->upstreams, pass->upstream, exchange->loop),
        exchange->loop, &pass->up);
}
