/*
 * POST /v1/effects: the life of one arrival.
 *
 *     read > admit > submit > (engine) > offer > answer, or wait for its end > answer
 *
 * If it can be sent at once, the dispatcher claims it in the same commit, and need not be offered
 * it. The answer is the same: it says what this request did.
 *
 * A crash before the commit: nothing happened, and no answer was sent. After it and before the
 * answer: the effect exists, and is sent, or is unknown because it was claimed; the same envelope
 * finds it again.
 */
#include <stdio.h>

#include "api/body.h"
#include "base/limits.h"
#include "base/macros.h"
#include "canon/diff.h"
#include "canon/jcs.h"
#include "dispatch/dispatch.h"
#include "effect/impl.h"

enum {
    ANSWER_BYTES = 4096, /* of a 202: ids, and a key of at most 255 bytes, escaped */
    RETRY_AFTER_MS = 1000,
    TREE_BYTES_MAX = 256 << 20,
    POINTER_BYTES_MAX = 1024,
};

/* One arrival, in the exchange's arena. */
struct arrival {
    struct door_call door;
    struct api_request *request;
    struct effect_order order;
    struct buf answer; /* has room for a 202 before the engine is called */
    int64_t wait_ms;   /* left to wait for its end; 0: do not wait */
    bool is_made;      /* it was the first, and has been offered already … */
    struct op_id id;   /* … as this effect */
    bool is_claimed;   /* the dispatcher has it, if it was the first */
    struct dispatch_start start;
    struct engine_call *calls[2]; /* with the dispatcher's claim … */
    struct door_group group;      /* … in one commit */
};

static struct effects *effects_of(const struct arrival *arrival)
{
    return arrival->request->state;
}

/* ---- out --------------------------------------------------------------------------------- */

static void report_decision(struct arrival *arrival, unsigned status, size_t diff_bytes)
{
    const struct api_request *request = arrival->request;
    if (arrival->is_made) { /* whatever it found when it had waited */
        arrival->door.engine.decision.kind = DECISION_ENQUEUED;
    }
    struct door_report report = {.call = &arrival->door.engine,
        .rate = {request->policy->duplicate_rate, request->policy->duplicate_burst},
        .was_counted = arrival->door.is_counted,
        .tenant = request->caller.tenant,
        .actor = request->caller.actor,
        .request_id = request->exchange->request_id,
        .status = status,
        .diff_bytes = diff_bytes,
        .started_nanos = request->exchange->started_nanos,
        .logs = request->policy->logs_decisions};
    door_report(effects_of(arrival)->door, request->exchange->loop, &report);
}

/* The effect's id, as its document has it: the caller may have given one. */
static struct slice name_of(
    const struct record *record, struct arena *arena, char id[KIND_ID_TEXT_BYTES])
{
    struct effect_detail detail = {.ordinal = 0};
    struct err err;
    if (effect_detail_may_have(record->detail, "effect_id")) {
        /* An invalid detail is reported when the whole effect is shown; the id is enough here. */
        (void)!effect_detail_decode(record->detail, arena, &detail, &err);
    }
    return effect_name(record, &detail, id);
}

/* The effect exists and is not settled yet. */
static void answer_accepted(struct arrival *arrival)
{
    struct api_request *request = arrival->request;
    const struct record *record = &arrival->door.engine.decision.next;
    struct jsonw json = {.out = &arrival->answer};
    char id[KIND_ID_TEXT_BYTES];
    char url[64];
    (void)snprintf(
        url, sizeof url, "/v1/effects/%s", kind_id_put(id, RECORD_EFFECT, &record->operation_id));
    jsonw_open(&json, NULL, '{');
    jsonw_str(&json, "decision",
        arrival->is_made ? "first_seen" : decision_name(arrival->door.engine.decision.kind));
    jsonw_bytes(&json, "effect_id", name_of(record, request->exchange->arena, id));
    jsonw_bytes(&json, "idempotency_key", record->key.key);
    jsonw_str(&json, "status", kind_word(RECORD_EFFECT, record->status, record->attempt));
    if (kind_uncertain(RECORD_EFFECT, record->status)) {
        jsonw_bool(&json, "uncertain", true);
    }
    jsonw_str(&json, "status_url", url);
    jsonw_close(&json, '}');
    report_decision(arrival, 202, 0);
    api_answer_begin(request, 202);
    http_answer_field(request->exchange, SLICE_LIT("Location"), slice_str(url));
    api_answer_end(request, SLICE_LIT("application/json"), buf_view(&arrival->answer), true);
}

