/*
 * child: starts a command, follows it to its end, and records and shows its output.
 *
 *   child_block > child_start > child_follow > (seal) > child_show_rest > child_release
 *
 * Promises:  everything the command wrote is in the capture when child_follow returns, at most
 *            CHILD_DRAIN_MS after its end (processes that it started may hold its pipes open
 *            longer). A slow reader of our output does not delay the recording of the command's
 *            end. Signals sent to us are passed on; those that the terminal sent to the whole group
 *            are not sent a second time.
 * Does not:  kill the command when this process dies. It may be in the middle of its effect, and
 *            killing it would not tell us the outcome.
 * Threads:   start it while there is only one thread; signals are blocked in all threads from
 *            child_block on.
 */
#ifndef ONCE_CLI_CHILD_H
#define ONCE_CLI_CHILD_H

#include <signal.h>
#include <sys/types.h>

#include "cli/capture.h"

enum { CHILD_DRAIN_MS = 1000, CHILD_CHUNK_BYTES = 65536 };

/* One of the two streams. */
struct child_stream {
    int from;        /* our end of the pipe; -1: closed */
    int to;          /* our own descriptor; -1: nobody reads it */
    size_t at;       /* next byte of chunk to show */
    size_t filled;   /* bytes in chunk */
    int write_errno; /* why our output can no longer be written; 0: it can be */
    char chunk[CHILD_CHUNK_BYTES];
};

struct child {
    pid_t pid;
    sigset_t mask_before; /* the signals that were blocked at the start */
    int signals;          /* signalfd */
    bool ended;           /* wait_status is set */
    int wait_status;      /* as from waitpid(2) */
    struct child_stream streams[CAPTURE_STREAMS];
    struct capture *capture; /* the caller's: everything that is kept */
    struct capture late;     /* output after the command's end: shown after the seal */
};

/* Block the signals that are passed on. One that arrives before the command runs stays pending. */
void child_block(sigset_t *ret_before);
void child_unblock(const sigset_t *before);
/* A descriptor that is readable while one of them is pending; -1: errno says why. */
int child_signals_open(void) MUST_CHECK;
/* If a signal that asks us to end is pending: its number, and it is consumed; 0: none. */
int child_pending_signal(void);
/* Wait for one; its number. */
int child_await_signal(void);

/* show: also write the output to our own streams. Returns 0, or the errno of the failure; then
 * nothing runs. */
int child_start(struct child *child, char **argv, char **environment, const sigset_t *before,
    bool show, struct capture *capture) MUST_CHECK;
/* Start it with its standard input and output in pipes, for a caller that speaks with it: *ret_to
 * is our end of the one, streams[0].from of the other. Nothing is captured. Our own environment and
 * standard error are the command's. The same result. */
int child_start_piped(
    struct child *child, char **argv, const sigset_t *before, int *ret_to) MUST_CHECK;
/* The signals descriptor is readable: pass signals on, and set ended if the command has ended. */
void child_take_signals(struct child *child);
/* Returns when the command has ended. */
void child_follow(struct child *child);
/* Show the rest of the output. May block as long as our readers do. */
void child_show_rest(struct child *child);
/* The errno of the first failure to write one of our streams; 0: no failure. */
int child_write_errno(const struct child *child);
void child_release(struct child *child);

/* Write a recording to our own streams. 0, or the errno of the first failure. */
int child_replay(const struct recording *recording);

#endif
