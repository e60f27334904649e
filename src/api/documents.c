#include "api/documents.h"

#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/text.h"
#include "canon/jcs.h"
#include "engine/explain.h"
#include "engine/operation_document.h"

enum {
    PLAIN_BYTES = 512, /* of a document, without texts from outside */
    ESCAPED_BYTES = 6, /* of one byte as \u00XX */
};

/* ---- writing ------------------------------------------------------------------------------- */

static void put_id(struct buf *out, const struct op_id *id)
{
    char text[OP_ID_TEXT_BYTES];
    buf_append(out, op_id_put(text, id), OP_ID_TEXT_BYTES - 1);
}

static void put_time(struct buf *out, const char *name, int64_t ms)
{
    char text[TEXT_TIME_BYTES];
    buf_str(out, name);
    if (ms == 0) {
        buf_append(out, "null", 4);
        return;
    }
    buf_char(out, '"');
    buf_append(out, text_put_time(text, ms), TEXT_TIME_BYTES - 1);
    buf_char(out, '"');
}

/* {"decision":"…","operation_id":"op_… */
static void put_start(struct buf *out, const char *decision, const struct record *record)
{
    buf_str(out, "{\"decision\":\"");
    buf_str(out, decision);
    buf_str(out, "\",\"operation_id\":\"");
    put_id(out, &record->operation_id);
    buf_char(out, '"');
}

static void put_effect_id(struct buf *out, const struct record *record)
{
    buf_str(out, ",\"effect_id\":");
    if (record->effect_id.len > 0) {
        jcs_put_string(out, record->effect_id);
    } else {
        buf_str(out, "null");
    }
}

/* ---- decisions that are documents ---------------------------------------------------------- */

static void put_first_seen(
    struct api_call *call, struct buf *out, struct api_document *ret_document)
{
    const struct record *record = &call->door.engine.decision.next;
    put_start(out, "first_seen", record);
    buf_str(out, ",\"fence\":");
    buf_u64(out, record->fence);
    buf_str(out, ",\"attempt\":");
    buf_u64(out, record->attempt);
    put_time(out, ",\"lease_expires_at\":", record->lease_expires_ms);
    buf_char(out, '}');
    ret_document->status = 201;
    static const char prefix[] = "/v1/operations/";
    static_assert(sizeof prefix - 1 + OP_ID_TEXT_BYTES <= sizeof call->location, "it fits");
    memcpy(call->location, prefix, sizeof prefix - 1);
    (void)op_id_put(call->location + sizeof prefix - 1, &record->operation_id);
    ret_document->location = slice_str(call->location);
}

static void put_replay(struct api_call *call, struct buf *out, struct api_document *ret_document)
{
    const struct record *record = &call->door.engine.decision.next;
    struct jsonw json = {.out = out, .comma = true};
    put_start(out, "duplicate_replayed", record);
    jsonw_str(&json, "status", record_status_name(record->status));
    put_effect_id(out, record);
    operation_document_outcome(&json, record, call->door.engine.outcome, true);
    put_time(out, ",\"first_seen_at\":", record->created_ms);
    put_time(out, ",\"sealed_at\":", record->sealed_ms);
    put_time(out, ",\"window_expires_at\":", record->window_expires_ms);
    if (!operation_document_is_retained(record)) {
        buf_str(out, ",\"outcome_retained\":false");
    }
    buf_char(out, '}');
    ret_document->status = 200;
}

static void put_in_progress(
    struct api_call *call, struct buf *out, struct api_document *ret_document)
{
    const struct record *record = &call->door.engine.decision.next;
    ret_document->status = 202;
    ret_document->retry_after_ms = explain_retry_after_ms(&call->door.engine, EXPLAIN_RETRY_MS_MAX);
    put_start(out, "in_progress", record);
    buf_str(out, ",\"retry_after_ms\":");
    buf_i64(out, ret_document->retry_after_ms);
    buf_str(out, ",\"status_url\":\"/v1/operations/");
    put_id(out, &record->operation_id);
    buf_str(out, "\"}");
}

