#include "inbox/queue.h"

#include <errno.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "inbox/queue_impl.h"

/* ---- the configuration --------------------------------------------------------------------- */

enum status queues_check(const struct config *config, struct err *err)
{
    enum status status = OK;
    for (size_t i = 0; status == OK && i < config->inbox.queue_count; i++) {
        const struct config_source *queue = &config->inbox.queues[i];
        const struct broker_module *module = NULL;
        status = broker_load(queue->from, &module, err);
        status = status == OK ? module->check(queue->from, err) : status;
        if (status != OK) {
            err_prefix(err, "queue '%s'", queue->name);
        }
    }
    return status;
}

/* ---- one queue ----------------------------------------------------------------------------- */

static void wake(struct consumer *queue)
{
    uint64_t one = 1;
    ssize_t sent = write(queue->wake_fd, &one, sizeof one); /* full: it is awake */
    (void)sent;
}

static void queue_free(struct consumer *queue)
{
    const struct mem *mem = queue->all->inbox->mem;
    if (queue->has_thread) {
        (void)pthread_join(queue->thread, NULL);
    } else if (queue->source != NULL) {
        queue->module->close(queue->source);
    }
    if (queue->wake_fd >= 0) {
        (void)close(queue->wake_fd);
    }
    if (queue->from != NULL) {
        mem_wipe(queue->from, strlen(queue->from));
    }
    mem_free(mem, queue->from);
    mem_free(mem, queue->name);
    mem_free(mem, queue->waiting);
    (void)pthread_mutex_destroy(&queue->lock);
    mem_free(mem, queue);
}

