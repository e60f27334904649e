#include "command/recovery.h"

#include "base/check.h"

static enum recovery_answer retry_allowed(const struct record *command)
{
    switch (command->status) {
    case RECORD_PENDING:
    case RECORD_DEAD: return RECOVERY_DO;
    case RECORD_UNKNOWN: return RECOVERY_UNKNOWN;
    case RECORD_WAITING: return command->attempt > 0 ? RECOVERY_EFFECTS : RECOVERY_WRONG_STATUS;
    case RECORD_IN_PROGRESS:
    case RECORD_RELEASED:
    case RECORD_EXECUTED:
    case RECORD_FAILED:
    case RECORD_REJECTED:
    case RECORD_COMPENSATING:
    case RECORD_COMPENSATED: break;
    }
    return RECOVERY_WRONG_STATUS;
}

static enum recovery_answer cancel_allowed(const struct record *command, bool is_uncertain)
{
    switch (command->status) {
    case RECORD_PENDING:
    case RECORD_DEAD: return is_uncertain ? RECOVERY_UNKNOWN : RECOVERY_DO; /* P5 */
    case RECORD_WAITING: return command->attempt > 0 ? RECOVERY_WRONG_STATUS : RECOVERY_DO;
    case RECORD_REJECTED: return RECOVERY_AGAIN;
    case RECORD_UNKNOWN: return RECOVERY_UNKNOWN;
    case RECORD_IN_PROGRESS:
    case RECORD_RELEASED:
    case RECORD_EXECUTED:
    case RECORD_FAILED:
    case RECORD_COMPENSATING:
    case RECORD_COMPENSATED: break;
    }
    return RECOVERY_WRONG_STATUS;
}

static enum recovery_answer compensate_allowed(const struct record *command)
{
    switch (command->status) {
    case RECORD_EXECUTED:
    case RECORD_FAILED: return RECOVERY_DO;
    case RECORD_WAITING: return command->attempt > 0 ? RECOVERY_EFFECTS : RECOVERY_WRONG_STATUS;
    case RECORD_UNKNOWN: return record_sealed(command) ? RECOVERY_EFFECTS : RECOVERY_UNKNOWN;
    case RECORD_COMPENSATING:
    case RECORD_COMPENSATED: return RECOVERY_AGAIN;
    case RECORD_PENDING:
    case RECORD_DEAD:
    case RECORD_IN_PROGRESS:
    case RECORD_RELEASED:
    case RECORD_REJECTED: break;
    }
    return RECOVERY_WRONG_STATUS;
}

bool recovery_is_blocked(const struct record *command)
{
    return command->kind == RECORD_COMMAND && command->status == RECORD_WAITING &&
           command->attempt > 0 && command->due_ms == 0;
}

enum recovery_answer recovery_allows(
    enum recovery_action action, const struct record *command, bool is_uncertain)
{
    ASSERT(command->kind == RECORD_COMMAND);
    switch (action) {
    case RECOVERY_RETRY: return retry_allowed(command);
    case RECOVERY_CANCEL: return cancel_allowed(command, is_uncertain);
    case RECOVERY_COMPENSATE: break;
    }
    return compensate_allowed(command);
}

enum undo_step recovery_undo(const struct record *effect, bool is_uncertain)
{
    ASSERT(effect->kind == RECORD_EFFECT);
    switch (effect->status) {
    case RECORD_EXECUTED: return UNDO_START;
    case RECORD_UNKNOWN: return record_sealed(effect) ? UNDO_STUCK : UNDO_UNSURE;
    case RECORD_PENDING: return is_uncertain ? UNDO_WAIT : UNDO_CANCEL; /* P5 */
    case RECORD_WAITING:
    case RECORD_DEAD: return UNDO_CANCEL;
    case RECORD_IN_PROGRESS:
    case RECORD_COMPENSATING: return UNDO_WAIT;
    case RECORD_RELEASED:
    case RECORD_FAILED:
    case RECORD_REJECTED:
    case RECORD_COMPENSATED: break;
    }
    return UNDO_PASS;
}
