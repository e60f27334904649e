#include "lib/call.h"

#include <string.h>

#include "base/macros.h"
#include "engine/explain.h"
#include "engine/request_builder.h"
#include "lib/answer.h"
#include "lib/effects.h"

enum {
    INPUT_BYTES_MAX = LIMIT_OUTCOME_BYTES_MAX + (1 << 20),  /* a copied outcome and all names */
    ANSWER_BYTES_MAX = LIMIT_OUTCOME_BYTES_MAX + (1 << 20), /* a replayed one, and its record */
    TRACE_TEXT_BYTES_MAX = 4 * LIMIT_TRACE_BYTES_MAX,   /* as given: canonical form has no blanks
                                                           and fewer escapes */
    TREE_BYTES_MAX = 64 * TRACE_TEXT_BYTES_MAX + 65536, /* more than such a text can need */
};

/* ---- the parts of a request ---------------------------------------------------------------- */

static enum status take_bytes(
    const char *name, struct once_bytes bytes, struct slice *ret_bytes, struct err *err)
{
    if (bytes.data == NULL && bytes.size > 0) {
        return err_set(err, E_INVALID, "%s has a size and no data", name);
    }
    *ret_bytes = slice_of(bytes.data, bytes.size);
    return OK;
}

static enum status take_holder(
    struct lib_call *call, const char *operation_id, uint64_t fence, struct err *err)
{
    if (fence == 0) {
        return err_set(err, E_INVALID, "fence is 0, which is never granted");
    }
    call->engine.request.fence = fence;
    return handle_operation_id(operation_id, &call->engine.request.operation_id, err);
}

static enum status read_trace(
    struct slice trace, struct arena *tree, const struct json_value **ret, struct err *err)
{
    if (trace.len > TRACE_TEXT_BYTES_MAX) {
        return err_set(err, E_INVALID, "trace and request_id are more than trace_bytes_max (%d)",
            LIMIT_TRACE_BYTES_MAX);
    }
    enum status status = trace.len == 0 ? OK : json_read(trace, tree, ret, err);
    if (status == E_INVALID) {
        err_prefix(err, "trace");
    }
    return status;
}

/* Trace ids as one canonical object: the given members and request_id. */
static enum status take_trace(
    struct lib_call *call, const char *trace, const char *request_id, struct err *err)
{
    struct mem mem = arena_mem(&call->inputs);
    struct arena tree;
    const struct json_value *object = NULL;
    arena_init(&tree, &call->once->mem, TREE_BYTES_MAX);
    enum status status = read_trace(slice_str(trace), &tree, &object, err);
    status = status == OK ? builder_trace(object, slice_str(request_id), SLICE_EMPTY, &mem,
                                &call->engine.request.trace, err)
                          : status;
    arena_release(&tree);
    return status;
}

static enum status take_payload(
    struct lib_call *call, const struct once_begin *begin, struct err *err)
{
    struct engine_call *engine = &call->engine;
    struct slice text;
    enum status status = take_bytes("payload", begin->payload, &text, err);
    if (status != OK) {
        return status;
    }
    if (begin->fingerprint != NULL) {
        struct digest own;
        memcpy(own.bytes, begin->fingerprint, sizeof own.bytes);
        builder_fingerprint(engine, call->once->engine, &own, FINGERPRINT_OWN);
        return text.data == NULL
                   ? OK
                   : err_set(err, E_INVALID, "both payload and fingerprint are given");
    }
    struct buf form;
    buf_init(&form, &call->once->mem, payload_form_bytes_max(text.len));
    status = builder_payload(engine, call->once->engine, text, NULL, &form);
    if (status == OK && engine->request_body.data != text.data) { /* it is the canonical form */
        status = arena_copy(&call->inputs, engine->request_body, &engine->request_body);
    }
    buf_release(&form);
    return status;
}

static enum status take_outcome(
    struct lib_call *call, const struct once_outcome *outcome, struct err *err)
{
    struct slice body;
    call->engine.request.outcome.code = outcome->code;
    enum status status =
        take_bytes("outcome.meta", outcome->meta, &call->engine.request.outcome.meta, err);
    status = status == OK ? take_bytes("outcome.body", outcome->body, &body, err) : status;
    if (status == OK && body.len > 0) {
        builder_outcome_body(&call->engine, body, LIMIT_OUTCOME_BYTES_MAX);
    }
    return status;
}

