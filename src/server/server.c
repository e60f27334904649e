/*
 * The life of a server: opened, reloaded, drained, and closed in the opposite order.
 *
 *     engine → door → HTTP server, addresses → doors → loops run … → drain → cut → loops end →
 *     doors → door → engine
 *
 * A crash anywhere leaves what the engine made durable (P2); there is nothing else to recover.
 */
#include "server/server.h"

#include <limits.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>

#include "base/check.h"
#include "base/clock.h"
#include "http/fields.h"
#include "server/impl.h"
#include "store/journal/journal.h"

enum {
    FILES_BESIDE = 256,         /* descriptors that are not connections: segments, loops, sockets */
    SERVER_BYTES_MAX = 1 << 20, /* of data that lives as long as the server: a path */
    SHOWN_BYTES_MAX = 4096,     /* of a store's URL for display */
};

/* ---- from the configuration -------------------------------------------------------------- */

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

enum status server_store_check(const char *url, struct err *err)
{
    return store_url_check(url, err);
}

const char *server_store_dir(const char *url, struct arena *arena)
{
    return store_url_dir(url, arena);
}

const char *server_store_shown(const char *url, struct arena *arena)
{
    struct buf text;
    struct slice shown = SLICE_EMPTY;
    buf_init(&text, &mem_libc, SHOWN_BYTES_MAX);
    store_url_show(&text, url);
    buf_append(&text, "", 1);
    bool fits = buf_status(&text) == OK && arena_copy(arena, buf_view(&text), &shown) == OK;
    buf_release(&text);
    return fits ? shown.data : "(a URL that does not fit)";
}

bool server_is_answer_meta(struct slice meta)
{
    return fields_is_ours(meta);
}

enum status server_answer_meta(const struct json_value *headers, struct slice type,
    struct arena *arena, struct buf *out, struct err *err)
{
    return fields_keep_listed(headers, type, arena, out, err);
}

/* A login has 1024 descriptors but may raise that: connections_max should mean what it says. If the
 * hard limit is lower, the server runs with that and logs it. */
static void raise_files(struct server *server)
{
    struct rlimit limit;
    rlim_t wanted = (rlim_t)server->config->connections_max + FILES_BESIDE;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) {
        return;
    }
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    int failed = setrlimit(RLIMIT_NOFILE, &limit);
    if (failed != 0 || limit.rlim_cur < wanted) {
        struct log_field fields[] = {LOG_NUMBER("files", limit.rlim_cur),
            LOG_NUMBER("connections_max", server->config->connections_max),
            LOG_TEXT("message", SLICE_LIT("the limit on open files is below connections_max; raise "
                                          "LimitNOFILE or ulimit -n"))};
        log_event(server->log, LOG_WARN, "few_files", fields, 3);
    }
}

/* ---- callbacks of the loops -------------------------------------------------------------- */

/* The door of an exchange: the one its listener was bound for. */
static size_t door_of(const struct server *server, const struct http_exchange *exchange)
{
    ASSERT(exchange->listener < server->listener_count);
    size_t door = server->listeners[exchange->listener].door;
    ASSERT(server->states[door] != NULL);
    return door;
}

static void begin(void *context, struct http_exchange *exchange)
{
    struct server *server = context;
    size_t door = door_of(server, exchange);
    if (server_doors[door].begin != NULL) {
        server_doors[door].begin(server->states[door], exchange);
    }
}

static void handle(void *context, struct http_exchange *exchange)
{
    struct server *server = context;
    size_t door = door_of(server, exchange);
    server_doors[door].handle(server->states[door], exchange);
}

static void turn(void *context, unsigned loop)
{
    struct server *server = context;
    door_turn(server->door, loop);
}

/* By the engine: a loop whose calls wait should lead. Slots after the loops are never nudged. */
static void nudge(void *context, unsigned slot)
{
    struct server *server = context;
    http_server_turn(server->http, slot);
}

/* By the engine, on the loop that began a flush. The threads of other slots wait for theirs. */
static bool watch(void *context, unsigned slot, int fd)
{
    struct server *server = context;
    return slot < server->facts.loops && http_server_watch(server->http, slot, fd);
}

static void end(void *context, unsigned loop)
{
    struct server *server = context;
    door_end(server->door, loop);
    for (size_t i = 0; server_doors[i].name != NULL; i++) {
        if (server->states[i] != NULL && server_doors[i].end != NULL) {
            server_doors[i].end(server->states[i], loop);
        }
    }
}

