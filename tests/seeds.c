#include "seeds.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/text.h"
#include "sanitized.h"

#if IS_SANITIZED
#include <sanitizer/common_interface_defs.h>
#endif

enum {
    SEEDS_DEFAULT = IS_SANITIZED ? 75 : 500,
    SEEDS_LONG = IS_SANITIZED ? 12500 : 50000,
    OWN_LONG_TIMES = 20,      /* a simulation's own number, in the long tier */
    SEEDS_FOR_COUNTERS = 500, /* with fewer, a rare thing may honestly be missing */
    FAILURES_MAX = 5,         /* more of them say no more */
    SEEDS_TWICE = 25,
    COUNTS_MAX = 256,
};

struct options {
    uint64_t from;
    uint64_t seeds;
};

/* For the handlers, which are told nothing. */
static const struct seeds_sim *running;
static const char *program;
static uint64_t running_seed;

static void say_failure(const char *what)
{
    printf("seed %" PRIu64 ", step %" PRIu64 ": %s\n  replay: %s --seed %" PRIu64 " --trace\n",
        running_seed, *running->step, what, program, running_seed);
    (void)fflush(stdout);
}

/* An assertion of the program's own is a finding like any other. */
static void on_abort(int signal)
{
    (void)signal;
    say_failure("an assertion failed");
    _Exit(1);
}

#if IS_SANITIZED
/* Set by a call: a hook that the sanitizer finds by its name would be hidden, as all names are. */
static void on_death(void)
{
    say_failure("a sanitizer ends the run");
}
#endif

static void watch_deaths(void)
{
    (void)signal(SIGABRT, on_abort);
#if IS_SANITIZED
    __sanitizer_set_death_callback(on_death);
#endif
}

static bool read_options(
    const struct seeds_sim *sim, int argc, char **argv, struct options *ret_options)
{
    bool is_long = getenv("ONCE_TEST_LONG") != NULL;
    struct options options = {.from = 1, .seeds = is_long ? SEEDS_LONG : SEEDS_DEFAULT};
    if (sim->seeds > 0) {
        options.seeds = sim->seeds * (is_long ? OWN_LONG_TIMES : 1);
    }
    for (int i = 1; i < argc; i++) {
        struct slice value = slice_str(i + 1 < argc ? argv[i + 1] : "");
        bool is_good = false;
        if (strcmp(argv[i], "--trace") == 0) {
            *sim->is_traced = true;
            continue;
        }
        if (strcmp(argv[i], "--seeds") == 0) {
            is_good = text_u64(value, &options.seeds);
        } else if (strcmp(argv[i], "--from") == 0) {
            is_good = text_u64(value, &options.from);
        } else if (strcmp(argv[i], "--seed") == 0) {
            is_good = text_u64(value, &options.from);
            options.seeds = 1;
        }
        if (!is_good) {
            fprintf(stderr, "usage: %s [--seeds N] [--from S] | --seed S [--trace]\n", sim->name);
            return false;
        }
        i++;
    }
    *ret_options = options;
    return true;
}

static bool run(const struct seeds_sim *sim, uint64_t seed)
{
    running_seed = seed;
    bool is_good = sim->run(sim->context, seed);
    if (!is_good) {
        say_failure(sim->violation);
    }
    return is_good;
}

/* What happens the second time is not counted. */
static bool repeats(const struct seeds_sim *sim, uint64_t seed)
{
    uint64_t counts[COUNTS_MAX];
    uint64_t trace = *sim->trace;
    ASSERT(sim->count <= COUNTS_MAX);
    memcpy(counts, sim->counts, sim->count * sizeof *counts);
    (void)sim->run(sim->context, seed);
    memcpy(sim->counts, counts, sim->count * sizeof *counts);
    if (*sim->trace != trace) {
        printf("seed %" PRIu64 " ran differently the second time\n", seed);
    }
    return *sim->trace == trace;
}

/* True when all seeds went well and the first ones did so twice. */
static bool run_all(const struct seeds_sim *sim, const struct options *options)
{
    uint64_t failed = 0;
    for (uint64_t i = 0; i < options->seeds && failed < FAILURES_MAX; i++) {
        uint64_t seed = options->from + i;
        failed += !run(sim, seed);
        if (i < SEEDS_TWICE && !*sim->is_traced) {
            failed += !repeats(sim, seed);
        }
    }
    printf("%" PRIu64 " seeds from %" PRIu64 "\n", options->seeds, options->from);
    return failed == 0;
}

static bool tell_counters(const struct seeds_sim *sim, uint64_t seeds)
{
    bool all = true;
    for (size_t i = 0; i < sim->count; i++) {
        printf("%12" PRIu64 "  %s\n", sim->counts[i], sim->texts[i]);
        if (sim->counts[i] == 0 && seeds >= SEEDS_FOR_COUNTERS) {
            printf("never happened: %s\n", sim->texts[i]);
            all = false;
        }
    }
    return all;
}

int seeds_main(const struct seeds_sim *sim, int argc, char **argv)
{
    struct options options;
    if (!read_options(sim, argc, argv, &options)) {
        return 64;
    }
    running = sim;
    program = argv[0];
    watch_deaths();
    int passed = run_all(sim, &options) ? 1 : 0;
    passed += tell_counters(sim, options.seeds) ? 1 : 0;
    printf("once-tests: %d passed, %d failed\n", passed, 2 - passed);
    return passed == 2 ? 0 : 1;
}
