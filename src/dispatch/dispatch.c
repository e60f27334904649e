/* The dispatcher itself: arrivals from other threads, plans, dues, start and end. */
#include "dispatch/dispatch.h"

#include "base/check.h"
#include "base/macros.h"
#include "dispatch/impl.h"

struct net_loop *worker_loop(const struct dispatch_worker *worker)
{
    return http_server_loop(worker->dispatch->server, worker->number);
}

/* ---- plans --------------------------------------------------------------------------------- */

struct dispatch_plan *dispatch_plan_take(struct dispatch *dispatch, enum record_kind kind)
{
    ASSERT((size_t)kind < COUNT(dispatch->plans));
    dispatch_lock(dispatch);
    struct dispatch_plan *plan = dispatch->plans[kind];
    if (plan != NULL) {
        plan->holders++;
    }
    dispatch_unlock(dispatch);
    return plan;
}

void dispatch_plan_drop(struct dispatch *dispatch, struct dispatch_plan *plan)
{
    if (plan == NULL) {
        return;
    }
    dispatch_lock(dispatch);
    ASSERT(plan->holders > 0);
    bool is_last = --plan->holders == 0;
    dispatch_unlock(dispatch);
    if (is_last) {
        for (size_t i = 0; i < plan->target_count; i++) {
            upstreams_drop(dispatch->upstreams, plan->targets[i].one);
        }
        plan->release(plan);
    }
}

enum status dispatch_plan_prepare(
    struct dispatch *dispatch, struct dispatch_plan *plan, struct err *err)
{
    enum status status = OK;
    plan->holders = 1;
    upstreams_load(dispatch->upstreams);
    for (size_t i = 0; status == OK && i < plan->target_count; i++) {
        struct dispatch_target *target = &plan->targets[i];
        if (target->sender == NULL) {
            status = upstreams_hold(dispatch->upstreams, &target->upstream, &target->one, err);
        }
        if (status != OK) {
            err_prefix(err, "%s '%s'", plan->kind->name, target->name);
            break;
        }
        dispatch_lock(dispatch);
        target->gauge = gauge_of(dispatch, plan->kind, target->name);
        dispatch_unlock(dispatch);
        status = target->gauge == NULL ? err_set(err, E_NOMEM, "out of memory") : OK;
    }
    return status;
}

/* Under the lock. */
static void post_arrival(struct dispatch *dispatch)
{
    if (!dispatch->is_arriving) {
        dispatch->is_arriving = true;
        net_loop_post(worker_loop(&dispatch->workers[0]), &dispatch->arrival);
    }
}

void dispatch_plan_use(struct dispatch *dispatch, struct dispatch_plan *plan)
{
    dispatch_lock(dispatch);
    struct dispatch_plan *before = dispatch->plans[plan->kind->kind];
    dispatch->plans[plan->kind->kind] = plan;
    for (size_t i = 0; i < plan->target_count; i++) {
        const struct dispatch_target *target = &plan->targets[i];
        target->gauge->concurrency =
            target->concurrency > 0 ? target->concurrency : CONCURRENCY_USUAL;
        target->gauge->rate = target->rate;
        target->gauge->rule = target->breaker;
        target->gauge->total_ms = target->timeouts.total_ms;
    }
    /* The plan may have a target for records that had none: read all dues again. */
    dispatch->is_resubscribing = true;
    post_arrival(dispatch);
    dispatch_unlock(dispatch);
    dispatch_plan_drop(dispatch, before);
}

/* ---- arrivals ------------------------------------------------------------------------------ */

/* Under the lock. A person may have planned the attempt anew that a job waits for: what is queued
 * takes the new time, and what rests is read again. */
static void plan_anew(struct job *job, int64_t due_ms)
{
    struct dispatch_worker *worker = job->worker;
    if (job->state == JOB_QUEUED && due_ms > job->due_ms) {
        job->due_ms = due_ms;
    }
    if (job->state != JOB_RESTING || worker->wake_count == WAKES_MAX) {
        return;
    }
    worker->wakes[worker->wake_count++] = job->operation_id;
    if (worker->wake_count == 1) {
        net_loop_post(worker_loop(worker), &worker->wake);
    }
}

