/*
 * resolve: the parts of `once resolve` shared by settling one operation and settling many.
 */
#ifndef ONCE_CLI_RESOLVE_H
#define ONCE_CLI_RESOLVE_H

#include "cli/filter.h"
#include "cli/given_outcome.h"

/* The attempt to settle. */
struct resolve_target {
    const char *operation_id;
    uint64_t fence; /* 0: any */
};

/* Settle it as --status, --reason, --effect-id and --actor say. 0 if it was decided, whatever the
 * decision; else an exit code after writing the message. */
int resolve_call(struct cli *cli, struct backend *backend, const struct resolve_target *target,
    const struct given_outcome *given, struct backend_answer *ret_answer) MUST_CHECK;
/* Report why it was not settled. Returns the exit code. */
int resolve_refused(const char *operation_id, enum once_decision decision);
/* Settle every unknown operation that matches the filters. */
int resolve_many(struct cli *cli, const struct given_outcome *given) MUST_CHECK;

#endif
