/*
 * The life of a request that may take effect once, in the order of docs/gateway.md:
 *
 *   fenced_begin    key and principal, from the head alone; where the body goes
 *   fenced_handle   the body is whole: fingerprint, flood, begin
 *   decided         granted: forward. Else a replay, or a refusal
 *   forward         sends the first byte to the upstream, after a durable grant (P6)
 *   on_done         its answer was captured and judged: seal, release or unknown
 *   on_long         its answer is too long to keep: seal it from its head, and stream the rest
 *                   (fenced_return.c: how answers reach the client, and which do before the seal)
 *   settled         durable: the answer goes to the client (P2)
 *
 * A crash:
 *   before the grant is durable                   nothing happened; the key is fresh
 *   after it, before the first byte upstream      unknown at the next start, though nothing was
 *                                                 sent: nobody can tell afterwards
 *   after that, before the seal is durable        the same, and it may have happened
 *   after the seal, before the answer             the client's retry gets the replay, or, of a long
 *                                                 answer, that it happened and was not kept
 */
#include "gateway/fenced.h"

#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/macros.h"

enum {
    DISCARD_BYTES_MAX = 64 << 10, /* read of a refused request's body, to keep its connection */
    QUESTIONS_MAX = 2,            /* that a duplicate of an unknown operation waits for */
};

static struct fenced *fenced_of(const struct http_exchange *exchange)
{
    return CONTAINER_OF((struct gateway_request *)exchange->state, struct fenced, request);
}

/* ---- states -------------------------------------------------------------------------------- */

#define TO(state)  (1u << FENCED_##state)
#define OUT(state) (1u << OUTCALL_##state)
/* For each state: its successors; whether a call is in the engine (G1); the outcall's states
 * (G2). */
static const struct {
    unsigned nexts;
    bool in_engine;
    unsigned outs;
} states[] = {
    [FENCED_READING] = {TO(ASKED) | TO(ANSWERED), false, OUT(READY)},
    [FENCED_ASKED] = {TO(ASKED) | TO(RECONCILING) | TO(FORWARDED) | TO(SETTLING) | TO(ANSWERED),
        true, OUT(READY)},
    [FENCED_RECONCILING] = {TO(ASKED), false, OUT(READY)},
    [FENCED_FORWARDED] = {TO(SETTLING) | TO(SEALING), false,
        OUT(READY) | OUT(CALLING) | OUT(CAPTURING)},
    [FENCED_SETTLING] = {TO(RETURNING) | TO(ANSWERED), true, OUT(READY) | OUT(OVER)},
    [FENCED_SEALING] = {TO(STREAMING) | TO(ANSWERED), true, OUT(HELD)},
    [FENCED_STREAMING] = {TO(ANSWERED), false, OUT(HELD) | OUT(STREAMING)},
    [FENCED_RETURNING] = {TO(ANSWERED), false, OUT(OVER)},
    [FENCED_ANSWERED] = {0, false, OUT(READY) | OUT(OVER)},
};
#undef TO
#undef OUT

/* Otherwise an operator was faster, or a different grant took over: then duplicates do not get this
 * answer (P3). */
static bool is_settled(const struct fenced *fenced)
{
    const struct engine_call *engine = &fenced->call.engine;
    enum decision_kind kind = engine->decision.kind;
    return engine->err.status == OK &&
           (kind == DECISION_SEALED || kind == DECISION_RELEASED || kind == DECISION_UNKNOWN);
}

static void fenced_check(const struct fenced *fenced)
{
    enum fenced_state state = fenced->state;
    enum outcall_state out = fenced->out.state;
    ASSERT(fenced->in_engine == states[state].in_engine);                             /* G1 */
    ASSERT((states[state].outs & 1u << out) != 0);                                    /* G2 */
    ASSERT(fenced->fence > 0 || (out == OUTCALL_READY && state != FENCED_FORWARDED)); /* G2, P6 */
    ASSERT((state != FENCED_RETURNING && state != FENCED_STREAMING) || is_settled(fenced)); /* G3 */
}