static unsigned fill(void *context, unsigned loop)
{
    struct server *server = context;
    unsigned most = 0;
    for (size_t i = 0; server_doors[i].name != NULL; i++) {
        if (server->states[i] != NULL && server_doors[i].fill != NULL) {
            unsigned filled = server_doors[i].fill(server->states[i], loop);
            most = filled > most ? filled : most;
        }
    }
    return most;
}

/* ---- open -------------------------------------------------------------------------------- */

/* How a journal writes, and how long that takes. */
static void note_way(struct server_facts *facts, enum journal_way way)
{
    struct journal_measuring how = {.directory = facts->dir, .way = way, .briefly = true};
    struct journal_speed speed = {0};
    facts->writes = SERVER_WRITES_FILES;
    facts->way = journal_way_text(way);
    if (journal_measure(&how, &speed, NULL) == OK) {
        facts->flush_ns = speed.ways[way].best_ns;
    }
}

static enum status note_facts(struct server *server, struct store *store, struct err *err)
{
    struct server_facts *facts = &server->facts;
    struct journal_info info;
    struct store_head head;
    struct store_counts counts;
    enum status status = store->ops->counts(store, STORE_KINDS_ASKED, &counts, err);
    if (status != OK) {
        return status;
    }
    store->ops->head(store, &head);
    facts->operations = counts.records;
    facts->in_progress = counts.by_status[RECORD_IN_PROGRESS];
    facts->unknown = counts.by_status[RECORD_UNKNOWN];
    facts->entries = head.seq;
    if (store->ops->shared) {
        facts->writes = SERVER_WRITES_ELSEWHERE;
    } else if (facts->dir != NULL && journal_info(store, &info, NULL) == OK) {
        note_way(facts, info.way);
    }
    return OK;
}

/* The store's cautions, kept as long as the server lives. */
static enum status note_cautions(struct server *server, struct store *store, struct err *err)
{
    const char *(*next)(struct store *, size_t) = store->ops->caution;
    size_t count = 0;
    while (next != NULL && next(store, count) != NULL) {
        count++;
    }
    const char **cautions = arena_zalloc(&server->arena, (count + 1) * sizeof *cautions);
    struct slice text = SLICE_EMPTY;
    bool fits = cautions != NULL;
    for (size_t i = 0; fits && i < count; i++) {
        const char *given = next(store, i);
        fits = arena_copy(&server->arena, slice_of(given, strlen(given) + 1), &text) == OK;
        cautions[i] = fits ? text.data : NULL;
    }
    server->facts.cautions = cautions;
    return fits ? OK : err_set(err, E_NOMEM, "out of memory");
}

static enum status open_engine(struct server *server, struct err *err)
{
    const struct config *config = server->config;
    struct store_options how = {.retain_ms = config->retain_ms};
    struct engine_options options = {.checkpoint_every_ms = config->checkpoint_every_ms,
        .keys_max = config->keys_max,
        .replays_soon = config->replays == CONFIG_REPLAYS_SOON};
    struct store *store = NULL;
    enum status status = store_open(config->store, &how, &store, err);
    if (status != OK) {
        return status;
    }
    status = note_facts(server, store, err);
    status = status == OK ? note_cautions(server, store, err) : status;
    if (status != OK) {
        (void)store->ops->close(store, NULL); /* nothing was changed */
        return status;
    }
    return engine_new(store, &options, &server->engine, err);
}

static enum status open_http(struct server *server, struct err *err)
{
    struct http_server_options options = {.loops = server->facts.loops,
        .follows_load = server->config->loops == 0,
        .limits = limits_of(server->config),
        .begin = begin,
        .handle = handle,
        .turn = turn,
        .end = end,
        .fill = fill,
        .context = server};
    return http_server_new(&options, &server->http, err);
}

/* Called after the addresses are bound, because a door may need to know them. */
static enum status open_doors(struct server *server, struct err *err)
{
    enum status status = OK;
    for (size_t i = 0; status == OK && server_doors[i].name != NULL; i++) {
        status = server_doors[i].open(server, &server->states[i], err);
    }
    return status;
}

/* The tenants and routes in the configuration have metrics from the start. */
static void expect_figures(struct server *server, const struct config *config)
{
    struct metrics *metrics = door_metrics(server->door);
    if (!config->has_auth) {
        metrics_expect(metrics, SLICE_LIT("default"), SLICE_EMPTY);
    }
    for (size_t i = 0; i < config->token_count; i++) {
        if (!slice_is(config->tokens[i].tenant, "*")) {
            metrics_expect(metrics, config->tokens[i].tenant, SLICE_EMPTY);
        }
    }
    for (size_t i = 0; config->gateway.is_on && i < config->gateway.route_count; i++) {
        const struct config_route *route = &config->gateway.routes[i];
        if (route->fenced != 0) {
            metrics_expect(metrics, slice_str(route->tenant), slice_str(route->match));
        }
    }
}

