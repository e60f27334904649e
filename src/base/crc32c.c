#include "base/crc32c.h"

#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
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
__attribute__((target("sse4.2"))) static uint32_t crc_sse42(
    uint32_t state, const unsigned char *at, size_t size)
{
    uint64_t wide = state;
    for (; size >= 8; at += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        wide = _mm_crc32_u64(wide, word);
    }
    state = (uint32_t)wide;
    for (; size > 0; at++, size--) {
        state = _mm_crc32_u8(state, *at);
    }
    return state;
}
#endif

uint32_t crc32c(uint32_t crc, const void *data, size_t size)
{
    const unsigned char *at = data;
    uint32_t state = ~crc;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) {
        return ~crc_sse42(state, at, size);
    }
#endif
    return ~crc_portable(state, at, size);
}
