/*
 * attempt: one HTTP exchange through libcurl.
 *
 * Promises:  at most one request is sent. libcurl itself sends a request a second time if a kept
 *            connection turns out to be dead; here that ends the attempt, so that the next one has
 *            its own Request-Id (ADR-3). Whether a byte may have been sent is known exactly.
 *            Certificates are verified, redirects are not followed.
 *
 * The only user of libcurl's transfers: once_client_send, and the program's own requests to a
 * server (cli/remote.c), to a gateway under test (cli/policy_send.c) and to MCP servers
 * (mcp/exchange.c), of which many run at a time.
 */
#ifndef ONCE_CLIENT_ATTEMPT_H
#define ONCE_CLIENT_ATTEMPT_H

#include "client/request.h"
#include "client/response.h"

/* One exchange on its way. Zeroed, except for the response and the callbacks that the caller
 * sets. */
struct client_transfer {
    struct client_response *response;
    /* Right before the first byte; false ends the attempt unsent. NULL: always true. */
    bool (*may_send)(void *context);
    /* A piece of the body, as libcurl's write callback. NULL: it is kept in the response. */
    size_t (*take)(void *context, struct slice piece);
    void *context;   /* for these two */
    bool was_sent;   /* the connection is there: from now on bytes leave */
    bool sent_again; /* libcurl was about to send it a second time */
};

/* Sends the request with its lines as they are. The response has the answer, or why there
 * is no answer; the facts say what is known, except what a body says. */
void client_attempt(struct once_client *client, const struct client_request *request,
    int64_t timeout_ms, struct client_response *response, struct attempt_facts *ret_facts);

/* For a caller that runs many in its own loop: a handle that is ready to be added to it. The
 * request's strings must outlive the transfer. CURLE_OK, or nothing is left to end. */
CURLcode client_transfer_begin(struct once_client *client, const struct client_request *request,
    int64_t timeout_ms, struct client_transfer *transfer, CURL **ret_curl) MUST_CHECK;
/* It has ended with this result, or is given up: what is known about it. The handle is gone. */
void client_transfer_end(struct once_client *client, const struct client_request *request,
    struct client_transfer *transfer, CURL *curl, CURLcode failed, struct attempt_facts *ret_facts);

#endif
