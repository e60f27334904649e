/* The table of doors, and how each is made from the configuration. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/check.h"
#include "base/macros.h"
#include "broker/broker.h"
#include "command/command.h"
#include "dispatch/dispatch.h"
#include "effect/effects.h"
#include "effect/outbox.h"
#include "effect/publisher.h"
#include "envelope/body_vault.h"
#include "gateway/gateway.h"
#include "gateway/request_form.h"
#include "inbox/inbox.h"
#include "server/impl.h"

/*
 * The table calls a door with its state as void *; a door's functions take their own type. Each of
 * these macros makes a function for the table that only calls the door's.
 */
#define DOOR_DO(name, call)                                                                        \
    static void name(void *state)                                                                  \
    {                                                                                              \
        call(state);                                                                               \
    }                                                                                              \
    _Static_assert(true, "")

#define DOOR_ASK(type, name, call)                                                                 \
    static type name(void *state)                                                                  \
    {                                                                                              \
        return call(state);                                                                        \
    }                                                                                              \
    _Static_assert(true, "")

#define DOOR_RELOAD_PREPARE(name, call, type)                                                      \
    static enum status name(void *state, struct config *config, void **ret_made, struct err *err)  \
    {                                                                                              \
        type *made = NULL;                                                                         \
        enum status status = call(state, config, &made, err);                                      \
        *ret_made = made;                                                                          \
        return status;                                                                             \
    }                                                                                              \
    _Static_assert(true, "")

#define DOOR_RELOAD_END(name, call)                                                                \
    static void name(void *state, void *made, bool is_used)                                        \
    {                                                                                              \
        call(state, made, is_used);                                                                \
    }                                                                                              \
    _Static_assert(true, "")

/* ---- the API ----------------------------------------------------------------------------- */

static struct server_addresses api_addresses(const struct config *config)
{
    return (struct server_addresses){
        config->listen, config->listen_count, config->tls_cert, config->tls_key};
}

struct api_policy server_api_policy(const struct config *config)
{
    return (struct api_policy){.tokens = config->tokens,
        .token_count = config->token_count,
        .needs_token = config->has_auth,
        .body_bytes_max = config->body_bytes_max,
        .outcome_bytes_max = config->outcome_bytes_max,
        .duplicate_rate = config->duplicate_rate,
        .duplicate_burst = config->duplicate_burst,
        .logs_decisions = config->log_decisions};
}

static void *state_of(const struct server *server, const char *name)
{
    size_t i = 0;
    while (strcmp(server_doors[i].name, name) != 0) {
        i++;
    }
    return server->states[i];
}

/* The routes of the open doors without a listener. */
static size_t gather_routes(const struct server *server, struct api_routes *ret_routes)
{
    size_t count = 0;
    for (size_t i = 0; server_doors[i].name != NULL; i++) {
        if (server->states[i] != NULL && server_doors[i].routes != NULL) {
            ret_routes[count++] = server_doors[i].routes(server->states[i]);
        }
    }
    return count;
}

static enum status open_api(struct server *server, void **ret_state, struct err *err)
{
    struct api *api = NULL;
    struct api_routes routes[SERVER_DOORS_MAX];
    struct api_options options = {.door = server->door,
        .routes = routes,
        .routes_count = gather_routes(server, routes),
        .outbox = effects_outbox(state_of(server, "effects")),
        .own_listener = server->own_listener,
        .server = server->http,
        .store = server->facts.store,
        .cautions = server->facts.cautions,
        .policy = server_api_policy(server->config)};
    enum status status = api_new(&options, &api, err);
    *ret_state = api;
    return status;
}

static enum status prepare_api(void *state, struct config *config, void **ret_made, struct err *err)
{
    struct api_policy policy = server_api_policy(config);
    struct api_held *held = NULL;
    enum status status = api_reload_prepare(state, &policy, &held, err);
    *ret_made = held;
    return status;
}

DOOR_RELOAD_END(reload_api, api_reload_end);

static void drain_api(void *state)
{
    api_not_ready(state, "draining");
}

DOOR_DO(close_api, api_free);

static const char *spool_dir(const struct server *server)
{
    const char *set = server->config->gateway.spool_dir;
    return set != NULL ? set : server->facts.dir != NULL ? server->facts.dir : "/tmp";
}

/* ---- the gateway ------------------------------------------------------------------------- */

static struct server_addresses gateway_addresses(const struct config *config)
{
    const struct config_gateway *gateway = &config->gateway;
    return (struct server_addresses){gateway->listen, gateway->is_on ? gateway->listen_count : 0,
        gateway->tls_cert, gateway->tls_key};
}

