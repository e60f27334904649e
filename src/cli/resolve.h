/*
 * resolve: the parts of `once resolve` that settling one operation and settling many share.
 */
#ifndef ONCE_CLI_RESOLVE_H
#define ONCE_CLI_RESOLVE_H

#include "cli/filter.h"
#include "cli/given_outcome.h"

/* Which attempt is settled. */
struct resolve_target {
    const char *operation_id;
    uint64_t fence; /* 0: any */
};

/* Settle it as --status, --reason, --effect-id and --actor say. 0 when it was decided, whatever the
 * decision; else an exit code with the message written. */
int resolve_call(struct cli *cli, struct backend *backend, const struct resolve_target *target,
    const struct given_outcome *given, struct backend_answer *ret_answer) MUST_CHECK;
/* Say why it was not settled. Returns the exit code. */
int resolve_refused(const char *operation_id, enum once_decision decision);
/* Every unknown one that the filters take. */
int resolve_many(struct cli *cli, const struct given_outcome *given) MUST_CHECK;

#endif