/* On the loop that has their deadlines. */
static void wake_here(struct net_task *task)
{
    struct dispatch_worker *worker = CONTAINER_OF(task, struct dispatch_worker, wake);
    struct dispatch *dispatch = worker->dispatch;
    dispatch_lock(dispatch);
    for (size_t i = 0; i < worker->wake_count && !atomic_load(&dispatch->is_draining); i++) {
        struct job *job = job_find(dispatch, &worker->wakes[i]);
        if (job != NULL && job->state == JOB_RESTING && job->worker == worker) {
            net_wheel_remove(&worker_loop(worker)->wheel, &job->deadline);
            job_found(job);
        }
    }
    worker->wake_count = 0;
    dispatch_unlock(dispatch);
    dispatch_pump(worker);
}

/* Add a job that was just offered. Under the lock. */
static void take_offered(struct job *job)
{
    struct dispatch *dispatch = job->dispatch;
    struct job *other = job_find(dispatch, &job->operation_id);
    if (other != NULL) {
        plan_anew(other, job->due_ms);
    }
    if (atomic_load(&dispatch->is_draining) || other != NULL || !job_fits(job)) {
        job_drop(job); /* DJ2 */
    } else {
        job_enter(job);
        job_queue(job);
    }
}

/* Its record may be called. */
static void arrive(struct dispatch *dispatch, unsigned loop, struct job *job)
{
    bool is_here = loop != DISPATCH_NO_LOOP;
    dispatch_lock(dispatch);
    if (is_here) {
        take_offered(job);
    } else {
        job->chain = dispatch->arrivals;
        dispatch->arrivals = job;
        post_arrival(dispatch);
    }
    dispatch_unlock(dispatch);
    if (is_here) {
        dispatch_pump(&dispatch->workers[loop]);
    }
}

void dispatch_offer(struct dispatch *dispatch, unsigned loop, const struct record *record)
{
    struct dispatch_plan *plan = NULL;
    struct job *job = NULL;
    ASSERT(loop == DISPATCH_NO_LOOP || loop < dispatch->worker_count);
    if (record->status != RECORD_PENDING || atomic_load(&dispatch->is_draining)) {
        return;
    }
    plan = dispatch_plan_take(dispatch, record->kind);
    job = plan == NULL || record->due_ms > record->updated_ms
              ? NULL
              : job_new(dispatch, &record->operation_id);
    if (job != NULL && job_place(job, plan, record)) {
        arrive(dispatch, loop, job);
    } else if (job != NULL) {
        job_drop(job);
    }
    dispatch_plan_drop(dispatch, plan);
}

/* Take a place for the record that is about to be enqueued. NULL: not now. */
static struct dispatching *start_run(struct dispatch_worker *worker,
    const struct dispatch_plan *plan, const struct record *record, struct slice body)
{
    static const struct op_id none = {{0}};
    struct job *job = job_new(worker->dispatch, &none);
    struct dispatching *run = job == NULL ? NULL : run_new(worker);
    bool is_started = run != NULL && run_body(run, body) == OK &&
                      job_find_target(job, plan, record) && job_start(job, run, worker);
    if (!is_started && run != NULL) {
        run_drop(run);
    }
    if (!is_started && job != NULL) {
        job_drop(job);
    }
    return is_started ? run : NULL;
}

/* START_NOW: with the run that has taken a place. Else the start's gauge is set, if it is SOON. */
static enum start_when start_by(struct dispatch_worker *worker, const struct dispatch_plan *plan,
    struct dispatch_start *start, struct dispatching **ret_run)
{
    const struct request *request = &start->enqueue->request;
    /* Only the members that its kind reads to find the target. */
    struct record record = {
        .kind = request_record_kind(request), .key = request->key, .detail = request->detail};
    const struct dispatch_target *target = plan->kind->target(plan, &record);
    /* What has a source goes after others of it (core/lane.h), in its turn. */
    if (target == NULL || request->source.id.len > 0) {
        return START_NEVER;
    }
    enum start_when when = job_start_when(worker, target);
    start->gauge = target->gauge;
    *ret_run = when == START_NOW ? start_run(worker, plan, &record, start->body) : NULL;
    return when == START_NOW && *ret_run == NULL ? START_NEVER : when;
}

