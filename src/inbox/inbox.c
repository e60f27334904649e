#include "inbox/inbox.h"

#include "base/macros.h"
#include "inbox/impl.h"
#include "inbox/queue.h"

static const struct api_route routes[] = {
    {.method = HTTP_METHOD_POST,
        .pattern = "/in/{source}",
        .is_open = true,
        .takes_any = true,
        .handle = inbox_receive},
    {.method = HTTP_METHOD_GET,
        .pattern = "/in/{source}",
        .is_open = true,
        .takes_any = true,
        .params = "hub.mode hub.challenge hub.verify_token",
        .handle = inbox_challenge},
    {.method = HTTP_METHOD_OPTIONS,
        .pattern = "/in/{source}",
        .is_open = true,
        .takes_any = true,
        .handle = inbox_preflight},
    {.method = HTTP_METHOD_GET,
        .pattern = "/v1/deliveries",
        .rights = API_READERS,
        .takes_all = true,
        .params = "source key status limit after",
        .handle = inbox_delivery_list},
    {.method = HTTP_METHOD_GET,
        .pattern = "/v1/deliveries/{delivery_id}",
        .rights = API_READERS,
        .handle = inbox_delivery_get},
    {.method = HTTP_METHOD_POST,
        .pattern = "/v1/deliveries/{delivery_id}/redeliver",
        .rights = CONFIG_RIGHT_OPERATE,
        .handle = inbox_delivery_redeliver},
    {.method = HTTP_METHOD_POST,
        .pattern = "/v1/deliveries/{delivery_id}/skip",
        .rights = CONFIG_RIGHT_OPERATE,
        .handle = inbox_delivery_skip},
    {.method = HTTP_METHOD_POST,
        .pattern = "/v1/deliveries/{delivery_id}/resolve",
        .rights = CONFIG_RIGHT_OPERATE,
        .handle = inbox_delivery_resolve},
};

struct api_routes inbox_routes(struct inbox_door *inbox)
{
    return (struct api_routes){.table = routes, .count = COUNT(routes), .state = inbox};
}

struct inbox_plan *inbox_plan_take(struct inbox_door *inbox)
{
    (void)pthread_mutex_lock(&inbox->lock);
    struct inbox_plan *plan = inbox_plan_hold(inbox->plan);
    (void)pthread_mutex_unlock(&inbox->lock);
    return plan;
}

/* ---- configurations ------------------------------------------------------------------------ */

enum status inbox_reload_prepare(
    struct inbox_door *inbox, struct config *config, struct inbox_plan **ret_plan, struct err *err)
{
    struct inbox_plan *plan = NULL;
    if (inbox->vault == NULL && config->inbox.source_count + config->inbox.queue_count > 0) {
        return err_set(err, E_INVALID, "the first source of the inbox needs a restart");
    }
    if (inbox->queues == NULL && config->inbox.queue_count > 0) {
        return err_set(err, E_INVALID, "the first queue of the inbox needs a restart");
    }
    enum status status = queues_check(config, err);
    status = status == OK ? inbox_plan_new(inbox->mem, config, &plan, err) : status;
    if (status != OK) {
        return status;
    }
    for (size_t i = 0; i < plan->count; i++) {
        struct inbox_source *source = &plan->sources[i];
        if (source->config->from == NULL) { /* a queue has figures of its own */
            source->counts = inbox_counts_of(&inbox->counts, source->config->name, inbox->mem);
        }
    }
    plan->queues = inbox->queues;
    plan->commands = &inbox->commands;
    (void)inbox_plan_hold(plan); /* held by the dispatcher */
    status = dispatch_plan_prepare(inbox->dispatch, &plan->dispatch, err);
    if (status != OK) {
        inbox_plan_drop(plan);
        inbox_plan_drop(plan);
        return status;
    }
    *ret_plan = plan;
    return OK;
}

void inbox_reload_end(struct inbox_door *inbox, struct inbox_plan *plan, bool is_used)
{
    if (!is_used) {
        dispatch_plan_drop(inbox->dispatch, &plan->dispatch);
        inbox_plan_drop(plan);
        return;
    }
    (void)pthread_mutex_lock(&inbox->lock);
    struct inbox_plan *before = inbox->plan;
    inbox->plan = plan;
    (void)pthread_mutex_unlock(&inbox->lock);
    inbox_plan_drop(before);
    for (size_t i = 0; i < plan->count; i++) {
        metrics_expect(door_metrics(inbox->door), slice_str(plan->sources[i].config->tenant),
            plan->sources[i].rule.name);
    }
    dispatch_plan_use(inbox->dispatch, &plan->dispatch);
    if (inbox->queues != NULL) {
        queues_use(inbox->queues, plan);
    }
}

enum status inbox_new(
    const struct inbox_options *options, struct inbox_door **ret_inbox, struct err *err)
{
    const struct mem *mem = options->mem == NULL ? &mem_libc : options->mem;
    struct inbox_door *inbox = mem_zalloc(mem, 1, sizeof *inbox);
    struct inbox_plan *plan = NULL;
    if (inbox == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    inbox->mem = mem;
    inbox->door = options->door;
    inbox->dispatch = options->dispatch;
    inbox->vault = options->vault;
    (void)pthread_mutex_init(&inbox->lock, NULL);
    (void)pthread_mutex_init(&inbox->counts.lock, NULL);
    enum status status = OK;
    if (options->slot > 0) {
        status = queues_new(inbox, options->slot, &inbox->queues, err);
    }
    status = status == OK ? inbox_reload_prepare(inbox, options->config, &plan, err) : status;
    if (status != OK) {
        inbox_free(inbox);
        return status;
    }
    inbox_reload_end(inbox, plan, true);
    metrics_sources(door_metrics(inbox->door), inbox_counts_figures, &inbox->counts);
    *ret_inbox = inbox;
    return OK;
}

void inbox_commands(struct inbox_door *inbox, const struct inbox_commands *commands)
{
    inbox->commands = *commands;
}

/* ---- queues -------------------------------------------------------------------------------- */

enum status inbox_queues_check(const struct config *config, struct err *err)
{
    return queues_check(config, err);
}

void inbox_start(struct inbox_door *inbox)
{
    if (inbox->queues != NULL) {
        metrics_queues(door_metrics(inbox->door), queues_figures, inbox->queues);
        queues_start(inbox->queues, inbox->plan);
    }
}

void inbox_drain(struct inbox_door *inbox)
{
    if (inbox->queues != NULL) {
        queues_drain(inbox->queues);
    }
}

bool inbox_is_busy(struct inbox_door *inbox)
{
    return inbox->queues != NULL && queues_is_busy(inbox->queues);
}

void inbox_cut(struct inbox_door *inbox)
{
    if (inbox->queues != NULL) {
        queues_cut(inbox->queues);
    }
}

bool inbox_is_idle(struct inbox_door *inbox)
{
    return inbox->queues == NULL || queues_is_idle(inbox->queues);
}

void inbox_free(struct inbox_door *inbox)
{
    if (inbox == NULL) {
        return;
    }
    if (inbox->queues != NULL) {
        metrics_queues(door_metrics(inbox->door), NULL, NULL);
        queues_free(inbox->queues);
    }
    metrics_sources(door_metrics(inbox->door), NULL, NULL);
    inbox_plan_drop(inbox->plan);
    inbox_counts_free(&inbox->counts, inbox->mem);
    (void)pthread_mutex_destroy(&inbox->counts.lock);
    (void)pthread_mutex_destroy(&inbox->lock);
    mem_free(inbox->mem, inbox);
}
