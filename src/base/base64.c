#include "base/base64.h"

#include <stdint.h>

static const char *const alphabets[] = {
    [BASE64_PADDED] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
    [BASE64_URL] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_",
};

char *base64_put(char *ret_text, const void *bytes, size_t size, enum base64 form)
{
    const char *digits = alphabets[form];
    const unsigned char *from = bytes;
    char *at = ret_text;
    for (size_t i = 0; i < size; i += 3) {
        size_t left = size - i;
        uint32_t group = (uint32_t)from[i] << 16 | (left > 1 ? (uint32_t)from[i + 1] << 8 : 0) |
                         (left > 2 ? (uint32_t)from[i + 2] : 0);
        size_t used = left > 2 ? 4 : left + 1;
        for (size_t k = 0; k < 4; k++) {
            if (k < used) {
                *at++ = digits[group >> (18 - 6 * k) & 63];
            } else if (form == BASE64_PADDED) {
                *at++ = '=';
            }
        }
    }
    return at;
}

/* From '0' to 'z': the digit plus 1, for characters that both alphabets have; 0: any other.
 * Comparisons would often be mispredicted, for each digit. */
static const unsigned char shared_digits[] = {53, 54, 55, 56, 57, 58, 59, 60, 61, 62,
    /* : to @ */ 0, 0, 0, 0, 0, 0, 0,
    /* A */ 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24,
    25, 26,
    /* [ to ` */ 0, 0, 0, 0, 0, 0,
    /* a */ 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48,
    49, 50, 51, 52};

static int digit_of(char c, enum base64 form)
{
    size_t at = (size_t)((unsigned char)c - '0');
    if (c >= '0' && at < sizeof shared_digits && shared_digits[at] > 0) {
        return shared_digits[at] - 1;
    }
    return c == alphabets[form][62] ? 62 : c == alphabets[form][63] ? 63 : -1;
}

/* Removes the padding. False: its length is wrong. */
static bool unpad(struct slice *text)
{
    if (text->len % 4 != 0) {
        return false;
    }
    for (int i = 0; i < 2 && text->len > 0 && text->data[text->len - 1] == '='; i++) {
        text->len--;
    }
    return true;
}

bool base64_read(struct slice text, enum base64 form, void *ret_bytes, size_t *ret_size)
{
    if (form == BASE64_PADDED && !unpad(&text)) {
        return false;
    }
    unsigned char *out = ret_bytes;
    uint32_t bits = 0;
    unsigned held = 0;
    size_t size = 0;
    for (size_t i = 0; i < text.len; i++) {
        int digit = digit_of(text.data[i], form);
        if (digit < 0) {
            return false;
        }
        bits = (bits << 6 | (uint32_t)digit) & 0xfff;
        held += 6;
        if (held >= 8) {
            held -= 8;
            out[size++] = (unsigned char)(bits >> held);
        }
    }
    if (text.len % 4 == 1 || (bits & ((1u << held) - 1)) != 0) {
        return false;
    }
    *ret_size = size;
    return true;
}
