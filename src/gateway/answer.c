#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"
#include "canon/jsonw.h"
#include "gateway/impl.h"
#include "http/write.h"

void answer_tell(struct pass *pass, unsigned status)
{
    const struct config_route *route = pass->route;
    struct slice trace_id = SLICE_EMPTY;
    if (pass->traceparent.len == FIELDS_TRACEPARENT_BYTES) {
        trace_id = slice_of(pass->traceparent.data + 3, 32);
    }
    struct door_report report = {.call = &pass->call.engine,
        .flooded_ms = pass->flooded_ms,
        .rate = {route->duplicate_rate, route->duplicate_burst},
        .tenant = slice_str(route->tenant),
        .request_id = pass->exchange->request_id,
        .trace_id = trace_id,
        .status = status,
        .diff_bytes = pass->diff_bytes,
        .started_nanos = pass->exchange->started_nanos,
        .logs = pass->gate->config->log_decisions};
    door_report(pass->gateway->door, pass->exchange->loop, &report);
}

void answer_log_failure(struct pass *pass, const struct err *err)
{
    struct log_field fields[] = {
        LOG_TEXT("text", slice_str(err->text)),
        LOG_TEXT("route", slice_str(pass->route->match)),
        LOG_TEXT("path", pass->path),
        LOG_TEXT("idempotency_key", pass->key),
        LOG_TEXT("operation_id", slice_str(pass->operation_text)),
        LOG_TEXT("request_id", pass->exchange->request_id),
    };
    log_event(door_log(pass->gateway->door), LOG_WARN, "upstream_failed", fields,
        sizeof fields / sizeof fields[0]);
}

void pass_end(struct pass *pass, unsigned status)
{
    struct gateway *gateway = pass->gateway;
    ASSERT(!pass->is_up);
    pass->state = PASS_ANSWERED;
    spool_release(&pass->body);
    spool_release(&pass->answer);
    atomic_fetch_sub(&gateway->spooled, pass->spooled);
    metrics_request(door_metrics(gateway->door), pass->exchange->loop,
        pass->key.len > 0 ? "gateway, fenced" : "gateway, passed through", status,
        clock_nanos() - pass->exchange->started_nanos);
    gate_drop(gateway, pass->gate);
}

static void field(struct pass *pass, struct slice name, struct slice value)
{
    if (value.len > 0) {
        http_answer_field(pass->exchange, name, value);
    }
}

void answer_fields(struct pass *pass, const char *decision)
{
    field(pass, SLICE_LIT("Idempotency-Key"), pass->key_field);
    field(pass, SLICE_LIT("Once-Decision"), slice_str(decision));
    field(pass, SLICE_LIT("Once-Operation-Id"), slice_str(pass->operation_text));
    field(pass, SLICE_LIT("Once-Effect"), slice_str(pass->effect));
}

static void put_retry_after(struct pass *pass, int64_t ms)
{
    char text[24];
    if (ms > 0) {
        (void)snprintf(text, sizeof text, "%" PRId64, (ms + 999) / 1000);
        field(pass, SLICE_LIT("Retry-After"), slice_str(text));
    }
}

/* Whether the engine was asked about this request and its answer is to be reported. */
static bool is_decided(const struct pass *pass)
{
    return pass->state == PASS_ASKED || pass->flooded_ms > 0;
}

void answer_refusal_now(struct pass *pass, const struct refusal *refusal, const char *decision)
{
    struct http_exchange *exchange = pass->exchange;
    struct buf body;
    buf_init(&body, &pass->mem, 128 << 10);
    struct refused refused = refusals_write(pass->route, refusal, exchange->request_id, &body);
    pass->effect = refused.effect;
    if (is_decided(pass)) {
        answer_tell(pass, refused.status);
    }
    http_answer_begin(exchange, refused.status);
    answer_fields(pass, decision);
    put_retry_after(pass, refusal->retry_after_ms);
    field(pass, SLICE_LIT("WWW-Authenticate"), slice_str(refused.authenticate));
    pass_end(pass, refused.status);
    http_answer_end(exchange, slice_str(refused.content_type),
        buf_status(&body) == OK ? buf_view(&body) : SLICE_EMPTY, true);
}

/* An answer that was begun and cannot be ended as it should: the client sees that it broke off. */
static void answer_break(struct pass *pass, unsigned status)
{
    struct http_exchange *exchange = pass->exchange;
    http_answer_stream(exchange, HTTP_LENGTH_CHUNKED);
    pass_end(pass, status);
    http_answer_finish(exchange, false);
}

/* ---- replays ------------------------------------------------------------------------------- */

static void replay_fields(struct pass *pass, const struct record *record)
{
    char date[HTTP_DATE_BYTES];
    (void)http_put_date(date, record->sealed_ms);
    answer_fields(pass, "duplicate_replayed");
    field(pass, SLICE_LIT("Idempotent-Replayed"), SLICE_LIT("true"));
    field(pass, SLICE_LIT("Last-Modified"), slice_str(date));
}

