#include "inbox/plan.h"

#include "base/text.h"
#include "inbox/deliver.h"
#include "inbox/submission.h"

enum { PLAN_BYTES_MAX = 64 << 20, IDLE_MS = 4000 }; /* like the gateway's connections */

_Static_assert((int)CONFIG_PRESET_STRIPE == (int)PRESET_STRIPE &&
                   (int)CONFIG_PRESET_HMAC == (int)PRESET_HMAC &&
                   (int)CONFIG_PRESET_NONE == (int)PRESET_NONE,
    "presets have the same numbers in the file and here");

/* "http://127.0.0.1:9000" and "/stripe". */
static enum status take_handler(
    struct inbox_plan *plan, struct inbox_source *source, struct err *err)
{
    const char *url = source->config->handler;
    if (url == NULL) {
        return OK; /* its events become commands */
    }
    size_t len = text_url_origin(url);
    char *text = arena_zalloc(&plan->arena, len + 1);
    if (text == NULL) {
        return err_set(err, E_NOMEM, "out of memory for the sources");
    }
    memcpy(text, url, len);
    source->handler_url = text;
    source->target = url[len] == '\0' ? SLICE_LIT("/") : slice_str(url + len);
    return OK;
}

static void put_target(struct inbox_source *source, struct dispatch_target *ret_target)
{
    const struct config_source *config = source->config;
    *ret_target = (struct dispatch_target){.name = config->name,
        .upstream = {.urls = &source->handler_url,
            .url_count = 1,
            .ca_file = config->ca_file,
            .connections_max = (uint32_t)config->concurrency,
            .idle_ms_max = IDLE_MS},
        .sender = config->command != NULL ? &submission_sender : NULL,
        .timeouts = {.connect_ms = config->connect_ms,
            .first_byte_ms = config->first_byte_ms,
            .total_ms = config->total_ms},
        .concurrency = (uint32_t)config->concurrency,
        .rate = config->rate,
        .breaker = {
            .failures = (uint32_t)config->breaker_failures, .pause_ms = config->breaker_pause_ms}};
}

static void on_release(struct dispatch_plan *dispatch)
{
    inbox_plan_drop(dispatch->state);
}

static enum status fill(struct inbox_plan *plan, struct err *err)
{
    const struct config_inbox *inbox = &plan->config->inbox;
    size_t count = inbox->source_count + inbox->queue_count;
    plan->sources = arena_zalloc(&plan->arena, (count + 1) * sizeof *plan->sources);
    struct dispatch_target *targets = arena_zalloc(&plan->arena, (count + 1) * sizeof *targets);
    if (plan->sources == NULL || targets == NULL) {
        return err_set(err, E_NOMEM, "out of memory for the sources");
    }
    enum status status = OK;
    for (size_t i = 0; status == OK && i < count; i++) {
        const struct config_source *one =
            i < inbox->source_count ? &inbox->sources[i] : &inbox->queues[i - inbox->source_count];
        status = inbox_source_init(&plan->sources[i], one, plan->mem, err);
        if (status == OK) {
            plan->count++;
            status = take_handler(plan, &plan->sources[i], err);
            put_target(&plan->sources[i], &targets[i]);
        }
    }
    plan->dispatch = (struct dispatch_plan){.kind = &deliver_kind,
        .targets = targets,
        .target_count = count,
        .state = plan,
        .release = on_release};
    return status;
}

enum status inbox_plan_new(
    const struct mem *mem, struct config *config, struct inbox_plan **ret_plan, struct err *err)
{
    struct inbox_plan *plan = mem_zalloc(mem, 1, sizeof *plan);
    if (plan == NULL) {
        return err_set(err, E_NOMEM, "out of memory for the sources");
    }
    plan->mem = mem;
    plan->config = config_hold(config);
    atomic_store(&plan->holders, 1);
    arena_init(&plan->arena, mem, PLAN_BYTES_MAX);
    enum status status = fill(plan, err);
    if (status != OK) {
        inbox_plan_drop(plan);
        return status;
    }
    *ret_plan = plan;
    return OK;
}

struct inbox_plan *inbox_plan_hold(struct inbox_plan *plan)
{
    atomic_fetch_add(&plan->holders, 1);
    return plan;
}

void inbox_plan_drop(struct inbox_plan *plan)
{
    if (plan == NULL || atomic_fetch_sub(&plan->holders, 1) != 1) {
        return;
    }
    for (size_t i = 0; i < plan->count; i++) {
        inbox_source_release(&plan->sources[i]);
    }
    arena_release(&plan->arena);
    config_free(plan->config);
    mem_free(plan->mem, plan);
}

struct inbox_source *inbox_plan_find(const struct inbox_plan *plan, struct slice name)
{
    for (size_t i = 0; i < plan->count; i++) {
        if (slice_is(name, plan->sources[i].config->name)) {
            return &plan->sources[i];
        }
    }
    return NULL;
}
