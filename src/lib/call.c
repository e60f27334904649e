#include "lib/call.h"

#include <inttypes.h>
#include <string.h>

#include "engine/explain.h"
#include "lib/answer.h"

enum {
    INPUT_BYTES_MAX = LIMIT_OUTCOME_BYTES_MAX + (1 << 20),  /* a copied outcome and all names */
    ANSWER_BYTES_MAX = LIMIT_OUTCOME_BYTES_MAX + (1 << 20), /* a replayed one, and its record */
};

/* ---- taking the caller's members ----------------------------------------------------------- */

enum status call_take_bytes(struct lib_call *call, const char *name, struct once_bytes bytes,
    struct slice *ret_bytes, struct err *err)
{
    if (bytes.data == NULL && bytes.size > 0) {
        return err_set(err, E_INVALID, "%s has a size and no data", name);
    }
    struct slice slice = slice_of(bytes.data, bytes.size);
    if (call->copies) {
        return arena_copy(&call->inputs, slice, ret_bytes);
    }
    *ret_bytes = slice;
    return OK;
}

enum status call_take_text(struct lib_call *call, struct text_rule rule, const char *text,
    struct slice *ret_text, struct err *err)
{
    struct slice slice = slice_str(text);
    if (slice.len > rule.bytes_max) {
        return err_set(err, E_INVALID, "%s is %zu bytes long, more than %s (%zu)", rule.name,
            slice.len, rule.limit_name, rule.bytes_max);
    }
    enum status status = handle_utf8(rule.name, slice, err);
    if (status != OK) {
        return status;
    }
    return call_take_bytes(
        call, rule.name, (struct once_bytes){slice.data, slice.len}, ret_text, err);
}

#define RULE(name, limit_name, LIMIT) ((struct text_rule){name, limit_name "_bytes_max", LIMIT})

static enum status take_effect_id(struct lib_call *call, const char *text, struct err *err)
{
    return call_take_text(call, RULE("effect_id", "effect_id", LIMIT_EFFECT_ID_BYTES_MAX), text,
        &call->engine.request.effect_id, err);
}

static enum status take_reason(struct lib_call *call, const char *text, struct err *err)
{
    return call_take_text(call, RULE("reason", "reason", LIMIT_REASON_BYTES_MAX), text,
        &call->engine.request.reason, err);
}

static enum status take_actor(struct lib_call *call, const char *text, struct err *err)
{
    return call_take_text(call, RULE("actor", "principal", LIMIT_PRINCIPAL_BYTES_MAX), text,
        &call->engine.request.actor, err);
}

static enum status take_key(struct lib_call *call, const struct once_begin *begin, struct err *err)
{
    struct record_key *key = &call->engine.request.key;
    if (begin->key == NULL) {
        return err_set(err, E_INVALID, "key is missing");
    }
    enum status status = call_take_text(
        call, RULE("scope", "scope", LIMIT_SCOPE_BYTES_MAX), begin->scope, &key->scope, err);
    if (status == OK) {
        status = call_take_text(call, RULE("principal", "principal", LIMIT_PRINCIPAL_BYTES_MAX),
            begin->principal, &key->principal, err);
    }
    if (status == OK) {
        status = call_take_text(
            call, RULE("key", "key", LIMIT_KEY_BYTES_MAX), begin->key, &key->key, err);
    }
    return status == OK ? record_key_seal(key, err) : status;
}

static enum status take_source(
    struct lib_call *call, const struct once_source *source, struct err *err)
{
    struct source *to = &call->engine.request.source;
    enum status status = call_take_text(
        call, RULE("source.type", "source", LIMIT_SOURCE_BYTES_MAX), source->type, &to->type, err);
    if (status == OK) {
        status = call_take_text(
            call, RULE("source.id", "source", LIMIT_SOURCE_BYTES_MAX), source->id, &to->id, err);
    }
    if (status == OK) {
        status = call_take_text(call, RULE("source.version", "source", LIMIT_SOURCE_BYTES_MAX),
            source->version, &to->version, err);
    }
    return status;
}

