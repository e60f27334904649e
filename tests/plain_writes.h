/*
 * plain_writes: for libraries in LD_PRELOAD that watch pwrite and fdatasync. They forbid, as many
 * containers and file systems do, the ways of writing that such a library does not see: the journal
 * then takes the plain one. Include it in one file of the library only.
 */
#ifndef ONCE_TESTS_PLAIN_WRITES_H
#define ONCE_TESTS_PLAIN_WRITES_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

int io_uring_queue_init(unsigned entries, void *ring, unsigned flags);

__attribute__((visibility("default"))) int io_uring_queue_init(
    unsigned entries, void *ring, unsigned flags)
{
    (void)entries;
    (void)ring;
    (void)flags;
    return -EPERM;
}

__attribute__((visibility("default"))) int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if ((flags & O_DIRECT) != 0) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

#endif
