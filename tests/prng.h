/*
 * prng: numbers that look random and are the same for the same seed, on every machine.
 *
 * SplitMix64. For tests only: everything a test draws must be repeatable from the seed it prints.
 */
#ifndef ONCE_TESTS_PRNG_H
#define ONCE_TESTS_PRNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct prng {
    uint64_t state;
};

static inline uint64_t prng_next(struct prng *prng)
{
    uint64_t z = prng->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* 0 … count - 1. The small bias does not matter to a test. */
static inline uint64_t prng_below(struct prng *prng, uint64_t count)
{
    return prng_next(prng) % count;
}

/* True once in `every` times. */
static inline bool prng_once_in(struct prng *prng, uint64_t every)
{
    return prng_below(prng, every) == 0;
}

static inline void prng_fill(struct prng *prng, void *ret_bytes, size_t size)
{
    unsigned char *bytes = ret_bytes;
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (unsigned char)prng_next(prng);
    }
}

#endif
