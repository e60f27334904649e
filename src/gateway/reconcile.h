/*
 * reconcile: asks the upstream what became of an operation that nobody knows the outcome of, and
 * settles it: a GET to the route's template with the operation's key. A status of `executed` is its
 * outcome, with the answer's body and fields; one of `not_executed` frees the key; anything else
 * leaves it unknown.
 *
 * By the janitor: unknown operations of routes with a reconcile are asked for with pauses that
 * double. On demand: when a duplicate comes, and the route says on_unknown: reconcile.
 *
 * Promises:  one question at a time about one operation. What was settled meanwhile stays: the
 *            settling names the fence it is about (rule N6).
 * Threads:   on the loop given; the janitor lives on the first loop.
 */
#ifndef ONCE_GATEWAY_RECONCILE_H
#define ONCE_GATEWAY_RECONCILE_H

#include "gateway/impl.h"

/* Ask now about a record that is unknown; done is called on the loop, settled or not. False: it is
 * not asked (the route has none, somebody asks already, no memory), and done is not called. */
bool reconcile_now(struct gateway *gateway, unsigned loop, struct gate *gate,
    const struct config_route *route, struct origin *origin, const struct record *record,
    void (*done)(void *context), void *context);

/* The janitor, from the first turn of its loop on, to gateway_end. */
void reconcile_turn(struct gateway *gateway, unsigned loop);
void reconcile_end(struct gateway *gateway, unsigned loop);

#endif
