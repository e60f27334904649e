/*
 * policy: what the parts of `once policy test` share.
 *
 * policy.c is the command and what it prints, policy_run.c one case, policy_ask.c one request over
 * a socket, fake_upstream.c the API.
 */
#ifndef ONCE_CLI_POLICY_H
#define ONCE_CLI_POLICY_H

#include "base/arena.h"
#include "base/buf.h"
#include "cli/serve_config.h"

/* Something that is not as expected, or could not be found out. */
struct policy_difference {
    struct policy_difference *next;
    size_t step; /* from 1 */
    unsigned line;
    const char *what;     /* "status", "header Location" */
    const char *got;      /* as text */
    const char *expected; /* as text */
};

struct policy_result {
    const struct config_case *of;
    struct policy_difference *first; /* NULL: it is as expected */
    struct policy_difference spare;  /* the last one, when there was no memory for more */
};

/* What the cases run with. */
struct policy_bench {
    struct cli *cli;
    struct config *config;           /* read, checked and made fit for a bench */
    const struct config_route *said; /* its routes as they were read */
    const struct config_route *said_otherwise;
    struct config_route *routes; /* those in use: with a fake upstream behind them */
    struct config_route *otherwise;
};

/* Make a configuration fit: nothing is written, nothing listens but on the loopback. E_NOMEM. */
enum status policy_bench_init(
    struct policy_bench *bench, struct cli *cli, struct config *config) MUST_CHECK;
/* One case. Differences are in the arena. 0, or an exit code with the message written. */
int policy_run(struct policy_bench *bench, const struct config_case *of,
    struct policy_result *ret_result, struct arena *arena) MUST_CHECK;

/* An answer. */
struct policy_answer {
    unsigned status; /* 0: there was none */
    struct buf head; /* its lines, as they came */
    struct buf body;
    char why[256]; /* there was none */
};
void policy_answer_release(struct policy_answer *answer);
/* The value of the first field of that name; false: there is none. */
bool policy_answer_field(
    const struct policy_answer *answer, const char *name, struct slice *ret_value);
/* Send a request to "127.0.0.1:41234", once, and wait for its answer. Any thread. The answer is
 * made here. */
void policy_ask(
    const char *address, const struct case_request *request, struct policy_answer *ret_answer);

#endif
