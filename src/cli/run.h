/*
 * run: what the parts of once run share.
 *
 *   run.c          the life of one call, from the begin to the exit code
 *   run_ask.c      what is compared; the begin; waiting for somebody else's run
 *   run_report.c   what is said: replay, conflict, unknown, JSON
 */
#ifndef ONCE_CLI_RUN_H
#define ONCE_CLI_RUN_H

#include "cli/backend.h"
#include "cli/capture.h"
#include "cli/child.h"
#include "cli/renew.h"

enum { RUN_LOCK_WAIT_MS = 5000 }; /* others hold the store for moments only */

struct run {
    struct cli *cli;
    const char *key;
    const char *scope;
    struct buf payload;     /* what is compared, as JSON */
    sigset_t mask_before;   /* signals as they were */
    int64_t asked_ms;       /* the boot clock before the last begin */
    struct grant grant;     /* when it is ours to run */
    struct capture capture; /* what the command wrote */
};

/* Fill run->payload. */
int run_compose(struct run *run) MUST_CHECK;
/* Ask, and wait while somebody else runs it. 0 with the answer, or an exit code with the message
 * written. Signals are blocked from here on when the answer is first_seen. */
int run_ask(struct run *run, struct backend_answer *ret_answer) MUST_CHECK;

/* How a command ended that we ran. */
struct run_end {
    enum once_status status; /* what it was recorded as */
    int code;                /* its exit code; 128 + signal when it was killed */
    bool recorded;
};

/* Each writes what is to be said and returns the exit code. */
int run_report_replay(struct run *run, const struct backend_answer *answer);
int run_report_refusal(struct run *run, const struct backend_answer *answer);
int run_report_end(struct run *run, struct child *child, const struct run_end *end);
/* Hints for an operation that is unknown. */
void run_hint_unknown(const struct run *run, const char *operation_id, uint64_t fence);

#endif
