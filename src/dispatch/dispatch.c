/* The dispatcher itself: arrivals from other threads, plans, dues, start and end. */
#include "dispatch/dispatch.h"

#include "base/check.h"
#include "base/macros.h"
#include "dispatch/impl.h"

struct net_loop *dispatch_loop(const struct dispatch *dispatch)
{
    return http_server_loop(dispatch->server, 0);
}

/* ---- plans --------------------------------------------------------------------------------- */

struct dispatch_plan *dispatch_plan_take(struct dispatch *dispatch, enum record_kind kind)
{
    ASSERT((size_t)kind < COUNT(dispatch->plans));
    (void)pthread_mutex_lock(&dispatch->lock);
    struct dispatch_plan *plan = dispatch->plans[kind];
    if (plan != NULL) {
        plan->holders++;
    }
    (void)pthread_mutex_unlock(&dispatch->lock);
    return plan;
}

void dispatch_plan_give(struct dispatch *dispatch, struct dispatch_plan *plan)
{
    if (plan == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&dispatch->lock);
    ASSERT(plan->holders > 0);
    bool is_last = --plan->holders == 0;
    (void)pthread_mutex_unlock(&dispatch->lock);
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
        (void)pthread_mutex_lock(&dispatch->lock);
        target->gauge = gauge_of(dispatch, plan->kind, target->name);
        (void)pthread_mutex_unlock(&dispatch->lock);
        status = target->gauge == NULL ? err_set(err, E_NOMEM, "out of memory") : OK;
    }
    return status;
}

static void post_arrival(struct dispatch *dispatch)
{
    if (!dispatch->is_arriving) {
        dispatch->is_arriving = true;
        net_loop_post(dispatch_loop(dispatch), &dispatch->arrival);
    }
}

void dispatch_plan_use(struct dispatch *dispatch, struct dispatch_plan *plan)
{
    (void)pthread_mutex_lock(&dispatch->lock);
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
    (void)pthread_mutex_unlock(&dispatch->lock);
    dispatch_plan_give(dispatch, before);
}

void dispatch_plan_drop(struct dispatch *dispatch, struct dispatch_plan *plan)
{
    dispatch_plan_give(dispatch, plan);
}

/* ---- arrivals ------------------------------------------------------------------------------ */

static void arrive(struct dispatch *dispatch, struct job *job)
{
    (void)pthread_mutex_lock(&dispatch->lock);
    job->chain = dispatch->arrivals;
    dispatch->arrivals = job;
    post_arrival(dispatch);
    (void)pthread_mutex_unlock(&dispatch->lock);
}

void dispatch_offer(struct dispatch *dispatch, const struct record *record)
{
    struct dispatch_plan *plan = NULL;
    struct job *job = NULL;
    if (record->status != RECORD_PENDING || atomic_load(&dispatch->is_draining)) {
        return;
    }
    plan = dispatch_plan_take(dispatch, record->kind);
    job = plan == NULL || record->due_ms > record->updated_ms
              ? NULL
              : job_new(dispatch, &record->operation_id);
    if (job != NULL && job_place(job, plan, record)) {
        arrive(dispatch, job);
    } else if (job != NULL) {
        mem_free(dispatch->mem, job);
        atomic_fetch_sub(&dispatch->job_count, 1);
    }
    dispatch_plan_give(dispatch, plan);
}

enum status dispatch_run(
    struct dispatch *dispatch, const struct dispatch_granted *granted, struct err *err)
{
    ASSERT(granted->record->status == RECORD_IN_PROGRESS && granted->record->fence > 0); /* DJ3 */
    if (atomic_load(&dispatch->is_cut)) {
        return err_set(err, E_UNAVAILABLE, "the server ends");
    }
    struct job *job = job_new(dispatch, &granted->record->operation_id);
    if (job == NULL) {
        return err_set(err, E_LIMIT, "too many calls wait for their turn (%d)", (int)JOBS_MAX);
    }
    atomic_fetch_add(&dispatch->at_work, 1); /* from here on the server waits for the job */
    struct granted_copy *copy = mem_zalloc(dispatch->mem, 1, sizeof *copy);
    enum status status = copy == NULL ? E_NOMEM : OK;
    if (status == OK) {
        copy->granted = *granted;
        arena_init(&copy->arena, dispatch->mem, RUN_ARENA_BYTES_MAX);
        status = record_copy(granted->record, &copy->arena, &copy->record);
        status =
            status == OK ? arena_copy(&copy->arena, granted->body, &copy->granted.body) : status;
    }
    if (status != OK) {
        if (copy != NULL) {
            arena_release(&copy->arena);
        }
        mem_free(dispatch->mem, copy);
        mem_free(dispatch->mem, job);
        atomic_fetch_sub(&dispatch->job_count, 1);
        atomic_fetch_sub(&dispatch->at_work, 1);
        return err_set(err, E_NOMEM, "out of memory");
    }
    job->granted = copy;
    arrive(dispatch, job);
    return OK;
}

