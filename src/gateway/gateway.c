#include "gateway/gateway.h"

#include <stdio.h>

#include "base/check.h"
#include "base/rand.h"
#include "base/secret.h"
#include "base/text.h"
#include "gateway/impl.h"
#include "gateway/reconcile_schedule.h"
#include "http/chars.h"

enum { TRACE_RANDOM_BYTES = 24, RANDOM_BYTES = 128 * TRACE_RANDOM_BYTES };

/* What each loop has of its own. */
struct gateway_loop {
    struct net_task cut; /* first: gateway_cut's errand */
    struct gateway *gateway;
    unsigned loop;
    size_t random_at;                   /* the next unused byte; RANDOM_BYTES: none is left */
    unsigned char random[RANDOM_BYTES]; /* for traces, of which one call to the kernel makes many */
};

/* ---- configurations ------------------------------------------------------------------------ */

static void credentials_free(struct gateway *gateway, struct gate *gate)
{
    for (size_t i = 0; gate->credentials != NULL && i < gate->gateway->route_count; i++) {
        secret_release(&gate->credentials[i]);
    }
    mem_free(gateway->mem, gate->credentials);
}

static void gate_drop_upstreams(struct gateway *gateway, struct gate *gate)
{
    for (size_t i = 0; gate->upstreams != NULL && i <= gate->gateway->route_count; i++) {
        upstreams_drop(gateway->upstreams, gate->upstreams[i]);
    }
    mem_free(gateway->mem, gate->upstreams);
}

static void gate_free(struct gateway *gateway, struct gate *gate)
{
    if (gate != NULL) {
        principals_free(gate->principals);
        credentials_free(gateway, gate);
        gate_drop_upstreams(gateway, gate);
        config_free(gate->config);
        mem_free(gateway->mem, gate);
    }
}

