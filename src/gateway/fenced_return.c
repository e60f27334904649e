/*
 * How the upstream's own answer reaches the client, in one of three ways:
 *
 *   fenced_return     settled: all of it was captured (SETTLING → RETURNING)
 *   fenced_live_*   while it is captured, before it is settled: events and routes that stream, the
 *                   exception of P2. Bytes that the client does not take at once come from the
 *                   spool later, so that a slow client does not delay the operation. The last chunk
 *                   is sent when the seal is durable; if the answer breaks off, or the seal fails,
 *                   the connection is cut: an answer that is not sealed never looks complete
 *   fenced_stream   settled from its head: an answer that is too long to keep streams through
 */
#include "base/check.h"
#include "base/macros.h"
#include "gateway/fenced.h"

enum {
    GIVE_BYTES = 64 << 10, /* of an answer, handed to the server at a time */
    PEEK_BYTES = 16 << 10, /* … of an answer in a file, read back onto the stack */
};

static struct fenced *fenced_of(const struct http_exchange *exchange)
{
    return CONTAINER_OF((struct gateway_request *)exchange->state, struct fenced, request);
}

/* Give the client as much of the captured answer as it takes. False: continue when it is
 * drained. */
static bool return_captured(struct fenced *fenced)
{
    struct slice all = fenced->out.captured;
    while (fenced->given < all.len) {
        size_t left = all.len - fenced->given;
        size_t now = left < GIVE_BYTES ? left : GIVE_BYTES;
        struct slice piece = slice_of(all.data + fenced->given, now);
        fenced->given += now;
        if (!http_answer_piece(fenced->request.exchange, piece)) {
            return false;
        }
    }
    return true;
}

static void finish(struct fenced *fenced, bool is_whole)
{
    struct http_exchange *exchange = fenced->request.exchange;
    fenced_end(fenced, fenced->out.status);
    http_answer_finish(exchange, is_whole);
}

/* ---- whole answers ------------------------------------------------------------------------- */

/* A long answer leaves its spool piece by piece, as fast as the client reads it. */
static void return_more(void *context, struct http_exchange *exchange)
{
    (void)context;
    if (return_captured(fenced_of(exchange))) {
        finish(fenced_of(exchange), true);
    }
}

static void return_gone(void *context, struct http_exchange *exchange)
{
    (void)context;
    finish(fenced_of(exchange), true);
}

/* Give the rest to the client. */
static void return_rest(struct fenced *fenced)
{
    struct http_exchange *exchange = fenced->request.exchange;
    fenced_move(fenced, FENCED_RETURNING);
    exchange->drained = return_more;
    exchange->gone = return_gone;
    return_more(NULL, exchange);
}

void fenced_return(struct fenced *fenced)
{
    struct http_exchange *exchange = fenced->request.exchange;
    unsigned status = fenced->out.status;
    struct slice all = fenced->out.captured;
    fenced_answer_head(fenced);
    if (all.len > GIVE_BYTES && !exchange->is_gone) {
        http_answer_stream(exchange, (int64_t)all.len);
        return_rest(fenced);
        return;
    }
    struct slice body = SLICE_EMPTY;
    if (arena_copy(exchange->arena, all, &body) != OK) {
        fenced_break(fenced, status); /* out of memory; a retry gets the answer */
        return;
    }
    fenced_end(fenced, status);
    http_answer_end(exchange, SLICE_EMPTY, body, true);
}

/* ---- answers given while they are captured ------------------------------------------------- */

static bool is_event_stream(const struct http_head *head)
{
    struct slice type = SLICE_EMPTY;
    struct slice events = SLICE_LIT("text/event-stream");
    if (!http_find_single(head, SLICE_LIT("Content-Type"), &type) || type.len < events.len ||
        !http_same_name(slice_of(type.data, events.len), events)) {
        return false;
    }
    char after = type.len > events.len ? type.data[events.len] : ';';
    return after == ';' || after == ' ' || after == '\t';
}

