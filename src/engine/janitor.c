#include "engine/janitor.h"

#include "base/check.h"
#include "base/limits.h"

enum {
    JANITOR_ARENA_BYTES_MAX = 64 << 10, /* one record at its limits */
    INTAKE_ROWS = 64,                   /* taken in one turn */
    INTAKE_BYTES_MAX = 256 << 20,       /* that many envelopes at their size limit, and more */
    COUNTS_SHARED_MS = 1000,            /* each is a round trip */
    BACKLOG_SHARED_MS = 2000,           /* each reads up to 1500 records */
    BEAT_AWAY_MS = 500,                 /* how soon the return of the store is noticed */
};

static bool settle_leases(void *context, const struct store_due *dues, size_t count);

enum status janitor_init(struct janitor *janitor, struct cycle *cycle,
    const struct store_identity *identity, const struct engine_options *options, struct err *err)
{
    janitor->cycle = cycle;
    janitor->identity = identity;
    janitor->checkpoint_every_ms = options->checkpoint_every_ms;
    janitor->checkpoint_seq = cycle->chain.seq;
    janitor->beaten_ms = INT64_MIN / 2; /* never yet */
    for (size_t i = 0; i < JANITOR_CALLS; i++) {
        arena_init(&janitor->arenas[i], cycle->mem, JANITOR_ARENA_BYTES_MAX);
    }
    int failed = pthread_mutex_init(&janitor->lock, NULL);
    if (failed != 0) {
        return err_errno(err, E_UNAVAILABLE, failed, "cannot make a lock");
    }
    janitor->leases = (struct due_subscription){
        .filter = {.kinds = STORE_KINDS_ALL, .reasons = STORE_DUE(RECORD_DUE_LEASE_OVER)},
        .found = settle_leases,
        .context = janitor};
    janitor_on_due(janitor, &janitor->leases);
    return OK;
}

void janitor_release(struct janitor *janitor)
{
    if (janitor->cycle == NULL) {
        return; /* it was never initialised */
    }
    for (size_t i = 0; i < JANITOR_CALLS; i++) {
        arena_release(&janitor->arenas[i]);
    }
    (void)pthread_mutex_destroy(&janitor->lock);
}

/* Returns only failures that stop the engine; without space or memory the duty is retried later. */
static enum status fatal_only(enum status status, struct err *err)
{
    if (status == E_UNKNOWN || status == E_CORRUPT) {
        return status;
    }
    err_clear(err);
    return OK;
}

/* Dues ------------------------------------------------------------------------------------- */

void janitor_on_due(struct janitor *janitor, struct due_subscription *subscription)
{
    ASSERT(subscription->filter.kinds != 0);
    ASSERT(subscription->found != NULL);
    subscription->given = (struct store_due_cursor){0};
    (void)pthread_mutex_lock(&janitor->lock);
    subscription->next = janitor->subscriptions;
    janitor->subscriptions = subscription;
    (void)pthread_mutex_unlock(&janitor->lock);
}

void janitor_off_due(struct janitor *janitor, struct due_subscription *subscription)
{
    (void)pthread_mutex_lock(&janitor->lock);
    struct due_subscription **at = &janitor->subscriptions;
    while (*at != NULL && *at != subscription) {
        at = &(*at)->next;
    }
    ASSERT(*at == subscription);
    *at = subscription->next;
    (void)pthread_mutex_unlock(&janitor->lock);
}

/* Runs after a flush. A failure is ignored: the engine has stopped, or the lease is found again. */
static void lease_done(struct engine_call *call)
{
    struct janitor *janitor = call->context;
    size_t before = atomic_fetch_sub_explicit(&janitor->in_flight, 1, memory_order_release);
    ASSERT(before > 0 && before <= JANITOR_CALLS);
}

/* Makes one of the janitor's own calls about a due record. */
static struct engine_call *own_call(
    struct janitor *janitor, size_t number, enum request_kind kind, const struct store_due *due)
{
    ASSERT(number < JANITOR_CALLS);
    arena_clear(&janitor->arenas[number]);
    janitor->calls[number] = (struct engine_call){
        .request = {.kind = kind, .operation_id = due->operation_id},
        .arena = &janitor->arenas[number],
        .context = janitor,
        .done = lease_done,
    };
    if (kind == REQUEST_HOLDER_GONE) {
        janitor->calls[number].request.holder = janitor->incarnation;
        janitor->calls[number].request.fence = due->fence;
    }
    return &janitor->calls[number];
}

