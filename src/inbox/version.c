#include "inbox/version.h"

#include <stdio.h>

#include "base/limits.h"
#include "base/name.h"
#include "base/text.h"

enum {
    FRACTION_DIGITS = 9,
    SECONDS_BYTES = sizeof "2026-11-16T21:00:00" - 1,
};

static size_t digits_of(struct slice text)
{
    size_t count = 0;
    while (count < text.len && text.data[count] >= '0' && text.data[count] <= '9') {
        count++;
    }
    return count;
}

static struct slice after(struct slice text, size_t bytes)
{
    return slice_of(text.data + bytes, text.len - bytes);
}

/* ".5" as ".500000000"; digits after the ninth are left out. *ret_used: bytes of the text. */
static void put_fraction(char ret_text[FRACTION_DIGITS + 2], struct slice text, size_t *ret_used)
{
    size_t digits = text.len > 1 && text.data[0] == '.' ? digits_of(after(text, 1)) : 0;
    ret_text[0] = '.';
    for (size_t i = 0; i < FRACTION_DIGITS; i++) {
        ret_text[1 + i] = i < digits ? text.data[1 + i] : '0';
    }
    ret_text[1 + FRACTION_DIGITS] = '\0';
    *ret_used = digits > 0 ? digits + 1 : 0;
}

static size_t put_number(char *ret_text, struct slice text)
{
    char fraction[FRACTION_DIGITS + 2];
    size_t used = 0;
    size_t digits = digits_of(text);
    if (digits == 0) {
        return 0;
    }
    put_fraction(fraction, after(text, digits), &used);
    if (digits + used != text.len) {
        return 0;
    }
    bool is_whole = strspn(fraction, ".0") == sizeof fraction - 1; /* 12.0 is 12 */
    int len = snprintf(
        ret_text, VERSION_TEXT_BYTES, "%.*s%s", (int)digits, text.data, is_whole ? "" : fraction);
    return (size_t)len;
}

/* 0: not a time. */
static size_t put_time(char *ret_text, struct slice text)
{
    char fraction[FRACTION_DIGITS + 2];
    char utc[TEXT_TIME_BYTES];
    size_t used = 0;
    int64_t ms = 0;
    struct slice digits;
    if (!text_instant(text, &ms, &digits)) {
        return 0;
    }
    put_fraction(fraction, after(text, SECONDS_BYTES), &used);
    int len = snprintf(ret_text, VERSION_TEXT_BYTES, "%.*s%sZ", (int)SECONDS_BYTES,
        text_put_time(utc, ms), fraction);
    return (size_t)len;
}

size_t version_put(char ret_text[VERSION_TEXT_BYTES], struct slice text, bool is_number)
{
    if (text.len == 0 || text.len > LIMIT_SOURCE_BYTES_MAX - (FRACTION_DIGITS + 1) ||
        !name_valid(text)) {
        return 0;
    }
    if (is_number) {
        return put_number(ret_text, text);
    }
    size_t len = put_time(ret_text, text);
    if (len == 0) {
        len = text.len;
        memcpy(ret_text, text.data, len);
    }
    return len;
}