/* The first effect's {"payload":…,"target":…}: whole while it is kept, redacted afterwards. */
static enum status first_form(
    struct arrival *arrival, struct arena *trees, const struct json_value **ret_form)
{
    const struct engine_call *call = &arrival->door.engine;
    const struct record *record = &call->decision.next;
    struct mem mem = arena_mem(trees);
    struct effect_detail detail;
    struct buf out;
    struct err err;
    enum status status = effect_detail_decode(record->detail, trees, &detail, &err);
    struct slice sealed = call->first_body.len > 0 ? call->first_body : detail.redacted;
    if (status != OK || sealed.len == 0) {
        return E_INVALID;
    }
    buf_init(&out, &mem, TREE_BYTES_MAX);
    buf_str(&out, "{\"payload\":");
    status = effect_open(effects_of(arrival)->vault, &record->key, sealed, &out, &err);
    if (status == OK && detail.target.len > 0) {
        buf_str(&out, ",\"target\":");
        buf_slice(&out, detail.target);
    }
    buf_char(&out, '}');
    status = status == OK ? buf_status(&out) : status;
    return status == OK ? json_read(buf_view(&out), trees, ret_form, &err) : status;
}

/* How this one differs, without any redacted value. */
static enum status put_diff(struct arrival *arrival, struct buf *out, bool *ret_truncated)
{
    struct arena trees;
    const struct json_value *first, *now;
    struct slice redact[CONFIG_POINTERS_MAX];
    struct config *config = effects_config(effects_of(arrival));
    const struct config_effect *type =
        config_effect_find(&config->effects, arrival->door.engine.request.key.scope);
    size_t count = type == NULL ? 0 : type->redact_count;
    arena_init(&trees, effects_of(arrival)->mem, TREE_BYTES_MAX);
    enum status status = first_form(arrival, &trees, &first);
    status = status == OK ? json_read(arrival->order.form, &trees, &now, NULL) : status;
    for (size_t i = 0; status == OK && i < count; i++) {
        char *text = arena_alloc(&trees, POINTER_BYTES_MAX);
        int len =
            text == NULL ? -1 : snprintf(text, POINTER_BYTES_MAX, "/payload%s", type->redact[i]);
        status = len < 0 || len >= POINTER_BYTES_MAX ? E_NOMEM : OK;
        redact[i] = slice_of(text, len < 0 ? 0 : (size_t)len);
    }
    struct diff_options options = {
        .redact = redact, .redact_count = count, .bytes_max = LIMIT_DIFF_BYTES_MAX};
    status = status == OK ? diff_write(first, now, &options, out, ret_truncated, NULL) : status;
    arena_release(&trees);
    config_free(config);
    return status;
}

static void answer_conflict(struct arrival *arrival)
{
    struct buf extra;
    bool truncated = false;
    char id[KIND_ID_TEXT_BYTES];
    const struct record *record = &arrival->door.engine.decision.next;
    buf_init(&extra, &arrival->request->mem, LIMIT_DIFF_BYTES_MAX + ANSWER_BYTES);
    buf_str(&extra, "\"effect_id\":");
    jcs_put_string(&extra, name_of(record, arrival->request->exchange->arena, id));
    buf_str(&extra, ",\"diff\":");
    size_t start = extra.len;
    if (put_diff(arrival, &extra, &truncated) != OK) {
        extra.len = start;
        extra.status = OK;
        buf_str(&extra, "null");
    }
    size_t diff_bytes = extra.len - start;
    buf_str(&extra, truncated ? ",\"diff_truncated\":true" : ",\"diff_truncated\":false");
    report_decision(arrival, 409, diff_bytes);
    api_refuse(arrival->request,
        &(struct problem){.status = 409,
            .code = "idempotency_conflict",
            .detail = SLICE_LIT("the key was used with a different payload; nothing was done"),
            .effect = PROBLEM_EFFECT_NO,
            .retry = PROBLEM_RETRY_NO,
            .operation_id = slice_str(kind_id_put(id, RECORD_EFFECT, &record->operation_id)),
            .extra = buf_status(&extra) == OK ? buf_view(&extra) : SLICE_EMPTY});
}

