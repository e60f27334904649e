#include <stdio.h>

#include "base/check.h"
#include "base/macros.h"
#include "base/rand.h"
#include "base/text.h"
#include "base/uuid.h"
#include "http/problem.h"
#include "http/serve_impl.h"
#include "http/write.h"

static struct exchange *exchange_of(struct http_exchange *shown)
{
    return CONTAINER_OF(shown, struct exchange, shown);
}

/* ---------------------------------------------------------------------- time and identifiers -- */

static int64_t wall_ms(struct worker *worker)
{
    uint64_t now_ms = net_loop_now(&worker->loop);
    if (worker->wall_at_ms != now_ms) {
        worker->wall_at_ms = now_ms;
        worker->wall_ms = clock_read(&worker->server->clock).wall_ms;
    }
    return worker->wall_ms;
}

/* Made once a second. */
static void date_make(struct worker *worker, int64_t second)
{
    char date[HTTP_DATE_BYTES];
    int len = snprintf(worker->date_line, sizeof worker->date_line, "Date: %s\r\n",
        http_put_date(date, second * 1000));
    ASSERT(len > 0);
    ASSERT((size_t)len < sizeof worker->date_line);
    worker->date_len = (size_t)len;
    worker->date_s = second;
}

static void date_put(struct worker *worker, struct buf *out)
{
    int64_t second = wall_ms(worker) / 1000;
    if (second != worker->date_s || worker->date_len == 0) {
        date_make(worker, second);
    }
    buf_append(out, worker->date_line, worker->date_len);
}

static struct slice uuid_make(struct worker *worker, char text[UUID_TEXT_BYTES])
{
    unsigned char bytes[UUID_BYTES]; /* the first six become the time */
    /* Without random bytes, ids differ by the time, the loop and a count. They only name requests
     * in a log, and protect nothing. */
    if (rand_names(worker->random, sizeof worker->random, NULL) != OK) {
        worker->random[worker->number % SERVE_ID_RANDOM_BYTES]++;
    }
    memcpy(bytes + UUID_BYTES - sizeof worker->random, worker->random, sizeof worker->random);
    uuid_v7(bytes, wall_ms(worker));
    return slice_of(uuid_put(text, bytes), UUID_TEXT_BYTES - 1);
}

/* Visible ASCII, except characters that must be escaped in JSON, a log or a quoted string. */
static bool is_good_id(struct slice id)
{
    for (size_t i = 0; i < id.len; i++) {
        char c = id.data[i];
        if (c <= ' ' || c > '~' || c == '"' || c == '\\') {
            return false;
        }
    }
    return id.len > 0 && id.len <= HTTP_REQUEST_ID_BYTES_MAX;
}

void request_id_choose(struct exchange *exchange)
{
    struct slice given = SLICE_EMPTY;
    bool is_single = exchange->is_head_done &&
                     http_find_single(&exchange->head, SLICE_LIT("request-id"), &given);
    exchange->shown.request_id =
        is_single && is_good_id(given) ? given : uuid_make(exchange->worker, exchange->id);
}

/* ----------------------------------------------------------------------------------- answers -- */

static bool is_dropped(const struct exchange *exchange)
{
    return exchange->conn->state == CONN_CLOSING || exchange->is_failed;
}

void http_answer_begin(struct http_exchange *shown, unsigned status)
{
    struct exchange *exchange = exchange_of(shown);
    ASSERT(!exchange->is_begun);
    ASSERT(status >= 200 || (status == 101 && shown->is_switching));
    exchange->is_begun = true;
    shown->status = status;
    struct outbox *out = is_dropped(exchange) ? NULL : conn_out(exchange->conn);
    if (out == NULL) {
        exchange->is_failed = true;
        return;
    }
    http_put_response(&exchange->put, &out->buf, status);
}

void http_answer_field(struct http_exchange *shown, struct slice name, struct slice value)
{
    struct exchange *exchange = exchange_of(shown);
    ASSERT(exchange->is_begun);
    if (!is_dropped(exchange)) {
        http_put_field(&exchange->put, name, value);
    }
}

void http_answer_close(struct http_exchange *shown)
{
    exchange_of(shown)->closes = true;
}

/* RFC 9110 section 8.6: neither has a body, and a 204 must not say how long it is. */
static bool is_bodiless(unsigned status)
{
    return status == 204 || status == 304;
}

static bool is_to_head(const struct exchange *exchange)
{
    return exchange->is_head_done && exchange->head.method == HTTP_METHOD_HEAD;
}

/* Writes how the body ends; length as for http_answer_stream. */
static void length_put(struct exchange *exchange, int64_t length)
{
    if (is_bodiless(exchange->shown.status)) {
        return;
    }
    if (length >= 0) {
        http_put_length(&exchange->put, (uint64_t)length);
    } else if (exchange->framing == STREAM_CHUNKED) {
        http_put_chunked(&exchange->put);
    }
}

