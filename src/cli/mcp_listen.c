#include "cli/mcp_listen.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/backend.h"
#include "cli/child.h"
#include "cli/holder.h"
#include "cli/mcp_serve.h"
#include "mcp/endpoint.h"
#include "mcp/pump.h"
#include "server/server.h"

enum { DRAIN_MS = 2000, LINE_BYTES_MAX = 16 << 10 };

/* ---- what all proxies have in common --------------------------------------------------------- */

int mcp_setup_start(struct mcp_setup *setup)
{
    child_block(&setup->before); /* before the ledger's thread, which inherits it */
    int failed = mcp_ledger_start(&setup->ledger, setup->cli);
    if (failed != 0) {
        cli_say("cannot start a thread: %s", strerror(failed));
        return CLI_RUN_FAILED;
    }
    buf_init(&setup->holder, &mem_libc, LIMIT_TRACE_BYTES_MAX);
    holder_put(&setup->holder);
    buf_char(&setup->holder, '\0');
    (void)backend_place_option(setup->cli, setup->resolve, sizeof setup->resolve);
    return CLI_OK;
}

void mcp_setup_stop(struct mcp_setup *setup)
{
    mcp_ledger_stop(&setup->ledger);
    buf_release(&setup->holder);
}

struct mcp_proxy_options mcp_setup_proxy(const struct mcp_setup *setup)
{
    const struct buf *holder = &setup->holder;
    return (struct mcp_proxy_options){.mem = &mem_libc,
        .policy = &setup->policy,
        .prefix = cli_text(setup->cli, "prefix"),
        .resolve = setup->resolve,
        .say = mcp_setup_say,
        .trace = buf_status(holder) == OK && holder->len > 1 ? holder->data : NULL};
}

static bool has_jobs(const struct mcp_proxy *proxy)
{
    for (const struct mcp_request *r = proxy->requests; r != NULL; r = r->next) {
        if (r->job.is_busy || r->renewal.is_busy) {
            return true;
        }
    }
    return false;
}

void mcp_setup_settle(struct mcp_proxy *proxy, struct mcp_ledger_port *port)
{
    while (has_jobs(proxy)) {
        struct pollfd fd = {.fd = port->readable, .events = POLLIN};
        (void)poll(&fd, 1, -1);
        for (struct mcp_job *job = mcp_ledger_take_done(port); job != NULL; job = job->next) {
            job->is_busy = false;
        }
    }
}

/* ---- a session ------------------------------------------------------------------------------- */

struct listening {
    struct mcp_setup *setup;
    struct api_policy policy;
    struct mcp_own_commands *submitted; /* of --serve */
};

/* What a session's thread has. */
struct session {
    struct listening *listening;
    const struct mcp_session_facts *facts;
    struct mcp_ledger_port port;
    struct mcp_proxy proxy;
    struct child child; /* of a command */
    int pidfd;
    bool was_asked;      /* the command got SIGTERM */
    char *authorization; /* a header line; NULL: none */
};

static void submit(void *context, struct mcp_job *job)
{
    mcp_ledger_submit(&((struct session *)context)->port, job);
}

static struct mcp_job *take_done(void *context)
{
    return mcp_ledger_take_done(&((struct session *)context)->port);
}

void mcp_setup_say(void *context, const char *text)
{
    (void)context;
    cli_say("%s", text);
}

int64_t mcp_setup_now_ms(void *context)
{
    (void)context;
    return cli_boot_ms();
}

static void send_line(void *context, struct slice line, struct slice about)
{
    mcp_channel_send(((struct session *)context)->facts->channel, line, about);
}

static size_t waiting(void *context)
{
    return mcp_channel_waiting(((struct session *)context)->facts->channel);
}

static bool has_ended(void *context)
{
    struct child *child = &((struct session *)context)->child;
    child->ended = child->ended || waitpid(child->pid, &child->wait_status, WNOHANG) == child->pid;
    return child->ended;
}

static void hurry(void *context)
{
    struct session *session = context;
    if (session->child.pid > 0 && !session->child.ended) {
        (void)kill(session->child.pid, session->was_asked ? SIGKILL : SIGTERM);
        session->was_asked = true;
    }
}

static struct pump_options pump_options_of(struct session *session)
{
    return (struct pump_options){.from_client = -1,
        .to_client = -1,
        .channel = session->facts->channel,
        .hurry = hurry,
        .from_server = -1,
        .to_server = -1,
        .signals = -1,
        .ledger = session->port.readable,
        .has_ended = has_ended,
        .take_done = take_done,
        .now_ms = mcp_setup_now_ms,
        .context = session};
}

