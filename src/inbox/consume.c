/*
 * The thread of one queue: a cycle takes the broker's messages, stores them in one commit, and
 * acknowledges those that are settled.
 *
 *     queue_run > run_cycle: connect > hints, checks, acknowledge > extend, lag > take
 *                 remember: read_all > submit (one commit, waits) > judge_all: park, offer, wait
 */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/rand.h"
#include "canon/json.h"
#include "engine/request_builder.h"
#include "inbox/message.h"
#include "inbox/queue_impl.h"

enum {
    SUBMIT_PAUSE_MS = 200, /* while the engine takes nothing: overloaded, or its store away */
    DETAIL_ARENA_BYTES_MAX = 64 << 10,
};

struct message_batch;

/* One message of a batch. */
struct taken {
    struct enqueued made; /* first */
    struct message_batch *batch;
    const struct broker_message *message;
    struct events events;
    const char *parked; /* why it is parked; NULL: not parked */
    struct err err;     /* … in words */
    bool is_known;      /* it already waits: it came again after a new connection */
};

struct message_batch {
    struct consumer *queue;
    struct inbox_plan *plan; /* held */
    const struct inbox_source *source;
    struct arena arena;
    struct mem mem;
    struct taken *items;
    size_t count;
    struct engine_call **calls;
    size_t call_count;
    size_t left; /* calls in progress; under lock */
    pthread_mutex_t lock;
    pthread_cond_t done;
    uint64_t started_ns;
    bool is_retry; /* some of it may have been stored before */
};

static void log_queue(struct consumer *queue, enum log_level level, const char *event,
    struct slice message, const char *text)
{
    struct log_field fields[] = {LOG_TEXT("queue", slice_str(queue->name)),
        LOG_TEXT("message_id", message), LOG_TEXT("text", slice_str(text))};
    log_event(door_log(queue->all->inbox->door), level, event, fields, COUNT(fields));
}

static bool is_stopping(const struct consumer *queue)
{
    return atomic_load(&queue->is_stopping);
}

/* Until it is woken, or for this long. */
static void rest(struct consumer *queue, int64_t ms)
{
    struct pollfd fd = {.fd = queue->wake_fd, .events = POLLIN};
    (void)poll(&fd, 1, (int)ms);
}

static void take_wake(struct consumer *queue)
{
    uint64_t count = 0;
    ssize_t got = read(queue->wake_fd, &count, sizeof count); /* it does not block */
    (void)got;
}

/* ---- the connection ------------------------------------------------------------------------ */

static void disconnected(struct consumer *queue, const struct err *err)
{
    queue->is_connected = false;
    atomic_store(&queue->connected, false);
    uint64_t random = 0; /* without randomness the pause is its shortest */
    (void)!rand_names(&random, sizeof random, NULL);
    int64_t pause_ms = backoff_jitter_ms(queue->backoff_ms, random);
    queue->connect_ns = clock_nanos() + (uint64_t)pause_ms * 1000000;
    queue->backoff_ms = clock_doubled_ms(queue->backoff_ms, QUEUE_BACKOFF_MS_MAX);
    if (!queue->is_reported) {
        queue->is_reported = true;
        log_queue(queue, LOG_WARN, "queue_disconnected", SLICE_EMPTY, err->text);
    }
}

/* Ids that do not outlive their connection are now useless; their messages come again. */
static void forget_ids(struct consumer *queue)
{
    if (!queue->module->ids_last) {
        queue->waiting_count = 0;
    }
}

static void connect_again(struct consumer *queue)
{
    struct err err = {.status = OK};
    if (queue->is_connected || clock_nanos() < queue->connect_ns) {
        return;
    }
    forget_ids(queue);
    if (queue->module->connect(queue->source, &err) != OK) {
        disconnected(queue, &err);
        return;
    }
    queue->is_connected = true;
    queue->backoff_ms = QUEUE_BACKOFF_MS_MIN;
    queue->is_reported = false;
    atomic_store(&queue->connected, true);
    atomic_fetch_add(&queue->reconnects, 1);
    log_queue(queue, LOG_INFO, "queue_connected", SLICE_EMPTY, "");
}

/* ---- storing ------------------------------------------------------------------------------- */

static void on_done(struct engine_call *call)
{
    struct message_batch *batch = CONTAINER_OF(call, struct taken, made.engine)->batch;
    (void)pthread_mutex_lock(&batch->lock);
    batch->left--;
    (void)pthread_cond_signal(&batch->done); /* under the lock: the batch is freed right after */
    (void)pthread_mutex_unlock(&batch->lock);
}