static enum status take_operation_id(struct lib_call *call, const char *text, struct err *err)
{
    if (text == NULL) {
        return err_set(err, E_INVALID, "operation_id is missing");
    }
    if (!op_id_read(slice_str(text), &call->engine.request.operation_id)) {
        return err_set(err, E_INVALID, "operation_id '%.64s' is not \"op_\" and a UUID", text);
    }
    return OK;
}

static enum status take_holder(
    struct lib_call *call, const char *operation_id, uint64_t fence, struct err *err)
{
    if (fence == 0) {
        return err_set(err, E_INVALID, "fence is 0, which is never granted");
    }
    call->engine.request.fence = fence;
    return take_operation_id(call, operation_id, err);
}

/* A duration's names and bounds, for refusals. */
struct ms_rule {
    const char *name;
    const char *min_name; /* NULL: 1 is the least */
    int64_t min;
    const char *max_name;
    int64_t max;
};

static const struct ms_rule rule_ttl = {"ttl_ms", NULL, 1, "window_ms_max", LIMIT_WINDOW_MS_MAX};
static const struct ms_rule rule_lease = {
    "lease_ms", "lease_ms_min", LIMIT_LEASE_MS_MIN, "lease_ms_max", LIMIT_LEASE_MS_MAX};

/* 0 is the default. */
static enum status take_ms(
    const struct ms_rule *rule, int64_t ms, int64_t ms_default, int64_t *ret_ms, struct err *err)
{
    if (ms < 0) {
        return err_set(err, E_INVALID, "%s must be positive", rule->name);
    }
    if (ms > 0 && ms < rule->min) {
        return err_set(err, E_INVALID, "%s is %" PRId64 ", less than %s (%" PRId64 ")", rule->name,
            ms, rule->min_name, rule->min);
    }
    if (ms > rule->max) {
        return err_set(err, E_INVALID, "%s is %" PRId64 ", more than %s (%" PRId64 ")", rule->name,
            ms, rule->max_name, rule->max);
    }
    *ret_ms = ms == 0 ? ms_default : ms;
    return OK;
}

/* An outcome past its limit is sealed without its bytes, and replays say so. */
static enum status take_body(struct lib_call *call, struct once_bytes body, struct err *err)
{
    struct body_ref *ref = &call->engine.request.outcome.body;
    if (body.data == NULL && body.size > 0) {
        return err_set(err, E_INVALID, "outcome.body has a size and no data");
    }
    if (body.size == 0) {
        return OK;
    }
    digest_sha256(body.data, body.size, &ref->digest);
    ref->bytes = body.size;
    ref->retained = body.size <= LIMIT_OUTCOME_BYTES_MAX;
    return ref->retained
               ? call_take_bytes(call, "outcome.body", body, &call->engine.outcome_body, err)
               : OK;
}

static enum status take_outcome(
    struct lib_call *call, const struct once_outcome *outcome, struct err *err)
{
    if (outcome->meta.size > LIMIT_OUTCOME_META_BYTES_MAX) {
        return err_set(err, E_INVALID,
            "outcome.meta is %zu bytes long, more than outcome_meta_bytes_max (%d)",
            outcome->meta.size, LIMIT_OUTCOME_META_BYTES_MAX);
    }
    call->engine.request.outcome.code = outcome->code;
    enum status status = call_take_bytes(
        call, "outcome.meta", outcome->meta, &call->engine.request.outcome.meta, err);
    return status == OK ? take_body(call, outcome->body, err) : status;
}

/* ---- one function for each kind of request ------------------------------------------------- */

