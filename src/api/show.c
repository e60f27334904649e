#include "api/show.h"

#include <stdio.h>

#include "base/limits.h"
#include "base/text.h"
#include "canon/diff.h"
#include "canon/jcs.h"
#include "canon/payload.h"

enum {
    RETRY_AFTER_MS_MIN = 100,      /* asking more often than this is polling */
    RETRY_AFTER_MS_MAX = 1000,     /* asking once a second finds most outcomes soon enough */
    STILL_RUNNING_MS_MAX = 60000,  /* an operator looks again after a minute */
    PLAIN_BYTES = 512,             /* of a document but for texts that others chose */
    ESCAPED_BYTES = 6,             /* of one byte as \u00XX */
    OPERATION_PLAIN_BYTES = 1536,  /* of an operation, but for the same */
    DIFF_TREE_BYTES_MAX = 8 << 20, /* 128 times a kept body: more than two trees can need */
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

/* Whether an outcome can stand in a document as it is. Its mark says that it came as JSON; that it
 * ends where it should is looked at, because other doors may write any mark. */
static bool is_json(const struct outcome *outcome, struct slice body)
{
    return slice_equal(outcome->meta, ASK_OUTCOME_META) && json_framed(body) && text_utf8(body);
}

/* An outcome: as it came; or, from another door, in parts; or null. */
static void put_outcome(struct jsonw *json, const struct record *record, struct slice body)
{
    const struct outcome *outcome = &record->outcome;
    bool lost = outcome->body.bytes > 0 && !outcome->body.retained;
    bool ours = slice_equal(outcome->meta, ASK_OUTCOME_META);
    if (!record_status_sealed(record->status) || (ours && lost) ||
        (outcome->body.bytes == 0 && outcome->meta.len == 0 && outcome->code == 0)) {
        jsonw_raw(json, "outcome", SLICE_LIT("null"));
        return;
    }
    if (is_json(outcome, body)) {
        jsonw_raw(json, "outcome", body);
        return;
    }
    jsonw_open(json, "outcome", '{');
    jsonw_i64(json, "code", outcome->code);
    jsonw_bytes(json, "meta", outcome->meta);
    if (lost) {
        jsonw_u64(json, "bytes", outcome->body.bytes);
    } else {
        jsonw_bytes(json, "body", body);
    }
    jsonw_close(json, '}');
}

static bool is_retained(const struct record *record)
{
    return record->outcome.body.bytes == 0 || record->outcome.body.retained;
}

/* ---- operations ---------------------------------------------------------------------------- */

static void put_null_time(struct jsonw *json, const char *name, int64_t ms)
{
    if (ms == 0) {
        jsonw_raw(json, name, SLICE_LIT("null"));
    } else {
        jsonw_time(json, name, ms);
    }
}

static void put_null_text(struct jsonw *json, const char *name, struct slice text)
{
    if (text.len == 0) {
        jsonw_raw(json, name, SLICE_LIT("null"));
    } else {
        jsonw_bytes(json, name, text);
    }
}

static void put_source(struct jsonw *json, const struct source *source)
{
    if (source->type.len + source->id.len + source->version.len == 0) {
        jsonw_raw(json, "source", SLICE_LIT("null"));
        return;
    }
    jsonw_open(json, "source", '{');
    jsonw_bytes(json, "type", source->type);
    jsonw_bytes(json, "id", source->id);
    if (source->version.len > 0) {
        jsonw_bytes(json, "version", source->version);
    }
    jsonw_close(json, '}');
}

/* Who, what and how often. */
static void put_names(struct jsonw *json, const struct record *record)
{
    char id[OP_ID_TEXT_BYTES];
    jsonw_str(json, "operation_id", op_id_put(id, &record->operation_id));
    jsonw_str(json, "status", record_status_name(record->status));
    jsonw_bytes(json, "tenant", record->key.tenant);
    jsonw_bytes(json, "scope", record->key.scope);
    if (record->key.principal.len > 0) {
        jsonw_bytes(json, "principal", record->key.principal);
    }
    jsonw_bytes(json, "key", record->key.key);
    jsonw_u64(json, "fence", record->fence);
    jsonw_u64(json, "attempt", record->attempt);
    jsonw_u64(json, "duplicates", record->duplicates);
}

static void put_times(struct jsonw *json, const struct record *record)
{
    jsonw_time(json, "created_at", record->created_ms);
    jsonw_time(json, "first_seen_at", record->created_ms);
    jsonw_time(json, "updated_at", record->updated_ms);
    put_null_time(json, "sealed_at", record->sealed_ms);
    put_null_time(json, "lease_expires_at", record->lease_expires_ms);
    put_null_time(json, "window_expires_at", record->window_expires_ms);
}

static void put_bodies(struct jsonw *json, const struct show_operation *operation)
{
    const struct record *record = operation->record;
    put_outcome(json, record, operation->outcome_body);
    if (operation->request_body.len == 0) {
        return;
    }
    if (record->fingerprint_version == FINGERPRINT_CANONICAL) {
        jsonw_raw(json, "request", operation->request_body);
    } else {
        jsonw_bytes(json, "request", operation->request_body);
    }
}

void show_operation(struct jsonw *json, const struct show_operation *operation)
{
    const struct record *record = operation->record;
    char hex[DIGEST_HEX_BYTES];
    put_names(json, record);
    put_times(json, record);
    put_null_text(json, "effect_id", record->effect_id);
    put_null_text(json, "reason", record->reason);
    jsonw_str(json, "fingerprint", digest_put_hex(hex, &record->fingerprint));
    put_source(json, &record->source);
    jsonw_raw(json, "trace", record->trace.len > 0 ? record->trace : SLICE_LIT("null"));
    if (record_status_sealed(record->status)) {
        jsonw_bool(json, "outcome_retained", is_retained(record));
    } else {
        jsonw_raw(json, "outcome_retained", SLICE_LIT("null"));
    }
    if (operation->with_bodies) {
        put_bodies(json, operation);
    }
}

size_t show_operation_bytes_max(const struct show_operation *operation)
{
    const struct record *record = operation->record;
    size_t chosen = record->key.tenant.len + record->key.scope.len + record->key.principal.len +
                    record->key.key.len + record->effect_id.len + record->reason.len +
                    record->source.type.len + record->source.id.len + record->source.version.len;
    size_t bodies =
        operation->with_bodies
            ? operation->outcome_body.len + operation->request_body.len + record->outcome.meta.len
            : 0;
    return OPERATION_PLAIN_BYTES + record->trace.len + ESCAPED_BYTES * (chosen + bodies);
}

/* ---- decisions that are documents ---------------------------------------------------------- */

static void show_first_seen(struct api_call *call, struct buf *out, struct shown *ret_shown)
{
    const struct record *record = &call->door.engine.decision.next;
    put_start(out, "first_seen", record);
    buf_str(out, ",\"fence\":");
    buf_u64(out, record->fence);
    buf_str(out, ",\"attempt\":");
    buf_u64(out, record->attempt);
    put_time(out, ",\"lease_expires_at\":", record->lease_expires_ms);
    buf_char(out, '}');
    ret_shown->status = 201;
    char id[OP_ID_TEXT_BYTES];
    (void)snprintf(call->location, sizeof call->location, "/v1/operations/%s",
        op_id_put(id, &record->operation_id));
    ret_shown->location = slice_str(call->location);
}

static void show_replay(struct api_call *call, struct buf *out, struct shown *ret_shown)
{
    const struct record *record = &call->door.engine.decision.next;
    struct jsonw json = {.out = out, .comma = true};
    put_start(out, "duplicate_replayed", record);
    jsonw_str(&json, "status", record_status_name(record->status));
    put_effect_id(out, record);
    put_outcome(&json, record, call->door.engine.outcome);
    put_time(out, ",\"first_seen_at\":", record->created_ms);
    put_time(out, ",\"sealed_at\":", record->sealed_ms);
    put_time(out, ",\"window_expires_at\":", record->window_expires_ms);
    if (!is_retained(record)) {
        buf_str(out, ",\"outcome_retained\":false");
    }
    buf_char(out, '}');
    ret_shown->status = 200;
}

/* Until the lease is over, by the engine's time: the wall clock may have jumped. */
static int64_t retry_after_ms(const struct engine_call *call, int64_t ms_max)
{
    int64_t left = call->decision.next.lease_expires_ms - call->now_ms;
    left = left < RETRY_AFTER_MS_MIN ? RETRY_AFTER_MS_MIN : left;
    return left > ms_max ? ms_max : left;
}

static void show_in_progress(struct api_call *call, struct buf *out, struct shown *ret_shown)
{
    const struct record *record = &call->door.engine.decision.next;
    ret_shown->status = 202;
    ret_shown->retry_after_ms = retry_after_ms(&call->door.engine, RETRY_AFTER_MS_MAX);
    put_start(out, "in_progress", record);
    buf_str(out, ",\"retry_after_ms\":");
    buf_i64(out, ret_shown->retry_after_ms);
    buf_str(out, ",\"status_url\":\"/v1/operations/");
    put_id(out, &record->operation_id);
    buf_str(out, "\"}");
}

static void show_sealed(struct api_call *call, struct buf *out, struct shown *ret_shown)
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
    buf_char(out, '}');
    ret_shown->status = 200;
}

