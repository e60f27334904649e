/*
 * fuzz_fields: fields on their way through the gateway, over hostile bytes.
 *
 * The first byte says what the others are: a meta from a store, a request or an answer. A meta that
 * is taken can be sent, and means the same in a different spelling; nothing of one that is refused
 * was. A request that was read goes on as one that is read again, with our fields once and nothing
 * that was for one hop. What is kept of an answer is said again as it came.
 */
#include <stdint.h>

#include "answered.h"
#include "base/check.h"
#include "base/limits.h"
#include "http/fields.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FUZZ_BYTES_MAX = 4 << 20 };

/* Spelled differently, which says the same: with a space before it, JSON is not read as the text
 * that fields_keep writes. */
static void check_spelling(struct slice meta, enum status expected, struct slice fields)
{
    struct answered answered;
    struct buf spaced;
    answered_init(&answered);
    buf_init(&spaced, &mem_libc, FUZZ_BYTES_MAX);
    buf_char(&spaced, ' ');
    buf_slice(&spaced, meta);
    if (buf_status(&spaced) == OK && spaced.len <= LIMIT_OUTCOME_META_BYTES_MAX) {
        ASSERT(fields_replay(buf_view(&spaced), &(struct fields_how){0}, &mem_libc,
                   &answered.exchange, NULL) == expected);
        ASSERT(slice_equal(answered_fields(&answered), fields));
    }
    buf_release(&spaced);
    answered_release(&answered);
}

static void check_meta(struct slice meta)
{
    struct answered answered;
    answered_init(&answered);
    enum status status =
        fields_replay(meta, &(struct fields_how){0}, &mem_libc, &answered.exchange, NULL);
    struct slice fields = answered_fields(&answered); /* which checks that they can be sent */
    ASSERT(status == OK || status == E_INVALID);
    ASSERT(status == OK || fields.len == 0);
    check_spelling(meta, status, fields);
    answered_release(&answered);
}

static uint32_t count_of(const struct http_head *head, struct slice name)
{
    uint32_t count = 0;
    for (uint32_t i = http_find(head, name, 0); i < head->field_count;
         i = http_find(head, name, i + 1)) {
        count++;
    }
    return count;
}

/* One value of a field that is there once. */
static struct slice value_of(const struct http_head *head, struct slice name)
{
    struct slice value = SLICE_EMPTY;
    ASSERT(count_of(head, name) == 1);
    ASSERT(http_find_single(head, name, &value));
    return value;
}

static void check_forwarded(const struct http_head *head, struct slice bytes)
{
    struct http_head again;
    struct http_refusal refusal;
    struct http_limits limits = {
        .head_bytes_max = 1 << 20, .target_bytes_max = 8000, .fields_max = HTTP_FIELDS_MAX};
    http_head_init(&again);
    enum http_verdict verdict = http_request_head(bytes, &limits, &again, &refusal);
    if (verdict != HTTP_DONE) {
        ASSERT(head->field_count + 12 > HTTP_FIELDS_MAX); /* those added make too many */
        return;
    }
    ASSERT(again.bytes == bytes.len);
    ASSERT(slice_equal(http_text(head, head->method_text), http_text(&again, again.method_text)));
    ASSERT(slice_equal(http_path(head), http_path(&again)) || head->form == HTTP_FORM_ABSOLUTE);
    ASSERT(slice_equal(http_text(head, head->query), http_text(&again, again.query)));
    ASSERT(again.framing == HTTP_BODY_LENGTH && again.length == 7);
    ASSERT(slice_is(value_of(&again, SLICE_LIT("host")), "upstream:1"));
    ASSERT(slice_is(value_of(&again, SLICE_LIT("idempotency-key")), "k"));
    ASSERT(slice_is(value_of(&again, SLICE_LIT("request-id")), "r"));
    ASSERT(slice_is(value_of(&again, SLICE_LIT("once-fence")), "9"));
    ASSERT(slice_is(value_of(&again, SLICE_LIT("once-operation-id")), "op_1"));
    ASSERT(slice_is(value_of(&again, SLICE_LIT("once-attempt")), "1"));
    ASSERT(slice_is(value_of(&again, SLICE_LIT("traceparent")), "t"));
    ASSERT(count_of(&again, SLICE_LIT("x-forwarded-for")) == 1);
    ASSERT(count_of(&again, SLICE_LIT("connection")) == 0);
    ASSERT(count_of(&again, SLICE_LIT("expect")) == 0);
}

