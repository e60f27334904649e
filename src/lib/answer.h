/*
 * answer: makes public structs from records, each in one allocation.
 */
#ifndef ONCE_LIB_ANSWER_H
#define ONCE_LIB_ANSWER_H

#include "core/decide.h"
#include "lib/handle.h"

/* The parts of a public operation. */
struct operation_parts {
    const struct record *record;
    struct slice outcome_body; /* empty: not loaded, or absent */
    struct slice request_body; /* likewise */
};

/* The parts of an answer. */
struct answer_parts {
    const struct decision *decision;
    int64_t retry_after_ms;
    struct operation_parts operation; /* record NULL: absent */
    struct slice diff;                /* empty: absent */
    bool diff_truncated;
    struct slice effects;  /* of a seal; empty: absent */
    size_t effect_refused; /* the one in conflict, counted from 1; 0: none */
};

/* Bytes for the answer to any change: every name at its limit, no bodies and no meta. */
size_t answer_bytes_max(void);
/* Bytes that the answer needs. */
size_t answer_bytes(const struct answer_parts *parts);
/* Writes the answer into place, which has that many bytes. */
struct once_answer *answer_put(const struct answer_parts *parts, void *place);

/* NULL when out of memory. */
struct once_operation *operation_new(
    const struct mem *mem, const struct operation_parts *parts) MUST_CHECK;

#endif