/* The effects of a seal; new ones are offered to the dispatcher. */
static void put_effects(struct api_call *call, struct buf *out)
{
    const struct api_outbox *outbox = &call->request->api->outbox;
    struct jsonw json = {.out = out, .comma = true};
    int64_t sealed_ms = call->door.engine.decision.next.sealed_ms;
    seal_effects_put(&json, "effects", &call->effects, sealed_ms);
    for (size_t i = 0; i < call->effects.count; i++) {
        const struct decision *decision = &call->effects.calls[i]->decision;
        if (decision->kind == DECISION_ENQUEUED) {
            outbox->made(outbox->state, &decision->next);
        }
    }
}

static void put_sealed(struct api_call *call, struct buf *out, struct api_document *ret_document)
{
    const struct record *record = &call->door.engine.decision.next;
    put_start(out, "sealed", record);
    buf_str(out, ",\"status\":\"");
    buf_str(out, record_status_name(record->status));
    buf_char(out, '"');
    put_effect_id(out, record);
    put_time(out, ",\"first_seen_at\":", record->created_ms);
    put_time(out, ",\"sealed_at\":", record->sealed_ms);
    put_time(out, ",\"window_expires_at\":", record->window_expires_ms);
    if (call->effects.count > 0) {
        put_effects(call, out);
    }
    buf_char(out, '}');
    ret_document->status = 200;
}

/* Released or unknown. */
static void put_ended(struct api_call *call, struct buf *out, struct api_document *ret_document)
{
    const struct record *record = &call->door.engine.decision.next;
    put_start(out, decision_name(call->door.engine.decision.kind), record);
    buf_str(out, ",\"status\":\"");
    buf_str(out, record_status_name(record->status));
    buf_str(out, "\",\"fence\":");
    buf_u64(out, record->fence);
    buf_str(out, ",\"attempt\":");
    buf_u64(out, record->attempt);
    buf_char(out, '}');
    ret_document->status = 200;
}

static void put_renewed(struct api_call *call, struct buf *out, struct api_document *ret_document)
{
    const struct record *record = &call->door.engine.decision.next;
    put_start(out, "renewed", record);
    buf_str(out, ",\"fence\":");
    buf_u64(out, record->fence);
    put_time(out, ",\"lease_expires_at\":", record->lease_expires_ms);
    buf_char(out, '}');
    ret_document->status = 200;
}

static void put_resolved(struct api_call *call, struct buf *out, struct api_document *ret_document)
{
    const struct decision *decision = &call->door.engine.decision;
    struct jsonw json = {.out = out};
    jsonw_open(&json, NULL, '{');
    jsonw_str(&json, "decision", "resolved");
    if (decision->repeated) {
        jsonw_bool(&json, "repeated", true);
    }
    operation_document_put(&json, &(struct operation_document){.record = &decision->next});
    jsonw_close(&json, '}');
    ret_document->status = 200;
}

/* ---- decisions that are problems ----------------------------------------------------------- */

/* An id that outlives the call. */
static struct slice id_text(struct api_call *call, const struct op_id *id)
{
    char *text = arena_alloc(call->request->exchange->arena, OP_ID_TEXT_BYTES);
    return text == NULL ? SLICE_EMPTY : slice_str(op_id_put(text, id));
}

/* If a diff cannot be made, it is null. */
static void put_conflict(struct api_call *call, struct api_document *ret_document)
{
    struct buf extra;
    bool truncated = false;
    buf_init(&extra, &call->request->mem, LIMIT_DIFF_BYTES_MAX + 64);
    buf_str(&extra, "\"diff\":");
    size_t start = extra.len;
    if (explain_conflict(&call->door.engine, call->request->api->mem, &extra, &truncated) != OK) {
        extra.len = start;
        buf_str(&extra, "null");
    }
    ret_document->diff_bytes = extra.len - start;
    buf_str(&extra, truncated ? ",\"diff_truncated\":true" : ",\"diff_truncated\":false");
    ret_document->problem = (struct problem){.status = 409,
        .code = "idempotency_conflict",
        .detail = SLICE_LIT("the key was used with a different payload; nothing was done"),
        .effect = PROBLEM_EFFECT_NO,
        .retry = PROBLEM_RETRY_NO,
        .operation_id = id_text(call, &call->door.engine.decision.next.operation_id),
        .extra = buf_status(&extra) == OK ? buf_view(&extra) : SLICE_EMPTY};
}

