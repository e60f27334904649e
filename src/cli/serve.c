/*
 * once serve, once gateway: the life of the process.
 *
 *     configuration > signals blocked > server open > start lines, READY > wait for signals
 *         SIGHUP           reload: the whole new configuration, or the old one and an error logged
 *         SIGUSR1          the log is opened again, also while draining; nothing else changes
 *         SIGTERM, SIGINT  drain > close > exit 0; a second one hurries
 *         engine stopped   an error in the log > close > exit 70, so that a supervisor restarts it
 *
 * All of this runs on the main thread. Signals are blocked before any other thread exists, so that
 * no thread is ever interrupted.
 */
#include "cli/serve.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/notify.h"
#include "cli/out.h"

enum {
    TURN_MS = 500,      /* how often to check whether the engine has stopped */
    DRAIN_TURN_MS = 50, /* how soon a second signal is noticed */
    NANOS_PER_MS = 1000000,
};

/* ---- signals ----------------------------------------------------------------------------- */

static void signals_block(sigset_t *ret_set)
{
    (void)sigemptyset(ret_set);
    (void)sigaddset(ret_set, SIGHUP);
    (void)sigaddset(ret_set, SIGTERM);
    (void)sigaddset(ret_set, SIGINT);
    (void)sigaddset(ret_set, SIGUSR1);
    (void)signal(SIGPIPE, SIG_IGN); /* writing to a closed connection must be an error */
    (void)pthread_sigmask(SIG_BLOCK, ret_set, NULL);
}

/* The signal that arrived within the time; 0: none. */
static int signal_wait(const sigset_t *set, int64_t ms)
{
    struct timespec limit = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * NANOS_PER_MS};
    int got = sigtimedwait(set, NULL, &limit);
    return got > 0 ? got : 0;
}

/* ---- open and close ---------------------------------------------------------------------- */

int serve_open(struct serve *serve)
{
    struct err err = {0};
    enum status status = serve_log_open(&serve->log, serve->config, &err);
    struct server_options options = {.config = serve->config, .log = serve->log.log};
    status = status == OK ? server_open(&options, &serve->server, &err) : status;
    if (status == OK) {
        return CLI_OK;
    }
    serve_log_close(&serve->log);
    int code = cli_fail_err(&err);
    /* An invalid address or URL is a configuration error, wherever it is found. */
    return status == E_INVALID ? CLI_CONFIG : code;
}

int serve_close(struct serve *serve)
{
    struct err err = {0};
    enum status status = server_close(serve->server, &err);
    serve_log_close(&serve->log);
    if (status != OK) {
        (void)cli_fail_err(&err);
        return CLI_INTERNAL;
    }
    return CLI_OK;
}

/* ---- reload ------------------------------------------------------------------------------ */

static void log_text(struct serve *serve, enum log_level level, const char *event, const char *text)
{
    struct log_field fields[] = {LOG_TEXT("message", slice_str(text))};
    log_event(serve->log.log, level, event, fields, 1);
}

static void log_faults(struct serve *serve, enum log_level level, const char *event,
    const struct config_faults *faults)
{
    struct slice file = slice_str(cli_text(serve->cli, "config"));
    for (size_t i = 0; i < faults->count; i++) {
        const struct config_fault *fault = &faults->items[i];
        struct slice own = fault->file == NULL ? file : slice_str(fault->file);
        struct log_field fields[] = {LOG_TEXT("file", own), LOG_NUMBER("line", fault->line),
            LOG_NUMBER("column", fault->column), LOG_TEXT("message", slice_str(fault->text)),
            LOG_TEXT("hint", slice_str(fault->hint))};
        log_event(serve->log.log, level, event, fields, 5);
    }
}

static void reload(struct serve *serve)
{
    struct config *config = NULL;
    struct config_faults faults = {.count = 0};
    struct err err = {0};
    notify_reloading();
    int code = serve_config(serve->cli, &config, &faults);
    if (code != CLI_OK) {
        log_faults(serve, LOG_ERROR, "config_fault", &faults);
        server_reload_failed(serve->server);
        (void)err_set(
            &err, E_INVALID, "the new configuration is invalid; the old one stays in use");
    }
    if (code == CLI_OK && server_reload(serve->server, config, &err) == OK) {
        log_faults(serve, LOG_WARN, "config_warning", &config->warnings);
        notify_say("READY=1\nSTATUS=serving");
    } else {
        struct log_field fields[] = {
            LOG_TEXT("message", slice_str(err.text)), LOG_TEXT("hint", slice_str(err.hint))};
        log_event(serve->log.log, LOG_ERROR, "reload_failed", fields, 2);
        notify_say("READY=1\nSTATUS=reload failed: the old configuration stays in use");
    }
    config_free(config);
}

/* ---- the end ----------------------------------------------------------------------------- */

/* A drain in progress, on a separate thread so that a second signal is noticed. */
struct draining {
    struct server *server;
    _Atomic bool is_over;
};