static enum status take_policy(
    struct lib_call *call, const struct once_begin *begin, struct err *err)
{
    struct policy *policy = &call->engine.request.policy;
    static const struct ms_rule rule_wait = {"wait_ms", NULL, 1, "wait_ms_max", LIMIT_WAIT_MS_MAX};
    switch ((int)begin->on_unknown) {
    case ONCE_HOLD: policy->on_unknown = ON_UNKNOWN_HOLD; break;
    case ONCE_TAKEOVER: policy->on_unknown = ON_UNKNOWN_TAKEOVER; break;
    default:
        return err_set(err, E_INVALID, "on_unknown is %d, neither ONCE_HOLD nor ONCE_TAKEOVER",
            (int)begin->on_unknown);
    }
    policy->retry_failed = begin->retry_failed != 0;
    policy->retry_rejected = begin->retry_rejected != 0;
    enum status status =
        take_ms(&rule_ttl, begin->ttl_ms, LIMIT_WINDOW_MS_DEFAULT, &policy->window_ms, err);
    if (status == OK) {
        status =
            take_ms(&rule_lease, begin->lease_ms, LIMIT_LEASE_MS_DEFAULT, &policy->lease_ms, err);
    }
    return status == OK ? take_ms(&rule_wait, begin->wait_ms, 0, &call->engine.wait_ms, err)
                        : status;
}

static enum status take_begin(
    struct lib_call *call, const struct once_begin *begin, struct err *err)
{
    call->engine.request.kind = REQUEST_BEGIN;
    enum status status = take_key(call, begin, err);
    status = status == OK ? take_policy(call, begin, err) : status;
    status = status == OK ? take_source(call, &begin->source, err) : status;
    status = status == OK ? take_actor(call, begin->actor, err) : status;
    status = status == OK ? call_take_trace(call, begin->trace, begin->request_id, err) : status;
    return status == OK ? call_take_payload(call, begin, err) : status;
}

static enum status take_seal(struct lib_call *call, const struct once_seal *seal, struct err *err)
{
    struct request *request = &call->engine.request;
    request->kind = REQUEST_SEAL;
    if (seal->status != ONCE_EXECUTED && seal->status != ONCE_FAILED &&
        seal->status != ONCE_REJECTED) {
        return err_set(err, E_INVALID,
            "status is %d, none of ONCE_EXECUTED, ONCE_FAILED and ONCE_REJECTED",
            (int)seal->status);
    }
    request->status = (enum record_status)seal->status;
    enum status status = take_holder(call, seal->operation_id, seal->fence, err);
    status = status == OK ? take_effect_id(call, seal->effect_id, err) : status;
    status = status == OK ? take_ms(&rule_ttl, seal->ttl_ms, 0, &request->policy.window_ms, err)
                          : status;
    status = status == OK ? call_take_trace(call, NULL, seal->request_id, err) : status;
    return status == OK ? take_outcome(call, &seal->outcome, err) : status;
}

static enum status take_hold(
    struct lib_call *call, enum request_kind kind, const struct once_hold *hold, struct err *err)
{
    struct request *request = &call->engine.request;
    request->kind = kind;
    enum status status = take_holder(call, hold->operation_id, hold->fence, err);
    if (status == OK && kind == REQUEST_RENEW) {
        status = take_ms(
            &rule_lease, hold->lease_ms, LIMIT_LEASE_MS_DEFAULT, &request->policy.lease_ms, err);
    } else if (status == OK) {
        status = take_reason(call, hold->reason, err);
    }
    return status == OK ? call_take_trace(call, NULL, hold->request_id, err) : status;
}