void fenced_move(struct fenced *fenced, enum fenced_state state)
{
    ASSERT((states[fenced->state].nexts & 1u << state) != 0);
    fenced->state = state;
    fenced_check(fenced);
}

void fenced_release(struct fenced *fenced)
{
    outcall_release(&fenced->out);
    spool_release(&fenced->body);
    fenced_move(fenced, FENCED_ANSWERED);
}

void fenced_end(struct fenced *fenced, unsigned status)
{
    fenced_release(fenced);
    gateway_request_end(&fenced->request, status);
}

/* ---- key and principal --------------------------------------------------------------------- */

/* A refusal that is answered after the body was read, so that the connection stays usable; at once
 * if the body is long, or the client waits for 100 Continue. */
static void refuse_early(struct fenced *fenced, enum refusal_kind kind)
{
    const struct http_head *head = fenced->request.exchange->head;
    bool is_short = head->framing == HTTP_BODY_NONE ||
                    (head->framing == HTTP_BODY_LENGTH && !head->expect_continue &&
                        head->length <= DISCARD_BYTES_MAX);
    fenced->refusal = (struct refusal){.kind = kind, .detail = slice_str(fenced->fault.text)};
    fenced->has_refusal = true;
    if (!is_short) {
        fenced_refuse(fenced, &fenced->refusal, NULL);
    }
}

/* Why a key was refused. */
static enum refusal_kind key_refusal(enum status status)
{
    return status == E_NOMEM         ? REFUSAL_MEMORY
           : status == E_UNAVAILABLE ? REFUSAL_STORE
                                     : REFUSAL_KEY_INVALID;
}

/* True: continue. False: the request was refused. */
static bool take_key(struct fenced *fenced)
{
    if (fenced->request.route->key == CONFIG_KEY_JSON) {
        return true; /* see take_body_key, when the body is complete */
    }
    enum status status = fenced_key_from_head(fenced);
    if (status != OK || fenced->key.len == 0) {
        refuse_early(fenced, status == OK ? REFUSAL_KEY_MISSING : key_refusal(status));
    }
    fenced->request.has_key = fenced->key.len > 0;
    return fenced->request.has_key;
}

/* Whether the fields that the policy requires besides the key are present. */
static bool has_required(struct fenced *fenced)
{
    const struct config_gateway *settings = fenced->request.config->settings;
    const struct http_head *head = fenced->request.exchange->head;
    for (size_t i = 0; i < settings->require_header_count; i++) {
        const char *name = settings->require_headers[i];
        if (http_find(head, slice_str(name), 0) == head->field_count) {
            (void)err_set(&fenced->fault, E_INVALID, "the field '%s' is required", name);
            refuse_early(fenced, REFUSAL_REQUEST);
            return false;
        }
    }
    return true;
}

/* With two types nobody knows which one the upstream uses, so the fingerprint could contain
 * neither. */
static bool has_one_type(struct fenced *fenced)
{
    struct slice type;
    if (!http_find_single(fenced->request.exchange->head, SLICE_LIT("Content-Type"), &type)) {
        (void)err_set(&fenced->fault, E_INVALID, "Content-Type came more than once");
        refuse_early(fenced, REFUSAL_REQUEST);
        return false;
    }
    return true;
}

/* Bytes in a tunnel have no key and no outcome. */
static bool is_no_upgrade(struct fenced *fenced)
{
    bool asks = gateway_request_asks_websocket(&fenced->request);
    if (asks) {
        refuse_early(fenced, REFUSAL_UPGRADE);
    }
    return !asks;
}

static bool take_principal(struct fenced *fenced)
{
    const struct gateway_request *request = &fenced->request;
    /* The one use of the wall clock in the gateway: exp and nbf of a token are wall time (RFC 7519
     * section 4.1). It decides whether a request is let in, never what happens to an operation. */
    int64_t now_ms = clock_read(&request->gateway->clock).wall_ms;
    enum status status = principal_of(request->config->principals, request->config->settings,
        request->route, request->exchange->head, now_ms, request->exchange->arena,
        &fenced->principal, &fenced->fault);
    if (status != OK) {
        refuse_early(fenced, status == E_NOMEM ? REFUSAL_MEMORY : REFUSAL_PRINCIPAL);
        return false;
    }
    gateway_request_doubt(request, principal_doubt(request->route, request->exchange->head));
    return true;
}

