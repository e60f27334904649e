/*
 * The life of an active job, in the order in which it happens:
 *
 *   run_begin    a found record is read: if pending it is queued, if unknown its kind decides
 *   claim        the durable grant (P6); on_claimed. For a record that is not enqueued yet,
 *                run_claim_with: its claim is in the same commit; on_claimed_with
 *   call         the request is composed and sent; on_called
 *   settle       the kind's calls for the answer go to the engine as one group; on_settled
 *
 * This file is past 800 lines because a job is followed from first read to settling in one place.
 */
#include "base/check.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/rand.h"
#include "core/lane.h"
#include "dispatch/impl.h"
#include "engine/request_builder.h"

static const struct slice actor = {"dispatch", 8};

struct dispatching *run_new(struct dispatch_worker *worker)
{
    struct dispatch *dispatch = worker->dispatch;
    struct dispatching *run = worker->spare;
    worker->spare = NULL;
    run = run == NULL ? mem_alloc(dispatch->mem, sizeof *run) : run;
    if (run == NULL) {
        return NULL;
    }
    *run = (struct dispatching){
        .worker = worker, .started_nanos = clock_nanos(), .delay_ms = -1, .plan = NULL};
    arena_init(&run->arena, dispatch->mem, RUN_ARENA_BYTES_MAX);
    run->mem = arena_mem(&run->arena);
    return run;
}

enum status run_body(struct dispatching *run, struct slice plain)
{
    run->has_plain = true;
    return arena_copy(&run->arena, plain, &run->call.body);
}

void run_drop(struct dispatching *run)
{
    struct dispatch_worker *worker = run->worker;
    if (run->call.body.len > 0) { /* a payload in plain */
        union {
            const char *in;
            char *out;
        } body = {.in = run->call.body.data};
        mem_wipe(body.out, run->call.body.len);
    }
    arena_release(&run->arena);
    if (worker->spare == NULL) {
        worker->spare = run;
    } else {
        mem_free(worker->dispatch->mem, run);
    }
}

void run_enter(struct dispatching *run, struct job *job, struct dispatch_worker *worker)
{
    struct dispatch *dispatch = job->dispatch;
    ASSERT(job->run == NULL);
    run->job = job;
    run->worker = worker;
    job->run = run;
    job->worker = worker;
    worker->runs++;
    dispatch->runs++;
    atomic_fetch_add(&dispatch->at_work, 1);
}

static struct dispatch *dispatch_of(const struct dispatching *run)
{
    return run->worker->dispatch;
}

/* By the clock of its loop. */
static int64_t now_of(const struct dispatching *run)
{
    return (int64_t)net_loop_now(worker_loop(run->worker));
}

/* Under the lock. */
static void leave_gauge(struct dispatching *run, enum gauge_end end)
{
    if (run->has_place) {
        run->has_place = false;
        gauge_leave(run->job->gauge, run->ticket, end, now_of(run));
    }
}

/* Under the lock: the job has no run from now on, and run_release must follow. */
static void run_leave(struct dispatching *run)
{
    struct dispatch *dispatch = dispatch_of(run);
    leave_gauge(run, GAUGE_NOTHING);
    dispatch->questions -= run->is_question ? 1 : 0;
    run->job->run = NULL;
    run->worker->runs--;
    dispatch->runs--;
}

static void run_release(struct dispatching *run)
{
    outcall_release(&run->out);
    dispatch_plan_drop(dispatch_of(run), run->plan);
    run_drop(run);
}

/* The run is over; the job rests, or is over too. After this at_work may be 0, and the server may
 * end. */
static void leave(struct dispatching *run, int64_t rest_ms)
{
    struct job *job = run->job;
    struct dispatch_worker *worker = run->worker;
    struct dispatch *dispatch = worker->dispatch;
    /* An ordered job keeps its lane while it rests: later jobs wait until it is done or given
     * up. */
    bool rests = rest_ms <= REST_MS_MAX || (job->is_ordered && job->has_lane);
    dispatch_lock(dispatch);
    run_leave(run);
    if (rest_ms > 0 && rests && !atomic_load(&dispatch->is_draining)) {
        job_rest(job, rest_ms);
    } else {
        job_over(job);
    }
    dispatch_unlock(dispatch);
    run_release(run);
    dispatch_pump(worker);
    atomic_fetch_sub(&dispatch->at_work, 1);
}

static void move(struct dispatching *run, enum job_state state)
{
    dispatch_lock(dispatch_of(run));
    job_move(run->job, state);
    dispatch_unlock(dispatch_of(run));
}

/* ---- to the engine and back ---------------------------------------------------------------- */

static void on_task(struct net_task *task)
{
    struct dispatching *run = CONTAINER_OF(task, struct dispatching, task);
    run->then(run);
}

static void post(struct dispatching *run)
{
    run->task.run = on_task;
    net_loop_post(worker_loop(run->worker), &run->task);
}

/* ---- reading ------------------------------------------------------------------------------- */

/* When to read again after a call that was not decided. A call with E_UNKNOWN may have been
 * decided: the next read shows it. 0: never, because it was decided or the engine has stopped. */
