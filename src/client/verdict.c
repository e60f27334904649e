#include "client/verdict.h"

#include "canon/json.h"

/* ---- the body of a refusal --------------------------------------------------------------- */

static void read_effect(const struct json_value *root, struct client_marks *marks)
{
    struct slice effect = json_string(root, "effect");
    marks->has_effect = true;
    if (slice_is(effect, "yes")) {
        marks->effect = ONCE_EFFECT_YES;
    } else if (slice_is(effect, "no")) {
        marks->effect = ONCE_EFFECT_NO;
    } else {
        marks->effect = ONCE_EFFECT_UNKNOWN;
        marks->has_effect = slice_is(effect, "unknown");
    }
}

/* guardia: {"errors":[{"code","reason","message"}]} */
static struct slice first_reason(const struct json_value *root)
{
    const struct json_value *errors = json_find(root, SLICE_LIT("errors"));
    return json_is(errors, JSON_ARRAY) && errors->count > 0
               ? json_string(&errors->items[0], "reason")
               : SLICE_EMPTY;
}

enum status client_marks_read(
    struct slice body, struct arena *arena, struct client_marks *ret_marks)
{
    struct client_marks marks = {0};
    const struct json_value *root = NULL;
    struct err err = {0};
    enum status status = json_read(body, arena, &root, &err);
    if (status == E_NOMEM) {
        return status;
    }
    if (status == OK && json_is(root, JSON_OBJECT)) {
        struct slice code = json_string(root, "code");
        struct slice operation = json_string(root, "operation_id");
        marks.in_progress = slice_is(code, "in_progress") ||
                            slice_is(json_string(root, "error"), "idempotency_in_progress") ||
                            slice_is(first_reason(root), "IDEMPOTENT_REQUEST_IN_PROGRESS");
        marks.outcome_unknown = slice_is(code, "outcome_unknown");
        marks.no_retry = code.len > 0 && slice_is(json_string(root, "retry"), "no");
        if (code.len > 0) { /* without one it is not a document of Once */
            read_effect(root, &marks);
        }
        if (operation.len < sizeof marks.operation_id && operation.len > 0) {
            memcpy(marks.operation_id, operation.data, operation.len);
        }
    }
    *ret_marks = marks;
    return OK;
}

/* ---- the verdict ------------------------------------------------------------------------- */

static bool has_decision(const struct attempt_facts *facts, const char *decision)
{
    return strcmp(facts->decision, decision) == 0;
}

/* The answer is about the operation, not about this attempt to ask for it. */
static bool is_outcome(const struct attempt_facts *facts)
{
    return facts->is_replayed || has_decision(facts, "duplicate_replayed") ||
           has_decision(facts, "first_seen");
}

static bool is_in_progress(const struct attempt_facts *facts)
{
    return facts->status == 409 && (facts->marks.in_progress || has_decision(facts, "in_progress"));
}

/* It may be settled while we wait, by reconciliation or by a person. */
static bool is_held(const struct attempt_facts *facts)
{
    return facts->status >= 400 &&
           (facts->marks.outcome_unknown || has_decision(facts, "held_unknown"));
}

static enum once_effect effect_of_answer(const struct attempt_facts *facts)
{
    if (facts->is_read) {
        return ONCE_EFFECT_NO;
    }
    if (facts->status >= 200 && facts->status < 300) {
        return ONCE_EFFECT_YES;
    }
    if (is_in_progress(facts) || is_held(facts) || facts->marks_unread) {
        return ONCE_EFFECT_UNKNOWN; /* whatever the document says about this attempt */
    }
    if (facts->marks.has_effect) {
        return facts->marks.effect;
    }
    if (facts->status == 303) {
        return ONCE_EFFECT_YES; /* RFC 9110 section 15.4.4: done, and the result is elsewhere */
    }
    /* A refusal, or "ask elsewhere". All others may have stopped half way. */
    bool is_refusal = (facts->status >= 400 && facts->status < 500 && facts->status != 408) ||
                      facts->status == 307 || facts->status == 308;
    return is_refusal ? ONCE_EFFECT_NO : ONCE_EFFECT_UNKNOWN;
}

static struct verdict judge_answer(const struct attempt_facts *facts)
{
    struct verdict verdict = {.effect = effect_of_answer(facts), .settles = is_outcome(facts)};
    if (has_decision(facts, "conflict_rejected")) {
        return verdict; /* the key belongs to a different request, permanently */
    }
    if (is_in_progress(facts) || is_held(facts)) {
        verdict.retry = true;
        verdict.settles = false;
        return verdict;
    }
    /* A replayed failure is final. So is one that Once calls final, unless its outcome is unknown:
     * the same key then only asks, and does nothing twice. */
    bool is_final = facts->is_replayed || has_decision(facts, "duplicate_replayed") ||
                    facts->marks_unread ||
                    (facts->marks.no_retry && facts->marks.effect != ONCE_EFFECT_UNKNOWN);
    bool may_pass = facts->status >= 500 || facts->status == 429 || facts->status == 408;
    verdict.retry = may_pass && !is_final;
    if (may_pass && !facts->is_replayed && !has_decision(facts, "duplicate_replayed")) {
        verdict.settles = false; /* "not now" is not an outcome */
    }
    return verdict;
}

struct verdict client_judge(const struct attempt_facts *facts)
{
    switch (facts->end) {
    case ATTEMPT_ANSWERED: return judge_answer(facts);
    case ATTEMPT_NOT_SENT: return (struct verdict){.retry = true, .effect = ONCE_EFFECT_NO};
    case ATTEMPT_HOPELESS: return (struct verdict){.effect = ONCE_EFFECT_NO};
    case ATTEMPT_LOST:
    case ATTEMPT_UNREADABLE:
    case ATTEMPT_NO_MEMORY: break;
    }
    bool may_have_happened = facts->was_sent && !facts->is_read;
    return (struct verdict){
        .retry = facts->end == ATTEMPT_LOST,
        .effect = may_have_happened ? ONCE_EFFECT_UNKNOWN : ONCE_EFFECT_NO,
    };
}
