/*
 * scan: where a run of plain text ends, many bytes at a time.
 *
 * Used to read and write JSON strings (the reader, the canonical writer and the log), and by the
 * rules for names and field values.
 */
#ifndef ONCE_BASE_SCAN_H
#define ONCE_BASE_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Eight bytes with the first one lowest. */
static inline uint64_t scan_load(const char *at)
{
    uint64_t bytes;
    memcpy(&bytes, at, sizeof bytes);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    bytes = __builtin_bswap64(bytes);
#endif
    return bytes;
}

/* Whether eight bytes are all printable ASCII. Adding one sets the top bit of DEL; subtracting 0x20
 * sets that of a control character; neither carries into the next byte unless the byte itself is
 * refused. */
static inline bool scan_printable_8(uint64_t bytes)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    const uint64_t tops = UINT64_C(0x8080808080808080);
    return ((bytes | (bytes + ones) | (bytes - ones * 0x20)) & tops) == 0;
}

/* Eight bytes with every byte of a text of one to seven, and maybe spaces: for questions about all
 * of them. */
static inline uint64_t scan_load_short(const char *text, size_t len)
{
    if (len >= 4) {
        uint32_t head, tail;
        memcpy(&head, text, sizeof head);
        memcpy(&tail, text + len - sizeof tail, sizeof tail);
        return (uint64_t)head << 32 | tail;
    }
    return UINT64_C(0x2020202020000000) | (uint64_t)(unsigned char)text[0] << 16 |
           (uint64_t)(unsigned char)text[len / 2] << 8 | (unsigned char)text[len - 1];
}

#ifdef __SSE2__
/* As scan_printable_8, for sixteen. */
static inline bool scan_printable_16(const char *at)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)at);
    /* Signed, so that what is not ASCII is below as well. */
    __m128i below = _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20));
    __m128i delete = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x7f));
    return _mm_movemask_epi8(_mm_or_si128(below, delete)) == 0;
}
#endif

/* Whether a text is all printable ASCII: 0x20 to 0x7E, as most names are. The last bytes of a long
 * text are checked together, some of them a second time. */
static inline bool scan_printable(const char *text, size_t len)
{
    if (len < 8) {
        return len == 0 || scan_printable_8(scan_load_short(text, len));
    }
    size_t at = 0;
#ifdef __SSE2__
    for (; len - at > 16; at += 16) {
        if (!scan_printable_16(text + at)) {
            return false;
        }
    }
    if (len >= 16) {
        return scan_printable_16(text + len - 16);
    }
#endif
    for (; len - at > 8; at += 8) {
        if (!scan_printable_8(scan_load(text + at))) {
            return false;
        }
    }
    return scan_printable_8(scan_load(text + len - 8));
}

/* The bytes of the UTF-8 sequence at `at`, or 0 when it is not valid (RFC 3629 section 4). */
static inline size_t scan_utf8(const char *at, const char *end)
{
    const unsigned char *s = (const unsigned char *)at;
    size_t size = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    if (s[0] < 0xC2 || s[0] > 0xF4 || (size_t)(end - at) < size) {
        return 0;
    }
    for (size_t i = 1; i < size; i++) {
        if ((s[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    /* Overlong forms, surrogates and what lies beyond U+10FFFF show in the second byte. */
    bool refused = (s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) ||
                   (s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F);
    return refused ? 0 : size;
}

/* The top bit of each byte that is a quote, a backslash, a control or not ASCII. For ASCII,
 * subtracting one from a byte sets its top bit only if it was zero. Above the lowest such byte
 * there may be false ones, as borrows run upwards; so only the lowest counts. */
static inline uint64_t scan_special(uint64_t bytes)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    const uint64_t tops = UINT64_C(0x8080808080808080);
    uint64_t quote = (bytes ^ (ones * '"')) - ones;
    uint64_t backslash = (bytes ^ (ones * '\\')) - ones;
    uint64_t control = bytes - ones * 0x20;
    return (quote | backslash | control | bytes) & tops;
}

/* The end of the run of plain bytes from `at`: ASCII except quote, backslash and control
 * characters. */
static inline const char *scan_ascii_run(const char *at, const char *end)
{
    const char *start = at;
#ifdef __SSE2__
    /* Part of every x86-64. Most strings are longer than eight bytes and shorter than sixteen. */
    while (end - at >= 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)at);
        __m128i quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"'));
        __m128i backslash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'));
        /* Signed, so that what is not ASCII is below as well. */
        __m128i below = _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20));
        int special = _mm_movemask_epi8(_mm_or_si128(below, _mm_or_si128(quote, backslash)));
        if (special != 0) {
            return at + __builtin_ctz((unsigned)special);
        }
        at += 16;
    }
#endif
    while (end - at >= 8) {
        uint64_t special = scan_special(scan_load(at));
        if (special != 0) {
            return at + (__builtin_ctzll(special) >> 3);
        }
        at += 8;
    }
    if (at < end && end - start >= 8) {
        /* The last eight bytes, some of which are known to be plain: nothing is left after them. */
        uint64_t special = scan_special(scan_load(end - 8));
        return special == 0 ? end : end - 8 + (__builtin_ctzll(special) >> 3);
    }
    if (at < end && scan_special(scan_load_short(at, (size_t)(end - at))) == 0) {
        return end;
    }
    while (at < end && (unsigned char)*at >= 0x20 && (unsigned char)*at < 0x80 && *at != '"' &&
           *at != '\\') {
        at++;
    }
    return at;
}

#endif
