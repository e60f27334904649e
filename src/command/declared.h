/*
 * declared: the effects that the registry declares for a command, which Once makes itself in the
 * commit of the handler's outcome (docs/commands.md). Their templates are filled with values of
 * the envelope and of the handler's answer.
 *
 * Promises:  an envelope that lacks a value is refused before the handler is called. A value of the
 *            handler's answer can be absent only afterwards; then the command is blocked.
 * Does not:  submit anything, or know which effects are required.
 */
#ifndef ONCE_COMMAND_DECLARED_H
#define ONCE_COMMAND_DECLARED_H

#include "base/arena.h"
#include "base/buf.h"
#include "canon/json.h"
#include "config/command.h"

/* Where the values come from. */
struct declared_values {
    const struct json_value *envelope;
    struct slice text;                /* that the envelope was read from */
    struct slice command_id;          /* as documents show it */
    struct slice key;                 /* the command's idempotency key */
    const struct json_value *outcome; /* the handler's answer; NULL: it is not JSON */
};

/* Whether an envelope has all values that the declared effects of its command name. E_INVALID names
 * the one that it lacks. E_NOMEM. */
enum status declared_check(const struct config_command *command, const struct json_value *envelope,
    struct arena *arena, struct err *err) MUST_CHECK;

/* Append the Effect Envelope (CCO-1) of a command's nth declared effect. trace: JSON; empty: none.
 * E_INVALID names a value that is absent. E_NOMEM. */
enum status declared_put(const struct config_command *command, size_t number,
    const struct declared_values *values, struct slice trace, struct buf *out,
    struct err *err) MUST_CHECK;

#endif
