/*
 * serve: what the parts of `once serve` and `once gateway` share.
 *
 * serve.c is the life of the process; serve_config.c reads its configuration, serve_log.c is
 * its log, serve_lines.c prints what it is. The server itself is src/server.
 */
#ifndef ONCE_CLI_SERVE_H
#define ONCE_CLI_SERVE_H

#include "cli/serve_config.h"
#include "cli/serve_log.h"
#include "server/server.h"

/* A server of this process. */
struct serve {
    struct cli *cli;
    struct config *config; /* what it was started with; the caller's */
    struct serve_log log;
    struct server *server;
    int64_t watchdog_ms; /* how often the supervisor wants to hear of us; 0: not at all */
    bool is_store_away;  /* as the log said last */
};

/* 0, or an exit code with the message written; then nothing is open. */
int serve_open(struct serve *serve) MUST_CHECK;
/* Stop, flush and free everything but the configuration. 0, or an exit code with the message
 * written. */
int serve_close(struct serve *serve) MUST_CHECK;

/* What it is, and what to paste first. 0, or an exit code with the message written. */
int serve_lines(struct serve *serve) MUST_CHECK;

#endif