/* A message that cannot be an event is parked. Without memory it is left, and comes again. */
static enum status read_one(struct message_batch *batch, struct taken *item)
{
    const struct broker_message *message = item->message;
    uint64_t bytes_max = batch->plan->config->body_bytes_max;
    struct slice trace = SLICE_EMPTY;
    enum status status =
        message->body.len > bytes_max
            ? err_set(&item->err, E_INVALID, "%zu bytes are more than limits.body_bytes_max (%llu)",
                  message->body.len, (unsigned long long)bytes_max)
            : message_read(&batch->source->rule, message, &batch->arena, &item->events, &item->err);
    status = status == OK
                 ? builder_trace(NULL, message->id, SLICE_EMPTY, &batch->mem, &trace, &item->err)
                 : status;
    if (status == OK) {
        struct enqueue_of of = {.inbox = batch->queue->all->inbox,
            .source = batch->source,
            .event = &item->events.items[0],
            .fields = item->events.fields,
            .trace = trace,
            .message = message->id,
            .arena = &batch->arena,
            .mem = &batch->mem};
        status = enqueue_make(&item->made, &of, &item->err);
        item->made.engine.done = on_done;
    }
    if (status == E_NOMEM || status == E_UNAVAILABLE) {
        return status;
    }
    item->parked = status == OK ? NULL : "invalid_event";
    return OK;
}

static enum status read_all(struct message_batch *batch, const struct broker_message *messages)
{
    enum status status = OK;
    for (size_t i = 0; status == OK && i < batch->count; i++) {
        struct taken *item = &batch->items[i];
        item->batch = batch;
        item->message = &messages[i];
        item->is_known = waiting_find(batch->queue, messages[i].id) != NULL;
        if (!item->is_known && !messages[i].is_gone) {
            status = read_one(batch, item);
            if (status == OK && item->parked == NULL) {
                batch->calls[batch->call_count++] = &item->made.engine;
            }
        }
    }
    return status;
}

/* Submit the whole batch in one commit. False: nothing of it is known to have happened. */
static bool submit(struct message_batch *batch)
{
    struct err err;
    if (batch->call_count == 0) {
        return true;
    }
    batch->left = batch->call_count;
    if (engine_submit_all(door_engine(batch->queue->all->inbox->door), batch->calls,
            batch->call_count, &err) != OK) {
        return false;
    }
    (void)pthread_mutex_lock(&batch->lock);
    while (batch->left > 0) {
        (void)pthread_cond_wait(&batch->done, &batch->lock);
    }
    (void)pthread_mutex_unlock(&batch->lock);
    for (size_t i = 0; i < batch->call_count; i++) {
        if (batch->calls[i]->err.status != OK) {
            return false;
        }
    }
    return true;
}

/* ---- results ------------------------------------------------------------------------------- */

static void report(struct message_batch *batch, const struct taken *item)
{
    struct queues *all = batch->queue->all;
    (void)pthread_mutex_lock(&all->report_lock);
    door_report(all->inbox->door, all->slot,
        &(struct door_report){.call = &item->made.engine,
            .tenant = slice_str(batch->source->config->tenant),
            .label = batch->source->rule.name,
            .request_id = item->message->id,
            .started_nanos = batch->started_ns,
            .logs = batch->plan->config->log_decisions});
    (void)pthread_mutex_unlock(&all->report_lock);
}

/* Whether the existing delivery was made from this very message, by the id that the broker gives
 * it. Not every broker marks a message that it delivers again. */
static bool is_own(const struct message_batch *batch, const struct taken *item)
{
    const struct record *record = &item->made.engine.decision.next;
    const struct json_value *detail = NULL;
    struct arena arena;
    if (!batch->queue->module->ids_last || record->detail.len == 0) {
        return false;
    }
    arena_init(&arena, batch->queue->all->inbox->mem, DETAIL_ARENA_BYTES_MAX);
    bool is_read =
        json_read(record->detail, &arena, &detail, NULL) == OK && detail->type == JSON_OBJECT;
    const struct json_value *id = is_read ? json_find(detail, SLICE_LIT("message")) : NULL;
    bool is_same =
        id != NULL && id->type == JSON_STRING && slice_equal(json_text(id), item->message->id);
    arena_release(&arena);
    return is_same;
}

/* A message that was delivered for the first time did not make the existing delivery: it is a
 * duplicate, and acknowledged at once (GRD-10). A redelivered message may have made it, and waits
 * with it (OPS-8). */
