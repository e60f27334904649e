#include "effect/next_step.h"

#include "base/check.h"
#include "base/macros.h"

static const struct judge_status nothing_done[] = {
    {408, JUDGE_LATER}, {425, JUDGE_LATER}, {429, JUDGE_LATER}, {503, JUDGE_LATER}};

/* Redirects are not followed, and after one it is not known what was done. */
struct judge_rules next_attempt_rules(void)
{
    return (struct judge_rules){.statuses = nothing_done,
        .status_count = COUNT(nothing_done),
        .classes = {[2] = JUDGE_SEAL, [3] = JUDGE_UNKNOWN, [4] = JUDGE_SEAL, [5] = JUDGE_UNKNOWN},
        .not_sent = JUDGE_LATER,
        .no_answer = JUDGE_UNKNOWN}; /* P5 */
}

struct judge_rules next_lookup_rules(
    const struct config_lookup *lookup, struct next_lookup_statuses *statuses)
{
    size_t count = 0;
    for (size_t i = 0; i < lookup->executed_count; i++) {
        statuses->items[count++] = (struct judge_status){lookup->executed[i], JUDGE_EXECUTED};
    }
    for (size_t i = 0; i < lookup->not_executed_count; i++) {
        statuses->items[count++] = (struct judge_status){lookup->not_executed[i], JUDGE_RELEASE};
    }
    return (struct judge_rules){.statuses = statuses->items,
        .status_count = count,
        .not_sent = JUDGE_UNKNOWN,
        .no_answer = JUDGE_UNKNOWN};
}

bool next_is_used_up(const struct next_facts *facts)
{
    const struct config_effect *type = facts->type;
    int64_t next_ms = facts->now_ms + facts->delay_ms;
    return (type->attempts > 0 && facts->attempt >= type->attempts) ||
           (type->deadline_ms > 0 && next_ms - facts->created_ms > type->deadline_ms);
}

static bool keeps_keys(const struct config_connector *connector)
{
    return connector->idempotency.header != NULL || connector->idempotency.body != NULL;
}

/* NX3 */
static bool is_manual(const struct config_effect *type)
{
    return type->approve == CONFIG_APPROVE_MANUAL ||
           type->connector->approve == CONFIG_APPROVE_MANUAL;
}

bool next_is_held(const struct config_effect *type)
{
    return is_manual(type) || (!keeps_keys(type->connector) && type->connector->lookup.get == NULL);
}

/* NX1 */
bool next_may_resend(const struct next_facts *facts)
{
    const struct config_connector *connector = facts->type->connector;
    /* The call may still be in progress when `keeps` ends: it must arrive before that. */
    int64_t arrives_ms = facts->now_ms + facts->delay_ms + connector->total_ms;
    return keeps_keys(connector) && !is_manual(facts->type) && facts->first_sent_ms > 0 &&
           arrives_ms < facts->first_sent_ms + connector->idempotency.keeps_ms &&
           !next_is_used_up(facts);
}

bool next_may_have_happened(const struct next_facts *facts, bool is_readable)
{
    return is_readable ? facts->is_uncertain : facts->attempt > 1;
}

static enum next_step uncertain(const struct next_facts *facts)
{
    return next_may_resend(facts) ? NEXT_RESEND : NEXT_UNKNOWN; /* NX1, NX2, NX6 */
}

enum next_step next_after_attempt(
    const struct next_facts *facts, enum outcall_verdict verdict, unsigned status)
{
    switch (verdict) {
    case VERDICT_EXECUTED: return NEXT_ACKNOWLEDGED;
    case VERDICT_UNKNOWN: return uncertain(facts);
    case VERDICT_LATER: return facts->is_uncertain ? uncertain(facts) : NEXT_RETRY; /* NX4 */
    case VERDICT_FAILED:
        if (!facts->is_uncertain) {
            return NEXT_FAILED;
        }
        return status == 409 ? uncertain(facts) : NEXT_UNKNOWN; /* NX4, NX5 */
    case VERDICT_RELEASED: break;
    }
    ASSERT(verdict != VERDICT_RELEASED); /* no rule above has this result */
    return NEXT_UNKNOWN;
}

int64_t next_quiet_ms(const struct config_lookup *lookup, int64_t quiet_ms)
{
    int64_t left_ms = lookup->quiet_ms - quiet_ms;
    return left_ms > 0 ? left_ms : 0;
}

int64_t next_question_ms(
    const struct config_lookup *lookup, int64_t unknown_since_ms, int64_t now_ms)
{
    int64_t since_ms = now_ms - unknown_since_ms;
    int64_t pause_ms = since_ms > lookup->every_ms ? since_ms : lookup->every_ms;
    pause_ms = pause_ms < lookup->every_ms_max ? pause_ms : lookup->every_ms_max;
    return pause_ms > 0 ? pause_ms : 1;
}
