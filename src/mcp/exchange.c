#include "mcp/exchange.h"

#include <stdio.h>
#include <strings.h>

#include "base/check.h"
#include "mcp/http_impl.h"
#include "mcp/scan.h"

/* ---- header fields --------------------------------------------------------------------------- */

/* If memory is short, the list lacks fields; the server then refuses the message. */
static void add_line(struct curl_slist **list, const char *name, const char *value)
{
    char line[MCP_HTTP_FIELD_BYTES_MAX + 64];
    (void)snprintf(line, sizeof line, "%s: %s", name, value);
    struct curl_slist *longer = curl_slist_append(*list, line);
    mem_wipe(line, sizeof line);
    *list = longer == NULL ? *list : longer;
}

static void add_field(void *context, const char *name, struct slice value)
{
    char text[MCP_HTTP_FIELD_BYTES_MAX];
    struct mcp_exchange *exchange = context;
    (void)snprintf(text, sizeof text, "%.*s", SLICE_ARGS(value));
    add_line(&exchange->fields, name, text);
}

void mcp_exchange_fields(struct mcp_exchange *exchange, const struct mcp_message *message)
{
    if (message->version.len > 0) {
        add_field(exchange, "MCP-Protocol-Version", message->version);
    }
    mcp_message_fields(message, &exchange->http->options.proxy->tools, add_field, exchange);
}

static void wipe_lines(struct curl_slist **list)
{
    for (struct curl_slist *line = *list; line != NULL; line = line->next) {
        mem_wipe(line->data, strlen(line->data)); /* credentials */
    }
    curl_slist_free_all(*list);
    *list = NULL;
}

static void add_lines(struct mcp_exchange *exchange, bool is_post)
{
    const struct mcp_http *http = exchange->http;
    struct curl_slist **lines = &exchange->lines;
    for (const char *const *header = http->options.headers; *header != NULL; header++) {
        struct curl_slist *longer = curl_slist_append(*lines, *header);
        *lines = longer == NULL ? *lines : longer;
    }
    add_line(
        lines, "Accept", is_post ? "application/json, text/event-stream" : "text/event-stream");
    if (is_post) {
        add_line(lines, "Content-Type", "application/json");
        add_line(lines, "Expect", ""); /* the body is sent without being asked for */
    }
    for (struct curl_slist *field = exchange->fields; is_post && field != NULL;
         field = field->next) {
        struct curl_slist *longer = curl_slist_append(*lines, field->data);
        *lines = longer == NULL ? *lines : longer;
    }
    exchange->has_session = http->session[0] != '\0' && !exchange->is_initialize;
    if (exchange->has_session) {
        add_line(lines, "Mcp-Session-Id", http->session);
    }
    if (http->version[0] != '\0' && !exchange->is_initialize && !exchange->is_stateless) {
        add_line(lines, "MCP-Protocol-Version", http->version);
    }
    if (!is_post && exchange->sse.last_id[0] != '\0') {
        add_line(lines, "Last-Event-ID", exchange->sse.last_id);
    }
}

/* ---- what comes ------------------------------------------------------------------------------ */

/* One line: newlines between the tokens of a JSON document become blanks. */
static void deliver_line(struct mcp_exchange *exchange, struct slice message)
{
    struct mcp_http *http = exchange->http;
    struct buf line;
    buf_init(&line, http->options.proxy->options.mem, MCP_MESSAGE_BYTES_MAX);
    buf_slice(&line, json_trim(message));
    for (size_t i = 0; i < line.len; i++) {
        if (line.data[i] == '\n' || line.data[i] == '\r') {
            line.data[i] = ' ';
        }
    }
    if (buf_status(&line) == OK && line.len > 0) {
        struct mcp_proxy *proxy = http->options.proxy;
        proxy->about = exchange->kind == MCP_EXCHANGE_MESSAGE
                           ? scan_find(buf_view(&exchange->line), "id")
                           : SLICE_EMPTY;
        proxy_server_line(proxy, buf_view(&line), http->now_ms);
        proxy->about = SLICE_EMPTY;
    } else if (buf_status(&line) != OK) {
        exchange->failed = buf_status(&line);
    }
    buf_release(&line);
}

