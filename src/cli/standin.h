/*
 * standin: an upstream that answers what a case says, on a loopback port and a thread of its own.
 *
 * Promises:  a request is counted when all of it was read, before anything is said to it. Its port
 *            is kept while it refuses connections, so that nobody else can take it.
 * Does not:  keep a connection for a second request.
 * Threads:   all functions on one thread, beside its own.
 */
#ifndef ONCE_CLI_STANDIN_H
#define ONCE_CLI_STANDIN_H

#include "base/err.h"
#include "config/cases.h"

struct standin;

/* E_NOMEM, E_UNAVAILABLE: no port, no thread. */
enum status standin_new(struct standin **ret_standin, struct err *err) MUST_CHECK;
/* Closes what is open. NULL is fine. */
void standin_free(struct standin *standin);

/* "http://127.0.0.1:41234", until standin_free. */
const char *standin_url(const struct standin *standin);
/* What it answers to requests from now on; it has to live until standin_free. E_UNAVAILABLE: it
 * cannot listen any more. */
enum status standin_script(
    struct standin *standin, const struct case_upstream *script, struct err *err) MUST_CHECK;
/* Requests it has read; the gateway's own questions (reconcile) are none. */
uint64_t standin_calls(struct standin *standin);
/* Answer whoever waits. */
void standin_release(struct standin *standin);

#endif