/* Refusals whose text does not depend on the operation, by decision. */
static const struct problem refusal_held_unknown = {.status = 409,
    .code = "outcome_unknown",
    .detail =
        SLICE_INIT("nobody knows whether the effect happened; it is held until somebody checks and "
                   "settles it"),
    .effect = PROBLEM_EFFECT_UNKNOWN,
    .retry = PROBLEM_RETRY_NO};
static const struct problem refusal_stale_version = {.status = 409,
    .code = "stale_version",
    .detail =
        SLICE_INIT("source.version is older than the last sealed one of that source; nothing was "
                   "done"),
    .effect = PROBLEM_EFFECT_NO,
    .retry = PROBLEM_RETRY_NO};
static const struct problem refusal_stale_fence = {.status = 409,
    .code = "stale_fence",
    .detail = SLICE_INIT("the fence is not the one of the current grant; nothing changed"),
    .effect = PROBLEM_EFFECT_NO,
    .retry = PROBLEM_RETRY_NO};
static const struct problem refusal_already_sealed = {.status = 409,
    .code = "already_sealed",
    .detail = SLICE_INIT("it was settled differently before; nothing changed"),
    .effect = PROBLEM_EFFECT_NO,
    .retry = PROBLEM_RETRY_NO};
static const struct problem refusal_still_running = {.status = 409,
    .code = "still_running",
    .detail = SLICE_INIT("its lease is alive; wait for it to end, or for its lease to run out"),
    .effect = PROBLEM_EFFECT_NO,
    .retry = PROBLEM_RETRY_AFTER};
static const struct problem refusal_not_found = {.status = 404,
    .code = "operation_not_found",
    .detail = SLICE_INIT("there is no such operation"),
    .effect = PROBLEM_EFFECT_NO,
    .retry = PROBLEM_RETRY_NO};

static void put_refusal(
    struct api_call *call, const struct problem *refusal, struct api_document *ret_document)
{
    const struct decision *decision = &call->door.engine.decision;
    ret_document->problem = *refusal;
    /* P9: "not found" reveals nothing about the id in the request. */
    if (decision->next.fence > 0 && decision->kind != DECISION_NOT_FOUND) {
        ret_document->problem.operation_id = id_text(call, &decision->next.operation_id);
    }
    if (decision->kind == DECISION_STILL_RUNNING) {
        ret_document->problem.retry_after_ms =
            explain_retry_after_ms(&call->door.engine, EXPLAIN_OPERATOR_MS_MAX);
    }
}

static void put_flood(struct api_call *call, struct api_document *ret_document)
{
    ret_document->problem = (struct problem){.status = 429,
        .code = "too_many_duplicates",
        .detail = SLICE_LIT("duplicates of this key come faster than limits.duplicate_rate"),
        .effect = PROBLEM_EFFECT_NO,
        .retry = PROBLEM_RETRY_AFTER,
        .retry_after_ms = call->flooded_ms};
}

/* ---- the document of a call ---------------------------------------------------------------- */

/* A decision. -Wswitch-enum: a new decision does not build until it has its document or refusal
 * here. */