/* Adds own calls to the batch being collected. False: not all of them fitted. */
static bool add_calls(
    struct janitor *janitor, enum request_kind kind, const struct store_due *dues, size_t count)
{
    struct janitor_turn *turn = janitor->turn;
    ASSERT(turn != NULL);
    if (atomic_load_explicit(&janitor->in_flight, memory_order_acquire) > 0) {
        return false; /* the last round is still being flushed */
    }
    size_t room = LIMIT_BATCH_REQUESTS_MAX - turn->count;
    size_t taken = count < room ? count : room;
    ASSERT(taken <= JANITOR_CALLS);
    atomic_store_explicit(&janitor->in_flight, taken, memory_order_relaxed);
    for (size_t i = 0; i < taken; i++) {
        turn->calls[turn->count++] = own_call(janitor, i, kind, &dues[i]);
    }
    return taken == count;
}

/* The engine's own subscription. */
static bool settle_leases(void *context, const struct store_due *dues, size_t count)
{
    return add_calls(context, REQUEST_LEASE_OVER, dues, count);
}

/* Gives one subscriber some of its due records. *ret_more: the page was full and was taken. */
static enum status report_some(
    struct janitor *janitor, struct due_subscription *subscription, bool *ret_more, struct err *err)
{
    struct store *store = janitor->cycle->store;
    struct store_due dues[JANITOR_CALLS];
    struct store_due_cursor given = subscription->given;
    struct store_due_filter filter = subscription->filter;
    size_t count = 0;
    filter.cursor = subscription->is_once ? &given : NULL;
    enum status status = store->ops->due(store, &filter, dues, JANITOR_CALLS, &count, err);
    ASSERT(count <= JANITOR_CALLS);
    *ret_more = false;
    if (status == OK && (count == 0 || subscription->found(subscription->context, dues, count))) {
        subscription->given = given;
        *ret_more = subscription->is_once && count == JANITOR_CALLS;
    }
    return status;
}

/* Gives all due records, up to a bound: a backlog of a hundred thousand takes seconds, and no turn
 * delays the batch for long. */
static enum status report_dues(
    struct janitor *janitor, struct due_subscription *subscription, struct err *err)
{
    enum status status = OK;
    bool has_more = true;
    for (unsigned i = 0; status == OK && has_more && i < JANITOR_PAGES; i++) {
        status = report_some(janitor, subscription, &has_more, err);
    }
    return status;
}

static enum status act_on_dues(struct janitor *janitor, struct err *err)
{
    enum status status = OK;
    (void)pthread_mutex_lock(&janitor->lock);
    for (struct due_subscription *one = janitor->subscriptions; one != NULL && status == OK;
         one = one->next) {
        status = report_dues(janitor, one, err);
    }
    (void)pthread_mutex_unlock(&janitor->lock);
    return fatal_only(status, err);
}

/* The intake ------------------------------------------------------------------------------- */

void janitor_on_intake(struct janitor *janitor, struct engine_intake *intake)
{
    (void)pthread_mutex_lock(&janitor->lock);
    janitor->intake = intake;
    (void)pthread_mutex_unlock(&janitor->lock);
}

static enum status report_intake(
    struct janitor *janitor, struct engine_intake *intake, struct err *err)
{
    struct store *store = janitor->cycle->store;
    struct store_intake_row rows[INTAKE_ROWS];
    size_t count = 0;
    struct arena arena;
    enum status status = intake->is_registered ? OK
                                               : store->ops->intake->types(
                                                     store, intake->types, intake->type_count, err);
    intake->is_registered = status == OK;
    if (status != OK || !intake->is_ready(intake->context)) {
        return status;
    }
    do { /* a backlog does not wait for the next turn */
        arena_init(&arena, janitor->cycle->mem, INTAKE_BYTES_MAX);
        status = store->ops->intake->take(
            store, intake->types, intake->type_count, &arena, rows, INTAKE_ROWS, &count, err);
        ASSERT(count <= INTAKE_ROWS);
        if (status == OK && count > 0) {
            intake->found(intake->context, rows, count);
        }
        arena_release(&arena);
    } while (status == OK && count == INTAKE_ROWS && intake->is_ready(intake->context));
    return status;
}

static enum status check_intake(struct janitor *janitor, struct err *err)
{
    enum status status = OK;
    if (janitor->cycle->store->ops->intake == NULL || janitor->cycle->away.status != OK) {
        return OK;
    }
    (void)pthread_mutex_lock(&janitor->lock);
    if (janitor->intake != NULL) {
        status = report_intake(janitor, janitor->intake, err);
    }
    (void)pthread_mutex_unlock(&janitor->lock);
    return fatal_only(status, err);
}

