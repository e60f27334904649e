/* The lists of jobs, and the choice of the next one. */
#include "base/check.h"
#include "base/macros.h"
#include "dispatch/impl.h"

#define TO(state) (1u << JOB_##state)
static const unsigned nexts[JOB_STATES] = {
    [JOB_FOUND] = TO(READING) | TO(QUEUED) | TO(CLAIMING) | TO(CALLING),
    [JOB_READING] = TO(QUEUED) | TO(CALLING) | TO(SETTLING) | TO(RESTING),
    [JOB_QUEUED] = TO(CLAIMING),
    [JOB_CLAIMING] = TO(CALLING) | TO(SETTLING) | TO(RESTING),
    [JOB_CALLING] = TO(SETTLING) | TO(RESTING),
    [JOB_SETTLING] = TO(RESTING),
    [JOB_RESTING] = TO(FOUND),
};
#undef TO

static void job_check(const struct job *job)
{
    bool works = job->state == JOB_READING || job->state == JOB_CLAIMING ||
                 job->state == JOB_CALLING || job->state == JOB_SETTLING;
    ASSERT(!works || job->run != NULL);                                        /* DJ1 */
    ASSERT(job->state != JOB_QUEUED || (job->gauge != NULL && job->has_lane)); /* DJ1 */
    ASSERT(job->state != JOB_FOUND || job->run == NULL);                       /* DJ1 */
    ASSERT(job->state != JOB_CALLING || job->run->is_question ||
           job->run->record.fence > 0); /* DJ3, P6 */
}

void job_move(struct job *job, enum job_state state)
{
    ASSERT((nexts[job->state] & 1u << state) != 0);
    job->state = state;
    job_check(job);
}

/* ---- the table by id ----------------------------------------------------------------------- */

static struct job **bucket_of(const struct dispatch *dispatch, const struct op_id *id)
{
    uint64_t prefix = op_id_prefix(id);
    return &dispatch->buckets[(prefix ^ prefix >> 17) % JOB_BUCKETS];
}

struct job *job_find(const struct dispatch *dispatch, const struct op_id *id)
{
    struct job *at = *bucket_of(dispatch, id);
    while (at != NULL && !op_id_equal(&at->operation_id, id)) {
        at = at->chain;
    }
    return at;
}

static void on_rested(struct net_deadline *deadline, uint64_t now_ms)
{
    struct job *job = CONTAINER_OF(deadline, struct job, deadline);
    struct dispatch_worker *worker = job->worker;
    (void)now_ms;
    dispatch_lock(job->dispatch);
    job_found(job);
    dispatch_unlock(job->dispatch);
    dispatch_pump(worker);
}

struct job *job_new(struct dispatch *dispatch, const struct op_id *id)
{
    if (atomic_fetch_add(&dispatch->job_count, 1) >= JOBS_MAX) {
        atomic_fetch_sub(&dispatch->job_count, 1);
        return NULL;
    }
    struct job *job = mem_zalloc(dispatch->mem, 1, sizeof *job);
    if (job == NULL) {
        atomic_fetch_sub(&dispatch->job_count, 1);
        return NULL;
    }
    job->dispatch = dispatch;
    job->operation_id = *id;
    job->deadline.due = on_rested;
    return job;
}

void job_drop(struct job *job)
{
    struct dispatch *dispatch = job->dispatch;
    ASSERT(job->deadline.prev == NULL && job->run == NULL && !job->has_lane);
    mem_free(dispatch->mem, job);
    atomic_fetch_sub(&dispatch->job_count, 1);
}

void job_enter(struct job *job)
{
    struct job **bucket = bucket_of(job->dispatch, &job->operation_id);
    ASSERT(job_find(job->dispatch, &job->operation_id) == NULL); /* DJ2 */
    job->chain = *bucket;
    *bucket = job;
}

void job_free(struct job *job)
{
    struct job **at = bucket_of(job->dispatch, &job->operation_id);
    while (*at != job) {
        at = &(*at)->chain;
    }
    *at = job->chain;
    job_drop(job);
}

/* ---- lists --------------------------------------------------------------------------------- */

