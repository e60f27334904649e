/*
 * sim: run the simulation for many seeds, or look at one.
 *
 *     sim [--seeds N] [--from S]     N runs (2000), seeds S (1) and up
 *     sim --seed S [--verbose]       one run, told step by step
 *
 * With ONCE_TEST_LONG set N is 50000. Journals are made in TMPDIR and removed.
 *
 * Ends with what happened how often. Something that never happened fails the run when there were
 * enough seeds for it: a simulation without late seals says nothing about late seals.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/text.h"
#include "sim.h"

enum {
    SEEDS_DEFAULT = 2000,
    SEEDS_LONG = 50000,
    SEEDS_FOR_COUNTERS = 500, /* with fewer, a rare thing may honestly be missing */
    FAILURES_MAX = 5,         /* more of them say no more */
    SEEDS_TWICE = 25,         /* run again, to see that the same seed is the same run */
};

const char *const sometimes_texts[SOMETIMES_COUNT] = {
#define SIM_TEXT(name, text) text,
    SIM_SOMETIMES(SIM_TEXT)
#undef SIM_TEXT
};

struct options {
    uint64_t from;
    uint64_t seeds;
    bool verbose;
};

static bool read_options(int argc, char **argv, struct options *options)
{
    *options = (struct options){
        .from = 1, .seeds = getenv("ONCE_TEST_LONG") != NULL ? SEEDS_LONG : SEEDS_DEFAULT};
    for (int i = 1; i < argc; i++) {
        struct slice value = slice_str(i + 1 < argc ? argv[i + 1] : "");
        bool good = true;
        if (strcmp(argv[i], "--verbose") == 0) {
            options->verbose = true;
            continue;
        }
        if (strcmp(argv[i], "--seeds") == 0) {
            good = text_u64(value, &options->seeds);
        } else if (strcmp(argv[i], "--from") == 0) {
            good = text_u64(value, &options->from);
        } else if (strcmp(argv[i], "--seed") == 0) {
            good = text_u64(value, &options->from);
            options->seeds = 1;
        } else {
            good = false;
        }
        if (!good) {
            fprintf(stderr, "usage: sim [--seeds N] [--from S] | --seed S [--verbose]\n");
            return false;
        }
        i++;
    }
    return true;
}

/* The same seed has to be the same run, or replaying a failure would show something else. */
static bool repeats(struct sim *sim, uint64_t seed, uint64_t trace)
{
    uint64_t *sometimes = sim->sometimes;
    uint64_t ignored[SOMETIMES_COUNT] = {0};
    sim->sometimes = ignored;
    (void)sim_run(sim, seed);
    sim->sometimes = sometimes;
    if (sim->trace != trace) {
        printf("seed %" PRIu64 " ran differently the second time\n", seed);
        return false;
    }
    return true;
}

static bool tell_counters(const uint64_t sometimes[SOMETIMES_COUNT], uint64_t seeds)
{
    bool all = true;
    for (int i = 0; i < SOMETIMES_COUNT; i++) {
        printf("%12" PRIu64 "  %s\n", sometimes[i], sometimes_texts[i]);
        if (sometimes[i] == 0 && seeds >= SEEDS_FOR_COUNTERS) {
            printf("never happened: %s\n", sometimes_texts[i]);
            all = false;
        }
    }
    return all;
}

/* Run the seeds; true when all of them went well and the first ones did so twice. */
static bool run_all(struct sim *sim, const struct options *options, const char *program)
{
    uint64_t failed = 0;
    uint64_t calls = 0;
    for (uint64_t i = 0; i < options->seeds && failed < FAILURES_MAX; i++) {
        uint64_t seed = options->from + i;
        if (!sim_run(sim, seed)) {
            failed++;
            printf("seed %" PRIu64 ", step %" PRIu64 ": %s\n  replay: %s --seed %" PRIu64
                   " --verbose\n",
                seed, sim->step, sim->violation, program, seed);
        }
        calls += sim->call_count;
        if (i < SEEDS_TWICE && !options->verbose && !repeats(sim, seed, sim->trace)) {
            failed++;
        }
    }
    printf("%" PRIu64 " seeds from %" PRIu64 ", %" PRIu64 " calls\n", options->seeds, options->from,
        calls);
    return failed == 0;
}

int main(int argc, char **argv)
{
    struct options options;
    if (!read_options(argc, argv, &options)) {
        return 64;
    }
    uint64_t sometimes[SOMETIMES_COUNT] = {0};
    struct sim *sim = mem_zalloc(&mem_libc, 1, sizeof *sim);
    ASSERT(sim != NULL);
    const char *parent = getenv("TMPDIR");
    char directory[100];
    (void)snprintf(directory, sizeof directory, "%s/once-sim-XXXXXX",
        parent == NULL || strlen(parent) > 64 ? "/tmp" : parent);
    sim->directory = mkdtemp(directory);
    ASSERT(sim->directory != NULL);
    sim->sometimes = sometimes;
    sim->verbose = options.verbose;
    int passed = run_all(sim, &options, argv[0]) ? 1 : 0;
    passed += tell_counters(sometimes, options.seeds) ? 1 : 0;
    printf("once-tests: %d passed, %d failed\n", passed, 2 - passed);
    mem_free(&mem_libc, sim);
    (void)rmdir(directory);
    return passed == 2 ? 0 : 1;
}
