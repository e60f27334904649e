/*
 * publisher: sends the effects of one connector to a broker (docs/effects.md and docs/inbox.md).
 *
 *     send > queue > a thread: connect if needed > publish, wait for the confirm > done
 *
 * The verdict follows from the module's result: confirmed is acknowledged; certainly not stored is
 * tried later; refused permanently is failed; anything else is unknown, and sent again only if the
 * broker recognises a repetition (P5).
 *
 * Threads:   a few, each with its own connection, which blocks. send may be called on any.
 * Does not:  limit the queue; the dispatcher does, by the connector's concurrency.
 */
#ifndef ONCE_EFFECT_PUBLISHER_H
#define ONCE_EFFECT_PUBLISHER_H

#include "broker/broker.h"
#include "config/effects.h"
#include "dispatch/dispatch.h"

struct publisher;

/* Whether every connector of a broker has its module and a valid URL; connects to nothing.
 * E_INVALID, E_UNAVAILABLE: the text names the connector. */
enum status publishers_check(const struct config_effects *effects, struct err *err) MUST_CHECK;

/* name: of this process, as the broker shows it. E_INVALID, E_UNAVAILABLE, E_NOMEM. */
enum status publisher_new(const struct mem *mem, const struct config_connector *connector,
    const char *name, struct publisher **ret_publisher, struct err *err) MUST_CHECK;
struct dispatch_sender *publisher_sender(struct publisher *publisher);
/* Nothing is under way. NULL is fine. */
void publisher_free(struct publisher *publisher);

#endif
