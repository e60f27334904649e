/*
 * once serve: the life of the server.
 *
 *     configuration > signals blocked > open > five lines, READY > wait for signals
 *         SIGHUP           reload: the new policy whole, or the old one and a loud log
 *         SIGTERM, SIGINT  drain > close > exit 0; a second one hurries
 *         engine stopped   a loud log > close > exit 70, so that a supervisor starts it anew
 *
 * All of it on the main thread. Signals are blocked before any other thread is there, so that none
 * of them is ever interrupted.
 */
#include "cli/serve.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/out.h"

enum {
    TURN_MS = 500,      /* how often to look whether the engine stopped */
    DRAIN_TURN_MS = 50, /* how soon a second signal is seen */
    NANOS_PER_MS = 1000000,
};

/* ---- signals ----------------------------------------------------------------------------- */

static void signals_block(sigset_t *ret_set)
{
    (void)sigemptyset(ret_set);
    (void)sigaddset(ret_set, SIGHUP);
    (void)sigaddset(ret_set, SIGTERM);
    (void)sigaddset(ret_set, SIGINT);
    (void)signal(SIGPIPE, SIG_IGN); /* a client that went away is an error of write */
    (void)pthread_sigmask(SIG_BLOCK, ret_set, NULL);
}

/* The signal that came within the time; 0: none. */
static int signal_wait(const sigset_t *set, int64_t ms)
{
    struct timespec limit = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * NANOS_PER_MS};
    int got = sigtimedwait(set, NULL, &limit);
    return got > 0 ? got : 0;
}

/* ---- reload ------------------------------------------------------------------------------ */

static void log_text(struct serve *serve, enum log_level level, const char *event, const char *text)
{
    struct log_field fields[] = {LOG_TEXT("message", slice_str(text))};
    log_event(serve->log, level, event, fields, 1);
}

static void log_faults(struct serve *serve, const struct config_faults *faults)
{
    struct slice file = slice_str(cli_text(serve->cli, "config"));
    for (size_t i = 0; i < faults->count; i++) {
        const struct config_fault *fault = &faults->items[i];
        struct slice own = fault->file == NULL ? file : slice_str(fault->file);
        struct log_field fields[] = {LOG_TEXT("file", own), LOG_NUMBER("line", fault->line),
            LOG_NUMBER("column", fault->column), LOG_TEXT("message", slice_str(fault->text)),
            LOG_TEXT("hint", slice_str(fault->hint))};
        log_event(serve->log, LOG_ERROR, "config_fault", fields, 5);
    }
}

/* Read everything again; NULL when something is wrong, which was logged. */
static struct config *reload_read(struct serve *serve)
{
    struct config *config = NULL;
    struct config_faults faults = {.count = 0};
    int code = serve_config(serve->cli, &config, &faults);
    /* The addresses stay as they were bound, whatever the file says now: without auth a public one
     * would stand open. */
    if (code == CLI_OK && !config->has_auth && config_is_public(serve->started)) {
        struct config_fault fault = {.hint = "restart to listen on other addresses"};
        config_fault_add(config, &faults, &fault,
            "auth is gone, but the server listens where other machines can reach it");
        code = CLI_CONFIG;
    }
    if (code != CLI_OK) {
        log_faults(serve, &faults);
        config_free(config);
        return NULL;
    }
    return config;
}

/* All of it, or nothing. */
static enum status reload_apply(struct serve *serve, struct config *config, struct err *err)
{
    struct api_policy policy;
    enum status status = serve_policy(config, &policy);
    if (status != OK) {
        return err_set(err, status, "out of memory for the tokens");
    }
    if (serve->started->tls_cert != NULL || serve->started->gateway.tls_cert != NULL) {
        status = http_server_tls_reload(serve->server, err);
    }
    if (status == OK && serve->gateway != NULL) {
        status = gateway_reload(serve->gateway, config, err);
    }
    return status == OK ? api_reload(serve->api, &policy, err) : status;
}

static void reload(struct serve *serve)
{
    struct err err = {0};
    notify_reloading();
    struct config *config = reload_read(serve);
    if (config == NULL || reload_apply(serve, config, &err) != OK) {
        log_text(serve, LOG_ERROR, "reload_failed",
            err.text[0] == '\0' ? "the configuration is wrong: the old one stays in use"
                                : err.text);
        config_free(config);
        notify_say("READY=1\nSTATUS=reload failed: the old configuration stays in use");
        return;
    }
    const char *waiting = config_needs_restart(serve->started, config);
    if (waiting != NULL) {
        struct log_field fields[] = {LOG_TEXT("setting", slice_str(waiting)),
            LOG_TEXT("message", SLICE_LIT("changed, and needs a restart to take effect"))};
        log_event(serve->log, LOG_WARN, "restart_needed", fields, 2);
    }
    if (serve->config != serve->started) {
        config_free(serve->config);
    }
    serve->config = config;
    struct log_field fields[] = {LOG_NUMBER("tokens", config->token_count)};
    log_event(serve->log, LOG_INFO, "reloaded", fields, 1);
    notify_say("READY=1\nSTATUS=serving");
}

/* ---- the end ----------------------------------------------------------------------------- */

/* A drain under way, on a thread of its own so that a second signal is heard. */
struct draining {
    struct http_server *server;
    int64_t ms_max;
    _Atomic bool is_over;
    bool is_whole; /* everything was answered; once it is over */
};

