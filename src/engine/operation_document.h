/*
 * operation_document: an operation as JSON, the same for the API, the library and the command line
 * (docs/api.md).
 *
 * Promises:  members have one spelling and one order, and a member without a value is absent, never
 *            null. An outcome that came as JSON is returned byte for byte (P3).
 * Does not:  decide who may see it.
 */
#ifndef ONCE_ENGINE_OPERATION_DOCUMENT_H
#define ONCE_ENGINE_OPERATION_DOCUMENT_H

#include "canon/jsonw.h"
#include "core/record.h"

/* The meta of an outcome whose body is JSON. */
#define OUTCOME_META_JSON SLICE_LIT("application/json")

/* An operation and the bodies found with it. */
struct operation_document {
    const struct record *record;
    struct slice outcome_body;
    struct slice request_body;
    bool has_bodies; /* the bodies were loaded: outcome and request are shown */
};

/* Writes the members into an open object. */
void operation_document_put(struct jsonw *json, const struct operation_document *document);
/* The most bytes that these members need if has_bodies is false. */
size_t operation_document_bytes_max(void);

/* Writes the member "outcome" of a sealed record: the JSON that it came as, or, from other doors,
 * an object {code, meta, body}, with the number of bytes instead of a body that is not kept.
 * Without an outcome it writes nothing, or null with null_when_absent. */
void operation_document_outcome(
    struct jsonw *json, const struct record *record, struct slice body, bool null_when_absent);
/* False if there was an outcome whose bytes are not kept. */
bool operation_document_is_retained(const struct record *record);

#endif
