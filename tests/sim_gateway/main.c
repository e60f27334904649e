/*
 * sim_gateway: run the simulation of the gateway for many seeds, or look at one.
 *
 *     sim_gateway [--seeds N] [--from S]     N runs (2000), seeds S (1) and up
 *     sim_gateway --seed S [--trace]         one run, told step by step
 *
 * With ONCE_TEST_LONG set N is 50000. Ends with what happened how often; something that never
 * happened fails the run when there were enough seeds for it.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/text.h"
#include "sim_gateway.h"

enum {
    SEEDS_DEFAULT = 2000,
    SEEDS_LONG = 50000,
    SEEDS_FOR_COUNTERS = 500, /* with fewer, a rare thing may honestly be missing */
    FAILURES_MAX = 5,         /* more of them say no more */
    SEEDS_TWICE = 25,         /* run again, to see that the same seed is the same run */
};

static const char *const sometimes_texts[SOMETIMES_COUNT] = {
#define SIM_TEXT(name, text) text,
    SIM_SOMETIMES(SIM_TEXT)
#undef SIM_TEXT
};

struct options {
    uint64_t from;
    uint64_t seeds;
    bool is_traced;
};

static const char *program;

static void say_replay(void)
{
    printf("  replay: %s --seed %" PRIu64 " --trace\n", program, sim->seed);
    (void)fflush(stdout);
}

/* An assertion of the gateway's own is a finding like any other. */
static void on_abort(int signal)
{
    (void)signal;
    printf("seed %" PRIu64 ", step %" PRIu64 ": an assertion failed\n", sim->seed, sim->step);
    say_replay();
    _Exit(1);
}

#ifdef __SANITIZE_ADDRESS__
void __asan_on_error(void);
void __asan_on_error(void)
{
    printf("seed %" PRIu64 ", step %" PRIu64 ": memory is misused\n", sim->seed, sim->step);
    say_replay();
}
#endif

static bool read_options(int argc, char **argv, struct options *options)
{
    *options = (struct options){
        .from = 1, .seeds = getenv("ONCE_TEST_LONG") != NULL ? SEEDS_LONG : SEEDS_DEFAULT};
    for (int i = 1; i < argc; i++) {
        struct slice value = slice_str(i + 1 < argc ? argv[i + 1] : "");
        bool is_good = false;
        if (strcmp(argv[i], "--trace") == 0) {
            options->is_traced = true;
            continue;
        }
        if (strcmp(argv[i], "--seeds") == 0) {
            is_good = text_u64(value, &options->seeds);
        } else if (strcmp(argv[i], "--from") == 0) {
            is_good = text_u64(value, &options->from);
        } else if (strcmp(argv[i], "--seed") == 0) {
            is_good = text_u64(value, &options->from);
            options->seeds = 1;
        }
        if (!is_good) {
            fprintf(stderr, "usage: sim_gateway [--seeds N] [--from S] | --seed S [--trace]\n");
            return false;
        }
        i++;
    }
    return true;
}

static bool repeats(uint64_t seed)
{
    uint64_t *sometimes = sim->sometimes;
    uint64_t ignored[SOMETIMES_COUNT] = {0};
    uint64_t trace = sim->trace;
    sim->sometimes = ignored;
    (void)sim_run(seed);
    sim->sometimes = sometimes;
    if (sim->trace != trace) {
        printf("seed %" PRIu64 " ran differently the second time\n", seed);
    }
    return sim->trace == trace;
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

static bool run_all(const struct options *options)
{
    uint64_t failed = 0;
    for (uint64_t i = 0; i < options->seeds && failed < FAILURES_MAX; i++) {
        uint64_t seed = options->from + i;
        if (!sim_run(seed)) {
            failed++;
            printf("seed %" PRIu64 ", step %" PRIu64 ": %s\n", seed, sim->step, sim->violation);
            say_replay();
        }
        if (i < SEEDS_TWICE && !options->is_traced && !repeats(seed)) {
            failed++;
        }
    }
    printf("%" PRIu64 " seeds from %" PRIu64 "\n", options->seeds, options->from);
    return failed == 0;
}

int main(int argc, char **argv)
{
    struct options options;
    if (!read_options(argc, argv, &options)) {
        return 64;
    }
    uint64_t sometimes[SOMETIMES_COUNT] = {0};
    program = argv[0];
    (void)signal(SIGABRT, on_abort);
    sim = mem_zalloc(&mem_libc, 1, sizeof *sim);
    ASSERT(sim != NULL);
    sim->sometimes = sometimes;
    sim->is_traced = options.is_traced;
    int passed = run_all(&options) ? 1 : 0;
    passed += tell_counters(sometimes, options.seeds) ? 1 : 0;
    printf("once-tests: %d passed, %d failed\n", passed, 2 - passed);
    mem_free(&mem_libc, sim);
    return passed == 2 ? 0 : 1;
}
