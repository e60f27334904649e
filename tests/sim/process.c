#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"
#include "base/limits.h"
#include "sim.h"
#include "store/journal/journal.h"

/* ---- Starting. ---- */

/* False: the disk died on the way. */
static bool open_store(struct sim *sim, struct store **ret_store)
{
    struct err err = {0};
    if (!sim->on_journal) {
        *ret_store = sim->memory;
        return true;
    }
    const struct store_options options = {.io = &sim->shaky.io,
        .clock = &sim->clock,
        .retain_ms = INT64_MAX / 4}; /* the oracle reads all evidence there ever was */
    static const char *const ways[] = {"buffered", "direct", "uring"}; /* never by a stopwatch */
    char url[256];
    (void)snprintf(url, sizeof url, "%s?segment=64KiB&snapshot=64KiB&background=off&write=%s",
        sim->path, ways[sim->seed / 4 % 3]);
    enum status status = journal_open(url, &options, ret_store, &err);
    if (status != OK && !sim->shaky.dead) {
        sim_violate(sim, "P11: the journal does not open: %s", err.text);
    }
    return status == OK;
}

static bool process_start(struct sim *sim)
{
    static const struct engine_options options = {0};
    struct store *inner;
    struct err err = {0};
    if (!open_store(sim, &inner)) {
        return false;
    }
    ASSERT(fault_new(inner, NULL, &sim->store, &err) == OK);
    sim->store->ops->identity(sim->store, &sim->identity, NULL);
    ASSERT(cycle_init(&sim->cycle, sim->store, &mem_libc, &err) == OK);
    memset(&sim->janitor, 0, sizeof sim->janitor);
    ASSERT(janitor_init(&sim->janitor, &sim->cycle, &sim->identity, &options, &err) == OK);
    /* The clients outlive the process: nothing that they hold may become unknown by this. */
    ASSERT(janitor_start(&sim->janitor, &err) == OK);
    sim->up = true;
    return true;
}

int64_t process_time_ms(struct sim *sim)
{
    struct store_batch time = {.count = 0};
    struct err err = {0};
    if (sim->store->ops->read(sim->store, &time, &err) != OK) {
        return sim->engine_ms;
    }
    if (time.clock_held) {
        sim_note(sim, SOMETIMES_CLOCK_HELD);
    }
    return time.now_ms;
}

/* ---- Crashing. ---- */

/* What the process had in memory is gone; nobody hears anything. */
static void process_end(struct sim *sim)
{
    janitor_release(&sim->janitor);
    cycle_release(&sim->cycle);
    /* A machine that is dead writes nothing any more, so closing only frees. */
    sim->shaky.dead = true;
    if (sim->on_journal) {
        (void)sim->store->ops->close(sim->store, NULL);
    } else {
        ASSERT(fault_take(sim->store) == sim->memory); /* which stays */
    }
    sim->store = NULL;
    sim->up = false;
    for (size_t i = 0; i < sim->batch_count; i++) {
        for (size_t j = 0; j < sim->batches[i].count; j++) {
            struct engine_call *call = sim->batches[i].calls[j];
            if (call != NULL && sim_is_ours(call)) {
                if (call->query == NULL && call->decision.kind == DECISION_FIRST_SEEN) {
                    sim_note(sim, SOMETIMES_GRANT_UNTOLD);
                }
                sim_lose(sim, call->context);
            }
        }
    }
    sim->batch_count = 0;
    while (sim->queue != NULL) {
        sim_lose(sim, sim_pop(&sim->queue));
    }
    while (sim->parked != NULL) {
        sim_lose(sim, sim_pop(&sim->parked));
    }
}

/* What was not flushed is there, or not, or in part. */
static void lose_unflushed(struct sim *sim)
{
    if (sim->on_journal) {
        size_t taken = shaky_revive(&sim->shaky, &sim->prng, true);
        if (taken > 0) {
            sim_note(sim, SOMETIMES_WRITES_TORN);
        }
        sim_say(sim, "power lost; %zu writes taken back", taken);
        return;
    }
    size_t unflushed = store_mem_unflushed(sim->memory);
    size_t kept = (size_t)prng_below(&sim->prng, unflushed + 1);
    sim->memory_kept = kept;
    if (kept < unflushed) {
        sim_note(sim, SOMETIMES_COMMITS_LOST);
    }
    if (kept > 0) {
        sim_note(sim, SOMETIMES_COMMITS_KEPT);
    }
    sim_say(sim, "power lost; %zu of %zu unflushed commits kept", kept, unflushed);
}