static enum status gate_upstreams(struct gateway *gateway, struct gate *gate, struct err *err)
{
    const struct config_gateway *config = gate->gateway;
    struct upstreams *all = gateway->upstreams;
    size_t count = config->route_count;
    enum status status = OK;
    gate->upstreams = mem_zalloc(gateway->mem, count + 1, sizeof *gate->upstreams);
    if (gate->upstreams == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    upstreams_load(all);
    for (size_t i = 0; status == OK && i < count; i++) {
        status = upstreams_hold(all, config, &config->routes[i], &gate->upstreams[i], err);
    }
    if (status == OK && config->otherwise != NULL) {
        status = upstreams_hold(all, config, config->otherwise, &gate->upstreams[count], err);
    }
    return status;
}

/* A field's value. Whatever else is in the file would be sent, or end the field. */
static enum status read_credential(const char *path, struct buf *out, struct err *err)
{
    static const char what[] = "authorization file";
    enum status status = secret_read(what, path, out, err);
    if (status != OK) {
        return status;
    }
    out->len = secret_line(buf_view(out)).len;
    for (size_t i = 0; i < out->len; i++) {
        if (!http_is(out->data[i], HTTP_VALUE)) {
            return err_set(err, E_INVALID, "%s '%s' is not one line of text", what, path);
        }
    }
    return out->len > 0 ? OK : err_set(err, E_INVALID, "%s '%s' is empty", what, path);
}

static enum status gate_credentials(struct gateway *gateway, struct gate *gate, struct err *err)
{
    const struct config_gateway *config = gate->gateway;
    enum status status = OK;
    gate->credentials =
        mem_zalloc(gateway->mem, config->route_count + 1, sizeof *gate->credentials);
    if (gate->credentials == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    for (size_t i = 0; status == OK && i < config->route_count; i++) {
        const struct config_reconcile *reconcile = &config->routes[i].reconcile;
        if (reconcile->get != NULL && reconcile->authorization_file != NULL) {
            buf_init(&gate->credentials[i], gateway->mem, GATEWAY_CREDENTIAL_BYTES_MAX);
            status = read_credential(reconcile->authorization_file, &gate->credentials[i], err);
        }
    }
    return status;
}

static enum status gate_new(
    struct gateway *gateway, struct config *config, struct gate **ret_gate, struct err *err)
{
    struct gate *gate = mem_zalloc(gateway->mem, 1, sizeof *gate);
    if (gate == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    gate->config = config_hold(config);
    gate->gateway = &config->gateway;
    gate->holders = 1;
    enum status status = principals_new(gateway->mem, gate->gateway, &gate->principals, err);
    status = status == OK ? gate_credentials(gateway, gate, err) : status;
    status = status == OK ? gate_upstreams(gateway, gate, err) : status;
    if (status != OK) {
        gate_free(gateway, gate);
        return status;
    }
    *ret_gate = gate;
    return OK;
}

struct gate *gate_take(struct gateway *gateway)
{
    (void)pthread_mutex_lock(&gateway->lock);
    struct gate *gate = gateway->gate;
    gate->holders++;
    (void)pthread_mutex_unlock(&gateway->lock);
    return gate;
}

void gate_hold(struct gateway *gateway, struct gate *gate)
{
    (void)pthread_mutex_lock(&gateway->lock);
    ASSERT(gate->holders > 0);
    gate->holders++;
    (void)pthread_mutex_unlock(&gateway->lock);
}

void gate_drop(struct gateway *gateway, struct gate *gate)
{
    (void)pthread_mutex_lock(&gateway->lock);
    ASSERT(gate->holders > 0);
    bool is_last = --gate->holders == 0;
    (void)pthread_mutex_unlock(&gateway->lock);
    if (is_last) {
        gate_free(gateway, gate);
    }
}

enum status gateway_reload(struct gateway *gateway, struct config *config, struct err *err)
{
    struct gate *gate;
    enum status status = gate_new(gateway, config, &gate, err);
    if (status != OK) {
        return status;
    }
    (void)pthread_mutex_lock(&gateway->lock);
    struct gate *before = gateway->gate;
    gateway->gate = gate;
    (void)pthread_mutex_unlock(&gateway->lock);
    gate_drop(gateway, before);
    schedule_wake(gateway); /* it may have what the one before had not: something to ask */
    return OK;
}

/* ---- beginning and end --------------------------------------------------------------------- */

static void cut_here(struct net_task *task)
{
    struct gateway_loop *mine = (struct gateway_loop *)(void *)task;
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

bool gateway_is_idle(const struct gateway *gateway)
{
    /* In this order: what is not busy asks the engine nothing more, and drops no upstream. */
    return atomic_load(&gateway->busy) == 0 && atomic_load(&gateway->in_engine) == 0 &&
           upstreams_is_idle(gateway->upstreams);
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
    atomic_init(&gateway->is_cut, false);
    atomic_init(&gateway->busy, 0);
    atomic_init(&gateway->in_engine, 0);
    (void)pthread_mutex_init(&gateway->lock, NULL);
    gateway->own = mem_zalloc(mem, options->loops, sizeof *gateway->own);
    for (unsigned i = 0; gateway->own != NULL && i < options->loops; i++) {
        gateway->own[i].cut.run = cut_here;
        gateway->own[i].gateway = gateway;
        gateway->own[i].loop = i;
        gateway->own[i].random_at = RANDOM_BYTES;
    }
    enum status status = gateway->own == NULL ? err_set(err, E_NOMEM, "out of memory") : OK;
    status = status == OK ? upstreams_new(mem, options->loops, &gateway->upstreams, err) : status;
    status = status == OK ? schedule_new(gateway, &gateway->schedule, err) : status;
    status = status == OK ? gate_new(gateway, options->config, &gateway->gate, err) : status;
    if (status != OK) {
        gateway_free(gateway);
        return status;
    }
    *ret_gateway = gateway;
    return OK;
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
    ASSERT(gateway->gate == NULL || gateway->gate->holders == 1); /* the server is gone */
    ASSERT(gateway->upstreams == NULL || gateway_is_idle(gateway));
    ASSERT(gateway->questions == NULL);
    metrics_upstreams(door_metrics(gateway->door), NULL, NULL);
    schedule_free(gateway->schedule);
    if (gateway->upstreams != NULL) {
        upstreams_attach(gateway->upstreams, NULL); /* no loop is left to close anything on */
    }
    gate_free(gateway, gateway->gate);
    upstreams_free(gateway->upstreams);
    (void)pthread_mutex_destroy(&gateway->lock);
    mem_free(gateway->mem, gateway->own);
    mem_free(gateway->mem, gateway);
}

/* ---- the way in ---------------------------------------------------------------------------- */

static void pass_check(const struct pass *pass)
{
    bool has_up = pass->state == PASS_FORWARDED || pass->state == PASS_STREAMING;
    bool may_up = has_up || pass->state == PASS_SEALING || pass->state == PASS_RELAYED;
    ASSERT(!pass->is_up || may_up);                                         /* G2 */
    ASSERT(!pass->is_up || pass->state == PASS_RELAYED || pass->fence > 0); /* G2, P6 */
}

void pass_move(struct pass *pass, enum pass_state state)
{
    ASSERT(pass->state != PASS_ANSWERED);
    pass->state = state;
    pass_check(pass);
}

void pass_spool_init(struct pass *pass, struct spool *spool, uint64_t total_max)
{
    const struct config *config = pass->gate->config;
    bool is_much = atomic_load(&pass->gateway->spooled) > config->in_flight_bytes_max;
    spool_init(spool, pass->gateway->mem, pass->gateway->spool_dir,
        is_much ? 0 : config->gateway.spool_memory_bytes, total_max);
}

enum status pass_spool(struct pass *pass, struct spool *spool, struct slice piece)
{
    struct gateway *gateway = pass->gateway;
    uint64_t all = atomic_fetch_add(&gateway->spooled, piece.len) + piece.len;
    pass->spooled += piece.len; /* pass_end takes it back, whatever became of the piece */
    if (all > pass->gate->gateway->spool_bytes_max) {
        return err_limit(&pass->fault, ERR_LIMIT_SPOOL_BYTES,
            "too many bytes of bodies are on their way: gateway.spool_max is reached");
    }
    return spool_put(spool, piece, &pass->fault);
}

/* NULL: the kernel has none to give. On the loop. */
static const unsigned char *random_take(struct gateway *gateway, unsigned loop)
{
    struct gateway_loop *own = &gateway->own[loop];
    if (own->random_at == RANDOM_BYTES) {
        if (rand_bytes(own->random, RANDOM_BYTES, NULL) != OK) {
            return NULL;
        }
        own->random_at = 0;
    }
    own->random_at += TRACE_RANDOM_BYTES;
    return own->random + own->random_at - TRACE_RANDOM_BYTES;
}

enum status pass_trace(struct pass *pass)
{
    struct slice given = SLICE_EMPTY;
    if (http_find_single(pass->exchange->head, SLICE_LIT("traceparent"), &given) &&
        fields_traceparent_is_good(given)) {
        pass->traceparent = given;
        return OK;
    }
    char *text = arena_alloc(pass->exchange->arena, FIELDS_TRACEPARENT_BYTES + 1);
    if (text == NULL) {
        return E_NOMEM;
    }
    const unsigned char *random = random_take(pass->gateway, pass->exchange->loop);
    if (random != NULL) { /* else there is none */
        fields_traceparent(random, text);
        pass->traceparent = slice_of(text, FIELDS_TRACEPARENT_BYTES);
    }
    return OK;
}

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

const struct config_route *gate_route(const struct gate *gate, unsigned method, struct slice path,
    struct upstreams_one **ret_upstream)
{
    const struct config_gateway *config = gate->gateway;
    size_t which = gateway_route(config, method, path);
    *ret_upstream = gate->upstreams[which];
    return which < config->route_count ? &config->routes[which] : config->otherwise;
}

/* True: the request is fenced. */
static bool route_find(struct pass *pass)
{
    unsigned method = method_bit(pass->exchange->head->method);
    pass->route = gate_route(pass->gate, method, pass->path, &pass->upstream);
    return pass->route != NULL && pass->route != pass->gate->gateway->otherwise &&
           (pass->route->fenced & method) != 0;
}

/* Whose manners a refusal has that comes before any route is known. */
static const struct config_route *route_for_refusals(const struct config_gateway *config)
{
    static const struct config_route plain = {.profile = CONFIG_PROFILE_IETF};
    return config->route_count > 0     ? &config->routes[0]
           : config->otherwise != NULL ? config->otherwise
                                       : &plain;
}

static void pass_refuse(struct pass *pass, enum refusal_kind kind, const char *detail)
{
    if (pass->route == NULL) {
        pass->route = route_for_refusals(pass->gate->gateway);
    }
    answer_refusal_now(pass, &(struct refusal){.kind = kind, .detail = slice_str(detail)}, NULL);
}

static struct pass *pass_new(struct gateway *gateway, struct http_exchange *exchange)
{
    struct pass *pass = arena_zalloc(exchange->arena, sizeof *pass);
    if (pass == NULL) {
        return NULL;
    }
    pass->gateway = gateway;
    pass->exchange = exchange;
    pass->gate = gate_take(gateway);
    pass->mem = arena_mem(exchange->arena);
    exchange->state = pass;
    return pass;
}

void gateway_begin(struct gateway *gateway, struct http_exchange *exchange)
{
    struct pass *pass = pass_new(gateway, exchange);
    if (pass == NULL) {
        http_answer_begin(exchange, 503);
        http_answer_end(exchange, SLICE_EMPTY, SLICE_EMPTY, true);
        return;
    }
    const struct http_head *head = exchange->head;
    pass->path = http_path(head);
    enum status status =
        head->form == HTTP_FORM_ASTERISK
            ? OK
            : request_form_path(pass->path, exchange->arena, &pass->path, &pass->fault);
    if (status != OK) {
        pass_refuse(pass, status == E_NOMEM ? REFUSAL_MEMORY : REFUSAL_REQUEST,
            status == E_NOMEM ? NULL : pass->fault.text);
        return;
    }
    bool is_fenced = route_find(pass);
    if (pass->route == NULL) {
        pass_refuse(pass, REFUSAL_NO_ROUTE, NULL);
    } else if (is_fenced) {
        fence_begin(pass);
    } else {
        relay_begin(pass);
    }
}

void gateway_handle(struct gateway *gateway, struct http_exchange *exchange)
{
    struct pass *pass = exchange->state;
    ASSERT(pass->gateway == gateway);
    if (pass->state == PASS_RELAYED) {
        relay_handle(pass);
    } else {
        fence_handle(pass);
    }
}
