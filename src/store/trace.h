/*
 * trace: a wrapper around a store that reports each call in one line.
 *
 * "commit 3 changes -> ok", "prepare 2, 1 found, 0 bodies, 1 fences -> ok". Contains no keys or
 * bodies.
 *
 * Ownership: owns the wrapped store after trace_new; closing the wrapper closes both.
 * Threads:   line is called by whichever thread made the call.
 */
#ifndef ONCE_STORE_TRACE_H
#define ONCE_STORE_TRACE_H

#include "store/store.h"

typedef void (*trace_line)(void *context, const char *line);

/* On failure the caller still owns the wrapped store. */
enum status trace_new(struct store *wrapped, const struct mem *mem, trace_line line, void *context,
    struct store **ret_store, struct err *err) MUST_CHECK;

#endif
