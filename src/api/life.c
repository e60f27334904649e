#include "api/life.h"

#include <stdio.h>

#include "base/check.h"
#include "base/limits.h"
#include "canon/payload.h"

/* ---- in ------------------------------------------------------------------------------------ */

static struct flood_rate rate_of(const struct api_policy *policy)
{
    return (struct flood_rate){policy->duplicate_rate, policy->duplicate_burst};
}

bool life_admit(struct api_call *call)
{
    const struct api_policy *policy = call->ask->policy;
    if (call->engine.request.kind != REQUEST_BEGIN || policy->duplicate_rate <= 0) {
        return true;
    }
    if (!flood_refuse(call->ask->api->flood, &call->engine.request.key, rate_of(policy),
            clock_nanos(), &call->flooded_ms)) {
        call->flooded_ms = 0;
        return true;
    }
    call->flooded_ms = call->flooded_ms < 1 ? 1 : call->flooded_ms;
    return false;
}

/* ---- out ----------------------------------------------------------------------------------- */

/* Duplicates in the sense of a flood: each leaves an entry and changes nothing. */
static bool is_duplicate(const struct api_call *call)
{
    enum decision_kind kind = call->engine.decision.kind;
    return call->engine.request.kind == REQUEST_BEGIN && kind != DECISION_FIRST_SEEN;
}

/* What was decided, in a word; NULL when nothing was. */
static const char *decided(const struct api_call *call)
{
    if (call->flooded_ms > 0) {
        return "duplicate_refused";
    }
    return call->is_unnamed || call->engine.err.status != OK
               ? NULL
               : decision_name(call->engine.decision.kind);
}

/* The key as asked, or the record's own for calls by operation. Not there: empty. */
static const struct record_key *key_of(const struct api_call *call)
{
    const struct decision *decision = &call->engine.decision;
    bool by_id = call->engine.request.kind != REQUEST_BEGIN;
    return by_id && decision->next.fence > 0 ? &decision->next.key : &call->engine.request.key;
}

static void log_decision(struct api_call *call, const char *word, unsigned status)
{
    const struct api_ask *ask = call->ask;
    const struct http_exchange *exchange = ask->exchange;
    const struct record *record = &call->engine.decision.next;
    const struct record_key *key = key_of(call);
    const struct source *source =
        call->engine.request.kind == REQUEST_BEGIN ? &call->engine.request.source : &record->source;
    char id[OP_ID_TEXT_BYTES] = "";
    bool is_there = call->flooded_ms == 0 && record->fence > 0;
    if (is_there) {
        (void)op_id_put(id, &record->operation_id);
    }
    struct log_field fields[] = {
        LOG_TEXT("decision", slice_str(word)),
        LOG_TEXT("request", slice_str(request_kind_name(call->engine.request.kind))),
        LOG_TEXT("tenant", ask->caller.tenant),
        LOG_TEXT("scope", key->scope),
        LOG_TEXT("idempotency_key", key->key),
        LOG_TEXT("operation_id", slice_str(id)),
        LOG_TEXT("effect_id", is_there ? record->effect_id : SLICE_EMPTY),
        LOG_TEXT("source_type", source->type),
        LOG_TEXT("source_id", source->id),
        LOG_TEXT("request_id", exchange->request_id),
        LOG_TEXT("trace_id", ask_trace_id(exchange->head)),
        LOG_TEXT("actor", ask->caller.actor),
        LOG_NUMBER("status", status),
        LOG_NUMBER("duration_us", (clock_nanos() - exchange->started_nanos) / 1000),
    };
    log_event(ask->api->log, LOG_INFO, "decision", fields, sizeof fields / sizeof fields[0]);
}

static void log_failure(struct api_call *call, unsigned status)
{
    const struct api_ask *ask = call->ask;
    struct log_field fields[] = {
        LOG_TEXT("text", slice_str(call->engine.err.text)),
        LOG_TEXT("tenant", ask->caller.tenant),
        LOG_TEXT("request_id", ask->exchange->request_id),
        LOG_NUMBER("status", status),
    };
    log_event(ask->api->log, LOG_ERROR, "request_failed", fields, sizeof fields / sizeof fields[0]);
}

