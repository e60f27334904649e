/*
 * mcp_listen: once mcp --listen: many MCP clients over HTTP, each with its own proxy, server and
 * thread; and the parts shared with the single client of standard input and output.
 */
#ifndef ONCE_CLI_MCP_LISTEN_H
#define ONCE_CLI_MCP_LISTEN_H

#include <signal.h>

#include "base/limits.h"
#include "cli/headers.h"
#include "cli/mcp_ledger.h"
#include "config/config.h"
#include "mcp/proxy.h"

/* What every proxy of this process uses. */
struct mcp_setup {
    struct cli *cli;
    struct config *config; /* NULL: no file */
    struct config_mcp policy;
    const struct headers *headers; /* for a server that is a URL */
    struct mcp_ledger ledger;
    sigset_t before;   /* the signals that were blocked at the start */
    struct buf holder; /* who holds a grant; terminated */
    char resolve[512]; /* options that once resolve needs */
};

/* 0, or an exit code after writing the message. From then on signals are blocked. */
int mcp_setup_start(struct mcp_setup *setup) MUST_CHECK;
void mcp_setup_stop(struct mcp_setup *setup);
/* For options: a line for the log, and the boot clock. context is not used. */
void mcp_setup_say(void *context, const char *text);
int64_t mcp_setup_now_ms(void *context);
/* What the options of all proxies have in common. */
struct mcp_proxy_options mcp_setup_proxy(const struct mcp_setup *setup);
/* Wait for the jobs that the ledger still has when a pump failed. */
void mcp_setup_settle(struct mcp_proxy *proxy, struct mcp_ledger_port *port);

/* Listen until a signal comes. An exit code. */
int mcp_listen(struct mcp_setup *setup);

#endif
