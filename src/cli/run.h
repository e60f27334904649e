/*
 * run: shared by the files of once run.
 *
 *   run.c          the life of one call, from the begin to the exit code
 *   run_grant.c    the payload; the begin; waiting for a run by a different process
 *   run_report.c   the output: replay, conflict, unknown, JSON
 */
#ifndef ONCE_CLI_RUN_H
#define ONCE_CLI_RUN_H

#include "cli/backend.h"
#include "cli/capture.h"
#include "cli/child.h"
#include "cli/renew.h"

enum { RUN_LOCK_WAIT_MS = 5000 }; /* at least: other processes usually hold a store for moments */

struct run {
    struct cli *cli;
    const char *key;
    const char *scope;
    struct buf payload;     /* the payload that is compared, as JSON */
    sigset_t mask_before;   /* signals as they were */
    int64_t asked_ms;       /* the boot clock before the last begin */
    struct grant grant;     /* set if the command is ours to run */
    struct capture capture; /* the command's output */
};

/* Fill run->payload. */
int run_compose(struct run *run) MUST_CHECK;
/* Begin, and wait while a different process runs it. 0 with the answer, or an exit code after
 * writing the message. If the answer is first_seen, signals are blocked from here on. */
int run_grant(struct run *run, struct backend_answer *ret_answer) MUST_CHECK;

/* The end of a command that we ran. */
struct run_end {
    enum once_status status; /* the recorded status */
    int code;                /* its exit code; 128 + signal when it was killed */
    bool recorded;
};

/* Each writes its report and returns the exit code. */
int run_report_replay(struct run *run, const struct backend_answer *answer);
int run_report_refusal(struct run *run, const struct backend_answer *answer);
int run_report_end(struct run *run, struct child *child, const struct run_end *end);
/* Hints for an unknown operation. */
void run_hint_unknown(const struct run *run, const char *operation_id, uint64_t fence);

#endif
