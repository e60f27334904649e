/*
 * serve: shared by the files of `once serve` and `once gateway`.
 *
 * serve.c has the life of the process; serve_config.c reads its configuration, serve_log.c has its
 * log, serve_lines.c prints its start lines. The server itself is in src/server.
 */
#ifndef ONCE_CLI_SERVE_H
#define ONCE_CLI_SERVE_H

#include "cli/serve_config.h"
#include "cli/serve_log.h"
#include "server/server.h"

/* A server of this process. */
struct serve {
    struct cli *cli;
    struct config *config; /* its first configuration; owned by the caller */
    struct serve_log log;
    struct server *server;
    int64_t watchdog_ms; /* how often the supervisor expects a sign of life; 0: never */
    bool is_store_away;  /* the state that the log last reported */
};

/* 0, or an exit code after writing the message; then nothing is open. */
int serve_open(struct serve *serve) MUST_CHECK;
/* Stop, flush and free everything but the configuration. 0, or an exit code after writing the
 * message. */
int serve_close(struct serve *serve) MUST_CHECK;

/* Print the start lines, and the commands to paste first. 0, or an exit code after writing the
 * message. */
int serve_lines(struct serve *serve) MUST_CHECK;

#endif
