#include "base/check.h"
#include "base/clock.h"
#include "http/serve_impl.h"

/* The steps of a connection from the first byte of a request to the call of its handler: HEAD, BODY
 * and PIECES of the diagram at enum conn_state (serve_impl.h). Each returns true if something
 * changed, so that the caller steps again. */

bool request_idle(struct conn *conn)
{
    if (!conn_has_bytes(conn)) {
        inbox_return(conn->worker, conn->in);
        exchange_return(conn->exchange);
        conn->in = NULL;
        conn->exchange = NULL;
        return false;
    }
    if (conn->exchange == NULL) {
        conn->exchange = exchange_take(conn->worker);
    }
    if (conn->exchange == NULL) {
        conn_close(conn); /* without memory not even a refusal can be written */
        return false;
    }
    conn->exchange->conn = conn;
    conn->exchange->shown.started_nanos = clock_nanos();
    conn_move(conn, CONN_HEAD);
    return true;
}

/* The head is done: decide what to read after it. */
static enum http_verdict body_begin(
    struct conn *conn, const struct http_limits *limits, struct http_refusal *ret_refusal)
{
    struct exchange *exchange = conn->exchange;
    struct http_head *head = &exchange->head;
    if (exchange->shown.is_switching) {
        ASSERT(head->framing == HTTP_BODY_NONE);
        head->framing = HTTP_BODY_CLOSE;
        exchange->is_whole = false;
    }
    exchange->is_spilled =
        head->framing == HTTP_BODY_CHUNKED ||
        (head->framing == HTTP_BODY_LENGTH && head->length > conn->in->cap - head->bytes);
    return http_body_init(&exchange->body, head, limits, ret_refusal);
}

/* What a handler may read. */
static void conn_show(struct conn *conn)
{
    struct exchange *exchange = conn->exchange;
    request_id_choose(exchange);
    exchange->closes = !exchange->head.keep_alive;
    exchange->shown.peer = slice_of(conn->peer, conn->peer_len);
    exchange->shown.listener = conn->listener;
    exchange->is_shown = true;
}

/* In state BODY, after the hook was called and gave no answer. */
static void conn_begun(struct conn *conn)
{
    struct exchange *exchange = conn->exchange;
    struct http_refusal refusal = {0};
    struct http_limits limits = conn->worker->server->limits.message;
    limits.body_bytes_max = exchange->shown.body_bytes_max;
    exchange->spilled.max = (size_t)limits.body_bytes_max;
    enum http_verdict verdict = body_begin(conn, &limits, &refusal);
    bool is_piecewise = exchange->shown.piece != NULL;
    if (is_piecewise || exchange->is_begun) {
        conn_lend(conn);
        conn_move(conn, is_piecewise             ? CONN_PIECES
                        : exchange->is_streaming ? CONN_STREAMED
                                                 : CONN_HANDLED);
    }
    if (verdict == HTTP_REFUSED && is_piecewise) {
        conn_cut(conn, refusal.status, refusal.reason);
    } else if (verdict == HTTP_REFUSED && !exchange->is_begun) {
        conn_refuse(conn, refusal.status, refusal.reason);
    }
}

/* Before anything of the body: the handler sees the head. */
static bool conn_begin(struct conn *conn)
{
    struct exchange *exchange = conn->exchange;
    struct http_head *head = &exchange->head;
    exchange->is_whole =
        head->framing == HTTP_BODY_NONE || (head->framing == HTTP_BODY_LENGTH && head->length == 0);
    bool is_here =
        head->framing == HTTP_BODY_LENGTH && conn->in->len - conn->in->at >= head->length;
    bool may_switch = http_find(head, SLICE_LIT("Upgrade"), 0) < head->field_count;
    if ((may_switch || (!exchange->is_whole && !is_here)) && conn->in->start > 0) {
        conn_compact(conn); /* later the head cannot move to make room for the body */
    }
    conn_move(conn, CONN_BODY);
    conn_show(conn);
    exchange->shown.body_bytes_max = conn->worker->server->limits.message.body_bytes_max;
    exchange->is_beginning = true;
    conn_call(conn, conn->worker->server->begin);
    exchange->is_beginning = false;
    if (conn->state == CONN_BODY) {
        conn_begun(conn);
    }
    return true;
}

/* Whether a head or a body is refused: it is malformed, or the connection ended inside it. */
static bool refused(
    struct conn *conn, enum http_verdict verdict, struct http_refusal refusal, const char *ended)
{
    if (verdict == HTTP_MORE && conn->has_ended) {
        refusal = (struct http_refusal){400, ended};
    } else if (verdict != HTTP_REFUSED) {
        return false;
    }
    conn_refuse(conn, refusal.status, refusal.reason);
    return true;
}

bool request_head(struct conn *conn)
{
    struct exchange *exchange = conn->exchange;
    struct inbox *in = conn->in;
    const struct http_limits *limits = &conn->worker->server->limits.message;
    struct http_refusal refusal = {0};
    struct slice bytes = slice_of(in->data + in->start, in->len - in->start);
    enum http_verdict verdict = http_request_head(bytes, limits, &exchange->head, &refusal);
    if (verdict == HTTP_DONE) {
        exchange->is_head_done = true;
        in->at = in->start + exchange->head.bytes;
        if (conn->worker->server->begin != NULL) {
            return conn_begin(conn);
        }
        verdict = body_begin(conn, limits, &refusal);
        if (verdict != HTTP_REFUSED) {
            conn_move(conn, CONN_BODY);
            return true;
        }
    }
    return refused(conn, verdict, refusal, "the connection ended inside a head");
}

