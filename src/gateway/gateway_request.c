#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"
#include "base/macros.h"
#include "base/rand.h"
#include "gateway/impl.h"

enum { HEAD_BYTES_MAX = 64 << 10 }; /* for the upstream: a client's largest head, and our fields */

const struct slice gateway_websocket = {"websocket", 9};

bool gateway_request_asks_websocket(const struct gateway_request *request)
{
    return http_same_name(fields_upgrade(request->exchange->head), gateway_websocket);
}

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
    unsigned char random[24];
    if (rand_names(random, sizeof random, NULL) == OK) { /* else it has no trace */
        fields_traceparent(random, text);
        request->traceparent = slice_of(text, FIELDS_TRACEPARENT_BYTES);
    }
    return OK;
}

enum status gateway_request_head(
    const struct gateway_request *request, const struct fields_added *own, struct buf *ret_head)
{
    struct fields_added added = *own;
    added.authority =
        request->route->preserve_host ? SLICE_EMPTY : upstreams_authority(request->upstream);
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

/* The value of Access-Control-Allow-Origin for this request; empty: not from an allowed page. */
static struct slice allowed_origin(const struct gateway_request *request)
{
    const struct config_route *route = request->route;
    struct slice origin = SLICE_EMPTY;
    if (!http_find_single(request->exchange->head, SLICE_LIT("Origin"), &origin) ||
        origin.len == 0) {
        return SLICE_EMPTY;
    }
    for (size_t i = 0; i < route->cors_origin_count; i++) {
        struct slice allowed = slice_str(route->cors_origins[i]);
        if (slice_is(allowed, "*") || slice_equal(allowed, origin)) {
            return allowed;
        }
    }
    return SLICE_EMPTY;
}

bool gateway_request_is_cors(const struct gateway_request *request)
{
    return allowed_origin(request).len > 0;
}

void gateway_request_cors(const struct gateway_request *request, enum gateway_cors how)
{
    const struct config_route *route = request->route;
    struct slice allowed = allowed_origin(request);
    if (how == GATEWAY_CORS_WHOLE && route->cors_origin_count > 0) {
        /* Caches must know this for every answer, including those to other pages. */
        gateway_request_field(request, SLICE_LIT("Vary"), SLICE_LIT("Origin"));
    }
    if (allowed.len == 0) {
        return;
    }
    if (how == GATEWAY_CORS_WHOLE) {
        gateway_request_field(request, SLICE_LIT("Access-Control-Allow-Origin"), allowed);
        gateway_request_field(request, SLICE_LIT("Access-Control-Allow-Credentials"),
            route->cors_credentials ? SLICE_LIT("true") : SLICE_EMPTY);
    }
    gateway_request_field(request, SLICE_LIT("Access-Control-Expose-Headers"),
        SLICE_LIT("Idempotency-Key, Idempotent-Replayed, Once-Decision, Once-Effect, "
                  "Once-Operation-Id, Original-Request-Id, Request-Id, Retry-After, "
                  "Upstream-Request-Id"));
}

static void put_retry_after(const struct gateway_request *request, int64_t ms)
{
    char text[24];
    if (ms > 0) {
        (void)snprintf(text, sizeof text, "%" PRId64, (ms + 999) / 1000);
        gateway_request_field(request, SLICE_LIT("Retry-After"), slice_str(text));
    }
}

/* The one place where the gateway refuses. */
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
    put_retry_after(request, refused.retry_after_ms);
    gateway_request_cors(request, GATEWAY_CORS_WHOLE);
    gateway_request_field(request, SLICE_LIT("WWW-Authenticate"), slice_str(refused.authenticate));
    gateway_request_field(
        request, SLICE_LIT("Stripe-Should-Retry"), slice_str(refused.should_retry));
    gateway_request_end(request, refused.status);
    http_answer_end(exchange, slice_str(refused.content_type),
        buf_status(&body) == OK ? buf_view(&body) : SLICE_EMPTY, true);
}
