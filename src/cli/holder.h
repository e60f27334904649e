/*
 * holder: records which process holds the grant of a run, so that a later call can tell that it is
 * gone.
 *
 * A lease alone would let a killed `once run` look alive for half a minute. The begin therefore
 * records the process in its trace: its id, its start, the boot and the PID namespace. A call that
 * finds the run in progress on the same machine checks whether that process still exists.
 *
 * Promises:  "gone" means that the process certainly no longer exists; when in doubt (a different
 *            machine or container, no /proc), only the lease decides.
 */
#ifndef ONCE_CLI_HOLDER_H
#define ONCE_CLI_HOLDER_H

#include "base/buf.h"

/* This process, as a JSON object for once_begin.trace. Empty if /proc is not available. */
void holder_put(struct buf *out);
/* Whether the process in a trace existed on this machine and no longer exists. Its id goes to
 * *ret_pid. */
bool holder_gone(const char *trace, int64_t *ret_pid);

#endif
