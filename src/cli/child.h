/*
 * child: a command started, followed to its end, its output recorded and shown.
 *
 *   child_block > child_start > child_follow > (seal) > child_show_rest > child_release
 *
 * Promises:  everything the command wrote is in the capture when child_follow returns, at the
 *            latest CHILD_DRAIN_MS after its end (what it started may hold its pipes open longer).
 *            A slow reader of our output does not delay the recording of the command's end.
 *            Signals sent to us are passed on; those that the terminal sent to the whole group are
 *            not sent a second time.
 * Does not:  kill the command when this process dies. It may be in the middle of its effect, and
 *            killing it there would not make known what is unknown.
 * Threads:   start it while there is only one; signals are blocked in all from child_block on.
 */
#ifndef ONCE_CLI_CHILD_H
#define ONCE_CLI_CHILD_H

#include <signal.h>
#include <sys/types.h>

#include "cli/capture.h"

enum { CHILD_DRAIN_MS = 1000, CHILD_CHUNK_BYTES = 65536 };

/* One of the two streams on its way through. */
struct child_stream {
    int from;        /* our end of the pipe; -1 when it is over */
    int to;          /* our own descriptor; -1 when nobody listens */
    size_t at;       /* next byte of chunk to show */
    size_t filled;   /* bytes in chunk */
    int write_errno; /* why our output can no longer be written; 0: it can */
    char chunk[CHILD_CHUNK_BYTES];
};

struct child {
    pid_t pid;
    sigset_t mask_before; /* what was blocked when we came */
    int signals;          /* signalfd */
    bool ended;           /* wait_status holds */
    int wait_status;      /* as waitpid(2) has it */
    struct child_stream streams[CAPTURE_STREAMS];
    struct capture *capture; /* the caller's: all that is to be kept */
    struct capture late;     /* what came when the command had ended: shown after the seal */
};

/* Block what is to be passed on. A signal that arrives before the command runs stays pending. */
void child_block(sigset_t *ret_before);
void child_unblock(const sigset_t *before);
/* A signal that asks us to end is pending: its number, taken off; 0: no signal. */
int child_pending_signal(void);

/* show: pass output on to our own streams. 0, or the errno of what failed; nothing runs then. */
int child_start(struct child *child, char **argv, char **environment, const sigset_t *before,
    bool show, struct capture *capture) MUST_CHECK;
/* Until its end. */
void child_follow(struct child *child);
/* What could not be shown meanwhile. May block as long as our readers like. */
void child_show_rest(struct child *child);
/* The errno of the first failure to write one of our streams; 0: no failure. */
int child_write_errno(const struct child *child);
void child_release(struct child *child);

/* Write a recording to our own streams. 0, or the errno of the first failure. */
int child_replay(const struct recording *recording);

#endif
