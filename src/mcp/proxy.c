/* Messages: what they are, where they go, and which request an answer belongs to. */
#include "mcp/proxy.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/macros.h"
#include "canon/jcs.h"
#include "canon/json.h"
#include "mcp/message_id.h"
#include "mcp/proxy_impl.h"
#include "mcp/scan.h"

enum {
    TREE_BYTES_MAX = 1 << 29, /* of a message of 16 MiB, all of it small values */
    LINE_BYTES_MAX = MCP_MESSAGE_BYTES_MAX + (1 << 20), /* one that gained descriptions */
};

/* Requests that came as one array (MCP 2025-03-26) and are answered as one. */
struct mcp_batch {
    struct buf out;
    size_t pending; /* requests without an answer */
    bool is_read;   /* all of its messages were seen */
};

/* ---- queues ---------------------------------------------------------------------------------- */

struct slice queue_front(const struct mcp_queue *queue)
{
    return queue->bytes.len == 0
               ? SLICE_EMPTY
               : slice_of(queue->bytes.data + queue->at, queue->bytes.len - queue->at);
}

void queue_take(struct mcp_queue *queue, size_t len)
{
    ASSERT(len <= queue->bytes.len - queue->at);
    queue->at += len;
    queue->total += len;
    if (queue->at == queue->bytes.len) {
        buf_clear(&queue->bytes);
        queue->at = 0;
    } else if (queue->at > queue->bytes.len / 2) {
        memmove(queue->bytes.data, queue->bytes.data + queue->at, queue->bytes.len - queue->at);
        queue->bytes.len -= queue->at;
        queue->at = 0;
    }
}

static void queue_line(struct mcp_queue *queue, struct slice line)
{
    buf_slice(&queue->bytes, line);
    buf_char(&queue->bytes, '\n');
}

/* A line for the client, whichever way it reads. */
static void send_client(struct mcp_proxy *proxy, struct slice line)
{
    const struct mcp_client_side *client = &proxy->options.client;
    if (client->send_line == NULL) {
        queue_line(&proxy->to_client, line);
    } else {
        client->send_line(client->context, line, proxy->about);
    }
}

void proxy_to_server(struct mcp_proxy *proxy, struct slice line)
{
    if (!proxy->is_server_gone) {
        queue_line(&proxy->to_server, line);
    }
}

