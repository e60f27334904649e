/*
 * reconcile: asks the upstream about an operation whose outcome is unknown, and settles it: a GET
 * to the route's template with the operation's key. If the status is in `executed`, the answer is
 * the outcome, with its body and fields; if it is in `not_executed`, the key is freed; any other
 * leaves the operation unknown.
 *
 * Called by reconcile_schedule.h, and on demand when a duplicate arrives and the route says
 * on_unknown: reconcile.
 *
 * Promises:  one question at a time about one operation: a caller that comes while it is asked
 *            waits for that answer. An operation that was settled meanwhile stays as it is: the
 *            resolution names its fence (rule N6). A broken answer settles nothing.
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

/* A caller that waits for the end of a question. Its memory, until done is called. */
struct reconcile_wait {
    /* Set by the caller. Called once, settled or not, on the loop of its reconcile_about, and after
     * reconcile_now has returned. */
    void (*done)(struct reconcile_wait *wait);

    /* reconcile.c's. */
    struct net_task task;
    struct gateway *gateway;
    struct net_loop *loop;
    struct reconcile_wait *next;
};

enum reconcile_begun {
    RECONCILE_NOT_ASKED, /* the route has no lookup, too many are asked, there is no memory, the
                            gateway is ending, or an earlier attempt is asked about: done is not
                            called */
    RECONCILE_ASKED,     /* with a question of its own */
    RECONCILE_JOINED,    /* a question that was asked earlier, so its answer may be older */
};

/* Ask now, or wait for the answer if the upstream is being asked about the operation already. */
enum reconcile_begun reconcile_now(struct gateway *gateway, const struct reconcile_about *about,
    struct reconcile_wait *wait) MUST_CHECK;

#endif
