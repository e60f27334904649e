/*
 * brief: once_open for a command that makes a few changes and closes the store again. Part of the
 * program, not of libonce.
 *
 * A journal whose URL names no way of writing is written through the page cache, without timing the
 * ways first: that takes up to 20 ms, and more than the few batches do. Every way keeps the same
 * promises (store/journal/write_ways.h, WY1).
 */
#ifndef ONCE_LIB_BRIEF_H
#define ONCE_LIB_BRIEF_H

#include "base/status.h"
#include "once/once.h"

int brief_open(const struct once_options *options, struct once **ret_once,
    struct once_error *error) MUST_CHECK;

#endif
