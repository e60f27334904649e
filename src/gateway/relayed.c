/*
 * relayed: the life of a request that is not fenced: reads, and methods that no route protects.
 * Head and bodies are passed on as they arrive, both ways, unbuffered; each side is read no faster
 * than the other accepts.
 *
 *   relayed_begin    the head is here: call the upstream, if a body follows
 *   relayed_handle   the body is complete, or absent
 *   on_head, on_piece, on_end, on_failed   the answer, as it comes
 *
 * A request for a WebSocket is passed on as such. After the upstream's 101, and not before, bytes
 * go both ways until either side closes, or is silent for timeout.upgraded. No other protocol is
 * passed on: in an HTTP/2 tunnel (h2c) a client could send requests that must be fenced.
 *
 * A read whose connection turns out to be closed before any answer is sent a second time: it has no
 * effect (RFC 9110 section 9.2.1). No other request is.
 */
#include "base/check.h"
#include "base/macros.h"
#include "base/text.h"
#include "gateway/impl.h"

struct relayed {
    struct gateway_request request;
    struct upstream_call up;
    struct buf head;  /* for the upstream */
    bool asks_switch; /* it asks for a WebSocket */
    unsigned status;  /* of the answer; 0: it has not begun */
    bool is_up;       /* the call to the upstream has had no last event */
    bool is_again;    /* it has been sent a second time */
};

static struct relayed *relayed_of(const struct http_exchange *exchange)
{
    return CONTAINER_OF((struct gateway_request *)exchange->state, struct relayed, request);
}

static bool is_safe(enum http_method method)
{
    return method == HTTP_METHOD_GET || method == HTTP_METHOD_HEAD || method == HTTP_METHOD_OPTIONS;
}

/* ---- the answer ---------------------------------------------------------------------------- */

static void end(struct relayed *relayed, bool is_whole)
{
    struct http_exchange *exchange = relayed->request.exchange;
    gateway_request_end(&relayed->request, relayed->status);
    http_answer_finish(exchange, is_whole);
}

static void refuse(struct relayed *relayed, enum refusal_kind kind)
{
    gateway_request_refuse(
        &relayed->request, &(struct refusal){.kind = kind, .is_unfenced = true}, NULL);
}

static int64_t length_of(const struct http_head *head, enum http_method method)
{
    uint64_t length;
    struct slice text = SLICE_EMPTY;
    switch (head->framing) {
    case HTTP_BODY_LENGTH: return (int64_t)head->length;
    case HTTP_BODY_CHUNKED:
    case HTTP_BODY_CLOSE: return HTTP_LENGTH_CHUNKED;
    case HTTP_BODY_NONE: break;
    }
    /* The length that a GET would have had. */
    bool is_known = method == HTTP_METHOD_HEAD && head->status != 204 && head->status != 304 &&
                    http_find_single(head, SLICE_LIT("Content-Length"), &text) &&
                    text_u64(text, &length) && length <= INT64_MAX;
    return is_known ? (int64_t)length : HTTP_LENGTH_ABSENT;
}

static void cancel(struct relayed *relayed);

/* Only to the protocol in the request. */
static void switched(struct relayed *relayed, const struct http_head *head)
{
    struct http_exchange *exchange = relayed->request.exchange;
    struct slice protocol = fields_upgrade(head);
    if (!http_same_name(protocol, gateway_websocket)) {
        cancel(relayed);
        refuse(relayed, REFUSAL_READ_FAILED);
        return;
    }
    relayed->status = head->status;
    http_answer_begin(exchange, head->status);
    fields_answer(head, exchange);
    http_answer_field(exchange, SLICE_LIT("Upgrade"), protocol);
    http_answer_stream(exchange, HTTP_LENGTH_CHUNKED);
    http_body_go_on(exchange);
}

static void on_head(struct upstream_call *up, const struct http_head *head)
{
    struct relayed *relayed = up->context;
    struct http_exchange *exchange = relayed->request.exchange;
    if (head->status == 101) {
        switched(relayed, head);
        return;
    }
    relayed->status = head->status;
    http_answer_begin(exchange, head->status);
    fields_answer(head, exchange);
    gateway_request_field(
        &relayed->request, SLICE_LIT("Idempotency-Key"), relayed->request.key_field);
    http_answer_stream(exchange, length_of(head, exchange->head->method));
}

static void on_piece(struct upstream_call *up, struct slice piece)
{
    struct relayed *relayed = up->context;
    if (!http_answer_piece(relayed->request.exchange, piece)) {
        upstream_pause(up);
    }
}

static void on_end(struct upstream_call *up)
{
    struct relayed *relayed = up->context;
    relayed->is_up = false;
    end(relayed, true);
}

static void start(struct relayed *relayed);

static void on_failed(struct upstream_call *up, enum upstream_point point,
    enum upstream_cause cause, const struct err *err)
{
    struct relayed *relayed = up->context;
    enum http_method method = relayed->request.exchange->head->method;
    relayed->is_up = false;
    if (relayed->status > 0) {
        end(relayed, false);
        return;
    }
    if (point == UPSTREAM_SENT && cause == UPSTREAM_CAUSE_BROKEN && !up->is_streamed &&
        is_safe(method) && !relayed->is_again) {
        relayed->is_again = true;
        start(relayed);
        return;
    }
    gateway_request_log_failure(&relayed->request, err, SLICE_EMPTY, SLICE_EMPTY);
    refuse(relayed, cause == UPSTREAM_CAUSE_BUSY ? REFUSAL_UPSTREAM_BUSY
                    : point == UPSTREAM_NOT_SENT ? REFUSAL_UNREACHABLE
                    : is_safe(method)            ? REFUSAL_READ_FAILED
                                                 : REFUSAL_NO_ANSWER);
}

