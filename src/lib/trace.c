#include "canon/jcs.h"
#include "lib/call.h"

enum {
    TRACE_TEXT_BYTES_MAX = 4 * LIMIT_TRACE_BYTES_MAX,   /* as given: blanks and escapes shrink */
    TREE_BYTES_MAX = 64 * TRACE_TEXT_BYTES_MAX + 65536, /* more than such a text can need */
};

static enum status read_trace(
    struct slice trace, struct arena *tree, const struct json_value **ret, struct err *err)
{
    enum status status = json_read(trace, tree, ret, err);
    if (status == OK && (*ret)->type != JSON_OBJECT) {
        status = err_set(err, E_INVALID, "not a JSON object");
    }
    return status;
}

static void put_name(struct buf *out, struct slice name)
{
    if (out->len > 1) {
        buf_char(out, ',');
    }
    jcs_put_string(out, name);
    buf_char(out, ':');
}

/* The members in canonical order, with request_id where it belongs. */
static enum status put_members(
    struct buf *out, const struct json_value *object, struct slice request_id, struct err *err)
{
    const struct slice own = SLICE_LIT("request_id");
    bool pending = request_id.len > 0;
    for (uint32_t i = 0; object != NULL && i < object->count; i++) {
        struct slice name = json_text(&object->members[i].name);
        int order = json_order(own, name);
        if (pending && order <= 0) {
            put_name(out, own);
            jcs_put_string(out, request_id);
            pending = false;
        }
        if (request_id.len > 0 && order == 0) {
            continue; /* the member given for it wins over the one inside the trace */
        }
        struct jcs_report report = {0};
        put_name(out, name);
        enum status status = jcs_write(&object->members[i].value, out, &report, err);
        if (status == OK && report.lossy_count > 0) {
            status = jcs_refuse_lossy(&object->members[i].value, &report, err);
        }
        if (status != OK) {
            return status;
        }
    }
    if (pending) {
        put_name(out, own);
        jcs_put_string(out, request_id);
    }
    return OK;
}

/* Read the given trace and write it back with request_id in it. */
static enum status put_trace(struct buf *out, struct slice trace, struct slice request_id,
    struct arena *tree, struct err *err)
{
    const struct json_value *object = NULL;
    enum status status = OK;
    if (trace.len > TRACE_TEXT_BYTES_MAX) {
        status = E_LIMIT;
    } else if (trace.len > 0) {
        status = read_trace(trace, tree, &object, err);
    }
    if (status == OK) {
        buf_char(out, '{');
        status = put_members(out, object, request_id, err);
        buf_char(out, '}');
    }
    if (status == E_INVALID) {
        err_prefix(err, "trace");
    }
    return status == OK ? buf_status(out) : status;
}

enum status call_take_trace(
    struct lib_call *call, const char *trace, const char *request_id, struct err *err)
{
    struct slice id = slice_str(request_id);
    if (id.len == 0 && slice_str(trace).len == 0) {
        return OK;
    }
    enum status status = handle_utf8("request_id", id, err);
    if (status != OK) {
        return status;
    }
    struct arena tree;
    struct buf out;
    arena_init(&tree, &call->once->mem, TREE_BYTES_MAX);
    buf_init(&out, &call->once->mem, LIMIT_TRACE_BYTES_MAX);
    status = put_trace(&out, slice_str(trace), id, &tree, err);
    if (status == OK) {
        status = arena_copy(&call->inputs, buf_view(&out), &call->engine.request.trace);
    }
    if (status == E_LIMIT) {
        status = err_set(err, E_INVALID, "trace and request_id are more than trace_bytes_max (%d)",
            LIMIT_TRACE_BYTES_MAX);
    }
    buf_release(&out);
    arena_release(&tree);
    return status;
}
