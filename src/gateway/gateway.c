#include "gateway/gateway.h"

#include <stdio.h>

#include "base/check.h"
#include "base/macros.h"
#include "base/text.h"
#include "gateway/impl.h"
#include "gateway/reconcile_schedule.h"
#include "gateway/request_form.h"
#include "gateway/sealed_keys.h"

/* Data of each loop. */
struct gateway_loop {
    struct net_task cut; /* the task of gateway_cut */
    struct gateway *gateway;
    unsigned loop;
    struct sealed_keys *sealed;
};

enum status gateway_reload_prepare(struct gateway *gateway, struct config *config,
    struct gateway_config **ret_made, struct err *err)
{
    return gateway_config_new(gateway, config, ret_made, err);
}

void gateway_reload_end(struct gateway *gateway, struct gateway_config *made, bool is_used)
{
    if (!is_used) {
        gateway_config_drop(gateway, made);
        return;
    }
    (void)pthread_mutex_lock(&gateway->lock);
    struct gateway_config *before = gateway->config;
    gateway->config = made;
    (void)pthread_mutex_unlock(&gateway->lock);
    atomic_store(&gateway->spooled.max, made->settings->spool_bytes_max);
    gateway_config_drop(gateway, before);
    schedule_wake(gateway); /* it may have a reconcile that the previous one did not */
}

/* ---- beginning and end --------------------------------------------------------------------- */

static void cut_here(struct net_task *task)
{
    struct gateway_loop *mine = CONTAINER_OF(task, struct gateway_loop, cut);
    upstreams_detach(mine->gateway->upstreams, mine->loop);
}

void gateway_cut(struct gateway *gateway)
{
    if (atomic_exchange(&gateway->is_cut, true)) {
        return;
    }
    for (unsigned i = 0; i < gateway->loops; i++) {
        net_loop_post(http_server_loop(gateway->server, i), &gateway->own[i].cut);
    }
}

void gateway_end(struct gateway *gateway, unsigned loop)
{
    atomic_store(&gateway->is_cut, true);
    schedule_end(gateway, loop);
    upstreams_detach(gateway->upstreams, loop);
}

unsigned gateway_fill(struct gateway *gateway, unsigned loop)
{
    return upstreams_fill(gateway->upstreams, loop);
}

bool gateway_is_idle(const struct gateway *gateway)
{
    /* In this order: once nothing is busy, nothing more is submitted to the engine, and no upstream
     * is dropped. */
    return atomic_load(&gateway->busy) == 0 && atomic_load(&gateway->in_engine) == 0 &&
           upstreams_is_idle(gateway->upstreams);
}

/* E_NOMEM: with some of them made. */
static enum status make_loops(struct gateway *gateway, struct err *err)
{
    gateway->own = mem_zalloc(gateway->mem, gateway->loops, sizeof *gateway->own);
    bool is_made = gateway->own != NULL;
    for (unsigned i = 0; is_made && i < gateway->loops; i++) {
        gateway->own[i].cut.run = cut_here;
        gateway->own[i].gateway = gateway;
        gateway->own[i].loop = i;
        gateway->own[i].sealed = sealed_keys_new(gateway->mem);
        is_made = gateway->own[i].sealed != NULL;
    }
    return is_made ? OK : err_set(err, E_NOMEM, "out of memory");
}

