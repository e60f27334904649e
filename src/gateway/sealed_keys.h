/*
 * sealed_keys: keys whose operation this loop has seen sealed, with the form of their request's
 * body. A request with one is most likely a replay, which needs less work than a first request: its
 * body is not read again, and the request is not put into the form that is kept with a grant.
 *
 * Promises:  bounded memory: SEALED_KEYS_SLOTS slots of a fixed size, without the request's own
 *            bytes. A newer key takes the slot of an older one.
 * Does not:  decide anything. Keys expire, are released and are erased without being forgotten
 *            here, so the engine is asked as always, and whatever it does not replay is prepared
 *            whole (engine_call.replays_only). A form is only used for the same bytes
 *            (request_form_parts.known).
 * Threads:   each loop has its own.
 */
#ifndef ONCE_GATEWAY_SEALED_KEYS_H
#define ONCE_GATEWAY_SEALED_KEYS_H

#include "gateway/request_form.h"

enum { SEALED_KEYS_SLOTS = 4096 }; /* 116 bytes each; a retry comes within seconds */

struct sealed_keys;

/* NULL: out of memory. */
struct sealed_keys *sealed_keys_new(const struct mem *mem) MUST_CHECK;
void sealed_keys_free(struct sealed_keys *keys);

/* The operation with this key is sealed. config is the number of the configuration that the form
 * was read under: it says which members of a body are ignored. */
void sealed_keys_learn(struct sealed_keys *keys, const struct digest *key_hash, uint64_t config,
    const struct request_form_body *body);
/* NULL: it is not known under this configuration. Valid until the next sealed_keys_learn. */
const struct request_form_body *sealed_keys_find(
    const struct sealed_keys *keys, const struct digest *key_hash, uint64_t config);
/* The engine did not replay it. */
void sealed_keys_forget(struct sealed_keys *keys, const struct digest *key_hash);

#endif
