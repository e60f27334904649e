/*
 * diff: what changed between two JSON values, as an RFC 6902 patch.
 *
 * Promises:  applied to `before`, a patch that is neither truncated nor redacted gives `after`, but
 *            for what is at or below an ignored pointer: no operation is about that. No value at or
 *            below a redacted pointer is ever written, nor a member name below one. If `before` was
 *            redacted there when it was stored, nothing is said about it. The patch never passes
 *            its size cap and is valid JSON at any cap; if operations had to be left out, that is
 *            reported.
 * Does not:  find moved or copied values, or the shortest patch: the common ends of arrays are
 *            skipped, and the rest is compared item by item.
 */
#ifndef ONCE_CANON_DIFF_H
#define ONCE_CANON_DIFF_H

#include "base/buf.h"
#include "base/err.h"
#include "canon/json.h"

enum { DIFF_BYTES_MIN = 2 }; /* "[]" */

struct diff_options {
    const struct slice *redact; /* JSON Pointers; what is at or below them is "[redacted]" */
    size_t redact_count;        /* how many */
    const struct slice *ignore; /* JSON Pointers; what is at or below them may differ */
    size_t ignore_count;
    size_t bytes_max; /* of the patch; at least DIFF_BYTES_MIN */
};

/* Append the patch to out. E_NOMEM, or E_LIMIT when out has no room for even "[]". */
enum status diff_write(const struct json_value *before, const struct json_value *after,
    const struct diff_options *options, struct buf *out, bool *ret_truncated,
    struct err *err) MUST_CHECK;

#endif
