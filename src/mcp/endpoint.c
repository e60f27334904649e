/* Admission, GET and DELETE; starting and ending the endpoint. */
#include "mcp/endpoint.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/macros.h"
#include "gateway/principal.h"
#include "mcp/endpoint_impl.h"
#include "mcp/scan.h"

enum { TICK_MS = 500 };

void mcp_endpoint_say(struct mcp_endpoint *endpoint, const char *text)
{
    endpoint->options.say(endpoint->options.context, text);
}

void mcp_endpoint_refuse(struct http_exchange *exchange, unsigned status, struct slice id, int code,
    const char *format, ...)
{
    char text[512];
    struct buf line;
    struct mem mem = arena_mem(exchange->arena);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    buf_init(&line, &mem, 4 * MCP_ID_BYTES_MAX);
    mcp_reply_error(&line, id.len > MCP_ID_BYTES_MAX ? SLICE_EMPTY : id, code, text);
    exchange->gone = NULL;
    exchange->drained = NULL;
    http_answer_begin(exchange, status);
    if (status == 401) {
        http_answer_field(exchange, SLICE_LIT("WWW-Authenticate"), SLICE_LIT("Bearer"));
    } else if (status == 405) {
        http_answer_field(exchange, SLICE_LIT("Allow"), SLICE_LIT("POST, GET, DELETE"));
    }
    http_answer_end(exchange, SLICE_LIT("application/json"),
        buf_status(&line) == OK ? buf_view(&line) : SLICE_EMPTY, false);
    buf_release(&line);
}

/* ---- admission ------------------------------------------------------------------------------- */

/* The host of "name", "name:80", "[::1]" or "[::1]:80". */
static struct slice host_of(struct slice authority)
{
    bool is_bracketed = authority.len > 0 && authority.data[0] == '[';
    size_t len = 0;
    while (len < authority.len && authority.data[len] != (is_bracketed ? ']' : ':')) {
        len++;
    }
    return slice_of(authority.data, is_bracketed && len < authority.len ? len + 1 : len);
}

static bool is_loopback_name(struct slice authority)
{
    struct slice host = host_of(authority);
    bool is_v4 = slice_starts(host, SLICE_LIT("127."));
    for (size_t i = 0; i < host.len && is_v4; i++) {
        is_v4 = host.data[i] == '.' || (host.data[i] >= '0' && host.data[i] <= '9');
    }
    return is_v4 || slice_is(host, "[::1]") || http_same_name(host, SLICE_LIT("localhost"));
}

/* The authority of "https://name:80"; empty: it is not of that form. */
static struct slice authority_of(struct slice origin)
{
    static const struct slice schemes[] = {
        {"http://", sizeof "http://" - 1}, {"https://", sizeof "https://" - 1}};
    for (size_t i = 0; i < COUNT(schemes); i++) {
        if (slice_starts(origin, schemes[i])) {
            return slice_of(origin.data + schemes[i].len, origin.len - schemes[i].len);
        }
    }
    return SLICE_EMPTY;
}

static bool is_listed(const struct mcp_endpoint *endpoint, struct slice text, bool is_host)
{
    for (const char *const *at = endpoint->options.origins; *at != NULL; at++) {
        struct slice origin = slice_str(*at);
        if (http_same_name(is_host ? authority_of(origin) : origin, text)) {
            return true;
        }
    }
    return false;
}

/* A page whose name leads to this machine (DNS rebinding) has an Origin and a Host of its own name,
 * which is neither this machine's nor listed (MCP, "Streamable HTTP", Security Warning). */
static bool is_known_place(const struct mcp_endpoint *endpoint, const struct http_head *head)
{
    struct slice origin = SLICE_EMPTY;
    struct slice host = http_text(head, head->authority);
    bool has_origin = http_find(head, SLICE_LIT("Origin"), 0) < head->field_count;
    if (!http_find_single(head, SLICE_LIT("Origin"), &origin)) {
        return !has_origin;
    }
    bool is_origin = !has_origin || is_listed(endpoint, origin, false) ||
                     (endpoint->options.is_local && is_loopback_name(authority_of(origin)));
    return is_origin && (!endpoint->options.is_local || is_loopback_name(host) ||
                            is_listed(endpoint, host, true));
}

