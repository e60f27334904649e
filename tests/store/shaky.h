/*
 * shaky: a disk that forgets what was not flushed, and can die at any call.
 *
 * The files are real, in a directory of their own, so that they can be listed; flushing them is
 * only noted. What every write covered is kept until the file is flushed, and a power loss puts it
 * back: whole writes, or single sectors of them. Names are durable at once, as they are made.
 *
 * A machine that is dead answers every call with EIO and changes nothing any more, so that a store
 * can be closed without leaving more behind than a killed process would.
 *
 * The simulator's journal is on it, and so is a subject of the conformance suite. One thread.
 */
#ifndef ONCE_TESTS_STORE_SHAKY_H
#define ONCE_TESTS_STORE_SHAKY_H

#include "base/io.h"
#include "prng.h"

enum { SHAKY_FILES_MAX = 4096, SHAKY_FDS_MAX = 1024, SHAKY_PATH_BYTES_MAX = 128 };

struct shaky_write;

struct shaky_file {
    char path[SHAKY_PATH_BYTES_MAX]; /* empty: it is gone */
};

struct shaky {
    struct io io; /* hand this to the store */
    struct shaky_file *files;
    size_t file_count;
    int fds[SHAKY_FDS_MAX];     /* which file is open there */
    bool dsync[SHAKY_FDS_MAX];  /* it flushes each write (O_DSYNC) */
    struct shaky_write *writes; /* not flushed, newest first */
    bool dead;
    uint64_t dies_in; /* changing calls until it dies; 0: it does not */
};

void shaky_init(struct shaky *shaky);
void shaky_release(struct shaky *shaky);
/* Live again. With power lost, what was not flushed is there, gone or torn, as prng has it; the
 * number of writes that were taken back in whole or in part is returned. */
size_t shaky_revive(struct shaky *shaky, struct prng *prng, bool power_lost);

#endif
