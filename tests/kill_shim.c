/*
 * kill_shim: ends a program at one of its steps, for a program that is started with this library in
 * LD_PRELOAD. A step is a call that others can see: a write to a disk or a socket, a flush, a
 * connection. Before step number `at` the program kills itself, as kill -9 does.
 *
 * The file that ONCE_TEST_KILL_FILE names is shared with the test: struct steps. While `at` is 0,
 * nothing is counted; -1: steps are counted and the program lives. With a mark, only calls that
 * carry those bytes are steps: what a step is then does not depend on what else the program does
 * meanwhile. The program may also end after the step instead of before it: when the thread that
 * did it has written the rest of what it writes there and waits, or turns to something else.
 *
 * tests/http/killed_at.py is the other half.
 */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "plain_writes.h"

#define EXPORT __attribute__((visibility("default")))

enum {
    WAKE_BYTES = 8, /* of an eventfd: a thread wakes another, which nobody outside sees */
    MARK_BYTES = 64,
};

struct steps {
    _Atomic long at;
    _Atomic long count;
    char name[16];         /* of the step that it was killed at */
    char mark[MARK_BYTES]; /* empty: every call is a step */
    _Atomic long is_after; /* the step is still done */
};

static struct steps *steps(void)
{
    static struct steps *shared;
    static atomic_bool is_tried;
    if (!atomic_exchange(&is_tried, true)) {
        const char *path = getenv("ONCE_TEST_KILL_FILE");
        int fd = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
        void *at = fd < 0 ? MAP_FAILED
                          : mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        shared = at == MAP_FAILED ? NULL : at;
    }
    return shared;
}

static bool has_mark(const struct steps *shared, const struct iovec *parts, int count)
{
    size_t bytes = strnlen(shared->mark, sizeof shared->mark);
    bool has = bytes == 0;
    for (int i = 0; i < count && !has; i++) {
        has = memmem(parts[i].iov_base, parts[i].iov_len, shared->mark, bytes) != NULL;
    }
    return has;
}

/* True: it is the step at which the program ends. */
static bool is_last(const struct iovec *parts, int count)
{
    struct steps *shared = steps();
    long at = shared == NULL ? 0 : atomic_load(&shared->at);
    return at != 0 && has_mark(shared, parts, count) &&
           atomic_fetch_add(&shared->count, 1) + 1 == at;
}

static void end(const char *name)
{
    strncpy(steps()->name, name, sizeof steps()->name - 1);
    (void)kill(getpid(), SIGKILL);
    for (;;) {
        (void)pause(); /* this thread goes no further, even if it is not the one that is hit */
    }
}

/* The step after which this thread ends the program, and where it was. */
static _Thread_local const char *ending;
static _Thread_local int ending_fd;

static void turn_to(int fd)
{
    if (ending != NULL && fd != ending_fd) {
        end(ending);
    }
}

static struct iovec part(const void *data, size_t size)
{
    union {
        const void *in;
        void *out;
    } cast = {.in = data};
    return (struct iovec){.iov_base = cast.out, .iov_len = size};
}

#define REAL(name) ((__typeof__(&(name)))(uintptr_t)dlsym(RTLD_NEXT, #name))
#define FIND(name)                                                                                 \
    static __typeof__(&(name)) real;                                                               \
    if (real == NULL) {                                                                            \
        real = REAL(name);                                                                         \
    }
#define STEP(type, name, parameters, arguments, seen, ...)                                         \
    EXPORT type name parameters                                                                    \
    {                                                                                              \
        FIND(name)                                                                                 \
        turn_to(fd);                                                                               \
        bool ends = (seen) && is_last(__VA_ARGS__);                                                \
        if (ends && !steps()->is_after) {                                                          \
            end(#name);                                                                            \
        }                                                                                          \
        type done = real arguments;                                                                \
        if (ends) {                                                                                \
            ending = #name;                                                                        \
            ending_fd = fd;                                                                        \
        }                                                                                          \
        return done;                                                                               \
    }
#define WAIT(type, name, parameters, arguments)                                                    \
    EXPORT type name parameters                                                                    \
    {                                                                                              \
        FIND(name)                                                                                 \
        turn_to(-1);                                                                               \
        return real arguments;                                                                     \
    }
#define ONE(data, size) (struct iovec[]){part(data, size)}, 1

STEP(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at), 1,
    ONE(data, size))
STEP(ssize_t, pwritev, (int fd, const struct iovec *parts, int count, off_t at),
    (fd, parts, count, at), 1, parts, count)
STEP(int, connect, (int fd, __CONST_SOCKADDR_ARG address, socklen_t size), (fd, address, size), 1,
    NULL, 0)
STEP(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size),
    size != WAKE_BYTES && fd > STDERR_FILENO, ONE(data, size))
STEP(ssize_t, writev, (int fd, const struct iovec *parts, int count), (fd, parts, count),
    fd > STDERR_FILENO, parts, count)
STEP(ssize_t, send, (int fd, const void *data, size_t size, int flags), (fd, data, size, flags), 1,
    ONE(data, size))
STEP(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags), 1,
    message->msg_iov, (int)message->msg_iovlen)
/* Nothing follows a flush: the thread that did it may wait where nobody sees it. */
EXPORT int fdatasync(int fd)
{
    FIND(fdatasync)
    bool ends = is_last(NULL, 0);
    if (ends && !steps()->is_after) {
        end("fdatasync");
    }
    int done = real(fd);
    if (ends || ending != NULL) {
        end("fdatasync");
    }
    return done;
}

WAIT(int, poll, (struct pollfd * fds, nfds_t count, int timeout), (fds, count, timeout))
WAIT(int, epoll_wait, (int fd, struct epoll_event *events, int max, int timeout),
    (fd, events, max, timeout))
WAIT(int, epoll_pwait,
    (int fd, struct epoll_event *events, int max, int timeout, const sigset_t *mask),
    (fd, events, max, timeout, mask))
WAIT(ssize_t, recv, (int fd, void *data, size_t size, int flags), (fd, data, size, flags))
