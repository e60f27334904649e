#include "answered.h"

#include "base/check.h"

enum {
    ANSWERED_BYTES_MAX = 4 << 20, /* far above any answer of the tests */
    ANSWERED_LINE_BYTES = 17,     /* "HTTP/1.1 200 OK\r\n" */
};

static struct answered *answered_of(struct http_exchange *exchange)
{
    return (struct answered *)(void *)exchange;
}

void answered_init(struct answered *answered)
{
    *answered = (struct answered){.exchange = {.request_id = SLICE_LIT("r-1")}};
    arena_init(&answered->arena, &mem_libc, ANSWERED_BYTES_MAX);
    buf_init(&answered->head, &mem_libc, ANSWERED_BYTES_MAX);
    answered->exchange.arena = &answered->arena;
    http_answer_begin(&answered->exchange, 200);
}

void answered_release(struct answered *answered)
{
    buf_release(&answered->head);
    arena_release(&answered->arena);
}

struct slice answered_fields(struct answered *answered)
{
    ASSERT(answered->put.status == OK);
    ASSERT(buf_status(&answered->head) == OK);
    struct slice head = buf_view(&answered->head);
    return slice_of(head.data + ANSWERED_LINE_BYTES, head.len - ANSWERED_LINE_BYTES);
}

void http_answer_begin(struct http_exchange *exchange, unsigned status)
{
    exchange->status = status;
    http_put_response(&answered_of(exchange)->put, &answered_of(exchange)->head, status);
}

void http_answer_field(struct http_exchange *exchange, struct slice name, struct slice value)
{
    http_put_field(&answered_of(exchange)->put, name, value);
}

void http_answer_end(
    struct http_exchange *exchange, struct slice content_type, struct slice body, bool is_stable)
{
    (void)content_type;
    (void)is_stable;
    buf_slice(&answered_of(exchange)->head, body);
}
