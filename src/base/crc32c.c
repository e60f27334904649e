#include "base/crc32c.h"

#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#include <wmmintrin.h>
#endif

/* Bit by bit: a fallback for machines without the instruction, and the tests' oracle for it. */
static uint32_t crc_portable(uint32_t state, const unsigned char *at, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        state ^= at[i];
        for (int bit = 0; bit < 8; bit++) {
            state = (state >> 1) ^ (0x82f63b78u & (0u - (state & 1u)));
        }
    }
    return state;
}

#if defined(__x86_64__)
enum { LANE_BYTES = 64 }; /* three lanes at a time: a record's frame has a few hundred bytes */

__attribute__((target("sse4.2"))) static uint64_t crc_word(uint64_t state, const unsigned char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return _mm_crc32_u64(state, word);
}

__attribute__((target("sse4.2"))) static uint32_t crc_sse42(
    uint32_t state, const unsigned char *at, size_t size)
{
    uint64_t wide = state;
    for (; size >= 8; at += 8, size -= 8) {
        wide = crc_word(wide, at);
    }
    state = (uint32_t)wide;
    for (; size > 0; at++, size--) {
        state = _mm_crc32_u8(state, *at);
    }
    return state;
}

/* The state after N further zero bytes, where factor is x^(8 N - 33) modulo the polynomial, in the
 * instruction's bit order: crc32 itself multiplies by x^33 and reduces. */
__attribute__((target("sse4.2,pclmul"))) static uint64_t crc_shift(uint64_t state, uint64_t factor)
{
    __m128i product = _mm_clmulepi64_si128(
        _mm_cvtsi64_si128((long long)state), _mm_cvtsi64_si128((long long)factor), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

/* The instruction has a latency of three cycles but accepts a word in each. So three lanes run side
 * by side, and their states are combined by shifting them over the bytes that follow. */
__attribute__((target("sse4.2,pclmul"))) static uint32_t crc_lanes(
    uint32_t state, const unsigned char *at, size_t size)
{
    const uint64_t one_lane = 0x9e4addf8;  /* shifts by LANE_BYTES */
    const uint64_t two_lanes = 0x0d3b6092; /* by twice that */
    uint64_t first = state;
    for (; size >= 3 * LANE_BYTES; at += 3 * LANE_BYTES, size -= 3 * LANE_BYTES) {
        uint64_t second = 0;
        uint64_t third = 0;
        for (size_t i = 0; i < LANE_BYTES; i += 8) {
            first = crc_word(first, at + i);
            second = crc_word(second, at + LANE_BYTES + i);
            third = crc_word(third, at + 2 * (size_t)LANE_BYTES + i);
        }
        first = crc_shift(first, two_lanes) ^ crc_shift(second, one_lane) ^ third;
    }
    return crc_sse42((uint32_t)first, at, size);
}
#endif

uint32_t crc32c(uint32_t crc, const void *data, size_t size)
{
    const unsigned char *at = data;
    uint32_t state = ~crc;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) {
        return ~crc_lanes(state, at, size);
    }
    if (__builtin_cpu_supports("sse4.2")) {
        return ~crc_sse42(state, at, size);
    }
#endif
    return ~crc_portable(state, at, size);
}
