/*
 * chars: which bytes are allowed where, as one table.
 *
 * HTTP_VALUE is field-content with the whitespace inside it (RFC 9110 section 5.5): no control
 * character except HTAB. HTTP_TARGET is what RFC 3986 allows in a path or a query, plus '[', ']',
 * '{', '|', '}' and '^', which browsers and curl send as they are; not '"', '#', '<', '>', '`', nor
 * '\', which some read as '/'.
 */
#ifndef ONCE_HTTP_CHARS_H
#define ONCE_HTTP_CHARS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/scan.h"
#include "base/slice.h"

enum {
    HTTP_TOKEN = 1,   /* tchar, RFC 9110 section 5.6.2 */
    HTTP_VALUE = 2,   /* of a field value */
    HTTP_TARGET = 4,  /* of a path or a query */
    HTTP_HOST = 8,    /* unreserved, RFC 3986 section 2.3 */
    HTTP_HEXDIG = 16, /* either case */
    HTTP_DIGIT = 32,  /* 0 to 9 */
};

extern const unsigned char http_chars[256];

static inline bool http_is(char c, int kind)
{
    return (http_chars[(unsigned char)c] & kind) != 0;
}

/* How many bytes at the beginning of text are of that kind. */
static inline size_t http_run(struct slice text, int kind)
{
    size_t n = 0;
    while (n < text.len && http_is(text.data[n], kind)) {
        n++;
    }
    return n;
}

/* All of them, and at least one. */
static inline bool http_all(struct slice text, int kind)
{
    return text.len > 0 && http_run(text, kind) == text.len;
}

/* Whether it may be the value of a field; most are printable ASCII. */
static inline bool http_is_value(struct slice text)
{
    return scan_printable(text.data, text.len) || http_run(text, HTTP_VALUE) == text.len;
}

static inline char http_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

#endif