/* False: the request was answered. */
static bool let_in(
    struct mcp_endpoint *endpoint, struct http_exchange *exchange, unsigned *ret_rights)
{
    struct api_caller caller = {.rights = 0};
    if (endpoint->is_stopping) {
        mcp_endpoint_refuse(
            exchange, 503, SLICE_EMPTY, MCP_INTERNAL_ERROR, "once mcp is ending; nothing was done");
        return false;
    }
    if (!slice_is(http_path(exchange->head), "/mcp")) {
        mcp_endpoint_refuse(
            exchange, 404, SLICE_EMPTY, MCP_INVALID_REQUEST, "the endpoint is /mcp");
        return false;
    }
    if (!is_known_place(endpoint, exchange->head)) {
        mcp_endpoint_refuse(exchange, 403, SLICE_EMPTY, MCP_INVALID_REQUEST,
            "Origin or Host is not this machine, and is not allowed with --origin");
        return false;
    }
    if (auth_check(endpoint->options.policy, exchange->head, false, &caller) != AUTH_OK) {
        mcp_endpoint_refuse(exchange, 401, SLICE_EMPTY, MCP_INVALID_REQUEST,
            "Authorization must have a token of the configuration");
        return false;
    }
    if ((caller.rights & endpoint->options.rights) == 0) {
        mcp_endpoint_refuse(exchange, 403, SLICE_EMPTY, MCP_INVALID_REQUEST,
            "the token has no right to use this endpoint");
        return false;
    }
    *ret_rights = caller.rights;
    return true;
}

bool mcp_endpoint_field(struct http_exchange *exchange, const char *name, struct slice *ret_value)
{
    if (!http_find_single(exchange->head, slice_str(name), ret_value) &&
        http_find(exchange->head, slice_str(name), 0) < exchange->head->field_count) {
        mcp_endpoint_refuse(exchange, 400, SLICE_EMPTY, MCP_INVALID_REQUEST,
            "there is more than one %s field", name);
        return false;
    }
    return true;
}

bool mcp_endpoint_principal(
    struct mcp_endpoint *endpoint, struct http_exchange *exchange, struct slice *ret_principal)
{
    static const struct config_route route = {.principal = CONFIG_PRINCIPAL_AUTO};
    struct err err = {.status = OK};
    if (principal_auto(exchange->head, exchange->arena, ret_principal, &err) != OK ||
        ret_principal->len >= MCP_PRINCIPAL_BYTES) {
        mcp_endpoint_refuse(exchange, 400, SLICE_EMPTY, MCP_INVALID_REQUEST, "%s", err.text);
        return false;
    }
    if (!endpoint->is_change_reported &&
        principal_doubt(&route, exchange->head) == PRINCIPAL_CHANGES) {
        endpoint->is_change_reported = true;
        char text[512];
        (void)snprintf(text, sizeof text, "%s; --principal gives all clients one name",
            principal_doubt_text(PRINCIPAL_CHANGES));
        mcp_endpoint_say(endpoint, text);
    }
    return true;
}

struct mcp_session *mcp_endpoint_named(
    struct mcp_endpoint *endpoint, struct http_exchange *exchange, struct slice id)
{
    struct slice principal = SLICE_EMPTY;
    if (!mcp_endpoint_principal(endpoint, exchange, &principal)) {
        return NULL;
    }
    for (struct mcp_session *s = endpoint->sessions; s != NULL && id.len > 0; s = s->next) {
        if (slice_is(id, s->id) && !s->is_closing && slice_is(principal, s->principal)) {
            return s; /* ME1 */
        }
    }
    mcp_endpoint_refuse(exchange, 404, SLICE_EMPTY, MCP_INVALID_REQUEST,
        "there is no such session: open a new one with initialize");
    return NULL;
}

/* ---- GET and DELETE -------------------------------------------------------------------------- */

/* "7-12": what came after event 12 of stream 7. */
static bool read_event_id(struct slice text, uint64_t *ret_stream, uint64_t *ret_number)
{
    char copy[48] = "";
    char *end = NULL;
    if (text.len == 0 || text.len >= sizeof copy || text.data[0] < '0' || text.data[0] > '9') {
        return false;
    }
    memcpy(copy, text.data, text.len);
    *ret_stream = strtoull(copy, &end, 10);
    if (*end != '-' || end[1] < '0' || end[1] > '9') {
        return false;
    }
    *ret_number = strtoull(end + 1, &end, 10);
    return *end == '\0';
}