void proxy_say(struct mcp_proxy *proxy, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    proxy->options.say(proxy->options.context, text);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void release_request(struct mcp_proxy *proxy, struct mcp_request *request)
{
    struct buf *bufs[] = {&request->id, &request->id_text, &request->line, &request->names,
        &request->given, &request->payload, &request->token, &request->answer, &request->sealed,
        &request->stashed, &request->job.outcome, &request->job.words, &request->renewal.outcome,
        &request->renewal.words};
    for (size_t i = 0; i < COUNT(bufs); i++) {
        buf_release(bufs[i]);
    }
    mem_free(proxy->options.mem, request);
}

static void init_job(struct mcp_job *job, struct mcp_request *request, const struct mem *mem)
{
    job->request = request;
    buf_init(&job->outcome, mem, LIMIT_OUTCOME_BYTES_MAX);
    buf_init(&job->words, mem, LIMIT_DIFF_BYTES_MAX);
}

/* Adds it at the end of the list, which is in the order of arrival. NULL: out of memory. */
static struct mcp_request *add_request(struct mcp_proxy *proxy, enum mcp_request_kind kind)
{
    const struct mem *mem = proxy->options.mem;
    struct mcp_request *request = mem_zalloc(mem, 1, sizeof *request);
    if (request == NULL) {
        return NULL;
    }
    request->kind = kind;
    request->due_ms = INT64_MAX;
    buf_init(&request->id, mem, MCP_ID_BYTES_MAX);
    buf_init(&request->id_text, mem, MCP_ID_BYTES_MAX);
    buf_init(&request->line, mem, LIMIT_JSON_BYTES_MAX);
    buf_init(&request->names, mem, LIMIT_JSON_BYTES_MAX);
    buf_init(&request->given, mem, LIMIT_KEY_BYTES_MAX);
    buf_init(&request->payload, mem, LIMIT_JSON_BYTES_MAX);
    buf_init(&request->token, mem, MCP_ID_BYTES_MAX);
    buf_init(&request->answer, mem, LINE_BYTES_MAX);
    buf_init(&request->sealed, mem, MCP_MESSAGE_BYTES_MAX);
    buf_init(&request->stashed, mem, MCP_MESSAGE_BYTES_MAX);
    init_job(&request->job, request, mem);
    init_job(&request->renewal, request, mem);
    struct mcp_request **end = &proxy->requests;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = request;
    proxy->request_count++;
    return request;
}

void proxy_sweep(struct mcp_proxy *proxy)
{
    struct mcp_request **at = &proxy->requests;
    while (*at != NULL) {
        struct mcp_request *request = *at;
        if (request->is_over && !request->job.is_busy && !request->renewal.is_busy) {
            *at = request->next;
            proxy->request_count--;
            release_request(proxy, request);
        } else {
            at = &request->next;
        }
    }
}

/* Forgets the oldest request that may be forgotten, to make room. For a plain request only the
 * check is lost that its id is not used twice; for a late call, that its late answer is sealed. */
static bool make_room(struct mcp_proxy *proxy)
{
    if (proxy->request_count < MCP_REQUESTS_MAX) {
        return true;
    }
    for (struct mcp_request *r = proxy->requests; r != NULL; r = r->next) {
        bool is_plain = r->kind == MCP_PLAIN && r->batch == NULL;
        bool is_late = r->kind == MCP_CALL && r->state == CALL_LATE;
        if (!r->is_over && (is_plain || is_late)) {
            proxy_end(proxy, r);
            proxy_sweep(proxy);
            return true;
        }
    }
    return false;
}

struct mcp_request *proxy_find(struct mcp_proxy *proxy, struct slice raw_id)
{
    struct buf id;
    struct mcp_request *found = NULL;
    buf_init(&id, proxy->options.mem, MCP_ID_BYTES_MAX);
    if (mcp_id_canonical(proxy->options.mem, raw_id, &id)) {
        for (struct mcp_request *r = proxy->requests; r != NULL && found == NULL; r = r->next) {
            found = !r->is_over && slice_equal(buf_view(&r->id), buf_view(&id)) ? r : NULL;
        }
    }
    buf_release(&id);
    return found;
}

/* ---- answers --------------------------------------------------------------------------------- */

static void end_batch(struct mcp_proxy *proxy, struct mcp_batch *batch)
{
    if (batch->pending > 0 || !batch->is_read) {
        return;
    }
    if (batch->out.len > 0) {
        buf_char(&batch->out, ']');
        send_client(proxy, buf_view(&batch->out));
        proxy->to_client.bytes.status =
            batch->out.status != OK ? batch->out.status : proxy->to_client.bytes.status;
    }
    buf_release(&batch->out);
    mem_free(proxy->options.mem, batch);
}

static void leave_batch(struct mcp_proxy *proxy, struct mcp_request *request)
{
    struct mcp_batch *batch = request->batch;
    request->batch = NULL;
    if (batch != NULL) {
        ASSERT(batch->pending > 0);
        batch->pending--;
        end_batch(proxy, batch);
    }
}

/* A line for the client, alone or with its batch. */
static void to_client(struct mcp_proxy *proxy, struct mcp_batch *batch, struct slice line)
{
    if (batch == NULL) {
        send_client(proxy, line);
        return;
    }
    buf_char(&batch->out, batch->out.len == 0 ? '[' : ',');
    buf_slice(&batch->out, line);
}

void proxy_answer(struct mcp_proxy *proxy, struct mcp_request *request, struct slice line)
{
    ASSERT(!request->is_own);
    to_client(proxy, request->batch, line);
    leave_batch(proxy, request);
}

void proxy_end(struct mcp_proxy *proxy, struct mcp_request *request)
{
    ASSERT(!request->is_over);
    request->is_over = true;
    leave_batch(proxy, request);
}

/* Refuse a message by the protocol. */
static void refuse(struct mcp_proxy *proxy, struct slice id, int code, const char *text)
{
    struct buf line;
    buf_init(&line, proxy->options.mem, LIMIT_JSON_BYTES_MAX);
    mcp_reply_error(&line, id, code, text);
    to_client(proxy, proxy->batch, buf_view(&line));
    buf_release(&line);
}

/* ---- our own tools/list ---------------------------------------------------------------------- */

bool proxy_is_listing(const struct mcp_proxy *proxy)
{
    for (const struct mcp_request *r = proxy->requests; r != NULL; r = r->next) {
        if (r->is_own && !r->is_over) {
            return true;
        }
    }
    return false;
}

bool proxy_list(struct mcp_proxy *proxy, struct slice cursor)
{
    struct mcp_request *request = add_request(proxy, MCP_LIST);
    if (request == NULL) {
        return false;
    }
    request->is_own = true;
    request->is_first_page = cursor.len == 0;
    request->due_ms = proxy->now_ms + MCP_LIST_MS;
    proxy->pages = request->is_first_page ? 1 : proxy->pages + 1;
    do {
        buf_clear(&request->id);
        buf_printf(&request->id, "\"once-tools-%llu\"", (unsigned long long)++proxy->own_count);
        request->is_over = true; /* it must not find itself */
        request->is_over = proxy_find(proxy, buf_view(&request->id)) != NULL;
    } while (request->is_over);
    buf_str(&request->line, "{\"jsonrpc\":\"2.0\",\"id\":");
    buf_slice(&request->line, buf_view(&request->id));
    buf_str(&request->line, ",\"method\":\"tools/list\",\"params\":{");
    if (cursor.len > 0) {
        buf_str(&request->line, "\"cursor\":");
        buf_slice(&request->line, cursor);
    }
    if (proxy->meta.len > 0) {
        buf_str(&request->line, cursor.len > 0 ? ",\"_meta\":" : "\"_meta\":");
        buf_slice(&request->line, buf_view(&proxy->meta));
    }
    buf_str(&request->line, "}}");
    proxy_to_server(proxy, buf_view(&request->line));
    return true;
}

void proxy_listed(struct mcp_proxy *proxy)
{
    for (struct mcp_request *r = proxy->requests; r != NULL; r = r->next) {
        if (!r->is_over && r->kind == MCP_CALL && r->state == CALL_LISTING) {
            call_listed(proxy, r);
        }
    }
}

static void say_tool(void *context, struct slice tool, const char *text)
{
    proxy_say(context, "tool '%.*s' %s", SLICE_ARGS(tool), text);
}

/* An answer to tools/list. result lies in the line. */
static void list_answered(
    struct mcp_proxy *proxy, struct mcp_request *request, struct slice line, struct slice result)
{
    struct buf out;
    struct slice cursor = SLICE_EMPTY;
    struct mcp_listing listing = {.policy = proxy->options.policy,
        .result = result,
        .is_first = request->is_first_page,
        .say = say_tool,
        .context = proxy};
    buf_init(&out, proxy->options.mem, LINE_BYTES_MAX);
    size_t before = result.len == 0 ? 0 : (size_t)(result.data - line.data);
    buf_slice(&out, slice_of(line.data, before));
    bool is_listed = result.len > 0 && tools_list(&proxy->tools, &listing, &out, &cursor);
    buf_slice(&out, slice_of(line.data + before + result.len, line.len - before - result.len));
    if (result.len > 0 && (!is_listed || buf_status(&out) != OK)) {
        proxy_say(proxy, "the server's list of tools cannot be read: it is passed on as it is");
    }
    bool is_own = request->is_own;
    if (!is_own) {
        proxy_answer(proxy, request, is_listed && buf_status(&out) == OK ? buf_view(&out) : line);
    }
    proxy_end(proxy, request);
    if (is_own && (!is_listed || cursor.len == 0 || proxy->pages >= MCP_PAGES_MAX ||
                      !proxy_list(proxy, cursor))) {
        proxy_listed(proxy);
    }
    buf_release(&out);
}

/* ---- from the client ------------------------------------------------------------------------- */

/* A cancelled request gets no answer (MCP, "Cancellation"). */
static void cancel(struct mcp_proxy *proxy, struct slice text, const struct json_value *root)
{
    const struct json_value *id =
        json_find(json_find(root, SLICE_LIT("params")), SLICE_LIT("requestId"));
    struct mcp_request *request = id == NULL ? NULL : proxy_find(proxy, json_raw(text, id));
    if (request == NULL || request->is_own) {
        return;
    }
    if (request->kind == MCP_CALL) {
        call_cancelled(proxy, request);
    } else {
        proxy_end(proxy, request);
    }
}

/* A request with an id of its own. NULL: refused. */
static struct mcp_request *note_request(
    struct mcp_proxy *proxy, enum mcp_request_kind kind, struct slice id)
{
    if (proxy_find(proxy, id) != NULL) {
        refuse(
            proxy, id, MCP_INVALID_REQUEST, "the id is in use by a request that has no answer yet");
        return NULL;
    }
    struct mcp_request *request = make_room(proxy) ? add_request(proxy, kind) : NULL;
    if (request == NULL) {
        refuse(proxy, id, MCP_INTERNAL_ERROR, "too many requests are in flight (1024)");
        return NULL;
    }
    if (!mcp_id_canonical(proxy->options.mem, id, &request->id)) {
        refuse(proxy, id, MCP_INVALID_REQUEST, "the id must be a string or a number");
        proxy_end(proxy, request);
        return NULL;
    }
    buf_slice(&request->id_text, id);
    request->batch = proxy->batch;
    if (request->batch != NULL) {
        request->batch->pending++;
    }
    return request;
}

static void read_request(
    struct mcp_proxy *proxy, struct slice text, const struct json_value *root, struct slice method)
{
    struct slice id = json_raw(text, json_find(root, SLICE_LIT("id")));
    enum mcp_request_kind kind = slice_is(method, "tools/call")   ? MCP_CALL
                                 : slice_is(method, "tools/list") ? MCP_LIST
                                                                  : MCP_PLAIN;
    struct mcp_request *request = note_request(proxy, kind, id);
    if (request == NULL) {
        return;
    }
    if (kind == MCP_CALL) {
        buf_slice(&request->line, text);
        buf_slice(&request->given, proxy->key);
        call_read(proxy, request);
        return;
    }
    request->is_first_page =
        json_find(json_find(root, SLICE_LIT("params")), SLICE_LIT("cursor")) == NULL;
    request->is_opening = slice_is(method, "initialize") || slice_is(method, "server/discover");
    proxy_to_server(proxy, text);
}

static void read_message(struct mcp_proxy *proxy, struct slice text, const struct json_value *root)
{
    struct slice method = json_string(root, "method");
    if (method.len == 0) {
        proxy_to_server(proxy, text); /* an answer to the server, or nothing that we know */
    } else if (json_find(root, SLICE_LIT("id")) != NULL) {
        read_request(proxy, text, root, method);
    } else if (slice_is(method, "tools/call")) {
        proxy_say(proxy, "a call of a tool without an id was dropped: nobody could learn its end");
    } else {
        if (slice_is(method, "notifications/cancelled")) {
            cancel(proxy, text, root);
        }
        proxy_to_server(proxy, text);
    }
}

/* Whether a batch has to be taken apart: it is about tools, or one of its ids is in use. */
static bool must_split(struct mcp_proxy *proxy, struct slice text, const struct json_value *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        struct slice method = json_string(&list->items[i], "method");
        const struct json_value *id = json_find(&list->items[i], SLICE_LIT("id"));
        bool is_used =
            method.len > 0 && id != NULL && proxy_find(proxy, json_raw(text, id)) != NULL;
        if (is_used || slice_is(method, "tools/call") || slice_is(method, "tools/list")) {
            return true;
        }
    }
    return false;
}

