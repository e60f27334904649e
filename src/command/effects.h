/*
 * effects: the effects of a command (CCO-10). Its handler returns them in `effects`, or the
 * registry declares them (declared.h); they enter the outbox in the commit that keeps the handler's
 * outcome: both happen, or neither. The command waits for the required ones: it is
 * awaiting_effects. Each acknowledgement takes its effect out of the command's list in the same
 * commit, and the last one executes the command: the version of the command decides between
 * acknowledgements that race, in any number of processes.
 *
 *     awaiting_effects   waiting, with a due: its effects are checked whenever it is due
 *     blocked            waiting, without a due: a required effect failed, it is the first in the
 *                        command's list, and on_effect_failure: block leaves it to a person. It
 *                        waits again when that effect is retried, goes on when it is acknowledged,
 *                        and ends when a person resolves it (command_effects_end).
 *
 * Crash:     before the commit: the handler ran and the outcome is unknown (blocked). After it: the
 *            command waits, and is checked whenever it is due until its effects are settled. A
 *            blocked one is checked when a person asks for a retry.
 * Failure:   what a required effect that fails or is given up means for its command (fail, block,
 *            compensate) is in the same commit. One case is not: on_effect_failure: compensate,
 *            when no required effect was acknowledged before and there are others. Whether
 *            something happened is in their records, which have to be read; its beginning
 *            follows at once, by a wake that names the version that was read. After a crash in
 *            between, or beyond COMMAND_CHECKS_RUNNING_MAX, it follows within seconds.
 */
#ifndef ONCE_COMMAND_EFFECTS_H
#define ONCE_COMMAND_EFFECTS_H

#include "command/impl.h"

enum {
    COMMAND_CHECK_MS = 1000, /* between two checks of the effects that a command waits for */
    COMMAND_CHECKS_MAX = 64, /* commands checked at a time because they are due */
    COMMAND_CHECKS_RUNNING_MAX = 512, /* commands checked at a time because an effect is settled */
    COMMAND_KEPT_BYTES_MAX = 1024     /* of an outcome that waits; a longer one is reduced to its
                                     summary */
};

/* Add the effects of an answer, and those that the registry declares, to the calls that settle its
 * command. If one is required, the first call becomes a wait. Without effects nothing changes.
 * E_INVALID: the handler may not return these effects, or a declared one lacks a value; err says
 * why. E_NOMEM. */
enum status command_effects_take(struct dispatch_call *call, const struct config_command *command,
    struct engine_call *first, struct err *err) MUST_CHECK;
/* The group is durable: its effects may be sent. */
void command_effects_settled(struct dispatch_call *call);

/* Compose a wake of a command that continues to wait for its effects, in the call's arena: with a
 * due after delay_ms, or 0: blocked. It names the version of the record. E_NOMEM. */
enum status command_effects_wait(const struct record *record, const struct detail *detail,
    int64_t delay_ms, struct engine_call *call, struct err *err) MUST_CHECK;

/* Compose the end of a command that waits for its effects, in the call's arena. It names the
 * version of the record. E_CORRUPT, E_NOMEM, E_INVALID. */
enum status command_effects_end(const struct commands *commands, const struct record *record,
    const struct detail *detail, bool has_failed, struct engine_call *call,
    struct err *err) MUST_CHECK;

/* Check whether the effects that a command waits for are settled, and end the command if so. False:
 * not possible now. Any thread. */
bool command_effects_check(struct commands *commands, const struct op_id *id);

#endif