static enum status serve_command(struct session *session, struct err *err)
{
    const struct mcp_setup *setup = session->listening->setup;
    struct pump_options options = pump_options_of(session);
    int failed = child_start_piped(
        &session->child, setup->cli->operands, &setup->before, &options.to_server);
    if (failed != 0) {
        session->child.pid = 0;
        return err_set(err, E_UNAVAILABLE, "cannot run '%s': %s", setup->cli->operands[0],
            failed == ENOENT ? "command not found" : strerror(failed));
    }
    session->pidfd = pidfd_open(session->child.pid, 0);
    options.from_server = session->child.streams[0].from;
    options.signals = session->pidfd;
    session->child.streams[0].from = -1; /* the pump's */
    enum status status = session->pidfd < 0
                             ? err_errno(err, E_UNAVAILABLE, errno, "cannot wait for the command")
                             : pump_run(&session->proxy, &options, err);
    if (!session->child.ended) {
        (void)kill(session->child.pid, SIGKILL); /* the pump failed */
        (void)waitpid(session->child.pid, &session->child.wait_status, 0);
    }
    if (session->pidfd >= 0) {
        (void)close(session->pidfd); /* it has nothing to lose */
    }
    child_release(&session->child);
    return status;
}

/* The client's own credentials go to the server, unless they are ours or --header has some. */
static void put_headers(struct session *session, const char *lines[HEADERS_MAX + 2])
{
    const struct headers *headers = session->listening->setup->headers;
    bool is_free = !session->listening->policy.needs_token;
    size_t count = 0;
    for (; count < headers->count; count++) {
        lines[count] = headers->lines[count];
        is_free = is_free && strncasecmp(lines[count], "authorization:", 14) != 0;
    }
    if (is_free && session->facts->authorization[0] != '\0') {
        struct buf line;
        buf_init(&line, &mem_libc, LINE_BYTES_MAX + 64);
        buf_printf(&line, "Authorization: %s", session->facts->authorization);
        buf_char(&line, '\0');
        session->authorization = buf_status(&line) == OK ? line.data : NULL;
        if (session->authorization == NULL) {
            buf_release(&line);
        } else {
            lines[count++] = session->authorization;
        }
    }
    lines[count] = NULL;
}

static enum status serve_url(struct session *session, struct err *err)
{
    const char *lines[HEADERS_MAX + 2];
    const struct cli *cli = session->listening->setup->cli;
    struct pump_options options = pump_options_of(session);
    put_headers(session, lines);
    struct mcp_http_options http = {.proxy = &session->proxy,
        .url = cli_text(cli, "upstream"),
        .cacert = cli_text(cli, "cacert"),
        .headers = lines};
    enum status status = mcp_http_new(&http, &options.http, err);
    status = status != OK ? status : pump_run(&session->proxy, &options, err);
    mcp_http_free(options.http);
    if (session->authorization != NULL) {
        mem_wipe(session->authorization, strlen(session->authorization));
        mem_free(&mem_libc, session->authorization);
    }
    return status;
}

static void serve_proxied(struct session *session)
{
    struct err err = {.status = OK};
    struct mcp_setup *setup = session->listening->setup;
    const char *principal = cli_text(setup->cli, "principal");
    struct mcp_proxy_options options = mcp_setup_proxy(setup);
    options.principal = principal == NULL ? session->facts->principal : principal;
    options.submit = submit;
    options.context = session;
    options.client = (struct mcp_client_side){send_line, waiting, session};
    if (mcp_ledger_port_open(&session->port, &setup->ledger) != 0) {
        cli_say("no descriptor is left for a session");
        return;
    }
    proxy_init(&session->proxy, &options);
    bool is_url = cli_text(setup->cli, "upstream") != NULL;
    if ((is_url ? serve_url(session, &err) : serve_command(session, &err)) != OK) {
        (void)cli_fail_err(&err);
    }
    mcp_setup_settle(&session->proxy, &session->port);
    proxy_release(&session->proxy);
    mcp_ledger_port_close(&session->port);
}

static void *session_main(void *context)
{
    struct session *session = context;
    struct mcp_channel *channel = session->facts->channel;
    const struct cli *cli = session->listening->setup->cli;
    if (cli_flag(cli, "serve")) {
        mcp_serve_session(cli, session->facts, session->listening->submitted);
    } else {
        serve_proxied(session);
    }
    mem_free(&mem_libc, session);
    mcp_channel_leave(channel); /* the last touch */
    return NULL;
}