void mcp_exchange_deliver(struct mcp_exchange *exchange, struct slice message, bool is_fine)
{
    struct mcp_http *http = exchange->http;
    bool is_answer = scan_find(message, "method").len == 0;
    struct slice trimmed = json_trim(message);
    if (exchange->is_initialize && is_answer && is_fine) {
        mcp_http_opened(http, message);
        exchange->is_barrier = exchange->kind != MCP_EXCHANGE_MESSAGE;
    }
    if (exchange->kind == MCP_EXCHANGE_REOPEN || exchange->kind == MCP_EXCHANGE_OPENED) {
        return; /* the client has had its answer */
    }
    if (is_fine || (is_answer && proxy_awaited(http->options.proxy, scan_find(message, "id")) !=
                                     MCP_AWAITED_NOTHING)) {
        exchange->is_answered =
            exchange->is_answered || (trimmed.len > 0 && trimmed.data[0] == '[' &&
                                         exchange->line.len > 0 && exchange->line.data[0] == '[');
        deliver_line(exchange, message);
    }
}

static void take_event(void *context, struct slice data)
{
    struct mcp_exchange *exchange = context;
    exchange->resumes = 0;
    mcp_exchange_deliver(exchange, data, true);
}

static const char *head_field(const struct mcp_exchange *exchange, const char *name)
{
    struct curl_header *header = NULL;
    return exchange->curl != NULL &&
                   curl_easy_header(exchange->curl, name, 0, CURLH_HEADER, -1, &header) == CURLHE_OK
               ? header->value
               : "";
}

/* The status and the fields of the answer have arrived. */
static void take_head(struct mcp_exchange *exchange)
{
    struct mcp_http *http = exchange->http;
    static const char events[] = "text/event-stream";
    long status = 0;
    if (exchange->has_head || exchange->curl == NULL) {
        return;
    }
    (void)curl_easy_getinfo(exchange->curl, CURLINFO_RESPONSE_CODE, &status);
    exchange->has_head = status != 0;
    exchange->is_events =
        status >= 200 && status < 300 &&
        strncasecmp(head_field(exchange, "content-type"), events, sizeof events - 1) == 0;
    if (exchange->is_events) {
        sse_restart(&exchange->sse);
    }
    const char *session = head_field(exchange, "mcp-session-id");
    if (exchange->is_initialize && status >= 200 && status < 300 &&
        strlen(session) < sizeof http->session) {
        (void)snprintf(http->session, sizeof http->session, "%s", session);
    }
}

static size_t take_piece(void *context, struct slice piece)
{
    struct mcp_exchange *exchange = context;
    take_head(exchange);
    if (mcp_http_is_full(exchange->http)) {
        exchange->is_held = true;
        return CURL_WRITEFUNC_PAUSE; /* the piece comes again */
    }
    if (exchange->is_events) {
        enum status status = sse_read(&exchange->sse, piece);
        exchange->failed = exchange->failed != OK ? exchange->failed : status;
    } else if (exchange->kind != MCP_EXCHANGE_LISTEN) {
        buf_slice(&exchange->body, piece);
        exchange->failed = buf_status(&exchange->body);
    }
    return exchange->failed == OK ? piece.len : 0;
}

/* ---- its life -------------------------------------------------------------------------------- */

struct mcp_exchange *mcp_exchange_new(
    struct mcp_http *http, enum mcp_exchange_kind kind, struct slice line)
{
    const struct mem *mem = http->options.proxy->options.mem;
    struct mcp_exchange *exchange = mem_zalloc(mem, 1, sizeof *exchange);
    struct client_response *response = exchange == NULL ? NULL : client_response_new(http->client);
    if (response == NULL) {
        mem_free(mem, exchange);
        return NULL;
    }
    exchange->http = http;
    exchange->kind = kind;
    exchange->state = MCP_EXCHANGE_PARKED; /* until it is started */
    exchange->due_ms = INT64_MAX;
    exchange->response = response;
    buf_init(&exchange->line, mem, MCP_MESSAGE_BYTES_MAX);
    buf_init(&exchange->body, mem, MCP_MESSAGE_BYTES_MAX);
    buf_slice(&exchange->line, line);
    sse_init(&exchange->sse, mem, MCP_MESSAGE_BYTES_MAX);
    exchange->sse.event = take_event;
    exchange->sse.context = exchange;
    return exchange;
}