/* Begin it, unless it is to be held back. True: ready was called. */
static bool start_or_hold(struct dispatch_worker *worker, struct dispatch_start *start)
{
    struct dispatch *dispatch = worker->dispatch;
    enum record_kind kind = request_record_kind(&start->enqueue->request);
    struct dispatch_plan *plan = dispatch_plan_take(dispatch, kind);
    struct dispatching *run = NULL;
    enum start_when when = plan == NULL ? START_NEVER : start_by(worker, plan, start, &run);
    dispatch_plan_drop(dispatch, plan);
    if (when != START_SOON) {
        start->ready(start, run == NULL ? NULL : run_claim_with(run));
    }
    return when != START_SOON;
}

/* In order of arrival, but a full target does not hold up the others. */
void dispatch_starts(struct dispatch_worker *worker)
{
    int64_t now_ms = (int64_t)net_loop_now(worker_loop(worker));
    const struct dispatch_gauge *full = NULL;
    struct dispatch_start *at = worker->starts, *kept = NULL, **last = &kept;
    worker->starts = NULL; /* ready may lead to the next one */
    while (at != NULL) {
        struct dispatch_start *next = at->next;
        bool is_late = at->until_ms <= now_ms || atomic_load(&worker->dispatch->is_draining);
        bool is_over = is_late || (at->gauge != full && start_or_hold(worker, at));
        if (is_late) {
            at->ready(at, NULL);
        }
        if (is_over) {
            worker->start_count--;
            atomic_fetch_sub(&worker->dispatch->at_work, 1);
            http_server_turn(worker->dispatch->server, worker->number);
        } else {
            full = at->gauge;
            *last = at;
            last = &at->next;
        }
        at = next;
    }
    *last = worker->starts;
    worker->starts = kept;
    if (worker->starts != NULL) {
        net_loop_deadline(
            worker_loop(worker), &worker->start_deadline, (uint64_t)worker->starts->until_ms);
    }
}

static void on_start_late(struct net_deadline *deadline, uint64_t now_ms)
{
    (void)now_ms;
    dispatch_starts(CONTAINER_OF(deadline, struct dispatch_worker, start_deadline));
}

/* Nothing is durable yet: a crash forgets it, and its sender got no answer. */
static void hold_back(struct dispatch_worker *worker, struct dispatch_start *start)
{
    struct dispatch_start **last = &worker->starts;
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = start;
    start->next = NULL;
    start->until_ms = (int64_t)net_loop_now(worker_loop(worker)) + START_MS;
    worker->start_count++;
    atomic_fetch_add(&worker->dispatch->at_work, 1);
    if (worker->starts == start) {
        net_loop_deadline(worker_loop(worker), &worker->start_deadline, (uint64_t)start->until_ms);
    }
}

void dispatch_start_with(struct dispatch *dispatch, unsigned loop, struct dispatch_start *start)
{
    const struct engine_call *enqueue = start->enqueue;
    const struct request *request = &enqueue->request;
    struct dispatch_worker *worker = &dispatch->workers[loop];
    ASSERT(loop < dispatch->worker_count);
    bool is_due = request->kind == REQUEST_ENQUEUE && request->status != RECORD_WAITING &&
                  request->delay_ms == 0 && request->not_before_ms == 0;
    /* A call that waits cannot be in a group. */
    if (!is_due || enqueue->wait_ms > 0 || worker->start_count >= STARTS_MAX) {
        start->ready(start, NULL);
    } else if (!start_or_hold(worker, start)) {
        hold_back(worker, start);
    }
}

/* The run of a granted record, with copies of what it was granted. NULL: out of memory. */
static struct dispatching *run_of(
    struct dispatch_worker *worker, const struct dispatch_granted *granted)
{
    struct dispatching *run = run_new(worker);
    if (run == NULL) {
        return NULL;
    }
    run->granted = *granted;
    if (record_copy(granted->record, &run->arena, &run->record) != OK ||
        run_body(run, granted->body) != OK) {
        run_drop(run);
        return NULL;
    }
    return run;
}

