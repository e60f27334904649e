/* The ids by which a request is found again: its own, and W3C Trace Context's (section 3.2). */
#include "canon/trace.h"

#include "api/body.h"
#include "base/limits.h"
#include "base/text.h"

enum { TRACEPARENT_BYTES = 55 }; /* of version 00 */

static bool lower_hex(struct slice text, size_t from, size_t count)
{
    bool any = false;
    for (size_t i = from; i < from + count; i++) {
        char c = text.data[i];
        if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f')) {
            return false;
        }
        any = any || c != '0';
    }
    return any; /* ids of all zeros mean none */
}

/* "00-<32 hex>-<16 hex>-<2 hex>"; a later version may go on behind another dash. */
static bool is_traceparent(struct slice text)
{
    if (text.len < TRACEPARENT_BYTES || text.len > LIMIT_SOURCE_BYTES_MAX || text.data[2] != '-' ||
        text.data[35] != '-' || text.data[52] != '-' || memcmp(text.data, "ff", 2) == 0) {
        return false;
    }
    bool is_first = memcmp(text.data, "00", 2) == 0;
    bool has_end =
        text.len == TRACEPARENT_BYTES || (!is_first && text.data[TRACEPARENT_BYTES] == '-');
    return has_end && (is_first || lower_hex(text, 0, 2)) && lower_hex(text, 3, 32) &&
           lower_hex(text, 36, 16) &&
           (memcmp(text.data + 53, "00", 2) == 0 || lower_hex(text, 53, 2));
}

static struct slice traceparent_of(const struct http_head *head)
{
    struct slice text = SLICE_EMPTY;
    bool found = http_find_single(head, SLICE_LIT("traceparent"), &text);
    return found && is_traceparent(text) && text_utf8(text) ? text : SLICE_EMPTY;
}

struct slice api_trace_id(const struct http_head *head)
{
    struct slice text = traceparent_of(head);
    return text.len == 0 ? SLICE_EMPTY : slice_of(text.data + 3, 32);
}

enum status api_trace(
    struct api_ask *ask, const struct json_value *trace, struct slice *ret_trace, struct err *err)
{
    struct trace_member own[] = {
        {SLICE_LIT("request_id"), ask->exchange->request_id},
        {SLICE_LIT("traceparent"), traceparent_of(ask->exchange->head)},
    };
    struct buf out;
    buf_init(&out, &ask->mem, LIMIT_TRACE_BYTES_MAX);
    enum status status = trace_write(trace, own, sizeof own / sizeof own[0], &out, err);
    if (status == OK) {
        *ret_trace = buf_view(&out);
    }
    return status;
}
