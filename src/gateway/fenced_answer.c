#include "base/check.h"
#include "canon/jsonw.h"
#include "gateway/fenced.h"

void fenced_report(struct fenced *fenced, unsigned status)
{
    const struct gateway_request *request = &fenced->request;
    const struct config_route *route = request->route;
    struct slice trace_id = SLICE_EMPTY;
    if (request->traceparent.len == FIELDS_TRACEPARENT_BYTES) {
        trace_id = slice_of(request->traceparent.data + 3, 32);
    }
    struct door_report report = {.call = &fenced->call.engine,
        .flooded_ms = fenced->flooded_ms,
        .rate = fenced->call.rate,
        .was_counted = fenced->call.is_counted,
        .tenant = slice_str(route->tenant),
        .label = slice_str(route->match),
        .request_id = request->exchange->request_id,
        .trace_id = trace_id,
        .status = status,
        .diff_bytes = fenced->diff_bytes,
        .started_nanos = request->exchange->started_nanos,
        .logs = request->config->whole->log_decisions};
    door_report(request->gateway->door, request->exchange->loop, &report);
}

/* ---- refusals ------------------------------------------------------------------------------ */

void fenced_refuse(struct fenced *fenced, const struct refusal *refusal, const char *decision)
{
    struct gateway_request *request = &fenced->request;
    struct refusal whole = *refusal;
    whole.operation_id = slice_str(fenced->operation_text);
    /* The decision about a begin, if it was not reported yet. */
    if (fenced->state == FENCED_ASKED || fenced->flooded_ms > 0) {
        fenced_report(fenced, refusals_status(request->route, &whole));
    }
    fenced_release(fenced);
    gateway_request_refuse(request, &whole, decision);
}

void fenced_break(struct fenced *fenced, unsigned status)
{
    struct http_exchange *exchange = fenced->request.exchange;
    http_answer_stream(exchange, HTTP_LENGTH_CHUNKED);
    fenced_end(fenced, status);
    http_answer_finish(exchange, false);
}

/* ---- fields -------------------------------------------------------------------------------- */

/* The fields that every answer to a fenced request has. */
static void put_fields(const struct fenced *fenced, const char *decision)
{
    const struct gateway_request *request = &fenced->request;
    gateway_request_field(request, SLICE_LIT("Idempotency-Key"), request->key_field);
    gateway_request_field(request, SLICE_LIT("Once-Decision"), slice_str(decision));
    gateway_request_field(
        request, SLICE_LIT("Once-Operation-Id"), slice_str(fenced->operation_text));
    gateway_request_field(request, SLICE_LIT("Once-Effect"), slice_str(fenced->effect));
}

void fenced_answer_head(struct fenced *fenced)
{
    struct http_exchange *exchange = fenced->request.exchange;
    http_answer_begin(exchange, fenced->out.status);
    fields_answer(fenced->out.answer, exchange);
    put_fields(fenced, "first_seen");
    gateway_request_cors(&fenced->request, GATEWAY_CORS_EXPOSED);
}

/* ---- replays ------------------------------------------------------------------------------- */

static void replay_fields(struct fenced *fenced, const struct record *record)
{
    char date[HTTP_DATE_BYTES];
    (void)http_put_date(date, record->sealed_ms);
    put_fields(fenced, "duplicate_replayed");
    gateway_request_cors(&fenced->request, GATEWAY_CORS_WHOLE);
    gateway_request_field(&fenced->request, SLICE_LIT("Idempotent-Replayed"), SLICE_LIT("true"));
    gateway_request_field(&fenced->request, SLICE_LIT("Last-Modified"), slice_str(date));
}

/* For an operation that was settled without an upstream's answer: what a client may know. How the
 * operator found out is not for clients. Empty: out of memory. */
static struct slice settled_body(struct fenced *fenced, const struct record *record)
{
    struct buf out;
    struct jsonw json = {.out = &out};
    buf_init(&out, &fenced->request.mem, 16 << 10);
    jsonw_open(&json, NULL, '{');
    jsonw_str(&json, "status", record_status_name(record->status));
    jsonw_str(&json, "operation_id", fenced->operation_text);
    if (record->effect_id.len > 0) {
        jsonw_bytes(&json, "effect_id", record->effect_id);
    }
    jsonw_close(&json, '}');
    return buf_status(&out) == OK ? buf_view(&out) : SLICE_EMPTY;
}

static void replay_end(struct fenced *fenced, unsigned status, struct slice type, struct slice body)
{
    struct http_exchange *exchange = fenced->request.exchange;
    replay_fields(fenced, &fenced->call.engine.decision.next);
    fenced_end(fenced, status);
    http_answer_end(exchange, type, body, true);
}

/* Settled through the API or by an operator: the outcome is JSON, or absent. */
static void replay_foreign(struct fenced *fenced, const struct record *record)
{
    int32_t code = record->outcome.code;
    unsigned status = code >= 200 && code <= 599 ? (unsigned)code
                      : record->status == RECORD_EXECUTED || record->status == RECORD_COMPENSATED
                          ? 200
                          : 422;
    struct slice body = record->outcome.body.retained ? fenced->call.engine.outcome : SLICE_EMPTY;
    body = body.len > 0 ? body : settled_body(fenced, record);
    fenced_report(fenced, status);
    http_answer_begin(fenced->request.exchange, status);
    if (body.len == 0) {
        fenced_break(fenced, status); /* P3: an empty body would differ from the other replays */
        return;
    }
    replay_end(fenced, status, SLICE_LIT("application/json"), body);
}

/* A 4xx says that nothing was done. A 5xx that a rule seals does not say that. */
static void refuse_unretained(struct fenced *fenced, const struct record *record)
{
    bool is_failed = record->status != RECORD_EXECUTED && record->status != RECORD_COMPENSATED;
    fenced_refuse(fenced,
        &(struct refusal){.kind = REFUSAL_NOT_RETAINED,
            .is_failed = is_failed,
            .effect_known =
                record->outcome.code < 500 ? PROBLEM_EFFECT_NO : PROBLEM_EFFECT_UNKNOWN},
        "duplicate_replayed");
}

void fenced_replay(struct fenced *fenced)
{
    const struct gateway_request *request = &fenced->request;
    const struct record *record = &fenced->call.engine.decision.next;
    const struct outcome *outcome = &record->outcome;
    if (!outcome->body.retained && outcome->body.bytes > 0) {
        refuse_unretained(fenced, record);
        return;
    }
    bool is_status = outcome->code >= 200 && outcome->code <= 599;
    if (!is_status || !fields_is_ours(outcome->meta)) {
        replay_foreign(fenced, record);
        return;
    }
    unsigned status = (unsigned)outcome->code;
    struct err err;
    fenced_report(fenced, status);
    http_answer_begin(request->exchange, status);
    struct fields_how how = {.without_origin = gateway_request_is_cors(request)};
    if (fields_replay(outcome->meta, &how, request->gateway->mem, request->exchange, &err) != OK) {
        fenced_break(fenced, status); /* out of memory: without its fields it is not the same */
        return;
    }
    replay_end(fenced, status, SLICE_EMPTY, fenced->call.engine.outcome);
}
