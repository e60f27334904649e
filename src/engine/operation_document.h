/*
 * operation_document: an operation as JSON, the same for the API, the library and the command line
 * (DESIGN section 8).
 *
 * Promises:  members have one spelling and one order, and what there is nothing to say about is
 *            absent, never null. An outcome that came as JSON is given back byte for byte (P3).
 * Does not:  decide who may see it.
 */
#ifndef ONCE_ENGINE_OPERATION_DOCUMENT_H
#define ONCE_ENGINE_OPERATION_DOCUMENT_H

#include "canon/jsonw.h"
#include "core/record.h"

/* The meta of an outcome whose body is JSON. */
#define OUTCOME_META_JSON SLICE_LIT("application/json")

/* An operation and what was found with it. */
struct operation_document {
    const struct record *record;
    struct slice outcome_body;
    struct slice request_body;
    bool has_bodies; /* they were looked for: outcome and request are shown */
};

/* The members of an object that is open. */
void operation_document_put(struct jsonw *json, const struct operation_document *document);
/* Bytes that these members can need when has_bodies is false, whatever the record. */
size_t operation_document_bytes_max(void);

/* The member "outcome" of a sealed record: the JSON that it came as, or, from other doors, an
 * object {code, meta, body}, with the number of bytes instead of those that are not kept. Nothing
 * when there is no outcome; null_when_absent: null. */
void operation_document_outcome(
    struct jsonw *json, const struct record *record, struct slice body, bool null_when_absent);
/* False when there was an outcome whose bytes are gone. */
bool operation_document_is_retained(const struct record *record);

#endif