enum status dispatch_run(struct dispatch *dispatch, unsigned loop,
    const struct dispatch_granted *granted, struct err *err)
{
    ASSERT(granted->record->status == RECORD_IN_PROGRESS && granted->record->fence > 0); /* DJ3 */
    ASSERT(loop < dispatch->worker_count);
    struct dispatch_worker *worker = &dispatch->workers[loop];
    if (atomic_load(&dispatch->is_cut)) {
        return err_set(err, E_UNAVAILABLE, "the server ends");
    }
    struct job *job = job_new(dispatch, &granted->record->operation_id);
    if (job == NULL) {
        return err_set(err, E_LIMIT, "too many calls wait for their turn (%d)", (int)JOBS_MAX);
    }
    struct dispatching *run = run_of(worker, granted);
    if (run == NULL) {
        job_drop(job);
        return err_set(err, E_NOMEM, "out of memory");
    }
    dispatch_lock(dispatch);
    bool is_free = job_find(dispatch, &job->operation_id) == NULL; /* DJ2 */
    if (is_free) {
        job_enter(job);
        run_enter(run, job, worker);
        job_move(job, JOB_CALLING);
    }
    dispatch_unlock(dispatch);
    if (!is_free) {
        run_drop(run);
        job_drop(job);
        return err_set(err, E_LIMIT, "an earlier attempt is not over yet");
    }
    run_granted(run);
    return OK;
}

/* Add the jobs that were just offered, oldest first. Under the lock. */
static void take_arrivals(struct dispatch *dispatch)
{
    struct job *oldest = NULL;
    for (struct job *at = dispatch->arrivals, *next; at != NULL; at = next) {
        next = at->chain;
        at->chain = oldest;
        oldest = at;
    }
    dispatch->arrivals = NULL;
    for (struct job *at = oldest, *next; at != NULL; at = next) {
        next = at->chain;
        at->chain = NULL;
        take_offered(at);
    }
}

/* Under the lock. */
static void take_due(struct dispatch *dispatch, const struct store_due *due)
{
    struct job *job = job_find(dispatch, &due->operation_id);
    if (job != NULL) {
        /* A job that is queued or yet to be read will see the current record anyway. */
        job->is_due_again = job->state != JOB_QUEUED && job->state != JOB_FOUND;
        plan_anew(job, due->due_ms);
        return;
    }
    job = job_new(dispatch, &due->operation_id);
    if (job == NULL) {
        dispatch_lost(dispatch);
        return;
    }
    job_enter(job);
    job_found(job);
}

/* On the engine's thread, under the janitor's lock: so nothing here calls the janitor's functions
 * with ours. */
static bool on_found(void *context, const struct store_due *dues, size_t count)
{
    struct dispatch *dispatch = context;
    dispatch_lock(dispatch);
    bool fits =
        dispatch->found_count + count <= FOUND_MAX &&
        atomic_load(&dispatch->job_count) + dispatch->found_count + count <= JOBS_FOUND_MAX &&
        !dispatch->is_resubscribing;
    if (fits) {
        memcpy(dispatch->found + dispatch->found_count, dues, count * sizeof *dues);
        dispatch->found_count += count;
        post_arrival(dispatch);
    }
    dispatch_unlock(dispatch);
    return fits;
}

static void subscribe(struct dispatch *dispatch)
{
    struct engine *engine = door_engine(dispatch->door);
    if (dispatch->is_subscribed) {
        engine_off_due(engine, &dispatch->subscription);
        dispatch->is_subscribed = false;
    }
    unsigned kinds = 0;
    dispatch_lock(dispatch);
    for (size_t i = 0; i < COUNT(dispatch->plans); i++) {
        kinds |= dispatch->plans[i] != NULL ? STORE_KIND(i) : 0;
    }
    dispatch->is_resubscribing = false;
    dispatch_unlock(dispatch);
    dispatch->subscription = (struct due_subscription){
        .filter = {.kinds = kinds,
            .reasons = STORE_DUE(RECORD_DUE_NEXT_ATTEMPT) | STORE_DUE(RECORD_DUE_RECONCILE_AGAIN)},
        .is_once = true,
        .found = on_found,
        .context = dispatch};
    if (kinds != 0 && !dispatch->is_ended) {
        engine_on_due(engine, &dispatch->subscription);
        dispatch->is_subscribed = true;
    }
}

void dispatch_lost(struct dispatch *dispatch)
{
    dispatch->is_lost = true;
    post_arrival(dispatch);
}

static void on_lost(struct net_deadline *deadline, uint64_t now_ms)
{
    struct dispatch *dispatch = CONTAINER_OF(deadline, struct dispatch, lost_deadline);
    (void)now_ms;
    subscribe(dispatch);
}

static void on_oldest(struct net_deadline *deadline, uint64_t now_ms)
{
    struct dispatch_worker *worker =
        CONTAINER_OF(deadline, struct dispatch_worker, oldest_deadline);
    (void)now_ms;
    dispatch_lock(worker->dispatch);
    worker->dispatch->is_oldest_due = false;
    gauges_measure(worker->dispatch);
    dispatch_unlock(worker->dispatch);
}