/* ---- the body ------------------------------------------------------------------------------ */

/* For a new spool. If much is in flight already, memory is left to others. */
static uint64_t memory_of(const struct gateway_request *request)
{
    const struct config *config = request->config->whole;
    bool is_much = atomic_load(&request->gateway->spooled.bytes) > config->in_flight_bytes_max;
    return is_much ? 0 : config->gateway.spool_memory_bytes;
}

static void on_body_piece(void *context, struct http_exchange *exchange, struct slice piece)
{
    (void)context;
    struct fenced *fenced = fenced_of(exchange);
    enum status status = spool_put(&fenced->body, piece, &fenced->fault);
    if (status != OK) {
        /* The reader enforces each body's own limit; this one is for all bodies together. */
        fenced_refuse(fenced,
            &(struct refusal){.kind = status == E_NOMEM   ? REFUSAL_MEMORY
                                      : status == E_LIMIT ? REFUSAL_OVERLOADED
                                                          : REFUSAL_SPOOL,
                .detail = status == E_LIMIT ? slice_str(fenced->fault.text) : SLICE_EMPTY,
                .retry_after_ms = status == E_LIMIT ? 1000 : 0},
            NULL);
    }
}

/* The body will never be complete: nothing was begun, nothing happened. */
static void on_body_cut(void *context, struct http_exchange *exchange)
{
    (void)context;
    fenced_end(fenced_of(exchange), 400);
}

static void take_body(struct fenced *fenced)
{
    const struct gateway_request *request = &fenced->request;
    struct http_exchange *exchange = request->exchange;
    const struct http_head *head = exchange->head;
    uint64_t in_memory = request->config->settings->spool_memory_bytes;
    exchange->body_bytes_max = request->route->body_bytes_max;
    bool is_short = head->framing == HTTP_BODY_NONE ||
                    (head->framing == HTTP_BODY_LENGTH && head->length <= in_memory);
    if (!is_short) {
        spool_init(&fenced->body, request->gateway->mem, request->gateway->spool_dir,
            memory_of(request), request->route->body_bytes_max);
        spool_share(&fenced->body, &request->gateway->spooled);
        fenced->is_spooled = true;
        exchange->piece = on_body_piece;
    }
}

/* E_UNAVAILABLE, E_NOMEM: with fault. */
static enum status whole_body(struct fenced *fenced, struct slice *ret_body)
{
    if (!fenced->is_spooled) {
        *ret_body = fenced->request.exchange->body;
        return OK;
    }
    return spool_view(&fenced->body, ret_body, &fenced->fault);
}

/* NULL: out of memory. */
static struct fenced *fenced_new(struct arena *arena)
{
    struct fenced *fenced = arena_alloc(arena, sizeof *fenced);
    if (fenced != NULL) {
        memset(fenced, 0, offsetof(struct fenced, fault));
        err_clear(&fenced->fault);
        outcall_clear(&fenced->out);
        door_call_clear(&fenced->call);
    }
    return fenced;
}

void fenced_begin(const struct gateway_request *request)
{
    struct http_exchange *exchange = request->exchange;
    struct fenced *fenced = fenced_new(exchange->arena);
    if (fenced == NULL) {
        struct gateway_request refused = *request;
        gateway_request_refuse(&refused, &(struct refusal){.kind = REFUSAL_MEMORY}, NULL);
        return;
    }
    fenced->request = *request;
    fenced->request.is_fenced = true;
    exchange->state = &fenced->request;
    exchange->cut = on_body_cut; /* it holds its configuration from here on */
    if (is_no_upgrade(fenced) && take_key(fenced) && has_required(fenced) && has_one_type(fenced) &&
        take_principal(fenced)) {
        take_body(fenced);
    }
}

/* ---- the begin ----------------------------------------------------------------------------- */

static void refuse_fault(struct fenced *fenced, enum status status, enum refusal_kind kind)
{
    bool is_memory = status == E_NOMEM;
    fenced_refuse(fenced,
        &(struct refusal){.kind = is_memory ? REFUSAL_MEMORY : kind,
            .detail = is_memory ? SLICE_EMPTY : slice_str(fenced->fault.text)},
        NULL);
}