static int64_t again_ms(const struct dispatching *run, const struct engine_call *call)
{
    struct engine *engine = door_engine(run->job->dispatch->door);
    return call->err.status == OK || engine_failure(engine, NULL) ? 0 : AGAIN_MS;
}

static void ask(struct dispatching *run);
static void park(struct dispatching *run);
static void send_again(struct dispatching *run, struct slice detail);
static void bury(struct dispatching *run, struct slice detail);

static void handle_unknown(struct dispatching *run)
{
    struct job *job = run->job;
    const struct dispatch_kind *kind = run->plan->kind;
    struct slice detail = SLICE_EMPTY;
    enum dispatch_unknown what =
        kind->unknown == NULL
            ? DISPATCH_HOLD
            : kind->unknown(run->plan, &run->record, run->read.call.now_ms, &run->arena, &detail);
    if (!job_place(job, run->plan, &run->record) || (what == DISPATCH_HOLD && !job->is_ordered)) {
        leave(run, 0);
    } else if (what == DISPATCH_HOLD) {
        park(run);
    } else if (what == DISPATCH_AGAIN) {
        send_again(run, detail);
    } else if (what == DISPATCH_GIVE_UP) {
        bury(run, detail);
    } else {
        ask(run);
    }
}

/* It may be claimed, when it is its turn. */
static void queue(struct dispatching *run)
{
    struct dispatch_worker *worker = run->worker;
    struct dispatch *dispatch = worker->dispatch;
    struct job *job = run->job;
    dispatch_lock(dispatch);
    run_leave(run);
    job_queue(job);
    dispatch_unlock(dispatch);
    run_release(run);
    dispatch_pump(worker);
    atomic_fetch_sub(&dispatch->at_work, 1);
}

static void on_read(struct dispatching *run)
{
    struct job *job = run->job;
    struct dispatch *dispatch = dispatch_of(run);
    const struct record *record = run->read.record;
    dispatch_lock(dispatch);
    dispatch->reads--;
    dispatch_unlock(dispatch);
    if (run->read.call.err.status != OK) {
        leave(run, again_ms(run, &run->read.call));
        return;
    }
    if (record == NULL || (record->status != RECORD_PENDING && record->status != RECORD_UNKNOWN)) {
        leave(run, 0);
        return;
    }
    int64_t early_ms = record_due_ms(record) - run->read.call.now_ms;
    run->plan = dispatch_plan_take(dispatch, record->kind);
    run->record = *record;
    if (run->plan == NULL || record_due_ms(record) == INT64_MAX) {
        leave(run, 0);
    } else if (early_ms > 0) {
        leave(run, early_ms);
    } else if (record->status == RECORD_UNKNOWN) {
        handle_unknown(run);
    } else if (!job_place(job, run->plan, record)) {
        leave(run, 0); /* its type is not configured: pending until there is a new plan */
    } else {
        queue(run);
    }
}

/* On a thread of the engine. */
static void on_query(struct engine_call *call)
{
    post(CONTAINER_OF(call, struct dispatching, read.call));
}

/* Read a record into run->read; then is called on the run's loop, in any case. */
static void read_record(
    struct dispatching *run, const struct op_id *id, void (*then)(struct dispatching *run))
{
    struct err err;
    run->read = (struct query){.kind = QUERY_OPERATION,
        .any_tenant = true,
        .kinds = STORE_KINDS_ASKED,
        .operation_id = *id,
        .call = {.arena = &run->arena, .done = on_query}};
    run->then = then;
    if (query_submit(door_engine(run->job->dispatch->door), &run->read, &err) != OK) {
        run->read.call.err = err;
        post(run);
    }
}

/* ---- claiming ------------------------------------------------------------------------------ */

static void call(struct dispatching *run);

/* Count and log it, in the same words as all doors. */
static void report(const struct dispatching *run, const struct engine_call *engine, unsigned status)
{
    struct dispatch *dispatch = run->job->dispatch;
    const struct record *record = &run->record;
    door_report(dispatch->door, run->worker->number,
        &(struct door_report){.call = engine,
            .tenant = record->key.tenant,
            .label = record->key.scope,
            .actor = actor,
            .request_id = slice_str(run->call.request_id),
            .status = status,
            .started_nanos = run->started_nanos,
            .logs = atomic_load(&dispatch->logs)});
}

/* On the thread that leads. */
static void on_one_done(struct engine_call *engine)
{
    post(CONTAINER_OF(engine, struct dispatching, claim.engine));
}

/* The engine did not take it; its err says why. */
static void on_one_refused(struct door_call *call)
{
    post(CONTAINER_OF(call, struct dispatching, claim));
}

/* Submit a request for the job's record at the end of the loop's turn; then is called on the run's
 * loop, in any case. */
static void submit_one(
    struct dispatching *run, const struct request *request, void (*then)(struct dispatching *run))
{
    run->claim = (struct door_call){
        .engine = {.request = *request, .arena = &run->arena, .done = on_one_done},
        .refused = on_one_refused};
    run->claim.engine.request.operation_id = run->job->operation_id;
    run->claim.engine.request.actor = actor;
    run->then = then;
    door_submit(dispatch_of(run)->door, run->worker->number, &run->claim);
    http_server_turn(dispatch_of(run)->server, run->worker->number);
}