static enum status open_gateway(struct server *server, void **ret_state, struct err *err)
{
    const struct config_gateway *config = &server->config->gateway;
    struct gateway *gateway = NULL;
    if (!config->is_on) {
        return OK;
    }
    struct gateway_options options = {.door = server->door,
        .config = server->config,
        .loops = server->facts.loops,
        .spool_dir = spool_dir(server)};
    enum status status = gateway_new(&options, &gateway, err);
    if (status == OK) {
        gateway_attach(gateway, server->http);
        *ret_state = gateway;
    }
    return status;
}

static void begin_gateway(void *state, struct http_exchange *exchange)
{
    gateway_begin(state, exchange);
}

static void handle_gateway(void *state, struct http_exchange *exchange)
{
    gateway_handle(state, exchange);
}

static void end_gateway(void *state, unsigned loop)
{
    gateway_end(state, loop);
}

static unsigned fill_gateway(void *state, unsigned loop)
{
    return gateway_fill(state, loop);
}

DOOR_RELOAD_PREPARE(prepare_gateway, gateway_reload_prepare, struct gateway_config);
DOOR_RELOAD_END(reload_gateway, gateway_reload_end);

static void cut_gateway(void *state)
{
    gateway_cut(state); /* requests that were sent and not answered become unknown, durably */
}

DOOR_ASK(bool, gateway_idle, gateway_is_idle);
DOOR_DO(close_gateway, gateway_free);

/* ---- the dispatcher ------------------------------------------------------------------------ */

static enum status open_dispatch(struct server *server, void **ret_state, struct err *err)
{
    struct dispatch_options options = {.door = server->door,
        .server = server->http,
        .loops = server->facts.loops,
        .spool_dir = spool_dir(server),
        .logs = server->config->log_decisions};
    enum status status = dispatch_new(&options, &server->dispatch, err);
    *ret_state = server->dispatch;
    return status;
}

static void end_dispatch(void *state, unsigned loop)
{
    dispatch_end(state, loop);
}

static enum status prepare_dispatch(
    void *state, struct config *config, void **ret_made, struct err *err)
{
    (void)state;
    (void)err;
    *ret_made = config;
    return OK;
}

static void reload_dispatch(void *state, void *made, bool is_used)
{
    const struct config *config = made;
    if (is_used) {
        dispatch_log(state, config->log_decisions);
    }
}

DOOR_DO(drain_dispatch, dispatch_drain);
DOOR_ASK(bool, dispatch_busy, dispatch_is_busy);
DOOR_DO(cut_dispatch, dispatch_cut);
DOOR_ASK(bool, dispatch_idle, dispatch_is_idle);
DOOR_DO(close_dispatch, dispatch_free);

enum status server_vault(struct server *server, const struct vault **ret_vault, struct err *err)
{
    if (server->vault == NULL) {
        enum status status =
            body_vault_new(server->config, server->config->store, NULL, &server->vault, err);
        if (status != OK) {
            return status;
        }
        dispatch_vault(server->dispatch, server->vault);
    }
    *ret_vault = server->vault;
    return OK;
}

/* ---- sending effects ----------------------------------------------------------------------- */

static enum status open_outbox(struct server *server, void **ret_state, struct err *err)
{
    const struct vault *vault = NULL;
    struct effect_outbox *outbox = NULL;
    if (server->config->effects.type_count == 0) {
        return OK;
    }
    enum status status = server_vault(server, &vault, err);
    struct outbox_options options = {.dispatch = server->dispatch, .config = server->config};
    status = status == OK ? outbox_new(&options, &outbox, err) : status;
    *ret_state = outbox;
    return status;
}

DOOR_RELOAD_PREPARE(prepare_outbox, outbox_reload_prepare, void);
DOOR_RELOAD_END(reload_outbox, outbox_reload_end);
DOOR_DO(close_outbox, outbox_free);

/* ---- the inbox ----------------------------------------------------------------------------- */

static enum status open_inbox(struct server *server, void **ret_state, struct err *err)
{
    struct inbox_door *inbox = NULL;
    struct inbox_options options = {
        .door = server->door, .dispatch = server->dispatch, .config = server->config};
    enum status status = OK;
    if (server->config->inbox.source_count + server->config->inbox.queue_count > 0) {
        status = server_vault(server, &options.vault, err);
    }
    options.slot = server->config->inbox.queue_count > 0 ? server->facts.loops : 0;
    status = status == OK ? inbox_new(&options, &inbox, err) : status;
    *ret_state = inbox;
    return status;
}