/* Incarnations ----------------------------------------------------------------------------- */

static const struct store_due_filter held = {.kinds = STORE_KINDS_ALL, .held = true};

/* Makes some grants of earlier incarnations unknown. *ret_left is false if none were left, or it
 * failed. */
static enum status settle_held(struct janitor *janitor, bool *ret_left, struct err *err)
{
    struct store *store = janitor->cycle->store;
    struct store_due dues[JANITOR_CALLS];
    struct engine_call *calls[JANITOR_CALLS];
    size_t count = 0;
    *ret_left = false;
    enum status status = store->ops->due(store, &held, dues, JANITOR_CALLS, &count, err);
    if (status != OK || count == 0) {
        return status;
    }
    ASSERT(count <= JANITOR_CALLS);
    for (size_t i = 0; i < count; i++) {
        calls[i] = own_call(janitor, i, REQUEST_HOLDER_GONE, &dues[i]);
    }
    status = cycle_run(janitor->cycle, calls, count, err);
    if (status == OK && store->ops->flush(store, err) != OK) {
        return E_UNKNOWN; /* P11 */
    }
    *ret_left = status == OK;
    for (size_t i = 0; i < count && status == OK; i++) {
        *ret_left =
            *ret_left && calls[i]->err.status == OK && calls[i]->decision.kind == DECISION_UNKNOWN;
    }
    return status;
}

/*
 * The incarnation is the next fence: every grant that names it takes that fence or a later one, so
 * that after any durable grant the next process starts with a greater number (P4, S6). A grant that
 * a crash undoes was never answered.
 */
static enum status start_embedded(struct janitor *janitor, struct err *err)
{
    struct store *store = janitor->cycle->store;
    struct store_batch stand = {.count = 0};
    enum status status = store->ops->read(store, &stand, err);
    if (status != OK) {
        return status;
    }
    janitor->incarnation = stand.fence_first;
    ASSERT(janitor->incarnation > 0);
    for (bool left = true; left && status == OK;) {
        status = settle_held(janitor, &left, err);
    }
    /* Without space or memory, these grants become unknown when their leases are over. */
    return fatal_only(status, err);
}

/* Draws a fence as the incarnation, which is unique, and beats before anything is granted. */
static enum status start_shared(struct janitor *janitor, struct err *err)
{
    struct store *store = janitor->cycle->store;
    struct store_batch one = {.fences = 1};
    enum status status = store->ops->prepare(store, &one, err);
    if (status != OK) {
        return status;
    }
    store->ops->abort(store);
    janitor->incarnation = one.fence_first;
    ASSERT(janitor->incarnation > 0);
    return store->ops->beat(store, janitor->incarnation, err);
}

enum status janitor_start(struct janitor *janitor, struct err *err)
{
    return janitor->cycle->store->ops->shared ? start_shared(janitor, err)
                                              : start_embedded(janitor, err);
}

/* Beats, and records since when no beat was missed. */
static enum status beat(struct janitor *janitor, struct err *err)
{
    struct store *store = janitor->cycle->store;
    ASSERT(janitor->turn != NULL && janitor->incarnation > 0);
    int64_t boot_ms = janitor->turn->boot_ms;
    enum status status = store->ops->beat(store, janitor->incarnation, err);
    cycle_touched(janitor->cycle, status, true, err);
    if (status == OK) {
        bool late = boot_ms - janitor->beaten_ms > 2 * LIMIT_BEAT_MS;
        janitor->steady_ms = late ? boot_ms : janitor->steady_ms;
        janitor->beaten_ms = boot_ms;
    }
    return status;
}

/* On a shared store: beats, and settles the grants of processes that are gone. */
static enum status check_holders(struct janitor *janitor, struct err *err)
{
    struct store *store = janitor->cycle->store;
    struct store_due dues[JANITOR_CALLS];
    size_t count = 0;
    if (!store->ops->shared) {
        return OK;
    }
    enum status status = beat(janitor, err);
    bool steady = janitor->turn->boot_ms - janitor->steady_ms >= LIMIT_HOLDER_GONE_MS;
    if (status == OK && steady) {
        status = store->ops->due(store, &held, dues, JANITOR_CALLS, &count, err);
    }
    ASSERT(count <= JANITOR_CALLS);
    if (status == OK && count > 0) {
        (void)add_calls(janitor, REQUEST_HOLDER_GONE, dues, count); /* the rest comes again */
    }
    return fatal_only(status, err);
}

