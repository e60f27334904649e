/*
 * fuzz_dir: a directory of a fuzz target's own, whose files it puts and drops for every input.
 *
 * Nothing is flushed: what is looked for is wrong code, not a lost write.
 */
#ifndef ONCE_TESTS_FUZZ_FUZZ_DIR_H
#define ONCE_TESTS_FUZZ_FUZZ_DIR_H

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"

static inline int no_sync(void *context, int fd)
{
    (void)context;
    (void)fd;
    return 0;
}

static inline const char *fuzz_directory(void)
{
    static char path[64];
    if (path[0] == '\0') {
        (void)snprintf(path, sizeof path, "/tmp/once-fuzz-%ld", (long)getpid());
        ASSERT(mkdir(path, 0700) == 0);
    }
    return path;
}

static inline void file_put(const char *name, const void *bytes, size_t size)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", fuzz_directory(), name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ASSERT(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    (void)close(fd);
}

static inline void file_drop(const char *name)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", fuzz_directory(), name);
    (void)unlink(path);
}

#endif