static enum status head_end(struct exchange *exchange, struct slice content_type, int64_t length)
{
    struct http_put *put = &exchange->put;
    struct buf *out = put->out;
    if (content_type.len > 0) {
        http_put_field(put, SLICE_LIT("Content-Type"), content_type);
    }
    length_put(exchange, length);
    buf_str(out, "Request-Id: ");
    buf_slice(out, exchange->shown.request_id);
    buf_str(out, "\r\n");
    if (!exchange->shown.has_date) {
        date_put(exchange->worker, out);
    }
    /* Unread bytes of a body must not be taken for the next request. */
    exchange->closes =
        exchange->closes || !exchange->is_whole ||
        atomic_load_explicit(&exchange->worker->server->is_draining, memory_order_relaxed);
    if (exchange->shown.status == 101) {
        buf_str(out, "Connection: Upgrade\r\n");
    } else if (exchange->closes) {
        buf_str(out, "Connection: close\r\n");
    } else if (exchange->head.minor == 0) {
        buf_str(out, "Connection: keep-alive\r\n");
    }
    return http_put_end(put);
}

/* A handler gave a field that cannot be sent. The client still gets an answer. */
static enum status head_instead(struct exchange *exchange)
{
    struct outbox *out = exchange->conn->out;
    if (out->buf.status != OK) {
        return out->buf.status;
    }
    exchange->shown.status = 500;
    exchange->shown.has_date = false;
    exchange->closes = true;
    http_put_response(&exchange->put, &out->buf, 500);
    return head_end(exchange, SLICE_EMPTY, 0);
}

static enum status body_put(struct exchange *exchange, struct slice body, bool is_stable)
{
    struct outbox *out = exchange->conn->out;
    if (is_to_head(exchange) || is_bodiless(exchange->shown.status)) {
        return OK;
    }
    if (is_stable && body.len > SERVE_GATHER_BYTES) {
        out->tail = body;
    } else {
        buf_slice(&out->buf, body);
    }
    return buf_status(&out->buf);
}

static void answer_over(struct exchange *exchange)
{
    struct conn *conn = exchange->conn;
    bool is_failed = exchange->is_failed && conn->state != CONN_CLOSING;
    conn_answered(conn);
    if (is_failed) {
        conn_close(conn); /* half an answer must not be taken for a whole one */
    }
}

void http_answer_end(
    struct http_exchange *shown, struct slice content_type, struct slice body, bool is_stable)
{
    struct exchange *exchange = exchange_of(shown);
    ASSERT(exchange->is_begun);
    ASSERT(!exchange->is_streaming);
    if (!is_dropped(exchange)) {
        enum status status = head_end(exchange, content_type, (int64_t)body.len);
        if (status == E_INVALID) {
            status = head_instead(exchange);
        } else if (status == OK) {
            status = body_put(exchange, body, is_stable);
        }
        exchange->is_failed = status != OK;
    }
    answer_over(exchange);
}

/* --------------------------------------------------------------------------------- streaming -- */

static enum stream_framing framing_of(const struct exchange *exchange, int64_t length)
{
    if (is_to_head(exchange) || is_bodiless(exchange->shown.status)) {
        return STREAM_NONE;
    }
    if (length >= 0) {
        return STREAM_LENGTH;
    }
    bool is_bare = exchange->head.minor == 0 || exchange->shown.status == 101;
    return is_bare ? STREAM_CLOSE : STREAM_CHUNKED;
}

void http_answer_stream(struct http_exchange *shown, int64_t length)
{
    struct exchange *exchange = exchange_of(shown);
    ASSERT(exchange->is_begun);
    ASSERT(!exchange->is_streaming);
    ASSERT(length >= HTTP_LENGTH_ABSENT);
    exchange->is_streaming = true;
    if (!is_dropped(exchange)) {
        bool is_none = length == HTTP_LENGTH_ABSENT && !is_to_head(exchange);
        length = is_none ? 0 : length; /* else the client would wait for the end of it */
        exchange->framing = framing_of(exchange, length);
        exchange->left = exchange->framing == STREAM_LENGTH ? (uint64_t)length : 0;
        exchange->closes = exchange->closes || exchange->framing == STREAM_CLOSE;
        enum status status = head_end(exchange, SLICE_EMPTY, length);
        if (status == E_INVALID) {
            exchange->framing = STREAM_NONE;
            status = head_instead(exchange);
        }
        exchange->is_failed = status != OK;
    }
    conn_streams(exchange->conn);
}

/* False: it cannot be sent. Pieces are gathered, and sent before they need more than usual. */
static bool piece_put(struct exchange *exchange, struct slice piece)
{
    struct conn *conn = exchange->conn;
    size_t need = piece.len + SERVE_CHUNK_BYTES;
    bool fits = conn->out == NULL || conn->out->buf.len + need <= SERVE_FLUSH_BYTES;
    if (!fits && !conn_push(conn)) {
        return false;
    }
    struct outbox *out = conn_out(conn);
    if (out == NULL) {
        return false;
    }
    if (exchange->framing == STREAM_CHUNKED) {
        http_put_chunk(&out->buf, piece);
    } else {
        buf_slice(&out->buf, piece);
    }
    bool is_put = buf_status(&out->buf) == OK;
    return is_put && (out->buf.len < SERVE_FLUSH_BYTES || conn_push(conn));
}

