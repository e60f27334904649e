/*
 * relay: the life of a request that is not fenced: reads, and methods that no route protects. Head
 * and bodies go through as they come, both ways, unbuffered; each side is read no faster than the
 * other takes.
 *
 *   relay_begin    the head is here: call the upstream, if a body follows
 *   relay_handle   the body is over, or there was none
 *   on_head, on_piece, on_end, on_failed   the answer, as it comes
 *
 * A read whose connection turns out to be closed before any answer is sent a second time: it has no
 * effect (RFC 9110 section 9.2.1). Nothing else is.
 */
#include "base/check.h"
#include "base/text.h"
#include "gateway/impl.h"

static struct pass *pass_of(struct upstream_call *up)
{
    return up->context;
}

static bool is_safe(enum http_method method)
{
    return method == HTTP_METHOD_GET || method == HTTP_METHOD_HEAD || method == HTTP_METHOD_OPTIONS;
}

/* ---- the answer ---------------------------------------------------------------------------- */

static void end(struct pass *pass, bool is_whole)
{
    struct http_exchange *exchange = pass->exchange;
    pass_end(pass, pass->kept_status);
    http_answer_finish(exchange, is_whole);
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
    /* What a GET would have had. */
    bool is_said = method == HTTP_METHOD_HEAD && head->status != 204 && head->status != 304 &&
                   http_find_single(head, SLICE_LIT("Content-Length"), &text) &&
                   text_u64(text, &length) && length <= INT64_MAX;
    return is_said ? (int64_t)length : HTTP_LENGTH_ABSENT;
}

static void on_head(struct upstream_call *up, const struct http_head *head)
{
    struct pass *pass = pass_of(up);
    struct http_exchange *exchange = pass->exchange;
    pass->kept_status = head->status;
    pass->is_begun = true;
    http_answer_begin(exchange, head->status);
    fields_answer(head, exchange);
    if (pass->key_field.len > 0) {
        http_answer_field(exchange, SLICE_LIT("Idempotency-Key"), pass->key_field);
    }
    http_answer_stream(exchange, length_of(head, exchange->head->method));
}

static void on_piece(struct upstream_call *up, struct slice piece)
{
    if (!http_answer_piece(pass_of(up)->exchange, piece)) {
        upstream_pause(up);
    }
}

static void on_end(struct upstream_call *up)
{
    struct pass *pass = pass_of(up);
    pass->is_up = false;
    end(pass, true);
}

static void start(struct pass *pass);

static void on_failed(struct upstream_call *up, enum upstream_point point,
    enum upstream_cause cause, const struct err *err)
{
    struct pass *pass = pass_of(up);
    pass->is_up = false;
    if (pass->is_begun) {
        end(pass, false);
        return;
    }
    if (point == UPSTREAM_SENT && cause == UPSTREAM_CAUSE_BROKEN && !up->is_streamed &&
        is_safe(pass->exchange->head->method) && !pass->is_again) {
        pass->is_again = true;
        start(pass);
        return;
    }
    answer_log_failure(pass, err);
    enum refusal_kind kind = cause == UPSTREAM_CAUSE_BUSY            ? REFUSAL_UPSTREAM_BUSY
                             : point == UPSTREAM_NOT_SENT            ? REFUSAL_UNREACHABLE
                             : is_safe(pass->exchange->head->method) ? REFUSAL_READ_FAILED
                                                                     : REFUSAL_NO_ANSWER;
    answer_refusal_now(pass, &(struct refusal){.kind = kind}, NULL);
}

/* ---- the request --------------------------------------------------------------------------- */

static void on_put_drained(struct upstream_call *up)
{
    http_body_go_on(pass_of(up)->exchange);
}

static const struct upstream_events relay_events = {.head = on_head,
    .piece = on_piece,
    .end = on_end,
    .failed = on_failed,
    .drained = on_put_drained};