/* Change the job's record without a claim; then is called on the run's loop, in any case. DJ6: it
 * names the version that it was decided on, or, a postponement, the fence. */
static void change(
    struct dispatching *run, const struct request *request, void (*then)(struct dispatching *run))
{
    ASSERT(request->version == run->record.version || request->kind == REQUEST_POSTPONE); /* DJ6 */
    move(run, JOB_SETTLING);
    submit_one(run, request, then);
}

/* The job had its turn, so all before it are over. If it is over too, the next one in its lane need
 * not ask. */
static void note_over(struct job *job, const struct record *record)
{
    if (job->has_lane && job->is_ordered && record_there(record) && lane_kind(record->kind) &&
        lane_turn(record) != LANE_BLOCKED) {
        dispatch_lock(job->dispatch);
        job->lane->over = job->operation_id;
        dispatch_unlock(job->dispatch);
    }
}

static void on_dropped(struct dispatching *run)
{
    const struct engine_call *cancel = &run->claim.engine;
    if (cancel->err.status == OK) {
        report(run, cancel, 0);
        note_over(run->job, &cancel->decision.next);
    }
    bool has_changed = cancel->err.status == OK && cancel->decision.kind != DECISION_DONE;
    leave(run, has_changed ? 1 : again_ms(run, cancel)); /* changed: read it, and decide anew */
}

/* A newer version of its source was sealed while it waited: it must not be called. After a crash
 * before this is durable, it is claimed and found stale again. */
static void drop_stale(struct dispatching *run)
{
    run->record = run->claim.engine.decision.next;
    struct request request = {.kind = REQUEST_CANCEL,
        .version = run->record.version, /* X6: somebody may have had it delivered again */
        .reason = SLICE_LIT("stale: a newer version was sealed while it waited")};
    change(run, &request, on_dropped);
}

static void on_claimed(struct dispatching *run)
{
    struct job *job = run->job;
    struct dispatch *dispatch = job->dispatch;
    const struct engine_call *claim = &run->claim.engine;
    if (claim->err.status != OK) {
        leave(run, again_ms(run, claim));
        return;
    }
    if (claim->decision.kind == DECISION_STALE_VERSION) {
        drop_stale(run);
        return;
    }
    if (claim->decision.kind != DECISION_CLAIMED) {
        int64_t early_ms = claim->decision.kind == DECISION_NOT_DUE
                               ? claim->decision.next.due_ms - claim->now_ms
                               : 0;
        leave(run, early_ms); /* a different process was faster, or it was cancelled */
        return;
    }
    run->record = claim->decision.next;
    run->grant = door_grant_of(claim);
    run->call.now_ms = claim->now_ms;
    run->call.due_ms = job->due_ms;
    run->call.body = run->has_plain ? run->call.body : claim->first_body;
    run->plan = dispatch_plan_take(dispatch, run->record.kind);
    ASSERT(run->record.holder == engine_incarnation(door_engine(dispatch->door))); /* DJ3 */
    dispatch_lock(dispatch);
    if (job->due_ms > 0) {
        run->delay_ms = claim->now_ms > job->due_ms ? claim->now_ms - job->due_ms : 0;
        gauge_begun(job->gauge, run->delay_ms);
    }
    job_move(job, JOB_CALLING);
    dispatch_unlock(dispatch);
    call(run);
}

/* The longest a call to the target may take. */
static int64_t lease_ms(struct dispatch *dispatch, const struct job *job)
{
    dispatch_lock(dispatch);
    int64_t total_ms = job->gauge->total_ms;
    dispatch_unlock(dispatch);
    int64_t ms = total_ms + LEASE_SPARE_MS;
    return ms < LIMIT_LEASE_MS_MAX ? ms : LIMIT_LEASE_MS_MAX;
}

static struct request claim_of(const struct dispatching *run)
{
    struct dispatch *dispatch = run->job->dispatch;
    return (struct request){.kind = REQUEST_CLAIM,
        .policy = {.lease_ms = lease_ms(dispatch, run->job),
            /* After a crash an unknown record is found again too: its kind says what to do. */
            .on_unknown = ON_UNKNOWN_RECONCILE},
        .holder = engine_incarnation(door_engine(dispatch->door))};
}

static void claim(struct dispatching *run)
{
    struct request request = claim_of(run);
    submit_one(run, &request, on_claimed);
}

/* ---- claimed in the commit that enqueues it ------------------------------------------------ */

/* Nothing was enqueued that this job could call. It is in no table: DJ2. */
static void give_back(struct dispatching *run)
{
    struct job *job = run->job;
    struct dispatch_worker *worker = run->worker;
    struct dispatch *dispatch = worker->dispatch;
    dispatch_lock(dispatch);
    rate_return(&job->tenant->rate);
    run_leave(run); /* DJ4: with its place and its ticket of the breaker */
    job_drop(job);
    dispatch_unlock(dispatch);
    run_release(run);
    dispatch_pump(worker);
    atomic_fetch_sub(&dispatch->at_work, 1);
}