static bool open_session(void *context, const struct mcp_session_facts *facts, struct err *err)
{
    pthread_t thread;
    pthread_attr_t attributes;
    struct session *session = mem_zalloc(&mem_libc, 1, sizeof *session);
    if (session == NULL || pthread_attr_init(&attributes) != 0) {
        mem_free(&mem_libc, session);
        (void)err_set(err, E_NOMEM, "out of memory");
        return false;
    }
    session->listening = context;
    session->facts = facts;
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int failed = pthread_create(&thread, &attributes, session_main, session);
    (void)pthread_attr_destroy(&attributes);
    if (failed != 0) {
        mem_free(&mem_libc, session);
        (void)err_set(err, E_UNAVAILABLE, "cannot start a thread: %s", strerror(failed));
        return false;
    }
    return true;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int read_origins(const struct cli *cli, const char *origins[MCP_ORIGINS_MAX + 1])
{
    size_t count = 0;
    const char *origin = NULL;
    for (; (origin = cli_nth(cli, "origin", count)) != NULL; count++) {
        size_t scheme = strncmp(origin, "http://", 7) == 0 ? 7 : 8;
        if (count == MCP_ORIGINS_MAX) {
            return cli_usage(cli, "mcp: at most %d origins can be given", MCP_ORIGINS_MAX);
        }
        if ((scheme == 8 && strncmp(origin, "https://", 8) != 0) || origin[scheme] == '\0' ||
            strchr(origin + scheme, '/') != NULL) {
            return cli_usage(
                cli, "mcp: --origin is a scheme and a host, such as https://app.example");
        }
        origins[count] = origin;
    }
    origins[count] = NULL;
    return CLI_OK;
}

/* Where it listens: other machines need a token, as with the API. */
static int check_address(const struct mcp_setup *setup, const char *address, bool *ret_local)
{
    const struct cli *cli = setup->cli;
    enum config_address kind = config_address(address);
    bool has_auth = setup->config != NULL && setup->config->has_auth;
    if (kind == CONFIG_ADDRESS_WRONG || kind == CONFIG_ADDRESS_UNIX) {
        return cli_usage(cli, "mcp: --listen is an address and a port, such as 127.0.0.1:7420");
    }
    if (kind == CONFIG_ADDRESS_PUBLIC && !has_auth) {
        cli_say("cannot listen on '%s': other machines could call tools without a token", address);
        cli_hint("listen on 127.0.0.1, or give tokens: auth: in the file of --config (once token)");
        return CLI_CONFIG;
    }
    *ret_local = kind == CONFIG_ADDRESS_LOOPBACK;
    return CLI_OK;
}

struct doorway {
    struct mcp_endpoint *endpoint;
    struct http_server *server;
};

static enum status open_door(const struct mcp_endpoint_options *options, const char *address,
    struct doorway *ret, struct err *err)
{
    unsigned listener = 0;
    const char *bound = NULL;
    enum status status = mcp_endpoint_new(options, &ret->endpoint, err);
    if (status != OK) {
        return status;
    }
    struct http_server_options server = {.loops = 1,
        .handle = mcp_endpoint_handle,
        .end = mcp_endpoint_end,
        .context = ret->endpoint};
    status = http_server_new(&server, &ret->server, err);
    status = status != OK
                 ? status
                 : http_server_listen(ret->server, address, 0, NULL, &listener, &bound, err);
    if (status == OK) {
        mcp_endpoint_attach(ret->endpoint, http_server_loop(ret->server, 0));
        status = http_server_start(ret->server, err);
    }
    if (status == OK) {
        cli_say("MCP clients connect to http://%s/mcp", bound);
    }
    return status;
}

static int listen_on(struct listening *listening, const char *address, bool is_local)
{
    const char *origins[MCP_ORIGINS_MAX + 1];
    struct err err = {.status = OK};
    struct doorway door = {.endpoint = NULL};
    const struct cli *cli = listening->setup->cli;
    int code = read_origins(cli, origins);
    if (code != CLI_OK) {
        return code;
    }
    struct mcp_endpoint_options options = {.mem = &mem_libc,
        .policy = &listening->policy,
        .rights = cli_flag(cli, "serve") ? ~0U : CONFIG_RIGHT_EXECUTE,
        .origins = origins,
        .is_local = is_local,
        .open = open_session,
        .say = mcp_setup_say,
        .context = listening};
    enum status status = open_door(&options, address, &door, &err);
    if (status == OK) {
        int number = child_await_signal();
        mcp_endpoint_stop(door.endpoint);
        (void)http_server_drain(door.server, DRAIN_MS);
        code = 128 + number;
    }
    http_server_free(door.server);
    mcp_endpoint_free(door.endpoint);
    if (status != OK) {
        (void)cli_fail_err(&err);
        return CLI_RUN_FAILED;
    }
    return code;
}

int mcp_listen(struct mcp_setup *setup)
{
    bool is_local = true;
    const char *address = cli_text(setup->cli, "listen");
    struct listening listening = {
        .setup = setup, .submitted = arena_zalloc(&setup->cli->arena, sizeof *listening.submitted)};
    int code = check_address(setup, address, &is_local);
    if (code != CLI_OK) {
        return code;
    }
    if (listening.submitted == NULL) {
        cli_say("out of memory");
        return CLI_RUN_FAILED;
    }
    if (setup->config != NULL) {
        listening.policy = server_api_policy(setup->config);
    }
    (void)pthread_mutex_init(&listening.submitted->mutex, NULL);
    return listen_on(&listening, address, is_local);
}