static void on_pump(struct net_deadline *deadline, uint64_t now_ms)
{
    (void)now_ms;
    dispatch_pump(CONTAINER_OF(deadline, struct dispatch_worker, pump_deadline));
}

static void on_arrival(struct net_task *task)
{
    struct dispatch *dispatch = CONTAINER_OF(task, struct dispatch, arrival);
    struct net_loop *loop = worker_loop(&dispatch->workers[0]);
    dispatch_lock(dispatch);
    take_arrivals(dispatch);
    bool resubscribes = dispatch->is_resubscribing;
    bool is_lost = dispatch->is_lost;
    size_t count = dispatch->found_count;
    memcpy(dispatch->taking, dispatch->found, count * sizeof *dispatch->found);
    dispatch->found_count = 0;
    dispatch->is_arriving = false;
    dispatch->is_lost = false;
    dispatch_unlock(dispatch);
    for (size_t i = 0; i < count && !dispatch->is_ended; i++) {
        dispatch_lock(dispatch); /* for each: a backlog does not hold up the other loops */
        take_due(dispatch, &dispatch->taking[i]);
        dispatch_unlock(dispatch);
    }
    if (resubscribes) {
        subscribe(dispatch);
    }
    if (is_lost && !dispatch->is_ended) {
        net_loop_deadline(loop, &dispatch->lost_deadline, net_loop_now(loop) + AGAIN_MS);
    }
    dispatch_pump(&dispatch->workers[0]);
}

/* ---- the end ------------------------------------------------------------------------------- */

/* Under the lock, so that no job begins after it. */
void dispatch_drain(struct dispatch *dispatch)
{
    dispatch_lock(dispatch);
    atomic_store(&dispatch->is_draining, true);
    dispatch_unlock(dispatch);
}

bool dispatch_is_busy(const struct dispatch *dispatch)
{
    return atomic_load(&dispatch->at_work) > 0;
}

static void cut_here(struct net_task *task)
{
    struct dispatch_worker *worker = CONTAINER_OF(task, struct dispatch_worker, cut);
    /* Calls in progress fail, and are settled. */
    upstreams_detach(worker->dispatch->upstreams, worker->number);
}

void dispatch_cut(struct dispatch *dispatch)
{
    dispatch_drain(dispatch);
    if (!atomic_exchange(&dispatch->is_cut, true)) {
        for (unsigned i = 0; i < dispatch->worker_count; i++) {
            net_loop_post(worker_loop(&dispatch->workers[i]), &dispatch->workers[i].cut);
        }
    }
}

bool dispatch_is_idle(const struct dispatch *dispatch)
{
    return !dispatch_is_busy(dispatch) && upstreams_is_idle(dispatch->upstreams);
}

/* The jobs that rest on this loop have no deadline any more. By now, no job is active. */
static void wake_none(struct dispatch_worker *worker)
{
    struct dispatch *dispatch = worker->dispatch;
    struct net_wheel *wheel = &worker_loop(worker)->wheel;
    dispatch_lock(dispatch);
    for (size_t i = 0; i < JOB_BUCKETS; i++) {
        for (struct job *at = dispatch->buckets[i]; at != NULL; at = at->chain) {
            ASSERT(at->run == NULL);
            if (at->worker == worker) {
                net_wheel_remove(wheel, &at->deadline);
            }
        }
    }
    dispatch_unlock(dispatch);
}

void dispatch_end(struct dispatch *dispatch, unsigned loop)
{
    struct dispatch_worker *worker = &dispatch->workers[loop];
    struct net_wheel *wheel = &worker_loop(worker)->wheel;
    dispatch_drain(dispatch);
    atomic_store(&dispatch->is_cut, true);
    if (loop == 0) {
        dispatch->is_ended = true;
        subscribe(dispatch); /* to nothing */
        net_wheel_remove(wheel, &dispatch->lost_deadline);
    }
    upstreams_detach(dispatch->upstreams, loop);
    wake_none(worker);
    ASSERT(worker->starts == NULL); /* the dispatcher was idle */
    net_wheel_remove(wheel, &worker->start_deadline);
    net_wheel_remove(wheel, &worker->pump_deadline);
    net_wheel_remove(wheel, &worker->oldest_deadline);
}

