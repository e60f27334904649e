/*
 * request_builder: the parts of an engine_call that every door makes in the same way: the
 * fingerprint, the kept body, the outcome and the trace; and the one check of its limits. explain.h
 * helps with the answer.
 *
 * Ownership: the call borrows the caller's slices.
 */
#ifndef ONCE_ENGINE_REQUEST_BUILDER_H
#define ONCE_ENGINE_REQUEST_BUILDER_H

#include "canon/payload.h"
#include "canon/trace.h"
#include "engine/engine.h"

/* The fingerprint of a begin, keyed for this store. */
void builder_fingerprint(struct engine_call *call, const struct engine *engine,
    const struct digest *plain, enum fingerprint_version version);
/* Keeps this body with a begin, so that a conflict can be explained. A body that is empty or longer
 * than LIMIT_REQUEST_KEPT_BYTES_MAX is not kept. */
void builder_keep(struct engine_call *call, struct slice body, const struct digest *digest);
/* Both for a payload. Parameters as in payload_fingerprint; request_body points to the text or to
 * the form. E_NOMEM. */
enum status builder_payload(struct engine_call *call, const struct engine *engine,
    struct slice text, const struct json_value *value, struct buf *form) MUST_CHECK;

/* Sets the body of an outcome. A body past bytes_max (or LIMIT_OUTCOME_BYTES_MAX) is sealed without
 * its bytes, and replays say so. */
void builder_outcome_body(struct engine_call *call, struct slice body, uint64_t bytes_max);

/* Joins the trace ids of this request and those of the trace that came with it (NULL: absent), in
 * the arena: *ret_trace is empty if there are no ids. E_INVALID names the error. E_NOMEM. */
enum status builder_trace(const struct json_value *trace, struct slice request_id,
    struct slice traceparent, const struct mem *mem, struct slice *ret_trace,
    struct err *err) MUST_CHECK;

/* The trace of a later request about an operation: the ids of the operation's own trace, so that
 * its entries are found by them, with this request's in place of the first one's. Without memory,
 * or if both are too long for one trace, this request's alone, or none. */
struct slice builder_trace_again(
    struct slice trace, struct slice request_id, struct slice traceparent, struct arena *arena);

/* Checks that the call is within the limits: E_INVALID names the member and the limit.
 * engine_submit checks this too; a door calls it earlier, to answer an invalid request before
 * anything else happens. */
enum status builder_check(const struct engine_call *call, struct err *err) MUST_CHECK;

#endif
