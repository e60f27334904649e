/*
 * outbox: effects on their way out: which connector each goes to, what is sent, and what the
 * answer makes of it. The dispatcher runs it (dispatch/dispatch.h); the rules are in next.h, the
 * request in compose.h.
 *
 * Promises:  a credential is read from its file or variable when a configuration is loaded, at
 *            every reload again, and is wiped with it. A connector that is limited to tenants
 *            serves no other (P9). What a provider answered is kept as its status and provider_ref
 *            alone: the rest may hold what must not be readable at rest.
 * Threads:   as struct dispatch_kind says; the functions here on one thread at a time.
 */
#ifndef ONCE_EFFECT_OUTBOX_H
#define ONCE_EFFECT_OUTBOX_H

#include "config/config.h"
#include "dispatch/dispatch.h"
#include "effect/acknowledgement.h"

struct effect_outbox;

/* Whoever waits for effects (a command) hears of each that has a parent and is settled or given up,
 * once that is durable. On any of the server's loops: an acknowledgement may come later, through
 * the API, and a person may settle one. */
struct outbox_parent {
    void (*settled)(void *context, const struct record *effect);
    void *context;
};

struct outbox_options {
    const struct mem *mem; /* NULL: the C library's */
    struct dispatch *dispatch;
    struct config *config; /* held until a different one takes its place */
};

/* E_INVALID, E_UNAVAILABLE: a URL, a CA file or a credential is wrong; the text says which. */
enum status outbox_new(const struct outbox_options *options, struct effect_outbox **ret_outbox,
    struct err *err) MUST_CHECK;
/* After the dispatcher is gone. NULL is fine. */
void outbox_free(struct effect_outbox *outbox);
/* Before the loops run. */
void outbox_parent(struct effect_outbox *outbox, const struct outbox_parent *parent);

/* What settles an effect by an acknowledgement that came later, as if the service had answered with
 * it: the calls of the group. The call has its record, time, memory, randomness and is_alone; what
 * else it needs is set. config: as now, held by the caller until this returns. E_UNAVAILABLE: it
 * has no such type any more. E_NOMEM, E_CORRUPT. Any thread. */
enum status outbox_acknowledge(struct effect_outbox *outbox, const struct config *config,
    const struct acknowledgement *ack, struct dispatch_call *call, struct err *err) MUST_CHECK;
/* What became of an effect is durable: tell its parent. Any thread. */
void outbox_settled(struct effect_outbox *outbox, const struct record *effect);

/* As of struct server_door. */
enum status outbox_reload_prepare(struct effect_outbox *outbox, struct config *config,
    void **ret_made, struct err *err) MUST_CHECK;
void outbox_reload_end(struct effect_outbox *outbox, void *made, bool is_used);

#endif
