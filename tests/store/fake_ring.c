#include "store/fake_ring.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/mem.h"

struct io_ring {
    int event; /* readable while a result waits */
    bool busy;
    ssize_t put;
};

int fake_ring_open(void *context, struct io_ring **ret_ring)
{
    (void)context;
    struct io_ring *ring = mem_zalloc(&mem_libc, 1, sizeof *ring);
    ASSERT(ring != NULL);
    ring->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ASSERT(ring->event >= 0);
    *ret_ring = ring;
    return 0;
}

void fake_ring_close(void *context, struct io_ring *ring)
{
    (void)context;
    ASSERT(!ring->busy);
    (void)close(ring->event);
    mem_free(&mem_libc, ring);
}

int fake_ring_begin(
    void *context, struct io_ring *ring, int fd, const void *bytes, size_t size, uint64_t offset)
{
    const struct io *io = context == NULL ? &io_system : context;
    ASSERT(!ring->busy);
    ring->put = io->pwrite(context, fd, bytes, size, offset);
    ring->busy = true;
    uint64_t one = 1;
    ASSERT(write(ring->event, &one, sizeof one) == (ssize_t)sizeof one);
    return 0;
}

bool fake_ring_ended(void *context, struct io_ring *ring, bool wait, ssize_t *ret_put)
{
    (void)context;
    (void)wait;
    ASSERT(ring->busy);
    uint64_t count;
    ASSERT(read(ring->event, &count, sizeof count) == (ssize_t)sizeof count);
    ring->busy = false;
    *ret_put = ring->put;
    return true;
}

int fake_ring_fd(void *context, struct io_ring *ring)
{
    (void)context;
    return ring->event;
}
