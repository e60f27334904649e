/*
 * http: an MCP server over streamable HTTP instead of a process: it takes the proxy's lines for the
 * server, and gives the proxy the server's lines.
 *
 * Every line becomes a POST. Its answer is one JSON document, or a stream of events. Two eras:
 *
 *   sessions (2025-03-26 to 2025-11-25)   initialize opens one, with Mcp-Session-Id; a GET stream
 *                     has the server's own messages; a broken stream is resumed by Last-Event-ID
 *                     where the server gives its events ids; DELETE ends the session. When the
 *                     server has forgotten it (404), a new one is opened with the client's own
 *                     initialize, and the message is sent again: a 404 says that it was not read.
 *   stateless (2026-07-28)   a request has its version in _meta; headers repeat what is in it.
 *                     Closing a stream cancels its request. Nothing is resumed.
 *
 * Promises:  MH1 A line is sent at most once, unless the server said that it did not read it.
 *            MH2 For a request that gets no answer the proxy learns whether it may have been sent
 *                (proxy_server_lost), exactly once.
 *            MH3 A message waits until the notifications and answers before it are accepted, and
 *                initialize is answered: the server gets them in the client's order.
 *            MH4 While the client does not read, the server's messages are not read either.
 * Does not:  follow redirects, or sign in (OAuth): the caller's headers have the credential.
 * Threads:   one.
 */
#ifndef ONCE_MCP_HTTP_H
#define ONCE_MCP_HTTP_H

#include <poll.h>

#include "mcp/proxy.h"

struct mcp_http;

enum {
    MCP_HTTP_RETRY_MS = 1000, /* before a stream is resumed, unless the server says otherwise */
    MCP_HTTP_RETRY_MS_MAX = 30000, /* after several failures */
    MCP_HTTP_RESUMES_MAX = 10,     /* in a row that brought nothing */
    MCP_HTTP_FINISH_MS = 5000,     /* for requests that are not calls, after the client has gone */
    MCP_HTTP_CLOSE_MS = 2000,      /* for the end of a session */
};

/* Strings must outlive it. */
struct mcp_http_options {
    struct mcp_proxy *proxy;
    const char *url;
    const char *cacert;         /* PEM file of authorities; NULL: the system's */
    const char *const *headers; /* "Name: value", of every request; ends with NULL */
};

/* E_NOMEM, E_INVALID: err says why. */
enum status mcp_http_new(
    const struct mcp_http_options *options, struct mcp_http **ret_http, struct err *err) MUST_CHECK;
/* Every request is given up. NULL is fine. */
void mcp_http_free(struct mcp_http *http);

/* A line for the server. False: it has to wait for one before it (MH3). */
bool mcp_http_take(struct mcp_http *http, struct slice line, int64_t now_ms) MUST_CHECK;
/* Like poll(2), and also returns when there is something to do here. */
int mcp_http_poll(struct mcp_http *http, struct pollfd *fds, unsigned int count, int wait_ms);
/* Do what can be done, and give the proxy what came. */
void mcp_http_work(struct mcp_http *http, int64_t now_ms);
/* OK; or it could not take a line because memory ran out. */
enum status mcp_http_status(const struct mcp_http *http) MUST_CHECK;
/* When something is due; INT64_MAX: nothing. */
int64_t mcp_http_due(const struct mcp_http *http);
/* The client has gone: wait for what is under way, then end the session. True: all is over. */
bool mcp_http_finish(struct mcp_http *http, int64_t now_ms) MUST_CHECK;
/* Wait for nothing any more. */
void mcp_http_hurry(struct mcp_http *http);

#endif
