#include "engine/explain.h"

#include "base/check.h"
#include "base/limits.h"
#include "canon/diff.h"
#include "canon/payload.h"

enum {
    RETRY_MS_MIN = 100,       /* asking more often than this is polling */
    TREE_BYTES_MAX = 8 << 20, /* 128 times a kept body: more than two trees can need */
};

enum status explain_conflict(
    const struct engine_call *call, const struct mem *mem, struct buf *out, bool *ret_truncated)
{
    ASSERT(call->decision.kind == DECISION_CONFLICT_REJECTED);
    if (call->first_body.len == 0 || call->request_body.len == 0 ||
        call->request.fingerprint_version != FINGERPRINT_CANONICAL ||
        call->decision.next.fingerprint_version != FINGERPRINT_CANONICAL) {
        return E_INVALID;
    }
    struct arena trees;
    const struct json_value *first;
    const struct json_value *this;
    arena_init(&trees, mem, TREE_BYTES_MAX);
    enum status status = json_read(call->first_body, &trees, &first, NULL);
    status = status == OK ? json_read(call->request_body, &trees, &this, NULL) : status;
    if (status == OK) {
        struct diff_options options = {.bytes_max = LIMIT_DIFF_BYTES_MAX};
        status = diff_write(first, this, &options, out, ret_truncated, NULL);
    }
    arena_release(&trees);
    return status;
}

int64_t explain_retry_after_ms(const struct engine_call *call, int64_t ms_max)
{
    int64_t left = call->decision.next.lease_expires_ms - call->now_ms;
    left = left < RETRY_MS_MIN ? RETRY_MS_MIN : left;
    return left > ms_max ? ms_max : left;
}
