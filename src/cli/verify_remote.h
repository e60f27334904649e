/*
 * verify_remote: checks a server's evidence from outside.
 *
 * A tenant sees only its own entries; those of others lie between them. It can be checked that each
 * entry has its stated hash, that adjacent entries are chained, that numbers and times never go
 * back, and that the head that the server names is the chain's. It cannot be checked that no entry
 * is missing, nor signatures, bodies and decisions. Both lists are printed.
 */
#ifndef ONCE_CLI_VERIFY_REMOTE_H
#define ONCE_CLI_VERIFY_REMOTE_H

#include "cli/cli.h"
#include "cli/remote.h"

/* Returns the exit code. */
int verify_remote(struct cli *cli, struct remote *remote) MUST_CHECK;

#endif
