#include "engine/request_builder.h"

#include "base/check.h"
#include "base/limits.h"
#include "base/macros.h"

void builder_fingerprint(struct engine_call *call, const struct engine *engine,
    const struct digest *plain, enum fingerprint_version version)
{
    ASSERT(request_by_key(call->request.kind));
    engine_fingerprint(engine, plain, &call->request.fingerprint);
    call->request.fingerprint_version = (uint8_t)version;
}

void builder_keep(struct engine_call *call, struct slice body, const struct digest *digest)
{
    ASSERT(request_by_key(call->request.kind));
    if (body.len > 0 && body.len <= LIMIT_REQUEST_KEPT_BYTES_MAX) {
        call->request_body = body;
        call->request.request =
            (struct body_ref){.digest = *digest, .bytes = body.len, .retained = true};
    }
}

enum status builder_payload(struct engine_call *call, const struct engine *engine,
    struct slice text, const struct json_value *value, struct buf *form)
{
    struct payload payload;
    enum status status = payload_fingerprint(text, value, form, &payload);
    if (status == OK) {
        builder_fingerprint(call, engine, &payload.digest, payload.version);
        builder_keep(call, payload.form, &payload.digest);
    }
    return status;
}

void builder_outcome_body(struct engine_call *call, struct slice body, uint64_t bytes_max)
{
    ASSERT(request_settles(&call->request));
    struct body_ref *ref = &call->request.outcome.body;
    digest_sha256(body.data, body.len, &ref->digest);
    ref->bytes = body.len;
    ref->retained = body.len <= bytes_max && body.len <= LIMIT_OUTCOME_BYTES_MAX;
    if (ref->retained) {
        call->outcome_body = body;
    }
}

enum status builder_trace(const struct json_value *trace, struct slice request_id,
    struct slice traceparent, const struct mem *mem, struct slice *ret_trace, struct err *err)
{
    const struct trace_member own[] = {
        {SLICE_LIT("request_id"), request_id},
        {SLICE_LIT("traceparent"), traceparent},
    };
    struct buf out;
    buf_init(&out, mem, LIMIT_TRACE_BYTES_MAX);
    enum status status = trace_write(trace, own, COUNT(own), &out, err);
    if (status == OK) {
        *ret_trace = buf_view(&out);
    } else {
        buf_release(&out);
    }
    return status;
}

struct slice builder_trace_again(
    struct slice trace, struct slice request_id, struct slice traceparent, struct arena *arena)
{
    struct mem mem = arena_mem(arena);
    const struct json_value *first = NULL;
    struct slice made = SLICE_EMPTY;
    if (trace.len == 0 || json_read(trace, arena, &first, NULL) != OK ||
        builder_trace(first, request_id, traceparent, &mem, &made, NULL) != OK) {
        (void)!builder_trace(NULL, request_id, traceparent, &mem, &made, NULL);
    }
    return made;
}

enum status builder_check(const struct engine_call *call, struct err *err)
{
    static const struct span_limit wait_limit = {"wait", NULL, 0, "wait_ms_max", LIMIT_WAIT_MS_MAX};
    ASSERT(call->query == NULL && call->note == NULL);
    enum status status = request_check_span(&wait_limit, call->wait_ms, err);
    return status == OK ? request_new_check(&call->request, err) : status;
}
