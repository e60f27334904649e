#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/check.h"
#include "base/limits.h"
#include "sim.h"

#define START_MS INT64_C(1700000000000) /* a day in 2023; nothing depends on it */
#define YEAR_MS  INT64_C(31557600000)

/* ---- Telling. ---- */

void sim_say(const struct sim *sim, const char *format, ...)
{
    if (!sim->verbose) {
        return;
    }
    va_list args;
    va_start(args, format);
    printf("%5" PRIu64 " %+13.3fs  ", sim->step, (double)(sim->true_ms - START_MS) / 1000);
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

void sim_violate(struct sim *sim, const char *format, ...)
{
    if (sim->violation[0] != '\0') {
        return; /* the first one is the cause */
    }
    va_list args;
    va_start(args, format);
    (void)vsnprintf(sim->violation, sizeof sim->violation, format, args);
    va_end(args);
    sim_say(sim, "VIOLATION: %s", sim->violation);
}

void sim_note(struct sim *sim, enum sometimes what)
{
    sim->sometimes[what]++;
}

/* ---- Time. ---- */

static struct clock_reading read_clock(void *context)
{
    const struct sim *sim = context;
    int64_t wall_ms = sim->true_ms + sim->wall_off_ms;
    if (sim->true_ms < sim->frozen_until_ms) {
        wall_ms = sim->frozen_wall_ms;
    }
    return (struct clock_reading){
        .wall_ms = wall_ms, .boot_ms = 1 + sim->true_ms - sim->boot_from_ms};
}

int64_t sim_draw_ms(struct sim *sim, int64_t max_ms)
{
    return (int64_t)prng_below(&sim->prng, (uint64_t)max_ms + 1);
}

static void pass_time(struct sim *sim)
{
    uint64_t draw = prng_below(&sim->prng, 200);
    if (sim->ending) {
        sim->true_ms += sim_draw_ms(sim, 20000);
    } else if (draw < 150) {
        sim->true_ms += sim_draw_ms(sim, 200);
    } else if (draw < 185) {
        sim->true_ms += sim_draw_ms(sim, 30000);
    } else if (draw < 198) {
        sim->true_ms += sim_draw_ms(sim, 15 * 60000);
    } else {
        sim->true_ms += sim_draw_ms(sim, 3 * 3600000);
    }
}

/* The wall clock is set wrong, by seconds or by years, or stands still. */
static void trouble_clock(struct sim *sim)
{
    if (sim->calm || sim->ending || !prng_once_in(&sim->prng, 25)) {
        return;
    }
    static const int64_t sizes[] = {1000, 59000, 120000, 86400000, 5 * YEAR_MS};
    int64_t by = 1 + sim_draw_ms(sim, sizes[prng_below(&sim->prng, 5)]);
    switch (prng_below(&sim->prng, 4)) {
    case 0:
        sim->wall_off_ms -= by;
        sim_note(sim, SOMETIMES_CLOCK_BACK);
        break;
    case 1:
        sim->frozen_wall_ms = read_clock(sim).wall_ms;
        sim->frozen_until_ms = sim->true_ms + sim_draw_ms(sim, 3600000);
        sim_note(sim, SOMETIMES_CLOCK_FROZEN);
        break;
    case 2: sim->wall_off_ms = 0; break; /* somebody set it right */
    default:
        sim->wall_off_ms += by;
        sim_note(sim, SOMETIMES_CLOCK_JUMP);
        break;
    }
    sim_say(sim, "the wall clock is off by %+" PRId64 " ms", sim->wall_off_ms);
}

static int64_t engine_now(struct sim *sim)
{
    int64_t now_ms = process_time_ms(sim);
    oracle_clock(sim, now_ms);
    sim->engine_ms = now_ms > sim->engine_ms ? now_ms : sim->engine_ms;
    return now_ms;
}

/* ---- Calls. ---- */

void sim_submit(struct sim *sim, struct sim_call *call)
{
    struct sim_call **last = &sim->queue;
    while (*last != NULL) {
        last = &(*last)->next;
    }
    call->next = NULL;
    *last = call;
}

struct sim_call *sim_pop(struct sim_call **queue)
{
    struct sim_call *call = *queue;
    *queue = call->next;
    return call;
}

static void call_free(struct sim_call *call)
{
    arena_release(&call->arena);
    mem_free(&mem_libc, call);
}

void sim_lose(struct sim *sim, struct sim_call *call)
{
    sim->fates[call->id] = FATE_LOST;
    actors_lost(sim, call);
    call_free(call);
}

static void refuse_call(struct sim *sim, struct sim_call *call)
{
    sim->fates[call->id] = FATE_REFUSED;
    actors_refused(sim, call);
    call_free(call);
}

/* ---- Crashes. ---- */

static void maybe_crash(struct sim *sim, uint64_t every, enum sometimes what)
{
    if (sim->ending || !prng_once_in(&sim->prng, every)) {
        return;
    }
    sim_note(sim, what);
    process_crash(sim, prng_once_in(&sim->prng, 2));
}

/* ---- Batches. ---- */

static void plan_commit(
    struct sim *sim, enum status status, enum fault_when when, enum sometimes what)
{
    fault_arm(sim->store, STORE_CALL_COMMIT, 1, status, when);
    sim->commit_fault = what;
}

static void plan_faults(struct sim *sim)
{
    if (sim->ending || !prng_once_in(&sim->prng, 20)) {
        return;
    }
    switch (prng_below(&sim->prng, sim->on_journal ? 8 : 6)) {
    case 0: plan_commit(sim, E_UNAVAILABLE, FAULT_BEFORE, SOMETIMES_COMMIT_UNAVAILABLE); break;
    case 1: plan_commit(sim, E_UNKNOWN, FAULT_BEFORE, SOMETIMES_COMMIT_UNKNOWN_NOT); break;
    case 2: plan_commit(sim, E_UNKNOWN, FAULT_AFTER, SOMETIMES_COMMIT_UNKNOWN_DONE); break;
    case 5: plan_commit(sim, E_STALE, FAULT_BEFORE, SOMETIMES_COMMIT_STALE); break;
    case 3: fault_arm(sim->store, STORE_CALL_PREPARE, 1, E_UNAVAILABLE, FAULT_BEFORE); break;
    case 6:
    case 7: sim->shaky.dies_in = 1 + prng_below(&sim->prng, 12); break;
    default:
        fault_arm(sim->store, STORE_CALL_FLUSH, 1, E_UNKNOWN,
            prng_once_in(&sim->prng, 2) ? FAULT_BEFORE : FAULT_AFTER);
        break;
    }
}

static size_t collect(struct sim *sim, struct engine_call **calls)
{
    size_t count = 0;
    size_t wanted = 1 + prng_below(&sim->prng, 8);
    /* Who waits is asked again now and then, and in the end is told what is known. */
    while (sim->parked != NULL && prng_once_in(&sim->prng, 2)) {
        struct sim_call *call = sim_pop(&sim->parked);
        call->call.wait_ms = prng_once_in(&sim->prng, 2) ? 0 : call->call.wait_ms;
        sim_submit(sim, call);
    }
    while (sim->queue != NULL && (count < wanted || sim->queue->call.needs_previous)) {
        calls[count++] = &sim_pop(&sim->queue)->call;
    }
    return count;
}

/* Was what is replayed sealed in this very batch? */
static bool sealed_in_batch(const struct sim_batch *batch, const struct engine_call *replay)
{
    for (size_t i = 0; i < batch->count; i++) {
        const struct engine_call *call = batch->calls[i];
        if (call->decision.kind == DECISION_SEALED && !call->decision.repeated &&
            op_id_equal(&call->decision.next.operation_id, &replay->decision.next.operation_id)) {
            return true;
        }
    }
    return false;
}

/* Committed: what waits goes aside, the rest waits for the flush. */
static void keep_batch(struct sim *sim, struct engine_call **calls, size_t count, int64_t now_ms)
{
    struct sim_batch *batch = &sim->batches[sim->batch_count++];
    batch->count = 0;
    for (size_t i = 0; i < count; i++) {
        struct sim_call *ours = sim_is_ours(calls[i]) ? calls[i]->context : NULL;
        if (ours != NULL && calls[i]->parked) {
            sim_note(sim, SOMETIMES_PARKED);
            ours->next = sim->parked;
            sim->parked = ours;
            continue;
        }
        batch->calls[batch->count++] = calls[i];
        if (ours == NULL) {
            continue;
        }
        ours->commit_ms = now_ms;
        if (calls[i]->needs_previous &&
            (calls[i]->err.status == OK) != (calls[i - 1]->err.status == OK)) {
            sim_violate(sim, "half of a dependent group was committed");
        }
        if (ours->from == FROM_WORKER && calls[i]->err.status == E_UNAVAILABLE) {
            sim_note(sim, SOMETIMES_GROUPS_REFUSED);
            continue;
        }
        if (calls[i]->err.status != OK && !sim->shaky.dead) {
            sim_violate(sim, "a call alone failed: %s", calls[i]->err.text);
        }
        oracle_committed(sim, ours);
        if (calls[i]->decision.kind == DECISION_DUPLICATE_REPLAYED &&
            sealed_in_batch(batch, calls[i])) {
            sim_note(sim, SOMETIMES_REPLAY_IN_BATCH);
        }
    }
}

/* E_UNAVAILABLE: certainly nothing happened, and everybody is told so. */
static void refuse_batch(struct sim *sim, struct engine_call **calls, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (sim_is_ours(calls[i])) {
            refuse_call(sim, calls[i]->context);
        } else {
            calls[i]->done(calls[i]);
        }
    }
}

