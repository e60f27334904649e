#include "store/shaky.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "store/fake_ring.h"

enum { SECTOR_BYTES = 512 }; /* what a disk writes whole or not at all */

/* What a write covered. */
struct shaky_write {
    struct shaky_write *next; /* the one before it */
    int file;
    uint64_t offset;
    size_t size;
    char old[]; /* size bytes; zeros where the file ended before */
};

static struct shaky *shaky_of(void *context)
{
    return context;
}

/* Whether this call is the one it dies at, or it is dead already. */
static bool dies(struct shaky *shaky)
{
    if (!shaky->dead && shaky->dies_in > 0 && --shaky->dies_in == 0) {
        shaky->dead = true;
    }
    return shaky->dead;
}

static int file_of(struct shaky *shaky, const char *path)
{
    for (size_t i = shaky->file_count; i-- > 0;) {
        if (strcmp(shaky->files[i].path, path) == 0) {
            return (int)i;
        }
    }
    ASSERT(shaky->file_count < SHAKY_FILES_MAX);
    struct shaky_file *file = &shaky->files[shaky->file_count];
    int len = snprintf(file->path, sizeof file->path, "%s", path);
    ASSERT(len > 0 && (size_t)len < sizeof file->path);
    return (int)shaky->file_count++;
}

/* Forget how it was before: it is as it is now for good. */
static void settle_file(struct shaky *shaky, int file)
{
    struct shaky_write **at = &shaky->writes;
    while (*at != NULL) {
        struct shaky_write *write = *at;
        if (write->file == file) {
            *at = write->next;
            mem_free(&mem_libc, write);
        } else {
            at = &write->next;
        }
    }
}

static int shaky_open(void *context, const char *path, int flags, mode_t mode)
{
    struct shaky *shaky = shaky_of(context);
    if (shaky->dead) {
        return -EIO;
    }
    int fd = io_system.open(io_system.context, path, flags & ~(O_DIRECT | O_DSYNC), mode);
    if (fd >= 0) {
        ASSERT(fd < SHAKY_FDS_MAX);
        shaky->fds[fd] = file_of(shaky, path);
        shaky->dsync[fd] = (flags & O_DSYNC) != 0;
        if (flags & O_TRUNC) {
            settle_file(shaky, shaky->fds[fd]);
        }
    }
    return fd;
}

static int shaky_close(void *context, int fd)
{
    (void)context;
    return io_system.close(io_system.context, fd); /* the kernel does this for the dead */
}

static ssize_t shaky_pread(void *context, int fd, void *ret_bytes, size_t size, uint64_t offset)
{
    if (shaky_of(context)->dead) {
        return -EIO;
    }
    return io_system.pread(io_system.context, fd, ret_bytes, size, offset);
}

static void remember(struct shaky *shaky, int file, const char *path, size_t size, uint64_t offset)
{
    struct shaky_write *write = mem_alloc(&mem_libc, sizeof *write + size);
    ASSERT(write != NULL);
    *write = (struct shaky_write){shaky->writes, file, offset, size};
    memset(write->old, 0, size);
    int fd = io_system.open(io_system.context, path, O_RDONLY, 0);
    ASSERT(fd >= 0);
    size_t got = 0;
    while (got < size) {
        ssize_t more =
            io_system.pread(io_system.context, fd, write->old + got, size - got, offset + got);
        if (more <= 0) {
            break;
        }
        got += (size_t)more;
    }
    (void)io_system.close(io_system.context, fd);
    shaky->writes = write;
}

static ssize_t shaky_pwrite(void *context, int fd, const void *bytes, size_t size, uint64_t offset)
{
    struct shaky *shaky = shaky_of(context);
    if (shaky->dead) {
        return -EIO;
    }
    int file = shaky->fds[fd];
    remember(shaky, file, shaky->files[file].path, size, offset);
    ssize_t done = io_system.pwrite(io_system.context, fd, bytes, size, offset);
    if (dies(shaky)) {
        return -EIO; /* it was on its way: how much arrived, the power decides */
    }
    if (shaky->dsync[fd]) { /* this write alone is flushed */
        struct shaky_write *write = shaky->writes;
        shaky->writes = write->next;
        mem_free(&mem_libc, write);
    }
    return done;
}

static int shaky_sync(void *context, int fd)
{
    struct shaky *shaky = shaky_of(context);
    if (dies(shaky)) {
        return -EIO;
    }
    settle_file(shaky, shaky->fds[fd]);
    return 0;
}

static int shaky_ftruncate(void *context, int fd, uint64_t size)
{
    struct shaky *shaky = shaky_of(context);
    return dies(shaky) ? -EIO : io_system.ftruncate(io_system.context, fd, size);
}