static enum status take_resolve(
    struct lib_call *call, const struct once_resolve *resolve, struct err *err)
{
    struct request *request = &call->engine.request;
    request->kind = REQUEST_RESOLVE;
    bool released = resolve->status == ONCE_STATUS_RELEASED;
    if (resolve->status != ONCE_EXECUTED && resolve->status != ONCE_FAILED && !released) {
        return err_set(err, E_INVALID,
            "status is %d, none of ONCE_EXECUTED, ONCE_FAILED and ONCE_STATUS_RELEASED",
            (int)resolve->status);
    }
    if (slice_str(resolve->reason).len == 0) {
        return err_set(err, E_INVALID, "reason is missing: say who looked where");
    }
    const struct once_outcome *outcome = &resolve->outcome;
    if (released && (slice_str(resolve->effect_id).len > 0 || outcome->code != 0 ||
                        outcome->meta.size > 0 || outcome->body.size > 0)) {
        return err_set(err, E_INVALID, "what was not executed has neither effect_id nor outcome");
    }
    request->status = (enum record_status)resolve->status;
    request->fence = resolve->fence;
    enum status status = take_operation_id(call, resolve->operation_id, err);
    status = status == OK ? take_effect_id(call, resolve->effect_id, err) : status;
    status = status == OK ? take_reason(call, resolve->reason, err) : status;
    status = status == OK ? take_actor(call, resolve->actor, err) : status;
    status = status == OK ? call_take_trace(call, NULL, resolve->request_id, err) : status;
    return status == OK ? take_outcome(call, outcome, err) : status;
}

static enum status take_any(struct lib_call *call, const struct once_call *what, struct err *err)
{
    int set = (what->begin != NULL) + (what->seal != NULL) + (what->release != NULL) +
              (what->unknown != NULL) + (what->renew != NULL) + (what->resolve != NULL);
    if (set != 1) {
        return err_set(err, E_MISUSE,
            set == 0 ? "nothing is asked: the request is NULL"
                     : "more than one member of the call is set");
    }
    /* Of whose operations this handle may speak (P9). */
    call->engine.request.key.tenant = call->once->tenant;
    if (what->begin != NULL) {
        return take_begin(call, what->begin, err);
    }
    if (what->seal != NULL) {
        return take_seal(call, what->seal, err);
    }
    if (what->release != NULL) {
        return take_hold(call, REQUEST_RELEASE, what->release, err);
    }
    if (what->unknown != NULL) {
        return take_hold(call, REQUEST_UNKNOWN, what->unknown, err);
    }
    if (what->renew != NULL) {
        return take_hold(call, REQUEST_RENEW, what->renew, err);
    }
    return take_resolve(call, what->resolve, err);
}

/* ---- the life of a call -------------------------------------------------------------------- */

/* Memory for the answer: after the commit it would be too late to find that there is none. The
 * engine takes the same care of its own copy of the record. */
static enum status reserve(struct lib_call *call)
{
    call->reserve_bytes = answer_bytes_max() + call->engine.request.outcome.meta.len;
    call->reserve = mem_alloc(&call->once->mem, call->reserve_bytes);
    return call->reserve == NULL ? E_NOMEM : OK;
}

enum status lib_call_init(struct lib_call *call, struct once *once, const struct once_call *what,
    bool copies, struct err *err)
{
    enum status status = handle_writes(once, err);
    if (status != OK) {
        return status;
    }
    *call = (struct lib_call){.once = once, .copies = copies};
    arena_init(&call->inputs, &once->mem, INPUT_BYTES_MAX);
    arena_init(&call->answers, &once->mem, ANSWER_BYTES_MAX);
    call->engine.arena = &call->answers;
    status = take_any(call, what, err);
    if (status == OK) {
        status = reserve(call);
    }
    if (status != OK) {
        lib_call_release(call);
    }
    return status;
}

void lib_call_release(struct lib_call *call)
{
    mem_free(&call->once->mem, call->reserve);
    arena_release(&call->inputs);
    arena_release(&call->answers);
}

/* ---- and back ------------------------------------------------------------------------------ */