static void *drain_main(void *context)
{
    struct draining *draining = context;
    draining->is_whole = http_server_drain(draining->server, draining->ms_max);
    atomic_store(&draining->is_over, true);
    return NULL;
}

/* Let what is in flight end, as long as drain says and nobody hurries us. */
static bool drain_connections(struct serve *serve, const sigset_t *signals)
{
    struct draining draining = {.server = serve->server, .ms_max = serve->config->drain_ms};
    pthread_t thread;
    if (pthread_create(&thread, NULL, drain_main, &draining) != 0) {
        (void)drain_main(&draining); /* then nobody can hurry us */
        return draining.is_whole;
    }
    while (!atomic_load(&draining.is_over)) {
        int got = signal_wait(signals, DRAIN_TURN_MS);
        if (got == SIGTERM || got == SIGINT) {
            http_server_hurry(serve->server);
        }
    }
    (void)pthread_join(thread, NULL);
    return draining.is_whole;
}

static void drain(struct serve *serve, const sigset_t *signals)
{
    notify_say("STOPPING=1\nSTATUS=draining");
    log_text(serve, LOG_INFO, "draining", "no new connections; finishing what is in flight");
    api_not_ready(serve->api, "draining");
    engine_end_waits(serve->engine);
    bool is_whole = drain_connections(serve, signals);
    serve->is_drained = true;
    log_text(serve, is_whole ? LOG_INFO : LOG_WARN, "drained",
        is_whole ? "everything was answered"
                 : "some requests were cut; their clients have to look");
}

/* ---- the life ---------------------------------------------------------------------------- */

/* Did the engine stop for good? Then only a restart reads the truth (P11). */
static bool engine_stopped(struct serve *serve)
{
    struct err err = {0};
    if (!engine_failure(serve->engine, &err)) {
        return false;
    }
    struct log_field fields[] = {LOG_TEXT("message", slice_str(err.text)),
        LOG_TEXT("hint", SLICE_LIT("nothing is granted any more; start once serve again"))};
    log_event(serve->log, LOG_ERROR, "engine_stopped", fields, 2);
    notify_say("STATUS=the store failed: %s", err.text);
    return true;
}

/* A quarter of the supervisor's patience: two turns to ask and to hear, and one to spare. */
static int64_t turn_ms(const struct serve *serve)
{
    int64_t quarter = serve->watchdog_ms / 4;
    quarter = quarter < 1 ? 1 : quarter;
    return serve->watchdog_ms > 0 && quarter < TURN_MS ? quarter : TURN_MS;
}

/* Until somebody wants the end. The exit code. */
static int wait_for_end(struct serve *serve, const sigset_t *signals)
{
    for (;;) {
        int got = signal_wait(signals, turn_ms(serve));
        if (engine_stopped(serve)) {
            return CLI_INTERNAL;
        }
        if (got == SIGHUP) {
            reload(serve);
        } else if (got != 0) {
            drain(serve, signals);
            return CLI_OK;
        }
        if (probe_turn(&serve->probe, serve->engine) && serve->watchdog_ms > 0) {
            notify_say("WATCHDOG=1");
        }
    }
}

/* The address that people come to. */
static const char *address_of(const struct serve *serve)
{
    return serve->gateway != NULL ? serve->gateway_bound[0] : serve->bound[0];
}

static void log_start(struct serve *serve)
{
    struct log_field fields[] = {LOG_TEXT("version", slice_str(once_version())),
        LOG_TEXT("listen", slice_str(address_of(serve))),
        LOG_TEXT("store", slice_str(serve->config->store)), LOG_NUMBER("loops", serve->loops)};
    log_event(serve->log, LOG_INFO, "started", fields, 4);
    if (config_is_public(serve->config) && serve->config->tls_cert == NULL) {
        log_text(serve, LOG_WARN, "no_tls",
            "other machines can reach an address without tls: tokens travel in the clear");
    }
}

static int serve_run(struct serve *serve)
{
    sigset_t signals;
    signals_block(&signals);
    int code = serve_open(serve);
    if (code == CLI_OK) {
        log_start(serve);
        code = serve_lines(serve);
    }
    if (code == CLI_OK) {
        serve->watchdog_ms = notify_watchdog_ms();
        notify_say("READY=1\nSTATUS=serving on %s", address_of(serve));
        code = wait_for_end(serve, &signals);
    }
    int closed = serve_close(serve);
    return code == CLI_OK ? closed : code;
}

int cmd_gateway(struct cli *cli)
{
    return cmd_serve(cli);
}

int cmd_serve(struct cli *cli)
{
    struct config_faults faults = {.count = 0};
    struct config *config = NULL;
    const char *path = cli_text(cli, "config");
    if (path != NULL && strcmp(path, "-") == 0) {
        return cli_usage(cli, "--config has to be a file: SIGHUP reads it again");
    }
    int code = serve_config(cli, &config, &faults);
    bool is_test = cli_flag(cli, "test");
    if (code != CLI_OK && !(is_test && cli->json)) {
        serve_faults_say(path, &faults);
    }
    if (is_test && (code == CLI_OK || cli->json)) {
        int shown = config == NULL ? CLI_OK : serve_config_show(cli, path, config, &faults);
        code = code == CLI_OK ? shown : code;
    }
    if (is_test || code != CLI_OK) {
        config_free(config);
        return code;
    }
    struct serve serve = {.cli = cli, .config = config, .started = config};
    return serve_run(&serve);
}
