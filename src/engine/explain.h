/*
 * explain: details that every door adds to a refusal: how a conflicting payload differs, and when
 * to ask again.
 *
 * Promises:  a conflict shows how the payloads differ and nothing of the stored outcome (P7).
 */
#ifndef ONCE_ENGINE_EXPLAIN_H
#define ONCE_ENGINE_EXPLAIN_H

#include "base/buf.h"
#include "engine/engine.h"

enum {
    EXPLAIN_RETRY_MS_MAX = 1000,     /* asking once a second finds most outcomes soon enough */
    EXPLAIN_OPERATOR_MS_MAX = 60000, /* an operator checks again after a minute */
};

/* For a conflict of two JSON payloads: appends the difference from the first to this one, as an RFC
 * 6902 patch of at most LIMIT_DIFF_BYTES_MAX. E_INVALID: there is no diff, because one of them is
 * not kept or is not JSON. E_NOMEM. On failure out may have a part of it. */
enum status explain_conflict(const struct engine_call *call, const struct mem *mem, struct buf *out,
    bool *ret_truncated) MUST_CHECK;

/* When to ask again for an operation in progress: the rest of its lease, within bounds. */
int64_t explain_retry_after_ms(const struct engine_call *call, int64_t ms_max);

#endif
