/*
 * why: how an operation reached its status, as once why --json prints it.
 */
#ifndef ONCE_CLI_WHY_H
#define ONCE_CLI_WHY_H

#include "canon/jsonw.h"
#include "cli/operation.h"

/* The operation, what to do about it, and every decision with its rule in words. 0, or an exit code
 * after writing the message. */
int why_put(struct cli *cli, struct backend *backend, const struct operation *operation,
    struct jsonw *json) MUST_CHECK;

#endif
