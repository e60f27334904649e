/* Sessions, and where what comes from them goes. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/macros.h"
#include "base/rand.h"
#include "mcp/endpoint_impl.h"
#include "mcp/proxy.h"
#include "mcp/scan.h"

/* An event from a session's thread to the loop. */
struct session_note {
    struct net_task task;
    struct mcp_session *session;
    struct buf line;
    struct buf about;
};

static uint64_t now_of(const struct mcp_session *session)
{
    return net_loop_now(session->endpoint->loop);
}

/* ---- the life of one ------------------------------------------------------------------------- */

struct mcp_session *mcp_session_lane(const struct mcp_endpoint *endpoint, struct slice principal)
{
    for (struct mcp_session *s = endpoint->sessions; s != NULL; s = s->next) {
        if (s->id[0] == '\0' && !s->is_closing && slice_is(principal, s->principal)) {
            return s;
        }
    }
    return NULL;
}

void mcp_session_close(struct mcp_session *session)
{
    if (!session->is_closing) {
        session->is_closing = true;
        session->close_ms = now_of(session);
        mcp_channel_close(&session->channel);
    }
}

/* Ends the session that was idle longest, to make room. Its client opens a new one. */
static void make_room(struct mcp_endpoint *endpoint)
{
    struct mcp_session *oldest = NULL;
    uint64_t now_ms = net_loop_now(endpoint->loop);
    for (struct mcp_session *s = endpoint->sessions; s != NULL; s = s->next) {
        bool is_spare =
            !s->is_closing && s->streams == NULL && now_ms >= s->used_ms + MCP_SESSION_SPARE_MS;
        oldest = is_spare && (oldest == NULL || s->used_ms < oldest->used_ms) ? s : oldest;
    }
    if (oldest != NULL) {
        mcp_session_close(oldest);
    }
}

static void free_events(const struct mem *mem, struct mcp_event *events)
{
    while (events != NULL) {
        struct mcp_event *next = events->next;
        mcp_event_free(mem, events);
        events = next;
    }
}

static void free_session(struct mcp_session *session)
{
    const struct mem *mem = session->endpoint->options.mem;
    ASSERT(session->streams == NULL);
    free_events(mem, session->events);
    free_events(mem, session->undelivered);
    mcp_channel_release(&session->channel);
    mem_wipe(session->authorization, sizeof session->authorization);
    mem_free(mem, session);
}

static void on_message(void *context, struct slice line, struct slice about);
static void ending(void *context);
static void left(void *context);

static enum status name_session(struct mcp_session *session, struct err *err)
{
    unsigned char bytes[(MCP_SESSION_ID_BYTES - 1) / 2];
    enum status status = rand_bytes(bytes, sizeof bytes, err);
    for (size_t i = 0; status == OK && i < sizeof bytes; i++) {
        (void)snprintf(session->id + 2 * i, 3, "%02x", bytes[i]);
    }
    return status;
}

struct mcp_session *mcp_session_open(
    struct mcp_endpoint *endpoint, const struct mcp_opening *opening, struct err *err)
{
    if (endpoint->session_count >= MCP_SESSIONS_MAX) {
        make_room(endpoint); /* for the next one: its thread ends meanwhile */
        (void)err_set(err, E_LIMIT, "too many sessions are open (%d)", MCP_SESSIONS_MAX);
        return NULL;
    }
    if (endpoint->session_count >= MCP_SESSIONS_MAX - MCP_SESSIONS_MAX / 8) {
        make_room(endpoint);
    }
    struct mcp_session *session = mem_zalloc(endpoint->options.mem, 1, sizeof *session);
    if (session == NULL) {
        (void)err_set(err, E_NOMEM, "out of memory");
        return NULL;
    }
    struct mcp_channel_options options = {.mem = endpoint->options.mem,
        .deliver = on_message,
        .ending = ending,
        .left = left,
        .context = session};
    session->endpoint = endpoint;
    session->used_ms = net_loop_now(endpoint->loop);
    (void)snprintf(
        session->principal, sizeof session->principal, "%.*s", SLICE_ARGS(opening->principal));
    (void)snprintf(session->authorization, sizeof session->authorization, "%.*s",
        SLICE_ARGS(opening->authorization));
    session->facts = (struct mcp_session_facts){.channel = &session->channel,
        .principal = session->principal,
        .authorization = session->authorization,
        .rights = opening->rights};
    enum status status = opening->is_lane ? OK : name_session(session, err);
    status = status != OK ? status : mcp_channel_init(&session->channel, &options, err);
    if (status != OK) {
        mem_wipe(session->authorization, sizeof session->authorization);
        mem_free(endpoint->options.mem, session);
        return NULL;
    }
    if (!endpoint->options.open(endpoint->options.context, &session->facts, err)) {
        free_session(session);
        return NULL;
    }
    session->next = endpoint->sessions;
    endpoint->sessions = session;
    endpoint->session_count++;
    return session;
}