/* An answer whose status releases the key is held back: if it broke off, the client would have
 * learned too much. */
static bool is_live(const struct fenced *fenced, enum outcall_verdict verdict)
{
    const struct http_head *head = fenced->out.answer;
    return !fenced->request.exchange->is_gone && head->framing != HTTP_BODY_NONE &&
           (judge_is_outcome(verdict) || verdict == VERDICT_UNKNOWN) &&
           (fenced->request.route->streams || is_event_stream(head));
}

static void return_so_far(struct fenced *fenced)
{
    char buffer[PEEK_BYTES];
    while (!fenced->is_full) {
        struct slice piece = outcall_peek(&fenced->out, fenced->given, buffer, sizeof buffer);
        if (piece.len == 0) {
            return;
        }
        fenced->given += piece.len;
        fenced->is_full = !http_answer_piece(fenced->request.exchange, piece);
    }
}

static void live_drained(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct fenced *fenced = fenced_of(exchange);
    fenced->is_full = false;
    if (fenced->state == FENCED_FORWARDED) { /* otherwise the rest waits for the seal */
        return_so_far(fenced);
    }
}

void fenced_live_begin(struct outcall *out)
{
    struct fenced *fenced = out->context;
    struct http_exchange *exchange = fenced->request.exchange;
    enum outcall_verdict verdict = judge(&out->rules, OUTCALL_ANSWERED, out->status);
    if (!is_live(fenced, verdict)) {
        return;
    }
    fenced->is_live = true;
    fenced->effect = verdict == VERDICT_UNKNOWN ? "unknown" : NULL;
    exchange->drained = live_drained;
    fenced_answer_head(fenced);
    /* Chunked, whatever the upstream uses: with a length the client could take the answer for
     * complete before it is sealed. */
    http_answer_stream(exchange, HTTP_LENGTH_CHUNKED);
}

void fenced_live_more(struct outcall *out)
{
    struct fenced *fenced = out->context;
    if (fenced->is_live) {
        return_so_far(fenced);
    }
}

void fenced_live_end(struct fenced *fenced, bool is_whole)
{
    ASSERT(fenced->is_live);
    if (is_whole) {
        return_rest(fenced);
    } else {
        finish(fenced, false);
    }
}

/* ---- answers too long to keep -------------------------------------------------------------- */

/* First the captured part, then what follows. */
static void stream_on(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct fenced *fenced = fenced_of(exchange);
    if (!return_captured(fenced)) {
        return;
    }
    struct slice after = fenced->out.after;
    fenced->out.after = SLICE_EMPTY;
    if (after.len > 0 && !http_answer_piece(exchange, after)) {
        return;
    }
    outcall_go_on(&fenced->out);
}

static void stream_gone(void *context, struct http_exchange *exchange)
{
    (void)context;
    finish(fenced_of(exchange), false); /* sealed: nobody needs the rest of the upstream's answer */
}

void fenced_stream(struct fenced *fenced)
{
    struct http_exchange *exchange = fenced->request.exchange;
    const struct http_head *head = fenced->out.answer;
    fenced_move(fenced, FENCED_STREAMING);
    if (!fenced->is_live) {
        fenced_answer_head(fenced);
        http_answer_stream(exchange,
            head->framing == HTTP_BODY_LENGTH ? (int64_t)head->length : HTTP_LENGTH_CHUNKED);
    }
    if (exchange->is_gone) {
        stream_gone(NULL, exchange);
        return;
    }
    exchange->drained = stream_on;
    exchange->gone = stream_gone;
    stream_on(NULL, exchange);
}

bool fenced_stream_piece(struct outcall *out, struct slice piece)
{
    struct fenced *fenced = out->context;
    return http_answer_piece(fenced->request.exchange, piece);
}

void fenced_stream_ended(struct outcall *out, bool is_whole)
{
    finish(out->context, is_whole);
}