/* Passes a batch on unchanged. Its ids are noted, so that no call uses one of them meanwhile. */
static void pass_batch(struct mcp_proxy *proxy, struct slice text, const struct json_value *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const struct json_value *item = &list->items[i];
        struct slice method = json_string(item, "method");
        const struct json_value *id = json_find(item, SLICE_LIT("id"));
        if (method.len > 0 && id != NULL) {
            struct mcp_request *request = make_room(proxy) ? add_request(proxy, MCP_PLAIN) : NULL;
            if (request != NULL &&
                !mcp_id_canonical(proxy->options.mem, json_raw(text, id), &request->id)) {
                proxy_end(proxy, request);
            }
        } else if (slice_is(method, "notifications/cancelled")) {
            cancel(proxy, text, item);
        }
    }
    proxy_to_server(proxy, text);
}

/* The server might read a call in text that we cannot read, so the text is not passed on (P6). */
static void refuse_unread(
    struct mcp_proxy *proxy, struct slice text, enum status status, const struct err *err)
{
    char reason[ERR_TEXT_BYTES_MAX + 64];
    (void)snprintf(reason, sizeof reason, "Once cannot read this message: %s", err->text);
    refuse(proxy, scan_find(text, "id"),
        status == E_INVALID ? MCP_PARSE_ERROR : MCP_INVALID_REQUEST, reason);
}