static void stop_process(struct sim *sim, struct engine_call **calls, size_t count, int64_t now_ms)
{
    for (size_t i = 0; i < count; i++) {
        if (sim_is_ours(calls[i])) {
            struct sim_call *ours = calls[i]->context;
            ours->commit_ms = now_ms;
            if (!calls[i]->parked) {
                oracle_committed(sim, ours);
            }
            sim_lose(sim, ours);
        }
    }
    process_crash(sim, prng_once_in(&sim->prng, 2));
}

/* What became of the faults that were planned for a batch. */
struct fault_plan {
    bool prepare; /* armed before the batch */
    bool commit;
};

static void note_commit_fault(struct sim *sim, const struct fault_plan *plan)
{
    if (plan->prepare && !fault_is_armed(sim->store, STORE_CALL_PREPARE)) {
        sim_note(sim, SOMETIMES_PREPARE_FAILED);
    } else if (plan->commit && !fault_is_armed(sim->store, STORE_CALL_COMMIT)) {
        sim_note(sim, sim->commit_fault);
    }
}

/* Queries first, as the engine has it; then what is left is decided. */
static enum status run_calls(
    struct sim *sim, struct engine_call **calls, size_t count, struct err *err)
{
    struct engine_call *deciding[LIMIT_BATCH_REQUESTS_MAX];
    size_t left = 0;
    for (size_t i = 0; i < count; i++) {
        if (calls[i]->query == NULL) {
            deciding[left++] = calls[i];
        } else if (query_run(sim->store, calls[i]->query) == E_CORRUPT) {
            return err_set(err, E_CORRUPT, "%s", calls[i]->err.text);
        }
    }
    return left > 0 ? cycle_run(&sim->cycle, deciding, left, err) : OK;
}