/* ---- the beginning ------------------------------------------------------------------------- */

/* NULL: out of memory. */
static struct dispatch_worker *workers_new(struct dispatch *dispatch, unsigned count)
{
    ASSERT(count > 0);
    struct dispatch_worker *workers = mem_zalloc(dispatch->mem, count, sizeof *workers);
    for (unsigned i = 0; workers != NULL && i < count; i++) {
        workers[i] = (struct dispatch_worker){.dispatch = dispatch,
            .number = i,
            .pump_deadline = {.due = on_pump},
            .start_deadline = {.due = on_start_late},
            .oldest_deadline = {.due = on_oldest},
            .cut = {.run = cut_here},
            .wake = {.run = wake_here}};
        dispatch->worker_count = i + 1;
    }
    return workers;
}

enum status dispatch_new(
    const struct dispatch_options *options, struct dispatch **ret_dispatch, struct err *err)
{
    const struct mem *mem = options->mem == NULL ? &mem_libc : options->mem;
    struct dispatch *dispatch = mem_zalloc(mem, 1, sizeof *dispatch);
    if (dispatch == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    dispatch->mem = mem;
    dispatch->door = options->door;
    dispatch->server = options->server;
    dispatch->spool_dir = options->spool_dir;
    dispatch_log(dispatch, options->logs);
    clock_system(&dispatch->clock);
    dispatch->arrival.run = on_arrival;
    dispatch->lost_deadline.due = on_lost;
    dispatch->spooled.setting = "1GiB of answers";
    atomic_store(&dispatch->spooled.max, SPOOLED_BYTES_MAX);
    (void)pthread_mutex_init(&dispatch->lock, NULL);
    dispatch->buckets = mem_zalloc(mem, JOB_BUCKETS, sizeof(struct job *));
    dispatch->workers = workers_new(dispatch, options->loops);
    bool has_memory = dispatch->buckets != NULL && dispatch->workers != NULL;
    enum status status = has_memory ? OK : err_set(err, E_NOMEM, "out of memory");
    status = status == OK ? upstreams_new(mem, options->loops, &dispatch->upstreams, err) : status;
    if (status != OK) {
        dispatch_free(dispatch);
        return status;
    }
    upstreams_attach(dispatch->upstreams, options->server);
    metrics_targets(door_metrics(dispatch->door), dispatch_figures, dispatch);
    *ret_dispatch = dispatch;
    return OK;
}

struct door *dispatch_door(const struct dispatch *dispatch)
{
    return dispatch->door;
}

void dispatch_log(struct dispatch *dispatch, bool logs)
{
    atomic_store(&dispatch->logs, logs);
}

void dispatch_vault(struct dispatch *dispatch, const struct vault *vault)
{
    dispatch->vault = vault;
}

void dispatch_free(struct dispatch *dispatch)
{
    if (dispatch == NULL) {
        return;
    }
    ASSERT(atomic_load(&dispatch->at_work) == 0);
    metrics_targets(door_metrics(dispatch->door), NULL, NULL);
    for (struct job *at = dispatch->arrivals, *next; at != NULL; at = next) {
        next = at->chain; /* offered but never taken: it is still in the store */
        job_drop(at);
    }
    for (size_t i = 0; dispatch->buckets != NULL && i < JOB_BUCKETS; i++) {
        while (dispatch->buckets[i] != NULL) {
            dispatch->buckets[i]->has_lane = false; /* lanes are freed with their target */
            job_free(dispatch->buckets[i]);
        }
    }
    for (unsigned i = 0; i < dispatch->worker_count; i++) {
        mem_free(dispatch->mem, dispatch->workers[i].spare);
    }
    if (dispatch->upstreams != NULL) {
        upstreams_attach(dispatch->upstreams, NULL); /* no loop is left to close them */
    }
    for (size_t i = 0; i < COUNT(dispatch->plans); i++) {
        dispatch_plan_drop(dispatch, dispatch->plans[i]);
    }
    for (struct dispatch_gauge *at = dispatch->gauges, *next; at != NULL; at = next) {
        next = at->next;
        gauge_free(at);
    }
    upstreams_free(dispatch->upstreams);
    (void)pthread_mutex_destroy(&dispatch->lock);
    mem_free(dispatch->mem, dispatch->workers);
    mem_free(dispatch->mem, dispatch->buckets);
    mem_free(dispatch->mem, dispatch);
}