/*
 * The group is decided, durably. A crash before this is durable: nothing happened. After it, until
 * the call is settled: as after any claim, the record is unknown at the next start, and its kind
 * says what to do. Without this commit for both, the record would be pending for the time of one
 * commit, and a crash in just that time would leave it so. It is the same window between claim and
 * call, which begins earlier in the life of the record.
 */
static void on_claimed_with(struct dispatching *run)
{
    static const struct op_id none = {{0}};
    struct job *job = run->job;
    const struct engine_call *claim = &run->claim.engine;
    const struct op_id *id = &claim->request.operation_id;
    bool is_made = !op_id_equal(id, &none);
    dispatch_lock(job->dispatch);
    struct job *other = is_made ? job_find(job->dispatch, id) : NULL;
    if (other != NULL) { /* its lease is over already, or it was enqueued again */
        other->is_due_again = other->state != JOB_QUEUED && other->state != JOB_FOUND;
    } else if (is_made) {
        job->operation_id = *id;
        job_enter(job);
    }
    dispatch_unlock(job->dispatch);
    if (!is_made || other != NULL) {
        give_back(run);
    } else if (claim->err.status == OK && claim->decision.kind == DECISION_NOTHING) {
        dispatch_lock(job->dispatch);
        rate_return(&job->tenant->rate);
        dispatch_unlock(job->dispatch);
        leave(run, 1); /* it is pending: read it, and let it wait for its turn */
    } else {
        job->due_ms = claim->now_ms; /* since the same commit: it did not wait */
        on_claimed(run);
    }
}

struct engine_call *run_claim_with(struct dispatching *run)
{
    run->claim = (struct door_call){.engine = {.request = claim_of(run),
                                        .arena = &run->arena,
                                        .done = on_one_done,
                                        .claims_previous = true}};
    run->claim.engine.request.actor = actor;
    run->then = on_claimed_with;
    return &run->claim.engine;
}

void dispatch_claim_refused(struct engine_call *claim, const struct err *err)
{
    claim->err = *err;
    on_one_done(claim);
}

/* ---- in order ------------------------------------------------------------------------------ */

/* The record before it has not ended. If that is a job of ours, it may come after this one in the
 * lane: let it pass. Otherwise the whole lane waits. */
static void wait_in_order(struct dispatching *run)
{
    struct job *job = run->job;
    dispatch_lock(job->dispatch);
    rate_return(&job->tenant->rate);
    if (job_find(job->dispatch, &job->after) != NULL) {
        job_leave_lane(job);
    }
    dispatch_unlock(job->dispatch);
    leave(run, ORDER_MS);
}

static void claim_in_order(struct dispatching *run);

static void on_before(struct dispatching *run)
{
    struct job *job = run->job;
    struct dispatch *dispatch = job->dispatch;
    const struct record *before = run->read.record;
    if (run->read.call.err.status != OK || run->plan == NULL) {
        leave(run, run->plan == NULL ? 0 : again_ms(run, &run->read.call));
        return;
    }
    switch (lane_turn(before)) {
    case LANE_BLOCKED: wait_in_order(run); return;
    case LANE_ASK_BEFORE:
        if (lane_after(before, &job->after)) {
            claim_in_order(run);
            return;
        }
        break;
    case LANE_PASSED: break;
    }
    job->has_after = false; /* it stays so: only a person can have it attempted again */
    dispatch_plan_drop(dispatch, run->plan);
    run->plan = NULL;
    claim(run);
}

/* Claim it after the record before it in its lane, if that is over. */
static void claim_in_order(struct dispatching *run)
{
    struct job *job = run->job;
    struct dispatch *dispatch = job->dispatch;
    if (run->plan == NULL) {
        run->plan = dispatch_plan_take(dispatch, job->gauge->kind->kind);
    }
    read_record(run, &job->after, on_before);
}

void run_begin(struct dispatching *run)
{
    const struct job *job = run->job;
    if (job->state == JOB_READING) {
        read_record(run, &job->operation_id, on_read);
    } else if (job->has_after) {
        claim_in_order(run);
    } else {
        claim(run);
    }
}

void run_hand(struct dispatching *run)
{
    run->then = run_begin;
    post(run);
}

/* ---- unknown records ----------------------------------------------------------------------- */

static void on_parked(struct dispatching *run)
{
    if (run->claim.engine.err.status == OK) {
        report(run, &run->claim.engine, 0);
    }
    leave(run, again_ms(run, &run->claim.engine));
}

/* Only a person can have it attempted again, so the records after it in its order continue. This
 * depends on the time and on this process's configuration, so it is recorded before they continue;
 * a process that decided otherwise then finds a different version (N9). */
static void park(struct dispatching *run)
{
    struct request request = {.kind = REQUEST_POSTPONE, /* Q3: without a due */
        .fence = run->record.fence,
        .reason = SLICE_LIT("unknown; those after it in its order go on without it")};
    change(run, &request, on_parked);
}