/* A batch is split if Once has to handle its messages; the answers are sent as one batch again. */
static void read_batch(struct mcp_proxy *proxy, struct slice text, const struct json_value *list)
{
    if (!must_split(proxy, text, list)) {
        pass_batch(proxy, text, list);
        return;
    }
    struct mcp_batch *batch = mem_zalloc(proxy->options.mem, 1, sizeof *batch);
    if (batch == NULL) {
        refuse(proxy, SLICE_EMPTY, MCP_INTERNAL_ERROR, "out of memory");
        return;
    }
    buf_init(&batch->out, proxy->options.mem, MCP_QUEUE_BYTES_MAX);
    proxy->batch = batch;
    for (uint32_t i = 0; i < list->count; i++) {
        struct slice item = json_raw(text, &list->items[i]);
        const struct json_value *root = NULL;
        struct err err = {.status = OK};
        enum status status = json_read(item, &proxy->arena, &root, &err); /* its own offsets */
        if (status == OK) {
            read_message(proxy, item, root);
        } else {
            refuse_unread(proxy, item, status, &err);
        }
    }
    proxy->batch = NULL;
    batch->is_read = true;
    end_batch(proxy, batch);
}

void proxy_client_line(struct mcp_proxy *proxy, struct slice line, int64_t now_ms)
{
    const struct json_value *root = NULL;
    struct err err = {.status = OK};
    proxy->now_ms = now_ms;
    if (json_trim(line).len == 0) {
        proxy_to_server(proxy, line);
        return;
    }
    arena_clear(&proxy->arena);
    enum status status = json_read(line, &proxy->arena, &root, &err);
    if (status != OK) {
        refuse_unread(proxy, line, status, &err);
    } else if (root->type == JSON_ARRAY) {
        read_batch(proxy, line, root);
    } else {
        read_message(proxy, line, root);
    }
    arena_release(&proxy->arena);
    proxy_sweep(proxy);
    proxy_check(proxy);
}

