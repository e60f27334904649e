/*
 * The program: see tests/seeds.h for its options. Journals are made in TMPDIR and removed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "seeds.h"
#include "sim.h"

static const char *const sometimes_texts[SOMETIMES_COUNT] = {
#define SIM_TEXT(name, text) text,
    SIM_SOMETIMES(SIM_TEXT)
#undef SIM_TEXT
};

static bool run(void *context, uint64_t seed)
{
    return sim_run(context, seed);
}

int main(int argc, char **argv)
{
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
    const struct seeds_sim seeds = {.name = "sim",
        .run = run,
        .context = sim,
        .texts = sometimes_texts,
        .counts = sometimes,
        .count = SOMETIMES_COUNT,
        .step = &sim->step,
        .trace = &sim->trace,
        .violation = sim->violation,
        .is_traced = &sim->verbose};
    int status = seeds_main(&seeds, argc, argv);
    mem_free(&mem_libc, sim);
    (void)rmdir(directory);
    return status;
}
