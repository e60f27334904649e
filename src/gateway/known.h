/*
 * known: requests whose operation this loop has seen sealed, with the form of their bodies. A
 * duplicate of one is most likely a replay, which needs less work than a first request: its body is
 * not read again, and the request is not put into the form that is kept with a grant.
 *
 * Promises:  bounded memory: KNOWN_SLOTS slots of a fixed size, without the request's own bytes. A
 *            newer key takes the slot of an older one.
 * Does not:  decide anything. Keys expire, are released and are erased without being forgotten
 *            here, so the engine is asked as always, and whatever it does not replay is prepared
 *            whole (engine_call.replays_only). A form is only used for the same bytes
 *            (request_form_parts.known).
 * Threads:   each loop has its own.
 */
#ifndef ONCE_GATEWAY_KNOWN_H
#define ONCE_GATEWAY_KNOWN_H

#include "gateway/request_form.h"

enum { KNOWN_SLOTS = 4096 }; /* 116 bytes each; a retry comes seconds after its first request */

struct known;

/* NULL: out of memory. */
struct known *known_new(const struct mem *mem) MUST_CHECK;
void known_free(struct known *known);

/* The operation with this key is sealed. config is the number of the configuration that the form
 * was read under: it says which members of a body are ignored. */
void known_learn(struct known *known, const struct digest *key_hash, uint64_t config,
    const struct request_form_body *body);
/* NULL: it is not known under this configuration. Valid until the next known_learn. */
const struct request_form_body *known_find(
    const struct known *known, const struct digest *key_hash, uint64_t config);
/* The engine did not replay it. */
void known_forget(struct known *known, const struct digest *key_hash);

#endif
