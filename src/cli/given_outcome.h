/*
 * given_outcome: what duplicates get of an operation that somebody settles: --outcome with
 * --http-status and --header, or with --exit-code.
 *
 *     --http-status   an answer of HTTP, kept as the gateway keeps one: duplicates get it byte for
 *                     byte
 *     --exit-code     what a command wrote to standard output, and how it ended; also what an
 *                     --outcome is for an operation of once run
 *     neither         JSON
 *
 * Ownership: everything is in cli's arena.
 */
#ifndef ONCE_CLI_GIVEN_OUTCOME_H
#define ONCE_CLI_GIVEN_OUTCOME_H

#include "cli/backend.h"
#include "cli/cli.h"

/* As it was read, before it is known where it goes. */
struct given_outcome {
    enum once_status status; /* what the operation is settled as */
    struct slice bytes;      /* of --outcome; may be empty */
};

/* Check the options and read the file. 0, or an exit code with the message written. */
int given_outcome_read(
    struct cli *cli, enum once_status status, struct given_outcome *ret_given) MUST_CHECK;
/* What is stored for one operation. Likewise. ret_outcome is zeroed when nothing is given and
 * nothing is needed. */
int given_outcome_make(struct cli *cli, const struct given_outcome *given, struct backend *backend,
    const char *operation_id, struct once_outcome *ret_outcome) MUST_CHECK;

#endif
