/* The session, and the order in which messages are sent. exchange.c has one request and its
 * answer. */
#include "mcp/http.h"

#include <stdio.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "mcp/http_impl.h"
#include "mcp/proxy_impl.h"
#include "mcp/scan.h"

enum { FDS_MAX = 16, TREE_BYTES_MAX = 1 << 29 };

/* ---- the list -------------------------------------------------------------------------------- */

/* NULL: out of memory. */
static struct mcp_exchange *add_exchange(
    struct mcp_http *http, enum mcp_exchange_kind kind, struct slice line)
{
    struct mcp_exchange *exchange = mcp_exchange_new(http, kind, line);
    if (exchange != NULL) {
        struct mcp_exchange **end = &http->exchanges;
        while (*end != NULL) {
            end = &(*end)->next;
        }
        *end = exchange;
    }
    return exchange;
}

static void sweep(struct mcp_http *http)
{
    struct mcp_exchange **at = &http->exchanges;
    while (*at != NULL) {
        struct mcp_exchange *exchange = *at;
        if (exchange->state == MCP_EXCHANGE_OVER) {
            *at = exchange->next;
            mcp_exchange_free(exchange);
        } else {
            at = &exchange->next;
        }
    }
}

static bool has_kind(const struct mcp_http *http, enum mcp_exchange_kind kind)
{
    for (const struct mcp_exchange *e = http->exchanges; e != NULL; e = e->next) {
        if (e->kind == kind && e->state != MCP_EXCHANGE_OVER) {
            return true;
        }
    }
    return false;
}

/* ---- what becomes of requests ---------------------------------------------------------------- */

struct awaiting {
    struct mcp_exchange *exchange;
    bool was_sent;
    const char *why;       /* for lose */
    enum mcp_awaited most; /* what is awaited of them */
};

static void note_awaited(void *context, struct slice id)
{
    struct awaiting *awaiting = context;
    enum mcp_awaited awaited = proxy_awaited(awaiting->exchange->http->options.proxy, id);
    awaiting->most = awaited > awaiting->most ? awaited : awaiting->most;
}

static enum mcp_awaited awaited_of(struct mcp_exchange *exchange)
{
    struct awaiting awaiting = {.exchange = exchange};
    if (exchange->kind == MCP_EXCHANGE_MESSAGE && exchange->is_request && !exchange->is_answered) {
        mcp_line_ids(buf_view(&exchange->line), note_awaited, &awaiting);
    }
    return awaiting.most;
}

static void lose(void *context, struct slice id)
{
    struct awaiting *awaiting = context;
    struct mcp_http *http = awaiting->exchange->http;
    if (proxy_awaited(http->options.proxy, id) != MCP_AWAITED_NOTHING) {
        proxy_server_lost(http->options.proxy, id, awaiting->was_sent, awaiting->why, http->now_ms);
    }
}

/* Ends an exchange; requests that still wait for an answer are reported as unanswered (MH2). */
static void lost(struct mcp_exchange *exchange, bool was_sent, const char *why)
{
    struct awaiting awaiting = {
        .exchange = exchange, .was_sent = was_sent || exchange->is_resuming, .why = why};
    if (exchange->kind == MCP_EXCHANGE_MESSAGE && exchange->is_request && !exchange->is_answered) {
        mcp_line_ids(buf_view(&exchange->line), lose, &awaiting);
    } else if (exchange->kind == MCP_EXCHANGE_MESSAGE && !exchange->is_request &&
               !exchange->is_given_up) {
        proxy_say(exchange->http->options.proxy,
            "a message that needs no answer did not reach the server: %s", why);
    }
    mcp_exchange_move(exchange, MCP_EXCHANGE_OVER);
}

/* ---- the session ----------------------------------------------------------------------------- */

/* Opens the stream of the server's own messages, when the session is open. */
static void open_listen(struct mcp_http *http)
{
    if (http->version[0] == '\0' || has_kind(http, MCP_EXCHANGE_LISTEN) || http->has_no_listen) {
        return;
    }
    struct mcp_exchange *exchange = add_exchange(http, MCP_EXCHANGE_LISTEN, SLICE_EMPTY);
    if (exchange != NULL) {
        mcp_exchange_start(exchange);
    }
}

/* initialize was answered. */
void mcp_http_opened(struct mcp_http *http, struct slice message)
{
    struct slice version = scan_find(scan_find(message, "result"), "protocolVersion");
    if (version.len > 2 && version.len - 2 < sizeof http->version) {
        memcpy(http->version, version.data + 1, version.len - 2);
        http->version[version.len - 2] = '\0';
    }
}