/* What a caller hopes to hear; with no answer asked for, anything else is E_STALE. */
static enum decision_kind wished(enum request_kind kind)
{
    switch (kind) {
    case REQUEST_BEGIN: return DECISION_FIRST_SEEN;
    case REQUEST_SEAL: return DECISION_SEALED;
    case REQUEST_RELEASE: return DECISION_RELEASED;
    case REQUEST_UNKNOWN: return DECISION_UNKNOWN;
    case REQUEST_RENEW: return DECISION_RENEWED;
    case REQUEST_RESOLVE: return DECISION_RESOLVED;
    case REQUEST_LEASE_OVER:
    case REQUEST_HOLDER_GONE:
    case REQUEST_ENQUEUE:
    case REQUEST_CLAIM:
    case REQUEST_RETRY:
    case REQUEST_GIVE_UP:
    case REQUEST_WAIT:
    case REQUEST_WAKE:
    case REQUEST_CANCEL:
    case REQUEST_TAKE_UP:
    case REQUEST_POSTPONE:
    case REQUEST_COMPENSATE:
    case REQUEST_COMPENSATION_SETTLE: break;
    }
    return DECISION_NOTHING;
}

/* The operation is no longer in progress because of this. */
static bool settles(enum decision_kind kind)
{
    return kind == DECISION_SEALED || kind == DECISION_RELEASED || kind == DECISION_UNKNOWN ||
           kind == DECISION_RESOLVED || kind == DECISION_HELD_UNKNOWN;
}

/* A diff that cannot be made is only missing. */
static enum status explain(struct lib_call *call, struct buf *out, bool *ret_truncated)
{
    if (call->engine.decision.kind != DECISION_CONFLICT_REJECTED) {
        return OK;
    }
    enum status status = explain_conflict(&call->engine, &call->once->mem, out, ret_truncated);
    if (status != OK) {
        buf_clear(out);
    }
    return status == E_NOMEM ? status : OK;
}

/* Put it into the reserve where it fits, which every change's answer does. */
static struct once_answer *place_answer(struct lib_call *call, const struct answer_parts *parts)
{
    size_t bytes = answer_bytes(parts);
    void *place;
    if (bytes > call->reserve_bytes) {
        place = mem_alloc(&call->once->mem, bytes);
        return place == NULL ? NULL : answer_put(parts, place);
    }
    /* The reserve is for the longest names; give back what these do not need. */
    place = mem_resize(&call->once->mem, call->reserve, bytes);
    place = place == NULL ? call->reserve : place;
    call->reserve = NULL;
    return answer_put(parts, place);
}

static enum status make_answer(struct lib_call *call, struct once_answer **ret_answer)
{
    const struct decision *decision = &call->engine.decision;
    /* P7: who comes with another payload learns nothing of the record. */
    bool shown = decision->next.fence > 0 && decision->kind != DECISION_CONFLICT_REJECTED;
    struct buf diff;
    buf_init(&diff, &call->once->mem, LIMIT_DIFF_BYTES_MAX);
    struct answer_parts parts = {
        .decision = decision,
        .retry_after_ms = decision->kind == DECISION_IN_PROGRESS
                              ? explain_retry_after_ms(&call->engine, EXPLAIN_RETRY_MS_MAX)
                              : 0,
        .operation = {.record = shown ? &decision->next : NULL,
            .outcome_body = call->engine.outcome},
    };
    enum status status = explain(call, &diff, &parts.diff_truncated);
    if (status == OK) {
        parts.diff = buf_view(&diff);
        struct once_answer *answer = place_answer(call, &parts);
        status = answer == NULL ? E_NOMEM : OK;
        *ret_answer = answer == NULL ? *ret_answer : answer;
    }
    buf_release(&diff);
    return status;
}

enum status lib_call_answer(struct lib_call *call, struct once_answer **ret_answer, struct err *err)
{
    enum decision_kind kind = call->engine.decision.kind;
    if (settles(kind)) {
        handle_settled(call->once);
    }
    if (ret_answer != NULL) {
        return make_answer(call, ret_answer);
    }
    if (kind != wished(call->engine.request.kind)) {
        return err_set(err, E_STALE, "the answer to %s is %s",
            request_kind_name(call->engine.request.kind), decision_name(kind));
    }
    return OK;
}
