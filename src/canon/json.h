/*
 * json: a strict JSON reader that builds a tree in an arena.
 *
 * Promises:  accepts exactly RFC 8259, narrowed to I-JSON (RFC 7493) where values would become
 *            ambiguous: duplicate members, invalid UTF-8 and lone surrogates are refused, as is a
 *            byte order mark. The text of a number is kept as written. Depth and size are bounded
 *            by base/limits.h. Members are kept in canonical order (RFC 8785 section 3.2.3), so
 *            that duplicates are found, lookups are searches and the writer has nothing to sort;
 *            the order of the document is not kept, because it has no meaning.
 * Does not:  convert numbers; a number beyond every double is refused by the writer (jcs.h).
 * Ownership: the tree points into the text read and into the arena: both must outlive it.
 * Threads:   a tree is read-only once made.
 */
#ifndef ONCE_CANON_JSON_H
#define ONCE_CANON_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/slice.h"

enum json_type {
    JSON_NULL,
    JSON_FALSE,
    JSON_TRUE,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT,
};

struct json_member;

struct json_value {
    enum json_type type;
    bool verbatim;   /* a number or string whose text is already its canonical form */
    uint32_t offset; /* of its first byte in the text read; an opening quote counts */
    uint32_t count;  /* bytes of text, number of items or members */
    union {
        const char *text;                  /* a number as written; a string decoded, unquoted */
        const struct json_value *items;    /* of an array */
        const struct json_member *members; /* of an object, in canonical order */
    };
};

struct json_member {
    struct json_value name; /* always a JSON_STRING */
    struct json_value value;
};

/* A place in a text, for people and for editors. */
struct json_place {
    size_t offset; /* bytes before it */
    size_t line;   /* from 1 */
    size_t column; /* from 1, in code points */
};

/*
 * E_INVALID when the text is not such JSON, with "line 3, column 7: duplicate member \"a\"";
 * E_LIMIT when the text, its depth or the arena's maximum is passed; E_NOMEM.
 */
enum status json_read(struct slice text, struct arena *arena, const struct json_value **ret,
    struct err *err) MUST_CHECK;
/* The same, and on E_INVALID or E_LIMIT *ret_place says where. */
enum status json_read_placed(struct slice text, struct arena *arena, const struct json_value **ret,
    struct json_place *ret_place, struct err *err) MUST_CHECK;

/* Where a byte of a text is. */
struct json_place json_place(struct slice text, size_t offset);

/* The member's value, or NULL if it is absent or the value is not an object. */
const struct json_value *json_find(const struct json_value *object, struct slice name);
/* The bytes of a string, the text of a number, empty for the others. */
struct slice json_text(const struct json_value *value);
/* The bytes of the member if it is a string, else empty. */
struct slice json_string(const struct json_value *object, const char *name);
static inline bool json_is(const struct json_value *value, enum json_type type)
{
    return value != NULL && value->type == type;
}
/* The bytes of a value in the text that it was read from. */
struct slice json_raw(struct slice text, const struct json_value *value);
/* Whether a text can be inserted as a value without affecting what surrounds it: its brackets and
 * quotes make it one value. For texts that a caller declared as JSON; reading checks more. */
bool json_framed(struct slice text);
/* Without the blanks and line ends that JSON allows around a value. */
struct slice json_trim(struct slice text);
/* True for a number written without fraction and exponent that fits; *ret is else untouched. */
bool json_int(const struct json_value *value, int64_t *ret);
/* Whether two values are the same: numbers by exact decimal value, strings by code points. */
bool json_equal(const struct json_value *a, const struct json_value *b);
/* The order of RFC 8785: by UTF-16 code units. Negative, zero or positive. */
int json_order(struct slice a, struct slice b);
/*
 * Put the JSON Pointer (RFC 6901) of a value inside root into ret_text, cut with "..." where it is
 * too long; for error texts. The value must be a node of that tree, not an equal one.
 */
void json_pointer_of(
    const struct json_value *root, const struct json_value *value, char *ret_text, size_t size);

#endif
