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
#include <stddef.h>

#include "base/status.h"

enum { ERR_TEXT_BYTES_MAX = 512 }; /* two paths and a sentence; longer texts are cut */

/* Which limit was reached, for callers that answer by it. Each has the name of its setting. */
enum err_limit {
    ERR_LIMIT_NONE, /* the failure is not about a limit, or about one without a name here */
    ERR_LIMIT_QUEUE_REQUESTS, /* too many requests wait for the engine: the process is overloaded */
    ERR_LIMIT_KEYS,           /* too many live keys */
    ERR_LIMIT_COMMIT_BYTES,   /* one commit would be too large */
    ERR_LIMIT_SPOOL_BYTES,    /* too many bytes of bodies at once */
    ERR_LIMIT_BODY_BYTES,     /* one body is too large */
    ERR_LIMIT_LISTENERS,      /* too many addresses to listen on */
};

struct err {
    enum status status;            /* the class, OK while nothing failed */
    enum err_limit limit;          /* of E_LIMIT, by err_limit */
    unsigned short cause;          /* where the cause begins in the text, after the names of places
                                      on this machine: for callers that must not see those */
    char text[ERR_TEXT_BYTES_MAX]; /* lower case, no full stop, the failure first */
    char hint[ERR_TEXT_BYTES_MAX]; /* what to do about it; may be empty */
};

/* Record a failure and return its status, so that "return err_set(…)" is one line. */
enum status err_set(struct err *err, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for a limit that was reached: E_LIMIT. The text names the limit to people. */
enum status err_limit(struct err *err, enum err_limit limit, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The name of its setting, such as "keys_max"; "" for ERR_LIMIT_NONE. */
const char *err_limit_name(enum err_limit limit);

/* The same, followed by the system's text for errno, which is its cause: "…: No space left on
 * device". */
enum status err_errno(struct err *err, enum status status, int errno_value, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Prefixes the text with "prefix: ", as the failure travels up. */
void err_prefix(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Sets the hint: what the user can do about it. */
void err_hint(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Clears a failure that was handled. Also the quick way to make an err ready: what is after the
 * first byte of an empty text is never read, and clearing a kilobyte of it takes time. */
static inline void err_clear(struct err *err)
{
    if (err != NULL) {
        err->status = OK;
        err->limit = ERR_LIMIT_NONE;
        err->cause = 0;
        err->text[0] = '\0';
        err->hint[0] = '\0';
    }
}

#endif
