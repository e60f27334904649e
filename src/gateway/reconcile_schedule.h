/*
 * reconcile_schedule: when each unknown operation is asked about. The engine says which are due
 * (engine_on_due): every operation of the gateway is from when it becomes unknown. Those that a
 * route can ask about are (reconcile.h), then again with pauses that double.
 *
 * Promises:  each is asked about as soon as it is unknown, and again after a start or a reload;
 *            then after every_ms, with pauses that double up to every_ms_max. At most 16 at a time.
 *            One that no route can ask about is read once and left alone. Nothing is written: after
 *            a restart the pauses begin anew.
 * Threads:   on the first loop; schedule_wake from any thread.
 */
#ifndef ONCE_GATEWAY_RECONCILE_SCHEDULE_H
#define ONCE_GATEWAY_RECONCILE_SCHEDULE_H

#include "gateway/impl.h"

/* E_NOMEM. */
enum status schedule_new(
    struct gateway *gateway, struct schedule **ret_schedule, struct err *err) MUST_CHECK;
/* Before the loop is started. */
void schedule_start(struct gateway *gateway);
/* Another configuration is in use. */
void schedule_wake(struct gateway *gateway);
/* On a loop that is about to end, when the gateway is idle. */
void schedule_end(struct gateway *gateway, unsigned loop);
/* NULL is fine. */
void schedule_free(struct schedule *schedule);

#endif
