/*
 * effect_names: the two names at the start of an effect's detail, for its evidence (CCO-8).
 *
 * The detail is one JSON object that belongs to the module of envelopes (envelope/effect.h). It
 * begins with the members "effect_id" (the caller's name for the effect) and "command_id", in this
 * order and without spaces; either may be absent. Every entry about an effect shows them, so they
 * are found without reading the rest.
 *
 * Promises:  never reads past the detail; in bytes of any other form both names are absent.
 * Ownership: the names point into the detail.
 */
#ifndef ONCE_CORE_EFFECT_NAMES_H
#define ONCE_CORE_EFFECT_NAMES_H

#include "base/slice.h"

/* JSON strings with their quotes, in the form of RFC 8785; empty: absent. */
struct effect_names {
    struct slice effect_id;
    struct slice command_id;
};

struct effect_names effect_names_of(struct slice detail);

#endif