static void *drain_main(void *context)
{
    struct draining *draining = context;
    (void)server_drain(draining->server); /* the log reports the result */
    atomic_store(&draining->is_over, true);
    return NULL;
}

/* Let requests in flight end, for the configured time, or until a second signal. */
static void drain(struct serve *serve, const sigset_t *signals)
{
    struct draining draining = {.server = serve->server};
    pthread_t thread;
    notify_say("STOPPING=1\nSTATUS=draining");
    if (pthread_create(&thread, NULL, drain_main, &draining) != 0) {
        (void)drain_main(&draining); /* then a second signal cannot shorten it */
        return;
    }
    while (!atomic_load(&draining.is_over)) {
        int got = signal_wait(signals, DRAIN_TURN_MS);
        if (got == SIGTERM || got == SIGINT) {
            server_hurry(serve->server);
        } else if (got == SIGUSR1) {
            serve_log_reopen(&serve->log);
        }
    }
    (void)pthread_join(thread, NULL);
}

/* ---- the life ---------------------------------------------------------------------------- */

/* Whether the engine has stopped for good. Then only a restart reads the truth (P11). */
static bool engine_stopped(struct serve *serve)
{
    struct err err = {0};
    if (!server_failure(serve->server, &err)) {
        return false;
    }
    struct log_field fields[] = {LOG_TEXT("message", slice_str(err.text)),
        LOG_TEXT("hint", SLICE_LIT("nothing more is granted until once serve is restarted"))};
    log_event(serve->log.log, LOG_ERROR, "engine_stopped", fields, 2);
    notify_say("STATUS=the store failed: %s", err.text);
    return true;
}

/* Log when the store cannot be reached and when it can be again: once each, not for every
 * request. */
static void watch_store(struct serve *serve)
{
    struct err err = {0};
    bool is_away = server_store_away(serve->server, &err);
    if (is_away == serve->is_store_away) {
        return;
    }
    serve->is_store_away = is_away;
    if (is_away) {
        struct log_field fields[] = {LOG_TEXT("message", slice_str(err.text)),
            LOG_TEXT("hint", SLICE_LIT("nothing is granted until the store answers again"))};
        log_event(serve->log.log, LOG_ERROR, "store_away", fields, 2);
        notify_say("STATUS=the store cannot be reached: %s", err.text);
    } else {
        log_text(serve, LOG_INFO, "store_back", "the store answers again");
        notify_say("STATUS=serving");
    }
}

/* A quarter of the supervisor's interval: two turns to ask and to get the answer, and one to
 * spare. */
static int64_t turn_ms(const struct serve *serve)
{
    int64_t quarter = serve->watchdog_ms / 4;
    quarter = quarter < 1 ? 1 : quarter;
    return serve->watchdog_ms > 0 && quarter < TURN_MS ? quarter : TURN_MS;
}

/* Wait until the server must end. Returns the exit code. */
static int wait_for_end(struct serve *serve, const sigset_t *signals)
{
    for (;;) {
        int got = signal_wait(signals, turn_ms(serve));
        if (engine_stopped(serve)) {
            return CLI_INTERNAL;
        }
        watch_store(serve);
        if (got == SIGHUP) {
            reload(serve);
        } else if (got == SIGUSR1) {
            serve_log_reopen(&serve->log);
        } else if (got != 0) {
            drain(serve, signals);
            return CLI_OK;
        }
        if (server_answers(serve->server) && serve->watchdog_ms > 0) {
            notify_say("WATCHDOG=1");
        }
    }
}

/* The address to show to people. */
static const char *address_of(const struct serve *serve)
{
    const char *gateway = server_address(serve->server, "gateway", 0);
    return gateway != NULL ? gateway : server_address(serve->server, "api", 0);
}

static void log_start(struct serve *serve)
{
    struct log_field fields[] = {LOG_TEXT("version", slice_str(once_version())),
        LOG_TEXT("listen", slice_str(address_of(serve))),
        LOG_TEXT("store", slice_str(server_facts(serve->server)->store)),
        LOG_NUMBER("loops", server_facts(serve->server)->loops)};
    log_event(serve->log.log, LOG_INFO, "started", fields, 4);
    const char *const *caution = server_facts(serve->server)->cautions;
    for (; *caution != NULL; caution++) {
        log_text(serve, LOG_WARN, "store_caution", *caution);
    }
    log_faults(serve, LOG_WARN, "config_warning", &serve->config->warnings);
    if (serve->config->replays == CONFIG_REPLAYS_SOON && server_facts(serve->server)->dir != NULL) {
        log_text(serve, LOG_WARN, "replays_soon",
            "evidence.replays is soon: a crash may lose the entries of replays answered in the "
            "last 10 ms, and the next start says so in the evidence");
    }
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
    if (code != CLI_OK) {
        return code;
    }
    log_start(serve);
    code = serve_lines(serve);
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
        return cli_usage(cli, "--config must be a file: SIGHUP reads it again");
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
    struct serve serve = {.cli = cli, .config = config};
    code = serve_run(&serve);
    config_free(config);
    return code;
}
