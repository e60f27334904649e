/*
 * members: JSON objects, read into structs by a table of their members.
 *
 * Promises:  a member that is unknown, missing or of the wrong type is refused by its name. A
 *            member that is absent and not required leaves its place as it was.
 * Does not:  check limits: builder_check does, for all doors.
 */
#ifndef ONCE_DOOR_MEMBERS_H
#define ONCE_DOOR_MEMBERS_H

#include <stddef.h>

#include "base/err.h"
#include "canon/json.h"

enum member_type {
    MEMBER_VALUE,         /* the caller reads it itself */
    MEMBER_OBJECT,        /* likewise, an object */
    MEMBER_TEXT,          /* struct slice: a string that is not empty */
    MEMBER_TEXT_OR_EMPTY, /* struct slice */
    MEMBER_DURATION,      /* int64_t: "30s" in milliseconds */
    MEMBER_BOOL,          /* bool */
    MEMBER_POSITIVE,      /* uint64_t: a whole number from 1 on */
};

struct member {
    struct slice name;
    enum member_type type;
    bool is_required;
    size_t offset; /* of its place in the struct; not used for values and objects */
};

/* The members that an object may have. */
struct member_table {
    const char *prefix; /* of their names in refusals, such as "source." */
    const struct member *members;
    size_t count;
    bool is_open; /* x_* and extensions are passed over */
};

/* Why an object is refused. */
struct member_fault {
    const char *code; /* "unknown_member", "missing_member"; NULL: "invalid_member" */
    struct err err;   /* E_INVALID */
};

/* Read an object into a struct. ret_values has the value of each member of the table, NULL where it
 * is absent. E_INVALID. */
enum status members_read(const struct member_table *table, const struct json_value *object,
    void *into, const struct json_value **ret_values, struct member_fault *fault) MUST_CHECK;

/* Refuse with this code (NULL: "invalid_member"). Returns E_INVALID. */
enum status member_refuse(struct member_fault *fault, const char *code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