static enum queue_verdict verdict_of(const struct message_batch *batch, const struct taken *item)
{
    const struct decision *decision = &item->made.engine.decision;
    unsigned on_unknown = batch->source->config->on_unknown;
    switch (received_as(decision->kind)) {
    case RECEIVED_OTHER: return QUEUE_IS_PARKED;
    case RECEIVED_NEW: return QUEUE_WAITS;
    case RECEIVED_LATE:
    case RECEIVED_STALE: return QUEUE_IS_OVER; /* nothing is left to do */
    case RECEIVED_AGAIN: break;
    }
    enum queue_verdict verdict = waiting_verdict(decision->next.status, on_unknown);
    bool is_first = !item->message->is_again && !batch->is_retry && !is_own(batch, item);
    return verdict == QUEUE_WAITS && is_first ? QUEUE_IS_OVER : verdict;
}

static enum status park(struct consumer *queue, const struct taken *item, const char *reason)
{
    struct err err = {.status = OK};
    enum status status = queue->module->park(queue->source, item->message, reason, &err);
    if (status != OK) {
        disconnected(queue, &err);
        return status;
    }
    atomic_fetch_add(&queue->parked, 1);
    log_queue(queue, LOG_WARN, "message_parked", item->message->id,
        item->err.text[0] != '\0' ? item->err.text : reason);
    return OK;
}

/* In this order: a stored event is delivered, whatever happens to the connection. */
static enum status judge_one(struct message_batch *batch, struct taken *item)
{
    struct consumer *queue = batch->queue;
    const struct record *record = NULL;
    enum queue_verdict verdict = QUEUE_IS_OVER;
    if (item->is_known) {
        return OK;
    }
    atomic_fetch_add(&queue->received, 1);
    if (item->message->is_gone) {
        log_queue(queue, LOG_WARN, "message_gone", item->message->id,
            "the broker no longer has the bytes of a message that was not acknowledged");
    } else if (item->parked != NULL) {
        verdict = QUEUE_IS_PARKED;
    } else {
        report(batch, item);
        record = &item->made.engine.decision.next;
        verdict = verdict_of(batch, item);
        if (received_as(item->made.engine.decision.kind) == RECEIVED_NEW) {
            dispatch_offer(queue->all->inbox->dispatch, DISPATCH_NO_LOOP, record);
        } else {
            atomic_fetch_add(&queue->duplicates, 1);
        }
    }
    if (verdict == QUEUE_IS_PARKED) {
        return park(queue, item, item->parked != NULL ? item->parked : "idempotency_conflict");
    }
    return waiting_add(queue, item->message->id, record, verdict);
}

/* If one could not be parked, the later ones come again with the next connection. */
static void judge_all(struct message_batch *batch)
{
    enum status status = OK;
    for (size_t i = 0; status == OK && i < batch->count; i++) {
        status = judge_one(batch, &batch->items[i]);
    }
    if (status == E_NOMEM) { /* they are stored, and come again */
        struct err err;
        (void)err_set(&err, E_NOMEM, "out of memory for the messages of a queue");
        disconnected(batch->queue, &err);
    }
}

/* ---- a batch ------------------------------------------------------------------------------- */

static enum status batch_begin(
    struct message_batch *batch, struct consumer *queue, struct inbox_plan *plan, size_t count)
{
    *batch = (struct message_batch){.queue = queue,
        .plan = plan,
        .source = inbox_plan_find(plan, slice_str(queue->name)),
        .count = count,
        .started_ns = clock_nanos()};
    arena_init(&batch->arena, queue->all->inbox->mem, QUEUE_BATCH_BYTES_MAX);
    batch->mem = arena_mem(&batch->arena);
    (void)pthread_mutex_init(&batch->lock, NULL);
    (void)pthread_cond_init(&batch->done, NULL);
    batch->items = arena_zalloc(&batch->arena, count * sizeof *batch->items);
    batch->calls = arena_zalloc(&batch->arena, count * sizeof(struct engine_call *));
    return batch->items != NULL && batch->calls != NULL ? OK : E_NOMEM;
}

static void batch_end(struct message_batch *batch)
{
    (void)pthread_cond_destroy(&batch->done);
    (void)pthread_mutex_destroy(&batch->lock);
    arena_release(&batch->arena);
}

/* The engine may be overloaded, its store away, or the batch too large for its memory: try with
 * smaller batches until the messages are stored or this process ends; then they come again. */