void proxy_client_too_long(struct mcp_proxy *proxy)
{
    refuse(proxy, SLICE_EMPTY, MCP_INVALID_REQUEST,
        "the message is larger than Once reads (16 MiB); nothing was done");
}

/* ---- from the server ------------------------------------------------------------------------- */

/* The members of a message that matter here, as written. */
struct mcp_received {
    struct slice id;
    struct slice method;
    struct slice params;
    struct slice result;
};

static bool receive(struct slice text, struct mcp_received *ret)
{
    struct mcp_scan scan;
    struct mcp_scan_item item;
    *ret = (struct mcp_received){.id = SLICE_EMPTY};
    if (!scan_begin(&scan, text, '{')) {
        return false;
    }
    while (scan_next(&scan, &item)) {
        struct slice *into = slice_is(item.name, "id")       ? &ret->id
                             : slice_is(item.name, "method") ? &ret->method
                             : slice_is(item.name, "params") ? &ret->params
                             : slice_is(item.name, "result") ? &ret->result
                                                             : NULL;
        if (into != NULL) {
            *into = item.value;
        }
    }
    return !scan.is_broken;
}

/* The server reports progress of a call: its timeout starts again. */
static void note_progress(struct mcp_proxy *proxy, struct slice params)
{
    struct buf token;
    buf_init(&token, proxy->options.mem, MCP_ID_BYTES_MAX);
    bool is_token =
        mcp_id_canonical(proxy->options.mem, scan_find(params, "progressToken"), &token);
    for (struct mcp_request *r = proxy->requests; is_token && r != NULL; r = r->next) {
        if (!r->is_over && r->kind == MCP_CALL && r->state == CALL_SENT && !r->is_cancelled &&
            slice_equal(buf_view(&r->token), buf_view(&token))) {
            r->due_ms = proxy->now_ms + r->policy->timeout_ms;
        }
    }
    buf_release(&token);
}