static void on_again(struct dispatching *run)
{
    const struct engine_call *resolve = &run->claim.engine;
    bool is_well = resolve->err.status == OK && resolve->decision.kind == DECISION_RESOLVED &&
                   resolve->decision.next.status == RECORD_PENDING;
    if (resolve->err.status == OK) {
        report(run, resolve, 0);
    }
    int64_t wait_ms = is_well ? resolve->decision.next.due_ms - resolve->now_ms : 0;
    leave(run, is_well ? (wait_ms < 1 ? 1 : wait_ms) : again_ms(run, resolve));
}

/* S1: it is not known whether the attempt took effect, but the provider recognises a repetition.
 * The record is pending again, and the next claim is a new attempt under a new fence. */
static void send_again(struct dispatching *run, struct slice detail)
{
    struct request request = {.kind = REQUEST_RESOLVE,
        .status = RECORD_PENDING,
        .fence = run->record.fence,     /* N6 */
        .version = run->record.version, /* N9: nobody has parked it since */
        .reason = SLICE_LIT("unknown; sent again with the same idempotency key"),
        .detail = detail};
    change(run, &request, on_again);
}

static void on_buried(struct dispatching *run)
{
    const struct engine_call *give_up = &run->claim.engine;
    if (give_up->err.status == OK) {
        report(run, give_up, 0);
        note_over(run->job, &give_up->decision.next);
    }
    leave(run, again_ms(run, give_up));
}

/* As send_again, but no attempt is left: a dead letter, which a person may have sent again. */
static void bury(struct dispatching *run, struct slice detail)
{
    struct request request = {.kind = REQUEST_GIVE_UP,
        .fence = run->record.fence, /* H2 */
        .version = run->record.version,
        .policy = {.attempts_max = run->record.attempt}, /* T4 */
        .reason = SLICE_LIT("unknown, and no attempt is left"),
        .detail = detail};
    change(run, &request, on_buried);
}

/* Take a place of its target, if a call may begin now. *ret_wait_ms: as gauge_admits. */
static bool take_place(struct dispatching *run, int64_t *ret_wait_ms)
{
    struct dispatch *dispatch = dispatch_of(run);
    const struct job *job = run->job;
    int64_t now_ms = now_of(run);
    bool is_question = run->call.asks;
    *ret_wait_ms = 0;
    dispatch_lock(dispatch);
    run->has_place = !(is_question && dispatch->questions >= QUESTIONS_MAX) &&
                     gauge_admits(job->gauge, now_ms, ret_wait_ms) &&
                     rate_take(&job->tenant->rate, job->gauge->rate, now_ms, ret_wait_ms);
    if (run->has_place) {
        run->ticket = gauge_enter(job->gauge, now_ms);
        run->is_question = is_question;
        dispatch->questions += is_question ? 1 : 0;
    }
    dispatch_unlock(dispatch);
    return run->has_place;
}

/* How long the lost attempt has been quiet (outcall/quiet.h), by the read of its record. */
static int64_t quiet_ms_of(struct dispatching *run)
{
    struct dispatch *dispatch = dispatch_of(run);
    const struct engine_call *read = &run->read.call;
    int64_t awake_ms = read->boot_ms - clock_asleep_ms(&dispatch->clock);
    dispatch_lock(dispatch);
    quiet_note(&dispatch->watch, read->now_ms, awake_ms);
    int64_t quiet_ms = quiet_for_ms(&dispatch->watch, run->record.updated_ms, read->now_ms);
    dispatch_unlock(dispatch);
    return quiet_ms;
}

static void ask(struct dispatching *run)
{
    int64_t wait_ms = 0;
    run->call.asks = true;
    if (!take_place(run, &wait_ms)) {
        leave(run, wait_ms > AGAIN_MS ? wait_ms : AGAIN_MS);
        return;
    }
    run->call.now_ms = run->read.call.now_ms;
    run->call.quiet_ms = quiet_ms_of(run);
    run->call.body = run->read.request_body;
    move(run, JOB_CALLING);
    call(run);
}

/* ---- calling ------------------------------------------------------------------------------- */

static void settle(struct dispatching *run);

static enum gauge_end end_of(const struct outcall *out)
{
    bool is_well = out->point == OUTCALL_ANSWERED && out->status < 500;
    return is_well ? GAUGE_WELL : GAUGE_FAILED;
}

/* By target, and by what it is for. */
static void count_call(const struct dispatching *run, enum outcall_verdict verdict, int64_t call_ms)
{
    metrics_call(door_metrics(dispatch_of(run)->door), run->worker->number,
        &(struct metrics_call){.tenant = run->record.key.tenant,
            .scope = run->record.key.scope,
            .verdict = (unsigned)verdict,
            .delay_ms = run->delay_ms,
            .call_ms = call_ms});
}

static void on_called(struct outcall *out)
{
    struct dispatching *run = out->context;
    struct dispatch_gauge *gauge = run->job->gauge;
    int64_t call_ms = (int64_t)((clock_nanos() - run->called_nanos) / 1000000);
    dispatch_lock(dispatch_of(run));
    gauge_judged(gauge, run->call.asks, out->verdict);
    if (!run->call.asks) {
        gauge_ended(gauge, call_ms);
    }
    leave_gauge(run, end_of(out));
    dispatch_unlock(dispatch_of(run));
    if (!run->call.asks) {
        count_call(run, out->verdict, call_ms);
    }
    run->call.out = out;
    settle(run);
}

