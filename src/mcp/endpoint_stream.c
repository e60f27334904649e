/* Answers to clients: one JSON document, or a stream of events. */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/limits.h"
#include "mcp/endpoint_impl.h"
#include "mcp/proxy.h"
#include "mcp/scan.h"

enum { EVENT_HEAD_BYTES = 128 };

static const struct mem *mem_of(const struct mcp_stream *stream)
{
    return stream->session->endpoint->options.mem;
}

static uint64_t now_of(const struct mcp_stream *stream)
{
    return net_loop_now(stream->session->endpoint->loop);
}

/* ---- the life of one ------------------------------------------------------------------------- */

void mcp_pending_free(const struct mem *mem, struct mcp_pending *pending)
{
    buf_release(&pending->id);
    buf_release(&pending->id_text);
    buf_release(&pending->token);
    buf_release(&pending->token_text);
    mem_free(mem, pending);
}

struct mcp_pending *mcp_stream_await(struct mcp_stream *stream)
{
    const struct mem *mem = mem_of(stream);
    struct mcp_pending *pending = mem_zalloc(mem, 1, sizeof *pending);
    if (pending == NULL) {
        return NULL;
    }
    buf_init(&pending->id, mem, MCP_ID_BYTES_MAX);
    buf_init(&pending->id_text, mem, MCP_ID_BYTES_MAX);
    buf_init(&pending->token, mem, MCP_ID_BYTES_MAX);
    buf_init(&pending->token_text, mem, MCP_ID_BYTES_MAX);
    struct mcp_pending **end = &stream->pending;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = pending;
    return pending;
}

/* The bytes given to the connection were sent, or never will be. */
static void settle(struct mcp_stream *stream)
{
    mcp_channel_read(&stream->session->channel, stream->owed_bytes);
    stream->owed_bytes = 0;
}

/* Breaks off the answer if the client is still connected. */
static void let_go(struct mcp_stream *stream)
{
    struct http_exchange *exchange = stream->exchange;
    stream->exchange = NULL;
    settle(stream);
    if (exchange != NULL && stream->is_begun) {
        http_answer_finish(exchange, false);
    } else if (exchange != NULL) {
        mcp_endpoint_refuse(
            exchange, 500, SLICE_EMPTY, MCP_INTERNAL_ERROR, "the answer cannot be given");
    }
}