static bool take_body_key(struct fenced *fenced, struct slice body)
{
    enum status status = fenced_key_from_body(fenced, body);
    if (status != OK || fenced->key.len == 0) {
        refuse_fault(fenced, status, status == OK ? REFUSAL_KEY_MISSING : key_refusal(status));
    }
    fenced->request.has_key = fenced->key.len > 0;
    return fenced->request.has_key;
}

static void ask(struct fenced *fenced);

void fenced_handle(struct gateway_request *request)
{
    struct fenced *fenced = CONTAINER_OF(request, struct fenced, request);
    const struct http_head *head = request->exchange->head;
    struct slice body;
    fenced->call.rate =
        (struct flood_rate){request->route->duplicate_rate, request->route->duplicate_burst};
    if (fenced->has_refusal) {
        fenced_refuse(fenced, &fenced->refusal, NULL);
        return;
    }
    enum status status = request_form_query(
        http_text(head, head->query), request->exchange->arena, &fenced->query, &fenced->fault);
    if (status != OK) {
        refuse_fault(fenced, status, REFUSAL_REQUEST);
        return;
    }
    status = whole_body(fenced, &body);
    if (status != OK) {
        refuse_fault(fenced, status, REFUSAL_SPOOL);
        return;
    }
    if (request->route->key == CONFIG_KEY_JSON && !take_body_key(fenced, body)) {
        return;
    }
    status = fenced_make_begin(fenced, body, FENCED_SHORT);
    if (status != OK) {
        refuse_fault(fenced, status, REFUSAL_REQUEST);
        return;
    }
    if (!door_admit(request->gateway->door, &fenced->call.engine.request.key, fenced->call.rate,
            &fenced->flooded_ms)) {
        fenced_refuse(fenced,
            &(struct refusal){.kind = REFUSAL_FLOODED, .retry_after_ms = fenced->flooded_ms},
            "duplicate_refused");
        return;
    }
    ask(fenced);
}

/* ---- the engine ---------------------------------------------------------------------------- */

static void wake(struct engine_call *engine)
{
    http_wake(engine->context);
}

static void call_refused(struct door_call *call)
{
    struct http_exchange *exchange = call->engine.context;
    exchange->resume(NULL, exchange);
}

/* Submit the call to the engine; resume is called when it is durable, or refused. */
static void submit(struct fenced *fenced, enum fenced_state state, http_handle resume)
{
    struct http_exchange *exchange = fenced->request.exchange;
    exchange->resume = resume;
    fenced->call.refused = call_refused;
    fenced->call.engine.done = wake;
    fenced->call.engine.context = exchange;
    fenced->call.engine.arena = exchange->arena;
    err_clear(&fenced->call.engine.err);
    fenced->in_engine = true;
    fenced_move(fenced, state);
    door_submit(fenced->request.gateway->door, exchange->loop, &fenced->call);
    http_turn(exchange);
}

/* The engine answered. */
static struct fenced *resumed(struct http_exchange *exchange)
{
    struct fenced *fenced = fenced_of(exchange);
    fenced_check(fenced);
    fenced->in_engine = false;
    return fenced;
}

/* ---- the decision -------------------------------------------------------------------------- */

static void refuse_conflict(struct fenced *fenced)
{
    const struct config_route *route = fenced->request.route;
    struct buf extra;
    buf_init(&extra, &fenced->request.mem, 2 * LIMIT_DIFF_BYTES_MAX);
    /* A conflict that cannot be explained is still a conflict. */
    bool is_explained =
        request_form_explain(fenced->call.engine.first_body, &fenced->form, route->conflict_diff,
            route->redact, route->redact_count, &extra, &fenced->diff_bytes) == OK;
    fenced_refuse(fenced,
        &(struct refusal){
            .kind = REFUSAL_CONFLICT, .extra = is_explained ? buf_view(&extra) : SLICE_EMPTY},
        "conflict_rejected");
}