static struct mcp_stream *find_numbered(const struct mcp_session *session, uint64_t number)
{
    for (struct mcp_stream *s = session->streams; s != NULL; s = s->next) {
        if (!s->is_listening && s->number == number) {
            return s;
        }
    }
    return NULL;
}

/* Sends what arrived for the client while it was not listening. */
static void send_undelivered(struct mcp_stream *stream)
{
    struct mcp_session *session = stream->session;
    while (session->undelivered != NULL && stream->exchange != NULL) {
        struct mcp_event *event = session->undelivered;
        session->undelivered = event->next;
        session->undelivered_count--;
        mcp_stream_send(stream, buf_view(&event->line), false);
        mcp_event_free(session->endpoint->options.mem, event);
    }
}

static void listen_on(
    struct mcp_session *session, struct http_exchange *exchange, bool is_resumed, uint64_t after)
{
    for (const struct mcp_stream *s = session->streams; s != NULL; s = s->next) {
        if (s->is_listening) {
            mcp_endpoint_refuse(exchange, 409, SLICE_EMPTY, MCP_INVALID_REQUEST,
                "the session has a stream already");
            return;
        }
    }
    struct mcp_stream *stream = mcp_stream_new(session, exchange);
    if (stream == NULL) {
        mcp_endpoint_refuse(exchange, 503, SLICE_EMPTY, MCP_INTERNAL_ERROR, "out of memory");
        return;
    }
    stream->is_listening = true;
    stream->events = session->listened;
    mcp_stream_begin(stream);
    if (is_resumed) {
        mcp_stream_replay(stream, 0, after);
    }
    send_undelivered(stream);
}

/* The rest of a POST's stream. */
static void resume(
    struct mcp_session *session, struct http_exchange *exchange, uint64_t of, uint64_t after)
{
    struct mcp_stream *old = find_numbered(session, of);
    struct mcp_stream *stream = mcp_stream_new(session, exchange);
    if (stream == NULL) {
        mcp_endpoint_refuse(exchange, 503, SLICE_EMPTY, MCP_INTERNAL_ERROR, "out of memory");
        return;
    }
    stream->number = of;
    if (old != NULL) { /* the loss of the old connection may not have been noticed yet */
        stream->events = old->events;
        stream->pending = old->pending;
        old->pending = NULL;
        mcp_stream_free(old);
    }
    mcp_stream_begin(stream);
    mcp_stream_replay(stream, of, after);
    if (stream->pending == NULL) {
        mcp_stream_finish(stream);
    }
}

static void get(struct mcp_endpoint *endpoint, struct http_exchange *exchange)
{
    struct slice id = SLICE_EMPTY;
    struct slice last = SLICE_EMPTY;
    uint64_t of = 0;
    uint64_t after = 0;
    if (!mcp_endpoint_field(exchange, "Mcp-Session-Id", &id) ||
        !mcp_endpoint_field(exchange, "Last-Event-ID", &last)) {
        return;
    }
    if (id.len == 0) {
        mcp_endpoint_refuse(exchange, 405, SLICE_EMPTY, MCP_INVALID_REQUEST,
            "GET is for sessions: Mcp-Session-Id is missing");
        return;
    }
    struct mcp_session *session = mcp_endpoint_named(endpoint, exchange, id);
    if (session == NULL) {
        return;
    }
    bool is_resumed = read_event_id(last, &of, &after);
    if (last.len > 0 && !is_resumed) {
        mcp_endpoint_refuse(exchange, 400, SLICE_EMPTY, MCP_INVALID_REQUEST,
            "Last-Event-ID is not of this endpoint");
    } else if (of > 0) {
        resume(session, exchange, of, after);
    } else {
        listen_on(session, exchange, is_resumed, after);
    }
}

