/*
 * seal_effects: the effects of a seal, in its commit: the transactional outbox for programs that
 * fence their work. `effects` of POST /v1/fences/{id}/seal and of a seal in a batch, and
 * once_seal_effects of libonce are read and answered here, so that both have the same checks and
 * the same answers.
 *
 * Promises:  each effect is an enqueue that depends on the seal before it in its group: all of them
 *            take effect, or none (engine_submit_all). An invalid effect is refused by its place in
 *            the list before anything happens.
 * Ownership: the calls are in the sender's arena.
 */
#ifndef ONCE_ENVELOPE_SEAL_EFFECTS_H
#define ONCE_ENVELOPE_SEAL_EFFECTS_H

#include "canon/jsonw.h"
#include "envelope/envelope.h"

enum { SEAL_EFFECTS_MAX = 64 }; /* seal_effects_max, of one seal: far more than a handler returns */

struct seal_effects {
    struct engine_call *calls[SEAL_EFFECTS_MAX];
    size_t count;
};

/* Read the list; NULL: there are no effects. An effect that names no command_id gets the sender's.
 * Statuses as for effect_envelope_read. */
enum status seal_effects_read(const struct effect_sender *sender, const struct json_value *list,
    struct seal_effects *ret_effects, struct member_fault *fault) MUST_CHECK;

/* An upper bound of the bytes that seal_effects_put appends. */
size_t seal_effects_bytes_max(const struct seal_effects *effects);
/* Write the effects of a seal that happened at that time as an array, each with its id and its URL.
 * An effect that the seal made is pending, also when the same seal comes again: it gets the same
 * answer. */
void seal_effects_put(
    struct jsonw *json, const char *name, const struct seal_effects *effects, int64_t sealed_ms);
/* The effect that prevented the group; NULL: it was none of them. */
const struct engine_call *seal_effects_refused(const struct seal_effects *effects);

#endif
