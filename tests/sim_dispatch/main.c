/* The program: see tests/seeds.h for its options. */
#include "base/check.h"
#include "sanitized.h"
#include "seeds.h"
#include "sim_dispatch.h"

static const char *const sometimes_texts[SOMETIMES_COUNT] = {
#define SIM_TEXT(name, text) text,
    SIM_SOMETIMES(SIM_TEXT)
#undef SIM_TEXT
};

static bool run(void *context, uint64_t seed)
{
    (void)context;
    return sim_run(seed);
}

int main(int argc, char **argv)
{
    uint64_t sometimes[SOMETIMES_COUNT] = {0};
    sim = mem_zalloc(&mem_libc, 1, sizeof *sim);
    ASSERT(sim != NULL);
    sim->sometimes = sometimes;
    const struct seeds_sim seeds = {.name = "sim_dispatch",
        .run = run,
        .texts = sometimes_texts,
        .counts = sometimes,
        .count = SOMETIMES_COUNT,
        .seeds = IS_SANITIZED ? 60 : 500,
        .step = &sim->step,
        .trace = &sim->trace,
        .violation = sim->violation,
        .is_traced = &sim->is_traced};
    int status = seeds_main(&seeds, argc, argv);
    mem_free(&mem_libc, sim);
    return status;
}