/* Without sessions, a client that goes away cancels its requests. */
static void cancel(struct mcp_stream *stream)
{
    struct buf line;
    buf_init(&line, mem_of(stream), 2 * MCP_ID_BYTES_MAX);
    for (const struct mcp_pending *p = stream->pending; p != NULL; p = p->next) {
        buf_clear(&line);
        buf_str(&line, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{"
                       "\"requestId\":");
        buf_slice(&line, buf_view(&p->id));
        buf_str(&line, ",\"reason\":\"the client closed its stream\"}}");
        if (buf_status(&line) == OK &&
            mcp_channel_put(&stream->session->channel, buf_view(&line), SLICE_EMPTY) != OK) {
            mcp_endpoint_say(
                stream->session->endpoint, "a request of a client that has gone goes on");
        }
    }
    buf_release(&line);
}

static void gone(void *context, struct http_exchange *exchange)
{
    struct mcp_stream *stream = exchange->state;
    (void)context;
    stream->session->used_ms = now_of(stream);
    let_go(stream);
    if (stream->session->id[0] == '\0') {
        cancel(stream);
        mcp_stream_free(stream);
    } else if (stream->is_listening) {
        mcp_stream_free(stream);
    } /* else it may be resumed */
}

static void drained(void *context, struct http_exchange *exchange)
{
    (void)context;
    settle(exchange->state);
}

struct mcp_stream *mcp_stream_new(struct mcp_session *session, struct http_exchange *exchange)
{
    struct mcp_stream *stream = mem_zalloc(session->endpoint->options.mem, 1, sizeof *stream);
    if (stream == NULL) {
        return NULL;
    }
    stream->session = session;
    stream->exchange = exchange;
    stream->since_ms = now_of(stream);
    exchange->state = stream;
    exchange->gone = gone;
    exchange->drained = drained;
    struct mcp_stream **end = &session->streams;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = stream;
    session->stream_count++;
    return stream;
}

void mcp_stream_free(struct mcp_stream *stream)
{
    struct mcp_session *session = stream->session;
    struct mcp_stream **at = &session->streams;
    let_go(stream);
    while (*at != stream) {
        at = &(*at)->next;
    }
    *at = stream->next;
    session->listened = stream->is_listening ? stream->events : session->listened;
    session->stream_count--;
    session->used_ms = now_of(stream);
    while (stream->pending != NULL) {
        struct mcp_pending *next = stream->pending->next;
        mcp_pending_free(mem_of(stream), stream->pending);
        stream->pending = next;
    }
    mem_free(mem_of(stream), stream);
}

/* ---- events ---------------------------------------------------------------------------------- */

struct mcp_event *mcp_event_new(const struct mem *mem, struct slice line)
{
    struct mcp_event *event = mem_zalloc(mem, 1, sizeof *event);
    if (event == NULL) {
        return NULL;
    }
    buf_init(&event->line, mem, MCP_QUEUE_BYTES_MAX);
    buf_slice(&event->line, line);
    if (buf_status(&event->line) != OK) {
        mcp_event_free(mem, event);
        return NULL;
    }
    return event;
}

void mcp_event_free(const struct mem *mem, struct mcp_event *event)
{
    buf_release(&event->line);
    mem_free(mem, event);
}

/* Stores the event for Last-Event-ID, and drops the oldest ones to make room. Without memory it is
 * not stored. */
static void keep(struct mcp_stream *stream, struct slice line)
{
    struct mcp_session *session = stream->session;
    struct mcp_event *event = mcp_event_new(mem_of(stream), line);
    if (event == NULL) {
        return;
    }
    event->stream = stream->number;
    event->number = stream->events;
    event->at_ms = now_of(stream);
    while (session->events != NULL && session->event_bytes + line.len > MCP_SESSION_KEPT_BYTES) {
        struct mcp_event *oldest = session->events;
        session->events = oldest->next;
        session->event_bytes -= oldest->line.len;
        mcp_event_free(mem_of(stream), oldest);
    }
    struct mcp_event **end = &session->events;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = event;
    session->event_bytes += line.len;
}

static void put_piece(struct mcp_stream *stream, struct slice piece)
{
    stream->since_ms = now_of(stream);
    if (http_answer_piece(stream->exchange, piece)) {
        settle(stream);
    }
}

static void put_event(struct mcp_stream *stream, uint64_t number, struct slice line)
{
    struct buf text;
    buf_init(&text, mem_of(stream), MCP_QUEUE_BYTES_MAX);
    if (stream->session->id[0] != '\0') {
        buf_printf(&text, "id: %llu-%llu\n", (unsigned long long)stream->number,
            (unsigned long long)number);
    }
    buf_str(&text, line.len == 0 ? "data: " : "event: message\ndata: ");
    buf_slice(&text, line);
    buf_str(&text, "\n\n");
    if (buf_status(&text) == OK) {
        put_piece(stream, buf_view(&text));
    } else {
        mcp_endpoint_say(stream->session->endpoint, "no memory is left for an event");
        let_go(stream); /* it may be resumed */
    }
    buf_release(&text);
}

static void put_session(struct mcp_stream *stream)
{
    if (stream->is_opening) {
        http_answer_field(
            stream->exchange, SLICE_LIT("Mcp-Session-Id"), slice_str(stream->session->id));
    }
}

void mcp_stream_begin(struct mcp_stream *stream)
{
    ASSERT(stream->exchange != NULL && !stream->is_begun);
    stream->is_begun = true;
    http_answer_begin(stream->exchange, 200);
    http_answer_field(stream->exchange, SLICE_LIT("Content-Type"), SLICE_LIT("text/event-stream"));
    http_answer_field(
        stream->exchange, SLICE_LIT("Cache-Control"), SLICE_LIT("no-cache, no-transform"));
    http_answer_field(stream->exchange, SLICE_LIT("X-Accel-Buffering"), SLICE_LIT("no"));
    put_session(stream);
    http_answer_stream(stream->exchange, HTTP_LENGTH_CHUNKED);
    if (stream->session->can_prime) {
        put_event(stream, stream->events, SLICE_EMPTY); /* an id to resume from */
    }
}

/* MCP 2026-07-28, "Streamable HTTP": some errors of the protocol have a status. */
static unsigned status_of(const struct mcp_stream *stream, struct slice line)
{
    struct slice code = scan_find(scan_find(line, "error"), "code");
    char text[16] = "";
    if (stream->session->id[0] != '\0' || code.len == 0 || code.len >= sizeof text) {
        return 200;
    }
    memcpy(text, code.data, code.len);
    switch (strtol(text, NULL, 10)) {
    case MCP_METHOD_NOT_FOUND: return 404;
    case MCP_HEADER_MISMATCH:
    case MCP_MISSING_CAPABILITY:
    case MCP_UNSUPPORTED_VERSION: return 400;
    default: return 200;
    }
}

static void answer_whole(struct mcp_stream *stream, struct slice line)
{
    struct http_exchange *exchange = stream->exchange;
    http_answer_begin(exchange, status_of(stream, line));
    put_session(stream);
    stream->exchange = NULL;
    http_answer_end(exchange, SLICE_LIT("application/json"), line, false);
    mcp_stream_free(stream);
}

void mcp_stream_finish(struct mcp_stream *stream)
{
    struct http_exchange *exchange = stream->exchange;
    ASSERT(exchange == NULL || stream->is_begun);
    stream->exchange = NULL;
    if (exchange != NULL) {
        http_answer_finish(exchange, true);
    }
    mcp_stream_free(stream);
}

void mcp_stream_send(struct mcp_stream *stream, struct slice line, bool is_last)
{
    if (stream->exchange != NULL && !stream->is_begun && is_last) {
        answer_whole(stream, line);
        return;
    }
    if (stream->exchange != NULL && !stream->is_begun) {
        mcp_stream_begin(stream);
    }
    stream->events++;
    if (stream->session->id[0] != '\0') {
        keep(stream, line);
    }
    if (stream->exchange != NULL) {
        put_event(stream, stream->events, line);
    } else {
        settle(stream);
    }
    if (is_last) {
        mcp_stream_finish(stream);
    }
}

void mcp_stream_replay(struct mcp_stream *stream, uint64_t of, uint64_t after)
{
    uint64_t own = stream->number;
    stream->number = of;
    for (const struct mcp_event *e = stream->session->events; e != NULL && stream->exchange != NULL;
         e = e->next) {
        if (e->stream == of && e->number > after) {
            put_event(stream, e->number, buf_view(&e->line));
        }
    }
    stream->number = own;
}

void mcp_stream_tick(struct mcp_stream *stream, uint64_t now_ms)
{
    if (stream->exchange == NULL) {
        return;
    }
    stream->session->used_ms = now_ms;
    if (!stream->is_begun && now_ms >= stream->since_ms + MCP_STREAM_OPEN_MS) {
        mcp_stream_begin(stream);
    } else if (stream->is_begun && now_ms >= stream->since_ms + MCP_STREAM_ALIVE_MS) {
        put_piece(stream, SLICE_LIT(":\n\n"));
    }
}