/* Released or unknown. */
static void show_ended(struct api_call *call, struct buf *out, struct shown *ret_shown)
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
    ret_shown->status = 200;
}

static void show_renewed(struct api_call *call, struct buf *out, struct shown *ret_shown)
{
    const struct record *record = &call->door.engine.decision.next;
    put_start(out, "renewed", record);
    buf_str(out, ",\"fence\":");
    buf_u64(out, record->fence);
    put_time(out, ",\"lease_expires_at\":", record->lease_expires_ms);
    buf_char(out, '}');
    ret_shown->status = 200;
}

static void show_resolved(struct api_call *call, struct buf *out, struct shown *ret_shown)
{
    struct jsonw json = {.out = out};
    struct show_operation operation = {.record = &call->door.engine.decision.next};
    jsonw_open(&json, NULL, '{');
    jsonw_str(&json, "decision", "resolved");
    show_operation(&json, &operation);
    jsonw_close(&json, '}');
    ret_shown->status = 200;
}

/* ---- and those that are problems ----------------------------------------------------------- */

/* An id that outlives the call. */
static struct slice id_text(struct api_call *call, const struct op_id *id)
{
    char *text = arena_alloc(call->ask->exchange->arena, OP_ID_TEXT_BYTES);
    return text == NULL ? SLICE_EMPTY : slice_str(op_id_put(text, id));
}