/* Duties ----------------------------------------------------------------------------------- */

static enum status housekeep(struct janitor *janitor, struct err *err)
{
    struct store *store = janitor->cycle->store;
    const struct store_housekeeping *housekeeping = store->ops->housekeeping;
    return housekeeping == NULL ? OK : fatal_only(housekeeping->maintain(store, err), err);
}

/* Signs the end of the evidence, if it has grown since the last time. */
static enum status sign_checkpoint(struct janitor *janitor, struct err *err)
{
    struct cycle *cycle = janitor->cycle;
    bool is_new = cycle->chain.seq != janitor->checkpoint_seq;
    enum status status = is_new ? cycle_checkpoint(cycle, janitor->identity, err) : OK;
    if (status == OK) {
        janitor->checkpoint_seq = cycle->chain.seq;
        janitor->checkpoint_ms = cycle->now_ms;
    }
    return fatal_only(status, err);
}

/* Reads the counts for an idle engine, where no batch brings them. */
static enum status read_counts(struct janitor *janitor, struct err *err)
{
    struct store *store = janitor->cycle->store;
    struct store_batch stand = {.count = 0};
    enum status status = store->ops->read(store, &stand, err);
    cycle_touched(janitor->cycle, status, false, err);
    if (status != OK) {
        return fatal_only(status, err);
    }
    janitor->cycle->counts = stand.counts;
    janitor->cycle->now_ms = stand.now_ms;
    janitor->cycle->clock_held = stand.clock_held;
    return OK;
}

/* The next kind, in turn. */
static enum record_kind kind_after(enum record_kind kind)
{
    return kind == RECORD_COMMAND  ? RECORD_EFFECT
           : kind == RECORD_EFFECT ? RECORD_DELIVERY
                                   : RECORD_COMMAND;
}

/* One kind each turn: on a shared store each count is a round trip, and several at once would delay
 * a batch. While the store is away the figures stay: read_counts already waits for it. */
static enum status read_kind(struct janitor *janitor, struct err *err)
{
    struct store *store = janitor->cycle->store;
    enum record_kind kind = kind_after(janitor->kind_read);
    if (janitor->cycle->away.status != OK) {
        return OK;
    }
    struct store_counts counts = {.records = 0};
    enum status status = store->ops->counts(store, STORE_KIND(kind), &counts, err);
    cycle_touched(janitor->cycle, status, false, err);
    if (status == OK) {
        janitor->kinds[kind] = counts;
        janitor->kind_read = kind;
    }
    return fatal_only(status, err);
}

static void put_backlog(void *context, const struct store_backlog *line)
{
    backlog_put(context, line);
}

/* A shared store is asked for one kind each turn, like its counts. */
static enum status ask_for_backlog(struct janitor *janitor, struct err *err)
{
    struct store *store = janitor->cycle->store;
    struct store_counts counts = {.records = 0};
    enum record_kind kind = kind_after(janitor->backlog_read);
    ASSERT(store->ops->shared);
    if (store->ops->backlog == NULL || janitor->cycle->away.status != OK) {
        return OK;
    }
    backlog_begin(janitor->backlog, kind);
    enum status status =
        store->ops->backlog(store, kind, put_backlog, janitor->backlog, &counts, err);
    cycle_touched(janitor->cycle, status, false, err);
    backlog_end(janitor->backlog, kind, &counts);
    janitor->backlog_read = kind;
    return fatal_only(status, err);
}

/* An embedded store is looked through once: then commits count themselves (cycle.c). */
static enum status refresh_backlog(struct janitor *janitor, struct err *err)
{
    struct store *store = janitor->cycle->store;
    if (janitor->backlog == NULL || janitor->is_backlog_counted) {
        return OK;
    }
    if (store->ops->shared) {
        return ask_for_backlog(janitor, err);
    }
    return fatal_only(
        backlog_read(janitor->backlog, store, &janitor->is_backlog_counted, err), err);
}

/* Runs after the flush that made the entry durable. */
static void barrier_done(struct engine_call *call)
{
    struct janitor *janitor = call->context;
    if (call->err.status == OK) {
        atomic_store_explicit(&janitor->archive_durable, true, memory_order_release);
    }
}

/* If the oldest evidence is past its retention, commits an entry about it. A crash after the entry
 * and before the removal leaves the evidence, and a second entry about it follows. */
