#include "api/call.h"

#include <stdio.h>

#include "base/check.h"
#include "base/limits.h"
#include "canon/payload.h"

/* ---- in ------------------------------------------------------------------------------------ */

static struct flood_rate rate_of(const struct api_policy *policy)
{
    return (struct flood_rate){policy->duplicate_rate, policy->duplicate_burst};
}

bool api_call_admit(struct api_call *call)
{
    struct api_ask *ask = call->ask;
    const struct request *request = &call->door.engine.request;
    return request->kind != REQUEST_BEGIN ||
           door_admit(ask->api->door, &request->key, rate_of(ask->policy), &call->flooded_ms);
}

/* ---- out ----------------------------------------------------------------------------------- */

void api_call_report(struct api_call *call, const struct api_document *shown)
{
    const struct api_ask *ask = call->ask;
    const struct http_exchange *exchange = ask->exchange;
    bool logs = ask->policy->logs_decisions;
    if (call->is_unnamed) {
        return;
    }
    struct door_report report = {.call = &call->door.engine,
        .flooded_ms = call->flooded_ms,
        .rate = rate_of(ask->policy),
        .was_counted = call->door.is_counted,
        .tenant = ask->caller.tenant,
        .actor = ask->caller.actor,
        .request_id = exchange->request_id,
        .trace_id = logs ? api_trace_id(exchange->head) : SLICE_EMPTY,
        .status = shown->status,
        .diff_bytes = shown->diff_bytes,
        .started_nanos = exchange->started_nanos,
        .logs = logs};
    door_report(ask->api->door, exchange->loop, &report);
}

/* ---- a single call ------------------------------------------------------------------------- */

static void answer_fields(struct api_ask *ask, const struct api_document *shown)
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
    struct api_document shown;
    if (api_document_of(call, &call->answer, &shown) != OK) {
        /* Only what changed nothing can be too long for what was reserved. */
        (void)err_set(&call->door.engine.err, E_NOMEM, "out of memory");
        api_call_report(call, &(struct api_document){.status = 503});
        api_fail_memory(ask);
        return;
    }
    api_call_report(call, &shown);
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

static void refused(struct door_call *call)
{
    answer((struct api_call *)(void *)call);
}

/* A replay gives a whole outcome back, escaped where it is no JSON. */
enum { ANSWER_BYTES_MAX = 8 * LIMIT_OUTCOME_BYTES_MAX };

void api_call_submit(struct api_call *call)
{
    struct api_ask *ask = call->ask;
    if (call->is_unnamed || !api_call_admit(call)) {
        answer(call);
        return;
    }
    buf_init(&call->answer, &ask->mem, ANSWER_BYTES_MAX);
    if (buf_reserve(&call->answer, api_document_bytes_max(call)) != OK) {
        api_fail_memory(ask);
        return;
    }
    ask->exchange->state = call;
    ask->exchange->resume = resume;
    call->door.engine.done = done;
    call->door.refused = refused;
    call->door.rate = rate_of(ask->policy);
    door_submit(ask->api->door, ask->exchange->loop, &call->door);
}

void api_call_run(struct api_ask *ask, api_body_reader read)
{
    struct api_body_fault fault;
    const struct json_value *body;
    struct api_call *call = api_call_new(ask);
    if (call == NULL) {
        api_fail_memory(ask);
        return;
    }
    enum status status = api_body_json(ask, &body, &fault);
    status = status == OK ? read(call, body, &fault) : status;
    if (status != OK) {
        api_body_answer_fault(ask, &fault);
        return;
    }
    api_call_submit(call);
}
