/*
 * version: turns a sender's version of a source into a form whose natural order (core/source.h) is
 * the order of the versions.
 *
 *   a number     1700000000, 12.5           digits; a fraction gets nine of them
 *   a time       2026-11-16T21:00:00+02:00  RFC 3339, in UTC, with nine digits of a second
 *   a text       v1.2.10                    as it is
 *
 * Promises:  two versions of the same form compare as their values do. Forms must not be mixed: a
 *            sender uses one.
 */
#ifndef ONCE_INBOX_VERSION_H
#define ONCE_INBOX_VERSION_H

#include "base/slice.h"

enum { VERSION_TEXT_BYTES = 256 }; /* with its terminator */

/* Returns the length. 0: the text has no such form, because it is longer than a name may be, has
 * control characters, is negative or has an exponent. is_number: it was a JSON number. */
size_t version_put(char ret_text[VERSION_TEXT_BYTES], struct slice text, bool is_number);

#endif