/* ---- one function for each kind of request ------------------------------------------------- */

static int64_t or_default(int64_t value, int64_t otherwise)
{
    return value == 0 ? otherwise : value;
}

static enum status take_policy(
    struct lib_call *call, const struct once_begin *begin, struct err *err)
{
    struct policy *policy = &call->engine.request.policy;
    switch ((int)begin->on_unknown) {
    case ONCE_HOLD: policy->on_unknown = ON_UNKNOWN_HOLD; break;
    case ONCE_TAKEOVER: policy->on_unknown = ON_UNKNOWN_TAKEOVER; break;
    default:
        return err_set(err, E_INVALID, "on_unknown is %d, neither ONCE_HOLD nor ONCE_TAKEOVER",
            (int)begin->on_unknown);
    }
    policy->retry_failed = begin->retry_failed != 0;
    policy->retry_rejected = begin->retry_rejected != 0;
    policy->window_ms = or_default(begin->ttl_ms, LIMIT_WINDOW_MS_DEFAULT);
    policy->lease_ms = or_default(begin->lease_ms, LIMIT_LEASE_MS_DEFAULT);
    call->engine.wait_ms = begin->wait_ms;
    return OK;
}

static enum status take_begin(
    struct lib_call *call, const struct once_begin *begin, struct err *err)
{
    struct request *request = &call->engine.request;
    request->kind = REQUEST_BEGIN;
    request->key.scope = slice_str(begin->scope);
    request->key.principal = slice_str(begin->principal);
    request->key.key = slice_str(begin->key);
    request->source = (struct source){.type = slice_str(begin->source.type),
        .id = slice_str(begin->source.id),
        .version = slice_str(begin->source.version)};
    request->actor = slice_str(begin->actor);
    enum status status = record_key_seal(&request->key, err);
    status = status == OK ? take_policy(call, begin, err) : status;
    status = status == OK ? take_trace(call, begin->trace, begin->request_id, err) : status;
    return status == OK ? take_payload(call, begin, err) : status;
}

static enum status take_seal(struct lib_call *call, const struct once_seal *seal, struct err *err)
{
    struct request *request = &call->engine.request;
    request->kind = REQUEST_SEAL;
    if (seal->status != ONCE_EXECUTED && seal->status != ONCE_FAILED &&
        seal->status != ONCE_REJECTED) {
        return err_set(err, E_INVALID,
            "status is %d; it must be ONCE_EXECUTED, ONCE_FAILED or ONCE_REJECTED",
            (int)seal->status);
    }
    request->status = (enum record_status)seal->status;
    request->effect_id = slice_str(seal->effect_id);
    request->policy.window_ms = seal->ttl_ms;
    enum status status = take_holder(call, seal->operation_id, seal->fence, err);
    status = status == OK ? take_trace(call, NULL, seal->request_id, err) : status;
    return status == OK ? take_outcome(call, &seal->outcome, err) : status;
}

static enum status take_hold(
    struct lib_call *call, enum request_kind kind, const struct once_hold *hold, struct err *err)
{
    struct request *request = &call->engine.request;
    request->kind = kind;
    if (kind == REQUEST_RENEW) {
        request->policy.lease_ms = or_default(hold->lease_ms, LIMIT_LEASE_MS_DEFAULT);
    } else {
        request->reason = slice_str(hold->reason);
    }
    request->actor = slice_str(hold->actor);
    enum status status = take_holder(call, hold->operation_id, hold->fence, err);
    return status == OK ? take_trace(call, NULL, hold->request_id, err) : status;
}

static enum status take_resolve(
    struct lib_call *call, const struct once_resolve *resolve, struct err *err)
{
    struct request *request = &call->engine.request;
    const struct once_outcome *outcome = &resolve->outcome;
    bool released = resolve->status == ONCE_STATUS_RELEASED;
    request->kind = REQUEST_RESOLVE;
    if (resolve->status != ONCE_EXECUTED && resolve->status != ONCE_FAILED && !released) {
        return err_set(err, E_INVALID,
            "status is %d; it must be ONCE_EXECUTED, ONCE_FAILED or ONCE_STATUS_RELEASED",
            (int)resolve->status);
    }
    request->status = (enum record_status)resolve->status;
    request->fence = resolve->fence;
    request->effect_id = slice_str(resolve->effect_id);
    request->reason = slice_str(resolve->reason);
    request->actor = slice_str(resolve->actor);
    if (request->reason.len == 0) {
        return err_set(err, E_INVALID, "reason is missing: say who checked, and where");
    }
    if (released && (request->effect_id.len > 0 || outcome->code != 0 || outcome->meta.size > 0 ||
                        outcome->body.size > 0)) {
        return err_set(err, E_INVALID, "what was not executed has neither effect_id nor outcome");
    }
    enum status status = handle_operation_id(resolve->operation_id, &request->operation_id, err);
    status = status == OK ? take_trace(call, NULL, resolve->request_id, err) : status;
    return status == OK ? take_outcome(call, outcome, err) : status;
}