static void answer_settled(struct arrival *arrival)
{
    struct effect_show show = {
        .id = arrival->is_made ? arrival->id : arrival->door.engine.decision.next.operation_id,
        .status = 200,
        .decision = arrival->is_made ? "first_seen" : "duplicate_replayed"};
    report_decision(arrival, 200, 0);
    effects_show(arrival->request, &show);
}

static void submit(struct arrival *arrival);

/* Submit the same arrival again, to wait for the end of the effect. It is no duplicate. */
static void wait_for_end(struct arrival *arrival)
{
    arrival->door.engine.looks_only = true;
    arrival->door.is_counted = true; /* for the rate of duplicates, either */
    arrival->door.engine.wait_ms = arrival->wait_ms;
    arrival->wait_ms = 0;
    submit(arrival);
}

static void answer_enqueued(struct arrival *arrival)
{
    arrival->is_made = true;
    arrival->id = arrival->door.engine.decision.next.operation_id;
    if (!arrival->is_claimed) {
        effects_offer(effects_of(arrival), arrival->request->exchange->loop,
            &arrival->door.engine.decision.next);
    }
    if (arrival->wait_ms > 0) {
        wait_for_end(arrival);
    } else {
        answer_accepted(arrival);
    }
}

/* -Wswitch-enum: a new decision does not build until it has its answer here. */
static void answer(struct arrival *arrival)
{
    struct engine_call *call = &arrival->door.engine;
    if (call->err.status != OK) {
        struct problem problem = api_problem_of(&call->err);
        report_decision(arrival, problem.status, 0);
        api_refuse(arrival->request, &problem);
        return;
    }
    switch (call->decision.kind) {
    case DECISION_ENQUEUED: answer_enqueued(arrival); return;
    case DECISION_IN_PROGRESS:
    case DECISION_HELD_UNKNOWN: answer_accepted(arrival); return;
    case DECISION_CONFLICT_REJECTED: answer_conflict(arrival); return;
    case DECISION_DUPLICATE_REPLAYED:
    case DECISION_NOTHING: answer_settled(arrival); return; /* settled, and its window is over */
    case DECISION_FIRST_SEEN:                               /* not to an enqueue without a source */
    case DECISION_SEALED:
    case DECISION_RELEASED:
    case DECISION_UNKNOWN:
    case DECISION_RENEWED:
    case DECISION_RESOLVED:
    case DECISION_NOT_FOUND:
    case DECISION_STALE_FENCE:
    case DECISION_ALREADY_SEALED:
    case DECISION_STILL_RUNNING:
    case DECISION_STALE_VERSION:
    case DECISION_CLAIMED:
    case DECISION_DONE:
    case DECISION_NOT_DUE:
    case DECISION_TOO_LATE:
    case DECISION_WRONG_STATUS: break;
    }
    report_decision(arrival, api_problem_decision.status, 0);
    api_refuse(arrival->request, &api_problem_decision);
}

/* ---- in ---------------------------------------------------------------------------------- */

static void resume(void *context, struct http_exchange *exchange)
{
    (void)context;
    answer(exchange->state);
}

static void done(struct engine_call *call)
{
    http_wake(call->context);
}

static void refused(struct door_call *call)
{
    answer(CONTAINER_OF(call, struct arrival, door));
}

