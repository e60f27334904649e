/*
 * begin: a begin by a process whose grants end with it, such as once run and once mcp.
 *
 * Promises:  an operation whose holder certainly no longer exists (holder.h) becomes unknown at
 *            once, not when its lease ends. What that process had started may still be running, so
 *            it becomes unknown and not free (P5).
 */
#ifndef ONCE_CLI_BEGIN_H
#define ONCE_CLI_BEGIN_H

#include "cli/backend.h"

/* The request's trace must come from holder_put. who: "once run", for the evidence. The result is
 * once.h's, and error says why. */
int begin_ask(struct backend *backend, const struct once_begin *request, const char *who,
    struct backend_answer *ret_answer, struct once_error *error) MUST_CHECK;
/* Whether the process that holds it is gone, by its trace on this machine. The trace is the first
 * attempt's, so the holder of a later attempt is not known. */
bool begin_holder_gone(const struct operation *operation, struct arena *arena, int64_t *ret_pid);

#endif
