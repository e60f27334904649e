/* The door's own life: its registry, reloads, and expired confirmations. */
#include <string.h>

#include "base/check.h"
#include "base/macros.h"
#include "base/text.h"
#include "command/effects.h"

enum { EXPIRY_ARENA_BYTES_MAX = 1 << 20 };

/* ---- the registry ------------------------------------------------------------------------ */

void registry_drop(struct registry *registry)
{
    if (registry != NULL && atomic_fetch_sub(&registry->holders, 1) == 1) {
        config_free(registry->config);
        mem_free(registry->mem, registry->targets);
        mem_free(registry->mem, registry);
    }
}

/* The dispatcher no longer needs the plan. */
static void release_plan(struct dispatch_plan *plan)
{
    registry_drop(CONTAINER_OF(plan, struct registry, plan));
}

/* A handler's server: scheme, host and port of its URL, in the configuration's memory. */
static const char *origin_of(struct config *config, const char *url)
{
    size_t len = text_url_origin(url);
    char *origin = arena_zalloc(&config->arena, len + 1);
    if (origin != NULL) {
        memcpy(origin, url, len);
    }
    return origin;
}

static enum status make_target(struct registry *registry, size_t number)
{
    const struct config_command *command = &registry->config->commands[number];
    const char **urls = arena_zalloc(&registry->config->arena, sizeof *urls);
    if (urls != NULL) {
        urls[0] = origin_of(registry->config, command->handler);
    }
    if (urls == NULL || urls[0] == NULL) {
        return E_NOMEM;
    }
    registry->targets[number] = (struct dispatch_target){.name = command->name,
        .upstream = {.urls = urls,
            .url_count = 1,
            .ca_file = command->ca_file,
            .idle_ms_max = UPSTREAM_IDLE_MS_USUAL},
        .timeouts = {.connect_ms = command->timeout_ms < 5000 ? command->timeout_ms : 5000,
            .first_byte_ms = command->timeout_ms,
            .total_ms = command->timeout_ms},
        .concurrency = (uint32_t)command->concurrency,
        .answer_bytes_max = registry->config->outcome_bytes_max};
    return OK;
}

static enum status registry_new(struct commands *commands, struct config *config,
    struct registry **ret_registry, struct err *err)
{
    const struct mem *mem = commands->mem;
    struct registry *registry = mem_zalloc(mem, 1, sizeof *registry);
    if (registry == NULL) {
        return err_set(err, E_NOMEM, "out of memory for the registry");
    }
    registry->mem = mem;
    registry->commands = commands;
    registry->config = config_hold(config);
    atomic_init(&registry->holders, 2); /* the door's, and the dispatcher's */
    registry->targets = mem_zalloc(mem, config->command_count + 1, sizeof *registry->targets);
    enum status status = registry->targets == NULL ? E_NOMEM : OK;
    for (size_t i = 0; status == OK && i < config->command_count; i++) {
        status = make_target(registry, i);
    }
    registry->plan = (struct dispatch_plan){.kind = &command_kind,
        .targets = registry->targets,
        .target_count = config->command_count,
        .release = release_plan};
    if (status != OK) {
        registry_drop(registry);
        registry_drop(registry);
        return err_set(err, status, "out of memory for the registry");
    }
    status = dispatch_plan_prepare(commands->dispatch, &registry->plan, err);
    if (status != OK) {
        registry_drop(registry);
        registry_drop(registry);
        return status;
    }
    *ret_registry = registry;
    return OK;
}

struct registry *registry_take(struct commands *commands)
{
    (void)pthread_mutex_lock(&commands->lock);
    struct registry *registry = commands->registry;
    atomic_fetch_add(&registry->holders, 1);
    (void)pthread_mutex_unlock(&commands->lock);
    return registry;
}

