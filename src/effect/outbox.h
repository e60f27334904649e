/*
 * outbox: sends effects: which connector each goes to, what is sent, and what the answer means. The
 * dispatcher runs it (dispatch/dispatch.h); the rules are in next_step.h, the request in compose.h.
 *
 * Promises:  a credential is read from its file or variable whenever a configuration is loaded or
 *            reloaded, and is wiped with it. A connector that is limited to some tenants serves no
 *            other (P9). Of a provider's answer only the status and provider_ref are kept: the rest
 *            may contain data that must not be readable at rest.
 * Threads:   as in struct dispatch_kind; the functions here on one thread at a time.
 */
#ifndef ONCE_EFFECT_OUTBOX_H
#define ONCE_EFFECT_OUTBOX_H

#include "config/config.h"
#include "dispatch/dispatch.h"
#include "effect/acknowledgement.h"

struct effect_command_calls; /* envelope.h */

struct effect_outbox;

/* The commands, which wait for their required effects. Called on any of the server's loops: an
 * acknowledgement may come later, through the API, and an operator may settle an effect. */
struct outbox_parent {
    /* An effect is about to be acknowledged, or to fail or be given up: set the requests and the
     * outcomes of the calls that its command needs in the same commit. The command is as it was
     * just read. E_NOMEM, and as vault_open. */
    enum status (*ends)(void *context, const struct record *command, const struct record *effect,
        bool has_failed, struct effect_command_calls *calls, struct err *err);
    /* Called once an effect with a parent is durably settled or given up, unless its command was
     * in the same commit. */
    void (*settled)(void *context, const struct record *effect);
    void *context;
};

struct outbox_options {
    const struct mem *mem; /* NULL: the C library's */
    struct dispatch *dispatch;
    struct config *config; /* held until a different one replaces it */
};

/* E_INVALID, E_UNAVAILABLE: a URL, a CA file or a credential is invalid; the text says which. */
enum status outbox_new(const struct outbox_options *options, struct effect_outbox **ret_outbox,
    struct err *err) MUST_CHECK;
/* Call it after the dispatcher has been freed. NULL is fine. */
void outbox_free(struct effect_outbox *outbox);
/* Call it before the loops run. */
void outbox_parent(struct effect_outbox *outbox, const struct outbox_parent *parent);

/* Make the calls that settle an effect by a later acknowledgement, as if the service had answered
 * with it. The call must have its record, time, memory, randomness, is_alone and, if it has a
 * command (effect_has_command), other; the rest is set here. The caller holds config, the current
 * one, until this returns. E_UNAVAILABLE: the configuration no longer has this type. E_NOMEM,
 * E_CORRUPT. Any thread. */
enum status outbox_acknowledge(struct effect_outbox *outbox, const struct config *config,
    const struct acknowledgement *ack, struct dispatch_call *call, struct err *err) MUST_CHECK;
/* As struct outbox_parent's ends, for an effect that an operator settles. Any thread. */
enum status outbox_effect_ends(struct effect_outbox *outbox, const struct record *command,
    const struct record *effect, bool has_failed, struct effect_command_calls *calls,
    struct err *err) MUST_CHECK;
/* An effect's result is durable: notify its parent. Any thread. */
void outbox_settled(struct effect_outbox *outbox, const struct record *effect);

/* As in struct server_door. */
enum status outbox_reload_prepare(struct effect_outbox *outbox, struct config *config,
    void **ret_made, struct err *err) MUST_CHECK;
void outbox_reload_end(struct effect_outbox *outbox, void *made, bool is_used);

#endif