static void run_batch(struct sim *sim)
{
    struct engine_call *calls[LIMIT_BATCH_REQUESTS_MAX];
    struct err err = {0};
    if (sim->batch_count == SIM_BATCHES_MAX) {
        return;
    }
    plan_faults(sim);
    struct fault_plan plan = {.prepare = fault_is_armed(sim->store, STORE_CALL_PREPARE),
        .commit = fault_is_armed(sim->store, STORE_CALL_COMMIT)};
    size_t count = collect(sim, calls);
    int64_t now_ms = engine_now(sim);
    int64_t boot_ms = clock_read(&sim->clock).boot_ms;
    struct janitor_turn turn = {.boot_ms = boot_ms, .calls = calls, .count = count};
    enum status status = janitor_run(&sim->janitor, &turn, &err);
    count = turn.count;
    if (status == OK && count > 0) {
        status = run_calls(sim, calls, count, &err);
    }
    note_commit_fault(sim, &plan);
    if (status == OK) {
        keep_batch(sim, calls, count, now_ms);
    } else if (status == E_UNAVAILABLE) {
        refuse_batch(sim, calls, count);
    } else if (status == E_UNKNOWN) {
        stop_process(sim, calls, count, now_ms);
    } else {
        sim_violate(sim, "the batch failed: %s: %s", status_name(status), err.text);
        stop_process(sim, calls, count, now_ms);
    }
}

/* ---- Flush and answer. ---- */

static void answer(struct sim *sim, struct engine_call *call)
{
    if (!sim_is_ours(call)) {
        if (call->decision.kind == DECISION_UNKNOWN) {
            sim_note(sim, SOMETIMES_UNKNOWN_LEASE);
        }
        call->done(call);
        return;
    }
    struct sim_call *ours = call->context;
    if (ours->from == FROM_WORKER && call->err.status == E_UNAVAILABLE) {
        refuse_call(sim, ours); /* nothing of its group happened */
        return;
    }
    if (call->err.status != OK) { /* a look at a disk that is dead: nothing was decided */
        sim_lose(sim, ours);
        return;
    }
    oracle_answered(sim, ours);
    actors_answered(sim, ours);
    call_free(ours);
}

