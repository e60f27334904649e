/*
 * key: the keys that Once derives from an envelope.
 *
 * Promises:  a key is SHA-256 of the canonical form of one object made of the named members, never
 *            of joined strings, so that two meanings never share one (P13). A lossy number in a
 *            hashed member is refused. Ephemeral members never enter. An unknown member is refused:
 *            it might be what makes two operations different.
 *
 * command  {tenant_id, actor_id, intent {entity, action, target}, args, command_kind?}
 *          actor_id is effective_actor_id if that is given; one of the two is required. Absent
 *          args equal {}. target may be any value, including null, but is required. command_kind
 *          is left out if absent. Ignored: command_id, source, trace, created_at, confirmation,
 *          idempotency_key, extensions, x_*.
 * effect   {tenant_id, command_id, effect_type, target?, ordinal}
 *          An absent ordinal is 0. target is left out when absent ("if known", CCO-1). Ignored:
 *          effect_id, idempotency_key, payload, trace, attempt, created_at, policy_refs,
 *          extensions, x_*.
 * source   {tenant_id, and at least one of source_type, source_id, revision, index_hash, action}
 *          each a string or a number; nothing is ignored.
 */
#ifndef ONCE_CANON_KEY_H
#define ONCE_CANON_KEY_H

#include "base/buf.h"
#include "base/err.h"
#include "canon/digest.h"
#include "canon/json.h"

enum key_kind { KEY_COMMAND, KEY_EFFECT, KEY_SOURCE };

/*
 * Put the bytes that are hashed into out (cleared first) and their digest into *ret. E_INVALID when
 * the envelope does not have that form, with the JSON Pointer of what is wrong; E_LIMIT or E_NOMEM
 * when out cannot take the bytes.
 */
enum status key_derive(enum key_kind kind, const struct json_value *envelope, struct buf *out,
    struct digest *ret, struct err *err) MUST_CHECK;

#endif
