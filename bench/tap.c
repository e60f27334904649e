#include "tap.h"

#include "base/mem.h"
#include "bench.h"

enum { LOOKED_AT = 64 }; /* bytes: more zeros than a header of anything begins with */

static bool begins_with_zeros(const char *bytes, size_t size)
{
    for (size_t i = 0; i < size && i < LOOKED_AT; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

static bool flushes(const struct tap *tap)
{
    for (size_t i = 0; i < *tap->thread_count; i++) {
        if (pthread_equal(tap->threads[i], pthread_self())) {
            return true;
        }
    }
    return false;
}

static void note(struct tap *tap, const void *bytes, size_t size)
{
    if (tap->open && flushes(tap) && !begins_with_zeros(bytes, size)) {
        if (tap->count < tap->cap) {
            tap->sizes[tap->count] = (uint32_t)size;
        }
        tap->count++;
        tap->bytes += size;
        tap->size_largest = size > tap->size_largest ? size : tap->size_largest;
    }
}

static ssize_t tap_pwrite(void *context, int fd, const void *bytes, size_t size, uint64_t offset)
{
    ssize_t written = io_system.pwrite(io_system.context, fd, bytes, size, offset);
    if (written > 0) {
        note(context, bytes, (size_t)written);
    }
    return written;
}

static int tap_ring_begin(
    void *context, struct io_ring *ring, int fd, const void *bytes, size_t size, uint64_t offset)
{
    int refused = io_system.ring_begin(io_system.context, ring, fd, bytes, size, offset);
    if (refused == 0) {
        note(context, bytes, size);
    }
    return refused;
}

void tap_init(struct tap *tap, size_t batches_max)
{
    *tap = (struct tap){.io = io_system, .cap = batches_max};
    tap->io.pwrite = tap_pwrite; /* the system's others do not look at their context */
    tap->io.ring_begin = io_system.ring_begin == NULL ? NULL : tap_ring_begin;
    tap->io.context = tap;
    tap->sizes = mem_zalloc(&mem_libc, batches_max, sizeof *tap->sizes);
    if (tap->sizes == NULL) {
        bench_fail("out of memory");
    }
}

void tap_release(struct tap *tap)
{
    mem_free(&mem_libc, tap->sizes);
}

void tap_clear(struct tap *tap)
{
    tap->open = false;
    tap->count = 0;
    tap->bytes = 0;
    tap->size_largest = 0;
}
