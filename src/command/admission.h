/*
 * admission: from an envelope to the call that submits its command to the engine. There is no other
 * way to submit one: the API and the inbox both use this.
 *
 * Ownership: everything made is in the arena.
 * Threads:   any.
 */
#ifndef ONCE_COMMAND_ADMISSION_H
#define ONCE_COMMAND_ADMISSION_H

#include "command/envelope.h"
#include "engine/engine.h"

struct commands;
struct registry;

struct command_admission {
    /* Set by the caller. */
    const struct commands *commands;
    const struct registry *registry; /* held */
    struct envelope *envelope;       /* where it is read to */
    struct slice tenant;
    bool is_tenant_verified; /* as in struct envelope_rules */
    bool is_later;           /* the dispatcher starts it, and nobody waits for the answer */
    struct slice request_id;
    struct slice traceparent;
    struct digest submitter; /* as in detail.h */
    char *token;             /* of COMMAND_TOKEN_TEXT_BYTES, for a confirmation's */
    struct arena *arena;
    struct mem *mem; /* that arena */

    /* Set by admission_read. */
    bool is_read; /* I0 */
};

/* Read and check the envelope. Statuses as envelope_read's. */
enum status admission_read(struct command_admission *admission, const struct json_value *body,
    struct envelope_fault *fault) MUST_CHECK;
/* The registry's own limit on each tenant's submissions; duplicates count too. False: it may be
 * submitted after *ret_after_ms. */
bool admission_is_within_rate(
    const struct command_admission *admission, int64_t *ret_after_ms) MUST_CHECK;
/* Make the request: a begin, or an enqueue if something comes before the start. The call is zeroed
 * except for its arena and actor. E_INVALID names the member. E_NOMEM, and errors of the vault. */
enum status admission_make(const struct command_admission *admission, struct engine_call *engine,
    struct err *err) MUST_CHECK;
/* Whether admission_make would refuse the envelope; nothing is made, and commands may be NULL. For
 * a command without a confirmation. E_INVALID names the member. E_NOMEM. */
enum status admission_check(const struct command_admission *admission, struct err *err) MUST_CHECK;

#endif
