/*
 * attempt: one HTTP exchange through libcurl.
 *
 * Promises:  at most one request is sent. libcurl itself sends a request a second time if a kept
 *            connection turns out to be dead; here that ends the attempt, so that the next one has
 *            its own Request-Id (ADR-3). Whether a byte may have been sent is known exactly.
 *            Certificates are verified, redirects are not followed.
 *
 * The only user of libcurl's transfers: once_client_send, and the program's own requests to a
 * server (cli/remote.c) and to a gateway under test (cli/policy_ask.c).
 */
#ifndef ONCE_CLIENT_ATTEMPT_H
#define ONCE_CLIENT_ATTEMPT_H

#include "client/request.h"
#include "client/response.h"

/* Sends the request with its lines as they are. The response has the answer, or why there
 * is no answer; the facts say what is known, except what a body says. */
void client_attempt(struct once_client *client, const struct client_request *request,
    int64_t timeout_ms, struct client_response *response, struct attempt_facts *ret_facts);

#endif
