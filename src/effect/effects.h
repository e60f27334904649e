/*
 * effects: the door of the outbox (docs/effects.md), reached through the API: POST /v1/effects,
 * the routes that show and operate on effects, and the effects of a seal.
 *
 *     envelope (envelope.h) > enqueue, durable > offered to the dispatcher > 202
 *
 * Promises:  an effect is durable before it is answered (P2) or offered. A duplicate is answered
 *            with the first effect; a different payload under its key is refused with a diff that
 *            shows nothing redacted (P7). Payloads are only shown redacted. A different tenant's
 *            effects are not found (P9).
 * Does not:  send anything.
 * Threads:   handlers on the server's loops; reload on one thread at a time.
 */
#ifndef ONCE_EFFECT_EFFECTS_H
#define ONCE_EFFECT_EFFECTS_H

#include "api/api.h"
#include "base/vault.h"
#include "config/config.h"
#include "door/door.h"

struct effect_command_calls; /* envelope.h */

struct acknowledgement;
struct dispatch;
struct dispatch_call;
struct effects;

/* Settles effects when a later acknowledgement arrives: the outbox (outbox_acknowledge). */
struct effects_settler {
    enum status (*acknowledge)(void *context, const struct config *config,
        const struct acknowledgement *ack, struct dispatch_call *call, struct err *err);
    /* As outbox_effect_ends: for an effect that an operator settles. */
    enum status (*ends)(void *context, const struct record *command, const struct record *effect,
        bool has_failed, struct effect_command_calls *calls, struct err *err);
    /* The effect was settled that way or by hand, durably. Any thread. */
    void (*settled)(void *context, const struct record *effect);
    void *context;
};

struct effects_options {
    const struct mem *mem; /* NULL: the C library's */
    struct door *door;
    const struct vault
        *vault;            /* outlives the door; NULL: no types are configured, and every effect is
                              refused */
    struct config *config; /* held */
    struct dispatch *dispatch;      /* sends what was made; NULL: nobody does */
    struct effects_settler settler; /* zero: none */
};

enum status effects_new(const struct effects_options *options, struct effects **ret_effects,
    struct err *err) MUST_CHECK;
/* Call it after the server has been freed. NULL is fine. */
void effects_free(struct effects *effects);
/* As in struct server_door. */
void effects_cut(struct effects *effects);
bool effects_is_idle(struct effects *effects);
/* For the API. */
struct api_routes effects_routes(struct effects *effects);
struct api_outbox effects_outbox(struct effects *effects);

/* As in struct server_door: prepare returns the configuration, held. Changes to connectors and
 * types are written to the evidence (CCO-13), with secrets as digests, before they are used.
 * E_INVALID: effects were added to a server that was started without any. */
enum status effects_reload_prepare(
    struct effects *effects, struct config *config, void **ret_made, struct err *err) MUST_CHECK;
void effects_reload_end(struct effects *effects, void *made, bool is_used);

#endif
