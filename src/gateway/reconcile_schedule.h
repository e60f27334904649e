/*
 * reconcile_schedule: when the upstream is asked about each unknown operation. The engine reports
 * those that are due (engine_on_due): an operation of the gateway is due as soon as it is unknown.
 * If a route can ask about it, reconcile.h does so, and again after pauses that double.
 *
 * Promises:  each operation is asked about as soon as it is unknown, and after a start or a reload;
 *            then after every_ms, with pauses that double up to every_ms_max. At most 16 at a time.
 *            An operation that no route can ask about is read once and left alone. Nothing is
 *            stored: after a restart the pauses start again.
 * Threads:   on the first loop; schedule_wake from any thread.
 */
#ifndef ONCE_GATEWAY_RECONCILE_SCHEDULE_H
#define ONCE_GATEWAY_RECONCILE_SCHEDULE_H

#include "gateway/impl.h"

/* E_NOMEM. */
enum status schedule_new(
    struct gateway *gateway, struct schedule **ret_schedule, struct err *err) MUST_CHECK;
/* Call it before the loop starts. */
void schedule_start(struct gateway *gateway);
/* Call it when a different configuration is in use. */
void schedule_wake(struct gateway *gateway);
/* Call it on a loop that is about to end, when the gateway is idle. */
void schedule_end(struct gateway *gateway, unsigned loop);
/* NULL is fine. */
void schedule_free(struct schedule *schedule);

#endif