/* Decrypt the kept body. A body that was never sealed is used as it is. */
static enum status open_body(struct dispatching *run, struct err *err)
{
    struct dispatch *dispatch = run->job->dispatch;
    const struct record_key *key = &run->record.key;
    struct slice sealed = run->call.body;
    struct buf plain;
    if (run->has_plain || sealed.len == 0) {
        return OK;
    }
    run->call.body = SLICE_EMPTY;
    if (dispatch->vault == NULL) {
        return err_set(err, E_INVALID, "there is no key for the bodies that were kept");
    }
    buf_init(&plain, &run->mem, sealed.len + 1);
    struct vault_name name = {.tenant = key->tenant,
        .key_hash = slice_of((const char *)key->hash.bytes, sizeof key->hash.bytes),
        .kind = (unsigned)run->record.kind};
    enum status status = vault_open(dispatch->vault, &name, sealed, &plain, err);
    run->call.body = status == OK ? buf_view(&plain) : SLICE_EMPTY;
    return status;
}

static enum status compose(struct dispatching *run, struct err *err)
{
    struct dispatch_call *call = &run->call;
    call->target = run->plan == NULL ? NULL : run->plan->kind->target(run->plan, &run->record);
    if (call->target == NULL) {
        return err_set(err, E_UNAVAILABLE, "its type is not configured any more");
    }
    if (atomic_load(&run->job->dispatch->is_cut)) {
        return err_set(err, E_UNAVAILABLE, "the server ends");
    }
    enum status status = uuid_new_name(call->request_id, err);
    status = status == OK ? rand_names(&call->random, sizeof call->random, err) : status;
    status = status == OK ? open_body(run, err) : status;
    return status == OK ? run->plan->kind->compose(call, err) : status;
}

/* Last before the call. A question has no grant, and asking late does no harm. */
static enum status check_lease(const struct dispatching *run, struct err *err)
{
    const struct dispatch *dispatch = run->job->dispatch;
    bool covers = run->call.asks || door_grant_covers(dispatch->door, &run->grant, clock_boot_ms(),
                                        run->call.target->timeouts.total_ms);
    return covers ? OK : err_set(err, E_UNAVAILABLE, "the server stood still; nothing was sent");
}

static struct upstream_timeouts timeouts_of(const struct dispatching *run)
{
    struct upstream_timeouts timeouts = run->call.target->timeouts;
    if (!run->call.asks) { /* S12: from then on other processes may consider this one gone */
        timeouts.send_until_boot_ms = run->grant.boot_ms + LIMIT_HOLDER_GONE_MS;
    }
    return timeouts;
}

/* The sender's result, as an outcall would have it. */
static void on_sent(struct dispatching *run)
{
    const struct dispatch_sending *sending = &run->sending;
    run->out = (struct outcall){.state = OUTCALL_OVER,
        .point = sending->point,
        .verdict = sending->verdict,
        .status = sending->status,
        .effect_id = slice_str(sending->ref),
        .context = run};
    memcpy(run->out.reason, sending->reason, sizeof run->out.reason);
    on_called(&run->out);
}

/* On the sender's thread. */
static void on_sending_done(struct dispatch_sending *sending)
{
    post(CONTAINER_OF(sending, struct dispatching, sending));
}

static void begin_sending(struct dispatching *run)
{
    const struct dispatch_target *target = run->call.target;
    run->then = on_sent;
    run->sending = (struct dispatch_sending){.id = run->call.id,
        .lane = run->call.lane,
        .type = run->call.type,
        .payload = run->call.payload,
        .timeout_ms = target->timeouts.total_ms,
        .send_until_boot_ms =
            run_sends_until_ms(&run->grant, target->timeouts.total_ms, run->call.send_until_ms),
        .done = on_sending_done};
    target->sender->send(target->sender, &run->sending);
}

static void begin(struct dispatching *run)
{
    struct dispatch *dispatch = run->job->dispatch;
    const struct dispatch_target *target = run->call.target;
    unsigned loop = run->worker->number;
    run->called_nanos = clock_nanos();
    if (target->sender != NULL) {
        begin_sending(run);
        return;
    }
    run->out = (struct outcall){.upstream = upstreams_on(dispatch->upstreams, target->one, loop),
        .loop = loop,
        .head = run->call.head,
        .body = run->call.payload,
        .method = run->call.method,
        .timeouts = timeouts_of(run),
        .rules = run->call.rules,
        .keeps = run->call.keeps,
        .request_id = slice_str(run->call.request_id),
        .has_no_effect = run->call.asks,
        .done = on_called,
        .context = run};
    outcall_init(&run->out, &(struct outcall_capture){.mem = dispatch->mem,
                                .spool_dir = dispatch->spool_dir,
                                .memory_bytes = ANSWER_MEMORY_BYTES,
                                .bytes_max = target->answer_bytes_max > 0 ? target->answer_bytes_max
                                                                          : ANSWER_BYTES_USUAL,
                                .budget = &dispatch->spooled});
    outcall_start(&run->out);
}