/* The server has forgotten the session: messages that it did not read wait for a new one. */
static void reopen(struct mcp_http *http)
{
    if (has_kind(http, MCP_EXCHANGE_REOPEN) || has_kind(http, MCP_EXCHANGE_OPENED)) {
        return;
    }
    proxy_say(http->options.proxy, "the server has ended the session: a new one is opened");
    http->session[0] = '\0';
    tools_forget(&http->options.proxy->tools);
    struct mcp_exchange *exchange =
        add_exchange(http, MCP_EXCHANGE_REOPEN, buf_view(&http->initialize));
    if (exchange != NULL) {
        exchange->is_initialize = true;
        exchange->is_barrier = true;
        mcp_exchange_start(exchange);
    }
}

static void end_parked(struct mcp_http *http, const char *why)
{
    for (struct mcp_exchange *e = http->exchanges; e != NULL; e = e->next) {
        if (e->state == MCP_EXCHANGE_PARKED) {
            lost(e, false, why);
        }
    }
}

static void send_parked(struct mcp_http *http)
{
    for (struct mcp_exchange *e = http->exchanges; e != NULL; e = e->next) {
        if (e->state == MCP_EXCHANGE_PARKED) {
            e->is_reopened = true;
            mcp_exchange_start(e);
        }
    }
    open_listen(http);
}

/* A step of a new session is over. */
static void reopened(struct mcp_exchange *exchange, bool is_accepted)
{
    struct mcp_http *http = exchange->http;
    mcp_exchange_move(exchange, MCP_EXCHANGE_OVER);
    if (!is_accepted) {
        end_parked(http, "its session had ended, and the server refused a new one");
    } else if (exchange->kind == MCP_EXCHANGE_OPENED) {
        send_parked(http);
    } else {
        struct mcp_exchange *opened = add_exchange(http, MCP_EXCHANGE_OPENED,
            SLICE_LIT("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}"));
        if (opened != NULL) {
            opened->is_barrier = true;
            mcp_exchange_start(opened);
        }
    }
}

/* ---- the end of an exchange ------------------------------------------------------------------ */

/* A later GET may bring the rest, because the server's events have ids. */
static bool may_resume(const struct mcp_exchange *exchange)
{
    return !exchange->is_stateless && exchange->sse.last_id[0] != '\0' && !exchange->is_given_up &&
           exchange->resumes < MCP_HTTP_RESUMES_MAX && exchange->failed == OK;
}

static void resume_later(struct mcp_exchange *exchange)
{
    int64_t pause_ms = exchange->sse.retry_ms >= 0 ? exchange->sse.retry_ms : MCP_HTTP_RETRY_MS;
    for (size_t i = 1; i < exchange->resumes; i++) {
        pause_ms = clock_doubled_ms(pause_ms < 1 ? 1 : pause_ms, MCP_HTTP_RETRY_MS_MAX);
    }
    exchange->resumes++;
    exchange->is_resuming = exchange->kind == MCP_EXCHANGE_MESSAGE;
    mcp_exchange_move(exchange, MCP_EXCHANGE_PAUSED);
    exchange->due_ms = exchange->http->now_ms + pause_ms;
}

/* The stream of the server's own messages is opened again, until the server says that it has
 * none. */
static void listened(struct mcp_exchange *exchange, const struct attempt_facts *facts)
{
    struct mcp_http *http = exchange->http;
    bool is_refused =
        facts->end == ATTEMPT_ANSWERED && (facts->status < 200 || facts->status > 299);
    bool is_final = is_refused && facts->status < 500 && facts->status != 429;
    http->has_no_listen =
        http->has_no_listen || (is_final && facts->status != 404); /* 404: no session */
    if (!is_final && exchange->resumes < MCP_HTTP_RESUMES_MAX && !exchange->is_given_up &&
        !http->is_closing) {
        resume_later(exchange);
    } else {
        mcp_exchange_move(exchange, MCP_EXCHANGE_OVER);
    }
}

/* Statuses that mean that the server did not act: those that reject the request, and those that ask
 * for a later retry. */
static bool is_refusal(int status)
{
    return (status >= 400 && status < 500) || status == 503;
}

