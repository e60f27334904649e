/*
 * percent: percent-encoding of bytes in URIs (RFC 3986 section 2.1).
 */
#ifndef ONCE_BASE_PERCENT_H
#define ONCE_BASE_PERCENT_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/slice.h"

enum { PERCENT_BYTES_MAX = 3 }; /* of one encoded byte */

/* Write the byte itself where it is unreserved (section 2.3), else "%XX" with capital digits.
 * Returns the place after it. */
char *percent_put(char *to, char byte);
/* Append every byte of a text that way. */
void percent_append(struct buf *out, struct slice text);
/* Read the "%XX" at the beginning of the text. False: it does not begin with one. */
bool percent_read(struct slice text, char *ret_byte);

#endif