/* How this payload differs from the first, when both are kept and JSON. */
static enum status put_diff(struct api_call *call, struct buf *out, bool *ret_truncated)
{
    const struct engine_call *engine = &call->door.engine;
    if (engine->first_body.len == 0 || engine->request_body.len == 0 ||
        engine->request.fingerprint_version != FINGERPRINT_CANONICAL ||
        engine->decision.next.fingerprint_version != FINGERPRINT_CANONICAL) {
        return E_INVALID;
    }
    struct arena trees;
    const struct json_value *first;
    const struct json_value *this;
    arena_init(&trees, call->ask->api->mem, DIFF_TREE_BYTES_MAX);
    enum status status = json_read(engine->first_body, &trees, &first, NULL);
    status = status == OK ? json_read(engine->request_body, &trees, &this, NULL) : status;
    if (status == OK) {
        struct diff_options options = {.bytes_max = LIMIT_DIFF_BYTES_MAX};
        status = diff_write(first, this, &options, out, ret_truncated, NULL);
    }
    arena_release(&trees);
    return status;
}

/* A diff that cannot be made is only missing: null. */
static void show_conflict(struct api_call *call, struct shown *ret_shown)
{
    struct buf extra;
    bool truncated = false;
    buf_init(&extra, &call->ask->mem, LIMIT_DIFF_BYTES_MAX + 64);
    buf_str(&extra, "\"diff\":");
    size_t start = extra.len;
    if (put_diff(call, &extra, &truncated) != OK) {
        extra.len = start;
        buf_str(&extra, "null");
    }
    ret_shown->diff_bytes = extra.len - start;
    buf_str(&extra, truncated ? ",\"diff_truncated\":true" : ",\"diff_truncated\":false");
    ret_shown->problem = (struct problem){.status = 409,
        .code = "idempotency_conflict",
        .detail = SLICE_LIT("the key was used with another payload; nothing was done"),
        .effect = PROBLEM_EFFECT_NO,
        .retry = PROBLEM_RETRY_NO,
        .operation_id = id_text(call, &call->door.engine.decision.next.operation_id),
        .extra = buf_status(&extra) == OK ? buf_view(&extra) : SLICE_EMPTY};
}