void job_found(struct job *job)
{
    struct dispatch *dispatch = job->dispatch;
    if (job->state != JOB_FOUND) {
        job_move(job, JOB_FOUND);
    }
    job->is_due_again = false;
    job->item.next = NULL;
    if (dispatch->found_last == NULL) {
        dispatch->found_first = &job->item;
    } else {
        dispatch->found_last->next = &job->item;
    }
    dispatch->found_last = &job->item;
}

static struct job *found_take(struct dispatch *dispatch)
{
    struct turns_item *item = dispatch->found_first;
    dispatch->found_first = item->next;
    dispatch->found_last = dispatch->found_first == NULL ? NULL : dispatch->found_last;
    return CONTAINER_OF(item, struct job, item);
}

void job_leave_lane(struct job *job)
{
    if (job->has_lane) {
        job->has_lane = false;
        turns_over(&job->gauge->turns, job->lane);
        job->lane = NULL;
    }
}

/* Length-framed, so that two lanes never have the same key (P9). */
static void lane_key(struct job *job, const struct record *record, struct slice order)
{
    struct digest parts[3];
    digest_sha256(record->key.tenant.data, record->key.tenant.len, &parts[0]);
    digest_sha256(record->key.scope.data, record->key.scope.len, &parts[1]);
    digest_sha256(order.data, order.len, &parts[2]);
    digest_sha256(parts, sizeof parts, &job->lane_key);
}

/* Its target and its tenant there. Under the lock. */
static bool set_target(struct job *job, struct dispatch_target *target, const struct record *record)
{
    job->due_ms = record->due_ms;
    job->gauge = target->gauge;
    job->tenant = gauge_tenant(target->gauge, record->key.tenant);
    return job->tenant != NULL;
}

bool job_find_target(struct job *job, const struct dispatch_plan *plan, const struct record *record)
{
    struct dispatch_target *target = plan->kind->target(plan, record);
    if (target == NULL) {
        return false;
    }
    dispatch_lock(job->dispatch);
    bool has_target = set_target(job, target, record);
    dispatch_unlock(job->dispatch);
    return has_target;
}

bool job_place(struct job *job, const struct dispatch_plan *plan, const struct record *record)
{
    struct dispatch *dispatch = job->dispatch;
    struct dispatch_target *target = plan->kind->target(plan, record);
    if (target == NULL) {
        return false;
    }
    struct arena arena;
    struct slice order = SLICE_EMPTY;
    arena_init(&arena, dispatch->mem, 1 << 20);
    if (plan->kind->lane != NULL) {
        order = plan->kind->lane(plan, record, &arena);
    }
    struct digest before = job->lane_key;
    lane_key(job, record, order);
    arena_release(&arena);
    job->has_after = plan->kind->after != NULL && plan->kind->after(record, &job->after);
    dispatch_lock(dispatch);
    if (job->gauge != target->gauge || !digest_equal(&before, &job->lane_key)) {
        job_leave_lane(job); /* kept while it rested; it belongs in a different one now */
    }
    job->is_ordered = order.len > 0;
    bool has_target = set_target(job, target, record);
    dispatch_unlock(dispatch);
    return has_target;
}

void job_queue(struct job *job)
{
    struct turns *turns = &job->gauge->turns;
    if (job->has_lane) { /* it rested, and the jobs after it waited */
        job_move(job, JOB_QUEUED);
        turns_put_back(turns, job->lane, &job->item);
        return;
    }
    struct turns_lane *lane = turns_lane(turns, &job->lane_key, job->tenant, job->is_ordered);
    if (lane == NULL) {
        dispatch_lost(job->dispatch); /* its due is found again */
        job_free(job);
        return;
    }
    job->lane = lane;
    job->has_lane = true;
    job_move(job, JOB_QUEUED);
    turns_put(turns, lane, &job->item);
}

bool job_fits(const struct job *job)
{
    const struct turns_lane *lane = turns_find(&job->gauge->turns, &job->lane_key);
    return atomic_load(&job->dispatch->job_count) <= JOBS_FOUND_MAX || lane == NULL ||
           lane->waiting < LANE_OFFERS_MAX;
}

void job_rest(struct job *job, int64_t ms)
{
    struct net_loop *loop = worker_loop(job->worker);
    if (!job->is_ordered) {
        job_leave_lane(job);
    }
    job_move(job, JOB_RESTING);
    ASSERT(job->run == NULL);
    net_loop_deadline(loop, &job->deadline, net_loop_now(loop) + (uint64_t)(ms < 1 ? 1 : ms));
}

