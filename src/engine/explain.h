/*
 * explain: what every door says with a refusal: how a conflicting payload differs, and when asking
 * again makes sense.
 *
 * Promises:  a conflict shows how the payloads differ and nothing of what is stored (P7).
 */
#ifndef ONCE_ENGINE_EXPLAIN_H
#define ONCE_ENGINE_EXPLAIN_H

#include "base/buf.h"
#include "engine/engine.h"

enum {
    EXPLAIN_RETRY_MS_MAX = 1000,     /* asking once a second finds most outcomes soon enough */
    EXPLAIN_OPERATOR_MS_MAX = 60000, /* an operator looks again after a minute */
};

/* To a conflict of two JSON payloads: how this one differs from the first, as an RFC 6902 patch of
 * at most LIMIT_DIFF_BYTES_MAX appended to out. E_INVALID: there is no diff, because one of them
 * is not kept or is not JSON. E_NOMEM. On failure out may have a part of it. */
enum status explain_conflict(const struct engine_call *call, const struct mem *mem, struct buf *out,
    bool *ret_truncated) MUST_CHECK;

/* When to ask again for something that is in progress: what is left of its lease, within bounds. */
int64_t explain_retry_after_ms(const struct engine_call *call, int64_t ms_max);

#endif