/* Of an operation that somebody settled without an upstream's answer: what is known. */
static struct slice settled_body(struct pass *pass, const struct record *record)
{
    struct buf out;
    struct jsonw json = {.out = &out};
    buf_init(&out, &pass->mem, 16 << 10);
    jsonw_open(&json, NULL, '{');
    jsonw_str(&json, "status", record_status_name(record->status));
    jsonw_str(&json, "operation_id", pass->operation_text);
    if (record->effect_id.len > 0) {
        jsonw_bytes(&json, "effect_id", record->effect_id);
    }
    if (record->reason.len > 0) {
        jsonw_bytes(&json, "reason", record->reason);
    }
    jsonw_close(&json, '}');
    return buf_status(&out) == OK ? buf_view(&out) : SLICE_EMPTY;
}

/* Settled through the API or by an operator: their outcome is JSON, or there is none. */
static void replay_foreign(struct pass *pass, const struct record *record)
{
    struct http_exchange *exchange = pass->exchange;
    int32_t code = record->outcome.code;
    unsigned status = code >= 200 && code <= 599 ? (unsigned)code
                      : record->status == RECORD_EXECUTED || record->status == RECORD_COMPENSATED
                          ? 200
                          : 422;
    struct slice body = record->outcome.body.retained ? pass->call.engine.outcome : SLICE_EMPTY;
    body = body.len > 0 ? body : settled_body(pass, record);
    answer_tell(pass, status);
    http_answer_begin(exchange, status);
    replay_fields(pass, record);
    pass_end(pass, status);
    http_answer_end(exchange, SLICE_LIT("application/json"), body, true);
}

void answer_replay(struct pass *pass)
{
    struct http_exchange *exchange = pass->exchange;
    const struct record *record = &pass->call.engine.decision.next;
    const struct outcome *outcome = &record->outcome;
    if (!outcome->body.retained && outcome->body.bytes > 0) {
        answer_refusal_now(pass,
            &(struct refusal){
                .kind = REFUSAL_NOT_RETAINED, .operation_id = slice_str(pass->operation_text)},
            "duplicate_replayed");
        return;
    }
    bool is_status = outcome->code >= 200 && outcome->code <= 599;
    if (!is_status || !fields_is_ours(outcome->meta)) {
        replay_foreign(pass, record);
        return;
    }
    unsigned status = (unsigned)outcome->code;
    answer_tell(pass, status);
    http_answer_begin(exchange, status);
    struct slice body = pass->call.engine.outcome;
    struct err err;
    if (fields_replay(outcome->meta, pass->gateway->mem, exchange, &err) != OK) {
        answer_break(pass, status); /* out of memory: without its fields it is not the same */
        return;
    }
    replay_fields(pass, record);
    pass_end(pass, status);
    http_answer_end(exchange, SLICE_EMPTY, body, true);
}

/* ---- the upstream's own -------------------------------------------------------------------- */

bool answer_give(struct pass *pass)
{
    while (pass->given < pass->view.len) {
        size_t left = pass->view.len - pass->given;
        size_t now = left < GATEWAY_GIVE_BYTES ? left : GATEWAY_GIVE_BYTES;
        struct slice piece = slice_of(pass->view.data + pass->given, now);
        pass->given += now;
        if (!http_answer_piece(pass->exchange, piece)) {
            return false;
        }
    }
    return true;
}

static void give_end(struct pass *pass)
{
    struct http_exchange *exchange = pass->exchange;
    pass_end(pass, pass->kept_status);
    http_answer_finish(exchange, true);
}

/* A long answer leaves its spool piece by piece, as fast as the client reads it. */
static void give(void *context, struct http_exchange *exchange)
{
    (void)context;
    if (answer_give(exchange->state)) {
        give_end(exchange->state);
    }
}

static void give_gone(void *context, struct http_exchange *exchange)
{
    (void)context;
    give_end(exchange->state);
}

void answer_first(struct pass *pass)
{
    struct http_exchange *exchange = pass->exchange;
    http_answer_begin(exchange, pass->kept_status);
    fields_answer(pass->answer_head, exchange);
    answer_fields(pass, "first_seen");
    if (pass->view.len > GATEWAY_GIVE_BYTES && !exchange->is_gone) {
        pass_move(pass, PASS_GIVING);
        exchange->drained = give;
        exchange->gone = give_gone;
        http_answer_stream(exchange, (int64_t)pass->view.len);
        give(NULL, exchange);
        return;
    }
    struct slice body = SLICE_EMPTY;
    if (arena_copy(exchange->arena, pass->view, &body) != OK) {
        answer_break(pass, pass->kept_status); /* out of memory; a retry gets it */
        return;
    }
    pass_end(pass, pass->kept_status);
    http_answer_end(exchange, SLICE_EMPTY, body, true);
}
