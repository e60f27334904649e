#include "api/call.h"

#include <stdio.h>
#include <string.h>

#include "api/body.h"
#include "api/documents.h"
#include "base/limits.h"
#include "base/macros.h"
#include "engine/request_builder.h"
#include "http/fields.h"

/* ---- in ------------------------------------------------------------------------------------ */

struct api_call *api_call_new(struct api_request *request)
{
    struct api_call *call = arena_alloc(request->exchange->arena, sizeof *call);
    if (call != NULL) {
        memset(call, 0, offsetof(struct api_call, door));
        door_call_clear(&call->door);
        call->request = request;
        call->operation_id_text = request->path_value;
        call->door.engine.arena = request->exchange->arena;
        call->door.engine.context = request->exchange;
        call->door.engine.request.key.tenant = request->caller.tenant;
        call->door.engine.request.actor = request->caller.actor;
    }
    return call;
}

enum status api_trace(struct api_request *request, const struct json_value *trace,
    struct slice *ret_trace, struct err *err)
{
    const struct http_exchange *exchange = request->exchange;
    return builder_trace(trace, exchange->request_id, fields_traceparent_of(exchange->head),
        &request->mem, ret_trace, err);
}

enum status api_call_read(struct api_call *call, api_reader read, const struct json_value *value,
    struct member_fault *fault)
{
    fault->code = NULL;
    err_clear(&fault->err);
    enum status status = read(call, value, fault);
    return status == OK ? builder_check(&call->door.engine, &fault->err) : status;
}

static struct flood_rate rate_of(const struct api_policy *policy)
{
    return (struct flood_rate){policy->duplicate_rate, policy->duplicate_burst};
}

bool api_call_admit(struct api_call *call)
{
    const struct api_request *request = call->request;
    const struct engine_call *engine = &call->door.engine;
    return !call->is_unnamed && (engine->request.kind != REQUEST_BEGIN ||
                                    door_admit(request->api->door, &engine->request.key,
                                        rate_of(request->policy), &call->flooded_ms));
}

/* ---- out ----------------------------------------------------------------------------------- */

void api_call_report(struct api_call *call, const struct api_document *document)
{
    const struct api_request *request = call->request;
    const struct http_exchange *exchange = request->exchange;
    bool logs = request->policy->logs_decisions;
    if (call->is_unnamed) {
        return;
    }
    struct door_report report = {.call = &call->door.engine,
        .flooded_ms = call->flooded_ms,
        .rate = rate_of(request->policy),
        .was_counted = call->door.is_counted,
        .tenant = request->caller.tenant,
        .actor = request->caller.actor,
        .request_id = exchange->request_id,
        .trace_id = logs ? fields_trace_id(exchange->head) : SLICE_EMPTY,
        .status = document->status,
        .diff_bytes = document->diff_bytes,
        .started_nanos = exchange->started_nanos,
        .logs = logs};
    door_report(request->api->door, exchange->loop, &report);
}

static void answer_fields(struct api_request *request, const struct api_document *document)
{
    if (document->location.len > 0) {
        http_answer_field(request->exchange, SLICE_LIT("Location"), document->location);
    }
    if (document->retry_after_ms > 0) {
        char text[24];
        int len =
            snprintf(text, sizeof text, "%lld", (long long)(document->retry_after_ms + 999) / 1000);
        http_answer_field(request->exchange, SLICE_LIT("Retry-After"), slice_of(text, (size_t)len));
    }
}

static void answer(struct api_call *call)
{
    struct api_request *request = call->request;
    struct api_document document;
    if (api_document_of(call, &call->answer, &document) != OK) {
        /* Only the answer to a call that changed nothing can exceed the reserved room. */
        (void)err_set(&call->door.engine.err, E_NOMEM, "out of memory");
        api_call_report(call, &(struct api_document){.status = 503});
        api_fail_memory(request);
        return;
    }
    api_call_report(call, &document);
    if (document.is_problem) {
        api_refuse(request, &document.problem);
        return;
    }
    api_answer_begin(request, document.status);
    answer_fields(request, &document);
    api_answer_end(request, SLICE_LIT("application/json"), buf_view(&call->answer), true);
}

/* ---- a request that is one call ------------------------------------------------------------ */

static void resume(void *context, struct http_exchange *exchange)
{
    (void)context;
    answer(exchange->state);
}

static void done(struct engine_call *engine)
{
    http_wake(engine->context);
}

/* Of a seal with effects: the last call of the group to finish resumes the request. */
static void one_done(struct engine_call *engine)
{
    struct http_exchange *exchange = engine->context;
    struct api_call *call = exchange->state;
    if (atomic_fetch_sub(&call->left, 1) == 1) {
        http_wake(exchange);
    }
}

/* One commit for the seal and its effects. */
static void submit_group(struct api_call *call)
{
    struct api_request *request = call->request;
    size_t count = 1 + call->effects.count;
    struct engine_call **group = arena_alloc(request->exchange->arena, count * sizeof *group);
    if (group == NULL) {
        api_fail_memory(request);
        return;
    }
    group[0] = &call->door.engine;
    for (size_t i = 0; i < call->effects.count; i++) {
        group[i + 1] = call->effects.calls[i];
        group[i + 1]->context = request->exchange;
        group[i + 1]->done = one_done;
    }
    call->door.engine.done = one_done;
    atomic_store(&call->left, count);
    api_submit_group(request, group, count);
}

static void refused(struct door_call *call)
{
    answer(CONTAINER_OF(call, struct api_call, door));
}

/* A replay contains the whole outcome, escaped where it is not JSON. */
enum { ANSWER_BYTES_MAX = 8 * LIMIT_OUTCOME_BYTES_MAX };

/* Reserve the answer, submit at the end of the loop turn, and answer when the call is decided; or
 * refuse, now or then. */
static void submit(struct api_call *call)
{
    struct api_request *request = call->request;
    if (!api_call_admit(call)) {
        answer(call);
        return;
    }
    buf_init(&call->answer, &request->mem, ANSWER_BYTES_MAX);
    if (buf_reserve(&call->answer, api_document_bytes_max(call)) != OK) {
        api_fail_memory(request);
        return;
    }
    request->exchange->state = call;
    request->exchange->resume = resume;
    if (call->effects.count > 0) {
        submit_group(call);
        return;
    }
    call->door.engine.done = done;
    call->door.refused = refused;
    door_submit(request->api->door, request->exchange->loop, &call->door);
}

void api_call_run(struct api_request *request)
{
    struct member_fault fault;
    const struct json_value *body;
    struct api_call *call = api_call_new(request);
    if (call == NULL) {
        api_fail_memory(request);
        return;
    }
    if (!api_body_json(request, &body)) {
        return;
    }
    enum status status = api_call_read(call, request->route->read, body, &fault);
    if (status != OK) {
        api_body_refuse(request, status, &fault);
        return;
    }
    submit(call);
}