static void refuse_engine(struct fenced *fenced)
{
    const struct err *err = &fenced->call.engine.err;
    bool is_limit = err->status == E_LIMIT;
    enum refusal_kind kind = is_limit && err->limit == ERR_LIMIT_QUEUE_REQUESTS ? REFUSAL_OVERLOADED
                             : is_limit                                         ? REFUSAL_LIMIT
                             : err->status == E_NOMEM                           ? REFUSAL_MEMORY
                                                                                : REFUSAL_STORE;
    fenced_refuse(fenced,
        &(struct refusal){.kind = kind,
            .detail = is_limit ? slice_str(err->text) : SLICE_EMPTY, /* it names the limit (P12) */
            .retry_after_ms = 1000},
        NULL);
}

/* The upstream has been asked about it: submit the begin again. */
static void reconciled(struct reconcile_wait *wait)
{
    struct fenced *fenced = CONTAINER_OF(wait, struct fenced, reconcile);
    engine_call_again(&fenced->call.engine);
    ask(fenced);
}

/* Wait for one question: its own, or one that was asked before and, if that says nothing, a second
 * one, whose answer is not older than the request. */
static bool is_asked_about(struct fenced *fenced)
{
    const struct gateway_request *request = &fenced->request;
    struct reconcile_about about = {.loop = request->exchange->loop,
        .config = request->config,
        .route = request->route,
        .upstream = request->upstream,
        .record = &fenced->call.engine.decision.next,
        .read = &fenced->call.engine};
    if (fenced->questions == QUESTIONS_MAX) {
        return false;
    }
    fenced->reconcile.done = reconciled;
    enum reconcile_begun begun = reconcile_now(request->gateway, &about, &fenced->reconcile);
    fenced->questions = begun == RECONCILE_ASKED ? QUESTIONS_MAX : fenced->questions + 1;
    return begun != RECONCILE_NOT_ASKED;
}

static void held_unknown(struct fenced *fenced)
{
    const struct gateway_request *request = &fenced->request;
    bool asks = request->route->on_unknown == CONFIG_UNKNOWN_RECONCILE;
    if (asks && is_asked_about(fenced)) {
        fenced_move(fenced, FENCED_RECONCILING);
        return;
    }
    fenced_refuse(fenced,
        &(struct refusal){.kind = REFUSAL_OUTCOME_UNKNOWN,
            .retry_after_ms = asks ? request->route->reconcile.every_ms : 0},
        "held_unknown");
}

static void forward(struct fenced *fenced);

static void granted(struct fenced *fenced, const struct record *record)
{
    fenced->fence = record->fence;
    fenced->attempt = record->attempt;
    fenced_report(fenced, 0);
    forward(fenced);
}

/* The key was known, and the engine has no replay for it: it expired, was released, or is that of a
 * different body now. Nothing was decided yet. */
static void ask_whole(struct fenced *fenced)
{
    struct engine_call *engine = &fenced->call.engine;
    struct slice body;
    fenced_forget(fenced);
    engine_call_again(engine);
    enum status status = whole_body(fenced, &body);
    status = status == OK ? fenced_make_begin(fenced, body, FENCED_WHOLE) : status;
    if (status != OK) {
        (void)err_set(&engine->err, status, "%s", fenced->fault.text);
        refuse_engine(fenced);
        return;
    }
    ask(fenced);
}

