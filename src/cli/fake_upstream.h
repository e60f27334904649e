/*
 * fake_upstream: an upstream that answers what a case says, on a loopback port and a thread of its
 * own. Not on http_server, which can neither refuse, reset nor leave a client without an answer.
 *
 * Promises:  a request is counted when all of it was read, before anything is said to it. Its port
 *            is kept while it refuses connections, so that nobody else can take it.
 * Does not:  keep a connection for a second request.
 * Threads:   all functions on one thread, beside its own.
 */
#ifndef ONCE_CLI_FAKE_UPSTREAM_H
#define ONCE_CLI_FAKE_UPSTREAM_H

#include "base/err.h"
#include "config/cases.h"

struct fake_upstream;

/* E_NOMEM, E_UNAVAILABLE: no port, no thread. */
enum status fake_upstream_new(struct fake_upstream **ret_fake, struct err *err) MUST_CHECK;
/* Closes what is open. NULL is fine. */
void fake_upstream_free(struct fake_upstream *fake);

/* "http://127.0.0.1:41234", until fake_upstream_free. */
const char *fake_upstream_url(const struct fake_upstream *fake);
/* What it answers to requests from now on; it has to live until fake_upstream_free. E_UNAVAILABLE:
 * it cannot listen any more. */
enum status fake_upstream_script(
    struct fake_upstream *fake, const struct case_upstream *script, struct err *err) MUST_CHECK;
/* Requests it has read; the gateway's own questions (reconcile) are none. */
uint64_t fake_upstream_calls(struct fake_upstream *fake);
/* Answer whoever waits. */
void fake_upstream_release(struct fake_upstream *fake);

#endif
