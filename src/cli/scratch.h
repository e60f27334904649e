/*
 * scratch: makes and removes a temporary directory for a store.
 */
#ifndef ONCE_CLI_SCRATCH_H
#define ONCE_CLI_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>

/* Make "<parent>/<name>-XXXXXX"; parent NULL: $TMPDIR, else /tmp. 0, or an exit code after writing
 * the message. */
int scratch_make(const char *parent, const char *name, char *ret_path, size_t size);
/* Remove it with its contents. Files that cannot be removed stay. */
void scratch_remove(const char *path);

#endif
