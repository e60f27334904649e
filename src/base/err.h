/*
 * err: the human text of a failure, written by the function that knows the cause.
 *
 * Promises:  the text is written only on failure, is always terminated, and never grows past its
 *            fixed size (a longer one is cut). Callers add context by prefixing, never by logging.
 * Ownership: a plain value; the caller's memory; NULL is accepted everywhere.
 */
#ifndef ONCE_BASE_ERR_H
#define ONCE_BASE_ERR_H

#include <stdarg.h>

#include "base/status.h"

enum { ERR_TEXT_BYTES_MAX = 512 }; /* two paths and a sentence; longer texts are cut */

struct err {
    enum status status;            /* the class, OK while nothing failed */
    char text[ERR_TEXT_BYTES_MAX]; /* lower case, no full stop, the fault first */
    char hint[ERR_TEXT_BYTES_MAX]; /* what to do about it; empty when there is nothing */
};

/* Record a failure and return its status, so that "return err_set(…)" is one line. */
enum status err_set(struct err *err, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same with the system's own words for errno appended: "…: No space left on device". */
enum status err_errno(struct err *err, enum status status, int errno_value, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Put "prefix: " in front of the text, as the failure travels up. */
void err_prefix(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Say what the user can do about it. */
void err_hint(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Forget a failure that was dealt with. */
void err_clear(struct err *err);

#endif
