/*
 * answer: public structs out of records, each one allocation that is freed whole.
 */
#ifndef ONCE_LIB_ANSWER_H
#define ONCE_LIB_ANSWER_H

#include "core/decide.h"
#include "lib/handle.h"

/* What an operation is shown with. */
struct operation_parts {
    const struct record *record;
    struct slice outcome_body; /* empty: not loaded, or not there */
    struct slice request_body; /* likewise */
};

/* What an answer is made of. */
struct answer_parts {
    const struct decision *decision;
    int64_t retry_after_ms;
    struct operation_parts operation; /* record NULL: not shown */
    struct slice diff;                /* empty: absent */
    bool diff_truncated;
};

/* Room for the answer to any change: every name at its limit, no bodies and no meta. */
size_t answer_bytes_max(void);
/* Bytes that the answer will take. */
size_t answer_bytes(const struct answer_parts *parts);
/* Write it into place, which has that many bytes. */
struct once_answer *answer_put(const struct answer_parts *parts, void *place);

/* NULL when out of memory. */
struct once_operation *operation_new(
    const struct mem *mem, const struct operation_parts *parts) MUST_CHECK;

#endif