static enum status open_door(struct server *server, struct err *err)
{
    bool has_queues = server->config->inbox.queue_count > 0; /* they share a slot */
    struct door_options options = {.engine = server->engine,
        .log = server->log,
        .slots = server->facts.loops + has_queues,
        .nudge = nudge,
        .nudge_context = server,
        .watch = watch};
    enum status status = door_new(&options, &server->door, err);
    if (status == OK) {
        metrics_store(door_metrics(server->door), server->facts.dir);
        expect_figures(server, server->config);
    }
    return status;
}

static enum status open_all(struct server *server, struct err *err)
{
    raise_files(server);
    enum status status = open_engine(server, err);
    status = status == OK ? open_door(server, err) : status;
    status = status == OK ? open_http(server, err) : status;
    status = status == OK ? server_listen(server, err) : status;
    status = status == OK ? open_doors(server, err) : status;
    status = status == OK ? http_server_start(server->http, err) : status;
    server->is_started = status == OK;
    for (size_t i = 0; status == OK && server_doors[i].name != NULL; i++) {
        if (server->states[i] != NULL && server_doors[i].start != NULL) {
            server_doors[i].start(server->states[i]);
        }
    }
    return status;
}

enum status server_open(
    const struct server_options *options, struct server **ret_server, struct err *err)
{
    struct server *server = mem_zalloc(&mem_libc, 1, sizeof *server);
    if (server == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    server->config = server->started = config_hold(options->config);
    server->log = options->log;
    server->own_listener = UINT_MAX;
    arena_init(&server->arena, &mem_libc, SERVER_BYTES_MAX);
    probe_init(&server->probe);
    server->facts.loops = loops_of(server->config);
    server->facts.dir = server_store_dir(server->config->store, &server->arena);
    server->facts.store = server_store_shown(server->config->store, &server->arena);
    enum status status = open_all(server, err);
    if (status != OK) {
        (void)!server_close(server, NULL); /* the first failure is reported */
        return status;
    }
    *ret_server = server;
    return OK;
}

const struct server_facts *server_facts(const struct server *server)
{
    return &server->facts;
}

/* ---- reload ------------------------------------------------------------------------------ */

/* Everything that can fail; nothing is used yet. made has one element for each door. */
static enum status reload_prepare(
    struct server *server, struct config *config, void **made, struct err *err)
{
    enum status status = OK;
    /* The addresses stay as they were bound, whatever the file says now: without auth a public one
     * would be open to everybody. */
    if (!config->has_auth && config_is_public(server->started)) {
        (void)err_set(err, E_INVALID,
            "auth was removed, but the server listens where other machines can reach it");
        err_hint(err, "restart to listen on other addresses");
        return E_INVALID;
    }
    if (server->started->tls_cert != NULL || server->started->gateway.tls_cert != NULL) {
        status = http_server_tls_load(server->http, err);
    }
    for (size_t i = 0; status == OK && server_doors[i].name != NULL; i++) {
        if (server->states[i] != NULL && server_doors[i].reload_prepare != NULL) {
            status = server_doors[i].reload_prepare(server->states[i], config, &made[i], err);
        }
    }
    return status;
}

/* Use what was prepared, or drop it. */
static void reload_end(struct server *server, void *const *made, bool is_used)
{
    http_server_tls_switch(server->http, is_used);
    for (size_t i = 0; server_doors[i].name != NULL; i++) {
        if (made[i] != NULL) {
            server_doors[i].reload_end(server->states[i], made[i], is_used);
        }
    }
}

static void log_reloaded(const struct server *server)
{
    const char *waiting = config_needs_restart(server->started, server->config);
    if (waiting != NULL) {
        struct log_field fields[] = {LOG_TEXT("setting", slice_str(waiting)),
            LOG_TEXT("message", SLICE_LIT("changed, and needs a restart to take effect"))};
        log_event(server->log, LOG_WARN, "restart_needed", fields, 2);
    }
    struct log_field fields[] = {LOG_NUMBER("tokens", server->config->token_count)};
    log_event(server->log, LOG_INFO, "reloaded", fields, 1);
}

enum status server_reload(struct server *server, struct config *config, struct err *err)
{
    void *made[SERVER_DOORS_MAX] = {NULL};
    enum status status = reload_prepare(server, config, made, err);
    reload_end(server, made, status == OK);
    metrics_reloaded(door_metrics(server->door), status == OK);
    if (status != OK) {
        return status;
    }
    if (server->config != server->started) {
        config_free(server->config);
    }
    server->config = config_hold(config);
    expect_figures(server, config);
    log_reloaded(server);
    return OK;
}

void server_reload_failed(struct server *server)
{
    metrics_reloaded(door_metrics(server->door), false);
}

/* ---- drain ------------------------------------------------------------------------------- */

static void log_text(
    struct server *server, enum log_level level, const char *event, const char *text)
{
    struct log_field fields[] = {LOG_TEXT("message", slice_str(text))};
    log_event(server->log, level, event, fields, 1);
}

static bool is_busy(const struct server *server)
{
    bool is_busy = false;
    for (size_t i = 0; !is_busy && server_doors[i].name != NULL; i++) {
        is_busy = server->states[i] != NULL && server_doors[i].is_busy != NULL &&
                  server_doors[i].is_busy(server->states[i]);
    }
    return is_busy;
}

/* Wait for calls in progress: if they were cut now, they would be unknown. */
static bool wait_for_busy(const struct server *server)
{
    uint64_t until = clock_nanos() + (uint64_t)server->config->drain_ms * 1000000;
    while (is_busy(server) && clock_nanos() < until && !http_server_is_hurried(server->http)) {
        clock_sleep_ms(5);
    }
    return !is_busy(server);
}

bool server_drain(struct server *server)
{
    log_text(server, LOG_INFO, "draining", "no new connections; finishing what is in flight");
    for (size_t i = 0; server_doors[i].name != NULL; i++) {
        if (server->states[i] != NULL && server_doors[i].drain != NULL) {
            server_doors[i].drain(server->states[i]);
        }
    }
    engine_end_waits(server->engine);
    bool is_whole = http_server_drain(server->http, server->config->drain_ms);
    is_whole = wait_for_busy(server) && is_whole;
    server->is_drained = true;
    log_text(server, is_whole ? LOG_INFO : LOG_WARN, "drained",
        is_whole ? "everything was answered"
                 : "some requests were cut off; their clients must check");
    return is_whole;
}

void server_hurry(struct server *server)
{
    http_server_hurry(server->http);
}

/* ---- health ------------------------------------------------------------------------------ */

bool server_failure(struct server *server, struct err *err)
{
    return engine_failure(server->engine, err);
}

bool server_store_away(struct server *server, struct err *err)
{
    return engine_store_away(server->engine, err);
}

bool server_answers(struct server *server)
{
    return probe_turn(&server->probe, server->engine);
}

/* ---- close ------------------------------------------------------------------------------- */

static bool is_quiet(struct server *server)
{
    struct http_server_stats stats;
    http_server_stats(server->http, &stats);
    bool is_quiet = stats.in_flight == 0;
    for (size_t i = 0; is_quiet && server_doors[i].name != NULL; i++) {
        is_quiet = server->states[i] == NULL || server_doors[i].is_idle == NULL ||
                   server_doors[i].is_idle(server->states[i]);
    }
    return is_quiet;
}

/* Wait until the engine has answered all its calls: an exchange stays until then, even if its
 * client is gone, and so does a question of the gateway's. A stopped engine answers too. */
static void end_exchanges(struct server *server)
{
    engine_end_waits(server->engine);
    if (!server->is_drained) {
        (void)http_server_drain(server->http, 0); /* every exchange that had to be waited for has
                                                     ended */
    }
    for (size_t i = 0; server_doors[i].name != NULL; i++) {
        if (server->states[i] != NULL && server_doors[i].cut != NULL) {
            server_doors[i].cut(server->states[i]);
        }
    }
    while (!is_quiet(server)) {
        clock_sleep_ms(1);
    }
}

static void close_doors(struct server *server)
{
    for (size_t i = 0; server_doors[i].name != NULL; i++) {
        if (server->states[i] != NULL) {
            server_doors[i].close(server->states[i]);
        }
    }
}

enum status server_close(struct server *server, struct err *err)
{
    if (server == NULL) {
        return OK;
    }
    if (server->is_started) {
        end_exchanges(server);
    }
    http_server_free(server->http);
    close_doors(server);
    vault_free(server->vault);
    door_free(server->door);
    enum status status = engine_free(server->engine, err);
    if (server->started != server->config) {
        config_free(server->started);
    }
    config_free(server->config);
    probe_release(&server->probe);
    arena_release(&server->arena);
    mem_free(&mem_libc, server);
    return status;
}
