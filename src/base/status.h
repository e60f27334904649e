/*
 * status: the result of a function that can fail, grouped by what the caller should do next.
 *
 * A duplicate, a conflict or an operation in progress is never a status: those are values of a
 * decision (core/decide.h). E_UNKNOWN is never folded into the others: it means that the
 * change may have happened and that the caller must check before it retries.
 */
#ifndef ONCE_BASE_STATUS_H
#define ONCE_BASE_STATUS_H

enum status {
    OK = 0,
    E_UNKNOWN = -1,     /* may have happened: check before retrying */
    E_UNAVAILABLE = -2, /* certainly did not happen: retrying is safe */
    E_STALE = -3,       /* lost a race: load again and decide again */
    E_INVALID = -4,     /* the caller's input is invalid; the text says where */
    E_LIMIT = -5,       /* a named limit was reached */
    E_CORRUPT = -6,     /* stored bytes are damaged: stop */
    E_NOMEM = -7,       /* out of memory: the request fails, the process lives */
    E_MISUSE = -8,      /* the call violates the interface's contract */
};

#define MUST_CHECK __attribute__((warn_unused_result))

/* The name of a status in lower case, such as "unavailable"; for error texts and JSON. */
const char *status_name(enum status status);

#endif
