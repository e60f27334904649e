/*
 * fuzz_json: the reader and the writer on any bytes.
 *
 * What is read can be written; what was written reads as the same value and writes the same bytes;
 * the diff of a value with itself is empty; a key comes out or a reason. Failures name a place
 * inside the text.
 */
#include <stdint.h>

#include "base/check.h"
#include "base/limits.h"
#include "canon/diff.h"
#include "canon/jcs.h"
#include "canon/json.h"
#include "canon/key.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FUZZ_BYTES_MAX = 64 << 20 };

/* Canonical bytes of the text; false when it is refused, which must not be for want of memory. */
static bool canonical(struct slice text, struct arena *arena, const struct json_value **ret_value,
    struct buf *out, size_t *ret_lossy)
{
    struct err err = {.status = OK};
    struct json_place place = {.line = 0};
    struct jcs_report report;
    enum status status = json_read_placed(text, arena, ret_value, &place, &err);
    if (status != OK) {
        ASSERT(status == E_INVALID || status == E_LIMIT);
        ASSERT(place.line >= 1 && place.column >= 1 && place.offset <= text.len);
        ASSERT(err.text[0] != '\0');
        return false;
    }
    status = jcs_write(*ret_value, out, &report, &err);
    ASSERT(status == OK || status == E_INVALID);
    *ret_lossy = status == OK ? report.lossy_count : 0;
    return status == OK;
}

/* The same bytes give the same key, whatever the envelope looked like. */
static void check_keys(const struct json_value *value, const struct json_value *again)
{
    struct buf out;
    buf_init(&out, &mem_libc, FUZZ_BYTES_MAX);
    for (int kind = KEY_COMMAND; kind <= KEY_SOURCE; kind++) {
        struct err err = {.status = OK};
        struct digest first, second;
        enum status status = key_derive((enum key_kind)kind, value, &out, &first, &err);
        ASSERT(status == OK || (status == E_INVALID && err.text[0] != '\0'));
        if (status == OK) {
            ASSERT(key_derive((enum key_kind)kind, again, &out, &second, &err) == OK);
            ASSERT(digest_equal(&first, &second));
        }
    }
    buf_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    struct buf first, second, patch;
    arena_init(&arena, &mem_libc, FUZZ_BYTES_MAX);
    buf_init(&first, &mem_libc, FUZZ_BYTES_MAX);
    buf_init(&second, &mem_libc, FUZZ_BYTES_MAX);
    buf_init(&patch, &mem_libc, LIMIT_DIFF_BYTES_MAX);
    const struct json_value *value, *again;
    size_t lossy = 0;
    if (canonical(slice_of(data, size), &arena, &value, &first, &lossy)) {
        size_t lossy_again = 0;
        ASSERT(canonical(buf_view(&first), &arena, &again, &second, &lossy_again));
        ASSERT(slice_equal(buf_view(&first), buf_view(&second)));
        ASSERT(lossy_again == 0);
        ASSERT(json_equal(value, again) == (lossy == 0));
        struct diff_options options = {.bytes_max = LIMIT_DIFF_BYTES_MAX};
        bool truncated;
        ASSERT(diff_write(value, again, &options, &patch, &truncated, NULL) == OK);
        check_keys(value, again);
        ASSERT((patch.len == 2) == (lossy == 0) || truncated);
    }
    buf_release(&patch);
    buf_release(&second);
    buf_release(&first);
    arena_release(&arena);
    return 0;
}