static void end_named(struct mcp_endpoint *endpoint, struct http_exchange *exchange)
{
    struct slice id = SLICE_EMPTY;
    if (!mcp_endpoint_field(exchange, "Mcp-Session-Id", &id)) {
        return;
    }
    if (id.len == 0) {
        mcp_endpoint_refuse(exchange, 405, SLICE_EMPTY, MCP_INVALID_REQUEST,
            "DELETE is for sessions: Mcp-Session-Id is missing");
        return;
    }
    struct mcp_session *session = mcp_endpoint_named(endpoint, exchange, id);
    if (session != NULL) {
        mcp_session_close(session);
        http_answer_begin(exchange, 204);
        http_answer_end(exchange, SLICE_EMPTY, SLICE_EMPTY, true);
    }
}

void mcp_endpoint_handle(void *context, struct http_exchange *exchange)
{
    struct mcp_endpoint *endpoint = context;
    unsigned rights = 0;
    if (!let_in(endpoint, exchange, &rights)) {
        return;
    }
    if (exchange->head->method == HTTP_METHOD_POST) {
        mcp_endpoint_post(endpoint, exchange, rights);
    } else if (exchange->head->method == HTTP_METHOD_GET) {
        get(endpoint, exchange);
    } else if (exchange->head->method == HTTP_METHOD_DELETE) {
        end_named(endpoint, exchange);
    } else {
        mcp_endpoint_refuse(exchange, 405, SLICE_EMPTY, MCP_INVALID_REQUEST,
            "the methods are POST, GET and DELETE");
    }
}

/* ---- the start and the end ------------------------------------------------------------------- */

static void tick(struct net_deadline *deadline, uint64_t now_ms)
{
    struct mcp_endpoint *endpoint = CONTAINER_OF(deadline, struct mcp_endpoint, janitor);
    for (struct mcp_session *s = endpoint->sessions; s != NULL; s = s->next) {
        mcp_session_tick(s, now_ms);
    }
    net_loop_deadline(endpoint->loop, deadline, now_ms + TICK_MS);
}

enum status mcp_endpoint_new(
    const struct mcp_endpoint_options *options, struct mcp_endpoint **ret_endpoint, struct err *err)
{
    struct mcp_endpoint *endpoint = mem_zalloc(options->mem, 1, sizeof *endpoint);
    if (endpoint == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    endpoint->options = *options;
    endpoint->janitor.due = tick;
    (void)pthread_mutex_init(&endpoint->mutex, NULL);
    (void)pthread_cond_init(&endpoint->emptied, NULL);
    *ret_endpoint = endpoint;
    return OK;
}

void mcp_endpoint_attach(struct mcp_endpoint *endpoint, struct net_loop *loop)
{
    endpoint->loop = loop;
    net_loop_deadline(loop, &endpoint->janitor, net_loop_now(loop) + TICK_MS);
}

static void run_stop(struct net_task *task)
{
    struct mcp_endpoint *endpoint = CONTAINER_OF(task, struct mcp_endpoint, stop);
    endpoint->is_stopping = true;
    for (struct mcp_session *s = endpoint->sessions; s != NULL; s = s->next) {
        s->is_closing = s->is_hurried = true;
        mcp_channel_hurry(&s->channel);
    }
    if (endpoint->sessions == NULL) {
        (void)pthread_mutex_lock(&endpoint->mutex);
        endpoint->is_empty = true;
        (void)pthread_cond_broadcast(&endpoint->emptied);
        (void)pthread_mutex_unlock(&endpoint->mutex);
    }
}

void mcp_endpoint_stop(struct mcp_endpoint *endpoint)
{
    endpoint->stop.run = run_stop;
    net_loop_post(endpoint->loop, &endpoint->stop);
    (void)pthread_mutex_lock(&endpoint->mutex);
    while (!endpoint->is_empty) {
        (void)pthread_cond_wait(&endpoint->emptied, &endpoint->mutex);
    }
    (void)pthread_mutex_unlock(&endpoint->mutex);
}

void mcp_endpoint_end(void *context, unsigned loop)
{
    struct mcp_endpoint *endpoint = context;
    (void)loop;
    ASSERT(endpoint->sessions == NULL);
    net_wheel_remove(&endpoint->loop->wheel, &endpoint->janitor);
}

void mcp_endpoint_free(struct mcp_endpoint *endpoint)
{
    if (endpoint == NULL) {
        return;
    }
    ASSERT(endpoint->sessions == NULL);
    (void)pthread_mutex_destroy(&endpoint->mutex);
    (void)pthread_cond_destroy(&endpoint->emptied);
    mem_free(endpoint->options.mem, endpoint);
}