void job_over(struct job *job)
{
    job_leave_lane(job);
    if (job->is_due_again && !atomic_load(&job->dispatch->is_draining)) {
        job->is_due_again = false;
        job_move(job, JOB_RESTING);
        job_found(job); /* DJ2 */
    } else {
        job_free(job);
    }
}

/* ---- whose turn it is ---------------------------------------------------------------------- */

struct turn {
    struct dispatch_gauge *gauge;
    int64_t now_ms;
    int64_t wait_ms; /* the shortest wait of all; 0: until a call ends */
};

static void note_wait(struct turn *turn, int64_t wait_ms)
{
    if (wait_ms > 0 && (turn->wait_ms == 0 || wait_ms < turn->wait_ms)) {
        turn->wait_ms = wait_ms;
    }
}

static bool may_go(void *context, const struct turns_lane *lane)
{
    struct turn *turn = context;
    struct gauge_tenant *tenant = lane->owner;
    int64_t wait_ms = 0;
    bool may = rate_take(&tenant->rate, turn->gauge->rate, turn->now_ms, &wait_ms);
    note_wait(turn, wait_ms);
    return may;
}

/* The job of this target whose turn it is. NULL: none may begin now. */
static struct job *take_turn(struct turn *turn)
{
    struct dispatch_gauge *gauge = turn->gauge;
    struct turns_lane *lane = NULL;
    int64_t wait_ms = 0;
    if (gauge->turns.ring == NULL) {
        return NULL;
    }
    bool may = gauge_admits(gauge, turn->now_ms, &wait_ms);
    note_wait(turn, wait_ms);
    struct turns_item *item = may ? turns_take(&gauge->turns, may_go, turn, &lane) : NULL;
    if (item == NULL) {
        return NULL;
    }
    struct job *job = CONTAINER_OF(item, struct job, item);
    /* Usually the one before it was just here: then no query is needed. */
    job->has_after = job->has_after && !op_id_equal(&lane->over, &job->after);
    return job;
}

/* Targets take turns, too. */
static struct job *next_turn(struct dispatch *dispatch, struct turn *turn)
{
    struct dispatch_gauge *first =
        dispatch->next_gauge == NULL ? dispatch->gauges : dispatch->next_gauge;
    struct dispatch_gauge *at = first;
    struct job *job = NULL;
    while (at != NULL && job == NULL && dispatch->runs < RUNS_MAX) {
        turn->gauge = at;
        job = take_turn(turn);
        at = at->next == NULL ? dispatch->gauges : at->next;
        if (job == NULL && at == first) {
            break;
        }
    }
    dispatch->next_gauge = job == NULL ? first : at;
    return job;
}

static struct job *next_found(struct dispatch *dispatch)
{
    return dispatch->found_first != NULL && dispatch->reads < READS_MAX ? found_take(dispatch)
                                                                        : NULL;
}

/* This one's, unless it has clearly more to do than a different one: work that came in on a loop
 * stays there, but a backlog is spread over all. */
static struct dispatch_worker *worker_for_next(struct dispatch_worker *here)
{
    struct dispatch *dispatch = here->dispatch;
    struct dispatch_worker *least = here;
    for (unsigned i = 0; i < dispatch->worker_count; i++) {
        struct dispatch_worker *at = &dispatch->workers[i];
        least = at->runs < least->runs ? at : least;
    }
    return here->runs >= least->runs + RUNS_AHEAD_MAX ? least : here;
}

/* Choose the next job, and give it a run. NULL: none can begin now. */
static struct dispatching *next_run(struct dispatch_worker *worker, struct turn *turn)
{
    struct dispatch *dispatch = worker->dispatch;
    struct dispatching *run = run_new(worker);
    if (run == NULL) {
        note_wait(turn, AGAIN_MS);
        return NULL;
    }
    dispatch_lock(dispatch);
    bool is_ending = atomic_load(&dispatch->is_draining);
    struct job *job = is_ending ? NULL : next_found(dispatch);
    if (job != NULL) {
        dispatch->reads++;
        run_enter(run, job, worker);
        job_move(job, JOB_READING);
    } else if (!is_ending && (job = next_turn(dispatch, turn)) != NULL) {
        run_enter(run, job, worker_for_next(worker));
        run->has_place = true;
        run->ticket = gauge_enter(job->gauge, turn->now_ms);
        job_move(job, JOB_CLAIMING);
    }
    dispatch_unlock(dispatch);
    if (job == NULL) {
        run_drop(run);
        run = NULL;
    }
    return run;
}

