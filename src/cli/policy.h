/*
 * policy: shared by the files of `once policy test`.
 *
 * policy.c has the command and its output, policy_run.c one case, policy_send.c one request over a
 * socket, server/fake_upstream.c the API.
 */
#ifndef ONCE_CLI_POLICY_H
#define ONCE_CLI_POLICY_H

#include "base/arena.h"
#include "cli/serve_config.h"
#include "client/attempt.h"

/* A result that is not as expected, or could not be determined. */
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
    struct policy_difference *first; /* NULL: as expected */
    struct policy_difference spare;  /* used for the last one if memory is short */
};

/* The environment of the cases. */
struct policy_bench {
    struct cli *cli;
    struct once_client *client;             /* sends the requests */
    struct config *config;                  /* read, checked and adapted to the test */
    const struct config_route *read_routes; /* its routes as they were read */
    const struct config_route *read_otherwise;
    struct config_route *routes; /* the routes in use, with a fake upstream */
    struct config_route *otherwise;
};

/* Adapt a configuration: nothing is written, and it listens only on the loopback. 0, or an exit
 * code after writing the message. */
int policy_bench_init(
    struct policy_bench *bench, struct cli *cli, struct config *config) MUST_CHECK;
void policy_bench_release(struct policy_bench *bench);
/* Run one case. Differences are in the arena. 0, or an exit code after writing the message. */
int policy_run(struct policy_bench *bench, const struct config_case *of,
    struct policy_result *ret_result, struct arena *arena) MUST_CHECK;

/* Send a request to "127.0.0.1:41234", once, and wait for its answer. Its status is 0 if no answer
 * came, and `why` says why. NULL: out of memory; otherwise the caller frees it with
 * once_response_free. Any thread. */
struct client_response *policy_send(
    struct once_client *client, const char *address, const struct case_request *request) MUST_CHECK;

#endif