static void answer_all(struct sim *sim)
{
    for (size_t i = 0; i < sim->batch_count; i++) {
        for (size_t j = 0; j < sim->batches[i].count; j++) {
            struct engine_call *call = sim->batches[i].calls[j];
            sim->batches[i].calls[j] = NULL; /* answered: a crash cannot lose it any more */
            answer(sim, call);
            if (!sim->ending && prng_once_in(&sim->prng, 400)) {
                sim_note(sim, SOMETIMES_KILLED_ANSWERING);
                process_crash(sim, prng_once_in(&sim->prng, 2));
                return;
            }
        }
    }
    sim->batch_count = 0;
}

static void flush(struct sim *sim)
{
    struct store *store = sim->store;
    struct err err = {0};
    if (sim->batch_count == 0) {
        return;
    }
    if (store->ops->flush(store, &err) != OK) {
        sim_note(sim, SOMETIMES_FLUSH_FAILED);
        process_crash(sim, prng_once_in(&sim->prng, 2));
        return;
    }
    if (!sim->ending && prng_once_in(&sim->prng, 80)) {
        sim_note(sim, SOMETIMES_KILLED_FLUSHED);
        process_crash(sim, prng_once_in(&sim->prng, 2));
        return;
    }
    answer_all(sim);
}

/* ---- The run. ---- */

static void step(struct sim *sim)
{
    sim->step++;
    pass_time(sim);
    trouble_clock(sim);
    actors_turn(sim);
    if (!prng_once_in(&sim->prng, 4)) {
        run_batch(sim);
    }
    if (sim->batch_count > 0) {
        maybe_crash(sim, 60, SOMETIMES_KILLED_COMMITTED);
    }
    if (!prng_once_in(&sim->prng, 3)) {
        flush(sim);
    }
}

static void start_world(struct sim *sim, uint64_t seed)
{
    uint64_t *sometimes = sim->sometimes;
    const char *directory = sim->directory;
    bool verbose = sim->verbose;
    memset(sim, 0, sizeof *sim);
    sim->sometimes = sometimes;
    sim->directory = directory;
    sim->verbose = verbose;
    sim->seed = seed;
    sim->prng.state = seed * UINT64_C(0xd1342543de82ef95) + 1;
    sim->trace = UINT64_C(0xcbf29ce484222325);
    sim->true_ms = sim->boot_from_ms = sim->drift_from_ms = START_MS;
    sim->calm = prng_once_in(&sim->prng, 3);
    sim->clock = (struct clock){.read = read_clock, .boot_id = 1, .context = sim};
    actors_init(sim);
    process_first(sim);
}

/* Without any more trouble, everything has to come to an end by itself or by the operator. */
static void end_world(struct sim *sim)
{
    sim->ending = true;
    sim->frozen_until_ms = 0;
    fault_arm(sim->store, STORE_CALL_PREPARE, 0, OK, FAULT_BEFORE);
    fault_arm(sim->store, STORE_CALL_COMMIT, 0, OK, FAULT_BEFORE);
    fault_arm(sim->store, STORE_CALL_FLUSH, 0, OK, FAULT_BEFORE);
    sim->shaky.dies_in = 0;
    if (sim->shaky.dead) {
        process_crash(sim, true);
    }
    bool done = false;
    for (int i = 0; i < 2000 && !done && sim->violation[0] == '\0'; i++) {
        step(sim);
        done =
            actors_idle(sim) && sim->queue == NULL && sim->parked == NULL && sim->batch_count == 0;
    }
    if (!done) {
        sim_violate(sim, "somebody is still waiting at the end");
    }
    struct err err = {0};
    struct store *store = sim->store;
    if (store->ops->flush(store, &err) != OK || oracle_audit(sim) != OK) {
        sim_violate(sim, "P2: what was told cannot be read at the end: %s", err.text);
    }
}

bool sim_run(struct sim *sim, uint64_t seed)
{
    start_world(sim, seed);
    for (int i = 0; i < SIM_STEPS && sim->violation[0] == '\0'; i++) {
        step(sim);
    }
    end_world(sim);
    process_last(sim);
    return sim->violation[0] == '\0';
}
