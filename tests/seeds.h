/*
 * seeds: run a simulation for many seeds, or look at one. The main program of tests/sim and of
 * tests/sim_gateway.
 *
 *     PROGRAM [--seeds N] [--from S]     N runs (500), seeds S (1) and up
 *     PROGRAM --seed S [--trace]         one run, printed step by step
 *
 * With ONCE_TEST_LONG set N is 50000. With sanitizers it is 75, or 12500. A simulation may have
 * its own N. The first seeds run twice: the same seed has to be the same run, or replaying a
 * failure would show something else. A violation, a failed assertion and a sanitizer's report each
 * print the seed and how to replay it.
 *
 * Ends with what happened how often. Something that never happened fails the run when there were
 * enough seeds for it: a simulation without late seals says nothing about late seals.
 */
#ifndef ONCE_TESTS_SEEDS_H
#define ONCE_TESTS_SEEDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the simulation shares with its main program. */
struct seeds_sim {
    const char *name;
    bool (*run)(void *context, uint64_t seed); /* false: something was violated */
    void *context;
    const char *const *texts; /* what has to happen sometimes … */
    uint64_t *counts;         /* … and how often it did */
    size_t count;
    uint64_t seeds; /* in the short tier, and 20 times as many in the long one; 0: the usual */
    /* Of the run under way, or of the last one. */
    const uint64_t *step;
    const uint64_t *trace; /* differs for runs that differ */
    const char *violation;
    bool *is_traced; /* set before the first run */
};

/* The program's exit status. */
int seeds_main(const struct seeds_sim *sim, int argc, char **argv);

#endif
