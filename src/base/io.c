#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Evaluate a system call again while a signal interrupts it; -errno when it fails. */
#define RETRY(type, call)                                                                          \
    __extension__({                                                                                \
        type result_;                                                                              \
        do {                                                                                       \
            result_ = (call);                                                                      \
        } while (result_ < 0 && errno == EINTR);                                                   \
        result_ < 0 ? (type)-errno : result_;                                                      \
    })

static int system_open(void *context, const char *path, int flags, mode_t mode)
{
    (void)context;
    return RETRY(int, open(path, flags | O_CLOEXEC, mode));
}

static int system_close(void *context, int fd)
{
    (void)context;
    return close(fd) < 0 && errno != EINTR ? -errno : 0; /* Linux has closed it even on EINTR */
}

static ssize_t system_pread(void *context, int fd, void *ret_bytes, size_t size, uint64_t offset)
{
    (void)context;
    return RETRY(ssize_t, pread(fd, ret_bytes, size, (off_t)offset));
}

static ssize_t system_pwrite(void *context, int fd, const void *bytes, size_t size, uint64_t offset)
{
    (void)context;
    return RETRY(ssize_t, pwrite(fd, bytes, size, (off_t)offset));
}

static int system_fdatasync(void *context, int fd)
{
    (void)context;
    return RETRY(int, fdatasync(fd));
}

static int system_fsync(void *context, int fd)
{
    (void)context;
    return RETRY(int, fsync(fd));
}

static int system_ftruncate(void *context, int fd, uint64_t size)
{
    (void)context;
    return RETRY(int, ftruncate(fd, (off_t)size));
}

static int64_t system_size(void *context, int fd)
{
    (void)context;
    struct stat info;
    return fstat(fd, &info) < 0 ? -(int64_t)errno : (int64_t)info.st_size;
}

static int system_rename(void *context, const char *from, const char *to)
{
    (void)context;
    return rename(from, to) < 0 ? -errno : 0;
}

static int system_unlink(void *context, const char *path)
{
    (void)context;
    return unlink(path) < 0 ? -errno : 0;
}

static int system_mkdir(void *context, const char *path, mode_t mode)
{
    (void)context;
    return mkdir(path, mode) < 0 ? -errno : 0;
}

static int system_rmdir(void *context, const char *path)
{
    (void)context;
    return rmdir(path) < 0 ? -errno : 0;
}

static int system_lock(void *context, int fd)
{
    (void)context;
    return RETRY(int, flock(fd, LOCK_EX | LOCK_NB));
}

const struct io io_system = {
    .open = system_open,
    .close = system_close,
    .pread = system_pread,
    .pwrite = system_pwrite,
    .fdatasync = system_fdatasync,
    .fsync = system_fsync,
    .ftruncate = system_ftruncate,
    .size = system_size,
    .rename = system_rename,
    .unlink = system_unlink,
    .mkdir = system_mkdir,
    .rmdir = system_rmdir,
    .lock = system_lock,
#ifdef ONCE_URING
    .ring_open = system_ring_open,
    .ring_close = system_ring_close,
    .ring_begin = system_ring_begin,
    .ring_ended = system_ring_ended,
    .ring_fd = system_ring_fd,
#endif
};

int io_read_full(const struct io *io, int fd, void *ret_bytes, size_t size, uint64_t offset)
{
    char *at = ret_bytes;
    while (size > 0) {
        ssize_t got = io->pread(io->context, fd, at, size, offset);
        if (got <= 0) {
            return got < 0 ? (int)got : -EIO;
        }
        at += got;
        size -= (size_t)got;
        offset += (uint64_t)got;
    }
    return 0;
}

int io_write_full(const struct io *io, int fd, const void *bytes, size_t size, uint64_t offset)
{
    const char *at = bytes;
    while (size > 0) {
        ssize_t put = io->pwrite(io->context, fd, at, size, offset);
        if (put <= 0) {
            return put < 0 ? (int)put : -EIO;
        }
        at += put;
        size -= (size_t)put;
        offset += (uint64_t)put;
    }
    return 0;
}

int io_sync_dir(const struct io *io, const char *path)
{
    int fd = io->open(io->context, path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0) {
        return fd;
    }
    int failed = io->fsync(io->context, fd);
    int closed = io->close(io->context, fd);
    return failed != 0 ? failed : closed;
}
