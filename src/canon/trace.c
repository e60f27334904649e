#include "canon/trace.h"

#include "base/limits.h"
#include "base/text.h"
#include "canon/jcs.h"

/* Where the merge of two sorted lists stands. */
struct merge {
    const struct trace_member *members;
    size_t count;
    struct buf *out;
    size_t start; /* of the object in out */
};

static void put_name(struct merge *merge, struct slice name)
{
    buf_char(merge->out, merge->out->len == merge->start ? '{' : ',');
    jcs_put_string(merge->out, name);
    buf_char(merge->out, ':');
}

/* The members of ours that come before name, or all that are left when it is NULL. True when the
 * last of them has that very name. */
static bool put_own(struct merge *merge, const struct slice *name)
{
    bool same = false;
    while (merge->count > 0) {
        int order = name == NULL ? -1 : json_order(merge->members->name, *name);
        if (order > 0) {
            break;
        }
        if (merge->members->value.len > 0) {
            put_name(merge, merge->members->name);
            jcs_put_string(merge->out, merge->members->value);
            same = order == 0;
        }
        merge->members++;
        merge->count--;
    }
    return same;
}

static enum status put_member(
    struct merge *merge, const struct json_member *member, struct err *err)
{
    struct slice name = json_text(&member->name);
    struct jcs_report report = {0};
    if (put_own(merge, &name)) {
        return OK;
    }
    put_name(merge, name);
    enum status status = jcs_write(&member->value, merge->out, &report, err);
    if (status == OK && report.lossy_count > 0) {
        status = jcs_refuse_lossy(&member->value, &report, err);
    }
    if (status == E_INVALID) {
        err_prefix(err, "trace");
    }
    return status;
}

static enum status check_members(const struct trace_member *members, size_t count, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        if (!text_utf8(members[i].value)) {
            return err_set(err, E_INVALID, "%.*s is not valid UTF-8", SLICE_ARGS(members[i].name));
        }
    }
    return OK;
}

enum status trace_write(const struct json_value *trace, const struct trace_member *members,
    size_t count, struct buf *out, struct err *err)
{
    struct merge merge = {.members = members, .count = count, .out = out, .start = out->len};
    enum status status = check_members(members, count, err);
    if (status == OK && trace != NULL && trace->type != JSON_OBJECT) {
        status = err_set(err, E_INVALID, "trace: not a JSON object");
    }
    for (uint32_t i = 0; status == OK && trace != NULL && i < trace->count; i++) {
        status = put_member(&merge, &trace->members[i], err);
    }
    if (status == OK) {
        (void)put_own(&merge, NULL);
        if (out->len > merge.start) {
            buf_char(out, '}');
        }
        status = buf_status(out);
    }
    if (status == E_LIMIT || (status == OK && out->len - merge.start > LIMIT_TRACE_BYTES_MAX)) {
        status = err_set(err, E_INVALID, "trace and request_id are more than trace_bytes_max (%d)",
            LIMIT_TRACE_BYTES_MAX);
    }
    return status;
}
