/*
 * once mcp: a proxy in front of an MCP server. The messages are src/mcp's, the store is
 * mcp_ledger's; here the server is started and its end passed on.
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
#include "cli/holder.h"
#include "cli/mcp_ledger.h"
#include "cli/serve_config.h"
#include "mcp/pump.h"

struct mcp {
    struct cli *cli;
    struct config *config; /* NULL: no file */
    struct config_mcp policy;
    struct mcp_ledger ledger;
    struct child child;
    struct mcp_proxy proxy;
};

static void submit(void *context, struct mcp_job *job)
{
    mcp_ledger_submit(&((struct mcp *)context)->ledger, job);
}

static struct mcp_job *take_done(void *context)
{
    return mcp_ledger_take_done(&((struct mcp *)context)->ledger);
}

static void say(void *context, const char *text)
{
    (void)context;
    cli_say("%s", text);
}

static bool has_ended(void *context)
{
    struct mcp *mcp = context;
    child_take_signals(&mcp->child);
    return mcp->child.ended;
}

static int64_t now_ms(void *context)
{
    (void)context;
    return cli_boot_ms();
}

static int read_policy(struct mcp *mcp)
{
    struct serve_file file;
    const char *path = cli_text(mcp->cli, "config");
    if (path == NULL) {
        return CLI_OK;
    }
    int code = serve_config_file(path, &file);
    mcp->config = file.config;
    serve_faults_say(
        path, code != CLI_OK || file.config == NULL ? &file.faults : &file.config->warnings);
    if (code == CLI_OK && file.is_policy) {
        cli_say("'%s' is a policy file, not a configuration", path);
        return CLI_CONFIG;
    }
    if (code == CLI_OK) {
        mcp->policy = file.config->mcp;
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

/* The server runs: between it and the client until it ends. */
static int serve(struct mcp *mcp, int to_server)
{
    struct err err = {.status = OK};
    struct pump_options options = {.from_client = STDIN_FILENO,
        .to_client = STDOUT_FILENO,
        .from_server = mcp->child.streams[0].from,
        .to_server = to_server,
        .signals = mcp->child.signals,
        .ledger = mcp->ledger.readable,
        .has_ended = has_ended,
        .take_done = take_done,
        .now_ms = now_ms,
        .context = mcp};
    mcp->child.streams[0].from = -1; /* the pump's */
    enum status status = pump_run(&mcp->proxy, &options, &err);
    return status == OK ? end_of(&mcp->child) : (cli_fail_err(&err), CLI_RUN_FAILED);
}

/* Jobs that are still with the ledger when the pump failed come back before the proxy goes. */
static void stop(struct mcp *mcp)
{
    mcp_ledger_stop(&mcp->ledger);
    for (struct mcp_request *r = mcp->proxy.requests; r != NULL; r = r->next) {
        r->job.is_busy = r->renewal.is_busy = false;
    }
}

static int run(struct mcp *mcp)
{
    sigset_t before;
    struct buf holder;
    char resolve[512];
    int to_server = -1;
    child_block(&before); /* before the ledger's thread, which inherits it */
    int failed = mcp_ledger_start(&mcp->ledger, mcp->cli);
    if (failed != 0) {
        cli_say("cannot start a thread: %s", strerror(failed));
        return CLI_RUN_FAILED;
    }
    buf_init(&holder, &mem_libc, LIMIT_TRACE_BYTES_MAX);
    holder_put(&holder);
    buf_char(&holder, '\0');
    struct mcp_proxy_options options = {.mem = &mem_libc,
        .policy = &mcp->policy,
        .principal = cli_text(mcp->cli, "principal"),
        .prefix = cli_text(mcp->cli, "prefix"),
        .resolve = backend_place_option(mcp->cli, resolve, sizeof resolve),
        .trace = buf_status(&holder) == OK && holder.len > 1 ? holder.data : NULL,
        .submit = submit,
        .say = say,
        .context = mcp};
    proxy_init(&mcp->proxy, &options);
    failed = child_start_piped(&mcp->child, mcp->cli->operands, &before, &to_server);
    int code = failed != 0 ? start_failed(mcp, failed) : serve(mcp, to_server);
    if (failed == 0) {
        child_release(&mcp->child);
    }
    stop(mcp);
    proxy_release(&mcp->proxy);
    buf_release(&holder);
    return code;
}

int cmd_mcp(struct cli *cli)
{
    struct mcp *mcp = arena_zalloc(&cli->arena, sizeof *mcp);
    if (mcp == NULL) {
        cli_say("out of memory");
        return CLI_RUN_FAILED;
    }
    mcp->cli = cli;
    int code = read_policy(mcp);
    code = code == CLI_OK ? run(mcp) : code;
    config_free(mcp->config);
    return code;
}