static int64_t shaky_size(void *context, int fd)
{
    return shaky_of(context)->dead ? -EIO : io_system.size(io_system.context, fd);
}

static int shaky_rename(void *context, const char *from, const char *to)
{
    struct shaky *shaky = shaky_of(context);
    if (dies(shaky)) {
        return -EIO;
    }
    int result = io_system.rename(io_system.context, from, to);
    if (result == 0) {
        int target = file_of(shaky, to);
        settle_file(shaky, target);
        shaky->files[target].path[0] = '\0';
        size_t len = strlen(from);
        for (size_t i = 0; i < shaky->file_count; i++) {
            struct shaky_file *file = &shaky->files[i];
            /* The file itself, or one in the directory that was renamed. */
            if (strncmp(file->path, from, len) == 0 &&
                (file->path[len] == '\0' || file->path[len] == '/')) {
                char moved[2 * SHAKY_PATH_BYTES_MAX];
                int size = snprintf(moved, sizeof moved, "%s%s", to, file->path + len);
                ASSERT(size > 0 && (size_t)size < sizeof file->path);
                memcpy(file->path, moved, (size_t)size + 1);
            }
        }
    }
    return result;
}

static int shaky_unlink(void *context, const char *path)
{
    struct shaky *shaky = shaky_of(context);
    if (dies(shaky)) {
        return -EIO;
    }
    int result = io_system.unlink(io_system.context, path);
    if (result == 0) {
        int file = file_of(shaky, path);
        settle_file(shaky, file);
        shaky->files[file].path[0] = '\0';
    }
    return result;
}

static int shaky_mkdir(void *context, const char *path, mode_t mode)
{
    return dies(shaky_of(context)) ? -EIO : io_system.mkdir(io_system.context, path, mode);
}

static int shaky_rmdir(void *context, const char *path)
{
    return dies(shaky_of(context)) ? -EIO : io_system.rmdir(io_system.context, path);
}

static int shaky_lock(void *context, int fd)
{
    return shaky_of(context)->dead ? -EIO : io_system.lock(io_system.context, fd);
}

void shaky_init(struct shaky *shaky)
{
    *shaky = (struct shaky){.io = {
                                .open = shaky_open,
                                .close = shaky_close,
                                .pread = shaky_pread,
                                .pwrite = shaky_pwrite,
                                .fdatasync = shaky_sync,
                                .fsync = shaky_sync,
                                .ftruncate = shaky_ftruncate,
                                .size = shaky_size,
                                .rename = shaky_rename,
                                .unlink = shaky_unlink,
                                .mkdir = shaky_mkdir,
                                .rmdir = shaky_rmdir,
                                .lock = shaky_lock,
                                FAKE_RING,
                                .context = shaky,
                            }};
    shaky->files = mem_zalloc(&mem_libc, SHAKY_FILES_MAX, sizeof *shaky->files);
    ASSERT(shaky->files != NULL);
}

void shaky_release(struct shaky *shaky)
{
    for (int i = 0; i < (int)shaky->file_count; i++) {
        settle_file(shaky, i);
    }
    mem_free(&mem_libc, shaky->files);
    shaky->files = NULL;
}

/* Put back the whole write, or some of its sectors. False: it arrived in full. */
static bool take_back(struct shaky *shaky, const struct shaky_write *write, struct prng *prng)
{
    uint64_t choice = prng_below(prng, 3);
    if (choice == 0) {
        return false;
    }
    const char *path = shaky->files[write->file].path;
    int fd = io_system.open(io_system.context, path, O_WRONLY, 0);
    ASSERT(fd >= 0);
    for (size_t at = 0; at < write->size;) {
        /* The next boundary of the file, not of the write. */
        size_t size = SECTOR_BYTES - (size_t)((write->offset + at) % SECTOR_BYTES);
        size = size > write->size - at ? write->size - at : size;
        if (choice == 1 || prng_once_in(prng, 2)) {
            ASSERT(io_write_full(&io_system, fd, write->old + at, size, write->offset + at) == 0);
        }
        at += size;
    }
    (void)io_system.close(io_system.context, fd);
    return true;
}

size_t shaky_revive(struct shaky *shaky, struct prng *prng, bool power_lost)
{
    size_t taken = 0;
    shaky->dead = false;
    shaky->dies_in = 0;
    while (power_lost && shaky->writes != NULL) {
        struct shaky_write *write = shaky->writes;
        taken += take_back(shaky, write, prng);
        shaky->writes = write->next;
        mem_free(&mem_libc, write);
    }
    return taken;
}
