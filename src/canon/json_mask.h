/*
 * json_mask: values in a JSON tree that are omitted or redacted when it is written, found by JSON
 * Pointers.
 *
 * Promises:  follows RFC 6901: "~1" and "~0" are escapes, items of arrays are named by their
 *            numbers without leading zeros, "" is the root. A pointer that is invalid or
 *            leads nowhere marks nothing. Making marks does not copy the tree.
 * Ownership: marks are in the arena and point into the tree: both must outlive them.
 * Threads:   read-only once made.
 */
#ifndef ONCE_CANON_JSON_MASK_H
#define ONCE_CANON_JSON_MASK_H

#include "canon/json.h"

enum json_mask_way {
    JSON_MASK_NONE,     /* as it stands */
    JSON_MASK_WITHIN,   /* something below it is marked */
    JSON_MASK_REDACTED, /* "[redacted]" in its place */
    JSON_MASK_OMITTED,  /* as if it were absent */
};

struct json_mask_item {
    const struct json_value *node; /* of the tree */
    enum json_mask_way way;        /* what to do with it */
};

struct json_mask {
    struct json_mask_item *items; /* sorted by the node's address, so that siblings are adjacent */
    size_t count;
};

/* Pointers of one way. */
struct json_mask_list {
    const char *const *pointers;
    size_t count;
    enum json_mask_way way; /* redacted or omitted */
};

enum { JSON_POINTER_BYTES_MAX = 1024 }; /* of json_at's: a longer one leads nowhere */
/* The value that a pointer leads to; NULL: nowhere, or the pointer is invalid. */
const struct json_value *json_at(const struct json_value *root, struct slice pointer);
/* The object or array that has, or could have, what a pointer names, and the unescaped name. NULL:
 * nowhere, or the pointer is invalid, or the root's own. */
const struct json_value *json_holder_at(const struct json_value *root, struct slice pointer,
    char scratch[JSON_POINTER_BYTES_MAX], struct slice *ret_name);

/* If a value is both omitted and redacted, it is omitted. E_NOMEM is the only failure. */
enum status json_mask_make(const struct json_value *root, const struct json_mask_list *lists,
    size_t list_count, struct arena *arena, struct json_mask *ret_marks) MUST_CHECK;
/* The number of the first mark at or after a node. */
size_t json_mask_from(const struct json_mask *marks, const struct json_value *node);
/* Whether any pointer led somewhere. */
static inline bool json_mask_any(const struct json_mask *marks)
{
    return marks->count > 0;
}

#endif
