#include "canon/payload.h"

#include <string.h>

#include "canon/trace.h"
#include "lib/call.h"

enum {
    TRACE_TEXT_BYTES_MAX = 4 * LIMIT_TRACE_BYTES_MAX,   /* as given: blanks and escapes shrink */
    TREE_BYTES_MAX = 64 * TRACE_TEXT_BYTES_MAX + 65536, /* more than such a text can need */
};

/* Keep the first body, so that a conflict can be explained. Its digest is the plain fingerprint. */
static enum status keep_body(struct lib_call *call, const struct payload *payload)
{
    struct slice body = payload->form;
    if (body.len == 0 || body.len > LIMIT_REQUEST_KEPT_BYTES_MAX) {
        return OK;
    }
    call->engine.request.request =
        (struct body_ref){.digest = payload->digest, .bytes = body.len, .retained = true};
    call->engine.request_body = body;
    bool borrowed = payload->version == FINGERPRINT_RAW;
    return borrowed && !call->copies ? OK
                                     : arena_copy(&call->inputs, body, &call->engine.request_body);
}

static void take_digest(
    struct lib_call *call, const struct digest *plain, enum fingerprint_version version)
{
    engine_fingerprint(call->once->engine, plain, &call->engine.request.fingerprint);
    call->engine.request.fingerprint_version = (uint8_t)version;
}

static enum status take_bytes(struct lib_call *call, struct slice text)
{
    struct buf form;
    struct payload payload;
    buf_init(&form, &call->once->mem, payload_form_bytes_max(text.len));
    enum status status = payload_fingerprint(text, NULL, &form, &payload);
    if (status == OK) {
        take_digest(call, &payload.digest, payload.version);
        status = keep_body(call, &payload);
    }
    buf_release(&form);
    return status;
}

enum status call_take_payload(
    struct lib_call *call, const struct once_begin *begin, struct err *err)
{
    if (begin->fingerprint != NULL) {
        if (begin->payload.data != NULL || begin->payload.size > 0) {
            return err_set(err, E_INVALID, "both payload and fingerprint are given");
        }
        struct digest own;
        memcpy(own.bytes, begin->fingerprint, sizeof own.bytes);
        take_digest(call, &own, FINGERPRINT_OWN);
        return OK;
    }
    if (begin->payload.data == NULL && begin->payload.size > 0) {
        return err_set(err, E_INVALID, "payload has a size and no data");
    }
    return take_bytes(call, slice_of(begin->payload.data, begin->payload.size));
}

/* ---- trace --------------------------------------------------------------------------------- */

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

enum status call_take_trace(
    struct lib_call *call, const char *trace, const char *request_id, struct err *err)
{
    struct trace_member id = {SLICE_LIT("request_id"), slice_str(request_id)};
    struct arena tree;
    struct buf out;
    const struct json_value *object = NULL;
    arena_init(&tree, &call->once->mem, TREE_BYTES_MAX);
    buf_init(&out, &call->once->mem, LIMIT_TRACE_BYTES_MAX);
    enum status status = read_trace(slice_str(trace), &tree, &object, err);
    status = status == OK ? trace_write(object, &id, 1, &out, err) : status;
    if (status == OK && out.len > 0) {
        status = arena_copy(&call->inputs, buf_view(&out), &call->engine.request.trace);
    }
    buf_release(&out);
    arena_release(&tree);
    return status;
}
