/*
 * holder: which process holds the grant of a run, so that the next one can tell that it is gone.
 *
 * A lease alone would let a killed `once run` look alive for half a minute. The begin therefore
 * leaves in the trace which process it is: its id, its start, the boot and the PID namespace.
 * A call that finds the run in progress on the same machine sees whether that process still exists.
 *
 * Promises:  "gone" means that the process certainly no longer exists; when in doubt (a different
 *            machine or container, no /proc) the lease decides alone.
 */
#ifndef ONCE_CLI_HOLDER_H
#define ONCE_CLI_HOLDER_H

#include "base/buf.h"

/* This process, as a JSON object for once_begin.trace. Empty when /proc does not tell. */
void holder_put(struct buf *out);
/* The process that a trace names existed on this machine and exists no more. Its id in *ret_pid. */
bool holder_gone(const char *trace, int64_t *ret_pid);

#endif
