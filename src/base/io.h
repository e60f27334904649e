/*
 * io: the system calls that durable code makes, as a table.
 *
 * The journal reaches the disk only through this, so that tests can fail each call in turn, tear
 * writes, and replay a recorded sequence up to any point as a power loss would leave it.
 *
 * Every function returns 0 or a count on success and -errno on failure; EINTR is retried inside.
 */
#ifndef ONCE_BASE_IO_H
#define ONCE_BASE_IO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct io {
    /* A descriptor. flags as for open(2); O_CLOEXEC is added. */
    int (*open)(void *context, const char *path, int flags, mode_t mode);
    int (*close)(void *context, int fd);
    /* May transfer fewer bytes than requested; io_read_full and io_write_full loop. */
    ssize_t (*pread)(void *context, int fd, void *ret_bytes, size_t size, uint64_t offset);
    ssize_t (*pwrite)(void *context, int fd, const void *bytes, size_t size, uint64_t offset);
    int (*fdatasync)(void *context, int fd);
    int (*fsync)(void *context, int fd);
    int (*ftruncate)(void *context, int fd, uint64_t size);
    int64_t (*size)(void *context, int fd);
    int (*rename)(void *context, const char *from, const char *to);
    int (*unlink)(void *context, const char *path);
    int (*mkdir)(void *context, const char *path, mode_t mode);
    int (*rmdir)(void *context, const char *path);
    /* An exclusive advisory lock on the open file; -EWOULDBLOCK if a different process has it. */
    int (*lock)(void *context, int fd);
    void *context; /* passed to each */
};

/* The machine's own calls. */
extern const struct io io_system;

/* Reads or writes the whole range; -EIO if the file ends inside it. */
int io_read_full(const struct io *io, int fd, void *ret_bytes, size_t size, uint64_t offset);
int io_write_full(const struct io *io, int fd, const void *bytes, size_t size, uint64_t offset);
/* Make names created, renamed or removed in a directory durable. */
int io_sync_dir(const struct io *io, const char *path);

#endif
