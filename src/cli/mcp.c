/*
 * once mcp: a proxy in front of an MCP server, which is a process or a URL. The messages are
 * src/mcp's, the store is mcp_ledger's; here the server is started and its end passed on.
 *
 * A crash of this process between
 *   the grant and the first byte to the server   leaves in_progress: unknown, though nothing ran;
 *   that and the recorded end                     leaves in_progress: unknown, and it may have run;
 *   the end and the client's answer               loses an answer only: a duplicate gets it.
 * The next call with the same key sees that this process is gone (begin.h) and is held (P5).
 */
#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/limits.h"
#include "cli/backend.h"
#include "cli/child.h"
#include "cli/headers.h"
#include "cli/mcp_listen.h"
#include "cli/mcp_serve.h"
#include "cli/serve_config.h"
#include "mcp/pump.h"

struct mcp {
    struct cli *cli;
    struct mcp_setup setup;
    struct mcp_ledger_port port;
    struct child child;     /* the server, if it is a process */
    struct headers headers; /* for a server that is a URL, like the next one */
    int signal;             /* that ended us; 0: none */
    struct mcp_proxy proxy;
};

static void submit(void *context, struct mcp_job *job)
{
    mcp_ledger_submit(&((struct mcp *)context)->port, job);
}

static struct mcp_job *take_done(void *context)
{
    return mcp_ledger_take_done(&((struct mcp *)context)->port);
}

static bool has_ended(void *context)
{
    struct mcp *mcp = context;
    child_take_signals(&mcp->child);
    return mcp->child.ended;
}

static bool must_end(void *context)
{
    struct mcp *mcp = context;
    int number = child_pending_signal();
    mcp->signal = number > 0 ? number : mcp->signal;
    return mcp->signal > 0;
}

static int read_policy(struct mcp *mcp)
{
    struct serve_file file;
    const char *path = cli_text(mcp->cli, "config");
    if (path == NULL) {
        return CLI_OK;
    }
    int code = serve_config_file(path, &file);
    mcp->setup.config = file.config;
    serve_faults_say(
        path, code != CLI_OK || file.config == NULL ? &file.faults : &file.config->warnings);
    if (code == CLI_OK && file.is_policy) {
        cli_say("'%s' is a policy file, not a configuration", path);
        return CLI_CONFIG;
    }
    if (code == CLI_OK) {
        mcp->setup.policy = file.config->mcp;
    }
    return code;
}

static int start_failed(const struct mcp *mcp, int errno_value)
{
    const char *name = mcp->cli->operands[0];
    cli_say("cannot run '%s': %s", name,
        errno_value == ENOENT ? "command not found" : strerror(errno_value));
    return errno_value == ENOENT                            ? CLI_RUN_NOT_FOUND
           : errno_value == ENOMEM || errno_value == EAGAIN ? CLI_RUN_FAILED
                                                            : CLI_RUN_NOT_EXECUTABLE;
}

static int end_of(const struct child *child)
{
    return WIFSIGNALED(child->wait_status) ? 128 + WTERMSIG(child->wait_status)
                                           : WEXITSTATUS(child->wait_status);
}

static struct pump_options pump_options_of(struct mcp *mcp)
{
    return (struct pump_options){.from_client = STDIN_FILENO,
        .to_client = STDOUT_FILENO,
        .from_server = -1,
        .to_server = -1,
        .ledger = mcp->port.readable,
        .take_done = take_done,
        .now_ms = mcp_setup_now_ms,
        .context = mcp};
}

/* Start the server, and stay between it and the client until it ends. */
static int serve_command(struct mcp *mcp, const sigset_t *before)
{
    struct err err = {.status = OK};
    struct pump_options options = pump_options_of(mcp);
    int failed = child_start_piped(&mcp->child, mcp->cli->operands, before, &options.to_server);
    if (failed != 0) {
        return start_failed(mcp, failed);
    }
    options.from_server = mcp->child.streams[0].from;
    options.signals = mcp->child.signals;
    options.has_ended = has_ended;
    mcp->child.streams[0].from = -1; /* the pump's */
    enum status status = pump_run(&mcp->proxy, &options, &err);
    int code = status == OK ? end_of(&mcp->child) : (cli_fail_err(&err), CLI_RUN_FAILED);
    child_release(&mcp->child);
    return code;
}

