/*
 * renew: a thread that keeps the lease of a running command alive.
 *
 * Every third of the lease it opens the store or connects to its server, renews, and closes it
 * again, so that others can use it. If that is not possible, it tries again soon; a lost grant is
 * reported once, and not tried again. While it runs, only this thread may use cli's arena.
 */
#ifndef ONCE_CLI_RENEW_H
#define ONCE_CLI_RENEW_H

#include <pthread.h>

#include "cli/cli.h"

/* The right to run, as granted by the store. */
struct grant {
    char operation_id[40];
    uint64_t fence;
    uint64_t attempt;
    int64_t lease_ms;
};

struct renewer {
    struct cli *cli;
    const struct grant *grant;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool stop; /* under mutex */
};

/* Renew once, without a message. False: not renewed; *ret_decision is the decision, or ONCE_RENEWED
 * if there was none because the store or the server could not be reached. */
bool renew_now(
    struct cli *cli, const struct grant *grant, enum once_decision *ret_decision) MUST_CHECK;

/* 0 or an errno. */
int renewer_start(struct renewer *renewer, struct cli *cli, const struct grant *grant) MUST_CHECK;
/* Returns when no renewal is in progress. */
void renewer_stop(struct renewer *renewer);

#endif
