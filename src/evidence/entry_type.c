/*
 * The type of an entry: one table, by event and kind of record.
 */
#include "base/check.h"
#include "evidence/entry.h"

/* What a decision did. Anything not listed is an observation. */
enum entry_event {
    EVENT_OBSERVED,
    EVENT_ENQUEUED,
    EVENT_GRANTED,
    EVENT_REFUSED, /* a conflict */
    EVENT_STALE,   /* a newer version of its source was sealed */
    EVENT_EXECUTED,
    EVENT_FAILED,
    EVENT_REJECTED,
    EVENT_RELEASED,
    EVENT_UNKNOWN,
    EVENT_RESOLVED,
    EVENT_RETRIED, /* pending again: by its holder, or by a person */
    EVENT_DEAD,
    EVENT_CANCELLED,
    EVENT_CONFIRMATION_REQUESTED,
    EVENT_CONFIRMATION_ACCEPTED,
    EVENT_CONFIRMATION_DENIED,
    EVENT_CONFIRMATION_EXPIRED,
    EVENT_COMPENSATION_STARTED,
    EVENT_COMPENSATION_EXECUTED,
    EVENT_COMPENSATION_FAILED,
    EVENT_END,
};

enum { KIND_END = RECORD_DELIVERY + 1 };

#define OBSERVATION "observation.emitted"

#define ALL(text)                                                                                  \
    {                                                                                              \
        [RECORD_OPERATION] = (text), [RECORD_COMMAND] = (text), [RECORD_EFFECT] = (text),          \
        [RECORD_DELIVERY] = (text)                                                                 \
    }
#define EACH(operation, command, effect, delivery)                                                 \
    {                                                                                              \
        [RECORD_OPERATION] = (operation), [RECORD_COMMAND] = (command),                            \
        [RECORD_EFFECT] = (effect), [RECORD_DELIVERY] = (delivery)                                 \
    }

/* NULL: the kind does not have the event. */
static const char *const types[EVENT_END][KIND_END] = {
    [EVENT_OBSERVED] = ALL(OBSERVATION),
    [EVENT_ENQUEUED] = EACH(NULL, "command.received", "effect.created", "delivery.received"),
    [EVENT_GRANTED] =
        EACH("execution.started", "execution.started", "effect.dispatched", "execution.started"),
    [EVENT_REFUSED] = ALL("execution.rejected"),
    [EVENT_STALE] =
        EACH("execution.rejected", "execution.rejected", "execution.rejected", "delivery.stale"),
    [EVENT_EXECUTED] = EACH(
        "execution.executed", "execution.executed", "effect.acknowledged", "delivery.delivered"),
    [EVENT_FAILED] =
        EACH("execution.failed", "execution.failed", "effect.failed", "delivery.failed"),
    [EVENT_REJECTED] =
        EACH("execution.rejected", "execution.rejected", "effect.failed", "delivery.failed"),
    [EVENT_RELEASED] = EACH("execution.released", NULL, NULL, NULL),
    [EVENT_UNKNOWN] =
        EACH("execution.blocked", "execution.blocked", "effect.uncertain", "execution.blocked"),
    [EVENT_RESOLVED] = ALL("execution.resolved"),
    [EVENT_RETRIED] = EACH(NULL, "execution.released", "effect.retried", "delivery.retried"),
    [EVENT_DEAD] =
        EACH(NULL, "execution.blocked", "effect.dead_lettered", "delivery.dead_lettered"),
    [EVENT_CANCELLED] = EACH(NULL, "execution.rejected", "effect.cancelled", "delivery.skipped"),
    [EVENT_CONFIRMATION_REQUESTED] = EACH(NULL, "confirmation.requested", NULL, NULL),
    [EVENT_CONFIRMATION_ACCEPTED] = EACH(NULL, "confirmation.accepted", NULL, NULL),
    [EVENT_CONFIRMATION_DENIED] = EACH(NULL, "confirmation.denied", NULL, NULL),
    [EVENT_CONFIRMATION_EXPIRED] = EACH(NULL, "confirmation.expired", NULL, NULL),
    [EVENT_COMPENSATION_STARTED] = EACH(NULL, "compensation.started", "compensation.started", NULL),
    [EVENT_COMPENSATION_EXECUTED] = EACH(NULL, "compensation.executed", "effect.compensated", NULL),
    [EVENT_COMPENSATION_FAILED] = EACH(NULL, "compensation.failed", "compensation.failed", NULL),
};

static enum entry_event settled(enum record_status status)
{
    ASSERT(record_status_sealed(status));
    return status == RECORD_EXECUTED ? EVENT_EXECUTED
           : status == RECORD_FAILED ? EVENT_FAILED
                                     : EVENT_REJECTED;
}

