/*
 * reconcile: asks the upstream about an operation whose outcome is unknown, and settles it: a GET
 * to the route's template with the operation's key. If the status is in `executed`, the answer is
 * the outcome, with its body and fields; if it is in `not_executed`, the key is freed; any other
 * leaves the operation unknown.
 *
 * Called by reconcile_schedule.h, and on demand when a duplicate arrives and the route says
 * on_unknown: reconcile.
 *
 * Promises:  one question at a time about one operation. An operation that was settled meanwhile
 *            stays as it is: the resolution names its fence (rule N6). A broken answer settles
 *            nothing.
 * Threads:   on the given loop, which may be any of them.
 */
#ifndef ONCE_GATEWAY_RECONCILE_H
#define ONCE_GATEWAY_RECONCILE_H

#include "gateway/impl.h"

/* The operation to ask about. */
struct reconcile_about {
    unsigned loop; /* everything happens on this loop */
    struct gateway_config *config;
    const struct config_route *route;
    struct upstreams_one *upstream;
    const struct record *record;    /* unknown */
    const struct engine_call *read; /* the call that read it */
};

/* Ask now. done is called on the loop, settled or not, exactly once and after this has returned.
 * False: the upstream is not asked (the route has no lookup, a question is already in progress, too
 * many are, no memory, the gateway is ending), and done is not called. */
bool reconcile_now(struct gateway *gateway, const struct reconcile_about *about,
    void (*done)(void *context), void *context);

#endif
