#include "core/source.h"

#include <string.h>

#include "base/check.h"

bool source_ordered(const struct source *source)
{
    return source->type.len > 0 && source->id.len > 0 && source->version.len > 0;
}

bool source_equal(const struct source *a, const struct source *b)
{
    return slice_equal(a->type, b->type) && slice_equal(a->id, b->id) &&
           slice_equal(a->version, b->version);
}

static bool is_digit(struct slice text, size_t at)
{
    return at < text.len && text.data[at] >= '0' && text.data[at] <= '9';
}

/* Takes a run of digits without its leading zeros. Returns how many zeros there were. */
static size_t take_number(struct slice text, size_t *at, struct slice *ret_digits)
{
    ASSERT(is_digit(text, *at));
    size_t from = *at;
    while (is_digit(text, *at) && text.data[*at] == '0') {
        (*at)++;
    }
    size_t zeros = *at - from;
    size_t start = *at;
    while (is_digit(text, *at)) {
        (*at)++;
    }
    *ret_digits = slice_of(text.data + start, *at - start);
    return zeros;
}

static int compare_numbers(struct slice a, struct slice b)
{
    ASSERT(a.len == 0 || a.data[0] != '0'); /* or length would not decide the order */
    ASSERT(b.len == 0 || b.data[0] != '0');
    if (a.len != b.len) {
        return a.len < b.len ? -1 : 1;
    }
    return a.len == 0 ? 0 : memcmp(a.data, b.data, a.len);
}

/* *ret_zeros decides between two versions that are otherwise equal. */
static int compare(struct slice a, struct slice b, int *ret_zeros)
{
    size_t at_a = 0;
    size_t at_b = 0;
    *ret_zeros = 0;
    while (at_a < a.len && at_b < b.len) {
        if (is_digit(a, at_a) && is_digit(b, at_b)) {
            struct slice number_a, number_b;
            size_t zeros_a = take_number(a, &at_a, &number_a);
            size_t zeros_b = take_number(b, &at_b, &number_b);
            int order = compare_numbers(number_a, number_b);
            if (order != 0) {
                return order;
            }
            if (*ret_zeros == 0 && zeros_a != zeros_b) {
                *ret_zeros = zeros_a < zeros_b ? -1 : 1;
            }
        } else {
            unsigned char byte_a = (unsigned char)a.data[at_a++];
            unsigned char byte_b = (unsigned char)b.data[at_b++];
            if (byte_a != byte_b) {
                return byte_a < byte_b ? -1 : 1;
            }
        }
    }
    return (at_a < a.len) - (at_b < b.len);
}

int version_compare(struct slice a, struct slice b)
{
    int zeros;
    int order = compare(a, b, &zeros);
    return order != 0 ? order : zeros;
}

bool version_older(struct slice a, struct slice b)
{
    int zeros;
    return compare(a, b, &zeros) < 0;
}

enum status source_key_seal(const struct record_key *operation, const struct source *source,
    struct record_key *ret_key, struct err *err)
{
    struct record_key key = {.tenant = operation->tenant,
        .scope = operation->scope,
        .principal = source->type,
        .key = source->id};
    enum status status = record_key_seal_as(&key, RECORD_SOURCE, err);
    if (status == OK) {
        *ret_key = key;
    }
    return status;
}

struct slice source_version(const struct record *found, int64_t now_ms)
{
    if (found == NULL || record_window_over(found, now_ms)) {
        return SLICE_EMPTY;
    }
    ASSERT(found->kind == RECORD_SOURCE); /* R7 */
    return found->source.version;
}

bool source_remember(const struct record *found, const struct record *sealed,
    const struct record_key *key, struct record *ret_next)
{
    ASSERT(record_status_sealed(sealed->status) && source_ordered(&sealed->source));
    struct slice before = source_version(found, sealed->sealed_ms);
    if (before.len > 0) {
        bool newer = version_older(before, sealed->source.version);
        bool same = !newer && !version_older(sealed->source.version, before);
        /* The same version under a different key: remember it for as long as the longer window. */
        if (!newer && !(same && sealed->window_expires_ms > found->window_expires_ms)) {
            return false;
        }
    }
    *ret_next = (struct record){
        .key = *key,
        .kind = RECORD_SOURCE,
        /* An expired record may still be stored, and its version is compared (S3). */
        .version = found == NULL ? 1 : found->version + 1,
        .status = RECORD_EXECUTED,
        .operation_id = sealed->operation_id,
        .fence = sealed->fence,
        .attempt = sealed->attempt,
        .created_ms = before.len == 0 ? sealed->sealed_ms : found->created_ms,
        .updated_ms = sealed->sealed_ms,
        .sealed_ms = sealed->sealed_ms,
        .window_expires_ms = sealed->window_expires_ms,
        .window_ms = sealed->window_ms,
        .source = sealed->source,
    };
    record_check(ret_next);
    return true;
}
