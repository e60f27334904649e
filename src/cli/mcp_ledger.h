/*
 * mcp_ledger: a thread that begins and settles the calls of once mcp in a store, or through a
 * server (backend.h).
 *
 * The store is open only while jobs wait, so that several proxies, once ls and once resolve can use
 * it meanwhile. A job's answer is durable when it is back (P2).
 *
 * Threads: a ledger may serve several threads, each with its own port, on which its jobs come back.
 * The ledger's own thread does the jobs; it inherits its starter's signal mask.
 */
#ifndef ONCE_CLI_MCP_LEDGER_H
#define ONCE_CLI_MCP_LEDGER_H

#include <pthread.h>

#include "cli/cli.h"
#include "mcp/proxy.h"

struct mcp_ledger {
    struct cli cli; /* a copy with its own arena, which is cleared whenever the store is closed */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    struct mcp_job *waiting; /* under mutex, like the next one; first in, first out */
    bool stop;
};

/* Where the jobs of one thread come back. */
struct mcp_ledger_port {
    struct mcp_ledger *ledger;
    struct mcp_job *done; /* under the ledger's mutex */
    int readable;         /* an eventfd: jobs are done */
};

/* 0 or an errno. */
int mcp_ledger_start(struct mcp_ledger *ledger, const struct cli *cli) MUST_CHECK;
/* Returns when every submitted job is done. */
void mcp_ledger_stop(struct mcp_ledger *ledger);

/* 0 or an errno. */
int mcp_ledger_port_open(struct mcp_ledger_port *port, struct mcp_ledger *ledger) MUST_CHECK;
/* No job may be under way. */
void mcp_ledger_port_close(struct mcp_ledger_port *port);
void mcp_ledger_submit(struct mcp_ledger_port *port, struct mcp_job *job);
/* In the order in which they were done; NULL: none. */
struct mcp_job *mcp_ledger_take_done(struct mcp_ledger_port *port);

#endif
