/*
 * kill_shim: ends a program at one of its steps, for a program that is started with this library in
 * LD_PRELOAD. A step is a call that others can see: a write to a disk or a socket, a flush, a
 * connection. Before step number `at` the program kills itself, as kill -9 does.
 *
 * The file that ONCE_TEST_KILL_FILE names is shared with the test: struct steps. While `at` is 0,
 * nothing is counted; -1: steps are counted and the program lives.
 *
 * tests/http/killed_at.py is the other half.
 */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { WAKE_BYTES = 8 }; /* of an eventfd: a thread wakes another, which nobody outside sees */

struct steps {
    _Atomic long at;
    _Atomic long count;
    char name[16]; /* of the step that it was killed before */
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

static void step(const char *name)
{
    struct steps *shared = steps();
    long at = shared == NULL ? 0 : atomic_load(&shared->at);
    if (at != 0 && atomic_fetch_add(&shared->count, 1) + 1 == at) {
        strncpy(shared->name, name, sizeof shared->name - 1);
        (void)kill(getpid(), SIGKILL);
        for (;;) {
            (void)pause(); /* this thread goes no further, even if it is not the one that is hit */
        }
    }
}

#define REAL(name) ((__typeof__(&(name)))(uintptr_t)dlsym(RTLD_NEXT, #name))
#define STEP(type, name, parameters, arguments, seen)                                              \
    EXPORT type name parameters                                                                    \
    {                                                                                              \
        static __typeof__(&(name)) real;                                                           \
        if (real == NULL) {                                                                        \
            real = REAL(name);                                                                     \
        }                                                                                          \
        if (seen) {                                                                                \
            step(#name);                                                                           \
        }                                                                                          \
        return real arguments;                                                                     \
    }

STEP(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at), 1)
STEP(ssize_t, pwritev, (int fd, const struct iovec *parts, int count, off_t at),
    (fd, parts, count, at), 1)
STEP(int, fdatasync, (int fd), (fd), 1)
STEP(int, connect, (int fd, __CONST_SOCKADDR_ARG address, socklen_t size), (fd, address, size), 1)
STEP(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size),
    size != WAKE_BYTES && fd > STDERR_FILENO)
STEP(ssize_t, writev, (int fd, const struct iovec *parts, int count), (fd, parts, count),
    fd > STDERR_FILENO)
STEP(ssize_t, send, (int fd, const void *data, size_t size, int flags), (fd, data, size, flags), 1)
STEP(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags), 1)
