/*
 * attempt: one HTTP exchange through libcurl.
 *
 * Promises:  at most one request leaves. libcurl by itself sends a request a second time when a
 *            kept connection turns out to be dead; here that ends the attempt, so that the next
 *            one has a Request-Id of its own (ADR-3). Whether a byte may have left is known
 *            exactly. Certificates are checked, redirects are not followed.
 */
#ifndef ONCE_CLIENT_ATTEMPT_H
#define ONCE_CLIENT_ATTEMPT_H

#include "client/request.h"
#include "client/response.h"

/* Send the request as its lines stand. The answer, or why there is none, is in the response; the
 * facts say what is known, but for what a body says. */
void client_attempt(struct once_client *client, const struct client_request *request,
    int64_t timeout_ms, struct client_response *response, struct attempt_facts *ret_facts);

#endif
