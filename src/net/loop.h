/*
 * loop: one libuv loop and its thread.
 *
 * A turn of it: timers, tasks from other threads, the owner's turn hook, then the wait for input,
 * whose callbacks run before the next turn begins.
 *
 * Promises:  a task posted from any thread runs on the loop, once, in the order of its poster. A
 *            post costs one push, and a system call only if the loop is asleep. Deadlines cost one
 *            timer per loop, and nothing while no deadline is set.
 * Does not:  know what a connection is.
 * Threads:   net_loop_post and net_loop_busy from any thread. Everything else before start, or on
 *            the loop.
 */
#ifndef ONCE_NET_LOOP_H
#define ONCE_NET_LOOP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <uv.h>

#include "base/err.h"
#include "base/mem.h"
#include "net/wheel.h"

enum {
    NET_SCRATCH_BYTES = 64 << 10, /* one read that is not kept: discarded, or decrypted at once */
    NET_ROUNDS_MAX = 16,          /* of tasks that post tasks, before input has its turn */
};

/* Embedded in what is posted; in one list at a time. */
struct net_task {
    struct net_task *next;
    void (*run)(struct net_task *task);
};

struct net_loop {
    uv_loop_t uv;
    uv_poll_t wake;                 /* ends the wait; does nothing itself */
    int wake_fd;                    /* its eventfd */
    uv_prepare_t prepare;           /* before the wait: tasks and the turn hook */
    uv_check_t check;               /* after it */
    uv_timer_t ticker;              /* runs the wheel while there is anything in it */
    uv_poll_t poll;                 /* of the descriptor that is watched … */
    int poll_fd;                    /* … this one; -1: none yet */
    void (*watched)(void *context); /* when it is readable, with the context of turn */

    _Atomic(struct net_task *) tasks; /* newest first */
    atomic_bool is_asleep;            /* waits, or is about to: a post has to wake it */

    struct net_wheel wheel;
    void (*turn)(void *context); /* before each wait; may be NULL */
    void *context;               /* for turn */

    char *scratch;         /* NET_SCRATCH_BYTES for reads that are not kept */
    const struct mem *mem; /* where scratch came from */
    pthread_t thread;
    atomic_int clock; /* of the thread's processor time; 0: it does not run yet */
    bool is_started;  /* the thread has to be joined */
    bool is_ready;    /* the handles are initialised */
};

/* E_NOMEM, E_UNAVAILABLE. On failure there is nothing to release. */
enum status net_loop_init(struct net_loop *loop, const struct mem *mem, struct err *err) MUST_CHECK;
enum status net_loop_start(struct net_loop *loop, struct err *err) MUST_CHECK;
/* The handles of the loop itself are closed; the thread ends once the owner's are, too. */
void net_loop_close(struct net_loop *loop);
/* Wait for that end, or end it here if no thread was started. */
void net_loop_release(struct net_loop *loop);

void net_loop_post(struct net_loop *loop, struct net_task *task);
/* Nanoseconds of processor time that the loop's thread has used. Any thread, before release. */
uint64_t net_loop_busy(const struct net_loop *loop);

/* Milliseconds that only count forward; read once a turn. */
static inline uint64_t net_loop_now(const struct net_loop *loop)
{
    return uv_now(&loop->uv);
}

/* Calls `watched` on the loop, with the context of turn, each time the descriptor is readable; -1:
 * no longer. A loop has one such descriptor, which stays open as long as the loop. False: it is a
 * different one, or cannot be watched. On the loop. */
bool net_loop_watch(struct net_loop *loop, int fd, void (*watched)(void *context));

void net_loop_deadline(struct net_loop *loop, struct net_deadline *deadline, uint64_t at_ms);

#endif