static enum status take_any(struct lib_call *call, const struct once_call *what, struct err *err)
{
    int set = (what->begin != NULL) + (what->seal != NULL) + (what->release != NULL) +
              (what->unknown != NULL) + (what->renew != NULL) + (what->resolve != NULL);
    if (set != 1) {
        return err_set(err, E_MISUSE,
            set == 0 ? "the request is NULL" : "more than one member of the call is set");
    }
    /* The tenant whose operations this handle may use (P9). */
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

/* Copies everything that the call borrows, because the caller's strings may be freed before the
 * answer comes. Called after the limits were checked, so that there is room. */
static enum status copy_inputs(struct lib_call *call)
{
    struct request *request = &call->engine.request;
    struct slice *borrowed[] = {&request->key.scope, &request->key.principal, &request->key.key,
        &request->source.type, &request->source.id, &request->source.version, &request->actor,
        &request->effect_id, &request->reason, &request->outcome.meta, &call->engine.request_body,
        &call->engine.outcome_body};
    enum status status = OK;
    for (size_t i = 0; i < COUNT(borrowed) && status == OK; i++) {
        status = arena_copy(&call->inputs, *borrowed[i], borrowed[i]);
    }
    return status;
}

/* ---- the life of a call -------------------------------------------------------------------- */

/* Reserves memory for the answer: after the commit it would be too late to run out of it. The
 * engine does the same for its own copy of the record. */
static enum status reserve(struct lib_call *call)
{
    call->reserve_bytes = answer_bytes_max() + call->engine.request.outcome.meta.len;
    if (call->effects != NULL) {
        call->reserve_bytes += seal_effects_bytes_max(&call->effects->list);
    }
    call->reserve = mem_alloc(&call->once->mem, call->reserve_bytes);
    return call->reserve == NULL ? E_NOMEM : OK;
}

static enum status take_effects(struct lib_call *call, const struct lib_ask *ask, struct err *err)
{
    return ask->effects == NULL || ask->what->seal == NULL
               ? OK
               : lib_effects_new(call->once, ask->what->seal, ask->effects, &call->effects, err);
}

enum status lib_call_init(
    struct lib_call *call, struct once *once, const struct lib_ask *ask, struct err *err)
{
    enum status status = handle_writes(once, err);
    if (status != OK) {
        return status;
    }
    *call = (struct lib_call){.once = once};
    arena_init(&call->inputs, &once->mem, INPUT_BYTES_MAX);
    arena_init(&call->answers, &once->mem, ANSWER_BYTES_MAX);
    call->engine.arena = &call->answers;
    status = take_any(call, ask->what, err);
    status = status == OK ? builder_check(&call->engine, err) : status;
    status = status == OK ? take_effects(call, ask, err) : status;
    status = status == OK && ask->copies ? copy_inputs(call) : status;
    status = status == OK ? reserve(call) : status;
    if (status != OK) {
        lib_call_release(call);
    }
    return status;
}

void lib_call_release(struct lib_call *call)
{
    lib_effects_free(call->once, call->effects);
    mem_free(&call->once->mem, call->reserve);
    arena_release(&call->inputs);
    arena_release(&call->answers);
}

/* The last of its parts to be decided completes the call. */
static void part_done(struct lib_call *call)
{
    if (atomic_fetch_sub(&call->left, 1) == 1) {
        call->all_done(call);
    }
}

static void first_done(struct engine_call *engine)
{
    part_done(CONTAINER_OF(engine, struct lib_call, engine));
}

static void effect_done(struct engine_call *engine)
{
    part_done(engine->context);
}

enum status lib_call_submit(
    struct lib_call *call, void (*done)(struct lib_call *call), struct err *err)
{
    struct engine_call *parts[1 + SEAL_EFFECTS_MAX] = {&call->engine};
    size_t count = 1;
    call->all_done = done;
    call->engine.done = first_done;
    for (size_t i = 0; call->effects != NULL && i < call->effects->list.count; i++) {
        struct engine_call *effect = call->effects->list.calls[i];
        effect->context = call;
        effect->done = effect_done;
        parts[count++] = effect;
    }
    atomic_store(&call->left, count);
    return count == 1 ? engine_submit(call->once->engine, &call->engine, err)
                      : engine_submit_all(call->once->engine, parts, count, err);
}

/* ---- and back ------------------------------------------------------------------------------ */

/* The expected decision; if the caller wants no answer, any other is E_STALE. */
static enum decision_kind expected_decision(enum request_kind kind)
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

/* The decision ends the operation's in_progress. */
static bool settles(enum decision_kind kind)
{
    return kind == DECISION_SEALED || kind == DECISION_RELEASED || kind == DECISION_UNKNOWN ||
           kind == DECISION_RESOLVED || kind == DECISION_HELD_UNKNOWN;
}

/* A diff that cannot be made is left out. */
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

/* Puts the answer into the reserve if it fits. The answer to a change always does. */
static struct once_answer *place_answer(struct lib_call *call, const struct answer_parts *parts)
{
    size_t bytes = answer_bytes(parts);
    void *place;
    if (bytes > call->reserve_bytes) {
        place = mem_alloc(&call->once->mem, bytes);
        return place == NULL ? NULL : answer_put(parts, place);
    }
    /* The reserve is for the longest names; release the unused part. */
    place = mem_resize(&call->once->mem, call->reserve, bytes);
    place = place == NULL ? call->reserve : place;
    call->reserve = NULL;
    return answer_put(parts, place);
}

static enum status make_answer(struct lib_call *call, const struct decision *decision,
    size_t effect_refused, struct once_answer **ret_answer)
{
    /* P7: a caller with a different payload learns nothing about the record. */
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
        .effect_refused = effect_refused,
    };
    if (call->effects != NULL && decision->kind == DECISION_SEALED) {
        parts.effects = lib_effects_document(call->effects, decision->next.sealed_ms);
    }
    enum status status = effect_refused > 0 ? OK : explain(call, &diff, &parts.diff_truncated);
    if (status == OK) {
        parts.diff = buf_view(&diff);
        struct once_answer *answer = place_answer(call, &parts);
        status = answer == NULL ? E_NOMEM : OK;
        *ret_answer = answer == NULL ? *ret_answer : answer;
    }
    buf_release(&diff);
    return status;
}

