/*
 * effect_names: the two names at the start of an effect's detail, for its evidence (CCO-8).
 *
 * The detail is the effect module's own (effect/effect.h), one JSON object. It begins with the
 * members "effect_id" (the caller's name for the effect) and "command_id", those that there are,
 * in this order and without spaces. Every entry about an effect shows them, so they are found
 * without reading the rest.
 *
 * Promises:  never reads past the detail; bytes that are not such a detail have no names.
 * Ownership: what it finds is in the detail.
 */
#ifndef ONCE_CORE_EFFECT_NAMES_H
#define ONCE_CORE_EFFECT_NAMES_H

#include "base/slice.h"

/* JSON strings with their quotes, as RFC 8785 writes them; empty: absent. */
struct effect_names {
    struct slice effect_id;
    struct slice command_id;
};

struct effect_names effect_names_of(struct slice detail);

#endif