/* Refusals that say the same whatever they are about. */
static const struct refusal {
    const char *decision; /* decision_name */
    unsigned status;
    const char *code;
    const char *detail;
    enum problem_effect effect;
    enum problem_retry retry;
} refusals[] = {
    {"held_unknown", 409, "outcome_unknown",
        "nobody knows whether the effect happened; it is held until somebody looks and settles it",
        PROBLEM_EFFECT_UNKNOWN, PROBLEM_RETRY_NO},
    {"stale_version", 409, "stale_version",
        "source.version is older than the last sealed one of that source; nothing was done",
        PROBLEM_EFFECT_NO, PROBLEM_RETRY_NO},
    {"stale_fence", 409, "stale_fence",
        "the fence is not the one of the current grant; nothing changed", PROBLEM_EFFECT_NO,
        PROBLEM_RETRY_NO},
    {"already_sealed", 409, "already_sealed", "it was settled differently before; nothing changed",
        PROBLEM_EFFECT_NO, PROBLEM_RETRY_NO},
    {"still_running", 409, "still_running",
        "its lease is alive; wait for it to end, or for its lease to run out", PROBLEM_EFFECT_NO,
        PROBLEM_RETRY_AFTER},
    {"not_found", 404, "operation_not_found", "there is no such operation", PROBLEM_EFFECT_NO,
        PROBLEM_RETRY_NO},
};

static struct problem refusal_problem(const char *decision)
{
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        if (strcmp(refusals[i].decision, decision) == 0) {
            return (struct problem){.status = refusals[i].status,
                .code = refusals[i].code,
                .detail = slice_str(refusals[i].detail),
                .effect = refusals[i].effect,
                .retry = refusals[i].retry};
        }
    }
    return (struct problem){.status = 500,
        .code = "internal",
        .detail = SLICE_LIT("the engine decided what this request cannot lead to"),
        .effect = PROBLEM_EFFECT_UNKNOWN,
        .retry = PROBLEM_RETRY_NO};
}

static void show_refusal(struct api_call *call, struct shown *ret_shown)
{
    const struct decision *decision = &call->door.engine.decision;
    struct problem problem = refusal_problem(decision_name(decision->kind));
    /* P9: what is not there is answered without a word of what was asked for. */
    if (decision->next.fence > 0 && decision->kind != DECISION_NOT_FOUND) {
        problem.operation_id = id_text(call, &decision->next.operation_id);
    }
    if (decision->kind == DECISION_STILL_RUNNING) {
        problem.retry_after_ms = retry_after_ms(&call->door.engine, STILL_RUNNING_MS_MAX);
    }
    ret_shown->problem = problem;
}