DOOR_ASK(struct api_routes, routes_of_inbox, inbox_routes);
DOOR_RELOAD_PREPARE(prepare_inbox, inbox_reload_prepare, struct inbox_plan);
DOOR_RELOAD_END(reload_inbox, inbox_reload_end);
DOOR_DO(start_inbox, inbox_start);
DOOR_DO(drain_inbox, inbox_drain);
DOOR_ASK(bool, inbox_busy, inbox_is_busy);
DOOR_DO(cut_inbox, inbox_cut);
DOOR_ASK(bool, inbox_idle, inbox_is_idle);
DOOR_DO(close_inbox, inbox_free);

/* ---- accepting effects ------------------------------------------------------------------- */

static enum status acknowledge(void *context, const struct config *config,
    const struct acknowledgement *ack, struct dispatch_call *call, struct err *err)
{
    return outbox_acknowledge(context, config, ack, call, err);
}

static enum status effect_ends(void *context, const struct record *command,
    const struct record *effect, bool has_failed, struct effect_command_calls *calls,
    struct err *err)
{
    return outbox_effect_ends(context, command, effect, has_failed, calls, err);
}

static void effect_settled(void *context, const struct record *effect)
{
    outbox_settled(context, effect);
}

/* Always open: without types it still shows the effects of earlier configurations. Only new effects
 * need a vault. */
static enum status open_effects(struct server *server, void **ret_state, struct err *err)
{
    struct effects *effects = NULL;
    struct effects_options options = {
        .door = server->door, .config = server->config, .dispatch = server->dispatch};
    void *outbox = state_of(server, "outbox");
    if (outbox != NULL) {
        options.settler =
            (struct effects_settler){acknowledge, effect_ends, effect_settled, outbox};
    }
    enum status status =
        server->config->effects.type_count == 0 ? OK : server_vault(server, &options.vault, err);
    status = status == OK ? effects_new(&options, &effects, err) : status;
    *ret_state = effects;
    return status;
}

DOOR_ASK(struct api_routes, routes_effects, effects_routes);
DOOR_RELOAD_PREPARE(prepare_effects, effects_reload_prepare, void);
DOOR_RELOAD_END(reload_effects, effects_reload_end);
DOOR_DO(cut_effects, effects_cut);
DOOR_ASK(bool, effects_idle, effects_is_idle);
DOOR_DO(close_effects, effects_free);

/* ---- commands ------------------------------------------------------------------------------ */

static enum status command_effect_ends(void *context, const struct record *command,
    const struct record *effect, bool has_failed, struct effect_command_calls *calls,
    struct err *err)
{
    return commands_effect_ends(context, command, effect, has_failed, calls, err);
}

static void command_effect_settled(void *context, const struct record *effect)
{
    commands_effect_settled(context, effect);
}

static enum status submit_event(void *context, const struct inbox_submitted *event,
    struct engine_call *call, int64_t *ret_after_ms, struct err *err)
{
    struct commands_event made = {event->tenant, event->envelope, event->request_id};
    return commands_inbound(context, &made, call, ret_after_ms, err);
}

/* Always open: without a registry it still shows the commands of earlier configurations. Only new
 * commands need a vault. */
static enum status open_commands(struct server *server, void **ret_state, struct err *err)
{
    struct commands *commands = NULL;
    struct commands_options options = {
        .door = server->door, .dispatch = server->dispatch, .config = server->config};
    enum status status =
        server->config->command_count == 0 ? OK : server_vault(server, &options.vault, err);
    status = status == OK ? commands_new(&options, &commands, err) : status;
    struct effect_outbox *outbox = state_of(server, "outbox");
    if (outbox != NULL && commands != NULL) {
        outbox_parent(
            outbox, &(struct outbox_parent){command_effect_ends, command_effect_settled, commands});
    }
    struct inbox_door *inbox = state_of(server, "inbox");
    if (inbox != NULL && commands != NULL) {
        inbox_commands(inbox, &(struct inbox_commands){submit_event, commands});
    }
    *ret_state = commands;
    return status;
}

DOOR_ASK(struct api_routes, routes_of_commands, commands_routes);
DOOR_RELOAD_PREPARE(prepare_commands, commands_reload_prepare, struct registry);
DOOR_RELOAD_END(reload_commands, commands_reload_end);
DOOR_DO(cut_commands, commands_cut);
DOOR_ASK(bool, commands_idle, commands_is_idle);
DOOR_DO(close_commands, commands_free);

/* ---- all of them ------------------------------------------------------------------------- */

/* The dispatcher is first: doors give it their plans. The API is last: it serves the routes of the
 * doors before it, and its prepare writes the change to the evidence, so nothing may fail after
 * it. */
