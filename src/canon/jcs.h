/*
 * jcs: the canonical form of a JSON value (RFC 8785, the JSON Canonicalization Scheme).
 *
 * Promises:  equal values have equal bytes and unequal values unequal bytes, except for lossy
 *            numbers: one whose decimal value no double holds, such as 9007199254740993, is
 *            written as its nearest double. These are counted, so that key derivation can refuse
 *            them (P13).
 */
#ifndef ONCE_CANON_JCS_H
#define ONCE_CANON_JCS_H

#include "base/buf.h"
#include "base/err.h"
#include "canon/json.h"
#include "canon/json_mask.h"

struct jcs_report {
    size_t lossy_count;                   /* numbers whose value the canonical form changes */
    const struct json_value *lossy_first; /* the first of them in canonical order, or NULL */
};

/*
 * Append the canonical form. E_INVALID when a number is beyond every double (1e400): RFC 8785 has
 * no form for it; the text gives its JSON Pointer. E_LIMIT or E_NOMEM when the buffer cannot take
 * it. On failure the buffer holds what was written so far. The report may be NULL.
 */
enum status jcs_write(const struct json_value *value, struct buf *out,
    struct jcs_report *ret_report, struct err *err) MUST_CHECK;

/* How to write a value that is not only hashed. Zeroed: as jcs_write does. */
struct jcs_how {
    const struct json_mask *marks; /* of exactly this tree; may be NULL */
    bool keep_lossy;               /* numbers without an exact canonical form stay as written; the
                                  result is then not RFC 8785, but shows what was there */
};
/*
 * Like jcs_write, but marked values are omitted or redacted. Nothing below them is read, so lossy
 * numbers there do not count. If the root is omitted, nothing is written.
 */
enum status jcs_write_marked(const struct json_value *value, const struct jcs_how *how,
    struct buf *out, struct jcs_report *ret_report, struct err *err) MUST_CHECK;
/* The text that replaces a redacted value, with its quotes. */
#define JCS_REDACTED "\"[redacted]\""
/* Append one string in quotes, escaped as RFC 8785 section 3.2.2.2 says. Sticky as all of buf. */
void jcs_put_string(struct buf *out, struct slice text);
/* Say that a number of the tree was lossy: "number 9007199254740993 at /args/n ...". */
enum status jcs_refuse_lossy(
    const struct json_value *root, const struct jcs_report *report, struct err *err);

#endif
