/*
 * bad_io: the machine's own calls, of which one, or all from one on, go wrong.
 *
 * Calls are counted by what is to go wrong with them, so that every number up to the count of a
 * good run is a case of its own. Threads: any number; the count is one for all.
 */
#ifndef ONCE_TESTS_CRASH_BAD_IO_H
#define ONCE_TESTS_CRASH_BAD_IO_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/io.h"

enum bad_kind {
    BAD_NONE,  /* everything goes well; all calls are counted */
    BAD_EIO,   /* any call: it is not made, and says EIO */
    BAD_SPACE, /* calls that need space: ENOSPC */
    BAD_SHORT, /* writes: half of it is written, and it says so */
    BAD_TORN,  /* writes: half of it is written, and it says EIO */
    BAD_FLUSH, /* flushes: EIO, and what was written since the last flush of that file is lost */
    BAD_DEAD,  /* this call and all behind it that would change something: EIO */
    BAD_LIE,   /* writes: nothing is written, and it says that all was; the negative control */
};

enum { BAD_KINDS = BAD_LIE + 1 };

enum { BAD_FDS = 1024 };

struct bad_io {
    struct io io; /* hand this out */
    enum bad_kind kind;
    uint64_t at;                   /* which call goes wrong, from 1 on; 0: none */
    _Atomic uint64_t calls;        /* of the kind's, so far */
    _Atomic uint64_t went;         /* wrong, so far */
    _Atomic bool flushes[BAD_FDS]; /* by descriptor: each write is flushed too (O_DSYNC) */
    pthread_mutex_t lock;          /* of what follows */
    struct buf unflushed; /* struct before_write, of all files, oldest first; BAD_FLUSH alone */
};

void bad_io_init(struct bad_io *bad, enum bad_kind kind, uint64_t at);
void bad_io_release(struct bad_io *bad);
const char *bad_kind_name(enum bad_kind kind);

#endif