/* The thread has left: requests without an answer get an error. */
static void end_session(struct mcp_session *session)
{
    struct mcp_endpoint *endpoint = session->endpoint;
    struct mcp_session **at = &endpoint->sessions;
    struct buf line;
    session->is_closing = true;
    buf_init(&line, endpoint->options.mem, 2 * MCP_ID_BYTES_MAX);
    while (session->streams != NULL) {
        struct mcp_stream *stream = session->streams;
        const struct mcp_pending *pending = stream->pending;
        if (pending == NULL || stream->exchange == NULL) {
            if (stream->exchange != NULL && stream->is_begun) {
                mcp_stream_finish(stream);
            } else {
                mcp_stream_free(stream);
            }
            continue;
        }
        buf_clear(&line);
        mcp_reply_error(&line, buf_view(&pending->id_text), MCP_INTERNAL_ERROR,
            "the server has ended; nobody knows whether it acted on this request");
        mcp_stream_send(stream, buf_view(&line), true);
    }
    buf_release(&line);
    while (*at != session) {
        at = &(*at)->next;
    }
    *at = session->next;
    endpoint->session_count--;
    free_session(session);
    if (endpoint->is_stopping && endpoint->sessions == NULL) {
        (void)pthread_mutex_lock(&endpoint->mutex);
        endpoint->is_empty = true;
        (void)pthread_cond_broadcast(&endpoint->emptied);
        (void)pthread_mutex_unlock(&endpoint->mutex);
    }
}

void mcp_session_tick(struct mcp_session *session, uint64_t now_ms)
{
    struct mcp_stream *next = NULL;
    for (struct mcp_stream *stream = session->streams; stream != NULL; stream = next) {
        next = stream->next;
        mcp_stream_tick(stream, now_ms);
    }
    while (session->events != NULL && now_ms >= session->events->at_ms + MCP_SESSION_KEPT_MS) {
        struct mcp_event *oldest = session->events;
        session->events = oldest->next;
        session->event_bytes -= oldest->line.len;
        mcp_event_free(session->endpoint->options.mem, oldest);
    }
    if (now_ms >= session->used_ms + MCP_SESSION_IDLE_MS) { /* streams with a client use it */
        mcp_session_close(session);
    }
    if (session->is_closing && !session->is_hurried &&
        now_ms >= session->close_ms + MCP_SESSION_END_MS) {
        session->is_hurried = true;
        mcp_channel_hurry(&session->channel);
    }
}

/* ---- where a message goes -------------------------------------------------------------------- */

/* Find what a message is about. by_token: the token of a progress, else an id. */
static struct mcp_stream *find_stream(
    const struct mcp_session *session, struct slice raw, bool by_token, struct mcp_pending **ret)
{
    struct buf form;
    struct mcp_stream *found = NULL;
    const struct mem *mem = session->endpoint->options.mem;
    buf_init(&form, mem, MCP_ID_BYTES_MAX);
    bool is_fine = mcp_id_canonical(mem, raw, &form);
    for (struct mcp_stream *s = session->streams; is_fine && s != NULL && found == NULL;
         s = s->next) {
        for (struct mcp_pending *p = s->pending; p != NULL && found == NULL; p = p->next) {
            if (slice_equal(buf_view(by_token ? &p->token : &p->id), buf_view(&form))) {
                found = s;
                *ret = p;
            }
        }
    }
    buf_release(&form);
    return found;
}

/* The text with one of its parts replaced. */
static void put_replaced(struct buf *out, struct slice text, struct slice part, struct slice by)
{
    size_t before = (size_t)(part.data - text.data);
    buf_slice(out, slice_of(text.data, before));
    buf_slice(out, by);
    buf_slice(out, slice_of(part.data + part.len, text.len - before - part.len));
}