static void answered(struct mcp_exchange *exchange, int status)
{
    char why[96];
    bool is_forgotten = status == 404 && exchange->has_session && !exchange->is_resuming &&
                        !exchange->is_reopened && exchange->http->initialize.len > 0;
    bool is_fine = status >= 200 && status < 300;
    if (exchange->body.len > 0) {
        mcp_exchange_deliver(exchange, buf_view(&exchange->body), is_fine);
    }
    if (is_forgotten && awaited_of(exchange) != MCP_AWAITED_NOTHING) {
        mcp_exchange_move(exchange, MCP_EXCHANGE_PARKED);
        reopen(exchange->http);
        return;
    }
    if (is_fine && !exchange->is_request) {
        mcp_exchange_move(exchange, MCP_EXCHANGE_OVER);
    } else {
        (void)snprintf(why, sizeof why,
            is_fine ? "the server accepted it with HTTP %d and sent no answer"
                    : "the server answered with HTTP %d",
            status);
        lost(exchange, is_fine || !is_refusal(status), why);
    }
}

static void streamed(struct mcp_exchange *exchange, const struct attempt_facts *facts)
{
    if (awaited_of(exchange) == MCP_AWAITED_NOTHING) {
        mcp_exchange_move(exchange, MCP_EXCHANGE_OVER);
    } else if (may_resume(exchange)) {
        resume_later(exchange);
    } else {
        lost(exchange, true,
            exchange->failed != OK           ? "its answer is too large"
            : facts->end == ATTEMPT_ANSWERED ? "the server ended its stream without an answer"
                                             : "the connection broke before its answer");
    }
}

static void message_ended(struct mcp_exchange *exchange, const struct attempt_facts *facts)
{
    bool is_opening = exchange->is_initialize && facts->end == ATTEMPT_ANSWERED;
    if (exchange->is_events) {
        streamed(exchange, facts);
    } else if (facts->end == ATTEMPT_ANSWERED) {
        answered(exchange, facts->status);
    } else if (exchange->is_resuming && may_resume(exchange) &&
               awaited_of(exchange) != MCP_AWAITED_NOTHING) {
        resume_later(exchange);
    } else {
        lost(exchange, facts->was_sent,
            exchange->is_given_up && facts->was_sent ? "it was given up before its answer"
            : exchange->failed != OK                 ? "its answer is too large"
                                                     : exchange->response->why);
    }
    if (!is_opening && !exchange->is_request &&
        scan_find(buf_view(&exchange->line), "method").len > 0) {
        struct slice method = scan_find(buf_view(&exchange->line), "method");
        if (slice_is(method, "\"notifications/initialized\"") && facts->status == 202) {
            open_listen(exchange->http);
        }
    }
}

static void ended(struct mcp_exchange *exchange, CURLcode failed)
{
    struct attempt_facts facts;
    mcp_exchange_stop(exchange, failed, &facts);
    bool is_accepted = facts.end == ATTEMPT_ANSWERED && facts.status >= 200 && facts.status < 300;
    exchange->is_barrier = false;
    switch (exchange->kind) {
    case MCP_EXCHANGE_MESSAGE: message_ended(exchange, &facts); break;
    case MCP_EXCHANGE_LISTEN: listened(exchange, &facts); break;
    case MCP_EXCHANGE_REOPEN:
        if (is_accepted && !exchange->is_events) {
            mcp_http_opened(exchange->http, buf_view(&exchange->body));
        }
        reopened(exchange, is_accepted && exchange->http->version[0] != '\0');
        break;
    case MCP_EXCHANGE_OPENED: reopened(exchange, is_accepted); break;
    case MCP_EXCHANGE_CLOSE: mcp_exchange_move(exchange, MCP_EXCHANGE_OVER); break;
    }
}

/* ---- from the proxy -------------------------------------------------------------------------- */

static bool has_barrier(const struct mcp_http *http)
{
    for (const struct mcp_exchange *e = http->exchanges; e != NULL; e = e->next) {
        if (e->is_barrier && e->state != MCP_EXCHANGE_OVER) {
            return true;
        }
    }
    return false;
}

struct cancelling {
    struct mcp_proxy *proxy;
    struct slice id; /* that is cancelled */
    bool is_found;
};

static void match_id(void *context, struct slice id)
{
    struct cancelling *cancelling = context;
    cancelling->is_found = cancelling->is_found || slice_equal(id, cancelling->id);
}

/* Without sessions, closing the stream is the cancellation. */
static void cancel(struct mcp_http *http, const struct mcp_message *message)
{
    const struct json_value *id =
        json_find(json_find(message->root, SLICE_LIT("params")), SLICE_LIT("requestId"));
    struct cancelling cancelling = {.id = id == NULL ? SLICE_EMPTY : json_raw(message->text, id)};
    for (struct mcp_exchange *e = http->exchanges; id != NULL && e != NULL; e = e->next) {
        cancelling.is_found = false;
        mcp_line_ids(buf_view(&e->line), match_id, &cancelling);
        if (cancelling.is_found && e->state == MCP_EXCHANGE_RUNNING) {
            e->is_given_up = true;
            ended(e, CURLE_ABORTED_BY_CALLBACK);
        }
    }
}