static void check_request(struct slice bytes)
{
    struct http_head head;
    struct http_refusal refusal;
    struct http_limits limits = HTTP_LIMITS_DEFAULT;
    http_head_init(&head);
    if (http_request_head(bytes, &limits, &head, &refusal) != HTTP_DONE) {
        return;
    }
    struct fields_added added = {.authority = SLICE_LIT("upstream:1"),
        .idempotency_key = SLICE_LIT("k"),
        .request_id = SLICE_LIT("r"),
        .operation_id = SLICE_LIT("op_1"),
        .fence = 9,
        .attempt = 1,
        .traceparent = SLICE_LIT("t"),
        .peer = SLICE_LIT("192.0.2.1:1"),
        .length = 7};
    struct buf out;
    buf_init(&out, &mem_libc, FUZZ_BYTES_MAX);
    ASSERT(fields_request(&head, &added, &out) == OK);
    check_forwarded(&head, buf_view(&out));
    buf_release(&out);
}

/* What is kept and replayed is what came, without what a replay may not have. */
static void check_replayed(const struct http_head *head)
{
    static const char *const list[] = {"*"};
    struct fields_kept names = {list, 1};
    struct buf meta;
    struct answered kept, passed;
    struct http_head again;
    struct http_refusal refusal;
    struct http_limits limits = {
        .head_bytes_max = 1 << 20, .target_bytes_max = 8000, .fields_max = HTTP_FIELDS_MAX};
    answered_init(&kept);
    answered_init(&passed);
    buf_init(&meta, &mem_libc, FUZZ_BYTES_MAX);
    passed.exchange.request_id = SLICE_EMPTY;
    fields_answer(head, &passed.exchange);
    struct slice all = answered_fields(&passed);
    enum status status = fields_keep(head, &names, SLICE_EMPTY, &meta);
    ASSERT(status == OK || status == E_LIMIT);
    if (status == OK) {
        ASSERT(fields_replay(buf_view(&meta), &(struct fields_how){0}, &mem_libc, &kept.exchange,
                   NULL) == OK);
        ASSERT(answered_fields(&kept).len <= all.len);
        buf_str(&kept.head, "\r\n");
        http_head_init(&again);
        ASSERT(http_response_head(
                   buf_view(&kept.head), &limits, HTTP_METHOD_POST, &again, &refusal) == HTTP_DONE);
        ASSERT(count_of(&again, SLICE_LIT("set-cookie")) == 0);
        ASSERT(count_of(&again, SLICE_LIT("etag")) == count_of(head, SLICE_LIT("etag")) ||
               count_of(head, SLICE_LIT("connection")) > 0);
    }
    buf_release(&meta);
    answered_release(&passed);
    answered_release(&kept);
}

static void check_answer(struct slice bytes)
{
    struct http_head head;
    struct http_refusal refusal;
    struct http_limits limits = HTTP_LIMITS_DEFAULT;
    http_head_init(&head);
    if (http_response_head(bytes, &limits, HTTP_METHOD_POST, &head, &refusal) == HTTP_DONE) {
        check_replayed(&head);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    struct slice bytes = slice_of(data + 1, size - 1);
    switch (data[0] % 3) {
    case 0: check_meta(bytes); break;
    case 1: check_request(bytes); break;
    default: check_answer(bytes); break;
    }
    return 0;
}
