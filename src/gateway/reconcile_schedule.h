/*
 * reconcile_schedule: when each unknown operation is asked about. While there are any, and a route
 * that can ask about its own, it goes round: reads the unknown ones of each tenant, and has those
 * asked about (reconcile.h) whose time has come.
 *
 * Promises:  nothing is remembered of an operation but what its record says: the first question is
 *            due when it became unknown, the next with pauses that double (reconcile_is_due); after
 *            a start each is asked about once. At most SCHEDULE_QUESTIONS_MAX at a time. The more
 *            keys a store has, the more rarely it is read, so that reading stays a small part of
 *            the engine's time.
 * Threads:   on the first loop; schedule_wake from any thread.
 */
#ifndef ONCE_GATEWAY_RECONCILE_SCHEDULE_H
#define ONCE_GATEWAY_RECONCILE_SCHEDULE_H

#include "gateway/impl.h"

/* E_NOMEM. */
enum status schedule_new(
    struct gateway *gateway, struct schedule **ret_schedule, struct err *err) MUST_CHECK;
/* Before the loop is started; the first round is in its first turns. */
void schedule_start(struct gateway *gateway);
/* Another configuration is in use. */
void schedule_wake(struct gateway *gateway);
/* On a loop that is about to end, when the gateway is idle. */
void schedule_end(struct gateway *gateway, unsigned loop);
/* NULL is fine. */
void schedule_free(struct schedule *schedule);

#endif
