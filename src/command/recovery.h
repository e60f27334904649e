/*
 * recovery: which of an operator's actions a command's status allows, and what its compensation
 * does with each of its effects. Pure: tables and functions without clock or I/O.
 *
 *   status of the command          retry         cancel        compensate
 *   received, confirmed            do            do            wrong_status
 *     and uncertain                do            unknown       wrong_status
 *   awaiting_confirmation          wrong_status  do            wrong_status
 *   awaiting_effects, or blocked   its effects   wrong_status  do
 *     by one that failed
 *   started                        wrong_status  wrong_status  wrong_status
 *   blocked: nobody knows          unknown (*)   unknown       unknown
 *   blocked: given up              do            do            wrong_status
 *   blocked: partly compensated    unknown       unknown       go on
 *   executed, failed               wrong_status  wrong_status  do
 *   rejected                       wrong_status  again         wrong_status
 *   compensating, compensated      wrong_status  wrong_status  again
 *
 *   (*) with on_unknown: takeover the handler is called again, and the command stays uncertain
 *
 *   status of the effect           what its command's compensation does
 *   acknowledged                   start: the effect that undoes it is made
 *   being compensated              wait
 *   its compensation failed        stuck: the command is blocked
 *   compensated, failed            pass
 *   pending, dead_letter           cancel: it has not happened, and must not any more
 *   pending and uncertain          wait: it is being sent again
 *   dispatched                     wait
 *   uncertain                      unsure: wait until somebody has settled it
 */
#ifndef ONCE_COMMAND_RECOVERY_H
#define ONCE_COMMAND_RECOVERY_H

#include "core/record.h"

enum recovery_action { RECOVERY_RETRY, RECOVERY_CANCEL, RECOVERY_COMPENSATE };
enum { RECOVERIES = RECOVERY_COMPENSATE + 1 };

enum recovery_answer {
    RECOVERY_WRONG_STATUS, /* the status does not allow it */
    RECOVERY_UNKNOWN,      /* nobody knows whether the handler did it: resolve it first */
    RECOVERY_DO,           /* the engine decides it */
    RECOVERY_AGAIN,        /* it is so already: the same answer, and nothing changes */
    RECOVERY_EFFECTS,      /* it is a matter of the command's effects */
};

/* A required effect failed, and on_effect_failure: block leaves the command to a person
 * (effects.h). */
bool recovery_is_blocked(const struct record *command);

/* is_uncertain: as the command's detail says (P5). */
enum recovery_answer recovery_allows(
    enum recovery_action action, const struct record *command, bool is_uncertain);

enum undo_step { UNDO_PASS, UNDO_CANCEL, UNDO_WAIT, UNDO_UNSURE, UNDO_START, UNDO_STUCK };

/* is_uncertain: as the effect's detail says. */
enum undo_step recovery_undo(const struct record *effect, bool is_uncertain);

#endif
