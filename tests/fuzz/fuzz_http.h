/*
 * fuzz_http: how the bytes of a fuzz input become messages, for both targets.
 *
 * The low bits of the first byte: 1, responses; 2, to HEAD; 4, the connection ends behind them; 8,
 * small limits. The second byte is where the bytes are cut. The rest is messages, one behind
 * another.
 */
#ifndef ONCE_TESTS_FUZZ_FUZZ_HTTP_H
#define ONCE_TESTS_FUZZ_FUZZ_HTTP_H

#include "http_drive.h"

enum { FUZZ_PREFIX_BYTES = 2 };

static inline struct drive_input fuzz_input(const uint8_t *data, size_t size)
{
    struct drive_input input = {
        .bytes = slice_of(data + FUZZ_PREFIX_BYTES, size - FUZZ_PREFIX_BYTES),
        .is_response = (data[0] & 1) != 0,
        .method = (data[0] & 2) != 0 ? HTTP_METHOD_HEAD : HTTP_METHOD_GET,
        .is_closed = (data[0] & 4) != 0,
        .limits = HTTP_LIMITS_DEFAULT};
    if ((data[0] & 8) != 0) {
        input.limits = (struct http_limits){.head_bytes_max = 128,
            .target_bytes_max = 16,
            .fields_max = 3,
            .trailer_bytes_max = 16,
            .chunk_ext_bytes_max = 16,
            .body_bytes_max = 16};
    }
    return input;
}

/* What is behind the message that was read. */
static inline struct slice fuzz_rest(const struct drive_input *input, const struct drive *drive)
{
    return slice_of(input->bytes.data + drive->used, input->bytes.len - drive->used);
}

#endif
