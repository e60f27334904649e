#include "bare.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

enum { ZERO_BYTES = 1 << 20 }; /* written at once */

static void write_zeros(int fd, uint64_t size)
{
    static const char zeros[ZERO_BYTES];
    for (uint64_t at = 0; at < size; at += sizeof zeros) {
        bench_must_errno(pwrite(fd, zeros, sizeof zeros, (off_t)at), "cannot write zeros");
    }
    bench_must_errno(fsync(fd), "fsync");
}

void bare_open(struct bare *bare, const char *path, enum bare_mode mode, uint64_t ring_bytes)
{
    *bare = (struct bare){.mode = mode, .size = ring_bytes / ZERO_BYTES * ZERO_BYTES};
    bare->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bench_must_errno(bare->fd, path);
    if (mode != BARE_GROWING) {
        write_zeros(bare->fd, bare->size);
    }
    if (mode == BARE_DIRECT) {
        (void)close(bare->fd);
        bare->fd = open(path, O_RDWR | O_DIRECT | O_DSYNC | O_CLOEXEC);
        bench_must_errno(bare->fd, path);
    }
}

/* The file begins anew; a growing one has to be emptied to grow again. */
static void begin_again(struct bare *bare)
{
    bare->at = 0;
    if (bare->mode == BARE_GROWING) {
        bench_must_errno(ftruncate(bare->fd, 0), "ftruncate");
        bench_must_errno(fsync(bare->fd), "fsync");
    }
}

void bare_write(struct bare *bare, const void *data, size_t size)
{
    if (bare->mode == BARE_DIRECT) {
        size = (size + BARE_BLOCK_BYTES - 1) / BARE_BLOCK_BYTES * BARE_BLOCK_BYTES;
    }
    if (size > bare->size) {
        bench_fail("a write of %zu bytes is larger than the ring", size);
    }
    if (bare->at + size > bare->size) {
        begin_again(bare);
    }
    ssize_t written = pwrite(bare->fd, data, size, (off_t)bare->at);
    bench_must_errno(written, "pwrite");
    if ((size_t)written != size) {
        bench_fail("a write was cut short");
    }
    if (bare->mode != BARE_DIRECT) {
        bench_must_errno(fdatasync(bare->fd), "fdatasync");
    }
    bare->at += size;
}

void bare_close(struct bare *bare)
{
    (void)close(bare->fd);
}
