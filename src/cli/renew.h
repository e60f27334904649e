/*
 * renew: a thread that keeps the lease of a running command alive.
 *
 * Every third of the lease it opens the store, or asks the server that has it, renews, and lets go,
 * so that others can use it. What cannot be reached is tried again soon; a grant that was lost is
 * said once, loudly, and not tried again. Meanwhile it alone may use cli's arena.
 */
#ifndef ONCE_CLI_RENEW_H
#define ONCE_CLI_RENEW_H

#include <pthread.h>

#include "cli/cli.h"

/* The right to run, as the store gave it. */
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

/* Renew once, without a message. False: it is not renewed; *ret_decision is what was decided, or
 * ONCE_RENEWED when nothing was: the store or the server could not be asked. */
bool renew_now(
    struct cli *cli, const struct grant *grant, enum once_decision *ret_decision) MUST_CHECK;

/* 0 or an errno. */
int renewer_start(struct renewer *renewer, struct cli *cli, const struct grant *grant) MUST_CHECK;
/* Returns when no renewal is under way. */
void renewer_stop(struct renewer *renewer);

#endif
