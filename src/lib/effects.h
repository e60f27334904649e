/*
 * effects: the effects of a seal (once_seal_effects), from their JSON to calls that are in one
 * commit with it.
 *
 * Promises:  the checks and answers are those of the API's seal (envelope/seal_effects.h). What the
 *            answer needs is allocated before the engine gets the calls.
 * Ownership: the effects of a call own a copy of their text until lib_effects_free.
 */
#ifndef ONCE_LIB_EFFECTS_H
#define ONCE_LIB_EFFECTS_H

#include "envelope/seal_effects.h"
#include "lib/call.h"

struct lib_effects {
    struct seal_effects list;
    struct arena arena; /* the text, the calls and their answers */
    struct buf shown;   /* the array of the answer; its room is reserved */
};

/* Reads the effects of the seal. E_INVALID: there are no types, or an effect is invalid. E_NOMEM,
 * E_UNAVAILABLE. */
enum status lib_effects_new(struct once *once, const struct once_seal *seal,
    const struct once_bytes *json, struct lib_effects **ret_effects, struct err *err) MUST_CHECK;
/* NULL is fine. */
void lib_effects_free(struct once *once, struct lib_effects *effects);
/* The array of the answer, once the seal and its effects have happened. It cannot fail: without
 * memory for the caller's name of an effect, the effect has Once's own id. */
struct slice lib_effects_document(struct lib_effects *effects, int64_t sealed_ms);
/* The effect that prevented the seal, counted from 1; 0: none did. */
size_t lib_effects_refused(const struct lib_effects *effects);

#endif
