/*
 * bare: bytes appended to a file and made durable, with nothing else around it.
 *
 * The least that any durable store has to do; what B4 and the write modes are measured against. The
 * file is used as a ring, so that a long run does not need all its bytes on disk.
 */
#ifndef ONCE_BENCH_BARE_H
#define ONCE_BENCH_BARE_H

#include <stddef.h>
#include <stdint.h>

enum bare_mode {
    BARE_ZEROED, /* written over zeros: pwrite and fdatasync */
    BARE_DIRECT, /* written over zeros: O_DIRECT and O_DSYNC, whole blocks */
    BARE_GROWING /* the file grows: every flush has to write its size as well */
};

enum { BARE_BLOCK_BYTES = 4096 }; /* what O_DIRECT wants at least, on every disk we met */

struct bare {
    enum bare_mode mode;
    int fd;
    uint64_t at;   /* next write */
    uint64_t size; /* of the ring */
};

/* Make the file. Ends the program when that fails, as do the others. */
void bare_open(struct bare *bare, const char *path, enum bare_mode mode, uint64_t ring_bytes);
/* One write and its flush. For BARE_DIRECT data is block aligned, and has room up to a whole block
 * after size. */
void bare_write(struct bare *bare, const void *data, size_t size);
void bare_close(struct bare *bare);

#endif
