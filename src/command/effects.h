/*
 * effects: the effects of a command (CCO-10). Its handler returns them in `effects`; they enter the
 * outbox in the commit that keeps the handler's outcome, or nothing does. Required ones are waited
 * for: the command is awaiting_effects, and executed when the last of them is acknowledged.
 *
 * Crash:     before the commit: the handler ran, nobody knows (blocked). After it: the command
 *            waits, and its due brings it here again until its effects are settled.
 * Does not:  put the command's end into the commit of the last acknowledgement: it follows that at
 *            once, by a wake that names the version that was read. After a crash in between, or
 *            past COMMAND_LOOKS_OPEN_MAX, it follows within seconds.
 */
#ifndef ONCE_COMMAND_EFFECTS_H
#define ONCE_COMMAND_EFFECTS_H

#include "command/impl.h"

enum {
    COMMAND_LOOK_MS = 1000,       /* between two looks at the effects that a command waits for */
    COMMAND_LOOKS_MAX = 64,       /* commands that are looked at, at a time, because they are due */
    COMMAND_LOOKS_OPEN_MAX = 512, /* that are being looked at because an effect is settled */
    COMMAND_KEPT_BYTES_MAX = 1024 /* of an outcome that waits; a longer one is cut to its summary */
};

/* Add the effects of an answer to the calls that settle its command; the first of them becomes a
 * wait where one is required. An answer without effects changes nothing. E_INVALID: the handler may
 * not return these, and err says why. E_NOMEM. */
enum status command_effects_take(struct dispatch_call *call, const struct config_command *command,
    struct engine_call *first, struct err *err) MUST_CHECK;
/* The group is durable: its effects may be sent. */
void command_effects_settled(struct dispatch_call *call);

/* See whether the effects that a command waits for are settled, and end it if so. False: not now.
 * Any thread. */
bool command_effects_look(struct commands *commands, const struct op_id *id);

#endif