/* A command that waits before its first attempt waits for a confirmation (core/kind.h). */
static bool awaited_confirmation(const struct entry_facts *facts)
{
    ASSERT(facts->found != NULL); /* only an existing record wakes */
    return facts->found->kind == RECORD_COMMAND && facts->found->attempt == 0;
}

static enum entry_event woken(const struct entry_facts *facts)
{
    const struct record *found = facts->found;
    enum record_status status = facts->decision->next.status;
    if (awaited_confirmation(facts)) {
        bool expired = found->due_ms != 0 && facts->moment.now_ms >= found->due_ms;
        return status != RECORD_REJECTED ? EVENT_CONFIRMATION_ACCEPTED
               : expired                 ? EVENT_CONFIRMATION_EXPIRED
                                         : EVENT_CONFIRMATION_DENIED;
    }
    /* A command that waits for its effects and is not due waits for a person. */
    bool is_blocked = found->kind == RECORD_COMMAND && status == RECORD_WAITING &&
                      found->due_ms != 0 && facts->decision->next.due_ms == 0;
    return record_status_sealed(status)   ? settled(status)
           : status == RECORD_IN_PROGRESS ? EVENT_GRANTED
           : is_blocked                   ? EVENT_UNKNOWN
                                          : EVENT_OBSERVED;
}

/* The decision was DECISION_DONE or DECISION_CLAIMED, and the record changed. */
static enum entry_event done(const struct entry_facts *facts)
{
    enum record_status status = facts->decision->next.status;
    switch (facts->request->kind) {
    case REQUEST_CLAIM: return EVENT_GRANTED;
    case REQUEST_RETRY: return status == RECORD_DEAD ? EVENT_DEAD : EVENT_RETRIED;
    case REQUEST_GIVE_UP: return EVENT_DEAD;
    case REQUEST_WAKE: return woken(facts);
    case REQUEST_CANCEL: return EVENT_CANCELLED;
    case REQUEST_TAKE_UP: return EVENT_RETRIED;
    case REQUEST_COMPENSATE: return EVENT_COMPENSATION_STARTED;
    case REQUEST_COMPENSATION_SETTLE:
        return status == RECORD_COMPENSATED ? EVENT_COMPENSATION_EXECUTED
                                            : EVENT_COMPENSATION_FAILED;
    case REQUEST_WAIT:
    case REQUEST_POSTPONE:
    case REQUEST_BEGIN:
    case REQUEST_SEAL:
    case REQUEST_RELEASE:
    case REQUEST_UNKNOWN:
    case REQUEST_RENEW:
    case REQUEST_RESOLVE:
    case REQUEST_LEASE_OVER:
    case REQUEST_HOLDER_GONE:
    case REQUEST_ENQUEUE: break;
    }
    return EVENT_OBSERVED;
}

static enum entry_event event_of(const struct entry_facts *facts)
{
    const struct decision *decision = facts->decision;
    bool awaits = decision->next.kind == RECORD_COMMAND && decision->next.status == RECORD_WAITING;
    switch (decision->kind) {
    case DECISION_CONFLICT_REJECTED: return EVENT_REFUSED;
    case DECISION_STALE_VERSION: return EVENT_STALE;
    case DECISION_FIRST_SEEN: return EVENT_GRANTED;
    case DECISION_ENQUEUED: return awaits ? EVENT_CONFIRMATION_REQUESTED : EVENT_ENQUEUED;
    case DECISION_SEALED:
        return decision->repeated ? EVENT_OBSERVED : settled(facts->request->status);
    case DECISION_RELEASED: return decision->repeated ? EVENT_OBSERVED : EVENT_RELEASED;
    case DECISION_UNKNOWN: return decision->repeated ? EVENT_OBSERVED : EVENT_UNKNOWN;
    case DECISION_RESOLVED: return decision->repeated ? EVENT_OBSERVED : EVENT_RESOLVED;
    case DECISION_CLAIMED:
    case DECISION_DONE: return decision->repeated ? EVENT_OBSERVED : done(facts);
    case DECISION_DUPLICATE_REPLAYED:
    case DECISION_IN_PROGRESS:
    case DECISION_HELD_UNKNOWN:
    case DECISION_RENEWED:
    case DECISION_NOT_FOUND:
    case DECISION_STALE_FENCE:
    case DECISION_ALREADY_SEALED:
    case DECISION_STILL_RUNNING:
    case DECISION_NOTHING:
    case DECISION_NOT_DUE:
    case DECISION_TOO_LATE:
    case DECISION_WRONG_STATUS: break;
    }
    return EVENT_OBSERVED;
}

const char *entry_type(const struct entry_facts *facts)
{
    enum record_kind kind = entry_kind(facts);
    ASSERT(kind_has_id(kind));
    ASSERT((int)kind < (int)KIND_END);
    const char *type = types[event_of(facts)][kind];
    ASSERT(type != NULL); /* core/kind.h: the kind does not take the request */
    return type;
}
