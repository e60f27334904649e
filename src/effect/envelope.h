/*
 * envelope: an Effect Envelope (CCO-1) as a request to the engine: POST /v1/effects, the effects of
 * a seal and of a command's handler, and the effect that compensates another one.
 *
 * Promises:  what is wrong is refused by the member's name before the engine is asked for anything.
 *            Everything that its request will be made of is there: a template that names what is
 *            absent is refused now, not when it is to be sent. The payload leaves this module
 *            sealed only. The tenant is the sender's, whatever the envelope says (P9).
 * Ownership: everything that the call points at is in the sender's arena, in the text that the
 *            envelope was read from, or the sender's own.
 * Threads:   any; the sender's arena is one thread's.
 */
#ifndef ONCE_EFFECT_ENVELOPE_H
#define ONCE_EFFECT_ENVELOPE_H

#include "door/members.h"
#include "effect/effect.h"
#include "effect/sealed.h"
#include "engine/engine.h"

/* Who sends it. */
struct effect_sender {
    const struct config_effects *types;
    const struct vault *vault;
    const struct engine *engine; /* for fingerprints */
    struct arena *arena;
    struct slice tenant;
    struct slice actor;       /* may be empty */
    struct slice text;        /* that envelopes are read from */
    struct slice command_id;  /* of an envelope that names none; may be empty */
    struct slice request_id;  /* for the trace; may be empty */
    struct slice traceparent; /* likewise */
};

/* What an envelope came to, besides the call. */
struct effect_order {
    const struct config_effect *type;
    struct slice form; /* {"payload":…,"target":…} as it came, to explain a conflict */
};

/* The envelope as an enqueue. The fault's code is "unknown_effect_type" where the type is not there
 * for this tenant. E_INVALID, E_NOMEM, E_UNAVAILABLE (no random bytes). */
enum status effect_envelope_read(const struct effect_sender *sender,
    const struct json_value *envelope, struct engine_call *call, struct effect_order *ret_order,
    struct member_fault *fault) MUST_CHECK;

/* The status of a refusal: 404 for "unknown_effect_type", 403 for "tenant_mismatch", 400 for what
 * is no envelope at all, else 422. */
unsigned effect_fault_status(const struct member_fault *fault);

/* The effect that undoes one, as an enqueue under a key of its own. E_INVALID: its type has no
 * compensation, or what it is made of is absent. E_NOMEM, E_CORRUPT, E_UNAVAILABLE. */
enum status effect_undo_make(const struct effect_sender *sender, const struct record *record,
    const struct effect_detail *detail, struct engine_call *call, struct err *err) MUST_CHECK;

/* The payload without what its type redacts, appended as JSON. E_NOMEM, E_LIMIT. */
enum status effect_redact(const struct config_effect *type, const struct json_value *payload,
    struct arena *arena, struct buf *out, struct err *err) MUST_CHECK;

#endif