const struct server_door server_doors[] = {
    {
        .name = "dispatch",
        .open = open_dispatch,
        .reload_prepare = prepare_dispatch,
        .reload_end = reload_dispatch,
        .end = end_dispatch,
        .drain = drain_dispatch,
        .is_busy = dispatch_busy,
        .cut = cut_dispatch,
        .is_idle = dispatch_idle,
        .close = close_dispatch,
    },
    {
        .name = "outbox",
        .open = open_outbox,
        .reload_prepare = prepare_outbox,
        .reload_end = reload_outbox,
        .close = close_outbox,
    },
    {
        .name = "gateway",
        .listen = gateway_addresses,
        .open = open_gateway,
        .begin = begin_gateway,
        .handle = handle_gateway,
        .end = end_gateway,
        .fill = fill_gateway,
        .reload_prepare = prepare_gateway,
        .reload_end = reload_gateway,
        .cut = cut_gateway,
        .is_idle = gateway_idle,
        .close = close_gateway,
    },
    {
        .name = "inbox",
        .open = open_inbox,
        .start = start_inbox,
        .routes = routes_of_inbox,
        .reload_prepare = prepare_inbox,
        .reload_end = reload_inbox,
        .drain = drain_inbox,
        .is_busy = inbox_busy,
        .cut = cut_inbox,
        .is_idle = inbox_idle,
        .close = close_inbox,
    },
    {
        .name = "effects",
        .open = open_effects,
        .routes = routes_effects,
        .reload_prepare = prepare_effects,
        .reload_end = reload_effects,
        .cut = cut_effects,
        .is_idle = effects_idle,
        .close = close_effects,
    },
    {
        .name = "commands",
        .open = open_commands,
        .routes = routes_of_commands,
        .reload_prepare = prepare_commands,
        .reload_end = reload_commands,
        .cut = cut_commands,
        .is_idle = commands_idle,
        .close = close_commands,
    },
    {
        .name = SERVER_OWN_DOOR,
        .listen = api_addresses,
        .open = open_api,
        .handle = api_handle,
        .reload_prepare = prepare_api,
        .reload_end = reload_api,
        .drain = drain_api,
        .close = close_api,
    },
    {.name = NULL},
};
_Static_assert(COUNT(server_doors) <= SERVER_DOORS_MAX + 1, "states");

enum status server_queues_check(const struct config *config, struct err *err)
{
    enum status status = inbox_queues_check(config, err);
    return status == OK ? publishers_check(&config->effects, err) : status;
}

const char *server_broker(size_t number, struct err *err)
{
    const struct broker_kind *kind = broker_kind(number);
    const struct broker_module *module = NULL;
    char url[64];
    if (kind == NULL) {
        return NULL;
    }
    err_clear(err);
    (void)snprintf(url, sizeof url, "%s://", kind->name);
    (void)!broker_load(url, &module, err);
    return kind->name;
}

/* ---- trying the inbox ---------------------------------------------------------------------- */

static enum status check_event(struct config *config, const struct inbox_submitted *event,
    struct arena *arena, struct slice *ret_key, struct err *err)
{
    struct commands_event made = {event->tenant, event->envelope, event->request_id};
    return commands_inbound_check(config, &made, arena, ret_key, err);
}

enum status server_inbox_try(
    const struct server_inbox_trial *trial, struct buf *out, bool *ret_accepted, struct err *err)
{
    struct inbox_trial asked = {.config = trial->config,
        .source = slice_str(trial->source),
        .request = trial->request,
        .now_ms = trial->now_ms,
        .check_command = check_event};
    return inbox_try(&asked, &mem_libc, out, ret_accepted, err);
}

enum status server_inbox_secret(const struct config_source *source, size_t nth, struct err *err)
{
    return inbox_secret_check(source, nth, &mem_libc, err);
}

enum status server_inbox_sign(const char *preset, struct slice secret, const char *id,
    struct slice body, int64_t now_ms, struct buf *out, struct err *err)
{
    return inbox_sign(slice_str(preset), secret, slice_str(id), body, now_ms, out, err);
}

/* ---- which route ------------------------------------------------------------------------- */

const char *server_route(
    const struct config *config, const char *method, const char *target, struct arena *arena)
{
    const struct config_gateway *gateway = &config->gateway;
    struct slice path = slice_of(target, strcspn(target, "?"));
    if (request_form_path(path, arena, &path, NULL) != OK) {
        return "";
    }
    size_t which = gateway_route(gateway, config_method(slice_str(method)), path);
    return which < gateway->route_count ? gateway->routes[which].match
           : gateway->otherwise != NULL ? gateway->otherwise->match
                                        : "";
}