/* A body that came with its head, or right after it, is used where it is. */
static enum http_verdict body_in_place(struct conn *conn)
{
    struct exchange *exchange = conn->exchange;
    struct inbox *in = conn->in;
    uint64_t length = exchange->head.framing == HTTP_BODY_LENGTH ? exchange->head.length : 0;
    if (in->len - in->at < length) {
        return HTTP_MORE;
    }
    exchange->shown.body = slice_of(in->data + in->at, (size_t)length);
    in->at += (uint32_t)length;
    return HTTP_DONE;
}

static enum http_verdict body_spilled(struct conn *conn, struct http_refusal *ret_refusal)
{
    struct exchange *exchange = conn->exchange;
    struct inbox *in = conn->in;
    enum http_verdict verdict;
    do {
        struct slice data = SLICE_EMPTY;
        size_t used = 0;
        struct slice bytes = slice_of(in->data + in->at, in->len - in->at);
        verdict = http_body_next(&exchange->body, bytes, &used, &data, ret_refusal);
        in->at += (uint32_t)used;
        if (verdict == HTTP_DATA) {
            enum status status = exchange_hold(exchange, data);
            if (status != OK) {
                *ret_refusal = (struct http_refusal){503, "too many bytes of bodies are in flight: "
                                                          "in_flight_bytes_max is reached"};
                return HTTP_REFUSED;
            }
        }
    } while (verdict == HTTP_DATA);
    if (verdict == HTTP_DONE) {
        exchange->shown.body = buf_view(&exchange->spilled);
    } else if (verdict == HTTP_MORE) {
        in->at = in->start + exchange->head.bytes; /* all was taken: read into the same place */
        in->len = in->at;
    }
    return verdict;
}

static bool conn_handle(struct conn *conn)
{
    struct exchange *exchange = conn->exchange;
    if (!exchange->is_shown) {
        conn_show(conn);
    }
    if (!exchange->is_taken) {
        conn_lend(conn);
    }
    exchange->is_whole = true;
    enum conn_state state = exchange->is_streaming ? CONN_STREAMED : CONN_HANDLED;
    conn_move(conn, state);
    conn_call(conn, conn->worker->server->handle);
    return conn->state != state;
}

/* The client waits for 100 Continue before it sends the body, and the body will be read. */
static void conn_continue(struct conn *conn)
{
    struct exchange *exchange = conn->exchange;
    if (!exchange->head.expect_continue || exchange->is_continued || conn_has_bytes(conn) ||
        exchange->body.total > 0 || exchange->is_begun) {
        return;
    }
    struct outbox *out = conn_out(conn);
    if (out != NULL) {
        buf_str(&out->buf, "HTTP/1.1 100 Continue\r\n\r\n");
        exchange->is_continued = true;
    }
}

bool request_body(struct conn *conn)
{
    struct http_refusal refusal = {0};
    enum http_verdict verdict =
        conn->exchange->is_spilled ? body_spilled(conn, &refusal) : body_in_place(conn);
    if (verdict == HTTP_DONE) {
        return conn_handle(conn);
    }
    if (refused(conn, verdict, refusal, "the connection ended inside a body")) {
        return true;
    }
    conn_continue(conn);
    return false;
}

/* Runs until it is paused or answered, or everything received was handed on; then the room is
 * reused. */
static enum http_verdict hand_on(struct conn *conn, struct http_refusal *ret_refusal)
{
    struct exchange *exchange = conn->exchange;
    struct inbox *in = conn->in;
    enum http_verdict verdict = HTTP_DATA;
    while (verdict == HTTP_DATA && conn->state == CONN_PIECES && !exchange->is_paused) {
        struct slice data = SLICE_EMPTY;
        size_t used = 0;
        struct slice bytes = slice_of(in->data + in->at, in->len - in->at);
        verdict = http_body_next(&exchange->body, bytes, &used, &data, ret_refusal);
        in->at += (uint32_t)used;
        if (verdict == HTTP_DATA) {
            conn->worker->has_handled = true;
            exchange->shown.piece(conn->worker->server->context, &exchange->shown, data);
        }
    }
    if (verdict == HTTP_MORE) {
        in->at = in->start + exchange->head.bytes;
        in->len = in->at;
    }
    return verdict;
}

bool request_pieces(struct conn *conn)
{
    struct http_refusal refusal = {0};
    enum http_verdict verdict = hand_on(conn, &refusal);
    if (conn->state != CONN_PIECES) {
        return true;
    }
    switch (verdict) {
    case HTTP_DATA: return false; /* CN7: paused */
    case HTTP_DONE: return conn_handle(conn);
    case HTTP_REFUSED: conn_cut(conn, refusal.status, refusal.reason); return true;
    case HTTP_MORE: break;
    }
    if (conn->has_ended) {
        conn_cut(conn, 400, "the connection ended inside a body");
        return true;
    }
    conn_continue(conn);
    return false;
}
