#include "http_drive.h"

#include "base/check.h"

enum { BODY_BYTES_MAX = 64 << 20 };

void drive_init(struct drive *drive)
{
    *drive = (struct drive){.verdict = HTTP_MORE};
    buf_init(&drive->body, &mem_libc, BODY_BYTES_MAX);
}

void drive_release(struct drive *drive)
{
    buf_release(&drive->body);
}

static enum http_verdict read_head(
    struct drive *drive, const struct drive_input *input, struct slice seen)
{
    return input->is_response
               ? http_response_head(
                     seen, &input->limits, input->method, &drive->head, &drive->refusal)
               : http_request_head(seen, &input->limits, &drive->head, &drive->refusal);
}

/* All the pieces that bytes have, in turn. */
static void read_body(struct drive *drive, struct http_body *body, struct slice bytes)
{
    size_t used = 0;
    do {
        struct slice piece = SLICE_EMPTY;
        drive->verdict = http_body_next(body, bytes, &used, &piece, &drive->refusal);
        ASSERT(used <= bytes.len);
        ASSERT(drive->verdict != HTTP_MORE || used == bytes.len);
        ASSERT((drive->verdict == HTTP_DATA) == (piece.len > 0));
        buf_slice(&drive->body, piece);
        drive->used += used;
        bytes = slice_of(bytes.len == 0 ? NULL : bytes.data + used, bytes.len - used);
    } while (drive->verdict == HTTP_DATA);
}

/* One more piece has arrived: len bytes are here now. */
static void step(
    struct drive *drive, const struct drive_input *input, struct http_body *body, struct slice seen)
{
    if (!drive->has_head) {
        drive->verdict = read_head(drive, input, seen);
        if (drive->verdict != HTTP_DONE) {
            return;
        }
        drive->has_head = true;
        drive->used = drive->head.bytes;
        ASSERT(drive->used <= seen.len);
        drive->verdict = http_body_init(body, &drive->head, &input->limits, &drive->refusal);
        if (drive->verdict != HTTP_MORE) {
            return;
        }
    }
    read_body(drive, body, slice_of(seen.data + drive->used, seen.len - drive->used));
}

void drive_run(struct drive *drive, const struct drive_input *input)
{
    struct http_body body;
    size_t len = input->cut > 0 && input->cut < input->bytes.len     ? input->cut
                 : input->step > 0 && input->step < input->bytes.len ? input->step
                                                                     : input->bytes.len;
    buf_clear(&drive->body);
    http_head_init(&drive->head);
    drive->verdict = HTTP_MORE;
    drive->refusal = (struct http_refusal){.status = 0};
    drive->has_head = false;
    drive->used = 0;
    if (len == input->cut && len > 0) {
        /* The receive buffer moves when it grows, and a byte read past its end is noticed. */
        char *copy = mem_alloc(&mem_libc, len);
        ASSERT(copy != NULL);
        memcpy(copy, input->bytes.data, len);
        step(drive, input, &body, slice_of(copy, len));
        mem_free(&mem_libc, copy);
    } else {
        step(drive, input, &body, slice_of(input->bytes.data, len));
    }
    while (drive->verdict == HTTP_MORE && len < input->bytes.len) {
        size_t left = input->bytes.len - len;
        len += input->step > 0 && input->step < left ? input->step : left;
        step(drive, input, &body, slice_of(input->bytes.data, len));
    }
    if (drive->verdict == HTTP_MORE && drive->has_head && input->is_closed) {
        drive->verdict = http_body_close(&body, &drive->refusal);
    }
    drive->head.base = input->bytes.data;
    ASSERT(buf_status(&drive->body) == OK);
}

static bool same_span(struct http_span a, struct http_span b)
{
    return a.len == b.len && (a.len == 0 || a.at == b.at);
}

static bool same_head(const struct http_head *a, const struct http_head *b)
{
    bool same = a->bytes == b->bytes && a->minor == b->minor && a->method == b->method &&
                a->form == b->form && a->has_query == b->has_query &&
                a->keep_alive == b->keep_alive && a->expect_continue == b->expect_continue &&
                a->framing == b->framing && a->length == b->length && a->status == b->status &&
                same_span(a->method_text, b->method_text) && same_span(a->target, b->target) &&
                same_span(a->path, b->path) && same_span(a->query, b->query) &&
                same_span(a->authority, b->authority) && same_span(a->reason, b->reason) &&
                a->field_count == b->field_count;
    for (uint32_t i = 0; same && i < a->field_count; i++) {
        same = same_span(a->fields[i].name, b->fields[i].name) &&
               same_span(a->fields[i].value, b->fields[i].value);
    }
    return same;
}

bool drive_same(const struct drive *a, const struct drive *b)
{
    if (a->verdict != b->verdict || a->has_head != b->has_head) {
        return false;
    }
    if (a->verdict == HTTP_REFUSED &&
        (a->refusal.status != b->refusal.status || a->refusal.reason != b->refusal.reason)) {
        return false;
    }
    return !a->has_head || (a->used == b->used && same_head(&a->head, &b->head) &&
                               slice_equal(buf_view(&a->body), buf_view(&b->body)));
}