static void put_decision(struct api_call *call, struct buf *out, struct api_document *ret_document)
{
    switch (call->door.engine.decision.kind) {
    case DECISION_FIRST_SEEN: put_first_seen(call, out, ret_document); return;
    case DECISION_DUPLICATE_REPLAYED: put_replay(call, out, ret_document); return;
    case DECISION_IN_PROGRESS: put_in_progress(call, out, ret_document); return;
    case DECISION_SEALED: put_sealed(call, out, ret_document); return;
    case DECISION_RELEASED:
    case DECISION_UNKNOWN: put_ended(call, out, ret_document); return;
    case DECISION_RENEWED: put_renewed(call, out, ret_document); return;
    case DECISION_RESOLVED: put_resolved(call, out, ret_document); return;
    case DECISION_CONFLICT_REJECTED: put_conflict(call, ret_document); return;
    case DECISION_HELD_UNKNOWN: put_refusal(call, &refusal_held_unknown, ret_document); return;
    case DECISION_STALE_VERSION: put_refusal(call, &refusal_stale_version, ret_document); return;
    case DECISION_STALE_FENCE: put_refusal(call, &refusal_stale_fence, ret_document); return;
    case DECISION_ALREADY_SEALED: put_refusal(call, &refusal_already_sealed, ret_document); return;
    case DECISION_STILL_RUNNING: put_refusal(call, &refusal_still_running, ret_document); return;
    case DECISION_NOT_FOUND: put_refusal(call, &refusal_not_found, ret_document); return;
    case DECISION_ENQUEUED: /* no request of the API leads to these */
    case DECISION_CLAIMED:
    case DECISION_DONE:
    case DECISION_NOT_DUE:
    case DECISION_TOO_LATE:
    case DECISION_WRONG_STATUS:
    case DECISION_NOTHING: break;
    }
    ret_document->problem = api_problem_decision;
}

/* The seal did not happen because one of its effects could not. False: the effects are not the
 * reason. */
static bool put_effect_refusal(struct api_call *call, struct api_document *ret_document)
{
    const struct engine_call *effect = seal_effects_refused(&call->effects);
    if (effect == NULL) {
        return false;
    }
    if (effect->decision.kind == DECISION_CONFLICT_REJECTED) {
        ret_document->problem = (struct problem){.status = 409,
            .code = "idempotency_conflict",
            .detail = SLICE_LIT("the key of an effect was used with a different payload; neither "
                                "the seal nor any of its effects was made"),
            .effect = PROBLEM_EFFECT_NO,
            .retry = PROBLEM_RETRY_NO};
    } else {
        ret_document->problem = api_problem_of(&effect->err);
    }
    return true;
}

enum status api_document_of(
    struct api_call *call, struct buf *out, struct api_document *ret_document)
{
    const struct engine_call *engine = &call->door.engine;
    size_t start = out->len;
    *ret_document = (struct api_document){0};
    if (call->is_unnamed) {
        ret_document->problem = refusal_not_found;
    } else if (call->flooded_ms > 0) {
        put_flood(call, ret_document);
    } else if (engine->err.status != OK && engine->refused &&
               engine->decision.kind != DECISION_SEALED) {
        put_decision(call, out, ret_document); /* of a group that did not happen: the reason */
    } else if (engine->err.status != OK && put_effect_refusal(call, ret_document)) {
        /* said */
    } else if (engine->err.status != OK) {
        ret_document->problem = api_problem_of(&engine->err);
    } else {
        put_decision(call, out, ret_document);
    }
    ret_document->is_problem = ret_document->problem.status != 0;
    if (ret_document->is_problem) {
        ret_document->status = ret_document->problem.status;
    } else if (buf_status(out) != OK) {
        out->len = start;
        out->status = OK;
        return E_NOMEM;
    }
    return OK;
}

size_t api_document_bytes_max(const struct api_call *call)
{
    switch (call->door.engine.request.kind) {
    case REQUEST_BEGIN:
    case REQUEST_RELEASE:
    case REQUEST_UNKNOWN:
    case REQUEST_RENEW: break;
    case REQUEST_SEAL:
        return PLAIN_BYTES + ESCAPED_BYTES * call->door.engine.request.effect_id.len +
               seal_effects_bytes_max(&call->effects);
    case REQUEST_RESOLVE: return PLAIN_BYTES + operation_document_bytes_max();
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
    return PLAIN_BYTES;
}