static void show_flood(struct api_call *call, struct shown *ret_shown)
{
    ret_shown->problem = (struct problem){.status = 429,
        .code = "too_many_duplicates",
        .detail = SLICE_LIT("duplicates of this key come faster than limits.duplicate_rate"),
        .effect = PROBLEM_EFFECT_NO,
        .retry = PROBLEM_RETRY_AFTER,
        .retry_after_ms = call->flooded_ms};
}

/* ---- one of them --------------------------------------------------------------------------- */

typedef void (*show_function)(struct api_call *call, struct buf *out, struct shown *ret_shown);

/* The document of a decision, or NULL when it is a problem. */
static show_function document_of(enum decision_kind kind)
{
    static const struct {
        enum decision_kind kind;
        show_function show;
    } documents[] = {
        {DECISION_FIRST_SEEN, show_first_seen},
        {DECISION_DUPLICATE_REPLAYED, show_replay},
        {DECISION_IN_PROGRESS, show_in_progress},
        {DECISION_SEALED, show_sealed},
        {DECISION_RELEASED, show_ended},
        {DECISION_UNKNOWN, show_ended},
        {DECISION_RENEWED, show_renewed},
        {DECISION_RESOLVED, show_resolved},
    };
    for (size_t i = 0; i < sizeof documents / sizeof documents[0]; i++) {
        if (documents[i].kind == kind) {
            return documents[i].show;
        }
    }
    return NULL;
}

static enum status show_document(
    show_function show, struct api_call *call, struct buf *out, struct shown *ret_shown)
{
    size_t start = out->len;
    show(call, out, ret_shown);
    enum status status = buf_status(out);
    if (status != OK) {
        out->len = start;
        out->status = OK;
        return E_NOMEM;
    }
    return OK;
}

enum status show_call(struct api_call *call, struct buf *out, struct shown *ret_shown)
{
    *ret_shown = (struct shown){0};
    const struct engine_call *engine = &call->door.engine;
    show_function show = call->is_unnamed || call->flooded_ms > 0 || engine->err.status != OK
                             ? NULL
                             : document_of(engine->decision.kind);
    if (show != NULL) {
        return show_document(show, call, out, ret_shown);
    }
    ret_shown->is_problem = true;
    if (call->is_unnamed) {
        ret_shown->problem = refusal_problem("not_found");
    } else if (call->flooded_ms > 0) {
        show_flood(call, ret_shown);
    } else if (engine->err.status != OK) {
        ret_shown->problem = api_problem_of(&engine->err);
    } else if (engine->decision.kind == DECISION_CONFLICT_REJECTED) {
        show_conflict(call, ret_shown);
    } else {
        show_refusal(call, ret_shown);
    }
    ret_shown->status = ret_shown->problem.status;
    return OK;
}

size_t show_bytes_max(const struct api_call *call)
{
    enum {
        NAMES = LIMIT_TENANT_BYTES_MAX + LIMIT_SCOPE_BYTES_MAX + LIMIT_PRINCIPAL_BYTES_MAX +
                LIMIT_KEY_BYTES_MAX + LIMIT_EFFECT_ID_BYTES_MAX + LIMIT_REASON_BYTES_MAX +
                3 * LIMIT_SOURCE_BYTES_MAX,
    };
    switch (call->door.engine.request.kind) {
    case REQUEST_BEGIN:
    case REQUEST_RELEASE:
    case REQUEST_UNKNOWN:
    case REQUEST_RENEW: break;
    case REQUEST_SEAL: return PLAIN_BYTES + ESCAPED_BYTES * call->door.engine.request.effect_id.len;
    case REQUEST_RESOLVE:
        return PLAIN_BYTES + OPERATION_PLAIN_BYTES + LIMIT_TRACE_BYTES_MAX + ESCAPED_BYTES * NAMES;
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
