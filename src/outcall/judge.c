#include "outcall/judge.h"

#include "base/check.h"

static void rules_check(const struct judge_rules *rules)
{
    ASSERT(rules->not_sent == JUDGE_RELEASE || rules->not_sent == JUDGE_LATER ||
           rules->not_sent == JUDGE_UNKNOWN);
    ASSERT(rules->no_answer == JUDGE_UNKNOWN || rules->no_answer == JUDGE_LATER); /* P5 */
}

static enum judge_rule rule_of(const struct judge_rules *rules, unsigned status)
{
    for (size_t i = 0; i < rules->status_count; i++) {
        if (rules->statuses[i].status == status) {
            return rules->statuses[i].rule;
        }
    }
    unsigned class = status / 100;
    return rules->classes[class < JUDGE_CLASSES ? class : JUDGE_CLASSES - 1];
}

static enum outcall_verdict verdict_of(enum judge_rule rule, unsigned status)
{
    switch (rule) {
    case JUDGE_UNKNOWN: return VERDICT_UNKNOWN;
    case JUDGE_SEAL: return status < 400 ? VERDICT_EXECUTED : VERDICT_FAILED;
    case JUDGE_EXECUTED: return VERDICT_EXECUTED;
    case JUDGE_RELEASE: return VERDICT_RELEASED;
    case JUDGE_LATER: return VERDICT_LATER;
    }
    return VERDICT_UNKNOWN;
}

enum outcall_verdict judge(
    const struct judge_rules *rules, enum outcall_point point, unsigned status)
{
    rules_check(rules);
    switch (point) {
    case OUTCALL_NOT_SENT: return verdict_of(rules->not_sent, 0);
    case OUTCALL_SENT:
    case OUTCALL_HEAD: return verdict_of(rules->no_answer, 0); /* P5 */
    case OUTCALL_ANSWERED: return verdict_of(rule_of(rules, status), status);
    }
    return VERDICT_UNKNOWN;
}

bool judge_is_outcome(enum outcall_verdict verdict)
{
    return verdict == VERDICT_EXECUTED || verdict == VERDICT_FAILED;
}
