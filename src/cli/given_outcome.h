/*
 * given_outcome: the outcome that an operator gives when settling an operation, for duplicates:
 * --outcome with --http-status and --header, or with --exit-code.
 *
 *     --http-status   an HTTP answer, kept as the gateway keeps answers: duplicates get it byte for
 *                     byte
 *     --exit-code     a command's standard output and exit code; also the meaning of --outcome for
 *                     an operation of once run
 *     neither         JSON
 *
 * Ownership: everything is in cli's arena.
 */
#ifndef ONCE_CLI_GIVEN_OUTCOME_H
#define ONCE_CLI_GIVEN_OUTCOME_H

#include "cli/backend.h"
#include "cli/cli.h"

/* The outcome as read, before it is known where it is stored. */
struct given_outcome {
    enum once_status status; /* the operation's new status */
    struct slice bytes;      /* of --outcome; may be empty */
};

/* Check the options and read the file. 0, or an exit code after writing the message. */
int given_outcome_read(
    struct cli *cli, enum once_status status, struct given_outcome *ret_given) MUST_CHECK;
/* Make the outcome to store for one operation. The same result. ret_outcome is zeroed if no outcome
 * is given and none is needed. */
int given_outcome_make(struct cli *cli, const struct given_outcome *given, struct backend *backend,
    const char *operation_id, struct once_outcome *ret_outcome) MUST_CHECK;

#endif
