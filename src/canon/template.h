/*
 * template: texts with placeholders, such as "/v1/charges/{target.order_id}".
 *
 * A placeholder names a root ("target", "payload", "idempotency_key") and, after dots, members of
 * objects or the numbers of items of arrays. Braces have no other meaning and no escape. In JSON, a
 * string that is one placeholder and nothing else becomes the value itself: {"amount":
 * "{payload.amount}"} keeps a number a number.
 *
 * Promises:  what is absent or has no text form (an object, null) is refused by its name, never
 *            written as nothing. A value in a path cannot leave its segment: every reserved byte is
 *            percent-encoded, and "", "." and ".." are refused. A value in a field cannot begin a
 *            new line. Depth and size are bounded by the caller's buffer and by json.h.
 * Does not:  evaluate anything: no conditions, no functions.
 * Ownership: roots and trees are borrowed.
 */
#ifndef ONCE_CANON_TEMPLATE_H
#define ONCE_CANON_TEMPLATE_H

#include "base/buf.h"
#include "base/err.h"
#include "canon/json.h"

/* How a value is written into a text. */
enum template_way {
    TEMPLATE_TEXT,  /* as it is */
    TEMPLATE_PATH,  /* percent-encoded, within a segment of a path or a value of a query */
    TEMPLATE_FIELD, /* the value of an HTTP field: no control characters */
};

struct template_root {
    struct slice name;
    const struct json_value *value; /* NULL: absent */
};

/* What placeholders can name. */
struct template_roots {
    const struct template_root *items;
    size_t count;
    const struct json_value
        *known; /* an object made by template_put_values, which is searched first; NULL: none */
};

/* Whether a text is a template whose placeholders begin with one of these names; the last one is
 * NULL. E_INVALID says what is wrong. */
enum status template_check(struct slice text, const char *const *names, struct err *err) MUST_CHECK;
/* The same of every string in a tree. */
enum status template_check_json(
    const struct json_value *tree, const char *const *names, struct err *err) MUST_CHECK;

/* Append the text with its values. E_INVALID names a placeholder without a value. E_NOMEM, E_LIMIT:
 * the buffer's. */
enum status template_put(struct slice text, const struct template_roots *roots,
    enum template_way way, struct buf *out, struct err *err) MUST_CHECK;
/* Append a tree as JSON, with the values in its strings. Statuses as template_put's. */
enum status template_put_json(const struct json_value *tree, const struct template_roots *roots,
    struct buf *out, struct err *err) MUST_CHECK;

/*
 * Append an object of all values that the strings of a tree name, by their placeholders:
 * {"payload.amount":1200}. Given as `known`, it makes the same texts without the roots. Values of
 * the root `later` are left out. Statuses as template_put's.
 */
enum status template_put_values(const struct json_value *tree, const struct template_roots *roots,
    const char *later, struct buf *out, struct err *err) MUST_CHECK;

/* A string as a root. */
struct json_value template_string(struct slice text);

#endif
