/*
 * kind: the kinds of record, and for each its statuses, transitions and requests.
 *
 *   kind       made by                              id      starts as
 *   operation  fences, gateway, `once run`          op_     in_progress
 *   command    an intent with a registry entry      cmd_    in_progress, pending or waiting
 *   effect     one call to the outside              eff_    pending; waiting if a function of
 *                                                           the store made it: until a process
 *                                                           seals its payload
 *   delivery   one inbound event                    dlv_    in_progress, pending or waiting
 *   source     a seal that named its source         (none)  executed
 *
 * All but the last share one life cycle. kind_may_become has each arrow once, and only decide()
 * performs them:
 *
 *   (absent) --begin--> in_progress --seal--> executed | failed | rejected
 *   (absent) --enqueue--> pending | waiting
 *   pending --claim--> in_progress --retry--> pending
 *   pending | in_progress --give up--> dead --take up--> pending
 *   in_progress --wait--> waiting --wake--> pending | in_progress | executed | failed | rejected |
 *                                           waiting (for less)
 *   in_progress --lease over, holder gone, unknown--> unknown
 *   unknown --resolve--> executed | failed | released (an operation) | pending (all others)
 *   unknown --by its holder, late--> whatever in_progress may become
 *   in_progress --renew--> in_progress      in_progress | unknown --takeover--> in_progress
 *   failed | rejected --begin or enqueue again, if the policy allows it--> as from (absent)
 *   pending --take up, to be sooner--> pending
 *   in_progress --release--> released --begin--> in_progress      (an operation)
 *   pending | waiting | dead --cancel--> rejected
 *   executed | failed --compensate--> compensating --> compensated | unknown --> compensated
 *   released, and everything settled --window over--> (absent)
 *
 * Promises:  tables and pure functions, no state.
 */
#ifndef ONCE_CORE_KIND_H
#define ONCE_CORE_KIND_H

#include "core/record.h"

/* Evidence has the names, not the values. */
enum request_kind {
    REQUEST_BEGIN,
    REQUEST_SEAL,
    REQUEST_RELEASE,
    REQUEST_UNKNOWN,
    REQUEST_RENEW,
    REQUEST_RESOLVE,
    REQUEST_LEASE_OVER,          /* the janitor's */
    REQUEST_HOLDER_GONE,         /* the janitor's: the process that held the grant has ended */
    REQUEST_ENQUEUE,             /* work that Once performs itself, now or later */
    REQUEST_CLAIM,               /* start work that is due */
    REQUEST_RETRY,               /* the holder's: nothing was done; try again later */
    REQUEST_GIVE_UP,             /* attempts or deadline are used up */
    REQUEST_WAIT,                /* the holder's: something else must happen first */
    REQUEST_WAKE,                /* it has happened */
    REQUEST_CANCEL,              /* it must not be done at all */
    REQUEST_TAKE_UP,             /* a person's: retry work that was given up, or retry sooner */
    REQUEST_POSTPONE,            /* the reconciler's: no answer from the provider; ask later */
    REQUEST_COMPENSATE,          /* start to undo it */
    REQUEST_COMPENSATION_SETTLE, /* it was undone, or nobody knows */
};

enum {
    REQUEST_KIND_END = REQUEST_COMPENSATION_SETTLE + 1,
    KIND_ID_TEXT_BYTES = 41, /* a prefix of at most 4, 36 characters of UUID, terminator */
};

/* "operation", "command", …; "unnamed" if it is not a kind. */
const char *kind_name(enum record_kind kind);
/* It is a kind. */
bool kind_known(enum record_kind kind);
/* Its records have their own ids. A source's record has the id of its operation. */
bool kind_has_id(enum record_kind kind);
/* Records of the kind can have this status. */
bool kind_has_status(enum record_kind kind, enum record_status status);
/* The public name of the status (docs/formats/evidence.md, lifecycle_state); NULL if the kind does
 * not have the status. A waiting command awaits a confirmation before its first attempt, and its
 * effects later. A pending command is "received"; its detail says whether it was confirmed. */
const char *kind_word(enum record_kind kind, enum record_status status, uint32_t attempt);
/* An unknown effect is publicly still "dispatched"; this function distinguishes it. */
bool kind_uncertain(enum record_kind kind, enum record_status status);
/* Records of the kind accept the request. */
bool kind_takes(enum record_kind kind, enum request_kind request);
/* The diagram above has this arrow and the kind has both statuses. from is 0 for absent. */
bool kind_may_become(enum record_kind kind, enum record_status from, enum record_status to);
/* A record with this status can be compensated. A failed effect cannot: it left nothing to undo. */
bool kind_may_compensate(enum record_kind kind, enum record_status status);

/* The id as text: "op_", "cmd_", "eff_" or "dlv_" and the UUID. Returns its argument. */
char *kind_id_put(char ret_text[KIND_ID_TEXT_BYTES], enum record_kind kind, const struct op_id *id);
/* The kind follows from the prefix. */
bool kind_id_read(struct slice text, enum record_kind *ret_kind, struct op_id *ret_id);

/* "begin", "seal", … as evidence spells them. */
const char *request_kind_name(enum request_kind kind);
bool request_kind_read(struct slice text, enum request_kind *ret_kind);

#endif
