/*
 * headers: the lines of --header, which may be repeated: 'Name: value', or @FILE with one header a
 * line, because every user of a machine can see its command lines.
 *
 * Does not:  check what is in a line.
 * Ownership: lines are in cli's arena.
 */
#ifndef ONCE_CLI_HEADERS_H
#define ONCE_CLI_HEADERS_H

#include "cli/cli.h"

enum { HEADERS_MAX = 128 }; /* as the SDK has it */

/* Ended by NULL. */
struct headers {
    const char *lines[HEADERS_MAX + 1];
    size_t count;
};

/* 0, or an exit code with the message written. ret_headers is zeroed. */
int headers_read(struct cli *cli, struct headers *ret_headers) MUST_CHECK;

#endif
