/*
 * fake_upstream: an upstream that answers as a case says, on a loopback port. It does not use
 * http_server, which cannot refuse or reset a connection, or leave a client without an answer.
 *
 * Promises:  a request is counted when it has been read completely, before it is answered. The port
 *            is kept while connections are refused, so that no other process can take it.
 * Does not:  keep a connection for a second request.
 * Threads:   all functions on one thread. A separate thread accepts, and each connection has its
 *            own.
 */
#ifndef ONCE_SERVER_FAKE_UPSTREAM_H
#define ONCE_SERVER_FAKE_UPSTREAM_H

#include "base/err.h"
#include "config/cases.h"

struct fake_upstream;

/* Listen on that port of the loopback address; 0: any. E_NOMEM, E_UNAVAILABLE: no port, no
 * thread. */
enum status fake_upstream_new(
    uint16_t port, struct fake_upstream **ret_fake, struct err *err) MUST_CHECK;
/* Closes all connections. NULL is fine. */
void fake_upstream_free(struct fake_upstream *fake);

/* "http://127.0.0.1:41234", until fake_upstream_free. */
const char *fake_upstream_url(const struct fake_upstream *fake);
/* Set the answer to requests from now on; it must live until fake_upstream_free. E_UNAVAILABLE: it
 * can no longer listen. */
enum status fake_upstream_script(
    struct fake_upstream *fake, const struct case_upstream *script, struct err *err) MUST_CHECK;
/* Requests that it has read; the gateway's own questions (reconcile) do not count. */
uint64_t fake_upstream_calls(struct fake_upstream *fake);
/* Answer the waiting requests, and close those that never get an answer. */
void fake_upstream_release(struct fake_upstream *fake);

#endif