const struct config_command *registry_find(const struct registry *registry, struct slice name)
{
    for (size_t i = 0; i < registry->config->command_count; i++) {
        if (slice_is(name, registry->config->commands[i].name)) {
            return &registry->config->commands[i];
        }
    }
    return NULL;
}

enum status commands_reload_prepare(struct commands *commands, struct config *config,
    struct registry **ret_registry, struct err *err)
{
    if (commands->vault == NULL && config->command_count > 0) {
        (void)err_set(err, E_INVALID, "commands: the server was started without any");
        err_hint(err, "restart to take commands in");
        return E_INVALID;
    }
    return registry_new(commands, config, ret_registry, err);
}

void commands_reload_end(struct commands *commands, struct registry *registry, bool is_used)
{
    struct registry *before = registry;
    if (is_used) {
        dispatch_plan_use(commands->dispatch, &registry->plan);
        (void)pthread_mutex_lock(&commands->lock);
        before = commands->registry;
        commands->registry = registry;
        (void)pthread_mutex_unlock(&commands->lock);
    } else {
        dispatch_plan_drop(commands->dispatch, &registry->plan);
    }
    registry_drop(before);
}

/* ---- expired confirmations ---------------------------------------------------------------- */

struct expiring {
    struct engine_call call;
    struct commands *commands;
    struct arena arena;
};

static void on_expired(struct engine_call *call)
{
    struct expiring *expiring = CONTAINER_OF(call, struct expiring, call);
    struct commands *commands = expiring->commands;
    arena_release(&expiring->arena);
    mem_free(commands->mem, expiring);
    atomic_fetch_sub(&commands->expiring, 1);
}

/* Rejected: no effect began, so a new submission starts over. A confirmation at the same moment is
 * too late (W3). */
struct request command_expiry(const struct record *read)
{
    return (struct request){.kind = REQUEST_WAKE,
        .operation_id = read->operation_id,
        .version = read->version, /* W6 */
        .status = RECORD_REJECTED,
        .reason = SLICE_LIT("the confirmation expired")};
}

bool command_expire(struct commands *commands, const struct record *read)
{
    struct expiring *expiring = mem_zalloc(commands->mem, 1, sizeof *expiring);
    struct err err;
    if (expiring == NULL) {
        return false;
    }
    arena_init(&expiring->arena, commands->mem, EXPIRY_ARENA_BYTES_MAX);
    expiring->commands = commands;
    expiring->call = (struct engine_call){
        .request = command_expiry(read), .arena = &expiring->arena, .done = on_expired};
    atomic_fetch_add(&commands->expiring, 1);
    if (engine_submit(door_engine(commands->door), &expiring->call, &err) != OK) {
        on_expired(&expiring->call);
        return false;
    }
    return true;
}

static bool on_due(void *context, const struct store_due *dues, size_t count)
{
    struct commands *commands = context;
    if (atomic_load(&commands->is_cut) || atomic_load(&commands->expiring) > 0) {
        return false; /* they are reported again */
    }
    int64_t now_ms = (int64_t)(clock_nanos() / 1000000);
    bool checks = now_ms - commands->checked_ms >= COMMAND_CHECK_MS;
    bool taken = true;
    unsigned checked = 0;
    for (size_t i = 0; taken && i < count; i++) {
        /* A command that was never granted waits for a confirmation. One that was waits for its
         * effects, or, if it was submitted anew after that, for a confirmation: its record says
         * which. */
        if (dues[i].fence == 0) {
            taken = command_effects_check(commands, &dues[i].operation_id);
        } else if (checks && checked++ < COMMAND_CHECKS_MAX) {
            taken = command_effects_check(commands, &dues[i].operation_id);
            commands->checked_ms = now_ms;
        }
    }
    return true; /* a due that was not handled stays due and is reported again */
}

void commands_cut(struct commands *commands)
{
    atomic_store(&commands->is_cut, true);
}

bool commands_is_idle(const struct commands *commands)
{
    return atomic_load(&commands->expiring) == 0;
}

