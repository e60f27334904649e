/*
 * long: an answer that is longer than is kept, or that there is no room for. It is settled from its
 * head, a seal without the body; then the client gets all of it, as it comes.
 *
 * A crash behind the seal: duplicates are told that it happened and that its answer was not kept.
 */
#include "base/check.h"
#include "gateway/impl.h"

/* The rest of a long answer to the client, as it comes. */
static void stream_end(struct pass *pass, bool is_whole)
{
    struct http_exchange *exchange = pass->exchange;
    pass_move(pass, PASS_ANSWERED);
    pass_end(pass, pass->kept_status);
    http_answer_finish(exchange, is_whole);
}

/* What was captured first, then what follows. */
static void stream_on(struct pass *pass)
{
    if (!answer_give(pass)) {
        return;
    }
    if (pass->rest.len > 0) {
        struct slice rest = pass->rest;
        pass->rest = SLICE_EMPTY;
        if (!http_answer_piece(pass->exchange, rest)) {
            return;
        }
    }
    if (pass->has_failed || pass->has_ended) {
        stream_end(pass, pass->has_ended);
    } else {
        upstream_go_on(&pass->up);
    }
}

static void stream_drained(void *context, struct http_exchange *exchange)
{
    (void)context;
    stream_on(exchange->state);
}

static void stream_gone(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct pass *pass = exchange->state;
    if (pass->is_up) {
        pass->is_up = false;
        (void)upstream_cancel(&pass->up); /* sealed: what it still says is for nobody */
    }
    stream_end(pass, false);
}

static void sealed_long(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct pass *pass = exchange->state;
    if (!fence_is_settled(pass)) {
        if (pass->is_up) {
            pass->is_up = false;
            (void)upstream_cancel(&pass->up); /* its answer is not the one that counts */
        }
        fence_settled(NULL, exchange);
        return;
    }
    answer_tell(pass, pass->kept_status);
    if (exchange->is_gone) {
        http_answer_begin(exchange, pass->kept_status);
        http_answer_stream(exchange, HTTP_LENGTH_CHUNKED);
        stream_gone(NULL, exchange);
        return;
    }
    pass_move(pass, PASS_STREAMING);
    exchange->drained = stream_drained;
    exchange->gone = stream_gone;
    const struct http_head *head = pass->answer_head;
    http_answer_begin(exchange, pass->kept_status);
    fields_answer(head, exchange);
    answer_fields(pass, "first_seen");
    http_answer_stream(
        exchange, head->framing == HTTP_BODY_LENGTH ? (int64_t)head->length : HTTP_LENGTH_CHUNKED);
    stream_on(pass);
}

/* The answer is longer than is kept, or there is no room for it: it is settled from its head, a
 * seal without the body, and the client gets all of it behind that. */
void long_settle(struct pass *pass)
{
    const struct http_head *head = pass->answer_head;
    bool is_known = head->framing == HTTP_BODY_LENGTH;
    struct body_ref body = {
        .bytes = is_known ? head->length : pass->route->outcome_bytes_max + 1, .retained = false};
    upstream_pause(&pass->up);
    fence_settle(pass, &body, PASS_SEALING);
    pass_submit(pass, sealed_long);
}

void long_piece(struct pass *pass, struct slice piece)
{
    if (!http_answer_piece(pass->exchange, piece)) {
        upstream_pause(&pass->up);
    }
}

void long_ended(struct pass *pass, bool is_whole)
{
    if (pass->state == PASS_SEALING) {
        pass->has_ended = is_whole;
        pass->has_failed = !is_whole;
    } else {
        stream_end(pass, is_whole);
    }
}
