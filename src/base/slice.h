/*
 * slice: a pointer with its length, borrowed from the owner of the bytes.
 *
 * Slices are passed by value and never own anything. The empty slice may have a NULL pointer.
 */
#ifndef ONCE_BASE_SLICE_H
#define ONCE_BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct slice {
    const char *data; /* not terminated; may be NULL when len is 0 */
    size_t len;       /* bytes */
};

#define SLICE_EMPTY     ((struct slice){NULL, 0})
#define SLICE_LIT(text) ((struct slice){"" text, sizeof(text) - 1})
/* The same where only a constant is allowed, as in a table. */
#define SLICE_INIT(text)                                                                           \
    {                                                                                              \
        "" text, sizeof(text) - 1                                                                  \
    }
#define SLICE_ARGS(s) (int)(s).len, (s).data == NULL ? "" : (s).data /* for "%.*s" */

static inline struct slice slice_of(const void *data, size_t len)
{
    return (struct slice){(const char *)data, len};
}

/* NULL becomes the empty slice. */
static inline struct slice slice_str(const char *text)
{
    return text == NULL ? SLICE_EMPTY : (struct slice){text, strlen(text)};
}

static inline bool slice_equal(struct slice a, struct slice b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static inline bool slice_is(struct slice a, const char *text)
{
    return slice_equal(a, slice_str(text));
}

static inline bool slice_starts(struct slice text, struct slice start)
{
    return text.len >= start.len && slice_equal((struct slice){text.data, start.len}, start);
}

/* Without blanks and tabs at either end: HTTP's optional whitespace (RFC 9110 section 5.6.3). */
static inline struct slice slice_trim(struct slice text)
{
    while (text.len > 0 && (text.data[0] == ' ' || text.data[0] == '\t')) {
        text = slice_of(text.data + 1, text.len - 1);
    }
    while (text.len > 0 && (text.data[text.len - 1] == ' ' || text.data[text.len - 1] == '\t')) {
        text.len--;
    }
    return text;
}

#endif
