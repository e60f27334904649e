/*
 * effects: the door of the outbox (DESIGN section 11), reached through the API: POST /v1/effects,
 * what shows effects and what operates on them; and the effects of a seal.
 *
 *     envelope (envelope.h) > enqueue, durable > offered to the dispatcher > 202
 *
 * Promises:  an effect is durable before it is answered (P2) or offered. A duplicate is answered
 *            with the first one; a different payload under its key is refused with a diff that
 *            shows nothing redacted (P7). Payloads are shown redacted only. What is of another
 *            tenant is not there (P9).
 * Does not:  send anything.
 * Threads:   handlers on the server's loops; reload on one thread at a time.
 */
#ifndef ONCE_EFFECT_EFFECTS_H
#define ONCE_EFFECT_EFFECTS_H

#include "api/api.h"
#include "base/vault.h"
#include "config/config.h"
#include "door/door.h"

struct acknowledgement;
struct dispatch_call;
struct effects;

/* Who settles effects by acknowledgements that come later: the outbox (outbox_acknowledge). */
struct effects_settler {
    enum status (*acknowledge)(void *context, const struct config *config,
        const struct acknowledgement *ack, struct dispatch_call *call, struct err *err);
    /* What became of one, by that or by hand, is durable. Any thread. */
    void (*settled)(void *context, const struct record *effect);
    void *context;
};

struct effects_options {
    const struct mem *mem; /* NULL: the C library's */
    struct door *door;
    const struct vault
        *vault;            /* outlives the door; NULL: there are no types, nothing is taken in */
    struct config *config; /* held */
    /* A record that was just made: it may be sent. Any thread. NULL: nobody sends. */
    void (*offer)(void *context, const struct record *record);
    void *offer_context;
    struct effects_settler settler; /* zero: nobody does */
};

enum status effects_new(const struct effects_options *options, struct effects **ret_effects,
    struct err *err) MUST_CHECK;
/* After the server is gone. NULL is fine. */
void effects_free(struct effects *effects);
/* For the API. */
struct api_routes effects_routes(struct effects *effects);
struct api_outbox effects_outbox(struct effects *effects);

/* As of struct server_door: what is made is the configuration, held. What changes about connectors
 * and types is evidence (CCO-13), with secrets as digests, before it is used. E_INVALID: effects
 * were added to a server that was started without any. */
enum status effects_reload_prepare(
    struct effects *effects, struct config *config, void **ret_made, struct err *err) MUST_CHECK;
void effects_reload_end(struct effects *effects, void *made, bool is_used);

#endif