static enum status queue_new(struct queues *queues, const struct config_source *config,
    struct consumer **ret_queue, struct err *err)
{
    const struct mem *mem = queues->inbox->mem;
    struct consumer *queue = mem_zalloc(mem, 1, sizeof *queue);
    if (queue == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    queue->all = queues;
    queue->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    (void)pthread_mutex_init(&queue->lock, NULL);
    queue->name = mem_copy_text(mem, slice_str(config->name));
    queue->from = mem_copy_text(mem, slice_str(config->from));
    enum status status = queue->wake_fd < 0
                             ? err_errno(err, E_UNAVAILABLE, errno, "cannot make an eventfd")
                         : queue->name == NULL || queue->from == NULL
                             ? err_set(err, E_NOMEM, "out of memory")
                             : broker_load(queue->from, &queue->module, err);
    if (status == OK) {
        struct broker_options options = {.url = queue->from, .consumer = queues->consumer};
        status = queue->module->open(&options, &queue->source, err);
    }
    if (status == OK) {
        int failed = pthread_create(&queue->thread, NULL, queue_run, queue);
        queue->has_thread = failed == 0;
        status = failed == 0 ? OK : err_errno(err, E_UNAVAILABLE, failed, "cannot make a thread");
    }
    if (status != OK) {
        queue_free(queue);
        return status;
    }
    *ret_queue = queue;
    return OK;
}

static void queue_stop(struct consumer *queue)
{
    atomic_store(&queue->is_stopping, true);
    wake(queue);
}

/* ---- all of them --------------------------------------------------------------------------- */

enum status queues_new(
    struct inbox_door *inbox, unsigned slot, struct queues **ret_queues, struct err *err)
{
    struct queues *queues = mem_zalloc(inbox->mem, 1, sizeof *queues);
    char id[UUID_TEXT_BYTES];
    if (queues == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    queues->inbox = inbox;
    queues->slot = slot;
    /* An embedded store keeps one chain forever, so after a restart its process has the same name
     * and finds the messages that it had not acknowledged. On a shared store each process has its
     * own. */
    (void)snprintf(queues->consumer, sizeof queues->consumer, "once-%s",
        uuid_put(id, engine_identity(door_engine(inbox->door))->chain_id));
    (void)pthread_mutex_init(&queues->lock, NULL);
    (void)pthread_mutex_init(&queues->report_lock, NULL);
    *ret_queues = queues;
    return OK;
}

static bool is_same(const struct consumer *queue, const struct config_source *config)
{
    return strcmp(queue->name, config->name) == 0 && strcmp(queue->from, config->from) == 0 &&
           !atomic_load(&queue->is_stopping);
}

static bool is_wanted(const struct consumer *queue, const struct config_inbox *inbox)
{
    for (size_t i = 0; i < inbox->queue_count; i++) {
        if (is_same(queue, &inbox->queues[i])) {
            return true;
        }
    }
    return false;
}

static bool is_running(const struct queues *queues, const struct config_source *config)
{
    for (const struct consumer *queue = queues->list; queue != NULL; queue = queue->next) {
        if (is_same(queue, config)) {
            return true;
        }
    }
    return false;
}

/* Free the queues that have ended since they were asked to. */
static void drop_ended(struct queues *queues)
{
    for (struct consumer **at = &queues->list; *at != NULL;) {
        struct consumer *queue = *at;
        if (atomic_load(&queue->is_ended)) {
            *at = queue->next;
            queue_free(queue);
        } else {
            at = &queue->next;
        }
    }
}

static void start_one(struct queues *queues, const struct config_source *config)
{
    struct consumer *queue = NULL;
    struct err err = {.status = OK};
    if (queue_new(queues, config, &queue, &err) == OK) {
        queue->next = queues->list;
        queues->list = queue;
        return;
    }
    struct log_field fields[] = {
        LOG_TEXT("queue", slice_str(config->name)), LOG_TEXT("text", slice_str(err.text))};
    log_event(door_log(queues->inbox->door), LOG_ERROR, "queue_failed", fields, 2);
}

void queues_use(struct queues *queues, const struct inbox_plan *plan)
{
    const struct config_inbox *inbox = &plan->config->inbox;
    if (!queues->is_started) {
        return;
    }
    (void)pthread_mutex_lock(&queues->lock);
    drop_ended(queues);
    for (struct consumer *queue = queues->list; queue != NULL; queue = queue->next) {
        if (!is_wanted(queue, inbox)) {
            queue_stop(queue);
        }
    }
    for (size_t i = 0; i < inbox->queue_count; i++) {
        if (!is_running(queues, &inbox->queues[i])) {
            start_one(queues, &inbox->queues[i]);
        }
    }
    (void)pthread_mutex_unlock(&queues->lock);
}

void queues_start(struct queues *queues, const struct inbox_plan *plan)
{
    queues->is_started = true;
    queues_use(queues, plan);
}

static void hint(struct consumer *queue, const struct record *record)
{
    (void)pthread_mutex_lock(&queue->lock);
    if (queue->hint_count < QUEUE_HINTS_MAX) {
        queue->hints[queue->hint_count++] =
            (struct queue_hint){record->operation_id, record->status};
    } else {
        queue->has_lost_hints = true;
    }
    (void)pthread_mutex_unlock(&queue->lock);
    wake(queue);
}

void queues_settled(struct queues *queues, const struct record *record)
{
    (void)pthread_mutex_lock(&queues->lock);
    for (struct consumer *queue = queues->list; queue != NULL; queue = queue->next) {
        if (slice_is(record->key.scope, queue->name)) {
            hint(queue, record);
        }
    }
    (void)pthread_mutex_unlock(&queues->lock);
}

void queues_drain(struct queues *queues)
{
    (void)pthread_mutex_lock(&queues->lock);
    for (struct consumer *queue = queues->list; queue != NULL; queue = queue->next) {
        atomic_store(&queue->is_draining, true);
        wake(queue);
    }
    (void)pthread_mutex_unlock(&queues->lock);
}

bool queues_is_busy(struct queues *queues)
{
    bool is_busy = false;
    (void)pthread_mutex_lock(&queues->lock);
    for (struct consumer *queue = queues->list; queue != NULL; queue = queue->next) {
        is_busy = is_busy || (atomic_load(&queue->connected) && atomic_load(&queue->settled) > 0);
    }
    (void)pthread_mutex_unlock(&queues->lock);
    return is_busy;
}

void queues_cut(struct queues *queues)
{
    (void)pthread_mutex_lock(&queues->lock);
    for (struct consumer *queue = queues->list; queue != NULL; queue = queue->next) {
        queue_stop(queue);
    }
    queues->is_started = false;
    (void)pthread_mutex_unlock(&queues->lock);
}

bool queues_is_idle(struct queues *queues)
{
    bool is_idle = true;
    (void)pthread_mutex_lock(&queues->lock);
    for (struct consumer *queue = queues->list; queue != NULL; queue = queue->next) {
        is_idle = is_idle && atomic_load(&queue->is_ended);
    }
    (void)pthread_mutex_unlock(&queues->lock);
    return is_idle;
}

void queues_free(struct queues *queues)
{
    if (queues == NULL) {
        return;
    }
    drop_ended(queues);
    ASSERT(queues->list == NULL); /* they were cut, and waited for */
    (void)pthread_mutex_destroy(&queues->lock);
    (void)pthread_mutex_destroy(&queues->report_lock);
    mem_free(queues->inbox->mem, queues);
}

size_t queues_figures(void *context, struct metrics_queue *ret_queues, size_t max)
{
    struct queues *queues = context;
    size_t count = 0;
    (void)pthread_mutex_lock(&queues->lock);
    for (struct consumer *queue = queues->list; queue != NULL && count < max; queue = queue->next) {
        if (!atomic_load(&queue->is_stopping)) {
            struct metrics_queue *one = &ret_queues[count++];
            *one = (struct metrics_queue){.connected = atomic_load(&queue->connected),
                .received = atomic_load(&queue->received),
                .duplicates = atomic_load(&queue->duplicates),
                .acknowledged = atomic_load(&queue->acknowledged),
                .parked = atomic_load(&queue->parked),
                .connects = atomic_load(&queue->reconnects),
                .waiting = atomic_load(&queue->waits),
                .lag = atomic_load(&queue->lag)};
            (void)snprintf(one->name, sizeof one->name, "%s", queue->name);
        }
    }
    (void)pthread_mutex_unlock(&queues->lock);
    return count;
}