static void take_granted(struct job *job)
{
    struct dispatch *dispatch = job->dispatch;
    struct granted_copy *copy = job->granted;
    struct dispatching *run = job_find(dispatch, &job->operation_id) == NULL ? run_new(job) : NULL;
    job->granted = NULL;
    if (run == NULL) { /* out of memory: the lease runs out, and nothing was sent */
        struct dispatch_call nothing = {.dispatch = dispatch, .record = &copy->record};
        if (copy->granted.done != NULL) {
            copy->granted.done(copy->granted.context, &nothing);
        }
        arena_release(&copy->arena);
        mem_free(dispatch->mem, copy);
        mem_free(dispatch->mem, job);
        atomic_fetch_sub(&dispatch->job_count, 1);
        atomic_fetch_sub(&dispatch->at_work, 1);
        return;
    }
    arena_release(&run->arena);
    run->arena = copy->arena;
    run->record = copy->record;
    run->granted = copy->granted;
    run->is_granted = true;
    mem_free(dispatch->mem, copy);
    job_enter(job);
    run_granted(run);
    atomic_fetch_sub(&dispatch->at_work, 1);
}

/* Add the jobs that were just offered or granted. */
static void take_arrivals(struct dispatch *dispatch, struct job *newest)
{
    struct job *oldest = NULL;
    for (struct job *at = newest, *next; at != NULL; at = next) {
        next = at->chain;
        at->chain = oldest;
        oldest = at;
    }
    for (struct job *at = oldest, *next; at != NULL; at = next) {
        next = at->chain;
        at->chain = NULL;
        if (at->granted != NULL) {
            take_granted(at);
        } else if (dispatch->is_ended || atomic_load(&dispatch->is_draining) ||
                   job_find(dispatch, &at->operation_id) != NULL || !job_fits(at)) {
            mem_free(dispatch->mem, at); /* DJ2 */
            atomic_fetch_sub(&dispatch->job_count, 1);
        } else {
            job_enter(at);
            job_queue(at);
        }
    }
}

