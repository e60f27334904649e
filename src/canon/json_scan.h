/*
 * json_scan: what the reader does with single bytes, kept apart because every byte passes here.
 */
#ifndef ONCE_CANON_JSON_SCAN_H
#define ONCE_CANON_JSON_SCAN_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/scan.h"

static inline bool scan_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* The first byte that is not white space; indentation is skipped up to eight bytes at a time. */
static inline const char *scan_space(const char *at, const char *end)
{
    while (at < end && scan_is_space(*at)) {
        at++;
        if (end - at >= 8) {
            uint64_t others = scan_load(at) ^ UINT64_C(0x2020202020202020);
            at += others == 0 ? 8 : __builtin_ctzll(others) >> 3;
        }
    }
    return at;
}

static inline bool scan_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The same over valid UTF-8: stops at a quote, backslash, control, invalid byte, or the end. */
static inline const char *scan_string_run(const char *at, const char *end)
{
    for (;;) {
        at = scan_ascii_run(at, end);
        if (at == end || (unsigned char)*at < 0x80) {
            return at;
        }
        size_t size = scan_utf8(at, end);
        if (size == 0) {
            return at;
        }
        at += size;
    }
}

/* The UTF-8 of a code point that is not a surrogate; returns the end. */
static inline char *scan_put_utf8(char *at, uint32_t code)
{
    if (code < 0x80) {
        *at++ = (char)code;
    } else if (code < 0x800) {
        *at++ = (char)(0xC0 | code >> 6);
        *at++ = (char)(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
        *at++ = (char)(0xE0 | code >> 12);
        *at++ = (char)(0x80 | (code >> 6 & 0x3F));
        *at++ = (char)(0x80 | (code & 0x3F));
    } else {
        *at++ = (char)(0xF0 | code >> 18);
        *at++ = (char)(0x80 | (code >> 12 & 0x3F));
        *at++ = (char)(0x80 | (code >> 6 & 0x3F));
        *at++ = (char)(0x80 | (code & 0x3F));
    }
    return at;
}

#endif
