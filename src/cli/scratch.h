/*
 * scratch: a fresh directory for a store of our own, and its removal.
 */
#ifndef ONCE_CLI_SCRATCH_H
#define ONCE_CLI_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>

/* Make "<parent>/<name>-XXXXXX"; parent NULL: $TMPDIR, else /tmp. 0, or an exit code with the
 * message written. */
int scratch_make(const char *parent, const char *name, char *ret_path, size_t size);
/* With everything in it. What cannot be removed stays. */
void scratch_remove(const char *path);

#endif
