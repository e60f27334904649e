/*
 * number: between the text of a JSON number, its double, and its ECMAScript text.
 *
 * Promises:  text to double is exactly rounded (to nearest, ties to even); double to text is the
 *            shortest that reads back, the closest of those, in the form of ECMAScript's
 *            Number::toString, as RFC 8785 section 3.2.2.3 asks. The locale has no influence.
 * Does not:  check grammar: every text must have passed the reader (canon/json.h).
 */
#ifndef ONCE_CANON_NUMBER_H
#define ONCE_CANON_NUMBER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/slice.h"

/* "-1.2345678901234567e-308" is 24 bytes, "-0.0000012345678901234567" 25; rounded up. */
enum { NUMBER_TEXT_BYTES_MAX = 32 };

/* False when the value is beyond the largest double; *ret is then untouched. */
bool number_to_double(struct slice text, double *ret);
/* The value must be finite. Writes no terminator; returns the bytes written. Minus zero is "0". */
size_t number_put_double(char ret_text[NUMBER_TEXT_BYTES_MAX], double value);
/*
 * The canonical text of a number's text, without going through a double where digits alone decide.
 * *ret_lossy says whether its decimal value differs from what was written: 9007199254740993 and
 * 1e-400 are lossy, 4.50 and 0.1 are not. Returns 0 if the value is above the largest double.
 */
size_t number_put_canonical(
    char ret_text[NUMBER_TEXT_BYTES_MAX], struct slice text, bool *ret_lossy);
/* Whether both texts name exactly the same decimal value: 1.0 and 1 do, 2^53 and 2^53 + 1 do
 * not. */
bool number_equal(struct slice a, struct slice b);

#endif
