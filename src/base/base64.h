/*
 * base64: bytes as text (RFC 4648), in the two forms that our formats use.
 *
 * Promises:  one spelling for each sequence of bytes. The reader refuses characters of the other
 *            alphabet, missing or excess padding, and bits after the last byte that are
 *            not zero (section 3.5): otherwise one signature would have several spellings.
 */
#ifndef ONCE_BASE_BASE64_H
#define ONCE_BASE_BASE64_H

#include <stdbool.h>

#include "base/slice.h"

enum base64 {
    BASE64_PADDED, /* section 4: "+" and "/", padded with "=" */
    BASE64_URL,    /* section 5: "-" and "_", without padding */
};

/* Characters of size bytes, padded; and the most bytes that length characters can stand for. */
#define BASE64_TEXT_BYTES(size)  (((size) + 2) / 3 * 4)
#define BASE64_BYTES_MAX(length) ((length) / 4 * 3 + 2)

/* Write size bytes without a terminator. Returns the place after the last character. */
char *base64_put(char *ret_text, const void *bytes, size_t size, enum base64 form);
/* Read the whole text into BASE64_BYTES_MAX(text.len) bytes. False: it is not of this form, and
 * the bytes are undefined. */
bool base64_read(struct slice text, enum base64 form, void *ret_bytes, size_t *ret_size);

#endif
