/*
 * The ring calls of io_system, on liburing. Built only where it is found.
 */
#include <errno.h>
#include <liburing.h>
#include <time.h>

#include "base/check.h"
#include "base/io.h"
#include "base/mem.h"

enum {
    RING_ENTRIES = 2,     /* one write at a time; the kernel rounds up anyway */
    RING_POLL_NS = 100000 /* between two reads, if the kernel does not let us wait */
};

struct io_ring {
    struct io_uring queue;
    bool busy; /* a write is under way */
};

int system_ring_open(void *context, struct io_ring **ret_ring)
{
    (void)context;
    struct io_ring *ring = mem_zalloc(&mem_libc, 1, sizeof *ring);
    if (ring == NULL) {
        return -ENOMEM;
    }
    int failed = io_uring_queue_init(RING_ENTRIES, &ring->queue, 0);
    if (failed < 0) {
        mem_free(&mem_libc, ring);
        return failed;
    }
    *ret_ring = ring;
    return 0;
}

void system_ring_close(void *context, struct io_ring *ring)
{
    (void)context;
    ASSERT(!ring->busy); /* the kernel would go on reading the bytes */
    io_uring_queue_exit(&ring->queue);
    mem_free(&mem_libc, ring);
}

int system_ring_begin(
    void *context, struct io_ring *ring, int fd, const void *bytes, size_t size, uint64_t offset)
{
    (void)context;
    ASSERT(!ring->busy);
    struct io_uring_sqe *write = io_uring_get_sqe(&ring->queue);
    if (write == NULL) {
        return -EBUSY;
    }
    unsigned length = size > INT32_MAX ? INT32_MAX / 4096 * 4096 : (unsigned)size;
    io_uring_prep_write(write, fd, bytes, length, offset);
    int begun;
    do {
        begun = io_uring_submit(&ring->queue);
    } while (begun == -EINTR);
    if (begun < 1) {
        return begun < 0 ? begun : -EAGAIN;
    }
    ring->busy = true;
    return 0;
}

/* A failure to wait says nothing about the write, whose bytes are in use until it has ended. So
 * this reads again: results appear in memory that the kernel shares with us. */
bool system_ring_ended(void *context, struct io_ring *ring, bool wait, ssize_t *ret_put)
{
    (void)context;
    ASSERT(ring->busy);
    struct io_uring_cqe *result = NULL;
    while (io_uring_peek_cqe(&ring->queue, &result) != 0 || result == NULL) {
        if (!wait) {
            return false;
        }
        int failed = io_uring_wait_cqe(&ring->queue, &result);
        if (failed != 0 && failed != -EINTR) {
            struct timespec sleep = {.tv_nsec = RING_POLL_NS};
            (void)nanosleep(&sleep, NULL);
        }
    }
    *ret_put = result->res;
    io_uring_cqe_seen(&ring->queue, result);
    ring->busy = false;
    return true;
}

int system_ring_fd(void *context, struct io_ring *ring)
{
    (void)context;
    return ring->queue.ring_fd;
}
