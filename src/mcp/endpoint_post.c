/* POST: messages from clients to a session. */
#include <stdio.h>

#include "base/base64.h"
#include "base/limits.h"
#include "base/macros.h"
#include "gateway/request_form.h"
#include "mcp/endpoint_impl.h"
#include "mcp/exchange.h"
#include "mcp/scan.h"

enum { TREE_BYTES_MAX = 1 << 29, VALUE_BYTES_MAX = 4096 };

#define LAST_SESSIONS "2025-11-25" /* the last version that has sessions */

/* A message, or a batch, and what came beside it. */
struct posted {
    struct mcp_endpoint *endpoint;
    struct http_exchange *exchange;
    struct buf line;      /* the body as one line */
    struct slice key;     /* of Idempotency-Key; empty: none */
    struct slice version; /* of MCP-Protocol-Version; empty: none */
    struct mcp_opening opening;
    struct mcp_message message;
};

/* ---- what the head says ---------------------------------------------------------------------- */

static bool is_type(struct slice value, const char *type)
{
    size_t len = strlen(type);
    return value.len >= len && http_same_letters(value.data, type, len) &&
           (value.len == len || value.data[len] == ';' || value.data[len] == ' ');
}

/* Whether the client accepts an answer of that type. Without an Accept field it accepts all. */
static bool accepts(const struct http_head *head, const char *type)
{
    struct slice name = SLICE_LIT("Accept");
    uint32_t at = http_find(head, name, 0);
    if (at == head->field_count) {
        return true;
    }
    for (; at < head->field_count; at = http_find(head, name, at + 1)) {
        struct slice list = http_text(head, head->fields[at].value);
        struct slice element;
        while (http_list_next(&list, &element)) {
            if (is_type(element, type) || is_type(element, "*/*")) {
                return true;
            }
        }
    }
    return false;
}

static bool check_types(const struct posted *posted)
{
    struct http_exchange *exchange = posted->exchange;
    struct slice type = SLICE_EMPTY;
    if (!mcp_endpoint_field(exchange, "Content-Type", &type)) {
        return false;
    }
    if (!is_type(type, "application/json")) {
        mcp_endpoint_refuse(exchange, 415, SLICE_EMPTY, MCP_INVALID_REQUEST,
            "Content-Type must be application/json");
        return false;
    }
    if (!accepts(exchange->head, "application/json") ||
        !accepts(exchange->head, "text/event-stream")) {
        mcp_endpoint_refuse(exchange, 406, SLICE_EMPTY, MCP_INVALID_REQUEST,
            "Accept must have application/json and text/event-stream");
        return false;
    }
    return true;
}

static bool read_key(struct posted *posted)
{
    struct err err = {.status = OK};
    struct slice field = SLICE_EMPTY;
    if (!mcp_endpoint_field(posted->exchange, "Idempotency-Key", &field)) {
        return false;
    }
    if (field.len > 0 &&
        request_form_key(field, posted->exchange->arena, &posted->key, &err) != OK) {
        mcp_endpoint_refuse(
            posted->exchange, 400, SLICE_EMPTY, MCP_INVALID_REQUEST, "%s", err.text);
        return false;
    }
    return true;
}

/* ---- what header fields repeat --------------------------------------------------------------- */

struct repeated {
    const struct http_head *head;
    const char *wrong; /* the name of a field that differs; NULL: none */
};

/* Decodes a field's value; false: it is invalid. */
static bool plain_of(struct slice value, char bytes[VALUE_BYTES_MAX], struct slice *ret)
{
    static const char sentinel[] = "=?base64?";
    size_t size = 0;
    size_t around = sizeof sentinel - 1 + 2;
    *ret = value;
    if (!slice_starts(value, slice_str(sentinel)) || value.len < around ||
        memcmp(value.data + value.len - 2, "?=", 2) != 0) {
        return true;
    }
    struct slice text = slice_of(value.data + sizeof sentinel - 1, value.len - around);
    if (BASE64_BYTES_MAX(text.len) > VALUE_BYTES_MAX ||
        !base64_read(text, BASE64_PADDED, bytes, &size)) {
        return false;
    }
    *ret = slice_of(bytes, size);
    return true;
}

static void compare(void *context, const char *name, struct slice wanted)
{
    struct repeated *repeated = context;
    char bytes[2][VALUE_BYTES_MAX];
    struct slice value = SLICE_EMPTY;
    bool is_equal = http_find(repeated->head, slice_str(name), 0) < repeated->head->field_count &&
                    http_find_single(repeated->head, slice_str(name), &value) &&
                    plain_of(value, bytes[0], &value) && plain_of(wanted, bytes[1], &wanted) &&
                    slice_equal(value, wanted);
    repeated->wrong = is_equal || repeated->wrong != NULL ? repeated->wrong : name;
}