/* The machine starts anew, with whatever its wall clock says. */
static void lose_power(struct sim *sim)
{
    lose_unflushed(sim);
    sim_note(sim, SOMETIMES_POWER_LOST);
    sim->true_ms += 1 + sim_draw_ms(sim, prng_once_in(&sim->prng, 4) ? 7200000 : 5000);
    sim->boot_from_ms = sim->true_ms;
    sim->clock.boot_id++;
}

static void lose_process(struct sim *sim)
{
    (void)shaky_revive(&sim->shaky, &sim->prng, false);
    sim->memory_kept = SIZE_MAX;
    sim->true_ms += 1 + sim_draw_ms(sim, 3000);
    sim_say(sim, "killed");
}

/* How far ahead of the truth the engine may be from here on: as far as before, because a restart of
 * the process grants no jump anew, unless nothing was committed since the machine started and there
 * is only the wall clock to go by. */
static void expect_drift(struct sim *sim)
{
    struct store_head head;
    sim->store->ops->head(sim->store, &head);
    bool anew = head.moment.time_ms == 0 || head.moment.boot_id != sim->clock.boot_id;
    int64_t ahead = process_time_ms(sim) - sim->true_ms;
    int64_t allowed =
        sim->drift_max_ms + LIMIT_CLOCK_JUMP_MS_MAX + (sim->true_ms - sim->drift_from_ms) / 1000;
    if (!anew && ahead > allowed) {
        sim_violate(sim, "P8: a restart believed a jump of the clock");
    }
    if (anew) {
        sim->drift_max_ms = ahead;
        sim->drift_from_ms = sim->true_ms;
    }
}

void process_crash(struct sim *sim, bool power)
{
    process_end(sim);
    for (;;) {
        if (power) {
            lose_power(sim);
        } else {
            lose_process(sim);
        }
        if (!sim->on_journal) {
            store_mem_restart(sim->memory, sim->memory_kept);
        }
        bool again = !sim->ending && prng_once_in(&sim->prng, 6);
        sim->shaky.dies_in = again && sim->on_journal ? 1 + prng_below(&sim->prng, 20) : 0;
        bool started = process_start(sim);
        if (started) {
            expect_drift(sim);
        }
        if (sim->violation[0] != '\0') {
            return;
        }
        if (started && (!again || (sim->on_journal && !sim->shaky.dead))) {
            break;
        }
        sim_note(sim, SOMETIMES_KILLED_RECOVERING);
        power = prng_once_in(&sim->prng, 2);
        if (started) {
            process_end(sim);
        }
    }
    sim->shaky.dies_in = 0;
    if (oracle_audit(sim) != OK) {
        sim_violate(sim, "P2: what was told cannot be read any more");
    }
}

/* ---- The first and the last. ---- */

void process_first(struct sim *sim)
{
    sim->on_journal = sim->directory != NULL && sim->seed % 4 == 0;
    struct prng prng = {sim->seed};
    struct store_mem_secrets secrets;
    const struct store_options options = {.clock = &sim->clock};
    prng_fill(&prng, &secrets, sizeof secrets);
    ASSERT(store_mem_new(&options, &secrets, &sim->memory, NULL) == OK);
    shaky_init(&sim->shaky);
    (void)snprintf(sim->path, sizeof sim->path, "%s/%" PRIu64, sim->directory, sim->seed);
    ASSERT(process_start(sim));
}

static int remove_one(const char *path, const struct stat *stat, int kind, struct FTW *ftw)
{
    (void)stat;
    (void)kind;
    (void)ftw;
    return remove(path);
}

void process_last(struct sim *sim)
{
    if (sim->up) {
        process_end(sim);
    }
    if (sim->on_journal && sim->violation[0] == '\0') {
        rot_check(sim);
    }
    if (sim->on_journal) {
        (void)nftw(sim->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
    shaky_release(&sim->shaky);
    ASSERT(sim->memory->ops->close(sim->memory, NULL) == OK);
}