static enum status archive(struct janitor *janitor, struct err *err)
{
    struct store *store = janitor->cycle->store;
    struct janitor_turn *turn = janitor->turn;
    const struct store_housekeeping *housekeeping = store->ops->housekeeping;
    struct store_removable removable = {0};
    if (housekeeping == NULL || housekeeping->removable == NULL || janitor->archiving != 0 ||
        turn->count == LIMIT_BATCH_REQUESTS_MAX) {
        return OK;
    }
    enum status status = housekeeping->removable(store, &removable, err);
    if (status != OK || removable.place == 0) {
        return fatal_only(status, err);
    }
    status = cycle_archive(janitor->cycle, &removable, err);
    if (status != OK) {
        return fatal_only(status, err);
    }
    ASSERT(removable.seq > 0);
    janitor->archiving = removable.place;
    atomic_store_explicit(&janitor->archive_durable, false, memory_order_relaxed);
    janitor->barrier = (struct query){.kind = QUERY_NOTHING,
        .call = {.query = &janitor->barrier,
            .arena = &janitor->barrier_arena,
            .context = janitor,
            .done = barrier_done}};
    turn->calls[turn->count++] = &janitor->barrier.call;
    return OK;
}

/* Removes the evidence once that entry is durable. */
static enum status remove_archived(struct janitor *janitor, struct err *err)
{
    struct store *store = janitor->cycle->store;
    if (janitor->archiving == 0 ||
        !atomic_load_explicit(&janitor->archive_durable, memory_order_acquire)) {
        return OK;
    }
    uint64_t place = janitor->archiving;
    janitor->archiving = 0;
    janitor->done_ms[DUTY_ARCHIVE] = 0; /* there may be more: check again at once */
    return fatal_only(store->ops->housekeeping->remove(store, place, err), err);
}

static const struct duty {
    const char *name;
    int64_t every_ms;
    enum status (*run)(struct janitor *janitor, struct err *err);
} duties[JANITOR_DUTIES] = {
    [DUTY_HOUSEKEEPING] = {"housekeeping", 5, housekeep},
    [DUTY_HOLDERS] = {"holders", LIMIT_BEAT_MS, check_holders},
    [DUTY_DUES] = {"dues", 500, act_on_dues},
    [DUTY_INTAKE] = {"intake", 200, check_intake},
    [DUTY_CHECKPOINT] = {"checkpoint", 60000, sign_checkpoint},
    [DUTY_COUNTS] = {"counts", 100, read_counts},
    [DUTY_KINDS] = {"kinds", 100, read_kind},
    [DUTY_BACKLOG] = {"backlog", 5, refresh_backlog},
    [DUTY_REMOVE] = {"remove", 0, remove_archived},
    [DUTY_ARCHIVE] = {"archive", 60000, archive},
};

static int64_t duty_every_ms(const struct janitor *janitor, enum janitor_duty duty)
{
    const struct cycle *cycle = janitor->cycle;
    ASSERT(duty < JANITOR_DUTIES);
    if (duty == DUTY_CHECKPOINT && janitor->checkpoint_every_ms > 0) {
        return janitor->checkpoint_every_ms;
    }
    if (duty == DUTY_BACKLOG && cycle->store->ops->shared) {
        return BACKLOG_SHARED_MS;
    }
    if ((duty == DUTY_COUNTS || duty == DUTY_KINDS) && cycle->store->ops->shared) {
        return COUNTS_SHARED_MS;
    }
    return duty == DUTY_HOLDERS && cycle->away.status != OK ? BEAT_AWAY_MS : duties[duty].every_ms;
}

enum status janitor_run(struct janitor *janitor, struct janitor_turn *turn, struct err *err)
{
    enum status status = OK;
    ASSERT(janitor->turn == NULL);
    ASSERT(turn->count <= LIMIT_BATCH_REQUESTS_MAX);
    janitor->turn = turn;
    for (size_t i = 0; i < JANITOR_DUTIES && status == OK; i++) {
        if (turn->boot_ms - janitor->done_ms[i] >= duty_every_ms(janitor, (enum janitor_duty)i)) {
            janitor->done_ms[i] = turn->boot_ms;
            status = duties[i].run(janitor, err);
        }
    }
    ASSERT(turn->count <= LIMIT_BATCH_REQUESTS_MAX); /* P14: duties add calls */
    janitor->turn = NULL;
    return status;
}

enum status janitor_close(struct janitor *janitor, struct err *err)
{
    ASSERT(atomic_load(&janitor->in_flight) == 0);
    return sign_checkpoint(janitor, err);
}