/* A request or notification from the server, which is always passed on. */
static void note_server(struct mcp_proxy *proxy, const struct mcp_received *message)
{
    if (slice_is(message->method, "\"notifications/progress\"")) {
        note_progress(proxy, message->params);
    } else if (slice_is(message->method, "\"notifications/tools/list_changed\"")) {
        tools_forget(&proxy->tools);
    }
}

/* The answer to initialize or server/discover. */
static void opening_answered(
    struct mcp_proxy *proxy, struct mcp_request *request, struct slice line, struct slice result)
{
    struct buf out;
    buf_init(&out, proxy->options.mem, LINE_BYTES_MAX);
    tools_announce(line, result, &out);
    proxy_answer(proxy, request, buf_status(&out) == OK ? buf_view(&out) : line);
    proxy_end(proxy, request);
    buf_release(&out);
}

static void server_message(struct mcp_proxy *proxy, struct slice text)
{
    struct mcp_received message;
    struct mcp_request *request = NULL;
    if (receive(text, &message)) {
        if (message.method.len > 0) {
            note_server(proxy, &message);
        } else {
            request = proxy_find(proxy, message.id);
        }
    }
    if (request == NULL) {
        send_client(proxy, text);
    } else if (request->kind == MCP_CALL) {
        call_answered(proxy, request, text);
    } else if (request->kind == MCP_LIST) {
        list_answered(proxy, request, text, message.result);
    } else if (request->is_opening) {
        opening_answered(proxy, request, text, message.result);
    } else {
        proxy_answer(proxy, request, text);
        proxy_end(proxy, request);
    }
}

/* Whether an array of answers has one that must not be passed on unchanged. */
static bool has_ours(struct mcp_proxy *proxy, struct slice text)
{
    struct mcp_scan scan;
    struct mcp_scan_item item;
    struct mcp_received message;
    bool is_ours = false;
    if (!scan_begin(&scan, text, '[')) {
        return false;
    }
    while (scan_next(&scan, &item)) {
        const struct mcp_request *request = receive(item.value, &message) && message.method.len == 0
                                                ? proxy_find(proxy, message.id)
                                                : NULL;
        is_ours =
            is_ours || (request != NULL && (request->kind != MCP_PLAIN || request->batch != NULL));
    }
    return is_ours && !scan.is_broken;
}

void proxy_server_line(struct mcp_proxy *proxy, struct slice line, int64_t now_ms)
{
    struct slice text = json_trim(line);
    struct mcp_scan scan;
    struct mcp_scan_item item;
    proxy->now_ms = now_ms;
    if (has_ours(proxy, text)) {
        (void)scan_begin(&scan, text, '[');
        while (scan_next(&scan, &item)) {
            server_message(proxy, item.value);
        }
    } else {
        server_message(proxy, line);
    }
    proxy_sweep(proxy);
    proxy_check(proxy);
}

/* ---- time and the ledger --------------------------------------------------------------------- */

void proxy_done(struct mcp_proxy *proxy, struct mcp_job *job, int64_t now_ms)
{
    ASSERT(job->is_busy);
    proxy->now_ms = now_ms;
    job->is_busy = false;
    if (!job->request->is_over) {
        call_done(proxy, job->request, job);
    }
    proxy_sweep(proxy);
    proxy_check(proxy);
}

void proxy_tick(struct mcp_proxy *proxy, int64_t now_ms)
{
    bool is_unlisted = false;
    proxy->now_ms = now_ms;
    for (struct mcp_request *r = proxy->requests; r != NULL; r = r->next) {
        if (r->is_over) {
            continue;
        }
        if (r->kind == MCP_CALL) {
            call_tick(proxy, r);
        } else if (r->is_own && now_ms >= r->due_ms) {
            proxy_say(proxy, "the server did not list its tools in time");
            proxy_end(proxy, r);
            is_unlisted = true;
        }
    }
    if (is_unlisted) {
        proxy_listed(proxy);
    }
    proxy_sweep(proxy);
    proxy_check(proxy);
}