/* The same with a server that runs elsewhere, until the client goes or a signal comes. */
static int serve_url(struct mcp *mcp)
{
    struct err err = {.status = OK};
    struct mcp_http_options http = {.proxy = &mcp->proxy,
        .url = cli_text(mcp->cli, "upstream"),
        .cacert = cli_text(mcp->cli, "cacert"),
        .headers = mcp->headers.lines};
    struct pump_options options = pump_options_of(mcp);
    options.signals = child_signals_open();
    options.has_ended = must_end;
    enum status status = options.signals < 0
                             ? err_errno(&err, E_UNAVAILABLE, errno, "cannot wait for signals")
                             : mcp_http_new(&http, &options.http, &err);
    status = status != OK ? status : pump_run(&mcp->proxy, &options, &err);
    mcp_http_free(options.http);
    if (options.signals >= 0) {
        (void)close(options.signals); /* a signalfd has nothing to lose */
    }
    if (status != OK) {
        (void)cli_fail_err(&err);
        return CLI_RUN_FAILED;
    }
    return mcp->signal > 0 ? 128 + mcp->signal : CLI_OK;
}

/* One client, on standard input and output. */
static int serve_client(struct mcp *mcp)
{
    const char *upstream = cli_text(mcp->cli, "upstream");
    struct mcp_proxy_options options = mcp_setup_proxy(&mcp->setup);
    options.principal = cli_text(mcp->cli, "principal");
    options.submit = submit;
    options.context = mcp;
    int failed = mcp_ledger_port_open(&mcp->port, &mcp->setup.ledger);
    if (failed != 0) {
        cli_say("cannot make a descriptor: %s", strerror(failed));
        return CLI_RUN_FAILED;
    }
    proxy_init(&mcp->proxy, &options);
    int code = upstream == NULL ? serve_command(mcp, &mcp->setup.before) : serve_url(mcp);
    mcp_setup_settle(&mcp->proxy, &mcp->port);
    proxy_release(&mcp->proxy);
    mcp_ledger_port_close(&mcp->port);
    return code;
}

static int run(struct mcp *mcp)
{
    bool is_listening = cli_text(mcp->cli, "listen") != NULL;
    mcp->setup.cli = mcp->cli;
    mcp->setup.headers = &mcp->headers;
    int code = mcp_setup_start(&mcp->setup);
    if (code == CLI_OK) {
        code = is_listening ? mcp_listen(&mcp->setup) : serve_client(mcp);
        mcp_setup_stop(&mcp->setup);
    }
    return code;
}

/* libcurl sends header lines as they are: one with a line end in it would be two. */
static int check_headers(struct mcp *mcp)
{
    for (size_t i = 0; i < mcp->headers.count; i++) {
        const char *line = mcp->headers.lines[i];
        const char *colon = strchr(line, ':');
        bool is_fine = colon != NULL && colon > line;
        for (const char *at = line; is_fine && *at != '\0'; at++) {
            is_fine = ((unsigned char)*at >= ' ' && *at != 0x7f) || *at == '\t';
        }
        if (!is_fine) {
            return cli_usage(mcp->cli, "mcp: a header is 'Name: value', in one line");
        }
    }
    return CLI_OK;
}

/* A command or a URL, and not both. */
static int check_server(struct mcp *mcp)
{
    const char *url = cli_text(mcp->cli, "upstream");
    if (cli_flag(mcp->cli, "serve")) {
        bool has_policy = cli_text(mcp->cli, "config") != NULL &&
                          cli_text(mcp->cli, "listen") == NULL; /* that needs its tokens */
        bool is_alone = url == NULL && mcp->cli->operand_count == 0 && !has_policy &&
                        cli_nth(mcp->cli, "header", 0) == NULL;
        return is_alone
                   ? CLI_OK
                   : cli_usage(mcp->cli, "mcp: --serve has no server behind it, and no policy");
    }
    if ((url != NULL) == (mcp->cli->operand_count > 0)) {
        return cli_usage(mcp->cli, "mcp: the server is a command, --upstream URL or --serve");
    }
    if (url != NULL && strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) {
        return cli_usage(mcp->cli, "mcp: --upstream is a URL, such as https://mcp.example/mcp");
    }
    if (url == NULL && cli_nth(mcp->cli, "header", 0) != NULL) {
        return cli_usage(mcp->cli, "mcp: --header is for --upstream");
    }
    int code = headers_read(mcp->cli, &mcp->headers);
    return code == CLI_OK ? check_headers(mcp) : code;
}

int cmd_mcp(struct cli *cli)
{
    struct mcp *mcp = arena_zalloc(&cli->arena, sizeof *mcp);
    if (mcp == NULL) {
        cli_say("out of memory");
        return CLI_RUN_FAILED;
    }
    mcp->cli = cli;
    int code = check_server(mcp);
    if (code == CLI_OK && cli_nth(cli, "origin", 0) != NULL && cli_text(cli, "listen") == NULL) {
        return cli_usage(cli, "mcp: --origin is for --listen");
    }
    if (code == CLI_OK && cli_flag(cli, "serve") && cli_text(cli, "listen") == NULL) {
        return mcp_serve(cli);
    }
    code = code == CLI_OK ? read_policy(mcp) : code;
    code = code == CLI_OK ? run(mcp) : code;
    config_free(mcp->setup.config);
    return code;
}