/* Whether a call to the target may begin without a turn. A waiting call goes first, also one of a
 * different tenant or type: then the new one waits for its turn after it. Under the lock. */
static bool may_start(struct dispatch *dispatch, struct dispatch_gauge *gauge, int64_t now_ms)
{
    int64_t wait_ms = 0; /* the record waits for that, when it is offered */
    return gauge->turns.ring == NULL && dispatch->runs < RUNS_STARTED_MAX &&
           gauge_admits(gauge, now_ms, &wait_ms);
}

/* Calls that end soon, and few that wait for their end: the enqueue is worth holding back. This
 * slows down a caller that creates more than can be sent. Under the lock. */
static bool may_start_soon(struct dispatch_gauge *gauge, int64_t now_ms)
{
    return gauge->call_ms_mean <= START_MS * CALL_MEAN_OF &&
           gauge->turns.waiting <= START_QUEUE * (uint64_t)gauge->concurrency &&
           breaker_admits(&gauge->breaker, now_ms);
}

enum start_when job_start_when(struct dispatch_worker *worker, const struct dispatch_target *target)
{
    struct dispatch *dispatch = worker->dispatch;
    int64_t now_ms = (int64_t)net_loop_now(worker_loop(worker));
    dispatch_lock(dispatch);
    enum start_when when = atomic_load(&dispatch->is_draining)          ? START_NEVER
                           : may_start(dispatch, target->gauge, now_ms) ? START_NOW
                           : may_start_soon(target->gauge, now_ms)      ? START_SOON
                                                                        : START_NEVER;
    dispatch_unlock(dispatch);
    return when;
}

bool job_start(struct job *job, struct dispatching *run, struct dispatch_worker *worker)
{
    struct dispatch_gauge *gauge = job->gauge;
    int64_t now_ms = (int64_t)net_loop_now(worker_loop(worker));
    int64_t wait_ms = 0;
    dispatch_lock(job->dispatch);
    bool may = !atomic_load(&job->dispatch->is_draining) &&
               may_start(job->dispatch, gauge, now_ms) &&
               rate_take(&job->tenant->rate, gauge->rate, now_ms, &wait_ms);
    if (may) {
        run_enter(run, job, worker);
        run->has_place = true;
        run->ticket = gauge_enter(gauge, now_ms);
        job_move(job, JOB_CLAIMING);
    }
    dispatch_unlock(job->dispatch);
    return may;
}

/* At most once a second, and after the last change. */
static void measure_soon(struct dispatch_worker *worker)
{
    struct net_loop *loop = worker_loop(worker);
    dispatch_lock(worker->dispatch);
    bool is_first = !worker->dispatch->is_oldest_due;
    worker->dispatch->is_oldest_due = true;
    dispatch_unlock(worker->dispatch);
    if (is_first) {
        net_loop_deadline(loop, &worker->oldest_deadline, net_loop_now(loop) + OLDEST_MS);
    }
}

void dispatch_pump(struct dispatch_worker *worker)
{
    struct net_loop *loop = worker_loop(worker);
    struct turn turn = {.now_ms = (int64_t)net_loop_now(loop)};
    struct dispatching *run = NULL;
    if (worker->is_pumping || atomic_load(&worker->dispatch->is_draining)) {
        return;
    }
    worker->is_pumping = true;
    while ((run = next_run(worker, &turn)) != NULL) {
        if (run->worker == worker) {
            run_begin(run);
        } else {
            run_hand(run);
        }
    }
    dispatch_starts(worker);
    worker->is_pumping = false;
    measure_soon(worker);
    if (turn.wait_ms > 0) {
        net_loop_deadline(
            loop, &worker->pump_deadline, net_loop_now(loop) + (uint64_t)turn.wait_ms);
    }
}
