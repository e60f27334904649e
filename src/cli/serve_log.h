/*
 * serve_log: the log of `once serve` and `once gateway`, on standard error.
 *
 * Threads: the main thread; any thread may log.
 */
#ifndef ONCE_CLI_SERVE_LOG_H
#define ONCE_CLI_SERVE_LOG_H

#include <limits.h>

#include "base/log.h"
#include "config/config.h"

struct serve_log {
    struct log *log;
    char path[PATH_MAX]; /* of the file that standard error was at the start; empty: not a file */
};

/* Open the log as configured. */
enum status serve_log_open(
    struct serve_log *self, const struct config *config, struct err *err) MUST_CHECK;
/* self may be zeroed. */
void serve_log_close(struct serve_log *self);
/* Continue in a new file with the old name, for log rotation. If there is no such file, or it
 * cannot be opened, the log says so and continues where it is. */
void serve_log_reopen(struct serve_log *self);

#endif