static void send_message(struct mcp_http *http, const struct mcp_message *message)
{
    struct mcp_exchange *exchange = add_exchange(http, MCP_EXCHANGE_MESSAGE, message->text);
    if (exchange == NULL || buf_status(&exchange->line) != OK) {
        http->failed = E_NOMEM;
        return;
    }
    exchange->is_request = message->is_request;
    exchange->is_initialize = slice_is(message->method, "initialize");
    exchange->is_stateless = message->version.len > 0;
    exchange->is_barrier = !message->is_request || exchange->is_initialize;
    exchange->is_standing = slice_is(message->method, "subscriptions/listen");
    if (exchange->is_initialize) {
        buf_clear(&http->initialize);
        buf_slice(&http->initialize, message->text);
        http->session[0] = http->version[0] = '\0';
        http->has_no_listen = false;
    }
    mcp_exchange_fields(exchange, message);
    mcp_exchange_start(exchange);
}

bool mcp_http_take(struct mcp_http *http, struct slice line, int64_t now_ms)
{
    struct mcp_message message;
    struct arena arena;
    const struct json_value *root = NULL;
    http->now_ms = now_ms;
    if (json_trim(line).len == 0 || http->is_closing) {
        return true; /* a blank line says nothing over HTTP */
    }
    if (has_barrier(http)) {
        return false;
    }
    arena_init(&arena, http->options.proxy->options.mem, TREE_BYTES_MAX);
    if (json_read(line, &arena, &root, NULL) == OK) {
        mcp_message_read(&message, line, root);
        if (slice_is(message.method, "notifications/cancelled") && http->initialize.len == 0) {
            cancel(http, &message);
        } else {
            send_message(http, &message);
        }
    } else {
        http->failed = E_NOMEM; /* the proxy has read it before */
    }
    arena_release(&arena);
    sweep(http);
    return true;
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* libcurl's own poll does not report that the other end has hung up, so poll(2) has the last
 * word. */
int mcp_http_poll(struct mcp_http *http, struct pollfd *fds, unsigned int count, int wait_ms)
{
    struct curl_waitfd waits[FDS_MAX];
    int ready = 0;
    unsigned int used = 0;
    ASSERT(count <= FDS_MAX);
    for (unsigned int i = 0; i < count; i++) {
        bool is_out = (fds[i].events & POLLOUT) != 0;
        if (fds[i].fd >= 0) {
            waits[used++] = (struct curl_waitfd){
                .fd = fds[i].fd, .events = is_out ? CURL_WAIT_POLLOUT : CURL_WAIT_POLLIN};
        }
    }
    if (poll(fds, count, 0) == 0) {
        (void)curl_multi_poll(http->multi, waits, used, wait_ms, &ready);
        return poll(fds, count, 0);
    }
    return 1;
}

static void finish_transfers(struct mcp_http *http)
{
    int left = 0;
    for (CURLMsg *message = curl_multi_info_read(http->multi, &left); message != NULL;
         message = curl_multi_info_read(http->multi, &left)) {
        char *context = NULL;
        CURLcode failed = message->data.result;
        if (message->msg == CURLMSG_DONE &&
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &context) == CURLE_OK) {
            ended((struct mcp_exchange *)(void *)context, failed);
        }
    }
}

void mcp_http_work(struct mcp_http *http, int64_t now_ms)
{
    struct client_quiet quiet;
    int running = 0;
    http->now_ms = now_ms;
    client_quiet_begin(&quiet);
    for (struct mcp_exchange *e = http->exchanges; e != NULL; e = e->next) {
        if (e->state == MCP_EXCHANGE_PAUSED && now_ms >= e->due_ms) {
            mcp_exchange_resume(e);
        } else if (e->state == MCP_EXCHANGE_RUNNING && now_ms >= e->due_ms) {
            e->is_given_up = true;
            ended(e, CURLE_OPERATION_TIMEDOUT);
        } else if (e->state == MCP_EXCHANGE_RUNNING && e->is_held && !mcp_http_is_full(http)) {
            e->is_held = false;
            (void)curl_easy_pause(e->curl, CURLPAUSE_CONT);
        }
    }
    (void)curl_multi_perform(http->multi, &running);
    finish_transfers(http);
    sweep(http);
    client_quiet_end(&quiet);
}

