/*
 * payload: the fingerprint of what was asked.
 *
 * Promises:  JSON is compared by value: its canonical form is hashed. If the canonical form would
 *            change a number (9007199254740993), or the bytes are not I-JSON, the bytes themselves
 *            are hashed, so that two different payloads never look the same (P13).
 * Does not:  key the fingerprint; that needs the store's own key (engine/engine.h).
 */
#ifndef ONCE_CANON_PAYLOAD_H
#define ONCE_CANON_PAYLOAD_H

#include "base/buf.h"
#include "canon/digest.h"
#include "canon/json.h"

/* How a fingerprint was computed. Values are on disk: never renumber. */
enum fingerprint_version {
    FINGERPRINT_CANONICAL = 1, /* SHA-256 of the canonical JSON */
    FINGERPRINT_RAW = 2,       /* SHA-256 of the bytes: no JSON, or JSON that would be lossy */
    FINGERPRINT_OWN = 3,       /* the caller's own 32 bytes */
};

struct payload {
    struct digest digest;             /* of the form: the fingerprint before it is keyed */
    enum fingerprint_version version; /* canonical or raw */
    struct slice form;                /* what was hashed: in the buffer, or the text itself */
};

/* The most room that the canonical form of N bytes can need: 1e20 becomes 21 digits. */
size_t payload_form_bytes_max(size_t text_bytes);

/*
 * The fingerprint of a value that was read from this text, or somewhere in it; if value is NULL, of
 * the whole text, which is read with memory of form->mem. The form is appended to the buffer, which
 * has room for payload_form_bytes_max more. E_NOMEM is the only failure.
 */
enum status payload_fingerprint(struct slice text, const struct json_value *value, struct buf *form,
    struct payload *ret_payload) MUST_CHECK;

#endif
