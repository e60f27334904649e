/*
 * marks: values in a JSON tree that are omitted or redacted when written, found by JSON Pointers.
 *
 * Promises:  follows RFC 6901: "~1" and "~0" are escapes, items of arrays are named by their
 *            numbers without leading zeros, "" is the root. A pointer that is invalid or
 *            leads nowhere marks nothing. Making marks does not copy the tree.
 * Ownership: marks are in the arena and point into the tree: both must outlive them.
 * Threads:   read-only once made.
 */
#ifndef ONCE_CANON_MARKS_H
#define ONCE_CANON_MARKS_H

#include "canon/json.h"

enum mark_way {
    MARK_NONE,     /* as it stands */
    MARK_WITHIN,   /* something below it is marked */
    MARK_REDACTED, /* "[redacted]" in its place */
    MARK_OMITTED,  /* as if it were not there */
};

struct mark {
    const struct json_value *node; /* of the tree */
    enum mark_way way;             /* what to do with it */
};

struct marks {
    struct mark *items; /* sorted by the node's address, so that siblings are adjacent */
    size_t count;
};

/* Pointers of one way. */
struct mark_list {
    const char *const *pointers;
    size_t count;
    enum mark_way way; /* redacted or omitted */
};

/* Where pointers of two ways meet, what is omitted is. E_NOMEM is the only failure. */
enum status marks_make(const struct json_value *root, const struct mark_list *lists,
    size_t list_count, struct arena *arena, struct marks *ret_marks) MUST_CHECK;
/* The number of the first mark at or after a node. */
size_t marks_from(const struct marks *marks, const struct json_value *node);
/* Whether any pointer led somewhere. */
static inline bool marks_any(const struct marks *marks)
{
    return marks->count > 0;
}

#endif