static void remember(struct consumer *queue, struct inbox_plan *plan,
    const struct broker_message *messages, size_t count, bool is_retry)
{
    while (!is_stopping(queue)) {
        struct message_batch batch;
        enum status status = batch_begin(&batch, queue, plan, count);
        batch.is_retry = is_retry;
        status = status == OK ? read_all(&batch, messages) : status;
        bool is_stored = status == OK && submit(&batch);
        if (is_stored) {
            judge_all(&batch);
        }
        batch_end(&batch);
        if (is_stored) {
            return;
        }
        rest(queue, SUBMIT_PAUSE_MS);
        is_retry = true;
        if (count > 1) {
            remember(queue, plan, messages, count / 2, is_retry);
            messages += count / 2;
            count -= count / 2;
        }
    }
}

static void take_messages(struct consumer *queue, struct inbox_plan *plan, size_t room)
{
    const struct broker_message *messages = NULL;
    size_t count = 0;
    struct err err = {.status = OK};
    int64_t wait_ms = waiting_pause_ms(queue, QUEUE_WAIT_MS_MAX);
    enum status status =
        queue->module->take(queue->source, room, wait_ms, queue->wake_fd, &messages, &count, &err);
    if (status != OK) {
        disconnected(queue, &err);
    } else if (count > 0) {
        remember(queue, plan, messages, count, false);
    }
}

static bool is_due(uint64_t *at_ns, int64_t every_ms)
{
    uint64_t now = clock_nanos();
    if (now < *at_ns) {
        return false;
    }
    *at_ns = now + (uint64_t)every_ms * 1000000;
    return true;
}

/* Serves the messages that were taken: acknowledges and extends them. Done before more are
 * taken. */
static void maintain(struct consumer *queue, const struct inbox_source *source)
{
    struct err err = {.status = OK};
    uint64_t lag = atomic_load(&queue->lag);
    enum status status = waiting_acknowledge(queue, source, &err);
    if (status == OK && queue->module->extend != NULL &&
        is_due(&queue->extend_ns, queue->module->extend_every_ms_max)) {
        status = queue->module->extend(queue->source, &err);
    }
    if (status == OK && is_due(&queue->figures_ns, QUEUE_FIGURES_MS)) {
        status = queue->module->lag(queue->source, &lag, &err);
        atomic_store(&queue->lag, lag);
    }
    if (status != OK) {
        disconnected(queue, &err);
    }
}

static size_t settled_count(const struct consumer *queue)
{
    size_t count = 0;
    for (size_t i = 0; i < queue->waiting_count; i++) {
        count += queue->waiting[i].verdict != QUEUE_WAITS;
    }
    return count;
}

static void show(struct consumer *queue)
{
    atomic_store(&queue->waits, queue->waiting_count);
    atomic_store(&queue->settled, settled_count(queue));
}

static void run_cycle(struct consumer *queue)
{
    struct inbox_plan *plan = inbox_plan_take(queue->all->inbox);
    const struct inbox_source *source = inbox_plan_find(plan, slice_str(queue->name));
    bool is_here = source != NULL && source->config->from != NULL;
    unsigned on_unknown = is_here ? source->config->on_unknown : CONFIG_DELIVERY_HOLD;
    size_t most = is_here ? (size_t)source->config->prefetch : 0;
    take_wake(queue);
    connect_again(queue);
    waiting_take_hints(queue, on_unknown);
    waiting_check(queue, on_unknown);
    if (queue->is_connected) {
        maintain(queue, is_here ? source : NULL);
    }
    bool takes = is_here && queue->is_connected && !atomic_load(&queue->is_draining) &&
                 !is_stopping(queue) && queue->waiting_count < most;
    show(queue);
    if (takes) {
        take_messages(queue, plan, most - queue->waiting_count);
    } else if (!is_stopping(queue)) {
        int64_t most_ms = queue->is_connected ? QUEUE_WAIT_MS_MAX : QUEUE_BACKOFF_MS_MIN;
        rest(queue, waiting_pause_ms(queue, most_ms));
    }
    inbox_plan_drop(plan);
}

void *queue_run(void *context)
{
    struct consumer *queue = context;
    (void)pthread_setname_np(pthread_self(), "once-queue");
    queue->backoff_ms = QUEUE_BACKOFF_MS_MIN;
    while (!is_stopping(queue)) {
        run_cycle(queue);
    }
    run_cycle(queue); /* acknowledges settled messages; takes none */
    queue->module->close(queue->source);
    queue->source = NULL;
    atomic_store(&queue->connected, false);
    atomic_store(&queue->settled, 0);
    atomic_store(&queue->is_ended, true);
    return NULL;
}