void mcp_exchange_move(struct mcp_exchange *exchange, enum mcp_exchange_state state)
{
    static const unsigned nexts[] = {
        [MCP_EXCHANGE_RUNNING] =
            1u << MCP_EXCHANGE_PAUSED | 1u << MCP_EXCHANGE_PARKED | 1u << MCP_EXCHANGE_OVER,
        [MCP_EXCHANGE_PAUSED] = 1u << MCP_EXCHANGE_RUNNING | 1u << MCP_EXCHANGE_OVER,
        [MCP_EXCHANGE_PARKED] = 1u << MCP_EXCHANGE_RUNNING | 1u << MCP_EXCHANGE_OVER,
        [MCP_EXCHANGE_OVER] = 0,
    };
    ASSERT((nexts[exchange->state] & 1u << state) != 0);
    ASSERT(exchange->curl == NULL);
    exchange->state = state;
}

void mcp_exchange_free(struct mcp_exchange *exchange)
{
    ASSERT(exchange->curl == NULL);
    wipe_lines(&exchange->lines);
    wipe_lines(&exchange->fields);
    once_response_free(exchange->http->client, &exchange->response->shown);
    buf_release(&exchange->line);
    buf_release(&exchange->body);
    sse_release(&exchange->sse);
    mem_free(exchange->http->options.proxy->options.mem, exchange);
}

struct freshness {
    struct mcp_exchange *exchange;
    bool is_fresh;
};

static void check_fresh(void *context, struct slice id)
{
    struct freshness *freshness = context;
    struct mcp_http *http = freshness->exchange->http;
    freshness->is_fresh =
        freshness->is_fresh && proxy_may_send(http->options.proxy, id, http->now_ms);
}

/* libcurl has a connection. It may have waited so long for it that the grant is no longer fresh. */
static bool may_send(void *context)
{
    struct freshness freshness = {.exchange = context, .is_fresh = true};
    mcp_line_ids(buf_view(&freshness.exchange->line), check_fresh, &freshness);
    return freshness.is_fresh;
}

static void start(struct mcp_exchange *exchange, const char *method)
{
    struct mcp_http *http = exchange->http;
    bool is_post = strcmp(method, "POST") == 0;
    ASSERT(exchange->curl == NULL);
    wipe_lines(&exchange->lines);
    add_lines(exchange, is_post);
    client_response_clear(exchange->response);
    buf_clear(&exchange->body);
    exchange->has_head = exchange->is_events = exchange->is_held = false;
    exchange->request = (struct client_request){.method = method,
        .url = http->options.url,
        .body = {exchange->line.data, is_post ? exchange->line.len : 0},
        .is_read = !is_post,
        .has_body = is_post,
        .lines = exchange->lines};
    exchange->transfer = (struct client_transfer){.response = exchange->response,
        .may_send = is_post ? may_send : NULL,
        .take = take_piece,
        .context = exchange};
    mcp_exchange_move(exchange, MCP_EXCHANGE_RUNNING);
    exchange->due_ms = exchange->kind == MCP_EXCHANGE_CLOSE ? exchange->due_ms : INT64_MAX;
    CURLcode failed = client_transfer_begin(
        http->client, &exchange->request, CLIENT_MS_LIMIT, &exchange->transfer, &exchange->curl);
    if (failed != CURLE_OK) {
        exchange->due_ms = 0; /* the next turn ends it, unsent */
        return;
    }
    (void)curl_easy_setopt(exchange->curl, CURLOPT_PRIVATE, exchange);
    (void)curl_easy_setopt(exchange->curl, CURLOPT_TCP_KEEPALIVE, 1L); /* streams are long silent */
    if (curl_multi_add_handle(http->multi, exchange->curl) != CURLM_OK) {
        exchange->due_ms = 0;
    }
}

void mcp_exchange_start(struct mcp_exchange *exchange)
{
    start(exchange, exchange->kind == MCP_EXCHANGE_CLOSE    ? "DELETE"
                    : exchange->kind == MCP_EXCHANGE_LISTEN ? "GET"
                                                            : "POST");
}

void mcp_exchange_resume(struct mcp_exchange *exchange)
{
    start(exchange, "GET");
}

void mcp_exchange_stop(
    struct mcp_exchange *exchange, CURLcode failed, struct attempt_facts *ret_facts)
{
    take_head(exchange); /* an answer without a body */
    if (exchange->curl != NULL) {
        (void)curl_multi_remove_handle(exchange->http->multi, exchange->curl);
    }
    client_transfer_end(exchange->http->client, &exchange->request, &exchange->transfer,
        exchange->curl, failed, ret_facts);
    exchange->curl = NULL;
}