static void on_body_piece(void *context, struct http_exchange *exchange, struct slice piece)
{
    (void)context;
    struct pass *pass = exchange->state;
    if (pass->is_up && !upstream_put(&pass->up, piece)) {
        http_body_pause(exchange);
    }
}

static void cancel(struct pass *pass)
{
    if (pass->is_up) {
        pass->is_up = false;
        (void)upstream_cancel(&pass->up); /* nobody waits for it any more */
    }
}

static void on_body_cut(void *context, struct http_exchange *exchange)
{
    (void)context;
    cancel(exchange->state);
    pass_end(exchange->state, 400);
}

static void on_drained(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct pass *pass = exchange->state;
    if (pass->is_up) {
        upstream_go_on(&pass->up);
    }
}

static void on_gone(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct pass *pass = exchange->state;
    cancel(pass);
    if (!pass->is_begun) {
        http_answer_begin(exchange, 502);
        http_answer_stream(exchange, HTTP_LENGTH_CHUNKED);
    }
    end(pass, false);
}

static enum status put_head(struct pass *pass)
{
    const struct http_head *head = pass->exchange->head;
    struct fields_added added = {.authority = upstreams_authority(pass->upstream),
        .idempotency_key = pass->key_field,
        .request_id = pass->exchange->request_id,
        .traceparent = pass->traceparent,
        .peer = pass->exchange->peer,
        .is_tls = pass->gate->gateway->tls_cert != NULL,
        .length = head->framing == HTTP_BODY_NONE     ? HTTP_LENGTH_ABSENT
                  : head->framing == HTTP_BODY_LENGTH ? (int64_t)head->length
                                                      : HTTP_LENGTH_CHUNKED};
    buf_init(&pass->request_head, &pass->mem, 64 << 10);
    return fields_request(head, &added, &pass->request_head);
}

static void start(struct pass *pass)
{
    struct http_exchange *exchange = pass->exchange;
    const struct http_head *head = exchange->head;
    if (atomic_load(&pass->gateway->is_cut)) {
        answer_refusal_now(pass, &(struct refusal){.kind = REFUSAL_OVERLOADED}, NULL);
        return;
    }
    pass->up = (struct upstream_call){.events = &relay_events,
        .head = buf_view(&pass->request_head),
        .is_streamed = head->framing != HTTP_BODY_NONE,
        .is_chunked = head->framing == HTTP_BODY_CHUNKED,
        .method = head->method,
        .timeouts = {.connect_ms = pass->route->connect_ms,
            .first_byte_ms = pass->route->first_byte_ms},
        .context = pass};
    pass->is_up = true;
    upstream_start(upstreams_on(pass->gateway->upstreams, pass->upstream, exchange->loop),
        exchange->loop, &pass->up);
}

void relay_begin(struct pass *pass)
{
    struct http_exchange *exchange = pass->exchange;
    /* A key that is not ours to judge goes through, if there is just one. */
    (void)!http_find_single(exchange->head, SLICE_LIT("Idempotency-Key"), &pass->key_field);
    pass_move(pass, PASS_RELAYED);
    enum status status = pass_trace(pass);
    status = status == OK ? put_head(pass) : status;
    if (status != OK) {
        answer_refusal_now(pass, &(struct refusal){.kind = REFUSAL_MEMORY}, NULL);
        return;
    }
    exchange->cut = on_body_cut; /* also of a request without one, whose turn may never come */
    exchange->gone = on_gone;
    exchange->drained = on_drained;
    exchange->body_bytes_max = INT64_MAX;
    if (exchange->head->framing != HTTP_BODY_NONE) {
        exchange->piece = on_body_piece;
        start(pass);
    }
}

void relay_handle(struct pass *pass)
{
    if (pass->exchange->head->framing == HTTP_BODY_NONE) {
        start(pass);
    } else if (pass->is_up) {
        upstream_put_end(&pass->up);
    }
}
