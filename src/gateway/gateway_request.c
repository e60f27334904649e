#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"
#include "base/macros.h"
#include "gateway/impl.h"

enum { HEAD_BYTES_MAX = 64 << 10 }; /* for the upstream: what a client may send, and ours */

enum status gateway_request_trace(struct gateway_request *request)
{
    struct http_exchange *exchange = request->exchange;
    request->traceparent = fields_traceparent_of(exchange->head);
    if (request->traceparent.len > 0) {
        return OK;
    }
    char *text = arena_alloc(exchange->arena, FIELDS_TRACEPARENT_BYTES + 1);
    if (text == NULL) {
        return E_NOMEM;
    }
    const unsigned char *random = gateway_random(request->gateway, exchange->loop);
    if (random != NULL) { /* else it has no trace */
        fields_traceparent(random, text);
        request->traceparent = slice_of(text, FIELDS_TRACEPARENT_BYTES);
    }
    return OK;
}

enum status gateway_request_head(
    const struct gateway_request *request, const struct fields_added *own, struct buf *ret_head)
{
    struct fields_added added = *own;
    added.authority = upstreams_authority(request->upstream);
    added.idempotency_key = request->key_field;
    added.request_id = request->exchange->request_id;
    added.traceparent = request->traceparent;
    added.peer = request->exchange->peer;
    added.is_tls = request->config->settings->tls_cert != NULL;
    buf_init(ret_head, &request->mem, HEAD_BYTES_MAX);
    return fields_request(request->exchange->head, &added, ret_head);
}

struct upstream *gateway_request_upstream(const struct gateway_request *request)
{
    return upstreams_on(request->gateway->upstreams, request->upstream, request->exchange->loop);
}

void gateway_request_log_failure(const struct gateway_request *request, const struct err *err,
    struct slice key, struct slice operation_id)
{
    struct log_field fields[] = {
        LOG_TEXT("text", slice_str(err->text)),
        LOG_TEXT("route", slice_str(request->route->match)),
        LOG_TEXT("path", request->path),
        LOG_TEXT("idempotency_key", key),
        LOG_TEXT("operation_id", operation_id),
        LOG_TEXT("request_id", request->exchange->request_id),
    };
    log_event(door_log(request->gateway->door), LOG_WARN, "upstream_failed", fields, COUNT(fields));
}

void gateway_request_doubt(const struct gateway_request *request, enum principal_doubt doubt)
{
    if (doubt == PRINCIPAL_SURE) {
        return;
    }
    metrics_doubt(door_metrics(request->gateway->door), request->exchange->loop, doubt);
    if (gateway_config_is_first(request->config, request->route, doubt)) {
        struct log_field fields[] = {
            LOG_TEXT("route", slice_str(request->route->match)),
            LOG_TEXT("message", slice_str(principal_doubt_text(doubt))),
            LOG_TEXT("hint", slice_str(principal_doubt_hint(doubt))),
        };
        log_event(door_log(request->gateway->door), LOG_WARN, "principal_doubtful", fields,
            COUNT(fields));
    }
}

void gateway_request_end(struct gateway_request *request, unsigned status)
{
    struct gateway *gateway = request->gateway;
    metrics_request(door_metrics(gateway->door), request->exchange->loop,
        request->has_key ? "gateway_fenced" : "gateway_relayed", status,
        clock_nanos() - request->exchange->started_nanos);
    gateway_config_drop(gateway, request->config);
}

void gateway_request_field(
    const struct gateway_request *request, struct slice name, struct slice value)
{
    if (value.len > 0) {
        http_answer_field(request->exchange, name, value);
    }
}

static void put_retry_after(const struct gateway_request *request, int64_t ms)
{
    char text[24];
    if (ms > 0) {
        (void)snprintf(text, sizeof text, "%" PRId64, (ms + 999) / 1000);
        gateway_request_field(request, SLICE_LIT("Retry-After"), slice_str(text));
    }
}

/* The one place where the gateway says no. */
void gateway_request_refuse(
    struct gateway_request *request, const struct refusal *refusal, const char *decision)
{
    struct http_exchange *exchange = request->exchange;
    struct buf body;
    buf_init(&body, &request->mem, 128 << 10);
    struct refused refused = refusals_write(request->route, refusal, exchange->request_id, &body);
    http_answer_begin(exchange, refused.status);
    gateway_request_field(request, SLICE_LIT("Idempotency-Key"), request->key_field);
    gateway_request_field(request, SLICE_LIT("Once-Decision"), slice_str(decision));
    gateway_request_field(request, SLICE_LIT("Once-Operation-Id"), refusal->operation_id);
    gateway_request_field(request, SLICE_LIT("Once-Effect"), slice_str(refused.effect));
    put_retry_after(request, refusal->retry_after_ms);
    gateway_request_field(request, SLICE_LIT("WWW-Authenticate"), slice_str(refused.authenticate));
    gateway_request_field(
        request, SLICE_LIT("Stripe-Should-Retry"), slice_str(refused.should_retry));
    gateway_request_end(request, refused.status);
    http_answer_end(exchange, slice_str(refused.content_type),
        buf_status(&body) == OK ? buf_view(&body) : SLICE_EMPTY, true);
}