int64_t mcp_http_due(const struct mcp_http *http)
{
    int64_t due_ms = INT64_MAX;
    for (const struct mcp_exchange *e = http->exchanges; e != NULL; e = e->next) {
        due_ms = e->due_ms < due_ms ? e->due_ms : due_ms;
        if (e->is_held && !mcp_http_is_full(http)) {
            return 0;
        }
    }
    return due_ms;
}

enum status mcp_http_status(const struct mcp_http *http)
{
    return http->failed;
}

/* ---- the end --------------------------------------------------------------------------------- */

static bool is_busy(struct mcp_http *http)
{
    bool is_patient = http->now_ms < http->finish_ms + MCP_HTTP_FINISH_MS;
    for (struct mcp_exchange *e = http->exchanges; e != NULL && !http->is_hurried; e = e->next) {
        enum mcp_awaited awaited = awaited_of(e);
        bool is_message = e->kind == MCP_EXCHANGE_MESSAGE && !e->is_request;
        if (awaited == MCP_AWAITED_CALL ||
            (is_patient && (is_message || (awaited == MCP_AWAITED_PLAIN && !e->is_standing)))) {
            return true;
        }
    }
    return false;
}

/* Give up what is left, and end the session. */
static void close_session(struct mcp_http *http)
{
    http->is_closing = true;
    for (struct mcp_exchange *e = http->exchanges; e != NULL; e = e->next) {
        e->is_given_up = true;
        if (e->state == MCP_EXCHANGE_RUNNING) {
            ended(e, CURLE_ABORTED_BY_CALLBACK);
        } else if (e->state != MCP_EXCHANGE_OVER) {
            lost(e, e->is_resuming, "it was given up before its answer");
        }
    }
    struct mcp_exchange *close =
        http->session[0] == '\0' ? NULL : add_exchange(http, MCP_EXCHANGE_CLOSE, SLICE_EMPTY);
    if (close != NULL) {
        close->due_ms = http->now_ms + MCP_HTTP_CLOSE_MS;
        mcp_exchange_start(close);
    }
    sweep(http);
}

bool mcp_http_finish(struct mcp_http *http, int64_t now_ms)
{
    http->now_ms = now_ms;
    http->finish_ms = http->finish_ms == 0 ? now_ms : http->finish_ms;
    if (!http->is_closing && !is_busy(http)) {
        close_session(http);
    }
    return http->is_closing && http->exchanges == NULL;
}

void mcp_http_hurry(struct mcp_http *http)
{
    http->is_hurried = true;
}

/* ---- the whole ------------------------------------------------------------------------------- */

bool mcp_http_is_full(const struct mcp_http *http)
{
    return proxy_client_waits(http->options.proxy) >= MCP_HTTP_QUEUED_BYTES_MAX;
}

enum status mcp_http_new(
    const struct mcp_http_options *options, struct mcp_http **ret_http, struct err *err)
{
    const struct mem *mem = options->proxy->options.mem;
    struct once_client_options client = {
        .ca_file = options->cacert, .user_agent = "once-mcp/" ONCE_VERSION};
    struct once_error error = {0};
    struct mcp_http *http = mem_zalloc(mem, 1, sizeof *http);
    if (http == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    http->options = *options;
    buf_init(&http->initialize, mem, LIMIT_JSON_BYTES_MAX);
    enum status status = OK;
    if (once_client_new(&client, &http->client, &error) != ONCE_OK) {
        status = err_set(err, E_INVALID, "%s", error.text);
        err_hint(err, "%s", error.hint);
    }
    if (status == OK && (http->multi = curl_multi_init()) == NULL) {
        status = err_set(err, E_NOMEM, "out of memory");
    }
    if (status != OK) {
        mcp_http_free(http);
        return status;
    }
    *ret_http = http;
    return OK;
}

void mcp_http_free(struct mcp_http *http)
{
    struct client_quiet quiet;
    if (http == NULL) {
        return;
    }
    client_quiet_begin(&quiet);
    for (struct mcp_exchange *e = http->exchanges; e != NULL; e = e->next) {
        struct attempt_facts facts;
        if (e->state == MCP_EXCHANGE_RUNNING) {
            mcp_exchange_stop(e, CURLE_ABORTED_BY_CALLBACK, &facts);
        }
        if (e->state != MCP_EXCHANGE_OVER) {
            mcp_exchange_move(e, MCP_EXCHANGE_OVER);
        }
    }
    sweep(http);
    if (http->multi != NULL) {
        (void)curl_multi_cleanup(http->multi);
    }
    client_quiet_end(&quiet);
    once_client_free(http->client);
    buf_release(&http->initialize);
    mem_free(http->options.proxy->options.mem, http);
}
