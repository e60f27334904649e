/*
 * rounds: the gateway's janitor. While there are unknown operations and a route that can ask about
 * its own, it goes round: looks through the unknown ones of each tenant, and has those asked about
 * (reconcile.h) whose time has come.
 *
 * Promises:  nothing is remembered of an operation but what its record says: the first question is
 *            due when it became unknown, the next with pauses that double (question_is_due); after
 *            a start each is asked about once. At most ROUNDS_QUESTIONS_MAX at a time. A store with
 *            many keys is looked through more rarely, so that looking stays a small part of the
 *            engine's time.
 * Threads:   on the first loop; rounds_wake from any thread.
 */
#ifndef ONCE_GATEWAY_ROUNDS_H
#define ONCE_GATEWAY_ROUNDS_H

#include "gateway/impl.h"

/* E_NOMEM. */
enum status rounds_new(
    struct gateway *gateway, struct rounds **ret_rounds, struct err *err) MUST_CHECK;
/* Before the loop is started; from its first turns on there are rounds. */
void rounds_start(struct gateway *gateway);
/* Another configuration is in use. */
void rounds_wake(struct gateway *gateway);
/* On a loop that is about to end, when the gateway is idle. */
void rounds_end(struct gateway *gateway, unsigned loop);
/* NULL is fine. */
void rounds_free(struct rounds *rounds);

#endif
