/* Putting a server together, and taking it apart in the opposite order. */
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "base/text.h"
#include "cli/serve.h"

_Static_assert((int)CONFIG_RIGHT_EXECUTE == (int)API_RIGHT_EXECUTE &&
                   (int)CONFIG_RIGHT_CONFIRM == (int)API_RIGHT_CONFIRM &&
                   (int)CONFIG_RIGHT_OPERATE == (int)API_RIGHT_OPERATE &&
                   (int)CONFIG_RIGHT_AUDIT == (int)API_RIGHT_AUDIT,
    "rights have the same numbers in the file and at the door");
_Static_assert(
    (int)CONFIG_LEVEL_DEBUG == (int)LOG_DEBUG && (int)CONFIG_LEVEL_ERROR == (int)LOG_ERROR,
    "levels have the same numbers in the file and in the log");

enum {
    OWN_SOCKET_MODE = 0600, /* whoever may open it is an operator */
    SOCKET_MODE = 0660,     /* others by their group */
    FILES_BESIDE = 256,     /* descriptors that are no connections: segments, loops, sockets */
};

/* ---- from the configuration -------------------------------------------------------------- */

enum status serve_policy(struct config *config, struct api_policy *ret_policy)
{
    struct api_token *tokens =
        arena_zalloc(&config->arena, (config->token_count + 1) * sizeof *tokens);
    if (tokens == NULL) {
        return E_NOMEM;
    }
    for (size_t i = 0; i < config->token_count; i++) {
        tokens[i] = (struct api_token){.sha256 = config->tokens[i].sha256,
            .tenant = config->tokens[i].tenant,
            .rights = config->tokens[i].rights,
            .name = config->tokens[i].name};
    }
    *ret_policy = (struct api_policy){.tokens = tokens,
        .token_count = config->token_count,
        .needs_token = config->has_auth,
        .body_bytes_max = config->body_bytes_max,
        .outcome_bytes_max = config->outcome_bytes_max,
        .duplicate_rate = config->duplicate_rate,
        .duplicate_burst = config->duplicate_burst,
        .logs_decisions = config->log_decisions};
    return OK;
}

/* One loop for each core that we may use. */
static unsigned loops_of(const struct config *config)
{
    cpu_set_t cores;
    if (config->loops > 0) {
        return (unsigned)config->loops;
    }
    int count = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
    return count > 0 ? (unsigned)count : 1;
}

static struct http_server_limits limits_of(const struct config *config)
{
    struct http_server_limits limits = {.message = HTTP_LIMITS_DEFAULT,
        .connections_max = (uint32_t)config->connections_max,
        .in_flight_bytes_max_mib = (uint32_t)(config->in_flight_bytes_max >> 20),
        .head_ms_max = config->head_timeout_ms,
        .body_ms_max = config->body_timeout_ms,
        .idle_ms_max = config->idle_timeout_ms,
        .write_ms_max = config->write_timeout_ms};
    limits.message.body_bytes_max = config->body_bytes_max;
    return limits;
}

/* ---- the parts --------------------------------------------------------------------------- */

/* A login gives 1024 descriptors and lets one ask for more: connections_max is to mean what it
 * says. Where the hard limit is lower, the server runs with that and says so. */
static void raise_files(struct serve *serve)
{
    struct rlimit limit;
    rlim_t wanted = (rlim_t)serve->config->connections_max + FILES_BESIDE;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) {
        return;
    }
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    int failed = setrlimit(RLIMIT_NOFILE, &limit);
    if (failed != 0 || limit.rlim_cur < wanted) {
        struct log_field fields[] = {LOG_NUMBER("files", limit.rlim_cur),
            LOG_NUMBER("connections_max", serve->config->connections_max),
            LOG_TEXT("message", SLICE_LIT("the limit on open files is below connections_max; raise "
                                          "LimitNOFILE or ulimit -n"))};
        log_event(serve->log, LOG_WARN, "few_files", fields, 3);
    }
}

static enum status open_log(struct serve *serve, struct err *err)
{
    const struct config *config = serve->config;
    bool is_terminal = isatty(STDERR_FILENO) != 0;
    struct log_options options = {.fd = STDERR_FILENO,
        .level = (enum log_level)config->log_level,
        .is_human = config->log_format == CONFIG_FORMAT_HUMAN ||
                    (config->log_format == CONFIG_FORMAT_AUTO && is_terminal),
        .is_coloured = is_terminal && getenv("NO_COLOR") == NULL};
    return log_new(&options, &serve->log, err);
}

