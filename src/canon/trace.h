/*
 * trace: the ids of one request for the evidence, as one canonical JSON object.
 *
 * Promises:  canonical and within trace_bytes_max, which everything below the doors relies on.
 */
#ifndef ONCE_CANON_TRACE_H
#define ONCE_CANON_TRACE_H

#include "base/buf.h"
#include "base/err.h"
#include "canon/json.h"

/* A member that the door itself knows; it overrides a member of that name in the trace. */
struct trace_member {
    struct slice name;
    struct slice value; /* UTF-8; empty: not given */
};

/*
 * Append the object made of the trace's members and those given, which are in canonical order.
 * Nothing is appended if there is no member. trace is an object or NULL. Fails with E_INVALID,
 * whose text names the error, or E_NOMEM. out's maximum should be no less than
 * LIMIT_TRACE_BYTES_MAX.
 */
enum status trace_write(const struct json_value *trace, const struct trace_member *members,
    size_t count, struct buf *out, struct err *err) MUST_CHECK;

#endif
