/*
 * headers: the lines of --header, which may be repeated: 'Name: value', or @FILE with one header a
 * line, because every user of a machine can see its command lines.
 *
 * Does not:  check the contents of a line.
 * Ownership: lines are in cli's arena.
 */
#ifndef ONCE_CLI_HEADERS_H
#define ONCE_CLI_HEADERS_H

#include "cli/cli.h"

enum { HEADERS_MAX = 128 }; /* as in the SDK */

/* Ends with NULL. */
struct headers {
    const char *lines[HEADERS_MAX + 1];
    size_t count;
};

/* 0, or an exit code after writing the message. ret_headers is zeroed. */
int headers_read(struct cli *cli, struct headers *ret_headers) MUST_CHECK;

#endif