static void describe_writes(struct serve *serve, struct store *store, const char *dir)
{
    struct journal_info info;
    if (dir == NULL || journal_info(store, &info, NULL) != OK) {
        (void)snprintf(
            serve->writes, sizeof serve->writes, "in memory: nothing outlives this process");
        return;
    }
    int used = snprintf(serve->writes, sizeof serve->writes, "%s",
        info.direct ? "direct (O_DIRECT and O_DSYNC)" : "buffered (pwrite and fdatasync)");
    uint64_t nanos = serve_flush_nanos(dir);
    if (nanos > 0) {
        (void)snprintf(serve->writes + used, sizeof serve->writes - (size_t)used,
            ", a flush takes about %.2f ms", (double)nanos / 1e6);
    }
}

static enum status open_engine(struct serve *serve, const char *dir, struct err *err)
{
    const struct config *config = serve->config;
    struct store_options how = {.retain_ms = config->retain_ms};
    struct engine_options options = {
        .checkpoint_every_ms = config->checkpoint_every_ms, .keys_max = config->keys_max};
    struct store *store = NULL;
    enum status status = store_open(config->store, &how, &store, err);
    if (status != OK) {
        return status;
    }
    store->ops->head(store, &serve->head);
    describe_writes(serve, store, dir);
    return engine_new(store, &options, &serve->engine, err);
}

static enum status open_door(struct serve *serve, struct err *err)
{
    struct door_options options = {
        .engine = serve->engine, .log = serve->log, .loops = serve->loops};
    return door_new(&options, &serve->door, err);
}

/* The doors are made after the addresses are bound, because they have to know their numbers. */
static bool is_for_gateway(const struct serve *serve, const struct http_exchange *exchange)
{
    return serve->gateway != NULL && exchange->listener >= serve->gateway_first;
}

static void begin(void *context, struct http_exchange *exchange)
{
    struct serve *serve = context;
    if (is_for_gateway(serve, exchange)) {
        gateway_begin(serve->gateway, exchange);
    }
}

static void handle(void *context, struct http_exchange *exchange)
{
    struct serve *serve = context;
    if (is_for_gateway(serve, exchange)) {
        gateway_handle(serve->gateway, exchange);
    } else {
        api_handle(serve->api, exchange);
    }
}

static void turn(void *context, unsigned loop)
{
    struct serve *serve = context;
    door_turn(serve->door, loop);
}

static void end(void *context, unsigned loop)
{
    struct serve *serve = context;
    if (serve->gateway != NULL) {
        gateway_end(serve->gateway, loop);
    }
}

/* The operator's door: a socket in the data directory, for whoever may open the directory. */
static enum status listen_own(struct serve *serve, const char *dir, struct err *err)
{
    char address[sizeof serve->own_path + 8];
    const char *text = NULL;
    serve->own_listener = UINT_MAX;
    if (dir == NULL) {
        return OK;
    }
    int len = snprintf(serve->own_path, sizeof serve->own_path, "%s/once.sock", dir);
    if (len < 0 || (size_t)len >= sizeof((struct sockaddr_un *)0)->sun_path) {
        struct log_field fields[] = {LOG_TEXT("directory", slice_str(dir)),
            LOG_TEXT("message", SLICE_LIT("the path of the data directory is too long for a "
                                          "socket in it; use --server with the other commands"))};
        log_event(serve->log, LOG_WARN, "no_own_socket", fields, 2);
        serve->own_path[0] = '\0';
        return OK;
    }
    (void)snprintf(address, sizeof address, "unix:%s", serve->own_path);
    return http_server_listen(
        serve->server, address, OWN_SOCKET_MODE, NULL, &serve->own_listener, &text, err);
}

static enum status listen_all(struct serve *serve, struct err *err)
{
    const struct config *config = serve->config;
    struct http_tls_options tls = {.cert_file = config->tls_cert, .key_file = config->tls_key};
    enum status status = OK;
    for (size_t i = 0; status == OK && i < config->listen_count; i++) {
        bool is_unix = config_address(config->listen[i]) == CONFIG_ADDRESS_UNIX;
        unsigned number = 0;
        status = http_server_listen(serve->server, config->listen[i], SOCKET_MODE,
            config->tls_cert == NULL || is_unix ? NULL : &tls, &number, &serve->bound[i], err);
    }
    return status;
}

