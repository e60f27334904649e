/*
 * patch: a small RFC 6902 applier for tests, on a tree of its own so that it shares nothing with
 * the code it checks but the reader.
 */
#ifndef ONCE_TESTS_PATCH_H
#define ONCE_TESTS_PATCH_H

#include "base/arena.h"
#include "base/buf.h"
#include "canon/json.h"

/* Apply the operations add, remove and replace. False when the patch does not fit the value. The
 * result is put into out as JSON text. */
bool patch_apply(const struct json_value *value, const struct json_value *patch,
    struct arena *arena, struct buf *out);

#endif
