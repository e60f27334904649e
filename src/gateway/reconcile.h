/*
 * reconcile: asks the upstream what became of an operation that nobody knows the outcome of, and
 * settles it: a GET to the route's template with the operation's key. A status of `executed` is its
 * outcome, with the answer's body and fields; one of `not_executed` frees the key; anything else
 * leaves it unknown.
 *
 * By reconcile_schedule.h, and on demand: when a duplicate comes, and the route says on_unknown:
 * reconcile.
 *
 * Promises:  one question at a time about one operation. What was settled meanwhile stays: the
 *            settling names the fence it is about (rule N6). A broken answer settles nothing.
 * Threads:   on the loop given. Any of them.
 */
#ifndef ONCE_GATEWAY_RECONCILE_H
#define ONCE_GATEWAY_RECONCILE_H

#include "gateway/impl.h"

/* What is asked about. */
struct reconcile_about {
    unsigned loop; /* on which everything happens */
    struct gateway_config *config;
    const struct config_route *route;
    struct upstreams_one *upstream;
    const struct record *record;    /* unknown */
    const struct engine_call *read; /* the call that found it so */
};

/* Ask now; done is called on the loop, settled or not, exactly once and after this has returned.
 * False: it is not asked (the route has no lookup, somebody asks already, too many are, no memory,
 * the gateway ends), and done is not called. */
bool reconcile_now(struct gateway *gateway, const struct reconcile_about *about,
    void (*done)(void *context), void *context);

#endif
