/*
 * rand: random bytes from the kernel, for keys and identifiers that strangers must not guess.
 */
#ifndef ONCE_BASE_RAND_H
#define ONCE_BASE_RAND_H

#include <stddef.h>

#include "base/err.h"

/* E_UNAVAILABLE if the kernel provides no random bytes. */
enum status rand_bytes(void *ret_bytes, size_t size, struct err *err) MUST_CHECK;

#endif
