/*
 * filter: selects the operations for a command: --scope, --key, --principal, --since, --older-than.
 *
 * Ownership: strings belong to the command line.
 */
#ifndef ONCE_CLI_FILTER_H
#define ONCE_CLI_FILTER_H

#include "cli/backend.h"

struct filter {
    struct once_filter basic; /* applied by the store or server; the caller sets limit */
    const char *principal;    /* NULL: any */
};

/* The filter from the options, with this status; 0: any. */
struct filter filter_of(const struct cli *cli, enum once_status status);
/* Whether any of the options was given. */
bool filter_given(const struct cli *cli);
/* Visit each matching operation, like the backend's iterate. */
int filter_each(struct backend *backend, const struct filter *filter, operation_visit visit,
    void *context) MUST_CHECK;

#endif
