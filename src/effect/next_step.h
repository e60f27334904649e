/*
 * next_step: what happens to an effect after an attempt, or when the result of one is unknown.
 * Pure: the rules of docs/effects.md as tables and functions without clock or I/O.
 *
 *   the provider's answer                    verdict
 *   2xx                                      acknowledged
 *   408, 425, 429, 503, not connected        nothing was done: retried
 *   other 4xx                                failed: the provider rejected it
 *   3xx, other 5xx, broken or no answer      uncertain
 *
 *   after an attempt that is uncertain       (code and tests cite these)
 *   NX1 the provider keeps our key, the next attempt is within `keeps`, and attempts and deadline
 *       allow it: the same request again (shield S1)
 *   NX2 otherwise it is unknown: the provider is asked if there is a lookup (shield S4), else it
 *       is held (shield S3)
 *   NX3 with approve: manual it is always held
 *   NX9 nothing is sent or asked again before the pause after that attempt is over (backoff and
 *       Retry-After). One that is held waits for nothing
 *
 *   after a later attempt of one that is uncertain
 *   NX4 2xx: acknowledged. 408, 409, 425, 429, 503, not connected: as NX1 and NX2. A 409 is what
 *       providers say while the first request with a key is in progress.
 *   NX5 other 4xx: unknown. They say that this request was refused, by a check that may come before
 *       the key is looked up. They say nothing about the first request.
 *   NX6 attempts or deadline used up: unknown, never a dead letter, because it may have happened
 *
 *   before a later attempt of one that is uncertain
 *   NX8 it may have waited since the attempt before it: if NX1 does not allow it now, it is unknown
 *       and nothing is sent
 *
 *   when it cannot be sent as it is, and a person must look at it
 *   NX10 uncertain, or its detail cannot be read and this is not its first attempt: unknown,
 *       because an earlier attempt may have happened. Otherwise nothing was sent: a dead letter
 *
 *   when the provider is asked
 *   NX7 executed: acknowledged. Not executed, and the attempt is `quiet` ms past: it did not
 *       happen, and is pending again, or a dead letter if nothing is left. Otherwise the provider
 *       is asked again later.
 */
#ifndef ONCE_EFFECT_NEXT_STEP_H
#define ONCE_EFFECT_NEXT_STEP_H

#include "config/effects.h"
#include "outcall/judge.h"

/* How answers to an attempt and to a question are judged. */
struct judge_rules next_attempt_rules(void);
struct next_lookup_statuses {
    struct judge_status items[2 * CONFIG_STATUSES_MAX];
};
/* The statuses must outlive the rules. */
struct judge_rules next_lookup_rules(
    const struct config_lookup *lookup, struct next_lookup_statuses *statuses);

/* The facts about an effect. */
struct next_facts {
    const struct config_effect *type;
    uint32_t attempt; /* attempts so far */
    int64_t created_ms;
    int64_t first_sent_ms; /* the first attempt that may have reached the provider; 0: none */
    bool is_uncertain;     /* an earlier attempt was uncertain */
    int64_t now_ms;
    int64_t delay_ms; /* until the next attempt: backoff and Retry-After */
};

enum next_step {
    NEXT_ACKNOWLEDGED,
    NEXT_FAILED,
    NEXT_RETRY,   /* nothing was done: try again, or a dead letter when no attempt is left */
    NEXT_RESEND,  /* NX1: uncertain, and the provider recognises a repetition */
    NEXT_UNKNOWN, /* NX2, NX3, NX5, NX6 */
};

/* After an attempt whose answer was judged by next_attempt_rules; status 0: no answer. */
enum next_step next_after_attempt(
    const struct next_facts *facts, enum outcall_verdict verdict, unsigned status);
/* Whether an effect that is unknown, by a crash or by NX2, may be sent again now (NX1). */
bool next_may_resend(const struct next_facts *facts);
/* Whether only a person can settle one that is unknown: NX2, NX3. */
bool next_is_held(const struct config_effect *type);
/* NX10: whether it may have happened. facts->attempt counts the one that cannot be sent. */
bool next_may_have_happened(const struct next_facts *facts, bool is_readable);
/* Whether no attempt is left. */
bool next_is_used_up(const struct next_facts *facts);

/* NX7: how long until "not executed" is accepted of an attempt that has been quiet for quiet_ms;
 * 0: now. */
int64_t next_quiet_ms(const struct config_lookup *lookup, int64_t quiet_ms);
/* The pause before the next question: as long as it has been unknown, so that pauses double. */
int64_t next_question_ms(
    const struct config_lookup *lookup, int64_t unknown_since_ms, int64_t now_ms);

#endif