static bool has_meta(const struct mcp_message *message)
{
    const struct json_value *meta =
        json_find(json_find(message->root, SLICE_LIT("params")), SLICE_LIT("_meta"));
    return message->version.len > 0 &&
           json_is(json_find(meta, SLICE_LIT("io.modelcontextprotocol/clientCapabilities")),
               JSON_OBJECT);
}

/* MCP 2026-07-28: header fields that repeat parts of the message must match it. Fields of arguments
 * (Mcp-Param-*) are made from the message again for the server. */
static bool check_repeated(const struct posted *posted)
{
    static const struct mcp_tools none = {.count = 0};
    const struct mcp_message *message = &posted->message;
    struct repeated repeated = {.head = posted->exchange->head};
    if (!message->is_request) {
        return true; /* a notification may have no _meta */
    }
    if (!has_meta(message)) {
        mcp_endpoint_refuse(posted->exchange, 400, scan_find(buf_view(&posted->line), "id"),
            MCP_INVALID_PARAMS,
            "params._meta must have io.modelcontextprotocol/protocolVersion and "
            "io.modelcontextprotocol/clientCapabilities");
        return false;
    }
    compare(&repeated, "MCP-Protocol-Version", message->version);
    mcp_message_fields(message, &none, compare, &repeated);
    if (repeated.wrong != NULL) {
        mcp_endpoint_refuse(posted->exchange, 400, scan_find(buf_view(&posted->line), "id"),
            MCP_HEADER_MISMATCH, "the header field %s is missing, or differs from the message",
            repeated.wrong);
    }
    return repeated.wrong == NULL;
}

/* ---- requests -------------------------------------------------------------------------------- */

static bool is_in_use(const struct mcp_session *session, const struct mcp_pending *asked)
{
    for (const struct mcp_stream *s = session->streams; s != NULL; s = s->next) {
        for (const struct mcp_pending *p = s->pending; p != NULL; p = p->next) {
            if (p != asked && slice_equal(buf_view(&p->id), buf_view(&asked->id))) {
                return true;
            }
        }
    }
    return false;
}

struct noting {
    struct mcp_stream *stream;
    struct slice text; /* a message of the line */
    const char *fault; /* NULL: none */
};

static void note_id(void *context, struct slice id)
{
    struct noting *noting = context;
    struct mcp_stream *stream = noting->stream;
    const struct mem *mem = stream->session->endpoint->options.mem;
    struct mcp_pending *pending = mcp_stream_await(stream);
    if (pending == NULL) {
        noting->fault = "out of memory";
    } else if (!mcp_id_canonical(mem, id, &pending->id)) {
        noting->fault = "the id must be a string or a number";
    } else if (is_in_use(stream->session, pending)) {
        noting->fault = "the id is in use by a request that has no answer yet";
    } else {
        struct slice meta = scan_find(scan_find(noting->text, "params"), "_meta");
        struct slice token = scan_find(meta, "progressToken");
        buf_slice(&pending->id_text, id);
        buf_slice(&pending->token_text, token);
        (void)mcp_id_canonical(mem, token, &pending->token); /* none is fine */
    }
}

/* Notes the requests in a session's message; their ids are the client's. */
static const char *await_own(struct mcp_stream *stream, struct slice line)
{
    struct noting noting = {.stream = stream, .text = line};
    struct mcp_scan scan;
    struct mcp_scan_item item;
    if (!scan_begin(&scan, line, '[')) {
        mcp_line_ids(line, note_id, &noting);
        return noting.fault;
    }
    while (noting.fault == NULL && scan_next(&scan, &item)) {
        noting.text = item.value;
        mcp_line_ids(item.value, note_id, &noting);
    }
    return noting.fault;
}

/* Whether a request of the lane that has no answer yet has this token. */
static bool is_token_used(const struct mcp_session *session, const struct mcp_pending *asked)
{
    for (const struct mcp_stream *s = session->streams; s != NULL; s = s->next) {
        for (const struct mcp_pending *p = s->pending; p != NULL; p = p->next) {
            if (p != asked && slice_equal(buf_view(&p->token), buf_view(&asked->token))) {
                return true;
            }
        }
    }
    return false;
}

/* The text with the lane's id, and with the lane's token if the client's is in use. */
static void put_shared(struct buf *out, struct slice text, const struct mcp_pending *pending,
    struct slice id, struct slice token)
{
    bool is_swapped = token.len > 0 && token.data < id.data;
    const struct slice parts[2] = {is_swapped ? token : id, is_swapped ? id : token};
    const struct buf *by[2] = {
        is_swapped ? &pending->token : &pending->id, is_swapped ? &pending->id : &pending->token};
    const char *at = text.data;
    for (size_t i = 0; i < 2 && parts[i].len > 0; i++) {
        buf_slice(out, slice_of(at, (size_t)(parts[i].data - at)));
        buf_slice(out, buf_view(by[i]));
        at = parts[i].data + parts[i].len;
    }
    buf_slice(out, slice_of(at, (size_t)(text.data + text.len - at)));
}

