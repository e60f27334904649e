/*
 * fuzz_http: the HTTP reader over hostile bytes.
 *
 * Nothing may crash; every split gives the same reading; the places of a head are inside it; and a
 * head that was taken can be written again and is then read the same.
 */
#include "fuzz_http.h"

#include "base/check.h"
#include "http/write.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_span(const struct http_head *head, struct http_span span)
{
    ASSERT(span.len <= head->bytes);
    ASSERT(span.len == 0 || span.at <= head->bytes - span.len);
}

static void check_places(const struct http_head *head)
{
    ASSERT(head->field_count <= HTTP_FIELDS_MAX);
    check_span(head, head->method_text);
    check_span(head, head->target);
    check_span(head, head->path);
    check_span(head, head->query);
    check_span(head, head->authority);
    check_span(head, head->reason);
    for (uint32_t i = 0; i < head->field_count; i++) {
        check_span(head, head->fields[i].name);
        check_span(head, head->fields[i].value);
        ASSERT(head->fields[i].name.len > 0);
    }
}

static bool is_framing(struct slice name)
{
    return http_same_name(name, SLICE_LIT("content-length")) ||
           http_same_name(name, SLICE_LIT("transfer-encoding"));
}

/* Write a request again and read it: same target, same fields but those of the framing. */
static void check_rewrite(const struct http_head *head)
{
    struct buf out;
    struct http_put put;
    struct http_head again;
    struct http_refusal refusal;
    struct http_limits limits = HTTP_LIMITS_DEFAULT;
    limits.head_bytes_max *= 2;
    buf_init(&out, &mem_libc, 1 << 20);
    http_put_request(&put, &out, http_text(head, head->method_text), http_text(head, head->target));
    for (uint32_t i = 0; i < head->field_count; i++) {
        struct slice name = http_text(head, head->fields[i].name);
        if (!is_framing(name)) {
            http_put_field(&put, name, http_text(head, head->fields[i].value));
        }
    }
    ASSERT(http_put_end(&put) == OK);
    http_head_init(&again);
    enum http_verdict verdict = http_request_head(buf_view(&out), &limits, &again, &refusal);
    bool has_host =
        head->authority.len > 0 && http_find(head, SLICE_LIT("host"), 0) < head->field_count;
    ASSERT(has_host == (verdict == HTTP_DONE)); /* HTTP/1.1 is written, which needs Host */
    if (verdict == HTTP_DONE) {
        ASSERT(slice_equal(http_path(head), http_path(&again)));
        ASSERT(slice_equal(http_text(head, head->query), http_text(&again, again.query)));
        ASSERT(again.bytes == out.len);
    }
    buf_release(&out);
}

static void check_splits(const struct drive_input *given, const struct drive *whole, uint8_t cut)
{
    struct drive other;
    struct drive_input input = *given;
    drive_init(&other);
    input.cut = cut % (input.bytes.len + 1);
    drive_run(&other, &input);
    ASSERT(drive_same(whole, &other));
    input.step = 1 + cut % 5;
    drive_run(&other, &input);
    ASSERT(drive_same(whole, &other));
    input.cut = 0;
    input.step = 1;
    drive_run(&other, &input);
    ASSERT(drive_same(whole, &other));
    drive_release(&other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < FUZZ_PREFIX_BYTES) {
        return 0;
    }
    struct drive drive;
    struct drive_input input = fuzz_input(data, size);
    drive_init(&drive);
    do {
        drive_run(&drive, &input);
        check_splits(&input, &drive, data[1]);
        ASSERT((drive.verdict == HTTP_REFUSED) == (drive.refusal.status != 0));
        ASSERT((drive.refusal.status != 0) == (drive.refusal.reason != NULL));
        if (drive.has_head) {
            check_places(&drive.head);
            if (!input.is_response) {
                check_rewrite(&drive.head);
            }
        }
        ASSERT(drive.used <= input.bytes.len);
        input.bytes = fuzz_rest(&input, &drive);
    } while (drive.verdict == HTTP_DONE && input.bytes.len > 0);
    drive_release(&drive);
    return 0;
}
