/*
 * rand: random bytes from the kernel.
 *
 * Promises:  RA1 no byte is given out twice: not to two callers, two threads, or a process and its
 *            child. A copy of a virtual machine repeats what rand_names has in stock, so nothing
 *            that protects a secret or names an operation may come from there.
 * Threads:   any.
 */
#ifndef ONCE_BASE_RAND_H
#define ONCE_BASE_RAND_H

#include <stddef.h>

#include "base/err.h"

/* For keys, nonces, tokens and whatever strangers must not guess. E_UNAVAILABLE if the kernel
 * provides no random bytes. */
enum status rand_bytes(void *ret_bytes, size_t size, struct err *err) MUST_CHECK;

/* For names of requests and traces, and for jitter: from bytes that the thread has in stock,
 * because a system call takes longer than everything else that these need. E_UNAVAILABLE as
 * above. */
enum status rand_names(void *ret_bytes, size_t size, struct err *err) MUST_CHECK;

#endif