/* A lane has many clients, so the id and the token are made unique. Replaces line. */
static const char *await_shared(struct mcp_stream *stream, struct buf *line)
{
    struct mcp_session *session = stream->session;
    const struct mem *mem = session->endpoint->options.mem;
    struct slice text = buf_view(line);
    struct slice id = scan_find(text, "id");
    struct slice token = scan_find(scan_find(scan_find(text, "params"), "_meta"), "progressToken");
    struct mcp_pending *pending = mcp_stream_await(stream);
    struct buf out;
    if (pending == NULL) {
        return "out of memory";
    }
    if (!mcp_id_canonical(mem, id, &pending->id)) {
        return "the id must be a string or a number";
    }
    buf_clear(&pending->id);
    buf_printf(&pending->id, "\"once-%llu\"", (unsigned long long)++session->numbers);
    buf_slice(&pending->id_text, id);
    buf_slice(&pending->token_text, token);
    if (!mcp_id_canonical(mem, token, &pending->token)) {
        token = SLICE_EMPTY; /* there is none that could be reported on */
    } else if (is_token_used(session, pending)) {
        buf_clear(&pending->token);
        buf_slice(&pending->token, buf_view(&pending->id));
    }
    buf_init(&out, mem, LIMIT_JSON_BYTES_MAX + 2 * MCP_ID_BYTES_MAX);
    put_shared(&out, text, pending, id, token);
    bool is_fine = buf_status(&out) == OK;
    struct buf old = *line;
    *line = out;
    buf_release(&old);
    return is_fine ? NULL : "out of memory";
}

/* Frees a stream that was not used yet, and answers its exchange with a refusal. */
static void refuse_stream(
    struct posted *posted, struct mcp_stream *stream, unsigned status, int code, const char *text)
{
    struct slice id = scan_find(buf_view(&posted->line), "id");
    stream->exchange = NULL;
    mcp_stream_free(stream);
    mcp_endpoint_refuse(posted->exchange, status, id, code, "%s", text);
}

/* ---- where it goes --------------------------------------------------------------------------- */

static void refuse_put(const struct posted *posted, enum status status)
{
    mcp_endpoint_refuse(posted->exchange, 503, scan_find(buf_view(&posted->line), "id"),
        MCP_INTERNAL_ERROR, "%s",
        status == E_LIMIT ? "the session has 32 MiB of messages to read; nothing was done"
                          : "out of memory; nothing was done");
}

/* Notifications and answers: all that can be reported is that they were accepted. */
static void pass(struct posted *posted, struct mcp_session *session)
{
    enum status status = mcp_channel_put(&session->channel, buf_view(&posted->line), posted->key);
    session->used_ms = net_loop_now(posted->endpoint->loop);
    if (status != OK) {
        refuse_put(posted, status);
        return;
    }
    http_answer_begin(posted->exchange, 202);
    http_answer_end(posted->exchange, SLICE_EMPTY, SLICE_EMPTY, true);
}

static void ask(struct posted *posted, struct mcp_session *session)
{
    if (session->stream_count >= MCP_SESSION_STREAMS_MAX) {
        mcp_endpoint_refuse(posted->exchange, 503, scan_find(buf_view(&posted->line), "id"),
            MCP_INTERNAL_ERROR, "too many requests are in flight (%d); nothing was done",
            MCP_SESSION_STREAMS_MAX);
        return;
    }
    struct mcp_stream *stream = mcp_stream_new(session, posted->exchange);
    if (stream == NULL) {
        refuse_put(posted, E_NOMEM);
        return;
    }
    bool is_lane = session->id[0] == '\0';
    stream->number = is_lane ? 0 : ++session->numbers;
    stream->is_opening = !is_lane && slice_is(posted->message.method, "initialize");
    const char *fault =
        is_lane ? await_shared(stream, &posted->line) : await_own(stream, buf_view(&posted->line));
    if (fault != NULL) {
        refuse_stream(posted, stream, 400, MCP_INVALID_REQUEST, fault);
        return;
    }
    enum status status = mcp_channel_put(&session->channel, buf_view(&posted->line), posted->key);
    if (status != OK) {
        stream->exchange = NULL;
        mcp_stream_free(stream);
        refuse_put(posted, status);
    }
}