int64_t proxy_due(const struct mcp_proxy *proxy)
{
    int64_t due_ms = INT64_MAX;
    for (const struct mcp_request *r = proxy->requests; r != NULL; r = r->next) {
        int64_t own_ms = r->is_over            ? INT64_MAX
                         : r->kind == MCP_CALL ? call_due(proxy, r)
                         : r->is_own           ? r->due_ms
                                               : INT64_MAX;
        due_ms = own_ms < due_ms ? own_ms : due_ms;
    }
    return due_ms;
}

void proxy_send(struct mcp_proxy *proxy, int64_t now_ms)
{
    ASSERT(queue_front(&proxy->to_server).len == 0); /* M2 */
    proxy->now_ms = now_ms;
    for (struct mcp_request *r = proxy->requests; r != NULL; r = r->next) {
        if (!r->is_over && r->kind == MCP_CALL && r->state == CALL_READY) {
            call_send(proxy, r);
            if (queue_front(&proxy->to_server).len > 0) {
                break;
            }
        }
    }
    proxy_sweep(proxy);
    proxy_check(proxy);
}

void proxy_server_gone(struct mcp_proxy *proxy, int64_t now_ms)
{
    proxy->now_ms = now_ms;
    if (proxy->is_server_gone) {
        return;
    }
    proxy->is_server_gone = true;
    for (struct mcp_request *r = proxy->requests; r != NULL; r = r->next) {
        if (r->is_over) {
            continue;
        }
        if (r->kind == MCP_CALL) {
            call_server_gone(proxy, r);
        } else {
            proxy_end(proxy, r);
        }
    }
    proxy_sweep(proxy);
    proxy_check(proxy);
}

/* ---- the whole ------------------------------------------------------------------------------- */

void proxy_init(struct mcp_proxy *proxy, const struct mcp_proxy_options *options)
{
    *proxy = (struct mcp_proxy){.options = *options};
    arena_init(&proxy->arena, options->mem, TREE_BYTES_MAX);
    tools_init(&proxy->tools, options->mem);
    buf_init(&proxy->to_client.bytes, options->mem, MCP_QUEUE_BYTES_MAX);
    buf_init(&proxy->to_server.bytes, options->mem, MCP_QUEUE_BYTES_MAX);
    buf_init(&proxy->meta, options->mem, LIMIT_JSON_BYTES_MAX);
}

void proxy_release(struct mcp_proxy *proxy)
{
    while (proxy->requests != NULL) {
        struct mcp_request *request = proxy->requests;
        ASSERT(!request->job.is_busy && !request->renewal.is_busy); /* M5 */
        if (!request->is_over) {
            proxy_end(proxy, request);
        }
        proxy->requests = request->next;
        release_request(proxy, request);
    }
    tools_release(&proxy->tools);
    arena_release(&proxy->arena);
    buf_release(&proxy->to_client.bytes);
    buf_release(&proxy->to_server.bytes);
    buf_release(&proxy->meta);
}

void proxy_check(const struct mcp_proxy *proxy)
{
    size_t count = 0;
    for (const struct mcp_request *r = proxy->requests; r != NULL; r = r->next) {
        bool is_call = r->kind == MCP_CALL && !r->is_over;
        count++;
        ASSERT(!is_call || r->state < CALL_READY || r->fence > 0); /* M1 */
        ASSERT(!is_call || r->state != CALL_SETTLING || r->job.is_busy ||
               r->settle_at_ms > 0);                                 /* M3 */
        ASSERT(!is_call || r->state != CALL_LATE || r->is_answered); /* M4 */
        ASSERT(r->is_over || !is_call || r->state == CALL_LATE || r->is_answered ||
               r->id_text.len > 0); /* M4 */
        ASSERT(!r->is_over || r->batch == NULL);
        ASSERT(!is_call || r->state != CALL_ASKING || r->job.is_busy); /* M5 */
    }
    ASSERT(count == proxy->request_count);
}
