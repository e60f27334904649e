/*
 * version: the version of a source as a sender writes it, in a form whose natural order
 * (core/source.h) is the order of its values.
 *
 *   a number     1700000000, 12.5           digits; a fraction gets nine of them
 *   a time       2026-11-16T21:00:00+02:00  RFC 3339, in UTC, with nine digits of a second
 *   a text       v1.2.10                    as it is
 *
 * Promises:  two values of one of these forms compare as the values do. Two forms do not mix: a
 *            sender has one.
 */
#ifndef ONCE_INBOX_VERSION_H
#define ONCE_INBOX_VERSION_H

#include "base/slice.h"

enum { VERSION_TEXT_BYTES = 256 }; /* and its terminator */

/* is_number: it was a JSON number. 0: it has no such form, as it is longer than a name may be, has
 * control characters, is negative or has an exponent. Else its length. */
size_t version_put(char ret_text[VERSION_TEXT_BYTES], struct slice text, bool is_number);

#endif