/* Set what the kind may know about the call. */
static void introduce(struct dispatching *run)
{
    run->call.dispatch = dispatch_of(run);
    run->call.loop = run->worker->number;
    run->call.plan = run->plan;
    run->call.record = &run->record;
    run->call.arena = &run->arena;
    run->call.mem = &run->mem;
}

static void call(struct dispatching *run)
{
    introduce(run);
    if (compose(run, &run->call.fault) != OK || check_lease(run, &run->call.fault) != OK) {
        dispatch_lock(dispatch_of(run));
        leave_gauge(run, GAUGE_NOTHING);
        dispatch_unlock(dispatch_of(run));
        settle(run);
        return;
    }
    begin(run);
}

/* ---- settling ------------------------------------------------------------------------------ */

struct engine_call *dispatch_settle_new(struct dispatch_call *call)
{
    struct engine_call *made = arena_zalloc(call->arena, sizeof *made);
    if (made == NULL || call->call_count == LIMIT_DISPATCH_GROUP_MAX) {
        return NULL;
    }
    made->arena = call->arena;
    made->request.actor = actor;
    made->needs_previous = call->call_count > 0;
    if (call->call_count == 0) {
        made->request.operation_id = call->record->operation_id;
        made->request.fence = call->record->fence;
        made->request.trace = builder_trace_again(
            call->record->trace, slice_str(call->request_id), SLICE_EMPTY, call->arena);
    }
    call->calls[call->call_count++] = made;
    return made;
}

/* Nothing was sent, through no fault of the record: make it ready to be claimed again. */
static enum status settle_unsent(struct dispatching *run)
{
    struct dispatch_call *call = &run->call;
    struct engine_call *made = dispatch_settle_new(call);
    if (made == NULL) {
        return E_NOMEM;
    }
    made->request.kind = call->asks ? REQUEST_POSTPONE : REQUEST_RETRY;
    made->request.delay_ms = AGAIN_MS;
    made->request.reason =
        slice_of(call->fault.text, strnlen(call->fault.text, LIMIT_REASON_BYTES_MAX));
    return OK;
}

static bool is_refused(const struct dispatch_call *call)
{
    bool is_refused = false;
    for (size_t i = 0; i < call->call_count; i++) {
        is_refused = is_refused || call->calls[i]->refused;
    }
    return is_refused;
}

static void submit_again(struct dispatching *run);

/* When to act on the record next; 0: never, or its due is found by itself. */
static int64_t next_ms(const struct dispatching *run)
{
    const struct engine_call *first = run->call.calls[0];
    const struct record *record = &first->decision.next;
    bool goes_on = record->status == RECORD_PENDING || record->status == RECORD_UNKNOWN;
    int64_t due_ms = goes_on ? record_due_ms(record) : INT64_MAX;
    if (due_ms == INT64_MAX) {
        return 0;
    }
    return due_ms > first->now_ms ? due_ms - first->now_ms : 1;
}

static void on_settled(struct dispatching *run)
{
    struct dispatch_call *call = &run->call;
    const struct engine_call *first = call->calls[0];
    if (first->err.status != OK) {
        submit_again(run);
        return;
    }
    for (size_t i = 0; i < call->call_count; i++) {
        report(run, call->calls[i], i == 0 && call->out != NULL ? call->out->status : 0);
    }
    note_over(run->job, &first->decision.next);
    if (run->plan != NULL && run->plan->kind->settled != NULL) {
        run->plan->kind->settled(call);
    }
    if (run->granted.done != NULL) {
        run->granted.done(run->granted.context, call);
    }
    leave(run, next_ms(run));
}

/* On the thread that leads, for each call of the group. */
static void on_settle_done(struct engine_call *engine)
{
    struct dispatching *run = engine->context;
    if (atomic_fetch_sub(&run->unsettled, 1) == 1) {
        post(run);
    }
}

static void on_settle_refused(struct door_group *group, const struct err *err)
{
    struct dispatching *run = CONTAINER_OF(group, struct dispatching, group);
    run->call.calls[0]->err = *err;
    post(run);
}

static void submit(struct dispatching *run)
{
    struct dispatch_call *call = &run->call;
    run->then = on_settled;
    run->settles++;
    atomic_store(&run->unsettled, (unsigned)call->call_count);
    for (size_t i = 0; i < call->call_count; i++) {
        struct engine_call *at = call->calls[i];
        at->done = on_settle_done;
        at->context = run;
        at->err = (struct err){.status = OK};
        at->refused = false;
    }
    run->group = (struct door_group){
        .calls = call->calls, .count = call->call_count, .refused = on_settle_refused};
    door_submit_group(dispatch_of(run)->door, run->worker->number, &run->group);
    http_server_turn(dispatch_of(run)->server, run->worker->number);
}

