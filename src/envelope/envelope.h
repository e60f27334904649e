/*
 * envelope: turns an Effect Envelope (CCO-1) into a request to the engine: for POST /v1/effects,
 * the effects of a seal and of a command's handler, and the effect that compensates a different
 * one.
 *
 * Promises:  an invalid member is refused by its name before the engine is called. A template that
 *            names an absent value is refused now, not when the effect is sent. The payload leaves
 *            this module for the store only in sealed form. The tenant is the sender's, whatever
 *            the envelope says (P9).
 * Ownership: everything the call points at is in the sender's arena, in the envelope's text, or the
 *            sender's own.
 * Threads:   any; a sender's arena belongs to one thread.
 */
#ifndef ONCE_ENVELOPE_ENVELOPE_H
#define ONCE_ENVELOPE_ENVELOPE_H

#include "canon/json_mask.h"
#include "canon/members.h"
#include "engine/engine.h"
#include "envelope/effect.h"
#include "envelope/sealed.h"

/* The sender of an effect. */
struct effect_sender {
    const struct config_effects *types;
    const struct vault *vault;
    const struct engine *engine; /* for fingerprints */
    struct arena *arena;
    struct slice tenant;
    struct slice actor;       /* may be empty */
    struct slice text;        /* the text that the envelopes were read from */
    struct slice command_id;  /* for an envelope that names none; may be empty */
    struct slice request_id;  /* for the trace; may be empty */
    struct slice traceparent; /* likewise */
    struct slice trace;       /* JSON, for an envelope that has none; may be empty */
};

/* The contents of an envelope, besides the call. */
struct effect_order {
    const struct config_effect *type;
    struct slice form;    /* {"payload":…,"target":…} as received, to explain a conflict */
    struct slice payload; /* as received and as it is sealed; in the sender's text */
};

/* Read the envelope into an enqueue. The fault's code is "unknown_effect_type" where this tenant
 * has no such type. E_INVALID, E_NOMEM, E_UNAVAILABLE (no random bytes). */
enum status effect_envelope_read(const struct effect_sender *sender,
    const struct json_value *envelope, struct engine_call *call, struct effect_order *ret_order,
    struct member_fault *fault) MUST_CHECK;

/* The status of a refusal: 404 for "unknown_effect_type", 403 for "tenant_mismatch", 400 for a body
 * that is not an envelope at all, else 422. */
unsigned effect_fault_status(const struct member_fault *fault);

/* Make the effect that undoes one, as an enqueue under its own key. If that one has
 * failed or was cancelled, it starts over: nothing was undone. E_INVALID: its type has no
 * compensation, or a value that it needs is absent. E_NOMEM, E_CORRUPT, E_UNAVAILABLE. */
enum status effect_undo_make(const struct effect_sender *sender, const struct record *record,
    const struct effect_detail *detail, struct engine_call *call, struct err *err) MUST_CHECK;

/* The same, with the call that makes the original "compensating": both calls belong to one
 * dependent group. Their arena, actor, reason, context and done are the caller's. The detail is the
 * original's and gets the name of its compensation. */
enum status effect_undo_calls(const struct effect_sender *sender, const struct record *record,
    struct effect_detail *detail, struct engine_call *own, struct engine_call *undo,
    struct err *err) MUST_CHECK;

/* The object of a payload that gets the connector's key, and the name of its member there; NULL:
 * the key goes elsewhere. E_INVALID: the payload has no such object. Without its key, the effect
 * could happen twice. */
enum status effect_key_holder(const struct config_connector *connector,
    const struct json_value *payload, char scratch[JSON_POINTER_BYTES_MAX],
    const struct json_value **ret_holder, struct slice *ret_name, struct err *err) MUST_CHECK;

/* Append the payload as JSON, without the values that its type redacts. E_NOMEM, E_LIMIT. */
enum status effect_redact(const struct config_effect *type, const struct json_value *payload,
    struct arena *arena, struct buf *out, struct err *err) MUST_CHECK;

/* What the command of an effect needs in the commit that settles the effect: its end, one effect
 * less to wait for, or its failure and the beginning of its compensation. */
enum { EFFECT_COMMAND_CALLS_MAX = 2 };
struct effect_command_calls {
    struct arena *arena;
    struct engine_call calls[EFFECT_COMMAND_CALLS_MAX]; /* requests and outcomes */
    size_t count;                                       /* 0: it needs none */
};

#endif