static struct mcp_session *open_session(struct posted *posted, bool is_lane)
{
    struct err err = {.status = OK};
    struct mcp_session *session =
        is_lane ? mcp_session_lane(posted->endpoint, posted->opening.principal) : NULL;
    if (session == NULL) {
        posted->opening.is_lane = is_lane;
        session = mcp_session_open(posted->endpoint, &posted->opening, &err);
    }
    if (session == NULL) {
        mcp_endpoint_refuse(posted->exchange, 503, scan_find(buf_view(&posted->line), "id"),
            MCP_INTERNAL_ERROR, "%s; nothing was done", err.text);
    }
    return session;
}

/* Versions are dates, which compare as text. */
static bool is_stateless(const struct posted *posted)
{
    static const char last[] = LAST_SESSIONS;
    size_t len = sizeof last - 1;
    return posted->message.version.len > 0 ||
           (posted->version.len == len && memcmp(posted->version.data, last, len) > 0);
}

/* A header with an unknown version of MCP is an error; a request without the header is of
 * 2025-03-26. */
static bool check_version(const struct posted *posted)
{
    static const char *const known[] = {"", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"};
    for (size_t i = 0; i < COUNT(known); i++) {
        if (slice_is(posted->version, known[i])) {
            return true;
        }
    }
    mcp_endpoint_refuse(posted->exchange, 400, SLICE_EMPTY, MCP_INVALID_REQUEST,
        "MCP-Protocol-Version is not one that Once speaks (2025-03-26 to 2026-07-28)");
    return false;
}

static struct mcp_session *choose_session(struct posted *posted)
{
    struct slice id = SLICE_EMPTY;
    if (!mcp_endpoint_field(posted->exchange, "Mcp-Session-Id", &id)) {
        return NULL;
    }
    if (is_stateless(posted)) {
        return check_repeated(posted) ? open_session(posted, true) : NULL;
    }
    if (!check_version(posted)) {
        return NULL;
    }
    if (id.len > 0) {
        return mcp_endpoint_named(posted->endpoint, posted->exchange, id);
    }
    if (slice_is(posted->message.method, "initialize") && posted->message.is_request) {
        return open_session(posted, false);
    }
    mcp_endpoint_refuse(posted->exchange, 400, scan_find(buf_view(&posted->line), "id"),
        MCP_INVALID_REQUEST,
        "Mcp-Session-Id is missing: a session begins with initialize, and a message without one "
        "says its version, which is 2026-07-28 or later");
    return NULL;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* A session's server may read lines: white space between the tokens of a document becomes
 * blanks. */
static void put_line(struct buf *line, struct slice body)
{
    buf_slice(line, json_trim(body));
    for (size_t i = 0; i < line->len; i++) {
        if (line->data[i] == '\n' || line->data[i] == '\r') {
            line->data[i] = ' ';
        }
    }
}

static void take(struct posted *posted)
{
    struct arena arena;
    struct err err = {.status = OK};
    const struct json_value *root = NULL;
    arena_init(&arena, posted->endpoint->options.mem, TREE_BYTES_MAX);
    enum status status = buf_status(&posted->line);
    status = status != OK ? status : json_read(buf_view(&posted->line), &arena, &root, &err);
    if (status != OK) {
        mcp_endpoint_refuse(posted->exchange, 400, SLICE_EMPTY, MCP_PARSE_ERROR,
            "Once cannot read this message: %s", err.text[0] == '\0' ? "out of memory" : err.text);
    } else if (root->type != JSON_OBJECT && (root->type != JSON_ARRAY || root->count == 0)) {
        mcp_endpoint_refuse(
            posted->exchange, 400, SLICE_EMPTY, MCP_INVALID_REQUEST, "this is not a message");
    } else {
        mcp_message_read(&posted->message, buf_view(&posted->line), root);
        struct mcp_session *session = choose_session(posted);
        if (session != NULL && posted->message.is_request) {
            ask(posted, session);
        } else if (session != NULL) {
            pass(posted, session);
        }
    }
    arena_release(&arena);
}

void mcp_endpoint_post(
    struct mcp_endpoint *endpoint, struct http_exchange *exchange, unsigned rights)
{
    struct posted posted = {
        .endpoint = endpoint, .exchange = exchange, .opening = {.rights = rights}};
    if (!check_types(&posted) || !read_key(&posted) ||
        !mcp_endpoint_field(exchange, "MCP-Protocol-Version", &posted.version) ||
        !mcp_endpoint_principal(endpoint, exchange, &posted.opening.principal) ||
        !mcp_endpoint_field(exchange, "Authorization", &posted.opening.authorization)) {
        return;
    }
    buf_init(&posted.line, endpoint->options.mem, LIMIT_JSON_BYTES_MAX);
    put_line(&posted.line, exchange->body);
    take(&posted);
    buf_release(&posted.line);
}
