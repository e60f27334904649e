/*
 * verify_remote: what can be checked of a server's evidence from outside.
 *
 * A tenant sees its own entries; those of others are between them. So what can be checked is that
 * each entry has the hash that is said of it, that entries which follow each other are chained,
 * that their numbers and times never go back, and that the head which the server names is the
 * chain's. What cannot: that no entry is missing, signatures, bodies, decisions. Both are printed.
 */
#ifndef ONCE_CLI_VERIFY_REMOTE_H
#define ONCE_CLI_VERIFY_REMOTE_H

#include "cli/cli.h"
#include "cli/remote.h"

/* The exit code. */
int verify_remote(struct cli *cli, struct remote *remote) MUST_CHECK;

#endif