/* Sends a message in which one part is replaced by what the client wrote. */
static void send_replaced(struct mcp_stream *stream, struct slice line, struct slice part,
    const struct buf *by, bool is_last)
{
    struct buf out;
    buf_init(&out, stream->session->endpoint->options.mem, MCP_QUEUE_BYTES_MAX);
    put_replaced(&out, line, part, buf_view(by));
    if (buf_status(&out) == OK) {
        mcp_stream_send(stream, buf_view(&out), is_last);
    } else {
        mcp_endpoint_say(stream->session->endpoint, "no memory is left for a message");
        mcp_stream_free(stream);
    }
    buf_release(&out);
}

static void drop_pending(struct mcp_stream *stream, struct mcp_pending *pending)
{
    struct mcp_pending **at = &stream->pending;
    while (*at != pending) {
        at = &(*at)->next;
    }
    *at = pending->next;
    mcp_pending_free(stream->session->endpoint->options.mem, pending);
}

/* What the answer to initialize says. */
static void note_version(struct mcp_session *session, struct slice line)
{
    struct slice version = scan_find(scan_find(line, "result"), "protocolVersion");
    static const char since[] = "\"2025-11-25\"";
    session->can_prime =
        version.len == sizeof since - 1 && memcmp(version.data, since, sizeof since - 1) >= 0;
}

static bool answer(struct mcp_session *session, struct slice line, struct slice id)
{
    struct mcp_pending *pending = NULL;
    struct mcp_stream *stream = find_stream(session, id, false, &pending);
    if (stream == NULL) {
        return false;
    }
    if (stream->is_opening) {
        note_version(session, line);
    }
    struct buf id_text = pending->id_text; /* it outlives the pending one */
    buf_init(&pending->id_text, session->endpoint->options.mem, MCP_ID_BYTES_MAX);
    drop_pending(stream, pending);
    stream->owed_bytes += line.len;
    bool is_last = stream->pending == NULL;
    if (session->id[0] == '\0') {
        send_replaced(stream, line, id, &id_text, is_last);
    } else {
        mcp_stream_send(stream, line, is_last);
    }
    buf_release(&id_text);
    return true;
}

/* A batch gets one answer (MCP 2025-03-26), which goes to the stream of its first request. */
static bool answer_batch(struct mcp_session *session, struct slice line)
{
    struct mcp_scan scan;
    struct mcp_scan_item item;
    struct mcp_stream *stream = NULL;
    (void)scan_begin(&scan, line, '[');
    while (scan_next(&scan, &item)) {
        struct mcp_pending *pending = NULL;
        struct mcp_stream *of = find_stream(session, scan_find(item.value, "id"), false, &pending);
        if (of != NULL && (stream == NULL || of == stream)) {
            stream = of;
            drop_pending(of, pending);
        }
    }
    if (stream == NULL) {
        return false;
    }
    stream->owed_bytes += line.len;
    mcp_stream_send(stream, line, stream->pending == NULL);
    return true;
}

static void hold_undelivered(struct mcp_session *session, struct slice line)
{
    const struct mem *mem = session->endpoint->options.mem;
    struct mcp_event *event = mcp_event_new(mem, line);
    mcp_channel_read(&session->channel, line.len);
    if (event == NULL || line.len > MCP_SESSION_KEPT_BYTES) {
        free_events(mem, event);
        mcp_endpoint_say(session->endpoint, "a message of the server was dropped: no client reads");
        return;
    }
    if (session->undelivered_count == MCP_SESSION_UNDELIVERED_MAX) {
        struct mcp_event *oldest = session->undelivered;
        session->undelivered = oldest->next;
        session->undelivered_count--;
        mcp_event_free(mem, oldest);
    }
    struct mcp_event **end = &session->undelivered;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = event;
    session->undelivered_count++;
}

/* A message from the server that names no request. If exactly one request runs, it belongs to that;
 * otherwise it goes to the stream on which the client listens. */
static struct mcp_stream *best_stream(const struct mcp_session *session)
{
    struct mcp_stream *listening = NULL;
    struct mcp_stream *first = NULL;
    size_t running = 0;
    for (struct mcp_stream *s = session->streams; s != NULL; s = s->next) {
        if (s->is_listening) {
            listening = s;
        } else if (s->exchange != NULL) {
            first = first == NULL ? s : first;
            running++;
        }
    }
    return running == 1 || listening == NULL ? first : listening;
}

