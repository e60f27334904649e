/*
 * The engine without its threads: batches are formed, run and flushed when the scheduler says so.
 * Deciding, leases and queries are the real ones.
 */
#include "base/check.h"
#include "base/limits.h"
#include "sim_gateway.h"

/* ---- what engine.h promises ---------------------------------------------------------------- */

static enum status call_check(const struct engine_call *call, struct err *err)
{
    if (call->note != NULL) {
        return note_check(call->note, err);
    }
    return call->query != NULL ? OK : request_check(&call->request, err);
}

enum status engine_submit(struct engine *engine, struct engine_call *call, struct err *err)
{
    if (engine->failure.status != OK) {
        return err_set(err, engine->failure.status, "%s", engine->failure.text);
    }
    if (sim_once_in(150)) {
        return err_set(err, E_LIMIT, "overloaded");
    }
    enum status status = call_check(call, err);
    if (status != OK) {
        sim_violate("the gateway asked what no engine takes");
        return status;
    }
    call->wait_until_ms = 0;
    call->parked = false;
    queue_push(&engine->queue, call);
    return OK;
}

/* The scheduler decides, as if the engine's own thread did. */
enum status engine_submit_lead(struct engine *engine, struct engine_call *const *calls,
    size_t count, size_t *ret_taken, struct err *err)
{
    for (*ret_taken = 0; *ret_taken < count; (*ret_taken)++) {
        enum status status = engine_submit(engine, calls[*ret_taken], err);
        if (status != OK) {
            return status;
        }
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

/* It has none: queries are submitted. */
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

struct backlog *engine_backlog(const struct engine *engine)
{
    (void)engine;
    return NULL;
}

void engine_stats(struct engine *engine, struct engine_stats *ret_stats)
{
    *ret_stats = (struct engine_stats){.now_ms = engine->cycle.now_ms};
}

void engine_on_due(struct engine *engine, struct due_subscription *subscription)
{
    janitor_on_due(&engine->janitor, subscription);
}

void engine_off_due(struct engine *engine, struct due_subscription *subscription)
{
    janitor_off_due(&engine->janitor, subscription);
}

uint64_t engine_incarnation(const struct engine *engine)
{
    return engine->janitor.incarnation;
}

/* ---- batches ------------------------------------------------------------------------------- */

static size_t collect(struct engine *engine, struct engine_call **calls)
{
    size_t count = 0;
    size_t wanted = 1 + (size_t)sim_below(8);
    while (count < wanted && engine->ready.first != NULL) {
        calls[count++] = queue_pop(&engine->ready);
    }
    while (count < wanted && engine->queue.first != NULL) {
        calls[count++] = queue_pop(&engine->queue);
    }
    return count;
}

static void run_queries(
    struct engine_call **calls, size_t count, struct engine_call **deciding, size_t *ret_deciding)
{
    *ret_deciding = 0;
    for (size_t i = 0; i < count; i++) {
        if (calls[i]->query == NULL) {
            deciding[(*ret_deciding)++] = calls[i];
            continue;
        }
        enum status status = query_run(sim->store, calls[i]->query);
        if (status != OK && status != E_NOMEM) { /* the gateway's own memory may be short */
            sim_violate("a query failed: %s", calls[i]->err.text);
        }
    }
}

static void keep_batch(struct engine *engine, struct engine_call **calls, size_t count)
{
    struct sim_batch *batch = &engine->batches[engine->batch_count++];
    int64_t boot_ms = clock_read(&sim->clock).boot_ms;
    batch->count = 0;
    for (size_t i = 0; i < count; i++) {
        struct engine_call *call = calls[i];
        call->boot_ms = boot_ms;
        call->boot_before_ms = boot_ms;
        if (call->parked) {
            sim_note(SOMETIMES_WAITED);
            call->wait_until_ms =
                call->wait_until_ms == 0 ? boot_ms + call->wait_ms : call->wait_until_ms;
            ASSERT(parked_add(&engine->parked, call));
            continue;
        }
        batch->calls[batch->count++] = call;
        if (call->query != NULL || call->note != NULL || call->err.status != OK) {
            continue;
        }
        oracle_committed(call);
        const struct record *next = &call->decision.next;
        if (call->decision.change == CHANGE_PUT && next->status != RECORD_IN_PROGRESS) {
            parked_wake(&engine->parked, &next->key.hash, &engine->ready);
        }
    }
}

bool engine_batch(void)
{
    struct engine *engine = &sim->engine;
    struct engine_call *calls[SIM_BATCH_CALLS];
    struct engine_call *deciding[SIM_BATCH_CALLS];
    struct err err = {0};
    if (engine->batch_count == SIM_BATCHES_MAX || engine->failure.status != OK) {
        return false;
    }
    int64_t boot_ms = clock_read(&sim->clock).boot_ms;
    if (engine->parked.count > 0) {
        parked_expire(&engine->parked, engine->is_impatient ? INT64_MAX : boot_ms, &engine->ready);
    }
    size_t count = collect(engine, calls);
    struct janitor_turn turn = {.boot_ms = boot_ms, .calls = calls, .count = count};
    ASSERT(janitor_run(&engine->janitor, &turn, &err) == OK);
    count = turn.count;
    size_t left;
    run_queries(calls, count, deciding, &left);
    if (left > 0 && cycle_run(&engine->cycle, deciding, left, &err) != OK) {
        sim_violate("the batch failed: %s", err.text);
        return true;
    }
    if (count > 0) {
        keep_batch(engine, calls, count);
    }
    return count > 0;
}

static void answer(struct engine *engine, struct engine_call *call)
{
    if (engine->failure.status != OK) {
        call->err = engine->failure;
    } else if (call->query == NULL && call->note == NULL && call->err.status == OK) {
        oracle_flushed(call);
    }
    call->done(call);
}

/* Nothing is answered any more but that it is not known (EN5). */
static void stop(struct engine *engine)
{
    sim_note(SOMETIMES_FLUSH_FAILED);
    sim_say("the flush fails; the engine stops");
    (void)err_set(&engine->failure, E_UNKNOWN, "the flush failed");
    sim->dies_in = 1 + (int)sim_below(60);
    parked_expire(&engine->parked, INT64_MAX, &engine->ready);
    struct engine_call *call;
    while ((call = queue_pop(&engine->ready)) != NULL) {
        answer(engine, call);
    }
    while ((call = queue_pop(&engine->queue)) != NULL) {
        answer(engine, call);
    }
}

bool engine_flush(bool fails)
{
    struct engine *engine = &sim->engine;
    if (engine->batch_count == 0) {
        return false;
    }
    if (fails) {
        stop(engine);
    } else {
        ASSERT(sim->store->ops->flush(sim->store, NULL) == OK);
    }
    size_t count = engine->batch_count;
    engine->batch_count = 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < engine->batches[i].count; j++) {
            answer(engine, engine->batches[i].calls[j]);
        }
    }
    return true;
}

bool engine_is_idle(void)
{
    const struct engine *engine = &sim->engine;
    return engine->queue.first == NULL && engine->ready.first == NULL && engine->batch_count == 0;
}

/* ---- beginning and end --------------------------------------------------------------------- */

void engine_open(void)
{
    static const struct engine_options options = {0};
    struct engine *engine = &sim->engine;
    struct err err = {0};
    memset(engine, 0, sizeof *engine);
    sim->store->ops->identity(sim->store, &engine->identity, &engine->shared);
    ASSERT(cycle_init(&engine->cycle, sim->store, &mem_libc, &err) == OK);
    ASSERT(janitor_init(&engine->janitor, &engine->cycle, &engine->identity, &options, &err) == OK);
    ASSERT(janitor_start(&engine->janitor, &err) == OK);
    parked_init(&engine->parked);
}

void engine_close(void)
{
    janitor_release(&sim->engine.janitor);
    cycle_release(&sim->engine.cycle);
}