/* ---- the request --------------------------------------------------------------------------- */

static void on_put_drained(struct upstream_call *up)
{
    struct relayed *relayed = up->context;
    http_body_go_on(relayed->request.exchange);
}

static const struct upstream_events relayed_events = {.head = on_head,
    .piece = on_piece,
    .end = on_end,
    .failed = on_failed,
    .drained = on_put_drained};

static void on_body_piece(void *context, struct http_exchange *exchange, struct slice piece)
{
    (void)context;
    struct relayed *relayed = relayed_of(exchange);
    if (relayed->is_up && !upstream_put(&relayed->up, piece)) {
        http_body_pause(exchange);
    }
}

static void cancel(struct relayed *relayed)
{
    if (relayed->is_up) {
        relayed->is_up = false;
        (void)upstream_cancel(&relayed->up); /* nobody waits for the answer any more */
    }
}

static void on_body_cut(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct relayed *relayed = relayed_of(exchange);
    cancel(relayed);
    gateway_request_end(&relayed->request, relayed->status == 101 ? 101 : 400);
}

static void on_drained(void *context, struct http_exchange *exchange)
{
    (void)context;
    if (relayed_of(exchange)->is_up) {
        upstream_go_on(&relayed_of(exchange)->up);
    }
}

static void on_gone(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct relayed *relayed = relayed_of(exchange);
    cancel(relayed);
    if (relayed->status == 0) {
        http_answer_begin(exchange, 502);
        http_answer_stream(exchange, HTTP_LENGTH_CHUNKED);
    }
    end(relayed, false);
}

static enum status put_head(struct relayed *relayed)
{
    const struct http_head *head = relayed->request.exchange->head;
    struct fields_added own = {.upgrade = relayed->asks_switch ? gateway_websocket : SLICE_EMPTY,
        .length = head->framing == HTTP_BODY_NONE     ? HTTP_LENGTH_ABSENT
                  : head->framing == HTTP_BODY_LENGTH ? (int64_t)head->length
                                                      : HTTP_LENGTH_CHUNKED};
    return gateway_request_head(&relayed->request, &own, &relayed->head);
}

static void start(struct relayed *relayed)
{
    const struct gateway_request *request = &relayed->request;
    const struct http_head *head = request->exchange->head;
    if (atomic_load(&request->gateway->is_cut)) {
        refuse(relayed, REFUSAL_OVERLOADED);
        return;
    }
    relayed->up = (struct upstream_call){.events = &relayed_events,
        .head = buf_view(&relayed->head),
        .is_streamed = head->framing != HTTP_BODY_NONE || relayed->asks_switch,
        .asks_switch = relayed->asks_switch,
        .is_chunked = head->framing == HTTP_BODY_CHUNKED,
        .method = head->method,
        .timeouts = {.connect_ms = request->route->connect_ms,
            .first_byte_ms = request->route->first_byte_ms,
            .switched_ms = request->route->upgraded_ms},
        .context = relayed};
    relayed->is_up = true;
    upstream_start(gateway_request_upstream(request), request->exchange->loop, &relayed->up);
}

void relayed_begin(const struct gateway_request *request)
{
    struct http_exchange *exchange = request->exchange;
    struct relayed *relayed = arena_zalloc(exchange->arena, sizeof *relayed);
    if (relayed == NULL) {
        struct gateway_request refused = *request;
        gateway_request_refuse(&refused, &(struct refusal){.kind = REFUSAL_MEMORY}, NULL);
        return;
    }
    relayed->request = *request;
    exchange->state = &relayed->request;
    /* A key that is not ours to check is passed on, if there is just one. */
    (void)!http_find_single(
        exchange->head, SLICE_LIT("Idempotency-Key"), &relayed->request.key_field);
    relayed->asks_switch = exchange->head->method == HTTP_METHOD_GET &&
                           exchange->head->framing == HTTP_BODY_NONE &&
                           gateway_request_asks_websocket(request);
    enum status status = gateway_request_trace(&relayed->request);
    status = status == OK ? put_head(relayed) : status;
    if (status != OK) {
        refuse(relayed, REFUSAL_MEMORY);
        return;
    }
    exchange->cut = on_body_cut; /* also for a request without a body, whose turn may never come */
    exchange->gone = on_gone;
    exchange->drained = on_drained;
    exchange->body_bytes_max = INT64_MAX;
    if (relayed->asks_switch) {
        exchange->is_switching = true;
        http_body_pause(exchange); /* until the 101 */
    }
    if (exchange->head->framing != HTTP_BODY_NONE || relayed->asks_switch) {
        exchange->piece = on_body_piece;
        start(relayed);
    }
}

void relayed_handle(struct gateway_request *request)
{
    struct relayed *relayed = CONTAINER_OF(request, struct relayed, request);
    if (request->exchange->head->framing == HTTP_BODY_NONE) {
        start(relayed);
    } else if (relayed->is_up) {
        upstream_put_end(&relayed->up);
    }
}
