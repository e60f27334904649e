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

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct io_ring; /* a queue of the kernel that takes one write at a time (Linux's io_uring) */

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

    /*
     * A write that no thread waits for. All five are NULL if the table does not support it. One
     * thread at a time uses a ring. The kernel cancels a write when the thread that began it ends.
     */

    /* -ENOSYS, -EPERM and others: not possible here. */
    int (*ring_open)(void *context, struct io_ring **ret_ring);
    /* Not while a write is under way. */
    void (*ring_close)(void *context, struct io_ring *ring);
    /* Begins a write; its bytes must not change before it has ended. -errno: it was not begun, and
     * no other write may be begun on this ring, because that call could still begin this one. */
    int (*ring_begin)(void *context, struct io_ring *ring, int fd, const void *bytes, size_t size,
        uint64_t offset);
    /* True if the write has ended; *ret_put is as pwrite's result. With `wait` it returns only
     * then: until then the kernel may still read the bytes. */
    bool (*ring_ended)(void *context, struct io_ring *ring, bool wait, ssize_t *ret_put);
    /* A descriptor that is readable when the write has ended, until ring_ended says so. */
    int (*ring_fd)(void *context, struct io_ring *ring);
    void *context; /* passed to each */
};

/* The machine's own calls. Without rings if it was built without liburing. */
extern const struct io io_system;
#ifdef ONCE_URING
/* ring.c: the ring calls of io_system. */
int system_ring_open(void *context, struct io_ring **ret_ring);
void system_ring_close(void *context, struct io_ring *ring);
int system_ring_begin(
    void *context, struct io_ring *ring, int fd, const void *bytes, size_t size, uint64_t offset);
bool system_ring_ended(void *context, struct io_ring *ring, bool wait, ssize_t *ret_put);
int system_ring_fd(void *context, struct io_ring *ring);
#endif

/* Reads or writes the whole range; -EIO if the file ends inside it. */
int io_read_full(const struct io *io, int fd, void *ret_bytes, size_t size, uint64_t offset);
int io_write_full(const struct io *io, int fd, const void *bytes, size_t size, uint64_t offset);
/* Make names created, renamed or removed in a directory durable. */
int io_sync_dir(const struct io *io, const char *path);

#endif
