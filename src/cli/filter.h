/*
 * filter: which operations a command is about: --scope, --key, --principal, --since, --older-than.
 *
 * Ownership: strings are the command line's.
 */
#ifndef ONCE_CLI_FILTER_H
#define ONCE_CLI_FILTER_H

#include "cli/backend.h"

struct filter {
    struct once_filter basic; /* what a store and a server choose by; limit is the caller's */
    const char *principal;    /* NULL: any */
};

/* As the options say, with this status; 0 is any. */
struct filter filter_of(const struct cli *cli, enum once_status status);
/* Whether any of the options was given. */
bool filter_given(const struct cli *cli);
/* Each operation that it takes, as backend's iterate. */
int filter_each(struct backend *backend, const struct filter *filter, operation_visit visit,
    void *context) MUST_CHECK;

#endif