enum status gateway_new(
    const struct gateway_options *options, struct gateway **ret_gateway, struct err *err)
{
    const struct mem *mem = options->mem == NULL ? &mem_libc : options->mem;
    struct gateway *gateway = mem_zalloc(mem, 1, sizeof *gateway);
    if (gateway == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    gateway->mem = mem;
    gateway->door = options->door;
    gateway->loops = options->loops;
    gateway->spool_dir = options->spool_dir;
    clock_system(&gateway->clock);
    gateway->spooled.setting = "gateway.spool_max";
    atomic_init(&gateway->configs, 0);
    atomic_init(&gateway->is_cut, false);
    atomic_init(&gateway->busy, 0);
    atomic_init(&gateway->in_engine, 0);
    (void)pthread_mutex_init(&gateway->lock, NULL);
    enum status status = make_loops(gateway, err);
    status = status == OK ? upstreams_new(mem, options->loops, &gateway->upstreams, err) : status;
    status = status == OK ? schedule_new(gateway, &gateway->schedule, err) : status;
    status =
        status == OK ? gateway_config_new(gateway, options->config, &gateway->config, err) : status;
    if (status != OK) {
        gateway_free(gateway);
        return status;
    }
    atomic_store(&gateway->spooled.max, gateway->config->settings->spool_bytes_max);
    *ret_gateway = gateway;
    return OK;
}

struct sealed_keys *gateway_sealed_keys(const struct gateway_request *request)
{
    return request->gateway->own[request->exchange->loop].sealed;
}

void gateway_attach(struct gateway *gateway, struct http_server *server)
{
    metrics_upstreams(door_metrics(gateway->door), upstreams_figures, gateway->upstreams);
    gateway->server = server;
    upstreams_attach(gateway->upstreams, server);
    schedule_start(gateway);
}

void gateway_free(struct gateway *gateway)
{
    if (gateway == NULL) {
        return;
    }
    ASSERT(gateway->config == NULL || gateway->config->holders == 1); /* the server is gone */
    ASSERT(gateway->upstreams == NULL || gateway_is_idle(gateway));
    ASSERT(gateway->reconciling == NULL);
    metrics_upstreams(door_metrics(gateway->door), NULL, NULL);
    schedule_free(gateway->schedule);
    if (gateway->upstreams != NULL) {
        upstreams_attach(gateway->upstreams, NULL); /* there is no loop left to close anything on */
    }
    gateway_config_drop(gateway, gateway->config);
    upstreams_free(gateway->upstreams);
    (void)pthread_mutex_destroy(&gateway->lock);
    for (unsigned i = 0; gateway->own != NULL && i < gateway->loops; i++) {
        sealed_keys_free(gateway->own[i].sealed);
    }
    mem_free(gateway->mem, gateway->own);
    mem_free(gateway->mem, gateway);
}

/* ---- requests ------------------------------------------------------------------------------ */

static unsigned method_bit(enum http_method method)
{
    switch (method) {
    case HTTP_METHOD_POST: return CONFIG_METHOD_POST;
    case HTTP_METHOD_PUT: return CONFIG_METHOD_PUT;
    case HTTP_METHOD_PATCH: return CONFIG_METHOD_PATCH;
    case HTTP_METHOD_DELETE: return CONFIG_METHOD_DELETE;
    case HTTP_METHOD_NONE:
    case HTTP_METHOD_GET:
    case HTTP_METHOD_HEAD:
    case HTTP_METHOD_OPTIONS:
    case HTTP_METHOD_TRACE:
    case HTTP_METHOD_OTHER: return 0;
    }
    return 0;
}

size_t gateway_route(const struct config_gateway *config, unsigned method, struct slice path)
{
    for (size_t i = 0; i < config->route_count; i++) {
        const struct config_route *route = &config->routes[i];
        if ((route->methods == 0 || (route->methods & method) != 0) &&
            route_glob(route->path, path)) {
            return i;
        }
    }
    return config->route_count;
}

/* True: the request is fenced. */
static bool route_find(struct gateway_request *request)
{
    const struct http_head *head = request->exchange->head;
    unsigned method = method_bit(head->method);
    const struct config_route *route =
        gateway_config_route(request->config, method, request->path, &request->upstream);
    request->route = route;
    if (route == NULL || route == request->config->settings->otherwise ||
        (route->fenced & method) == 0) {
        return false;
    }
    bool has_key = http_find(head, SLICE_LIT("Idempotency-Key"), 0) < head->field_count;
    return has_key || route->key != CONFIG_KEY_OPTIONAL;
}

/* The route whose profile is used for a refusal before any route is known. */
static const struct config_route *route_for_refusals(const struct config_gateway *config)
{
    static const struct config_route plain = {.profile = CONFIG_PROFILE_IETF};
    return config->route_count > 0     ? &config->routes[0]
           : config->otherwise != NULL ? config->otherwise
                                       : &plain;
}

static void refuse(struct gateway_request *request, enum refusal_kind kind, const char *detail)
{
    if (request->route == NULL) {
        request->route = route_for_refusals(request->config->settings);
    }
    gateway_request_refuse(
        request, &(struct refusal){.kind = kind, .detail = slice_str(detail)}, NULL);
}

void gateway_begin(struct gateway *gateway, struct http_exchange *exchange)
{
    const struct http_head *head = exchange->head;
    struct err fault;
    err_clear(&fault);
    struct gateway_request request = {.gateway = gateway,
        .config = gateway_config_take(gateway),
        .exchange = exchange,
        .mem = arena_mem(exchange->arena),
        .path = http_path(head)};
    enum status status =
        head->form == HTTP_FORM_ASTERISK
            ? OK
            : request_form_path(request.path, exchange->arena, &request.path, &fault);
    if (status != OK) {
        refuse(&request, status == E_NOMEM ? REFUSAL_MEMORY : REFUSAL_REQUEST,
            status == E_NOMEM ? NULL : fault.text);
        return;
    }
    if (health_is(request.config->settings, request.path)) {
        if (!health_begin(&request)) {
            refuse(&request, REFUSAL_MEMORY, NULL);
        }
        return;
    }
    bool is_fenced = route_find(&request);
    if (request.route == NULL) {
        refuse(&request, REFUSAL_NO_ROUTE, NULL);
    } else if (is_fenced) {
        fenced_begin(&request);
    } else {
        relayed_begin(&request);
    }
}

void gateway_handle(struct gateway *gateway, struct http_exchange *exchange)
{
    struct gateway_request *request = exchange->state;
    (void)gateway;
    if (request->is_health) {
        health_handle(request);
    } else if (request->is_fenced) {
        fenced_handle(request);
    } else {
        relayed_handle(request);
    }
}