static void decided(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct fenced *fenced = resumed(exchange);
    const struct engine_call *engine = &fenced->call.engine;
    const struct record *record = &engine->decision.next;
    if (engine->replays_only && engine->err.status == E_STALE) {
        ask_whole(fenced);
        return;
    }
    if (engine->err.status != OK) {
        refuse_engine(fenced);
        return;
    }
    if (record->fence > 0) {
        fenced->operation_id = record->operation_id;
        (void)op_id_put(fenced->operation_text, &record->operation_id);
    }
    switch (engine->decision.kind) {
    case DECISION_FIRST_SEEN: granted(fenced, record); break;
    case DECISION_DUPLICATE_REPLAYED:
        fenced_learn(fenced);
        fenced_replay(fenced);
        break;
    case DECISION_IN_PROGRESS:
        fenced_refuse(fenced,
            &(struct refusal){.kind = REFUSAL_IN_PROGRESS, .retry_after_ms = 1000}, "in_progress");
        break;
    case DECISION_CONFLICT_REJECTED: refuse_conflict(fenced); break;
    case DECISION_HELD_UNKNOWN: held_unknown(fenced); break;
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

static void ask(struct fenced *fenced)
{
    submit(fenced, FENCED_ASKED, decided);
}

/* ---- settling ------------------------------------------------------------------------------ */

/* A call that settles the operation; the caller sets the result. */
static struct engine_call *settling(struct fenced *fenced)
{
    struct engine_call *engine = &fenced->call.engine;
    ASSERT(fenced->fence > 0); /* P4 */
    struct record_key key = engine->request.key;
    struct slice trace = engine->request.trace;
    engine_call_clear(engine);
    engine->request.key = key;
    engine->request.operation_id = fenced->operation_id;
    engine->request.fence = fenced->fence;
    engine->request.trace = trace;
    return engine;
}

static void settle(struct fenced *fenced, enum fenced_state state, http_handle resume)
{
    struct engine_call *engine = settling(fenced);
    outcall_settle(&fenced->out, &engine->request, &engine->outcome_body);
    if (fenced->out.verdict == VERDICT_UNKNOWN) {
        fenced->effect = "unknown";
    } else if (fenced->out.verdict == VERDICT_RELEASED) {
        fenced->effect = "no";
    }
    submit(fenced, state, resume);
}

static void refuse_unsealed(struct fenced *fenced)
{
    bool is_executed = fenced->out.verdict == VERDICT_EXECUTED;
    fenced_refuse(fenced,
        &(struct refusal){.kind = REFUSAL_NOT_SEALED,
            .effect_known = is_executed ? PROBLEM_EFFECT_YES : PROBLEM_EFFECT_UNKNOWN},
        "first_seen");
}

/* The operation is settled, durably, or can never be. */
static void answer_settled(struct fenced *fenced)
{
    if (is_settled(fenced) && fenced->call.engine.decision.kind == DECISION_SEALED) {
        fenced_learn(fenced);
    }
    bool is_answered = fenced->out.point == OUTCALL_ANSWERED && fenced->out.status > 0;
    fenced_report(fenced, is_answered ? fenced->out.status : 0);
    if (fenced->is_live) {
        fenced_live_end(fenced, is_answered && is_settled(fenced));
    } else if (fenced->call.engine.err.status != OK) {
        refuse_unsealed(fenced); /* it may have happened, and nobody remembers its answer */
    } else if (!is_settled(fenced)) {
        fenced_refuse(fenced,
            &(struct refusal){.kind = REFUSAL_OUTCOME_UNKNOWN,
                .detail = SLICE_LIT("the operation was settled while it ran"),
                .retry_after_ms = 1000},
            "first_seen");
    } else if (is_answered) {
        fenced_return(fenced);
    } else {
        struct refusal refusal = {.kind = fenced->failure, .detail = slice_str(fenced->fault.text)};
        fenced_refuse(fenced, &refusal, "first_seen");
    }
}

static void settled(void *context, struct http_exchange *exchange)
{
    (void)context;
    answer_settled(resumed(exchange));
}

/* ---- answers too long to keep -------------------------------------------------------------- */

static void settled_long(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct fenced *fenced = resumed(exchange);
    if (!is_settled(fenced)) {
        outcall_cancel(&fenced->out); /* its answer does not count */
        answer_settled(fenced);
        return;
    }
    fenced_report(fenced, fenced->out.status);
    fenced_stream(fenced);
}

/* The operation is sealed from the answer's head, without the body; then the client gets all of
 * it. */
static void on_long(struct outcall *out)
{
    settle(out->context, FENCED_SEALING, settled_long);
}

static const struct outcall_stream stream = {.head = fenced_live_begin,
    .more = fenced_live_more,
    .begin = on_long,
    .piece = fenced_stream_piece,
    .ended = fenced_stream_ended};

/* ---- the upstream -------------------------------------------------------------------------- */

static enum refusal_kind failure_of(const struct outcall *out)
{
    if (out->point == OUTCALL_NOT_SENT) {
        return out->cause == UPSTREAM_CAUSE_BUSY ? REFUSAL_UPSTREAM_BUSY : REFUSAL_UNREACHABLE;
    }
    return out->point == OUTCALL_HEAD || out->cause == UPSTREAM_CAUSE_MALFORMED
               ? REFUSAL_BROKEN_ANSWER
               : REFUSAL_NO_ANSWER;
}

static void on_done(struct outcall *out)
{
    struct fenced *fenced = out->context;
    if (out->point != OUTCALL_ANSWERED) {
        fenced->failure = failure_of(out);
        gateway_request_log_failure(
            &fenced->request, &out->err, fenced->key, slice_str(fenced->operation_text));
    }
    settle(fenced, FENCED_SETTLING, settled);
}

static enum status make_head(struct fenced *fenced, struct slice body)
{
    bool has_body = fenced->request.exchange->head->framing != HTTP_BODY_NONE;
    struct fields_added own = {.operation_id = slice_str(fenced->operation_text),
        .fence = fenced->fence,
        .attempt = fenced->attempt,
        .is_identity = true, /* a duplicate that takes no gzip has to get the same bytes */
        .length = has_body ? (int64_t)body.len : HTTP_LENGTH_ABSENT};
    return gateway_request_head(&fenced->request, &own, &fenced->head);
}

static void release_unsent(struct fenced *fenced, enum refusal_kind failure, const char *reason)
{
    struct engine_call *engine = settling(fenced);
    engine->request.kind = REQUEST_RELEASE;
    engine->request.reason = slice_str(reason);
    fenced->failure = failure;
    (void)err_set(&fenced->fault, E_UNAVAILABLE, "%s", reason);
    submit(fenced, FENCED_SETTLING, settled);
}

static void make_outcall(struct fenced *fenced, struct slice body)
{
    const struct gateway_request *request = &fenced->request;
    const struct config_route *route = request->route;
    struct outcall *out = &fenced->out; /* cleared by fenced_new: there is one grant at most */
    out->upstream = gateway_request_upstream(request);
    out->loop = request->exchange->loop;
    out->head = buf_view(&fenced->head);
    out->body = body;
    out->method = request->exchange->head->method;
    out->timeouts = (struct upstream_timeouts){.connect_ms = route->connect_ms,
        .first_byte_ms = route->first_byte_ms,
        .total_ms = route->total_ms,
        /* S12: from then on other processes may consider this one gone, whatever the lease says. */
        .send_until_boot_ms = fenced->call.engine.boot_before_ms + LIMIT_HOLDER_GONE_MS};
    out->rules = *gateway_config_rules(request->config, route);
    out->keeps = (struct fields_kept){route->replay_headers, route->replay_header_count};
    out->request_id = request->exchange->request_id;
    out->stream = &stream;
    out->done = on_done;
    out->context = fenced;
    outcall_init(out, &(struct outcall_capture){.mem = request->gateway->mem,
                          .spool_dir = request->gateway->spool_dir,
                          .memory_bytes = memory_of(request),
                          .bytes_max = route->outcome_bytes_max,
                          .budget = &request->gateway->spooled});
}

static void forward(struct fenced *fenced)
{
    ASSERT(fenced->fence > 0); /* P6: the engine reported that the grant is durable */
    struct slice body;
    enum status status = whole_body(fenced, &body);
    status = status == OK ? make_head(fenced, body) : status;
    if (status != OK) {
        release_unsent(fenced, REFUSAL_MEMORY, "out of memory before anything was sent");
    } else if (atomic_load(&fenced->request.gateway->is_cut)) {
        release_unsent(fenced, REFUSAL_OVERLOADED, "the gateway is about to end; nothing was sent");
    } else if (!fenced_lease_covers_call(fenced)) {
        release_unsent(fenced, REFUSAL_OVERLOADED, "the gateway stood still; nothing was sent");
    } else {
        make_outcall(fenced, body);
        fenced_move(fenced, FENCED_FORWARDED);
        outcall_start(&fenced->out);
    }
}