static void refused_both(struct door_group *group, const struct err *err)
{
    struct arrival *arrival = CONTAINER_OF(group, struct arrival, group);
    dispatch_claim_refused(arrival->calls[1], err);
    arrival->door.engine.err = *err;
    answer(arrival);
}

static void submit_one(struct arrival *arrival)
{
    arrival->door.refused = refused;
    door_submit(effects_of(arrival)->door, arrival->request->exchange->loop, &arrival->door);
}

static void on_ready(struct dispatch_start *start, struct engine_call *claim)
{
    struct arrival *arrival = CONTAINER_OF(start, struct arrival, start);
    if (claim == NULL) {
        submit_one(arrival);
        return;
    }
    arrival->is_claimed = true;
    arrival->calls[0] = &arrival->door.engine;
    arrival->calls[1] = claim;
    arrival->group =
        (struct door_group){.calls = arrival->calls, .count = 2, .refused = refused_both};
    door_submit_group(effects_of(arrival)->door, arrival->request->exchange->loop, &arrival->group);
}

static void submit(struct arrival *arrival)
{
    struct http_exchange *exchange = arrival->request->exchange;
    const struct effects *effects = effects_of(arrival);
    struct engine_call *call = &arrival->door.engine;
    exchange->state = arrival;
    exchange->resume = resume;
    call->context = exchange;
    call->done = done;
    if (effects->dispatch == NULL) {
        submit_one(arrival);
        return;
    }
    arrival->start =
        (struct dispatch_start){.enqueue = call, .body = arrival->order.payload, .ready = on_ready};
    dispatch_start_with(effects->dispatch, exchange->loop, &arrival->start);
}

static void refuse_envelope(
    struct api_request *request, enum status status, const struct member_fault *fault)
{
    if (status == E_NOMEM) {
        api_fail_memory(request);
    } else if (status == E_INVALID) {
        api_refuse_plain(request, effect_fault_status(fault),
            fault->code == NULL ? "invalid_member" : fault->code, fault->err.text);
    } else {
        api_fail(request, &fault->err);
    }
}

static bool admit(struct arrival *arrival)
{
    const struct api_request *request = arrival->request;
    struct flood_rate rate = {request->policy->duplicate_rate, request->policy->duplicate_burst};
    int64_t after_ms = 0;
    if (door_admit(effects_of(arrival)->door, &arrival->door.engine.request.key, rate, &after_ms)) {
        return true;
    }
    api_refuse(arrival->request,
        &(struct problem){.status = 429,
            .code = "too_many_duplicates",
            .detail = SLICE_LIT("duplicates of this key come faster than limits.duplicate_rate"),
            .effect = PROBLEM_EFFECT_NO,
            .retry = PROBLEM_RETRY_AFTER,
            .retry_after_ms = after_ms});
    return false;
}

void effect_create(struct api_request *request)
{
    const struct json_value *body;
    struct member_fault fault;
    struct arrival *arrival = arena_zalloc(request->exchange->arena, sizeof *arrival);
    if (arrival == NULL) {
        api_fail_memory(request);
        return;
    }
    if (!api_body_json(request, &body)) {
        return;
    }
    arrival->request = request;
    struct config *config = effects_config(request->state);
    struct effect_sender sender = effects_sender(request->state, request, config);
    enum status status =
        effect_envelope_read(&sender, body, &arrival->door.engine, &arrival->order, &fault);
    arrival->order.type = NULL; /* belongs to the configuration, which may be freed meanwhile */
    config_free(config);
    if (status != OK) {
        refuse_envelope(request, status, &fault);
        return;
    }
    arrival->wait_ms = arrival->door.engine.wait_ms;
    arrival->door.rate =
        (struct flood_rate){request->policy->duplicate_rate, request->policy->duplicate_burst};
    buf_init(&arrival->answer, &request->mem, 2 * ANSWER_BYTES);
    if (buf_reserve(&arrival->answer, ANSWER_BYTES) != OK) {
        api_fail_memory(request);
    } else if (admit(arrival)) {
        submit(arrival);
    }
}
