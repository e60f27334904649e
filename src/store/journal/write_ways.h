/*
 * write_ways: how a batch reaches the disk, and which way is the fastest here.
 *
 *   buffered   pwrite and fdatasync, through the page cache. Works everywhere.
 *   direct     one pwrite to a file opened with O_DIRECT and O_DSYNC.
 *   uring      the same; a write that no thread waits for is given to the kernel through a ring. A
 *              write that a thread waits for is faster without a ring.
 *
 * Promises:  WY1 a write that ended without failure is on stable storage as a whole.
 *            WY2 a ring that refuses a write is not used again, so that no write is made twice:
 *                the writer is direct from then on. It stays open, because others may watch its
 *                descriptor.
 *            WY3 measuring never fails a start. If it cannot be done, the way is buffered.
 * Threads:   one writer is used by one thread at a time; its way may be read by any.
 */
#ifndef ONCE_STORE_JOURNAL_WRITE_WAYS_H
#define ONCE_STORE_JOURNAL_WRITE_WAYS_H

#include <stdatomic.h>

#include "base/io.h"
#include "base/mem.h"
#include "store/journal/journal.h"

struct batch_writer {
    const struct io *io;
    _Atomic enum journal_way way; /* AUTO: not open */
    struct io_ring *ring;         /* only for uring */
    bool in_ring;                 /* the kernel has a part of the write */
    bool flies;                   /* no thread waits for the write */
    int fd;                       /* the file being written */
    const char *bytes;            /* what is left of the write … */
    size_t left;                  /* … this many … */
    uint64_t offset;              /* … to go here */
    int failed;                   /* of the write, so far; 0 or -errno */
};

/* The way must not be AUTO. -errno: not possible here; the writer is then not open. */
int batch_writer_open(struct batch_writer *writer, const struct io *io, enum journal_way way);
/* Not while a write is under way. */
void batch_writer_close(struct batch_writer *writer);
/* The flags for the file that this way writes to, besides the access mode. */
int batch_writer_flags(enum journal_way way);
/* Begins a write. It ends at once, unless it flies and there is a ring. The bytes are aligned to
 * blocks and must not change before it has ended. */
void batch_writer_begin(struct batch_writer *writer, bool flies, int fd, const void *bytes,
    size_t size, uint64_t offset);
/* True if the write has ended: *ret_failed is 0 or -errno. With `wait` it returns only then. */
bool batch_writer_ended(struct batch_writer *writer, bool wait, int *ret_failed);
/* A descriptor that is readable when the write that was begun has ended; -1: it ended at once. */
int batch_writer_event(const struct batch_writer *writer);
/* Both: writes, through the ring if there is one, and waits. 0 or -errno. */
int batch_writer_write(struct batch_writer *writer, int fd, const void *bytes, size_t size,
    uint64_t offset) MUST_CHECK;

/* The best way here; measures the disk for some ms, in a temporary file. */
enum journal_way ways_probe(const char *directory, const struct io *io, const struct mem *mem);

#endif