/* A request or a notification of the server. */
static void server_says(struct mcp_session *session, struct slice line, struct slice about)
{
    static const char subscription[] = "io.modelcontextprotocol/subscriptionId";
    struct mcp_pending *pending = NULL;
    struct slice params = scan_find(line, "params");
    struct slice method = scan_find(line, "method");
    struct slice part = slice_is(method, "\"notifications/progress\"")
                            ? scan_find(params, "progressToken")
                            : SLICE_EMPTY;
    struct mcp_stream *stream = find_stream(session, part, true, &pending);
    const struct buf *by = stream == NULL ? NULL : &pending->token_text;
    if (stream == NULL) {
        part = scan_find(scan_find(params, "_meta"), subscription);
        stream = find_stream(session, part, false, &pending);
        by = stream == NULL ? NULL : &pending->id_text;
    }
    if (stream == NULL) {
        stream = find_stream(session, about, false, &pending);
    }
    stream = stream == NULL ? best_stream(session) : stream;
    if (stream == NULL) {
        hold_undelivered(session, line);
        return;
    }
    stream->owed_bytes += line.len;
    if (by != NULL && session->id[0] == '\0') {
        send_replaced(stream, line, part, by, false);
    } else {
        mcp_stream_send(stream, line, false);
    }
}

static void deliver(struct mcp_session *session, struct slice line, struct slice about)
{
    struct slice text = json_trim(line);
    struct slice id = scan_find(text, "id");
    bool is_taken = true;
    if (text.len > 0 && text.data[0] == '[') {
        is_taken = answer_batch(session, line);
    } else if (scan_find(text, "method").len > 0) {
        server_says(session, line, about);
    } else {
        is_taken = id.len > 0 && answer(session, line, id);
    }
    if (!is_taken) {
        mcp_channel_read(&session->channel, line.len);
        if (id.len == 0 && text.len > 0) {
            mcp_endpoint_say(
                session->endpoint, "a message that is for nobody, or no message, was dropped");
        } /* else the answer to a request whose client has gone */
    }
}

/* ---- from the thread ------------------------------------------------------------------------- */

static void run_note(struct net_task *task)
{
    struct session_note *note = CONTAINER_OF(task, struct session_note, task);
    struct mcp_session *session = note->session;
    const struct mem *mem = session->endpoint->options.mem;
    deliver(session, buf_view(&note->line), buf_view(&note->about));
    buf_release(&note->line);
    buf_release(&note->about);
    mem_free(mem, note);
}

static void on_message(void *context, struct slice line, struct slice about)
{
    struct mcp_session *session = context;
    const struct mem *mem = session->endpoint->options.mem;
    struct session_note *note = mem_zalloc(mem, 1, sizeof *note);
    if (note != NULL) {
        *note = (struct session_note){.task.run = run_note, .session = session};
        buf_init(&note->line, mem, MCP_QUEUE_BYTES_MAX);
        buf_init(&note->about, mem, MCP_ID_BYTES_MAX);
        buf_slice(&note->line, line);
        buf_slice(&note->about, about);
    }
    if (note == NULL || buf_status(&note->line) != OK) {
        if (note != NULL) {
            buf_release(&note->line);
            mem_free(mem, note);
        }
        mcp_channel_read(
            &session->channel, line.len); /* the client gets no answer, and asks again */
        return;
    }
    net_loop_post(session->endpoint->loop, &note->task);
}

/* A session whose server has ended accepts nothing: its client opens a new one. */
static void run_ending(struct net_task *task)
{
    mcp_session_close(CONTAINER_OF(task, struct mcp_session, ending));
}

static void ending(void *context)
{
    struct mcp_session *session = context;
    session->ending.run = run_ending;
    net_loop_post(session->endpoint->loop, &session->ending);
}

static void run_left(struct net_task *task)
{
    end_session(CONTAINER_OF(task, struct mcp_session, leaving));
}

static void left(void *context)
{
    struct mcp_session *session = context;
    session->leaving.run = run_left;
    net_loop_post(session->endpoint->loop, &session->leaving);
}
