/* Calls that have not been sent or settled; and requests that a server over HTTP will not answer,
 * although the server itself is still there. */
#include <stdio.h>

#include "base/limits.h"
#include "mcp/proxy_impl.h"

enum mcp_awaited proxy_awaited(struct mcp_proxy *proxy, struct slice id)
{
    const struct mcp_request *request = proxy_find(proxy, id);
    if (request == NULL) {
        return MCP_AWAITED_NOTHING;
    }
    if (request->kind == MCP_CALL) {
        return request->state == CALL_SENT ? MCP_AWAITED_CALL : MCP_AWAITED_NOTHING;
    }
    return MCP_AWAITED_PLAIN;
}

bool proxy_may_send(struct mcp_proxy *proxy, struct slice id, int64_t now_ms)
{
    const struct mcp_request *request = proxy_find(proxy, id);
    proxy->now_ms = now_ms;
    return request == NULL || request->kind != MCP_CALL || call_is_fresh(proxy, request);
}

/* A request that is not a call gets an error; our own list is given up. */
static void plain_lost(struct mcp_proxy *proxy, struct mcp_request *request, const char *why)
{
    char text[512];
    struct buf line;
    if (request->is_own) {
        proxy_say(proxy, "the server did not list its tools: %s", why);
        proxy_end(proxy, request);
        proxy_listed(proxy);
        return;
    }
    (void)snprintf(text, sizeof text, "no answer from the server: %s", why);
    buf_init(&line, proxy->options.mem, LIMIT_JSON_BYTES_MAX);
    mcp_reply_error(&line,
        request->id_text.len > 0 ? buf_view(&request->id_text) : buf_view(&request->id),
        MCP_INTERNAL_ERROR, text);
    proxy_answer(proxy, request, buf_view(&line));
    buf_release(&line);
    proxy_end(proxy, request);
}

void proxy_server_lost(
    struct mcp_proxy *proxy, struct slice id, bool was_sent, const char *why, int64_t now_ms)
{
    struct mcp_request *request = proxy_find(proxy, id);
    proxy->now_ms = now_ms;
    if (request != NULL && request->kind == MCP_CALL) {
        call_lost(proxy, request, was_sent, why);
    } else if (request != NULL) {
        plain_lost(proxy, request, why);
    }
    proxy_sweep(proxy);
    proxy_check(proxy);
}

bool proxy_has_unsent(const struct mcp_proxy *proxy)
{
    for (const struct mcp_request *r = proxy->requests; r != NULL; r = r->next) {
        if (!r->is_over && r->kind == MCP_CALL && r->state < CALL_SENT) {
            return true;
        }
    }
    return false;
}

bool proxy_is_settled(const struct mcp_proxy *proxy)
{
    for (const struct mcp_request *r = proxy->requests; r != NULL; r = r->next) {
        if (r->job.is_busy || r->renewal.is_busy ||
            (!r->is_over && r->kind == MCP_CALL && r->state != CALL_LATE)) {
            return false;
        }
    }
    return true;
}

size_t proxy_client_waits(const struct mcp_proxy *proxy)
{
    const struct mcp_client_side *client = &proxy->options.client;
    return client->send_line == NULL ? queue_front(&proxy->to_client).len
                                     : client->waiting(client->context);
}
