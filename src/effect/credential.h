/*
 * credential: the value of the field by which a connector authenticates itself, from its file or
 * variable.
 *
 * Promises:  it is one line: anything more would be sent, or end the field.
 * Ownership: the caller wipes it (secret_release).
 */
#ifndef ONCE_EFFECT_CREDENTIAL_H
#define ONCE_EFFECT_CREDENTIAL_H

#include "base/buf.h"
#include "config/effects.h"

enum { CREDENTIAL_BYTES_MAX = 16 << 10 };

/* Append it; nothing if the connector has none. E_INVALID, E_UNAVAILABLE: it is absent, cannot be
 * read, or is not one line; the text names the connector. E_NOMEM. */
enum status credential_read(const struct config_connector *connector, const struct mem *mem,
    struct buf *out, struct err *err) MUST_CHECK;

#endif
