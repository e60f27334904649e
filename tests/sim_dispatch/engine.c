/*
 * The engine of each process without its threads: batches are run and answered when the scheduler
 * says so. Deciding, leases, holders and queries are the real ones.
 */
#include "base/check.h"
#include "base/limits.h"
#include "base/macros.h"
#include "sim_dispatch.h"
#include "store/mem.h"

/* ---- what engine.h promises ---------------------------------------------------------------- */

enum status engine_submit_all(
    struct engine *engine, struct engine_call *const *calls, size_t count, struct err *err)
{
    if (sim_once_in(200) && !sim->is_ending) {
        return err_set(err, E_LIMIT, "overloaded");
    }
    for (size_t i = 0; i < count; i++) {
        struct engine_call *call = calls[i];
        if (call->query == NULL && request_check(&call->request, err) != OK) {
            sim_violate("it asked what no engine takes: %s", err->text);
            return err->status;
        }
        call->group_left = (uint32_t)(count - 1 - i);
        call->parked = false;
        queue_push(&engine->queue, call);
    }
    return OK;
}

enum status engine_submit(struct engine *engine, struct engine_call *call, struct err *err)
{
    return engine_submit_all(engine, &call, 1, err);
}

/* The scheduler decides, as if the engine's own thread did. */
enum status engine_submit_lead(struct engine *engine, struct engine_call *const *calls,
    size_t count, size_t *ret_taken, struct err *err)
{
    for (*ret_taken = 0; *ret_taken < count;) {
        size_t size = 1 + calls[*ret_taken]->group_left; /* a group stays whole */
        enum status status = engine_submit_all(engine, calls + *ret_taken, size, err);
        if (status != OK) {
            return status;
        }
        *ret_taken += size;
    }
    return OK;
}

enum status engine_do(struct engine *engine, struct engine_call *call)
{
    (void)engine;
    (void)call;
    ASSERT(false); /* it would block the loop */
    return E_MISUSE;
}

struct store *engine_reader_take(struct engine *engine)
{
    (void)engine;
    return NULL;
}

void engine_reader_return(struct engine *engine, const struct err *err)
{
    (void)engine;
    (void)err;
    ASSERT(false); /* none was taken */
}

void engine_fingerprint(
    const struct engine *engine, const struct digest *plain, struct digest *ret_keyed)
{
    digest_hmac(engine->shared.fingerprint_key, sizeof engine->shared.fingerprint_key, plain->bytes,
        sizeof plain->bytes, ret_keyed);
}

bool engine_failure(struct engine *engine, struct err *ret_err)
{
    (void)engine;
    (void)ret_err;
    return false;
}

void engine_on_due(struct engine *engine, struct due_subscription *subscription)
{
    janitor_on_due(&engine->janitor, subscription);
}

void engine_off_due(struct engine *engine, struct due_subscription *subscription)
{
    janitor_off_due(&engine->janitor, subscription);
}

const struct store_identity *engine_identity(const struct engine *engine)
{
    return &engine->identity;
}

struct backlog *engine_backlog(const struct engine *engine)
{
    (void)engine;
    return NULL;
}

void engine_stats(struct engine *engine, struct engine_stats *ret_stats)
{
    *ret_stats = (struct engine_stats){.now_ms = engine->cycle.now_ms};
}

bool engine_store_away(struct engine *engine, struct err *ret_err)
{
    (void)engine;
    (void)ret_err;
    return false;
}

void engine_on_intake(struct engine *engine, struct engine_intake *intake)
{
    janitor_on_intake(&engine->janitor, intake);
}

uint64_t engine_incarnation(const struct engine *engine)
{
    return engine->janitor.incarnation;
}

/* ---- batches ------------------------------------------------------------------------------- */

/* Others run whole batches between the two touches of the store. */
static void let_others_run(void)
{
    for (size_t i = 0; i < SIM_PROCESSES; i++) {
        struct sim_process *process = &sim->processes[i];
        if (process->is_up && !process->engine.is_busy && sim_once_in(4)) {
            (void)engine_batch(process);
        }
    }
}

static enum status slow_commit(struct store *store, const struct commit *commit, struct err *err)
{
    let_others_run();
    return sim->inner->commit(store, commit, err);
}

/* A process that stands still with an expiry in its queue: meanwhile the command may be denied, or
 * expired by a different process, and submitted anew. */
static bool stands_still(struct sim_process *process)
{
    const struct engine_call *next = process->engine.queue.first;
    if (sim->step < process->stands_until) {
        return true;
    }
    bool expires = next != NULL && next->query == NULL && next->request.kind == REQUEST_WAKE &&
                   next->request.status == RECORD_REJECTED;
    if (!expires || process->stands_until > 0 || sim->is_ending || !sim_once_in(2)) {
        process->stands_until = 0;
        return false;
    }
    process->stands_until = sim->step + SIM_STANDS_STEPS;
    sim->late = command_of(&next->request.operation_id);
    return true;
}

