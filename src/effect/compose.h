/*
 * compose: makes the HTTP request of an effect, or of a question about one, from its type, its
 * connector and its record.
 *
 * Promises:  no value of a payload or target can end a line, or leave its path segment or form
 *            field. Every attempt of an effect has the same bytes, except for those that name the
 *            attempt, so that a provider recognises a repetition. A credential is only in the head.
 * Does not:  send, or follow links.
 * Ownership: everything composed is in the arena.
 */
#ifndef ONCE_EFFECT_COMPOSE_H
#define ONCE_EFFECT_COMPOSE_H

#include "base/arena.h"
#include "envelope/effect.h"
#include "http/head.h"

/* What the request is made from. */
struct compose_from {
    const struct config_effect *type;
    const struct record *record;
    const struct effect_detail *detail;
    struct slice payload;    /* JSON, as received */
    struct slice authority;  /* for the Host field */
    struct slice field;      /* for the credential: its name … */
    struct slice credential; /* … and value; empty: none */
    struct slice request_id;
    struct slice ack_token; /* envelope: as text; empty: none */
    struct slice ack_url;   /* envelope: where the acknowledgement is sent; empty: not known */
};

struct composed {
    struct slice head; /* the whole request head */
    struct slice body;
    enum http_method method;
};

/* An attempt. E_INVALID: a template names a value that the effect does not have, or the payload
 * has no place for the key; the text says which. E_NOMEM, E_LIMIT: it is too long. */
enum status compose_attempt(const struct compose_from *from, struct arena *arena,
    struct composed *ret_composed, struct err *err) MUST_CHECK;
/* A question by the connector's lookup: a GET without a body. */
enum status compose_question(const struct compose_from *from, struct arena *arena,
    struct composed *ret_composed, struct err *err) MUST_CHECK;

/* The structured CloudEvent that a broker is sent, with the effect's key as idempotencykey. */
enum status compose_event(const struct compose_from *from, struct arena *arena,
    struct slice *ret_event, struct err *err) MUST_CHECK;

/* The key for the provider: unchanged, or its SHA-256 in base64url if it is too long, or if it goes
 * into a field and begins or ends with a blank: receivers drop those, so that "a" and "a " would be
 * the same key. */
enum { COMPOSE_KEY_BYTES_MAX = 256 };
struct slice compose_key(
    const struct config_idempotency *how, struct slice key, char ret_text[COMPOSE_KEY_BYTES_MAX]);

#endif
