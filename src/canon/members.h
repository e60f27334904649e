/*
 * members: JSON objects, read into structs by a table of their members.
 *
 * Promises:  a member that is unknown, missing or of the wrong type is refused, and the refusal
 *            names it. An absent optional member leaves its place unchanged.
 * Does not:  check limits: builder_check does that for all doors.
 */
#ifndef ONCE_CANON_MEMBERS_H
#define ONCE_CANON_MEMBERS_H

#include <stddef.h>

#include "base/err.h"
#include "canon/json.h"

enum member_type {
    MEMBER_VALUE,         /* the caller reads the value itself */
    MEMBER_OBJECT,        /* the same, but it must be an object */
    MEMBER_TEXT,          /* struct slice: a non-empty string */
    MEMBER_TEXT_OR_EMPTY, /* struct slice */
    MEMBER_DURATION,      /* int64_t: "30s" in milliseconds */
    MEMBER_BOOL,          /* bool */
    MEMBER_POSITIVE,      /* uint64_t: a whole number of at least 1 */
};

struct member {
    struct slice name;
    enum member_type type;
    bool is_required;
    size_t offset; /* of the member's place in the struct; unused for values and objects */
};

/* The members an object may have. */
struct member_table {
    const char *prefix; /* put before member names in refusals, such as "source." */
    const struct member *members;
    size_t count;
    bool is_open; /* members x_* and extensions are ignored */
};

/* Why an object is refused. */
struct member_fault {
    const char *code; /* "invalid_body", "unknown_member" or "missing_member"; NULL:
                         "invalid_member" */
    struct err err;   /* E_INVALID */
};

/* Read an object into a struct. ret_values gets the value of each member of the table, NULL where
 * it is absent. E_INVALID: also if it is not an object, which a caller's body need not be. */
enum status members_read(const struct member_table *table, const struct json_value *object,
    void *into, const struct json_value **ret_values, struct member_fault *fault) MUST_CHECK;

/* Refuse with this code (NULL: "invalid_member"). Returns E_INVALID. */
enum status member_refuse(struct member_fault *fault, const char *code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