static void take_due(struct dispatch *dispatch, const struct store_due *due)
{
    struct job *job = job_find(dispatch, &due->operation_id);
    if (job != NULL) {
        /* A job that is queued or yet to be read will see the current record anyway. */
        job->is_due_again = job->state != JOB_QUEUED && job->state != JOB_FOUND;
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

/* On the engine's thread. */
static bool on_found(void *context, const struct store_due *dues, size_t count)
{
    struct dispatch *dispatch = context;
    (void)pthread_mutex_lock(&dispatch->lock);
    bool fits =
        dispatch->found_count + count <= FOUND_MAX &&
        atomic_load(&dispatch->job_count) + dispatch->found_count + count <= JOBS_FOUND_MAX &&
        !dispatch->is_resubscribing;
    if (fits) {
        memcpy(dispatch->found + dispatch->found_count, dues, count * sizeof *dues);
        dispatch->found_count += count;
        post_arrival(dispatch);
    }
    (void)pthread_mutex_unlock(&dispatch->lock);
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
    (void)pthread_mutex_lock(&dispatch->lock);
    for (size_t i = 0; i < COUNT(dispatch->plans); i++) {
        kinds |= dispatch->plans[i] != NULL ? STORE_KIND(i) : 0;
    }
    dispatch->is_resubscribing = false;
    (void)pthread_mutex_unlock(&dispatch->lock);
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
    struct net_loop *loop = dispatch_loop(dispatch);
    if (!dispatch->is_ended) {
        net_loop_deadline(loop, &dispatch->lost_deadline, net_loop_now(loop) + AGAIN_MS);
    }
}

static void on_lost(struct net_deadline *deadline, uint64_t now_ms)
{
    struct dispatch *dispatch = CONTAINER_OF(deadline, struct dispatch, lost_deadline);
    (void)now_ms;
    subscribe(dispatch);
}

static void on_oldest(struct net_deadline *deadline, uint64_t now_ms)
{
    struct dispatch *dispatch = CONTAINER_OF(deadline, struct dispatch, oldest_deadline);
    (void)now_ms;
    dispatch->is_oldest_due = false;
    gauges_look(dispatch);
}

static void on_pump(struct net_deadline *deadline, uint64_t now_ms)
{
    struct dispatch *dispatch = CONTAINER_OF(deadline, struct dispatch, pump_deadline);
    (void)now_ms;
    dispatch_pump(dispatch);
}

static void on_arrival(struct net_task *task)
{
    struct dispatch *dispatch = CONTAINER_OF(task, struct dispatch, arrival);
    (void)pthread_mutex_lock(&dispatch->lock);
    struct job *arrivals = dispatch->arrivals;
    bool resubscribes = dispatch->is_resubscribing;
    size_t count = dispatch->found_count;
    memcpy(dispatch->taking, dispatch->found, count * sizeof *dispatch->found);
    dispatch->arrivals = NULL;
    dispatch->found_count = 0;
    dispatch->is_arriving = false;
    (void)pthread_mutex_unlock(&dispatch->lock);
    take_arrivals(dispatch, arrivals);
    for (size_t i = 0; i < count && !dispatch->is_ended; i++) {
        take_due(dispatch, &dispatch->taking[i]);
    }
    if (resubscribes) {
        subscribe(dispatch);
    }
    dispatch_pump(dispatch);
}

/* ---- the end ------------------------------------------------------------------------------- */

void dispatch_drain(struct dispatch *dispatch)
{
    atomic_store(&dispatch->is_draining, true);
}

bool dispatch_is_busy(const struct dispatch *dispatch)
{
    return atomic_load(&dispatch->at_work) > 0;
}

static void cut_here(struct net_task *task)
{
    struct dispatch *dispatch = CONTAINER_OF(task, struct dispatch, cut);
    upstreams_detach(dispatch->upstreams, 0); /* calls in progress fail, and are settled */
}

void dispatch_cut(struct dispatch *dispatch)
{
    atomic_store(&dispatch->is_draining, true);
    if (!atomic_exchange(&dispatch->is_cut, true)) {
        net_loop_post(dispatch_loop(dispatch), &dispatch->cut);
    }
}

bool dispatch_is_idle(const struct dispatch *dispatch)
{
    return !dispatch_is_busy(dispatch) && upstreams_is_idle(dispatch->upstreams);
}

/* Free the jobs that are not active: by now, all of them. */
static void forget_jobs(struct dispatch *dispatch)
{
    struct net_wheel *wheel = &dispatch_loop(dispatch)->wheel;
    for (size_t i = 0; i < JOB_BUCKETS; i++) {
        while (dispatch->buckets[i] != NULL) {
            struct job *job = dispatch->buckets[i];
            ASSERT(job->run == NULL);
            net_wheel_remove(wheel, &job->deadline);
            job->has_lane = false; /* lanes are freed with their target */
            job_free(job);
        }
    }
    dispatch->found_first = dispatch->found_last = NULL;
}

void dispatch_end(struct dispatch *dispatch, unsigned loop)
{
    if (loop != 0) {
        return;
    }
    struct net_wheel *wheel = &dispatch_loop(dispatch)->wheel;
    atomic_store(&dispatch->is_draining, true);
    atomic_store(&dispatch->is_cut, true);
    dispatch->is_ended = true;
    subscribe(dispatch); /* to nothing */
    upstreams_detach(dispatch->upstreams, 0);
    forget_jobs(dispatch);
    net_wheel_remove(wheel, &dispatch->pump_deadline);
    net_wheel_remove(wheel, &dispatch->lost_deadline);
    net_wheel_remove(wheel, &dispatch->oldest_deadline);
}

/* ---- the beginning ------------------------------------------------------------------------- */

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
    dispatch->logs = options->logs;
    dispatch->arrival.run = on_arrival;
    dispatch->cut.run = cut_here;
    dispatch->pump_deadline.due = on_pump;
    dispatch->lost_deadline.due = on_lost;
    dispatch->oldest_deadline.due = on_oldest;
    dispatch->spooled.setting = "limits.in_flight_bytes_max";
    atomic_store(&dispatch->spooled.max, SPOOLED_BYTES_MAX);
    (void)pthread_mutex_init(&dispatch->lock, NULL);
    dispatch->buckets = mem_zalloc(mem, JOB_BUCKETS, sizeof(struct job *));
    enum status status = dispatch->buckets == NULL ? err_set(err, E_NOMEM, "out of memory") : OK;
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
        mem_free(dispatch->mem, at);
    }
    if (dispatch->upstreams != NULL) {
        upstreams_attach(dispatch->upstreams, NULL); /* no loop is left to close them */
    }
    for (size_t i = 0; i < COUNT(dispatch->plans); i++) {
        dispatch_plan_give(dispatch, dispatch->plans[i]);
    }
    for (struct dispatch_gauge *at = dispatch->gauges, *next; at != NULL; at = next) {
        next = at->next;
        gauge_free(at);
    }
    upstreams_free(dispatch->upstreams);
    (void)pthread_mutex_destroy(&dispatch->lock);
    mem_free(dispatch->mem, dispatch->buckets);
    mem_free(dispatch->mem, dispatch);
}
