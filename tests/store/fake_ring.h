/*
 * fake_ring: the ring calls of a table of calls that a test made, over its own pwrite.
 *
 * A write is made when it is begun, so that the table counts, fails and records it like any other;
 * its result is kept until it is asked for. The table must be the first member of its context. A
 * table without a context writes with the machine's own pwrite.
 */
#ifndef ONCE_TESTS_STORE_FAKE_RING_H
#define ONCE_TESTS_STORE_FAKE_RING_H

#include "base/io.h"

int fake_ring_open(void *context, struct io_ring **ret_ring);
void fake_ring_close(void *context, struct io_ring *ring);
int fake_ring_begin(
    void *context, struct io_ring *ring, int fd, const void *bytes, size_t size, uint64_t offset);
bool fake_ring_ended(void *context, struct io_ring *ring, bool wait, ssize_t *ret_put);
int fake_ring_fd(void *context, struct io_ring *ring);

#define FAKE_RING                                                                                  \
    .ring_open = fake_ring_open, .ring_close = fake_ring_close, .ring_begin = fake_ring_begin,     \
    .ring_ended = fake_ring_ended, .ring_fd = fake_ring_fd

#endif