/* Its next attempt would be planned after its deadline, as if a person had planned it. */
static bool is_past_deadline(const struct dispatching *run)
{
    const struct dispatch_call *call = &run->call;
    int64_t end_ms = run->record.created_ms + call->deadline_ms;
    int64_t next_ms = run->grant.now_ms + clock_boot_ms() - run->grant.boot_ms + AGAIN_MS;
    bool is_planned = !call->asks && call->due_ms > 0 && call->due_ms <= end_ms;
    return call->deadline_ms > 0 && is_planned && next_ms > end_ms;
}

static void compose_settling(struct dispatching *run)
{
    struct dispatch_call *call = &run->call;
    struct err err;
    call->call_count = 0;
    bool is_unsent =
        call->out == NULL && (call->fault.status == E_UNAVAILABLE || call->fault.status == E_NOMEM);
    bool is_ours = is_unsent && !is_past_deadline(run);
    enum status status =
        run->plan == NULL || is_ours ? settle_unsent(run) : run->plan->kind->settle(call, &err);
    if (status != OK || call->call_count == 0) {
        call->call_count = 0;
    }
}

/* It becomes unknown when its lease ends: the result we had is lost, so unknown is true. */
static void give_up(struct dispatching *run)
{
    struct log_field fields[] = {LOG_TEXT("tenant", run->record.key.tenant),
        LOG_TEXT("scope", run->record.key.scope), LOG_TEXT("idempotency_key", run->record.key.key),
        LOG_TEXT("message",
            slice_str(run->call.call_count > 0 ? run->call.calls[0]->err.text : "out of memory"))};
    log_event(door_log(run->job->dispatch->door), LOG_ERROR, "not_settled", fields, COUNT(fields));
    run->call.call_count = 0;
    if (run->granted.done != NULL) {
        run->granted.done(run->granted.context, &run->call);
    }
    leave(run, 0);
}

static void compose_and_submit(struct dispatching *run)
{
    compose_settling(run);
    if (run->call.call_count == 0) {
        submit_again(run);
    } else {
        submit(run);
    }
}

static void on_other(struct dispatching *run)
{
    run->call.call_count = 0;
    run->call.other = run->read.record;
    if (run->read.call.err.status == OK) {
        compose_and_submit(run);
    } else {
        submit_again(run);
    }
}

/* Compose the calls and submit them, after a read of the second record if there is one. */
static void read_and_submit(struct dispatching *run)
{
    struct dispatch_call *call = &run->call;
    struct op_id id;
    bool has_other = run->plan != NULL && run->plan->kind->other != NULL && !call->is_alone &&
                     run->plan->kind->other(call, &id);
    if (!has_other) {
        compose_and_submit(run);
        return;
    }
    read_record(run, &id, on_other);
}

static void on_pause_over(struct net_deadline *deadline, uint64_t now_ms)
{
    struct dispatching *run = CONTAINER_OF(deadline, struct dispatching, pause);
    (void)now_ms;
    if (run->call.call_count > 0) {
        submit(run);
    } else {
        read_and_submit(run);
    }
}

/* The engine did not take the call. A store that is away comes back; until then the answer is kept.
 * If the group was refused, the record is settled without the calls that depend on it. */
static void submit_again(struct dispatching *run)
{
    struct dispatch *dispatch = run->job->dispatch;
    struct dispatch_call *call = &run->call;
    enum status status = call->call_count > 0 ? call->calls[0]->err.status : E_NOMEM;
    bool ends = atomic_load(&dispatch->is_cut);
    if (is_refused(call) && !call->is_alone) {
        bool is_raced = call->other != NULL && !call->calls[0]->refused;
        if (is_raced && run->races++ < RACES_MAX) {
            read_and_submit(run); /* the second record has changed: decide again */
            return;
        }
        call->is_alone = true;
        compose_settling(run);
        if (call->call_count > 0) {
            submit(run);
            return;
        }
    }
    run->settles += call->call_count == 0; /* it did not get as far as the engine */
    bool is_starved = call->call_count == 0 && run->read.call.err.status == OK;
    bool is_over = engine_failure(door_engine(dispatch->door), NULL);
    if (is_over || status == E_INVALID || (is_starved && run->settles >= STARVED_MAX) ||
        (ends && run->settles >= SETTLES_MAX_CUT)) {
        give_up(run);
        return;
    }
    struct net_loop *loop = worker_loop(run->worker);
    run->pause.due = on_pause_over;
    net_loop_deadline(loop, &run->pause, net_loop_now(loop) + AGAIN_MS);
}

static void settle(struct dispatching *run)
{
    move(run, JOB_SETTLING);
    read_and_submit(run);
}

/* ---- records that are already granted ------------------------------------------------------ */

void run_granted(struct dispatching *run)
{
    int64_t wait_ms = 0;
    run->grant = run->granted.grant;
    run->call.now_ms = run->grant.now_ms;
    run->plan = dispatch_plan_take(dispatch_of(run), run->record.kind);
    if (run->plan != NULL && job_find_target(run->job, run->plan, &run->record) &&
        take_place(run, &wait_ms)) {
        call(run);
        return;
    }
    /* It holds a running lease, so it does not wait for a turn. */
    introduce(run);
    (void)err_set(&run->call.fault, E_LIMIT, "the target is busy or its breaker is open");
    settle(run);
}