bool http_answer_piece(struct http_exchange *shown, struct slice piece)
{
    struct exchange *exchange = exchange_of(shown);
    struct conn *conn = exchange->conn;
    ASSERT(exchange->is_streaming);
    if (exchange->framing == STREAM_LENGTH) {
        ASSERT(piece.len <= exchange->left); /* else the next answer would begin inside this one */
        exchange->left -= piece.len;
    }
    bool is_gone = conn->state == CONN_CLOSING;
    if (is_gone || exchange->framing == STREAM_NONE || piece.len == 0) {
        return true;
    }
    exchange->is_failed = exchange->is_failed || !piece_put(exchange, piece);
    conn_ready(conn);
    if (!exchange->is_failed && conn_has_room(conn)) {
        return true;
    }
    exchange->wants_drained = true;
    if (!exchange->is_failed && conn->sending == NULL) {
        conn_later(conn); /* CN6; and one that failed is closed at the end of the turn */
    }
    return false;
}

void http_answer_finish(struct http_exchange *shown, bool is_whole)
{
    struct exchange *exchange = exchange_of(shown);
    ASSERT(exchange->is_streaming);
    if (!is_dropped(exchange) && exchange->framing != STREAM_NONE) {
        if (!is_whole || exchange->left > 0) {
            exchange->is_broken_off = true;
            exchange->closes = true;
        } else if (exchange->framing == STREAM_CHUNKED) {
            struct outbox *out = conn_out(exchange->conn);
            if (out != NULL) {
                http_put_last_chunk(&out->buf);
            }
            exchange->is_failed = out == NULL || buf_status(&out->buf) != OK;
        }
    }
    answer_over(exchange);
}

void http_body_pause(struct http_exchange *shown)
{
    exchange_of(shown)->is_paused = true;
}

void http_body_go_on(struct http_exchange *shown)
{
    struct exchange *exchange = exchange_of(shown);
    struct conn *conn = exchange->conn;
    if (!exchange->is_paused) {
        return;
    }
    exchange->is_paused = false;
    if (conn->state == CONN_PIECES) {
        conn->since_ms = net_loop_now(&exchange->worker->loop); /* the wait was ours */
        conn->progress = exchange->body.total;
        conn_ready(conn);
    }
}

/* ---------------------------------------------------------------------------------- wake-ups -- */

static void on_woken(struct net_task *task)
{
    struct exchange *exchange = CONTAINER_OF(task, struct exchange, wake);
    atomic_store(&exchange->is_woken, false);
    if (exchange->conn == NULL) {
        exchange_return(exchange); /* it was only waiting for this */
        return;
    }
    if (!exchange->is_taken) {
        return; /* cut while this was on its way */
    }
    ASSERT(exchange->shown.resume != NULL);
    exchange->worker->has_handled = true;
    exchange->shown.resume(exchange->worker->server->context, &exchange->shown);
}

void http_turn(struct http_exchange *shown)
{
    exchange_of(shown)->worker->has_handled = true;
}

void http_wake(struct http_exchange *shown)
{
    struct exchange *exchange = exchange_of(shown);
    bool was_woken = atomic_exchange(&exchange->is_woken, true);
    ASSERT(!was_woken); /* else it would be in the list twice */
    exchange->wake.run = on_woken;
    net_loop_post(&exchange->worker->loop, &exchange->wake);
}

/* ---------------------------------------------------------------------------------- refusals -- */

static const char *refusal_code(unsigned status)
{
    switch (status) {
    case 400: return "malformed_request";
    case 408: return "request_timeout";
    case 413: return "body_too_large";
    case 414: return "target_too_long";
    case 417: return "expectation_failed";
    case 431: return "head_too_large";
    case 501: return "not_implemented";
    case 503: return "overloaded";
    case 505: return "version_not_supported";
    default: return "internal_error";
    }
}

void answer_refusal(struct exchange *exchange, unsigned status, const char *reason)
{
    bool is_passing = status == 503 || status == 408;
    if (!exchange->is_shown) {
        request_id_choose(exchange); /* else the handler has seen its id, which stays */
    }
    exchange->closes = true;
    problem_answer(&exchange->shown,
        &(struct problem){.status = status,
            .code = refusal_code(status),
            .detail = slice_str(reason),
            .effect = PROBLEM_EFFECT_NO,
            .retry = is_passing ? PROBLEM_RETRY_SAFE : PROBLEM_RETRY_NO,
            .retry_after_ms = status == 503 ? 1000 : 0,
            .body_bytes_max = status == 413 ? exchange->shown.body_bytes_max : 0});
}