void life_tell(struct api_call *call, const struct shown *shown)
{
    struct api_ask *ask = call->ask;
    const struct decision *decision = &call->engine.decision;
    const char *word = decided(call);
    if (word == NULL) {
        if (!call->is_unnamed) {
            log_failure(call, shown->status);
        }
        return;
    }
    bool seals = decision->kind == DECISION_SEALED && !decision->repeated && call->flooded_ms == 0;
    struct metrics_decision counted = {
        .tenant = ask->caller.tenant,
        .scope = key_of(call)->scope,
        .decision = word,
        .first_to_seal_ms = seals ? decision->next.sealed_ms - decision->next.created_ms : -1,
        .diff_bytes = shown->diff_bytes,
        .is_conflict = call->flooded_ms == 0 && decision->kind == DECISION_CONFLICT_REJECTED,
    };
    metrics_decision(ask->api->metrics, ask->exchange->loop, &counted);
    if (call->flooded_ms == 0 && is_duplicate(call) && ask->policy->duplicate_rate > 0) {
        flood_count(
            ask->api->flood, &call->engine.request.key, rate_of(ask->policy), clock_nanos());
    }
    if (ask->policy->logs_decisions && log_wants(ask->api->log, LOG_INFO)) {
        log_decision(call, word, shown->status);
    }
}

/* ---- a single call ------------------------------------------------------------------------- */

static void answer_fields(struct api_ask *ask, const struct shown *shown)
{
    if (shown->location.len > 0) {
        http_answer_field(ask->exchange, SLICE_LIT("Location"), shown->location);
    }
    if (shown->retry_after_ms > 0) {
        char text[24];
        int len =
            snprintf(text, sizeof text, "%lld", (long long)(shown->retry_after_ms + 999) / 1000);
        http_answer_field(ask->exchange, SLICE_LIT("Retry-After"), slice_of(text, (size_t)len));
    }
}

static void answer(struct api_call *call)
{
    struct api_ask *ask = call->ask;
    struct shown shown;
    if (show_call(call, &call->answer, &shown) != OK) {
        /* Only what changed nothing can be too long for what was reserved. */
        (void)err_set(&call->engine.err, E_NOMEM, "out of memory");
        life_tell(call, &(struct shown){.status = 503});
        api_fail_memory(ask);
        return;
    }
    life_tell(call, &shown);
    if (shown.is_problem) {
        api_refuse(ask, &shown.problem);
        return;
    }
    api_answer_begin(ask, shown.status);
    answer_fields(ask, &shown);
    api_answer_end(ask, SLICE_LIT("application/json"), buf_view(&call->answer), true);
}

static void resume(void *context, struct http_exchange *exchange)
{
    (void)context;
    answer(exchange->state);
}

static void done(struct engine_call *engine)
{
    http_wake(engine->context);
}

/* A replay gives a whole outcome back, escaped where it is no JSON. */
enum { ANSWER_BYTES_MAX = 8 * LIMIT_OUTCOME_BYTES_MAX };

void life_submit(struct api_call *call)
{
    struct api_ask *ask = call->ask;
    if (call->is_unnamed || !life_admit(call)) {
        answer(call);
        return;
    }
    buf_init(&call->answer, &ask->mem, ANSWER_BYTES_MAX);
    if (buf_reserve(&call->answer, show_bytes_max(call)) != OK) {
        api_fail_memory(ask);
        return;
    }
    ask->exchange->state = call;
    ask->exchange->resume = resume;
    call->engine.done = done;
    struct api_loop *turn = &ask->api->turns[ask->exchange->loop];
    if (turn->waiting_count == API_WAITING_MAX) {
        life_turn(ask->api, ask->exchange->loop);
    }
    turn->waiting[turn->waiting_count++] = call;
}

void life_turn(struct api *api, unsigned loop)
{
    struct api_loop turn = api->turns[loop];
    struct engine_call *calls[API_WAITING_MAX];
    size_t count = turn.waiting_count;
    for (size_t i = 0; i < count; i++) {
        calls[i] = &turn.waiting[i]->engine;
    }
    api->turns[loop].waiting_count = 0;
    for (size_t at = 0; at < count;) {
        struct err err = {.status = OK};
        size_t taken;
        enum status status = engine_submit_each(api->engine, calls + at, count - at, &taken, &err);
        at += taken;
        if (status != OK) {
            struct api_call *refused = turn.waiting[at++];
            refused->engine.err = err;
            answer(refused);
        }
    }
}

void life_ask(struct api_ask *ask, life_reader read)
{
    struct ask_fault fault;
    const struct json_value *body;
    struct api_call *call = ask_call_new(ask);
    if (call == NULL) {
        api_fail_memory(ask);
        return;
    }
    enum status status = ask_json(ask, &body, &fault);
    status = status == OK ? read(call, body, &fault) : status;
    if (status != OK) {
        ask_answer_fault(ask, &fault);
        return;
    }
    life_submit(call);
}