static size_t collect(struct engine *engine, struct engine_call **calls)
{
    size_t count = 0;
    size_t wanted = 1 + (size_t)sim_below(8);
    bool is_inside = false; /* of a group */
    while ((count < wanted || is_inside) && engine->queue.first != NULL) {
        calls[count] = queue_pop(&engine->queue);
        is_inside = calls[count++]->group_left > 0;
    }
    return count;
}

static void keep(struct engine *engine, struct engine_call *call)
{
    call->boot_ms = call->boot_before_ms = clock_read(&sim->clock).boot_ms;
    if (call->query == NULL) {
        sim->sometimes[SOMETIMES_STALE] += call->decided > 1;
        bool is_claim = call->request.kind == REQUEST_CLAIM && call->err.status == OK;
        bool is_claimed = is_claim && call->decision.kind == DECISION_CLAIMED;
        sim->sometimes[SOMETIMES_FASTER] += is_claim && !call->claims_previous && !is_claimed;
        if (is_claim && call->claims_previous) {
            sim->sometimes[SOMETIMES_CLAIMED_WITH] += is_claimed;
            sim->sometimes[SOMETIMES_CLAIMED_STALE] += call->decided > 1;
            sim->sometimes[SOMETIMES_CLAIMED_NOTHING] += !is_claimed;
        }
        sim->sometimes[SOMETIMES_EXPIRED_LATE] +=
            call->request.kind == REQUEST_WAKE && call->err.status == OK &&
            call->request.status == RECORD_REJECTED && call->decision.change == CHANGE_NONE;
        command_decided(call);
        event_decided(call);
        oracle_enqueued(call);
    }
    ASSERT(engine->answer_count < COUNT(engine->answers));
    engine->answers[engine->answer_count++] = call;
}

bool engine_batch(struct sim_process *process)
{
    struct engine *engine = &process->engine;
    struct engine_call *calls[SIM_BATCH_CALLS];
    struct engine_call *deciding[SIM_BATCH_CALLS];
    size_t left = 0;
    struct err err = {0};
    if (engine->is_busy || engine->answer_count > COUNT(engine->answers) - SIM_BATCH_CALLS ||
        stands_still(process)) {
        return false;
    }
    engine->is_busy = true;
    size_t count = collect(engine, calls);
    struct janitor_turn turn = {
        .boot_ms = clock_read(&sim->clock).boot_ms, .calls = calls, .count = count};
    ASSERT(janitor_run(&engine->janitor, &turn, &err) == OK);
    for (size_t i = 0; i < turn.count; i++) {
        if (calls[i]->query == NULL) {
            deciding[left++] = calls[i];
        } else if (query_run(engine->store, calls[i]->query) != OK) {
            sim_violate("a query failed: %s", calls[i]->err.text);
        }
    }
    if (left > 0 && cycle_run(&engine->cycle, deciding, left, &err) != OK) {
        sim_violate("the batch failed: %s", err.text);
    }
    for (size_t i = 0; i < turn.count; i++) {
        keep(engine, calls[i]);
    }
    engine->is_busy = false;
    return turn.count > 0;
}

bool engine_answer(struct sim_process *process)
{
    struct engine *engine = &process->engine;
    if (engine->answer_count == 0) {
        return false;
    }
    size_t count = 1 + (size_t)sim_below(engine->answer_count);
    for (size_t i = 0; i < count; i++) {
        struct engine_call *call = engine->answers[0];
        engine->answer_count--;
        memmove(engine->answers, engine->answers + 1, engine->answer_count * sizeof call);
        call->done(call);
    }
    return true;
}

/* ---- beginning and end --------------------------------------------------------------------- */

void engine_open(struct sim_process *process)
{
    static const struct engine_options options = {0};
    struct engine *engine = &process->engine;
    struct err err = {0};
    memset(engine, 0, sizeof *engine);
    ASSERT(store_mem_hub_open(sim->hub, NULL, &engine->store, &err) == OK);
    sim->inner = engine->store->ops;
    engine->ops = *engine->store->ops;
    engine->ops.commit = slow_commit;
    engine->store->ops = &engine->ops;
    engine->store->ops->identity(engine->store, &engine->identity, &engine->shared);
    ASSERT(cycle_init(&engine->cycle, engine->store, &mem_libc, &err) == OK);
    ASSERT(janitor_init(&engine->janitor, &engine->cycle, &engine->identity, &options, &err) == OK);
    ASSERT(janitor_start(&engine->janitor, &err) == OK);
}

/* As by kill -9. */
void engine_close(struct sim_process *process)
{
    struct engine *engine = &process->engine;
    janitor_release(&engine->janitor);
    cycle_release(&engine->cycle);
    engine->store->ops = sim->inner;
    store_mem_kill(engine->store);
}