/* Behind all of the API's: is_for_gateway goes by the number. */
static enum status listen_gateway(struct serve *serve, struct err *err)
{
    const struct config_gateway *gateway = &serve->config->gateway;
    struct http_tls_options tls = {.cert_file = gateway->tls_cert, .key_file = gateway->tls_key};
    enum status status = OK;
    for (size_t i = 0; gateway->is_on && status == OK && i < gateway->listen_count; i++) {
        bool is_unix = config_address(gateway->listen[i]) == CONFIG_ADDRESS_UNIX;
        unsigned number = 0;
        status = http_server_listen(serve->server, gateway->listen[i], SOCKET_MODE,
            gateway->tls_cert == NULL || is_unix ? NULL : &tls, &number, &serve->gateway_bound[i],
            err);
        serve->gateway_first = i == 0 ? number : serve->gateway_first;
    }
    return status;
}

static enum status open_gateway(struct serve *serve, const char *dir, struct err *err)
{
    const struct config_gateway *config = &serve->config->gateway;
    if (!config->is_on) {
        return OK;
    }
    struct gateway_options options = {.door = serve->door,
        .config = serve->config,
        .loops = serve->loops,
        .spool_dir = config->spool_dir != NULL ? config->spool_dir
                     : dir != NULL             ? dir
                                               : "/tmp"};
    enum status status = gateway_new(&options, &serve->gateway, err);
    if (status == OK) {
        gateway_attach(serve->gateway, serve->server);
    }
    return status;
}

static enum status open_server(struct serve *serve, const char *dir, struct err *err)
{
    struct http_server_options options = {.loops = serve->loops,
        .limits = limits_of(serve->config),
        .begin = begin,
        .handle = handle,
        .turn = turn,
        .end = end,
        .context = serve};
    enum status status = http_server_new(&options, &serve->server, err);
    status = status == OK ? listen_own(serve, dir, err) : status;
    status = status == OK ? listen_all(serve, err) : status;
    return status == OK ? listen_gateway(serve, err) : status;
}

static enum status open_doors(struct serve *serve, const char *dir, struct err *err)
{
    struct api_options options = {
        .door = serve->door, .own_listener = serve->own_listener, .store = serve->config->store};
    if (serve_policy(serve->config, &options.policy) != OK) {
        return err_set(err, E_NOMEM, "out of memory for the tokens");
    }
    enum status status = api_new(&options, &serve->api, err);
    if (status == OK) {
        api_attach(serve->api, serve->server);
        status = open_gateway(serve, dir, err);
    }
    if (status == OK) {
        status = http_server_start(serve->server, err);
        serve->is_started = status == OK;
    }
    return status;
}

/* A wrong address or URL is the configuration's fault, whoever found it. */
static int fail_open(const struct err *err)
{
    int code = cli_fail_err(err);
    return err->status == E_INVALID ? CLI_CONFIG : code;
}

int serve_open(struct serve *serve)
{
    struct err err = {0};
    const char *dir = cli_store_dir(serve->cli, serve->config->store);
    serve->loops = loops_of(serve->config);
    serve->own_listener = UINT_MAX;
    probe_init(&serve->probe);
    enum status status = open_log(serve, &err);
    raise_files(serve);
    status = status == OK ? open_engine(serve, dir, &err) : status;
    status = status == OK ? open_door(serve, &err) : status;
    status = status == OK ? open_server(serve, dir, &err) : status;
    status = status == OK ? open_doors(serve, dir, &err) : status;
    return status == OK ? CLI_OK : fail_open(&err);
}

static bool is_quiet(struct serve *serve)
{
    struct http_server_stats stats;
    http_server_stats(serve->server, &stats);
    return stats.in_flight == 0 && (serve->gateway == NULL || gateway_is_idle(serve->gateway));
}

/* Until the engine has answered what was still asked of it: an exchange stays until then, even when
 * its client is gone, and so does a question of the gateway's. A stopped engine answers too. */
static void end_exchanges(struct serve *serve)
{
    engine_end_waits(serve->engine);
    if (!serve->is_drained) {
        (void)http_server_drain(serve->server, 0); /* whoever had to be waited for, was */
    }
    if (serve->gateway != NULL) {
        gateway_cut(serve->gateway); /* what was sent and not answered becomes unknown, durably */
    }
    while (!is_quiet(serve)) {
        cli_sleep_ms(1);
    }
}

int serve_close(struct serve *serve)
{
    struct err err = {0};
    if (serve->is_started) {
        end_exchanges(serve);
    }
    http_server_free(serve->server);
    gateway_free(serve->gateway);
    api_free(serve->api);
    door_free(serve->door);
    enum status status = engine_free(serve->engine, &err);
    log_free(serve->log);
    if (serve->started != serve->config) {
        config_free(serve->started);
    }
    config_free(serve->config);
    probe_release(&serve->probe);
    if (status != OK) {
        (void)cli_fail_err(&err);
        return CLI_INTERNAL;
    }
    return CLI_OK;
}