/* The seal and its effects did not happen. The answer is the decision that prevented them: the
 * seal's own, or the conflict of an effect. OK: *ret_decision is set. Else it failed. */
static enum status group_refusal(struct lib_call *call, const struct decision **ret_decision,
    size_t *ret_effect, struct err *err)
{
    const struct engine_call *engine = &call->engine;
    size_t at = call->effects == NULL ? 0 : lib_effects_refused(call->effects);
    if (call->effects != NULL && engine->refused && engine->decision.kind != DECISION_SEALED) {
        *ret_decision = &engine->decision;
        return OK;
    }
    if (at == 0) {
        *err = engine->err;
        return engine->err.status;
    }
    const struct engine_call *effect = call->effects->list.calls[at - 1];
    if (effect->decision.kind == DECISION_CONFLICT_REJECTED) {
        *ret_decision = &effect->decision;
        *ret_effect = at;
        return OK;
    }
    *err = effect->err;
    err_prefix(err, "effects[%zu]", at - 1);
    return effect->err.status;
}

enum status lib_call_answer(struct lib_call *call, struct once_answer **ret_answer, struct err *err)
{
    const struct decision *decision = &call->engine.decision;
    size_t effect_refused = 0;
    if (call->engine.err.status != OK) {
        enum status status = group_refusal(call, &decision, &effect_refused, err);
        if (status != OK) {
            return status;
        }
    } else if (settles(decision->kind)) {
        handle_settled(call->once);
    }
    if (ret_answer != NULL) {
        return make_answer(call, decision, effect_refused, ret_answer);
    }
    if (decision->kind != expected_decision(call->engine.request.kind)) {
        return err_set(err, E_STALE, "the answer to %s is %s",
            request_kind_name(call->engine.request.kind), decision_name(decision->kind));
    }
    return OK;
}
