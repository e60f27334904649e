#include <stdio.h>

#include "base/check.h"
#include "base/rand.h"
#include "base/text.h"
#include "http/problem.h"
#include "http/serve_impl.h"

static struct exchange *exchange_of(struct http_exchange *shown)
{
    return (struct exchange *)(void *)shown; /* it is the first member */
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

/* RFC 9110 section 5.6.7: "Date: Sun, 06 Nov 1994 08:49:37 GMT"; made once a second. */
static void date_make(struct worker *worker, int64_t second)
{
    static const char days[] = "ThuFriSatSunMonTueWed"; /* 1970 began on a Thursday */
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    char text[TEXT_TIME_BYTES];
    text_put_time(text, second * 1000);
    int month = (text[5] - '0') * 10 + text[6] - '0';
    int day = (int)(second / 86400 % 7);
    int len = snprintf(worker->date_line, sizeof worker->date_line,
        "Date: %.3s, %.2s %.3s %.4s %.8s GMT\r\n", days + 3 * day, text + 8,
        months + 3 * (month - 1), text, text + 11);
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

static const unsigned char *random_take(struct worker *worker)
{
    if (worker->random_at + SERVE_ID_RANDOM_BYTES > SERVE_RANDOM_BYTES) {
        /* Without random bytes ids are told apart by the old ones, the time and the loop: they
         * name requests in a log, and guard nothing. */
        if (rand_bytes(worker->random, sizeof worker->random, NULL) != OK) {
            worker->random[worker->number % SERVE_ID_RANDOM_BYTES] ^= 1;
        }
        worker->random_at = 0;
    }
    const unsigned char *taken = worker->random + worker->random_at;
    worker->random_at += SERVE_ID_RANDOM_BYTES;
    return taken;
}

/* RFC 9562 section 5.7: 48 bits of milliseconds, the version, the variant, and 74 random bits. */
static struct slice uuid_make(struct worker *worker, char text[SERVE_UUID_TEXT_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char bytes[16];
    uint64_t ms = (uint64_t)wall_ms(worker);
    for (int i = 0; i < 6; i++) {
        bytes[i] = (unsigned char)(ms >> (40 - 8 * i));
    }
    memcpy(bytes + 6, random_take(worker), SERVE_ID_RANDOM_BYTES);
    bytes[6] = (unsigned char)((bytes[6] & 0x0f) | 0x70);
    bytes[8] = (unsigned char)((bytes[8] & 0x3f) | 0x80);
    size_t at = 0;
    for (size_t i = 0; i < sizeof bytes; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            text[at++] = '-';
        }
        text[at++] = digits[bytes[i] >> 4];
        text[at++] = digits[bytes[i] & 15];
    }
    ASSERT(at == SERVE_UUID_TEXT_BYTES);
    return slice_of(text, at);
}

/* Visible ASCII without what has to be escaped in JSON, in a log or in a quoted string. */
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
    ASSERT(status >= 200);
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

static enum status head_end(struct exchange *exchange, struct slice content_type, size_t body_bytes)
{
    struct http_put *put = &exchange->put;
    struct buf *out = put->out;
    if (content_type.len > 0) {
        http_put_field(put, SLICE_LIT("Content-Type"), content_type);
    }
    if (!is_bodiless(exchange->shown.status)) {
        http_put_length(put, body_bytes);
    }
    buf_str(out, "Request-Id: ");
    buf_slice(out, exchange->shown.request_id);
    buf_str(out, "\r\n");
    date_put(exchange->worker, out);
    exchange->closes =
        exchange->closes ||
        atomic_load_explicit(&exchange->worker->server->is_draining, memory_order_relaxed);
    if (exchange->closes) {
        buf_str(out, "Connection: close\r\n");
    } else if (exchange->head.minor == 0) {
        buf_str(out, "Connection: keep-alive\r\n");
    }
    return http_put_end(put);
}

/* A handler gave a field that cannot be sent. The client gets an answer all the same. */
static enum status head_instead(struct exchange *exchange)
{
    struct outbox *out = exchange->conn->out;
    if (out->buf.status != OK) {
        return out->buf.status;
    }
    exchange->shown.status = 500;
    exchange->closes = true;
    http_put_response(&exchange->put, &out->buf, 500);
    return head_end(exchange, SLICE_EMPTY, 0);
}

static enum status body_put(struct exchange *exchange, struct slice body, bool is_stable)
{
    struct outbox *out = exchange->conn->out;
    bool is_head = exchange->is_head_done && exchange->head.method == HTTP_METHOD_HEAD;
    if (is_head || is_bodiless(exchange->shown.status)) {
        return OK;
    }
    if (is_stable && body.len > SERVE_GATHER_BYTES) {
        out->tail = body;
    } else {
        buf_slice(&out->buf, body);
    }
    return buf_status(&out->buf);
}

void http_answer_end(
    struct http_exchange *shown, struct slice content_type, struct slice body, bool is_stable)
{
    struct exchange *exchange = exchange_of(shown);
    struct conn *conn = exchange->conn;
    ASSERT(exchange->is_begun);
    if (!is_dropped(exchange)) {
        enum status status = head_end(exchange, content_type, body.len);
        if (status == E_INVALID) {
            status = head_instead(exchange);
        } else if (status == OK) {
            status = body_put(exchange, body, is_stable);
        }
        exchange->is_failed = status != OK;
    }
    bool is_failed = exchange->is_failed && conn->state != CONN_CLOSING;
    conn_answered(conn);
    if (is_failed) {
        conn_close(conn); /* half an answer must not be taken for a whole one */
    }
}

static void on_woken(struct net_task *task)
{
    struct exchange *exchange =
        (struct exchange *)(void *)((char *)task - offsetof(struct exchange, wake));
    ASSERT(exchange->shown.resume != NULL);
    atomic_store(&exchange->is_woken, false);
    exchange->worker->has_handled = true;
    exchange->shown.resume(exchange->worker->server->context, &exchange->shown);
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
    request_id_choose(exchange);
    exchange->closes = true;
    problem_answer(
        &exchange->shown, &(struct problem){.status = status,
                              .code = refusal_code(status),
                              .detail = slice_str(reason),
                              .effect = PROBLEM_EFFECT_NO,
                              .retry = is_passing ? PROBLEM_RETRY_SAFE : PROBLEM_RETRY_NO,
                              .retry_after_ms = status == 503 ? 1000 : 0});
}