/* ---- life -------------------------------------------------------------------------------- */

enum status commands_new(
    const struct commands_options *options, struct commands **ret_commands, struct err *err)
{
    const struct mem *mem = options->mem == NULL ? &mem_libc : options->mem;
    struct commands *commands = mem_zalloc(mem, 1, sizeof *commands);
    if (commands == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    commands->mem = mem;
    commands->door = options->door;
    commands->dispatch = options->dispatch;
    commands->vault = options->vault;
    (void)pthread_mutex_init(&commands->lock, NULL);
    enum status status = registry_new(commands, options->config, &commands->registry, err);
    if (status != OK) {
        (void)pthread_mutex_destroy(&commands->lock);
        mem_free(mem, commands);
        return status;
    }
    dispatch_plan_use(commands->dispatch, &commands->registry->plan);
    commands->expiry =
        (struct due_subscription){.filter = {.kinds = STORE_KIND(RECORD_COMMAND),
                                      .reasons = STORE_DUE(RECORD_DUE_CONFIRMATION_OVER)},
            .found = on_due,
            .context = commands};
    engine_on_due(door_engine(commands->door), &commands->expiry);
    *ret_commands = commands;
    return OK;
}

void commands_free(struct commands *commands)
{
    if (commands == NULL) {
        return;
    }
    engine_off_due(door_engine(commands->door), &commands->expiry);
    ASSERT(atomic_load(&commands->expiring) == 0);
    registry_drop(commands->registry);
    (void)pthread_mutex_destroy(&commands->lock);
    mem_free(commands->mem, commands);
}

/* ---- routes ------------------------------------------------------------------------------ */

static const struct api_route table[] = {
    {.method = HTTP_METHOD_POST,
        .pattern = "/v1/commands",
        .rights = CONFIG_RIGHT_EXECUTE,
        .handle = command_submit},
    {.method = HTTP_METHOD_GET,
        .pattern = "/v1/commands",
        .rights = API_READERS | CONFIG_RIGHT_CONFIRM,
        .takes_all = true,
        .params = "command actor_id status key limit after",
        .handle = command_list},
    {.method = HTTP_METHOD_GET,
        .pattern = "/v1/commands/{command_id}",
        .kind = RECORD_COMMAND,
        .is_named = command_is_named,
        .rights = API_READERS | CONFIG_RIGHT_CONFIRM,
        .handle = command_get},
    {.method = HTTP_METHOD_POST,
        .pattern = "/v1/commands/{command_id}/confirm",
        .kind = RECORD_COMMAND,
        .is_named = command_is_named,
        .rights = CONFIG_RIGHT_EXECUTE | CONFIG_RIGHT_CONFIRM,
        .handle = command_confirm},
    {.method = HTTP_METHOD_POST,
        .pattern = "/v1/commands/{command_id}/deny",
        .kind = RECORD_COMMAND,
        .is_named = command_is_named,
        .rights = CONFIG_RIGHT_EXECUTE | CONFIG_RIGHT_CONFIRM,
        .handle = command_deny},
    {.method = HTTP_METHOD_POST,
        .pattern = "/v1/commands/{command_id}/recover",
        .kind = RECORD_COMMAND,
        .is_named = command_is_named,
        .rights = CONFIG_RIGHT_OPERATE,
        .handle = command_recover},
    {.method = HTTP_METHOD_POST,
        .pattern = "/v1/commands/{command_id}/resolve",
        .kind = RECORD_COMMAND,
        .is_named = command_is_named,
        .rights = CONFIG_RIGHT_OPERATE,
        .handle = command_resolve},
    {.method = HTTP_METHOD_GET,
        .pattern = "/v1/registry",
        .rights = API_READERS | CONFIG_RIGHT_CONFIRM,
        .handle = command_registry},
};

struct api_routes commands_routes(struct commands *commands)
{
    return (struct api_routes){.table = table, .count = COUNT(table), .state = commands};
}
